/* test_onnx_control.c: branches, loops, functions of the model, external data. */
#include "frontend/test_onnx.h"

#include <sys/stat.h>
#include <unistd.h>

#define D(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define FL(...) \
  (float[]) { __VA_ARGS__ }

static const RtValue *rt_bool(World *w, bool v) { return value_tensor(w, DT_BOOL, 0, NULL, &(uint8_t){v}); }
static const RtValue *rt_floats(World *w, int ndim, const int64_t *shape, const float *v)
{
  return value_tensor(w, DT_F32, ndim, shape, v);
}
static const RtValue *rt_i64(World *w, int64_t v) { return value_tensor(w, DT_I64, 0, NULL, &v); }

/* ---- If ----------------------------------------------------------------------------------------- */

/* Branches see names outside; only one runs. */
CASE(if_takes_a_branch)
{
  Graph g = graph_new(w);
  Graph yes = graph_new(w);
  Graph no = graph_new(w);
  g_input(&g, "c", ONNX_BOOL, "");
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_node(&yes, "Neg", "x", "a");
  g_output(&yes, "a");
  g_node(&no, "Add", "x,x", "b");
  g_output(&no, "b");
  Text n = node_of(w, "If", "c", "y");
  attr_g(w, &n, "then_branch", &yes);
  attr_g(w, &n, "else_branch", &no);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 16);
  const RtValue *x = rt_floats(w, D(2), FL(1, 2));
  expect_floats(run_main(w, 2, (const RtValue *[]){rt_bool(w, true), x}), D(2), FL(-1, -2));
  expect_floats(run_main(w, 2, (const RtValue *[]){rt_bool(w, false), x}), D(2), FL(2, 4));
}

/* Branches of different rank: what follows goes into both. */
CASE(the_rest_follows_branches_of_different_rank)
{
  Graph g = graph_new(w);
  Graph yes = graph_new(w);
  Graph no = graph_new(w);
  g_input(&g, "c", ONNX_BOOL, "");
  g_input(&g, "x", ONNX_FLOAT, "1,3");
  g_ints(&yes, "axis", 1, (int64_t[]){0});
  g_node(&yes, "Squeeze", "x,axis", "a");
  g_output(&yes, "a");
  g_node(&no, "Identity", "x", "b");
  g_output(&no, "b");
  Text n = node_of(w, "If", "c", "h");
  Text s = node_of(w, "ReduceSum", "h", "y");
  attr_g(w, &n, "then_branch", &yes);
  attr_g(w, &n, "else_branch", &no);
  attr_i(w, &s, "keepdims", 0);
  g_add(&g, n);
  g_add(&g, s);
  g_output(&g, "y");
  import_graph_of(&g, 16);
  const RtValue *x = rt_floats(w, D(1, 3), FL(1, 2, 4));
  expect_floats(run_main(w, 2, (const RtValue *[]){rt_bool(w, true), x}), 0, NULL, FL(7));
  expect_floats(run_main(w, 2, (const RtValue *[]){rt_bool(w, false), x}), 0, NULL, FL(7));
}

typedef struct Taken {
  World *w;
  bool cond;
} Taken;

static void take_branch(Ctx *ctx, void *arg)
{
  (void)ctx;
  const Taken *t = arg;
  const RtValue *x = rt_floats(t->w, D(1, 3), FL(1, 2, 4));
  expect_floats(run_main(t->w, 2, (const RtValue *[]){rt_bool(t->w, t->cond), x}), D(1, 1), FL(7));
}

/* Gemm takes matrices: what follows has no meaning for the branch that squeezes. */
static void one_branch_fits(World *w, bool fits)
{
  Graph g = graph_new(w);
  Graph yes = graph_new(w);
  Graph no = graph_new(w);
  Graph *flat = fits ? &no : &yes;
  Graph *same = fits ? &yes : &no;
  g_input(&g, "c", ONNX_BOOL, "");
  g_input(&g, "x", ONNX_FLOAT, "1,3");
  g_floats(&g, "ones", D(3, 1), FL(1, 1, 1));
  g_ints(flat, "axis", 1, (int64_t[]){0});
  g_node(flat, "Squeeze", "x,axis", "a");
  g_output(flat, "a");
  g_node(same, "Identity", "x", "b");
  g_output(same, "b");
  Text n = node_of(w, "If", "c", "h");
  attr_g(w, &n, "then_branch", &yes);
  attr_g(w, &n, "else_branch", &no);
  g_add(&g, n);
  g_node(&g, "Gemm", "h,ones", "y");
  g_output(&g, "y");
  import_graph_of(&g, 16);
  take_branch(w->ctx, &(Taken){w, fits});
  assert_int_not_equal(protect(w->ctx, take_branch, &(Taken){w, !fits}), ERR_NONE);
}

CASE(a_second_branch_that_does_not_fit_is_refused) { one_branch_fits(w, true); }
CASE(a_first_branch_that_does_not_fit_is_refused) { one_branch_fits(w, false); }

/* ---- Loop and Scan ----------------------------------------------------------------------------------- */

/* state' = state * x (x from outside), until the count is reached; each state is collected. */
static void power_loop(World *w)
{
  Graph g = graph_new(w);
  Graph body = graph_new(w);
  g_input(&g, "n", ONNX_INT64, "");
  g_input(&g, "x", ONNX_FLOAT, "1");
  g_floats(&g, "one", D(1), FL(1));
  g_input(&body, "i", ONNX_INT64, "");
  g_input(&body, "go", ONNX_BOOL, "");
  g_input(&body, "s", ONNX_FLOAT, "1");
  g_node(&body, "Mul", "s,x", "s2");
  g_node(&body, "Identity", "go", "go2");
  g_node(&body, "Identity", "s2", "each");
  g_output(&body, "go2");
  g_output(&body, "s2");
  g_output(&body, "each");
  Text n = node_of(w, "Loop", "n,,one", "last,all");
  attr_g(w, &n, "body", &body);
  g_add(&g, n);
  g_output(&g, "last");
  g_output(&g, "all");
  import_graph_of(&g, 16);
}
CASE(a_loop_carries_and_collects)
{
  power_loop(w);
  const RtValue *x = rt_floats(w, D(1), FL(2));
  const RtValue *r = run_main(w, 2, (const RtValue *[]){rt_i64(w, 3), x});
  expect_floats(r->field[0], D(1), FL(8));
  expect_floats(r->field[1], D(3, 1), FL(2, 4, 8));
}
CASE(a_loop_may_not_run_at_all)
{
  power_loop(w);
  const RtValue *x = rt_floats(w, D(1), FL(2));
  const RtValue *r = run_main(w, 2, (const RtValue *[]){rt_i64(w, 0), x});
  expect_floats(r->field[0], D(1), FL(1));
  expect_floats(r->field[1], D(0, 1), NULL);
}

/* A state that grows has an open dimension. */
CASE(a_state_that_grows)
{
  Graph g = graph_new(w);
  Graph body = graph_new(w);
  g_input(&g, "n", ONNX_INT64, "");
  g_floats(&g, "first", D(1), FL(1));
  g_input(&body, "i", ONNX_INT64, "");
  g_input(&body, "go", ONNX_BOOL, "");
  g_input(&body, "s", ONNX_FLOAT, "?");
  Text c = node_of(w, "Concat", "s,s", "s2");
  attr_i(w, &c, "axis", 0);
  g_add(&body, c);
  g_node(&body, "Identity", "go", "go2");
  g_output(&body, "go2");
  g_output(&body, "s2");
  Text n = node_of(w, "Loop", "n,,first", "y");
  attr_g(w, &n, "body", &body);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 16);
  assert_string_equal(type_text(w->m->arena, fn_body(graph_main(w->m))->type), "Tensor[(?), float32]");
  const RtValue *count = rt_i64(w, 2);
  expect_floats(run_main(w, 1, &count), D(4), FL(1, 1, 1, 1));
}

/* Running sums, read backward. */
CASE(a_scan_runs_over_an_axis)
{
  Graph g = graph_new(w);
  Graph body = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "3,2");
  g_floats(&g, "zero", D(2), FL(0, 0));
  g_input(&body, "s", ONNX_FLOAT, "2");
  g_input(&body, "row", ONNX_FLOAT, "2");
  g_node(&body, "Add", "s,row", "s2");
  g_node(&body, "Identity", "s2", "each");
  g_output(&body, "s2");
  g_output(&body, "each");
  Text n = node_of(w, "Scan", "zero,x", "last,all");
  attr_g(w, &n, "body", &body);
  attr_i(w, &n, "num_scan_inputs", 1);
  attr_is(w, &n, "scan_input_directions", D(1));
  g_add(&g, n);
  g_output(&g, "last");
  g_output(&g, "all");
  import_graph_of(&g, 16);
  const RtValue *x = rt_floats(w, D(3, 2), FL(1, 2, 3, 4, 5, 6));
  const RtValue *r = run_main(w, 1, &x);
  expect_floats(r->field[0], D(2), FL(9, 12));
  expect_floats(r->field[1], D(3, 2), FL(5, 6, 8, 10, 9, 12));
}

REFUSED(a_loop_without_an_end, ERR_UNSUPPORTED, "Loop (node 'y')", "never ends")
{
  Graph g = graph_new(w);
  Graph body = graph_new(w);
  g_input(&body, "i", ONNX_INT64, "");
  g_input(&body, "go", ONNX_BOOL, "");
  g_node(&body, "Identity", "go", "go2");
  g_node(&body, "Identity", "i", "v");
  g_output(&body, "go2");
  g_output(&body, "v");
  Text n = node_of(w, "Loop", ",", "y");
  attr_g(w, &n, "body", &body);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 16);
}

/* ---- functions of the model ---------------------------------------------------------------------------- */

static void call_function(World *w, bool recursive)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  Text n = node_of(w, "Leak", "x", "y");
  Text f = fresh(w);
  Text ref = fresh(w);
  Text inner = node_of(w, recursive ? "Leak" : "LeakyRelu", "a", "b");
  pb_str(&n, 7, "mine");
  attr_f(w, &n, "slope", 0.5f);
  g_add(&g, n);
  g_output(&g, "y");
  pb_str(&ref, 1, "alpha");
  pb_str(&ref, 21, "slope");
  pb_int(&ref, 20, PATTR_FLOAT);
  pb_msg(&inner, 5, &ref);
  if (recursive) pb_str(&inner, 7, "mine");
  Text o = opset_of(w, "", 16);
  Text mine = opset_of(w, "mine", 1);
  pb_str(&f, 1, "Leak");
  pb_str(&f, 4, "a");
  pb_str(&f, 5, "b");
  pb_str(&f, 6, "slope");
  pb_msg(&f, 7, &inner);
  pb_msg(&f, 9, &o);
  pb_str(&f, 10, "mine");
  Text m = model_of(&g, 16);
  pb_msg(&m, 8, &mine);
  pb_msg(&m, 25, &f);
  import_text(w, &m, NULL, NULL);
}
CASE(a_function_is_put_in_place_with_its_attributes)
{
  call_function(w, false);
  const RtValue *x = rt_floats(w, D(2), FL(-4, 4));
  expect_floats(run_main(w, 1, &x), D(2), FL(-2, 4));
}
REFUSED(a_function_that_calls_itself, ERR_UNSUPPORTED, "'Leak'", "calls itself") { call_function(w, true); }

/* ---- external data ------------------------------------------------------------------------------------------ */

static void entry(World *w, Text *tensor, const char *key, const char *value)
{
  Text e = fresh(w);
  pb_str(&e, 1, key);
  pb_str(&e, 2, value);
  pb_msg(tensor, 13, &e);
}

/* A folder with model.onnx, whose tensor of two floats lies in `location`, and data.bin of 16 bytes. */
static void external(World *w, const char *location, const char *offset, const char *length)
{
  const char *dir = file_temp_dir(w->ctx);
  const char *inside = arena_printf(w->m->arena, "%s/in", dir);
  const char *model = arena_printf(w->m->arena, "%s/in/model.onnx", dir);
  assert_int_equal(mkdir(inside, 0700), 0);
  const float data[] = {1, 2, 3, 4};
  file_write(w->ctx, arena_printf(w->m->arena, "%s/data.bin", inside), data, sizeof data);
  file_write(w->ctx, arena_printf(w->m->arena, "%s/outside.bin", dir), data, sizeof data);
  assert_int_equal(symlink("../outside.bin", arena_printf(w->m->arena, "%s/link.bin", inside)), 0);
  Graph g = graph_new(w);
  Text t = fresh(w);
  pb_int(&t, 1, 2);
  pb_int(&t, 2, ONNX_FLOAT);
  pb_str(&t, 8, "c");
  pb_int(&t, 14, 1);
  entry(w, &t, "location", location[0] == '/' ? arena_printf(w->m->arena, "%s/data.bin", inside) : location);
  if (offset) entry(w, &t, "offset", offset);
  if (length) entry(w, &t, "length", length);
  g_init(&g, t);
  g_node(&g, "Neg", "c", "y");
  g_output(&g, "y");
  Text m = model_of(&g, 13);
  file_write(w->ctx, model, text_str(&m), m.n);
  onnx_import_file(w->m, model, NULL, NULL);
}
CASE(external_data_is_read)
{
  external(w, "data.bin", "8", "8");
  expect_floats(run_main(w, 0, NULL), D(2), FL(-3, -4));
}
REFUSED(external_data_above_the_folder, ERR_IO, "'c'", "'..'") { external(w, "../outside.bin", NULL, NULL); }
REFUSED(external_data_at_an_absolute_path, ERR_IO, "'c'", "inside the model's folder") { external(w, "/", NULL, NULL); }
REFUSED(external_data_through_a_link, ERR_IO, "'c'", "leaves") { external(w, "link.bin", NULL, NULL); }
REFUSED(external_data_past_the_end, ERR_IO, "'c'", "16") { external(w, "data.bin", "12", "8"); }
REFUSED(external_data_of_another_length, ERR_SHAPE, "'c'", "4 bytes", "wants 8") { external(w, "data.bin", "0", "4"); }
REFUSED(an_offset_that_is_no_number, ERR_PARSE, "'c'", "offset", "'-8'") { external(w, "data.bin", "-8", "8"); }
REFUSED(external_data_that_is_missing, ERR_IO, "'c'", "none.bin") { external(w, "none.bin", NULL, NULL); }

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(if_takes_a_branch),
    T(the_rest_follows_branches_of_different_rank),
    T(a_second_branch_that_does_not_fit_is_refused),
    T(a_first_branch_that_does_not_fit_is_refused),
    T(a_loop_carries_and_collects),
    T(a_loop_may_not_run_at_all),
    T(a_state_that_grows),
    T(a_scan_runs_over_an_axis),
    T(a_loop_without_an_end),
    T(a_function_is_put_in_place_with_its_attributes),
    T(a_function_that_calls_itself),
    T(external_data_is_read),
    T(external_data_above_the_folder),
    T(external_data_at_an_absolute_path),
    T(external_data_through_a_link),
    T(external_data_past_the_end),
    T(external_data_of_another_length),
    T(an_offset_that_is_no_number),
    T(external_data_that_is_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
