/* double.c: double buffering.
 *
 * lower_pass_double_buffer
 *   for v < n:                    alloc B[2*size]
 *     alloc B[size]               fill B[0] for v = 0
 *       fill B               →    for v < n:
 *       use B                       if likely(v + 1 < n): fill B[(v+1) % 2] for v + 1
 *                                   use B[v % 2]
 *   for allocations marked "double_buffer_scope" that stand at the top of the body of a
 *   plain loop of constant extent and are filled by its first statements alone.  The next part is
 *   then on its way while this one is used.  Elsewhere the mark means nothing.
 *
 * needs   flat buffers, loops from 0
 * keeps   everything else
 * breaks  nothing; run before partition, which removes the condition */
#include "lower/internal.h"

typedef struct Halves {
  Lower *lo;
  const Buffer *from, *to;
  const Expr *half; /* 0 or 1 */
  Rewriter rw;
} Halves;

static const Expr *half_index(Halves *h, const Expr *at)
{
  Module *m = h->lo->m;
  return expr_add(m, at, expr_mul(m, h->half, h->from->shape[0]));
}

static const Expr *half_node(Rewriter *rw, const Expr *e)
{
  Halves *h = rw->env;
  if (e->kind != E_LOAD || e->u.buffer != h->from) return e;
  const Expr *at = half_index(h, e->arg[0]);
  return expr_load(rw->m, h->to, 1, &at);
}

static const Expr *half_held(void *env, const Expr *e) { return expr_rewrite(&((Halves *)env)->rw, e); }

static bool half_stmt(void *env, Stmt *s)
{
  Halves *h = env;
  lower_map_exprs(s, half_held, h);
  if (s->kind == S_STORE && s->u.store.buffer == h->from) {
    s->u.store.buffer = h->to;
    s->u.store.index[0] = half_index(h, s->u.store.index[0]);
  }
  return true;
}

/* A copy of s for loop value v, on half v % 2 of the buffer. */
static Stmt *on_half(Lower *lo, Stmt *s, const Var *var, const Expr *v, const Buffer *from, const Buffer *to)
{
  Module *m = lo->m;
  Map vars = {0};
  map_put(scratch(lo->ctx), &vars, var, (void *)(uintptr_t)v);
  Stmt *c = stmt_clone_fresh(m, s, &vars);
  Halves h = {.lo = lo, .from = from, .to = to, .half = expr_floormod(m, v, expr_int(m, v->dtype, 2))};
  h.rw = (Rewriter){.m = m, .fn = half_node, .env = &h, .arena = scratch(lo->ctx)};
  stmt_visit(c, half_stmt, &h);
  return c;
}

static bool stores_to(void *env, Stmt *s)
{
  const Buffer **want = env;
  if (s->kind == S_STORE && s->u.store.buffer == *want) *want = NULL;
  return *want != NULL;
}

static bool fills(Stmt *s, const Buffer *b)
{
  const Buffer *want = b;
  stmt_visit(s, stores_to, &want);
  return want == NULL;
}

/* The number of leading statements that fill b; 0 if the body is not of that form. */
static int filling(Stmt *body, const Buffer *b)
{
  if (body->kind != S_SEQ) return 0;
  int n = 0;
  while (n < body->u.seq.n && fills(body->u.seq.v[n], b)) n++;
  for (int i = n; i < body->u.seq.n; i++)
    if (fills(body->u.seq.v[i], b)) return 0;
  return n < body->u.seq.n ? n : 0;
}

static Stmt *double_stmt(void *env, Stmt *s)
{
  Lower *lo = env;
  Module *m = lo->m;
  lower_map_children(m, s, double_stmt, lo);
  if (s->kind != S_FOR || s->u.loop.kind != FOR_SERIAL || s->u.loop.body->kind != S_ALLOC) return s;
  Stmt *alloc = s->u.loop.body;
  const Buffer *b = alloc->u.alloc.buffer;
  if (!annots_get(&alloc->u.alloc.annots, "double_buffer_scope") || b->ndim != 1) return s;
  int64_t trips;
  int n = filling(alloc->u.alloc.body, b);
  if (!n || !lower_const_int(s->u.loop.extent, &trips) || trips < 2) return s;
  const Var *var = s->u.loop.var;
  const Expr *size = expr_simplify(lower_analyzer(lo), expr_mul(m, b->shape[0], lower_int(m, b->shape[0], 2)));
  const Buffer *two =
      buffer_new(m, b->name, b->dtype, 1, &size, NULL, NULL, b->scope, b->align, b->offset_factor, NULL);
  Stmt *seq = alloc->u.alloc.body;
  Stmt *fill = stmt_seq(m, n, seq->u.seq.v);
  Stmt *rest = stmt_seq(m, seq->u.seq.n - n, seq->u.seq.v + n);
  const Expr *zero = expr_int(m, var->dtype, 0);
  const Expr *next = expr_add(m, var->expr, expr_int(m, var->dtype, 1));
  Stmt *first = on_half(lo, fill, var, zero, b, two);
  Stmt *ahead = on_half(lo, fill, var, next, b, two);
  ahead = stmt_if(m, lower_likely(m, expr_lt(m, next, s->u.loop.extent)), ahead, NULL);
  s->u.loop.body = lower_then(m, ahead, on_half(lo, rest, var, var->expr, b, two));
  return stmt_alloc(m, two, lower_then(m, first, s));
}

void lower_pass_double_buffer(Lower *lo)
{
  lo->f->body = double_stmt(lo, lo->f->body);
  lower_pass_simplify(lo);
}
