/* alter.c: which layout and algorithm a call wants.
 *
 * AlterOpLayout asks here for each call.  Convolutions over NCHW become convolutions over blocks
 * of channels; the block depends on the number of channels and the target alone, so that what
 * one convolution gives is what the next one takes.  Weights are transformed by operators in
 * the graph, which fold away when the weight is a constant. */
#include "impl/internal.h"
#include "op/nn.h"

/* Vector operations for a block of n elements: whole vectors, then halves, quarters, … */
int64_t alter_block_vectors(int64_t n, int64_t lanes)
{
  return n / lanes + __builtin_popcountll((uint64_t)(n % lanes));
}

/* Channels in a block: a divisor of n that fills vectors well, the smallest of the good ones; 0: none. */
int64_t alter_block(const Target *t, int bits, int64_t n)
{
  int64_t lanes = target_lanes(t, bits);
  int64_t best = 0;
  int64_t least = lanes < 8 ? 8 : lanes;
  double top = 0;
  if (n % least == 0) return least;
  for (int64_t d = 4; d <= 4 * lanes && d <= n; d += 4) {
    if (n % d) continue;
    double full = (double)d / (double)(alter_block_vectors(d, lanes) * lanes);
    if (full <= top * 1.05) continue;
    top = full;
    best = d;
  }
  return best;
}

static const char *blocked(Module *m, int64_t block) { return arena_printf(m->arena, "NCHW%" PRId64 "c", block); }

const Node *alter_transform(Module *m, const Node *n, const char *from, const char *to)
{
  LayoutTransformAttrs *a = attrs_new(m, &LayoutTransform_attrs);
  a->src_layout = from;
  a->dst_layout = to;
  return node_call(m, opdef_get(m->ctx, "layout_transform"), 1, &n, a, n->name);
}

static const Node *reshaped(Module *m, const Node *n, int ndim, const int64_t *shape)
{
  const Expr *dims[MAX_RANK];
  ReshapeAttrs *a = attrs_new(m, &Reshape_attrs);
  for (int d = 0; d < ndim; d++) dims[d] = expr_i32(m, shape[d]);
  attrs_set_dims(m, &Reshape_attrs, a, "newshape", ndim, dims);
  return op_call1(m, &op_reshape, n, a);
}

const Node *alter_pad(Module *m, const Node *n, const int64_t *more)
{
  const Type *t = n->type;
  int64_t width[2 * MAX_RANK] = {0};
  bool any = false;
  for (int d = 0; d < t->ndim; d++) {
    width[2 * d + 1] = more[d];
    any |= more[d] > 0;
  }
  if (!any) return n;
  PadAttrs *pad = attrs_new(m, &Pad_attrs);
  attrs_set_ints(m, &Pad_attrs, pad, "pad_width", 2 * t->ndim, width);
  const Node *arg[] = {n, node_scalar(m, (Value){.dtype = t->dtype})};
  return node_call(m, opdef_get(m->ctx, "nn.pad"), 2, arg, pad, n->name);
}

const Node *alter_pad_rows(Module *m, const Node *weight, int64_t groups, int64_t block)
{
  const Type *t = weight->type;
  int64_t own = known(t->shape[0]) / groups;
  int64_t more[MAX_RANK] = {0, (block - own % block) % block};
  int64_t shape[MAX_RANK] = {groups, own};
  if (!more[1]) return weight;
  for (int d = 1; d < t->ndim; d++) shape[d + 1] = known(t->shape[d]);
  const Node *padded = alter_pad(m, reshaped(m, weight, t->ndim + 1, shape), more);
  shape[1] = groups * (own + more[1]);
  return reshaped(m, padded, t->ndim, shape + 1);
}

/* A weight that is known at compile time, or made from such. */
bool alter_is_constant(Ctx *ctx, const Node *n)
{
  if (n->kind == N_CONST) return true;
  Scope scope = scope_begin(ctx);
  const Node **node;
  int count = graph_post_order(scratch(ctx), n, &node);
  bool constant = true;
  for (int i = 0; i < count; i++)
    constant &=
        node[i]->kind == N_CONST || node[i]->kind == N_CALL || node[i]->kind == N_TUPLE || node[i]->kind == N_GET;
  scope_end(ctx, scope);
  return constant;
}

/* A two-dimensional convolution in the common layouts, all sizes that matter known. */
static bool is_common_conv(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  const Type *x = call->arg[0]->type;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") ||
      (*a->out_layout && strcmp(a->out_layout, "NCHW")))
    return false;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim != 4 || !dtype_eq(x->dtype, w->dtype))
    return false;
  for (int d = 0; d < 4; d++)
    if (!known(w->shape[d])) return false;
  return known(x->shape[1]) != 0;
}

static bool is_plain_conv(const Node *call)
{
  DType t = call->arg[0]->type->dtype;
  return is_common_conv(call) && t.code == DT_FLOAT && dtype_eq(call->type->dtype, t);
}

/* Products of bfloat16, summed in float32. */
static bool sums_words(const Node *call)
{
  return dtype_eq(call->arg[0]->type->dtype, DT_BF16) && dtype_eq(call->arg[1]->type->dtype, DT_BF16) &&
         dtype_eq(call->type->dtype, DT_F32);
}

/* ---- words of bfloat16 ------------------------------------------------------------------------------ */

/* Do words win more than rounding the operands costs?  Arithmetic and the weights' way from memory go on at once. */
static bool words_pay(const Target *t, double flops, double weights, int word)
{
  static const double ROUNDING = 0.9;
  double sums = flops / cost_flops(t, 32);
  double reads = weights * 4 / cost_stream(t);
  double words = sums / cost_words(t, word);
  double plain = sums > reads ? sums : reads;
  double narrow = words > reads / 2 ? words : reads / 2;
  return narrow < ROUNDING * plain;
}

/* Blocks of channels that hold whole words, and the elements of a word: four where a tile is made in blocks.  0: the
 * convolution has none. */
static int conv_word(const Target *t, const Node *call, int64_t *cb, int64_t *ob)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *y = call->type;
  int64_t o = known(call->arg[1]->type->shape[0]);
  *cb = alter_block(t, 32, known(call->arg[0]->type->shape[1]));
  *ob = alter_block(t, 32, o);
  if (a->groups != 1 || !*ob || !*cb || *cb % 2) return 0;
  /* what panels.c is chosen for */
  bool packed = known(y->shape[0]) && tile_block_rows(t, *ob, o / *ob, known(y->shape[2]) * known(y->shape[3]));
  return *cb % 4 == 0 && packed ? 4 : 2;
}

static bool alter_word_conv(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  int64_t cb, ob;
  int word = is_common_conv(call) ? conv_word(t, call, &cb, &ob) : 0;
  if (!word || !alter_is_constant(m->ctx, call->arg[1])) return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, call->u.call.attrs);
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  to->out_dtype = DT_F32;
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o%di", cb / word, ob, word);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
  return true;
}

bool impl_alter_words(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || target_is_gpu(t) || call->nargs < 2) return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.contrib_recurrent")) return recurrent_alter(m, t, call, out);
  if (call->type->kind != TY_TENSOR) return false;
  if (int8_alter(m, t, call, out)) return true;
  if (!strcmp(op, "nn.conv2d")) return sums_words(call) && alter_word_conv(m, t, call, out);
  return false;
}

/* ---- bfloat16 -------------------------------------------------------------------------------------- */

/* Is Winograd's algorithm over float32 faster than the direct one over words? */
static bool winograd_wins(Ctx *ctx, const Target *t, const ImplConfig *config, const Node *call, int word)
{
  Module *m = module_new(ctx);
  ImplCall c = {m, m->arena, t, config, call};
  PlanList list;
  double direct = 0;
  double least = 0;
  impl_plans(&c, &list);
  for (int i = 0; i < list.v.n; i++) {
    const Plan *p = &list.v.v[i];
    double *to = !strcmp(p->impl->name, "conv2d.winograd") ? &least : &direct;
    if (*to == 0 || p->seconds < *to) *to = p->seconds;
  }
  bool wins = least > 0 && (direct == 0 || least < direct / cost_words(t, word));
  module_release(m);
  return wins;
}

bool impl_prefers_pairs(Ctx *ctx, const Target *t, const ImplConfig *config, const Node *call)
{
  if (call->kind != N_CALL || call->type->kind != TY_TENSOR || target_is_gpu(t)) return false;
  const char *op = call->u.call.op->name;
  int64_t cb, ob;
  bool conv = !strcmp(op, "nn.conv2d");
  if ((!conv && strcmp(op, "nn.dense") && strcmp(op, "nn.matmul")) || !dtype_eq(call->type->dtype, DT_F32) ||
      !dtype_eq(call->arg[0]->type->dtype, DT_F32))
    return false;
  int word = 0;
  if (conv && is_plain_conv(call)) word = conv_word(t, call, &cb, &ob);
  if (!conv) word = matmul_word(ctx, t, call);
  if (!word || !words_pay(t, impl_flops(call), type_known_elements(call->arg[1]->type), word)) return false;
  return !conv || (alter_is_constant(ctx, call->arg[1]) && !winograd_wins(ctx, t, config, call, word));
}
