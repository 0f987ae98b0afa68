/* dtypes.c: arithmetic in the dtypes the machine has.
 *
 * lower_pass_legalize_dtypes
 *   dtype                          stored as            computed in
 *   float16, the CPU computes it   float16              float16
 *   float16, the CPU converts it   float16              float32, rounded after each step
 *   float16, neither               uint16 (the bits)    float32, rounded after each step
 *   bfloat16                       uint16 (the bits)    float32, rounded after each step (an instruction does it
 *                                                       where there is one)
 *   float8 kinds, float4           uint8 (the bits)     float32, rounded after each step
 *   int/uint of odd widths         the next of 8…64     that width, wrapped after each step
 *   Conversions are spelled out in integer arithmetic.  float32 has more than twice
 *   the digits of each small float, so rounding the float32 result of + - * / sqrt
 *   again gives the correctly rounded one.  What is wider than float32 is first
 *   rounded to odd there, which makes the second rounding harmless.
 *
 * needs   flat buffers, no vector loops
 * keeps   everything else
 * breaks  variables and buffers of those dtypes are replaced (same names, same pointers) */
#include "lower/internal.h"

/* How a small float is encoded. */
typedef struct SmallFloat {
  int bits, mant, bias;
  uint32_t max;  /* code of the largest finite value */
  uint32_t over; /* what larger values become: infinity, NaN or, where there is neither, the largest */
  uint32_t nan;
  bool unsigned_zero; /* fnuz: the sign bit of zero means NaN */
} SmallFloat;

static const SmallFloat float16_kind = {16, 10, 15, 0x7bff, 0x7c00, 0x7e00, false};
static const SmallFloat bfloat16_kind = {16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false};
static const SmallFloat e4m3fn_kind = {8, 3, 7, 0x7e, 0x7f, 0x7f, false};
static const SmallFloat e5m2_kind = {8, 2, 15, 0x7b, 0x7c, 0x7e, false};
static const SmallFloat e4m3fnuz_kind = {8, 3, 8, 0x7f, 0x80, 0x80, true};
static const SmallFloat e5m2fnuz_kind = {8, 2, 16, 0x7f, 0x80, 0x80, true};
/* a power of two, no sign: encode_power and decode_power */
static const SmallFloat e8m0fnu_kind = {8, 0, 127, 0xfe, 0xff, 0xff, false};
static const SmallFloat e2m1fn_kind = {4, 1, 1, 0x7, 0x7, 0, false};

/* NULL: not a small float. */
static const SmallFloat *small_float(DType t)
{
  switch ((DCode)t.code) {
  case DT_FLOAT: return t.bits == 16 ? &float16_kind : NULL;
  case DT_BFLOAT: return &bfloat16_kind;
  case DT_E4M3FN: return &e4m3fn_kind;
  case DT_E5M2: return &e5m2_kind;
  case DT_E4M3FNUZ: return &e4m3fnuz_kind;
  case DT_E5M2FNUZ: return &e5m2fnuz_kind;
  case DT_E8M0FNU: return &e8m0fnu_kind;
  case DT_E2M1FN: return &e2m1fn_kind;
  case DT_INT:
  case DT_UINT:
  case DT_HANDLE:
  case DT_TEXT:
  case DT_VOID: break;
  }
  return NULL;
}

typedef struct Legal {
  Lower *lo;
  Module *m;
  Arena *tmp;
  bool half_arith, half_convert, brain_convert;
  Map memo;           /* Expr* -> legal Expr* */
  Map codes[DT_VOID]; /* by code of the small float: legal float32 Expr* that was rounded to it -> its bits */
  Map vars;           /* Var* -> legal Expr* */
  Map buffers;        /* Buffer* -> Buffer* */
} Legal;

static bool is_half(DType t) { return t.code == DT_FLOAT && t.bits == 16; }

static bool odd_int(DType t)
{
  return dtype_is_int(t) && !(t.code == DT_UINT && t.bits == 1) && t.bits != 8 && t.bits != 16 && t.bits != 32 &&
         t.bits != 64;
}

static bool is_emulated(const Legal *l, DType t)
{
  return odd_int(t) || (small_float(t) && !(is_half(t) && l->half_arith));
}

static int next_width(int bits) { return bits <= 8 ? 8 : bits <= 16 ? 16 : bits <= 32 ? 32 : 64; }

/* What values of dtype t are computed in. */
static DType carrier(const Legal *l, DType t)
{
  if (odd_int(t)) t.bits = (uint8_t)next_width(t.bits);
  else if (is_emulated(l, t)) return dtype_lanes(DT_F32, t.lanes);
  return t;
}

/* What memory of dtype t holds. */
static DType storage(const Legal *l, DType t)
{
  const SmallFloat *k = small_float(t);
  if (!k) return carrier(l, t);
  if (is_half(t) && (l->half_arith || l->half_convert)) return t;
  return (DType){DT_UINT, (uint8_t)(8 * dtype_bytes(t)), t.lanes};
}

/* ---- integer arithmetic spelled shorter -------------------------------------------------- */

static const Expr *call1(Legal *l, DType t, Intrin f, const Expr *a) { return expr_call(l->m, t, f, 1, &a); }

static const Expr *call2(Legal *l, Intrin f, const Expr *a, const Expr *b)
{
  return expr_call(l->m, DT_NONE, f, 2, (const Expr *[]){a, b});
}

static const Expr *u32(Legal *l, const Expr *like, uint32_t x)
{
  return expr_int(l->m, (DType){DT_UINT, 32, like->dtype.lanes}, x);
}
static const Expr *shl(Legal *l, const Expr *a, int n) { return call2(l, IN_SHL, a, expr_int(l->m, a->dtype, n)); }
static const Expr *shr(Legal *l, const Expr *a, int n) { return call2(l, IN_SHR, a, expr_int(l->m, a->dtype, n)); }
static const Expr *bit_and(Legal *l, const Expr *a, int64_t mask)
{
  return call2(l, IN_BITAND, a, expr_int(l->m, a->dtype, mask));
}
static const Expr *bit_or(Legal *l, const Expr *a, const Expr *b) { return call2(l, IN_BITOR, a, b); }
static const Expr *bits_of(Legal *l, const Expr *f32)
{
  return call1(l, (DType){DT_UINT, 32, f32->dtype.lanes}, IN_REINTERPRET, f32);
}
static const Expr *float_of(Legal *l, const Expr *u)
{
  return call1(l, dtype_lanes(DT_F32, u->dtype.lanes), IN_REINTERPRET, u);
}

static const Expr *choose(Legal *l, const Expr *c, const Expr *a, const Expr *b) { return expr_select(l->m, c, a, b); }

/* ---- encoding and decoding ------------------------------------------------------------------ */

/* float8_e8m0fnu is the exponent of a float32 alone; the nearest power of two, halves up.  Its lowest, 2^-127, is
 * subnormal in float32, and so are the numbers below it, which become it too. */
static const Expr *encode_power(Legal *l, const Expr *x)
{
  enum { HALF = 0x400000, ONE_AND_HALF_LOWEST = 0x600000, NORMAL = 0x800000, INF = 0x7f800000, POWER_NAN = 0xff };
  static const uint32_t MINUS_ZERO = 0x80000000;
  Module *m = l->m;
  const Expr *u = bits_of(l, x);
  u = choose(l, expr_binary(m, E_EQ, u, u32(l, x, MINUS_ZERO)), u32(l, x, 0), u);
  const Expr *code = shr(l, expr_add(m, u, u32(l, x, HALF)), 23);
  const Expr *second = expr_binary(m, E_GE, u, u32(l, x, ONE_AND_HALF_LOWEST));
  const Expr *low = choose(l, second, u32(l, x, 1), u32(l, x, 0));
  code = choose(l, expr_lt(m, u, u32(l, x, NORMAL)), low, code);
  const Expr *none = expr_binary(m, E_GE, u, u32(l, x, INF)); /* negative too: the sign is the top bit */
  return choose(l, none, u32(l, x, POWER_NAN), code);
}

static const Expr *decode_power(Legal *l, const Expr *code)
{
  enum { LOWEST = 0x400000, NAN_BITS = 0x7fc00000, POWER_NAN = 0xff };
  Module *m = l->m;
  const Expr *u = choose(l, expr_binary(m, E_EQ, code, u32(l, code, 0)), u32(l, code, LOWEST), shl(l, code, 23));
  u = choose(l, expr_binary(m, E_EQ, code, u32(l, code, POWER_NAN)), u32(l, code, NAN_BITS), u);
  return float_of(l, u);
}

/* The bits (as uint32) of float32 x rounded to kind k. */
static const Expr *encode(Legal *l, const SmallFloat *k, const Expr *x)
{
  if (k == &e8m0fnu_kind) return encode_power(l, x);
  Module *m = l->m;
  int shift = 23 - k->mant;
  const Expr *u = bits_of(l, x);
  const Expr *a = bit_and(l, u, 0x7fffffff);
  const Expr *sign = shl(l, shr(l, u, 31), k->bits - 1);
  /* normal: add just under half of the last place, and the last bit itself: ties to even */
  const Expr *odd = bit_and(l, shr(l, a, shift), 1);
  const Expr *r = expr_add(m, expr_add(m, a, u32(l, x, (1u << (shift - 1)) - 1)), odd);
  const Expr *code = shr(l, r, shift);
  if (k->bias != 127) {
    code = expr_sub(m, code, u32(l, x, (uint32_t)(127 - k->bias) << k->mant));
    /* subnormal: adding 2^23 units of the last place leaves the rounded count in the low bits */
    uint32_t magic = (uint32_t)(127 + 1 - k->bias - k->mant + 23) << 23;
    const Expr *sum = expr_add(m, float_of(l, a), float_of(l, u32(l, x, magic)));
    const Expr *low = expr_sub(m, bits_of(l, sum), u32(l, x, magic));
    code = choose(l, expr_lt(m, a, u32(l, x, (uint32_t)(127 - k->bias + 1) << 23)), low, code);
  }
  code = choose(l, expr_binary(m, E_GT, code, u32(l, x, k->max)), u32(l, x, k->over), code);
  const Expr *is_nan = expr_binary(m, E_GT, a, u32(l, x, 0x7f800000));
  code = choose(l, is_nan, u32(l, x, k->nan), code);
  if (k->over == k->max) sign = choose(l, is_nan, u32(l, x, 0), sign);
  if (k->unsigned_zero) sign = choose(l, expr_binary(m, E_EQ, code, u32(l, x, 0)), u32(l, x, 0), sign);
  return bit_or(l, code, sign);
}

/* The float32 whose encoding in kind k is code (uint32). */
static const Expr *decode(Legal *l, const SmallFloat *k, const Expr *code)
{
  if (k == &e8m0fnu_kind) return decode_power(l, code);
  Module *m = l->m;
  int shift = 23 - k->mant;
  if (k->bias == 127) return float_of(l, shl(l, code, 16));
  const Expr *mag = bit_and(l, code, (1 << (k->bits - 1)) - 1);
  const Expr *sign = shl(l, shr(l, code, k->bits - 1), 31);
  /* in float32 the exponent is too small by a fixed amount: one exact multiplication */
  const Expr *scale = float_of(l, u32(l, code, (uint32_t)(127 + 127 - k->bias) << 23));
  const Expr *u = bits_of(l, expr_mul(m, float_of(l, shl(l, mag, shift)), scale));
  const Expr *nan = u32(l, code, 0x7fc00000);
  if (k->unsigned_zero) {
    u = choose(l, expr_binary(m, E_EQ, code, u32(l, code, 0x80)), nan, u);
  } else if (k->over == k->nan) {
    u = choose(l, expr_binary(m, E_GT, mag, u32(l, code, k->max)), nan, u);
  } else {
    const Expr *special = bit_or(l, shl(l, mag, shift), u32(l, code, 0x7f800000));
    u = choose(l, expr_binary(m, E_GT, mag, u32(l, code, k->max)), special, u);
  }
  return float_of(l, bit_or(l, u, sign));
}

/* What is stored for float32 value x of dtype t. */
static const Expr *to_storage(Legal *l, DType t, const Expr *x)
{
  const Expr *known = map_get(&l->codes[t.code], x);
  if (known) return known;
  DType s = storage(l, dtype_lanes(t, x->dtype.lanes));
  if (is_half(s)) return expr_cast(l->m, s, x);
  if (t.code == DT_BFLOAT && l->brain_convert) /* of a NaN it keeps the upper bits, which is one too */
    return call1(l, s, IN_REINTERPRET, expr_cast(l->m, dtype_lanes(DT_BF16, x->dtype.lanes), x));
  return expr_cast(l->m, s, encode(l, small_float(t), x));
}

static const Expr *from_storage(Legal *l, DType t, const Expr *stored)
{
  int lanes = stored->dtype.lanes;
  const Expr *r = is_half(stored->dtype)
                      ? expr_cast(l->m, dtype_lanes(DT_F32, lanes), stored)
                      : decode(l, small_float(t), expr_cast(l->m, (DType){DT_UINT, 32, (uint16_t)lanes}, stored));
  map_put(l->tmp, &l->codes[t.code], r, (void *)(uintptr_t)stored);
  return r;
}

/* ---- after each operation ---------------------------------------------------------------------- */

static const Expr *wrap_int(Legal *l, DType t, const Expr *x)
{
  int spare = x->dtype.bits - t.bits;
  if (t.code == DT_UINT) return bit_and(l, x, (int64_t)((1ull << t.bits) - 1));
  return shr(l, shl(l, x, spare), spare);
}

/* x, computed in the carrier, brought to a value of dtype t. */
static const Expr *settle(Legal *l, DType t, const Expr *x)
{
  if (!is_emulated(l, t)) return x;
  if (odd_int(t)) return wrap_int(l, t, x);
  if (x->kind == E_FLOAT) return expr_float(l->m, x->dtype, float_round(dtype_elem(t), x->u.f));
  return from_storage(l, t, to_storage(l, t, x));
}

/* float64 x as float32, rounded to odd: the last bit is set when anything was lost. */
static const Expr *to_odd_float(Legal *l, const Expr *x)
{
  Module *m = l->m;
  const Expr *f = expr_cast(m, dtype_lanes(DT_F32, x->dtype.lanes), x);
  const Expr *back = expr_cast(m, x->dtype, f);
  const Expr *u = bits_of(l, f);
  const Expr *one = u32(l, f, 1);
  const Expr *above = expr_binary(m, E_GT, call1(l, DT_NONE, IN_ABS, back), call1(l, DT_NONE, IN_ABS, x));
  const Expr *odd = bit_or(l, choose(l, above, expr_sub(m, u, one), u), one);
  const Expr *lost = expr_and(m, expr_binary(m, E_NE, back, x), expr_binary(m, E_EQ, x, x));
  return float_of(l, choose(l, lost, odd, u));
}

/* a*b + c of small floats (held in float32) in float64, rounded to odd: the product is
 * exact, and what the sum loses sets its last bit. */
static const Expr *fma_to_odd(Legal *l, const Expr *const *arg)
{
  Module *m = l->m;
  DType wide = dtype_lanes(DT_F64, arg[0]->dtype.lanes);
  DType bits = dtype_lanes(DT_I64, wide.lanes);
  const Expr *c = expr_cast(m, wide, arg[2]);
  const Expr *p = expr_mul(m, expr_cast(m, wide, arg[0]), expr_cast(m, wide, arg[1]));
  const Expr *sum = expr_add(m, p, c);
  const Expr *back = expr_sub(m, sum, p);
  const Expr *zero = expr_float(m, wide, 0);
  const Expr *lost = expr_add(m, expr_sub(m, p, expr_sub(m, sum, back)), expr_sub(m, c, back));
  const Expr *more = expr_binary(m, E_GT, lost, zero);
  const Expr *less = expr_lt(m, lost, zero); /* neither for NaN */
  const Expr *u = call1(l, bits, IN_REINTERPRET, sum);
  const Expr *one = expr_int(m, bits, 1);
  const Expr *away = expr_binary(m, E_EQ, more, expr_binary(m, E_GT, sum, zero));
  const Expr *odd = choose(l, expr_binary(m, E_EQ, bit_and(l, u, 1), one), u,
                           choose(l, away, expr_add(m, u, one), expr_sub(m, u, one)));
  return call1(l, wide, IN_REINTERPRET, choose(l, expr_binary(m, E_OR, more, less), odd, u));
}

static const Expr *legal(Legal *l, const Expr *e);
static const Buffer *legal_buffer(Legal *l, const Buffer *b);

static const Expr *legal_cast(Legal *l, const Expr *e)
{
  Module *m = l->m;
  DType from = e->arg[0]->dtype;
  DType to = e->dtype;
  DType c = carrier(l, to);
  const Expr *a = legal(l, e->arg[0]);
  if (dtype_is_bool(dtype_elem(to))) return expr_binary(m, E_NE, a, expr_const(m, a->dtype, 0));
  if (odd_int(to) && dtype_is_float(from)) {
    DType wide = {DT_INT, (uint8_t)(to.bits < 32 ? 32 : 64), to.lanes};
    const Expr *i = expr_cast(m, wide, a); /* saturates, NaN gives 0 */
    i = expr_max(m, i, expr_int(m, wide, dtype_imin(dtype_elem(to))));
    return expr_cast(m, c, expr_min(m, i, expr_int(m, wide, dtype_imax(dtype_elem(to)))));
  }
  if (small_float(to) && is_emulated(l, to)) {
    bool wide_int = dtype_is_int(from) && from.bits > 24;
    if (wide_int) a = expr_cast(m, dtype_lanes(DT_F64, to.lanes), a);
    a = a->dtype.bits == 64 && dtype_is_float(a->dtype) ? to_odd_float(l, a) : expr_cast(m, c, a);
    return settle(l, to, a);
  }
  const Expr *r = expr_cast(m, c, a);
  return odd_int(to) ? wrap_int(l, to, r) : r;
}

/* Shifts, counts and the like see the true width. */
static const Expr *legal_int_call(Legal *l, const Expr *e, const Expr **arg)
{
  Module *m = l->m;
  DType t = e->arg[0]->dtype;
  DType c = carrier(l, t);
  int spare = c.bits - t.bits;
  int64_t mask = (int64_t)((1ull << t.bits) - 1);
  switch (e->u.intrin) {
  case IN_SHL:
  case IN_SHR_ROUND:
  case IN_SHR: arg[1] = expr_floormod(m, bit_and(l, arg[1], mask), expr_int(m, arg[1]->dtype, t.bits)); break;
  case IN_POPCOUNT: arg[0] = bit_and(l, arg[0], mask); break;
  case IN_CLZ:
    arg[0] = bit_and(l, arg[0], mask);
    return expr_sub(m, expr_call(m, e->dtype, IN_CLZ, 1, arg), expr_int(m, e->dtype, spare));
  case IN_QMULSHIFT:
    raise(l->lo->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: q_multiply_shift of %s; cast to int32 first", l->lo->f->name,
          dtype_name(scratch(l->lo->ctx), t));
  default: break; /* bitwise and arithmetic: done in the carrier, then wrapped */
  }
  return settle(l, e->dtype, expr_call(m, carrier(l, e->dtype), e->u.intrin, e->nargs, arg));
}

static const Expr *legal_reinterpret(Legal *l, const Expr *e, const Expr *a)
{
  DType from = e->arg[0]->dtype;
  DType to = e->dtype;
  if (from.lanes != to.lanes)
    raise(l->lo->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: reinterpret between %s and %s changes the number of lanes",
          l->lo->f->name, dtype_name(scratch(l->lo->ctx), from), dtype_name(scratch(l->lo->ctx), to));
  if (small_float(from) && is_emulated(l, from)) a = to_storage(l, from, a);
  DType s = storage(l, to);
  if (odd_int(to) || odd_int(from)) a = expr_cast(l->m, s, a);
  else if (!dtype_eq(a->dtype, s)) a = call1(l, s, IN_REINTERPRET, a);
  if (odd_int(to)) return wrap_int(l, to, a);
  return small_float(to) && is_emulated(l, to) ? from_storage(l, to, a) : a;
}

static const Expr *legal_call(Legal *l, const Expr *e)
{
  Module *m = l->m;
  const Expr **arg = arena_array(l->tmp, const Expr *, e->nargs);
  DType t = e->dtype;
  Intrin f = e->u.intrin;
  if (f == IN_ADDRESS_OF) {
    const Expr *at = legal(l, e->arg[0]->arg[0]);
    const Expr *place = expr_load(m, legal_buffer(l, e->arg[0]->u.buffer), 1, &at);
    return expr_call(m, t, f, 1, &place);
  }
  for (int i = 0; i < e->nargs; i++) arg[i] = legal(l, e->arg[i]);
  if (f == IN_REINTERPRET) return legal_reinterpret(l, e, arg[0]);
  bool small = e->nargs && small_float(e->arg[0]->dtype);
  if (small && (f == IN_NEXTAFTER || f == IN_VECTOR_SUM))
    raise(l->lo->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: %s of %s; cast to float32 first", l->lo->f->name,
          intrin_info(f)->name, dtype_name(scratch(l->lo->ctx), e->arg[0]->dtype));
  bool simple = f == IN_SQRT || f == IN_ABS || f == IN_FLOOR || f == IN_CEIL || f == IN_TRUNC || f == IN_NEARBYINT ||
                f == IN_COPYSIGN || f == IN_FMA || f >= IN_ISNAN;
  if (small && l->half_arith && is_half(t) && !simple) { /* elementary functions go through float32 */
    for (int i = 0; i < e->nargs; i++)
      if (is_half(arg[i]->dtype)) arg[i] = expr_cast(m, dtype_lanes(DT_F32, t.lanes), arg[i]);
    return expr_cast(m, t, expr_call(m, dtype_lanes(DT_F32, t.lanes), f, e->nargs, arg));
  }
  if (e->nargs && odd_int(e->arg[0]->dtype) && f <= IN_QMULSHIFT) return legal_int_call(l, e, arg);
  if (f == IN_FMA && small && is_emulated(l, t)) return settle(l, t, to_odd_float(l, fma_to_odd(l, arg)));
  const Expr *r = expr_call(m, carrier(l, t), f, e->nargs, arg);
  return f == IN_IF_THEN_ELSE || f == IN_LIKELY ? r : settle(l, t, r);
}

static const Buffer *legal_buffer(Legal *l, const Buffer *b)
{
  const Buffer *to = map_get(&l->buffers, b);
  if (to) return to;
  DType s = storage(l, b->dtype);
  to = dtype_eq(s, b->dtype) ? b
                             : buffer_new(l->m, b->name, s, b->ndim, b->shape, b->strides, b->elem_offset, b->scope,
                                          b->align, b->offset_factor, b->data);
  map_put(l->tmp, &l->buffers, b, (void *)(uintptr_t)to);
  return to;
}

static const Var *legal_var(Legal *l, const Var *v)
{
  if (!is_emulated(l, v->dtype)) return v;
  const Var *to = var_new(l->m, v->name, carrier(l, v->dtype), VAR_PLAIN);
  map_put(l->tmp, &l->vars, v, (void *)(uintptr_t)to->expr);
  return to;
}

static const Expr *legal_node(Legal *l, const Expr *e)
{
  Module *m = l->m;
  switch ((ExprKind)e->kind) {
  case E_INT: return expr_int(m, carrier(l, e->dtype), e->u.i);
  case E_FLOAT: return expr_float(m, carrier(l, e->dtype), e->u.f);
  case E_STR: return e;
  case E_VAR: {
    const Expr *to = map_get(&l->vars, e->u.var);
    return to ? to : e;
  }
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX: {
    const Expr *r = expr_binary(m, (ExprKind)e->kind, legal(l, e->arg[0]), legal(l, e->arg[1]));
    return e->kind == E_MIN || e->kind == E_MAX ? r : settle(l, e->dtype, r);
  }
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR: return expr_binary(m, (ExprKind)e->kind, legal(l, e->arg[0]), legal(l, e->arg[1]));
  case E_NOT: return expr_not(m, legal(l, e->arg[0]));
  case E_CAST: return legal_cast(l, e);
  case E_SELECT: return expr_select(m, legal(l, e->arg[0]), legal(l, e->arg[1]), legal(l, e->arg[2]));
  case E_LET: {
    const Expr *value = legal(l, e->arg[0]);
    const Var *var = legal_var(l, e->u.var);
    return expr_let(m, var, value, legal(l, e->arg[1]));
  }
  case E_LOAD: {
    const Expr *at = legal(l, e->arg[0]);
    const Expr *r = expr_load(m, legal_buffer(l, e->u.buffer), 1, &at);
    return small_float(e->dtype) && is_emulated(l, e->dtype) ? from_storage(l, e->dtype, r) : r;
  }
  case E_CALL: return legal_call(l, e);
  case E_RAMP: return expr_ramp(m, legal(l, e->arg[0]), legal(l, e->arg[1]), e->dtype.lanes);
  case E_BROADCAST: return expr_broadcast(m, legal(l, e->arg[0]), e->dtype.lanes);
  case E_REDUCE:
  case E_NKINDS: break;
  }
  BUG(l->lo->ctx, "legalize: kind %d", e->kind);
}

static const Expr *legal(Legal *l, const Expr *e)
{
  const Expr *done = map_get(&l->memo, e);
  if (done) return done;
  done = legal_node(l, e);
  map_put(l->tmp, &l->memo, e, (void *)(uintptr_t)done);
  return done;
}

/* ---- statements ------------------------------------------------------------------------------------ */

static const Expr *legal_held(void *env, const Expr *e) { return legal(env, e); }

static bool legal_stmt(void *env, Stmt *s)
{
  Legal *l = env;
  if (s->kind == S_STORE) {
    DType t = s->u.store.buffer->dtype;
    s->u.store.index[0] = legal(l, s->u.store.index[0]);
    if (s->u.store.mask) s->u.store.mask = legal(l, s->u.store.mask);
    const Expr *v = legal(l, s->u.store.value);
    s->u.store.value = small_float(t) && is_emulated(l, t) ? to_storage(l, t, v) : v;
    s->u.store.buffer = legal_buffer(l, s->u.store.buffer);
    return true;
  }
  if (s->kind == S_ALLOC) s->u.alloc.buffer = legal_buffer(l, s->u.alloc.buffer);
  lower_map_exprs(s, legal_held, l);
  if (s->kind == S_LET) s->u.let.var = legal_var(l, s->u.let.var);
  return true;
}

/* Is there anything to do? */
static void note_emulated(void *env, const Expr *e)
{
  Legal *l = ((void **)env)[0];
  bool half = is_half(e->dtype) && e->kind == E_CALL;
  if (is_emulated(l, e->dtype) || half) *(bool *)((void **)env)[1] = true;
}

static void note_held(void *env, Stmt *holder, const Expr *e)
{
  Legal *l = ((void **)env)[0];
  bool *found = ((void **)env)[1];
  if (holder->kind == S_STORE && is_emulated(l, holder->u.store.buffer->dtype)) *found = true;
  if (!*found) expr_visit(l->lo->ctx, e, note_emulated, env);
}

void lower_pass_legalize_dtypes(Lower *lo)
{
  Legal l = {.lo = lo, .m = lo->m, .tmp = scratch(lo->ctx)};
  l.half_arith = lower_for_gpu(lo) || target_has(lo->target, CPU_FP16);
  l.brain_convert =
      lo->target->codegen == CODEGEN_LLVM && lo->target->arch == ARCH_AARCH64 && target_has(lo->target, CPU_BF16);
  l.half_convert = l.half_arith || target_has(lo->target, CPU_F16C) || lo->target->arch == ARCH_AARCH64;
  bool found = false;
  void *env[2] = {&l, &found};
  stmt_visit_exprs(lo->f->body, note_held, env);
  for (int i = 0; i < lo->f->nparam; i++)
    found |= !lo->f->param[i].buffer && is_emulated(&l, lo->f->param[i].var->dtype);
  if (!found) return;
  for (int i = 0; i < lo->f->nparam; i++) { /* scalars arrive in the carrier and are brought to their dtype at use */
    Param *p = &lo->f->param[i];
    DType t = p->var->dtype;
    if (p->buffer || !is_emulated(&l, t)) continue;
    const Var *v = legal_var(&l, p->var);
    map_put(l.tmp, &l.vars, p->var, (void *)(uintptr_t)settle(&l, t, v->expr));
    p->var = v;
  }
  stmt_visit(lo->f->body, legal_stmt, &l);
}
