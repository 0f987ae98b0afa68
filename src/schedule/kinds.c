/* kinds.c: do a block's accesses bear out what its iteration kinds say?
 *
 * Kinds are a claim of whoever wrote the block, and primitives build on it:
 *   spatial    instances that differ in it write different elements, and none of them
 *              reads what another one writes
 *   reduction  instances that differ in it alone may update their element in any order
 * Here the claim is held against the accesses.  What cannot be shown counts as false,
 * unless the block has the annotation "disjoint": then its author answers for it.
 *
 * In whatever way primitives rewrite a block, what was shown of it stays true, so a
 * block that has passed once is noted by its id and not looked at again. */
#include "schedule/engine.h"

#include <math.h>

bool facts_disjoint_mark(const Block *b)
{
  const Expr *mark = annots_get(&b->annots, "disjoint");
  return mark && !expr_is_int(mark, 0);
}

/* ---- variables of loops ---------------------------------------------------------------------- */

typedef struct Uses {
  int n;
  Stmt *const *loop;
  const Stmt *found;
} Uses;

static void note_use(void *env, Stmt *holder, const Expr *e)
{
  Uses *u = env;
  (void)holder;
  for (int i = 0; i < u->n && !u->found; i++)
    if (expr_uses_var(e, LOOPVAR(u->loop[i]))) u->found = u->loop[i];
}

const Stmt *facts_used_loop(Sched *s, Stmt *block)
{
  Stmt **loop;
  const Block *b = BLOCK(block);
  Uses u = {.n = stmt_loops(scratch(s->ctx), block, &loop)};
  u.loop = loop;
  if (b->init) stmt_visit_exprs(b->init, note_use, &u);
  stmt_visit_exprs(b->body, note_use, &u);
  return u.found;
}

void facts_check_isolated(Sched *s, const char *prim)
{
  Stmt **block;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &block);
  for (int i = 0; i < n; i++) {
    const Stmt *used = block[i]->parent ? facts_used_loop(s, block[i]) : NULL;
    if (used)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: %s uses %s around it itself; %s goes by blocks' own variables, so bind one to the loop", prim,
            tree_what(s, block[i]), tree_what(s, used), prim);
  }
}

/* ---- distinct instances, distinct elements ------------------------------------------------------ */

/* A number for the box along one dimension: boxes with different numbers have no element
 * in common.  NULL: the dimension does not tell them apart. */
static const Expr *box_key(Sched *s, Analyzer *an, const Expr *lo, const Expr *hi)
{
  if (lo == hi) return lo;
  if (expr_has_kind(lo, E_LOAD) || expr_has_kind(hi, E_LOAD)) return NULL;
  const Expr *width = expr_simplify(an, expr_add(s->m, expr_sub(s->m, hi, lo), sched_const_like(s, lo, 1)));
  if (expr_is_int(width, 1)) return lo;
  if (width->kind == E_INT && width->u.i > 0) {
    Modular m = analyzer_modular(an, lo);
    if (m.coeff % width->u.i) return NULL;
    lo = expr_sub(s->m, lo, sched_const_like(s, lo, m.base));
  }
  const Expr *key = expr_simplify(an, expr_floordiv(s->m, lo, width));
  return analyzer_prove_equal(an, expr_mul(s->m, key, width), lo) ? key : NULL;
}

bool region_distinct(Sched *s, Analyzer *an, const Box *box, int n, const IterVar *const *iter, const Expr *predicate)
{
  Arena *tmp = scratch(s->ctx);
  const Expr **key = arena_array(tmp, const Expr *, box->buffer->ndim);
  int nkey = 0;
  if (!n) return true;
  for (int d = 0; d < box->buffer->ndim; d++)
    if ((key[nkey] = box_key(s, an, box->lo[d], box->hi[d]))) nkey++;
  const char *why;
  return nkey && (itermap_detect(an, nkey, key, n, iter, NULL, ITERMAP_INJECTIVE, NULL, &why) ||
                  (predicate && itermap_detect(an, nkey, key, n, iter, predicate, ITERMAP_INJECTIVE, NULL, &why)));
}

/* Each of the variables stands alone as an index: the usual case, seen at once. */
static bool plainly_distinct(const Region *r, int n, const IterVar *const *iter)
{
  for (int i = 0; i < n; i++) {
    bool found = false;
    for (int d = 0; d < r->buffer->ndim; d++)
      found |= r->min[d] == var_expr(iter[i]->var) && expr_is_int(r->extent[d], 1);
    if (!found) return false;
  }
  return true;
}

/* The variables whose value a write must depend on: the spatial ones, and with `all`
 * those of reductions that are in the index, which makes them none. */
static int claimed_iters(Sched *s, const Block *b, bool all, const IterVar *const **out)
{
  const IterVar *const *iter = sched_iters_as_loops(s, b);
  const IterVar **v = arena_array(scratch(s->ctx), const IterVar *, b->niter);
  int n = 0;
  for (int i = 0; i < b->niter; i++) {
    bool wanted = b->iter[i].kind == ITER_SPATIAL || (all && b->iter[i].kind == ITER_REDUCE);
    if (wanted && !expr_is_int(b->iter[i].extent, 1)) v[n++] = iter[i];
  }
  *out = v;
  return n;
}

static Box box_of(Sched *s, const Region *r)
{
  Arena *tmp = scratch(s->ctx);
  int n = r->buffer->ndim;
  Box box = {r->buffer, arena_array(tmp, const Expr *, n), arena_array(tmp, const Expr *, n)};
  for (int d = 0; d < n; d++) {
    box.lo[d] = r->min[d];
    box.hi[d] = expr_is_int(r->extent[d], 1) ? r->min[d] : sched_iter_end(s, r->min[d], r->extent[d]);
  }
  return box;
}

static bool writes_distinct(Sched *s, Stmt *block, bool all, const Buffer **buffer)
{
  const Block *b = BLOCK(block);
  const IterVar *const *iter;
  int n = claimed_iters(s, b, all, &iter);
  for (int w = 0; w < b->nwrites; w++) {
    *buffer = b->writes[w].buffer;
    if (plainly_distinct(&b->writes[w], n, iter)) continue;
    Analyzer *an = facts_analyzer(s, block);
    Box box = box_of(s, &b->writes[w]);
    if (!region_distinct(s, an, &box, n, iter, NULL)) return false;
  }
  return true;
}

static const char *shares_elements(Sched *s, Stmt *block)
{
  const Buffer *buffer;
  if (writes_distinct(s, block, false, &buffer)) return NULL;
  return arena_printf(s->m->arena,
                      "its spatial variables do not tell its writes to buffer '%s' apart: two of its instances may "
                      "write one element; if they never do, mark it by the annotation \"disjoint\"",
                      buffer->name);
}

/* ---- what an instance reads of what it writes ------------------------------------------------------ */

typedef struct SelfAccess {
  const Buffer *buffer;
  Vec(Stmt *) stores;
  Arena *arena;
  bool ordered;
} SelfAccess;

static bool note_store(void *env, Stmt *stmt)
{
  SelfAccess *v = env;
  if (stmt->kind == S_STORE && stmt->u.store.buffer == v->buffer) vec_push(v->arena, &v->stores, stmt);
  return true;
}

static void check_load(void *env, const Expr *e)
{
  SelfAccess *v = env;
  if (e->kind != E_LOAD || e->u.buffer != v->buffer) return;
  for (int i = 0; i < v->stores.n; i++) {
    const Stmt *store = v->stores.v[i];
    bool same = true;
    for (int d = 0; d < e->nargs; d++) same &= store->u.store.index[d] == e->arg[d];
    if (same) return;
  }
  v->ordered = true;
}

static void check_holder(void *env, Stmt *holder, const Expr *e)
{
  SelfAccess *v = env;
  if (holder->kind != S_BLOCK) expr_visit(arena_ctx(v->arena), e, check_load, v);
}

const char *facts_reads_others(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  for (int i = 0; i < b->nwrites; i++) {
    SelfAccess v = {.buffer = b->writes[i].buffer, .arena = scratch(s->ctx)};
    v.ordered = b->predicate && expr_uses_buffer(b->predicate, v.buffer);
    for (int k = 0; k < b->niter; k++) v.ordered |= expr_uses_buffer(b->iter[k].value, v.buffer);
    stmt_visit(b->body, note_store, &v);
    if (v.stores.n) stmt_visit_exprs(b->body, check_holder, &v);
    for (int r = 0; r < b->nreads && !v.stores.n; r++)
      for (int d = 0; b->reads[r].buffer == v.buffer && d < v.buffer->ndim; d++)
        v.ordered |= b->reads[r].min[d] != b->writes[i].min[d] || b->reads[r].extent[d] != b->writes[i].extent[d];
    if (v.ordered) return "it reads elements that other instances of it write, so they must run in order";
  }
  return NULL;
}

/* ---- updates in any order ----------------------------------------------------------------------------- */

/* One instance of an update, on numbers made from where they are read. */
typedef struct Sample {
  Sched *s;
  const Block *b;
  int nstore;
  Stmt **store;
  const Expr **value; /* of each store, lets replaced */
  Value *state;       /* of each store's element */
  uint64_t salt;
  bool differs;
} Sample;

static Value number_for(DType t, uint64_t h)
{
  if (dtype_is_bool(t)) return value_int(t, (int64_t)(h & 1));
  if (dtype_is_float(t)) return value_float(t, (double)((int64_t)(h % 251) - 125) / 8);
  return value_int(t, (int64_t)(h % 201) - 100);
}

static Value sample_load(EvalEnv *env, const Buffer *buffer, int n, const int64_t *index)
{
  Sample *v = env->user;
  for (int i = 0; i < v->nstore; i++)
    if (v->store[i]->u.store.buffer == buffer) return v->state[i];
  return number_for(buffer->dtype, hash_bytes(index, sizeof *index * (size_t)n, v->salt + buffer->id));
}

static void sample_step(Sample *v, EvalEnv *env, uint64_t point)
{
  Arena *tmp = scratch(v->s->ctx);
  Value *next = arena_array(tmp, Value, v->nstore);
  for (int i = 0; i < v->b->niter; i++) {
    const BlockIter *it = &v->b->iter[i];
    uint64_t h = it->kind == ITER_REDUCE ? sched_rng_next(&(uint64_t){point + (uint64_t)i}) : (uint64_t)i;
    int64_t extent = it->extent->kind == E_INT ? it->extent->u.i : 8;
    int64_t min = it->min->kind == E_INT ? it->min->u.i : 0;
    expr_eval_bind(env, it->var, value_int(it->var->dtype, min + (int64_t)(h % (uint64_t)(extent > 0 ? extent : 1))));
  }
  for (int i = 0; i < v->nstore; i++) next[i] = expr_eval(env, v->value[i], 0);
  memcpy(v->state, next, sizeof *next * (size_t)v->nstore);
}

static bool nearly_equal(Value a, Value b)
{
  if (value_eq(a, b)) return true;
  return dtype_is_float(a.dtype) && fabs(a.f - b.f) <= 1e-3 * (1 + fabs(a.f));
}

static void run_samples(Ctx *ctx, void *env)
{
  enum { SAMPLES = 12 };
  Sample *v = env;
  Arena *tmp = scratch(ctx);
  Value *there = arena_array(tmp, Value, v->nstore);
  for (uint64_t round = 1; round <= SAMPLES && !v->differs; round++) {
    EvalEnv e = {.m = v->s->m, .arena = tmp, .load = sample_load, .user = v};
    const Var **var;
    v->salt = round * 7919;
    for (int i = 0; i < v->nstore; i++) {
      int n = expr_free_vars(tmp, v->value[i], &var);
      for (int k = 0; k < n; k++) expr_eval_bind(&e, var[k], number_for(var[k]->dtype, round + (uint64_t)k));
    }
    for (int order = 0; order < 2; order++) {
      for (int i = 0; i < v->nstore; i++)
        v->state[i] = number_for(v->store[i]->u.store.buffer->dtype, round * 31 + (uint64_t)i);
      sample_step(v, &e, round * 100 + (order ? 50 : 0));
      sample_step(v, &e, round * 100 + (order ? 0 : 50));
      if (!order) memcpy(there, v->state, sizeof *there * (size_t)v->nstore);
    }
    for (int i = 0; i < v->nstore; i++) v->differs |= !nearly_equal(there[i], v->state[i]);
  }
}

/* The stores of a body of lets and stores, with what they store; false: it is more than that. */
static bool read_updates(Sample *v)
{
  Arena *tmp = scratch(v->s->ctx);
  Map lets = {0};
  Stmt *body = v->b->body;
  for (; body->kind == S_LET; body = body->u.let.body)
    map_put(tmp, &lets, body->u.let.var, (void *)(uintptr_t)expr_substitute(v->s->m, body->u.let.value, &lets));
  v->nstore = body->kind == S_SEQ ? body->u.seq.n : 1;
  v->store = arena_array(tmp, Stmt *, v->nstore);
  v->value = arena_array(tmp, const Expr *, v->nstore);
  v->state = arena_array(tmp, Value, v->nstore);
  for (int i = 0; i < v->nstore; i++) {
    Stmt *st = body->kind == S_SEQ ? body->u.seq.v[i] : body;
    if (st->kind != S_STORE || st->u.store.value->dtype.lanes != 1) return false;
    v->store[i] = st;
    v->value[i] = expr_substitute(v->s->m, st->u.store.value, &lets);
  }
  return true;
}

static bool is_effect(const Stmt *s) { return s->kind == S_EVAL && !expr_is_pure(s->u.eval.value); }

static bool note_effect(void *env, Stmt *s)
{
  *(bool *)env |= is_effect(s);
  return true;
}

const char *facts_not_commutative(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  const Buffer *buffer;
  bool reduces = false;
  for (int i = 0; i < b->niter; i++) reduces |= b->iter[i].kind == ITER_REDUCE && !expr_is_int(b->iter[i].extent, 1);
  if (!reduces || facts_disjoint_mark(b) || writes_distinct(s, block, true, &buffer)) return NULL;
  BlockUpdate u;
  if (!block_update(s->m, scratch(s->ctx), b, &u)) return NULL;
  Stmt **inner;
  int n = tree_blocks(scratch(s->ctx), b->body, &inner);
  if (b->body->kind == S_BLOCK) return facts_not_commutative(s, b->body);
  for (int i = 0; i < n; i++) {
    const char *why = facts_not_commutative(s, inner[i]);
    if (why) return why;
  }
  if (n) return NULL;
  bool effect = false; /* of a tensor intrinsic, whose description was compared with the block it stands for */
  stmt_visit(b->body, note_effect, &effect);
  if (effect) return NULL;
  Sample v = {.s = s, .b = b};
  if (!read_updates(&v))
    return "its update is more than stores, so it is not known whether its steps may change places";
  if (protect(s->ctx, run_samples, &v) == ERR_MEMORY) error_reraise(s->ctx);
  return v.differs ? "its update gives another result when its steps change places" : NULL;
}

/* ---- the verdict ------------------------------------------------------------------------------------------ */

static bool is_proven(const Sched *s, uint32_t id)
{
  for (int i = 0; i < s->proven.n; i++)
    if (s->proven.v[i] == id) return true;
  return false;
}

const char *facts_false_kinds(Sched *s, Stmt *block)
{
  const Stmt *used = s->loose ? facts_used_loop(s, block) : NULL;
  if (used) return arena_printf(s->m->arena, "it uses %s around it itself", tree_what(s, used));
  if (facts_disjoint_mark(BLOCK(block)) || is_proven(s, block->id)) return NULL;
  const char *why = facts_reads_others(s, block);
  if (!why) why = shares_elements(s, block);
  if (!why) vec_push(s->m->arena, &s->proven, block->id);
  return why;
}

bool facts_unfinished(Sched *s, Stmt *writer, const Stmt *loop)
{
  int roles = facts_roles(BLOCK(writer), LOOPVAR(loop));
  if (roles >> ITER_REDUCE & 1 || facts_false_kinds(s, writer)) return true;
  if (roles || expr_is_int(loop->u.loop.extent, 1)) return false;
  if (!facts_not_complete(s, writer) || BLOCK(writer)->init) return false;
  /* each step updates again what the one before has left, unless another block starts it anew */
  const Block *w = BLOCK(writer);
  for (int i = 0; i < w->nwrites; i++) {
    Stmt **other;
    bool anew = !facts_reads(w, w->writes[i].buffer);
    int n = facts_writers(scratch(s->ctx), tree_scope(s, writer), w->writes[i].buffer, &other);
    for (int k = 0; k < n; k++)
      anew |= other[k] != writer && tree_under(other[k], loop) && tree_before(s, other[k], writer);
    if (!anew) return true;
  }
  return false;
}
