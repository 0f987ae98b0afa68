/* vectorize.c: vector loops become vector statements.
 *
 * lower_pass_vectorize_loops
 *   vectorized ii < 8: C[io*8 + ii] = A[io*8 + ii] * 2
 *     →  C[ramp(io*8, 1, 8)] = A[ramp(io*8, 1, 8)] * broadcast(2, 8)
 *   Each statement of the body is made for all lanes at once; the schedule has shown
 *   that lanes do not depend on each other.  What has no vector form stays a plain
 *   loop over the lanes: conditions that differ between lanes, calls of functions,
 *   results that do not fit together, loops whose bounds differ.  A buffer allocated
 *   inside gets one copy per lane, lanes innermost.
 *   Where some lanes alone may read (the end of a row, zeros behind it) all of them do, if what they meet lies in the
 *   buffer, and the condition picks: one test for the vector instead of one for each lane.  Where it does not, at the
 *   buffer's own ends, the lanes are gone through one by one.
 *   What is left of a loop at its end, an extent that is not constant, is gone through in the target's own vectors
 *   first, where it can be that long; then one by one.  Elementary functions take a scalar as long as a vector: for
 *   them halves of vectors follow, and at last one vector of as many lanes as are left.
 *
 * needs   flat buffers, no blocks, loops from 0
 * keeps   everything else; vectors may have any number of lanes
 * breaks  afterwards no loop is FOR_VECTORIZED */
#include "lower/internal.h"

typedef struct Vectorize {
  Lower *lo;
  Analyzer *an;
  const Var *var; /* the vector loop's */
  int lanes;
  bool failed; /* the expression at hand has no vector form */
  Arena *tmp;
  Map memo;           /* Expr* -> Expr* */
  Map lets;           /* Var* -> Expr*: the vector that a let became */
  bool all;           /* all lanes may read where some do … */
  const Expr *within; /* … where this holds: what they read lies in its buffer; NULL: always */
} Vectorize;

static const Expr *vec(Vectorize *v, const Expr *e);

static const Expr *widen(Vectorize *v, const Expr *e)
{
  return e->dtype.lanes == 1 ? expr_broadcast(v->lo->m, e, v->lanes) : e;
}

static bool is_vector(const Expr *e) { return e->dtype.lanes > 1; }

static const Expr *zero_like(Module *m, const Expr *e) { return lower_int(m, e, 0); }

/* ---- arithmetic on ramps ---------------------------------------------------------------- */

static const Expr *ramp_add(Vectorize *v, ExprKind kind, const Expr *a, const Expr *b)
{
  Module *m = v->lo->m;
  bool ra = a->kind == E_RAMP;
  bool rb = b->kind == E_RAMP;
  if ((!ra && is_vector(a)) || (!rb && is_vector(b)) || !dtype_is_int(a->dtype)) return NULL;
  const Expr *base = expr_binary(m, kind, ra ? a->arg[0] : a, rb ? b->arg[0] : b);
  const Expr *stride = expr_binary(m, kind, ra ? a->arg[1] : zero_like(m, a), rb ? b->arg[1] : zero_like(m, b));
  return expr_ramp(m, expr_simplify(v->an, base), expr_simplify(v->an, stride), v->lanes);
}

static const Expr *ramp_mul(Vectorize *v, const Expr *a, const Expr *b)
{
  Module *m = v->lo->m;
  if (!dtype_is_int(a->dtype)) return NULL;
  if (b->kind == E_RAMP && !is_vector(a)) {
    const Expr *t = a;
    a = b;
    b = t;
  }
  if (a->kind != E_RAMP || is_vector(b)) return NULL;
  return expr_ramp(m, expr_simplify(v->an, expr_mul(m, a->arg[0], b)), expr_simplify(v->an, expr_mul(m, a->arg[1], b)),
                   v->lanes);
}

/* ramp // c and ramp % c while all lanes stay in one multiple of c. */
static const Expr *ramp_divide(Vectorize *v, ExprKind kind, const Expr *a, const Expr *b)
{
  Module *m = v->lo->m;
  int64_t c, stride;
  if (a->kind != E_RAMP || !lower_const_int(b, &c) || c <= 0) return NULL;
  if (!lower_const_int(a->arg[1], &stride) || stride < 0) return NULL;
  const Expr *base = a->arg[0];
  if (stride % c == 0) {
    const Expr *q =
        expr_ramp(m, expr_simplify(v->an, expr_floordiv(m, base, b)), lower_int(m, base, stride / c), v->lanes);
    if (kind == E_FLOORDIV) return stride == 0 ? q->arg[0] : q;
    return expr_simplify(v->an, expr_floormod(m, base, b));
  }
  const Expr *last = expr_add(m, expr_floormod(m, base, b), lower_int(m, base, stride * (v->lanes - 1)));
  if (!analyzer_prove(v->an, expr_lt(m, last, b))) return NULL;
  const Expr *r = expr_simplify(v->an, expr_binary(m, kind, base, b));
  return kind == E_FLOORDIV ? r : expr_ramp(m, r, a->arg[1], v->lanes);
}

static const Expr *vec_binary(Vectorize *v, const Expr *e)
{
  const Expr *a = vec(v, e->arg[0]);
  const Expr *b = vec(v, e->arg[1]);
  const Expr *r = NULL;
  if (!is_vector(a) && !is_vector(b)) return expr_binary(v->lo->m, (ExprKind)e->kind, a, b);
  if (e->kind == E_ADD || e->kind == E_SUB) r = ramp_add(v, (ExprKind)e->kind, a, b);
  if (e->kind == E_MUL) r = ramp_mul(v, a, b);
  if (e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) r = ramp_divide(v, (ExprKind)e->kind, a, b);
  return r ? r : expr_binary(v->lo->m, (ExprKind)e->kind, widen(v, a), widen(v, b));
}

/* ---- other expressions -------------------------------------------------------------------- */

static const Expr *fail(Vectorize *v, const Expr *e)
{
  v->failed = true;
  return e;
}

/* May both sides of a choice be computed, whatever the condition? */
static bool safe_to_compute(const Expr *e)
{
  return expr_is_pure(e) && !expr_has_kind(e, E_LOAD) && !expr_has_kind(e, E_DIV) && !expr_has_kind(e, E_MOD) &&
         !expr_has_kind(e, E_FLOORDIV) && !expr_has_kind(e, E_FLOORMOD);
}

/* Elements of a buffer that is one dimension with nothing between them; NULL: of any other. */
static const Expr *elements_of(const Buffer *b)
{
  bool plain = b->ndim == 1 && b->dtype.lanes == 1 && !b->strides && !b->elem_offset;
  return plain ? b->shape[0] : NULL;
}

typedef struct Reads {
  Vectorize *v;
  bool ok;
} Reads;

static void note_read(void *env, const Expr *e)
{
  Reads *r = env;
  Module *m = r->v->lo->m;
  bool divides = e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD;
  int64_t by, stride;
  if (divides) r->ok &= dtype_is_int(e->dtype) && lower_const_int(e->arg[1], &by) && by > 0;
  if (e->kind != E_LOAD || !r->ok) return;
  const Expr *first = e->arg[0]->kind == E_RAMP ? e->arg[0]->arg[0] : e->arg[0];
  const Expr *elements = elements_of(e->u.buffer);
  r->ok = elements && !is_vector(first) && (first == e->arg[0] || lower_const_int(e->arg[0]->arg[1], &stride));
  if (!r->ok) return;
  int64_t far = first == e->arg[0] ? 0 : stride * (r->v->lanes - 1);
  const Expr *last = expr_add(m, first, lower_int(m, first, far));
  const Expr *low = expr_binary(m, E_GE, far < 0 ? last : first, lower_int(m, first, 0));
  const Expr *high = expr_lt(m, far < 0 ? first : last, expr_cast(m, first->dtype, elements));
  const Expr *inside = expr_and(m, low, high);
  r->v->within = r->v->within ? expr_and(m, r->v->within, inside) : inside;
}

/* May all lanes compute e where some want it, under v->within? */
static bool all_may_compute(Vectorize *v, const Expr *e)
{
  Reads r = {v, v->all && expr_is_pure(e)};
  if (r.ok) expr_visit(v->lo->ctx, e, note_read, &r);
  return r.ok;
}

/* Functions of numbers, lane by lane. */
static bool is_lanewise(Intrin f) { return f <= IN_QMULSHIFT || f == IN_LIKELY; }

static const Expr *vec_call(Vectorize *v, const Expr *e)
{
  Module *m = v->lo->m;
  const Expr *small[8];
  const Expr **arg = e->nargs <= 8 ? small : arena_array(v->tmp, const Expr *, e->nargs);
  bool any = false;
  for (int i = 0; i < e->nargs; i++) {
    arg[i] = vec(v, e->arg[i]);
    any |= is_vector(arg[i]);
  }
  if (v->failed) return e;
  if (!any) return expr_call(m, e->dtype, e->u.intrin, e->nargs, arg);
  DType t = dtype_lanes(e->dtype, v->lanes);
  if (e->u.intrin == IN_IF_THEN_ELSE) {
    if (is_vector(arg[0])) {
      for (int i = 1; i < 3; i++)
        if (!safe_to_compute(arg[i]) && !all_may_compute(v, arg[i])) return fail(v, e);
      return expr_select(m, arg[0], widen(v, arg[1]), widen(v, arg[2]));
    }
    return expr_call(m, t, IN_IF_THEN_ELSE, 3, (const Expr *[]){arg[0], widen(v, arg[1]), widen(v, arg[2])});
  }
  if (!is_lanewise(e->u.intrin)) return fail(v, e);
  for (int i = 0; i < e->nargs; i++) arg[i] = widen(v, arg[i]);
  return expr_call(m, t, e->u.intrin, e->nargs, arg);
}

static const Expr *vec_load(Vectorize *v, const Expr *e)
{
  if (e->nargs != 1 || e->u.buffer->dtype.lanes != 1) return fail(v, e);
  const Expr *at = vec(v, e->arg[0]);
  return at == e->arg[0] ? e : expr_load(v->lo->m, e->u.buffer, 1, &at);
}

static const Expr *vec_let(Vectorize *v, const Expr *e)
{
  Module *m = v->lo->m;
  const Expr *value = vec(v, e->arg[0]);
  const Var *var = e->u.var;
  if (is_vector(value)) {
    var = var_new(m, var->name, value->dtype, VAR_PLAIN);
    map_put(v->tmp, &v->lets, e->u.var, (void *)(uintptr_t)var->expr);
  }
  return expr_let(m, var, value, vec(v, e->arg[1]));
}

static const Expr *vec_node(Vectorize *v, const Expr *e)
{
  Module *m = v->lo->m;
  switch ((ExprKind)e->kind) {
  case E_INT:
  case E_FLOAT:
  case E_STR: return e;
  case E_VAR: {
    if (e->u.var == v->var) return expr_ramp(m, expr_int(m, e->dtype, 0), expr_int(m, e->dtype, 1), v->lanes);
    const Expr *let = map_get(&v->lets, e->u.var);
    return let ? let : e;
  }
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR: return vec_binary(v, e);
  case E_NOT: return expr_not(m, vec(v, e->arg[0]));
  case E_CAST: {
    const Expr *a = vec(v, e->arg[0]);
    return expr_cast(m, dtype_lanes(e->dtype, a->dtype.lanes), a);
  }
  case E_SELECT: {
    const Expr *c = vec(v, e->arg[0]);
    const Expr *a = vec(v, e->arg[1]);
    const Expr *b = vec(v, e->arg[2]);
    if (!is_vector(c) && !is_vector(a) && !is_vector(b)) return expr_select(m, c, a, b);
    return expr_select(m, widen(v, c), widen(v, a), widen(v, b));
  }
  case E_LET: return vec_let(v, e);
  case E_LOAD: return vec_load(v, e);
  case E_CALL: return vec_call(v, e);
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE: return fail(v, e);
  case E_NKINDS: break;
  }
  BUG(v->lo->ctx, "vectorize: kind %d", e->kind);
}

/* e for all lanes; a scalar if all lanes agree. */
static const Expr *vec(Vectorize *v, const Expr *e)
{
  if (v->failed) return e;
  const Expr *done = map_get(&v->memo, e);
  if (done) return done;
  const Expr *r = vec_node(v, e);
  if (!v->failed) map_put(v->tmp, &v->memo, e, (void *)(uintptr_t)r);
  return r;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* s as a plain loop over the lanes. */
static Stmt *lane_loop(Vectorize *v, Stmt *s)
{
  Module *m = v->lo->m;
  Stmt *loop =
      stmt_for(m, v->var, expr_int(m, v->var->dtype, 0), expr_int(m, v->var->dtype, v->lanes), FOR_SERIAL, NULL, s);
  return stmt_clone_fresh(m, loop, NULL);
}

static Stmt *vec_store(Vectorize *v, Stmt *s)
{
  Module *m = v->lo->m;
  v->failed = s->u.store.n != 1 || s->u.store.mask || s->u.store.buffer->dtype.lanes != 1;
  const Expr *at = vec(v, s->u.store.index[0]);
  const Expr *value = vec(v, s->u.store.value);
  if (v->failed) return NULL;
  if (!is_vector(at) && (is_vector(value) || expr_uses_buffer(value, s->u.store.buffer))) return NULL;
  return stmt_store(m, s->u.store.buffer, 1, &at, is_vector(at) ? widen(v, value) : value);
}

static Stmt *alloc_like(Module *m, const Stmt *s, Stmt *body)
{
  Stmt *to = stmt_alloc(m, s->u.alloc.buffer, body);
  to->u.alloc.annots = s->u.alloc.annots;
  return to;
}

static Stmt *vec_stmt(Vectorize *v, Stmt *s);

/* Under a let that became a vector no lane can be taken out: then all or nothing. */
static Stmt *vec_seq(Vectorize *v, Stmt *s)
{
  Vec(Stmt *) out = {0};
  for (int i = 0; i < s->u.seq.n; i++) {
    Stmt *c = vec_stmt(v, s->u.seq.v[i]);
    if (!c && v->lets.n) return NULL;
    vec_push(v->tmp, &out, c ? c : lane_loop(v, s->u.seq.v[i]));
  }
  return stmt_seq(v->lo->m, out.n, out.v);
}

static Stmt *vec_let_stmt(Vectorize *v, Stmt *s)
{
  Module *m = v->lo->m;
  v->failed = false;
  const Expr *value = vec(v, s->u.let.value);
  if (v->failed) return NULL;
  const Var *var = s->u.let.var;
  if (is_vector(value)) {
    var = var_new(m, var->name, value->dtype, VAR_PLAIN);
    map_put(v->tmp, &v->lets, s->u.let.var, (void *)(uintptr_t)var->expr);
  }
  Stmt *body = vec_stmt(v, s->u.let.body);
  return body ? stmt_let(m, var, value, body) : NULL;
}

/* The vector form of s, or NULL: then the caller loops over the lanes. */
static Stmt *vec_stmt(Vectorize *v, Stmt *s)
{
  Module *m = v->lo->m;
  v->failed = false;
  Stmt *body;
  switch (s->kind) {
  case S_SEQ: return vec_seq(v, s);
  case S_STORE: return vec_store(v, s);
  case S_FOR: {
    const Expr *extent = vec(v, s->u.loop.extent);
    if (v->failed || is_vector(extent)) return NULL;
    analyzer_bind(v->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
    body = vec_stmt(v, s->u.loop.body);
    if (!body && !v->lets.n) body = lane_loop(v, s->u.loop.body);
    return body ? lower_loop_like(m, s, s->u.loop.var, extent, body) : NULL;
  }
  case S_IF: {
    const Expr *cond = vec(v, s->u.cond.cond);
    if (v->failed || is_vector(cond)) return NULL;
    Stmt *then = vec_stmt(v, s->u.cond.then);
    Stmt *orelse = NULL;
    if (then && s->u.cond.orelse && !(orelse = vec_stmt(v, s->u.cond.orelse))) then = NULL;
    return then ? stmt_if(m, cond, then, orelse) : NULL;
  }
  case S_LET: return vec_let_stmt(v, s);
  case S_ALLOC:
    body = vec_stmt(v, s->u.alloc.body);
    if (!body) body = v->lets.n ? NULL : lane_loop(v, s->u.alloc.body);
    return body ? alloc_like(m, s, body) : NULL;
  case S_ATTR:
    body = vec_stmt(v, s->u.attr.body);
    return body ? stmt_attr(m, s->u.attr.node, s->u.attr.key, s->u.attr.value, body) : NULL;
  case S_EVAL: {
    const Expr *e = s->u.eval.value;
    bool hint = e->kind == E_CALL && e->u.intrin == IN_PREFETCH;
    if (!hint) return lower_is_nop(s) ? s : NULL;
    return stmt_eval(m, expr_simplify(v->an, expr_substitute1(m, e, v->var, expr_int(m, v->var->dtype, 0))));
  }
  case S_WHILE:
  case S_BLOCK: return NULL;
  }
  return NULL;
}

/* ---- buffers inside a vector loop --------------------------------------------------------------- */

typedef struct Spread {
  Vectorize *v;
  Map map; /* Buffer* -> the buffer with a copy per lane */
  Rewriter rw;
} Spread;

static const Expr *lane_index(Vectorize *v, const Expr *at)
{
  Module *m = v->lo->m;
  return expr_add(m, expr_mul(m, at, lower_int(m, at, v->lanes)), v->var->expr);
}

static const Expr *spread_node(Rewriter *rw, const Expr *e)
{
  Spread *sp = rw->env;
  const Buffer *to = e->kind == E_LOAD ? map_get(&sp->map, e->u.buffer) : NULL;
  if (!to) return e;
  const Expr *at = lane_index(sp->v, e->arg[0]);
  return expr_load(rw->m, to, 1, &at);
}

static const Expr *spread_expr(void *env, const Expr *e) { return expr_rewrite(&((Spread *)env)->rw, e); }

static bool spread_stmt(void *env, Stmt *s)
{
  Spread *sp = env;
  Module *m = sp->v->lo->m;
  if (s->kind == S_ALLOC) {
    const Buffer *b = s->u.alloc.buffer;
    const Expr *n = expr_mul(m, b->shape[0], lower_int(m, b->shape[0], sp->v->lanes));
    n = expr_simplify(sp->v->an, n);
    const Buffer *to =
        buffer_new(m, b->name, b->dtype, 1, &n, NULL, NULL, b->scope, b->align, b->offset_factor, b->data);
    map_put(sp->rw.arena, &sp->map, b, (void *)(uintptr_t)to);
    s->u.alloc.buffer = to;
  }
  lower_map_exprs(s, spread_expr, sp);
  const Buffer *to = s->kind == S_STORE ? map_get(&sp->map, s->u.store.buffer) : NULL;
  if (to) {
    s->u.store.buffer = to;
    s->u.store.index[0] = lane_index(sp->v, s->u.store.index[0]);
  }
  return true;
}

static bool holds_alloc(void *env, Stmt *s)
{
  *(bool *)env |= s->kind == S_ALLOC;
  return true;
}

static void spread_allocs(Vectorize *v, Stmt *body)
{
  bool any = false;
  stmt_visit(body, holds_alloc, &any);
  if (!any) return;
  Spread sp = {.v = v};
  sp.rw = (Rewriter){.m = v->lo->m, .fn = spread_node, .env = &sp, .arena = v->tmp};
  stmt_visit(body, spread_stmt, &sp);
}

/* ---- what is left at the end of a loop --------------------------------------------------------------- */

enum { AT_ONCE = 4 }; /* fewer lanes than these are taken at once */

typedef struct Rest {
  int bits;   /* of the widest element */
  bool dear;  /* it has an elementary function */
  bool whole; /* it has stores alone */
} Rest;

static void note_rest(void *env, const Expr *e)
{
  Rest *r = env;
  if (e->kind == E_LOAD && e->dtype.bits > r->bits) r->bits = e->dtype.bits;
  r->dear |= e->kind == E_CALL && dtype_is_float(e->dtype) && e->u.intrin != IN_IF_THEN_ELSE;
}

static bool rest_stmt(void *env, Stmt *s)
{
  Rest *r = env;
  if (s->kind == S_STORE && s->u.store.buffer->dtype.bits > r->bits) r->bits = s->u.store.buffer->dtype.bits;
  r->whole &= s->kind == S_STORE || s->kind == S_SEQ;
  return true;
}

typedef struct RestExprs {
  Ctx *ctx;
  Rest *rest;
} RestExprs;

static void rest_expr(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  RestExprs *r = env;
  expr_visit(r->ctx, e, note_rest, r->rest);
}

/* The body of loop s for `lanes` steps from `first` on; NULL: it has no vector form. */
static Stmt *rest_body(Vectorize *outer, Stmt *s, const Expr *first, int lanes)
{
  Module *m = outer->lo->m;
  Stmt *copy = stmt_clone_fresh(m, s, NULL);
  const Var *lane = var_new(m, s->u.loop.var->name, s->u.loop.var->dtype, VAR_PLAIN);
  Map at = {0};
  map_put(outer->tmp, &at, copy->u.loop.var, (void *)(uintptr_t)(lanes > 1 ? expr_add(m, first, lane->expr) : first));
  Stmt *body = copy->u.loop.body;
  stmt_substitute(m, body, &at);
  if (lanes == 1) return body;
  return vec_stmt(&(Vectorize){.lo = outer->lo, .an = outer->an, .var = lane, .lanes = lanes, .tmp = outer->tmp}, body);
}

/* For `count` times `lanes` steps. */
static Stmt *rest_in_vectors(Vectorize *outer, Stmt *s, const Expr *first, const Expr *count, int lanes)
{
  Module *m = outer->lo->m;
  DType t = s->u.loop.var->dtype;
  const Var *step = var_new(m, s->u.loop.var->name, t, VAR_PLAIN);
  analyzer_bind(outer->an, step, expr_int(m, t, 0), count);
  Stmt *body = rest_body(outer, s, expr_add(m, first, expr_mul(m, step->expr, expr_int(m, t, lanes))), lanes);
  return body ? stmt_for(m, step, expr_int(m, t, 0), count, FOR_SERIAL, NULL, body) : NULL;
}

/* As many lanes as are left, fewer than `most`. */
static Stmt *rest_at_once(Vectorize *outer, Stmt *s, const Expr *first, const Expr *left, int most)
{
  Module *m = outer->lo->m;
  Stmt *all = NULL;
  for (int lanes = 1; lanes < most; lanes++) {
    Stmt *body = rest_body(outer, s, first, lanes);
    if (!body) return NULL;
    all = stmt_if(m, expr_binary(m, E_EQ, left, lower_int(m, left, lanes)), body, all);
  }
  return all;
}

static Stmt *vectorize_rest(Vectorize *outer, Stmt *s)
{
  Module *m = outer->lo->m;
  Rest r = {.bits = 8, .whole = true};
  RestExprs exprs = {outer->lo->ctx, &r};
  stmt_visit(s->u.loop.body, rest_stmt, &r);
  stmt_visit_exprs(s->u.loop.body, rest_expr, &exprs);
  int own = target_lanes(outer->lo->target, r.bits);
  Interval extent = analyzer_bounds(outer->an, s->u.loop.extent);
  Stmt *part[8];
  int n = 0;
  DType t = s->u.loop.var->dtype;
  const Expr *first = expr_int(m, t, 0);
  const Expr *left = expr_cast(m, t, s->u.loop.extent);
  if (!r.whole || own < 2) return s;
  int lanes = own;
  for (; lanes > 1 && n < 6; lanes /= 2) {
    if (lanes < own && (!r.dear || lanes < AT_ONCE)) break;
    if (extent.max < lanes) continue;
    const Expr *count = expr_simplify(outer->an, expr_floordiv(m, left, expr_int(m, t, lanes)));
    part[n] = rest_in_vectors(outer, s, first, count, lanes);
    if (!part[n++]) return s;
    first = expr_simplify(outer->an, expr_add(m, first, expr_mul(m, count, expr_int(m, t, lanes))));
    left = expr_simplify(outer->an, expr_floormod(m, left, expr_int(m, t, lanes)));
  }
  part[n] = r.dear ? rest_at_once(outer, s, first, left, 2 * lanes) : NULL;
  if (!part[n]) part[n] = n ? rest_in_vectors(outer, s, first, left, 1) : s;
  return stmt_seq(m, n + 1, part);
}

/* A store whose lanes differ in whether they read: all of them do where they may. */
static Stmt *vectorize_all(const Vectorize *of, Stmt *s)
{
  Vectorize v = {.lo = of->lo, .an = of->an, .var = of->var, .lanes = of->lanes, .tmp = of->tmp, .all = true};
  if (s->u.loop.body->kind != S_STORE || target_is_gpu(v.lo->target)) return s;
  Stmt *done = vec_stmt(&v, s->u.loop.body);
  if (!done || !v.within || expr_uses_var(v.within, v.var)) return s;
  const Expr *within = expr_simplify(v.an, v.within);
  return expr_is_int(within, 1) ? done : stmt_if(v.lo->m, within, done, lane_loop(&v, s->u.loop.body));
}

/* ---- the pass --------------------------------------------------------------------------------------- */

static Stmt *vectorize_stmt(void *env, Stmt *s)
{
  Vectorize *outer = env;
  Lower *lo = outer->lo;
  if (s->kind == S_FOR) analyzer_bind(outer->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  lower_map_children(lo->m, s, vectorize_stmt, outer); /* inner vector loops first */
  if (s->kind != S_FOR || s->u.loop.kind != FOR_VECTORIZED) return s;
  int64_t lanes;
  s->u.loop.kind = FOR_SERIAL;
  if (lo->config.no_vectorize) return s;
  if (!lower_const_int(s->u.loop.extent, &lanes)) return vectorize_rest(outer, s);
  if (lanes < 2 || lanes > 1024) return s;
  Vectorize v = {.lo = lo, .an = outer->an, .var = s->u.loop.var, .lanes = (int)lanes, .tmp = outer->tmp};
  spread_allocs(&v, s->u.loop.body);
  Stmt *done = vec_stmt(&v, s->u.loop.body);
  return done ? done : vectorize_all(&v, s);
}

void lower_pass_vectorize_loops(Lower *lo)
{
  Vectorize v = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  lo->f->body = vectorize_stmt(&v, lo->f->body);
}
