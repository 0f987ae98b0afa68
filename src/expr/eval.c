/* eval.c: what an expression means, lane by lane.
 *
 * In: an expression, an environment with the values of its variables and a way
 * to load.  Out: one scalar Value, computed exactly as the head of expr.h says.
 * Everything else in the project is checked against this file, so it is written
 * to be obviously right, not fast.
 *
 * An interned expression is a graph: walked as a tree it may be exponential.
 * After STEPS_PLAIN nodes the walk starts to remember results; a remembered
 * result never crosses a change of a variable, and calls with effects are never
 * remembered. */
#include "expr/expr.h"

enum { STEPS_PLAIN = 4096 };

typedef struct Eval {
  EvalEnv *env;
  Ctx *ctx;
  int64_t steps;
  Map memo; /* Expr* and lane -> Value* */
} Eval;

static Value eval(Eval *, const Expr *, int lane);

/* Value of an argument in the given lane of the whole: scalars serve all lanes. */
static Value eval_arg(Eval *v, const Expr *e, int lane) { return eval(v, e, e->dtype.lanes == 1 ? 0 : lane); }

static bool is_true(Value v) { return dtype_is_float(v.dtype) ? v.f != 0 : v.i != 0; }

void expr_eval_bind(EvalEnv *env, const Var *var, Value value)
{
  Value *slot = map_get(&env->vars, var);
  if (!slot) {
    slot = arena_new_of(env->arena, Value);
    map_put(env->arena, &env->vars, var, slot);
  }
  *slot = value;
}

/* ---- variables and scopes ------------------------------------------------ */

static Value eval_var(Eval *v, const Expr *e, int lane)
{
  const Value *value = map_get(&v->env->vars, e->u.var);
  if (!value) raise(v->ctx, ERR_ARGUMENT, NOWHERE, "evaluation: variable '%s' has no value", e->u.var->name);
  return value[lane];
}

/* Evaluates body with var bound to the values given; results remembered so far
 * are set aside, because they may depend on the variable's old value. */
static Value eval_with(Eval *v, const Var *var, Value *values, const Expr *body, int lane)
{
  void *old = map_get(&v->env->vars, var);
  Map memo = v->memo;
  map_put(v->env->arena, &v->env->vars, var, values);
  v->memo = (Map){0};
  Value result = eval(v, body, lane);
  v->memo = memo;
  map_put(v->env->arena, &v->env->vars, var, old);
  return result;
}

static Value eval_let(Eval *v, const Expr *e, int lane)
{
  int lanes = e->arg[0]->dtype.lanes;
  Value few[16];
  Value *values = lanes <= 16 ? few : arena_array(v->env->arena, Value, lanes);
  for (int i = 0; i < lanes; i++) values[i] = eval(v, e->arg[0], i);
  return eval_with(v, e->u.var, values, e->arg[1], lane);
}

/* ---- loads and reductions -------------------------------------------------- */

static Value eval_load(Eval *v, const Expr *e, int lane)
{
  if (!v->env->load)
    raise(v->ctx, ERR_ARGUMENT, NOWHERE, "evaluation: buffer '%s' is read, but no memory was given", e->u.buffer->name);
  if (e->u.buffer->dtype.lanes != 1)
    raise(v->ctx, ERR_UNSUPPORTED, NOWHERE, "evaluation: buffer '%s' has vector elements; give it scalar elements",
          e->u.buffer->name);
  int64_t few[8];
  int64_t *index = e->nargs <= 8 ? few : arena_array(v->env->arena, int64_t, e->nargs);
  for (int i = 0; i < e->nargs; i++) index[i] = eval_arg(v, e->arg[i], lane).i;
  return v->env->load(v->env, e->u.buffer, e->nargs, index);
}

enum { REDUCE_FEW = 4 };

/* One step of a reduction: acc := result(acc, source). */
static void reduce_step(Eval *v, const Expr *e, Value *acc, Value *next)
{
  const Reducer *r = e->u.reduce->reducer;
  v->steps = 0;
  v->memo = (Map){0};
  if (!is_true(eval(v, e->arg[r->n], 0))) return;
  for (int i = 0; i < r->n; i++) next[i] = eval(v, e->arg[i], 0);
  for (int i = 0; i < r->n; i++) {
    expr_eval_bind(v->env, r->lhs[i], acc[i]);
    expr_eval_bind(v->env, r->rhs[i], next[i]);
  }
  v->memo = (Map){0};
  for (int i = 0; i < r->n; i++) next[i] = eval(v, r->result[i], 0);
  memcpy(acc, next, (size_t)r->n * sizeof *acc);
}

static void reduce_axis(Eval *v, const Expr *e, int axis, Value *acc, Value *next)
{
  const Reduce *r = e->u.reduce;
  if (axis == r->naxis) {
    reduce_step(v, e, acc, next);
    return;
  }
  const IterVar *iv = r->axis[axis];
  v->memo = (Map){0};
  int64_t min = eval(v, iv->min, 0).i;
  int64_t extent = eval(v, iv->extent, 0).i;
  for (int64_t i = 0; i < extent; i++) {
    expr_eval_bind(v->env, iv->var, value_int(iv->var->dtype, min + i));
    reduce_axis(v, e, axis + 1, acc, next);
  }
}

static Value eval_reduce(Eval *v, const Expr *e)
{
  const Reduce *r = e->u.reduce;
  int n = r->reducer->n;
  int64_t steps = v->steps;
  Map memo = v->memo;
  Value few[2 * REDUCE_FEW];
  Value *acc = n <= REDUCE_FEW ? few : arena_array(v->env->arena, Value, 2 * n);
  for (int i = 0; i < n; i++) acc[i] = eval(v, r->has_init ? e->arg[n + 1 + i] : r->reducer->identity[i], 0);
  reduce_axis(v, e, 0, acc, acc + n);
  v->memo = memo;
  v->steps = steps;
  return acc[r->value_index];
}

/* ---- calls ------------------------------------------------------------------ */

static Value eval_vector_sum(Eval *v, const Expr *e)
{
  Value sum = eval(v, e->arg[0], 0);
  for (int i = 1; i < e->arg[0]->dtype.lanes; i++) {
    Value x = eval(v, e->arg[0], i);
    expr_eval_binary(E_ADD, sum, x, &sum);
  }
  return sum;
}

/* The same bytes read as another dtype, also with another number of lanes. */
static Value eval_reinterpret(Eval *v, const Expr *e, int lane)
{
  const Expr *a = e->arg[0];
  int size = dtype_bytes(e->dtype);
  int from = dtype_bytes(a->dtype);
  unsigned char bytes[8] = {0};
  unsigned char source[8];
  for (int i = 0; i < size; i++) {
    int at = lane * size + i;
    if (at / from >= a->dtype.lanes) break;
    if (i == 0 || at % from == 0 || i % from == 0) value_store(eval(v, a, at / from), source);
    bytes[i] = source[at % from];
  }
  return value_load(dtype_elem(e->dtype), bytes);
}

static Value eval_call(Eval *v, const Expr *e, int lane)
{
  Intrin in = e->u.intrin;
  if (in == IN_IF_THEN_ELSE) return eval_arg(v, e->arg[is_true(eval_arg(v, e->arg[0], lane)) ? 1 : 2], lane);
  if (in == IN_LIKELY) return eval_arg(v, e->arg[0], lane);
  if (in == IN_VECTOR_SUM) return eval_vector_sum(v, e);
  if (in == IN_REINTERPRET) return eval_reinterpret(v, e, lane);
  if (in == IN_PREFETCH || in == IN_PARALLEL_SLOT || in == IN_ASSUME) return value_int(e->dtype, 0);
  if (intrin_is_math(in)) {
    Value arg[32], out; /* dot takes the most */
    for (int i = 0; i < e->nargs; i++) arg[i] = eval_arg(v, e->arg[i], lane);
    intrin_eval(in, dtype_elem(e->dtype), e->nargs, arg, &out);
    return out;
  }
  if (!v->env->call)
    raise(v->ctx, ERR_UNSUPPORTED, NOWHERE, "evaluation: intrinsic '%s' has no value here", intrin_info(in)->name);
  return v->env->call(v->env, e, lane);
}

/* ---- the walk ---------------------------------------------------------------- */

static Value eval_binary_node(Eval *v, const Expr *e, int lane)
{
  Value a = eval_arg(v, e->arg[0], lane);
  Value b = eval_arg(v, e->arg[1], lane);
  Value out;
  if (!expr_eval_binary(e->kind, a, b, &out))
    raise(v->ctx, ERR_ARGUMENT, NOWHERE, "evaluation: division by zero in '%s'", expr_str_of(scratch(v->ctx), e));
  return out;
}

static Value eval_ramp(Eval *v, const Expr *e, int lane)
{
  Value base = eval(v, e->arg[0], 0);
  Value stride = eval(v, e->arg[1], 0);
  return value_int(dtype_elem(e->dtype), (int64_t)((uint64_t)base.i + (uint64_t)stride.i * (uint64_t)lane));
}

static Value eval_node(Eval *v, const Expr *e, int lane)
{
  switch ((ExprKind)e->kind) {
  case E_INT: return value_int(e->dtype, e->u.i);
  case E_FLOAT: return value_float(e->dtype, e->u.f);
  case E_STR: return (Value){.dtype = DT_PTR, .p = (void *)(uintptr_t)e->u.str};
  case E_VAR: return eval_var(v, e, lane);
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
  case E_GE: return eval_binary_node(v, e, lane);
  case E_AND: return value_int(DT_BOOL, is_true(eval_arg(v, e->arg[0], lane)) && is_true(eval_arg(v, e->arg[1], lane)));
  case E_OR: return value_int(DT_BOOL, is_true(eval_arg(v, e->arg[0], lane)) || is_true(eval_arg(v, e->arg[1], lane)));
  case E_NOT: return value_int(DT_BOOL, !is_true(eval_arg(v, e->arg[0], lane)));
  case E_CAST: return value_cast(eval_arg(v, e->arg[0], lane), dtype_elem(e->dtype));
  case E_SELECT: {
    bool take = is_true(eval_arg(v, e->arg[0], lane));
    Value a = eval_arg(v, e->arg[1], lane);
    Value b = eval_arg(v, e->arg[2], lane);
    return take ? a : b;
  }
  case E_LET: return eval_let(v, e, lane);
  case E_LOAD: return eval_load(v, e, lane);
  case E_CALL: return eval_call(v, e, lane);
  case E_RAMP: return eval_ramp(v, e, lane);
  case E_BROADCAST: return eval(v, e->arg[0], 0);
  case E_REDUCE: return eval_reduce(v, e);
  case E_NKINDS: break;
  }
  BUG(v->ctx, "expression of kind %d", e->kind);
}

/* May a result be remembered?  Leaves are not worth it, effects must happen. */
static bool is_memorable(const Expr *e)
{
  return e->nargs > 0 && (e->kind != E_CALL || (intrin_info(e->u.intrin)->flags & INF_PURE));
}

static Value eval(Eval *v, const Expr *e, int lane)
{
  bool remember = ++v->steps > STEPS_PLAIN && is_memorable(e);
  if (!remember) return eval_node(v, e, lane);
  const void *key = (const void *)((uintptr_t)e | (uintptr_t)lane << 48); /* addresses have 48 bits */
  const Value *known = map_get(&v->memo, key);
  if (known) return *known;
  Value value = eval_node(v, e, lane);
  map_put(v->env->arena, &v->memo, key, arena_copy(v->env->arena, &value, sizeof value));
  return value;
}

Value expr_eval(EvalEnv *env, const Expr *e, int lane)
{
  Eval v = {.env = env, .ctx = env->m->ctx};
  return eval(&v, e, lane);
}

/* ---- folding ------------------------------------------------------------------- */

static bool literal_value(const Expr *e, Value *out)
{
  if (e->kind == E_INT) return *out = value_int(e->dtype, e->u.i), true;
  if (e->kind == E_FLOAT) return *out = value_float(e->dtype, e->u.f), true;
  return false;
}

/* The smallest integer divided by -1 has no value to fold to. */
static bool is_overflowing_division(ExprKind k, Value a, Value b)
{
  if (k != E_DIV && k != E_MOD && k != E_FLOORDIV && k != E_FLOORMOD) return false;
  return a.dtype.code == DT_INT && b.i == -1 && a.i == dtype_imin(a.dtype);
}

static const Expr *fold_call(Module *m, const Expr *e, const Value *arg)
{
  Intrin in = e->u.intrin;
  if (in == IN_LIKELY) return e->arg[0];
  if (in == IN_IF_THEN_ELSE) return e->arg[is_true(arg[0]) ? 1 : 2];
  if (!dtype_is_int(e->dtype) && !dtype_is_float(e->dtype)) return NULL;
  if (in == IN_REINTERPRET) {
    unsigned char bytes[8] = {0};
    value_store(arg[0], bytes);
    return expr_value(m, value_load(e->dtype, bytes));
  }
  if (!intrin_is_math(in)) return NULL;
  Value out;
  intrin_eval(in, e->dtype, e->nargs, arg, &out);
  return expr_value(m, out);
}

const Expr *expr_fold(Module *m, const Expr *e)
{
  Value arg[32], out; /* dot takes the most */
  if (e->nargs == 0 || e->nargs > 4 || e->dtype.lanes != 1) return NULL;
  for (int i = 0; i < e->nargs; i++)
    if (!literal_value(e->arg[i], &arg[i])) return NULL;
  switch ((ExprKind)e->kind) {
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
  case E_GE:
    if (is_overflowing_division(e->kind, arg[0], arg[1])) return NULL;
    return expr_eval_binary(e->kind, arg[0], arg[1], &out) ? expr_value(m, out) : NULL;
  case E_AND: return expr_bool(m, is_true(arg[0]) && is_true(arg[1]));
  case E_OR: return expr_bool(m, is_true(arg[0]) || is_true(arg[1]));
  case E_NOT: return expr_bool(m, !is_true(arg[0]));
  case E_CAST:
    if (!dtype_is_int(e->dtype) && !dtype_is_float(e->dtype)) return NULL;
    return expr_value(m, value_cast(arg[0], e->dtype));
  case E_SELECT: return e->arg[is_true(arg[0]) ? 1 : 2];
  case E_LET: return e->arg[1];
  case E_CALL: return fold_call(m, e, arg);
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_VAR:
  case E_LOAD:
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: return NULL;
  }
  return NULL;
}
