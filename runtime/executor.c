/* executor.c: running a model: inputs checked and kept, a run, outputs.
 *
 * An executor belongs to one thread at a time; the model behind it is only read, so many
 * executors share its weights and code. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ---- making and freeing ---------------------------------------------------------------- */

void *rt_executor_room(LatheRtExecutor *x, int32_t n, size_t size)
{
  void *p = rt_chunk_alloc(&x->chunks, (size_t)n + 1, size);
  if (!p) x->no_room = true;
  return p;
}

static void make_entry(LatheRtExecutor *x, EntryState *e, const ModelEntry *entry)
{
  int32_t out = entry->nout;
  e->entry = entry;
  e->inputs_changed = true;
  e->input = rt_executor_room(x, entry->nin, sizeof *e->input);
  e->output = rt_executor_room(x, out, sizeof *e->output);
  e->object = rt_executor_room(x, out, sizeof *e->object);
  e->place = rt_executor_room(x, out, sizeof *e->place);
  e->direct = rt_executor_room(x, out, sizeof *e->direct);
  e->storage = rt_executor_room(x, x->model->ndevice, sizeof *e->storage);
  e->kept = rt_executor_room(x, entry->nstate, sizeof *e->kept);
  e->made = !x->no_room;
}

static bool make_tables(LatheRtExecutor *x)
{
  const LatheRtModel *m = x->model;
  x->heap = rt_executor_room(x, m->ndevice, sizeof *x->heap);
  x->symbol = rt_executor_room(x, m->nsymbol, sizeof *x->symbol);
  x->symbol_from = rt_executor_room(x, m->nsymbol, sizeof *x->symbol_from);
  x->slot = rt_executor_room(x, m->max_args, sizeof *x->slot);
  x->arg = rt_executor_room(x, m->max_args, sizeof *x->arg);
  x->tensor = rt_executor_room(x, m->max_args, sizeof *x->tensor);
  x->dim = rt_executor_room(x, m->max_dims, sizeof *x->dim);
  x->entry = rt_executor_room(x, m->nentry, sizeof *x->entry);
  for (int32_t i = 0; x->entry && i < m->nentry; i++) make_entry(x, &x->entry[i], &m->entry[i]);
  return !x->no_room;
}

LatheRtCode rt_executor_begin(LatheRtModel *m, LatheRtExecutor **out, LatheRtError *err)
{
  LatheRtExecutor *x = calloc(1, sizeof *x);
  *out = NULL;
  if (!x) return rt_no_memory(err, "executor");
  x->model = lathe_rt_model_retain(m);
  LatheRtCode code = make_tables(x) ? LATHE_RT_OK : rt_no_memory(err, "executor");
  if (code == LATHE_RT_OK) code = rt_heaps_begin(x, err);
  if (code != LATHE_RT_OK) {
    lathe_rt_executor_free(x);
    return code;
  }
  *out = x;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_executor_new(LatheRtModel *m, LatheRtExecutor **out, LatheRtError *err)
{
  if (!m || !out) return rt_null(err, "executor_new");
  if (m->look_only) return rt_fail(err, LATHE_RT_ARGUMENT, "executor_new: the model was loaded to be looked at only");
  RT_TRY(rt_executor_begin(m, out, err));
  LatheRtCode code = lathe_rt_executor_select(*out, 0, err);
  if (code == LATHE_RT_OK) return code;
  lathe_rt_executor_free(*out);
  *out = NULL;
  return code;
}

static void drop_objects(EntryState *e)
{
  for (int32_t i = 0; i < e->entry->nout; i++) {
    lathe_rt_object_free(e->object[i]);
    e->object[i] = NULL;
  }
}

/* What a static program was given before it could not be made ready. */
static void drop_static(LatheRtExecutor *x, EntryState *e)
{
  for (int32_t d = 0; d < x->model->ndevice; d++) {
    const ModelDevice *device = &x->model->device[d];
    if (e->storage[d]) device->api->free(device->api->user, device->device.id, e->storage[d]);
    e->storage[d] = NULL;
  }
}

static void drop_entry(LatheRtExecutor *x, EntryState *e)
{
  if (!e->made) return;
  drop_objects(e);
  for (int32_t i = 0; i < e->entry->nin; i++) rt_value_clear(&e->input[i]);
  for (int32_t i = 0; i < e->entry->nout; i++) rt_value_clear(&e->output[i]);
  for (int32_t i = 0; i < e->entry->nstate; i++) rt_value_clear(&e->kept[i]);
  drop_static(x, e);
}

void lathe_rt_executor_free(LatheRtExecutor *x)
{
  if (!x) return;
  LatheRtModel *m = x->model;
  for (int32_t i = 0; x->entry && i < m->nentry; i++) drop_entry(x, &x->entry[i]);
  while (x->objects) rt_object_disown(x->objects);
  rt_vm_drop(x);
  rt_strings_sweep(x, true);
  free(x->strings.item);
  free(x->strings.bucket);
  free(x->strings.scratch);
  for (int32_t i = 0; x->heap && i < m->ndevice; i++) rt_heap_drop(&x->heap[i]);
  free(x->item);
  rt_chunk_drop(&x->chunks);
  free(x);
  lathe_rt_model_free(m);
}

LatheRtCode lathe_rt_executor_select(LatheRtExecutor *x, int32_t entry, LatheRtError *err)
{
  if (!x) return rt_null(err, "executor_select");
  if (entry < 0 || entry >= x->model->nentry)
    return rt_fail(err, LATHE_RT_ARGUMENT, "executor_select: entry %d, the model has %d", entry, x->model->nentry);
  EntryState *before = x->at;
  x->at = &x->entry[entry];
  if (x->at->ready) return LATHE_RT_OK;
  LatheRtCode code = x->at->entry->is_static ? rt_static_prepare(x, err) : LATHE_RT_OK;
  if (code == LATHE_RT_OK) {
    x->at->ready = true;
    return code;
  }
  drop_static(x, x->at);
  x->at = before;
  return code;
}

LatheRtCode lathe_rt_executor_set_threads(LatheRtExecutor *x, int32_t n, LatheRtError *err)
{
  if (!x) return rt_null(err, "executor_set_threads");
  if (n < 0 || n > RT_MAX_THREADS)
    return rt_fail(err, LATHE_RT_ARGUMENT, "executor_set_threads: %d threads, wants 0 to %d", n, RT_MAX_THREADS);
  if (n > lathe_rt_num_threads()) RT_TRY(lathe_rt_set_num_threads(n, err));
  x->threads = n;
  return LATHE_RT_OK;
}

void lathe_rt_executor_memory(const LatheRtExecutor *x, uint64_t *storage, uint64_t *workspace)
{
  uint64_t planned = 0;
  uint64_t peak = 0;
  uint64_t space = 0;
  for (int32_t i = 0; i < x->model->nentry; i++)
    if (x->entry[i].ready && x->entry[i].entry->is_static) planned += x->entry[i].entry->about.storage_bytes;
  for (int32_t i = 0; i < x->model->ndevice; i++) {
    peak += x->heap[i].peak;
    space += x->heap[i].workspace_bytes;
  }
  if (storage) *storage = x->at->entry->is_static ? planned : planned + peak;
  if (workspace) *workspace = space;
}

void lathe_rt_executor_watch(LatheRtExecutor *x, LatheRtNodeFn fn, void *user)
{
  x->watch = fn;
  x->watch_user = user;
}

static bool same_memory(LatheRtDevice a, LatheRtDevice b)
{
  return rt_same_device(a, b) || (a.type == LATHE_RT_CPU && b.type == LATHE_RT_CPU);
}

static bool overlap(const Value *v, LatheRtDevice device, const void *data, size_t bytes)
{
  uintptr_t a = (uintptr_t)v->tensor.data;
  uintptr_t b = (uintptr_t)data;
  size_t n = v->kind == VALUE_TENSOR ? rt_value_bytes(v) : 0;
  return n && bytes && same_memory(v->tensor.device, device) && a < b + bytes && b < a + n;
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* Port i of the entry, for the function `what`, if it is of a kind that this function is about: "", "_items" (all
 * of sequences and optionals) or "_object"; NULL: any. */
static LatheRtCode find_port(LatheRtExecutor *x, bool output, int32_t i, const char *kind, const char *what,
                             const LatheRtPort **out, LatheRtError *err)
{
  static const char kinds[][8] = {"", "_items", "_items", "_items", "_object"}; /* PortKind */
  const char *side = output ? "output" : "input";
  if (!x) return rt_fail(err, LATHE_RT_ARGUMENT, "%s: the executor is null", what);
  const LatheRtEntry *e = &x->at->entry->about;
  int32_t n = output ? e->noutputs : e->ninputs;
  if (i < 0 || i >= n) return rt_fail(err, LATHE_RT_ARGUMENT, "%s: %s %d, the model has %d", what, side, i, n);
  const LatheRtPort *p = output ? &e->outputs[i] : &e->inputs[i];
  if (kind && strcmp(kind, kinds[p->kind]) != 0)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: %s '%.100s' is a %.150s; it goes by %s_%s%s", what, side, p->name,
                   p->type, output ? "get" : "set", side, kinds[p->kind]);
  *out = p;
  return LATHE_RT_OK;
}

/* dtype, rank and the dimensions that the model fixes; -1 for items whose rank is free. */
static LatheRtCode check_tensor(const LatheRtPort *p, const LatheRtTensor *t, bool is_item, LatheRtError *err)
{
  if (!t) return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s': the tensor is null", p->name);
  RT_TRY(rt_within(err, rt_tensor_check(t, err), "input '%.100s': ", p->name));
  RT_TRY(rt_within(err, rt_check_dtype(t->dtype, p->dtype, err), "input '%.100s' ", p->name));
  if (is_item) return LATHE_RT_OK;
  bool fits = t->ndim == p->ndim;
  for (int32_t d = 0; fits && d < t->ndim; d++) fits = p->shape[d] < 0 || p->shape[d] == t->shape[d];
  if (fits) return LATHE_RT_OK;
  char a[110];
  rt_shape_text(t->ndim, t->shape, a, sizeof a);
  return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' has shape %s, wants %.200s", p->name, a, p->type);
}

void rt_begin_calls(LatheRtExecutor *x)
{
  int32_t workers = rt_pool_workers();
  if (x->threads && x->threads < workers) workers = x->threads;
  x->calls = rt_calls(workers, &x->state);
}

/* A compact copy in memory of the executor's; where the old one fits and nobody else holds
 * it, it is used again.  Workers copy a large one: each is awake then, and near its part. */
static LatheRtCode copy_in(LatheRtExecutor *x, Heap *h, Value *v, LatheRtDType dtype, const LatheRtTensor *t,
                           LatheRtError *err)
{
  bool again = v->kind == VALUE_TENSOR && v->storage && v->storage->refs == 1 && v->tensor.ndim == t->ndim &&
               (t->ndim == 0 || memcmp(v->dim, t->shape, (size_t)t->ndim * sizeof *v->dim) == 0);
  if (!again) RT_TRY(rt_value_tensor(h, v, dtype, t->ndim, t->shape, err));
  LatheRtTensor from = *t;
  from.dtype = dtype; /* one spelling of bool */
  if (t->device.type != LATHE_RT_CPU || h->device->device.type != LATHE_RT_CPU || !t->data || !rt_tensor_compact(t) ||
      rt_pool_check(NULL) != LATHE_RT_OK)
    return lathe_rt_tensor_copy(&from, &v->tensor, err);
  rt_begin_calls(x);
  rt_pool_copy(&x->calls, v->tensor.data, (const char *)t->data + t->byte_offset, rt_value_bytes(v));
  return LATHE_RT_OK;
}

/* Input i has been set, or could not be. */
static LatheRtCode input_set(LatheRtExecutor *x, int32_t i, LatheRtCode code)
{
  x->at->inputs_changed = true;
  if (code != LATHE_RT_OK) rt_value_clear(&x->at->input[i]);
  else if (x->at->entry->is_static) rt_static_input(x, i);
  return code;
}

/* A tensor, or an item of a sequence: a copy of the executor's. */
static LatheRtCode take_tensor(LatheRtExecutor *x, int32_t i, const LatheRtPort *p, const LatheRtTensor *t, Value *to,
                               LatheRtError *err)
{
  RT_TRY(check_tensor(p, t, p->kind != PORT_TENSOR, err));
  RT_TRY(copy_in(x, &x->heap[x->at->entry->input[i].device], to, p->dtype, t, err));
  return rt_strings_check(x, to, err);
}

LatheRtCode lathe_rt_set_input(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_port(x, false, i, "", "set_input", &p, err));
  RT_TRY(check_tensor(p, t, false, err)); /* what was set before stays where this does not fit */
  return input_set(x, i, take_tensor(x, i, p, t, &x->at->input[i], err));
}

/* Input i from texts: each by its own pointer, or all of them in one piece of memory, each ending in a zero. */
static LatheRtCode set_texts(LatheRtExecutor *x, int32_t i, const char *what, int32_t ndim, const int64_t *shape,
                             const char *const *text, const size_t *bytes, const char *row, LatheRtError *err)
{
  LatheRtTensor t = {
    .device = {LATHE_RT_CPU, 0}, .ndim = ndim, .dtype = {LATHE_RT_STRING, 64, 1}, .shape = (int64_t *)shape};
  const LatheRtPort *p;
  RT_TRY(find_port(x, false, i, "", what, &p, err));
  RT_TRY(check_tensor(p, &t, false, err));
  Value made = {0};
  RT_TRY(rt_value_tensor(x->heap, &made, t.dtype, ndim, shape, err));
  LatheRtCode code = LATHE_RT_OK;
  for (size_t k = 0, n = rt_value_bytes(&made) / 8; code == LATHE_RT_OK && k < n; k++) {
    const char *one = text ? text[k] : row;
    if (!one) {
      code = rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s': text %zu is null", p->name, k);
      break;
    }
    size_t length = bytes ? bytes[k] : strlen(one);
    row = one + length + 1;
    code = lathe_rt_string_put(x, one, length, (uint64_t *)made.tensor.data + k, err);
  }
  if (code == LATHE_RT_OK) code = lathe_rt_set_input(x, i, &made.tensor, err);
  rt_value_clear(&made);
  return code;
}

LatheRtCode lathe_rt_set_input_strings(LatheRtExecutor *x, int32_t i, int32_t ndim, const int64_t *shape,
                                       const char *const *text, const size_t *bytes, LatheRtError *err)
{
  return set_texts(x, i, "set_input_strings", ndim, shape, text, bytes, NULL, err);
}

LatheRtCode lathe_rt_set_input_texts(LatheRtExecutor *x, int32_t i, int32_t ndim, const int64_t *shape,
                                     const char *texts, LatheRtError *err)
{
  return set_texts(x, i, "set_input_texts", ndim, shape, NULL, NULL, texts, err);
}

LatheRtCode lathe_rt_set_input_map(LatheRtExecutor *x, int32_t i, int32_t n, const char *keys,
                                   const LatheRtTensor *values, LatheRtError *err)
{
  const LatheRtPort *p;
  const int64_t shape[] = {n};
  if (n < 0) return rt_fail(err, LATHE_RT_ARGUMENT, "set_input_map: a map of %d keys", n);
  RT_TRY(find_port(x, false, i, "", "set_input_map", &p, err));
  RT_TRY(find_port(x, false, i + 1, "", "set_input_map", &p, err));
  RT_TRY(check_tensor(p, values, false, err));
  RT_TRY(set_texts(x, i, "set_input_map", 1, shape, NULL, NULL, keys, err));
  return lathe_rt_set_input(x, i + 1, values, err);
}

/* Memory of the caller's that a port may be: compact, aligned, reachable. */
static LatheRtCode check_memory(const LatheRtPort *p, const LatheRtTensor *t, bool reachable, const char *side,
                                const char *else_by, char **data, size_t *bytes, LatheRtError *err)
{
  *data = (char *)t->data + (t->data ? t->byte_offset : 0);
  RT_TRY(lathe_rt_tensor_bytes(t, bytes, err));
  if (reachable && rt_tensor_compact(t) && (uintptr_t)*data % rt_dtype_bytes(p->dtype) == 0 && (!*bytes || *data))
    return LATHE_RT_OK;
  char device[40];
  rt_device_name(p->device, device, sizeof device);
  return rt_fail(err, LATHE_RT_ARGUMENT,
                 "%s '%.100s' cannot be borrowed: it must be compact, aligned and in the memory of %s; %s copies it",
                 side, p->name, device, else_by);
}

LatheRtCode lathe_rt_set_input_view(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  const LatheRtPort *p;
  char *data;
  size_t bytes;
  RT_TRY(find_port(x, false, i, "", "set_input_view", &p, err));
  RT_TRY(check_tensor(p, t, false, err));
  RT_TRY(check_memory(p, t, same_memory(t->device, p->device), "input", "set_input", &data, &bytes, err));
  for (int32_t k = 0; k < x->at->entry->about.noutputs; k++)
    if (overlap(&x->at->place[k], p->device, data, bytes))
      return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' lies in the memory that output '%.100s' is written to",
                     p->name, x->at->entry->about.outputs[k].name);
  rt_value_clear(&x->at->input[i]);
  rt_value_set(&x->at->input[i], p->device, p->dtype, t->ndim, t->shape, data);
  return input_set(x, i, LATHE_RT_OK);
}

LatheRtCode lathe_rt_set_input_items(LatheRtExecutor *x, int32_t i, int32_t n, const LatheRtTensor *const *item,
                                     LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_port(x, false, i, "_items", "set_input_items", &p, err));
  if (n < (p->kind == PORT_SEQUENCE ? 0 : -1) || (n > 0 && !item) || (p->kind == PORT_OPTIONAL && n > 1))
    return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' of type %.200s is given %d items", p->name, p->type, n);
  bool wrapped = p->kind == PORT_OPTIONAL_SEQUENCE && n >= 0; /* a list of one list */
  Value made[2] = {{0}, {0}};
  LatheRtCode code = rt_value_list(made, n < 0 ? 0 : n, err);
  for (int32_t k = 0; code == LATHE_RT_OK && k < n; k++)
    code = take_tensor(x, i, p, item[k], &made[0].list->item[k], err);
  if (code == LATHE_RT_OK && wrapped) code = rt_value_cell(&made[1], VALUE_LIST, 0, 1, (const int32_t[]){0}, made, err);
  if (code == LATHE_RT_OK) rt_value_copy(&x->at->input[i], &made[wrapped]);
  rt_value_clear(&made[1]);
  rt_value_clear(&made[0]);
  x->at->inputs_changed = true;
  return code;
}

LatheRtCode lathe_rt_set_input_object(LatheRtExecutor *x, int32_t i, LatheRtObject *o, LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_port(x, false, i, "_object", "set_input_object", &p, err));
  if (!o) return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s': the object is null", p->name);
  RT_TRY(rt_within(err, rt_object_value(x, o, &x->at->input[i], err), "input '%.100s': ", p->name));
  x->at->inputs_changed = true;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_input(LatheRtExecutor *x, int32_t i, const LatheRtTensor **out, LatheRtError *err)
{
  const LatheRtPort *p;
  if (!out) return rt_null(err, "get_input");
  RT_TRY(find_port(x, false, i, "", "get_input", &p, err));
  if (x->at->input[i].kind == VALUE_NONE)
    return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' (%.200s) has not been set", p->name, p->type);
  *out = &x->at->input[i].tensor;
  return LATHE_RT_OK;
}

/* Every input is there, and sizes that inputs share are the same in all of them. */
static LatheRtCode check_inputs(LatheRtExecutor *x, LatheRtError *err)
{
  const LatheRtModel *m = x->model;
  const ModelEntry *e = x->at->entry;
  const LatheRtPort *port = e->about.inputs;
  for (int32_t s = 0; s < m->nsymbol; s++) x->symbol_from[s] = -1;
  for (int32_t i = 0; i < e->about.ninputs; i++) {
    if (x->at->input[i].kind == VALUE_NONE)
      return rt_fail(err, LATHE_RT_ARGUMENT, "input '%.100s' (%.200s) has not been set", port[i].name, port[i].type);
    for (int32_t d = 0; e->about.inputs[i].kind == PORT_TENSOR && d < port[i].ndim; d++) {
      int64_t dim = e->input[i].dim[d];
      int64_t have = x->at->input[i].dim[d];
      if (dim >= 0 || dim == DIM_UNKNOWN) continue;
      int32_t s = (int32_t)(-1 - dim);
      int32_t from = x->symbol_from[s];
      if (from >= 0 && x->symbol[s] != have)
        return rt_fail(err, LATHE_RT_ARGUMENT,
                       "input '%.100s' has %.60s = %" PRId64 ", input '%.100s' has %.60s = %" PRId64, port[i].name,
                       m->symbol[s], have, port[from].name, m->symbol[s], x->symbol[s]);
      x->symbol[s] = have;
      if (from < 0) x->symbol_from[s] = i;
    }
  }
  return LATHE_RT_OK;
}

/* ---- outputs in the caller's memory ------------------------------------------------------------ */

/* Kernels take what they read and what they write for different memory. */
static LatheRtCode check_apart(const LatheRtExecutor *x, int32_t i, LatheRtDevice device, const void *data,
                               size_t bytes, LatheRtError *err)
{
  const ModelEntry *e = x->at->entry;
  const char *other = NULL;
  for (int32_t k = 0; k < e->about.ninputs; k++)
    if (overlap(&x->at->input[k], device, data, bytes)) other = e->about.inputs[k].name;
  for (int32_t k = 0; k < e->about.noutputs; k++)
    if (k != i && overlap(&x->at->place[k], device, data, bytes)) other = e->about.outputs[k].name;
  if (!other) return LATHE_RT_OK;
  return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' would overwrite '%.100s', which lies in the same memory",
                 e->about.outputs[i].name, other);
}

LatheRtCode lathe_rt_set_output_view(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_port(x, true, i, "", "set_output_view", &p, err));
  if (x->at->direct[i]) rt_static_output(x, i, NULL);
  x->at->direct[i] = false;
  rt_value_clear(&x->at->place[i]);
  if (!t) return LATHE_RT_OK;
  RT_TRY(rt_within(err, rt_tensor_check(t, err), "output '%.100s': ", p->name));
  bool fits = rt_same_dtype(t->dtype, p->dtype) && t->ndim == p->ndim;
  for (int32_t d = 0; fits && d < t->ndim; d++) fits = p->shape[d] < 0 || t->shape[d] == p->shape[d];
  if (!fits) {
    char a[40], b[110];
    rt_dtype_name(t->dtype, a, sizeof a);
    rt_shape_text(t->ndim, t->shape, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' is a %.200s, not a %s of shape %s", p->name, p->type, a, b);
  }
  char *data;
  size_t bytes;
  bool reachable = t->device.type == LATHE_RT_CPU || rt_same_device(t->device, p->device);
  RT_TRY(check_memory(p, t, reachable, "output", "get_output", &data, &bytes, err));
  RT_TRY(check_apart(x, i, t->device, data, bytes, err));
  rt_value_set(&x->at->place[i], t->device, p->dtype, t->ndim, t->shape, data);
  bool here = same_memory(t->device, p->device);
  x->at->direct[i] = x->at->entry->is_static && here && bytes && rt_static_output(x, i, data);
  return LATHE_RT_OK;
}

/* After a run: what the kernels did not write where it belongs. */
static LatheRtCode copy_outputs(LatheRtExecutor *x, LatheRtError *err)
{
  for (int32_t i = 0; i < x->at->entry->about.noutputs; i++) {
    const LatheRtTensor *from = &x->at->output[i].tensor;
    const LatheRtTensor *to = &x->at->place[i].tensor;
    if (x->at->place[i].kind != VALUE_TENSOR || x->at->direct[i]) continue;
    if (from->ndim != to->ndim || (to->ndim && memcmp(from->shape, to->shape, (size_t)to->ndim * sizeof *to->shape))) {
      char a[110], b[110];
      rt_shape_text(from->ndim, from->shape, a, sizeof a);
      rt_shape_text(to->ndim, to->shape, b, sizeof b);
      return rt_fail(err, LATHE_RT_ARGUMENT, "output '%.100s' has shape %s, the memory given for it %s",
                     x->at->entry->about.outputs[i].name, a, b);
    }
    RT_TRY(rt_copy(x, to, from, rt_value_bytes(&x->at->output[i]), err));
  }
  return LATHE_RT_OK;
}

/* ---- states ------------------------------------------------------------------------------------ */

/* All zeros, in memory of the executor's. */
static LatheRtCode begin_state(LatheRtExecutor *x, int32_t i, Value *v, LatheRtError *err)
{
  const LatheRtPort *p = &x->at->entry->about.inputs[i];
  RT_TRY(rt_value_tensor(&x->heap[x->at->entry->input[i].device], v, p->dtype, p->ndim, p->shape, err));
  size_t bytes = rt_value_bytes(v);
  void *zeros = calloc(bytes + 1, 1);
  LatheRtTensor from = v->tensor;
  from.device = (LatheRtDevice){LATHE_RT_CPU, 0};
  from.data = zeros;
  LatheRtCode code = zeros ? lathe_rt_tensor_copy(&from, &v->tensor, err) : rt_no_memory(err, "a state");
  free(zeros);
  return code;
}

static LatheRtCode begin_states(LatheRtExecutor *x, LatheRtError *err)
{
  const ModelEntry *e = x->at->entry;
  for (int32_t i = e->about.ninputs; i < e->nin; i++)
    if (x->at->input[i].kind == VALUE_NONE) RT_TRY(input_set(x, i, begin_state(x, i, &x->at->input[i], err)));
  return LATHE_RT_OK;
}

/* After a run: what came out of the states goes in next time.  A static program's outputs are overwritten by the next
 * run, and may lie in the memory of inputs: all are copied out before the first is written. */
static LatheRtCode keep_states(LatheRtExecutor *x, LatheRtError *err)
{
  const ModelEntry *e = x->at->entry;
  Value *in = x->at->input + e->about.ninputs;
  Value *out = x->at->output + e->about.noutputs;
  for (int32_t step = 0; step < 2; step++)
    for (int32_t i = 0; i < e->nstate; i++) {
      Value *kept = &x->at->kept[i];
      if (!e->is_static) rt_value_copy(&in[i], &out[i]);
      else if (step) RT_TRY(rt_copy(x, &in[i].tensor, &kept->tensor, rt_value_bytes(kept), err));
      else {
        if (kept->kind == VALUE_NONE) RT_TRY(begin_state(x, e->about.ninputs + i, kept, err));
        RT_TRY(rt_copy(x, &kept->tensor, &out[i].tensor, rt_value_bytes(kept), err));
      }
    }
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_executor_reset(LatheRtExecutor *x, LatheRtError *err)
{
  if (!x) return rt_null(err, "executor_reset");
  for (int32_t k = 0; k < x->model->nentry; k++) {
    EntryState *e = &x->entry[k];
    for (int32_t i = e->entry->about.ninputs; i < e->entry->nin; i++) rt_value_clear(&e->input[i]);
  }
  return LATHE_RT_OK;
}

/* ---- running ---------------------------------------------------------------------------------- */

LatheRtCode lathe_rt_run(LatheRtExecutor *x, LatheRtError *err)
{
  if (!x) return rt_null(err, "run");
  RT_TRY(rt_pool_check(err));
  RT_TRY(begin_states(x, err));
  if (x->at->inputs_changed) RT_TRY(check_inputs(x, err));
  x->at->inputs_changed = false;
  x->at->has_run = false;
  rt_strings_sweep(x, false);
  rt_begin_calls(x);
  drop_objects(x->at);
  LatheRtCode code = x->at->entry->is_static ? rt_static_run(x, err) : rt_vm_run(x, err);
  if (code == LATHE_RT_OK) code = copy_outputs(x, err);
  if (code == LATHE_RT_OK) code = keep_states(x, err);
  LatheRtCode waited = rt_wait_all(x, code == LATHE_RT_OK ? err : NULL);
  if (code == LATHE_RT_OK) code = waited;
  x->at->has_run = code == LATHE_RT_OK;
  return code;
}

/* ---- outputs ------------------------------------------------------------------------------------ */

static LatheRtCode find_output(LatheRtExecutor *x, int32_t i, const char *kind, const char *what, const void *out,
                               const LatheRtPort **p, LatheRtError *err)
{
  if (!out) return rt_null(err, what);
  RT_TRY(find_port(x, true, i, kind, what, p, err));
  return x->at->has_run ? LATHE_RT_OK : rt_fail(err, LATHE_RT_ARGUMENT, "%s: the model has not been run yet", what);
}

LatheRtCode lathe_rt_get_output(LatheRtExecutor *x, int32_t i, const LatheRtTensor **out, LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_output(x, i, NULL, "get_output", out, &p, err));
  /* an optional that is there may be the tensor itself */
  if (x->at->output[i].kind != VALUE_TENSOR || p->kind == PORT_OBJECT)
    return find_port(x, true, i, "its own", "get_output", &p, err);
  *out = &x->at->output[i].tensor;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_output_items(LatheRtExecutor *x, int32_t i, int32_t *n, const LatheRtTensor *const **out,
                                      LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_output(x, i, NULL, "get_output_items", n ? out : NULL, &p, err));
  if (p->kind == PORT_OBJECT) return find_port(x, true, i, "_items", "get_output_items", &p, err);
  const Value *v = &x->at->output[i];
  *n = -1;
  *out = NULL;
  if (p->kind >= PORT_OPTIONAL && v->kind == VALUE_LIST) {
    if (v->list->n == 0) return LATHE_RT_OK;
    v = &v->list->item[0];
  }
  int32_t count = v->kind == VALUE_LIST ? v->list->n : 1;
  if (count > x->item_room || !x->item) {
    const LatheRtTensor **more = realloc(x->item, ((size_t)count + 1) * sizeof *more);
    if (!more) return rt_no_memory(err, "get_output_items");
    x->item = more;
    x->item_room = count;
  }
  for (int32_t k = 0; k < count; k++) {
    const Value *item = v->kind == VALUE_LIST ? &v->list->item[k] : v;
    if (item->kind != VALUE_TENSOR)
      return rt_fail(err, LATHE_RT_UNSUPPORTED, "output '%.100s': item %d is not a tensor", p->name, k);
    x->item[k] = &item->tensor;
  }
  *n = count;
  *out = x->item;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_output_object(LatheRtExecutor *x, int32_t i, LatheRtObject **out, LatheRtError *err)
{
  const LatheRtPort *p;
  RT_TRY(find_output(x, i, "_object", "get_output_object", out, &p, err));
  if (!x->at->object[i]) RT_TRY(rt_object_of(x, &x->at->output[i], &x->at->object[i], err));
  *out = x->at->object[i];
  return LATHE_RT_OK;
}
