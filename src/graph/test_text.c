/* test_text.c: Relay text: what comes out, what is read back, what is refused. */
#include "graph/test_graph.h"

/* The text reads back as an equal graph, in another module, and prints the same again. */
static void round_trip(World *w, const char *text)
{
  Module *m = module_new(w->ctx);
  Module *again = module_new(w->ctx);
  graph_parse_module(m, text, "first");
  const char *printed = graph_print_module(w->m->arena, m);
  const char *why;
  TextJob job = {again, printed};
  if (protect(w->ctx, parse_job, &job))
    fail_msg("printed text is refused: %s (line %d)\n%s", error_message(w->ctx), error_loc(w->ctx).line, printed);
  assert_int_equal(m->globals.n, again->globals.n);
  for (int i = 0; i < m->globals.n; i++) {
    if (m->globals.v[i].kind != GLOBAL_GRAPH) continue;
    const Node *a = m->globals.v[i].func;
    const Node *b = module_get(again, m->globals.v[i].name)->func;
    if (!graph_equal(a, b, w->m->arena, &why)) fail_msg("%s\n%s", why, printed);
    assert_true(graph_hash(a, w->m->arena) == graph_hash(b, w->m->arena));
  }
  assert_string_equal(printed, graph_print_module(w->m->arena, again));
  module_release(m);
  module_release(again);
}

CASE(prints_as_relay_does)
{
  const Node *f = parse_main(
      w,
      "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(1, 64), float32]) { negative(add(%x, multiply(%x, %w))) }");
  assert_string_equal(graph_print(w->m->arena, f),
                      "fn (%x: Tensor[(1, 64), float32], %w: Tensor[(1, 64), float32]) -> Tensor[(1, 64), float32] {\n"
                      "  %0 = multiply(%x, %w) /* ty=Tensor[(1, 64), float32] */;\n"
                      "  %1 = add(%x, %0) /* ty=Tensor[(1, 64), float32] */;\n"
                      "  negative(%1) /* ty=Tensor[(1, 64), float32] */\n"
                      "} /* ty=fn (Tensor[(1, 64), float32], Tensor[(1, 64), float32]) -> Tensor[(1, 64), float32] */");
  assert_string_equal(
      graph_print_module_with(w->m->arena, w->m, 0),
      "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(1, 64), float32]) -> Tensor[(1, 64), float32] {\n"
      "  %0 = multiply(%x, %w);\n"
      "  %1 = add(%x, %0);\n"
      "  negative(%1)\n"
      "}\n");
}

CASE(prints_scalars)
{
  const Node *f = parse_main(w, "def @main() { (1f, 2, -3i64, True, 0.1f, 1e-05f64, 255u8, 2.5f16, -0f) }");
  assert_non_null(
      strstr(graph_print_with(w->m->arena, f, 0), "(1f, 2, -3i64, True, 0.1f, 1e-05f64, 255u8, 2.5f16, -0f)"));
  assert_true(dtype_eq(fn_body(f)->arg[2]->u.data->dtype, DT_I64));
  assert_true(value_load(DT_F32, fn_body(f)->arg[4]->u.data->data).f == (double)0.1f);
}

CASE(prints_attributes_that_differ_from_their_default)
{
  const Node *f =
      parse_main(w, "def @main(%x: Tensor[(n), float32]) {\n"
                    " %0 = scale(%x, factor=1e-5, layout=\"NCHW\", pads=[0, 0], out_dtype=None, exact=True);\n"
                    " scale(%0, factor=-inf, layout=\"a\\\"b\", pads=[1, -2], out_dtype=\"int8\", dims=[n, 2*n + 1, "
                    "3], exact=False, words=[\"x\", \"y\"], numbers=[1, 2.5]) }");
  assert_non_null(strstr(graph_print_with(w->m->arena, f, 0), "scale(%x);"));
  assert_non_null(strstr(
      graph_print_with(w->m->arena, f, 0),
      "scale(%0, factor=-inf, layout=\"a\\\"b\", pads=[1, -2], out_dtype=\"int8\", dims=[n, n*2 + 1, 3], exact=False, "
      "words=[\"x\", \"y\"], numbers=[1, 2.5])"));
}

CASE(round_trips)
{
  round_trip(w, "def @main(%x: Tensor[(1, 64), float32]) { %0 = negative(%x); add(%0, %0) }");
  round_trip(w, "def @main(%x: Tensor[(n, past + n), float32], %\"odd name!\": Tensor[(?, 3), int8], %x.0: int32) { "
                "(%x, %\"odd name!\", %x.0) }");
  round_trip(w, "def @main(%x: (int32, float32), %x.0: int32) { (%x.0, (%x).0, %x.1) }");
  round_trip(w, "def @main(%x: float32) { let %y = negative(%x); let %z: float32 = add(%y, %x); %0 = { let %q = 1f; %q "
                "}; add(%z, %0) }");
  round_trip(w, "def @main(%c: bool, %x: float32) { %0 = negative(%x); %1 = if (%c) { add(%0, %x) } else { %2 = "
                "add(%x, %x); add(%2, %0) }; negative(%1) }");
  round_trip(w, "def @main(%x: float32) -> float32 { %0 = fn (%p: float32, Primitive=1, Compiler=\"dn\\\\nl\") -> "
                "float32 { negative(%p) }; %1 = %0(%x); %0(%1) }");
  round_trip(w, "def @loop(%i: int32, %x: float32) -> float32 { %0 = less(%i, 10); if (%0) { %1 = add(%i, 1); "
                "@loop(%1, %x) } else { %x } }\n"
                "def @main(%x: float32) { @loop(0, %x) }");
  round_trip(w, "def @same[A](%x: A) -> A { %x }\n"
                "def @main(%x: float32) { let %f = @same; let %y = %f(%x); add(%y, %y) }\n");
  round_trip(w, "type List[A] { Cons(A, List[A]), Nil }\n"
                "def @length[A](%l: List[A]) -> int32 { match (%l) { Cons(_, %t) => add(1, @length(%t)), Nil => 0 } }\n"
                "def @main() { @length(Cons(1f, Cons(2f, Nil()))) }");
  round_trip(w, "def @main(%x: (int32, (int32, float32))) { match (%x) { (%a, (%b, _)) => add(%a, %b) } }");
  round_trip(
      w, "def @main() { (meta[relay.Constant][0], meta[relay.Constant][1], meta[relay.Constant][1]) }\n#[metadata]\n"
         "relay.Constant[0]: Tensor[(2, 2), int64] = [1, -2, 3, 4];\nrelay.Constant[1]: Tensor[(2), float32] = "
         "\"AACAfwAAwH8=\";\n");
  round_trip(w, "def @main(%f: fn (Tensor[*, float32], Sequence[int64]) -> Optional[int32], %p: Prim[int64], %o: "
                "Object, %s: Shape(n, 2)) { %f }");
  round_trip(w,
             "def @main(%x: Tensor[(n//2 % 3, min(n, m), (n + 1)*m, select(n < 3 && m == 2, n, -1)), float32]) { %x }");
  round_trip(w, "def @main(%x: float32) { () }");
  round_trip(w, "def @main(%x: float32) { (%x,) }");
}

CASE(keeps_bytes_of_constants)
{
  float data[100];
  for (int i = 0; i < 100; i++) data[i] = (float)i / 3 - 7;
  const Node *c = node_const_copy(w->m, DT_F32, 2, (int64_t[]){4, 25}, data);
  module_set(w->m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(w->m, 0, NULL, c, NULL, NULL));
  Module *again = module_new(w->ctx);
  graph_parse_module(again, graph_print_module(w->m->arena, w->m), "again");
  const ConstData *d = fn_body(graph_main(again))->u.data;
  assert_int_equal(d->bytes, sizeof data);
  assert_memory_equal(d->data, data, sizeof data);
  module_release(again);
}

CASE(a_node_of_both_branches_stands_before_the_if)
{
  const Node *x = node_var(w->m, "x", type_tensor(w->m, DT_F32, 0, NULL));
  const Node *c = node_var(w->m, "c", type_tensor(w->m, DT_BOOL, 0, NULL));
  const Node *shared = node_call(w->m, &op_negative, 1, &x, NULL, NULL);
  const Node *sum = node_call(w->m, &op_add, 2, (const Node *[]){shared, x}, NULL, NULL);
  const Node *param[] = {c, x};
  const Node *f = node_func(w->m, 2, param, node_if(w->m, c, sum, shared), NULL, NULL);
  assert_string_equal(graph_print_with(w->m->arena, f, 0),
                      "fn (%c: bool, %x: float32) -> float32 {\n  %0 = negative(%x);\n  if (%c) {\n    add(%0, %x)\n  "
                      "} else {\n    %0\n  }\n}");
}

CASE(deep_graphs_print_and_parse)
{
  Text t = text_new(w->m->arena);
  text_add(&t, "def @main(%x: float32) {\n%0 = negative(%x);\n");
  for (int i = 1; i < 20000; i++)
    text_printf(&t, "let %%v%d = negative(%%%d); %%%d = add(%%v%d, %%v%d);\n", i, i - 1, i, i, i);
  text_add(&t, "%19999 }");
  round_trip(w, text_str(&t));
}

CASE(refuses_with_the_place)
{
  refused(w, "def @main(%x: float32) { add(%x, %y) }", ERR_PARSE, "there is no %y here");
  assert_int_equal(error_loc(w->ctx).line, 0);
  refused(w, "def @main(%x: float32) { ad(%x) }", ERR_ARGUMENT, "did you mean 'add'");
  refused(w, "def @main(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) { add(%x, %y) }", ERR_SHAPE,
          "add: lhs is Tensor[(2), float32], rhs is Tensor[(3), float32]");
  refused(w, "def @main(%x: float32) { scale(%x, factr=2) }", ERR_PARSE, "scale has no attribute 'factr'");
  refused(w, "def @main(%x) { %x }", ERR_TYPE, "the type of variable 'x' is not known");
  refused(w, "def @f(%x: int32) { @f(%x) }", ERR_TYPE, "@f calls itself; declare");
  refused(w, "def @f(%x: int32) { @g(%x) }", ERR_TYPE, "there is no function @g");
  refused(w, "def @f(%x: float32) -> int32 { %x }", ERR_TYPE, "declared to give int32, its body gives float32");
  refused(w, "def @f(%c: bool, %x: float32) { if (%c) { %x } else { 1 } }", ERR_TYPE,
          "one branch gives float32, another int32");
  refused(w, "def @f(%c: int32) { if (%c) { 1 } else { 2 } }", ERR_TYPE, "the condition is a bool");
  refused(w, "def @f(%g: fn (int32) -> int32) { %g(1f) }", ERR_TYPE,
          "argument 0 of a function is float32, its parameter wants int32");
  refused(w, "def @f(%g: fn (int32) -> int32) { %g() }", ERR_TYPE, "called with 0 arguments");
  refused(w, "def @f(%x: (int32, int32)) { %x.2 }", ERR_TYPE, "there is no field 2");
  refused(w, "def @f(%x: (int32, int32)) { (%x).2 }", ERR_TYPE, "there is no field 2");
  refused(w, "def @f() { meta[relay.Constant][0] }", ERR_PARSE, "there is no constant 0");
  refused(w,
          "def @f() { 1 }\n#[metadata]\nrelay.Constant[0]: Tensor[(1000000000, 1000000000, 1000000000), float32] = "
          "\"AAAA\";",
          ERR_SHAPE, "overflows");
  refused(w, "def @f() { 1 }\n#[metadata]\nrelay.Constant[0]: Tensor[(3), float32] = \"AAAA\";", ERR_PARSE,
          "3 elements");
  refused(w, "def @f() { 300u8 }", ERR_PARSE, "does not fit");
  refused(w, "def @f() { 1 } def @f() { 2 }", ERR_PARSE, "@f is defined twice");
  refused(w, "type T { A, A }", ERR_PARSE, "new constructor");
  refused(w, "def @f() { \"", ERR_PARSE, "not closed");
  refused(w, "/* ", ERR_PARSE, "a comment is not closed");
  refused(w, "def @f(%x: Tensor[(-1), int8]) { 1 }", ERR_PARSE, "not negative");
}

CASE(refuses_deep_nesting)
{
  Text t = text_new(w->m->arena);
  text_add(&t, "def @f() { ");
  for (int i = 0; i < 100000; i++) text_char(&t, '(');
  refused(w, text_str(&t), ERR_PARSE, "nested more than 200 deep");
  t = text_new(w->m->arena);
  text_add(&t, "def @f(%x: Tensor[(");
  for (int i = 0; i < 100000; i++) text_char(&t, '-');
  refused(w, text_str(&t), ERR_PARSE, "nested more than 200 deep");
}

CASE(refuses_types_that_double)
{
  Text t = text_new(w->m->arena);
  text_add(&t, "def @f(%x: int32) { %0 = (%x, %x);");
  for (int i = 1; i < 64; i++) text_printf(&t, "%%%d = (%%%d, %%%d);\n", i, i - 1, i - 1);
  text_add(&t, "%63 }");
  refused(w, text_str(&t), ERR_UNSUPPORTED, "a type has more than 100000 parts");
  t = text_new(w->m->arena);
  text_add(&t, "def @twice[A](%x: A) -> (A, A) { (%x, %x) }\ndef @f(%x: int32) { %0 = @twice(%x);");
  for (int i = 1; i < 64; i++) text_printf(&t, "%%%d = @twice(%%%d);\n", i, i - 1);
  text_add(&t, "%63 }");
  refused(w, text_str(&t), ERR_UNSUPPORTED, "a type has more than 100000 parts");
}

CASE(errors_of_builders_have_a_place)
{
  TextJob job = {w->m, "def @main(%x: Tensor[(2), float32],\n %y: Tensor[(3), float32]) {\n  add(%x, %y)\n}"};
  assert_int_equal(protect(w->ctx, parse_job, &job), ERR_SHAPE);
  assert_int_equal(error_loc(w->ctx).line, 3);
  assert_int_equal(error_loc(w->ctx).col, 3);
  error_clear(w->ctx);
}

typedef struct WholeJob {
  Module *m, *copy;
  const char *out;
} WholeJob;

static void whole_job(Ctx *ctx, void *arg)
{
  WholeJob *job = arg;
  (void)ctx;
  graph_parse_module(job->m,
                     "type L[A] { C(A, L[A]), N }\ndef @g(%x: float32) { negative(%x) }\n"
                     "def @main(%x: Tensor[(n), float32], %l: L[int32]) { let %y = @g(1f); match (%l) { C(%h, _) => "
                     "(scale(%x, dims=[n]), %h, %y), "
                     "N => (%x, 2, meta[relay.Constant][0]) } }\n#[metadata]\nrelay.Constant[0]: float32 = [3];\n",
                     "test");
  job->copy = graph_copy_module(job->m);
  job->out = graph_print_module(job->m->arena, job->copy);
}

/* The n-th allocation fails, for every n: an error each time, never a leak or a crash. */
CASE(survives_failing_allocations)
{
  (void)w;
  for (int64_t n = 1;; n++) {
    Ctx *ctx = ctx_new();
    WholeJob job = {.m = module_new(ctx)};
    mem_fail_after(ctx, n);
    ErrKind kind = protect(ctx, whole_job, &job);
    mem_fail_after(ctx, 0);
    if (kind) assert_int_equal(kind, ERR_MEMORY);
    else assert_non_null(strstr(job.out, "match (%l)"));
    module_release(job.m);
    module_release(job.copy);
    ctx_free(ctx);
    if (!kind) break;
    assert_in_range(n, 1, 2000);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(prints_as_relay_does),
    cmocka_unit_test(prints_scalars),
    cmocka_unit_test(prints_attributes_that_differ_from_their_default),
    cmocka_unit_test(round_trips),
    cmocka_unit_test(keeps_bytes_of_constants),
    cmocka_unit_test(a_node_of_both_branches_stands_before_the_if),
    cmocka_unit_test(deep_graphs_print_and_parse),
    cmocka_unit_test(refuses_with_the_place),
    cmocka_unit_test(refuses_deep_nesting),
    cmocka_unit_test(refuses_types_that_double),
    cmocka_unit_test(errors_of_builders_have_a_place),
    cmocka_unit_test(survives_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
