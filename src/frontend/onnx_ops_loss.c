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
  DType dt = onnx_dtype_of(c, x);
  const Node *zero = onnx_scalar_like(c, label, 0);
  const Node *skip = NULL;
  const Node *safe = label;
  if (strcmp(how, "mean") && strcmp(how, "sum") && !all) onnx_fail(c, ERR_ARGUMENT, "reduction '%s' is not known", how);
  if (ignore) {
    skip = onnx_op2(c, "equal", label,
                    node_scalar(c->m, value_int(onnx_dtype_of(c, label), onnx_attr_int(c, "ignore_index", 0))), NULL);
    safe = onnx_where(c, skip, zero, label);
  }
  const Node *loss = onnx_op1(
      c, "negative", onnx_squeeze(c, onnx_op2(c, "gather", x, onnx_unsqueeze(c, safe, 1), "axis:i", 1), 1), NULL);
  const Node *w = weight ? onnx_op2(c, "take", onnx_cast_to(c, weight, dt), safe, "axis:i,mode:s", 0, "clip") : NULL;
  if (skip) w = onnx_where(c, skip, onnx_scalar(c, dt, 0), w ? w : onnx_scalar(c, dt, 1));
  if (w) loss = onnx_mul(c, loss, w);
  if (all) return loss;
  int rank = onnx_rank_of(c, loss);
  int64_t axes[64];
  for (int i = 0; i < rank; i++) axes[i] = i;
  if (!strcmp(how, "mean") && !w) return onnx_reduce(c, "mean", loss, rank, axes, false);
  const Node *sum = onnx_reduce(c, "sum", loss, rank, axes, false);
  return strcmp(how, "mean") ? sum : onnx_div(c, sum, onnx_reduce(c, "sum", w, rank, axes, false));
}

static const Node *convert_nll(Conversion *c) { return nll_loss(c, onnx_in(c, 0), onnx_in(c, 1), onnx_opt(c, 2)); }

static const Node *convert_cross_entropy(Conversion *c)
{
  const Node *logp = onnx_op1(c, "nn.log_softmax", onnx_in(c, 0), "axis:i", 1);
  c->out[1] = logp;
  return nll_loss(c, logp, onnx_in(c, 1), onnx_opt(c, 2));
}

static const OnnxRow rows[] = {{"NegativeLogLikelihoodLoss", 12, convert_nll},
                               {"SoftmaxCrossEntropyLoss", 12, convert_cross_entropy}};
ONNX_TABLE(onnx_ops_loss, "", rows);

/* ---- optimizers: R, T, then lists of tensors, gradients and states ------------------------------------- */

static int group_size(Conversion *c, int kinds)
{
  int n = (c->nin - 2) / kinds;
  if (n < 1 || (c->nin - 2) % kinds || c->nout > n * (kinds - 1))
    onnx_fail(c, ERR_ARGUMENT, "%d inputs and %d outputs do not fit", c->nin, c->nout);
  for (int i = 0; i < c->nin; i++) onnx_in(c, i);
  return n;
}

/* The gradient with weight decay. */
static const Node *decayed(Conversion *c, const Node *x, const Node *g)
{
  return onnx_add(c, g, onnx_mul(c, x, onnx_scalar_like(c, x, onnx_attr_float(c, "norm_coefficient", 0))));
}

static const Node *convert_adagrad(Conversion *c)
{
  int n = group_size(c, 3);
  const Node *rate = onnx_scalar_of(c, onnx_in(c, 0));
  const Node *steps = onnx_cast_to(c, onnx_scalar_of(c, onnx_in(c, 1)), onnx_dtype_of(c, rate));
  rate = onnx_div(c, rate,
                  onnx_add(c, onnx_scalar_like(c, rate, 1),
                           onnx_mul(c, steps, onnx_scalar_like(c, rate, onnx_attr_float(c, "decay_factor", 0)))));
  for (int i = 0; i < n; i++) {
    const Node *x = onnx_in(c, 2 + i);
    const Node *g = decayed(c, x, onnx_in(c, 2 + n + i));
    const Node *h = onnx_add(c, onnx_in(c, 2 + 2 * n + i), onnx_mul(c, g, g));
    const Node *root =
        onnx_add(c, onnx_sqrt(c, h), onnx_scalar_like(c, x, onnx_attr_float(c, "epsilon", (double)1e-6f)));
    c->out[i] = onnx_sub(c, x, onnx_div(c, onnx_mul(c, onnx_cast_to(c, rate, onnx_dtype_of(c, x)), g), root));
    if (n + i < c->nout) c->out[n + i] = h;
  }
  return NULL;
}

static const Node *mix(Conversion *c, const Node *old, const Node *now, double keep)
{
  return onnx_add(c, onnx_mul(c, old, onnx_scalar_like(c, old, keep)),
                  onnx_mul(c, now, onnx_scalar_like(c, old, 1 - keep)));
}

static const Node *convert_adam(Conversion *c)
{
  int n = group_size(c, 4);
  double alpha = onnx_attr_float(c, "alpha", (double)0.9f);
  double beta = onnx_attr_float(c, "beta", (double)0.999f);
  double post = onnx_attr_float(c, "norm_coefficient_post", 0);
  const Node *rate = onnx_scalar_of(c, onnx_in(c, 0));
  const Node *t = onnx_scalar_of(c, onnx_in(c, 1));
  const Node *steps = onnx_cast_to(c, t, DT_F64);
  const Node *one = onnx_scalar(c, DT_F64, 1);
  const Node *up = onnx_sqrt(c, onnx_sub(c, one, onnx_op2(c, "power", onnx_scalar(c, DT_F64, beta), steps, NULL)));
  const Node *down = onnx_sub(c, one, onnx_op2(c, "power", onnx_scalar(c, DT_F64, alpha), steps, NULL));
  const Node *adjusted =
      onnx_cast_to(c, onnx_div(c, onnx_mul(c, onnx_cast_to(c, rate, DT_F64), up), down), onnx_dtype_of(c, rate));
  rate = onnx_where(c, onnx_op2(c, "greater", t, onnx_scalar_like(c, t, 0), NULL), adjusted, rate);
  for (int i = 0; i < n; i++) {
    const Node *x = onnx_in(c, 2 + i);
    const Node *g = decayed(c, x, onnx_in(c, 2 + n + i));
    const Node *v = mix(c, onnx_in(c, 2 + 2 * n + i), g, alpha);
    const Node *h = mix(c, onnx_in(c, 2 + 3 * n + i), onnx_mul(c, g, g), beta);
    const Node *root =
        onnx_add(c, onnx_sqrt(c, h), onnx_scalar_like(c, x, onnx_attr_float(c, "epsilon", (double)1e-6f)));
    const Node *y = onnx_sub(c, x, onnx_div(c, onnx_mul(c, onnx_cast_to(c, rate, onnx_dtype_of(c, x)), v), root));
    c->out[i] = post == 0 ? y : onnx_mul(c, y, onnx_scalar_like(c, y, 1 - post));
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
  const Node *rate = onnx_scalar_of(c, onnx_in(c, 0));
  const Node *t = onnx_scalar_of(c, onnx_in(c, 1));
  for (int i = 0; i < n; i++) {
    const Node *x = onnx_in(c, 2 + i);
    const Node *g = decayed(c, x, onnx_in(c, 2 + n + i));
    const Node *r = onnx_cast_to(c, rate, onnx_dtype_of(c, x));
    const Node *share = onnx_where(c, onnx_op2(c, "greater", t, onnx_scalar_like(c, t, 0), NULL),
                                   onnx_scalar_like(c, x, beta), onnx_scalar_like(c, x, 1));
    const Node *v =
        onnx_add(c, onnx_mul(c, onnx_in(c, 2 + 2 * n + i), onnx_scalar_like(c, x, alpha)), onnx_mul(c, g, share));
    const Node *step = strcmp(mode, "nesterov") ? v : onnx_add(c, g, onnx_mul(c, v, onnx_scalar_like(c, x, alpha)));
    c->out[i] = onnx_sub(c, x, onnx_mul(c, r, step));
    if (n + i < c->nout) c->out[n + i] = v;
  }
  return NULL;
}

static const OnnxRow training_rows[] = {
  {"Adagrad", 1, convert_adagrad}, {"Adam", 1, convert_adam}, {"Momentum", 1, convert_momentum}};
ONNX_TABLE(onnx_ops_training, "ai.onnx.preview.training", training_rows);
