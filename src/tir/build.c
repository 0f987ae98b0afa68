/* build.c: making statements and functions, copying them, putting one in the
 * place of another.
 *
 * Invariant: a constructor owns the statements it is given, so a finished tree has
 * right parent links; arrays handed in are copied, so no two statements share one
 * that a rewrite could change. */
#include "tir/tir.h"

/* ---- annotations ------------------------------------------------------------ */

const Expr *annots_get(const Annots *a, const char *key)
{
  for (int i = 0; i < a->n; i++)
    if (!strcmp(a->v[i].key, key)) return a->v[i].value;
  return NULL;
}

void annots_set(Arena *arena, Annots *a, const char *key, const Expr *value)
{
  for (int i = 0; i < a->n; i++)
    if (!strcmp(a->v[i].key, key)) {
      a->v[i].value = value;
      return;
    }
  vec_push(arena, a, (Annot){arena_strdup(arena, key), value});
}

bool annots_remove(Annots *a, const char *key)
{
  for (int i = 0; i < a->n; i++)
    if (!strcmp(a->v[i].key, key)) {
      memmove(&a->v[i], &a->v[i + 1], (size_t)(a->n - i - 1) * sizeof *a->v);
      a->n--;
      return true;
    }
  return false;
}

static Annots annots_copy(Arena *arena, const Annots *a)
{
  Annots out = {0};
  for (int i = 0; i < a->n; i++) vec_push(arena, &out, a->v[i]);
  return out;
}

/* ---- constructors ------------------------------------------------------------- */

static Stmt *stmt_new(Module *m, StmtKind kind)
{
  Stmt *s = arena_new_of(m->arena, Stmt);
  s->kind = kind;
  s->id = m->next_id++;
  return s;
}

static Stmt *adopt(Stmt *parent, Stmt *child)
{
  if (child) child->parent = parent;
  return child;
}

static void seq_add(Module *m, Stmt *seq, Stmt *s)
{
  if (s->kind == S_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++) seq_add(m, seq, s->u.seq.v[i]);
    return;
  }
  vec_push(m->arena, &seq->u.seq, s);
  s->parent = seq;
}

Stmt *stmt_seq(Module *m, int n, Stmt *const *v)
{
  if (n == 1) return v[0];
  Stmt *s = stmt_new(m, S_SEQ);
  for (int i = 0; i < n; i++) seq_add(m, s, v[i]);
  if (s->u.seq.n == 0) return stmt_nop(m);
  if (s->u.seq.n > 1) return s;
  s->u.seq.v[0]->parent = NULL;
  return s->u.seq.v[0];
}

/* A bound in the dtype of the variable that it bounds. */
static const Expr *fit_bound(Module *m, DType t, const Expr *e)
{
  if (dtype_eq(e->dtype, t)) return e;
  return e->kind == E_INT && dtype_is_int(t) ? expr_int(m, t, e->u.i) : expr_cast(m, t, e);
}

Stmt *stmt_for(Module *m, const Var *var, const Expr *min, const Expr *extent, ForKind kind, const char *thread_tag,
               Stmt *body)
{
  if (!dtype_is_int(var->dtype) || var->dtype.lanes != 1)
    raise(m->ctx, ERR_TYPE, NOWHERE, "loop '%s': the variable is %s; a loop variable is a scalar integer", var->name,
          dtype_name(scratch(m->ctx), var->dtype));
  if (kind == FOR_THREAD && !thread_tag)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "loop '%s': a thread loop needs a thread axis such as threadIdx.x", var->name);
  Stmt *s = stmt_new(m, S_FOR);
  s->u.loop.var = var;
  s->u.loop.min = fit_bound(m, var->dtype, min);
  s->u.loop.extent = fit_bound(m, var->dtype, extent);
  s->u.loop.kind = kind;
  s->u.loop.thread_tag = kind == FOR_THREAD ? arena_strdup(m->arena, thread_tag) : NULL;
  s->u.loop.body = adopt(s, body);
  return s;
}

static void check_cond(Module *m, const char *what, const Expr *cond)
{
  if (!dtype_is_bool(cond->dtype) || cond->dtype.lanes != 1)
    raise(m->ctx, ERR_TYPE, NOWHERE, "%s: the condition %s is %s; it must be a bool", what,
          expr_str_of(scratch(m->ctx), cond), dtype_name(scratch(m->ctx), cond->dtype));
}

Stmt *stmt_if(Module *m, const Expr *cond, Stmt *then, Stmt *orelse)
{
  check_cond(m, "if", cond);
  Stmt *s = stmt_new(m, S_IF);
  s->u.cond.cond = cond;
  s->u.cond.then = adopt(s, then);
  s->u.cond.orelse = adopt(s, orelse);
  return s;
}

Stmt *stmt_while(Module *m, const Expr *cond, Stmt *body)
{
  check_cond(m, "while", cond);
  Stmt *s = stmt_new(m, S_WHILE);
  s->u.loop_while.cond = cond;
  s->u.loop_while.body = adopt(s, body);
  return s;
}

Stmt *stmt_let(Module *m, const Var *var, const Expr *value, Stmt *body)
{
  if (!dtype_eq(var->dtype, value->dtype))
    raise(m->ctx, ERR_TYPE, NOWHERE, "let '%s': the variable is %s, its value %s; cast one of them", var->name,
          dtype_name(scratch(m->ctx), var->dtype), dtype_name(scratch(m->ctx), value->dtype));
  if (value->dtype.code == DT_VOID)
    raise(m->ctx, ERR_TYPE, NOWHERE, "let '%s': %s gives no value to name", var->name,
          expr_str_of(scratch(m->ctx), value));
  Stmt *s = stmt_new(m, S_LET);
  s->u.let.var = var;
  s->u.let.value = value;
  s->u.let.body = adopt(s, body);
  return s;
}

/* The value as the store takes it: literals converted, scalars broadcast. */
static const Expr *fit_value(Module *m, const Buffer *b, int lanes, const Expr *value)
{
  DType want = dtype_lanes(b->dtype, b->dtype.lanes * lanes);
  if (expr_is_const(value) && !dtype_eq(dtype_elem(value->dtype), dtype_elem(want)))
    value = value->kind == E_INT && dtype_is_int(want) ? expr_int(m, dtype_elem(want), value->u.i)
            : value->kind == E_INT                     ? expr_const(m, dtype_elem(want), (double)value->u.i)
            : dtype_is_float(want)                     ? expr_float(m, dtype_elem(want), value->u.f)
                                                       : value;
  if (value->dtype.lanes == 1 && want.lanes > 1 && dtype_eq(value->dtype, dtype_elem(want)))
    value = expr_broadcast(m, value, want.lanes);
  if (!dtype_eq(value->dtype, want))
    raise(m->ctx, ERR_TYPE, NOWHERE, "store to '%s': the buffer takes %s, the value %s is %s; cast it", b->name,
          dtype_name(scratch(m->ctx), want), expr_str_of(scratch(m->ctx), value),
          dtype_name(scratch(m->ctx), value->dtype));
  return value;
}

Stmt *stmt_store(Module *m, const Buffer *b, int n, const Expr *const *index, const Expr *value)
{
  if (n != b->ndim)
    raise(m->ctx, ERR_TYPE, NOWHERE, "store to '%s': %d indices for a buffer of %d dimensions", b->name, n, b->ndim);
  int lanes = 1;
  for (int i = 0; i < n; i++) {
    if (!dtype_is_int(index[i]->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "store to '%s': index %d is %s; an index is an integer", b->name, i,
            dtype_name(scratch(m->ctx), index[i]->dtype));
    if (index[i]->dtype.lanes == 1) continue;
    if (lanes != 1) raise(m->ctx, ERR_TYPE, NOWHERE, "store to '%s': more than one index is a vector", b->name);
    lanes = index[i]->dtype.lanes;
  }
  Stmt *s = stmt_new(m, S_STORE);
  s->u.store.buffer = b;
  s->u.store.index = arena_copy(m->arena, index, (size_t)n * sizeof *index);
  s->u.store.n = n;
  s->u.store.value = fit_value(m, b, lanes, value);
  return s;
}

Stmt *stmt_alloc(Module *m, const Buffer *b, Stmt *body)
{
  Stmt *s = stmt_new(m, S_ALLOC);
  s->u.alloc.buffer = b;
  s->u.alloc.body = adopt(s, body);
  return s;
}

Stmt *stmt_eval(Module *m, const Expr *value)
{
  Stmt *s = stmt_new(m, S_EVAL);
  s->u.eval.value = value;
  return s;
}

Stmt *stmt_attr(Module *m, const Var *node, const char *key, const Expr *value, Stmt *body)
{
  Stmt *s = stmt_new(m, S_ATTR);
  s->u.attr.node = node;
  s->u.attr.key = arena_strdup(m->arena, key);
  s->u.attr.value = value;
  s->u.attr.body = adopt(s, body);
  return s;
}

static void fit_region(Module *m, Region *r)
{
  for (int d = 0; d < r->buffer->ndim; d++)
    if (r->extent[d]->kind == E_INT) r->extent[d] = fit_bound(m, r->min[d]->dtype, r->extent[d]);
    else if (r->min[d]->kind == E_INT) r->min[d] = fit_bound(m, r->extent[d]->dtype, r->min[d]);
}

Stmt *stmt_block(Module *m, Block *b)
{
  for (int i = 0; i < b->niter; i++) {
    BlockIter *it = &b->iter[i];
    it->min = fit_bound(m, it->var->dtype, it->min);
    it->extent = fit_bound(m, it->var->dtype, it->extent);
    it->value = fit_bound(m, it->var->dtype, it->value);
  }
  for (int i = 0; i < b->nreads; i++) fit_region(m, &b->reads[i]);
  for (int i = 0; i < b->nwrites; i++) fit_region(m, &b->writes[i]);
  for (int i = 0; i < b->nmatches; i++) fit_region(m, &b->matches[i].source);
  Stmt *s = stmt_new(m, S_BLOCK);
  s->u.block = b;
  adopt(s, b->init);
  adopt(s, b->body);
  return s;
}

Stmt *stmt_nop(Module *m) { return stmt_eval(m, expr_i32(m, 0)); }

/* ---- copying ------------------------------------------------------------------- */

/* One copier serves three copies: plain (shares expressions), fresh (new binders,
 * same module) and import (another module).  Expressions go through expr(). */
typedef struct Copier {
  Module *m; /* where the copy lives */
  bool fresh;
  Importer *import; /* import only */
  bool own_ids;     /* import: statements get ids of the new module */
  Map *vars;        /* fresh: Var* -> Expr* */
  Map buffers;      /* fresh: Buffer* -> Buffer* */
  StrMap names;     /* fresh: block names in use */
  Rewriter rw;
} Copier;

static const Buffer *copy_buffer(Copier *c, const Buffer *b);

static const Expr *copy_node(Rewriter *rw, const Expr *e)
{
  Copier *c = rw->env;
  if (e->kind == E_VAR) {
    const Expr *to = map_get(c->vars, e->u.var);
    return to ? to : e;
  }
  if (e->kind != E_LOAD) return e;
  const Buffer *b = copy_buffer(c, e->u.buffer);
  return b == e->u.buffer ? e : expr_load(c->m, b, e->nargs, e->arg);
}

static const Expr *copy_expr(Copier *c, const Expr *e)
{
  if (!e) return NULL;
  if (c->import) return expr_import(c->import, e);
  return c->fresh ? expr_rewrite(&c->rw, e) : e;
}

static const Expr **copy_exprs(Copier *c, int n, const Expr *const *v)
{
  if (!v) return NULL;
  const Expr **out = arena_array(c->m->arena, const Expr *, n);
  for (int i = 0; i < n; i++) out[i] = copy_expr(c, v[i]);
  return out;
}

/* The same buffer over copied expressions and the pointer data (NULL: a new one). */
static const Buffer *remake_buffer(Copier *c, const Buffer *b, const Var *data)
{
  const Expr **shape = copy_exprs(c, b->ndim, b->shape);
  const Expr **strides = copy_exprs(c, b->ndim, b->strides);
  const Buffer *to = buffer_new(c->m, b->name, b->dtype, b->ndim, shape, strides, copy_expr(c, b->elem_offset),
                                b->scope, b->align, b->offset_factor, data);
  to = buffer_with_separators(c->m, to, b->separators);
  map_put(c->rw.arena, &c->buffers, b, (void *)to);
  return to;
}

/* A use of a buffer: the copy of one declared inside, or of a view of its memory. */
static const Buffer *copy_buffer(Copier *c, const Buffer *b)
{
  if (c->import) return buffer_import(c->import, b);
  if (!c->fresh) return b;
  const Buffer *to = map_get(&c->buffers, b);
  if (to) return to;
  const Expr *data = map_get(c->vars, b->data);
  return data && data->kind == E_VAR && data->u.var != b->data ? remake_buffer(c, b, data->u.var) : b;
}

/* Forgets rewritten expressions: what a variable stands for has changed. */
static void forget(Copier *c) { c->rw.memo = (Map){0}; }

/* A declaration of a buffer. */
static const Buffer *declare_buffer(Copier *c, const Buffer *b)
{
  if (!c->fresh) return copy_buffer(c, b);
  const Buffer *to = remake_buffer(c, b, NULL);
  map_put(c->m->arena, c->vars, b->data, (void *)to->data->expr);
  forget(c);
  return to;
}

static const Var *declare_var(Copier *c, const Var *v)
{
  if (c->import) return var_import(c->import, v);
  if (!c->fresh) return v;
  const Var *to = var_new(c->m, v->name, v->dtype, v->kind);
  map_put(c->m->arena, c->vars, v, (void *)to->expr);
  forget(c);
  return to;
}

static Annots copy_annots(Copier *c, const Annots *a)
{
  Annots out = annots_copy(c->m->arena, a);
  for (int i = 0; i < out.n; i++) {
    if (c->import) out.v[i].key = arena_strdup(c->m->arena, out.v[i].key);
    out.v[i].value = copy_expr(c, out.v[i].value);
  }
  return out;
}

static const char *copy_str(Copier *c, const char *s) { return s && c->import ? arena_strdup(c->m->arena, s) : s; }

static Region copy_region(Copier *c, const Region *r)
{
  return (Region){copy_buffer(c, r->buffer), copy_exprs(c, r->buffer->ndim, r->min),
                  copy_exprs(c, r->buffer->ndim, r->extent)};
}

static Region *copy_regions(Copier *c, int n, const Region *v)
{
  Region *out = arena_array(c->m->arena, Region, n);
  for (int i = 0; i < n; i++) out[i] = copy_region(c, &v[i]);
  return out;
}

static const char *fresh_name(Copier *c, const char *name)
{
  const char *to = name;
  for (int i = 1; strmap_get(&c->names, to); i++) to = arena_printf(c->m->arena, "%s_%d", name, i);
  strmap_put(c->rw.arena, &c->names, to, (void *)to);
  return to;
}

static Stmt *copy_stmt(Copier *c, const Stmt *s);

static Block *copy_block(Copier *c, const Block *b)
{
  Block *to = arena_new_of(c->m->arena, Block);
  to->name = c->fresh ? fresh_name(c, b->name) : copy_str(c, b->name);
  to->niter = b->niter;
  to->iter = arena_array(c->m->arena, BlockIter, b->niter);
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    to->iter[i] = (BlockIter){NULL, copy_expr(c, it->min), copy_expr(c, it->extent), it->kind, copy_expr(c, it->value)};
  }
  for (int i = 0; i < b->niter; i++) to->iter[i].var = declare_var(c, b->iter[i].var);
  to->predicate = copy_expr(c, b->predicate);
  to->nallocs = b->nallocs;
  to->allocs = arena_array(c->m->arena, const Buffer *, b->nallocs);
  for (int i = 0; i < b->nallocs; i++) to->allocs[i] = declare_buffer(c, b->allocs[i]);
  to->nmatches = b->nmatches;
  to->matches = arena_array(c->m->arena, MatchBuffer, b->nmatches);
  for (int i = 0; i < b->nmatches; i++) {
    to->matches[i].source = copy_region(c, &b->matches[i].source);
    to->matches[i].buffer = declare_buffer(c, b->matches[i].buffer);
  }
  to->nreads = b->nreads;
  to->nwrites = b->nwrites;
  to->declared = b->declared;
  to->reads = copy_regions(c, b->nreads, b->reads);
  to->writes = copy_regions(c, b->nwrites, b->writes);
  to->annots = copy_annots(c, &b->annots);
  to->init = b->init ? copy_stmt(c, b->init) : NULL;
  to->body = copy_stmt(c, b->body);
  return to;
}

static void copy_loop(Copier *c, Stmt *to, const Stmt *s)
{
  to->u.loop.min = copy_expr(c, s->u.loop.min);
  to->u.loop.extent = copy_expr(c, s->u.loop.extent);
  to->u.loop.annots = copy_annots(c, &s->u.loop.annots);
  to->u.loop.kind = s->u.loop.kind;
  to->u.loop.thread_tag = copy_str(c, s->u.loop.thread_tag);
  to->u.loop.var = declare_var(c, s->u.loop.var);
  to->u.loop.body = adopt(to, copy_stmt(c, s->u.loop.body));
}

static void copy_alloc(Copier *c, Stmt *to, const Stmt *s)
{
  to->u.alloc.buffer = declare_buffer(c, s->u.alloc.buffer);
  to->u.alloc.place = s->u.alloc.place;
  to->u.alloc.offset = copy_expr(c, s->u.alloc.offset);
  to->u.alloc.annots = copy_annots(c, &s->u.alloc.annots);
  to->u.alloc.body = adopt(to, copy_stmt(c, s->u.alloc.body));
}

static void copy_attr(Copier *c, Stmt *to, const Stmt *s)
{
  const Var *node = s->u.attr.node;
  if (node) node = copy_expr(c, node->expr)->kind == E_VAR ? copy_expr(c, node->expr)->u.var : NULL;
  to->u.attr.node = node;
  to->u.attr.key = copy_str(c, s->u.attr.key);
  to->u.attr.value = copy_expr(c, s->u.attr.value);
  to->u.attr.body = adopt(to, copy_stmt(c, s->u.attr.body));
}

static Stmt *copy_stmt(Copier *c, const Stmt *s)
{
  Stmt *to = stmt_new(c->m, s->kind);
  if (!c->fresh && !c->own_ids) {
    to->id = s->id;
    if (c->import && s->id >= c->m->next_id) c->m->next_id = s->id + 1;
  }
  to->loc = s->loc;
  to->loc.file = copy_str(c, s->loc.file);
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) vec_push(c->m->arena, &to->u.seq, adopt(to, copy_stmt(c, s->u.seq.v[i])));
    break;
  case S_FOR: copy_loop(c, to, s); break;
  case S_IF:
    to->u.cond.cond = copy_expr(c, s->u.cond.cond);
    to->u.cond.then = adopt(to, copy_stmt(c, s->u.cond.then));
    to->u.cond.orelse = s->u.cond.orelse ? adopt(to, copy_stmt(c, s->u.cond.orelse)) : NULL;
    break;
  case S_WHILE:
    to->u.loop_while.cond = copy_expr(c, s->u.loop_while.cond);
    to->u.loop_while.body = adopt(to, copy_stmt(c, s->u.loop_while.body));
    break;
  case S_LET:
    to->u.let.value = copy_expr(c, s->u.let.value);
    to->u.let.var = declare_var(c, s->u.let.var);
    to->u.let.body = adopt(to, copy_stmt(c, s->u.let.body));
    break;
  case S_STORE:
    to->u.store.buffer = copy_buffer(c, s->u.store.buffer);
    to->u.store.n = s->u.store.n;
    to->u.store.index = copy_exprs(c, s->u.store.n, s->u.store.index);
    to->u.store.value = copy_expr(c, s->u.store.value);
    to->u.store.mask = copy_expr(c, s->u.store.mask);
    break;
  case S_ALLOC: copy_alloc(c, to, s); break;
  case S_EVAL: to->u.eval.value = copy_expr(c, s->u.eval.value); break;
  case S_ATTR: copy_attr(c, to, s); break;
  case S_BLOCK:
    to->u.block = copy_block(c, s->u.block);
    adopt(to, to->u.block->init);
    adopt(to, to->u.block->body);
    break;
  }
  return to;
}

Stmt *stmt_clone(Module *m, const Stmt *s)
{
  Copier c = {.m = m};
  return copy_stmt(&c, s);
}

static bool note_block_name(void *env, Stmt *s)
{
  Copier *c = env;
  if (s->kind == S_BLOCK) strmap_put(c->rw.arena, &c->names, s->u.block->name, (void *)s->u.block->name);
  return true;
}

Stmt *stmt_clone_fresh(Module *m, const Stmt *s, Map *var_map)
{
  Scope scope = scope_begin(m->ctx);
  Map own = {0};
  Copier c = {.m = m, .fresh = true, .vars = var_map ? var_map : &own};
  c.rw = (Rewriter){.m = m, .fn = copy_node, .env = &c, .arena = scratch(m->ctx)};
  const Stmt *top = s;
  while (top->parent) top = top->parent;
  stmt_visit((Stmt *)top, note_block_name, &c);
  Stmt *to = copy_stmt(&c, s);
  scope_end(m->ctx, scope);
  return to;
}

/* ---- replacing ------------------------------------------------------------------- */

void stmt_link(Stmt *s, Stmt *parent)
{
  s->parent = parent;
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) stmt_link(s->u.seq.v[i], s);
    break;
  case S_FOR: stmt_link(s->u.loop.body, s); break;
  case S_IF:
    stmt_link(s->u.cond.then, s);
    if (s->u.cond.orelse) stmt_link(s->u.cond.orelse, s);
    break;
  case S_WHILE: stmt_link(s->u.loop_while.body, s); break;
  case S_LET: stmt_link(s->u.let.body, s); break;
  case S_ALLOC: stmt_link(s->u.alloc.body, s); break;
  case S_ATTR: stmt_link(s->u.attr.body, s); break;
  case S_BLOCK:
    if (s->u.block->init) stmt_link(s->u.block->init, s);
    stmt_link(s->u.block->body, s);
    break;
  case S_STORE:
  case S_EVAL: break;
  }
}

/* The slot below s that holds a; *holder is whose it is. */
static Stmt **find_slot(Stmt *s, const Stmt *a, Stmt **holder)
{
  Stmt **one[2];
  Stmt ***slot = one;
  int n = stmt_children(s, slot, 2);
  if (s->kind == S_SEQ) {
    for (int i = 0; i < s->u.seq.n; i++)
      if (s->u.seq.v[i] == a) return *holder = s, &s->u.seq.v[i];
    for (int i = 0; i < s->u.seq.n; i++) {
      Stmt **found = find_slot(s->u.seq.v[i], a, holder);
      if (found) return found;
    }
    return NULL;
  }
  for (int i = 0; i < n; i++)
    if (*slot[i] == a) return *holder = s, slot[i];
  for (int i = 0; i < n; i++) {
    Stmt **found = find_slot(*slot[i], a, holder);
    if (found) return found;
  }
  return NULL;
}

static void splice(Module *m, Stmt *seq, int at, Stmt *b)
{
  Vec(Stmt *) old = {seq->u.seq.v, seq->u.seq.n, seq->u.seq.cap};
  seq->u.seq.v = NULL;
  seq->u.seq.n = seq->u.seq.cap = 0;
  for (int i = 0; i < old.n; i++) seq_add(m, seq, i == at ? b : old.v[i]);
}

void stmt_replace(PrimFunc *f, Stmt *a, Stmt *b)
{
  if (a == b) return;
  bool wrapped = false;
  for (Stmt *p = a->parent; p && !wrapped; p = p->parent) wrapped = p == b;
  if (f->body == a) {
    f->body = b;
    b->parent = NULL;
    if (!wrapped) a->parent = NULL;
    return;
  }
  Stmt *holder = NULL;
  Stmt **slot = find_slot(wrapped ? f->body : a->parent, a, &holder);
  if (!slot) BUG(f->m->ctx, "stmt_replace: statement %u is not part of function '%s'", a->id, f->name);
  if (!wrapped) a->parent = NULL;
  if (holder->kind == S_SEQ && b->kind == S_SEQ) {
    splice(f->m, holder, (int)(slot - holder->u.seq.v), b);
    return;
  }
  *slot = b;
  b->parent = holder;
}

/* ---- functions ---------------------------------------------------------------------- */

PrimFunc *func_new(Module *m, const char *name, int nparam, const Param *param, Stmt *body)
{
  PrimFunc *f = arena_new_of(m->arena, PrimFunc);
  f->m = m;
  f->name = arena_strdup(m->arena, name);
  f->nparam = nparam;
  f->param = arena_array(m->arena, Param, nparam);
  for (int i = 0; i < nparam; i++) {
    f->param[i] = param[i];
    if (param[i].buffer) f->param[i].var = param[i].buffer->data;
  }
  f->body = body;
  body->parent = NULL;
  return f;
}

PrimFunc *func_clone(const PrimFunc *f)
{
  PrimFunc *to = func_new(f->m, f->name, f->nparam, f->param, stmt_clone(f->m, f->body));
  to->attrs = annots_copy(f->m->arena, &f->attrs);
  return to;
}

Stmt *stmt_import(Importer *import, const Stmt *s)
{
  Copier c = {.m = import->dst, .import = import, .own_ids = true};
  Stmt *to = copy_stmt(&c, s);
  stmt_link(to, NULL);
  return to;
}

PrimFunc *func_import(Module *dst, const PrimFunc *f)
{
  Scope scope = scope_begin(dst->ctx);
  Importer import = {.dst = dst, .arena = scratch(dst->ctx)};
  Copier c = {.m = dst, .import = &import};
  Param *param = arena_array(scratch(dst->ctx), Param, f->nparam);
  for (int i = 0; i < f->nparam; i++) {
    param[i].buffer = f->param[i].buffer ? buffer_import(&import, f->param[i].buffer) : NULL;
    param[i].var = param[i].buffer ? param[i].buffer->data : var_import(&import, f->param[i].var);
  }
  PrimFunc *to = func_new(dst, f->name, f->nparam, param, copy_stmt(&c, f->body));
  to->attrs = copy_annots(&c, &f->attrs);
  scope_end(dst->ctx, scope);
  return to;
}

static const Expr **bound_exprs(Module *m, int n, const Expr *const *e, const Map *values)
{
  if (!e) return NULL;
  const Expr **out = arena_array(m->arena, const Expr *, n);
  for (int i = 0; i < n; i++) out[i] = expr_substitute(m, e[i], values);
  return out;
}

PrimFunc *func_specialize(const PrimFunc *f, const Map *values)
{
  Module *m = f->m;
  PrimFunc *to = func_clone(f);
  int n = 0;
  stmt_substitute(m, to->body, values);
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (!b && map_has(values, f->param[i].var)) continue;
    to->param[n] = f->param[i];
    if (b) {
      const Buffer *bound = buffer_new(m, b->name, b->dtype, b->ndim, bound_exprs(m, b->ndim, b->shape, values),
                                       bound_exprs(m, b->ndim, b->strides, values),
                                       b->elem_offset ? expr_substitute(m, b->elem_offset, values) : NULL, b->scope,
                                       b->align, b->offset_factor, b->data);
      bound = buffer_with_separators(m, bound, b->separators);
      stmt_replace_buffer(m, to->body, b, bound);
      to->param[n].buffer = bound;
    }
    n++;
  }
  to->nparam = n;
  return to;
}
