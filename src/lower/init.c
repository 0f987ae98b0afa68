/* init.c: reductions whose init still stands inside the block.
 *
 * lower_pass_decompose_init
 *   for k:                              for i: block C_init: C[i] = 0
 *     for i: block C: init C[i] = 0  →  for k:
 *                     C[i] += …           for i: block C: C[i] += …
 * The init goes before the outermost loop that any reduction variable is bound to,
 * under copies of the spatial loops inside that one.  Where a loop serves both
 * kinds of variable (spatial and reduction fused) that is impossible, and the init
 * stays in the body under `if` all reduction variables are at their first value.
 *
 * needs   parent links, blocks
 * keeps   everything else
 * breaks  nothing; afterwards no block has an init */
#include "lower/internal.h"

typedef struct InitBlock {
  Lower *lo;
  Stmt *stmt;
  Block *b;
  Stmt **loop; /* around the block, outermost first */
  int nloop;
  bool *reduces; /* loop[i] is in the binding of a reduction variable */
  bool *spatial; /* … of a spatial one */
} InitBlock;

static void classify_loops(InitBlock *ib)
{
  for (int i = 0; i < ib->nloop; i++)
    for (int j = 0; j < ib->b->niter; j++) {
      const BlockIter *it = &ib->b->iter[j];
      if (!expr_uses_var(it->value, ib->loop[i]->u.loop.var)) continue;
      if (it->kind == ITER_SPATIAL) ib->spatial[i] = true;
      else ib->reduces[i] = true;
    }
}

static bool uses_any(const InitBlock *ib, const Expr *e, const bool *which)
{
  for (int i = 0; i < ib->nloop; i++)
    if (which[i] && expr_uses_var(e, ib->loop[i]->u.loop.var)) return true;
  return false;
}

/* Do the spatial variables stay in their domains under this condition alone? */
static bool in_domain(InitBlock *ib, const Expr *cond)
{
  Module *m = ib->lo->m;
  Analyzer *an = lower_analyzer(ib->lo);
  for (int i = 0; i < ib->nloop; i++)
    analyzer_bind(an, ib->loop[i]->u.loop.var, ib->loop[i]->u.loop.min, ib->loop[i]->u.loop.extent);
  if (cond) analyzer_push(an, cond);
  for (int i = 0; i < ib->b->niter; i++) {
    const BlockIter *it = &ib->b->iter[i];
    if (it->kind != ITER_SPATIAL) continue;
    if (!analyzer_prove(an, expr_binary(m, E_GE, it->value, it->min))) return false;
    if (!analyzer_prove(an, expr_lt(m, it->value, expr_add(m, it->min, it->extent)))) return false;
  }
  return true;
}

/* The conjuncts of the predicate that concern spatial loops alone.  One that mixes
 * both kinds limits the reduction at a point, not the points, and is dropped, unless
 * it is what keeps the points in their domain: then false. */
static bool spatial_predicate(InitBlock *ib, const Expr **out)
{
  ExprVec all = {0};
  ExprVec keep = {0};
  Arena *tmp = scratch(ib->lo->ctx);
  bool mixed = false;
  if (ib->b->predicate) lower_conjuncts(tmp, ib->b->predicate, &all);
  for (int i = 0; i < all.n; i++) {
    bool r = uses_any(ib, all.v[i], ib->reduces);
    mixed |= r && uses_any(ib, all.v[i], ib->spatial);
    if (!r) vec_push(tmp, &keep, all.v[i]);
  }
  *out = lower_conjunction(ib->lo->m, keep.n, keep.v);
  return !mixed || in_domain(ib, *out);
}

static Stmt *init_nest(InitBlock *ib, int outer, const Expr *predicate)
{
  Module *m = ib->lo->m;
  const Block *b = ib->b;
  Block *nb = arena_new_of(m->arena, Block);
  nb->name = arena_printf(m->arena, "%s_init", b->name);
  nb->iter = arena_array(m->arena, BlockIter, b->niter);
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind == ITER_SPATIAL) nb->iter[nb->niter++] = b->iter[i];
  nb->predicate = predicate;
  nb->body = b->init;
  block_infer_access(m, nb);
  Stmt *nest = stmt_block(m, nb);
  for (int i = ib->nloop - 1; i >= outer; i--)
    if (ib->spatial[i] || (predicate && expr_uses_var(predicate, ib->loop[i]->u.loop.var))) {
      const Stmt *l = ib->loop[i];
      nest = lower_loop_like(m, l, l->u.loop.var, l->u.loop.extent, nest);
      nest->u.loop.min = l->u.loop.min;
    }
  return stmt_clone_fresh(m, nest, NULL);
}

static void guard_init(Module *m, Block *b)
{
  const Expr *first = NULL;
  for (int i = 0; i < b->niter; i++) {
    if (b->iter[i].kind == ITER_SPATIAL) continue;
    const Expr *at = expr_binary(m, E_EQ, b->iter[i].var->expr, b->iter[i].min);
    first = first ? expr_and(m, first, at) : at;
  }
  b->body = lower_then(m, first ? stmt_if(m, first, b->init, NULL) : b->init, b->body);
}

static void decompose(Lower *lo, Stmt *s)
{
  Arena *tmp = scratch(lo->ctx);
  InitBlock ib = {.lo = lo, .stmt = s, .b = s->u.block};
  ib.nloop = stmt_loops(tmp, s, &ib.loop);
  ib.reduces = arena_array(tmp, bool, ib.nloop);
  ib.spatial = arena_array(tmp, bool, ib.nloop);
  classify_loops(&ib);
  int outer = ib.nloop;
  bool mixed = false;
  for (int i = ib.nloop - 1; i >= 0; i--) {
    if (ib.reduces[i]) outer = i;
    mixed |= ib.reduces[i] && ib.spatial[i];
  }
  const Expr *predicate = NULL;
  if (outer == ib.nloop || mixed || !spatial_predicate(&ib, &predicate)) {
    guard_init(lo->m, ib.b);
  } else {
    Stmt *nest = init_nest(&ib, outer, predicate);
    stmt_replace(lo->f, ib.loop[outer], stmt_seq(lo->m, 2, (Stmt *[]){nest, ib.loop[outer]}));
  }
  ib.b->init = NULL;
  stmt_link(lo->f->body, NULL);
}

typedef struct InitBlocks {
  Arena *arena;
  Vec(Stmt *) v;
} InitBlocks;

static bool find_init(void *env, Stmt *s)
{
  InitBlocks *found = env;
  if (s->kind == S_BLOCK && s->u.block->init) vec_push(found->arena, &found->v, s);
  return true;
}

void lower_pass_decompose_init(Lower *lo)
{
  InitBlocks found = {.arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, find_init, &found);
  for (int i = 0; i < found.v.n; i++) decompose(lo, found.v.v[i]);
}
