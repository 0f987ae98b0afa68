/* blocks.c: products over fours of bfloat16, a tile of sums in 2 x 2 blocks.
 *
 *   for column panels, row tiles                                threads
 *     block[row / 2, column / 2, 4] = 0                         registers, one vector each
 *     for step: block += (two rows' fours) x (two columns' fours)
 *     epilogue: rows of the tile out of the blocks, store
 *
 * AArch64's bfmmla adds 16 products to a vector where bfdot adds 8, and begins as often.  A vector of rows or of
 * columns is two words of four steps; both operands lie so, in panels (panel, k / 4, rows or columns of a panel):
 *
 *     a: row 0 k0..k3, row 1 k0..k3, …      b: column 0 k0..k3, column 1 k0..k3, …      block: 00 01 10 11
 *
 * Whole tiles are computed, over zeros behind the last row; only what is there is stored. */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define BLOCKS_PLAN(A, S)                                              \
  A(S, INT, width, NULL, "columns of a register tile, and of a panel") \
  A(S, INT, height, NULL, "rows of a register tile, and of a panel of rows")
DEFINE_PLAN(BlocksPlan, BLOCKS_PLAN)

/* A vector is two rows or two columns. */
double blocks_step_cycles(const Target *t, int begun_bits, int64_t height, int64_t width)
{
  static const double LOOP = 0.25;
  static const double WAIT = 0.06; /* cycles of a load that do not overlap */
  int64_t sums = height * width / 4;
  int64_t held = height < width ? height / 2 : width / 2;
  double loads = (double)(height + width) / 2;
  double cycles = (double)sums * t->vector_bits / begun_bits;
  double ports = (double)t->core.load_bits / t->vector_bits;
  if (sums + held + 2 > t->vector_registers) return 0;
  if (loads / ports > cycles) cycles = loads / ports;
  if (t->core.fma_latency > cycles) cycles = t->core.fma_latency;
  return cycles + LOOP + WAIT * loads;
}

/* Over a weight in panels of fours; or one that is known at compile time, which is brought into them. */
void blocks_plans(const ImplCall *call, PlanList *list)
{
  enum { SERVED = 64, LEAST = 3 }; /* columns that share a copy; two rows wait for their weights as pairs do */
  const Target *t = call->target;
  const Node *c = call->call;
  const Type *x = c->arg[0]->type;
  const Type *w = c->arg[1]->type;
  if (!tile_blocks_pay(t) || x->ndim != 2 || c->type->ndim != 2 || !dtype_eq(c->type->dtype, DT_F32)) return;
  int64_t rows = known(c->type->shape[0]);
  int64_t n = known(c->type->shape[1]);
  int64_t given = w->ndim == 4 && dtype_eq(w->dtype, DT_BF16) && known(w->shape[3]) == 4 ? known(w->shape[2]) : 0;
  bool constant = w->ndim == 2 && dtype_eq(x->dtype, DT_BF16) && dtype_eq(w->dtype, DT_BF16) &&
                  alter_is_constant(call->m->ctx, c->arg[1]);
  if ((!given && !constant) || n < SERVED || rows < LEAST || !known(x->shape[1])) return;
  if (constant && c->u.call.op->attrs == &Matmul_attrs && ((const MatmulAttrs *)c->u.call.attrs)->transpose_a) return;
  double sums = 2.0 * (double)rows * (double)n * (double)known(x->shape[1]);
  int threads = cost_threads(t, sums, 0);
  int begun = t->core.block_bits ? t->core.block_bits : t->core.fma_bits;
  list->alters = !given;
  for (int64_t width = 4; width <= 32; width += 4)
    for (int64_t height = 2; height <= rows + 1 && height <= 32; height += 2) {
      if (n % width || (given && width != given)) continue;
      double tiles = __builtin_ceil((double)rows / (double)height) * (double)(n / width);
      double cycles =
          blocks_step_cycles(t, begun, height, width) * __builtin_ceil((double)known(x->shape[1]) / 4) * tiles;
      double busy = threads * cost_busy((double)(n / width), threads);
      if (cycles > 0)
        plan_add(list, &(BlocksPlan){width, height}, cycles / busy / (1e9 * t->core.ghz),
                 constant ? 2.0 * (double)n * (double)known(x->shape[1]) : 0);
    }
}

void blocks_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  matmul_alter_to(call, ((const BlocksPlan *)plan)->width, 4, out);
}

const Expr *blocks_read(Module *m, const Tensor *sums, int nlead, const Expr *const *lead, const Expr *row,
                        int64_t height, const Expr *column)
{
  const Expr *at[8];
  const Expr *two = expr_i32(m, 2);
  const Expr *h = expr_i32(m, height);
  const Expr *in_tile = expr_floormod(m, row, h);
  for (int d = 0; d < nlead; d++) at[d] = lead[d];
  at[nlead] = expr_floordiv(m, row, h);
  at[nlead + 1] = expr_floordiv(m, in_tile, two);
  at[nlead + 2] = expr_floordiv(m, column, two);
  at[nlead + 3] = expr_add(m, expr_mul(m, expr_floormod(m, in_tile, two), two), expr_floormod(m, column, two));
  return te_read(m, sums, nlead + 4, at);
}

void blocks_dense_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  Module *m = c->m;
  const Expr *const *b = in[1]->buffer->shape, *two = expr_i32(m, 2);
  int64_t height = ((const BlocksPlan *)plan)->height;
  const Tensor *a = matmul_pack_rows(m, in[0], height, 4);
  const Expr *shape[] = {b[0], a->buffer->shape[0], expr_i32(m, height / 2), expr_i32(m, known(b[2]) / 2),
                         expr_i32(m, 4)};
  Stage s = nn_stage(m, 5, shape, "panel tile row column lane");
  const Expr *k = nn_reduce_axis(&s, "k", b[1]);
  const Expr *row = expr_add(m, expr_mul(m, s.at[2], two), expr_floordiv(m, s.at[4], two));
  const Expr *column = expr_add(m, expr_mul(m, s.at[3], two), expr_floormod(m, s.at[4], two));
  const Expr *factor[] = {nn_read(m, a, (const Expr *[]){s.at[1], k, row}),
                          nn_word_at(m, in[1], (const Expr *[]){s.at[0], k, column})};
  const Tensor *sums = nn_sum(&s, "product", "matmul", nn_word_dot(m, factor[0], factor[1]), DT_F32);
  Stage all = nn_stage(m, 2, c->out->shape, "i j");
  const Expr *panel = expr_floordiv(m, all.at[1], b[2]);
  *out = nn_finish(&all, "dense_pack", "injective",
                   blocks_read(m, sums, 1, &panel, all.at[0], height, expr_floormod(m, all.at[1], b[2])));
}

/* ---- the schedule ------------------------------------------------------------------------------------ */

LoopRV blocks_tile(ImplGroup *g, BlockRV product, int64_t steps)
{
  LoopRV *loop, step;
  int n = sched_get_loops(g->s, product, g->arena, &loop);
  const LoopRV *tile = loop + n - 4; /* rows, columns, lanes, the sum */
  int64_t rows = known(sched_loop_stmt(g->s, tile[0])->u.loop.extent);
  int64_t columns = known(sched_loop_stmt(g->s, tile[1])->u.loop.extent);
  /* the fewer vectors stay in registers while the others pass */
  int many = rows < columns;
  LoopRV sum = generic_split_by(g, tile[3], tile_steps(g->target, rows * columns, steps), &step);
  sched_reorder(g->s, 5, (const LoopRV[]){sum, step, tile[many], tile[1 - many], tile[2]});
  sched_unroll(g->s, step), sched_unroll(g->s, tile[0]), sched_unroll(g->s, tile[1]);
  sched_vectorize(g->s, tile[2]);
  sched_set_scope(g->s, product, 0, "local");
  sched_decompose_reduction(g->s, product, sum);
  return step;
}

/* The next panel of the weight comes in from memory while this one is multiplied. */
static void fetch_next_panel(ImplGroup *g, BlockRV product, LoopRV panels)
{
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  for (int i = 0; i < b->nreads; i++)
    if (dtype_eq(b->reads[i].buffer->dtype, DT_BF16)) group_prefetch(g, product, i, panels, 1);
}

static void schedule_packing(ImplGroup *g, BlockRV packing, bool parallel)
{
  LoopRV *loop;
  sched_get_loops(g->s, packing, g->arena, &loop); /* tile, k, row */
  sched_unroll(g->s, loop[2]);
  if (parallel) sched_parallel(g->s, loop[0]);
}

void blocks_dense_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV product = group_sum(g);
  BlockRV packing = group_stage(g, "a_pack");
  BlockRV store = group_only_reader(g, product);
  const Buffer *rows = sched_block_stmt(g->s, packing)->u.block->writes[0].buffer;
  int64_t height = known(rows->shape[2]);
  int64_t width = known(g->anchor->arg[1]->type->shape[2]);
  int64_t all = known(g->anchor->type->shape[0]);
  LoopRV *loop, ri, ci;
  if (sched_get_loops(g->s, store, g->arena, &loop) != 2)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not rows, columns");
  LoopRV ro = generic_split_by(g, loop[0], height, &ri);
  LoopRV co = generic_split_by(g, loop[1], width, &ci);
  sched_reorder(g->s, 4, (const LoopRV[]){co, ro, ri, ci});
  sched_compute_at(g->s, product, ro, true, -1);
  epilogue_write_out(g, store, 2, true);
  LoopRV step = blocks_tile(g, product, known(rows->shape[1]));
  bool threads = cost_threads(g->target, impl_flops(g->anchor), 0) > 1;
  bool tiles = threads && all % height == 0; /* threads share tiles, else panels */
  if (all > height && !tiles) fetch_next_panel(g, product, co);
  LoopRV shared = tiles ? sched_fuse(g->s, 2, (const LoopRV[]){co, ro}, true) : co;
  if (threads) sched_parallel(g->s, shared);
  schedule_packing(g, packing, threads);
  panels_fetch(g, product, step, NULL);
  generic_rest(g);
}
