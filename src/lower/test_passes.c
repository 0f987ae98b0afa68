/* test_passes.c: one case for each thing a pass promises beyond keeping the meaning. */
#include "lower/test_lower.h"

#include <limits.h>

/* ---- looking at results ----------------------------------------------------------------- */

typedef struct Find {
  const char *name;
  Stmt *found;
  int count;
} Find;

static bool find_alloc(void *env, Stmt *s)
{
  Find *f = env;
  if (s->kind == S_ALLOC && !strcmp(s->u.alloc.buffer->name, f->name)) {
    if (!f->found) f->found = s;
    f->count++;
  }
  return true;
}

static Stmt *alloc_of(PrimFunc *f, const char *name)
{
  Find v = {.name = name};
  stmt_visit(f->body, find_alloc, &v);
  assert_non_null(v.found);
  return v.found;
}

static int64_t alloc_size(PrimFunc *f, const char *name)
{
  const Expr *n = alloc_of(f, name)->u.alloc.buffer->shape[0];
  assert_int_equal(n->kind, E_INT);
  return n->u.i;
}

static int count_text(World *w, const PrimFunc *f, const char *word)
{
  int n = 0;
  for (const char *s = func_print_compact(scratch(w->ctx), f); (s = strstr(s, word)); s++) n++;
  return n;
}

static PrimFunc *lowered(World *w, const char *text, const char *target, LowerStage stage)
{
  return lower_func(parse(w, text), target_parse(w->ctx, target), stage, NULL);
}

/* ---- allocation and compaction ------------------------------------------------------------- */

static const char chain_at[] = "@T.prim_func\n"
                               "def main(A: T.Buffer((18, 27), 'float32'), C: T.Buffer((18, 27), 'float32')):\n"
                               "    with T.block('root'):\n"
                               "        B = T.alloc_buffer((18, 27), 'float32')\n"
                               "        for io, jo in T.grid(5, 4):\n"
                               "            for ax0, ax1 in T.grid(4, 8):\n"
                               "                with T.block('B'):\n"
                               "                    vi = T.axis.spatial(18, io * 4 + ax0)\n"
                               "                    vj = T.axis.spatial(27, jo * 8 + ax1)\n"
                               "                    T.where(io * 4 + ax0 < 18 and jo * 8 + ax1 < 27)\n"
                               "                    %sB[vi, vj] = A[vi, vj] * T.float32(2)\n"
                               "            for ii, ji in T.grid(4, 8):\n"
                               "                with T.block('C'):\n"
                               "                    vi = T.axis.spatial(18, io * 4 + ii)\n"
                               "                    vj = T.axis.spatial(27, jo * 8 + ji)\n"
                               "                    T.where(io * 4 + ii < 18 and jo * 8 + ji < 27)\n"
                               "                    C[vi, vj] = B[vi, vj] + T.float32(1)\n";

CASE(buffer_shrinks_to_its_tile)
{
  const char *text = arena_printf(scratch(w->ctx), chain_at, "");
  assert_int_equal(alloc_size(lowered(w, text, WIDE, LOWER_LOOPS), "B"), 32);
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
}

CASE(alignment_pads_strides)
{
  /* rows of 8 become 16 * n + 4 = 20 apart: 3 full rows and 8 elements */
  const char *text = arena_printf(scratch(w->ctx), chain_at,
                                  "T.block_attr({'buffer_dim_align': [[0, 0, 16, 4]]})\n                    ");
  assert_int_equal(alloc_size(lowered(w, text, WIDE, LOWER_LOOPS), "B"), 3 * 20 + 8);
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
}

CASE(reduction_keeps_its_buffer_outside_the_loop)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((4, 6), 'float32'), C: T.Buffer((4,), 'float32')):\n"
                     "    with T.block('root'):\n"
                     "        B = T.alloc_buffer((4,), 'float32')\n"
                     "        for k, i in T.grid(6, 4):\n"
                     "            with T.block('B'):\n"
                     "                vi, vk = T.axis.remap('SR', [i, k])\n"
                     "                with T.init():\n"
                     "                    B[vi] = T.float32(0)\n"
                     "                B[vi] = B[vi] + A[vi, vk]\n"
                     "        for i in range(4):\n"
                     "            with T.block('C'):\n"
                     "                vi = T.axis.remap('S', [i])\n"
                     "                C[vi] = B[vi]\n";
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
  PrimFunc *g = lowered(w, text, WIDE, LOWER_LOOPS);
  assert_ptr_equal(alloc_of(g, "B"), g->body);
  assert_int_equal(count_text(w, g, "if"), 0);
}

/* ---- views and pointers ------------------------------------------------------------------------ */

static const char viewed[] =
    "@T.prim_func\n"
    "def main(A: T.Buffer((8, 16), 'float32'), C: T.Buffer((8, 16), 'float32')):\n"
    "    for io, jo in T.grid(2, 4):\n"
    "        with T.block('tile'):\n"
    "            vi, vj = T.axis.remap('SS', [io, jo])\n"
    "            T.reads(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])\n"
    "            T.writes(C[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])\n"
    "            X = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), 'float32', offset_factor=1)\n"
    "            Y = T.match_buffer(C[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), 'float32', offset_factor=1)\n"
    "            for i, j in T.grid(4, 4):\n"
    "                Y[i, j] = X[j, i]\n";

CASE(views_become_what_they_view)
{
  same_meaning(w, parse(w, viewed), WIDE, NULL, 0);
  check_text(w, loops(w, parse(w, viewed)),
             "for (io, 0, 2) {\n"
             "  for (jo, 0, 4) {\n"
             "    for (i, 0, 4) {\n"
             "      for (j, 0, 4) {\n"
             "        C[io*64 + i*16 + jo*4 + j] = A[io*64 + j*16 + jo*4 + i]\n"
             "      }\n"
             "    }\n"
             "  }\n"
             "}\n");
}

CASE(pointers_into_views_are_addresses)
{
  Module *m = w->m;
  const Expr *shape[] = {expr_i32(m, 8), expr_i32(m, 16)};
  const Buffer *A = buffer_new(m, "A", DT_F32, 2, shape, NULL, NULL, NULL, 0, 0, NULL);
  const Var *offset = var_new(m, "offset", DT_I32, VAR_PLAIN);
  const Var *stride = var_new(m, "stride", DT_I32, VAR_PLAIN);
  const Expr *four = expr_i32(m, 4);
  const Expr *vshape[] = {four, four};
  const Expr *vstride[] = {stride->expr, expr_i32(m, 1)};
  const Buffer *X = buffer_new(m, "X", DT_F32, 2, vshape, vstride, offset->expr, NULL, 0, 1, NULL);
  const Var *i = var_new(m, "i", DT_I32, VAR_PLAIN);
  const Var *vi = var_new(m, "vi", DT_I32, VAR_PLAIN);
  const Expr *marker = expr_call(m, DT_F32, IN_TYPE_MARKER, 0, NULL);
  const Expr *ptr = expr_call(m, DT_PTR, IN_ACCESS_PTR, 5,
                              (const Expr *[]){marker, X->data->expr, offset->expr, expr_i32(m, 16), expr_i32(m, 2)});
  const Expr *call = expr_call(m, DT_I32, IN_CALL_EXTERN, 3, (const Expr *[]){expr_str(m, "fill"), ptr, stride->expr});
  Block *b = arena_new_of(m->arena, Block);
  BlockIter it = {vi, expr_i32(m, 0), expr_i32(m, 2), ITER_SPATIAL, i->expr};
  const Expr *min[] = {expr_mul(m, vi->expr, four), four};
  const Expr *extent[] = {four, four};
  MatchBuffer match = {X, {A, min, extent}};
  *b = (Block){.name = "fill", .iter = &it, .niter = 1, .matches = &match, .nmatches = 1, .body = stmt_eval(m, call)};
  Stmt *loop = stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 2), FOR_SERIAL, NULL, stmt_block(m, b));
  PrimFunc *f = func_new(m, "main", 1, &(Param){A->data, A}, loop);
  check_text(w, kernel_func(w, f),
             "for (i, 0, 2) {\n"
             "  call_extern(\"fill\", address_of(A[i*64 + 4]), 16)\n"
             "}\n");
  Kernel *k = lower_kernel(f, target_parse(w->ctx, WIDE), NULL);
  assert_true(k->arg[0].written);
}

/* ---- vectors ------------------------------------------------------------------------------------- */

#define VECTOR(n, body)                                                                                                \
  "@T.prim_func\n"                                                                                                     \
  "def main(A: T.Buffer((" #n ",), 'float32'), I: T.Buffer((" #n ",), 'int32'), C: T.Buffer((" #n ",), 'float32')):\n" \
  "    for i in T.vectorized(" #n "):\n"                                                                               \
  "        with T.block('C'):\n"                                                                                       \
  "            v = T.axis.remap('S', [i])\n"                                                                           \
  "            " body "\n"

CASE(odd_vectors_are_cut_to_registers)
{
  PrimFunc *f = same_meaning(w, parse(w, VECTOR(23, "C[v] = A[v] + T.float32(1)")), WIDE, NULL, 0);
  check_text(w, f,
             "C[ramp(0, 1, 16)] = A[ramp(0, 1, 16)] + broadcast(1f, 16)\n"
             "C[ramp(7, 1, 16)] = A[ramp(7, 1, 16)] + broadcast(1f, 16)\n");
  f = same_meaning(w, parse(w, VECTOR(23, "C[v] = C[v] + A[v]")), WIDE, NULL, 0);
  check_text(w, f,
             "C[ramp(0, 1, 16)] = C[ramp(0, 1, 16)] + A[ramp(0, 1, 16)]\n"
             "C[ramp(16, 1, 4)] = C[ramp(16, 1, 4)] + A[ramp(16, 1, 4)]\n"
             "C[ramp(20, 1, 2)] = C[ramp(20, 1, 2)] + A[ramp(20, 1, 2)]\n"
             "C[22] = C[22] + A[22]\n");
  f = lowered(w, VECTOR(8, "C[v] = A[v] + T.float32(1)"), NARROW, LOWER_KERNEL);
  assert_int_equal(count_text(w, f, "C[ramp("), 2);
}

CASE(vector_of_mixed_widths_counts_the_widest)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((64,), 'int8'), C: T.Buffer((64,), 'int32'), D: T.Buffer((64,), 'int8')):\n"
                     "    for i in T.vectorized(64):\n"
                     "        with T.block('C'):\n"
                     "            v = T.axis.remap('S', [i])\n"
                     "            C[v] = T.Cast('int32', A[v])\n"
                     "            D[v] = A[v]\n";
  PrimFunc *f = same_meaning(w, parse(w, text), WIDE, NULL, 0);
  assert_int_equal(count_text(w, f, "C[ramp("), 4);
  assert_int_equal(count_text(w, f, "D[ramp("), 1);
  f = same_meaning(w, parse(w, text), "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", NULL, 0);
  assert_int_equal(count_text(w, f, "C[ramp("), 4); /* of four registers: bytes are read 16 at a time */
  assert_int_equal(count_text(w, f, "D[ramp("), 4);
}

CASE(what_has_no_vector_form_goes_lane_by_lane)
{
  same_meaning(w, parse(w, VECTOR(8, "C[v] = T.if_then_else(v < 5, A[v], T.float32(3))")), WIDE, NULL, 0);
  same_meaning(w, parse(w, VECTOR(8, "C[v] = T.Select(v < 5, A[v], T.float32(3))")), WIDE, NULL, 0);
  same_meaning(w, parse(w, VECTOR(8, "C[v] = T.fmod(A[v], T.float32(0.75)) + T.exp(A[v])")), WIDE, NULL, 1e-6);
  same_meaning(w, parse(w, VECTOR(12, "C[v] = A[T.max(T.min(I[v], 11), 0)]")), WIDE, NULL, 0);
  same_meaning(w, parse(w, VECTOR(12, "C[11 - v] = A[v // 3] * A[v % 4]")), WIDE, NULL, 0);
  same_meaning(w, parse(w, VECTOR(12, "C[v] = T.Cast('float32', T.exp(T.Cast('float64', A[v])))")), WIDE, NULL, 1e-6);
  const char *conditional = VECTOR(8, "if I[v] > 0:\n                C[v] = A[v]");
  same_meaning(w, parse(w, conditional), WIDE, NULL, 0);
}

CASE(loops_and_lets_inside_a_vector_loop)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((6, 16), 'float32'), C: T.Buffer((16,), 'float32')):\n"
                     "    for j in T.vectorized(16):\n"
                     "        with T.block('C'):\n"
                     "            v = T.axis.remap('S', [j])\n"
                     "            T.reads(A[0:6, v])\n"
                     "            T.writes(C[v])\n"
                     "            C[v] = T.float32(0)\n"
                     "            for k in range(6):\n"
                     "                x = A[k, v] * T.float32(2)\n"
                     "                C[v] = C[v] + x * x\n";
  PrimFunc *f = parse(w, text);
  same_meaning(w, f, WIDE, NULL, 0);
  same_meaning(w, f, NARROW, NULL, 0);
  assert_int_equal(count_text(w, loops(w, f), "ramp(k*16, 1, 16)"), 1);
}

CASE(buffer_inside_a_vector_loop_has_a_copy_per_lane)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((3, 8), 'float32'), C: T.Buffer((8,), 'float32')):\n"
                     "    with T.block('root'):\n"
                     "        B = T.alloc_buffer((3, 8), 'float32')\n"
                     "        for j in T.vectorized(8):\n"
                     "            for i in range(3):\n"
                     "                with T.block('B'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    B[vi, vj] = A[vi, vj] + T.float32(1)\n"
                     "            for k in range(3):\n"
                     "                with T.block('C'):\n"
                     "                    vj, vk = T.axis.remap('SR', [j, k])\n"
                     "                    with T.init():\n"
                     "                        C[vj] = T.float32(0)\n"
                     "                    C[vj] = C[vj] + B[vk, vj]\n";
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
  PrimFunc *g = loops(w, parse(w, text));
  assert_int_equal(alloc_size(g, "B"), 24);
  assert_int_equal(count_text(w, g, "B[ramp(i*8, 1, 8)]"), 1);
}

/* ---- unrolling -------------------------------------------------------------------------------------- */

CASE(pragma_unrolls_what_is_small)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((10, 4), 'float32'), C: T.Buffer((10, 4), 'float32')):\n"
                     "    for i in T.serial(10, annotations={'pragma_auto_unroll_max_step': %d}):\n"
                     "        for j in range(4):\n"
                     "            with T.block('C'):\n"
                     "                vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                C[vi, vj] = A[vi, vj]\n";
  const int steps[] = {0, 4, 40};
  const int stores[] = {1, 4, 40};
  for (int k = 0; k < 3; k++) {
    PrimFunc *f = parse(w, arena_printf(scratch(w->ctx), text, steps[k]));
    same_meaning(w, f, WIDE, NULL, 0);
    assert_int_equal(count_text(w, loops(w, f), "= A["), stores[k]);
  }
  LowerConfig config = {.unroll_max = 4};
  PrimFunc *f = parse(w, "@T.prim_func\ndef main(A: T.Buffer((4,), 'float32')):\n    for i in range(4):\n        A[i] "
                         "= A[i] + T.float32(1)\n");
  assert_int_equal(count_text(w, lower_func(f, target_parse(w->ctx, WIDE), LOWER_LOOPS, &config), "+ 1f"), 4);
}

CASE(guards_stay_when_asked)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((10,), 'float32')):\n"
                     "    for io, ii in T.grid(3, 4):\n"
                     "        with T.block('A'):\n"
                     "            v = T.axis.spatial(10, io * 4 + ii)\n"
                     "            T.where(io * 4 + ii < 10)\n"
                     "            A[v] = T.float32(1)\n";
  LowerConfig config = {.no_partition = true};
  check_text(w, lower_func(parse(w, text), target_parse(w->ctx, WIDE), LOWER_LOOPS, &config),
             "for (io, 0, 3) {\n"
             "  for (ii, 0, 4) {\n"
             "    if (io*4 + ii < 10) {\n"
             "      A[io*4 + ii] = 1f\n"
             "    }\n"
             "  }\n"
             "}\n");
}

/* ---- double buffering ---------------------------------------------------------------------------------- */

CASE(double_buffer_fills_ahead)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((5, 8), 'float32'), C: T.Buffer((5, 8), 'float32')):\n"
                     "    with T.block('root'):\n"
                     "        B = T.alloc_buffer((5, 8), 'float32')\n"
                     "        for i in range(5):\n"
                     "            for ax in range(8):\n"
                     "                with T.block('B'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, ax])\n"
                     "                    T.block_attr({'double_buffer_scope': 0})\n"
                     "                    B[vi, vj] = A[vi, vj]\n"
                     "            for j in range(8):\n"
                     "                with T.block('C'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    C[vi, vj] = B[vi, vj] + T.float32(1)\n";
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
  PrimFunc *g = loops(w, parse(w, text));
  assert_int_equal(alloc_size(g, "B"), 16);
  assert_int_equal(count_text(w, g, "if"), 0);
  assert_int_equal(count_text(w, g, "A["), 2); /* before the loop, and one step ahead in it */
}

/* ---- promotion -------------------------------------------------------------------------------------------- */

CASE(accumulators_that_may_overlap_stay_in_memory)
{
  const char *text =
      "@T.prim_func\n"
      "def main(A: T.Buffer((8, 4), 'float32'), C: T.Buffer((8,), 'float32'), I: T.Buffer((8,), 'int32')):\n"
      "    for i in range(7):\n"
      "        for k in range(4):\n"
      "            C[i] = C[i] + A[i, k] * C[i + 1]\n"
      "            C[T.min(T.max(I[i], 0), 7)] = C[i]\n";
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
  assert_int_equal(count_text(w, kernel_func(w, parse(w, text)), "acc"), 0);
}

CASE(accumulator_of_a_loop_that_may_not_run)
{
  const char *text = "@T.prim_func\n"
                     "def main(a: T.handle, C: T.Buffer((1,), 'float32')):\n"
                     "    n = T.int32()\n"
                     "    A = T.match_buffer(a, (n,), 'float32')\n"
                     "    for i in range(n):\n"
                     "        C[0] = C[0] + A[i]\n";
  for (int64_t n = 0; n < 3; n++) same_meaning(w, parse(w, text), WIDE, (Size[]){{"n", n}, {NULL, 0}}, 0);
  PrimFunc *g = kernel_func(w, parse(w, text));
  assert_int_equal(count_text(w, g, "if (0 < n)") + count_text(w, g, "if (n > 0)"), 1);
}

CASE(unaligned_tiles_promote_too)
{
  /* two rows of accumulators at a variable place, read and written whole */
  const char *text =
      "@T.prim_func\n"
      "def main(A: T.Buffer((6, 16), 'float32'), B: T.Buffer((16, 16), 'float32'), C: T.Buffer((6, 16), 'float32')):\n"
      "    for io, k in T.grid(3, 16):\n"
      "        for ii in T.unroll(2):\n"
      "            for j in T.vectorized(16):\n"
      "                with T.block('C'):\n"
      "                    vi = T.axis.spatial(6, io * 2 + ii)\n"
      "                    vj, vk = T.axis.remap('SR', [j, k])\n"
      "                    with T.init():\n"
      "                        C[vi, vj] = T.float32(0)\n"
      "                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";
  same_meaning(w, parse(w, text), WIDE, NULL, 0);
  PrimFunc *g = kernel_func(w, parse(w, text));
  assert_int_equal(count_text(w, g, "allocate C_acc"), 2);
  assert_int_equal(count_text(w, g, "C["), 2); /* stored once each, never loaded */
}

/* ---- storage ----------------------------------------------------------------------------------------------- */

static const char stages[] = "@T.prim_func\n"
                             "def main(A: T.Buffer((64, 128), 'float32'), C: T.Buffer((64, 128), 'float32')):\n"
                             "    with T.block('root'):\n"
                             "        X = T.alloc_buffer((64, 128), 'float32')\n"
                             "        Y = T.alloc_buffer((64, 128), 'float32')\n"
                             "        Z = T.alloc_buffer((64, 128), 'float32')\n"
                             "        for i, j in T.grid(64, 128):\n"
                             "            with T.block('X'):\n"
                             "                vi, vj = T.axis.remap('SS', [i, j])\n"
                             "                X[vi, vj] = A[vi, vj]\n"
                             "        for i, j in T.grid(64, 128):\n"
                             "            with T.block('Y'):\n"
                             "                vi, vj = T.axis.remap('SS', [i, j])\n"
                             "                Y[vi, vj] = X[vi, vj]\n"
                             "        for i, j in T.grid(64, 128):\n"
                             "            with T.block('Z'):\n"
                             "                vi, vj = T.axis.remap('SS', [i, j])\n"
                             "                Z[vi, vj] = Y[vi, vj]\n"
                             "        for i, j in T.grid(64, 128):\n"
                             "            with T.block('C'):\n"
                             "                vi, vj = T.axis.remap('SS', [i, j])\n"
                             "                C[vi, vj] = Z[vi, vj]\n";

CASE(buffers_that_never_meet_share_the_workspace)
{
  Kernel *k = lower_kernel(parse(w, stages), target_parse(w->ctx, WIDE), NULL);
  assert_int_equal(k->workspace_bytes->u.i, 2 * 64 * 128 * 4);
  assert_int_equal(k->slice_bytes->u.i, 0);
  PrimFunc *g = lowered(w, stages, WIDE, LOWER_KERNEL);
  Stmt *x = alloc_of(g, "X");
  Stmt *y = alloc_of(g, "Y");
  Stmt *z = alloc_of(g, "Z");
  assert_int_equal(x->u.alloc.place, PLACE_WORKSPACE);
  assert_int_equal(x->u.alloc.offset->u.i, z->u.alloc.offset->u.i);
  assert_int_not_equal(x->u.alloc.offset->u.i, y->u.alloc.offset->u.i);
}

CASE(buffers_of_a_parallel_loop_live_in_slices)
{
  const char *text = "@T.prim_func\n"
                     "def main(a: T.handle, c: T.handle):\n"
                     "    n = T.int32()\n"
                     "    A = T.match_buffer(a, (4, n), 'float32')\n"
                     "    C = T.match_buffer(c, (4, n), 'float32')\n"
                     "    with T.block('root'):\n"
                     "        X = T.alloc_buffer((4, n), 'float32')\n"
                     "        Y = T.alloc_buffer((4, 8000), 'float32')\n"
                     "        S = T.alloc_buffer((4, 2), 'float32')\n"
                     "        for i in T.parallel(4):\n"
                     "            for j in range(n):\n"
                     "                with T.block('X'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    X[vi, vj] = A[vi, vj]\n"
                     "            for j in range(8000):\n"
                     "                with T.block('Y'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    Y[vi, vj] = T.float32(1)\n"
                     "            for j in range(2):\n"
                     "                with T.block('S'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    S[vi, vj] = Y[vi, vj]\n"
                     "            for j in range(n):\n"
                     "                with T.block('C'):\n"
                     "                    vi, vj = T.axis.remap('SS', [i, j])\n"
                     "                    C[vi, vj] = X[vi, vj] + S[vi, 1]\n";
  PrimFunc *f = parse(w, text);
  same_meaning(w, f, WIDE, (Size[]){{"n", 5}, {NULL, 0}}, 0);
  PrimFunc *g = kernel_func(w, f);
  assert_int_equal(alloc_of(g, "X")->u.alloc.place, PLACE_SLICE);
  assert_int_equal(alloc_of(g, "Y")->u.alloc.place, PLACE_SLICE);
  assert_int_equal(alloc_of(g, "S")->u.alloc.place, PLACE_STACK);
  Kernel *k = lower_kernel(f, target_parse(w->ctx, WIDE), NULL);
  assert_int_equal(k->workspace_bytes->u.i, 0);
  assert_int_equal(size_value(w, k->slice_bytes, (Size[]){{"n", 5}, {NULL, 0}}), 32000 + (5 * 4 + 63) / 64 * 64);
}

/* ---- the kernel's interface ------------------------------------------------------------------------------------ */

CASE(kernel_names_its_arguments_and_sizes)
{
  const char *text = "@T.prim_func\n"
                     "def main(a: T.handle, b: T.handle, alpha: T.float32):\n"
                     "    n = T.int32()\n"
                     "    s = T.int32()\n"
                     "    A = T.match_buffer(a, (n, 4), 'float32', strides=(s, 1))\n"
                     "    B = T.match_buffer(b, (n, 4), 'float32')\n"
                     "    for i, j in T.grid(n, 4):\n"
                     "        with T.block('B'):\n"
                     "            vi, vj = T.axis.remap('SS', [i, j])\n"
                     "            B[vi, vj] = A[vi, vj] * alpha\n";
  Kernel *k = lower_kernel(parse(w, text), target_parse(w->ctx, WIDE), NULL);
  assert_int_equal(k->narg, 3);
  assert_string_equal(k->arg[0].name, "A");
  assert_false(k->arg[0].written);
  assert_true(k->arg[1].written);
  assert_null(k->arg[2].buffer);
  assert_int_equal(k->nsize, 2);
  assert_string_equal(k->size[0].var->name, "n");
  assert_int_equal(k->size[0].arg, 0);
  assert_int_equal(k->size[0].dim, 0);
  assert_string_equal(k->size[1].var->name, "s");
  assert_int_equal(k->size[1].dim, -1);
}

CASE(captures_are_what_the_body_uses_from_outside)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((8, 4), 'float32'), C: T.Buffer((8, 4), 'float32'), alpha: T.float32):\n"
                     "    for k in range(2):\n"
                     "        for i in T.parallel(8):\n"
                     "            for j in range(4):\n"
                     "                C[i, j] = A[i, (j + k) % 4] * alpha\n";
  PrimFunc *g = kernel_func(w, parse(w, text));
  Stmt *s = g->body;
  while (s->kind != S_FOR || s->u.loop.kind != FOR_PARALLEL) s = s->u.loop.body;
  const Var **v;
  int n = lower_captures(scratch(w->ctx), s, &v);
  assert_int_equal(n, 4);
  const char *names[] = {"C", "A", "k", "alpha"};
  for (int i = 0; i < 4; i++) assert_string_equal(v[i]->name, names[i]);
}

CASE(large_sizes_are_indexed_in_64_bits)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((%d, 65536), 'int8')):\n"
                     "    for i, j in T.grid(%d, 65536):\n"
                     "        A[i, j] = T.int8(0)\n";
  PrimFunc *small = kernel_func(w, parse(w, arena_printf(scratch(w->ctx), text, 32768, 32768)));
  PrimFunc *large = kernel_func(w, parse(w, arena_printf(scratch(w->ctx), text, 32769, 32769)));
  Stmt *s = small->body->u.loop.body->u.loop.body;
  Stmt *l = large->body->u.loop.body->u.loop.body;
  assert_int_equal(s->u.store.index[0]->dtype.bits, 32);
  assert_int_equal(l->u.store.index[0]->dtype.bits, 64);
}

/* ---- GPU
 * ---------------------------------------------------------------------------------------------------------- */

CASE(thread_axes_come_first_and_barriers_between)
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((64,), 'float32'), C: T.Buffer((64,), 'float32')):\n"
                     "    with T.block('root'):\n"
                     "        S = T.alloc_buffer((64,), 'float32', scope='shared')\n"
                     "        for b in T.thread_binding(4, thread='blockIdx.x'):\n"
                     "            for k in range(2):\n"
                     "                for t in T.thread_binding(16, thread='threadIdx.x'):\n"
                     "                    with T.block('S'):\n"
                     "                        v = T.axis.spatial(64, b * 16 + t)\n"
                     "                        vk = T.axis.opaque(2, k)\n"
                     "                        S[v] = A[v] + T.Cast('float32', vk)\n"
                     "                for t in T.thread_binding(16, thread='threadIdx.x'):\n"
                     "                    with T.block('C'):\n"
                     "                        v = T.axis.spatial(64, b * 16 + t)\n"
                     "                        vk = T.axis.opaque(2, k)\n"
                     "                        C[v] = S[b * 16 + (15 - t)]\n";
  PrimFunc *f = parse(w, text);
  same_meaning(w, f, "cuda -arch=sm_90", NULL, 0);
  PrimFunc *g = lowered(w, text, "cuda -arch=sm_90", LOWER_KERNEL);
  assert_int_equal(count_text(w, g, "tvm_storage_sync"), 2);
  assert_int_equal(alloc_of(g, "S")->u.alloc.place, PLACE_SHARED);
  assert_int_equal(alloc_size(g, "S"), 16);
  assert_int_equal(g->body->kind, S_FOR);
  assert_string_equal(g->body->u.loop.thread_tag, "blockIdx.x");
  Stmt *t = g->body->u.loop.body;
  assert_true(t->kind == S_FOR && !strcmp(t->u.loop.thread_tag, "threadIdx.x"));
}

REFUSED(threads_on_a_cpu, ERR_UNSUPPORTED, "bound to threadIdx.x")
{
  const char *text = "@T.prim_func\n"
                     "def main(A: T.Buffer((64,), 'float32')):\n"
                     "    for t in T.thread_binding(64, thread='threadIdx.x'):\n"
                     "        A[t] = T.float32(0)\n";
  lowered(w, text, WIDE, LOWER_KERNEL);
}

REFUSED(unknown_pass, ERR_ARGUMENT, "did you mean 'flatten_buffers'")
{
  lower_run_pass(parse(w, viewed), target_parse(w->ctx, WIDE), "flatten_bufers");
}

REFUSED(shape_nobody_gives, ERR_ARGUMENT, "which no argument gives")
{
  Module *m = w->m;
  const Var *n = var_new(m, "n", DT_I32, VAR_SIZE);
  const Expr *shape = expr_mul(m, n->expr, expr_i32(m, 2));
  const Expr *zero = expr_i32(m, 0);
  const Buffer *A = buffer_new(m, "A", DT_F32, 1, &shape, NULL, NULL, NULL, 0, 0, NULL);
  PrimFunc *f = func_new(m, "main", 1, &(Param){A->data, A}, stmt_store(m, A, 1, &zero, expr_float(m, DT_F32, 0)));
  lower_kernel(f, target_parse(w->ctx, WIDE), NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(buffer_shrinks_to_its_tile),
    cmocka_unit_test(alignment_pads_strides),
    cmocka_unit_test(reduction_keeps_its_buffer_outside_the_loop),
    cmocka_unit_test(views_become_what_they_view),
    cmocka_unit_test(pointers_into_views_are_addresses),
    cmocka_unit_test(odd_vectors_are_cut_to_registers),
    cmocka_unit_test(vector_of_mixed_widths_counts_the_widest),
    cmocka_unit_test(what_has_no_vector_form_goes_lane_by_lane),
    cmocka_unit_test(loops_and_lets_inside_a_vector_loop),
    cmocka_unit_test(buffer_inside_a_vector_loop_has_a_copy_per_lane),
    cmocka_unit_test(pragma_unrolls_what_is_small),
    cmocka_unit_test(guards_stay_when_asked),
    cmocka_unit_test(double_buffer_fills_ahead),
    cmocka_unit_test(accumulators_that_may_overlap_stay_in_memory),
    cmocka_unit_test(accumulator_of_a_loop_that_may_not_run),
    cmocka_unit_test(unaligned_tiles_promote_too),
    cmocka_unit_test(buffers_that_never_meet_share_the_workspace),
    cmocka_unit_test(buffers_of_a_parallel_loop_live_in_slices),
    cmocka_unit_test(kernel_names_its_arguments_and_sizes),
    cmocka_unit_test(captures_are_what_the_body_uses_from_outside),
    cmocka_unit_test(large_sizes_are_indexed_in_64_bits),
    cmocka_unit_test(thread_axes_come_first_and_barriers_between),
    cmocka_unit_test(threads_on_a_cpu),
    cmocka_unit_test(unknown_pass),
    cmocka_unit_test(shape_nobody_gives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
