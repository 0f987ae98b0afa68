/* cstyle_call.c: intrinsic functions, and the helper functions printed for them.
 *
 * A helper is a small static function named after what it does and its type
 * (min_f32x8, cast_i8_f32); it is printed once, before the kernels, when first used. */
#include "codegen/cstyle.h"

#include <math.h>

/* ---- helpers by name ------------------------------------------------------------------- */

static DType unsigned_of(DType t) { return dtype_lanes(DTYPE(DT_UINT, t.bits), t.lanes); }
static DType signed_of(DType t) { return dtype_lanes(DTYPE(DT_INT, t.bits), t.lanes); }

static void make_select(Cgen *g, const char *name, DType t)
{
  const char *T = cs_type(g, t);
  const char *M = cs_type(g, signed_of(t));
  cs_helper(g, "%s %s(%s m, %s a, %s b) { return (%s)((m & (%s)a) | (~m & (%s)b)); }", T, name, M, T, T, T, M, M);
}

/* The other operand when one is NaN. */
static void make_min_max(Cgen *g, const char *name, DType t, bool is_min)
{
  const char *T = cs_type(g, t);
  const char *op = is_min ? "<" : ">";
  bool is_float = dtype_is_float(t);
  if (t.lanes == 1) {
    if (is_float) cs_helper(g, "%s %s(%s a, %s b) { return a %s b || b != b ? a : b; }", T, name, T, T, op);
    else cs_helper(g, "%s %s(%s a, %s b) { return a %s b ? a : b; }", T, name, T, T, op);
    return;
  }
  const char *select = cs_helper_of(g, "select", t);
  const char *M = cs_type(g, signed_of(t));
  if (is_float)
    cs_helper(g, "%s %s(%s a, %s b) { return %s((%s)(a %s b) | (%s)(b != b), a, b); }", T, name, T, T, select, M, op,
              M);
  else cs_helper(g, "%s %s(%s a, %s b) { return %s((%s)(a %s b), a, b); }", T, name, T, T, select, M, op);
}

/* Division by zero has no value, and must not trap; neither must the smallest integer by -1. */
static void make_division(Cgen *g, const char *name, DType t, const char *what)
{
  const char *T = cs_type(g, t);
  const char *U = cs_type(g, unsigned_of(t));
  bool is_div = !strcmp(what, "div") || !strcmp(what, "floordiv");
  bool floors = what[0] == 'f';
  if (t.code == DT_UINT) {
    cs_helper(g, "%s %s(%s a, %s b) { return b == 0 ? 0 : (%s)(a %s b); }", T, name, T, T, T, is_div ? "/" : "%");
    return;
  }
  const char *low = is_div ? cs_fmt(g, "b == 0 ? 0 : b == -1 ? (%s)(0 - (%s)a)", T, U) : "b == 0 || b == -1 ? 0";
  const char *rest = !floors  ? (is_div ? "a / b" : "a % b")
                     : is_div ? "a / b - (a % b != 0 && (a < 0) != (b < 0))"
                              : "a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b";
  cs_helper(g, "%s %s(%s a, %s b) { return %s : (%s)(%s); }", T, name, T, T, low, T, rest);
}

/* {fn(a[0]), fn(a[1]), …}: compilers make one instruction of it where there is one. */
static void make_lanewise(Cgen *g, const char *name, DType to, DType from, const char *fn, int nargs)
{
  const char *T = cs_type(g, to);
  const char *F = cs_type(g, from);
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < to.lanes; i++) {
    text_printf(&list, "%s%s(a[%d]", i ? ", " : "", fn, i);
    if (nargs > 1) text_printf(&list, ", b[%d]", i);
    if (nargs > 2) text_printf(&list, ", c[%d]", i);
    text_char(&list, ')');
  }
  const char *more = nargs == 1 ? "" : nargs == 2 ? cs_fmt(g, ", %s b", F) : cs_fmt(g, ", %s b, %s c", F, F);
  text_printf(&g->helpers, "%s %s %s(%s a%s)\n{\n  return (%s){%s};\n}\n", g->dialect->helper, T, name, F, more, T,
              text_str(&list));
}

/* Sign and magnitude by their bits. */
static void make_sign_bits(Cgen *g, const char *name, DType t, bool is_abs)
{
  const char *T = cs_type(g, t);
  const char *U = cs_type(g, unsigned_of(t));
  const char *sign = cs_splat(g, unsigned_of(t), t.bits == 64 ? "1ull << 63" : t.bits == 32 ? "1u << 31" : "1u << 15");
  if (is_abs) cs_helper(g, "%s %s(%s a) { return (%s)((%s)a & ~%s); }", T, name, T, T, U, sign);
  else
    cs_helper(g, "%s %s(%s a, %s b) { return (%s)(((%s)a & ~%s) | ((%s)b & %s)); }", T, name, T, T, T, U, sign, U,
              sign);
}

static void make_abs(Cgen *g, const char *name, DType t)
{
  const char *T = cs_type(g, t);
  if (dtype_is_float(t)) make_sign_bits(g, name, t, true);
  else if (t.code == DT_UINT) cs_helper(g, "%s %s(%s a) { return a; }", T, name, T);
  else if (t.lanes == 1)
    cs_helper(g, "%s %s(%s a) { return a < 0 ? (%s)(0 - (%s)a) : a; }", T, name, T, T, cs_type(g, unsigned_of(t)));
  else {
    const char *U = cs_type(g, unsigned_of(t));
    cs_helper(g, "%s %s(%s a) { return %s((%s)(a < 0), (%s)-(%s)a, a); }", T, name, T, cs_helper_of(g, "select", t), T,
              T, U);
  }
}

static void make_classify(Cgen *g, const char *name, DType t, char which)
{
  const char *T = cs_type(g, t);
  DType elem = dtype_elem(t);
  const char *inf = cs_literal_float(g, elem, INFINITY).s;
  if (t.lanes == 1) {
    const char *test = which == 'n'   ? "a != a"
                       : which == 'i' ? cs_fmt(g, "a == %s || a == -%s", inf, inf)
                                      : "a - a == a - a";
    cs_helper(g, "bool %s(%s a) { return %s; }", name, T, test);
    return;
  }
  const char *M = cs_type(g, signed_of(t));
  const char *lim = cs_splat(g, t, inf);
  const char *test = which == 'n'   ? "a != a"
                     : which == 'i' ? cs_fmt(g, "(a == %s) | (a == -%s)", lim, lim)
                                    : "(a - a) == (a - a)";
  cs_helper(g, "%s %s(%s a) { return (%s)(%s); }", M, name, T, M, test);
}

static void make_bit_count(Cgen *g, const char *name, DType t, bool leading)
{
  const char *T = cs_type(g, t);
  const char *U = cs_type(g, unsigned_of(t));
  bool wide = t.bits == 64;
  bool cuda = g->dialect->shared != NULL;
  const char *count = leading ? (cuda   ? (wide ? "__clzll" : "__clz")
                                 : wide ? "__builtin_clzll"
                                        : "__builtin_clz")
                              : (cuda   ? (wide ? "__popcll" : "__popc")
                                 : wide ? "__builtin_popcountll"
                                        : "__builtin_popcount");
  const char *big = cs_type(g, DTYPE(DT_UINT, wide ? 64 : 32));
  if (leading)
    cs_helper(g, "%s %s(%s a) { return (%s)a == 0 ? %d : %s((%s)(%s)a) - %d; }", cs_type(g, DT_I32), name, T, U, t.bits,
              count, big, U, wide ? 0 : 32 - t.bits);
  else cs_helper(g, "%s %s(%s a) { return (%s)%s((%s)(%s)a); }", T, name, T, T, count, big, U);
}

/* x * y * 2^(s - q), halves up. */
static void make_multiply_shift(Cgen *g, const char *name, DType t)
{
  if (t.bits > 32) cs_unsupported(g, "q_multiply_shift of %d bits", t.bits);
  const char *T = cs_type(g, t);
  const char *L = cs_type(g, DT_I64);
  const char *U = cs_type(g, DTYPE(DT_UINT, 64));
  cs_helper(g,
            "%s %s(%s x, %s y, %s q, %s s)\n{\n"
            "  %s right = (%s)q - (%s)s, product = (%s)x * (%s)y;\n"
            "  if (right > 62 || right < -63) return 0;\n%s"
            "  if (right > 0) return (%s)((product + ((%s)1 << (right - 1))) >> right);\n"
            "  return (%s)((%s)product << -right);\n}",
            T, name, T, T, T, T, L, L, L, L, L,
            t.bits == 32 ? "  if (right == 31 && x == -2147483647 - 1 && y == x) return 2147483647;\n" : "", T, L, T,
            U);
}

static void make_reinterpret(Cgen *g, const char *name, DType from, DType to)
{
  const char *T = cs_type(g, to);
  cs_helper(g, "%s %s(%s a)\n{\n  union { %s from; %s to; } bits;\n  bits.from = a;\n  return bits.to;\n}", T, name,
            cs_type(g, from), cs_type(g, from), T);
}

static void make_vector_sum(Cgen *g, const char *name, DType t)
{
  const char *E = cs_type(g, dtype_elem(t));
  bool wraps = t.code == DT_INT;
  const char *A = wraps ? cs_type(g, unsigned_of(dtype_elem(t))) : E;
  cs_helper(g, "%s %s(%s a)\n{\n  %s r = a[0];\n  for (int i = 1; i < %d; i++) r += a[i];\n  return r;\n}", E, name,
            cs_type(g, t), A, t.lanes);
}

static const char *math_name(Cgen *g, const char *base, DType t)
{
  return cs_fmt(g, "%s%s", base, t.bits == 64 ? "" : "f");
}

/* sum and the products of the bytes of two words, by Arm's SMLAD where it is there: two products of halves, for which
 * the bytes are spread to halves, the even ones and the odd ones. */
static const char *make_word_dot(Cgen *g, bool first_signed, bool second_signed)
{
  const char *name = cs_fmt(g, "dot_%c8_%c8", first_signed ? 's' : 'u', second_signed ? 's' : 'u');
  if (!cs_needs(g, name)) return name;
  for (int i = 0; i < 2; i++) {
    char sign = (i ? second_signed : first_signed) ? 's' : 'u';
    const char *spread = cs_fmt(g, "halves_%c8", sign);
    if (!cs_needs(g, spread)) continue;
    text_printf(&g->helpers,
                "#if defined(__ARM_FEATURE_DSP)\n#define %s(to, word, by) __asm__(\"%cxtb16 %%0, %%1, ror \" by : "
                "\"=r\"(to) : \"r\"(word))\n#endif\n",
                spread, sign);
  }
  text_printf(&g->helpers,
              "%s int32_t %s(int32_t sum, uint32_t a, uint32_t b)\n{\n#if defined(__ARM_FEATURE_DSP)\n"
              "  uint32_t x, y;\n  halves_%c8(x, a, \"#0\");\n  halves_%c8(y, b, \"#0\");\n"
              "  __asm__(\"smlad %%0, %%1, %%2, %%0\" : \"+r\"(sum) : \"r\"(x), \"r\"(y));\n"
              "  halves_%c8(x, a, \"#8\");\n  halves_%c8(y, b, \"#8\");\n"
              "  __asm__(\"smlad %%0, %%1, %%2, %%0\" : \"+r\"(sum) : \"r\"(x), \"r\"(y));\n"
              "#else\n  for (int i = 0; i < 32; i += 8) sum += (%sint8_t)(a >> i) * (%sint8_t)(b >> i);\n#endif\n"
              "  return sum;\n}\n",
              g->dialect->helper, name, first_signed ? 's' : 'u', second_signed ? 's' : 'u', first_signed ? 's' : 'u',
              second_signed ? 's' : 'u', first_signed ? "" : "u", second_signed ? "" : "u");
  return name;
}

const char *cs_word_dot(Cgen *g, const Expr *e, const char *sum, int lane)
{
  int64_t signs = e->arg[2]->kind == E_INT ? e->arg[2]->u.i : 3;
  const char *name = make_word_dot(g, signs & 1, signs & 2);
  return cs_fmt(g, "%s(%s, %s, %s)", name, sum, cs_lane(g, e->arg[0], lane).s, cs_lane(g, e->arg[1], lane).s);
}

const char *cs_helper_of(Cgen *g, const char *what, DType t)
{
  const char *name = cs_fmt(g, "%s_%s", what, cs_suffix(g, t));
  if (!cs_needs(g, name)) return name;
  DType elem = dtype_elem(t);
  if (!strcmp(what, "select")) make_select(g, name, t);
  else if (!strcmp(what, "min") || !strcmp(what, "max")) make_min_max(g, name, t, what[1] == 'i');
  else if (!strcmp(what, "div") || !strcmp(what, "rem") || !strcmp(what, "floordiv") || !strcmp(what, "floormod"))
    make_division(g, name, t, what);
  else if (!strcmp(what, "abs")) make_abs(g, name, t);
  else if (!strcmp(what, "copysign")) make_sign_bits(g, name, t, false);
  else if (!strcmp(what, "isnan") || !strcmp(what, "isinf") || !strcmp(what, "isfinite"))
    make_classify(g, name, t, what[2]);
  else if (!strcmp(what, "clz") || !strcmp(what, "popcount")) make_bit_count(g, name, t, what[0] == 'c');
  else if (!strcmp(what, "multiply_shift")) make_multiply_shift(g, name, t);
  else if (!strcmp(what, "sum")) make_vector_sum(g, name, t);
  else make_lanewise(g, name, t, t, math_name(g, cs_fmt(g, "__builtin_%s", what), elem), !strcmp(what, "fma") ? 3 : 1);
  return name;
}

/* ---- float to integer ---------------------------------------------------------------------- */

/* Vectors of integers no wider than the floats: the value is brought into range first,
 * then converted; what was out of range is put right after (equal widths), or stands
 * at the limit already (narrower integers, whose limits are exact). */
static void saturate_vector(Cgen *g, const char *name, DType from, DType to, const char *min, const char *max)
{
  const char *F = cs_type(g, from);
  const char *T = cs_type(g, to);
  const char *M = cs_type(g, signed_of(from));
  const char *pick = cs_helper_of(g, "select", from);
  const char *zero = cs_splat(g, from, "0");
  double top = ldexp(1, to.bits - (to.code == DT_INT));
  double bottom = to.code == DT_INT ? -ldexp(1, to.bits - 1) : 0;
  bool narrow = to.bits < from.bits;
  const char *hi = cs_splat(g, from, cs_literal_float(g, dtype_elem(from), narrow ? top - 1 : top).s);
  const char *lo = cs_splat(g, from, cs_literal_float(g, dtype_elem(from), bottom).s);
  const char *masks =
      cs_fmt(g, "  const %s over = (%s)(a >= %s), under = (%s)(a <= %s), nan = (%s)(a != a);\n", M, M, hi, M, lo, M);
  Text body = text_new(scratch(g->ctx));
  if (narrow) {
    text_printf(&body, "  a = %s(over, %s, %s(under, %s, %s(nan, %s, a)));\n", pick, hi, pick, lo, pick, zero);
    text_printf(&body, "  return __builtin_convertvector(__builtin_convertvector(a, %s), %s);\n", M, T);
  } else {
    const char *fix = cs_helper_of(g, "select", to);
    text_printf(&body, "  const %s r = __builtin_convertvector(%s(over | under | nan, %s, a), %s);\n", T, pick, zero,
                T);
    text_printf(&body, "  return %s(over, %s, %s(under, %s, r));\n", fix, cs_splat(g, to, max), fix,
                cs_splat(g, to, min));
  }
  text_printf(&g->helpers, "%s %s %s(%s a)\n{\n%s%s}\n", g->dialect->helper, T, name, F, masks, text_str(&body));
}

/* Truncates, saturates at the integer's range, NaN gives 0. */
const char *cs_saturate(Cgen *g, DType from, DType to)
{
  const char *name = cs_fmt(g, "cast_%s_%s", cs_suffix(g, to), cs_suffix(g, from));
  if (!cs_needs(g, name)) return name;
  const char *F = cs_type(g, from);
  const char *T = cs_type(g, to);
  DType fe = dtype_elem(from);
  DType te = dtype_elem(to);
  /* the first float that is too large, exact in every float dtype but float16 */
  double above = ldexp(1, te.bits - (te.code == DT_INT));
  double below = te.code == DT_INT ? -ldexp(1, te.bits - 1) : 0;
  uint64_t umax = te.bits == 64 ? UINT64_MAX : (UINT64_C(1) << te.bits) - 1;
  const char *max = te.code == DT_UINT ? cs_fmt(g, "%" PRIu64 "%s", umax, te.bits == 64 ? "ull" : "u")
                                       : cs_fmt(g, "%" PRId64 "%s", (int64_t)(umax >> 1), te.bits == 64 ? "ll" : "");
  const char *min =
      te.code == DT_UINT ? "0" : cs_fmt(g, "(-%" PRId64 "%s - 1)", (int64_t)(umax >> 1), te.bits == 64 ? "ll" : "");
  if (from.bits == 16) { /* every finite float16 fits an int32 */
    const char *wide = cs_saturate(g, dtype_lanes(DT_F32, from.lanes), to);
    const char *up = from.lanes == 1
                         ? "(float)a"
                         : cs_fmt(g, "__builtin_convertvector(a, %s)", cs_type(g, dtype_lanes(DT_F32, from.lanes)));
    cs_helper(g, "%s %s(%s a) { return %s(%s); }", T, name, F, wide, up);
    return name;
  }
  const char *hi = cs_literal_float(g, fe, above).s;
  const char *lo = cs_literal_float(g, fe, below).s;
  if (from.lanes == 1)
    cs_helper(g, "%s %s(%s a) { return a != a ? 0 : a >= %s ? %s : a <= %s ? %s : (%s)a; }", T, name, F, hi, max, lo,
              min, T);
  else if (to.bits <= from.bits) saturate_vector(g, name, from, to, min, max);
  else make_lanewise(g, name, to, from, cs_saturate(g, fe, te), 1);
  return name;
}

/* ---- float16 as bits ------------------------------------------------------------------------------- */

/* float32 to float16 rounds to nearest even.  Below the smallest normal number adding
 * one half lets the float unit round at the last place of a subnormal. */
const char *cs_half_cast(Cgen *g, DType from, DType to)
{
  DType f32 = dtype_lanes(DT_F32, from.lanes);
  bool widens = cs_half_bits(g, from);
  if (!dtype_eq(widens ? to : from, f32))
    cs_unsupported(g, "a cast between float16 and %s", dtype_name(scratch(g->ctx), widens ? to : from));
  const char *name = cs_fmt(g, "cast_%s_%s", cs_suffix(g, to), cs_suffix(g, from));
  if (!cs_needs(g, name)) return name;
  if (from.lanes > 1) {
    make_lanewise(g, name, to, from, cs_half_cast(g, dtype_elem(from), dtype_elem(to)), 1);
  } else if (widens) {
    cs_helper(g,
              "float %s(uint16_t a)\n{\n"
              "  const uint32_t sign = (uint32_t)(a & 0x8000u) << 16, rest = a & 0x7fffu;\n"
              "  union { float f; uint32_t bits; } r;\n"
              "  r.f = (float)rest * 0x1p-24f;          /* right when subnormal */\n"
              "  if (rest >= 0x7c00u) r.bits = 0x7f800000u | rest << 13;\n"
              "  else if (rest >= 0x400u) r.bits = (rest << 13) + 0x38000000u;\n"
              "  r.bits |= sign;\n  return r.f;\n}",
              name);
  } else {
    cs_helper(g,
              "uint16_t %s(float a)\n{\n"
              "  union { float f; uint32_t bits; } r;\n  uint32_t sign, rest;\n  r.f = a;\n"
              "  sign = r.bits >> 16 & 0x8000u;\n  rest = r.bits & 0x7fffffffu;\n"
              "  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);\n"
              "  if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);\n"
              "  if (rest >= 0x38800000u) return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) "
              ">> 13);\n"
              "  r.bits = rest;\n  r.f += 0.5f;\n"
              "  return (uint16_t)(sign | (r.bits - 0x3f000000u));\n}",
              name);
  }
  return name;
}

/* ---- calls --------------------------------------------------------------------------------------- */

/* Functions of the C library, by the name without its suffix. */
/* clang-format off */
static const char *const libm[IN_COUNT] = {
    [IN_EXP] = "exp",           [IN_EXP2] = "exp2",
    [IN_LOG] = "log",           [IN_LOG2] = "log2",
    [IN_LOG10] = "log10",       [IN_LOG1P] = "log1p",
    [IN_SQRT] = "sqrt",         [IN_TANH] = "tanh",
    [IN_ERF] = "erf",           [IN_SIN] = "sin",
    [IN_COS] = "cos",           [IN_TAN] = "tan",
    [IN_ASIN] = "asin",         [IN_ACOS] = "acos",
    [IN_ATAN] = "atan",         [IN_ATAN2] = "atan2",
    [IN_SINH] = "sinh",         [IN_COSH] = "cosh",
    [IN_ASINH] = "asinh",       [IN_ACOSH] = "acosh",
    [IN_ATANH] = "atanh",       [IN_POW] = "pow",
    [IN_FMOD] = "fmod",         [IN_HYPOT] = "hypot",
    [IN_COPYSIGN] = "copysign", [IN_NEXTAFTER] = "nextafter",
    [IN_FMA] = "fma",           [IN_FLOOR] = "floor",
    [IN_CEIL] = "ceil",         [IN_TRUNC] = "trunc",
    [IN_ROUND] = "round",       [IN_NEARBYINT] = "nearbyint",
};
/* clang-format on */

/* Argument i as a float that the C library takes: float16 goes through float32. */
static const char *math_arg(Cgen *g, const Expr *e, int i, int lane)
{
  Frag f = cs_lane(g, e->arg[i], lane);
  return dtype_elem(e->arg[i]->dtype).bits == 16 ? cs_fmt(g, "(float)%s", cs_wrap(g, f, P_UNARY)) : f.s;
}

static Frag math_result(Cgen *g, DType t, const char *s, int prec)
{
  if (t.bits != 16) return cs_frag(s, prec);
  return cs_frag(cs_fmt(g, "(%s)%s", cs_type(g, t), cs_wrap(g, cs_frag(s, prec), P_UNARY)), P_UNARY);
}

static Frag math_call(Cgen *g, const Expr *e, int lane)
{
  DType t = dtype_elem(e->dtype);
  const char *one = t.bits == 64 ? "1.0" : "1.0f";
  const char *ten = t.bits == 64 ? "10.0" : "10.0f";
  const char *x = math_arg(g, e, 0, lane);
  g->uses_math = true;
  if (e->u.intrin == IN_EXP10)
    return math_result(g, t, cs_fmt(g, "%s(%s, %s)", math_name(g, "pow", t), ten, x), P_POST);
  if (e->u.intrin == IN_RSQRT)
    return math_result(g, t, cs_fmt(g, "%s / %s(%s)", one, math_name(g, "sqrt", t), x), P_MUL);
  if (e->u.intrin == IN_SIGMOID)
    return math_result(g, t, cs_fmt(g, "%s / (%s + %s(-(%s)))", one, one, math_name(g, "exp", t), x), P_MUL);
  if (e->u.intrin == IN_ABS) return math_result(g, t, cs_fmt(g, "%s(%s)", math_name(g, "fabs", t), x), P_POST);
  if (e->u.intrin == IN_LDEXP) {
    Frag n = cs_lane(g, e->arg[1], lane);
    const char *small = cs_helper_of(g, "max", DT_I32);
    const char *large = cs_helper_of(g, "min", DT_I32);
    if (dtype_elem(e->arg[1]->dtype).bits == 64) {
      small = cs_helper_of(g, "max", DT_I64);
      large = cs_helper_of(g, "min", DT_I64);
    }
    return math_result(
        g, t, cs_fmt(g, "%s(%s, (int)%s(%s(%s, -8192), 8192))", math_name(g, "ldexp", t), x, large, small, n.s),
        P_POST);
  }
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < e->nargs; i++) text_printf(&list, "%s%s", i ? ", " : "", i ? math_arg(g, e, i, lane) : x);
  return math_result(g, t, cs_fmt(g, "%s(%s)", math_name(g, libm[e->u.intrin], t), text_str(&list)), P_POST);
}

static const char *operand(Cgen *g, const Expr *e, int lane)
{
  return cs_wrap(g, lane < 0 ? cs_expr(g, e) : cs_lane(g, e, lane), P_UNARY);
}

/* Bit operators, on scalars and vectors alike. */
static Frag bit_call(Cgen *g, const Expr *e, int lane)
{
  bool vector = lane < 0 && e->dtype.lanes > 1;
  DType t = vector ? e->dtype : dtype_elem(e->dtype);
  bool is_bool = dtype_is_bool(dtype_elem(t));
  bool shift = e->u.intrin == IN_SHL || e->u.intrin == IN_SHR;
  const Expr *by = !shift ? NULL : e->arg[1]->kind == E_BROADCAST ? e->arg[1]->arg[0] : e->arg[1];
  bool known = shift && by->kind == E_INT && by->u.i >= 0 && by->u.i < t.bits;
  const char *a = operand(g, e->arg[0], lane);
  const char *b = e->nargs > 1 && !known ? operand(g, e->arg[1], lane) : "";
  const char *s;
  switch (e->u.intrin) {
  case IN_BITAND: s = cs_fmt(g, "%s & %s", a, b); break;
  case IN_BITOR: s = cs_fmt(g, "%s | %s", a, b); break;
  case IN_BITXOR: s = cs_fmt(g, "%s ^ %s", a, b); break;
  case IN_BITNOT: s = is_bool ? cs_fmt(g, "!%s", a) : cs_fmt(g, "~%s", a); break;
  default: { /* shifts */
    bool left = e->u.intrin == IN_SHL;
    const char *count = known    ? cs_fmt(g, "%d", (int)by->u.i)
                        : vector ? cs_fmt(g, "(%s & %d)", b, t.bits - 1)
                                 : cs_fmt(g, "((int)%s & %d)", b, t.bits - 1);
    const char *wide = vector ? cs_type(g, unsigned_of(t)) : cs_type(g, DTYPE(DT_UINT, t.bits < 32 ? 32 : t.bits));
    if (left && t.code == DT_INT)
      s = cs_fmt(g, "(%s)%s << %s%s", wide, a, vector && !known ? cs_fmt(g, "(%s)", wide) : "", count);
    else s = cs_fmt(g, "%s %s %s", a, left ? "<<" : ">>", count);
    break;
  }
  }
  bool cast = !vector && (t.bits < 32 || (e->u.intrin == IN_SHL && t.code == DT_INT)) && !is_bool;
  if (vector && e->u.intrin == IN_SHL && t.code == DT_INT) cast = true;
  return cast ? cs_frag(cs_fmt(g, "(%s)(%s)", cs_type(g, t), s), P_UNARY) : cs_frag(s, P_BOR);
}

static Frag helper_call(Cgen *g, const char *name, const Expr *e, int lane)
{
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < e->nargs; i++)
    text_printf(&list, "%s%s", i ? ", " : "", lane < 0 ? cs_text(g, e->arg[i]) : cs_lane(g, e->arg[i], lane).s);
  return cs_frag(cs_fmt(g, "%s(%s)", name, text_str(&list)), P_POST);
}

static Frag reinterpret(Cgen *g, const Expr *e, int lane)
{
  DType to = e->dtype;
  DType from = e->arg[0]->dtype;
  bool vector = lane < 0 && to.lanes > 1;
  if (vector) return cs_frag(cs_fmt(g, "(%s)%s", cs_type(g, to), operand(g, e->arg[0], lane)), P_UNARY);
  if (lane >= 0 && to.lanes != from.lanes) cs_unsupported(g, "reinterpret of %d lanes as %d", from.lanes, to.lanes);
  to = dtype_elem(to);
  from = dtype_elem(from);
  if (dtype_eq(to, from)) return lane < 0 ? cs_expr(g, e->arg[0]) : cs_lane(g, e->arg[0], lane);
  if (dtype_is_int(to) && dtype_is_int(from))
    return cs_frag(cs_fmt(g, "(%s)%s", cs_type(g, to), operand(g, e->arg[0], lane)), P_UNARY);
  const char *name = cs_fmt(g, "bits_%s_%s", cs_suffix(g, to), cs_suffix(g, from));
  if (cs_needs(g, name)) make_reinterpret(g, name, from, to);
  return helper_call(g, name, e, lane);
}

/* ---- external functions ---------------------------------------------------------------------------- */

static const char *extern_type(Cgen *g, const Expr *e)
{
  if (e->kind == E_STR) return "const char *";
  return cs_fmt(g, "%s", e->dtype.code == DT_HANDLE ? "void *" : cs_type(g, dtype_elem(e->dtype)));
}

static Frag extern_call(Cgen *g, const Expr *e, int lane)
{
  if (e->nargs < 1 || e->arg[0]->kind != E_STR)
    raise(g->ctx, ERR_TYPE, NOWHERE, "call_extern: the first argument is the function's name, a string");
  const char *name = e->arg[0]->u.str;
  Text types = text_new(scratch(g->ctx));
  Text args = text_new(scratch(g->ctx));
  for (int i = 1; i < e->nargs; i++) {
    text_printf(&types, "%s%s", i > 1 ? ", " : "", extern_type(g, e->arg[i]));
    text_printf(&args, "%s%s", i > 1 ? ", " : "", lane < 0 ? cs_text(g, e->arg[i]) : cs_lane(g, e->arg[i], lane).s);
  }
  const char *result = cs_type(g, dtype_elem(e->dtype));
  /* a name of our own: compilers hold opinions about the types of theirs */
  const char *proto = cs_fmt(g, "%s%sextern_%s(%s) __asm__(\"%s\");", result, str_ends(result, "*") ? "" : " ", name,
                             e->nargs > 1 ? text_str(&types) : "void", name);
  const char *known = strmap_get(&g->protos, name);
  if (!g->dialect->vectors) return cs_frag(cs_fmt(g, "%s(%s)", name, text_str(&args)), P_POST); /* built in there */
  if (known && strcmp(known, proto))
    raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: '%s' is called as '%s' and as '%s'; the c backend needs one form",
          g->k->name, name, known, proto);
  if (!known) strmap_put(g->arena, &g->protos, name, arena_strdup(g->arena, proto));
  return cs_frag(cs_fmt(g, "extern_%s(%s)", name, text_str(&args)), P_POST);
}

static Frag access_ptr(Cgen *g, const Expr *e)
{
  const Expr *data = e->arg[1];
  const Memory *mem = data->kind == E_VAR ? map_get(&g->memory, data->u.var) : NULL;
  if (!mem) BUG(g->ctx, "tvm_access_ptr of something that is not a buffer");
  DType want = dtype_elem(e->arg[0]->dtype);
  const char *type =
      want.code == DT_VOID || want.code == DT_HANDLE ? cs_storage_type(g, mem->elem) : cs_storage_type(g, want);
  return cs_frag(cs_fmt(g, "(void *)((%s%s *)%s + %s)", mem->read_only ? "const " : "", type, mem->name,
                        cs_wrap(g, cs_expr(g, e->arg[2]), P_ADD)),
                 P_UNARY);
}

static Frag address_of(Cgen *g, const Expr *e)
{
  if (e->arg[0]->kind != E_LOAD) raise(g->ctx, ERR_TYPE, NOWHERE, "address_of: wants an element of a buffer");
  return cs_frag(cs_fmt(g, "(void *)(%s)", cs_address(g, e->arg[0]->u.buffer, e->arg[0]->arg[0])), P_UNARY);
}

/* ---- the table of all of them --------------------------------------------------------------------------- */

static Frag choice(Cgen *g, const Expr *e, int lane)
{
  if (lane >= 0 || e->dtype.lanes == 1) return cs_choice(g, e, lane);
  const Expr *cond = e->arg[0];
  if (cond->kind == E_BROADCAST) cond = cond->arg[0];
  if (cond->dtype.lanes == 1) {
    const Expr *arg[] = {cond, e->arg[1], e->arg[2]};
    return cs_choice(g, expr_call(g->k->m, e->dtype, IN_IF_THEN_ELSE, 3, arg), lane);
  }
  if (cs_may_fail(g, e->arg[1]) || cs_may_fail(g, e->arg[2])) return cs_frag(cs_lanes(g, e), P_POST);
  const char *name = cs_helper_of(g, "select", e->dtype);
  const char *mask = cs_mask(g, cond, cs_storage(g, e->dtype).bits).s;
  return cs_frag(cs_fmt(g, "%s(%s, %s, %s)", name, mask, cs_text(g, e->arg[1]), cs_text(g, e->arg[2])), P_POST);
}

Frag cs_call(Cgen *g, const Expr *e, int lane)
{
  bool vector = lane < 0 && e->dtype.lanes > 1;
  DType t = e->dtype;
  DType elem = dtype_elem(t);
  DType from = e->nargs ? dtype_elem(e->arg[0]->dtype) : DT_NONE;
  switch (e->u.intrin) {
  case IN_SQRT:
  case IN_FLOOR:
  case IN_CEIL:
  case IN_TRUNC:
  case IN_NEARBYINT:
  case IN_COPYSIGN:
  case IN_FMA:
    if (vector && t.bits >= 32) return helper_call(g, cs_helper_of(g, libm[e->u.intrin], t), e, -1);
    return vector ? cs_frag(cs_lanes(g, e), P_POST) : math_call(g, e, lane);
  case IN_ABS:
    if (vector) return helper_call(g, cs_helper_of(g, "abs", t), e, -1);
    return dtype_is_float(elem) ? math_call(g, e, lane) : helper_call(g, cs_helper_of(g, "abs", elem), e, lane);
  case IN_EXP:
  case IN_EXP2:
  case IN_EXP10:
  case IN_LOG:
  case IN_LOG2:
  case IN_LOG10:
  case IN_LOG1P:
  case IN_RSQRT:
  case IN_TANH:
  case IN_SIGMOID:
  case IN_ERF:
  case IN_SIN:
  case IN_COS:
  case IN_TAN:
  case IN_ASIN:
  case IN_ACOS:
  case IN_ATAN:
  case IN_ATAN2:
  case IN_SINH:
  case IN_COSH:
  case IN_ASINH:
  case IN_ACOSH:
  case IN_ATANH:
  case IN_POW:
  case IN_FMOD:
  case IN_HYPOT:
  case IN_NEXTAFTER:
  case IN_LDEXP:
  case IN_ROUND: return vector ? cs_frag(cs_lanes(g, e), P_POST) : math_call(g, e, lane);
  case IN_ISNAN:
  case IN_ISFINITE:
  case IN_ISINF:
    if (!dtype_is_float(from)) return cs_frag(e->u.intrin == IN_ISFINITE ? "true" : "false", P_POST);
    return helper_call(g, cs_helper_of(g, intrin_info(e->u.intrin)->name, from), e, lane);
  case IN_BITAND:
  case IN_BITOR:
  case IN_BITXOR:
  case IN_BITNOT:
  case IN_SHL:
  case IN_SHR: return bit_call(g, e, lane);
  case IN_SHR_ROUND: {
    const char *quad = vector ? cs_quad_round_shift(g, e) : NULL;
    if (!quad) BUG(g->ctx, "c: a rounding shift that lowering did not spell out");
    return cs_frag(quad, P_POST);
  }
  case IN_POPCOUNT:
  case IN_CLZ:
    return vector ? cs_frag(cs_lanes(g, e), P_POST)
                  : helper_call(g, cs_helper_of(g, e->u.intrin == IN_CLZ ? "clz" : "popcount", from), e, lane);
  case IN_QMULSHIFT:
    if (vector && g->dialect->quads) return cs_frag(cs_quad_multiply(g, e), P_POST);
    return vector ? cs_frag(cs_lanes(g, e), P_POST) : helper_call(g, cs_helper_of(g, "multiply_shift", elem), e, lane);
  case IN_REINTERPRET: return reinterpret(g, e, lane);
  case IN_IF_THEN_ELSE: return choice(g, e, lane);
  case IN_LIKELY: return lane < 0 ? cs_expr(g, e->arg[0]) : cs_lane(g, e->arg[0], lane);
  case IN_ADDRESS_OF: return address_of(g, e);
  case IN_ACCESS_PTR: return access_ptr(g, e);
  case IN_CALL_EXTERN:
  case IN_CALL_PURE_EXTERN: return vector ? cs_frag(cs_lanes(g, e), P_POST) : extern_call(g, e, lane);
  case IN_VECTOR_SUM:
    if (cs_is_bytes_dot(g, e)) return cs_frag(cs_bytes_dot(g, e, "0"), P_POST);
    if (g->dialect->vectors) return helper_call(g, cs_helper_of(g, "sum", e->arg[0]->dtype), e, -1);
    else {
      Text sum = text_new(scratch(g->ctx));
      for (int i = 0; i < e->arg[0]->dtype.lanes; i++)
        text_printf(&sum, "%s%s", i ? " + " : "", cs_wrap(g, cs_lane(g, e->arg[0], i), P_MUL));
      return cs_frag(text_str(&sum), P_ADD);
    }
  case IN_ASSUME: return cs_frag("1", P_POST);
  case IN_PARALLEL_SLOT: return cs_frag(g->in_part ? "slot" : "0", P_POST);
  case IN_TYPE_MARKER:
  case IN_PREFETCH:
  case IN_CALL_PACKED:
  case IN_BUFFER_ARG:
  case IN_MAKE_SHAPE:
  case IN_SYNC:
  case IN_RET:
#define INTRIN(id, ...) case id:
#include "expr/builtins.def"
#undef INTRIN
  case IN_DOT:
  case IN_BF16_DOT: /* lowering spelled it out */
  case IN_COUNT: break;
  case IN_WORD_DOT: return cs_frag(vector ? cs_lanes(g, e) : cs_word_dot(g, e, "0", lane), P_POST);
  }
  cs_unsupported(g, "%s inside an expression", intrin_info(e->u.intrin)->name);
}

/* ---- calls for their effect ------------------------------------------------------------------------------ */

/* {1, 2, 3} as an array on the stack; 0 for anything but a list (TVM writes 0). */
static const char *sizes_array(Cgen *g, const Expr *e, const char *hint)
{
  if (e->kind != E_CALL || e->u.intrin != IN_MAKE_SHAPE || e->nargs == 0) return "0";
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < e->nargs; i++) text_printf(&list, "%s%s", i ? ", " : "", cs_text(g, e->arg[i]));
  const char *name = cs_fresh(g, hint);
  cs_line(g, "int64_t %s[] = {%s};", name, text_str(&list));
  return name;
}

static const char *tensor_arg(Cgen *g, const Expr *e)
{
  const char *shape = sizes_array(g, e->arg[1], "shape");
  const char *strides = sizes_array(g, e->arg[2], "strides");
  DType elem = e->arg[4]->dtype;
  LatheRtDType rt = code_rt_dtype(elem);
  const char *data = cs_wrap(g, cs_expr(g, e->arg[0]), P_UNARY);
  const char *name = cs_fresh(g, "tensor");
  cs_line(g, "LatheRtTensor %s = {%s, {1, 0}, (int32_t)%s, {%d, %d, %d}, %s, %s, (uint64_t)%s * %d};", name, data,
          cs_wrap(g, cs_expr(g, e->arg[3]), P_UNARY), rt.code, rt.bits, rt.lanes, shape, strides,
          cs_wrap(g, cs_expr(g, e->arg[5]), P_UNARY), dtype_bytes(elem) * elem.lanes);
  return cs_fmt(g, "{LATHE_RT_ARG_TENSOR, {.t = &%s}}", name);
}

static const char *packed_arg(Cgen *g, const Expr *e)
{
  if (e->kind == E_CALL && e->u.intrin == IN_BUFFER_ARG) return tensor_arg(g, e);
  if (e->dtype.lanes != 1) cs_unsupported(g, "a vector as an argument of a packed call");
  if (e->kind == E_STR) return cs_fmt(g, "{LATHE_RT_ARG_STR, {.s = %s}}", cs_text(g, e));
  if (e->dtype.code == DT_HANDLE) return cs_fmt(g, "{LATHE_RT_ARG_HANDLE, {.p = %s}}", cs_text(g, e));
  if (dtype_is_float(e->dtype)) return cs_fmt(g, "{LATHE_RT_ARG_FLOAT, {.f = %s}}", cs_text(g, e));
  return cs_fmt(g, "{LATHE_RT_ARG_INT, {.i = %s}}", cs_text(g, e));
}

static void packed_call(Cgen *g, const Expr *e)
{
  if (!g->dialect->runtime) cs_unsupported(g, "a packed call");
  if (e->nargs < 1 || e->arg[0]->kind != E_STR)
    raise(g->ctx, ERR_TYPE, NOWHERE, "tvm_call_packed: the first argument is the function's name, a string");
  g->uses_packed = true;
  cs_line(g, "{");
  g->indent++;
  Text list = text_new(scratch(g->ctx));
  for (int i = 1; i < e->nargs; i++) text_printf(&list, "%s%s", i > 1 ? ", " : "", packed_arg(g, e->arg[i]));
  const char *args = e->nargs > 1 ? cs_fresh(g, "args") : "0";
  const char *status = cs_fresh(g, "status");
  if (e->nargs > 1) cs_line(g, "const LatheRtPackedArg %s[] = {%s};", args, text_str(&list));
  cs_line(g, "const int32_t %s = rt->call_packed(rt, %s, %d, %s);", status, cs_text(g, e->arg[0]), e->nargs - 1, args);
  cs_line(g, "if (%s != 0) return %s;", status, status);
  g->indent--;
  cs_line(g, "}");
}

static void prefetch(Cgen *g, const Expr *e)
{
  if (!g->dialect->prefetch) return;
  const Expr *address = e->arg[0];
  const char *p = address->kind == E_LOAD ? cs_address(g, address->u.buffer, address->arg[0]) : cs_text(g, address);
  int64_t write = e->nargs > 1 && e->arg[1]->kind == E_INT ? e->arg[1]->u.i : 0;
  int64_t locality = e->nargs > 2 && e->arg[2]->kind == E_INT ? e->arg[2]->u.i : 3;
  cs_line(g, "%s(%s, %d, %d);", g->dialect->prefetch, p, write != 0,
          (int)(locality < 0   ? 0
                : locality > 3 ? 3
                               : locality));
}

void cs_eval(Cgen *g, const Expr *e)
{
  if (e->kind == E_LET) {
    cs_bind(g, e->u.var, e->arg[0]);
    cs_eval(g, e->arg[1]);
    return;
  }
  if (e->kind != E_CALL) return; /* no effect */
  switch ((int)e->u.intrin) {
  case IN_CALL_PACKED: packed_call(g, e); return;
  case IN_PREFETCH: prefetch(g, e); return;
  case IN_ASSUME: return;
  case IN_RET:
    if (!g->dialect->runtime) cs_unsupported(g, "a return from inside a device kernel");
    cs_line(g, "return %s;", cs_text(g, e->arg[0]));
    return;
  case IN_SYNC:
    if (!g->dialect->barrier) cs_unsupported(g, "a barrier among threads");
    cs_line(g, "%s", g->dialect->barrier);
    return;
  case IN_CALL_EXTERN: cs_line(g, "%s;", cs_text(g, e)); return;
  default:
    if (!expr_is_pure(e)) cs_unsupported(g, "%s as a statement", intrin_info(e->u.intrin)->name);
  }
}
