/* lathe_rt.h: the runtime, for programs that load and run what Lathe compiled.
 *
 *   devices    where memory is and code runs: a table of functions each; the CPU is always there
 *   tensors    elements on a device
 *   modules    compiled code that is called by name: a shared library, or somebody else's
 *   objects    what lives between calls: a cache, a state
 *   models     kernels, weights and programs over them, with one or more entries
 *   executors  a model being run
 *   threads    the pool behind parallel loops
 *
 * Every function returns a LatheRtCode and, where it fails, writes one sentence into
 * err (may be NULL).  There are no globals to set up and no aborts.  Tensors
 * follow DLPack: DLTensor and LatheRtTensor have the same layout.
 *
 * A struct that the caller fills begins with its size, LATHE_RT_INIT: later versions add fields
 * at the end, and what an older caller does not have is zero. */
#ifndef LATHE_RT_H
#define LATHE_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_RT_ABI 2
/* The first field of a struct that the caller fills: LatheRtLoad how = {LATHE_RT_INIT(how), .progress = …}. */
#define LATHE_RT_INIT(variable) .size = sizeof(variable)
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
  LATHE_RT_KERNEL,  /* a kernel or a function it called reported failure */
  LATHE_RT_DEVICE,  /* a device reported failure */
  LATHE_RT_STOPPED, /* the caller asked for it */
} LatheRtCode;

typedef struct LatheRtError {
  char text[512];
} LatheRtError;

/* ---- devices ------------------------------------------------------------------ */

/* Types as DLPack numbers them. */
typedef enum {
  LATHE_RT_CPU = 1,
  LATHE_RT_CUDA = 2,
  LATHE_RT_OPENCL = 4,
  LATHE_RT_VULKAN = 7,
  LATHE_RT_METAL = 8,
  LATHE_RT_ROCM = 10,
  LATHE_RT_EXT = 12, /* whatever else */
  LATHE_RT_WEBGPU = 15,
} LatheRtDeviceType;
typedef struct LatheRtDevice {
  int32_t type, id;
} LatheRtDevice;

/* Memory on a device: what alloc gave, and bytes from there on. */
typedef struct LatheRtPlace {
  LatheRtDevice device;
  void *data;
  uint64_t offset;
} LatheRtPlace;
/* How often a kernel of an image runs: blocks of threads. */
typedef struct LatheRtGrid {
  int64_t grid[3], block[3]; /* x, y, z */
  int64_t shared_bytes;      /* of dynamic shared memory */
} LatheRtGrid;
union LatheRtSlot;

/* All devices of one type.  Streams, events, images and their functions are the device's own handles.  Work of a
 * stream is done in order, possibly later: copies and launches return when they are asked for, and
 * what they read and write is left alone until the stream has been waited for.  A NULL stream
 * is the device's default one.  Functions may be called from any thread.
 * A device without streams of its own has NULL for those five of streams and events, and finishes all it is asked
 * at once.  One that runs no code has NULL for image_load, image_free, image_func and launch. */
typedef struct LatheRtDeviceApi {
  uint32_t size;    /* of this struct */
  int32_t type;     /* LatheRtDeviceType */
  int32_t count;    /* ids run from 0 to count - 1 */
  uint32_t align;   /* of its tensors, bytes: a power of two */
  const char *name; /* "cuda", in messages */
  const char *arch; /* what its code is made for, "sm_90"; "": of one kind only */
  void *user;       /* handed to each function */
  LatheRtCode (*alloc)(void *user, int32_t id, size_t bytes, size_t align, void **out, LatheRtError *err);
  void (*free)(void *user, int32_t id, void *data);
  /* At least one side is on a device of this type; the other may be on the CPU, and, where the device can do that
   * (else it answers LATHE_RT_UNSUPPORTED and the bytes go through the CPU), on a third. */
  LatheRtCode (*copy)(void *user, LatheRtPlace to, LatheRtPlace from, size_t bytes, void *stream, LatheRtError *err);
  LatheRtCode (*synchronise)(void *user, int32_t id, void *stream, LatheRtError *err);
  LatheRtCode (*stream_new)(void *user, int32_t id, void **out, LatheRtError *err);
  void (*stream_free)(void *user, int32_t id, void *stream);
  /* A mark in a stream, and another stream of the same device type that goes on only when it has been passed. */
  LatheRtCode (*event_record)(void *user, int32_t id, void *stream, void **out, LatheRtError *err);
  LatheRtCode (*event_wait)(void *user, int32_t id, void *stream, void *event, LatheRtError *err);
  void (*event_free)(void *user, int32_t id, void *event);
  LatheRtCode (*image_load)(void *user, int32_t id, const void *image, size_t bytes, void **out, LatheRtError *err);
  void (*image_free)(void *user, int32_t id, void *image);
  LatheRtCode (*image_func)(void *user, int32_t id, void *image, const char *name, void **out, LatheRtError *err);
  /* Pointers among the arguments are what alloc gave, offsets added where the device allows for that. */
  LatheRtCode (*launch)(void *user, int32_t id, void *func, const LatheRtGrid *, int32_t n,
                        const union LatheRtSlot *args, void *stream, LatheRtError *err);
} LatheRtDeviceApi;
/* Tells the runtime of devices of another type (the struct is copied; name, arch and user stay the caller's).  The same
 * type again replaces it: what lives on the old ones must be gone. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_device_add(const LatheRtDeviceApi *, LatheRtError *err);
/* The table of a device type; NULL: this process has none such. */
LATHE_RT_API const LatheRtDeviceApi *lathe_rt_device_api(int32_t type);
/* Copies between any two devices and waits until it is done. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_device_copy(LatheRtPlace to, LatheRtPlace from, size_t bytes,
                                                             LatheRtError *err);

/* ---- tensors ---------------------------------------------------------------- */

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

/* A tensor with its own memory (aligned as the device says, zeroed).  Free with lathe_rt_tensor_free. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_new(LatheRtDevice, LatheRtDType, int32_t ndim,
                                                            const int64_t *shape, LatheRtTensor **out,
                                                            LatheRtError *err);
LATHE_RT_API void lathe_rt_tensor_free(LatheRtTensor *);
/* Bytes of its elements without gaps, whatever the strides. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_bytes(const LatheRtTensor *, size_t *out, LatheRtError *err);
/* Same dtype and shape, on any two devices; on the CPU either side may be strided.  Tensors that
 * overlap in part give unspecified values. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_tensor_copy(const LatheRtTensor *from, LatheRtTensor *to,
                                                             LatheRtError *err);

/* ---- objects ------------------------------------------------------------------- */

/* A value that programs hand on and do not look into: what a packed function made (with the function that ends it), or
 * data of a model's own types.  Counted, from any thread. */
typedef struct LatheRtObject LatheRtObject;
/* kind names what data is, for whoever takes it out again.  drop(data) runs when the last reference goes. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_object_new(const char *kind, void *data, void (*drop)(void *),
                                                            LatheRtObject **out, LatheRtError *err);
LATHE_RT_API LatheRtObject *lathe_rt_object_retain(LatheRtObject *);
LATHE_RT_API void lathe_rt_object_free(LatheRtObject *); /* gives one reference back */
/* The data, if it is of that kind; else NULL. */
LATHE_RT_API void *lathe_rt_object_data(const LatheRtObject *, const char *kind);
LATHE_RT_API const char *lathe_rt_object_kind(const LatheRtObject *); /* of a model's own data: "model" */

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
  enum {
    LATHE_RT_ARG_INT,
    LATHE_RT_ARG_FLOAT,
    LATHE_RT_ARG_STR,
    LATHE_RT_ARG_HANDLE,
    LATHE_RT_ARG_TENSOR,
    LATHE_RT_ARG_OBJECT,
    LATHE_RT_ARG_NONE,
  } tag;
  union {
    int64_t i;
    double f;
    const char *s;
    void *p;
    LatheRtTensor *t;
    LatheRtObject *o;
  } u;
} LatheRtPackedArg;
/* What kernels may call, handed to each of them.  A kernel without parallel loops, calls and
 * launches (LATHE_RT_FUNC_PLAIN) never looks at it and may be given NULL. */
struct LatheRtCalls {
  uint32_t abi;
  int32_t num_workers; /* slots run from 0 to num_workers - 1 */
  int32_t (*parallel_for)(const LatheRtCalls *, int64_t n, LatheRtBody, void *env);
  int32_t (*call_packed)(const LatheRtCalls *, const char *name, int32_t n, const LatheRtPackedArg *);
  void *pool;
  void *user;
  /* Starts a function of the image that the model has for the kernel's device, on the executor's stream. */
  int32_t (*launch)(const LatheRtCalls *, const char *name, const LatheRtGrid *, int32_t n, const LatheRtSlot *);
};

/* A kernel as compiled code exports it: a function of the host.  Its tensors are on the device that the model says;
 * where that is not the CPU, the host looks at none of them and launches.
 * call:  slots are the arguments in the user's order (pointer to the first
 *        element, or scalar), then the sizes.  Returns 0, or a status of the user's.
 * shape: given the same slots (pointers unused), writes the shape each tensor must
 *        have, dimension after dimension in argument order, then the bytes of the
 *        shared workspace, then the bytes of one worker's slice.
 * workspace: the shared part, then num_workers slices; each part's size is rounded up
 *        to the module's `align` and its start is so aligned.  So slice s starts at
 *        round(shared) + s * round(slice).  Each call has a workspace of its own, on the kernel's device.
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
  int64_t workspace, slice; /* bytes of the shared part and of one worker's slice; -1: sizes decide, shape tells */
  uint32_t flags;           /* LATHE_RT_FUNC_* */
  uint32_t reserved;
} LatheRtFuncInfo;
enum { LATHE_RT_FUNC_PLAIN = 1 }; /* never looks at its LatheRtCalls */
/* Exported as the symbol `lathe_module`; a model's second is `lathe_module_1`, and so on. */
typedef struct LatheRtModuleInfo {
  char magic[8]; /* "LATHERT" and a zero */
  uint32_t abi;
  int32_t nfuncs;
  const char *arch;     /* "x86_64", "aarch64", … */
  const char *features; /* comma list that the code needs, "avx512f,fma" */
  const LatheRtFuncInfo *funcs;
  uint32_t align; /* of workspaces, bytes: a power of two */
  uint32_t reserved;
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

typedef struct LatheRtArg {
  const LatheRtTensor *tensor; /* or NULL for a scalar */
  LatheRtSlot scalar;
} LatheRtArg;
/* Code of another kind: what an external code generator made, or functions of another machine. */
typedef struct LatheRtModuleApi {
  uint32_t size;    /* of this struct */
  const char *kind; /* "library" is Lathe's own */
  /* The function's name, arguments and sizes as LatheRtFuncInfo has them, good while the module lives; its call and
   * shape may be NULL: then `call` below does it, and what shapes fit is its own business.  NOT_FOUND: none such. */
  LatheRtCode (*find)(void *self, const char *name, const LatheRtFuncInfo **out, LatheRtError *err);
  /* Tensors are compact; may be called from many threads at once.  NULL where every function has its own call. */
  LatheRtCode (*call)(void *self, const LatheRtFuncInfo *, int32_t n, const LatheRtArg *, const LatheRtCalls *,
                      LatheRtError *err);
  /* Hands its bytes to write, piece after piece; what load of the same kind gets.  NULL: it cannot be saved. */
  LatheRtCode (*save)(void *self, LatheRtCode (*write)(void *to, const void *bytes, size_t n), void *to,
                      LatheRtError *err);
  void (*free)(void *self); /* when the last reference goes; may be NULL */
} LatheRtModuleApi;
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_new(const LatheRtModuleApi *, void *self, LatheRtModule **out,
                                                            LatheRtError *err);
/* How modules of another kind that a model carries come to life from their bytes.  The same kind again replaces it;
 * load NULL removes it. */
typedef LatheRtCode (*LatheRtModuleLoad)(void *user, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                                         LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_kind_add(const char *kind, LatheRtModuleLoad load, void *user,
                                                                 LatheRtError *err);
/* A plugin: a shared library with the loader of a kind, which it exports in the symbol `lathe_plugin`.  Where a model
 * has a module of a kind that nobody has added, lathe_plugin_KIND.so is looked for in the folders of LATHE_PLUGIN_PATH
 * (absolute, with colons between them) and in the folder lathe-plugins beside the runtime, and nowhere else.  It stays
 * for the life of the process.  One that others than root and this user can write is refused. */
typedef struct LatheRtPlugin {
  char magic[8]; /* "LATHEPL" and a zero */
  uint32_t abi;  /* LATHE_RT_ABI */
  uint32_t size; /* of this struct */
  const char *kind;
  LatheRtModuleLoad load;
  void *user;
} LatheRtPlugin;
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_plugin_load(const char *path, LatheRtError *err); /* by name */
/* Asks a module for its bytes; UNSUPPORTED where it has none (a library is its file). */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_save(
    LatheRtModule *, LatheRtCode (*write)(void *to, const void *bytes, size_t n), void *to, LatheRtError *err);
LATHE_RT_API void lathe_rt_module_free(LatheRtModule *);
LATHE_RT_API const char *lathe_rt_module_kind(const LatheRtModule *);
LATHE_RT_API const LatheRtModuleInfo *lathe_rt_module_info(const LatheRtModule *); /* NULL: not a library */
/* Borrowed from the module. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_module_func(LatheRtModule *, const char *name, LatheRtFunc **out,
                                                             LatheRtError *err);
LATHE_RT_API const LatheRtFuncInfo *lathe_rt_func_info(const LatheRtFunc *);

/* Checks every argument (number, dtype, rank, shape, device, alignment) and runs.
 * Safe from many threads at once. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_func_call(LatheRtFunc *, int32_t n, const LatheRtArg *,
                                                           LatheRtError *err);
/* Runs it `repeat` times `number` calls each (after one warm-up call), raising
 * number until a repeat takes min_repeat_ms; seconds[repeat] per call. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_func_time(LatheRtFunc *, int32_t n, const LatheRtArg *, int32_t number,
                                                           int32_t repeat, double min_repeat_ms, double *seconds,
                                                           LatheRtError *err);

/* Functions that kernels (tvm_call_packed) and programs call by name.  Non-zero from fn stops the caller.
 * result is NULL where none is wanted; else it is LATHE_RT_ARG_NONE and may be set to an object, whose reference is
 * handed over, to an int or a float, or to a tensor, which is copied.  Registering a name again replaces it;
 * NULL removes it. */
typedef int32_t (*LatheRtPackedFn)(void *user, int32_t n, const LatheRtPackedArg *, LatheRtPackedArg *result);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_register(const char *name, LatheRtPackedFn, void *user,
                                                          LatheRtError *err);

/* ---- models ---------------------------------------------------------------------------- */

/* A compiled model: kernels, weights, and programs over them (runtime/model_format.h has
 * the format; it is checked whole when loaded).  Models are counted; executors keep theirs.
 * One model may be run from many threads at once, each with an executor of its own: the
 * weights are shared.
 *
 * Its weights may lie in the file as they were trained.  Loading then runs the model's own entry `prepare`, on all
 * workers, which brings them into the form that the kernels want. */
typedef struct LatheRtModel LatheRtModel;
typedef struct LatheRtExecutor LatheRtExecutor;
/* What a file exports as the symbol `lathe_model`, beside `lathe_module`. */
typedef struct LatheRtModelData {
  char magic[8]; /* "LATHEMD" and a zero */
  uint32_t size; /* of this struct */
  uint32_t nmodules;
  const void *program; /* runtime/model_format.h */
  uint64_t program_bytes;
  const void *weights;
  uint64_t weights_bytes;
  const void *const *consts;               /* NULL, or where each constant lies instead: models in memory */
  const LatheRtModuleInfo *const *modules; /* its libraries; NULL: the module itself is the only one */
} LatheRtModelData;
/* A file with code for several CPUs exports an array of these as `lathe_variants`, ended by a row of zeros: whole
 * models, the most demanding first.  The first whose features this machine has is the one that is loaded.
 * `lathe_module` and `lathe_model` are those of the last. */
typedef struct LatheRtVariant {
  const LatheRtModuleInfo *module;
  const LatheRtModelData *model;
} LatheRtVariant;
/* How to load. */
typedef struct LatheRtLoad {
  uint32_t size; /* of this struct */
  /* NULL, or a folder that only this user can write: prepared weights are kept there in a file, which later
   * loads and other processes map.  A folder that cannot be written, or is not the user's alone, is not used. */
  const char *cache;
  /* NULL, or told while weights are prepared: so many of so many bytes; non-zero stops the load (LATHE_RT_STOPPED). */
  int32_t (*progress)(void *user, uint64_t done, uint64_t total);
  void *user;
  int32_t look_only; /* 1: to be looked at, on any machine; executors cannot be made */
} LatheRtLoad;
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_load(const char *path, LatheRtModel **out, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_load_with(const char *path, const LatheRtLoad *,
                                                                 LatheRtModel **out, LatheRtError *err);
/* The model that a loaded module carries; NOT_FOUND when it has kernels only. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_of(LatheRtModule *, LatheRtModel **out, LatheRtError *err);
/* A model in memory over a module's kernels.  The data (but not the struct) must stay until
 * drop(user), which runs when the last reference goes.  how may be NULL. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_wrap(LatheRtModule *, const LatheRtModelData *,
                                                            const LatheRtLoad *how, void (*drop)(void *), void *user,
                                                            LatheRtModel **out, LatheRtError *err);
LATHE_RT_API LatheRtModel *lathe_rt_model_retain(LatheRtModel *);
LATHE_RT_API void lathe_rt_model_free(LatheRtModel *); /* gives one reference back */

typedef enum {
  LATHE_RT_PORT_TENSOR,
  LATHE_RT_PORT_SEQUENCE,
  LATHE_RT_PORT_OPTIONAL,
  LATHE_RT_PORT_OPTIONAL_SEQUENCE,
  LATHE_RT_PORT_OBJECT,
} LatheRtPortKind;
/* A map of a source model is two ports that follow each other: NAME.keys, a vector, and NAME.values: a vector, or for a
 * sequence of maps with the same keys a matrix with a row for each map. */
typedef struct LatheRtPort {
  const char *name;
  LatheRtDType dtype;
  int32_t ndim;         /* -1: a sequence or optional, an object, or rank known at run time only */
  const int64_t *shape; /* -1: known at run time */
  const char *type;     /* as text: "Tensor[(1, n, 64), float32]" */
  int32_t kind;         /* LatheRtPortKind */
  LatheRtDevice device; /* where it is: an input is copied there; an output is copied from there with tensor_copy */
} LatheRtPort;
/* A function that the model exports. */
typedef struct LatheRtEntry {
  const char *name;
  int32_t ninputs, noutputs;
  const LatheRtPort *inputs, *outputs;
  uint64_t storage_bytes; /* planned storage of an executor; 0 where sizes come at run time */
  uint64_t storage_bound; /* what no plan could go below */
  int32_t is_dynamic;     /* 1: control flow or sizes known at run time only; 2: calls of functions (loops) too */
} LatheRtEntry;
/* The first one is what an executor begins with ("main"). */
LATHE_RT_API int32_t lathe_rt_model_entries(const LatheRtModel *);
LATHE_RT_API const LatheRtEntry *lathe_rt_model_entry(const LatheRtModel *, int32_t i); /* NULL: there is none such */
/* Its number; the sentence names those that there are. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_model_find(const LatheRtModel *, const char *entry, int32_t *out,
                                                            LatheRtError *err);
/* Those of the first entry. */
LATHE_RT_API int32_t lathe_rt_model_inputs(const LatheRtModel *, const LatheRtPort **out);
LATHE_RT_API int32_t lathe_rt_model_outputs(const LatheRtModel *, const LatheRtPort **out);
typedef struct LatheRtModelInfo {
  uint32_t size;        /* of this struct, set by the caller */
  int32_t num_nodes;    /* kernel calls in the programs, but those that prepare weights */
  const char *target;   /* the target string it was compiled for */
  const char *features; /* CPU features it needs */
  uint64_t weights_bytes;
  uint64_t storage_bytes; /* of the first entry, as LatheRtEntry has them */
  uint64_t storage_bound;
  int32_t is_dynamic;
  int32_t from_cache;      /* 1: prepared weights were mapped from the cache */
  uint64_t prepared_bytes; /* of weights_bytes that were brought into another form at load: memory of the process */
  const char *cache_note;  /* why the cache was not used or not written; "": it was, or none was asked for */
  int32_t num_strings;     /* texts of the model's own: the numbers below it, in every executor */
} LatheRtModelInfo;
LATHE_RT_API void lathe_rt_model_info(const LatheRtModel *, LatheRtModelInfo *out);

LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_executor_new(LatheRtModel *, LatheRtExecutor **out, LatheRtError *err);
LATHE_RT_API void lathe_rt_executor_free(LatheRtExecutor *);
/* From now on inputs, outputs and runs are those of this entry.  Each entry keeps its inputs, and its outputs until
 * its own next run. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_executor_select(LatheRtExecutor *, int32_t entry, LatheRtError *err);
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
/* What a model keeps from one run to the next (a recurrent cell's state, variables) begins anew with the next run. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_executor_reset(LatheRtExecutor *, LatheRtError *err);
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
/* An object: input i gets a reference of its own; the output's is borrowed until the next run (retain keeps it).  Data
 * of the model's own types goes back to the executor that made it, and to no other. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_object(LatheRtExecutor *, int32_t i, LatheRtObject *,
                                                                  LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_get_output_object(LatheRtExecutor *, int32_t i, LatheRtObject **out,
                                                                   LatheRtError *err);
/* Strings.  An element of a tensor of strings is a number that the executor knows the text by; equal
 * texts have equal numbers.  put gives the number of a text (copied; bytes, UTF-8 where operators look
 * at letters), get the text of a number, with a zero behind it.  Numbers and texts last until the next
 * run begins, those that an input holds as long as it does; the model's own (num_strings of its info) always.
 * set_input_strings sets a whole input: one text an element, row major, with bytes NULL each ending in a zero;
 * set_input_texts takes them one behind the other in memory, each ending in a zero; set_input_map so the n keys of a
 * map, input i, and its values, input i + 1. */
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_string_put(LatheRtExecutor *, const char *text, size_t bytes,
                                                            uint64_t *out, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_string_get(const LatheRtExecutor *, uint64_t, const char **text,
                                                            size_t *bytes, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_strings(LatheRtExecutor *, int32_t i, int32_t ndim,
                                                                   const int64_t *shape, const char *const *text,
                                                                   const size_t *bytes, LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_texts(LatheRtExecutor *, int32_t i, int32_t ndim,
                                                                 const int64_t *shape, const char *texts,
                                                                 LatheRtError *err);
LATHE_RT_API LATHE_RT_CHECK LatheRtCode lathe_rt_set_input_map(LatheRtExecutor *, int32_t i, int32_t n,
                                                               const char *keys, const LatheRtTensor *values,
                                                               LatheRtError *err);
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
/* The name of kernel i, NULL behind the last; and how it is computed: "WORKLOAD PLAN", then, behind tabs, the seconds
 * that the compiler predicted and how many plans it had to choose from; "" where there was nothing to choose. */
LATHE_RT_API const char *lathe_rt_model_kernel(const LatheRtModel *, int32_t i, const char **plan);
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
