/* blocks.c: blocks become plain statements.
 *
 * lower_pass_convert_blocks
 *   A block's variables are replaced by what they are bound to; its predicate
 *   becomes `if likely(…)`.  A view made by match_buffer is replaced by what it
 *   views: view[i, j] is source[corner + (i, j)], its pointer is the source's
 *   pointer, its strides are the source's, its elem_offset the corner's position.
 *
 * needs   no init in blocks (init.c), allocations as statements (plan.c), final
 *         shapes of the buffers that are viewed (compact.c)
 * keeps   buffers
 * breaks  nothing; afterwards there are no blocks and no regions */
#include "lower/internal.h"

typedef struct View {
  const Buffer *source;
  const Expr **corner; /* in source; dimensions of the view are the last ones */
} View;

typedef struct Convert {
  Lower *lo;
  Map vars;  /* Var* -> Expr* */
  Map views; /* Buffer* -> View* */
  Rewriter rw;
} Convert;

static void viewed_index(Convert *c, const View *v, int n, const Expr *const *index, const Expr **out)
{
  int skip = v->source->ndim - n;
  for (int d = 0; d < v->source->ndim; d++)
    out[d] = d < skip ? v->corner[d] : expr_add(c->lo->m, v->corner[d], index[d - skip]);
}

static const Expr *convert_node(Rewriter *rw, const Expr *e)
{
  Convert *c = rw->env;
  if (e->kind == E_VAR) {
    const Expr *to = map_get(&c->vars, e->u.var);
    return to ? to : e;
  }
  const View *v = e->kind == E_LOAD ? map_get(&c->views, e->u.buffer) : NULL;
  if (!v) return e;
  const Expr **index = arena_array(rw->arena, const Expr *, v->source->ndim);
  viewed_index(c, v, e->nargs, e->arg, index);
  return expr_load(c->lo->m, v->source, v->source->ndim, index);
}

static const Expr *convert_expr(void *env, const Expr *e) { return expr_rewrite(&((Convert *)env)->rw, e); }

static void bind_var(Convert *c, const Expr *e, const Expr *value)
{
  if (!e || e->kind != E_VAR) return;
  map_put(c->rw.arena, &c->vars, e->u.var, (void *)(uintptr_t)expr_cast(c->lo->m, e->dtype, value));
}

static void buffer_strides(Module *m, const Buffer *b, const Expr **stride)
{
  const Expr *next = b->ndim ? lower_int(m, b->shape[0], 1) : NULL;
  for (int d = b->ndim - 1; d >= 0; d--) {
    stride[d] = b->strides ? b->strides[d] : next;
    if (d) next = expr_mul(m, stride[d], b->shape[d]);
  }
}

static void add_view(Convert *c, const MatchBuffer *match)
{
  Module *m = c->lo->m;
  Arena *tmp = c->rw.arena;
  const Buffer *view = match->buffer;
  const Buffer *source = match->source.buffer;
  View *v = arena_new_of(tmp, View);
  const Expr **min = arena_array(tmp, const Expr *, source->ndim);
  for (int d = 0; d < source->ndim; d++) min[d] = convert_expr(c, match->source.min[d]);
  const View *outer = map_get(&c->views, source);
  *v = (View){source, min};
  if (outer) {
    v->source = outer->source;
    v->corner = arena_array(tmp, const Expr *, v->source->ndim);
    viewed_index(c, outer, source->ndim, min, v->corner);
  }
  map_put(tmp, &c->views, view, v);
  const Buffer *real = v->source;
  const Expr **stride = arena_array(tmp, const Expr *, real->ndim);
  buffer_strides(m, real, stride);
  int skip = real->ndim - view->ndim;
  const Expr *offset = real->elem_offset ? real->elem_offset : expr_i32(m, 0);
  for (int d = 0; d < real->ndim; d++) offset = expr_add(m, offset, expr_mul(m, v->corner[d], stride[d]));
  for (int d = 0; d < view->ndim; d++) {
    if (view->strides) bind_var(c, view->strides[d], stride[d + skip]);
    bind_var(c, view->shape[d], convert_expr(c, match->source.extent[d + source->ndim - view->ndim]));
  }
  bind_var(c, view->elem_offset, offset);
  bind_var(c, view->data->expr, real->data->expr);
}

static Stmt *convert_stmt(void *env, Stmt *s);

static Stmt *convert_block(Convert *c, Stmt *s)
{
  Module *m = c->lo->m;
  Block *b = s->u.block;
  for (int i = 0; i < b->niter; i++) bind_var(c, b->iter[i].var->expr, convert_expr(c, b->iter[i].value));
  for (int i = 0; i < b->nmatches; i++) add_view(c, &b->matches[i]);
  Stmt *body = convert_stmt(c, b->body);
  if (!b->predicate) return body;
  const Expr *pred = convert_expr(c, b->predicate);
  return expr_is_int(pred, 1) ? body : stmt_if(m, lower_likely(m, pred), body, NULL);
}

static Stmt *convert_stmt(void *env, Stmt *s)
{
  Convert *c = env;
  if (s->kind == S_BLOCK) return convert_block(c, s);
  lower_map_exprs(s, convert_expr, c);
  const View *v = s->kind == S_STORE ? map_get(&c->views, s->u.store.buffer) : NULL;
  if (v) {
    const Expr **index = arena_array(c->lo->m->arena, const Expr *, v->source->ndim);
    viewed_index(c, v, s->u.store.n, s->u.store.index, index);
    s->u.store.buffer = v->source;
    s->u.store.index = index;
    s->u.store.n = v->source->ndim;
  }
  lower_map_children(c->lo->m, s, convert_stmt, c);
  return s;
}

void lower_pass_convert_blocks(Lower *lo)
{
  Convert c = {.lo = lo};
  c.rw = (Rewriter){.m = lo->m, .fn = convert_node, .env = &c, .arena = scratch(lo->ctx)};
  lo->f->body = convert_stmt(&c, lo->f->body);
}
