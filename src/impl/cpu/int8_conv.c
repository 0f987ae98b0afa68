/* int8_conv.c: convolutions of bytes, summed in int32, four products at a time.
 *
 *   out[n, o, y, x, c] = sum over i, ky, kx, q of
 *                        dot(data[n, i, y', x', 4q … 4q + 3], weight[o, i, ky, kx, q, c, 0 … 3])
 *
 * Data comes in blocks of channels (NCHW16c); the weight (OIHW4i16o4i) has the four input channels of a step side by
 * side for each output channel, so that a vector of it is what one instruction takes beside one word of the data.
 * The loops are those of conv.c, a step for four channels.  With Helium a step is of up to sixteen channels
 * (OIHW1i16o16i): one instruction adds the products of a whole vector to one sum. */
#include <math.h>

#include "impl/internal.h"
#include "op/nn_kit.h"

enum { WORD = 4, MOST = 16 };

static bool is_byte(DType t) { return dtype_is_int(t) && t.bits == 8; }

static DotElement element(DType t) { return t.code == DT_INT ? DOT_S8 : DOT_U8; }

bool int8_has_dot(const Target *t, const Node *call)
{
  const Node *const *arg = call->arg;
  int lanes = target_lanes(t, 32);
  return is_byte(arg[0]->type->dtype) && is_byte(arg[1]->type->dtype) && dtype_eq(call->type->dtype, DT_I32) &&
         target_dot(t, element(arg[0]->type->dtype), element(arg[1]->type->dtype), lanes);
}

bool int8_has_blocks(const Target *t, const Node *call)
{
  const Node *const *arg = call->arg;
  return is_byte(arg[0]->type->dtype) && is_byte(arg[1]->type->dtype) && dtype_eq(call->type->dtype, DT_I32) &&
         target_lanes(t, 32) == 4 && target_block_dot(t, element(arg[0]->type->dtype), element(arg[1]->type->dtype));
}

const Expr *int8_eights_dot(Module *m, const Tensor *a, const Expr **at, const Tensor *b, const Expr **of)
{
  const Expr *part[2 * INT8_EIGHT];
  for (int p = 0; p < INT8_EIGHT; p++) {
    at[a->buffer->ndim - 1] = of[b->buffer->ndim - 1] = expr_i32(m, p);
    part[p] = nn_read(m, a, at);
    part[INT8_EIGHT + p] = nn_read(m, b, of);
  }
  return expr_call(m, DT_NONE, IN_DOT, 2 * INT8_EIGHT, part);
}

/* ---- layouts --------------------------------------------------------------------------------------- */

int64_t int8_block(const Target *t, int64_t channels)
{
  int64_t wide = target_has_quads(t) ? 16 : 4 * target_lanes(t, 32);
  for (int64_t b = wide; b >= WORD; b /= 2)
    if (channels % b == 0) return b;
  return 0;
}

int int8_word(const Target *t, const Node *call, int64_t of)
{
  int group = target_dot_group(t, element(call->arg[0]->type->dtype), element(call->arg[1]->type->dtype), of);
  return group ? group : WORD;
}

static const char *blocked(Module *m, int64_t block) { return arena_printf(m->arena, "NCHW%" PRId64 "c", block); }

static bool is_plain(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") ||
      (*a->out_layout && strcmp(a->out_layout, "NCHW")))
    return false;
  for (int d = 1; d < 4; d++)
    if (!known(x->shape[d])) return false;
  for (int d = 0; d < 4; d++)
    if (!known(w->shape[d])) return false;
  return true;
}

/* Eight channels at a time, of positions copied side by side: where enough output channels share the copy. */
static bool blocks_pay(const Target *t, const Node *call)
{
  enum { SERVED = 32 };
  const Conv2DAttrs *a = call->u.call.attrs;
  return a->groups == 1 && known(call->arg[1]->type->shape[0]) >= SERVED && int8_has_blocks(t, call) &&
         known(call->type->shape[2]) * known(call->type->shape[3]) > 1;
}

static bool alter_conv(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  if (!is_plain(call) || !alter_is_constant(m->ctx, call->arg[1])) return false;
  if (a->groups > 1 && known(w->shape[1]) == 1) return int8_alter_depthwise(m, t, call, out);
  int64_t cb = int8_block(t, known(w->shape[1]));
  int64_t ob = int8_block(t, known(w->shape[0]) / a->groups);
  if (!cb || !ob) return false;
  bool blocks = cb % INT8_EIGHT == 0 && blocks_pay(t, call);
  if (!blocks && !int8_has_dot(t, call)) return false;
  int word = blocks ? INT8_EIGHT : int8_word(t, call, cb);
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o%di", cb / word, ob, word);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
  return true;
}

bool int8_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || call->type->kind != TY_TENSOR || !dtype_eq(call->type->dtype, DT_I32)) return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.conv2d")) return alter_conv(m, t, call, out);
  return !strcmp(op, "nn.dense") && int8_alter_dense(m, t, call, out);
}

/* ---- convolutions ------------------------------------------------------------------------------------ */

static bool static_from(const Type *t, int from)
{
  for (int d = from; d < t->ndim; d++)
    if (!known(t->shape[d])) return false;
  return true;
}

/* OIHW4i16o4i: output channels of a block, then the words of input channels beside each. */
static bool has_words(const Target *t, const char *layout, const Type *w)
{
  static const char *const ends[] = {"o4i", "o8i", "o16i"};
  int most = target_has_quads(t) ? 3 : 1;
  for (int i = 0; i < most; i++)
    if (str_ends(layout, ends[i])) return w->ndim == 7 && known(w->shape[6]) == WORD << i;
  return false;
}

static bool conv_fits(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return int8_has_dot(t, call) && known(call->type->shape[1]) % a->groups == 0 && conv_block(a->data_layout, 2) &&
         conv_block(a->out_layout, 2) && has_words(t, a->kernel_layout, call->arg[1]->type) &&
         static_from(call->type, 1) && static_from(call->arg[1]->type, 0);
}

static void pads_of(AttrInts p, int64_t *before, int64_t *after)
{
  for (int d = 0; d < 2; d++) {
    before[d] = impl_list_at(p, d, 0);
    after[d] = p.n == 4 ? p.v[2 + d] : before[d];
  }
}

void int8_conv_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const Conv2DAttrs *a = c->attrs;
  int64_t pad[5] = {0};
  int64_t end[5] = {0};
  pads_of(a->padding, &pad[2], &end[2]);
  const Tensor *data = nn_pad_constant(m, in[0], pad, end, expr_const(m, in[0]->buffer->dtype, 0), "pad_temp");
  const Expr *const *w = in[1]->buffer->shape; /* o, i, ky, kx, q, c, 4 */
  Stage s = nn_stage(m, 5, c->out->shape, "nn ff yy xx ff_block");
  const Expr *i = nn_reduce_axis(&s, "rco", w[1]);
  const Expr *block = i; /* of the data's channels */
  if (a->groups > 1) {
    const Expr *group = expr_floordiv(m, s.at[1], expr_i32(m, known(w[0]) / a->groups));
    block = expr_add(m, expr_mul(m, group, w[1]), i);
  }
  const Expr *tap[2], *at[2];
  for (int d = 0; d < 2; d++) {
    tap[d] = nn_reduce_axis(&s, d ? "rx" : "ry", w[2 + d]);
    at[d] = expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, impl_list_at(a->strides, d, 1))),
                     expr_mul(m, tap[d], expr_i32(m, impl_list_at(a->dilation, d, 1))));
  }
  const Expr *q = nn_reduce_axis(&s, "rci", w[4]);
  int word = (int)known(w[6]);
  const Expr *part[2 * MOST];
  for (int p = 0; p < word; p++) {
    const Expr *channel = expr_add(m, expr_mul(m, q, expr_i32(m, word)), expr_i32(m, p));
    part[p] = nn_read(m, data, (const Expr *[]){s.at[0], block, nn_index(&s, at[0]), nn_index(&s, at[1]), channel});
    part[word + p] = nn_read(m, in[1], (const Expr *[]){s.at[1], i, tap[0], tap[1], q, s.at[4], expr_i32(m, p)});
  }
  *out = nn_sum(&s, "conv2d_NCHWc_int8", "conv2d_NCHWc_int8", expr_call(m, DT_NONE, IN_DOT, 2 * word, part), DT_I32);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* Bytes that come from behind the second-level cache: the data once and the weight once for each band, but the data
 * again for each tile of channels where a band does not stay in the cache. */
static double moved_bytes(const Target *t, const Node *call, const ConvPlan *p)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  double cache = (double)cost_l2(t) / 2;
  double row = (double)(known_size(x, 1) / a->groups * known_size(x, 3) * known_size(x, 4));
  double data = row * (double)known_size(x, 2);
  double weight = type_known_elements(w) / (double)a->groups;
  double bands = (double)known_size(call->type, 2) / (double)p->band;
  double band = row * (double)(p->band * impl_list_at(a->strides, 0, 1) + known_size(w, 2));
  double times = (double)known_size(call->type, 1) / (double)(a->groups * p->o);
  double moved = (band <= cache ? data : data * times) + (weight <= cache ? weight : weight * bands);
  return (double)a->groups * moved * (double)(known(x->shape[0]) ? known(x->shape[0]) : 1);
}

static double conv_seconds(const Target *t, const Node *call, const ConvPlan *p)
{
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  int64_t vectors = alter_block_vectors(p->out_block, target_lanes(t, 32));
  double share = tile_speed(t, vectors, known_size(y, 2), known_size(y, 3), (Tile){p->o, p->y, p->x});
  double steps = (double)(known_size(w, 1) * known_size(w, 2) * known_size(w, 3) * known_size(w, 4));
  if (target_has_quads(t)) { /* a load for each channel and each position, a product for each of both, a loop */
    double tile = steps * (double)(QUAD + p->x + QUAD * p->x + 3) + 16 * (double)p->x + 12;
    double row = ceil((double)known_size(y, 3) / (double)p->x);
    return tile * row * impl_likely_elements(y) / (double)known_size(y, 3) / QUAD / (1e9 * t->core.ghz);
  }
  double flops = 2 * WORD * steps * impl_likely_elements(y);
  int threads = cost_threads(t, flops / WORD, 0);
  double seconds = conv_tile_seconds(t, 32, flops / WORD, steps, share > 0 ? share : 0.1);
  double moved = moved_bytes(t, call, p) / cost_bandwidth(t);
  double pieces = (double)(known_size(y, 1) / p->o) * (double)known_size(y, 2) / (double)p->y;
  return (seconds + moved) / threads / cost_busy(pieces, threads);
}

/* The register tiles of conv.c, over sums of 32 bits; bands: all rows, and the most whose data stays in the
 * second-level cache. */
void int8_conv_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  const Node *n = call->call;
  if (!conv_fits(t, n)) return;
  const Conv2DAttrs *a = n->u.call.attrs;
  const Type *x = n->arg[0]->type;
  const Type *y = n->type;
  int64_t rows = known_size(y, 2);
  int64_t row = known_size(x, 1) * known_size(x, 3) * known_size(x, 4) * impl_list_at(a->strides, 0, 1);
  ConvPlan p = {.data_block = known_size(x, 4), .out_block = known_size(y, 4)};
  int64_t vectors = alter_block_vectors(p.out_block, target_lanes(t, 32));
  Tile tile[TILE_LIST] = {{1, 1, 1}, {1, 1, 2}};
  int tiles = target_has_quads(t)
                  ? 2
                  : tile_list(t, 32, vectors, known_size(y, 1) / a->groups, rows, known_size(y, 3), TILE_LIST, tile);
  for (int i = 0; i < tiles; i++) {
    p.o = tile[i].o, p.y = tile[i].y, p.x = tile[i].x;
    p.band = rows;
    plan_add(list, &p, conv_seconds(t, n, &p), 0);
    int64_t fit = 0;
    for (int64_t r = p.y; r < rows && rows % p.y == 0; r += p.y)
      if (rows % r == 0 && (r + known_size(n->arg[1]->type, 2)) * row <= cost_l2(t) / 2) fit = r;
    if (!fit || rows * row <= cost_l2(t) / 2) continue;
    p.band = fit;
    plan_add(list, &p, conv_seconds(t, n, &p), 0);
  }
}
