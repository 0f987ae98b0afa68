/* test_static.c: models whose sizes are all known: run in memory, from a file, from many
 * threads; storage; names; errors of their inputs. */
#include <pthread.h>

#include "driver/test_driver.h"

static const char mlp[] =
    "def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32], %b: Tensor[(4), float32]) {\n"
    "  %0 = nn.dense(%x, %w);\n"
    "  %1 = nn.bias_add(%0, %b);\n"
    "  nn.relu(%1)\n"
    "}\n";
static float mlp_x[] = {1, 2, 3, -1, 0, 1}, mlp_w[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, mlp_b[] = {0, 1, -2, 0.5f};
static const float mlp_y[] = {1, 3, 1, 6.5f, 0, 1, 0, 0.5f};

static void run_mlp(LatheRtExecutor *x)
{
  set(x, 0, tensor(F32, mlp_x, SHAPE(2, 3)));
  set(x, 1, tensor(F32, mlp_w, SHAPE(4, 3)));
  set(x, 2, tensor(F32, mlp_b, SHAPE(4)));
  run(x);
  expect_floats(output(x, 0), 8, mlp_y, 1e-6f);
}

static void test_mlp(void **state)
{
  (void)state;
  World w = compile_text(mlp);
  run_mlp(w.x);
  LatheRtModelInfo info = model_info(compiled_model(w.c));
  assert_int_equal(info.is_dynamic, 0);
  assert_int_equal(info.num_nodes, 1);
  const LatheRtPort *in;
  assert_int_equal(lathe_rt_model_inputs(compiled_model(w.c), &in), 3);
  assert_string_equal(in[1].name, "w");
  assert_int_equal(in[1].shape[0], 4);
  close_world(&w);
}

/* ---- files ------------------------------------------------------------------------------------ */

static void test_file(void **state)
{
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "/tmp/lathe_test_%d.so", (int)getpid());
  World w = compile_text(mlp);
  Export e = {w.c, path};
  if (protect(w.ctx, export_body, &e)) fail_msg("%s", error_message(w.ctx));
  close_world(&w);
  LatheRtError err;
  LatheRtModel *m;
  if (lathe_rt_model_load(path, &m, &err)) fail_msg("%s", err.text);
  unlink(path);
  LatheRtExecutor *x;
  assert_int_equal(lathe_rt_executor_new(m, &x, &err), 0);
  lathe_rt_model_free(m);
  run_mlp(x);
  lathe_rt_executor_free(x);
}

/* ---- programs ------------------------------------------------------------------------------------ */

/* A reshape is no kernel; an output that is an input is copied; layers of equal shape share a kernel. */
static void test_program(void **state)
{
  (void)state;
  World w = compile_text(
      "def @main(%x: Tensor[(2, 3), float32], %v: Tensor[(3, 3), float32], %w: Tensor[(3, 3), float32]) {\n"
      "  %0 = nn.relu(nn.dense(%x, %v));\n"
      "  %1 = nn.relu(nn.dense(%0, %w));\n"
      "  (reshape(%1, newshape=[3, 2]), %x, %1)\n"
      "}\n");
  float x[] = {1, 2, 3, 4, 5, 6};
  float v[] = {1, 0, 0, 0, 1, 0, 0, 0, -1};
  float u[] = {1, 1, 1, 0, 1, 0, 0, 2, 0};
  set(w.x, 0, tensor(F32, x, SHAPE(2, 3)));
  LatheRtTensor t = tensor(F32, v, SHAPE(3, 3));
  LatheRtError err;
  assert_int_equal(lathe_rt_set_input_view(w.x, 1, &t, &err), 0);
  set(w.x, 2, tensor(F32, u, SHAPE(3, 3)));
  run(w.x);
  const float want[] = {3, 2, 4, 9, 5, 10};
  assert_int_equal(output(w.x, 0)->shape[0], 3);
  expect_floats(output(w.x, 0), 6, want, 0);
  expect_floats(output(w.x, 1), 6, x, 0);
  expect_floats(output(w.x, 2), 6, want, 0);
  const LatheRtTensor *in;
  assert_int_equal(lathe_rt_get_input(w.x, 0, &in, &err), 0);
  assert_ptr_not_equal(in->data, output(w.x, 1)->data);
  LatheRtModel *m = compiled_model(w.c);
  assert_int_equal(model_info(m).num_nodes, 2);
  assert_string_equal(lathe_rt_model_node(m, 0)->name, lathe_rt_model_node(m, 1)->name);
  assert_null(lathe_rt_model_node(m, 2));
  close_world(&w);
}

/* A chain needs two places at a time, however long it is. */
static void test_storage(void **state)
{
  (void)state;
  char text[2000] = "def @main(%x: Tensor[(64, 64), float32]) {\n  %0 = nn.softmax(%x);\n";
  for (int i = 1; i < 8; i++) snprintf(text + strlen(text), 100, "  %%%d = nn.softmax(%%%d);\n", i, i - 1);
  strcat(text, "  nn.softmax(%7)\n}\n");
  World w = compile_text(text);
  LatheRtModelInfo info = model_info(compiled_model(w.c));
  assert_int_equal(info.storage_bytes, 2 * 64 * 64 * 4);
  assert_int_equal(info.storage_bound, info.storage_bytes);
  close_world(&w);
}

static void compare_body(Ctx *ctx, void *arg)
{
  World *w = arg;
  LatheRtTensor t[] = {tensor(F32, mlp_x, SHAPE(2, 3)), tensor(F32, mlp_w, SHAPE(4, 3)), tensor(F32, mlp_b, SHAPE(4))};
  const LatheRtTensor *in[] = {&t[0], &t[1], &t[2]};
  const char *text;
  assert_true(driver_debug_compare(w->c, 3, in, 1e-5, 1e-6, scratch(ctx), &text));
  assert_string_equal(text, "all 1 kernel calls agree with the interpreter");
}

static void test_compare(void **state)
{
  (void)state;
  World w = compile_text(mlp);
  if (protect(w.ctx, compare_body, &w)) fail_msg("%s", error_message(w.ctx));
  close_world(&w);
}

/* An operator that says one thing when it is compiled and another when it is interpreted. */
static int lie_adds;

static const Type *lie_type(OpCall *c) { return c->arg[0]; }

static void lie_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const IterVar *axis =
      itervar_new(m, var_new(m, "i", DT_I32, VAR_PLAIN), expr_i32(m, 0), c->out->shape[0], ITER_SPATIAL, NULL);
  const Expr *at = var_expr(axis->var);
  const Expr *value = expr_add(m, te_read(m, in[0], 1, &at), expr_float(m, DT_F32, lie_adds));
  out[0] = &te_compute(m, "lie", "injective", 1, c->out->shape, (const IterVar **)&axis, 1, &value, NULL)->out[0];
}

static const OpDef lie = {.name = "test.lie",
                          .doc = "adds what it likes",
                          .args = "data",
                          .min_args = 1,
                          .max_args = 1,
                          .fuse = FUSE_OPAQUE,
                          .type = lie_type,
                          .compute = lie_compute};

static void wrong_node_body(Ctx *ctx, void *arg)
{
  World *w = arg;
  LatheRtTensor t = tensor(F32, mlp_x, SHAPE(4));
  const LatheRtTensor *in[] = {&t};
  const char *text;
  lie_adds = 1;
  assert_true(driver_debug_compare(w->c, 1, in, 1e-5, 1e-6, scratch(ctx), &text));
  assert_string_equal(text, "all 3 kernel calls agree with the interpreter");
  lie_adds = 2;
  assert_false(driver_debug_compare(w->c, 1, in, 1e-5, 1e-6, scratch(ctx), &text));
  if (!strstr(text, "node 1 'lathe_test_lie'") || !strstr(text, "4 of 4 elements of output 0 differ"))
    fail_msg("%s", text);
}

static void lie_body(Ctx *ctx, void *arg)
{
  (void)arg;
  op_init();
  opdef_register(ctx, &lie);
}

/* Of three kernels the second is wrong; the third only passes on what it is given. */
static void test_compare_names_the_wrong_node(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  if (protect(ctx, lie_body, NULL)) fail_msg("%s", error_message(ctx));
  lie_adds = 1;
  World w = compile_text("def @main(%x: Tensor[(4), float32]) { nn.relu(test.lie(exp(%x))) }\n");
  if (protect(w.ctx, wrong_node_body, &w)) fail_msg("%s", error_message(w.ctx));
  close_world(&w);
  opdef_unregister(&lie);
  ctx_free(ctx);
}

/* ---- the configuration reaches the kernels ------------------------------------------------------------ */

/* Vectors in the C source of a small model, compiled with or without tir.disable_vectorize. */
static void vectors_body(Ctx *ctx, void *arg)
{
  bool *some = arg;
  op_init();
  Module *m = module_new(ctx);
  graph_parse_module(m, "def @main(%x: Tensor[(64, 64), float32]) { add(nn.relu(%x), 1f) }\n", "test.relay");
  PassContext *pc = pass_context_new(ctx);
  pass_config_set(pc, "tir.disable_vectorize", *some ? "false" : "true");
  Compiled *c = driver_compile(ctx, m, &(CompileOptions){.target = target_parse(ctx, "c"), .passes = pc});
  *some = strstr(code_get(compiled_code(c), CODE_C, scratch(ctx), NULL), "vector_size") != NULL;
  compiled_release(c);
  pass_context_free(pc);
  module_release(m);
}

static void test_disable_vectorize(void **state)
{
  (void)state;
  for (int vectorize = 0; vectorize < 2; vectorize++) {
    Ctx *ctx = ctx_new();
    bool some = vectorize;
    if (protect(ctx, vectors_body, &some)) fail_msg("%s", error_message(ctx));
    assert_int_equal(some, vectorize);
    ctx_free(ctx);
  }
}

/* ---- threads and faults -------------------------------------------------------------------------------- */

static void *run_in_thread(void *arg)
{
  LatheRtExecutor *x;
  LatheRtError err;
  if (lathe_rt_executor_new(arg, &x, &err)) return "executor_new";
  for (int i = 0; i < 50; i++) run_mlp(x);
  lathe_rt_executor_free(x);
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  World w = compile_text(mlp);
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, run_in_thread, compiled_model(w.c));
  for (int i = 0; i < 3; i++) {
    void *why;
    pthread_join(thread[i], &why);
    assert_null(why);
  }
  close_world(&w);
}

/* The n-th allocation fails, for growing n, until the compilation succeeds: an error each time, no leak. */
static void test_faults(void **state)
{
  (void)state;
  for (int64_t n = 1, step = 1; n < 1000000; n += step, step = 1 + n / 3) {
    World w = {.ctx = ctx_new()};
    Job j = {.text = mlp, .w = &w};
    mem_fail_after(w.ctx, n);
    ErrKind kind = protect(w.ctx, job_body, &j);
    mem_fail_after(w.ctx, 0);
    bool done = kind == ERR_NONE;
    if (!done) assert_int_equal(kind, ERR_MEMORY);
    close_world(&w);
    if (done) return;
  }
  fail();
}

static void test_refusals(void **state)
{
  (void)state;
  World w;
  const char *why = try_compile(&w, "def @f(%x: Tensor[(2), float32]) { %x }\n", NULL);
  assert_string_equal(why, "the module has no graph function @main");
  close_world(&w);
  w = compile_text(mlp);
  Export e = {w.c, "/tmp/model.xyz"};
  assert_int_equal(protect(w.ctx, export_body, &e), ERR_ARGUMENT);
  assert_string_equal(error_message(w.ctx),
                      "cannot tell from '/tmp/model.xyz' what to write; the name ends in .so, .o, .a or .c");
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mlp),
    cmocka_unit_test(test_file),
    cmocka_unit_test(test_program),
    cmocka_unit_test(test_storage),
    cmocka_unit_test(test_compare),
    cmocka_unit_test(test_compare_names_the_wrong_node),
    cmocka_unit_test(test_disable_vectorize),
    cmocka_unit_test(test_threads),
    cmocka_unit_test(test_faults),
    cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
