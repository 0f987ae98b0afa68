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
  LatheRtModelInfo info = lathe_rt_model_info(compiled_model(w.c));
  assert_int_equal(info.is_dynamic, 0);
  assert_int_equal(info.num_nodes, 1);
  const LatheRtPort *in;
  assert_int_equal(lathe_rt_model_inputs(compiled_model(w.c), &in), 3);
  assert_string_equal(in[1].name, "w");
  assert_int_equal(in[1].shape[0], 4);
  close_world(&w);
}

/* ---- files ------------------------------------------------------------------------------------ */

typedef struct Export {
  Compiled *c;
  const char *path;
} Export;
static void export_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Export *e = arg;
  compiled_export(e->c, e->path);
}

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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mlp),
      cmocka_unit_test(test_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
