/* Primitives on blocks: moving, inlining, caching, reductions, layouts, tensorize, and
 * a packed matrix product made of them alone. */
#include "schedule/test_schedule.h"

#define GET "b0 = sch.get_block(\"C\")\nl1, l2, l3 = sch.get_loops(b0)\n"
#define GET2 \
  "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, l3 = sch.get_loops(b0)\nl4, l5 = sch.get_loops(b1)\n"

/* B = A + 1; C[i] = B[i] + B[i + 1] + B[i + 2] */
#define STENCIL                                                                   \
  "@T.prim_func\n"                                                                \
  "def main(A: T.Buffer((18,), \"float32\"), C: T.Buffer((16,), \"float32\")):\n" \
  "    B = T.alloc_buffer((18,))\n"                                               \
  "    for i in range(18):\n"                                                     \
  "        with T.block(\"B\"):\n"                                                \
  "            vi = T.axis.spatial(18, i)\n"                                      \
  "            B[vi] = A[vi] + T.float32(1)\n"                                    \
  "    for i in range(16):\n"                                                     \
  "        with T.block(\"C\"):\n"                                                \
  "            vi = T.axis.spatial(16, i)\n"                                      \
  "            C[vi] = B[vi] + B[vi + 1] + B[vi + 2]\n"

/* two readers of B */
#define DIAMOND                                                                     \
  "@T.prim_func\n"                                                                  \
  "def main(A: T.Buffer((8, 8), \"float32\"), D: T.Buffer((8, 8), \"float32\")):\n" \
  "    B = T.alloc_buffer((8, 8))\n"                                                \
  "    C = T.alloc_buffer((8, 8))\n"                                                \
  "    for i, j in T.grid(8, 8):\n"                                                 \
  "        with T.block(\"B\"):\n"                                                  \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                             \
  "            B[vi, vj] = A[vi, vj] + T.float32(1)\n"                              \
  "    for i, j in T.grid(8, 8):\n"                                                 \
  "        with T.block(\"C\"):\n"                                                  \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                             \
  "            C[vi, vj] = B[vj, vi] * T.float32(2)\n"                              \
  "    for i, j in T.grid(8, 8):\n"                                                 \
  "        with T.block(\"D\"):\n"                                                  \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                             \
  "            D[vi, vj] = C[vi, vj] + B[vi, vj]\n"

static void compute_at(void **state)
{
  (void)state;
  APPLIES(CHAIN(16), GET2 "l6, l7 = sch.split(l4, [4, 4])\nsch.compute_at(b0, l6)\n", "for ax0, ax1 in T.grid(4, 16)");
  APPLIES(CHAIN(16), GET2 "sch.compute_at(b0, l5)\n", "for i, j in T.grid(16, 16)");
  APPLIES(CHAIN(16), GET2 "sch.compute_at(b0, l5, preserve_unit_loops=True)\n", "for ax0, ax1 in T.grid(1, 1)");
  /* the tile and its halo: 4 + 2 */
  APPLIES(STENCIL,
          "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, = sch.get_loops(b1)\nl3, l4 = sch.split(l2, "
          "[None, 4])\nsch.compute_at(b0, l3)\n",
          "for ax0 in range(6)");
  /* imperfect tiles reach over the domain */
  APPLIES(STENCIL,
          "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, = sch.get_loops(b1)\nl3, l4 = sch.split(l2, "
          "[None, 5])\nsch.compute_at(b0, l3)\n",
          "for ax0 in range(7)", "T.where(");
  APPLIES(CHAIN(16), GET2 "l6, l7 = sch.split(l2, [4, 4])\nsch.reverse_compute_at(b1, l6)\n",
          "for ax0, ax1 in T.grid(4, 16)");
  /* tiles of 6 in blocks of 16: the third of a block makes 4 rows, and no more are read */
  APPLIES(CHAIN(48),
          GET2 "l6, l7 = sch.split(l2, [3, 16])\nl8, l9 = sch.split(l7, [None, 6])\nsch.reverse_compute_at(b1, l8)\n",
          "for ax0, ax1 in T.grid(6, 48)", "and i_1_0*6 + ax0 < 16)");
  APPLIES(
      DIAMOND,
      "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nb2 = sch.get_block(\"D\")\nl3, l4 = sch.get_loops(b2)\n"
      "sch.compute_at(b1, l3)\nsch.compute_inline(b0)\n",
      "for ax1 in range(8)");
}

static void compute_at_refused(void **state)
{
  (void)state;
  refuses(CHAIN(16), GET2, "sch.compute_at(b1, l2)\n", ERR_SCHEDULE,
          "block 'C' is an output block: it writes buffer 'C'");
  refuses(CHAIN(16), GET2, "sch.compute_at(b0, l3)\n", ERR_SCHEDULE, "block 'B' is under loop 'j' already");
  refuses(DIAMOND, "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, l3 = sch.get_loops(b1)\n",
          "sch.compute_at(b0, l2)\n", ERR_SCHEDULE, "does not enclose block 'D', a consumer of block 'B'");
  refuses(STENCIL, "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nl2, = sch.get_loops(b0)\n",
          "sch.reverse_compute_at(b1, l2)\n", ERR_SCHEDULE, "only a part of buffer 'B' is ready");
  refuses(MATMUL(8, 8, 8), GET "b4 = sch.cache_write(b0, 0, \"local\")\nsch.reorder(l3, l1, l2)\n",
          "sch.reverse_compute_at(b4, l1)\n", ERR_SCHEDULE, "the reduction of block 'C' runs over loop 'k'");
}

static void inlining(void **state)
{
  (void)state;
  APPLIES(CHAIN(8), GET2 "sch.compute_inline(b0)\n", "(A[vi, vj] + T.float32(1.0)) * T.float32(2.0)");
  APPLIES(CHAIN(8), GET2 "sch.reverse_compute_inline(b1)\n",
          "C[vi, vj] = (A[vi, vj] + T.float32(1.0)) * T.float32(2.0)");
  APPLIES(DIAMOND, "b0 = sch.get_block(\"B\")\nsch.compute_inline(b0)\n", "A[vj, vi]", "A[vi_1, vj_1]");
  refuses(CHAIN(8), GET2, "sch.compute_inline(b1)\n", ERR_SCHEDULE, "an output of its scope");
  refuses(MATMUL(8, 8, 8), GET, "sch.compute_inline(b0)\n", ERR_SCHEDULE, "a reduction, not one store");
  refuses(STENCIL, "b0 = sch.get_block(\"C\")\n", "sch.reverse_compute_inline(b0)\n", ERR_SCHEDULE,
          "at different indices");
  refuses(DIAMOND, "b0 = sch.get_block(\"C\")\n", "sch.reverse_compute_inline(b0)\n", ERR_SCHEDULE,
          "reads buffer 'B' too");
}

/* the consumer reads through a bijection: transposed and flattened */
#define FLATTEN                                                                    \
  "@T.prim_func\n"                                                                 \
  "def main(A: T.Buffer((4, 6), \"float32\"), C: T.Buffer((24,), \"float32\")):\n" \
  "    B = T.alloc_buffer((6, 4))\n"                                               \
  "    for i, j in T.grid(6, 4):\n"                                                \
  "        with T.block(\"B\"):\n"                                                 \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                            \
  "            B[vi, vj] = A[vj, vi] + T.float32(1)\n"                             \
  "    for i in range(24):\n"                                                      \
  "        with T.block(\"C\"):\n"                                                 \
  "            vi = T.axis.spatial(24, i)\n"                                       \
  "            C[vi] = B[vi // 4, vi % 4] * T.float32(2)\n"

static void inline_through_bijection(void **state)
{
  (void)state;
  APPLIES(FLATTEN, "b0 = sch.get_block(\"C\")\nsch.reverse_compute_inline(b0)\n", "C[vi*4 + vj] = (A[vj, vi]");
  APPLIES(FLATTEN, "b0 = sch.get_block(\"B\")\nsch.compute_inline(b0)\n", "A[vi%4, vi//4]");
}

static void caching(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 12, 5),
          GET "b4 = sch.cache_read(b0, 0, \"shared\")\nb5 = sch.cache_read(b0, \"B\", \"local\")\nb6 = "
              "sch.cache_write(b0, 0, \"local\")\n",
          "A_shared = T.alloc_buffer((8, 5), scope=\"shared\")", "T.block(\"B_local\")",
          "C[v0_2, v1_2] = C_local[v0_2, v1_2]");
  APPLIES(MATMUL(8, 12, 5), GET "b4 = sch.cache_read(b0, 1, \"local\")\nsch.compute_at(b4, l2)\n",
          "for ax0 in range(5)");
  APPLIES(MATMUL(8, 12, 5),
          GET
          "b4 = sch.cache_write(b0, 0, \"local\")\nl5, l6 = sch.split(l1, [None, 3])\nsch.reverse_compute_at(b4, l5)\n",
          "T.where(");
  APPLIES(CHAIN(8), GET2 "b6 = sch.cache_read(b1, 0, \"local\")\nsch.compute_at(b6, l4)\nsch.compute_at(b0, l4)\n",
          "B_local");
  APPLIES(DIAMOND,
          "b0 = sch.get_block(\"B\")\nb1 = sch.get_block(\"C\")\nb2 = sch.cache_read(b1, 0, \"shared\", "
          "consumer_blocks=[b1])\n",
          "B_shared[vj_1, vi_1]", "B[vi_2, vj_2]");
  APPLIES(CHAIN(8),
          GET2
          "sch.compute_at(b0, l4)\nb6 = sch.cache_write(b0, 0, \"local\")\nb7 = sch.cache_read(b1, 0, \"local\")\n",
          "B_local");
  APPLIES(FLATTEN, "b0 = sch.get_block(\"C\")\nb1 = sch.reindex(b0, (\"read\", 0))\n",
          "B_reindex = T.alloc_buffer((24,))");
  APPLIES(MATMUL(8, 12, 5), GET "b4 = sch.reindex(b0, (\"write\", 0))\nb5 = sch.reindex(b0, \"A\")\n", "C_reindex",
          "A_reindex");
  refuses(MATMUL(8, 8, 8), GET, "sch.cache_read(b0, 2, \"local\")\n", ERR_ARGUMENT,
          "buffer number 2 is not among the 2");
  refuses(MATMUL(8, 8, 8), GET, "sch.cache_read(b0, \"D\", \"local\")\n", ERR_ARGUMENT, "does not read a buffer 'D'");
  refuses(MATMUL(8, 8, 8), GET "b4 = sch.decompose_reduction(b0, l3)\n", "sch.cache_write(b0, 0, \"local\")\n",
          ERR_SCHEDULE, "both write buffer 'C'");
}

static void reductions(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 12, 5), GET "b4 = sch.decompose_reduction(b0, l3)\n", "T.block(\"C_init\")",
          "T.block(\"C_update\")");
  /* the init takes the kinds of the loops with it */
  APPLIES(MATMUL(8, 12, 5), GET "sch.reorder(l1, l3, l2)\nsch.vectorize(l2)\nb4 = sch.decompose_reduction(b0, l3)\n",
          "for j in T.vectorized(12):\n            with T.block(\"C_init\")");
  APPLIES(MATMUL(8, 12, 5), GET "l4, l5 = sch.split(l2, [None, 5])\nb6 = sch.decompose_reduction(b0, l1)\n",
          "T.block(\"C_init\")");
  APPLIES(MATMUL(4, 4, 10), GET "l4, l5 = sch.split(l3, [None, 4])\nb6 = sch.rfactor(l5, factor_axis=0)\n",
          "C_rf = T.alloc_buffer((4, 4, 4))");
  APPLIES(MATMUL(4, 4, 10),
          GET "l4, l5 = sch.split(l3, [None, 4])\nb6 = sch.rfactor(l4, factor_axis=-1)\nl7, l8, l9, l10 = "
              "sch.get_loops(b6)\nsch.parallel(l9)\n",
          "C_rf = T.alloc_buffer((4, 4, 3))", "T.parallel(3)");
  /* fewer elements than the factor: the slots never started are not summed */
  APPLIES(MATMUL(4, 4, 3), GET "l4, l5 = sch.split(l3, [None, 8])\nb6 = sch.rfactor(l5, factor_axis=2)\n",
          "C_rf = T.alloc_buffer((4, 4, 8))");
  APPLIES(MATMUL(7, 5, 3), GET "sch.pad_einsum(b0, [4, 4, 4])\n", "A_pad = T.alloc_buffer((8, 4))",
          "C[v0_2, v1_2] = C_pad[v0_2, v1_2]");
  refuses(MATMUL(8, 8, 8), GET "sch.reorder(l3, l1, l2)\n", "sch.decompose_reduction(b0, l1)\n", ERR_SCHEDULE,
          "loop 'i' is inside loop 'k', a loop of the reduction");
  refuses(CHAIN(8), GET2, "sch.decompose_reduction(b0, l2)\n", ERR_SCHEDULE, "has no init");
  refuses(MATMUL(8, 8, 8), GET, "sch.rfactor(l1, 0)\n", ERR_SCHEDULE, "loop 'i' is not a loop of the reduction");
  refuses(MATMUL(8, 8, 8), GET, "sch.rfactor(l3, 5)\n", ERR_ARGUMENT, "factor_axis 5");
  refuses(MATMUL(8, 8, 8), GET, "sch.pad_einsum(b0, [4, 4, 0])\n", ERR_ARGUMENT, "padding 0");
  refuses(MATMUL(3, 8, 8), GET "sch.transform_block_layout(b0, lambda i0, i1, i2: (i1, i2, i0//4, i0%4))\n",
          "sch.pad_einsum(b0, [1, 1, 2, 4])\n", ERR_SCHEDULE, "does not say what is stored");
}

#define ARGMAX                                                                                                   \
  "@T.prim_func\n"                                                                                               \
  "def main(A: T.Buffer((4, 12), \"float32\"), I: T.Buffer((4,), \"int32\"), V: T.Buffer((4,), \"float32\")):\n" \
  "    for i, k in T.grid(4, 12):\n"                                                                             \
  "        with T.block(\"argmax\"):\n"                                                                          \
  "            vi, vk = T.axis.remap(\"SR\", [i, k])\n"                                                          \
  "            with T.init():\n"                                                                                 \
  "                I[vi] = -1\n"                                                                                 \
  "                V[vi] = T.float32(\"-inf\")\n"                                                                \
  "            i_new: T.int32 = T.Select(V[vi] >= A[vi, vk], I[vi], vk)\n"                                       \
  "            v_new: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])\n"                              \
  "            I[vi] = i_new\n"                                                                                  \
  "            V[vi] = v_new\n"

static void several_values(void **state)
{
  (void)state;
  APPLIES(ARGMAX,
          "b0 = sch.get_block(\"argmax\")\nl1, l2 = sch.get_loops(b0)\nl3, l4 = sch.split(l2, [3, "
          "4])\nsch.decompose_reduction(b0, l3)\n",
          "T.block(\"argmax_init\")");
  refuses(ARGMAX, "b0 = sch.get_block(\"argmax\")\nl1, l2 = sch.get_loops(b0)\n", "sch.parallel(l2)\n", ERR_SCHEDULE,
          "reduction");
}

static void layouts(void **state)
{
  (void)state;
  APPLIES(CHAIN(16), GET2 "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (j // 4, i, j % 4))\n",
          "B = T.alloc_buffer((4, 16, 4))", "B[vj//4, vi, vj%4]");
  /* 10 columns in panels of 4: two columns of padding */
  APPLIES(CHAIN(10),
          GET2 "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (j // 4, i, j % 4), pad_value=T.float32(7.0))\n",
          "B = T.alloc_buffer((3, 10, 4))", "T.if_then_else(");
  APPLIES(CHAIN(12), GET2 "sch.transform_block_layout(b1, lambda i, j: (i * 12 + j,))\n", "range(144)");
  refuses(CHAIN(10), GET2, "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (j // 4, i, j % 4))\n", ERR_SCHEDULE,
          "has gaps; give a pad_value");
  refuses(CHAIN(10), GET2, "sch.transform_layout(b0, (\"write\", 0), lambda i, j: (i, j // 2))\n", ERR_SCHEDULE,
          "a place of its own");
  refuses(CHAIN(10), GET2, "sch.transform_layout(b0, (\"write\", 0), lambda i: (i,))\n", ERR_ARGUMENT,
          "takes 1 indices, 2 are there");
  refuses(MATMUL(8, 8, 8), GET, "sch.transform_block_layout(b0, lambda i, j, k: (i * 8 + k, j))\n", ERR_SCHEDULE,
          "mixes spatial and reduction");
}

static void storage(void **state)
{
  (void)state;
  APPLIES(CHAIN(8), GET2 "sch.storage_align(b0, 0, 0, 32, 8)\nsch.set_scope(b0, 0, \"shared\")\n", "buffer_dim_align",
          "scope=\"shared\"");
  APPLIES(CHAIN(8), GET2 "sch.compute_at(b0, l4)\nsch.double_buffer(b0)\n", "double_buffer_scope");
  APPLIES(MATMUL(8, 40, 5), GET "sch.prefetch(b0, 1, l3, 2)\n", "T.prefetch(", "T.where(");
  APPLIES(MATMUL(64, 64, 64), GET "sch.prefetch(b0, 1, l1, 1)\n", "T.prefetch(", "for bit in T.unroll(1)");
  refuses(CHAIN(8), GET2, "sch.storage_align(b1, 0, 0, 32, 8)\n", ERR_SCHEDULE, "is a parameter");
  refuses(CHAIN(8), GET2, "sch.storage_align(b0, 0, 2, 32, 8)\n", ERR_ARGUMENT, "axis 2");
  refuses(CHAIN(8), GET2, "sch.storage_align(b0, 0, 0, 0, 0)\n", ERR_ARGUMENT, "factor 0");
  refuses(MATMUL(8, 8, 8), GET, "sch.prefetch(b0, 0, l3, 0)\n", ERR_ARGUMENT, "distance 0");
}

static void blockizing(void **state)
{
  (void)state;
  const char *tiles =
      GET "l4, l5 = sch.split(l1, [None, 4])\nl6, l7 = sch.split(l2, [None, 4])\nl8, l9 = sch.split(l3, [None, 4])\n"
          "sch.reorder(l4, l6, l8, l5, l7, l9)\n";
  char trace[1024];
  snprintf(trace, sizeof trace, "%sb10 = sch.blockize(l5)\n", tiles);
  APPLIES(MATMUL(8, 12, 8), trace, "T.block(\"C_o\")", "C[vi_o*4 + vi_i, vj_o*4 + vj_i] = C");
  snprintf(trace, sizeof trace, "%sb10 = sch.decompose_reduction(b0, l8)\nb11 = sch.blockize(l5)\n", tiles);
  APPLIES(MATMUL(8, 12, 8), trace, "T.block(\"C_update_o\")");
  refuses(MATMUL(7, 12, 8), tiles, "sch.blockize(l5)\n", ERR_SCHEDULE, "the tiles are not all whole");
}

/* a scan: each step reads the row before */
#define SCAN                                                                          \
  "@T.prim_func\n"                                                                    \
  "def main(X: T.Buffer((6, 10), \"float32\"), S: T.Buffer((6, 10), \"float32\")):\n" \
  "    P = T.alloc_buffer((6, 10))\n"                                                 \
  "    for i in range(10):\n"                                                         \
  "        with T.block(\"first\"):\n"                                                \
  "            vi = T.axis.spatial(10, i)\n"                                          \
  "            S[0, vi] = X[0, vi]\n"                                                 \
  "    for t in range(5):\n"                                                          \
  "        with T.block(\"scan\"):\n"                                                 \
  "            vt = T.axis.opaque(5, t)\n"                                            \
  "            for i in range(10):\n"                                                 \
  "                with T.block(\"P\"):\n"                                            \
  "                    vi = T.axis.spatial(10, i)\n"                                  \
  "                    P[vt + 1, vi] = S[vt, vi] * T.float32(2)\n"                    \
  "            for i in range(10):\n"                                                 \
  "                with T.block(\"S\"):\n"                                            \
  "                    vi = T.axis.spatial(10, i)\n"                                  \
  "                    S[vt + 1, vi] = P[vt + 1, vi] + X[vt + 1, vi]\n"

static void inside_a_block(void **state)
{
  (void)state;
  const char *get =
      "b0 = sch.get_block(\"P\")\nb1 = sch.get_block(\"S\")\nl2, = sch.get_loops(b0)\nl3, = sch.get_loops(b1)\n";
  char trace[1024];
  snprintf(trace, sizeof trace, "%sl4, l5 = sch.split(l3, [None, 4])\nsch.compute_at(b0, l4)\nsch.parallel(l4)\n", get);
  APPLIES(SCAN, trace, "for ax0 in range(4)", "T.parallel(3)");
  snprintf(trace, sizeof trace, "%sl4, l5 = sch.split(l2, [None, 4])\nsch.reverse_compute_at(b1, l4)\n", get);
  APPLIES(SCAN, trace, "for ax0 in range(4)");
  snprintf(trace, sizeof trace, "%ssch.compute_inline(b0)\n", get);
  APPLIES(SCAN, trace, "S[vt, vi");
  refuses(SCAN, "b0 = sch.get_block(\"scan\")\nl1, = sch.get_loops(b0)\n", "sch.parallel(l1)\n", ERR_SCHEDULE,
          "opaque variable 'vt'");
  /* a tile runs only a part of the reduction at a time */
  const char *tiles = GET
      "b4 = sch.cache_read(b0, 0, \"local\")\nl5, l6 = sch.split(l1, [None, 4])\nl7, l8 = sch.split(l3, [None, 4])\n"
      "sch.reorder(l5, l7, l6, l2, l8)\nsch.compute_at(b4, l7)\nb9 = sch.blockize(l6)\n";
  refuses(MATMUL(8, 8, 8), tiles, "sch.compute_at(b4, l8)\n", ERR_SCHEDULE, "not in the same block scope");
}

static void sampling(void **state)
{
  (void)state;
  APPLIES(MATMUL(8, 12, 8),
          GET "v4, v5 = sch.sample_perfect_tile(l2, 2, 16, decision=[4, 3])\nl6, l7 = sch.split(l2, [v4, v5])\n"
              "v8 = sch.sample_categorical([1, 2, 4], [0.25, 0.25, 0.5])\nl9, l10 = sch.split(l1, [None, v8])\n",
          "4, 3");
  APPLIES(CHAIN(8), GET2 "l6 = sch.sample_compute_location(b0)\nsch.compute_at(b0, l6)\n", "T.block(\"C\")");
  APPLIES(CHAIN(8), GET2 "l6 = sch.sample_compute_location(b0, decision=-2)\nsch.compute_at(b0, l6)\n",
          "(A[vi, vj] + T.float32(1.0)) * T.float32(2.0)");
  APPLIES(CHAIN(8), GET2 "l6 = sch.sample_compute_location(b0, decision=1)\nsch.compute_at(b0, l6)\n",
          "T.block(\"B\")");
  refuses(MATMUL(8, 12, 8), GET, "sch.sample_perfect_tile(l2, 2, 16, decision=[4, 4])\n", ERR_ARGUMENT,
          "product 16 is not the extent 12");
  refuses(MATMUL(8, 12, 8), GET, "sch.sample_categorical([1, 2], [0.5])\n", ERR_ARGUMENT, "2 candidates have 1");
}

/* ---- a packed, cache-blocked product ------------------------------------------------------------- */

/* Macro tiles of i, j and k; micro tiles of 4 x 8 kept in a local accumulator; panels of
 * B and A packed at the outer loops. */
#define PACKED                                                                                                 \
  GET "b4 = sch.cache_write(b0, 0, \"local\")\n"                                                               \
      "l5, l6, l7 = sch.split(l1, [None, 2, 4])\n"                                                             \
      "l8, l9, l10 = sch.split(l2, [None, 2, 8])\n"                                                            \
      "l11, l12 = sch.split(l3, [None, 4])\n"                                                                  \
      "sch.reorder(l8, l5, l9, l6, l11, l12, l7, l10)\n"                                                       \
      "b13 = sch.cache_read(b0, 1, \"global\")\n"                                                              \
      "sch.transform_layout(b13, (\"write\", 0), lambda k, j: (j // 8, k, j % 8), pad_value=T.float32(0.0))\n" \
      "sch.compute_at(b13, l8)\n"                                                                              \
      "b14 = sch.cache_read(b0, 0, \"global\")\n"                                                              \
      "sch.transform_layout(b14, (\"write\", 0), lambda i, k: (i // 4, k, i % 4), pad_value=T.float32(0.0))\n" \
      "sch.compute_at(b14, l5)\n"                                                                              \
      "sch.reverse_compute_at(b4, l6)\n"                                                                       \
      "b15 = sch.decompose_reduction(b0, l11)\n"                                                               \
      "sch.unroll(l7)\nsch.vectorize(l10)\nsch.unroll(l12)\n"                                                  \
      "sch.parallel(l8)\n"

static void packed_product(void **state)
{
  (void)state;
  APPLIES(MATMUL(16, 32, 8), PACKED, "T.parallel(2)", "T.vectorized(8)", "T.unroll(4)", "C_local",
          "B_global = T.alloc_buffer((4, 8, 8))", "A_global = T.alloc_buffer((4, 8, 4))");
  APPLIES(MATMUL(13, 21, 10), PACKED, "T.where(", "B_global = T.alloc_buffer((3, 10, 8))");
}

/* The reduction in blocks of 8: partial products of a tile accumulate in a local buffer
 * and are added to C, tile by tile. */
#define PACKED_K                                                                     \
  GET "l4, l5 = sch.split(l3, [None, 8])\n"                                          \
      "b6 = sch.rfactor(l4, factor_axis=0)\n"                                        \
      "l7, l8, l9 = sch.get_loops(b0)\n"                                             \
      "l10, l11 = sch.split(l7, [None, 4])\n"                                        \
      "l12, l13 = sch.split(l8, [None, 8])\n"                                        \
      "sch.reorder(l9, l12, l10, l11, l13)\n"                                        \
      "b14 = sch.cache_read(b6, 1, \"global\")\n"                                    \
      "sch.transform_layout(b14, (\"write\", 0), lambda k, j: (j // 8, k, j % 8))\n" \
      "sch.compute_at(b6, l10)\n"                                                    \
      "sch.set_scope(b6, 0, \"local\")\n"                                            \
      "sch.compute_at(b14, l12)\n"                                                   \
      "l15, l16, l17, l18, l19, l20 = sch.get_loops(b6)\n"                           \
      "sch.reorder(l20, l18, l19)\n"                                                 \
      "b21 = sch.decompose_reduction(b6, l20)\n"                                     \
      "sch.vectorize(l19)\nsch.unroll(l18)\nsch.vectorize(l13)\n"                    \
      "b22 = sch.decompose_reduction(b0, l9)\n"

static void packed_product_in_blocks_of_k(void **state)
{
  (void)state;
  APPLIES(MATMUL(16, 32, 24), PACKED_K, "C_rf = T.alloc_buffer((3, 16, 32), scope=\"local\")",
          "v0 = T.axis.spatial(24, k_0*8 + ax0)", "T.vectorized(8)", "T.unroll(4)");
}

/* ---- failing allocations ---------------------------------------------------------------------------- */

typedef struct Failing {
  Sched *s;
  const char *trace;
} Failing;

static void replay_failing(Ctx *ctx, void *env)
{
  (void)ctx;
  Failing *v = env;
  sched_replay(v->s, v->trace);
}

static void failing_body(Ctx *ctx, void *env)
{
  int *done = env;
  Module *m = module_new(ctx);
  Sched *s = sched_new(func_parse(m, MATMUL(13, 21, 10), "case", 1, 0, NULL), 1);
  const char *before = func_print(m->arena, sched_func(s));
  for (int64_t n = 1; !*done; n += 1 + n / 16) {
    mem_fail_after(ctx, n);
    ErrKind kind = protect(ctx, replay_failing, &(Failing){s, PACKED});
    mem_fail_after(ctx, 0);
    assert_true(kind == ERR_NONE || kind == ERR_MEMORY);
    *done = kind == ERR_NONE;
    if (!*done) assert_string_equal(before, func_print(m->arena, sched_func(s)));
  }
  func_check(sched_func(s));
  sched_free(s);
  module_release(m);
}

static void survives_failing_allocations(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  int done = 0;
  assert_int_equal(protect(ctx, failing_body, &done), ERR_NONE);
  assert_int_equal(done, 1);
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(compute_at),
    cmocka_unit_test(compute_at_refused),
    cmocka_unit_test(inlining),
    cmocka_unit_test(inline_through_bijection),
    cmocka_unit_test(caching),
    cmocka_unit_test(reductions),
    cmocka_unit_test(several_values),
    cmocka_unit_test(layouts),
    cmocka_unit_test(storage),
    cmocka_unit_test(blockizing),
    cmocka_unit_test(inside_a_block),
    cmocka_unit_test(sampling),
    cmocka_unit_test(packed_product),
    cmocka_unit_test(packed_product_in_blocks_of_k),
    cmocka_unit_test(survives_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
