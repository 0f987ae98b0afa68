/* canonicalize_ops.c: CanonicalizeOps: nn.bias_add becomes expand_dims and add, so that later passes see
 * one form of a bias; a transposed convolution of stride 1 becomes the ordinary one that it is, the kernel turned
 * round, and one on a small map a product whose columns are added up (nn.col2im).
 *   needs   types
 *   keeps   types
 *   breaks  nothing */
#include "op/nn.h"
#include "pass/passes.h"
#include "pass/tools.h"

/* (in, out / groups, …) as (out, in / groups, …), the taps in reverse. */
static const Node *turned_weight(Module *m, const Node *weight, int64_t groups)
{
  const Type *t = weight->type;
  int64_t in = t->shape[0]->u.i / groups;
  int64_t out = t->shape[1]->u.i;
  int64_t parts[MAX_RANK] = {groups, in, out};
  int64_t whole[MAX_RANK] = {groups * out, in};
  int64_t axes[MAX_RANK] = {0, 2, 1};
  for (int d = 2; d < t->ndim; d++) {
    parts[d + 1] = whole[d] = t->shape[d]->u.i;
    axes[d + 1] = d + 1;
  }
  const OpDef *transpose = opdef_get(m->ctx, "transpose");
  void *order = attrs_new(m, transpose->attrs);
  attrs_set_ints(m, transpose->attrs, order, "axes", t->ndim + 1, axes);
  const Node *n = make_reshape_ints(m, weight, t->ndim + 1, parts);
  n = make_reshape_ints(m, node_call(m, transpose, 1, &n, order, weight->name), t->ndim, whole);
  const OpDef *reverse = opdef_get(m->ctx, "reverse");
  for (int d = 2; d < t->ndim; d++) {
    void *axis = attrs_new(m, reverse->attrs);
    attrs_set_int(m, reverse->attrs, axis, "axis", d);
    n = node_call(m, reverse, 1, &n, axis, weight->name);
  }
  return n;
}

static int64_t listed(AttrInts list, int d, int64_t none) { return list.n ? list.v[list.n == 1 ? 0 : d] : none; }

static bool is_plain(const Conv2DTransposeAttrs *a, int dims)
{
  static const char *const data[] = {"NCW", "NCHW", "NCDHW"};
  static const char *const kernel[] = {"IOW", "IOHW", "IODHW"};
  bool same = !*a->out_layout || !strcmp(a->out_layout, data[dims - 1]);
  return same && !strcmp(a->data_layout, data[dims - 1]) && !strcmp(a->kernel_layout, kernel[dims - 1]);
}

/* Is it such a convolution, over plain layouts?  Each output is multiplied by every tap then, also where it lies
 * outside of the data: not worth it where there are many times more outputs than elements. */
static bool can_turn(const Node *n, int dims, int64_t *padding)
{
  enum { WORTH = 4 };
  const Conv2DTransposeAttrs *a = n->u.call.attrs;
  const Type *x = n->arg[0]->type;
  const Type *w = n->arg[1]->type;
  if (!is_plain(a, dims)) return false;
  double more = 1;
  for (int d = 0; d < w->ndim; d++)
    if (w->shape[d]->kind != E_INT) return false;
  for (int d = 0; d < dims; d++) {
    const Expr *in = x->shape[2 + d];
    const Expr *out = n->type->shape[2 + d];
    int64_t before = listed(a->padding, d, 0);
    int64_t after = a->padding.n == 2 * dims ? a->padding.v[dims + d] : before;
    int64_t reach = (w->shape[2 + d]->u.i - 1) * listed(a->dilation, d, 1);
    padding[d] = reach - before;
    padding[dims + d] = reach - after + listed(a->output_padding, d, 0);
    if (listed(a->strides, d, 1) != 1 || padding[d] < 0 || padding[dims + d] < 0) return false;
    if (in->kind == E_INT && out->kind == E_INT && in->u.i > 0) more *= (double)out->u.i / (double)in->u.i;
  }
  return more <= WORTH;
}

static const Node *turned(Module *m, const Node *n)
{
  int64_t padding[6], size[3];
  int dims = nn_conv_dims(n->u.call.op);
  if (!is_tensor(n->arg[0]) || !is_tensor(n->arg[1]) || !is_tensor(n) || !can_turn(n, dims, padding)) return n;
  const Conv2DTransposeAttrs *a = n->u.call.attrs;
  const OpDef *op = opdef_get(m->ctx, arena_printf(m->arena, "nn.conv%dd", dims));
  Conv2DAttrs *to = attrs_new(m, op->attrs);
  to->dilation = a->dilation;
  to->groups = a->groups;
  to->channels = n->arg[1]->type->shape[1]->u.i * a->groups;
  to->out_dtype = a->out_dtype;
  for (int d = 0; d < dims; d++) size[d] = n->arg[1]->type->shape[2 + d]->u.i;
  attrs_set_ints(m, op->attrs, to, "padding", 2 * dims, padding);
  attrs_set_ints(m, op->attrs, to, "kernel_size", dims, size);
  return node_call(m, op, 2, (const Node *[]){n->arg[0], turned_weight(m, n->arg[1], a->groups)}, to, n->name);
}

/* Plain layouts, known sizes, an output that no padding of its own makes larger than its windows reach. */
static bool has_columns(const Node *n, int dims)
{
  const Conv2DTransposeAttrs *a = n->u.call.attrs;
  bool plain = is_plain(a, dims);
  for (int d = 0; d < dims; d++) plain &= listed(a->output_padding, d, 0) < listed(a->strides, d, 1);
  return plain && a->groups == 1;
}

/* conv(x, weight (out * taps, in, 1…)), each channel's taps at one position a column, added up. */
static const Node *by_columns(Module *m, const Node *n)
{
  const Conv2DTransposeAttrs *a = n->u.call.attrs;
  int dims = nn_conv_dims(n->u.call.op);
  const Type *x = n->arg[0]->type;
  const Type *w = n->arg[1]->type;
  int64_t taps = 1;
  int64_t positions = 1;
  int64_t size[3], padding[6];
  int64_t one[3] = {1, 1, 1};
  int64_t axes[5] = {1};
  for (int d = 0; d < dims; d++) {
    size[d] = w->shape[2 + d]->u.i;
    taps *= size[d];
    positions *= x->shape[2 + d]->u.i;
    axes[1 + d] = 2 + d;
    padding[d] = listed(a->padding, d, 0);
    padding[dims + d] = a->padding.n == 2 * dims ? a->padding.v[dims + d] : padding[d];
  }
  int64_t rows[5] = {w->shape[1]->u.i * taps, w->shape[0]->u.i, 1, 1, 1};
  const OpDef *transpose = opdef_get(m->ctx, "transpose");
  void *order = attrs_new(m, transpose->attrs);
  attrs_set_ints(m, transpose->attrs, order, "axes", dims + 2, axes);
  const Node *weight = node_call(m, transpose, 1, &n->arg[1], order, n->arg[1]->name);
  weight = make_reshape_ints(m, weight, dims + 2, rows);
  const OpDef *conv = opdef_get(m->ctx, arena_printf(m->arena, "nn.conv%dd", dims));
  Conv2DAttrs *product = attrs_new(m, conv->attrs);
  product->channels = rows[0];
  attrs_set_ints(m, conv->attrs, product, "kernel_size", dims, one);
  const Node *columns = node_call(m, conv, 2, (const Node *[]){n->arg[0], weight}, product, n->name);
  columns = make_reshape(m, columns, 3, (const Expr *[]){x->shape[0], expr_i32(m, rows[0]), expr_i32(m, positions)});
  const OpDef *add = opdef_get(m->ctx, "nn.col2im");
  Col2ImAttrs *to = attrs_new(m, add->attrs);
  attrs_set_ints(m, add->attrs, to, "kernel_size", dims, size);
  attrs_set_ints(m, add->attrs, to, "padding", 2 * dims, padding);
  to->strides = a->strides;
  to->dilation = a->dilation;
  to->image_size = (AttrDims){dims, n->type->shape + 2, true};
  return node_call(m, add, 1, &columns, to, n->name);
}

static const Node *canonicalize(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (is_call_of(now, "nn.conv1d_transpose,nn.conv2d_transpose,nn.conv3d_transpose")) {
    bool typed = is_tensor(now->arg[0]) && is_tensor(now->arg[1]) && is_tensor(now);
    bool columns = typed && has_columns(now, nn_conv_dims(now->u.call.op));
    return columns && impl_prefers_columns(rw->env, now) ? by_columns(rw->m, now) : turned(rw->m, now);
  }
  if (!is_call(now, "nn.bias_add") || !is_tensor(now->arg[0])) return now;
  int ndim = now->arg[0]->type->ndim;
  int axis = (int)call_int(now, "axis");
  if (axis < 0) axis += ndim;
  const Node *bias = make_expand_dims(rw->m, now->arg[1], 1, ndim - axis - 1);
  return node_call(rw->m, opdef_get(rw->m->ctx, "add"), 2, (const Node *[]){now->arg[0], bias}, NULL, now->name);
}

const Node *pass_canonicalize_ops(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  return rewrite(m, f, canonicalize, (void *)(uintptr_t)pass_target(pc));
}
