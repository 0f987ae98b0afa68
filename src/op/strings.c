/* strings.c: what looks into strings or makes new ones; the executor does it (OPF_HOST).
 *
 * In a graph an element of a tensor of strings is a number of the context (ctx_string); equal
 * strings have equal numbers.  So whatever moves or compares elements works on strings as on
 * integers (OPF_STRING); these do not:
 *
 *   strings.concat(a, b)                  each string of a with b's behind it; same shapes
 *   strings.lower(x), strings.upper(x)    letter by letter, where the other case is one letter
 *                                         (letters.def); bytes that are no UTF-8 stay
 *   strings.split(x; delimiter, maxsplit) the parts along a new last axis, "" where a string has
 *                                         fewer than the most, and their numbers.  No delimiter:
 *                                         runs of white space, none counts at the ends.  At most
 *                                         maxsplit cuts (-1: any number)
 *   strings.full_match(x; pattern)        does the whole string match?  RE2's syntax (pattern.c)
 *   strings.format(x)                     numbers as text: integers in full; floats with as few
 *                                         digits as read back as the same number, whole ones below
 *                                         1e8 without exponent; NaN, INF, -INF
 *   strings.parse(x; dtype)               text as int64, float32 or float64 (C's strtoll, strtod; white space
 *                                         around it does not matter); anything else stops the run */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../runtime/model_format.h"
#include "op/op.h"

#define LETTERS(name, ...) static const int32_t name[][4] = {__VA_ARGS__};
#include "op/letters.def"
#undef LETTERS

const int32_t *strings_case_table(bool upper, int *rows)
{
  *rows = (int)(upper ? sizeof to_upper / sizeof *to_upper : sizeof to_lower / sizeof *to_lower);
  return upper ? to_upper[0] : to_lower[0];
}

size_t strings_utf8_decode(const char *text, size_t n, int32_t *out)
{
  const unsigned char *s = (const unsigned char *)text;
  size_t more = n && s[0] >= 0xC2 && s[0] <= 0xF4 ? 1 + (s[0] >= 0xE0) + (s[0] >= 0xF0) : 0;
  *out = -1;
  if (!n || (s[0] >= 0x80 && !more) || more >= n) return 1;
  int32_t c = more ? s[0] & (0x3F >> more) : s[0];
  for (size_t i = 1; i <= more; i++) {
    if ((s[i] & 0xC0) != 0x80) return 1;
    c = c << 6 | (s[i] & 0x3F);
  }
  bool right = c >= (more == 3 ? 0x10000 : more == 2 ? 0x800 : 0) && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
  if (!right) return 1;
  *out = c;
  return more + 1;
}

static void utf8_add(Text *t, int32_t c)
{
  if (c < 0x80) {
    text_char(t, (char)c);
    return;
  }
  int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  text_char(t, (char)((0xF00 >> (more + 1)) | c >> (6 * more)));
  while (more--) text_char(t, (char)(0x80 | (c >> (6 * more) & 0x3F)));
}

/* ---- values ---------------------------------------------------------------------------------- */

static RtValue *new_tensor(OpCall *c, Arena *a, DType t, int ndim, const int64_t *shape)
{
  ConstData d = {.dtype = t, .ndim = ndim, .bytes = (size_t)dtype_bytes(t)};
  if (ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "the result would have %d dimensions; there are at most %d", ndim, MAX_RANK);
  for (int i = 0; i < ndim; i++) {
    d.shape[i] = shape[i];
    d.bytes = mem_size_mul(c->m->ctx, d.bytes, (size_t)shape[i], "a tensor");
  }
  d.data = arena_alloc(a, d.bytes + 1);
  return (RtValue *)(uintptr_t)graph_value_tensor(a, &d);
}

static int64_t count_of(const RtValue *v) { return (int64_t)(v->tensor.bytes / (size_t)dtype_bytes(v->tensor.dtype)); }
static const char *get(OpCall *c, const RtValue *v, int64_t i, size_t *n)
{
  return ctx_string_at(c->m->ctx, ((const uint64_t *)v->tensor.data)[i], n);
}
static void put(OpCall *c, RtValue *v, int64_t i, const char *s, size_t n)
{
  ((uint64_t *)(uintptr_t)v->tensor.data)[i] = ctx_string(c->m->ctx, s, n);
}

static const Type *strings_arg(OpCall *c, int i)
{
  const Type *ty = op_tensor_arg(c, i);
  if (!dtype_is_string(ty->dtype))
    opdef_raise(c, ERR_TYPE, "%s is %s; it must be strings", op_arg_name(c, i), type_text(scratch(c->m->ctx), ty));
  return ty;
}

#define STRING_OP(id, text, what, inputs, count, table, rule, fn) \
  const OpDef op_strings_##id = {                                 \
    .name = text,                                                 \
    .doc = what,                                                  \
    .args = inputs,                                               \
    .min_args = count,                                            \
    .max_args = count,                                            \
    .attrs = table,                                               \
    .fuse = FUSE_OPAQUE,                                          \
    .flags = OPF_HOST | OPF_STRING,                               \
    .type = rule,                                                 \
    .eval = fn,                                                   \
  };

/* ---- concat, lower, upper ----------------------------------------------------------------------- */

static const Type *concat_type(OpCall *c)
{
  const Type *a = strings_arg(c, 0);
  const Type *b = strings_arg(c, 1);
  const Expr *dim[MAX_RANK];
  if (a->ndim != b->ndim)
    opdef_raise(c, ERR_SHAPE, "lhs is %s, rhs %s; both need the same shape", type_text(scratch(c->m->ctx), a),
                type_text(scratch(c->m->ctx), b));
  for (int i = 0; i < a->ndim; i++) dim[i] = op_equal_dim(c, a->shape[i], b->shape[i], "a dimension");
  return type_tensor(c->m, DT_STRING, a->ndim, dim);
}

static const RtValue *concat_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  RtValue *out = new_tensor(c, arena, DT_STRING, in[0]->tensor.ndim, in[0]->tensor.shape);
  if (count_of(in[0]) != count_of(in[1]))
    opdef_raise(c, ERR_SHAPE, "%" PRId64 " strings are joined with %" PRId64, count_of(in[0]), count_of(in[1]));
  for (int64_t i = 0; i < count_of(out); i++) {
    size_t na, nb;
    const char *a = get(c, in[0], i, &na);
    const char *b = get(c, in[1], i, &nb);
    Text t = text_new(arena);
    text_addn(&t, a, na);
    text_addn(&t, b, nb);
    put(c, out, i, text_str(&t), t.n);
  }
  return out;
}
STRING_OP(concat, "strings.concat", "each string with its partner behind it", "lhs, rhs", 2, NULL, concat_type,
          concat_eval)

static const Type *same_type(OpCall *c) { return strings_arg(c, 0); }

uint64_t strings_in_case(Ctx *ctx, uint64_t number, bool upper)
{
  int rows;
  size_t n, used;
  const char *s = ctx_string_at(ctx, number, &n);
  const int32_t *table = strings_case_table(upper, &rows);
  Scope scope = scope_begin(ctx);
  Text t = text_new(scratch(ctx));
  for (size_t at = 0; at < n; at += used) {
    int32_t letter;
    used = strings_utf8_decode(s + at, n - at, &letter);
    if (letter < 0) text_char(&t, s[at]);
    for (int r = 0; r < rows && letter >= 0; r++)
      if (table[4 * r] <= letter && letter <= table[4 * r + 1] && (letter - table[4 * r]) % table[4 * r + 2] == 0) {
        letter += table[4 * r + 3];
        break;
      }
    if (letter >= 0) utf8_add(&t, letter);
  }
  uint64_t made = ctx_string(ctx, t.n ? t.s : "", t.n);
  scope_end(ctx, scope);
  return made;
}

static const RtValue *case_eval(OpCall *c, Arena *arena, const RtValue *const *in, bool upper)
{
  RtValue *out = new_tensor(c, arena, DT_STRING, in[0]->tensor.ndim, in[0]->tensor.shape);
  for (int64_t i = 0; i < count_of(out); i++)
    ((uint64_t *)(uintptr_t)out->tensor.data)[i] =
        strings_in_case(c->m->ctx, ((const uint64_t *)in[0]->tensor.data)[i], upper);
  return out;
}
static const RtValue *lower_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  return case_eval(c, arena, in, false);
}
static const RtValue *upper_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  return case_eval(c, arena, in, true);
}
STRING_OP(lower, "strings.lower", "letters in lower case", "data", 1, NULL, same_type, lower_eval)
STRING_OP(upper, "strings.upper", "letters in upper case", "data", 1, NULL, same_type, upper_eval)

/* ---- split ------------------------------------------------------------------------------------------ */

/* clang-format off */
#define STRINGS_SPLIT_ATTRS(A, S)                                             \
  A(S, STR, delimiter, "\"\"", "what stands between parts; \"\": white space") \
  A(S, INT, maxsplit, "-1", "cuts at most; -1: any number")
/* clang-format on */
DEFINE_ATTRS(StringsSplit, STRINGS_SPLIT_ATTRS)

static const Type *split_type(OpCall *c)
{
  const Type *x = strings_arg(c, 0);
  const StringsSplitAttrs *a = c->attrs;
  if (a->maxsplit < -1) opdef_raise(c, ERR_ARGUMENT, "maxsplit is %" PRId64 "; it is -1, or 0 or more", a->maxsplit);
  if (x->ndim >= MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "data has rank %d; one dimension more does not fit", x->ndim);
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < x->ndim; i++) dim[i] = x->shape[i];
  dim[x->ndim] = type_dim_any(c->m);
  const Type *field[] = {type_tensor(c->m, DT_STRING, x->ndim + 1, dim), type_tensor(c->m, DT_I64, x->ndim, dim)};
  return type_tuple(c->m, 2, field);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

typedef struct Range64 {
  size_t begin, end;
} Range64;
typedef Vec(Range64) Parts;

static Parts parts_of(Arena *arena, const char *s, size_t n, const char *by, int64_t most)
{
  Parts parts = {0};
  size_t step = strlen(by);
  size_t at = 0;
  for (;;) {
    while (!step && at < n && is_space(s[at])) at++;
    if (!step && at == n) return parts;
    bool last = parts.n == most;
    size_t end = at;
    while (end < n && (last || (step ? n - end < step || memcmp(s + end, by, step) : !is_space(s[end])))) end++;
    vec_push(arena, &parts, ((Range64){at, end}));
    if (end == n) return parts;
    at = end + (step ? step : 1);
  }
}

static const RtValue *split_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  const StringsSplitAttrs *attrs = c->attrs;
  const ConstData *x = &in[0]->tensor;
  int64_t count = count_of(in[0]);
  int64_t shape[9];
  Parts *parts = arena_array(arena, Parts, count + 1);
  RtValue *counts = new_tensor(c, arena, DT_I64, x->ndim, x->shape);
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[x->ndim] = 0;
  for (int64_t i = 0; i < count; i++) {
    size_t n;
    const char *s = get(c, in[0], i, &n);
    parts[i] = parts_of(arena, s, n, attrs->delimiter, attrs->maxsplit);
    ((int64_t *)(uintptr_t)counts->tensor.data)[i] = parts[i].n;
    if (parts[i].n > shape[x->ndim]) shape[x->ndim] = parts[i].n;
  }
  RtValue *out = new_tensor(c, arena, DT_STRING, x->ndim + 1, shape);
  for (int64_t i = 0, k = 0; i < count; i++)
    for (int64_t j = 0; j < shape[x->ndim]; j++, k++) {
      size_t n;
      const char *s = get(c, in[0], i, &n);
      bool some = j < parts[i].n;
      put(c, out, k, some ? s + parts[i].v[j].begin : "", some ? parts[i].v[j].end - parts[i].v[j].begin : 0);
    }
  return graph_value_fields(arena, RV_TUPLE, 2, (const RtValue *[]){out, counts});
}
STRING_OP(split, "strings.split", "the parts of each string along a new last axis, and their number", "data", 1,
          &StringsSplit_attrs, split_type, split_eval)

/* ---- full_match --------------------------------------------------------------------------------------- */

#define STRINGS_MATCH_ATTRS(A, S) A(S, STR, pattern, "\"\"", "a regular expression, as RE2 has them")
DEFINE_ATTRS(StringsMatch, STRINGS_MATCH_ATTRS)

static const Type *match_type(OpCall *c)
{
  const Type *x = strings_arg(c, 0);
  Scope scope = scope_begin(c->m->ctx);
  int n;
  const char *pattern = ((const StringsMatchAttrs *)c->attrs)->pattern;
  strings_pattern(c->m->ctx, scratch(c->m->ctx), pattern, &n);
  scope_end(c->m->ctx, scope);
  return type_tensor(c->m, DT_BOOL, x->ndim, x->shape);
}

/* Is the rest of the text matched from pc on?  A table of what has been tried keeps it quadratic. */
typedef struct Tries {
  const int32_t *code;
  const char *s;
  size_t n;
  int ncode;
  uint8_t *tried; /* text position × ncode + pc */
} Tries;

static bool word_at(const Tries *t, size_t at, bool before)
{
  if (before ? at == 0 : at == t->n) return false;
  char c = t->s[before ? at - 1 : at];
  return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static bool holds(const Tries *t, size_t at, int fact)
{
  bool edge = word_at(t, at, true) != word_at(t, at, false);
  return fact == PA_BEGIN ? at == 0 : fact == PA_END ? at == t->n : fact == PA_EDGE ? edge : !edge;
}

static bool matched(Tries *t, Arena *arena)
{
  typedef struct Try {
    int pc;
    size_t at;
  } Try;
  Vec(Try) todo = {0};
  vec_push(arena, &todo, ((Try){0, 0}));
  while (todo.n) {
    Try now = todo.v[--todo.n];
    uint8_t *tried = &t->tried[now.at * (size_t)t->ncode + (size_t)now.pc];
    if (*tried) continue;
    *tried = 1;
    const int32_t *code = t->code + now.pc;
    if (code[0] == PO_END && now.at == t->n) return true;
    if (code[0] == PO_SPLIT) {
      vec_push(arena, &todo, ((Try){code[1], now.at}));
      vec_push(arena, &todo, ((Try){code[2], now.at}));
    } else if (code[0] == PO_ASSERT && holds(t, now.at, code[1])) {
      vec_push(arena, &todo, ((Try){now.pc + 3, now.at}));
    } else if (code[0] == PO_LETTER && now.at < t->n) {
      int32_t letter;
      size_t used = strings_utf8_decode(t->s + now.at, t->n - now.at, &letter);
      for (int i = 0; i < code[1]; i++)
        if (code[3 + 2 * i] <= letter && letter <= code[4 + 2 * i]) {
          vec_push(arena, &todo, ((Try){now.pc + code[2], now.at + used}));
          break;
        }
    }
  }
  return false;
}

static const RtValue *match_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  const char *pattern = ((const StringsMatchAttrs *)c->attrs)->pattern;
  Tries t = {0};
  t.code = strings_pattern(c->m->ctx, arena, pattern, &t.ncode);
  RtValue *out = new_tensor(c, arena, DT_BOOL, in[0]->tensor.ndim, in[0]->tensor.shape);
  for (int64_t i = 0; i < count_of(out); i++) {
    t.s = get(c, in[0], i, &t.n);
    t.tried = arena_alloc_array(arena, t.n + 1, (size_t)t.ncode);
    ((uint8_t *)(uintptr_t)out->tensor.data)[i] = matched(&t, arena);
  }
  return out;
}
STRING_OP(full_match, "strings.full_match", "true where the whole string matches the pattern", "data", 1,
          &StringsMatch_attrs, match_type, match_eval)

/* ---- numbers -------------------------------------------------------------------------------------------- */

static const Type *format_type(OpCall *c)
{
  const Type *x = op_tensor_arg(c, 0);
  bool fits =
      (dtype_is_int(x->dtype) && x->dtype.bits == 64) || dtype_eq(x->dtype, DT_F32) || dtype_eq(x->dtype, DT_F64);
  if (!fits)
    opdef_raise(c, ERR_TYPE, "data is %s; cast it to int64, uint64, float32 or float64 first",
                type_text(scratch(c->m->ctx), x));
  return type_tensor(c->m, DT_STRING, x->ndim, x->shape);
}

/* Whatever the process's locale is. */
static void free_locale(void *old)
{
  locale_t plain = uselocale((locale_t)old);
  freelocale(plain);
}

static void use_c_locale(OpCall *c)
{
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain) raise(c->m->ctx, ERR_MEMORY, NOWHERE, "no memory for a locale");
  defer(c->m->ctx, free_locale, (void *)uselocale(plain));
}

static void float_text(Value v, char *out, size_t n)
{
  bool narrow = v.dtype.bits == 32;
  if (isnan(v.f)) snprintf(out, n, "NaN");
  else if (isinf(v.f)) snprintf(out, n, "%s", v.f < 0 ? "-INF" : "INF");
  else if (v.f == trunc(v.f) && fabs(v.f) < 1e8) snprintf(out, n, "%.0f", v.f);
  else
    for (int digits = 1; digits <= 17; digits++) {
      snprintf(out, n, "%.*g", digits, v.f);
      if (narrow ? strtof(out, NULL) == (float)v.f : strtod(out, NULL) == v.f) return;
    }
}

static const RtValue *format_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  const ConstData *x = &in[0]->tensor;
  RtValue *out = new_tensor(c, arena, DT_STRING, x->ndim, x->shape);
  Scope scope = scope_begin(c->m->ctx);
  use_c_locale(c);
  for (int64_t i = 0; i < count_of(out); i++) {
    char text[40];
    Value v = value_load(x->dtype, (const char *)x->data + (size_t)i * (size_t)dtype_bytes(x->dtype));
    if (x->dtype.code == DT_UINT) snprintf(text, sizeof text, "%" PRIu64, (uint64_t)v.i);
    else if (x->dtype.code == DT_INT) snprintf(text, sizeof text, "%" PRId64, v.i);
    else float_text(v, text, sizeof text);
    put(c, out, i, text, strlen(text));
  }
  scope_end(c->m->ctx, scope);
  return out;
}
STRING_OP(format, "strings.format", "numbers as text", "data", 1, NULL, format_type, format_eval)

#define STRINGS_PARSE_ATTRS(A, S) A(S, DTYPE, dtype, "\"float32\"", "int64, float32 or float64")
DEFINE_ATTRS(StringsParse, STRINGS_PARSE_ATTRS)

static const Type *parse_type(OpCall *c)
{
  const Type *x = strings_arg(c, 0);
  DType t = ((const StringsParseAttrs *)c->attrs)->dtype;
  if (!dtype_eq(t, DT_I64) && !dtype_eq(t, DT_F32) && !dtype_eq(t, DT_F64))
    opdef_raise(c, ERR_TYPE, "dtype is %s; int64, float32 and float64 are read", dtype_name(scratch(c->m->ctx), t));
  return type_tensor(c->m, t, x->ndim, x->shape);
}

static const RtValue *parse_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  DType t = ((const StringsParseAttrs *)c->attrs)->dtype;
  RtValue *out = new_tensor(c, arena, t, in[0]->tensor.ndim, in[0]->tensor.shape);
  Scope scope = scope_begin(c->m->ctx);
  use_c_locale(c);
  for (int64_t i = 0; i < count_of(out); i++) {
    size_t n;
    char *end;
    const char *s = get(c, in[0], i, &n);
    errno = 0;
    Value v = {.dtype = t};
    if (dtype_is_int(t)) v.i = strtoll(s, &end, 10);
    else v.f = t.bits == 32 ? (double)strtof(s, &end) : strtod(s, &end);
    bool some = end != s && !(dtype_is_int(t) && errno);
    while (is_space(*end)) end++;
    if (!some || end != s + n)
      opdef_raise(c, ERR_ARGUMENT, "'%.100s' is not %s", s, dtype_is_int(t) ? "an integer" : "a number");
    value_store(v, (char *)(uintptr_t)out->tensor.data + (size_t)i * (size_t)dtype_bytes(t));
  }
  scope_end(c->m->ctx, scope);
  return out;
}
STRING_OP(parse, "strings.parse", "text as numbers; what is none stops the run", "data", 1, &StringsParse_attrs,
          parse_type, parse_eval)
