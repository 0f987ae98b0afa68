/* fuzz_te_schedule.c: random schedules through the te face on random computations.
 *
 * The bytes choose a computation, its extents and then calls, one after the other.
 * A call may be refused, but never as an internal error; a description that was
 * accepted must emit (a stage that still waits for its cache apart), and the emitted
 * function must compute what the evaluator says. */
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Fuzz {
  Ctx *ctx;
  Module *m;
  const uint8_t *data;
  size_t n;
  const Tensor *input[3], *output;
  int ninput;
  TeSched *s;
  Text log;
} Fuzz;

static int draw(Fuzz *f, int below)
{
  if (!f->n || below <= 0) return 0;
  f->n--;
  return *f->data++ % below;
}

/* ---- computations ------------------------------------------------------------------------ */

static const IterVar *axis(Fuzz *f, const char *name, int extent, IterKind kind)
{
  const Var *v = var_new(f->m, name, DT_I32, VAR_PLAIN);
  return itervar_new(f->m, v, expr_i32(f->m, 0), expr_i32(f->m, extent), kind, NULL);
}

static const Tensor *input(Fuzz *f, const char *name, int ndim, const int *extent)
{
  const Expr *shape[4];
  for (int i = 0; i < ndim; i++) shape[i] = expr_i32(f->m, extent[i]);
  return f->input[f->ninput++] = te_placeholder(f->m, name, DT_I32, ndim, shape);
}

static const Tensor *compute(Fuzz *f, const char *name, int n, const IterVar *const *a, const Expr *body)
{
  const Expr *shape[4];
  for (int i = 0; i < n; i++) shape[i] = a[i]->extent;
  return &te_compute(f->m, name, NULL, n, shape, a, 1, &body, NULL)->out[0];
}

static const Expr *sum(Fuzz *f, const Expr *e, int n, const IterVar *const *a)
{
  return expr_reduce(f->m, reducer_named(f->m, "sum", e->dtype, DT_I32), 1, &e, n, a, expr_bool(f->m, true), NULL, 0);
}

#define X(iv) ((iv)->var->expr)
#define READ(t, ...) \
  te_read(f->m, t, (int)(sizeof((const Expr *[]){__VA_ARGS__}) / sizeof(void *)), (const Expr *[]){__VA_ARGS__})
#define PLUS(a, b) expr_add(f->m, a, b)
#define TIMES(a, b) expr_mul(f->m, a, b)
#define N(v) expr_i32(f->m, v)

/* D = relu(A * B (+ bias)), with A prepared first */
static void make_matmul(Fuzz *f, bool bias)
{
  int M = 1 + draw(f, 9);
  int N_ = 1 + draw(f, 9);
  int K = 1 + draw(f, 9);
  const Tensor *A = input(f, "A", 2, (int[]){M, K});
  const Tensor *B = input(f, "B", 2, (int[]){K, N_});
  const IterVar *p[2] = {axis(f, "p", M, ITER_SPATIAL), axis(f, "q", K, ITER_SPATIAL)};
  const Tensor *P = compute(f, "P", 2, p, PLUS(READ(A, X(p[0]), X(p[1])), N(1)));
  const IterVar *i[2] = {axis(f, "i", M, ITER_SPATIAL), axis(f, "j", N_, ITER_SPATIAL)};
  const IterVar *k = axis(f, "k", K, ITER_REDUCE);
  const Expr *body = sum(f, TIMES(READ(P, X(i[0]), X(k)), READ(B, X(k), X(i[1]))), 1, &k);
  if (bias) body = PLUS(body, READ(input(f, "b", 1, (int[]){N_}), X(i[1])));
  const Tensor *C = compute(f, "C", 2, i, body);
  const IterVar *d[2] = {axis(f, "di", M, ITER_SPATIAL), axis(f, "dj", N_, ITER_SPATIAL)};
  f->output = compute(f, "D", 2, d, expr_max(f->m, READ(C, X(d[0]), X(d[1])), N(0)));
}

/* a padded row, convolved, then rows summed */
static void make_conv(Fuzz *f)
{
  int H = 2 + draw(f, 6);
  int W = 3 + draw(f, 6);
  int R = 1 + draw(f, 3);
  const Tensor *A = input(f, "A", 2, (int[]){H, W});
  const Tensor *K = input(f, "K", 1, (int[]){R});
  const IterVar *p[2] = {axis(f, "y", H, ITER_SPATIAL), axis(f, "x", W + R - 1, ITER_SPATIAL)};
  const Expr *guarded[3] = {expr_lt(f->m, X(p[1]), N(W)), READ(A, X(p[0]), X(p[1])), N(0)};
  const Tensor *P = compute(f, "P", 2, p, expr_call(f->m, DT_I32, IN_IF_THEN_ELSE, 3, guarded));
  const IterVar *c[2] = {axis(f, "h", H, ITER_SPATIAL), axis(f, "w", W, ITER_SPATIAL)};
  const IterVar *r = axis(f, "r", R, ITER_REDUCE);
  const Tensor *C = compute(f, "C", 2, c, sum(f, TIMES(READ(P, X(c[0]), PLUS(X(c[1]), X(r))), READ(K, X(r))), 1, &r));
  const IterVar *i = axis(f, "i", W, ITER_SPATIAL);
  const IterVar *k = axis(f, "k", H, ITER_REDUCE);
  f->output = compute(f, "D", 1, &i, sum(f, READ(C, X(k), X(i)), 1, &k));
}

/* two reductions of rows and an element, in one body */
static void make_mixed(Fuzz *f)
{
  int M = 1 + draw(f, 8);
  int N_ = 1 + draw(f, 8);
  const Tensor *A = input(f, "A", 2, (int[]){M, N_});
  const IterVar *i[2] = {axis(f, "i", M, ITER_SPATIAL), axis(f, "j", N_, ITER_SPATIAL)};
  const IterVar *k = axis(f, "k", N_, ITER_REDUCE);
  const IterVar *l[2] = {axis(f, "l", M, ITER_REDUCE), axis(f, "m", N_, ITER_REDUCE)};
  const Expr *rows = sum(f, READ(A, X(i[0]), X(k)), 1, &k);
  const Expr *all = sum(f, TIMES(READ(A, X(l[0]), X(l[1])), X(i[1])), 2, l);
  const Tensor *C = compute(f, "C", 2, i, PLUS(PLUS(rows, all), READ(A, X(i[0]), X(i[1]))));
  const IterVar *d[2] = {axis(f, "di", M, ITER_SPATIAL), axis(f, "dj", N_, ITER_SPATIAL)};
  f->output = compute(f, "D", 2, d, TIMES(READ(C, X(d[0]), X(d[1])), N(2)));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static TeStage *any_stage(Fuzz *f)
{
  TeStage **st;
  int n = te_sched_stages(f->s, &st);
  return st[draw(f, n)];
}

static const IterVar *any_leaf(Fuzz *f, TeStage *st)
{
  const IterVar *const *leaf;
  int n = te_stage_leaves(st, &leaf);
  return n ? leaf[draw(f, n)] : NULL;
}

static void note(Fuzz *f, const char *call, TeStage *st, const IterVar *leaf)
{
  text_printf(&f->log, "%s(%s%s%s) ", call, te_stage_op(st)->name, leaf ? ", " : "", leaf ? leaf->var->name : "");
}

static void call_split(Fuzz *f, TeStage *st, const IterVar *leaf)
{
  const IterVar *o, *i;
  const Expr *by = expr_i32(f->m, 1 + draw(f, 5));
  bool parts = draw(f, 4) == 0;
  note(f, parts ? "split_parts" : "split", st, leaf);
  te_stage_split(st, leaf, parts ? NULL : by, parts ? by : NULL, &o, &i);
}

static void call_order(Fuzz *f, TeStage *st)
{
  const IterVar *const *leaf, *pick[4];
  int n = te_stage_leaves(st, &leaf);
  int k = 0;
  for (int i = 0; i < n && k < 4; i++) {
    const IterVar *x = leaf[draw(f, n)];
    bool twice = false;
    for (int j = 0; j < k; j++) twice |= pick[j] == x;
    if (!twice) pick[k++] = x;
  }
  note(f, "reorder", st, k ? pick[0] : NULL);
  te_stage_reorder(st, k, pick);
}

static void call_fuse(Fuzz *f, TeStage *st)
{
  const IterVar *const *leaf;
  int n = te_stage_leaves(st, &leaf);
  int at = draw(f, n);
  if (at + 1 >= n) return;
  note(f, "fuse", st, leaf[at]);
  te_stage_fuse(st, 2, leaf + at);
}

static void call_cache(Fuzz *f, TeStage *st)
{
  const Tensor *out[2];
  const Tensor *t = &te_stage_op(st)->out[0];
  if (draw(f, 2)) {
    note(f, "cache_read", st, NULL);
    te_sched_cache_read(f->s, t, "local", 0, NULL);
  } else {
    note(f, "cache_write", st, NULL);
    te_sched_cache_write(f->s, 1, &t, "local", out);
  }
}

static void one_call(Ctx *ctx, void *arg)
{
  (void)ctx;
  Fuzz *f = arg;
  TeStage *st = any_stage(f);
  const IterVar *leaf = any_leaf(f, st);
  int which = draw(f, 14);
  if (which < 3 && leaf) call_split(f, st, leaf);
  else if (which < 5) call_order(f, st);
  else if (which == 5) call_fuse(f, st);
  else if (which == 6) call_cache(f, st);
  else if (which == 7) (note(f, "inline", st, NULL), te_stage_compute_inline(st));
  else if (which == 8) (note(f, "root", st, NULL), te_stage_compute_root(st));
  else if (which < 11) {
    TeStage *at = any_stage(f);
    const IterVar *x = any_leaf(f, at);
    if (!x) return;
    note(f, "compute_at", st, NULL);
    note(f, "", at, x);
    te_stage_compute_at(st, at, x);
  } else if (which < 13 && leaf) {
    ForKind kind = (ForKind[]){FOR_PARALLEL, FOR_VECTORIZED, FOR_UNROLLED}[draw(f, 3)];
    note(f, kind == FOR_PARALLEL ? "parallel" : kind == FOR_VECTORIZED ? "vectorize" : "unroll", st, leaf);
    te_stage_mark(st, leaf, kind);
  } else if (leaf) {
    const Tensor *out[2];
    note(f, "rfactor", st, leaf);
    te_sched_rfactor(f->s, &te_stage_op(st)->out[0], leaf, draw(f, 2), out);
  }
}

/* ---- running ------------------------------------------------------------------------------------ */

_Noreturn static void die(Fuzz *f, const char *what)
{
  fprintf(stderr, "%s\n%s\n%s\n", what, error_message(f->ctx), text_str(&f->log));
  abort();
}

static TirArg memory(Fuzz *f, const Tensor *t, bool random)
{
  Arena *arena = scratch(f->ctx);
  const Buffer *b = t->buffer;
  int64_t *shape = arena_array(arena, int64_t, b->ndim);
  int64_t n = 1;
  for (int d = 0; d < b->ndim; d++) n *= shape[d] = b->shape[d]->u.i;
  int32_t *v = arena_array(arena, int32_t, n);
  for (int64_t i = 0; i < n; i++) v[i] = random ? (int32_t)(i * 7919 % 23) - 11 : -1;
  return (TirArg){.data = v, .dtype = b->dtype, .ndim = b->ndim, .shape = shape};
}

static void free_te(void *s) { te_sched_free(s); }
static void free_sched(void *s) { sched_free(s); }

static void check_result(Fuzz *f, Sched *e, const TeArg *args, int n)
{
  TirArg want[4], got[4];
  for (int i = 0; i < n; i++) {
    want[i] = memory(f, args[i].tensor, i < n - 1);
    got[i] = memory(f, args[i].tensor, i < n - 1);
  }
  te_evaluate(f->ctx, n, args, want);
  func_check(sched_func(e));
  func_interpret(sched_func(e), n, got);
  size_t bytes = 4;
  for (int d = 0; d < got[n - 1].ndim; d++) bytes *= (size_t)got[n - 1].shape[d];
  if (memcmp(want[n - 1].data, got[n - 1].data, bytes)) {
    fprintf(stderr, "%s\n", func_print(scratch(f->ctx), sched_func(e)));
    die(f, "the schedule changed the result");
  }
}

static void emit(Ctx *ctx, void *arg)
{
  Fuzz *f = arg;
  TeArg args[4] = {0};
  for (int i = 0; i < f->ninput; i++) args[i].tensor = f->input[i];
  args[f->ninput].tensor = f->output;
  Sched *e = te_sched_emit(f->s, "main", f->ninput + 1, args);
  defer(ctx, free_sched, e);
  check_result(f, e, args, f->ninput + 1);
}

static void fuzz_body(Ctx *ctx, void *arg)
{
  Fuzz *f = arg;
  switch (draw(f, 4)) {
  case 0: make_matmul(f, false); break;
  case 1: make_matmul(f, true); break;
  case 2: make_conv(f); break;
  case 3: make_mixed(f); break;
  }
  f->s = te_sched_new(f->m, 1, &f->output->op);
  defer(ctx, free_te, f->s);
  f->log = text_new(f->m->arena);
  text_add(&f->log, "");
  for (int i = 0; i < 24 && f->n; i++) {
    ErrKind kind = protect(ctx, one_call, f);
    if (kind == ERR_INTERNAL || kind == ERR_BOUNDS || kind == ERR_TYPE) die(f, "a call failed");
    if (kind) text_add(&f->log, "refused; ");
    else text_add(&f->log, "; ");
  }
  if (protect(ctx, emit, f) && (error_kind(ctx) != ERR_SCHEDULE || !strstr(error_message(ctx), "does not enclose")))
    die(f, "an accepted description does not emit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
  Fuzz f = {.ctx = ctx_new(), .data = data, .n = n};
  f.m = module_new(f.ctx);
  if (protect(f.ctx, fuzz_body, &f)) die(&f, "the computation was refused");
  module_release(f.m);
  ctx_free(f.ctx);
  return 0;
}
