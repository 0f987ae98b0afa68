/* onnx_ops_loss.c: losses, and the optimizers of ai.onnx.preview.training.
 *
 * Comes in: scores with classes at axis 1; gradients and their states.  Goes out: plain
 * arithmetic. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- losses --------------------------------------------------------------------------------------- */

/* -log p of the label, times its weight; a label that is ignored weighs nothing. */
static const Node *nll_loss(Conv *c, const Node *x, const Node *label, const Node *weight)
{
  const char *how = attr_str(c, "reduction", "mean");
  bool ignore = conv_attr(c, "ignore_index") != NULL;
  bool all = !strcmp(how, "none");
  DType dt = dtype_of(c, x);
  const Node *zero = scalar_like(c, label, 0);
  const Node *skip = NULL;
  const Node *safe = label;
  if (strcmp(how, "mean") && strcmp(how, "sum") && !all) conv_fail(c, ERR_ARGUMENT, "reduction '%s' is not known", how);
  if (ignore) {
    skip =
        op2(c, "equal", label, node_scalar(c->m, value_int(dtype_of(c, label), attr_int(c, "ignore_index", 0))), NULL);
    safe = where(c, skip, zero, label);
  }
  const Node *loss = op1(c, "negative", squeeze(c, op2(c, "gather", x, unsqueeze(c, safe, 1), "axis:i", 1), 1), NULL);
  const Node *w = weight ? op2(c, "take", cast_to(c, weight, dt), safe, "axis:i,mode:s", 0, "clip") : NULL;
  if (skip) w = where(c, skip, scalar(c, dt, 0), w ? w : scalar(c, dt, 1));
  if (w) loss = mul(c, loss, w);
  if (all) return loss;
  int rank = rank_of(c, loss);
  int64_t axes[64];
  for (int i = 0; i < rank; i++) axes[i] = i;
  if (!strcmp(how, "mean") && !w) return reduce(c, "mean", loss, rank, axes, false);
  const Node *sum = reduce(c, "sum", loss, rank, axes, false);
  return strcmp(how, "mean") ? sum : div_(c, sum, reduce(c, "sum", w, rank, axes, false));
}

static const Node *convert_nll(Conv *c) { return nll_loss(c, conv_in(c, 0), conv_in(c, 1), conv_opt(c, 2)); }

static const Node *convert_cross_entropy(Conv *c)
{
  const Node *logp = op1(c, "nn.log_softmax", conv_in(c, 0), "axis:i", 1);
  c->out[1] = logp;
  return nll_loss(c, logp, conv_in(c, 1), conv_opt(c, 2));
}

static const OnnxRow rows[] = {{"NegativeLogLikelihoodLoss", 12, convert_nll},
                               {"SoftmaxCrossEntropyLoss", 12, convert_cross_entropy}};
ONNX_TABLE(onnx_loss, "", rows);

/* ---- optimizers: R, T, then lists of tensors, gradients and states ------------------------------------- */

static int group_size(Conv *c, int kinds)
{
  int n = (c->nin - 2) / kinds;
  if (n < 1 || (c->nin - 2) % kinds || c->nout > n * (kinds - 1))
    conv_fail(c, ERR_ARGUMENT, "%d inputs and %d outputs do not fit", c->nin, c->nout);
  for (int i = 0; i < c->nin; i++) conv_in(c, i);
  return n;
}

/* The gradient with weight decay. */
static const Node *decayed(Conv *c, const Node *x, const Node *g)
{
  return add(c, g, mul(c, x, scalar_like(c, x, attr_float(c, "norm_coefficient", 0))));
}

static const Node *convert_adagrad(Conv *c)
{
  int n = group_size(c, 3);
  const Node *rate = scalar_of(c, conv_in(c, 0));
  const Node *steps = cast_to(c, scalar_of(c, conv_in(c, 1)), dtype_of(c, rate));
  rate = div_(c, rate,
              add(c, scalar_like(c, rate, 1), mul(c, steps, scalar_like(c, rate, attr_float(c, "decay_factor", 0)))));
  for (int i = 0; i < n; i++) {
    const Node *x = conv_in(c, 2 + i);
    const Node *g = decayed(c, x, conv_in(c, 2 + n + i));
    const Node *h = add(c, conv_in(c, 2 + 2 * n + i), mul(c, g, g));
    const Node *root = add(c, sqrt_(c, h), scalar_like(c, x, attr_float(c, "epsilon", (double)1e-6f)));
    c->out[i] = sub(c, x, div_(c, mul(c, cast_to(c, rate, dtype_of(c, x)), g), root));
    if (n + i < c->nout) c->out[n + i] = h;
  }
  return NULL;
}

static const Node *mix(Conv *c, const Node *old, const Node *now, double keep)
{
  return add(c, mul(c, old, scalar_like(c, old, keep)), mul(c, now, scalar_like(c, old, 1 - keep)));
}

static const Node *convert_adam(Conv *c)
{
  int n = group_size(c, 4);
  double alpha = attr_float(c, "alpha", (double)0.9f);
  double beta = attr_float(c, "beta", (double)0.999f);
  double post = attr_float(c, "norm_coefficient_post", 0);
  const Node *rate = scalar_of(c, conv_in(c, 0));
  const Node *t = scalar_of(c, conv_in(c, 1));
  const Node *steps = cast_to(c, t, DT_F64);
  const Node *one = scalar(c, DT_F64, 1);
  const Node *up = sqrt_(c, sub(c, one, op2(c, "power", scalar(c, DT_F64, beta), steps, NULL)));
  const Node *down = sub(c, one, op2(c, "power", scalar(c, DT_F64, alpha), steps, NULL));
  const Node *adjusted = cast_to(c, div_(c, mul(c, cast_to(c, rate, DT_F64), up), down), dtype_of(c, rate));
  rate = where(c, op2(c, "greater", t, scalar_like(c, t, 0), NULL), adjusted, rate);
  for (int i = 0; i < n; i++) {
    const Node *x = conv_in(c, 2 + i);
    const Node *g = decayed(c, x, conv_in(c, 2 + n + i));
    const Node *v = mix(c, conv_in(c, 2 + 2 * n + i), g, alpha);
    const Node *h = mix(c, conv_in(c, 2 + 3 * n + i), mul(c, g, g), beta);
    const Node *root = add(c, sqrt_(c, h), scalar_like(c, x, attr_float(c, "epsilon", (double)1e-6f)));
    const Node *y = sub(c, x, div_(c, mul(c, cast_to(c, rate, dtype_of(c, x)), v), root));
    c->out[i] = post == 0 ? y : mul(c, y, scalar_like(c, y, 1 - post));
    if (n + i < c->nout) c->out[n + i] = v;
    if (2 * n + i < c->nout) c->out[2 * n + i] = h;
  }
  return NULL;
}

static const Node *convert_momentum(Conv *c)
{
  int n = group_size(c, 3);
  double alpha = attr_float(c, "alpha", 0);
  double beta = attr_float(c, "beta", 0);
  const char *mode = attr_str(c, "mode", "standard");
  const Node *rate = scalar_of(c, conv_in(c, 0));
  const Node *t = scalar_of(c, conv_in(c, 1));
  for (int i = 0; i < n; i++) {
    const Node *x = conv_in(c, 2 + i);
    const Node *g = decayed(c, x, conv_in(c, 2 + n + i));
    const Node *r = cast_to(c, rate, dtype_of(c, x));
    const Node *share =
        where(c, op2(c, "greater", t, scalar_like(c, t, 0), NULL), scalar_like(c, x, beta), scalar_like(c, x, 1));
    const Node *v = add(c, mul(c, conv_in(c, 2 + 2 * n + i), scalar_like(c, x, alpha)), mul(c, g, share));
    const Node *step = strcmp(mode, "nesterov") ? v : add(c, g, mul(c, v, scalar_like(c, x, alpha)));
    c->out[i] = sub(c, x, mul(c, r, step));
    if (n + i < c->nout) c->out[n + i] = v;
  }
  return NULL;
}

static const OnnxRow training_rows[] = {
  {"Adagrad", 1, convert_adagrad}, {"Adam", 1, convert_adam}, {"Momentum", 1, convert_momentum}};
ONNX_TABLE(onnx_training, "ai.onnx.preview.training", training_rows);
