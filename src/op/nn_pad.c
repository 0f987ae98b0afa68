/* nn_pad.c: nn.pad, dyn.nn.pad and nn.mirror_pad.
 *
 * Element i of a padded dimension is element i - before of the input where there is one;
 * elsewhere the pad value (constant), the nearest element (edge), the mirror image
 * without (reflect) or with (symmetric) the border itself, or the other end (wrap), each
 * repeated as often as it takes.  A negative pad takes elements off. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Pad, PAD_ATTRS)
DEFINE_ATTRS_TABLE(DynPad, DYN_PAD_ATTRS)
DEFINE_ATTRS_TABLE(MirrorPad, MIRROR_PAD_ATTRS)

typedef enum { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_SYMMETRIC, PAD_WRAP } PadMode;

static PadMode pad_mode(OpCall *c, const char *mode)
{
  static const char *const names[] = {"constant", "edge", "reflect", "symmetric", "wrap"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(mode, names[i])) return (PadMode)i;
  opdef_raise(c, ERR_ARGUMENT, "pad_mode '%s' is not one of constant, edge, reflect, symmetric, wrap", mode);
}

/* pad_width as a flat list: before and after for each dimension in turn. */
static const int64_t *pad_list(OpCall *c, AttrInts list, int ndim)
{
  if (list.n != 2 * ndim)
    opdef_raise(c, ERR_ARGUMENT, "pad_width has %d numbers; data %s wants %d, before and after for each dimension",
                list.n, nn_arg_shape(c, 0), 2 * ndim);
  for (int i = 0; i < list.n; i++)
    if (list.v[i] < -INT32_MAX || list.v[i] > INT32_MAX)
      opdef_raise(c, ERR_ARGUMENT, "pad_width holds %" PRId64 ", which is too large", list.v[i]);
  return list.v;
}

/* Nothing can be repeated of a dimension without elements. */
static const Expr *want_elements(OpCall *c, PadMode mode, int d, const Expr *out)
{
  const Expr *n = c->arg[0]->shape[d];
  if (mode == PAD_CONSTANT || n == out || expr_is_int(out, 0)) return out;
  if (expr_is_int(n, 0))
    opdef_raise(c, ERR_SHAPE, "dimension %d of data %s is empty: there is nothing to pad with", d, nn_arg_shape(c, 0));
  return n->kind == E_INT ? out : dim_guard(c->m, expr_binary(c->m, E_GT, n, expr_int(c->m, n->dtype, 0)), out);
}

static const Type *padded_type(OpCall *c, PadMode mode, const int64_t *width)
{
  const Type *data = c->arg[0];
  const Expr *shape[MAX_RANK];
  if (data->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, data->ndim);
  for (int d = 0; d < data->ndim; d++) {
    shape[d] = nn_simplify(
        c->m, expr_add(c->m, data->shape[d], expr_int(c->m, data->shape[d]->dtype, width[2 * d] + width[2 * d + 1])));
    if (shape[d]->kind == E_INT && shape[d]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "pads (%" PRId64 ", %" PRId64 ") take more off dimension %d of %s than it has",
                  width[2 * d], width[2 * d + 1], d, nn_arg_shape(c, 0));
    shape[d] = want_elements(c, mode, d, shape[d]);
  }
  return type_tensor(c->m, data->dtype, data->ndim, shape);
}

static void want_pad_value(OpCall *c, int i)
{
  const Type *ty = nn_tensor(c, i, "pad_value");
  if (ty->ndim > 1 || (ty->ndim == 1 && ty->shape[0]->kind == E_INT && ty->shape[0]->u.i != 1))
    opdef_raise(c, ERR_SHAPE, "pad_value %s is not one number", nn_arg_shape(c, i));
}

static const Expr *pad_value(Module *m, const Tensor *t, DType dtype)
{
  const Expr *zero = expr_i32(m, 0);
  return expr_cast(m, dtype, te_read(m, t, t->buffer->ndim, &zero));
}

/* Where element `at` (counted from the input's first) comes from. */
static const Expr *pad_source(Module *m, PadMode mode, const Expr *at, const Expr *n)
{
  const Expr *one = expr_int(m, at->dtype, 1);
  const Expr *two = expr_int(m, at->dtype, 2);
  const Expr *zero = expr_int(m, at->dtype, 0);
  switch (mode) {
  case PAD_CONSTANT: return at;
  case PAD_EDGE: return expr_max(m, expr_min(m, at, expr_sub(m, n, one)), zero);
  case PAD_REFLECT: {
    const Expr *period = expr_max(m, expr_mul(m, two, expr_sub(m, n, one)), one);
    const Expr *p = expr_floormod(m, at, period);
    return expr_max(m, expr_min(m, p, expr_sub(m, expr_mul(m, two, expr_sub(m, n, one)), p)), zero);
  }
  case PAD_SYMMETRIC: {
    const Expr *period = expr_mul(m, two, n);
    const Expr *p = expr_floormod(m, at, period);
    return expr_min(m, p, expr_sub(m, expr_sub(m, period, one), p));
  }
  case PAD_WRAP: return expr_floormod(m, at, n);
  }
  BUG(m->ctx, "pad mode %d", mode);
}

/* before[d] is NULL where a dimension is not padded. */
static const Tensor *pad_stage(OpCall *c, const Tensor *in, PadMode mode, const Expr *const *before, const Expr *value)
{
  Module *m = c->m;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[MAX_RANK];
  const Expr *cond = NULL;
  const Expr *at = NULL;
  for (int d = 0; d < s.n; d++) {
    index[d] = s.at[d];
    if (!before[d]) continue;
    const Expr *n = in->buffer->shape[d];
    at = expr_sub(m, s.at[d], expr_cast(m, s.at[d]->dtype, before[d]));
    if (mode == PAD_CONSTANT || d == s.n - 1) cond = nn_and(m, cond, nn_inside(m, at, n));
    index[d] = nn_index(&s, pad_source(m, mode, at, n));
  }
  const Expr *body = nn_read(m, in, index);
  /* inside a row its elements lie side by side: said apart, it can be copied as a whole */
  if (cond && mode != PAD_CONSTANT) {
    value = body;
    index[s.n - 1] = at;
    body = nn_read(m, in, index);
  }
  if (cond) body = nn_if(m, cond, body, value);
  return nn_finish(&s, "T_pad", "injective,pad", body);
}

static void static_before(OpCall *c, const int64_t *width, const Expr **before)
{
  for (int d = 0; d < c->out->ndim; d++)
    before[d] = width[2 * d] || width[2 * d + 1] ? expr_i32(c->m, width[2 * d]) : NULL;
}

/* ---- nn.pad -------------------------------------------------------------------------------- */

static const Type *pad_type(OpCall *c)
{
  const PadAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  if (c->nargs > 1) want_pad_value(c, 1);
  return padded_type(c, pad_mode(c, a->pad_mode), pad_list(c, a->pad_width, data->ndim));
}

static void pad_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const PadAttrs *a = c->attrs;
  const Expr *before[MAX_RANK];
  static_before(c, pad_list(c, a->pad_width, c->out->ndim), before);
  const Expr *value = c->nargs > 1 ? pad_value(c->m, in[1], c->out->dtype) : expr_const(c->m, c->out->dtype, 0);
  *out = pad_stage(c, in[0], pad_mode(c, a->pad_mode), before, value);
}

/* A split dimension must not be padded; the others take their pads along. */
static const void *pad_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  PadAttrs *a = attrs_copy(c->m, &Pad_attrs, c->attrs);
  int ndim = c->arg[0]->ndim;
  const int64_t *width = pad_list(c, a->pad_width, ndim);
  if (!layout_keeps(c, arg[0].from, arg[0].to, "")) return NULL;
  Layout to = nn_layout(c, "layout", arg[0].to);
  int64_t *list = arena_array(c->m->arena, int64_t, 2 * to.n);
  for (int d = 0; d < ndim; d++) {
    int axis = layout_axis(&arg[0], d);
    if (axis < 0 && (width[2 * d] || width[2 * d + 1])) return NULL;
    if (axis >= 0) memcpy(list + 2 * axis, width + 2 * d, 2 * sizeof *list);
  }
  a->pad_width = (AttrInts){2 * to.n, list, true};
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_pad = {
  .name = "nn.pad",
  .doc =
      "puts elements around a tensor; pad_width is (before, after) for each dimension in turn, negative ones take off",
  .args = "data, pad_value",
  .min_args = 1,
  .max_args = 2,
  .attrs = &Pad_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .type = pad_type,
  .compute = pad_compute,
  .layout = pad_layout,
};

/* ---- dyn.nn.pad -------------------------------------------------------------------------------- */

static const Type *dyn_pad_type(OpCall *c)
{
  const DynPadAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  nn_tensor(c, 1, "pad_width");
  if (c->nargs > 2) want_pad_value(c, 2);
  PadMode mode = pad_mode(c, a->pad_mode);
  int n;
  const Expr *const *width = op_dims(c, 1, &n);
  if (n != 2 * data->ndim)
    opdef_raise(c, ERR_SHAPE, "pad_width has %d numbers; data %s wants %d", n, nn_arg_shape(c, 0), 2 * data->ndim);
  const Expr *shape[MAX_RANK];
  if (data->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, data->ndim);
  for (int d = 0; d < data->ndim; d++) {
    shape[d] = dim_add(c->m, dim_add(c->m, data->shape[d], width[2 * d]), width[2 * d + 1]);
    shape[d] = want_elements(c, mode, d, shape[d]);
  }
  return type_tensor(c->m, data->dtype, data->ndim, shape);
}

static void dyn_pad_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const DynPadAttrs *a = c->attrs;
  const Expr *before[MAX_RANK];
  for (int d = 0; d < c->out->ndim; d++) {
    const Expr *flat = expr_i32(m, 2 * d);
    const Expr *pair[] = {expr_i32(m, d), expr_i32(m, 0)};
    before[d] = in[1]->buffer->ndim == 2 ? nn_read(m, in[1], pair) : nn_read1(m, in[1], flat);
  }
  const Expr *value = c->nargs > 2 ? pad_value(m, in[2], c->out->dtype) : expr_const(m, c->out->dtype, 0);
  *out = pad_stage(c, in[0], pad_mode(c, a->pad_mode), before, value);
}

const OpDef op_dyn_nn_pad = {
  .name = "dyn.nn.pad",
  .doc = "nn.pad whose pad_width, (n, 2) or (2 * n,), is computed",
  .args = "data, pad_width, pad_value",
  .min_args = 2,
  .max_args = 3,
  .attrs = &DynPad_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = dyn_pad_type,
  .compute = dyn_pad_compute,
};

/* ---- nn.mirror_pad --------------------------------------------------------------------------------- */

static PadMode mirror_mode(OpCall *c)
{
  const MirrorPadAttrs *a = c->attrs;
  if (!strcmp(a->mode, "SYMMETRIC")) return PAD_SYMMETRIC;
  if (!strcmp(a->mode, "REFLECT")) return PAD_REFLECT;
  opdef_raise(c, ERR_ARGUMENT, "mode '%s' is neither SYMMETRIC nor REFLECT", a->mode);
}

static const Type *mirror_pad_type(OpCall *c)
{
  const MirrorPadAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  return padded_type(c, mirror_mode(c), pad_list(c, a->pad_width, data->ndim));
}

static void mirror_pad_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const MirrorPadAttrs *a = c->attrs;
  const Expr *before[MAX_RANK];
  static_before(c, pad_list(c, a->pad_width, c->out->ndim), before);
  *out = pad_stage(c, in[0], mirror_mode(c), before, NULL);
}

const OpDef op_nn_mirror_pad = {
  .name = "nn.mirror_pad",
  .doc = "puts mirror images around a tensor",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &MirrorPad_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = mirror_pad_type,
  .compute = mirror_pad_compute,
};
