/* call.h: a function of a module, for module.c and call.c. */
#ifndef LATHE_RT_CALL_H
#define LATHE_RT_CALL_H

#include "internal.h"

/* LatheRtArgInfo.flags */
enum { ARG_WRITTEN = 1, ARG_STRIDED = 2, ARG_ALIAS = 4 };
enum { RT_CACHED_WORKSPACES = 8 };

/* A workspace kept for the next call; its memory follows, aligned as the module wants. */
typedef struct Workspace {
  _Alignas(RT_ALIGN) size_t bytes;
} Workspace;

struct LatheRtFunc {
  LatheRtModule *module;
  struct LatheRtFunc *next; /* of those that have been asked for */
  const LatheRtFuncInfo *info;
  size_t align;                                         /* of workspaces */
  int32_t ndims;                                        /* of all tensor arguments together */
  _Atomic(Workspace *) workspace[RT_CACHED_WORKSPACES]; /* free ones */
};

void rt_func_init(LatheRtFunc *, LatheRtModule *, const LatheRtFuncInfo *);
void rt_func_drop(LatheRtFunc *);
void rt_module_retain(LatheRtModule *);
void rt_module_release(LatheRtModule *);
const LatheRtModelData *rt_module_model(const LatheRtModule *); /* NULL: it has kernels alone */
bool rt_module_is_file(const LatheRtModule *);                  /* it was loaded: its memory is a file's */
/* Of a function without code of its own: its module does it. */
LatheRtCode rt_func_foreign(LatheRtFunc *, int32_t n, const LatheRtArg *, const LatheRtCalls *, LatheRtError *);
/* plugin.c: adds the loader of a kind where one of the folders of plugins has it. */
LatheRtCode rt_plugin_find(const char *kind, LatheRtError *err);
/* A module of this kind from a model's bytes. */
LatheRtCode rt_module_from(const char *kind, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                           LatheRtError *);
/* May the code of a library run here?  why: what is missing. */
LatheRtCode rt_module_fits(const char *arch, const char *features, LatheRtError *why);
/* Fills the slots of sizes, and checks the shapes of the tensors against what the function wants of these sizes
 * (dim). */
LatheRtCode rt_bind_sizes(const LatheRtFunc *, const LatheRtArg *, LatheRtSlot *, int64_t *dim, LatheRtError *);
/* "is float32, wants int8" */
LatheRtCode rt_check_dtype(LatheRtDType have, LatheRtDType want, LatheRtError *);
/* What is said of an argument, with whose it is before it. */
LatheRtCode rt_of_arg(const LatheRtFuncInfo *, int32_t i, LatheRtCode, LatheRtError *);
/* The two parts of a workspace, each rounded up; false: more than memory can have. */
bool rt_workspace_parts(const LatheRtFunc *, const int64_t *dim, size_t *shared, size_t *slice);

#endif
