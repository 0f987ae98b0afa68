/* alter_conv.c: convolutions of any kind over blocks of channels: one to three dimensions, groups, transposed.
 *
 * In: a call over plain layouts (NCW, NCHW, NCDHW) and the blocks that a plan asks for.  Out: the same over those
 * blocks, the weight packed by an operator in the graph.  Where a block of input channels holds several groups, or a
 * group's channels are one each, the weight's input channels are in no blocks. */
#include "impl/internal.h"
#include "op/nn.h"

void alter_to_blocks(const ImplCall *c, int64_t data_block, int64_t out_block, AlteredCall *out)
{
  Module *m = c->m;
  const Node *call = c->call;
  ConvShape s;
  if (!conv_shape(c, &s)) BUG(m->ctx, "a plan for a convolution of no known shape");
  const char *spatial = conv_spatial(s.dims);
  const char *plain = arena_printf(m->arena, "NC%s", spatial);
  bool depthwise = s.groups > 1 && s.ig == 1 && s.og == 1;
  bool whole = depthwise || !data_block || s.ig % data_block;
  const char *data = data_block ? arena_printf(m->arena, "%s%" PRId64 "c", plain, data_block) : plain;
  const char *result = arena_printf(m->arena, "%s%" PRId64 "c", plain, out_block);
  const char *kernel = whole ? arena_printf(m->arena, "OI%s%" PRId64 "o", spatial, out_block)
                             : arena_printf(m->arena, "OI%s%" PRId64 "i%" PRId64 "o", spatial, data_block, out_block);
  const OpDef *op = call->u.call.op;
  void *attrs = attrs_copy(m, op->attrs, call->u.call.attrs);
  attrs_set_str(m, op->attrs, attrs, "data_layout", data);
  attrs_set_str(m, op->attrs, attrs, "kernel_layout", kernel);
  attrs_set_str(m, op->attrs, attrs, "out_layout", result);
  if (!strcmp(op->name, "nn.conv2d"))
    op = opdef_get(m->ctx, depthwise ? "nn.contrib_depthwise_conv2d_NCHWc" : "nn.contrib_conv2d_NCHWc");
  *out = (AlteredCall){.op = op, .attrs = attrs, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] =
      alter_transform(m, call->arg[1], arena_printf(m->arena, "%s%s", s.transposed ? "IO" : "OI", spatial), kernel);
  if (data_block) out->in[0] = (LayoutPair){plain, data};
  out->out = (LayoutPair){plain, result};
}

void alter_whole_weight(const ImplCall *c, int64_t out_block, AlteredCall *out)
{
  Module *m = c->m;
  const char *spatial = conv_spatial(nn_conv_dims(c->call->u.call.op));
  const char *kernel = arena_printf(m->arena, "OI%s%" PRId64 "o", spatial, out_block);
  void *attrs = attrs_copy(m, out->op->attrs, out->attrs);
  attrs_set_str(m, out->op->attrs, attrs, "kernel_layout", kernel);
  out->attrs = attrs;
  out->arg[1] = alter_transform(m, c->call->arg[1], arena_printf(m->arena, "OI%s", spatial), kernel);
}
