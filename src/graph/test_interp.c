/* test_interp.c: what graphs mean, against numbers worked out by hand. */
#include "graph/test_graph.h"

static const RtValue *run_main(World *w, const char *text, int n, const RtValue *const *arg)
{
  return graph_eval(w->m, w->m->arena, parse_main(w, text), n, arg);
}

CASE(operators_tuples_and_fields)
{
  const RtValue *x = f32_value(w, 2, (float[]){1, 2});
  const RtValue *v =
      run_main(w, "def @main(%x: Tensor[(2), float32]) { %0 = (%x, add(%x, 10f)); (%0.1, negative(%0.0)) }", 1, &x);
  assert_int_equal(v->kind, RV_TUPLE);
  assert_memory_equal(v->field[0]->tensor.data, ((float[]){11, 12}), 8);
  assert_memory_equal(v->field[1]->tensor.data, ((float[]){-1, -2}), 8);
}

CASE(loops_of_any_length)
{
  const RtValue *v = run_main(w,
                              "def @loop(%i: int32, %x: int64) -> int64 { if (less(%i, 30000)) { let %j = add(%i, 1); "
                              "@loop(%j, add(%x, 3i64)) } else { %x } }\n"
                              "def @main() { @loop(0, 1i64) }",
                              0, NULL);
  assert_int_equal(int_result(v), 90001);
}

CASE(local_recursion_and_captures)
{
  const RtValue *v =
      run_main(w,
               "def @main() { let %k = 5; let %f: fn (int32, int32) -> int32 = fn (%i: int32, %s: int32) -> int32 {\n"
               "  if (less(%i, 4)) { %f(add(%i, 1), add(%s, %k)) } else { %s } }; %f(0, 100) }",
               0, NULL);
  assert_int_equal(int_result(v), 120);
}

CASE(only_the_branch_taken_is_evaluated)
{
  const RtValue *v = run_main(
      w,
      "def @never(%x: int32) -> int32 { add(1, @never(%x)) }\ndef @main() { if (less(1, 2)) { 7 } else { @never(1) } }",
      0, NULL);
  assert_int_equal(int_result(v), 7);
}

CASE(data_types)
{
  const RtValue *v = run_main(
      w,
      "type List[A] { Cons(A, List[A]), Nil }\n"
      "def @sum(%l: List[int32]) -> int32 { match (%l) { Cons(%h, %t) => add(%h, @sum(%t)), Nil => 0 } }\n"
      "def @map(%f: fn (int32) -> int32, %l: List[int32]) -> List[int32] { match (%l) { Cons(%h, %t) => Cons(%f(%h), "
      "@map(%f, %t)), Nil => Nil() } }\n"
      "def @main() { let %k = 10; @sum(@map(fn (%x: int32) { multiply(%x, %k) }, Cons(1, Cons(2, Cons(4, Nil()))))) }",
      0, NULL);
  assert_int_equal(int_result(v), 70);
}

CASE(constructors_and_operators_are_functions)
{
  assert_int_equal(int_result(run_main(w, "def @main() { let %f = add; 3 }", 0, NULL)), 3);
  const RtValue *v =
      run_main(w, "type Box { B(int32) }\ndef @main() { let %f = B; match (%f(4)) { B(%x) => %x } }", 0, NULL);
  assert_int_equal(int_result(v), 4);
}

CASE(shapes_at_run_time)
{
  const RtValue *x = f32_value(w, 6, (float[]){0, 1, 2, 3, 4, 5});
  ConstData s = {.dtype = DT_I64, .ndim = 1, .shape = {2}, .bytes = 16, .data = (int64_t[]){3, 2}};
  const RtValue *arg[] = {x, graph_value_tensor(w->m->arena, &s)};
  const RtValue *v =
      run_main(w, "def @main(%x: Tensor[(n), float32], %s: Tensor[(2), int64]) { shape_of(reshape(%x, %s)) }", 2, arg);
  assert_memory_equal(v->tensor.data, ((int64_t[]){3, 2}), 16);
}

CASE(loop_programs)
{
  const RtValue *x = f32_value(w, 3, (float[]){1, 2, 3});
  const RtValue *v = run_main(w,
                              "tir @double = \"\"\"\n@T.prim_func\ndef double(a: T.handle, b: T.handle):\n    n = "
                              "T.int32()\n    A = T.match_buffer(a, (n,), \"float32\")\n"
                              "    B = T.match_buffer(b, (n,), \"float32\")\n    for i in range(n):\n        with "
                              "T.block(\"b\"):\n            v = T.axis.spatial(n, i)\n"
                              "            B[v] = A[v] * T.float32(2)\n\"\"\"\n"
                              "def @main(%x: Tensor[(n), float32]) { call_tir(@double, (%x,), Tensor[(n), float32]) }",
                              1, &x);
  assert_memory_equal(v->tensor.data, ((float[]){2, 4, 6}), 12);
  Module *again = module_new(w->ctx);
  graph_parse_module(again, graph_print_module(w->m->arena, w->m), "again");
  assert_non_null(module_get(again, "double"));
  module_release(again);
}

typedef struct EvalJob {
  World *w;
  const char *text;
  int n;
  const RtValue *const *arg;
} EvalJob;
static void eval_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  EvalJob *job = arg;
  run_main(job->w, job->text, job->n, job->arg);
}

static void eval_refused(World *w, const char *text, int n, const RtValue *const *arg, ErrKind kind, const char *want)
{
  EvalJob job = {w, text, n, arg};
  assert_int_equal(protect(w->ctx, eval_job, &job), kind);
  if (!strstr(error_message(w->ctx), want)) fail_msg("wanted '%s', got '%s'", want, error_message(w->ctx));
  error_clear(w->ctx);
}

CASE(refusals)
{
  const RtValue *x = f32_value(w, 2, (float[]){1, 2});
  eval_refused(w, "def @f(%x: int32) -> int32 { add(1, @f(%x)) }\ndef @main() { @f(1) }", 0, NULL, ERR_UNSUPPORTED,
               "more than 10000 deep");
  eval_refused(w, "def @main(%x: Tensor[(3), float32]) { %x }", 1, &x, ERR_SHAPE,
               "argument 0 is Tensor[(2), float32], the parameter wants Tensor[(3), float32]");
  eval_refused(w, "type O { S(int32), N }\ndef @main() { match (N()) { S(%x) => %x } }", 0, NULL, ERR_ARGUMENT,
               "no clause fits");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(operators_tuples_and_fields),
    cmocka_unit_test(loops_of_any_length),
    cmocka_unit_test(local_recursion_and_captures),
    cmocka_unit_test(only_the_branch_taken_is_evaluated),
    cmocka_unit_test(data_types),
    cmocka_unit_test(constructors_and_operators_are_functions),
    cmocka_unit_test(shapes_at_run_time),
    cmocka_unit_test(loop_programs),
    cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
