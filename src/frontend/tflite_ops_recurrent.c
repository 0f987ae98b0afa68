/* tflite_ops_recurrent.c: plain cells with a state, and what runs one over a sequence (LSTM: tflite_ops_lstm.c).
 *
 * States are variable tensors, which a step gives another value.  Quantized weights beside float data are
 * made real. */
#include "frontend/tflite_ops.h"

/* A weight or bias, real; NULL when it is left out. */
static const Node *real_input(Conversion *c, int i)
{
  const Node *x = kit_opt(c, i);
  const TflTensor *t = tfl_opt(c, i);
  return x && tfl_is_quantized(t) ? tfl_real(c, x, t) : x;
}

static const Node *need_real(Conversion *c, int i)
{
  kit_in(c, i);
  return real_input(c, i);
}

static const Node *product(Conversion *c, const Node *x, const Node *w) { return kit_op2(c, "nn.dense", x, w, NULL); }

static void want_float(Conversion *c, int i)
{
  if (!dtype_is_float(kit_dtype_of(c, kit_in(c, i))))
    kit_fail(c, ERR_UNSUPPORTED, "%s data is not supported; float32 is", tfl_type_name(tfl_in(c, i)->type));
}

/* ---- one step of a plain cell ----------------------------------------------------------------------------- */

/* input, weight, recurrent weight, bias, state */
const Node *tfl_convert_rnn(Conversion *c)
{
  want_float(c, 0);
  const Node *y = kit_add(c, product(c, kit_in(c, 0), need_real(c, 1)), product(c, kit_in(c, 4), need_real(c, 2)));
  y = tfl_activation(c, kit_add(c, y, need_real(c, 3)), tfl_byte(c, 0, 0));
  tfl_assign(c, 4, y);
  return y;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static const char *activation_name(Conversion *c, int64_t activation)
{
  if (activation == TFL_TANH) return "Tanh";
  if (activation == TFL_RELU) return "Relu";
  kit_fail(c, ERR_UNSUPPORTED, "activation %" PRId64 " is not supported; tanh and relu are", activation);
}

/* (time, batch, …) whatever comes first in the file. */
static const Node *time_first(Conversion *c, const Node *x, bool is_first)
{
  return is_first ? x : kit_transpose(c, x, 3, (int[]){1, 0, 2});
}

static const Node *with_directions(Conversion *c, const Node *x) { return x ? kit_unsqueeze(c, x, 0) : NULL; }

/* (time, 1, batch, units) in the file's order. */
static const Node *sequence_of(Conversion *c, const Node *y, bool time_major)
{
  return time_first(c, kit_squeeze(c, y, 1), time_major);
}

const Node *tfl_convert_sequence_rnn(Conversion *c)
{
  want_float(c, 0);
  bool time_major = tfl_bool(c, 0);
  const Node *w = need_real(c, 1);
  int64_t units = kit_static_dim(c, w, 0);
  const Node *none = kit_full(c, kit_scalar(c, DT_F32, 0), kit_const_i64(c, 1, &units), DT_F32);
  const Node *bias = kit_concat2(c, need_real(c, 3), none, 0);
  const Node *arg[] = {time_first(c, kit_in(c, 0), time_major), with_directions(c, w),
                       with_directions(c, need_real(c, 2)), with_directions(c, bias), with_directions(c, kit_in(c, 4))};
  const char *inputs[] = {"bias", "initial_h"};
  const char *f = activation_name(c, tfl_byte(c, 1, 0));
  const Node *r = kit_opn(c, "nn.rnn", 5, arg, "hidden_size:l,inputs:S,activations:S", units, 2, inputs, 1, &f);
  tfl_assign(c, 4, kit_squeeze(c, node_get(c->m, r, 1), 0));
  return sequence_of(c, node_get(c->m, r, 0), time_major);
}

/* ---- SVDF ------------------------------------------------------------------------------------------------------- */

/* The state (batch, filters * memory) a step on: the oldest goes, the newest comes. */
static const Node *pushed(Conversion *c, const Node *state, const Node *newest, int64_t filters, int64_t memory)
{
  int64_t shape[3] = {kit_static_dim(c, state, 0), filters, memory};
  state = kit_slice(c, kit_reshape(c, state, 3, shape), 2, 1, memory);
  return kit_concat2(c, state, kit_unsqueeze(c, newest, 2), 2);
}

/* input, feature weights (filters, input), time weights (filters, memory), bias, state: a filter of each feature over
 * time, `rank` of them added up. */
const Node *tfl_convert_svdf(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const TflTensor *t = tfl_in(c, 0);
  const TflTensor *state = tfl_in(c, 4);
  bool integers = tfl_is_quantized(t);
  int64_t rank = tfl_int(c, 0, 0);
  int64_t filters = kit_static_dim(c, kit_in(c, 1), 0);
  int64_t memory = kit_static_dim(c, kit_in(c, 2), 1);
  if (rank < 1 || filters % rank) kit_fail(c, ERR_ARGUMENT, "%" PRId64 " filters of rank %" PRId64, filters, rank);
  const Node *feature = integers ? tfl_centred(c, x, t) : x;
  const Node *w = integers ? tfl_centred(c, kit_in(c, 1), tfl_in(c, 1)) : need_real(c, 1);
  feature = kit_op2(c, "nn.dense", feature, w, "out_dtype:t", integers ? DT_I32 : DT_F32);
  if (integers) {
    double s = (double)((float)tfl_scale(c, tfl_in(c, 1)) * (float)tfl_scale(c, t) / (float)tfl_scale(c, state));
    feature = kit_op1(c, "clip", tfl_rescale1(c, feature, s), "a_min:f,a_max:f", -32768.0, 32767.0);
  }
  const Node *all = pushed(c, kit_cast_to(c, kit_in(c, 4), kit_dtype_of(c, feature)), feature, filters, memory);
  int64_t flat[2] = {kit_static_dim(c, x, 0), filters * memory};
  tfl_assign(c, 4, kit_cast_to(c, kit_reshape(c, all, 2, flat), kit_dtype_of(c, kit_in(c, 4))));
  const Node *time = integers ? kit_cast_to(c, kit_in(c, 2), DT_I32) : need_real(c, 2);
  const Node *sums = kit_reduce1(c, "sum", kit_mul(c, all, time), 2, false);
  int64_t shape[3] = {kit_static_dim(c, x, 0), filters / rank, rank};
  sums = kit_reduce1(c, "sum", kit_reshape(c, sums, 3, shape), 2, false);
  if (kit_opt(c, 3)) sums = kit_add(c, sums, integers ? kit_in(c, 3) : need_real(c, 3));
  if (!integers) return tfl_activation(c, sums, tfl_byte(c, 1, 0));
  const TflTensor *out = tfl_out(c, 0);
  double s = (double)((float)tfl_scale(c, state) * (float)tfl_scale(c, tfl_in(c, 2)) / (float)tfl_scale(c, out));
  return tfl_store(c, tfl_rescale1(c, sums, s), out, TFL_NONE);
}
