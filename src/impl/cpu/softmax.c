/* softmax.c: softmax and log_softmax over rows too short to fill vectors, many rows at once.
 *
 *   for some rows                                              threads
 *     turned[k, r] = data[row r, k]                            squares turned round in registers
 *     max[r], exps[k, r], total[r]                             a vector is element k of as many rows
 *     shares[k, r] = exps[k, r] / total[r]
 *     out[row r, k] = shares[k, r]                             squares turned back
 *
 * A row is everything that one index of the dimensions before the axis leads to: (rows, k, inner) lies as a matrix of
 * rows by k * inner, so axes with few elements behind them go the same way, each of those a softmax of its own.
 *
 * The last rows begin so much earlier that they are as many as the others: some are computed twice, and none is asked
 * whether it is there but when it is stored. */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define SOFTMAX_PLAN(A, S) A(S, INT, rows, NULL, "rows that are turned together")
DEFINE_PLAN(SoftmaxPlan, SOFTMAX_PLAN)

enum { SIDE = 4 }; /* of a square */

typedef struct Turned {
  int axis;
  int64_t outer, length, inner; /* before the axis, along it, behind it; 0: not known */
} Turned;

static Turned turned_of(const SoftmaxAttrs *a, const Type *t)
{
  Turned s = {.axis = (int)(a->axis < 0 ? a->axis + t->ndim : a->axis), .outer = 1, .length = 1, .inner = 1};
  for (int d = 0; d < t->ndim; d++) *(d < s.axis ? &s.outer : d > s.axis ? &s.inner : &s.length) *= known_size(t, d);
  return s;
}

/* ---- plans ----------------------------------------------------------------------------------------- */

/* Cycles, fitted on a Neoverse-N1.  A vector of exponentials with everything else that is done to it, where others
 * hide what it waits for; and what it waits, alone. */
static const double VECTOR = 17.5;
static const double VECTOR_WAIT = 10;
/* An element's share of a square turned round, there and back. */
static const double TURN = 1.3;
/* One row after the other: until its largest and its sum are out of the lanes of a vector, and the last vector, not
 * all of which is there. */
static const double ROW_WAIT = 30;
static const double ROW_REST = 50;
/* Such a last one of elements behind the axis. */
static const double INNER_REST = 15;

static double turned_cycles(const Turned *s, int64_t rows, int64_t lanes)
{
  double columns = (double)(s->length * s->inner);
  double vectors = (double)(rows / lanes);
  double steps = __builtin_ceil((double)s->outer / (double)rows) * vectors;
  return steps * columns * (VECTOR + VECTOR_WAIT / vectors) + (double)s->outer * columns * TURN;
}

/* As the generic schedule has it: vectors along a row, or along what lies behind the axis. */
static double straight_cycles(const Turned *s, int64_t lanes)
{
  enum { ABREAST = 4 };
  double vector = VECTOR + VECTOR_WAIT / ABREAST;
  double rows = (double)s->outer;
  if (s->inner == 1)
    return rows * (ROW_WAIT + (double)(s->length / lanes) * vector + (s->length % lanes ? ROW_REST : 0));
  double whole = (double)(s->inner / lanes) * (VECTOR + VECTOR_WAIT / 2);
  double rest = s->inner % lanes ? VECTOR + VECTOR_WAIT + INNER_REST : 0;
  return rows * (double)s->length * (whole + rest);
}

void softmax_plans(const ImplCall *c, PlanList *list)
{
  enum { MOST_VECTORS = 4 };
  const Type *t = c->call->type;
  int64_t lanes = target_lanes(c->target, nn_accumulator(t->dtype).bits);
  Turned s = turned_of(c->call->u.call.attrs, t);
  if (!s.outer || !s.length || !s.inner || lanes < SIDE || s.length == 1) return;
  for (int64_t rows = lanes; rows <= MOST_VECTORS * lanes && rows <= s.outer; rows *= 2) {
    int64_t bytes = 3 * s.length * s.inner * rows * (nn_accumulator(t->dtype).bits / 8);
    double cycles = turned_cycles(&s, rows, lanes);
    if (bytes > cost_l1(c->target) || cycles >= straight_cycles(&s, lanes)) continue;
    double elements = (double)(s.outer * s.length * s.inner);
    int threads = cost_threads(c->target, elements * 16, 2 * elements * dtype_bytes(t->dtype));
    plan_add(list, &(SoftmaxPlan){rows}, cycles / (1e9 * c->target->core.ghz) / threads, 0);
  }
}

/* ---- computation ----------------------------------------------------------------------------------- */

/* The first row of bunch number b. */
static const Expr *first_row(Module *m, const Turned *s, int64_t rows, const Expr *b)
{
  const Expr *first = expr_mul(m, b, expr_i32(m, rows));
  return s->outer % rows ? expr_min(m, first, expr_i32(m, s->outer - rows)) : first;
}

/* Where row r, element k of the softmax number i begins and ends: the index of the tensor. */
static void index_of(Module *m, const Turned *s, const Type *t, const Expr *r, const Expr *k, const Expr *i,
                     const Expr **index)
{
  index[s->axis] = k;
  for (int d = s->axis - 1; d >= 0; d--) {
    index[d] = d ? expr_floormod(m, r, t->shape[d]) : r;
    r = expr_floordiv(m, r, t->shape[d]);
  }
  for (int d = t->ndim - 1; d > s->axis; d--) {
    index[d] = d > s->axis + 1 ? expr_floormod(m, i, t->shape[d]) : i;
    i = expr_floordiv(m, i, t->shape[d]);
  }
}

/* The dimensions from first to last as one number. */
static const Expr *counted(Module *m, const Type *t, const Expr *const *at, int first, int last)
{
  const Expr *n = expr_i32(m, 0);
  for (int d = first; d <= last; d++) n = expr_add(m, expr_mul(m, n, t->shape[d]), at[d]);
  return nn_simplify(m, n);
}

typedef struct Bunches {
  Module *m;
  Turned s;
  int64_t rows;
  const Expr *shape[4]; /* bunches, length, inner, rows */
} Bunches;

/* The largest, or the sum, of a term along the axis: (bunch, inner, row). */
static const Tensor *along_axis(const Bunches *b, const char *name, const char *reducer, const Tensor *of,
                                const Tensor *less)
{
  Module *m = b->m;
  Stage s = nn_stage(m, 3, (const Expr *[]){b->shape[0], b->shape[2], b->shape[3]}, NULL);
  const Expr *k = nn_reduce_axis(&s, "k", b->shape[1]);
  const Expr *term = nn_read(m, of, (const Expr *[]){s.at[0], k, s.at[1], s.at[2]});
  if (less) {
    DType wide = nn_accumulator(term->dtype);
    term = expr_sub(m, expr_cast(m, wide, term), expr_cast(m, wide, nn_read(m, less, s.at)));
    term = nn_unary(m, IN_EXP, term);
  }
  return nn_finish(&s, name, "comm_reduce", nn_reduce(&s, reducer, term));
}

static void turned_compute(OpCall *c, const void *plan, bool logarithm, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Bunches b = {m, turned_of(c->attrs, c->out), ((const SoftmaxPlan *)plan)->rows, {0}};
  DType wide = nn_accumulator(c->out->dtype);
  b.shape[0] = expr_i32(m, (b.s.outer + b.rows - 1) / b.rows), b.shape[1] = expr_i32(m, b.s.length);
  b.shape[2] = expr_i32(m, b.s.inner), b.shape[3] = expr_i32(m, b.rows);
  const Expr *index[MAX_RANK];
  Stage t = nn_stage(m, 4, b.shape, NULL);
  index_of(m, &b.s, c->out, expr_add(m, first_row(m, &b.s, b.rows, t.at[0]), t.at[3]), t.at[1], t.at[2], index);
  const Tensor *turned = nn_finish(&t, "softmax_turned", "injective", nn_read(m, in[0], index));
  const Tensor *max = along_axis(&b, "softmax_max", "max", turned, NULL);
  Stage e = nn_stage(m, 4, b.shape, NULL);
  const Expr *own[] = {e.at[0], e.at[2], e.at[3]};
  const Expr *less =
      expr_sub(m, expr_cast(m, wide, nn_read(m, turned, e.at)), expr_cast(m, wide, nn_read(m, max, own)));
  const Tensor *exps = NULL;
  if (!logarithm) exps = nn_finish(&e, "softmax_exps", "elemwise", nn_unary(m, IN_EXP, less));
  const Tensor *total = along_axis(&b, "softmax_total", "sum", logarithm ? turned : exps, logarithm ? max : NULL);
  Stage f = nn_stage(m, 3, total->buffer->shape, NULL);
  const Expr *sum = nn_read(m, total, f.at);
  const Tensor *factor = nn_finish(&f, "softmax_factor", "elemwise",
                                   logarithm ? nn_unary(m, IN_LOG, sum) : NN_DIV(m, expr_const(m, wide, 1), sum));
  Stage n = nn_stage(m, 4, b.shape, NULL);
  const Expr *row[] = {n.at[0], n.at[2], n.at[3]};
  const Expr *by = nn_read(m, factor, row);
  const Expr *value = logarithm ? expr_sub(m,
                                           expr_sub(m, expr_cast(m, wide, nn_read(m, turned, n.at)),
                                                    expr_cast(m, wide, nn_read(m, max, row))),
                                           by)
                                : expr_mul(m, nn_read(m, exps, n.at), by);
  const Tensor *shares = nn_finish(&n, "softmax_shares", "elemwise", expr_cast(m, c->out->dtype, value));
  Stage o = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *r = counted(m, c->out, o.at, 0, b.s.axis - 1);
  const Expr *bunch = expr_floordiv(m, r, b.shape[3]);
  const Expr *from[] = {bunch, o.at[b.s.axis], counted(m, c->out, o.at, b.s.axis + 1, c->out->ndim - 1),
                        expr_sub(m, r, first_row(m, &b.s, b.rows, bunch))};
  *out = nn_finish(&o, "softmax", "injective", nn_read(m, shares, from));
}

void softmax_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  turned_compute(c, plan, false, in, out);
}

void softmax_log_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  turned_compute(c, plan, true, in, out);
}

/* ---- schedule -------------------------------------------------------------------------------------- */

static LoopRV as_one(ImplGroup *g, int n, const LoopRV *loop)
{
  return n == 1 ? loop[0] : sched_fuse(g->s, n, loop, true);
}

/* Squares of rows by columns; the loop that is written side by side is the last one. */
static void turn(ImplGroup *g, LoopRV rows, LoopRV columns, bool back)
{
  LoopRV ri, ci;
  LoopRV ro = generic_split_by(g, rows, SIDE, &ri);
  LoopRV co = generic_split_by(g, columns, SIDE, &ci);
  sched_reorder(g->s, 4, (const LoopRV[]){ro, co, back ? ri : ci, back ? ci : ri});
  sched_unroll(g->s, back ? ri : ci);
  sched_vectorize(g->s, back ? ci : ri);
}

void softmax_schedule(ImplGroup *g)
{
  enum { AXES = 3 }; /* of a bunch: length, inner, rows */
  static const char *const stages[] = {"softmax_shares", "softmax_factor", "softmax_total",
                                       "softmax_exps",   "softmax_max",    "softmax_turned"};
  const SoftmaxPlan *p = g->plan;
  Turned s = turned_of(g->anchor->u.call.attrs, g->anchor->type);
  bool logarithm = !strcmp(g->anchor->u.call.op->name, "nn.log_softmax");
  BlockRV out = group_stage(g, "softmax");
  LoopRV *l, row;
  int n = sched_get_loops(g->s, out, g->arena, &l);
  LoopRV columns = as_one(g, n - s.axis, l + s.axis);
  LoopRV bunch = generic_split_by(g, as_one(g, s.axis, l), p->rows, &row);
  turn(g, row, columns, true);
  for (int i = 0; i < (int)(sizeof stages / sizeof *stages); i++) {
    if (logarithm && !strcmp(stages[i], "softmax_exps")) continue;
    BlockRV b = group_stage(g, stages[i]);
    sched_compute_at(g->s, b, bunch, true, -1);
    n = sched_get_loops(g->s, b, g->arena, &l);
    bool sums = !strcmp(stages[i], "softmax_total") || !strcmp(stages[i], "softmax_max");
    if (sums) { /* inner, rows, length */
      sched_reorder(g->s, 2, (const LoopRV[]){l[n - 1], l[n - 2]});
      sched_vectorize(g->s, l[n - 2]);
      sched_decompose_reduction(g->s, b, l[n - 1]);
    } else if (!strcmp(stages[i], "softmax_turned")) {
      turn(g, l[n - 1], as_one(g, AXES - 1, l + n - AXES), false);
    } else {
      sched_vectorize(g->s, l[n - 1]);
    }
  }
  double elements = (double)(s.outer * s.length * s.inner);
  if (cost_threads(g->target, elements * 16, 2 * elements * dtype_bytes(g->anchor->type->dtype)) > 1)
    sched_parallel(g->s, bunch);
}
