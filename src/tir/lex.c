/* lex.c: TVMScript text to tokens, by the rules of Python.
 *
 * Newlines inside brackets do not count, blank lines and comments vanish, and a
 * change of indentation at the start of a line gives TOK_INDENT or TOK_DEDENT.
 * The first line's indentation is the base, so a function cut out of a class
 * reads as it stands. */
#include "tir/script.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_INDENTS = 128, MAX_TOKENS = 1 << 22 };

typedef struct Lexer {
  Arena *arena;
  Ctx *ctx;
  const char *file;
  const char *p, *line_start;
  int line;
  Vec(int) open; /* tokens of the brackets that are open */
  int indent[MAX_INDENTS], nindent;
  Tokens out;
} Lexer;

_Noreturn static void __attribute__((format(printf, 3, 4))) fail(Lexer *lx, const char *at, const char *fmt, ...)
{
  va_list args;
  char text[256];
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  raise(lx->ctx, ERR_PARSE, ((Loc){lx->file, lx->line, (int)(at - lx->line_start) + 1}), "%s", text);
}

static Token *push(Lexer *lx, TokKind kind, const char *at, const char *s)
{
  if (lx->out.n >= MAX_TOKENS) fail(lx, at, "the text is too long");
  vec_push(lx->arena, &lx->out, (Token){.kind = kind, .s = s, .line = lx->line, .col = (int)(at - lx->line_start) + 1});
  return &lx->out.v[lx->out.n - 1];
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void next_line(Lexer *lx)
{
  lx->line++;
  lx->line_start = lx->p;
}

/* ---- numbers -------------------------------------------------------------------- */

static int digit_value(char c)
{
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

static void lex_int(Lexer *lx, const char *start, int base)
{
  uint64_t v = 0;
  bool any = false;
  for (; digit_value(*lx->p) < base || *lx->p == '_'; lx->p++) {
    if (*lx->p == '_') continue;
    any = true;
    if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)digit_value(*lx->p), &v))
      fail(lx, start, "the number does not fit 64 bits");
  }
  if (!any || is_letter(*lx->p) || is_digit(*lx->p)) fail(lx, start, "this is not a number");
  push(lx, TOK_INT, start, arena_strndup(lx->arena, start, (size_t)(lx->p - start)))->i = v;
}

static void lex_float(Lexer *lx, const char *start)
{
  while (is_digit(*lx->p) || *lx->p == '_') lx->p++;
  if (*lx->p == '.') lx->p++;
  while (is_digit(*lx->p) || *lx->p == '_') lx->p++;
  if (*lx->p == 'e' || *lx->p == 'E') {
    lx->p++;
    if (*lx->p == '+' || *lx->p == '-') lx->p++;
    if (!is_digit(*lx->p)) fail(lx, start, "the exponent has no digits");
    while (is_digit(*lx->p)) lx->p++;
  }
  if (is_letter(*lx->p)) fail(lx, start, "this is not a number");
  char *text = arena_strndup(lx->arena, start, (size_t)(lx->p - start));
  char *to = text;
  for (const char *c = text; *c; c++)
    if (*c != '_') *to++ = *c;
  *to = 0;
  double v = strtod(text, NULL);
  if (isinf(v)) fail(lx, start, "the number %s is too large for a float", text);
  push(lx, TOK_FLOAT, start, text)->f = v;
}

static void lex_number(Lexer *lx)
{
  const char *start = lx->p;
  char mark = start[0] == '0' ? (char)(start[1] | 0x20) : 0;
  if (mark == 'x' || mark == 'o' || mark == 'b') {
    lx->p += 2;
    lex_int(lx, start, mark == 'x' ? 16 : mark == 'o' ? 8 : 2);
    return;
  }
  const char *c = start;
  while (is_digit(*c) || *c == '_') c++;
  if (*c == '.' || *c == 'e' || *c == 'E') lex_float(lx, start);
  else lex_int(lx, start, 10);
}

/* ---- strings ---------------------------------------------------------------------- */

static void add_utf8(Text *t, uint32_t c)
{
  if (c < 0x80) text_char(t, (char)c);
  else if (c < 0x800) {
    text_char(t, (char)(0xc0 | c >> 6));
    text_char(t, (char)(0x80 | (c & 0x3f)));
  } else {
    text_char(t, (char)(0xe0 | c >> 12));
    text_char(t, (char)(0x80 | (c >> 6 & 0x3f)));
    text_char(t, (char)(0x80 | (c & 0x3f)));
  }
}

static void lex_escape(Lexer *lx, Text *t)
{
  char c = *lx->p++;
  int digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
  if (digits) {
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, lx->p++) {
      if (digit_value(*lx->p) > 15) fail(lx, lx->p, "'\\%c' wants %d hexadecimal digits", c, digits);
      v = v * 16 + (uint32_t)digit_value(*lx->p);
    }
    if (v == 0) fail(lx, lx->p, "a string cannot hold a zero character");
    add_utf8(t, v);
    return;
  }
  switch (c) {
  case 'n': text_char(t, '\n'); return;
  case 't': text_char(t, '\t'); return;
  case 'r': text_char(t, '\r'); return;
  case '\\':
  case '\'':
  case '"': text_char(t, c); return;
  case '\n': next_line(lx); return;
  default: fail(lx, lx->p - 1, "unknown escape in a string");
  }
}

static void lex_string(Lexer *lx)
{
  const char *start = lx->p;
  char quote = *start;
  bool triple = start[1] == quote && start[2] == quote;
  int line = lx->line;
  int col = (int)(start - lx->line_start) + 1;
  Text t = text_new(lx->arena);
  lx->p += triple ? 3 : 1;
  for (;;) {
    char c = *lx->p;
    if (c == 0 || (c == '\n' && !triple)) fail(lx, lx->p, "the string that starts on line %d does not end", line);
    if (c == quote && (!triple || (lx->p[1] == quote && lx->p[2] == quote))) break;
    lx->p++;
    if (c == '\\') {
      if (*lx->p == 0) fail(lx, lx->p, "the string that starts on line %d does not end", line);
      lex_escape(lx, &t);
      continue;
    }
    text_char(&t, c);
    if (c == '\n') next_line(lx);
  }
  lx->p += triple ? 3 : 1;
  Token *tok = push(lx, TOK_STR, start, text_str(&t));
  tok->line = line;
  tok->col = col;
}

/* ---- the rest ----------------------------------------------------------------------- */

static void lex_op(Lexer *lx)
{
  static const char *const ops[] = {"//=", "**=", "...", ":=", "**", "//", "==", "!=", "<=", ">=", "->",
                                    "<<",  ">>",  "+=",  "-=", "*=", "/=", "%=", "(",  ")",  "[",  "]",
                                    "{",   "}",   ",",   ":",  ".",  "=",  "+",  "-",  "*",  "/",  "%",
                                    "<",   ">",   "&",   "|",  "^",  "~",  "@",  ";"};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    if (!str_starts(lx->p, ops[i])) continue;
    push(lx, TOK_OP, lx->p, ops[i]);
    lx->p += strlen(ops[i]);
    if (strchr("([{", ops[i][0]) && !ops[i][1]) vec_push(lx->arena, &lx->open, lx->out.n - 1);
    if (strchr(")]}", ops[i][0]) && !ops[i][1] && lx->open.n) lx->open.n--;
    return;
  }
  unsigned char c = (unsigned char)*lx->p;
  if (c >= 0x20 && c < 0x7f) fail(lx, lx->p, "'%c' has no meaning here", c);
  fail(lx, lx->p, "byte 0x%02x has no meaning here", c);
}

/* The indentation of a line that holds something. */
static void lex_indent(Lexer *lx)
{
  int width = 0;
  for (; *lx->p == ' ' || *lx->p == '\t' || *lx->p == '\f'; lx->p++)
    width = *lx->p == '\t' ? (width / 8 + 1) * 8 : width + 1;
  if (*lx->p == '#' || *lx->p == '\n' || *lx->p == '\r' || *lx->p == 0) return;
  if (lx->out.n == 0) lx->indent[0] = width;
  if (width > lx->indent[lx->nindent - 1]) {
    if (lx->nindent == MAX_INDENTS) fail(lx, lx->p, "indented too deep: at most %d levels", MAX_INDENTS - 1);
    lx->indent[lx->nindent++] = width;
    push(lx, TOK_INDENT, lx->p, "indent");
    return;
  }
  while (width < lx->indent[lx->nindent - 1]) {
    if (lx->nindent == 1) fail(lx, lx->p, "this line is indented less than the first one");
    lx->nindent--;
    push(lx, TOK_DEDENT, lx->p, "dedent");
  }
  if (width != lx->indent[lx->nindent - 1]) fail(lx, lx->p, "this indentation matches no line above");
}

static void lex_name(Lexer *lx)
{
  const char *start = lx->p;
  while (is_letter(*lx->p) || is_digit(*lx->p)) lx->p++;
  push(lx, TOK_NAME, start, arena_strndup(lx->arena, start, (size_t)(lx->p - start)));
}

static void lex_newline(Lexer *lx)
{
  bool ends = !lx->open.n && lx->out.n && lx->out.v[lx->out.n - 1].kind != TOK_NEWLINE;
  if (ends) push(lx, TOK_NEWLINE, lx->p, "the end of the line");
  lx->p++;
  next_line(lx);
  if (!lx->open.n) lex_indent(lx);
}

Tokens parse_lex(Arena *arena, const char *text, const char *file, int line0)
{
  Lexer lx = {
    .arena = arena, .ctx = arena_ctx(arena), .file = file, .p = text, .line_start = text, .line = line0, .nindent = 1};
  lex_indent(&lx);
  while (*lx.p) {
    char c = *lx.p;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\f') lx.p++;
    else if (c == '#')
      while (*lx.p && *lx.p != '\n') lx.p++;
    else if (c == '\n') lex_newline(&lx);
    else if (c == '\\' && (lx.p[1] == '\n' || (lx.p[1] == '\r' && lx.p[2] == '\n'))) {
      lx.p += lx.p[1] == '\n' ? 2 : 3;
      next_line(&lx);
    } else if (is_letter(c)) lex_name(&lx);
    else if (is_digit(c) || (c == '.' && is_digit(lx.p[1]))) lex_number(&lx);
    else if (c == '"' || c == '\'') lex_string(&lx);
    else lex_op(&lx);
  }
  if (lx.open.n) {
    const Token *t = &lx.out.v[lx.open.v[lx.open.n - 1]];
    raise(lx.ctx, ERR_PARSE, ((Loc){file, t->line, t->col}), "this '%s' is never closed", t->s);
  }
  if (lx.out.n && lx.out.v[lx.out.n - 1].kind != TOK_NEWLINE) push(&lx, TOK_NEWLINE, lx.p, "the end of the line");
  while (lx.nindent-- > 1) push(&lx, TOK_DEDENT, lx.p, "dedent");
  push(&lx, TOK_END, lx.p, "the end of the text");
  return lx.out;
}
