/* Tests of the C API: calls by name, what is checked, and that no allocation's
 * failure leaks or breaks anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "lathe.h"

/* ---- short ways to write values ------------------------------------------------- */

static LatheValue none(void) { return (LatheValue){0}; }
static LatheValue num(int64_t i) { return (LatheValue){.tag = LATHE_INT, .u.i = i}; }
static LatheValue real(double f) { return (LatheValue){.tag = LATHE_FLOAT, .u.f = f}; }
static LatheValue str(const char *s) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)}; }
static LatheValue list(int n, const LatheValue *v) { return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n}; }
static LatheValue flag(int b) { return (LatheValue){.tag = LATHE_BOOL, .u.i = b}; }

static void release(LatheValue v)
{
  if (v.tag == LATHE_OBJECT) lathe_object_release(v.kind, v.u.p);
  if (v.tag == LATHE_LIST)
    for (int64_t i = 0; i < v.n; i++) release(v.u.list[i]);
}

#define CALL(c, name, out, ...)                                                            \
  lathe_call(c, name, (int32_t)(sizeof((LatheValue[]){__VA_ARGS__}) / sizeof(LatheValue)), \
             (LatheValue[]){__VA_ARGS__}, out)

static LatheValue must_(LatheContext *c, const char *name, int n, const LatheValue *args)
{
  LatheValue out;
  int32_t code = lathe_call(c, name, n, args, &out);
  if (code) fail_msg("%s: %s: %s", name, lathe_error_name(code), lathe_error_message(c));
  return out;
}
#define MUST(c, name, ...) \
  must_(c, name, (int)(sizeof((LatheValue[]){__VA_ARGS__}) / sizeof(LatheValue)), (LatheValue[]){__VA_ARGS__})

/* ---- what a call checks ------------------------------------------------------------ */

static void expect_error(LatheContext *c, int32_t code, const char *kind, const char *text)
{
  assert_string_equal(lathe_error_name(code), kind);
  if (!strstr(lathe_error_message(c), text))
    fail_msg("message is \"%s\", wanted \"%s\" in it", lathe_error_message(c), text);
}

static void test_arguments_are_checked(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue out;
  LatheValue w = must_(c, "world", 0, NULL);
  expect_error(c, CALL(c, "bimary", &out, w), "ArgumentError", "there is no function 'bimary'; did you mean 'binary'?");
  expect_error(c, CALL(c, "binary", &out, w, str("add"), num(1), str("x")), "TypeError",
               "binary: argument 'b' is the str \"x\", wanted expr");
  expect_error(c, CALL(c, "binary", &out, w, str("add"), num(1)), "ArgumentError",
               "binary: argument 'b' (expr) is missing");
  expect_error(c, CALL(c, "not", &out, w, num(1), num(2)), "ArgumentError", "not takes 2 arguments, 3 were given");
  expect_error(c, CALL(c, "const", &out, w, num(1), str("int65")), "TypeError", "unknown dtype 'int65'");
  expect_error(c, CALL(c, "te_placeholder", &out, w, str("A"), str("float32"), list(1, (LatheValue[]){str("n")})),
               "TypeError",
               "te_placeholder: argument 'shape' is a list of 1, the first of them the str \"n\", wanted list[expr]");
  release(w);
  assert_int_equal(lathe_object_count(c), 0);
  lathe_context_free(c);
}

static void test_every_function_is_listed(void **state)
{
  (void)state;
  const char *name, *signature, *doc;
  int n = 0;
  while (lathe_functions(n, &name, &signature, &doc)) {
    assert_true(*name && *doc);
    assert_non_null(strstr(signature, "->"));
    n++;
  }
  assert_true(n > 100);
}

/* ---- dtypes meet as TVM's do ---------------------------------------------------------- */

static void check_common(LatheContext *c, LatheValue w, const char *a, LatheValue b, const char *want)
{
  LatheValue x = MUST(c, "var", w, str("x"), str(a), flag(0));
  LatheValue sum = MUST(c, "binary", w, str("add"), x, b);
  LatheValue t = MUST(c, "expr_dtype", sum);
  assert_int_equal(t.n, (int64_t)strlen(want));
  assert_memory_equal(t.u.s, want, strlen(want));
  release(x);
  release(sum);
}

static void test_common_dtypes(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue w = must_(c, "world", 0, NULL);
  check_common(c, w, "int32", num(1), "int32");
  check_common(c, w, "int64", num(1), "int64");
  check_common(c, w, "int32", num((int64_t)1 << 40), "int64");
  check_common(c, w, "int8", num(1), "int32");
  check_common(c, w, "uint8", num(1), "int32");
  check_common(c, w, "float16", num(1), "float16");
  check_common(c, w, "float16", real(1.5), "float32");
  check_common(c, w, "float64", real(0.1), "float64");
  check_common(c, w, "int32", real(1.5), "float32");
  release(w);
  lathe_context_free(c);
}

/* ---- objects ------------------------------------------------------------------------------ */

static void test_handles_keep_their_module(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue w = must_(c, "world", 0, NULL);
  LatheValue a = MUST(c, "const", w, num(6), none());
  LatheValue b = MUST(c, "const", w, num(6), none());
  assert_true(lathe_object_same(&a, &b));
  assert_true(lathe_object_id(a.kind, a.u.p) == lathe_object_id(b.kind, b.u.p));
  release(w);
  release(b);
  lathe_context_free(c); /* a is still out: the context stays until it comes back */
  LatheValue fields = MUST(c, "expr_fields", a);
  assert_int_equal(fields.u.list[0].u.i, 6);
  release(a);
}

/* ---- failing allocations --------------------------------------------------------------------- */

/* Calls name again and again, its 1st, 2nd, 3rd … allocation failing, until it
 * succeeds; nothing may be left behind by the failures. */
static LatheValue survive_(LatheContext *c, const char *name, int n, const LatheValue *args)
{
  LatheValue out;
  for (int64_t at = 1;; at++) {
    int64_t before = lathe_object_count(c);
    lathe_fail_allocation(c, at);
    int32_t code = lathe_call(c, name, n, args, &out);
    lathe_fail_allocation(c, 0);
    if (code == 0) return out;
    if (strcmp(lathe_error_name(code), "MemoryError"))
      fail_msg("%s, allocation %d: %s: %s", name, (int)at, lathe_error_name(code), lathe_error_message(c));
    assert_int_equal(lathe_object_count(c), before);
    assert_true(at < 100000);
  }
}
#define SURVIVE(c, name, ...) \
  survive_(c, name, (int)(sizeof((LatheValue[]){__VA_ARGS__}) / sizeof(LatheValue)), (LatheValue[]){__VA_ARGS__})

static LatheValue list_item(LatheValue v, int i)
{
  LatheValue item = v.u.list[i];
  lathe_object_retain(item.kind, item.u.p);
  return item;
}

static void test_te_survives_failing_allocations(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue w = survive_(c, "world", 0, NULL);
  LatheValue shape[] = {num(8), num(4)};
  LatheValue A = SURVIVE(c, "te_placeholder", w, str("A"), str("float32"), list(2, shape));
  LatheValue i = SURVIVE(c, "var", w, str("i"), str("int32"), flag(0));
  LatheValue k = SURVIVE(c, "var", w, str("k"), str("int32"), flag(0));
  LatheValue ax = SURVIVE(c, "itervar", w, i, num(0), num(8), str("spatial"), none());
  LatheValue rx = SURVIVE(c, "itervar", w, k, num(0), num(4), str("reduce"), none());
  LatheValue read = SURVIVE(c, "te_read", w, A, list(2, (LatheValue[]){i, k}));
  LatheValue scaled = SURVIVE(c, "binary", w, str("mul"), read, real(2.0));
  LatheValue sum = SURVIVE(c, "reducer_named", w, str("sum"), str("float32"), none());
  LatheValue red = SURVIVE(c, "reduce", w, sum, list(1, &scaled), list(1, &rx), none(), none(), num(0));
  LatheValue op = SURVIVE(c, "te_compute", w, str("B"), str(""), list(1, shape), list(1, &ax), list(1, &red), none());
  LatheValue fields = SURVIVE(c, "teop_fields", op);
  LatheValue B = list_item(fields.u.list[3], 0);
  release(fields);
  LatheValue args[] = {A, B};
  LatheValue f = SURVIVE(c, "te_create_prim_func", str("main"), list(2, args));
  LatheValue text = SURVIVE(c, "primfunc_script", f);
  assert_true(text.n > 100);
  LatheValue s = SURVIVE(c, "te_schedule", w, list(1, &op));
  LatheValue stage = SURVIVE(c, "te_schedule_stage", s, op);
  LatheValue parts = SURVIVE(c, "stage_split", stage, ax, num(4), none());
  LatheValue inner = list_item(parts, 1);
  release(parts);
  release(SURVIVE(c, "stage_unroll", stage, inner));
  LatheValue emitted = SURVIVE(c, "te_schedule_emit", s, str("main"), list(2, args));
  LatheValue target = SURVIVE(c, "target", none());
  LatheValue low = SURVIVE(c, "lower", emitted, target, none());
  release(SURVIVE(c, "primfunc_compact", low));
  LatheValue all[] = {w, A, i, k, ax, rx, read, scaled, sum, red, op, B, f, s, stage, inner, emitted, target, low};
  for (size_t n = 0; n < sizeof all / sizeof *all; n++) release(all[n]);
  assert_int_equal(lathe_object_count(c), 0);
  lathe_context_free(c);
}

static const char source[] = "@T.prim_func\n"
                             "def main(A: T.Buffer((16,), \"float32\"), B: T.Buffer((16,), \"float32\")):\n"
                             "    for i in range(16):\n"
                             "        with T.block(\"B\"):\n"
                             "            v = T.axis.spatial(16, i)\n"
                             "            B[v] = A[v] + T.float32(1)\n";

static void test_tir_survives_failing_allocations(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue f = SURVIVE(c, "parse_primfunc", str(source), none(), num(1), list(0, NULL));
  LatheValue g = SURVIVE(c, "primfunc_with", f, str("renamed"), none());
  release(SURVIVE(c, "primfunc_equal", f, g));
  release(SURVIVE(c, "primfunc_check", f));
  LatheValue m = must_(c, "module", 0, NULL);
  release(SURVIVE(c, "module_set", m, str("f"), f));
  release(SURVIVE(c, "module_script", m));
  LatheValue s = SURVIVE(c, "schedule", f, num(1));
  LatheValue name = str("B");
  LatheValue block = SURVIVE(c, "schedule_call", s, str("get_block"), list(1, &name));
  LatheValue loops = SURVIVE(c, "schedule_call", s, str("get_loops"), list(1, &block));
  LatheValue loop = list_item(loops, 0);
  release(loops);
  LatheValue factors[] = {none(), num(4)};
  LatheValue split[] = {loop, list(2, factors)};
  release(SURVIVE(c, "schedule_call", s, str("split"), list(2, split)));
  LatheValue copy = SURVIVE(c, "schedule_copy", s);
  LatheValue func = SURVIVE(c, "schedule_func", s);
  release(SURVIVE(c, "schedule_trace", s));
  LatheValue all[] = {f, g, m, s, block, loop, copy, func};
  for (size_t n = 0; n < sizeof all / sizeof *all; n++) release(all[n]);
  assert_int_equal(lathe_object_count(c), 0);
  lathe_context_free(c);
}

static void test_build_survives_failing_allocations(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  LatheValue f = MUST(c, "parse_primfunc", str(source), none(), num(1), list(0, NULL));
  LatheValue target = MUST(c, "target", str("c"));
  LatheValue built = SURVIVE(c, "build", list(1, &f), target, none());
  LatheValue text = SURVIVE(c, "built_source", built, str("c"), flag(0));
  assert_true(text.n > 100);
  release(built);
  release(f);
  release(target);
  lathe_context_free(c);
}

static int32_t stop(void *user)
{
  ++*(int *)user;
  return 1;
}

static void test_poll_stops_long_work(void **state)
{
  (void)state;
  LatheContext *c = lathe_context_new();
  int asked = 0;
  LatheValue f = MUST(c, "parse_primfunc", str(source), none(), num(1), list(0, NULL));
  LatheValue out;
  LatheValue target = must_(c, "target", 0, NULL);
  lathe_set_poll(c, stop, &asked);
  int32_t code = CALL(c, "build", &out, list(1, &f), target, none());
  assert_string_equal(lathe_error_name(code), "CallbackError");
  assert_true(asked >= 1);
  release(f);
  release(target);
  lathe_context_free(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_arguments_are_checked),
    cmocka_unit_test(test_every_function_is_listed),
    cmocka_unit_test(test_common_dtypes),
    cmocka_unit_test(test_handles_keep_their_module),
    cmocka_unit_test(test_te_survives_failing_allocations),
    cmocka_unit_test(test_tir_survives_failing_allocations),
    cmocka_unit_test(test_build_survives_failing_allocations),
    cmocka_unit_test(test_poll_stops_long_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
