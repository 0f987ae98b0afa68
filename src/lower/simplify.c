/* simplify.c: expressions in their simplest form, statements that do nothing gone.
 *
 * lower_pass_simplify
 *   Loops of one step are replaced by their body, loops of none dropped, loop ranges
 *   made to start at 0; conditions known to hold or to fail are decided; lets of
 *   constants and variables, unused lets and unused allocations are removed; every
 *   expression is simplified under the ranges and conditions around it.
 *
 * needs   no blocks
 * keeps   everything else
 * breaks  nothing */
#include "lower/internal.h"

typedef struct Simplify {
  Lower *lo;
  Analyzer *an;
  Map subst; /* Var* -> Expr*: loops of one step, trivial lets */
  Arena *tmp;
} Simplify;

static const Expr *simple(Simplify *z, const Expr *e)
{
  if (z->subst.n) e = expr_substitute(z->lo->m, e, &z->subst);
  if (e->kind == E_CALL && e->u.intrin == IN_LIKELY)
    return lower_likely(z->lo->m, expr_simplify(z->an, lower_unlikely(e, NULL)));
  return expr_simplify(z->an, e);
}

static const Expr *simple_held(void *env, const Expr *e) { return simple(env, e); }

static Stmt *simple_stmt(void *env, Stmt *s);

static Stmt *simple_for(Simplify *z, Stmt *s)
{
  Module *m = z->lo->m;
  const Var *var = s->u.loop.var;
  const Expr *min = simple(z, s->u.loop.min);
  const Expr *extent = simple(z, s->u.loop.extent);
  int64_t n;
  if (lower_const_int(extent, &n) && n <= 0) return stmt_nop(m);
  if (n == 1 && extent->kind == E_INT && s->u.loop.kind != FOR_THREAD) {
    map_put(z->tmp, &z->subst, var, (void *)(uintptr_t)expr_cast(m, var->dtype, min));
    return simple_stmt(z, s->u.loop.body);
  }
  const Expr *zero = expr_int(m, var->dtype, 0);
  if (min != zero) /* the same variable, counted from 0 */
    map_put(z->tmp, &z->subst, var, (void *)(uintptr_t)expr_add(m, var->expr, min));
  s->u.loop.min = zero;
  s->u.loop.extent = extent;
  analyzer_bind(z->an, var, zero, extent);
  s->u.loop.body = simple_stmt(z, s->u.loop.body);
  return lower_is_nop(s->u.loop.body) ? s->u.loop.body : s;
}

static Stmt *simple_if(Simplify *z, Stmt *s)
{
  Module *m = z->lo->m;
  const Expr *cond = simple(z, s->u.cond.cond);
  if (cond->kind == E_INT) {
    Stmt *taken = cond->u.i ? s->u.cond.then : s->u.cond.orelse;
    return taken ? simple_stmt(z, taken) : stmt_nop(m);
  }
  const Expr *plain = lower_unlikely(cond, NULL);
  int mark = analyzer_push(z->an, plain);
  Stmt *then = simple_stmt(z, s->u.cond.then);
  Stmt *orelse = s->u.cond.orelse;
  analyzer_pop(z->an, mark);
  if (orelse) {
    mark = analyzer_push(z->an, expr_not(m, plain));
    orelse = simple_stmt(z, orelse);
    analyzer_pop(z->an, mark);
    if (lower_is_nop(orelse)) orelse = NULL;
  }
  if (lower_is_nop(then)) {
    if (!orelse) return expr_is_pure(plain) ? then : stmt_eval(m, plain);
    cond = expr_simplify(z->an, expr_not(m, plain));
    then = orelse;
    orelse = NULL;
  }
  s->u.cond.cond = cond;
  s->u.cond.then = then;
  s->u.cond.orelse = orelse;
  return s;
}

static Stmt *simple_let(Simplify *z, Stmt *s)
{
  const Expr *value = simple(z, s->u.let.value);
  if (expr_is_const(value) || value->kind == E_VAR || value->kind == E_STR) {
    map_put(z->tmp, &z->subst, s->u.let.var, (void *)(uintptr_t)value);
    return simple_stmt(z, s->u.let.body);
  }
  s->u.let.value = value;
  s->u.let.body = simple_stmt(z, s->u.let.body);
  bool used = lower_uses_var(s->u.let.body, s->u.let.var);
  return used || !expr_is_pure(value) ? s : s->u.let.body;
}

/* C[i] = C[i] */
static bool stores_what_it_holds(const Stmt *s)
{
  const Expr *v = s->u.store.value;
  if (v->kind != E_LOAD || v->u.buffer != s->u.store.buffer) return false;
  for (int i = 0; i < s->u.store.n; i++)
    if (v->arg[i] != s->u.store.index[i]) return false;
  return true;
}

static Stmt *simple_stmt(void *env, Stmt *s)
{
  Simplify *z = env;
  Module *m = z->lo->m;
  switch (s->kind) {
  case S_SEQ:
    lower_map_children(m, s, simple_stmt, z);
    return s->u.seq.n == 0 ? stmt_nop(m) : s->u.seq.n == 1 ? s->u.seq.v[0] : s;
  case S_FOR: return simple_for(z, s);
  case S_IF: return simple_if(z, s);
  case S_LET: return simple_let(z, s);
  case S_WHILE:
    s->u.loop_while.cond = simple(z, s->u.loop_while.cond);
    s->u.loop_while.body = simple_stmt(z, s->u.loop_while.body);
    return s;
  case S_STORE: lower_map_exprs(s, simple_held, z); return stores_what_it_holds(s) ? stmt_nop(m) : s;
  case S_ALLOC:
    s->u.alloc.body = simple_stmt(z, s->u.alloc.body);
    return lower_uses_buffer(m->ctx, s->u.alloc.body, s->u.alloc.buffer) ? s : s->u.alloc.body;
  case S_EVAL: lower_map_exprs(s, simple_held, z); return s;
  case S_ATTR:
    lower_map_exprs(s, simple_held, z);
    s->u.attr.body = simple_stmt(z, s->u.attr.body);
    return lower_is_nop(s->u.attr.body) ? s->u.attr.body : s;
  case S_BLOCK: break;
  }
  BUG(z->lo->ctx, "simplify: a block is left");
}

Stmt *lower_simplify(Lower *lo, Analyzer *an, Stmt *s)
{
  Simplify z = {.lo = lo, .an = an, .tmp = scratch(lo->ctx)};
  return simple_stmt(&z, s);
}

Analyzer *lower_analyzer(Lower *lo) { return analyzer_new(lo->m, scratch(lo->ctx)); }

void lower_pass_simplify(Lower *lo) { lo->f->body = lower_simplify(lo, lower_analyzer(lo), lo->f->body); }
