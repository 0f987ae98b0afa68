/* fold.c: evaluating at compile time: FoldConstant, and LiftWeights, which leaves that for the load.
 *
 * FoldConstant: what depends on constants alone becomes a constant.
 *   needs   types
 *   keeps   types, names of what stays
 *   breaks  nothing
 *
 * Values are computed one after the other, operands first: small calls by the operator's meaning,
 * views by sharing the bytes, large calls by kernels, one for each distinct call, which are
 * compiled in one go before.  What one value of the result needs is computed together, the
 * largest first, so that what only the way there needs (a weight transformed and not yet packed)
 * is gone when the next one is computed.  Also constant: integers that the
 * compiler can follow (shape_of of a known shape and arithmetic on it), and the branch of
 * an if whose condition is known.
 * Left alone: impure calls, what has no fixed size, what the executor does itself, and
 * results that are much larger than their operands (zeros, broadcast_to). */
#include <stdlib.h>

#include "pass/groups.h"
#include "pass/passes.h"

enum {
  SMALL_WORK = 20000,    /* elements that the reference evaluator may touch */
  LARGE_BYTES = 1 << 16, /* results above this may not grow … */
  GROWTH = 16,           /* … by more than this over their operands */
};

typedef struct Fold {
  PassContext *pc;
  Module *m;
  Arena *arena;
  Map value;  /* node -> constant or tuple of constants */
  Map kernel; /* node -> LatheRtFunc, for large calls */
  Map brief;  /* node -> Brief, where its value is not part of the result */
} Fold;

/* A value that kernels of this pass read and nobody else: its bytes go with the last of them. */
typedef struct Brief {
  int readers;
  void *block;
} Brief;

/* A large call. */
typedef struct Large {
  const Node *node;
  const Node *func; /* the call over parameters */
  int kernel;
} Large;
typedef Vec(Large) LargeList;
typedef Vec(const Node *) NodeVec;

/* ---- what can be folded ----------------------------------------------------------------- */

static size_t type_bytes(Ctx *ctx, const Type *ty)
{
  if (ty->kind == TY_TENSOR)
    return mem_size_mul(ctx, (size_t)type_elements(ctx, ty), (size_t)dtype_bytes(ty->dtype), "a constant");
  size_t n = 0;
  for (int i = 0; i < ty->nfield; i++) n += type_bytes(ctx, ty->field[i]);
  return n;
}

static bool only_tensors(const Type *ty)
{
  if (!ty || !type_is_static(ty)) return false;
  if (ty->kind == TY_TENSOR) return ty->ndim >= 0;
  if (ty->kind != TY_TUPLE) return false;
  for (int i = 0; i < ty->nfield; i++)
    if (!only_tensors(ty->field[i])) return false;
  return true;
}

static bool size_allowed(Fold *fo, const Node *n)
{
  size_t out = type_bytes(fo->m->ctx, n->type);
  size_t in = 0;
  if (out <= LARGE_BYTES) return true;
  for (int i = 0; i < n->nargs; i++) in += type_bytes(fo->m->ctx, n->arg[i]->type);
  return out / GROWTH <= in && out <= (size_t)pass_config_int(fo->pc, "relay.FoldConstant.max_bytes");
}

/* Is n closed, given that `closed` holds the closed ones among its arguments? */
static bool is_closed(Fold *fo, const Map *closed, const Node *n)
{
  if (n->kind == N_CONST) return true;
  if (n->kind != N_CALL && n->kind != N_TUPLE && n->kind != N_GET) return false;
  if (!only_tensors(n->type)) return false;
  for (int i = 0; i < n->nargs; i++)
    if (!map_has(closed, n->arg[i])) return false;
  if (n->kind != N_CALL) return true;
  return !(n->u.call.op->flags & (OPF_IMPURE | OPF_HOST)) && size_allowed(fo, n);
}

/* ---- one call at a time ---------------------------------------------------------------------- */

static int spread(const Node *v, int n, ConstData *out, int max, Ctx *ctx)
{
  if (v->kind == N_TUPLE) {
    for (int i = 0; i < v->nargs; i++) n = spread(v->arg[i], n, out, max, ctx);
    return n;
  }
  if (n == max) BUG(ctx, "a folded call has more operands than were counted");
  out[n] = *v->u.data;
  return n + 1;
}

static int operands(Fold *fo, const Node *n, ConstData **out)
{
  int total = 0;
  int k = 0;
  for (int i = 0; i < n->nargs; i++) total += type_leaf_count(n->arg[i]->type);
  *out = arena_array(fo->arena, ConstData, total + 1);
  for (int i = 0; i < n->nargs; i++) k = spread(map_get(&fo->value, n->arg[i]), k, *out, total, fo->m->ctx);
  return k;
}

static const Node *results(Fold *fo, const Node *n, const ConstData *out)
{
  if (n->type->kind != TY_TUPLE) return node_const(fo->m, out);
  const Node **field = arena_array(fo->arena, const Node *, n->type->nfield + 1);
  for (int i = 0; i < n->type->nfield; i++) field[i] = node_const(fo->m, &out[i]);
  return node_tuple(fo->m, n->type->nfield, field);
}

static void keep_bytes(Fold *fo, ConstData *d)
{
  d->data = memcpy(blob_alloc(fo->m, d->bytes + 1), d->data, d->bytes);
  d->file = NULL;
}

static const Node *by_meaning(Fold *fo, const Node *n)
{
  ConstData *in;
  ConstData *out = arena_array(fo->arena, ConstData, type_leaf_count(n->type) + 1);
  int k = operands(fo, n, &in);
  opdef_evaluate(fo->m, fo->arena, n, k, in, out);
  for (int i = 0; i < type_leaf_count(n->type); i++) keep_bytes(fo, &out[i]);
  return results(fo, n, out);
}

static const Node *as_view(Fold *fo, const Node *n)
{
  const Node *x = map_get(&fo->value, n->arg[0]);
  ConstData d = *x->u.data;
  d.ndim = n->type->ndim;
  for (int i = 0; i < d.ndim; i++) d.shape[i] = n->type->shape[i]->u.i;
  return node_const(fo->m, &d);
}

static double work_of(Fold *fo, const Node *n)
{
  double out = 0;
  double in = 0;
  Ctx *ctx = fo->m->ctx;
  const Type *ty = n->type;
  for (int i = 0; i < (ty->kind == TY_TUPLE ? ty->nfield : 1); i++)
    out += (double)type_elements(ctx, ty->kind == TY_TUPLE ? ty->field[i] : ty);
  for (int i = 0; i < n->nargs; i++)
    if (n->arg[i]->type->kind == TY_TENSOR) in += (double)type_elements(ctx, n->arg[i]->type);
  return n->u.call.op->fuse == FUSE_OUT_ELEMWISE ? out * (1 + in / 8) : out + in;
}

static bool is_view(const Node *n) { return (n->u.call.op->flags & OPF_VIEW) && n->type->kind == TY_TENSOR; }

static bool runs_kernel(Fold *fo, const Node *n)
{
  return n->kind == N_CALL && !is_view(n) && !groups_needs_decompose(n) && work_of(fo, n) > SMALL_WORK;
}

/* ---- large calls, compiled together ------------------------------------------------------------ */

/* The call as a function of its operands: what identifies the kernel. */
static const Node *as_function(Fold *fo, const Node *n)
{
  Module *m = fo->m;
  const Node **param = arena_array(fo->arena, const Node *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) param[i] = node_var(m, arena_printf(fo->arena, "p%d", i), n->arg[i]->type);
  Annots attrs = primitive_attrs(m);
  const Node *body = node_call(m, n->u.call.op, n->nargs, param, n->u.call.attrs, n->name);
  return node_func(m, n->nargs, param, body, NULL, &attrs);
}

static void drop_module(void *m) { module_release(m); }
static void drop_built(void *b) { built_release(b); }

static void *room_for(Fold *fo, const Node *n, size_t bytes)
{
  Brief *b = map_get(&fo->brief, n);
  if (!b) return blob_alloc(fo->m, bytes + 1);
  b->block = mem_alloc(fo->m->ctx, bytes + 64);
  return (char *)b->block + (64 - (uintptr_t)b->block % 64);
}

static void drop_read(Fold *fo, const Node *n)
{
  for (int i = 0; i < n->nargs; i++) {
    const ConstData *d = n->arg[i]->kind == N_CONST ? n->arg[i]->u.data : NULL;
    if (d) graph_unneeded(fo->m, d->data, d->bytes);
    Brief *b = map_get(&fo->brief, n->arg[i]);
    if (!b || --b->readers) continue;
    mem_free(fo->m->ctx, b->block);
    b->block = NULL;
  }
}

static LatheRtTensor as_rt_tensor(ConstData *d)
{
  return (LatheRtTensor){.data = (void *)(uintptr_t)d->data,
                         .device = {LATHE_RT_CPU, 0},
                         .ndim = d->ndim,
                         .dtype = code_rt_dtype(dtype_in_kernel(d->dtype)),
                         .shape = d->shape};
}

static const Node *run_kernel(Fold *fo, LatheRtFunc *func, const Node *n)
{
  Ctx *ctx = fo->m->ctx;
  ConstData *in;
  ConstData *out = arena_array(fo->arena, ConstData, type_leaf_count(n->type) + 1);
  int nin = operands(fo, n, &in);
  int nout;
  const Type **leaf = type_leaves(fo->arena, n->type, &nout);
  LatheRtTensor *t = arena_array(fo->arena, LatheRtTensor, nin + nout);
  LatheRtArg *arg = arena_array(fo->arena, LatheRtArg, nin + nout);
  for (int i = 0; i < nout; i++) {
    out[i] = (ConstData){.dtype = leaf[i]->dtype, .ndim = leaf[i]->ndim};
    for (int k = 0; k < out[i].ndim; k++) out[i].shape[k] = leaf[i]->shape[k]->u.i;
    out[i].bytes = (size_t)dtype_bytes(out[i].dtype);
    for (int k = 0; k < out[i].ndim; k++)
      out[i].bytes = mem_size_mul(ctx, out[i].bytes, (size_t)out[i].shape[k], "a constant");
    out[i].data = room_for(fo, n, out[i].bytes);
  }
  for (int i = 0; i < nin + nout; i++) {
    t[i] = as_rt_tensor(i < nin ? &in[i] : &out[i - nin]);
    arg[i].tensor = &t[i];
  }
  LatheRtError err;
  if (lathe_rt_func_call(func, nin + nout, arg, &err))
    raise(ctx, ERR_INTERNAL, NOWHERE, "FoldConstant: running %s failed: %s", n->u.call.op->name, err.text);
  drop_read(fo, n);
  return results(fo, n, out);
}

/* Gives each call the number of its kernel; equal functions share one. */
static int number_kernels(Fold *fo, LargeList *list, const Node **func)
{
  int n = 0;
  Map by_hash = {0};
  for (int i = 0; i < list->n; i++) {
    uint64_t hash = graph_hash(list->v[i].func, fo->arena) | 1;
    int at = (int)(intptr_t)map_get(&by_hash, (void *)hash) - 1;
    const char *why;
    if (at < 0 || !graph_equal(func[at], list->v[i].func, fo->arena, &why)) {
      at = n++;
      func[at] = list->v[i].func;
      map_put(fo->arena, &by_hash, (void *)hash, (void *)(intptr_t)(at + 1));
    }
    list->v[i].kernel = at;
  }
  return n;
}

/* The kernels last until the caller's scope ends. */
static void compile_kernels(Fold *fo, LargeList *list)
{
  Ctx *ctx = fo->m->ctx;
  const Node **func = arena_array(fo->arena, const Node *, list->n);
  PrimFunc **prim = arena_array(fo->arena, PrimFunc *, list->n);
  int n = number_kernels(fo, list, func);
  const Target *asked = pass_target(fo->pc); /* what it computes here the model's own kernels would compute */
  const Target *host = asked->codegen == CODEGEN_LLVM && asked->is_host ? asked : target_host(ctx);
  Module *dst = module_new(ctx);
  defer(ctx, drop_module, dst);
  for (int i = 0; i < n; i++) {
    ImplResult r;
    impl_lower(dst, fo->m, func[i], arena_printf(fo->arena, "fold_%d", i), host, &fo->pc->impl, &r);
    if (r.nconsts || r.nscalars) BUG(ctx, "FoldConstant: a kernel takes more than its operands");
    prim[i] = r.func;
  }
  Built *built = build_funcs(ctx, n, prim, host, NULL);
  defer(ctx, drop_built, built);
  for (int i = 0; i < list->n; i++) {
    LatheRtFunc *f;
    LatheRtError err;
    if (lathe_rt_module_func(built_module(built), prim[list->v[i].kernel]->name, &f, &err))
      BUG(ctx, "FoldConstant: %s", err.text);
    map_put(fo->arena, &fo->kernel, list->v[i].node, f);
  }
}

/* ---- one after the other -------------------------------------------------------------------------- */

static const Node *evaluate_graph(Fold *fo, const Node *n);

static const Node *evaluate_one(Fold *fo, const Node *n)
{
  if (n->kind == N_CONST) return n;
  if (n->kind == N_TUPLE) {
    const Node **field = arena_array(fo->arena, const Node *, n->nargs + 1);
    for (int i = 0; i < n->nargs; i++) field[i] = map_get(&fo->value, n->arg[i]);
    return node_tuple(fo->m, n->nargs, field);
  }
  if (n->kind == N_GET) return ((const Node *)map_get(&fo->value, n->arg[0]))->arg[n->u.index];
  if (is_view(n)) return as_view(fo, n);
  if (work_of(fo, n) <= SMALL_WORK) return by_meaning(fo, n);
  if (groups_needs_decompose(n)) return evaluate_graph(fo, n->u.call.op->decompose(fo->m, n));
  ctx_poll(fo->m->ctx);
  return run_kernel(fo, map_get(&fo->kernel, n), n);
}

/* None has a value yet; arguments come first. */
static void evaluate_all(Fold *fo, int n, const Node *const *list)
{
  Scope scope = scope_begin(fo->m->ctx);
  LargeList large = {0};
  for (int i = 0; i < n; i++)
    if (runs_kernel(fo, list[i]))
      vec_push(fo->arena, &large, (Large){.node = list[i], .func = as_function(fo, list[i])});
  if (large.n) compile_kernels(fo, &large);
  for (int i = 0; i < n; i++) map_put(fo->arena, &fo->value, list[i], (void *)(uintptr_t)evaluate_one(fo, list[i]));
  scope_end(fo->m->ctx, scope);
}

/* The nodes from root down that have no value and were not seen, arguments first. */
static void order_unknown(Fold *fo, const Node *root, Map *seen, NodeVec *out)
{
  typedef struct {
    const Node *n;
    int next;
  } Frame;
  Vec(Frame) stack = {0};
  for (const Node *a = root;;) {
    if (!map_has(&fo->value, a) && !map_has(seen, a)) {
      map_put(fo->arena, seen, a, (void *)(uintptr_t)a);
      vec_push(fo->arena, &stack, (Frame){a, 0});
    }
    while (stack.n && stack.v[stack.n - 1].next == stack.v[stack.n - 1].n->nargs)
      vec_push(fo->arena, out, stack.v[--stack.n].n);
    if (!stack.n) return;
    Frame *top = &stack.v[stack.n - 1];
    a = top->n->arg[top->next++];
  }
}

/* Everything below n is constant. */
static const Node *evaluate_graph(Fold *fo, const Node *n)
{
  NodeVec order = {0};
  Map seen = {0};
  order_unknown(fo, n, &seen, &order);
  for (int i = 0; i < order.n; i++)
    if (order.v[i]->kind != N_CONST && order.v[i]->kind != N_CALL && order.v[i]->kind != N_TUPLE &&
        order.v[i]->kind != N_GET)
      raise(fo->m->ctx, ERR_ARGUMENT, NOWHERE, "only calls of operators over constants have a value at compile time");
  evaluate_all(fo, order.n, order.v);
  return map_get(&fo->value, n);
}

/* ---- the pass ----------------------------------------------------------------------------------------- */

/* Integers that the compiler can follow. */
static const Node *followed_value(Module *m, const Node *n)
{
  int count;
  if (n->kind != N_CALL || !is_tensor(n) || n->type->ndim > 1 || !dtype_is_int(n->type->dtype) ||
      !type_is_static(n->type))
    return NULL;
  if (n->u.call.op->flags & (OPF_IMPURE | OPF_HOST)) return NULL;
  const Expr *const *v = graph_values(m, n, &count);
  if (!v) return NULL;
  size_t size = (size_t)dtype_bytes(n->type->dtype);
  char *bytes = arena_alloc(scratch(m->ctx), (size_t)count * size + 1);
  for (int i = 0; i < count; i++) {
    if (v[i]->kind != E_INT) return NULL;
    value_store(value_int(n->type->dtype, v[i]->u.i), bytes + (size_t)i * size);
  }
  int64_t shape[1] = {count};
  return node_const_copy(m, n->type->dtype, n->type->ndim, shape, bytes);
}

static const Node *put_value(GraphRewriter *rw, const Node *old, const Node *now)
{
  Fold *fo = rw->env;
  const Node *v = map_get(&fo->value, old);
  if (v && !map_has(&fo->brief, old)) return v; /* a brief value's bytes are gone: its readers are replaced */
  if (now->kind == N_IF && now->arg[0]->kind == N_CONST && now->arg[0]->u.data->bytes)
    return now->arg[const_at(now->arg[0]->u.data, 0).i ? 1 : 2];
  return now;
}

/* Which values are not part of the result: a network's transformed weights, say, are as
 * large as the packed ones that are made of them. */
static void find_brief(Fold *fo, const Map *closed, int n, const Node *const *order)
{
  for (int i = 0; i < n; i++) {
    const Node *r = order[i];
    bool by_kernel = map_has(closed, r) && runs_kernel(fo, r);
    for (int k = 0; k < r->nargs; k++) {
      Brief *b = map_get(&fo->brief, r->arg[k]);
      if (b && by_kernel) b->readers++;
      else map_del(&fo->brief, r->arg[k]);
    }
    if (by_kernel && r->type->kind == TY_TENSOR) map_put(fo->arena, &fo->brief, r, arena_new_of(fo->arena, Brief));
  }
}

static void drop_brief(void *arg)
{
  Fold *fo = arg;
  for (int i = 0; i < fo->brief.n; i++) {
    Brief *b = fo->brief.val[i]; /* NULL: taken out again */
    if (b) mem_free(fo->m->ctx, b->block);
  }
}

typedef struct Root {
  const Node *node;
  size_t bytes;
  int place;
} Root;

static int by_size(const void *a, const void *b)
{
  const Root *x = a;
  const Root *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->place - y->place;
}

/* What open nodes read, the largest first, each after what it needs in turn. */
static void find_wanted(Fold *fo, const Map *closed, int n, const Node *const *order, NodeVec *out)
{
  Vec(Root) root = {0};
  Map seen = {0};
  Map listed = {0};
  for (int i = 0; i < n; i++)
    for (int k = 0; !map_has(closed, order[i]) && k < order[i]->nargs; k++) {
      const Node *a = order[i]->arg[k];
      if (!map_has(closed, a) || map_has(&seen, a)) continue;
      map_put(fo->arena, &seen, a, (void *)(uintptr_t)a);
      vec_push(fo->arena, &root, ((Root){a, type_bytes(fo->m->ctx, a->type), root.n}));
    }
  if (root.n) qsort(root.v, (size_t)root.n, sizeof *root.v, by_size);
  for (int i = 0; i < root.n; i++) order_unknown(fo, root.v[i].node, &listed, out);
}

const Node *pass_fold_constant(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f)) return f;
  Arena *arena = arena_new(m->ctx);
  Scope scope = scope_begin(m->ctx);
  defer(m->ctx, (void (*)(void *))arena_free, arena);
  Fold fo = {.pc = pc, .m = m, .arena = arena};
  const Node **order;
  int n = groups_order(arena, f, &order);
  Map closed = {0};
  NodeVec list = {0};
  for (int i = 0; i < n; i++) {
    const Node *v = order[i]->kind == N_CALL ? followed_value(m, order[i]) : NULL;
    if (v) map_put(arena, &fo.value, order[i], (void *)(uintptr_t)v);
    if (v || is_closed(&fo, &closed, order[i])) map_put(arena, &closed, order[i], (void *)(uintptr_t)order[i]);
  }
  find_wanted(&fo, &closed, n, order, &list);
  find_brief(&fo, &closed, n, order);
  defer(m->ctx, drop_brief, &fo);
  evaluate_all(&fo, list.n, list.v);
  const Node *result = rewrite(m, f, put_value, &fo);
  scope_end(m->ctx, scope);
  return result;
}

/* ---- LiftWeights ------------------------------------------------------------------------------------------ */

/* What FoldConstant would make larger than it was (a convolution's weights, as Winograd's algorithm wants them), or
 * more of than one (an embedding that is also the matrix of the last product) is computed when the model is loaded:
 *
 *   conv(x, transform(const))   ->   @main(x, w0):  conv(x, w0)
 *                                    @prepare():    (transform(const),)
 *
 *   needs   types
 *   keeps   types, names
 *   breaks  nothing: entries have more parameters, which "Prepared" lists: the numbers of @prepare's results
 *
 * Only entries are looked at: weights of other functions are folded. */
typedef struct Lift {
  Fold *fo;
  NodeVec root;  /* in @prepare */
  NodeVec value; /* what each is there */
  Map made;      /* node -> what it is in @prepare */
  Map var;       /* root -> parameter, of the entry at hand */
  Map forms;     /* constant -> Forms */
  NodeVec param;
  Text numbers;
} Lift;

static size_t constants_bytes(Fold *fo, const Node *root)
{
  const Node **order;
  size_t sum = 0;
  int n = graph_post_order(fo->arena, root, &order);
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_CONST) sum += order[i]->u.data->bytes;
  return sum;
}

/* All on the way to it are kernels, views and what is small. */
static bool by_kernels(Fold *fo, const Node *root)
{
  const Node **order;
  int n = graph_post_order(fo->arena, root, &order);
  for (int i = 0; i < n; i++) {
    const Node *a = order[i];
    if (a->kind == N_CALL && groups_needs_decompose(a) && work_of(fo, a) > SMALL_WORK) return false;
    if (a->kind == N_TUPLE || a->kind == N_GET) return false;
  }
  return true;
}

/* What is made of a large constant, itself counted if it is used as it is. */
typedef struct Forms {
  int n;
  const Node *last;
} Forms;

static void count_forms(Lift *l, const Node *root)
{
  const Node **order;
  int n = graph_post_order(l->fo->arena, root, &order);
  for (int i = 0; i < n; i++) {
    if (order[i]->kind != N_CONST || order[i]->u.data->bytes <= LARGE_BYTES) continue;
    Forms *f = map_get(&l->forms, order[i]);
    if (!f) map_put(l->fo->arena, &l->forms, order[i], f = arena_new_of(l->fo->arena, Forms));
    if (f->last != root) f->n++;
    f->last = root;
  }
}

/* Does a constant on the way to it have another form as well? */
static bool is_one_of_several(Lift *l, const Node *root)
{
  const Node **order;
  int n = graph_post_order(l->fo->arena, root, &order);
  for (int i = 0; i < n; i++) {
    const Forms *f = order[i]->kind == N_CONST ? map_get(&l->forms, order[i]) : NULL;
    if (f && f->n > 1) return true;
  }
  return false;
}

static bool is_lifted(Lift *l, const Node *n)
{
  Fold *fo = l->fo;
  const Node *made = n;
  if (n->kind != N_CALL || n->type->kind != TY_TENSOR) return false;
  while (made->kind == N_CALL && is_view(made)) made = made->arg[0];
  if (!runs_kernel(fo, made) || !by_kernels(fo, n)) return false;
  size_t out = type_bytes(fo->m->ctx, n->type);
  size_t in = constants_bytes(fo, n);
  return out > LARGE_BYTES && (out > in + in / 100 || is_one_of_several(l, n));
}

/* The same computation as calls of primitive functions, each the one that FoldConstant would have run. */
static const Node *in_prepare(Lift *l, const Node *n)
{
  Fold *fo = l->fo;
  const Node *known = map_get(&l->made, n);
  if (known) return known;
  const Node *now = n;
  if (n->kind == N_CALL && !is_view(n) && work_of(fo, n) <= SMALL_WORK) {
    now = evaluate_graph(fo, n);
  } else if (n->kind == N_CALL) {
    const Node **arg = arena_array(fo->arena, const Node *, n->nargs + 1);
    for (int i = 0; i < n->nargs; i++) arg[i] = in_prepare(l, n->arg[i]);
    now = node_apply(fo->m, as_function(fo, n), n->nargs, arg);
  }
  map_put(fo->arena, &l->made, n, (void *)(uintptr_t)now);
  return now;
}

static int number_of(Lift *l, const Node *n)
{
  const char *why;
  for (int i = 0; i < l->root.n; i++)
    if (l->root.v[i] == n || graph_equal(l->root.v[i], n, l->fo->arena, &why)) return i;
  vec_push(l->fo->arena, &l->root, n);
  vec_push(l->fo->arena, &l->value, in_prepare(l, n));
  return l->root.n - 1;
}

static void lift_root(Lift *l, const Node *n)
{
  Module *m = l->fo->m;
  int number = number_of(l, n);
  const Node *var = node_var(m, arena_printf(m->arena, "weight_%d", number), n->type);
  map_put(l->fo->arena, &l->var, n, (void *)(uintptr_t)var);
  vec_push(l->fo->arena, &l->param, var);
  text_printf(&l->numbers, "%s%d", l->numbers.n ? "," : "", number);
}

static const Node *put_var(GraphRewriter *rw, const Node *old, const Node *now)
{
  const Node *var = map_get(&((Lift *)rw->env)->var, old);
  return var ? var : now;
}

static const Node *lift_from(Lift *l, const Node *f)
{
  Fold *fo = l->fo;
  Module *m = fo->m;
  const Node **order;
  int n = groups_order(fo->arena, f, &order);
  Map closed = {0};
  l->var = (Map){0};
  l->param.n = 0;
  l->numbers = text_new(m->arena);
  for (int i = 0; i < n; i++)
    if (is_closed(fo, &closed, order[i])) map_put(fo->arena, &closed, order[i], (void *)(uintptr_t)order[i]);
  Vec(Root) root = {0};
  Map counted = {0};
  l->forms = (Map){0};
  for (int i = 0; i < n; i++)
    for (int k = 0; !map_has(&closed, order[i]) && k < order[i]->nargs; k++) {
      const Node *a = order[i]->arg[k];
      if (!map_has(&closed, a) || map_has(&counted, a)) continue;
      map_put(fo->arena, &counted, a, NULL);
      count_forms(l, a);
    }
  for (int i = 0; i < n; i++)
    for (int k = 0; !map_has(&closed, order[i]) && k < order[i]->nargs; k++) {
      const Node *a = order[i]->arg[k];
      if (!map_has(&closed, a) || map_has(&l->var, a) || !is_lifted(l, a)) continue;
      map_put(fo->arena, &l->var, a, (void *)(uintptr_t)a);
      vec_push(fo->arena, &root, ((Root){a, type_bytes(m->ctx, a->type), root.n}));
    }
  if (!root.n) return f;
  /* the largest first: what only the way there needs is small when most of the block has been filled */
  qsort(root.v, (size_t)root.n, sizeof *root.v, by_size);
  for (int i = 0; i < root.n; i++) lift_root(l, root.v[i].node);
  const Node *now = rewrite(m, f, put_var, l);
  int before = fn_nparams(now);
  const Node **param = arena_array(fo->arena, const Node *, before + l->param.n);
  for (int i = 0; i < before; i++) param[i] = now->arg[i];
  for (int i = 0; i < l->param.n; i++) param[before + i] = l->param.v[i];
  Annots attrs = now->u.func->attrs;
  annots_set(m->arena, &attrs, "Prepared", expr_str(m, text_str(&l->numbers)));
  return retype(m, node_func(m, before + l->param.n, param, fn_body(now), now->u.func->ret, &attrs));
}

static bool is_entry(const PassContext *pc, const char *name)
{
  if (!pc->nentries) return !strcmp(name, "main");
  for (int i = 0; i < pc->nentries; i++)
    if (!strcmp(pc->entries[i], name)) return true;
  return false;
}

/* Does a function call this one?  Then its parameters are known to others. */
static bool is_called(Arena *arena, Module *m, const char *name)
{
  for (int i = 0; i < m->globals.n; i++) {
    const Node **order;
    if (m->globals.v[i].kind != GLOBAL_GRAPH) continue;
    int n = graph_post_order(arena, m->globals.v[i].func, &order);
    for (int k = 0; k < n; k++)
      if (order[k]->kind == N_GLOBAL && !strcmp(order[k]->u.global, name)) return true;
  }
  return false;
}

static void add_prepare(Lift *l)
{
  Module *m = l->fo->m;
  const char *name = "prepare";
  for (int i = 1; module_get(m, name); i++) name = arena_printf(m->arena, "prepare_%d", i);
  Annots attrs = {0};
  annots_set(m->arena, &attrs, "Prepare", expr_i32(m, 1));
  const Node *body = node_tuple(m, l->value.n, l->value.v);
  module_set(m, name, GLOBAL_GRAPH, (void *)(uintptr_t)retype(m, node_func(m, 0, NULL, body, NULL, &attrs)));
}

void pass_lift_weights(PassContext *pc, Module *m, void *env)
{
  (void)env;
  if (!pc->lift_weights || !pass_enabled(pc, pass_get(pc->ctx, "FoldConstant"))) return;
  Arena *arena = arena_new(m->ctx);
  Scope scope = scope_begin(m->ctx);
  defer(m->ctx, (void (*)(void *))arena_free, arena);
  Fold fo = {.pc = pc, .m = m, .arena = arena};
  Lift l = {.fo = &fo};
  for (int i = 0; i < m->globals.n; i++) {
    Global *g = &m->globals.v[i];
    if (g->kind == GLOBAL_GRAPH && is_entry(pc, g->name) && !is_called(arena, m, g->name))
      g->func = (void *)(uintptr_t)lift_from(&l, g->func);
  }
  if (l.root.n) add_prepare(&l);
  scope_end(m->ctx, scope);
}
