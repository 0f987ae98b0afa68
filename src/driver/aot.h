/* aot.h: programs ahead of time; private to this folder.
 *
 *   Program ─aot_plan.c→ Aot: where every tensor lies ─aot_c.c→ C source and header
 *                                                     ─aot_report.c→ what it costs
 *
 * One C function for each entry, with the calls of the kernels in order.  Every tensor has its place when the program
 * is written: in an array of the caller's, among the weights, or in a pool of the workspace. */
#ifndef LATHE_DRIVER_AOT_H
#define LATHE_DRIVER_AOT_H

#include "driver/program.h"
#include "driver/share.h"

typedef enum { AT_NOWHERE, AT_INPUT, AT_OUTPUT, AT_CONST, AT_POOL } AotPlaceKind;
typedef struct AotPlace {
  AotPlaceKind kind;
  int index; /* of the input, output, constant or pool */
  int64_t offset;
} AotPlace;

/* A tensor, or what a kernel needs while it runs, in the memory of the program: for reports. */
typedef struct AotTensor {
  const char *name;
  AotPlace place; /* AT_OUTPUT: in an array of the caller's */
  int64_t bytes;
  int begin, end; /* instructions */
  bool scratch;
} AotTensor;

/* Bytes. */
typedef struct AotMoved {
  double read, written;
} AotMoved;

typedef struct AotEntry {
  const ProgEntry *e;
  const ProgFunc *f;
  AotPlace *at;      /* of each register */
  AotPlace *scratch; /* of each instruction */
  AotPlace *input;   /* of each input: AT_INPUT, or its place in a pool */
  AotPlace *output;  /* of each output; what is elsewhere is copied at the end */
  Vec(AotTensor) tensor;
  PlaceReport plan;
  int plan_pools;   /* how many there are */
  AotMoved *moved;  /* of each pool, in a run */
  int64_t io_bytes; /* of arrays that the caller has */
  int64_t by_size;  /* bytes that placing from the largest to the smallest takes */
} AotEntry;

struct Aot {
  Program *p;
  Arena *arena;
  AotOptions options;
  Module *m;       /* of the kernels */
  Kernel **kernel; /* body NULL: the function of an external compiler … */
  bool external;   /* … of which there are some: then NAME_run answers 0, or the status of one that failed */
  CodeAlone code;
  int npools;
  const AotPool *pool;
  int64_t *pool_bytes; /* the most that an entry needs */
  AotEntry *entry;
  int64_t weights_bytes; /* of the constants that entries use */
  bool *uses_const;
  int64_t slice_bytes;  /* what a thread beside the first needs of scratch memory, the most of all kernels */
  int64_t stack_arrays; /* bytes of the arrays that a kernel has on the stack, the most of all */
  /* what aot_measure found: -1 where it cannot be told, and with what, or why not; NULL: not asked yet */
  int64_t code_bytes, stack_bytes;
  const char *measured_with;
};
typedef struct Aot Aot;

/* ---- aot_plan.c ------------------------------------------------------------------------ */

/* The target as one of C source: the same machine. */
const Target *aot_target(Ctx *, const Target *);
/* Raises with the reason where an entry cannot be such a program. */
void aot_check(const Program *);
/* Lowers the kernels and places everything; raises where it does not fit.  The module is the caller's. */
Aot *aot_plan(Program *, const AotOptions *, Module *, const LowerConfig *);
/* Bytes that a call of the kernel works in, on one thread. */
int64_t aot_scratch(const Aot *, int kernel);
/* Bytes of RAM: the pools and the caller's arrays. */
int64_t aot_ram(const Aot *, int entry);
/* The call's name for people: the source model's nodes, else the kernel. */
const char *aot_node_name(const Program *, const ProgIns *);

/* ---- aot_c.c ------------------------------------------------------------------------------ */

typedef struct AotFile {
  const char *name;
  const void *bytes;
  size_t n;
} AotFile;
typedef Vec(AotFile) AotFiles;
/* What the C names of entry k begin with: the first entry's are the model's, those of the others have the entry's name
 * in them. */
const char *aot_entry_prefix(Arena *, const Aot *, const char *name, int k);
/* STEM.h, STEM.c and, where weights are beside, STEM.c.weights (for WebAssembly STEM.weights.s with it); in C the model
 * is called linkable_name(STEM). */
void aot_files(Aot *, Arena *, const char *stem, WeightsPlace, AotFiles *out);
/* The elements of an array in braces, its end included. */
void aot_put_elements(Text *, DType, const void *, int64_t n);
void aot_export(Aot *, const char *path, WeightsPlace);
void aot_check_export(Ctx *, const Target *, const char *path);

/* ---- aot_web.c: WebAssembly for browsers --------------------------------------------------------- */

/* Raises unless NAME.js with what belongs to it can be written. */
void aot_check_web(Ctx *, const Target *, const char *path);
void aot_export_web(Aot *, const char *path, const char *folder, const char *stem);

/* ---- aot_web_text.c: JavaScript that is the same for all models ------------------------------------ */

extern const char aot_web_math_js[], aot_web_model_js[];
extern const char aot_web_load_js[];                         /* load, with one thread */
extern const char aot_web_worker_js[], aot_web_threads_js[]; /* the same with several: what a worker does, and load */
extern const char aot_web_page_html[], aot_web_page_js[];

/* ---- aot_mlf.c: TVM's model library format ----------------------------------------------------- */

void aot_export_tar(Aot *, const char *path, const char *name, const AotFiles *);

/* ---- aot_measure.c -------------------------------------------------------------------------- */

void aot_measure(Aot *);
/* Bytes of an object's sections: instructions, other constants, what is written; and of the stack of NAME_run and the
 * deepest function that it calls, as gcc's -fstack-usage says.  -1 in all of them: the file is none. */
typedef struct ObjectSizes {
  int64_t code, constants, written, stack;
} ObjectSizes;
ObjectSizes aot_object_sizes(const void *object, size_t n, const char *usage);

/* ---- aot_cycles.c ------------------------------------------------------------------------------ */

/* Cycles that a call of the kernel is predicted to take on the target's processor; 0: an external compiler's. */
double aot_cycles(const Aot *, int kernel);
/* Of each of its n arguments, then of its scratch memory, in a call. */
void aot_moved(const Aot *, int kernel, int n, AotMoved *out);

/* ---- aot_report.c --------------------------------------------------------------------------- */

const char *aot_report(Aot *, Arena *, AotReportForm);

#endif
