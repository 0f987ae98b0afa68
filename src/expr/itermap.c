/* itermap.c: indices as sums of pieces of loops.
 *
 * A mark is a counter 0, 1, … extent-1: a loop (shifted to start at 0), or a
 * fusion of pieces of other marks that is taken apart again, or such a fusion
 * limited by a predicate.  A piece is a digit of a mark in a mixed radix:
 *
 *     (mark // lower) % extent
 *
 * An index is base + sum of scale*piece.  Parsing turns floor divisions and
 * remainders of a sum into pieces: the sum is fused into one mark, whose digits
 * they are.  A split that does not divide its mark pads it: the digits stay
 * distinct (injective), but the last row is not full, so not every combination
 * of digits occurs.
 *
 * The verdict looks at every mark that is used, youngest first: the digits taken
 * from it must not overlap, and must be all of it where iterations may not
 * collide.  Then at each index: its pieces, by scale, must not overlap
 * (injective), or each must step exactly over those below it (surjective). */
#include "expr/analysis.h"

#include <stdio.h>

typedef struct Piece {
  int mark;
  const Expr *lower, *extent, *scale;
} Piece;

typedef Vec(Piece) PieceVec;

typedef struct Pieces {
  PieceVec v;
  const Expr *base;
} Pieces;

typedef struct Mark {
  const Expr *source; /* its value as an expression over the loops */
  const Expr *extent;
  PieceVec members;   /* what it fuses, smallest scale first; none: a loop */
  const Expr *offset; /* value == sum of members + offset */
  bool gaps;          /* not every value below extent occurs */
  bool padded;        /* split unevenly: not every combination of its digits occurs */
  bool limits;        /* made from the predicate: stands for its members wherever they are summed */
  bool used;
} Mark;

typedef struct Detect {
  Analyzer *a;
  Module *m;
  Arena *arena;
  int nloop;
  const IterVar *const *loop;
  Vec(Mark) marks; /* the loops first */
  IterMapCheck check;
  const char *why;
} Detect;

/* ---- small arithmetic -------------------------------------------------------------- */

static const Expr *number(Detect *d, const Expr *like, int64_t v) { return expr_int(d->m, like->dtype, v); }
static const Expr *add(Detect *d, const Expr *x, const Expr *y) { return expr_simplify(d->a, expr_add(d->m, x, y)); }
static const Expr *sub(Detect *d, const Expr *x, const Expr *y) { return expr_simplify(d->a, expr_sub(d->m, x, y)); }
static const Expr *mul(Detect *d, const Expr *x, const Expr *y) { return expr_simplify(d->a, expr_mul(d->m, x, y)); }

static const Expr *floor_div(Detect *d, const Expr *x, const Expr *y)
{
  return expr_simplify(d->a, expr_floordiv(d->m, x, y));
}

static const Expr *floor_mod(Detect *d, const Expr *x, const Expr *y)
{
  return expr_simplify(d->a, expr_floormod(d->m, x, y));
}

static bool equal(Detect *d, const Expr *x, const Expr *y) { return x == y || analyzer_prove_equal(d->a, x, y); }
static bool is_one(const Expr *e) { return expr_is_int(e, 1); }

static bool at_least(Detect *d, const Expr *x, const Expr *y)
{
  return analyzer_prove(d->a, expr_binary(d->m, E_GE, x, y));
}

static bool divides(Detect *d, const Expr *c, const Expr *x) { return is_one(c) || expr_is_int(floor_mod(d, x, c), 0); }

static const char *text(Detect *d, const Expr *e) { return expr_str_of(d->arena, e); }

static const Expr *magnitude(Detect *d, const Expr *e)
{
  return analyzer_bounds(d->a, e).max <= 0 ? mul(d, e, number(d, e, -1)) : e;
}

/* Keeps the first reason.  Always false. */
__attribute__((format(printf, 2, 3))) static bool refuse(Detect *d, const char *fmt, ...)
{
  char why[512];
  va_list args;
  if (d->why) return false;
  va_start(args, fmt);
  vsnprintf(why, sizeof why, fmt, args);
  va_end(args);
  d->why = arena_strdup(d->arena, why);
  return false;
}

/* ---- pieces and marks ------------------------------------------------------------------ */

static const Expr *piece_expr(Detect *d, const Piece *p)
{
  const Mark *mark = &d->marks.v[p->mark];
  const Expr *e = is_one(p->lower) ? mark->source : expr_floordiv(d->m, mark->source, p->lower);
  bool top = equal(d, mul(d, p->lower, p->extent), mark->extent);
  return mul(d, top ? e : expr_floormod(d->m, e, p->extent), p->scale);
}

static const Expr *pieces_expr(Detect *d, const PieceVec *v, const Expr *base)
{
  const Expr *e = base;
  for (int i = 0; i < v->n; i++) e = expr_add(d->m, e, piece_expr(d, &v->v[i]));
  return expr_simplify(d->a, e);
}

/* Adds a piece, joining it with an equal one. */
static void add_piece(Detect *d, Pieces *s, Piece p)
{
  if (is_one(p.extent) || expr_is_int(p.scale, 0)) return;
  for (int i = 0; i < s->v.n; i++) {
    Piece *q = &s->v.v[i];
    if (q->mark != p.mark || !equal(d, q->lower, p.lower) || !equal(d, q->extent, p.extent)) continue;
    q->scale = add(d, q->scale, p.scale);
    if (expr_is_int(q->scale, 0)) *q = s->v.v[--s->v.n];
    return;
  }
  vec_push(d->arena, &s->v, p);
}

static void add_scaled(Detect *d, Pieces *s, const Pieces *other, const Expr *scale)
{
  for (int i = 0; i < other->v.n; i++) {
    Piece p = other->v.v[i];
    p.scale = mul(d, p.scale, scale);
    add_piece(d, s, p);
  }
  s->base = add(d, s->base, mul(d, other->base, scale));
}

static int find_mark(Detect *d, const Expr *source)
{
  for (int i = 0; i < d->marks.n; i++)
    if (d->marks.v[i].source == source && !d->marks.v[i].limits) return i;
  return -1;
}

static Pieces whole(Detect *d, int mark)
{
  Pieces s = {.base = number(d, d->marks.v[mark].source, 0)};
  const Expr *one = number(d, d->marks.v[mark].source, 1);
  add_piece(d, &s, (Piece){mark, one, d->marks.v[mark].extent, one});
  return s;
}

/* ---- fusing a sum into one mark ------------------------------------------------------------ */

/* The sum's pieces that a limited mark fuses become one piece of that mark. */
static bool use_limit(Detect *d, Pieces *s, int mark)
{
  const Mark *limit = &d->marks.v[mark];
  const Expr *ratio = NULL;
  PieceVec rest = {0};
  for (int i = 0; i < limit->members.n; i++) {
    const Piece *want = &limit->members.v[i];
    const Piece *have = NULL;
    for (int j = 0; j < s->v.n; j++) {
      const Piece *p = &s->v.v[j];
      if (p->mark == want->mark && equal(d, p->lower, want->lower) && equal(d, p->extent, want->extent)) have = p;
    }
    if (!have || !divides(d, want->scale, have->scale)) return false;
    const Expr *r = floor_div(d, have->scale, want->scale);
    if (ratio && !equal(d, r, ratio)) return false;
    ratio = r;
  }
  for (int j = 0; j < s->v.n; j++) {
    bool taken = false;
    for (int i = 0; i < limit->members.n; i++) {
      const Piece *want = &limit->members.v[i];
      const Piece *p = &s->v.v[j];
      taken |= p->mark == want->mark && equal(d, p->lower, want->lower) && equal(d, p->extent, want->extent);
    }
    if (!taken) vec_push(d->arena, &rest, s->v.v[j]);
  }
  s->v = rest;
  s->base = sub(d, s->base, mul(d, limit->offset, ratio));
  add_piece(d, s, (Piece){mark, number(d, limit->source, 1), limit->extent, ratio});
  return true;
}

static void use_limits(Detect *d, Pieces *s)
{
  for (int i = 0; i < d->marks.n; i++)
    if (d->marks.v[i].limits && s->v.n >= d->marks.v[i].members.n) use_limit(d, s, i);
}

/* Does x come before y when scales ascend?  Unknown counts as no. */
static bool scale_before(Detect *d, const Piece *x, const Piece *y)
{
  const Expr *i = magnitude(d, x->scale);
  const Expr *j = magnitude(d, y->scale);
  if (i->kind == E_INT && j->kind == E_INT) return i->u.i < j->u.i;
  return divides(d, i, j) && !divides(d, j, i);
}

static void sort_by_scale(Detect *d, PieceVec *v)
{
  for (int i = 1; i < v->n; i++)
    for (int j = i; j > 0 && scale_before(d, &v->v[j], &v->v[j - 1]); j--) {
      Piece swap = v->v[j];
      v->v[j] = v->v[j - 1];
      v->v[j - 1] = swap;
    }
}

/* Are the sorted scales a mixed radix over the smallest one, with positive digits? */
static bool is_radix(Detect *d, const PieceVec *v)
{
  for (int i = 0; i < v->n; i++) {
    const Piece *p = &v->v[i];
    if (analyzer_bounds(d->a, p->scale).min < 1) return false;
    if (i > 0 && !equal(d, p->scale, mul(d, v->v[i - 1].scale, v->v[i - 1].extent))) return false;
  }
  return true;
}

/* Any increasing scales that keep the sums apart: distinct values, with holes. */
static bool is_sparse_radix(Detect *d, const PieceVec *v)
{
  for (int i = 0; i < v->n; i++) {
    const Piece *p = &v->v[i];
    if (analyzer_bounds(d->a, p->scale).min < 1) return false;
    if (i > 0 && !at_least(d, p->scale, mul(d, v->v[i - 1].scale, v->v[i - 1].extent))) return false;
  }
  return true;
}

/* Makes sum = scale*mark + base, base unchanged.  -1: the pieces do not line up. */
static int fuse(Detect *d, Pieces *s, const Expr **scale)
{
  use_limits(d, s);
  sort_by_scale(d, &s->v);
  if (s->v.n == 0) return -1;
  const Piece *first = &s->v.v[0];
  const Piece *last = &s->v.v[s->v.n - 1];
  bool sparse = !is_radix(d, &s->v);
  if (sparse && !is_sparse_radix(d, &s->v)) return -1;
  *scale = sparse ? number(d, first->scale, 1) : first->scale;
  const Mark *only = &d->marks.v[first->mark];
  if (s->v.n == 1 && !sparse && is_one(first->lower) && equal(d, first->extent, only->extent)) return first->mark;
  Mark mark = {.offset = number(d, first->scale, 0), .gaps = sparse};
  mark.extent = mul(d, floor_div(d, last->scale, *scale), last->extent);
  for (int i = 0; i < s->v.n; i++) {
    Piece p = s->v.v[i];
    p.scale = floor_div(d, p.scale, *scale);
    vec_push(d->arena, &mark.members, p);
  }
  mark.source = pieces_expr(d, &mark.members, mark.offset);
  int known = find_mark(d, mark.source);
  if (known >= 0) return known;
  vec_push(d->arena, &d->marks, mark);
  return d->marks.n - 1;
}

/* The mark moved up by 0 < shift: its first digits never occur. */
static int shifted(Detect *d, int base, const Expr *shift)
{
  const Mark *from = &d->marks.v[base];
  const Expr *one = number(d, from->source, 1);
  Mark mark = {.offset = shift, .gaps = true};
  mark.source = add(d, from->source, shift);
  mark.extent = add(d, from->extent, shift);
  int known = find_mark(d, mark.source);
  if (known >= 0) return known;
  vec_push(d->arena, &mark.members, (Piece){base, one, from->extent, one});
  vec_push(d->arena, &d->marks, mark);
  return d->marks.n - 1;
}

/* ---- parsing ------------------------------------------------------------------------------------ */

static bool parse(Detect *, const Expr *, Pieces *);

static bool uses_loops(const Detect *d, const Expr *e)
{
  for (int i = 0; i < d->nloop; i++)
    if (expr_uses_var(e, d->loop[i]->var)) return true;
  return false;
}

/* A single piece that c divides, or that is the topmost of its mark, is split
 * in place; the lower digits of the mark stay what they are. */
static bool split_piece(Detect *d, const Piece *p, const Expr *c, bool div, Pieces *out)
{
  Mark *mark = &d->marks.v[p->mark];
  const Expr *one = number(d, c, 1);
  if (!divides(d, c, p->extent)) {
    if (!at_least(d, mul(d, p->lower, p->extent), mark->extent)) return false;
    if (!at_least(d, c, p->extent)) mark->padded = true;
  }
  const Expr *rows = floor_div(d, add(d, p->extent, sub(d, c, one)), c);
  if (div) add_piece(d, out, (Piece){p->mark, mul(d, p->lower, c), rows, one});
  else add_piece(d, out, (Piece){p->mark, p->lower, is_one(rows) ? p->extent : c, p->scale});
  return true;
}

/* X // c and X % c for X = scale*counter + base. */
static bool split_sum(Detect *d, const Expr *e, Pieces *s, Pieces *out)
{
  bool div = e->kind == E_FLOORDIV;
  const Expr *c = e->arg[1];
  const Expr *scale;
  const Expr *one = number(d, e, 1);
  use_limits(d, s);
  int mark = s->v.n == 1 ? s->v.v[0].mark : fuse(d, s, &scale);
  if (mark < 0) return refuse(d, "in '%s' the loops do not line up to one counter", text(d, e));
  Piece p = {mark, one, d->marks.v[mark].extent, NULL};
  if (s->v.n == 1) p = s->v.v[0], scale = p.scale;
  p.scale = scale;
  if (analyzer_bounds(d->a, scale).min < 1 || !divides(d, scale, c))
    return refuse(d, "in '%s' the step %s does not divide %s", text(d, e), text(d, scale), text(d, c));
  const Expr *low = floor_mod(d, s->base, scale);
  const Expr *base = floor_div(d, s->base, scale);
  c = floor_div(d, c, scale);
  out->base = div ? floor_div(d, base, c) : low;
  const Expr *shift = floor_mod(d, base, c);
  if (expr_is_int(shift, 0) && split_piece(d, &p, c, div, out)) return true;
  if (!expr_is_int(shift, 0) && analyzer_bounds(d->a, shift).min < 1)
    return refuse(d, "the offset in '%s' is not known", text(d, e));
  Pieces alone = {.base = number(d, e, 0)};
  add_piece(d, &alone, (Piece){p.mark, p.lower, p.extent, one});
  mark = fuse(d, &alone, &one); /* a counter of its own */
  if (!expr_is_int(shift, 0)) mark = shifted(d, mark, shift);
  p = (Piece){mark, one, d->marks.v[mark].extent, scale};
  return split_piece(d, &p, c, div, out);
}

static bool parse_divmod(Detect *d, const Expr *e, Pieces *out)
{
  const Expr *c = e->arg[1];
  Pieces s = {.base = number(d, e, 0)};
  if (uses_loops(d, c) || analyzer_bounds(d->a, c).min < 1)
    return refuse(d, "'%s' divides by '%s', which is not positive and free of the loops", text(d, e), text(d, c));
  if (!parse(d, e->arg[0], &s)) return false;
  if (s.v.n) return split_sum(d, e, &s, out);
  out->base = expr_simplify(d->a, expr_binary(d->m, (ExprKind)e->kind, s.base, c));
  return true;
}

static bool parse_product(Detect *d, const Expr *e, Pieces *out)
{
  for (int i = 0; i < 2; i++) {
    if (uses_loops(d, e->arg[1 - i])) continue;
    Pieces x = {.base = number(d, e, 0)};
    if (!parse(d, e->arg[i], &x)) return false;
    add_scaled(d, out, &x, e->arg[1 - i]);
    return true;
  }
  return refuse(d, "'%s' multiplies loops with each other", text(d, e));
}

/* *out, empty on entry, becomes the pieces of e. */
static bool parse(Detect *d, const Expr *e, Pieces *out)
{
  if (!uses_loops(d, e)) {
    out->base = e;
    return true;
  }
  if (e->kind == E_VAR) {
    for (int i = 0; i < d->nloop; i++) {
      if (d->loop[i]->var != e->u.var) continue;
      *out = whole(d, i);
      out->base = d->loop[i]->min;
    }
    return true;
  }
  if (e->kind == E_ADD || e->kind == E_SUB) {
    Pieces x = {.base = number(d, e, 0)};
    Pieces y = x;
    if (!parse(d, e->arg[0], &x) || !parse(d, e->arg[1], &y)) return false;
    add_scaled(d, out, &x, number(d, e, 1));
    add_scaled(d, out, &y, number(d, e, e->kind == E_ADD ? 1 : -1));
    return true;
  }
  if (e->kind == E_MUL) return parse_product(d, e, out);
  if (e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) return parse_divmod(d, e, out);
  if (expr_is_widening(e)) return parse(d, e->arg[0], out);
  return refuse(d, "'%s' is not a sum of pieces of the loops", text(d, e));
}

/* ---- the predicate ---------------------------------------------------------------------------------- */

/* sum < bound (or sum >= bound), as a limited mark; false: not of that kind. */
static bool add_limit(Detect *d, Pieces *s, bool below)
{
  const Expr *scale;
  if (s->v.n == 0) return false;
  for (int i = 0; i < s->v.n; i++) /* -sum < c is sum > -c */
    if (analyzer_bounds(d->a, s->v.v[i].scale).max < 0) {
      Pieces t = {.base = number(d, s->base, 0)};
      add_scaled(d, &t, s, number(d, s->base, -1));
      for (int j = 0; j < t.v.n; j++)
        if (analyzer_bounds(d->a, t.v.v[j].scale).min < 1) return false;
      /* sum + base < 0  is  -sum - base - 1 >= 0, and the other way round */
      t.base = sub(d, t.base, number(d, t.base, 1));
      *s = t;
      below = !below;
      break;
    }
  int at = d->marks.n;
  int mark = fuse(d, s, &scale);
  if (mark < 0 || d->marks.v[mark].gaps || !is_one(scale)) return false;
  Mark limit = d->marks.v[mark];
  if (mark == at && d->marks.n > at) d->marks.n--; /* made for this: the limited one takes its place */
  const Expr *one = number(d, limit.source, 1);
  const Expr *zero = number(d, limit.source, 0);
  if (limit.members.n == 0 || limit.limits) {
    limit.members = (PieceVec){0};
    vec_push(d->arena, &limit.members, (Piece){mark, one, limit.extent, one});
    limit.offset = zero;
  }
  const Expr *bound = sub(d, zero, s->base); /* sum < bound, or sum >= bound */
  if (below) {
    if (at_least(d, bound, limit.extent)) return true;
    if (!at_least(d, limit.extent, bound)) return false;
    limit.extent = bound;
  } else {
    if (at_least(d, zero, bound)) return true;
    if (!at_least(d, limit.extent, bound)) return false;
    limit.offset = sub(d, limit.offset, bound);
    limit.extent = sub(d, limit.extent, bound);
    limit.source = sub(d, limit.source, bound);
  }
  limit.limits = true;
  vec_push(d->arena, &d->marks, limit);
  return true;
}

static bool add_predicate(Detect *d, const Expr *p)
{
  if (p->kind == E_CALL && p->u.intrin == IN_LIKELY) return add_predicate(d, p->arg[0]);
  if (p->kind == E_AND) {
    bool first = add_predicate(d, p->arg[0]);
    bool second = add_predicate(d, p->arg[1]);
    return first && second;
  }
  if (expr_is_int(p, 1) || !uses_loops(d, p)) return true;
  if (p->kind < E_LT || p->kind > E_GE) return false;
  if (!expr_is_scalar_index(p->arg[0]) || !expr_is_scalar_index(p->arg[1])) return false;
  const char *why = d->why;
  bool swap = p->kind == E_GT || p->kind == E_LE; /* as l < 0 or l >= 0 */
  const Expr *l = expr_sub(d->m, p->arg[swap], p->arg[!swap]);
  Pieces s = {.base = number(d, l, 0)};
  bool ok = parse(d, expr_simplify(d->a, l), &s) && add_limit(d, &s, p->kind == E_LT || p->kind == E_GT);
  d->why = why;
  return ok;
}

/* ---- the verdict -------------------------------------------------------------------------------------- */

/* The used piece of a mark that starts at `lower`; -1: none. */
static int piece_at(Detect *d, const PieceVec *v, uint64_t taken, const Expr *lower)
{
  for (int i = 0; i < v->n; i++)
    if (!(taken >> i & 1) && equal(d, v->v[i].lower, lower)) return i;
  return -1;
}

/* The lowest piece left that starts at a multiple of `lower`. */
static int piece_above(Detect *d, const PieceVec *v, uint64_t taken, const Expr *lower)
{
  int best = -1;
  for (int i = 0; i < v->n; i++) {
    if (taken >> i & 1 || !divides(d, lower, v->v[i].lower)) continue;
    if (best < 0 || at_least(d, v->v[best].lower, v->v[i].lower)) best = i;
  }
  return best;
}

/* Do the digits taken from a mark not overlap, and are they all of it? */
static bool check_mark(Detect *d, const Mark *mark, const PieceVec *v)
{
  bool all = d->check != ITERMAP_SURJECTIVE;
  uint64_t taken = 0;
  const Expr *at = number(d, mark->extent, 1);
  if (v->n > 64) return refuse(d, "too many pieces of one loop");
  for (int n = 0; n < v->n; n++) {
    int i = piece_at(d, v, taken, at);
    if (i < 0 && all) return refuse(d, "'%s' is used with gaps or twice", text(d, mark->source));
    if (i < 0) i = piece_above(d, v, taken, at);
    if (i < 0) return refuse(d, "pieces of '%s' overlap", text(d, mark->source));
    taken |= 1ull << i;
    at = mul(d, v->v[i].lower, v->v[i].extent);
  }
  bool whole_mark = at_least(d, at, mark->extent);
  if (all && !whole_mark && !is_one(mark->extent))
    return refuse(d, "only part of '%s' is used: different iterations give the same index", text(d, mark->source));
  if (d->check == ITERMAP_INJECTIVE) return true;
  if (mark->gaps) return refuse(d, "'%s' does not take every value", text(d, mark->source));
  bool alone = d->check == ITERMAP_SURJECTIVE && v->n == 1; /* one digit alone takes all its values */
  if (!mark->padded || alone) return true;
  return refuse(d, "'%s' is split into parts that are not all full", text(d, mark->source));
}

static bool check_marks(Detect *d, int n, const Pieces *index)
{
  PieceVec *used = arena_array(d->arena, PieceVec, d->marks.n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < index[i].v.n; j++) vec_push(d->arena, &used[index[i].v.v[j].mark], index[i].v.v[j]);
  for (int i = d->marks.n - 1; i >= 0; i--) {
    Mark *mark = &d->marks.v[i];
    bool loop = i < d->nloop;
    mark->used = used[i].n > 0;
    if (!mark->used && !loop) continue;
    if (!mark->used && d->check == ITERMAP_SURJECTIVE) continue;
    if (!mark->used && is_one(mark->extent)) continue;
    if (!mark->used)
      return refuse(d, "loop '%s' is not used: its iterations give the same index", d->loop[i]->var->name);
    if (!check_mark(d, mark, &used[i])) return false;
    for (int j = 0; j < mark->members.n; j++) vec_push(d->arena, &used[mark->members.v[j].mark], mark->members.v[j]);
  }
  return true;
}

/* Scales of one index, ascending. */
static bool check_index(Detect *d, Pieces *s, const Expr *e)
{
  const Expr *at = NULL;
  sort_by_scale(d, &s->v);
  for (int i = 0; i < s->v.n; i++) {
    const Piece *p = &s->v.v[i];
    const Expr *scale = magnitude(d, p->scale);
    if (analyzer_bounds(d->a, scale).min < 1)
      return refuse(d, "in '%s' the sign of the step %s is not known", text(d, e), text(d, p->scale));
    bool ok = d->check == ITERMAP_INJECTIVE ? !at || at_least(d, scale, at) : at ? equal(d, scale, at) : is_one(scale);
    if (!ok && d->check == ITERMAP_INJECTIVE)
      return refuse(d, "in '%s' steps of %s overlap what is below them", text(d, e), text(d, scale));
    if (!ok)
      return refuse(d, "'%s' skips values: a step of %s where %s is due", text(d, e), text(d, scale),
                    at ? text(d, at) : "1");
    at = mul(d, scale, p->extent);
  }
  return true;
}

static void make_loop_marks(Detect *d)
{
  for (int i = 0; i < d->nloop; i++) {
    const IterVar *iv = d->loop[i];
    Mark mark = {.source = sub(d, iv->var->expr, iv->min), .extent = expr_simplify(d->a, iv->extent)};
    mark.offset = number(d, mark.source, 0);
    vec_push(d->arena, &d->marks, mark);
  }
}

static void mark_limits_unused(Detect *d, bool *unused)
{
  for (int i = d->nloop; i < d->marks.n; i++) *unused |= d->marks.v[i].limits && !d->marks.v[i].used;
}

static bool detect_as(Detect *d, int n, const Expr *const *index, const Expr *predicate, bool simple, Pieces *s)
{
  bool understood = true;
  bool unused = false;
  make_loop_marks(d);
  if (predicate) understood = add_predicate(d, expr_simplify(d->a, predicate));
  for (int i = 0; i < n; i++) {
    if (!expr_is_scalar_index(index[i])) return refuse(d, "'%s' is not an index", text(d, index[i]));
    const Expr *e = simple ? expr_simplify(d->a, index[i]) : index[i];
    s[i] = (Pieces){.base = number(d, e, 0)};
    if (!parse(d, e, &s[i])) return false;
    use_limits(d, &s[i]);
    if (!check_index(d, &s[i], e)) return false;
  }
  if (!check_marks(d, n, s)) return false;
  if (d->check == ITERMAP_INJECTIVE) return true;
  mark_limits_unused(d, &unused);
  if (!understood || unused) return refuse(d, "the predicate does not limit the pieces that the indices use");
  return true;
}

/* Simplified indices first.  Simplifying takes some fusions apart, though: what
 * f//6 and f//2%3 share is plain only as long as f is. */
static bool detect(Detect *d, int n, const Expr *const *index, const Expr *predicate, Pieces *s)
{
  if (detect_as(d, n, index, predicate, true, s)) return true;
  Detect again = *d;
  memset(&again.marks, 0, sizeof again.marks);
  if (!detect_as(&again, n, index, predicate, false, s)) return false;
  *d = again;
  return true;
}

/* ---- bindings of the caller, put back afterwards ---------------------------------------------------------- */

typedef struct Saved {
  const Var *var;
  VarInfo info;
  bool had;
} Saved;

/* Binds the loops, and assumes that each runs: where one does not, any verdict is true. */
static Saved *bind_loops(Detect *d, int *level)
{
  Saved *saved = arena_array(d->arena, Saved, d->nloop);
  for (int i = 0; i < d->nloop; i++) {
    const IterVar *iv = d->loop[i];
    const VarInfo *old = map_get(&d->a->vars, iv->var);
    saved[i] = (Saved){iv->var, old ? *old : (VarInfo){0}, old != NULL};
    analyzer_bind(d->a, iv->var, iv->min, iv->extent);
  }
  *level = d->a->levels.n;
  for (int i = 0; i < d->nloop; i++)
    if (d->loop[i]->extent->kind != E_INT)
      analyzer_push(d->a, expr_binary(d->m, E_GE, d->loop[i]->extent, number(d, d->loop[i]->extent, 1)));
  return saved;
}

static void restore_loops(Detect *d, const Saved *saved, int level)
{
  analyzer_pop(d->a, level);
  for (int i = 0; i < d->nloop; i++) {
    VarInfo *now = map_get(&d->a->vars, saved[i].var);
    const VarInfo *was = &saved[i].info;
    if (saved[i].had && now->min == was->min && now->last == was->last && now->value == was->value) continue;
    analyzer_restore(d->a, saved[i].var, was);
  }
}

static void export_sum(Detect *d, const Pieces *s, Arena *arena, IterSum *out)
{
  *out = (IterSum){.term = arena_array(arena, IterSplit, s->v.n), .n = s->v.n, .base = s->base};
  for (int i = 0; i < s->v.n; i++) {
    const Piece *p = &s->v.v[i];
    out->term[i] = (IterSplit){d->marks.v[p->mark].source, p->lower, p->extent, p->scale};
  }
}

bool itermap_detect(Analyzer *a, int n, const Expr *const *index, int nloop, const IterVar *const *loop,
                    const Expr *predicate, IterMapCheck check, IterSum *out, const char **why)
{
  Detect d = {.a = a, .m = a->m, .arena = a->arena, .nloop = nloop, .loop = loop, .check = check};
  int level;
  Saved *saved = bind_loops(&d, &level);
  Pieces *s = arena_array(a->arena, Pieces, n);
  bool yes = detect(&d, n, index, predicate, s);
  restore_loops(&d, saved, level);
  for (int i = 0; yes && out && i < n; i++) export_sum(&d, &s[i], a->arena, &out[i]);
  if (!yes && why) *why = d.why ? d.why : "not an affine map";
  return yes;
}

/* ---- inverse ---------------------------------------------------------------------------------------------- */

/* Adds to each mark what the digits of y = sum of scale*piece say about it. */
static void solve_digits(Detect *d, const PieceVec *v, const Expr *y, const Expr **value)
{
  for (int i = 0; i < v->n; i++) /* a negative step counts down: digits from the other end */
    if (analyzer_bounds(d->a, v->v[i].scale).max < 0)
      y = sub(d, y, mul(d, v->v[i].scale, sub(d, v->v[i].extent, number(d, v->v[i].extent, 1))));
  for (int i = 0; i < v->n; i++) {
    const Piece *p = &v->v[i];
    const Expr *digit = floor_div(d, y, magnitude(d, p->scale));
    if (i + 1 < v->n) digit = floor_mod(d, digit, p->extent);
    if (analyzer_bounds(d->a, p->scale).max < 0) digit = sub(d, sub(d, p->extent, number(d, p->extent, 1)), digit);
    const Expr *part = mul(d, digit, p->lower);
    value[p->mark] = value[p->mark] ? add(d, value[p->mark], part) : part;
  }
}

/* [smallest, extent] of an index that is a full mixed radix. */
static void index_range(Detect *d, const Pieces *s, const Expr **min, const Expr **extent)
{
  *min = s->base;
  *extent = number(d, s->base, 1);
  for (int i = 0; i < s->v.n; i++) {
    const Piece *p = &s->v.v[i];
    *extent = mul(d, *extent, p->extent);
    if (analyzer_bounds(d->a, p->scale).max < 0)
      *min = add(d, *min, mul(d, p->scale, sub(d, p->extent, number(d, p->extent, 1))));
  }
}

static void solve(Detect *d, int n, const Pieces *s, const Var *const *outputs, const Expr **out)
{
  const Expr **value = arena_array(d->arena, const Expr *, d->marks.n);
  const Expr *min, *extent;
  for (int i = 0; i < n; i++) {
    index_range(d, &s[i], &min, &extent);
    if (!map_has(&d->a->vars, outputs[i])) analyzer_bind(d->a, outputs[i], min, extent);
    solve_digits(d, &s[i].v, sub(d, outputs[i]->expr, s[i].base), value);
  }
  for (int i = d->marks.n - 1; i >= d->nloop; i--)
    if (d->marks.v[i].used && value[i]) solve_digits(d, &d->marks.v[i].members, value[i], value);
  for (int i = 0; i < d->nloop; i++) {
    const IterVar *iv = d->loop[i];
    out[i] = expr_simplify(d->a, expr_cast(d->m, iv->var->dtype, value[i] ? add(d, value[i], iv->min) : iv->min));
  }
}

bool itermap_inverse(Analyzer *a, int n, const Expr *const *index, int nloop, const IterVar *const *loop,
                     const Var *const *outputs, const Expr **out, const char **why)
{
  Detect d = {.a = a, .m = a->m, .arena = a->arena, .nloop = nloop, .loop = loop, .check = ITERMAP_BIJECTIVE};
  int level;
  Saved *saved = bind_loops(&d, &level);
  Pieces *s = arena_array(a->arena, Pieces, n);
  bool yes = detect(&d, n, index, NULL, s);
  if (yes) solve(&d, n, s, outputs, out);
  restore_loops(&d, saved, level);
  if (!yes && why) *why = d.why ? d.why : "not an affine map";
  return yes;
}
