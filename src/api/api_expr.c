/* api_expr.c: making expressions, variables, axes, buffers and reducers.
 *
 * In: a world and its parts, Python-like literals among them.  Out: expressions of
 * the world.  Operands of different dtypes meet in a common one as TVM's do:
 * a float wins over an integer, more bits over fewer, signed over unsigned; a
 * literal is made in the common dtype at once, so 0.1 beside a float64 is the
 * double 0.1. */
#include "api/api.h"

/* ---- common dtypes ------------------------------------------------------------- */

static DType common_dtype(DType a, DType b)
{
  int lanes = a.lanes > b.lanes ? a.lanes : b.lanes;
  DType x = dtype_elem(a);
  DType y = dtype_elem(b);
  DType t = x;
  if (dtype_is_float(x) && dtype_is_float(y)) t = y.bits > x.bits ? y : x;
  else if (dtype_is_float(x) || dtype_is_float(y)) t = dtype_is_float(x) ? x : y;
  else if (dtype_is_int(x) && dtype_is_int(y))
    t = DTYPE(x.code == y.code ? x.code : DT_INT, x.bits > y.bits ? x.bits : y.bits);
  return dtype_lanes(t, lanes);
}

/* Handles, and floats of one width and two formats, have no common dtype. */
static bool can_convert(DType from, DType to)
{
  if (dtype_eq(from, to)) return true;
  if (from.code == DT_HANDLE || to.code == DT_HANDLE || from.code == DT_VOID || to.code == DT_VOID) return false;
  return !(dtype_is_float(from) && dtype_is_float(to) && from.bits == to.bits);
}

static bool is_literal(const LatheValue *v)
{
  return v->tag == LATHE_BOOL || v->tag == LATHE_INT || v->tag == LATHE_FLOAT;
}

static const Expr *literal(Module *m, DType t, const LatheValue *v)
{
  if (dtype_is_float(t)) return expr_float(m, t, v->tag == LATHE_FLOAT ? v->u.f : (double)v->u.i);
  if (v->tag == LATHE_FLOAT) return expr_const(m, t, v->u.f);
  return expr_int(m, t, v->u.i);
}

/* The n values in their common dtype. */
static void match_values(Call *c, Module *m, int n, const LatheValue *v, const Expr **out)
{
  DType t = DT_NONE;
  for (int i = 0; i < n; i++) {
    out[i] = is_literal(&v[i]) ? NULL : api_value_expr(c, m, &v[i]);
    DType ti = out[i] ? out[i]->dtype : api_literal_dtype(&v[i]);
    t = i == 0 ? ti : common_dtype(t, ti);
  }
  for (int i = 0; i < n; i++) {
    if (!out[i]) out[i] = literal(m, dtype_elem(t), &v[i]);
    else if (can_convert(dtype_elem(out[i]->dtype), dtype_elem(t)))
      out[i] = expr_cast(m, dtype_lanes(t, out[i]->dtype.lanes), out[i]);
    if (out[i]->dtype.lanes == 1 && t.lanes > 1) out[i] = expr_broadcast(m, out[i], t.lanes);
  }
}

/* ---- worlds and leaves ----------------------------------------------------------- */

static void world_new(Call *c)
{
  Module *m = api_new_module(c);
  World *w = arena_new_of(m->arena, World);
  w->m = m;
  m->origins = arena_new_of(m->arena, Map);
  *c->out = api_val_object(c, LATHE_WORLD, w, 0, m, NULL);
  w->older = c->context->world;
  c->context->world = w;
}

static void make_const(Call *c)
{
  Module *m = api_arg_world(c);
  DType t = api_arg_given(c, 2) ? api_arg_dtype(c, 2) : api_literal_dtype(&c->arg[1]);
  if (!dtype_is_int(t) && !dtype_is_float(t))
    raise(c->ctx, ERR_TYPE, NOWHERE, "const: a literal cannot have dtype %s", dtype_name(scratch(c->ctx), t));
  const Expr *e = literal(m, dtype_elem(t), &c->arg[1]);
  *c->out = api_val_expr(c, m, t.lanes > 1 ? expr_broadcast(m, e, t.lanes) : e);
}

static void make_str(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_expr(c, m, expr_str(m, api_arg_str(c, 1)));
}

static void make_var(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out =
      api_val_var(c, m, var_new(m, api_arg_str(c, 1), api_arg_dtype(c, 2), api_arg_bool(c, 3) ? VAR_SIZE : VAR_PLAIN));
}

static const char *const iter_kinds[] = {"spatial", "reduce", "opaque", "thread"};

static IterKind iter_kind(Call *c, int i)
{
  const char *s = api_arg_str(c, i);
  for (int k = 0; k < 4; k++)
    if (!strcmp(s, iter_kinds[k])) return (IterKind)k;
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "unknown kind of axis '%s'; known are spatial, reduce, opaque, thread", s);
}

static void make_itervar(Call *c)
{
  Module *m = api_arg_world(c);
  IterKind kind = iter_kind(c, 4);
  const Var *v = api_arg_var(c, m, 1);
  const Expr *min = api_arg_expr(c, m, 2);
  const Expr *extent = api_arg_expr(c, m, 3);
  *c->out = api_val_itervar(c, m, itervar_new(m, v, min, extent, kind, api_arg_str(c, 5)));
}

static void make_buffer(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **shape, **strides;
  int ndim = api_arg_exprs(c, m, 3, &shape);
  int nstrides = api_arg_exprs(c, m, 4, &strides);
  const char *name = api_arg_str(c, 1);
  if (nstrides && nstrides != ndim)
    raise(c->ctx, ERR_SHAPE, NOWHERE, "buffer '%s': %d strides for %d dimensions", name, nstrides, ndim);
  const Buffer *b = buffer_new(m, name, api_arg_dtype(c, 2), ndim, shape, nstrides ? strides : NULL,
                               api_arg_expr(c, m, 5), api_arg_str(c, 6), api_arg_int32(c, 7, 0, 1 << 20),
                               api_arg_int32(c, 8, 0, 1 << 20), api_arg_var(c, m, 9));
  int separators = api_arg_int32(c, 10, 0, INT32_MAX);
  if (separators >> ndim > 1)
    raise(c->ctx, ERR_SHAPE, NOWHERE, "buffer '%s' has an axis separator behind its %d dimensions", name, ndim);
  *c->out = api_val_buffer(c, m, buffer_with_separators(m, b, (uint32_t)separators));
}

/* Operators on literals give literals, so that shapes computed from shapes are
 * plain numbers. */
static LatheValue folded(Call *c, Module *m, const Expr *e)
{
  bool literals = e->nargs > 0;
  for (int i = 0; i < e->nargs; i++) literals &= expr_is_const(e->arg[i]);
  const Expr *value = literals ? expr_fold(m, e) : NULL;
  return api_val_expr(c, m, value ? value : e);
}

/* ---- operators ---------------------------------------------------------------------- */

static bool find_operator(const char *name, ExprKind *out)
{
  for (ExprKind k = E_ADD; k <= E_OR; k++)
    if (!strcmp(expr_kind_name(k), name)) {
      *out = k;
      return true;
    }
  return false;
}

static void make_binary(Call *c)
{
  Module *m = api_arg_world(c);
  const char *name = api_arg_str(c, 1);
  const Expr *v[2];
  ExprKind kind;
  Intrin intrin;
  match_values(c, m, 2, &c->arg[2], v);
  if (find_operator(name, &kind)) {
    const Expr *e = expr_binary(m, kind, v[0], v[1]);
    *c->out = api_arg_bool(c, 4) ? api_val_expr(c, m, e) : folded(c, m, e);
  } else if (intrin_find(name, &intrin)) *c->out = api_val_expr(c, m, expr_call(m, v[0]->dtype, intrin, 2, v));
  else raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no operator '%s'", name);
}

static void make_not(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = folded(c, m, expr_not(m, api_arg_expr(c, m, 1)));
}

static void make_cast(Call *c)
{
  Module *m = api_arg_world(c);
  DType t = api_arg_dtype(c, 1);
  if (is_literal(&c->arg[2]) && t.lanes == 1 && (dtype_is_int(t) || dtype_is_float(t)))
    *c->out = api_val_expr(c, m,
                           expr_value(m, value_cast(c->arg[2].tag == LATHE_FLOAT ? value_float(DT_F64, c->arg[2].u.f)
                                                                                 : value_int(DT_I64, c->arg[2].u.i),
                                                    t)));
  else *c->out = folded(c, m, expr_cast(m, t, api_arg_expr(c, m, 2)));
}

static void make_select(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *v[2];
  const Expr *cond = api_arg_expr(c, m, 1);
  match_values(c, m, 2, &c->arg[2], v);
  *c->out = api_val_expr(c, m, expr_select(m, cond, v[0], v[1]));
}

static void make_let(Call *c)
{
  Module *m = api_arg_world(c);
  const Var *v = api_arg_var(c, m, 1);
  const Expr *value = api_arg_expr(c, m, 2);
  const Expr *body = api_arg_expr(c, m, 3);
  *c->out = api_val_expr(c, m, expr_let(m, v, value, body));
}

static void make_load(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **index;
  int n = api_arg_exprs(c, m, 2, &index);
  const Buffer *b = api_value_buffer(c, m, &c->arg[1]);
  *c->out = api_val_expr(c, m, expr_load(m, b, n, index));
}

/* Lanes as the API has them: negative, that many times vscale(). */
static int arg_lanes(Call *c, int i)
{
  int lanes = api_arg_int32(c, i, -MAX_LANES, MAX_LANES);
  return lanes < 0 ? LANES_SCALABLE | -lanes : lanes;
}

static void make_ramp(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *v[2];
  match_values(c, m, 2, &c->arg[1], v);
  *c->out = api_val_expr(c, m, expr_ramp(m, v[0], v[1], arg_lanes(c, 3)));
}

static void make_broadcast(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_expr(c, m, expr_broadcast(m, api_arg_expr(c, m, 1), arg_lanes(c, 2)));
}

/* Arguments of functions on numbers meet in one dtype; the others stay as given. */
static void call_arguments(Call *c, Module *m, Intrin intrin, int n, const LatheValue *v, const Expr **arg)
{
  int flags = intrin_info(intrin)->flags;
  int keep = intrin == IN_IF_THEN_ELSE ? 1 : 0;
  for (int i = 0; i < keep && i < n; i++) arg[i] = api_value_expr(c, m, &v[i]);
  if (n > keep && ((flags & (INF_FLOAT | INF_INT)) || intrin == IN_IF_THEN_ELSE))
    match_values(c, m, n - keep, v + keep, arg + keep);
  else
    for (int i = keep; i < n; i++) arg[i] = api_value_expr(c, m, &v[i]);
}

static void make_call(Call *c)
{
  Module *m = api_arg_world(c);
  const char *name = api_arg_str(c, 1);
  const LatheValue *v;
  int n = api_arg_list(c, 3, &v);
  Intrin intrin;
  if (!intrin_find(name, &intrin)) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no intrinsic '%s'", name);
  const IntrinInfo *info = intrin_info(intrin);
  if (n < info->min_args || (info->max_args >= 0 && n > info->max_args))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s takes %d%s arguments, %d were given", name, info->min_args,
          info->max_args == info->min_args ? ""
          : info->max_args < 0             ? " or more"
                                           : " or a few more",
          n);
  const Expr **arg = arena_array(scratch(c->ctx), const Expr *, n + 1);
  call_arguments(c, m, intrin, n, v, arg);
  DType t = api_arg_given(c, 2) ? api_arg_dtype(c, 2) : intrin == IN_IF_THEN_ELSE ? arg[1]->dtype : DT_NONE;
  *c->out = api_val_expr(c, m, expr_call(m, t, intrin, n, arg));
}

/* ---- reductions ------------------------------------------------------------------------ */

static void make_named_reducer(Call *c)
{
  Module *m = api_arg_world(c);
  const char *name = api_arg_str(c, 1);
  const Reducer *r = reducer_named(m, name, api_arg_dtype(c, 2), api_arg_given(c, 3) ? api_arg_dtype(c, 3) : DT_I32);
  if (!r)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no reducer '%s'; known are sum prod min max any all argmin argmax",
          name);
  *c->out = api_val_object(c, LATHE_REDUCER, r, 0, m, NULL);
}

static void make_reducer(Call *c)
{
  Module *m = api_arg_world(c);
  const Var **lhs, **rhs;
  const Expr **result, **identity;
  int n = api_arg_vars(c, m, 2, &lhs);
  if (n == 0 || api_arg_vars(c, m, 3, &rhs) != n || api_arg_exprs(c, m, 4, &result) != n ||
      api_arg_exprs(c, m, 5, &identity) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "reducer '%s': wants as many right sides, results and identities as left sides (%d)", api_arg_str(c, 1), n);
  for (int i = 0; i < n; i++) {
    if (expr_is_const(result[i])) result[i] = expr_cast(m, lhs[i]->dtype, result[i]);
    if (expr_is_const(identity[i])) identity[i] = expr_cast(m, lhs[i]->dtype, identity[i]);
  }
  *c->out =
      api_val_object(c, LATHE_REDUCER, reducer_new(m, api_arg_str(c, 1), n, lhs, rhs, result, identity), 0, m, NULL);
}

static void make_reduce(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **source, **init;
  const void **axis;
  const Reducer *r = api_arg_ptr(c, 1);
  int n = api_arg_exprs(c, m, 2, &source);
  int naxis = api_arg_ptrs(c, m, 3, &axis);
  int ninit = api_arg_exprs(c, m, 5, &init);
  if (ninit && ninit != n) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "reduce: %d initial values for %d sources", ninit, n);
  for (int i = 0; i < n && i < r->n; i++) {
    if (expr_is_const(source[i])) source[i] = expr_cast(m, r->lhs[i]->dtype, source[i]);
    if (ninit && expr_is_const(init[i])) init[i] = expr_cast(m, r->lhs[i]->dtype, init[i]);
  }
  const Expr *cond = api_arg_given(c, 4) ? api_arg_expr(c, m, 4) : expr_bool(m, true);
  int index = api_arg_int32(c, 6, 0, n);
  *c->out = api_val_expr(
      c, m, expr_reduce(m, r, n, source, naxis, (const IterVar *const *)axis, cond, ninit ? init : NULL, index));
}

/* ---- rewriting ---------------------------------------------------------------------------- */

static void substitute(Call *c)
{
  Module *m = api_arg_world(c);
  const Var **vars;
  const Expr **values;
  const Expr *e = api_arg_expr(c, m, 1);
  int n = api_arg_vars(c, m, 2, &vars);
  if (api_arg_exprs(c, m, 3, &values) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "substitute: %d variables want as many values", n);
  Map map = {0};
  for (int i = 0; i < n; i++) map_put(scratch(c->ctx), &map, vars[i], (void *)values[i]);
  *c->out = api_val_expr(c, m, expr_substitute(m, e, &map));
}

const ApiFunction api_expr_functions[] = {
  {"world", " -> world", "a place to make expressions and tensors in", world_new},
  {"const", "world: world, value: bool|int|float, dtype: str? -> expr", "a literal", make_const},
  {"string", "world: world, text: str -> expr", "a string literal", make_str},
  {"var", "world: world, name: str, dtype: str, size: bool -> var", "a variable; size: known to be at least 0",
   make_var},
  {"itervar", "world: world, var: var, min: expr?, extent: expr?, kind: str, thread_tag: str? -> itervar", "an axis",
   make_itervar},
  {"buffer",
   "world: world, name: str, dtype: str, shape: list[expr], strides: list[expr]?, elem_offset: expr?, scope: str?, "
   "align: int?, "
   "offset_factor: int?, data: var?, separators: int? -> buffer",
   "memory that loads and stores refer to", make_buffer},
  {"binary", "world: world, op: str, a: expr, b: expr, as_written: bool? -> expr",
   "a op b, in their common dtype; on literals the value, unless it is wanted as written", make_binary},
  {"not", "world: world, a: expr -> expr", "logical negation", make_not},
  {"cast", "world: world, dtype: str, value: expr -> expr", "value converted to dtype", make_cast},
  {"select", "world: world, cond: expr, a: expr, b: expr -> expr", "a where cond holds, else b; both are evaluated",
   make_select},
  {"let", "world: world, var: var, value: expr, body: expr -> expr", "body with var = value", make_let},
  {"load", "world: world, buffer: buffer, indices: list[expr] -> expr", "an element of a buffer", make_load},
  {"ramp", "world: world, base: expr, stride: expr, lanes: int -> expr",
   "base, base + stride, …; lanes < 0: times vscale()", make_ramp},
  {"broadcast", "world: world, value: expr, lanes: int -> expr", "a vector of equal lanes", make_broadcast},
  {"call", "world: world, name: str, dtype: str?, args: list[expr|str] -> expr", "a call of an intrinsic", make_call},
  {"reducer_named", "world: world, name: str, dtype: str, index_dtype: str? -> reducer", "a ready-made reducer",
   make_named_reducer},
  {"reducer",
   "world: world, name: str, lhs: list[var], rhs: list[var], result: list[expr], identity: list[expr] -> reducer",
   "a user's commutative reducer", make_reducer},
  {"reduce",
   "world: world, reducer: reducer, source: list[expr], axis: list[itervar], cond: expr?, init: list[expr]?, index: "
   "int -> expr",
   "a reduction over axes", make_reduce},
  {"substitute", "world: world, e: expr, vars: list[var], values: list[expr] -> expr", "variables replaced by values",
   substitute},
  {0},
};
