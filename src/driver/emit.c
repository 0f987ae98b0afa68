/* emit.c: from graph functions to instructions.
 *
 * Each function's nodes are put in order, dependencies first, and each is given the region
 * it is computed in: the innermost one around all its uses, so that nothing inside a
 * branch is computed before the branch is taken, and what both branches need is computed
 * once.  A call in tail position becomes a TAIL: loops written as recursion run in
 * constant space.
 *
 * Tuples are spread out over registers.  A call of a primitive function is an ALLOC for each
 * output and a KERNEL; functions inside functions are handed what they capture.  A match is
 * a region for each clause, as an if has two. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/emit.h"

#include "driver/host.h"

/* ---- instructions and registers ------------------------------------------------------- */

ProgIns *emit_ins(Emit *e, ModelOp op)
{
  vec_push(e->p->arena, &e->f->ins,
           (ProgIns){.op = op, .reg = -1, .source = -1, .node = -1, .place = PLACE_DYNAMIC, .region = e->region});
  return &e->f->ins.v[e->f->ins.n - 1];
}

int emit_reg(Emit *e, int home)
{
  vec_push(e->p->arena, &e->f->home, home);
  return e->f->nreg++;
}

/* NULL: the node has not been emitted, or gives nothing that a register holds. */
const int *emit_regs_of(Emit *e, const Node *n)
{
  for (;;) {
    const int *regs = map_get(&e->regs, n);
    const Node *bound = regs || n->kind != N_VAR ? NULL : map_get(e->let, n);
    if (!bound) return regs;
    n = bound;
  }
}

const int *emit_need(Emit *e, const Node *n)
{
  const Node *from = n;
  const int *regs;
  while (!(regs = map_get(&e->regs, from)) && from->kind == N_VAR && map_get(e->let, from))
    from = map_get(e->let, from);
  if (!regs && type_leaf_count(from->type))
    BUG(e->ctx, "a value of type %s ('%s') is used before it is computed", type_text(scratch(e->ctx), n->type),
        n->name ? n->name : "");
  return emit_convert(e, regs, from->type, n->type);
}

void emit_set_regs(Emit *e, const Node *n, const int *regs) { map_put(e->arena, &e->regs, n, (void *)(uintptr_t)regs); }

static int *new_regs(Emit *e, const Node *n)
{
  int count = type_leaf_count(n->type);
  int *regs = arena_array(e->arena, int, count + 1);
  for (int i = 0; i < count; i++) regs[i] = emit_reg(e, e->region);
  map_put(e->arena, &e->regs, n, regs);
  return regs;
}

static int *reg_list(Emit *e, int n, const int *from)
{
  int *to = arena_array(e->p->arena, int, n + 1);
  if (n) memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

void emit_set_args(Emit *e, ProgIns *ins, int n, const int *regs)
{
  ins->narg = n;
  ins->arg = reg_list(e, n, regs);
}

static void load_const(Emit *e, const Node *constant, int device, int reg)
{
  int index = program_const(e->p, constant, device);
  ProgIns *ins = emit_ins(e, MO_CONST);
  ins->reg = reg;
  ins->index = index;
}

/* Registers of several nodes, one after the other; then of constants that are no nodes of this function.  Constants are
 * on the device. */
static int *gather_with(Emit *e, int device, int n, const Node *const *node, int nconst, const Node *const *constant,
                        int *count)
{
  IntList all = {0};
  for (int i = 0; i < n; i++) {
    if (device && node[i]->kind == N_CONST) {
      int reg = emit_reg(e, e->region);
      load_const(e, node[i], device, reg);
      vec_push(e->arena, &all, reg);
      continue;
    }
    const int *regs = emit_need(e, node[i]);
    for (int k = 0; k < type_leaf_count(node[i]->type); k++) vec_push(e->arena, &all, regs[k]);
  }
  for (int i = 0; i < nconst; i++) {
    int reg = emit_reg(e, e->region);
    load_const(e, constant[i], device, reg);
    vec_push(e->arena, &all, reg);
  }
  *count = all.n;
  return reg_list(e, all.n, all.v);
}

/* ---- what a node depends on ------------------------------------------------------------- */

static void add_sources(Emit *e, const Type *ty, Nodes *out)
{
  for (int i = 0; i < ty->nfield; i++) add_sources(e, ty->field[i], out);
  for (int d = 0; ty->kind == TY_TENSOR && d < ty->ndim; d++) {
    if (ty->shape[d]->kind == E_INT) continue;
    const Var **var;
    int n = expr_free_vars(e->arena, ty->shape[d], &var);
    int element;
    const Node *source;
    for (int i = 0; i < n; i++)
      if (graph_value_source(e->m, var[i], &source, &element) && source->kind != N_VAR) vec_push(e->arena, out, source);
  }
}

static void add_captures(Emit *e, const Node *func, Nodes *out)
{
  const Callee *c = emit_callee(e, func);
  for (int i = 0; i < c->ncapture; i++) vec_push(e->arena, out, c->capture[i]);
}

/* What must have been computed before n.  A function is a value, and made, only where it is
 * not called by name. */
static void dependencies(Emit *e, const Node *n, Nodes *out)
{
  out->n = 0;
  int first = 0;
  const Node *bound = n->kind == N_VAR && !map_has(&e->regs, n) ? map_get(e->let, n) : NULL;
  if (bound) vec_push(e->arena, out, bound);
  if (n->kind == N_FUNC) {
    add_captures(e, n, out);
    return;
  }
  if (n->kind == N_APPLY) {
    Called to = emit_called(e, n->arg[0]);
    if (to.kind == CALLED_FUNC) add_captures(e, to.node, out);
    first = to.kind == CALLED_VALUE ? 0 : 1;
  }
  if (n->kind == N_LET) {
    map_put(e->p->arena, e->let, n->arg[0], (void *)(uintptr_t)n->arg[1]);
    first = n->arg[1]->kind == N_FUNC ? 2 : 1;
  }
  for (int i = first; i < n->nargs; i++) vec_push(e->arena, out, n->arg[i]);
  if ((n->kind == N_APPLY || n->kind == N_CALL) && n->type) add_sources(e, n->type, out);
}

static void order_nodes(Emit *e, const Node *root)
{
  typedef struct {
    const Node *n;
    Nodes deps;
    int next;
  } Frame;
  Vec(Frame) stack = {0};
  Map seen = {0};
  vec_push(e->arena, &stack, (Frame){.n = root, .next = -1});
  map_put(e->arena, &seen, root, (void *)(uintptr_t)root);
  while (stack.n) {
    Frame *top = &stack.v[stack.n - 1];
    if (top->next < 0) {
      Nodes deps = {0};
      dependencies(e, top->n, &deps);
      top->deps = deps;
      top->next = 0;
    }
    if (top->next == top->deps.n) {
      vec_push(e->arena, &e->order, top->n);
      stack.n--;
      continue;
    }
    const Node *dep = top->deps.v[top->next++];
    if (map_has(&seen, dep)) continue;
    map_put(e->arena, &seen, dep, (void *)(uintptr_t)dep);
    vec_push(e->arena, &stack, (Frame){.n = dep, .next = -1});
  }
}

/* ---- regions ------------------------------------------------------------------------------ */

int emit_region_new(Emit *e, int parent)
{
  vec_push(e->p->arena, &e->f->region, (ProgRegion){.parent = parent});
  return e->f->region.n - 1;
}

static int common_region(const ProgFunc *f, int a, int b)
{
  while (a != b) { /* inner regions have larger numbers than those around them */
    if (a > b) a = f->region.v[a].parent;
    else b = f->region.v[b].parent;
  }
  return a;
}

static void use_in(Emit *e, const Node *n, int region)
{
  int before = (int)(intptr_t)map_get(&e->region_of, n) - 1;
  if (before >= 0) region = common_region(e->f, before, region);
  map_put(e->arena, &e->region_of, n, (void *)(intptr_t)(region + 1));
}

static int region_of(const Emit *e, const Node *n) { return (int)(intptr_t)map_get(&e->region_of, n) - 1; }

/* Users come before what they use, so a node's region is final when it is looked at. */
static void place_nodes(Emit *e, const Node *root)
{
  emit_region_new(e, -1);
  use_in(e, root, 0);
  Nodes deps = {0};
  for (int i = e->order.n - 1; i >= 0; i--) {
    const Node *n = e->order.v[i];
    int here = region_of(e, n);
    if (n->kind == N_IF) {
      int then = emit_region_new(e, here);
      int orelse = emit_region_new(e, here);
      map_put(e->arena, &e->then_of, n, (void *)(intptr_t)(then + 1));
      use_in(e, n->arg[0], here);
      use_in(e, n->arg[1], then);
      use_in(e, n->arg[2], orelse);
      continue;
    }
    if (n->kind == N_MATCH) {
      use_in(e, n->arg[0], here);
      for (int k = 1; k < n->nargs; k++) {
        int clause = emit_region_new(e, here);
        if (k == 1) map_put(e->arena, &e->then_of, n, (void *)(intptr_t)(clause + 1));
        use_in(e, n->arg[k], clause);
      }
      continue;
    }
    dependencies(e, n, &deps);
    for (int k = 0; k < deps.n; k++) use_in(e, deps.v[k], here);
  }
  e->in_region = arena_array(e->arena, Nodes, e->f->region.n);
  for (int i = 0; i < e->order.n; i++) vec_push(e->arena, &e->in_region[region_of(e, e->order.v[i])], e->order.v[i]);
}

/* ---- nodes ---------------------------------------------------------------------------------------- */

static const char *describe(Emit *e, const Node *n)
{
  return n->name && *n->name ? arena_printf(e->arena, "node '%s'", n->name)
                             : arena_printf(e->arena, "a value of type %s", type_text(e->arena, n->type));
}

static ProgExpr *emit_shape(Emit *e, int ndim, const Expr *const *shape, const char *what)
{
  if (ndim < 0 || ndim > LATHE_RT_MAX_RANK)
    raise(e->ctx, ERR_UNSUPPORTED, NOWHERE,
          ndim < 0 ? "%s: its rank is not known" : "%s: its rank is %d, at most %d are possible", what, ndim,
          LATHE_RT_MAX_RANK);
  ProgExpr *dims = arena_array(e->p->arena, ProgExpr, ndim + 1);
  for (int d = 0; d < ndim; d++) dims[d] = emit_expr(e, shape[d], what);
  return dims;
}

/* Adds the conditions under which the sizes of ty fit (graph.h, type_dim_unguarded) to conds, each once. */
static void add_guards(Emit *e, const Type *ty, Map *conds)
{
  for (int d = 0; d < ty->ndim; d++)
    for (const Expr *g = ty->shape[d]; g != type_dim_unguarded(g); g = g->arg[1])
      map_put(e->arena, conds, g->arg[0], (void *)(uintptr_t)g->arg[0]);
  for (int i = 0; ty->kind == TY_TUPLE && i < ty->nfield; i++) add_guards(e, ty->field[i], conds);
}

static void emit_size_check(Emit *e, const Expr *cond, const char *what)
{
  ProgExpr *check = arena_new_of(e->p->arena, ProgExpr);
  *check = emit_expr(e, cond, what);
  ProgIns *ins = emit_ins(e, MO_CHECK);
  ins->nexpr = 1;
  ins->expr = check;
  ins->text = arena_printf(e->p->arena, "%s: sizes do not fit: %s does not hold", what, expr_str_of(e->arena, cond));
}

/* Sizes that meet inside a group are checked where its result is allocated: the first
 * dimension comes out as -1, which is refused, when they do not fit.  A group that gives
 * scalars alone has no dimension; there the check stands before the kernel. */
static void guard_leaves(Emit *e, Outside *o, int n, const Type **leaf)
{
  const Node **node;
  int nnode = graph_post_order(e->arena, fn_body(o->apply->arg[0]), &node);
  int first = 0;
  Map conds = {0};
  for (int i = 0; i < nnode; i++)
    if (node[i]->kind == N_CALL && node[i]->type) add_guards(e, node[i]->type, &conds);
  while (first < n && leaf[first]->ndim < 1) first++;
  for (int i = 0; i < conds.n; i++) {
    const Expr *cond = emit_outside_expr(o, conds.val[i]);
    if (first == n) {
      emit_size_check(e, cond, describe(e, o->apply));
      continue;
    }
    const Expr *dim = leaf[first]->shape[0];
    leaf[first]->shape[0] = expr_select(e->m, cond, dim, expr_int(e->m, dim->dtype, -1));
  }
}

/* The leaves of a primitive function's result as seen from outside. */
static const Type **result_leaves(Emit *e, Outside *o, int *n)
{
  const Type **inside = type_leaves(e->arena, fn_body(o->apply->arg[0])->type, n);
  for (int i = 0; i < *n; i++) {
    if (inside[i]->kind != TY_TENSOR)
      raise(e->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: a kernel cannot give %s", describe(e, o->apply),
            type_text(e->arena, inside[i]));
    const Expr **shape = arena_array(e->arena, const Expr *, inside[i]->ndim + 1);
    for (int d = 0; d < inside[i]->ndim; d++) shape[d] = emit_outside_expr(o, type_dim_unguarded(inside[i]->shape[d]));
    inside[i] = type_tensor(e->m, inside[i]->dtype, inside[i]->ndim, shape);
  }
  guard_leaves(e, o, *n, inside);
  return inside;
}

static void emit_view(Emit *e, const Node *n, int device, const Type *out, const char *what)
{
  int count;
  int source = gather_with(e, device, 1, n->arg + 1, 0, NULL, &count)[0];
  ProgExpr *dims = emit_shape(e, out->ndim, out->shape, what);
  int *regs = new_regs(e, n);
  ProgIns *ins = emit_ins(e, MO_VIEW);
  ins->reg = regs[0];
  ins->source = source;
  ins->dtype = out->dtype;
  ins->nexpr = out->ndim;
  ins->expr = dims;
}

/* What a call of a kernel is made of. */
typedef struct KernelCall {
  const Node *apply, *func; /* the call, and its primitive function … */
  const Lifted *lifted;     /* … whose integers are arguments (NULL: not so) … */
  const Node *own;          /* … over sizes of its own */
  int kernel, device;
} KernelCall;

static KernelCall kernel_call(Emit *e, int device, const Node *apply, const Node *func)
{
  if (program_is_external(func))
    return (KernelCall){.apply = apply, .func = func, .own = func, .kernel = program_external(e->p, func)};
  KernelCall k = {.device = device, .apply = apply, .func = func, .lifted = map_get(&e->p->lifted, func)};
  k.own = program_own_sizes(e->p, k.lifted ? k.lifted->func : func);
  k.kernel = program_kernel(e->p, k.own, device);
  return k;
}

/* The tensors that go in, the constants of the kernel among them. */
static int *kernel_inputs(Emit *e, const KernelCall *k, int *count)
{
  const ImplResult *impl = &e->p->kernel.v[k->kernel].impl;
  int nlifted = k->lifted ? k->lifted->n : 0;
  const Node **constant = arena_array(e->arena, const Node *, nlifted + impl->nconsts + 1);
  for (int i = 0; i < nlifted; i++) constant[i] = k->lifted->integer[i];
  for (int i = 0; i < impl->nconsts; i++) constant[nlifted + i] = impl->consts[i];
  return gather_with(e, k->device, k->apply->nargs - 1, k->apply->arg + 1, nlifted + impl->nconsts, constant, count);
}

/* The kernel's scalars, as seen from outside the function. */
static void kernel_scalars(Emit *e, const KernelCall *k, Outside *o, const char *what, int *arg, bool *is_scalar)
{
  const Node *n = k->apply;
  const ImplResult *impl = &e->p->kernel.v[k->kernel].impl;
  if (!impl->nscalars) return;
  Outside inner = *o;
  if (k->own != k->func) {
    int nlifted = k->lifted ? k->lifted->n : 0;
    const Node **operand = arena_array(e->arena, const Node *, n->nargs + nlifted);
    for (int i = 1; i < n->nargs; i++) operand[i - 1] = n->arg[i];
    for (int i = 0; i < nlifted; i++) operand[n->nargs - 1 + i] = k->lifted->integer[i];
    inner = emit_outside_begin(e, node_apply(e->m, k->own, n->nargs - 1 + nlifted, operand));
  }
  const Expr **scalar = program_kernel_scalars(e->p, k->kernel, k->own);
  for (int i = 0; i < impl->nscalars; i++) {
    arg[i] = emit_scalar(e, emit_outside_expr(&inner, scalar[i]), what);
    is_scalar[i] = true;
  }
}

static void emit_kernel(Emit *e, int device, const Node *n, const Node *func, Outside *o, const Type **out, int nout,
                        const char *what)
{
  KernelCall k = kernel_call(e, device, n, func);
  int nin;
  int *in = kernel_inputs(e, &k, &nin);
  int *regs = arena_array(e->arena, int, nout + 1);
  for (int i = 0; i < nout; i++) {
    ProgExpr *dims = emit_shape(e, out[i]->ndim, out[i]->shape, what);
    regs[i] = emit_reg(e, e->region);
    ProgIns *ins = emit_ins(e, MO_ALLOC);
    ins->reg = regs[i];
    ins->device = device;
    ins->dtype = out[i]->dtype;
    ins->nexpr = out[i]->ndim;
    ins->expr = dims;
  }
  int narg = nin + nout + e->p->kernel.v[k.kernel].impl.nscalars;
  int *arg = arena_array(e->p->arena, int, narg + 1);
  bool *is_scalar = arena_array(e->p->arena, bool, narg + 1);
  for (int i = 0; i < nin; i++) arg[i] = in[i];
  for (int i = 0; i < nout; i++) arg[nin + i] = regs[i];
  kernel_scalars(e, &k, o, what, arg + nin + nout, is_scalar + nin + nout);
  ProgIns *ins = emit_ins(e, MO_KERNEL);
  ins->index = k.kernel;
  ins->node = program_node(e->p, func, k.kernel, NULL);
  ins->narg = narg;
  ins->arg = arg;
  ins->is_scalar = is_scalar;
  map_put(e->arena, &e->regs, n, regs);
}

void emit_bind_results(Emit *e, const Node *n)
{
  int count;
  const Type **leaf = type_leaves(e->arena, n->type, &count);
  const int *regs = emit_regs_of(e, n);
  for (int i = 0; i < count; i++) emit_bind_dims(e, leaf[i], regs[i]);
}

static void emit_primitive(Emit *e, const Node *n, int device)
{
  const Node *func = n->arg[0];
  const char *what = fn_body(func)->name ? describe(e, fn_body(func)) : describe(e, n);
  Outside o = emit_outside_begin(e, n);
  int nout;
  const Type **out = result_leaves(e, &o, &nout);
  if (!program_is_external(func) && program_is_view(func)) emit_view(e, n, device, out[0], what);
  else emit_kernel(e, device, n, func, &o, out, nout, what);
  emit_bind_results(e, n);
}

/* A call of a function that an external compiler makes, by name: the same as one of the function itself. */
static void emit_external(Emit *e, const Node *n, const Node *func)
{
  if (program_device(e->p, n))
    raise(e->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: the function of an external compiler runs on the host; put it there",
          describe(e, n));
  const Node *apply = node_apply(e->m, func, n->nargs - 1, n->arg + 1);
  emit_primitive(e, apply, 0);
  map_put(e->arena, &e->regs, n, map_get(&e->regs, apply));
  emit_bind_results(e, n);
}

/* A call of a tir function becomes a primitive function around it. */
static void emit_call_tir(Emit *e, const Node *n)
{
  const Node **param = arena_array(e->arena, const Node *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) param[i] = node_var(e->m, arena_printf(e->arena, "p%d", i), n->arg[i]->type);
  const Node *body = node_call_tir(e->m, n->u.tir.name, n->nargs, param, n->type);
  Annots attrs = {0};
  annots_set(e->m->arena, &attrs, "Primitive", expr_i32(e->m, 1));
  const Node *apply = node_apply(e->m, node_func(e->m, n->nargs, param, body, NULL, &attrs), n->nargs, n->arg);
  emit_primitive(e, apply, program_device(e->p, n));
  map_put(e->arena, &e->regs, n, map_get(&e->regs, apply));
  emit_bind_results(e, n);
}

static void emit_host(Emit *e, const Node *n)
{
  HostCall call = emit_host_call(e->m, n);
  int narg;
  int *arg = gather_with(e, 0, call.nargs, call.arg, call.more ? 1 : 0, &call.more, &narg);
  int *ret = new_regs(e, n);
  int node = program_node(e->p, n, -1, n->u.call.op->name);
  ProgIns *ins = emit_ins(e, MO_HOST);
  ins->index = call.op;
  ins->node = node;
  ins->nattr = call.nattr;
  ins->attr = arena_copy(e->p->arena, call.attr, sizeof call.attr);
  ins->narg = narg;
  ins->arg = arg;
  ins->nret = type_leaf_count(n->type);
  ins->ret = reg_list(e, ins->nret, ret);
  emit_bind_results(e, n);
}

static int packed_number(Program *p, const char *name)
{
  for (int i = 0; i < p->packed.n; i++)
    if (!strcmp(p->packed.v[i], name)) return i;
  vec_push(p->arena, &p->packed, arena_strdup(p->arena, name));
  return p->packed.n - 1;
}

/* A function by name: the tensor that it fills is the last of its arguments; an object is its result. */
static void emit_packed(Emit *e, const Node *n, const char *name, bool fills)
{
  int narg;
  int *in = gather_with(e, 0, n->nargs, n->arg, 0, NULL, &narg);
  int *arg = arena_array(e->p->arena, int, narg + 1);
  for (int i = 0; i < narg; i++) arg[i] = in[i];
  ProgExpr *dims = fills ? emit_shape(e, n->type->ndim, n->type->shape, name) : NULL;
  int *regs = new_regs(e, n);
  if (fills) {
    ProgIns *alloc = emit_ins(e, MO_ALLOC);
    alloc->reg = arg[narg++] = regs[0];
    alloc->dtype = n->type->dtype;
    alloc->nexpr = n->type->ndim;
    alloc->expr = dims;
  }
  int node = program_node(e->p, n, -1, n->u.call.op->name);
  int index = packed_number(e->p, name);
  ProgIns *ins = emit_ins(e, MO_PACKED);
  ins->index = index;
  ins->node = node;
  ins->narg = narg;
  ins->arg = arg;
  ins->is_scalar = arena_array(e->p->arena, bool, narg + 1);
  ins->nret = fills ? 0 : 1;
  ins->ret = reg_list(e, ins->nret, regs);
  emit_bind_results(e, n);
}

/* The value of its argument where PlanDevices wants it. */
static void emit_device_copy(Emit *e, const Node *n)
{
  int device = program_device(e->p, n);
  int count;
  const Type **leaf = type_leaves(e->arena, n->type, &count);
  const int *from = emit_need(e, n->arg[0]);
  int *regs = new_regs(e, n);
  for (int i = 0; i < count; i++) {
    if (leaf[i]->kind != TY_TENSOR)
      raise(e->ctx, ERR_UNSUPPORTED, NOWHERE, "device_copy: %s cannot be copied to another device; tensors can",
            type_text(e->arena, leaf[i]));
    ProgIns *ins = emit_ins(e, MO_COPY);
    ins->reg = regs[i];
    ins->source = from[i];
    ins->device = device;
  }
  emit_bind_results(e, n);
}

static void emit_region(Emit *, int region, const Node *result, const int *into, const Type *as, bool tail);

/* then and else are the two regions made for this node, in that order. */
static void emit_if(Emit *e, const Node *n, bool tail)
{
  int cond = emit_need(e, n->arg[0])[0];
  int here = e->region;
  int then = (int)(intptr_t)map_get(&e->then_of, n) - 1;
  const int *into = tail ? NULL : new_regs(e, n);
  int branch = e->f->ins.n;
  ProgIns *ins = emit_ins(e, MO_BRANCH);
  ins->reg = cond;
  emit_region(e, then, n->arg[1], into, n->type, tail);
  int jump = e->f->ins.n;
  if (!tail) emit_ins(e, MO_JUMP);
  e->f->ins.v[branch].index = e->f->ins.n;
  emit_region(e, then + 1, n->arg[2], into, n->type, tail);
  if (!tail) e->f->ins.v[jump].index = e->f->ins.n;
  e->f->region.v[then].end = e->f->region.v[then + 1].end = e->f->ins.n;
  e->region = here;
  if (!tail) emit_bind_results(e, n);
}

/* Each clause: tests that jump to the next one, its variables, its body. */
static void emit_match(Emit *e, const Node *n, bool tail)
{
  int here = e->region;
  int first = (int)(intptr_t)map_get(&e->then_of, n) - 1;
  int clauses = n->u.match.n;
  const int *into = tail ? NULL : new_regs(e, n);
  IntList miss = {0};
  IntList done = {0};
  bool always = false;
  for (int i = 0; i < clauses && !always; i++) {
    const Pattern *pattern = n->u.match.clause[i];
    int mark = e->bound.n;
    always = emit_always_fits(pattern);
    e->region = first + i;
    miss.n = 0;
    emit_pattern(e, pattern, n->arg[0], &miss);
    emit_region(e, first + i, n->arg[1 + i], into, n->type, tail);
    emit_unbind(e, mark);
    if (!tail) {
      vec_push(e->arena, &done, e->f->ins.n);
      emit_ins(e, MO_JUMP);
    }
    for (int k = 0; k < miss.n; k++) e->f->ins.v[miss.v[k]].index = e->f->ins.n;
  }
  e->region = here;
  if (always && !tail) e->f->ins.n--, done.n--; /* the last jump goes nowhere */
  if (!always)
    emit_ins(e, MO_FAIL)->text =
        arena_printf(e->p->arena, "match: no clause fits the value (in function '%s')", e->f->name);
  for (int k = 0; k < done.n; k++) e->f->ins.v[done.v[k]].index = e->f->ins.n;
  for (int i = 0; i < clauses; i++) e->f->region.v[first + i].end = e->f->ins.n;
  if (!tail) emit_bind_results(e, n);
}

static void emit_node(Emit *e, const Node *n)
{
  switch (n->kind) {
  case N_VAR: return;
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR: emit_closure(e, n); return;
  case N_CONST: load_const(e, n, 0, new_regs(e, n)[0]); return;
  case N_CALL:
    if (!(n->u.call.op->flags & OPF_HOST))
      BUG(e->ctx, "a call of '%s' stands outside of a primitive function", n->u.call.op->name);
    bool fills;
    const char *packed = emit_packed_name(n, &fills);
    if (n->u.call.op->flags & OPF_PLACE) emit_device_copy(e, n);
    else if (packed) emit_packed(e, n, packed, fills);
    else emit_host(e, n);
    return;
  case N_APPLY: {
    Called to = emit_called(e, n->arg[0]);
    if (to.kind == CALLED_PRIMITIVE) emit_primitive(e, n, program_device(e->p, n));
    else if (to.kind == CALLED_EXTERNAL) emit_external(e, n, to.node);
    else emit_call(e, n, false);
    return;
  }
  case N_TUPLE: {
    int count;
    int *regs = gather_with(e, 0, n->nargs, n->arg, 0, NULL, &count);
    map_put(e->arena, &e->regs, n, regs);
    return;
  }
  case N_GET: {
    const int *regs = emit_need(e, n->arg[0]);
    map_put(e->arena, &e->regs, n, (void *)(uintptr_t)(regs + type_leaf_offset(n->arg[0]->type, n->u.index)));
    return;
  }
  case N_LET: {
    const int *regs = emit_regs_of(e, n->arg[2]); /* none where the body is still to take over the function */
    if (regs) map_put(e->arena, &e->regs, n, (void *)(uintptr_t)regs);
    return;
  }
  case N_IF: emit_if(e, n, false); return;
  case N_MATCH: emit_match(e, n, false); return;
  case N_CALL_TIR: emit_call_tir(e, n); return;
  case N_OP: break;
  }
  raise(e->ctx, ERR_UNSUPPORTED, NOWHERE, "operator '%s' is used as a value; write fn (%%x) { %s(%%x) }",
        n->u.call.op->name, n->u.call.op->name);
}

/* The node that gives the result of a region, if it can take over the function: an if, a match
 * or a call that stands in the region itself. */
static const Node *tail_node(Emit *e, int region, const Node *result)
{
  while (result->kind == N_LET) result = result->arg[2];
  bool can = result->kind == N_IF || result->kind == N_MATCH || (result->kind == N_APPLY && emit_can_tail(e, result));
  return can && region_of(e, result) == region ? result : NULL;
}

static void emit_tail(Emit *e, const Node *n)
{
  if (n->kind == N_IF) emit_if(e, n, true);
  else if (n->kind == N_MATCH) emit_match(e, n, true);
  else emit_call(e, n, true);
}

static void emit_return(Emit *e, const Node *result)
{
  const int *regs = emit_convert(e, emit_need(e, result), result->type, e->result);
  emit_set_args(e, emit_ins(e, MO_RETURN), type_leaf_count(e->result), regs);
}

static void emit_moves(Emit *e, const Node *result, const int *into, const Type *as)
{
  const int *regs = emit_convert(e, emit_need(e, result), result->type, as);
  for (int i = 0; i < type_leaf_count(as); i++) {
    ProgIns *ins = emit_ins(e, MO_MOVE);
    ins->reg = into[i];
    ins->source = regs[i];
  }
}

/* What a region computes, then its result: returned in tail position, else moved to `into`,
 * registers of a value of type `as`. */
static void emit_region(Emit *e, int region, const Node *result, const int *into, const Type *as, bool tail)
{
  enum { DEEPEST = 200 };
  int depth = 0;
  int mark = e->bound.n;
  for (int r = region; r >= 0; r = e->f->region.v[r].parent) depth++;
  if (depth > DEEPEST)
    raise(e->ctx, ERR_UNSUPPORTED, NOWHERE, "function '%s': more than %d ifs and matches inside each other", e->f->name,
          DEEPEST);
  e->region = region;
  const Node *last = tail ? tail_node(e, region, result) : NULL;
  for (int i = 0; i < e->in_region[region].n; i++) {
    const Node *n = e->in_region[region].v[i];
    if (n == last) continue;
    emit_node(e, n);
    e->region = region;
  }
  if (last) emit_tail(e, last);
  else if (tail) emit_return(e, result);
  else emit_moves(e, result, into, as);
  if (region) emit_unbind(e, mark);
}

/* ---- functions ---------------------------------------------------------------------------------------- */

static void add_parameter(Emit *e, const Node *var)
{
  int n = type_leaf_count(var->type);
  int *regs = arena_array(e->arena, int, n + 1);
  for (int i = 0; i < n; i++) regs[i] = emit_reg(e, 0);
  e->f->nparam += n;
  map_put(e->arena, &e->regs, var, regs);
}

static void bind_parameter(Emit *e, const Node *var)
{
  int n;
  const Type **leaf = type_leaves(e->arena, var->type, &n);
  const int *regs = map_get(&e->regs, var);
  for (int i = 0; i < n; i++) emit_bind_dims(e, leaf[i], regs[i]);
}

/* A dimension of an input that is an expression over sizes that other inputs tell. */
static void check_input(Emit *e, const Node *var)
{
  int n;
  const Type **leaf = type_leaves(e->arena, var->type, &n);
  const int *regs = map_get(&e->regs, var);
  for (int i = 0; i < n; i++)
    for (int d = 0; leaf[i]->kind == TY_TENSOR && d < leaf[i]->ndim; d++) {
      const Expr *dim = leaf[i]->shape[d];
      if (dim->kind == E_INT || dim->kind == E_VAR) continue;
      ProgExpr *check = arena_new_of(e->p->arena, ProgExpr);
      *check = emit_expr(e, dim, arena_printf(e->arena, "input '%s'", var->name));
      vec_push(e->p->arena, check, (ProgStep){.op = XO_DIM, .a = regs[i], .b = d});
      vec_push(e->p->arena, check, (ProgStep){.op = XO_EQ});
      ProgIns *ins = emit_ins(e, MO_CHECK);
      ins->nexpr = 1;
      ins->expr = check;
      ins->text =
          arena_printf(e->p->arena, "dimension %d of input '%s' is not %s", d, var->name, expr_str_of(e->arena, dim));
    }
}

/* The parameters of an entry that `prepare` makes: how many they are, at the end, and which of its results. */
static int prepared_params(const Node *func, const char **numbers)
{
  const Expr *listed = annots_get(&func->u.func->attrs, "Prepared");
  *numbers = listed ? listed->u.str : "";
  int n = **numbers != 0;
  for (const char *c = *numbers; *c; c++) n += *c == ',';
  return n;
}

static void load_prepared(Emit *e, const Node *var, int result)
{
  Program *p = e->p;
  if (p->prepared[result] < 0) p->prepared[result] = program_const_prepared(p, var->type);
  int *reg = arena_array(e->arena, int, 1);
  *reg = emit_reg(e, 0);
  ProgIns *ins = emit_ins(e, MO_CONST);
  ins->reg = *reg;
  ins->index = p->prepared[result];
  map_put(e->arena, &e->regs, var, reg);
}

static void emit_function(Program *p, Map *callees, Callees *queue, Map *let, const Callee *c)
{
  Scope scope = scope_begin(p->ctx);
  Emit e = {.p = p,
            .ctx = p->ctx,
            .arena = scratch(p->ctx),
            .m = p->m,
            .f = p->func.v[c->index],
            .callee = c,
            .result = emit_result_type(c),
            .callees = callees,
            .queue = queue,
            .let = let};
  const Node *body = fn_body(c->func);
  for (int i = 0; i < c->ncapture; i++) add_parameter(&e, c->capture[i]);
  int size = e.f->nparam;
  for (int i = 0; i < c->nsize; i++) emit_reg(&e, 0);
  e.f->nparam += c->nsize;
  const char *numbers;
  int nprepared = prepared_params(c->func, &numbers);
  int nparam = fn_nparams(c->func) - nprepared;
  for (int i = 0; i < nparam; i++) add_parameter(&e, c->func->arg[i]);
  e.f->nret = type_leaf_count(e.result);
  order_nodes(&e, body);
  program_lift_integers(p, e.order.n, e.order.v);
  place_nodes(&e, body);
  for (int i = 0; i < nprepared; i++, numbers += strcspn(numbers, ",") + 1)
    load_prepared(&e, c->func->arg[nparam + i], atoi(numbers));
  for (int i = 0; i < c->ncapture; i++) bind_parameter(&e, c->capture[i]);
  for (int i = 0; i < c->nsize; i++) emit_bind_dim(&e, c->size[i], size + i, 0);
  for (int i = 0; i < nparam; i++) bind_parameter(&e, c->func->arg[i]);
  for (int i = 0; c->entry && i < nparam; i++) check_input(&e, c->func->arg[i]);
  emit_region(&e, 0, body, NULL, NULL, true);
  scope_end(p->ctx, scope);
}

/* ---- inputs and outputs -------------------------------------------------------------------------------- */

static int64_t port_dim(Program *p, const Expr *dim)
{
  if (dim->kind == E_INT) return dim->u.i;
  if (dim->kind != E_VAR || type_dim_is_any(dim)) return DIM_UNKNOWN;
  for (int i = 0; i < p->symbol.n; i++)
    if (p->symbol.v[i] == dim->u.var) return -1 - i;
  vec_push(p->arena, &p->symbol, dim->u.var);
  return -(int64_t)p->symbol.n;
}

static ProgPort make_port(Program *p, const char *name, const Type *t, int device)
{
  ProgPort port = {.name = name, .type = type_text(p->arena, t), .device = device, .dtype = DT_F32};
  if (t->kind == TY_DATA || t->kind == TY_OBJECT) {
    port.kind = PORT_OBJECT;
    return port;
  }
  if (t->kind == TY_SEQ) port.kind = PORT_SEQUENCE;
  if (t->kind == TY_OPT) port.kind = t->field[0]->kind == TY_SEQ ? PORT_OPTIONAL_SEQUENCE : PORT_OPTIONAL;
  const Type *elem = t;
  while (elem->kind == TY_SEQ || elem->kind == TY_OPT) elem = elem->field[0];
  if (elem->kind != TY_TENSOR || (t->kind == TY_TENSOR && t->ndim < 0))
    raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' of type %s cannot be an input or output of a compiled model; tensors of known rank, sequences and "
          "optionals of tensors, objects and data types can (functions stay inside)",
          name, port.type);
  port.dtype = elem->dtype;
  if (t->kind != TY_TENSOR) return port;
  port.ndim = t->ndim;
  port.dim = arena_array(p->arena, int64_t, t->ndim + 1);
  for (int d = 0; d < t->ndim; d++) port.dim[d] = port_dim(p, t->shape[d]);
  return port;
}

static void add_inputs(Program *p, ProgEntry *entry, const Node *func)
{
  const char *numbers;
  int nparam = fn_nparams(func) - prepared_params(func, &numbers);
  for (int i = 0; i < nparam; i++) {
    int n;
    const Type **leaf = type_leaves(p->arena, func->arg[i]->type, &n);
    const char *name = func->arg[i]->name ? func->arg[i]->name : arena_printf(p->arena, "input_%d", i);
    for (int k = 0; k < n; k++)
      vec_push(p->arena, &entry->input,
               make_port(p, n == 1 ? name : arena_printf(p->arena, "%s_%d", name, k), leaf[k],
                         program_device(p, func->arg[i])));
  }
}

/* Line i of the attribute "output_names", or the name of the node, or a number. */
static const char *output_name(Program *p, const Node *func, const Node *body, int i, int n)
{
  const Expr *names = annots_get(&func->u.func->attrs, "output_names");
  const char *s = names && names->kind == E_STR ? names->u.str : "";
  for (int k = 0; k < i && *s; k++) {
    const char *line = strchr(s, '\n');
    s = line ? line + 1 : "";
  }
  if (*s) return arena_strndup(p->arena, s, strcspn(s, "\n"));
  const Node *node = body->kind == N_TUPLE && body->nargs == n ? body->arg[i] : n == 1 ? body : NULL;
  if (node && node->kind != N_VAR && node->name && *node->name) return node->name;
  return arena_printf(p->arena, "output_%d", i);
}

static void add_outputs(Program *p, ProgEntry *entry, const Node *func)
{
  const Node *body = fn_body(func);
  int n;
  const Type **leaf = type_leaves(p->arena, body->type, &n);
  while (body->kind == N_LET) body = body->arg[2];
  for (int i = 0; i < n; i++)
    vec_push(p->arena, &entry->output,
             make_port(p, output_name(p, func, body, i, n), leaf[i], program_device(p, func)));
}

/* Lines of the attribute "quantization": "input I SCALE ZERO" or "output I SCALE ZERO". */
static void take_quantization(ProgEntry *entry, const Node *func)
{
  const Expr *said = annots_get(&func->u.func->attrs, "quantization");
  for (const char *s = said && said->kind == E_STR ? said->u.str : ""; *s;) {
    char kind[8];
    int i;
    double scale;
    int64_t zero;
    bool read = sscanf(s, "%7s %d %lf %" SCNd64, kind, &i, &scale, &zero) == 4;
    bool out = read && !strcmp(kind, "output");
    ProgPort *port = out ? entry->output.v : entry->input.v;
    if (read && i >= 0 && i < (out ? entry->output.n : entry->input.n) && dtype_is_int(port[i].dtype)) {
      port[i].scale = scale;
      port[i].zero = zero;
    }
    s += strcspn(s, "\n");
    s += *s == '\n';
  }
}

static void add_entry(Program *p, Map *callees, Callees *queue, const char *name)
{
  Global *g = module_get(p->m, name);
  if (!g || g->kind != GLOBAL_GRAPH)
    raise(p->ctx, ERR_ARGUMENT, NOWHERE, "the module has no graph function @%s to be an entry", name);
  for (int i = 0; i < p->entry.n; i++)
    if (!strcmp(p->entry.v[i].name, name)) raise(p->ctx, ERR_ARGUMENT, NOWHERE, "@%s is an entry twice", name);
  const Node *func = g->func;
  name = arena_strdup(p->arena, name); /* the caller's goes */
  ProgEntry entry = {.name = name, .func = p->func.n};
  add_inputs(p, &entry, func);
  add_outputs(p, &entry, func);
  /* so many of the last parameters and results are kept by executors from one run to the next */
  const Expr *states = annots_get(&func->u.func->attrs, "states");
  if (states && states->kind == E_INT) entry.nstate = (int)states->u.i;
  if (entry.nstate < 0 || entry.nstate > entry.input.n || entry.nstate > entry.output.n)
    raise(p->ctx, ERR_ARGUMENT, NOWHERE, "@%s says that it has %d states; it has %d parameters and %d results", name,
          entry.nstate, entry.input.n, entry.output.n);
  take_quantization(&entry, func);
  Callee *c = emit_add_callee(p, callees, func, func, name);
  c->entry = true;
  vec_push(p->arena, queue, c);
  vec_push(p->arena, &p->entry, entry);
}

/* The function that makes weights, where the passes left one. */
static const Global *find_prepare(Program *p)
{
  for (int i = 0; i < p->m->globals.n; i++) {
    const Global *g = &p->m->globals.v[i];
    if (g->kind != GLOBAL_GRAPH || !annots_get(&((const Node *)g->func)->u.func->attrs, "Prepare")) continue;
    int n = type_leaf_count(fn_body(g->func)->type);
    p->prepared = arena_array(p->arena, int, n + 1);
    for (int k = 0; k < n; k++) p->prepared[k] = -1;
    return g;
  }
  return NULL;
}

void program_emit(Program *p, int nentries, const char *const *entries,
                  void (*progress)(void *env, const char *stage, int done, int total), void *env)
{
  Map callees = {0};
  Map let = {0};
  Callees queue = {0};
  if (!nentries) graph_main(p->m);
  for (int i = 0; i < (nentries ? nentries : 1); i++) add_entry(p, &callees, &queue, nentries ? entries[i] : "main");
  const Global *prepare = find_prepare(p);
  for (int i = 0; i < queue.n; i++) {
    if (progress) progress(env, "lowering", i, queue.n);
    emit_function(p, &callees, &queue, &let, queue.v[i]);
  }
  if (!prepare) return;
  p->prepare = p->func.n; /* last: its nodes come behind those that runs see */
  emit_function(p, &callees, &queue, &let, emit_add_callee(p, &callees, prepare->func, prepare->func, prepare->name));
  program_place_prepared(p);
}
