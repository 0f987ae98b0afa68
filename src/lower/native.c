/* native.c: vectors of the widths the machine has, holding what it can do on vectors.
 *
 * lower_pass_split_vectors
 *   A store of n lanes becomes stores of at most as many lanes as a register holds,
 *   each a power of two: 24 lanes where 16 fit are 16 + 8, 7 are 4 + 2 + 1.  The
 *   widest element in the value decides how many fit.  On AArch64, where narrow elements are read or
 *   written, up to four registers of the widest are taken together: bytes come and go 16 at a time then.  A let of a
 *   vector becomes a let for each piece.  Where memory is only written anew (no accumulator, nothing that
 *   will be a register), two pieces may overlap, if that makes them fewer: 7 are then 4
 *   and again 4, from the fourth on.  Where stores have masks, a rest of several pieces of a register tile that goes on
 *   behind it is one store of whole vectors under a mask: what is not wanted is computed, and left where it is.
 *
 * needs   flat buffers, no vector loops
 * keeps   everything else
 * breaks  afterwards all vectors have a power of two of lanes, at most a register's
 *
 * lower_pass_take_vectors_apart
 *   A call that exists on scalars alone (C library functions, fmod) is made lane by
 *   lane into a small buffer, from which the vector is loaded.
 *
 * needs   native widths; elementary functions spelled out as far as they are
 * breaks  nothing */
#include "lower/internal.h"

/* ---- lanes of an expression ------------------------------------------------------------- */

typedef struct Slice {
  Module *m;
  Arena *tmp;
  int from, n;
  const Map *vars; /* vector Var* -> Expr*: its lanes [from, from + n) */
  Map memo;
  bool failed;
} Slice;

static const Expr *add_const(Module *m, const Expr *e, const Expr *stride, int64_t k)
{
  if (stride->kind != E_INT) {
    if (k == 0) return e;
    const Expr *step = k == 1 ? stride : expr_mul(m, stride, lower_int(m, stride, k));
    return expr_add(m, e, step);
  }
  int64_t c = stride->u.i * k;
  if (c == 0) return e;
  if (e->kind == E_INT) return lower_int(m, e, e->u.i + c);
  if (e->kind == E_ADD && e->arg[1]->kind == E_INT) return expr_add(m, e->arg[0], lower_int(m, e, e->arg[1]->u.i + c));
  return expr_add(m, e, lower_int(m, e, c));
}

static const Expr *slice(Slice *s, const Expr *e);

static const Expr *slice_args(Slice *s, const Expr *e)
{
  Module *m = s->m;
  const Expr *small[8];
  const Expr **arg = e->nargs <= 8 ? small : arena_array(s->tmp, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = slice(s, e->arg[i]);
  if (s->failed) return e;
  DType t = dtype_lanes(e->dtype, s->n);
  switch ((ExprKind)e->kind) {
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
  case E_OR: return expr_binary(m, (ExprKind)e->kind, arg[0], arg[1]);
  case E_NOT: return expr_not(m, arg[0]);
  case E_CAST: return expr_cast(m, t, arg[0]);
  case E_SELECT: return expr_select(m, arg[0], arg[1], arg[2]);
  case E_CALL:
    for (int i = 0; i < e->nargs; i++)
      if (e->arg[i]->dtype.lanes != 1 && e->arg[i]->dtype.lanes != e->dtype.lanes) s->failed = true;
    return s->failed ? e : expr_call(m, t, e->u.intrin, e->nargs, arg);
  case E_LOAD:
    if (e->u.buffer->dtype.lanes != 1) s->failed = true;
    return s->failed ? e : expr_load(m, e->u.buffer, e->nargs, arg);
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_VAR:
  case E_LET:
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  s->failed = true;
  return e;
}

static const Expr *slice_node(Slice *s, const Expr *e)
{
  Module *m = s->m;
  const Expr *r;
  switch ((ExprKind)e->kind) {
  case E_RAMP: r = add_const(m, e->arg[0], e->arg[1], s->from); return s->n == 1 ? r : expr_ramp(m, r, e->arg[1], s->n);
  case E_BROADCAST: return s->n == 1 ? e->arg[0] : expr_broadcast(m, e->arg[0], s->n);
  case E_VAR:
    r = s->vars ? map_get(s->vars, e->u.var) : NULL;
    if (!r) s->failed = true;
    return r ? r : e;
  case E_LET: {
    const Expr *value = slice(s, e->arg[0]);
    const Var *var = var_new(m, e->u.var->name, value->dtype, VAR_PLAIN);
    Map inner = {0};
    if (s->vars)
      for (int i = 0; i < s->vars->n; i++)
        map_put(s->tmp, &inner, (const void *)(uintptr_t)s->vars->key[i], s->vars->val[i]);
    map_put(s->tmp, &inner, e->u.var, (void *)(uintptr_t)var->expr);
    Slice body = {m, s->tmp, s->from, s->n, &inner, {0}, s->failed};
    r = slice(&body, e->arg[1]);
    if (e->u.var->dtype.lanes == 1) r = expr_substitute1(m, r, e->u.var, var->expr);
    s->failed = body.failed;
    return s->failed ? e : expr_let(m, var, value, r);
  }
  case E_INT:
  case E_FLOAT:
  case E_STR:
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
  case E_OR:
  case E_NOT:
  case E_CAST:
  case E_SELECT:
  case E_LOAD:
  case E_CALL:
  case E_REDUCE:
  case E_NKINDS: return slice_args(s, e);
  }
  return e;
}

static const Expr *slice(Slice *s, const Expr *e)
{
  if (s->failed || (e->dtype.lanes == 1 && e->kind != E_LET)) return e;
  const Expr *done = map_get(&s->memo, e);
  if (done) return done;
  const Expr *r = slice_node(s, e);
  map_put(s->tmp, &s->memo, e, (void *)(uintptr_t)r);
  return r;
}

const Expr *lower_lanes(Module *m, Arena *tmp, const Expr *e, int from, int n, const Map *vars)
{
  Slice s = {.m = m, .tmp = tmp, .from = from, .n = n, .vars = vars};
  const Expr *r = slice(&s, e);
  return s.failed ? NULL : r;
}

/* ---- splitting to native widths ------------------------------------------------------------ */

typedef struct Piece {
  int from, n;
  int stored; /* the first so many of the n lanes */
} Piece;
typedef Vec(Piece) Pieces;

/* What a vector let became: one variable for each piece. */
typedef struct SplitLet {
  Pieces piece;
  const Var **var;
} SplitLet;

typedef struct Held {
  const Var *data;
  const Expr *index;
} Held;

typedef struct Split {
  Lower *lo;
  Arena *tmp;
  int min_bits;     /* elements count as at least this wide: inside a vector let */
  Map exact;        /* data Var* of memory that is updated in place, local, or handed on */
  Map lets;         /* Var* -> SplitLet* */
  Vec(Held) locals; /* vectors that local memory is written in */
  Map apart;        /* local memory whose vectors are taken lane by lane somewhere, and so everywhere: no quads */
} Split;

/* Widest element of the vectors computed in e; indices of its loads do not count, nor do words whose dot products fill
 * as many lanes. */
typedef struct Widest {
  Arena *tmp;
  Map seen;
  int bits;
  int read; /* of the narrowest element that is read side by side; 0: none is */
} Widest;

static bool is_dot(const Expr *e)
{
  return e->kind == E_CALL && (e->u.intrin == IN_BF16_DOT || e->u.intrin == IN_DOT || e->u.intrin == IN_WORD_DOT);
}

static bool is_beside(const Expr *e)
{
  return e->kind == E_LOAD && e->nargs == 1 && e->arg[0]->kind == E_RAMP && expr_is_int(e->arg[0]->arg[1], 1);
}

static void widest(Widest *w, const Expr *e)
{
  if (e->dtype.lanes == 1 || map_has(&w->seen, e)) return;
  map_put(w->tmp, &w->seen, e, NULL);
  if (e->kind != E_RAMP && !dtype_is_bool(dtype_elem(e->dtype)) && e->dtype.bits > w->bits) w->bits = e->dtype.bits;
  if (is_beside(e) && e->dtype.bits >= 8 && (!w->read || e->dtype.bits < w->read)) w->read = e->dtype.bits;
  if (e->kind == E_LOAD || is_dot(e)) return;
  for (int i = 0; i < e->nargs; i++) widest(w, e->arg[i]);
}

static void widest_held(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  widest(env, e);
}

static bool is_number(const Expr *e, int64_t n) { return expr_is_int(e->kind == E_BROADCAST ? e->arg[0] : e, n); }

static bool is_narrow(DType t)
{
  return dtype_is_int(t) && t.bits >= 8 && t.bits <= 16 && !dtype_is_bool(dtype_elem(t));
}

/* May four int32 at a time be computed with?  Arithmetic over neighbours in memory, bytes of which are widened as they
 * are read; a value that is made a byte in between is an int32 all the time. */
static bool in_quads(const Expr *e)
{
  if (e->dtype.lanes == 1) return true;
  if (e->dtype.code != DT_INT || e->dtype.bits != 32) return false;
  if (e->kind == E_CAST) {
    const Expr *from = e->arg[0];
    return is_narrow(from->dtype) && (is_beside(from) || (from->kind == E_CAST && in_quads(from->arg[0])));
  }
  Intrin in = e->u.intrin;
  bool call = e->kind == E_CALL && (in == IN_SHR_ROUND || in == IN_SHL ||
                                    (in == IN_QMULSHIFT && is_number(e->arg[2], 31) && is_number(e->arg[3], 0)));
  bool plain = e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL || e->kind == E_MIN || e->kind == E_MAX || call;
  for (int i = 0; i < e->nargs && plain; i++)
    if (!in_quads(e->arg[i])) return false;
  return plain || is_beside(e) || e->kind == E_BROADCAST;
}

typedef struct ExactRead {
  const Map *exact;
  bool found;
} ExactRead;

static void note_exact(void *env, const Expr *e)
{
  ExactRead *r = env;
  r->found |= e->kind == E_LOAD && map_has(r->exact, e->u.buffer->data);
}

static bool store_in_quads(const Split *sp, const Stmt *s)
{
  const Expr *value = s->u.store.value;
  const Expr *at = s->u.store.index[0];
  if (!target_has_quads(sp->lo->target) || sp->lets.n || s->u.store.mask || at->dtype.lanes % QUAD ||
      at->kind != E_RAMP || !expr_is_int(at->arg[1], 1))
    return false;
  ExactRead r = {&sp->apart, map_has(&sp->apart, s->u.store.buffer->data)};
  expr_visit(sp->lo->ctx, value, note_exact, &r);
  bool narrow = value->kind == E_CAST && is_narrow(value->dtype);
  return !r.found && in_quads(narrow ? value->arg[0] : value);
}

typedef struct ApartWalk {
  Split *sp;
  bool changed;
} ApartWalk;

static void set_apart(ApartWalk *w, const Buffer *b)
{
  if (!strcmp(b->scope, "global") || map_has(&w->sp->apart, b->data)) return;
  map_put(w->sp->tmp, &w->sp->apart, b->data, NULL);
  w->changed = true;
}

static void note_apart_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD && e->dtype.lanes > 1) set_apart(env, e->u.buffer);
}

static bool note_apart(void *env, Stmt *s)
{
  ApartWalk *w = env;
  if (s->kind != S_STORE || s->u.store.index[0]->dtype.lanes == 1 || store_in_quads(w->sp, s)) return true;
  set_apart(w, s->u.store.buffer);
  expr_visit(w->sp->lo->ctx, s->u.store.value, note_apart_load, w);
  return true;
}

static void find_apart(Split *sp)
{
  for (ApartWalk w = {sp, target_has_quads(sp->lo->target)}; w.changed;) {
    w.changed = false;
    stmt_visit(sp->lo->f->body, note_apart, &w);
  }
}

static void pieces_of(Split *sp, int lanes, int bits, Pieces *out)
{
  int native = bits ? target_lanes(sp->lo->target, bits < sp->min_bits ? sp->min_bits : bits) : QUAD;
  if (native < 1) native = 1;
  for (int at = 0; at < lanes;) {
    int n = 1;
    while (n * 2 <= lanes - at && n * 2 <= native) n *= 2;
    vec_push(sp->tmp, out, (Piece){at, n, n});
    at += n;
  }
}

/* The rest behind the first pieces as one more like the last, which reaches back over it. */
static void overlap_pieces(const Stmt *s, const Split *sp, int lanes, Pieces *out)
{
  const Expr *at = s->u.store.index[0];
  bool contiguous = at->kind == E_RAMP && expr_is_int(at->arg[1], 1);
  if (out->n < 3 || sp->lets.n || s->u.store.mask || !contiguous || map_has(&sp->exact, s->u.store.buffer->data))
    return;
  ExactRead r = {&sp->exact, false};
  expr_visit(sp->lo->ctx, s->u.store.value, note_exact, &r);
  for (int i = 0; i + 2 < out->n && !r.found; i++) {
    int n = out->v[i].n;
    if (out->v[i + 1].n == n) continue;
    out->v[i + 1] = (Piece){lanes - n, n, n};
    out->n = i + 2;
  }
}

/* May lanes behind the last one of a value be computed too?  Vectors must be read where so many lanes are a vector of
 * local memory. */
typedef struct Beyond {
  Split *sp;
  Piece piece;
  bool found; /* such a vector */
  bool refused;
} Beyond;

static void note_beyond(void *env, const Expr *e)
{
  Beyond *b = env;
  if (e->dtype.lanes == 1 || b->refused) return;
  b->refused |= e->kind == E_VAR || e->kind == E_LET ||
                (dtype_is_int(e->dtype) &&
                 (e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD));
  if (e->kind != E_LOAD) return;
  const Expr *at =
      e->nargs == 1 ? lower_lanes(b->sp->lo->m, b->sp->tmp, e->arg[0], b->piece.from, b->piece.n, NULL) : NULL;
  bool held = false;
  for (int i = 0; i < b->sp->locals.n && !held; i++)
    held = b->sp->locals.v[i].data == e->u.buffer->data && b->sp->locals.v[i].index == at;
  b->found |= held;
  b->refused |= !held;
}

/* The rest behind the whole vectors as one piece, of which a mask stores what is there. */
static void mask_pieces(const Stmt *s, Split *sp, int lanes, Pieces *out)
{
  const Expr *at = s->u.store.index[0];
  const Expr *value = s->u.store.value;
  int whole = 0;
  int bytes = dtype_bytes(s->u.store.buffer->dtype);
  bool contiguous = at->kind == E_RAMP && expr_is_int(at->arg[1], 1);
  while (whole < out->n && out->v[whole].n == out->v[0].n) whole++;
  if (out->n == 1 || out->v[out->n - 1].from + out->v[out->n - 1].n != lanes || !contiguous || sp->lets.n ||
      s->u.store.mask || (bytes != 4 && bytes != 8))
    return;
  if (!target_has(sp->lo->target, CPU_AVX512VL) || !expr_is_pure(value)) return;
  int first = out->v[0].n * 2 <= target_lanes(sp->lo->target, 8 * bytes) ? 0 : whole;
  int n = 1; /* none is whole */
  if (out->n - first < 2) return;
  int from = out->v[first].from;
  while (n < lanes - from) n *= 2;
  Beyond b = {.sp = sp, .piece = {from, n, lanes - from}};
  expr_visit(sp->lo->ctx, value, note_beyond, &b);
  if (b.refused || !b.found) return;
  out->v[first] = b.piece;
  out->n = first + 1;
}

static void note_pointer(void *env, const Expr *e)
{
  Split *sp = env;
  if (e->kind == E_VAR && e->dtype.code == DT_HANDLE) map_put(sp->tmp, &sp->exact, e->u.var, NULL);
  if (e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF) map_put(sp->tmp, &sp->exact, e->arg[0]->u.buffer->data, NULL);
}

static void note_pointers(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  expr_visit(((Split *)env)->lo->ctx, e, note_pointer, env);
}

typedef struct SelfRead {
  const Var *data;
  bool found;
} SelfRead;

static void note_self(void *env, const Expr *e)
{
  SelfRead *r = env;
  r->found |= e->kind == E_LOAD && e->u.buffer->data == r->data;
}

static bool note_update(void *env, Stmt *s)
{
  Split *sp = env;
  if (s->kind == S_ALLOC && strcmp(s->u.alloc.buffer->scope, "global"))
    map_put(sp->tmp, &sp->exact, s->u.alloc.buffer->data, NULL);
  if (s->kind != S_STORE) return true;
  if (s->u.store.n == 1 && s->u.store.index[0]->dtype.lanes > 1 && map_has(&sp->exact, s->u.store.buffer->data))
    vec_push(sp->tmp, &sp->locals, (Held){s->u.store.buffer->data, s->u.store.index[0]});
  SelfRead r = {s->u.store.buffer->data, false};
  expr_visit(sp->lo->ctx, s->u.store.value, note_self, &r);
  if (r.found) map_put(sp->tmp, &sp->exact, r.data, NULL);
  return true;
}

static const Expr *cut(Split *sp, const Expr *e, Piece p)
{
  Map vars = {0};
  for (int i = 0; i < sp->lets.n; i++) {
    const SplitLet *l = sp->lets.val[i];
    for (int k = 0; k < l->piece.n; k++)
      if (l->piece.v[k].from == p.from && l->piece.v[k].n == p.n)
        map_put(sp->tmp, &vars, (const void *)(uintptr_t)sp->lets.key[i], (void *)(uintptr_t)l->var[k]->expr);
  }
  const Expr *r = lower_lanes(sp->lo->m, sp->tmp, e, p.from, p.n, &vars);
  if (!r)
    raise(sp->lo->ctx, ERR_UNSUPPORTED, NOWHERE,
          "%s: the vector %s of %d lanes cannot be cut to the target's registers", sp->lo->f->name,
          expr_str_of(scratch(sp->lo->ctx), e), e->dtype.lanes);
  return r;
}

static Stmt *split_stmt(void *env, Stmt *s);

/* The element whose lanes fill a register: the widest, or a narrower one that comes from or goes to memory. */
static int bits_together(const Split *sp, const Stmt *s, const Widest *w)
{
  enum { TOGETHER = 4 };
  const Target *t = sp->lo->target;
  int bits = s->u.store.buffer->dtype.bits;
  if (w->read && w->read < bits) bits = w->read;
  if (bits < 8 || t->codegen != CODEGEN_LLVM || t->arch != ARCH_AARCH64 || sp->min_bits || sp->lets.n) return w->bits;
  if (bits < w->bits / TOGETHER) bits = w->bits / TOGETHER;
  return bits < w->bits ? bits : w->bits;
}

static Stmt *split_store(Split *sp, Stmt *s)
{
  Module *m = sp->lo->m;
  int lanes = s->u.store.index[0]->dtype.lanes;
  if (lanes == 1) return s;
  Widest w = {.tmp = sp->tmp, .bits = 8};
  widest(&w, s->u.store.value);
  Pieces pieces = {0};
  pieces_of(sp, lanes, store_in_quads(sp, s) ? 0 : bits_together(sp, s, &w), &pieces);
  overlap_pieces(s, sp, lanes, &pieces);
  mask_pieces(s, sp, lanes, &pieces);
  if (pieces.n == 1 && pieces.v[0].n == lanes) return s;
  Vec(Stmt *) out = {0};
  for (int i = 0; i < pieces.n; i++) {
    const Expr *at = cut(sp, s->u.store.index[0], pieces.v[i]);
    Stmt *c = stmt_store(m, s->u.store.buffer, 1, &at, cut(sp, s->u.store.value, pieces.v[i]));
    if (s->u.store.mask) c->u.store.mask = cut(sp, s->u.store.mask, pieces.v[i]);
    if (pieces.v[i].stored < pieces.v[i].n)
      c->u.store.mask = expr_lt(m, expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), pieces.v[i].n),
                                expr_broadcast(m, expr_i32(m, pieces.v[i].stored), pieces.v[i].n));
    vec_push(sp->tmp, &out, c);
  }
  return out.n == 1 ? out.v[0] : stmt_seq(m, out.n, out.v);
}

static Stmt *split_let(Split *sp, Stmt *s)
{
  Module *m = sp->lo->m;
  int lanes = s->u.let.var->dtype.lanes;
  int outer = sp->min_bits;
  if (lanes == 1) {
    s->u.let.body = split_stmt(sp, s->u.let.body);
    return s;
  }
  Widest w = {.tmp = sp->tmp, .bits = sp->min_bits};
  stmt_visit_exprs(s, widest_held, &w);
  sp->min_bits = w.bits;
  SplitLet *l = arena_new_of(sp->tmp, SplitLet);
  pieces_of(sp, lanes, w.bits, &l->piece);
  if (l->piece.n == 1) {
    s->u.let.body = split_stmt(sp, s->u.let.body);
    sp->min_bits = outer;
    return s;
  }
  const Expr **value = arena_array(sp->tmp, const Expr *, l->piece.n);
  l->var = arena_array(sp->tmp, const Var *, l->piece.n);
  for (int i = 0; i < l->piece.n; i++) {
    value[i] = cut(sp, s->u.let.value, l->piece.v[i]);
    l->var[i] = var_new(m, s->u.let.var->name, value[i]->dtype, VAR_PLAIN);
  }
  map_put(sp->tmp, &sp->lets, s->u.let.var, l);
  Stmt *body = split_stmt(sp, s->u.let.body);
  for (int i = l->piece.n - 1; i >= 0; i--) body = stmt_let(m, l->var[i], value[i], body);
  sp->min_bits = outer;
  return body;
}

static Stmt *split_stmt(void *env, Stmt *s)
{
  Split *sp = env;
  if (s->kind == S_STORE) return split_store(sp, s);
  if (s->kind == S_LET) return split_let(sp, s);
  lower_map_children(sp->lo->m, s, split_stmt, sp);
  return s;
}

void lower_pass_split_vectors(Lower *lo)
{
  Split sp = {.lo = lo, .tmp = scratch(lo->ctx)};
  stmt_visit(lo->f->body, note_update, &sp);
  stmt_visit_exprs(lo->f->body, note_pointers, &sp);
  for (int i = 0; i < lo->f->nparam; i++)
    if (lo->f->param[i].buffer && lower_may_alias(lo->f, i))
      map_put(sp.tmp, &sp.exact, lo->f->param[i].buffer->data, NULL);
  find_apart(&sp);
  lo->f->body = split_stmt(&sp, lo->f->body);
}

/* ---- what exists on scalars alone ----------------------------------------------------------- */

static bool is_native(const Target *t, const Expr *e)
{
  if (e->kind == E_MOD) return !dtype_is_float(e->dtype);
  if (e->kind != E_CALL) return true;
  switch (e->u.intrin) {
  case IN_SQRT:
  case IN_FLOOR:
  case IN_CEIL:
  case IN_TRUNC:
  case IN_NEARBYINT:
  case IN_ABS:
  case IN_FMA:
  case IN_COPYSIGN:
  case IN_ISNAN:
  case IN_ISFINITE:
  case IN_ISINF:
  case IN_BITAND:
  case IN_BITOR:
  case IN_BITXOR:
  case IN_BITNOT:
  case IN_SHL:
  case IN_SHR:
  case IN_SHR_ROUND:
  case IN_POPCOUNT:
  case IN_CLZ:
  case IN_BF16_DOT:
  case IN_DOT:
  case IN_WORD_DOT:
  case IN_REINTERPRET:
  case IN_IF_THEN_ELSE:
  case IN_LIKELY: return true;
  case IN_ROUND: return target_rounds_away(t);
  case IN_QMULSHIFT:
    return (t->codegen == CODEGEN_LLVM && e->dtype.bits == 32) || (target_has_quads(t) && e->dtype.lanes == QUAD);
  case IN_LDEXP: return t->codegen == CODEGEN_LLVM && e->dtype.bits == 32 && target_has_scale(t, e->dtype.lanes);
  default: return false; /* every other function is called */
  }
}

typedef struct Apart {
  Lower *lo;
  Arena *tmp;
  Vec(Stmt *) before; /* lane by lane, to run before the statement */
  Vec(const Buffer *) buffers;
  Rewriter rw;
} Apart;

static const Buffer *lane_buffer(Apart *a, DType t, int lanes)
{
  const Expr *n = expr_i32(a->lo->m, lanes);
  const Buffer *b = buffer_new(a->lo->m, "lanes", dtype_elem(t), 1, &n, NULL, NULL, "local", 0, 0, NULL);
  vec_push(a->tmp, &a->buffers, b);
  return b;
}

static const Expr *whole_vector(Module *m, const Buffer *b, int lanes)
{
  const Expr *at = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), lanes);
  return expr_load(m, b, 1, &at);
}

/* Something whose lanes can be named one by one: what cannot is kept in a buffer. */
static const Expr *spill(Apart *a, const Expr *e)
{
  Module *m = a->lo->m;
  if (e->dtype.lanes == 1 || e->kind == E_BROADCAST || e->kind == E_RAMP || e->kind == E_LOAD) return e;
  const Buffer *b = lane_buffer(a, e->dtype, e->dtype.lanes);
  const Expr *at = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), e->dtype.lanes);
  vec_push(a->tmp, &a->before, stmt_store(m, b, 1, &at, e));
  return whole_vector(m, b, e->dtype.lanes);
}

static const Expr *apart_node(Rewriter *rw, const Expr *e)
{
  Apart *a = rw->env;
  Module *m = a->lo->m;
  int lanes = e->dtype.lanes;
  if (lanes == 1 || is_native(a->lo->target, e)) return e;
  const Expr **arg = arena_array(a->tmp, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = spill(a, e->arg[i]);
  const Expr *call = expr_with_args(m, e, arg);
  const Buffer *b = lane_buffer(a, e->dtype, lanes);
  for (int l = 0; l < lanes; l++) {
    const Expr *at = expr_i32(m, l);
    const Expr *one = lower_lanes(m, a->tmp, call, l, 1, NULL);
    if (!one) BUG(a->lo->ctx, "no lane %d of %s", l, expr_str_of(a->tmp, call));
    vec_push(a->tmp, &a->before, stmt_store(m, b, 1, &at, one));
  }
  return whole_vector(m, b, lanes);
}

typedef struct Calls {
  const Target *target;
  bool foreign, choice;
} Calls;

static void look_for_calls(void *env, const Expr *e)
{
  Calls *c = env;
  if (e->dtype.lanes > 1 && !is_native(c->target, e)) c->foreign = true;
  if (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE) c->choice = true;
}

static const Expr *apart_expr(void *env, const Expr *e) { return expr_rewrite(&((Apart *)env)->rw, e); }

/* Under if_then_else nothing may be computed early: then the whole store goes by lanes. */
static Stmt *store_by_lanes(Apart *a, Stmt *s)
{
  Module *m = a->lo->m;
  int lanes = s->u.store.index[0]->dtype.lanes;
  Vec(Stmt *) out = {0};
  for (int l = 0; l < lanes; l++) {
    const Expr *at = lower_lanes(m, a->tmp, s->u.store.index[0], l, 1, NULL);
    const Expr *value = lower_lanes(m, a->tmp, s->u.store.value, l, 1, NULL);
    if (!at || !value) return NULL;
    vec_push(a->tmp, &out, stmt_store(m, s->u.store.buffer, 1, &at, value));
  }
  return stmt_seq(m, out.n, out.v);
}

static Stmt *apart_stmt(void *env, Stmt *s)
{
  Lower *lo = env;
  lower_map_children(lo->m, s, apart_stmt, lo);
  const Expr *e = s->kind == S_STORE ? s->u.store.value : s->kind == S_LET ? s->u.let.value : NULL;
  Calls found = {.target = lo->target};
  if (e && (expr_has_kind(e, E_CALL) || expr_has_kind(e, E_MOD))) expr_visit(lo->ctx, e, look_for_calls, &found);
  if (!found.foreign) return s;
  Apart a = {.lo = lo, .tmp = scratch(lo->ctx)};
  a.rw = (Rewriter){.m = lo->m, .fn = apart_node, .env = &a, .arena = a.tmp};
  if (found.choice && s->kind == S_STORE && !s->u.store.mask) {
    Stmt *lanes = store_by_lanes(&a, s);
    if (lanes) return lanes;
  }
  lower_map_exprs(s, apart_expr, &a);
  vec_push(a.tmp, &a.before, s);
  Stmt *all = stmt_seq(lo->m, a.before.n, a.before.v);
  for (int i = a.buffers.n - 1; i >= 0; i--) all = stmt_alloc(lo->m, a.buffers.v[i], all);
  return all;
}

void lower_pass_take_vectors_apart(Lower *lo) { lo->f->body = apart_stmt(lo, lo->f->body); }
