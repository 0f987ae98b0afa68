/* Tests of the C API over graphs: an operator that a C program adds, models compiled in one call,
 * calls from inside a user's function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lathe.h"

#define DIGITS "examples/digits/digits.onnx" /* tests run in the root of the tree */

static LatheValue none(void) { return (LatheValue){0}; }
static LatheValue num(int64_t i) { return (LatheValue){.tag = LATHE_INT, .u.i = i}; }
static LatheValue real(double f) { return (LatheValue){.tag = LATHE_FLOAT, .u.f = f}; }
static LatheValue str(const char *s) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)}; }
static LatheValue list(int n, const LatheValue *v) { return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n}; }
static LatheValue address(const void *p) { return num((int64_t)(intptr_t)p); }

static void release(LatheValue v)
{
  if (v.tag == LATHE_OBJECT) lathe_object_release(v.kind, v.u.p);
  if (v.tag == LATHE_LIST)
    for (int64_t i = 0; i < v.n; i++) release(v.u.list[i]);
}

static LatheValue must_(LatheContext *c, const char *name, int n, const LatheValue *args)
{
  LatheValue out;
  int32_t code = lathe_call(c, name, n, args, &out);
  if (code) fail_msg("%s: %s: %s", name, lathe_error_name(code), lathe_error_message(c));
  return out;
}
#define MUST(c, name, ...) \
  must_(c, name, (int)(sizeof((LatheValue[]){__VA_ARGS__}) / sizeof(LatheValue)), (LatheValue[]){__VA_ARGS__})

/* ---- an operator of the program's own: scale(data, factor) ---------------------------------- */

typedef struct Scale {
  LatheContext *c;
  LatheValue world, made[64];
  int n, typed, computed;
  LatheValue answer[2], in[1], out[1];
  int refuse;
} Scale;

static LatheValue keep(Scale *s, LatheValue v) { return s->made[s->n++] = v; }

/* The type of the result is that of the argument. */
static int32_t scale_type(void *user, int32_t n, const LatheValue *args, LatheValue *answer)
{
  Scale *s = user;
  s->typed++;
  if (s->refuse) return -1;
  assert_int_equal(n, 2);
  assert_string_equal(args[1].u.list[0].u.list[0].u.s, "factor");
  *answer = args[0].u.list[0];
  return 0;
}

static int32_t scale_compute(void *user, int32_t n, const LatheValue *args, LatheValue *answer)
{
  Scale *s = user;
  const LatheValue *type = args[0].u.list[0].u.list;
  int nd = (int)type[1].n;
  LatheValue axis[4], index[4];
  assert_true(n == 2 && nd <= 4);
  double factor = args[1].u.list[0].u.list[1].u.f;
  s->computed++;
  s->in[0] = keep(s, MUST(s->c, "te_placeholder", s->world, str("data"), type[0], type[1]));
  for (int i = 0; i < nd; i++) {
    LatheValue var = keep(s, MUST(s->c, "var", s->world, str("i"), str("int32"), (LatheValue){.tag = LATHE_BOOL}));
    axis[i] = keep(s, MUST(s->c, "itervar", s->world, var, num(0), type[1].u.list[i], str("spatial"), none()));
    index[i] = var;
  }
  LatheValue element = keep(s, MUST(s->c, "te_read", s->world, s->in[0], list(nd, index)));
  LatheValue body = keep(s, MUST(s->c, "binary", s->world, str("mul"), element, real(factor)));
  LatheValue op = keep(
      s, MUST(s->c, "te_compute", s->world, str("scale"), str(""), type[1], list(nd, axis), list(1, &body), none()));
  LatheValue fields = MUST(s->c, "teop_fields", op);
  lathe_object_retain(LATHE_TENSOR, fields.u.list[3].u.list[0].u.p);
  s->out[0] = keep(s, fields.u.list[3].u.list[0]);
  release(fields);
  s->answer[0] = list(1, s->in);
  s->answer[1] = list(1, s->out);
  *answer = list(2, s->answer);
  return 0;
}

static void register_scale(Scale *s)
{
  LatheValue attr[] = {str("factor"), str("float"), str("2.0"), str("what each element is multiplied with")};
  LatheValue row = list(4, attr);
  LatheValue fns[] = {address((void *)(intptr_t)scale_type), address((void *)(intptr_t)scale_compute)};
  MUST(s->c, "op_register", str("c.scale"), str("data times factor"), str("data"), num(1), num(0), list(1, &row),
       fns[0], fns[1], address(s));
}

static LatheValue make_module(Scale *s, LatheValue dim)
{
  LatheContext *c = s->c;
  LatheValue dims[] = {dim, num(3)};
  LatheValue type = keep(s, MUST(c, "tensor_type", s->world, list(2, dims), str("float32")));
  LatheValue x = keep(s, MUST(c, "node_var", s->world, str("x"), type));
  LatheValue factor[] = {str("factor"), real(3)};
  LatheValue attrs = list(2, factor);
  LatheValue inner = keep(s, MUST(c, "node_call", s->world, str("c.scale"), list(1, &x), list(1, &attrs), none()));
  LatheValue relu = keep(s, MUST(c, "node_call", s->world, str("nn.relu"), list(1, &inner), list(0, NULL), none()));
  LatheValue outer = keep(s, MUST(c, "node_call", s->world, str("c.scale"), list(1, &relu), list(0, NULL), none()));
  LatheValue f = keep(s, MUST(c, "node_func", s->world, list(1, &x), outer, none(), list(0, NULL)));
  LatheValue m = keep(s, must_(c, "module", 0, NULL));
  MUST(c, "module_set_graph", m, str("main"), f);
  return m;
}

/* Runs the model on rows of 3 and checks 2 * relu(3 x). */
static void check_model(LatheRtModel *model, int64_t rows)
{
  LatheRtExecutor *ex;
  LatheRtError err;
  float x[12];
  int64_t shape[] = {rows, 3};
  for (int i = 0; i < 12; i++) x[i] = (float)(i - 4);
  LatheRtTensor in = {.data = x, .device = {LATHE_RT_CPU, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape};
  const LatheRtTensor *out;
  assert_int_equal(lathe_rt_executor_new(model, &ex, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_set_input(ex, 0, &in, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_run(ex, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_get_output(ex, 0, &out, &err), LATHE_RT_OK);
  assert_int_equal(out->shape[0], rows);
  for (int64_t i = 0; i < rows * 3; i++) assert_true(((const float *)out->data)[i] == fmaxf(3 * x[i], 0) * 2);
  lathe_rt_executor_free(ex);
}

static void test_an_operator_in_c(void **state)
{
  (void)state;
  Scale s = {.c = lathe_context_new()};
  LatheContext *c = s.c;
  s.world = must_(c, "world", 0, NULL);
  register_scale(&s);
  LatheValue size =
      keep(&s, MUST(c, "var", s.world, str("n"), str("int32"), (LatheValue){.tag = LATHE_BOOL, .u.i = 1}));
  LatheValue target = keep(&s, must_(c, "target", 0, NULL));
  LatheValue passes = keep(&s, MUST(c, "pass_context", num(3), list(0, NULL), list(0, NULL), list(0, NULL), target));
  for (int symbolic = 0; symbolic < 2; symbolic++) {
    LatheValue m = make_module(&s, symbolic ? size : num(4));
    LatheValue compiled = MUST(c, "compile", m, target, passes, none(), none(), none());
    LatheRtModel *model = (LatheRtModel *)(intptr_t)MUST(c, "compiled_runtime", compiled).u.i;
    LatheRtModelInfo info = {LATHE_RT_INIT(info)};
    lathe_rt_model_info(model, &info);
    assert_int_equal(info.num_nodes, 1); /* fused with what stands between */
    check_model(model, 4);
    if (symbolic) check_model(model, 2);
    release(compiled);
  }
  assert_true(s.typed >= 4 && s.computed >= 4);
  for (int i = 0; i < s.n; i++) release(s.made[i]);
  release(s.world);
  assert_int_equal(lathe_object_count(c), 0);
  lathe_context_free(c);
}

static void test_a_function_that_fails(void **state)
{
  (void)state;
  Scale s = {.c = lathe_context_new(), .refuse = 1};
  s.world = must_(s.c, "world", 0, NULL);
  register_scale(&s);
  LatheValue dims[] = {num(2), num(3)};
  LatheValue out;
  LatheValue type = keep(&s, MUST(s.c, "tensor_type", s.world, list(2, dims), str("float32")));
  LatheValue x = keep(&s, MUST(s.c, "node_var", s.world, str("x"), type));
  LatheValue args[] = {s.world, str("c.scale"), list(1, &x), list(0, NULL), none()};
  int32_t code = lathe_call(s.c, "node_call", 5, args, &out);
  assert_string_equal(lathe_error_name(code), "CallbackError");
  assert_non_null(strstr(lathe_error_message(s.c), "c.scale"));
  for (int i = 0; i < s.n; i++) release(s.made[i]);
  release(s.world);
  lathe_context_free(s.c);
}

/* Operators go with the context that added them, and stay out of others. */
static void test_operators_of_other_contexts(void **state)
{
  (void)state;
  Scale s = {.c = lathe_context_new()};
  LatheContext *other = lathe_context_new();
  LatheValue world = must_(other, "world", 0, NULL);
  LatheValue dims[] = {num(2), num(3)};
  LatheValue out;
  register_scale(&s);
  LatheValue type = MUST(other, "tensor_type", world, list(2, dims), str("float32"));
  LatheValue x = MUST(other, "node_var", world, str("x"), type);
  LatheValue args[] = {world, str("c.scale"), list(1, &x), list(0, NULL), none()};
  assert_string_equal(lathe_error_name(lathe_call(other, "node_call", 5, args, &out)), "UnsupportedError");
  assert_non_null(strstr(lathe_error_message(other), "another context"));
  lathe_context_free(s.c);
  assert_string_equal(lathe_error_name(lathe_call(other, "node_call", 5, args, &out)), "ArgumentError");
  assert_non_null(strstr(lathe_error_message(other), "there is no operator 'c.scale'"));
  release(x);
  release(type);
  release(world);
  lathe_context_free(other);
}

/* ---- models in one call ------------------------------------------------------------------------- */

static float run_digits(LatheRtModel *model)
{
  LatheRtExecutor *ex;
  LatheRtError err;
  float x[64];
  int64_t shape[] = {1, 1, 8, 8};
  for (int i = 0; i < 64; i++) x[i] = (float)(i % 7) / 7;
  LatheRtTensor in = {.data = x, .device = {LATHE_RT_CPU, 0}, .ndim = 4, .dtype = {2, 32, 1}, .shape = shape};
  const LatheRtTensor *out;
  assert_int_equal(lathe_rt_executor_new(model, &ex, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_set_input(ex, 0, &in, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_run(ex, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_get_output(ex, 0, &out, &err), LATHE_RT_OK);
  float sum = 0;
  float best = 0;
  for (int i = 0; i < 10; i++) {
    float v = ((const float *)out->data)[i];
    sum += v;
    best = fmaxf(best, v);
  }
  assert_true(fabsf(sum - 1) < 1e-4f);
  lathe_rt_executor_free(ex);
  return best;
}

static void test_models_in_one_call(void **state)
{
  (void)state;
  if (access(DIGITS, R_OK)) skip();
  LatheContext *c = lathe_context_new();
  const int64_t dims[] = {1, 1, 8, 8};
  const LatheShape shape = {"pixels", 4, dims};
  const LatheCompileOptions options = {.opt_level = 2, .nshapes = 1, .shapes = &shape};
  char path[64];
  snprintf(path, sizeof path, "/tmp/lathe_test_%ld.so", (long)getpid());
  LatheRtModel *open, *here, *loaded;
  LatheRtError err;
  assert_int_equal(lathe_load_onnx(c, DIGITS, NULL, &open), 0);
  assert_int_equal(lathe_load_onnx(c, DIGITS, &options, &here), 0);
  assert_int_equal(lathe_compile_onnx(c, DIGITS, &options, path), 0);
  assert_int_equal(lathe_rt_model_load(path, &loaded, &err), LATHE_RT_OK);
  unlink(path);
  float a = run_digits(open);
  float b = run_digits(here);
  float d = run_digits(loaded);
  assert_true(fabsf(a - b) < 1e-5f && fabsf(a - d) < 1e-5f);
  lathe_rt_model_free(open);
  lathe_rt_model_free(here);
  lathe_rt_model_free(loaded);
  assert_int_not_equal(lathe_load_onnx(c, "missing.onnx", NULL, &here), 0);
  assert_non_null(strstr(lathe_error_message(c), "missing.onnx"));
  lathe_context_free(c);
}

static void test_models_survive_failing_allocations(void **state)
{
  (void)state;
  if (access(DIGITS, R_OK)) skip();
  LatheContext *c = lathe_context_new();
  LatheRtModel *model;
  int failed = 0;
  for (int64_t at = 1;; at += at < 30 ? 1 : at / 3) {
    int64_t before = lathe_object_count(c);
    lathe_fail_allocation(c, at);
    int32_t code = lathe_load_onnx(c, DIGITS, NULL, &model);
    lathe_fail_allocation(c, 0);
    if (code == 0) break;
    assert_string_equal(lathe_error_name(code), "MemoryError");
    assert_int_equal(lathe_object_count(c), before);
    failed++;
  }
  assert_true(failed > 20);
  run_digits(model);
  lathe_rt_model_free(model);
  lathe_context_free(c);
}

/* ---- a pass of the program's own, in the pipeline -------------------------------------------------- */

typedef struct Swap {
  LatheContext *c;
  LatheValue world;
  int calls, answer;
} Swap;

/* main becomes relu of its argument. */
static int32_t swap_main(void *user, const char *pass, const LatheValue *module)
{
  Swap *s = user;
  s->calls++;
  assert_string_equal(pass, "SwapMain");
  LatheValue other = MUST(s->c, "graph_parse", str("def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }"));
  LatheValue f = MUST(s->c, "module_get_graph", s->world, other, str("main"));
  MUST(s->c, "module_set_graph", *module, str("main"), f);
  release(f);
  release(other);
  return s->answer;
}

static LatheValue context_with(Swap *s, int level, LatheValue disabled)
{
  LatheValue p = MUST(s->c, "pass_context", num(level), list(0, NULL), disabled, list(0, NULL));
  MUST(s->c, "pass_context_add", p, str("SwapMain"), num(1), str("SimplifyInference"),
       address((void *)(intptr_t)swap_main), address(s));
  return p;
}

static void test_a_pass_in_c(void **state)
{
  (void)state;
  Swap s = {.c = lathe_context_new()};
  LatheValue out;
  LatheValue name = str("SwapMain");
  s.world = must_(s.c, "world", 0, NULL);
  LatheValue m = MUST(s.c, "graph_parse", str("def @main(%x: Tensor[(4), float32]) { exp(%x) }"));
  LatheValue p = context_with(&s, 3, list(0, NULL));
  LatheValue done = MUST(s.c, "pass_pipeline", m, p);
  assert_int_equal(s.calls, 1);
  out = MUST(s.c, "module_text", done);
  assert_non_null(strstr(out.u.s, "nn.relu("));
  assert_null(strstr(out.u.s, "exp("));
  LatheValue low = context_with(&s, 0, list(0, NULL));
  release(MUST(s.c, "pass_pipeline", m, low));
  assert_int_equal(s.calls, 1); /* its level is 1 */
  LatheValue off = context_with(&s, 3, list(1, &name));
  release(MUST(s.c, "pass_pipeline", m, off));
  assert_int_equal(s.calls, 1);
  s.answer = -1;
  assert_string_equal(lathe_error_name(lathe_call(s.c, "pass_pipeline", 2, (LatheValue[]){m, p}, &out)),
                      "CallbackError");
  assert_string_equal(lathe_error_message(s.c), "pass SwapMain failed");
  LatheValue wrong[] = {p, str("SwapMain"), num(1), str("NoSuchPass"), address((void *)(intptr_t)swap_main)};
  assert_int_not_equal(lathe_call(s.c, "pass_context_add", 5, wrong, &out), 0);
  assert_string_equal(lathe_error_message(s.c), "the pipeline has no pass 'NoSuchPass' to put 'SwapMain' behind");
  LatheValue all[] = {off, low, done, p, m, s.world};
  for (int i = 0; i < 6; i++) release(all[i]);
  assert_int_equal(lathe_object_count(s.c), 0);
  lathe_context_free(s.c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_operator_in_c),
    cmocka_unit_test(test_a_function_that_fails),
    cmocka_unit_test(test_operators_of_other_contexts),
    cmocka_unit_test(test_a_pass_in_c),
    cmocka_unit_test(test_models_in_one_call),
    cmocka_unit_test(test_models_survive_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
