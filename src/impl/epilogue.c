/* epilogue.c: what comes after an anchor, attached to its tile.
 *
 * A schedule that accumulates a tile in registers names the loop inside of which the tile
 * is complete.  The blocks behind the anchor have been put together into one by
 * generic_inline; when that one block reads the anchor's result element by element it runs on
 * the tile while it is in registers, and the result never goes to memory unfinished. */
#include "impl/internal.h"

typedef struct Attach {
  ImplGroup *g;
  BlockRV anchor, block;
  LoopRV at;
} Attach;

static void attach_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Attach *a = arg;
  sched_reverse_compute_at(a->g->s, a->block, a->at, true, -1);
}

/* Does the block read the buffer only at its own variables, as the anchor writes it? */
typedef struct ReadCheck {
  const Block *block;
  const Buffer *buffer;
  bool same;
} ReadCheck;

static void check_read(void *env, const Expr *e)
{
  ReadCheck *c = env;
  if (e->kind != E_LOAD || e->u.buffer != c->buffer) return;
  for (int d = 0; d < e->nargs; d++) {
    bool single = expr_is_int(c->buffer->shape[d], 1) && expr_is_int(e->arg[d], 0);
    c->same &= d < c->block->niter && (single || e->arg[d] == var_expr(c->block->iter[d].var));
  }
}

static bool reads_elementwise(ImplGroup *g, const Block *b, const Buffer *made)
{
  if (!block_is_injective(b)) return false;
  ReadCheck c = {b, made, true};
  expr_visit(g->ctx, b->body->u.store.value, check_read, &c);
  return c.same && b->niter == made->ndim;
}

BlockRV impl_attach_epilogue(ImplGroup *g, BlockRV anchor, LoopRV at)
{
  const Block *b = sched_block_stmt(g->s, anchor)->u.block;
  const Buffer *made = b->writes[0].buffer;
  if (!block_is_output(sched_func(g->s), b)) {
    BlockRV *user;
    int n = sched_get_consumers(g->s, anchor, g->arena, &user);
    if (n == 1 && reads_elementwise(g, sched_block_stmt(g->s, user[0])->u.block, made)) {
      Attach a = {g, anchor, user[0], at};
      if (group_try(g, attach_body, &a)) {
        sched_set_scope(g->s, anchor, 0, "local");
        return user[0];
      }
    }
  }
  BlockRV store = sched_cache_write(g->s, anchor, 0, "local", 0, NULL);
  sched_reverse_compute_at(g->s, store, at, true, -1);
  return store;
}
