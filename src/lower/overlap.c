/* overlap.c: the last vector of a row whose length is not known lies over the one before.
 *
 * lower_pass_overlap_tails
 *   for io < (n + 3) // 4:                            for io < n // 4:
 *     vectorized ii < 4:                                vectorized ii < 4: C[io*4 + ii] = …
 *       if likely(io*4 + ii < n): C[io*4 + ii] = …  →   if n >= 4:
 *                                                       if n % 4: vectorized ii < 4: C[n - 4 + ii] = …
 *                                                     else: for ii < n: C[ii] = …
 *   Behind vector loops wider than the target's own vectors come those, then the last.
 *
 *   What is left behind whole vectors would be gone through one by one, each sum in memory.  Where an element is made
 *   of its own position alone it may as well be made twice.  The body of the loop may be several statements, with loops
 *   of their own (the taps of a window, the steps of a sum), as long as
 *   - every store stands in a vector loop of the same width under the same guard;
 *   - all that it says depends on io and ii through the position io*4 + ii alone; what is allocated inside is taken at
 *     the lane's own place;
 *   - what it both stores and reads is stored first, so that a sum begins anew.
 *   A row shorter than a vector is one loop over its elements with the whole body inside: lanes do not depend on each
 *   other.  Elementary functions, which take a scalar as long as a vector, stay as they are there (vectorize.c).
 *
 * needs   flat buffers, no blocks, loops from 0
 * keeps   everything else
 * breaks  loop variables of the copies are new */
#include "lower/internal.h"

enum { AROUND = 8 };

/* An element that the body has stored: its index, the loops that it uses in their place by number. */
typedef struct Made {
  const Var *data;
  const Expr *index;
  int nloop;
  const Expr *extent[AROUND];
} Made;

typedef struct Tail {
  Lower *lo;
  Analyzer *an;
  Arena *tmp;
  const Var *io, *x;  /* the loop over vectors; a position */
  int64_t lanes, own; /* of a vector loop, 0: none was seen yet; of the target's vectors, no more than those */
  int bits;           /* of the widest element */
  const Expr *length; /* of the row */
  const Var *loop_at[AROUND];
  int naround; /* loops of the body around what is looked at */
  Stmt *around[AROUND];
  Vec(const Var *) stored; /* memory that the body stores to … */
  Vec(const Var *) locals; /* … and that it allocates */
  Vec(Made) made;
  const Var *lane; /* of the vector loop that is looked at */
  bool ok, dear;
} Tail;

static bool is_one_of(const Var *v, int n, const Var *const *of)
{
  for (int i = 0; i < n; i++)
    if (of[i] == v) return true;
  return false;
}

static bool is_local(const Tail *t, const Buffer *b) { return is_one_of(b->data, t->locals.n, t->locals.v); }

static bool find_memory(void *env, Stmt *s)
{
  Tail *t = env;
  if (s->kind == S_STORE) vec_push(t->tmp, &t->stored, s->u.store.buffer->data);
  if (s->kind == S_ALLOC) vec_push(t->tmp, &t->locals, s->u.alloc.buffer->data);
  return true;
}

/* e of a position; NULL: it depends on the vector or the lane in another way. */
static const Expr *of_position(Tail *t, const Expr *e)
{
  Module *m = t->lo->m;
  const Expr *start = expr_mul(m, t->io->expr, expr_int(m, t->io->dtype, t->lanes));
  const Expr *lane = expr_sub(m, expr_cast(m, t->lane->dtype, t->x->expr), expr_cast(m, t->lane->dtype, start));
  e = expr_simplify(t->an, expr_substitute1(m, e, t->lane, lane));
  return expr_uses_var(e, t->io) ? NULL : e;
}

/* ii plus a multiple of the lanes: the lane's own place in what is allocated inside. */
static bool is_own_place(Tail *t, const Expr *index)
{
  Module *m = t->lo->m;
  const Expr *rest = expr_simplify(t->an, expr_sub(m, index, expr_cast(m, index->dtype, t->lane->expr)));
  const Expr *over = expr_simplify(t->an, expr_floormod(m, rest, lower_int(m, rest, t->lanes)));
  return !expr_uses_var(rest, t->lane) && !expr_uses_var(rest, t->io) && expr_is_int(over, 0);
}

static bool element_of(Tail *t, const Buffer *b, const Expr *index, Made *out)
{
  *out = (Made){.data = b->data, .index = of_position(t, index)};
  if (!out->index || !expr_uses_var(out->index, t->x)) return false;
  for (int i = 0; i < t->naround; i++) {
    const Stmt *loop = t->around[i];
    if (!expr_uses_var(out->index, loop->u.loop.var)) continue;
    const Expr *at = expr_cast(t->lo->m, loop->u.loop.var->dtype, t->loop_at[out->nloop]->expr);
    out->index = expr_substitute1(t->lo->m, out->index, loop->u.loop.var, at);
    out->extent[out->nloop++] = loop->u.loop.extent;
  }
  return true;
}

static bool was_made(const Tail *t, const Made *e)
{
  for (int i = 0; i < t->made.n; i++) {
    const Made *one = &t->made.v[i];
    bool same = one->data == e->data && one->index == e->index && one->nloop == e->nloop;
    for (int k = 0; same && k < e->nloop; k++) same = one->extent[k] == e->extent[k];
    if (same) return true;
  }
  return false;
}

static void check_load(void *env, const Expr *e)
{
  Tail *t = env;
  Made of;
  t->dear |= e->kind == E_CALL && dtype_is_float(e->dtype) && e->u.intrin != IN_IF_THEN_ELSE;
  if (e->kind != E_LOAD || !t->ok) return;
  if (e->dtype.bits > t->bits) t->bits = e->dtype.bits;
  if (e->nargs != 1) t->ok = false;
  else if (is_local(t, e->u.buffer)) t->ok = is_own_place(t, e->arg[0]);
  else if (is_one_of(e->u.buffer->data, t->stored.n, t->stored.v))
    t->ok = element_of(t, e->u.buffer, e->arg[0], &of) && was_made(t, &of);
}

/* What is read of memory allocated inside stands for itself. */
static const Expr *without_local(Rewriter *rw, const Expr *e)
{
  if (e->kind != E_LOAD || !is_local(rw->env, e->u.buffer)) return e;
  return var_expr(var_new(rw->m, "element", e->dtype, VAR_PLAIN));
}

static bool may_alias(const Tail *t, const Buffer *b)
{
  const PrimFunc *f = t->lo->f;
  for (int p = 0; p < f->nparam; p++)
    if (f->param[p].buffer && f->param[p].buffer->data == b->data) return lower_may_alias(f, p);
  return false;
}

/* Do the loops around that say nothing of where it is run at all? */
static bool surely_runs(const Tail *t, const Expr *index)
{
  int64_t n;
  for (int i = 0; i < t->naround; i++) {
    const Stmt *loop = t->around[i];
    if (!expr_uses_var(index, loop->u.loop.var) && (!lower_const_int(loop->u.loop.extent, &n) || n < 1)) return false;
  }
  return true;
}

static bool check_store(Tail *t, Stmt *s)
{
  const Buffer *b = s->u.store.buffer;
  const Expr *value = s->u.store.value;
  Made to;
  if (s->kind != S_STORE || s->u.store.n != 1 || s->u.store.mask || !expr_is_pure(value) || may_alias(t, b))
    return false;
  if (b->dtype.bits > t->bits) t->bits = b->dtype.bits;
  expr_visit(t->lo->ctx, value, check_load, t);
  expr_visit(t->lo->ctx, s->u.store.index[0], check_load, t);
  Rewriter rw = {.m = t->lo->m, .fn = without_local, .env = t, .arena = t->tmp};
  if (!t->ok || !of_position(t, expr_rewrite(&rw, value))) return false;
  if (is_local(t, b)) return is_own_place(t, s->u.store.index[0]);
  if (!element_of(t, b, s->u.store.index[0], &to)) return false;
  if (!expr_uses_buffer(value, b) && surely_runs(t, s->u.store.index[0])) vec_push(t->tmp, &t->made, to);
  return true;
}

/* The length that a guard says the row has: x < length; NULL: it says something else. */
static const Expr *length_of(Tail *t, const Expr *guard)
{
  Module *m = t->lo->m;
  bool less = guard->kind == E_LT || guard->kind == E_LE;
  if ((!less && guard->kind != E_GT && guard->kind != E_GE) || !dtype_is_int(guard->arg[0]->dtype)) return NULL;
  const Expr *a = guard->arg[less ? 0 : 1];
  const Expr *b = guard->arg[less ? 1 : 0];
  if (guard->kind == E_LE || guard->kind == E_GE) b = expr_add(m, b, lower_int(m, b, 1));
  /* a < b, where a - x does not depend on x */
  const Expr *rest = of_position(t, expr_sub(m, b, a));
  if (!rest) return NULL;
  const Expr *length = expr_simplify(t->an, expr_add(m, rest, expr_cast(m, rest->dtype, t->x->expr)));
  bool plain = !expr_uses_var(length, t->x) && !expr_has_kind(length, E_LOAD);
  for (int i = 0; i < t->naround; i++) plain &= !expr_uses_var(length, t->around[i]->u.loop.var);
  return plain ? length : NULL;
}

static bool uses_position(const Tail *t, const Expr *e) { return expr_uses_var(e, t->io) || expr_uses_var(e, t->lane); }

/* The guard of a vector loop: a conjunct that tells the length, and none else that has to do with the position. */
static bool check_guard(Tail *t, Stmt *s)
{
  ExprVec parts = {0};
  const Expr *length = NULL;
  bool likely;
  if (s->kind != S_IF || s->u.cond.orelse) return false;
  lower_conjuncts(t->tmp, lower_unlikely(s->u.cond.cond, &likely), &parts);
  for (int i = 0; i < parts.n; i++) {
    if (!uses_position(t, parts.v[i])) continue;
    if (length) return false;
    length = length_of(t, parts.v[i]);
    if (!length) return false;
  }
  if (!likely || !length || (t->length && t->length != length)) return false;
  t->length = length;
  return true;
}

static bool check_vectors(Tail *t, Stmt *s)
{
  int64_t lanes;
  Stmt *body = s->u.loop.body;
  if (!lower_const_int(s->u.loop.extent, &lanes) || lanes < 2 || (t->lanes && t->lanes != lanes)) return false;
  t->lanes = lanes;
  t->lane = s->u.loop.var;
  if (!check_guard(t, body)) return false;
  body = body->u.cond.then;
  if (body->kind == S_STORE) return check_store(t, body);
  bool ok = body->kind == S_SEQ;
  for (int i = 0; ok && i < body->u.seq.n; i++) ok = check_store(t, body->u.seq.v[i]);
  return ok;
}

static bool check(Tail *t, Stmt *s)
{
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++)
      if (!check(t, s->u.seq.v[i])) return false;
    return true;
  case S_FOR: {
    if (s->u.loop.kind == FOR_VECTORIZED) return check_vectors(t, s);
    bool plain = s->u.loop.kind == FOR_SERIAL || s->u.loop.kind == FOR_UNROLLED;
    if (!plain || t->naround == AROUND || expr_uses_var(s->u.loop.extent, t->io)) return false;
    analyzer_bind(t->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
    t->around[t->naround++] = s;
    bool ok = check(t, s->u.loop.body);
    t->naround--;
    return ok;
  }
  case S_ALLOC: {
    const Buffer *b = s->u.alloc.buffer;
    for (int d = 0; d < b->ndim; d++)
      if (expr_uses_var(b->shape[d], t->io)) return false;
    return check(t, s->u.alloc.body);
  }
  case S_ATTR:
  case S_IF:
  case S_WHILE:
  case S_LET:
  case S_STORE:
  case S_EVAL:
  case S_BLOCK: return false;
  }
  return false;
}

/* ---- copies of the body ------------------------------------------------------------------------------------ */

typedef enum { WHOLE, NARROW, ONE_BY_ONE } CopyKind;

typedef struct Copy {
  Tail *t;
  CopyKind kind;
  const Var *one;    /* ONE_BY_ONE: the loop over elements, in the place of all vector loops */
  const Expr *start; /* NARROW: the position of the first lane of the target's own vectors */
  Vec(const Var *) locals;
  const Var *lane, *kept; /* of the vector loop at hand; stands for it where it must not be moved */
} Copy;

static bool find_locals(void *env, Stmt *s)
{
  Copy *c = env;
  if (s->kind == S_ALLOC) vec_push(c->t->tmp, &c->locals, s->u.alloc.buffer->data);
  return true;
}

static bool is_copied_local(const Copy *c, const Buffer *b) { return is_one_of(b->data, c->locals.n, c->locals.v); }

static const Expr *keep_index(const Copy *c, const Expr *index)
{
  return expr_substitute1(c->t->lo->m, index, c->lane, c->kept->expr);
}

static const Expr *keep_node(Rewriter *rw, const Expr *e)
{
  const Copy *c = rw->env;
  if (e->kind != E_LOAD || !is_copied_local(c, e->u.buffer)) return e;
  const Expr *at = keep_index(c, e->arg[0]);
  return expr_load(rw->m, e->u.buffer, 1, &at);
}

static const Expr *keep_held(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool keep_stored(void *env, Stmt *s)
{
  const Copy *c = env;
  if (s->kind == S_STORE && is_copied_local(c, s->u.store.buffer))
    s->u.store.index[0] = keep_index(c, s->u.store.index[0]);
  return true;
}

static void substitute(const Copy *c, Stmt *s, const Var *var, const Expr *by)
{
  Map map = {0};
  map_put(c->t->tmp, &map, var, (void *)(uintptr_t)expr_cast(c->t->lo->m, var->dtype, by));
  stmt_substitute(c->t->lo->m, s, &map);
}

/* The lanes of a vector loop's body to other positions; in what is allocated inside they stay. */
static void move_lanes(Copy *c, Stmt *body)
{
  Module *m = c->t->lo->m;
  Rewriter rw = {.m = m, .fn = keep_node, .env = c, .arena = c->t->tmp};
  c->kept = var_new(m, c->lane->name, c->lane->dtype, VAR_PLAIN);
  stmt_rewrite_exprs(body, keep_held, &rw);
  stmt_visit(body, keep_stored, c);
  substitute(c, body, c->lane, expr_add(m, expr_cast(m, c->lane->dtype, c->start), c->lane->expr));
  substitute(c, body, c->kept, c->lane->expr);
}

/* What stands under a guard, without what the guard says of the lane. */
static Stmt *unguarded(const Copy *c, Stmt *s)
{
  ExprVec parts = {0};
  ExprVec rest = {0};
  lower_conjuncts(c->t->tmp, s->u.cond.cond, &parts);
  for (int i = 0; i < parts.n; i++)
    if (!expr_uses_var(parts.v[i], c->lane)) vec_push(c->t->tmp, &rest, parts.v[i]);
  Module *m = c->t->lo->m;
  return rest.n ? stmt_if(m, lower_likely(m, lower_conjunction(m, rest.n, rest.v)), s->u.cond.then, NULL)
                : s->u.cond.then;
}

static Stmt *copy_stmt(void *env, Stmt *s)
{
  Copy *c = env;
  if (s->kind != S_FOR || s->u.loop.kind != FOR_VECTORIZED) {
    lower_map_children(c->t->lo->m, s, copy_stmt, c);
    return s;
  }
  c->lane = s->u.loop.var;
  Stmt *body = unguarded(c, s->u.loop.body);
  if (c->kind == NARROW) {
    move_lanes(c, body);
    s->u.loop.extent = expr_int(c->t->lo->m, c->lane->dtype, c->t->own);
  }
  s->u.loop.body = body;
  if (c->kind != ONE_BY_ONE) return s;
  substitute(c, body, c->lane, c->one->expr);
  return body;
}

/* The body for the first vector alone. */
static Stmt *first_body(Tail *t, Stmt *s)
{
  Map vars = {0};
  map_put(t->tmp, &vars, t->io, (void *)(uintptr_t)expr_int(t->lo->m, t->io->dtype, 0));
  return stmt_clone_fresh(t->lo->m, s->u.loop.body, &vars);
}

static Stmt *copy_body(Tail *t, Stmt *body, Copy c)
{
  c.t = t;
  stmt_visit(body, find_locals, &c);
  return copy_stmt(&c, body);
}

static Stmt *short_row(Tail *t, Stmt *s)
{
  Module *m = t->lo->m;
  if (t->dear) return first_body(t, s);
  const Var *one = var_new(m, t->io->name, t->io->dtype, VAR_PLAIN);
  Stmt *body = copy_body(t, first_body(t, s), (Copy){.kind = ONE_BY_ONE, .one = one});
  return stmt_for(m, one, expr_int(m, one->dtype, 0), expr_cast(m, one->dtype, t->length), FOR_SERIAL, NULL, body);
}

/* Behind `whole` vectors as wide as the body's those of the target, which are narrower. */
static Stmt *own_vectors(Tail *t, Stmt *s, const Expr *whole)
{
  Module *m = t->lo->m;
  DType d = t->io->dtype;
  const Var *step = var_new(m, t->io->name, d, VAR_PLAIN);
  const Expr *first = expr_mul(m, whole, lower_int(m, whole, t->lanes));
  const Expr *count = expr_floordiv(m, expr_sub(m, t->length, first), lower_int(m, first, t->own));
  const Expr *start = expr_add(m, expr_cast(m, d, first), expr_mul(m, step->expr, expr_int(m, d, t->own)));
  Stmt *body = copy_body(t, first_body(t, s), (Copy){.kind = NARROW, .start = start});
  return stmt_for(m, step, expr_int(m, d, 0), expr_cast(m, d, expr_simplify(t->an, count)), FOR_SERIAL, NULL, body);
}

static Stmt *overlapped(Tail *t, Stmt *s)
{
  Module *m = t->lo->m;
  const Expr *n = t->length;
  const Expr *own = lower_int(m, n, t->own);
  const Expr *left = expr_simplify(t->an, expr_floormod(m, n, own));
  const Expr *whole = expr_simplify(t->an, expr_floordiv(m, n, lower_int(m, n, t->lanes)));
  Stmt *last = copy_body(t, first_body(t, s), (Copy){.kind = NARROW, .start = expr_sub(m, n, own)});
  last = stmt_if(m, expr_binary(m, E_GT, left, lower_int(m, left, 0)), last, NULL);
  last = stmt_if(m, expr_binary(m, E_GE, n, own), last, short_row(t, s));
  if (t->own < t->lanes) last = lower_then(m, own_vectors(t, s, whole), last);
  s->u.loop.extent = expr_cast(m, t->io->dtype, whole);
  s->u.loop.body = copy_body(t, s->u.loop.body, (Copy){.kind = WHOLE});
  return lower_then(m, s, last);
}

/* ---- the pass --------------------------------------------------------------------------------------------- */

typedef struct Overlap {
  Lower *lo;
  Analyzer *an;
  Arena *tmp;
  const Var *x, *at[AROUND];
} Overlap;

static Stmt *overlap_stmt(void *env, Stmt *s)
{
  Overlap *o = env;
  if (s->kind == S_FOR) analyzer_bind(o->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  if (s->kind == S_FOR && s->u.loop.kind == FOR_SERIAL && s->u.loop.extent->kind != E_INT) {
    Tail t = {.lo = o->lo, .an = o->an, .tmp = o->tmp, .io = s->u.loop.var, .x = o->x, .bits = 8, .ok = true};
    memcpy(t.loop_at, o->at, sizeof t.loop_at);
    stmt_visit(s->u.loop.body, find_memory, &t);
    bool may = check(&t, s->u.loop.body) && t.length && t.length->kind != E_INT;
    t.own = target_lanes(o->lo->target, t.bits);
    if (t.own > t.lanes || t.lanes % t.own) t.own = t.lanes;
    if (may && t.own > 1) return overlapped(&t, s);
  }
  lower_map_children(o->lo->m, s, overlap_stmt, o);
  return s;
}

void lower_pass_overlap_tails(Lower *lo)
{
  Overlap o = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  if (lower_for_gpu(lo) || lo->config.no_partition || lo->config.no_vectorize) return;
  o.x = var_new(lo->m, "x", DT_I32, VAR_PLAIN);
  for (int i = 0; i < AROUND; i++) o.at[i] = var_new(lo->m, "at", DT_I32, VAR_PLAIN);
  lo->f->body = overlap_stmt(&o, lo->f->body);
  lower_pass_simplify(lo);
}
