/* test_script.c: TVMScript printed and parsed; structural equality and hash; what
 * the parser says about text that is wrong. */
#include "tir/tir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

typedef struct Job {
  Module *m;
  const char *text;
  PrimFunc *f;
  int nnames;
  const ScriptName *names;
} Job;

static void parse_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *j = arg;
  j->f = func_parse(j->m, j->text, "test.py", 1, j->nnames, j->names);
}

static PrimFunc *parse_with(Module *m, const char *text, int nnames, const ScriptName *names)
{
  Job j = {m, text, NULL, nnames, names};
  if (protect(m->ctx, parse_job, &j)) {
    fprintf(stderr, "%d:%d: %s\n%s", error_loc(m->ctx).line, error_loc(m->ctx).col, error_message(m->ctx), text);
    fail();
  }
  return j.f;
}

static PrimFunc *parse(Module *m, const char *text) { return parse_with(m, text, 0, NULL); }

static void check_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  func_check(((Job *)arg)->f);
}

static const char *const matmul = "@T.prim_func\n"
                                  "def main(A: T.Buffer((8, 16), \"float32\"), B: T.Buffer((16, 4), \"float32\"), C: "
                                  "T.Buffer((8, 4), \"float32\")):\n"
                                  "    T.func_attr({\"tir.noalias\": T.bool(True)})\n"
                                  "    # with T.block(\"root\"):\n"
                                  "    for i, j, k in T.grid(8, 4, 16):\n"
                                  "        with T.block(\"C\"):\n"
                                  "            vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"
                                  "            T.reads(A[vi, vk], B[vk, vj])\n"
                                  "            T.writes(C[vi, vj])\n"
                                  "            with T.init():\n"
                                  "                C[vi, vj] = T.float32(0.0)\n"
                                  "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

static const char *const texts[] = {
  /* symbolic sizes, allocation, annotations */
  "@T.prim_func\n"
  "def f(a: T.handle, n: T.int32, b: T.handle):\n"
  "    m = T.int32()\n"
  "    A = T.match_buffer(a, (n, m))\n"
  "    B = T.match_buffer(b, (n, m), \"float32\", offset_factor=1)\n"
  "    C = T.alloc_buffer((n, m), scope=\"local\")\n"
  "    for i in T.parallel(n, annotations={\"pragma_x\": 1, \"list\": [1, 2]}):\n"
  "        for j in range(2, m):\n"
  "            with T.block(\"C\"):\n"
  "                vi = T.axis.spatial(n, i)\n"
  "                vj = T.axis.spatial((2, m), j)\n"
  "                T.where(i * 2 + j < n or not (i == j))\n"
  "                T.block_attr({\"k\": \"v\"})\n"
  "                C[vi, vj] = T.exp(A[vi, vj]) / T.max(A[vi, vj], T.float32(1e-3))\n"
  "    for i, j in T.grid(n, m):\n"
  "        with T.block(\"B\"):\n"
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"
  "            B[vi, vj] = T.if_then_else(vj >= 2, C[vi, vj], T.float32(\"-inf\"), dtype=\"float32\")\n",
  /* indices of two widths in one region */
  "@T.prim_func\n"
  "def widths(A: T.Buffer((4, 9), \"float32\"), V: T.Buffer((4,), \"float32\")):\n"
  "    for i, k in T.grid(4, 9):\n"
  "        with T.block(\"V\"):\n"
  "            vi, vk = T.axis.remap(\"SR\", [i, k])\n"
  "            with T.init():\n"
  "                V[vi] = T.float32(0)\n"
  "            V[vi] = T.Select(V[vi] >= A[T.int64(3), vk], V[vi], A[vi, vk])\n",
  /* lowered: flat views, lets, vectors, masks, while, bindings in the middle */
  "@T.prim_func\n"
  "def low(A: T.Buffer((4, 8), \"float32\"), B: T.Buffer((4, 8), \"float16\"), p: T.handle):\n"
  "    A_1 = T.Buffer((32,), data=A.data)\n"
  "    B_1 = T.Buffer((32,), \"float16\", data=B.data)\n"
  "    with T.decl_buffer((16,), scope=\"local\") as tmp:\n"
  "        tmp_1 = T.Buffer((4,), \"float32x4\", data=tmp.data, scope=\"local\")\n"
  "        tmp_1[0] = T.Broadcast(T.float32(1), 4)\n"
  "    with T.LetStmt(T.int64(5)) as x:\n"
  "        T.evaluate(x)\n"
  "    with T.attr(A.data, \"key\", 3):\n"
  "        T.evaluate(0)\n"
  "    T.attr(0, \"pragma\", \"value\")\n"
  "    s = T.decl_buffer((1,), \"int32\", place=\"stack\", offset=T.int64(64))\n"
  "    s[0] = 0\n"
  "    while s[0] < 4:\n"
  "        y: T.int32 = s[0] * 8\n"
  "        B_1[T.Ramp(y, 1, 8)] = T.Cast(\"float16x8\", A_1[T.Ramp(y, 1, 8)])\n"
  "        if y > 3 and s[0] == 2:\n"
  "            A_1.vstore([T.Ramp(y, 2, 4)], T.Broadcast(T.float32(2.5), 4), predicate=T.Ramp(0, 1, 4) < "
  "T.Broadcast(2, 4))\n"
  "        else:\n"
  "            T.call_extern(\"int32\", \"f\", T.address_of(A_1[y]), p, -3)\n"
  "        s[0] = s[0] + 1\n",
  /* blocks inside blocks, match_buffer, opaque axes, threads */
  "@T.prim_func(private=True)\n"
  "def g(A: T.Buffer((64, 64), \"int8\"), C: T.Buffer((64,), \"int32\")):\n"
  "    for bx in T.thread_binding(4, thread=\"blockIdx.x\"):\n"
  "        for tx in T.thread_binding(16, thread=\"threadIdx.x\"):\n"
  "            with T.block(\"outer\"):\n"
  "                vb = T.axis.spatial(4, bx)\n"
  "                vt = T.axis.opaque(16, tx)\n"
  "                T.reads(A[vb * 16:vb * 16 + 16, 0:64])\n"
  "                T.writes(C[vb * 16 + vt])\n"
  "                sub = T.match_buffer(A[vb * 16:vb * 16 + 16, 0:16], (16, 16), \"int8\", strides=[\"s0\", 1], "
  "elem_offset=\"off\", offset_factor=16)\n"
  "                with T.init():\n"
  "                    C[vb * 16 + vt] = 0\n"
  "                for k in T.unroll(16):\n"
  "                    with T.block(\"inner\"):\n"
  "                        vk = T.axis.reduce(16, k)\n"
  "                        T.reads(sub[vt, vk])\n"
  "                        T.writes(C[vb * 16 + vt])\n"
  "                        C[vb * 16 + vt] = C[vb * 16 + vt] + T.Cast(\"int32\", sub[vt, vk])\n"
  "                T.tvm_storage_sync(\"shared\")\n",
  /* literals and operators of all kinds */
  "@T.prim_func\n"
  "def lits(A: T.Buffer((4,), \"int64\"), F: T.Buffer((4,), \"float64\"), U: T.Buffer((4,), \"uint64\"), Z: "
  "T.Buffer((), \"bool\"),\n"
  "         n: T.int64, G: T.Buffer((2,), \"float8_e4m3fn\"), H: T.Buffer((2,), \"bfloat16\"), I4: T.Buffer((2,), "
  "\"int4\")):\n"
  "    Z[()] = T.bool(True) and (n < T.int64(3)) == (T.int64(3) < n < T.int64(9))\n"
  "    A[0] = T.int64(-9223372036854775808)\n"
  "    U[0] = T.uint64(18446744073709551615)\n"
  "    A[1] = n + T.truncdiv(T.int64(7), A[0]) - T.truncmod(A[1], A[2]) * (A[0] - (A[1] + A[2])) // A[3] % T.int64(5)\n"
  "    F[0] = T.float64(0.1) + T.float64(\"inf\") * T.float64(\"nan\") - -F[0] ** F[1]\n"
  "    A[2] = T.shift_left(A[0], T.int64(3)) | A[1] & ~A[2] ^ A[3]\n"
  "    A[3] = T.Select(A[0] < A[1], T.min(A[0], A[1]), T.reinterpret(\"int64\", F[0]))\n"
  "    F[1] = T.Cast(\"float64\", T.float16(1.5)) + T.fma(F[0], F[1], F[2])\n"
  "    F[2] = T.Let(z * z, where={z: F[0] + F[1]})\n"
  "    A[T.Add(1, 2)] = T.Cast(\"int64\", T.Mul(3, 4)) + T.Cast(\"int64\", T.LT(3, 4))\n"
  "    G[0] = T.float8_e4m3fn(0.3)\n"
  "    H[0] = T.Cast(\"bfloat16\", G[1]) + T.bfloat16(0.1)\n"
  "    I4[0] = T.int4(-8)\n"
  "    T.evaluate(T.likely(A[0] < A[1]))\n"
  "    T.evaluate(T.clz(A[0]) + T.vector_reduce_add(T.Ramp(1, 2, 4)))\n"
  "    T.prefetch(T.address_of(A[2]), 0, 3, 1)\n"
  "    T.tvm_call_packed(\"f\", T.tvm_access_ptr(T.type_annotation(\"int64\"), A.data, 0, 4, 1), \"text\\n\")\n"
  "    T.ret(0)\n",
};

static void round_trip(Module *m, const char *text)
{
  PrimFunc *f = parse(m, text);
  const char *printed = func_print(m->arena, f);
  const char *why = NULL;
  Module *other = module_new(m->ctx);
  PrimFunc *g = parse(other, printed);
  if (!func_equal(f, g, m->arena, &why)) {
    fprintf(stderr, "not equal: %s\n%s", why, printed);
    fail();
  }
  assert_true(func_hash(f) == func_hash(g));
  assert_string_equal(printed, func_print(other->arena, g));
  PrimFunc *h = func_import(other, f);
  assert_true(func_equal(f, h, m->arena, &why));
  assert_true(func_hash(f) == func_hash(h));
  Job j = {.f = h};
  if (protect(m->ctx, check_job, &j)) {
    fprintf(stderr, "%s\n%s", error_message(m->ctx), printed);
    fail();
  }
  assert_true(*func_print_compact(m->arena, f) != 0);
  module_release(other);
}

static void test_round_trip(void **state)
{
  Module *m = *state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) round_trip(m, texts[i]);
  assert_string_equal(func_print(m->arena, parse(m, matmul)), matmul);
}

/* Regions are inferred when they are left out. */
static void test_inferred_regions(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, "@T.prim_func\n"
                         "def main(A: T.Buffer((8, 16), \"float32\"), B: T.Buffer((16, 4), \"float32\"), C: "
                         "T.Buffer((8, 4), \"float32\")):\n"
                         "    T.func_attr({\"tir.noalias\": True})\n"
                         "    for x, y, z in T.grid(8, 4, 16):\n"
                         "        with T.block(\"C\"):\n"
                         "            a, b, c = T.axis.remap(\"SSR\", [x, y, z])\n"
                         "            with T.init():\n"
                         "                C[a, b] = 0.0\n"
                         "            C[a, b] += A[a, c] * B[c, b]\n");
  const char *why;
  assert_true(func_equal(f, parse(m, matmul), m->arena, &why));
}

static void test_names(void **state)
{
  Module *m = *state;
  const ScriptName list[] = {{NULL, NAME_INT, {.i = 3}}, {NULL, NAME_INT, {.i = 5}}};
  const ScriptName names[] = {
    {"M", NAME_INT, {.i = 8}},     {"alpha", NAME_FLOAT, {.f = 0.5}},         {"dtype", NAME_DTYPE, {.s = "float16"}},
    {"flag", NAME_BOOL, {.i = 1}}, {"sizes", NAME_LIST, {.list = {list, 2}}},
  };
  PrimFunc *f = parse_with(m,
                           "    @T.prim_func\n"
                           "    def f(A: T.Buffer((M, M * 2), dtype), B: T.Buffer((sizes[1],), \"int32\")):\n"
                           "        '''doc'''\n"
                           "        for i in range(M // sizes[0]):   # comment\n"
                           "            if flag:\n"
                           "                A[i, 0] = A[i,\n"
                           "                            1] * alpha\n"
                           "            else:\n"
                           "                A[i, 0] = 1.0\n",
                           5, names);
  const PrimFunc *g = parse(m, "@T.prim_func\n"
                               "def f(A: T.Buffer((8, 16), \"float16\"), B: T.Buffer((5,), \"int32\")):\n"
                               "    for i in range(2):\n"
                               "        A[i, 0] = A[i, 1] * T.float16(0.5)\n");
  const char *why = NULL;
  if (!func_equal(f, g, m->arena, &why)) fail_msg("%s\n%s", why, func_print(m->arena, f));
}

static void module_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *j = arg;
  tir_parse_module(j->m, j->text, "test.py", 1, 0, NULL);
}

static void test_module(void **state)
{
  Module *m = *state;
  Job j = {.m = m,
           .text = "from tvm.script import tir as T\n"
                   "@I.ir_module\n"
                   "class Module:\n"
                   "    @T.prim_func\n"
                   "    def one(A: T.Buffer((4,), \"int32\")):\n"
                   "        A[0] = 1\n"
                   "\n"
                   "    @T.prim_func\n"
                   "    def two(A: T.Buffer((4,), \"int32\")):\n"
                   "        A[0] = 2\n"};
  assert_int_equal(protect(m->ctx, module_job, &j), ERR_NONE);
  const char *text = tir_print_module(m->arena, m);
  Module *other = module_new(m->ctx);
  Job k = {.m = other, .text = text};
  assert_int_equal(protect(m->ctx, module_job, &k), ERR_NONE);
  assert_string_equal(tir_print_module(other->arena, other), text);
  assert_non_null(strstr(text, "    def two(A: T.Buffer((4,), \"int32\")):\n        A[0] = 2\n"));
  module_release(other);
}

static void test_compact(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, "@T.prim_func\n"
                         "def main(A: T.Buffer((8, 8), \"float32\"), C: T.Buffer((8, 8), \"float32\")):\n"
                         "    A_1 = T.Buffer((64,), data=A.data)\n"
                         "    C_1 = T.Buffer((64,), data=C.data)\n"
                         "    for i in T.parallel(8):\n"
                         "        for j in range(8):\n"
                         "            C_1[i * 8 + j] = T.float32(0)\n"
                         "            for k in T.unroll(8):\n"
                         "                C_1[i * 8 + j] = C_1[i * 8 + j] + A_1[i * 8 + k] * T.float32(1.5)\n");
  assert_string_equal(func_print_compact(m->arena, f), "parallel (i, 0, 8) {\n"
                                                       "  for (j, 0, 8) {\n"
                                                       "    C[i*8 + j] = 0f\n"
                                                       "    unrolled (k, 0, 8) {\n"
                                                       "      C[i*8 + j] = C[i*8 + j] + A[i*8 + k] * 1.5f\n"
                                                       "    }\n"
                                                       "  }\n"
                                                       "}\n");
}

/* A term used 2^40 times over is written, and read, in proportion to its nodes. */
static void test_sharing(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, "@T.prim_func\n"
                         "def main(A: T.Buffer((8,), \"float32\"), i: T.int32):\n"
                         "    A[i] = T.float32(1)\n");
  const Expr *e = f->body->u.store.value;
  const Expr *x = expr_load(m, f->param[0].buffer, 1, f->body->u.store.index);
  for (int k = 0; k < 40; k++) x = expr_add(m, expr_mul(m, x, x), e);
  f->body->u.store.value = x;
  const char *text = func_print(m->arena, f);
  const char *why = NULL;
  assert_true(strlen(text) < 20000);
  PrimFunc *g = parse(m, text);
  assert_true(func_equal(f, g, m->arena, &why));
}

static void test_unequal(void **state)
{
  Module *m = *state;
  /* clang-format off */
  static const struct { const char *from, *to, *why; } changes[] = {
      {"C[vi, vj] + A[vi, vk]", "C[vi, vj] + A[vi, vj]", "variable 'vk' stands where 'vj' does"},
      {"T.grid(8, 4, 16)", "T.grid(8, 4, 15)", "'16' and '15'"},
      {"\"SSR\"", "\"SSS\"", "block 'C': axis 'vk' differs in kind"},
      {"(16, 4), \"float32\"", "(16, 4), \"float16\"", NULL},
      {"\"tir.noalias\"", "\"other\"", "the function: annotation 'tir.noalias' is there on one side only"},
  };
  /* clang-format on */
  PrimFunc *f = parse(m, matmul);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const char *at = strstr(matmul, changes[i].from);
    assert_non_null(at);
    char text[2000];
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - matmul), matmul, changes[i].to, at + strlen(changes[i].from));
    Job j = {m, text, NULL, 0, NULL};
    if (protect(m->ctx, parse_job, &j)) {
      assert_null(changes[i].why); /* a product of two dtypes is refused already */
      continue;
    }
    const char *why = NULL;
    assert_false(func_equal(f, j.f, m->arena, &why));
    assert_true(func_hash(f) != func_hash(j.f));
    assert_non_null(why);
    if (changes[i].why) assert_string_equal(why, changes[i].why);
  }
}

/* What blocks are called does not count. */
static void test_block_names(void **state)
{
  Module *m = *state;
  char text[2000];
  const char *at = strstr(matmul, "T.block(\"C\")");
  assert_non_null(at);
  snprintf(text, sizeof text, "%.*sT.block(\"D\")%s", (int)(at - matmul), matmul, at + strlen("T.block(\"C\")"));
  PrimFunc *f = parse(m, matmul);
  PrimFunc *g = parse(m, text);
  const char *why = NULL;
  assert_true(func_equal(f, g, m->arena, &why));
  assert_true(func_hash(f) == func_hash(g));
}

#define HEAD "@T.prim_func\ndef f(A: T.Buffer((8,), \"float32\"), n: T.int32):\n"
static const struct {
  const char *text;
  int line, col;
  const char *message;
} errors[] = {
  {HEAD "    for i in range(8)\n        A[i] = 0.0\n", 3, 22,
   "expected ':' after the head of the statement, found the end of the line"},
  {HEAD "    A[m] = 0.0\n", 3, 7, "unknown name 'm'"},
  {HEAD "    for index in range(8):\n        A[indx] = 0.0\n", 4, 11, "unknown name 'indx'; did you mean 'index'?"},
  {HEAD "    A[0] = T.flor(A[1])\n", 3, 12, "unknown function 'T.flor'; did you mean 'T.floor'?"},
  {HEAD "    A[0, 1] = 1.0\n", 3, 5, "'A' has 1 dimension, 2 indices are given"},
  {HEAD "    A[0] = (1.0\n", 3, 12, "this '(' is never closed"},
  {HEAD "    A[0] = (1.0 2.0)\n", 3, 17, "expected ')' after a list, found '2.0'"},
  {HEAD "    A[0] = \"text\n", 3, 17, "the string that starts on line 3 does not end"},
  {HEAD "    A[0] = 99999999999999999999999\n", 3, 12, "the number does not fit 64 bits"},
  {HEAD "    A[0] = T.int8(300)\n", 3, 19, "300 does not fit int8"},
  {HEAD "    A[0] = n / 2\n", 3, 14, "'/' of integers is ambiguous; write '//' or T.truncdiv"},
  {HEAD "    T.reads(A[0])\n", 3, 5, "T.reads stands outside of a block; it belongs inside `with T.block(…):`"},
  {HEAD "    with T.block(\"b\"):\n        v = T.axis.spatal(8, n)\n        A[v] = 0.0\n", 4, 13,
   "unknown kind of axis 'spatal'; did you mean spatial"},
  {HEAD "    with T.block(\"b\"):\n        v, w = T.axis.remap(\"S\", [n])\n", 4, 16,
   "T.axis.remap: 2 names, 1 kinds, 1 loops; their numbers must agree"},
  {HEAD "    for i, j in T.grid(8):\n        A[i] = 0.0\n", 3, 5, "2 loop variables for a grid of 1 dimension"},
  {HEAD "      A[0] = 1.0\n    A[1] = 1.0\n", 4, 5, "this indentation matches no line above"},
  {HEAD "    A[0] = 1.0\n        A[1] = 1.0\n", 4, 9, "this line is indented more than the one above"},
  {HEAD "    assert n > 0\n", 3, 5,
   "'assert' is not supported in a loop program; check before the call, or write `if …: return 1`"},
  {HEAD "    A[0] = n == 1.0 $\n", 3, 21, "'$' has no meaning here"},
  {"@T.prim_func\ndef f(A):\n    pass\n", 2, 8, "parameter 'A' needs a type such as T.Buffer((8,), \"float32\")"},
  {"@T.prim_func\ndef f(A: T.Buffer((8,), \"float33\")):\n    pass\n", 2, 25,
   "unknown dtype \"float33\"; \"float32\", \"int8x16\" and \"bool\" are some"},
  {"@T.prim_func\ndef f(A: T.Buffer((8,), \"int32\", scop=\"local\")):\n    pass\n", 2, 39,
   "T.Buffer has no argument 'scop'; did you mean 'scope'?"},
  {HEAD "    n\n", 3, 5, "this line has no effect; T.evaluate(…) makes it a statement"},
  {HEAD "    T.evaluate(T.exp(n))\n", 3, 22, "exp wants a float, argument 1 is int32"},
  {HEAD, 3, 1, "expected an indented line after ':', found the end of the text"},
};

static void test_errors(void **state)
{
  Module *m = *state;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    Job j = {m, errors[i].text, NULL, 0, NULL};
    ErrKind kind = protect(m->ctx, parse_job, &j);
    if (kind == ERR_NONE || strcmp(error_message(m->ctx), errors[i].message) ||
        error_loc(m->ctx).line != errors[i].line || error_loc(m->ctx).col != errors[i].col)
      fail_msg("%s\ngot  %d:%d: %s\nwant %d:%d: %s", errors[i].text, error_loc(m->ctx).line, error_loc(m->ctx).col,
               kind ? error_message(m->ctx) : "no error", errors[i].line, errors[i].col, errors[i].message);
    assert_string_equal(error_loc(m->ctx).file, "test.py");
  }
}

static void test_deep(void **state)
{
  Module *m = *state;
  static char text[200000];
  static const struct {
    const char *head, *tail;
  } nests[] = {
    {"(", ")"},
    {"-", ""},
    {"not ", ""},
    {"T.exp(", ")"},
    {"[", "]"},
    {"A[", "]"},
    {"T.Let(", ", where={x: 1})"},
    {"1 if n else ", ""},
  };
  for (size_t k = 0; k < sizeof nests / sizeof *nests; k++) {
    int n = snprintf(text, sizeof text, HEAD "    A[0] = ");
    for (int i = 0; i < 5000; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s", nests[k].head);
    n += snprintf(text + n, sizeof text - (size_t)n, "0");
    for (int i = 0; i < 5000; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s", nests[k].tail);
    Job j = {m, text, NULL, 0, NULL};
    assert_int_equal(protect(m->ctx, parse_job, &j), ERR_PARSE);
    assert_string_equal(error_message(m->ctx), "nested too deep (more than 200 levels)");
  }
  int n = snprintf(text, sizeof text, HEAD "    A[0] = A[0]");
  for (int i = 0; i < 5000; i++) n += snprintf(text + n, sizeof text - (size_t)n, " + A[0]");
  Job j = {m, text, NULL, 0, NULL};
  assert_int_equal(protect(m->ctx, parse_job, &j), ERR_PARSE);
  assert_non_null(strstr(error_message(m->ctx), "nested too deep"));
  n = snprintf(text, sizeof text, HEAD);
  for (int i = 0; i < 5000; i++) n += snprintf(text + n, sizeof text - (size_t)n, "    x%d: T.int32 = n\n", i);
  assert_int_equal(protect(m->ctx, parse_job, &j), ERR_PARSE);
  assert_non_null(strstr(error_message(m->ctx), "bindings inside of each other"));
}

/* Every allocation may fail: a clean error, and the context stays usable. */
static void test_faults(void **state)
{
  (void)state;
  for (int64_t n = 1;; n++) {
    Ctx *ctx = ctx_new();
    Module *m = module_new(ctx);
    Job j = {m, texts[0], NULL, 0, NULL};
    mem_fail_after(ctx, n);
    ErrKind kind = protect(ctx, parse_job, &j);
    mem_fail_after(ctx, 0);
    if (kind != ERR_NONE) assert_int_equal(kind, ERR_MEMORY);
    Job again = {m, matmul, NULL, 0, NULL};
    assert_int_equal(protect(ctx, parse_job, &again), ERR_NONE);
    module_release(m);
    ctx_free(ctx);
    if (kind == ERR_NONE) break;
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
    TEST(test_round_trip), TEST(test_inferred_regions), TEST(test_names),       TEST(test_module), TEST(test_compact),
    TEST(test_sharing),    TEST(test_unequal),          TEST(test_block_names), TEST(test_errors), TEST(test_deep),
    TEST(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
