/* test_module.c: modules of hand-written kernels: lookup, every refusal of a call,
 * sizes, workspaces, packed functions, timing, loading of good and bad files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "lathe_rt.h"
#include "test_sanitizers.h"

#if defined(__x86_64__)
#define ARCH "x86_64"
#elif defined(__aarch64__)
#define ARCH "aarch64"
#endif
#define F32 {2, 32, 1}

/* ---- kernels ------------------------------------------------------------------------- */

/* C[m, n] = A[m, k] @ B[k, n]; sizes m, n, k.  Rows in parallel; each worker adds up a
 * row in its slice, and the shared part counts finished rows. */
typedef struct MatmulEnv {
  const LatheRtSlot *slot;
  char *workspace;
} MatmulEnv;

static size_t round64(int64_t n) { return (size_t)(n + 63) / 64 * 64; }

static int32_t matmul_rows(int64_t begin, int64_t end, int32_t slot, void *env)
{
  const MatmulEnv *e = env;
  const float *A = e->slot[0].p;
  const float *B = e->slot[1].p;
  float *C = e->slot[2].p;
  int64_t n = e->slot[4].i;
  int64_t k = e->slot[5].i;
  float *row = (float *)(e->workspace + 64 + (size_t)slot * round64(n * 4));
  for (int64_t i = begin; i < end; i++) {
    memset(row, 0, (size_t)n * 4);
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++) row[j] += A[i * k + l] * B[l * n + j];
    memcpy(C + i * n, row, (size_t)n * 4);
    atomic_fetch_add((atomic_int *)e->workspace, 1);
  }
  return 0;
}
static int32_t matmul_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  MatmulEnv e = {slot, workspace};
  atomic_store((atomic_int *)workspace, 0);
  int32_t status = rt->parallel_for(rt, slot[3].i, matmul_rows, &e);
  return status ? status : atomic_load((atomic_int *)workspace) == slot[3].i ? 0 : 99;
}
static void matmul_shape(const LatheRtSlot *slot, int64_t *out)
{
  int64_t m = slot[3].i;
  int64_t n = slot[4].i;
  int64_t k = slot[5].i;
  memcpy(out, (int64_t[]){m, k, k, n, m, n, 4, n * 4}, 8 * sizeof *out);
}
static const LatheRtArgInfo matmul_args[] = {{"A", F32, 2, 0}, {"B", F32, 2, 0}, {"C", F32, 2, 1}};
static const LatheRtSizeInfo matmul_sizes[] = {{"m", 0, 0}, {"n", 1, 1}, {"k", 0, 1}};

/* y[n] = a * x[n] + b, of int8 a; x may be strided, x and y may be the same memory. */
static int32_t axpb_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)rt;
  assert_null(workspace);
  const float *x = slot[1].p;
  float *y = slot[3].p;
  for (int64_t i = 0; i < slot[4].i; i++) y[i] = (float)slot[0].i * x[i * slot[5].i] + (float)slot[2].f;
  return 0;
}
static void axpb_shape(const LatheRtSlot *slot, int64_t *out)
{
  memcpy(out, (int64_t[]){slot[4].i, slot[4].i, 0, 0}, 4 * sizeof *out);
}
static const LatheRtArgInfo axpb_args[] = {
  {"a", {0, 8, 1}, -1, 0}, {"x", F32, 1, 2 | 4}, {"b", F32, -1, 0}, {"y", F32, 1, 1 | 4}};
static const LatheRtSizeInfo axpb_sizes[] = {{"n", 3, 0}, {"stride", 1, -1}};

/* Reads x through its base pointer and element offset. */
static int32_t offset_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  (void)rt;
  ((float *)slot[1].p)[0] = ((const float *)slot[0].p)[slot[2].i];
  return 0;
}
static void offset_shape(const LatheRtSlot *slot, int64_t *out)
{
  (void)slot;
  memcpy(out, (int64_t[]){1, 1, 0, 0}, 4 * sizeof *out);
}
static const LatheRtArgInfo offset_args[] = {{"x", F32, 1, 2}, {"y", F32, 1, 1}};
static const LatheRtSizeInfo offset_sizes[] = {{"off", 0, INT32_MIN}};

static int32_t packed_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  LatheRtPackedArg arg[] = {
    {LATHE_RT_ARG_HANDLE, {.p = slot[0].p}}, {LATHE_RT_ARG_INT, {.i = 7}}, {LATHE_RT_ARG_STR, {.s = "seven"}}};
  return rt->call_packed(rt, "test.fill", 3, arg);
}
static void one_shape(const LatheRtSlot *slot, int64_t *out)
{
  (void)slot;
  memcpy(out, (int64_t[]){1, 0, 0}, 3 * sizeof *out);
}
static const LatheRtArgInfo one_args[] = {{"x", {0, 64, 1}, 1, 1}};

static int32_t status_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  (void)rt;
  return (int32_t)slot[0].i;
}
static void huge_shape(const LatheRtSlot *slot, int64_t *out)
{
  out[0] = slot[0].i;
  out[1] = slot[0].i;
}
static const LatheRtArgInfo status_args[] = {{"code", {0, 64, 1}, -1, 0}};
static void zero_shape(const LatheRtSlot *slot, int64_t *out)
{
  (void)slot;
  out[0] = out[1] = 0;
}
static int32_t flag_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  (void)rt;
  return *(const uint8_t *)slot[0].p == 1 ? 0 : 5;
}
static const LatheRtArgInfo flag_args[] = {{"flag", {1, 1, 1}, 1, 0}};

/* clang-format off */
static const LatheRtFuncInfo funcs[] = {
    {"matmul", matmul_call, matmul_shape, 3, 3, matmul_args, matmul_sizes, -1, -1, 0, 0},
    {"axpb", axpb_call, axpb_shape, 4, 2, axpb_args, axpb_sizes, -1, -1, 0, 0},
    {"offset", offset_call, offset_shape, 2, 1, offset_args, offset_sizes, -1, -1, 0, 0},
    {"packed", packed_call, one_shape, 1, 0, one_args, NULL, -1, -1, 0, 0},
    {"status", status_call, zero_shape, 1, 0, status_args, NULL, -1, -1, 0, 0},
    {"huge", status_call, huge_shape, 1, 0, status_args, NULL, -1, -1, 0, 0},
    {"flag", flag_call, one_shape, 1, 0, flag_args, NULL, -1, -1, 0, 0},
};
/* clang-format on */
static const LatheRtModuleInfo info = {"LATHERT", LATHE_RT_ABI, 7, ARCH, "", funcs, 64, 0};

/* ---- helpers ------------------------------------------------------------------------- */

static LatheRtModule *module;
static LatheRtError err;

static LatheRtFunc *func(const char *name)
{
  LatheRtFunc *f;
  assert_int_equal(lathe_rt_module_func(module, name, &f, &err), LATHE_RT_OK);
  return f;
}

static LatheRtTensor tensor(void *data, int ndim, int64_t *shape)
{
  return (LatheRtTensor){.data = data, .device = {LATHE_RT_CPU, 0}, .ndim = ndim, .dtype = F32, .shape = shape};
}

static void expect(const char *name, int n, const LatheRtArg *arg, LatheRtCode code, const char *text)
{
  strcpy(err.text, "");
  assert_int_equal(lathe_rt_func_call(func(name), n, arg, &err), code);
  assert_string_equal(err.text, text);
}

static int set_up(void **unused)
{
  (void)unused;
  return lathe_rt_module_wrap(&info, NULL, NULL, &module, &err) != LATHE_RT_OK;
}
static int tear_down(void **unused)
{
  (void)unused;
  lathe_rt_module_free(module);
  return 0;
}

/* ---- calls --------------------------------------------------------------------------- */

static float A[6] = {1, 2, 3, 4, 5, 6}, B[12], C[8];

static void test_matmul(void **unused)
{
  (void)unused;
  for (int i = 0; i < 12; i++) B[i] = (float)(i + 1);
  LatheRtTensor a = tensor(A, 2, (int64_t[]){2, 3});
  LatheRtTensor b = tensor(B, 2, (int64_t[]){3, 4});
  LatheRtTensor c = tensor(C, 2, (int64_t[]){2, 4});
  LatheRtArg arg[] = {{&a, {0}}, {&b, {0}}, {&c, {0}}};
  for (int threads = 1; threads <= 3; threads++) {
    assert_int_equal(lathe_rt_set_num_threads(threads, &err), LATHE_RT_OK);
    memset(C, 0, sizeof C);
    expect("matmul", 3, arg, LATHE_RT_OK, "");
    const float want[] = {38, 44, 50, 56, 83, 98, 113, 128};
    for (int i = 0; i < 8; i++) assert_true(C[i] == want[i]);
  }
}

static void test_refusals(void **unused)
{
  (void)unused;
  LatheRtTensor a = tensor(A, 2, (int64_t[]){2, 3});
  LatheRtTensor b = tensor(B, 2, (int64_t[]){3, 4});
  LatheRtTensor c = tensor(C, 2, (int64_t[]){2, 4});
  LatheRtTensor x = b;
  LatheRtArg arg[] = {{&a, {0}}, {&x, {0}}, {&c, {0}}};
  expect("matmul", 2, arg, LATHE_RT_ARGUMENT, "matmul: takes 3 arguments ('A', 'B', 'C'), got 2");
  expect("matmul", 3, NULL, LATHE_RT_ARGUMENT, "matmul: the list of arguments is null");
  x.dtype = (LatheRtDType){2, 64, 1};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT, "matmul: argument 1 'B' is float64, wants float32");
  x = b;
  x.ndim = 1;
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT, "matmul: argument 1 'B' has rank 1, wants 2");
  x = b;
  x.device = (LatheRtDevice){LATHE_RT_CUDA, 0};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT, "matmul: argument 1 'B' is on cuda(0), wants cpu");
  x = b;
  x.shape = (int64_t[]){-3, 4};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 1 'B' is no tensor: dimension 0 is -3, wants 0 or more");
  x = b;
  x.data = NULL;
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT, "matmul: argument 1 'B' has no data (null)");
  x = b;
  x.byte_offset = 2;
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 1 'B' starts at an address that is not a multiple of its element's 4 bytes");
  x = b;
  x.strides = (int64_t[]){1, 3};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 1 'B' has strides (1, 3), wants a compact row-major tensor; copy it first");
  x = b;
  x.strides = (int64_t[]){4, 1};
  expect("matmul", 3, arg, LATHE_RT_OK, "");
  arg[1].tensor = NULL;
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT, "matmul: argument 1 'B' is a scalar, wants a tensor");
  LatheRtArg wrong[] = {{&a, {0}}, {&a, {0}}, {NULL, {0}}, {&a, {0}}};
  expect("axpb", 4, wrong, LATHE_RT_ARGUMENT, "axpb: argument 0 'a' is a tensor, wants a scalar");
  assert_int_equal(lathe_rt_func_call(NULL, 0, NULL, &err), LATHE_RT_ARGUMENT);
}

static void test_shapes_that_disagree(void **unused)
{
  (void)unused;
  LatheRtTensor a = tensor(A, 2, (int64_t[]){2, 3});
  LatheRtTensor b = tensor(B, 2, (int64_t[]){2, 4});
  LatheRtTensor c = tensor(C, 2, (int64_t[]){2, 4});
  LatheRtArg arg[] = {{&a, {0}}, {&b, {0}}, {&c, {0}}};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 1 'B' has shape (2, 4), wants (3, 4); n is 4, from argument 1 'B', k is 3, from argument 0 "
         "'A'");
  b.shape = (int64_t[]){3, 4};
  c.shape = (int64_t[]){2, 3};
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 2 'C' has shape (2, 3), wants (2, 4); m is 2, from argument 0 'A', n is 4, from argument 1 "
         "'B'");
  LatheRtTensor flag = {.data = A, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {6, 8, 1}, .shape = (int64_t[]){2}};
  LatheRtArg one[] = {{&flag, {0}}};
  expect("flag", 1, one, LATHE_RT_ARGUMENT, "flag: argument 0 'flag' has shape (2,), wants (1,)");
}

static void test_overlap(void **unused)
{
  (void)unused;
  float m[18] = {0};
  LatheRtTensor a = tensor(m, 2, (int64_t[]){3, 3});
  LatheRtTensor b = tensor(m + 5, 2, (int64_t[]){3, 3});
  LatheRtTensor c = tensor(m + 9, 2, (int64_t[]){3, 3});
  LatheRtArg arg[] = {{&a, {0}}, {&a, {0}}, {&c, {0}}};
  expect("matmul", 3, arg, LATHE_RT_OK, ""); /* two readers may share */
  arg[1].tensor = &b;
  expect("matmul", 3, arg, LATHE_RT_ARGUMENT,
         "matmul: argument 2 'C', which is written, shares memory with argument 1 'B'");
  /* x and y of axpb are declared to alias */
  float v[4] = {1, 2, 3, 4};
  LatheRtTensor x = tensor(v, 1, (int64_t[]){4});
  LatheRtArg same[] = {{NULL, {.i = 3}}, {&x, {0}}, {NULL, {.f = 0.5}}, {&x, {0}}};
  expect("axpb", 4, same, LATHE_RT_OK, "");
  for (int i = 0; i < 4; i++) assert_true(v[i] == 3 * (float)(i + 1) + 0.5f);
}

static void test_strides_and_scalars(void **unused)
{
  (void)unused;
  float v[6] = {1, 2, 3, 4, 5, 6};
  float y[3];
  LatheRtTensor x = tensor(v, 1, (int64_t[]){3});
  LatheRtTensor out = tensor(y, 1, (int64_t[]){3});
  x.strides = (int64_t[]){-2};
  x.byte_offset = 5 * sizeof(float);
  LatheRtArg arg[] = {{NULL, {.i = -2}}, {&x, {0}}, {NULL, {.f = 0.25}}, {&out, {0}}};
  expect("axpb", 4, arg, LATHE_RT_OK, "");
  assert_true(y[0] == -11.75f && y[1] == -7.75f && y[2] == -3.75f);
  arg[0].scalar.i = 128;
  expect("axpb", 4, arg, LATHE_RT_ARGUMENT, "axpb: argument 0 'a' is 128, which int8 does not hold");
  arg[0].scalar.i = -128;
  expect("axpb", 4, arg, LATHE_RT_OK, "");
  LatheRtTensor one = tensor(v, 1, (int64_t[]){1});
  LatheRtTensor to = tensor(y, 1, (int64_t[]){1});
  one.byte_offset = 4 * sizeof(float);
  LatheRtArg offset[] = {{&one, {0}}, {&to, {0}}};
  expect("offset", 2, offset, LATHE_RT_OK, "");
  assert_true(y[0] == 5);
}

static void test_bools(void **unused)
{
  (void)unused;
  uint8_t one = 1;
  const LatheRtDType good[] = {{6, 8, 1}, {6, 1, 1}, {1, 1, 1}};
  LatheRtTensor t = {.data = &one, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .shape = (int64_t[]){1}};
  LatheRtArg arg[] = {{&t, {0}}};
  for (int i = 0; i < 3; i++) {
    t.dtype = good[i];
    expect("flag", 1, arg, LATHE_RT_OK, "");
  }
  t.dtype = (LatheRtDType){1, 8, 1};
  expect("flag", 1, arg, LATHE_RT_ARGUMENT, "flag: argument 0 'flag' is uint8, wants bool");
}

static void test_status_and_workspace(void **unused)
{
  (void)unused;
  LatheRtArg arg[] = {{NULL, {.i = 7}}};
  expect("status", 1, arg, LATHE_RT_KERNEL, "status: stopped with status 7");
  arg[0].scalar.i = INT64_MAX;
  expect("huge", 1, arg, LATHE_RT_ARGUMENT, "huge: these sizes make its workspace more than memory can have");
  arg[0].scalar.i = -1;
  expect("huge", 1, arg, LATHE_RT_ARGUMENT, "huge: these sizes make its workspace more than memory can have");
  assert_int_equal(lathe_rt_set_num_threads(1, &err), LATHE_RT_OK);
  arg[0].scalar.i = (int64_t)1 << 60;
  expect("huge", 1, arg, LATHE_RT_MEMORY, "huge: out of memory for a workspace of 2305843009213693952 bytes");
}

/* ---- packed functions ------------------------------------------------------------------ */

static int32_t fill(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  assert_null(result);
  if (n != 3 || arg[1].tag != LATHE_RT_ARG_INT || strcmp(arg[2].u.s, "seven") != 0) return 1;
  *(int64_t *)arg[0].u.p = arg[1].u.i * *(int64_t *)user;
  return *(int64_t *)user < 0 ? 42 : 0;
}

static void test_packed(void **unused)
{
  (void)unused;
  int64_t x = 0;
  int64_t factor = 6;
  LatheRtTensor t = {.data = &x, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {0, 64, 1}, .shape = (int64_t[]){1}};
  LatheRtArg arg[] = {{&t, {0}}};
  expect("packed", 1, arg, LATHE_RT_NOT_FOUND,
         "packed: it calls 'test.fill', which is not registered; lathe_rt_register adds it");
  assert_int_equal(lathe_rt_register("test.fill", fill, &factor, &err), LATHE_RT_OK);
  expect("packed", 1, arg, LATHE_RT_OK, "");
  assert_int_equal(x, 42);
  int64_t other = -1;
  assert_int_equal(lathe_rt_register("test.fill", fill, &other, &err), LATHE_RT_OK);
  expect("packed", 1, arg, LATHE_RT_KERNEL, "packed: function 'test.fill', which it calls, reported status 42");
  assert_int_equal(lathe_rt_register("test.fill", NULL, NULL, &err), LATHE_RT_OK);
  expect("packed", 1, arg, LATHE_RT_NOT_FOUND,
         "packed: it calls 'test.fill', which is not registered; lathe_rt_register adds it");
  assert_int_equal(lathe_rt_register("test.fill", NULL, NULL, &err), LATHE_RT_NOT_FOUND);
  assert_string_equal(err.text, "register: there is no function 'test.fill' to remove");
  assert_int_equal(lathe_rt_register("", fill, NULL, &err), LATHE_RT_ARGUMENT);
}

/* ---- many threads ------------------------------------------------------------------------ */

static void *multiply(void *wrong)
{
  float b[12], c[8];
  for (int i = 0; i < 12; i++) b[i] = 1;
  LatheRtTensor ta = tensor(A, 2, (int64_t[]){2, 3});
  LatheRtTensor tb = tensor(b, 2, (int64_t[]){3, 4});
  LatheRtTensor tc = tensor(c, 2, (int64_t[]){2, 4});
  LatheRtArg arg[] = {{&ta, {0}}, {&tb, {0}}, {&tc, {0}}};
  LatheRtFunc *f;
  if (lathe_rt_module_func(module, "matmul", &f, NULL) != LATHE_RT_OK) ++*(int *)wrong;
  for (int r = 0; r < 500; r++) {
    memset(c, 0, sizeof c);
    if (lathe_rt_func_call(f, 3, arg, NULL) != LATHE_RT_OK) ++*(int *)wrong;
    for (int i = 0; i < 8; i++) *(int *)wrong += c[i] != (i < 4 ? 6 : 15);
  }
  return NULL;
}

static void test_concurrent_calls(void **unused)
{
  (void)unused;
  assert_int_equal(lathe_rt_set_num_threads(2, &err), LATHE_RT_OK);
  pthread_t t[12];
  int wrong[12] = {0};
  for (int i = 0; i < 12; i++) assert_int_equal(pthread_create(&t[i], NULL, multiply, &wrong[i]), 0);
  for (int i = 0; i < 12; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < 12; i++) assert_int_equal(wrong[i], 0);
}

/* A module freed inside one of its own calls stays until the call returns. */
static LatheRtModule *doomed;
static atomic_int dropped;
static int32_t free_self(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)slot;
  (void)workspace;
  (void)rt;
  lathe_rt_module_free(doomed);
  return atomic_load(&dropped);
}
static void drop(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static void test_free_during_call(void **unused)
{
  (void)unused;
  const LatheRtFuncInfo f = {"free_self", free_self, zero_shape, 0, 0, NULL, NULL, 0, 0, 0, 0};
  const LatheRtModuleInfo m = {"LATHERT", LATHE_RT_ABI, 1, ARCH, NULL, &f, 64, 0};
  LatheRtFunc *fn;
  assert_int_equal(lathe_rt_module_wrap(&m, drop, &dropped, &doomed, &err), LATHE_RT_OK);
  assert_ptr_equal(lathe_rt_module_info(doomed), &m);
  assert_int_equal(lathe_rt_module_func(doomed, "free_self", &fn, &err), LATHE_RT_OK);
  assert_ptr_equal(lathe_rt_func_info(fn), &f);
  assert_int_equal(lathe_rt_func_call(fn, 0, NULL, &err), LATHE_RT_OK);
  assert_int_equal(dropped, 1);
}

/* ---- timing -------------------------------------------------------------------------------- */

static int calls_made;
static int32_t count_call(const LatheRtSlot *slot, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  (void)rt;
  return ++calls_made == slot[0].i ? 3 : 0;
}

static void test_time(void **unused)
{
  (void)unused;
  const LatheRtFuncInfo f = {"count", count_call, zero_shape, 1, 0, status_args, NULL, 0, 0, 0, 0};
  const LatheRtModuleInfo m = {"LATHERT", LATHE_RT_ABI, 1, ARCH, NULL, &f, 64, 0};
  LatheRtModule *mod;
  LatheRtFunc *fn;
  double seconds[3] = {-1, -1, -1};
  LatheRtArg arg[] = {{NULL, {.i = -1}}};
  assert_int_equal(lathe_rt_module_wrap(&m, NULL, NULL, &mod, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_module_func(mod, "count", &fn, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_func_time(fn, 1, arg, 4, 3, 0, seconds, &err), LATHE_RT_OK);
  assert_int_equal(calls_made, 1 + 3 * 4);
  for (int i = 0; i < 3; i++) assert_true(seconds[i] >= 0 && seconds[i] < 1);
  calls_made = 0;
  assert_int_equal(lathe_rt_func_time(fn, 1, arg, 1, 2, 2.0, seconds, &err), LATHE_RT_OK);
  assert_true(calls_made > 1000 && seconds[0] * calls_made > 2e-3); /* number was raised */
  calls_made = 0;
  arg[0].scalar.i = 5;
  assert_int_equal(lathe_rt_func_time(fn, 1, arg, 10, 1, 0, seconds, &err), LATHE_RT_KERNEL);
  assert_string_equal(err.text, "count: stopped with status 3");
  assert_int_equal(lathe_rt_func_time(fn, 1, arg, 0, 1, 0, seconds, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "func_time: number is 0 and repeat is 1, want 1 or more");
  assert_int_equal(lathe_rt_func_time(fn, 1, arg, 1, 1, -1, seconds, &err), LATHE_RT_ARGUMENT);
  assert_int_equal(lathe_rt_func_time(fn, 0, arg, 1, 1, 0, seconds, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "count: takes 1 argument ('code'), got 0");
  lathe_rt_module_free(mod);
}

/* ---- modules --------------------------------------------------------------------------------- */

static void test_lookup(void **unused)
{
  (void)unused;
  LatheRtFunc *f;
  assert_int_equal(lathe_rt_module_func(module, "matmull", &f, &err), LATHE_RT_NOT_FOUND);
  assert_null(f);
  assert_string_equal(
      err.text,
      "the module has no function 'matmull'; it has 'matmul', 'axpb', 'offset', 'packed', 'status', 'huge', 'flag'");
}

static void wrap_refused(LatheRtModuleInfo m, LatheRtCode code, const char *start)
{
  LatheRtModule *out = (LatheRtModule *)&out;
  assert_int_equal(lathe_rt_module_wrap(&m, NULL, NULL, &out, &err), code);
  assert_null(out);
  assert_memory_equal(err.text, start, strlen(start));
}

static void test_wrap_refused(void **unused)
{
  (void)unused;
  LatheRtModuleInfo m = info;
  m.magic[0] = 'X';
  wrap_refused(m, LATHE_RT_ARGUMENT, "the module was not made by Lathe: its table has no mark");
  m = info;
  m.abi = 77;
  wrap_refused(m, LATHE_RT_UNSUPPORTED, "the module has ABI 77, this runtime has ABI 2; compile it again");
  m = info;
  m.arch = "pdp11";
  wrap_refused(m, LATHE_RT_UNSUPPORTED, "the module is for pdp11, this machine is " ARCH);
  m = info;
  m.features = "teleport";
  wrap_refused(m, LATHE_RT_UNSUPPORTED,
               "the module needs the CPU feature 'teleport', which this machine lacks (it has ");
  m = info;
  m.nfuncs = -1;
  wrap_refused(m, LATHE_RT_ARGUMENT, "the module has a broken table of functions");
  LatheRtSizeInfo bad_size = {"n", 0, 2};
  LatheRtFuncInfo f = funcs[0];
  f.sizes = &bad_size;
  f.nsizes = 1;
  m = info;
  m.funcs = &f;
  m.nfuncs = 1;
  wrap_refused(m, LATHE_RT_ARGUMENT, "the module: function 'matmul' has a broken entry for size 0");
  f.call = NULL;
  wrap_refused(m, LATHE_RT_ARGUMENT, "the module has a broken entry for function 'matmul'");
}

static void test_features(void **unused)
{
  (void)unused;
  const char *all = lathe_rt_cpu_features();
  assert_true(strlen(all) > 3);
  LatheRtModuleInfo m = info;
  LatheRtModule *out;
  m.features = all;
  assert_int_equal(lathe_rt_module_wrap(&m, NULL, NULL, &out, &err), LATHE_RT_OK);
  lathe_rt_module_free(out);
#if defined(__x86_64__)
  __builtin_cpu_init();
  assert_int_equal(strstr(all, "avx2") != NULL, __builtin_cpu_supports("avx2") != 0);
  assert_int_equal(strstr(all, "avx512vnni") != NULL, __builtin_cpu_supports("avx512vnni") != 0);
#endif
}

/* ---- files ------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/lathe_test_module_XXXXXX";

static const char *in_folder(const char *name)
{
  static char path[2][256];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

static void write_bytes(const char *name, const void *data, size_t n)
{
  FILE *f = fopen(in_folder(name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  fclose(f);
}

/* A library with one function `answer` that writes `value`. */
static void compile(const char *name, int abi, int value, const char *flags)
{
  char text[4096], command[2048];
  snprintf(text, sizeof text,
           "#include \"lathe_rt.h\"\n"
           "static int32_t call(const LatheRtSlot *s, void *w, const LatheRtCalls *rt)"
           "{ (void)w; (void)rt; *(int64_t *)s[0].p = %d; return 0; }\n"
           "static void shape(const LatheRtSlot *s, int64_t *o) { (void)s; o[0] = 1; o[1] = o[2] = 0; }\n"
           "static const LatheRtArgInfo args[] = {{\"x\", {0, 64, 1}, 1, 1}};\n"
           "static const LatheRtFuncInfo funcs[] = {{\"answer\", call, shape, 1, 0, args, 0, 0, 0, 1, 0}};\n"
           "LATHE_RT_API const LatheRtModuleInfo %s = {\"LATHERT\", %d, 1, \"" ARCH "\", \"\", funcs, 64, 0};\n",
           value, abi < 0 ? "other_symbol" : "lathe_module", abi);
  write_bytes("m.c", text, strlen(text));
  char source[256], library[256];
  snprintf(source, sizeof source, "%s", in_folder("m.c"));
  snprintf(library, sizeof library, "%s", in_folder(name));
  snprintf(command, sizeof command, "cc -shared -fPIC -I'" LATHE_INCLUDE "' %s '%s' -o '%s.tmp' && mv '%s.tmp' '%s'",
           flags, source, library, library, library);
  assert_int_equal(system(command), 0);
}

static void load_refused(const char *name, LatheRtCode code, const char *text)
{
  LatheRtModule *out = (LatheRtModule *)&out;
  char want[600];
  snprintf(want, sizeof want, "'%s' %s", in_folder(name), text);
  assert_int_equal(lathe_rt_module_load(in_folder(name), &out, &err), code);
  assert_null(out);
  assert_memory_equal(err.text, want, strlen(want));
}

static int64_t answer(LatheRtModule *m)
{
  int64_t x = 0;
  LatheRtFunc *f;
  LatheRtTensor t = {.data = &x, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {0, 64, 1}, .shape = (int64_t[]){1}};
  assert_int_equal(lathe_rt_module_func(m, "answer", &f, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_func_call(f, 1, &(LatheRtArg){&t, {0}}, &err), LATHE_RT_OK);
  return x;
}

static void test_load(void **unused)
{
  (void)unused;
  LatheRtModule *a, *b, *c;
  compile("m.so", LATHE_RT_ABI, 41, "");
  assert_int_equal(lathe_rt_module_load(in_folder("m.so"), &a, &err), LATHE_RT_OK);
  assert_int_equal(answer(a), 41);
  /* the file is replaced while the old one is loaded: a new load gets the new code */
  compile("m.so", LATHE_RT_ABI, 42, "");
  assert_int_equal(lathe_rt_module_load(in_folder("m.so"), &b, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_module_load(in_folder("m.so"), &c, &err), LATHE_RT_OK);
  assert_int_equal(answer(a), 41);
  assert_int_equal(answer(b), 42);
  lathe_rt_module_free(a);
  lathe_rt_module_free(b);
  assert_int_equal(answer(c), 42);
  lathe_rt_module_free(c);
  lathe_rt_module_free(NULL);
  /* a bare file name is a file here, not a library somewhere on the search path */
  char old[256];
  assert_non_null(getcwd(old, sizeof old));
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(lathe_rt_module_load("m.so", &a, &err), LATHE_RT_OK);
  assert_int_equal(answer(a), 42);
  lathe_rt_module_free(a);
  assert_int_equal(chdir(old), 0);
}

static void test_load_refused(void **unused)
{
  (void)unused;
  load_refused("absent.so", LATHE_RT_NOT_FOUND, "cannot be opened: No such file or directory");
  load_refused(".", LATHE_RT_IO, "is not a file");
  write_bytes("empty.so", "", 0);
  load_refused("empty.so", LATHE_RT_IO, "is not a shared library");
  write_bytes("text.so", "this is a text that pretends to be a shared library of compiled code, at length", 70);
  load_refused("text.so", LATHE_RT_IO, "is not a shared library");
  compile("abi.so", 99, 1, "");
  load_refused("abi.so", LATHE_RT_UNSUPPORTED, "has ABI 99, this runtime has ABI 2; compile it again");
  compile("other.so", -1, 1, "");
  load_refused("other.so", LATHE_RT_ARGUMENT, "was not made by Lathe: it has no symbol 'lathe_module'");
}

/* Every length of a good file short of its last segment is refused, and none crashes. */
static void test_truncated(void **unused)
{
  (void)unused;
  compile("whole.so", LATHE_RT_ABI, 1, "-s");
  static char data[1 << 20];
  FILE *f = fopen(in_folder("whole.so"), "rb");
  assert_non_null(f);
  size_t n = fread(data, 1, sizeof data, f);
  fclose(f);
  int refused = 0;
  for (size_t length = 0; length < n; length += length < 1024 ? 61 : 509) {
    LatheRtModule *out;
    write_bytes("cut.so", data, length);
    LatheRtCode code = lathe_rt_module_load(in_folder("cut.so"), &out, &err);
    if (code == LATHE_RT_OK) lathe_rt_module_free(out);
    else refused++;
    if (length < 1024) assert_int_not_equal(code, LATHE_RT_OK);
    unlink(in_folder("cut.so"));
  }
  assert_true(refused > 10);
  data[18] = (char)(data[18] ^ 0x81); /* the machine */
  write_bytes("machine.so", data, n);
  load_refused("machine.so", LATHE_RT_UNSUPPORTED, "is for another machine, this machine is " ARCH);
}

/* LATHE_NUM_THREADS is read once a process, so each value gets its own. */
static void with_setting(const char *value, int threads, const char *text)
{
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    char command[512];
    setenv("LATHE_NUM_THREADS", value, 1);
    setenv("WANT_TEXT", text, 1);
    snprintf(command, sizeof command, "%d", threads);
    setenv("WANT_THREADS", command, 1);
    execl("/proc/self/exe", "test_module", "setting", (char *)NULL);
    _exit(100);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 100) skip(); /* an emulated program cannot start itself */
  assert_int_equal(status, 0);
}

static int32_t no_body(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)begin;
  (void)end;
  (void)slot;
  (void)env;
  return 0;
}

/* The child's part. */
static int check_setting(void)
{
  LatheRtFunc *f;
  LatheRtArg arg[] = {{NULL, {.i = 0}}};
  err.text[0] = 0;
  if (lathe_rt_module_wrap(&info, NULL, NULL, &module, &err) || lathe_rt_module_func(module, "status", &f, &err))
    return 1;
  const char *want = getenv("WANT_TEXT");
  int threads = atoi(getenv("WANT_THREADS"));
  LatheRtCode code = lathe_rt_func_call(f, 1, arg, &err);
  if (code != (*want ? LATHE_RT_ARGUMENT : LATHE_RT_OK) || strcmp(err.text, want) != 0) return 2;
  if (threads && lathe_rt_num_threads() != threads) return 3;
  if ((lathe_rt_parallel_for(5, no_body, NULL) == 0) != !*want) return 4;
  if (lathe_rt_set_num_threads(2, &err) || lathe_rt_func_call(f, 1, arg, &err)) return 5;
  return lathe_rt_parallel_for(5, no_body, NULL);
}

static void test_setting(void **unused)
{
  (void)unused;
  with_setting("3", 3, "");
  with_setting("", 0, "");
  with_setting("many", 0, "LATHE_NUM_THREADS is 'many', wants a number of threads from 1 to 1024");
  with_setting("0", 0, "LATHE_NUM_THREADS is '0', wants a number of threads from 1 to 1024");
  with_setting("2 ", 0, "LATHE_NUM_THREADS is '2 ', wants a number of threads from 1 to 1024");
  with_setting("99999999999999999999", 0,
               "LATHE_NUM_THREADS is '99999999999999999999', wants a number of threads from 1 to 1024");
}

static int remove_folder(void **unused)
{
  (void)unused;
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}
static int make_folder(void **unused)
{
  (void)unused;
  return mkdtemp(folder) == NULL;
}

int main(int argc, char **argv)
{
  if (argc == 2 && strcmp(argv[1], "setting") == 0) return check_setting();
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      CASE(test_matmul),
      CASE(test_refusals),
      CASE(test_shapes_that_disagree),
      CASE(test_overlap),
      CASE(test_strides_and_scalars),
      CASE(test_bools),
      CASE(test_status_and_workspace),
      CASE(test_packed),
      CASE(test_concurrent_calls),
      CASE(test_free_during_call),
      CASE(test_time),
      CASE(test_lookup),
      CASE(test_wrap_refused),
      CASE(test_features),
      CASE(test_load),
      CASE(test_load_refused),
      CASE(test_truncated),
      CASE(test_setting),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
