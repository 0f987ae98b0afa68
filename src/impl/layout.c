/* layout.c: from blocks of channels back to plain layouts.
 *
 *   NCHW16c to NCHW:  for n, block, piece of h * w:  for channel in block:  a vector of positions
 *
 * The result has no loop over a block's channels: read through c / 16 and c % 16, nothing says that
 * neighbouring channels lie side by side.  Splitting the loop over channels by the block shows it, and the
 * generic schedule then goes over squares of positions by channels, each line of memory while it is near. */
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

bool transform_fits(const Target *t, const Node *call)
{
  (void)t;
  const LayoutTransformAttrs *a = call->u.call.attrs;
  int dimension;
  return whole_again(a->src_layout, a->dst_layout, &dimension) > 1;
}

double transform_cost(const Target *t, const Node *call) { return impl_flops(call) / cost_bandwidth(t); }

void transform_schedule(ImplGroup *g)
{
  const LayoutTransformAttrs *a = g->anchor->u.call.attrs;
  generic_inline(g);
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
