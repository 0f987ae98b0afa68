/* split, fuse, reorder, kinds of loops: what they give and what they refuse. */
#include "schedule/test_schedule.h"

#define GET "b0 = sch.get_block(\"C\")\nl1, l2, l3 = sch.get_loops(b0)\n"
#define GET2 \
  "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, l3 = sch.get_loops(b0)\nl4, l5 = sch.get_loops(b1)\n"

static void split_perfect(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 12, 5), GET "l4, l5 = sch.split(l1, [None, 4])\nl6, l7, l8 = sch.split(l2, [2, None, 3])\n",
          "T.grid(2, 4, 2, 2, 3, 5)");
}

static void split_imperfect(void **state)
{
  (void)state;
  APPLIES(MATMUL(7, 5, 11), GET "l4, l5 = sch.split(l1, [None, 4])\nl6, l7 = sch.split(l3, [3, None])\n", "T.where(");
}

static void split_refused(void **state)
{
  (void)state;
  refuses(MATMUL(8, 8, 8), GET, "sch.split(l1, [None, 0])\n", ERR_ARGUMENT, "factor 0 is not positive");
  refuses(MATMUL(8, 8, 8), GET, "sch.split(l1, [None, -3])\n", ERR_ARGUMENT, "factor -3");
  refuses(MATMUL(8, 8, 8), GET, "sch.split(l1, [None, None])\n", ERR_ARGUMENT, "both None");
  refuses(MATMUL(8, 8, 8), GET, "sch.split(l1, [2, 3])\n", ERR_ARGUMENT, "product 6 is below the extent 8 of loop 'i'");
  refuses(MATMUL(8, 8, 8), GET "sch.parallel(l1)\n", "sch.split(l1, [None, 2])\n", ERR_SCHEDULE,
          "loop 'i' is already parallel");
  refuses(MATMUL(8, 8, 8), GET "l4, l5 = sch.split(l1, [None, 2])\n", "sch.split(l1, [None, 2])\n", ERR_SCHEDULE,
          "is gone");
}

static void fuse_and_reorder(void **state)
{
  (void)state;
  APPLIES(MATMUL(4, 6, 3), GET "l4 = sch.fuse(l1, l2)\nl5, l6 = sch.split(l4, [None, 6])\n", "T.grid(4, 6, 3)");
  APPLIES(MATMUL(4, 6, 3), GET "l4 = sch.fuse(l1, l2)\nl5, l6 = sch.split(l4, [None, 5])\nsch.reorder(l3, l6, l5)\n",
          "T.where(");
  APPLIES(MATMUL(4, 6, 3), GET "sch.reorder(l3, l2, l1)\n", "for k, j, i in T.grid(3, 6, 4)");
  APPLIES(MATMUL(4, 6, 3), GET "sch.reorder(l3, l1)\n", "for k, j, i in T.grid(3, 6, 4)");
  APPLIES(MATMUL(8, 8, 8),
          GET
          "l4, l5 = sch.split(l1, [None, 4])\nl6, l7 = sch.split(l2, [None, 4])\nl8, l9 = sch.split(l3, [None, 3])\n"
          "sch.reorder(l4, l6, l8, l9, l5, l7)\n",
          "T.grid(2, 2, 3, 3, 4, 4)");
}

static void fuse_refused(void **state)
{
  (void)state;
  refuses(MATMUL(8, 8, 8), GET, "sch.fuse(l1, l3)\n", ERR_SCHEDULE, "not directly inside");
  refuses(MATMUL(8, 8, 8), GET, "sch.fuse(l2, l1)\n", ERR_SCHEDULE, "is not inside");
  refuses(CHAIN(8), GET2, "sch.fuse(l2, l5)\n", ERR_SCHEDULE, "is not inside");
  refuses(CHAIN(8), GET2, "sch.reorder(l2, l5)\n", ERR_SCHEDULE, "reorder");
  refuses(MATMUL(8, 8, 8), GET, "sch.reorder(l1, l2, l1)\n", ERR_ARGUMENT, "given twice");
}

#define TRIANGLE                                            \
  "@T.prim_func\n"                                          \
  "def main(A: T.Buffer((8, 8), \"float32\")):\n"           \
  "    for i in range(8):\n"                                \
  "        for j in range(i + 1):\n"                        \
  "            with T.block(\"C\"):\n"                      \
  "                vi, vj = T.axis.remap(\"SS\", [i, j])\n" \
  "                A[vi, vj] = T.float32(1)\n"

#define PREFIX                                          \
  "@T.prim_func\n"                                      \
  "def main(A: T.Buffer((8, 8), \"float32\")):\n"       \
  "    for i, j in T.grid(7, 8):\n"                     \
  "        with T.block(\"C\"):\n"                      \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n" \
  "            A[vi + 1, vj] = A[vi, vj] + T.float32(1)\n"

#define OPAQUE                                    \
  "@T.prim_func\n"                                \
  "def main(A: T.Buffer((8, 8), \"float32\")):\n" \
  "    for i, j in T.grid(7, 8):\n"               \
  "        with T.block(\"C\"):\n"                \
  "            vi = T.axis.opaque(7, i)\n"        \
  "            vj = T.axis.spatial(8, j)\n"       \
  "            A[vi + 1, vj] = A[vi, vj] + T.float32(1)\n"

static void dependences_refused(void **state)
{
  (void)state;
#define GETIJ "b0 = sch.get_block(\"C\")\nl1, l2 = sch.get_loops(b0)\n"
  refuses(TRIANGLE, GETIJ, "sch.reorder(l2, l1)\n", ERR_SCHEDULE, "bounds of loop 'j' depend on loop 'i'");
  refuses(TRIANGLE, GETIJ, "sch.bind(l2, \"threadIdx.x\")\n", ERR_SCHEDULE, "bounds of loop 'j' depend on loop 'i'");
  refuses(TRIANGLE, GETIJ, "sch.fuse(l1, l2)\n", ERR_SCHEDULE, "bounds of loop 'j' depend on loop 'i'");
  refuses(PREFIX, GETIJ, "sch.reorder(l2, l1)\n", ERR_SCHEDULE, "must run in order");
  refuses(PREFIX, GETIJ, "sch.parallel(l1)\n", ERR_SCHEDULE, "must run in order");
  refuses(OPAQUE, GETIJ, "sch.reorder(l2, l1)\n", ERR_SCHEDULE, "opaque variable 'vi'");
  refuses(OPAQUE, GETIJ, "sch.vectorize(l2)\n", ERR_SCHEDULE, "opaque variable 'vi'");
}

static void kinds(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 8, 8), GET "sch.parallel(l1)\nsch.vectorize(l2)\nsch.unroll(l3)\n", "T.parallel(8)",
          "T.vectorized(8)", "T.unroll(8)");
  APPLIES(MATMUL(8, 8, 8), GET "sch.bind(l1, \"blockIdx.x\")\nsch.bind(l2, \"threadIdx.x\")\n", "thread=\"blockIdx.x\"",
          "thread=\"threadIdx.x\"");
  APPLIES(MATMUL(8, 8, 8),
          GET "sch.annotate(l1, \"pragma_auto_unroll_max_step\", 16)\nsch.annotate(b0, \"note\", \"x\\\"y\")\n",
          "\"pragma_auto_unroll_max_step\": 16", "x\\\"y");
  APPLIES(MATMUL(8, 8, 8),
          GET "sch.annotate(l1, \"key\", 1)\nsch.unannotate(l1, \"key\")\nl4, l5 = sch.split(l1, [4, 2])\n",
          "T.grid(4, 2, 8, 8)");
}

/* Of several kinds the last one counts. */
static void kinds_again(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 8, 8), GET "sch.bind(l1, \"blockIdx.x\")\nsch.bind(l1, \"threadIdx.x\")\n",
          "T.thread_binding(8, thread=\"threadIdx.x\")");
  APPLIES(MATMUL(8, 8, 8), GET "sch.bind(l1, \"blockIdx.x\")\nsch.unroll(l1)\n", "for i in T.unroll(8)");
  APPLIES(MATMUL(8, 8, 8), GET "sch.parallel(l1)\nsch.vectorize(l1)\n", "for i in T.vectorized(8)");
}

static void kinds_refused(void **state)
{
  (void)state;
  refuses(MATMUL(8, 8, 8), GET, "sch.parallel(l3)\n", ERR_SCHEDULE, "loop 'k' runs over the reduction of block 'C'");
  refuses(MATMUL(8, 8, 8), GET, "sch.vectorize(l3)\n", ERR_SCHEDULE, "loop 'k' runs over the reduction of block 'C'");
  refuses(MATMUL(8, 8, 8), GET, "sch.bind(l3, \"blockIdx.x\")\n", ERR_SCHEDULE,
          "rfactor makes it spatial, or bind it to threadIdx");
  refuses(MATMUL(8, 6, 8), GET "sch.bind(l1, \"threadIdx.x\")\n", "sch.bind(l2, \"threadIdx.x\")\n", ERR_SCHEDULE,
          "bound to threadIdx.x already");
  refuses(MATMUL(8, 8, 8), GET, "sch.bind(l1, \"threadIdx\")\n", ERR_ARGUMENT, "'threadIdx' is no thread axis");
  refuses(MATMUL(8, 8, 8), GET, "sch.unannotate(l1, \"key\")\n", ERR_SCHEDULE, "has no annotation 'key'");
  refuses(MATMUL(8, 8, 8), GET, "sch.get_block(\"D\")\n", ERR_SCHEDULE, "its blocks are root, C");
  refuses(MATMUL(8, 8, 8), GET, "sch.split(b0, [2, 4])\n", ERR_ARGUMENT, "argument 'loop' wants loop, got a block");
  refuses(MATMUL(8, 8, 8), GET, "sch.splitt(l1, [2, 4])\n", ERR_ARGUMENT,
          "no schedule primitive 'splitt'; did you mean 'split'?");
  refuses(MATMUL(8, 8, 8), GET, "sch.split(l1, [2, 4]\n", ERR_PARSE, "is wanted");
}

static void queries(void **state)
{
  (void)state;
  APPLIES(CHAIN(4),
          GET2 "b6, = sch.get_consumers(b0)\nb7, = sch.get_producers(b1)\nb8 = sch.get_block(\"root\")\n"
               "b9, = sch.get_output_blocks(b8)\nb10, b11 = sch.get_child_blocks(b8)\nb12, = sch.get_child_blocks(l2)\n"
               "l13, l14 = sch.get_loops(b6)\nsch.parallel(l13)\nsch.get_loops(b8)\n",
          "T.parallel(4)");
  APPLIES(CHAIN(4),
          GET2 "l6 = sch.add_unit_loop(b0)\nl7 = sch.add_unit_loop(l4)\nsch.reorder_block_iter_var(b1, [1, 0])\n",
          "T.grid(4, 4, 1)");
}

#define SYMBOLIC                                        \
  "@T.prim_func\n"                                      \
  "def main(a: T.handle, c: T.handle, n: T.int32):\n"   \
  "    A = T.match_buffer(a, (n, 8), \"float32\")\n"    \
  "    C = T.match_buffer(c, (n, 8), \"float32\")\n"    \
  "    B = T.alloc_buffer((n, 8))\n"                    \
  "    for i, j in T.grid(n, 8):\n"                     \
  "        with T.block(\"B\"):\n"                      \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n" \
  "            B[vi, vj] = A[vi, vj] + T.float32(1)\n"  \
  "    for i, j in T.grid(n, 8):\n"                     \
  "        with T.block(\"C\"):\n"                      \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n" \
  "            C[vi, vj] = B[vi, vj] * T.float32(2)\n"

static void symbolic(void **state)
{
  (void)state;
  APPLIES(SYMBOLIC, GET2 "l6, l7 = sch.split(l4, [None, 8])\nsch.parallel(l6)\nsch.vectorize(l7)\n", "(n + 7)",
          "T.where(");
  APPLIES(SYMBOLIC, GET2 "l6 = sch.fuse(l4, l5)\nl7, l8 = sch.split(l6, [None, 4])\nsch.vectorize(l8)\n",
          "T.vectorized(4)");
  APPLIES(SYMBOLIC, GET2 "l6, l7 = sch.split(l4, [None, 8])\nsch.compute_at(b0, l6)\n", "T.where(");
  APPLIES(SYMBOLIC, GET2 "sch.compute_inline(b0)\nsch.reorder(l5, l4)\n", "* T.float32(2");
  APPLIES(SYMBOLIC, GET2 "l6, l7 = sch.split(l2, [None, 4])\nsch.reverse_compute_at(b1, l6)\n", "T.where(");
  refuses(SYMBOLIC, GET2, "sch.vectorize(l4)\n", ERR_SCHEDULE, "extent n of loop 'i' is not a constant; split it");
  refuses(SYMBOLIC, GET2, "sch.sample_perfect_tile(l4, 2)\n", ERR_SCHEDULE, "is not a constant");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(split_perfect), cmocka_unit_test(split_imperfect),
    cmocka_unit_test(split_refused), cmocka_unit_test(fuse_and_reorder),
    cmocka_unit_test(fuse_refused),  cmocka_unit_test(dependences_refused),
    cmocka_unit_test(kinds),         cmocka_unit_test(kinds_again),
    cmocka_unit_test(kinds_refused), cmocka_unit_test(queries),
    cmocka_unit_test(symbolic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
