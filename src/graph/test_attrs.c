/* test_attrs.c: attributes by their tables, types as text, and the list of operators. */
#include "graph/test_graph.h"

CASE(defaults_come_from_the_table)
{
  const TestScaleAttrs *a = attrs_new(w->m, &TestScale_attrs);
  assert_true(a->factor == 1e-5);
  assert_string_equal(a->layout, "NCHW");
  assert_int_equal(a->pads.n, 2);
  assert_true(a->pads.given && a->words.given && !a->dims.given && !a->numbers.given && a->exact);
  assert_int_equal(a->out_dtype.code, DT_VOID);
}

CASE(values_are_set_by_name_and_by_text)
{
  TestScaleAttrs *a = attrs_new(w->m, &TestScale_attrs);
  TestScaleAttrs *b = attrs_new(w->m, &TestScale_attrs);
  attrs_set_text(w->m, &TestScale_attrs, a, "pads", "[3, -4, 5]");
  attrs_set_ints(w->m, &TestScale_attrs, b, "pads", 3, (int64_t[]){3, -4, 5});
  attrs_set_text(w->m, &TestScale_attrs, a, "factor", "2.5");
  attrs_set_f64(w->m, &TestScale_attrs, b, "factor", 2.5);
  attrs_set_text(w->m, &TestScale_attrs, a, "out_dtype", "float16");
  attrs_set_dtype(w->m, &TestScale_attrs, b, "out_dtype", DT_F16);
  attrs_set_text(w->m, &TestScale_attrs, a, "words", "(\"a\", \"b, c\")");
  attrs_set_strs(w->m, &TestScale_attrs, b, "words", 2, (const char *const[]){"a", "b, c"});
  attrs_set_int(w->m, &TestScale_attrs, a, "dims", 7);
  attrs_set_dims(w->m, &TestScale_attrs, b, "dims", 1, (const Expr *[]){expr_i32(w->m, 7)});
  assert_true(attrs_equal(&TestScale_attrs, a, b));
  assert_true(attrs_hash(&TestScale_attrs, a) == attrs_hash(&TestScale_attrs, b));
  attrs_set_int(w->m, &TestScale_attrs, b, "exact", 0);
  assert_false(attrs_equal(&TestScale_attrs, a, b));
  assert_true(attrs_hash(&TestScale_attrs, a) != attrs_hash(&TestScale_attrs, b));
  Text t = text_new(w->m->arena);
  attrs_print(&t, &TestScale_attrs, b);
  assert_string_equal(
      text_str(&t),
      ", factor=2.5, pads=[3, -4, 5], out_dtype=\"float16\", dims=[7], exact=False, words=[\"a\", \"b, c\"]");
}

typedef struct SetJob {
  World *w;
  const char *name, *text;
} SetJob;
static void set_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  SetJob *job = arg;
  attrs_set_text(job->w->m, &TestScale_attrs, attrs_new(job->w->m, &TestScale_attrs), job->name, job->text);
}

CASE(wrong_values_are_refused)
{
  static const struct {
    const char *name, *text, *want;
  } rows[] = {
    {"fctor", "1", "did you mean 'factor'"},
    {"factor", "x", "'factor' is a number, not 'x'"},
    {"pads", "1", "'pads' is a list of integers, not '1'"},
    {"pads", "[1, a]", "not 'a'"},
    {"out_dtype", "float33", "'out_dtype' is a dtype"},
    {"exact", "None", "'exact' is a bool, not None"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    SetJob job = {w, rows[i].name, rows[i].text};
    assert_int_not_equal(protect(w->ctx, set_job, &job), ERR_NONE);
    if (!strstr(error_message(w->ctx), rows[i].want)) fail_msg("%s", error_message(w->ctx));
    error_clear(w->ctx);
  }
}

CASE(types_compare_and_join)
{
  Module *m = w->m;
  const Expr *n = var_new(m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *k = var_new(m, "k", DT_I32, VAR_SIZE)->expr;
  const Type *a = type_tensor(m, DT_F32, 2, (const Expr *[]){n, expr_i32(m, 3)});
  const Type *b = type_tensor(m, DT_F32, 2, (const Expr *[]){k, expr_int(m, DT_I64, 3)});
  const Type *any = type_tensor(m, DT_F32, 2, (const Expr *[]){type_dim_any(m), type_dim_any(m)});
  assert_false(type_equal(a, b));
  assert_false(type_equal(a, any));
  assert_true(type_equal(any, type_tensor(m, DT_F32, 2, (const Expr *[]){type_dim_any(m), type_dim_any(m)})));
  assert_string_equal(type_text(m->arena, type_join(m, a, b)), "Tensor[(?, 3), float32]");
  assert_null(type_join(m, a, type_tensor(m, DT_F16, 0, NULL)));
  assert_null(type_join(m, a, type_tuple(m, 1, &a)));
  assert_string_equal(type_text(m->arena, type_tuple(m, 1, &a)), "(Tensor[(n, 3), float32],)");
  assert_false(type_is_static(a));
  assert_int_equal(type_elements(w->ctx, type_tensor_of(m, DT_I8, 3, (int64_t[]){2, 3, 4})), 24);
}

static const OpDef user_op = {
  .name = "user.twice", .args = "x", .min_args = 1, .max_args = 1, .type = same_type, .compute = negative_compute};
static const OpDef bad_op = {.name = "user.bad", .type = same_type};
static void register_job(Ctx *ctx, void *op) { opdef_register(ctx, op); }

CASE(users_add_operators)
{
  assert_null(opdef_find("user.twice"));
  opdef_register(w->ctx, &user_op);
  assert_ptr_equal(opdef_get(w->ctx, "user.twice"), &user_op);
  assert_ptr_equal(opdef_at(opdef_count() - 1), &user_op);
  assert_int_equal(protect(w->ctx, register_job, (void *)(uintptr_t)&user_op), ERR_ARGUMENT);
  assert_int_equal(protect(w->ctx, register_job, (void *)(uintptr_t)&bad_op), ERR_ARGUMENT);
  error_clear(w->ctx);
  const RtValue *x = f32_value(w, 1, (float[]){2});
  const RtValue *v =
      graph_eval(w->m, w->m->arena, parse_main(w, "def @main(%x: Tensor[(1), float32]) { user.twice(%x) }"), 1, &x);
  assert_true(*(const float *)v->tensor.data == -2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults_come_from_the_table), cmocka_unit_test(values_are_set_by_name_and_by_text),
    cmocka_unit_test(wrong_values_are_refused),     cmocka_unit_test(types_compare_and_join),
    cmocka_unit_test(users_add_operators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
