/* hoist.c: sizes that take a division are computed once.
 *
 * lower_pass_hoist_sizes
 *   Extents and strides of what is known only at run time may be quotients of each other.  No backend takes a division
 *   out of a loop, since a loop that does not run must not divide by zero.  An index or a bound that depends on the
 *   function's parameters alone, and divides by something that is no number, becomes a let around the whole body; a
 *   divisor that may be zero there, where nobody wants the quotient, is taken to be one.
 *
 * needs   everything spelled out
 * keeps   everything else; what memory takes is said by the parameters, as before
 * breaks  nothing */
#include "lower/internal.h"

typedef struct Hoist {
  Lower *lo;
  Arena *tmp;
  Map inner; /* variables of loops and lets */
  Map done;  /* Expr* -> Expr* */
  Vec(const Var *) vars;
  ExprVec values;
} Hoist;

static bool note_inner(void *env, Stmt *s)
{
  Hoist *h = env;
  if (s->kind == S_FOR) map_put(h->tmp, &h->inner, s->u.loop.var, h);
  if (s->kind == S_LET) map_put(h->tmp, &h->inner, s->u.let.var, h);
  return true;
}

static bool is_division(const Expr *e)
{
  return e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD;
}

static void note_division(void *env, const Expr *e)
{
  if (is_division(e) && e->arg[1]->kind != E_INT) *(bool *)env = true;
}

static bool is_worth_it(Hoist *h, const Expr *e)
{
  if (!dtype_is_int(e->dtype) || e->dtype.lanes != 1 || expr_has_kind(e, E_LOAD) || expr_has_kind(e, E_CALL) ||
      expr_has_kind(e, E_LET))
    return false;
  bool divides = false;
  expr_visit(h->lo->ctx, e, note_division, &divides);
  const Var **v;
  int n = divides ? expr_free_vars(h->tmp, e, &v) : 0;
  for (int i = 0; i < n; i++)
    if (map_has(&h->inner, v[i]) || v[i]->dtype.code == DT_HANDLE) return false;
  return n > 0;
}

/* The same, with no division by zero. */
static const Expr *safe(Hoist *h, const Expr *e)
{
  Module *m = h->lo->m;
  if (e->nargs == 0) return e;
  const Expr **arg = arena_array(h->tmp, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = safe(h, e->arg[i]);
  if (is_division(e) && arg[1]->kind != E_INT) {
    const Expr *none = expr_binary(m, E_EQ, arg[1], lower_int(m, arg[1], 0));
    arg[1] = expr_select(m, none, lower_int(m, arg[1], 1), arg[1]);
  }
  return expr_with_args(m, e, arg);
}

static const Expr *hoisted(Hoist *h, const Expr *e)
{
  Module *m = h->lo->m;
  if (e->nargs == 0 || e->kind == E_LET) return e;
  const Expr *r = map_get(&h->done, e);
  if (r) return r;
  if (is_worth_it(h, e)) {
    const Var *v = var_new(m, "size", e->dtype, VAR_PLAIN);
    vec_push(h->tmp, &h->vars, v);
    vec_push(h->tmp, &h->values, safe(h, e));
    r = v->expr;
  } else {
    const Expr **arg = arena_array(h->tmp, const Expr *, e->nargs);
    for (int i = 0; i < e->nargs; i++) arg[i] = hoisted(h, e->arg[i]);
    r = expr_with_args(m, e, arg);
  }
  map_put(h->tmp, &h->done, e, (void *)(uintptr_t)r);
  return r;
}

static const Expr *hoist_held(void *env, const Expr *e) { return hoisted(env, e); }

static Stmt *hoist_stmt(void *env, Stmt *s)
{
  Hoist *h = env;
  lower_map_children(h->lo->m, s, hoist_stmt, h);
  if (s->kind != S_ALLOC) lower_map_exprs(s, hoist_held, h);
  return s;
}

void lower_pass_hoist_sizes(Lower *lo)
{
  if (lower_for_gpu(lo)) return;
  Hoist h = {.lo = lo, .tmp = scratch(lo->ctx)};
  stmt_visit(lo->f->body, note_inner, &h);
  Stmt *body = hoist_stmt(&h, lo->f->body);
  for (int i = h.vars.n - 1; i >= 0; i--) body = stmt_let(lo->m, h.vars.v[i], h.values.v[i], body);
  lo->f->body = body;
}
