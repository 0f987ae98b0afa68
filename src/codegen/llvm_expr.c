/* llvm_expr.c: expressions to LLVM values.
 *
 * In: expressions of the kernel form.  Out: values that mean what expr.h says.
 *
 * Choices made here:
 * - Integers wrap, so ordinary arithmetic carries no nsw.  An expression in index
 *   position that holds no load is index arithmetic: it does not overflow, is done
 *   on i64 whatever its dtype, with nsw, so that LLVM sees plain address arithmetic
 *   and no sign extensions.
 * - a*b + c becomes llvm.fmuladd where the target has fused multiply-add.  (Contract
 *   flags would do the same but are in the C API only since LLVM 18; llvm.fma would
 *   call the C library on targets without the instruction.)
 * - min(a, b) is `a < b ? a : b`, one instruction on x86, with b's NaN passed over by
 *   a second select unless b is known not to be NaN.  AArch64 has the whole rule as
 *   one instruction, which llvm.minnum selects.
 * - Division by zero and INT_MIN / -1 have no value; they must not trap either, so a
 *   divisor that is not a literal is replaced by 1 in those cases. */
#include <math.h>

#include "codegen/llvm_gen.h"

#define HAS(e, kind) ((e)->kinds >> (kind) & 1)

/* ---- types and literals ---------------------------------------------------------------- */

static LLVMTypeRef scalar_type(Gen *g, DType t)
{
  switch ((DCode)t.code) {
  case DT_INT:
  case DT_UINT: return LLVMIntTypeInContext(g->lc, t.bits);
  case DT_FLOAT:
    if (t.bits == 16) return g->f16;
    return t.bits == 32 ? g->f32 : g->f64;
  case DT_HANDLE: return g->ptr;
  case DT_VOID: return g->none;
  case DT_BFLOAT: /* on its way from float32 to its bits */ return LLVMBFloatTypeInContext(g->lc);
  case DT_TEXT:
  case DT_E4M3FN:
  case DT_E5M2:
  case DT_E4M3FNUZ:
  case DT_E5M2FNUZ:
  case DT_E8M0FNU:
  case DT_E2M1FN: break;
  }
  BUG(g->ctx, "llvm: kernel '%s' computes in %s, which lowering should have spelled out", g->k ? g->k->name : "?",
      dtype_name(g->arena, t));
}

LLVMTypeRef gen_type(Gen *g, DType t)
{
  LLVMTypeRef elem = scalar_type(g, t);
  return t.lanes > 1 ? LLVMVectorType(elem, t.lanes) : elem;
}

LLVMTypeRef gen_mem_type(Gen *g, DType t)
{
  if (dtype_is_int(t)) t.bits = (uint8_t)(8 * dtype_bytes(t));
  return gen_type(g, t);
}

LLVMValueRef gen_int(Gen *g, LLVMTypeRef type, int64_t v)
{
  (void)g;
  return LLVMConstInt(type, (unsigned long long)v, true);
}

LLVMValueRef gen_lane(Gen *g, LLVMValueRef vector, int lane)
{
  return LLVMBuildExtractElement(g->b, vector, gen_int(g, g->i32, lane), "");
}

LLVMValueRef gen_splat(Gen *g, LLVMValueRef v, int lanes)
{
  if (lanes == 1) return v;
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(v), (unsigned)lanes);
  LLVMValueRef one = LLVMBuildInsertElement(g->b, LLVMGetPoison(type), v, gen_int(g, g->i32, 0), "");
  LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(g->i32, (unsigned)lanes));
  return LLVMBuildShuffleVector(g->b, one, LLVMGetPoison(type), zeros, "");
}

/* A zero, one, … of the dtype, splat over its lanes. */
static LLVMValueRef literal(Gen *g, DType t, double v)
{
  LLVMTypeRef type = gen_type(g, dtype_elem(t));
  LLVMValueRef one = dtype_is_float(t) ? LLVMConstReal(type, v) : gen_int(g, type, (int64_t)v);
  return gen_splat(g, one, t.lanes);
}

/* ---- memory of values -------------------------------------------------------------------- */

void gen_memo_begin(Gen *g, Memo *memo)
{
  *memo = (Memo){.outer = g->memo};
  g->memo = memo;
}

void gen_memo_end(Gen *g, Memo *memo) { g->memo = memo->outer; }

static LLVMValueRef memo_get(Gen *g, const Expr *e, bool wide)
{
  for (Memo *m = g->memo; m; m = m->outer) {
    LLVMValueRef v = map_get(wide ? &m->wides : &m->values, e);
    if (v) return v;
  }
  return NULL;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

static bool is_signed(DType t) { return t.code == DT_INT; }

/* Can e be computed where its result may not be wanted?  Loads may be out of
 * bounds there, calls slow or with effects. */
static bool is_harmless(const Expr *e)
{
  return !HAS(e, E_LOAD) && !HAS(e, E_CALL) && !HAS(e, E_DIV) && !HAS(e, E_MOD) && !HAS(e, E_FLOORDIV) &&
         !HAS(e, E_FLOORMOD);
}

static bool never_nan(Gen *g, const Expr *e)
{
  switch ((ExprKind)e->kind) {
  case E_FLOAT: return !isnan(e->u.f);
  case E_BROADCAST: return never_nan(g, e->arg[0]);
  case E_CAST: return dtype_is_int(e->arg[0]->dtype);
  case E_MIN:
  case E_MAX: return never_nan(g, e->arg[0]) || never_nan(g, e->arg[1]);
  case E_SELECT: return never_nan(g, e->arg[1]) && never_nan(g, e->arg[2]);
  case E_INT:
  case E_STR:
  case E_VAR:
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_LET:
  case E_CALL:
  case E_RAMP:
  case E_REDUCE:
  case E_NKINDS: return false;
  case E_LOAD: return map_has(&g->numbers, e->u.buffer->data);
  }
  return false;
}

/* ---- variables that never hold NaN ------------------------------------------------------- */

typedef struct Numbers {
  Gen *g;
  bool changed;
} Numbers;

static bool note_variable(void *env, Stmt *s)
{
  Gen *g = ((Numbers *)env)->g;
  if (s->kind == S_ALLOC && dtype_is_float(s->u.alloc.buffer->dtype))
    map_put(g->arena, &g->numbers, s->u.alloc.buffer->data, NULL);
  return true;
}

/* What is handed to a call may be written there. */
static void drop_pointer(void *env, const Expr *e)
{
  Gen *g = env;
  if (e->kind == E_VAR && e->dtype.code == DT_HANDLE) map_del(&g->numbers, e->u.var);
  if (e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF) map_del(&g->numbers, e->arg[0]->u.buffer->data);
}

static void drop_pointers(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  Gen *g = env;
  expr_visit(g->ctx, e, drop_pointer, g);
}

static bool drop_variable(void *env, Stmt *s)
{
  Numbers *n = env;
  if (s->kind != S_STORE || !map_has(&n->g->numbers, s->u.store.buffer->data) || never_nan(n->g, s->u.store.value))
    return true;
  map_del(&n->g->numbers, s->u.store.buffer->data);
  n->changed = true;
  return true;
}

/* The largest element so far begins as -inf and passes NaN over, so it is never NaN.  In general: what every store
 * leaves free of NaN, given that the loads are. */
void gen_find_numbers(Gen *g)
{
  Numbers n = {g, true};
  g->numbers = (Map){0};
  stmt_visit(g->k->body, note_variable, &n);
  if (g->numbers.n) stmt_visit_exprs(g->k->body, drop_pointers, g);
  while (n.changed && g->numbers.n) {
    n.changed = false;
    stmt_visit(g->k->body, drop_variable, &n);
  }
}

static LLVMValueRef float_min_max(Gen *g, const Expr *e, LLVMValueRef a, LLVMValueRef b)
{
  bool is_min = e->kind == E_MIN;
  if (g->t->arch == ARCH_AARCH64) {
    LLVMTypeRef type = LLVMTypeOf(a);
    return gen_intrinsic(g, is_min ? "llvm.minnum" : "llvm.maxnum", 1, &type, 2, (LLVMValueRef[]){a, b});
  }
  const Expr *second = e->arg[1];
  if (never_nan(g, e->arg[0]) && !never_nan(g, second)) {
    LLVMValueRef swap = a;
    a = b, b = swap;
    second = e->arg[0];
  }
  LLVMValueRef first = LLVMBuildFCmp(g->b, is_min ? LLVMRealOLT : LLVMRealOGT, a, b, "");
  LLVMValueRef best = LLVMBuildSelect(g->b, first, a, b, ""); /* b when either is NaN */
  if (never_nan(g, second)) return best;
  return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, LLVMRealUNO, b, b, ""), a, best, "");
}

static LLVMValueRef int_min_max(Gen *g, const Expr *e, LLVMValueRef a, LLVMValueRef b)
{
  bool is_min = e->kind == E_MIN;
  bool sign = is_signed(e->dtype);
  LLVMIntPredicate p = is_min ? (sign ? LLVMIntSLT : LLVMIntULT) : (sign ? LLVMIntSGT : LLVMIntUGT);
  return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, p, a, b, ""), a, b, "");
}

/* b, or 1 where a / b would trap.  The smallest integer over -1 then gives itself,
 * which is the wrapped quotient, and leaves the remainder 0, which is right too. */
static LLVMValueRef safe_divisor(Gen *g, DType t, const Expr *divisor, LLVMValueRef a, LLVMValueRef b)
{
  const Expr *lit = divisor->kind == E_BROADCAST ? divisor->arg[0] : divisor;
  if (lit->kind == E_INT && lit->u.i != 0 && !(is_signed(t) && lit->u.i == -1)) return b;
  LLVMValueRef zero = literal(g, t, 0);
  LLVMValueRef bad = LLVMBuildICmp(g->b, LLVMIntEQ, b, zero, "");
  if (is_signed(t)) {
    LLVMValueRef least = gen_splat(g, gen_int(g, gen_type(g, dtype_elem(t)), dtype_imin(dtype_elem(t))), t.lanes);
    LLVMValueRef over = LLVMBuildAnd(g->b, LLVMBuildICmp(g->b, LLVMIntEQ, a, least, ""),
                                     LLVMBuildICmp(g->b, LLVMIntEQ, b, literal(g, t, -1), ""), "");
    bad = LLVMBuildOr(g->b, bad, over, "");
  }
  return LLVMBuildSelect(g->b, bad, literal(g, t, 1), b, "");
}

static LLVMValueRef int_divide(Gen *g, const Expr *e, LLVMValueRef a, LLVMValueRef b)
{
  DType t = e->dtype;
  bool modulo = e->kind == E_MOD || e->kind == E_FLOORMOD;
  b = safe_divisor(g, t, e->arg[1], a, b);
  if (!is_signed(t)) return modulo ? LLVMBuildURem(g->b, a, b, "") : LLVMBuildUDiv(g->b, a, b, "");
  if (e->kind == E_DIV) return LLVMBuildSDiv(g->b, a, b, "");
  LLVMValueRef rest = LLVMBuildSRem(g->b, a, b, "");
  if (e->kind == E_MOD) return rest;
  /* floor: one less where the remainder is not zero and its sign is not b's */
  LLVMValueRef zero = literal(g, t, 0);
  LLVMValueRef differ = LLVMBuildICmp(g->b, LLVMIntSLT, LLVMBuildXor(g->b, rest, b, ""), zero, "");
  LLVMValueRef adjust = LLVMBuildAnd(g->b, LLVMBuildICmp(g->b, LLVMIntNE, rest, zero, ""), differ, "");
  if (modulo) return LLVMBuildSelect(g->b, adjust, LLVMBuildAdd(g->b, rest, b, ""), rest, "");
  LLVMValueRef quotient = LLVMBuildSDiv(g->b, a, b, "");
  return LLVMBuildSelect(g->b, adjust, LLVMBuildSub(g->b, quotient, literal(g, t, 1), ""), quotient, "");
}

static bool is_dot(const Expr *e)
{
  return e->kind == E_CALL && (e->u.intrin == IN_BF16_DOT || e->u.intrin == IN_WORD_DOT);
}

/* a*b + c, a*b - c, c - a*b, or a sum of products of pairs and c, in one, when the node has that form. */
static LLVMValueRef fused(Gen *g, const Expr *e)
{
  for (int i = 1; i >= 0 && e->kind == E_ADD; i--) {
    const Expr *dot = e->arg[i];
    if (is_dot(dot)) return gen_dot(g, dot, gen_expr(g, e->arg[1 - i]));
    /* c + (dot + d): of integers, so that c may be what is added to */
    if (dot->kind == E_ADD && is_dot(dot->arg[0]) && dtype_is_int(e->dtype))
      return LLVMBuildAdd(g->b, gen_dot(g, dot->arg[0], gen_expr(g, e->arg[1 - i])), gen_expr(g, dot->arg[1]), "");
  }
  if (!g->t->fma || !dtype_is_float(e->dtype) || (e->kind != E_ADD && e->kind != E_SUB)) return NULL;
  int at = e->arg[1]->kind == E_MUL ? 1 : e->arg[0]->kind == E_MUL ? 0 : -1;
  if (at < 0) return NULL;
  const Expr *product = e->arg[at];
  LLVMValueRef x = gen_expr(g, product->arg[0]);
  LLVMValueRef y = gen_expr(g, product->arg[1]);
  LLVMValueRef c = gen_expr(g, e->arg[1 - at]);
  if (e->kind == E_SUB && at == 1) x = LLVMBuildFNeg(g->b, x, "");
  if (e->kind == E_SUB && at == 0) c = LLVMBuildFNeg(g->b, c, "");
  LLVMTypeRef type = LLVMTypeOf(x);
  return gen_intrinsic(g, "llvm.fmuladd", 1, &type, 3, (LLVMValueRef[]){x, y, c});
}

static LLVMValueRef compare(Gen *g, const Expr *e, LLVMValueRef a, LLVMValueRef b)
{
  DType t = e->arg[0]->dtype;
  static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOLT,
                                           LLVMRealOLE, LLVMRealOGT, LLVMRealOGE};
  static const LLVMIntPredicate sign[] = {LLVMIntEQ, LLVMIntNE, LLVMIntSLT, LLVMIntSLE, LLVMIntSGT, LLVMIntSGE};
  static const LLVMIntPredicate plain[] = {LLVMIntEQ, LLVMIntNE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE};
  int k = e->kind - E_EQ;
  if (dtype_is_float(t)) return LLVMBuildFCmp(g->b, real[k], a, b, "");
  return LLVMBuildICmp(g->b, is_signed(t) ? sign[k] : plain[k], a, b, "");
}

static LLVMValueRef binary(Gen *g, const Expr *e)
{
  LLVMValueRef both = fused(g, e);
  if (both) return both;
  LLVMValueRef a = gen_expr(g, e->arg[0]);
  LLVMValueRef b = gen_expr(g, e->arg[1]);
  if (e->kind >= E_EQ && e->kind <= E_GE) return compare(g, e, a, b);
  bool real = dtype_is_float(e->dtype);
  if (e->kind == E_ADD) return real ? LLVMBuildFAdd(g->b, a, b, "") : LLVMBuildAdd(g->b, a, b, "");
  if (e->kind == E_SUB) return real ? LLVMBuildFSub(g->b, a, b, "") : LLVMBuildSub(g->b, a, b, "");
  if (e->kind == E_MUL) return real ? LLVMBuildFMul(g->b, a, b, "") : LLVMBuildMul(g->b, a, b, "");
  if (e->kind == E_MIN || e->kind == E_MAX) return real ? float_min_max(g, e, a, b) : int_min_max(g, e, a, b);
  if (!real) return int_divide(g, e, a, b);
  if (e->kind == E_DIV) return LLVMBuildFDiv(g->b, a, b, "");
  return gen_math(g, IN_FMOD, e->dtype, (LLVMValueRef[]){a, b});
}

/* ---- casts -------------------------------------------------------------------------------------- */

LLVMValueRef gen_compare_zero(Gen *g, LLVMValueRef v, DType t)
{
  if (dtype_is_float(t)) return LLVMBuildFCmp(g->b, LLVMRealUNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
  return LLVMBuildICmp(g->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

/* float32 to bfloat16, on targets with an instruction for it; LLVM finds it by itself from version 17 on. */
static LLVMValueRef to_bfloat(Gen *g, LLVMValueRef v, DType to)
{
  if (llvm_api.major >= 17) return LLVMBuildFPTrunc(g->b, v, gen_type(g, to), "");
  if (to.lanes == 1) return gen_intrinsic(g, "llvm.aarch64.neon.bfcvt", 0, NULL, 1, &v);
  LLVMValueRef *at = arena_array(g->arena, LLVMValueRef, 4 + to.lanes);
  for (int i = 0; i < 4; i++) at[i] = i < to.lanes ? gen_int(g, g->i32, i) : LLVMGetUndef(g->i32);
  if (to.lanes < 4) v = LLVMBuildShuffleVector(g->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(at, 4), "");
  v = gen_intrinsic(g, "llvm.aarch64.neon.bfcvtn", 0, NULL, 1, &v);
  return LLVMBuildShuffleVector(g->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(at, to.lanes), "");
}

LLVMValueRef gen_cast(Gen *g, LLVMValueRef v, DType from, DType to)
{
  if (dtype_eq(from, to)) return v;
  LLVMTypeRef type = gen_type(g, to);
  if (dtype_is_bool(to)) return gen_compare_zero(g, v, from);
  if (from.code == DT_HANDLE || to.code == DT_HANDLE) {
    if (from.code == to.code) return v;
    return from.code == DT_HANDLE ? LLVMBuildPtrToInt(g->b, v, type, "") : LLVMBuildIntToPtr(g->b, v, type, "");
  }
  if (dtype_is_int(from) && dtype_is_int(to)) {
    if (from.bits == to.bits) return v;
    if (from.bits > to.bits) return LLVMBuildTrunc(g->b, v, type, "");
    return is_signed(from) ? LLVMBuildSExt(g->b, v, type, "") : LLVMBuildZExt(g->b, v, type, "");
  }
  if (dtype_is_int(from))
    return is_signed(from) ? LLVMBuildSIToFP(g->b, v, type, "") : LLVMBuildUIToFP(g->b, v, type, "");
  if (dtype_is_int(to)) {
    LLVMTypeRef types[] = {type, LLVMTypeOf(v)};
    return gen_intrinsic(g, is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat", 2, types, 1, &v);
  }
  if (to.code == DT_BFLOAT) return to_bfloat(g, v, to);
  return from.bits < to.bits ? LLVMBuildFPExt(g->b, v, type, "") : LLVMBuildFPTrunc(g->b, v, type, "");
}

/* ---- logic ----------------------------------------------------------------------------------------- */

/* a and b, a or b, where b must not be evaluated in lanes that a decides. */
static LLVMValueRef lazy_logic(Gen *g, const Expr *e, LLVMValueRef a)
{
  bool both = e->kind == E_AND;
  Memo memo;
  if (e->dtype.lanes > 1) {
    LLVMValueRef outer = g->mask;
    LLVMValueRef open = both ? a : LLVMBuildNot(g->b, a, "");
    g->mask = outer ? LLVMBuildAnd(g->b, outer, open, "") : open;
    gen_memo_begin(g, &memo);
    LLVMValueRef b = gen_expr(g, e->arg[1]);
    gen_memo_end(g, &memo);
    g->mask = outer;
    return both ? LLVMBuildAnd(g->b, a, b, "") : LLVMBuildOr(g->b, a, b, "");
  }
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef rest = gen_block(g, "logic");
  LLVMBasicBlockRef done = gen_block(g, "done");
  LLVMBuildCondBr(g->b, a, both ? rest : done, both ? done : rest);
  LLVMPositionBuilderAtEnd(g->b, rest);
  gen_memo_begin(g, &memo);
  LLVMValueRef b = gen_expr(g, e->arg[1]);
  gen_memo_end(g, &memo);
  LLVMBasicBlockRef end = LLVMGetInsertBlock(g->b);
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, done);
  LLVMValueRef phi = LLVMBuildPhi(g->b, g->i1, "");
  LLVMAddIncoming(phi, (LLVMValueRef[]){gen_int(g, g->i1, !both), b}, (LLVMBasicBlockRef[]){from, end}, 2);
  return phi;
}

static LLVMValueRef logic(Gen *g, const Expr *e)
{
  LLVMValueRef a = gen_expr(g, e->arg[0]);
  if (!is_harmless(e->arg[1])) return lazy_logic(g, e, a);
  LLVMValueRef b = gen_expr(g, e->arg[1]);
  return e->kind == E_AND ? LLVMBuildAnd(g->b, a, b, "") : LLVMBuildOr(g->b, a, b, "");
}

static double constant_value(const Expr *e)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  return e->kind == E_FLOAT ? e->u.f : NAN;
}

/* x limited by a constant, NaN staying as it is: one instruction of AArch64.  It puts -0.0 below +0.0, which expr.h
 * leaves open. */
static LLVMValueRef limited(Gen *g, const Expr *e)
{
  const Expr *cond = e->arg[0];
  const Expr *bound = e->arg[1];
  const Expr *x = e->arg[2];
  double c = constant_value(bound);
  if (g->t->arch != ARCH_AARCH64 || !dtype_is_float(e->dtype) || (e->dtype.bits < 32 && !target_has(g->t, CPU_FP16)) ||
      isnan(c))
    return NULL;
  if (cond->kind != E_LT && cond->kind != E_GT) return NULL;
  bool below = cond->arg[0] == x && cond->arg[1] == bound;
  bool above = cond->arg[0] == bound && cond->arg[1] == x;
  if (!below && !above) return NULL;
  LLVMValueRef arg[] = {gen_expr_lanes(g, x, e->dtype.lanes), gen_expr_lanes(g, bound, e->dtype.lanes)};
  LLVMTypeRef type = LLVMTypeOf(arg[0]);
  return gen_intrinsic(g, below == (cond->kind == E_LT) ? "llvm.maximum" : "llvm.minimum", 1, &type, 2, arg);
}

/* The greater or the lesser of two, NaN where either is: a > b || a != a ? a : b, as op_maximum_value writes it.  One
 * instruction of AArch64; elsewhere a select that one instruction is, and another for NaN. */
static LLVMValueRef extreme(Gen *g, const Expr *e)
{
  const Expr *cond = e->arg[0];
  const Expr *a = e->arg[1];
  const Expr *b = e->arg[2];
  if (cond->kind != E_OR || !dtype_is_float(e->dtype) || (e->dtype.bits < 32 && !target_has(g->t, CPU_FP16)))
    return NULL;
  const Expr *order = cond->arg[0];
  const Expr *nan = cond->arg[1];
  if (nan->kind != E_NE || nan->arg[0] != a || nan->arg[1] != a || (order->kind != E_LT && order->kind != E_GT))
    return NULL;
  bool ahead = order->arg[0] == a && order->arg[1] == b;
  bool behind = order->arg[0] == b && order->arg[1] == a;
  if (!ahead && !behind) return NULL;
  bool greater = ahead == (order->kind == E_GT);
  LLVMValueRef x = gen_expr_lanes(g, a, e->dtype.lanes);
  LLVMValueRef y = gen_expr_lanes(g, b, e->dtype.lanes);
  if (g->t->arch == ARCH_AARCH64) {
    LLVMTypeRef type = LLVMTypeOf(x);
    return gen_intrinsic(g, greater ? "llvm.maximum" : "llvm.minimum", 1, &type, 2, (LLVMValueRef[]){x, y});
  }
  LLVMValueRef best =
      LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, greater ? LLVMRealOGT : LLVMRealOLT, x, y, ""), x, y, "");
  return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, ""), x, best, "");
}

static LLVMValueRef select_value(Gen *g, const Expr *e)
{
  int lanes = e->dtype.lanes;
  LLVMValueRef limit = limited(g, e);
  if (!limit) limit = extreme(g, e);
  if (limit) return limit;
  LLVMValueRef cond = gen_expr(g, e->arg[0]);
  LLVMValueRef a = gen_expr_lanes(g, e->arg[1], lanes);
  LLVMValueRef b = gen_expr_lanes(g, e->arg[2], lanes);
  return LLVMBuildSelect(g->b, cond, a, b, "");
}

/* ---- the walk ---------------------------------------------------------------------------------------- */

static LLVMValueRef ramp(Gen *g, const Expr *e)
{
  int lanes = e->dtype.lanes;
  LLVMTypeRef elem = gen_type(g, dtype_elem(e->dtype));
  LLVMValueRef *step = arena_array(g->arena, LLVMValueRef, lanes);
  for (int i = 0; i < lanes; i++) step[i] = gen_int(g, elem, i);
  LLVMValueRef base = gen_splat(g, gen_expr(g, e->arg[0]), lanes);
  LLVMValueRef stride = gen_splat(g, gen_expr(g, e->arg[1]), lanes);
  return LLVMBuildAdd(g->b, base, LLVMBuildMul(g->b, LLVMConstVector(step, (unsigned)lanes), stride, ""), "");
}

static LLVMValueRef broadcast(Gen *g, const Expr *e)
{
  if (e->arg[0]->dtype.lanes != 1) BUG(g->ctx, "llvm: broadcast of a vector");
  if (e->arg[0]->kind == E_LOAD) g->has_splat_load = true;
  return gen_splat(g, gen_expr(g, e->arg[0]), e->dtype.lanes);
}

static LLVMValueRef node(Gen *g, const Expr *e)
{
  switch ((ExprKind)e->kind) {
  case E_INT: return gen_int(g, gen_type(g, e->dtype), e->u.i);
  case E_FLOAT: return LLVMConstReal(gen_type(g, e->dtype), e->u.f);
  case E_STR: return gen_string(g, e->u.str);
  case E_VAR: return gen_lookup(g, e->u.var)->value;
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE: return binary(g, e);
  case E_AND:
  case E_OR: return logic(g, e);
  case E_NOT: return LLVMBuildNot(g->b, gen_expr(g, e->arg[0]), "");
  case E_CAST: return gen_cast(g, gen_expr(g, e->arg[0]), e->arg[0]->dtype, e->dtype);
  case E_SELECT: return select_value(g, e);
  case E_LET: gen_bind_let(g, e->u.var, e->arg[0]); return gen_expr(g, e->arg[1]);
  case E_LOAD: return gen_load(g, e);
  case E_CALL: return gen_call(g, e);
  case E_RAMP: return ramp(g, e);
  case E_BROADCAST: return broadcast(g, e);
  case E_REDUCE:
  case E_NKINDS: break;
  }
  BUG(g->ctx, "llvm: expression of kind '%s' in kernel '%s'", e->kind < E_NKINDS ? expr_kind_name(e->kind) : "?",
      g->k->name);
}

LLVMValueRef gen_expr(Gen *g, const Expr *e)
{
  if (e->nargs == 0 && e->kind != E_CALL) return node(g, e);
  LLVMValueRef known = memo_get(g, e, false);
  if (known) return known;
  LLVMValueRef v = node(g, e);
  if (e->pure) map_put(g->arena, &g->memo->values, e, v);
  return v;
}

LLVMValueRef gen_expr_lanes(Gen *g, const Expr *e, int lanes)
{
  LLVMValueRef v = gen_expr(g, e);
  return e->dtype.lanes == lanes ? v : gen_splat(g, v, lanes);
}

bool gen_is_index_arithmetic(const Expr *e)
{
  if (e->dtype.code != DT_INT || e->dtype.bits < 32 || HAS(e, E_LOAD)) return false;
  if (e->kind == E_CAST)
    return e->arg[0]->dtype.code == DT_INT && e->arg[0]->dtype.bits >= 32 && e->arg[0]->dtype.bits <= e->dtype.bits;
  return e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL;
}

static LLVMValueRef wide_node(Gen *g, const Expr *e)
{
  if (e->kind == E_INT) return gen_int(g, g->i64, e->u.i);
  if (e->kind == E_VAR) return gen_lookup(g, e->u.var)->wide;
  if (!gen_is_index_arithmetic(e)) return gen_cast(g, gen_expr(g, e), e->dtype, DT_I64);
  LLVMValueRef a = gen_index(g, e->arg[0]);
  if (e->kind == E_CAST) return a;
  LLVMValueRef b = gen_index(g, e->arg[1]);
  if (e->kind == E_ADD) return LLVMBuildNSWAdd(g->b, a, b, "");
  if (e->kind == E_SUB) return LLVMBuildNSWSub(g->b, a, b, "");
  return LLVMBuildNSWMul(g->b, a, b, "");
}

LLVMValueRef gen_index(Gen *g, const Expr *e)
{
  if (!dtype_is_int(e->dtype) || e->dtype.lanes != 1)
    BUG(g->ctx, "llvm: an index of dtype %s", dtype_name(g->arena, e->dtype));
  if (e->nargs == 0) return wide_node(g, e);
  LLVMValueRef known = memo_get(g, e, true);
  if (known) return known;
  LLVMValueRef v = wide_node(g, e);
  if (e->pure) map_put(g->arena, &g->memo->wides, e, v);
  return v;
}
