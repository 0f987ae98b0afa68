/* evaluate.c: the reference evaluator.
 *
 * Comes in: arguments and their memory.  Goes out: the outputs' memory filled, each
 * element computed by evaluating its body, tensors in between kept in scratch
 * memory.  No blocks, no loops, no rewriting of expressions: the oracle that
 * everything below te is checked against. */
#include "te/create.h"

typedef struct Memory {
  char *data;
  const int64_t *shape, *strides; /* in elements */
} Memory;

typedef struct Evaluator {
  Ctx *ctx;
  Arena *arena;
  EvalEnv env;
  Map memory; /* Tensor* -> Memory* */
  Map inside; /* operations that run inside a scan */
} Evaluator;

static const int64_t *compact_strides(Evaluator *e, const Buffer *b, const int64_t *shape, int64_t *count)
{
  int64_t *strides = arena_array(e->arena, int64_t, b->ndim);
  int64_t n = 1;
  for (int d = b->ndim - 1; d >= 0; d--) {
    strides[d] = n;
    if (!int_mul(n, shape[d], &n)) raise(e->ctx, ERR_SHAPE, NOWHERE, "tensor '%s' has too many elements", b->name);
  }
  *count = n;
  return strides;
}

static int64_t eval_int(Evaluator *e, const Expr *x) { return expr_eval(&e->env, x, 0).i; }

/* The memory of a tensor that is no argument: made on first sight. */
static const Memory *memory_of(Evaluator *e, const Tensor *t)
{
  Memory *mem = map_get(&e->memory, t);
  if (mem) return mem;
  const Buffer *b = t->buffer;
  int64_t *shape = arena_array(e->arena, int64_t, b->ndim);
  int64_t count;
  for (int d = 0; d < b->ndim; d++) shape[d] = eval_int(e, b->shape[d]);
  mem = arena_new_of(e->arena, Memory);
  mem->shape = shape;
  mem->strides = compact_strides(e, b, shape, &count);
  mem->data = arena_alloc(e->arena, mem_size_mul(e->ctx, (size_t)count, (size_t)dtype_bytes(b->dtype), b->name) + 1);
  map_put(e->arena, &e->memory, t, mem);
  return mem;
}

static char *element(Evaluator *e, const Tensor *t, const int64_t *index)
{
  const Buffer *b = t->buffer;
  const Memory *mem = memory_of(e, t);
  int64_t at = 0;
  for (int d = 0; d < b->ndim; d++) {
    if (index[d] < 0 || index[d] >= mem->shape[d])
      raise(e->ctx, ERR_BOUNDS, NOWHERE,
            "tensor '%s': index %" PRId64 " in dimension %d is outside its extent %" PRId64, b->name, index[d], d,
            mem->shape[d]);
    at += index[d] * mem->strides[d];
  }
  return mem->data + at * dtype_bytes(b->dtype);
}

static Value load_element(EvalEnv *env, const Buffer *b, int n, const int64_t *index)
{
  (void)n;
  Evaluator *e = env->user;
  return value_load(b->dtype, element(e, te_tensor_of(b), index));
}

/* ---- operations ------------------------------------------------------------------------ */

/* Axes from d on; the ones before are bound and in index. */
static void eval_axis(Evaluator *e, const TeOp *op, int d, int64_t *index)
{
  if (d == op->naxis) {
    ctx_poll(e->ctx);
    for (int i = 0; i < op->nout; i++) value_store(expr_eval(&e->env, op->body[i], 0), element(e, &op->out[i], index));
    return;
  }
  int64_t n = eval_int(e, op->axis[d]->extent);
  for (index[d] = 0; index[d] < n; index[d]++) {
    expr_eval_bind(&e->env, op->axis[d]->var, value_int(op->axis[d]->var->dtype, index[d]));
    eval_axis(e, op, d + 1, index);
  }
}

static void eval_compute(Evaluator *e, const TeOp *op)
{
  eval_axis(e, op, 0, arena_array(e->arena, int64_t, op->naxis + 1));
}

static void copy_rows(Evaluator *e, const Tensor *from, const Tensor *to, int d, int64_t *index)
{
  const Memory *mem = memory_of(e, from);
  if (d == from->buffer->ndim) {
    memcpy(element(e, to, index), element(e, from, index), (size_t)dtype_bytes(to->buffer->dtype));
    return;
  }
  for (index[d] = 0; index[d] < mem->shape[d]; index[d]++) copy_rows(e, from, to, d + 1, index);
}

/* State and update are the scan's output, seen from inside. */
static void eval_scan(Evaluator *e, const TeOp *op)
{
  for (int i = 0; i < op->nstate; i++) {
    const Memory *mem = memory_of(e, &op->out[i]);
    map_put(e->arena, &e->memory, op->state[i], (void *)(uintptr_t)mem);
    map_put(e->arena, &e->memory, op->update[i], (void *)(uintptr_t)mem);
    copy_rows(e, op->init[i], &op->out[i], 0, arena_array(e->arena, int64_t, op->out[i].buffer->ndim));
  }
  const TeOp **step;
  int n = te_scan_steps(e->arena, op, &step);
  int64_t first = eval_int(e, op->axis[0]->min);
  int64_t end = first + eval_int(e, op->axis[0]->extent);
  for (int64_t t = first; t < end; t++)
    for (int i = 0; i < n; i++) {
      int64_t *index = arena_array(e->arena, int64_t, step[i]->naxis);
      index[0] = t;
      expr_eval_bind(&e->env, step[i]->axis[0]->var, value_int(step[i]->axis[0]->var->dtype, t));
      eval_axis(e, step[i], 1, index);
    }
}

static void eval_extern(Evaluator *e, const TeOp *op)
{
  const PrimFunc *f = te_create_extern_func(e->arena, op);
  TirArg *arg = arena_array(e->arena, TirArg, f->nparam);
  for (int i = 0; i < f->nparam; i++) {
    if (i >= op->ninputs + op->nout) {
      const Value *v = map_get(&e->env.vars, f->param[i].var);
      if (!v)
        raise(e->ctx, ERR_ARGUMENT, NOWHERE, "extern '%s': variable '%s' has no value", op->name,
              f->param[i].var->name);
      arg[i].dtype = v->dtype;
      arg[i].scalar = *v;
      continue;
    }
    const Tensor *t = i < op->ninputs ? op->inputs[i] : &op->out[i - op->ninputs];
    const Memory *mem = memory_of(e, t);
    arg[i] = (TirArg){.data = mem->data,
                      .dtype = t->buffer->dtype,
                      .ndim = t->buffer->ndim,
                      .shape = mem->shape,
                      .strides = mem->strides};
  }
  func_interpret(f, f->nparam, arg);
}

static void eval_op(Evaluator *e, const TeOp *op)
{
  if (map_has(&e->inside, op)) return;
  te_check_outside_scan(op);
  switch (op->kind) {
  case TE_PLACEHOLDER:
    if (!map_has(&e->memory, &op->out[0]))
      raise(e->ctx, ERR_ARGUMENT, NOWHERE, "placeholder '%s' is read but is not among the arguments", op->name);
    break;
  case TE_COMPUTE: eval_compute(e, op); break;
  case TE_SCAN: eval_scan(e, op); break;
  case TE_EXTERN: eval_extern(e, op); break;
  }
}

/* ---- arguments --------------------------------------------------------------------------- */

static void take_argument(Evaluator *e, const TeArg *a, const TirArg *v)
{
  if (!a->tensor) {
    expr_eval_bind(&e->env, a->var, value_cast(v->scalar, a->var->dtype));
    return;
  }
  const Buffer *b = a->tensor->buffer;
  if (v->ndim != b->ndim)
    raise(e->ctx, ERR_SHAPE, NOWHERE, "argument '%s' has %d dimensions, %d given", b->name, b->ndim, v->ndim);
  if (!dtype_eq(v->dtype, b->dtype))
    raise(e->ctx, ERR_TYPE, NOWHERE, "argument '%s' is %s, %s given", b->name, dtype_name(scratch(e->ctx), b->dtype),
          dtype_name(scratch(e->ctx), v->dtype));
  for (int d = 0; d < b->ndim; d++)
    if (b->shape[d]->kind == E_VAR && !map_has(&e->env.vars, b->shape[d]->u.var))
      expr_eval_bind(&e->env, b->shape[d]->u.var, value_int(b->shape[d]->dtype, v->shape[d]));
  Memory *mem = arena_new_of(e->arena, Memory);
  int64_t count;
  *mem = (Memory){v->data, v->shape, v->strides ? v->strides : compact_strides(e, b, v->shape, &count)};
  map_put(e->arena, &e->memory, a->tensor, mem);
}

/* Once every variable is known: do the extents agree? */
static void check_argument(Evaluator *e, const TeArg *a, const TirArg *v)
{
  for (int d = 0; a->tensor && d < v->ndim; d++) {
    int64_t want = eval_int(e, a->tensor->buffer->shape[d]);
    if (want != v->shape[d])
      raise(e->ctx, ERR_SHAPE, NOWHERE, "argument '%s': dimension %d is %" PRId64 ", %" PRId64 " given",
            a->tensor->buffer->name, d, want, v->shape[d]);
  }
}

void te_evaluate(Ctx *ctx, int nargs, const TeArg *args, const TirArg *values)
{
  Scope scope = scope_begin(ctx);
  Evaluator e = {.ctx = ctx, .arena = scratch(ctx)};
  Vec(const Tensor *) outputs = {0};
  for (int i = 0; i < nargs; i++)
    if (args[i].tensor && args[i].tensor->op->kind != TE_PLACEHOLDER) vec_push(e.arena, &outputs, args[i].tensor);
  if (!outputs.n) raise(ctx, ERR_ARGUMENT, NOWHERE, "nothing to evaluate: no argument is the output of an operation");
  e.env = (EvalEnv){.m = outputs.v[0]->op->m, .arena = e.arena, .load = load_element, .user = &e};
  for (int i = 0; i < nargs; i++) take_argument(&e, &args[i], &values[i]);
  for (int i = 0; i < nargs; i++) check_argument(&e, &args[i], &values[i]);
  const TeOp **op;
  int n = te_post_order(e.arena, outputs.n, outputs.v, &op);
  for (int i = 0; i < n; i++) {
    if (op[i]->kind != TE_SCAN) continue;
    const TeOp **step;
    int nstep = te_scan_steps(e.arena, op[i], &step);
    for (int k = 0; k < nstep; k++) map_put(e.arena, &e.inside, step[k], NULL);
    for (int k = 0; k < op[i]->nstate; k++) map_put(e.arena, &e.inside, op[i]->state[k]->op, NULL);
  }
  for (int i = 0; i < n; i++) eval_op(&e, op[i]);
  scope_end(ctx, scope);
}
