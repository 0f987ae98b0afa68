/* sort.c: order along an axis: sort, argsort, topk.
 *
 * Each row is sorted by a stable merge sort over positions, so equal elements keep their
 * order in both directions (topk gives the lower index first, as ONNX has it).  NaN is
 * above every number: last when ascending, first when descending.  The first few of a long row come by a list that is
 * kept in order.  Rows run in parallel. */
#include "op/sort.h"

Sorter sorter_new(Module *m, const Expr *n)
{
  const Expr *one = expr_i32(m, 1);
  return (Sorter){.m = m,
                  .n = n,
                  .order = loops_local(m, "order", DT_I32, n),
                  .other = loops_local(m, "other", DT_I32, n),
                  .left = loops_local(m, "left", DT_I32, one),
                  .right = loops_local(m, "right", DT_I32, one),
                  .flag = loops_local(m, "flag", DT_I32, one),
                  .a = loops_local(m, "a", DT_I32, one),
                  .b = loops_local(m, "b", DT_I32, one)};
}

Stmt *sorter_alloc(const Sorter *s, Stmt *body)
{
  const Buffer *all[] = {s->order, s->other, s->left, s->right, s->flag, s->a, s->b};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) body = stmt_alloc(s->m, all[i], body);
  return body;
}

static const Expr *zero(const Sorter *s) { return expr_i32(s->m, 0); }
static const Expr *one_get(const Sorter *s, const Buffer *b) { return loops_get(s->m, b, zero(s)); }
static Stmt *one_set(const Sorter *s, const Buffer *b, const Expr *v) { return loops_set(s->m, b, zero(s), v); }

const Expr *sorter_a(const Sorter *s) { return one_get(s, s->a); }
const Expr *sorter_b(const Sorter *s) { return one_get(s, s->b); }
const Expr *sorter_order(const Sorter *s, const Expr *i) { return loops_get(s->m, s->order, i); }
Stmt *sorter_answer(const Sorter *s, const Expr *cond) { return one_set(s, s->flag, expr_cast(s->m, DT_I32, cond)); }

/* One output position of a merge of [lo, mid) and [mid, hi): the right run's head goes
 * first only if it must come before the left one's. */
static Stmt *merge_step(const Sorter *s, const Expr *p, const Expr *mid, const Expr *hi, Stmt *before)
{
  Module *m = s->m;
  const Expr *left = one_get(s, s->left);
  const Expr *right = one_get(s, s->right);
  const Expr *one = expr_i32(m, 1);
  Stmt *compare = loops_seq(m, one_set(s, s->a, loops_get(m, s->order, right)),
                            one_set(s, s->b, loops_get(m, s->order, left)), before);
  Stmt *take_right = loops_seq(m, loops_set(m, s->other, p, loops_get(m, s->order, right)),
                               one_set(s, s->right, expr_add(m, right, one)));
  Stmt *take_left = loops_seq(m, loops_set(m, s->other, p, loops_get(m, s->order, left)),
                              one_set(s, s->left, expr_add(m, left, one)));
  const Expr *both = expr_and(m, expr_lt(m, left, mid), expr_lt(m, right, hi));
  Stmt *only = one_set(s, s->flag, expr_cast(m, DT_I32, expr_lt(m, right, hi)));
  Stmt *choose = stmt_if(m, expr_binary(m, E_NE, one_get(s, s->flag), expr_i32(m, 0)), take_right, take_left);
  return loops_seq(m, stmt_if(m, both, compare, only), choose);
}

/* Runs of 1, 2, 4, … are merged until one is left. */
Stmt *sorter_sort(const Sorter *s, Stmt *before)
{
  Module *m = s->m;
  const Var *level = loops_var(m, "level");
  const Var *run = loops_var(m, "run");
  const Var *p = loops_var(m, "p");
  const Var *q = loops_var(m, "q");
  const Var *i = loops_var(m, "i");
  const Expr *n = expr_cast(m, DT_I32, s->n);
  const Expr *one = expr_i32(m, 1);
  const Expr *width = expr_call(m, DT_I32, IN_SHL, 2, (const Expr *[]){one, level->expr});
  const Expr *lo = expr_mul(m, expr_mul(m, run->expr, width), expr_i32(m, 2));
  const Expr *mid = expr_min(m, expr_add(m, lo, width), n);
  const Expr *hi = expr_min(m, expr_add(m, mid, width), n);
  Stmt *merge = loops_seq(m, one_set(s, s->left, lo), one_set(s, s->right, mid),
                          stmt_for(m, p, zero(s), expr_sub(m, hi, lo), FOR_SERIAL, NULL,
                                   merge_step(s, expr_add(m, lo, p->expr), mid, hi, before)));
  const Expr *runs = expr_floordiv(m, expr_add(m, n, expr_sub(m, expr_mul(m, width, expr_i32(m, 2)), one)),
                                   expr_mul(m, width, expr_i32(m, 2)));
  Stmt *copy =
      stmt_for(m, q, zero(s), n, FOR_SERIAL, NULL, loops_set(m, s->order, q->expr, loops_get(m, s->other, q->expr)));
  Stmt *pass = loops_seq(m, stmt_for(m, run, zero(s), runs, FOR_SERIAL, NULL, merge), copy);
  Stmt *all =
      stmt_for(m, level, zero(s), expr_i32(m, 30), FOR_SERIAL, NULL, stmt_if(m, expr_lt(m, width, n), pass, NULL));
  return loops_seq(m, stmt_for(m, i, zero(s), n, FOR_SERIAL, NULL, loops_set(m, s->order, i->expr, i->expr)), all);
}

const Expr *sorter_before(Module *m, const Expr *x, const Expr *y, bool ascend)
{
  const Expr *plain = expr_binary(m, ascend ? E_LT : E_GT, x, y);
  if (!dtype_is_float(x->dtype)) return plain;
  const Expr *xnan = expr_binary(m, E_NE, x, x);
  const Expr *ynan = expr_binary(m, E_NE, y, y);
  const Expr *edge = ascend ? expr_and(m, ynan, expr_not(m, xnan)) : expr_and(m, xnan, expr_not(m, ynan));
  return expr_binary(m, E_OR, plain, edge);
}

/* ---- rows of a tensor ------------------------------------------------------------------------- */

/* Sorts each row along axis and hands out the first k: values[j] and positions[j], where
 * the output of that kind is wanted (-1: not). */
typedef struct RowSort {
  int axis, values, indices;
  bool ascend;
  const Expr *k;
} RowSort;

static void sort_rows(OpCall *c, const RowSort *r, const Tensor *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 1, &in);
  const Buffer *data = l.ib[0];
  const Expr *n = data->shape[r->axis];
  const Expr *ix[MAX_RANK];
  const Buffer *key = loops_local(m, "key", data->dtype, n);
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  loops_index(m, data->ndim, ix);
  ix[r->axis] = i->expr;
  Stmt *load = stmt_for(m, i, expr_i32(m, 0), n, FOR_SERIAL, NULL, loops_set(m, key, i->expr, loops_load(m, data, ix)));
  Sorter s = sorter_new(m, n);
  const Expr *before = sorter_before(m, loops_get(m, key, sorter_a(&s)), loops_get(m, key, sorter_b(&s)), r->ascend);
  ix[r->axis] = j->expr;
  const Expr *at = sorter_order(&s, j->expr);
  Stmt *put[2];
  int nput = 0;
  if (r->values >= 0) put[nput++] = loops_store(m, l.ob[r->values], ix, loops_get(m, key, at));
  if (r->indices >= 0) put[nput++] = loops_store(m, l.ob[r->indices], ix, at);
  Stmt *give = stmt_for(m, j, expr_i32(m, 0), r->k, FOR_SERIAL, NULL, stmt_seq(m, nput, put));
  Stmt *row =
      stmt_alloc(m, key, sorter_alloc(&s, loops_seq(m, load, sorter_sort(&s, sorter_answer(&s, before)), give)));
  loops_end(&l, c->op->name, loops_nest(m, data->ndim, data->shape, r->axis, ix, true, row), out);
}

/* Element x, from position i, into the list of the best `size` so far: those it comes before move one place on. */
static Stmt *insert_in_order(Module *m, const Buffer *best, const Buffer *place, const Buffer *at, const Expr *x,
                             const Expr *i, const Expr *last, bool ascend)
{
  const Expr *zero = expr_i32(m, 0);
  const Expr *p = loops_get(m, at, zero);
  const Expr *next = expr_sub(m, p, expr_i32(m, 1));
  const Expr *above = expr_max(m, next, zero);
  const Expr *moves = expr_and(m, expr_lt(m, zero, p), sorter_before(m, x, loops_get(m, best, above), ascend));
  Stmt *move = loops_seq(m, loops_set(m, best, p, loops_get(m, best, above)),
                         loops_set(m, place, p, loops_get(m, place, above)), loops_set(m, at, zero, next));
  return loops_seq(m, loops_set(m, at, zero, last), stmt_while(m, moves, move), loops_set(m, best, p, x),
                   loops_set(m, place, p, i));
}

/* The first few of each row by one look at each element: most are not before the last of the list and are passed
 * over. */
static void select_rows(OpCall *c, const RowSort *r, const Tensor *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 1, &in);
  const Buffer *data = l.ib[0];
  const Expr *n = data->shape[r->axis];
  const Expr *ix[MAX_RANK];
  const Expr *zero = expr_i32(m, 0);
  const Expr *last = expr_sub(m, r->k, expr_i32(m, 1));
  const Buffer *best = loops_local(m, "best", data->dtype, r->k);
  const Buffer *place = loops_local(m, "place", DT_I32, r->k);
  const Buffer *at = loops_local(m, "at", DT_I32, expr_i32(m, 1));
  const Var *h = loops_var(m, "h");
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  loops_index(m, data->ndim, ix);
  ix[r->axis] = h->expr;
  Stmt *head = stmt_for(m, h, zero, r->k, FOR_SERIAL, NULL,
                        insert_in_order(m, best, place, at, loops_load(m, data, ix), h->expr, h->expr, r->ascend));
  const Expr *behind = expr_add(m, i->expr, r->k);
  const Expr *x;
  ix[r->axis] = behind;
  x = loops_load(m, data, ix);
  Stmt *look = stmt_if(m, sorter_before(m, x, loops_get(m, best, last), r->ascend),
                       insert_in_order(m, best, place, at, x, behind, last, r->ascend), NULL);
  Stmt *rest = stmt_for(m, i, zero, expr_sub(m, n, r->k), FOR_SERIAL, NULL, look);
  ix[r->axis] = j->expr;
  Stmt *put[2];
  int nput = 0;
  if (r->values >= 0) put[nput++] = loops_store(m, l.ob[r->values], ix, loops_get(m, best, j->expr));
  if (r->indices >= 0) put[nput++] = loops_store(m, l.ob[r->indices], ix, loops_get(m, place, j->expr));
  Stmt *give = stmt_for(m, j, zero, r->k, FOR_SERIAL, NULL, stmt_seq(m, nput, put));
  Stmt *row = stmt_alloc(m, best, stmt_alloc(m, place, stmt_alloc(m, at, loops_seq(m, head, rest, give))));
  loops_end(&l, c->op->name, loops_nest(m, data->ndim, data->shape, r->axis, ix, true, row), out);
}

/* clang-format off */
#define SORT_ATTRS(A, S)                                   \
  A(S, INT, axis, "-1", "axis to sort along")              \
  A(S, BOOL, is_ascend, "True", "smallest first")
/* clang-format on */
DEFINE_ATTRS(Sort, SORT_ATTRS)
/* clang-format off */
#define ARGSORT_ATTRS(A, S)                                \
  A(S, INT, axis, "-1", "axis to sort along")              \
  A(S, BOOL, is_ascend, "True", "smallest first")          \
  A(S, DTYPE, dtype, "\"int32\"", "of the positions")
/* clang-format on */
DEFINE_ATTRS(Argsort, ARGSORT_ATTRS)

static const Type *sort_type(OpCall *c)
{
  const SortAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  op_axis(c, a->axis, in->ndim);
  return in;
}

static void sort_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SortAttrs *a = c->attrs;
  int axis = op_axis(c, a->axis, c->out->ndim);
  sort_rows(c, &(RowSort){.axis = axis, .values = 0, .indices = -1, .ascend = a->is_ascend, .k = c->out->shape[axis]},
            in[0], out);
}

const OpDef op_sort = {
  .name = "sort",
  .doc = "rows in order; stable, NaN above every number",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Sort_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = sort_type,
  .compute = sort_compute,
};

static const Type *argsort_type(OpCall *c)
{
  const ArgsortAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  op_axis(c, a->axis, in->ndim);
  return type_tensor(c->m, a->dtype, in->ndim, in->shape);
}

static void argsort_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ArgsortAttrs *a = c->attrs;
  int axis = op_axis(c, a->axis, c->out->ndim);
  sort_rows(c, &(RowSort){.axis = axis, .values = -1, .indices = 0, .ascend = a->is_ascend, .k = c->out->shape[axis]},
            in[0], out);
}

const OpDef op_argsort = {
  .name = "argsort",
  .doc = "positions of the rows' elements in order; stable, NaN above every number",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Argsort_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = argsort_type,
  .compute = argsort_compute,
};

/* ---- topk ------------------------------------------------------------------------------------------- */

/* clang-format off */
#define DYN_TOPK_ATTRS(A, S)                                         \
  A(S, INT, axis, "-1", "axis to look along")                        \
  A(S, STR, ret_type, "\"both\"", "both, values or indices")         \
  A(S, BOOL, is_ascend, "False", "the smallest instead of the largest") \
  A(S, DTYPE, dtype, "\"int32\"", "of the positions")
/* clang-format on */
DEFINE_ATTRS(DynTopk, DYN_TOPK_ATTRS)
/* clang-format off */
#define TOPK_ATTRS(A, S)                                             \
  A(S, INT, k, "1", "how many; below 1: all")                        \
  A(S, INT, axis, "-1", "axis to look along")                        \
  A(S, STR, ret_type, "\"both\"", "both, values or indices")         \
  A(S, BOOL, is_ascend, "False", "the smallest instead of the largest") \
  A(S, DTYPE, dtype, "\"int32\"", "of the positions")
/* clang-format on */
DEFINE_ATTRS(Topk, TOPK_ATTRS)

static DynTopkAttrs topk_common(OpCall *c)
{
  if (c->op->attrs != &Topk_attrs) return *(const DynTopkAttrs *)c->attrs;
  const TopkAttrs *a = c->attrs;
  return (DynTopkAttrs){a->axis, a->ret_type, a->is_ascend, a->dtype};
}

static const Type *topk_of(OpCall *c, const Type *in, int axis, const Expr *k)
{
  DynTopkAttrs a = topk_common(c);
  const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
  dim[axis] = k;
  const Type *values = type_tensor(c->m, in->dtype, in->ndim, dim);
  const Type *indices = type_tensor(c->m, a.dtype, in->ndim, dim);
  if (!strcmp(a.ret_type, "values")) return values;
  if (!strcmp(a.ret_type, "indices")) return indices;
  if (strcmp(a.ret_type, "both"))
    opdef_raise(c, ERR_ARGUMENT, "ret_type is '%s'; it is both, values or indices", a.ret_type);
  return type_tuple(c->m, 2, (const Type *[]){values, indices});
}

/* k of the n there are; -1, a size that does not fit, when they are fewer. */
static const Expr *topk_count(OpCall *c, const Expr *k, const Expr *n)
{
  if (k->kind == E_INT && k->u.i < 1) return n;
  if (k->kind == E_INT && n->kind == E_INT && k->u.i > n->u.i)
    opdef_raise(c, ERR_SHAPE, "k is %" PRId64 ", the axis of %s has only %" PRId64, k->u.i, op_arg_text(c, 0), n->u.i);
  if ((k->kind == E_INT && n->kind == E_INT) || dim_same(c->m, k, n)) return k;
  return dim_simplify(c->m,
                      expr_select(c->m, expr_binary(c->m, E_LE, k, n), expr_cast(c->m, DT_I32, k), expr_i32(c->m, -1)));
}

static const Type *topk_type(OpCall *c)
{
  const TopkAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int axis = op_axis(c, a->axis, in->ndim);
  return topk_of(c, in, axis, topk_count(c, dim_int(c->m, a->k), in->shape[axis]));
}

static const Type *dyn_topk_type(OpCall *c)
{
  const DynTopkAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int n;
  int axis = op_axis(c, a->axis, in->ndim);
  op_int_tensor_arg(c, 1);
  const Expr *const *k = op_dims(c, 1, &n);
  if (n != 1) opdef_raise(c, ERR_SHAPE, "k is %s; it is one number", op_arg_text(c, 1));
  const Expr *count = expr_is_int(k[0], 0) ? k[0] : topk_count(c, k[0], in->shape[axis]);
  return topk_of(c, in, axis, count);
}

static void topk_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  enum { FEW = 64 }; /* for which a list that new ones are moved into is short */
  DynTopkAttrs a = topk_common(c);
  bool both = c->out->kind == TY_TUPLE;
  const Type *first = both ? c->out->field[0] : c->out;
  int axis = op_axis(c, a.axis, first->ndim);
  RowSort r = {.axis = axis, .ascend = a.is_ascend, .k = first->shape[axis]};
  r.values = !strcmp(a.ret_type, "indices") ? -1 : 0;
  r.indices = both ? 1 : !strcmp(a.ret_type, "indices") ? 0 : -1;
  const Expr *n = c->arg[0]->shape[axis];
  int64_t given = c->op->attrs == &Topk_attrs ? ((const TopkAttrs *)c->attrs)->k : 0;
  if (given >= 1) r.k = dim_int(c->m, given); /* where the row has fewer, its size is refused before anything runs */
  bool few = r.k->kind == E_INT && r.k->u.i >= 1 && r.k->u.i <= FEW && (n->kind != E_INT || 4 * r.k->u.i <= n->u.i);
  (few ? select_rows : sort_rows)(c, &r, in[0], out);
}

const OpDef op_topk = {
  .name = "topk",
  .doc = "the k largest (or smallest) of each row in order; ties: lower index first, NaN above every number",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Topk_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = topk_type,
  .compute = topk_compute,
};
const OpDef op_dyn_topk = {
  .name = "dyn.topk",
  .doc = "topk with k known only at run time",
  .args = "data, k",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynTopk_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dyn_topk_type,
  .compute = topk_compute,
};
