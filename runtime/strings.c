/* strings.c: tensors of strings.
 *
 * An element is a number: 0 … nstring - 1 are the model's own texts, in the order of their bytes,
 * those after them the executor's.  Equal texts have equal numbers, so kernels move and compare
 * strings as integers; what looks into a text or makes a new one is here.
 *
 * The executor's texts are dropped when a run begins, apart from those that inputs hold.  A number
 * that stands for nothing is refused wherever it is looked up: no memory depends on numbers being right.
 *
 * Texts are bytes.  Where letters matter they are UTF-8; a byte that begins no letter is kept as it is
 * and matches nothing. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static const LatheRtDType string_dtype = {LATHE_RT_STRING, 64, 1};

/* ---- numbers and texts ----------------------------------------------------------------- */

static const Text *text_at(const LatheRtExecutor *x, uint64_t id)
{
  uint64_t of_model = (uint64_t)x->model->nstring;
  uint64_t own = id - of_model;
  if (id < of_model) return &x->model->string[id];
  return own < (uint64_t)x->strings.n && x->strings.item[own].s ? &x->strings.item[own] : NULL;
}

static LatheRtCode find_text(const LatheRtExecutor *x, uint64_t id, const Text **out, LatheRtError *err)
{
  *out = text_at(x, id);
  return *out ? LATHE_RT_OK : rt_fail(err, LATHE_RT_ARGUMENT, "no string has the number %" PRIu64, id);
}

int rt_text_compare(const Text *a, const char *s, size_t n)
{
  int d = memcmp(a->s, s, a->n < n ? a->n : n);
  return d ? d : (a->n > n) - (a->n < n);
}

static int32_t *text_bucket(Strings *t, const char *s, size_t n)
{
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return &t->bucket[h & (uint32_t)(t->room - 1)];
}

/* Chains of the texts in use and of the free places, both as 1 + place. */
static void chain(Strings *t)
{
  memset(t->bucket, 0, (size_t)t->room * sizeof *t->bucket);
  t->free = 0;
  for (int32_t i = 0; i < t->n; i++) {
    Text *item = &t->item[i];
    int32_t *at = item->s ? text_bucket(t, item->s, item->n) : &t->free;
    item->next = *at;
    *at = i + 1;
  }
}

static LatheRtCode grow(Strings *t, LatheRtError *err)
{
  int32_t room = t->room ? 2 * t->room : 64;
  Text *item = room <= 1 << 28 ? realloc(t->item, (size_t)room * sizeof *item) : NULL;
  if (!item) return rt_no_memory(err, "strings");
  t->item = item;
  int32_t *bucket = realloc(t->bucket, (size_t)room * sizeof *bucket);
  if (!bucket) return rt_no_memory(err, "strings");
  t->bucket = bucket;
  t->room = room;
  chain(t);
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_string_put(LatheRtExecutor *x, const char *s, size_t n, uint64_t *out, LatheRtError *err)
{
  if (!x || !out || (n && !s)) return rt_null(err, "string_put");
  int32_t low = 0;
  int32_t high = x->model->nstring;
  while (low < high) {
    int32_t mid = low + (high - low) / 2;
    int32_t d = rt_text_compare(&x->model->string[mid], s, n);
    *out = (uint64_t)mid;
    if (d == 0) return LATHE_RT_OK;
    if (d < 0) low = mid + 1;
    else high = mid;
  }
  Strings *t = &x->strings;
  int32_t i = t->room ? *text_bucket(t, s, n) : 0;
  while (i && rt_text_compare(&t->item[i - 1], s, n)) i = t->item[i - 1].next;
  if (!i) {
    if (!t->free && t->n == t->room) RT_TRY(grow(t, err));
    char *copy = malloc(n + 1);
    if (!copy) return rt_no_memory(err, "strings");
    if (n) memcpy(copy, s, n);
    copy[n] = 0;
    i = t->free ? t->free : ++t->n;
    Text *item = &t->item[i - 1];
    if (t->free) t->free = item->next;
    int32_t *at = text_bucket(t, s, n);
    *item = (Text){.s = copy, .n = n, .next = *at};
    *at = i;
  }
  *out = (uint64_t)x->model->nstring + (uint64_t)(i - 1);
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_string_get(const LatheRtExecutor *x, uint64_t id, const char **s, size_t *n, LatheRtError *err)
{
  const Text *t;
  if (!x || !s || !n) return rt_null(err, "string_get");
  RT_TRY(find_text(x, id, &t, err));
  *s = t->s;
  *n = t->n;
  return LATHE_RT_OK;
}

static bool is_string(const Value *v) { return v->kind == VALUE_TENSOR && v->tensor.dtype.code == LATHE_RT_STRING; }
static size_t count_of(const Value *v) { return rt_value_bytes(v) / rt_dtype_bytes(v->tensor.dtype); }

LatheRtCode rt_strings_check(const LatheRtExecutor *x, const Value *v, LatheRtError *err)
{
  const Text *t;
  const uint64_t *id = v->tensor.data;
  for (size_t i = 0, n = is_string(v) ? count_of(v) : 0; i < n; i++) RT_TRY(find_text(x, id[i], &t, err));
  return LATHE_RT_OK;
}

static void keep(LatheRtExecutor *x, const Value *v)
{
  const uint64_t *id = v->tensor.data;
  for (size_t i = 0, n = is_string(v) ? count_of(v) : 0; i < n; i++) {
    uint64_t own = id[i] - (uint64_t)x->model->nstring;
    if (own < (uint64_t)x->strings.n) x->strings.item[own].kept = true;
  }
  for (int32_t i = 0; v->kind == VALUE_LIST && i < v->list->n; i++) keep(x, &v->list->item[i]);
}

void rt_strings_sweep(LatheRtExecutor *x, bool all)
{
  Strings *t = &x->strings;
  if (!t->n) return;
  for (int32_t e = 0; !all && e < x->model->nentry; e++)
    for (int32_t i = 0; i < x->entry[e].entry->nin; i++) keep(x, &x->entry[e].input[i]);
  for (int32_t i = 0; i < t->n; i++) {
    if (!t->item[i].kept) {
      free((char *)t->item[i].s);
      t->item[i].s = NULL;
    }
    t->item[i].kept = false;
  }
  while (t->n && !t->item[t->n - 1].s) t->n--;
  chain(t);
}

/* ---- calls ------------------------------------------------------------------------------------ */

/* One call: its arguments are tensors; made is the first result. */
typedef struct Texts {
  LatheRtExecutor *x;
  const Value *arg[2];
  int64_t attr;
  size_t n;             /* elements of the first argument */
  const int32_t *table; /* the second one's, where it holds numbers */
  size_t ntable;
  Text by;      /* what a split is by … */
  int64_t most; /* … and the most parts that a text has */
  Value made, counts;
  LatheRtError *err;
} Texts;

/* Element i of argument a. */
static LatheRtCode text_of(const Texts *c, int a, size_t i, const Text **out)
{
  return find_text(c->x, ((const uint64_t *)c->arg[a]->tensor.data)[i], out, c->err);
}

/* What is done with element i of the first argument; its text, if it is one. */
typedef LatheRtCode Each(Texts *, size_t i, const Text *);

static LatheRtCode for_each(Texts *c, Each *each)
{
  const Text *t = NULL;
  for (size_t i = 0; i < c->n; i++) {
    if (is_string(c->arg[0])) RT_TRY(text_of(c, 0, i, &t));
    RT_TRY(each(c, i, t));
  }
  return LATHE_RT_OK;
}

static LatheRtCode put_text(Texts *c, Value *to, size_t i, const char *s, size_t n)
{
  return lathe_rt_string_put(c->x, s, n, (uint64_t *)to->tensor.data + i, c->err);
}

/* Room for a text in the making. */
static char *room_for(Texts *c, size_t n)
{
  Strings *t = &c->x->strings;
  if (n < t->scratch_bytes) return t->scratch;
  char *more = realloc(t->scratch, n + 1);
  if (!more) return NULL;
  t->scratch = more;
  t->scratch_bytes = n + 1;
  return more;
}

static LatheRtCode join_texts(Texts *c, size_t i, const Text *a)
{
  const Text *b;
  RT_TRY(text_of(c, 1, i, &b));
  char *s = room_for(c, a->n + b->n);
  if (!s) return rt_no_memory(c->err, "strings");
  memcpy(s, a->s, a->n);
  memcpy(s + a->n, b->s, b->n);
  return put_text(c, &c->made, i, s, a->n + b->n);
}

/* ---- UTF-8 -------------------------------------------------------------------------------------- */

/* The letter at s and its bytes; -1, one byte: none begins there. */
static int32_t decode(const char *text, size_t n, size_t *used)
{
  static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
  const unsigned char *s = (const unsigned char *)text;
  size_t more = s[0] < 0x80 ? 0 : s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : 3;
  int32_t letter = more ? s[0] & (0x3F >> more) : s[0];
  *used = 1;
  if ((s[0] >= 0x80 && s[0] < 0xC2) || s[0] > 0xF4 || more >= n) return -1;
  for (size_t i = 1; i <= more; i++) {
    if ((s[i] & 0xC0) != 0x80) return -1;
    letter = letter << 6 | (s[i] & 0x3F);
  }
  if (letter < least[more] || letter > 0x10FFFF || (letter >= 0xD800 && letter < 0xE000)) return -1;
  *used = more + 1;
  return letter;
}

static size_t encode(int32_t letter, char *to)
{
  size_t n = letter < 0x80 ? 1 : letter < 0x800 ? 2 : letter < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; letter >>= 6) to[i] = (char)(0x80 | (letter & 0x3F));
  to[0] = (char)(n == 1 ? letter : letter | (0xF00 >> n & 0xFF));
  return n;
}

/* The second argument's rows are (first, last, step, distance): every step-th letter from first to
 * last becomes the one at that distance.  Rows are in order. */
static LatheRtCode map_letters(Texts *c, size_t i, const Text *t)
{
  char *s = t->n < SIZE_MAX / 8 ? room_for(c, 4 * t->n) : NULL;
  if (!s) return rt_no_memory(c->err, "strings");
  size_t n = 0;
  size_t used;
  for (size_t at = 0; at < t->n; at += used) {
    int32_t letter = decode(t->s + at, t->n - at, &used);
    if (letter < 0) {
      s[n++] = t->s[at];
      continue;
    }
    size_t low = 0;
    size_t high = c->ntable / 4;
    while (low < high) {
      size_t mid = (low + high) / 2;
      if (c->table[4 * mid + 1] < letter) low = mid + 1;
      else high = mid;
    }
    const int32_t *r = c->table + 4 * low;
    if (low < c->ntable / 4 && r[0] <= letter && r[2] > 0 && (letter - r[0]) % r[2] == 0)
      letter = (letter + r[3]) & 0x1FFFFF;
    n += encode(letter, s + n);
  }
  return put_text(c, &c->made, i, s, n);
}

/* ---- splitting ------------------------------------------------------------------------------------- */

static bool is_space(char ch) { return ch == ' ' || (ch >= '\t' && ch <= '\r'); }

/* The next part of s[*at ..]; false: there is none.  An empty separator is any run of white space, and
 * none at the ends counts.  last: the part is all that is left. */
static bool next_part(const Text *t, const Text *by, bool last, size_t *at, size_t *from, size_t *n)
{
  if (*at > t->n) return false;
  while (!by->n && *at < t->n && is_space(t->s[*at])) ++*at;
  if (!by->n && *at == t->n) return false;
  size_t end = *from = *at;
  while (!last && end < t->n && (by->n ? t->n - end < by->n || memcmp(t->s + end, by->s, by->n) : !is_space(t->s[end])))
    end++;
  if (last) end = t->n;
  *n = end - *from;
  *at = end + (by->n ? by->n : 1);
  if (end == t->n) *at = t->n + 1;
  return true;
}

static LatheRtCode count_parts(Texts *c, size_t i, const Text *t)
{
  size_t at = 0;
  size_t from, n;
  int64_t *count = (int64_t *)c->counts.tensor.data + i;
  for (*count = 0; next_part(t, &c->by, *count == c->attr, &at, &from, &n); ++*count) continue;
  if (*count > c->most) c->most = *count;
  return LATHE_RT_OK;
}

static LatheRtCode put_parts(Texts *c, size_t i, const Text *t)
{
  size_t at = 0;
  size_t from = 0;
  size_t n = 0;
  Text whole = *t; /* a new text may move the others */
  for (int64_t k = 0; k < c->most; k++) {
    bool some = next_part(&whole, &c->by, k == c->attr, &at, &from, &n);
    RT_TRY(put_text(c, &c->made, i * (size_t)c->most + (size_t)k, whole.s + (some ? from : 0), some ? n : 0));
  }
  return LATHE_RT_OK;
}

/* Results: the parts along a new last axis, "" where a text has fewer than the most; their numbers. */
static LatheRtCode split_texts(Texts *c)
{
  static const LatheRtDType int64 = {0, 64, 1};
  int32_t ndim = c->arg[0]->tensor.ndim;
  int64_t dim[LATHE_RT_MAX_RANK];
  const Text *by;
  if (ndim == LATHE_RT_MAX_RANK) return rt_fail(c->err, LATHE_RT_ARGUMENT, "a split of rank %d", ndim);
  RT_TRY(text_of(c, 1, 0, &by));
  c->by = *by;
  RT_TRY(rt_value_tensor(c->x->heap, &c->counts, int64, ndim, c->arg[0]->dim, c->err));
  RT_TRY(for_each(c, count_parts));
  memcpy(dim, c->arg[0]->dim, (size_t)ndim * sizeof *dim);
  dim[ndim] = c->most;
  RT_TRY(rt_value_tensor(c->x->heap, &c->made, string_dtype, ndim + 1, dim, c->err));
  return for_each(c, put_parts);
}

/* ---- patterns ------------------------------------------------------------------------------------------ */

/* A program of model_format.h's PatternOp over sets of states: linear in the text. */
typedef struct Machine {
  const int32_t *code;
  int32_t n, nstate;
  int32_t *seen, *state, *next, *stack;
  bool broken;
} Machine;

static bool is_word(int32_t ch)
{
  return ch == '_' || (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* Adds what is reached from pc without a letter.  facts: bit k is set if the k-th assertion holds here. */
static void follow(Machine *m, int32_t pc, int32_t mark, unsigned facts)
{
  int32_t depth = 0;
  int32_t to[2];
  to[0] = pc;
  int nto = 1;
  for (;;) {
    for (int i = 0; i < nto; i++) {
      if (to[i] < 0 || to[i] > m->n - 3) m->broken = true;
      else if (m->seen[to[i]] != mark) m->seen[m->stack[depth++] = to[i]] = mark;
    }
    if (!depth || m->broken) return;
    const int32_t *code = m->code + (pc = m->stack[--depth]);
    nto = 0;
    if (code[0] == PO_SPLIT) {
      nto = 2;
      to[0] = code[1];
      to[1] = code[2];
    } else if (code[0] == PO_ASSERT) {
      to[0] = pc + 3;
      nto = facts >> (code[1] & 31) & 1;
    } else {
      m->next[m->nstate++] = pc;
    }
  }
}

static bool takes(Machine *m, int32_t pc, int32_t letter)
{
  const int32_t *code = m->code + pc;
  if (code[0] != PO_LETTER) return false;
  if (code[1] < 0 || code[1] > (m->n - pc - 3) / 2) m->broken = true;
  for (int32_t i = 0; !m->broken && i < code[1]; i++)
    if (code[3 + 2 * i] <= letter && letter <= code[4 + 2 * i]) return true;
  return false;
}

static bool matches(Machine *m, const Text *t)
{
  int32_t before = -1;
  int32_t mark = 1;
  size_t used = 0;
  memset(m->seen, 0, (size_t)m->n * sizeof *m->seen);
  m->nstate = 0;
  for (size_t at = 0;; mark++) {
    int32_t letter = at < t->n ? decode(t->s + at, t->n - at, &used) : -1;
    bool edge = is_word(before) != is_word(letter);
    unsigned facts = (at == 0) << PA_BEGIN | (at == t->n) << PA_END | edge << PA_EDGE | !edge << PA_NO_EDGE;
    if (at == 0) {
      follow(m, 0, mark, facts);
    } else {
      int32_t n = m->nstate;
      int32_t *last = m->next;
      m->next = m->state;
      m->state = last;
      m->nstate = 0;
      for (int32_t i = 0; i < n; i++)
        if (takes(m, last[i], before) && !m->broken)
          follow(m, (int32_t)((uint32_t)last[i] + (uint32_t)m->code[last[i] + 2]), mark, facts);
    }
    if (m->broken || !m->nstate || at == t->n) break;
    before = letter;
    at += used;
  }
  for (int32_t i = 0; i < m->nstate; i++)
    if (m->code[m->next[i]] == PO_END) return true;
  return false;
}

static LatheRtCode match(Texts *c, size_t i, const Text *t)
{
  size_t n = c->ntable;
  Machine m = {.code = c->table, .n = (int32_t)n};
  if (n < 3 || n > 1 << 24) return rt_broken(c->err, "its pattern");
  if (!room_for(c, 4 * n * sizeof *m.seen)) return rt_no_memory(c->err, "strings");
  m.seen = (int32_t *)(void *)c->x->strings.scratch;
  m.state = m.seen + n;
  m.next = m.state + n;
  m.stack = m.next + n;
  if (t->n >= INT32_MAX) return rt_fail(c->err, LATHE_RT_ARGUMENT, "a string of %zu bytes is matched", t->n);
  ((uint8_t *)c->made.tensor.data)[i] = matches(&m, t);
  return m.broken ? rt_broken(c->err, "its pattern") : LATHE_RT_OK;
}

/* ---- numbers as text ---------------------------------------------------------------------------------------- */

/* As few digits as read back as the same number; whole numbers below 1e8 in full. */
static void print_float(double v, bool narrow, char *out, size_t n)
{
  if (isnan(v)) snprintf(out, n, "NaN");
  else if (isinf(v)) snprintf(out, n, v < 0 ? "-INF" : "INF");
  else if (v == trunc(v) && fabs(v) < 1e8) snprintf(out, n, "%.0f", v);
  else
    for (int digits = 1; digits <= 17; digits++) {
      snprintf(out, n, "%.*g", digits, v);
      if (narrow ? strtof(out, NULL) == (float)v : strtod(out, NULL) == v) break;
    }
}

static LatheRtCode print_number(Texts *c, size_t i, const Text *none)
{
  (void)none;
  LatheRtDType t = c->arg[0]->tensor.dtype;
  bool is_int = t.code <= 1 && t.bits == 64;
  bool narrow = t.bits == 32;
  if (!is_int && (t.code != 2 || (!narrow && t.bits != 64))) return rt_broken(c->err, "numbers to print");
  char text[40];
  const char *at = (const char *)c->arg[0]->tensor.data + i * (t.bits / 8);
  Scalar wide;
  float single;
  memcpy(&wide, at, narrow ? 4 : 8);
  memcpy(&single, at, 4);
  if (is_int) snprintf(text, sizeof text, t.code ? "%" PRIu64 : "%" PRId64, wide.i);
  else print_float(narrow ? (double)single : wide.f, narrow, text, sizeof text);
  return put_text(c, &c->made, i, text, strlen(text));
}

/* To int64, float64, float32, as the attribute says. */
static LatheRtCode parse_number(Texts *c, size_t i, const Text *t)
{
  char *end;
  errno = 0;
  if (c->attr == 0) ((int64_t *)c->made.tensor.data)[i] = strtoll(t->s, &end, 10);
  else if (c->attr == 1) ((double *)c->made.tensor.data)[i] = strtod(t->s, &end);
  else ((float *)c->made.tensor.data)[i] = strtof(t->s, &end);
  bool some = end != t->s && (c->attr || !errno);
  while (is_space(*end)) end++;
  if (!some || end != t->s + t->n)
    return rt_fail(c->err, LATHE_RT_ARGUMENT, "'%.100s' is not %s", t->s, c->attr ? "a number" : "an integer");
  return LATHE_RT_OK;
}

/* The same digits and point whatever the program's locale is. */
static LatheRtCode in_c_locale(Texts *c, Each *each)
{
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain) return rt_no_memory(c->err, "strings");
  locale_t before = uselocale(plain);
  LatheRtCode code = for_each(c, each);
  uselocale(before);
  freelocale(plain);
  return code;
}

/* The second argument: strings, as many as the first has or one; or the numbers of a table. */
static LatheRtCode check_args(Texts *c, int32_t op)
{
  const Value *a = c->arg[0];
  const Value *b = c->arg[1];
  bool fits = a->kind == VALUE_TENSOR && (op == HO_PRINT || is_string(a));
  if (op == HO_TEXT_CONCAT || op == HO_TEXT_SPLIT)
    fits = fits && is_string(b) && count_of(b) == (op == HO_TEXT_SPLIT ? 1 : count_of(a));
  else if (b) fits = fits && b->kind == VALUE_TENSOR && b->tensor.dtype.code == 0 && b->tensor.dtype.bits == 32;
  if (op == HO_PARSE) fits = fits && c->attr >= 0 && c->attr <= 2;
  if (!fits) return rt_fail(c->err, LATHE_RT_ARGUMENT, "tensors of strings that fit each other are wanted");
  c->n = count_of(a);
  if (b) c->table = b->tensor.data;
  if (b) c->ntable = count_of(b);
  return LATHE_RT_OK;
}

static LatheRtCode call_texts(Texts *c, int32_t op)
{
  static const LatheRtDType boolean = {1, 1, 1};
  static const LatheRtDType numbers[] = {{0, 64, 1}, {2, 64, 1}, {2, 32, 1}};
  RT_TRY(check_args(c, op));
  if (op == HO_TEXT_SPLIT) return split_texts(c);
  LatheRtDType dtype = op == HO_MATCH ? boolean : op == HO_PARSE ? numbers[c->attr] : string_dtype;
  RT_TRY(rt_value_tensor(c->x->heap, &c->made, dtype, c->arg[0]->tensor.ndim, c->arg[0]->dim, c->err));
  switch (op) {
  case HO_TEXT_CONCAT: return for_each(c, join_texts);
  case HO_LETTERS: return for_each(c, map_letters);
  case HO_MATCH: return for_each(c, match);
  case HO_PRINT: return in_c_locale(c, print_number);
  default: return in_c_locale(c, parse_number);
  }
}

LatheRtCode rt_string_call(LatheRtExecutor *x, const Ins *ins, Value *reg, LatheRtError *err)
{
  Texts c = {.x = x, .attr = ins->nattr ? ins->attr[0] : 0, .err = err};
  for (int32_t i = 0; i < ins->narg && i < 2; i++) c.arg[i] = &reg[ins->arg[i]];
  LatheRtCode code = call_texts(&c, ins->index);
  if (code == LATHE_RT_OK) rt_value_copy(&reg[ins->ret[0]], &c.made);
  if (code == LATHE_RT_OK && ins->nret > 1) rt_value_copy(&reg[ins->ret[1]], &c.counts);
  rt_value_clear(&c.made);
  rt_value_clear(&c.counts);
  return code;
}
