/* test_sketch.c: schedules that the rules draw, and those with a decision changed, compute what the program does; a
 * loop program tuned end to end; workers that say nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "tune/tune.h"

static void run_body(void (*body)(Ctx *, void *), void *arg)
{
  Ctx *ctx = ctx_new();
  if (protect(ctx, body, arg)) fail_msg("%s", error_message(ctx));
  ctx_free(ctx);
}

static void release_module(void *m) { module_release(m); }
static void drop_arena(void *a) { arena_free(a); }
static void free_sched(void *s) { sched_free(s); }

static Arena *own_arena(Ctx *ctx)
{
  Arena *a = arena_new(ctx);
  defer(ctx, drop_arena, a);
  return a;
}

static Module *own_module(Ctx *ctx)
{
  Module *m = module_new(ctx);
  defer(ctx, release_module, m);
  return m;
}

static PrimFunc *parse(Ctx *ctx, const char *text)
{
  Module *m = own_module(ctx);
  return func_parse(m, text, "test.py", 1, 0, NULL);
}

static const char product[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((24, 18), 'float32'), B: T.Buffer((18, 32), 'float32'), D: T.Buffer((24, 32), 'float32')):\n"
    "    C = T.alloc_buffer((24, 32))\n"
    "    for i, j, k in T.grid(24, 32, 18):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = T.float32(0)\n"
    "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n"
    "    for i, j in T.grid(24, 32):\n"
    "        with T.block('D'):\n"
    "            vi, vj = T.axis.remap('SS', [i, j])\n"
    "            D[vi, vj] = C[vi, vj] + T.float32(1)\n";
static const char total[] = "@T.prim_func\n"
                            "def f(A: T.Buffer((3, 700), 'float32'), B: T.Buffer((3,), 'float32')):\n"
                            "    for i, k in T.grid(3, 700):\n"
                            "        with T.block('B'):\n"
                            "            vi, vk = T.axis.remap('SR', [i, k])\n"
                            "            with T.init():\n"
                            "                B[vi] = T.float32(0)\n"
                            "            B[vi] = B[vi] + A[vi, vk]\n";

/* Vectors along j read B with strides; sizes that no vector divides. */
static const char across[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((7, 9), 'float32'), B: T.Buffer((13, 9), 'float32'), C: T.Buffer((7, 13), 'float32')):\n"
    "    for i, j, k in T.grid(7, 13, 9):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = T.float32(0)\n"
    "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]\n";

/* Results in planes whose rows fill no vector: vectors may go along the channels, and the tile of sums is turned. */
static const char planes[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((3, 6, 7), 'float32'), W: T.Buffer((16, 3, 3, 3), 'float32'), C: T.Buffer((16, 4, 5), "
    "'float32')):\n"
    "    for o, h, v, c, y, x in T.grid(16, 4, 5, 3, 3, 3):\n"
    "        with T.block('C'):\n"
    "            vo, vh, vv, vc, vy, vx = T.axis.remap('SSSRRR', [o, h, v, c, y, x])\n"
    "            with T.init():\n"
    "                C[vo, vh, vv] = T.float32(0)\n"
    "            C[vo, vh, vv] = C[vo, vh, vv] + A[vc, vh + vy, vv + vx] * W[vo, vc, vy, vx]\n";

/* Products of bytes: two of one sign and whole words, two of other signs that words and vectors do not divide, and a
 * convolution whose results lie in planes. */
static const char bytes[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((6, 24), 'int8'), B: T.Buffer((24, 32), 'int8'), D: T.Buffer((6, 32), 'int32')):\n"
    "    C = T.alloc_buffer((6, 32), 'int32')\n"
    "    for i, j, k in T.grid(6, 32, 24):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = 0\n"
    "            C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], 'int32') * T.cast(B[vk, vj], 'int32')\n"
    "    for i, j in T.grid(6, 32):\n"
    "        with T.block('D'):\n"
    "            vi, vj = T.axis.remap('SS', [i, j])\n"
    "            D[vi, vj] = C[vi, vj] + 3\n";
static const char odd_bytes[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((5, 11), 'uint8'), B: T.Buffer((13, 11), 'int8'), C: T.Buffer((5, 13), 'int32')):\n"
    "    for i, j, k in T.grid(5, 13, 11):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = 0\n"
    "            C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], 'int32') * T.cast(B[vj, vk], 'int32')\n";
static const char byte_planes[] =
    "@T.prim_func\n"
    "def f(A: T.Buffer((8, 6, 7), 'int8'), W: T.Buffer((16, 8, 3, 3), 'int8'), C: T.Buffer((16, 4, 5), 'int32')):\n"
    "    for o, h, v, c, y, x in T.grid(16, 4, 5, 8, 3, 3):\n"
    "        with T.block('C'):\n"
    "            vo, vh, vv, vc, vy, vx = T.axis.remap('SSSRRR', [o, h, v, c, y, x])\n"
    "            with T.init():\n"
    "                C[vo, vh, vv] = 0\n"
    "            C[vo, vh, vv] = C[vo, vh, vv] + T.cast(A[vc, vh + vy, vv + vx], 'int32')"
    " * T.cast(W[vo, vc, vy, vx], 'int32')\n";

/* The decision that changes is one of a trace's own, and the rest of the text stays. */
static void check_mutation(Arena *a, const char *trace, const char *changed)
{
  const char *x = tune_decisions(a, trace);
  const char *y = tune_decisions(a, changed);
  assert_int_equal(strcspn(x, "{"), strcspn(y, "{"));
  assert_memory_equal(x, y, strcspn(x, "{")); /* the same form */
}

typedef struct Replay {
  const PrimFunc *f;
  const char *trace;
  Sched *made;
} Replay;

static void replay(Ctx *ctx, void *arg)
{
  Replay *r = arg;
  (void)ctx;
  r->made = sched_new(r->f, 1);
  sched_replay(r->made, r->trace);
}

static void replay_fitted(Ctx *ctx, void *arg)
{
  Replay *r = arg;
  (void)ctx;
  r->made = sched_new(r->f, 1);
  sched_replay_fitted(r->made, r->trace);
}

/* How many of the traces have tiles; each computes the same as f. */
static int check_sketches(Ctx *ctx, const PrimFunc *f, int n, const char *mark)
{
  int marked = 0;
  uint64_t seed = 5;
  for (int i = 0; i < n; i++) {
    Scope scope = scope_begin(ctx);
    Arena *a = own_arena(ctx);
    Sched *s = tune_sketch(a, f, target_host(ctx), (uint64_t)i + 1);
    const char *trace = sched_trace_text(a, s);
    marked += strstr(trace, mark) != NULL;
    random_compare(f, sched_func(s), 7);
    const char *changed = tune_mutate(a, trace, NULL, &seed);
    check_mutation(a, trace, changed);
    Replay r = {f, changed, NULL};
    ErrKind kind = protect(ctx, replay, &r); /* which may be refused */
    if (r.made) defer(ctx, free_sched, r.made);
    if (kind == ERR_NONE) random_compare(f, sched_func(r.made), 9);
    scope_end(ctx, scope);
  }
  return marked;
}

static void sketches_body(Ctx *ctx, void *arg)
{
  Scope scope = scope_begin(ctx);
  (void)arg;
  enum { N = 12, FEW = 6 };
  int tiles = check_sketches(ctx, parse(ctx, product), N, "sample_perfect_tile");
  assert_true(tiles > 0 && tiles < N); /* the others have their sums in registers */
  assert_int_equal(check_sketches(ctx, parse(ctx, product), N, "\"local\")") + tiles, N);
  assert_int_equal(check_sketches(ctx, parse(ctx, product), N, "sch.vectorize("), N);
  assert_int_equal(check_sketches(ctx, parse(ctx, total), N, "sch.rfactor("), N);
  assert_true(check_sketches(ctx, parse(ctx, across), N, "sch.transform_layout(") > 0);
  assert_true(check_sketches(ctx, parse(ctx, planes), N, "lambda i0, i1, i2: (i1, i2, i0)") > 0);
  if (target_dot(target_host(ctx), DOT_S8, DOT_S8, target_lanes(target_host(ctx), 32))) {
    assert_true(check_sketches(ctx, parse(ctx, bytes), FEW, "sch.tensorize(") > FEW / 2);
    assert_true(check_sketches(ctx, parse(ctx, odd_bytes), FEW, "sch.tensorize(") > FEW / 2);
    assert_true(check_sketches(ctx, parse(ctx, byte_planes), FEW, "sch.tensorize(") > FEW / 2);
  }
  scope_end(ctx, scope);
}

static void test_sketches(void **state)
{
  (void)state;
  run_body(sketches_body, NULL);
}

/* Traces of one size, replayed on another: the tiles divide its loops, and it computes the same.  Where a tile shrinks
 * to one, the loops are fewer, and a trace that names them may be refused. */
static void fitted_body(Ctx *ctx, void *arg)
{
  Scope scope = scope_begin(ctx);
  (void)arg;
  static const char larger[] =
      "@T.prim_func\n"
      "def f(A: T.Buffer((42, 25), 'float32'), B: T.Buffer((25, 16), 'float32'), D: T.Buffer((42, 16), 'float32')):\n"
      "    C = T.alloc_buffer((42, 16))\n"
      "    for i, j, k in T.grid(42, 16, 25):\n"
      "        with T.block('C'):\n"
      "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
      "            with T.init():\n"
      "                C[vi, vj] = T.float32(0)\n"
      "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n"
      "    for i, j in T.grid(42, 16):\n"
      "        with T.block('D'):\n"
      "            vi, vj = T.axis.remap('SS', [i, j])\n"
      "            D[vi, vj] = C[vi, vj] + T.float32(1)\n";
  const PrimFunc *f = parse(ctx, product);
  const PrimFunc *g = parse(ctx, larger);
  int fitted = 0;
  for (uint64_t seed = 1; seed <= 24; seed++) {
    Arena *a = own_arena(ctx);
    const char *trace = sched_trace_text(a, tune_sketch(a, f, target_host(ctx), seed));
    if (!strstr(trace, "sample_perfect_tile")) continue;
    Replay plain = {g, trace, NULL};
    assert_int_equal(protect(ctx, replay, &plain), ERR_ARGUMENT); /* 24 is not 42 */
    defer(ctx, free_sched, plain.made);
    Replay other = {g, trace, NULL};
    ErrKind kind = protect(ctx, replay_fitted, &other);
    defer(ctx, free_sched, other.made);
    if (kind != ERR_NONE) continue;
    fitted++;
    random_compare(g, sched_func(other.made), 7);
    Replay again = {g, sched_trace_text(a, other.made), NULL}; /* what was decided stands in its own trace */
    assert_int_equal(protect(ctx, replay, &again), ERR_NONE);
    defer(ctx, free_sched, again.made);
  }
  assert_true(fitted >= 2);
  scope_end(ctx, scope);
}

static void test_fitted(void **state)
{
  (void)state;
  run_body(fitted_body, NULL);
}

/* Whatever the program is. */
static void random_body(Ctx *ctx, void *arg)
{
  uint64_t seed = *(uint64_t *)arg;
  Scope scope = scope_begin(ctx);
  PrimFunc *f = random_func(own_module(ctx), &seed);
  check_sketches(ctx, f, 2, "");
  scope_end(ctx, scope);
}

static void test_random_programs(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    uint64_t given = seed;
    Ctx *ctx = ctx_new();
    if (protect(ctx, random_body, &given)) fail_msg("seed %d: %s", (int)seed, error_message(ctx));
    ctx_free(ctx);
  }
}

static void tune_body(Ctx *ctx, void *arg)
{
  Scope scope = scope_begin(ctx);
  Arena *a = own_arena(ctx);
  PrimFunc *f = parse(ctx, product);
  const Target *t = target_host(ctx);
  Db *db = db_open(ctx, arg, true);
  TuneProgramOptions o = {.trials = 6, .seed = 3, .measure = {.threads = 1, .seconds = 0.02, .rounds = 5}};
  TuneProgram p = tune_program(ctx, a, f, t, db, &o);
  assert_int_equal(p.trials, 6);
  assert_true(p.before > 0 && p.after > 0 && p.after <= p.before);
  const char *best = db_best_trace(db, a, tune_program_name(a, f, t), t->text);
  assert_true(best ? *p.trace != 0 : *p.trace == 0);
  if (*p.trace) {
    Sched *s = sched_new(f, 1);
    defer(ctx, free_sched, s);
    sched_replay(s, p.trace);
    random_compare(f, sched_func(s), 11);
  }
  o.resume = true;
  o.trials = 2;
  TuneProgram q = tune_program(ctx, a, f, t, db, &o);
  assert_int_equal(q.trials, 2);
  db_close(db);
  scope_end(ctx, scope);
}

static void test_tune(void **state)
{
  (void)state;
  char path[64];
  char command[100];
  snprintf(path, sizeof path, "/tmp/lathe_sketch_%d.db", (int)getpid());
  run_body(tune_body, path);
  snprintf(command, sizeof command, "rm %s*", path);
  assert_int_equal(system(command), 0);
}

/* ---- workers that say nothing ---------------------------------------------------------------------------- */

typedef struct Heard {
  int n;
  TuneStatus status;
  char note[200];
} Heard;

static int take_result(void *env, int i, const MeasureResult *r)
{
  Heard *h = env;
  (void)i;
  h->n++;
  h->status = r->status;
  snprintf(h->note, sizeof h->note, "%s", r->note);
  return 0;
}

static void silent_body(Ctx *ctx, void *arg)
{
  Scope scope = scope_begin(ctx);
  Arena *a = own_arena(ctx);
  const PrimFunc *f = parse(ctx, product);
  const char *command = arg;
  TuneWorkers *workers = tune_workers(ctx, a, 1, &command, 0.3);
  MeasureSpec spec = {.target = target_host(ctx), .n = 1, .base_func = f, .func = &f};
  MeasureOptions o = {.threads = 1, .build_limit = 0.01, .run_limit = 0.01, .workers = workers};
  Heard h = {0};
  tune_measure(ctx, a, &spec, &o, take_result, &h);
  assert_int_equal(h.n, 1);
  assert_int_equal(h.status, TUNE_LOST);
  assert_non_null(strstr(h.note, "was not heard for"));
  assert_int_equal(tune_workers_left(workers), 0);
  scope_end(ctx, scope);
}

static void test_silent_workers(void **state)
{
  (void)state;
  static char before[] = "sleep 60";
  static char after[] = "echo lathe-worker 1; sleep 60";
  run_body(silent_body, before);
  run_body(silent_body, after);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sketches), cmocka_unit_test(test_fitted),         cmocka_unit_test(test_random_programs),
    cmocka_unit_test(test_tune),     cmocka_unit_test(test_silent_workers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
