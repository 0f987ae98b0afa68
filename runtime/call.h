/* call.h: a function of a module, for module.c and call.c. */
#ifndef LATHE_RT_CALL_H
#define LATHE_RT_CALL_H

#include "internal.h"

enum { RT_CACHED_WORKSPACES = 8 };

/* A workspace kept for the next call; its memory follows, 64-byte aligned. */
typedef struct Workspace {
  _Alignas(RT_ALIGN) size_t bytes;
} Workspace;

struct LatheRtFunc {
  LatheRtModule *module;
  const LatheRtFuncInfo *info;
  int32_t ndims;                                        /* of all tensor arguments together */
  _Atomic(Workspace *) workspace[RT_CACHED_WORKSPACES]; /* free ones */
};

void rt_func_init(LatheRtFunc *, LatheRtModule *, const LatheRtFuncInfo *);
void rt_func_drop(LatheRtFunc *);
void rt_module_retain(LatheRtModule *);
void rt_module_release(LatheRtModule *);
const LatheRtModelData *rt_module_model(const LatheRtModule *); /* NULL: it has kernels alone */

#endif
