/* test_linkable.c: outputs in the caller's memory, and files that a program links: under the sanitizers
 * what tests/python/test_zero_copy.py and test_linking.py check against numbers. */
#include <math.h>

#include "driver/test_driver.h"

/* The first output is a part of the third: the plan may lay one on the other. */
static const char text[] = "def @main(%x: Tensor[(2, 3), float32]) {\n"
                           "  %0 = nn.relu(%x);\n"
                           "  %1 = exp(%0);\n"
                           "  (%0, %1, concatenate((%0, %1), axis=0))\n"
                           "}\n";
static float given[] = {1, -1, 0, 0, 2, -2};

static void expect_all(LatheRtExecutor *x)
{
  float want[12];
  for (int i = 0; i < 6; i++) {
    want[i] = given[i] > 0 ? given[i] : 0;
    want[6 + i] = expf(want[i]);
  }
  run(x);
  expect_floats(output(x, 0), 6, want, 1e-5f);
  expect_floats(output(x, 1), 6, want + 6, 1e-5f);
  expect_floats(output(x, 2), 12, want, 1e-5f);
}

static void view(LatheRtExecutor *x, int i, float *data, int64_t rows)
{
  LatheRtError err;
  LatheRtTensor t = tensor(F32, data, SHAPE(rows, 3));
  if (lathe_rt_set_output_view(x, i, data ? &t : NULL, &err)) fail_msg("%s", err.text);
}

/* Every choice of outputs in memory of the caller's, which ends with it. */
static void test_views(void **state)
{
  (void)state;
  World w = compile_text(text);
  for (int choice = 0; choice < 8; choice++) {
    float *mine[3];
    set(w.x, 0, tensor(F32, given, SHAPE(2, 3)));
    for (int i = 0; i < 3; i++) {
      mine[i] = malloc(12 * sizeof(float));
      if (choice >> i & 1) view(w.x, i, mine[i], i == 2 ? 4 : 2);
    }
    expect_all(w.x);
    for (int i = 0; i < 3; i++) {
      if (choice >> i & 1) assert_memory_equal(mine[i], output(w.x, i)->data, (i == 2 ? 12 : 6) * sizeof(float));
      view(w.x, i, NULL, 0);
      free(mine[i]);
    }
    expect_all(w.x);
  }
  close_world(&w);
}

static void test_refusals(void **state)
{
  (void)state;
  World w = compile_text(text);
  LatheRtError err;
  float out[12];
  LatheRtTensor good = tensor(F32, out, SHAPE(2, 3));
  LatheRtTensor shape = tensor(F32, out, SHAPE(3, 2));
  LatheRtTensor type = tensor(I32, out, SHAPE(2, 3));
  LatheRtTensor odd = tensor(F32, (char *)out + 1, SHAPE(2, 3));
  LatheRtTensor mine = tensor(F32, given, SHAPE(2, 3));
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 3, &good, &err), 0);
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 0, &shape, &err), 0);
  assert_non_null(strstr(err.text, "(3, 2)"));
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 0, &type, &err), 0);
  assert_non_null(strstr(err.text, "int32"));
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 0, &odd, &err), 0);
  assert_non_null(strstr(err.text, "aligned"));
  assert_int_equal(lathe_rt_set_input_view(w.x, 0, &mine, &err), 0);
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 0, &mine, &err), 0);
  assert_non_null(strstr(err.text, "overwrite"));
  assert_int_equal(lathe_rt_set_output_view(w.x, 0, &good, &err), 0);
  assert_int_not_equal(lathe_rt_set_output_view(w.x, 1, &good, &err), 0);
  assert_int_not_equal(lathe_rt_set_input_view(w.x, 0, &good, &err), 0);
  expect_all(w.x);
  close_world(&w);
}

static void expect_file(World *w, const char *folder, const char *name, const char *const *words)
{
  char path[256], out[65536];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is not there", path);
  size_t n = fread(out, 1, sizeof out - 1, f);
  fclose(f);
  unlink(path);
  for (; *words; words++) {
    bool found = false;
    for (size_t i = 0; !found && i + strlen(*words) <= n; i++) found = !memcmp(out + i, *words, strlen(*words));
    if (!found) fail_msg("%s does not hold '%s'", name, *words);
  }
  (void)w;
}

static void test_files(void **state)
{
  (void)state;
  char folder[] = "/tmp/lathe_link_XXXXXX";
  char path[256];
  assert_non_null(mkdtemp(folder));
  World w = compile_text("def @main(%x.1: Tensor[(n, 2), float32], %int: Tensor[(2), int64]) { (add(%x.1, cast(%int, "
                         "dtype=\"float32\")), %int) }");
  static const char *const names[] = {"two-3.o", "two-3.a"};
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    Export e = {w.c, path};
    if (protect(w.ctx, export_body, &e)) fail_msg("%s", error_message(w.ctx));
    expect_file(&w, folder, names[i],
                (const char *const[]){"two_3__lathe_module", "two_3__lathe_model", "lathe_module", NULL});
    expect_file(
        &w, folder, "two-3.h",
        (const char *const[]){"two_3_load(LatheRtModel **out",
                              "two_3_run(LatheRtExecutor *executor, int64_t n, const float *x_1, const int64_t *int_",
                              "int64_t shape_of_x_1[] = {n, 2}", NULL});
  }
  rmdir(folder);
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_views), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
