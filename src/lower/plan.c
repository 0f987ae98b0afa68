/* plan.c: where buffers are allocated.
 *
 * lower_pass_plan_allocs
 *   A block's list of buffers becomes S_ALLOC statements, each around the smallest
 *   statement that holds all uses of its buffer.  A buffer that a block writes while
 *   a reduction (or an ordered loop) runs keeps its value from one iteration to
 *   the next, so it is allocated outside the outermost such loop; likewise outside a
 *   loop of which only some iterations run the block, or whose iterations read more
 *   than they wrote.  On a GPU, shared memory is
 *   allocated outside the threads of a block, global memory outside the launch; the
 *   annotation "filled_in" of shared memory names the statement (by its id) that fills it
 *   anew each time.  What
 *   schedules noted about the buffer at its writer (alignment of strides, double buffering)
 *   moves to the allocation.
 *
 * needs   parent links, blocks
 * keeps   blocks, regions
 * breaks  nothing; afterwards no block has a list of allocations */
#include "lower/internal.h"

typedef struct Plan {
  Lower *lo;
  Analyzer *an; /* knows all loops */
  Arena *tmp;
  Vec(const Buffer *) buffers; /* to be placed, in order of declaration */
  Map index;                   /* Buffer* or data Var* -> its number + 1 */
  Stmt **at;                   /* statement to wrap; NULL: no use so far */
  Stmt **scope;                /* the block that declared it */
  Annots *annots;
} Plan;

static int plan_find(const Plan *p, const void *key) { return (int)(intptr_t)map_get(&p->index, key) - 1; }

static int depth_of(const Stmt *s)
{
  int n = 0;
  for (; s->parent; s = s->parent) n++;
  return n;
}

static Stmt *common_ancestor(Stmt *a, Stmt *b)
{
  int da = depth_of(a);
  int db = depth_of(b);
  for (; da > db; da--) a = a->parent;
  for (; db > da; db--) b = b->parent;
  while (a != b) {
    a = a->parent;
    b = b->parent;
  }
  return a;
}

static bool writes_buffer(const Block *b, const Buffer *buffer)
{
  for (int i = 0; i < b->nwrites; i++)
    if (b->writes[i].buffer == buffer) return true;
  return false;
}

/* Does block b write at a place that depends on the variable? */
static bool places(const Block *b, const Var *v)
{
  for (int i = 0; i < b->nwrites; i++)
    for (int d = 0; d < b->writes[i].buffer->ndim; d++)
      if (expr_uses_var(b->writes[i].min[d], v)) return true;
  return false;
}

/* The steps of the loop that `beyond` takes in one of `slack`; 0: it is not a whole number of them. */
static int64_t steps_in_one(Plan *p, const Expr *beyond, const Expr *slack, const Var *loop)
{
  const Expr *a[2], *b[2];
  int64_t x, y;
  if (!expr_linear(p->an, beyond, 1, &loop, a) || !expr_linear(p->an, slack, 1, &loop, b) ||
      !lower_const_int(expr_simplify(p->an, a[0]), &x) || !lower_const_int(expr_simplify(p->an, b[0]), &y))
    return 0;
  return y && x % y == 0 ? x / y : 0;
}

/* Is the value outside of the block's domain (at its end, or before it) where the condition does not hold?  That may be
 * said of whole tiles: tile < n for tile*8 + i < n*8. */
static bool is_beyond(Plan *p, const Expr *slack, const Expr *beyond, bool below, const Var *loop)
{
  Module *m = p->lo->m;
  if (analyzer_prove_equal(p->an, slack, beyond)) return true;
  int64_t k = below ? steps_in_one(p, beyond, slack, loop) : 0;
  if (k < 2) return false;
  const Expr *more = expr_sub(m, beyond, expr_mul(m, slack, lower_int(m, slack, k)));
  return analyzer_prove(p->an, expr_binary(m, E_GE, more, lower_int(m, more, 0)));
}

/* Does the condition only keep what is written inside the buffer?  Then whatever it
 * leaves out is not there to be read either. */
static bool keeps_domain(Plan *p, const Block *b, const Expr *cond, const Var *loop)
{
  Module *m = p->lo->m;
  bool below = cond->kind == E_LT;
  bool from = cond->kind == E_GE;
  if (!below && !from) return false;
  const Expr *slack = expr_sub(m, cond->arg[0], cond->arg[1]);
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    const Expr *limit = below ? expr_add(m, it->min, it->extent) : it->min;
    if (places(b, it->var) && is_beyond(p, slack, expr_sub(m, it->value, limit), below, loop)) return true;
  }
  return false;
}

/* Does what block b writes in one iteration of the loop live on to the next?  So it is
 * with reductions and ordered loops, and where only some iterations run the block. */
static bool carries(Plan *p, const Block *b, const Var *loop)
{
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL && expr_uses_var(b->iter[i].value, loop)) return true;
  if (!b->predicate || !expr_uses_var(b->predicate, loop)) return false;
  ExprVec parts = {0};
  lower_conjuncts(p->tmp, b->predicate, &parts);
  for (int i = 0; i < parts.n; i++)
    if (expr_uses_var(parts.v[i], loop) && !keeps_domain(p, b, parts.v[i], loop)) return true;
  return false;
}

/* The outermost loop around block s that carries what it writes to the buffer; s itself
 * if there is none.  A thread's own memory does not outlive the thread. */
static Stmt *carrying_loop(Plan *p, Stmt *s, const Buffer *buffer)
{
  bool own = lower_for_gpu(p->lo) && !strcmp(buffer->scope, "local");
  Stmt *out = s;
  for (Stmt *q = s->parent; q && q->kind != S_BLOCK; q = q->parent) {
    if (q->kind != S_FOR) continue;
    if (own && q->u.loop.kind == FOR_THREAD && !str_starts(q->u.loop.thread_tag, "vthread")) break;
    if (carries(p, s->u.block, q->u.loop.var)) out = q;
  }
  return out;
}

/* A block that stores to the buffer, seen from a statement around it. */
typedef struct Writer {
  Plan *p;
  const Stmt *below; /* that statement */
  const Buffer *buffer;
  Region reads; /* what is read of the buffer in it */
  bool covers;  /* a writer was found that writes all of this */
} Writer;

/* The loops from v->below down to statement s, and e over them and what is outside. */
static const Expr *over_loops(Writer *v, const Stmt *s, const Expr *e)
{
  for (const Stmt *q = s; q != v->below; q = q->parent)
    for (int k = 0; q->kind == S_BLOCK && k < q->u.block->niter; k++)
      e = expr_substitute1(v->p->lo->m, e, q->u.block->iter[k].var, q->u.block->iter[k].value);
  const Block *b = v->below->kind == S_BLOCK ? v->below->u.block : NULL;
  for (int k = 0; b && k < b->niter; k++) e = expr_substitute1(v->p->lo->m, e, b->iter[k].var, b->iter[k].value);
  return e;
}

typedef Vec(const IterVar *) IterVarVec;

static void loops_down_to(Writer *v, const Stmt *s, IterVarVec *out)
{
  for (const Stmt *q = s;; q = q->parent) {
    if (q->kind == S_FOR) {
      IterVar *iv = arena_new_of(v->p->tmp, IterVar);
      *iv = (IterVar){q->u.loop.var, q->u.loop.min, q->u.loop.extent, ITER_SPATIAL, NULL};
      vec_push(v->p->tmp, out, iv);
    }
    if (q == v->below) return;
  }
}

/* While the loops run, does the block take every place of the box that its variables
 * span?  A fused loop cut in pieces does not. */
static bool fills_its_box(Writer *v, const Stmt *block, const IterVarVec *loops)
{
  Arena *tmp = v->p->tmp;
  ExprVec value = {0};
  for (int i = 0; i < block->u.block->niter; i++) {
    const Expr *e = over_loops(v, block, block->u.block->iter[i].var->expr);
    bool moves = false;
    for (int k = 0; k < loops->n; k++) moves |= expr_uses_var(e, loops->v[k]->var);
    if (moves) vec_push(tmp, &value, e);
  }
  const char *why;
  return value.n == 0 || itermap_detect(v->p->an, value.n, value.v, loops->n, loops->v, NULL, ITERMAP_SURJECTIVE,
                                        arena_array(tmp, IterSum, value.n), &why);
}

/* Conditions are left aside: those that matter were looked at by carries. */
static bool box_holds_reads(Writer *v, const Stmt *store, const IterVarVec *loops)
{
  Module *m = v->p->lo->m;
  Analyzer *an = v->p->an;
  const Var **vars = arena_array(v->p->tmp, const Var *, loops->n);
  for (int i = 0; i < loops->n; i++) vars[i] = loops->v[i]->var;
  for (int d = 0; d < store->u.store.n; d++) {
    const Expr *lo, *hi;
    const Expr *shape = v->buffer->shape[d];
    if (!analyzer_relax(an, over_loops(v, store, store->u.store.index[d]), loops->n, vars, &lo, &hi)) return false;
    const Expr *from = expr_max(m, v->reads.min[d], lower_int(m, shape, 0));
    const Expr *end = expr_min(m, expr_add(m, v->reads.min[d], v->reads.extent[d]), shape);
    if (!analyzer_prove(an, expr_binary(m, E_LE, lo, from))) return false;
    if (!analyzer_prove(an, expr_binary(m, E_LE, end, expr_add(m, hi, lower_int(m, hi, 1))))) return false;
  }
  return true;
}

static bool check_writer(void *env, Stmt *s)
{
  Writer *v = env;
  if (v->covers || s->kind != S_STORE || s->u.store.buffer != v->buffer) return !v->covers;
  const Stmt *block = s;
  while (block != v->below && block->kind != S_BLOCK) block = block->parent;
  IterVarVec loops = {0};
  loops_down_to(v, s, &loops);
  v->covers = (block->kind != S_BLOCK || fills_its_box(v, block, &loops)) && box_holds_reads(v, s, &loops);
  return !v->covers;
}

/* Is all that statement s reads of the buffer written in it?  Boxes are compared. */
static bool covered(Plan *p, Stmt *s, const Buffer *b)
{
  Stmt whole = {.kind = S_SEQ};
  Stmt *only[] = {s}; /* of a loop, all iterations */
  whole.u.seq.v = only;
  whole.u.seq.n = 1;
  Writer v = {.p = p, .below = s, .buffer = b};
  if (!stmt_region(p->an, &whole, b, false, &v.reads)) return true;
  stmt_visit(s, check_writer, &v);
  return v.covers;
}

/* at, or the innermost loop around it in which every read finds what was written. */
static Stmt *covering(Plan *p, int k, Stmt *at)
{
  for (;;) {
    Stmt *outer = at->parent;
    while (outer && outer != p->scope[k] && outer->kind != S_FOR) outer = outer->parent;
    if (!outer || outer == p->scope[k] || covered(p, at, p->buffers.v[k])) return at;
    at = outer;
  }
}

/* Memory that several threads see is allocated outside of their loops. */
static Stmt *above_threads(const Buffer *b, Stmt *at)
{
  bool shared = str_starts(b->scope, "shared") || !strcmp(b->scope, "warp");
  bool global = !strcmp(b->scope, "global");
  Stmt *out = at;
  for (Stmt *p = at; p; p = p->parent) {
    if (p->kind != S_FOR || p->u.loop.kind != FOR_THREAD) continue;
    if (global || (shared && !str_starts(p->u.loop.thread_tag, "blockIdx"))) out = p;
  }
  return out;
}

static void note_use(Plan *p, Stmt *s, int k)
{
  const Buffer *buffer = p->buffers.v[k];
  Stmt *at = s;
  for (Stmt *q = s; q && q != p->scope[k]; q = q->parent)
    if (q->kind == S_BLOCK && writes_buffer(q->u.block, buffer)) {
      Stmt *loop = carrying_loop(p, q, buffer);
      if (loop != q) at = loop;
    }
  p->at[k] = p->at[k] ? common_ancestor(p->at[k], at) : at;
}

typedef struct UseSite {
  Plan *p;
  Stmt *holder;
} UseSite;

static void note_in_expr(void *env, const Expr *e)
{
  UseSite *u = env;
  int k = e->kind == E_LOAD ? plan_find(u->p, e->u.buffer) : e->kind == E_VAR ? plan_find(u->p, e->u.var) : -1;
  if (k >= 0) note_use(u->p, u->holder, k);
}

static void note_expr(void *env, Stmt *holder, const Expr *e)
{
  UseSite u = {env, holder};
  expr_visit(u.p->lo->ctx, e, note_in_expr, &u);
}

static bool note_stmt(void *env, Stmt *s)
{
  Plan *p = env;
  int k = s->kind == S_STORE ? plan_find(p, s->u.store.buffer) : -1;
  if (k >= 0) note_use(p, s, k);
  if (s->kind == S_BLOCK)
    for (int i = 0; i < s->u.block->nmatches; i++)
      if ((k = plan_find(p, s->u.block->matches[i].source.buffer)) >= 0) note_use(p, s, k);
  return true;
}

static bool bind_loops(void *env, Stmt *s)
{
  Plan *p = env;
  if (s->kind == S_FOR) analyzer_bind(p->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  return true;
}

static bool collect_allocs(void *env, Stmt *s)
{
  Plan *p = env;
  if (s->kind != S_BLOCK) return true;
  Block *b = s->u.block;
  for (int i = 0; i < b->nallocs; i++) {
    if (plan_find(p, b->allocs[i]) >= 0) continue;
    vec_push(p->tmp, &p->buffers, b->allocs[i]);
    map_put(p->tmp, &p->index, b->allocs[i], (void *)(intptr_t)p->buffers.n);
    map_put(p->tmp, &p->index, b->allocs[i]->data, (void *)(intptr_t)p->buffers.n);
  }
  return true;
}

static bool collect_scopes(void *env, Stmt *s)
{
  Plan *p = env;
  if (s->kind != S_BLOCK) return true;
  Block *b = s->u.block;
  for (int i = 0; i < b->nallocs; i++) p->scope[plan_find(p, b->allocs[i])] = s;
  b->nallocs = 0;
  return true;
}

/* Schedules write what concerns the buffers a block writes as annotations of the
 * block: "buffer_dim_align" holds groups of (write, axis, factor, offset),
 * "double_buffer_scope" the number of the write.  The allocation gets groups of
 * (axis, factor, offset), and a 1. */
typedef struct Ints {
  Arena *arena;
  Vec(int64_t) v;
} Ints;

static void list_ints(Ints *out, const Expr *e)
{
  if (e->kind == E_INT) vec_push(out->arena, &out->v, e->u.i);
  for (int i = 0; i < e->nargs; i++) list_ints(out, e->arg[i]);
}

static const Expr *align_of_write(Plan *p, const Expr *all, int write)
{
  Ints in = {.arena = p->tmp};
  ExprVec out = {0};
  list_ints(&in, all);
  for (int i = 0; i + 3 < in.v.n; i += 4)
    if (in.v.v[i] == write)
      for (int j = 1; j < 4; j++) vec_push(p->tmp, &out, expr_i32(p->lo->m, in.v.v[i + j]));
  return out.n ? expr_call(p->lo->m, DT_PTR, IN_MAKE_SHAPE, out.n, out.v) : NULL;
}

static bool collect_annots(void *env, Stmt *s)
{
  Plan *p = env;
  if (s->kind != S_BLOCK) return true;
  Block *b = s->u.block;
  const Expr *align = annots_get(&b->annots, "buffer_dim_align");
  const Expr *twice = annots_get(&b->annots, "double_buffer_scope");
  for (int i = 0; i < b->nwrites; i++) {
    int k = plan_find(p, b->writes[i].buffer);
    if (k < 0) continue;
    const Expr *mine = align ? align_of_write(p, align, i) : NULL;
    if (mine) annots_set(p->lo->m->arena, &p->annots[k], "buffer_dim_align", mine);
    if (twice && expr_is_int(twice, i))
      annots_set(p->lo->m->arena, &p->annots[k], "double_buffer_scope", expr_i32(p->lo->m, 1));
  }
  return true;
}

void lower_pass_plan_allocs(Lower *lo)
{
  Plan p = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  stmt_visit(lo->f->body, bind_loops, &p);
  stmt_visit(lo->f->body, collect_allocs, &p);
  p.at = arena_array(p.tmp, Stmt *, p.buffers.n);
  p.scope = arena_array(p.tmp, Stmt *, p.buffers.n);
  p.annots = arena_array(p.tmp, Annots, p.buffers.n);
  stmt_visit(lo->f->body, collect_scopes, &p);
  stmt_visit(lo->f->body, collect_annots, &p);
  stmt_visit(lo->f->body, note_stmt, &p);
  stmt_visit_exprs(lo->f->body, note_expr, &p);
  for (int k = 0; k < p.buffers.n; k++) {
    if (!p.at[k]) continue;
    Stmt *needed = covering(&p, k, p.at[k]);
    p.at[k] = above_threads(p.buffers.v[k], needed);
    if (p.at[k] != needed && str_starts(p.buffers.v[k]->scope, "shared"))
      annots_set(lo->m->arena, &p.annots[k], "filled_in", expr_i32(lo->m, (int64_t)needed->id));
  }
  /* Last declared first: allocations around one statement then nest in order. */
  for (int k = p.buffers.n - 1; k >= 0; k--) {
    if (!p.at[k]) continue;
    Stmt *wrap = stmt_alloc(lo->m, p.buffers.v[k], p.at[k]);
    wrap->u.alloc.annots = p.annots[k];
    Stmt *inner = p.at[k];
    stmt_replace(lo->f, inner, wrap);
    stmt_link(lo->f->body, NULL);
    for (int j = 0; j < k; j++)
      if (p.at[j] == inner) p.at[j] = wrap;
  }
}
