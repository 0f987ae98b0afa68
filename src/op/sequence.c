/* sequence.c: sequences and optionals, which the executor handles itself (OPF_HOST).
 *
 * A sequence is an immutable list of values, most often tensors; an optional is none or
 * one value.  The executor does the same:
 *
 *   sequence.empty()                        no items
 *   sequence.construct(x0, x1, …)           these items
 *   sequence.at(s, position)                the item; negative from the end; outside: refused
 *   sequence.insert(s, x[, position])       x before position, at the end without one; [-n, n]
 *   sequence.erase(s[, position])           without the item, the last without a position
 *   sequence.length(s)                      an int64 scalar
 *   sequence.concat(s; axis, new_axis)      ConcatFromSequence: joined along axis, or
 *                                           stacked along a new one; of no items: refused
 *   sequence.split(x[, split]; axis, keepdims)
 *                                           SplitToSequence: parts of `split` each (the last
 *                                           may be smaller), or of the sizes in a vector;
 *                                           without split parts of 1, whose axis goes away
 *                                           unless keepdims
 *   optional.make([x])                      none, or x
 *   optional.has_element([o])               is there one?  a tensor or sequence: true
 *   optional.get_element(o)                 the value; of none: refused; a tensor or
 *                                           sequence comes back as it is
 *
 * The type of an item is the join of what went in: a dimension that differs is "?". */
#include "op/shape.h"

/* ---- values ------------------------------------------------------------------------------------ */

static const RtValue *list_value(Arena *a, int kind, int n, const RtValue *const *item)
{
  RtValue *v = arena_new_of(a, RtValue);
  v->kind = kind;
  v->n = n;
  v->field = arena_array(a, const RtValue *, n + 1);
  if (n) memcpy(v->field, item, (size_t)n * sizeof *item);
  return v;
}

static RtValue *tensor_value(OpCall *c, Arena *a, DType t, int ndim, const int64_t *shape)
{
  RtValue *v = arena_new_of(a, RtValue);
  size_t bytes = (size_t)dtype_bytes(t);
  v->kind = RV_TENSOR;
  v->tensor.dtype = t;
  v->tensor.ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    v->tensor.shape[i] = shape[i];
    bytes = mem_size_mul(c->m->ctx, bytes, (size_t)shape[i], "a tensor");
  }
  v->tensor.bytes = bytes;
  v->tensor.data = arena_alloc(a, bytes + 1);
  return v;
}

static const RtValue *scalar_value(OpCall *c, Arena *a, Value x)
{
  RtValue *v = tensor_value(c, a, x.dtype, 0, NULL);
  value_store(x, (void *)(uintptr_t)v->tensor.data);
  return v;
}

static const RtValue *need_list(OpCall *c, const RtValue *v)
{
  if (v->kind != RV_SEQ) opdef_raise(c, ERR_TYPE, "the first argument is no sequence");
  return v;
}

static int64_t int_value(OpCall *c, const RtValue *v)
{
  if (v->kind != RV_TENSOR || v->tensor.bytes < (size_t)dtype_bytes(v->tensor.dtype))
    opdef_raise(c, ERR_TYPE, "the position is not one number");
  return value_load(v->tensor.dtype, v->tensor.data).i;
}

/* A position in [-n, n), or with the end [-n, n]. */
static int position_in(OpCall *c, const RtValue *v, int n, bool end)
{
  int64_t p = int_value(c, v);
  int64_t at = p < 0 ? p + n : p;
  if (at < 0 || at >= n + end) opdef_raise(c, ERR_BOUNDS, "position %" PRId64 " is outside of a sequence of %d", p, n);
  return (int)at;
}

/* ---- types ---------------------------------------------------------------------------------------- */

static const Type *seq_type(OpCall *c, const Type *item) { return type_simple(c->m, TY_SEQ, item); }

/* The item type of a sequence argument; NULL of an empty one, which takes any. */
static const Type *item_type(OpCall *c, int i)
{
  const Type *ty = c->arg[i];
  if (ty->kind != TY_SEQ) opdef_raise(c, ERR_TYPE, "argument %d is %s; it must be a sequence", i, op_arg_text(c, i));
  return ty->field[0];
}

static void want_position(OpCall *c, int i)
{
  if (i >= c->nargs) return;
  const Type *ty = op_int_tensor_arg(c, i);
  if (ty->ndim > 1 || (ty->ndim == 1 && dim_differ(ty->shape[0], dim_int(c->m, 1))))
    opdef_raise(c, ERR_SHAPE, "position is %s; it is one number", op_arg_text(c, i));
}

static const Type *join(OpCall *c, const Type *a, const Type *b)
{
  if (a->kind != b->kind || (a->kind == TY_TENSOR && !dtype_eq(a->dtype, b->dtype)))
    opdef_raise(c, ERR_TYPE, "%s and %s do not go into one sequence", type_text(c->m->arena, a),
                type_text(c->m->arena, b));
  return type_join(c->m, a, b);
}

static const Type *unknown_tensor(OpCall *c, DType t) { return type_tensor(c->m, t, -1, NULL); }

/* ---- making ------------------------------------------------------------------------------------------ */

#define SEQUENCE_EMPTY_ATTRS(A, S) A(S, DTYPE, dtype, "\"float32\"", "of the tensors that it may hold")
DEFINE_ATTRS(SequenceEmpty, SEQUENCE_EMPTY_ATTRS)

static const Type *empty_type(OpCall *c)
{
  return seq_type(c, unknown_tensor(c, ((const SequenceEmptyAttrs *)c->attrs)->dtype));
}
static const RtValue *construct_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  return list_value(a, RV_SEQ, c->nargs, in);
}

const OpDef op_sequence_empty = {
  .name = "sequence.empty",
  .doc = "a sequence without items",
  .args = "",
  .min_args = 0,
  .max_args = 0,
  .attrs = &SequenceEmpty_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = empty_type,
  .eval = construct_eval,
};

static const Type *construct_type(OpCall *c)
{
  const Type *item = c->arg[0];
  for (int i = 1; i < c->nargs; i++) item = join(c, item, c->arg[i]);
  return seq_type(c, item);
}

const OpDef op_sequence_construct = {
  .name = "sequence.construct",
  .doc = "a sequence of these items",
  .args = "inputs",
  .min_args = 1,
  .max_args = -1,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = construct_type,
  .eval = construct_eval,
};

/* ---- items ---------------------------------------------------------------------------------------------- */

static const Type *at_type(OpCall *c)
{
  const Type *item = item_type(c, 0);
  want_position(c, 1);
  return item;
}

static const RtValue *at_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  (void)a;
  const RtValue *s = need_list(c, in[0]);
  return s->field[position_in(c, in[1], s->n, false)];
}

const OpDef op_sequence_at = {
  .name = "sequence.at",
  .doc = "an item of a sequence; negative positions from the end",
  .args = "input_sequence, position",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = at_type,
  .eval = at_eval,
};

static const Type *insert_type(OpCall *c)
{
  const Type *item = join(c, item_type(c, 0), c->arg[1]);
  want_position(c, 2);
  return seq_type(c, item);
}

static const RtValue *insert_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  const RtValue *s = need_list(c, in[0]);
  int at = c->nargs > 2 ? position_in(c, in[2], s->n, true) : s->n;
  const RtValue **item = arena_array(a, const RtValue *, s->n + 1);
  for (int i = 0; i <= s->n; i++) item[i] = i < at ? s->field[i] : i == at ? in[1] : s->field[i - 1];
  return list_value(a, RV_SEQ, s->n + 1, item);
}

const OpDef op_sequence_insert = {
  .name = "sequence.insert",
  .doc = "the sequence with one more item",
  .args = "input_sequence, tensor, position",
  .min_args = 2,
  .max_args = 3,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = insert_type,
  .eval = insert_eval,
};

static const Type *erase_type(OpCall *c)
{
  item_type(c, 0);
  want_position(c, 1);
  return c->arg[0];
}

static const RtValue *erase_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  const RtValue *s = need_list(c, in[0]);
  if (!s->n) opdef_raise(c, ERR_BOUNDS, "there is nothing to erase in an empty sequence");
  int at = c->nargs > 1 ? position_in(c, in[1], s->n, false) : s->n - 1;
  const RtValue **item = arena_array(a, const RtValue *, s->n);
  for (int i = 0; i < s->n - 1; i++) item[i] = s->field[i < at ? i : i + 1];
  return list_value(a, RV_SEQ, s->n - 1, item);
}

const OpDef op_sequence_erase = {
  .name = "sequence.erase",
  .doc = "the sequence without one item",
  .args = "input_sequence, position",
  .min_args = 1,
  .max_args = 2,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = erase_type,
  .eval = erase_eval,
};

static const Type *length_type(OpCall *c)
{
  item_type(c, 0);
  return type_tensor(c->m, DT_I64, 0, NULL);
}

static const RtValue *length_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  return scalar_value(c, a, value_int(DT_I64, need_list(c, in[0])->n));
}

const OpDef op_sequence_length = {
  .name = "sequence.length",
  .doc = "the number of items, an int64 scalar",
  .args = "input_sequence",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = length_type,
  .eval = length_eval,
};

/* ---- concat ------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define SEQUENCE_CONCAT_ATTRS(A, S)                        \
  A(S, INT, axis, "0", "axis to join along")               \
  A(S, BOOL, new_axis, "False", "stack along a new axis")
/* clang-format on */
DEFINE_ATTRS(SequenceConcat, SEQUENCE_CONCAT_ATTRS)

static const Type *concat_type(OpCall *c)
{
  const SequenceConcatAttrs *a = c->attrs;
  const Type *item = item_type(c, 0);
  if (item->kind != TY_TENSOR)
    opdef_raise(c, ERR_TYPE, "the items are %s; they must be tensors", type_text(c->m->arena, item));
  if (item->ndim < 0) return item;
  int n = item->ndim + a->new_axis;
  int axis = op_axis(c, a->axis, n);
  const Expr *dim[MAX_RANK + 1];
  for (int i = 0, k = 0; i < n; i++) {
    if (i == axis) dim[i] = type_dim_any(c->m);
    else dim[i] = item->shape[a->new_axis ? k : i];
    k += i != axis;
  }
  return type_tensor(c->m, item->dtype, n, dim);
}

/* Copies parts[i] into the joined tensor: blocks of the axes from `axis` on, row by row. */
static const RtValue *concat_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  const SequenceConcatAttrs *at = c->attrs;
  const RtValue *s = need_list(c, in[0]);
  if (!s->n) opdef_raise(c, ERR_ARGUMENT, "an empty sequence cannot be joined");
  const ConstData *first = &s->field[0]->tensor;
  int n = first->ndim + at->new_axis;
  int axis = op_axis(c, at->axis, n);
  if (n > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "the result would have %d dimensions; there are at most %d", n, MAX_RANK);
  int64_t shape[MAX_RANK];
  int64_t rows = 1;
  int64_t total = 0;
  for (int k = 0; k < s->n; k++) {
    const ConstData *t = &s->field[k]->tensor;
    bool fits = s->field[k]->kind == RV_TENSOR && t->ndim == first->ndim && dtype_eq(t->dtype, first->dtype);
    for (int i = 0; fits && i < first->ndim; i++) fits = (i == axis && !at->new_axis) || t->shape[i] == first->shape[i];
    if (!fits) opdef_raise(c, ERR_SHAPE, "item %d differs from item 0 in more than axis %d", k, axis);
    total += at->new_axis ? 1 : t->shape[axis];
  }
  for (int i = 0, k = 0; i < n; i++) {
    shape[i] = i == axis ? total : first->shape[at->new_axis ? k : i];
    k += i != axis;
  }
  for (int i = 0; i < axis; i++) rows *= shape[i];
  RtValue *out = tensor_value(c, a, first->dtype, n, shape);
  char *to = (char *)(uintptr_t)out->tensor.data;
  for (int64_t r = 0; r < rows; r++)
    for (int k = 0; k < s->n; k++) {
      size_t bytes = s->field[k]->tensor.bytes / (size_t)rows;
      memcpy(to, (const char *)s->field[k]->tensor.data + (size_t)r * bytes, bytes);
      to += bytes;
    }
  return out;
}

const OpDef op_sequence_concat = {
  .name = "sequence.concat",
  .doc = "the items joined along an axis, or stacked along a new one",
  .args = "input_sequence",
  .min_args = 1,
  .max_args = 1,
  .attrs = &SequenceConcat_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = concat_type,
  .eval = concat_eval,
};

/* ---- split ---------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define SEQUENCE_SPLIT_ATTRS(A, S)                         \
  A(S, INT, axis, "0", "axis to part")                     \
  A(S, BOOL, keepdims, "True", "without split: keep the axis")
/* clang-format on */
DEFINE_ATTRS(SequenceSplit, SEQUENCE_SPLIT_ATTRS)

static const Type *split_type(OpCall *c)
{
  const SequenceSplitAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int axis = op_axis(c, a->axis, in->ndim);
  int n = 0;
  const Expr *dim[MAX_RANK];
  bool drop = c->nargs < 2 && !a->keepdims;
  if (c->nargs > 1) op_int_tensor_arg(c, 1);
  for (int i = 0; i < in->ndim; i++)
    if (i != axis || !drop) dim[n++] = i != axis ? in->shape[i] : c->nargs > 1 ? type_dim_any(c->m) : dim_int(c->m, 1);
  return seq_type(c, type_tensor(c->m, in->dtype, n, dim));
}

static const RtValue *slice_value(OpCall *c, Arena *a, const ConstData *t, int axis, int64_t from, int64_t count,
                                  bool drop)
{
  int64_t shape[MAX_RANK];
  int64_t rows = 1;
  int n = 0;
  for (int i = 0; i < t->ndim; i++)
    if (i != axis || !drop) shape[n++] = i == axis ? count : t->shape[i];
  for (int i = 0; i < axis; i++) rows *= t->shape[i];
  RtValue *out = tensor_value(c, a, t->dtype, n, shape);
  size_t whole = rows ? t->bytes / (size_t)rows : 0;
  size_t one = t->shape[axis] ? whole / (size_t)t->shape[axis] : 0;
  for (int64_t r = 0; r < rows; r++)
    memcpy((char *)(uintptr_t)out->tensor.data + (size_t)r * one * (size_t)count,
           (const char *)t->data + (size_t)r * whole + (size_t)from * one, one * (size_t)count);
  return out;
}

static const RtValue *split_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  const SequenceSplitAttrs *at = c->attrs;
  const ConstData *t = &in[0]->tensor;
  const ConstData *by = c->nargs > 1 ? &in[1]->tensor : NULL;
  int axis = op_axis(c, at->axis, t->ndim);
  int64_t extent = t->shape[axis];
  int64_t from = 0;
  bool list = by && by->ndim == 1;
  Vec(const RtValue *) part = {0};
  int64_t same = !by ? 1 : list ? 0 : int_value(c, in[1]);
  if (by && !list && same < 1) opdef_raise(c, ERR_ARGUMENT, "split is %" PRId64 "; a part has at least 1", same);
  for (int64_t i = 0; list ? i < by->shape[0] : from < extent; i++) {
    int64_t size = list                   ? value_load(by->dtype, (const char *)by->data + i * dtype_bytes(by->dtype)).i
                   : same < extent - from ? same
                                          : extent - from;
    if (size < 0 || size > extent - from)
      opdef_raise(c, ERR_SHAPE, "part %" PRId64 " of %" PRId64 " does not fit an axis of extent %" PRId64, i, size,
                  extent);
    vec_push(a, &part, slice_value(c, a, t, axis, from, size, !by && !at->keepdims));
    from += size;
  }
  if (from != extent) opdef_raise(c, ERR_SHAPE, "the parts add up to %" PRId64 ", the axis has %" PRId64, from, extent);
  return list_value(a, RV_SEQ, part.n, part.v);
}

const OpDef op_sequence_split = {
  .name = "sequence.split",
  .doc = "a tensor as a sequence of its parts along an axis",
  .args = "input, split",
  .min_args = 1,
  .max_args = 2,
  .attrs = &SequenceSplit_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = split_type,
  .eval = split_eval,
};

/* ---- optionals
 * ---------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define OPTIONAL_MAKE_ATTRS(A, S)                                                  \
  A(S, DTYPE, dtype, "\"float32\"", "of the tensors that one without a value may hold") \
  A(S, BOOL, sequence, "False", "and whether it holds sequences of them")
/* clang-format on */
DEFINE_ATTRS(OptionalMake, OPTIONAL_MAKE_ATTRS)

static const Type *optional_make_type(OpCall *c)
{
  const OptionalMakeAttrs *a = c->attrs;
  if (c->nargs) return type_simple(c->m, TY_OPT, c->arg[0]);
  const Type *item = unknown_tensor(c, a->dtype);
  return type_simple(c->m, TY_OPT, a->sequence ? seq_type(c, item) : item);
}

static const RtValue *optional_make_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  return list_value(a, RV_OPT, c->nargs, in);
}

const OpDef op_optional_make = {
  .name = "optional.make",
  .doc = "an optional with this value, or without one",
  .args = "input",
  .min_args = 0,
  .max_args = 1,
  .attrs = &OptionalMake_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = optional_make_type,
  .eval = optional_make_eval,
};

static const Type *optional_has_type(OpCall *c) { return type_tensor(c->m, DT_BOOL, 0, NULL); }

static const RtValue *optional_has_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  bool has = c->nargs && (in[0]->kind != RV_OPT || in[0]->n);
  return scalar_value(c, a, value_int(DT_BOOL, has));
}

const OpDef op_optional_has_element = {
  .name = "optional.has_element",
  .doc = "is there a value?  A tensor or a sequence is one",
  .args = "input",
  .min_args = 0,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = optional_has_type,
  .eval = optional_has_eval,
};

static const Type *optional_get_type(OpCall *c) { return c->arg[0]->kind == TY_OPT ? c->arg[0]->field[0] : c->arg[0]; }

static const RtValue *optional_get_eval(OpCall *c, Arena *a, const RtValue *const *in)
{
  (void)a;
  if (in[0]->kind != RV_OPT) return in[0];
  if (!in[0]->n) opdef_raise(c, ERR_ARGUMENT, "the optional has no value");
  return in[0]->field[0];
}

const OpDef op_optional_get_element = {
  .name = "optional.get_element",
  .doc = "the value of an optional; a tensor or a sequence itself",
  .args = "input",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .type = optional_get_type,
  .eval = optional_get_eval,
};
