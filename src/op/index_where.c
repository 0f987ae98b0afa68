/* index_where.c: what depends on values: argwhere, compress, unique.
 *
 * How many there are is known only when the kernel has run.  So each decomposes into a
 * kernel with room for all, which also gives the count, and dyn.take_first by that count. */
#include "op/sort.h"

static const Node *call_op(Module *m, const OpDef *op, int n, const Node *const *arg, const void *attrs,
                           const Node *from)
{
  return node_call(m, op, n, arg, attrs, from->name);
}

static const Node *first_of(Module *m, const Node *padded, const Node *count, const Node *from)
{
  return call_op(m, &op_dyn_take_first, 2, (const Node *[]){padded, count}, NULL, from);
}

/* ---- argwhere -------------------------------------------------------------------------------- */

static const Type *argwhere_padded_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  const Expr *dim[2] = {dim_product(c->m, in->ndim, in->shape), dim_int(c->m, in->ndim)};
  const Expr *one = dim_int(c->m, 1);
  return type_tuple(c->m, 2, (const Type *[]){type_tensor(c->m, DT_I32, 2, dim), type_tensor(c->m, DT_I32, 1, &one)});
}

static void argwhere_padded_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  const Buffer *data = l.ib[0];
  const Buffer *rows = l.ob[0];
  const Buffer *count = l.ob[1];
  const Expr *ix[MAX_RANK];
  const Expr *zero = expr_i32(m, 0);
  const Expr *n = loops_get(m, count, zero);
  Stmt *put[MAX_RANK + 1];
  loops_index(m, data->ndim, ix);
  for (int d = 0; d < data->ndim; d++) put[d] = loops_store(m, rows, (const Expr *[]){n, expr_i32(m, d)}, ix[d]);
  put[data->ndim] = loops_set(m, count, zero, expr_add(m, n, expr_i32(m, 1)));
  const Expr *v = loops_load(m, data, ix);
  const Expr *hit = dtype_is_bool(v->dtype) ? v : expr_binary(m, E_NE, v, op_num(m, v->dtype, 0));
  Stmt *all =
      loops_nest(m, data->ndim, data->shape, -1, ix, false, stmt_if(m, hit, stmt_seq(m, data->ndim + 1, put), NULL));
  loops_end(&l, "argwhere", loops_seq(m, loops_set(m, count, zero, zero), all), out);
}

const OpDef op_argwhere_padded = {
  .name = "argwhere_padded",
  .doc = "indices of the elements that are not zero, in the first rows, and their number",
  .args = "condition",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .type = argwhere_padded_type,
  .compute = argwhere_padded_compute,
};

static const Type *argwhere_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  const Expr *dim[2] = {type_dim_any(c->m), dim_int(c->m, in->ndim)};
  return type_tensor(c->m, DT_I32, 2, dim);
}

static const Node *argwhere_decompose(Module *m, const Node *call)
{
  const Node *both = call_op(m, &op_argwhere_padded, 1, call->arg, NULL, call);
  return first_of(m, node_get(m, both, 0), node_get(m, both, 1), call);
}

const OpDef op_argwhere = {
  .name = "argwhere",
  .doc = "indices of the elements that are not zero (NaN is not), in row-major order",
  .args = "condition",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .type = argwhere_type,
  .decompose = argwhere_decompose,
};

/* ---- compress ------------------------------------------------------------------------------------ */

#define COMPRESS_ATTRS(A, S) A(S, INTS, axis, "None", "axis to keep entries of; None: the flattened data")
DEFINE_ATTRS(Compress, COMPRESS_ATTRS)

static const Type *compress_type(OpCall *c)
{
  const CompressAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *cond = op_tensor_arg(c, 1);
  if (cond->ndim != 1 || !dtype_is_bool(cond->dtype))
    opdef_raise(c, ERR_TYPE, "condition is %s; it is a vector of bool", op_arg_text(c, 1));
  bool flat = !a->axis.given || !a->axis.n;
  int axis = flat ? 0 : op_axis(c, a->axis.v[0], in->ndim);
  const Expr *extent = flat ? dim_product(c->m, in->ndim, in->shape) : in->shape[axis];
  if (cond->shape[0]->kind == E_INT && extent->kind == E_INT && cond->shape[0]->u.i > extent->u.i)
    opdef_raise(c, ERR_SHAPE, "condition is %s, longer than the %" PRId64 " entries of %s", op_arg_text(c, 1),
                extent->u.i, op_arg_text(c, 0));
  const Expr **dim = op_emit_copy_index(c->m, in->ndim ? in->ndim : 1, in->ndim ? in->shape : &extent);
  dim[axis] = type_dim_any(c->m);
  return type_tensor(c->m, in->dtype, flat ? 1 : in->ndim, dim);
}

static const Node *compress_decompose(Module *m, const Node *call)
{
  const CompressAttrs *a = call->u.call.attrs;
  const Node *where = call_op(m, &op_argwhere, 1, &call->arg[1], NULL, call);
  where = argwhere_decompose(m, where);
  SqueezeAttrs *column = attrs_new(m, &Squeeze_attrs);
  attrs_set_ints(m, &Squeeze_attrs, column, "axis", 1, (int64_t[]){1});
  where = call_op(m, &op_squeeze, 1, &where, column, call);
  TakeAttrs *take = attrs_new(m, &Take_attrs);
  take->axis = a->axis;
  return call_op(m, &op_take, 2, (const Node *[]){call->arg[0], where}, take, call);
}

const OpDef op_compress = {
  .name = "compress",
  .doc = "the entries of an axis where condition holds",
  .args = "data, condition",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Compress_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_STRING,
  .type = compress_type,
  .decompose = compress_decompose,
};

/* ---- unique ------------------------------------------------------------------------------------------ */

#define UNIQUE_PADDED_ATTRS(A, S) \
  A(S, BOOL, is_sorted, "True", "in ascending order instead of that of first occurrence")
DEFINE_ATTRS(UniquePadded, UNIQUE_PADDED_ATTRS)

/* data: n rows.  Gives, with room for n: position of the first row of each group, group
 * of each row, rows in each group; and the number of groups. */
static const Type *unique_padded_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  if (in->ndim != 2) opdef_raise(c, ERR_SHAPE, "data is %s; it is a matrix whose rows are compared", op_arg_text(c, 0));
  const Expr *one = dim_int(c->m, 1);
  const Type *list = type_tensor(c->m, DT_I32, 1, in->shape);
  return type_tuple(c->m, 4, (const Type *[]){list, list, list, type_tensor(c->m, DT_I32, 1, &one)});
}

typedef struct Unique {
  Module *m;
  const Buffer *data, *first, *group, *counts, *num;
  const Buffer *start, *size, *rank; /* by sorted group: first row, rows, new number */
  Sorter s;
} Unique;

/* flag = row a comes before row b; rows are compared element by element until one differs. */
static Stmt *rows_before(const Unique *u, const Buffer *state)
{
  Module *m = u->m;
  const Var *j = loops_var(m, "col");
  const Expr *zero = expr_i32(m, 0);
  const Expr *x = expr_load(m, u->data, 2, (const Expr *[]){sorter_a(&u->s), j->expr});
  const Expr *y = expr_load(m, u->data, 2, (const Expr *[]){sorter_b(&u->s), j->expr});
  Stmt *step = stmt_if(m, sorter_before(m, x, y, true), loops_set(m, state, zero, expr_i32(m, 1)),
                       stmt_if(m, sorter_before(m, y, x, true), loops_set(m, state, zero, expr_i32(m, 2)), NULL));
  Stmt *undecided = stmt_if(m, expr_binary(m, E_EQ, loops_get(m, state, zero), zero), step, NULL);
  Stmt *all = stmt_for(m, j, zero, u->data->shape[1], FOR_SERIAL, NULL, undecided);
  return loops_seq(m, loops_set(m, state, zero, zero), all,
                   sorter_answer(&u->s, expr_binary(m, E_EQ, loops_get(m, state, zero), expr_i32(m, 1))));
}

/* Runs of equal rows in sorted order are the groups; num counts them. */
static Stmt *number_groups(const Unique *u, Stmt *compare)
{
  Module *m = u->m;
  const Var *p = loops_var(m, "p");
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *n = loops_get(m, u->num, zero);
  const Expr *row = sorter_order(&u->s, p->expr);
  const Expr *last = expr_sub(m, n, one);
  Stmt *previous =
      loops_seq(m, loops_set(m, u->s.a, zero, sorter_order(&u->s, expr_max(m, expr_sub(m, p->expr, one), zero))),
                loops_set(m, u->s.b, zero, row), compare);
  const Expr *fresh = expr_binary(m, E_OR, expr_binary(m, E_EQ, p->expr, zero),
                                  expr_binary(m, E_NE, loops_get(m, u->s.flag, zero), zero));
  Stmt *open = loops_seq(m, loops_set(m, u->start, n, row), loops_set(m, u->size, n, zero),
                         loops_set(m, u->num, zero, expr_add(m, n, one)));
  Stmt *join = loops_seq(m, loops_set(m, u->group, row, last),
                         loops_set(m, u->size, last, expr_add(m, loops_get(m, u->size, last), one)));
  return loops_seq(m, loops_set(m, u->num, zero, zero),
                   stmt_for(m, p, zero, u->data->shape[0], FOR_SERIAL, NULL,
                            loops_seq(m, previous, stmt_if(m, fresh, open, NULL), join)));
}

/* Groups leave in sorted order, or renumbered by their first row. */
static Stmt *give_groups(const Unique *u, bool is_sorted)
{
  Module *m = u->m;
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *n = u->data->shape[0];
  const Var *i = loops_var(m, "i");
  const Var *k = loops_var(m, "k");
  if (is_sorted) {
    Stmt *put = loops_seq(m, loops_set(m, u->first, i->expr, loops_get(m, u->start, i->expr)),
                          loops_set(m, u->counts, i->expr, loops_get(m, u->size, i->expr)));
    return stmt_for(m, i, zero, loops_get(m, u->num, zero), FOR_SERIAL, NULL, put);
  }
  const Expr *g = loops_get(m, u->group, i->expr);
  const Expr *next = loops_get(m, u->s.a, zero);
  Stmt *open = loops_seq(m, loops_set(m, u->rank, g, next), loops_set(m, u->first, next, i->expr),
                         loops_set(m, u->counts, next, loops_get(m, u->size, g)),
                         loops_set(m, u->s.a, zero, expr_add(m, next, one)));
  Stmt *scan = stmt_for(m, i, zero, n, FOR_SERIAL, NULL,
                        stmt_if(m, expr_binary(m, E_EQ, loops_get(m, u->start, g), i->expr), open, NULL));
  Stmt *renumber = stmt_for(m, k, zero, n, FOR_SERIAL, NULL,
                            loops_set(m, u->group, k->expr, loops_get(m, u->rank, loops_get(m, u->group, k->expr))));
  return loops_seq(m, loops_set(m, u->s.a, zero, zero), scan, renumber);
}

static Stmt *clear_vector(Module *m, const Buffer *b)
{
  const Var *i = loops_var(m, "i");
  return stmt_for(m, i, expr_i32(m, 0), b->shape[0], FOR_SERIAL, NULL, loops_set(m, b, i->expr, expr_i32(m, 0)));
}

static void unique_padded_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const UniquePaddedAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  const Expr *n = l.ib[0]->shape[0];
  Unique u = {.m = m, .data = l.ib[0], .first = l.ob[0], .group = l.ob[1], .counts = l.ob[2], .num = l.ob[3]};
  u.start = loops_local(m, "start", DT_I32, n);
  u.size = loops_local(m, "size", DT_I32, n);
  u.rank = loops_local(m, "rank", DT_I32, n);
  u.s = sorter_new(m, n);
  const Buffer *state = loops_local(m, "state", DT_I32, expr_i32(m, 1));
  const Buffer *again = loops_local(m, "again", DT_I32, expr_i32(m, 1));
  Stmt *body =
      loops_seq(m, clear_vector(m, u.first), clear_vector(m, u.counts), sorter_sort(&u.s, rows_before(&u, state)),
                number_groups(&u, rows_before(&u, again)), give_groups(&u, a->is_sorted));
  const Buffer *own[] = {u.start, u.size, u.rank, state, again};
  body = sorter_alloc(&u.s, body);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) body = stmt_alloc(m, own[i], body);
  loops_end(&l, "unique", body, out);
}

const OpDef op_unique_padded = {
  .name = "unique_padded",
  .doc = "groups of equal rows: first row, group of each row, sizes, and their number; NaN equals NaN",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &UniquePadded_attrs,
  .fuse = FUSE_OPAQUE,
  .type = unique_padded_type,
  .compute = unique_padded_compute,
};

/* clang-format off */
#define UNIQUE_ATTRS(A, S)                                                                       \
  A(S, BOOL, is_sorted, "True", "in ascending order instead of that of first occurrence")           \
  A(S, BOOL, return_counts, "False", "also how often each occurs")                               \
  A(S, INTS, axis, "None", "axis whose slices are compared; None: the flattened data")
/* clang-format on */
DEFINE_ATTRS(Unique, UNIQUE_ATTRS)

/* (unique, indices, inverse_indices, num_unique[, counts]) */
static const Type *unique_type(OpCall *c)
{
  const UniqueAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  bool flat = !a->axis.given || !a->axis.n;
  int axis = flat ? 0 : op_axis(c, a->axis.v[0], in->ndim);
  const Expr *any = type_dim_any(c->m);
  const Expr *one = dim_int(c->m, 1);
  const Expr *n = flat ? dim_product(c->m, in->ndim, in->shape) : in->shape[axis];
  const Expr **dim = op_emit_copy_index(c->m, in->ndim ? in->ndim : 1, in->ndim ? in->shape : &one);
  dim[axis] = any;
  const Type *list = type_tensor(c->m, DT_I32, 1, &any);
  return type_tuple(c->m, a->return_counts ? 5 : 4,
                    (const Type *[]){type_tensor(c->m, in->dtype, flat ? 1 : in->ndim, dim), list,
                                     type_tensor(c->m, DT_I32, 1, &n), type_tensor(c->m, DT_I32, 1, &one), list});
}

static const Node *unique_decompose(Module *m, const Node *call)
{
  const UniqueAttrs *a = call->u.call.attrs;
  const Node *x = call->arg[0];
  const Node *rows = x;
  bool flat = !a->axis.given || !a->axis.n;
  int ndim = x->type->ndim;
  int axis = flat ? 0 : (int)(a->axis.v[0] < 0 ? a->axis.v[0] + ndim : a->axis.v[0]);
  if (axis) {
    int64_t order[MAX_RANK];
    for (int i = 0, k = 1; i < ndim; i++)
      if (i != axis) order[k++] = i;
    order[0] = axis;
    TransposeAttrs *t = attrs_new(m, &Transpose_attrs);
    attrs_set_ints(m, &Transpose_attrs, t, "axes", ndim, order);
    rows = call_op(m, &op_transpose, 1, &rows, t, call);
  }
  ReshapeAttrs *r = attrs_new(m, &Reshape_attrs);
  const Expr *all = dim_product(m, ndim, x->type->shape);
  const Expr *matrix[2] = {flat ? all : x->type->shape[axis],
                           flat ? dim_int(m, 1) : dim_product(m, ndim - 1, rows->type->shape + 1)};
  attrs_set_dims(m, &Reshape_attrs, r, "newshape", 2, matrix);
  r->allowzero = true;
  rows = call_op(m, &op_reshape, 1, &rows, r, call);
  UniquePaddedAttrs *u = attrs_new(m, &UniquePadded_attrs);
  u->is_sorted = a->is_sorted;
  const Node *groups = call_op(m, &op_unique_padded, 1, &rows, u, call);
  const Node *num = node_get(m, groups, 3);
  const Node *first = first_of(m, node_get(m, groups, 0), num, call);
  TakeAttrs *take = attrs_new(m, &Take_attrs);
  take->axis = a->axis;
  const Node *values = call_op(m, &op_take, 2, (const Node *[]){x, first}, take, call);
  const Node *field[5] = {values, first, node_get(m, groups, 1), num};
  if (a->return_counts) field[4] = first_of(m, node_get(m, groups, 2), num, call);
  return node_tuple(m, a->return_counts ? 5 : 4, field);
}

const OpDef op_unique = {
  .name = "unique",
  .doc = "distinct elements (or slices), where each first occurs, which each element is, how many; NaN equals NaN",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Unique_attrs,
  .fuse = FUSE_OPAQUE,
  .type = unique_type,
  .decompose = unique_decompose,
};
