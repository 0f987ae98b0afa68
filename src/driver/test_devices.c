/* test_devices.c: models for several targets.  What they give is what the interpreter gives; the program tells where it
 * was computed and what was copied. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "driver/test_driver.h"

/* The same machine twice: code by LLVM (where there is one) for all that it can do, and for the architecture's
 * least. */
static const char *const far_text = "llvm -mcpu=generic";

typedef struct Two {
  World w;
  const char *text;
  const char *const *target; /* of two */
  int level;
  const char *program, *source;
  const RtValue *want;
  const float *in[2];
  int rows;
} Two;

static void compile_two(Ctx *ctx, void *arg)
{
  Two *t = arg;
  op_init();
  t->w.m = module_new(ctx);
  graph_parse_module(t->w.m, t->text, "test.relay");
  PassContext *pc = pass_context_new(ctx);
  defer(ctx, (void (*)(void *))pass_context_free, pc);
  pc->opt_level = t->level;
  const Target *target[2] = {target_parse(ctx, t->target[0]), target_parse(ctx, t->target[1])};
  t->w.c = driver_compile(ctx, t->w.m, &(CompileOptions){.ntargets = 2, .targets = target, .passes = pc});
  compiled_model(t->w.c);
  t->program = compiled_program_text(t->w.c, ctx_arena(ctx));
}

static void interpret_two(Ctx *ctx, void *arg)
{
  Two *t = arg;
  (void)ctx;
  const Node *f = graph_main(t->w.m);
  const RtValue *in[2];
  for (int i = 0; i < fn_nparams(f); i++) {
    ConstData d = {.dtype = DT_F32, .ndim = 2, .shape = {t->rows, 8}, .bytes = (size_t)t->rows * 32, .data = t->in[i]};
    in[i] = graph_value_tensor(t->w.m->arena, &d);
  }
  t->want = graph_eval(t->w.m, t->w.m->arena, f, fn_nparams(f), in);
}

/* Compiles the text, runs it on noise of shape (rows, 8) for each parameter and compares every output. */
static Two check_two(const char *text, const char *const target[2], int level, int rows)
{
  static float *in[2];
  Two t = {.w = {.ctx = ctx_new()}, .text = text, .target = target, .level = level, .rows = rows};
  for (int i = 0; i < 2; i++) t.in[i] = in[i] = noise((size_t)rows * 8, (unsigned)i + 7);
  LatheRtError err;
  if (protect(t.w.ctx, compile_two, &t)) fail_msg("%s", error_message(t.w.ctx));
  if (protect(t.w.ctx, interpret_two, &t)) fail_msg("%s", error_message(t.w.ctx));
  if (lathe_rt_executor_new(compiled_model(t.w.c), &t.w.x, &err)) fail_msg("%s", err.text);
  for (int i = 0; i < fn_nparams(graph_main(t.w.m)); i++) set(t.w.x, i, tensor(F32, in[i], SHAPE(rows, 8)));
  for (int again = 0; again < 2; again++) run(t.w.x);
  int n = t.want->kind == RV_TUPLE ? t.want->n : 1;
  for (int i = 0; i < n; i++) {
    const ConstData *want = t.want->kind == RV_TUPLE ? &t.want->field[i]->tensor : &t.want->tensor;
    expect_floats(output(t.w.x, i), (int)(want->bytes / 4), want->data, 1e-5f);
  }
  for (int i = 0; i < 2; i++) free(in[i]);
  return t;
}

static int count(const char *text, const char *word)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, word)); p += strlen(word)) n++;
  return n;
}

static const char *const both[2] = {"llvm", "llvm -mcpu=generic"};
static const char *const by_c[2] = {"llvm", "c"};

static const char straight[] = "def @main(%x: Tensor[(4, 8), float32], %y: Tensor[(4, 8), float32]) {\n"
                               "  %0 = on_device(multiply(exp(%x), 3f), virtual_device=\"cpu(1)\");\n"
                               "  %1 = on_device(add(%0, tanh(%y)), virtual_device=\"cpu(0)\");\n"
                               "  on_device(nn.softmax(%1), virtual_device=\"cpu(1)\", constrain_result=True)\n}\n";

static void test_straight(void **state)
{
  (void)state;
  for (int level = 0; level <= 3; level++) {
    Two t = check_two(straight, both, level, 4);
    assert_int_equal(count(t.program, "= copy"), 2);
    assert_true(count(t.program, ") on cpu(0)") >= 1 && count(t.program, ") on cpu(1)") >= 2);
    LatheRtModelInfo info = model_info(compiled_model(t.w.c));
    assert_int_equal(info.is_dynamic, 0);
    close_world(&t.w);
  }
}

static void source_body(Ctx *ctx, void *arg)
{
  Two *t = arg;
  t->source = compiled_source(t->w.c, ctx_arena(ctx), CODE_C);
}

/* The kernels of the target c are C, and no others. */
static void test_llvm_and_c(void **state)
{
  (void)state;
  Two t = check_two(straight, by_c, 3, 4);
  if (codegen_has_llvm()) {
    if (protect(t.w.ctx, source_body, &t)) fail_msg("%s", error_message(t.w.ctx));
    assert_int_equal(count(t.source, "LATHE_EXPORT int32_t fused_exp_multiply__call("), 1);
    assert_int_equal(count(t.source, "LATHE_EXPORT int32_t fused_tanh_add__call("), 0);
  }
  close_world(&t.w);
}

/* The same function on both devices: two kernels. */
static void test_same_function_twice(void **state)
{
  (void)state;
  Two t = check_two("def @main(%x: Tensor[(4, 8), float32], %y: Tensor[(4, 8), float32]) {\n"
                    "  %0 = on_device(exp(%x), virtual_device=\"cpu(1)\");\n"
                    "  %1 = on_device(exp(%y), virtual_device=\"cpu(0)\", constrain_result=True);\n"
                    "  (%0, %1)\n}\n",
                    both, 3, 4);
  assert_int_equal(count(t.program, "lathe_exp("), 1);
  assert_int_equal(count(t.program, "lathe_exp_1("), 1);
  close_world(&t.w);
}

/* A constant is where the kernel is that reads it; as an output it is copied there. */
static void test_constants(void **state)
{
  (void)state;
  Two t = check_two("def @main(%x: Tensor[(4, 8), float32], %y: Tensor[(4, 8), float32], "
                    "result_virtual_device=\"cpu(1)\") {\n"
                    "  %w = meta[relay.Constant][0];\n"
                    "  %0 = on_device(add(%x, %w), virtual_device=\"cpu(1)\", constrain_result=True);\n"
                    "  %1 = on_device(add(%y, %w), virtual_device=\"cpu(0)\", constrain_result=True);\n"
                    "  (%0, %1, %w, %x)\n}\n"
                    "#[metadata]\nrelay.Constant[0]: Tensor[(8), float32] = [1, 2, 3, 4, 5, 6, 7, 8];\n",
                    both, 0, 4);
  close_world(&t.w);
}

/* A loop whose body is far and whose condition is here. */
static const char loop[] =
    "def @loop(%i: int64, %x: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] {\n"
    "  if (less(%i, 3i64)) { @loop(add(%i, 1i64), tanh(add(%x, 0.5f))) } else { %x }\n}\n"
    "def @main(%x: Tensor[(n, 8), float32], %y: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] {\n"
    "  %0 = on_device(exp(%x), virtual_device=\"cpu(1)\", constrain_result=True);\n"
    "  %1 = @loop(0i64, %0);\n"
    "  on_device(subtract(%1, %y), virtual_device=\"cpu(0)\")\n}\n";

static void test_loop(void **state)
{
  (void)state;
  for (int rows = 1; rows <= 5; rows += 4) {
    Two t = check_two(loop, both, rows == 1 ? 0 : 3, rows);
    assert_true(count(t.program, " on cpu(1)") >= 2);
    close_world(&t.w);
  }
}

/* A branch on a value that was computed far away. */
static void test_condition(void **state)
{
  (void)state;
  static const char text[] =
      "def @main(%x: Tensor[(n, 8), float32], %y: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] {\n"
      "  %0 = on_device(exp(%x), virtual_device=\"cpu(1)\");\n"
      "  %1 = greater(sum(%0), 1f);\n"
      "  if (%1) { on_device(negative(%0), virtual_device=\"cpu(1)\", constrain_result=True) } else { %0 }\n}\n";
  Two t = check_two(text, both, 3, 6);
  assert_true(count(t.program, "= copy") >= 1);
  close_world(&t.w);
}

/* ---- a device with memory of its own -------------------------------------------------------------- */

/* Its memory is open while it works itself: anybody else who touches it ends the process.  The n-th call that can fail
 * does so when it is told to.
 *
 * There are two tables of it.  The first does everything at once.  The second has streams: what is asked of one waits
 * until somebody waits for the stream, and the n-th piece of that work fails when it is told to. */
typedef struct Pages {
  char *data;
  size_t bytes;
} Pages;
typedef struct Work {
  LatheRtKernel launch; /* NULL: a copy */
  LatheRtSlot arg[32];
  int narg;
  LatheRtPlace to, from;
  size_t bytes;
} Work;
typedef struct Stream {
  Work work[64];
  int n;
} Stream;
static struct {
  Pages block[64];
  int nblocks, images, copies, launches, streams;
  int calls, fail_at; /* 0: none */
  int works, fail_work;
  bool late; /* the second table */
  Stream standard, *stream[4];
} dev;

static bool injected(LatheRtError *err)
{
  if (++dev.calls != dev.fail_at) return false;
  snprintf(err->text, sizeof err->text, "injected %d", dev.fail_at);
  return true;
}

static void open_memory(bool open)
{
  for (int i = 0; i < dev.nblocks; i++)
    assert_int_equal(mprotect(dev.block[i].data, dev.block[i].bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

static LatheRtCode dev_alloc(void *user, int32_t id, size_t bytes, size_t align, void **out, LatheRtError *err)
{
  (void)user, (void)id, (void)align;
  if (injected(err)) return LATHE_RT_MEMORY;
  assert_true(dev.nblocks < 64);
  size_t pages = (bytes + 65535) / 65536 * 65536;
  *out = mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(*out != MAP_FAILED);
  dev.block[dev.nblocks++] = (Pages){*out, pages};
  return LATHE_RT_OK;
}

static bool touches(const Stream *s, const Pages *p)
{
  for (int i = 0; s && i < s->n; i++) {
    const Work *w = &s->work[i];
    for (int k = 0; k < w->narg; k++)
      if ((char *)w->arg[k].p >= p->data && (char *)w->arg[k].p < p->data + p->bytes) return true;
    if (!w->launch && (w->to.data == p->data || w->from.data == p->data)) return true;
  }
  return false;
}

/* What is freed while work on it is waiting is a mistake of the runtime's. */
static void dev_free(void *user, int32_t id, void *data)
{
  (void)user, (void)id;
  int i = 0;
  while (i < dev.nblocks && dev.block[i].data != data) i++;
  assert_true(i < dev.nblocks);
  assert_false(touches(&dev.standard, &dev.block[i]));
  for (int k = 0; k < 4; k++) assert_false(touches(dev.stream[k], &dev.block[i]));
  munmap(data, dev.block[i].bytes);
  dev.block[i] = dev.block[--dev.nblocks];
}

static int32_t one_after_the_other(const LatheRtCalls *rt, int64_t n, LatheRtBody body, void *env)
{
  (void)rt;
  return body(0, n, 0, env);
}

static bool do_work(const Work *w)
{
  static const LatheRtCalls calls = {.abi = LATHE_RT_ABI, .num_workers = 1, .parallel_for = one_after_the_other};
  int32_t status = 0;
  open_memory(true);
  if (w->launch) status = w->launch(w->arg, w->arg[w->narg - 1].p, &calls);
  else memcpy((char *)w->to.data + w->to.offset, (const char *)w->from.data + w->from.offset, w->bytes);
  open_memory(false);
  return status == 0;
}

/* At once, or when the stream is waited for. */
static LatheRtCode ask(void *stream, const Work *w)
{
  if (!dev.late) return do_work(w) ? LATHE_RT_OK : LATHE_RT_DEVICE;
  Stream *s = stream ? stream : &dev.standard;
  assert_true(s->n < 64);
  s->work[s->n++] = *w;
  return LATHE_RT_OK;
}

static LatheRtCode dev_copy(void *user, LatheRtPlace to, LatheRtPlace from, size_t bytes, void *stream,
                            LatheRtError *err)
{
  (void)user;
  if (injected(err)) return LATHE_RT_DEVICE;
  dev.copies++;
  return ask(stream, &(Work){.to = to, .from = from, .bytes = bytes});
}

static LatheRtCode dev_synchronise(void *user, int32_t id, void *stream, LatheRtError *err)
{
  (void)user, (void)id;
  Stream *s = stream ? stream : &dev.standard;
  bool ok = !injected(err);
  for (int i = 0; i < s->n; i++) {
    bool fails = ++dev.works == dev.fail_work;
    if (fails) snprintf(err->text, sizeof err->text, "injected late %d", dev.fail_work);
    ok = ok && !fails && do_work(&s->work[i]);
  }
  s->n = 0;
  return ok ? LATHE_RT_OK : LATHE_RT_DEVICE;
}

static LatheRtCode dev_stream_new(void *user, int32_t id, void **out, LatheRtError *err)
{
  (void)user, (void)id;
  if (injected(err)) return LATHE_RT_DEVICE;
  int i = 0;
  while (i < 4 && dev.stream[i]) i++;
  assert_true(i < 4);
  *out = dev.stream[i] = calloc(1, sizeof(Stream));
  assert_non_null(*out);
  dev.streams++;
  return LATHE_RT_OK;
}

static void dev_stream_free(void *user, int32_t id, void *stream)
{
  (void)user, (void)id;
  assert_int_equal(((Stream *)stream)->n, 0); /* nothing is under way */
  for (int i = 0; i < 4; i++)
    if (dev.stream[i] == stream) dev.stream[i] = NULL;
  free(stream);
  dev.streams--;
}

/* With one device there is nobody to wait for another. */
static LatheRtCode dev_event_record(void *user, int32_t id, void *stream, void **out, LatheRtError *err)
{
  (void)user, (void)id, (void)stream, (void)out, (void)err;
  fail_msg("an event is marked");
  return LATHE_RT_DEVICE;
}

static LatheRtCode dev_event_wait(void *user, int32_t id, void *stream, void *event, LatheRtError *err)
{
  (void)user, (void)id, (void)stream, (void)event, (void)err;
  return LATHE_RT_DEVICE;
}

static void dev_event_free(void *user, int32_t id, void *event) { (void)user, (void)id, (void)event; }

/* An image is a shared library: what the code generator of target ext_dev makes. */
static LatheRtCode dev_image_load(void *user, int32_t id, const void *image, size_t bytes, void **out,
                                  LatheRtError *err)
{
  (void)user, (void)id;
  if (injected(err)) return LATHE_RT_DEVICE;
  char path[] = "/tmp/lathe_image_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes);
  close(fd);
  *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (!*out) fail_msg("%s", dlerror());
  dev.images++;
  return LATHE_RT_OK;
}

static void dev_image_free(void *user, int32_t id, void *image)
{
  (void)user, (void)id;
  dlclose(image);
  dev.images--;
}

static LatheRtCode dev_image_func(void *user, int32_t id, void *image, const char *name, void **out, LatheRtError *err)
{
  (void)user, (void)id;
  char symbol[200];
  if (injected(err)) return LATHE_RT_DEVICE;
  snprintf(symbol, sizeof symbol, "%s__call", name);
  *out = dlsym(image, symbol);
  return *out ? LATHE_RT_OK : LATHE_RT_NOT_FOUND;
}

static LatheRtCode dev_launch(void *user, int32_t id, void *func, const LatheRtGrid *grid, int32_t n,
                              const LatheRtSlot *args, void *stream, LatheRtError *err)
{
  (void)user, (void)id;
  if (injected(err)) return LATHE_RT_DEVICE;
  assert_true(grid->grid[0] == 1 && grid->block[0] == 1 && n <= 32);
  Work w = {.launch = (LatheRtKernel)(intptr_t)func, .narg = n};
  memcpy(w.arg, args, (size_t)n * sizeof *args);
  dev.launches++;
  return ask(stream, &w);
}

#define WHAT_BOTH_DO                                                                                           \
  .size = sizeof(LatheRtDeviceApi), .type = LATHE_RT_EXT, .count = 1, .align = 64, .name = "test", .arch = "", \
  .alloc = dev_alloc, .free = dev_free, .copy = dev_copy, .synchronise = dev_synchronise,                      \
  .image_load = dev_image_load, .image_free = dev_image_free, .image_func = dev_image_func, .launch = dev_launch
static const LatheRtDeviceApi device_api = {WHAT_BOTH_DO};
static const LatheRtDeviceApi late_api = {WHAT_BOTH_DO,
                                          .stream_new = dev_stream_new,
                                          .stream_free = dev_stream_free,
                                          .event_record = dev_event_record,
                                          .event_wait = dev_event_wait,
                                          .event_free = dev_event_free};

/* Weights on the device, two kernels there, one here, and a loop whose condition is here. */
static const char elsewhere[] =
    "def @loop(%i: int64, %x: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] {\n"
    "  if (less(%i, 3i64)) { @loop(add(%i, 1i64), tanh(add(%x, 0.5f))) } else { %x }\n}\n"
    "def @main(%x: Tensor[(n, 8), float32], %y: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] {\n"
    "  %0 = on_device(add(exp(%x), meta[relay.Constant][0]), virtual_device=\"ext_dev(0)\", constrain_result=True);\n"
    "  %1 = @loop(0i64, nn.softmax(%0));\n"
    "  on_device(subtract(%1, %y), virtual_device=\"cpu(0)\", constrain_result=True)\n}\n"
    "#[metadata]\nrelay.Constant[0]: Tensor[(8), float32] = [1, 2, 3, 4, 5, 6, 7, 8];\n";

static int64_t run_rows;
static float run_answer[64]; /* of the last run that did not fail */
static LatheRtCode run_once(LatheRtModel *m, float *x, float *y, LatheRtError *err)
{
  LatheRtExecutor *e = NULL;
  LatheRtTensor in[2] = {tensor(F32, x, SHAPE(run_rows, 8)), tensor(F32, y, SHAPE(run_rows, 8))};
  LatheRtCode code = lathe_rt_executor_new(m, &e, err);
  for (int i = 0; !code && i < 2; i++) code = lathe_rt_set_input(e, i, &in[i], err);
  if (!code) code = lathe_rt_run(e, err);
  if (!code) memcpy(run_answer, output(e, 0)->data, (size_t)run_rows * 8 * sizeof(float));
  lathe_rt_executor_free(e);
  return code;
}

/* The file carries the image; loading it is where the device is first needed. */
static void load_and_run(Compiled *c, Ctx *ctx, float *x, float *y)
{
  char path[] = "/tmp/lathe_devices_XXXXXX.so";
  close(mkstemps(path, 3));
  LatheRtError err;
  LatheRtModel *m;
  if (protect(ctx, export_body, &(Export){c, path})) fail_msg("%s", error_message(ctx));
  LatheRtCode code = LATHE_RT_DEVICE;
  int images = dev.images;
  for (dev.fail_at = 1; code; dev.fail_at++) { /* the image, then the constants */
    dev.calls = 0;
    code = lathe_rt_model_load(path, &m, &err);
    if (code && !strstr(err.text, "injected")) fail_msg("'%s' does not say why", err.text);
    if (code) assert_int_equal(dev.images, images);
  }
  assert_true(dev.fail_at > 3);
  dev.fail_at = 0;
  if (run_once(m, x, y, &err)) fail_msg("%s", err.text);
  lathe_rt_model_free(m);
  unlink(path);
}

/* Every allocation, copy, launch, stream and wait fails once in turn, then each piece of work that was asked for and
 * comes later.  Nothing is left behind, and the next run is right again. */
static void fail_in_turn(LatheRtModel *m, float *x, float *y, int least)
{
  LatheRtError err;
  int before = dev.nblocks;
  int streams = dev.streams;
  float want[64];
  if (run_once(m, x, y, &err)) fail_msg("%s", err.text);
  memcpy(want, run_answer, sizeof want);
  memset(run_answer, 0, sizeof run_answer);
  LatheRtCode code = LATHE_RT_DEVICE;
  for (dev.fail_at = 1; code; dev.fail_at++) {
    dev.calls = 0;
    code = run_once(m, x, y, &err);
    if (code && !strstr(err.text, "injected")) fail_msg("'%s' does not say why", err.text);
    assert_int_equal(dev.nblocks, before);
    assert_int_equal(dev.streams, streams);
  }
  assert_true(dev.fail_at > least);
  assert_memory_equal(run_answer, want, (size_t)run_rows * 8 * sizeof(float));
  dev.fail_at = 0;
  if (!dev.late) return;
  code = LATHE_RT_DEVICE;
  for (dev.fail_work = 1; code; dev.fail_work++) {
    dev.works = 0;
    code = run_once(m, x, y, &err);
    if (code && !strstr(err.text, "injected late")) fail_msg("'%s' does not say why", err.text);
    assert_int_equal(dev.nblocks, before);
    assert_int_equal(dev.streams, streams);
  }
  assert_true(dev.fail_work > 4);
  assert_memory_equal(run_answer, want, (size_t)run_rows * 8 * sizeof(float));
  dev.fail_work = 0;
}

static void on_test_device(const char *text, int level, int rows, int launches)
{
  static const char *const targets[2] = {"llvm", "ext_dev"};
  LatheRtError err;
  if (lathe_rt_device_add(dev.late ? &late_api : &device_api, &err)) fail_msg("%s", err.text);
  dev.copies = dev.launches = 0;
  Two t = check_two(text, targets, level, rows);
  assert_int_equal(dev.images, 1);
  assert_true(dev.copies >= 3 && dev.launches >= 2 * launches); /* two runs */
  float *x = noise((size_t)rows * 8, 1);
  float *y = noise((size_t)rows * 8, 2);
  run_rows = rows;
  fail_in_turn(compiled_model(t.w.c), x, y, 10);
  load_and_run(t.w.c, t.w.ctx, x, y);
  free(x);
  free(y);
  close_world(&t.w);
  assert_int_equal(dev.nblocks, 0);
  assert_int_equal(dev.images, 0);
  assert_int_equal(dev.streams, 0);
}

static void test_own_memory(void **state)
{
  (void)state;
  for (int late = 0; late < 2; late++) {
    dev.late = late;
    for (int level = 0; level <= 3; level += 3) on_test_device(elsewhere, level, 5, 4);
  }
}

/* A small network: convolution, pooling and product with their weights on the device, the last sum here. */
static void test_network(void **state)
{
  (void)state;
  static char text[20000];
  size_t n = (size_t)snprintf(
      text, sizeof text,
      "def @main(%%x: Tensor[(8, 8), float32], %%y: Tensor[(8, 8), float32]) {\n"
      "  %%0 = on_device(reshape(%%x, newshape=[1, 1, 8, 8]), virtual_device=\"ext_dev(0)\");\n"
      "  %%1 = on_device(nn.conv2d(%%0, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=4, "
      "kernel_size=[3, 3]), virtual_device=\"ext_dev(0)\");\n"
      "  %%2 = on_device(nn.max_pool2d(nn.relu(%%1), pool_size=[2, 2], strides=[2, 2]), "
      "virtual_device=\"ext_dev(0)\");\n"
      "  %%3 = on_device(nn.dense(nn.batch_flatten(%%2), meta[relay.Constant][1]), virtual_device=\"ext_dev(0)\");\n"
      "  %%4 = on_device(nn.softmax(%%3), virtual_device=\"ext_dev(0)\", constrain_result=True);\n"
      "  on_device(add(%%y, %%4), virtual_device=\"cpu(0)\", constrain_result=True)\n}\n#[metadata]\n");
  static const char *const type[] = {"Tensor[(4, 1, 3, 3), float32]", "Tensor[(8, 64), float32]"};
  for (int k = 0; k < 2; k++) {
    int count = k ? 8 * 64 : 36;
    n += (size_t)snprintf(text + n, sizeof text - n, "relay.Constant[%d]: %s = [", k, type[k]);
    for (int i = 0; i < count; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%g", i ? ", " : "", (double)((i * 37 + k) % 19 - 9) / 16);
    n += (size_t)snprintf(text + n, sizeof text - n, "];\n");
  }
  assert_true(n < sizeof text);
  for (int late = 0; late < 2; late++) {
    dev.late = late;
    for (int level = 0; level <= 3; level += 3) on_test_device(text, level, 8, 3);
  }
}

static void refused(const char *text, const char *a, const char *b, const char *want)
{
  Two t = {.w = {.ctx = ctx_new()}, .text = text, .target = (const char *[]){a, b}, .level = 3};
  assert_true(protect(t.w.ctx, compile_two, &t));
  if (!strstr(error_message(t.w.ctx), want)) fail_msg("'%s' lacks '%s'", error_message(t.w.ctx), want);
  close_world(&t.w);
}

static void test_refusals(void **state)
{
  (void)state;
  bool arm = target_host_arch() == ARCH_AARCH64;
  refused(straight, "llvm", "cuda", "a model is compiled for a CPU, not for 'cuda'");
  refused(straight, "llvm", arm ? "llvm -mcpu=x86-64" : "llvm -mcpu=cortex-a72",
          codegen_has_llvm() ? "are for different machines" : "code for another machine needs");
  refused("def @main(%x: Tensor[(4, 8), float32]) { on_device(exp(%x), virtual_device=\"cpu(2)\") }\n", "llvm", "c",
          "on_device: no target is given for cpu(2); the targets are for cpu(0) (llvm), cpu(1) (c)");
}

static void write_c_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  compiled_export(arg, "/tmp/lathe_two_targets.c", WEIGHTS_BY_SIZE);
}

static void test_no_c_source_of_two(void **state)
{
  (void)state;
  Two t = check_two(straight, (const char *[]){"c", far_text}, 3, 4);
  assert_true(protect(t.w.ctx, write_c_body, t.w.c));
  assert_non_null(strstr(error_message(t.w.ctx), "the model is for 2 targets; write .so, .o or .a"));
  close_world(&t.w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_straight),   cmocka_unit_test(test_llvm_and_c),
    cmocka_unit_test(test_constants),  cmocka_unit_test(test_same_function_twice),
    cmocka_unit_test(test_loop),       cmocka_unit_test(test_condition),
    cmocka_unit_test(test_refusals),   cmocka_unit_test(test_no_c_source_of_two),
    cmocka_unit_test(test_own_memory), cmocka_unit_test(test_network),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
