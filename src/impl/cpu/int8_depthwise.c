/* int8_depthwise.c: filters of integers over one channel each, over blocks of channels (NCHW16c).
 *
 *   out[n, o, y, x, c] = sum over ky, kx of data[n, o, y', x', c] * weight[o, 0, ky, kx, c]
 *
 * Sums have no channels to take together.  Products of bytes fit 16 bits unless both are uint8, and vectors of those
 * have twice the lanes; they are added in int32.  The loops are those of depthwise.c. */
#include <math.h>

#include "impl/internal.h"
#include "op/nn_kit.h"

static const Conv2DAttrs *attrs_of(const Node *call) { return call->u.call.attrs; }

bool int8_alter_depthwise(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Conv2DAttrs *a = attrs_of(call);
  const Type *w = call->arg[1]->type;
  int64_t block = int8_block(t, a->groups);
  DType bits = call->arg[0]->type->dtype;
  if (known(w->shape[0]) != a->groups || known(w->shape[1]) != 1 || !block || !dtype_is_int(bits) || bits.bits > 16)
    return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->data_layout = to->out_layout = arena_printf(m->arena, "NCHW%" PRId64 "c", block);
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "o", block);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_depthwise_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  out->in[0] = out->out = (LayoutPair){"NCHW", to->data_layout};
  return true;
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* Do products of the two fit an int16? */
static bool in_halves(const Type *const *arg)
{
  return arg[0]->dtype.bits == 8 && arg[1]->dtype.bits == 8 &&
         (arg[0]->dtype.code == DT_INT || arg[1]->dtype.code == DT_INT);
}

static bool fits(const Node *call)
{
  const Conv2DAttrs *a = attrs_of(call);
  DType x = call->arg[0]->type->dtype;
  DType w = call->arg[1]->type->dtype;
  for (int d = 1; d < call->type->ndim; d++)
    if (!known(call->type->shape[d])) return false;
  return dtype_is_int(x) && x.bits <= 16 && dtype_is_int(w) && w.bits <= 16 && dtype_eq(call->type->dtype, DT_I32) &&
         conv_block(a->data_layout, 2) && str_ends(a->kernel_layout, "o") && call->arg[1]->type->ndim == 5;
}

/* Instructions where a tile is columns of one channel: loads that neighbours share, and sums that do not fit the
 * registers. */
static double micro_seconds(const Target *t, const Node *call, const DepthwisePlan *p)
{
  enum { SUMS = 5, EPILOGUE = 16 };
  const Conv2DAttrs *a = attrs_of(call);
  const Type *w = call->arg[1]->type;
  double rows = (double)known_size(w, 2);
  double taps = (double)known_size(w, 3);
  double x = (double)p->x;
  double stride = a->strides.n > 1 ? (double)a->strides.v[1] : 1;
  double loads = taps + fmin((x - 1) * stride + taps, x * taps);
  double spills = p->x > SUMS ? 2 * (double)(p->x - SUMS) : 0;
  double tile = rows * (loads + x * taps + spills + 4) + x * EPILOGUE + 8;
  double tiles = ceil((double)known_size(call->type, 3) / x) * impl_likely_elements(call->type) /
                 (double)known_size(call->type, 3);
  return tiles * tile / (1e9 * t->core.ghz);
}

/* The same where a tile is columns of four channels: a load for each, an instruction for a product and one for its
 * sum. */
static double quads_seconds(const Target *t, const Node *call, const DepthwisePlan *p)
{
  const Type *w = call->arg[1]->type;
  double taps = (double)(known_size(w, 2) * known_size(w, 3));
  double x = (double)p->x;
  double spills = p->x > 4 ? 2 * taps * (double)(p->x - 4) : 0;
  double tile = taps * (1 + 3 * x) + spills + 4 * (double)known_size(w, 2) + 10 * x + 12;
  double tiles = ceil((double)known_size(call->type, 3) / x) * impl_likely_elements(call->type) /
                 (double)known_size(call->type, 3) / QUAD;
  return tiles * tile / (1e9 * t->core.ghz);
}

/* Bytes: vectors of products in 16 bits, and of sums in 32; wider ones are multiplied in 32. */
static double seconds_of(const Target *t, const Node *call, const DepthwisePlan *p)
{
  if (target_has_quads(t)) return quads_seconds(t, call, p);
  if (depthwise_one_channel(t)) return micro_seconds(t, call, p);
  const Type *w = call->arg[1]->type;
  double taps = (double)(known_size(w, 2) * known_size(w, 3));
  double vectors = (double)alter_block_vectors(p->block, target_lanes(t, 32));
  double each = (in_halves((const Type *[]){call->arg[0]->type, w}) ? 1.5 : 2) * taps;
  double wait = taps * t->core.fma_latency / (double)p->x / vectors;
  double cycles = each / cost_pipes(t);
  double columns = (double)known_size(call->type, 3);
  double tail = ceil(columns / (double)p->x) * (double)p->x / columns;
  double outputs = impl_likely_elements(call->type) / target_lanes(t, 32);
  return outputs * ((cycles > wait ? cycles : wait) * tail + 4) / (1e9 * t->core.ghz);
}

/* Columns of a tile: divisors of the row, or as many as there may be, whose sums leave a quarter of the registers to
 * data and weight; rows of a band: about as many as a quarter of the second-level cache holds. */
void int8_depthwise_plans(const ImplCall *call, PlanList *list)
{
  const Node *n = call->call;
  if (!fits(n)) return;
  const Type *y = n->type;
  const Target *t = call->target;
  int64_t rows = known_size(y, 2);
  int64_t columns = known_size(y, 3);
  DepthwisePlan p = {.block = known_size(y, 4), .band = 1};
  int64_t most = 3 * t->vector_registers / 4 / alter_block_vectors(p.block, target_lanes(t, 32));
  if (most < 1) most = 1;
  if (t->device.kind == DEVICE_MICRO) most = t->vector_registers / 2;
  enum { MICRO_BYTES = 256 }; /* on a microcontroller few rows, since what they take is RAM */
  int64_t room = t->device.kind == DEVICE_MICRO ? MICRO_BYTES : cost_l2(t) / 16;
  for (int64_t r = 1; r <= rows; r++)
    if (rows % r == 0 && (r + 2) * columns * p.block <= room) p.band = r;
  for (p.x = 1; p.x <= most && p.x <= columns; p.x++)
    if (columns % p.x == 0 || p.x == most) plan_add(list, &p, seconds_of(t, n, &p), 0);
}

/* ---- computation ----------------------------------------------------------------------------------------- */

void int8_depthwise_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  Module *m = c->m;
  const Conv2DAttrs *a = c->attrs;
  /* a single product of words is added as it is made; one of 16 bits would be widened first */
  DType narrow = in_halves(c->arg) && target_lanes(t, 32) > 1 ? DTYPE(DT_INT, 16) : DT_I32;
  int64_t before[5] = {0};
  int64_t after[5] = {0};
  int64_t stride[2], dilation[2];
  nn_ints(c, "strides", a->strides, 2, 1, 1, stride);
  nn_ints(c, "dilation", a->dilation, 2, 1, 1, dilation);
  nn_padding(c, a->padding, 2, before + 2, after + 2);
  const Tensor *data = nn_pad_constant(m, in[0], before, after, expr_const(m, in[0]->buffer->dtype, 0), "pad_temp");
  const Expr *const *w = in[1]->buffer->shape; /* o, 1, ky, kx, c */
  Stage s = nn_stage(m, 5, c->out->shape, "n oc oh ow oc_block");
  const Expr *tap[2], *at[2];
  for (int d = 0; d < 2; d++) {
    tap[d] = nn_reduce_axis(&s, d ? "rx" : "ry", w[2 + d]);
    at[d] = nn_index(&s, expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, stride[d])),
                                  expr_mul(m, tap[d], expr_i32(m, dilation[d]))));
  }
  const Expr *x = nn_read(m, data, (const Expr *[]){s.at[0], s.at[1], at[0], at[1], s.at[4]});
  const Expr *k = nn_read(m, in[1], (const Expr *[]){s.at[1], expr_i32(m, 0), tap[0], tap[1], s.at[4]});
  const Expr *product = expr_mul(m, expr_cast(m, narrow, x), expr_cast(m, narrow, k));
  *out = nn_sum(&s, "depthwise_int8", "depthwise_int8", expr_cast(m, DT_I32, product), DT_I32);
}
