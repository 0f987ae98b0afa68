/* conv_shape.c: what a convolution's layouts, attributes and types say, in one record. */
#include "impl/internal.h"
#include "op/nn.h"

/* Channels of a block, 0 where the layout is plain, -1 for any other one. */
static int64_t block_of(const char *layout, int dims)
{
  if (conv_layout_is_plain(layout, "NC", dims)) return 0;
  int64_t block = conv_block(layout, dims);
  return block ? block : -1;
}

int conv_word_of(const char *layout, const Type *w)
{
  Layout l;
  if (layout_parse(layout, &l) || w->ndim != l.n || (!dtype_eq(w->dtype, DT_BF16) && w->dtype.bits != 8)) return 1;
  return l.n > 2 && l.letter[l.n - 1] == 'i' && l.letter[l.n - 2] == 'o' ? (int)l.factor[l.n - 1] : 1;
}

/* OIHW, or in blocks OIHW8o, OIHW8i8o; of a transposed one IOHW, or in blocks OHWI8o, OIHW8i8o. */
static bool read_weight(const char *layout, const Type *w, ConvShape *s)
{
  Layout l;
  if (layout_parse(layout, &l) || w->ndim != l.n) return false;
  bool split = layout_is_split(&l, 'O');
  const char *spatial = conv_spatial(s->dims);
  bool known_form = str_starts(layout, s->transposed && !split ? "IO" : "OI") && str_starts(layout + 2, spatial);
  if (s->transposed && split && str_starts(layout + 1, spatial)) known_form = layout[0] == 'O';
  if (!known_form) return false;
  s->weight_block = split ? layout_block(&l, 'O') : 0;
  for (int d = 0; d < w->ndim; d++)
    if (!known_size(w, d)) return false;
  for (int d = 0; d < s->dims; d++) s->k[d] = known_size(w, layout_find(&l, spatial[d]));
  return true;
}

static void read_window(AttrInts strides, AttrInts dilation, AttrInts padding, ConvShape *s)
{
  for (int d = 0; d < s->dims; d++) {
    s->stride[d] = impl_list_at(strides, d, 1);
    s->dilation[d] = impl_list_at(dilation, d, 1);
    s->before[d] = impl_list_at(padding, d, 0);
    s->after[d] = padding.n == 2 * s->dims ? padding.v[s->dims + d] : s->before[d];
  }
}

/* Of elements of any kind. */
static bool read_shape(const OpDef *op, const void *attrs, const Type *x, const Type *w, const Type *y, ConvShape *s)
{
  *s = (ConvShape){.dims = nn_conv_dims(op), .transposed = strstr(op->name, "transpose") != NULL, .word = 1};
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || y->kind != TY_TENSOR) return false;
  const char *data, *kernel, *out;
  if (s->transposed) {
    const Conv2DTransposeAttrs *a = attrs;
    data = a->data_layout, kernel = a->kernel_layout, out = a->out_layout;
    s->groups = a->groups;
    read_window(a->strides, a->dilation, a->padding, s);
  } else {
    const Conv2DAttrs *a = attrs;
    data = a->data_layout, kernel = a->kernel_layout, out = a->out_layout;
    s->groups = a->groups;
    read_window(a->strides, a->dilation, a->padding, s);
  }
  if (!out || !*out) out = data;
  s->data_block = block_of(data, s->dims);
  s->out_block = block_of(out, s->dims);
  if (s->data_block < 0 || s->out_block < 0 || !read_weight(kernel, w, s)) return false;
  s->word = conv_word_of(kernel, w);
  s->bits = y->dtype.bits;
  s->n = known_size(x, 0);
  s->c = known_size(x, 1) * (s->data_block ? s->data_block : 1);
  s->o = known_size(y, 1) * (s->out_block ? s->out_block : 1);
  for (int d = 0; d < s->dims; d++) {
    s->in[d] = known_size(x, 2 + d);
    s->out[d] = known_size(y, 2 + d);
    s->likely_in[d] = likely_size(x->shape[2 + d], s->dims);
    s->likely_out[d] = likely_size(y->shape[2 + d], s->dims);
  }
  if (!s->c || !s->o || s->groups < 1) return false;
  s->ig = s->c / s->groups;
  s->og = s->o / s->groups;
  return true;
}

bool conv_shape_of(const OpDef *op, const void *attrs, const Type *x, const Type *w, const Type *y, ConvShape *s)
{
  if (!read_shape(op, attrs, x, w, y, s)) return false;
  if (s->word > 1) return dtype_eq(x->dtype, DT_BF16) && dtype_eq(w->dtype, DT_BF16) && dtype_eq(y->dtype, DT_F32);
  return x->dtype.code == DT_FLOAT && dtype_eq(x->dtype, w->dtype) && dtype_eq(x->dtype, y->dtype);
}

bool conv_shape_bytes(const Node *call, ConvShape *s)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  return read_shape(call->u.call.op, call->u.call.attrs, x, w, call->type, s) && x->dtype.bits == 8 &&
         w->dtype.bits == 8 && dtype_eq(call->type->dtype, DT_I32);
}

bool conv_shape(const ImplCall *c, ConvShape *s)
{
  const Node *call = c->call;
  if (!conv_shape_of(call->u.call.op, call->u.call.attrs, call->arg[0]->type, call->arg[1]->type, call->type, s))
    return false;
  s->constant = alter_is_constant(c->m->ctx, call->arg[1]);
  return true;
}

bool conv_shape_open(ConvShape *s)
{
  for (int d = 0; d < s->dims; d++) {
    s->open |= !s->in[d] || !s->out[d];
    s->in[d] = s->likely_in[d];
    s->out[d] = s->likely_out[d];
  }
  return s->open;
}

double conv_shape_flops(const ConvShape *s)
{
  double flops = 2 * (double)(s->n ? s->n : 1) * (double)(s->o * s->ig);
  for (int d = 0; d < s->dims; d++) flops *= (double)((s->transposed ? s->in[d] : s->out[d]) * s->k[d]);
  return flops;
}

int64_t conv_open_band(int64_t fit, int which)
{
  int64_t band = which == 0 ? fit : which == 1 ? fit / 4 : 1;
  return band > 1 ? band : 1;
}
