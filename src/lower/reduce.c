/* reduce.c: reductions over the threads of a block, for GPU targets.
 *
 * lower_pass_thread_reductions
 *   for ko, tx:                         for t:
 *     block C: init C[i] = 0        →     part[0] = 0
 *              C[i] += …                  for ko, tx: block C: part[0] += …
 *                                         all[ty, t] = part[0]
 *                                         if t < 4: all[ty, t] += all[ty, t + 4]
 *                                         …, 2, 1
 *                                       block C_write: C[i] = all[ty, 0]
 * where tx is a reduction loop bound to a thread axis, t a loop over the same axis, and
 * ty a thread loop around.
 * Each thread reduces its part in memory of its own; the parts meet in shared memory,
 * half as many at each step.  Barriers come later (lower_pass_sync_storage), and the result
 * is stored by the first thread (lower_pass_unify_threads), or by each into its own memory.
 *
 * needs   parent links, blocks with their init
 * keeps   everything else
 * breaks  nothing; afterwards no reduction variable of a block with an init is bound
 *         to a thread loop */
#include "lower/internal.h"

typedef struct ThreadReduce {
  Lower *lo;
  Stmt *stmt;
  Block *b;
  Stmt **loop;      /* around the block, outermost first */
  int nloop, outer; /* loop[outer]: the outermost of the reduction */
  BlockUpdate u;
  Vec(Stmt *) around, across; /* thread loops outside of it; those of the reduction */
  const Expr **thread;        /* the number of this thread along each of `across` */
  const Buffer **part, **all; /* of each value */
} ThreadReduce;

_Noreturn static void refuse(const ThreadReduce *r, const char *why, const char *way)
{
  raise(r->lo->ctx, ERR_UNSUPPORTED, r->stmt->loc, "%s: the reduction of block '%s' over threads: %s; %s",
        r->lo->f->name, r->b->name, why, way);
}

static bool in_bindings(const Block *b, const Var *v, bool reduce)
{
  for (int i = 0; i < b->niter; i++)
    if ((b->iter[i].kind == ITER_REDUCE) == reduce && expr_uses_var(b->iter[i].value, v)) return true;
  return false;
}

static bool is_thread(const Stmt *s)
{
  return s->kind == S_FOR && s->u.loop.kind == FOR_THREAD && str_starts(s->u.loop.thread_tag, "threadIdx");
}

static int64_t thread_count(const ThreadReduce *r, const Stmt *loop)
{
  int64_t n = 0;
  if (!lower_const_int(loop->u.loop.extent, &n) || !expr_is_int(loop->u.loop.min, 0))
    refuse(r, arena_printf(scratch(r->lo->ctx), "thread loop '%s' has no constant extent", loop->u.loop.var->name),
           "split it by a constant");
  return n;
}

/* Finds the loops; false if no reduction loop is bound to a thread. */
static bool read_loops(ThreadReduce *r)
{
  Arena *tmp = scratch(r->lo->ctx);
  r->nloop = stmt_loops(tmp, r->stmt, &r->loop);
  r->outer = r->nloop;
  for (int i = r->nloop - 1; i >= 0; i--) {
    if (!in_bindings(r->b, r->loop[i]->u.loop.var, true)) continue;
    r->outer = i;
    if (is_thread(r->loop[i])) vec_push(tmp, &r->across, r->loop[i]);
  }
  if (!r->across.n) return false;
  for (int i = r->outer; i < r->nloop; i++)
    if (in_bindings(r->b, r->loop[i]->u.loop.var, false))
      refuse(r,
             arena_printf(tmp, "spatial loop '%s' stands inside reduction loop '%s'", r->loop[i]->u.loop.var->name,
                          r->loop[r->outer]->u.loop.var->name),
             "reorder it outside");
  for (Stmt *p = r->loop[r->outer]->parent; p; p = p->parent)
    if (is_thread(p)) vec_push(tmp, &r->around, p);
  return true;
}

/* Another block of the kernel would see the result before the thread that stores it
 * has done so, where the memory has no barrier. */
typedef struct Reader {
  const Block *writer;
  const Buffer *buffer;
  const char *name;
} Reader;

static bool find_reader(void *env, Stmt *s)
{
  Reader *f = env;
  for (int i = 0; s->kind == S_BLOCK && s->u.block != f->writer && i < s->u.block->nreads; i++)
    if (s->u.block->reads[i].buffer == f->buffer) f->name = s->u.block->name;
  return true;
}

static void check_readers(ThreadReduce *r)
{
  Stmt *top = r->loop[r->outer];
  for (Stmt *p = top; p; p = p->parent)
    if (p->kind == S_FOR && p->u.loop.kind == FOR_THREAD) top = p;
  for (int v = 0; v < r->u.n; v++) {
    Reader f = {.writer = r->b, .buffer = r->u.store[v]->u.store.buffer};
    if (!strcmp(f.buffer->scope, "global")) stmt_visit(top, find_reader, &f);
    if (f.name)
      refuse(r,
             arena_printf(scratch(r->lo->ctx),
                          "block '%s' of the same kernel reads '%s', which one thread writes to global memory", f.name,
                          f.buffer->name),
             "set its scope to \"shared\" or \"local\"");
  }
}

/* The conditions on the result's element alone. */
static const Expr *element_predicate(ThreadReduce *r)
{
  Arena *tmp = scratch(r->lo->ctx);
  ExprVec all = {0};
  ExprVec keep = {0};
  if (r->b->predicate) lower_conjuncts(tmp, r->b->predicate, &all);
  for (int i = 0; i < all.n; i++) {
    bool reduce = false;
    bool spatial = false;
    for (int k = 0; k < r->nloop; k++)
      if (expr_uses_var(all.v[i], r->loop[k]->u.loop.var)) *(k >= r->outer ? &reduce : &spatial) = true;
    if (reduce && spatial)
      refuse(r,
             arena_printf(tmp, "the condition %s is about spatial and reduction loops at once",
                          expr_str_of(tmp, all.v[i])),
             "split them apart");
    if (!reduce) vec_push(tmp, &keep, all.v[i]);
  }
  return lower_conjunction(r->lo->m, keep.n, keep.v);
}

/* ---- the memory ----------------------------------------------------------------------- */

/* Shared memory is the function's; a thread's own is allocated around its work. */
static void make_buffers(ThreadReduce *r)
{
  Module *m = r->lo->m;
  Arena *tmp = scratch(r->lo->ctx);
  Block *scope = stmt_enclosing_block(r->loop[0])->u.block;
  int ndim = r->around.n + r->across.n;
  int n = r->u.n;
  const Expr *one = expr_i32(m, 1);
  const Expr **shape = arena_array(tmp, const Expr *, ndim);
  for (int i = 0; i < ndim; i++)
    shape[i] = expr_i32(m, thread_count(r, i < r->around.n ? r->around.v[i] : r->across.v[i - r->around.n]));
  const Buffer **allocs = arena_array(m->arena, const Buffer *, scope->nallocs + n);
  for (int i = 0; i < scope->nallocs; i++) allocs[i] = scope->allocs[i];
  r->part = arena_array(tmp, const Buffer *, n);
  r->all = arena_array(tmp, const Buffer *, n);
  for (int v = 0; v < n; v++) {
    const Buffer *out = r->u.store[v]->u.store.buffer;
    r->part[v] =
        buffer_new(m, arena_printf(tmp, "%s_part", out->name), out->dtype, 1, &one, NULL, NULL, "local", 0, 0, NULL);
    r->all[v] = buffer_new(m, arena_printf(tmp, "%s_all", out->name), out->dtype, ndim, shape, NULL, NULL, "shared", 0,
                           0, NULL);
    allocs[scope->nallocs++] = r->all[v];
  }
  scope->allocs = allocs;
}

/* ---- the statements ---------------------------------------------------------------------- */

typedef struct Slot {
  const Buffer **buffer; /* of each value */
  int n;
  const Expr **index;
} Slot;

static const Expr **load_slot(ThreadReduce *r, Slot at)
{
  const Expr **out = arena_array(scratch(r->lo->ctx), const Expr *, r->u.n);
  for (int v = 0; v < r->u.n; v++) out[v] = expr_load(r->lo->m, at.buffer[v], at.n, at.index);
  return out;
}

static Stmt *store_slot(ThreadReduce *r, Slot at, const Expr *const *value)
{
  Stmt **store = arena_array(scratch(r->lo->ctx), Stmt *, r->u.n);
  for (int v = 0; v < r->u.n; v++) store[v] = stmt_store(r->lo->m, at.buffer[v], at.n, at.index, value[v]);
  return stmt_seq(r->lo->m, r->u.n, store);
}

static const Expr *combined(ThreadReduce *r, int v, const Expr *const *lhs, const Expr *const *rhs)
{
  Map values = {0};
  for (int i = 0; i < r->u.n; i++) {
    map_put(scratch(r->lo->ctx), &values, r->u.reducer->lhs[i], (void *)(uintptr_t)lhs[i]);
    map_put(scratch(r->lo->ctx), &values, r->u.reducer->rhs[i], (void *)(uintptr_t)rhs[i]);
  }
  return expr_substitute(r->lo->m, r->u.reducer->result[v], &values);
}

/* at = at and rhs; every value is computed before one is stored. */
static Stmt *accumulate(ThreadReduce *r, Slot at, const Expr *const *rhs)
{
  Module *m = r->lo->m;
  Arena *tmp = scratch(r->lo->ctx);
  const Expr **lhs = load_slot(r, at);
  const Expr **value = arena_array(tmp, const Expr *, r->u.n);
  const Var **var = arena_array(tmp, const Var *, r->u.n);
  for (int v = 0; v < r->u.n; v++) {
    const Expr *e = combined(r, v, lhs, rhs);
    var[v] = r->u.n == 1 ? NULL : var_new(m, arena_printf(tmp, "v_%s", at.buffer[v]->name), e->dtype, VAR_PLAIN);
    value[v] = var[v] ? var[v]->expr : e;
  }
  Stmt *s = store_slot(r, at, value);
  for (int v = r->u.n - 1; v >= 0 && var[v]; v--) s = stmt_let(m, var[v], combined(r, v, lhs, rhs), s);
  return s;
}

static Slot part_slot(ThreadReduce *r)
{
  const Expr **index = arena_array(scratch(r->lo->ctx), const Expr *, 1);
  index[0] = expr_i32(r->lo->m, 0);
  return (Slot){r->part, 1, index};
}

/* The slot of this thread, or of the one at t in the reduction's own axes. */
static Slot shared_slot(ThreadReduce *r, const Expr *const *t)
{
  int n = r->around.n + r->across.n;
  const Expr **index = arena_array(scratch(r->lo->ctx), const Expr *, n);
  for (int i = 0; i < n; i++)
    index[i] = expr_cast(r->lo->m, DT_I32, i < r->around.n ? r->around.v[i]->u.loop.var->expr : t[i - r->around.n]);
  return (Slot){r->all, n, index};
}

/* Thread loops around the body, over which the reduction's own take their numbers. */
static Stmt *for_threads(ThreadReduce *r, Stmt *body)
{
  for (int i = r->across.n - 1; i >= 0; i--) {
    const Stmt *l = r->across.v[i];
    body = stmt_for(r->lo->m, r->thread[i]->u.var, l->u.loop.min, l->u.loop.extent, FOR_THREAD, l->u.loop.thread_tag,
                    body);
  }
  return body;
}

static void name_threads(ThreadReduce *r)
{
  r->thread = arena_array(scratch(r->lo->ctx), const Expr *, r->across.n);
  for (int i = 0; i < r->across.n; i++) {
    const Var *v = r->across.v[i]->u.loop.var;
    r->thread[i] = var_new(r->lo->m, v->name, v->dtype, VAR_PLAIN)->expr;
  }
}

/* One step: along one axis of n threads those below `step` take what stands `step`
 * further on.  Axes before it are reduced to their first thread already. */
static Stmt *halve(ThreadReduce *r, int axis, int64_t n, int64_t step)
{
  Module *m = r->lo->m;
  const Expr **from = arena_array(scratch(r->lo->ctx), const Expr *, r->across.n), *const *t = r->thread;
  const Expr *cond = expr_lt(m, t[axis], lower_int(m, t[axis], step));
  for (int i = 0; i < r->across.n; i++) from[i] = t[i];
  from[axis] = expr_add(m, t[axis], lower_int(m, t[axis], step));
  if (2 * step > n) cond = expr_and(m, cond, expr_lt(m, from[axis], lower_int(m, t[axis], n)));
  for (int i = 0; i < axis; i++) cond = expr_and(m, cond, expr_binary(m, E_EQ, t[i], lower_int(m, t[i], 0)));
  Stmt *body = accumulate(r, shared_slot(r, t), load_slot(r, shared_slot(r, from)));
  return stmt_if(m, cond, body, NULL);
}

static Stmt *meet(ThreadReduce *r)
{
  Arena *tmp = scratch(r->lo->ctx);
  Vec(Stmt *) seq = {0};
  vec_push(tmp, &seq, store_slot(r, shared_slot(r, r->thread), load_slot(r, part_slot(r))));
  for (int axis = 0; axis < r->across.n; axis++) {
    int64_t n = thread_count(r, r->across.v[axis]);
    int64_t step = 1;
    while (2 * step < n) step *= 2;
    for (; n > 1 && step > 0; step /= 2) vec_push(tmp, &seq, halve(r, axis, n, step));
  }
  return stmt_seq(r->lo->m, seq.n, seq.v);
}

/* What the init stores into the buffer of value v. */
static const Expr *init_value(ThreadReduce *r, int v)
{
  const Stmt *init = r->b->init;
  for (int i = 0; i < (init->kind == S_SEQ ? init->u.seq.n : 1); i++) {
    const Stmt *s = init->kind == S_SEQ ? init->u.seq.v[i] : init;
    if (s->kind == S_STORE && s->u.store.buffer == r->u.store[v]->u.store.buffer) return s->u.store.value;
  }
  refuse(r, "its init is not a store of each value", "rfactor makes it spatial");
}

/* The block that stores the result; an init that is not the reducer's own counts once. */
static Stmt *write_block(ThreadReduce *r, const Expr *predicate)
{
  Module *m = r->lo->m;
  Arena *tmp = scratch(r->lo->ctx);
  Block *b = arena_new_of(m->arena, Block);
  b->name = arena_printf(m->arena, "%s_write", r->b->name);
  b->iter = arena_array(m->arena, BlockIter, r->b->niter);
  Map vars = {0};
  for (int i = 0; i < r->b->niter; i++) {
    BlockIter it = r->b->iter[i];
    if (it.kind == ITER_REDUCE) continue;
    it.var = var_new(m, it.var->name, it.var->dtype, VAR_PLAIN);
    map_put(tmp, &vars, r->b->iter[i].var, (void *)(uintptr_t)it.var->expr);
    b->iter[b->niter++] = it;
  }
  b->predicate = predicate;
  const Expr **zero = arena_array(tmp, const Expr *, r->across.n);
  const Expr **init = arena_array(tmp, const Expr *, r->u.n);
  for (int i = 0; i < r->across.n; i++) zero[i] = expr_i32(m, 0);
  const Expr **value = load_slot(r, shared_slot(r, zero));
  const Expr **sum = arena_array(tmp, const Expr *, r->u.n);
  bool plain = true;
  for (int v = 0; v < r->u.n; v++) {
    init[v] = init_value(r, v);
    plain &= init[v] == r->u.reducer->identity[v];
  }
  Stmt **store = arena_array(tmp, Stmt *, r->u.n);
  for (int v = 0; v < r->u.n; v++) {
    const Stmt *s = r->u.store[v];
    sum[v] = plain ? value[v] : combined(r, v, init, value);
    store[v] = stmt_store(m, s->u.store.buffer, s->u.store.n, s->u.store.index, sum[v]);
  }
  b->body = stmt_seq(m, r->u.n, store);
  stmt_substitute(m, b->body, &vars);
  block_infer_access(m, b);
  return stmt_block(m, b);
}

static void reduce_over_threads(ThreadReduce *r)
{
  Lower *lo = r->lo;
  const char *why = block_update(lo->m, scratch(lo->ctx), r->b, &r->u);
  if (why) refuse(r, arena_printf(scratch(lo->ctx), "its update %s", why), "rfactor makes it spatial");
  check_readers(r);
  const Expr *predicate = element_predicate(r);
  Stmt *nest = r->loop[r->outer];
  Stmt *write = NULL;
  make_buffers(r);
  write = write_block(r, predicate);
  r->b->init = NULL;
  r->b->body = accumulate(r, part_slot(r), r->u.source);
  block_infer_access(lo->m, r->b);
  name_threads(r);
  Stmt *hole = stmt_nop(lo->m);
  stmt_replace(lo->f, nest, hole);
  stmt_link(lo->f->body, NULL);
  Stmt *start = store_slot(r, part_slot(r), r->u.reducer->identity);
  Stmt *work = stmt_seq(lo->m, 3, (Stmt *[]){start, nest, meet(r)});
  for (int v = r->u.n - 1; v >= 0; v--) work = stmt_alloc(lo->m, r->part[v], work);
  work = for_threads(r, work);
  stmt_replace(lo->f, hole, stmt_seq(lo->m, 2, (Stmt *[]){work, write}));
  stmt_link(lo->f->body, NULL);
}

typedef struct Reductions {
  Arena *arena;
  Vec(Stmt *) v;
} Reductions;

static bool find_reduction(void *env, Stmt *s)
{
  Reductions *found = env;
  if (s->kind == S_BLOCK && s->u.block->init) vec_push(found->arena, &found->v, s);
  return true;
}

void lower_pass_thread_reductions(Lower *lo)
{
  if (!lower_for_gpu(lo)) return;
  Reductions found = {.arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, find_reduction, &found);
  for (int i = 0; i < found.v.n; i++) {
    ThreadReduce r = {.lo = lo, .stmt = found.v.v[i], .b = found.v.v[i]->u.block};
    if (read_loops(&r)) reduce_over_threads(&r);
  }
}
