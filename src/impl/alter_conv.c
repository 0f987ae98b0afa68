/* alter_conv.c: blocks of channels for convolutions of any kind: one to three dimensions, groups,
 * transposed.
 *
 * In: a call over plain layouts (NCW, NCHW, NCDHW).  Out: the same over blocks of channels, the weight packed by
 * an operator in the graph.  Blocks are those of the number of channels (alter_block), so that neighbours agree;
 * a group that they do not divide gets blocks of its own where vectors are filled well, else vectors hold
 * several groups (depthwise.c). */
#include "impl/internal.h"
#include "op/nn.h"

/* What a convolution and a transposed one have in common. */
typedef struct Shape {
  int dims;
  bool transposed;
  int64_t groups, c, o, ig, og; /* channels; of one group */
  int64_t cb, ob;               /* blocks; cb 0: plain data */
  bool lanes;                   /* vectors hold several groups */
  bool whole;                   /* the weight's input channels are not in blocks */
} Shape;

static bool layouts_plain(const Shape *s, const char *data, const char *kernel, const char *out)
{
  return conv_layout_is_plain(data, "NC", s->dims) &&
         conv_layout_is_plain(kernel, s->transposed ? "IO" : "OI", s->dims) &&
         (!out || !*out || conv_layout_is_plain(out, "NC", s->dims));
}

static bool read_shape(const Node *call, Shape *s)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  *s = (Shape){.dims = conv_dims(call), .transposed = strstr(call->u.call.op->name, "transpose") != NULL};
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != s->dims + 2 || w->ndim != s->dims + 2) return false;
  if (x->dtype.code != DT_FLOAT || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype)) return false;
  for (int d = 0; d < w->ndim; d++)
    if (!known(w->shape[d])) return false;
  if (s->transposed) {
    const Conv2DTransposeAttrs *a = call->u.call.attrs;
    if (!layouts_plain(s, a->data_layout, a->kernel_layout, a->out_layout)) return false;
    s->groups = a->groups;
  } else {
    const Conv2DAttrs *a = call->u.call.attrs;
    if (!layouts_plain(s, a->data_layout, a->kernel_layout, a->out_layout)) return false;
    s->groups = a->groups;
  }
  s->c = known(x->shape[1]), s->o = known(y->shape[1]);
  s->ig = s->c / s->groups, s->og = s->o / s->groups;
  return s->c && s->o;
}

static bool choose_blocks(const Target *t, int bits, Shape *s)
{
  int64_t lanes = target_lanes(t, bits);
  s->ob = alter_block(t, bits, s->o), s->cb = alter_block(t, bits, s->c);
  if (s->groups == 1) return s->ob > 0;
  if (s->ig == 1 && s->og == 1) return s->ob > 0 && !s->transposed;
  if (!s->ob || s->og % s->ob) {
    bool halves = s->ob && s->ob % s->og == 0 && 2 * s->og >= lanes && !s->transposed;
    s->lanes = s->ob && !halves && !s->transposed && s->og < lanes && s->ig <= 2 * lanes;
    if (!halves && !s->lanes) s->ob = alter_block(t, bits, s->og);
  }
  s->whole = s->lanes || (s->cb && s->ig % s->cb);
  if (!s->lanes && s->cb && s->ig % s->cb && s->cb % s->ig) s->cb = alter_block(t, bits, s->ig), s->whole = !s->cb;
  return s->ob > 0;
}

bool alter_any_conv(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  Shape s;
  if (!read_shape(call, &s) || !choose_blocks(t, call->type->dtype.bits, &s)) return false;
  if (s.transposed && !transpose_is_phased(call)) return false;
  const char *spatial = conv_spatial(s.dims);
  const char *plain = arena_printf(m->arena, "NC%s", spatial);
  bool depthwise = s.groups > 1 && s.ig == 1 && s.og == 1;
  const char *data = s.cb ? arena_printf(m->arena, "%s%" PRId64 "c", plain, s.cb) : plain;
  const char *result = arena_printf(m->arena, "%s%" PRId64 "c", plain, s.ob);
  const char *kernel = s.cb && !s.whole && !depthwise
                           ? arena_printf(m->arena, "OI%s%" PRId64 "i%" PRId64 "o", spatial, s.cb, s.ob)
                           : arena_printf(m->arena, "OI%s%" PRId64 "o", spatial, s.ob);
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
  if (s.cb) out->in[0] = (LayoutPair){plain, data};
  out->out = (LayoutPair){plain, result};
  return true;
}
