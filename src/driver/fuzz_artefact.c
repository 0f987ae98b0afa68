/* fuzz_artefact.c: the loader of models on hostile bytes.
 *
 * The input is a program (runtime/model_format.h) over two hand-written kernels, a packed function "p" and some
 * weights, which it may prepare.  It must load or be refused with a sentence; what loads is run, with a limit on
 * calls: a program may loop for ever. */
#include <stdlib.h>
#include <string.h>

#include "../../runtime/model.h"

static int32_t add_call(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  if (workspace) memset(workspace, 1, 64 + 64 * (size_t)rt->num_workers);
  for (int64_t i = 0; i < s[3].i; i++) ((float *)s[2].p)[i] = ((const float *)s[0].p)[i] + ((const float *)s[1].p)[i];
  return 0;
}
static void add_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = out[2] = s[3].i;
  out[3] = out[4] = 64;
}
static int32_t scale_call(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace, (void)rt;
  for (int64_t i = 0; i < s[3].i; i++) ((float *)s[1].p)[i] = ((const float *)s[0].p)[i] * (float)s[2].f;
  return 0;
}
static void scale_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = s[3].i;
  out[2] = out[3] = 0;
}
static const LatheRtArgInfo add_args[] = {{"a", {2, 32, 1}, 1, 0}, {"b", {2, 32, 1}, 1, 0}, {"c", {2, 32, 1}, 1, 1}};
static const LatheRtArgInfo scale_args[] = {{"x", {2, 32, 1}, 1, 0}, {"y", {2, 32, 1}, 1, 1}, {"k", {2, 32, 1}, -1, 0}};
static const LatheRtSizeInfo sizes[] = {{"n", 0, 0}};
static const LatheRtFuncInfo funcs[] = {
  {"add", add_call, add_shape, 3, 1, add_args, sizes, -1, -1, 0, 0},
  {"scale", scale_call, scale_shape, 3, 1, scale_args, sizes, 0, 0, LATHE_RT_FUNC_PLAIN, 0},
};
static const LatheRtModuleInfo info = {"LATHERT", LATHE_RT_ABI, 2, NULL, "", funcs, 64, 0};
static _Alignas(64) const float weights[16] = {1, 2, 3, 4};

/* A refused giant allocation is a result. */
LATHE_RT_API const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1000"; }

enum { MOST_STORAGE = 1 << 24, MOST_CALLS = 50 };

static void set_input(LatheRtExecutor *x, int32_t i, const LatheRtPort *port, LatheRtObject *object)
{
  LatheRtError err;
  float a[64] = {0};
  int64_t dim = 4;
  LatheRtTensor t = {.data = a, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = &dim};
  LatheRtCode code;
  if (port->kind == LATHE_RT_PORT_OBJECT) code = object ? lathe_rt_set_input_object(x, i, object, &err) : LATHE_RT_OK;
  else if (port->dtype.code == LATHE_RT_STRING)
    code =
        lathe_rt_set_input_strings(x, i, 1, &dim, (const char *const[]){"a", "", "12", "\xc3\xa4 b\xff"}, NULL, &err);
  else code = lathe_rt_set_input(x, i, &t, &err);
  (void)code;
}

/* Every entry, one after the other; an object that one gives goes to the next ones. */
static void run(LatheRtModel *m)
{
  LatheRtExecutor *x;
  LatheRtError err;
  LatheRtObject *object = NULL;
  for (int32_t e = 0; e < lathe_rt_model_entries(m); e++)
    if (lathe_rt_model_entry(m, e)->storage_bytes > MOST_STORAGE) return;
  if (lathe_rt_executor_new(m, &x, &err)) return;
  for (int32_t e = 0; e < lathe_rt_model_entries(m); e++) {
    const LatheRtEntry *entry = lathe_rt_model_entry(m, e);
    LatheRtObject *given;
    if (lathe_rt_executor_select(x, e, &err)) continue;
    for (int32_t i = 0; i < entry->ninputs; i++) set_input(x, i, &entry->inputs[i], object);
    x->calls_left = MOST_CALLS;
    if (lathe_rt_run(x, &err)) continue;
    for (int32_t i = 0; i < entry->noutputs; i++)
      if (!object && !lathe_rt_get_output_object(x, i, &given, &err)) object = lathe_rt_object_retain(given);
  }
  lathe_rt_executor_free(x);
  lathe_rt_object_free(object);
}

/* A packed function that gives an object. */
static void drop(void *data) { free(data); }
static int32_t packed(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  (void)user, (void)n, (void)arg;
  if (!result) return 0;
  void *data = malloc(1);
  if (!data || lathe_rt_object_new("fuzz", data, drop, &result->u.o, NULL)) {
    free(data);
    return 1;
  }
  result->tag = LATHE_RT_ARG_OBJECT;
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
  LatheRtModule *module;
  LatheRtModel *m;
  LatheRtError err = {""};
  if (lathe_rt_register("p", packed, NULL, &err)) abort();
  if (lathe_rt_module_wrap(&info, NULL, NULL, &module, &err)) abort();
  LatheRtModelData data = {.magic = "LATHEMD",
                           .size = sizeof data,
                           .nmodules = 1,
                           .program = bytes,
                           .program_bytes = n,
                           .weights = weights,
                           .weights_bytes = sizeof weights};
  if (lathe_rt_model_wrap(module, &data, NULL, NULL, NULL, &m, &err)) {
    if (!err.text[0]) abort();
  } else {
    run(m);
    lathe_rt_model_free(m);
  }
  lathe_rt_module_free(module);
  return 0;
}
