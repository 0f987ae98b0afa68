/* cstyle.c: names, types, literals and scalar expressions of C-like languages.
 *
 * In: expressions in kernel form (lower.h).  Out: text.  Parentheses are printed where
 * C needs them and where compilers ask for them (&& inside ||, shifts, bit operators). */
#include "codegen/cstyle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text ------------------------------------------------------------------------- */

Frag cs_frag(const char *s, int prec) { return (Frag){s, prec}; }

const char *cs_fmt(Cgen *g, const char *fmt, ...)
{
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  char *s = arena_alloc(scratch(g->ctx), (size_t)n + 1);
  vsnprintf(s, (size_t)n + 1, fmt, again);
  va_end(again);
  return s;
}

const char *cs_wrap(Cgen *g, Frag f, int prec) { return f.prec < prec ? cs_fmt(g, "(%s)", f.s) : f.s; }

void cs_line(Cgen *g, const char *fmt, ...)
{
  char small[256];
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  char *s = small;
  if ((size_t)n >= sizeof small) {
    s = arena_alloc(scratch(g->ctx), (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
  }
  va_end(again);
  text_indent(g->out, 2 * g->indent);
  text_addn(g->out, s, (size_t)n);
  text_char(g->out, '\n');
}

bool cs_needs(Cgen *g, const char *name)
{
  if (strmap_get(&g->made, name)) return false;
  strmap_put(g->arena, &g->made, name, g);
  return true;
}

void cs_helper(Cgen *g, const char *fmt, ...)
{
  char body[2048];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(body, sizeof body, fmt, ap);
  va_end(ap);
  if ((size_t)n >= sizeof body) BUG(g->ctx, "a helper function of %d bytes", n);
  text_printf(&g->helpers, "%s %s\n", g->dialect->helper, body);
}

void cs_unsupported(Cgen *g, const char *fmt, ...)
{
  char what[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: the %s backend does not print %s", g->k ? g->k->name : "module",
        g->dialect->name, what);
}

/* ---- names ------------------------------------------------------------------------- */

/* Words that a variable or function may not be called, one space between. */
static const char reserved[] =
    " auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict "
    "return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Float16 bool "
    "true false asm "
    "typeof main NULL INFINITY NAN rt workspace slots out begin end slot env slices slice_bytes lathe_module memcpy "
    "memset "
    "class new delete this template operator private public protected namespace using try catch throw virtual friend "
    "explicit "
    "half dim3 threadIdx blockIdx blockDim gridDim warpSize and or not xor "
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt cbrt tanh erf erfc sin cos tan asin acos atan atan2 sinh cosh "
    "asinh acosh atanh "
    "pow fmod hypot copysign nextafter ldexp frexp modf fma floor ceil trunc round rint nearbyint fabs abs labs fmin "
    "fmax remainder "
    "expf exp2f exp10f logf log2f log10f log1pf sqrtf tanhf erff sinf cosf tanf asinf acosf atanf atan2f sinhf coshf "
    "asinhf acoshf atanhf "
    "powf fmodf hypotf copysignf nextafterf ldexpf fmaf floorf ceilf truncf roundf rintf nearbyintf fabsf fminf fmaxf "
    "isnan isinf isfinite signbit gamma lgamma tgamma j0 j1 jn y0 y1 yn index malloc free calloc exit abort printf "
    "puts strlen memcmp "
    "memmove strcpy div ";

static bool is_reserved(const char *name)
{
  size_t n = strlen(name);
  for (const char *p = reserved; (p = strstr(p, name)) != NULL; p++)
    if (p[-1] == ' ' && p[n] == ' ') return true;
  return false;
}

/* Does the last part look like the suffix of a type or helper of ours: f32, u8x16? */
static bool looks_ours(const char *name)
{
  if (str_ends(name, "_t")) return true; /* int32_t */
  const char *last = strrchr(name, '_');
  last = last ? last + 1 : name;
  if (*last != 'f' && *last != 'i' && *last != 'u') return false;
  long bits = strtol(last + 1, NULL, 10);
  return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}

static const char *safe_hint(Cgen *g, const char *hint)
{
  if (!hint || !*hint) return "v";
  if (!is_reserved(hint) && !looks_ours(hint) && strncmp(hint, "__", 2)) return hint;
  return arena_printf(g->arena, "v_%s_", hint);
}

const char *cs_name(Cgen *g, const Var *v) { return expr_namer_name(&g->names, v, safe_hint(g, v->name)); }
const char *cs_name_as(Cgen *g, const Var *v, const char *hint)
{
  return expr_namer_name(&g->names, v, safe_hint(g, hint));
}

const char *cs_fresh(Cgen *g, const char *hint) { return expr_namer_name(&g->names, arena_alloc(g->arena, 1), hint); }

const char *cs_function_name(Cgen *g, const char *name)
{
  char *s = arena_strdup(g->arena, name);
  for (char *c = s; *c; c++)
    if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9')) *c = '_';
  if (is_reserved(s) || looks_ours(s) || (*s >= '0' && *s <= '9')) s = arena_printf(g->arena, "kernel_%s", s);
  return s;
}

void cs_refuse_imports(Ctx *ctx, const Kernel *k)
{
  if (k->nimport)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "%s: the pragma import_llvm needs a target whose code LLVM makes", k->name);
}

Cgen *cs_new(Code *code, const Dialect *dialect)
{
  Cgen *g = arena_new_of(code->arena, Cgen);
  g->ctx = code->ctx;
  g->arena = code->arena;
  g->target = code->target;
  g->dialect = dialect;
  g->types = text_new(g->arena);
  g->helpers = text_new(g->arena);
  g->functions = text_new(g->arena);
  g->out = &g->functions;
  return g;
}

void cs_kernel_begin(Cgen *g, const Kernel *k)
{
  g->k = k;
  g->names = (Namer){.arena = g->arena};
  g->memory = g->access = g->used = g->data = g->mask_bits = (Map){0};
  g->bound.n = 0;
  g->bases.n = 0;
  g->parts = 0;
  g->indent = 1;
  g->in_part = false;
  cs_scan_uses(g, k->body);
}

/* ---- types ------------------------------------------------------------------------- */

DType cs_storage(Cgen *g, DType t)
{
  switch ((DCode)t.code) {
  case DT_INT:
  case DT_UINT: {
    t.bits = (uint8_t)(8 * dtype_bytes(t));
    return t;
  }
  case DT_FLOAT:
    if (t.bits == 16 && !g->dialect->half) return dtype_lanes(DTYPE(DT_UINT, 16), t.lanes);
    return t;
  case DT_BFLOAT: return dtype_lanes(DTYPE(DT_UINT, 16), t.lanes);
  case DT_E4M3FN:
  case DT_E5M2:
  case DT_E4M3FNUZ:
  case DT_E5M2FNUZ:
  case DT_E8M0FNU:
  case DT_E2M1FN: return dtype_lanes(DT_U8, t.lanes);
  case DT_HANDLE:
  case DT_TEXT:
  case DT_VOID: return t;
  }
  return t;
}

static const char *scalar_type(Cgen *g, DType t)
{
  if (dtype_is_bool(t)) return "bool";
  switch ((DCode)t.code) {
  case DT_INT:
  case DT_UINT:
    if (t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64)
      return g->dialect->ints[t.code == DT_UINT][t.bits == 8 ? 0 : t.bits == 16 ? 1 : t.bits == 32 ? 2 : 3];
    break;
  case DT_FLOAT:
    if (t.bits == 32) return "float";
    if (t.bits == 64) return "double";
    if (t.bits == 16) {
      g->uses_half = true;
      return g->dialect->half ? g->dialect->half : g->dialect->ints[1][1];
    }
    break;
  case DT_HANDLE: return "void *";
  case DT_VOID: return "void";
  case DT_TEXT:
  case DT_BFLOAT:
  case DT_E4M3FN:
  case DT_E5M2:
  case DT_E4M3FNUZ:
  case DT_E5M2FNUZ:
  case DT_E8M0FNU:
  case DT_E2M1FN: break;
  }
  cs_unsupported(g, "values of dtype %s", dtype_name(scratch(g->ctx), t));
}

const char *cs_suffix(Cgen *g, DType t)
{
  const char *letter = t.code == DT_INT ? "i" : t.code == DT_UINT ? "u" : "f";
  if (dtype_is_bool(t)) letter = "b";
  if (t.lanes == 1) return cs_fmt(g, "%s%d", letter, t.bits);
  return cs_fmt(g, "%s%dx%d", letter, t.bits, t.lanes);
}

static const char *vector_type(Cgen *g, DType t, bool memory)
{
  if (dtype_is_bool(dtype_elem(t))) BUG(g->ctx, "a vector of bool has no type of its own");
  const char *name = cs_fmt(g, "%s%s", cs_suffix(g, t), memory ? "u" : "");
  if (cs_needs(g, name)) {
    int bytes = dtype_bytes(t);
    if (memory)
      text_printf(&g->types, "typedef %s %s __attribute__((vector_size(%d), aligned(%d), may_alias));\n",
                  scalar_type(g, dtype_elem(t)), name, bytes * t.lanes, bytes);
    else
      text_printf(&g->types, "typedef %s %s __attribute__((vector_size(%d)));\n", scalar_type(g, dtype_elem(t)), name,
                  bytes * t.lanes);
  }
  return name;
}

const char *cs_type(Cgen *g, DType t) { return t.lanes == 1 ? scalar_type(g, t) : vector_type(g, t, false); }
const char *cs_memory_type(Cgen *g, DType t) { return vector_type(g, t, true); }
const char *cs_storage_type(Cgen *g, DType t) { return cs_type(g, cs_storage(g, t)); }

/* ---- literals ------------------------------------------------------------------------ */

/* alone: no operand beside it tells C its type. */
static Frag literal_int(Cgen *g, DType t, int64_t v, bool alone)
{
  if (dtype_is_bool(t)) return cs_frag(v ? "true" : "false", P_POST);
  if (t.code == DT_UINT) {
    const char *suffix = t.bits == 64 ? "ull" : t.bits == 32 ? "u" : "";
    return cs_frag(cs_fmt(g, "%" PRIu64 "%s", (uint64_t)v, suffix), P_POST);
  }
  bool wide = t.bits == 64 && (alone || v > INT32_MAX || v < -INT32_MAX);
  if (v == INT64_MIN) return cs_frag("(-9223372036854775807ll - 1)", P_POST);
  if (v == INT32_MIN && t.bits == 32) return cs_frag("(-2147483647 - 1)", P_POST);
  return cs_frag(cs_fmt(g, "%" PRId64 "%s", v, wide ? "ll" : ""), v < 0 ? P_UNARY : P_POST);
}

/* The shortest decimal that reads back as the same float. */
static const char *shortest_float(Cgen *g, float v)
{
  char s[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(s, sizeof s, "%.*g", digits, (double)v);
    if (strtof(s, NULL) == v) break;
  }
  return cs_fmt(g, "%s", s);
}

Frag cs_literal_float(Cgen *g, DType t, double v)
{
  bool wide = t.bits == 64;
  if (t.bits == 16 && !g->dialect->half) return cs_frag(cs_fmt(g, "0x%04x", (unsigned)float_to_half((float)v)), P_POST);
  if (isnan(v) || isinf(v)) {
    const char *special = g->dialect->float_special[wide][isnan(v) ? 2 : v < 0];
    g->uses_math = true;
    if (t.bits == 16) return cs_frag(cs_fmt(g, "(%s)%s", scalar_type(g, t), special), P_UNARY);
    return cs_frag(special, v < 0 ? P_UNARY : P_POST);
  }
  const char *digits = wide ? text_double(scratch(g->ctx), v) : shortest_float(g, (float)v);
  const char *point = strpbrk(digits, ".e") ? "" : ".0";
  const char *s = cs_fmt(g, "%s%s%s", digits, point, wide ? "" : "f");
  if (t.bits == 16) return cs_frag(cs_fmt(g, "(%s)%s", scalar_type(g, t), s), P_UNARY);
  return cs_frag(s, signbit(v) ? P_UNARY : P_POST);
}

/* ---- properties of expressions --------------------------------------------------------- */

static void look_for_failure(void *env, const Expr *e)
{
  bool divides = (e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) &&
                 dtype_is_int(e->dtype);
  if (e->kind == E_LOAD || divides || (e->kind == E_CALL && e->u.intrin >= IN_ADDRESS_OF)) *(bool *)env = true;
}

bool cs_may_fail(Cgen *g, const Expr *e)
{
  bool yes = false;
  expr_visit(g->ctx, e, look_for_failure, &yes);
  return yes;
}

/* Does integer arithmetic on e have to wrap? */
bool cs_wraps(Cgen *g, const Expr *e)
{
  if (e->kind == E_LOAD) return true;
  if (e->kind == E_INT || e->kind == E_FLOAT || e->kind == E_STR) return false;
  const void *key = e->kind == E_VAR ? (const void *)e->u.var : e;
  uintptr_t known = (uintptr_t)map_get(&g->data, key);
  if (known || e->kind == E_VAR) return known == 1;
  bool yes = e->kind == E_CALL && e->u.intrin != IN_IF_THEN_ELSE && e->u.intrin != IN_LIKELY;
  if (e->kind == E_CAST && !dtype_is_int(e->arg[0]->dtype)) yes = true;
  if (e->kind == E_LET && cs_wraps(g, e->arg[0])) map_put(g->arena, &g->data, e->u.var, (void *)1);
  for (int i = 0; i < e->nargs && !yes; i++) yes = cs_wraps(g, e->arg[i]);
  map_put(g->arena, &g->data, e, (void *)(uintptr_t)(yes ? 1 : 2));
  return yes;
}

/* ---- statements aside -------------------------------------------------------------------- */

void cs_aside_begin(Cgen *g, Aside *a)
{
  a->text = text_new(scratch(g->ctx));
  a->outer = g->out;
  a->bound = g->bound.n;
  g->out = &a->text;
  g->indent++;
}

bool cs_aside_end(Cgen *g, Aside *a)
{
  g->out = a->outer;
  g->bound.n = a->bound;
  g->indent--;
  return a->text.n > 0;
}

/* ---- shared terms ---------------------------------------------------------------------------- */

/* An expression is a graph; as a tree it may be exponential.  A term of some size that
 * a statement uses more than once is printed once and named. */
enum { WORTH_A_NAME = 5 };
typedef struct Term {
  int uses, size; /* size: nodes, counted as a tree, up to WORTH_A_NAME */
} Term;

static void count_term(void *env, const Expr *e)
{
  Cgen *g = env;
  Term *t = arena_new_of(scratch(g->ctx), Term);
  t->size = 1;
  for (int i = 0; i < e->nargs; i++) {
    Term *a = map_get(&g->terms, e->arg[i]);
    a->uses++;
    t->size += a->size;
    if (t->size > WORTH_A_NAME) t->size = WORTH_A_NAME;
  }
  map_put(scratch(g->ctx), &g->terms, e, t);
}

void cs_share_begin(Cgen *g) { g->terms = (Map){0}; }

void cs_share(Cgen *g, const Expr *e)
{
  if (!e || e->nargs == 0) return;
  Term *known = map_get(&g->terms, e);
  if (!known) {
    expr_visit(g->ctx, e, count_term, g);
    known = map_get(&g->terms, e);
  }
  known->uses++;
}

bool cs_is_shared(Cgen *g, const Expr *e)
{
  if (e->nargs == 0 || e->kind == E_RAMP || e->kind == E_BROADCAST || e->kind == E_LET) return false;
  if (e->dtype.code == DT_HANDLE || e->dtype.code == DT_VOID || !expr_is_pure(e)) return false;
  const Term *t = map_get(&g->terms, e);
  return t && t->uses > 1 && t->size >= WORTH_A_NAME;
}

/* ---- operators ----------------------------------------------------------------------------- */

enum { WHOLE_LET = -2 };

static const char *lookup_bound(Cgen *g, const void *what, int lane)
{
  for (int i = g->bound.n - 1; i >= 0; i--)
    if (g->bound.v[i].what == what && g->bound.v[i].lane == lane) return g->bound.v[i].name;
  return NULL;
}

static const struct {
  const char *op;
  int prec;
  /* clang-format off */
} operators[E_NKINDS] = {
    [E_ADD] = {"+", P_ADD}, [E_SUB] = {"-", P_ADD}, [E_MUL] = {"*", P_MUL}, [E_DIV] = {"/", P_MUL},
    [E_MOD] = {"%", P_MUL}, [E_EQ] = {"==", P_EQ},  [E_NE] = {"!=", P_EQ},  [E_LT] = {"<", P_REL},
    [E_LE] = {"<=", P_REL}, [E_GT] = {">", P_REL},  [E_GE] = {">=", P_REL},
};
/* clang-format on */

/* sum + word_dot(…), or the sum of a vector's products, as one call; NULL: it is no such sum. */
static const char *dot_sum(Cgen *g, const Expr *e, int lane)
{
  if (e->kind != E_ADD) return NULL;
  for (int i = 1; i >= 0; i--)
    if (e->arg[i]->kind == E_CALL && e->arg[i]->u.intrin == IN_WORD_DOT && !cs_is_shared(g, e->arg[i]))
      return cs_word_dot(g, e->arg[i], cs_lane(g, e->arg[1 - i], lane).s, lane);
  for (int i = 1; i >= 0 && e->dtype.lanes == 1; i--)
    if (cs_is_bytes_dot(g, e->arg[i]) && !cs_is_shared(g, e->arg[i]))
      return cs_bytes_dot(g, e->arg[i], cs_lane(g, e->arg[1 - i], lane).s);
  return NULL;
}

/* An operand of wrapping arithmetic, as unsigned text of strength prec at least. */
static const char *unsigned_operand(Cgen *g, const Expr *e, int lane, int prec, bool top)
{
  DType t = dtype_elem(e->dtype);
  const char *type = g->dialect->ints[1][t.bits == 32 ? 2 : 3];
  if (cs_is_shared(g, e) && !top) return cs_fmt(g, "(%s)%s", type, cs_lane(g, e, lane).s);
  const char *dot = dot_sum(g, e, lane);
  if (dot) return cs_fmt(g, "(%s)%s", type, dot);
  if (e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL) {
    int own = operators[e->kind].prec;
    const char *s = cs_fmt(g, "%s %s %s", unsigned_operand(g, e->arg[0], lane, own, false), operators[e->kind].op,
                           unsigned_operand(g, e->arg[1], lane, own + 1, false));
    return cs_wrap(g, cs_frag(s, own), prec);
  }
  if (e->kind == E_INT && e->u.i >= 0) return literal_int(g, DTYPE(DT_UINT, t.bits), e->u.i, false).s;
  bool widens = e->kind == E_CAST && dtype_is_int(e->arg[0]->dtype) && !dtype_is_bool(dtype_elem(e->arg[0]->dtype)) &&
                e->arg[0]->dtype.bits <= t.bits;
  return cs_fmt(g, "(%s)%s", type, cs_wrap(g, cs_lane(g, widens ? e->arg[0] : e, lane), P_UNARY));
}

/* Neither zero nor -1: the operator does not trap. */
bool cs_divisor_known(const Expr *e)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  return e->kind == E_INT && e->u.i != 0 && (e->u.i != -1 || e->dtype.code == DT_UINT);
}

static Frag arithmetic(Cgen *g, const Expr *e, int lane)
{
  DType t = dtype_elem(e->dtype);
  int prec = operators[e->kind].prec;
  const char *op = operators[e->kind].op;
  if (dtype_is_bool(t)) cs_unsupported(g, "'%s' on bool", op);
  if ((e->kind == E_DIV || e->kind == E_MOD) && dtype_is_int(t) && !cs_divisor_known(e->arg[1])) {
    const char *name = cs_helper_of(g, e->kind == E_DIV ? "div" : "rem", g->wide && t.code == DT_INT ? DT_I64 : t);
    return cs_frag(cs_fmt(g, "%s(%s, %s)", name, cs_lane(g, e->arg[0], lane).s, cs_lane(g, e->arg[1], lane).s), P_POST);
  }
  const char *dot = dot_sum(g, e, lane);
  if (dot) return cs_frag(dot, P_POST);
  bool ring = e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL;
  if (ring && t.code == DT_INT && t.bits >= 32 && cs_wraps(g, e))
    return cs_frag(cs_fmt(g, "(%s)(%s)", cs_type(g, t), unsigned_operand(g, e, lane, P_NONE, true)), P_UNARY);
  const Expr *x = e->arg[0];
  const Expr *y = e->arg[1];
  Frag a = x->kind == E_INT && y->kind == E_INT ? literal_int(g, t, x->u.i, true) : cs_lane(g, x, lane);
  Frag b = cs_lane(g, y, lane);
  bool narrow = dtype_is_int(t) && t.bits < 32; /* C computed in int */
  if (narrow && e->kind == E_MUL && t.code == DT_UINT) {
    const char *wide = g->dialect->ints[1][2];
    return cs_frag(
        cs_fmt(g, "(%s)((%s)%s * (%s)%s)", cs_type(g, t), wide, cs_wrap(g, a, P_UNARY), wide, cs_wrap(g, b, P_UNARY)),
        P_UNARY);
  }
  const char *s = cs_fmt(g, "%s %s %s", cs_wrap(g, a, prec), op, cs_wrap(g, b, prec + 1));
  if (narrow) return cs_frag(cs_fmt(g, "(%s)(%s)", cs_type(g, t), s), P_UNARY);
  return cs_frag(s, prec);
}

static Frag compare(Cgen *g, const Expr *e, int lane)
{
  Frag a = cs_lane(g, e->arg[0], lane);
  Frag b = cs_lane(g, e->arg[1], lane);
  const char *op = operators[e->kind].op;
  int prec = operators[e->kind].prec;
  return cs_frag(cs_fmt(g, "%s %s %s", cs_wrap(g, a, P_SHIFT), op, cs_wrap(g, b, P_SHIFT)), prec);
}

/* && and ||; the right side must not be evaluated early. */
static Frag logic(Cgen *g, const Expr *e, int lane)
{
  bool is_and = e->kind == E_AND;
  int prec = is_and ? P_LAND : P_LOR;
  Frag a = cs_lane(g, e->arg[0], lane);
  Aside aside;
  cs_aside_begin(g, &aside);
  Frag b = cs_lane(g, e->arg[1], lane);
  if (!cs_aside_end(g, &aside)) {
    /* compilers ask for parentheses around && inside || */
    int inner = is_and ? P_LAND : P_BOR;
    const char *x = e->arg[0]->kind == e->kind ? cs_wrap(g, a, prec) : cs_wrap(g, a, inner);
    const char *y = e->arg[1]->kind == e->kind ? cs_wrap(g, b, prec) : cs_wrap(g, b, inner);
    return cs_frag(cs_fmt(g, "%s %s %s", x, is_and ? "&&" : "||", y), prec);
  }
  const char *name = cs_fresh(g, "cond");
  cs_line(g, "bool %s = %s;", name, a.s);
  cs_line(g, "if (%s%s) {", is_and ? "" : "!", name);
  text_add(g->out, text_str(&aside.text));
  g->indent++;
  cs_line(g, "%s = %s;", name, b.s);
  g->indent--;
  cs_line(g, "}");
  return cs_frag(name, P_POST);
}

/* A vector read from memory has a type of its own (less aligned); both values of a
 * choice must have one. */
const char *cs_one_type(Cgen *g, DType t, Frag value, int prec)
{
  if (t.lanes == 1 || dtype_is_bool(dtype_elem(t))) return cs_wrap(g, value, prec);
  return cs_fmt(g, "(%s)%s", cs_type(g, t), cs_wrap(g, value, P_UNARY));
}

/* Only the taken value is evaluated. */
Frag cs_choice(Cgen *g, const Expr *e, int lane)
{
  Frag cond = cs_lane(g, e->arg[0], lane);
  Frag value[2];
  DType t = lane < 0 ? e->dtype : dtype_elem(e->dtype);
  Aside aside[2];
  bool statements = false;
  for (int i = 0; i < 2; i++) {
    cs_aside_begin(g, &aside[i]);
    value[i] = lane < 0 ? cs_expr(g, e->arg[i + 1]) : cs_lane(g, e->arg[i + 1], lane);
    if (cs_aside_end(g, &aside[i])) statements = true;
  }
  if (!statements)
    return cs_frag(cs_fmt(g, "%s ? %s : %s", cs_wrap(g, cond, P_LOR), cs_one_type(g, t, value[0], P_COND + 1),
                          cs_one_type(g, t, value[1], P_COND)),
                   P_COND);
  const char *name = cs_fresh(g, "choice");
  cs_line(g, "%s %s;", cs_type(g, t), name);
  for (int i = 0; i < 2; i++) {
    if (i == 0) cs_line(g, "if (%s) {", cond.s);
    else cs_line(g, "} else {");
    text_add(g->out, text_str(&aside[i].text));
    g->indent++;
    cs_line(g, "%s = %s;", name, value[i].s);
    g->indent--;
  }
  cs_line(g, "}");
  return cs_frag(name, P_POST);
}

/* ---- casts ------------------------------------------------------------------------------------ */

Frag cs_cast(Cgen *g, Frag v, DType from, DType to)
{
  if (dtype_eq(from, to)) return v;
  if (cs_half_bits(g, from) || cs_half_bits(g, to))
    return cs_frag(cs_fmt(g, "%s(%s)", cs_half_cast(g, from, to), v.s), P_POST);
  if (dtype_is_bool(to) && from.code == DT_FLOAT && from.bits == 16)
    v = cs_frag(cs_fmt(g, "(float)%s", cs_wrap(g, v, P_UNARY)), P_UNARY);
  if (dtype_is_bool(to)) return cs_frag(cs_fmt(g, "%s != 0", cs_wrap(g, v, P_SHIFT)), P_EQ);
  if (dtype_is_float(from) && dtype_is_int(to))
    return cs_frag(cs_fmt(g, "%s(%s)", cs_saturate(g, from, to), v.s), P_POST);
  return cs_frag(cs_fmt(g, "(%s)%s", cs_type(g, to), cs_wrap(g, v, P_UNARY)), P_UNARY);
}

/* ---- scalars --------------------------------------------------------------------------------- */

static Frag variable(Cgen *g, const Expr *e, int lane)
{
  const char *name = lane >= 0 ? lookup_bound(g, e->u.var, lane) : NULL;
  if (name) return cs_frag(name, P_POST);
  const Memory *mem = map_get(&g->memory, e->u.var);
  if (mem) return cs_frag(cs_fmt(g, "(void *)%s", mem->name), P_UNARY);
  name = cs_name(g, e->u.var);
  if (e->dtype.lanes == 1) return cs_frag(name, P_POST);
  if (dtype_is_bool(dtype_elem(e->dtype))) return cs_frag(cs_fmt(g, "%s[%d] != 0", name, lane), P_EQ);
  return cs_frag(cs_fmt(g, "%s[%d]", name, lane), P_POST);
}

static Frag ramp_lane(Cgen *g, const Expr *e, int lane)
{
  Frag base = cs_lane(g, e->arg[0], 0);
  if (lane == 0 || expr_is_int(e->arg[1], 0)) return base;
  DType t = dtype_elem(e->dtype);
  if (e->arg[1]->kind == E_INT) {
    int64_t step = e->arg[1]->u.i * lane;
    if (e->arg[0]->kind == E_INT) return literal_int(g, t, e->arg[0]->u.i + step, false);
    const char *op = step < 0 ? "-" : "+";
    return cs_frag(cs_fmt(g, "%s %s %" PRId64, cs_wrap(g, base, P_ADD), op, step < 0 ? -step : step), P_ADD);
  }
  const char *stride = cs_wrap(g, cs_lane(g, e->arg[1], 0), P_MUL);
  const char *step = lane == 1 ? stride : cs_fmt(g, "%d * %s", lane, cs_wrap(g, cs_lane(g, e->arg[1], 0), P_UNARY));
  return cs_frag(cs_fmt(g, "%s + %s", cs_wrap(g, base, P_ADD), step), P_ADD);
}

void cs_bind(Cgen *g, const Var *v, const Expr *value)
{
  if (cs_wraps(g, value)) map_put(g->arena, &g->data, v, (void *)1);
  DType t = v->dtype;
  DType elem = dtype_elem(t);
  if (t.lanes > 1 && !g->dialect->vectors) {
    Text list = text_new(scratch(g->ctx));
    for (int i = 0; i < t.lanes; i++) text_printf(&list, "%s%s", i ? ", " : "", cs_lane(g, value, i).s);
    cs_line(g, "const %s %s[%d] = {%s};", cs_type(g, elem), cs_name(g, v), t.lanes, text_str(&list));
  } else if (t.lanes > 1 && dtype_is_bool(elem)) {
    int bits = cs_mask_width(g, value);
    const char *mask = cs_mask(g, value, bits).s;
    map_put(g->arena, &g->mask_bits, v, (void *)(uintptr_t)bits);
    cs_line(g, "const %s %s = %s;", cs_mask_type(g, bits, t.lanes), cs_name(g, v), mask);
  } else {
    const char *text = cs_text(g, value);
    cs_line(g, "%s%s%s = %s;", t.code == DT_HANDLE ? "" : "const ",
            cs_fmt(g, "%s%s", cs_type(g, t), t.code == DT_HANDLE ? "const " : " "), cs_name(g, v), text);
  }
}

/* A let binds before the statement; of a vector seen lane by lane, for that lane. */
static void bind_let(Cgen *g, const Expr *e, int lane)
{
  const Var *v = e->u.var;
  if (v->dtype.lanes == 1 || lane < 0) {
    if (lookup_bound(g, v, WHOLE_LET)) return; /* bound for an earlier lane */
    cs_bind(g, v, e->arg[0]);
    vec_push(g->arena, &g->bound, (Bound){v, WHOLE_LET, cs_name(g, v)});
    return;
  }
  if (cs_wraps(g, e->arg[0])) map_put(g->arena, &g->data, v, (void *)1);
  const char *value = cs_lane(g, e->arg[0], lane).s;
  const char *name = cs_fresh(g, safe_hint(g, v->name));
  cs_line(g, "const %s %s = %s;", cs_type(g, dtype_elem(v->dtype)), name, value);
  vec_push(g->arena, &g->bound, (Bound){v, lane, name});
}

static Frag string(Cgen *g, const char *s)
{
  Text t = text_new(scratch(g->ctx));
  text_quote(&t, s);
  return cs_frag(text_str(&t), P_POST);
}

static Frag flooring(Cgen *g, const Expr *e, int lane)
{
  DType t = dtype_elem(e->dtype);
  if (g->wide && t.code == DT_INT) t = DT_I64;
  const char *name = cs_helper_of(g, e->kind == E_FLOORDIV ? "floordiv" : "floormod", t);
  return cs_frag(cs_fmt(g, "%s(%s, %s)", name, cs_lane(g, e->arg[0], lane).s, cs_lane(g, e->arg[1], lane).s), P_POST);
}

/* float16 without a type for it: its bits, which can be moved and converted only. */
bool cs_half_bits(Cgen *g, DType t) { return t.code == DT_FLOAT && t.bits == 16 && !g->dialect->half; }

void cs_check_half(Cgen *g, const Expr *e)
{
  bool moves = e->kind == E_FLOAT || e->kind == E_VAR || e->kind == E_LOAD || e->kind == E_CAST ||
               e->kind == E_SELECT || e->kind == E_LET || e->kind == E_BROADCAST ||
               (e->kind == E_CALL && (e->u.intrin == IN_IF_THEN_ELSE || e->u.intrin == IN_REINTERPRET));
  for (int i = 0; i < e->nargs && e->kind >= E_EQ && e->kind <= E_GE; i++)
    if (cs_half_bits(g, e->arg[i]->dtype)) moves = false;
  bool half = cs_half_bits(g, e->dtype) || (e->kind >= E_EQ && e->kind <= E_GE && cs_half_bits(g, e->arg[0]->dtype));
  if (half && !moves)
    cs_unsupported(g, "%s on float16, which target '%s' cannot compute in", expr_kind_name((ExprKind)e->kind),
                   g->target->text);
}

static Frag scalar(Cgen *g, const Expr *e, int lane)
{
  DType t = dtype_elem(e->dtype);
  cs_check_half(g, e);
  switch ((ExprKind)e->kind) {
  case E_INT: return literal_int(g, t, e->u.i, false);
  case E_FLOAT: return cs_literal_float(g, t, e->u.f);
  case E_STR: return string(g, e->u.str);
  case E_VAR: return variable(g, e, lane);
  case E_MOD:
    if (dtype_is_float(t)) {
      g->uses_math = true;
      return cs_frag(cs_fmt(g, "%s(%s, %s)", t.bits == 64 ? "fmod" : "fmodf", cs_lane(g, e->arg[0], lane).s,
                            cs_lane(g, e->arg[1], lane).s),
                     P_POST);
    }
    return arithmetic(g, e, lane);
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV: return arithmetic(g, e, lane);
  case E_FLOORDIV:
  case E_FLOORMOD: return flooring(g, e, lane);
  case E_MIN:
  case E_MAX: {
    const char *name = cs_helper_of(g, e->kind == E_MIN ? "min" : "max", g->wide && t.code == DT_INT ? DT_I64 : t);
    return cs_frag(cs_fmt(g, "%s(%s, %s)", name, cs_lane(g, e->arg[0], lane).s, cs_lane(g, e->arg[1], lane).s), P_POST);
  }
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE: return compare(g, e, lane);
  case E_AND:
  case E_OR: return logic(g, e, lane);
  case E_NOT: return cs_frag(cs_fmt(g, "!%s", cs_wrap(g, cs_lane(g, e->arg[0], lane), P_UNARY)), P_UNARY);
  case E_CAST: return cs_cast(g, cs_lane(g, e->arg[0], lane), dtype_elem(e->arg[0]->dtype), t);
  case E_SELECT: {
    Frag c = cs_lane(g, e->arg[0], lane);
    Frag a = cs_lane(g, e->arg[1], lane);
    Frag b = cs_lane(g, e->arg[2], lane);
    return cs_frag(cs_fmt(g, "%s ? %s : %s", cs_wrap(g, c, P_LOR), cs_wrap(g, a, P_COND + 1), cs_wrap(g, b, P_COND)),
                   P_COND);
  }
  case E_LET: bind_let(g, e, lane); return cs_lane(g, e->arg[1], lane);
  case E_LOAD: return cs_load(g, e, lane);
  case E_CALL: return cs_call(g, e, lane);
  case E_RAMP: return ramp_lane(g, e, lane);
  case E_BROADCAST: return cs_lane(g, e->arg[0], 0);
  case E_REDUCE:
  case E_NKINDS: break;
  }
  BUG(g->ctx, "kernel form has no %s", expr_kind_name((ExprKind)e->kind));
}

/* Prints value under a name and remembers it. */
static Frag give_name(Cgen *g, const Expr *e, int lane, DType t, Frag value)
{
  const char *name = cs_fresh(g, "t");
  cs_line(g, "const %s %s = %s;", cs_type(g, t), name, value.s);
  vec_push(g->arena, &g->bound, (Bound){e, lane, name});
  return cs_frag(name, P_POST);
}

Frag cs_lane(Cgen *g, const Expr *e, int lane)
{
  if (e->dtype.lanes > 1) {
    if (lane < 0) BUG(g->ctx, "a scalar was wanted of %s", expr_str_of(scratch(g->ctx), e));
    const char *name = lookup_bound(g, e, -1);
    if (name) return cs_frag(cs_fmt(g, "%s[%d]", name, lane), P_POST);
  } else {
    lane = -1;
  }
  const char *lane_of = e->kind == E_LOAD && lane < 0 ? lookup_bound(g, e, -1) : NULL;
  if (lane_of) return cs_frag(lane_of, P_POST);
  if (!cs_is_shared(g, e)) return scalar(g, e, lane);
  const char *name = lookup_bound(g, e, lane);
  return name ? cs_frag(name, P_POST) : give_name(g, e, lane, dtype_elem(e->dtype), scalar(g, e, lane));
}

Frag cs_expr(Cgen *g, const Expr *e)
{
  if (e->kind == E_LET) {
    bind_let(g, e, -1);
    return cs_expr(g, e->arg[1]);
  }
  if (e->dtype.lanes == 1) return cs_lane(g, e, -1);
  const char *name = lookup_bound(g, e, -1);
  if (name) return cs_frag(name, P_POST);
  return cs_is_shared(g, e) ? give_name(g, e, -1, e->dtype, cs_vector(g, e)) : cs_vector(g, e);
}

const char *cs_text(Cgen *g, const Expr *e) { return cs_expr(g, e).s; }
