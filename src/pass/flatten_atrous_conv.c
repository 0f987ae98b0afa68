/* flatten_atrous_conv.c: FlattenAtrousConv: a convolution over blocks that were moved to the batch is one with
 * dilation.
 *
 *   batch_to_space_nd(conv2d(space_to_batch_nd(x, block, paddings), w), block, crops)
 *       ->  conv2d(x, w, dilation=block, padding=paddings - crops)
 *
 * What lies between the convolution and the way back may work on elements alone (a bias by channel, relu, limits, a
 * requantize).  Both forms multiply and add the same numbers.
 *   needs   types
 *   keeps   types, names
 *   breaks  nothing */
#include "op/qnn.h"
#include "pass/passes.h"
#include "pass/tools.h"

#define CONVOLUTIONS "nn.conv2d,qnn.conv2d"
enum { MOST = 8 }; /* operators between */

typedef struct Work {
  Module *m;
  Map uses;
} Work;

/* Does a second operand say one number for each channel, or one for all? */
static bool is_by_channel(const Node *v, const Node *of, int channel)
{
  const Type *ty = v->type;
  for (int i = 0; i < ty->ndim; i++)
    if (i + of->type->ndim - ty->ndim != channel && !expr_is_int(ty->shape[i], 1)) return false;
  return ty->ndim <= of->type->ndim;
}

static bool works_on_elements(const Node *n, int channel)
{
  if (is_call_of(n, "nn.relu,clip,cast")) return true;
  if (is_call(n, "nn.bias_add") || is_call(n, "qnn.requantize")) {
    int64_t axis = call_int(n, "axis");
    bool whole = is_call(n, "qnn.requantize") && n->arg[1]->type->ndim == 0 && n->arg[2]->type->ndim == 0;
    return whole || (axis < 0 ? axis + n->type->ndim : axis) == channel;
  }
  return is_call(n, "add") && n->arg[1]->kind == N_CONST && is_by_channel(n->arg[1], n, channel);
}

static bool is_all(AttrInts list, int64_t v)
{
  for (int i = 0; i < list.n; i++)
    if (list.v[i] != v) return false;
  return true;
}

/* Both moves by the same blocks, over height and width alone, with no more cut off than was put on; the dilation and
 * the padding of the convolution over the data itself. */
static bool same_blocks(const Node *to, const Node *back, const char *layout, int64_t *dilation, int64_t *padding)
{
  AttrInts block = call_ints(to, "block_shape");
  AttrInts other = call_ints(back, "block_shape");
  AttrInts pads = call_ints(to, "paddings");
  AttrInts crops = call_ints(back, "crops");
  dilation[0] = dilation[1] = 1;
  memset(padding, 0, 4 * sizeof *padding);
  if (block.n != other.n) return false;
  for (int i = 0; i < block.n; i++) {
    int64_t before = pads.v[2 * i] - crops.v[2 * i];
    int64_t after = pads.v[2 * i + 1] - crops.v[2 * i + 1];
    int at = letter_at(layout, 'H') == i + 1 ? 0 : letter_at(layout, 'W') == i + 1 ? 1 : -1;
    if (block.v[i] != other.v[i] || before < 0 || after < 0) return false;
    if (at < 0 && (block.v[i] != 1 || pads.v[2 * i] || pads.v[2 * i + 1] || crops.v[2 * i] || crops.v[2 * i + 1]))
      return false;
    if (at < 0) continue;
    dilation[at] = block.v[i];
    padding[at] = before;
    padding[2 + at] = after;
  }
  return true;
}

/* What the padding holds is what the convolution pads with. */
static bool pads_alike(const Node *conv, const Node *to)
{
  double zero = 0;
  if (is_call(conv, "qnn.conv2d") && !qnn_number(conv->arg[2], &zero)) return false;
  return is_all(call_ints(to, "paddings"), 0) || call_f64(to, "pad_value") == zero;
}

static const Node *flattened(Work *w, const Node *back)
{
  const Node *between[MOST];
  int n = 0;
  const Node *conv = back->arg[0];
  while (conv->kind == N_CALL && !is_call_of(conv, CONVOLUTIONS) && n < MOST) {
    if ((intptr_t)map_get(&w->uses, conv) != 1) return back;
    between[n++] = conv;
    conv = conv->arg[0];
  }
  if (!is_call_of(conv, CONVOLUTIONS) || (intptr_t)map_get(&w->uses, conv) != 1) return back;
  const Node *to = conv->arg[0];
  const char *layout = call_str(conv, "data_layout");
  const char *out = call_str(conv, "out_layout");
  if (!is_call(to, "nn.space_to_batch_nd") || !layout_is_plain(layout) || (out && *out && strcmp(out, layout)))
    return back;
  for (int i = 0; i < n; i++)
    if (!works_on_elements(between[i], letter_at(layout, 'C'))) return back;
  int64_t dilation[2];
  int64_t padding[4];
  if (!is_all(call_ints(conv, "strides"), 1) || !is_all(call_ints(conv, "dilation"), 1) ||
      !is_all(call_ints(conv, "padding"), 0) || !pads_alike(conv, to) ||
      !same_blocks(to, back, layout, dilation, padding))
    return back;
  void *attrs = call_attrs(w->m, conv);
  attrs_set_ints(w->m, conv->u.call.op->attrs, attrs, "dilation", 2, dilation);
  attrs_set_ints(w->m, conv->u.call.op->attrs, attrs, "padding", 4, padding);
  const Node *arg[MOST];
  for (int i = 0; i < conv->nargs; i++) arg[i] = i ? conv->arg[i] : to->arg[0];
  const Node *y = node_call(w->m, conv->u.call.op, conv->nargs, arg, attrs, conv->name);
  while (n-- > 0) {
    for (int i = 0; i < between[n]->nargs; i++) arg[i] = i ? between[n]->arg[i] : y;
    y = node_call(w->m, between[n]->u.call.op, between[n]->nargs, arg, between[n]->u.call.attrs, between[n]->name);
  }
  return y;
}

static const Node *flatten(GraphRewriter *r, const Node *old, const Node *now)
{
  Work *w = r->env;
  if (now != old) /* uses are counted in the graph as it was */
    map_put(r->arena, &w->uses, now, map_get(&w->uses, old));
  return is_call(now, "nn.batch_to_space_nd") ? flattened(w, now) : now;
}

const Node *pass_flatten_atrous_conv(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  Arena *a = scratch(pc->ctx);
  Work w = {.m = m, .uses = uses_of(a, f).count};
  return rewrite(m, f, flatten, &w);
}
