/* graph.c: how operations hang together: inputs, order, replacing what is read. */
#include "te/te.h"

/* ---- inputs ------------------------------------------------------------------------- */

typedef struct Inputs {
  Arena *arena;
  Map seen;
  Vec(const Tensor *) list;
} Inputs;

static void add_input(Inputs *in, const Tensor *t)
{
  if (map_has(&in->seen, t)) return;
  map_put(in->arena, &in->seen, t, NULL);
  vec_push(in->arena, &in->list, t);
}

static void note_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) add_input(env, te_tensor_of(e->u.buffer));
}

int te_inputs(Arena *arena, const TeOp *op, const Tensor ***out)
{
  Inputs in = {.arena = arena};
  switch (op->kind) {
  case TE_PLACEHOLDER: break;
  case TE_COMPUTE:
    for (int i = 0; i < op->nout; i++) expr_visit(op->m->ctx, op->body[i], note_load, &in);
    break;
  case TE_SCAN:
    for (int i = 0; i < op->nstate; i++) add_input(&in, op->init[i]);
    for (int i = 0; i < op->nstate; i++) add_input(&in, op->update[i]);
    for (int i = 0; i < op->ninputs; i++) add_input(&in, op->inputs[i]);
    break;
  case TE_EXTERN:
    for (int i = 0; i < op->ninputs; i++) add_input(&in, op->inputs[i]);
    break;
  }
  *out = in.list.v;
  return in.list.n;
}

/* ---- order ---------------------------------------------------------------------------- */

typedef struct Order {
  Arena *arena;
  Map seen;
  Vec(const TeOp *) list;
} Order;

static void visit_op(Order *o, const TeOp *op)
{
  if (map_has(&o->seen, op)) return;
  map_put(o->arena, &o->seen, op, NULL);
  const Tensor **in;
  int n = te_inputs(o->arena, op, &in);
  for (int i = 0; i < n; i++) visit_op(o, in[i]->op);
  vec_push(o->arena, &o->list, op);
}

int te_post_order(Arena *arena, int n, const Tensor *const *outputs, const TeOp ***out)
{
  Order o = {.arena = arena};
  for (int i = 0; i < n; i++) visit_op(&o, outputs[i]->op);
  *out = o.list.v;
  return o.list.n;
}

int te_scan_steps(Arena *arena, const TeOp *scan, const TeOp ***out)
{
  const TeOp **op;
  int n = te_post_order(arena, scan->nstate, scan->update, &op);
  Map depends = {0};
  for (int i = 0; i < scan->nstate; i++) map_put(arena, &depends, scan->state[i]->op, NULL);
  Vec(const TeOp *) steps = {0};
  for (int i = 0; i < n; i++) {
    const Tensor **in;
    int nin = te_inputs(arena, op[i], &in);
    bool hit = false;
    for (int k = 0; k < nin; k++) hit |= map_has(&depends, in[k]->op);
    if (!hit) continue;
    map_put(arena, &depends, op[i], NULL);
    vec_push(arena, &steps, op[i]);
  }
  *out = steps.v;
  return steps.n;
}

/* ---- replacing ---------------------------------------------------------------------------- */

static const Expr *replace_load(Rewriter *rw, const Expr *e)
{
  if (e->kind != E_LOAD) return e;
  const Tensor *to = map_get(rw->env, te_tensor_of(e->u.buffer));
  return to ? expr_load(rw->m, to->buffer, e->nargs, e->arg) : e;
}

static bool replace_list(Module *m, const Map *map, int n, const Tensor ***list)
{
  const Tensor **to = arena_copy(m->arena, *list, (size_t)n * sizeof **list);
  bool changed = false;
  for (int i = 0; i < n; i++) {
    const Tensor *t = map_get(map, to[i]);
    if (!t) continue;
    to[i] = t;
    changed = true;
  }
  *list = to;
  return changed;
}

const TeOp *te_replace_reads(const TeOp *op, const Map *map)
{
  Module *m = op->m;
  TeOp *to = arena_copy(m->arena, op, sizeof *op);
  bool changed = false;
  switch (op->kind) {
  case TE_PLACEHOLDER: return op;
  case TE_COMPUTE: {
    Scope scope = scope_begin(m->ctx);
    Rewriter rw = {.m = m, .fn = replace_load, .env = (void *)(uintptr_t)map, .arena = scratch(m->ctx)};
    to->body = arena_array(m->arena, const Expr *, op->nout);
    for (int i = 0; i < op->nout; i++) {
      to->body[i] = expr_rewrite(&rw, op->body[i]);
      changed |= to->body[i] != op->body[i];
    }
    scope_end(m->ctx, scope);
    break;
  }
  case TE_SCAN:
    changed |= replace_list(m, map, op->nstate, &to->init);
    changed |= replace_list(m, map, op->nstate, &to->update);
    changed |= replace_list(m, map, op->ninputs, &to->inputs);
    break;
  case TE_EXTERN: changed = replace_list(m, map, op->ninputs, &to->inputs); break;
  }
  if (!changed) return op;
  to->out = arena_array(m->arena, Tensor, op->nout);
  for (int i = 0; i < op->nout; i++) {
    const Buffer *b = op->out[i].buffer;
    Buffer *fresh = (Buffer *)(uintptr_t)buffer_new(m, b->name, b->dtype, b->ndim, b->shape, NULL, NULL, b->scope,
                                                    b->align, b->offset_factor, NULL);
    fresh->owner = &to->out[i];
    to->out[i] = (Tensor){to, i, fresh};
  }
  return to;
}

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct Scalars {
  Arena *arena;
  Map known;
  Vec(TeArg) args;
} Scalars;

/* A dimension tells a variable only when it is that variable: n of (n, 2*n), nothing of
 * (2*n,). */
static void know_shape(Scalars *s, const Buffer *b)
{
  for (int d = 0; d < b->ndim; d++)
    if (b->shape[d]->kind == E_VAR) map_put(s->arena, &s->known, b->shape[d]->u.var, NULL);
}

static void need_vars(Scalars *s, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(s->arena, e, &v);
  for (int i = 0; i < n; i++) {
    if (v[i]->axis || map_has(&s->known, v[i])) continue;
    map_put(s->arena, &s->known, v[i], NULL);
    vec_push(s->arena, &s->args, (TeArg){.var = v[i]});
  }
}

static void need_op(Scalars *s, const TeOp *op)
{
  for (int i = 0; i < op->nout; i++) {
    for (int d = 0; d < op->out[i].buffer->ndim; d++) need_vars(s, op->out[i].buffer->shape[d]);
    if (op->kind == TE_COMPUTE) need_vars(s, op->body[i]);
  }
  for (int i = 0; i < op->nreduce; i++) {
    need_vars(s, op->reduce_axis[i]->min);
    need_vars(s, op->reduce_axis[i]->extent);
  }
}

int te_default_args(Arena *arena, int n, const Tensor *const *outputs, TeArg **out)
{
  const TeOp **op;
  int nop = te_post_order(arena, n, outputs, &op);
  Map state = {0};
  for (int i = 0; i < nop; i++)
    for (int k = 0; op[i]->kind == TE_SCAN && k < op[i]->nstate; k++) map_put(arena, &state, op[i]->state[k]->op, NULL);
  Scalars s = {.arena = arena};
  for (int i = 0; i < nop; i++)
    if (op[i]->kind == TE_PLACEHOLDER && !map_has(&state, op[i])) know_shape(&s, op[i]->out[0].buffer);
  for (int i = 0; i < n; i++) know_shape(&s, outputs[i]->buffer);
  for (int i = 0; i < nop; i++) need_op(&s, op[i]);
  for (int i = 0; i < nop; i++)
    if (op[i]->kind == TE_PLACEHOLDER && !map_has(&state, op[i]))
      vec_push(arena, &s.args, (TeArg){.tensor = &op[i]->out[0]});
  for (int i = 0; i < n; i++)
    if (outputs[i]->op->kind != TE_PLACEHOLDER) vec_push(arena, &s.args, (TeArg){.tensor = outputs[i]});
  *out = s.args.v;
  return s.args.n;
}
