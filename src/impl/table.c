/* table.c: the implementations, and what a call costs by its formula. */
#include "impl/internal.h"
#include "op/nn.h"

static const Impl table[] = {
#define IMPL(name, op, fits, cost, compute, schedule) {name, op, fits, cost, compute, schedule, false},
#define HALF(name, op, fits, cost, compute, schedule) {name, op, fits, cost, compute, schedule, true},
#include "impl/impl.def"
#undef HALF
#undef IMPL
  {NULL, NULL, NULL, NULL, NULL, NULL, false},
};

int impl_count(void) { return (int)(sizeof table / sizeof *table) - 1; }
const Impl *impl_at(int i) { return &table[i]; }

const Impl *impl_choose(const Target *t, const ImplConfig *config, const Node *call)
{
  const Impl *best = NULL;
  double least = 0;
  for (int i = 0; i < impl_count(); i++) {
    const Impl *it = &table[i];
    if (strcmp(it->op, call->u.call.op->name) || (it->half && config->fast_math != FAST_FP16) || !it->fits(t, call))
      continue;
    double cost = it->cost(t, call);
    if (best && cost >= least) continue;
    best = it;
    least = cost;
  }
  return best;
}

/* ---- operations by formula -------------------------------------------------------------------- */

/* Product of the dimensions, 0 when one is not known. */
static double elements(const Type *t)
{
  if (t->kind != TY_TENSOR || t->ndim < 0) return 0;
  double n = 1;
  for (int d = 0; d < t->ndim; d++) n *= t->shape[d]->kind == E_INT ? (double)t->shape[d]->u.i : 0;
  return n;
}

/* A multiplication and an addition for each element of the result and each step of its sum: the
 * weight holds (steps * its output channels) elements. */
static double product_flops(const Node *call, double outputs_of_weight)
{
  double weight = elements(call->arg[1]->type);
  /* words (op/nn_pairs.c) */
  if (call->arg[1]->type->dtype.code == DT_UINT && call->arg[1]->type->dtype.bits >= 32)
    weight *= call->arg[1]->type->dtype.bits / 16;
  return outputs_of_weight > 0 ? 2 * elements(call->type) * weight / outputs_of_weight : 0;
}

static double known_dim(const Type *t, int d)
{
  if (d < 0) d += t->ndim;
  return d >= 0 && d < t->ndim && t->shape[d]->kind == E_INT ? (double)t->shape[d]->u.i : 0;
}

double impl_flops(const Node *call)
{
  const char *op = call->u.call.op->name;
  if (call->type->kind != TY_TENSOR) return 0;
  /* Each element of the data meets every tap of the output channels of its group. */
  if (str_starts(op, "nn.conv") && strstr(op, "transpose")) {
    double taps = elements(call->arg[1]->type);
    double c = known_dim(call->arg[0]->type, 1) *
               (call->arg[0]->type->ndim > conv_dims(call) + 2 ? known_dim(call->arg[0]->type, -1) : 1);
    return c > 0 ? 2 * elements(call->arg[0]->type) * taps / c : 0;
  }
  if (str_starts(op, "nn.conv")) {
    const Conv2DAttrs *a = call->u.call.attrs;
    return product_flops(call, known_dim(call->arg[1]->type, 0) *
                                   (str_ends(a->kernel_layout, "o") ? known_dim(call->arg[1]->type, -1) : 1));
  }
  if (!strcmp(op, "nn.contrib_conv2d_NCHWc") || !strcmp(op, "nn.contrib_depthwise_conv2d_NCHWc"))
    return product_flops(call, known_dim(call->arg[1]->type, 0) * known_dim(call->arg[1]->type, -1));
  if (!strcmp(op, "nn.dense") || !strcmp(op, "nn.contrib_dense_pack"))
    return 2 * elements(call->type) * known_dim(call->arg[0]->type, -1);
  if (!strcmp(op, "nn.matmul") || !strcmp(op, "nn.batch_matmul")) {
    double k =
        elements(call->arg[0]->type) * elements(call->arg[1]->type) / (elements(call->type) ? elements(call->type) : 1);
    double b = !strcmp(op, "nn.batch_matmul") ? known_dim(call->type, 0) : 1;
    return k > 0 && b > 0 ? 2 * elements(call->type) * __builtin_sqrt(k / b) : 0;
  }
  if (!strcmp(op, "nn.attention")) return attention_flops(call);
  if (!strcmp(op, "nn.contrib_conv2d_winograd_NCHWc")) {
    const WinogradAttrs *a = call->u.call.attrs;
    return 2 * elements(call->type) * known_dim(call->arg[1]->type, a->transformed ? 3 : 1) * 9;
  }
  return elements(call->type);
}

double impl_flops_done(const Node *call)
{
  if (strcmp(call->u.call.op->name, "nn.contrib_conv2d_winograd_NCHWc")) return impl_flops(call);
  const WinogradAttrs *a = call->u.call.attrs;
  double tiles = known_dim(call->type, 0) * __builtin_ceil(known_dim(call->type, 2) / (double)a->tile_size) *
                 __builtin_ceil(known_dim(call->type, 3) / (double)a->tile_size);
  /* of an element of the weight */
  double points = a->transformed ? 1 : (double)((a->tile_size + 2) * (a->tile_size + 2)) / 9;
  return 2 * elements(call->arg[1]->type) * points * tiles;
}
