/* chain.c: steps of one element, one after the other in straight code, as one store.
 *
 * lower_pass_chain_stores
 *   C[i] = 0; C[i] = C[i] + a; C[i] = C[i] + b   →   C[i] = 0 + a + b
 *   A window that was unrolled is of this kind.  Between two steps only plain stores may
 *   stand that neither touch the element nor write what the first step read.  Local
 *   buffers and variables (one scalar or vector, whole) are left alone, and so is an
 *   element that the innermost loop around does not move on: they will be registers,
 *   and the order of their steps is the schedule's.
 *
 * needs   flat buffers; different pointers do not overlap but for the parameters that say so
 * keeps   everything else
 * breaks  nothing */
#include "lower/internal.h"

enum { FARTHEST = 64, MAX_STEPS = 64 };

typedef struct Chain {
  Lower *lo;
  Arena *tmp;
  const Var *loop; /* of the innermost loop around; NULL: none */
} Chain;

/* base + constant of an index and the lanes it reaches over; false: neither a scalar nor a contiguous vector. */
typedef struct Spot {
  const Expr *base; /* NULL: 0 */
  int64_t offset;
  int lanes;
} Spot;

static bool spot_of(const Expr *index, Spot *out)
{
  *out = (Spot){.lanes = index->dtype.lanes};
  if (index->dtype.lanes > 1) {
    if (index->kind != E_RAMP || !expr_is_int(index->arg[1], 1)) return false;
    index = index->arg[0];
  }
  bool sum = index->kind == E_ADD && index->arg[1]->kind == E_INT;
  out->offset = index->kind == E_INT ? index->u.i : sum ? index->arg[1]->u.i : 0;
  out->base = index->kind == E_INT ? NULL : sum ? index->arg[0] : index;
  return true;
}

static bool apart(const Expr *a, const Expr *b)
{
  Spot x, y;
  if (!spot_of(a, &x) || !spot_of(b, &y) || x.base != y.base) return false;
  return x.offset - y.offset >= y.lanes || y.offset - x.offset >= x.lanes;
}

/* How an expression reads one element. */
typedef struct Reads {
  const Buffer *buffer;
  const Expr *index;
  bool itself, other; /* exactly the element; something of that memory that may be part of it */
} Reads;

static void note_read(void *env, const Expr *e)
{
  Reads *r = env;
  if (e->kind == E_VAR && e->u.var == r->buffer->data) r->other = true;
  if (e->kind != E_LOAD || e->u.buffer->data != r->buffer->data) return;
  if (e->u.buffer == r->buffer && e->nargs == 1 && e->arg[0] == r->index) r->itself = true;
  else if (e->u.buffer != r->buffer || e->nargs != 1 || !apart(e->arg[0], r->index)) r->other = true;
}

static Reads reads_of(Chain *c, const Expr *e, const Buffer *buffer, const Expr *index)
{
  Reads r = {buffer, index, false, false};
  expr_visit(c->lo->ctx, e, note_read, &r);
  return r;
}

static bool may_overlap(const Lower *lo, const Buffer *b)
{
  for (int i = 0; i < lo->f->nparam; i++)
    if (lo->f->param[i].buffer && lo->f->param[i].buffer->data == b->data && lower_may_alias(lo->f, i)) return true;
  return false;
}

static bool is_plain(const Stmt *s)
{
  return s->kind == S_STORE && !s->u.store.mask && s->u.store.n == 1 && expr_is_pure(s->u.store.value) &&
         !expr_has_kind(s->u.store.index[0], E_LOAD);
}

/* May a chain begin with this store? */
static bool begins(Chain *c, const Stmt *s)
{
  int64_t size;
  Spot at;
  if (!is_plain(s) || !spot_of(s->u.store.index[0], &at)) return false;
  const Buffer *b = s->u.store.buffer;
  if (!strcmp(b->scope, "shared") || !strcmp(b->scope, "local") || b->dtype.lanes != 1 || may_overlap(c->lo, b))
    return false;
  if (c->loop && !expr_uses_var(s->u.store.index[0], c->loop)) return false;
  bool variable = b->ndim == 1 && lower_const_int(b->shape[0], &size) && size == at.lanes;
  return !variable && !reads_of(c, s->u.store.value, b, s->u.store.index[0]).other;
}

/* May `next` be passed by `s`, whose store moves behind it? */
static bool passes(Chain *c, const Stmt *s, const Stmt *next)
{
  const Buffer *b = s->u.store.buffer;
  const Buffer *written = next->u.store.buffer;
  const Expr *index = s->u.store.index[0];
  const Expr *at = next->u.store.index[0];
  Reads r = reads_of(c, next->u.store.value, b, index);
  if (r.itself || r.other) return false;
  if (written->data == b->data && (written != b || !apart(index, at))) return false;
  if (may_overlap(c->lo, written) && expr_has_kind(s->u.store.value, E_LOAD)) return false;
  Reads mine = reads_of(c, s->u.store.value, written, at);
  return !mine.itself && !mine.other;
}

typedef struct Forward {
  const Stmt *from;
} Forward;

static const Expr *forward_node(Rewriter *rw, const Expr *e)
{
  const Stmt *from = ((Forward *)rw->env)->from;
  return e->kind == E_LOAD && e->u.buffer == from->u.store.buffer && e->arg[0] == from->u.store.index[0]
             ? from->u.store.value
             : e;
}

/* Puts statement i of a sequence into the next step of its element; false: it stays. */
static bool chain_into_next(Chain *c, Stmt **v, int n, int i, int *steps)
{
  Stmt *s = v[i];
  if (!begins(c, s)) return false;
  for (int j = i + 1; j < n && j <= i + FARTHEST; j++) {
    Stmt *next = v[j];
    if (!is_plain(next)) return false;
    bool same = next->u.store.buffer == s->u.store.buffer && next->u.store.index[0] == s->u.store.index[0];
    if (!same) {
      if (!passes(c, s, next)) return false;
      continue;
    }
    if (reads_of(c, next->u.store.value, s->u.store.buffer, s->u.store.index[0]).other || steps[i] + 1 > MAX_STEPS)
      return false;
    Forward f = {s};
    Rewriter rw = {.m = c->lo->m, .fn = forward_node, .env = &f, .arena = c->tmp};
    next->u.store.value = expr_rewrite(&rw, next->u.store.value);
    steps[j] = steps[i] + 1;
    return true;
  }
  return false;
}

static Stmt *chain_stmt(void *env, Stmt *s)
{
  Chain *c = env;
  const Var *around = c->loop;
  if (s->kind == S_FOR) c->loop = s->u.loop.var;
  lower_map_children(c->lo->m, s, chain_stmt, c);
  c->loop = around;
  if (s->kind != S_SEQ) return s;
  int n = s->u.seq.n;
  int k = 0;
  int *steps = arena_array(c->tmp, int, n + 1);
  memset(steps, 0, (size_t)n * sizeof *steps);
  for (int i = 0; i < n; i++)
    if (!chain_into_next(c, s->u.seq.v, n, i, steps)) s->u.seq.v[k++] = s->u.seq.v[i];
  return stmt_seq(c->lo->m, k, s->u.seq.v);
}

void lower_pass_chain_stores(Lower *lo)
{
  Chain c = {.lo = lo, .tmp = scratch(lo->ctx)};
  lo->f->body = chain_stmt(&c, lo->f->body);
}
