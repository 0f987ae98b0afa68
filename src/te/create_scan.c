/* create_scan.c: the blocks of scans and externs.
 *
 * A scan becomes a sequence: one block for each state that copies its initial rows,
 * and a loop over the later rows around an opaque block, which holds the blocks of
 * the operations between state and update for one row, and for each state one that
 * copies the update's row.  The state is the scan's output buffer.  An update has a
 * buffer of its own, so that no block reads what it writes and its loops can be
 * scheduled like any other's.
 *
 * An extern becomes one opaque block that holds its statement, with the buffers it
 * was written for replaced by the tensors'. */
#include "te/create.h"

/* Copies rows of `from` into the scan's output: all of them, or the one given. */
static Stmt *copy_block(Creator *c, const TeOp *op, int i, const Tensor *source, const Expr *row, const char *suffix)
{
  const Buffer *from = te_create_buffer(c, source);
  const Buffer *to = te_create_buffer(c, &op->out[i]);
  Nest nest = {.c = c};
  const Expr **index = arena_array(c->imp.arena, const Expr *, to->ndim);
  for (int d = 0; d < to->ndim; d++) {
    if (d == 0 && row) {
      index[0] = row;
      continue;
    }
    const Var *v = var_new(c->m, arena_printf(c->imp.arena, "i%d", d), from->shape[d]->dtype, VAR_PLAIN);
    te_nest_axis(&nest, v, expr_int(c->m, v->dtype, 0), from->shape[d], ITER_SPATIAL);
    index[d] = nest.iter.v[nest.iter.n - 1].var->expr;
  }
  Stmt *store = stmt_store(c->m, to, to->ndim, index, expr_load(c->m, from, to->ndim, index));
  const char *hint = arena_printf(c->imp.arena, "%s_%s", op->out[i].buffer->name, suffix);
  return te_nest_close(&nest, te_create_name(c, &c->blocks, hint), NULL, store);
}

/* What the steps touch, whole: the block of a step is opaque anyway. */
static void step_regions(Creator *c, Block *b, const TeOp *op, int n, const TeOp *const *step)
{
  Vec(Region) reads = {0}, writes = {0};
  Map seen = {0};
  for (int i = 0; i < n; i++) {
    const Tensor **in;
    int nin = te_inputs(c->imp.arena, step[i], &in);
    for (int k = 0; k < nin; k++) {
      const Buffer *buffer = te_create_buffer(c, in[k]);
      if (map_has(&seen, buffer)) continue;
      map_put(c->imp.arena, &seen, buffer, c);
      vec_push(c->m->arena, &reads, te_create_whole(c, buffer));
    }
  }
  seen = (Map){0};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < step[i]->nout; k++) {
      const Buffer *buffer = te_create_buffer(c, &step[i]->out[k]);
      if (map_has(&seen, buffer)) continue;
      map_put(c->imp.arena, &seen, buffer, c);
      vec_push(c->m->arena, &writes, te_create_whole(c, buffer));
    }
  for (int i = 0; i < op->nstate; i++)
    vec_push(c->m->arena, &writes, te_create_whole(c, te_create_buffer(c, &op->out[i])));
  b->reads = reads.v;
  b->nreads = reads.n;
  b->writes = writes.v;
  b->nwrites = writes.n;
}

Stmt *te_create_scan(Creator *c, const TeOp *op)
{
  Module *m = c->m;
  Vec(Stmt *) seq = {0}, inner = {0};
  for (int i = 0; i < op->nstate; i++) {
    const Buffer *b = te_create_buffer(c, &op->out[i]);
    map_put(c->imp.arena, &c->imp.buffer, op->state[i]->buffer, (void *)(uintptr_t)b);
    te_create_note(c, op->state[i], b->name);
    vec_push(c->imp.arena, &seq, copy_block(c, op, i, op->init[i], NULL, "init"));
  }
  Nest nest = {.c = c};
  const IterVar *t = op->axis[0];
  const Var *time = var_import(&c->imp, t->var);
  te_nest_axis(&nest, time, expr_import(&c->imp, t->min), expr_import(&c->imp, t->extent), ITER_OPAQUE);
  const Expr *row = map_get(&nest.subst, time);
  const TeOp **step;
  int n = te_scan_steps(c->imp.arena, op, &step);
  for (int i = 0; i < n; i++) {
    Stmt **block;
    int nblock;
    te_create_compute(c, step[i], row, &block, &nblock);
    for (int b = 0; b < nblock; b++) vec_push(c->imp.arena, &inner, block[b]);
  }
  for (int i = 0; i < op->nstate; i++) vec_push(c->imp.arena, &inner, copy_block(c, op, i, op->update[i], row, "step"));
  const char *name = te_create_name(c, &c->blocks, op->name);
  te_create_note(c, op, name);
  Stmt *loop = te_nest_close(&nest, name, NULL, stmt_seq(m, inner.n, inner.v));
  step_regions(c, loop->u.loop.body->u.block, op, n, step);
  vec_push(c->imp.arena, &seq, loop);
  return stmt_seq(m, seq.n, seq.v);
}

/* ---- extern --------------------------------------------------------------------------------- */

typedef struct FreeVars {
  Arena *arena;
  Map bound, seen;
  Vec(const Var *) used;
} FreeVars;

static bool note_binder(void *env, Stmt *s)
{
  FreeVars *f = env;
  if (s->kind == S_FOR) map_put(f->arena, &f->bound, s->u.loop.var, f);
  if (s->kind == S_LET) map_put(f->arena, &f->bound, s->u.let.var, f);
  if (s->kind == S_ALLOC) map_put(f->arena, &f->bound, s->u.alloc.buffer->data, f);
  if (s->kind == S_BLOCK) {
    for (int i = 0; i < s->u.block->niter; i++) map_put(f->arena, &f->bound, s->u.block->iter[i].var, f);
    for (int i = 0; i < s->u.block->nallocs; i++) map_put(f->arena, &f->bound, s->u.block->allocs[i]->data, f);
    for (int i = 0; i < s->u.block->nmatches; i++) map_put(f->arena, &f->bound, s->u.block->matches[i].buffer->data, f);
  }
  return true;
}

static void note_used(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  FreeVars *f = env;
  const Var **v;
  int n = expr_free_vars(f->arena, e, &v);
  for (int i = 0; i < n; i++) {
    if (map_has(&f->bound, v[i]) || map_has(&f->seen, v[i])) continue;
    map_put(f->arena, &f->seen, v[i], f);
    vec_push(f->arena, &f->used, v[i]);
  }
}

PrimFunc *te_create_extern_func(Arena *arena, const TeOp *op)
{
  FreeVars f = {.arena = arena};
  Vec(Param) param = {0};
  for (int i = 0; i < op->ninputs; i++) vec_push(arena, &param, (Param){op->in_buffers[i]->data, op->in_buffers[i]});
  for (int i = 0; i < op->nout; i++) vec_push(arena, &param, (Param){op->out_buffers[i]->data, op->out_buffers[i]});
  for (int i = 0; i < param.n; i++) map_put(arena, &f.bound, param.v[i].var, op->stmt);
  stmt_visit(op->stmt, note_binder, &f);
  stmt_visit_exprs(op->stmt, note_used, &f);
  for (int i = 0; i < f.used.n; i++) vec_push(arena, &param, (Param){f.used.v[i], NULL});
  return func_new(op->m, op->name, param.n, param.v, op->stmt);
}

static void give(Creator *c, Map *values, const Expr *var, const Expr *value)
{
  if (var && var->kind == E_VAR && !map_has(values, var->u.var))
    map_put(c->imp.arena, values, var->u.var, (void *)(uintptr_t)expr_cast(c->m, var->dtype, value));
}

/* Variables that stand for sizes, strides and the offset of a buffer of the body. */
static void give_buffer(Creator *c, Map *values, const Buffer *seen, const Buffer *real)
{
  const Expr *stride = real->ndim ? expr_int(c->m, real->shape[0]->dtype, 1) : NULL;
  for (int d = real->ndim - 1; d >= 0; d--) {
    give(c, values, seen->shape[d], real->shape[d]);
    if (seen->strides) give(c, values, seen->strides[d], real->strides ? real->strides[d] : stride);
    stride = expr_mul(c->m, stride, real->shape[d]);
  }
  if (seen->elem_offset) give(c, values, seen->elem_offset, real->elem_offset ? real->elem_offset : expr_i32(c->m, 0));
}

static bool renumber(void *env, Stmt *s)
{
  s->id = ((Module *)env)->next_id++;
  return true;
}

Stmt *te_create_extern(Creator *c, const TeOp *op)
{
  Module *m = c->m;
  const PrimFunc *src = te_create_extern_func(c->imp.arena, op);
  PrimFunc *f = func_import(m, src);
  Block *b = arena_new_of(m->arena, Block);
  b->name = te_create_name(c, &c->blocks, op->name);
  b->nreads = op->ninputs;
  b->nwrites = op->nout;
  b->reads = arena_array(m->arena, Region, b->nreads);
  b->writes = arena_array(m->arena, Region, b->nwrites);
  b->body = f->body;
  Map values = {0}; /* variables of src -> expressions of m */
  for (int i = 0; i < op->ninputs + op->nout; i++) {
    bool in = i < op->ninputs;
    const Buffer *real = te_create_buffer(c, in ? op->inputs[i] : &op->out[i - op->ninputs]);
    give_buffer(c, &values, src->param[i].buffer, real);
    stmt_replace_buffer(m, b->body, f->param[i].buffer, real);
    *(in ? &b->reads[i] : &b->writes[i - op->ninputs]) = te_create_whole(c, real);
  }
  Map subst = {0};
  for (int i = op->ninputs + op->nout; i < f->nparam; i++) {
    const Expr *to = map_get(&values, src->param[i].var);
    if (!to) to = var_import(&c->imp, src->param[i].var)->expr;
    map_put(c->imp.arena, &subst, f->param[i].var, (void *)(uintptr_t)to);
  }
  stmt_substitute(m, b->body, &subst);
  stmt_visit(b->body, renumber, m);
  te_create_note(c, op, b->name);
  return stmt_block(m, b);
}
