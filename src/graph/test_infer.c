/* test_infer.c: types, symbolic values, copies: what inference makes of sizes that are
 * literals, names, or known at run time only. */
#include "graph/test_graph.h"

static const char *main_type(World *w, const char *text)
{
  return type_text(w->m->arena, fn_body(parse_main(w, text))->type);
}

CASE(sizes_of_parameters_are_bound_by_arguments)
{
  assert_string_equal(main_type(w, "def @f(%x: Tensor[(n, k), float32]) -> Tensor[(n + 1, k), float32] { @f(%x) }\n"
                                   "def @main(%y: Tensor[(4, m), float32]) { @f(%y) }"),
                      "Tensor[(5, m), float32]");
}

CASE(branches_join)
{
  assert_string_equal(main_type(w, "def @main(%c: bool, %a: Tensor[(2, n, 3), float32], %b: Tensor[(2, m, 4), "
                                   "float32]) { if (%c) { %a } else { %b } }"),
                      "Tensor[(2, ?, ?), float32]");
  assert_string_equal(main_type(w, "def @main(%c: bool, %a: Tensor[(2), float32], %b: Tensor[(2, 2), float32]) { if "
                                   "(%c) { (%a, 1) } else { (%b, 2) } }"),
                      "(Tensor[*, float32], int32)");
  assert_string_equal(
      main_type(w, "def @main(%c: bool, %a: Tensor[(n), float32]) { if (%c) { %a } else { negative(%a) } }"),
      "Tensor[(n), float32]");
}

CASE(run_time_sizes_of_results_are_fresh)
{
  const Node *f = parse_main(
      w, "def @g(%x: float32) -> Tensor[(?), float32] { @g(%x) }\ndef @main(%x: float32) { (@g(%x), @g(%x)) }");
  const Node *t = fn_body(f);
  assert_true(type_dim_is_any(t->arg[0]->type->shape[0]));
  assert_ptr_not_equal(t->arg[0]->type->shape[0], t->arg[1]->type->shape[0]);
}

CASE(type_parameters)
{
  const char *list = "type List[A] { Cons(A, List[A]), Nil }\n";
  assert_string_equal(main_type(w, arena_printf(w->m->arena, "%sdef @main() { Cons((1f, 2), Nil()) }", list)),
                      "List[(float32, int32)]");
  assert_string_equal(main_type(w, "def @hd[A](%l: List[A], %d: A) -> A { match (%l) { Cons(%h, _) => %h, _ => %d } "
                                   "}\ndef @main() { @hd(Cons(1f, Nil()), 2f) }"),
                      "float32");
  assert_string_equal(main_type(w, "def @main(%l: List[Tensor[(3), int8]]) { match (%l) { Cons(%h, Cons(%i, _)) => "
                                   "(%h, %i), _ => match (%l) { Cons(%h, %t) => (%h, %h) } } }"),
                      "(Tensor[(3), int8], Tensor[(3), int8])");
  refused(w, "def @f(%l: List[int32]) { match (%l) { Cons(%h) => %h } }", ERR_TYPE, "has 2 fields, its pattern 1");
  refused(w, "def @f(%l: int32) { match (%l) { Nil => 1 } }", ERR_TYPE, "matched against int32");
}

/* Two items of a list need not have the same size; one tensor's dimensions stay what they are. */
CASE(run_time_sizes_of_items_are_fresh)
{
  const Node *f = parse_main(w, "type List[A] { Cons(A, List[A]), Nil }\n"
                                "def @main(%l: List[Tensor[(?, k), float32]]) { match (%l) { Cons(%h, Cons(%i, _)) => "
                                "(%h, %i), Cons(%h, _) => (%h, %h), Nil => match (%l) { Cons(%h, _) => (%h, %h) } } }");
  const Type *a = fn_body(f)->arg[1]->arg[0]->type;
  const Type *b = fn_body(f)->arg[1]->arg[1]->type;
  assert_true(type_dim_is_any(a->shape[0]) && type_dim_is_any(b->shape[0]));
  assert_ptr_not_equal(a->shape[0], b->shape[0]);
  assert_ptr_equal(a->shape[1], b->shape[1]);
}

CASE(functions_as_values)
{
  assert_string_equal(main_type(w,
                                "def @twice(%f: fn (float32) -> float32, %x: float32) { %f(%f(%x)) }\n"
                                "def @main(%x: float32) { let %g = fn (%y: float32) { add(%x, %y) }; @twice(%g, 1f) }"),
                      "float32");
}

CASE(lets_take_the_type_of_their_value)
{
  const Node *x = node_var(w->m, "x", type_tensor_of(w->m, DT_F32, 1, (int64_t[]){3}));
  const Node *y = node_var(w->m, "y", NULL);
  const Node *body = node_call(w->m, &op_negative, 1, &y, NULL, NULL);
  assert_null(body->type);
  const Node *f = graph_infer(
      w->m,
      node_func(w->m, 1, &x, node_let(w->m, y, node_call(w->m, &op_negative, 1, &x, NULL, NULL), body), NULL, NULL));
  assert_string_equal(type_text(w->m->arena, f->type), "fn (Tensor[(3), float32]) -> Tensor[(3), float32]");
  assert_ptr_equal(graph_infer(w->m, f), f);
}

/* ---- values ---------------------------------------------------------------------------------- */

CASE(shape_arithmetic_folds)
{
  assert_string_equal(main_type(w, "def @main(%x: Tensor[(n, 4, 16), float32]) {\n"
                                   "  %0 = shape_of(%x);\n"
                                   "  %1 = nn.take(%0);\n"
                                   "  %2 = multiply(nn.take(%0, index=1), nn.take(%0, index=2));\n"
                                   "  reshape(%x, concatenate((%1, %2)))\n}"),
                      "Tensor[(n, 64), float32]");
}

CASE(sums_of_shapes_unroll)
{
  const Node *f = parse_main(w, "def @main(%x: Tensor[(n, 4, n), float32]) { sum(shape_of(%x)) }");
  int n;
  const Expr *const *v = graph_values(w->m, fn_body(f), &n);
  assert_int_equal(n, 1);
  assert_string_equal(expr_str_of(w->m->arena, v[0]), "n*2 + 4");
}

CASE(unknown_values_are_variables_of_their_tensor)
{
  const Node *f = parse_main(w, "def @main(%x: Tensor[(6), float32], %s: Tensor[(2), int64]) { %0 = add(%s, %s); %1 = "
                                "reshape(%x, %0); negative(%1) }");
  const Type *ty = fn_body(f)->type;
  const Var **vars;
  const Node *source;
  int element;
  assert_string_equal(type_text(w->m->arena, ty), "Tensor[(?, ?), float32]");
  assert_int_equal(expr_free_vars(w->m->arena, ty->shape[1], &vars), 1);
  assert_true(graph_value_source(w->m, vars[0], &source, &element));
  assert_ptr_equal(source, f->arg[1]);
  assert_int_equal(element, 1);
  assert_false(type_dim_is_stable(ty->shape[1]));
  /* from outside of the function it is just not known */
  assert_true(type_dim_is_any(f->type->ret->shape[1]));
}

CASE(applied_functions_pass_values_through)
{
  const Node *f = parse_main(
      w, "def @main(%x: Tensor[(n, 4), float32], %s: Tensor[(1), int64]) {\n"
         "  %0 = fn (%p: Tensor[(a, b), float32], %q: Tensor[(2), int64], Primitive=1) { reshape(%p, %q) };\n"
         "  %1 = fn (%p: Tensor[(1), int64]) { multiply(%p, %p) };\n"
         "  %2 = shape_of(%x);\n"
         "  %0(%x, concatenate((nn.take(%2), %1(%s)))) }");
  const Type *ty = fn_body(f)->type;
  const Var **vars;
  const Node *source;
  int element;
  assert_string_equal(expr_str_of(w->m->arena, ty->shape[0]), "n");
  assert_int_equal(expr_free_vars(w->m->arena, ty->shape[1], &vars), 1);
  assert_true(graph_value_source(w->m, vars[0], &source, &element));
  assert_ptr_equal(source, f->arg[1]);
}

CASE(lets_pass_values_through)
{
  assert_string_equal(main_type(w, "def @main(%x: Tensor[(n, 4), float32]) { let %s = shape_of(%x); let %t = "
                                   "multiply(%s, %s); reshape(%x, %t) }"),
                      "Tensor[(n*n, 16), float32]");
}

CASE(a_let_tells_run_time_values_by_its_variable)
{
  const Node *f = parse_main(
      w, "def @main(%x: Tensor[(6), float32], %s: Tensor[(2), int64]) { let %t = multiply(%s, %s); reshape(%x, %t) }");
  const Node *let = fn_body(f);
  const Node *source;
  int element;
  assert_true(graph_value_source(w->m, let->type->shape[0]->u.var, &source, &element));
  assert_ptr_equal(source, let->arg[0]);
}

CASE(long_chains_need_no_stack)
{
  const Node *x =
      node_var(w->m, "x", type_tensor(w->m, DT_F32, 1, (const Expr *[]){var_new(w->m, "n", DT_I32, VAR_SIZE)->expr}));
  const Node *one = node_const_copy(w->m, DT_I64, 1, (int64_t[]){1}, (int64_t[]){1});
  const Node *s = node_call(w->m, &op_shape_of, 1, &x, NULL, NULL);
  for (int i = 0; i < 30000; i++) s = node_call(w->m, &op_add, 2, (const Node *[]){s, one}, NULL, NULL);
  int n;
  assert_string_equal(expr_str_of(w->m->arena, graph_values(w->m, s, &n)[0]), "n + 30000");
}

/* ---- walks and copies ----------------------------------------------------------------------------- */

static const Node *add_to_multiply(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  return node_is_op(now, &op_add) ? node_call(rw->m, &op_multiply, 2, now->arg, NULL, now->name) : now;
}

CASE(rewrites_share_what_was_shared)
{
  const Node *f = parse_main(w, "def @main(%x: float32) { %0 = add(%x, %x); %1 = negative(%0); (%0, %1, %0) }");
  GraphRewriter rw = {.m = w->m, .fn = add_to_multiply, .arena = w->m->arena};
  const Node *g = graph_rewrite(&rw, f);
  assert_true(node_is_op(fn_body(g)->arg[0], &op_multiply));
  assert_ptr_equal(fn_body(g)->arg[0], fn_body(g)->arg[2]);
  assert_ptr_equal(fn_body(g)->arg[1]->arg[0], fn_body(g)->arg[0]);
  assert_ptr_equal(g->arg[0], f->arg[0]);
}

CASE(free_variables_in_order_of_use)
{
  const Node *f =
      parse_main(w, "def @main(%a: float32, %b: float32) { fn (%c: float32) { let %d = add(%b, %c); add(%d, %a) } }");
  const Node **vars;
  assert_int_equal(graph_free_vars(w->m->arena, fn_body(f), &vars), 2);
  assert_ptr_equal(vars[0], f->arg[1]);
  assert_ptr_equal(vars[1], f->arg[0]);
  assert_int_equal(graph_free_vars(w->m->arena, f, &vars), 0);
}

static int drops;
static void drop(void *user) { drops += *(int *)user; }

CASE(copies_share_blobs)
{
  static int one = 1;
  static const float weights[4] = {1, 2, 3, 4};
  drops = 0;
  Blob *blob = blob_new(w->ctx, weights, sizeof weights, drop, &one);
  Module *m = module_new(w->ctx);
  graph_keep(m, blob);
  blob_release(blob);
  ConstData d = {.dtype = DT_F32, .ndim = 1, .shape = {4}, .bytes = sizeof weights, .data = weights};
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(m, 0, NULL, node_const(m, &d), NULL, NULL));
  Module *copy = graph_copy_module(m);
  module_release(m);
  assert_int_equal(drops, 0);
  assert_ptr_equal(fn_body(graph_main(copy))->u.data->data, weights);
  module_release(copy);
  assert_int_equal(drops, 1);
}

CASE(copies_are_equal_and_apart)
{
  const Node *f = parse_main(w, "type List[A] { Cons(A, List[A]), Nil }\n"
                                "def @main(%x: Tensor[(6, n), float32], %s: Tensor[(2), int64], %l: List[float32]) {\n"
                                "  %0 = fn (%p: Tensor[(a, b), float32]) { scale(%p, dims=[a, 2], words=[\"q\"]) };\n"
                                "  (%0(reshape(%x, %s)), match (%l) { Cons(%h, _) => %h, Nil => 0f }) }");
  Module *copy = graph_copy_module(w->m);
  const char *why = "";
  const Node *g = graph_main(copy);
  if (!graph_equal(f, g, w->m->arena, &why)) fail_msg("%s", why);
  const Type *ty = fn_body(g)->arg[0]->type;
  const Var **vars;
  const Node *source;
  int element;
  assert_int_equal(expr_free_vars(w->m->arena, ty->shape[1], &vars), 1);
  assert_true(graph_value_source(copy, vars[0], &source, &element));
  assert_ptr_equal(source, g->arg[1]);
  module_release(copy);
}

CASE(equality_minds_what_counts)
{
  static const char *const texts[] = {
    "def @main(%x: Tensor[(n, n), float32]) { negative(%x) }",
    "def @main(%x: Tensor[(n, m), float32]) { negative(%x) }",
    "def @main(%x: Tensor[(n, 2), float32]) { negative(%x) }",
    "def @main(%x: float32) { add(%x, %x) }",
    "def @main(%x: float32) { add(%x, 1f) }",
    "def @main(%x: float32) { add(%x, 2f) }",
    "def @main(%x: float32) { scale(%x) }",
    "def @main(%x: float32) { scale(%x, factor=2) }",
    "def @main(%x: float32, %y: float32) { add(%x, %y) }",
    "def @main(%x: float32, %y: float32) { add(%y, %x) }",
    "def @main(%x: float32) { %0 = negative(%x); (%0, %0) }",
    "def @main(%x: float32) { (negative(%x), negative(%x)) }",
    "def @main(%x: float32, Primitive=1) { add(%x, %x) }",
  };
  int n = (int)(sizeof texts / sizeof *texts);
  const Node *f[16];
  for (int i = 0; i < n; i++) f[i] = parse_main(w, texts[i]);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      const char *why;
      if (graph_equal(f[i], f[k], w->m->arena, &why) != (i == k)) fail_msg("%s\n%s", texts[i], texts[k]);
    }
  const Node *renamed = parse_main(w, "def @main(%z: Tensor[(k, k), float32]) { negative(%z) }");
  assert_true(graph_equal(f[0], renamed, w->m->arena, NULL));
  assert_true(graph_hash(f[0], w->m->arena) == graph_hash(renamed, w->m->arena));
  assert_true(graph_hash(f[4], w->m->arena) != graph_hash(f[5], w->m->arena));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_of_parameters_are_bound_by_arguments),
    cmocka_unit_test(branches_join),
    cmocka_unit_test(run_time_sizes_of_results_are_fresh),
    cmocka_unit_test(type_parameters),
    cmocka_unit_test(run_time_sizes_of_items_are_fresh),
    cmocka_unit_test(functions_as_values),
    cmocka_unit_test(lets_take_the_type_of_their_value),
    cmocka_unit_test(shape_arithmetic_folds),
    cmocka_unit_test(sums_of_shapes_unroll),
    cmocka_unit_test(unknown_values_are_variables_of_their_tensor),
    cmocka_unit_test(applied_functions_pass_values_through),
    cmocka_unit_test(lets_pass_values_through),
    cmocka_unit_test(a_let_tells_run_time_values_by_its_variable),
    cmocka_unit_test(long_chains_need_no_stack),
    cmocka_unit_test(rewrites_share_what_was_shared),
    cmocka_unit_test(free_variables_in_order_of_use),
    cmocka_unit_test(copies_share_blobs),
    cmocka_unit_test(copies_are_equal_and_apart),
    cmocka_unit_test(equality_minds_what_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
