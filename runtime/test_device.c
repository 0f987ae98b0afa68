/* test_device.c: models over a device with memory of its own (test_device.h), modules of other kinds, entries, objects,
 * packed functions; every allocation, copy and launch failing once in turn. */
#include "test_device.h"
#include "test_sanitizers.h"

/* ---- host allocations that fail --------------------------------------------------------- */

/* The runtime's own, by the linker's --wrap; what the test allocates does not count. */
static int allocations, fail_allocation; /* 0: none */
static bool armed;

static bool refuse(void) { return armed && ++allocations == fail_allocation; }

void *__real_realloc(void *, size_t);
int __real_posix_memalign(void **, size_t, size_t);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
int __wrap_posix_memalign(void **, size_t, size_t);
void *__wrap_malloc(size_t n) { return refuse() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return refuse() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return refuse() ? NULL : __real_realloc(p, n); }
int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
  return refuse() ? 12 : __real_posix_memalign(out, align, n);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int32_t add_here(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace, (void)rt;
  for (int64_t i = 0; i < s[3].i; i++) ((float *)s[2].p)[i] = ((const float *)s[0].p)[i] + ((const float *)s[1].p)[i];
  return 0;
}
static int32_t twice_here(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace, (void)rt;
  for (int64_t i = 0; i < s[2].i; i++) ((float *)s[1].p)[i] = 2 * ((const float *)s[0].p)[i];
  return 0;
}
static void add_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = out[2] = s[3].i;
  out[3] = out[4] = 100;
}
static void twice_shape(const LatheRtSlot *s, int64_t *out)
{
  out[0] = out[1] = s[2].i;
  out[2] = out[3] = 0;
}
static const LatheRtArgInfo add_args[] = {{"a", {2, 32, 1}, 1, 0}, {"b", {2, 32, 1}, 1, 0}, {"c", {2, 32, 1}, 1, 1}};
static const LatheRtArgInfo twice_args[] = {{"x", {2, 32, 1}, 1, 0}, {"y", {2, 32, 1}, 1, 1}};
static const LatheRtSizeInfo sizes[] = {{"n", 0, 0}};
static const LatheRtFuncInfo here[] = {
  {"add", add_here, add_shape, 3, 1, add_args, sizes, 0, 0, LATHE_RT_FUNC_PLAIN, 0},
  {"twice", twice_here, twice_shape, 2, 1, twice_args, sizes, 0, 0, LATHE_RT_FUNC_PLAIN, 0},
};
static const LatheRtFuncInfo there[] = {
  {"add_there", add_there, add_shape, 3, 1, add_args, sizes, -1, -1, 0, 0},
  {"twice_there", twice_there, twice_shape, 2, 1, twice_args, sizes, 0, 0, 0, 0},
};
static const LatheRtModuleInfo here_info = {"LATHERT", LATHE_RT_ABI, 2, ARCH, "", here, 64, 0};
static const LatheRtModuleInfo there_info = {"LATHERT", LATHE_RT_ABI, 2, ARCH, "", there, 128, 0};
static const LatheRtModuleInfo *const modules[] = {&here_info, &there_info};

/* Two constants, an image, bytes for another kind of module. */
enum { IMAGE = 64, IMAGE_BYTES = 16, FOREIGN = 128, FOREIGN_BYTES = 7 };
static _Alignas(64) union {
  float f[64];
  char text[256];
} weights = {{1, 2, 3, 4}};

static LatheRtError err;

static LatheRtCode wrap(const Blob *o, LatheRtModel **out)
{
  LatheRtModule *module;
  LatheRtModelData data = {.magic = MODEL_MAGIC,
                           .size = sizeof data,
                           .nmodules = 2,
                           .program = o->b,
                           .program_bytes = o->n,
                           .weights = &weights,
                           .weights_bytes = sizeof weights,
                           .modules = modules};
  RT_TRY(lathe_rt_module_wrap(&here_info, NULL, NULL, &module, &err));
  LatheRtCode code = lathe_rt_model_wrap(module, &data, NULL, NULL, NULL, out, &err);
  lathe_rt_module_free(module);
  return code;
}

static void idle(void)
{
  assert_int_equal(dev.live, 0);
  assert_int_equal(dev.streams, 0);
  assert_int_equal(dev.events, 0);
  assert_int_equal(dev.images, 0);
}

static int setup(void **state)
{
  (void)state;
  memcpy(weights.text + IMAGE, "add twice", 10);
  memcpy(weights.text + FOREIGN, "tripler", FOREIGN_BYTES);
  return lathe_rt_device_add(&test_device, &err);
}

/* ---- a model over the host and both test devices ----------------------------------------------- */

/* Devices host, test(0), test(1); kernels add and twice here, add on test(0), twice on test(1); the constant on
 * test(0). */
static void head(Blob *o)
{
  bmagic(o, sizeof weights, 0);
  b32(o, 3);
  bdevice(o, LATHE_RT_CPU, 0);
  bdevice(o, LATHE_RT_EXT, 0);
  bdevice(o, LATHE_RT_EXT, 1);
  b32(o, 2);
  bmodule(o, "library", 0, 0, 0);
  bmodule(o, "library", 1, 0, 0);
  b32(o, 3);
  for (uint32_t i = 0; i < 3; i++) { /* one for another architecture, which is passed over, then one each */
    b32(o, i ? i : 1);
    bstr(o, i ? "t2" : "t1");
    b64(o, i ? IMAGE : 0);
    b64(o, IMAGE_BYTES);
  }
  b32(o, 4);
  bkernel(o, "add", 0, 0);
  bkernel(o, "twice", 0, 0);
  bkernel(o, "add_there", 1, 1);
  bkernel(o, "twice_there", 1, 2);
  b32(o, 1);
  bconst(o, 1, CONST_STORED, 0);
  bnode(o);
  b32(o, 0);
  b32(o, 0);
}

/* y = 2 (x + w) + x: x goes to test(0), the sum to test(1), its double back to the host. */
static void device_model(Blob *o, bool is_static)
{
  uint64_t at = is_static ? 0 : PLACE_DYNAMIC;
  head(o);
  b32(o, 1);
  bfunction(o, "main", 8, 1, 1, 11);
  bconst_ins(o, 1, 0);
  bcopy_ins(o, 2, 0, 1, at);
  balloc(o, 3, 1, is_static ? 64 : at);
  bcall(o, 2, REGS(2, 1, 3));
  bcopy_ins(o, 4, 3, 2, at);
  balloc(o, 5, 2, is_static ? 64 : at);
  bcall(o, 3, REGS(4, 5));
  bcopy_ins(o, 6, 5, 0, at);
  balloc(o, 7, 0, is_static ? 64 : at);
  bcall(o, 0, REGS(6, 0, 7));
  breturn(o, REGS(7));
  b32(o, 1);
  bentry(o, "main", 0, is_static ? ENTRY_STATIC : 0);
  b32(o, 1);
  bport(o, "x", 4);
  b32(o, 1);
  bport(o, "y", 4);
  bstorage(o, 3, is_static ? (uint64_t[]){128, 128, 128} : (uint64_t[]){0, 0, 0});
  b32(o, PREPARE_NONE);
}

/* The same with x on test(0) and 2 (x + w) on test(1), for callers that are there already. */
static void ports_model(Blob *o, bool is_static)
{
  uint64_t at = is_static ? 0 : PLACE_DYNAMIC;
  head(o);
  b32(o, 1);
  bfunction(o, "main", 5, 1, 1, 7);
  bconst_ins(o, 1, 0);
  balloc(o, 2, 1, at);
  bcall(o, 2, REGS(0, 1, 2));
  bcopy_ins(o, 3, 2, 2, at);
  balloc(o, 4, 2, is_static ? 64 : at);
  bcall(o, 3, REGS(3, 4));
  breturn(o, REGS(4));
  b32(o, 1);
  bentry(o, "main", 0, is_static ? ENTRY_STATIC : 0);
  b32(o, 1);
  bport_of(o, "x", PORT_TENSOR, 1, 4);
  b32(o, 1);
  bport_of(o, "y", PORT_TENSOR, 2, 4);
  bstorage(o, 3, is_static ? (uint64_t[]){0, 64, 128} : (uint64_t[]){0, 0, 0});
  b32(o, PREPARE_NONE);
}

/* A whole life: load, run twice, compare. */
static LatheRtCode live_once(const Blob *o, LatheRtModel **m, LatheRtExecutor **x)
{
  float a[4] = {10, 20, 30, 40};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  const LatheRtTensor *y;
  *m = NULL;
  *x = NULL;
  RT_TRY(wrap(o, m));
  RT_TRY(lathe_rt_executor_new(*m, x, &err));
  RT_TRY(lathe_rt_set_input(*x, 0, &t, &err));
  for (int i = 0; i < 2; i++) {
    RT_TRY(lathe_rt_run(*x, &err));
    RT_TRY(lathe_rt_get_output(*x, 0, &y, &err));
    assert_memory_equal(y->data, ((float[]){32, 64, 96, 128}), 16);
  }
  return LATHE_RT_OK;
}

static void test_run(void **state)
{
  (void)state;
  for (int is_static = 0; is_static < 2; is_static++) {
    Blob o;
    LatheRtModel *m;
    LatheRtExecutor *x;
    device_model(&o, is_static);
    dev.copies = dev.launches = 0;
    if (live_once(&o, &m, &x)) fail_msg("%s", err.text);
    assert_int_equal(dev.copies, 1 + 2 * 3); /* the constant once; to test(0), on to test(1), back */
    assert_int_equal(dev.launches, 2 * 2);
    assert_int_equal(dev.images, 2);
    uint64_t storage, workspace;
    lathe_rt_executor_memory(x, &storage, &workspace);
    assert_true(workspace >= 128 * (1 + (uint64_t)lathe_rt_num_threads())); /* rounded as the module wants */
    lathe_rt_executor_free(x);
    lathe_rt_model_free(m);
    idle();
  }
}

static void test_ports(void **state)
{
  (void)state;
  for (int is_static = 0; is_static < 2; is_static++) {
    Blob o;
    LatheRtModel *m;
    LatheRtExecutor *x;
    LatheRtTensor *far;
    const LatheRtTensor *y;
    float a[4] = {10, 20, 30, 40};
    float b[4];
    int64_t n = 4;
    LatheRtTensor t = vec(a, &n);
    LatheRtTensor back = vec(b, &n);
    ports_model(&o, is_static);
    if (wrap(&o, &m)) fail_msg("%s", err.text);
    assert_int_equal(lathe_rt_model_entry(m, 0)->inputs[0].device.type, LATHE_RT_EXT);
    assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
    assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0); /* copied there */
    for (int i = 0; i < 3; i++) {
      if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
      assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
      assert_int_equal(y->device.id, 1);
      assert_int_equal(lathe_rt_tensor_copy(y, &back, &err), 0);
      assert_memory_equal(b, ((float[]){22, 44, 66, 88}), 16);
      if (i == 0) { /* from a tensor that is there, read where it lies */
        assert_int_equal(lathe_rt_set_input_view(x, 0, &t, &err), LATHE_RT_ARGUMENT);
        assert_string_equal(err.text, "input 'x' cannot be borrowed: it must be compact, aligned and in the memory of "
                                      "test(0); set_input copies it");
        assert_int_equal(lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_EXT, 0}, t.dtype, 1, &n, &far, &err), 0);
        assert_int_equal(lathe_rt_tensor_copy(&t, far, &err), 0);
        assert_int_equal(lathe_rt_set_input_view(x, 0, far, &err), 0);
      }
      if (i == 1) assert_int_equal(lathe_rt_set_output_view(x, 0, &back, &err), 0); /* brought to the host */
      memset(b, 0, sizeof b);
    }
    lathe_rt_executor_free(x);
    lathe_rt_tensor_free(far);
    lathe_rt_model_free(m);
    idle();
  }
}

/* After a failure everything is freed, or, where an executor is left, it runs. */
static void end(LatheRtModel *m, LatheRtExecutor *x)
{
  float a[4] = {10, 20, 30, 40};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  const LatheRtTensor *y;
  if (x) {
    assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
    if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
    assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
    assert_memory_equal(y->data, ((float[]){32, 64, 96, 128}), 16);
  }
  lathe_rt_executor_free(x);
  lathe_rt_model_free(m);
  idle();
}

static void test_failures(void **state)
{
  (void)state;
  for (int is_static = 0; is_static < 2; is_static++) {
    Blob o;
    LatheRtModel *m;
    LatheRtExecutor *x;
    bool failed = true;
    device_model(&o, is_static);
    int n = 0;
    while (failed) { /* each call that can fail */
      dev.calls = 0;
      dev.fail_at = ++n;
      LatheRtCode code = live_once(&o, &m, &x);
      failed = code != LATHE_RT_OK;
      dev.fail_at = 0;
      char want[40];
      snprintf(want, sizeof want, "injected %d", n);
      if (failed && !strstr(err.text, want)) fail_msg("'%s' lacks '%s'", err.text, want);
      if (failed && !strstr(err.text, "test(")) fail_msg("'%s' names no device", err.text);
      end(m, x);
    }
    assert_true(n > 30);
    failed = true;
    n = 0;
    while (failed) { /* each piece of work that is done later */
      dev.work = 0;
      dev.fail_work = ++n;
      LatheRtCode code = live_once(&o, &m, &x);
      failed = code != LATHE_RT_OK;
      dev.fail_work = 0;
      if (failed) assert_int_equal(code, LATHE_RT_DEVICE);
      if (failed && !strstr(err.text, "late failure")) fail_msg("%s", err.text);
      end(m, x);
    }
    assert_int_equal(n, 1 + 2 * 5 + 1);
    failed = true;
    n = 0;
    while (failed) { /* each allocation of the host's */
      allocations = 0;
      fail_allocation = ++n;
      armed = true;
      LatheRtCode code = live_once(&o, &m, &x);
      armed = false;
      failed = code != LATHE_RT_OK;
      if (failed && code != LATHE_RT_MEMORY) fail_msg("allocation %d: %s", n, err.text);
      end(m, x);
    }
    assert_true(n > 8);
  }
}

/* What does not fit together is refused with a sentence. */
static void test_refused(void **state)
{
  (void)state;
  Blob o;
  LatheRtModel *m;
  LatheRtExecutor *x;
  device_model(&o, true);
  Blob lie = o;
  size_t at = 0; /* the second device's type */
  while (memcmp(lie.b + at, (unsigned char[]){LATHE_RT_EXT, 0, 0, 0}, 4)) at++;
  lie.b[at] = LATHE_RT_VULKAN;
  assert_int_equal(wrap(&lie, &m), LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text,
                      "the model: device(7, 0) is not a device of this process; lathe_rt_device_add adds one");
  lie.b[at] = LATHE_RT_EXT;
  lie.b[at + 4] = 1; /* test(1) twice */
  assert_int_equal(wrap(&lie, &m), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "devices 1 and 2 are the same"));
  weights.text[IMAGE] = 'b'; /* the image has no add */
  assert_int_equal(live_once(&o, &m, &x), LATHE_RT_NOT_FOUND);
  assert_non_null(strstr(err.text, "the image has no 'add'"));
  weights.text[IMAGE] = 'a';
  lathe_rt_executor_free(x);
  end(m, NULL);
  /* the host's kernel over a tensor on test(1) */
  Blob wrong;
  device_model(&wrong, false);
  for (at = 0; memcmp(wrong.b + at, (unsigned char[]){MO_COPY, 6, 0, 0, 0, 5, 0, 0, 0, 0}, 10); at++) {
  }
  wrong.b[at + 9] = 2; /* copied to test(1), not to the host */
  assert_int_equal(live_once(&wrong, &m, &x), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "node 'node': add: argument 0 'a' is on test(1), wants cpu(0)");
  lathe_rt_executor_free(x);
  lathe_rt_model_free(m);
  idle();
}

/* ---- modules of another kind ------------------------------------------------------------------------ */

typedef struct Tripler {
  char name[16];
  int calls;
} Tripler;
static int triplers;

static const LatheRtFuncInfo tripler_info = {"triple", NULL, NULL, 2, 0, twice_args, NULL, 0, 0, 0, 0};

static LatheRtCode tripler_find(void *self, const char *name, const LatheRtFuncInfo **out, LatheRtError *why)
{
  (void)self;
  if (!strcmp(name, "triple")) {
    *out = &tripler_info;
    return LATHE_RT_OK;
  }
  snprintf(why->text, sizeof why->text, "it only triples");
  return LATHE_RT_NOT_FOUND;
}
static LatheRtCode tripler_call(void *self, const LatheRtFuncInfo *f, int32_t n, const LatheRtArg *arg,
                                const LatheRtCalls *calls, LatheRtError *why)
{
  assert_ptr_equal(f, &tripler_info);
  assert_int_equal(n, 2);
  assert_non_null(calls);
  ((Tripler *)self)->calls++;
  const float *x = (const float *)arg[0].tensor->data;
  for (int64_t i = 0; i < arg[0].tensor->shape[0]; i++) {
    if (x[i] < 0) {
      snprintf(why->text, sizeof why->text, "a negative number");
      return LATHE_RT_KERNEL;
    }
    ((float *)arg[1].tensor->data)[i] = 3 * x[i];
  }
  return LATHE_RT_OK;
}
static LatheRtCode tripler_save(void *self, LatheRtCode (*write)(void *, const void *, size_t), void *to,
                                LatheRtError *why)
{
  (void)why;
  return write(to, ((Tripler *)self)->name, strlen(((Tripler *)self)->name));
}
static void tripler_free(void *self)
{
  triplers--;
  free(self);
}
static const LatheRtModuleApi tripler_api = {.size = sizeof tripler_api,
                                             .kind = "tripler",
                                             .find = tripler_find,
                                             .call = tripler_call,
                                             .save = tripler_save,
                                             .free = tripler_free};
static LatheRtCode tripler_load(void *user, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                                LatheRtError *why)
{
  assert_int_equal(*(int *)user, 7);
  assert_string_equal(name, "code");
  Tripler *t = __real_calloc(1, sizeof *t);
  assert_non_null(t);
  memcpy(t->name, bytes, n);
  triplers++;
  LatheRtCode code = lathe_rt_module_new(&tripler_api, t, out, why);
  if (code != LATHE_RT_OK) tripler_free(t);
  return code;
}

/* y = 3 x, by a module that lies in the file as bytes. */
static void foreign_model(Blob *o, bool is_static)
{
  bmagic(o, sizeof weights, 0);
  b32(o, 1);
  bdevice(o, LATHE_RT_CPU, 0);
  b32(o, 1);
  bmodule(o, "tripler", 0, FOREIGN, FOREIGN_BYTES);
  b32(o, 0);
  b32(o, 1);
  bkernel(o, "triple", 0, 0);
  b32(o, 0);
  bnode(o);
  b32(o, 0);
  b32(o, 0);
  b32(o, 1);
  bfunction(o, "main", 2, 1, 1, 3);
  balloc(o, 1, 0, is_static ? 0 : PLACE_DYNAMIC);
  bcall(o, 0, REGS(0, 1));
  breturn(o, REGS(1));
  bmain(o, is_static ? ENTRY_STATIC : 0, 1, 4, 4, is_static ? 64 : 0);
}

static LatheRtCode keep_bytes(void *to, const void *bytes, size_t n)
{
  memcpy(to, bytes, n);
  return LATHE_RT_OK;
}

static void test_foreign(void **state)
{
  (void)state;
  Blob o;
  LatheRtModel *m;
  LatheRtExecutor *x;
  int user = 7;
  foreign_model(&o, true);
  assert_int_equal(wrap(&o, &m), LATHE_RT_UNSUPPORTED);
  assert_string_equal(err.text, "the model has a module 'code' of kind 'tripler', which nothing here loads; "
                                "lathe_rt_module_kind_add adds a loader, LATHE_PLUGIN_PATH names folders of plugins");
  assert_int_equal(lathe_rt_module_kind_add("library", tripler_load, &user, &err), LATHE_RT_ARGUMENT);
  assert_int_equal(lathe_rt_module_kind_add("tripler", tripler_load, &user, &err), 0);
  for (int is_static = 0; is_static < 2; is_static++) {
    float a[4] = {1, 2, 3, 4};
    int64_t n = 4;
    LatheRtTensor t = vec(a, &n);
    const LatheRtTensor *y;
    foreign_model(&o, is_static);
    if (wrap(&o, &m)) fail_msg("%s", err.text);
    assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
    assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
    if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
    assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), 0);
    assert_memory_equal(y->data, ((float[]){3, 6, 9, 12}), 16);
    a[1] = -1;
    assert_int_equal(lathe_rt_set_input(x, 0, &t, &err), 0);
    assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_KERNEL);
    assert_string_equal(err.text, "node 'node': triple: a negative number");
    assert_int_equal(triplers, 1);
    lathe_rt_executor_free(x);
    lathe_rt_model_free(m);
    assert_int_equal(triplers, 0);
  }
  /* alone */
  LatheRtModule *module;
  LatheRtFunc *f;
  char saved[16] = "";
  float a[2] = {1, 2};
  float b[2];
  int64_t n = 2;
  LatheRtTensor in = vec(a, &n);
  LatheRtTensor out = vec(b, &n);
  assert_int_equal(tripler_load(&user, "code", "abc", 3, &module, &err), 0);
  assert_string_equal(lathe_rt_module_kind(module), "tripler");
  assert_null(lathe_rt_module_info(module));
  assert_int_equal(lathe_rt_module_func(module, "halve", &f, &err), LATHE_RT_NOT_FOUND);
  assert_string_equal(err.text, "it only triples");
  assert_int_equal(lathe_rt_module_func(module, "triple", &f, &err), 0);
  assert_int_equal(lathe_rt_func_call(f, 2, (LatheRtArg[]){{.tensor = &in}, {.tensor = &out}}, &err), 0);
  assert_true(b[0] == 3 && b[1] == 6);
  assert_int_equal(lathe_rt_module_save(module, keep_bytes, saved, &err), 0);
  assert_string_equal(saved, "abc");
  lathe_rt_module_free(module);
  assert_int_equal(lathe_rt_module_wrap(&here_info, NULL, NULL, &module, &err), 0);
  assert_int_equal(lathe_rt_module_save(module, keep_bytes, saved, &err), LATHE_RT_UNSUPPORTED);
  lathe_rt_module_free(module);
  assert_int_equal(lathe_rt_module_kind_add("tripler", NULL, NULL, &err), 0);
  assert_int_equal(lathe_rt_module_kind_add("tripler", NULL, NULL, &err), LATHE_RT_NOT_FOUND);
  assert_int_equal(triplers, 0);
}

/* ---- entries, objects, packed functions ----------------------------------------------------------------- */

/* begin() -> object, a counter that packed functions know; step(counter, x) -> x + its number, as tensors go;
 * keep(x) -> data with x in it; give(data) -> x;  plain(x) -> 2 x, static. */
static void entries_model(Blob *o)
{
  bmagic(o, sizeof weights, 0);
  b32(o, 1);
  bdevice(o, LATHE_RT_CPU, 0);
  b32(o, 1);
  bmodule(o, "library", 0, 0, 0);
  b32(o, 0);
  b32(o, 2);
  bkernel(o, "add", 0, 0);
  bkernel(o, "twice", 0, 0);
  b32(o, 0);
  bnode(o);
  b32(o, 0);
  b32(o, 2);
  bstr(o, "test.counter");
  bstr(o, "test.count");
  b32(o, 5);
  bfunction(o, "begin", 1, 0, 1, 2);
  b8(o, MO_PACKED);
  b32(o, 0);
  b32(o, 0);
  b32(o, 1);
  b8(o, PARG_TEXT);
  bstr(o, "from here");
  bregs(o, REGS(0));
  breturn(o, REGS(0));
  bfunction(o, "step", 4, 2, 1, 4);
  balloc(o, 2, 0, PLACE_DYNAMIC);
  b8(o, MO_PACKED); /* count(counter, out): fills it with the number */
  b32(o, 1);
  b32(o, 0);
  b32(o, 2);
  b8(o, PARG_REGISTER);
  b32(o, 0);
  b8(o, PARG_REGISTER);
  b32(o, 2);
  b32(o, 0);
  bcall(o, 0, REGS(1, 2, 2)); /* add in place is the kernel's own business here */
  breturn(o, REGS(2));
  bfunction(o, "keep", 2, 1, 1, 2);
  b8(o, MO_DATA);
  b32(o, 1);
  b32(o, 5);
  bregs(o, REGS(0));
  breturn(o, REGS(1));
  bfunction(o, "give", 2, 1, 1, 2);
  b8(o, MO_FIELD);
  b32(o, 1);
  b32(o, 0);
  b32(o, 0);
  breturn(o, REGS(1));
  bfunction(o, "plain", 2, 1, 1, 3);
  balloc(o, 1, 0, 0);
  bcall(o, 1, REGS(0, 1));
  breturn(o, REGS(1));
  b32(o, 5);
  bentry(o, "begin", 0, 0);
  b32(o, 0);
  b32(o, 1);
  bport_of(o, "counter", PORT_OBJECT, 0, 0);
  bstorage(o, 1, (uint64_t[]){0});
  bentry(o, "step", 1, 0);
  b32(o, 2);
  bport_of(o, "counter", PORT_OBJECT, 0, 0);
  bport(o, "x", 4);
  b32(o, 1);
  bport(o, "y", 4);
  bstorage(o, 1, (uint64_t[]){0});
  bentry(o, "keep", 2, 0);
  b32(o, 1);
  bport(o, "x", 4);
  b32(o, 1);
  bport_of(o, "data", PORT_OBJECT, 0, 0);
  bstorage(o, 1, (uint64_t[]){0});
  bentry(o, "give", 3, 0);
  b32(o, 1);
  bport_of(o, "data", PORT_OBJECT, 0, 0);
  b32(o, 1);
  bport(o, "y", 4);
  bstorage(o, 1, (uint64_t[]){0});
  bentry(o, "plain", 4, ENTRY_STATIC);
  b32(o, 1);
  bport(o, "x", 4);
  b32(o, 1);
  bport(o, "y", 4);
  bstorage(o, 1, (uint64_t[]){64});
  b32(o, PREPARE_NONE);
}

static int counters;
static void drop_counter(void *data)
{
  counters--;
  free(data);
}
static int32_t make_counter(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  (void)user;
  if (n != 1 || arg[0].tag != LATHE_RT_ARG_STR || strcmp(arg[0].u.s, "from here") || !result) return 1;
  int *c = __real_calloc(1, sizeof *c);
  counters++;
  result->tag = LATHE_RT_ARG_OBJECT;
  if (lathe_rt_object_new("counter", c, drop_counter, &result->u.o, NULL) == LATHE_RT_OK) return 0;
  drop_counter(c);
  result->tag = LATHE_RT_ARG_NONE;
  return 2;
}
static int32_t count(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  (void)user;
  int *c = n == 2 && arg[0].tag == LATHE_RT_ARG_OBJECT ? lathe_rt_object_data(arg[0].u.o, "counter") : NULL;
  if (!c || result || arg[1].tag != LATHE_RT_ARG_TENSOR) return 1;
  ++*c;
  for (int i = 0; i < 4; i++) ((float *)arg[1].u.t->data)[i] = (float)*c;
  return 0;
}

static LatheRtCode select_by_name(LatheRtExecutor *x, const LatheRtModel *m, const char *name)
{
  int32_t entry;
  RT_TRY(lathe_rt_model_find(m, name, &entry, &err));
  return lathe_rt_executor_select(x, entry, &err);
}

static LatheRtCode use_entries(const Blob *o, LatheRtModel **m, LatheRtExecutor **x, LatheRtObject **held)
{
  float a[4] = {1, 2, 3, 4};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  const LatheRtTensor *y;
  LatheRtObject *object;
  *m = NULL;
  *x = NULL;
  *held = NULL;
  RT_TRY(wrap(o, m));
  RT_TRY(lathe_rt_executor_new(*m, x, &err));
  RT_TRY(lathe_rt_run(*x, &err));
  RT_TRY(lathe_rt_get_output_object(*x, 0, &object, &err));
  assert_string_equal(lathe_rt_object_kind(object), "counter");
  RT_TRY(select_by_name(*x, *m, "step"));
  RT_TRY(lathe_rt_set_input_object(*x, 0, object, &err));
  RT_TRY(lathe_rt_set_input(*x, 1, &t, &err));
  for (int i = 1; i <= 3; i++) {
    RT_TRY(lathe_rt_run(*x, &err));
    RT_TRY(lathe_rt_get_output(*x, 0, &y, &err));
    for (int k = 0; k < 4; k++) assert_true(((float *)y->data)[k] == a[k] + (float)i);
  }
  RT_TRY(select_by_name(*x, *m, "keep"));
  RT_TRY(lathe_rt_set_input(*x, 0, &t, &err));
  RT_TRY(lathe_rt_run(*x, &err));
  RT_TRY(lathe_rt_get_output_object(*x, 0, &object, &err));
  assert_string_equal(lathe_rt_object_kind(object), "model");
  *held = lathe_rt_object_retain(object);
  RT_TRY(lathe_rt_run(*x, &err)); /* another one; ours stays */
  RT_TRY(select_by_name(*x, *m, "give"));
  RT_TRY(lathe_rt_set_input_object(*x, 0, *held, &err));
  RT_TRY(lathe_rt_run(*x, &err));
  RT_TRY(lathe_rt_get_output(*x, 0, &y, &err));
  assert_memory_equal(y->data, a, 16);
  RT_TRY(select_by_name(*x, *m, "plain"));
  RT_TRY(lathe_rt_set_input(*x, 0, &t, &err));
  RT_TRY(lathe_rt_run(*x, &err));
  RT_TRY(lathe_rt_get_output(*x, 0, &y, &err));
  assert_memory_equal(y->data, ((float[]){2, 4, 6, 8}), 16);
  return LATHE_RT_OK;
}

static void test_entries(void **state)
{
  (void)state;
  Blob o;
  LatheRtModel *m;
  LatheRtExecutor *x, *other;
  LatheRtObject *held;
  int32_t entry;
  entries_model(&o);
  if (wrap(&o, &m)) fail_msg("%s", err.text);
  assert_int_equal(lathe_rt_model_entries(m), 5);
  assert_string_equal(lathe_rt_model_entry(m, 4)->name, "plain");
  assert_int_equal(lathe_rt_model_entry(m, 4)->is_dynamic, 0);
  assert_int_equal(lathe_rt_model_entry(m, 1)->is_dynamic, 1);
  assert_null(lathe_rt_model_entry(m, 5));
  assert_int_equal(lathe_rt_model_find(m, "absent", &entry, &err), LATHE_RT_NOT_FOUND);
  assert_string_equal(err.text, "the model has no entry 'absent'; it has 'begin', 'step', 'keep', 'give', 'plain'");
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_NOT_FOUND);
  assert_string_equal(err.text,
                      "node 'node': it calls 'test.counter', which is not registered; lathe_rt_register adds it");
  lathe_rt_executor_free(x);
  lathe_rt_model_free(m);
  assert_int_equal(lathe_rt_register("test.counter", make_counter, NULL, &err), 0);
  assert_int_equal(lathe_rt_register("test.count", count, NULL, &err), 0);
  if (use_entries(&o, &m, &x, &held)) fail_msg("%s", err.text);
  /* data belongs to its executor */
  assert_int_equal(lathe_rt_executor_new(m, &other, &err), 0);
  assert_int_equal(select_by_name(other, m, "give"), 0);
  assert_int_equal(lathe_rt_set_input_object(other, 0, held, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(
      err.text,
      "input 'data': the object is data of another executor; only the executor that made it can take it back");
  lathe_rt_executor_free(x);
  assert_int_equal(lathe_rt_set_input_object(other, 0, held, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "an executor that has ended"));
  float a[4] = {0};
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  assert_int_equal(lathe_rt_set_input(other, 0, &t, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "set_input: input 'data' is a Tensor; it goes by set_input_object");
  lathe_rt_object_free(held);
  lathe_rt_executor_free(other);
  lathe_rt_model_free(m);
  assert_int_equal(counters, 0);
  /* each allocation failing once in turn */
  bool failed = true;
  int k = 0;
  while (failed) {
    allocations = 0;
    fail_allocation = ++k;
    armed = true;
    LatheRtCode code = use_entries(&o, &m, &x, &held);
    armed = false;
    failed = code != LATHE_RT_OK;
    if (failed && code != LATHE_RT_MEMORY && code != LATHE_RT_KERNEL) fail_msg("allocation %d: %s", k, err.text);
    lathe_rt_executor_free(x);
    lathe_rt_object_free(held);
    lathe_rt_model_free(m);
    assert_int_equal(counters, 0);
  }
  assert_true(k > 10);
  assert_int_equal(lathe_rt_register("test.counter", NULL, NULL, &err), 0);
  assert_int_equal(lathe_rt_register("test.count", NULL, NULL, &err), 0);
}

/* ---- prepared weights ------------------------------------------------------------------------------------- */

/* y = x + p, where p = 2 w is prepared when the model is loaded; device: where p is used. */
static void prepared_model(Blob *o, uint32_t device)
{
  bmagic(o, sizeof weights, 64);
  b32(o, device ? 2 : 1);
  bdevice(o, LATHE_RT_CPU, 0);
  if (device) bdevice(o, LATHE_RT_EXT, 0);
  b32(o, 2);
  bmodule(o, "library", 0, 0, 0);
  bmodule(o, "library", 1, 0, 0);
  b32(o, device);
  if (device) {
    b32(o, 1);
    bstr(o, "");
    b64(o, IMAGE);
    b64(o, IMAGE_BYTES);
  }
  b32(o, 2);
  bkernel(o, device ? "add_there" : "add", device, device);
  bkernel(o, "twice", 0, 0);
  b32(o, 2);
  bconst(o, 0, CONST_STORED, 0);
  bconst(o, device, CONST_PREPARED, 0);
  bnode(o);
  b32(o, 0);
  b32(o, 0);
  b32(o, 2);
  bfunction(o, "main", 3, 1, 1, 4);
  bconst_ins(o, 1, 1);
  balloc(o, 2, device, 0);
  bcall(o, 0, REGS(0, 1, 2));
  breturn(o, REGS(2));
  bfunction(o, "prepare", 2, 0, 0, 5);
  bconst_ins(o, 0, 0);
  balloc(o, 1, 0, 0);
  bcall(o, 1, REGS(0, 1));
  b8(o, MO_DONE);
  b32(o, 0);
  b8(o, MO_RETURN);
  b32(o, 0);
  b32(o, 1);
  bentry(o, "main", 0, ENTRY_STATIC);
  b32(o, 1);
  bport_of(o, "x", PORT_TENSOR, device, 4);
  b32(o, 1);
  bport_of(o, "y", PORT_TENSOR, device, 4);
  bstorage(o, device ? 2 : 1, device ? (uint64_t[]){0, 64} : (uint64_t[]){64});
  b32(o, 1);
}

static int told;
static int32_t tell(void *user, uint64_t done, uint64_t total)
{
  told++;
  assert_int_equal(done, 16);
  assert_int_equal(total, 16);
  return *(int *)user;
}

static LatheRtCode wrap_with(const Blob *o, const LatheRtLoad *how, LatheRtModel **out)
{
  LatheRtModule *module;
  LatheRtModelData data = {.magic = MODEL_MAGIC,
                           .size = sizeof data,
                           .nmodules = 2,
                           .program = o->b,
                           .program_bytes = o->n,
                           .weights = &weights,
                           .weights_bytes = sizeof weights,
                           .modules = modules};
  *out = NULL;
  RT_TRY(lathe_rt_module_wrap(&here_info, NULL, NULL, &module, &err));
  LatheRtCode code = lathe_rt_model_wrap(module, &data, how, NULL, NULL, out, &err);
  lathe_rt_module_free(module);
  return code;
}

static LatheRtCode check_prepared(LatheRtModel *m)
{
  float a[4] = {10, 20, 30, 40};
  float b[4];
  int64_t n = 4;
  LatheRtTensor t = vec(a, &n);
  LatheRtTensor back = vec(b, &n);
  const LatheRtTensor *y;
  LatheRtExecutor *x;
  RT_TRY(lathe_rt_executor_new(m, &x, &err));
  LatheRtCode code = lathe_rt_set_input(x, 0, &t, &err);
  if (code == LATHE_RT_OK) code = lathe_rt_run(x, &err);
  if (code == LATHE_RT_OK) code = lathe_rt_get_output(x, 0, &y, &err);
  if (code == LATHE_RT_OK) code = lathe_rt_tensor_copy(y, &back, &err);
  if (code == LATHE_RT_OK) assert_memory_equal(b, ((float[]){12, 24, 36, 48}), 16);
  lathe_rt_executor_free(x);
  return code;
}

static void test_prepare(void **state)
{
  (void)state;
  for (uint32_t device = 0; device < 2; device++) {
    Blob o;
    LatheRtModel *m;
    int stop = 0;
    LatheRtLoad how = {LATHE_RT_INIT(how), .progress = tell, .user = &stop};
    prepared_model(&o, device);
    told = 0;
    if (wrap_with(&o, &how, &m) || check_prepared(m)) fail_msg("%s", err.text);
    assert_int_equal(told, 1);
    lathe_rt_model_free(m);
    stop = 1;
    assert_int_equal(wrap_with(&o, &how, &m), LATHE_RT_STOPPED);
    assert_string_equal(err.text, "loading was stopped while the weights were prepared");
    LatheRtLoad look = {LATHE_RT_INIT(look), .look_only = 1};
    LatheRtExecutor *x;
    assert_int_equal(wrap_with(&o, &look, &m), 0);
    assert_int_equal(lathe_rt_executor_new(m, &x, &err), LATHE_RT_ARGUMENT);
    lathe_rt_model_free(m);
    bool failed = true;
    for (int k = 1; failed; k++) { /* each allocation failing once in turn */
      allocations = 0;
      fail_allocation = k;
      armed = true;
      LatheRtCode code = wrap_with(&o, NULL, &m);
      if (code == LATHE_RT_OK) code = check_prepared(m);
      armed = false;
      failed = code != LATHE_RT_OK;
      if (failed && code != LATHE_RT_MEMORY) fail_msg("allocation %d: %s", k, err.text);
      lathe_rt_model_free(m);
    }
    idle();
  }
}

/* A folder of prepared weights: made once, mapped by others, refused where others can write, harmless otherwise. */
static void test_cache(void **state)
{
  (void)state;
  char folder[] = "/tmp/lathe_test_cache_XXXXXX";
  char path[200], command[300];
  Blob o;
  LatheRtModel *m, *second;
  prepared_model(&o, 0);
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/weights", folder); /* is made */
  LatheRtLoad how = {LATHE_RT_INIT(how), .cache = path};
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  if (wrap_with(&o, &how, &m) || check_prepared(m)) fail_msg("%s", err.text);
  lathe_rt_model_info(m, &info);
  assert_int_equal(info.from_cache, 0);
  assert_string_equal(info.cache_note, "");
  assert_int_equal(info.prepared_bytes, 64);
  if (wrap_with(&o, &how, &second) || check_prepared(second)) fail_msg("%s", err.text);
  lathe_rt_model_info(second, &info);
  assert_int_equal(info.from_cache, 1);
  lathe_rt_model_free(m);
  lathe_rt_model_free(second);
  /* a file that is cut short, or of other weights, is made anew */
  for (int k = 0; k < 2; k++) {
    snprintf(command, sizeof command,
             k ? "printf XXXXXXXX | dd of=$(ls %s/*.weights) conv=notrunc status=none"
               : "f=$(ls %s/*.weights) && head -c 100 $f > $f.short && mv $f.short $f",
             path);
    assert_int_equal(system(command), 0);
    if (wrap_with(&o, &how, &m) || check_prepared(m)) fail_msg("%s", err.text);
    lathe_rt_model_info(m, &info);
    assert_int_equal(info.from_cache, 0);
    lathe_rt_model_free(m);
    if (wrap_with(&o, &how, &m)) fail_msg("%s", err.text);
    lathe_rt_model_info(m, &info);
    assert_int_equal(info.from_cache, 1);
    lathe_rt_model_free(m);
  }
  /* a folder that others can write */
  snprintf(command, sizeof command, "chmod 777 %s", path);
  assert_int_equal(system(command), 0);
  if (wrap_with(&o, &how, &m) || check_prepared(m)) fail_msg("%s", err.text);
  lathe_rt_model_info(m, &info);
  assert_int_equal(info.from_cache, 0);
  assert_non_null(strstr(info.cache_note, "is not yours alone to write"));
  lathe_rt_model_free(m);
  /* somewhere that cannot be written */
  how.cache = "/proc/lathe";
  if (wrap_with(&o, &how, &m) || check_prepared(m)) fail_msg("%s", err.text);
  lathe_rt_model_info(m, &info);
  assert_non_null(strstr(info.cache_note, "cannot be made"));
  lathe_rt_model_free(m);
  struct {
    LatheRtLoad now;
    void *later;
  } newer = {how, NULL}; /* a caller that knows more fields than this runtime */
  newer.now.size = sizeof newer;
  if (wrap_with(&o, &newer.now, &m)) fail_msg("%s", err.text);
  lathe_rt_model_free(m);
  how.size = offsetof(LatheRtLoad, look_only);
  assert_int_equal(wrap_with(&o, &how, &m), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "set its size"));
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

/* ---- hostile bytes ------------------------------------------------------------------------------------------- */

static void survive(const Blob *o)
{
  LatheRtModel *m;
  LatheRtExecutor *x;
  err.text[0] = 0;
  LatheRtCode code = wrap(o, &m);
  if (code != LATHE_RT_OK) {
    assert_true(strlen(err.text) > 10);
    return;
  }
  for (int32_t e = 0; e < lathe_rt_model_entries(m); e++)
    if (lathe_rt_model_entry(m, e)->storage_bytes > 1 << 20) code = LATHE_RT_MEMORY;
  if (code == LATHE_RT_OK && lathe_rt_executor_new(m, &x, &err) == LATHE_RT_OK) {
    float a[64] = {0};
    int64_t n = 4;
    LatheRtTensor t = vec(a, &n);
    for (int32_t e = 0; e < lathe_rt_model_entries(m); e++) {
      if (lathe_rt_executor_select(x, e, &err) != LATHE_RT_OK) continue;
      for (int i = 0; i < lathe_rt_model_entry(m, e)->ninputs; i++) code = lathe_rt_set_input(x, i, &t, &err);
      x->calls_left = 20;
      code = lathe_rt_run(x, &err);
    }
    lathe_rt_executor_free(x);
  }
  lathe_rt_model_free(m);
}

static void test_hostile(void **state)
{
  (void)state;
  if (getenv("LATHE_EMULATED")) skip(); /* it keeps books of every page that is asked for, and these ask for many */
  for (int which = 0; which < 4; which++) {
    Blob o;
    if (which == 0) device_model(&o, true);
    else if (which == 1) device_model(&o, false);
    else if (which == 2) entries_model(&o);
    else prepared_model(&o, 0);
    for (size_t n = 0; n < o.n; n++) {
      Blob cut = o;
      cut.n = n;
      survive(&cut);
    }
    for (size_t i = 0; i < o.n; i++) {
      static const unsigned char values[] = {0, 1, 2, 5, 0x40, 0x7f, 0x80, 0xff};
      for (size_t v = 0; v < sizeof values; v++) {
        Blob lie = o;
        lie.b[i] = values[v];
        survive(&lie);
      }
    }
    idle();
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_run),     cmocka_unit_test(test_ports),   cmocka_unit_test(test_failures),
    cmocka_unit_test(test_refused), cmocka_unit_test(test_foreign), cmocka_unit_test(test_entries),
    cmocka_unit_test(test_prepare), cmocka_unit_test(test_cache),   cmocka_unit_test(test_hostile),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
