/* recurrent.c: the recurrence of rnn, lstm and gru in blocks of units.
 *
 * A step reads the whole recurrence once for each sample, from the second-level cache when it fits there; so
 * it has to be read straight ahead, in vectors, with enough sums in flight to hide the multiply-add's latency.
 * A block is so many units that the sums of all their gates stay in registers (op/nn_recurrent.c).  Of a batch several
 * samples share what is read: a register tile of samples by gates, as in a matrix product. */
#include "impl/internal.h"
#include "op/nn.h"

/* Cycles of one step of time for a block of so many units and so many samples: for each element of the state a step of
 * the gates' sums, as fast as they are computed or as the recurrence is read; then the activations.  0: registers do
 * not hold the sums. */
static double block_cycles(const Target *t, int bits, int64_t units, int64_t samples, int64_t hidden, int64_t gates,
                           int64_t directions)
{
  static const double FUNCTION = 12; /* cycles of an activation, a vector */
  static const double LOOP = 1;
  int64_t vectors = alter_block_vectors(units, target_lanes(t, bits));
  double sums = (double)(vectors * gates * samples);
  double cycles = sums / cost_pipes(t);
  double latency = t->core.fma_latency + 0.5;
  double read = (double)(directions * gates * hidden * hidden * bits / 8) > (double)t->l1_bytes
                    ? cost_far(t) * (double)(vectors * gates)
                    : (double)(vectors * gates) * t->vector_bits / t->core.load_bits;
  /* samples share vectors of the recurrence, which wait in registers */
  if (sums > t->vector_registers * 3 / 4 || (samples > 1 && sums + (double)(vectors * gates) + 2 > t->vector_registers))
    return 0;
  if (latency > cycles) cycles = latency;
  if (read > cycles) cycles = read;
  return (double)hidden * (cycles + LOOP) + FUNCTION * (double)((gates + 1) * vectors * samples);
}

/* Units in a block and samples together, over the groups of samples that each core gets.  The last block has what is
 * left.  Of choices as fast the one that fewer cores share. */
static void choose_blocks(const Target *t, int bits, int64_t hidden, int64_t gates, int64_t batch, int64_t directions,
                          int64_t *block, int64_t *samples)
{
  int64_t cores = t->num_cores > 0 ? t->num_cores : 1;
  int64_t lanes = target_lanes(t, bits);
  double least = 0;
  for (int64_t d = hidden < 2 ? hidden : 2; d <= hidden; d++)
    for (int64_t s = 1; s <= batch; s++) {
      if (batch % s || (hidden % d && d % lanes)) continue;
      int64_t left = hidden % d;
      double whole = block_cycles(t, bits, d, s, hidden, gates, directions);
      double rest = left ? block_cycles(t, bits, left, s, hidden, gates, directions) : 0;
      int64_t groups = directions * batch / s;
      int64_t rounds = (groups + cores - 1) / cores;
      double cost = (double)rounds * (whole * (double)(hidden / d) + rest);
      if (whole <= 0 || (*block && (cost > least || (cost == least && s <= *samples)))) continue;
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

/* (directions, blocks, state, gates, block), zeros behind the last unit. */
static const Node *in_blocks(Module *m, const Node *r, int64_t ndir, int64_t gates, int64_t hidden, int64_t block)
{
  int64_t blocks = (hidden + block - 1) / block;
  ReshapeAttrs *shape = attrs_new(m, &Reshape_attrs);
  const Expr *dims[] = {expr_i32(m, ndir), expr_i32(m, gates), expr_i32(m, blocks), expr_i32(m, block),
                        expr_i32(m, hidden)};
  attrs_set_dims(m, &Reshape_attrs, shape, "newshape", 5, dims);
  if (blocks * block > hidden) {
    ReshapeAttrs *apart = attrs_new(m, &Reshape_attrs);
    attrs_set_dims(m, &Reshape_attrs, apart, "newshape", 4,
                   (const Expr *[]){dims[0], dims[1], expr_i32(m, hidden), dims[4]});
    PadAttrs *pad = attrs_new(m, &Pad_attrs);
    attrs_set_ints(m, &Pad_attrs, pad, "pad_width", 8, (const int64_t[]){0, 0, 0, 0, 0, blocks * block - hidden, 0, 0});
    const Node *arg[] = {op_call1(m, &op_reshape, r, apart), node_scalar(m, (Value){.dtype = r->type->dtype})};
    r = node_call(m, opdef_get(m->ctx, "nn.pad"), 2, arg, pad, r->name);
  }
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
  choose_blocks(t, r->dtype.bits, a->hidden_size, gates, batch, ndir, &block, &samples);
  if (!block) return false;
  RecurrentLoopAttrs *to = attrs_copy(m, &RecurrentLoop_attrs, a);
  to->block = block, to->samples = samples;
  *out = (AlteredCall){.op = call->u.call.op, .attrs = to, .nargs = call->nargs};
  for (int i = 0; i < call->nargs; i++) out->arg[i] = call->arg[i];
  out->arg[1] = in_blocks(m, call->arg[1], ndir, gates, a->hidden_size, block);
  return true;
}
