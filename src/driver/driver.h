/* driver.h: the whole compilation: from a module of graph functions to one file that runs.
 *
 *   graph ─passes→ graph of primitive functions ─emit→ program over registers + kernels
 *         ─plan→ storage ─codegen→ code ─link→ model.so */
#ifndef LATHE_DRIVER_H
#define LATHE_DRIVER_H

#include "frontend/frontend.h"
#include "pass/pass.h"

/* The weights: as the kernels want them (the file is mapped, they are used in place and shared between processes), or
 * as they were trained (the file is as small as the source; loading brings them into form).  Models in memory, files to
 * be linked and models for several targets always have the former. */
typedef enum { WEIGHTS_READY, WEIGHTS_TRAINED } WeightsForm;

/* ---- programs ahead of time -----------------------------------------------------------------
 * A model as plain C: one function for each entry with the order of execution in it, no allocation, nothing global that
 * is written, no runtime.  aot.h says more. */

/* Memory that tensors lie in while the program runs; earlier pools are preferred, or, where speeds are said, what is
 * moved most goes to the faster ones. */
typedef struct AotPool {
  const char *name;   /* an identifier */
  int64_t size;       /* bytes; 0: as many as it takes */
  double read, write; /* bytes of a cycle; 0: not said, which must be so of all pools or of none */
} AotPool;
/* What callers see beside NAME_run: nothing; TVM's C interface; TVM's packed one. */
typedef enum { AOT_PLAIN, AOT_INTERFACE_C, AOT_INTERFACE_PACKED } AotInterface;
/* How hard to look for places of tensors (place.c).  The single algorithms are there to be compared with. */
typedef enum {
  PLACE_QUICK,        /* some orders and a short climb, not to be felt */
  PLACE_THOROUGH,     /* all of them, a long climb, and the exact search where blocks are few */
  PLACE_BY_SIZE,      /* greedy: from the largest to the smallest */
  PLACE_BY_CONFLICTS, /* greedy: from the one that is in the way of most bytes */
  PLACE_CLIMB         /* by size, then the long climb */
} PlaceEffort;
typedef struct AotOptions {
  int npools; /* 0: one, "workspace" */
  const AotPool *pools;
  int64_t ram_limit; /* bytes of the pools and of the caller's arrays; 0: none */
  bool io_inside;    /* inputs and outputs lie in the workspace */
  AotInterface interface;
  PlaceEffort effort;
  int64_t layers, patches; /* the first layers in bands of rows (pass PatchRows); 0: the limit decides */
} AotOptions;

/* ---- external compilers ----------------------------------------------------------------------
 * A function with the attribute Compiler = "X" is handed to the code generator of X, which gives one of
 *   C source or an object  with a function int32_t SYMBOL(pointers…) over compact tensors of known shape: 0 or a status
 *   bytes of a kind        which the runtime's loader of that kind takes (lathe_rt_module_kind_add, or a plugin)
 * The function is called with the operands, the constants and the results, tuples spread out, in this order. */
typedef enum { EXTERNAL_C, EXTERNAL_OBJECT, EXTERNAL_MODULE } ExternalForm;
typedef struct ExternalCode {
  ExternalForm form;
  const char *kind; /* EXTERNAL_MODULE */
  const void *bytes;
  size_t n;
  int nconsts;
  const Node **consts; /* of the module that the function is of; they lie in the model's weights */
  const char **const_name;
} ExternalCode;
typedef struct ExternalCompiler {
  const char *name;
  /* func is of m; what it gives lives in the arena. */
  void (*generate)(void *env, Module *m, const Node *func, const char *symbol, Arena *, ExternalCode *out);
  void *env;
} ExternalCompiler;

typedef struct CompileOptions {
  const Target *target; /* NULL: the passes' target, else the host */
  /* Or several: parts of the model go where on_device says (src/pass/plan_devices.c), the rest to the first CPU. */
  int ntargets;
  const Target *const *targets;
  PassContext *passes; /* NULL: opt_level 3 and nothing else */
  /* Functions of the module that callers see, in order; none: @main alone. */
  int nentries;
  const char *const *entries;
  /* How the model holds its weights, see below. */
  WeightsForm weights;
  int nexternals; /* code generators for functions with the attribute Compiler */
  const ExternalCompiler *externals;
  const AotOptions *aot; /* NULL: for the runtime */
  const char *dump_dir;  /* NULL, or where each stage is written as numbered text */
  void (*progress)(void *env, const char *stage, int done, int total); /* total stays, done never shrinks */
  void *progress_env;
} CompileOptions;

/* A compiled model: counted. */
typedef struct Compiled Compiled;
/* Runs the passes on a copy of m, lowers @main and what it calls, plans storage, generates code. */
Compiled *driver_compile(Ctx *, Module *m, const CompileOptions *);
/* variants.c: the same for several CPUs (target_variant) of the options' target: one file holds all, and loading it
 * picks the most demanding one that the machine has everything for. */
Compiled *driver_compile_variants(Ctx *, Module *m, const CompileOptions *, int n, const char *const *cpus);
Compiled *compiled_retain(Compiled *);
void compiled_release(Compiled *);
/* Where a .c file has its weights: as text in it, or in a binary file beside it (PATH.weights) that the
 * compiler takes in.  WEIGHTS_BY_SIZE: text up to WEIGHTS_TEXT_LIMIT bytes. */
typedef enum { WEIGHTS_BY_SIZE, WEIGHTS_TEXT, WEIGHTS_BESIDE } WeightsPlace;
enum { WEIGHTS_TEXT_LIMIT = 256 * 1024 };
/* By the ending: .so (one file that the runtime loads); .o, .a, .c (C backend) to be linked into a
 * program, with a header beside. */
void compiled_export(Compiled *, const char *path, WeightsPlace);
/* Raises unless compiled_export could write a file of that name for the target: before compiling. */
void driver_check_export(Ctx *, const Target *, const char *path);
/* How a .c file is compiled and linked, as one line of shell. */
const char *driver_c_command(Arena *, const char *path);
/* Something that runs here; raises ERR_UNSUPPORTED for another machine's code.  Borrowed: it and
 * its executors may be used while the Compiled lives. */
LatheRtModel *compiled_model(Compiled *);
Module *compiled_module(Compiled *); /* the graph after the passes */
Code *compiled_code(Compiled *);     /* of the kernels; NULL: they are for several targets */
/* The same as text, of every target that has the format. */
const char *compiled_source(Compiled *, Arena *, CodeFormat);
const char *compiled_program_text(Compiled *, Arena *); /* the program, an instruction a line */
const char *compiled_memory_text(Compiled *, Arena *);  /* planned bytes against the lower bound */
/* What was chosen from what (plan_log in impl.h); "" unless the config asked for it. */
const char *compiled_plans_text(Compiled *);
/* "WORKLOAD PLAN" of node i of the model, as the watcher of an executor counts them; NULL: it has none. */
const char *compiled_node_plan(Compiled *, int i);
const char *compiled_time_text(Compiled *, Arena *); /* seconds of each stage */

/* ---- of programs ahead of time ------------------------------------------------------------------ */
/* What it costs: a table and a picture of memory over time; the same for machines; the picture as SVG. */
typedef enum { AOT_REPORT_TEXT, AOT_REPORT_JSON, AOT_REPORT_SVG } AotReportForm;
const char *compiled_aot_report(Compiled *, Arena *, AotReportForm);
/* One of its files (NAME.c, NAME.h, NAME.c.weights) for a model called `name`; NULL: there is none of that kind. */
const void *compiled_aot_file(Compiled *, Arena *, const char *name, const char *ending, size_t *n);
/* compiled_export, driver_check_export: .c, .o, .a, .tar (TVM's model library format) and .js, for browsers. */
void driver_check_export_aot(Ctx *, const Target *, const char *path);
/* aot_measure.c: the bytes of a program ahead of time that was written to PATH.c before, for a target (NULL: this
 * machine). */
const char *driver_source_cost(Ctx *, Arena *, const Target *, const char *path, bool json);

/* ---- projects for microcontrollers around them: micro.c, micro_project.c ---------------------------------- */
typedef struct MicroBytes {
  const void *data;
  size_t n;
} MicroBytes;
typedef struct MicroProject {
  const char *folder, *name;
  const char *board;  /* as micro_each_board names them */
  const char *layout; /* bare, zephyr, arduino, platformio */
  int ninputs, noutputs;
  const MicroBytes *input, *expected; /* golden vectors: what the host makes of the inputs */
} MicroProject;
void compiled_micro_project(Compiled *, const MicroProject *);
void micro_each_board(void (*take)(void *, const char *name, const char *cpus), void *env);
/* Of bare-metal projects.  Raise with the package to install where a tool is missing. */
const char *micro_build(Ctx *, Arena *, const char *folder); /* the program's path */
const char *micro_run(Ctx *, Arena *, const char *folder);   /* what it says, in lines (check.c writes them) */
typedef struct MicroSizes {
  int64_t code, constants, written, stack;
} MicroSizes;
MicroSizes micro_size(Ctx *, const char *folder); /* of the model alone, in bytes */

/* debug.c: runs the model on these inputs and compares the result of every kernel with what the
 * reference interpreter makes of the kernel's own inputs: |a - b| <= atol + rtol |b|.
 * True: all agree.  The text names the first node that differs, or says how many agree. */
bool driver_debug_compare(Compiled *, int n, const LatheRtTensor *const *inputs, double rtol, double atol, Arena *,
                          const char **text);

#endif
