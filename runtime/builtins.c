/* builtins.c: what the executor does itself: sequences and optionals, and calls of packed functions.
 *
 * A sequence is a counted list of values that is never changed once others may see it:
 * each operation makes a new list whose items are shared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static LatheRtCode list_of(const Value *v, List **out, LatheRtError *err)
{
  if (v->kind != VALUE_LIST) return rt_fail(err, LATHE_RT_ARGUMENT, "a sequence or optional is wanted");
  *out = v->list;
  return LATHE_RT_OK;
}

/* Negative positions count from the end; last: the largest that is allowed. */
static LatheRtCode position_of(const Value *v, int32_t n, int32_t last, int32_t *out, LatheRtError *err)
{
  if (v->kind != VALUE_TENSOR) return rt_fail(err, LATHE_RT_ARGUMENT, "a position must be a tensor of one integer");
  int64_t at;
  RT_TRY(rt_tensor_int(&v->tensor, &at, err));
  int64_t from_start = at < 0 ? at + n : at;
  if (from_start < 0 || from_start > last)
    return rt_fail(err, LATHE_RT_ARGUMENT, "position %" PRId64 " in a sequence of %d items", at, n);
  *out = (int32_t)from_start;
  return LATHE_RT_OK;
}

/* list[0 .. at), item (NULL: none), list[at + skip ..) */
static LatheRtCode splice_list(const List *list, int32_t at, const Value *item, int32_t skip, Value *to,
                               LatheRtError *err)
{
  if (list->n == INT32_MAX) return rt_fail(err, LATHE_RT_ARGUMENT, "a sequence of more than %d items", INT32_MAX);
  Value made = {0};
  RT_TRY(rt_value_list(&made, list->n - skip + (item != NULL), err));
  for (int32_t i = 0, from = 0; i < made.list->n; i++) {
    if (i == at) from += skip;
    rt_value_copy(&made.list->item[i], item && i == at ? item : &list->item[from++]);
  }
  rt_value_copy(to, &made);
  rt_value_clear(&made);
  return LATHE_RT_OK;
}

static LatheRtCode scalar_result(Heap *h, Value *to, LatheRtDType dtype, int64_t value, LatheRtError *err)
{
  RT_TRY(rt_value_tensor(h, to, dtype, 0, NULL, err));
  if (dtype.bits == 64) memcpy(to->tensor.data, &value, 8);
  else *(uint8_t *)to->tensor.data = (uint8_t)value;
  return LATHE_RT_OK;
}

/* ---- joining and splitting ---------------------------------------------------------------- */

/* Shape of the joined tensors; every item must have the first's apart from the axis. */
static LatheRtCode joined_shape(const List *l, int64_t axis_attr, bool new_axis, int32_t *axis, int32_t *ndim,
                                int64_t *dim, LatheRtError *err)
{
  const Value *first = &l->item[0];
  if (l->n == 0 || first->kind != VALUE_TENSOR)
    return rt_fail(err, LATHE_RT_ARGUMENT, "an empty sequence or one of other than tensors cannot be joined");
  int32_t rank = first->tensor.ndim;
  int32_t out_rank = rank + new_axis;
  int64_t at = axis_attr < 0 ? axis_attr + out_rank : axis_attr;
  if (at < 0 || at >= out_rank || out_rank > LATHE_RT_MAX_RANK)
    return rt_fail(err, LATHE_RT_ARGUMENT, "axis %" PRId64 " of tensors of rank %d", axis_attr, rank);
  *axis = (int32_t)at;
  *ndim = out_rank;
  int64_t total = 0;
  for (int32_t i = 0; i < l->n; i++) {
    const Value *v = &l->item[i];
    bool same =
        v->kind == VALUE_TENSOR && v->tensor.ndim == rank && rt_same_dtype(v->tensor.dtype, first->tensor.dtype);
    for (int32_t d = 0; same && d < rank; d++) same = (!new_axis && d == *axis) || v->dim[d] == first->dim[d];
    if (!same) return rt_fail(err, LATHE_RT_ARGUMENT, "item %d of the sequence does not fit the first one's shape", i);
    if (__builtin_add_overflow(total, new_axis ? 1 : v->dim[*axis], &total))
      return rt_fail(err, LATHE_RT_ARGUMENT, "the joined tensor is more than memory can have");
  }
  for (int32_t d = 0; d < out_rank; d++) dim[d] = first->dim[new_axis && d > *axis ? d - 1 : d < rank ? d : rank - 1];
  dim[*axis] = total;
  return LATHE_RT_OK;
}

/* Copies a part of a tensor: `rows` rows of `from_row` and `to_row` bytes, n bytes of each. */
static void copy_rows(char *to, size_t to_row, const char *from, size_t from_row, size_t n, size_t rows)
{
  for (size_t r = 0; n && r < rows; r++) memcpy(to + r * to_row, from + r * from_row, n);
}

/* rows before the axis, bytes of one step along it */
static void strides_at(int32_t ndim, const int64_t *dim, int32_t axis, size_t elem, size_t *rows, size_t *step)
{
  *rows = 1;
  *step = elem;
  for (int32_t d = 0; d < axis; d++) *rows *= (size_t)dim[d];
  for (int32_t d = axis + 1; d < ndim; d++) *step *= (size_t)dim[d];
}

static LatheRtCode concat_list(Heap *h, const List *l, int64_t axis_attr, bool new_axis, Value *to, LatheRtError *err)
{
  int32_t axis = 0;
  int32_t ndim = 0;
  int64_t dim[LATHE_RT_MAX_RANK];
  RT_TRY(joined_shape(l, axis_attr, new_axis, &axis, &ndim, dim, err));
  Value made = {0};
  RT_TRY(rt_value_tensor(h, &made, l->item[0].tensor.dtype, ndim, dim, err));
  size_t rows, step;
  size_t row = 0;
  strides_at(ndim, dim, axis, rt_dtype_bytes(made.tensor.dtype), &rows, &step);
  row = step * (size_t)dim[axis];
  char *at = made.tensor.data;
  for (int32_t i = 0; i < l->n; i++) {
    size_t n = step * (new_axis ? 1 : (size_t)l->item[i].dim[axis]);
    copy_rows(at, row, l->item[i].tensor.data, n, n, rows);
    at += n;
  }
  rt_value_copy(to, &made);
  rt_value_clear(&made);
  return LATHE_RT_OK;
}

static int64_t element(const Value *sizes, size_t i)
{
  const char *p = sizes->tensor.data;
  int64_t wide;
  int32_t narrow;
  if (sizes->tensor.dtype.bits == 32) {
    memcpy(&narrow, p + 4 * i, 4);
    return narrow;
  }
  memcpy(&wide, p + 8 * i, 8);
  return wide;
}

/* How long part i is.  Without sizes every part is 1, with one number that many, the last the rest. */
static LatheRtCode part_count(const Value *sizes, int64_t total, int64_t *n, LatheRtError *err)
{
  *n = total;
  if (!sizes) return LATHE_RT_OK;
  bool ints = sizes->kind == VALUE_TENSOR && sizes->tensor.dtype.code == 0 && sizes->tensor.dtype.bits >= 32 &&
              sizes->tensor.ndim <= 1;
  if (!ints) return rt_fail(err, LATHE_RT_ARGUMENT, "the sizes of a split must be an integer or a list of them");
  if (sizes->tensor.ndim == 0) {
    int64_t size = element(sizes, 0);
    if (size <= 0) return rt_fail(err, LATHE_RT_ARGUMENT, "a split into parts of %" PRId64, size);
    *n = total / size + (total % size != 0);
    return LATHE_RT_OK;
  }
  *n = sizes->dim[0];
  int64_t sum = 0;
  for (int64_t i = 0; i < *n; i++) {
    int64_t size = element(sizes, (size_t)i);
    if (size < 0 || __builtin_add_overflow(sum, size, &sum)) sum = -1;
    if (sum < 0) break;
  }
  if (sum != total) return rt_fail(err, LATHE_RT_ARGUMENT, "the parts of a split do not add up to %" PRId64, total);
  return LATHE_RT_OK;
}

static int64_t part_size(const Value *sizes, int64_t total, int64_t i)
{
  if (!sizes) return 1;
  if (sizes->tensor.ndim == 1) return element(sizes, (size_t)i);
  int64_t size = element(sizes, 0);
  int64_t left = total - i * size;
  return left < size ? left : size;
}

static LatheRtCode split_tensor(Heap *h, const Value *v, const Value *sizes, int64_t axis_attr, bool keepdims,
                                Value *to, LatheRtError *err)
{
  if (v->kind != VALUE_TENSOR) return rt_fail(err, LATHE_RT_ARGUMENT, "a split of something that is no tensor");
  int32_t ndim = v->tensor.ndim;
  int64_t at = axis_attr < 0 ? axis_attr + ndim : axis_attr;
  int64_t n;
  if (at < 0 || at >= ndim)
    return rt_fail(err, LATHE_RT_ARGUMENT, "axis %" PRId64 " of a tensor of rank %d", axis_attr, ndim);
  int32_t axis = (int32_t)at;
  RT_TRY(part_count(sizes, v->dim[axis], &n, err));
  if (n > INT32_MAX) return rt_fail(err, LATHE_RT_ARGUMENT, "a split into %" PRId64 " parts", n);
  size_t rows, step;
  size_t done = 0;
  strides_at(ndim, v->dim, axis, rt_dtype_bytes(v->tensor.dtype), &rows, &step);
  Value made = {0};
  RT_TRY(rt_value_list(&made, (int32_t)n, err));
  bool squeeze = !sizes && !keepdims;
  LatheRtCode code = LATHE_RT_OK;
  for (int64_t i = 0; code == LATHE_RT_OK && i < n; i++) {
    int64_t dim[LATHE_RT_MAX_RANK];
    int64_t size = part_size(sizes, v->dim[axis], i);
    memcpy(dim, v->dim, (size_t)ndim * sizeof *dim);
    dim[axis] = size;
    if (squeeze) memmove(dim + axis, dim + axis + 1, (size_t)(ndim - axis - 1) * sizeof *dim);
    Value *part = &made.list->item[i];
    code = rt_value_tensor(h, part, v->tensor.dtype, ndim - squeeze, dim, err);
    if (code != LATHE_RT_OK) break;
    size_t bytes = step * (size_t)size;
    copy_rows(part->tensor.data, bytes, (const char *)v->tensor.data + done, step * (size_t)v->dim[axis], bytes, rows);
    done += bytes;
  }
  if (code == LATHE_RT_OK) rt_value_copy(to, &made);
  rt_value_clear(&made);
  return code;
}

/* ---- the table ---------------------------------------------------------------------------------- */

LatheRtCode rt_host_call(LatheRtExecutor *x, const Ins *ins, Value *reg, LatheRtError *err)
{
  static const LatheRtDType int64 = {0, 64, 1};
  static const LatheRtDType boolean = {1, 1, 1};
  Heap *h = x->heap;
  Value *to = &reg[ins->ret[0]];
  Value *a = ins->narg ? &reg[ins->arg[0]] : NULL;
  Value *b = ins->narg > 1 ? &reg[ins->arg[1]] : NULL;
  List *l = NULL;
  int32_t at = 0;
  for (int32_t i = 0; i < ins->narg; i++)
    if (ins->index != HO_LIST && !rt_value_on_host(&reg[ins->arg[i]]))
      return rt_fail(err, LATHE_RT_ARGUMENT, "argument %d is on another device than the host", i);
  if (ins->index >= HO_TEXT_CONCAT) return rt_string_call(x, ins, reg, err);
  bool any = ins->index == HO_LIST || ins->index == HO_SPLIT ||
             ((ins->index == HO_HAS || ins->index == HO_GET) && !ins->attr[0]);
  if (!any) RT_TRY(list_of(a, &l, err));
  switch ((HostOp)ins->index) {
  case HO_LIST: return rt_value_cell(to, VALUE_LIST, 0, ins->narg, ins->arg, reg, err);
  case HO_INSERT:
    RT_TRY(position_of(&reg[ins->arg[2]], l->n, l->n, &at, err));
    return splice_list(l, at, b, 0, to, err);
  case HO_APPEND: return splice_list(l, l->n, b, 0, to, err);
  case HO_ERASE: RT_TRY(position_of(b, l->n, l->n - 1, &at, err)); return splice_list(l, at, NULL, 1, to, err);
  case HO_ERASE_LAST:
    if (l->n == 0) return rt_fail(err, LATHE_RT_ARGUMENT, "an empty sequence has no last item");
    return splice_list(l, l->n - 1, NULL, 1, to, err);
  case HO_AT:
    RT_TRY(position_of(b, l->n, l->n - 1, &at, err));
    rt_value_item(to, a, at);
    return LATHE_RT_OK;
  case HO_LENGTH: return scalar_result(h, to, int64, l->n, err);
  case HO_CONCAT: return concat_list(h, l, ins->attr[0], ins->attr[1] != 0, to, err);
  case HO_SPLIT: return split_tensor(h, a, b, ins->attr[0], ins->attr[1] != 0, to, err);
  case HO_HAS: return scalar_result(h, to, boolean, l ? l->n != 0 : a != NULL, err);
  case HO_GET:
    if (!l) {
      rt_value_copy(to, a);
      return LATHE_RT_OK;
    }
    if (l->n == 0) return rt_fail(err, LATHE_RT_ARGUMENT, "the optional is absent");
    rt_value_item(to, a, 0);
    return LATHE_RT_OK;
  case HO_TEXT_CONCAT:
  case HO_LETTERS:
  case HO_TEXT_SPLIT:
  case HO_MATCH:
  case HO_PRINT:
  case HO_PARSE:
  case HO_COUNT: break;
  }
  return rt_broken(err, "host operation %d", ins->index);
}

/* ---- packed functions ---------------------------------------------------------------------------- */

static LatheRtCode packed_arg(const Ins *ins, int32_t i, Value *reg, const Scalar *scalar, bool is_float,
                              LatheRtPackedArg *out, LatheRtError *err)
{
  const KernelArgRef *a = &ins->karg[i];
  if (a->kind == PARG_TEXT) {
    *out = (LatheRtPackedArg){.tag = LATHE_RT_ARG_STR, .u.s = ins->string[i]};
  } else if (a->kind == PARG_SCALAR) {
    out->tag = is_float ? LATHE_RT_ARG_FLOAT : LATHE_RT_ARG_INT;
    out->u.i = scalar[a->index].i; /* the union's bits: a double stays one */
  } else if (reg[a->index].kind == VALUE_TENSOR) {
    *out = (LatheRtPackedArg){.tag = LATHE_RT_ARG_TENSOR, .u.t = &reg[a->index].tensor};
  } else if (reg[a->index].kind == VALUE_OBJECT) {
    *out = (LatheRtPackedArg){.tag = LATHE_RT_ARG_OBJECT, .u.o = reg[a->index].object};
  } else {
    return rt_fail(err, LATHE_RT_ARGUMENT, "argument %d of a packed function is no tensor, object, number or text", i);
  }
  return LATHE_RT_OK;
}

static LatheRtCode packed_result(LatheRtExecutor *x, const LatheRtPackedArg *r, Value *to, LatheRtError *err)
{
  static const LatheRtDType int64 = {0, 64, 1};
  static const LatheRtDType float64 = {2, 64, 1};
  Heap *h = x->heap;
  switch (r->tag) {
  case LATHE_RT_ARG_INT:
  case LATHE_RT_ARG_FLOAT: return scalar_result(h, to, r->tag == LATHE_RT_ARG_INT ? int64 : float64, r->u.i, err);
  case LATHE_RT_ARG_OBJECT:
    if (!r->u.o) break;
    rt_value_clear(to);
    to->kind = VALUE_OBJECT;
    to->object = r->u.o;
    return LATHE_RT_OK;
  case LATHE_RT_ARG_TENSOR:
    if (!r->u.t) break;
    RT_TRY(rt_tensor_check(r->u.t, err));
    RT_TRY(rt_value_tensor(h, to, r->u.t->dtype, r->u.t->ndim, r->u.t->shape, err));
    return lathe_rt_tensor_copy(r->u.t, &to->tensor, err);
  case LATHE_RT_ARG_STR:
  case LATHE_RT_ARG_HANDLE:
  case LATHE_RT_ARG_NONE: break;
  }
  return rt_fail(err, LATHE_RT_ARGUMENT, "it gave no object, tensor or number as its result");
}

LatheRtCode rt_packed_ins(LatheRtExecutor *x, const Ins *ins, Value *reg, const Scalar *scalar, LatheRtError *err)
{
  enum { FEW = 16 };
  const char *name = x->model->packed[ins->index];
  const ModelFunc *f = x->frame[x->nframe - 1].func;
  LatheRtPackedArg few[FEW];
  LatheRtPackedArg *arg = few;
  LatheRtPackedArg result = {.tag = LATHE_RT_ARG_NONE};
  if (ins->narg > FEW && !(arg = calloc((size_t)ins->narg, sizeof *arg))) return rt_no_memory(err, name);
  LatheRtCode code = rt_wait_all(x, err); /* what it is handed has been computed */
  for (int32_t i = 0; code == LATHE_RT_OK && i < ins->narg; i++) {
    bool is_float = ins->karg[i].kind == PARG_SCALAR && f->scalar_kind[ins->karg[i].index] == SCALAR_FLOAT;
    code = packed_arg(ins, i, reg, scalar, is_float, &arg[i], err);
  }
  if (code == LATHE_RT_OK) code = rt_packed_result(name, ins->narg, arg, ins->nret ? &result : NULL, err);
  if (arg != few) free(arg);
  if (code == LATHE_RT_OK && ins->nret) {
    code = rt_within(err, packed_result(x, &result, &reg[ins->ret[0]], err), "function '%.100s': ", name);
  }
  return code;
}
