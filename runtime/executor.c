/* executor.c: running a model: inputs checked and kept, a run, outputs.
 *
 * An executor belongs to one thread at a time; the model behind it is only read, so many
 * executors share its weights and code. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ---- making and freeing ---------------------------------------------------------------- */

static bool make_tables(LatheRtExecutor *x)
{
  const LatheRtModel *m = x->model;
  size_t args = (size_t)m->max_args + 1;
  x->input = rt_chunk_alloc(&x->chunks, (size_t)m->ninput + 1, sizeof *x->input);
  x->output = rt_chunk_alloc(&x->chunks, (size_t)m->noutput + 1, sizeof *x->output);
  x->place = rt_chunk_alloc(&x->chunks, (size_t)m->noutput + 1, sizeof *x->place);
  x->direct = rt_chunk_alloc(&x->chunks, (size_t)m->noutput + 1, sizeof *x->direct);
  x->symbol = rt_chunk_alloc(&x->chunks, (size_t)m->nsymbol + 1, sizeof *x->symbol);
  x->symbol_from = rt_chunk_alloc(&x->chunks, (size_t)m->nsymbol + 1, sizeof *x->symbol_from);
  x->slot = rt_chunk_alloc(&x->chunks, args, sizeof *x->slot);
  x->tensor = rt_chunk_alloc(&x->chunks, args, sizeof *x->tensor);
  x->dim = rt_chunk_alloc(&x->chunks, (size_t)m->max_dims + 1, sizeof *x->dim);
  return x->input && x->output && x->place && x->direct && x->symbol && x->symbol_from && x->slot && x->tensor &&
         x->dim;
}

LatheRtCode lathe_rt_executor_new(LatheRtModel *m, LatheRtExecutor **out, LatheRtError *err)
{
  if (!m || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "executor_new: model and out must not be null");
  *out = NULL;
  LatheRtExecutor *x = calloc(1, sizeof *x);
  if (!x) return rt_fail(err, LATHE_RT_MEMORY, "executor: out of memory");
  x->model = lathe_rt_model_retain(m);
  LatheRtCode code = LATHE_RT_OK;
  if (!make_tables(x)) code = rt_fail(err, LATHE_RT_MEMORY, "executor: out of memory");
  if (code == LATHE_RT_OK && m->is_static) code = rt_static_prepare(x, err);
  if (code != LATHE_RT_OK) {
    lathe_rt_executor_free(x);
    return code;
  }
  x->inputs_changed = true;
  *out = x;
  return LATHE_RT_OK;
}

void lathe_rt_executor_free(LatheRtExecutor *x)
{
  if (!x) return;
  LatheRtModel *m = x->model;
  const LatheRtAllocator *a = lathe_rt_cpu_allocator();
  for (int32_t i = 0; x->input && i < m->ninput; i++) rt_value_clear(&x->heap, &x->input[i]);
  for (int32_t i = 0; x->output && i < m->noutput; i++) rt_value_clear(&x->heap, &x->output[i]);
  rt_vm_drop(x);
  rt_strings_sweep(x, true);
  free(x->strings.item);
  free(x->strings.bucket);
  free(x->strings.scratch);
  rt_heap_drop(&x->heap);
  if (x->storage) a->free(a->user, x->storage);
  if (x->workspace) a->free(a->user, x->workspace);
  free(x->item);
  rt_chunk_drop(&x->chunks);
  free(x);
  lathe_rt_model_free(m);
}

LatheRtCode lathe_rt_executor_set_threads(LatheRtExecutor *x, int32_t n, LatheRtError *err)
{
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "executor_set_threads: the executor is null");
  if (n < 0 || n > RT_MAX_THREADS)
    return rt_fail(err, LATHE_RT_ARGUMENT, "executor_set_threads: %d threads, wants 0 to %d", n, RT_MAX_THREADS);
  if (n > lathe_rt_num_threads()) RT_TRY(lathe_rt_set_num_threads(n, err));
  x->threads = n;
  return LATHE_RT_OK;
}

void lathe_rt_executor_memory(const LatheRtExecutor *x, uint64_t *storage, uint64_t *workspace)
{
  if (storage) *storage = x->model->is_static ? x->model->storage_bytes : x->heap.peak;
  if (workspace) *workspace = x->workspace_bytes;
}

void lathe_rt_executor_watch(LatheRtExecutor *x, LatheRtNodeFn fn, void *user)
{
  x->watch = fn;
  x->watch_user = user;
}

static bool overlap(const Value *v, const void *data, size_t bytes)
{
  uintptr_t a = (uintptr_t)v->tensor.data;
  uintptr_t b = (uintptr_t)data;
  size_t n = v->kind == VALUE_TENSOR ? rt_value_bytes(v) : 0;
  return n && bytes && a < b + bytes && b < a + n;
}

/* ---- inputs -------------------------------------------------------------------------------- */

static LatheRtCode check_input(LatheRtExecutor *x, int32_t i, PortKind kind, const char *what, LatheRtError *err)
{
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "%s: the executor is null", what);
  const LatheRtModel *m = x->model;
  if (i < 0 || i >= m->ninput)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: input %d, the model has %d", what, i, m->ninput);
  bool is_tensor = m->input_kind[i] == PORT_TENSOR;
  if (is_tensor != (kind == PORT_TENSOR))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: input '%.100s' is a %.150s; set it with %s", what, m->input[i].name,
                   m->input[i].type, is_tensor ? "set_input" : "set_input_items");
  return LATHE_RT_OK;
}

/* dtype, rank and the dimensions that the model fixes; -1 for items whose rank is free. */
static LatheRtCode check_tensor(const LatheRtModel *m, int32_t i, const LatheRtTensor *t, bool is_item,
                                LatheRtError *err)
{
  const LatheRtPort *p = &m->input[i];
  if (!t) return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s': the tensor is null", p->name);
  LatheRtError why;
  LatheRtCode code = rt_tensor_check(t, &why);
  if (code != LATHE_RT_OK) return rt_fail(err, code, "input '%.100s': %.300s", p->name, why.text);
  if (!rt_same_dtype(t->dtype, p->dtype)) {
    char a[40], b[40];
    rt_dtype_name(t->dtype, a, sizeof a);
    rt_dtype_name(p->dtype, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' is %s, wants %s", p->name, a, b);
  }
  if (t->ndim > LATHE_RT_MAX_RANK)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "input '%.100s' has rank %d, at most %d are known", p->name, t->ndim,
                   LATHE_RT_MAX_RANK);
  if (is_item) return LATHE_RT_OK;
  bool fits = t->ndim == p->ndim;
  for (int32_t d = 0; fits && d < t->ndim; d++) fits = m->input_dim[i][d] < 0 || m->input_dim[i][d] == t->shape[d];
  if (fits) return LATHE_RT_OK;
  char a[110];
  rt_shape_text(t->ndim, t->shape, a, sizeof a);
  return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' has shape %s, wants %.200s", p->name, a, p->type);
}

/* What kernels may call, from now on. */
static void begin_calls(LatheRtExecutor *x)
{
  int32_t workers = rt_pool_workers();
  if (x->threads && x->threads < workers) workers = x->threads;
  x->calls = rt_calls(workers, &x->state);
}

/* A compact copy in memory of the executor's; where the old one fits and nobody else holds
 * it, it is used again.  Workers copy a large one: each is awake then, and near its part. */
static LatheRtCode copy_in(LatheRtExecutor *x, Value *v, LatheRtDType dtype, const LatheRtTensor *t, LatheRtError *err)
{
  bool again = v->kind == VALUE_TENSOR && v->storage && v->storage->refs == 1 && v->tensor.ndim == t->ndim &&
               (t->ndim == 0 || memcmp(v->dim, t->shape, (size_t)t->ndim * sizeof *v->dim) == 0);
  if (!again) RT_TRY(rt_value_tensor(&x->heap, v, dtype, t->ndim, t->shape, err));
  LatheRtTensor from = *t;
  from.dtype = dtype; /* one spelling of bool */
  if (t->device.type != LATHE_RT_CPU || !t->data || !rt_tensor_compact(t) || rt_pool_check(NULL) != LATHE_RT_OK)
    return lathe_rt_tensor_copy(&from, &v->tensor, err);
  begin_calls(x);
  rt_pool_copy(&x->calls, v->tensor.data, (const char *)t->data + t->byte_offset, rt_value_bytes(v));
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_set_input(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  RT_TRY(check_input(x, i, PORT_TENSOR, "set_input", err));
  RT_TRY(check_tensor(x->model, i, t, false, err));
  x->inputs_changed = true;
  LatheRtCode code = copy_in(x, &x->input[i], x->model->input[i].dtype, t, err);
  if (code == LATHE_RT_OK) code = rt_strings_check(x, &x->input[i], err);
  if (code != LATHE_RT_OK) {
    rt_value_clear(&x->heap, &x->input[i]);
    return code;
  }
  if (x->model->is_static) rt_static_input(x, i);
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_set_input_strings(LatheRtExecutor *x, int32_t i, int32_t ndim, const int64_t *shape,
                                       const char *const *text, const size_t *bytes, LatheRtError *err)
{
  LatheRtTensor t = {
    .device = {LATHE_RT_CPU, 0}, .ndim = ndim, .dtype = {LATHE_RT_STRING, 64, 1}, .shape = (int64_t *)shape};
  RT_TRY(check_input(x, i, PORT_TENSOR, "set_input_strings", err));
  RT_TRY(check_tensor(x->model, i, &t, false, err));
  Value made = {0};
  RT_TRY(rt_value_tensor(&x->heap, &made, t.dtype, ndim, shape, err));
  LatheRtCode code = LATHE_RT_OK;
  for (size_t k = 0, n = rt_value_bytes(&made) / 8; code == LATHE_RT_OK && k < n; k++) {
    if (!text || !text[k])
      code = rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s': text %zu is null", x->model->input[i].name, k);
    else
      code = lathe_rt_string_put(x, text[k], bytes ? bytes[k] : strlen(text[k]), (uint64_t *)made.tensor.data + k, err);
  }
  if (code == LATHE_RT_OK) code = lathe_rt_set_input(x, i, &made.tensor, err);
  rt_value_clear(&x->heap, &made);
  return code;
}

LatheRtCode lathe_rt_set_input_view(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  RT_TRY(check_input(x, i, PORT_TENSOR, "set_input_view", err));
  const LatheRtPort *p = &x->model->input[i];
  RT_TRY(check_tensor(x->model, i, t, false, err));
  const char *data = (const char *)t->data + (t->data ? t->byte_offset : 0);
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(t, &bytes, err));
  if (t->device.type != LATHE_RT_CPU || !rt_tensor_compact(t) || (uintptr_t)data % rt_dtype_bytes(p->dtype) ||
      (bytes && !data))
    return rt_fail(
        err, LATHE_RT_ARGUMENT,
        "input '%.100s' cannot be borrowed: it must be compact, aligned and in the CPU's memory; set_input copies it",
        p->name);
  for (int32_t k = 0; k < x->model->noutput; k++)
    if (overlap(&x->place[k], data, bytes))
      return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' lies in the memory that output '%.100s' is written to",
                     p->name, x->model->output[k].name);
  rt_value_clear(&x->heap, &x->input[i]);
  rt_value_set(&x->input[i], p->dtype, t->ndim, t->shape, (void *)data);
  x->inputs_changed = true;
  if (x->model->is_static) rt_static_input(x, i);
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_set_input_items(LatheRtExecutor *x, int32_t i, int32_t n, const LatheRtTensor *const *item,
                                     LatheRtError *err)
{
  RT_TRY(check_input(x, i, PORT_SEQUENCE, "set_input_items", err));
  uint8_t kind = x->model->input_kind[i];
  if (n < (kind == PORT_SEQUENCE ? 0 : -1) || (n > 0 && !item) || (kind == PORT_OPTIONAL && n > 1))
    return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' of type %.200s is given %d items", x->model->input[i].name,
                   x->model->input[i].type, n);
  bool wrapped = kind == PORT_OPTIONAL_SEQUENCE && n >= 0; /* a list of one list */
  if (n < 0) n = 0;
  Value made = {0};
  Value whole = {0};
  RT_TRY(rt_value_list(&x->heap, &made, n, err));
  LatheRtCode code = LATHE_RT_OK;
  for (int32_t k = 0; code == LATHE_RT_OK && k < n; k++) {
    code = check_tensor(x->model, i, item[k], true, err);
    if (code == LATHE_RT_OK) code = copy_in(x, &made.list->item[k], x->model->input[i].dtype, item[k], err);
    if (code == LATHE_RT_OK) code = rt_strings_check(x, &made.list->item[k], err);
  }
  if (code == LATHE_RT_OK && wrapped) code = rt_value_list(&x->heap, &whole, 1, err);
  if (code == LATHE_RT_OK && wrapped) rt_value_copy(&x->heap, &whole.list->item[0], &made);
  if (code == LATHE_RT_OK) rt_value_copy(&x->heap, &x->input[i], wrapped ? &whole : &made);
  rt_value_clear(&x->heap, &whole);
  rt_value_clear(&x->heap, &made);
  x->inputs_changed = true;
  return code;
}

LatheRtCode lathe_rt_get_input(LatheRtExecutor *x, int32_t i, const LatheRtTensor **out, LatheRtError *err)
{
  if (!out) return rt_fail(err, LATHE_RT_ARGUMENT, "get_input: out must not be null");
  RT_TRY(check_input(x, i, PORT_TENSOR, "get_input", err));
  if (x->input[i].kind == VALUE_NONE)
    return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' has not been set", x->model->input[i].name);
  *out = &x->input[i].tensor;
  return LATHE_RT_OK;
}

/* Every input is there, and sizes that inputs share are the same in all of them. */
static LatheRtCode check_inputs(LatheRtExecutor *x, LatheRtError *err)
{
  const LatheRtModel *m = x->model;
  for (int32_t s = 0; s < m->nsymbol; s++) x->symbol_from[s] = -1;
  for (int32_t i = 0; i < m->ninput; i++) {
    if (x->input[i].kind == VALUE_NONE)
      return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' (%.200s) has not been set", m->input[i].name,
                     m->input[i].type);
    for (int32_t d = 0; m->input_kind[i] == PORT_TENSOR && d < m->input[i].ndim; d++) {
      int64_t dim = m->input_dim[i][d];
      int64_t have = x->input[i].dim[d];
      if (dim >= 0 || dim == DIM_UNKNOWN) continue;
      int32_t s = (int32_t)(-1 - dim);
      int32_t from = x->symbol_from[s];
      if (from >= 0 && x->symbol[s] != have)
        return rt_fail(err, LATHE_RT_ARGUMENT,
                       "input '%.100s' has %.60s = %" PRId64 ", input '%.100s' has %.60s = %" PRId64, m->input[i].name,
                       m->symbol[s], have, m->input[from].name, m->symbol[s], x->symbol[s]);
      x->symbol[s] = have;
      if (from < 0) x->symbol_from[s] = i;
    }
  }
  return LATHE_RT_OK;
}

/* ---- outputs in the caller's memory ------------------------------------------------------------ */

/* Kernels take what they read and what they write for different memory. */
static LatheRtCode check_apart(const LatheRtExecutor *x, int32_t i, const void *data, size_t bytes, LatheRtError *err)
{
  const LatheRtModel *m = x->model;
  const char *other = NULL;
  for (int32_t k = 0; k < m->ninput; k++)
    if (overlap(&x->input[k], data, bytes)) other = m->input[k].name;
  for (int32_t k = 0; k < m->noutput; k++)
    if (k != i && overlap(&x->place[k], data, bytes)) other = m->output[k].name;
  if (!other) return LATHE_RT_OK;
  return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' would overwrite '%.100s', which lies in the same memory",
                 m->output[i].name, other);
}

LatheRtCode lathe_rt_set_output_view(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "set_output_view: the executor is null");
  const LatheRtModel *m = x->model;
  if (i < 0 || i >= m->noutput)
    return rt_fail(err, LATHE_RT_ARGUMENT, "set_output_view: output %d, the model has %d", i, m->noutput);
  const LatheRtPort *p = &m->output[i];
  if (m->output_kind[i] != PORT_TENSOR)
    return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' is a %.200s; get_output_items gives it", p->name, p->type);
  if (x->direct[i]) rt_static_output(x, i, NULL);
  x->direct[i] = false;
  rt_value_clear(&x->heap, &x->place[i]);
  if (!t) return LATHE_RT_OK;
  LatheRtError why;
  LatheRtCode code = rt_tensor_check(t, &why);
  if (code != LATHE_RT_OK) return rt_fail(err, code, "output '%.100s': %.300s", p->name, why.text);
  bool fits = rt_same_dtype(t->dtype, p->dtype) && t->ndim == p->ndim;
  for (int32_t d = 0; fits && d < t->ndim; d++) fits = p->shape[d] < 0 || t->shape[d] == p->shape[d];
  if (!fits) {
    char a[40], b[110];
    rt_dtype_name(t->dtype, a, sizeof a);
    rt_shape_text(t->ndim, t->shape, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' is a %.200s, not a %s of shape %s", p->name, p->type, a, b);
  }
  char *data = (char *)t->data + (t->data ? t->byte_offset : 0);
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(t, &bytes, err));
  if (t->device.type != LATHE_RT_CPU || !rt_tensor_compact(t) || (uintptr_t)data % rt_dtype_bytes(p->dtype) ||
      (bytes && !data))
    return rt_fail(err, LATHE_RT_ARGUMENT,
                   "output '%.100s' cannot be written there: the memory must be compact, aligned and the CPU's; "
                   "get_output gives it",
                   p->name);
  RT_TRY(check_apart(x, i, data, bytes, err));
  rt_value_set(&x->place[i], p->dtype, t->ndim, t->shape, data);
  x->direct[i] = m->is_static && bytes && rt_static_output(x, i, data);
  return LATHE_RT_OK;
}

/* After a run: what the kernels did not write where it belongs. */
static LatheRtCode copy_outputs(LatheRtExecutor *x, LatheRtError *err)
{
  for (int32_t i = 0; i < x->model->noutput; i++) {
    const LatheRtTensor *from = &x->output[i].tensor;
    const LatheRtTensor *to = &x->place[i].tensor;
    if (x->place[i].kind != VALUE_TENSOR || x->direct[i]) continue;
    if (from->ndim != to->ndim || (to->ndim && memcmp(from->shape, to->shape, (size_t)to->ndim * sizeof *to->shape))) {
      char a[110], b[110];
      rt_shape_text(from->ndim, from->shape, a, sizeof a);
      rt_shape_text(to->ndim, to->shape, b, sizeof b);
      return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' has shape %s, the memory given for it %s",
                     x->model->output[i].name, a, b);
    }
    size_t bytes = rt_value_bytes(&x->output[i]);
    rt_pool_copy(&x->calls, to->data, from->data, bytes);
  }
  return LATHE_RT_OK;
}

/* ---- running ---------------------------------------------------------------------------------- */

LatheRtCode lathe_rt_run(LatheRtExecutor *x, LatheRtError *err)
{
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "run: the executor is null");
  RT_TRY(rt_pool_check(err));
  if (x->inputs_changed) RT_TRY(check_inputs(x, err));
  x->inputs_changed = false;
  x->has_run = false;
  rt_strings_sweep(x, false);
  begin_calls(x);
  RT_TRY(x->model->is_static ? rt_static_run(x, err) : rt_vm_run(x, err));
  RT_TRY(copy_outputs(x, err));
  x->has_run = true;
  return LATHE_RT_OK;
}

/* ---- outputs ------------------------------------------------------------------------------------ */

static LatheRtCode find_output(LatheRtExecutor *x, int32_t i, LatheRtError *err)
{
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "get_output: the executor is null");
  if (i < 0 || i >= x->model->noutput)
    return rt_fail(err, LATHE_RT_ARGUMENT, "get_output: output %d, the model has %d", i, x->model->noutput);
  if (!x->has_run) return rt_fail(err, LATHE_RT_ARGUMENT, "get_output: the model has not been run yet");
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_output(LatheRtExecutor *x, int32_t i, const LatheRtTensor **out, LatheRtError *err)
{
  if (!out) return rt_fail(err, LATHE_RT_ARGUMENT, "get_output: out must not be null");
  RT_TRY(find_output(x, i, err));
  if (x->output[i].kind != VALUE_TENSOR)
    return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' is a %.200s; get_output_items gives it",
                   x->model->output[i].name, x->model->output[i].type);
  *out = &x->output[i].tensor;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_output_items(LatheRtExecutor *x, int32_t i, int32_t *n, const LatheRtTensor *const **out,
                                      LatheRtError *err)
{
  if (!n || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "get_output_items: n and out must not be null");
  RT_TRY(find_output(x, i, err));
  const Value *v = &x->output[i];
  *n = -1;
  *out = NULL;
  if (x->model->output_kind[i] >= PORT_OPTIONAL && v->kind == VALUE_LIST) {
    if (v->list->n == 0) return LATHE_RT_OK;
    v = &v->list->item[0];
  }
  int32_t count = v->kind == VALUE_LIST ? v->list->n : 1;
  if (count > x->item_room || !x->item) {
    const LatheRtTensor **more = realloc(x->item, ((size_t)count + 1) * sizeof *more);
    if (!more) return rt_fail(err, LATHE_RT_MEMORY, "get_output_items: out of memory");
    x->item = more;
    x->item_room = count;
  }
  for (int32_t k = 0; k < count; k++) {
    const Value *item = v->kind == VALUE_LIST ? &v->list->item[k] : v;
    if (item->kind != VALUE_TENSOR)
      return rt_fail(err, LATHE_RT_UNSUPPORTED, "output '%.100s': item %d is not a tensor", x->model->output[i].name,
                     k);
    x->item[k] = &item->tensor;
  }
  *n = count;
  *out = x->item;
  return LATHE_RT_OK;
}
