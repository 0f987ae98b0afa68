/* simplify_expr.c: SimplifyExpr: algebra on single nodes and short chains.
 *   needs   types
 *   keeps   types (each rule gives a node of the very same type), values
 *   breaks  nothing
 *
 * Every rule makes the graph smaller or replaces an operator by a plainer one, so the pass ends.
 * Floats: x * 1, x / 1, x - 0 are exact and go; x + 0 is not (-0 + 0 is 0) and stays. */
#include "pass/passes.h"
#include "pass/tools.h"

#include <math.h>

typedef const Node *(*Rule)(Module *, const Node *);

static bool stable_shape(const Type *ty)
{
  if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0) return false;
  for (int i = 0; i < ty->ndim; i++)
    if (!type_dim_is_stable(ty->shape[i])) return false;
  return true;
}

/* The same type beyond doubt: a size known at run time only equals nothing. */
static bool same_type(const Node *a, const Node *b)
{
  if (!is_tensor(a) || !is_tensor(b) || !dtype_eq(a->type->dtype, b->type->dtype) || a->type->ndim != b->type->ndim)
    return false;
  for (int i = 0; i < a->type->ndim; i++) {
    const Expr *x = a->type->shape[i];
    const Expr *y = b->type->shape[i];
    if (x != y && !(x->kind == E_INT && expr_is_int(y, x->u.i))) return false;
  }
  return true;
}

static bool is_view_call(const Node *n) { return n->kind == N_CALL && (n->u.call.op->flags & OPF_VIEW); }

/* ---- views, transposes, layouts, casts -------------------------------------------------- */

/* reshape(squeeze(x)) -> reshape(x); a view that changes nothing goes. */
static const Node *rule_views(Module *m, const Node *n)
{
  if (!is_view_call(n) || !is_tensor(n)) return n;
  if (same_type(n, n->arg[0])) return n->arg[0];
  if (!is_view_call(n->arg[0]) || !is_tensor(n->arg[0]->arg[0]) || !stable_shape(n->type)) return n;
  const Node *x = n->arg[0]->arg[0];
  if (!dtype_eq(x->type->dtype, n->type->dtype)) return n;
  if (same_type(n, x)) return x;
  for (int i = 0; i < n->type->ndim; i++)
    if (expr_is_int(n->type->shape[i], 0)) return n;
  const Node *now = make_reshape(m, x, n->type->ndim, n->type->shape);
  return same_type(now, n) ? now : n;
}

static void transpose_axes(const Node *n, int *axes)
{
  AttrInts a = call_ints(n, "axes");
  int ndim = n->arg[0]->type->ndim;
  for (int i = 0; i < ndim; i++) {
    int64_t v = a.given && a.n ? a.v[i] : ndim - 1 - i;
    axes[i] = (int)(v < 0 ? v + ndim : v);
  }
}

static const Node *rule_transpose(Module *m, const Node *n)
{
  int axes[MAX_RANK], first[MAX_RANK];
  int64_t both[MAX_RANK];
  if (!is_call(n, "transpose") || !is_tensor(n->arg[0])) return n;
  int ndim = n->type->ndim;
  transpose_axes(n, axes);
  const Node *x = n->arg[0];
  for (int i = 0; i < ndim; i++) both[i] = axes[i];
  if (is_call(x, "transpose")) {
    transpose_axes(x, first);
    for (int i = 0; i < ndim; i++) both[i] = first[axes[i]];
    x = x->arg[0];
  }
  bool same = true;
  for (int i = 0; i < ndim; i++) same = same && both[i] == i;
  if (same) return x;
  if (x == n->arg[0]) return n;
  void *attrs = call_attrs(m, n);
  attrs_set_ints(m, n->u.call.op->attrs, attrs, "axes", ndim, both);
  return node_call(m, n->u.call.op, 1, &x, attrs, n->name);
}

static const Node *rule_layout(Module *m, const Node *n)
{
  if (!is_call(n, "layout_transform")) return n;
  const char *from = call_str(n, "src_layout");
  const char *to = call_str(n, "dst_layout");
  if (!strcmp(from, to)) return n->arg[0];
  const Node *x = n->arg[0];
  if (!is_call(x, "layout_transform") || strcmp(call_str(x, "dst_layout"), from)) return n;
  const Node *now = make_layout(m, x->arg[0], call_str(x, "src_layout"), to);
  return same_type(now, n) ? now : n; /* padding of a split axis does not cancel */
}

/* Does a cast to `to` keep every value of `from`? */
static bool keeps_values(DType from, DType to)
{
  if (dtype_is_bool(from)) return true;
  if (dtype_is_bool(to)) return false;
  if (from.code == to.code) return to.bits >= from.bits && from.code <= DT_FLOAT;
  if (from.code == DT_UINT && to.code == DT_INT) return to.bits > from.bits;
  if (from.code <= DT_UINT && to.code == DT_FLOAT) return from.bits < (to.bits == 64 ? 53 : to.bits == 32 ? 24 : 11);
  return from.code == DT_BFLOAT && to.code == DT_FLOAT && to.bits >= 32;
}

static const Node *rule_cast(Module *m, const Node *n)
{
  if (!is_call(n, "cast") || !is_tensor(n) || !is_tensor(n->arg[0])) return n;
  const Node *x = n->arg[0];
  if (dtype_eq(x->type->dtype, n->type->dtype)) return x;
  if (!is_call(x, "cast") || !is_tensor(x->arg[0]) || !keeps_values(x->arg[0]->type->dtype, x->type->dtype)) return n;
  return make_cast(m, x->arg[0], n->type->dtype);
}

/* ---- neutral arithmetic --------------------------------------------------------------------- */

/* Every element is this number: a constant, or full, zeros, ones. */
static bool is_all(const Node *n, double v)
{
  if (is_call(n, "zeros") || is_call(n, "zeros_like")) return v == 0;
  if (is_call(n, "ones") || is_call(n, "ones_like")) return v == 1;
  if (is_call_of(n, "full,full_like,broadcast_to")) {
    const Node *value = n->arg[is_call(n, "full_like") ? 1 : 0];
    return value->type && dtype_eq(value->type->dtype, n->type->dtype) && const_all(value, v);
  }
  return const_all(n, v);
}

static const Node *rule_neutral(Module *m, const Node *n)
{
  (void)m;
  if (!is_call_of(n, "add,subtract,multiply,divide,power,floor_divide") || !is_tensor(n)) return n;
  bool integer = dtype_is_int(n->type->dtype);
  const Node *a = n->arg[0];
  const Node *b = n->arg[1];
  bool left = same_type(n, a);
  bool right = same_type(n, b);
  if (is_call(n, "add") && integer) {
    if (left && is_all(b, 0)) return a;
    if (right && is_all(a, 0)) return b;
  }
  if (is_call(n, "subtract") && left && is_all(b, 0)) return a;
  if (is_call(n, "multiply")) {
    if (left && is_all(b, 1)) return a;
    if (right && is_all(a, 1)) return b;
  }
  if (is_call_of(n, "divide,power") && left && is_all(b, 1)) return a;
  if (is_call(n, "floor_divide") && integer && left && is_all(b, 1)) return a;
  return n;
}

/* (y + c) + d, and with minus on either place -> y + one constant; of integers, which wrap and lose nothing. */
static const Node *rule_offsets(Module *m, const Node *n)
{
  if (!is_call_of(n, "add,subtract") || !is_tensor(n) || !dtype_is_int(n->type->dtype)) return n;
  const Node *x = n->arg[0];
  const Node *d = n->arg[1];
  if (!is_call_of(x, "add,subtract") || d->kind != N_CONST || x->arg[1]->kind != N_CONST || !same_type(x->arg[0], n))
    return n;
  const Node *c = x->arg[1];
  bool minus = is_call(x, "subtract");
  bool less = is_call(n, "subtract");
  const Node *y = x->arg[0];
  if (minus && less) return make2(m, "subtract", y, make2(m, "add", c, d));
  return make2(m, "add", y, minus ? make2(m, "subtract", d, c) : make2(m, less ? "subtract" : "add", c, d));
}

/* op(x, full(v)) -> op(x, v): the scalar broadcasts by itself. */
static const Node *rule_full(Module *m, const Node *n)
{
  if (n->kind != N_CALL || n->u.call.op->fuse != FUSE_BROADCAST || n->nargs != 2 || !is_tensor(n)) return n;
  for (int i = 0; i < 2; i++) {
    const Node *f = n->arg[i];
    if (!is_call(f, "full") || f->arg[0]->kind != N_CONST || !same_type(n, n->arg[1 - i]) || f->arg[0]->type->ndim)
      continue;
    const Node *arg[2] = {n->arg[0], n->arg[1]};
    arg[i] = f->arg[0];
    if (!dtype_eq(arg[i]->type->dtype, f->type->dtype)) continue;
    return node_with_args(m, n, arg);
  }
  return n;
}

/* ---- operators that only look at another tensor's shape ------------------------------------------ */

static const Node *shaped(Module *m, const char *op, int n, const Node *const *arg, const char *attr, const Type *ty)
{
  const OpDef *def = opdef_get(m->ctx, op);
  void *attrs = attrs_new(m, def->attrs);
  attrs_set_dims(m, def->attrs, attrs, attr, ty->ndim, ty->shape);
  if (attrs_field(def->attrs, "dtype")) attrs_set_dtype(m, def->attrs, attrs, "dtype", ty->dtype);
  return node_call(m, def, n, arg, attrs, NULL);
}

static const Node *rule_like(Module *m, const Node *n)
{
  if (n->kind != N_CALL || !stable_shape(n->type)) return n;
  const Node *now = n;
  if (is_call(n, "zeros_like")) now = shaped(m, "zeros", 0, NULL, "shape", n->type);
  else if (is_call(n, "ones_like")) now = shaped(m, "ones", 0, NULL, "shape", n->type);
  else if (is_call(n, "full_like")) now = shaped(m, "full", 1, &n->arg[1], "shape", n->type);
  else if (is_call(n, "reshape_like")) now = make_reshape(m, n->arg[0], n->type->ndim, n->type->shape);
  else if (is_call(n, "broadcast_to_like")) now = shaped(m, "broadcast_to", 1, n->arg, "shape", n->type);
  else if (is_call(n, "cast_like")) now = make_cast(m, n->arg[0], n->type->dtype);
  return same_type(now, n) ? now : n;
}

/* ---- what changes nothing -------------------------------------------------------------------------- */

static bool all_ints(AttrInts a, int64_t v)
{
  for (int i = 0; i < a.n; i++)
    if (a.v[i] != v) return false;
  return true;
}

static const Node *rule_identity(Module *m, const Node *n)
{
  (void)m;
  if (n->kind != N_CALL) return n;
  if (is_call(n, "copy")) return n->arg[0];
  if (is_call(n, "concatenate") && n->arg[0]->kind == N_TUPLE && n->arg[0]->nargs == 1) return n->arg[0]->arg[0];
  if (!is_tensor(n) || n->nargs < 1 || !same_type(n, n->arg[0])) return n;
  if (is_call_of(n, "broadcast_to,dyn.broadcast_to,broadcast_to_like,collapse_sum_like,collapse_sum_to"))
    return n->arg[0];
  if (is_call(n, "nn.pad") && all_ints(call_ints(n, "pad_width"), 0)) return n->arg[0];
  if (is_call(n, "strided_slice") && type_is_static(n->type)) {
    AttrInts s = call_ints(n, "strides");
    if (!s.given || all_ints(s, 1)) return n->arg[0];
  }
  return n;
}

/* (t.0, t.1, …) of all fields in order -> t */
static const Node *rule_tuple(Module *m, const Node *n)
{
  (void)m;
  if (n->kind != N_TUPLE || !n->nargs || n->arg[0]->kind != N_GET) return n;
  const Node *t = n->arg[0]->arg[0];
  if (!t->type || t->type->kind != TY_TUPLE || t->type->nfield != n->nargs) return n;
  for (int i = 0; i < n->nargs; i++)
    if (n->arg[i]->kind != N_GET || n->arg[i]->arg[0] != t || n->arg[i]->u.index != i) return n;
  return t;
}

/* ---- merging into products and convolutions ------------------------------------------------------------ */

/* Are the last two dimensions exchanged, and no other? */
static bool is_turned(const Node *t)
{
  int axes[MAX_RANK];
  if (!is_call(t, "transpose") || !is_tensor(t) || t->type->ndim < 2 || t->type->ndim > 3) return false;
  int ndim = t->type->ndim;
  transpose_axes(t, axes);
  return axes[ndim - 1] == ndim - 2 && axes[ndim - 2] == ndim - 1;
}

/* batch_matmul(transpose(a), b): the product can read a the other way round. */
static const Node *rule_matmul(Module *m, const Node *n)
{
  if (!is_call_of(n, "nn.batch_matmul,nn.matmul")) return n;
  for (int i = 0; i < 2; i++) {
    if (!is_turned(n->arg[i])) continue;
    const char *flag = i ? "transpose_b" : "transpose_a";
    void *attrs = call_attrs(m, n);
    attrs_set_int(m, n->u.call.op->attrs, attrs, flag, !call_int(n, flag));
    const Node *arg[2] = {n->arg[0], n->arg[1]};
    arg[i] = n->arg[i]->arg[0];
    return node_call(m, n->u.call.op, 2, arg, attrs, n->name);
  }
  return n;
}

/* dense(a, transpose(b)) is a * b.  A constant is turned at compile time. */
static const Node *rule_dense(Module *m, const Node *n)
{
  if (!is_call(n, "nn.dense") || !is_tensor(n) || !is_turned(n->arg[1]) || n->arg[1]->arg[0]->kind == N_CONST) return n;
  const OpDef *op = opdef_get(m->ctx, "nn.matmul");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_dtype(m, op->attrs, attrs, "out_dtype", n->type->dtype);
  return node_call(m, op, 2, (const Node *[]){n->arg[0], n->arg[1]->arg[0]}, attrs, n->name);
}

/* May a window operator have the padding itself?  Zeros for a convolution, the least value for a maximum, zeros that
 * count as elements for an average (all of its padding does then). */
static bool takes_padding(const Node *n, const Node *pad)
{
  if (strcmp(call_str(pad, "pad_mode"), "constant")) return false;
  /* windows that start in the padding would go */
  if (call_has(n, "ceil_mode") && call_int(n, "ceil_mode")) return false;
  if (is_call_of(n, "nn.max_pool1d,nn.max_pool2d,nn.max_pool3d"))
    return pad->nargs > 1 && const_all(pad->arg[1], -INFINITY);
  if (pad->nargs > 1 && !const_all(pad->arg[1], 0)) return false;
  if (is_call_of(n, "nn.conv1d,nn.conv2d,nn.conv3d")) return true;
  return is_call_of(n, "nn.avg_pool1d,nn.avg_pool2d,nn.avg_pool3d") &&
         (call_int(n, "count_include_pad") || all_ints(call_ints(n, "padding"), 0));
}

/* conv(pad(x, 0)) -> conv(x) with more padding, when only spatial dimensions are padded; pools likewise. */
static const Node *rule_pad(Module *m, const Node *n)
{
  if (n->kind != N_CALL || !n->nargs || !is_call(n->arg[0], "nn.pad") || !takes_padding(n, n->arg[0])) return n;
  const Node *p = n->arg[0];
  bool average = call_has(n, "count_include_pad") && strstr(n->u.call.op->name, "avg");
  AttrInts width = call_ints(p, "pad_width");
  AttrInts old = call_ints(n, "padding");
  const char *layout = call_str(n, call_has(n, "data_layout") ? "data_layout" : "layout");
  int spatial = (int)strlen(layout) - 2;
  int at = 0;
  int64_t pad[6];
  if (width.n != 2 * (spatial + 2) || spatial > 3) return n;
  for (int i = 0; i < 2 * spatial; i++) {
    pad[i] = old.n == 2 * spatial ? old.v[i] : old.n == spatial ? old.v[i % spatial] : old.v[0];
    if (old.n != 1 && old.n != spatial && old.n != 2 * spatial) return n;
  }
  for (int d = 0; layout[d]; d++) {
    if (layout[d] == 'N' || layout[d] == 'C') {
      if (width.v[2 * d] || width.v[2 * d + 1]) return n;
      continue;
    }
    if (width.v[2 * d] < 0 || width.v[2 * d + 1] < 0 || at >= spatial) return n;
    pad[at] += width.v[2 * d];
    pad[spatial + at++] += width.v[2 * d + 1];
  }
  void *attrs = call_attrs(m, n);
  attrs_set_ints(m, n->u.call.op->attrs, attrs, "padding", 2 * spatial, pad);
  if (average) attrs_set_int(m, n->u.call.op->attrs, attrs, "count_include_pad", 1);
  const Node *arg[2] = {p->arg[0], n->nargs > 1 ? n->arg[1] : NULL};
  return node_call(m, n->u.call.op, n->nargs, arg, attrs, n->name);
}

/* ---- views below epilogues --------------------------------------------------------------------------------- */

static bool by_element(const OpDef *op) { return op->layout == layout_any || op->layout == layout_broadcast; }

#define PRODUCTS                                                                                                  \
  "nn.conv1d,nn.conv2d,nn.conv3d,nn.conv1d_transpose,nn.conv2d_transpose,nn.conv3d_transpose,nn.dense,nn.matmul," \
  "nn.batch_matmul,nn.contrib_dense_pack"

/* Element-by-element operators over a convolution or product: what FuseOps makes one kernel of. */
static bool is_anchored(const Node *n, int depth)
{
  if (n->kind != N_CALL || depth > 16 || !is_tensor(n)) return false;
  if (is_call_of(n, PRODUCTS)) return true;
  if (!by_element(n->u.call.op)) return false;
  for (int i = 0; i < n->nargs; i++)
    if (is_anchored(n->arg[i], depth + 1)) return true;
  return false;
}

static bool same_shape(const Type *a, const Type *b)
{
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i] && !(a->shape[i]->kind == E_INT && expr_is_int(b->shape[i], a->shape[i]->u.i)))
      return false;
  return true;
}

/* How another operand of n is read when n works on `like`, the tensor before the view; NULL: it cannot be. */
static const Node *operand_below(Module *m, const Node *n, const Node *x, const Node *like)
{
  const Type *ty = like->type;
  const Type *whole = n->type;
  if (!is_tensor(x)) return NULL;
  bool last = true;
  bool one = true; /* it varies along the last axis alone; not at all */
  for (int i = 0; i < x->type->ndim; i++) {
    one = one && expr_is_int(x->type->shape[i], 1);
    if (i + 1 < x->type->ndim) last = last && expr_is_int(x->type->shape[i], 1);
  }
  bool same_last = ty->ndim && whole->ndim &&
                   (ty->shape[ty->ndim - 1] == whole->shape[whole->ndim - 1] ||
                    (ty->shape[ty->ndim - 1]->kind == E_INT &&
                     expr_is_int(whole->shape[whole->ndim - 1], ty->shape[ty->ndim - 1]->u.i)));
  if (one) return x->type->ndim ? make_reshape(m, x, 0, NULL) : x;
  if (last && same_last) return x->type->ndim == 1 ? x : make_reshape(m, x, 1, x->type->shape + x->type->ndim - 1);
  if (!same_shape(x->type, whole)) return NULL;
  if (is_view_call(x) && is_tensor(x->arg[0]) && same_shape(x->arg[0]->type, ty) &&
      dtype_eq(x->arg[0]->type->dtype, x->type->dtype))
    return x->arg[0];
  if (is_view_call(x) ? is_anchored(x->arg[0], 0) : is_anchored(x, 0)) return NULL;
  return make_reshape(m, x, ty->ndim, ty->shape);
}

/* add(reshape(dense(x, w)), b) -> reshape(add(dense(x, w), b)): the epilogue stands next to its
 * anchor.  Each step moves a view of an anchored value further down and puts new views over others only. */
static const Node *rule_sink_view(Module *m, const Node *n)
{
  if (n->kind != N_CALL || !by_element(n->u.call.op) || !stable_shape(n->type) || n->nargs > 4) return n;
  for (int i = 0; i < n->nargs; i++) {
    const Node *v = n->arg[i];
    const Node *arg[4];
    if (!is_view_call(v) || !is_tensor(v) || !same_shape(v->type, n->type) || !stable_shape(v->arg[0]->type) ||
        !is_anchored(v->arg[0], 0))
      continue;
    const Node *x = v->arg[0];
    bool ok = dtype_eq(x->type->dtype, v->type->dtype);
    for (int k = 0; ok && k < n->type->ndim; k++) ok = !expr_is_int(n->type->shape[k], 0);
    for (int k = 0; ok && k < n->nargs; k++) {
      arg[k] = k == i ? x : operand_below(m, n, n->arg[k], x);
      ok = arg[k] != NULL;
    }
    if (!ok) continue;
    const Node *now = make_reshape(m, node_with_args(m, n, arg), n->type->ndim, n->type->shape);
    if (same_type(now, n)) return now;
  }
  return n;
}

static const Rule rules[] = {rule_views,   rule_transpose, rule_layout, rule_cast,     rule_like,
                             rule_neutral, rule_offsets,   rule_full,   rule_identity, rule_tuple,
                             rule_matmul,  rule_dense,     rule_pad,    rule_sink_view};
enum { NRULES = sizeof rules / sizeof *rules };

static const Node *apply_rules(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  for (int i = 0; i < NRULES && now->type; i++) {
    const Node *then = rules[i](rw->m, now);
    if (then == now) continue;
    now = then;
    i = -1;
  }
  return now;
}

const Node *pass_simplify_expr(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, apply_rules, NULL);
}
