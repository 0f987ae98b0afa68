/* test_model.c: models written by hand over hand-written kernels: running them, refusing
 * every kind of broken one, executors in several threads. */
#ifndef LATHE_RT_NO_THREADS
#include <pthread.h>
#endif

#include "test_kit.h"
#include "test_sanitizers.h"

/* ---- a kernel: c[n] = a[n] + b[n] + s, with a workspace that it fills ----------------------- */

static int32_t add_call(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)rt;
  memset(workspace, 1, 64 + 64 * (size_t)rt->num_workers);
  const float *a = s[0].p;
  const float *b = s[1].p;
  float *c = s[2].p;
  for (int64_t i = 0; i < s[3].i; i++) c[i] = a[i] + b[i];
  return 0;
}
static void add_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = out[2] = s[3].i;
  out[3] = out[4] = 64;
}
static const LatheRtArgInfo add_args[] = {{"a", {2, 32, 1}, 1, 0}, {"b", {2, 32, 1}, 1, 0}, {"c", {2, 32, 1}, 1, 1}};
static const LatheRtSizeInfo add_sizes[] = {{"n", 0, 0}};

static int32_t scale_call(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  (void)rt;
  for (int64_t i = 0; i < s[3].i; i++) ((float *)s[1].p)[i] = ((const float *)s[0].p)[i] * (float)s[2].f;
  return s[2].f == 13 ? 7 : 0;
}
static void scale_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = s[3].i;
  out[2] = out[3] = 0;
}
static const LatheRtArgInfo scale_args[] = {{"x", {2, 32, 1}, 1, 0}, {"y", {2, 32, 1}, 1, 1}, {"k", {2, 32, 1}, -1, 0}};

static const LatheRtFuncInfo funcs[] = {
  {"add", add_call, add_shape, 3, 1, add_args, add_sizes, -1, -1, 0, 0},
  {"scale", scale_call, scale_shape, 3, 1, scale_args, add_sizes, 0, 0, LATHE_RT_FUNC_PLAIN, 0},
};
static const LatheRtModuleInfo info = {"LATHERT", LATHE_RT_ABI, 2, ARCH, "", funcs, 64, 0};

/* ---- models ----------------------------------------------------------------------------------- */

static void bkernel_add(Blob *o, uint32_t a, uint32_t b, uint32_t c) { bcall(o, 0, REGS(a, b, c)); }

/* y = (x + const) + x, static; the second sum at this place */
static void static_model_at(Blob *o, uint64_t place)
{
  bhead(o);
  b32(o, 1);
  bfunction(o, "main", 5, 1, 1, 7);
  bconst_ins(o, 1, 0);
  balloc(o, 2, 0, 0);
  balloc(o, 3, 0, place);
  bkernel_add(o, 0, 1, 2);
  bkernel_add(o, 2, 0, 3);
  b8(o, MO_VIEW);
  b32(o, 4);
  b32(o, 3);
  bf32(o);
  b32(o, 1);
  bexpr_int(o, 4);
  breturn(o, REGS(4));
  bmain(o, ENTRY_STATIC, 1, 4, 4, 128);
}

static void static_model(Blob *o) { static_model_at(o, 64); }

/* y = n > 2 ? scale(x + x, 0.5 n) : list-and-back of x; n = dim(x) */
static void dynamic_model(Blob *o)
{
  bhead(o);
  b32(o, 1);
  bstr(o, "main");
  b32(o, 6);
  b32(o, 2);
  b32(o, 1);
  b32(o, 2); /* scalars */
  b8(o, SCALAR_INT);
  b8(o, SCALAR_FLOAT);
  b32(o, 9);
  b8(o, MO_SCALAR);
  b32(o, 0);
  bexpr_dim(o, 0);
  b8(o, MO_SCALAR);
  b32(o, 1);
  b32(o, 4);
  b8(o, XO_SCALAR);
  b32(o, 0);
  b8(o, XO_TO_FLOAT);
  b8(o, XO_FLOAT);
  b64(o, 0x3fe0000000000000); /* 0.5 */
  b8(o, XO_FMUL);
  b8(o, MO_CHECK);
  b32(o, 3);
  b8(o, XO_INT);
  b64(o, 0);
  b8(o, XO_SCALAR);
  b32(o, 0);
  b8(o, XO_LT);
  bstr(o, "x is empty");
  for (uint32_t r = 2; r < 4; r++) {
    b8(o, MO_ALLOC);
    b32(o, r);
    b32(o, 0);
    bf32(o);
    b32(o, 1);
    bexpr_dim(o, 0);
    b64(o, PLACE_DYNAMIC);
  }
  bkernel_add(o, 0, 1, 2);
  b8(o, MO_KERNEL);
  b32(o, 1);
  b32(o, 0);
  b32(o, 3);
  uint32_t reg[] = {2, 3, 1};
  for (int i = 0; i < 3; i++) {
    b8(o, i == 2 ? KARG_SCALAR : KARG_REGISTER);
    b32(o, reg[i]);
  }
  b8(o, MO_HOST);
  b32(o, HO_LIST);
  b32(o, 0);
  b32(o, 0);
  b32(o, 1);
  b32(o, 3);
  b32(o, 1);
  b32(o, 4);
  breturn(o, REGS(3));
  bmain(o, 0, 2, -1, DIM_UNKNOWN, 0);
}

/* Which lie data_model tells. */
typedef enum {
  TRUTH,
  NO_CLOSURE,
  NO_DATA,
  NO_FIELD,
  OTHER_TAG,
  TOO_FEW,
  TOO_MANY_HELD,
  TWO_RESULTS,
  BACKWARD,
  NO_END,
  DATA_OUT
} Lie;

/* f(a, b) = a + b;  main(x) = match Data 3(f with a = x, x) { Data 3(g, y) => g(y) } */
static void data_model(Blob *o, Lie lie)
{
  bhead(o);
  b32(o, 3);
  bfunction(o, "main", 6, 1, 1, lie == NO_END ? 7 : 8);
  b8(o, MO_CLOSURE);
  b32(o, 1);
  b32(o, lie == TWO_RESULTS ? 2 : 1);
  if (lie == TOO_MANY_HELD) bregs(o, REGS(0, 0, 0));
  else bregs(o, REGS(0));
  b8(o, MO_DATA);
  b32(o, 2);
  b32(o, 3);
  bregs(o, REGS(1, 0));
  b8(o, MO_MATCH);
  b32(o, lie == NO_DATA ? 1 : 2);
  b32(o, lie == OTHER_TAG ? 4 : 3);
  b32(o, lie == BACKWARD ? 1 : lie == NO_END ? 6 : 7);
  for (uint32_t i = 0; i < 2; i++) {
    b8(o, MO_FIELD);
    b32(o, 3 + i);
    b32(o, 2);
    b32(o, lie == NO_FIELD ? 2 + i : i);
  }
  b8(o, MO_APPLY);
  b32(o, lie == NO_CLOSURE ? 4 : 3);
  if (lie == TOO_FEW) b32(o, 0);
  else bregs(o, REGS(4));
  bregs(o, REGS(5));
  if (lie != NO_END) {
    b8(o, MO_RETURN);
    bregs(o, REGS(lie == DATA_OUT ? 2 : 5));
    b8(o, MO_FAIL);
    bstr(o, "no clause fits");
  } else {
    b8(o, MO_FREE);
    b32(o, 3);
  }
  bfunction(o, "f", 3, 2, 1, 3);
  b8(o, MO_ALLOC);
  b32(o, 2);
  b32(o, 0);
  bf32(o);
  b32(o, 1);
  bexpr_dim(o, 0);
  b64(o, PLACE_DYNAMIC);
  bkernel_add(o, 0, 1, 2);
  b8(o, MO_RETURN);
  bregs(o, REGS(2));
  bfunction(o, "two", 1, 1, 2, 1);
  b8(o, MO_RETURN);
  bregs(o, REGS(0, 0));
  bmain(o, 0, 1, 4, 4, 0);
}

/* ---- running -------------------------------------------------------------------------------------- */

static _Alignas(64) const float weights[16] = {1, 2, 3, 4};

static LatheRtCode wrap(LatheRtModule *module, const void *bytes, size_t n, LatheRtModel **out, LatheRtError *err)
{
  LatheRtModelData data = {.magic = MODEL_MAGIC,
                           .size = sizeof data,
                           .nmodules = 1,
                           .program = bytes,
                           .program_bytes = n,
                           .weights = weights,
                           .weights_bytes = sizeof weights};
  return lathe_rt_model_wrap(module, &data, NULL, NULL, NULL, out, err);
}

/* The same kernels, of which add may write its result over its first operand. */
static const LatheRtArgInfo over_args[] = {
  {"a", {2, 32, 1}, 1, 4}, {"b", {2, 32, 1}, 1, 0}, {"c", {2, 32, 1}, 1, 1 | 4}};
static const LatheRtFuncInfo over_funcs[] = {
  {"add", add_call, add_shape, 3, 1, over_args, add_sizes, -1, -1, 0, 0},
  {"scale", scale_call, scale_shape, 3, 1, scale_args, add_sizes, 0, 0, 0, 0},
};
static const LatheRtModuleInfo over_info = {"LATHERT", LATHE_RT_ABI, 2, ARCH, "", over_funcs, 64, 0};

static LatheRtModule *open_module(void)
{
  LatheRtModule *module;
  LatheRtError err;
  assert_int_equal(lathe_rt_module_wrap(&info, NULL, NULL, &module, &err), 0);
  return module;
}

static void test_work(void **state)
{
  (void)state;
  Blob o;
  static_model(&o);
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  if (wrap(module, o.b, o.n, &m, &err)) fail_msg("%s", err.text);
  lathe_rt_module_free(module);
  int64_t n[3] = {5, 3, 2};
  LatheRtTensor t[3] = {vec(NULL, &n[0]), vec(NULL, &n[1]), vec(NULL, &n[2])};
  const LatheRtTensor *in[] = {&t[0], &t[1]};
  const LatheRtTensor *out[] = {&t[2]};
  double flops, done;
  lathe_rt_node_work(m, 0, 2, in, 1, out, &flops, &done);
  assert_true(flops == 6.0 * 5 * 9 / 2 && done == 7.5);
  lathe_rt_node_work(m, 0, 2, in, 0, NULL, &flops, &done); /* a tensor that is not shown */
  assert_true(flops == 0 && done == 7.5);
  lathe_rt_node_work(m, 1, 2, in, 1, out, &flops, &done);
  assert_true(flops == 0 && done == 0);
  lathe_rt_model_free(m);
}

static void test_static(void **state)
{
  (void)state;
  Blob o;
  static_model(&o);
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  if (wrap(module, o.b, o.n, &m, &err)) fail_msg("%s", err.text);
  lathe_rt_module_free(module);
  LatheRtExecutor *x;
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
  lathe_rt_model_free(m);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'x' (Tensor) has not been set");
  const LatheRtTensor *y;
  assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), LATHE_RT_ARGUMENT);
  float a[4] = {10, 20, 30, 40};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  a[0] = 0; /* it was copied */
  assert_int_equal(lathe_rt_run(x, &err), 0);
  assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
  assert_memory_equal(y->data, ((float[]){21, 42, 63, 84}), 16);
  assert_int_equal(lathe_rt_set_input_view(x, 0, &t, &err), 0);
  a[0] = 1; /* it is borrowed */
  assert_int_equal(lathe_rt_run(x, &err), 0);
  assert_memory_equal(y->data, ((float[]){3, 42, 63, 84}), 16);
  n = 3;
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'x' has shape (3,), wants Tensor");
  n = 4;
  t.dtype = (LatheRtDType){0, 32, 1};
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'x' is int32, wants float32");
  assert_int_equal(lathe_rt_set_input(x, 1, &t, &err), LATHE_RT_ARGUMENT);
  t = vec((float *)((char *)a + 2), &n);
  assert_int_equal(lathe_rt_set_input_view(x, 0, &t, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "cannot be borrowed"));
  lathe_rt_executor_free(x);
}

static int32_t stop_at_second(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                              int32_t nout, const LatheRtTensor *const *out)
{
  (void)seconds;
  assert_int_equal(node, 0);
  assert_int_equal(nout, 1);
  assert_int_equal(out[0]->ndim, 1);
  assert_non_null(in[0]->data);
  int *seen = user;
  seen[*seen + 1] = nin;
  return ++*seen == 2 ? 5 : 0;
}

static void test_dynamic(void **state)
{
  (void)state;
  Blob o;
  dynamic_model(&o);
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  if (wrap(module, o.b, o.n, &m, &err)) fail_msg("%s", err.text);
  LatheRtExecutor *x;
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
  float a[26] = {1, 2, 3, 4};
  for (int64_t n = 1; n < 5; n++) {
    LatheRtTensor t = vec(a, &n);
    assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
    assert_int_equal(lathe_rt_set_input_view(x, 1, &t, &err), 0);
    if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
    const LatheRtTensor *y;
    assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
    assert_int_equal(y->shape[0], n);
    for (int i = 0; i < n; i++) assert_true(((float *)y->data)[i] == a[i] * (float)n);
  }
  int64_t n = 2;
  int64_t k = 3;
  LatheRtTensor t = vec(a, &n);
  LatheRtTensor u = vec(a, &k);
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  assert_int_equal(lathe_rt_set_input(x, 1, &u, &err), 0);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'z' has n = 3, input 'x' has n = 2");
  n = k = 0;
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  assert_int_equal(lathe_rt_set_input(x, 1, &u, &err), 0);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "x is empty");
  n = k = 26; /* the kernel refuses this */
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  assert_int_equal(lathe_rt_set_input(x, 1, &u, &err), 0);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_KERNEL);
  assert_string_equal(err.text, "node 'node' (scale): stopped with status 7");
  n = k = 4;
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  assert_int_equal(lathe_rt_set_input(x, 1, &u, &err), 0);
  int seen[4] = {0};
  lathe_rt_executor_watch(x, stop_at_second, seen);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_KERNEL);
  assert_int_equal(seen[0], 2);
  assert_int_equal(seen[1], 2);
  assert_int_equal(seen[2], 1);
  lathe_rt_executor_watch(x, NULL, NULL);
  assert_int_equal(lathe_rt_run(x, &err), 0);
  lathe_rt_executor_free(x);
  lathe_rt_model_free(m);
  lathe_rt_module_free(module);
}

/* ---- broken ones ------------------------------------------------------------------------------------- */

/* Loads and, where that succeeds, runs; whatever happens, nothing crashes. */
static bool survive(LatheRtModule *module, const unsigned char *bytes, size_t n)
{
  LatheRtModel *m;
  LatheRtError err = {""};
  LatheRtCode code = wrap(module, bytes, n, &m, &err);
  if (code != LATHE_RT_OK) {
    assert_true(strlen(err.text) > 10);
    return false;
  }
  LatheRtExecutor *x;
  const LatheRtPort *port;
  if (lathe_rt_model_entry(m, 0)->storage_bytes < 1 << 24 && lathe_rt_executor_new(m, &x, &err) == LATHE_RT_OK) {
    float a[64] = {0};
    for (int i = 0; i < lathe_rt_model_inputs(m, &port); i++) {
      int64_t d = 4;
      LatheRtTensor t = vec(a, &d);
      code = lathe_rt_set_input(x, i, &t, &err);
    }
    x->calls_left = 20;
    code = lathe_rt_run(x, &err);
    lathe_rt_executor_free(x);
  }
  lathe_rt_model_free(m);
  return true;
}

static void test_broken(void **state)
{
  (void)state;
  LatheRtModule *module = open_module();
  for (int which = 0; which < 3; which++) {
    Blob o;
    if (which == 0) static_model(&o);
    else if (which == 1) dynamic_model(&o);
    else data_model(&o, TRUTH);
    for (size_t n = 0; n < o.n; n++) { /* truncated, at an address whose end is the end of its memory */
      unsigned char *exact = malloc(n ? n : 1);
      memcpy(exact, o.b, n);
      assert_false(survive(module, exact, n));
      free(exact);
    }
    for (size_t i = 0; i < o.n; i++) {
      static const unsigned char values[] = {0, 1, 2, 5, 0x40, 0x7f, 0x80, 0xff};
      for (size_t v = 0; v < sizeof values; v++) {
        unsigned char before = o.b[i];
        o.b[i] = values[v];
        survive(module, o.b, o.n);
        o.b[i] = (unsigned char)(before ^ (1u << v));
        survive(module, o.b, o.n);
        o.b[i] = before;
      }
    }
    o.b[o.n] = 0;
    assert_false(survive(module, o.b, o.n + 1));
  }
  lathe_rt_module_free(module);
}

/* Keeps the first number that the second sum read. */
static int32_t keep_operand(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                            int32_t nout, const LatheRtTensor *const *out)
{
  (void)node;
  (void)seconds;
  (void)nin;
  assert_int_equal(nout, 1);
  assert_ptr_not_equal(in[0]->data, out[0]->data);
  *(float *)user = *(const float *)in[0]->data;
  return 0;
}

/* A result over an operand is refused where the kernel does not say that it may be; where it is, a
 * watcher sees what the operand was. */
static void test_in_place(void **state)
{
  (void)state;
  Blob o;
  static_model_at(&o, 0);
  LatheRtError err;
  LatheRtModel *m;
  LatheRtExecutor *x;
  LatheRtModule *module = open_module();
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), 0);
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "the model is broken: add writes argument 2 'c' over argument 0 'a'");
  lathe_rt_model_free(m);
  lathe_rt_module_free(module);
  assert_int_equal(lathe_rt_module_wrap(&over_info, NULL, NULL, &module, &err), 0);
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), 0);
  lathe_rt_module_free(module);
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
  lathe_rt_model_free(m);
  float a[4] = {10, 20, 30, 40};
  float seen = 0;
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  const LatheRtTensor *y;
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
  for (int watched = 0; watched < 2; watched++) {
    if (watched) lathe_rt_executor_watch(x, keep_operand, &seen);
    if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
    assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
    assert_memory_equal(y->data, ((float[]){21, 42, 63, 84}), 16);
  }
  assert_true(seen == 11);
  lathe_rt_executor_free(x);
}

static void test_sentences(void **state)
{
  (void)state;
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  Blob o;
  static_model(&o);
  o.b[8] = 9;
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text, "the model is of format 9, this runtime reads 4; compile it again");
  o.b[0] = 'X';
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "it has no mark"));
  assert_int_equal(lathe_rt_model_of(module, &m, &err), LATHE_RT_NOT_FOUND);
  assert_string_equal(err.text, "the module has kernels alone, no model");
  assert_int_equal(lathe_rt_model_load("/nonexistent/model.so", &m, &err), LATHE_RT_NOT_FOUND);
  lathe_rt_module_free(module);
}

/* One lie each, at its place in the bytes of the static model (see test_kit.h). */
static void test_lies(void **state)
{
  (void)state;
  static const struct {
    Mark mark;
    int at, bytes; /* from the mark */
    uint64_t value;
    const char *says;
    /* clang-format off */
  } lies[] = {
      {AT_WEIGHTS, 0, 8, (uint64_t)1 << 50, "it wants 1125899906842624 bytes of weights, the file has 64"},
      {AT_STORAGE, 0, 8, (uint64_t)1 << 63, "it wants more storage than memory can have"},
      {AT_KERNELS, 0, 4, 0xffffffff, "4294967295 kernels do not fit into what is left"},
      {AT_KERNEL_NAME, 0, 1, 'x', "its code has no kernel 'xdd'"},
      {AT_CONST, 0, 1, 99, "dtype (99, 32, 1)"},
      {AT_CONST, 1, 1, 3, "dtype (2, 3, 1)"},
      {AT_CONST, 4, 4, 0x7fffffff, "dimensions do not fit into what is left"},
      {AT_CONST, 8, 8, (uint64_t)1 << 62, "constant 0: "},
      {AT_CONST, 8, 8, (uint64_t)-4, "constant 0: "},
      {AT_CONST, 8, 8, 1000, "constant 0 of 4000 bytes at 0 leaves the 64 bytes of weights"},
      {AT_CONST, 21, 8, (uint64_t)1 << 40, "leaves the 64 bytes of weights"},
      {AT_CONST, 21, 8, 2, "constant 0 is not aligned"},
      {AT_CONST, 16, 4, 1, "device 1, there are 1"},
      {AT_CONST, 20, 1, 2, "a constant of kind 2"},
      {AT_CONST, 20, 1, CONST_PREPARED, "leaves the 0 bytes of weights"},
      {AT_WEIGHTS, 8, 8, (uint64_t)1 << 63, "it prepares 9223372036854775808 bytes of weights"},
      {AT_KERNEL_NAME, 3, 4, 7, "module 7, there are 1"},
      {AT_KERNEL_NAME, 7, 4, 7, "device 7, there are 1"},
      {AT_STORAGE, -4, 4, 2, "entry 'main' has storage on 2 devices, there are 1"},
      {AT_STORAGE, 16, 4, 0, "its weights are prepared by function 0"},
      {AT_RETURN, 5, 4, 99, "register 99, there are 5"},
      {AT_RETURN, 1, 4, 0x10000000, "268435456 registers do not fit into what is left"},
  };
  /* clang-format on */
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    Blob o;
    Blob patch = {.n = 0};
    static_model(&o);
    num(&patch, lies[i].value, lies[i].bytes);
    memcpy(o.b + o.at[lies[i].mark] + lies[i].at, patch.b, patch.n);
    if (!wrap(module, o.b, o.n, &m, &err)) fail_msg("'%s' is not refused", lies[i].says);
    if (!strstr(err.text, lies[i].says)) fail_msg("'%s' lacks '%s'", err.text, lies[i].says);
  }
  Blob o;
  static_model(&o);
  assert_int_equal(wrap(module, o.b, o.n - 1, &m, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "it ends too early"));
  /* terabytes of storage: the model is sound, the machine is too small */
  Blob big = {.n = 0};
  b64(&big, (uint64_t)1 << 45);
  memcpy(o.b + o.at[AT_STORAGE], big.b, 8);
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), LATHE_RT_OK);
  LatheRtExecutor *x;
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), LATHE_RT_MEMORY);
  assert_non_null(strstr(err.text, "memory"));
  lathe_rt_model_free(m);
  lathe_rt_module_free(module);
}

/* What is wrong with data and functions as values is found when the model is read, or else when
 * it runs. */
static void test_data(void **state)
{
  (void)state;
  static const struct {
    Lie lie;
    bool when_read;
    const char *says;
    /* clang-format off */
  } lies[] = {
      {NO_CLOSURE, false, "what is called is no function"},
      {NO_DATA, false, "a value without a constructor is matched"},
      {NO_FIELD, false, "a value has no field 2"},
      {OTHER_TAG, false, "no clause fits"},
      {TOO_FEW, false, "function 'f' takes 1 arguments, gets 0"},
      {DATA_OUT, false, "output 0 is no tensor and no sequence"},
      {TOO_MANY_HELD, true, "function 'main' has a call whose arguments or results do not fit"},
      {TWO_RESULTS, true, "function 'main' has a call whose arguments or results do not fit"},
      {BACKWARD, true, "function 'main' jumps from instruction 2 to 1 of 8"},
      {NO_END, true, "function 'main' does not end in a return"},
      {TRUTH, false, NULL},
  };
  /* clang-format on */
  LatheRtModule *module = open_module();
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    Blob o;
    LatheRtModel *m;
    LatheRtExecutor *x;
    LatheRtError err = {""};
    data_model(&o, lies[i].lie);
    LatheRtCode code = wrap(module, o.b, o.n, &m, &err);
    if (lies[i].when_read != (code != LATHE_RT_OK)) fail_msg("lie %d: %s", lies[i].lie, err.text);
    if (!lies[i].when_read) {
      float a[4] = {1, 2, 3, 4};
      int64_t n = 4;
      LatheRtTensor t = vec(a, &n);
      const LatheRtTensor *y;
      assert_int_equal(lathe_rt_executor_new(m, &x, &err), LATHE_RT_OK);
      assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), LATHE_RT_OK);
      code = lathe_rt_run(x, &err);
      if (code == LATHE_RT_OK) code = lathe_rt_get_output(x, 0, &y, &err);
      if (code == LATHE_RT_OK) assert_true(((float *)y->data)[3] == 8);
      lathe_rt_executor_free(x);
      lathe_rt_model_free(m);
    }
    assert_int_equal(code != LATHE_RT_OK, lies[i].lie != TRUTH);
    if (lies[i].says && !strstr(err.text, lies[i].says)) fail_msg("'%s' lacks '%s'", err.text, lies[i].says);
  }
  lathe_rt_module_free(module);
}

/* main(x) = main(x): no memory runs out, no stack overflows. */
static void test_endless_call(void **state)
{
  (void)state;
  Blob o;
  bhead(&o);
  b32(&o, 1);
  bstr(&o, "main");
  b32(&o, 2);
  b32(&o, 1);
  b32(&o, 1);
  b32(&o, 0);
  b32(&o, 2);
  b8(&o, MO_CALL);
  b32(&o, 0);
  b32(&o, 1);
  b32(&o, 0);
  b32(&o, 1);
  b32(&o, 1);
  breturn(&o, REGS(1));
  bmain(&o, 0, 1, 4, 4, 0);
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtExecutor *x;
  LatheRtError err;
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), LATHE_RT_OK);
  float a[4] = {0};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), LATHE_RT_OK);
  assert_int_not_equal(lathe_rt_run(x, &err), LATHE_RT_OK);
  assert_non_null(strstr(err.text, "calls inside each other"));
  lathe_rt_executor_free(x);
  lathe_rt_model_free(m);
  lathe_rt_module_free(module);
}

/* ---- threads --------------------------------------------------------------------------------------------- */

#ifndef LATHE_RT_NO_THREADS
static void *run_many(void *arg)
{
  LatheRtExecutor *x;
  LatheRtError err;
  if (lathe_rt_executor_new(arg, &x, &err)) return "executor_new";
  for (int r = 0; r < 500; r++) {
    float a[4] = {(float)r, 1, 2, 3};
    int64_t n = 4;
    LatheRtTensor t = vec(a, &n);
    const LatheRtTensor *y;
    if (lathe_rt_set_input(x, 0, &t, &err) || lathe_rt_run(x, &err) || lathe_rt_get_output(x, 0, &y, &err))
      return "run";
    if (((float *)y->data)[0] != 2 * (float)r + 1) return "value";
  }
  lathe_rt_executor_free(x);
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  Blob o;
  static_model(&o);
  LatheRtModule *module = open_module();
  LatheRtModel *m;
  LatheRtError err;
  assert_int_equal(wrap(module, o.b, o.n, &m, &err), 0);
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, run_many, m);
  for (int i = 0; i < 4; i++) {
    void *why;
    pthread_join(thread[i], &why);
    if (why) fail_msg("%s", (char *)why);
  }
  lathe_rt_model_free(m);
  lathe_rt_module_free(module);
}
#else
static void test_threads(void **state)
{
  (void)state;
  LatheRtError err;
  assert_int_equal(lathe_rt_num_threads(), 1);
  assert_int_equal(lathe_rt_set_num_threads(2, &err), LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text, "set_num_threads: this runtime was built without threads");
  assert_int_equal(lathe_rt_set_num_threads(1, &err), LATHE_RT_OK);
}
#endif

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_work),    cmocka_unit_test(test_static), cmocka_unit_test(test_in_place),
    cmocka_unit_test(test_dynamic), cmocka_unit_test(test_broken), cmocka_unit_test(test_sentences),
    cmocka_unit_test(test_lies),    cmocka_unit_test(test_data),   cmocka_unit_test(test_endless_call),
    cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
