/* pattern.c: regular expressions of RE2's syntax become programs for the executor.
 *
 * Comes in: the text of a pattern, not to be trusted.  Goes out: numbers as
 * ../../runtime/model_format.h has them (PatternOp): letters, forks, assertions.  Everything about
 * case, classes and negation is worked out here, so that the executor only asks whether a
 * letter lies in one of a few ranges.  What RE2 has and this has not is refused with its name:
 * classes by Unicode property (\p), lines as texts of their own ((?m)), \C.
 *
 *   alternatives := sequence ('|' sequence)*
 *   sequence     := (atom ('*' | '+' | '?' | '{' m (',' n?)? '}') '?'?)*
 *   atom         := '(' … ')' | '[' … ']' | '.' | '^' | '$' | '\' … | letter */
#include <stdio.h>
#include <stdlib.h>

#include "../../runtime/model_format.h"
#include "op/op.h"

enum { MOST_NESTED = 200, MOST_REPEATS = 1000, MOST_NUMBERS = 1 << 16, LAST_LETTER = 0x10FFFF };

typedef struct Range {
  int32_t lo, hi;
} Range;
typedef Vec(Range) Ranges;

typedef struct Regex {
  enum { RX_EMPTY, RX_SET, RX_ASSERT, RX_THEN, RX_OR, RX_REPEAT } kind;
  const struct Regex *a, *b;
  int min, max; /* REPEAT; max -1: any number */
  PatternFact fact;
  Ranges set; /* in order, apart from each other */
} Regex;

typedef struct Parser {
  Ctx *ctx;
  Arena *arena;
  const char *text, *p;
  int nested;
  bool fold, all; /* (?i), (?s) */
  Vec(int32_t) code;
} Parser;

__attribute__((format(printf, 2, 3))) _Noreturn static void refuse(Parser *p, const char *fmt, ...)
{
  char why[200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  raise(p->ctx, ERR_ARGUMENT, NOWHERE, "pattern '%.200s' at byte %d: %s", p->text, (int)(p->p - p->text), why);
}

/* ---- sets of letters ---------------------------------------------------------------- */

static void add_range(Parser *p, Ranges *set, int32_t lo, int32_t hi) { vec_push(p->arena, set, ((Range){lo, hi})); }

/* The other case of what is there already. */
static void add_case(Parser *p, Ranges *set, bool upper)
{
  int rows;
  int n = set->n;
  const int32_t *row = strings_case_table(upper, &rows);
  for (int r = 0; r < rows; r++, row += 4)
    for (int i = 0; i < n; i++)
      for (int32_t c = row[0]; c <= row[1]; c += row[2])
        if (set->v[i].lo <= c && c <= set->v[i].hi) add_range(p, set, c + row[3], c + row[3]);
}

static int range_order(const void *a, const void *b)
{
  int32_t x = ((const Range *)a)->lo;
  int32_t y = ((const Range *)b)->lo;
  return (x > y) - (x < y);
}

static Ranges tidy(Parser *p, Ranges set, bool negate)
{
  Ranges out = {0};
  int32_t next = 0; /* the first letter not looked at */
  if (p->fold)
    for (int turn = 0; turn < 2; turn++) add_case(p, &set, false), add_case(p, &set, true);
  if (set.n) qsort(set.v, (size_t)set.n, sizeof *set.v, range_order);
  for (int i = 0; i < set.n; i++) {
    Range r = set.v[i];
    if (negate) {
      if (r.lo > next) add_range(p, &out, next, r.lo - 1);
      if (r.hi >= next) next = r.hi + 1;
    } else if (out.n && r.lo <= out.v[out.n - 1].hi + 1) {
      if (r.hi > out.v[out.n - 1].hi) out.v[out.n - 1].hi = r.hi;
    } else {
      vec_push(p->arena, &out, r);
    }
  }
  if (negate && next <= LAST_LETTER) add_range(p, &out, next, LAST_LETTER);
  return out;
}

/* d, w, s in lower case; in upper case all others.  False: no such class. */
static bool add_perl_class(Parser *p, Ranges *set, char name)
{
  Ranges found = {0};
  char small = (char)(name | 32);
  if (small == 'd' || small == 'w') add_range(p, &found, '0', '9');
  if (small == 'w') add_range(p, &found, 'A', 'Z'), add_range(p, &found, '_', '_'), add_range(p, &found, 'a', 'z');
  if (small == 's') add_range(p, &found, '\t', '\n'), add_range(p, &found, '\f', '\r'), add_range(p, &found, ' ', ' ');
  if (!found.n) return false;
  bool fold = p->fold;
  p->fold = false;
  found = tidy(p, found, name != small);
  p->fold = fold;
  for (int i = 0; i < found.n; i++) vec_push(p->arena, set, found.v[i]);
  return true;
}

/* [:alpha:] and its like, [:^alpha:]: the text stands behind "[:". */
static void add_posix_class(Parser *p, Ranges *set)
{
  static const struct {
    const char *name, *ranges;
  } classes[] = {
    {"alnum", "09AZaz"}, {"alpha", "AZaz"}, {"ascii", "\x01\x7f"}, {"blank", "\t\t  "},  {"cntrl", "\x01\x1f\x7f\x7f"},
    {"digit", "09"},     {"graph", "!~"},   {"lower", "az"},       {"print", " ~"},      {"punct", "!/:@[`{~"},
    {"space", "\t\r  "}, {"upper", "AZ"},   {"word", "09AZ__az"},  {"xdigit", "09AFaf"},
  };
  bool negate = *p->p == '^';
  p->p += negate;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    size_t n = strlen(classes[i].name);
    if (strncmp(p->p, classes[i].name, n) || strncmp(p->p + n, ":]", 2)) continue;
    Ranges found = {0};
    if (classes[i].ranges[0] == 1) add_range(p, &found, 0, 0);
    for (const char *r = classes[i].ranges; *r; r += 2) add_range(p, &found, r[0], r[1]);
    found = tidy(p, found, negate);
    for (int k = 0; k < found.n; k++) vec_push(p->arena, set, found.v[k]);
    p->p += n + 2;
    return;
  }
  refuse(p, "there is no class of this name");
}

/* ---- letters -------------------------------------------------------------------------------- */

static int32_t letter(Parser *p)
{
  int32_t c;
  size_t n = strings_utf8_decode(p->p, strlen(p->p), &c);
  if (c < 0) refuse(p, "this is not UTF-8");
  p->p += n;
  return c;
}

static int32_t number(Parser *p, int base, int most)
{
  int32_t v = 0;
  for (int i = 0; i < most; i++, p->p++) {
    char c = *p->p;
    int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    if (d >= base) break;
    v = v * base + d;
    if (v > LAST_LETTER) refuse(p, "a letter above 10FFFF");
  }
  return v;
}

/* What follows a backslash, where it stands for one letter. */
static int32_t escaped(Parser *p)
{
  static const char from[] = "abfnrtv";
  static const char to[] = "\a\b\f\n\r\t\v";
  char c = *p->p;
  const char *at = c ? strchr(from, c) : NULL;
  if (at && c != 'b') return p->p++, to[at - from];
  if (c == '0') return number(p, 8, 3);
  if (c >= '1' && c <= '7' && p->p[1] >= '0' && p->p[1] <= '7') return number(p, 8, 3);
  if (c == 'x' && p->p[1] == '{') {
    p->p += 2;
    const char *begin = p->p;
    int32_t v = number(p, 16, 8);
    if (p->p == begin || *p->p != '}') refuse(p, "\\x{ wants hexadecimal digits and }");
    return p->p++, v;
  }
  if (c == 'x') {
    const char *begin = ++p->p;
    int32_t v = number(p, 16, 2);
    if (p->p != begin + 2) refuse(p, "\\x wants two hexadecimal digits");
    return v;
  }
  if (c >= '1' && c <= '9') refuse(p, "back references are not regular: \\%c", c);
  if (c == 'p' || c == 'P') refuse(p, "classes by Unicode property (\\%c) are not supported", c);
  if (!c) refuse(p, "it ends in a backslash");
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) refuse(p, "\\%c is not supported", c);
  return letter(p);
}

/* ---- the tree ------------------------------------------------------------------------------------- */

static const Regex *alternatives(Parser *p);

static Regex *rx_new(Parser *p, int kind, const Regex *a, const Regex *b)
{
  Regex *r = arena_new_of(p->arena, Regex);
  r->kind = kind;
  r->a = a;
  r->b = b;
  return r;
}

static const Regex *rx_set(Parser *p, Ranges set, bool negate)
{
  Regex *r = rx_new(p, RX_SET, NULL, NULL);
  r->set = tidy(p, set, negate);
  return r;
}

static const Regex *rx_assert(Parser *p, PatternFact fact)
{
  Regex *r = rx_new(p, RX_ASSERT, NULL, NULL);
  r->fact = fact;
  return r;
}

/* Behind the bracket. */
static const Regex *bracket(Parser *p)
{
  Ranges set = {0};
  bool negate = *p->p == '^';
  p->p += negate;
  for (bool first = true; first || *p->p != ']'; first = false) {
    if (!*p->p) refuse(p, "a bracket is not closed");
    if (!strncmp(p->p, "[:", 2)) {
      p->p += 2;
      add_posix_class(p, &set);
      continue;
    }
    if (*p->p == '\\' && add_perl_class(p, &set, p->p[1])) {
      p->p += 2;
      continue;
    }
    int32_t lo = *p->p == '\\' ? (p->p++, escaped(p)) : letter(p);
    int32_t hi = lo;
    if (p->p[0] == '-' && p->p[1] != ']' && p->p[1]) {
      p->p++;
      hi = *p->p == '\\' ? (p->p++, escaped(p)) : letter(p);
      if (hi < lo) refuse(p, "a range goes backwards");
    }
    add_range(p, &set, lo, hi);
  }
  p->p++;
  return rx_set(p, set, negate);
}

/* Behind "(?": flags up to ) or :, or a name.  True: a group follows. */
static bool flags(Parser *p)
{
  if (*p->p == ':') return p->p++, true;
  if ((p->p[0] == 'P' && p->p[1] == '<') || (p->p[0] == '<' && p->p[1] != '=' && p->p[1] != '!')) {
    const char *end = strchr(p->p, '>');
    if (!end) refuse(p, "a name is not closed");
    return p->p = end + 1, true;
  }
  for (bool on = true; *p->p != ')' && *p->p != ':'; p->p++) {
    if (*p->p == '-') on = false;
    else if (*p->p == 'i') p->fold = on;
    else if (*p->p == 's') p->all = on;
    else if (*p->p != 'U') refuse(p, "(?%.1s is not supported", p->p);
  }
  return *p->p++ == ':';
}

static const Regex *group(Parser *p)
{
  bool fold = p->fold;
  bool all = p->all;
  if (*p->p == '?') {
    p->p++;
    if (!flags(p)) return rx_new(p, RX_EMPTY, NULL, NULL); /* for what follows, to the end of this group */
  }
  const Regex *r = alternatives(p);
  if (*p->p != ')') refuse(p, "a group is not closed");
  p->p++;
  p->fold = fold;
  p->all = all;
  return r;
}

static const Regex *atom(Parser *p)
{
  Ranges set = {0};
  char c = *p->p;
  if (c == '*' || c == '+' || c == '?') refuse(p, "there is nothing to repeat");
  if (c == '(') return p->p++, group(p);
  if (c == '[') return p->p++, bracket(p);
  if (c == '^') return p->p++, rx_assert(p, PA_BEGIN);
  if (c == '$') return p->p++, rx_assert(p, PA_END);
  if (c == '.') {
    p->p++;
    if (!p->all) add_range(p, &set, '\n', '\n');
    return rx_set(p, set, true);
  }
  if (c != '\\') {
    int32_t l = letter(p);
    add_range(p, &set, l, l);
    return rx_set(p, set, false);
  }
  c = *++p->p;
  if (c == 'A' || c == 'z' || c == 'b' || c == 'B')
    return p->p++, rx_assert(p, c == 'A' ? PA_BEGIN : c == 'z' ? PA_END : c == 'b' ? PA_EDGE : PA_NO_EDGE);
  if (add_perl_class(p, &set, c)) {
    Regex *r = rx_new(p, RX_SET, NULL, NULL);
    r->set = set;
    return p->p++, r;
  }
  int32_t l = escaped(p);
  add_range(p, &set, l, l);
  return rx_set(p, set, false);
}

/* {m}, {m,} or {m,n} at p; false: it is text. */
static bool counts(Parser *p, int *min, int *max)
{
  char *end;
  const char *s = p->p + 1;
  if (*s < '0' || *s > '9') return false;
  long lo = strtol(s, &end, 10), hi = lo;
  if (*end == ',') {
    s = end + 1;
    hi = *s == '}' ? -1 : strtol(s, &end, 10);
    if (*s == '}') end++;
    else if (*s < '0' || *s > '9') return false;
  }
  if (*end != '}') return false;
  if (lo > MOST_REPEATS || hi > MOST_REPEATS || (hi >= 0 && hi < lo))
    refuse(p, "a count of repeats that is above %d or goes backwards", MOST_REPEATS);
  p->p = end + 1;
  *min = (int)lo;
  *max = (int)hi;
  return true;
}

static const Regex *sequence(Parser *p)
{
  const Regex *all = NULL;
  while (*p->p && *p->p != '|' && *p->p != ')') {
    const Regex *r = atom(p);
    for (;;) {
      int min = *p->p == '+';
      int max = *p->p == '?' ? 1 : -1;
      bool simple = *p->p == '*' || *p->p == '+' || *p->p == '?';
      if (!simple && !(*p->p == '{' && counts(p, &min, &max))) break;
      p->p += simple;
      p->p += *p->p == '?'; /* which match comes first does not matter */
      Regex *again = rx_new(p, RX_REPEAT, r, NULL);
      again->min = min;
      again->max = max;
      r = again;
      if (*p->p == '*' || *p->p == '+' || *p->p == '?') refuse(p, "a repeat of a repeat");
    }
    all = all ? rx_new(p, RX_THEN, all, r) : r;
  }
  return all ? all : rx_new(p, RX_EMPTY, NULL, NULL);
}

static const Regex *alternatives(Parser *p)
{
  if (++p->nested > MOST_NESTED) refuse(p, "groups are nested more than %d deep", MOST_NESTED);
  const Regex *r = sequence(p);
  while (*p->p == '|') {
    p->p++;
    r = rx_new(p, RX_OR, r, sequence(p));
  }
  p->nested--;
  return r;
}

/* ---- the program ------------------------------------------------------------------------------------ */

static int step(Parser *p, int32_t op, int32_t a, int32_t b)
{
  if (p->code.n > MOST_NUMBERS) refuse(p, "its program has more than %d numbers", MOST_NUMBERS);
  vec_push(p->arena, &p->code, op);
  vec_push(p->arena, &p->code, a);
  vec_push(p->arena, &p->code, b);
  return p->code.n - 3;
}

static void fork_to(Parser *p, int at, int a, int b)
{
  p->code.v[at + 1] = a;
  p->code.v[at + 2] = b;
}

static void emit(Parser *p, const Regex *r);

static void emit_repeat(Parser *p, const Regex *r)
{
  for (int i = 0; i < r->min; i++) emit(p, r->a);
  if (r->max < 0) {
    int fork = step(p, PO_SPLIT, 0, 0);
    emit(p, r->a);
    step(p, PO_SPLIT, fork, fork);
    fork_to(p, fork, fork + 3, p->code.n);
    return;
  }
  Vec(int) forks = {0};
  for (int i = r->min; i < r->max; i++) {
    vec_push(p->arena, &forks, step(p, PO_SPLIT, 0, 0));
    emit(p, r->a);
  }
  for (int i = 0; i < forks.n; i++) fork_to(p, forks.v[i], forks.v[i] + 3, p->code.n);
}

static void emit(Parser *p, const Regex *r)
{
  int fork, over;
  switch (r->kind) {
  case RX_EMPTY: return;
  case RX_SET:
    step(p, PO_LETTER, r->set.n, 3 + 2 * r->set.n);
    for (int i = 0; i < r->set.n; i++) {
      vec_push(p->arena, &p->code, r->set.v[i].lo);
      vec_push(p->arena, &p->code, r->set.v[i].hi);
    }
    return;
  case RX_ASSERT: step(p, PO_ASSERT, (int32_t)r->fact, 0); return;
  case RX_THEN:
    emit(p, r->a);
    emit(p, r->b);
    return;
  case RX_OR:
    fork = step(p, PO_SPLIT, 0, 0);
    emit(p, r->a);
    over = step(p, PO_SPLIT, 0, 0);
    fork_to(p, fork, fork + 3, p->code.n);
    emit(p, r->b);
    fork_to(p, over, p->code.n, p->code.n);
    return;
  case RX_REPEAT: emit_repeat(p, r); return;
  }
}

const int32_t *strings_pattern(Ctx *ctx, Arena *arena, const char *text, int *n)
{
  Parser p = {.ctx = ctx, .arena = arena, .text = text, .p = text};
  enum { LONGEST = 10000 };
  if (strlen(text) > LONGEST)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "a pattern of %zu bytes; at most %d are taken", strlen(text), LONGEST);
  const Regex *r = alternatives(&p);
  if (*p.p) refuse(&p, "a group is closed that was not opened");
  emit(&p, r);
  step(&p, PO_END, 0, 0);
  *n = p.code.n;
  return p.code.v;
}
