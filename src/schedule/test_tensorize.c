/* tensorize: matching, views of tiles, refusals; the cost of primitives. */
#include "schedule/test_schedule.h"

#include <time.h>

#define BUFFERS "A: T.Buffer((4, 4), \"float32\"), B: T.Buffer((4, 4), \"float32\"), C: T.Buffer((4, 4), \"float32\")"

/* C += A * B on 4 x 4 tiles */
static const char desc[] = "@T.prim_func\n"
                           "def desc(" BUFFERS "):\n"
                           "    with T.block(\"root\"):\n"
                           "        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])\n"
                           "        T.writes(C[0:4, 0:4])\n"
                           "        for i, j, k in T.grid(4, 4, 4):\n"
                           "            with T.block(\"update\"):\n"
                           "                vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"
                           "                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

/* the same, k outermost, through strided views */
static const char impl[] = "@T.prim_func\n"
                           "def impl(a: T.handle, b: T.handle, c: T.handle):\n"
                           "    a0 = T.int32()\n    a1 = T.int32()\n"
                           "    A = T.match_buffer(a, (4, 4), \"float32\", strides=[a0, a1], offset_factor=1)\n"
                           "    b0 = T.int32()\n    b1 = T.int32()\n"
                           "    B = T.match_buffer(b, (4, 4), \"float32\", strides=[b0, b1], offset_factor=1)\n"
                           "    c0 = T.int32()\n    c1 = T.int32()\n"
                           "    C = T.match_buffer(c, (4, 4), \"float32\", strides=[c0, c1], offset_factor=1)\n"
                           "    with T.block(\"root\"):\n"
                           "        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])\n"
                           "        T.writes(C[0:4, 0:4])\n"
                           "        for k, i, j in T.grid(4, 4, 4):\n"
                           "            C[i, j] = C[i, j] + A[i, k] * B[k, j]\n";

/* C = A * B, started anew */
static const char whole[] = "@T.prim_func\n"
                            "def whole(" BUFFERS "):\n"
                            "    with T.block(\"root\"):\n"
                            "        T.reads(A[0:4, 0:4], B[0:4, 0:4])\n"
                            "        T.writes(C[0:4, 0:4])\n"
                            "        for i, j, k in T.grid(4, 4, 4):\n"
                            "            with T.block(\"update\"):\n"
                            "                vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"
                            "                with T.init():\n"
                            "                    C[vi, vj] = T.float32(0)\n"
                            "                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";
static const char whole_impl[] = "@T.prim_func\n"
                                 "def whole_impl(" BUFFERS "):\n"
                                 "    with T.block(\"root\"):\n"
                                 "        T.reads(A[0:4, 0:4], B[0:4, 0:4])\n"
                                 "        T.writes(C[0:4, 0:4])\n"
                                 "        for i, j in T.grid(4, 4):\n"
                                 "            C[i, j] = T.float32(0)\n"
                                 "        for k, i, j in T.grid(4, 4, 4):\n"
                                 "            C[i, j] = C[i, j] + A[i, k] * B[k, j]\n";

typedef struct Case {
  const char *func, *trace, *desc, *impl, *words;
} Case;

static void run_case(Ctx *ctx, void *env)
{
  Case *c = env;
  Scope scope = scope_begin(ctx);
  Module *m = module_new(ctx);
  defer(ctx, free_module, m);
  TensorIntrin t = {.name = "mm4",
                    .desc = func_parse(m, c->desc, "desc", 1, 0, NULL),
                    .impl = func_parse(m, c->impl, "impl", 1, 0, NULL)};
  PrimFunc *f = func_parse(m, c->func, "case", 1, 0, NULL);
  Sched *s = sched_new(f, 1);
  defer(ctx, free_schedule, s);
  sched_add_intrin(s, &t);
  sched_replay(s, c->trace);
  func_check(sched_func(s));
  for (uint64_t seed = 1; seed < 4; seed++) random_compare(f, sched_func(s), seed);
  const char *text = func_print(scratch(ctx), sched_func(s));
  if (getenv("LATHE_SHOW")) puts(text);
  if (!strstr(text, "T.match_buffer(")) BUG(ctx, "no view in\n%s", text);
  Sched *again = sched_new(f, 1);
  defer(ctx, free_schedule, again);
  sched_add_intrin(again, &t);
  sched_replay(again, sched_trace_text(scratch(ctx), s));
  const char *why = NULL;
  if (!func_equal(sched_func(s), sched_func(again), scratch(ctx), &why))
    BUG(ctx, "the trace replays to another function: %s", why);
  scope_end(ctx, scope);
}

static void check_case(Case c)
{
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, run_case, &c);
  const char *message = kind ? error_message(ctx) : "";
  if (kind && !c.words) fprintf(stderr, "%s: %s\n", error_kind_name(kind), message);
  assert_int_equal(kind, c.words ? ERR_SCHEDULE : ERR_NONE);
  if (c.words && !strstr(message, c.words)) fprintf(stderr, "'%s' lacks '%s'\n", message, c.words);
  if (c.words) assert_non_null(strstr(message, c.words));
  ctx_free(ctx);
}

#define TILES(tile)                                                                 \
  "b0 = sch.get_block(\"C\")\nl1, l2, l3 = sch.get_loops(b0)\n"                     \
  "l4, l5 = sch.split(l1, [None, " #tile "])\nl6, l7 = sch.split(l2, [None, " #tile \
  "])\nl8, l9 = sch.split(l3, [None, " #tile "])\n"                                 \
  "sch.reorder(l4, l6, l8, l5, l7, l9)\n"

static void update_tile(void **state)
{
  (void)state;
  check_case((Case){MATMUL(8, 12, 16), TILES(4) "b10 = sch.decompose_reduction(b0, l8)\nsch.tensorize(l5, \"mm4\")\n",
                    desc, impl, NULL});
  /* through a blockized block, on cached tiles */
  check_case((Case){
    MATMUL(8, 12, 16),
    TILES(4) "b10 = sch.decompose_reduction(b0, l8)\nb11 = sch.cache_read(b0, 1, \"local\")\nsch.compute_at(b11, l8)\n"
             "b12 = sch.blockize(l5)\nsch.tensorize(b12, \"mm4\")\n",
    desc, impl, NULL});
}

static void whole_tile(void **state)
{
  (void)state;
  check_case((Case){MATMUL(8, 12, 4), TILES(4) "sch.tensorize(l5, \"mm4\")\n", whole, whole_impl, NULL});
}

static void tensorize_refused(void **state)
{
  (void)state;
  check_case((Case){MATMUL(8, 12, 16), TILES(4) "sch.tensorize(l5, \"mm4\")\n", desc, impl,
                    "decompose_reduction takes it out"});
  check_case((Case){MATMUL(8, 12, 16), TILES(4) "sch.tensorize(l5, \"mm4\")\n", whole, whole_impl,
                    "loops of the reduction stay outside"});
  check_case((Case){MATMUL(8, 8, 16), TILES(8) "b10 = sch.decompose_reduction(b0, l8)\nsch.tensorize(l5, \"mm4\")\n",
                    desc, impl, "has extent 8 where the intrinsic has 4"});
  check_case((Case){MATMUL(8, 12, 16),
                    TILES(4) "b10 = sch.decompose_reduction(b0, l8)\nsch.reorder(l7, l5)\nsch.tensorize(l7, \"mm4\")\n",
                    desc, impl, "not an offset plus the intrinsic's"});
}

/* ---- cost --------------------------------------------------------------------------------------------- */

static void time_body(Ctx *ctx, void *env)
{
  double *seconds = env;
  Module *m = module_new(ctx);
  PrimFunc *f = func_parse(m, MATMUL(1024, 1024, 1024), "case", 1, 0, NULL);
  struct timespec a, b;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
  Sched *s = sched_new(f, 1);
  sched_replay(s, TILES(4) "b10 = sch.cache_write(b0, 0, \"local\")\nsch.reverse_compute_at(b10, l6)\nb11 = "
                           "sch.decompose_reduction(b0, l8)\n"
                           "b12 = sch.cache_read(b0, 1, \"global\")\nsch.compute_at(b12, "
                           "l6)\nsch.vectorize(l7)\nsch.unroll(l5)\nsch.parallel(l4)\n");
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
  *seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
  sched_free(s);
  module_release(m);
}

static void primitives_are_quick(void **state)
{
  (void)state;
  if (getenv("LATHE_EMULATED")) skip();
  Ctx *ctx = ctx_new();
  double best = 1;
  for (int i = 0; i < 5; i++) {
    double seconds = 1;
    assert_int_equal(protect(ctx, time_body, &seconds), ERR_NONE);
    if (seconds < best) best = seconds;
  }
  printf("14 primitives in %.2f ms\n", best * 1e3);
  assert_true(best < 0.1); /* a hundred times what it takes, for sanitized builds */
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(update_tile), cmocka_unit_test(whole_tile),
                                     cmocka_unit_test(tensorize_refused), cmocka_unit_test(primitives_are_quick)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
