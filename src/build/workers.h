/* workers.h: functions compiled side by side; for build.c. */
#ifndef LATHE_BUILD_WORKERS_H
#define LATHE_BUILD_WORKERS_H

#include "build/build.h"

/* workers.c: lowers and compiles every function with LLVM.  What the calling thread makes is in m. */
Code *build_side_by_side(Module *m, int n, PrimFunc *const *, const Target *, const BuildOptions *);

#endif
