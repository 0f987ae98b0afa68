/* threads.c: loops bound to thread axes, for GPU targets.
 *
 * lower_pass_unify_threads
 *   Each outermost thread loop becomes one launch: all axes used in it outermost,
 *   blockIdx before threadIdx, each axis once with the largest extent any loop of it
 *   has.  A loop with a smaller extent becomes a condition on the axis; a store that
 *   was under no loop of an axis is done by the axis's first thread (in memory of its
 *   own by all of them).  Virtual threads ("vthread") become unrolled loops.
 *
 * needs   no blocks
 * keeps   everything else
 * breaks  nothing
 *
 * lower_pass_sync_storage
 *   A barrier stands between a write to shared memory and a later read of it, and
 *   between a read and a later write, also from one iteration of a loop to the next.
 *
 * needs   flat buffers, unified thread axes
 * breaks  nothing */
#include "lower/internal.h"

static const char *const axes[] = {"blockIdx.z",  "blockIdx.y",  "blockIdx.x",
                                   "threadIdx.z", "threadIdx.y", "threadIdx.x"};
enum { NAXES = sizeof axes / sizeof *axes };

typedef struct Launch {
  Lower *lo;
  Analyzer *an;
  Arena *tmp;
  Stmt *loop[NAXES]; /* the first loop of each axis */
  const Expr *extent[NAXES];
  Map vars;           /* Var* of other loops -> the axis */
  bool inside[NAXES]; /* the statement at hand is under a loop of the axis */
} Launch;

static int axis_of(Launch *l, const Stmt *s)
{
  for (int i = 0; i < NAXES; i++)
    if (!strcmp(axes[i], s->u.loop.thread_tag)) return i;
  raise(l->lo->ctx, ERR_UNSUPPORTED, s->loc, "%s: loop '%s' is bound to '%s', which is no thread axis", l->lo->f->name,
        s->u.loop.var->name, s->u.loop.thread_tag);
}

static bool is_virtual(const Stmt *s) { return str_starts(s->u.loop.thread_tag, "vthread"); }
static bool is_thread(const Stmt *s) { return s->kind == S_FOR && s->u.loop.kind == FOR_THREAD; }

static bool collect_axes(void *env, Stmt *s)
{
  Launch *l = env;
  Module *m = l->lo->m;
  if (!is_thread(s) || is_virtual(s)) return true;
  int i = axis_of(l, s);
  const Expr *n = expr_simplify(l->an, s->u.loop.extent);
  if (!l->loop[i]) {
    l->loop[i] = s;
    l->extent[i] = n;
  } else if (!analyzer_prove(l->an, expr_binary(m, E_LE, n, l->extent[i]))) {
    l->extent[i] = expr_simplify(l->an, expr_max(m, l->extent[i], n));
  }
  return true;
}

/* A store to memory that other threads see, by the first thread of each axis that it
 * does not depend on. */
static Stmt *by_one_thread(Launch *l, Stmt *s)
{
  Module *m = l->lo->m;
  const char *scope = s->kind == S_STORE ? s->u.store.buffer->scope : "global";
  if (strcmp(scope, "global") && !str_starts(scope, "shared")) return s;
  const Expr *first = NULL;
  for (int i = 0; i < NAXES; i++) {
    if (!l->loop[i] || l->inside[i]) continue;
    const Expr *v = l->loop[i]->u.loop.var->expr;
    const Expr *zero = expr_binary(m, E_EQ, v, lower_int(m, v, 0));
    first = first ? expr_and(m, first, zero) : zero;
  }
  return first ? stmt_if(m, first, s, NULL) : s;
}

static Stmt *strip_axes(void *env, Stmt *s)
{
  Launch *l = env;
  Module *m = l->lo->m;
  if (is_thread(s) && is_virtual(s)) {
    s->u.loop.kind = FOR_UNROLLED;
    s->u.loop.thread_tag = NULL;
  }
  if (s->kind == S_STORE || (s->kind == S_EVAL && !lower_is_nop(s))) return by_one_thread(l, s);
  if (!is_thread(s)) {
    lower_map_children(m, s, strip_axes, l);
    return s;
  }
  int i = axis_of(l, s);
  bool outer = l->inside[i];
  const Var *axis = l->loop[i]->u.loop.var;
  const Expr *at = expr_cast(m, s->u.loop.var->dtype, axis->expr);
  const Expr *n = expr_simplify(l->an, s->u.loop.extent);
  if (!expr_is_int(s->u.loop.min, 0)) at = expr_add(m, at, s->u.loop.min);
  if (at != s->u.loop.var->expr) map_put(l->tmp, &l->vars, s->u.loop.var, (void *)(uintptr_t)at);
  l->inside[i] = true;
  Stmt *body = strip_axes(l, s->u.loop.body);
  l->inside[i] = outer;
  return n == l->extent[i] ? body : stmt_if(m, expr_lt(m, axis->expr, n), body, NULL);
}

/* What is written under a loop of an axis cannot always be read outside of it: of memory
 * of a thread's own each thread has a part, and blocks do not wait for each other. */
typedef struct OwnMemory {
  Launch *l;
  Stmt *top;
  Map stored; /* data Var* -> bit per axis around a store */
  Stmt *holder;
} OwnMemory;

static bool is_own(const Buffer *b) { return strcmp(b->scope, "global") && !str_starts(b->scope, "shared"); }

static intptr_t axes_around(OwnMemory *o, const Stmt *s)
{
  intptr_t bits = 0;
  for (;; s = s->parent) {
    if (is_thread(s) && !is_virtual(s)) bits |= (intptr_t)1 << axis_of(o->l, s);
    if (s == o->top) return bits;
  }
}

static bool note_store(void *env, Stmt *s)
{
  OwnMemory *o = env;
  if (s->kind != S_STORE) return true;
  const Var *data = s->u.store.buffer->data;
  map_put(o->l->tmp, &o->stored, data, (void *)((intptr_t)map_get(&o->stored, data) | axes_around(o, s)));
  return true;
}

static void check_load(void *env, const Expr *e)
{
  OwnMemory *o = env;
  if (e->kind != E_LOAD) return;
  bool own = is_own(e->u.buffer);
  intptr_t missing = (intptr_t)map_get(&o->stored, e->u.buffer->data) & ~axes_around(o, o->holder);
  for (int i = 0; i < NAXES; i++)
    if (missing >> i & 1 && (own || str_starts(axes[i], "blockIdx")))
      raise(o->l->lo->ctx, ERR_UNSUPPORTED, o->holder->loc,
            "%s: buffer '%s' is written under a loop bound to %s and read outside of it in the same launch, but %s; %s",
            o->l->lo->f->name, e->u.buffer->name, axes[i],
            own ? "each thread has a part of its own" : "blocks do not wait for each other",
            own ? "use scope 'shared'" : "compute the reader in a launch of its own");
}

static void check_loads(void *env, Stmt *holder, const Expr *e)
{
  OwnMemory *o = env;
  o->holder = holder;
  expr_visit(o->l->lo->ctx, e, check_load, o);
}

static Stmt *launch(Lower *lo, Stmt *s)
{
  Module *m = lo->m;
  Launch l = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  stmt_visit(s, collect_axes, &l);
  OwnMemory own = {.l = &l, .top = s};
  stmt_visit(s, note_store, &own);
  stmt_visit_exprs(s, check_loads, &own);
  Stmt *body = strip_axes(&l, s);
  stmt_substitute(m, body, &l.vars);
  for (int i = NAXES - 1; i >= 0; i--) {
    if (!l.loop[i]) continue;
    const Var *v = l.loop[i]->u.loop.var;
    body = stmt_for(m, v, expr_int(m, v->dtype, 0), l.extent[i], FOR_THREAD, axes[i], body);
  }
  return body;
}

/* What stands outside of thread loops runs on the host. */
static Stmt *launch_stmt(void *env, Stmt *s)
{
  Lower *lo = env;
  if (is_thread(s)) return launch(lo, s);
  lower_map_children(lo->m, s, launch_stmt, lo);
  return s;
}

void lower_pass_unify_threads(Lower *lo)
{
  if (lower_for_gpu(lo)) lo->f->body = launch_stmt(lo, lo->f->body);
}

/* ---- barriers ----------------------------------------------------------------------------------- */

enum { READ = 1, WRITE = 2 };

typedef struct Sync {
  Lower *lo;
  Arena *tmp;
  Map threads; /* Var* of threadIdx loops, and lets */
} Sync;

typedef struct Pending {
  Map of; /* data Var* -> READ | WRITE since the last barrier */
} Pending;

static void touch(Sync *y, Map *of, const Buffer *b, intptr_t how)
{
  if (!str_starts(b->scope, "shared")) return;
  intptr_t old = (intptr_t)map_get(of, b->data);
  map_put(y->tmp, of, b->data, (void *)(old | how));
}

typedef struct Touch {
  Sync *y;
  Map of;
} Touch;

static void touch_loads(void *env, const Expr *e)
{
  Touch *t = env;
  if (e->kind == E_LOAD) touch(t->y, &t->of, e->u.buffer, READ);
}

static void touch_held(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  Touch *t = env;
  expr_visit(t->y->lo->ctx, e, touch_loads, t);
}

static bool touch_stores(void *env, Stmt *s)
{
  Touch *t = env;
  if (s->kind == S_STORE) touch(t->y, &t->of, s->u.store.buffer, WRITE);
  return true;
}

static Map touched(Sync *y, Stmt *s)
{
  Touch t = {.y = y};
  stmt_visit(s, touch_stores, &t);
  stmt_visit_exprs(s, touch_held, &t);
  return t.of;
}

static bool conflicts(const Pending *p, const Map *now)
{
  for (int i = 0; i < now->n; i++) {
    intptr_t how = (intptr_t)now->val[i];
    intptr_t before = (intptr_t)map_get(&p->of, (const void *)(uintptr_t)now->key[i]);
    if ((how & READ && before & WRITE) || (how & WRITE && before & READ)) return true;
  }
  return false;
}

static void merge(Sync *y, Pending *p, const Map *now)
{
  for (int i = 0; i < now->n; i++) {
    const void *key = (const void *)(uintptr_t)now->key[i];
    map_put(y->tmp, &p->of, key, (void *)((intptr_t)map_get(&p->of, key) | (intptr_t)now->val[i]));
  }
}

static Stmt *barrier(Sync *y)
{
  const Expr *scope = expr_str(y->lo->m, "shared");
  return stmt_eval(y->lo->m, expr_call(y->lo->m, DT_I32, IN_SYNC, 1, &scope));
}

static bool is_barrier(const Stmt *s)
{
  return s->kind == S_EVAL && s->u.eval.value->kind == E_CALL && s->u.eval.value->u.intrin == IN_SYNC;
}

/* Does s, up to its first barrier, touch what is pending? */
static bool starts_with_conflict(Sync *y, Stmt *s, const Pending *p, bool *met)
{
  if (*met) return false;
  if (is_barrier(s)) {
    *met = true;
    return false;
  }
  if (s->kind == S_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++)
      if (starts_with_conflict(y, s->u.seq.v[i], p, met)) return true;
    return false;
  }
  Stmt **slot[2];
  if (s->kind == S_FOR || s->kind == S_ALLOC || s->kind == S_LET || s->kind == S_ATTR) {
    stmt_children(s, slot, 2);
    return starts_with_conflict(y, *slot[0], p, met);
  }
  Map now = touched(y, s);
  return conflicts(p, &now);
}

static Stmt *sync_stmt(Sync *y, Stmt *s, Pending *p);

static bool find_barrier(void *env, Stmt *s)
{
  *(bool *)env |= is_barrier(s);
  return true;
}

static bool has_barrier(Stmt *s)
{
  bool found = false;
  stmt_visit(s, find_barrier, &found);
  return found;
}

/* Do all threads of a block agree on the value? */
static bool is_uniform(Sync *y, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(y->tmp, e, &v);
  bool same = !expr_has_kind(e, E_LOAD);
  for (int i = 0; i < n; i++) same &= !map_has(&y->threads, v[i]);
  return same;
}

/* What is pending before the loop meets a barrier before it, not one in each iteration. */
static Stmt *sync_loop(Sync *y, Stmt *s, Pending *p)
{
  Stmt *before = NULL;
  bool met = false;
  if (starts_with_conflict(y, s->u.loop.body, p, &met)) {
    before = barrier(y);
    *p = (Pending){0};
  }
  if (s->u.loop.kind == FOR_THREAD && str_starts(s->u.loop.thread_tag, "threadIdx"))
    map_put(y->tmp, &y->threads, s->u.loop.var, y);
  s->u.loop.body = sync_stmt(y, s->u.loop.body, p);
  met = false;
  if (s->u.loop.kind != FOR_THREAD && starts_with_conflict(y, s->u.loop.body, p, &met)) {
    s->u.loop.body = lower_then(y->lo->m, barrier(y), s->u.loop.body);
    *p = (Pending){0};
    s->u.loop.body = sync_stmt(y, s->u.loop.body, p); /* what is pending at the end of an iteration */
  }
  if (has_barrier(s->u.loop.body) && !is_uniform(y, s->u.loop.extent))
    raise(y->lo->ctx, ERR_UNSUPPORTED, s->loc,
          "%s: threads must wait for each other in loop '%s', whose extent %s is not the same for all of them",
          y->lo->f->name, s->u.loop.var->name, expr_str_of(y->tmp, s->u.loop.extent));
  return lower_then(y->lo->m, before, s);
}

/* A branch that needs barriers inside; each thread must come to each of them. */
static Stmt *sync_branch(Sync *y, Stmt *branch, const Expr *cond)
{
  if (!branch) return NULL;
  Pending p = {0};
  Stmt *tried = sync_stmt(y, stmt_clone(y->lo->m, branch), &p);
  if (!has_barrier(tried)) return branch;
  if (!is_uniform(y, cond))
    raise(y->lo->ctx, ERR_UNSUPPORTED, branch->loc,
          "%s: threads must wait for each other under the condition %s, which not all of them meet; "
          "bind the loops to the same number of threads, or use extents that divide evenly",
          y->lo->f->name, expr_str_of(y->tmp, cond));
  return tried;
}

static Stmt *sync_stmt(Sync *y, Stmt *s, Pending *p)
{
  Stmt **slot[2];
  if (is_barrier(s)) {
    *p = (Pending){0};
    return s;
  }
  if (s->kind == S_SEQ) {
    Vec(Stmt *) out = {0};
    for (int i = 0; i < s->u.seq.n; i++) vec_push(y->tmp, &out, sync_stmt(y, s->u.seq.v[i], p));
    return stmt_seq(y->lo->m, out.n, out.v);
  }
  if (s->kind == S_FOR) return sync_loop(y, s, p);
  if (s->kind == S_ALLOC || s->kind == S_LET || s->kind == S_ATTR) {
    if (s->kind == S_LET && !is_uniform(y, s->u.let.value)) map_put(y->tmp, &y->threads, s->u.let.var, y);
    stmt_children(s, slot, 2);
    *slot[0] = sync_stmt(y, *slot[0], p);
    return s;
  }
  if (s->kind == S_IF) {
    s->u.cond.then = sync_branch(y, s->u.cond.then, s->u.cond.cond);
    s->u.cond.orelse = sync_branch(y, s->u.cond.orelse, s->u.cond.cond);
  }
  Map now = touched(y, s);
  Stmt *out = s;
  if (conflicts(p, &now)) {
    out = lower_then(y->lo->m, barrier(y), s);
    *p = (Pending){0};
  }
  merge(y, p, &now);
  return out;
}

void lower_pass_sync_storage(Lower *lo)
{
  if (!lower_for_gpu(lo)) return;
  Sync y = {.lo = lo, .tmp = scratch(lo->ctx)};
  Pending p = {0};
  lo->f->body = sync_stmt(&y, lo->f->body, &p);
}
