/* cstyle_stmt.c: statements, and what a kernel uses. */
#include "codegen/cstyle.h"

/* ---- what is used ------------------------------------------------------------------------ */

typedef struct Uses {
  Cgen *g;
  Stmt *holder;
} Uses;

static void note_expr(void *env, const Expr *e)
{
  Uses *u = env;
  Cgen *g = u->g;
  if (e->kind == E_VAR) {
    map_put(g->arena, &g->used, e->u.var, g);
    Access *a = map_get(&g->access, e->u.var);
    if (a) cs_note_access(g, a->alloc->u.alloc.buffer, NULL, u->holder, true, false);
  }
  if (e->kind == E_LOAD) {
    map_put(g->arena, &g->used, e->u.buffer->data, g);
    cs_note_access(g, e->u.buffer, e->nargs == 1 ? e->arg[0] : NULL, u->holder, true, true);
  }
  if (e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF && e->arg[0]->kind == E_LOAD)
    cs_note_access(g, e->arg[0]->u.buffer, NULL, u->holder, true, false);
}

static void note_held(void *env, Stmt *holder, const Expr *e)
{
  Uses u = {env, holder};
  expr_visit(u.g->ctx, e, note_expr, &u);
}

static bool note_stmt(void *env, Stmt *s)
{
  Cgen *g = env;
  if (s->kind == S_STORE) {
    map_put(g->arena, &g->used, s->u.store.buffer->data, g);
    cs_note_access(g, s->u.store.buffer, s->u.store.n == 1 ? s->u.store.index[0] : NULL, s, false,
                   s->u.store.mask == NULL);
  }
  return true;
}

static bool find_allocs(void *env, Stmt *s)
{
  if (s->kind == S_ALLOC) cs_note_alloc(env, s);
  return true;
}

void cs_scan_uses(Cgen *g, Stmt *body)
{
  stmt_link(body, NULL);
  stmt_visit(body, find_allocs, g);
  stmt_visit(body, note_stmt, g);
  stmt_visit_exprs(body, note_held, g);
}

typedef struct PlaceSearch {
  Place place;
  bool found;
} PlaceSearch;

static bool look_for_place(void *env, Stmt *s)
{
  PlaceSearch *p = env;
  if (s->kind == S_ALLOC && s->u.alloc.place == p->place) p->found = true;
  return !p->found;
}

bool cs_uses_place(Stmt *s, Place place)
{
  PlaceSearch p = {place, false};
  stmt_visit(s, look_for_place, &p);
  return p.found;
}

static void look_for_packed(void *env, const Expr *e)
{
  if (e->kind == E_CALL && e->u.intrin == IN_CALL_PACKED) *(bool *)env = true;
}

typedef struct RuntimeSearch {
  Cgen *g;
  bool found;
} RuntimeSearch;

static bool look_for_runtime(void *env, Stmt *s)
{
  RuntimeSearch *r = env;
  if (s->kind == S_FOR && s->u.loop.kind == FOR_PARALLEL) r->found = true;
  if (s->kind == S_EVAL) expr_visit(r->g->ctx, s->u.eval.value, look_for_packed, &r->found);
  return !r->found;
}

bool cs_uses_runtime(Cgen *g, Stmt *s)
{
  RuntimeSearch r = {g, false};
  stmt_visit(s, look_for_runtime, &r);
  return r.found;
}

/* ---- statements ---------------------------------------------------------------------------- */

static void block(Cgen *g, Stmt *s)
{
  g->indent++;
  cs_stmt(g, s);
  g->indent--;
}

static void loop(Cgen *g, Stmt *s)
{
  const Var *v = s->u.loop.var;
  const Expr *min = s->u.loop.min;
  const Expr *extent = s->u.loop.extent;
  if (s->u.loop.kind == FOR_VECTORIZED) BUG(g->ctx, "kernel form has no vector loop ('%s')", v->name);
  const char *name = cs_name(g, v);
  const char *type = cs_type(g, v->dtype);
  const char *end;
  const char *begin = cs_text(g, min);
  bool from_zero = expr_is_int(min, 0);
  if (extent->kind == E_INT && from_zero) end = cs_text(g, extent);
  else if (extent->kind == E_VAR && from_zero) end = cs_name(g, extent->u.var);
  else { /* once, not at every step */ const char *n = cs_wrap(g, cs_expr(g, extent), P_ADD);
    const char *last = cs_fresh(g, cs_fmt(g, "%s_end", name));
    if (from_zero) cs_line(g, "const %s %s = %s;", type, last, n);
    else cs_line(g, "const %s %s = %s + %s;", type, last, cs_wrap(g, cs_expr(g, min), P_ADD), n);
    end = last;
  }
  if (s->u.loop.kind == FOR_UNROLLED) cs_line(g, "%s", g->dialect->unroll);
  cs_line(g, "for (%s %s = %s; %s < %s; %s++) {", type, name, begin, name, end, name);
  block(g, s->u.loop.body);
  cs_line(g, "}");
}

static void thread_loop(Cgen *g, Stmt *s)
{
  const char *tag = s->u.loop.thread_tag;
  if (str_starts(tag, "vthread")) {
    s->u.loop.kind = FOR_UNROLLED;
    loop(g, s);
    s->u.loop.kind = FOR_THREAD;
    return;
  }
  if (!g->dialect->barrier) cs_unsupported(g, "loop '%s' bound to %s", s->u.loop.var->name, tag);
  if (map_get(&g->used, s->u.loop.var)) {
    const char *type = cs_type(g, s->u.loop.var->dtype);
    cs_line(g, "const %s %s = (%s)%s;", type, cs_name(g, s->u.loop.var), type, tag);
  }
  cs_stmt(g, s->u.loop.body);
}

static void conditional(Cgen *g, Stmt *s)
{
  cs_line(g, "if (%s) {", cs_text(g, s->u.cond.cond));
  block(g, s->u.cond.then);
  if (s->u.cond.orelse) {
    cs_line(g, "} else {");
    block(g, s->u.cond.orelse);
  }
  cs_line(g, "}");
}

static void while_loop(Cgen *g, Stmt *s)
{
  Aside aside;
  cs_aside_begin(g, &aside);
  const char *cond = cs_text(g, s->u.loop_while.cond);
  if (!cs_aside_end(g, &aside)) {
    cs_line(g, "while (%s) {", cond);
  } else {
    cs_line(g, "for (;;) {");
    text_add(g->out, text_str(&aside.text));
    g->indent++;
    cs_line(g, "if (!(%s)) break;", cond);
    g->indent--;
  }
  block(g, s->u.loop_while.body);
  cs_line(g, "}");
}

static void let_stmt(Cgen *g, Stmt *s)
{
  const Var *v = s->u.let.var;
  if (map_get(&g->used, v) || !expr_is_pure(s->u.let.value)) cs_bind(g, v, s->u.let.value);
  else if (cs_wraps(g, s->u.let.value)) map_put(g->arena, &g->data, v, (void *)1);
}

static void print_stmt(Cgen *g, Stmt *s)
{
  switch (s->kind) {
  case S_SEQ: cs_sequence(g, s); return;
  case S_FOR:
    if (s->u.loop.kind == FOR_PARALLEL && g->dialect->parallel && !g->in_part) cs_parallel(g, s);
    else if (s->u.loop.kind == FOR_THREAD) thread_loop(g, s);
    else loop(g, s);
    return;
  case S_IF: conditional(g, s); return;
  case S_WHILE: while_loop(g, s); return;
  case S_LET:
    let_stmt(g, s);
    cs_stmt(g, s->u.let.body);
    return;
  case S_STORE: cs_store(g, s); return;
  case S_ALLOC: cs_alloc(g, s); return;
  case S_EVAL: cs_eval(g, s->u.eval.value); return;
  case S_ATTR: cs_stmt(g, s->u.attr.body); return;
  case S_BLOCK: break;
  }
  BUG(g->ctx, "kernel form has no blocks");
}

/* What s itself holds. */
static void share_held(Cgen *g, Stmt *s)
{
  cs_share_begin(g);
  switch (s->kind) {
  case S_FOR: cs_share(g, s->u.loop.extent); break;
  case S_IF: cs_share(g, s->u.cond.cond); break;
  case S_WHILE: cs_share(g, s->u.loop_while.cond); break;
  case S_LET: cs_share(g, s->u.let.value); break;
  case S_STORE:
    cs_share(g, s->u.store.index[0]);
    cs_share(g, s->u.store.value);
    cs_share(g, s->u.store.mask);
    break;
  case S_EVAL: cs_share(g, s->u.eval.value); break;
  case S_SEQ:
  case S_ALLOC:
  case S_ATTR:
  case S_BLOCK: break;
  }
}

/* Texts of a statement live in scratch memory until it is printed. */
void cs_stmt(Cgen *g, Stmt *s)
{
  int bound = g->bound.n;
  int bases = g->bases.n;
  bool leaf = s->kind == S_STORE || s->kind == S_EVAL;
  if (leaf) {
    Scope scope = scope_begin(g->ctx);
    share_held(g, s);
    print_stmt(g, s);
    cs_share_begin(g);
    scope_end(g->ctx, scope);
  } else {
    share_held(g, s);
    print_stmt(g, s);
  }
  g->bound.n = bound;
  g->bases.n = bases;
}
