/* build.h: from functions to something that runs: lowered, compiled, loadable. */
#ifndef LATHE_BUILD_H
#define LATHE_BUILD_H

#include "codegen/codegen.h"
#include "schedule/schedule.h"

/* Lowers every tir function of m (or the ones given) and compiles them. */
typedef struct Built Built;
Built *build_funcs(Ctx *, int n, PrimFunc *const *, const Target *, const LowerConfig *);
typedef struct BuildOptions {
  const LowerConfig *config;                        /* NULL: the usual */
  void (*progress)(void *env, int done, int total); /* NULL, or called between functions, in the caller's thread */
  void *env;
  int threads; /* at most so many; 0: one for each core */
} BuildOptions;
Built *build_funcs_with(Ctx *, int n, PrimFunc *const *, const Target *, const BuildOptions *);
/* A function, checked and lowered in m. */
Kernel *build_kernel(Module *m, const PrimFunc *, const Target *, const LowerConfig *);
/* The target that plans and code are made for: itself, or in the arena, where Lathe was built without LLVM, the same
 * machine served by the C backend (this one, which a C compiler is at hand for). */
const Target *build_target(Ctx *, Arena *, const Target *);
/* Refuses a target that no code can be made for here, before work is put into it. */
void build_check_target(Ctx *, const Target *);
Built *built_retain(Built *);
void built_release(Built *);
/* Functions of external compilers; what the rows point to lives longer than the Built. */
Built *build_externals(Ctx *, const Target *, int n, const CodeExternal *);
Code *built_code(Built *);        /* host code */
Code *built_device_code(Built *); /* CUDA source, or what another device runs; NULL: the host's code is all */
const Target *built_target(Built *);
/* Something that runs here; raises ERR_UNSUPPORTED for another machine's code. */
LatheRtModule *built_module(Built *);

#endif
