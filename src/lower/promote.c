/* promote.c: accumulators in registers.
 *
 * A backend keeps a variable in a register when it is an allocation of exactly one
 * scalar or vector, always accessed whole.  Two passes make such variables.
 *
 * lower_pass_scalar_replace
 *   An allocated buffer whose accesses all have constant indices is cut into one
 *   buffer for each scalar or vector that is accessed (ranges that overlap stay
 *   together).  A register tile after unrolling is of this kind.
 *
 * lower_pass_promote_accumulators
 *   for k: C[i] = C[i] + …   →   acc[0] = C[i]; for k: acc[0] = acc[0] + …; C[i] = acc[0]
 *   for serial loops in which every access of a buffer is to an address that stays
 *   the same, and addresses are equal or do not overlap.  A store of a constant
 *   right before the loop becomes the variable's first value.
 *
 * needs   flat buffers, native vectors; different buffers do not overlap
 * keeps   everything else
 * breaks  nothing */
#include "lower/internal.h"

enum { MAX_SLOTS = 160, MAX_REPLACED = 4096 };

/* base + constant of an index, and the lanes it reaches over; false if the access
 * is not a scalar or a contiguous vector. */
typedef struct Slot {
  const Expr *index;
  const Expr *base; /* NULL: 0 */
  int64_t offset;
  int lanes;
} Slot;

static bool slot_of(const Expr *index, Slot *out)
{
  const Expr *at = index;
  *out = (Slot){.index = index, .lanes = 1};
  if (index->dtype.lanes > 1) {
    if (index->kind != E_RAMP || !expr_is_int(index->arg[1], 1)) return false;
    out->lanes = index->dtype.lanes;
    at = index->arg[0];
  }
  if (at->kind == E_INT) {
    out->offset = at->u.i;
  } else if (at->kind == E_ADD && at->arg[1]->kind == E_INT) {
    out->base = at->arg[0];
    out->offset = at->arg[1]->u.i;
  } else {
    out->base = at;
  }
  return true;
}

/* A variable: a buffer of one scalar or vector. */
static const Buffer *variable(Module *m, const Buffer *like, const char *suffix, int64_t n)
{
  const Expr *size = expr_i32(m, n);
  return buffer_new(m, arena_printf(m->arena, "%s%s", like->name, suffix), like->dtype, 1, &size, NULL, NULL, "local",
                    0, 0, NULL);
}

static const Expr *whole(Module *m, int lanes)
{
  return lanes == 1 ? expr_i32(m, 0) : expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), lanes);
}

/* Accesses of one buffer moved to others: index Expr* -> Moved*. */
typedef struct Moved {
  const Buffer *to;
  const Expr *index;
} Moved;

typedef struct Move {
  Lower *lo;
  Map *of_buffer; /* Buffer* -> Map* of Moved */
  Rewriter rw;
} Move;

static const Moved *moved(const Move *mv, const Buffer *b, const Expr *index)
{
  const Map *by_index = map_get(mv->of_buffer, b);
  return by_index ? map_get(by_index, index) : NULL;
}

static const Expr *move_node(Rewriter *rw, const Expr *e)
{
  const Moved *to = e->kind == E_LOAD ? moved(rw->env, e->u.buffer, e->arg[0]) : NULL;
  return to ? expr_load(rw->m, to->to, 1, &to->index) : e;
}

static const Expr *move_expr(void *env, const Expr *e) { return expr_rewrite(&((Move *)env)->rw, e); }

static bool move_stmt(void *env, Stmt *s)
{
  Move *mv = env;
  lower_map_exprs(s, move_expr, mv);
  const Moved *to = s->kind == S_STORE ? moved(mv, s->u.store.buffer, s->u.store.index[0]) : NULL;
  if (!to) return true;
  s->u.store.buffer = to->to;
  s->u.store.index[0] = to->index;
  return true;
}

static void move_accesses(Lower *lo, Stmt *s, Map *of_buffer)
{
  Move mv = {.lo = lo, .of_buffer = of_buffer};
  mv.rw = (Rewriter){.m = lo->m, .fn = move_node, .env = &mv, .arena = scratch(lo->ctx)};
  stmt_visit(s, move_stmt, &mv);
}

/* ---- all accesses of the buffers below a statement --------------------------------------------- */

typedef struct Access {
  const Expr *index;
  bool stored, sure; /* written somewhere; touched in every iteration */
} Access;

typedef struct Accesses {
  const Buffer *buffer;
  Vec(Access) v;
  Map of_index;        /* Expr* -> number + 1 */
  bool stored, opaque; /* opaque: also reached in a way that is not understood */
} Accesses;

typedef struct Gather {
  Lower *lo;
  Arena *tmp;
  Map of_buffer; /* Buffer* -> Accesses* */
  Map of_data;   /* data Var* -> Accesses* */
  Vec(Accesses *) all;
  Vec(const Var *) bound; /* variables bound below */
  Map local;              /* buffers allocated below */
  int maybe;              /* > 0: under a condition, or in a loop that may not run */
  bool blocked;           /* parallel work, barriers, early exits */
  Map pointers;           /* pointer variables met as values */
  Map visited;            /* Expr* -> 1 under a condition, 2 surely */
} Gather;

static Accesses *accesses_of(Gather *g, const Buffer *b)
{
  Accesses *a = map_get(&g->of_buffer, b);
  if (a) return a;
  a = arena_new_of(g->tmp, Accesses);
  a->buffer = b;
  map_put(g->tmp, &g->of_buffer, b, a);
  Accesses *other = map_get(&g->of_data, b->data);
  if (other) other->opaque = a->opaque = true; /* two buffers over one pointer */
  map_put(g->tmp, &g->of_data, b->data, a);
  vec_push(g->tmp, &g->all, a);
  return a;
}

static void gather_access(Gather *g, const Buffer *b, const Expr *index, bool store)
{
  Accesses *a = accesses_of(g, b);
  int i = (int)(intptr_t)map_get(&a->of_index, index) - 1;
  if (i < 0) {
    i = a->v.n;
    vec_push(g->tmp, &a->v, (Access){.index = index});
    map_put(g->tmp, &a->of_index, index, (void *)(intptr_t)(i + 1));
  }
  a->v.v[i].stored |= store;
  a->v.v[i].sure |= g->maybe == 0;
  a->stored |= store;
}

static void gather_expr(Gather *g, const Expr *e)
{
  if (e->kind == E_VAR) {
    Accesses *a = e->dtype.code == DT_HANDLE ? map_get(&g->of_data, e->u.var) : NULL;
    if (a) a->opaque = true;
    if (e->dtype.code == DT_HANDLE) map_put(g->tmp, &g->pointers, e->u.var, NULL);
    return;
  }
  if (e->nargs == 0) return;
  intptr_t before = (intptr_t)map_get(&g->visited, e);
  intptr_t now = g->maybe ? 1 : 2;
  if (before >= now) return;
  map_put(g->tmp, &g->visited, e, (void *)now);
  if (e->kind == E_LOAD) {
    gather_access(g, e->u.buffer, e->arg[0], false);
    gather_expr(g, e->arg[0]);
    return;
  }
  if (e->kind == E_LET) vec_push(g->tmp, &g->bound, e->u.var);
  bool choice = e->kind == E_AND || e->kind == E_OR;
  if (e->kind == E_CALL) {
    if (e->u.intrin == IN_ADDRESS_OF) {
      accesses_of(g, e->arg[0]->u.buffer)->opaque = true;
      return;
    }
    choice = e->u.intrin == IN_IF_THEN_ELSE;
    g->blocked |= e->u.intrin == IN_RET || e->u.intrin == IN_SYNC;
  }
  for (int i = 0; i < e->nargs; i++) {
    if (!expr_has_kind(e->arg[i], E_LOAD) && !expr_has_kind(e->arg[i], E_CALL) && !expr_has_kind(e->arg[i], E_VAR))
      continue;
    g->maybe += choice && i > 0;
    gather_expr(g, e->arg[i]);
    g->maybe -= choice && i > 0;
  }
}

static void gather_stmt(Gather *g, Stmt *s)
{
  int64_t n;
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) gather_stmt(g, s->u.seq.v[i]);
    return;
  case S_FOR: {
    gather_expr(g, s->u.loop.extent);
    vec_push(g->tmp, &g->bound, s->u.loop.var);
    g->blocked |= s->u.loop.kind != FOR_SERIAL;
    bool maybe = !(lower_const_int(s->u.loop.extent, &n) && n > 0);
    g->maybe += maybe;
    gather_stmt(g, s->u.loop.body);
    g->maybe -= maybe;
    return;
  }
  case S_IF:
    gather_expr(g, s->u.cond.cond);
    g->maybe++;
    gather_stmt(g, s->u.cond.then);
    if (s->u.cond.orelse) gather_stmt(g, s->u.cond.orelse);
    g->maybe--;
    return;
  case S_WHILE:
    g->maybe++;
    gather_expr(g, s->u.loop_while.cond);
    gather_stmt(g, s->u.loop_while.body);
    g->maybe--;
    return;
  case S_LET:
    gather_expr(g, s->u.let.value);
    vec_push(g->tmp, &g->bound, s->u.let.var);
    gather_stmt(g, s->u.let.body);
    return;
  case S_STORE:
    if (s->u.store.mask) {
      accesses_of(g, s->u.store.buffer)->opaque = true;
      gather_expr(g, s->u.store.mask);
    }
    gather_expr(g, s->u.store.index[0]);
    gather_expr(g, s->u.store.value);
    gather_access(g, s->u.store.buffer, s->u.store.index[0], true);
    return;
  case S_ALLOC:
    map_put(g->tmp, &g->local, s->u.alloc.buffer, NULL);
    gather_stmt(g, s->u.alloc.body);
    return;
  case S_EVAL: gather_expr(g, s->u.eval.value); return;
  case S_ATTR: gather_stmt(g, s->u.attr.body); return;
  case S_BLOCK: return;
  }
}

/* Pointers met before their buffer was. */
static void finish_gather(Gather *g)
{
  for (int i = 0; i < g->all.n; i++)
    if (map_has(&g->pointers, g->all.v[i]->buffer->data)) g->all.v[i]->opaque = true;
}

/* ---- scalar replacement -------------------------------------------------------------------------- */

/* Ranges [from, to) of elements that hang together, sorted. */
typedef struct Cluster {
  int64_t from, to;
} Cluster;

static int clusters_of(Arena *tmp, const Accesses *a, Cluster **out)
{
  Cluster *c = arena_array(tmp, Cluster, a->v.n);
  for (int i = 0; i < a->v.n; i++) {
    Slot s;
    if (!slot_of(a->v.v[i].index, &s) || s.base) return 0;
    c[i] = (Cluster){s.offset, s.offset + s.lanes};
    for (int j = i; j > 0 && c[j - 1].from > c[j].from; j--) {
      Cluster t = c[j];
      c[j] = c[j - 1];
      c[j - 1] = t;
    }
  }
  int n = 0;
  for (int i = 0; i < a->v.n; i++) {
    if (n && c[i].from < c[n - 1].to) {
      if (c[i].to > c[n - 1].to) c[n - 1].to = c[i].to;
    } else {
      c[n++] = c[i];
    }
  }
  *out = c;
  return n;
}

static int cluster_at(const Cluster *c, int n, int64_t at)
{
  int lo = 0;
  int hi = n - 1;
  while (lo < hi) {
    int mid = (lo + hi + 1) / 2;
    if (c[mid].from <= at) lo = mid;
    else hi = mid - 1;
  }
  return lo;
}

static Stmt *replace_stmt(void *env, Stmt *s);

static Stmt *replace_alloc(Lower *lo, Stmt *s)
{
  Module *m = lo->m;
  Arena *tmp = scratch(lo->ctx);
  const Buffer *b = s->u.alloc.buffer;
  int64_t size;
  bool shared = !strcmp(b->scope, "shared");
  if (shared || b->ndim != 1 || !lower_const_int(b->shape[0], &size) || size > MAX_REPLACED) return s;
  Gather g = {.lo = lo, .tmp = tmp};
  gather_stmt(&g, s->u.alloc.body);
  finish_gather(&g);
  const Accesses *a = map_get(&g.of_buffer, b);
  if (!a || a->opaque || g.blocked) return s;
  Cluster *c;
  int n = clusters_of(tmp, a, &c);
  if (n == 0 || (n == 1 && c[0].to - c[0].from == size)) return s;
  const Buffer **part = arena_array(tmp, const Buffer *, n);
  for (int i = 0; i < n; i++) part[i] = variable(m, b, "", c[i].to - c[i].from);
  Map of_index = {0};
  Map of_buffer = {0};
  for (int i = 0; i < a->v.n; i++) {
    Slot slot;
    slot_of(a->v.v[i].index, &slot);
    int k = cluster_at(c, n, slot.offset);
    Moved *to = arena_new_of(tmp, Moved);
    const Expr *at = lower_int(m, slot.index, slot.offset - c[k].from);
    *to = (Moved){part[k], slot.lanes == 1 ? at : expr_ramp(m, at, lower_int(m, at, 1), slot.lanes)};
    map_put(tmp, &of_index, slot.index, to);
  }
  map_put(tmp, &of_buffer, b, &of_index);
  move_accesses(lo, s->u.alloc.body, &of_buffer);
  Stmt *body = s->u.alloc.body;
  for (int i = n - 1; i >= 0; i--) body = stmt_alloc(m, part[i], body);
  return body;
}

static Stmt *replace_stmt(void *env, Stmt *s)
{
  Lower *lo = env;
  lower_map_children(lo->m, s, replace_stmt, lo);
  if (s->kind != S_ALLOC) return s;
  Scope scope = scope_begin(lo->ctx);
  s = replace_alloc(lo, s);
  scope_end(lo->ctx, scope);
  return s;
}

void lower_pass_scalar_replace(Lower *lo) { lo->f->body = replace_stmt(lo, lo->f->body); }

/* ---- promotion ---------------------------------------------------------------------------------------- */

typedef struct Promote {
  Lower *lo;
  Analyzer *an;
} Promote;

/* Are the two places apart?  The same base settles most cases. */
static bool apart(Promote *p, const Slot *a, const Slot *b)
{
  int64_t d;
  if (a->base == b->base) {
    d = a->offset - b->offset;
  } else {
    Module *m = p->lo->m;
    const Expr *x = a->lanes > 1 ? a->index->arg[0] : a->index;
    const Expr *y = b->lanes > 1 ? b->index->arg[0] : b->index;
    if (!lower_const_int(expr_simplify(p->an, expr_sub(m, x, y)), &d)) return false;
  }
  return d >= b->lanes || -d >= a->lanes;
}

static bool is_param(const Lower *lo, const Buffer *b)
{
  for (int i = 0; i < lo->f->nparam; i++)
    if (lo->f->param[i].buffer && lo->f->param[i].buffer->data == b->data) return true;
  return false;
}

/* A parameter that another one may lie on. */
static bool may_overlap(const Lower *lo, const Buffer *b)
{
  for (int i = 0; i < lo->f->nparam; i++)
    if (lo->f->param[i].buffer && lo->f->param[i].buffer->data == b->data && lower_may_alias(lo->f, i)) return true;
  return false;
}

/* May every access of a be kept in variables while the loop runs? */
static bool promotable(Promote *p, Gather *g, const Accesses *a, Slot *slot)
{
  const Buffer *b = a->buffer;
  int64_t size;
  if (!a->stored || a->opaque || a->v.n > MAX_SLOTS || map_has(&g->local, b) || !strcmp(b->scope, "shared"))
    return false;
  if (may_overlap(p->lo, b)) return false;
  for (int i = 0; i < a->v.n; i++) {
    const Expr *index = a->v.v[i].index;
    if (!a->v.v[i].sure || !slot_of(index, &slot[i]) || expr_has_kind(index, E_LOAD)) return false;
    for (int k = 0; k < g->bound.n; k++)
      if (expr_uses_var(index, g->bound.v[k])) return false;
  }
  if (a->v.n == 1 && lower_const_int(b->shape[0], &size) && size == slot[0].lanes && !is_param(p->lo, b)) return false;
  for (int i = 0; i < a->v.n; i++)
    for (int k = 0; k < i; k++)
      if (!apart(p, &slot[i], &slot[k])) return false;
  return true;
}

/* One variable of a loop. */
typedef struct Kept {
  const Buffer *from, *var;
  const Expr *index, *first; /* first: value before the loop, NULL: what is in memory */
  int lanes;
  bool stored;
} Kept;
typedef Vec(Kept) Keeps;

static void keep_accesses(Promote *p, const Accesses *a, const Slot *slot, Map *of_buffer, Keeps *out)
{
  Module *m = p->lo->m;
  Arena *tmp = scratch(p->lo->ctx);
  Map *of_index = arena_new_of(tmp, Map);
  for (int i = 0; i < a->v.n; i++) {
    Kept k = {.from = a->buffer, .index = slot[i].index, .lanes = slot[i].lanes, .stored = a->v.v[i].stored};
    k.var = variable(m, a->buffer, "_acc", k.lanes);
    Moved *to = arena_new_of(tmp, Moved);
    *to = (Moved){k.var, whole(m, k.lanes)};
    map_put(tmp, of_index, k.index, to);
    vec_push(tmp, out, k);
  }
  map_put(tmp, of_buffer, a->buffer, of_index);
}

/* Takes over constant stores that stand right before statement `at` of a sequence. */
static void take_first_values(Promote *p, Stmt *seq, int at, Keeps *keeps, bool *gone)
{
  (void)p;
  for (int i = at - 1; i >= 0; i--) {
    const Stmt *s = seq->u.seq.v[i];
    if (gone[i]) continue;
    if (s->kind != S_STORE || s->u.store.mask || expr_has_kind(s->u.store.value, E_LOAD) ||
        !expr_is_pure(s->u.store.value))
      return;
    for (int k = 0; k < keeps->n; k++) {
      Kept *kept = &keeps->v[k];
      if (kept->from != s->u.store.buffer || kept->index != s->u.store.index[0] || !kept->stored || kept->first)
        continue;
      kept->first = s->u.store.value;
      gone[i] = true;
    }
    if (!gone[i])
      for (int k = 0; k < keeps->n; k++)
        if (keeps->v[k].from == s->u.store.buffer) return;
  }
}

static Stmt *wrap_loop(Promote *p, Stmt *loop, const Keeps *keeps)
{
  Module *m = p->lo->m;
  Vec(Stmt *) out = {0};
  Arena *tmp = scratch(p->lo->ctx);
  bool from_memory = false;
  for (int i = 0; i < keeps->n; i++) {
    const Kept *k = &keeps->v[i];
    const Expr *at = whole(m, k->lanes);
    const Expr *first = k->first ? k->first : expr_load(m, k->from, 1, &k->index);
    vec_push(tmp, &out, stmt_store(m, k->var, 1, &at, first));
    from_memory |= !k->first;
  }
  vec_push(tmp, &out, loop);
  for (int i = 0; i < keeps->n; i++) {
    const Kept *k = &keeps->v[i];
    const Expr *at = whole(m, k->lanes);
    if (k->stored) vec_push(tmp, &out, stmt_store(m, k->from, 1, &k->index, expr_load(m, k->var, 1, &at)));
  }
  Stmt *all = stmt_seq(m, out.n, out.v);
  for (int i = keeps->n - 1; i >= 0; i--) all = stmt_alloc(m, keeps->v[i].var, all);
  const Expr *runs = expr_binary(m, E_GT, loop->u.loop.extent, lower_int(m, loop->u.loop.extent, 0));
  if (from_memory && !analyzer_prove(p->an, runs)) all = stmt_if(m, runs, all, NULL);
  return all;
}

static Stmt *promote_stmt(Promote *p, Stmt *s, Stmt *seq, int at, bool *gone);

/* The loop with what can be kept in variables; s itself if there is nothing. */
static Stmt *promote_loop(Promote *p, Stmt *s, Stmt *seq, int at, bool *gone)
{
  if (s->u.loop.kind != FOR_SERIAL) return s;
  Arena *tmp = scratch(p->lo->ctx);
  Gather g = {.lo = p->lo, .tmp = tmp};
  vec_push(tmp, &g.bound, s->u.loop.var);
  gather_stmt(&g, s->u.loop.body);
  finish_gather(&g);
  if (g.blocked) return s;
  Keeps keeps = {0};
  Map of_buffer = {0};
  for (int i = 0; i < g.all.n; i++) {
    Slot *slot = arena_array(tmp, Slot, g.all.v[i]->v.n);
    if (promotable(p, &g, g.all.v[i], slot)) keep_accesses(p, g.all.v[i], slot, &of_buffer, &keeps);
  }
  if (!keeps.n) return s;
  if (seq) take_first_values(p, seq, at, &keeps, gone);
  move_accesses(p->lo, s->u.loop.body, &of_buffer);
  return wrap_loop(p, s, &keeps);
}

static Stmt *promote_child(void *env, Stmt *s) { return promote_stmt(env, s, NULL, 0, NULL); }

static Stmt *promote_seq(Promote *p, Stmt *s)
{
  Module *m = p->lo->m;
  int n = s->u.seq.n;
  bool *gone = arena_array(scratch(p->lo->ctx), bool, n);
  for (int i = 0; i < n; i++) s->u.seq.v[i] = promote_stmt(p, s->u.seq.v[i], s, i, gone);
  int k = 0;
  for (int i = 0; i < n; i++)
    if (!gone[i]) s->u.seq.v[k++] = s->u.seq.v[i];
  return stmt_seq(m, k, s->u.seq.v);
}

static Stmt *promote_stmt(Promote *p, Stmt *s, Stmt *seq, int at, bool *gone)
{
  if (s->kind == S_SEQ) return promote_seq(p, s);
  Stmt *done = s;
  if (s->kind == S_FOR) {
    analyzer_bind(p->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
    done = promote_loop(p, s, seq, at, gone);
  }
  lower_map_children(p->lo->m, s, promote_child, p); /* s is the loop, wrapped or not */
  return done;
}

void lower_pass_promote_accumulators(Lower *lo)
{
  Promote p = {.lo = lo, .an = lower_analyzer(lo)};
  lo->f->body = promote_stmt(&p, lo->f->body, NULL, 0, NULL);
}
