/* Programs whose iteration kinds say what their accesses do not: each primitive that would
 * build on it refuses. */
#include "schedule/test_schedule.h"

#define HEAD(params) "@T.prim_func\ndef main(" params "):\n"
#define SQUARE(name) #name ": T.Buffer((8, 8), \"int32\")"
#define ROW(name) #name ": T.Buffer((8,), \"int32\")"
#define GET "b0 = sch.get_block(\"B\")\nl1, l2 = sch.get_loops(b0)\n"
#define GET1 "b0 = sch.get_block(\"B\")\nl1, = sch.get_loops(b0)\n"
#define NEST(kinds, body)           \
  "    for i, k in T.grid(8, 8):\n" \
  "        with T.block(\"B\"):\n"  \
  "            vi, vk = T.axis.remap(\"" kinds "\", [i, k])\n" body

/* Rows of A are added up in B; the row is called spatial, the column a reduction. */
#define COLUMNS(kinds) HEAD(SQUARE(A) ", " ROW(B)) NEST(kinds, "            B[vk] = B[vk] + A[vi, vk]\n")

static void shared_elements(void **state)
{
  (void)state;
  static const char *const words = "do not tell its writes to buffer 'B' apart";
  refuses(COLUMNS("SR"), GET, "sch.parallel(l1)\n", ERR_SCHEDULE, words);
  refuses(COLUMNS("SR"), GET, "sch.vectorize(l1)\n", ERR_SCHEDULE, words);
  refuses(COLUMNS("SR"), GET, "sch.bind(l1, \"threadIdx.x\")\n", ERR_SCHEDULE, words);
  refuses(COLUMNS("SS"), GET, "sch.bind(l1, \"blockIdx.x\")\n", ERR_SCHEDULE, words);
  refuses(COLUMNS("SS"), GET, "sch.parallel(l2)\n", ERR_SCHEDULE, words);
  APPLIES(COLUMNS("RS"), GET "sch.parallel(l2)\n", "T.parallel(8)");
  /* the last of several writes stays */
  refuses(HEAD(SQUARE(A) ", " ROW(B)) NEST("SS", "            B[vk] = A[vi, vk]\n"), GET, "sch.reorder(l2, l1)\n",
          ERR_SCHEDULE, words);
}

static void marked_disjoint(void **state)
{
  (void)state;
#define SCATTER(mark)                                      \
  HEAD(ROW(A) ", " ROW(I) ", " ROW(B))                     \
  "    for i in range(8):\n        with T.block(\"B\"):\n" \
  "            vi = T.axis.spatial(8, i)\n" mark "            B[(I[vi] + 8) % 8] = A[vi]\n"
  /* i * 5 % 8 takes each value once, which the analysis does not see */
#define TURNED(mark)                                       \
  HEAD(ROW(A) ", " ROW(B))                                 \
  "    for i in range(8):\n        with T.block(\"B\"):\n" \
  "            vi = T.axis.spatial(8, i)\n" mark "            B[vi * 5 % 8] = A[vi]\n"
  refuses(TURNED(""), GET1, "sch.parallel(l1)\n", ERR_SCHEDULE, "do not tell its writes to buffer 'B' apart");
  APPLIES(TURNED("            T.block_attr({\"disjoint\": True})\n"), GET1 "sch.parallel(l1)\n", "T.parallel(8)");
  APPLIES(TURNED(""), GET1 "sch.annotate(b0, \"disjoint\", 1)\nsch.parallel(l1)\n", "T.parallel(8)");
  refuses(SCATTER(""), GET1, "sch.parallel(l1)\n", ERR_SCHEDULE, "mark it by the annotation \"disjoint\"");
}

#define TWICE(kinds)                                                    \
  HEAD(SQUARE(A) ", " ROW(B))                                           \
  NEST(kinds, "            with T.init():\n                B[vi] = 0\n" \
              "            B[vi] = B[vi] * 2 + A[vi, vk]\n")

static void order_of_a_reduction(void **state)
{
  (void)state;
  refuses(TWICE("SR"), GET "l3, l4 = sch.split(l2, [None, 4])\n", "sch.reorder(l4, l3)\n", ERR_SCHEDULE,
          "gives another result when its steps change places");
  APPLIES(TWICE("SR"), GET "sch.reorder(l2, l1)\nsch.parallel(l1)\n", "T.parallel(8)");
}

static void two_writers(void **state)
{
  (void)state;
#define MIRROR(index)                                                                             \
  HEAD(ROW(A) ", " ROW(B))                                                                        \
  "    for i in range(8):\n        with T.block(\"B\"):\n            vi = T.axis.spatial(8, i)\n" \
  "            B[vi] = A[vi]\n        with T.block(\"C\"):\n"                                     \
  "            wi = T.axis.spatial(8, i)\n            B[" index "] = A[wi] * 2\n"
  refuses(MIRROR("7 - wi"), GET1, "sch.parallel(l1)\n", ERR_SCHEDULE, "both write buffer 'B'");
  APPLIES(MIRROR("wi"), GET1 "sch.parallel(l1)\n", "T.parallel(8)");
}

static void gaps_are_not_written(void **state)
{
  (void)state;
  /* iteration i writes every second element, and reads all */
  refuses(HEAD(SQUARE(
              A) ", C: T.Buffer((2, 7), \"int32\")") "    B = T.alloc_buffer((8,), \"int32\")\n"
                                                     "    for i in range(2):\n"
                                                     "        for x in range(4):\n            with T.block(\"B\"):\n"
                                                     "                vi, vx = T.axis.remap(\"SS\", [i, x])\n          "
                                                     "      B[vx * 2 + vi] = A[vi, vx]\n"
                                                     "        for y in range(7):\n            with T.block(\"C\"):\n"
                                                     "                wi, wy = T.axis.remap(\"SS\", [i, y])\n          "
                                                     "      C[wi, wy] = B[wi + wy]\n",
          GET, "sch.parallel(l1)\n", ERR_SCHEDULE, "reads buffer 'B' where block 'B' writes it in another iteration");
}

static void unfinished_sums(void **state)
{
  (void)state;
  refuses(
      HEAD(SQUARE(A) ", " ROW(
          D)) "    B = T.alloc_buffer((8,), \"int32\")\n"
              "    for f in range(8):\n        with T.block(\"F\"):\n            vf = T.axis.spatial(8, f)\n"
              "            B[vf] = 0\n" NEST(
                  "SS",
                  "            B[vk] = B[vk] + A[vi, vk]\n") "    for d in range(8):\n        with T.block(\"D\"):\n   "
                                                             "         vd = T.axis.spatial(8, d)\n"
                                                             "            D[vd] = B[vd]\n",
      GET "b3 = sch.get_block(\"D\")\n", "sch.reverse_compute_at(b3, l1)\n", ERR_SCHEDULE, "is not complete");
}

/* B, by the element that the predicate of C reads. */
static void predicates_read(void **state)
{
  (void)state;
#define WHERE                                                                                     \
  HEAD(ROW(A) ", " ROW(C))                                                                        \
  "    B = T.alloc_buffer((8,), \"int32\")\n"                                                     \
  "    for i in range(8):\n        with T.block(\"B\"):\n            vi = T.axis.spatial(8, i)\n" \
  "            B[vi] = A[vi] * 2\n"                                                               \
  "    for j in range(8):\n        with T.block(\"C\"):\n            vj = T.axis.spatial(8, j)\n" \
  "            T.where(B[j] > 0)\n            C[vj] = A[vj] + 1\n"
  APPLIES(WHERE, "b0 = sch.get_block(\"B\")\nsch.compute_inline(b0)\n", "T.where(A[j]*2 > 0)");
  APPLIES(WHERE, "b0 = sch.get_block(\"C\")\nl1, = sch.get_loops(b0)\nl2, l3 = sch.split(l1, [None, 3])\n",
          "T.where(j_0*3 + j_1 < 8 and 0 < B[j_0*3 + j_1])");
}

#define BLOCK_1(name, extent, body)                                       \
  "    for " name "0 in range(" extent "):\n        with T.block(\"" name \
  "\"):\n            v = T.axis.spatial(" extent ", " name "0)\n" body

/* What a block says it reads and writes counts for nothing where it does more. */
static void declared_regions(void **state)
{
  (void)state;
#define SECOND_WRITE                                                                         \
  HEAD(ROW(A) ", B: T.Buffer((9,), \"int32\")")                                              \
  BLOCK_1("B", "8",                                                                          \
          "            T.reads(A[v])\n            T.writes(B[v])\n            B[v] = A[v]\n" \
          "            B[v + 1] = A[v] * 2\n")
  refuses(SECOND_WRITE, GET1, "sch.parallel(l1)\n", ERR_SCHEDULE, "do not tell its writes to buffer 'B' apart");
#define SECOND_READ(reads)                                                                                \
  HEAD("A: T.Buffer((9,), \"int32\"), " ROW(C))                                                           \
  "    B = T.alloc_buffer((9,), \"int32\")\n" BLOCK_1("B", "9", "            B[v] = A[v] * 3\n") BLOCK_1( \
      "C", "8", "            T.reads(" reads ")\n            T.writes(C[v])\n            C[v] = B[v] + B[v + 1]\n")
  static const char *const under =
      "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, = sch.get_loops(b1)\nsch.compute_at(b0, l2)\n";
  APPLIES(SECOND_READ("B[v]"), under, "T.axis.spatial(9, C0 + ax0)");
  APPLIES(SECOND_READ("B[v + 1]"), under, "T.reads(B[v_1:v_1 + 2])");
  APPLIES(SECOND_READ("B[v:v + 2], A[v]"), under, "T.reads(B[v_1:v_1 + 2], A[v_1])"); /* more than it does stays */
  /* a sum goes on from what is there, which it does not name among its reads */
#define UNNAMED               \
  HEAD(SQUARE(A) ", " ROW(B)) \
  NEST("SR", "            T.reads(A[vi, vk])\n            T.writes(B[vi])\n            B[vi] = B[vi] + A[vi, vk]\n")
  APPLIES(UNNAMED, GET, "T.reads(A[vi, vk], B[vi])");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_elements), cmocka_unit_test(marked_disjoint),      cmocka_unit_test(order_of_a_reduction),
    cmocka_unit_test(two_writers),     cmocka_unit_test(gaps_are_not_written), cmocka_unit_test(unfinished_sums),
    cmocka_unit_test(predicates_read), cmocka_unit_test(declared_regions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
