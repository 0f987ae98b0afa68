/* layout.c: from blocks of channels back to plain layouts; and both ways where the positions are not counted before the
 * run.
 *
 *   NCHW16c to NCHW:  for n, block, piece of h * w:  for channel in block:  a vector of positions
 *   NCHW to NCHW16c:  for n, block, piece of h * w:  for position in piece:  a vector of channels
 *
 * The result has no loop over a block's channels: read through c / 16 and c % 16, nothing says that
 * neighbouring channels lie side by side.  Splitting the loop over channels by the block shows it, and the
 * generic schedule then goes over squares of positions by channels, each line of memory while it is near.
 *
 * Data that is padded or put together before it is brought into blocks is first written as it is, for one block of
 * channels at a time: a square of which each element asks where it comes from cannot be turned round in registers.  So
 * are bytes in blocks of few channels, without that copy. */
#include "impl/internal.h"
#include "op/nn.h"

/* The capital whose dimension `from` has in blocks and `to` has whole, and its block; 0: there is no such one alone. */
static int64_t whole_again(const char *from, const char *to, int *dimension)
{
  Layout l;
  int64_t block = 0;
  if (layout_parse(from, &l) || !layout_is_plain(to)) return 0;
  for (int i = 0; i < l.n; i++) {
    if (!l.factor[i]) continue;
    const char *at = strchr(to, layout_capital(l.letter[i]));
    if (block || !at) return 0;
    block = l.factor[i];
    *dimension = (int)(at - to);
  }
  return block;
}

/* Channels of a block where one of the layouts is plain (NCHW) and the other has the last dimension more (NCHW16c), and
 * an extent of the plane is not known; 0: it is another transform. */
static int64_t open_block(const Node *call)
{
  const LayoutTransformAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  bool into = x->ndim < call->type->ndim;
  const Type *plain = into ? x : call->type;
  int dims = plain->ndim - 2;
  if (x->kind != TY_TENSOR || dims < 1 || dims > 3 || !known_size(plain, 1)) return 0;
  bool open = false;
  for (int d = 0; d < dims; d++) open |= !known_size(plain, 2 + d);
  int64_t block = conv_block(into ? a->dst_layout : a->src_layout, dims);
  if (!open || !conv_layout_is_plain(into ? a->src_layout : a->dst_layout, "NC", dims)) return 0;
  return known_size(plain, 1) % (block ? block : 1) ? 0 : block;
}

bool transform_fits(const Target *t, const Node *call)
{
  (void)t;
  const LayoutTransformAttrs *a = call->u.call.attrs;
  int dimension;
  return open_block(call) > 1 || whole_again(a->src_layout, a->dst_layout, &dimension) > 1;
}

double transform_cost(const Target *t, const Node *call) { return impl_flops(call) / cost_bandwidth(t); }

/* Squares of positions by channels, turned round in registers.  In: n, blocks of channels, the plane, channels of a
 * block, in any order. */
static void turn_squares(ImplGroup *g, LoopRV n, LoopRV blocks, LoopRV plane, LoopRV channels, bool into)
{
  enum { SIDE = 4 };
  LoopRV ci, pi;
  LoopRV co = generic_split_by(g, channels, SIDE, &ci);
  LoopRV po = generic_split_by(g, plane, SIDE, &pi);
  sched_reorder(g->s, 6, (const LoopRV[]){n, blocks, po, co, into ? pi : ci, into ? ci : pi});
  sched_unroll(g->s, co);
  sched_unroll(g->s, into ? pi : ci);
  sched_vectorize(g->s, into ? ci : pi);
  sched_parallel(g->s, sched_fuse(g->s, 2, (const LoopRV[]){n, blocks}, true));
}

static void transform_open(ImplGroup *g, int64_t size)
{
  BlockRV *block;
  LoopRV *loop, inner;
  int n = g->anchor->type->ndim;
  bool into = g->anchor->arg[0]->type->ndim < n;
  if (generic_root_blocks(g, &block) != 1 || sched_get_loops(g->s, block[0], g->arena, &loop) != n || size % 4)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the transform's loops are not those of its dimensions");
  int dims = into ? n - 3 : n - 2;
  LoopRV plane = dims > 1 ? sched_fuse(g->s, dims, loop + 2, true) : loop[2];
  if (into) turn_squares(g, loop[0], loop[1], plane, loop[n - 1], true);
  else {
    LoopRV blocks = generic_split_by(g, loop[1], size, &inner);
    turn_squares(g, loop[0], blocks, plane, inner, false);
  }
}

void transform_schedule(ImplGroup *g)
{
  const LayoutTransformAttrs *a = g->anchor->u.call.attrs;
  generic_inline(g);
  int64_t open = open_block(g->anchor);
  if (open) {
    transform_open(g, open);
    return;
  }
  BlockRV *block;
  LoopRV *loop, inner;
  int dimension = 0;
  int n = generic_root_blocks(g, &block);
  int64_t size = whole_again(a->src_layout, a->dst_layout, &dimension);
  if (n == 1 && sched_get_loops(g->s, block[0], g->arena, &loop) == g->anchor->type->ndim &&
      dimension < g->anchor->type->ndim) {
    const Expr *extent = sched_loop_stmt(g->s, loop[dimension])->u.loop.extent;
    if (extent->kind == E_INT && extent->u.i % size == 0) generic_split_by(g, loop[dimension], size, &inner);
  }
  generic_rest(g);
}

/* ---- padded data into blocks -------------------------------------------------------------------------- */

/* Bytes in blocks of less than half a vector: squares of a vector by a vector do not serve those. */
static bool has_small_squares(const Target *t, const Node *call)
{
  return call->type->dtype.bits == 8 && 2 * known_size(call->type, call->type->ndim - 1) < target_lanes(t, 8);
}

static bool is_put_together(const Node *n)
{
  return n->kind == N_CALL && (!strcmp(n->u.call.op->name, "nn.pad") || !strcmp(n->u.call.op->name, "concatenate"));
}

bool transform_padded_fits(const Target *t, const Node *call)
{
  const LayoutTransformAttrs *a = call->u.call.attrs;
  const Node *from = call->arg[0];
  if (from->type->kind != TY_TENSOR || target_lanes(t, 8) < 8) return false;
  int dims = from->type->ndim - 2;
  if (dims < 1 || dims > 3 || (!is_put_together(from) && !has_small_squares(t, call))) return false;
  for (int d = 1; d < from->type->ndim; d++)
    if (!known_size(from->type, d)) return false;
  return conv_layout_is_plain(a->src_layout, "NC", dims) && conv_block(a->dst_layout, dims) > 1;
}

/* The block that makes what another one reads. */
static bool find_maker(ImplGroup *g, BlockRV reader, BlockRV *out)
{
  BlockRV *all;
  int n = generic_root_blocks(g, &all);
  const Block *b = sched_block_stmt(g->s, reader)->u.block;
  for (int i = 0; i < n && b->nreads == 1; i++)
    if (sched_block_stmt(g->s, all[i])->u.block->writes[0].buffer == b->reads[0].buffer) {
      *out = all[i];
      return true;
    }
  return false;
}

void transform_padded_schedule(ImplGroup *g)
{
  BlockRV *block, made;
  LoopRV *loop, pi;
  bool guarded = is_put_together(g->anchor->arg[0]) && find_maker(g, group_stage(g, "T_layout_trans"), &made);
  if (guarded) generic_keep(g, made);
  generic_inline(g);
  int n = generic_root_blocks(g, &block);
  int ndim = g->anchor->type->ndim;
  if (n == (guarded ? 2 : 1) && sched_get_loops(g->s, block[n - 1], g->arena, &loop) == ndim) {
    int dims = ndim - 3;
    int64_t side = known_size(g->anchor->type, ndim - 1);
    LoopRV plane = dims > 1 ? sched_fuse(g->s, dims, loop + 2, true) : loop[2];
    LoopRV squares = generic_split_by(g, plane, side, &pi);
    sched_reorder(g->s, 5, (const LoopRV[]){loop[0], loop[1], squares, pi, loop[ndim - 1]});
    if (guarded) sched_compute_at(g->s, block[0], loop[1], false, -1);
    /* images and blocks stay two loops, so that the blocks which have channels of the padding alone can be told
     * apart */
    double bytes = impl_likely_elements(g->anchor->type) * dtype_bytes(g->anchor->type->dtype);
    int threads = cost_threads(g->target, 0, 2 * bytes);
    if (threads > 1) sched_parallel(g->s, loop[known_size(g->anchor->type, 0) >= threads ? 0 : 1]);
    if (2 * side != target_lanes(g->target, 8)) sched_unroll(g->s, pi);
    sched_vectorize(g->s, loop[ndim - 1]);
    if (guarded) generic_block(g, block[0], 2, false);
  }
  generic_rest(g);
}
