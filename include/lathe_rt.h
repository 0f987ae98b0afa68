/* lathe_rt.h: the runtime, for programs that load and run what Lathe compiled.
 *
 * Every function returns a LatheRtCode and, where it fails, writes one sentence into
 * err (may be NULL).  There are no globals to set up and no aborts.  Tensors
 * follow DLPack: DLTensor and LatheRtTensor have the same layout. */
#ifndef LATHE_RT_H
#define LATHE_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_RT_ABI 1
#if defined(__GNUC__)
#define LATHE_RT_API __attribute__((visibility("default")))
#define LATHE_RT_CHECK __attribute__((warn_unused_result))
#else
#define LATHE_RT_API
#define LATHE_RT_CHECK
#endif

typedef enum LatheRtCode {
  LATHE_RT_OK = 0,
  LATHE_RT_ARGUMENT,  /* wrong number, rank, shape, dtype, device */
  LATHE_RT_NOT_FOUND, /* no such file, function, symbol */
  LATHE_RT_MEMORY,
  LATHE_RT_UNSUPPORTED, /* this machine or runtime cannot do it */
  LATHE_RT_IO,
  LATHE_RT_KERNEL, /* a kernel or a function it called reported failure */
} LatheRtCode;

typedef struct LatheRtError {
  char text[512];
} LatheRtError;

/* ---- tensors ---------------------------------------------------------------- */

typedef enum { LATHE_RT_CPU = 1, LATHE_RT_CUDA = 2 } LatheRtDeviceType;
typedef struct LatheRtDevice {
  int32_t type, id;
} LatheRtDevice;
/* code as in DLPack 1.1: 0 int, 1 uint, 2 float, 3 handle, 4 bfloat, 6 bool, 10 e4m3fn,
 * 11 e4m3fnuz, 12 e5m2, 13 e5m2fnuz, 14 e8m0fnu, 17 e2m1fn (a byte each).  A bool is {6, 8, 1}, {6, 1, 1} or {1, 1, 1}.
 * A string is {LATHE_RT_STRING, 64, 1}: its number in an executor, see lathe_rt_string_put. */
enum { LATHE_RT_STRING = 128 };
typedef struct LatheRtDType {
  uint8_t code, bits;
  uint16_t lanes;
} LatheRtDType;
/* The most dimensions that a tensor has, here and in the compiler. */
enum { LATHE_RT_MAX_RANK = 16 };
typedef struct LatheRtTensor {
  void *data;
  LatheRtDevice device;
  int32_t ndim;
  LatheRtDType dtype;
  int64_t *shape;
  int64_t *strides; /* elements; NULL: compact, row major */
  uint64_t byte_offset;
} LatheRtTensor;

/* Memory of a device.  A second device is a second struct. */
typedef struct LatheRtAllocator {
  void *user;
  LatheRtDevice device;
  void *(*alloc)(void *user, size_t bytes, size_t align); /* NULL on failure */
  void (*free)(void *user, void *);
  LatheRtCode (*copy_in)(void *user, void *dst, const void *src_host, size_t bytes);
  LatheRtCode (*copy_out)(void *user, void *dst_host, const void *src, size_t bytes);
} LatheRtAllocator;
LATHE_RT_API const LatheRtAllocator *lathe_rt_cpu_allocator(void);
/* Tells the runtime of another device (the struct is copied), so that tensors can be
 * copied to and from it.  The same device again replaces it. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_device_add(const LatheRtAllocator *, LatheRtError *err);

/* A tensor with its own memory (64-byte aligned, zeroed).  Free with lathe_rt_tensor_free. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_new(const LatheRtAllocator *, LatheRtDType, int32_t ndim,
                                                            const int64_t *shape, LatheRtTensor **out,
                                                            LatheRtError *err);
LATHE_RT_API void lathe_rt_tensor_free(LatheRtTensor *);
/* Bytes of its elements without gaps, whatever the strides. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_bytes(const LatheRtTensor *, size_t *out, LatheRtError *err);
/* Same dtype and shape; on the host either side may be strided.  Tensors that
 * overlap in part give unspecified values. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_copy(const LatheRtTensor *from, LatheRtTensor *to,
                                                             LatheRtError *err);

/* ---- what compiled code looks like (the ABI between codegen and runtime) ------- */

/* One argument of a call: a pointer to data, or a scalar. */
typedef union LatheRtSlot {
  void *p;
  int64_t i;
  double f; /* all float scalars travel as double */
} LatheRtSlot;

typedef struct LatheRtCalls LatheRtCalls;
/* A piece of a parallel loop: iterations [begin, end) on worker `slot`.  Two pieces
 * of one call never run at the same time with the same slot. */
typedef int32_t (*LatheRtBody)(int64_t begin, int64_t end, int32_t slot, void *env);
typedef struct LatheRtPackedArg {
  enum { LATHE_RT_ARG_INT, LATHE_RT_ARG_FLOAT, LATHE_RT_ARG_STR, LATHE_RT_ARG_HANDLE, LATHE_RT_ARG_TENSOR } tag;
  union {
    int64_t i;
    double f;
    const char *s;
    void *p;
    LatheRtTensor *t;
  } u;
} LatheRtPackedArg;
/* What kernels may call, handed to each of them. */
struct LatheRtCalls {
  uint32_t abi;
  int32_t num_workers; /* slots run from 0 to num_workers - 1 */
  int32_t (*parallel_for)(const LatheRtCalls *, int64_t n, LatheRtBody, void *env);
  int32_t (*call_packed)(const LatheRtCalls *, const char *name, int32_t n, const LatheRtPackedArg *);
  void *pool;
  void *user;
};

/* A kernel as compiled code exports it.
 * call:  slots are the arguments in the user's order (pointer to the first
 *        element, or scalar), then the sizes.  Returns 0, or a status of the user's.
 * shape: given the same slots (pointers unused), writes the shape each tensor must
 *        have, dimension after dimension in argument order, then the bytes of the
 *        shared workspace, then the bytes of one worker's slice.
 * workspace: the shared part, then num_workers slices; each part's size is rounded up
 *        to 64 bytes and its start is 64-byte aligned.  So slice s starts at
 *        round64(shared) + s * round64(slice).  Each call has a workspace of its own.
 * A size with an element offset (dim INT_MIN) makes the slot of its tensor the base
 * pointer; otherwise the slot is the address of the first element. */
typedef int32_t (*LatheRtKernel)(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *);
typedef void (*LatheRtShapeFn)(const LatheRtSlot *slots, int64_t *out);
typedef struct LatheRtArgInfo {
  const char *name;
  LatheRtDType dtype;
  int32_t ndim;  /* -1: a scalar */
  int32_t flags; /* 1: written; 2: strides allowed (read through sizes); 4: may alias */
} LatheRtArgInfo;
typedef struct LatheRtSizeInfo {
  const char *name;
  int32_t arg, dim; /* as KernelSize in src/lower/lower.h */
} LatheRtSizeInfo;
typedef struct LatheRtFuncInfo {
  const char *name;
  LatheRtKernel call;
  LatheRtShapeFn shape;
  int32_t nargs, nsizes;
  const LatheRtArgInfo *args;
  const LatheRtSizeInfo *sizes;
} LatheRtFuncInfo;
/* Exported as the symbol `lathe_module`. */
typedef struct LatheRtModuleInfo {
  char magic[8]; /* "LATHERT" and a zero */
  uint32_t abi;
  int32_t nfuncs;
  const char *arch;     /* "x86_64", "aarch64", … */
  const char *features; /* comma list that the code needs, "avx512f,fma" */
  const LatheRtFuncInfo *funcs;
} LatheRtModuleInfo;

/* ---- modules and functions -------------------------------------------------------- */

typedef struct LatheRtModule LatheRtModule;
typedef struct LatheRtFunc LatheRtFunc;

/* Loads a shared library that Lathe wrote.  Refused with a sentence if it is not
 * one, is of another ABI, or needs CPU features that this machine lacks. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_load(const char *path, LatheRtModule **out, LatheRtError *err);
/* Wraps code that is in memory already (the JIT, static linking).  drop(user) runs
 * when the last reference to the module goes. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_wrap(const LatheRtModuleInfo *, void (*drop)(void *),
                                                             void *user, LatheRtModule **out, LatheRtError *err);
LATHE_RT_API void lathe_rt_module_free(LatheRtModule *);
LATHE_RT_API const LatheRtModuleInfo *lathe_rt_module_info(const LatheRtModule *);
/* Borrowed from the module. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_func(LatheRtModule *, const char *name, LatheRtFunc **out,
                                                             LatheRtError *err);
LATHE_RT_API const LatheRtFuncInfo *lathe_rt_func_info(const LatheRtFunc *);

typedef struct LatheRtArg {
  const LatheRtTensor *tensor; /* or NULL for a scalar */
  LatheRtSlot scalar;
} LatheRtArg;
/* Checks every argument (number, dtype, rank, shape, device, alignment) and runs.
 * Safe from many threads at once. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_func_call(LatheRtFunc *, int32_t n, const LatheRtArg *,
                                                           LatheRtError *err);
/* Runs it `repeat` times `number` calls each (after one warm-up call), raising
 * number until a repeat takes min_repeat_ms; seconds[repeat] per call. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_func_time(LatheRtFunc *, int32_t n, const LatheRtArg *, int32_t number,
                                                           int32_t repeat, double min_repeat_ms, double *seconds,
                                                           LatheRtError *err);

/* Functions that compiled code may call by name (tvm_call_packed).  Non-zero from
 * fn stops the kernel.  Registering a name again replaces it; NULL removes it. */
typedef int32_t (*LatheRtPackedFn)(void *user, int32_t n, const LatheRtPackedArg *);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_register(const char *name, LatheRtPackedFn, void *user,
                                                          LatheRtError *err);

/* ---- models ---------------------------------------------------------------------------- */

/* A compiled model: kernels, weights, and a program over them (runtime/model_format.h has
 * the format; it is checked whole when loaded).  Models are counted; executors keep theirs.
 * One model may be run from many threads at once, each with an executor of its own: the
 * weights are shared. */
typedef struct LatheRtModel LatheRtModel;
typedef struct LatheRtExecutor LatheRtExecutor;
/* What a file exports as the symbol `lathe_model`, beside `lathe_module`. */
typedef struct LatheRtModelData {
  char magic[8];       /* "LATHEMD" and a zero */
  const void *program; /* runtime/model_format.h */
  uint64_t program_bytes;
  const void *weights;
  uint64_t weights_bytes;
  const void *const *consts; /* NULL, or where each constant lies instead: models in memory */
} LatheRtModelData;
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_load(const char *path, LatheRtModel **out, LatheRtError *err);
/* The model that a loaded module carries; NOT_FOUND when it has kernels only. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_of(LatheRtModule *, LatheRtModel **out, LatheRtError *err);
/* A model in memory over a module's kernels.  The data (but not the struct) must stay until
 * drop(user), which runs when the last reference goes. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_wrap(LatheRtModule *, const LatheRtModelData *,
                                                            void (*drop)(void *), void *user, LatheRtModel **out,
                                                            LatheRtError *err);
LATHE_RT_API LatheRtModel *lathe_rt_model_retain(LatheRtModel *);
LATHE_RT_API void lathe_rt_model_free(LatheRtModel *); /* gives one reference back */

/* A map of a source model is two ports that follow each other: NAME.keys, a vector, and NAME.values: a vector, or for a
 * sequence of maps with the same keys a matrix with a row for each map. */
typedef struct LatheRtPort {
  const char *name;
  LatheRtDType dtype;
  int32_t ndim;         /* -1: a sequence or optional, or rank known at run time only */
  const int64_t *shape; /* -1: known at run time */
  const char *type;     /* as text: "Tensor[(1, n, 64), float32]" */
} LatheRtPort;
LATHE_RT_API int32_t lathe_rt_model_inputs(const LatheRtModel *, const LatheRtPort **out);
LATHE_RT_API int32_t lathe_rt_model_outputs(const LatheRtModel *, const LatheRtPort **out);
typedef struct LatheRtModelInfo {
  const char *target;   /* the target string it was compiled for */
  const char *features; /* CPU features it needs */
  uint64_t weights_bytes;
  uint64_t storage_bytes; /* planned storage of an executor; 0 where sizes come at run time */
  uint64_t storage_bound; /* what no plan could go below */
  int32_t num_nodes;      /* kernel calls in the program */
  int32_t is_dynamic;     /* 1: control flow or sizes known at run time only; 2: calls of functions (loops) too */
} LatheRtModelInfo;
LATHE_RT_API LatheRtModelInfo lathe_rt_model_info(const LatheRtModel *);

LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_executor_new(LatheRtModel *, LatheRtExecutor **out, LatheRtError *err);
LATHE_RT_API void lathe_rt_executor_free(LatheRtExecutor *);
/* Inputs are copied in and stay for later runs; set_input_view borrows the memory until another input
 * is set in its place or the executor ends (compact, element-aligned).  Shapes are checked
 * against the model's. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input(LatheRtExecutor *, int32_t i, const LatheRtTensor *,
                                                           LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_view(LatheRtExecutor *, int32_t i, const LatheRtTensor *,
                                                                LatheRtError *err);
/* From now on each run leaves output i in this memory (compact, element-aligned, of the output's type and
 * shape, apart from inputs that are borrowed and from other outputs), until another place is set or the
 * executor ends; NULL: in the executor's own.  Kernels write there themselves where the program's plan
 * lets them; else it is copied. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_output_view(LatheRtExecutor *, int32_t i, const LatheRtTensor *,
                                                                 LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_run(LatheRtExecutor *, LatheRtError *err);
/* Borrowed until the next run or the end of the executor; of an input until it is set again. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_get_output(LatheRtExecutor *, int32_t i, const LatheRtTensor **out,
                                                            LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_get_input(LatheRtExecutor *, int32_t i, const LatheRtTensor **out,
                                                           LatheRtError *err);
/* A sequence or optional output or input, item after item (n -1: an optional that is absent). */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_get_output_items(LatheRtExecutor *, int32_t i, int32_t *n,
                                                                  const LatheRtTensor *const **out, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_items(LatheRtExecutor *, int32_t i, int32_t n,
                                                                 const LatheRtTensor *const *, LatheRtError *err);
/* Strings.  An element of a tensor of strings is a number that the executor knows the text by; equal
 * texts have equal numbers.  put gives the number of a text (copied; bytes, UTF-8 where operators look
 * at letters), get the text of a number, with a zero behind it.  Numbers and texts last until the next
 * run begins, those that an input holds as long as it does.  set_input_strings sets a whole input: one
 * text an element, row major, with bytes NULL each ending in a zero. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_string_put(LatheRtExecutor *, const char *text, size_t bytes,
                                                            uint64_t *out, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_string_get(const LatheRtExecutor *, uint64_t, const char **text,
                                                            size_t *bytes, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_strings(LatheRtExecutor *, int32_t i, int32_t ndim,
                                                                   const int64_t *shape, const char *const *text,
                                                                   const size_t *bytes, LatheRtError *err);
/* Workers for this executor's parallel loops; 0: as lathe_rt_num_threads says.  More than those
 * makes the pool larger. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_executor_set_threads(LatheRtExecutor *, int32_t n, LatheRtError *err);
/* Bytes that the executor holds: storage (planned, or the most a run has needed so far) and workspace. */
LATHE_RT_API void lathe_rt_executor_memory(const LatheRtExecutor *, uint64_t *storage, uint64_t *workspace);

/* The nodes of the program, for profiles and debugging. */
typedef struct LatheRtNode {
  const char *name;         /* "fused_nn_conv2d_add_nn_relu" */
  const char *source;       /* names of the source model's nodes, comma list */
  const char *impl;         /* which implementation, "conv2d.nchwc" */
  double flops, flops_done; /* by the formula; by the algorithm; of sizes known before the run.  0: not known */
  double bytes;             /* inputs, weights and outputs */
} LatheRtNode;
LATHE_RT_API const LatheRtNode *lathe_rt_model_node(const LatheRtModel *, int32_t i);
/* Called after each node with its seconds, what it read and what it wrote (tensors alone; valid during
 * the call); non-zero stops the run. */
typedef int32_t (*LatheRtNodeFn)(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                                 int32_t nout, const LatheRtTensor *const *out);
/* Operations of one call of a node, from the tensors that its watcher is shown; 0: not known. */
LATHE_RT_API void lathe_rt_node_work(const LatheRtModel *, int32_t node, int32_t nin, const LatheRtTensor *const *in,
                                     int32_t nout, const LatheRtTensor *const *out, double *flops, double *flops_done);
LATHE_RT_API void lathe_rt_executor_watch(LatheRtExecutor *, LatheRtNodeFn, void *user); /* NULL: no more */

/* ---- threads ------------------------------------------------------------------------ */

/* Workers used by parallel loops, the caller's thread counted.  At first
 * LATHE_NUM_THREADS, or the CPUs this thread may run on.  A LATHE_NUM_THREADS that is
 * not a number from 1 to 1024 makes every call fail with a sentence that says so,
 * until it is set here. */
LATHE_RT_API int32_t lathe_rt_num_threads(void);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_num_threads(int32_t n, LatheRtError *err);
/* Runs body over [0, n) on the pool: a contiguous part for each worker, taken in pieces;
 * whoever is through with its own helps the others.  The caller's thread is worker 0.
 * Returns the status of the first piece (by its begin) that was not 0.  Runs on the caller's thread alone when the pool
 * is busy for another thread (slot 0) or from inside a parallel loop (that loop's slot). */
LATHE_RT_API int32_t lathe_rt_parallel_for(int64_t n, LatheRtBody, void *env);

LATHE_RT_API const char *lathe_rt_version(void);
/* CPU features of this machine as a comma list, in LLVM's names. */
LATHE_RT_API const char *lathe_rt_cpu_features(void);

#ifdef __cplusplus
}
#endif
#endif
