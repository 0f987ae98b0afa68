/* rewrite.c: the form of an expression that TVM's rewrite rules end in.
 *
 * In: any expression.  Out: one equal to it for every value its variables may take, operands in the order that the user
 * wrote, a literal on the right, x + -1 for x - 1.  Arguments come first; then the root is rewritten by the rules of
 * forms.def until none fits.  Where expr_simplify finds something shorter that is taken, so that the result is never
 * weaker than that.
 *
 * Termination: every rewriting costs one of a fixed number of steps, and an expression that is met while it is being
 * rewritten stays as it is. */
#include "expr/analysis.h"

enum { MAX_STEPS = 4000 };

typedef struct Forms {
  Analyzer *a;
  Map done; /* Expr* -> Expr*; itself while it is being rewritten */
  int steps;
} Forms;

static const Expr *rewrite(Forms *, const Expr *);

static const Expr *unsplat(const Expr *e) { return e->kind == E_BROADCAST ? e->arg[0] : e; }

/* A branch, where the condition is known to have this value. */
static const Expr *rewrite_under(Forms *w, const Expr *cond, bool value, const Expr *e)
{
  if (!(cond->uses & e->uses) || !e->nargs || !analyzer_assumption_helps(w->a, cond)) return rewrite(w, e);
  Forms below = {.a = w->a, .steps = w->steps};
  int mark = analyzer_trial_begin(w->a);
  analyzer_push(w->a, value ? cond : expr_not(w->a->m, cond));
  const Expr *r = rewrite(&below, e);
  analyzer_trial_end(w->a, mark);
  w->steps = below.steps;
  return r;
}

static const Expr *rewrite_args(Forms *w, const Expr *e)
{
  const Expr **arg = arena_array(w->a->arena, const Expr *, e->nargs);
  bool choice = e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE;
  for (int i = 0; i < e->nargs; i++)
    arg[i] = choice && i ? rewrite_under(w, arg[0], i == 1, e->arg[i]) : rewrite(w, e->arg[i]);
  return expr_with_args(w->a->m, e, arg);
}

static const Expr *rewrite_root(Forms *w, const Expr *e)
{
  Analyzer *a = w->a;
  const Expr *r = expr_fold(a->m, e);
  if (r) return r;
  const Expr *simple = expr_simplify(a, e);
  if (expr_is_const(unsplat(simple))) return simple;
  r = expr_hoist_broadcast(a, e);
  if (r == e) r = rules_apply(a, RULES_FORMS, e);
  if (r && r != e && w->steps++ < MAX_STEPS) return rewrite(w, r);
  return expr_size(a, simple) < expr_size(a, e) ? simple : e;
}

static const Expr *rewrite(Forms *w, const Expr *e)
{
  if (e->kind == E_VAR) return expr_simplify(w->a, e);
  if (e->nargs == 0) return e;
  if (e->kind == E_LET || e->kind == E_REDUCE || !e->pure) return expr_simplify(w->a, e);
  const Expr *r = map_get(&w->done, e);
  if (r) return r;
  map_put(w->a->arena, &w->done, e, (void *)e);
  r = rewrite_args(w, e);
  r = r == e || r->nargs == 0 ? rewrite_root(w, r) : rewrite(w, r);
  map_put(w->a->arena, &w->done, e, (void *)r);
  return r;
}

/* A zero that the user wrote as a divisor is a mistake to report.  One that only rewriting brings out may stand in a
 * branch that is never taken, and is left where it is. */
static void check_divisor(void *env, const Expr *e)
{
  Analyzer *a = env;
  bool divides = e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD;
  if (divides && dtype_is_int(e->dtype) && expr_is_int(unsplat(e->arg[1]), 0))
    raise(a->ctx, ERR_ARGUMENT, NOWHERE, "division by zero in '%s'", expr_str_of(scratch(a->ctx), e));
}

const Expr *analyzer_rewrite(Analyzer *a, const Expr *e)
{
  expr_visit(a->ctx, e, check_divisor, a);
  Forms w = {.a = a};
  return rewrite(&w, e);
}
