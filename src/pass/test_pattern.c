/* test_pattern.c: dataflow patterns: what matches, what does not, rewriting and partitioning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pass/pattern.h"
#include "pass/test_graphs.h"
#include "pass/tools.h"

static void drop_module(void *m) { module_release(m); }

typedef void Body(Module *, Arena *);
static void run_body(Ctx *ctx, void *arg)
{
  op_init();
  Module *m = module_new(ctx);
  defer(ctx, drop_module, m);
  (*(Body **)arg)(m, ctx_arena(ctx));
}

static void run(Body *body)
{
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, run_body, &body);
  if (kind) fail_msg("%s: %s", error_kind_name(kind), error_message(ctx));
  ctx_free(ctx);
}

static const Node *parse(Module *m, const char *text)
{
  graph_parse_module(m, text, "test");
  return graph_main(m);
}

static DfPat *unary(Arena *a, const char *op, DfPat *x) { return pat_call(a, pat_op(a, op), 1, &x); }
static DfPat *binary(Arena *a, const char *op, DfPat *x, DfPat *y)
{
  return pat_call(a, pat_op(a, op), 2, (DfPat *[]){x, y});
}
static bool matches(Arena *a, const DfPat *p, const Node *n)
{
  DfMatch match;
  return pass_pattern_match(a, p, n, NULL, &match);
}

#define CONV_BN                                                                                                       \
  "def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32], %b: Tensor[(2, 1, 1), float32]) {" \
  "  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1]); %1 = add(%b, %0); nn.relu(%1) }"

static void simple(Module *m, Arena *a)
{
  const Node *body = fn_body(parse(m, CONV_BN));
  DfPat *x = pat_wildcard(a);
  DfPat *w = pat_wildcard(a);
  DfPat *b = pat_var(a, "b");
  DfPat *conv = binary(a, "nn.conv2d", x, w);
  DfPat *sum = binary(a, "add", conv, b);
  DfPat *relu = unary(a, "nn.relu", sum);
  DfMatch match;
  assert_true(pass_pattern_match(a, relu, body, NULL, &match)); /* the addition's operands exchanged */
  assert_string_equal(pass_pattern_node(&match, x)->name, "x");
  assert_string_equal(pass_pattern_node(&match, w)->name, "w");
  assert_ptr_equal(pass_pattern_node(&match, sum), body->arg[0]);
  assert_int_equal(match.inside.n, 3);
  assert_false(matches(a, unary(a, "tanh", sum), body));
  assert_false(matches(a, unary(a, "nn.relu", binary(a, "subtract", conv, b)), body));
  assert_false(matches(a, pat_var(a, "x"), pass_pattern_node(&match, w)));
  assert_true(matches(
      a, pat_optional(a, pat_optional(a, binary(a, "add", pat_wildcard(a), pat_wildcard(a)), "tanh"), "nn.relu"),
      body));
}

static void attributes_and_types(Module *m, Arena *a)
{
  const Node *conv = fn_body(parse(m, CONV_BN))->arg[0]->arg[1];
  DfPat *p = binary(a, "nn.conv2d", pat_wildcard(a), pat_wildcard(a));
  assert_true(matches(a, pat_attr(a, p, "padding", "[1, 1, 1, 1]"), conv));
  assert_false(matches(a, pat_attr(a, p, "padding", "[0, 0]"), conv));
  assert_true(matches(a, pat_attr(a, p, "data_layout", "NCHW"), conv));
  assert_true(matches(a, pat_attr(a, p, "TOpPattern", "4"), conv));
  assert_false(matches(a, pat_attr(a, p, "no_such", "1"), conv));
  assert_true(matches(a, pat_dtype(a, p, DT_F32), conv));
  assert_false(matches(a, pat_dtype(a, p, DT_F16), conv));
  assert_true(matches(a, pat_shape(a, p, 4, (int64_t[]){1, 2, -1, 4}), conv));
  assert_false(matches(a, pat_shape(a, p, 4, (int64_t[]){1, 3, -1, 4}), conv));
  assert_true(matches(a, pat_type(a, p, conv->type), conv));
}

/* One pattern twice means one node twice. */
static void repeated(Module *m, Arena *a)
{
  const Node *body = fn_body(parse(m, "def @main(%x: Tensor[(2), float32], %y: Tensor[(2), float32]) {"
                                      " (multiply(%x, sigmoid(%x)), multiply(%x, sigmoid(%y))) }"));
  DfPat *x = pat_wildcard(a);
  DfPat *swish = binary(a, "multiply", x, unary(a, "sigmoid", x));
  assert_true(matches(a, swish, body->arg[0]));
  assert_false(matches(a, swish, body->arg[1]));
  assert_true(matches(a, pat_tuple(a, -1, NULL), body));
  assert_true(matches(a, pat_tuple(a, 2, (DfPat *[]){swish, pat_wildcard(a)}), body));
}

static void dominator(Module *m, Arena *a)
{
  const Node *f = parse(m, "def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 1, 1), float32]) {"
                           " %0 = nn.conv2d(%x, %w); %1 = nn.relu(%0); %2 = tanh(%0); add(%1, %2) }");
  DfPat *conv = binary(a, "nn.conv2d", pat_wildcard(a), pat_wildcard(a));
  DfPat *path = pat_attr(a, pat_wildcard(a), "TOpPattern", "0");
  DfPat *sum = binary(a, "add", pat_wildcard(a), pat_wildcard(a));
  DfPat *p = pat_dominates(a, conv, path, sum);
  DfMatch match;
  assert_true(pass_pattern_match(a, p, fn_body(f), f, &match));
  assert_true(is_call(pass_pattern_node(&match, conv), "nn.conv2d"));
  /* the same with a reader outside: not dominated */
  const Node *g = node_func(m, fn_nparams(f), f->arg,
                            node_tuple(m, 2, (const Node *[]){fn_body(f), fn_body(f)->arg[0]}), NULL, NULL);
  assert_false(pass_pattern_match(a, p, fn_body(f), g, &match));
  assert_false(matches(a, pat_dominates(a, conv, unary(a, "exp", pat_wildcard(a)), sum), fn_body(f)));
}

static const Node *to_relu(void *env, Module *m, const Node *n, const DfMatch *match)
{
  (void)n;
  return make1(m, "nn.relu", pass_pattern_node(match, env));
}

static void rewriting(Module *m, Arena *a)
{
  const Node *f = parse(m, "def @main(%x: Tensor[(3), float32]) { maximum(exp(maximum(%x, 0f)), 0f) }");
  DfPat *x = pat_wildcard(a);
  DfPat *zero = pat_constant(a);
  DfRule rule = {binary(a, "maximum", x, zero), to_relu, x, false};
  const Node *g = pass_pattern_rewrite(m, f, 1, &rule);
  assert_true(is_call(fn_body(g), "nn.relu"));
  assert_true(is_call(fn_body(g)->arg[0]->arg[0], "nn.relu"));
  test_same_meaning(m, "rewrite", f, g, 0);
}

static const Node *again(void *env, Module *m, const Node *n, const DfMatch *match)
{
  (void)env, (void)match;
  return make1(m, "exp", n->arg[0]);
}
typedef struct Endless {
  Module *m;
  const Node *f;
  DfRule rule;
} Endless;
static void run_endless(Ctx *ctx, void *arg)
{
  Endless *e = arg;
  (void)ctx;
  pass_pattern_rewrite(e->m, e->f, 1, &e->rule);
}

static void endless_rule_is_refused(Module *m, Arena *a)
{
  Endless e = {m,
               parse(m, "def @main(%x: Tensor[(3), float32]) { exp(%x) }"),
               {unary(a, "exp", pat_wildcard(a)), again, NULL, false}};
  assert_int_equal(protect(m->ctx, run_endless, &e), ERR_ARGUMENT);
  e.rule.once = true;
  assert_int_equal(protect(m->ctx, run_endless, &e), ERR_NONE);
}

static void partitioning(Module *m, Arena *a)
{
  const Node *f = parse(m, CONV_BN);
  DfPat *conv = binary(a, "nn.conv2d", pat_wildcard(a), pat_wildcard(a));
  DfPat *p = pat_optional(a, binary(a, "add", conv, pat_wildcard(a)), "nn.relu");
  Annots attrs = {0};
  annots_set(a, &attrs, "Composite", expr_str(m, "conv_bias_relu"));
  const Node *g = pass_pattern_partition(m, f, p, &attrs, NULL, NULL);
  const Node *call = fn_body(g);
  assert_int_equal(call->kind, N_APPLY);
  assert_int_equal(fn_nparams(call->arg[0]), 3);
  assert_string_equal(annots_get(&call->arg[0]->u.func->attrs, "Composite")->u.str, "conv_bias_relu");
  assert_string_equal(annots_get(&call->arg[0]->u.func->attrs, "PartitionedFromPattern")->u.str,
                      "nn.conv2d_add_nn.relu_");
  test_same_meaning(m, "partition", f, g, 0);
  /* what is read from outside stays outside */
  const Node *sum = fn_body(f)->arg[0];
  const Node *open =
      node_func(m, fn_nparams(f), f->arg, node_tuple(m, 2, (const Node *[]){fn_body(f), sum->arg[1]}), NULL, NULL);
  assert_ptr_equal(pass_pattern_partition(m, open, p, NULL, NULL, NULL), open);
}

#define RUNS(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    run(name);                          \
  }
RUNS(simple)
RUNS(attributes_and_types)
RUNS(repeated)
RUNS(dominator)
RUNS(rewriting)
RUNS(endless_rule_is_refused)
RUNS(partitioning)

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_simple),       cmocka_unit_test(test_attributes_and_types),
    cmocka_unit_test(test_repeated),     cmocka_unit_test(test_dominator),
    cmocka_unit_test(test_rewriting),    cmocka_unit_test(test_endless_rule_is_refused),
    cmocka_unit_test(test_partitioning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
