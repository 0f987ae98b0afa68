/* module.c: compiled code, loaded from a file or already in memory.
 *
 * A module is one block [LatheRtModule | LatheRtFunc …].  Its owner holds one
 * reference and each running call another, so freeing a module while another thread
 * is in one of its functions is safe: the code goes when the call returns. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

struct LatheRtModule {
  atomic_int refs;
  const LatheRtModuleInfo *info;
  const LatheRtModelData *model; /* NULL: kernels alone */
  void (*drop)(void *);
  void *user;
  LatheRtFunc func[];
};

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

static LatheRtCode check_func(const char *what, const LatheRtFuncInfo *f, LatheRtError *err)
{
  if (!f->name || !f->call || !f->shape || f->nargs < 0 || f->nsizes < 0 || (f->nargs && !f->args) ||
      (f->nsizes && !f->sizes))
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
  if (info->features) RT_TRY(check_features(what, info->features, err));
  for (int32_t i = 0; i < info->nfuncs; i++) RT_TRY(check_func(what, &info->funcs[i], err));
  return LATHE_RT_OK;
}

/* ---- making and freeing -------------------------------------------------------------- */

static LatheRtCode module_new(const LatheRtModuleInfo *info, void (*drop)(void *), void *user, LatheRtModule **out,
                              LatheRtError *err)
{
  LatheRtModule *m = calloc(1, sizeof *m + (size_t)info->nfuncs * sizeof(LatheRtFunc));
  if (!m) return rt_fail(err, LATHE_RT_MEMORY, "module: out of memory");
  atomic_store(&m->refs, 1);
  m->info = info;
  m->drop = drop;
  m->user = user;
  for (int32_t i = 0; i < info->nfuncs; i++) rt_func_init(&m->func[i], m, &info->funcs[i]);
  *out = m;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_module_wrap(const LatheRtModuleInfo *info, void (*drop)(void *), void *user, LatheRtModule **out,
                                 LatheRtError *err)
{
  if (!info || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "module_wrap: info and out must not be null");
  *out = NULL;
  RT_TRY(check_info("the module", info, err));
  return module_new(info, drop, user, out, err);
}

static void close_library(void *handle) { dlclose(handle); }

LatheRtCode lathe_rt_module_load(const char *path, LatheRtModule **out, LatheRtError *err)
{
  if (!path || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "module_load: path and out must not be null");
  *out = NULL;
  void *handle;
  RT_TRY(rt_library_open(path, &handle, err));
  char what[256];
  snprintf(what, sizeof what, "'%.250s'", path);
  const LatheRtModuleInfo *info = dlsym(handle, "lathe_module");
  LatheRtCode code = LATHE_RT_OK;
  if (!info) code = rt_fail(err, LATHE_RT_ARGUMENT, "%s was not made by Lathe: it has no symbol 'lathe_module'", what);
  if (code == LATHE_RT_OK) code = check_info(what, info, err);
  if (code == LATHE_RT_OK) code = module_new(info, close_library, handle, out, err);
  if (code != LATHE_RT_OK) dlclose(handle);
  else (*out)->model = dlsym(handle, "lathe_model");
  return code;
}

void rt_module_retain(LatheRtModule *m) { atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed); }

void rt_module_release(LatheRtModule *m)
{
  if (atomic_fetch_sub(&m->refs, 1) != 1) return;
  for (int32_t i = 0; i < m->info->nfuncs; i++) rt_func_drop(&m->func[i]);
  if (m->drop) m->drop(m->user);
  free(m);
}

void lathe_rt_module_free(LatheRtModule *m)
{
  if (m) rt_module_release(m);
}

const LatheRtModelData *rt_module_model(const LatheRtModule *m) { return m->model; }

/* ---- looking inside -------------------------------------------------------------------- */

const LatheRtModuleInfo *lathe_rt_module_info(const LatheRtModule *m) { return m ? m->info : NULL; }

/* "matmul, add and 3 more" into a limited space. */
static void list_functions(const LatheRtModuleInfo *info, char *out, size_t n)
{
  size_t used = 0;
  out[0] = 0;
  for (int32_t i = 0; i < info->nfuncs; i++) {
    size_t need = strlen(info->funcs[i].name) + 2;
    if (used + need + 24 > n) {
      snprintf(out + used, n - used, " and %d more", info->nfuncs - i);
      return;
    }
    used += (size_t)snprintf(out + used, n - used, "%s'%s'", i ? ", " : "", info->funcs[i].name);
  }
}

LatheRtCode lathe_rt_module_func(LatheRtModule *m, const char *name, LatheRtFunc **out, LatheRtError *err)
{
  if (!m || !name || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "module_func: module, name and out must not be null");
  *out = NULL;
  for (int32_t i = 0; i < m->info->nfuncs; i++)
    if (strcmp(m->info->funcs[i].name, name) == 0) {
      *out = &m->func[i];
      return LATHE_RT_OK;
    }
  char list[300];
  list_functions(m->info, list, sizeof list);
  return rt_fail(err, LATHE_RT_NOT_FOUND, "the module has no function '%.100s'; it has %s", name,
                 *list ? list : "none");
}

const char *lathe_rt_version(void) { return LATHE_VERSION; }
