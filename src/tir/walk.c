/* walk.c: visiting and rewriting statements in place.
 *
 * each_expr is the one list of the expression slots that a statement holds; each
 * visitor and rewriter goes through it, so a new field is added in one place. */
#include "tir/tir.h"

int stmt_children(Stmt *s, Stmt ***slot, int max)
{
  int n = 0;
#define CHILD(p) ((n < max ? (void)(slot[n] = &(p)) : (void)0), n++)
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) CHILD(s->u.seq.v[i]);
    break;
  case S_FOR: CHILD(s->u.loop.body); break;
  case S_IF:
    CHILD(s->u.cond.then);
    if (s->u.cond.orelse) CHILD(s->u.cond.orelse);
    break;
  case S_WHILE: CHILD(s->u.loop_while.body); break;
  case S_LET: CHILD(s->u.let.body); break;
  case S_ALLOC: CHILD(s->u.alloc.body); break;
  case S_ATTR: CHILD(s->u.attr.body); break;
  case S_BLOCK:
    if (s->u.block->init) CHILD(s->u.block->init);
    CHILD(s->u.block->body);
    break;
  case S_STORE:
  case S_EVAL: break;
  }
#undef CHILD
  return n;
}

void stmt_visit(Stmt *s, bool (*fn)(void *env, Stmt *), void *env)
{
  if (!fn(env, s)) return;
  if (s->kind == S_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++) stmt_visit(s->u.seq.v[i], fn, env);
    return;
  }
  Stmt **slot[2];
  int n = stmt_children(s, slot, 2);
  for (int i = 0; i < n; i++) stmt_visit(*slot[i], fn, env);
}

/* ---- expressions of one statement --------------------------------------------- */

typedef void (*SlotFn)(void *env, Stmt *holder, const Expr **slot);

static void each_region(Stmt *s, int n, Region *v, SlotFn fn, void *env)
{
  for (int i = 0; i < n; i++)
    for (int d = 0; d < v[i].buffer->ndim; d++) {
      fn(env, s, &v[i].min[d]);
      fn(env, s, &v[i].extent[d]);
    }
}

static void each_block_expr(Stmt *s, Block *b, SlotFn fn, void *env)
{
  for (int i = 0; i < b->niter; i++) {
    fn(env, s, &b->iter[i].min);
    fn(env, s, &b->iter[i].extent);
    fn(env, s, &b->iter[i].value);
  }
  if (b->predicate) fn(env, s, &b->predicate);
  each_region(s, b->nreads, b->reads, fn, env);
  each_region(s, b->nwrites, b->writes, fn, env);
  for (int i = 0; i < b->nmatches; i++) each_region(s, 1, &b->matches[i].source, fn, env);
}

static void each_expr(Stmt *s, SlotFn fn, void *env)
{
  switch (s->kind) {
  case S_SEQ: break;
  case S_FOR:
    fn(env, s, &s->u.loop.min);
    fn(env, s, &s->u.loop.extent);
    break;
  case S_IF: fn(env, s, &s->u.cond.cond); break;
  case S_WHILE: fn(env, s, &s->u.loop_while.cond); break;
  case S_LET: fn(env, s, &s->u.let.value); break;
  case S_STORE:
    for (int i = 0; i < s->u.store.n; i++) fn(env, s, &s->u.store.index[i]);
    fn(env, s, &s->u.store.value);
    if (s->u.store.mask) fn(env, s, &s->u.store.mask);
    break;
  case S_ALLOC:
    if (s->u.alloc.offset) fn(env, s, &s->u.alloc.offset);
    break;
  case S_EVAL: fn(env, s, &s->u.eval.value); break;
  case S_ATTR:
    if (s->u.attr.value) fn(env, s, &s->u.attr.value);
    break;
  case S_BLOCK: each_block_expr(s, s->u.block, fn, env); break;
  }
}

typedef struct ExprVisit {
  void (*fn)(void *env, Stmt *holder, const Expr *);
  void *env;
} ExprVisit;

static void visit_slot(void *env, Stmt *holder, const Expr **slot)
{
  ExprVisit *v = env;
  v->fn(v->env, holder, *slot);
}

static bool visit_exprs_of(void *env, Stmt *s)
{
  each_expr(s, visit_slot, env);
  return true;
}

void stmt_visit_exprs(Stmt *s, void (*fn)(void *env, Stmt *holder, const Expr *), void *env)
{
  ExprVisit v = {fn, env};
  stmt_visit(s, visit_exprs_of, &v);
}

typedef struct ExprChange {
  const Expr *(*rw)(void *env, const Expr *);
  void *env;
} ExprChange;

static void change_slot(void *env, Stmt *holder, const Expr **slot)
{
  (void)holder;
  ExprChange *c = env;
  *slot = c->rw(c->env, *slot);
}

static bool change_exprs_of(void *env, Stmt *s)
{
  each_expr(s, change_slot, env);
  return true;
}

void stmt_rewrite_exprs(Stmt *s, const Expr *(*rw)(void *env, const Expr *), void *env)
{
  ExprChange c = {rw, env};
  stmt_visit(s, change_exprs_of, &c);
}

/* ---- substitution ---------------------------------------------------------------- */

typedef struct Subst {
  Module *m;
  const Map *vars; /* Var* -> Expr* */
  Map buffers;     /* Buffer* -> Buffer* */
  Rewriter rw;
} Subst;

static const Expr *subst_node(Rewriter *rw, const Expr *e)
{
  Subst *s = rw->env;
  if (e->kind == E_VAR) {
    const Expr *to = map_get(s->vars, e->u.var);
    return to ? to : e;
  }
  if (e->kind != E_LOAD) return e;
  const Buffer *b = map_get(&s->buffers, e->u.buffer);
  return b ? expr_load(s->m, b, e->nargs, e->arg) : e;
}

static Subst subst_new(Module *m, const Map *vars)
{
  return (Subst){.m = m, .vars = vars, .rw = {.m = m, .fn = subst_node, .arena = scratch(m->ctx)}};
}

static const Expr *subst_expr(void *env, const Expr *e)
{
  Subst *s = env;
  s->rw.env = s;
  return expr_rewrite(&s->rw, e);
}

/* Makes b anew if its shape, strides or offset mention a replaced variable. */
static void subst_declared(Subst *s, const Buffer *b)
{
  const Expr **shape = arena_array(s->m->arena, const Expr *, b->ndim);
  const Expr **strides = b->strides ? arena_array(s->m->arena, const Expr *, b->ndim) : NULL;
  const Expr *offset = b->elem_offset ? subst_expr(s, b->elem_offset) : NULL;
  bool changed = offset != b->elem_offset;
  for (int i = 0; i < b->ndim; i++) {
    changed |= (shape[i] = subst_expr(s, b->shape[i])) != b->shape[i];
    if (strides) changed |= (strides[i] = subst_expr(s, b->strides[i])) != b->strides[i];
  }
  if (!changed) return;
  const Buffer *to = buffer_new(s->m, b->name, b->dtype, b->ndim, shape, strides, offset, b->scope, b->align,
                                b->offset_factor, b->data);
  to = buffer_with_separators(s->m, to, b->separators);
  map_put(s->rw.arena, &s->buffers, b, (void *)to);
}

static bool subst_declarations(void *env, Stmt *stmt)
{
  Subst *s = env;
  if (stmt->kind == S_ALLOC) subst_declared(s, stmt->u.alloc.buffer);
  if (stmt->kind == S_BLOCK) {
    Block *b = stmt->u.block;
    for (int i = 0; i < b->nallocs; i++) subst_declared(s, b->allocs[i]);
    for (int i = 0; i < b->nmatches; i++) subst_declared(s, b->matches[i].buffer);
  }
  return true;
}

static void subst_annots(Subst *s, Annots *a)
{
  for (int i = 0; i < a->n; i++) a->v[i].value = subst_expr(s, a->v[i].value);
}

static void subst_buffer(Subst *s, const Buffer **slot)
{
  const Buffer *to = map_get(&s->buffers, *slot);
  if (to) *slot = to;
}

/* Buffers and annotations of one statement; expressions are done apart. */
static bool subst_rest(void *env, Stmt *stmt)
{
  Subst *s = env;
  if (stmt->kind == S_FOR) subst_annots(s, &stmt->u.loop.annots);
  if (stmt->kind == S_STORE) subst_buffer(s, &stmt->u.store.buffer);
  if (stmt->kind == S_ALLOC) {
    subst_buffer(s, &stmt->u.alloc.buffer);
    subst_annots(s, &stmt->u.alloc.annots);
  }
  if (stmt->kind == S_ATTR && stmt->u.attr.node) {
    const Expr *to = map_get(s->vars, stmt->u.attr.node);
    if (to) stmt->u.attr.node = to->kind == E_VAR ? to->u.var : NULL;
  }
  if (stmt->kind != S_BLOCK) return true;
  Block *b = stmt->u.block;
  for (int i = 0; i < b->nreads; i++) subst_buffer(s, &b->reads[i].buffer);
  for (int i = 0; i < b->nwrites; i++) subst_buffer(s, &b->writes[i].buffer);
  for (int i = 0; i < b->nallocs; i++) subst_buffer(s, &b->allocs[i]);
  for (int i = 0; i < b->nmatches; i++) {
    subst_buffer(s, &b->matches[i].buffer);
    subst_buffer(s, &b->matches[i].source.buffer);
  }
  subst_annots(s, &b->annots);
  return true;
}

void stmt_substitute(Module *m, Stmt *stmt, const Map *vars)
{
  Scope scope = scope_begin(m->ctx);
  Subst s = subst_new(m, vars);
  stmt_visit(stmt, subst_declarations, &s);
  s.rw.memo = (Map){0};
  stmt_rewrite_exprs(stmt, subst_expr, &s);
  stmt_visit(stmt, subst_rest, &s);
  scope_end(m->ctx, scope);
}

void stmt_replace_buffer(Module *m, Stmt *stmt, const Buffer *from, const Buffer *to)
{
  if (from == to) return;
  Scope scope = scope_begin(m->ctx);
  Map vars = {0};
  if (from->data != to->data) map_put(scratch(m->ctx), &vars, from->data, (void *)to->data->expr);
  Subst s = subst_new(m, &vars);
  map_put(scratch(m->ctx), &s.buffers, from, (void *)to);
  stmt_rewrite_exprs(stmt, subst_expr, &s);
  stmt_visit(stmt, subst_rest, &s);
  scope_end(m->ctx, scope);
}

/* ---- finding ------------------------------------------------------------------------ */

typedef struct Find {
  const char *name;
  uint32_t id;
  Stmt *found;
} Find;

static bool find_name(void *env, Stmt *s)
{
  Find *f = env;
  if (!f->found && s->kind == S_BLOCK && !strcmp(s->u.block->name, f->name)) f->found = s;
  return !f->found;
}

static bool find_id(void *env, Stmt *s)
{
  Find *f = env;
  if (!f->found && s->id == f->id) f->found = s;
  return !f->found;
}

const char *func_symbol(const PrimFunc *f)
{
  const Expr *symbol = annots_get(&f->attrs, "global_symbol");
  return symbol && symbol->kind == E_STR ? symbol->u.str : f->name;
}

Stmt *func_find_block(PrimFunc *f, const char *name)
{
  Find find = {.name = name};
  stmt_visit(f->body, find_name, &find);
  return find.found;
}

Stmt *func_find_id(PrimFunc *f, uint32_t id)
{
  Find find = {.id = id};
  stmt_visit(f->body, find_id, &find);
  return find.found;
}

int stmt_loops(Arena *arena, Stmt *s, Stmt ***out)
{
  int n = 0;
  for (Stmt *p = s->parent; p && p->kind != S_BLOCK; p = p->parent) n += p->kind == S_FOR;
  Stmt **v = arena_array(arena, Stmt *, n);
  int i = n;
  for (Stmt *p = s->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR) v[--i] = p;
  *out = v;
  return n;
}

Stmt *stmt_enclosing_block(Stmt *s)
{
  Stmt *p = s->parent;
  while (p && p->kind != S_BLOCK) p = p->parent;
  return p;
}
