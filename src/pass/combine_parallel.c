/* combine_parallel.c: CombineParallelConv2D, CombineParallelDense, CombineParallelBatchMatmul.
 *   needs   types
 *   keeps   types; results up to rounding
 *   breaks  nothing; leaves concatenations of weights for FoldConstant
 *
 * Calls of one operator that read the same data with constant weights, alike in all but the number
 * of output channels, become one call with the weights side by side.  Element-wise
 * operators and per-channel constants behind each of them, where all branches have the same, are
 * made once too.  Each branch then is a slice. */
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_combine_options[] = {
  {PO_INT, "min_num_branches", "3", "fewer branches stay apart"},
};

/* What differs between the three passes. */
typedef struct Kind {
  const char *op;
  bool (*fits)(const Node *);
  int (*weight_axis)(const Node *); /* along which weights are joined */
  int (*out_axis)(const Node *);    /* along which results then lie */
  const char *count;                /* attribute that holds the number of channels, or NULL */
} Kind;

static bool conv_fits(const Node *n)
{
  const char *out = call_str(n, "out_layout");
  return call_int(n, "groups") == 1 && letter_at(call_str(n, "kernel_layout"), 'O') >= 0 &&
         strlen(call_str(n, "kernel_layout")) == 4 && (!out || !*out);
}
static int conv_weight_axis(const Node *n) { return letter_at(call_str(n, "kernel_layout"), 'O'); }
static int conv_out_axis(const Node *n) { return letter_at(call_str(n, "data_layout"), 'C'); }
static bool any_fits(const Node *n) { return n->arg[1]->type->ndim == 2; }
static int dense_weight_axis(const Node *n)
{
  (void)n;
  return 0;
}
static int last_axis(const Node *n) { return n->type->ndim - 1; }
static bool batch_fits(const Node *n) { return n->arg[1]->type->ndim == 3; }
static int batch_weight_axis(const Node *n) { return call_int(n, "transpose_b") ? 1 : 2; }

static const Kind conv2d_kind = {"nn.conv2d", conv_fits, conv_weight_axis, conv_out_axis, "channels"};
static const Kind dense_kind = {"nn.dense", any_fits, dense_weight_axis, last_axis, "units"};
static const Kind batch_kind = {"nn.batch_matmul", batch_fits, batch_weight_axis, last_axis, NULL};

typedef Vec(const Node *) NodeList;
typedef struct Combine {
  Module *m;
  Arena *arena;
  const Kind *kind;
  int min;
  Map users; /* node -> its only user; absent: none or several */
  Map count;
  Map group; /* tail of a branch -> its Branches */
} Combine;

/* One set of parallel calls with what follows each of them. */
typedef struct Branches {
  NodeList head, tail; /* the calls; the last follower of each, or the call itself */
  NodeList *follow;    /* what stands behind branch i, in order */
  const Node *combined;
} Branches;

/* ---- finding ------------------------------------------------------------------------------ */

static bool is_branch(const Combine *c, const Node *n)
{
  return is_call(n, c->kind->op) && is_tensor(n) && n->arg[1]->kind == N_CONST && c->kind->fits(n) &&
         dim_of(n, c->kind->out_axis(n)) > 0;
}

static bool alike(const Combine *c, const Node *a, const Node *b)
{
  if (a->arg[0] != b->arg[0] || !dtype_eq(a->arg[1]->type->dtype, b->arg[1]->type->dtype)) return false;
  int axis = c->kind->weight_axis(a);
  for (int i = 0; i < a->arg[1]->type->ndim; i++)
    if (i != axis && dim_of(a->arg[1], i) != dim_of(b->arg[1], i)) return false;
  const AttrsDef *def = a->u.call.op->attrs;
  void *x = call_attrs(c->m, a);
  void *y = call_attrs(c->m, b);
  if (c->kind->count) {
    attrs_set_int(c->m, def, x, c->kind->count, 0);
    attrs_set_int(c->m, def, y, c->kind->count, 0);
  }
  return attrs_equal(def, x, y);
}

/* A constant operand that runs along the channels of a result (rank and channel dimension fit). */
static bool channel_const(const Node *k, const Node *result, int axis)
{
  if (k->kind != N_CONST) return false;
  int lead = result->type->ndim - k->type->ndim;
  int at = axis - lead;
  if (at < 0) return false;
  for (int i = 0; i < k->type->ndim; i++)
    if (dim_of(k, i) != (i == at ? dim_of(result, axis) : 1)) return false;
  return true;
}

/* Which operand of the follower is the branch itself; -1: it cannot be made once for all. */
static int follower_slot(const Node *u, const Node *tail, int axis)
{
  if (u->kind != N_CALL || u->u.call.op->fuse > FUSE_BROADCAST || !is_tensor(u) || !type_equal(u->type, tail->type))
    return -1;
  if (u->u.call.op->flags & (OPF_IMPURE | OPF_HOST)) return -1;
  if (u->nargs == 1) return 0;
  if (is_call(u, "nn.bias_add") && (call_int(u, "axis") + u->type->ndim) % u->type->ndim == axis &&
      u->arg[1]->kind == N_CONST)
    return u->arg[0] == tail ? 0 : -1;
  if (u->nargs != 2) return -1;
  for (int i = 0; i < 2; i++)
    if (u->arg[i] == tail && channel_const(u->arg[1 - i], u, axis)) return i;
  return -1;
}

static bool same_follower(const Node *a, const Node *b)
{
  const AttrsDef *def = a->u.call.op->attrs;
  if (a->u.call.op != b->u.call.op || a->nargs != b->nargs ||
      (def && !attrs_equal(def, a->u.call.attrs, b->u.call.attrs)))
    return false;
  return a->nargs == 1 || is_call(a, "nn.bias_add") || a->arg[0]->type->ndim == b->arg[0]->type->ndim;
}

static void find_followers(Combine *c, Branches *b)
{
  int axis = c->kind->out_axis(b->head.v[0]);
  b->follow = arena_array(c->arena, NodeList, b->head.n);
  for (;;) {
    const Node *first = NULL;
    int slot = -1;
    const Node **next = arena_array(c->arena, const Node *, b->head.n);
    for (int i = 0; i < b->head.n; i++) {
      const Node *u = map_get(&c->users, b->tail.v[i]);
      int at = u ? follower_slot(u, b->tail.v[i], axis) : -1;
      if (at < 0 || (first && (at != slot || !same_follower(first, u)))) return;
      if (!first) first = u;
      slot = at;
      next[i] = u;
    }
    for (int i = 0; i < b->head.n; i++) {
      b->tail.v[i] = next[i];
      vec_push(c->arena, &b->follow[i], next[i]);
    }
  }
}

static void find_branches(Combine *c, const Node *f)
{
  const Node **order;
  int n = graph_post_order(c->arena, f, &order);
  Map taken = {0};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < order[i]->nargs; k++) {
      const Node *a = order[i]->arg[k];
      int count = (int)(intptr_t)map_get(&c->count, a) + 1;
      map_put(c->arena, &c->count, a, (void *)(intptr_t)count);
      map_put(c->arena, &c->users, a, count == 1 ? (void *)(uintptr_t)order[i] : NULL);
    }
  for (int i = 0; i < n; i++) {
    if (!is_branch(c, order[i]) || map_has(&taken, order[i])) continue;
    Branches *b = arena_new_of(c->arena, Branches);
    for (int k = i; k < n; k++)
      if (is_branch(c, order[k]) && !map_has(&taken, order[k]) && alike(c, order[i], order[k])) {
        vec_push(c->arena, &b->head, order[k]);
        vec_push(c->arena, &b->tail, order[k]);
      }
    if (b->head.n < c->min) continue;
    for (int k = 0; k < b->head.n; k++) map_put(c->arena, &taken, b->head.v[k], b);
    find_followers(c, b);
    for (int k = 0; k < b->tail.n; k++) map_put(c->arena, &c->group, b->tail.v[k], b);
  }
}

/* ---- making ----------------------------------------------------------------------------------- */

static const Node *joined(Combine *c, int n, const Node *const *part, int axis)
{
  const OpDef *op = opdef_get(c->m->ctx, "concatenate");
  void *attrs = attrs_new(c->m, op->attrs);
  attrs_set_int(c->m, op->attrs, attrs, "axis", axis);
  const Node *t = node_tuple(c->m, n, part);
  return node_call(c->m, op, 1, &t, attrs, NULL);
}

static const Node *make_combined(Combine *c, Branches *b, const Node *data)
{
  const Node *first = b->head.v[0];
  const Node **part = arena_array(c->arena, const Node *, b->head.n);
  int axis = c->kind->out_axis(first);
  int64_t total = 0;
  for (int i = 0; i < b->head.n; i++) {
    part[i] = b->head.v[i]->arg[1];
    total += dim_of(b->head.v[i], axis);
  }
  void *attrs = call_attrs(c->m, first);
  if (c->kind->count && call_int(first, c->kind->count))
    attrs_set_int(c->m, first->u.call.op->attrs, attrs, c->kind->count, total);
  const Node *now =
      node_call(c->m, first->u.call.op, 2,
                (const Node *[]){data, joined(c, b->head.n, part, c->kind->weight_axis(first))}, attrs, first->name);
  for (int s = 0; s < b->follow[0].n; s++) {
    const Node *u = b->follow[0].v[s];
    const Node *before = s ? b->follow[0].v[s - 1] : first;
    int slot = follower_slot(u, before, axis);
    const Node *arg[2] = {now, NULL};
    if (u->nargs == 2) {
      for (int i = 0; i < b->head.n; i++) part[i] = b->follow[i].v[s]->arg[1 - slot];
      int lead = is_call(u, "nn.bias_add") ? axis : u->type->ndim - part[0]->type->ndim;
      arg[slot] = now;
      arg[1 - slot] = joined(c, b->head.n, part, axis - lead);
    }
    now = node_call(c->m, u->u.call.op, u->nargs, arg, u->u.call.attrs, u->name);
  }
  return now;
}

static const Node *slice_of(Combine *c, const Branches *b, const Node *tail)
{
  int axis = c->kind->out_axis(b->head.v[0]);
  int64_t begin = 0;
  int64_t size = 0;
  for (int i = 0; i < b->tail.n; i++) {
    size = dim_of(b->head.v[i], axis);
    if (b->tail.v[i] == tail) break;
    begin += size;
  }
  const OpDef *op = opdef_get(c->m->ctx, "strided_slice");
  void *attrs = attrs_new(c->m, op->attrs);
  attrs_set_ints(c->m, op->attrs, attrs, "begin", 1, &begin);
  attrs_set_ints(c->m, op->attrs, attrs, "end", 1, (int64_t[]){begin + size});
  attrs_set_ints(c->m, op->attrs, attrs, "axes", 1, (int64_t[]){axis});
  return node_call(c->m, op, 1, &b->combined, attrs, tail->name);
}

static const Node *put_slices(GraphRewriter *rw, const Node *old, const Node *now)
{
  Combine *c = rw->env;
  Branches *b = map_get(&c->group, old);
  if (!b) return now;
  if (!b->combined) b->combined = make_combined(c, b, map_get(&rw->memo, b->head.v[0]->arg[0]));
  return slice_of(c, b, old);
}

static const Node *combine(Module *m, const Node *f, const Kind *kind, void *env)
{
  if (is_primitive(f)) return f;
  Combine c = {
    .m = m, .arena = scratch(m->ctx), .kind = kind, .min = (int)pass_option_int(env, pass_combine_options, 0)};
  find_branches(&c, f);
  return c.group.n ? rewrite(m, f, put_slices, &c) : f;
}

const Node *pass_combine_conv2d(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name;
  return combine(m, f, &conv2d_kind, env);
}
const Node *pass_combine_dense(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name;
  return combine(m, f, &dense_kind, env);
}
const Node *pass_combine_batch_matmul(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name;
  return combine(m, f, &batch_kind, env);
}
