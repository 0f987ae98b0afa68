/* test_lower.c: each pass keeps the meaning; the texts people see. */
#include "lower/test_lower.h"

/* ---- programs ------------------------------------------------------------------------ */

static const char matmul[] = "@T.prim_func\n"
                             "def main(A: T.Buffer((1024, 1024), 'float32'), B: T.Buffer((1024, 1024), 'float32'), C: "
                             "T.Buffer((1024, 1024), 'float32')):\n"
                             "    for i, j, k in T.grid(1024, 1024, 1024):\n"
                             "        with T.block('C'):\n"
                             "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
                             "            with T.init():\n"
                             "                C[vi, vj] = T.float32(0)\n"
                             "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

static const char small_matmul[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((8, 9), 'float32'), B: T.Buffer((9, 7), 'float32'), C: T.Buffer((8, 7), 'float32')):\n"
    "    for i, j, k in T.grid(8, 7, 9):\n"
    "        with T.block('C'):\n"
    "            vi, vj, vk = T.axis.remap('SSR', [i, j, k])\n"
    "            with T.init():\n"
    "                C[vi, vj] = T.float32(0)\n"
    "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

/* 20x22x18 in tiles of 8x16, k by 4: no extent is a multiple */
static const char tiled[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((20, 18), 'float32'), B: T.Buffer((18, 22), 'float32'), C: T.Buffer((20, 22), 'float32')):\n"
    "    for io in T.parallel(3):\n"
    "        for jo in range(2):\n"
    "            for ii in range(8):\n"
    "                for ji in T.vectorized(16):\n"
    "                    with T.block('C_init'):\n"
    "                        vi = T.axis.spatial(20, io * 8 + ii)\n"
    "                        vj = T.axis.spatial(22, jo * 16 + ji)\n"
    "                        T.where(io * 8 + ii < 20 and jo * 16 + ji < 22)\n"
    "                        C[vi, vj] = T.float32(0)\n"
    "            for ko in range(5):\n"
    "                for ii in range(8):\n"
    "                    for ki in T.unroll(4):\n"
    "                        for ji in T.vectorized(16):\n"
    "                            with T.block('C'):\n"
    "                                vi = T.axis.spatial(20, io * 8 + ii)\n"
    "                                vj = T.axis.spatial(22, jo * 16 + ji)\n"
    "                                vk = T.axis.reduce(18, ko * 4 + ki)\n"
    "                                T.where(io * 8 + ii < 20 and jo * 16 + ji < 22 and ko * 4 + ki < 18)\n"
    "                                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

static const char conv[] = "@T.prim_func\n"
                           "def main(D: T.Buffer((2, 6, 6), 'float32'), W: T.Buffer((3, 2, 3, 3), 'float32'), C: "
                           "T.Buffer((3, 6, 6), 'float32')):\n"
                           "    for co, h, w, rc, rh, rw in T.grid(3, 6, 6, 2, 3, 3):\n"
                           "        with T.block('C'):\n"
                           "            vc, vh, vw, vrc, vrh, vrw = T.axis.remap('SSSRRR', [co, h, w, rc, rh, rw])\n"
                           "            with T.init():\n"
                           "                C[vc, vh, vw] = T.float32(0)\n"
                           "            C[vc, vh, vw] = C[vc, vh, vw] + T.if_then_else(vh + vrh >= 1 and vh + vrh < 7 "
                           "and vw + vrw >= 1 and vw + vrw < 7,\n"
                           "                D[vrc, vh + vrh - 1, vw + vrw - 1], T.float32(0)) * W[vc, vrc, vrh, vrw]\n";

/* a padded copy computed under the tile that uses it */
static const char conv_pad_at[] =
    "@T.prim_func\n"
    "def main(D: T.Buffer((14, 14), 'float32'), W: T.Buffer((3, 3), 'float32'), C: T.Buffer((14, 14), 'float32')):\n"
    "    with T.block('root'):\n"
    "        P = T.alloc_buffer((16, 16), 'float32')\n"
    "        for ho in range(4):\n"
    "            for ax0 in range(6):\n"
    "                for ax1 in range(16):\n"
    "                    with T.block('P'):\n"
    "                        vh = T.axis.spatial(16, ho * 4 + ax0)\n"
    "                        vw = T.axis.spatial(16, ax1)\n"
    "                        T.where(ho * 4 + ax0 < 16)\n"
    "                        P[vh, vw] = T.if_then_else(vh >= 1 and vh < 15 and vw >= 1 and vw < 15, D[vh - 1, vw - "
    "1], T.float32(0))\n"
    "            for hi, w, rh, rw in T.grid(4, 14, 3, 3):\n"
    "                with T.block('C'):\n"
    "                    vh = T.axis.spatial(14, ho * 4 + hi)\n"
    "                    vw, vrh, vrw = T.axis.remap('SRR', [w, rh, rw])\n"
    "                    T.where(ho * 4 + hi < 14)\n"
    "                    with T.init():\n"
    "                        C[vh, vw] = T.float32(0)\n"
    "                    C[vh, vw] = C[vh, vw] + P[vh + vrh, vw + vrw] * W[vrh, vrw]\n";

static const char softmax[] = "@T.prim_func\n"
                              "def main(X: T.Buffer((5, 13), 'float32'), Y: T.Buffer((5, 13), 'float32')):\n"
                              "    with T.block('root'):\n"
                              "        M = T.alloc_buffer((5,), 'float32')\n"
                              "        E = T.alloc_buffer((5, 13), 'float32')\n"
                              "        S = T.alloc_buffer((5,), 'float32')\n"
                              "        for i, k in T.grid(5, 13):\n"
                              "            with T.block('M'):\n"
                              "                vi, vk = T.axis.remap('SR', [i, k])\n"
                              "                with T.init():\n"
                              "                    M[vi] = T.float32('-inf')\n"
                              "                M[vi] = T.max(M[vi], X[vi, vk])\n"
                              "        for i, j in T.grid(5, 13):\n"
                              "            with T.block('E'):\n"
                              "                vi, vj = T.axis.remap('SS', [i, j])\n"
                              "                E[vi, vj] = T.exp(X[vi, vj] - M[vi])\n"
                              "        for i, k in T.grid(5, 13):\n"
                              "            with T.block('S'):\n"
                              "                vi, vk = T.axis.remap('SR', [i, k])\n"
                              "                with T.init():\n"
                              "                    S[vi] = T.float32(0)\n"
                              "                S[vi] = S[vi] + E[vi, vk]\n"
                              "        for i in range(5):\n"
                              "            for j in T.vectorized(13):\n"
                              "                with T.block('Y'):\n"
                              "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                              "                    Y[vi, vj] = E[vi, vj] / S[vi]\n";

static const char transpose[] = "@T.prim_func\n"
                                "def main(A: T.Buffer((12, 10), 'float32'), B: T.Buffer((10, 12), 'float32')):\n"
                                "    for io, jo, ii in T.grid(3, 3, 4):\n"
                                "        for ji in T.vectorized(4):\n"
                                "            with T.block('B'):\n"
                                "                vi = T.axis.spatial(10, io * 4 + ii)\n"
                                "                vj = T.axis.spatial(12, jo * 4 + ji)\n"
                                "                T.where(io * 4 + ii < 10)\n"
                                "                B[vi, vj] = A[vj, vi]\n";

static const char symbolic[] = "@T.prim_func\n"
                               "def main(a: T.handle, b: T.handle):\n"
                               "    n = T.int32()\n"
                               "    A = T.match_buffer(a, (n,), 'float32')\n"
                               "    B = T.match_buffer(b, (n,), 'float32')\n"
                               "    for io in T.parallel((n + 7) // 8):\n"
                               "        for ii in T.vectorized(8):\n"
                               "            with T.block('B'):\n"
                               "                vi = T.axis.spatial(n, io * 8 + ii)\n"
                               "                T.where(io * 8 + ii < n)\n"
                               "                B[vi] = A[vi] * T.float32(2)\n";

static const char symbolic_matmul[] = "@T.prim_func\n"
                                      "def main(a: T.handle, b: T.handle, c: T.handle):\n"
                                      "    n = T.int32()\n"
                                      "    m = T.int32()\n"
                                      "    A = T.match_buffer(a, (n, m), 'float32')\n"
                                      "    B = T.match_buffer(b, (m, n), 'float32')\n"
                                      "    C = T.match_buffer(c, (n, n), 'float32')\n"
                                      "    for io, j, ii, k in T.grid((n + 3) // 4, n, 4, m):\n"
                                      "        with T.block('C'):\n"
                                      "            vi = T.axis.spatial(n, io * 4 + ii)\n"
                                      "            vj, vk = T.axis.remap('SR', [j, k])\n"
                                      "            T.where(io * 4 + ii < n)\n"
                                      "            with T.init():\n"
                                      "                C[vi, vj] = T.float32(0)\n"
                                      "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";

/* a cached tile: packed copy of B, accumulation in a local tile, copy back */
static const char packed[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((12, 16), 'float32'), B: T.Buffer((16, 32), 'float32'), C: T.Buffer((12, 32), 'float32')):\n"
    "    with T.block('root'):\n"
    "        Bp = T.alloc_buffer((2, 16, 16), 'float32')\n"
    "        Cl = T.alloc_buffer((12, 32), 'float32', scope='local')\n"
    "        for jo, k in T.grid(2, 16):\n"
    "            for ji in T.vectorized(16):\n"
    "                with T.block('Bp'):\n"
    "                    v0, v1, v2 = T.axis.remap('SSS', [jo, k, ji])\n"
    "                    Bp[v0, v1, v2] = B[v1, v0 * 16 + v2]\n"
    "        for io in T.parallel(2):\n"
    "            for jo in range(2):\n"
    "                for ii in T.unroll(6):\n"
    "                    for ji in T.vectorized(16):\n"
    "                        with T.block('Cl_init'):\n"
    "                            vi = T.axis.spatial(12, io * 6 + ii)\n"
    "                            vj = T.axis.spatial(32, jo * 16 + ji)\n"
    "                            Cl[vi, vj] = T.float32(0)\n"
    "                for k in range(16):\n"
    "                    for ii in T.unroll(6):\n"
    "                        for ji in T.vectorized(16):\n"
    "                            with T.block('Cl'):\n"
    "                                vi = T.axis.spatial(12, io * 6 + ii)\n"
    "                                vj = T.axis.spatial(32, jo * 16 + ji)\n"
    "                                vk = T.axis.reduce(16, k)\n"
    "                                Cl[vi, vj] = Cl[vi, vj] + A[vi, vk] * Bp[vj // 16, vk, vj % 16]\n"
    "                for ii in T.unroll(6):\n"
    "                    for ji in T.vectorized(16):\n"
    "                        with T.block('C'):\n"
    "                            vi = T.axis.spatial(12, io * 6 + ii)\n"
    "                            vj = T.axis.spatial(32, jo * 16 + ji)\n"
    "                            C[vi, vj] = Cl[vi, vj]\n";

/* ---- the meaning stays ------------------------------------------------------------------ */

static void on_all_targets(World *w, const char *text, const Size *sizes, double tolerance)
{
  const char *targets[] = {WIDE, NARROW, PLAIN};
  for (int i = 0; i < 3; i++) same_meaning(w, parse(w, text), targets[i], sizes, tolerance);
}

CASE(keeps_small_matmul) { on_all_targets(w, small_matmul, NULL, 0); }
CASE(keeps_tiled_matmul) { on_all_targets(w, tiled, NULL, 0); }
CASE(keeps_padded_conv) { on_all_targets(w, conv, NULL, 0); }
CASE(keeps_conv_with_padding_computed_at_tile) { on_all_targets(w, conv_pad_at, NULL, 0); }
CASE(keeps_softmax) { on_all_targets(w, softmax, NULL, 1e-6); }
CASE(keeps_transpose) { on_all_targets(w, transpose, NULL, 0); }
CASE(keeps_packed_matmul) { on_all_targets(w, packed, NULL, 0); }

CASE(keeps_symbolic_sizes)
{
  for (int64_t n = 0; n < 20; n += 3) on_all_targets(w, symbolic, (Size[]){{"n", n}, {NULL, 0}}, 0);
  on_all_targets(w, symbolic_matmul, (Size[]){{"n", 6}, {"m", 5}, {NULL, 0}}, 0);
}

/* A sum over nothing is its identity, also where the text leaves the result alone. */
CASE(empty_sum_is_zero)
{
  Args args;
  PrimFunc *f = parse(w, symbolic_matmul);
  PrimFunc *g = kernel_func(w, f);
  make_args(w, f, (Size[]){{"n", 3}, {"m", 0}, {NULL, 0}}, 7, &args);
  func_interpret(g, args.n, args.arg);
  for (int i = 0; i < 9; i++) assert_true(((float *)args.arg[2].data)[i] == 0);
}

/* ---- texts --------------------------------------------------------------------------------- */

CASE(naive_matmul_prints_as_in_the_lesson)
{
  check_text(w, loops(w, parse(w, matmul)),
             "for (i, 0, 1024) {\n"
             "  for (j, 0, 1024) {\n"
             "    C[i*1024 + j] = 0f\n"
             "    for (k, 0, 1024) {\n"
             "      C[i*1024 + j] = C[i*1024 + j] + A[i*1024 + k] * B[k*1024 + j]\n"
             "    }\n"
             "  }\n"
             "}\n");
}

CASE(symbolic_vector_loop_has_a_clean_main_loop)
{
  check_text(w, loops(w, parse(w, symbolic)),
             "parallel (io, 0, n//8) {\n"
             "  B[ramp(io*8, 1, 8)] = A[ramp(io*8, 1, 8)] * broadcast(2f, 8)\n"
             "}\n"
             "for (io_1, 0, (n + 7)//8 - n//8) {\n"
             "  for (ii, 0, n%8 - io_1*8) {\n"
             "    B[n//8*8 + ii] = A[n//8*8 + ii] * 2f\n"
             "  }\n"
             "}\n");
}

CASE(accumulator_of_naive_matmul_is_a_variable)
{
  check_text(w, kernel_func(w, parse(w, matmul)),
             "for (i, 0, 1024) {\n"
             "  for (j, 0, 1024) {\n"
             "    allocate C_acc[float32 * 1], storage_scope = local;\n"
             "    C_acc[0] = 0f\n"
             "    for (k, 0, 1024) {\n"
             "      C_acc[0] = C_acc[0] + A[i*1024 + k] * B[k*1024 + j]\n"
             "    }\n"
             "    C[i*1024 + j] = C_acc[0]\n"
             "  }\n"
             "}\n");
}

/* The register tile: 6 vectors, each a buffer of its own, none accessed otherwise. */
static bool count_tile(void *env, Stmt *s)
{
  int *n = env;
  if (s->kind == S_ALLOC && !strcmp(s->u.alloc.buffer->name, "Cl")) {
    n[0]++;
    n[1] += expr_is_int(s->u.alloc.buffer->shape[0], 16) && s->u.alloc.place == PLACE_STACK;
  }
  if (s->kind == S_STORE && !strcmp(s->u.store.buffer->name, "Cl")) {
    n[2]++;
    const Expr *at = s->u.store.index[0];
    n[3] += at->kind == E_RAMP && expr_is_int(at->arg[0], 0) && at->dtype.lanes == 16;
  }
  return true;
}

CASE(register_tile_becomes_variables)
{
  PrimFunc *k = kernel_func(w, parse(w, packed));
  int n[4] = {0};
  stmt_visit(k->body, count_tile, n);
  assert_int_equal(n[0], 6);
  assert_int_equal(n[1], 6);
  assert_int_equal(n[2], 12); /* 6 set to zero, 6 in the loop over k */
  assert_int_equal(n[3], 12);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(keeps_small_matmul),
    cmocka_unit_test(keeps_tiled_matmul),
    cmocka_unit_test(keeps_padded_conv),
    cmocka_unit_test(keeps_conv_with_padding_computed_at_tile),
    cmocka_unit_test(keeps_softmax),
    cmocka_unit_test(keeps_transpose),
    cmocka_unit_test(keeps_packed_matmul),
    cmocka_unit_test(keeps_symbolic_sizes),
    cmocka_unit_test(empty_sum_is_zero),
    cmocka_unit_test(naive_matmul_prints_as_in_the_lesson),
    cmocka_unit_test(symbolic_vector_loop_has_a_clean_main_loop),
    cmocka_unit_test(accumulator_of_naive_matmul_is_a_variable),
    cmocka_unit_test(register_tile_becomes_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
