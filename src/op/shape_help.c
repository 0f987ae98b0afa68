/* shape_help.c: checks, index arithmetic and loop programs for the shape, index and order
 * families (shape.h).
 *
 * A loop program is an extern stage of te: statements over buffers that stand for the
 * call's inputs and outputs, so that it composes with every other compute. */
#include "op/shape.h"

/* ---- dimensions ------------------------------------------------------------------------------ */

bool dim_differ(const Expr *a, const Expr *b) { return a->kind == E_INT && b->kind == E_INT && a->u.i != b->u.i; }

bool dim_never_negative(Module *m, const Expr *e)
{
  if (e->kind == E_INT) return e->u.i >= 0;
  Scope s = scope_begin(m->ctx);
  bool yes = analyzer_prove(analyzer_new(m, scratch(m->ctx)), expr_binary(m, E_GE, e, expr_i32(m, 0)));
  scope_end(m->ctx, s);
  return yes;
}

const char *op_dims_text(OpCall *c, int n, const Expr *const *dim)
{
  Text t = text_new(c->m->arena);
  text_char(&t, '(');
  for (int i = 0; i < n; i++)
    text_printf(&t, "%s%s", i ? ", " : "", type_dim_is_any(dim[i]) ? "?" : expr_str_of(c->m->arena, dim[i]));
  text_char(&t, ')');
  return text_str(&t);
}

const char *op_arg_text(OpCall *c, int i) { return type_text(c->m->arena, c->arg[i]); }

const Type *op_int_tensor_arg(OpCall *c, int i)
{
  const Type *ty = op_tensor_arg(c, i);
  if (!dtype_is_int(ty->dtype))
    opdef_raise(c, ERR_TYPE, "argument %d is %s; it must hold integers", i, op_arg_text(c, i));
  return ty;
}

const Type *op_ranked_tensor_arg(OpCall *c, int i, int ndim)
{
  const Type *ty = op_tensor_arg(c, i);
  if (ndim >= 0 && ty->ndim != ndim)
    opdef_raise(c, ERR_SHAPE, "argument %d is %s; it must have %d dimension%s", i, op_arg_text(c, i), ndim,
                ndim == 1 ? "" : "s");
  return ty;
}

const Type *op_filled_tuple_arg(OpCall *c, int i)
{
  if (op_tuple_arg(c, i) < 1)
    opdef_raise(c, ERR_ARGUMENT, "argument %d is an empty tuple; it has at least one tensor", i);
  return c->arg[i];
}

void op_check_rank(OpCall *c, int ndim)
{
  if (ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "the result would have %d dimensions; there are at most %d", ndim, MAX_RANK);
}

/* ---- computes ------------------------------------------------------------------------------------- */

const Expr *op_emit_read1(Module *m, const Tensor *t, const Expr *i) { return te_read(m, t, t->buffer->ndim, &i); }
const Expr **op_emit_copy_index(Module *m, int n, const Expr *const *index)
{
  return arena_copy(m->arena, index, (size_t)n * sizeof *index);
}

const Expr *op_emit_if(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  if (!dtype_eq(a->dtype, b->dtype)) {
    DType t = expr_add(m, a, b)->dtype;
    a = expr_cast(m, t, a);
    b = expr_cast(m, t, b);
  }
  return expr_call(m, a->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, a, b});
}

static const Expr *choose(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  DType t = expr_add(m, a, b)->dtype;
  return expr_select(m, cond, expr_cast(m, t, a), expr_cast(m, t, b));
}

const Expr *op_emit_from_end(Module *m, const Expr *index, const Expr *extent)
{
  if (index->kind == E_INT) return index->u.i < 0 ? dim_add(m, index, extent) : index;
  if (index->dtype.code == DT_UINT) return index;
  return choose(m, expr_lt(m, index, expr_int(m, index->dtype, 0)), expr_add(m, index, extent), index);
}

const Expr *op_emit_clamp(Module *m, const Expr *e, const Expr *lo, const Expr *hi)
{
  return expr_max(m, expr_min(m, e, hi), lo);
}

const Expr *op_emit_flatten(Module *m, int n, const Expr *const *shape, const Expr *const *index)
{
  const Expr *flat = NULL;
  for (int i = 0; i < n; i++) flat = flat ? expr_add(m, expr_mul(m, flat, shape[i]), index[i]) : index[i];
  return flat ? flat : expr_i32(m, 0);
}

void op_emit_unflatten(Module *m, const Expr *flat, int n, const Expr *const *shape, const Expr **index)
{
  for (int i = n - 1; i >= 0; i--) {
    if (expr_is_int(shape[i], 1)) {
      index[i] = expr_int(m, shape[i]->dtype, 0);
      continue;
    }
    bool last = true;
    for (int k = 0; k < i; k++) last = last && expr_is_int(shape[k], 1);
    index[i] = last ? flat : expr_floormod(m, flat, shape[i]);
    if (!last) flat = expr_floordiv(m, flat, shape[i]);
  }
}

/* The dimensions of both sides part into groups of equal size; inside a group the
 * position is flattened.  With a size that is no literal a group ends only where the
 * dimensions themselves are equal. */
typedef struct Group {
  int i0, i1, o0, o1;
} Group;

static Group next_group(Module *m, int nin, const Expr *const *in, int nout, const Expr *const *out, int i, int o)
{
  Group g = {i, i + (i < nin), o, o + (o < nout)};
  int i_end = nin;
  int o_end = nout;
  while (i_end > g.i1 && o_end > g.o1 && dim_same(m, in[i_end - 1], out[o_end - 1])) i_end--, o_end--;
  for (;;) {
    const Expr *a = dim_product(m, g.i1 - g.i0, in + g.i0);
    const Expr *b = dim_product(m, g.o1 - g.o0, out + g.o0);
    if (dim_same(m, a, b) && g.i1 > g.i0 && g.o1 > g.o0) return g;
    bool small_in = a->kind == E_INT && b->kind == E_INT ? a->u.i < b->u.i : g.i1 - g.i0 <= g.o1 - g.o0;
    if (small_in && g.i1 < i_end) g.i1++;
    else if (g.o1 < o_end && (a->kind != E_INT || b->kind != E_INT || a->u.i > b->u.i)) g.o1++;
    else if (g.i1 < i_end && (a->kind != E_INT || b->kind != E_INT)) g.i1++;
    else return (Group){i, nin, o, nout};
  }
}

const Expr *const *op_emit_reshape_index(Module *m, int nin, const Expr *const *in, int nout, const Expr *const *out,
                                         const Expr *const *index)
{
  static const Expr *const none[1]; /* a scalar may come without a list */
  const Expr **at = arena_array(m->arena, const Expr *, nin);
  if (!nin) in = none;
  if (!nout) out = index = none;
  for (int i = 0, o = 0; i < nin || o < nout;) {
    Group g = next_group(m, nin, in, nout, out, i, o);
    if (g.i1 - g.i0 == 1 && g.o1 - g.o0 == 1) at[g.i0] = index[g.o0];
    else
      op_emit_unflatten(m, op_emit_flatten(m, g.o1 - g.o0, out + g.o0, index + g.o0), g.i1 - g.i0, in + g.i0,
                        at + g.i0);
    i = g.i1;
    o = g.o1;
  }
  return at;
}

const Tensor *op_emit_reshape(OpCall *c, const char *name, const Tensor *t, int nout, const Expr *const *shape)
{
  OpAxes ax = op_axes(c, nout, shape);
  return op_emit(
      c, &ax, name,
      op_read(c->m, t, op_emit_reshape_index(c->m, t->buffer->ndim, t->buffer->shape, nout, shape, ax.index)));
}

/* ---- loop programs ----------------------------------------------------------------------------------- */

Loops loops_begin(OpCall *c, int nin, const Tensor *const *in)
{
  Module *m = c->m;
  const Type *const *out = c->out->kind == TY_TUPLE ? c->out->field : &c->out;
  Loops l = {.m = m, .nin = nin, .nout = c->out->kind == TY_TUPLE ? c->out->nfield : 1, .in = in};
  l.ib = arena_array(m->arena, const Buffer *, nin);
  l.ob = arena_array(m->arena, const Buffer *, l.nout);
  for (int i = 0; i < nin; i++) {
    const Buffer *b = in[i]->buffer;
    l.ib[i] = buffer_new(m, b->name, b->dtype, b->ndim, b->shape, NULL, NULL, NULL, 0, 0, NULL);
  }
  for (int i = 0; i < l.nout; i++)
    l.ob[i] = buffer_new(m, arena_printf(m->arena, "out%d", i), out[i]->dtype, out[i]->ndim, out[i]->shape, NULL, NULL,
                         NULL, 0, 0, NULL);
  return l;
}

void loops_end(Loops *l, const char *name, Stmt *body, const Tensor **out)
{
  const TeOp *op = te_extern(l->m, name, "extern", l->nin, l->in, l->ib, l->nout, l->ob, body, NULL);
  for (int i = 0; i < l->nout; i++) out[i] = &op->out[i];
}

const Buffer *loops_local(Module *m, const char *name, DType t, const Expr *extent)
{
  return buffer_new(m, name, t, 1, &extent, NULL, NULL, expr_is_int(extent, 1) ? "local" : NULL, 0, 0, NULL);
}

const Expr *loops_get(Module *m, const Buffer *b, const Expr *i) { return expr_load(m, b, 1, &i); }
Stmt *loops_set(Module *m, const Buffer *b, const Expr *i, const Expr *v)
{
  return stmt_store(m, b, 1, &i, expr_cast(m, b->dtype, v));
}
const Expr *loops_load(Module *m, const Buffer *b, const Expr *const *index) { return expr_load(m, b, b->ndim, index); }
Stmt *loops_store(Module *m, const Buffer *b, const Expr *const *index, const Expr *v)
{
  return stmt_store(m, b, b->ndim, index, expr_cast(m, b->dtype, v));
}
const Var *loops_var(Module *m, const char *name) { return var_new(m, name, DT_I32, VAR_PLAIN); }

void loops_index(Module *m, int n, const Expr **index)
{
  for (int i = 0; i < n; i++) index[i] = loops_var(m, arena_printf(m->arena, "i%d", i))->expr;
}

Stmt *loops_nest(Module *m, int n, const Expr *const *shape, int skip, const Expr *const *index, bool parallel,
                 Stmt *body)
{
  int first = skip == 0 ? 1 : 0;
  for (int i = n - 1; i >= 0; i--)
    if (i != skip)
      body = stmt_for(m, index[i]->u.var, expr_i32(m, 0), shape[i], parallel && i == first ? FOR_PARALLEL : FOR_SERIAL,
                      NULL, body);
  return body;
}
