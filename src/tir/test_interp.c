/* test_interp.c: functions run by the interpreter against results computed by hand. */
#include "tir/tir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

typedef struct Job {
  Module *m;
  const char *text;
  PrimFunc *f;
  int n;
  const TirArg *arg;
} Job;

static void run_job(Ctx *ctx, void *p)
{
  (void)ctx;
  Job *j = p;
  j->f = func_parse(j->m, j->text, "test.py", 1, 0, NULL);
  func_check(j->f);
  func_interpret(j->f, j->n, j->arg);
}

static void run(Module *m, const char *text, int n, const TirArg *arg)
{
  Job j = {m, text, NULL, n, arg};
  if (protect(m->ctx, run_job, &j)) {
    fprintf(stderr, "%s\n%s\n", error_message(m->ctx), text);
    fail();
  }
}

static void refused(Module *m, const char *text, int n, const TirArg *arg, ErrKind kind, const char *message)
{
  Job j = {m, text, NULL, n, arg};
  assert_int_equal(protect(m->ctx, run_job, &j), kind);
  assert_string_equal(error_message(m->ctx), message);
}

static TirArg tensor(void *data, DType t, int ndim, const int64_t *shape)
{
  return (TirArg){.data = data, .dtype = t, .ndim = ndim, .shape = shape};
}
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

static void test_matmul(void **state)
{
  static const char *const head = "@T.prim_func\n"
                                  "def main(a: T.handle, B: T.Buffer((5, 4), \"float32\"), c: T.handle):\n"
                                  "    n = T.int32()\n"
                                  "    A = T.match_buffer(a, (n, 5))\n"
                                  "    C = T.match_buffer(c, (n, 4))\n";
  static const char *const bodies[] = {
    /* plain */
    "    for i, j, k in T.grid(n, 4, 5):\n"
    "        with T.block(\"C\"):\n"
    "            vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = 0.0\n"
    "            C[vi, vj] += A[vi, vk] * B[vk, vj]\n",
    /* reduction outermost, split imperfectly, with a guard */
    "    for ko, i, ki, j in T.grid(3, n, 2, 4):\n"
    "        with T.block(\"C\"):\n"
    "            vi = T.axis.spatial(n, i)\n"
    "            vj = T.axis.spatial(4, j)\n"
    "            vk = T.axis.reduce(5, ko * 2 + ki)\n"
    "            T.where(ko * 2 + ki < 5)\n"
    "            with T.init():\n"
    "                C[vi, vj] = 0.0\n"
    "            C[vi, vj] += A[vi, vk] * B[vk, vj]\n",
    /* lowered, flat, vectors */
    "    A_1 = T.Buffer((n * 5,), data=A.data)\n"
    "    B_1 = T.Buffer((20,), data=B.data)\n"
    "    C_1 = T.Buffer((n * 4,), data=C.data)\n"
    "    for i in T.parallel(n):\n"
    "        acc = T.decl_buffer((4,), scope=\"local\")\n"
    "        acc[T.Ramp(0, 1, 4)] = T.Broadcast(T.float32(0), 4)\n"
    "        for k in range(5):\n"
    "            acc[0:4] = acc[0:4] + T.Broadcast(A_1[i * 5 + k], 4) * B_1[k * 4:k * 4 + 4]\n"
    "        C_1[T.Ramp(i * 4, 1, 4)] = acc[T.Ramp(0, 1, 4)]\n",
  };
  Module *m = *state;
  float a[3 * 5], b[5 * 4];
  float want[3 * 4] = {0};
  for (int i = 0; i < 15; i++) a[i] = (float)(i % 7) - 2.5f;
  for (int i = 0; i < 20; i++) b[i] = (float)(i % 5) * 0.25f;
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 5; k++)
      for (int j = 0; j < 4; j++) want[i * 4 + j] += a[i * 5 + k] * b[k * 4 + j];
  for (size_t t = 0; t < sizeof bodies / sizeof *bodies; t++) {
    char text[4000];
    float c[3 * 4];
    memset(c, 0xff, sizeof c);
    snprintf(text, sizeof text, "%s%s", head, bodies[t]);
    const TirArg arg[] = {tensor(a, DT_F32, 2, SHAPE(3, 5)), tensor(b, DT_F32, 2, SHAPE(5, 4)),
                          tensor(c, DT_F32, 2, SHAPE(3, 4))};
    run(m, text, 3, arg);
    assert_memory_equal(c, want, sizeof c); /* small numbers: exact in any order */
  }
}

/* Threads load a tile together, then each reads what others wrote. */
static void test_threads(void **state)
{
  Module *m = *state;
  static const char *const text =
      "@T.prim_func\n"
      "def main(A: T.Buffer((4, 8), \"int32\"), B: T.Buffer((4, 8), \"int32\"), S: T.Buffer((4,), \"int32\")):\n"
      "    for bx in T.thread_binding(4, thread=\"blockIdx.x\"):\n"
      "        for tx in T.thread_binding(8, thread=\"threadIdx.x\"):\n"
      "            tile = T.decl_buffer((8,), \"int32\", scope=\"shared\")\n"
      "            mine = T.decl_buffer((1,), \"int32\", scope=\"local\")\n"
      "            for ty in T.thread_binding(8, thread=\"threadIdx.x\"):\n"
      "                tile[ty] = A[bx, ty]\n"
      "            T.tvm_storage_sync(\"shared\")\n"
      "            mine[0] = tile[7 - tx]\n"
      "            tile[tx] = 0\n"
      "            if tx < 4:\n"
      "                B[bx, tx] = mine[0]\n"
      "            else:\n"
      "                B[bx, tx] = mine[0] * 100\n"
      "            for r in range(tx):\n"
      "                B[bx, tx] = B[bx, tx] + 1\n"
      "            if tx == 0:\n"
      "                S[bx] = 0\n"
      "            S[bx] = S[bx] + A[bx, tx]\n";
  int32_t a[32], b[32], s[4];
  for (int i = 0; i < 32; i++) a[i] = i * i % 23;
  const TirArg arg[] = {tensor(a, DT_I32, 2, SHAPE(4, 8)), tensor(b, DT_I32, 2, SHAPE(4, 8)),
                        tensor(s, DT_I32, 1, SHAPE(4))};
  run(m, text, 3, arg);
  for (int i = 0; i < 4; i++) {
    int sum = 0;
    for (int t = 0; t < 8; t++) {
      assert_int_equal(b[i * 8 + t], a[i * 8 + 7 - t] * (t < 4 ? 1 : 100) + t);
      sum += a[i * 8 + t];
    }
    assert_int_equal(s[i], sum);
  }
}

/* The update that has to see a value stored by the same thread in a wider loop. */
/* Loops over virtual threads nest: each runs all of its own. */
static void test_virtual_threads(void **state)
{
  Module *m = *state;
  int32_t a[12] = {0};
  const TirArg arg[] = {tensor(a, DT_I32, 2, SHAPE(6, 2))};
  run(m,
      "@T.prim_func\n"
      "def main(A: T.Buffer((6, 2), \"int32\")):\n"
      "    for i in T.thread_binding(6, thread=\"vthread\"):\n"
      "        for j in T.thread_binding(2, thread=\"vthread\"):\n"
      "            A[i, j] = i * 2 + j + 1\n",
      1, arg);
  for (int i = 0; i < 12; i++) assert_int_equal(a[i], i + 1);
}

static void test_match_buffer(void **state)
{
  Module *m = *state;
  static const char *const text =
      "@T.prim_func\n"
      "def main(A: T.Buffer((6, 8), \"int32\"), B: T.Buffer((6, 8), \"int32\"), O: T.Buffer((4,), \"int32\")):\n"
      "    for i, j in T.grid(2, 2):\n"
      "        with T.block(\"tile\"):\n"
      "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"
      "            T.reads(A[vi * 3:vi * 3 + 3, vj * 4:vj * 4 + 4])\n"
      "            T.writes(B[vi * 3:vi * 3 + 3, vj * 4:vj * 4 + 4], O[vi * 2 + vj])\n"
      "            a = T.match_buffer(A[vi * 3:vi * 3 + 3, vj * 4:vj * 4 + 4], (3, 4), \"int32\", strides=[\"s0\", "
      "\"s1\"], elem_offset=\"off\")\n"
      "            b = T.match_buffer(B[vi * 3:vi * 3 + 3, vj * 4:vj * 4 + 4], (3, 4), \"int32\")\n"
      "            row = T.match_buffer(A[vi * 3 + 1, vj * 4:vj * 4 + 4], (4,), \"int32\")\n"
      "            O[vi * 2 + vj] = off + s0 * 1000 + s1 * 100000\n"
      "            for x, y in T.grid(3, 4):\n"
      "                b[x, y] = a[2 - x, y] * 100 + row[y]\n";
  int32_t a[48], b[48], o[4];
  for (int i = 0; i < 48; i++) a[i] = i;
  const TirArg arg[] = {tensor(a, DT_I32, 2, SHAPE(6, 8)), tensor(b, DT_I32, 2, SHAPE(6, 8)),
                        tensor(o, DT_I32, 1, SHAPE(4))};
  run(m, text, 3, arg);
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 8; j++)
      assert_int_equal(b[i * 8 + j], a[(i / 3 * 3 + 2 - i % 3) * 8 + j] * 100 + a[(i / 3 * 3 + 1) * 8 + j]);
  for (int i = 0; i < 4; i++) assert_int_equal(o[i], (i / 2 * 3) * 8 + (i % 2) * 4 + 8 * 1000 + 100000);
}

static void test_control(void **state)
{
  Module *m = *state;
  /* the first Fibonacci numbers up to a limit, how many there are; a masked store */
  static const char *const text = "@T.prim_func\n"
                                  "def main(F: T.Buffer((16,), \"int64\"), limit: T.int64, N: T.Buffer((1,), "
                                  "\"int32\"), V: T.Buffer((8,), \"float32\")):\n"
                                  "    F[0] = 1\n"
                                  "    F[1] = 1\n"
                                  "    N[0] = 2\n"
                                  "    while N[0] < 16 and F[N[0] - 1] + F[N[0] - 2] <= limit:\n"
                                  "        k = N[0]\n"
                                  "        x: T.int64 = F[k - 1] + F[k - 2]\n"
                                  "        F[k] = x\n"
                                  "        N[0] = k + 1\n"
                                  "    V.vstore([T.Ramp(1, 2, 4)], T.Cast(\"float32x4\", T.Ramp(10, 10, 4)), "
                                  "predicate=T.Ramp(0, 1, 4) != T.Broadcast(2, 4))\n"
                                  "    if N[0] > 100:\n"
                                  "        V[0] = 1.0\n"
                                  "    T.ret(0)\n"
                                  "    V[2] = 3.0\n";
  int64_t f[16];
  int32_t n = 0;
  float v[8] = {0};
  const TirArg arg[] = {tensor(f, DT_I64, 1, SHAPE(16)),
                        {.scalar = value_int(DT_I64, 60)},
                        tensor(&n, DT_I32, 1, SHAPE(1)),
                        tensor(v, DT_F32, 1, SHAPE(8))};
  run(m, text, 4, arg);
  assert_int_equal(n, 10);
  assert_int_equal(f[9], 55);
  const float want[8] = {0, 10, 0, 20, 0, 0, 0, 40};
  assert_memory_equal(v, want, sizeof v);
}

static void test_dtypes(void **state)
{
  Module *m = *state;
  static const char *const text = "@T.prim_func\n"
                                  "def main(H: T.Buffer((2,), \"float16\"), U: T.Buffer((3,), \"uint8\"), B: "
                                  "T.Buffer((2,), \"bool\"), D: T.Buffer((4,), \"float64\")):\n"
                                  "    H[0] = T.float16(2048) + T.float16(1)\n" /* halfway: to even */
                                  "    H[1] = H[0] * T.float16(40)\n"           /* infinity */
                                  "    U[0] = T.uint8(200) + T.uint8(100)\n"
                                  "    U[1] = T.Cast(\"uint8\", T.float32(-3.5))\n"
                                  "    U[2] = T.shift_right(T.uint8(200), T.uint8(3))\n"
                                  "    B[0] = T.float32(\"nan\") != T.float32(\"nan\")\n"
                                  "    B[1] = not B[0]\n"
                                  "    D[0] = T.Cast(\"float64\", T.int32(-7) // 2) + T.Cast(\"float64\", "
                                  "T.truncmod(T.int32(-7), 2)) * T.float64(10)\n"
                                  "    D[1] = T.max(T.float64(\"nan\"), T.float64(3))\n"
                                  "    D[2] = T.sqrt(T.float64(2)) * T.if_then_else(B[1], D[7], T.float64(1))\n"
                                  "    D[3] = T.Let(x * x + x, where={x: D[0] + T.float64(1)})\n";
  uint16_t h[2];
  uint8_t u[3], b[2];
  double d[4];
  const TirArg arg[] = {tensor(h, DT_F16, 1, SHAPE(2)), tensor(u, DT_U8, 1, SHAPE(3)), tensor(b, DT_BOOL, 1, SHAPE(2)),
                        tensor(d, DT_F64, 1, SHAPE(4))};
  run(m, text, 4, arg);
  assert_true(float_from_half(h[0]) == 2048.0f);
  assert_true(isinf(float_from_half(h[1])));
  assert_int_equal(u[0], 44);
  assert_int_equal(u[1], 0);
  assert_int_equal(u[2], 25);
  assert_int_equal(b[0], 1);
  assert_int_equal(b[1], 0);
  assert_true(d[0] == -14.0);
  assert_true(d[1] == 3.0);
  assert_true(d[2] == sqrt(2.0));
  assert_true(d[3] == 13.0 * 13.0 - 13.0);
}

static void test_strides(void **state)
{
  Module *m = *state;
  static const char *const text = "@T.prim_func\n"
                                  "def main(a: T.handle, B: T.Buffer((2, 3), \"int32\")):\n"
                                  "    A = T.match_buffer(a, (2, 3), \"int32\", strides=[\"s0\", \"s1\"])\n"
                                  "    for i, j in T.grid(2, 3):\n"
                                  "        B[i, j] = A[i, j]\n";
  int32_t a[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int32_t b[6];
  TirArg arg[] = {tensor(a, DT_I32, 2, SHAPE(2, 3)), tensor(b, DT_I32, 2, SHAPE(2, 3))};
  arg[0].strides = SHAPE(2, 4);
  run(m, text, 2, arg);
  const int32_t want[6] = {0, 4, 8, 2, 6, 10};
  assert_memory_equal(b, want, sizeof b);
  TirArg back[] = {arg[1], arg[0]};
  refused(m, text, 2, back, ERR_ARGUMENT,
          "argument 'B': dimension 1 has stride 1, a tensor with 4 was given; copy it first");
}

#define ONE                                                                                                       \
  "@T.prim_func\ndef main(a: T.handle, B: T.Buffer((4,), \"float32\"), k: T.int32):\n    n = T.int32()\n    A = " \
  "T.match_buffer(a, (n, n))\n"
static void test_refusals(void **state)
{
  Module *m = *state;
  float a[9] = {0};
  float b[4];
  const TirArg A = tensor(a, DT_F32, 2, SHAPE(3, 3));
  const TirArg B = tensor(b, DT_F32, 1, SHAPE(4));
  const TirArg k = {.scalar = value_int(DT_I32, 2)};
  const TirArg bad_shape = tensor(a, DT_F32, 2, SHAPE(3, 2));
  const TirArg bad_rank = tensor(a, DT_F32, 1, SHAPE(9));
  const TirArg bad_dtype = tensor(b, DT_I32, 1, SHAPE(4));
  const TirArg real = {.scalar = value_float(DT_F32, 1)};
  static const char *const ok = ONE "    B[k] = A[k, 0]\n";
  run(m, ok, 3, (const TirArg[]){A, B, k});
  refused(m, ok, 2, (const TirArg[]){A, B}, ERR_ARGUMENT, "function 'main' takes 3 arguments, 2 given");
  refused(m, ok, 3, (const TirArg[]){bad_shape, B, k}, ERR_ARGUMENT,
          "argument 'A': dimension 1 is n = 3, a tensor with 2 was given");
  refused(m, ok, 3, (const TirArg[]){bad_rank, B, k}, ERR_ARGUMENT,
          "argument 'A' has 2 dimensions, a tensor with 1 was given");
  refused(m, ok, 3, (const TirArg[]){A, bad_dtype, k}, ERR_ARGUMENT, "argument 'B' has dtype float32, int32 was given");
  refused(m, ok, 3, (const TirArg[]){A, B, real}, ERR_ARGUMENT, "argument 'k' is a int32 scalar, float32 was given");
  refused(m, ok, 3, (const TirArg[]){A, B, A}, ERR_ARGUMENT, "argument 'k' is a int32 scalar, a tensor was given");
  refused(m, ONE "    B[k * 2] = A[k, 0]\n", 3, (const TirArg[]){A, B, k}, ERR_BOUNDS,
          "buffer 'B': index 0 is 4, outside of [0, 4)");
  refused(m, ONE "    B[k] = A[0, k - 3]\n", 3, (const TirArg[]){A, B, k}, ERR_BOUNDS,
          "buffer 'A': index 1 is -1, outside of [0, 3)");
  refused(m, ONE "    B[7 // (k - 2)] = A[0, 0]\n", 3, (const TirArg[]){A, B, k}, ERR_ARGUMENT,
          "division by zero in '7//(k - 2)'");
  refused(m, ONE "    V = T.Buffer((100,), data=A.data)\n    B[0] = V[9]\n", 3, (const TirArg[]){A, B, k}, ERR_BOUNDS,
          "buffer 'V': element 9 lies outside of the memory that it views");
  refused(m, ONE "    T.call_extern(\"int32\", \"foo\", k)\n", 3, (const TirArg[]){A, B, k}, ERR_UNSUPPORTED,
          "interpreter: cannot call 'foo' (call_extern); compile the function to run it");
  refused(m,
          ONE "    for i in range(k + 1):\n        with T.block(\"b\"):\n            v = T.axis.spatial(2, i)\n        "
              "    B[v] = 0.0\n",
          3, (const TirArg[]){A, B, k}, ERR_BOUNDS, "block 'b': 'v' is 2, outside of its domain of 2 from 0");
  refused(m, ONE "    V = T.alloc_buffer((4, 9223372036854775807))\n    V[0, 0] = 0.0\n", 3, (const TirArg[]){A, B, k},
          ERR_MEMORY, "interpreter: buffer 'V' is too large (2 GiB are the limit)");
  refused(m, ONE "    T.ret(7)\n", 3, (const TirArg[]){A, B, k}, ERR_CALLBACK, "the function returned status 7");
}

static int stop(void *arg) { return ++*(int *)arg > 3; }

static void test_stop(void **state)
{
  Module *m = *state;
  int polls = 0;
  ctx_set_poll(m->ctx, stop, &polls);
  refused(m, "@T.prim_func\ndef main():\n    while T.bool(True):\n        T.evaluate(0)\n", 0, NULL, ERR_CALLBACK,
          "stopped by the caller");
  ctx_set_poll(m->ctx, NULL, NULL);
}

/* A prefix sum is the same in order only: shuffled, some seed gives another one; without dependences none does. */
static void test_shuffled(void **state)
{
  Module *m = *state;
  static const char *const kinds[] = {"T.parallel", "T.vectorized"};
  for (int k = 0; k < 2; k++)
    for (int apart = 0; apart < 2; apart++) {
      const char *text =
          arena_printf(m->arena,
                       "@T.prim_func\ndef main(A: T.Buffer((9,), \"int32\"), B: T.Buffer((9,), \"int32\")):\n"
                       "    for i in %s(8):\n        with T.block(\"B\"):\n"
                       "            vi = T.axis.spatial(8, i)\n            B[vi + 1] = %s + A[vi]\n",
                       kinds[k], apart ? "A[vi + 1]" : "B[vi]");
      PrimFunc *f = func_parse(m, text, "case", 1, 0, NULL);
      int differs = 0;
      for (uint64_t seed = 1; seed < 9; seed++) {
        int32_t a[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
        int32_t b[2][9] = {{0}};
        int64_t shape = 9;
        for (int run = 0; run < 2; run++) {
          TirArg args[] = {{.data = a, .dtype = DT_I32, .ndim = 1, .shape = &shape},
                           {.data = b[run], .dtype = DT_I32, .ndim = 1, .shape = &shape}};
          if (run) func_interpret_shuffled(f, 2, args, seed);
          else func_interpret(f, 2, args);
        }
        differs += memcmp(b[0], b[1], sizeof b[0]) != 0;
      }
      assert_int_equal(differs != 0, !apart);
    }
}

static int setup(void **state)
{
  *state = module_new(ctx_new());
  return 0;
}

static int teardown(void **state)
{
  Module *m = *state;
  Ctx *ctx = m->ctx;
  module_release(m);
  ctx_free(ctx);
  return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
    TEST(test_matmul), TEST(test_threads), TEST(test_virtual_threads), TEST(test_match_buffer), TEST(test_control),
    TEST(test_dtypes), TEST(test_strides), TEST(test_refusals),        TEST(test_stop),         TEST(test_shuffled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
