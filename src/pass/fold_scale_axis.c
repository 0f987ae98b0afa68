/* fold_scale_axis.c: FoldScaleAxis: a factor per channel goes into the weight of a convolution or product.
 *   needs   types, folded constants
 *   keeps   types; results up to rounding
 *   breaks  nothing; leaves multiplications of constants for FoldConstant
 *
 * Backward: multiply(conv(x, w), s) -> conv(x, w * s), also through additions (whose other side is
 * scaled too), biases, pools, and relu where every factor is above zero.
 * Forward: conv(multiply(x, s), w) -> conv(x, w * s), through pools and relu alike.
 * Everything between the factor and the weight must have no other reader. */
#include "pass/passes.h"
#include "pass/tools.h"

enum { MAX_CHAIN = 64 };

/* A factor per element of one axis: a constant vector. */
typedef struct Scale {
  const Node *vector;
  int axis;
  bool positive;
} Scale;

typedef struct Axis {
  Module *m;
  const Uses *uses; /* of the old graph */
  const Map *old;   /* new node -> old node, for the uses */
} Axis;

static const Node *fail(void) { return NULL; }

/* Is c a constant that, broadcast against type ty, varies along one axis alone? */
static bool per_axis(Module *m, const Node *c, const Type *ty, Scale *out)
{
  if (c->kind != N_CONST || ty->kind != TY_TENSOR || c->type->ndim > ty->ndim || !dtype_is_float(ty->dtype))
    return false;
  int axis = -1;
  int lead = ty->ndim - c->type->ndim;
  for (int i = 0; i < c->type->ndim; i++) {
    if (expr_is_int(c->type->shape[i], 1)) continue;
    if (axis >= 0) return false;
    axis = i + lead;
    if (ty->shape[axis]->kind != E_INT || ty->shape[axis]->u.i != c->type->shape[i]->u.i) return false;
  }
  if (axis < 0) return false;
  ConstData d = *c->u.data;
  d.ndim = 1;
  d.shape[0] = const_count(&d);
  *out = (Scale){node_const(m, &d), axis, const_positive(c)};
  return true;
}

/* The vector shaped so that it runs along `axis` of a tensor of this rank. */
static const Node *along(Module *m, const Scale *s, int axis, int ndim)
{
  return make_expand_dims(m, s->vector, 1, ndim - 1 - axis);
}

static bool is_constant(const Node *n, int depth)
{
  if (n->kind == N_CONST) return true;
  if (n->kind != N_CALL || depth > 8 || !n->nargs || (n->u.call.op->flags & OPF_IMPURE)) return false;
  for (int i = 0; i < n->nargs; i++)
    if (!is_constant(n->arg[i], depth + 1)) return false;
  return true;
}

#define CONVS "nn.conv1d,nn.conv2d,nn.conv3d,nn.conv1d_transpose,nn.conv2d_transpose,nn.conv3d_transpose"
#define POOLS                                                                                                    \
  "nn.max_pool1d,nn.max_pool2d,nn.max_pool3d,nn.avg_pool1d,nn.avg_pool2d,nn.avg_pool3d,nn.global_max_pool2d,nn." \
  "global_avg_pool2d"

static bool is_transposed(const Node *n) { return strstr(n->u.call.op->name, "transpose") != NULL; }

/* ---- weights ------------------------------------------------------------------------------ */

static const Node *scaled_weight(Module *m, const Node *w, const Scale *s, int axis)
{
  if (axis < 0 || !is_tensor(w) || dim_of(w, axis) != const_count(s->vector->u.data) ||
      !dtype_eq(w->type->dtype, s->vector->type->dtype))
    return NULL;
  return make2(m, "multiply", w, along(m, s, axis, w->type->ndim));
}

/* Which axis of the weight the factor runs along; -1: none.  output: the factor is behind the convolution. */
static int conv_weight_axis(const Node *n, int axis, bool output)
{
  const char *data = call_str(n, "data_layout");
  const char *kernel = call_str(n, "kernel_layout");
  const char *out = call_str(n, "out_layout");
  if (!out || !*out) out = data;
  if (!layout_is_plain(data) || !layout_is_plain(kernel) || !layout_is_plain(out)) return -1;
  if (letter_at(output ? out : data, 'C') != axis) return -1;
  int64_t groups = call_int(n, "groups");
  int64_t channels = dim_of(n->arg[0], letter_at(data, 'C'));
  if (output) return is_transposed(n) && groups != 1 ? -1 : letter_at(kernel, 'O');
  if (groups == 1) return letter_at(kernel, 'I');
  if (is_transposed(n) || groups != channels || dim_of(n->arg[1], letter_at(kernel, 'O')) != channels) return -1;
  return letter_at(kernel, 'O'); /* depthwise: input channel i is output channel i */
}

static int product_weight_axis(const Node *n, int axis, bool output)
{
  int last = (output ? n : n->arg[0])->type->ndim - 1;
  if (axis != last) return -1;
  bool rows = is_call(n, "nn.dense") || call_int(n, "transpose_b"); /* weight is (units, in) */
  if (is_call(n, "nn.matmul") && !output && call_int(n, "transpose_a")) return -1;
  return rows == output ? 0 : 1;
}

static const Node *into_weight(Module *m, const Node *n, const Scale *s, bool output, const Node *data)
{
  int axis = -1;
  if (!is_constant(n->arg[1], 0)) return NULL;
  if (is_call_of(n, CONVS)) axis = conv_weight_axis(n, s->axis, output);
  else if (is_call_of(n, "nn.dense,nn.matmul") && n->arg[1]->type->ndim == 2)
    axis = product_weight_axis(n, s->axis, output);
  const Node *w = scaled_weight(m, n->arg[1], s, axis);
  return w ? node_with_args(m, n, (const Node *[]){data, w}) : NULL;
}

/* ---- backward ------------------------------------------------------------------------------------ */

static bool read_once(const Axis *a, const Node *n)
{
  const Node *old = map_get(a->old, n);
  return old && uses_get(a->uses, old) == 1;
}

static const Node *push(Axis *a, const Node *n, const Scale *s, int depth);

/* The side of an addition: constants are scaled, values pushed into. */
static const Node *push_side(Axis *a, const Node *side, const Node *sum, const Scale *s, int depth)
{
  Module *m = a->m;
  if (!is_tensor(side)) return fail();
  int lead = sum->type->ndim - side->type->ndim;
  if (is_constant(side, 0)) return make2(m, "multiply", side, along(m, s, s->axis, sum->type->ndim));
  if (lead || dim_of(side, s->axis) != const_count(s->vector->u.data)) return fail();
  return push(a, side, s, depth);
}

static const Node *push(Axis *a, const Node *n, const Scale *s, int depth)
{
  Module *m = a->m;
  const Node *x;
  if (n->kind != N_CALL || depth > MAX_CHAIN || !is_tensor(n) || !read_once(a, n)) return fail();
  if (is_call_of(n, CONVS) || is_call_of(n, "nn.dense,nn.matmul")) return into_weight(m, n, s, true, n->arg[0]);
  if (is_call_of(n, "add,subtract")) {
    const Node *l = push_side(a, n->arg[0], n, s, depth + 1);
    const Node *r = l ? push_side(a, n->arg[1], n, s, depth + 1) : NULL;
    const Node *now = r ? node_with_args(m, n, (const Node *[]){l, r}) : NULL;
    return now && type_equal(now->type, n->type) ? now : NULL;
  }
  if (is_call(n, "nn.bias_add")) {
    int64_t axis = call_int(n, "axis");
    if (axis < 0) axis += n->type->ndim;
    if (axis != s->axis || !(x = push(a, n->arg[0], s, depth + 1))) return fail();
    return node_with_args(m, n, (const Node *[]){x, make2(m, "multiply", n->arg[1], s->vector)});
  }
  bool through = is_call_of(n, POOLS) && letter_at(call_str(n, "layout"), 'C') == s->axis &&
                 layout_is_plain(call_str(n, "layout"));
  through = through && (s->positive || strstr(n->u.call.op->name, "avg"));
  through = through || (s->positive && is_call_of(n, "nn.relu,nn.leaky_relu"));
  if (!through || !(x = push(a, n->arg[0], s, depth + 1))) return fail();
  return node_with_args(m, n, &x);
}

typedef struct Run {
  Uses uses;
  Map old;
} Run;

static const Node *remember(GraphRewriter *rw, Run *run, const Node *old, const Node *now)
{
  map_put(rw->arena, &run->old, now, (void *)(uintptr_t)old);
  return now;
}

static const Node *backward(GraphRewriter *rw, const Node *old, const Node *now)
{
  Run *run = rw->env;
  Axis a = {rw->m, &run->uses, &run->old};
  for (int i = 0; is_call(now, "multiply") && is_tensor(now) && i < 2; i++) {
    Scale s;
    const Node *x = now->arg[1 - i];
    if (!is_tensor(x) || !type_equal(x->type, now->type) || !per_axis(rw->m, now->arg[i], now->type, &s)) continue;
    const Node *pushed = push(&a, x, &s, 0);
    if (pushed) return remember(rw, run, old, pushed);
  }
  return remember(rw, run, old, now);
}

/* ---- forward ------------------------------------------------------------------------------------------ */

/* n without the factor in it, which comes back in *s; NULL when there is none to take out. */
static const Node *take_out(Axis *a, const Node *n, Scale *s, int depth)
{
  if (n->kind != N_CALL || depth > MAX_CHAIN || !is_tensor(n) || !read_once(a, n)) return fail();
  for (int i = 0; is_call(n, "multiply") && i < 2; i++)
    if (is_tensor(n->arg[1 - i]) && type_equal(n->arg[1 - i]->type, n->type) && per_axis(a->m, n->arg[i], n->type, s))
      return n->arg[1 - i];
  bool pool = is_call_of(n, POOLS) && layout_is_plain(call_str(n, "layout"));
  if (!pool && !is_call_of(n, "nn.relu,nn.leaky_relu")) return fail();
  const Node *x = take_out(a, n->arg[0], s, depth + 1);
  if (!x || (pool && letter_at(call_str(n, "layout"), 'C') != s->axis)) return fail();
  if (!s->positive && !(pool && strstr(n->u.call.op->name, "avg"))) return fail();
  return node_with_args(a->m, n, &x);
}

static const Node *forward(GraphRewriter *rw, const Node *old, const Node *now)
{
  Run *run = rw->env;
  Axis a = {rw->m, &run->uses, &run->old};
  if (is_call_of(now, CONVS) || is_call_of(now, "nn.dense,nn.matmul")) {
    Scale s;
    const Node *x = take_out(&a, now->arg[0], &s, 0);
    const Node *then = x ? into_weight(rw->m, now, &s, false, x) : NULL;
    if (then) return remember(rw, run, old, then);
  }
  return remember(rw, run, old, now);
}

static const Node *fold_scale(Module *m, const Node *f, const Node *(*fn)(GraphRewriter *, const Node *, const Node *))
{
  if (is_primitive(f)) return f;
  Run run = {.uses = uses_of(scratch(m->ctx), f)};
  return rewrite(m, f, fn, &run);
}

const Node *pass_fold_scale_backward(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return fold_scale(m, f, backward);
}

const Node *pass_fold_scale_forward(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return fold_scale(m, f, forward);
}

void pass_fold_scale_axis(PassContext *pc, Module *m, void *env)
{
  (void)env;
  const Pass *list[] = {pass_get(pc->ctx, "BackwardFoldScaleAxis"), pass_get(pc->ctx, "ForwardFoldScaleAxis")};
  for (int i = 0; i < 2; i++) {
    bool off = false;
    for (int k = 0; k < pc->disabled.n; k++) off = off || !strcmp(pc->disabled.v[k], list[i]->name);
    if (!off) pass_run(pc, list[i], m);
  }
}
