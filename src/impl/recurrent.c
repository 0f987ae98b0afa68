/* recurrent.c: the recurrence of rnn, lstm and gru in blocks of units.
 *
 * A step reads the whole recurrence once for each sample, from the second-level cache when it fits there; so
 * it has to be read straight ahead, in vectors, with enough sums in flight to hide the multiply-add's latency.
 * A block is so many units that the sums of all their gates stay in registers (op/nn_recurrent.c).  Of a batch several
 * samples share what is read: a register tile of samples by gates, as in a matrix product. */
#include "impl/internal.h"
#include "op/nn.h"

/* Units in a block: a divisor of the hidden size that fills vectors; 0: none does. */
static int64_t recurrent_block(const Target *t, int bits, int64_t hidden, int64_t gates)
{
  double in_flight = cost_pipes(t) * (t->core.fma_latency + 1); /* sums that keep the pipes busy */
  int64_t lanes = target_lanes(t, bits);
  int64_t best = 0;
  double top = 0;
  for (int64_t d = 2; d <= hidden; d++) {
    int64_t vectors = alter_block_vectors(d, lanes);
    if (hidden % d || vectors * gates > t->vector_registers * 3 / 4) continue;
    double busy = (double)(vectors * gates) / in_flight;
    double speed = (double)d / (double)(vectors * lanes) * (busy < 1 ? busy : 1);
    if (speed <= top) continue;
    top = speed;
    best = d;
  }
  return best;
}

/* Units in a block and samples together for a batch of several: as fast as a tile of those is, or as what it reads
 * comes from the second-level cache, over the groups that each core gets.  Of choices as fast the one that fewer cores
 * share. */
static void batch_blocks(const Target *t, int bits, int64_t hidden, int64_t gates, int64_t batch, int64_t directions,
                         int64_t *block, int64_t *samples)
{
  int64_t lanes = target_lanes(t, bits);
  int64_t cores = t->num_cores > 0 ? t->num_cores : 1;
  double least = 0;
  double read = gates * hidden * hidden * bits / 8 > t->l1_bytes ? cost_pipes(t) * cost_far(t) : 0;
  for (int64_t d = 2; d <= hidden; d++)
    for (int64_t s = 1; s <= batch; s++) {
      int64_t vectors = alter_block_vectors(d, lanes);
      if (hidden % d || batch % s) continue;
      double filled = (double)d / (double)(vectors * lanes);
      double speed = tile_speed(t, gates * vectors, 1, s, (Tile){1, 1, s});
      int64_t groups = directions * batch / s;
      int64_t rounds = (groups + cores - 1) / cores;
      double cost = (double)rounds * ((double)s / speed > read ? (double)s / speed : read) / filled;
      if (speed <= 0 || (*block && (cost > least || (cost == least && s <= *samples)))) continue;
      least = cost;
      *block = d, *samples = s;
    }
}

/* Samples of the batch where they all run for as long; 1 where that is not known. */
static int64_t batch_of(const Node *call)
{
  const RecurrentLoopAttrs *a = call->u.call.attrs;
  const Expr *batch = call->arg[0]->type->shape[a->layout ? 0 : 1];
  for (int i = 0; i < a->inputs.n; i++)
    if (!strcmp(a->inputs.v[i], "sequence_lens")) return 1;
  return batch->kind == E_INT ? batch->u.i : 1;
}

static const Node *in_blocks(Module *m, const Node *r, int64_t ndir, int64_t gates, int64_t hidden, int64_t block)
{
  ReshapeAttrs *shape = attrs_new(m, &Reshape_attrs);
  const Expr *dims[] = {expr_i32(m, ndir), expr_i32(m, gates), expr_i32(m, hidden / block), expr_i32(m, block),
                        expr_i32(m, hidden)};
  attrs_set_dims(m, &Reshape_attrs, shape, "newshape", 5, dims);
  TransposeAttrs *order = attrs_new(m, &Transpose_attrs);
  attrs_set_ints(m, &Transpose_attrs, order, "axes", 5, (const int64_t[]){0, 2, 4, 1, 3});
  return op_call1(m, &op_transpose, op_call1(m, &op_reshape, r, shape), order);
}

bool recurrent_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const RecurrentLoopAttrs *a = call->u.call.attrs;
  const Type *r = call->arg[1]->type;
  if (a->block || r->dtype.code != DT_FLOAT || r->dtype.bits < 32 || !alter_is_constant(m->ctx, call->arg[1]))
    return false;
  int64_t ndir = r->shape[0]->u.i;
  int64_t gates = r->shape[1]->u.i / a->hidden_size;
  int64_t batch = batch_of(call);
  int64_t block = 0;
  int64_t samples = 1;
  if (batch > 1) batch_blocks(t, r->dtype.bits, a->hidden_size, gates, batch, ndir, &block, &samples);
  if (samples == 1) block = recurrent_block(t, r->dtype.bits, a->hidden_size, gates);
  if (!block) return false;
  RecurrentLoopAttrs *to = attrs_copy(m, &RecurrentLoop_attrs, a);
  to->block = block, to->samples = samples;
  *out = (AlteredCall){.op = call->u.call.op, .attrs = to, .nargs = call->nargs};
  for (int i = 0; i < call->nargs; i++) out->arg[i] = call->arg[i];
  out->arg[1] = in_blocks(m, call->arg[1], ndir, gates, a->hidden_size, block);
  return true;
}
