/* einsum.c: padding a sum of products to round extents.
 *
 *   C[i, j] += A[i, k] * B[k, j]   with extents padded to multiples
 * becomes
 *   A_pad[i, k] = A[i, k] inside, else 0;  B_pad likewise
 *   C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
 *   C[i, j] = C_pad[i, j]
 * Every factor that runs along a padded reduction is 0 there, so the sum stays. */
#include "schedule/engine.h"

typedef struct Einsum {
  Sched *s;
  Stmt *block;
  Block *b;
  const Expr **extent; /* padded, for each variable */
  bool *grown;
  Stmt *top; /* the block's nest */
  Analyzer *an;
} Einsum;

static int iter_at(const Einsum *v, const Expr *index)
{
  for (int i = 0; i < v->b->niter; i++)
    if (index == var_expr(v->b->iter[i].var)) return i;
  return -1;
}

typedef struct Accesses {
  Einsum *e;
  Vec(const Expr *) loads;
} Accesses;

static void note_load(void *env, const Expr *e)
{
  Accesses *a = env;
  if (e->kind == E_LOAD) vec_push(scratch(a->e->s->ctx), &a->loads, e);
}

static void check_load(Einsum *v, const Expr *load)
{
  for (int d = 0; d < load->nargs; d++)
    if (iter_at(v, load->arg[d]) < 0)
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "pad_einsum: %s accesses buffer '%s' at %s, which is not one of its variables", tree_what(v->s, v->block),
            load->u.buffer->name, expr_str_of(scratch(v->s->ctx), load->arg[d]));
}

/* Along padded reductions each term must be a product of loads that all run along it. */
static void check_product(Einsum *v, const Expr *e, int iter)
{
  while (e->kind == E_CAST) e = e->arg[0];
  if (e->kind == E_MUL) {
    check_product(v, e->arg[0], iter);
    check_product(v, e->arg[1], iter);
    return;
  }
  if (e->kind != E_LOAD || !expr_uses_var(e, v->b->iter[iter].var))
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
          "pad_einsum: a factor of the sum of %s, %s, is not a load along '%s', which is to be padded",
          tree_what(v->s, v->block), expr_str_of(scratch(v->s->ctx), e), v->b->iter[iter].var->name);
}

static void check_block(Einsum *v)
{
  Sched *s = v->s;
  Block *b = v->b;
  facts_check_movable(s, "pad_einsum", v->block);
  facts_check_whole_scope(s, "pad_einsum", v->block);
  if (b->body->kind != S_STORE)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "pad_einsum: %s is more than one store", tree_what(s, v->block));
  Stmt *store = b->body;
  const Expr *own = expr_load(s->m, store->u.store.buffer, store->u.store.n, store->u.store.index);
  check_load(v, own);
  const Expr *value = store->u.store.value;
  const Expr *term = value;
  if (b->init) {
    if (value->kind != E_ADD || (value->arg[0] != own && value->arg[1] != own))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "pad_einsum: %s is not a sum", tree_what(s, v->block));
    term = value->arg[0] == own ? value->arg[1] : value->arg[0];
  }
  Accesses a = {.e = v};
  expr_visit(s->ctx, term, note_load, &a);
  for (int i = 0; i < a.loads.n; i++) check_load(v, a.loads.v[i]);
  for (int i = 0; i < b->niter; i++) {
    if (v->grown[i] && b->iter[i].kind == ITER_REDUCE) check_product(v, term, i);
    if (v->grown[i] && b->iter[i].kind == ITER_SPATIAL && !expr_uses_var(own, b->iter[i].var))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "pad_einsum: '%s' of %s, which is to be padded, does not say what is stored: more of its steps would store "
            "it again",
            b->iter[i].var->name, tree_what(s, v->block));
  }
  v->top = tree_nest(v->block);
  for (int i = 0; i < b->niter; i++) {
    bool found = false;
    for (Stmt *p = v->block->parent; p && p->kind == S_FOR; p = p->parent)
      found |= b->iter[i].value == var_expr(LOOPVAR(p));
    if (!found && v->grown[i])
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "pad_einsum: the variable '%s' of %s is not bound to a loop of its own; pad before splitting",
            b->iter[i].var->name, tree_what(s, v->block));
  }
}

static bool dim_grows(const Einsum *v, const Expr *load)
{
  bool grows = false;
  for (int d = 0; d < load->nargs; d++) grows |= v->grown[iter_at(v, load->arg[d])];
  return grows;
}

static const Buffer *padded_buffer(Einsum *v, const Expr *load)
{
  Sched *s = v->s;
  const Buffer *b = load->u.buffer;
  const Expr **shape = arena_array(scratch(s->ctx), const Expr *, b->ndim);
  for (int d = 0; d < b->ndim; d++)
    shape[d] = v->grown[iter_at(v, load->arg[d])] ? v->extent[iter_at(v, load->arg[d])] : b->shape[d];
  const char *name = tree_buffer_name(s, arena_printf(scratch(s->ctx), "%s_pad", b->name));
  const Buffer *pad = buffer_new(s->m, name, b->dtype, b->ndim, shape, NULL, NULL, b->scope, 0, 0, NULL);
  sched_block_add_alloc(s, tree_scope(s, v->block), pad);
  return pad;
}

/* The block between a buffer and its padded twin. */
static Stmt *pad_nest(Einsum *v, const Buffer *b, const Buffer *pad, const Expr *load, bool output)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const Var **vars = arena_array(tmp, const Var *, b->ndim);
  const Expr **at = arena_array(tmp, const Expr *, b->ndim);
  const Expr *inside = NULL;
  const Expr **extent = arena_array(tmp, const Expr *, b->ndim);
  for (int d = 0; d < b->ndim; d++) {
    const BlockIter *it = &v->b->iter[iter_at(v, load->arg[d])];
    vars[d] = var_new(s->m, arena_printf(s->m->arena, "v%d", d), b->shape[d]->dtype, VAR_PLAIN);
    at[d] = var_expr(vars[d]);
    extent[d] = output ? it->extent : pad->shape[d];
    if (!v->grown[iter_at(v, load->arg[d])]) continue;
    inside = sched_both(s, inside, expr_lt(s->m, at[d], it->extent));
    if (!analyzer_prove(v->an, expr_binary(s->m, E_LE, it->extent, b->shape[d])))
      inside = sched_both(s, inside, expr_lt(s->m, at[d], b->shape[d]));
  }
  const Expr *value = expr_load(s->m, output ? pad : b, b->ndim, at);
  if (!output)
    value = expr_call(s->m, value->dtype, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){inside, value, expr_const(s->m, value->dtype, 0)});
  Stmt *store = stmt_store(s->m, output ? b : pad, b->ndim, at, value);
  return sched_plain_nest(s, sched_plain_block(s, pad->name, b->ndim, vars, extent, store));
}

static void grow(Einsum *v)
{
  for (int i = 0; i < v->b->niter; i++) {
    if (!v->grown[i]) continue;
    for (Stmt *p = v->block->parent; p && p->kind == S_FOR; p = p->parent)
      if (v->b->iter[i].value == var_expr(LOOPVAR(p))) p->u.loop.extent = v->extent[i];
    v->b->iter[i].extent = v->extent[i];
  }
}

SchedArg prim_pad_einsum(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Einsum v = {.s = s, .block = sched_arg_block(s, &a[0])};
  v.b = BLOCK(v.block);
  int n = v.b->niter;
  if (a[1].u.list.n != n)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "pad_einsum: %s has %d variables, %d paddings are given",
          tree_what(s, v.block), n, a[1].u.list.n);
  v.extent = arena_array(tmp, const Expr *, n);
  v.grown = arena_array(tmp, bool, n);
  Analyzer *an = v.an = facts_analyzer(s, v.block);
  bool any = false;
  for (int i = 0; i < n; i++) {
    int64_t p = sched_arg_int(s, &a[1].u.list.v[i]);
    if (p <= 0) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "pad_einsum: padding %" PRId64 " is not positive", p);
    const Expr *e = v.b->iter[i].extent;
    const Expr *c = sched_const_like(s, e, p);
    v.extent[i] = expr_simplify(an, expr_mul(s->m, sched_ceil_div(s, e, c), c));
    v.grown[i] = !analyzer_prove_equal(an, v.extent[i], e);
    any |= v.grown[i];
  }
  check_block(&v);
  if (!any) return sched_arg_none;
  Stmt *store = v.b->body;
  const Expr *own = expr_load(s->m, store->u.store.buffer, store->u.store.n, store->u.store.index);
  Accesses all = {.e = &v};
  expr_visit(s->ctx, store->u.store.value, note_load, &all);
  bool out_grows = dim_grows(&v, own);
  Vec(const Buffer *) done = {0};
  for (int i = 0; i < all.loads.n; i++) {
    const Expr *load = all.loads.v[i];
    if (load == own || !dim_grows(&v, load)) continue;
    bool again = false;
    for (int k = 0; k < done.n; k++) again |= done.v[k] == load->u.buffer;
    if (again)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "pad_einsum: %s reads buffer '%s' at different indices",
            tree_what(s, v.block), load->u.buffer->name);
    vec_push(tmp, &done, load->u.buffer);
    const Buffer *pad = padded_buffer(&v, load);
    tree_insert_beside(s, v.top, false, pad_nest(&v, load->u.buffer, pad, load, false));
    stmt_replace_buffer(s->m, v.block, load->u.buffer, pad);
  }
  if (out_grows) {
    const Buffer *pad = padded_buffer(&v, own);
    tree_insert_beside(s, v.top, true, pad_nest(&v, own->u.buffer, pad, own, true));
    stmt_replace_buffer(s->m, v.block, own->u.buffer, pad);
  }
  grow(&v);
  facts_refresh(s, v.block);
  return sched_arg_none;
}
