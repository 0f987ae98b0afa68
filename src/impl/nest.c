/* nest.c: a block's loops and how it walks memory.
 *
 * In: a block of a schedule, at any time.  Out: its loops with their kinds and extents,
 * its accesses, and how many elements each access moves when a loop takes a step, where
 * that is a constant.  This is all that generic schedules decide by. */
#include "impl/internal.h"

/* ---- expressions -------------------------------------------------------------------------- */

static double call_operations(Intrin f)
{
  if (f == IN_SQRT || f == IN_RSQRT) return 6;
  if (f == IN_IF_THEN_ELSE || f == IN_ABS || f == IN_FLOOR || f == IN_CEIL || f == IN_TRUNC || f == IN_NEARBYINT ||
      f == IN_FMA || f == IN_COPYSIGN || (f >= IN_ISNAN && f <= IN_REINTERPRET))
    return 1;
  return f == IN_LIKELY ? 0 : f == IN_ERF || f == IN_TANH ? 24 : 12;
}

static bool is_index(DType t) { return t.code == DT_INT && t.bits >= 32; }

static void count_operations(void *env, const Expr *e)
{
  double *n = env;
  if (e->kind == E_CALL) {
    *n += call_operations(e->u.intrin);
  } else if (e->kind == E_DIV || e->kind == E_MOD) {
    *n += is_index(e->dtype) ? 0 : 4;
  } else if (e->kind >= E_ADD && e->kind <= E_SELECT) {
    *n += is_index(e->dtype) ? 0 : 1;
  }
}

double nest_expr_operations(Ctx *ctx, const Expr *e)
{
  double n = 0;
  expr_visit(ctx, e, count_operations, &n);
  return n;
}

/* ---- blocks -------------------------------------------------------------------------------- */

bool nest_block_is_injective(const Block *b)
{
  if (b->init || b->nwrites != 1 || b->body->kind != S_STORE || b->predicate) return false;
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL) return false;
  Stmt *store = b->body;
  if (store->u.store.n > b->niter || store->u.store.mask) return false;
  for (int d = 0; d < store->u.store.n; d++) {
    const Expr *at = store->u.store.index[d];
    bool own = expr_is_int(at, 0);
    for (int i = 0; i < b->niter; i++) own |= at == var_expr(b->iter[i].var);
    if (!own) return false;
  }
  return expr_is_pure(store->u.store.value) && !expr_uses_buffer(store->u.store.value, store->u.store.buffer);
}

bool nest_block_is_output(const PrimFunc *f, const Block *b)
{
  for (int w = 0; w < b->nwrites; w++)
    for (int p = 0; p < f->nparam; p++)
      if (f->param[p].buffer == b->writes[w].buffer) return true;
  return false;
}

/* ---- nests ----------------------------------------------------------------------------------- */

typedef struct Reading {
  ImplGroup *g;
  Nest *nest;
  Analyzer *an;
  Module *m;
  Map value; /* block variable -> what it is bound to */
  const Expr *flat[NEST_ACCESSES];
  bool full;
} Reading;

static void add_access(Reading *r, const Buffer *b, int n, const Expr *const *index, bool write)
{
  Nest *nest = r->nest;
  if (nest->naccess == NEST_ACCESSES) {
    r->full = true;
    return;
  }
  const Expr *flat = expr_i32(r->m, 0);
  for (int d = 0; d < n; d++) {
    flat = expr_mul(r->m, flat, b->shape[d]);
    flat = expr_add(r->m, flat, expr_substitute(r->m, index[d], &r->value));
  }
  for (int a = 0; a < nest->naccess; a++)
    if (r->flat[a] == flat && nest->access[a].buffer == b) return;
  if (b->dtype.bits > nest->bits) nest->bits = b->dtype.bits;
  r->flat[nest->naccess] = flat;
  nest->access[nest->naccess++] = (NestAccess){b, write};
}

static void read_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) add_access(env, e->u.buffer, e->nargs, e->arg, false);
}

static bool chooses(const Expr *e)
{
  return e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
}

/* A conjunction of bounds. */
static bool is_bound(const Expr *e)
{
  if (e->kind == E_AND) return is_bound(e->arg[0]) && is_bound(e->arg[1]);
  return e->kind == E_LT || e->kind == E_LE || e->kind == E_GT || e->kind == E_GE;
}

static int64_t stride_of(Reading *r, const Expr *flat, const Var *v)
{
  if (!expr_uses_var(flat, v)) return 0;
  const Expr *next = expr_substitute1(r->m, flat, v, expr_add(r->m, var_expr(v), expr_int(r->m, v->dtype, 1)));
  const Expr *step = expr_simplify(r->an, expr_sub(r->m, next, flat));
  return step->kind == E_INT ? step->u.i : STRIDE_ANY;
}

/* The greatest common divisor of `grain` and of the values of v at which bounds change; 1 when they are not known. */
static int64_t grain_of(Reading *r, const Expr *bound, const Var *v, int64_t grain)
{
  if (bound->kind == E_AND) return grain_of(r, bound->arg[1], v, grain_of(r, bound->arg[0], v, grain));
  if (!expr_uses_var(bound, v)) return grain;
  const Expr *difference = expr_sub(r->m, bound->arg[0], bound->arg[1]);
  const Expr *begin = expr_simplify(r->an, expr_substitute1(r->m, difference, v, expr_int(r->m, v->dtype, 0)));
  int64_t step = stride_of(r, difference, v);
  if (begin->kind != E_INT || (step != 1 && step != -1)) return 1;
  bool after = step == 1 ? bound->kind == E_LE || bound->kind == E_GT : bound->kind == E_LT || bound->kind == E_GE;
  return int_gcd(grain, -step * begin->u.i + after);
}

/* Marks the loops that conditions depend on. */
static void read_condition(void *env, const Expr *e)
{
  Reading *r = env;
  if (!chooses(e) || expr_has_kind(e->arg[0], E_LOAD)) return;
  const Expr *cond = expr_substitute(r->m, e->arg[0], &r->value);
  for (int i = 0; i < r->nest->n; i++) {
    NestLoop *l = &r->nest->loop[i];
    if (!expr_uses_var(cond, l->stmt->u.loop.var)) continue;
    l->guarded = true;
    l->unbounded |= !is_bound(cond);
    l->grain = l->unbounded ? 1 : grain_of(r, cond, l->stmt->u.loop.var, l->grain);
  }
}

/* Conditions that read_condition looks at are left out. */
static const Expr *without_condition(Rewriter *rw, const Expr *e)
{
  if (!chooses(e) || expr_has_kind(e->arg[0], E_LOAD)) return e;
  return expr_call(rw->m, DT_NONE, IN_IF_THEN_ELSE, 3, (const Expr *[]){expr_bool(rw->m, true), e->arg[1], e->arg[2]});
}

static const Expr *without_load(Rewriter *rw, const Expr *e)
{
  return e->kind == E_LOAD ? var_expr(var_new(rw->m, "element", e->dtype, VAR_PLAIN)) : e;
}

/* Marks the loops whose variable is part of the value itself: the number of elements in a window, a range. */
static void read_value(Reading *r, const Expr *value)
{
  Rewriter conditions = {.m = r->m, .fn = without_condition, .arena = r->g->arena};
  Rewriter loads = {.m = r->m, .fn = without_load, .arena = r->g->arena};
  value = expr_substitute(r->m, expr_rewrite(&loads, expr_rewrite(&conditions, value)), &r->value);
  for (int i = 0; i < r->nest->n; i++)
    if (expr_uses_var(value, r->nest->loop[i].stmt->u.loop.var))
      r->nest->loop[i].guarded = r->nest->loop[i].unbounded = true;
}

static bool read_stores(Reading *r, Stmt *s)
{
  if (s->kind == S_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++)
      if (!read_stores(r, s->u.seq.v[i])) return false;
    return true;
  }
  if (s->kind != S_STORE || s->u.store.mask) return false;
  add_access(r, s->u.store.buffer, s->u.store.n, s->u.store.index, true);
  expr_visit(r->g->ctx, s->u.store.value, read_load, r);
  expr_visit(r->g->ctx, s->u.store.value, read_condition, r);
  read_value(r, s->u.store.value);
  for (int d = 0; d < s->u.store.n; d++) expr_visit(r->g->ctx, s->u.store.index[d], read_load, r);
  r->nest->operations += nest_expr_operations(r->g->ctx, s->u.store.value);
  return true;
}

static void read_loop(Reading *r, NestLoop *loop)
{
  const Var *v = loop->stmt->u.loop.var;
  const Expr *extent = expr_simplify(r->an, loop->stmt->u.loop.extent);
  loop->extent = extent->kind == E_INT ? extent->u.i : 0;
  analyzer_bind(r->an, v, loop->stmt->u.loop.min, loop->stmt->u.loop.extent);
  bool used = false;
  for (int i = 0; i < r->nest->block->niter; i++) {
    const BlockIter *it = &r->nest->block->iter[i];
    if (!expr_uses_var(it->value, v)) continue;
    used = true;
    if (it->kind == ITER_REDUCE) loop->reduce = true;
    if (it->kind != ITER_REDUCE && it->kind != ITER_SPATIAL) r->nest->plain = false;
  }
  if (!used && loop->extent != 1) r->nest->plain = false;
}

/* Does every access treat loop number i and the next one, whose extent is not known, as one? */
static bool joins_next(Reading *r, int i)
{
  const NestLoop *inner = &r->nest->loop[i + 1];
  const Var *v = r->nest->loop[i].stmt->u.loop.var;
  if (inner->extent) return false;
  for (int a = 0; a < r->nest->naccess; a++) {
    if (inner->stride[a] == STRIDE_ANY) return false;
    const Expr *extent = inner->stmt->u.loop.extent;
    const Expr *next = expr_substitute1(r->m, r->flat[a], v, expr_add(r->m, var_expr(v), expr_int(r->m, v->dtype, 1)));
    const Expr *whole = expr_mul(r->m, extent, expr_int(r->m, extent->dtype, inner->stride[a]));
    if (!analyzer_prove_equal(r->an, expr_sub(r->m, next, r->flat[a]), whole)) return false;
  }
  return true;
}

void nest_read(ImplGroup *g, BlockRV rv, Nest *nest)
{
  *nest = (Nest){.rv = rv, .block = sched_block_stmt(g->s, rv)->u.block, .plain = true, .iterations = 1, .bits = 8};
  Reading r = {.g = g, .nest = nest, .m = sched_module(g->s)};
  r.an = analyzer_new(r.m, g->arena);
  for (int i = 0; i < nest->block->niter; i++)
    map_put(g->arena, &r.value, nest->block->iter[i].var, (void *)(uintptr_t)nest->block->iter[i].value);
  LoopRV *loops;
  int n = sched_get_loops(g->s, rv, g->arena, &loops);
  if (n > NEST_LOOPS) {
    nest->plain = false;
    n = 0;
  }
  nest->n = n;
  nest->reduction = nest->block->init != NULL;
  for (int i = 0; i < n; i++) {
    nest->loop[i] = (NestLoop){.rv = loops[i], .stmt = sched_loop_stmt(g->s, loops[i])};
    read_loop(&r, &nest->loop[i]);
    nest->reduction |= nest->loop[i].reduce;
    nest->iterations *= nest->loop[i].extent ? (double)nest->loop[i].extent : 64;
  }
  if (!read_stores(&r, nest->block->body) || r.full || nest->block->nallocs || nest->block->nmatches)
    nest->plain = false;
  /* Simplest forms first: c / 16 and c % 16 of a split loop are loops of their own, whose next step may be the last. */
  for (int a = 0; a < nest->naccess; a++) r.flat[a] = expr_simplify(r.an, r.flat[a]);
  for (int i = 0; i < n; i++)
    for (int a = 0; a < nest->naccess; a++)
      nest->loop[i].stride[a] = stride_of(&r, r.flat[a], nest->loop[i].stmt->u.loop.var);
  for (int i = 0; i + 1 < n; i++) nest->loop[i].joins = joins_next(&r, i);
}
