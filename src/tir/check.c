/* check.c: is a function well formed?
 *
 * One walk down the tree keeps the set of variables in scope.  Each variable has
 * one binder: a parameter, a loop, a let, a block axis, a declared buffer (for its
 * pointer), or the shape of a matched buffer (for sizes that stand alone there).
 * bounds.c looks for accesses that leave their buffer. */
#include "tir/tir.h"

#include <stdio.h>

typedef struct Check {
  const PrimFunc *f;
  Ctx *ctx;
  Arena *arena;
  Map scope; /* Var* -> 1 + blocks around its binder, OUT_OF_SCOPE; absent: not bound yet */
  Map lets;  /* Var*: bound by lets inside the expression at hand */
  StrMap blocks;
  const Block *block;     /* nearest one that says what it touches … */
  int depth, block_depth; /* … and how many blocks down it is */
  const Stmt *at;
} Check;

enum { OUT_OF_SCOPE = -1 };

_Noreturn static void __attribute__((format(printf, 2, 3))) fail(Check *c, const char *fmt, ...)
{
  Text t = text_new(c->arena);
  va_list args;
  char text[400];
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  const Stmt *s = c->at;
  while (s && s->kind != S_BLOCK && s->kind != S_FOR) s = s->parent;
  text_printf(&t, "function '%s'", c->f->name);
  if (s && s->kind == S_BLOCK) text_printf(&t, ", block '%s'", s->u.block->name);
  if (s && s->kind == S_FOR) text_printf(&t, ", loop '%s'", s->u.loop.var->name);
  raise(c->ctx, ERR_TYPE, c->at ? c->at->loc : NOWHERE, "%s: %s", text_str(&t), text);
}

static const char *dtype_text(Check *c, DType t) { return dtype_name(c->arena, t); }

/* ---- scopes ----------------------------------------------------------------------- */

static void bind(Check *c, const Var *v)
{
  if (map_get(&c->scope, v)) fail(c, "variable '%s' is defined twice; each binder has a variable of its own", v->name);
  map_put(c->arena, &c->scope, v, (void *)(intptr_t)(1 + c->depth));
}

static void unbind(Check *c, const Var *v) { map_put(c->arena, &c->scope, v, (void *)(intptr_t)OUT_OF_SCOPE); }

static bool in_scope(const Check *c, const Var *v) { return (intptr_t)map_get(&c->scope, v) > 0; }

static bool names(int n, const Region *v, const Var *data)
{
  for (int i = 0; i < n; i++)
    if (v[i].buffer->data == data) return true;
  return false;
}

/* What a block touches and did not declare itself stands in its reads or writes. */
static void use_buffer(Check *c, const Buffer *b, bool write)
{
  if (!in_scope(c, b->data)) fail(c, "buffer '%s' is used where it is not declared", b->name);
  if (!c->block || (intptr_t)map_get(&c->scope, b->data) > c->block_depth) return;
  if (names(c->block->nwrites, c->block->writes, b->data)) return;
  if (write) fail(c, "'%s' is written, but block '%s' does not name it in its writes", b->name, c->block->name);
  if (!names(c->block->nreads, c->block->reads, b->data))
    fail(c, "'%s' is read, but block '%s' does not name it in its reads", b->name, c->block->name);
}

static void use_node(void *env, const Expr *e)
{
  Check *c = env;
  if (e->kind == E_VAR && !in_scope(c, e->u.var) && !map_has(&c->lets, e->u.var))
    fail(c, "variable '%s' is used outside of its scope", e->u.var->name);
  if (e->kind == E_LOAD) use_buffer(c, e->u.buffer, false);
  if (dtype_is_scalable(e->dtype))
    fail(c, "a vector of %s stands in a function; code is made for vectors of a fixed number of lanes",
         dtype_text(c, e->dtype));
  if (e->kind == E_REDUCE)
    fail(c, "a reduction '%s' stands in a loop program; it belongs in te", e->u.reduce->reducer->name);
}

static void note_let(void *env, const Expr *e)
{
  Check *c = env;
  if (e->kind == E_LET) map_put(c->arena, &c->lets, e->u.var, c);
}

static void use_expr(Check *c, const Expr *e)
{
  c->lets = (Map){0};
  if (expr_has_kind(e, E_LET)) expr_visit(c->ctx, e, note_let, c);
  expr_visit(c->ctx, e, use_node, c);
}

/* An integer scalar, such as a bound, of the given dtype (or any). */
static void use_index(Check *c, const char *what, const char *name, const Expr *e, const DType *want)
{
  use_expr(c, e);
  if (!dtype_is_int(e->dtype) || e->dtype.lanes != 1)
    fail(c, "%s of '%s' is %s; it must be a scalar integer", what, name, dtype_text(c, e->dtype));
  if (want && !dtype_eq(*want, e->dtype))
    fail(c, "%s of '%s' is %s, the variable %s", what, name, dtype_text(c, e->dtype), dtype_text(c, *want));
}

static void use_cond(Check *c, const char *what, const Expr *e, int lanes)
{
  use_expr(c, e);
  if (!dtype_is_bool(dtype_elem(e->dtype)) || e->dtype.lanes != lanes)
    fail(c, "the condition of %s is %s; it must be a bool%s", what, dtype_text(c, e->dtype),
         lanes > 1 ? " for each lane" : "");
}

/* ---- buffers ------------------------------------------------------------------------ */

static void bind_size(Check *c, const Expr *e)
{
  if (e && e->kind == E_VAR && !map_get(&c->scope, e->u.var)) bind(c, e->u.var);
}

/* Sizes that stand alone in a matched buffer's layout are bound by it. */
static void bind_sizes(Check *c, const Buffer *b)
{
  for (int d = 0; d < b->ndim; d++) {
    bind_size(c, b->shape[d]);
    if (b->strides) bind_size(c, b->strides[d]);
  }
  bind_size(c, b->elem_offset);
}

static void check_layout(Check *c, const Buffer *b)
{
  if (b->data->dtype.code != DT_HANDLE)
    fail(c, "the pointer of buffer '%s' is %s", b->name, dtype_text(c, b->data->dtype));
  for (int d = 0; d < b->ndim; d++) {
    use_index(c, "a dimension", b->name, b->shape[d], NULL);
    if (b->shape[d]->kind == E_INT && b->shape[d]->u.i < 0)
      fail(c, "dimension %d of buffer '%s' is %" PRId64, d, b->name, b->shape[d]->u.i);
    if (b->strides) use_index(c, "a stride", b->name, b->strides[d], NULL);
  }
  if (b->elem_offset) use_index(c, "the offset", b->name, b->elem_offset, NULL);
}

static void declare_buffer(Check *c, const Buffer *b)
{
  bind(c, b->data);
  check_layout(c, b);
}

static void check_region(Check *c, const char *what, const Region *r, bool write)
{
  use_buffer(c, r->buffer, write);
  for (int d = 0; d < r->buffer->ndim; d++) {
    use_expr(c, r->min[d]);
    use_expr(c, r->extent[d]);
    if (!dtype_is_int(r->min[d]->dtype) || !dtype_is_int(r->extent[d]->dtype))
      fail(c, "the %s region of '%s' has bounds that are no integers", what, r->buffer->name);
  }
}

/* ---- statements ------------------------------------------------------------------------ */

static void check_stmt(Check *c, const Stmt *s, const Stmt *parent);

static void check_store(Check *c, const Stmt *s)
{
  const Buffer *b = s->u.store.buffer;
  use_buffer(c, b, true);
  if (s->u.store.n != b->ndim)
    fail(c, "the store to '%s' has %d indices, the buffer %d dimensions", b->name, s->u.store.n, b->ndim);
  int lanes = 1;
  for (int i = 0; i < s->u.store.n; i++) {
    use_expr(c, s->u.store.index[i]);
    if (!dtype_is_int(s->u.store.index[i]->dtype))
      fail(c, "index %d of the store to '%s' is %s", i, b->name, dtype_text(c, s->u.store.index[i]->dtype));
    if (s->u.store.index[i]->dtype.lanes > lanes) lanes = s->u.store.index[i]->dtype.lanes;
  }
  use_expr(c, s->u.store.value);
  DType want = dtype_lanes(b->dtype, b->dtype.lanes * lanes);
  if (!dtype_eq(s->u.store.value->dtype, want))
    fail(c, "the store to '%s' takes %s, its value is %s", b->name, dtype_text(c, want),
         dtype_text(c, s->u.store.value->dtype));
  if (s->u.store.mask) use_cond(c, "a masked store", s->u.store.mask, want.lanes);
}

static void check_axes(Check *c, const Block *b)
{
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    if (!it->value || !it->min || !it->extent) fail(c, "axis '%s' has no binding or no domain", it->var->name);
    use_index(c, "the lower bound", it->var->name, it->min, &it->var->dtype);
    use_index(c, "the extent", it->var->name, it->extent, &it->var->dtype);
    use_index(c, "the binding", it->var->name, it->value, &it->var->dtype);
  }
}

/* An init runs once for all values of the reductions, before their first step. */
static void check_init_expr(void *env, Stmt *holder, const Expr *e)
{
  Check *c = env;
  const Block *b = c->at->u.block;
  (void)holder;
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind == ITER_REDUCE && expr_uses_var(e, b->iter[i].var))
      fail(c,
           "T.init() uses the reduction variable '%s'; it runs once for all of its values, so it can be over spatial "
           "variables alone",
           b->iter[i].var->name);
}

static void check_block(Check *c, const Stmt *s)
{
  const Block *b = s->u.block;
  if (strmap_get(&c->blocks, b->name)) fail(c, "two blocks are named '%s'", b->name);
  strmap_put(c->arena, &c->blocks, b->name, c);
  check_axes(c, b);
  for (int i = 0; i < b->niter; i++) bind(c, b->iter[i].var);
  if (b->predicate) use_cond(c, "T.where", b->predicate, 1);
  for (int i = 0; i < b->nreads; i++) check_region(c, "read", &b->reads[i], false);
  for (int i = 0; i < b->nwrites; i++) check_region(c, "written", &b->writes[i], true);
  const Block *outer = c->block;
  int outer_depth = c->block_depth;
  c->depth++;
  if (b->nreads || b->nwrites) {
    c->block = b;
    c->block_depth = c->depth;
  }
  for (int i = 0; i < b->nallocs; i++) declare_buffer(c, b->allocs[i]);
  for (int i = 0; i < b->nmatches; i++) {
    const MatchBuffer *m = &b->matches[i];
    check_region(c, "matched", &m->source, false);
    if (m->buffer->ndim > m->source.buffer->ndim)
      fail(c, "match_buffer '%s' has %d dimensions, its source '%s' only %d", m->buffer->name, m->buffer->ndim,
           m->source.buffer->name, m->source.buffer->ndim);
    if (!dtype_eq(m->buffer->dtype, m->source.buffer->dtype))
      fail(c, "match_buffer '%s' is %s, its source '%s' %s", m->buffer->name, dtype_text(c, m->buffer->dtype),
           m->source.buffer->name, dtype_text(c, m->source.buffer->dtype));
    bind_sizes(c, m->buffer);
    declare_buffer(c, m->buffer);
  }
  if (b->init) {
    check_stmt(c, b->init, s);
    c->at = s;
    stmt_visit_exprs(b->init, check_init_expr, c);
  }
  check_stmt(c, b->body, s);
  c->block = outer;
  c->block_depth = outer_depth;
  c->depth--;
  for (int i = 0; i < b->niter; i++) unbind(c, b->iter[i].var);
  for (int i = 0; i < b->nallocs; i++) unbind(c, b->allocs[i]->data);
  for (int i = 0; i < b->nmatches; i++) unbind(c, b->matches[i].buffer->data);
}

static void check_loop(Check *c, const Stmt *s)
{
  const Var *v = s->u.loop.var;
  if (!dtype_is_int(v->dtype) || v->dtype.lanes != 1)
    fail(c, "loop variable '%s' is %s", v->name, dtype_text(c, v->dtype));
  use_index(c, "the lower bound", v->name, s->u.loop.min, &v->dtype);
  use_index(c, "the extent", v->name, s->u.loop.extent, &v->dtype);
  if (s->u.loop.kind == FOR_THREAD && !s->u.loop.thread_tag) fail(c, "thread loop '%s' has no thread axis", v->name);
  bind(c, v);
  check_stmt(c, s->u.loop.body, s);
  unbind(c, v);
}

static void check_stmt(Check *c, const Stmt *s, const Stmt *parent)
{
  if (s->parent != parent) BUG(c->ctx, "function '%s': statement %u has a wrong parent link", c->f->name, s->id);
  c->at = s;
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) check_stmt(c, s->u.seq.v[i], s);
    break;
  case S_FOR: check_loop(c, s); break;
  case S_IF:
    use_cond(c, "an if", s->u.cond.cond, 1);
    check_stmt(c, s->u.cond.then, s);
    if (s->u.cond.orelse) check_stmt(c, s->u.cond.orelse, s);
    break;
  case S_WHILE:
    use_cond(c, "a while", s->u.loop_while.cond, 1);
    check_stmt(c, s->u.loop_while.body, s);
    break;
  case S_LET:
    use_expr(c, s->u.let.value);
    if (!dtype_eq(s->u.let.var->dtype, s->u.let.value->dtype))
      fail(c, "let '%s' is %s, its value %s", s->u.let.var->name, dtype_text(c, s->u.let.var->dtype),
           dtype_text(c, s->u.let.value->dtype));
    bind(c, s->u.let.var);
    check_stmt(c, s->u.let.body, s);
    unbind(c, s->u.let.var);
    break;
  case S_STORE: check_store(c, s); break;
  case S_ALLOC:
    declare_buffer(c, s->u.alloc.buffer);
    if (s->u.alloc.offset) use_expr(c, s->u.alloc.offset);
    check_stmt(c, s->u.alloc.body, s);
    unbind(c, s->u.alloc.buffer->data);
    break;
  case S_EVAL: use_expr(c, s->u.eval.value); break;
  case S_ATTR:
    if (s->u.attr.node && !in_scope(c, s->u.attr.node))
      fail(c, "attribute '%s' is set on '%s' outside of its scope", s->u.attr.key, s->u.attr.node->name);
    if (s->u.attr.value) use_expr(c, s->u.attr.value);
    check_stmt(c, s->u.attr.body, s);
    break;
  case S_BLOCK: check_block(c, s); break;
  }
  c->at = s;
}

static bool find_block(void *env, Stmt *s)
{
  if (s->kind == S_BLOCK) *(bool *)env = true;
  return !*(bool *)env;
}

void func_check(const PrimFunc *f)
{
  Scope scope = scope_begin(f->m->ctx);
  Check c = {.f = f, .ctx = f->m->ctx, .arena = scratch(f->m->ctx)};
  for (int i = 0; i < f->nparam; i++) bind(&c, f->param[i].var);
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (b && b->data != f->param[i].var) fail(&c, "parameter '%s' is not the pointer of its buffer", b->name);
    if (b) bind_sizes(&c, b);
  }
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) check_layout(&c, f->param[i].buffer);
  bool blocks = false;
  stmt_visit(f->body, find_block, &blocks);
  if (blocks && f->body->kind != S_BLOCK)
    fail(&c, "it holds blocks, but its outermost statement is not the root block");
  check_stmt(&c, f->body, NULL);
  if (blocks) func_check_domains(f);
  scope_end(f->m->ctx, scope);
}
