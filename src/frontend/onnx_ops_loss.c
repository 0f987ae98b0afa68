/* onnx_ops_loss.c: losses, and the optimizers of ai.onnx.preview.training.
 *
 * Comes in: scores with classes at axis 1; gradients and their states.  Goes out: plain
 * arithmetic. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- losses --------------------------------------------------------------------------------------- */

/* -log p of the label, times its weight; a label that is ignored weighs nothing. */
static const Node *nll_loss(Conversion *c, const Node *x, const Node *label, const Node *weight)
{
  const char *how = onnx_attr_str(c, "reduction", "mean");
  bool ignore = onnx_attr(c, "ignore_index") != NULL;
  bool all = !strcmp(how, "none");
  DType dt = kit_dtype_of(c, x);
  const Node *zero = kit_scalar_like(c, label, 0);
  const Node *skip = NULL;
  const Node *safe = label;
  if (strcmp(how, "mean") && strcmp(how, "sum") && !all) kit_fail(c, ERR_ARGUMENT, "reduction '%s' is not known", how);
  if (ignore) {
    skip = kit_op2(c, "equal", label,
                   node_scalar(c->m, value_int(kit_dtype_of(c, label), onnx_attr_int(c, "ignore_index", 0))), NULL);
    safe = kit_where(c, skip, zero, label);
  }
  const Node *loss =
      kit_op1(c, "negative", kit_squeeze(c, kit_op2(c, "gather", x, kit_unsqueeze(c, safe, 1), "axis:i", 1), 1), NULL);
  const Node *w = weight ? kit_op2(c, "take", kit_cast_to(c, weight, dt), safe, "axis:i,mode:s", 0, "clip") : NULL;
  if (skip) w = kit_where(c, skip, kit_scalar(c, dt, 0), w ? w : kit_scalar(c, dt, 1));
  if (w) loss = kit_mul(c, loss, w);
  if (all) return loss;
  int rank = kit_rank_of(c, loss);
  int64_t axes[64];
  for (int i = 0; i < rank; i++) axes[i] = i;
  if (!strcmp(how, "mean") && !w) return kit_reduce(c, "mean", loss, rank, axes, false);
  const Node *sum = kit_reduce(c, "sum", loss, rank, axes, false);
  return strcmp(how, "mean") ? sum : kit_div(c, sum, kit_reduce(c, "sum", w, rank, axes, false));
}

static const Node *convert_nll(Conversion *c) { return nll_loss(c, kit_in(c, 0), kit_in(c, 1), kit_opt(c, 2)); }

static const Node *convert_cross_entropy(Conversion *c)
{
  const Node *logp = kit_op1(c, "nn.log_softmax", kit_in(c, 0), "axis:i", 1);
  c->out[1] = logp;
  return nll_loss(c, logp, kit_in(c, 1), kit_opt(c, 2));
}

static const OnnxRow rows[] = {{"NegativeLogLikelihoodLoss", 12, convert_nll},
                               {"SoftmaxCrossEntropyLoss", 12, convert_cross_entropy}};
ONNX_TABLE(onnx_ops_loss, "", rows);

/* ---- optimizers: R, T, then lists of tensors, gradients and states ------------------------------------- */

static int group_size(Conversion *c, int kinds)
{
  int n = (c->nin - 2) / kinds;
  if (n < 1 || (c->nin - 2) % kinds || c->nout > n * (kinds - 1))
    kit_fail(c, ERR_ARGUMENT, "%d inputs and %d outputs do not fit", c->nin, c->nout);
  for (int i = 0; i < c->nin; i++) kit_in(c, i);
  return n;
}

/* The gradient with weight decay. */
static const Node *decayed(Conversion *c, const Node *x, const Node *g)
{
  return kit_add(c, g, kit_mul(c, x, kit_scalar_like(c, x, onnx_attr_float(c, "norm_coefficient", 0))));
}

static const Node *convert_adagrad(Conversion *c)
{
  int n = group_size(c, 3);
  const Node *rate = kit_scalar_of(c, kit_in(c, 0));
  const Node *steps = kit_cast_to(c, kit_scalar_of(c, kit_in(c, 1)), kit_dtype_of(c, rate));
  rate = kit_div(c, rate,
                 kit_add(c, kit_scalar_like(c, rate, 1),
                         kit_mul(c, steps, kit_scalar_like(c, rate, onnx_attr_float(c, "decay_factor", 0)))));
  for (int i = 0; i < n; i++) {
    const Node *x = kit_in(c, 2 + i);
    const Node *g = decayed(c, x, kit_in(c, 2 + n + i));
    const Node *h = kit_add(c, kit_in(c, 2 + 2 * n + i), kit_mul(c, g, g));
    const Node *root = kit_add(c, kit_sqrt(c, h), kit_scalar_like(c, x, onnx_attr_float(c, "epsilon", (double)1e-6f)));
    c->out[i] = kit_sub(c, x, kit_div(c, kit_mul(c, kit_cast_to(c, rate, kit_dtype_of(c, x)), g), root));
    if (n + i < c->nout) c->out[n + i] = h;
  }
  return NULL;
}

static const Node *mix(Conversion *c, const Node *old, const Node *now, double keep)
{
  return kit_add(c, kit_mul(c, old, kit_scalar_like(c, old, keep)), kit_mul(c, now, kit_scalar_like(c, old, 1 - keep)));
}

static const Node *convert_adam(Conversion *c)
{
  int n = group_size(c, 4);
  double alpha = onnx_attr_float(c, "alpha", (double)0.9f);
  double beta = onnx_attr_float(c, "beta", (double)0.999f);
  double post = onnx_attr_float(c, "norm_coefficient_post", 0);
  const Node *rate = kit_scalar_of(c, kit_in(c, 0));
  const Node *t = kit_scalar_of(c, kit_in(c, 1));
  const Node *steps = kit_cast_to(c, t, DT_F64);
  const Node *one = kit_scalar(c, DT_F64, 1);
  const Node *up = kit_sqrt(c, kit_sub(c, one, kit_op2(c, "power", kit_scalar(c, DT_F64, beta), steps, NULL)));
  const Node *down = kit_sub(c, one, kit_op2(c, "power", kit_scalar(c, DT_F64, alpha), steps, NULL));
  const Node *adjusted =
      kit_cast_to(c, kit_div(c, kit_mul(c, kit_cast_to(c, rate, DT_F64), up), down), kit_dtype_of(c, rate));
  rate = kit_where(c, kit_op2(c, "greater", t, kit_scalar_like(c, t, 0), NULL), adjusted, rate);
  for (int i = 0; i < n; i++) {
    const Node *x = kit_in(c, 2 + i);
    const Node *g = decayed(c, x, kit_in(c, 2 + n + i));
    const Node *v = mix(c, kit_in(c, 2 + 2 * n + i), g, alpha);
    const Node *h = mix(c, kit_in(c, 2 + 3 * n + i), kit_mul(c, g, g), beta);
    const Node *root = kit_add(c, kit_sqrt(c, h), kit_scalar_like(c, x, onnx_attr_float(c, "epsilon", (double)1e-6f)));
    const Node *y = kit_sub(c, x, kit_div(c, kit_mul(c, kit_cast_to(c, rate, kit_dtype_of(c, x)), v), root));
    c->out[i] = post == 0 ? y : kit_mul(c, y, kit_scalar_like(c, y, 1 - post));
    if (n + i < c->nout) c->out[n + i] = v;
    if (2 * n + i < c->nout) c->out[2 * n + i] = h;
  }
  return NULL;
}

static const Node *convert_momentum(Conversion *c)
{
  int n = group_size(c, 3);
  double alpha = onnx_attr_float(c, "alpha", 0);
  double beta = onnx_attr_float(c, "beta", 0);
  const char *mode = onnx_attr_str(c, "mode", "standard");
  const Node *rate = kit_scalar_of(c, kit_in(c, 0));
  const Node *t = kit_scalar_of(c, kit_in(c, 1));
  for (int i = 0; i < n; i++) {
    const Node *x = kit_in(c, 2 + i);
    const Node *g = decayed(c, x, kit_in(c, 2 + n + i));
    const Node *r = kit_cast_to(c, rate, kit_dtype_of(c, x));
    const Node *share = kit_where(c, kit_op2(c, "greater", t, kit_scalar_like(c, t, 0), NULL),
                                  kit_scalar_like(c, x, beta), kit_scalar_like(c, x, 1));
    const Node *v =
        kit_add(c, kit_mul(c, kit_in(c, 2 + 2 * n + i), kit_scalar_like(c, x, alpha)), kit_mul(c, g, share));
    const Node *step = strcmp(mode, "nesterov") ? v : kit_add(c, g, kit_mul(c, v, kit_scalar_like(c, x, alpha)));
    c->out[i] = kit_sub(c, x, kit_mul(c, r, step));
    if (n + i < c->nout) c->out[n + i] = v;
  }
  return NULL;
}

static const OnnxRow training_rows[] = {
  {"Adagrad", 1, convert_adagrad}, {"Adam", 1, convert_adam}, {"Momentum", 1, convert_momentum}};
ONNX_TABLE(onnx_ops_training, "ai.onnx.preview.training", training_rows);
