/* nn_kit.c: short ways to write te stages, window arithmetic, and the checks that the
 * nn family repeats. */
#include "op/nn_kit.h"

/* ---- stages --------------------------------------------------------------------------- */

static const IterVar *make_axis(Module *m, const char *name, const Expr *extent, IterKind kind)
{
  const Var *v = var_new(m, name, extent->dtype, VAR_PLAIN);
  return itervar_new(m, v, expr_int(m, extent->dtype, 0), extent, kind, NULL);
}

static const char *nth_word(Arena *arena, const char *words, int i)
{
  const char *p = words;
  for (; p && i > 0; i--) p = (p = strchr(p, ' ')) ? p + 1 : NULL;
  return p && *p ? arena_strndup(arena, p, strcspn(p, " ")) : NULL;
}

Stage nn_stage(Module *m, int n, const Expr *const *shape, const char *names)
{
  if (n > MAX_RANK)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "a neural operator handles at most %d dimensions, not %d", MAX_RANK, n);
  Stage s = {.m = m, .n = n};
  for (int i = 0; i < n; i++) {
    const char *name = nth_word(m->arena, names, i);
    s.shape[i] = shape[i];
    s.axis[i] = make_axis(m, name ? name : arena_printf(m->arena, "ax%d", i), shape[i], ITER_SPATIAL);
    s.at[i] = s.axis[i]->var->expr;
  }
  return s;
}

const Expr *nn_reduce_axis(Stage *s, const char *name, const Expr *extent)
{
  s->red[s->nred] = make_axis(s->m, name, extent, ITER_REDUCE);
  return s->red[s->nred++]->var->expr;
}

const Expr *nn_reduce_where(Stage *s, const char *reducer, const Expr *source, const Expr *cond)
{
  const Reducer *r = reducer_named(s->m, reducer, source->dtype, DT_I32);
  return expr_reduce(s->m, r, 1, &source, s->nred, s->red, cond, NULL, 0);
}

const Expr *nn_reduce(Stage *s, const char *reducer, const Expr *source)
{
  return nn_reduce_where(s, reducer, source, expr_bool(s->m, true));
}

const Tensor *nn_finish(Stage *s, const char *name, const char *tag, const Expr *body)
{
  return &te_compute(s->m, name, tag, s->n, s->shape, s->axis, 1, &body, NULL)->out[0];
}

const Expr *nn_index(Stage *s, const Expr *e)
{
  Scope scope = scope_begin(s->m->ctx);
  Analyzer *an = analyzer_new(s->m, scratch(s->m->ctx));
  for (int i = 0; i < s->n; i++) analyzer_bind(an, s->axis[i]->var, s->axis[i]->min, s->axis[i]->extent);
  for (int i = 0; i < s->nred; i++) analyzer_bind(an, s->red[i]->var, s->red[i]->min, s->red[i]->extent);
  e = expr_simplify(an, e);
  scope_end(s->m->ctx, scope);
  return e;
}

const Expr *nn_simplify(Module *m, const Expr *e)
{
  if (expr_is_const(e)) return e;
  Scope scope = scope_begin(m->ctx);
  e = expr_simplify(analyzer_new(m, scratch(m->ctx)), e);
  scope_end(m->ctx, scope);
  return e;
}

const Expr *nn_read(Module *m, const Tensor *t, const Expr *const *index)
{
  return te_read(m, t, t->buffer->ndim, index);
}
const Expr *nn_read1(Module *m, const Tensor *t, const Expr *index) { return te_read(m, t, 1, &index); }

/* ---- expressions ---------------------------------------------------------------------- */

const Expr *nn_unary(Module *m, Intrin f, const Expr *e) { return expr_call(m, DT_NONE, f, 1, &e); }

const Expr *nn_if(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  return expr_call(m, a->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, a, b});
}

const Expr *nn_and(Module *m, const Expr *a, const Expr *b) { return a ? expr_and(m, a, b) : b; }

const Expr *nn_inside(Module *m, const Expr *at, const Expr *extent)
{
  return expr_and(m, expr_binary(m, E_GE, at, expr_int(m, at->dtype, 0)), expr_lt(m, at, extent));
}

const Expr *nn_ceildiv(Module *m, const Expr *a, const Expr *b)
{
  return expr_floordiv(m, expr_sub(m, expr_add(m, a, b), expr_i32(m, 1)), b);
}

const Tensor *nn_sum(Stage *s, const char *name, const char *tag, const Expr *term, DType out)
{
  const Tensor *sum = nn_finish(s, name, tag, nn_reduce(s, "sum", term));
  if (dtype_eq(term->dtype, out)) return sum;
  Stage t = nn_stage(s->m, s->n, s->shape, NULL);
  return nn_finish(&t, arena_printf(s->m->arena, "%s_cast", name), "elemwise",
                   expr_cast(s->m, out, nn_read(s->m, sum, t.at)));
}

DType nn_accumulator(DType t) { return dtype_is_float(t) && t.bits < 32 ? DT_F32 : t; }

/* ---- checks ----------------------------------------------------------------------------- */

static bool known_difference(Module *m, const Expr *a, const Expr *b, int64_t *out)
{
  if (a == b) return *out = 0, true;
  const Expr *d =
      a->kind == E_INT && b->kind == E_INT ? expr_int(m, DT_I64, a->u.i - b->u.i) : nn_simplify(m, expr_sub(m, a, b));
  if (d->kind != E_INT) return false;
  *out = d->u.i;
  return true;
}

bool nn_dims_differ(Module *m, const Expr *a, const Expr *b)
{
  int64_t d;
  return known_difference(m, a, b, &d) && d != 0;
}

bool nn_dims_equal(Module *m, const Expr *a, const Expr *b)
{
  int64_t d;
  return known_difference(m, a, b, &d) && d == 0;
}

const Expr *nn_guard_equal(Module *m, const Expr *dim, const Expr *a, const Expr *b)
{
  return nn_dims_equal(m, a, b) ? dim : dim_guard(m, expr_binary(m, E_EQ, a, b), dim);
}

const char *nn_shape_text(Module *m, int n, const Expr *const *shape)
{
  Text t = text_new(scratch(m->ctx));
  text_char(&t, '(');
  for (int i = 0; i < n; i++) text_printf(&t, "%s%s", i ? ", " : "", expr_str_of(t.arena, shape[i]));
  text_add(&t, n == 1 ? ",)" : ")");
  return text_str(&t);
}

const char *nn_arg_shape(OpCall *c, int i) { return nn_shape_text(c->m, c->arg[i]->ndim, c->arg[i]->shape); }

const Type *nn_tensor(OpCall *c, int i, const char *name)
{
  const Type *ty = c->arg[i];
  if (ty->kind != TY_TENSOR)
    opdef_raise(c, ERR_TYPE, "%s is %s, not a tensor", name, type_text(scratch(c->m->ctx), ty));
  if (ty->ndim < 0) opdef_raise(c, ERR_SHAPE, "the rank of %s is not known", name);
  return ty;
}

void nn_want_rank(OpCall *c, int i, const char *name, int ndim)
{
  if (nn_tensor(c, i, name)->ndim != ndim)
    opdef_raise(c, ERR_SHAPE, "%s %s has %d dimension%s, %d wanted", name, nn_arg_shape(c, i), c->arg[i]->ndim,
                c->arg[i]->ndim == 1 ? "" : "s", ndim);
}

void nn_want_float(OpCall *c, int i, const char *name)
{
  if (!dtype_is_float(nn_tensor(c, i, name)->dtype))
    opdef_raise(c, ERR_TYPE, "%s is %s, a float is wanted", name, dtype_name(scratch(c->m->ctx), c->arg[i]->dtype));
}

int nn_axis_of(OpCall *c, int64_t axis, int ndim)
{
  if (axis < -ndim || axis >= ndim)
    opdef_raise(c, ERR_SHAPE, "axis %" PRId64 " is outside of a tensor of %d dimension%s", axis, ndim,
                ndim == 1 ? "" : "s");
  return (int)(axis < 0 ? axis + ndim : axis);
}

/* ---- types of operands ---------------------------------------------------------------------- */

const Type *nn_operand_along(OpCall *c, int64_t axis)
{
  const Type *data = c->arg[0];
  if (!data || data->kind != TY_TENSOR || data->ndim < 1) return NULL;
  return type_tensor(c->m, data->dtype, 1, &data->shape[nn_axis_of(c, axis, data->ndim)]);
}

const Type *nn_operand_weight(OpCall *c, const Layout *l, const char *letters, const Expr *first, const Expr *second,
                              AttrInts kernel_size)
{
  const Expr *extent[5] = {first, second};
  const Expr *shape[LAYOUT_MAX];
  int64_t k[3];
  int dims = (int)strlen(letters) - 2;
  if (!kernel_size.given) return NULL;
  nn_ints(c, "kernel_size", kernel_size, dims, 1, 1, k);
  for (int d = 0; d < dims; d++) extent[2 + d] = expr_i32(c->m, k[d]);
  layout_shape(c->m, l, letters, extent, shape);
  return type_tensor(c->m, c->arg[0]->dtype, l->n, shape);
}

/* ---- windows ------------------------------------------------------------------------------ */

void nn_ints(OpCall *c, const char *name, AttrInts list, int n, int64_t def, int64_t least, int64_t *out)
{
  if (list.given && list.n != n && list.n != 1)
    opdef_raise(c, ERR_ARGUMENT, "%s has %d numbers, 1 or %d are wanted", name, list.n, n);
  for (int i = 0; i < n; i++) {
    out[i] = !list.given ? def : list.v[list.n == 1 ? 0 : i];
    if (out[i] < least || out[i] > INT32_MAX)
      opdef_raise(c, ERR_ARGUMENT, "%s holds %" PRId64 ", at least %" PRId64 " is wanted", name, out[i], least);
  }
}

void nn_padding(OpCall *c, AttrInts list, int n, int64_t *before, int64_t *after)
{
  if (list.given && list.n != 1 && list.n != n && list.n != 2 * n)
    opdef_raise(c, ERR_ARGUMENT,
                "padding has %d numbers; 1 (for all), %d (one each) or %d (befores, then afters) are wanted", list.n, n,
                2 * n);
  for (int i = 0; i < n; i++) {
    before[i] = !list.given ? 0 : list.v[list.n == 1 ? 0 : i];
    after[i] = !list.given ? 0 : list.v[list.n == 1 ? 0 : list.n == n ? i : n + i];
    if (before[i] > INT32_MAX || after[i] > INT32_MAX || before[i] < -INT32_MAX || after[i] < -INT32_MAX)
      opdef_raise(c, ERR_ARGUMENT, "padding (%" PRId64 ", %" PRId64 ") is too large", before[i], after[i]);
  }
}

const Expr *nn_windows(OpCall *c, const char *what, const Expr *in, int64_t kernel, int64_t stride, int64_t dilation,
                       int64_t before, int64_t after)
{
  Module *m = c->m;
  int64_t span;
  if (!int_mul(kernel - 1, dilation, &span) || span > INT32_MAX - 1)
    opdef_raise(c, ERR_SHAPE, "a kernel of %" PRId64 " with dilation %" PRId64 " is too large", kernel, dilation);
  const Expr *room = nn_simplify(m, expr_add(m, in, expr_int(m, in->dtype, before + after - span - 1)));
  if (room->kind == E_INT && room->u.i < 0 && !expr_is_int(in, 0))
    opdef_raise(c, ERR_SHAPE, "%s is %s and %" PRId64 " with padding, the kernel spans %" PRId64, what,
                expr_str_of(scratch(m->ctx), in), room->u.i + span + 1, span + 1);
  const Expr *windows =
      nn_simplify(m, expr_add(m, expr_floordiv(m, room, expr_int(m, in->dtype, stride)), expr_int(m, in->dtype, 1)));
  return windows->kind == E_INT && windows->u.i < 0 ? expr_int(m, in->dtype, 0) : windows;
}

const Tensor *nn_pad_to(Module *m, const Tensor *in, const int64_t *before, const Expr *const *shape, const Expr *value,
                        const char *name)
{
  const Buffer *b = in->buffer;
  const Expr *index[MAX_RANK];
  const Expr *cond = NULL;
  Stage s = nn_stage(m, b->ndim, shape, NULL);
  for (int d = 0; d < b->ndim; d++) {
    const Expr *begin = expr_int(m, s.at[d]->dtype, before[d]);
    const Expr *end = before[d] ? nn_simplify(m, expr_add(m, b->shape[d], begin)) : b->shape[d];
    index[d] = before[d] ? expr_sub(m, s.at[d], begin) : s.at[d];
    if (before[d]) cond = nn_and(m, cond, expr_binary(m, E_GE, s.at[d], begin));
    if (shape[d] != end) cond = nn_and(m, cond, expr_lt(m, s.at[d], end));
  }
  return nn_finish(&s, name, "injective,pad", nn_if(m, cond, nn_read(m, in, index), value));
}

const Tensor *nn_pad_constant(Module *m, const Tensor *in, const int64_t *before, const int64_t *after,
                              const Expr *value, const char *name)
{
  const Buffer *b = in->buffer;
  const Expr *shape[MAX_RANK];
  bool any = false;
  for (int d = 0; d < b->ndim; d++) {
    any |= before[d] || after[d];
    shape[d] = before[d] || after[d]
                   ? nn_simplify(m, expr_add(m, b->shape[d], expr_int(m, b->shape[d]->dtype, before[d] + after[d])))
                   : b->shape[d];
  }
  return any ? nn_pad_to(m, in, before, shape, value, name) : in;
}

/* ---- decompositions --------------------------------------------------------------------------- */

const Node *nn_call(Module *m, const char *op, int n, const Node *const *arg, const void *attrs)
{
  return node_call(m, opdef_get(m->ctx, op), n, arg, attrs, NULL);
}

const Node *nn_call1(Module *m, const char *op, const Node *a) { return nn_call(m, op, 1, &a, NULL); }
const Node *nn_call2(Module *m, const char *op, const Node *a, const Node *b)
{
  return nn_call(m, op, 2, (const Node *[]){a, b}, NULL);
}
