/* Loops beside each other, padding taken apart, caches by a map, elements of another dtype. */
#include "schedule/test_schedule.h"

/* B and C of one A; D of both */
#define SIBLINGS                                                                                                      \
  "@T.prim_func\n"                                                                                                    \
  "def main(A: T.Buffer((8, 6), \"float32\"), C: T.Buffer((8, 6), \"float32\"), D: T.Buffer((8, 6), \"float32\")):\n" \
  "    B = T.alloc_buffer((8, 6))\n"                                                                                  \
  "    for i, j in T.grid(8, 6):\n"                                                                                   \
  "        with T.block(\"B\"):\n"                                                                                    \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                                               \
  "            B[vi, vj] = A[vi, vj] + T.float32(1)\n"                                                                \
  "    for i, j in T.grid(8, 6):\n"                                                                                   \
  "        with T.block(\"C\"):\n"                                                                                    \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                                               \
  "            C[vi, vj] = B[vi, vj] * T.float32(2)\n"                                                                \
  "    for i, j in T.grid(8, 6):\n"                                                                                   \
  "        with T.block(\"D\"):\n"                                                                                    \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                                               \
  "            D[vi, vj] = B[7 - vi, vj] - A[vi, vj]\n"

#define BLOCKS "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nb2 = sch.get_block(\"D\")\n"
#define LOOPS BLOCKS "l3, l4 = sch.get_loops(b0)\nl5, l6 = sch.get_loops(b1)\nl7, l8 = sch.get_loops(b2)\n"

/* Y pads X by 3 on the left and 2 on the right; Z sums windows of it */
#define PADDED                                                                                 \
  "@T.prim_func\n"                                                                             \
  "def main(X: T.Buffer((2, 10), \"float32\"), Z: T.Buffer((2, 12), \"float32\")):\n"          \
  "    Y = T.alloc_buffer((2, 15))\n"                                                          \
  "    for i, j in T.grid(2, 15):\n"                                                           \
  "        with T.block(\"Y\"):\n"                                                             \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                        \
  "            Y[vi, vj] = T.if_then_else(3 <= vj and vj < 13, X[vi, vj - 3], T.float32(5))\n" \
  "    for i, j in T.grid(2, 12):\n"                                                           \
  "        with T.block(\"Z\"):\n"                                                             \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                        \
  "            Z[vi, vj] = Y[vi, vj] + Y[vi, vj + 3]\n"

static void merging(void **state)
{
  (void)state;
  APPLIES(SIBLINGS, LOOPS "sch.merge(l3, l5)\n", "for i_m in range(8)");
  APPLIES(SIBLINGS, LOOPS "l9 = sch.merge(l4, l6)\nsch.vectorize(l9)\n", "for i_m in range(8)",
          "for j_m in T.vectorized(6)");
  APPLIES(SIBLINGS, LOOPS "sch.merge(l5, l7)\n", "for i_m in range(8)");
  refuses(SIBLINGS, LOOPS, "sch.merge(l3, l5, l7)\n", ERR_SCHEDULE,
          "block 'D' reads buffer 'B' where block 'B' writes");
  refuses(SIBLINGS, LOOPS, "sch.merge(l3, l7)\n", ERR_SCHEDULE, "loop 'i' does not come right behind");
  refuses(SIBLINGS, LOOPS, "sch.merge(l3, l6)\n", ERR_SCHEDULE, "is 1 loops deep and");
  refuses(SIBLINGS, LOOPS "l9, l10 = sch.split(l5, [2, 4])\n", "sch.merge(l3, l9)\n", ERR_SCHEDULE, "has 8 steps and");
  refuses(SIBLINGS, LOOPS, "sch.merge(l3)\n", ERR_ARGUMENT, "wants two loops or more, got 1");
}

static void partitioning(void **state)
{
  (void)state;
  APPLIES(SIBLINGS, LOOPS "l9, l10, l11 = sch.loop_partition(l3, [2, 5])\nsch.parallel(l10)\n",
          "with T.block(\"B_i0\")", "for i1 in T.parallel(2, 7)", "for i2 in range(7, 8)");
  APPLIES(SIBLINGS, LOOPS "l9, l10 = sch.loop_partition(l6, [None, 4])\n", "for j0 in range(2)",
          "for j1 in range(2, 6)");
  /* the parts of a reduction: the init runs with the first */
  APPLIES(MATMUL(4, 4, 7), "b0 = sch.get_block(\"C\")\nl1, l2, l3 = sch.get_loops(b0)\nsch.loop_partition(l3, [3])\n",
          "for k0 in range(3)", "for k1 in range(3, 7)");
  refuses(SIBLINGS, LOOPS "l9, l10 = sch.loop_partition(l3, [2, 6])\n", "sch.reverse_compute_at(b1, l10)\n",
          ERR_SCHEDULE, "only a part of buffer 'B' is written under loop 'i1', and block 'C' reads all of it");
  refuses(SIBLINGS, LOOPS "l9, l10 = sch.split(l3, [2, 4])\n", "sch.loop_partition(l10, [1])\n", ERR_SCHEDULE,
          "does not decide alone");
  refuses(SIBLINGS, LOOPS, "sch.loop_partition(l3, [4, 5])\n", ERR_ARGUMENT, "add up to more than the 8 steps");
  refuses(SIBLINGS, LOOPS, "sch.loop_partition(l3, [8, None])\n", ERR_ARGUMENT, "nothing is left of loop 'i'");
  refuses(SIBLINGS, LOOPS, "sch.loop_partition(l3, [None, None])\n", ERR_ARGUMENT, "are both None");
  refuses(SIBLINGS, LOOPS "sch.parallel(l3)\n", "sch.loop_partition(l3, [4])\n", ERR_SCHEDULE, "marked or annotated");
}

#define PAD \
  "b0 = sch.get_block(\"Y\")\nb1 = sch.get_block(\"Z\")\nl2, l3 = sch.get_loops(b0)\nl4, l5 = sch.get_loops(b1)\n"

static void padding(void **state)
{
  (void)state;
  APPLIES(PADDED, PAD "b6 = sch.decompose_padding(b0, l2)\n", "with T.block(\"Y_pad_const\")",
          "Y[vi_1, vj_1 + 3] = X[vi_1, vj_1]", "in T.grid(2, 10)");
  APPLIES(PADDED, PAD "sch.decompose_padding(b0, l3)\n", "in range(15)", "in range(10)");
  /* a loop that is more than the variable: its limits stay as a predicate */
  APPLIES(PADDED, PAD "l6, l7 = sch.split(l3, [None, 4])\nsch.decompose_padding(b0, l2)\n", "T.where(3 <= j_0");
  /* under a loop that its reader shares, each row is filled before it is read */
  APPLIES(PADDED, PAD "sch.compute_at(b0, l4)\nsch.decompose_padding(b0, l4)\n", "with T.block(\"Y_pad_const\")");
  refuses(PADDED, PAD, "sch.decompose_padding(b1, l4)\n", ERR_SCHEDULE, "block 'Z' does not pad");
  refuses(PADDED, PAD, "sch.decompose_padding(b0, l4)\n", ERR_SCHEDULE, "loop 'i' is not around block 'Y'");
}

static void caches_by_a_map(void **state)
{
  (void)state;
  APPLIES(SIBLINGS, BLOCKS "sch.reindex_cache_read(b1, 0, \"local\", lambda i, j: (j, i // 2, i % 2))\n",
          "B_local = T.alloc_buffer((6, 4, 2), scope=\"local\")", "B_local[vj_1, vi_1//2, vi_1%2] * T.float32(2.0)");
  APPLIES(SIBLINGS, BLOCKS "sch.reindex_cache_write(b0, 0, \"shared\", lambda i, j: (j, i))\n",
          "B_shared[vj, vi] = A[vi, vj]");
  APPLIES(MATMUL(4, 6, 8),
          "b0 = sch.get_block(\"C\")\nsch.reindex_cache_write(b0, 0, \"local\", lambda i, j, k: (j, i))\n"
          "sch.reindex_cache_read(b0, 0, \"local\", lambda i, j, k: (k, i))\n",
          "C_local[vj, vi] = C_local[vj, vi] + A_local[vk, vi] * B[vk, vj]");
  refuses(SIBLINGS, BLOCKS, "sch.reindex_cache_read(b1, 0, \"local\", lambda i, j: j * 2)\n", ERR_SCHEDULE,
          "may use an element of buffer 'B_local' twice");
  refuses(SIBLINGS, BLOCKS, "sch.reindex_cache_write(b0, 0, \"local\", lambda i, j: i)\n", ERR_SCHEDULE,
          "may use an element of buffer 'B_local' twice");
  refuses(MATMUL(4, 6, 8), "b0 = sch.get_block(\"C\")\n",
          "sch.reindex_cache_write(b0, 0, \"local\", lambda i, j, k: (k, j, i))\n", ERR_SCHEDULE,
          "the map uses 'vk', and block 'C' writes buffer 'C' without it");
}

static void other_dtypes(void **state)
{
  (void)state;
  /* every float32 is a float64, so nothing is rounded */
  APPLIES(SIBLINGS, BLOCKS "sch.unsafe_set_dtype(b0, 0, \"float64\")\n", "B = T.alloc_buffer((8, 6), \"float64\")",
          "T.Cast(\"float64\", A[vi, vj] + T.float32(1.0))", "T.Cast(\"float32\", B[vi_1, vj_1]) * T.float32(2.0)");
  refuses(SIBLINGS, BLOCKS, "sch.unsafe_set_dtype(b1, 0, \"float64\")\n", ERR_SCHEDULE, "buffer 'C' is a parameter");
  refuses(SIBLINGS, BLOCKS, "sch.unsafe_set_dtype(b0, 0, \"float65\")\n", ERR_ARGUMENT, "'float65' is no dtype");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(merging),         cmocka_unit_test(partitioning), cmocka_unit_test(padding),
    cmocka_unit_test(caches_by_a_map), cmocka_unit_test(other_dtypes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
