/* text.c: text under construction, and small helpers on strings. */
#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

Text text_new(Arena *arena) { return (Text){.arena = arena}; }

void text_addn(Text *t, const char *s, size_t n)
{
  if (t->n + n + 1 > t->cap) {
    size_t cap = t->cap ? t->cap * 2 : 256;
    while (cap < t->n + n + 1) cap *= 2;
    char *grown = arena_alloc(t->arena, cap);
    if (t->n) memcpy(grown, t->s, t->n);
    t->s = grown;
    t->cap = cap;
  }
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

void text_add(Text *t, const char *s) { text_addn(t, s, strlen(s)); }
void text_char(Text *t, char c) { text_addn(t, &c, 1); }

void text_printf(Text *t, const char *fmt, ...)
{
  char small[256];
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, fmt, args);
  va_end(args);
  if ((size_t)n < sizeof small) {
    text_addn(t, small, (size_t)n);
  } else {
    char *big = arena_alloc(t->arena, (size_t)n + 1);
    vsnprintf(big, (size_t)n + 1, fmt, again);
    text_addn(t, big, (size_t)n);
  }
  va_end(again);
}

void text_indent(Text *t, int spaces)
{
  for (int i = 0; i < spaces; i++) text_char(t, ' ');
}

const char *text_str(Text *t) { return t->s ? t->s : ""; }

const char *text_double(Arena *arena, double x)
{
  if (isnan(x)) return "nan";
  if (isinf(x)) return x < 0 ? "-inf" : "inf";
  char s[40];
  if (x == trunc(x) && fabs(x) < 1e15) return arena_printf(arena, "%.0f", x); /* 100, not 1e+02 */
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(s, sizeof s, "%.*g", digits, x);
    if (strtod(s, NULL) == x) break;
  }
  return arena_strdup(arena, s);
}

void text_quote(Text *t, const char *s)
{
  text_char(t, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') text_printf(t, "\\%c", c);
    else if (c == '\n') text_add(t, "\\n");
    else if (c == '\t') text_add(t, "\\t");
    else if (c == '\r') text_add(t, "\\r");
    else if (c < 0x20) text_printf(t, "\\u%04x", c);
    else text_char(t, (char)c);
  }
  text_char(t, '"');
}

bool str_starts(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

bool str_ends(const char *s, const char *suffix)
{
  size_t n = strlen(s);
  size_t m = strlen(suffix);
  return n >= m && !strcmp(s + n - m, suffix);
}

static int edit_distance(const char *a, const char *b)
{
  int n = (int)strlen(a);
  int m = (int)strlen(b);
  int row[64];
  if (n > 60 || m > 60) return 100;
  for (int j = 0; j <= m; j++) row[j] = j;
  for (int i = 1; i <= n; i++) {
    int diag = row[0];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int up = row[j];
      int best = diag + (a[i - 1] != b[j - 1]);
      if (up + 1 < best) best = up + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
      diag = up;
    }
  }
  return row[m];
}

const char *str_nearest(const char *word, const char *const *words, int n)
{
  const char *best = NULL;
  int limit = (int)strlen(word) / 3 + 1;
  for (int i = 0; i < n; i++) {
    int d = edit_distance(word, words[i]);
    if (d <= limit) {
      limit = d - 1;
      best = words[i];
    }
  }
  return best;
}

const char *str_suggest(Arena *arena, const char *word, const char *const *words, int n)
{
  const char *near = str_nearest(word, words, n);
  return near ? arena_printf(arena, "; did you mean '%s'?", near) : "";
}
