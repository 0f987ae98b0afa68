/* words.c: elements that lie side by side are read as the word that they make.
 *
 * lower_pass_join_words
 *   bits(w[…, 0]) | bits(w[…, 1]) << 16 becomes a load of uint32 from the same memory, four elements one of uint64,
 *   where the last dimension of w has no more of them: a weight of bfloat16 in groups (NC8n2c, OIHW4i8o4i).
 *
 * needs   buffers of many dimensions
 * keeps   pointers: the buffer of words shares the other one's
 * breaks  nothing */
#include "lower/internal.h"

enum { MOST = 4 };

/* The elements whose bits make the word, the lowest first; false: it is made of something else. */
static bool elements_of(const Expr *e, int *n, const Expr **element)
{
  if (e->kind == E_CAST && e->dtype.code == DT_UINT && e->arg[0]->dtype.code == DT_UINT) e = e->arg[0];
  if (e->kind != E_CALL || *n == MOST) return false;
  if (e->u.intrin == IN_REINTERPRET && e->arg[0]->kind == E_LOAD && e->dtype.bits == 16) {
    element[(*n)++] = e->arg[0];
    return true;
  }
  if (e->u.intrin != IN_BITOR || e->arg[1]->kind != E_CALL || e->arg[1]->u.intrin != IN_SHL ||
      !expr_is_int(e->arg[1]->arg[1], e->dtype.bits / 2))
    return false;
  return elements_of(e->arg[0], n, element) && elements_of(e->arg[1]->arg[0], n, element);
}

static const Expr *join(Rewriter *rw, const Expr *e)
{
  const Expr *element[MOST];
  int n = 0;
  if (e->kind != E_CALL || e->u.intrin != IN_BITOR || e->dtype.lanes != 1 || !elements_of(e, &n, element)) return e;
  const Buffer *b = element[0]->u.buffer;
  int last = b->ndim - 1;
  if (16 * n != e->dtype.bits || last < 1 || b->strides || b->elem_offset || !expr_is_int(b->shape[last], n)) return e;
  for (int i = 0; i < n; i++) {
    if (element[i]->u.buffer != b || !expr_is_int(element[i]->arg[last], i)) return e;
    for (int d = 0; d < last; d++)
      if (element[i]->arg[d] != element[0]->arg[d]) return e;
  }
  const Buffer *words = map_get(rw->env, b);
  if (!words) {
    words =
        buffer_new(rw->m, b->name, e->dtype, last, b->shape, NULL, NULL, b->scope, b->align, b->offset_factor, b->data);
    map_put(rw->arena, rw->env, b, (void *)(uintptr_t)words);
  }
  return expr_load(rw->m, words, last, element[0]->arg);
}

static const Expr *join_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

void lower_pass_join_words(Lower *lo)
{
  Map words = {0}; /* Buffer* -> the same memory as words */
  Rewriter rw = {.m = lo->m, .fn = join, .env = &words, .arena = scratch(lo->ctx)};
  stmt_rewrite_exprs(lo->f->body, join_expr, &rw);
}
