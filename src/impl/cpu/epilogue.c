/* epilogue.c: what comes after an anchor, attached to its tile.
 *
 * A schedule that accumulates a tile in registers names the loop inside of which the tile
 * is complete.  The blocks behind the anchor have been put together into one by
 * generic_inline; when that one block reads the anchor's result element by element it runs on
 * the tile while it is in registers, and the result never goes to memory unfinished.
 *
 * A few operations are written out for the whole tile.  An elementary function is not: some dozen of them in straight
 * code want more registers than there are.  There the sums go to a place on the stack, and a loop takes them up a few
 * vectors at a time. */
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
  if (!nest_block_is_injective(b)) return false;
  ReadCheck c = {b, made, true};
  expr_visit(g->ctx, b->body->u.store.value, check_read, &c);
  return c.same && b->niter == made->ndim;
}

BlockRV impl_attach_epilogue(ImplGroup *g, BlockRV anchor, LoopRV at)
{
  const Block *b = sched_block_stmt(g->s, anchor)->u.block;
  const Buffer *made = b->writes[0].buffer;
  if (!nest_block_is_output(sched_func(g->s), b)) {
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

static double operations_of(ImplGroup *g, BlockRV store)
{
  const Stmt *body = sched_block_stmt(g->s, store)->u.block->body;
  return body->kind == S_STORE ? nest_expr_operations(g->ctx, body->u.store.value) : 0;
}

/* Their steps wait for each other, and each holds some registers beside the function's constants, which are many where
 * it is long.  Where the code generator puts them abreast (llvm_abreast.c) the constants are counted once. */
int64_t epilogue_abreast(const Target *t, double operations)
{
  enum { LONG = 24, ABREAST = 5 };
  int64_t n = t->vector_registers / (t->arch == ARCH_AARCH64 ? ABREAST : operations < LONG ? 8 : 16);
  return n > 1 ? n : 1;
}

/* Positions taken at a time: all loops the same where a divisor comes near the most there may be, else one more that is
 * shorter. */
static int64_t positions_at_once(int64_t most, int64_t extent)
{
  int64_t best = 1;
  for (int64_t f = 2; f <= extent && f <= most; f++)
    if (extent % f == 0) best = f;
  if (2 * best > most || most < 3) return best;
  int64_t parts = (extent + most - 1) / most;
  return (extent + parts - 1) / parts;
}

void epilogue_write_out(ImplGroup *g, BlockRV store, int outer, bool may_loop)
{
  enum { FUNCTION = 12 }; /* operations that nest.c counts for one */
  LoopRV *out, part;
  int n = sched_get_loops(g->s, store, g->arena, &out);
  double operations = operations_of(g, store);
  /* A microcontroller's sums stay in registers: a loop over them would put them into memory first. */
  bool micro = g->target->device.kind == DEVICE_MICRO;
  bool loops = may_loop && n - 2 >= outer && operations >= FUNCTION && !micro;
  LoopRV last = out[n - 1];
  for (int i = outer; i < n - 1 && !loops; i++) sched_unroll(g->s, out[i]);
  if (loops) {
    Nest *nest = arena_new_of(g->arena, Nest);
    nest_read(g, store, nest);
    int64_t lanes = target_lanes(g->target, nest->bits);
    int64_t width = nest->loop[n - 1].extent;
    int64_t vectors = alter_block_vectors(width, lanes);
    int64_t most = epilogue_abreast(g->target, operations);
    if (vectors > most && width % (most * lanes) == 0) {
      generic_split_by(g, last, most * lanes, &last);
    } else {
      generic_split_by(g, out[n - 2], positions_at_once(most / vectors, nest->loop[n - 2].extent), &part);
      sched_unroll(g->s, part);
    }
  }
  sched_vectorize(g->s, last);
}
