/* create.c: from operations to a schedulable function.
 *
 * Comes in: arguments (placeholders, outputs, scalars).  Goes out: a function with a
 * block "root" that allocates the tensors between them and holds, producers first, a
 * loop nest around one block for each compute.
 *
 * A compute whose bodies are the values of one reduction becomes one block with an
 * init.  Any other reduction in a body is moved into a block of its own in front,
 * over the axes that it uses and no others, so that softmax's sum is not computed
 * once for every column.  Loops and block variables start at 0. */
#include "te/create.h"

#include <ctype.h>

/* ---- names and buffers ------------------------------------------------------------- */

const char *te_create_name(Creator *c, StrMap *taken, const char *hint)
{
  char *base = arena_strdup(c->m->arena, *hint ? hint : "v");
  for (char *p = base; *p; p++)
    if (!isalnum((unsigned char)*p) && *p != '_') *p = '_';
  if (isdigit((unsigned char)*base)) base = arena_printf(c->m->arena, "_%s", base);
  const char *name = base;
  for (int i = 1; strmap_get(taken, name); i++) name = arena_printf(c->m->arena, "%s_%d", base, i);
  strmap_put(c->imp.arena, taken, name, c);
  return name;
}

static const Expr **import_shape(Creator *c, const Buffer *b)
{
  const Expr **shape = arena_array(c->imp.arena, const Expr *, b->ndim);
  for (int i = 0; i < b->ndim; i++) {
    shape[i] = expr_import(&c->imp, b->shape[i]);
    if (c->imp.wide) shape[i] = expr_widen(c->m, shape[i]);
  }
  return shape;
}

static const Buffer *new_buffer(Creator *c, const char *hint, DType t, int ndim, const Expr *const *shape)
{
  return buffer_new(c->m, te_create_name(c, &c->buffers, hint), t, ndim, shape, NULL, NULL, NULL, 0, 0, NULL);
}

const Buffer *te_create_buffer(Creator *c, const Tensor *t)
{
  const Buffer *b = map_get(&c->imp.buffer, t->buffer);
  if (b) return b;
  b = new_buffer(c, t->buffer->name, t->buffer->dtype, t->buffer->ndim, import_shape(c, t->buffer));
  map_put(c->imp.arena, &c->imp.buffer, t->buffer, (void *)(uintptr_t)b);
  vec_push(c->imp.arena, &c->allocs, b);
  te_create_note(c, t, b->name);
  return b;
}

void te_create_note(Creator *c, const void *key, const char *block)
{
  if (c->names) map_put(c->m->arena, c->names, key, (void *)(uintptr_t)block);
}

Region te_create_whole(Creator *c, const Buffer *b)
{
  Region r = {b, arena_array(c->m->arena, const Expr *, b->ndim), arena_array(c->m->arena, const Expr *, b->ndim)};
  for (int i = 0; i < b->ndim; i++) {
    r.min[i] = expr_int(c->m, b->shape[i]->dtype, 0);
    r.extent[i] = b->shape[i];
  }
  return r;
}

/* ---- a loop nest around a block ------------------------------------------------------ */

void te_nest_axis(Nest *n, const Var *axis, const Expr *min, const Expr *extent, IterKind kind)
{
  Module *m = n->c->m;
  Arena *arena = n->c->imp.arena;
  DType t = axis->dtype;
  const Var *loop = var_new(m, axis->name, t, VAR_PLAIN);
  const Var *v = var_new(m, arena_printf(arena, "v_%s", axis->name), t, VAR_PLAIN);
  const Expr *zero = expr_int(m, t, 0);
  extent = expr_cast(m, t, extent);
  if (extent->kind == E_CAST && extent->arg[0]->kind == E_INT) extent = expr_int(m, t, extent->arg[0]->u.i);
  vec_push(m->arena, &n->loop, stmt_for(m, loop, zero, extent, FOR_SERIAL, NULL, stmt_nop(m)));
  vec_push(m->arena, &n->iter, (BlockIter){v, zero, extent, kind, loop->expr});
  const Expr *value = expr_is_int(min, 0) ? v->expr : expr_add(m, v->expr, min);
  map_put(arena, &n->subst, axis, (void *)(uintptr_t)value);
}

Stmt *te_nest_close(Nest *n, const char *name, Stmt *init, Stmt *body)
{
  Module *m = n->c->m;
  Block *b = arena_new_of(m->arena, Block);
  b->name = name;
  b->iter = n->iter.v;
  b->niter = n->iter.n;
  b->init = init;
  b->body = body;
  Stmt *s = stmt_block(m, b);
  block_infer_access(m, b);
  for (int i = n->loop.n - 1; i >= 0; i--) {
    n->loop.v[i]->u.loop.body = s;
    s->parent = n->loop.v[i];
    s = n->loop.v[i];
  }
  return s;
}

/* ---- reductions ------------------------------------------------------------------------ */

/* The blocks of one compute while they are made.  Expressions are in m already. */
typedef struct Compute {
  Creator *c;
  const TeOp *op;
  Map axes;               /* Var* of m -> Axis*, of every axis that may be a block variable */
  Vec(const Var *) order; /* the same, spatial axes first */
  Vec(Stmt *) blocks;
  Vec(const Expr *) hoisted; /* reductions made into blocks … */
  Vec(const Buffer **) into; /* … and the buffers that hold their values */
  Vec(const char *) name;
  Rewriter rw;
} Compute;

typedef struct Axis {
  const Expr *min, *extent;
} Axis;

static void add_axis(Compute *k, const IterVar *iv)
{
  Creator *c = k->c;
  const Var *v = var_import(&c->imp, iv->var);
  Axis *a = arena_new_of(c->imp.arena, Axis);
  *a = (Axis){expr_import(&c->imp, iv->min), expr_import(&c->imp, iv->extent)};
  if (map_has(&k->axes, v)) return;
  map_put(c->imp.arena, &k->axes, v, a);
  vec_push(c->imp.arena, &k->order, v);
}

/* The source of a reduction: its identity where the condition does not hold.  A
 * select serves where the reads are known to be inside anyway. */
static const Expr *reduce_source(Compute *k, const Expr *e, int v)
{
  Module *m = k->c->m;
  const Reduce *r = e->u.reduce;
  const Expr *cond = e->arg[r->reducer->n];
  const Expr *source = e->arg[v];
  const Expr *none = r->reducer->identity[v];
  if (expr_is_int(cond, 1)) return source;
  Vec(const IterVar *) axis = {0};
  for (int i = 0; i < k->order.n; i++) {
    const Axis *a = map_get(&k->axes, k->order.v[i]);
    vec_push(k->c->imp.arena, &axis, itervar_new(m, k->order.v[i], a->min, a->extent, ITER_SPATIAL, NULL));
  }
  if (te_reads_in_bounds(m, axis.n, axis.v, source)) return expr_select(m, cond, source, none);
  return expr_call(m, source->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, source, none});
}

/* What is stored has the tensor's dtype also where the index it is made of became wider. */
static Stmt *store_value(Creator *c, const Buffer *out, int n, const Expr *const *index, const Expr *value)
{
  if (c->imp.wide && dtype_is_int(value->dtype)) value = expr_cast(c->m, out->dtype, value);
  return stmt_store(c->m, out, n, index, value);
}

/* out[v] = result[v](out…, source…): through variables where there are several
 * values, so that each is computed before any is stored. */
static Stmt *reduce_update(Compute *k, const Expr *e, const Buffer *const *out, int n, const Expr *const *index,
                           const Map *subst)
{
  Module *m = k->c->m;
  Arena *arena = k->c->imp.arena;
  const Reducer *r = e->u.reduce->reducer;
  Map values = {0};
  for (int v = 0; v < r->n; v++) {
    map_put(arena, &values, r->lhs[v], (void *)(uintptr_t)expr_load(m, out[v], n, index));
    map_put(arena, &values, r->rhs[v], (void *)(uintptr_t)expr_substitute(m, reduce_source(k, e, v), subst));
  }
  Stmt **store = arena_array(arena, Stmt *, r->n);
  const Var **var = arena_array(arena, const Var *, r->n);
  for (int v = 0; v < r->n; v++) {
    const Expr *value = expr_substitute(m, r->result[v], &values);
    var[v] = r->n == 1 ? NULL : var_new(m, arena_printf(arena, "v_%s", out[v]->name), value->dtype, VAR_PLAIN);
    store[v] = store_value(k->c, out[v], n, index, var[v] ? var[v]->expr : value);
  }
  Stmt *s = stmt_seq(m, r->n, store);
  for (int v = r->n - 1; v >= 0 && var[v]; v--) s = stmt_let(m, var[v], expr_substitute(m, r->result[v], &values), s);
  return s;
}

static Stmt *reduce_init(Compute *k, const Expr *e, const Buffer *const *out, int n, const Expr *const *index,
                         const Map *subst)
{
  Module *m = k->c->m;
  const Reduce *r = e->u.reduce;
  int nv = r->reducer->n;
  Stmt **store = arena_array(k->c->imp.arena, Stmt *, nv);
  for (int v = 0; v < nv; v++) {
    const Expr *value = r->has_init ? expr_substitute(m, e->arg[nv + 1 + v], subst) : r->reducer->identity[v];
    store[v] = store_value(k->c, out[v], n, index, value);
  }
  return stmt_seq(m, nv, store);
}

/* One block that reduces e into out, over the spatial axes given; lead (may be
 * NULL) is the index in front of theirs. */
static Stmt *reduce_block(Compute *k, const char *name, const Expr *e, int nspatial, const Var *const *spatial,
                          const Expr *lead, const Buffer *const *out)
{
  Creator *c = k->c;
  Nest nest = {.c = c};
  const Expr **index = arena_array(c->imp.arena, const Expr *, nspatial + 1);
  int n = 0;
  if (lead) index[n++] = lead;
  for (int i = 0; i < nspatial; i++) {
    const Axis *a = map_get(&k->axes, spatial[i]);
    te_nest_axis(&nest, spatial[i], a->min, a->extent, ITER_SPATIAL);
    index[n++] = nest.iter.v[nest.iter.n - 1].var->expr;
  }
  for (int i = 0; i < e->u.reduce->naxis; i++) {
    const IterVar *iv = e->u.reduce->axis[i];
    te_nest_axis(&nest, iv->var, iv->min, iv->extent, ITER_REDUCE);
  }
  Stmt *init = reduce_init(k, e, out, n, index, &nest.subst);
  return te_nest_close(&nest, name, init, reduce_update(k, e, out, n, index, &nest.subst));
}

/* ---- reductions inside larger expressions -------------------------------------------------- */

/* Axes of the operation that e depends on, in the operation's order. */
static int used_axes(Compute *k, const Expr *e, const Var ***out)
{
  const Var **free;
  int n = expr_free_vars(k->c->imp.arena, e, &free);
  Vec(const Var *) used = {0};
  for (int i = 0; i < k->order.n; i++)
    for (int j = 0; j < n; j++)
      if (free[j] == k->order.v[i]) vec_push(k->c->imp.arena, &used, free[j]);
  *out = used.v;
  return used.n;
}

static const Expr *hoisted_read(Compute *k, int which, const Expr *e, int n, const Var *const *axis)
{
  Module *m = k->c->m;
  const Expr **index = arena_array(k->c->imp.arena, const Expr *, n);
  for (int i = 0; i < n; i++) {
    const Axis *a = map_get(&k->axes, axis[i]);
    index[i] = expr_is_int(a->min, 0) ? axis[i]->expr : expr_sub(m, axis[i]->expr, a->min);
  }
  return expr_load(m, k->into.v[which][e->u.reduce->value_index], n, index);
}

/* Called bottom up: the reductions inside e are reads already. */
static const Expr *hoist(Rewriter *rw, const Expr *e)
{
  if (e->kind != E_REDUCE) return e;
  Compute *k = rw->env;
  Creator *c = k->c;
  const Var **axis;
  int n = used_axes(k, e, &axis);
  for (int i = 0; i < k->hoisted.n; i++)
    if (te_same_reduction(k->hoisted.v[i], e)) return hoisted_read(k, i, e, n, axis);
  const Reducer *r = e->u.reduce->reducer;
  const Expr **shape = arena_array(c->imp.arena, const Expr *, n);
  for (int i = 0; i < n; i++) shape[i] = ((const Axis *)map_get(&k->axes, axis[i]))->extent;
  const char *hint = arena_printf(c->imp.arena, "%s_red", k->op->name);
  const Buffer **out = arena_array(c->imp.arena, const Buffer *, r->n);
  for (int v = 0; v < r->n; v++) {
    out[v] =
        new_buffer(c, r->n == 1 ? hint : arena_printf(c->imp.arena, "%s_v%d", hint, v), e->arg[v]->dtype, n, shape);
    vec_push(c->imp.arena, &c->allocs, out[v]);
  }
  const char *name = te_create_name(c, &c->blocks, hint);
  vec_push(c->imp.arena, &k->blocks, reduce_block(k, name, e, n, axis, NULL, out));
  vec_push(c->imp.arena, &k->hoisted, e);
  vec_push(c->imp.arena, &k->into, out);
  vec_push(c->imp.arena, &k->name, name);
  return hoisted_read(k, k->hoisted.n - 1, e, n, axis);
}

/* Tells the caller the block of every reduction of the operation that was moved:
 * original and rewritten reductions meet in the importer's and rewriter's memory. */
static void note_hoisted(void *env, const Expr *e)
{
  Compute *k = env;
  if (e->kind != E_REDUCE) return;
  const Expr *read = map_get(&k->rw.memo, map_get(&k->c->imp.expr, e));
  for (int i = 0; read && i < k->hoisted.n; i++)
    for (int v = 0; v < k->hoisted.v[i]->u.reduce->reducer->n; v++)
      if (read->kind == E_LOAD && read->u.buffer == k->into.v[i][v]) te_create_note(k->c, e, k->name.v[i]);
}

/* ---- one compute ------------------------------------------------------------------------------ */

static Stmt *elementwise_block(Compute *k, const char *name, const Expr *const *body, const Expr *row,
                               const Buffer *const *out)
{
  Creator *c = k->c;
  const TeOp *op = k->op;
  Nest nest = {.c = c};
  const Expr **index = arena_array(c->imp.arena, const Expr *, op->naxis);
  for (int i = 0; i < op->naxis; i++) {
    if (i == 0 && row) {
      index[0] = row;
      continue;
    }
    const Var *v = var_import(&c->imp, op->axis[i]->var);
    const Axis *a = map_get(&k->axes, v);
    te_nest_axis(&nest, v, a->min, a->extent, ITER_SPATIAL);
    index[i] = nest.iter.v[nest.iter.n - 1].var->expr;
  }
  Stmt **store = arena_array(c->imp.arena, Stmt *, op->nout);
  for (int i = 0; i < op->nout; i++)
    store[i] = store_value(c, out[i], op->naxis, index, expr_substitute(c->m, body[i], &nest.subst));
  return te_nest_close(&nest, name, NULL, stmt_seq(c->m, op->nout, store));
}

static Stmt *plain_block(Compute *k, const char *name, const Expr *e, const Expr *row, const Buffer *const *out)
{
  Creator *c = k->c;
  const Expr **arg = arena_array(c->imp.arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = expr_rewrite(&k->rw, e->arg[i]);
  e = expr_with_args(c->m, e, arg);
  int n = k->op->naxis - (row ? 1 : 0);
  return reduce_block(k, name, e, n, k->order.v, row, out);
}

void te_create_compute(Creator *c, const TeOp *op, const Expr *row, Stmt ***blocks, int *nblocks)
{
  Compute k = {.c = c, .op = op};
  k.rw = (Rewriter){.m = c->m, .fn = hoist, .env = &k, .arena = c->imp.arena};
  for (int i = row ? 1 : 0; i < op->naxis; i++) add_axis(&k, op->axis[i]);
  for (int i = 0; i < op->nreduce; i++) add_axis(&k, op->reduce_axis[i]);
  const Buffer **out = arena_array(c->imp.arena, const Buffer *, op->nout);
  const Expr **body = arena_array(c->imp.arena, const Expr *, op->nout);
  if (row) /* before the import remembers the axis itself */
    map_put(c->imp.arena, &c->imp.expr, op->axis[0]->var->expr, (void *)(uintptr_t)row);
  for (int i = 0; i < op->nout; i++) {
    out[i] = te_create_buffer(c, &op->out[i]);
    body[i] = expr_import(&c->imp, op->body[i]);
  }
  const char *name = te_create_name(c, &c->blocks, op->name);
  bool plain = te_plain_reduce(op) != NULL;
  for (int i = 0; i < op->nout && !plain; i++) body[i] = expr_rewrite(&k.rw, body[i]);
  Stmt *s = plain ? plain_block(&k, name, body[0], row, out) : elementwise_block(&k, name, body, row, out);
  vec_push(c->imp.arena, &k.blocks, s);
  te_create_note(c, op, name);
  for (int i = 0; i < op->nout && c->names; i++) expr_visit(c->ctx, op->body[i], note_hoisted, &k);
  *blocks = k.blocks.v;
  *nblocks = k.blocks.n;
}

/* ---- the function --------------------------------------------------------------------------------- */

static void check_bound_buffer(Creator *c, const Tensor *t, const Buffer *b)
{
  if (b->ndim != t->buffer->ndim)
    raise(c->ctx, ERR_SHAPE, NOWHERE, "the buffer bound to tensor '%s' has %d dimensions, the tensor %d",
          t->buffer->name, b->ndim, t->buffer->ndim);
  if (!dtype_eq(b->dtype, t->buffer->dtype))
    raise(c->ctx, ERR_TYPE, NOWHERE, "the buffer bound to tensor '%s' is %s, the tensor %s", t->buffer->name,
          dtype_name(scratch(c->ctx), b->dtype), dtype_name(scratch(c->ctx), t->buffer->dtype));
}

static Param tensor_param(Creator *c, const Tensor *t, const Buffer *bound)
{
  if (map_has(&c->imp.buffer, t->buffer))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "tensor '%s' is given twice among the arguments", t->buffer->name);
  const Buffer *b;
  if (bound) {
    check_bound_buffer(c, t, bound);
    b = buffer_import(&c->imp, bound);
    te_create_name(c, &c->buffers, b->name);
  } else {
    b = new_buffer(c, t->buffer->name, t->buffer->dtype, t->buffer->ndim, import_shape(c, t->buffer));
  }
  map_put(c->imp.arena, &c->imp.buffer, t->buffer, (void *)(uintptr_t)b);
  te_create_note(c, t, b->name);
  return (Param){b->data, b};
}

/* Variables that the arguments tell: scalars, and those in shapes, strides, offsets. */
static void note_known(Creator *c, Map *known, int nexpr, const Expr *const *e)
{
  for (int i = 0; e && i < nexpr; i++) {
    const Var **v;
    int n = e[i] ? expr_free_vars(c->imp.arena, e[i], &v) : 0;
    for (int j = 0; j < n; j++) map_put(c->imp.arena, known, v[j], c);
  }
}

static void note_known_buffer(Creator *c, Map *known, const Buffer *b)
{
  note_known(c, known, b->ndim, b->shape);
  note_known(c, known, b->ndim, b->strides);
  note_known(c, known, 1, &b->elem_offset);
}

static void check_known(Creator *c, const Map *known, const TeOp *op, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(c->imp.arena, e, &v);
  for (int i = 0; i < n; i++) {
    bool own = map_has(known, v[i]);
    for (int a = 0; a < op->naxis; a++) own |= op->axis[a]->var == v[i];
    if (!own)
      raise(c->ctx, ERR_ARGUMENT, NOWHERE,
            "'%s' uses variable '%s', which no argument gives; list it among the arguments", op->name, v[i]->name);
  }
}

static void check_variables(Creator *c, const Map *known, const TeOp *op)
{
  for (int i = 0; i < op->nout; i++) {
    for (int d = 0; d < op->out[i].buffer->ndim; d++) check_known(c, known, op, op->out[i].buffer->shape[d]);
    if (op->kind == TE_COMPUTE) check_known(c, known, op, op->body[i]);
  }
  for (int i = 0; i < op->nreduce; i++) {
    check_known(c, known, op, op->reduce_axis[i]->min);
    check_known(c, known, op, op->reduce_axis[i]->extent);
  }
}

/* Operations that run inside a scan, not in the function's own sequence. */
static void note_scan_parts(Creator *c, Map *inside, const TeOp *op)
{
  const TeOp **step;
  int n = te_scan_steps(c->imp.arena, op, &step);
  for (int i = 0; i < n; i++) map_put(c->imp.arena, inside, step[i], c);
  for (int i = 0; i < op->nstate; i++) map_put(c->imp.arena, inside, op->state[i]->op, c);
}

static Stmt *make_body(Creator *c, int nout, const Tensor *const *outputs, const Map *known)
{
  const TeOp **op;
  int n = te_post_order(c->imp.arena, nout, outputs, &op);
  Map inside = {0};
  for (int i = 0; i < n; i++)
    if (op[i]->kind == TE_SCAN) note_scan_parts(c, &inside, op[i]);
  Vec(Stmt *) seq = {0};
  for (int i = 0; i < n; i++) {
    check_variables(c, known, op[i]);
    if (map_has(&inside, op[i])) continue;
    te_check_outside_scan(op[i]);
    Stmt **block = NULL;
    Stmt *one = NULL;
    int nblock = 1;
    switch (op[i]->kind) {
    case TE_PLACEHOLDER:
      if (!map_has(&c->imp.buffer, op[i]->out[0].buffer))
        raise(c->ctx, ERR_ARGUMENT, NOWHERE, "placeholder '%s' is read but is not among the arguments", op[i]->name);
      nblock = 0;
      break;
    case TE_COMPUTE: te_create_compute(c, op[i], NULL, &block, &nblock); break;
    case TE_SCAN: one = te_create_scan(c, op[i]); break;
    case TE_EXTERN: one = te_create_extern(c, op[i]); break;
    }
    for (int b = 0; b < nblock; b++) vec_push(c->imp.arena, &seq, one ? one : block[b]);
  }
  return stmt_seq(c->m, seq.n, seq.v);
}

/* The block that allocates what is neither input nor output. */
static Stmt *make_root(Creator *c, Stmt *body)
{
  Block *root = arena_new_of(c->m->arena, Block);
  root->name = "root";
  root->body = body;
  root->nallocs = c->allocs.n;
  root->allocs = arena_copy(c->m->arena, c->allocs.v, (size_t)c->allocs.n * sizeof *c->allocs.v);
  return stmt_block(c->m, root);
}

/* An int32 variable of sizes and axes is one of int64 in the function. */
static void widen_var(Creator *c, const Var *v)
{
  if (!dtype_eq(v->dtype, DT_I32) || map_has(&c->imp.var, v)) return;
  map_put(c->imp.arena, &c->imp.var, v, (void *)(uintptr_t)var_new(c->m, v->name, DT_I64, v->kind));
}

static void widen_vars(Creator *c, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(c->imp.arena, e, &v);
  for (int i = 0; i < n; i++) widen_var(c, v[i]);
}

static void widen_args(Creator *c, int nargs, const TeArg *args)
{
  Vec(const Tensor *) tensors = {0};
  for (int i = 0; i < nargs; i++)
    if (args[i].tensor) vec_push(c->imp.arena, &tensors, args[i].tensor);
  const TeOp **op;
  int n = te_post_order(c->imp.arena, tensors.n, tensors.v, &op);
  for (int i = 0; i < n; i++) {
    for (int o = 0; o < op[i]->nout; o++)
      for (int d = 0; d < op[i]->out[o].buffer->ndim; d++) widen_vars(c, op[i]->out[o].buffer->shape[d]);
    for (int a = 0; a < op[i]->naxis; a++) widen_var(c, op[i]->axis[a]->var);
    for (int a = 0; a < op[i]->nreduce; a++) widen_var(c, op[i]->reduce_axis[a]->var);
  }
}

static PrimFunc *create(Module *dst, const char *name, int nargs, const TeArg *args, Map *names, bool wide)
{
  Scope scope = scope_begin(dst->ctx);
  Creator c = {.ctx = dst->ctx, .m = dst, .imp = {.dst = dst, .arena = scratch(dst->ctx)}, .names = names};
  c.imp.wide = wide;
  if (wide) widen_args(&c, nargs, args);
  te_create_name(&c, &c.blocks, "root");
  Param *param = arena_array(scratch(dst->ctx), Param, nargs);
  Vec(const Tensor *) outputs = {0};
  Map known = {0};
  for (int i = 0; i < nargs; i++) {
    if (args[i].tensor) {
      param[i] = tensor_param(&c, args[i].tensor, args[i].buffer);
      note_known_buffer(&c, &known, args[i].tensor->buffer);
      if (args[i].buffer) note_known_buffer(&c, &known, args[i].buffer);
      if (args[i].tensor->op->kind != TE_PLACEHOLDER) vec_push(scratch(dst->ctx), &outputs, args[i].tensor);
    } else {
      param[i] = (Param){var_import(&c.imp, args[i].var), NULL};
      map_put(scratch(dst->ctx), &known, args[i].var, &c);
    }
  }
  if (!outputs.n)
    raise(dst->ctx, ERR_ARGUMENT, NOWHERE, "function '%s' computes nothing: no argument is the output of an operation",
          name);
  Stmt *root = make_root(&c, make_body(&c, outputs.n, outputs.v, &known));
  PrimFunc *f = func_new(dst, name, nargs, param, root);
  annots_set(dst->arena, &f->attrs, "global_symbol", expr_str(dst, name));
  annots_set(dst->arena, &f->attrs, "tir.noalias", expr_bool(dst, true));
  scope_end(dst->ctx, scope);
  return f;
}

PrimFunc *te_create_prim_func(Module *dst, const char *name, int nargs, const TeArg *args, Map *names)
{
  return create(dst, name, nargs, args, names, false);
}

PrimFunc *te_create_prim_func_wide(Module *dst, const char *name, int nargs, const TeArg *args)
{
  return create(dst, name, nargs, args, NULL, true);
}
