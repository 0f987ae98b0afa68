/* Symbolic extents: what each primitive does with them.  The table in docs/schedules.md
 * says the same. */
#include "schedule/test_schedule.h"

/* B = A + 1 and C = B * W, over n rows and a reduction of m. */
#define ROWS                                                                   \
  "@T.prim_func\n"                                                             \
  "def main(a: T.handle, w: T.handle, c: T.handle, n: T.int32, m: T.int32):\n" \
  "    A = T.match_buffer(a, (n, m), \"float32\")\n"                           \
  "    W = T.match_buffer(w, (m, 8), \"float32\")\n"                           \
  "    C = T.match_buffer(c, (n, 8), \"float32\")\n"                           \
  "    B = T.alloc_buffer((n, m))\n"                                           \
  "    for i, j in T.grid(n, m):\n"                                            \
  "        with T.block(\"B\"):\n"                                             \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                        \
  "            B[vi, vj] = A[vi, vj] + T.float32(1)\n"                         \
  "    for i, j, k in T.grid(n, 8, m):\n"                                      \
  "        with T.block(\"C\"):\n"                                             \
  "            vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"                \
  "            with T.init():\n"                                               \
  "                C[vi, vj] = T.float32(0)\n"                                 \
  "            C[vi, vj] = C[vi, vj] + B[vi, vk] * W[vk, vj]\n"

#define GET                                                                            \
  "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, l3 = sch.get_loops(b0)\n" \
  "l4, l5, l6 = sch.get_loops(b1)\n"

static const char *const supported[] = {
  "l7, l8 = sch.split(l4, [None, 4])\nl9, l10 = sch.split(l6, [None, 3])\nsch.reorder(l7, l9, l5, l10, l8)\n",
  "l7, l8 = sch.split(l4, [4, None])\n",
  "l7 = sch.fuse(l4, l5)\nl8, l9 = sch.split(l7, [None, 6])\n",
  "l7 = sch.fuse(l2, l3)\nl8, l9 = sch.split(l7, [None, 6])\nsch.vectorize(l9)\n",
  "sch.reorder(l6, l5, l4)\n",
  "sch.parallel(l4)\nsch.bind(l2, \"blockIdx.x\")\n",
  "sch.annotate(l4, \"key\", n + 1)\n",
  "sch.compute_at(b0, l4)\n",
  "sch.compute_at(b0, l5)\n",
  "l7, l8 = sch.split(l4, [None, 4])\nl9, l10 = sch.split(l6, [None, 3])\nsch.reorder(l7, l9, l8, l5, "
  "l10)\nsch.compute_at(b0, l9)\n",
  "sch.compute_inline(b0)\n",
  "b7 = sch.cache_read(b1, 0, \"local\")\nb8 = sch.cache_read(b1, 1, \"local\")\nb9 = sch.cache_write(b1, 0, "
  "\"local\")\n"
  "l10, l11 = sch.split(l4, [None, 4])\nsch.reverse_compute_at(b9, l10)\nsch.compute_at(b7, l10)\n",
  "b7 = sch.reindex(b1, (\"read\", 0))\nb8 = sch.reindex(b1, (\"write\", 0))\n",
  "b7 = sch.decompose_reduction(b1, l6)\n",
  "b7 = sch.decompose_reduction(b1, l4)\n",
  "l7, l8 = sch.split(l6, [None, 4])\nb9 = sch.rfactor(l8, 0)\n",
  "b7 = sch.rfactor(l6, 1)\n",
  "sch.pad_einsum(b1, [4, 4, 4])\n",
  "sch.storage_align(b0, 0, 0, 8, 1)\nsch.set_scope(b0, 0, \"shared\")\n",
  "sch.prefetch(b1, 1, l6, 2)\n",
  "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (j, i))\n",
  "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (j // 4, i, j % 4), pad_value=0.0)\n",
  "sch.transform_block_layout(b0, lambda i, j: (j, i))\n",
  "b7 = sch.blockize(l5)\n",
  "l7 = sch.sample_compute_location(b0, decision=0)\nsch.compute_at(b0, l7)\n",
};

/* clang-format off */
static const struct { const char *line, *words; } refused[] = {
    {"sch.vectorize(l4)\n", "vectorize: the extent n of loop 'i' is not a constant; split it by a constant"},
    {"sch.unroll(l6)\n", "unroll: the extent m of loop 'k' is not a constant; split it by a constant"},
    {"sch.sample_perfect_tile(l4, 2)\n", "the extent n of loop 'i' is not a constant"},
    {"sch.split(l4, [2, 4])\n", "not known to reach the extent n of loop 'i'; let one be None"},
};
/* clang-format on */

static void supports(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof supported / sizeof *supported; i++) {
    char trace[1024];
    snprintf(trace, sizeof trace, "%s%s", GET, supported[i]);
    free(apply(ROWS, trace));
  }
}

static void refuses_with_reason(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    refuses(ROWS, GET, refused[i].line, ERR_SCHEDULE, refused[i].words);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(supports), cmocka_unit_test(refuses_with_reason)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
