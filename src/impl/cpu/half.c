/* half.c: sums in float16, for --fast-math=fp16 on targets that compute in it.
 *
 * A long sum in float16 loses what the rounding of each step takes.  Here a sum of products is cut
 * into blocks of at most SUM_TERMS terms:
 *
 *   part[…, b] = sum over the terms of block b, float16              the inner loops: twice the lanes
 *   total[…]   = sum over b of float32(part[…, b])                   once for each block
 *
 * The operator's own meaning (sums in float32, rounded once) is the start: its tensor expression is
 * rewritten, so whatever layout, stride or padding it has stays.  Short sums (depthwise) have one block. */
#include "impl/internal.h"
#include "op/nn.h"

/* The error of a block grows with the root of its length and stays at some units of float16's last
 * place; what adding a block costs falls with it.  Winograd's transformation back makes errors several times
 * larger, so its blocks are shorter. */
enum { SUM_TERMS = 256, WINOGRAD_TERMS = 64 };

static bool is_half(DType t) { return dtype_eq(t, DT_F16); }

static bool all_half(const Node *call)
{
  return is_half(call->type->dtype) && is_half(call->arg[0]->type->dtype) && is_half(call->arg[1]->type->dtype);
}

static bool is_served(const ImplCall *c) { return target_has(c->target, CPU_FP16) && all_half(c->call); }

/* Those of the implementation in float32, at twice the lanes. */
static void half_plans(const ImplCall *c, PlanList *list, void (*plans)(const ImplCall *, PlanList *))
{
  if (is_served(c)) plans(c, list);
}

void half_conv_plans(const ImplCall *c, PlanList *list)
{
  if (((const Conv2DAttrs *)c->call->u.call.attrs)->groups == 1) half_plans(c, list, conv_plans);
}

void half_depthwise_plans(const ImplCall *c, PlanList *list) { half_plans(c, list, depthwise_plans); }
void half_winograd_plans(const ImplCall *c, PlanList *list) { half_plans(c, list, winograd_plans); }

#define HALF_DENSE_PLAN(A, S)                                          \
  A(S, INT, width, NULL, "columns of a register tile, and of a panel") \
  A(S, INT, rows, NULL, "rows of a register tile")
DEFINE_PLAN(HalfDensePlan, HALF_DENSE_PLAN)

/* Over a weight in panels that cover the columns; or one that is known at compile time, which is brought into them. */
void half_dense_plans(const ImplCall *call, PlanList *list)
{
  enum { MOST = 4 }; /* vectors of columns */
  const Target *t = call->target;
  const Node *c = call->call;
  if (!is_served(call) || c->type->ndim != 2) return;
  const Type *w = c->arg[1]->type;
  int64_t rows = known(c->type->shape[0]);
  int64_t n = known(c->type->shape[1]);
  int64_t given = w->ndim == 3 ? known(w->shape[2]) : 0;
  int64_t lanes = target_lanes(t, 16);
  bool plain = w->ndim == 2 && alter_is_constant(call->m->ctx, c->arg[1]) &&
               !(c->u.call.op->attrs == &Matmul_attrs && ((const MatmulAttrs *)c->u.call.attrs)->transpose_a);
  if (rows < 2 || !n || (!given && !plain)) return;
  int threads = cost_threads(t, impl_flops(c), 0);
  list->alters = !given;
  for (int64_t width = lanes; width <= MOST * lanes && width <= n; width++) {
    int64_t vectors = alter_block_vectors(width, lanes);
    if (n % width || (given && given != width)) continue;
    for (int64_t r = 1; r <= rows && r <= t->vector_registers; r++) {
      /* an element to multiply by comes from the lower half of the registers */
      if (!t->broadcast_load && (vectors + 1) * (r + 1) + 1 > t->vector_registers - 4) break;
      double speed = tile_speed(t, vectors, 1, rows, (Tile){1, 1, r}) * (double)width / (double)(vectors * lanes);
      speed *= threads * cost_busy((double)(n / width), threads);
      if (speed > 0)
        plan_add(list, &(HalfDensePlan){width, r}, impl_flops(c) / cost_flops(t, 16) / speed,
                 given ? 0 : 2 * type_known_elements(w));
    }
  }
}

void half_dense_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  matmul_alter_to(call, ((const HalfDensePlan *)plan)->width, 1, out);
}

static double least_seconds(const ImplCall *c)
{
  PlanList list;
  double least = 0;
  impl_plans(c, &list);
  for (int i = 0; i < list.v.n; i++)
    if (least == 0 || list.v.v[i].seconds < least) least = list.v.v[i].seconds;
  return least;
}

bool impl_prefers_half(Module *m, const Target *t, const ImplConfig *config, const Node *wide, const Node *half)
{
  Arena *arena = scratch(m->ctx);
  double least = least_seconds(&(ImplCall){m, arena, t, config, half});
  double other = least_seconds(&(ImplCall){m, arena, t, config, wide});
  return least > 0 && (other == 0 || least < other);
}

/* ---- the computation ------------------------------------------------------------------------------ */

/* The sum behind a result that rounds it: cast(sum[…]). */
static const TeOp *sum_behind(const Tensor *rounded)
{
  const TeOp *op = rounded->op;
  if (op->kind != TE_COMPUTE || op->nout != 1 || op->body[0]->kind != E_CAST || op->body[0]->arg[0]->kind != E_LOAD)
    return NULL;
  const Tensor *sum = te_tensor_of(op->body[0]->arg[0]->u.buffer);
  if (!sum || sum->op->kind != TE_COMPUTE || !te_plain_reduce(sum->op)) return NULL;
  return sum->op->naxis < PARTS_AXES && sum->op->nreduce <= PARTS_AXES ? sum->op : NULL;
}

/* float32(a) * float32(b) as a * b. */
static const Expr *narrow_product(Module *m, const Expr *e)
{
  if (e->kind != E_MUL) return NULL;
  for (int i = 0; i < 2; i++)
    if (e->arg[i]->kind != E_CAST || !is_half(e->arg[i]->arg[0]->dtype)) return NULL;
  return expr_mul(m, e->arg[0]->arg[0], e->arg[1]->arg[0]);
}

/* The rounded sum made in blocks of at most so many terms; the same where it has another form. */
static const Tensor *in_blocks(Module *m, const Tensor *rounded, int64_t most)
{
  const TeOp *sum = sum_behind(rounded);
  for (int i = 0; sum && i < sum->nreduce; i++)
    if (sum->reduce_axis[i]->extent->kind != E_INT) return rounded;
  const Expr *term = sum ? narrow_product(m, te_plain_reduce(sum)->arg[0]) : NULL;
  if (!term) return rounded;
  int64_t steps = parts_steps(sum, most);
  int64_t blocks = sum->reduce_axis[0]->extent->u.i / steps;
  const Tensor *part = parts_sum(m, sum, term, steps, blocks);
  return blocks > 1 ? parts_total(m, sum, part, blocks, DT_F16) : part;
}

void half_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  c->op->compute(c, in, out);
  *out = in_blocks(c->m, *out, SUM_TERMS);
}

static const Tensor *product_in_blocks(Module *m, const Tensor *product, const void *arg)
{
  (void)arg;
  return in_blocks(m, product, WINOGRAD_TERMS);
}

void half_winograd_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  c->op->compute(c, in, out);
  *out = parts_replace(c->m, *out, "bgemm_cast", product_in_blocks, NULL);
}

/* ---- the schedule of convolutions -------------------------------------------------------------------- */

void half_schedule_part(ImplGroup *g, BlockRV part, LoopRV block, int depth, int ntile, const int *tile, int64_t sums)
{
  Nest *n = arena_new_of(g->arena, Nest);
  sched_compute_at(g->s, part, block, true, -1);
  nest_read(g, part, n);
  ConvLoops l = {.c = depth + tile[ntile - 1], .first = depth};
  while (l.first < n->n && !n->loop[l.first].reduce) l.first++;
  if (l.first == n->n) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the partial sums have no loop over their terms");
  int index[NEST_LOOPS];
  int nsum = conv_sum_order(n, &l, index);
  int k = 0;
  LoopRV order[NEST_LOOPS + 2], step;
  int64_t steps = tile_steps(g->target, sums, n->loop[index[nsum - 1]].extent);
  for (int i = 0; i < nsum - 1; i++) order[k++] = n->loop[index[i]].rv;
  order[k++] = generic_split_by(g, n->loop[index[nsum - 1]].rv, steps, &step);
  order[k++] = step;
  for (int i = 0; i < ntile; i++) order[k++] = n->loop[depth + tile[i]].rv;
  sched_reorder(g->s, k, order);
  sched_set_scope(g->s, part, 0, "local");
  for (int i = nsum; i < k - 1; i++) sched_unroll(g->s, order[i]);
  sched_vectorize(g->s, order[k - 1]);
  sched_decompose_reduction(g->s, part, order[0]);
}

void half_conv_schedule(ImplGroup *g)
{
  BlockRV part;
  if (!parts_find(g, &part)) {
    conv_schedule(g);
    return;
  }
  Nest *n;
  ConvLoops l;
  BlockRV total = conv_begin(g, &n, &l);
  if (l.dims != 2 || n->n != l.first + 1)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the sum's loops are not those of NCHWc and blocks");
  int64_t oy = n->loop[l.y].extent;
  int64_t vectors = alter_block_vectors(n->loop[l.c].extent, target_lanes(g->target, 16));
  const ConvPlan *plan = g->plan;
  Tile tile = {plan->o, plan->y, plan->x};
  LoopRV oi, yi, xi;
  LoopRV oo = generic_split_by(g, n->loop[1].rv, tile.o, &oi);
  LoopRV yo = generic_split_by(g, n->loop[l.y].rv, tile.y, &yi);
  LoopRV xo = generic_split_by(g, n->loop[l.x].rv, tile.x, &xi);
  LoopRV order[] = {n->loop[0].rv, oo, yo, xo, n->loop[l.first].rv, yi, xi, oi, n->loop[l.c].rv};
  sched_reorder(g->s, 9, order);
  epilogue_write_out(g, impl_attach_epilogue(g, total, xo), 4, false);
  half_schedule_part(g, part, order[4], 5, 4, (const int[]){2, 3, 1, 4}, tile.o * tile.y * tile.x * vectors);
  sched_unroll(g->s, yi), sched_unroll(g->s, xi), sched_unroll(g->s, oi);
  sched_vectorize(g->s, order[8]);
  sched_decompose_reduction(g->s, total, order[4]);
  int threads = cost_threads(g->target, 2 * impl_flops(g->anchor), 0);
  bool few = n->loop[1].extent / tile.o < 4 * threads && oy % tile.y == 0;
  LoopRV parts = sched_fuse(g->s, few ? 3 : 2, order, true);
  if (threads > 1) sched_parallel(g->s, parts);
  generic_rest(g);
}

/* ---- the schedule of products ---------------------------------------------------------------------------- */

void half_dense_schedule(ImplGroup *g)
{
  const HalfDensePlan *plan = g->plan;
  BlockRV part, total;
  if (!parts_find(g, &part)) {
    matmul_schedule_tiles(g, plan->width, plan->rows);
    return;
  }
  generic_inline(g);
  total = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, total, n); /* rows, columns, block */
  if (n->n != 3 || !n->plain) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, blocks");
  int64_t vectors = alter_block_vectors(plan->width, target_lanes(g->target, 16));
  LoopRV ci, ri;
  LoopRV co = generic_split_by(g, n->loop[1].rv, plan->width, &ci);
  LoopRV ro = generic_split_by(g, n->loop[0].rv, plan->rows, &ri);
  LoopRV order[] = {co, ro, n->loop[2].rv, ri, ci};
  sched_reorder(g->s, 5, order);
  epilogue_write_out(g, impl_attach_epilogue(g, total, ro), 2, false);
  half_schedule_part(g, part, order[2], 3, 2, (const int[]){0, 1}, plan->rows * vectors);
  sched_unroll(g->s, ri);
  sched_vectorize(g->s, ci);
  sched_decompose_reduction(g->s, total, order[2]);
  int threads = cost_threads(g->target, impl_flops(g->anchor), 0);
  bool whole = n->loop[0].extent % plan->rows == 0;
  LoopRV parts = whole ? sched_fuse(g->s, 2, order, true) : co;
  if (threads > 1) sched_parallel(g->s, parts);
  generic_rest(g);
}
