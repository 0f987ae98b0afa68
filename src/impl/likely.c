/* likely.c: what sizes that are known only at run time are taken to be, where a choice depends on them.
 *
 * Code that serves every size is chosen by how fast it is for a likely one.  A size is an expression of the model's own
 * variables, (h - 1) // 2 + 1 behind a convolution of stride 2, so that with one value for the variables all sizes of
 * a network go together: 224 of an image are 7 in a ResNet's last layers.  Where the user has said what a variable is
 * likely to be (the sizes of inputs may be ranges), that is its value. */
#include "impl/internal.h"

static bool is_binary(const Expr *e) { return e->nargs == 2 && e->kind >= E_ADD && e->kind <= E_MAX; }

/* What is neither arithmetic nor a number stands for a variable. */
static int64_t value_of(const Expr *e, int64_t variable)
{
  Value v;
  if (e->kind == E_INT) return e->u.i;
  if (e->kind == E_VAR && e->u.var->likely > 0) return e->u.var->likely;
  if (e->kind == E_CAST) return value_of(e->arg[0], variable);
  if (!is_binary(e)) return variable;
  Value a = value_int(DT_I64, value_of(e->arg[0], variable));
  Value b = value_int(DT_I64, value_of(e->arg[1], variable));
  return expr_eval_binary(e->kind, a, b, &v) ? v.i : variable;
}

int64_t likely_size(const Expr *e, int dims)
{
  static const int64_t variable[] = {128, 16000, 224, 64}; /* words of a text; a signal, an image, a volume */
  int64_t v = value_of(e, variable[dims]);
  return v > 0 ? v : 1;
}

/* Size d of data: of the first, a batch, there is one unless somebody has said another. */
static int64_t likely_dim(const Expr *e, int d, int dims)
{
  if (d || e->kind == E_INT) return likely_size(e, dims);
  return e->kind == E_VAR && e->u.var->likely > 0 ? e->u.var->likely : 1;
}

double impl_likely_elements(const Type *t)
{
  double n = 1;
  int dims = t->ndim > 5 ? 3 : t->ndim < 2 ? 0 : t->ndim - 2;
  for (int d = 0; d < t->ndim; d++)
    n *= t->shape[d]->kind == E_INT ? (double)t->shape[d]->u.i : (double)likely_dim(t->shape[d], d, dims);
  return n;
}

static const Type *likely_type(Module *m, const Type *t)
{
  const Expr *shape[MAX_RANK];
  if (t->kind != TY_TENSOR || t->ndim < 0 || t->ndim > MAX_RANK) return t;
  int dims = t->ndim > 5 ? 3 : t->ndim < 2 ? 0 : t->ndim - 2;
  for (int d = 0; d < t->ndim; d++)
    shape[d] = t->shape[d]->kind == E_INT ? t->shape[d] : expr_i32(m, likely_dim(t->shape[d], d, dims));
  return type_tensor(m, t->dtype, t->ndim, shape);
}

double likely_flops(Module *m, const Node *call)
{
  if (impl_flops(call) > 0 || call->type->kind != TY_TENSOR) return impl_flops(call);
  Node *likely = arena_copy(m->arena, call, sizeof *call);
  const Node **arg = arena_array(m->arena, const Node *, call->nargs + 1);
  for (int i = 0; i < call->nargs; i++) {
    Node *one = arena_copy(m->arena, call->arg[i], sizeof *one);
    if (one->type) one->type = likely_type(m, one->type);
    arg[i] = one;
  }
  likely->arg = arg;
  likely->type = likely_type(m, call->type);
  return impl_flops(likely);
}

bool likely_is_open(const Node *call)
{
  const Type *y = call->type;
  bool open = false;
  for (int d = 1; y->kind == TY_TENSOR && d < y->ndim; d++) open |= y->shape[d]->kind != E_INT;
  return open;
}

/* A part of an open extent, which does not make it less than a few. */
static const Expr *part_of(Module *m, const Expr *e, int part)
{
  enum { FEW = 7 }; /* the last maps of many networks */
  const Expr *up = expr_add(m, e, expr_int(m, e->dtype, part - 1));
  const Expr *few = expr_min(m, e, expr_int(m, e->dtype, FEW));
  return expr_max(m, expr_floordiv(m, up, expr_int(m, e->dtype, part)), few);
}

static const Type *part_type(Module *m, const Type *t, int part)
{
  const Expr *shape[MAX_RANK];
  if (t->kind != TY_TENSOR || t->ndim < 0 || t->ndim > MAX_RANK) return t;
  for (int d = 0; d < t->ndim; d++) {
    const Expr *e = t->shape[d];
    shape[d] = d && e->kind != E_INT ? part_of(m, e, part) : e;
  }
  return type_tensor(m, t->dtype, t->ndim, shape);
}

const Node *likely_part(Module *m, const Node *call, int part)
{
  Node *less = arena_copy(m->arena, call, sizeof *call);
  const Node **arg = arena_array(m->arena, const Node *, call->nargs + 1);
  for (int i = 0; i < call->nargs; i++) {
    arg[i] = call->arg[i];
    const Type *t = arg[i]->type ? part_type(m, arg[i]->type, part) : NULL;
    if (!t || arg[i]->kind == N_CONST) continue;
    Node *one = arena_copy(m->arena, arg[i], sizeof *one);
    one->type = t;
    arg[i] = one;
  }
  less->arg = arg;
  less->type = part_type(m, call->type, part);
  return less;
}
