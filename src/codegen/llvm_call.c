/* llvm_call.c: intrinsic functions to LLVM.
 *
 * What the hardware has is an LLVM intrinsic, on vectors too.  The other elementary
 * functions that lowering left (float64, rare ones) are calls of the C library, lane
 * by lane; float16 goes through float32. */
#include "codegen/llvm_gen.h"

LLVMValueRef gen_intrinsic(Gen *g, const char *name, int ntypes, LLVMTypeRef *types, int n, LLVMValueRef *arg)
{
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  if (!id) BUG(g->ctx, "llvm: this LLVM has no %s", name);
  LLVMValueRef fn = LLVMGetIntrinsicDeclaration(g->mod, id, types, (size_t)ntypes);
  return LLVMBuildCall2(g->b, LLVMIntrinsicGetType(g->lc, id, types, (size_t)ntypes), fn, arg, (unsigned)n, "");
}

static LLVMValueRef of_type(Gen *g, const char *name, int n, LLVMValueRef *arg)
{
  LLVMTypeRef type = LLVMTypeOf(arg[0]);
  return gen_intrinsic(g, name, 1, &type, n, arg);
}

LLVMValueRef gen_string(Gen *g, const char *s)
{
  LLVMValueRef text = LLVMConstStringInContext(g->lc, s, (unsigned)strlen(s), false);
  LLVMValueRef global = LLVMAddGlobal(g->mod, LLVMTypeOf(text), "text");
  LLVMSetInitializer(global, text);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
  return LLVMConstPointerCast(global, g->ptr);
}

/* ---- elementary functions ------------------------------------------------------------------ */

static const struct {
  const char *llvm, *libm;
  int n;
  /* clang-format off */
} functions[IN_COUNT] = {
    [IN_EXP] = {NULL, "exp", 1},          [IN_EXP2] = {NULL, "exp2", 1},
    [IN_LOG] = {NULL, "log", 1},          [IN_LOG2] = {NULL, "log2", 1},
    [IN_LOG10] = {NULL, "log10", 1},      [IN_LOG1P] = {NULL, "log1p", 1},
    [IN_TANH] = {NULL, "tanh", 1},        [IN_ERF] = {NULL, "erf", 1},
    [IN_SIN] = {NULL, "sin", 1},          [IN_COS] = {NULL, "cos", 1},
    [IN_TAN] = {NULL, "tan", 1},          [IN_ASIN] = {NULL, "asin", 1},
    [IN_ACOS] = {NULL, "acos", 1},        [IN_ATAN] = {NULL, "atan", 1},
    [IN_SINH] = {NULL, "sinh", 1},        [IN_COSH] = {NULL, "cosh", 1},
    [IN_ASINH] = {NULL, "asinh", 1},      [IN_ACOSH] = {NULL, "acosh", 1},
    [IN_ATANH] = {NULL, "atanh", 1},      [IN_ATAN2] = {NULL, "atan2", 2},
    [IN_POW] = {NULL, "pow", 2},          [IN_FMOD] = {NULL, "fmod", 2},
    [IN_HYPOT] = {NULL, "hypot", 2},      [IN_NEXTAFTER] = {NULL, "nextafter", 2},
    [IN_SQRT] = {"llvm.sqrt", NULL, 1},   [IN_FLOOR] = {"llvm.floor", NULL, 1},
    [IN_CEIL] = {"llvm.ceil", NULL, 1},   [IN_TRUNC] = {"llvm.trunc", NULL, 1},
    [IN_ROUND] = {"llvm.round", NULL, 1}, [IN_NEARBYINT] = {"llvm.nearbyint", NULL, 1},
    [IN_FMA] = {"llvm.fma", NULL, 3},     [IN_COPYSIGN] = {"llvm.copysign", NULL, 2},
};
/* clang-format on */

static LLVMValueRef libm_lanes(Gen *g, const char *name, int n, DType t, LLVMValueRef *arg)
{
  LLVMTypeRef elem = gen_type(g, dtype_elem(t));
  if (t.lanes == 1) return gen_libm(g, name, elem, n, arg);
  LLVMValueRef out = LLVMGetPoison(gen_type(g, t));
  for (int i = 0; i < t.lanes; i++) {
    LLVMValueRef one[3];
    for (int k = 0; k < n; k++) one[k] = gen_lane(g, arg[k], i);
    out = LLVMBuildInsertElement(g->b, out, gen_libm(g, name, elem, n, one), gen_int(g, g->i32, i), "");
  }
  return out;
}

static LLVMValueRef real(Gen *g, DType t, double v)
{
  return gen_splat(g, LLVMConstReal(gen_type(g, dtype_elem(t)), v), t.lanes);
}

LLVMValueRef gen_math(Gen *g, Intrin in, DType t, LLVMValueRef *arg)
{
  int n = functions[in].n;
  if (functions[in].llvm) return of_type(g, functions[in].llvm, n, arg);
  if (t.bits == 16 && in == IN_NEXTAFTER) raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: nextafter on float16");
  DType wide = t;
  LLVMValueRef in_wide[3];
  if (t.bits == 16) wide.bits = 32;
  for (int i = 0; i < n; i++) in_wide[i] = gen_cast(g, arg[i], t, wide);
  return gen_cast(g, libm_lanes(g, functions[in].libm, n, wide, in_wide), wide, t);
}

static LLVMValueRef composed(Gen *g, Intrin in, DType t, LLVMValueRef x)
{
  if (in == IN_RSQRT) return LLVMBuildFDiv(g->b, real(g, t, 1), gen_math(g, IN_SQRT, t, &x), "");
  if (in == IN_EXP10) return gen_math(g, IN_POW, t, (LLVMValueRef[]){real(g, t, 10), x});
  LLVMValueRef minus = LLVMBuildFNeg(g->b, x, ""); /* IN_SIGMOID */
  LLVMValueRef below = LLVMBuildFAdd(g->b, real(g, t, 1), gen_math(g, IN_EXP, t, &minus), "");
  return LLVMBuildFDiv(g->b, real(g, t, 1), below, "");
}

/* AVX-512's vscalefps, all lanes; the form for a whole register is told how to round: as everything else. */
static LLVMValueRef scaled(Gen *g, DType t, LLVMValueRef x, LLVMValueRef n)
{
  LLVMValueRef f = gen_cast(g, n, dtype_lanes(DT_I32, t.lanes), t);
  LLVMValueRef all = LLVMConstAllOnes(t.lanes == 16 ? g->i16 : g->i8);
  LLVMValueRef arg[] = {x, f, x, all, gen_int(g, g->i32, 4)};
  return gen_intrinsic(g, arena_printf(g->arena, "llvm.x86.avx512.mask.scalef.ps.%d", 32 * t.lanes), 0, NULL,
                       t.lanes == 16 ? 5 : 4, arg);
}

/* x * 2^n: two exact steps are not enough at the ends of the range, so the C library. */
static LLVMValueRef load_exponent(Gen *g, const Expr *e, LLVMValueRef *arg)
{
  DType t = e->dtype;
  DType wide = t;
  DType count = dtype_lanes(DT_I32, t.lanes);
  if (t.bits == 16) wide.bits = 32;
  LLVMTypeRef elem = gen_type(g, dtype_elem(wide));
  LLVMValueRef x = gen_cast(g, arg[0], t, wide);
  LLVMValueRef from = arg[1];
  LLVMValueRef out = LLVMGetPoison(gen_type(g, wide));
  if (e->arg[1]->dtype.bits == 64) { /* counts past the range of any float stay past it */
    LLVMValueRef most = gen_splat(g, gen_int(g, g->i64, 8192), t.lanes);
    LLVMValueRef least = gen_splat(g, gen_int(g, g->i64, -8192), t.lanes);
    bool sign = e->arg[1]->dtype.code == DT_INT;
    from = of_type(g, sign ? "llvm.smin" : "llvm.umin", 2, (LLVMValueRef[]){from, most});
    if (sign) from = of_type(g, "llvm.smax", 2, (LLVMValueRef[]){from, least});
  }
  LLVMValueRef n = gen_cast(g, from, dtype_lanes(e->arg[1]->dtype, t.lanes), count);
  if (t.bits == 32 && target_has_scale(g->t, t.lanes)) return scaled(g, t, x, n);
  LLVMTypeRef params[] = {elem, g->i32};
  LLVMTypeRef type = LLVMFunctionType(elem, params, 2, false);
  const char *name = wide.bits == 64 ? "ldexp" : "ldexpf";
  LLVMValueRef fn = LLVMGetNamedFunction(g->mod, name);
  if (!fn) fn = LLVMAddFunction(g->mod, name, type);
  for (int i = 0; i < t.lanes; i++) {
    LLVMValueRef one[] = {t.lanes == 1 ? x : gen_lane(g, x, i), t.lanes == 1 ? n : gen_lane(g, n, i)};
    LLVMValueRef r = LLVMBuildCall2(g->b, type, fn, one, 2, "");
    out = t.lanes == 1 ? r : LLVMBuildInsertElement(g->b, out, r, gen_int(g, g->i32, i), "");
  }
  return gen_cast(g, out, wide, t);
}

static LLVMValueRef absolute(Gen *g, DType t, LLVMValueRef x)
{
  if (dtype_is_float(t)) return of_type(g, "llvm.fabs", 1, &x);
  if (t.code == DT_UINT) return x;
  return of_type(g, "llvm.abs", 2, (LLVMValueRef[]){x, gen_int(g, g->i1, 0)});
}

static LLVMValueRef classify(Gen *g, Intrin in, DType t, LLVMValueRef x)
{
  if (!dtype_is_float(t)) return gen_splat(g, gen_int(g, g->i1, in == IN_ISFINITE), t.lanes);
  if (in == IN_ISNAN) return LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
  LLVMValueRef size = of_type(g, "llvm.fabs", 1, &x);
  LLVMValueRef inf = real(g, t, __builtin_inf());
  return LLVMBuildFCmp(g->b, in == IN_ISINF ? LLVMRealOEQ : LLVMRealOLT, size, inf, "");
}

/* ---- bits ------------------------------------------------------------------------------------- */

static LLVMValueRef shift(Gen *g, const Expr *e, LLVMValueRef *arg)
{
  DType t = e->dtype;
  LLVMTypeRef elem = gen_type(g, dtype_elem(t));
  LLVMValueRef width = gen_splat(g, gen_int(g, elem, (t.bits & (t.bits - 1)) == 0 ? t.bits - 1 : t.bits), t.lanes);
  LLVMValueRef n =
      (t.bits & (t.bits - 1)) == 0 ? LLVMBuildAnd(g->b, arg[1], width, "") : LLVMBuildURem(g->b, arg[1], width, "");
  if (e->u.intrin == IN_SHL) return LLVMBuildShl(g->b, arg[0], n, "");
  return t.code == DT_INT ? LLVMBuildAShr(g->b, arg[0], n, "") : LLVMBuildLShr(g->b, arg[0], n, "");
}

static bool constant_shift(const Expr *e, int64_t *out)
{
  const Expr *q = e->arg[2]->kind == E_BROADCAST ? e->arg[2]->arg[0] : e->arg[2];
  const Expr *s = e->arg[3]->kind == E_BROADCAST ? e->arg[3]->arg[0] : e->arg[3];
  if (q->kind != E_INT || s->kind != E_INT) return false;
  *out = q->u.i - s->u.i;
  return true;
}

/* An instruction of AArch64 over two operands of int32, four lanes at a time. */
static LLVMValueRef four_by_four(Gen *g, const char *name, const LLVMValueRef *of, int lanes)
{
  LLVMTypeRef type = LLVMVectorType(g->i32, (unsigned)lanes);
  if (lanes == 4) return gen_intrinsic(g, name, 1, &type, 2, (LLVMValueRef[]){of[0], of[1]});
  int half = lanes / 2;
  LLVMValueRef part[2];
  for (int i = 0; i < 2; i++) {
    LLVMValueRef side[] = {gen_part(g, of[0], i * half, half), gen_part(g, of[1], i * half, half)};
    part[i] = four_by_four(g, name, side, half);
  }
  return gen_join(g, part[0], part[1], lanes);
}

/* x * 2^-n, halves away from zero: those below zero are made one less, then halves go up.  (x & -n) is below zero where
 * x is and something is shifted out. */
static LLVMValueRef round_shift(Gen *g, DType t, LLVMValueRef x, LLVMValueRef n)
{
  LLVMValueRef by = LLVMBuildNeg(g->b, LLVMBuildAnd(g->b, n, gen_splat(g, gen_int(g, g->i32, 31), t.lanes), ""), "");
  LLVMValueRef below =
      LLVMBuildAShr(g->b, LLVMBuildAnd(g->b, x, by, ""), gen_splat(g, gen_int(g, g->i32, 31), t.lanes), "");
  LLVMValueRef less = four_by_four(g, "llvm.aarch64.neon.sqadd", (LLVMValueRef[]){x, below}, t.lanes);
  return four_by_four(g, "llvm.aarch64.neon.srshl", (LLVMValueRef[]){less, by}, t.lanes);
}

/* round(x*y * 2^-right), halves up.  A literal shift of 32-bit numbers fits 64 bits;
 * the general case takes 128. */
static LLVMValueRef multiply_shift(Gen *g, const Expr *e, LLVMValueRef *arg)
{
  DType t = e->dtype;
  int64_t right;
  bool fits = t.bits <= 32 && constant_shift(e, &right) && right > 0 && right <= 62;
  if (fits && right == 31 && t.code == DT_INT && t.bits == 32 && target_rounds(g->t, t.lanes))
    return four_by_four(g, "llvm.aarch64.neon.sqrdmulh", arg, t.lanes);
  LLVMTypeRef elem = LLVMIntTypeInContext(g->lc, fits ? 64 : 128);
  LLVMTypeRef type = t.lanes > 1 ? LLVMVectorType(elem, t.lanes) : elem;
  LLVMValueRef w[4];
  for (int i = 0; i < 4; i++)
    w[i] =
        e->arg[i]->dtype.code == DT_INT ? LLVMBuildSExt(g->b, arg[i], type, "") : LLVMBuildZExt(g->b, arg[i], type, "");
  LLVMValueRef product = LLVMBuildMul(g->b, w[0], w[1], "");
  LLVMValueRef one = gen_splat(g, gen_int(g, elem, 1), t.lanes);
  if (fits) {
    LLVMValueRef half = gen_splat(g, gen_int(g, elem, INT64_C(1) << (right - 1)), t.lanes);
    LLVMValueRef sum = LLVMBuildAdd(g->b, product, half, "");
    sum = LLVMBuildAShr(g->b, sum, gen_splat(g, gen_int(g, elem, right), t.lanes), "");
    if (right == 31) {
      LLVMValueRef most = gen_splat(g, gen_int(g, elem, INT32_MAX), t.lanes);
      sum = LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, sum, most, ""), sum, most, "");
    }
    return LLVMBuildTrunc(g->b, sum, gen_type(g, t), "");
  }
  LLVMValueRef zero = LLVMConstNull(type);
  LLVMValueRef by = LLVMBuildSub(g->b, w[2], w[3], "");
  LLVMValueRef is_right = LLVMBuildICmp(g->b, LLVMIntSGT, by, zero, "");
  LLVMValueRef far_right = LLVMBuildICmp(g->b, LLVMIntSGE, by, gen_splat(g, gen_int(g, elem, 127), t.lanes), "");
  LLVMValueRef far_left = LLVMBuildICmp(g->b, LLVMIntSLE, by, gen_splat(g, gen_int(g, elem, -64), t.lanes), "");
  LLVMValueRef gone = LLVMBuildOr(g->b, far_right, far_left, "");
  LLVMValueRef rn = LLVMBuildSelect(g->b, LLVMBuildAnd(g->b, is_right, LLVMBuildNot(g->b, gone, ""), ""), by, one, "");
  LLVMValueRef ln = LLVMBuildSelect(g->b, LLVMBuildOr(g->b, is_right, gone, ""), zero, LLVMBuildNeg(g->b, by, ""), "");
  LLVMValueRef half = LLVMBuildShl(g->b, one, LLVMBuildSub(g->b, rn, one, ""), "");
  LLVMValueRef down = LLVMBuildAShr(g->b, LLVMBuildAdd(g->b, product, half, ""), rn, "");
  LLVMValueRef v = LLVMBuildSelect(g->b, is_right, down, LLVMBuildShl(g->b, product, ln, ""), "");
  if (t.bits == 32) {
    LLVMValueRef most = gen_splat(g, gen_int(g, elem, INT64_C(1) << 62), t.lanes);
    LLVMValueRef all = gen_splat(g, gen_int(g, elem, 31), t.lanes);
    LLVMValueRef over = LLVMBuildAnd(g->b, LLVMBuildICmp(g->b, LLVMIntEQ, product, most, ""),
                                     LLVMBuildICmp(g->b, LLVMIntEQ, by, all, ""), "");
    v = LLVMBuildSelect(g->b, over, gen_splat(g, gen_int(g, elem, INT32_MAX), t.lanes), v, "");
  }
  return LLVMBuildTrunc(g->b, LLVMBuildSelect(g->b, gone, zero, v, ""), gen_type(g, t), "");
}

static LLVMValueRef reinterpret(Gen *g, const Expr *e, LLVMValueRef x)
{
  DType from = e->arg[0]->dtype;
  DType to = e->dtype;
  if (from.code == DT_HANDLE || to.code == DT_HANDLE) return gen_cast(g, x, from, to);
  if ((int)from.bits * from.lanes != (int)to.bits * to.lanes)
    raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: reinterpret of %s as %s, which has another width",
          dtype_name(g->arena, from), dtype_name(g->arena, to));
  return LLVMBuildBitCast(g->b, x, gen_type(g, to), "");
}

/* One pair for all lanes: LLVM finds the instruction that takes it from a lane where the words are floats. */
static LLVMValueRef spread_pair(Gen *g, const Expr *e)
{
  if (e->kind != E_BROADCAST) return gen_expr(g, e);
  if (e->arg[0]->kind == E_LOAD) g->has_splat_load = true;
  return gen_splat(g, LLVMBuildBitCast(g->b, gen_expr(g, e->arg[0]), g->f32, ""), e->dtype.lanes);
}

static DotElement dot_side(const Expr *dot, int i) { return dot->arg[2]->u.i >> i & 1 ? DOT_S8 : DOT_U8; }

/* Two rows of words by two columns of words, of four bfloat16 or eight bytes: lowering left the lanes a 2 x 2 block, each
 * row's word in two of them, each column's too. */
static LLVMValueRef gen_block_dot(Gen *g, const Expr *dot, LLVMValueRef sum)
{
  bool bytes = dot->u.intrin == IN_WORD_DOT;
  const DotElement side[] = {bytes ? dot_side(dot, 0) : DOT_BF16, bytes ? dot_side(dot, 1) : DOT_BF16};
  const TargetDot *row = target_block_dot(g->t, side[0], side[1]);
  if (!row) BUG(g->ctx, "llvm: a block of dot products that the target does not have");
  LLVMTypeRef words =
      bytes ? LLVMVectorType(LLVMInt8TypeInContext(g->lc), 16) : LLVMVectorType(LLVMBFloatTypeInContext(g->lc), 8);
  LLVMValueRef arg[] = {sum, gen_expr(g, dot->arg[0]), gen_expr(g, dot->arg[1])};
  for (int i = 1; i < 3; i++) {
    LLVMValueRef two[] = {gen_int(g, g->i32, 0), gen_int(g, g->i32, i == 1 ? 2 : 1)};
    LLVMValueRef both =
        LLVMBuildShuffleVector(g->b, arg[i], LLVMGetPoison(LLVMTypeOf(arg[i])), LLVMConstVector(two, 2), "");
    arg[i] = LLVMBuildBitCast(g->b, both, words, "");
  }
  LLVMTypeRef types[] = {gen_type(g, dot->dtype), words};
  return gen_intrinsic(g, row->llvm, bytes ? 2 : 0, types, 3, arg);
}

/* The even bytes of 16-bit elements, or the odd ones, in 16 bits. */
static LLVMValueRef half_bytes(Gen *g, LLVMValueRef x, bool is_signed, bool odd, int lanes)
{
  LLVMValueRef eight = gen_splat(g, gen_int(g, LLVMIntTypeInContext(g->lc, 16), 8), lanes);
  if (!odd && !is_signed)
    return LLVMBuildAnd(g->b, x, gen_splat(g, gen_int(g, LLVMIntTypeInContext(g->lc, 16), 255), lanes), "");
  if (!odd) x = LLVMBuildShl(g->b, x, eight, "");
  return is_signed ? LLVMBuildAShr(g->b, x, eight, "") : LLVMBuildLShr(g->b, x, eight, "");
}

static LLVMValueRef gen_pairs_dot(Gen *g, const TargetDot *row, const DotElement *side, LLVMValueRef *arg, int lanes)
{
  LLVMTypeRef type = LLVMVectorType(LLVMIntTypeInContext(g->lc, 16), 2 * (unsigned)lanes);
  LLVMValueRef sum = arg[0];
  for (int odd = 0; odd < 2; odd++) {
    LLVMValueRef of[2];
    for (int i = 0; i < 2; i++)
      of[i] = half_bytes(g, LLVMBuildBitCast(g->b, arg[1 + i], type, ""), side[i] == DOT_S8, odd, 2 * lanes);
    sum = LLVMBuildAdd(g->b, sum, gen_intrinsic(g, row->llvm, 0, NULL, 2, of), "");
  }
  return sum;
}

/* Four bytes of each lane: AArch64's as vectors of bytes, x86's as the words they are. */
static LLVMValueRef gen_bytes_dot(Gen *g, const Expr *dot, LLVMValueRef sum)
{
  int lanes = dot->dtype.lanes;
  const DotElement side[] = {dot_side(dot, 0), dot_side(dot, 1)};
  const TargetDot *row = target_dot(g->t, side[0], side[1], lanes);
  if (!row) BUG(g->ctx, "llvm: a dot product of %d lanes that the target does not have", lanes);
  bool arm = g->t->arch == ARCH_AARCH64;
  /* sdot and udot do not mind which side comes first, and take one word of their last for all lanes */
  int spread = arm && side[0] == side[1] && dot->arg[0]->kind == E_BROADCAST;
  LLVMValueRef arg[] = {sum, gen_expr(g, dot->arg[spread]), gen_expr(g, dot->arg[1 - spread])};
  if (target_dot_of_pairs(row)) return gen_pairs_dot(g, row, side, arg, lanes);
  if (!arm) return gen_intrinsic(g, arena_printf(g->arena, row->llvm, 32 * lanes), 0, NULL, 3, arg);
  LLVMTypeRef bytes = LLVMVectorType(LLVMInt8TypeInContext(g->lc), 4 * (unsigned)lanes);
  for (int i = 1; i < 3; i++) arg[i] = LLVMBuildBitCast(g->b, arg[i], bytes, "");
  LLVMTypeRef types[] = {gen_type(g, dot->dtype), bytes};
  return gen_intrinsic(g, row->llvm, 2, types, 3, arg);
}

/* x86 takes the pairs as they are until LLVM 17, from then on as bfloat16, as AArch64 does. */
LLVMValueRef gen_dot(Gen *g, const Expr *dot, LLVMValueRef sum)
{
  if (dot->arg[0]->dtype.bits == 64) return gen_block_dot(g, dot, sum);
  if (dot->u.intrin == IN_WORD_DOT) return gen_bytes_dot(g, dot, sum);
  unsigned lanes = dot->dtype.lanes;
  LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(g->lc), 2 * lanes);
  bool arm = g->t->arch == ARCH_AARCH64;
  bool as_floats = arm || llvm_api.major >= 17;
  /* AArch64 takes one pair of its last operand for all lanes */
  int spread = arm && dot->arg[0]->kind == E_BROADCAST;
  LLVMValueRef arg[] = {sum, gen_expr(g, dot->arg[spread]),
                        arm ? spread_pair(g, dot->arg[1 - spread]) : gen_expr(g, dot->arg[1])};
  for (int i = 1; i < 3 && as_floats; i++) arg[i] = LLVMBuildBitCast(g->b, arg[i], pairs, "");
  if (!arm)
    return gen_intrinsic(g, arena_printf(g->arena, "llvm.x86.avx512bf16.dpbf16ps.%u", 32 * lanes), 0, NULL, 3, arg);
  LLVMTypeRef types[] = {gen_type(g, dot->dtype), pairs};
  return gen_intrinsic(g, "llvm.aarch64.neon.bfdot", 2, types, 3, arg);
}

/* ---- control -------------------------------------------------------------------------------------- */

/* Vectors: each side is evaluated with its lanes as the mask of its loads. */
static LLVMValueRef masked_choice(Gen *g, const Expr *e, LLVMValueRef cond)
{
  int lanes = e->dtype.lanes;
  LLVMValueRef outer = g->mask;
  LLVMValueRef side[2];
  for (int i = 0; i < 2; i++) {
    if (!e->arg[1 + i]->pure)
      raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: a call with effects inside a vector if_then_else in kernel '%s'",
            g->k->name);
    LLVMValueRef lanes_of = i ? LLVMBuildNot(g->b, cond, "") : cond;
    Memo memo;
    g->mask = outer ? LLVMBuildAnd(g->b, outer, lanes_of, "") : lanes_of;
    gen_memo_begin(g, &memo);
    side[i] = gen_expr_lanes(g, e->arg[1 + i], lanes);
    gen_memo_end(g, &memo);
    g->mask = outer;
  }
  return LLVMBuildSelect(g->b, cond, side[0], side[1], "");
}

static LLVMValueRef branch_choice(Gen *g, const Expr *e, LLVMValueRef cond)
{
  LLVMBasicBlockRef block[] = {gen_block(g, "then"), gen_block(g, "else")};
  LLVMBasicBlockRef end[2];
  LLVMBasicBlockRef done = gen_block(g, "done");
  LLVMValueRef side[2];
  LLVMBuildCondBr(g->b, cond, block[0], block[1]);
  for (int i = 0; i < 2; i++) {
    Memo memo;
    LLVMPositionBuilderAtEnd(g->b, block[i]);
    gen_memo_begin(g, &memo);
    side[i] = gen_expr_lanes(g, e->arg[1 + i], e->dtype.lanes);
    gen_memo_end(g, &memo);
    end[i] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
  }
  LLVMPositionBuilderAtEnd(g->b, done);
  if (e->dtype.code == DT_VOID) return NULL;
  LLVMValueRef phi = LLVMBuildPhi(g->b, gen_type(g, e->dtype), "");
  LLVMAddIncoming(phi, side, end, 2);
  return phi;
}

static LLVMValueRef if_then_else(Gen *g, const Expr *e)
{
  enum { COSTLY = 1u << E_LOAD | 1u << E_CALL | 1u << E_DIV | 1u << E_MOD | 1u << E_FLOORDIV | 1u << E_FLOORMOD };
  LLVMValueRef cond =
      gen_cast(g, gen_expr(g, e->arg[0]), e->arg[0]->dtype, dtype_lanes(DT_BOOL, e->arg[0]->dtype.lanes));
  if (!((e->arg[1]->kinds | e->arg[2]->kinds) & COSTLY)) {
    LLVMValueRef a = gen_expr_lanes(g, e->arg[1], e->dtype.lanes);
    LLVMValueRef b = gen_expr_lanes(g, e->arg[2], e->dtype.lanes);
    return LLVMBuildSelect(g->b, cond, a, b, "");
  }
  return e->arg[0]->dtype.lanes > 1 ? masked_choice(g, e, cond) : branch_choice(g, e, cond);
}

static LLVMValueRef vector_sum(Gen *g, const Expr *e)
{
  DType t = e->arg[0]->dtype;
  LLVMValueRef v = gen_expr(g, e->arg[0]);
  if (t.lanes == 1) return v;
  if (!dtype_is_float(t)) return of_type(g, "llvm.vector.reduce.add", 1, &v);
  LLVMValueRef sum = gen_lane(g, v, 0); /* in order: floats are never reassociated */
  for (int i = 1; i < t.lanes; i++) sum = LLVMBuildFAdd(g->b, sum, gen_lane(g, v, i), "");
  return sum;
}

/* Pointer to what a load would read. */
static LLVMValueRef address_of(Gen *g, const Expr *e)
{
  if (e->kind != E_LOAD || e->nargs != 1) BUG(g->ctx, "llvm: address_of something that is not a load");
  return gen_address(g, e->u.buffer, e->arg[0]);
}

static int64_t literal_arg(const Expr *e, int i, int64_t otherwise)
{
  return i < e->nargs && e->arg[i]->kind == E_INT ? e->arg[i]->u.i : otherwise;
}

static LLVMValueRef prefetch(Gen *g, const Expr *e)
{
  const Expr *at = e->arg[0];
  if (at->kind == E_CALL && at->u.intrin == IN_ADDRESS_OF) at = at->arg[0];
  LLVMValueRef p = at->kind == E_LOAD ? address_of(g, at) : gen_expr(g, at);
  LLVMTypeRef type = LLVMTypeOf(p);
  LLVMValueRef arg[] = {p, gen_int(g, g->i32, literal_arg(e, 1, 0) != 0), gen_int(g, g->i32, literal_arg(e, 2, 3) & 3),
                        gen_int(g, g->i32, literal_arg(e, 3, 1) != 0)};
  LLVMValueRef call = gen_intrinsic(g, "llvm.prefetch", 1, &type, 4, arg);
  if (at->kind == E_LOAD) gen_tag(g, at->u.buffer, call);
  return gen_int(g, g->i32, 0);
}

static LLVMValueRef access_pointer(Gen *g, const Expr *e)
{
  DType elem = e->arg[0]->dtype;
  return gen_offset(g, gen_mem_type(g, elem), gen_expr(g, e->arg[1]), gen_index(g, e->arg[2]));
}

static LLVMValueRef leave(Gen *g, const Expr *e)
{
  LLVMBuildRet(g->b, gen_cast(g, gen_expr(g, e->arg[0]), e->arg[0]->dtype, DT_I32));
  LLVMPositionBuilderAtEnd(g->b, gen_block(g, "unreached"));
  return gen_int(g, g->i32, 0);
}

/* ---- the table of intrinsics ------------------------------------------------------------------------- */

/* Functions of the values of their arguments alone. */
static LLVMValueRef of_values(Gen *g, const Expr *e)
{
  LLVMValueRef a[4];
  DType t = e->dtype;
  Intrin in = e->u.intrin;
  int lanes = in == IN_CLZ || in == IN_ISNAN || in == IN_ISFINITE || in == IN_ISINF ? e->arg[0]->dtype.lanes : t.lanes;
  for (int i = 0; i < e->nargs; i++) a[i] = gen_expr_lanes(g, e->arg[i], lanes);
  if (functions[in].n) return gen_math(g, in, t, a);
  if (in == IN_RSQRT || in == IN_EXP10 || in == IN_SIGMOID) return composed(g, in, t, a[0]);
  if (in == IN_LDEXP) return load_exponent(g, e, a);
  if (in == IN_ABS) return absolute(g, t, a[0]);
  if (in == IN_ISNAN || in == IN_ISFINITE || in == IN_ISINF) return classify(g, in, e->arg[0]->dtype, a[0]);
  if (in == IN_BITAND) return LLVMBuildAnd(g->b, a[0], a[1], "");
  if (in == IN_BITOR) return LLVMBuildOr(g->b, a[0], a[1], "");
  if (in == IN_BITXOR) return LLVMBuildXor(g->b, a[0], a[1], "");
  if (in == IN_BITNOT) return LLVMBuildNot(g->b, a[0], "");
  if (in == IN_SHL || in == IN_SHR) return shift(g, e, a);
  if (in == IN_SHR_ROUND) return round_shift(g, t, a[0], a[1]);
  if (in == IN_POPCOUNT) return of_type(g, "llvm.ctpop", 1, a);
  if (in == IN_QMULSHIFT) return multiply_shift(g, e, a);
  DType from = e->arg[0]->dtype; /* IN_CLZ */
  from.code = DT_UINT;
  return gen_cast(g, of_type(g, "llvm.ctlz", 2, (LLVMValueRef[]){a[0], gen_int(g, g->i1, 0)}), from, t);
}

LLVMValueRef gen_call(Gen *g, const Expr *e)
{
  switch (e->u.intrin) {
  case IN_EXP:
  case IN_EXP2:
  case IN_EXP10:
  case IN_LOG:
  case IN_LOG2:
  case IN_LOG10:
  case IN_LOG1P:
  case IN_SQRT:
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
  case IN_COPYSIGN:
  case IN_NEXTAFTER:
  case IN_LDEXP:
  case IN_FMA:
  case IN_FLOOR:
  case IN_CEIL:
  case IN_TRUNC:
  case IN_ROUND:
  case IN_NEARBYINT:
  case IN_ABS:
  case IN_ISNAN:
  case IN_ISFINITE:
  case IN_ISINF:
  case IN_BITAND:
  case IN_BITXOR:
  case IN_BITNOT:
  case IN_SHL:
  case IN_SHR:
  case IN_SHR_ROUND:
  case IN_POPCOUNT:
  case IN_CLZ:
  case IN_QMULSHIFT: return of_values(g, e);
  case IN_BITOR: {
    LLVMValueRef word = gen_word(g, e);
    return word ? word : of_values(g, e);
  }
  case IN_DOT: BUG(g->ctx, "llvm: a dot product that lowering did not spell out");
  case IN_WORD_DOT:
  case IN_BF16_DOT: return gen_dot(g, e, LLVMConstNull(gen_type(g, e->dtype)));
  case IN_REINTERPRET: return reinterpret(g, e, gen_expr(g, e->arg[0]));
  case IN_IF_THEN_ELSE: return if_then_else(g, e);
  case IN_LIKELY: return gen_expr(g, e->arg[0]);
  case IN_ADDRESS_OF: return address_of(g, e->arg[0]);
  case IN_ACCESS_PTR: return access_pointer(g, e);
  case IN_PREFETCH: return prefetch(g, e);
  case IN_ASSUME: return gen_int(g, gen_type(g, e->dtype), 1);
  case IN_CALL_EXTERN:
  case IN_CALL_PURE_EXTERN: return gen_call_extern(g, e);
  case IN_CALL_PACKED:
    raise(
        g->ctx, ERR_UNSUPPORTED, NOWHERE,
        "llvm: tvm_call_packed inside an expression in kernel '%s'; the function gives compiled code no value, let it "
        "write into a buffer",
        g->k->name);
  case IN_VECTOR_SUM: return vector_sum(g, e);
  case IN_RET: return leave(g, e);
  case IN_PARALLEL_SLOT: return gen_cast(g, g->fn->slot ? g->fn->slot : gen_int(g, g->i32, 0), DT_I32, e->dtype);
  case IN_TYPE_MARKER:
  case IN_BUFFER_ARG:
  case IN_MAKE_SHAPE:
  case IN_SYNC:
#define INTRIN(id, ...) case id:
#include "expr/builtins.def"
#undef INTRIN
  case IN_COUNT: break;
  }
  raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: '%s' has no meaning here on a CPU (kernel '%s')",
        intrin_info(e->u.intrin)->name, g->k->name);
}
