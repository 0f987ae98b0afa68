/* ml_trees.c: ensembles of decision trees, and the probabilities of classes from those of pairs.
 *
 * Trees are tables.  Node i asks whether data[row, node[i, 0]] <= split[i] and goes on at node[i, 1] if so, at
 * node[i, 2] if not, and at node[i, 3] where the number is NaN.  The leaves come first: row i of `weight` belongs to
 * node i, and a leaf's ways all lead to itself.  So a fixed number of steps brings any row to a leaf, without a branch:
 *
 *   at = root;  depth times: at = node[at, 1 + (x > split[at])]
 *
 * A step waits for three loads, one after the other; LANES walks take their steps side by side, so that the loads of
 * one hide those of the others: as many rows through one tree where there are rows, as many trees for one row where
 * not.  Deep trees are often uneven, so every few steps the walk asks whether anybody is still under way.  Blocks of
 * rows run in parallel, each through all trees; of a single row parts of the trees, where they are very many.
 *
 * The weights of a leaf are one for each target, or, with `target`, for those it names.  They are summed up from
 * `base`; or the least or the greatest is taken and `base` added, where a NaN stands for no weight, and base alone is
 * the result of a target that no leaf has a weight for. */
#include <math.h>

#include "op/shape.h"

/* clang-format off */
#define ML_TREES_ATTRS(A, S)                                                                       \
  A(S, INT, depth, NULL, "steps that lead from any root to a leaf")                                \
  A(S, STR, aggregate, "\"sum\"", "of the weights of all trees: sum, min or max")                  \
  A(S, BOOL, missing, "False", "NaN has ways of its own; else it goes where greater numbers go")   \
  A(S, BOOL, in_range, "False", "the tables are known to name features, nodes and targets that are there")
/* clang-format on */
DEFINE_ATTRS(MlTrees, ML_TREES_ATTRS)

enum { DATA, BASE, NODE, SPLIT, ROOT, WEIGHT, TARGET };
enum { LANES = 8, BLOCK = 32, STRIDE = 4 };
enum { MANY_STEPS = 50000 }; /* of one row: about what it takes for threads to be worth waking */

static int64_t known(OpCall *c, int i, int axis)
{
  int64_t n = 0;
  if (!dim_literal(c->arg[i]->shape[axis], &n))
    opdef_raise(c, ERR_UNSUPPORTED, "%s is %s; its sizes must be known", op_arg_name(c, i), op_arg_text(c, i));
  return n;
}

static void want_table(OpCall *c, int i, int ndim, DType t)
{
  const Type *ty = op_ranked_arg(c, i, ndim, ndim);
  if (!dtype_eq(ty->dtype, t))
    opdef_raise(c, ERR_TYPE, "%s is %s; %s is wanted", op_arg_name(c, i), op_arg_text(c, i),
                dtype_name(scratch(c->m->ctx), t));
  for (int d = 0; d < ndim; d++) known(c, i, d);
}

/* in_range is believed of tables that are computed; of constants it is checked. */
static void check_range(OpCall *c, int i, int column, int64_t limit)
{
  const Node *n = c->node ? c->node[i] : NULL;
  if (!((const MlTreesAttrs *)c->attrs)->in_range || !n || n->kind != N_CONST) return;
  const int32_t *v = n->u.data->data;
  int64_t width = n->u.data->ndim > 1 ? n->u.data->shape[1] : 1;
  for (int64_t r = 0; r < n->u.data->shape[0]; r++)
    for (int64_t k = 0; k < width; k++)
      if ((column < 0 || (column == 0) == (k == 0)) && (v[r * width + k] < 0 || v[r * width + k] >= limit))
        opdef_raise(c, ERR_ARGUMENT, "%s holds %d; it is 0 to %" PRId64, op_arg_name(c, i), (int)v[r * width + k],
                    limit - 1);
}

static const Type *trees_type(OpCall *c)
{
  const MlTreesAttrs *a = c->attrs;
  const Type *x = op_ranked_arg(c, DATA, 2, 2);
  op_need_float(c, DATA);
  want_table(c, BASE, 1, c->arg[WEIGHT]->kind == TY_TENSOR ? c->arg[WEIGHT]->dtype : DT_F32);
  want_table(c, NODE, 2, DT_I32);
  want_table(c, SPLIT, 1, x->dtype);
  want_table(c, ROOT, 1, DT_I32);
  want_table(c, WEIGHT, 2, c->arg[WEIGHT]->dtype);
  op_need_float(c, WEIGHT);
  int64_t nodes = known(c, NODE, 0);
  int64_t leaves = known(c, WEIGHT, 0);
  int64_t targets = known(c, BASE, 0);
  int64_t features;
  if (c->nargs > TARGET) {
    want_table(c, TARGET, 2, DT_I32);
    op_equal_dim(c, c->arg[TARGET]->shape[0], c->arg[WEIGHT]->shape[0], "the leaves of weight and target");
    op_equal_dim(c, c->arg[TARGET]->shape[1], c->arg[WEIGHT]->shape[1], "the width of weight and target");
    check_range(c, TARGET, -1, targets);
  } else {
    op_equal_dim(c, c->arg[WEIGHT]->shape[1], c->arg[BASE]->shape[0], "the width of weight and base");
  }
  if (known(c, NODE, 1) != STRIDE || known(c, SPLIT, 0) != nodes || leaves < 1 || leaves > nodes || targets < 1)
    opdef_raise(c, ERR_SHAPE, "%s nodes with %s splits, %s weights and %" PRId64 " targets make no trees",
                op_arg_text(c, NODE), op_arg_text(c, SPLIT), op_arg_text(c, WEIGHT), targets);
  if (a->depth < 0 || a->depth > INT32_MAX) opdef_raise(c, ERR_ARGUMENT, "depth is %" PRId64, a->depth);
  if (strcmp(a->aggregate, "sum") && strcmp(a->aggregate, "min") && strcmp(a->aggregate, "max"))
    opdef_raise(c, ERR_ARGUMENT, "aggregate is '%s'; it is sum, min or max", a->aggregate);
  check_range(c, ROOT, -1, nodes);
  check_range(c, NODE, 1, nodes);
  if (dim_literal(x->shape[1], &features)) check_range(c, NODE, 0, features);
  return type_tensor(c->m, c->arg[WEIGHT]->dtype, 2, (const Expr *[]){x->shape[0], dim_int(c->m, targets)});
}

/* What the statements of one program have in common. */
typedef struct Trees {
  Module *m;
  const Buffer *data, *base, *node, *split, *root, *weight, *target, *out;
  const Buffer *at[LANES]; /* where each walk is */
  int64_t depth, targets, trees, width, leaves;
  bool missing, in_range, sum, least;
} Trees;

static const Expr *num(const Trees *t, int64_t v) { return expr_i32(t->m, v); }
static const Expr *here(const Trees *t, int lane) { return loops_get(t->m, t->at[lane], num(t, 0)); }
static const Expr *table(const Trees *t, const Buffer *b, const Expr *i, const Expr *k)
{
  return expr_load(t->m, b, b->ndim, (const Expr *[]){i, k});
}
static const Expr *within(const Trees *t, const Expr *v, const Expr *n)
{
  return t->in_range ? v : op_emit_clamp(t->m, v, num(t, 0), expr_sub(t->m, expr_cast(t->m, DT_I32, n), num(t, 1)));
}
static Stmt *loop(const Trees *t, const Var *v, const Expr *n, Stmt *body)
{
  return stmt_for(t->m, v, num(t, 0), n, FOR_SERIAL, NULL, body);
}

/* One step of one walk, over the row's numbers. */
static Stmt *step(const Trees *t, int lane, const Expr *row)
{
  Module *m = t->m;
  const Expr *at = here(t, lane);
  const Expr *feature = within(t, table(t, t->node, at, num(t, 0)), t->data->shape[1]);
  const Expr *x = table(t, t->data, row, feature);
  const Expr *way = expr_select(m, expr_binary(m, E_LE, x, loops_get(m, t->split, at)), num(t, 1), num(t, 2));
  if (t->missing) way = expr_select(m, expr_binary(m, E_NE, x, x), num(t, 3), way);
  return loops_set(m, t->at[lane], num(t, 0), within(t, table(t, t->node, at, way), t->node->shape[0]));
}

/* All walks from their roots to leaves.  row, tree: one for each, or the same for all (n 1). */
static Stmt *walk(const Trees *t, int lanes, int nrow, const Expr *const *row, int ntree, const Expr *const *tree)
{
  enum { SHALLOW = 6, STEPS = 4 };
  Module *m = t->m;
  Stmt *begin[LANES], *go[LANES];
  const Expr *under_way = NULL;
  for (int i = 0; i < lanes; i++) {
    const Expr *first = loops_get(m, t->root, tree[ntree > 1 ? i : 0]);
    begin[i] = loops_set(m, t->at[i], num(t, 0), within(t, first, t->node->shape[0]));
    go[i] = step(t, i, row[nrow > 1 ? i : 0]);
    const Expr *inner = expr_binary(m, E_GE, here(t, i), num(t, t->leaves));
    under_way = under_way ? expr_binary(m, E_OR, under_way, inner) : inner;
  }
  const Var *k = loops_var(m, "step");
  Stmt *all = stmt_seq(m, lanes, go);
  if (t->depth <= SHALLOW) {
    all = loop(t, k, num(t, t->depth), all);
  } else {
    const Var *part = loops_var(m, "part");
    all = loop(t, part, num(t, (t->depth + STEPS - 1) / STEPS),
               stmt_if(m, under_way, loop(t, k, num(t, STEPS), all), NULL));
  }
  return loops_seq(m, stmt_seq(m, lanes, begin), all);
}

static const Expr *combined(const Trees *t, const Expr *old, const Expr *w)
{
  Module *m = t->m;
  if (t->sum) return expr_add(m, old, w);
  const Expr *keep = expr_binary(m, t->least ? E_LE : E_GE, old, w);
  return expr_select(m, expr_binary(m, E_OR, keep, expr_binary(m, E_NE, w, w)), old, w);
}

/* What the leaf of a walk adds to a row. */
static Stmt *collect(const Trees *t, int lane, const Expr *row)
{
  Module *m = t->m;
  const Var *k = loops_var(m, "k");
  const Expr *leaf = t->in_range ? here(t, lane) : op_emit_clamp(m, here(t, lane), num(t, 0), num(t, t->leaves - 1));
  const Expr *w = table(t, t->weight, leaf, k->expr);
  const Expr *to = t->target ? within(t, table(t, t->target, leaf, k->expr), num(t, t->targets)) : k->expr;
  const Expr *at[] = {row, to};
  return loop(t, k, num(t, t->width), loops_store(m, t->out, at, combined(t, loops_load(m, t->out, at), w)));
}

/* What all walks of a row add to it, at once where that is a sum over every target. */
static Stmt *collect_trees(const Trees *t, int lanes, const Expr *row)
{
  Module *m = t->m;
  const Var *k = loops_var(m, "k");
  Stmt *each[LANES];
  const Expr *at[] = {row, k->expr};
  const Expr *all = NULL;
  for (int i = 0; i < lanes; i++) {
    const Expr *w = table(t, t->weight, within(t, here(t, i), num(t, t->leaves)), k->expr);
    all = all ? expr_add(m, all, w) : w;
    each[i] = collect(t, i, row);
  }
  if (!t->sum || t->target || lanes == 1) return stmt_seq(m, lanes, each);
  return loop(t, k, num(t, t->width), loops_store(m, t->out, at, expr_add(m, loops_load(m, t->out, at), all)));
}

static Stmt *some_trees(const Trees *t, int lanes, const Expr *row, const Expr *to, const Expr *first)
{
  const Expr *tree[LANES];
  for (int i = 0; i < lanes; i++) tree[i] = expr_add(t->m, first, num(t, i));
  return loops_seq(t->m, walk(t, lanes, 1, &row, LANES, tree), collect_trees(t, lanes, to));
}

/* One row through so many trees from `first` on, LANES of them at a time, into row `to` of the result. */
static Stmt *row_through(const Trees *t, const Expr *row, const Expr *to, const Expr *first, int64_t trees)
{
  Module *m = t->m;
  const Var *g = loops_var(m, "g");
  int64_t whole = trees / LANES;
  int rest = (int)(trees % LANES);
  Stmt *part[2];
  int n = 0;
  const Expr *group = expr_add(m, first, expr_mul(m, g->expr, num(t, LANES)));
  if (whole) part[n++] = loop(t, g, num(t, whole), some_trees(t, LANES, row, to, group));
  if (rest) part[n++] = some_trees(t, rest, row, to, expr_add(m, first, num(t, whole * LANES)));
  return n ? stmt_seq(m, n, part) : stmt_nop(m);
}

/* LANES rows from `first` on through one tree. */
static Stmt *some_rows(const Trees *t, const Expr *first, const Expr *tree)
{
  const Expr *row[LANES];
  Stmt *put[LANES];
  for (int i = 0; i < LANES; i++) row[i] = expr_add(t->m, first, num(t, i));
  for (int i = 0; i < LANES; i++) put[i] = collect(t, i, row[i]);
  return loops_seq(t->m, walk(t, LANES, LANES, row, 1, &tree), stmt_seq(t->m, LANES, put));
}

static Stmt *begin_row(const Trees *t, const Expr *row)
{
  Module *m = t->m;
  const Var *k = loops_var(m, "k");
  const Expr *at[] = {row, k->expr};
  const Expr *first = t->sum ? loops_get(m, t->base, k->expr) : op_num(m, t->out->dtype, (double)NAN);
  return loop(t, k, num(t, t->targets), loops_store(m, t->out, at, first));
}

static Stmt *end_row(const Trees *t, const Expr *row)
{
  Module *m = t->m;
  const Var *k = loops_var(m, "k");
  const Expr *at[] = {row, k->expr};
  const Expr *v = loops_load(m, t->out, at);
  const Expr *base = loops_get(m, t->base, k->expr);
  const Expr *some = expr_select(m, expr_binary(m, E_NE, v, v), base, expr_add(m, v, base));
  return t->sum ? stmt_nop(m) : loop(t, k, num(t, t->targets), loops_store(m, t->out, at, some));
}

static Stmt *single_row(const Trees *t, const Expr *row)
{
  return loops_seq(t->m, begin_row(t, row), row_through(t, row, row, num(t, 0), t->trees), end_row(t, row));
}

static void new_lanes(Trees *t)
{
  for (int i = 0; i < LANES; i++) t->at[i] = loops_local(t->m, arena_printf(t->m->arena, "at%d", i), DT_I32, num(t, 1));
}

static Stmt *with_lanes(const Trees *t, Stmt *body)
{
  for (int i = 0; i < LANES; i++) body = stmt_alloc(t->m, t->at[i], body);
  return body;
}

/* A single row through very many trees: parts of them in parallel, each with a sum of its own. */
static Stmt *row_in_parts(const Trees *t)
{
  enum { PARTS = 16 };
  Module *m = t->m;
  const Var *p = loops_var(m, "p");
  const Var *k = loops_var(m, "k");
  const Var *q = loops_var(m, "q");
  const Var *j = loops_var(m, "j");
  int64_t each = t->trees / PARTS / LANES * LANES;
  const Expr *shape[] = {num(t, PARTS), num(t, t->targets)};
  Trees part = *t;
  Trees last = *t;
  new_lanes(&last);
  part.out = buffer_new(m, "partial", t->out->dtype, 2, shape, NULL, NULL, NULL, 0, 0, NULL);
  const Expr *own[] = {p->expr, k->expr};
  const Expr *from[] = {q->expr, j->expr};
  const Expr *to[] = {num(t, 0), j->expr};
  Stmt *zero = loop(t, k, num(t, t->targets), loops_store(m, part.out, own, op_num(m, t->out->dtype, 0)));
  Stmt *trees = row_through(&part, num(t, 0), p->expr, expr_mul(m, p->expr, num(t, each)), each);
  Stmt *parts = stmt_for(m, p, num(t, 0), num(t, PARTS), FOR_PARALLEL, NULL, with_lanes(t, loops_seq(m, zero, trees)));
  Stmt *add = loops_store(m, t->out, to, expr_add(m, loops_load(m, t->out, to), loops_load(m, part.out, from)));
  Stmt *sums = loop(t, q, num(t, PARTS), loop(t, j, num(t, t->targets), add));
  Stmt *rest = row_through(&last, num(t, 0), num(t, 0), num(t, PARTS * each), t->trees - PARTS * each);
  return stmt_alloc(m, part.out, loops_seq(m, parts, begin_row(t, num(t, 0)), sums, with_lanes(&last, rest)));
}

/* Rows of one block: LANES at a time through each tree, what is left one by one. */
static Stmt *block_of_rows(const Trees *t, const Expr *n, const Expr *block)
{
  Module *m = t->m;
  const Var *r = loops_var(m, "r");
  const Var *tree = loops_var(m, "tree");
  const Var *g = loops_var(m, "g");
  const Var *s = loops_var(m, "s");
  const Var *e = loops_var(m, "e");
  const Expr *first = expr_mul(m, block, num(t, BLOCK));
  const Expr *count = expr_min(m, num(t, BLOCK), expr_sub(m, n, first));
  const Expr *groups = expr_floordiv(m, count, num(t, LANES));
  const Expr *whole = expr_mul(m, groups, num(t, LANES));
  Stmt *begin = loop(t, r, whole, begin_row(t, expr_add(m, first, r->expr)));
  const Expr *at = expr_add(m, first, expr_mul(m, g->expr, num(t, LANES)));
  Stmt *trees = loop(t, tree, num(t, t->trees), loop(t, g, groups, some_rows(t, at, tree->expr)));
  Stmt *end = loop(t, e, whole, end_row(t, expr_add(m, first, e->expr)));
  const Expr *row = expr_add(m, expr_add(m, first, whole), s->expr);
  Stmt *rest = loop(t, s, expr_sub(m, count, whole), single_row(t, row));
  return loops_seq(m, begin, trees, end, rest);
}

static void trees_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const MlTreesAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, c->nargs, in);
  Trees t = {.m = m, .data = l.ib[DATA], .base = l.ib[BASE], .node = l.ib[NODE], .split = l.ib[SPLIT]};
  t.root = l.ib[ROOT], t.weight = l.ib[WEIGHT], t.target = c->nargs > TARGET ? l.ib[TARGET] : NULL, t.out = l.ob[0];
  t.depth = a->depth, t.missing = a->missing, t.in_range = a->in_range;
  t.sum = !strcmp(a->aggregate, "sum"), t.least = !strcmp(a->aggregate, "min");
  t.targets = known(c, BASE, 0), t.trees = known(c, ROOT, 0);
  t.width = known(c, WEIGHT, 1), t.leaves = known(c, WEIGHT, 0);
  new_lanes(&t);
  const Expr *n = expr_cast(m, DT_I32, t.data->shape[0]);
  const Var *v = loops_var(m, "i");
  Stmt *body;
  if (expr_is_int(n, 1) && t.sum && t.trees * (t.depth + 1) >= MANY_STEPS) {
    body = row_in_parts(&t);
  } else if (n->kind == E_INT && n->u.i < LANES) {
    body = with_lanes(&t, loop(&t, v, n, single_row(&t, v->expr)));
  } else {
    const Expr *blocks = expr_floordiv(m, expr_add(m, n, num(&t, BLOCK - 1)), num(&t, BLOCK));
    body = stmt_for(m, v, num(&t, 0), blocks, FOR_PARALLEL, NULL, with_lanes(&t, block_of_rows(&t, n, v->expr)));
  }
  loops_end(&l, c->op->name, body, out);
}

const OpDef op_ml_tree_ensemble = {
  .name = "ml.tree_ensemble",
  .doc = "decision trees as tables: for each row the weights of the leaves it comes to, summed or least or greatest",
  .args = "data, base, node, split, root, weight, target",
  .min_args = 6,
  .max_args = 7,
  .attrs = &MlTrees_attrs,
  .fuse = FUSE_OPAQUE,
  .type = trees_type,
  .compute = trees_compute,
};

/* ---- probabilities of pairs ------------------------------------------------------------------------
 *
 * Of n classes, r[i, j] says how probable i is where it is i or j.  The probabilities p of all classes are those that
 * fit best: Q p is the same for every class, with Q[i, i] the sum of r[j, i]² over j and Q[i, j] = -r[j, i] r[i, j]
 * (Wu, Lin and Weng, 2004).  Each class is adjusted in turn, until none is off by more than 0.005 / n, a hundred times
 * at most.  data holds r[i, j] of each pair i < j in order. */

static const Type *pairs_type(OpCall *c)
{
  const Type *x = op_ranked_arg(c, 0, 2, 2);
  int64_t pairs = known(c, 0, 1);
  int64_t n = 2;
  op_need_float(c, 0);
  while (n * (n - 1) / 2 < pairs) n++;
  if (n * (n - 1) / 2 != pairs) opdef_raise(c, ERR_SHAPE, "%" PRId64 " pairs are those of no number of classes", pairs);
  return type_tensor(c->m, x->dtype, 2, (const Expr *[]){x->shape[0], dim_int(c->m, n)});
}

typedef struct Pairs {
  Module *m;
  const Buffer *data, *out, *q, *qp, *one; /* one: pQp, the error, the step, whether to go on */
  const Expr *row;
  int64_t n;
} Pairs;
enum { TOTAL, ERROR, STEP, GOING, NSCALARS };

static const Expr *pair(const Pairs *p, const Expr *i, const Expr *j) /* r[i, j] */
{
  Module *m = p->m;
  const Expr *lo = expr_min(m, i, j);
  const Expr *hi = expr_max(m, i, j);
  /* pairs before those of lo: lo n - lo (lo + 1) / 2 */
  const Expr *skip = expr_sub(m, expr_mul(m, lo, expr_i32(m, p->n)),
                              expr_floordiv(m, expr_mul(m, lo, expr_add(m, lo, expr_i32(m, 1))), expr_i32(m, 2)));
  const Expr *k = expr_add(m, skip, expr_sub(m, expr_sub(m, hi, lo), expr_i32(m, 1)));
  const Expr *last = expr_i32(m, p->n * (p->n - 1) / 2 - 1);
  const Expr *v = loops_load(m, p->data, (const Expr *[]){p->row, op_emit_clamp(m, k, expr_i32(m, 0), last)});
  return expr_select(m, expr_lt(m, i, j), v, expr_sub(m, op_num(m, v->dtype, 1), v));
}
static const Expr *q_at(const Pairs *p, const Expr *i, const Expr *j)
{
  return expr_add(p->m, expr_mul(p->m, i, expr_i32(p->m, p->n)), j);
}
static const Expr *prob(const Pairs *p, const Expr *i) { return loops_load(p->m, p->out, (const Expr *[]){p->row, i}); }
static Stmt *set_prob(const Pairs *p, const Expr *i, const Expr *v)
{
  return loops_store(p->m, p->out, (const Expr *[]){p->row, i}, v);
}
static const Expr *scalar_get(const Pairs *p, int which) { return loops_get(p->m, p->one, expr_i32(p->m, which)); }
static Stmt *scalar_set(const Pairs *p, int which, const Expr *v)
{
  return loops_set(p->m, p->one, expr_i32(p->m, which), v);
}
static Stmt *classes(const Pairs *p, const Var *v, Stmt *body)
{
  return stmt_for(p->m, v, expr_i32(p->m, 0), expr_i32(p->m, p->n), FOR_SERIAL, NULL, body);
}

/* Q, and equal probabilities to begin with. */
static Stmt *pairs_begin(const Pairs *p)
{
  Module *m = p->m;
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  const Expr *ji = pair(p, j->expr, i->expr);
  const Expr *diagonal = q_at(p, i->expr, i->expr);
  Stmt *own = loops_set(m, p->q, diagonal, expr_add(m, loops_get(m, p->q, diagonal), expr_mul(m, ji, ji)));
  const Expr *minus = expr_sub(m, op_num(m, p->q->dtype, 0), expr_mul(m, ji, pair(p, i->expr, j->expr)));
  Stmt *other = loops_set(m, p->q, q_at(p, i->expr, j->expr), minus);
  Stmt *each = stmt_if(m, expr_binary(m, E_NE, i->expr, j->expr), loops_seq(m, own, other), NULL);
  return classes(p, i,
                 loops_seq(m, set_prob(p, i->expr, op_num(m, p->out->dtype, 1.0 / (double)p->n)),
                           loops_set(m, p->q, diagonal, op_num(m, p->q->dtype, 0)), classes(p, j, each)));
}

/* Q p, p Q p, and the largest error. */
static Stmt *pairs_error(const Pairs *p)
{
  Module *m = p->m;
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  const Var *k = loops_var(m, "k");
  const Expr *qp = loops_get(m, p->qp, i->expr);
  Stmt *row = loops_set(m, p->qp, i->expr,
                        expr_add(m, qp, expr_mul(m, loops_get(m, p->q, q_at(p, i->expr, j->expr)), prob(p, j->expr))));
  Stmt *product =
      classes(p, i,
              loops_seq(m, loops_set(m, p->qp, i->expr, op_num(m, p->qp->dtype, 0)), classes(p, j, row),
                        scalar_set(p, TOTAL, expr_add(m, scalar_get(p, TOTAL), expr_mul(m, prob(p, i->expr), qp)))));
  const Expr *off = op_intrin(m, IN_ABS, expr_sub(m, loops_get(m, p->qp, k->expr), scalar_get(p, TOTAL)));
  Stmt *worst = classes(p, k, scalar_set(p, ERROR, expr_max(m, scalar_get(p, ERROR), off)));
  const Expr *zero = op_num(m, p->one->dtype, 0);
  return loops_seq(m, scalar_set(p, TOTAL, zero), product, scalar_set(p, ERROR, zero), worst);
}

/* Each class in turn. */
static Stmt *pairs_adjust(const Pairs *p)
{
  Module *m = p->m;
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  const Expr *own = loops_get(m, p->q, q_at(p, i->expr, i->expr));
  const Expr *qp = loops_get(m, p->qp, i->expr);
  const Expr *total = scalar_get(p, TOTAL);
  const Expr *by = scalar_get(p, STEP);
  const Expr *grown = expr_add(m, op_num(m, by->dtype, 1), by);
  const Expr *twice = expr_mul(m, op_num(m, by->dtype, 2), qp);
  const Expr *change = expr_mul(m, by, expr_add(m, expr_mul(m, by, own), twice));
  const Expr *moved = expr_binary(m, E_DIV, expr_add(m, total, change), expr_mul(m, grown, grown));
  const Expr *next =
      expr_add(m, loops_get(m, p->qp, j->expr), expr_mul(m, by, loops_get(m, p->q, q_at(p, i->expr, j->expr))));
  Stmt *others = classes(p, j,
                         loops_seq(m, loops_set(m, p->qp, j->expr, expr_binary(m, E_DIV, next, grown)),
                                   set_prob(p, j->expr, expr_binary(m, E_DIV, prob(p, j->expr), grown))));
  return classes(p, i,
                 loops_seq(m, scalar_set(p, STEP, expr_binary(m, E_DIV, expr_sub(m, total, qp), own)),
                           set_prob(p, i->expr, expr_add(m, prob(p, i->expr), by)), scalar_set(p, TOTAL, moved),
                           others));
}

static void pairs_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  enum { ROUNDS = 100 };
  static const double CLOSE = 0.005;
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  Pairs p = {.m = m, .data = l.ib[0], .out = l.ob[0], .n = l.ob[0]->shape[1]->u.i};
  DType t = p.out->dtype;
  const Var *row = loops_var(m, "row");
  const Var *round = loops_var(m, "round");
  p.row = row->expr;
  p.q = loops_local(m, "q", t, expr_i32(m, p.n * p.n));
  p.qp = loops_local(m, "qp", t, expr_i32(m, p.n));
  p.one = loops_local(m, "one", t, expr_i32(m, NSCALARS));
  const Expr *zero = op_num(m, t, 0);
  const Expr *close = expr_lt(m, scalar_get(&p, ERROR), op_num(m, t, CLOSE / (double)p.n));
  Stmt *one = loops_seq(m, pairs_error(&p), stmt_if(m, close, scalar_set(&p, GOING, zero), pairs_adjust(&p)));
  Stmt *rounds = stmt_for(m, round, expr_i32(m, 0), expr_i32(m, ROUNDS), FOR_SERIAL, NULL,
                          stmt_if(m, expr_binary(m, E_NE, scalar_get(&p, GOING), zero), one, NULL));
  Stmt *body = loops_seq(m, pairs_begin(&p), scalar_set(&p, GOING, op_num(m, t, 1)), rounds);
  body = stmt_alloc(m, p.q, stmt_alloc(m, p.qp, stmt_alloc(m, p.one, body)));
  loops_end(&l, c->op->name, stmt_for(m, row, expr_i32(m, 0), p.out->shape[0], FOR_PARALLEL, NULL, body), out);
}

const OpDef op_ml_pairwise_probability = {
  .name = "ml.pairwise_probability",
  .doc = "probabilities of classes from those of each pair of them",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .type = pairs_type,
  .compute = pairs_compute,
};
