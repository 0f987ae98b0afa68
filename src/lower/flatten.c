/* flatten.c: buffers of many dimensions become flat memory.
 *
 * lower_pass_flatten_buffers
 *   C[i, j] becomes C[offset + i*stride0 + j*stride1] over a buffer of one dimension
 *   that shares C's pointer; compact buffers have row-major strides.  Parameters
 *   keep their declared buffers in the signature.
 *
 * needs   no blocks
 * keeps   pointers: the flat buffer's data is the old one's
 * breaks  buffers of more or fewer than one dimension are gone from the body
 *
 * lower_pass_resolve_pointers
 *   tvm_access_ptr(type, data, offset, …) becomes address_of(data[offset]).
 *
 * needs   flat buffers
 * breaks  nothing */
#include "lower/internal.h"

typedef struct Flatten {
  Lower *lo;
  Analyzer *an;
  Map flat;    /* Buffer* -> Buffer* */
  Map by_data; /* data Var* -> flat Buffer* */
  Rewriter rw;
} Flatten;

static void strides_of(Module *m, const Buffer *b, const Expr **stride)
{
  const Expr *next = NULL;
  for (int d = b->ndim - 1; d >= 0; d--) {
    stride[d] = b->strides ? b->strides[d] : next;
    if (d == 0) break;
    next = stride[d] ? expr_mul(m, stride[d], b->shape[d]) : b->shape[d];
  }
}

/* Elements from the pointer to the end of the last one. */
static const Expr *flat_extent(Flatten *f, const Buffer *b)
{
  Module *m = f->lo->m;
  const Expr *n = NULL;
  if (!b->strides) {
    for (int d = 0; d < b->ndim; d++) n = n ? expr_mul(m, n, b->shape[d]) : b->shape[d];
    if (!n) n = expr_i32(m, 1);
  } else {
    n = expr_i32(m, 1);
    for (int d = 0; d < b->ndim; d++)
      n = expr_add(m, n, expr_mul(m, expr_sub(m, b->shape[d], lower_int(m, b->shape[d], 1)), b->strides[d]));
  }
  if (b->elem_offset) n = expr_add(m, b->elem_offset, n);
  return expr_simplify(f->an, n);
}

static const Buffer *flat_of(Flatten *f, const Buffer *b)
{
  const Buffer *to = map_get(&f->flat, b);
  if (to) return to;
  if (b->ndim == 1 && !b->strides && !b->elem_offset) {
    to = b;
  } else {
    const Expr *extent = flat_extent(f, b);
    to = buffer_new(f->lo->m, b->name, b->dtype, 1, &extent, NULL, NULL, b->scope, b->align, b->offset_factor, b->data);
  }
  map_put(f->rw.arena, &f->flat, b, (void *)(uintptr_t)to);
  map_put(f->rw.arena, &f->by_data, b->data, (void *)(uintptr_t)to);
  return to;
}

static const Expr *flat_index(Flatten *f, const Buffer *b, const Expr *const *index)
{
  Module *m = f->lo->m;
  const Expr **stride = arena_array(f->rw.arena, const Expr *, b->ndim);
  strides_of(m, b, stride);
  const Expr *at = b->elem_offset;
  for (int d = 0; d < b->ndim; d++) {
    const Expr *term = !stride[d] || expr_is_int(stride[d], 1) ? index[d] : expr_mul(m, index[d], stride[d]);
    at = at ? expr_add(m, at, term) : term;
  }
  return at ? at : expr_i32(m, 0);
}

static const Expr *flatten_node(Rewriter *rw, const Expr *e)
{
  Flatten *f = rw->env;
  if (e->kind != E_LOAD) return e;
  const Buffer *to = flat_of(f, e->u.buffer);
  if (to == e->u.buffer) return e;
  const Expr *at = flat_index(f, e->u.buffer, e->arg);
  return expr_load(f->lo->m, to, 1, &at);
}

static const Expr *flatten_expr(void *env, const Expr *e) { return expr_rewrite(&((Flatten *)env)->rw, e); }

static bool flatten_stmt(void *env, Stmt *s)
{
  Flatten *f = env;
  if (s->kind == S_ALLOC) s->u.alloc.buffer = flat_of(f, s->u.alloc.buffer);
  lower_map_exprs(s, flatten_expr, f);
  if (s->kind != S_STORE) return true;
  const Buffer *b = s->u.store.buffer;
  const Buffer *to = flat_of(f, b);
  if (to == b) return true;
  const Expr **index = arena_array(f->lo->m->arena, const Expr *, 1);
  index[0] = flat_index(f, b, s->u.store.index);
  s->u.store.buffer = to;
  s->u.store.index = index;
  s->u.store.n = 1;
  return true;
}

void lower_pass_flatten_buffers(Lower *lo)
{
  Flatten f = {.lo = lo, .an = lower_analyzer(lo)};
  f.rw = (Rewriter){.m = lo->m, .fn = flatten_node, .env = &f, .arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, flatten_stmt, &f);
}

/* ---- pointers into buffers ------------------------------------------------------------ */

/* The flat buffer behind a pointer: one that is used or allocated, or a parameter's. */
static const Buffer *behind(Flatten *f, const Var *data)
{
  const Buffer *b = map_get(&f->by_data, data);
  for (int i = 0; !b && i < f->lo->f->nparam; i++)
    if (f->lo->f->param[i].buffer && f->lo->f->param[i].buffer->data == data) b = flat_of(f, f->lo->f->param[i].buffer);
  return b;
}

static const Expr *pointer_node(Rewriter *rw, const Expr *e)
{
  Flatten *f = rw->env;
  Module *m = f->lo->m;
  if (e->kind == E_LOAD) flat_of(f, e->u.buffer);
  if (e->kind != E_CALL || e->u.intrin != IN_ACCESS_PTR) return e;
  const Buffer *b = e->arg[1]->kind == E_VAR ? behind(f, e->arg[1]->u.var) : NULL;
  if (!b)
    raise(f->lo->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: tvm_access_ptr of %s, which is not the pointer of a buffer",
          f->lo->f->name, expr_str_of(scratch(f->lo->ctx), e->arg[1]));
  const Expr *at = e->arg[2];
  int lanes = e->arg[0]->dtype.lanes;
  if (lanes > 1) at = expr_mul(m, at, lower_int(m, at, lanes));
  at = expr_simplify(f->an, at);
  const Expr *load = expr_load(m, b, 1, &at);
  return expr_call(m, e->dtype, IN_ADDRESS_OF, 1, &load);
}

static const Expr *pointer_expr(void *env, const Expr *e) { return expr_rewrite(&((Flatten *)env)->rw, e); }

static bool note_buffers(void *env, Stmt *s)
{
  Flatten *f = env;
  if (s->kind == S_ALLOC) flat_of(f, s->u.alloc.buffer);
  if (s->kind == S_STORE) flat_of(f, s->u.store.buffer);
  return true;
}

void lower_pass_resolve_pointers(Lower *lo)
{
  Flatten f = {.lo = lo, .an = lower_analyzer(lo)};
  f.rw = (Rewriter){.m = lo->m, .fn = pointer_node, .env = &f, .arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, note_buffers, &f);
  stmt_rewrite_exprs(lo->f->body, pointer_expr, &f);
}
