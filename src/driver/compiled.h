/* compiled.h: what a Compiled is; private to this folder. */
#ifndef LATHE_DRIVER_COMPILED_H
#define LATHE_DRIVER_COMPILED_H

#include "driver/aot.h"

enum { MAX_STAGES = 6 };
typedef struct StageTime {
  const char *name;
  double seconds;
} StageTime;

struct Compiled {
  Ctx *ctx;
  int refs;
  Arena *arena;
  Program program; /* its modules: the graph after the passes, the scheduled kernels */
  ImplConfig config;
  LowerConfig lower;
  Built **built; /* of each module of the program; of a program ahead of time NULL */
  Module *alone; /* the kernels of a program ahead of time */
  Aot *aot;
  Compiled **variant; /* the same model for other CPUs, the most demanding first; variants.c */
  int nvariants;
  const void *bytes; /* the program, written */
  size_t nbytes;
  LatheRtModel *model; /* NULL until asked for */
  StageTime stage[MAX_STAGES];
  int nstage;
  double stage_start;
  int told; /* how far progress was said to be */
  const char *dump_dir;
  int ndump;
  Text plans;      /* what was chosen from what, for a dump */
  uint64_t dumped; /* hash of the last text */
};

#endif
