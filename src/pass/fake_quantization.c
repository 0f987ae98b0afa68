/* fake_quantization.c: FakeQuantizationToInteger: what stands between dequantize and quantize is computed in integers.
 *   needs   types
 *   keeps   types, names
 *   breaks  nothing
 *
 * A dequantize moves down the graph as far as the integers before it say the same as the floats behind it:
 *
 *   product(dequantize(a), dequantize(b))   ->  dequantize(qnn.product(a, b)), int32 sums, the product of the scales
 *   dequantize(int32 sums) + bias           ->  dequantize(sums + bias in units of the sums)
 *   move(dequantize(a))                     ->  dequantize(move(a)): reshape, transpose, max_pool, relu, …
 *
 * and meets a quantize, which then is a requantize, or one of the operators that need to know the scale of their
 * result (add, concatenate, avg_pool2d, functions by table, …), which then takes it from the quantize:
 *
 *   quantize(f(dequantize(a)))              ->  qnn.f(a, scales of a, scales of the result)
 *
 * Sums of products are requantized in float32, halves to the even integer, as the floats they replace would be.  With
 * use_qat, what has an integer form without a quantize behind it (a pool, a sum, a function) takes the scale of its
 * input for its result, as networks trained for it expect.  What stays in float is named in the context's notes, with
 * the reason; with hard_fail it is an error. */
#include <math.h>

#include "op/qnn.h"
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_fake_quantization_options[] = {
  {PO_BOOL, "hard_fail", "false", "what stays in float is an error"},
  {PO_BOOL, "use_qat", "false", "also what no quantize follows, with the scale of its input"},
};

#define PRODUCTS "nn.conv1d,nn.conv2d,nn.conv3d,nn.conv2d_transpose,nn.dense,nn.matmul,nn.batch_matmul"
#define SUMS "add,subtract,multiply"
#define FUNCTIONS "sigmoid,tanh,exp,sqrt,rsqrt,erf,abs,log,nn.softmax,nn.leaky_relu"
#define POOLS "nn.avg_pool2d,nn.global_avg_pool2d,mean"
/* what takes elements as they are to other places, the largest of some, or leaves them out */
#define MOVES                                                                                           \
  "reshape,dyn.reshape,contrib_reverse_reshape,squeeze,expand_dims,nn.batch_flatten,strided_slice,"     \
  "dyn.strided_slice,nn.max_pool1d,nn.max_pool2d,nn.max_pool3d,nn.global_max_pool2d,nn.depth_to_space," \
  "nn.space_to_depth,reverse,copy,repeat,tile,broadcast_to,transpose,layout_transform,take,reshape_like"

/* real = scale * (node - zero), along an axis where they are vectors. */
typedef struct Affine {
  const Node *node, *scale, *zero;
  int axis;
} Affine;

typedef struct Work {
  PassContext *pc;
  Module *m;
  Arena *arena;
  Map why;  /* node -> why it stays in float */
  Map flat; /* what a convolution over one or three dimensions gives -> the same over two, before it is moved */
  bool qat;
} Work;

/* ---- what is known of a value -------------------------------------------------------------------- */

static bool is_whole(const Node *n) { return n->type->ndim == 0 || expr_is_int(n->type->shape[0], 1); }
static bool is_per_tensor(const Affine *a) { return is_whole(a->scale) && is_whole(a->zero); }

static bool affine_of(const Node *n, Affine *out)
{
  if (!is_call(n, "qnn.dequantize") || !dtype_eq(n->type->dtype, DT_F32)) return false;
  int axis = (int)call_int(n, "axis");
  *out = (Affine){n->arg[0], n->arg[1], n->arg[2], axis < 0 ? axis + n->type->ndim : axis};
  return true;
}

static int bits_of(const Affine *a) { return a->node->type->dtype.bits; }

static const Node *whole(Work *w, const Node *n) { return qnn_along(w->m, n, 0, 1); }

static const Node *stays(Work *w, const Node *n, const char *why)
{
  map_put(w->arena, &w->why, n, (void *)(uintptr_t)why);
  return n;
}

/* ---- convolutions over one or three dimensions ---------------------------------------------------------- */

/* What is done to such a one element by element is done before its elements move, where the convolution's kernel can
 * do it.  moved: as it is moved, now: instead of what was before. */
static const Node *moved_from(Work *w, const Node *moved, const Node *flat, const Node *now)
{
  if (moved == flat) return now;
  const Node *from = moved_from(w, moved->arg[0], flat, now);
  return node_call(w->m, moved->u.call.op, 1, &from, moved->u.call.attrs, moved->name);
}

static const Node *flat_of(const Work *w, const Node *n)
{
  const Node *flat = map_get(&w->flat, n);
  return flat ? flat : n;
}

static const Node *move_flat(Work *w, const Node *like, const Node *now)
{
  const Node *flat = map_get(&w->flat, like);
  if (!flat) return now;
  const Node *y = moved_from(w, like, flat, now);
  map_put(w->arena, &w->flat, y, (void *)(uintptr_t)now);
  return y;
}

/* ---- products ---------------------------------------------------------------------------------------- */

static const Node *transpose(Work *w, const Node *x, int n, const int64_t *axes)
{
  const OpDef *op = opdef_get(w->m->ctx, "transpose");
  void *a = attrs_new(w->m, op->attrs);
  attrs_set_ints(w->m, op->attrs, a, "axes", n, axes);
  return node_call(w->m, op, 1, &x, a, NULL);
}

/* Attributes of one operator with the values of those of another that have the same names. */
static void *attrs_from(Module *m, const AttrsDef *to, const Node *call)
{
  void *a = attrs_new(m, to);
  const AttrsDef *from = call->u.call.op->attrs;
  for (int i = 0; i < to->n; i++) {
    const AttrField *f = attrs_field(from, to->field[i].name);
    static const size_t size[] = {
      [AT_BOOL] = sizeof(bool),     [AT_INT] = sizeof(int64_t),   [AT_F64] = sizeof(double),
      [AT_STR] = sizeof(char *),    [AT_DTYPE] = sizeof(DType),   [AT_INTS] = sizeof(AttrInts),
      [AT_F64S] = sizeof(AttrF64s), [AT_STRS] = sizeof(AttrStrs), [AT_DIMS] = sizeof(AttrDims),
    };
    if (f && f->kind == to->field[i].kind && strcmp(f->name, "out_dtype"))
      memcpy((char *)a + to->field[i].offset, (const char *)call->u.call.attrs + f->offset, size[f->kind]);
  }
  return a;
}

/* The second operand as a weight whose rows are output features, and where its scales run then. */
static void as_rows(Work *w, Affine *b, int ndim, bool rows)
{
  if (rows) return;
  int64_t swap[] = {0, 2, 1};
  if (ndim == 2) swap[0] = 1, swap[1] = 0;
  b->node = transpose(w, b->node, ndim, swap);
  b->axis = b->axis == ndim - 1 ? ndim - 2 : b->axis == ndim - 2 ? ndim - 1 : b->axis;
}

static const Node *as_byte(Work *w, const Affine *a)
{
  DType t = a->node->type->dtype;
  return t.bits == 8 ? a->node : qnn_cast(w->m, a->node, DTYPE(t.code, 8));
}

/* Where the output's channels are, of a convolution; -1: its layouts have blocks. */
static int conv_channels(const Node *n, int *of_weight)
{
  const char *data = call_str(n, "data_layout");
  const char *kernel = call_str(n, "kernel_layout");
  const char *out = call_str(n, "out_layout");
  *of_weight = letter_at(kernel, 'O');
  if (!layout_is_plain(data) || !layout_is_plain(kernel) || (out && *out && strcmp(out, data))) return -1;
  return letter_at(data, 'C');
}

static const Node *conv_planes(Work *w, const Node *n, const Affine *a, const Affine *b)
{
  const Node *flat;
  if (!is_per_tensor(b) && b->axis != 0)
    return stays(w, n, "the scales of its weight do not run along the output's channels");
  const Node *arg[] = {as_byte(w, a), as_byte(w, b), whole(w, a->zero), b->zero, whole(w, a->scale), b->scale};
  const Node *sums = qnn_conv_planes(w->m, n->u.call.op, n->u.call.attrs, arg, &flat);
  if (!sums) return stays(w, n, "its layout is not a plain one, or its depth is not known");
  map_put(w->arena, &w->flat, sums, (void *)(uintptr_t)flat);
  const Node *scale = qnn_arith(w->m, "multiply", b->scale, whole(w, a->scale));
  return qnn_dequantize(w->m, sums, scale, op_number(w->m, DT_I32, 0), 1);
}

static const Node *product(Work *w, const Node *n)
{
  Module *m = w->m;
  Affine a, b;
  bool qa = affine_of(n->arg[0], &a);
  bool qb = affine_of(n->arg[1], &b);
  if (!qa && !qb) return n;
  if (!qa) return stays(w, n, "its first operand is not quantized");
  if (!qb) return stays(w, n, "its second operand is not quantized");
  if (bits_of(&a) > 8 || bits_of(&b) > 8) return stays(w, n, "sums of products of more than 8 bits may pass int32");
  if (!is_per_tensor(&a)) return stays(w, n, "its first operand has scales of its own along an axis");
  int ndim = n->type->ndim;
  int channels = ndim - 1;
  int of_weight = 0;
  const char *name = "qnn.dense";
  if (is_call_of(n, "nn.conv1d,nn.conv3d")) return conv_planes(w, n, &a, &b);
  if (is_call_of(n, "nn.conv2d,nn.conv2d_transpose")) {
    name = is_call(n, "nn.conv2d") ? "qnn.conv2d" : "qnn.conv2d_transpose";
    channels = conv_channels(n, &of_weight);
    if (channels < 0) return stays(w, n, "its layout has blocks");
    if (is_call(n, "nn.conv2d_transpose") && call_int(n, "groups") > 1 && !is_per_tensor(&b))
      return stays(w, n, "its groups share scales");
  } else if (is_call(n, "nn.batch_matmul")) {
    name = "qnn.batch_matmul";
    of_weight = 1;
    as_rows(w, &b, 3, call_int(n, "transpose_b"));
    if (call_int(n, "transpose_a")) a.node = transpose(w, a.node, 3, (const int64_t[]){0, 2, 1});
  } else if (is_call(n, "nn.matmul")) {
    as_rows(w, &b, 2, call_int(n, "transpose_b"));
    if (call_int(n, "transpose_a")) a.node = transpose(w, a.node, 2, (const int64_t[]){1, 0});
  }
  if (!is_per_tensor(&b) && b.axis != of_weight)
    return stays(w, n, "the scales of its weight do not run along the output's channels");
  const OpDef *op = opdef_get(m->ctx, name);
  const Node *arg[] = {as_byte(w, &a), as_byte(w, &b), whole(w, a.zero), b.zero, whole(w, a.scale), b.scale};
  const Node *sums = node_call(m, op, 6, arg, attrs_from(m, op->attrs, n), n->name);
  const Node *scale = qnn_arith(m, "multiply", b.scale, whole(w, a.scale));
  return qnn_dequantize(m, sums, scale, op_number(m, DT_I32, 0), channels);
}

/* ---- the bias of a product ---------------------------------------------------------------------------- */

/* A vector along one axis of so many dimensions, as the second operand of add has it: its elements as a constant. */
static const Node *flat_constant(Work *w, const Node *n)
{
  if (n->kind != N_CONST) return NULL;
  int64_t count = const_count(n->u.data);
  int64_t shape[1] = {count};
  ConstData d = *n->u.data;
  d.ndim = count == 1 ? 0 : 1;
  memcpy(d.shape, shape, sizeof shape);
  return node_const(w->m, &d);
}

/* Does it broadcast along the axis alone? */
static bool lies_along(const Node *bias, int axis, int ndim)
{
  const Type *ty = bias->type;
  for (int i = 0; i < ty->ndim; i++)
    if (i + ndim - ty->ndim != axis && !expr_is_int(ty->shape[i], 1)) return false;
  return ty->ndim <= ndim;
}

/* floats: also a bias of floats, which loses what is below one unit of the sums. */
static const Node *sums_with(Work *w, const Node *n, const Node *data, const Node *bias, int axis, bool floats)
{
  Affine a, b;
  if (!affine_of(data, &a) || bits_of(&a) != 32 || !qnn_all(a.zero, 0) || (!is_per_tensor(&a) && a.axis != axis))
    return n;
  bool add = is_call(n, "add");
  if (add && !lies_along(bias, axis, n->type->ndim)) return n;
  if (!is_per_tensor(&a) && bias->type->ndim == 0) return n;
  const Node *units = NULL;
  const Node *zero = op_number(w->m, DT_I32, 0);
  if (affine_of(bias, &b) && bits_of(&b) == 32 && b.node->kind == N_CONST) {
    const Node *flat = flat_constant(w, b.node);
    units = qnn_same(b.scale, a.scale) && qnn_all(b.zero, 0)
                ? flat
                : qnn_requantize(w->m, flat, b.scale, b.zero, a.scale, zero, 0, DT_I32);
  } else if (floats && bias->kind == N_CONST && a.scale->kind == N_CONST) {
    units = qnn_quantize(w->m, flat_constant(w, bias), a.scale, zero, 0, DT_I32);
  }
  if (!units) return n;
  const Node *sums = flat_of(w, a.node);
  units = qnn_along(w->m, units, axis, sums->type->ndim);
  sums = node_call(w->m, opdef_get(w->m->ctx, "add"), 2, (const Node *[]){sums, units}, NULL, n->name);
  return qnn_dequantize(w->m, move_flat(w, a.node, sums), a.scale, a.zero, a.axis);
}

/* add or nn.bias_add behind a product; n itself where it is none. */
static const Node *with_bias(Work *w, const Node *n, bool floats)
{
  if (is_call(n, "nn.bias_add")) {
    int axis = (int)call_int(n, "axis");
    return sums_with(w, n, n->arg[0], n->arg[1], axis < 0 ? axis + n->type->ndim : axis, floats);
  }
  Affine a;
  const Node *y = n;
  for (int i = 0; is_call(n, "add") && i < 2 && y == n; i++)
    if (affine_of(n->arg[i], &a) && type_equal(n->arg[i]->type, n->type))
      y = sums_with(w, n, n->arg[i], n->arg[1 - i], a.axis, floats);
  return y;
}

/* ---- what keeps the scale -------------------------------------------------------------------------------- */

/* The operator over integers of one scale; NULL: it is none of these. */
static const Node *moved(Work *w, const Node *n, const Affine *a)
{
  Module *m = w->m;
  if (is_call_of(n, MOVES)) {
    const Node **arg = arena_array(w->arena, const Node *, n->nargs);
    for (int i = 0; i < n->nargs; i++) arg[i] = n->arg[i];
    arg[0] = a->node;
    return node_call(m, n->u.call.op, n->nargs, arg, n->u.call.attrs, n->name);
  }
  if (is_call(n, "nn.relu")) {
    if (qnn_all(a->zero, dtype_min(a->node->type->dtype))) return a->node;
    const Node *arg[] = {flat_of(w, a->node), qnn_cast(m, whole(w, a->zero), a->node->type->dtype)};
    return move_flat(w, a->node, node_call(m, opdef_get(m->ctx, "maximum"), 2, arg, NULL, n->name));
  }
  if (is_call(n, "nn.pad") && n->nargs == 2 && const_all(n->arg[1], 0)) {
    const Node *zero = qnn_cast(m, whole(w, a->zero), a->node->type->dtype);
    return node_call(m, n->u.call.op, 2, (const Node *[]){a->node, zero}, n->u.call.attrs, n->name);
  }
  return NULL;
}

/* transpose takes the axis of the scales with it, a reshape that keeps the last dimension keeps scales along that, relu
 * does not care for it. */
static const Node *moved_channels(Work *w, const Node *n, Affine *a)
{
  if (is_call(n, "transpose")) {
    AttrInts axes = call_ints(n, "axes");
    int ndim = n->type->ndim;
    for (int i = 0; i < ndim; i++) {
      int64_t from = axes.given ? axes.v[i] : ndim - 1 - i;
      if ((from < 0 ? from + ndim : from) == a->axis) {
        a->node = node_call(w->m, n->u.call.op, 1, &a->node, n->u.call.attrs, n->name);
        a->axis = i;
        return a->node;
      }
    }
  }
  int last = n->arg[0]->type->ndim - 1;
  if (is_call_of(n, "reshape,dyn.reshape") && a->axis == last && n->type->ndim > 0 &&
      dim_same(w->m, n->arg[0]->type->shape[last], n->type->shape[n->type->ndim - 1])) {
    a->node = moved(w, n, a);
    a->axis = n->type->ndim - 1;
    return a->node;
  }
  if (is_call(n, "nn.relu") && qnn_all(a->zero, 0)) return a->node = moved(w, n, a);
  return NULL;
}

static const Node *push_down(Work *w, const Node *n)
{
  Affine a;
  if (!n->nargs || !affine_of(n->arg[0], &a)) return n;
  const Node *y = is_per_tensor(&a) ? moved(w, n, &a) : moved_channels(w, n, &a);
  if (!y) return n;
  return qnn_dequantize(w->m, y, a.scale, a.zero, is_per_tensor(&a) ? -1 : a.axis);
}

static bool same_scale(const Affine *a, const Affine *b)
{
  return qnn_same(a->scale, b->scale) && qnn_same(a->zero, b->zero) &&
         dtype_eq(a->node->type->dtype, b->node->type->dtype);
}

static const Node *push_concatenate(Work *w, const Node *n)
{
  const Node *parts = n->arg[0];
  if (parts->kind != N_TUPLE || !parts->nargs) return n;
  Affine first, a;
  const Node **q = arena_array(w->arena, const Node *, parts->nargs);
  for (int i = 0; i < parts->nargs; i++) {
    if (!affine_of(parts->arg[i], &a) || !is_per_tensor(&a)) return n;
    if (i == 0) first = a;
    if (!same_scale(&a, &first)) return n;
    q[i] = a.node;
  }
  const Node *all = node_tuple(w->m, parts->nargs, q);
  return qnn_dequantize(w->m, node_call(w->m, n->u.call.op, 1, &all, n->u.call.attrs, n->name), whole(w, first.scale),
                        whole(w, first.zero), -1);
}

/* ---- what takes its scale from a quantize ------------------------------------------------------------------- */

typedef struct Wanted {
  const Node *scale, *zero;
  DType dtype;
} Wanted;

static const Node *requantized(Work *w, const Affine *a, const Wanted *to)
{
  if (qnn_same(a->scale, to->scale) && qnn_same(a->zero, to->zero) && dtype_eq(a->node->type->dtype, to->dtype))
    return a->node;
  /* relu before it is in the lower limit */
  const Node *x = flat_of(w, a->node);
  if (is_call(x, "maximum") && const_all(x->arg[1], 0) && qnn_all(a->zero, 0) &&
      qnn_all(to->zero, dtype_min(to->dtype)))
    x = x->arg[0];
  QnnRequantizeAttrs *r = attrs_new(w->m, &QnnRequantize_attrs);
  r->axis = is_per_tensor(a) ? -1 : a->axis;
  r->rounding = "TONEAREST";
  r->compute_dtype = "float32";
  r->out_dtype = to->dtype;
  const Node *arg[] = {x, a->scale, a->zero, to->scale, to->zero};
  return move_flat(w, a->node, make_call(w->m, "qnn.requantize", 5, arg, r));
}

static const Node *quantized(Work *w, const Node *n, const Wanted *to);

/* Two tensors whose scales are of the whole. */
static const Node *sum_of(Work *w, const Node *n, const Wanted *to)
{
  Affine a, b;
  if (!affine_of(n->arg[0], &a) || !affine_of(n->arg[1], &b) || !is_per_tensor(&a) || !is_per_tensor(&b)) return NULL;
  if (is_call(n, "multiply") && (bits_of(&a) > 8 || bits_of(&b) > 8)) return NULL;
  if (!dtype_eq(a.node->type->dtype, to->dtype) || !dtype_eq(b.node->type->dtype, to->dtype)) return NULL;
  if (is_call(n, "multiply")) { /* an exact product, requantized as sums of products are */
    const Node *x = qnn_centred(w->m, a.node, whole(w, a.zero), 0);
    const Node *y = qnn_centred(w->m, b.node, whole(w, b.zero), 0);
    const Node *scale = qnn_arith(w->m, "multiply", whole(w, a.scale), whole(w, b.scale));
    return requantized(w, &(Affine){make2(w->m, "multiply", x, y), scale, op_number(w->m, DT_I32, 0), -1}, to);
  }
  const char *name = is_call(n, "add") ? "qnn.add" : "qnn.subtract";
  const Node *arg[] = {a.node,           b.node,    whole(w, a.scale), whole(w, a.zero), whole(w, b.scale),
                       whole(w, b.zero), to->scale, to->zero};
  return node_call(w->m, opdef_get(w->m->ctx, name), 8, arg, NULL, n->name);
}

/* The mean of some axes as the sum of integers and a smaller scale. */
static const Node *mean_of(Work *w, const Node *n, const Affine *a, const Wanted *to)
{
  const ReduceAttrs *r = n->u.call.attrs;
  int ndim = a->node->type->ndim;
  int64_t axes[MAX_RANK];
  int count = 0;
  double terms = 1;
  bool global = is_call(n, "nn.global_avg_pool2d");
  for (int i = 0; i < ndim; i++) {
    bool listed = false;
    if (global) listed = i == letter_at(call_str(n, "layout"), 'H') || i == letter_at(call_str(n, "layout"), 'W');
    else if (!r->axis.n) listed = true;
    for (int k = 0; !global && k < r->axis.n; k++)
      listed |= (r->axis.v[k] < 0 ? r->axis.v[k] + ndim : r->axis.v[k]) == i;
    if (!global && r->axis.n && r->exclude) listed = !listed;
    if (!listed) continue;
    if (dim_of(a->node, i) < 1) return NULL;
    axes[count++] = i;
    terms *= (double)dim_of(a->node, i);
  }
  if (terms > 1 << 15) return NULL;
  const Node *x = qnn_centred(w->m, a->node, whole(w, a->zero), 0);
  const Node *sum = qnn_sum(w->m, x, count, axes, global || r->keepdims);
  const Node *scale = qnn_arith(w->m, "divide", whole(w, a->scale), op_number(w->m, DT_F32, terms));
  return requantized(w, &(Affine){sum, scale, op_number(w->m, DT_I32, 0), 0}, to);
}

static const Node *pool_of(Work *w, const Node *n, const Wanted *to)
{
  Affine a;
  if (!affine_of(n->arg[0], &a) || !is_per_tensor(&a) || bits_of(&a) > 16) return NULL;
  if (!is_call(n, "nn.avg_pool2d")) return mean_of(w, n, &a, to);
  if (!dtype_eq(a.node->type->dtype, to->dtype)) return NULL;
  const Node *arg[] = {a.node, whole(w, a.scale), whole(w, a.zero), to->scale, to->zero};
  return node_call(w->m, &op_qnn_avg_pool2d, 5, arg, attrs_from(w->m, &QnnAvgPool2D_attrs, n), n->name);
}

static const Node *function_of(Work *w, const Node *n, const Wanted *to)
{
  Affine a;
  if (!affine_of(n->arg[0], &a) || !is_per_tensor(&a) || bits_of(&a) > 16) return NULL;
  if (!dtype_eq(a.node->type->dtype, to->dtype)) return NULL;
  const char *name = n->u.call.op->name;
  if (str_starts(name, "nn.")) name += 3;
  const OpDef *op = opdef_get(w->m->ctx, arena_printf(w->arena, "qnn.%s", name));
  const Node *arg[] = {a.node, whole(w, a.scale), whole(w, a.zero), to->scale, to->zero};
  return node_call(w->m, op, 5, arg, op->attrs ? attrs_from(w->m, op->attrs, n) : NULL, n->name);
}

/* Each side brought to the wanted units, then chosen from. */
static const Node *chosen(Work *w, const Node *n, const Wanted *to)
{
  Affine a, b;
  if (!affine_of(n->arg[1], &a) || !affine_of(n->arg[2], &b) || !is_per_tensor(&a) || !is_per_tensor(&b)) return NULL;
  const Node *arg[] = {n->arg[0], requantized(w, &a, to), requantized(w, &b, to)};
  return node_call(w->m, n->u.call.op, 3, arg, n->u.call.attrs, n->name);
}

static const Node *concatenated(Work *w, const Node *n, const Wanted *to)
{
  const Node *parts = n->arg[0];
  if (parts->kind != N_TUPLE || !parts->nargs) return NULL;
  const Node **field[3];
  for (int k = 0; k < 3; k++) field[k] = arena_array(w->arena, const Node *, parts->nargs);
  for (int i = 0; i < parts->nargs; i++) {
    Affine a;
    if (!affine_of(parts->arg[i], &a) || !is_per_tensor(&a) || bits_of(&a) > 16) return NULL;
    if (!dtype_eq(a.node->type->dtype, to->dtype)) return NULL;
    field[0][i] = a.node;
    field[1][i] = whole(w, a.scale);
    field[2][i] = whole(w, a.zero);
  }
  const Node *arg[5] = {[3] = to->scale, [4] = to->zero};
  for (int k = 0; k < 3; k++) arg[k] = node_tuple(w->m, parts->nargs, field[k]);
  return node_call(w->m, &op_qnn_concatenate, 5, arg, attrs_from(w->m, &QnnConcatenate_attrs, n), n->name);
}

/* Limits as integers of the wanted scale. */
static const Node *limited(Work *w, const Node *n, const Wanted *to)
{
  double s, z;
  if (!qnn_number(to->scale, &s) || !qnn_number(to->zero, &z)) return NULL;
  const Node *x = quantized(w, n->arg[0], to);
  return x ? qnn_clip(w->m, x, nearbyint(call_f64(n, "a_min") / s) + z, nearbyint(call_f64(n, "a_max") / s) + z) : NULL;
}

/* The float value n as integers of a scale; NULL: there is no way. */
static const Node *quantized(Work *w, const Node *n, const Wanted *to)
{
  Affine a;
  if (affine_of(n, &a)) return requantized(w, &a, to);
  if (n->kind != N_CALL) return NULL;
  if (affine_of(with_bias(w, n, true), &a)) return requantized(w, &a, to);
  if (is_call_of(n, SUMS)) return sum_of(w, n, to);
  if (is_call_of(n, POOLS)) return pool_of(w, n, to);
  if (is_call_of(n, FUNCTIONS)) return function_of(w, n, to);
  if (is_call(n, "concatenate")) return concatenated(w, n, to);
  if (is_call(n, "where")) return chosen(w, n, to);
  if (is_call(n, "clip")) return limited(w, n, to);
  if (is_call_of(n, MOVES) || is_call_of(n, "nn.relu,nn.pad")) {
    const Node *x = quantized(w, n->arg[0], to);
    return x ? moved(w, n, &(Affine){x, to->scale, to->zero, 0}) : NULL;
  }
  return NULL;
}

static const Node *meet_quantize(Work *w, const Node *n)
{
  if (!is_whole(n->arg[1]) || !is_whole(n->arg[2])) return n;
  Wanted to = {whole(w, n->arg[1]), whole(w, n->arg[2]), n->type->dtype};
  const Node *y = quantized(w, n->arg[0], &to);
  return y ? y : n;
}

/* ---- without a quantize ------------------------------------------------------------------------------------- */

static const Node *with_scale_of_input(Work *w, const Node *n)
{
  Affine a;
  if (!is_call_of(n, SUMS "," POOLS "," FUNCTIONS) || !affine_of(n->arg[0], &a) || !is_per_tensor(&a) ||
      bits_of(&a) > 16)
    return n;
  Wanted to = {whole(w, a.scale), whole(w, a.zero), a.node->type->dtype};
  const Node *y = quantized(w, n, &to);
  return y ? qnn_dequantize(w->m, y, to.scale, to.zero, -1) : n;
}

static const Node *to_integer(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  Work *w = rw->env;
  if (now->kind != N_CALL || !now->type) return now;
  if (is_call(now, "qnn.quantize")) return meet_quantize(w, now);
  if (str_starts(now->u.call.op->name, "qnn.")) return now;
  const Node *y;
  if (is_call_of(now, PRODUCTS)) return product(w, now);
  if (is_call_of(now, "add,nn.bias_add")) y = with_bias(w, now, false);
  else if (is_call(now, "concatenate")) y = push_concatenate(w, now);
  else y = push_down(w, now);
  return y == now && w->qat ? with_scale_of_input(w, now) : y;
}

/* ---- what stays in float --------------------------------------------------------------------------------------- */

static bool has_quantized_operand(const Node *n)
{
  for (int i = 0; i < n->nargs; i++) {
    if (is_call(n->arg[i], "qnn.dequantize")) return true;
    if (n->arg[i]->kind == N_TUPLE && has_quantized_operand(n->arg[i])) return true;
  }
  return false;
}

static const char *reason(Work *w, const Node *n, const Map *met)
{
  const char *why = map_get(&w->why, n);
  if (why) return why;
  if (is_call_of(n, "nn.conv1d_transpose,nn.conv3d_transpose"))
    return "only transposed convolutions over two dimensions have an integer form";
  if (is_call_of(n, SUMS)) {
    Affine a, b;
    if (!affine_of(n->arg[0], &a) || !affine_of(n->arg[1], &b)) return "one of its operands is not quantized";
  }
  if (!is_call_of(n, SUMS "," POOLS "," FUNCTIONS ",concatenate,clip,where")) return "it has no integer form";
  return map_get(met, n) ? "its operands and its result have different dtypes or scales along an axis"
                         : "its result is not quantized";
}

static void tell(Work *w, const Node *f, bool fail)
{
  const Node **order;
  Map met = {0};
  int n = graph_post_order(w->arena, f, &order);
  for (int i = 0; i < n; i++)
    if (is_call(order[i], "qnn.quantize")) map_put(w->arena, &met, order[i]->arg[0], (void *)1);
  for (int i = 0; i < n; i++) {
    const Node *x = order[i];
    if (x->kind != N_CALL || str_starts(x->u.call.op->name, "qnn.") || !has_quantized_operand(x)) continue;
    const char *text =
        arena_printf(w->pc->arena, "%s%s%s%s stays in float: %s", x->u.call.op->name, x->name ? " (node '" : "",
                     x->name ? x->name : "", x->name ? "')" : "", reason(w, x, &met));
    if (fail) raise(w->pc->ctx, ERR_UNSUPPORTED, NOWHERE, "FakeQuantizationToInteger: %s", text);
    vec_push(w->pc->arena, &w->pc->notes, text);
  }
}

static bool has_quantized(Arena *arena, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  for (int i = 0; i < n; i++)
    if (is_call_of(order[i], "qnn.quantize,qnn.dequantize")) return true;
  return false;
}

const Node *pass_fake_quantization(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  Work w = {.pc = pc, .m = m, .arena = scratch(pc->ctx)};
  if (is_primitive(f) || !has_quantized(w.arena, f)) return f;
  w.qat = pass_option_int(env, pass_fake_quantization_options, 1) != 0;
  f = rewrite(m, f, to_integer, &w);
  tell(&w, f, pass_option_int(env, pass_fake_quantization_options, 0) != 0);
  return f;
}
