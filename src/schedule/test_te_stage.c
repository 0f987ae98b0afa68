/* test_te_stage.c: the te face.  Every schedule here is emitted and interpreted, and
 * gives what the evaluator says about the unscheduled computation; its loops are
 * compared as one line of text.  Every refusal comes at the call and leaves the
 * description as it was. */
#include "schedule/schedule.h"
#include "te/test_te.h"

/* ---- looking at the result --------------------------------------------------------------- */

typedef struct Shape {
  Text text;
} Shape;

static void shape_of(Text *t, const Stmt *s)
{
  static const char *const kinds[] = {"", "par ", "vec ", "unr ", "thr "};
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) {
      if (i) text_add(t, "; ");
      shape_of(t, s->u.seq.v[i]);
    }
    break;
  case S_FOR:
    text_printf(t, "%s%s:", kinds[s->u.loop.kind], s->u.loop.var->name);
    if (s->u.loop.extent->kind == E_INT) text_printf(t, "%d", (int)s->u.loop.extent->u.i);
    text_add(t, " {");
    shape_of(t, s->u.loop.body);
    text_add(t, "}");
    break;
  case S_BLOCK:
    text_add(t, s->u.block->name);
    if (s->u.block->body->kind == S_FOR || s->u.block->body->kind == S_SEQ) {
      text_add(t, "(");
      shape_of(t, s->u.block->body);
      text_add(t, ")");
    }
    break;
  case S_IF:
  case S_WHILE:
  case S_LET:
  case S_STORE:
  case S_ALLOC:
  case S_EVAL:
  case S_ATTR: text_add(t, "."); break;
  }
}

/* "i:8 {j:8 {C_init; k:8 {C_update}}}" and the like */
static const char *nest(World *w, Sched *s)
{
  Text t = text_new(scratch(w->ctx));
  shape_of(&t, sched_func(s)->body->u.block->body);
  return text_str(&t);
}

static void free_te(void *s) { te_sched_free(s); }
static void free_emitted(void *s) { sched_free(s); }

static TeSched *schedule(World *w, const Tensor *t)
{
  TeSched *s = te_sched_new(w->m, 1, &t->op);
  defer(w->ctx, free_te, s);
  return s;
}
#define STAGE(s, t) te_sched_stage(s, (t)->op)

/* Emits, runs, compares with the evaluator; the loops are as told (NULL: not asked). */
static Sched *assert_emits(World *w, TeSched *s, int n, const TeArg *args, Sizes sizes, const char *loops)
{
  Sched *e = te_sched_emit(s, "main", n, args);
  defer(w->ctx, free_emitted, e);
  func_check(sched_func(e));
  if (loops) assert_string_equal(nest(w, e), loops);
  assert_computes(w, sched_func(e), n, args, sizes);
  return e;
}

typedef struct Pair {
  const IterVar *o, *i;
} Pair;
static Pair split(World *w, TeStage *st, const IterVar *axis, int factor)
{
  Pair p;
  te_stage_split(st, axis, I(factor), NULL, &p.o, &p.i);
  return p;
}
static Pair split_parts(World *w, TeStage *st, const IterVar *axis, int nparts)
{
  Pair p;
  te_stage_split(st, axis, NULL, I(nparts), &p.o, &p.i);
  return p;
}
#define REORDER(st, ...) te_stage_reorder(st, AXES(__VA_ARGS__))

static const IterVar *thread(World *w, const char *tag)
{
  return itervar_new(w->m, var_new(w->m, "t", DT_I32, VAR_PLAIN), NULL, NULL, ITER_THREAD, tag);
}

/* ---- the lesson ------------------------------------------------------------------------------ */

CASE(naive)
{
  Matmul x = matmul_of(w, I(8), I(8), I(8));
  TeSched *s = schedule(w, x.C);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "i:8 {j:8 {C_init; k:8 {C_update}}}");
}

CASE(one_split)
{
  Matmul x = matmul_of(w, I(8), I(8), I(8));
  TeSched *s = schedule(w, x.C);
  split(w, STAGE(s, x.C), x.i, 4);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "io:2 {ii:4 {j:8 {C_init; k:8 {C_update}}}}");
  /* another schedule of the same operation starts afresh */
  assert_emits(w, schedule(w, x.C), TENSORS(x.A, x.B, x.C), NO_SIZES, "i:8 {j:8 {C_init; k:8 {C_update}}}");
}

CASE(reordered_tiles)
{
  Matmul x = matmul_of(w, I(8), I(8), I(8));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 4);
  Pair k = split(w, C, x.k, 2);
  REORDER(C, i.o, j.o, k.o, i.i, j.i, k.i);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
               "io:2 {jo:2 {ii:4 {ji:4 {C_init}}; ko:4 {ii:4 {ji:4 {ki:2 {C_update}}}}}}");
}

CASE(optimized_matmul)
{
  Matmul x = matmul_of(w, I(16), I(16), I(8));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 8);
  Pair j = split(w, C, x.j, 8);
  Pair k = split(w, C, x.k, 4);
  REORDER(C, i.o, j.o, k.o, i.i, j.i, k.i);
  Pair v = split(w, C, j.i, 4);
  te_stage_mark(C, v.i, FOR_VECTORIZED);
  te_stage_mark(C, i.o, FOR_PARALLEL);
  te_stage_mark(C, k.i, FOR_UNROLLED);
  assert_emits(
      w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
      "par io:2 {jo:2 {ii:8 {jio:2 {vec jii:4 {C_init}}}; ko:2 {ii:8 {jio:2 {vec jii:4 {unr ki:4 {C_update}}}}}}}");
}

/* The vector loop stands outside the reduction. */
CASE(vectorized_outside_the_reduction)
{
  Matmul x = matmul_of(w, I(8), I(16), I(4));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 8);
  REORDER(C, i.o, j.o, i.i, j.i);
  te_stage_mark(C, j.i, FOR_VECTORIZED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "io:2 {jo:2 {ii:4 {vec ji:8 {C_init; k:4 {C_update}}}}}");
}

CASE(elementwise)
{
  const Tensor *A = INPUT("A", I(32));
  const Tensor *B = INPUT("B", I(32));
  const IterVar *i = AXIS("i", I(32));
  const Tensor *C = COMPUTE("C", AXES(i), expr_max(w->m, ADD(READ(A, V(i)), READ(B, V(i))), F(0)));
  TeSched *s = schedule(w, C);
  Pair p = split(w, STAGE(s, C), i, 8);
  te_stage_mark(STAGE(s, C), p.i, FOR_VECTORIZED);
  te_stage_mark(STAGE(s, C), p.o, FOR_PARALLEL);
  assert_emits(w, s, TENSORS(A, B, C), NO_SIZES, "par io:4 {vec ii:8 {C}}");
}

/* Vectorizing an axis after it was tiled raises, and the schedule still builds. */
CASE(lesson_configs)
{
  Matmul x = matmul_of(w, I(8), I(8), I(4));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 4);
  REORDER(C, i.o, j.o, i.i, j.i);
  assert_ptr_equal(te_stage_op(C)->axis[1], x.j);
  const IterVar *const *leaf;
  assert_int_equal(te_stage_leaves(C, &leaf), 5);
  assert_ptr_equal(leaf[1], j.o);
  assert_ptr_equal(leaf[4], x.k);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "io:2 {jo:2 {ii:4 {ji:4 {C_init; k:4 {C_update}}}}}");
}

/* ---- splitting in general ---------------------------------------------------------------------- */

CASE(imperfect)
{
  Matmul x = matmul_of(w, I(7), I(10), I(5));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split_parts(w, C, x.j, 3);
  Pair k = split(w, C, x.k, 3);
  REORDER(C, i.o, j.o, k.o, i.i, j.i, k.i);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
               "io:2 {jo:3 {ii:4 {ji:4 {C_init}}; ko:2 {ii:4 {ji:4 {ki:3 {C_update}}}}}}");
}

CASE(fused)
{
  Matmul x = matmul_of(w, I(6), I(4), I(3));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 2);
  Pair j = split(w, C, x.j, 2);
  REORDER(C, i.o, j.o, i.i, j.i);
  const IterVar *outer = te_stage_fuse(C, AXES(i.o, j.o));
  const IterVar *inner = te_stage_fuse(C, AXES(i.i, j.i));
  te_stage_mark(C, outer, FOR_PARALLEL);
  te_stage_mark(C, inner, FOR_VECTORIZED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
               "par io_jo_fused:6 {vec ii_ji_fused:4 {C_init; k:3 {C_update}}}");
}

CASE(reduction_outermost)
{
  Matmul x = matmul_of(w, I(4), I(4), I(4));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  REORDER(C, x.k, x.i, x.j);
  te_stage_mark(C, x.j, FOR_VECTORIZED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "i:4 {vec j:4 {C_init}}; k:4 {i:4 {vec j:4 {C_update}}}");
}

CASE(symbolic)
{
  const Var *n = var_new(w->m, "n", DT_I32, VAR_SIZE);
  Matmul x = matmul_of(w, n->expr, I(8), n->expr);
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair k = split(w, C, x.k, 2);
  REORDER(C, i.o, k.o, i.i, x.j, k.i);
  te_stage_mark(C, i.o, FOR_PARALLEL);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), (Sizes){1, &n, (int64_t[]){7}}, NULL);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), (Sizes){1, &n, (int64_t[]){8}}, NULL);
}

/* ---- attaching -------------------------------------------------------------------------------------- */

typedef struct Chain {
  const Tensor *A, *B, *C;
  const IterVar *bi, *bj, *ci, *cj;
} Chain;
/* B = A + 1, C = B * 2 */
static Chain chain_of(World *w, const Expr *M, const Expr *N)
{
  Chain c = {.A = INPUT("A", M, N), .bi = AXIS("i", M), .bj = AXIS("j", N), .ci = AXIS("i", M), .cj = AXIS("j", N)};
  c.B = COMPUTE("B", AXES(c.bi, c.bj), ADD(READ(c.A, V(c.bi), V(c.bj)), F(1)));
  c.C = COMPUTE("C", AXES(c.ci, c.cj), MUL(READ(c.B, V(c.ci), V(c.cj)), F(2)));
  return c;
}

CASE(inlined)
{
  Chain c = chain_of(w, I(4), I(6));
  TeSched *s = schedule(w, c.C);
  te_stage_compute_inline(STAGE(s, c.B));
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, "i:4 {j:6 {C}}");
  te_stage_compute_root(STAGE(s, c.B));
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, "i:4 {j:6 {B}}; i:4 {j:6 {C}}");
}

/* Split before attaching: the splits apply to the loops over the region. */
CASE(split_then_attached)
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  TeStage *B = STAGE(s, c.B);
  TeStage *C = STAGE(s, c.C);
  Pair v = split(w, B, c.bj, 4);
  te_stage_mark(B, v.i, FOR_VECTORIZED);
  te_stage_compute_at(B, C, c.ci);
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, "i:8 {i:1 {jo:2 {vec ji:4 {B}}}; j:8 {C}}");
}

CASE(attached_in_a_tile)
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  TeStage *B = STAGE(s, c.B);
  TeStage *C = STAGE(s, c.C);
  Pair i = split(w, C, c.ci, 4);
  Pair j = split(w, C, c.cj, 2);
  REORDER(C, i.o, j.o, i.i, j.i);
  te_stage_compute_at(B, C, j.o);
  split(w, B, c.bi, 2);
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, "io:2 {jo:4 {io:2 {ii:2 {j:2 {B}}}; ii:4 {ji:2 {C}}}}");
}

/* conv over padded input, the padding computed at a row of the output */
CASE(padding_at_a_row)
{
  const Tensor *D = INPUT("D", I(6));
  const Tensor *W = INPUT("W", I(3));
  const IterVar *p = AXIS("p", I(8));
  const IterVar *y = AXIS("y", I(6));
  const IterVar *r = RAXIS("r", I(3));
  const Expr *in = expr_and(w->m, expr_binary(w->m, E_GE, V(p), I(1)), expr_lt(w->m, V(p), I(7)));
  const Expr *guarded[3] = {in, READ(D, SUB(V(p), I(1))), F(0)};
  const Tensor *P = COMPUTE("P", AXES(p), expr_call(w->m, DT_F32, IN_IF_THEN_ELSE, 3, guarded));
  const Tensor *C = COMPUTE("C", AXES(y), SUM(MUL(READ(P, ADD(V(y), V(r))), READ(W, V(r))), r));
  TeSched *s = schedule(w, C);
  Pair q = split(w, STAGE(s, C), y, 2);
  te_stage_compute_at(STAGE(s, P), STAGE(s, C), q.o);
  assert_emits(w, s, TENSORS(D, W, C), NO_SIZES, "yo:3 {p:4 {P}; yi:2 {C_init; r:3 {C_update}}}");
  te_stage_compute_inline(STAGE(s, P));
  assert_emits(w, s, TENSORS(D, W, C), NO_SIZES, "yo:3 {yi:2 {C_init; r:3 {C_update}}}");
}

CASE(chain_of_attachments)
{
  Chain c = chain_of(w, I(8), I(8));
  const IterVar *i = AXIS("i", I(8));
  const IterVar *j = AXIS("j", I(8));
  const Tensor *D = COMPUTE("D", AXES(i, j), ADD(READ(c.C, V(i), V(j)), F(3)));
  TeSched *s = schedule(w, D);
  te_stage_compute_at(STAGE(s, c.C), STAGE(s, D), i);
  te_stage_compute_at(STAGE(s, c.B), STAGE(s, c.C), c.cj);
  assert_emits(w, s, TENSORS(c.A, D), NO_SIZES, "i:8 {i:1 {j:8 {i:1 {j:1 {B}}; C}}; j:8 {D}}");
}

/* A producer attached at a loop of D, its reader attached deeper inside D. */
CASE(attached_to_the_reader_of_the_reader)
{
  Chain c = chain_of(w, I(8), I(8));
  const IterVar *i = AXIS("i", I(8));
  const IterVar *j = AXIS("j", I(8));
  const Tensor *D = COMPUTE("D", AXES(i, j), ADD(READ(c.C, V(i), V(j)), F(3)));
  TeSched *s = schedule(w, D);
  te_stage_compute_at(STAGE(s, c.C), STAGE(s, D), j);
  te_stage_compute_at(STAGE(s, c.B), STAGE(s, D), i);
  assert_emits(w, s, TENSORS(c.A, D), NO_SIZES, "i:8 {i:1 {j:8 {B}}; j:8 {i:1 {j:1 {C}}; D}}");
}

/* ---- caches and rfactor ---------------------------------------------------------------------------- */

CASE(cached_write)
{
  Matmul x = matmul_of(w, I(8), I(8), I(4));
  TeSched *s = schedule(w, x.C);
  const Tensor *CC;
  assert_int_equal(te_sched_cache_write(s, 1, &x.C, "local", &CC), 1);
  TeStage *C = STAGE(s, x.C);
  TeStage *cache = STAGE(s, CC);
  assert_ptr_equal(te_stage_origin(C), x.C->op);
  assert_ptr_not_equal(te_stage_op(C), x.C->op);
  assert_int_equal(te_stage_op(cache)->naxis, 2);
  assert_ptr_equal(te_stage_op(cache)->reduce_axis[0], x.k);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 4);
  REORDER(C, i.o, j.o, i.i, j.i);
  te_stage_compute_at(cache, C, j.o);
  const IterVar *const *axis = te_stage_op(cache)->axis;
  Pair k = split(w, cache, x.k, 2);
  REORDER(cache, k.o, axis[0], k.i, axis[1]);
  te_stage_mark(cache, axis[1], FOR_VECTORIZED);
  te_stage_mark(cache, k.i, FOR_UNROLLED);
  Sched *e = assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
                          "io:2 {jo:2 {i_c:4 {vec j_c:4 {C_local_init}}; ko:2 {i_c:4 {unr ki:2 {vec j_c:4 "
                          "{C_local_update}}}}; ii:4 {ji:4 {C}}}}");
  const Block *b = func_find_block(sched_func(e), "C_local_update")->u.block;
  assert_string_equal(b->writes[0].buffer->scope, "local");
}

/* The reduce axis was split before: what was said about it goes with the reduction. */
CASE(cached_write_after_splits)
{
  Matmul x = matmul_of(w, I(8), I(8), I(4));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair k = split(w, C, x.k, 2);
  te_stage_mark(C, i.o, FOR_PARALLEL);
  te_stage_mark(C, k.i, FOR_UNROLLED);
  const Tensor *CC;
  te_sched_cache_write(s, 1, &x.C, "global", &CC);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
               "i_c:8 {j_c:8 {C_global_init; ko:2 {unr ki:2 {C_global_update}}}}; par io:2 {ii:4 {j:8 {C}}}");
}

CASE(cached_reads)
{
  Matmul x = matmul_of(w, I(8), I(8), I(8));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  const Tensor *AA = te_sched_cache_read(s, x.A, "shared", 1, &x.C->op);
  const Tensor *AL = te_sched_cache_read(s, AA, "local", 1, &x.C->op);
  const Tensor *BB = te_sched_cache_read(s, x.B, "shared", 0, NULL);
  Pair k = split(w, C, x.k, 4);
  REORDER(C, k.o, x.i, x.j, k.i);
  te_stage_compute_at(STAGE(s, AA), C, k.o);
  te_stage_compute_at(STAGE(s, AL), C, x.i);
  te_stage_compute_at(STAGE(s, BB), C, k.o);
  const IterVar *const *axis = te_stage_op(STAGE(s, AA))->axis;
  te_stage_storage_align(STAGE(s, AA), axis[0], 16, 4);
  te_stage_mark(STAGE(s, AA), te_stage_fuse(STAGE(s, AA), AXES(axis[0], axis[1])), FOR_UNROLLED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, NULL);
}

/* The order in which a cache is read and written does not matter. */
CASE(caches_of_both_kinds)
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  const Tensor *BC, *CC;
  te_sched_cache_write(s, 1, &c.C, "local", &CC);
  te_sched_cache_write(s, 1, &c.B, "local", &BC);
  const Tensor *BL = te_sched_cache_read(s, c.B, "local", 1, &CC->op);
  const Tensor *AA = te_sched_cache_read(s, c.A, "local", 1, &BC->op);
  assert_int_equal(te_stage_op(STAGE(s, AA))->naxis, 2);
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES,
               "ax0:8 {ax1:8 {A_local}}; i_c:8 {j_c:8 {B_local}}; i:8 {j:8 {B}}; ax0:8 {ax1:8 {B_local_1}}; "
               "i_c:8 {j_c:8 {C_local}}; i:8 {j:8 {C}}");
  te_stage_compute_inline(STAGE(s, BL));
  te_stage_compute_at(STAGE(s, CC), STAGE(s, c.C), c.ci);
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, NULL);
}

CASE(factored)
{
  const Tensor *A = INPUT("A", I(4), I(12));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(12));
  const Tensor *B = COMPUTE("B", AXES(i), SUM(READ(A, V(i), V(k)), k));
  TeSched *s = schedule(w, B);
  TeStage *st = STAGE(s, B);
  Pair p = split(w, st, k, 4);
  const Tensor *rf;
  assert_int_equal(te_sched_rfactor(s, B, p.i, 0, &rf), 1);
  assert_int_equal(rf->buffer->ndim, 2);
  TeStage *f = STAGE(s, rf);
  te_stage_compute_at(f, st, i);
  te_stage_mark(f, te_stage_op(f)->axis[0], FOR_VECTORIZED);
  REORDER(f, te_stage_op(f)->reduce_axis[0], te_stage_op(f)->axis[0]);
  assert_emits(w, s, TENSORS(A, B), NO_SIZES,
               "i:4 {i:1 {vec ki:4 {B_rf_init}}; ko:3 {i:1 {vec ki:4 {B_rf_update}}}; B_init; ki_v:4 {B_update}}");
}

CASE(factored_imperfectly)
{
  const Tensor *A = INPUT("A", I(3), I(10));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(10));
  const Tensor *B = COMPUTE("B", AXES(i), SUM(READ(A, V(i), V(k)), k));
  for (int place = 0; place < 2; place++) {
    TeSched *s = schedule(w, B);
    Pair p = split(w, STAGE(s, B), k, 4);
    const Tensor *rf;
    te_sched_rfactor(s, B, place ? p.o : p.i, place - 1, &rf);
    assert_emits(w, s, TENSORS(A, B), NO_SIZES, NULL);
  }
}

CASE(factored_argmax)
{
  const Tensor *A = INPUT("A", I(3), I(12));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(12));
  const Reducer *r = reducer_named(w->m, "argmax", DT_F32, DT_I32);
  const Expr *source[2] = {V(k), READ(A, V(i), V(k))};
  const Expr *body[2];
  const Expr *shape[1] = {I(3)};
  for (int v = 0; v < 2; v++) body[v] = expr_reduce(w->m, r, 2, source, 1, &k, expr_bool(w->m, true), NULL, v);
  const TeOp *op = te_compute(w->m, "B", NULL, 1, shape, &i, 2, body, NULL);
  TeSched *s = schedule(w, &op->out[0]);
  Pair p = split(w, te_sched_stage(s, op), k, 4);
  const Tensor *rf[2];
  assert_int_equal(te_sched_rfactor(s, &op->out[0], p.o, 0, rf), 2);
  assert_emits(w, s, TENSORS(A, &op->out[0], &op->out[1]), NO_SIZES, NULL);
}

/* ---- reductions inside larger expressions ------------------------------------------------------------- */

typedef struct Biased {
  const Tensor *A, *B, *b, *C;
  const IterVar *i, *j, *k;
} Biased;
static Biased biased_of(World *w, int M, int N, int K)
{
  Biased x = {.A = INPUT("A", I(M), I(K)),
              .B = INPUT("B", I(K), I(N)),
              .b = INPUT("b", I(N)),
              .i = AXIS("i", I(M)),
              .j = AXIS("j", I(N)),
              .k = RAXIS("k", I(K))};
  const Expr *product = MUL(READ(x.A, V(x.i), V(x.k)), READ(x.B, V(x.k), V(x.j)));
  x.C = COMPUTE("C", AXES(x.i, x.j), ADD(SUM(product, x.k), READ(x.b, V(x.j))));
  return x;
}

CASE(biased_default)
{
  Biased x = biased_of(w, 4, 4, 4);
  assert_emits(w, schedule(w, x.C), TENSORS(x.A, x.B, x.b, x.C), NO_SIZES,
               "i:4 {j:4 {ax0:1 {ax1:1 {C_red_init; k:4 {C_red_update}}}; C}}");
}

CASE(biased_tiled)
{
  Biased x = biased_of(w, 8, 16, 8);
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 8);
  Pair k = split(w, C, x.k, 4);
  REORDER(C, i.o, j.o, k.o, i.i, j.i, k.i);
  Pair v = split(w, C, j.i, 4);
  te_stage_mark(C, v.i, FOR_VECTORIZED);
  te_stage_mark(C, i.o, FOR_PARALLEL);
  te_stage_mark(C, k.i, FOR_UNROLLED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.b, x.C), NO_SIZES,
               "par io:2 {jo:2 {ii:4 {jio:2 {vec jii:4 {C_red_init}}}; ko:2 {ii:4 {jio:2 {vec jii:4 {unr ki:4 "
               "{C_red_update}}}}}; "
               "ii:4 {jio:2 {vec jii:4 {C}}}}}");
}

CASE(biased_imperfect)
{
  Biased x = biased_of(w, 7, 10, 5);
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 4);
  Pair k = split(w, C, x.k, 2);
  REORDER(C, i.o, j.o, k.o, i.i, k.i, j.i);
  te_stage_mark(C, j.i, FOR_VECTORIZED);
  assert_emits(w, s, TENSORS(x.A, x.B, x.b, x.C), NO_SIZES, NULL);
}

CASE(softmax_in_one_body)
{
  const Tensor *A = INPUT("A", I(4), I(6));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(6));
  const IterVar *k = RAXIS("k", I(6));
  const Expr *num = READ(A, V(i), V(j));
  const Expr *den = READ(A, V(i), V(k));
  num = expr_call(w->m, DT_NONE, IN_EXP, 1, &num);
  den = expr_call(w->m, DT_NONE, IN_EXP, 1, &den);
  const Tensor *S = COMPUTE("S", AXES(i, j), DIV(num, SUM(den, k)));
  TeSched *s = schedule(w, S);
  assert_emits(w, s, TENSORS(A, S), NO_SIZES, "i:4 {ax0:1 {S_red_init; k:6 {S_red_update}}; j:6 {S}}");
  split(w, STAGE(s, S), k, 3);
  Pair p = split(w, STAGE(s, S), j, 2);
  te_stage_mark(STAGE(s, S), p.i, FOR_VECTORIZED);
  assert_emits(w, s, TENSORS(A, S), NO_SIZES,
               "i:4 {ax0:1 {S_red_init; ko:2 {ki:3 {S_red_update}}}; jo:3 {vec ji:2 {S}}}");
}

CASE(nested_reductions)
{
  const Tensor *A = INPUT("A", I(2), I(3), I(4));
  const IterVar *i = AXIS("i", I(2));
  const IterVar *k = RAXIS("k", I(3));
  const IterVar *l = RAXIS("l", I(4));
  const Expr *inner = SUM(READ(A, V(i), V(k), V(l)), l);
  const Expr *top = reduced(w, "max", inner, 1, &k, NULL);
  const Tensor *C = COMPUTE("C", AXES(i), top);
  const Tensor *D = COMPUTE("D", AXES(i), ADD(top, F(1)));
  assert_emits(w, schedule(w, C), TENSORS(A, C), NO_SIZES, NULL);
  TeSched *s = schedule(w, D);
  split(w, STAGE(s, D), l, 2);
  assert_emits(w, s, TENSORS(A, D), NO_SIZES, NULL);
}

/* The stage with the sum inside is itself attached, and something is attached to it. */
CASE(biased_attached)
{
  Biased x = biased_of(w, 4, 8, 4);
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(8));
  const Tensor *D = COMPUTE("D", AXES(i, j), expr_max(w->m, READ(x.C, V(i), V(j)), F(0)));
  TeSched *s = schedule(w, D);
  const Tensor *BB = te_sched_cache_read(s, x.B, "local", 1, &x.C->op);
  te_stage_compute_at(STAGE(s, x.C), STAGE(s, D), i);
  te_stage_compute_at(STAGE(s, BB), STAGE(s, x.C), x.j);
  assert_emits(w, s, TENSORS(x.A, x.B, x.b, D), NO_SIZES, NULL);
}

/* ---- tensorize ------------------------------------------------------------------------------------------- */

static Stmt *loop_over(World *w, const Var *v, int n, Stmt *body)
{
  return stmt_for(w->m, v, I(0), I(n), FOR_SERIAL, NULL, body);
}

/* c[x] (+)= a[y] * b[x, y] for x < 4, y < 2, with or without a reset. */
static TensorIntrin *dot_intrin(World *w, bool halves)
{
  const Tensor *a = INPUT("a", I(2));
  const Tensor *b = INPUT("b", I(4), I(2));
  const IterVar *x = AXIS("x", I(4));
  const IterVar *y = RAXIS("y", I(2));
  const Tensor *c = COMPUTE("c", AXES(x), SUM(MUL(READ(a, V(y)), READ(b, V(x), V(y))), y));
  const Expr *sa[1] = {I(2)};
  const Expr *sb[2] = {I(4), I(2)};
  const Expr *sc[1] = {I(4)};
  const Expr *stride[2] = {var_new(w->m, "s0", DT_I32, VAR_PLAIN)->expr, var_new(w->m, "s1", DT_I32, VAR_PLAIN)->expr};
  const Expr *one[1] = {var_new(w->m, "s2", DT_I32, VAR_PLAIN)->expr};
  const Expr *other[1] = {var_new(w->m, "s3", DT_I32, VAR_PLAIN)->expr};
  const Buffer *in[2] = {buffer_new(w->m, "a", DT_F32, 1, sa, other, NULL, NULL, 0, 1, NULL),
                         buffer_new(w->m, "b", DT_F32, 2, sb, stride, NULL, NULL, 0, 1, NULL)};
  const Buffer *out[1] = {buffer_new(w->m, "c", DT_F32, 1, sc, one, NULL, NULL, 0, 1, NULL)};
  Stmt *part[3]; /* the whole, the reset, the update */
  for (int p = 0; p < 3; p++) {
    const Var *vx = var_new(w->m, "px", DT_I32, VAR_PLAIN);
    const Var *vy = var_new(w->m, "py", DT_I32, VAR_PLAIN);
    const Expr *ix[1] = {vx->expr};
    const Expr *iy[1] = {vy->expr};
    const Expr *ixy[2] = {vx->expr, vy->expr};
    Stmt *reset = stmt_store(w->m, out[0], 1, ix, F(0));
    const Expr *term = MUL(expr_load(w->m, in[0], 1, iy), expr_load(w->m, in[1], 2, ixy));
    Stmt *more = loop_over(w, vy, 2, stmt_store(w->m, out[0], 1, ix, ADD(expr_load(w->m, out[0], 1, ix), term)));
    Stmt *both[2] = {reset, more};
    part[p] = loop_over(w, vx, 4, p == 0 ? stmt_seq(w->m, 2, both) : p == 1 ? reset : more);
  }
  return te_tensor_intrin(w->m, "dot", c->op, in, out, part[0], halves ? part[1] : NULL, halves ? part[2] : NULL);
}

typedef struct Gemv {
  const Tensor *A, *B, *C;
  const IterVar *i, *k;
} Gemv;
static Gemv gemv_of(World *w, int M, int K)
{
  Gemv g = {.A = INPUT("A", I(K)), .B = INPUT("B", I(M), I(K)), .i = AXIS("i", I(M)), .k = RAXIS("k", I(K))};
  g.C = COMPUTE("C", AXES(g.i), SUM(MUL(READ(g.A, V(g.k)), READ(g.B, V(g.i), V(g.k))), g.k));
  return g;
}

CASE(tensorized_whole)
{
  Gemv g = gemv_of(w, 8, 2);
  TeSched *s = schedule(w, g.C);
  Pair i = split(w, STAGE(s, g.C), g.i, 4);
  te_stage_tensorize(STAGE(s, g.C), i.i, dot_intrin(w, false));
  assert_emits(w, s, TENSORS(g.A, g.B, g.C), NO_SIZES, NULL);
}

CASE(tensorized_halves)
{
  Gemv g = gemv_of(w, 8, 6);
  TeSched *s = schedule(w, g.C);
  TeStage *C = STAGE(s, g.C);
  Pair i = split(w, C, g.i, 4);
  Pair k = split(w, C, g.k, 2);
  REORDER(C, i.o, k.o, i.i, k.i);
  te_stage_tensorize(C, i.i, dot_intrin(w, true));
  assert_emits(w, s, TENSORS(g.A, g.B, g.C), NO_SIZES, NULL);
}

REFUSED(tensorized_without_update, ERR_SCHEDULE, "'ko'", "'dot' has no reset and update")
{
  Gemv g = gemv_of(w, 8, 6);
  TeSched *s = schedule(w, g.C);
  TeStage *C = STAGE(s, g.C);
  Pair i = split(w, C, g.i, 4);
  Pair k = split(w, C, g.k, 2);
  REORDER(C, i.o, k.o, i.i, k.i);
  te_stage_tensorize(C, i.i, dot_intrin(w, false));
}

REFUSED(tensorized_something_else, ERR_SCHEDULE, "dot")
{
  Gemv g = gemv_of(w, 8, 2);
  TeSched *s = schedule(w, g.C);
  Pair i = split(w, STAGE(s, g.C), g.i, 2);
  te_stage_tensorize(STAGE(s, g.C), i.i, dot_intrin(w, false));
}

/* ---- other things ----------------------------------------------------------------------------------------- */

CASE(threads)
{
  Matmul x = matmul_of(w, I(8), I(8), I(4));
  TeSched *s = schedule(w, x.C);
  TeStage *C = STAGE(s, x.C);
  Pair i = split(w, C, x.i, 4);
  Pair j = split(w, C, x.j, 4);
  REORDER(C, i.o, j.o, i.i, j.i);
  te_stage_bind(C, i.o, thread(w, "blockIdx.y"));
  te_stage_bind(C, j.o, thread(w, "blockIdx.x"));
  te_stage_bind(C, i.i, thread(w, "threadIdx.y"));
  te_stage_bind(C, j.i, thread(w, "threadIdx.x"));
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES,
               "thr io:2 {thr jo:2 {thr ii:4 {thr ji:4 {C_init; k:4 {C_update}}}}}");
}

/* Blocks, virtual threads, threads; shared tiles that the threads fill together;
 * registers.  In the order that such schedules are usually written in. */
CASE(gpu_matmul)
{
  Matmul x = matmul_of(w, I(16), I(16), I(8));
  TeSched *s = schedule(w, x.C);
  const Tensor *CL;
  const Tensor *AA = te_sched_cache_read(s, x.A, "shared", 1, &x.C->op);
  const Tensor *BB = te_sched_cache_read(s, x.B, "shared", 1, &x.C->op);
  const Tensor *AL = te_sched_cache_read(s, AA, "local", 1, &x.C->op);
  const Tensor *BL = te_sched_cache_read(s, BB, "local", 1, &x.C->op);
  te_sched_cache_write(s, 1, &x.C, "local", &CL);
  TeStage *C = STAGE(s, x.C);
  TeStage *L = STAGE(s, CL);
  const IterVar *ty = thread(w, "threadIdx.y");
  const IterVar *tx = thread(w, "threadIdx.x");
  Pair i = split(w, C, x.i, 8);
  Pair j = split(w, C, x.j, 8);
  te_stage_bind(C, i.o, thread(w, "blockIdx.y"));
  te_stage_bind(C, j.o, thread(w, "blockIdx.x"));
  Pair iz = split_parts(w, C, i.i, 2);
  Pair it = split_parts(w, C, iz.i, 2);
  Pair jt = split_parts(w, C, j.i, 4);
  te_stage_bind(C, iz.o, thread(w, "vthread"));
  te_stage_bind(C, it.o, ty);
  te_stage_bind(C, jt.o, tx);
  REORDER(C, i.o, j.o, iz.o, it.o, jt.o, it.i, jt.i);
  te_stage_compute_at(L, C, jt.o);
  const IterVar *const *l = te_stage_op(L)->axis;
  Pair k = split(w, L, te_stage_op(L)->reduce_axis[0], 4);
  REORDER(L, k.o, k.i, l[0], l[1]);
  te_stage_compute_at(STAGE(s, AA), L, k.o);
  te_stage_compute_at(STAGE(s, BB), L, k.o);
  te_stage_compute_at(STAGE(s, AL), L, k.i);
  te_stage_compute_at(STAGE(s, BL), L, k.i);
  const Tensor *tile[2] = {AA, BB};
  for (int t = 0; t < 2; t++) {
    TeStage *st = STAGE(s, tile[t]);
    Pair y = split_parts(w, st, te_stage_op(st)->axis[0], 2);
    Pair z = split_parts(w, st, te_stage_op(st)->axis[1], 4);
    REORDER(st, y.o, z.o, y.i, z.i);
    te_stage_bind(st, y.o, ty);
    te_stage_bind(st, z.o, tx);
  }
  assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, NULL);
}

CASE(pragmas)
{
  Matmul x = matmul_of(w, I(4), I(4), I(4));
  TeSched *s = schedule(w, x.C);
  te_stage_pragma(STAGE(s, x.C), x.i, "auto_unroll_max_step", I(16));
  Sched *e = assert_emits(w, s, TENSORS(x.A, x.B, x.C), NO_SIZES, "i:4 {j:4 {C_init; k:4 {C_update}}}");
  const Stmt *loop = sched_func(e)->body->u.block->body;
  assert_true(expr_is_int(annots_get(&loop->u.loop.annots, "pragma_auto_unroll_max_step"), 16));
}

CASE(storage)
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  te_stage_compute_at(STAGE(s, c.B), STAGE(s, c.C), c.ci);
  te_stage_set_scope(STAGE(s, c.B), "shared");
  te_stage_double_buffer(STAGE(s, c.B));
  te_stage_prefetch(STAGE(s, c.B), c.A, c.bi, I(1));
  Sched *e = assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, NULL);
  const Block *b = func_find_block(sched_func(e), "B")->u.block;
  assert_string_equal(b->writes[0].buffer->scope, "shared");
  assert_non_null(annots_get(&b->annots, "double_buffer_scope"));
}

/* A cache may get its place after what it reads: then the reader's place waits. */
CASE(attached_before_its_cache)
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  const Tensor *BL = te_sched_cache_read(s, c.B, "local", 1, &c.C->op);
  te_stage_compute_at(STAGE(s, c.B), STAGE(s, c.C), c.ci);
  te_stage_compute_at(STAGE(s, BL), STAGE(s, c.C), c.cj);
  assert_emits(w, s, TENSORS(c.A, c.C), NO_SIZES, "i:8 {i:1 {j:8 {B}}; j:8 {ax0:1 {ax1:1 {B_local}}; C}}");
}

REFUSED(attached_and_its_cache_never, ERR_SCHEDULE, "does not enclose 'B_local', which reads 'B'")
{
  Chain c = chain_of(w, I(8), I(8));
  TeSched *s = schedule(w, c.C);
  te_sched_cache_read(s, c.B, "local", 1, &c.C->op);
  te_stage_compute_at(STAGE(s, c.B), STAGE(s, c.C), c.ci);
  te_sched_emit(s, "main", TENSORS(c.A, c.C));
}

CASE(scan_steps)
{
  const Tensor *X = INPUT("X", I(4), I(8));
  const Tensor *state = INPUT("state", I(4), I(8));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *i = AXIS("i", I(8));
  const IterVar *t = AXIS("t", I(4));
  const IterVar *j = AXIS("j", I(8));
  const Tensor *init = COMPUTE("init", AXES(z, i), READ(X, V(z), V(i)));
  const Tensor *update = COMPUTE("update", AXES(t, j), ADD(READ(state, SUB(V(t), I(1)), V(j)), READ(X, V(t), V(j))));
  const TeOp *scan = te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 1, &X);
  TeSched *s = schedule(w, &scan->out[0]);
  Pair p = split(w, STAGE(s, update), j, 4);
  te_stage_mark(STAGE(s, update), p.i, FOR_VECTORIZED);
  assert_emits(
      w, s, TENSORS(X, &scan->out[0]), NO_SIZES,
      "z:1 {i:8 {init}}; i0:1 {i1:8 {scan_init}}; scan_idx:3 {scan(jo:2 {vec ji:4 {update}}; i1:8 {scan_step})}");
}

CASE(emits_with_default_arguments)
{
  Matmul x = matmul_of(w, I(4), I(4), I(4));
  Sched *e = te_sched_emit(schedule(w, x.C), "main", 0, NULL);
  defer(w->ctx, free_emitted, e);
  assert_int_equal(sched_func(e)->nparam, 3);
}

/* ---- refusals ------------------------------------------------------------------------------------------------ */

/* Everything after BEFORE is refused and must leave the loops as they were. */
typedef struct Attempt {
  World *w;
  TeSched *s;
  Matmul x;
  Chain c;
  Pair i, j;
  TeStage *A, *B, *C;
} Attempt;

typedef struct Try {
  Attempt *a;
  void (*call)(Attempt *);
} Try;

static void run_try(Ctx *ctx, void *arg)
{
  (void)ctx;
  Try *t = arg;
  t->call(t->a);
}

static void assert_refused(Attempt *a, void (*call)(Attempt *), const char *words)
{
  Ctx *ctx = a->w->ctx;
  Sched *before = te_sched_emit(a->s, "main", 0, NULL);
  defer(ctx, free_emitted, before);
  Try t = {a, call};
  ErrKind kind = protect(ctx, run_try, &t);
  if (kind != ERR_SCHEDULE || !strstr(error_message(ctx), words))
    fail_msg("%s: '%s' lacks '%s'", error_kind_name(kind), error_message(ctx), words);
  Sched *after = te_sched_emit(a->s, "main", 0, NULL);
  defer(ctx, free_emitted, after);
  const char *why = "";
  if (!func_equal(sched_func(before), sched_func(after), scratch(ctx), &why))
    fail_msg("after '%s': %s", error_message(ctx), why);
}

static Attempt matmul_attempt(World *w)
{
  Attempt a = {.w = w, .x = matmul_of(w, I(8), I(8), I(8))};
  a.s = schedule(w, a.x.C);
  a.A = STAGE(a.s, a.x.A);
  a.C = STAGE(a.s, a.x.C);
  a.i = split(w, a.C, a.x.i, 4);
  return a;
}

static void split_again(Attempt *a) { split(a->w, a->C, a->x.i, 2); }
static void split_zero(Attempt *a) { split(a->w, a->C, a->x.j, 0); }
static void split_negative_parts(Attempt *a) { split_parts(a->w, a->C, a->x.j, -1); }
static void vectorize_split(Attempt *a) { te_stage_mark(a->C, a->x.i, FOR_VECTORIZED); }
static void vectorize_reduction(Attempt *a) { te_stage_mark(a->C, a->x.k, FOR_VECTORIZED); }
static void parallel_reduction(Attempt *a) { te_stage_mark(a->C, a->x.k, FOR_PARALLEL); }
static void split_placeholder(Attempt *a) { split(a->w, a->A, a->x.j, 2); }
static void fuse_apart(Attempt *a) { te_stage_fuse(a->C, AXES(a->i.o, a->x.j)); }
static void fuse_kinds(Attempt *a) { te_stage_fuse(a->C, AXES(a->x.j, a->x.k)); }
static void reorder_twice(Attempt *a) { te_stage_reorder(a->C, AXES(a->x.j, a->x.j)); }
static void inline_output(Attempt *a) { te_stage_compute_inline(a->C); }
static void attach_output(Attempt *a) { te_stage_compute_at(a->C, a->C, a->x.j); }
static void bind_thread(Attempt *a) { te_stage_bind(a->C, a->i.o, thread(a->w, "threadIdx.x")); }
static void bind_twice(Attempt *a) { te_stage_bind(a->C, a->i.o, thread(a->w, "threadIdx.y")); }
static void bind_thread_twice(Attempt *a) { te_stage_bind(a->C, a->x.j, thread(a->w, "threadIdx.x")); }
static void bind_spatial(Attempt *a) { te_stage_bind(a->C, a->x.j, a->i.o); }
static void split_bound(Attempt *a) { split(a->w, a->C, a->i.o, 2); }
static void factor_spatial(Attempt *a)
{
  const Tensor *rf;
  te_sched_rfactor(a->s, a->x.C, a->x.j, 0, &rf);
}
static void align_leaf(Attempt *a) { te_stage_storage_align(a->C, a->i.o, 4, 0); }
static void cache_unread(Attempt *a) { te_sched_cache_read(a->s, a->x.C, "local", 0, NULL); }

CASE(refuses_axes)
{
  Attempt a = matmul_attempt(w);
  assert_refused(&a, split_again, "axis 'i' of stage 'C' was split already; use its parts 'io' and 'ii'");
  assert_refused(&a, vectorize_split, "axis 'i' of stage 'C' was split already");
  assert_refused(&a, split_zero, "factor is 0");
  assert_refused(&a, split_negative_parts, "nparts is -1");
  assert_refused(&a, vectorize_reduction, "axis 'k' of stage 'C' is a reduction");
  assert_refused(&a, parallel_reduction, "axis 'k' of stage 'C' is a reduction");
  assert_refused(&a, split_placeholder, "'A' is a placeholder");
  assert_refused(&a, fuse_apart, "does not stand right inside 'io'");
  assert_refused(&a, fuse_kinds, "only axes of one kind");
  assert_refused(&a, reorder_twice, "given twice");
  assert_refused(&a, inline_output, "'C' is an output");
  assert_refused(&a, attach_output, "'C'");
  assert_refused(&a, bind_spatial, "not a thread axis");
  assert_refused(&a, factor_spatial, "not a reduction");
  assert_refused(&a, align_leaf, "'io'");
  assert_refused(&a, cache_unread, "nothing reads 'C'");
  bind_thread(&a);
  assert_refused(&a, bind_twice, "bound to threadIdx.x already");
  assert_refused(&a, bind_thread_twice, "threadIdx.x is bound to axis 'io'");
  assert_refused(&a, split_bound, "bound to a thread already");
}

static Attempt chain_attempt(World *w)
{
  Attempt a = {.w = w, .c = chain_of(w, I(8), I(8))};
  a.s = schedule(w, a.c.C);
  a.B = STAGE(a.s, a.c.B);
  a.C = STAGE(a.s, a.c.C);
  return a;
}

static void axis_of_other_stage(Attempt *a) { split(a->w, a->C, a->c.bi, 2); }
static void attach_to_own_axis(Attempt *a) { te_stage_compute_at(a->B, a->C, a->c.bi); }
static void attach_backwards(Attempt *a) { te_stage_compute_at(a->C, a->B, a->c.bi); }
static void split_attached_axis(Attempt *a) { split(a->w, a->C, a->c.ci, 2); }
static void cache_not_read(Attempt *a) { te_sched_cache_read(a->s, a->c.A, "local", 1, &a->c.C->op); }

CASE(refuses_attachments)
{
  Attempt a = chain_attempt(w);
  assert_refused(&a, axis_of_other_stage, "axis 'i' belongs to stage 'B', not to 'C'");
  assert_refused(&a, attach_to_own_axis, "belongs to stage 'B'");
  assert_refused(&a, attach_backwards, "'C' is an output");
  assert_refused(&a, cache_not_read, "'C' does not read 'A'");
  te_stage_compute_at(a.B, a.C, a.c.ci);
  assert_refused(&a, split_attached_axis, "stage 'B' is computed at axis 'i' of stage 'C'");
}

/* D and E both read C: neither of their loops encloses both. */
typedef struct Fork {
  const Tensor *C, *D, *E;
  const IterVar *d, *e;
} Fork;
static Fork forked;

static void attach_to_one_reader(Attempt *a)
{
  te_stage_compute_at(STAGE(a->s, forked.C), STAGE(a->s, forked.D), forked.d);
}
static void attach_below_the_reader(Attempt *a)
{
  te_stage_compute_at(STAGE(a->s, forked.D), STAGE(a->s, forked.C), te_stage_op(STAGE(a->s, forked.C))->axis[0]);
}
static void inline_reduction(Attempt *a) { te_stage_compute_inline(STAGE(a->s, forked.C)); }

CASE(refuses_loops_that_do_not_enclose)
{
  const Tensor *A = INPUT("A", I(8), I(4));
  const IterVar *i = AXIS("i", I(8));
  const IterVar *k = RAXIS("k", I(4));
  const IterVar *d = AXIS("d", I(8));
  const IterVar *e = AXIS("e", I(8));
  const Tensor *C = COMPUTE("C", AXES(i), SUM(READ(A, V(i), V(k)), k));
  const Tensor *D = COMPUTE("D", AXES(d), ADD(READ(C, V(d)), F(1)));
  const Tensor *E = COMPUTE("E", AXES(e), ADD(READ(C, V(e)), READ(D, V(e))));
  forked = (Fork){C, D, E, d, e};
  Attempt a = {.w = w, .s = schedule(w, E)};
  assert_refused(&a, attach_to_one_reader, "does not enclose 'E', which reads 'C'");
  assert_refused(&a, attach_below_the_reader, "'C'");
  assert_refused(&a, inline_reduction, "'C' is a reduction");
}

REFUSED(unknown_operation, ERR_ARGUMENT, "'X'", "not part of this schedule")
{
  Matmul x = matmul_of(w, I(4), I(4), I(4));
  const Tensor *other = INPUT("X", I(4));
  STAGE(schedule(w, x.C), other);
}

REFUSED(store_predicate, ERR_UNSUPPORTED, "set_store_predicate", "'C'")
{
  Matmul x = matmul_of(w, I(4), I(4), I(4));
  TeSched *s = schedule(w, x.C);
  te_stage_set_store_predicate(STAGE(s, x.C), expr_bool(w->m, true));
}

REFUSED(scan_is_not_split, ERR_SCHEDULE, "'scan'", "'update'")
{
  const Tensor *state = INPUT("state", I(4));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *t = AXIS("t", I(4));
  const Tensor *init = COMPUTE("init", AXES(z), F(1));
  const Tensor *update = COMPUTE("update", AXES(t), ADD(READ(state, SUB(V(t), I(1))), F(1)));
  const TeOp *scan = te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 0, NULL);
  TeSched *s = schedule(w, &scan->out[0]);
  split(w, te_sched_stage(s, scan), scan->axis[0], 2);
}

/* Every allocation of a call may fail; afterwards the description is whole. */
static void cache_and_split(Attempt *a)
{
  const Tensor *CC;
  te_sched_cache_write(a->s, 1, &a->x.C, "local", &CC);
}

CASE(survives_failing_allocations)
{
  Attempt a = matmul_attempt(w);
  const TeOp *op = te_stage_op(a.C);
  ErrKind kind = ERR_MEMORY;
  for (int n = 1; kind == ERR_MEMORY; n += 3) {
    assert_ptr_equal(te_stage_op(a.C), op);
    Try t = {&a, cache_and_split};
    mem_fail_after(w->ctx, n);
    kind = protect(w->ctx, run_try, &t);
    mem_fail_after(w->ctx, 0);
  }
  assert_int_equal(kind, ERR_NONE);
  assert_ptr_not_equal(te_stage_op(a.C), op);
  assert_emits(w, a.s, TENSORS(a.x.A, a.x.B, a.x.C), NO_SIZES, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(naive),
    cmocka_unit_test(one_split),
    cmocka_unit_test(reordered_tiles),
    cmocka_unit_test(optimized_matmul),
    cmocka_unit_test(vectorized_outside_the_reduction),
    cmocka_unit_test(elementwise),
    cmocka_unit_test(lesson_configs),
    cmocka_unit_test(imperfect),
    cmocka_unit_test(fused),
    cmocka_unit_test(reduction_outermost),
    cmocka_unit_test(symbolic),
    cmocka_unit_test(inlined),
    cmocka_unit_test(split_then_attached),
    cmocka_unit_test(attached_in_a_tile),
    cmocka_unit_test(padding_at_a_row),
    cmocka_unit_test(chain_of_attachments),
    cmocka_unit_test(attached_to_the_reader_of_the_reader),
    cmocka_unit_test(cached_write),
    cmocka_unit_test(cached_write_after_splits),
    cmocka_unit_test(cached_reads),
    cmocka_unit_test(caches_of_both_kinds),
    cmocka_unit_test(factored),
    cmocka_unit_test(factored_imperfectly),
    cmocka_unit_test(factored_argmax),
    cmocka_unit_test(biased_default),
    cmocka_unit_test(biased_tiled),
    cmocka_unit_test(biased_imperfect),
    cmocka_unit_test(softmax_in_one_body),
    cmocka_unit_test(nested_reductions),
    cmocka_unit_test(biased_attached),
    cmocka_unit_test(threads),
    cmocka_unit_test(gpu_matmul),
    cmocka_unit_test(pragmas),
    cmocka_unit_test(tensorized_whole),
    cmocka_unit_test(tensorized_halves),
    cmocka_unit_test(tensorized_without_update),
    cmocka_unit_test(tensorized_something_else),
    cmocka_unit_test(storage),
    cmocka_unit_test(attached_before_its_cache),
    cmocka_unit_test(attached_and_its_cache_never),
    cmocka_unit_test(scan_steps),
    cmocka_unit_test(emits_with_default_arguments),
    cmocka_unit_test(refuses_axes),
    cmocka_unit_test(refuses_attachments),
    cmocka_unit_test(refuses_loops_that_do_not_enclose),
    cmocka_unit_test(unknown_operation),
    cmocka_unit_test(store_predicate),
    cmocka_unit_test(scan_is_not_split),
    cmocka_unit_test(survives_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
