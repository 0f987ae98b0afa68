/* onnxruntime.c: regions that are ONNX models, through ONNX Runtime.
 *
 * In: the bytes of a model as ONNX has it, weights inside.  Out: a module with one function whose arguments are the
 * model's inputs and then its outputs.  A size that the model leaves open is whatever the caller's tensors have.
 *
 * ONNX Runtime is found when the first such module is loaded: the file that LATHE_ONNXRUNTIME_LIBRARY names, or what
 * the system's loader has as libonnxruntime.so.  Its C interface is a table of functions to which new ones are only
 * appended, so that the few declared here stay where they are; the version of the interface that has them all is asked
 * for by its number. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

enum { API_VERSION = 12, LOG_ERRORS = 3, ARENA_ALLOCATOR = 1, DEFAULT_MEMORY = 0 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtOptions OrtOptions;
typedef struct OrtThreading OrtThreading;
typedef struct OrtValue OrtValue;
typedef struct OrtMemory OrtMemory;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtType OrtType;
typedef struct OrtTensorType OrtTensorType;
typedef const char *const *Names;

/* Place in the table, result, name, arguments. */
/* clang-format off */
#define FUNCTIONS(F)                                                                                                   \
  F(2, const char *, GetErrorMessage, (const OrtStatus *))                                                             \
  F(8, OrtStatus *, CreateSessionFromArray, (const OrtEnv *, const void *, size_t, const OrtOptions *, OrtSession **)) \
  F(9, OrtStatus *, Run, (OrtSession *, const void *options, Names in, const OrtValue *const *, size_t nin, Names out, \
                          size_t nout, OrtValue **))                                                                   \
  F(10, OrtStatus *, CreateSessionOptions, (OrtOptions **))                                                            \
  F(30, OrtStatus *, SessionGetInputCount, (const OrtSession *, size_t *))                                             \
  F(31, OrtStatus *, SessionGetOutputCount, (const OrtSession *, size_t *))                                            \
  F(33, OrtStatus *, SessionGetInputTypeInfo, (const OrtSession *, size_t, OrtType **))                                \
  F(34, OrtStatus *, SessionGetOutputTypeInfo, (const OrtSession *, size_t, OrtType **))                               \
  F(36, OrtStatus *, SessionGetInputName, (const OrtSession *, size_t, OrtAllocator *, char **))                       \
  F(37, OrtStatus *, SessionGetOutputName, (const OrtSession *, size_t, OrtAllocator *, char **))                      \
  F(49, OrtStatus *, CreateTensorWithDataAsOrtValue, (const OrtMemory *, void *, size_t, const int64_t *shape,         \
                                                      size_t rank, int type, OrtValue **))                             \
  F(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtType *, const OrtTensorType **))                              \
  F(60, OrtStatus *, GetTensorElementType, (const OrtTensorType *, int *))                                             \
  F(61, OrtStatus *, GetDimensionsCount, (const OrtTensorType *, size_t *))                                            \
  F(69, OrtStatus *, CreateCpuMemoryInfo, (int allocator, int memory, OrtMemory **))                                   \
  F(76, OrtStatus *, AllocatorFree, (OrtAllocator *, void *))                                                          \
  F(78, OrtStatus *, GetAllocatorWithDefaultOptions, (OrtAllocator **))                                                \
  F(93, void, ReleaseStatus, (OrtStatus *))                                                                            \
  F(95, void, ReleaseSession, (OrtSession *))                                                                          \
  F(96, void, ReleaseValue, (OrtValue *))                                                                              \
  F(98, void, ReleaseTypeInfo, (OrtType *))                                                                            \
  F(100, void, ReleaseSessionOptions, (OrtOptions *))                                                                  \
  F(119, OrtStatus *, CreateEnvWithGlobalThreadPools, (int log, const char *id, const OrtThreading *, OrtEnv **))      \
  F(120, OrtStatus *, DisablePerSessionThreads, (OrtOptions *))                                                        \
  F(121, OrtStatus *, CreateThreadingOptions, (OrtThreading **))                                                       \
  F(122, void, ReleaseThreadingOptions, (OrtThreading *))                                                              \
  F(147, OrtStatus *, SetGlobalIntraOpNumThreads, (OrtThreading *, int))                                               \
  F(148, OrtStatus *, SetGlobalInterOpNumThreads, (OrtThreading *, int))
#define FIELD(at, result, name, args) result(*name) args;
#define FETCH(at, result, name, args) memcpy(&ort.name, &table[at], sizeof ort.name);
/* clang-format on */

/* The library, opened once; a try that failed may be followed by another. */
static struct {
  FUNCTIONS(FIELD)
  OrtEnv *env; /* NULL: not open */
  OrtMemory *memory;
  OrtAllocator *allocator;
} ort;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A status of ONNX Runtime as a code of ours. */
static LatheRtCode check(OrtStatus *s, LatheRtCode code, const char *what, LatheRtError *err)
{
  if (!s) return LATHE_RT_OK;
  plugin_fail(err, code, "ONNX Runtime %s: %.360s", what, ort.GetErrorMessage(s));
  ort.ReleaseStatus(s);
  return code;
}
#define TRY(call, code, what)                            \
  do {                                                   \
    LatheRtCode try_code = check(call, code, what, err); \
    if (try_code != LATHE_RT_OK) return try_code;        \
  } while (0)

/* ---- the library ---------------------------------------------------------------------------- */

typedef struct OrtApiBase {
  const void *const *(*get_api)(uint32_t version);
  const char *(*version)(void);
} OrtApiBase;

static LatheRtCode find_library(void **out, LatheRtError *err)
{
  static const char *const names[] = {"libonnxruntime.so", "libonnxruntime.so.1"};
  const char *path = getenv("LATHE_ONNXRUNTIME_LIBRARY");
  if (path && *path && *path != '/')
    return plugin_fail(err, LATHE_RT_ARGUMENT, "LATHE_ONNXRUNTIME_LIBRARY is '%.200s'; give an absolute path", path);
  *out = NULL;
  if (path && *path) {
    *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *out ? LATHE_RT_OK : plugin_fail(err, LATHE_RT_IO, "LATHE_ONNXRUNTIME_LIBRARY: %.300s", dlerror());
  }
  for (int i = 0; i < 2 && !*out; i++) *out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (*out) return LATHE_RT_OK;
  return plugin_fail(err, LATHE_RT_UNSUPPORTED,
                     "ONNX Runtime is not here; install it (pip install onnxruntime), or name its libonnxruntime.so in "
                     "LATHE_ONNXRUNTIME_LIBRARY");
}

/* One pool of threads for all sessions: as many as Lathe's own loops use. */
static LatheRtCode make_environment(LatheRtError *err)
{
  const char *what = "does not start";
  OrtThreading *threads;
  OrtEnv *env = NULL;
  TRY(ort.GetAllocatorWithDefaultOptions(&ort.allocator), LATHE_RT_DEVICE, what);
  TRY(ort.CreateCpuMemoryInfo(ARENA_ALLOCATOR, DEFAULT_MEMORY, &ort.memory), LATHE_RT_DEVICE, what);
  TRY(ort.CreateThreadingOptions(&threads), LATHE_RT_DEVICE, what);
  LatheRtCode code = check(ort.SetGlobalIntraOpNumThreads(threads, lathe_rt_num_threads()), LATHE_RT_DEVICE, what, err);
  if (code == LATHE_RT_OK) code = check(ort.SetGlobalInterOpNumThreads(threads, 1), LATHE_RT_DEVICE, what, err);
  if (code == LATHE_RT_OK)
    code = check(ort.CreateEnvWithGlobalThreadPools(LOG_ERRORS, "lathe", threads, &env), LATHE_RT_DEVICE, what, err);
  ort.ReleaseThreadingOptions(threads);
  ort.env = env;
  return code;
}

static LatheRtCode open_library(LatheRtError *err)
{
  void *library;
  LatheRtCode code = find_library(&library, err);
  if (code != LATHE_RT_OK) return code;
  const OrtApiBase *(*get_base)(void) = NULL;
  void *symbol = dlsym(library, "OrtGetApiBase");
  memcpy(&get_base, &symbol, sizeof symbol);
  const OrtApiBase *base = get_base ? get_base() : NULL;
  if (!base) {
    dlclose(library);
    return plugin_fail(err, LATHE_RT_UNSUPPORTED, "the library that was found is not ONNX Runtime");
  }
  const void *const *table = base->get_api(API_VERSION);
  if (!table) {
    plugin_fail(err, LATHE_RT_UNSUPPORTED,
                "ONNX Runtime %.40s lacks version %d of its interface; 1.%d or newer is needed", base->version(),
                API_VERSION, API_VERSION);
    dlclose(library);
    return LATHE_RT_UNSUPPORTED;
  }
  FUNCTIONS(FETCH)
  return make_environment(err);
}

static LatheRtCode need_library(LatheRtError *err)
{
  pthread_mutex_lock(&lock);
  LatheRtCode code = ort.env ? LATHE_RT_OK : open_library(err);
  pthread_mutex_unlock(&lock);
  return code;
}

/* ---- a region ------------------------------------------------------------------------------- */

typedef struct Region {
  char *name;
  OrtSession *session;
  int nin, nout;
  char **port;         /* names of inputs, then of outputs */
  int *type;           /* of their elements, as ONNX numbers them */
  LatheRtArgInfo *arg; /* of both */
  LatheRtFuncInfo info;
} Region;

static void free_region(void *self)
{
  Region *r = self;
  for (int i = 0; r->port && i < r->nin + r->nout; i++)
    if (r->port[i]) ort.ReleaseStatus(ort.AllocatorFree(ort.allocator, r->port[i]));
  if (r->session) ort.ReleaseSession(r->session);
  free(r->port);
  free(r->type);
  free(r->arg);
  free(r->name);
  free(r);
}

/* By ONNX's number of a type of elements; bits 0: none of ours. */
static const LatheRtDType dtypes[] = {
  [1] = {2, 32, 1},  [2] = {1, 8, 1},   [3] = {0, 8, 1},  [4] = {1, 16, 1},  [5] = {0, 16, 1},
  [6] = {0, 32, 1},  [7] = {0, 64, 1},  [9] = {6, 8, 1},  [10] = {2, 16, 1}, [11] = {2, 64, 1},
  [12] = {1, 32, 1}, [13] = {1, 64, 1}, [16] = {4, 16, 1}};

static LatheRtCode read_type(const OrtType *t, Region *r, int i, LatheRtError *err)
{
  const char *what = "tells no type";
  const OrtTensorType *tensor = NULL;
  size_t rank;
  int type;
  TRY(ort.CastTypeInfoToTensorInfo(t, &tensor), LATHE_RT_UNSUPPORTED, what);
  if (!tensor) return plugin_fail(err, LATHE_RT_UNSUPPORTED, "'%.60s' is no tensor", r->port[i]);
  TRY(ort.GetTensorElementType(tensor, &type), LATHE_RT_UNSUPPORTED, what);
  TRY(ort.GetDimensionsCount(tensor, &rank), LATHE_RT_UNSUPPORTED, what);
  bool known = type > 0 && type < (int)(sizeof dtypes / sizeof *dtypes) && dtypes[type].bits;
  if (!known || rank > LATHE_RT_MAX_RANK)
    return plugin_fail(err, LATHE_RT_UNSUPPORTED, "'%.60s' is of ONNX's type %d and rank %zu", r->port[i], type, rank);
  r->type[i] = type;
  r->arg[i] = (LatheRtArgInfo){r->port[i], dtypes[type], (int32_t)rank, i < r->nin ? 0 : 1};
  return LATHE_RT_OK;
}

static LatheRtCode read_port(Region *r, int i, LatheRtError *err)
{
  bool in = i < r->nin;
  size_t at = (size_t)(in ? i : i - r->nin);
  OrtType *t;
  TRY((in ? ort.SessionGetInputName : ort.SessionGetOutputName)(r->session, at, ort.allocator, &r->port[i]),
      LATHE_RT_UNSUPPORTED, "tells no name");
  TRY((in ? ort.SessionGetInputTypeInfo : ort.SessionGetOutputTypeInfo)(r->session, at, &t), LATHE_RT_UNSUPPORTED,
      "tells no type");
  LatheRtCode code = read_type(t, r, i, err);
  ort.ReleaseTypeInfo(t);
  return code;
}

static LatheRtCode make_session(Region *r, const void *bytes, size_t n, LatheRtError *err)
{
  OrtOptions *options;
  size_t nin;
  size_t nout;
  TRY(ort.CreateSessionOptions(&options), LATHE_RT_DEVICE, "makes no session");
  LatheRtCode code = check(ort.DisablePerSessionThreads(options), LATHE_RT_DEVICE, "makes no session", err);
  if (code == LATHE_RT_OK)
    code = check(ort.CreateSessionFromArray(ort.env, bytes, n, options, &r->session), LATHE_RT_UNSUPPORTED,
                 "does not take the model", err);
  ort.ReleaseSessionOptions(options);
  if (code != LATHE_RT_OK) return code;
  TRY(ort.SessionGetInputCount(r->session, &nin), LATHE_RT_UNSUPPORTED, "tells no inputs");
  TRY(ort.SessionGetOutputCount(r->session, &nout), LATHE_RT_UNSUPPORTED, "tells no outputs");
  r->port = calloc(nin + nout + 1, sizeof *r->port);
  r->type = calloc(nin + nout + 1, sizeof *r->type);
  r->arg = calloc(nin + nout + 1, sizeof *r->arg);
  if (!r->port || !r->type || !r->arg) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a model");
  r->nin = (int)nin;
  r->nout = (int)nout;
  for (int i = 0; i < r->nin + r->nout && code == LATHE_RT_OK; i++) code = read_port(r, i, err);
  return code;
}

static LatheRtCode find(void *self, const char *name, const LatheRtFuncInfo **out, LatheRtError *err)
{
  Region *r = self;
  if (strcmp(name, r->name))
    return plugin_fail(err, LATHE_RT_NOT_FOUND, "the module has '%.100s' and no '%.100s'", r->name, name);
  *out = &r->info;
  return LATHE_RT_OK;
}

/* ONNX Runtime reads and writes the caller's memory. */
static LatheRtCode wrap(const Region *r, int i, const LatheRtTensor *t, OrtValue **out, LatheRtError *err)
{
  static int64_t nothing; /* where a tensor without elements may have no memory */
  size_t bytes = r->arg[i].dtype.bits / 8;
  for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
  void *data = bytes ? (char *)t->data + t->byte_offset : (char *)&nothing;
  return check(ort.CreateTensorWithDataAsOrtValue(ort.memory, data, bytes, t->shape, (size_t)t->ndim, r->type[i], out),
               LATHE_RT_ARGUMENT, "takes no tensor", err);
}

static LatheRtCode call(void *self, const LatheRtFuncInfo *info, int32_t n, const LatheRtArg *arg,
                        const LatheRtCalls *calls, LatheRtError *err)
{
  Region *r = self;
  (void)info, (void)calls;
  if (n != r->nin + r->nout)
    return plugin_fail(err, LATHE_RT_ARGUMENT, "'%.60s' takes %d tensors, not %d", r->name, r->nin + r->nout, n);
  OrtValue **value = calloc((size_t)n + 1, sizeof *value);
  if (!value) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a call");
  LatheRtCode code = LATHE_RT_OK;
  for (int i = 0; i < n && code == LATHE_RT_OK; i++) code = wrap(r, i, arg[i].tensor, &value[i], err);
  if (code == LATHE_RT_OK)
    code = check(ort.Run(r->session, NULL, (Names)r->port, (const OrtValue *const *)value, (size_t)r->nin,
                         (Names)(r->port + r->nin), (size_t)r->nout, value + r->nin),
                 LATHE_RT_KERNEL, "failed", err);
  for (int i = 0; i < n; i++)
    if (value[i]) ort.ReleaseValue(value[i]);
  free(value);
  return code;
}

static LatheRtCode load(void *user, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                        LatheRtError *err)
{
  (void)user;
  LatheRtError why = {""};
  LatheRtCode code = need_library(&why);
  Region *r = code == LATHE_RT_OK ? calloc(1, sizeof *r) : NULL;
  if (r) r->name = strdup(name);
  if (code == LATHE_RT_OK && (!r || !r->name)) code = plugin_fail(&why, LATHE_RT_MEMORY, "no memory for a model");
  if (code == LATHE_RT_OK) code = make_session(r, bytes, n, &why);
  const LatheRtModuleApi api = {
    .size = sizeof api, .kind = "onnxruntime", .find = find, .call = call, .free = free_region};
  if (code == LATHE_RT_OK) {
    r->info = (LatheRtFuncInfo){.name = r->name, .nargs = r->nin + r->nout, .args = r->arg};
    code = lathe_rt_module_new(&api, r, out, &why);
  }
  if (code != LATHE_RT_OK) {
    plugin_fail(err, code, "module '%.60s' of kind 'onnxruntime': %.380s", name, why.text);
    if (r) free_region(r);
  }
  return code;
}

LATHE_RT_API const LatheRtPlugin lathe_plugin = {"LATHEPL",     LATHE_RT_ABI, sizeof lathe_plugin,
                                                 "onnxruntime", load,         NULL};
