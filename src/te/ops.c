/* ops.c: the operations: placeholder, compute, scan, extern, and reading a tensor.
 *
 * Comes in: names, shapes, axes and bodies as a user wrote them.  Goes out: an
 * immutable TeOp whose outputs other operations may read.  A constructor raises
 * before anything can see the operation, so every TeOp in the world is sound. */
#include "te/te.h"

static TeOp *op_new(Module *m, TeKind kind, const char *name, const char *tag)
{
  TeOp *op = arena_new_of(m->arena, TeOp);
  op->kind = kind;
  op->m = m;
  op->name = arena_strdup(m->arena, name && *name ? name : "compute");
  op->tag = arena_strdup(m->arena, tag ? tag : "");
  return op;
}

static void check_shape(Module *m, const char *what, const char *name, int ndim, const Expr *const *shape)
{
  for (int i = 0; i < ndim; i++) {
    if (!dtype_is_int(shape[i]->dtype) || shape[i]->dtype.lanes != 1)
      raise(m->ctx, ERR_TYPE, NOWHERE, "%s '%s': the extent of dimension %d, %s, is %s; an extent is an integer", what,
            name, i, expr_str_of(scratch(m->ctx), shape[i]), dtype_name(scratch(m->ctx), shape[i]->dtype));
    if (shape[i]->kind == E_INT && shape[i]->u.i < 0)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "%s '%s': the extent of dimension %d is %" PRId64 "; it must not be negative",
            what, name, i, shape[i]->u.i);
  }
}

/* A buffer of these extents for output `index` of op. */
static void set_output(TeOp *op, int index, const char *name, DType t, int ndim, const Expr *const *shape)
{
  Buffer *b = (Buffer *)(uintptr_t)buffer_new(op->m, name, t, ndim, shape, NULL, NULL, NULL, 0, 0, NULL);
  b->owner = &op->out[index];
  op->out[index] = (Tensor){op, index, b};
}

static const char *output_name(const TeOp *op, int index)
{
  return op->nout == 1 ? op->name : arena_printf(op->m->arena, "%s_v%d", op->name, index);
}

static const void *copy_pointers(Module *m, const void *v, int n)
{
  return arena_copy(m->arena, v, (size_t)n * sizeof(void *));
}

/* ---- placeholder ---------------------------------------------------------------- */

const Tensor *te_placeholder(Module *m, const char *name, DType t, int ndim, const Expr *const *shape)
{
  TeOp *op = op_new(m, TE_PLACEHOLDER, name && *name ? name : "placeholder", NULL);
  check_shape(m, "placeholder", op->name, ndim, shape);
  if (t.lanes != 1 || t.code == DT_VOID || t.code == DT_HANDLE || dtype_is_string(t))
    raise(m->ctx, ERR_TYPE, NOWHERE, "placeholder '%s': elements cannot be %s", op->name,
          dtype_name(scratch(m->ctx), t));
  op->nout = 1;
  op->out = arena_array(m->arena, Tensor, 1);
  set_output(op, 0, op->name, t, ndim, shape);
  return &op->out[0];
}

const Expr *te_read(Module *m, const Tensor *t, int n, const Expr *const *index)
{
  const Buffer *b = t->buffer;
  if (t->op->m != m) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "tensor '%s' belongs to another module", b->name);
  if (n != b->ndim)
    raise(m->ctx, ERR_SHAPE, NOWHERE, "tensor '%s' has %d dimension%s, read with %d ind%s", b->name, b->ndim,
          b->ndim == 1 ? "" : "s", n, n == 1 ? "ex" : "ices");
  for (int i = 0; i < n; i++)
    if (!dtype_is_int(index[i]->dtype) || index[i]->dtype.lanes != 1)
      raise(m->ctx, ERR_TYPE, NOWHERE, "tensor '%s': index %d, %s, is %s; an index is an integer", b->name, i,
            expr_str_of(scratch(m->ctx), index[i]), dtype_name(scratch(m->ctx), index[i]->dtype));
  return expr_load(m, b, n, index);
}

/* ---- compute ---------------------------------------------------------------------- */

typedef struct ReduceAxes {
  Module *m;
  Vec(const IterVar *) axis;
  Map seen;
} ReduceAxes;

/* Axes of the reductions in e, those of an outer reduction before the inner ones'. */
static void collect_reduce_axes(ReduceAxes *r, const Expr *e)
{
  if (map_has(&r->seen, e)) return;
  map_put(scratch(r->m->ctx), &r->seen, e, NULL);
  for (int i = 0; e->kind == E_REDUCE && i < e->u.reduce->naxis; i++) {
    const IterVar *iv = e->u.reduce->axis[i];
    bool known = false;
    for (int j = 0; j < r->axis.n; j++) known |= r->axis.v[j] == iv;
    if (!known) vec_push(r->m->arena, &r->axis, iv);
  }
  for (int i = 0; i < e->nargs; i++) collect_reduce_axes(r, e->arg[i]);
}

static void check_axes(const TeOp *op, int ndim, const Expr *const *shape)
{
  Ctx *ctx = op->m->ctx;
  for (int i = 0; i < ndim; i++) {
    const IterVar *iv = op->axis[i];
    if (iv->kind != ITER_SPATIAL)
      raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s': axis '%s' is not a spatial axis", op->name, iv->var->name);
    bool same =
        iv->extent == shape[i] || (iv->extent && iv->extent->kind == E_INT && expr_is_int(shape[i], iv->extent->u.i));
    if (!iv->min || !expr_is_int(iv->min, 0) || !same)
      raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s': axis '%s' must run over [0, %s)", op->name, iv->var->name,
            expr_str_of(scratch(ctx), shape[i]));
    for (int j = 0; j < i; j++)
      if (op->axis[j]->var == iv->var)
        raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s': axis '%s' is given twice", op->name, iv->var->name);
  }
  for (int i = 0; i < op->nreduce; i++) {
    const IterVar *iv = op->reduce_axis[i];
    if (iv->kind != ITER_REDUCE || !iv->min || !iv->extent)
      raise(ctx, ERR_ARGUMENT, NOWHERE,
            "compute '%s': '%s' is reduced over but is not a reduce axis; make it with te.reduce_axis", op->name,
            iv->var->name);
    if (!dtype_is_int(iv->extent->dtype) || !dtype_is_int(iv->min->dtype))
      raise(ctx, ERR_TYPE, NOWHERE, "compute '%s': the domain of reduce axis '%s' is %s; it must be integers", op->name,
            iv->var->name, dtype_name(scratch(ctx), iv->extent->dtype));
  }
}

static void copy_attrs(TeOp *op, const Annots *attrs)
{
  for (int i = 0; attrs && i < attrs->n; i++) annots_set(op->m->arena, &op->attrs, attrs->v[i].key, attrs->v[i].value);
}

const TeOp *te_compute(Module *m, const char *name, const char *tag, int ndim, const Expr *const *shape,
                       const IterVar *const *axis, int nbody, const Expr *const *body, const Annots *attrs)
{
  TeOp *op = op_new(m, TE_COMPUTE, name, tag);
  Scope scope = scope_begin(m->ctx);
  check_shape(m, "compute", op->name, ndim, shape);
  if (nbody < 1) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "compute '%s' has no body", op->name);
  op->naxis = ndim;
  op->axis = (const IterVar **)copy_pointers(m, axis, ndim);
  op->nout = nbody;
  op->body = (const Expr **)copy_pointers(m, body, nbody);
  ReduceAxes r = {.m = m};
  for (int i = 0; i < nbody; i++) {
    if (body[i]->dtype.lanes != 1 || body[i]->dtype.code == DT_VOID || body[i]->dtype.code == DT_HANDLE)
      raise(m->ctx, ERR_TYPE, NOWHERE, "compute '%s': its body %s is %s; an element is one number", op->name,
            expr_str_of(scratch(m->ctx), body[i]), dtype_name(scratch(m->ctx), body[i]->dtype));
    collect_reduce_axes(&r, body[i]);
  }
  op->nreduce = r.axis.n;
  op->reduce_axis = r.axis.v;
  copy_attrs(op, attrs);
  check_axes(op, ndim, shape);
  op->needs_scan = te_check_compute(op, NULL, true);
  op->out = arena_array(m->arena, Tensor, nbody);
  for (int i = 0; i < nbody; i++) set_output(op, i, output_name(op, i), body[i]->dtype, ndim, shape);
  scope_end(m->ctx, scope);
  return op;
}

/* ---- scan --------------------------------------------------------------------------- */

static bool same_extent(Analyzer *an, const Expr *a, const Expr *b)
{
  if (a == b) return true;
  if (a->kind == E_INT && b->kind == E_INT) return a->u.i == b->u.i;
  return analyzer_prove_equal(an, a, b);
}

/* The tensors of one state: same rank and dtype; init has the rows at the start. */
static void check_state(const TeOp *op, Analyzer *an, int i)
{
  Ctx *ctx = op->m->ctx;
  const Buffer *s = op->state[i]->buffer;
  const Buffer *u = op->update[i]->buffer;
  const Buffer *b = op->init[i]->buffer;
  if (op->state[i]->op->kind != TE_PLACEHOLDER)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "scan '%s': state '%s' must be a placeholder", op->name, s->name);
  if (op->update[i]->op->kind != TE_COMPUTE)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "scan '%s': update '%s' is not a compute; wrap it in one", op->name, u->name);
  if (!dtype_eq(s->dtype, u->dtype) || !dtype_eq(s->dtype, b->dtype))
    raise(ctx, ERR_TYPE, NOWHERE, "scan '%s': state '%s' is %s, its init %s, its update %s", op->name, s->name,
          dtype_name(scratch(ctx), s->dtype), dtype_name(scratch(ctx), b->dtype), dtype_name(scratch(ctx), u->dtype));
  if (s->ndim < 1 || s->ndim != u->ndim || s->ndim != b->ndim)
    raise(ctx, ERR_SHAPE, NOWHERE,
          "scan '%s': state '%s' has %d dimensions, its init %d, its update %d; all need the same, at least 1",
          op->name, s->name, s->ndim, b->ndim, u->ndim);
  for (int d = 0; d < s->ndim; d++)
    if (!same_extent(an, s->shape[d], u->shape[d]) || (d && !same_extent(an, s->shape[d], b->shape[d])))
      raise(ctx, ERR_SHAPE, NOWHERE, "scan '%s': dimension %d of state '%s' is %s, of its init %s, of its update %s",
            op->name, d, s->name, expr_str_of(scratch(ctx), s->shape[d]), expr_str_of(scratch(ctx), b->shape[d]),
            expr_str_of(scratch(ctx), u->shape[d]));
  if (i && (!same_extent(an, s->shape[0], op->state[0]->buffer->shape[0]) ||
            !same_extent(an, b->shape[0], op->init[0]->buffer->shape[0])))
    raise(ctx, ERR_SHAPE, NOWHERE, "scan '%s': states '%s' and '%s' differ in their steps or their initial rows",
          op->name, op->state[0]->buffer->name, s->name);
}

/* Index 0 of every read of a state, in an operation of the step whose row is `row`,
 * is before that row; of every other operation of the step, exactly that row. */
typedef struct StepCheck {
  const TeOp *scan, *op;
  Analyzer *an;
  Map steps;
} StepCheck;

static void check_step_read(void *env, const Expr *e)
{
  StepCheck *c = env;
  if (e->kind != E_LOAD) return;
  Ctx *ctx = c->op->m->ctx;
  const Tensor *t = te_tensor_of(e->u.buffer);
  const Expr *row = c->op->axis[0]->var->expr;
  for (int i = 0; i < c->scan->nstate; i++)
    if (t == c->scan->state[i] && !analyzer_prove(c->an, expr_lt(c->op->m, e->arg[0], row)))
      raise(ctx, ERR_ARGUMENT, NOWHERE,
            "scan '%s': '%s' reads row %s of state '%s'; only rows before '%s' are known there", c->scan->name,
            c->op->name, expr_str_of(scratch(ctx), e->arg[0]), t->buffer->name, row->u.var->name);
  if (map_has(&c->steps, t->op) && (!e->nargs || e->arg[0] != row))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "scan '%s': '%s' reads '%s' at %s; inside a scan a tensor that depends on the state can be read at the "
          "current step '%s' only",
          c->scan->name, c->op->name, t->buffer->name, e->nargs ? expr_str_of(scratch(ctx), e->arg[0]) : "()",
          row->u.var->name);
}

static void check_steps(const TeOp *scan)
{
  Module *m = scan->m;
  const TeOp **step;
  int n = te_scan_steps(scratch(m->ctx), scan, &step);
  StepCheck c = {.scan = scan};
  for (int i = 0; i < n; i++) map_put(scratch(m->ctx), &c.steps, step[i], NULL);
  for (int i = 0; i < n; i++) {
    if (step[i]->kind != TE_COMPUTE)
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "scan '%s': '%s' depends on the state but is not a compute", scan->name,
            step[i]->name);
    if (step[i]->naxis < 1 || !same_extent(c.an = analyzer_new(m, scratch(m->ctx)), step[i]->axis[0]->extent,
                                           scan->state[0]->buffer->shape[0]))
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "scan '%s': '%s' depends on the state, so its first dimension must be the steps", scan->name,
            step[i]->name);
    c.op = step[i];
    for (int d = 0; d < step[i]->naxis; d++)
      analyzer_bind(c.an, step[i]->axis[d]->var, step[i]->axis[d]->min, step[i]->axis[d]->extent);
    for (int b = 0; b < step[i]->nout; b++) expr_visit(m->ctx, step[i]->body[b], check_step_read, &c);
    te_check_compute(step[i], scan->init[0]->buffer->shape[0], false);
  }
  for (int i = 0; i < scan->nstate; i++)
    if (!map_has(&c.steps, scan->update[i]->op))
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "scan '%s': update '%s' does not depend on any state; compute it outside the scan", scan->name,
            scan->update[i]->buffer->name);
}

const TeOp *te_scan(Module *m, const char *name, const char *tag, int n, const Tensor *const *init,
                    const Tensor *const *update, const Tensor *const *state, int ninputs, const Tensor *const *inputs)
{
  TeOp *op = op_new(m, TE_SCAN, name && *name ? name : "scan", tag);
  Scope scope = scope_begin(m->ctx);
  if (n < 1) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "scan '%s' has no state", op->name);
  op->nstate = op->nout = n;
  op->init = (const Tensor **)copy_pointers(m, init, n);
  op->update = (const Tensor **)copy_pointers(m, update, n);
  op->state = (const Tensor **)copy_pointers(m, state, n);
  op->ninputs = ninputs;
  op->inputs = (const Tensor **)copy_pointers(m, inputs, ninputs);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  for (int i = 0; i < n; i++) check_state(op, an, i);
  check_steps(op);
  const Buffer *first = state[0]->buffer;
  op->naxis = first->ndim;
  op->axis = arena_array(m->arena, const IterVar *, first->ndim);
  const Expr *rows = init[0]->buffer->shape[0];
  const Expr *steps = expr_simplify(an, expr_sub(m, first->shape[0], rows));
  const Var *t = var_new(m, arena_printf(scratch(m->ctx), "%s_idx", op->name), steps->dtype, VAR_PLAIN);
  op->axis[0] = itervar_new(m, t, rows, steps, ITER_OPAQUE, NULL);
  for (int d = 1; d < first->ndim; d++) {
    const Var *v = var_new(m, arena_printf(scratch(m->ctx), "i%d", d), first->shape[d]->dtype, VAR_PLAIN);
    op->axis[d] = itervar_new(m, v, expr_int(m, v->dtype, 0), first->shape[d], ITER_SPATIAL, NULL);
  }
  op->out = arena_array(m->arena, Tensor, n);
  for (int i = 0; i < n; i++)
    set_output(op, i, output_name(op, i), state[i]->buffer->dtype, state[i]->buffer->ndim, state[i]->buffer->shape);
  scope_end(m->ctx, scope);
  return op;
}

/* ---- extern --------------------------------------------------------------------------- */

const TeOp *te_extern(Module *m, const char *name, const char *tag, int nin, const Tensor *const *in,
                      const Buffer *const *in_buffers, int nout, const Buffer *const *out_buffers, Stmt *body,
                      const Annots *attrs)
{
  TeOp *op = op_new(m, TE_EXTERN, name && *name ? name : "extern", tag);
  copy_attrs(op, attrs);
  if (nout < 1) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "extern '%s' has no output", op->name);
  for (int i = 0; i < nin; i++) {
    const Buffer *b = in_buffers[i];
    const Buffer *t = in[i]->buffer;
    if (b->ndim != t->ndim)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "extern '%s': buffer '%s' has %d dimensions, the tensor '%s' it stands for %d",
            op->name, b->name, b->ndim, t->name, t->ndim);
    if (!dtype_eq(b->dtype, t->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "extern '%s': buffer '%s' is %s, the tensor '%s' it stands for %s", op->name,
            b->name, dtype_name(scratch(m->ctx), b->dtype), t->name, dtype_name(scratch(m->ctx), t->dtype));
  }
  op->ninputs = nin;
  op->inputs = (const Tensor **)copy_pointers(m, in, nin);
  op->in_buffers = (const Buffer **)copy_pointers(m, in_buffers, nin);
  op->out_buffers = (const Buffer **)copy_pointers(m, out_buffers, nout);
  op->stmt = body;
  op->nout = nout;
  op->out = arena_array(m->arena, Tensor, nout);
  for (int i = 0; i < nout; i++) {
    check_shape(m, "extern", op->name, out_buffers[i]->ndim, out_buffers[i]->shape);
    set_output(op, i, output_name(op, i), out_buffers[i]->dtype, out_buffers[i]->ndim, out_buffers[i]->shape);
  }
  return op;
}
