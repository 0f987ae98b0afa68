/* test_guards.c: where lowered text may hold a guard.
 *
 * A guard is an `if`, an if_then_else or a select; a parallel loop that chooses between
 * two whole bodies does not guard them.  Each row is a program, a schedule
 * (a trace) and what is allowed: nowhere, or in tails only, that is not in the leaf
 * statements that run most often.  Every row is also run by the interpreter, before
 * and after, on every pass. */
#include "lower/test_lower.h"
#include "schedule/schedule.h"

/* ---- programs; sizes M, N, K come from the row ------------------------------------------- */

static const char mm[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((M, K), 'float32'), B: T.Buffer((K, N), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
    "    for i, j, k in T.grid(M, N, K):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = T.float32(0)\n"
    "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";
static const char ew1[] = "@T.prim_func\n"
                          "def main(A: T.Buffer((M,), 'float32'), C: T.Buffer((M,), 'float32')):\n"
                          "    for i in range(M):\n"
                          "        with T.block('C'):\n"
                          "            vi = T.axis.remap('S', [i])\n"
                          "            C[vi] = A[vi] + T.float32(1)\n";
static const char ew2[] = "@T.prim_func\n"
                          "def main(A: T.Buffer((M, N), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
                          "    for i, j in T.grid(M, N):\n"
                          "        with T.block('C'):\n"
                          "            vi, vj = T.axis.remap('SS', [i, j])\n"
                          "            C[vi, vj] = A[vi, vj] + T.float32(1)\n";
static const char transposed[] = "@T.prim_func\n"
                                 "def main(A: T.Buffer((N, M), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
                                 "    for i, j in T.grid(M, N):\n"
                                 "        with T.block('C'):\n"
                                 "            vi, vj = T.axis.remap('SS', [i, j])\n"
                                 "            C[vi, vj] = A[vj, vi]\n";
static const char chain[] = "@T.prim_func\n"
                            "def main(A: T.Buffer((M, N), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
                            "    with T.block('root'):\n"
                            "        B = T.alloc_buffer((M, N), 'float32')\n"
                            "        for i, j in T.grid(M, N):\n"
                            "            with T.block('B'):\n"
                            "                vi, vj = T.axis.remap('SS', [i, j])\n"
                            "                B[vi, vj] = A[vi, vj] * T.float32(2)\n"
                            "        for i, j in T.grid(M, N):\n"
                            "            with T.block('C'):\n"
                            "                vi, vj = T.axis.remap('SS', [i, j])\n"
                            "                C[vi, vj] = B[vi, vj] + T.float32(1)\n";
static const char row_sum[] = "@T.prim_func\n"
                              "def main(A: T.Buffer((M, N), 'float32'), C: T.Buffer((M,), 'float32')):\n"
                              "    for i, k in T.grid(M, N):\n"
                              "        with T.block('C'):\n"
                              "            vi, vk = T.axis.remap('SR', [i, k])\n"
                              "            with T.init():\n"
                              "                C[vi] = T.float32(0)\n"
                              "            C[vi] = C[vi] + A[vi, vk]\n";
/* 3x3, padding 1, condition in the sum */
static const char conv_inline[] =
    "@T.prim_func\n"
    "def main(D: T.Buffer((M, N), 'float32'), W: T.Buffer((3, 3), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
    "    for i, j, r, s in T.grid(M, N, 3, 3):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vr, vs = T.axis.remap('SSRR', [i, j, r, s])\n"
    "            with T.init():\n"
    "                C[vi, vj] = T.float32(0)\n"
    "            C[vi, vj] = C[vi, vj] + T.if_then_else(vi + vr >= 1 and vi + vr < M + 1 and vj + vs >= 1 and vj + vs "
    "< N + 1,\n"
    "                D[vi + vr - 1, vj + vs - 1], T.float32(0)) * W[vr, vs]\n";
/* the same with the padded input in a buffer of its own */
static const char conv_pad[] =
    "@T.prim_func\n"
    "def main(D: T.Buffer((M, N), 'float32'), W: T.Buffer((3, 3), 'float32'), C: T.Buffer((M, N), 'float32')):\n"
    "    with T.block('root'):\n"
    "        P = T.alloc_buffer((M + 2, N + 2), 'float32')\n"
    "        for i, j in T.grid(M + 2, N + 2):\n"
    "            with T.block('P'):\n"
    "                vi, vj = T.axis.remap('SS', [i, j])\n"
    "                P[vi, vj] = T.if_then_else(vi >= 1 and vi < M + 1 and vj >= 1 and vj < N + 1, D[vi - 1, vj - 1], "
    "T.float32(0))\n"
    "        for i, j, r, s in T.grid(M, N, 3, 3):\n"
    "            with T.block('C'):\n"
    "                vi, vj, vr, vs = T.axis.remap('SSRR', [i, j, r, s])\n"
    "                with T.init():\n"
    "                    C[vi, vj] = T.float32(0)\n"
    "                C[vi, vj] = C[vi, vj] + P[vi + vr, vj + vs] * W[vr, vs]\n";
static const char pad_only[] = "@T.prim_func\n"
                               "def main(D: T.Buffer((M, N), 'float32'), C: T.Buffer((M + 2, N + 4), 'float32')):\n"
                               "    for i, j in T.grid(M + 2, N + 4):\n"
                               "        with T.block('C'):\n"
                               "            vi, vj = T.axis.remap('SS', [i, j])\n"
                               "            C[vi, vj] = T.if_then_else(vi >= 1 and vi < M + 1 and vj >= 2 and vj < N + "
                               "2, D[vi - 1, vj - 2], T.float32(0))\n";
static const char pool[] = "@T.prim_func\n"
                           "def main(D: T.Buffer((M, N), 'float32'), C: T.Buffer((M // 2, N // 2), 'float32')):\n"
                           "    for i, j, r, s in T.grid(M // 2, N // 2, 3, 3):\n"
                           "        with T.block('C'):\n"
                           "            vi, vj, vr, vs = T.axis.remap('SSRR', [i, j, r, s])\n"
                           "            with T.init():\n"
                           "                C[vi, vj] = T.float32('-inf')\n"
                           "            C[vi, vj] = T.max(C[vi, vj], T.if_then_else(vi * 2 + vr >= 1 and vj * 2 + vs "
                           ">= 1 and vi * 2 + vr < M + 1 and vj * 2 + vs < N + 1,\n"
                           "                D[vi * 2 + vr - 1, vj * 2 + vs - 1], T.float32('-inf')))\n";
static const char concat[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((M,), 'float32'), B: T.Buffer((N,), 'float32'), D: T.Buffer((K,), 'float32'), C: T.Buffer((M "
    "+ N + K,), 'float32')):\n"
    "    for i in range(M + N + K):\n"
    "        with T.block('C'):\n"
    "            vi = T.axis.remap('S', [i])\n"
    "            C[vi] = T.if_then_else(vi < M, A[vi], T.if_then_else(vi < M + N, B[vi - M], D[vi - (M + N)]))\n";
static const char sym1[] = "@T.prim_func\n"
                           "def main(a: T.handle, c: T.handle):\n"
                           "    n = T.int32()\n"
                           "    A = T.match_buffer(a, (n,), 'float32')\n"
                           "    C = T.match_buffer(c, (n,), 'float32')\n"
                           "    for i in range(n):\n"
                           "        with T.block('C'):\n"
                           "            vi = T.axis.remap('S', [i])\n"
                           "            C[vi] = A[vi] + T.float32(1)\n";
static const char sym2[] = "@T.prim_func\n"
                           "def main(a: T.handle, c: T.handle):\n"
                           "    n = T.int32()\n"
                           "    A = T.match_buffer(a, (n, N), 'float32')\n"
                           "    C = T.match_buffer(c, (n, N), 'float32')\n"
                           "    for i, j in T.grid(n, N):\n"
                           "        with T.block('C'):\n"
                           "            vi, vj = T.axis.remap('SS', [i, j])\n"
                           "            C[vi, vj] = A[vi, vj] + T.float32(1)\n";
static const char symmm[] = "@T.prim_func\n"
                            "def main(a: T.handle, b: T.handle, c: T.handle):\n"
                            "    n = T.int32()\n"
                            "    A = T.match_buffer(a, (n, K), 'float32')\n"
                            "    B = T.match_buffer(b, (K, N), 'float32')\n"
                            "    C = T.match_buffer(c, (n, N), 'float32')\n"
                            "    for i, j, k in T.grid(n, N, K):\n"
                            "        with T.block('C'):\n"
                            "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
                            "            with T.init():\n"
                            "                C[vi, vj] = T.float32(0)\n"
                            "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

/* ---- the table -------------------------------------------------------------------------------- */

typedef enum { NOWHERE_AT_ALL, IN_TAILS } Allowed;

typedef struct Row {
  const char *name, *program;
  int M, N, K; /* of symbolic programs M is the value of n */
  const char *trace;
  Allowed allowed;
} Row;

#define C1 "b = sch.get_block('C')\ni, = sch.get_loops(b)\n"
#define C2 "b = sch.get_block('C')\ni, j = sch.get_loops(b)\n"
#define C3 "b = sch.get_block('C')\ni, j, k = sch.get_loops(b)\n"
#define C4 "b = sch.get_block('C')\ni, j, r, s = sch.get_loops(b)\n"

static const Row rows[] = {
  /* split */
  {"plain loop", ew1, 40, 0, 0, "", NOWHERE_AT_ALL},
  {"split, perfect", ew1, 40, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"split, imperfect", ew1, 43, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"split by nparts, perfect", ew1, 40, 0, 0, C1 "io, ii = sch.split(i, [5, None])\n", NOWHERE_AT_ALL},
  {"split by nparts, imperfect", ew1, 43, 0, 0, C1 "io, ii = sch.split(i, [5, None])\n", NOWHERE_AT_ALL},
  {"split larger than the loop", ew1, 5, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"split twice, perfect", ew1, 48, 0, 0, C1 "io, ii = sch.split(i, [None, 16])\na, c = sch.split(ii, [None, 4])\n",
   NOWHERE_AT_ALL},
  {"split twice, outer imperfect", ew1, 43, 0, 0,
   C1 "io, ii = sch.split(i, [None, 16])\na, c = sch.split(ii, [None, 4])\n", IN_TAILS},
  {"split twice, both imperfect", ew1, 43, 0, 0,
   C1 "io, ii = sch.split(i, [None, 10])\na, c = sch.split(ii, [None, 4])\n", IN_TAILS},
  {"split in three, perfect", ew1, 60, 0, 0, C1 "x, y, z = sch.split(i, [None, 5, 4])\n", NOWHERE_AT_ALL},
  {"split in three, imperfect", ew1, 67, 0, 0, C1 "x, y, z = sch.split(i, [None, 5, 4])\n", IN_TAILS},
  {"split of prime by prime", ew1, 37, 0, 0, C1 "io, ii = sch.split(i, [None, 7])\n", NOWHERE_AT_ALL},
  /* kinds of loops */
  {"vector, perfect", ew1, 64, 0, 0, C1 "io, ii = sch.split(i, [None, 16])\nsch.vectorize(ii)\n", NOWHERE_AT_ALL},
  {"vector, imperfect", ew1, 70, 0, 0, C1 "io, ii = sch.split(i, [None, 16])\nsch.vectorize(ii)\n", NOWHERE_AT_ALL},
  {"vector of a whole odd loop", ew1, 23, 0, 0, C1 "sch.vectorize(i)\n", NOWHERE_AT_ALL},
  {"unrolled, imperfect", ew1, 43, 0, 0, C1 "io, ii = sch.split(i, [None, 4])\nsch.unroll(ii)\n", NOWHERE_AT_ALL},
  {"parallel, imperfect", ew1, 83, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\nsch.parallel(io)\n", NOWHERE_AT_ALL},
  {"parallel and vector, imperfect", ew1, 133, 0, 0,
   C1 "io, ii = sch.split(i, [None, 8])\nsch.parallel(io)\nsch.vectorize(ii)\n", NOWHERE_AT_ALL},
  {"parallel, few pieces", ew1, 50, 0, 0, C1 "io, ii = sch.split(i, [None, 16])\nsch.parallel(io)\n", IN_TAILS},
  /* tile */
  {"tile, perfect", ew2, 16, 24, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect in i", ew2, 18, 24, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect in j", ew2, 16, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect in both", ew2, 18, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect, vector", ew2, 18, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, "
      "ji)\nsch.vectorize(ji)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect, vector and parallel", ew2, 70, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, "
      "ji)\nsch.vectorize(ji)\nsch.parallel(io)\n",
   NOWHERE_AT_ALL},
  {"tile, imperfect, unrolled", ew2, 18, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, "
      "ji)\nsch.unroll(ii)\nsch.vectorize(ji)\n",
   NOWHERE_AT_ALL},
  {"tile, inner loops swapped", ew2, 18, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(jo, io, ji, ii)\n",
   NOWHERE_AT_ALL},
  {"tile of a transpose, imperfect", transposed, 18, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"two levels of tiles, perfect", ew2, 32, 32, 0,
   C2 "i0, i1, i2 = sch.split(i, [None, 2, 4])\nj0, j1, j2 = sch.split(j, [None, 2, 8])\nsch.reorder(i0, j0, i1, j1, "
      "i2, j2)\n",
   NOWHERE_AT_ALL},
  {"two levels of tiles, imperfect", ew2, 37, 45, 0,
   C2 "i0, i1, i2 = sch.split(i, [None, 2, 4])\nj0, j1, j2 = sch.split(j, [None, 2, 8])\nsch.reorder(i0, j0, i1, j1, "
      "i2, j2)\n",
   IN_TAILS},
  /* fuse and reorder */
  {"fuse", ew2, 9, 13, 0, C2 "f = sch.fuse(i, j)\n", NOWHERE_AT_ALL},
  {"reorder", ew2, 9, 13, 0, C2 "sch.reorder(j, i)\n", NOWHERE_AT_ALL},
  {"fuse, split perfect", ew2, 8, 12, 0, C2 "f = sch.fuse(i, j)\nfo, fi = sch.split(f, [None, 16])\n", NOWHERE_AT_ALL},
  {"fuse, split imperfect", ew2, 9, 13, 0, C2 "f = sch.fuse(i, j)\nfo, fi = sch.split(f, [None, 16])\n",
   NOWHERE_AT_ALL},
  {"fuse, split imperfect, vector", ew2, 9, 13, 0,
   C2 "f = sch.fuse(i, j)\nfo, fi = sch.split(f, [None, 16])\nsch.vectorize(fi)\n", NOWHERE_AT_ALL},
  {"split, then fuse outer loops", ew2, 16, 24, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\nf = "
      "sch.fuse(io, jo)\nsch.parallel(f)\n",
   NOWHERE_AT_ALL},
  {"split imperfect, then fuse inner loops", ew2, 18, 24, 0,
   C2 "io, ii = sch.split(i, [None, 4])\nf = sch.fuse(ii, j)\n", IN_TAILS},
  {"reorder of a reduction", mm, 8, 9, 10, C3 "sch.reorder(k, i, j)\n", NOWHERE_AT_ALL},
  /* matmul */
  {"matmul, naive", mm, 8, 9, 10, "", NOWHERE_AT_ALL},
  {"matmul, tiled perfect", mm, 16, 16, 16,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\n",
   NOWHERE_AT_ALL},
  {"matmul, tiled, i imperfect", mm, 18, 16, 16,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\n",
   NOWHERE_AT_ALL},
  {"matmul, tiled, k imperfect", mm, 16, 16, 15,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\n",
   NOWHERE_AT_ALL},
  {"matmul, tiled, all imperfect", mm, 18, 19, 15,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\n",
   NOWHERE_AT_ALL},
  {"matmul, tiled, all imperfect, vector, unrolled", mm, 18, 19, 15,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ki, ji)\nsch.vectorize(ji)\nsch.unroll(ki)\n",
   NOWHERE_AT_ALL},
  {"matmul of the lesson, perfect", mm, 32, 32, 16,
   C3 "io, ii = sch.split(i, [None, 16])\njo, ji = sch.split(j, [None, 16])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\njii, jiv = sch.split(ji, [None, 8])\nsch.reorder(jii, ki, "
      "jiv)\nsch.vectorize(jiv)\nsch.parallel(io)\nsch.unroll(ki)\n",
   NOWHERE_AT_ALL},
  {"matmul of the lesson, imperfect", mm, 37, 39, 18,
   C3 "io, ii = sch.split(i, [None, 16])\njo, ji = sch.split(j, [None, 16])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ji, ki)\njii, jiv = sch.split(ji, [None, 8])\nsch.reorder(jii, ki, "
      "jiv)\nsch.vectorize(jiv)\nsch.parallel(io)\nsch.unroll(ki)\n",
   IN_TAILS},
  {"matmul, init apart, imperfect", mm, 18, 19, 15,
   C3 "io, ii = sch.split(i, [None, 4])\nko, ki = sch.split(k, [None, 4])\nsch.reorder(io, j, ko, ii, ki)\nz = "
      "sch.decompose_reduction(b, ko)\n",
   NOWHERE_AT_ALL},
  {"matmul, cached write, perfect", mm, 16, 16, 8,
   C3 "c = sch.cache_write(b, 0, 'local')\ni, j, k = sch.get_loops(b)\nio, ii = sch.split(i, [None, 4])\njo, ji = "
      "sch.split(j, [None, 8])\nsch.reorder(io, jo, k, ii, ji)\nsch.reverse_compute_at(c, jo)\n",
   NOWHERE_AT_ALL},
  {"matmul, cached write, imperfect", mm, 18, 19, 7,
   C3 "c = sch.cache_write(b, 0, 'local')\ni, j, k = sch.get_loops(b)\nio, ii = sch.split(i, [None, 4])\njo, ji = "
      "sch.split(j, [None, 8])\nsch.reorder(io, jo, k, ii, ji)\nsch.reverse_compute_at(c, jo)\n",
   IN_TAILS},
  /* reductions */
  {"row sum, k perfect", row_sum, 7, 32, 0, C2 "ko, ki = sch.split(j, [None, 8])\n", NOWHERE_AT_ALL},
  {"row sum, k imperfect", row_sum, 7, 37, 0, C2 "ko, ki = sch.split(j, [None, 8])\n", NOWHERE_AT_ALL},
  {"row sum, factored, imperfect", row_sum, 7, 37, 0, C2 "ko, ki = sch.split(j, [None, 8])\nrf = sch.rfactor(ki, 1)\n",
   NOWHERE_AT_ALL},
  {"row sum, k imperfect outside", row_sum, 9, 37, 0, C2 "ko, ki = sch.split(j, [None, 8])\nsch.reorder(ko, i, ki)\n",
   NOWHERE_AT_ALL},
  /* stages */
  {"compute_at, perfect tile", chain, 16, 24, 0,
   "p = sch.get_block('B')\n" C2 "io, ii = sch.split(i, [None, 4])\nsch.compute_at(p, io)\n", NOWHERE_AT_ALL},
  {"compute_at, imperfect tile", chain, 18, 24, 0,
   "p = sch.get_block('B')\n" C2 "io, ii = sch.split(i, [None, 4])\nsch.compute_at(p, io)\n", NOWHERE_AT_ALL},
  {"compute_at, imperfect tile in both", chain, 18, 27, 0,
   "p = sch.get_block('B')\n" C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, "
   "jo, ii, ji)\nsch.compute_at(p, jo)\n",
   IN_TAILS},
  {"inlined stage, imperfect tile", chain, 18, 27, 0,
   "p = sch.get_block('B')\nsch.compute_inline(p)\n" C2
   "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  /* padding */
  {"padding alone", pad_only, 12, 12, 0, "", NOWHERE_AT_ALL},
  {"padding, rows split", pad_only, 30, 12, 0, C2 "io, ii = sch.split(i, [None, 4])\n", NOWHERE_AT_ALL},
  {"padding, columns split", pad_only, 12, 30, 0, C2 "jo, ji = sch.split(j, [None, 4])\n", NOWHERE_AT_ALL},
  {"padding, parallel rows", pad_only, 30, 12, 0, C2 "sch.parallel(i)\n", NOWHERE_AT_ALL},
  {"padding, columns as vectors", pad_only, 10, 44, 0, C2 "jo, ji = sch.split(j, [None, 8])\nsch.vectorize(ji)\n",
   NOWHERE_AT_ALL},
  {"padded convolution, condition inside", conv_inline, 14, 14, 0, "", IN_TAILS},
  {"padded convolution, tiled perfect", conv_inline, 16, 16, 0,
   C4 "io, ii = sch.split(i, [None, 2])\njo, ji = sch.split(j, [None, 2])\nsch.reorder(io, jo, ii, ji, r, s)\n",
   IN_TAILS},
  {"padded convolution, tiled imperfect", conv_inline, 17, 19, 0,
   C4 "io, ii = sch.split(i, [None, 2])\njo, ji = sch.split(j, [None, 4])\nsch.reorder(io, jo, ii, ji, r, s)\n",
   IN_TAILS},
  {"padded convolution, kernel unrolled", conv_inline, 12, 12, 0, C4 "sch.unroll(r)\nsch.unroll(s)\n", NOWHERE_AT_ALL},
  {"padded convolution, vector columns", conv_inline, 10, 40, 0,
   C4 "jo, ji = sch.split(j, [None, 8])\nsch.reorder(i, jo, r, s, ji)\nsch.vectorize(ji)\n", IN_TAILS},
  {"padded convolution, parallel rows", conv_inline, 24, 12, 0, C4 "sch.parallel(i)\n", IN_TAILS},
  {"padded convolution, own buffer", conv_pad, 12, 12, 0, "", NOWHERE_AT_ALL},
  {"padded convolution, padding at rows", conv_pad, 14, 12, 0, "p = sch.get_block('P')\n" C4 "sch.compute_at(p, i)\n",
   IN_TAILS},
  {"padded convolution, padding inlined", conv_pad, 14, 14, 0, "p = sch.get_block('P')\nsch.compute_inline(p)\n",
   IN_TAILS},
  {"pool with padding", pool, 20, 20, 0, "", IN_TAILS},
  {"pool with padding, split", pool, 24, 24, 0, C4 "io, ii = sch.split(i, [None, 2])\n", IN_TAILS},
  {"concat of three", concat, 10, 12, 14, "", NOWHERE_AT_ALL},
  {"concat of three, parallel", concat, 10, 12, 14, C1 "sch.parallel(i)\n", NOWHERE_AT_ALL},
  /* symbolic extents */
  {"symbolic, plain", sym1, 13, 0, 0, "", NOWHERE_AT_ALL},
  {"symbolic, split", sym1, 43, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"symbolic, split, exact size", sym1, 40, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"symbolic, split, small size", sym1, 3, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\n", NOWHERE_AT_ALL},
  {"symbolic, vector", sym1, 43, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\nsch.vectorize(ii)\n", IN_TAILS},
  {"symbolic, shorter than a vector", sym1, 5, 0, 0, C1 "io, ii = sch.split(i, [None, 8])\nsch.vectorize(ii)\n",
   IN_TAILS},
  {"symbolic, several vectors", sym1, 87, 0, 0, C1 "io, ii = sch.split(i, [None, 64])\nsch.vectorize(ii)\n", IN_TAILS},
  {"symbolic, parallel and vector", sym1, 43, 0, 0,
   C1 "io, ii = sch.split(i, [None, 8])\nsch.parallel(io)\nsch.vectorize(ii)\n", NOWHERE_AT_ALL},
  {"symbolic rows, split", sym2, 13, 10, 0, C2 "io, ii = sch.split(i, [None, 4])\n", NOWHERE_AT_ALL},
  {"symbolic rows, tile", sym2, 13, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, ji)\n",
   NOWHERE_AT_ALL},
  {"symbolic rows, tile with vectors", sym2, 13, 27, 0,
   C2 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nsch.reorder(io, jo, ii, "
      "ji)\nsch.vectorize(ji)\nsch.unroll(ii)\n",
   NOWHERE_AT_ALL},
  {"symbolic matmul, split", symmm, 13, 10, 6, C3 "io, ii = sch.split(i, [None, 4])\n", NOWHERE_AT_ALL},
  {"symbolic matmul, tiled", symmm, 13, 18, 7,
   C3 "io, ii = sch.split(i, [None, 4])\njo, ji = sch.split(j, [None, 8])\nko, ki = sch.split(k, [None, "
      "4])\nsch.reorder(io, jo, ko, ii, ki, ji)\nsch.vectorize(ji)\n",
   NOWHERE_AT_ALL},
};
enum { NROWS = sizeof rows / sizeof *rows };

/* ---- looking for guards -------------------------------------------------------------------------- */

typedef struct Leaves {
  World *w;
  double iterations; /* of the loops around the statement at hand */
  int guards;        /* conditions around it */
  int any;           /* guards seen at all */
  double most;       /* iterations of the busiest leaf */
  bool busiest_guarded;
  Map ranges;
} Leaves;

/* Extent of a loop; what depends on n or on other loops is bounded from above. */
static double trips(Leaves *l, const Expr *extent)
{
  EvalEnv env = {.m = l->w->m, .arena = scratch(l->w->ctx)};
  const Var **vars;
  int n = expr_free_vars(scratch(l->w->ctx), extent, &vars);
  for (int i = 0; i < n; i++)
    expr_eval_bind(&env, vars[i], value_int(vars[i]->dtype, !strcmp(vars[i]->name, "n") ? 1000 : 0));
  int64_t v = expr_eval(&env, extent, 0).i;
  return v > 0 ? (double)v : 0;
}

static void count_choices(void *env, const Expr *e)
{
  if (e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE)) ++*(int *)env;
}

static void leaf(Leaves *l, const Stmt *s)
{
  int choices = 0;
  int lanes = s->u.store.index[0]->dtype.lanes;
  expr_visit(l->w->ctx, s->u.store.value, count_choices, &choices);
  l->any += choices;
  double n = l->iterations * lanes;
  bool guarded = l->guards + choices > 0;
  if (n > l->most || (n == l->most && guarded)) {
    l->most = n;
    l->busiest_guarded = guarded;
  }
}

/* Does a branch run where n is as large as trips takes it to be?  Where the condition is about something else, yes. */
static bool may_run(Leaves *l, const Expr *cond, bool taken)
{
  const Var **vars;
  int n = expr_free_vars(scratch(l->w->ctx), cond, &vars);
  for (int i = 0; i < n; i++)
    if (strcmp(vars[i]->name, "n")) return true;
  return (trips(l, cond) > 0) == taken;
}

static void visit(Leaves *l, Stmt *s)
{
  double outer = l->iterations;
  Stmt **slot[2];
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) visit(l, s->u.seq.v[i]);
    return;
  case S_STORE: leaf(l, s); return;
  case S_FOR:
    l->iterations *= trips(l, s->u.loop.extent);
    visit(l, s->u.loop.body);
    l->iterations = outer;
    return;
  case S_IF: {
    const Stmt *p = s->parent;
    while (p && p->kind == S_IF) p = p->parent;
    bool chooses = s->u.cond.orelse && p && p->kind == S_FOR && p->u.loop.kind == FOR_PARALLEL;
    l->any++;
    l->guards += !chooses;
    if (may_run(l, s->u.cond.cond, true)) visit(l, s->u.cond.then);
    if (s->u.cond.orelse && may_run(l, s->u.cond.cond, false)) visit(l, s->u.cond.orelse);
    l->guards -= !chooses;
    return;
  }
  case S_LET:
  case S_ALLOC:
  case S_ATTR:
  case S_WHILE:
    stmt_children(s, slot, 2);
    visit(l, *slot[0]);
    return;
  case S_EVAL:
  case S_BLOCK: return;
  }
}

/* ---- running the rows -------------------------------------------------------------------------------- */

static void free_sched(void *s) { sched_free(s); }

static const Row *row;

static void run_row(World *w)
{
  ScriptName names[] = {{.name = "M", .kind = NAME_INT, .u.i = row->M},
                        {.name = "N", .kind = NAME_INT, .u.i = row->N},
                        {.name = "K", .kind = NAME_INT, .u.i = row->K}};
  PrimFunc *f = func_parse(w->m, row->program, row->name, 1, 3, names);
  Sched *s = sched_new(f, 1);
  defer(w->ctx, free_sched, s);
  sched_replay(s, row->trace);
  World own = {.ctx = w->ctx, .m = sched_module(s)};
  Size sizes[] = {{"n", row->M}, {NULL, 0}};
  same_meaning(&own, sched_func(s), WIDE, sizes, 1e-6);
  PrimFunc *g = loops(&own, sched_func(s));
  Leaves l = {.w = &own, .iterations = 1};
  visit(&l, g->body);
  const char *text = func_print_compact(scratch(w->ctx), g);
  if (row->allowed == NOWHERE_AT_ALL && l.any) fail_msg("%s: %d guards, none allowed:\n%s", row->name, l.any, text);
  if (l.busiest_guarded) fail_msg("%s: a guard in the main body:\n%s", row->name, text);
  assert_true(l.most > 0);
}

static void run(void **state)
{
  row = *state;
  assert_int_equal(world(run_row, NULL, 0), ERR_NONE);
}

int main(void)
{
  struct CMUnitTest tests[NROWS];
  for (int i = 0; i < NROWS; i++)
    tests[i] =
        (struct CMUnitTest){.name = rows[i].name, .test_func = run, .initial_state = (void *)(uintptr_t)&rows[i]};
  _Static_assert(NROWS >= 60, "the list has at least 60 cases");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
