/* test_pass.c: the manager's rules, and that every pass and every level keeps the meaning of random graphs. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pass/test_graphs.h"
#include "pass/tools.h"

static void drop_module(void *m) { module_release(m); }
static void drop_context(void *pc) { pass_context_free(pc); }

typedef void Body(Ctx *, Module *, PassContext *);
typedef struct Job {
  Body *body;
} Job;
static void run_body(Ctx *ctx, void *arg)
{
  op_init();
  Module *m = module_new(ctx);
  defer(ctx, drop_module, m);
  PassContext *pc = pass_context_new(ctx);
  defer(ctx, drop_context, pc);
  pc->opt_level = 3;
  ((Job *)arg)->body(ctx, m, pc);
}

static void run(Body *body)
{
  Ctx *ctx = ctx_new();
  Job job = {body};
  ErrKind kind = protect(ctx, run_body, &job);
  if (kind) fail_msg("%s: %s", error_kind_name(kind), error_message(ctx));
  ctx_free(ctx);
}

/* The message of what the call raises. */
typedef struct Try {
  void (*fn)(PassContext *, const char *, const char *);
  PassContext *pc;
  const char *a, *b;
} Try;
static void do_try(Ctx *ctx, void *arg)
{
  Try *t = arg;
  (void)ctx;
  t->fn(t->pc, t->a, t->b);
}
static const char *message_of(PassContext *pc, void (*fn)(PassContext *, const char *, const char *), const char *a,
                              const char *b)
{
  Try t = {fn, pc, a, b};
  assert_int_not_equal(protect(pc->ctx, do_try, &t), ERR_NONE);
  return error_message(pc->ctx);
}

/* ---- random graphs ------------------------------------------------------------------------- */

typedef struct Gen {
  Module *m;
  uint64_t seed;
  Vec(const Node *) image; /* (1, 4, 6, 6) */
} Gen;

static int pick(Gen *g, int n) { return (int)(test_random(&g->seed) % (uint64_t)n); }
static const Node *any_image(Gen *g) { return g->image.v[pick(g, g->image.n)]; }

static const Node *random_const(Gen *g, int ndim, const int64_t *shape, double low, double high)
{
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) n *= shape[i];
  float *v = arena_array(g->m->arena, float, n);
  for (int64_t i = 0; i < n; i++) v[i] = (float)(low + (high - low) * (double)(test_random(&g->seed) % 1000) / 1000);
  return node_const_copy(g->m, DT_F32, ndim, shape, v);
}

static const Node *conv(Gen *g, const Node *x)
{
  const OpDef *op = opdef_get(g->m->ctx, "nn.conv2d");
  void *attrs = attrs_new(g->m, op->attrs);
  bool three = pick(g, 2);
  int64_t k = three ? 3 : 1;
  int64_t pad[4] = {three, three, three, three};
  attrs_set_ints(g->m, op->attrs, attrs, "padding", 4, pad);
  return node_call(g->m, op, 2, (const Node *[]){x, random_const(g, 4, (int64_t[]){4, 4, k, k}, -0.5, 0.5)}, attrs,
                   "conv");
}

static const Node *batch_norm(Gen *g, const Node *x)
{
  const Node *arg[5] = {x};
  for (int i = 1; i < 5; i++) arg[i] = random_const(g, 1, (int64_t[]){4}, i == 4 || pick(g, 2) ? 0.2 : -1, 1);
  return node_get(g->m, make_call(g->m, "nn.batch_norm", 5, arg, NULL), 0);
}

static const Node *concat_split(Gen *g, const Node *x, const Node *y)
{
  const OpDef *op = opdef_get(g->m->ctx, "concatenate");
  const OpDef *cut = opdef_get(g->m->ctx, "split");
  void *attrs = attrs_new(g->m, op->attrs);
  void *parts = attrs_new(g->m, cut->attrs);
  attrs_set_int(g->m, op->attrs, attrs, "axis", 1);
  attrs_set_ints(g->m, cut->attrs, parts, "indices_or_sections", 1, (int64_t[]){2});
  attrs_set_int(g->m, cut->attrs, parts, "axis", 1);
  const Node *both = node_tuple(g->m, 2, (const Node *[]){x, y});
  both = node_call(g->m, op, 1, &both, attrs, NULL);
  both = node_call(g->m, cut, 1, &both, parts, NULL);
  return node_get(g->m, both, pick(g, 2));
}

static const Node *there_and_back(Gen *g, const Node *x)
{
  const OpDef *op = opdef_get(g->m->ctx, "transpose");
  void *attrs = attrs_new(g->m, op->attrs);
  attrs_set_ints(g->m, op->attrs, attrs, "axes", 4, (int64_t[]){0, 1, 3, 2});
  if (pick(g, 2)) return node_call(g->m, op, 1, &x, attrs, NULL);
  const Node *flat = make1(g->m, "nn.relu", make_reshape_ints(g->m, x, 2, (int64_t[]){4, 36}));
  return make_reshape_ints(g->m, flat, 4, (int64_t[]){1, 4, 6, 6});
}

static const Node *step(Gen *g)
{
  Module *m = g->m;
  const Node *x = any_image(g);
  int64_t channel[3] = {4, 1, 1};
  switch (pick(g, 13)) {
  case 0:
  case 1: return conv(g, x);
  case 2: return batch_norm(g, x);
  case 3: return make1(m, "nn.relu", x);
  case 4: return make2(m, "add", x, any_image(g));
  case 5: return make2(m, "multiply", x, random_const(g, 3, channel, 0.1, 1));
  case 6: return make2(m, "nn.bias_add", x, random_const(g, 1, channel, -1, 1));
  case 7: return concat_split(g, x, any_image(g));
  case 8: return there_and_back(g, x);
  case 9: return make1(m, "tanh", x);
  case 10: return make2(m, "multiply", x, make_float(m, DT_F32, 1));
  case 11:
    return make2(m, "add", x,
                 make2(m, "multiply", random_const(g, 3, channel, -1, 1), random_const(g, 3, channel, -1, 1)));
  default: return make_cast(m, make_cast(m, x, DT_F64), DT_F32);
  }
}

static const Node *random_graph(Module *m, uint64_t seed)
{
  Gen g = {.m = m, .seed = seed * 2654435761u + 88172645463325252u};
  const Node *x = node_var(m, "x", type_tensor_of(m, DT_F32, 4, (int64_t[]){1, 4, 6, 6}));
  vec_push(m->arena, &g.image, x);
  for (int i = 0; i < 10; i++) vec_push(m->arena, &g.image, step(&g));
  const Node *last = g.image.v[g.image.n - 1];
  const Node *body = pick(&g, 3) ? last : node_tuple(m, 2, (const Node *[]){last, any_image(&g)});
  return node_func(m, 1, &x, body, NULL, NULL);
}

/* ---- meaning ---------------------------------------------------------------------------------------- */

static void each_pass(Ctx *ctx, Module *unused, PassContext *pc)
{
  (void)unused;
  for (int p = 0; p < pass_count(); p++)
    for (uint64_t seed = 1; seed <= 4; seed++) {
      Scope scope = scope_begin(ctx);
      Module *m = module_new(ctx);
      defer(ctx, drop_module, m);
      const Pass *pass = pass_at(p);
      const Node *before = random_graph(m, seed);
      module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)before);
      if (!strcmp(pass->name, "ToMixedPrecision"))
        pass_config_set(pc, "relay.ToMixedPrecision.keep_orig_output_dtype", "true");
      if (!strcmp(pass->name, "AnnotateTarget"))
        pass = pass_make(scratch(ctx), ctx, pass->name, 1, (const char *const[][2]){{"targets", "other"}});
      pass_run(pc, pass, m);
      double tolerance = !strcmp(pass->name, "ToMixedPrecision") ? 5e-2 : 1e-4;
      test_same_meaning(m, pass->name, before, graph_main(m), tolerance);
      scope_end(ctx, scope);
    }
}

static void each_level(Ctx *ctx, Module *unused, PassContext *pc)
{
  (void)unused;
  for (pc->opt_level = 0; pc->opt_level <= 4; pc->opt_level++)
    for (uint64_t seed = 10; seed < 14; seed++) {
      Scope scope = scope_begin(ctx);
      Module *m = module_new(ctx);
      defer(ctx, drop_module, m);
      const Node *before = random_graph(m, seed);
      module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)before);
      pass_pipeline(pc, m);
      test_same_meaning(m, "pipeline", before, graph_main(m), 1e-3);
      const Node **order;
      int n = graph_post_order(scratch(ctx), graph_main(m), &order);
      int outside = 0;
      Map inside = {0};
      for (int i = 0; i < n; i++)
        if (is_primitive(order[i])) {
          const Node **in;
          int k = graph_post_order(scratch(ctx), order[i], &in);
          while (k--) map_put(scratch(ctx), &inside, in[k], (void *)(uintptr_t)in[k]);
        }
      for (int i = 0; i < n; i++) outside += order[i]->kind == N_CALL && !map_has(&inside, order[i]);
      assert_int_equal(outside, 0);
      scope_end(ctx, scope);
    }
}

/* Any pass of the pipeline left out: the rest still makes something that can be lowered. */
static void each_pass_disabled(Ctx *ctx, Module *unused, PassContext *pc)
{
  int n;
  const char *const *names = pass_pipeline_names(&n);
  (void)unused;
  for (int i = 0; i < n; i++) {
    Scope scope = scope_begin(ctx);
    Module *m = module_new(ctx);
    defer(ctx, drop_module, m);
    const Node *before = random_graph(m, 20 + (uint64_t)i);
    module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)before);
    pc->disabled.n = 0;
    pass_disable(pc, names[i]);
    pass_pipeline(pc, m);
    test_same_meaning(m, names[i], before, graph_main(m), 1e-3);
    scope_end(ctx, scope);
  }
}

/* ---- the manager ---------------------------------------------------------------------------------------- */

static void set_config(PassContext *pc, const char *key, const char *value) { pass_config_set(pc, key, value); }
static void disable(PassContext *pc, const char *name, const char *unused)
{
  (void)unused;
  pass_disable(pc, name);
}

static void config_keys(Ctx *ctx, Module *m, PassContext *pc)
{
  (void)ctx, (void)m;
  assert_int_equal(pass_config_int(pc, "relay.FuseOps.max_depth"), 256);
  pass_config_set(pc, "relay.FuseOps.max_depth", "5");
  assert_int_equal(pass_config_int(pc, "relay.FuseOps.max_depth"), 5);
  assert_int_equal(pc->notes.n, 0);
  pass_config_set(pc, "relay.backend.use_auto_scheduler", "True");
  assert_int_equal(pc->notes.n, 1);
  assert_string_equal(pc->notes.v[0], "config 'relay.backend.use_auto_scheduler' is accepted and changes nothing yet");
  pass_config_set(pc, "lathe.impl.no_winograd", "1");
  assert_true(pc->impl.no_winograd);
  pass_config_set(pc, "lathe.fast_math", "bf16");
  assert_int_equal(pc->impl.fast_math, FAST_BF16);
  assert_string_equal(message_of(pc, set_config, "lathe.fast_math", "fp8"),
                      "config 'lathe.fast_math' takes none, bf16 or fp16, not 'fp8'");
  assert_int_equal(pc->impl.fast_math, FAST_BF16);
  assert_string_equal(message_of(pc, set_config, "relay.FuseOps.max_dept", "5"),
                      "there is no config key 'relay.FuseOps.max_dept'; did you mean 'relay.FuseOps.max_depth'? 'lathe "
                      "opt --list' shows all");
  assert_string_equal(message_of(pc, set_config, "relay.FuseOps.max_depth", "many"),
                      "config 'relay.FuseOps.max_depth' takes an integer, not 'many'");
  assert_non_null(strstr(message_of(pc, set_config, "tir.add_lower_pass", "x"), "config 'tir.add_lower_pass': "));
  assert_string_equal(message_of(pc, disable, "FoldConstants", NULL),
                      "there is no pass 'FoldConstants'; did you mean 'FoldConstant'? 'lathe opt --list' shows all");
  pass_declare(pc->ctx, "MyOwnPass");
  pass_disable(pc, "MyOwnPass");
}

/* A user's pass that counts how often it ran. */
static const Node *count_runs(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)m, (void)name;
  ++*(int *)env;
  return f;
}
typedef struct Seen {
  int before, after;
  bool refuse;
} Seen;
static void see_before(void *env, Module *m, const Pass *p)
{
  (void)m, (void)p;
  ((Seen *)env)->before++;
}
static void see_after(void *env, Module *m, const Pass *p)
{
  (void)m, (void)p;
  ((Seen *)env)->after++;
}
static bool may_run(void *env, Module *m, const Pass *p)
{
  (void)m;
  return !((Seen *)env)->refuse || p->scope == PASS_SEQUENTIAL;
}

static void levels_and_instruments(Ctx *ctx, Module *m, PassContext *pc)
{
  (void)ctx;
  int low = 0;
  int high = 0;
  Pass a = {.name = "Low", .scope = PASS_FUNCTION, .opt_level = 1, .function = count_runs, .env = &low};
  Pass b = {.name = "High", .scope = PASS_FUNCTION, .opt_level = 3, .function = count_runs, .env = &high};
  const Pass *seq = pass_sequential(pc->arena, "both", 0, 2, (const Pass *[]){&a, &b});
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)random_graph(m, 1));
  pc->opt_level = 2;
  pass_run(pc, seq, m);
  assert_int_equal(low, 1);
  assert_int_equal(high, 0);
  pass_run(pc, &b, m); /* by itself it always runs */
  assert_int_equal(high, 1);
  vec_push(pc->arena, &pc->required, "High");
  vec_push(pc->arena, &pc->disabled, "Low");
  pass_run(pc, seq, m);
  assert_int_equal(low, 1);
  assert_int_equal(high, 2);
  Seen seen = {0};
  vec_push(pc->arena, &pc->instruments, (PassInstrument){"seen", &seen, may_run, see_before, see_after});
  pass_time(pc);
  pass_run(pc, seq, m);
  assert_int_equal(seen.before, 2); /* the sequential and High */
  assert_int_equal(seen.after, 2);
  assert_non_null(strstr(pass_time_text(pc, pc->arena), "  High "));
  seen.refuse = true;
  pass_run(pc, seq, m);
  assert_int_equal(high, 3);
}

typedef struct OnePass {
  PassContext *pc;
  Module *m;
  const char *name;
} OnePass;
static void run_one_pass(Ctx *ctx, void *arg)
{
  OnePass *one = arg;
  (void)ctx;
  pass_run(one->pc, pass_find(one->name), one->m);
}

static void failing_pass_changes_nothing(Ctx *ctx, Module *m, PassContext *pc)
{
  graph_parse_module(
      m, "def @a(%x: Tensor[(2), float32]) { exp(%x) }\ndef @main(%x: Tensor[(2), float32]) { nn.relu(%x) }", "test");
  const Node *a = module_get(m, "a")->func;
  const Node *main = module_get(m, "main")->func;
  pass_config_set(pc, "relay.FuseOps.max_depth", "0");
  OnePass one = {pc, m, "FuseOps"};
  assert_int_equal(protect(ctx, run_one_pass, &one), ERR_ARGUMENT);
  assert_ptr_equal(module_get(m, "a")->func, a);
  assert_ptr_equal(module_get(m, "main")->func, main);
}

static void max_depth_limits_groups(Ctx *ctx, Module *m, PassContext *pc)
{
  graph_parse_module(m, "def @main(%x: Tensor[(2), float32]) { exp(tanh(exp(tanh(exp(tanh(%x)))))) }", "test");
  pass_config_set(pc, "relay.FuseOps.max_depth", "2");
  pass_run(pc, pass_find("FuseOps"), m);
  const Node **order;
  int n = graph_post_order(scratch(ctx), graph_main(m), &order);
  int groups = 0;
  for (int i = 0; i < n; i++) groups += is_primitive(order[i]);
  assert_int_equal(groups, 3);
}

static void binds_parameters(Ctx *ctx, Module *m, PassContext *pc)
{
  (void)ctx, (void)pc;
  graph_parse_module(m, "def @main(%x: Tensor[(2), float32], %w: Tensor[(2), float32]) { add(%x, %w) }", "test");
  const Node *w = node_const_copy(m, DT_F32, 1, (int64_t[]){2}, (float[]){1, 2});
  const Node *f = pass_bind_params(m, graph_main(m), 1, (const char *[]){"w"}, &w);
  assert_int_equal(fn_nparams(f), 1);
  assert_ptr_equal(fn_body(f)->arg[1], w);
}

/* Large constants go through compiled kernels: one for each distinct call. */
static void folds_large_constants(Ctx *ctx, Module *m, PassContext *pc)
{
  Gen g = {.m = m, .seed = 12345};
  int64_t shape[4] = {64, 32, 3, 3};
  int64_t channel[4] = {64, 1, 1, 1};
  const Node *x = node_var(m, "x", type_tensor_of(m, DT_F32, 4, shape));
  const Node *sum = x;
  const Node *w[3], *s[3];
  for (int i = 0; i < 3; i++) {
    w[i] = random_const(&g, 4, shape, -1, 1);
    s[i] = random_const(&g, 4, channel, -1, 1);
    sum = make2(m, "add", sum, make2(m, "multiply", w[i], s[i]));
  }
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(m, 1, &x, sum, NULL, NULL));
  pass_run(pc, pass_find("FoldConstant"), m);
  const Node *at = fn_body(graph_main(m));
  for (int i = 2; i >= 0; i--, at = at->arg[0]) {
    assert_int_equal(at->arg[1]->kind, N_CONST);
    const float *got = at->arg[1]->u.data->data;
    const float *a = w[i]->u.data->data;
    const float *b = s[i]->u.data->data;
    for (int k = 0; k < 64 * 32 * 9; k++)
      if (got[k] != a[k] * b[k / (32 * 9)]) fail_msg("element %d is %g, not %g", k, got[k], a[k] * b[k / (32 * 9)]);
  }
  assert_ptr_equal(at, x);
  (void)ctx;
}

/* The most memory in use whenever the pass polled. */
static int note_peak(void *arg)
{
  size_t *peak = arg;
  size_t now = 0;
#ifdef __GLIBC__
  struct mallinfo2 info = mallinfo2();
  now = info.uordblks + info.hblkhd;
#endif
  if (now > *peak) *peak = now;
  return 0;
}

/* What only the way to a value needs is gone before the next value is computed: sixteen products of
 * 4 MB are never in memory together. */
static void folds_one_by_one(Ctx *ctx, Module *m, PassContext *pc)
{
  enum { CHAINS = 16, ROWS = 1024 };
  Gen g = {.m = m, .seed = 12345};
  int64_t shape[2] = {ROWS, 1024};
  int64_t row[1] = {1024};
  const Node *w = random_const(&g, 2, shape, -1, 1);
  const Node *x = node_var(m, "x", type_tensor_of(m, DT_F32, 1, row));
  const Node *sum = x;
  for (int i = 0; i < CHAINS; i++) {
    const Node *product = make2(m, "multiply", w, random_const(&g, 1, row, -1, 1));
    sum = make2(m, "add", sum, make1(m, "sum", make1(m, "nn.relu", product)));
  }
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(m, 1, &x, sum, NULL, NULL));
  size_t peak = 0;
  size_t after = 0;
  ctx_set_poll(ctx, note_peak, &peak);
  pass_run(pc, pass_find("FoldConstant"), m);
  ctx_set_poll(ctx, NULL, NULL);
  note_peak(&after);
  if (peak > after + (size_t)24 * 1000 * 1000)
    fail_msg("%zu bytes in use while constants were folded, %zu after", peak, after);
  for (const Node *at = fn_body(graph_main(m)); at != x; at = at->arg[0]) assert_int_equal(at->arg[1]->kind, N_CONST);
}

/* Twenty thousand nodes in a row: no walk may nest as deep. */
static void deep_graph(Ctx *ctx, Module *m, PassContext *pc)
{
  const Node *x = node_var(m, "x", type_tensor_of(m, DT_F32, 1, (int64_t[]){2}));
  const Node *y = x;
  for (int i = 0; i < 20000; i++) y = make1(m, i % 2 ? "exp" : "nn.relu", y);
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(m, 1, &x, y, NULL, NULL));
  pass_pipeline(pc, m);
  const Node **order;
  assert_true(graph_post_order(scratch(ctx), graph_main(m), &order) > 20000);
}

#define RUNS(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    run(name);                          \
  }
RUNS(each_pass)
RUNS(each_level)
RUNS(each_pass_disabled)
RUNS(config_keys)
RUNS(levels_and_instruments)
RUNS(failing_pass_changes_nothing)
RUNS(max_depth_limits_groups)
RUNS(binds_parameters)
RUNS(deep_graph)
RUNS(folds_large_constants)
RUNS(folds_one_by_one)

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_config_keys),
    cmocka_unit_test(test_levels_and_instruments),
    cmocka_unit_test(test_failing_pass_changes_nothing),
    cmocka_unit_test(test_max_depth_limits_groups),
    cmocka_unit_test(test_binds_parameters),
    cmocka_unit_test(test_each_pass),
    cmocka_unit_test(test_each_level),
    cmocka_unit_test(test_each_pass_disabled),
    cmocka_unit_test(test_deep_graph),
    cmocka_unit_test(test_folds_large_constants),
    cmocka_unit_test(test_folds_one_by_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
