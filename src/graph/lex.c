/* lex.c: tokens of Relay text.
 *
 * Comes in: bytes up to a zero.  Goes out: one token at a time, with its place.
 * Comments (also those that tell types) are skipped. */
#include "graph/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void graph_lex_error(Reader *r, const char *fmt, ...)
{
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  raise(r->ctx, ERR_PARSE, r->tok.loc, "%s", text);
}

void graph_lex_enter(Reader *r)
{
  if (++r->nesting > MAX_NESTING) graph_lex_error(r, "nested more than %d deep", MAX_NESTING);
}

void graph_lex_leave(Reader *r) { r->nesting--; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void skip_blanks(Reader *r)
{
  while (r->p < r->end) {
    if (*r->p == '\n') {
      r->line++;
      r->line_start = ++r->p;
    } else if (*r->p == ' ' || *r->p == '\t' || *r->p == '\r') {
      r->p++;
    } else if (r->p[0] == '/' && r->p[1] == '/' && !r->in_dim) {
      while (r->p < r->end && *r->p != '\n') r->p++;
    } else if (r->p[0] == '/' && r->p[1] == '*') {
      r->tok.loc = (Loc){r->file, r->line, (int)(r->p - r->line_start) + 1};
      for (r->p += 2; r->p < r->end && !(r->p[0] == '*' && r->p[1] == '/'); r->p++)
        if (*r->p == '\n') {
          r->line++;
          r->line_start = r->p + 1;
        }
      if (r->p >= r->end) graph_lex_error(r, "a comment is not closed");
      r->p += 2;
    } else {
      return;
    }
  }
}

/* A name: letters, digits, and joints between them. */
static const char *lex_name(Reader *r, bool joints)
{
  const char *begin = r->p;
  while (name_letter(*r->p) || ((joints ? name_joint(*r->p) : *r->p == '.') && name_letter(r->p[1]))) r->p++;
  return arena_strndup(r->arena, begin, (size_t)(r->p - begin));
}

static int hex_digit(char c)
{
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static char escaped(Reader *r)
{
  char c = *r->p++;
  switch (c) {
  case 'n': return '\n';
  case 't': return '\t';
  case 'r': return '\r';
  case '\\':
  case '"':
  case '\'':
  case '/': return c;
  case 'u':
  case 'x': {
    int v = 0;
    int n = c == 'u' ? 4 : 2;
    for (int i = 0; i < n; i++, r->p++) {
      if (hex_digit(*r->p) < 0) graph_lex_error(r, "a \\%c in a string wants %d hexadecimal digits", c, n);
      v = v * 16 + hex_digit(*r->p);
    }
    if (v == 0 || v > 255) graph_lex_error(r, "a string holds no character \\%c%04x", c, (unsigned)v);
    return (char)v;
  }
  default: graph_lex_error(r, "unknown escape \\%c in a string", c);
  }
}

static const char *lex_string(Reader *r)
{
  Text t = text_new(r->arena);
  if (!strncmp(r->p, "\"\"\"", 3)) {
    const char *begin = r->p + 3;
    const char *close = strstr(begin, "\"\"\"");
    if (!close || close >= r->end) graph_lex_error(r, "a text in three quotes is not closed");
    for (const char *c = begin; c < close; c++)
      if (*c == '\n') {
        r->line++;
        r->line_start = c + 1;
      }
    r->p = close + 3;
    return arena_strndup(r->arena, begin, (size_t)(close - begin));
  }
  for (r->p++; r->p < r->end && *r->p != '"';) {
    if (*r->p == '\n') graph_lex_error(r, "a string is not closed on its line");
    if (*r->p == '\\' && r->p + 1 < r->end) {
      r->p++;
      text_char(&t, escaped(r));
    } else {
      text_char(&t, *r->p++);
    }
  }
  if (r->p >= r->end) graph_lex_error(r, "a string is not closed");
  r->p++;
  return text_str(&t);
}

/* 12  3i64  1f  2.5e-3f16 */
static void lex_number(Reader *r)
{
  const char *begin = r->p;
  r->tok.kind = T_INT;
  while (is_digit(*r->p)) r->p++;
  if (*r->p == '.' && is_digit(r->p[1])) {
    r->tok.kind = T_FLOAT;
    for (r->p++; is_digit(*r->p);) r->p++;
  }
  const char *e = r->p;
  if (*e == 'e' || *e == 'E') {
    e += e[1] == '+' || e[1] == '-' ? 2 : 1;
    if (is_digit(*e)) {
      r->tok.kind = T_FLOAT;
      while (is_digit(*e)) e++;
      r->p = e;
    }
  }
  r->tok.text = arena_strndup(r->arena, begin, (size_t)(r->p - begin));
  r->tok.dtype = DT_NONE;
  if (!name_letter(*r->p)) return;
  const char *suffix = lex_name(r, false);
  char *rest = (char *)"";
  long bits = suffix[1] ? strtol(suffix + 1, &rest, 10) : 32;
  bool known = (bits == 2 || bits == 4 || bits == 8 || bits == 16 || bits == 32 || bits == 64) && !*rest;
  if (suffix[0] == 'f' && known && bits >= 16) r->tok.dtype = DTYPE(DT_FLOAT, (uint8_t)bits);
  else if (suffix[0] == 'i' && known) r->tok.dtype = DTYPE(DT_INT, (uint8_t)bits);
  else if (suffix[0] == 'u' && known) r->tok.dtype = DTYPE(DT_UINT, (uint8_t)bits);
  else graph_lex_error(r, "unknown suffix '%.40s' of a number", suffix);
  if (suffix[0] == 'f') r->tok.kind = T_FLOAT;
  else if (r->tok.kind == T_FLOAT) graph_lex_error(r, "'%.40s%.40s' is no integer", r->tok.text, suffix);
}

static void lex_sigil(Reader *r)
{
  bool local = *r->p++ == '%';
  r->tok.kind = local ? T_LOCAL : T_GLOBAL;
  if (*r->p == '"') {
    r->tok.text = lex_string(r);
  } else if (local && is_digit(*r->p)) {
    const char *begin = r->p;
    while (is_digit(*r->p)) r->p++;
    r->tok.kind = T_TEMP;
    r->tok.text = arena_strndup(r->arena, begin, (size_t)(r->p - begin));
  } else if (name_letter(*r->p)) {
    r->tok.text = lex_name(r, true);
  } else {
    graph_lex_error(r, "a name must follow '%c'", local ? '%' : '@');
  }
}

void graph_lex_next(Reader *r)
{
  skip_blanks(r);
  r->tok.loc = (Loc){r->file, r->line, (int)(r->p - r->line_start) + 1};
  r->tok.begin = r->p;
  r->tok.text = "";
  if (r->p >= r->end) {
    r->tok.kind = T_END;
    r->tok.text = "the end";
    return;
  }
  char c = *r->p;
  if ((c == '%' && !r->in_dim && (name_letter(r->p[1]) || r->p[1] == '"')) || c == '@') {
    lex_sigil(r);
  } else if (is_digit(c)) {
    lex_number(r);
  } else if (name_letter(c)) {
    r->tok.kind = T_IDENT;
    r->tok.text = lex_name(r, false);
  } else if (c == '"') {
    r->tok.kind = T_STR;
    r->tok.text = lex_string(r);
  } else {
    static const char *const two[] = {"->", "=>", "//", "==", "!=", "<=", ">=", "&&", "||"};
    r->tok.kind = T_PUNCT;
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
      if (!strncmp(r->p, two[i], 2)) n = 2;
    if ((unsigned char)c < ' ' || !strchr("()[]{}<>,;:=.+-*/%?!&|", c))
      graph_lex_error(r, "unexpected byte 0x%02x", (unsigned char)c);
    r->tok.text = arena_strndup(r->arena, r->p, n);
    r->p += n;
  }
}

void graph_lex_start(Reader *r, const char *text, const char *end, int line)
{
  r->p = r->line_start = text;
  r->end = end;
  r->line = line;
  graph_lex_next(r);
}

int graph_lex_index(Reader *r)
{
  int v = 0;
  if (!is_digit(*r->p)) graph_lex_error(r, "the number of a field must follow '.'");
  for (; is_digit(*r->p); r->p++) {
    v = v * 10 + (*r->p - '0');
    if (v > 1000000) graph_lex_error(r, "there are no tuples with a million fields");
  }
  graph_lex_next(r);
  return v;
}

bool graph_lex_is(const Reader *r, const char *s)
{
  return (r->tok.kind == T_PUNCT || r->tok.kind == T_IDENT) && !strcmp(r->tok.text, s);
}

bool graph_lex_accept(Reader *r, const char *s)
{
  if (!graph_lex_is(r, s)) return false;
  graph_lex_next(r);
  return true;
}

void graph_lex_expect(Reader *r, const char *s)
{
  if (!graph_lex_accept(r, s)) graph_lex_error(r, "expected '%s', found '%.60s'", s, r->tok.text);
}
