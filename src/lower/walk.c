/* walk.c: small tools over statements that several passes use. */
#include "lower/internal.h"

static Stmt *map_seq(Module *m, Stmt *s, StmtFn fn, void *env)
{
  int n = 0;
  bool nested = false;
  for (int i = 0; i < s->u.seq.n; i++) {
    Stmt *c = fn(env, s->u.seq.v[i]);
    if (!c || lower_is_nop(c)) continue;
    nested |= c->kind == S_SEQ;
    s->u.seq.v[n++] = c;
  }
  s->u.seq.n = n;
  if (!nested) return s;
  Stmt *flat = stmt_seq(m, n, s->u.seq.v);
  if (flat->kind == S_SEQ) {
    s->u.seq.v = flat->u.seq.v;
    s->u.seq.n = flat->u.seq.n;
    s->u.seq.cap = flat->u.seq.cap;
  }
  return s;
}

void lower_map_children(Module *m, Stmt *s, StmtFn fn, void *env)
{
  if (s->kind == S_SEQ) {
    map_seq(m, s, fn, env);
    return;
  }
  Stmt **slot[2];
  int n = stmt_children(s, slot, 2);
  for (int i = 0; i < n; i++) {
    Stmt *c = fn(env, *slot[i]);
    *slot[i] = c ? c : stmt_nop(m);
  }
}

void lower_map_exprs(Stmt *s, ExprFn fn, void *env)
{
  switch (s->kind) {
  case S_SEQ:
  case S_BLOCK: break;
  case S_FOR:
    s->u.loop.min = fn(env, s->u.loop.min);
    s->u.loop.extent = fn(env, s->u.loop.extent);
    break;
  case S_IF: s->u.cond.cond = fn(env, s->u.cond.cond); break;
  case S_WHILE: s->u.loop_while.cond = fn(env, s->u.loop_while.cond); break;
  case S_LET: s->u.let.value = fn(env, s->u.let.value); break;
  case S_STORE:
    for (int i = 0; i < s->u.store.n; i++) s->u.store.index[i] = fn(env, s->u.store.index[i]);
    s->u.store.value = fn(env, s->u.store.value);
    if (s->u.store.mask) s->u.store.mask = fn(env, s->u.store.mask);
    break;
  case S_ALLOC:
    if (s->u.alloc.offset) s->u.alloc.offset = fn(env, s->u.alloc.offset);
    break;
  case S_EVAL: s->u.eval.value = fn(env, s->u.eval.value); break;
  case S_ATTR:
    if (s->u.attr.value) s->u.attr.value = fn(env, s->u.attr.value);
    break;
  }
}

bool lower_is_nop(const Stmt *s)
{
  return (s->kind == S_EVAL && expr_is_pure(s->u.eval.value)) || (s->kind == S_SEQ && s->u.seq.n == 0);
}

Stmt *lower_then(Module *m, Stmt *a, Stmt *b)
{
  if (!a || lower_is_nop(a)) return b ? b : stmt_nop(m);
  if (!b || lower_is_nop(b)) return a;
  return stmt_seq(m, 2, (Stmt *[]){a, b});
}

static bool count_one(void *env, Stmt *s)
{
  *(int *)env += s->kind != S_SEQ;
  return true;
}

int lower_count(Stmt *s)
{
  int n = 0;
  stmt_visit(s, count_one, &n);
  return n;
}

typedef struct Uses {
  Ctx *ctx;
  const Var *var, *data; /* one of them */
  bool found;
} Uses;

static void look_in_load(void *env, const Expr *e)
{
  Uses *u = env;
  u->found |= e->kind == E_LOAD && e->u.buffer->data == u->data;
}

static void look_in_expr(void *env, Stmt *holder, const Expr *e)
{
  Uses *u = env;
  (void)holder;
  if (u->found) return;
  if (expr_uses_var(e, u->var ? u->var : u->data)) u->found = true;
  else if (u->data && expr_has_kind(e, E_LOAD)) expr_visit(u->ctx, e, look_in_load, u);
}

static bool look_in_stmt(void *env, Stmt *s)
{
  Uses *u = env;
  if (s->kind == S_STORE && s->u.store.buffer->data == u->data) u->found = true;
  return !u->found;
}

bool lower_uses_var(Stmt *s, const Var *var)
{
  Uses u = {.var = var};
  stmt_visit_exprs(s, look_in_expr, &u);
  return u.found;
}

bool lower_uses_buffer(Ctx *ctx, Stmt *s, const Buffer *buffer)
{
  Uses u = {.ctx = ctx, .data = buffer->data};
  stmt_visit(s, look_in_stmt, &u);
  if (!u.found) stmt_visit_exprs(s, look_in_expr, &u);
  return u.found;
}

const Expr *lower_unlikely(const Expr *cond, bool *likely)
{
  bool found = false;
  while (cond->kind == E_CALL && cond->u.intrin == IN_LIKELY) {
    cond = cond->arg[0];
    found = true;
  }
  if (likely) *likely = found;
  return cond;
}

const Expr *lower_likely(Module *m, const Expr *cond)
{
  if (cond->kind == E_INT || (cond->kind == E_CALL && cond->u.intrin == IN_LIKELY)) return cond;
  return expr_call(m, DT_NONE, IN_LIKELY, 1, &cond);
}

void lower_conjuncts(Arena *arena, const Expr *cond, ExprVec *out)
{
  cond = lower_unlikely(cond, NULL);
  if (cond->kind == E_AND && cond->dtype.lanes == 1) {
    lower_conjuncts(arena, cond->arg[0], out);
    lower_conjuncts(arena, cond->arg[1], out);
    return;
  }
  vec_push(arena, out, cond);
}

const Expr *lower_conjunction(Module *m, int n, const Expr *const *v)
{
  const Expr *all = NULL;
  for (int i = 0; i < n; i++) all = all ? expr_and(m, all, v[i]) : v[i];
  return all;
}

Stmt *lower_loop_like(Module *m, const Stmt *s, const Var *var, const Expr *extent, Stmt *body)
{
  Stmt *to = stmt_for(m, var, expr_int(m, var->dtype, 0), extent, s->u.loop.kind, s->u.loop.thread_tag, body);
  for (int i = 0; i < s->u.loop.annots.n; i++)
    annots_set(m->arena, &to->u.loop.annots, s->u.loop.annots.v[i].key, s->u.loop.annots.v[i].value);
  to->loc = s->loc;
  return to;
}

const Expr *lower_int(Module *m, const Expr *like, int64_t i) { return expr_int(m, dtype_elem(like->dtype), i); }

bool lower_const_int(const Expr *e, int64_t *out)
{
  if (e->kind != E_INT) return false;
  *out = e->u.i;
  return true;
}
