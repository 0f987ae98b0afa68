/* test_kit.c: the kit under a format of its own, of a line a node: "out = op in in".  Nothing of ONNX is used. */
#include "te/test_te.h"

#include "frontend/kit.h"

typedef struct Toy {
  SourceInput input;
  SourceDim dim[2];
} Toy;

static void convert(Import *im, Frame *f, const char *op, const char *out, int nin, const char *const *in)
{
  Conversion c = kit_begin(im, f, op, out, 1, nin, in, 1, &out, NULL);
  if (!strcmp(op, "sum")) c.out[0] = kit_add(&c, kit_in(&c, 0), kit_in(&c, 1));
  else if (!strcmp(op, "flip")) c.out[0] = kit_transpose(&c, kit_in(&c, 0), 2, (int[]){1, 0});
  else if (!strcmp(op, "extent")) c.out[0] = kit_shape_of(&c, kit_in(&c, 0));
  else kit_fail(&c, ERR_UNSUPPORTED, "no such thing");
  kit_end(&c);
}

static char lines[8][64]; /* of the file being read */
static int nlines;

static void read_toy(Import *im)
{
  Toy *toy = im->own;
  Frame *f = arena_new_of(im->arena, Frame);
  KitNodes params = {0};
  Survey survey = {.im = im};
  char op[16];
  char out[2][16];
  for (int i = 0; i < nlines; i++) {
    if (sscanf(lines[i], "%15s = %15s", out[0], op) != 2) continue;
    const char *name = kit_survey_use(&survey, op);
    if (!strcmp(op, "fly")) kit_survey_problem(&survey, name, out[0], "not supported");
  }
  kit_survey_end(&survey);
  kit_bind_shapes(im, 1, &toy->input);
  const Type *ty = kit_input_type(im, DT_F32, &toy->input, kit_binding_of(im, "x"));
  vec_push(im->arena, &params, node_var(im->m, "x", ty));
  kit_define(im, f, "x", params.v[0], "input");
  ConstData d = {.dtype = DT_F32};
  size_t count = kit_const_shape(im, "w", 1, (int64_t[]){2}, &d);
  kit_const_raw(im, "w", im->file, count, &d);
  kit_define(im, f, "w", kit_const(im, &d), "weight");
  if (im->opt->keep_params) kit_keep_params(im, f, 1, (const char *[]){"w"}, &params);
  for (int i = 0; i < nlines; i++) {
    char in[2][16];
    int n = sscanf(lines[i], "%15s = %15s %15s %15s", out[0], op, in[0], in[1]) - 2;
    const char *names[] = {in[0], in[1]};
    convert(im, f, op, arena_strdup(im->arena, out[0]), n, names);
  }
  const char **name = arena_array(im->m->arena, const char *, 1);
  name[0] = "y";
  kit_set_main(im, &params, 1, (const Node *[]){kit_frame_get(im, f, "y")}, name, 0, NULL);
}

static const float weight[] = {10, 20};

static void import_toy(World *w, const char *const *line, int n, const ImportOptions *opt, ImportReport *report)
{
  static Toy toy;
  toy = (Toy){.dim = {{.name = "rows"}, {.known = true, .value = 2, .name = ""}}};
  toy.input = (SourceInput){.name = "x", .ndim = 2, .dim = toy.dim};
  for (nlines = 0; nlines < n; nlines++) snprintf(lines[nlines], sizeof lines[0], "%s", line[nlines]);
  Import im = {.format = "toy", .listing = "lathe ops --toy", .own = &toy};
  kit_import(&im, w->m, kit_keep_bytes(w->m, weight, sizeof weight), NULL, opt, report, read_toy);
}
#define IMPORT(w, opt, report, ...) \
  import_toy(w, (const char *[]){__VA_ARGS__}, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), opt, report)

CASE(a_format_of_lines_becomes_a_graph)
{
  ImportReport report;
  IMPORT(w, NULL, &report, "t = sum x w", "y = flip t");
  const Node *f = graph_main(w->m);
  assert_string_equal(type_text(w->m->arena, fn_body(f)->type), "Tensor[(2, rows), float32]");
  assert_int_equal(report.nops, 2);
  assert_int_equal(report.weights_bytes, 8);
  assert_int_equal(report.noutputs, 1);
  assert_string_equal(report.output_name[0], "y");
  float x[] = {1, 2, 3, 4, 5, 6};
  ConstData d = {.dtype = DT_F32, .ndim = 2, .shape = {3, 2}, .bytes = sizeof x, .data = x};
  const RtValue *in = graph_value_tensor(w->m->arena, &d);
  const float *y = graph_eval(w->m, w->m->arena, f, 1, &in)->tensor.data;
  const float want[] = {11, 13, 15, 22, 24, 26};
  for (int i = 0; i < 6; i++) assert_true(y[i] == want[i]);
}

CASE(a_bound_size_is_a_literal_and_its_arithmetic_is_gone)
{
  ImportReport report;
  ImportOptions opt = {.nshapes = 1, .shape = &(ShapeBinding){.input = "x", .ndim = 2, .dim = (int64_t[]){5, -1}}};
  IMPORT(w, &opt, &report, "y = extent x");
  const Node *body = fn_body(graph_main(w->m));
  assert_int_equal(body->kind, N_CONST);
  assert_int_equal(((const int64_t *)body->u.data->data)[0], 5);
  assert_int_equal(report.nfolded, 1);
}

CASE(weights_can_stay_parameters)
{
  ImportReport report;
  IMPORT(w, &(ImportOptions){.keep_params = true}, &report, "y = sum x w");
  assert_int_equal(fn_nparams(graph_main(w->m)), 2);
  assert_int_equal(report.nparams, 1);
  assert_string_equal(report.param_name[0], "w");
}

REFUSED(what_is_not_supported_is_told_first, ERR_UNSUPPORTED, "toy: operator 'fly' (node 'b') is not supported",
        "'lathe ops --toy'")
{
  IMPORT(w, NULL, NULL, "a = nonsense x", "b = fly a");
}
REFUSED(a_converter_names_format_operator_and_node, ERR_UNSUPPORTED, "toy: nonsense (node 'y'): no such thing")
{
  IMPORT(w, NULL, NULL, "y = nonsense x");
}
REFUSED(an_input_that_nothing_makes, ERR_ARGUMENT, "toy: flip (node 'y'): input 0 is missing")
{
  IMPORT(w, NULL, NULL, "y = flip z");
}
REFUSED(a_name_made_twice, ERR_ARGUMENT, "toy: 't' is defined twice, again by node 't'")
{
  IMPORT(w, NULL, NULL, "t = flip x", "t = flip x");
}
REFUSED(a_shape_of_no_input, ERR_ARGUMENT, "toy: a shape is given for 'z'")
{
  IMPORT(w, (&(ImportOptions){.nshapes = 1, .shape = &(ShapeBinding){.input = "z", .ndim = 1, .dim = (int64_t[]){5}}}),
         NULL, "y = flip x");
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(a_format_of_lines_becomes_a_graph),
    T(a_bound_size_is_a_literal_and_its_arithmetic_is_gone),
    T(weights_can_stay_parameters),
    T(what_is_not_supported_is_told_first),
    T(a_converter_names_format_operator_and_node),
    T(an_input_that_nothing_makes),
    T(a_name_made_twice),
    T(a_shape_of_no_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
