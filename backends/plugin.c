/* plugin.c: a region's graph as a module of the runtime.
 *
 * In: the JSON of lathe.relay.backend.contrib.to_json, checked whole.  Out: a LatheRtModule with one function.  Tensors
 * between kernels lie in a workspace; those that are not needed at the same time may share memory. */
#include "plugin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, MOST_IDLE = 8, GRAPH_VERSION = 1 };
static const size_t most_bytes = (size_t)1 << 46;

LatheRtCode plugin_fail(LatheRtError *err, LatheRtCode code, const char *format, ...)
{
  va_list ap;
  va_start(ap, format);
  if (err) vsnprintf(err->text, sizeof err->text, format, ap);
  va_end(ap);
  return code;
}

/* ---- attributes ---------------------------------------------------------------------------- */

bool kernel_has(const Kernel *k, const char *op)
{
  const Json *ops = json_get(k->json, "ops");
  for (int i = 0; ops && i < ops->count; i++)
    if (json_at(ops, i)->kind == JSON_TEXT && !strcmp(json_at(ops, i)->text, op)) return true;
  return false;
}

static const Json *attribute(const Kernel *k, const char *op, const char *attr)
{
  return json_get(json_get(json_get(k->json, "attrs"), op), attr);
}

double kernel_number(const Kernel *k, const char *op, const char *attr, int i, double or)
{
  const Json *a = attribute(k, op, attr);
  if (a && a->kind == JSON_LIST) a = json_at(a, i);
  return a && (a->kind == JSON_NUMBER || a->kind == JSON_BOOL) ? a->number : or ;
}

const char *kernel_text(const Kernel *k, const char *op, const char *attr, const char * or)
{
  const Json *a = attribute(k, op, attr);
  return a && a->kind == JSON_TEXT ? a->text : or ;
}

int64_t tensor_elements(const Tensor *t)
{
  int64_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
  return n;
}

bool kernel_conv(const Graph *g, const Kernel *k, Conv *out)
{
  const char *op = "nn.conv2d";
  const char *layout = kernel_text(k, op, "data_layout", "NCHW");
  const char *result = kernel_text(k, op, "out_layout", "");
  if (k->nin < 2 || strcmp(layout, "NCHW") || strcmp(kernel_text(k, op, "kernel_layout", "OIHW"), "OIHW") ||
      (*result && strcmp(result, "NCHW")))
    return false;
  const Tensor *x = &g->tensor[k->in[0]];
  const Tensor *w = &g->tensor[k->in[1]];
  const Tensor *y = &g->tensor[k->out[0]];
  if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4) return false;
  *out = (Conv){.n = x->shape[0],
                .c = x->shape[1],
                .h = x->shape[2],
                .w = x->shape[3],
                .oc = y->shape[1],
                .oh = y->shape[2],
                .ow = y->shape[3],
                .kh = w->shape[2],
                .kw = w->shape[3],
                .groups = (int64_t)kernel_number(k, op, "groups", 0, 1)};
  const Json *padding = attribute(k, op, "padding");
  int pads = padding && padding->kind == JSON_LIST ? padding->count : 1;
  for (int i = 0; i < 4; i++)
    out->pad[i] = (int64_t)kernel_number(k, op, "padding", pads == 4 ? i : pads == 2 ? i % 2 : 0, 0);
  for (int i = 0; i < 2; i++) {
    out->stride[i] = (int64_t)kernel_number(k, op, "strides", i, 1);
    out->dilation[i] = (int64_t)kernel_number(k, op, "dilation", i, 1);
  }
  return out->groups > 0 && out->stride[0] > 0 && out->stride[1] > 0 && out->c % out->groups == 0 &&
         out->oc % out->groups == 0 && w->shape[0] == out->oc && w->shape[1] == out->c / out->groups &&
         (out->h + out->pad[0] + out->pad[2] - out->dilation[0] * (out->kh - 1) - 1) / out->stride[0] + 1 == out->oh &&
         (out->w + out->pad[1] + out->pad[3] - out->dilation[1] * (out->kw - 1) - 1) / out->stride[1] + 1 == out->ow;
}

/* ---- reading ------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  LatheRtDType dtype;
} dtypes[] = {
  {"float32", {2, 32, 1}}, {"float64", {2, 64, 1}}, {"int8", {0, 8, 1}},    {"uint8", {1, 8, 1}},
  {"int32", {0, 32, 1}},   {"int64", {0, 64, 1}},   {"bool", {6, 8, 1}},    {"float16", {2, 16, 1}},
  {"int16", {0, 16, 1}},   {"uint16", {1, 16, 1}},  {"uint32", {1, 32, 1}}, {"bfloat16", {4, 16, 1}},
};

static LatheRtCode read_tensor(const Json *j, Tensor *t, LatheRtError *err)
{
  const Json *name = json_get(j, "name");
  const Json *shape = json_get(j, "shape");
  const Json *dtype = json_get(j, "dtype");
  if (!name || name->kind != JSON_TEXT || !shape || shape->kind != JSON_LIST || shape->count > LATHE_RT_MAX_RANK ||
      !dtype || dtype->kind != JSON_TEXT)
    return plugin_fail(err, LATHE_RT_ARGUMENT, "its graph has a broken tensor");
  *t = (Tensor){.name = name->text, .ndim = shape->count, .arg = -1};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtypes[i].name, dtype->text)) t->dtype = dtypes[i].dtype;
  if (!t->dtype.bits) return plugin_fail(err, LATHE_RT_UNSUPPORTED, "tensor '%.60s' is of %.40s", t->name, dtype->text);
  t->bytes = t->dtype.bits / 8;
  for (int d = 0; d < t->ndim; d++) {
    double size = json_at(shape, d)->number;
    if (json_at(shape, d)->kind != JSON_NUMBER || !(size >= 0 && size < 1e15) || size * (double)t->bytes > 1e13)
      return plugin_fail(err, LATHE_RT_UNSUPPORTED, "tensor '%.60s' has a size that is not known or too large",
                         t->name);
    t->shape[d] = (int64_t)size;
    t->bytes *= (size_t)size;
  }
  return LATHE_RT_OK;
}

/* Numbers of tensors. */
static LatheRtCode read_numbers(const Graph *g, const Json *j, const char *what, int *n, int **out, LatheRtError *err)
{
  *n = 0;
  *out = calloc((size_t)(j ? j->count : 0) + 1, sizeof **out);
  if (!*out) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  if (!j || j->kind != JSON_LIST) return plugin_fail(err, LATHE_RT_ARGUMENT, "its graph has no list '%s'", what);
  for (const Json *i = j->first; i; i = i->next) {
    if (i->kind != JSON_NUMBER || !(i->number >= 0 && i->number < g->ntensor))
      return plugin_fail(err, LATHE_RT_ARGUMENT, "'%s' of its graph speaks of a tensor that there is not", what);
    (*out)[(*n)++] = (int)i->number;
  }
  return LATHE_RT_OK;
}

static LatheRtCode add_args(Graph *g, const char *list, int flags, LatheRtError *err)
{
  int n;
  int *number;
  LatheRtCode code = read_numbers(g, json_get(g->json, list), list, &n, &number, err);
  for (int i = 0; code == LATHE_RT_OK && i < n; i++) {
    Tensor *t = &g->tensor[number[i]];
    if (t->arg >= 0 || g->narg == g->ntensor)
      code = plugin_fail(err, LATHE_RT_UNSUPPORTED, "tensor '%.60s' is an argument twice", t->name);
    t->arg = g->narg;
    t->constant = !strcmp(list, "constants");
    g->arg[g->narg++] = (LatheRtArgInfo){t->name, t->dtype, t->ndim, flags};
  }
  free(number);
  return code;
}

static LatheRtCode read_graph(Graph *g, LatheRtError *err)
{
  const Json *version = json_get(g->json, "version");
  const Json *tensors = json_get(g->json, "tensors");
  const Json *kernels = json_get(g->json, "kernels");
  if (!version || version->kind != JSON_NUMBER || version->number != GRAPH_VERSION)
    return plugin_fail(err, LATHE_RT_UNSUPPORTED, "its graph is of version %g, this plugin reads %d; compile it again",
                       version ? version->number : 0, GRAPH_VERSION);
  if (!tensors || tensors->kind != JSON_LIST || !kernels || kernels->kind != JSON_LIST)
    return plugin_fail(err, LATHE_RT_ARGUMENT, "its graph has no tensors or no kernels");
  g->tensor = calloc((size_t)tensors->count + 1, sizeof *g->tensor);
  g->kernel = calloc((size_t)kernels->count + 1, sizeof *g->kernel);
  g->arg = calloc((size_t)tensors->count + 1, sizeof *g->arg);
  if (!g->tensor || !g->kernel || !g->arg) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  LatheRtCode code = LATHE_RT_OK;
  for (const Json *j = tensors->first; j && code == LATHE_RT_OK; j = j->next)
    code = read_tensor(j, &g->tensor[g->ntensor++], err);
  if (code == LATHE_RT_OK) code = add_args(g, "inputs", 0, err);
  if (code == LATHE_RT_OK) code = add_args(g, "constants", 0, err);
  if (code == LATHE_RT_OK) code = add_args(g, "outputs", 1, err);
  for (const Json *j = kernels->first; j && code == LATHE_RT_OK; j = j->next) {
    Kernel *k = &g->kernel[g->nkernel++];
    const Json *name = json_get(j, "name");
    *k = (Kernel){.json = j, .name = name && name->kind == JSON_TEXT ? name->text : "?"};
    code = read_numbers(g, json_get(j, "inputs"), "inputs", &k->nin, &k->in, err);
    if (code == LATHE_RT_OK) code = read_numbers(g, json_get(j, "outputs"), "outputs", &k->nout, &k->out, err);
    if (code == LATHE_RT_OK && k->nout < 1)
      code = plugin_fail(err, LATHE_RT_ARGUMENT, "'%.60s' gives nothing", k->name);
  }
  return code;
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool reads(const Kernel *k, int tensor)
{
  for (int i = 0; i < k->nin; i++)
    if (k->in[i] == tensor) return true;
  return false;
}

/* First fit: a tensor lies where nothing lies that is needed while it is. */
static LatheRtCode place_tensors(Graph *g, LatheRtError *err)
{
  int *first = calloc((size_t)g->ntensor + 1, sizeof *first);
  int *last = calloc((size_t)g->ntensor + 1, sizeof *last);
  if (!first || !last) {
    free(first);
    free(last);
    return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  }
  for (int t = 0; t < g->ntensor; t++) first[t] = -1;
  for (int k = 0; k < g->nkernel; k++) {
    for (int i = 0; i < g->kernel[k].nout; i++) first[g->kernel[k].out[i]] = k;
    for (int t = 0; t < g->ntensor; t++)
      if (reads(&g->kernel[k], t)) last[t] = k;
  }
  for (int t = 0; t < g->ntensor; t++) {
    Tensor *x = &g->tensor[t];
    if (x->arg >= 0 || first[t] < 0) continue;
    for (bool moved = true; moved;) {
      moved = false;
      for (int u = 0; u < t; u++) {
        const Tensor *y = &g->tensor[u];
        bool together = y->arg < 0 && first[u] >= 0 && first[u] <= last[t] && first[t] <= last[u];
        if (!together || x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes) continue;
        x->offset = (y->offset + y->bytes + ALIGN - 1) / ALIGN * ALIGN;
        moved = true;
      }
    }
    if (x->offset + x->bytes > g->workspace) g->workspace = x->offset + x->bytes;
  }
  free(first);
  free(last);
  g->own = g->workspace = (g->workspace + ALIGN - 1) / ALIGN * ALIGN;
  return LATHE_RT_OK;
}

/* ---- the module -------------------------------------------------------------------------------- */

typedef struct Region {
  Graph graph;
  const Backend *backend;
  LatheRtFuncInfo info;
  char *name;
  pthread_mutex_t lock; /* of the workspaces that no call has */
  void *idle[MOST_IDLE];
  int nidle;
} Region;

static void free_region(void *self)
{
  Region *r = self;
  if (r->backend->drop) r->backend->drop(&r->graph);
  for (int i = 0; i < r->graph.nkernel; i++) {
    free(r->graph.kernel[i].in);
    free(r->graph.kernel[i].out);
  }
  for (int i = 0; i < r->nidle; i++) free(r->idle[i]);
  free(r->graph.tensor);
  free(r->graph.kernel);
  free(r->graph.arg);
  json_free(r->graph.json);
  pthread_mutex_destroy(&r->lock);
  free(r->name);
  free(r);
}

static LatheRtCode find(void *self, const char *name, const LatheRtFuncInfo **out, LatheRtError *err)
{
  Region *r = self;
  if (strcmp(name, r->name))
    return plugin_fail(err, LATHE_RT_NOT_FOUND, "the module has '%.100s' and no '%.100s'", r->name, name);
  *out = &r->info;
  return LATHE_RT_OK;
}

static void *take_workspace(Region *r)
{
  pthread_mutex_lock(&r->lock);
  void *w = r->nidle ? r->idle[--r->nidle] : NULL;
  pthread_mutex_unlock(&r->lock);
  size_t bytes = (r->graph.workspace + ALIGN) / ALIGN * ALIGN + sizeof(void *) * ((size_t)r->graph.ntensor + ALIGN);
  return w ? w : aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
}

static void give_workspace(Region *r, void *w)
{
  pthread_mutex_lock(&r->lock);
  bool keep = r->nidle < MOST_IDLE;
  if (keep) r->idle[r->nidle++] = w;
  pthread_mutex_unlock(&r->lock);
  if (!keep) free(w);
}

static LatheRtCode call(void *self, const LatheRtFuncInfo *info, int32_t n, const LatheRtArg *arg,
                        const LatheRtCalls *calls, LatheRtError *err)
{
  Region *r = self;
  const Graph *g = &r->graph;
  (void)info;
  for (int i = 0; i < g->ntensor; i++) {
    const Tensor *t = &g->tensor[i];
    for (int d = 0; t->arg >= 0 && t->arg < n && d < t->ndim; d++)
      if (arg[t->arg].tensor->shape[d] != t->shape[d])
        return plugin_fail(err, LATHE_RT_ARGUMENT, "dimension %d of '%.60s' is %lld, wants %lld", d, t->name,
                           (long long)arg[t->arg].tensor->shape[d], (long long)t->shape[d]);
  }
  char *workspace = take_workspace(r);
  if (!workspace) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a workspace of %zu bytes", g->workspace);
  Run run = {g, (void **)(void *)(workspace + (g->workspace + ALIGN) / ALIGN * ALIGN), workspace, calls};
  for (int i = 0; i < g->ntensor; i++) {
    const Tensor *t = &g->tensor[i];
    const LatheRtTensor *a = t->arg >= 0 ? arg[t->arg].tensor : NULL;
    run.data[i] = a ? (char *)a->data + a->byte_offset : workspace + t->offset;
  }
  LatheRtCode code = r->backend->run(&run, err);
  give_workspace(r, workspace);
  return code;
}

LatheRtCode plugin_load(void *user, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                        LatheRtError *err)
{
  const Backend *backend = user;
  Region *r = calloc(1, sizeof *r);
  if (!r) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  r->backend = backend;
  r->name = strdup(name);
  pthread_mutex_init(&r->lock, NULL);
  LatheRtError why = {""};
  LatheRtCode code = r->name ? LATHE_RT_OK : LATHE_RT_MEMORY;
  if (code == LATHE_RT_OK) r->graph.json = json_read(bytes, n, &why);
  if (code == LATHE_RT_OK && !r->graph.json) code = LATHE_RT_ARGUMENT;
  r->graph.symbol = r->name;
  if (code == LATHE_RT_OK) code = read_graph(&r->graph, &why);
  if (code == LATHE_RT_OK) code = place_tensors(&r->graph, &why);
  if (code == LATHE_RT_OK) code = backend->prepare(&r->graph, &why);
  if (code == LATHE_RT_OK && r->graph.workspace > most_bytes)
    code = plugin_fail(&why, LATHE_RT_MEMORY, "a workspace of %zu bytes", r->graph.workspace);
  r->info = (LatheRtFuncInfo){.name = r->name, .nargs = r->graph.narg, .args = r->graph.arg};
  const LatheRtModuleApi api = {
    .size = sizeof api, .kind = backend->kind, .find = find, .call = call, .free = free_region};
  if (code == LATHE_RT_OK) code = lathe_rt_module_new(&api, r, out, &why);
  if (code != LATHE_RT_OK) {
    plugin_fail(err, code, "module '%.60s' of kind '%s': %.380s", name, backend->kind, why.text);
    free_region(r);
  }
  return code;
}
