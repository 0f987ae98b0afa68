/* parts.c: a sum cut into blocks of its terms.
 *
 *   part[…, b] = sum over the terms of block b
 *   total[…]   = sum over b of part[…, b]
 *
 * The sum that an operator's meaning has is the start: its tensor expression is rewritten, so whatever layout, stride
 * or padding it has stays. */
#include "impl/internal.h"

static const IterVar *fresh(Module *m, const IterVar *like, const Expr *extent, IterKind kind)
{
  return itervar_new(m, var_new(m, like->var->name, like->var->dtype, VAR_PLAIN), expr_int(m, like->var->dtype, 0),
                     extent, kind, NULL);
}

int64_t parts_steps(const TeOp *sum, int64_t most)
{
  int64_t terms = 1;
  int64_t best = 1;
  int64_t all = sum->reduce_axis[0]->extent->u.i;
  for (int i = 1; i < sum->nreduce; i++) terms *= sum->reduce_axis[i]->extent->u.i;
  for (int64_t d = 1; d <= all; d++)
    if (all % d == 0 && d * terms <= most) best = d;
  return best;
}

const Tensor *parts_sum(Module *m, const TeOp *sum, const Expr *term, int64_t steps, int64_t blocks)
{
  const IterVar *axis[PARTS_AXES], *reduce[PARTS_AXES];
  const Expr *shape[PARTS_AXES];
  Scope scope = scope_begin(m->ctx);
  Map to = {0};
  int n = sum->naxis;
  for (int i = 0; i < n; i++) {
    axis[i] = fresh(m, sum->axis[i], sum->axis[i]->extent, ITER_SPATIAL);
    shape[i] = sum->axis[i]->extent;
    map_put(scratch(m->ctx), &to, sum->axis[i]->var, (void *)(uintptr_t)var_expr(axis[i]->var));
  }
  for (int i = 0; i < sum->nreduce; i++) {
    const IterVar *r = sum->reduce_axis[i];
    reduce[i] = fresh(m, r, i || blocks == 1 ? r->extent : expr_int(m, r->extent->dtype, steps), ITER_REDUCE);
    const Expr *at = var_expr(reduce[i]->var);
    if (i == 0 && blocks > 1) {
      shape[n] = expr_int(m, r->extent->dtype, blocks);
      axis[n] = itervar_new(m, var_new(m, "block", r->var->dtype, VAR_PLAIN), expr_int(m, r->var->dtype, 0), shape[n],
                            ITER_SPATIAL, NULL);
      at = expr_add(m, expr_mul(m, var_expr(axis[n]->var), expr_int(m, r->var->dtype, steps)), at);
    }
    map_put(scratch(m->ctx), &to, r->var, (void *)(uintptr_t)at);
  }
  term = expr_substitute(m, term, &to);
  scope_end(m->ctx, scope);
  const Expr *body = expr_reduce(m, reducer_named(m, "sum", term->dtype, DT_I32), 1, &term, sum->nreduce, reduce,
                                 expr_bool(m, true), NULL, 0);
  return &te_compute(m, arena_printf(m->arena, "%s_part", sum->name), sum->tag, n + (blocks > 1), shape, axis, 1, &body,
                     NULL)
              ->out[0];
}

/* With the sum's axes: the sum over blocks of the part, or (blocks 0) the part itself. */
static const Tensor *like_sum(Module *m, const TeOp *sum, const char *name, const char *tag, const Tensor *part,
                              int64_t blocks, DType out)
{
  const IterVar *axis[PARTS_AXES], *b;
  const Expr *shape[PARTS_AXES], *at[PARTS_AXES];
  int n = sum->naxis;
  for (int i = 0; i < n; i++) {
    shape[i] = sum->axis[i]->extent;
    axis[i] = fresh(m, sum->axis[i], shape[i], ITER_SPATIAL);
    at[i] = var_expr(axis[i]->var);
  }
  b = itervar_new(m, var_new(m, "block", DT_I32, VAR_PLAIN), expr_i32(m, 0), expr_i32(m, blocks), ITER_REDUCE, NULL);
  at[n] = var_expr(b->var);
  const Expr *value = expr_cast(m, out, te_read(m, part, blocks ? n + 1 : n, at));
  if (blocks)
    value = expr_reduce(m, reducer_named(m, "sum", out, DT_I32), 1, &value, 1, &b, expr_bool(m, true), NULL, 0);
  return &te_compute(m, name, tag, n, shape, axis, 1, &value, NULL)->out[0];
}

const Tensor *parts_total(Module *m, const TeOp *sum, const Tensor *part, int64_t blocks, DType out)
{
  const Tensor *total = like_sum(m, sum, sum->name, sum->tag, part, blocks, DT_F32);
  return dtype_eq(out, DT_F32)
             ? total
             : like_sum(m, sum, arena_printf(m->arena, "%s_cast", sum->name), "elemwise", total, 0, out);
}

const Tensor *parts_replace(Module *m, const Tensor *out, const char *name,
                            const Tensor *(*instead)(Module *, const Tensor *, const void *), const void *arg)
{
  Scope scope = scope_begin(m->ctx);
  Map now = {0};
  const TeOp **op;
  int n = te_post_order(scratch(m->ctx), 1, &out, &op);
  for (int i = 0; i < n; i++) {
    const Tensor *old = &op[i]->out[0];
    const Tensor *to = !strcmp(op[i]->name, name) ? instead(m, old, arg) : &te_replace_reads(op[i], &now)->out[0];
    if (to != old) map_put(scratch(m->ctx), &now, old, (void *)(uintptr_t)to);
  }
  const Tensor *made = map_get(&now, out);
  scope_end(m->ctx, scope);
  return made ? made : out;
}

bool parts_find(ImplGroup *g, BlockRV *part)
{
  for (int i = 0; i < g->nanchor; i++)
    if (g->anchor_op[i]->nreduce && str_ends(g->anchor_op[i]->name, "_part") && i + 1 < g->nanchor &&
        g->anchor_op[i + 1]->nreduce) {
      *part = sched_get_block(g->s, group_block(g, g->anchor_op[i]));
      return true;
    }
  return false;
}
