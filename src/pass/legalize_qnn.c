/* legalize_qnn.c: LegalizeQnn: quantized tensors take the sign that the target's dot products want, and channels come
 * in whole words.
 *   needs   types
 *   keeps   types of parameters and results
 *   breaks  nothing
 *
 * Instructions that multiply bytes take signed data (AArch64) or unsigned data (x86) beside a signed weight.  uint8
 * with zero point z and int8 with zero point z - 128 are the same numbers, so a tensor of the wrong sign is made with
 * the other: by the operator that makes it, where that is one of qnn, or whatever moves elements behind such a one;
 * else by flipping the top bit of each element.  Two tensors of data that are both unsigned stay so where there is an
 * instruction for them.
 *
 * A convolution or product over a number of input channels that four does not divide (a network's first) gets zeros as
 * further channels, or zero points where the weight has one: a word of four is what an instruction takes.  Output
 * channels that make no blocks get further ones whose weight is zero; they are cut off again behind what follows
 * element by element, or not at all before the next product, whose weight is zero for them.  Each group of a grouped
 * convolution is treated so; where its channels are few, several groups become one, whose weight is zero where channels
 * of different ones meet.
 *
 * On a microcontroller, where every product counts, the columns of a first convolution's window become channels. */
#include "op/qnn.h"
#include "pass/passes.h"
#include "pass/tools.h"

enum { WORD = 4 }; /* bytes that are multiplied at once */

typedef struct Turn {
  const Target *target;
  struct Turn *other; /* to the other sign */
  Module *m;
  Arena *arena;
  Map twin;  /* node -> the same with the other sign */
  Map whole; /* node that has channels cut off -> the same with all of them */
  Map parts; /* such a node whose channels are cut off behind each of several groups -> how many (GroupCount) */
  DType want;
} Turn;

#define PRODUCTS "qnn.conv2d,qnn.dense,qnn.batch_matmul"
#define SUMS "qnn.add,qnn.subtract,qnn.mul"
/* what makes a tensor whose zero point is the last argument, from one of its first dtype */
#define UNARY                                                                                              \
  "qnn.avg_pool2d,qnn.sigmoid,qnn.tanh,qnn.exp,qnn.sqrt,qnn.rsqrt,qnn.erf,qnn.abs,qnn.log,qnn.leaky_relu," \
  "qnn.hardswish,qnn.softmax"
#define MOVES                                                                                                  \
  "reshape,dyn.reshape,squeeze,expand_dims,nn.batch_flatten,strided_slice,nn.max_pool2d,nn.global_max_pool2d," \
  "nn.depth_to_space,nn.space_to_depth,transpose,copy,repeat,tile"

static bool is_wrong(const Turn *t, const Node *n)
{
  DType d = n->type->kind == TY_TENSOR ? n->type->dtype : DT_NONE;
  return dtype_is_int(d) && d.bits == 8 && d.code != t->want.code;
}

/* A zero point of the other sign. */
static const Node *moved_zero(Turn *t, const Node *zero)
{
  return qnn_arith(t->m, t->want.code == DT_INT ? "subtract" : "add", zero, op_number(t->m, DT_I32, 128));
}

static const Node *flipped(Turn *t, const Node *n)
{
  Module *m = t->m;
  DType from = n->type->dtype;
  const Node *top = node_scalar(m, value_int(from, from.code == DT_INT ? -128 : 128));
  const OpDef *op = opdef_get(m->ctx, "reinterpret");
  void *a = attrs_new(m, op->attrs);
  attrs_set_dtype(m, op->attrs, a, "dtype", t->want);
  return op_call1(m, op, make2(m, "bitwise_xor", n, top), a);
}

static const Node *twin_of(Turn *t, const Node *n);

/* The call with some arguments in other form, and another out_dtype where it has one. */
static const Node *call_with(Turn *t, const Node *n, const Node *const *arg)
{
  void *a = n->u.call.op->attrs ? call_attrs(t->m, n) : NULL;
  if (a && call_has(n, "out_dtype") && is_call_of(n, "qnn.quantize,qnn.requantize"))
    attrs_set_dtype(t->m, n->u.call.op->attrs, a, "out_dtype", t->want);
  return node_call(t->m, n->u.call.op, n->nargs, arg, a, n->name);
}

static const Node *make_twin(Turn *t, const Node *n)
{
  if (n->kind != N_CALL) return flipped(t, n);
  const Node *arg[8];
  if (n->nargs > 8) return flipped(t, n);
  for (int i = 0; i < n->nargs; i++) arg[i] = n->arg[i];
  int last = n->nargs - 1;
  if (is_call_of(n, "qnn.quantize,qnn.requantize")) {
    arg[last] = moved_zero(t, arg[last]);
    return call_with(t, n, arg);
  }
  if (is_call_of(n, UNARY)) {
    arg[0] = twin_of(t, arg[0]);
    arg[2] = moved_zero(t, arg[2]);
    arg[last] = moved_zero(t, arg[last]);
    return call_with(t, n, arg);
  }
  if (is_call_of(n, SUMS)) {
    for (int i = 0; i < 2; i++) arg[i] = twin_of(t, arg[i]);
    for (int i = 3; i < 8; i += 2) arg[i] = moved_zero(t, arg[i]);
    return call_with(t, n, arg);
  }
  /* an int32 less or more 128, modulo 256 */
  if (is_call(n, "cast") && dtype_eq(arg[0]->type->dtype, DT_I32)) {
    const Node *sum = arg[0];
    double more = t->want.code == DT_INT ? -128 : 128;
    double by;
    if (is_call(sum, "add") && qnn_number(sum->arg[1], &by) && by == -more) return qnn_cast(t->m, sum->arg[0], t->want);
    return qnn_cast(t->m, make2(t->m, "add", sum, op_number(t->m, DT_I32, more)), t->want);
  }
  if (is_call_of(n, MOVES)) {
    arg[0] = twin_of(t, arg[0]);
    return call_with(t, n, arg);
  }
  return flipped(t, n);
}

static const Node *twin_of(Turn *t, const Node *n)
{
  if (!is_wrong(t, n)) return n;
  const Node *y = map_get(&t->twin, n);
  if (!y) {
    y = make_twin(t, n);
    map_put(t->arena, &t->twin, n, (void *)(uintptr_t)y);
  }
  return y;
}

/* ---- channels in whole words and blocks ---------------------------------------------------------- */

/* So many values more behind the last element of an axis. */
static const Node *padded(Turn *t, const Node *x, int axis, int64_t more, const Node *value)
{
  Module *m = t->m;
  int64_t width[2 * MAX_RANK] = {0};
  if (!more) return x;
  width[2 * axis + 1] = more;
  PadAttrs *a = attrs_new(m, &Pad_attrs);
  attrs_set_ints(m, &Pad_attrs, a, "pad_width", 2 * x->type->ndim, width);
  return make_call(m, "nn.pad", 2, (const Node *[]){x, qnn_cast(m, value, x->type->dtype)}, a);
}

/* A scalar as it is, a vector with so many ones behind each of its parts. */
static const Node *padded_scale(Turn *t, const Node *v, int64_t parts, int64_t more)
{
  int64_t n = qnn_count(v);
  if (v->type->ndim == 0 || n == 1) return v;
  int64_t own = n / parts;
  int64_t count = n + parts * more;
  double *all = arena_array(t->arena, double, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = i % (own + more);
    all[i] = at < own ? qnn_at(v, i / (own + more) * own + at) : 1;
  }
  return qnn_vector(t->m, v->type->dtype, count, all);
}

/* An axis as two, of so many parts; or, parts 0, an axis and the one behind it as one. */
static const Node *split_axis(Turn *t, const Node *x, int axis, int64_t parts)
{
  Module *m = t->m;
  const Expr *shape[MAX_RANK];
  int n = 0;
  for (int d = 0; d < x->type->ndim; d++) {
    const Expr *size = x->type->shape[d];
    if (d == axis && parts) shape[n++] = expr_i32(m, parts), size = expr_i32(m, size->u.i / parts);
    else if (d == axis) size = expr_i32(m, size->u.i * x->type->shape[++d]->u.i);
    shape[n++] = size;
  }
  return make_reshape(m, x, n, shape);
}

/* So many values more behind the last element of each part of an axis. */
static const Node *padded_parts(Turn *t, const Node *x, int axis, int64_t parts, int64_t more, const Node *value)
{
  if (parts == 1 || !more) return padded(t, x, axis, more, value);
  return split_axis(t, padded(t, split_axis(t, x, axis, parts), axis + 1, more, value), axis, 0);
}

/* The first so many of an axis; what they were cut from is remembered. */
static const Node *first_of(Turn *t, const Node *x, int axis, int64_t n)
{
  Module *m = t->m;
  int64_t begin[MAX_RANK] = {0};
  int64_t end[MAX_RANK];
  for (int i = 0; i < x->type->ndim; i++) end[i] = i == axis ? n : INT32_MAX;
  StridedSliceAttrs *a = attrs_new(m, &StridedSlice_attrs);
  attrs_set_ints(m, &StridedSlice_attrs, a, "begin", x->type->ndim, begin);
  attrs_set_ints(m, &StridedSlice_attrs, a, "end", x->type->ndim, end);
  const Node *y = make_call(m, "strided_slice", 1, &x, a);
  map_put(t->arena, &t->whole, y, (void *)(uintptr_t)x);
  return y;
}

typedef struct GroupCount {
  int64_t n;
} GroupCount;

/* The same of each of so many parts of the axis. */
static const Node *first_of_parts(Turn *t, const Node *x, int axis, int64_t parts, int64_t n)
{
  if (parts == 1) return first_of(t, x, axis, n);
  const Node *y = split_axis(t, first_of(t, split_axis(t, x, axis, parts), axis + 1, n / parts), axis, 0);
  GroupCount *count = arena_new_of(t->arena, GroupCount);
  count->n = parts;
  map_put(t->arena, &t->whole, y, (void *)(uintptr_t)x);
  map_put(t->arena, &t->parts, y, count);
  return y;
}

/* Channels to compute instead of so many, in the blocks that cost least: those of a vector of bytes, or smaller ones
 * that fill less of what is loaded and stored, and of a vector of sums. */
static int64_t blocks_of(const Target *t, int64_t channels)
{
  static const double COST[] = {1.3, 1.1, 1}; /* of 4, 8, 16 */
  int64_t lanes = target_lanes(t, 32);
  int64_t best = 0;
  double least = 0;
  if (channels % (lanes > WORD ? lanes : WORD) == 0) return channels;
  for (int i = 0; i < 3; i++) {
    int64_t block = WORD << i;
    int64_t n = (channels + block - 1) / block * block;
    double cost = (double)n * COST[i] * (block < lanes ? (double)lanes / (double)block : 1);
    if (best && (cost >= least || block >= 2 * channels)) continue;
    best = n, least = cost;
  }
  return best;
}

/* Data over so many channels as its words want: as it was before some were cut off, or with zeros. */
static const Node *data_in_words(Turn *t, const Node *x, int axis, const Node *value)
{
  const Node *whole = map_get(&t->whole, x);
  int64_t channels = dim_of(x, axis);
  if (whole && dim_of(whole, axis) != channels && !map_get(&t->parts, x)) return whole;
  return padded(t, x, axis, (WORD - channels % WORD) % WORD, value);
}

static int64_t int_at(AttrInts list, int i, int64_t none) { return list.n == 0 ? none : list.v[list.n == 1 ? 0 : i]; }

/* The padding of a convolution, by side: top, left, bottom, right. */
static int64_t pad_of(AttrInts p, int side)
{
  return p.n == 0 ? 0 : p.n == 1 ? p.v[0] : p.n == 2 ? p.v[side % 2] : p.v[side];
}

/* The data padded on all sides of its pictures with its zero point. */
static const Node *pad_pictures(Turn *t, const Node *x, const char *layout, AttrInts padding, const Node *zero)
{
  int64_t width[2 * MAX_RANK] = {0};
  bool any = false;
  for (int side = 0; side < 4; side++) {
    int64_t n = pad_of(padding, side);
    width[2 * letter_at(layout, "HW"[side % 2]) + side / 2] = n;
    any |= n != 0;
  }
  if (!any) return x;
  PadAttrs *a = attrs_new(t->m, &Pad_attrs);
  attrs_set_ints(t->m, &Pad_attrs, a, "pad_width", 2 * x->type->ndim, width);
  return make_call(t->m, "nn.pad", 2, (const Node *[]){x, qnn_cast(t->m, zero, x->type->dtype)}, a);
}

static const Node *turned(Module *m, const Node *x, int n, const int64_t *axes)
{
  const OpDef *op = opdef_get(m->ctx, "transpose");
  void *a = attrs_new(m, op->attrs);
  attrs_set_ints(m, op->attrs, a, "axes", n, axes);
  return node_call(m, op, 1, &x, a, NULL);
}

static const Node *reshaped(Module *m, const Node *x, int n, const int64_t *shape)
{
  const OpDef *op = opdef_get(m->ctx, "reshape");
  void *a = attrs_new(m, op->attrs);
  attrs_set_ints(m, op->attrs, a, "newshape", n, shape);
  return node_call(m, op, 1, &x, a, NULL);
}

/* The weight with its columns, so many at a time, before its input channels, as one dimension: OIHW of the columns'
 * groups. */
static const Node *weight_of_columns(Turn *t, const Node *w, const char *layout, int64_t together)
{
  int64_t axes[4];
  int64_t size[4];
  for (int i = 0; i < 4; i++) {
    axes[i] = letter_at(layout, "OWIH"[i]);
    size[i] = dim_of(w, (int)axes[i]);
  }
  int64_t groups = size[1] / together;
  w = reshaped(t->m, turned(t->m, w, 4, axes), 5, (const int64_t[]){size[0], groups, together, size[2], size[3]});
  w = turned(t->m, w, 5, (const int64_t[]){0, 2, 3, 4, 1});
  return reshaped(t->m, w, 4, (const int64_t[]){size[0], together * size[2], size[3], groups});
}

/* Columns that become channels together: the fewest that fill words and that the window moves over in whole steps, for
 * each of them lies in memory once for each group that it is in; else all. */
static int64_t columns_together(int64_t columns, int64_t channels, int64_t stride, int64_t dilation)
{
  for (int64_t n = 2; n < columns && dilation == 1; n++)
    if (columns % n == 0 && n % stride == 0 && n * channels % WORD == 0) return n;
  return columns;
}

/* The columns of the window become channels: the call's attributes then; NULL: they stay as they are. */
static const void *columns_as_channels(Turn *t, const Node *n, const Node **arg)
{
  const QnnConv2DAttrs *q = n->u.call.attrs;
  if (t->target->device.kind != DEVICE_MICRO || !is_call(n, "qnn.conv2d") || q->groups != 1 || arg[3]->type->ndim)
    return NULL;
  const char *layout = call_str(n, "data_layout");
  int c = letter_at(layout, 'C');
  int w = letter_at(layout, 'W');
  int64_t channels = dim_of(arg[0], c);
  int64_t columns = dim_of(arg[1], letter_at(q->kernel_layout, 'W'));
  int64_t stride = int_at(q->strides, 1, 1);
  int64_t dilation = int_at(q->dilation, 1, 1);
  if (channels < 1 || channels % WORD == 0 || columns < 2 || dim_of(arg[0], w) < 1) return NULL;
  int64_t together = columns_together(columns, channels, stride, dilation);
  const OpDef *op = opdef_get(t->m->ctx, "nn.contrib_columns");
  void *a = attrs_new(t->m, op->attrs);
  attrs_set_str(t->m, op->attrs, a, "layout", layout);
  attrs_set_int(t->m, op->attrs, a, "columns", together);
  attrs_set_int(t->m, op->attrs, a, "stride", stride);
  attrs_set_int(t->m, op->attrs, a, "dilation", dilation);
  attrs_set_int(t->m, op->attrs, a, "multiple", WORD);
  const Node *x = pad_pictures(t, arg[0], layout, q->padding, qnn_along(t->m, arg[2], 0, 1));
  arg[0] = node_call(t->m, op, 1, &x, a, NULL);
  arg[1] = weight_of_columns(t, arg[1], q->kernel_layout, together);
  int64_t more = dim_of(arg[0], c) - channels * together;
  if (more) arg[1] = padded(t, arg[1], 1, more, qnn_along(t->m, arg[3], 0, 1));
  const AttrsDef *def = n->u.call.op->attrs;
  QnnConv2DAttrs *to = attrs_copy(t->m, def, q);
  int64_t size[2] = {dim_of(arg[1], 2), dim_of(arg[1], 3)};
  int64_t apart = together < columns ? together / stride : 1;
  to->kernel_layout = "OIHW";
  attrs_set_ints(t->m, def, to, "kernel_size", 2, size);
  attrs_set_ints(t->m, def, to, "strides", 2, (const int64_t[]){int_at(q->strides, 0, 1), 1});
  attrs_set_ints(t->m, def, to, "dilation", 2, (const int64_t[]){int_at(q->dilation, 0, 1), apart});
  attrs_set_ints(t->m, def, to, "padding", 4, (const int64_t[]){0, 0, 0, 0});
  return to;
}

/* The product with operands in whole words and results in whole blocks; *cut: how many of them are meant, 0: all. */
static void whole_words(Turn *t, const Node **arg, int data_axis, int in, int out, int64_t *cut)
{
  /* a weight with a zero point: products of nothing are those of both zero points */
  bool centred = qnn_all(arg[3], 0);
  const Node *zero = op_number(t->m, DT_I32, 0);
  int64_t channels = dim_of(arg[0], data_axis);
  int64_t rows = dim_of(arg[1], out);
  if (channels < 1 || rows < 1 || (!centred && arg[3]->type->ndim)) return;
  if (centred) arg[0] = data_in_words(t, arg[0], data_axis, zero);
  else arg[0] = padded(t, arg[0], data_axis, (WORD - channels % WORD) % WORD, qnn_along(t->m, arg[2], 0, 1));
  const Node *nothing = centred ? zero : qnn_along(t->m, arg[3], 0, 1);
  arg[1] = padded(t, arg[1], in, dim_of(arg[0], data_axis) - channels, nothing);
  int64_t more = blocks_of(t->target, rows) - rows;
  if (!more || !centred || arg[5]->kind != N_CONST || arg[1]->type->dtype.bits != 8) return;
  arg[1] = padded(t, arg[1], out, more, zero);
  arg[3] = zero;
  arg[5] = padded_scale(t, arg[5], 1, more);
  *cut = rows;
}

/* Filters over one channel each: as many more as make blocks. */
static void whole_filters(Turn *t, const Node **arg, int data_axis, int out, int64_t *cut)
{
  int64_t channels = dim_of(arg[0], data_axis);
  int64_t more = channels < 1 || dim_of(arg[1], out) != channels ? 0 : blocks_of(t->target, channels) - channels;
  if (!more || !qnn_all(arg[3], 0) || arg[5]->kind != N_CONST) return;
  const Node *zero = op_number(t->m, DT_I32, 0);
  const Node *whole = map_get(&t->parts, arg[0]) ? NULL : map_get(&t->whole, arg[0]);
  bool have = whole && dim_of(whole, data_axis) == channels + more;
  arg[0] = have ? whole : padded(t, arg[0], data_axis, more, zero);
  arg[1] = padded(t, arg[1], out, more, zero);
  arg[3] = zero;
  arg[5] = padded_scale(t, arg[5], 1, more);
  *cut = channels;
}

static int64_t in_words(int64_t n) { return (n + WORD - 1) / WORD * WORD; }

/* How many groups become one: the least work, counted in products of words, and in copies of what has to be padded. */
static int64_t groups_together(int64_t groups, int64_t in, int64_t out, int64_t taps)
{
  static const double COPY = 4; /* of a word, as products of words by four channels */
  int64_t best = 1;
  double least = 0;
  for (int64_t g = 1; g <= groups; g++) {
    if (groups % g) continue;
    double words = (double)(in_words(g * in) / WORD);
    double rows = (double)(in_words(g * out) / WORD);
    double work = words * rows * (double)taps + (g * in % WORD ? COPY * words : 0) + (g * out % WORD ? COPY * rows : 0);
    work *= (double)(groups / g);
    if (!least || work < least) least = work, best = g;
  }
  return best;
}

/* A weight (o, i, …) over together as many groups: zero where channels of different ones meet. */
static const Node *joined_weight(Turn *t, const Node *w, int64_t groups, int64_t together)
{
  Module *m = t->m;
  if (together == 1) return w;
  int64_t in = dim_of(w, 1);
  const Node **part = arena_array(t->arena, const Node *, together);
  w = split_axis(t, split_axis(t, w, 0, groups), 0, groups / together); /* joined ones, groups of one, o, i, … */
  for (int64_t g = 0; g < together; g++) {
    StridedSliceAttrs *a = attrs_new(m, &StridedSlice_attrs);
    attrs_set_ints(m, &StridedSlice_attrs, a, "begin", 1, &g);
    attrs_set_ints(m, &StridedSlice_attrs, a, "end", 1, (const int64_t[]){g + 1});
    attrs_set_ints(m, &StridedSlice_attrs, a, "axes", 1, (const int64_t[]){1});
    PadAttrs *p = attrs_new(m, &Pad_attrs);
    int64_t width[2 * MAX_RANK] = {[6] = g * in, [7] = (together - 1 - g) * in};
    attrs_set_ints(m, &Pad_attrs, p, "pad_width", 2 * w->type->ndim, width);
    const Node *zero = qnn_cast(m, op_number(m, DT_I32, 0), w->type->dtype);
    part[g] = make_call(m, "nn.pad", 2, (const Node *[]){make_call(m, "strided_slice", 1, &w, a), zero}, p);
  }
  const OpDef *op = opdef_get(m->ctx, "concatenate");
  void *axis = attrs_new(m, op->attrs);
  attrs_set_int(m, op->attrs, axis, "axis", 1);
  const Node *all = node_tuple(m, (int)together, part);
  all = node_call(m, op, 1, &all, axis, NULL);
  return split_axis(t, split_axis(t, all, 0, 0), 0, 0);
}

/* Groups of several channels, NCHW and OIHW, in whole words; *groups: of the convolution then. */
static void whole_groups(Turn *t, const Node *n, const Node **arg, int64_t *groups, int64_t *cut)
{
  int64_t channels = dim_of(arg[0], 1);
  int64_t rows = dim_of(arg[1], 0);
  int64_t taps = dim_of(arg[1], 2) * dim_of(arg[1], 3);
  bool plain = !strcmp(call_str(n, "data_layout"), "NCHW") && !strcmp(call_str(n, "kernel_layout"), "OIHW");
  if (!plain || channels < 1 || rows < 1 || taps < 1 || !qnn_all(arg[3], 0) || arg[5]->kind != N_CONST ||
      arg[1]->type->dtype.bits != 8)
    return;
  const Node *zero = op_number(t->m, DT_I32, 0);
  int64_t together = groups_together(*groups, channels / *groups, rows / *groups, taps);
  arg[1] = joined_weight(t, arg[1], *groups, together);
  *groups /= together;
  int64_t in = channels / *groups;
  int64_t out = rows / *groups;
  arg[0] = padded_parts(t, arg[0], 1, *groups, in_words(in) - in, zero);
  arg[1] = padded(t, arg[1], 1, in_words(in) - in, zero);
  arg[3] = zero;
  int64_t more = (*groups == 1 ? blocks_of(t->target, out) : in_words(out)) - out;
  if (!more) return;
  arg[1] = padded_parts(t, arg[1], 0, *groups, more, zero);
  arg[5] = padded_scale(t, arg[5], *groups, more);
  *cut = rows;
}

/* A product of two tensors that are known at run time only; its kernel takes any sizes. */
static bool of_data(const Turn *t, const Node *n)
{
  const Node *w = n->arg[1];
  if (is_call(n, "qnn.batch_matmul")) return true;
  if (!is_call(n, "qnn.dense") || t->target->device.kind == DEVICE_MICRO) return false;
  return is_call(w, "transpose") && w->arg[0]->kind != N_CONST && n->type->ndim == 2;
}

/* The call over other arguments; *cut: so many output channels are meant. */
static const Node *product_of(Turn *t, const Node *n, const Node **arg)
{
  void *a = call_attrs(t->m, n);
  int64_t cut = 0;
  int64_t parts = 1;
  int axis = n->type->ndim - 1;
  if (is_call(n, "qnn.conv2d")) {
    const char *kernel = call_str(n, "kernel_layout");
    int o = letter_at(kernel, 'O');
    int i = letter_at(kernel, 'I');
    int64_t groups = call_int(n, "groups");
    bool filters = groups > 1 && dim_of(arg[1], i) == 1 && dim_of(arg[1], o) == groups;
    axis = letter_at(call_str(n, "data_layout"), 'C');
    if (groups == 1) whole_words(t, arg, axis, i, o, &cut);
    else if (filters) whole_filters(t, arg, axis, o, &cut);
    else whole_groups(t, n, arg, &groups, &cut);
    parts = filters ? 1 : groups;
    if (cut) attrs_set_int(t->m, n->u.call.op->attrs, a, "channels", dim_of(arg[1], o));
    attrs_set_int(t->m, n->u.call.op->attrs, a, "groups", filters && cut ? dim_of(arg[1], o) : groups);
  } else if (is_call(n, "qnn.dense") && !of_data(t, n)) {
    whole_words(t, arg, n->arg[0]->type->ndim - 1, 1, 0, &cut);
    if (cut) attrs_set_int(t->m, n->u.call.op->attrs, a, "units", dim_of(arg[1], 0));
  }
  const Node *y = node_call(t->m, n->u.call.op, n->nargs, arg, a, n->name);
  return cut ? first_of_parts(t, y, axis, parts, cut) : y;
}

/* The axis along which the two differ; -1: none, or several. */
static int cut_axis(const Node *cut, const Node *whole)
{
  int axis = -1;
  for (int d = 0; d < cut->type->ndim; d++)
    if (cut->type->shape[d] != whole->type->shape[d]) axis = axis < 0 ? d : MAX_RANK;
  return axis < MAX_RANK ? axis : -1;
}

/* What follows element by element, before channels are cut off; NULL: it is something else. */
static const Node *before_the_cut(Turn *t, const Node *n)
{
  const Node *whole = n->nargs ? map_get(&t->whole, n->arg[0]) : NULL;
  if (!whole || !is_call_of(n, "add,subtract,qnn.requantize")) return NULL;
  int axis = cut_axis(n->arg[0], whole);
  int64_t channels = dim_of(n->arg[0], axis);
  const GroupCount *count = map_get(&t->parts, n->arg[0]);
  int64_t parts = count ? count->n : 1;
  int64_t more = (dim_of(whole, axis) - channels) / parts;
  const Node *arg[8] = {whole};
  if (axis < 0 || more < 1 || n->nargs > 8) return NULL;
  for (int i = 1; i < n->nargs; i++) {
    const Node *v = n->arg[i];
    int at = axis - (n->type->ndim - v->type->ndim); /* of the same channels */
    bool plain = is_call_of(n, "add,subtract");
    if (!plain && (v->kind != N_CONST || (v->type->ndim && call_int(n, "axis") != axis))) return NULL;
    for (int d = 0; d < v->type->ndim && plain; d++)
      if (!expr_is_int(v->type->shape[d], d == at ? channels : 1)) return NULL;
    bool along = plain && at >= 0 && dim_of(v, at) == channels;
    arg[i] = plain ? v : padded_scale(t, v, parts, more);
    if (along) arg[i] = padded_parts(t, v, at, parts, more, op_number(t->m, DT_I32, 0));
  }
  if (n->type->ndim != whole->type->ndim) return NULL;
  const Node *y = node_call(t->m, n->u.call.op, n->nargs, arg, n->u.call.attrs, n->name);
  return first_of_parts(t, y, axis, parts, channels);
}

/* A depthwise convolution on a microcontroller, whose data is zero at its zero point: over bytes as they are stored.
 * The int8 of zero point -128 that functions below zero give is uint8 of zero point 0. */
static const Node *depthwise_of_bytes(Turn *t, const Node *n)
{
  double zx, zw;
  const Node *x = n->arg[0];
  const Node *w = n->arg[1];
  bool micro = t->target->device.kind == DEVICE_MICRO && is_call(n, "qnn.conv2d") && call_int(n, "groups") > 1;
  if (!micro || !qnn_number(n->arg[2], &zx) || !qnn_number(n->arg[3], &zw) || w->type->dtype.bits != 8 ||
      dim_of(w, letter_at(call_str(n, "kernel_layout"), 'I')) != 1)
    return n;
  if (dtype_eq(x->type->dtype, DT_I8) && zx == -128) {
    x = twin_of(t->other, x);
    zx = 0;
  }
  if (zx != 0 || x->type->dtype.bits != 8) return n;
  if (zw != 0) {
    const DType wide = DTYPE(DT_INT, 16);
    w = make2(t->m, "subtract", qnn_cast(t->m, w, wide), op_number(t->m, wide, zw));
  }
  return node_call(t->m, opdef_get(t->m->ctx, "nn.conv2d"), 2, (const Node *[]){x, w},
                   qnn_conv_attrs(t->m, n->u.call.attrs), n->name);
}

/* Two tensors of data that are unsigned, where an instruction takes them so. */
static bool unsigned_both(const Turn *t, const Node *const *arg)
{
  return dtype_eq(arg[0]->type->dtype, DT_U8) && dtype_eq(arg[1]->type->dtype, DT_U8) &&
         target_dot(t->target, DOT_U8, DOT_U8, target_lanes(t->target, 32));
}

static void weight_signed(Turn *t, const Node **arg)
{
  if (!dtype_eq(arg[1]->type->dtype, DT_U8)) return;
  Turn *to = t->want.code == DT_INT ? t : t->other;
  arg[1] = twin_of(to, arg[1]);
  arg[3] = moved_zero(to, arg[3]);
}

static const Node *turn(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  Turn *t = rw->env;
  if (now->kind != N_CALL || !now->type) return now;
  const Node *arg[8];
  if (now->nargs > 8) return now;
  for (int i = 0; i < now->nargs; i++) arg[i] = now->arg[i];
  if (is_call_of(now, PRODUCTS)) {
    const Node *plain = depthwise_of_bytes(t, now);
    if (plain != now || t->want.code == DT_VOID) return plain;
    const void *attrs = columns_as_channels(t, now, arg);
    bool stay = of_data(t, now) && unsigned_both(t, arg);
    if (of_data(t, now) && !stay) weight_signed(t, arg);
    if (is_wrong(t, arg[0]) && !stay) {
      arg[0] = twin_of(t, arg[0]);
      arg[2] = moved_zero(t, arg[2]);
    }
    if (attrs) now = node_call(t->m, now->u.call.op, now->nargs, arg, attrs, now->name);
    return product_of(t, now, arg);
  }
  const Node *sunk = before_the_cut(t, now);
  if (sunk) return sunk;
  /* others read what is there anyway */
  if (is_call(now, "qnn.dequantize") && map_get(&t->twin, arg[0])) {
    arg[0] = twin_of(t, arg[0]);
    arg[2] = moved_zero(t, arg[2]);
    return node_call(t->m, now->u.call.op, now->nargs, arg, now->u.call.attrs, now->name);
  }
  return now;
}

const Node *pass_legalize_qnn(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  DotElement data;
  const Target *target = pass_target(pc);
  bool dots = target_dot_data(target, &data);
  if (is_primitive(f) || (!dots && target->device.kind != DEVICE_MICRO)) return f;
  Turn other = {.target = target, .m = m, .arena = scratch(pc->ctx)};
  Turn t = {.target = target, .other = &other, .m = m, .arena = scratch(pc->ctx)};
  t.want = !dots ? DTYPE(DT_VOID, 0) : data == DOT_S8 ? DT_I8 : DT_U8;
  other.want = t.want.code == DT_UINT ? DT_I8 : DT_U8;
  return rewrite(m, f, turn, &t);
}
