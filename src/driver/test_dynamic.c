/* test_dynamic.c: sizes known at run time only, branches, loops, tuples, sequences. */
#include "driver/test_driver.h"

static void test_symbolic(void **state)
{
  (void)state;
  World w = compile_text("def @main(%a: Tensor[(n, 2), float32], %b: Tensor[(n, 2), float32]) {\n"
                         "  concatenate((add(%a, %b), %a), axis=0)\n"
                         "}\n");
  float a[] = {1, 2, 3, 4, 5, 6};
  float b[] = {10, 20, 30, 40, 50, 60};
  for (int64_t n = 1; n <= 3; n++) {
    set(w.x, 0, tensor(F32, a, SHAPE(n, 2)));
    set(w.x, 1, tensor(F32, b, SHAPE(n, 2)));
    run(w.x);
    const LatheRtTensor *y = output(w.x, 0);
    assert_int_equal(y->ndim, 2);
    assert_int_equal(y->shape[0], 2 * n);
    float want[12];
    for (int i = 0; i < 2 * n; i++) want[i] = a[i] + b[i], want[2 * n + i] = a[i];
    expect_floats(y, (int)(4 * n), want, 0);
  }
  set(w.x, 1, tensor(F32, b, SHAPE(2, 2)));
  LatheRtError err;
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'b' has n = 2, input 'a' has n = 3");
  LatheRtTensor bad = tensor(F32, b, SHAPE(2, 3));
  assert_int_equal(lathe_rt_set_input(w.x, 1, &bad, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'b' has shape (2, 3), wants Tensor[(n, 2), float32]");
  close_world(&w);
}

/* Sizes that meet inside a kernel are checked before it runs, also where its result is a scalar. */
static void test_sizes_that_do_not_fit(void **state)
{
  (void)state;
  static const char *const bodies[] = {"add(%a, %b)", "sum(add(%a, %b))",
                                       "sum(nn.batch_matmul(expand_dims(%a, axis=0), expand_dims(%b, axis=0)))"};
  float a[64] = {0};
  for (int i = 0; i < 3; i++) {
    char text[300];
    snprintf(text, sizeof text, "def @main(%%a: Tensor[(n, 4), float32], %%b: Tensor[(m, k), float32]) { %s }\n",
             bodies[i]);
    World w = compile_text(text);
    LatheRtError err;
    set(w.x, 0, tensor(F32, a, SHAPE(3, 4)));
    set(w.x, 1, tensor(F32, a, SHAPE(3, 4)));
    run(w.x);
    set(w.x, 1, tensor(F32, a, SHAPE(2, 3)));
    assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
    if (!strstr(err.text, "do not fit")) fail_msg("%s: %s", bodies[i], err.text);
    close_world(&w);
  }
}

/* A sum over nothing is 0, a maximum -infinity; the tensor may have no elements at all. */
static void test_reductions_of_nothing(void **state)
{
  (void)state;
  World w = compile_text("def @main(%a: Tensor[(2, n), float32]) { (sum(%a, axis=[1]), max(%a, axis=[1]), "
                         "add(nn.relu(%a), 1f), mean(%a, axis=[0])) }\n");
  float a[6] = {1, -2, 3, 4, 5, 6};
  float none[1] = {0};
  set(w.x, 0, tensor(F32, a, SHAPE(2, 3)));
  run(w.x);
  expect_floats(output(w.x, 0), 2, (float[]){2, 15}, 0);
  expect_floats(output(w.x, 1), 2, (float[]){3, 6}, 0);
  set(w.x, 0, tensor(F32, none, SHAPE(2, 0)));
  run(w.x);
  expect_floats(output(w.x, 0), 2, (float[]){0, 0}, 0);
  const float *most = output(w.x, 1)->data;
  assert_true(most[0] < -3e38f && most[1] < -3e38f);
  assert_int_equal(output(w.x, 2)->shape[1], 0);
  assert_int_equal(output(w.x, 3)->shape[0], 0);
  close_world(&w);
}

/* Only extents of 1 can be dropped, whatever the axes turn out to be. */
static void test_squeeze_at_run_time(void **state)
{
  (void)state;
  LatheRtError err;
  float a[] = {1, 2, 3};
  int64_t axis = 0;
  World w =
      compile_text("def @main(%a: Tensor[(n, m), float32], %axis: Tensor[(1), int64]) { dyn.squeeze(%a, %axis) }\n");
  set(w.x, 0, tensor(F32, a, SHAPE(1, 3)));
  set(w.x, 1, tensor(I64, &axis, SHAPE(1)));
  run(w.x);
  expect_floats(output(w.x, 0), 3, a, 0);
  axis = -1;
  set(w.x, 1, tensor(I64, &axis, SHAPE(1)));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  set(w.x, 0, tensor(F32, a, SHAPE(3, 1)));
  run(w.x);
  expect_floats(output(w.x, 0), 3, a, 0);
  close_world(&w);
  w = compile_text("def @main(%a: Tensor[(n), float32], %axis: Tensor[(1), int64]) { dyn.squeeze(%a, %axis) }\n");
  axis = 0;
  set(w.x, 0, tensor(F32, a, SHAPE(1)));
  set(w.x, 1, tensor(I64, &axis, SHAPE(1)));
  run(w.x);
  assert_int_equal(output(w.x, 0)->ndim, 0);
  set(w.x, 0, tensor(F32, a, SHAPE(3)));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  close_world(&w);
}

/* Layers whose sizes have other names share a kernel; where two sizes meet, it is another one. */
static void test_kernels_are_shared(void **state)
{
  (void)state;
  World w = compile_text("def @main(%a: Tensor[(n, 4), float32], %b: Tensor[(m, 4), float32]) {\n"
                         "  %0 = concatenate((%a, %a), axis=0);\n"
                         "  (nn.softmax(%a), nn.softmax(%b), nn.softmax(%0), %0, concatenate((%a, %b), axis=0))\n"
                         "}\n");
  LatheRtModel *m = compiled_model(w.c);
  int softmax = 0;
  int concatenate = 0;
  int n = model_info(m).num_nodes;
  for (int i = 0; i < n; i++) {
    softmax += !strcmp(lathe_rt_model_node(m, i)->name, "lathe_nn_softmax");
    concatenate += !strcmp(lathe_rt_model_node(m, i)->name, "lathe_concatenate");
  }
  assert_int_equal(n, 5);
  assert_int_equal(softmax, 3);
  assert_int_equal(concatenate, 1);
  float a[12];
  float b[8] = {0};
  for (int i = 0; i < 12; i++) a[i] = (float)i;
  set(w.x, 0, tensor(F32, a, SHAPE(3, 4)));
  set(w.x, 1, tensor(F32, b, SHAPE(2, 4)));
  run(w.x);
  expect_floats(output(w.x, 1), 8, (float[]){0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f}, 1e-6f);
  assert_int_equal(output(w.x, 4)->shape[0], 5);
  assert_true(((const float *)output(w.x, 4)->data)[11] == 11 && ((const float *)output(w.x, 4)->data)[12] == 0);
  close_world(&w);
}

static int count_nodes(const World *w, const char *name)
{
  LatheRtModel *m = compiled_model(w->c);
  int count = 0;
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(m, &info);
  for (int i = 0; i < info.num_nodes; i++) count += !strcmp(lathe_rt_model_node(m, i)->name, name);
  return count;
}

/* A kernel that is handed a size which no tensor has: each of its callers hands over its own. */
static void test_kernels_with_scalars_are_shared(void **state)
{
  (void)state;
  World w = compile_text("def @main(%x: Tensor[(6), float32], %k: Tensor[(1), int64], %l: Tensor[(1), int64]) {\n"
                         "  %0 = dyn.topk(%x, %k, axis=0, dtype=\"int64\");\n"
                         "  %1 = dyn.topk(%x, %l, axis=0, dtype=\"int64\");\n"
                         "  (%0.0, %1.0)\n"
                         "}\n");
  assert_int_equal(count_nodes(&w, "lathe_dyn_topk"), 2);
  float x[] = {3, 9, 1, 7, 8, 2};
  int64_t k = 2;
  int64_t l = 4;
  set(w.x, 0, tensor(F32, x, SHAPE(6)));
  set(w.x, 1, tensor(I64, &k, SHAPE(1)));
  set(w.x, 2, tensor(I64, &l, SHAPE(1)));
  run(w.x);
  expect_floats(output(w.x, 0), 2, (float[]){9, 8}, 0);
  expect_floats(output(w.x, 1), 4, (float[]){9, 8, 7, 3}, 0);
  close_world(&w);
}

/* Many calls that differ in an integer have one kernel, which is given the integer; a few have one each. */
static void test_kernels_over_integers_are_shared(void **state)
{
  (void)state;
  World w = compile_text("def @main(%x: Tensor[(2, n), float32]) {\n"
                         "  (take(%x, 0i64, axis=1), take(%x, 1i64, axis=1), take(%x, 2i64, axis=1),\n"
                         "   take(%x, 4i64, axis=1), take(%x, 0i64, axis=0), take(%x, 1i64, axis=0))\n"
                         "}\n");
  assert_int_equal(count_nodes(&w, "lathe_take"), 4);
  assert_int_equal(count_nodes(&w, "lathe_take_1"), 1);
  assert_int_equal(count_nodes(&w, "lathe_take_2"), 1);
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  set(w.x, 0, tensor(F32, x, SHAPE(2, 5)));
  run(w.x);
  expect_floats(output(w.x, 0), 2, (float[]){1, 6}, 0);
  expect_floats(output(w.x, 1), 2, (float[]){2, 7}, 0);
  expect_floats(output(w.x, 2), 2, (float[]){3, 8}, 0);
  expect_floats(output(w.x, 3), 2, (float[]){5, 10}, 0);
  expect_floats(output(w.x, 4), 5, x, 0);
  expect_floats(output(w.x, 5), 5, x + 5, 0);
  close_world(&w);
}

/* A part of a size is a part: nothing is left over. */
static void test_split_needs_whole_parts(void **state)
{
  (void)state;
  World w = compile_text(
      "def @main(%a: Tensor[(n, 2), float32]) { %0 = split(%a, indices_or_sections=[2], axis=0); add(%0.0, %0.1) }\n");
  float a[] = {1, 2, 3, 4, 5, 6, 7, 8};
  LatheRtError err;
  set(w.x, 0, tensor(F32, a, SHAPE(4, 2)));
  run(w.x);
  expect_floats(output(w.x, 0), 4, (float[]){6, 8, 10, 12}, 0);
  set(w.x, 0, tensor(F32, a, SHAPE(3, 2)));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  close_world(&w);
}

/* Only one branch is evaluated; what both need is computed once. */
static void test_if(void **state)
{
  (void)state;
  World w = compile_text("def @main(%c: Tensor[(), bool], %x: Tensor[(3), float32]) {\n"
                         "  %0 = exp(%x);\n"
                         "  if (%c) { add(%0, %x) } else { subtract(%0, %x) }\n"
                         "}\n");
  float x[] = {0, 0, 0};
  float one[] = {1, 1, 1};
  for (int i = 0; i < 2; i++) {
    uint8_t c = (uint8_t)i;
    set(w.x, 0, tensor(BOOL, &c, 0, NULL));
    set(w.x, 1, tensor(F32, x, SHAPE(3)));
    run(w.x);
    expect_floats(output(w.x, 0), 3, one, 0);
    x[1] = 0;
  }
  float y[] = {1, 2, 3};
  float sum[] = {3.7182817f, 9.389056f, 23.085537f};
  float difference[] = {1.7182817f, 5.389056f, 17.085537f};
  uint8_t yes = 1;
  uint8_t no = 0;
  set(w.x, 0, tensor(BOOL, &yes, 0, NULL));
  set(w.x, 1, tensor(F32, y, SHAPE(3)));
  run(w.x);
  expect_floats(output(w.x, 0), 3, sum, 1e-5f);
  set(w.x, 0, tensor(BOOL, &no, 0, NULL));
  run(w.x);
  expect_floats(output(w.x, 0), 3, difference, 1e-5f);
  close_world(&w);
}

/* A loop of 100,000 turns as recursion: in constant space, since the call is a tail call. */
static void test_loop(void **state)
{
  (void)state;
  World w = compile_text(
      "def @loop(%i: Tensor[(), int32], %n: Tensor[(), int32], %x: Tensor[(2), float32]) -> Tensor[(2), float32] {\n"
      "  if (less(%i, %n)) {\n"
      "    @loop(add(%i, 1), %n, add(%x, 1f))\n"
      "  } else {\n"
      "    %x\n"
      "  }\n"
      "}\n"
      "def @main(%n: Tensor[(), int32], %x: Tensor[(2), float32]) {\n"
      "  @loop(0, %n, %x)\n"
      "}\n");
  float x[] = {0, 0.5f};
  int32_t n = 20000;
  set(w.x, 0, tensor(I32, &n, 0, NULL));
  set(w.x, 1, tensor(F32, x, SHAPE(2)));
  run(w.x);
  expect_floats(output(w.x, 0), 2, (float[]){20000, 20000.5f}, 0);
  uint64_t storage;
  lathe_rt_executor_memory(w.x, &storage, NULL);
  assert_true(storage < 10000);
  assert_int_equal(lathe_rt_model_entry(compiled_model(w.c), 0)->is_dynamic, 2);
  close_world(&w);
}

/* A local function that captures %k and calls itself, and a call that is no tail call. */
static void test_local_function(void **state)
{
  (void)state;
  World w = compile_text("def @main(%n: Tensor[(), int32], %k: Tensor[(), float32]) {\n"
                         "  let %power: fn (Tensor[(), int32]) -> Tensor[(), float32] = fn (%i: Tensor[(), int32]) -> "
                         "Tensor[(), float32] {\n"
                         "    if (greater(%i, 0)) { multiply(%power(subtract(%i, 1)), %k) } else { 1f }\n"
                         "  };\n"
                         "  (%power(%n), %power(add(%n, 1)))\n"
                         "}\n");
  int32_t n = 5;
  float k = 2;
  set(w.x, 0, tensor(I32, &n, 0, NULL));
  set(w.x, 1, tensor(F32, &k, 0, NULL));
  run(w.x);
  expect_floats(output(w.x, 0), 1, (float[]){32}, 0);
  expect_floats(output(w.x, 1), 1, (float[]){64}, 0);
  close_world(&w);
}

/* The size of the output is an element of a tensor that the model computes. */
static void test_size_from_value(void **state)
{
  (void)state;
  World w = compile_text("def @main(%x: Tensor[(n), float32], %s: Tensor[(2), int64]) {\n"
                         "  dyn.reshape(%x, add(%s, 1i64))\n"
                         "}\n");
  float x[] = {1, 2, 3, 4, 5, 6};
  int64_t s[] = {1, 2};
  set(w.x, 0, tensor(F32, x, SHAPE(6)));
  set(w.x, 1, tensor(I64, s, SHAPE(2)));
  run(w.x);
  const LatheRtTensor *y = output(w.x, 0);
  assert_int_equal(y->ndim, 2);
  assert_int_equal(y->shape[0], 2);
  assert_int_equal(y->shape[1], 3);
  expect_floats(y, 6, x, 0);
  s[1] = 3;
  set(w.x, 1, tensor(I64, s, SHAPE(2)));
  LatheRtError err;
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  close_world(&w);
}

/* Which element it is, a constant says that goes into the same kernel. */
static void test_size_from_chosen_value(void **state)
{
  (void)state;
  World w = compile_text("def @main(%x: Tensor[(2, 3), float32], %s: Tensor[(3), int64]) {\n"
                         "  dyn.strided_slice(%x, meta[relay.Constant][0], take(%s, meta[relay.Constant][1], "
                         "axis=[0]), meta[relay.Constant][2])\n"
                         "}\n"
                         "#[metadata]\n"
                         "relay.Constant[0]: Tensor[(2), int64] = [0, 0];\n"
                         "relay.Constant[1]: Tensor[(2), int64] = [2, 0];\n"
                         "relay.Constant[2]: Tensor[(2), int64] = [1, 1];\n");
  float x[] = {1, 2, 3, 4, 5, 6};
  int64_t s[] = {1, 9, 2};
  set(w.x, 0, tensor(F32, x, SHAPE(2, 3)));
  set(w.x, 1, tensor(I64, s, SHAPE(3)));
  run(w.x);
  const LatheRtTensor *y = output(w.x, 0);
  assert_int_equal(y->shape[0], 2);
  assert_int_equal(y->shape[1], 1);
  expect_floats(y, 2, (const float[]){1, 4}, 0);
  close_world(&w);
}

static void test_sequence(void **state)
{
  (void)state;
  World w = compile_text("def @main(%x: Tensor[(2, 4), float32], %p: Tensor[(), int64]) {\n"
                         "  %0 = sequence.split(%x, axis=1, keepdims=True);\n"
                         "  %1 = sequence.insert(%0, sequence.at(%0, %p), 0i64);\n"
                         "  (sequence.concat(%1, axis=1, new_axis=False), sequence.length(%1), %1)\n"
                         "}\n");
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t p = -2;
  set(w.x, 0, tensor(F32, x, SHAPE(2, 4)));
  set(w.x, 1, tensor(I64, &p, 0, NULL));
  run(w.x);
  expect_floats(output(w.x, 0), 10, (float[]){3, 1, 2, 3, 4, 7, 5, 6, 7, 8}, 0);
  assert_int_equal(*(int64_t *)output(w.x, 1)->data, 5);
  int32_t n;
  const LatheRtTensor *const *item;
  LatheRtError err;
  assert_int_equal(lathe_rt_get_output_items(w.x, 2, &n, &item, &err), 0);
  assert_int_equal(n, 5);
  expect_floats(item[4], 2, (float[]){4, 8}, 0);
  const LatheRtTensor *t;
  assert_int_equal(lathe_rt_get_output(w.x, 2, &t, &err), LATHE_RT_ARGUMENT);
  p = 4;
  set(w.x, 1, tensor(I64, &p, 0, NULL));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "position 4 in a sequence of 4 items"));
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_symbolic),
    cmocka_unit_test(test_sizes_that_do_not_fit),
    cmocka_unit_test(test_split_needs_whole_parts),
    cmocka_unit_test(test_reductions_of_nothing),
    cmocka_unit_test(test_squeeze_at_run_time),
    cmocka_unit_test(test_kernels_are_shared),
    cmocka_unit_test(test_kernels_with_scalars_are_shared),
    cmocka_unit_test(test_kernels_over_integers_are_shared),
    cmocka_unit_test(test_if),
    cmocka_unit_test(test_loop),
    cmocka_unit_test(test_local_function),
    cmocka_unit_test(test_size_from_value),
    cmocka_unit_test(test_size_from_chosen_value),
    cmocka_unit_test(test_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
