/* depthwise.c: one filter for each channel, over blocks of channels.
 *
 *   for n, channel block, band of rows                         threads
 *     the band's data with its padding                         stays in the cache
 *     for y, x (tiles)
 *       tile[x, c] = sum over ky, kx of data[y + ky, x + kx, c] * weight[ky, kx, c]
 *
 * Everything is a vector of channels.  The taps are written out, so that neighbouring outputs
 * share what they read. */
#include "impl/internal.h"
#include "op/nn.h"

static bool is_static(const Type *t, int from)
{
  for (int d = from; d < t->ndim; d++)
    if (t->shape[d]->kind != E_INT || t->shape[d]->u.i < 1) return false;
  return true;
}

bool depthwise_fits(const Target *t, const Node *call)
{
  (void)t;
  return call->type->ndim == 5 && call->arg[1]->type->ndim == 5 && is_static(call->type, 1) && is_static(call->arg[1]->type, 0) && call->type->dtype.code == DT_FLOAT;
}

/* Outputs of a tile: they share taps and stay in half of the registers; a divisor of the row. */
static int64_t row_tile(const Target *t, int64_t vectors, int64_t width, int64_t taps)
{
  int64_t most = t->vector_registers / 2 / vectors, best = 1;
  if (most * taps > 160) most = 160 / taps;
  for (int64_t x = 1; x <= most && x <= width; x++)
    if (width % x == 0 || (x == most && best * 3 < most)) best = x;
  return best;
}

/* The stage that pads the data, where there is one that was not put into the sum. */
static bool padding_block(ImplGroup *g, BlockRV conv, BlockRV *out)
{
  BlockRV *from;
  int n = sched_get_producers(g->s, conv, g->arena, &from);
  for (int i = 0; i < n; i++) {
    const Block *b = sched_block_stmt(g->s, from[i])->u.block;
    if (!block_is_injective(b) || !str_starts(b->name, "pad_temp")) continue;
    *out = from[i];
    return true;
  }
  return false;
}

/* Rows of a band: as many as a quarter of the second-level cache holds with their padding, so
 * few that each thread gets several; a divisor. */
static int64_t band_rows(const Target *t, const Nest *n, int threads)
{
  int64_t oy = n->loop[2].extent, best = 1, taps = n->loop[5].extent, width = n->loop[3].extent + n->loop[n->n - 1].extent - 1;
  int64_t outer = n->loop[0].extent * n->loop[1].extent, cache = (t->l2_bytes > 0 ? t->l2_bytes : 1 << 19) / 4;
  int64_t row = width * n->loop[4].extent * n->bits / 8;
  for (int64_t r = 1; r <= oy; r++)
    if (oy % r == 0 && (r == 1 || ((r + taps - 1) * row <= cache && (threads < 2 || outer * (oy / r) >= 4 * threads)))) best = r;
  return best;
}

void depthwise_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV conv = group_sum(g), pad;
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, conv, n);
  if (n->n < 6 || !n->plain || n->loop[4].reduce) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the convolution's loops are not those of NCHWc");
  int64_t lanes = target_lanes(g->target, n->bits), vectors = block_vectors(n->loop[4].extent, lanes), taps = 1;
  for (int i = 5; i < n->n; i++) taps *= n->loop[i].extent;
  double bytes = 2 * n->iterations / (double)taps * n->bits / 8;
  int threads = cost_threads(g->target, 2 * n->iterations, bytes);
  bool padded = padding_block(g, conv, &pad);
  LoopRV order[NEST_LOOPS + 3], xi, yi;
  int k = 0;
  for (int i = 0; i < 2; i++) order[k++] = n->loop[i].rv;
  order[k++] = split_by(g, n->loop[2].rv, padded ? band_rows(g->target, n, threads) : 1, &yi);
  order[k++] = yi;
  order[k++] = split_by(g, n->loop[3].rv, row_tile(g->target, vectors, n->loop[3].extent, taps), &xi);
  for (int i = 5; i < n->n; i++) order[k++] = n->loop[i].rv;
  order[k++] = xi, order[k++] = n->loop[4].rv;
  sched_reorder(g->s, k, order);
  BlockRV store = impl_attach_epilogue(g, conv, order[4]);
  LoopRV *out;
  int nout = sched_get_loops(g->s, store, g->arena, &out);
  for (int i = 5; i < nout - 1; i++) sched_unroll(g->s, out[i]);
  sched_vectorize(g->s, out[nout - 1]);
  for (int i = 5; i < n->n && taps <= 49; i++) sched_unroll(g->s, n->loop[i].rv);
  sched_unroll(g->s, xi);
  sched_vectorize(g->s, n->loop[4].rv);
  sched_decompose_reduction(g->s, conv, order[5]);
  if (padded) sched_compute_at(g->s, pad, order[2], false, -1);
  LoopRV bands = sched_fuse(g->s, 3, order, true);
  if (padded) generic_block(g, pad, 1, false);
  if (threads > 1) sched_parallel(g->s, bands);
  generic_rest(g);
}
