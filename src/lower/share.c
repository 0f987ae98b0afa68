/* share.c: terms used more than once get a name.
 *
 * lower_pass_share_terms
 *   An expression is a DAG; written out as a tree it may be exponential (elementary
 *   functions use their argument many times).  A term of some size that a statement
 *   uses twice or more becomes a let before the statement.  What stands only in a
 *   branch of if_then_else and could fail elsewhere (loads, divisions) is named
 *   inside that branch.
 *
 * needs   everything spelled out
 * keeps   everything else
 * breaks  nothing; after it the expressions of a statement can be printed as trees */
#include "lower/internal.h"

enum { WORTH_A_NAME = 5, SPELLED_OUT = 64 }; /* nodes in a term, counted as a tree */

typedef struct Term {
  int uses, size;
  bool sure; /* evaluated whenever the statement is */
} Term;

typedef struct Share {
  Lower *lo;
  Arena *tmp;
  Map term;                /* Expr* -> Term* */
  Vec(const Expr *) order; /* arguments first */
  Map named;               /* Expr* -> Expr*: the variable, or the rewritten term */
  Vec(const Var *) vars;
  ExprVec values;
  bool strided; /* the statement has vectors whose lanes lie apart */
} Share;

static bool may_fail(const Expr *e)
{
  return expr_has_kind(e, E_LOAD) || expr_has_kind(e, E_DIV) || expr_has_kind(e, E_MOD) || !expr_is_pure(e);
}

static bool is_choice(const Expr *e)
{
  return e->kind == E_AND || e->kind == E_OR || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
}

/* Integers of constants alone have no name: the code generator folds them, and sees by them where a vector's lanes
 * lie. */
static bool is_folded(const Expr *e)
{
  return dtype_is_int(e->dtype) && !expr_has_kind(e, E_VAR) && !expr_has_kind(e, E_LOAD) && !expr_has_kind(e, E_CALL);
}

/* So have the places of vectors whose lanes lie apart: by them the code generator finds the squares of memory that
 * several statements read together. */
static bool is_place(const Share *sh, const Expr *e, int size)
{
  return sh->strided && size <= SPELLED_OUT && dtype_is_int(e->dtype) && e->dtype.lanes == 1 &&
         !expr_has_kind(e, E_LOAD);
}

static int count_term(Share *sh, const Expr *e, bool sure)
{
  if (e->nargs == 0 || e->kind == E_LET) return 1;
  sh->strided |= e->kind == E_RAMP && !expr_is_int(e->arg[1], 1);
  Term *t = map_get(&sh->term, e);
  if (t) {
    t->uses++;
    if (t->sure || !sure) return t->size;
  } else {
    t = arena_new_of(sh->tmp, Term);
    t->uses = 1;
    map_put(sh->tmp, &sh->term, e, t);
  }
  bool first = !t->size;
  t->sure |= sure;
  int size = 1;
  bool pointer = e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF;
  for (int i = 0; i < e->nargs; i++) size += pointer ? 1 : count_term(sh, e->arg[i], sure && !(is_choice(e) && i > 0));
  t->size = size > 1000000 ? 1000000 : size;
  if (first) vec_push(sh->tmp, &sh->order, e);
  return t->size;
}

static const Expr *shared(Share *sh, const Expr *e);

/* A branch of a choice: terms shared in it alone are named in it. */
static const Expr *shared_branch(Share *sh, const Expr *e)
{
  Share in = {.lo = sh->lo, .tmp = sh->tmp};
  count_term(&in, e, true);
  for (int i = 0; i < sh->named.n; i++)
    map_put(sh->tmp, &in.named, (void *)(uintptr_t)sh->named.key[i], sh->named.val[i]);
  const Expr *body = shared(&in, e);
  for (int i = in.vars.n - 1; i >= 0; i--) body = expr_let(sh->lo->m, in.vars.v[i], in.values.v[i], body);
  return body;
}

static const Expr *shared(Share *sh, const Expr *e)
{
  Module *m = sh->lo->m;
  if (e->nargs == 0 || e->kind == E_LET) return e;
  const Expr *done = map_get(&sh->named, e);
  if (done) return done;
  const Term *t = map_get(&sh->term, e);
  const Expr **arg = arena_array(sh->tmp, const Expr *, e->nargs);
  bool pointer = e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF;
  for (int i = 0; i < e->nargs; i++) {
    bool branch = is_choice(e) && i > 0 && may_fail(e->arg[i]);
    arg[i] = pointer ? e->arg[i] : branch ? shared_branch(sh, e->arg[i]) : shared(sh, e->arg[i]);
  }
  const Expr *r = expr_with_args(m, e, arg);
  bool name = t && t->uses > 1 && t->size >= WORTH_A_NAME && (t->sure || !may_fail(e)) && expr_is_pure(e) &&
              !is_folded(e) && !is_place(sh, e, t->size) && e->dtype.code != DT_HANDLE && e->dtype.code != DT_VOID &&
              e->kind != E_BROADCAST && e->kind != E_RAMP;
  if (name) {
    const Var *v = var_new(m, "t", r->dtype, VAR_PLAIN);
    vec_push(sh->tmp, &sh->vars, v);
    vec_push(sh->tmp, &sh->values, r);
    r = v->expr;
  }
  map_put(sh->tmp, &sh->named, e, (void *)(uintptr_t)r);
  return r;
}

static const Expr *count_held(void *env, const Expr *e)
{
  count_term(env, e, true);
  return e;
}

static const Expr *share_held(void *env, const Expr *e) { return shared(env, e); }

static Stmt *share_stmt(void *env, Stmt *s)
{
  Lower *lo = env;
  lower_map_children(lo->m, s, share_stmt, lo);
  if (s->kind != S_STORE && s->kind != S_LET && s->kind != S_EVAL) return s;
  Scope scope = scope_begin(lo->ctx);
  Share sh = {.lo = lo, .tmp = scratch(lo->ctx)};
  lower_map_exprs(s, count_held, &sh);
  bool any = false;
  for (int i = 0; i < sh.order.n && !any; i++) any = ((Term *)map_get(&sh.term, sh.order.v[i]))->uses > 1;
  Stmt *out = s;
  if (any) {
    lower_map_exprs(s, share_held, &sh);
    for (int i = sh.vars.n - 1; i >= 0; i--) out = stmt_let(lo->m, sh.vars.v[i], sh.values.v[i], out);
  }
  scope_end(lo->ctx, scope);
  return out;
}

void lower_pass_share_terms(Lower *lo) { lo->f->body = share_stmt(lo, lo->f->body); }
