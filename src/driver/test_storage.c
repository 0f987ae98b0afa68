/* test_storage.c: tensors that lie on each other: concatenations and splits without copies,
 * kernels that write over what they read; and the same bytes for any number of threads. */
#include "driver/test_driver.h"

/* ---- what the interpreter gives ---------------------------------------------------------------- */

typedef struct Check {
  World *w;
  const char *text; /* of the program */
  bool agree;
  const char *said;
} Check;

enum { MOST_INPUTS = 4 };

static int make_inputs(World *w, LatheRtTensor *out, float **data)
{
  const LatheRtPort *port;
  int n = lathe_rt_model_inputs(compiled_model(w->c), &port);
  assert_true(n <= MOST_INPUTS);
  for (int i = 0; i < n; i++) {
    size_t count = 1;
    for (int d = 0; d < port[i].ndim; d++) count *= (size_t)port[i].shape[d];
    data[i] = noise(count, (unsigned)(i + 1));
    out[i] = tensor(F32, data[i], (size_t)port[i].ndim, (int64_t *)(uintptr_t)port[i].shape);
  }
  return n;
}

static const RtValue *evaluate(World *w, int n, const LatheRtTensor *in)
{
  Arena *a = scratch(w->ctx);
  const RtValue **arg = arena_array(a, const RtValue *, n + 1);
  for (int i = 0; i < n; i++) {
    RtValue *v = arena_new_of(a, RtValue);
    v->kind = RV_TENSOR;
    v->tensor = (ConstData){.dtype = DT_F32, .ndim = in[i].ndim, .data = in[i].data, .bytes = 4};
    for (int d = 0; d < in[i].ndim; d++) v->tensor.bytes *= (size_t)(v->tensor.shape[d] = in[i].shape[d]);
    arg[i] = v;
  }
  return graph_eval(w->m, a, graph_main(w->m), n, arg);
}

/* Twice, since a run must not spoil the next; then every kernel against the interpreter. */
static void check_body(Ctx *ctx, void *arg)
{
  Check *c = arg;
  World *w = c->w;
  LatheRtTensor in[MOST_INPUTS];
  const LatheRtTensor *given[MOST_INPUTS];
  float *data[MOST_INPUTS];
  int n = make_inputs(w, in, data);
  const RtValue *want = evaluate(w, n, in);
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < n; i++) set(w->x, i, in[i]);
    run(w->x);
    for (int k = 0; k < (want->kind == RV_TUPLE ? want->n : 1); k++) {
      const ConstData *d = want->kind == RV_TUPLE ? &want->field[k]->tensor : &want->tensor;
      expect_floats(output(w->x, k), (int)(d->bytes / 4), d->data, 1e-4f);
    }
  }
  for (int i = 0; i < n; i++) given[i] = &in[i];
  c->agree = driver_debug_compare(w->c, n, given, 1e-5, 1e-5, w->m->arena, &c->said);
  c->text = compiled_program_text(w->c, w->m->arena);
  for (int i = 0; i < n; i++) free(data[i]);
  (void)ctx;
}

static World compile_and_check(const char *text, const char **program)
{
  World w = compile_text(text);
  Check c = {.w = &w};
  if (protect(w.ctx, check_body, &c)) fail_msg("%s", error_message(w.ctx));
  if (!c.agree) fail_msg("%s\n%s", c.said, c.text);
  *program = c.text;
  LatheRtModelInfo info = model_info(compiled_model(w.c));
  assert_true(info.storage_bytes >= info.storage_bound);
  return w;
}

static uint64_t storage(World *w) { return lathe_rt_model_entry(compiled_model(w->c), 0)->storage_bytes; }

static int count(const char *text, const char *what)
{
  int n = 0;
  for (const char *t = text; (t = strstr(t, what)); t++) n++;
  return n;
}

/* Where the program puts register number `reg`. */
static long place(const char *program, int reg)
{
  char start[32];
  snprintf(start, sizeof start, " %%%d = alloc ", reg);
  const char *line = strstr(program, start);
  const char *at = line ? strstr(line, " at ") : NULL;
  if (!at) fail_msg("register %d is not allocated:\n%s", reg, program);
  return atol(at + 4);
}

#define POOL(x) "nn.max_pool2d(" x ", pool_size=[3, 3], padding=[1, 1, 1, 1])"

/* ---- concatenations -------------------------------------------------------------------------------- */

enum { PART = 16 * 8 * 8 * 4 };

/* The operands are parts of the result; nothing is copied. */
static void concatenate_outer(void **state)
{
  (void)state;
  const char *program;
  World w = compile_and_check("def @main(%x: Tensor[(1, 16, 8, 8), float32]) {\n"
                              "  %0 = " POOL("%x") ";\n  %1 = nn.avg_pool2d(%x, pool_size=[1, 1]);\n"
                                                   "  %2 = concatenate((%0, %1), axis=1);\n  " POOL("%2") "\n}\n",
                              &program);
  assert_int_equal(count(program, "concatenate"), 0);
  assert_int_equal(place(program, 2) - place(program, 1), PART);
  assert_int_equal(place(program, 3), place(program, 1));
  assert_int_equal(storage(&w), 4 * PART);
  assert_int_equal(model_info(compiled_model(w.c)).num_nodes, 3);
  close_world(&w);
}

/* A shorter concatenation is the beginning of a longer one. */
static void concatenate_grows(void **state)
{
  (void)state;
  const char *program;
  World w = compile_and_check(
      "def @main(%x: Tensor[(1, 16, 8, 8), float32]) {\n"
      "  %0 = " POOL("%x") ";\n  %1 = nn.avg_pool2d(%x, pool_size=[1, 1]);\n"
                           "  %2 = concatenate((%0, %1), axis=1);\n  %3 = nn.max_pool2d(%2, pool_size=[1, 1]);\n"
                           "  %4 = concatenate((%0, %1, %3), axis=1);\n  %5 = " POOL("%4") ";\n  (%5, %2)\n}\n",
      &program);
  assert_int_equal(count(program, "concatenate"), 0);
  assert_int_equal(place(program, 3), place(program, 1));
  assert_int_equal(place(program, 5), place(program, 1));
  close_world(&w);
}

/* What cannot lie in the result is copied: one tensor twice, an input, parts that are not whole
 * cache lines, an inner axis. */
static void concatenate_copies(void **state)
{
  (void)state;
  static const char *const bodies[] = {
    "  %0 = " POOL("%x") ";\n  %1 = concatenate((%0, %0), axis=1);\n  " POOL("%1") "\n",
    "  %0 = " POOL("%x") ";\n  %1 = concatenate((%0, %x), axis=1);\n  " POOL("%1") "\n",
    "  %0 = " POOL("%x") ";\n  %1 = concatenate((%0, %0), axis=2);\n  " POOL("%1") "\n",
    "  %0 = strided_slice(" POOL("%x") ", begin=[0, 0, 0, 0], end=[1, 3, 3, 3]);\n  %1 = " POOL(
        "%0") ";\n  %2 = nn.avg_pool2d(%0, pool_size=[1, 1]);\n"
              "  %3 = concatenate((%1, %2), axis=1);\n  " POOL("%3") "\n",
  };
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    const char *program;
    char text[1000];
    snprintf(text, sizeof text, "def @main(%%x: Tensor[(1, 16, 8, 8), float32]) {\n%s}\n", bodies[i]);
    World w = compile_and_check(text, &program);
    assert_int_equal(count(program, "concatenate("), 1);
    close_world(&w);
  }
}

/* ---- splits ------------------------------------------------------------------------------------------ */

static void split_outer(void **state)
{
  (void)state;
  const char *program;
  World w = compile_and_check(
      "def @main(%x: Tensor[(1, 32, 8, 8), float32]) {\n"
      "  %0 = " POOL("%x") ";\n  %1 = split(%0, indices_or_sections=[2], axis=1);\n"
                           "  %2 = " POOL("%1.1") ";\n  %3 = nn.avg_pool2d(%1.0, pool_size=[3, 3]);\n  (%2, %3)\n}\n",
      &program);
  assert_int_equal(count(program, "split"), 0);
  assert_int_equal(place(program, 2), place(program, 1));
  assert_int_equal(place(program, 3) - place(program, 1), PART);
  close_world(&w);
}

/* The halves of a split go into a concatenation in their order: the split tensor lies in the result. */
static void split_and_concatenate(void **state)
{
  (void)state;
  const char *program;
  World w = compile_and_check(
      "def @main(%x: Tensor[(1, 32, 8, 8), float32]) {\n"
      "  %0 = " POOL("%x") ";\n  %1 = split(%0, indices_or_sections=[2], axis=1);\n"
                           "  %2 = " POOL("%1.1") ";\n  %3 = concatenate((%1.0, %1.1, %2), axis=1);\n  " POOL(
                               "%3") "\n}\n",
      &program);
  assert_int_equal(count(program, "split") + count(program, "concatenate"), 0);
  close_world(&w);
}

/* ---- in place --------------------------------------------------------------------------------------- */

/* The last two arguments of the call whose kernel has this in its name. */
static void last_arguments(const char *program, const char *kernel, int *in, int *out)
{
  const char *call = strstr(program, kernel);
  const char *end = call ? strchr(call, ')') : NULL;
  if (!end) fail_msg("no call of %s:\n%s", kernel, program);
  const char *at = end;
  while (*at != '%') at--;
  *out = atoi(at + 1);
  for (at--; *at != '%'; at--) continue;
  *in = atoi(at + 1);
}

/* A residual addition is written over the tensor that ends there, by the convolution itself. */
static void residual_in_place(void **state)
{
  (void)state;
  const char *program;
  int in, out;
  World w = compile_and_check(
      "def @main(%x: Tensor[(1, 16, 8, 8), float32], %w: Tensor[(16, 16, 3, 3), float32]) {\n"
      "  %0 = " POOL("%x") ";\n  %1 = nn.conv2d(%0, %w, padding=[1, 1, 1, 1]);\n"
                           "  %2 = nn.avg_pool2d(%x, pool_size=[1, 1]);\n  " POOL("nn.relu(add(%1, %2))") "\n}\n",
      &program);
  last_arguments(program, "_add_nn_relu", &in, &out);
  assert_int_equal(place(program, in), place(program, out));
  close_world(&w);
}

/* Sizes that are no whole vectors: no element is computed twice, by overlapping vectors say. */
static void odd_sizes_in_place(void **state)
{
  (void)state;
  static const int sizes[] = {7, 23, 31, 95};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const char *program;
    char text[300];
    int in, out;
    snprintf(text, sizeof text,
             "def @main(%%x: Tensor[(1, 1, 3, %d), float32]) {\n  %%0 = " POOL(
                 "%%x") ";\n  (nn.avg_pool2d(%%0, pool_size=[1, 1]), exp(%%0))\n}\n",
             sizes[i]);
    World w = compile_and_check(text, &program);
    last_arguments(program, "lathe_exp", &in, &out);
    assert_int_equal(place(program, in), place(program, out));
    close_world(&w);
  }
}

/* The tensor is read again later, or by the same kernel at other places: it is left alone. */
static void still_needed(void **state)
{
  (void)state;
  const char *program;
  World w = compile_and_check("def @main(%x: Tensor[(1, 16, 8, 8), float32]) {\n"
                              "  %0 = " POOL("%x") ";\n  %1 = exp(%0);\n  %2 = " POOL(
                                  "%1") ";\n  %3 = nn.avg_pool2d(%1, pool_size=[1, 1]);\n  (%2, %3, %0)\n}\n",
                              &program);
  assert_true(place(program, 2) != place(program, 1));
  close_world(&w);
  w = compile_and_check(
      "def @main(%x: Tensor[(64, 64), float32]) {\n  %0 = nn.softmax(%x);\n  add(%0, transpose(%0))\n}\n", &program);
  assert_true(place(program, 2) != place(program, 1));
  close_world(&w);
}

/* ---- threads ----------------------------------------------------------------------------------------- */

static const char network[] =
    "def @main(%x: Tensor[(1, 32, 28, 28), float32], %w: Tensor[(64, 32, 3, 3), float32], %v: Tensor[(64, 64, 1, 1), "
    "float32], %d: Tensor[(40, 64), float32]) {\n"
    "  %0 = nn.relu(nn.conv2d(%x, %w, padding=[1, 1, 1, 1]));\n  %1 = nn.conv2d(%0, %v);\n  %2 = nn.relu(add(%1, "
    "%0));\n"
    "  %3 = concatenate((%2, nn.max_pool2d(%0, pool_size=[3, 3], padding=[1, 1, 1, 1])), axis=1);\n"
    "  %4 = nn.batch_flatten(nn.global_avg_pool2d(%2));\n  %5 = nn.softmax(nn.dense(%4, %d));\n"
    "  (%5, mean(%3, axis=[1]), sum(%3), layout_transform(%2, src_layout=\"NCHW\", dst_layout=\"NHWC\"))\n}\n";

static void same_bytes_for_any_threads(void **state)
{
  (void)state;
  static const int threads[] = {1, 2, 3, 16};
  World w = compile_text(network);
  LatheRtTensor in[MOST_INPUTS];
  float *data[MOST_INPUTS], *first[4];
  int n = make_inputs(&w, in, data);
  for (int t = 0; t < 4; t++) {
    LatheRtError err;
    if (lathe_rt_executor_set_threads(w.x, threads[t], &err)) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) set(w.x, i, in[i]);
    run(w.x);
    for (int k = 0; k < 4; k++) {
      const LatheRtTensor *y = output(w.x, k);
      size_t bytes;
      assert_int_equal(lathe_rt_tensor_bytes(y, &bytes, NULL), 0);
      if (t == 0) first[k] = memcpy(malloc(bytes), y->data, bytes);
      if (memcmp(first[k], y->data, bytes)) fail_msg("output %d at %d threads is not the one at 1", k, threads[t]);
    }
  }
  for (int k = 0; k < 4; k++) free(first[k]);
  for (int i = 0; i < n; i++) free(data[i]);
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(concatenate_outer),          cmocka_unit_test(concatenate_grows),
    cmocka_unit_test(concatenate_copies),         cmocka_unit_test(split_outer),
    cmocka_unit_test(split_and_concatenate),      cmocka_unit_test(residual_in_place),
    cmocka_unit_test(odd_sizes_in_place),         cmocka_unit_test(still_needed),
    cmocka_unit_test(same_bytes_for_any_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
