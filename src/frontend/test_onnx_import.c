/* test_onnx_import.c: models written by hand, imported, typed and run by the interpreter;
 * and those that must be refused. */
#include "frontend/test_onnx.h"

#define D(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define FL(...) \
  (float[]) { __VA_ARGS__ }

static const RtValue *rt_floats(World *w, int ndim, const int64_t *shape, const float *v)
{
  return value_tensor(w, DT_F32, ndim, shape, v);
}
static const char *result_type(World *w) { return type_text(w->m->arena, fn_body(graph_main(w->m))->type); }
static int count_calls(World *w, const char *op)
{
  const Node **list;
  int n = graph_post_order(w->m->arena, graph_main(w->m), &list);
  int count = 0;
  for (int i = 0; i < n; i++) count += list[i]->kind == N_CALL && !strcmp(list[i]->u.call.op->name, op);
  return count;
}

/* ---- values ------------------------------------------------------------------------------------- */

CASE(a_small_network_runs)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "1,2");
  g_floats(&g, "w", D(2, 2), FL(1, 2, 3, 4));
  g_floats(&g, "b", D(2), FL(-5, 1));
  g_node(&g, "Gemm", "x,w,b", "h");
  g_node(&g, "Relu", "h", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
  const RtValue *x = rt_floats(w, D(1, 2), FL(1, 1));
  expect_floats(run_main(w, 1, &x), D(1, 2), FL(0, 7)); /* (1+3-5, 2+4+1), cut at 0 */
}

/* Softmax over a matrix before opset 13, along one axis since. */
static void softmax_at(World *w, int opset, const float *want)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "1,2,2");
  Text n = node_of(w, "Softmax", "x", "y");
  attr_i(w, &n, "axis", 1);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, opset);
  const RtValue *x = rt_floats(w, D(1, 2, 2), FL(0, 0, 0, 0));
  expect_floats(run_main(w, 1, &x), D(1, 2, 2), want);
}
CASE(softmax_of_opset_11) { softmax_at(w, 11, FL(0.25f, 0.25f, 0.25f, 0.25f)); }
CASE(softmax_of_opset_13) { softmax_at(w, 13, FL(0.5f, 0.5f, 0.5f, 0.5f)); }

/* Broadcasting by `axis` before opset 7: b runs along axis 0 here. */
CASE(add_of_opset_6_takes_an_axis)
{
  Graph g = graph_new(w);
  g_input(&g, "a", ONNX_FLOAT, "2,2");
  g_floats(&g, "b", D(2), FL(10, 20));
  Text n = node_of(w, "Add", "a,b", "y");
  attr_i(w, &n, "broadcast", 1);
  attr_i(w, &n, "axis", 0);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 6);
  const RtValue *x = rt_floats(w, D(2, 2), FL(1, 2, 3, 4));
  expect_floats(run_main(w, 1, &x), D(2, 2), FL(11, 12, 23, 24));
}

/* Halves go to the even number, then the range is kept. */
CASE(quantize_rounds_to_even_and_saturates)
{
  Graph g = graph_new(w);
  uint8_t zero = 1;
  g_input(&g, "x", ONNX_FLOAT, "5");
  g_floats(&g, "s", 0, NULL, FL(2));
  g_init(&g, tensor_raw(w, "z", ONNX_UINT8, 0, NULL, &zero, 1));
  g_node(&g, "QuantizeLinear", "x,s,z", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
  const RtValue *x = rt_floats(w, D(5), FL(1, 3, 5, 1000, -1000));
  const RtValue *y = run_main(w, 1, &x);
  const uint8_t want[] = {1, 3, 3, 255, 0}; /* 0.5->0, 1.5->2, 2.5->2, plus one */
  assert_true(dtype_eq(y->tensor.dtype, DT_U8));
  assert_memory_equal(y->tensor.data, want, 5);
}

/* ---- constants ---------------------------------------------------------------------------------------- */

CASE(int4_comes_apart_and_float16_keeps_its_bits)
{
  Graph g = graph_new(w);
  const uint8_t packed[] = {0x2f, 0x08}; /* -1, 2, -8 */
  g_init(&g, tensor_raw(w, "q", ONNX_INT4, D(3), packed, 2));
  Text h = fresh(w);
  pb_int(&h, 1, 2);
  pb_int(&h, 2, ONNX_FLOAT16);
  pb_str(&h, 8, "h");
  pb_int(&h, 5, 0x3c00);
  pb_int(&h, 5, 0xc000);
  g_init(&g, h);
  Text n = node_of(w, "Cast", "q", "a");
  Text k = node_of(w, "Cast", "h", "b");
  attr_i(w, &n, "to", ONNX_FLOAT);
  attr_i(w, &k, "to", ONNX_FLOAT);
  g_add(&g, n);
  g_add(&g, k);
  g_output(&g, "a");
  g_output(&g, "b");
  import_graph_of(&g, 21);
  const RtValue *r = run_main(w, 0, NULL);
  expect_floats(r->field[0], D(3), FL(-1, 2, -8));
  expect_floats(r->field[1], D(2), FL(1, -2));
}

/* ---- shapes --------------------------------------------------------------------------------------------- */

/* x is flattened to (batch, 8) by a shape that the graph computes. */
static Graph chain_model(World *w)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "batch,4,2");
  g_input(&g, "z", ONNX_FLOAT, "batch,8");
  g_ints(&g, "zero", -1, (int64_t[]){0});
  g_ints(&g, "at0", 1, (int64_t[]){0});
  g_ints(&g, "rest", 1, (int64_t[]){-1});
  g_node(&g, "Shape", "x", "s");
  g_node(&g, "Gather", "s,zero", "b");
  g_node(&g, "Unsqueeze", "b,at0", "b1");
  Text n = node_of(w, "Concat", "b1,rest", "shape");
  attr_i(w, &n, "axis", 0);
  g_add(&g, n);
  g_node(&g, "Reshape", "x,shape", "r");
  g_node(&g, "Add", "r,z", "y");
  g_output(&g, "y");
  return g;
}

CASE(a_symbolic_shape_chain_becomes_an_attribute)
{
  Graph g = chain_model(w);
  import_graph_of(&g, 13);
  assert_string_equal(result_type(w), "Tensor[(batch, 8), float32]");
  assert_int_equal(count_calls(w, "dyn.reshape"), 0);
  assert_int_equal(count_calls(w, "shape_of"), 0);
}

CASE(a_binding_holds_at_every_input)
{
  Graph g = chain_model(w);
  Text m = model_of(&g, 13);
  ShapeBinding b = {.input = "x", .ndim = 3, .dim = (int64_t[]){3, 4, 2}};
  ImportReport r;
  const Node *f = import_text(w, &m, &(ImportOptions){.nshapes = 1, .shape = &b}, &r);
  assert_string_equal(type_text(w->m->arena, f->arg[1]->type), "Tensor[(3, 8), float32]");
  assert_string_equal(result_type(w), "Tensor[(3, 8), float32]");
  assert_true(r.nfolded >= 4); /* Shape, Gather, Unsqueeze, Concat */
  assert_int_equal(r.noutputs, 1);
  assert_string_equal(r.output_name[0], "y");
}

static void bound(World *w, const char *input, int n, const int64_t *dim)
{
  Graph g = chain_model(w);
  Text m = model_of(&g, 13);
  ShapeBinding b = {.input = input, .ndim = n, .dim = dim};
  import_text(w, &m, &(ImportOptions){.nshapes = 1, .shape = &b}, NULL);
}
REFUSED(a_binding_of_no_input, ERR_ARGUMENT, "'xx'", "did you mean 'x'") { bound(w, "xx", D(3, 4, 2)); }
REFUSED(a_binding_of_another_rank, ERR_ARGUMENT, "'x'", "3 dimensions", "has 2") { bound(w, "x", D(3, 4)); }
REFUSED(a_binding_against_the_model, ERR_ARGUMENT, "dimension 1", "4", "5") { bound(w, "x", D(3, 5, 2)); }
REFUSED(a_negative_binding, ERR_ARGUMENT, "-3") { bound(w, "x", D(-3, 4, 2)); }

CASE(weights_can_stay_parameters)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "1,2");
  g_floats(&g, "w", D(2, 1), FL(1, 2));
  g_node(&g, "MatMul", "x,w", "y");
  g_output(&g, "y");
  Text m = model_of(&g, 13);
  ImportReport r;
  const Node *f = import_text(w, &m, &(ImportOptions){.keep_params = true}, &r);
  assert_int_equal(fn_nparams(f), 2);
  assert_int_equal(r.nparams, 1);
  assert_string_equal(r.param_name[0], "w");
  assert_int_equal(r.param[0]->kind, N_CONST);
}

/* Wherever a weight lies in the file, aligned or not, a copy of the module has its bytes in the same
 * place. */
CASE(copies_of_a_module_share_the_weights)
{
  Graph g = graph_new(w);
  static const char *const names[] = {"a", "ab", "abc", "abcd"};
  g_input(&g, "x", ONNX_FLOAT, "2");
  for (int i = 0; i < 4; i++) g_floats(&g, names[i], D(2), FL(1, 2));
  g_node(&g, "Add", "x,a", "p");
  g_node(&g, "Mul", "p,ab", "q");
  g_node(&g, "Sub", "q,abc", "r");
  g_node(&g, "Div", "r,abcd", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
  Module *copy = graph_copy_module(w->m);
  const Node **here, **there;
  int n = graph_post_order(w->m->arena, graph_main(w->m), &here);
  int found = 0;
  assert_int_equal(graph_post_order(w->m->arena, graph_main(copy), &there), n);
  for (int i = 0; i < n; i++) {
    if (here[i]->kind != N_CONST) continue;
    found++;
    assert_ptr_equal(here[i]->u.data->data, there[i]->u.data->data);
    assert_int_equal((uintptr_t)here[i]->u.data->data % 4, 0);
  }
  assert_int_equal(found, 4);
  module_release(copy);
}

/* ---- order ------------------------------------------------------------------------------------------------ */

CASE(nodes_out_of_order_are_sorted)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_node(&g, "Neg", "h", "y");
  g_node(&g, "Abs", "x", "h");
  g_output(&g, "y");
  import_graph_of(&g, 13);
  const RtValue *x = rt_floats(w, D(2), FL(3, -4));
  expect_floats(run_main(w, 1, &x), D(2), FL(-3, -4));
}

REFUSED(a_cycle, ERR_ARGUMENT, "cycle", "'a'", "'b'")
{
  Graph g = graph_new(w);
  g_node(&g, "Neg", "b", "a");
  g_node(&g, "Neg", "a", "b");
  g_output(&g, "a");
  import_graph_of(&g, 13);
}
REFUSED(a_missing_input, ERR_ARGUMENT, "'nowhere'", "'y'")
{
  Graph g = graph_new(w);
  g_node(&g, "Neg", "nowhere", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(a_name_defined_twice, ERR_ARGUMENT, "'y'", "twice")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_node(&g, "Neg", "x", "y");
  g_node(&g, "Abs", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(an_output_of_no_node, ERR_ARGUMENT, "'y'", "no node")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}

/* ---- what is not supported -------------------------------------------------------------------------------------- */

REFUSED(unsupported_operators_are_named_all_at_once, ERR_UNSUPPORTED, "2 nodes", "Foo (node 'layer3/foo')",
        "Bar (node 'h')")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  Text n = node_of(w, "Foo", "x", "f");
  pb_str(&n, 3, "layer3/foo");
  g_add(&g, n);
  g_node(&g, "Bar", "f", "h");
  g_node(&g, "Relu", "h", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(one_unsupported_operator, ERR_UNSUPPORTED, "operator 'Foo' (node 'y')", "'lathe ops --onnx' lists")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_node(&g, "Foo", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(an_operator_of_a_later_opset, ERR_UNSUPPORTED, "Gelu", "opset 13")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2");
  g_node(&g, "Gelu", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(arithmetic_on_strings, ERR_TYPE, "negative", "does not work on strings")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_STRING, "2");
  g_node(&g, "Neg", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}

/* ---- tensors that lie -------------------------------------------------------------------------------------------- */

static void lying_tensor(World *w, int type, int n, const int64_t *dim, size_t bytes)
{
  Graph g = graph_new(w);
  static const char data[64];
  g_init(&g, tensor_raw(w, "c", type, n, dim, data, bytes));
  g_node(&g, "Identity", "c", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(a_tensor_with_too_few_bytes, ERR_SHAPE, "'c'", "12 bytes", "wants 16")
{
  lying_tensor(w, ONNX_FLOAT, D(4), 12);
}
REFUSED(a_tensor_of_negative_extent, ERR_SHAPE, "'c'", "-4") { lying_tensor(w, ONNX_FLOAT, D(-4), 16); }
REFUSED(a_tensor_of_huge_extents, ERR_ARGUMENT, "c") { lying_tensor(w, ONNX_FLOAT, D(INT64_MAX, INT64_MAX), 16); }
REFUSED(a_tensor_of_an_unknown_type, ERR_TYPE, "'c'", "99") { lying_tensor(w, 99, D(4), 16); }
REFUSED(a_tensor_of_seventeen_dimensions, ERR_UNSUPPORTED, "'c'", "17 dimensions")
{
  lying_tensor(w, ONNX_FLOAT, D(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 4);
}
REFUSED(half_an_int4, ERR_SHAPE, "'c'", "1 bytes", "wants 2") { lying_tensor(w, ONNX_INT4, D(3), 1); }
REFUSED(an_input_of_negative_extent, ERR_SHAPE, "'x'", "-2")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "-2");
  g_node(&g, "Identity", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 13);
}

/* ---- attributes that lie
 * -------------------------------------------------------------------------------------------- */

static void pool_with(World *w, const char *name, int n, const int64_t *v)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "1,1,4,4");
  Text p = node_of(w, "MaxPool", "x", "y");
  if (strcmp(name, "kernel_shape")) attr_is(w, &p, "kernel_shape", D(2, 2));
  attr_is(w, &p, name, n, v);
  g_add(&g, p);
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(a_stride_of_zero, ERR_ARGUMENT, "MaxPool (node 'y')", "positive") { pool_with(w, "strides", D(0, 1)); }
REFUSED(too_few_pads, ERR_ARGUMENT, "pads", "2 numbers", "4 are wanted") { pool_with(w, "pads", D(1, 1)); }
REFUSED(a_kernel_without_numbers, ERR_ARGUMENT, "kernel_shape", "0 numbers") { pool_with(w, "kernel_shape", 0, NULL); }
REFUSED(an_axis_out_of_range, ERR_ARGUMENT, "axis 5", "rank 1")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "4");
  Text n = node_of(w, "Softmax", "x", "y");
  attr_i(w, &n, "axis", 5);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(an_attribute_of_the_wrong_kind, ERR_TYPE, "attribute 'axis'", "integer")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "4");
  Text n = node_of(w, "Softmax", "x", "y");
  attr_f(w, &n, "axis", 1);
  g_add(&g, n);
  g_output(&g, "y");
  import_graph_of(&g, 13);
}
REFUSED(not_a_model, ERR_PARSE, "no graph")
{
  Text t = fresh(w);
  pb_int(&t, 1, 8);
  import_text(w, &t, NULL, NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(a_small_network_runs),
    T(softmax_of_opset_11),
    T(softmax_of_opset_13),
    T(add_of_opset_6_takes_an_axis),
    T(quantize_rounds_to_even_and_saturates),
    T(int4_comes_apart_and_float16_keeps_its_bits),
    T(a_symbolic_shape_chain_becomes_an_attribute),
    T(a_binding_holds_at_every_input),
    T(a_binding_of_no_input),
    T(a_binding_of_another_rank),
    T(a_binding_against_the_model),
    T(a_negative_binding),
    T(weights_can_stay_parameters),
    T(copies_of_a_module_share_the_weights),
    T(nodes_out_of_order_are_sorted),
    T(a_cycle),
    T(a_missing_input),
    T(a_name_defined_twice),
    T(an_output_of_no_node),
    T(unsupported_operators_are_named_all_at_once),
    T(one_unsupported_operator),
    T(an_operator_of_a_later_opset),
    T(arithmetic_on_strings),
    T(a_tensor_with_too_few_bytes),
    T(a_tensor_of_negative_extent),
    T(a_tensor_of_huge_extents),
    T(a_tensor_of_an_unknown_type),
    T(a_tensor_of_seventeen_dimensions),
    T(half_an_int4),
    T(an_input_of_negative_extent),
    T(a_stride_of_zero),
    T(too_few_pads),
    T(a_kernel_without_numbers),
    T(an_axis_out_of_range),
    T(an_attribute_of_the_wrong_kind),
    T(not_a_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
