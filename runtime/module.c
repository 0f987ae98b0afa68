/* module.c: compiled code that is called by name: a shared library, a table in memory, or code of another kind.
 *
 * A module is a table of four functions (find, call, save, free) and what they work on; a library
 * is the first kind.  Functions are made when they are first asked for, and kept.  A module's owner holds one
 * reference and each running call another, so freeing a module while another thread
 * is in one of its functions is safe: the code goes when the call returns. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "lock.h"

struct LatheRtModule {
  atomic_int refs;
  LatheRtModuleApi api;
  void *self;
  const LatheRtModuleInfo *info; /* NULL: not a library */
  const LatheRtModelData *model; /* NULL: kernels alone */
  RtLock lock;                   /* of the functions */
  LatheRtFunc *func;
};

/* What a library is to its functions. */
typedef struct Library {
  const LatheRtModuleInfo *info;
  void (*drop)(void *);
  void *user;
} Library;

/* ---- checks ------------------------------------------------------------------------ */

static LatheRtCode check_features(const char *what, const char *features, LatheRtError *err)
{
  for (const char *p = features; *p;) {
    size_t n = strcspn(p, ",");
    if (n && !rt_cpu_has(p, n))
      return rt_fail(err, LATHE_RT_UNSUPPORTED,
                     "%s needs the CPU feature '%.*s', which this machine lacks (it has %s); "
                     "compile it for this machine",
                     what, (int)n, p, lathe_rt_cpu_features());
    p += n + (p[n] == ',');
  }
  return LATHE_RT_OK;
}

LatheRtCode rt_module_fits(const char *arch, const char *features, LatheRtError *why)
{
  if (*arch && strcmp(arch, rt_cpu_arch()) != 0)
    return rt_fail(why, LATHE_RT_UNSUPPORTED, "the code is for %s, this machine is %s", arch, rt_cpu_arch());
  return check_features("the code", features, why);
}

/* own: it brings its code with it. */
static LatheRtCode check_func(const char *what, const LatheRtFuncInfo *f, bool own, LatheRtError *err)
{
  if (!f->name || (own && (!f->call || !f->shape)) || !f->call != !f->shape || f->workspace < -1 || f->slice < -1 ||
      f->nargs < 0 || f->nsizes < 0 || (f->nargs && !f->args) || (f->nsizes && !f->sizes))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s has a broken entry for function '%s'", what, f->name ? f->name : "?");
  for (int32_t i = 0; i < f->nargs; i++) {
    const LatheRtArgInfo *a = &f->args[i];
    if (!a->name || a->ndim < -1 || a->ndim > LATHE_RT_MAX_RANK || rt_dtype_bytes(a->dtype) == 0)
      return rt_fail(err, LATHE_RT_ARGUMENT, "%s: function '%s' has a broken entry for argument %d", what, f->name, i);
  }
  for (int32_t i = 0; i < f->nsizes; i++) {
    const LatheRtSizeInfo *s = &f->sizes[i];
    int32_t ndim = s->arg >= 0 && s->arg < f->nargs ? f->args[s->arg].ndim : -1;
    bool ok = ndim >= 0 && (s->dim == INT32_MIN || (s->dim >= 0 ? s->dim < ndim : -1 - s->dim < ndim));
    if (!s->name || !ok)
      return rt_fail(err, LATHE_RT_ARGUMENT, "%s: function '%s' has a broken entry for size %d", what, f->name, i);
  }
  return LATHE_RT_OK;
}

static LatheRtCode check_info(const char *what, const LatheRtModuleInfo *info, LatheRtError *err)
{
  if (memcmp(info->magic, "LATHERT", 8) != 0)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s was not made by Lathe: its table has no mark", what);
  if (info->abi != LATHE_RT_ABI)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "%s has ABI %u, this runtime has ABI %d; compile it again", what,
                   info->abi, LATHE_RT_ABI);
  if (info->nfuncs < 0 || (info->nfuncs && !info->funcs))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s has a broken table of functions", what);
  if (info->arch && strcmp(info->arch, rt_cpu_arch()) != 0)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "%s is for %s, this machine is %s", what, info->arch, rt_cpu_arch());
  if (info->align < 1 || info->align > RT_MOST_ALIGN || info->align & (info->align - 1))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s wants an alignment of %u bytes", what, info->align);
  if (info->features) RT_TRY(check_features(what, info->features, err));
  for (int32_t i = 0; i < info->nfuncs; i++) RT_TRY(check_func(what, &info->funcs[i], true, err));
  return LATHE_RT_OK;
}

/* ---- libraries ------------------------------------------------------------------------ */

static LatheRtCode library_find(void *self, const char *name, const LatheRtFuncInfo **out, LatheRtError *err)
{
  const LatheRtModuleInfo *info = ((Library *)self)->info;
  for (int32_t i = 0; i < info->nfuncs; i++)
    if (strcmp(info->funcs[i].name, name) == 0) {
      *out = &info->funcs[i];
      return LATHE_RT_OK;
    }
  char list[300] = "";
  for (int32_t i = 0; i < info->nfuncs; i++) rt_add_name(list, sizeof list, info->funcs[i].name);
  return rt_fail(err, LATHE_RT_NOT_FOUND, "the module has no function '%.100s'; it has %s", name,
                 *list ? list : "none");
}

static void library_free(void *self)
{
  Library *l = self;
  if (l->drop) l->drop(l->user);
  free(l);
}

static const LatheRtModuleApi library_api = {
  .size = sizeof library_api, .kind = "library", .find = library_find, .free = library_free};

/* ---- making and freeing -------------------------------------------------------------- */

LatheRtCode lathe_rt_module_new(const LatheRtModuleApi *api, void *self, LatheRtModule **out, LatheRtError *err)
{
  if (!api || !out) return rt_null(err, "module_new");
  *out = NULL;
  enum { LEAST = offsetof(LatheRtModuleApi, free) + sizeof api->free };
  LatheRtModuleApi own;
  RT_TRY(rt_take_struct(&own, sizeof own, api, api->size, LEAST, "module_new", err));
  if (!own.kind || !own.find) return rt_fail(err, LATHE_RT_ARGUMENT, "module_new: a module needs a kind and find");
  LatheRtModule *m = calloc(1, sizeof *m);
  if (!m) return rt_no_memory(err, "module");
  atomic_store(&m->refs, 1);
  rt_lock_init(&m->lock);
  m->api = own;
  m->self = self;
  *out = m;
  return LATHE_RT_OK;
}

static LatheRtCode library_new(const LatheRtModuleInfo *info, void (*drop)(void *), void *user, LatheRtModule **out,
                               LatheRtError *err)
{
  Library *l = malloc(sizeof *l);
  if (!l) return rt_no_memory(err, "module");
  *l = (Library){info, NULL, NULL};
  LatheRtCode code = lathe_rt_module_new(&library_api, l, out, err);
  if (code != LATHE_RT_OK) {
    free(l);
    return code;
  }
  l->drop = drop;
  l->user = user;
  (*out)->info = info;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_module_wrap(const LatheRtModuleInfo *info, void (*drop)(void *), void *user, LatheRtModule **out,
                                 LatheRtError *err)
{
  if (!info || !out) return rt_null(err, "module_wrap");
  *out = NULL;
  RT_TRY(check_info("the module", info, err));
  return library_new(info, drop, user, out, err);
}

static void close_library(void *handle) { dlclose(handle); }

/* The variant that this machine has everything for; the last where there is none, which is then refused. */
static LatheRtVariant choose_variant(void *handle, int *count)
{
  const LatheRtVariant only = {dlsym(handle, "lathe_module"), dlsym(handle, "lathe_model")};
  const LatheRtVariant *v = dlsym(handle, "lathe_variants");
  *count = 1;
  if (!v || !v->module) return only;
  int taken = -1;
  for (*count = 0; v[*count].module; ++*count) {
    const LatheRtModuleInfo *info = v[*count].module;
    bool ours = !memcmp(info->magic, "LATHERT", 8) && info->abi == LATHE_RT_ABI;
    const char *arch = ours && info->arch ? info->arch : "";
    const char *features = ours && info->features ? info->features : "";
    if (taken < 0 && ours && rt_module_fits(arch, features, NULL) == LATHE_RT_OK) taken = *count;
  }
  return v[taken < 0 ? *count - 1 : taken];
}

LatheRtCode lathe_rt_module_load(const char *path, LatheRtModule **out, LatheRtError *err)
{
  if (!path || !out) return rt_null(err, "module_load");
  *out = NULL;
  void *handle;
  RT_TRY(rt_library_open(path, &handle, err));
  int count;
  LatheRtVariant variant = choose_variant(handle, &count);
  char what[320];
  if (count > 1) snprintf(what, sizeof what, "the last of the %d variants in '%.250s'", count, path);
  else snprintf(what, sizeof what, "'%.250s'", path);
  const LatheRtModuleInfo *info = variant.module;
  LatheRtCode code = LATHE_RT_OK;
  if (!info) code = rt_fail(err, LATHE_RT_ARGUMENT, "%s was not made by Lathe: it has no symbol 'lathe_module'", what);
  if (code == LATHE_RT_OK) code = check_info(what, info, err);
  if (code == LATHE_RT_OK) code = library_new(info, close_library, handle, out, err);
  if (code != LATHE_RT_OK) dlclose(handle);
  else (*out)->model = variant.model;
  return code;
}

void rt_module_retain(LatheRtModule *m) { atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed); }

void rt_module_release(LatheRtModule *m)
{
  if (atomic_fetch_sub(&m->refs, 1) != 1) return;
  while (m->func) {
    LatheRtFunc *next = m->func->next;
    rt_func_drop(m->func);
    free(m->func);
    m->func = next;
  }
  if (m->api.free) m->api.free(m->self);
  rt_lock_drop(&m->lock);
  free(m);
}

void lathe_rt_module_free(LatheRtModule *m)
{
  if (m) rt_module_release(m);
}

bool rt_module_is_file(const LatheRtModule *m) { return m->info && ((const Library *)m->self)->drop == close_library; }

const LatheRtModelData *rt_module_model(const LatheRtModule *m) { return m->model; }

/* ---- looking inside -------------------------------------------------------------------- */

const LatheRtModuleInfo *lathe_rt_module_info(const LatheRtModule *m) { return m ? m->info : NULL; }
const char *lathe_rt_module_kind(const LatheRtModule *m) { return m ? m->api.kind : ""; }

static LatheRtCode add_func(LatheRtModule *m, const LatheRtFuncInfo *info, LatheRtFunc **out, LatheRtError *err)
{
  LatheRtFunc *f = m->func;
  while (f && f->info != info) f = f->next;
  if (!f) {
    if (!m->info) RT_TRY(check_func("the module", info, !m->api.call, err));
    f = calloc(1, sizeof *f);
    if (!f) return rt_no_memory(err, "module");
    rt_func_init(f, m, info);
    f->next = m->func;
    m->func = f;
  }
  *out = f;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_module_func(LatheRtModule *m, const char *name, LatheRtFunc **out, LatheRtError *err)
{
  if (!m || !name || !out) return rt_null(err, "module_func");
  *out = NULL;
  const LatheRtFuncInfo *info = NULL;
  RT_TRY(m->api.find(m->self, name, &info, err));
  if (!info) return rt_fail(err, LATHE_RT_ARGUMENT, "the module has a broken entry for function '%.100s'", name);
  rt_lock(&m->lock);
  LatheRtCode code = add_func(m, info, out, err);
  rt_unlock(&m->lock);
  return code;
}

LatheRtCode rt_func_foreign(LatheRtFunc *f, int32_t n, const LatheRtArg *arg, const LatheRtCalls *calls,
                            LatheRtError *err)
{
  LatheRtModule *m = f->module;
  LatheRtError why;
  why.text[0] = 0;
  LatheRtCode code = m->api.call(m->self, f->info, n, arg, calls, &why);
  return code == LATHE_RT_OK ? code : rt_fail(err, code, "%.100s: %.400s", f->info->name, why.text);
}

LatheRtCode lathe_rt_module_save(LatheRtModule *m, LatheRtCode (*write)(void *, const void *, size_t), void *to,
                                 LatheRtError *err)
{
  if (!m || !write) return rt_null(err, "module_save");
  if (!m->api.save) return rt_fail(err, LATHE_RT_UNSUPPORTED, "a module of kind '%.100s' cannot be saved", m->api.kind);
  return m->api.save(m->self, write, to, err);
}

/* ---- kinds ----------------------------------------------------------------------------- */

enum { MAX_KINDS = 32, KIND_BYTES = 64 };
typedef struct Kind {
  char name[KIND_BYTES];
  LatheRtModuleLoad load; /* NULL: a free place */
  void *user;
} Kind;
static struct {
  RtLock lock;
  Kind kind[MAX_KINDS];
} kinds = {.lock = RT_LOCK_INIT};

static Kind *find_kind(const char *name, bool none)
{
  for (int i = 0; i < MAX_KINDS; i++)
    if (none ? !kinds.kind[i].load : kinds.kind[i].load && !strcmp(kinds.kind[i].name, name)) return &kinds.kind[i];
  return NULL;
}

LatheRtCode lathe_rt_module_kind_add(const char *kind, LatheRtModuleLoad load, void *user, LatheRtError *err)
{
  if (!kind || !*kind || strlen(kind) >= KIND_BYTES || !strcmp(kind, library_api.kind))
    return rt_fail(err, LATHE_RT_ARGUMENT, "module_kind_add: a kind needs a name of its own, below %d letters",
                   KIND_BYTES);
  LatheRtCode code = LATHE_RT_OK;
  rt_lock(&kinds.lock);
  Kind *k = find_kind(kind, false);
  if (!k && !load) code = rt_fail(err, LATHE_RT_NOT_FOUND, "module_kind_add: there is no kind '%s' to remove", kind);
  if (!k && load && !(k = find_kind(kind, true)))
    code = rt_fail(err, LATHE_RT_UNSUPPORTED, "module_kind_add: '%s' would be one more than %d kinds", kind, MAX_KINDS);
  if (code == LATHE_RT_OK && k) {
    memcpy(k->name, kind, strlen(kind) + 1);
    k->load = load;
    k->user = user;
  }
  rt_unlock(&kinds.lock);
  return code;
}

static Kind loader_of(const char *kind)
{
  rt_lock(&kinds.lock);
  const Kind *found = find_kind(kind, false);
  Kind k = found ? *found : (Kind){.load = NULL};
  rt_unlock(&kinds.lock);
  return k;
}

LatheRtCode rt_module_from(const char *kind, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                           LatheRtError *err)
{
  *out = NULL;
  Kind k = loader_of(kind);
  if (!k.load) RT_TRY(rt_plugin_find(kind, err));
  if (!k.load) k = loader_of(kind);
  if (!k.load)
    return rt_fail(err, LATHE_RT_UNSUPPORTED,
                   "the model has a module '%.60s' of kind '%.60s', which nothing here loads; lathe_rt_module_kind_add "
                   "adds a loader, LATHE_PLUGIN_PATH names folders of plugins",
                   name, kind);
  RT_TRY(k.load(k.user, name, bytes, n, out, err));
  if (!*out) return rt_fail(err, LATHE_RT_ARGUMENT, "the loader of kind '%.60s' gave no module", kind);
  return LATHE_RT_OK;
}

const char *lathe_rt_version(void) { return LATHE_VERSION; }
