/* sizes.c: kernels that do not know where their sizes come from.
 *
 * In: a primitive function whose parameters have sizes that are expressions over the sizes of
 * the model (batch*12, min(n, 512), …).  Out: the same function with a variable of its own for
 * each different size, s0, s1, … in order of first sight, so that
 *   a kernel reads its sizes off its tensors instead of computing them in every loop,
 *   layers that differ only in the names of their sizes share a kernel.
 * Sizes of which an attribute speaks (the new shape of a reshape) stay as they are: the
 * relation between the two is needed. */
#include "driver/program.h"

typedef struct Sizes {
  Program *p;
  Arena *arena;
  Map fixed; /* variables that attributes mention */
  Map own;   /* size (Expr*) -> the variable that stands for it (Expr*) */
  bool changed;
} Sizes;

static void add_attr_vars(Sizes *s, const Node *call)
{
  const AttrsDef *def = call->u.call.op->attrs;
  for (int i = 0; def && i < def->n; i++) {
    if (def->field[i].kind != AT_DIMS) continue;
    const AttrDims *dims = (const AttrDims *)(const void *)((const char *)call->u.call.attrs + def->field[i].offset);
    for (int k = 0; k < dims->n; k++) {
      const Var **var;
      int n = expr_free_vars(s->arena, dims->v[k], &var);
      for (int v = 0; v < n; v++) map_put(s->arena, &s->fixed, var[v], NULL);
    }
  }
}

static bool is_fixed(Sizes *s, const Expr *dim)
{
  const Var **var;
  int n = expr_free_vars(s->arena, dim, &var);
  for (int i = 0; i < n; i++)
    if (map_has(&s->fixed, var[i])) return true;
  return false;
}

/* The i-th variable of every function: the same one, so that equal functions are found to be equal. */
static const Expr *own_size(Sizes *s, int i)
{
  Program *p = s->p;
  while (p->size.n <= i) {
    const char *name = arena_printf(p->m->arena, "s%d", p->size.n);
    vec_push(p->arena, &p->size, var_new(p->m, name, DT_I32, VAR_SIZE));
  }
  return var_expr(p->size.v[i]);
}

static const Expr *own_dim(Sizes *s, const Expr *dim)
{
  if (dim->kind == E_INT) return dim;
  const Expr *plain = type_dim_unguarded(dim);
  const Expr *own = map_get(&s->own, plain);
  if (!own) {
    bool keep = !dtype_eq(plain->dtype, DT_I32) || plain->kind == E_INT || is_fixed(s, plain);
    own = keep ? plain : own_size(s, s->own.n);
    map_put(s->arena, &s->own, plain, (void *)(uintptr_t)own);
  }
  s->changed |= own != dim;
  return own;
}

static const Type *own_type(Sizes *s, const Type *ty)
{
  Module *m = s->p->m;
  if (ty->kind == TY_TENSOR && ty->ndim > 0) {
    const Expr **shape = arena_array(s->arena, const Expr *, ty->ndim);
    for (int d = 0; d < ty->ndim; d++) shape[d] = own_dim(s, ty->shape[d]);
    return type_tensor(m, ty->dtype, ty->ndim, shape);
  }
  if (ty->kind != TY_TUPLE) return ty;
  const Type **field = arena_array(s->arena, const Type *, ty->nfield + 1);
  for (int i = 0; i < ty->nfield; i++) field[i] = own_type(s, ty->field[i]);
  return type_tuple(m, ty->nfield, field);
}

/* Are the results tensors of the same ranks and dtypes? */
static bool same_leaves(Arena *a, const Type *x, const Type *y)
{
  int n, k;
  const Type **p = type_leaves(a, x, &n);
  const Type **q = type_leaves(a, y, &k);
  if (n != k) return false;
  for (int i = 0; i < n; i++)
    if (p[i]->kind != q[i]->kind || p[i]->ndim != q[i]->ndim || !dtype_eq(p[i]->dtype, q[i]->dtype)) return false;
  return true;
}

typedef struct Rebuild {
  Module *m;
  const Node *func, *out;
  const Node **param;
  Map by_param;
} Rebuild;

static void rebuild(Ctx *ctx, void *arg)
{
  (void)ctx;
  Rebuild *r = arg;
  const Node *body = graph_substitute(r->m, fn_body(r->func), &r->by_param);
  r->out = node_func(r->m, fn_nparams(r->func), r->param, body, NULL, &r->func->u.func->attrs);
}

const Node *program_own_sizes(Program *p, const Node *func)
{
  if (func->kind != N_FUNC || fn_body(func)->kind == N_CALL_TIR) return func;
  Scope scope = scope_begin(p->ctx);
  Arena *arena = arena_new(p->ctx);
  defer(p->ctx, (void (*)(void *))arena_free, arena);
  Sizes s = {.p = p, .arena = arena};
  const Node **node;
  const Node *out = func;
  int n = graph_post_order(arena, fn_body(func), &node);
  int nparam = fn_nparams(func);
  for (int i = 0; i < n; i++)
    if (node[i]->kind == N_CALL) add_attr_vars(&s, node[i]);
  Rebuild r = {.m = p->m, .func = func, .param = arena_array(arena, const Node *, nparam + 1)};
  for (int i = 0; i < nparam; i++) {
    r.param[i] = node_var(p->m, func->arg[i]->name, own_type(&s, func->arg[i]->type));
    map_put(arena, &r.by_param, func->arg[i], (void *)(uintptr_t)r.param[i]);
  }
  if (s.changed) {
    ErrKind kind = protect(p->ctx, rebuild, &r);
    if (error_passes_on(kind)) error_reraise(p->ctx);
    if (kind) error_clear(p->ctx); /* an operator that needs the relation of two sizes keeps the function as it was */
    else if (same_leaves(arena, fn_body(func)->type, fn_body(r.out)->type)) out = r.out;
  }
  scope_end(p->ctx, scope);
  return out;
}
