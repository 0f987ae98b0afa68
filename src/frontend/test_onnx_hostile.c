/* test_onnx_hostile.c: models that lie, one test for each way to lie that a reader of
 * files must expect; each ends in a sentence that names the thing.
 *
 *   class                       also tested in
 *   truncated file              test_onnx_proto.c (every prefix of the wire format)
 *   length past the end         test_onnx_proto.c
 *   size overflow               test_onnx_import.c (a_tensor_of_huge_extents)
 *   negative, huge dimension    test_onnx_import.c
 *   index out of range          test_onnx_import.c (an_axis_out_of_range)
 *   attribute length != shape   test_onnx_import.c (too_few_pads)
 *   zero divisor                test_onnx_import.c (a_stride_of_zero)
 *   missing tensor              test_onnx_import.c, test_onnx_control.c
 *   cycle                       test_onnx_import.c, test_onnx_control.c (functions)
 *   deep nesting                test_onnx_proto.c
 *   path of external data       test_onnx_control.c
 *   elements below a byte       test_onnx_import.c (half_an_int4)
 *   giant allocation            here
 *   unknown op, opset, dtype    test_onnx_import.c */
#include "frontend/test_onnx.h"

#include <unistd.h>

#define D(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }

/* y = op(inputs) with at most one list of integers as attribute; x and i are inputs. */
typedef struct Lie {
  const char *op, *inputs, *dims; /* dims of x; NULL: (1, 4, 4, 4) */
  const char *attr;
  int n; /* 0: one number */
  const int64_t *v;
  int opset;
} Lie;

static void lie_about(World *w, Graph *g, Lie l)
{
  g_input(g, "x", ONNX_FLOAT, l.dims ? l.dims : "1,4,4,4");
  g_input(g, "i", ONNX_INT64, "4");
  Text p = node_of(w, l.op, l.inputs ? l.inputs : "x", "y");
  if (l.attr && l.n) attr_is(w, &p, l.attr, l.n, l.v);
  else if (l.attr) attr_i(w, &p, l.attr, l.v[0]);
  g_add(g, p);
  g_output(g, "y");
  import_graph_of(g, l.opset ? l.opset : 17);
}
static void lie(World *w, Lie l)
{
  Graph g = graph_new(w);
  lie_about(w, &g, l);
}
/* The same with a constant c of int64. */
static void lie_with(World *w, Lie l, int n, const int64_t *c)
{
  Graph g = graph_new(w);
  g_ints(&g, "c", n, c);
  lie_about(w, &g, l);
}

/* ---- truncated files ------------------------------------------------------------------- */

typedef struct Prefix {
  World *w;
  const char *p;
  size_t n;
} Prefix;

static void import_prefix(Ctx *ctx, void *arg)
{
  Prefix *x = arg;
  Module *m = module_new(ctx);
  defer(ctx, (void (*)(void *))module_release, m);
  onnx_import(m, x->p, x->n, NULL, NULL, NULL);
}

CASE(every_truncation_of_a_model_is_refused_or_whole)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "2,n");
  g_floats(&g, "c", 1, (int64_t[]){3}, (float[]){1, 2, 3});
  g_node(&g, "Add", "x,c", "h");
  Text p = node_of(w, "Softmax", "h", "y");
  attr_i(w, &p, "axis", 1);
  g_add(&g, p);
  g_output(&g, "y");
  Text t = model_of(&g, 13);
  for (size_t n = 0; n < t.n; n++) {
    char *part = malloc(n ? n : 1); /* its end is where the sanitizer looks */
    memcpy(part, text_str(&t), n);
    ErrKind k = protect(w->ctx, import_prefix, &(Prefix){w, part, n});
    if (k != ERR_PARSE) fail_msg("the first %zu of %zu bytes: %s", n, t.n, error_message(w->ctx));
    assert_true(strlen(error_message(w->ctx)) > 10);
    free(part);
  }
  error_clear(w->ctx);
}

static void import_path(World *w, const char *path) { onnx_import_file(w->m, path, NULL, NULL); }
REFUSED(a_file_that_is_missing, ERR_IO, "/nonexistent/model.onnx") { import_path(w, "/nonexistent/model.onnx"); }
REFUSED(a_folder, ERR_IO, "'/tmp'") { import_path(w, "/tmp"); }
static void remove_file(void *path) { unlink(path); }
REFUSED(an_empty_file, ERR_PARSE, "is empty")
{
  char path[] = "/tmp/lathe_empty_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  defer(w->ctx, remove_file, arena_strdup(w->m->arena, path));
  import_path(w, path);
}

/* ---- dimensions ---------------------------------------------------------------------------- */

REFUSED(an_input_of_too_many_elements, ERR_SHAPE, "'x'", "64 bits")
{
  lie(w, (Lie){.op = "Relu", .dims = "4611686018427387904,4"});
}
REFUSED(a_result_of_too_many_elements, ERR_SHAPE, "overflows", "9223372036854775807")
{
  lie(w, (Lie){.op = "Concat", .inputs = "x,x", .dims = "9223372036854775807", .attr = "axis", .v = (int64_t[]){0}});
}
REFUSED(a_negative_reshape, ERR_SHAPE, "reshape (node 'y')", "-7")
{
  lie_with(w, (Lie){.op = "Reshape", .inputs = "x,c"}, D(-7, 2));
}
REFUSED(two_open_dimensions, ERR_SHAPE, "reshape (node 'y')", "-1")
{
  lie_with(w, (Lie){.op = "Reshape", .inputs = "x,c"}, D(-1, -1));
}
REFUSED(a_constant_of_negative_shape, ERR_SHAPE, "full (node 'y')", "-3")
{
  lie_with(w, (Lie){.op = "ConstantOfShape", .inputs = "c"}, D(2, -3));
}
REFUSED(a_negative_tile, ERR_ARGUMENT, "tile (node 'y')", "-1")
{
  lie_with(w, (Lie){.op = "Tile", .inputs = "x,c"}, D(1, -1, 1, 1));
}

/* ---- indices ---------------------------------------------------------------------------------- */

REFUSED(an_axis_below_the_range, ERR_ARGUMENT, "axis -5", "rank 4")
{
  lie(w, (Lie){.op = "Softmax", .attr = "axis", .v = (int64_t[]){-5}});
}
REFUSED(an_axis_of_64_bits, ERR_ARGUMENT, "4294967297")
{
  lie(w, (Lie){.op = "Softmax", .attr = "axis", .v = (int64_t[]){4294967297}});
}
REFUSED(a_permutation_out_of_range, ERR_ARGUMENT, "Transpose (node 'y')", "9")
{
  lie(w, (Lie){.op = "Transpose", .attr = "perm", .n = 4, .v = (int64_t[]){0, 1, 2, 9}});
}
REFUSED(a_permutation_that_repeats, ERR_ARGUMENT, "Transpose (node 'y')", "twice")
{
  lie(w, (Lie){.op = "Transpose", .attr = "perm", .n = 4, .v = (int64_t[]){0, 1, 1, 2}});
}
REFUSED(a_squeeze_out_of_range, ERR_ARGUMENT, "Squeeze (node 'y')", "axis 7")
{
  lie_with(w, (Lie){.op = "Squeeze", .inputs = "x,c"}, D(7));
}
REFUSED(an_unsqueeze_out_of_range, ERR_ARGUMENT, "Unsqueeze (node 'y')", "axis 9")
{
  lie_with(w, (Lie){.op = "Unsqueeze", .inputs = "x,c"}, D(9));
}
/* Kernels bring an index inside, whatever it is: nothing outside of a tensor is ever read. */
CASE(an_index_out_of_range_reads_nothing_outside)
{
  lie_with(w, (Lie){.op = "Gather", .inputs = "x,c", .dims = "4", .attr = "axis", .v = (int64_t[]){0}},
           D(99, -99, INT64_MIN, INT64_MAX));
  const RtValue *arg[] = {value_tensor(w, DT_F32, 1, (int64_t[]){4}, (float[]){1, 2, 3, 4}),
                          value_tensor(w, DT_I64, 1, (int64_t[]){4}, (int64_t[]){0, 0, 0, 0})};
  expect_floats(run_main(w, 2, arg), 1, (int64_t[]){4}, (float[]){4, 2, 1, 4});
}

static void sparse(World *w, int n, const int64_t *dims, int64_t index)
{
  Graph g = graph_new(w);
  Text values = tensor_raw(w, "s", ONNX_FLOAT, D(1), (float[]){1}, 4);
  Text at = tensor_raw(w, "", ONNX_INT64, D(1), &index, 8);
  Text t = fresh(w);
  pb_msg(&t, 1, &values);
  pb_msg(&t, 2, &at);
  for (int i = 0; i < n; i++) pb_int(&t, 3, dims[i]);
  pb_msg(&g.body, 15, &t);
  g_node(&g, "Neg", "s", "y");
  g_output(&g, "y");
  import_graph_of(&g, 17);
}
REFUSED(a_sparse_index_out_of_range, ERR_BOUNDS, "'s'", "outside") { sparse(w, D(3), 3); }
REFUSED(a_sparse_shape_that_overflows, ERR_ARGUMENT, "s is too large") { sparse(w, D(INT64_MAX, 8), 0); }
REFUSED(a_sparse_shape_of_terabytes, ERR_MEMORY, "out of memory", "4398046511104 bytes")
{
  sparse(w, D(1024, 1024, 1024, 1024), 0);
}

/* ---- lengths of attributes ------------------------------------------------------------------------ */

static void conv(World *w, const char *attr, int n, const int64_t *v, const char *weight)
{
  Graph g = graph_new(w);
  g_input(&g, "w", ONNX_FLOAT, weight);
  lie_about(w, &g, (Lie){.op = "Conv", .inputs = "x,w", .attr = attr, .n = n, .v = v});
}
REFUSED(a_stride_too_many, ERR_ARGUMENT, "Conv (node 'y')", "strides", "3 numbers")
{
  conv(w, "strides", D(1, 1, 1), "4,4,3,3");
}
REFUSED(a_dilation_too_few, ERR_ARGUMENT, "Conv (node 'y')", "dilations", "1 number")
{
  conv(w, "dilations", D(1), "4,4,3,3");
}
REFUSED(a_kernel_shape_against_the_weight, ERR_SHAPE, "Conv (node 'y')", "kernel_shape")
{
  conv(w, "kernel_shape", D(5, 5), "4,4,3,3");
}
REFUSED(a_weight_of_other_channels, ERR_SHAPE, "nn.conv2d (node 'y')", "4", "5") { conv(w, NULL, 0, NULL, "4,5,3,3"); }
REFUSED(a_kernel_larger_than_its_input, ERR_SHAPE, "nn.conv2d (node 'y')", "the kernel spans 9")
{
  conv(w, NULL, 0, NULL, "4,4,9,9");
}
REFUSED(a_permutation_too_short, ERR_ARGUMENT, "Transpose (node 'y')", "3")
{
  lie(w, (Lie){.op = "Transpose", .attr = "perm", .n = 3, .v = (int64_t[]){0, 1, 2}});
}
REFUSED(splits_that_do_not_add_up, ERR_SHAPE, "Split (node 'y')", "4")
{
  lie_with(w, (Lie){.op = "Split", .inputs = "x,c", .attr = "axis", .v = (int64_t[]){1}}, D(9));
}
REFUSED(a_reshape_of_another_size, ERR_SHAPE, "reshape (node 'y')", "64", "9")
{
  lie_with(w, (Lie){.op = "Reshape", .inputs = "x,c"}, D(3, 3));
}
REFUSED(a_slice_of_another_length, ERR_ARGUMENT, "Slice (node 'y')", "starts has 2 numbers, ends 4")
{
  lie_with(w, (Lie){.op = "Slice", .inputs = "x,c,i"}, D(0, 0));
}
REFUSED(pads_of_another_length, ERR_ARGUMENT, "Pad (node 'y')", "3")
{
  lie_with(w, (Lie){.op = "Pad", .inputs = "x,c"}, D(1, 1, 1));
}

REFUSED(a_border_too_short, ERR_ARGUMENT, "Crop (node 'y')", "3 numbers")
{
  lie(w, (Lie){.op = "Crop", .attr = "border", .n = 3, .v = (int64_t[]){1, 1, 1}, .opset = 1});
}
REFUSED(a_border_larger_than_the_image, ERR_SHAPE, "Crop (node 'y')", "columns 3 to 1")
{
  lie(w, (Lie){.op = "Crop", .attr = "border", .n = 4, .v = (int64_t[]){3, 0, 3, 0}, .opset = 1});
}

/* ---- zero divisors ------------------------------------------------------------------------------------ */

REFUSED(no_groups, ERR_ARGUMENT, "Conv (node 'y')", "group") { conv(w, "group", 0, (int64_t[]){0}, "4,4,3,3"); }
REFUSED(groups_that_do_not_divide, ERR_SHAPE, "nn.conv2d (node 'y')", "groups=3")
{
  conv(w, "group", 0, (int64_t[]){3}, "4,4,3,3");
}
REFUSED(a_dilation_of_zero, ERR_ARGUMENT, "Conv (node 'y')", "dilation 0", "positive")
{
  conv(w, "dilations", D(0, 1), "4,4,3,3");
}
REFUSED(a_block_of_zero, ERR_SHAPE, "DepthToSpace (node 'y')", "0")
{
  lie(w, (Lie){.op = "DepthToSpace", .attr = "blocksize", .v = (int64_t[]){0}});
}
REFUSED(a_block_of_zero_back, ERR_SHAPE, "SpaceToDepth (node 'y')", "0")
{
  lie(w, (Lie){.op = "SpaceToDepth", .attr = "blocksize", .v = (int64_t[]){0}});
}
REFUSED(no_split, ERR_ARGUMENT, "Split (node 'y')", "num_outputs", "0")
{
  lie(w, (Lie){.op = "Split", .attr = "num_outputs", .v = (int64_t[]){0}, .opset = 18});
}
REFUSED(a_step_of_zero, ERR_ARGUMENT, "Slice (node 'y')", "step", "0")
{
  Graph g = graph_new(w);
  g_ints(&g, "a", D(0)), g_ints(&g, "b", D(2)), g_ints(&g, "zero", D(0));
  lie_about(w, &g, (Lie){.op = "Slice", .inputs = "x,a,b,a,zero"});
}
REFUSED(a_range_that_never_arrives, ERR_ARGUMENT, "Range (node 'y')", "0")
{
  Graph g = graph_new(w);
  int64_t zero = 0;
  int64_t end = 9;
  g_ints(&g, "a", -1, &zero), g_ints(&g, "b", -1, &end);
  lie_about(w, &g, (Lie){.op = "Range", .inputs = "a,b,a"});
}
REFUSED(a_window_of_zero, ERR_ARGUMENT, "nn.lrn (node 'y')", "size")
{
  lie(w, (Lie){.op = "LRN", .attr = "size", .v = (int64_t[]){0}});
}

/* ---- missing tensors ----------------------------------------------------------------------------------- */

REFUSED(a_convolution_without_weight, ERR_ARGUMENT, "Conv (node 'y')", "input 1") { lie(w, (Lie){.op = "Conv"}); }
REFUSED(a_node_without_inputs, ERR_ARGUMENT, "Relu (node 'y')", "input 0")
{
  lie(w, (Lie){.op = "Relu", .inputs = ""});
}
REFUSED(a_pool_without_kernel, ERR_ARGUMENT, "MaxPool (node 'y')", "kernel_shape") { lie(w, (Lie){.op = "MaxPool"}); }

/* ---- deep nesting ----------------------------------------------------------------------------------------- */

REFUSED(branches_inside_branches, ERR_UNSUPPORTED, "deeper than 64")
{
  Graph leaf = graph_new(w);
  g_node(&leaf, "Neg", "x", "y");
  g_output(&leaf, "y");
  Graph g = leaf;
  for (int i = 0; i < 65; i++) { /* below the reader's limit */
    Graph outer = graph_new(w);
    Text p = node_of(w, "If", "b", "y");
    attr_g(w, &p, "then_branch", &g);
    attr_g(w, &p, "else_branch", &leaf);
    g_add(&outer, p);
    g_output(&outer, "y");
    g = outer;
  }
  g_input(&g, "x", ONNX_FLOAT, "4");
  g_input(&g, "b", ONNX_BOOL, "");
  import_graph_of(&g, 17);
}

/* ---- giant allocations ------------------------------------------------------------------------------------ */

/* A few bytes that ask for terabytes: what is typed but never computed by the import is fine, since
 * memory is asked for when it runs; nothing is computed at import time. */
CASE(terabytes_are_not_computed_at_import)
{
  lie_with(w, (Lie){.op = "ConstantOfShape", .inputs = "c"}, D(1024, 1024, 1024, 1024));
  const Type *t = fn_body(graph_main(w->m))->type;
  assert_int_equal(t->ndim, 4);
}
CASE(a_range_of_terabytes_is_not_computed_at_import)
{
  Graph g = graph_new(w);
  int64_t zero = 0;
  int64_t end = 1 << 30;
  int64_t one = 1;
  g_ints(&g, "a", -1, &zero), g_ints(&g, "b", -1, &end), g_ints(&g, "s", -1, &one);
  lie_about(w, &g, (Lie){.op = "Range", .inputs = "a,b,s"});
}

/* ---- what is unknown ----------------------------------------------------------------------------------------- */

REFUSED(an_unknown_domain, ERR_UNSUPPORTED, "Relu", "my.company")
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "4");
  Text p = node_of(w, "Relu", "x", "y");
  pb_str(&p, 7, "my.company");
  g_add(&g, p);
  g_output(&g, "y");
  import_graph_of(&g, 17);
}
REFUSED(an_opset_of_zero, ERR_UNSUPPORTED, "opset") { lie(w, (Lie){.op = "Relu", .opset = -1}); }
REFUSED(a_cast_to_an_unknown_type, ERR_TYPE, "'y'", "77")
{
  lie(w, (Lie){.op = "Cast", .attr = "to", .v = (int64_t[]){77}});
}
REFUSED(an_input_of_an_unknown_type, ERR_TYPE, "'x'", "99")
{
  Graph g = graph_new(w);
  g_input(&g, "x", 99, "4");
  g_node(&g, "Relu", "x", "y");
  g_output(&g, "y");
  import_graph_of(&g, 17);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(every_truncation_of_a_model_is_refused_or_whole),
    T(a_file_that_is_missing),
    T(a_folder),
    T(an_empty_file),
    T(an_input_of_too_many_elements),
    T(a_result_of_too_many_elements),
    T(a_negative_reshape),
    T(two_open_dimensions),
    T(a_constant_of_negative_shape),
    T(a_negative_tile),
    T(an_axis_below_the_range),
    T(an_axis_of_64_bits),
    T(a_permutation_out_of_range),
    T(a_permutation_that_repeats),
    T(a_squeeze_out_of_range),
    T(an_unsqueeze_out_of_range),
    T(an_index_out_of_range_reads_nothing_outside),
    T(a_sparse_index_out_of_range),
    T(a_sparse_shape_that_overflows),
    T(a_sparse_shape_of_terabytes),
    T(a_stride_too_many),
    T(a_dilation_too_few),
    T(a_kernel_shape_against_the_weight),
    T(a_weight_of_other_channels),
    T(a_kernel_larger_than_its_input),
    T(a_permutation_too_short),
    T(splits_that_do_not_add_up),
    T(a_reshape_of_another_size),
    T(a_slice_of_another_length),
    T(pads_of_another_length),
    T(a_border_too_short),
    T(a_border_larger_than_the_image),
    T(no_groups),
    T(groups_that_do_not_divide),
    T(a_dilation_of_zero),
    T(a_block_of_zero),
    T(a_block_of_zero_back),
    T(no_split),
    T(a_step_of_zero),
    T(a_range_that_never_arrives),
    T(a_window_of_zero),
    T(a_convolution_without_weight),
    T(a_node_without_inputs),
    T(a_pool_without_kernel),
    T(branches_inside_branches),
    T(terabytes_are_not_computed_at_import),
    T(a_range_of_terabytes_is_not_computed_at_import),
    T(an_unknown_domain),
    T(an_opset_of_zero),
    T(a_cast_to_an_unknown_type),
    T(an_input_of_an_unknown_type),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
