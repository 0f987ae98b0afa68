/* fuse_attention.c: FuseAttention: softmax(query key^T scale + mask) value becomes nn.attention.
 *   needs   types, folded constants
 *   keeps   types; results up to rounding
 *   breaks  nothing; leaves a transposed mask for FoldConstant and FuseOps
 *
 *   %s = nn.batch_matmul(%q, %k)                     views between three and four dimensions anywhere
 *   %t = where(%m, %s * 0.125 + %bias, -1e9)         each of the three may be absent, the scale may be on %q or %k
 *   %p = nn.softmax(%t)                              or written out: exp, max, sum, divide
 *   nn.batch_matmul(%p, %v)
 *
 * Nothing between the products may be read elsewhere.  Transposes that bring heads together before the products and
 * take them apart behind become layouts; heads that are slices of one tensor, as a joint projection leaves them, are
 * read there; repeated heads are read as they were.  A mask that varies with the queries is turned once, so that the
 * queries lie side by side.  What no implementation of nn.attention fits stays as it is, and so does attention of a
 * number of queries known only at run time: mostly that is one, and a block of one query does more than the products
 * alone. */
#include "op/nn.h"
#include "pass/passes.h"
#include "pass/pattern.h"
#include "pass/tools.h"

enum { MOST_MASKS = 4, MOST_STEPS = 16 };

/* query, key or value as the operator will read it. */
typedef struct Operand {
  const Node *node; /* of the old graph */
  char layout[5];
  const Expr *view[4]; /* to be reshaped to this first; view[0] NULL: as it is */
  int64_t first, repeats;
} Operand;

typedef struct Mask {
  const Node *node;
  int rank; /* of the scores it was put on */
} Mask;

typedef struct Match {
  Module *m;
  const Uses *uses;
  double scale, fill;
  bool scaled, choose, invert; /* choose: a mask of bool; invert: it says what is left out */
  int nmasks;
  Mask mask[MOST_MASKS];
  const Node *product; /* query times key */
  const Expr *b, *h;
  Operand in[3];
} Match;

typedef struct FuseAttention {
  Module *m;
  PassContext *pc;
  DevicePlan *plan; /* of a model for several targets */
  const ImplConfig *config;
  Uses uses;
  Map turned; /* mask of the new graph -> its transpose */
} FuseAttention;

static bool same_dim(Module *m, const Expr *a, const Expr *b)
{
  return dim_same(m, type_dim_unguarded(a), type_dim_unguarded(b));
}

static bool same_dims(Module *m, const Type *a, const Type *b)
{
  bool same = a->ndim == b->ndim;
  for (int i = 0; same && i < a->ndim; i++) same = same_dim(m, a->shape[i], b->shape[i]);
  return same;
}

static bool is_view(const Node *n)
{
  return n->kind == N_CALL && (n->u.call.op->flags & OPF_VIEW) && is_tensor(n) && is_tensor(n->arg[0]);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* x times a number, as x; NULL: it is none. */
static const Node *scaled_by(Module *m, const Node *n, double *scale)
{
  if (!is_call_of(n, "multiply,divide") || !is_tensor(n)) return NULL;
  for (int i = 0; i < 2; i++) {
    const Node *c = n->arg[1 - i];
    const Node *x = n->arg[i];
    if (c->kind != N_CONST || const_count(c->u.data) != 1 || !is_tensor(x) || !same_dims(m, x->type, n->type)) continue;
    double v = number_at(c->u.data, 0);
    if (is_call(n, "divide") && (i || v == 0)) continue;
    *scale = is_call(n, "divide") ? *scale / v : *scale * v;
    return x;
  }
  return NULL;
}

/* Does mask fit onto the scores without widening them? */
static bool fits_mask(const Match *x, const Node *scores, const Node *mask)
{
  if (!is_tensor(mask) || mask->type->ndim > scores->type->ndim) return false;
  int lead = scores->type->ndim - mask->type->ndim;
  for (int i = 0; i < mask->type->ndim; i++)
    if (!expr_is_int(mask->type->shape[i], 1) && !same_dim(x->m, mask->type->shape[i], scores->type->shape[lead + i]))
      return false;
  return true;
}

static bool match_scores(Match *x, const Node *n, int uses, int depth);

/* The scores are argument `at` of n, `mask` goes onto them. */
static bool match_masked(Match *x, const Node *n, int at, const Node *mask, int depth)
{
  if (x->scaled || x->nmasks == MOST_MASKS || !is_tensor(n->arg[at]) || !same_dims(x->m, n->type, n->arg[at]->type) ||
      !fits_mask(x, n, mask))
    return false;
  Match before = *x;
  x->mask[x->nmasks++] = (Mask){mask, n->type->ndim};
  if (match_scores(x, n->arg[at], 1, depth + 1)) return true;
  *x = before;
  return false;
}

static bool match_where(Match *x, const Node *n, int depth)
{
  for (int at = 1; at < 3; at++) {
    const Node *fill = n->arg[3 - at];
    if (x->nmasks || fill->kind != N_CONST || const_count(fill->u.data) != 1 || !dtype_is_bool(n->arg[0]->type->dtype))
      continue;
    x->choose = true;
    x->invert = at == 2;
    x->fill = number_at(fill->u.data, 0);
    if (match_masked(x, n, at, n->arg[0], depth)) return true;
    x->choose = false;
  }
  return false;
}

/* Views split or join batch and heads; the rest stays. */
static bool match_view(Match *x, const Node *n, int depth)
{
  const Type *to = n->type;
  const Type *from = n->arg[0]->type;
  if (to->ndim + from->ndim != 7 || (to->ndim != 3 && from->ndim != 3)) return false;
  for (int i = 1; i <= 2; i++)
    if (!same_dim(x->m, to->shape[to->ndim - i], from->shape[from->ndim - i])) return false;
  const Type *split = to->ndim == 4 ? to : from;
  if (x->b && (!same_dim(x->m, x->b, split->shape[0]) || !same_dim(x->m, x->h, split->shape[1]))) return false;
  x->b = type_dim_unguarded(split->shape[0]);
  x->h = type_dim_unguarded(split->shape[1]);
  return match_scores(x, n->arg[0], 1, depth + 1);
}

/* From what softmax reads down to the product of query and key. */
static bool match_scores(Match *x, const Node *n, int uses, int depth)
{
  if (depth > MOST_STEPS || !is_tensor(n) || uses_get(x->uses, n) != uses) return false;
  if (is_call(n, "nn.batch_matmul")) {
    x->product = n;
    return true;
  }
  if (is_view(n)) return match_view(x, n, depth);
  if (is_call(n, "where")) return match_where(x, n, depth);
  if (is_call(n, "add") && !x->choose)
    return match_masked(x, n, 0, n->arg[1], depth) || match_masked(x, n, 1, n->arg[0], depth);
  const Node *inner = scaled_by(x->m, n, &x->scale);
  if (!inner) return false;
  x->scaled = true;
  return match_scores(x, inner, 1, depth + 1);
}

static bool along_last(const Node *n, const char *attr)
{
  AttrInts axis = call_ints(n, attr);
  return axis.n == 1 && (axis.v[0] == -1 || axis.v[0] == n->arg[0]->type->ndim - 1) && call_int(n, "keepdims") &&
         !call_int(n, "exclude");
}

/* What the softmax n is taken of; NULL: n is none. */
static const Node *softmax_input(const Match *x, Arena *a, const Node *n, int *uses)
{
  DfPat *in = pat_wildcard(a);
  DfPat *max = pat_call(a, pat_op(a, "max"), 1, &in);
  DfPat *less = pat_call(a, pat_op(a, "subtract"), 2, (DfPat *[]){in, max});
  DfPat *exps = pat_call(a, pat_op(a, "exp"), 1, &less);
  DfPat *sum = pat_call(a, pat_op(a, "sum"), 1, &exps);
  DfPat *share = pat_call(a, pat_op(a, "divide"), 2, (DfPat *[]){exps, sum});
  DfMatch found;
  if (!is_tensor(n)) return NULL;
  if (is_call(n, "nn.softmax")) {
    int64_t axis = call_int(n, "axis");
    *uses = 1;
    return axis == -1 || axis == n->type->ndim - 1 ? n->arg[0] : NULL;
  }
  if (!is_call(n, "divide") || !pass_pattern_match(a, share, n, NULL, &found)) return NULL;
  const Node *e = pass_pattern_node(&found, exps);
  const Node *l = pass_pattern_node(&found, less);
  const Node *m = pass_pattern_node(&found, max);
  const Node *s = pass_pattern_node(&found, sum);
  bool own =
      uses_get(x->uses, e) == 2 && uses_get(x->uses, l) == 1 && uses_get(x->uses, m) == 1 && uses_get(x->uses, s) == 1;
  *uses = 2;
  return own && along_last(m, "axis") && along_last(s, "axis") ? pass_pattern_node(&found, in) : NULL;
}

/* ---- operands --------------------------------------------------------------------------------- */

static void permute(const Node *transpose, const char *layout, char *out)
{
  AttrInts axes = call_ints(transpose, "axes");
  int n = (int)strlen(layout);
  for (int i = 0; i < n; i++) {
    int64_t to = axes.given && axes.n ? axes.v[i] : n - 1 - i;
    out[to < 0 ? to + n : to] = layout[i];
  }
  out[n] = 0;
}

/* Where along its last axis n begins in a larger tensor; NULL: it is no such part. */
static const Node *part_of(const Node *n, int64_t *begin)
{
  int last = n->type->ndim - 1;
  *begin = 0;
  if (n->kind == N_GET && is_call(n->arg[0], "split") && is_tensor(n->arg[0]->arg[0])) {
    const Node *split = n->arg[0];
    int64_t axis = call_int(split, "axis");
    if (axis != -1 && axis != last) return NULL;
    for (int i = 0; i < n->u.index; i++) {
      const Expr *d = split->type->field[i]->shape[last];
      if (d->kind != E_INT) return NULL;
      *begin += d->u.i;
    }
    return split->arg[0];
  }
  if (!is_call(n, "strided_slice") || n->nargs != 1 || !is_tensor(n->arg[0])) return NULL;
  AttrInts axes = call_ints(n, "axes");
  AttrInts from = call_ints(n, "begin");
  AttrInts step = call_ints(n, "strides");
  if (axes.n != 1 || (axes.v[0] != -1 && axes.v[0] != last) || from.n != 1 || from.v[0] < 0 ||
      (step.given && step.n && step.v[0] != 1))
    return NULL;
  *begin = from.v[0];
  return n->arg[0];
}

/* Heads that are a part of a tensor's last axis: (…, all heads * size) -> (B, S, heads, size). */
static bool take_part(const Match *x, Operand *o)
{
  const Node *n = o->node;
  const Type *ty = n->type;
  if (o->view[0] || !is_view(n) || ty->ndim != 4 || o->layout[2] != 'H' || o->layout[3] != 'D') return false;
  int64_t heads = dim_of(n, 2);
  int64_t size = dim_of(n, 3);
  int64_t begin;
  const Node *slice = n->arg[0];
  const Node *all = slice->type->ndim ? part_of(slice, &begin) : NULL;
  if (!all || heads < 1 || size < 1 || dim_of(slice, slice->type->ndim - 1) != heads * size) return false;
  int64_t width = dim_of(all, all->type->ndim - 1);
  if (width < 1 || width % size || begin % size || !type_dim_is_stable(ty->shape[0]) ||
      !type_dim_is_stable(ty->shape[1]))
    return false;
  o->node = all;
  o->first = begin / size;
  const Expr *view[] = {type_dim_unguarded(ty->shape[0]), type_dim_unguarded(ty->shape[1]),
                        expr_i32(x->m, width / size), expr_i32(x->m, size)};
  memcpy(o->view, view, sizeof view);
  return true;
}

/* One step closer to where the operand comes from. */
static bool step_back(Match *x, Operand *o, bool is_value, bool repeats)
{
  const Node *n = o->node;
  if (!is_tensor(n)) return false;
  const Node *plain = is_value ? NULL : scaled_by(x->m, n, &x->scale);
  if (plain) {
    o->node = plain;
    return true;
  }
  if (n->type->ndim == 3) {
    if (!is_view(n) || n->arg[0]->type->ndim != 4) return false;
    const Expr *const *from = n->arg[0]->type->shape;
    bool fits = same_dim(x->m, from[0], x->b) && same_dim(x->m, from[1], x->h);
    for (int i = 1; i < 3 && fits; i++) fits = same_dim(x->m, from[i + 1], n->type->shape[i]);
    if (fits) o->node = n->arg[0];
    return fits;
  }
  if (is_call(n, "transpose") && n->arg[0]->type->ndim == 4) {
    char layout[5];
    permute(n, o->layout, layout);
    if (is_value && layout[3] != 'D') return false;
    memcpy(o->layout, layout, sizeof layout);
    o->node = n->arg[0];
    return true;
  }
  if (repeats && is_call(n, "repeat") && o->repeats == 1 && call_int(n, "axis") >= 0 &&
      o->layout[call_int(n, "axis")] == 'H') {
    o->repeats = call_int(n, "repeats");
    o->node = n->arg[0];
    return true;
  }
  return take_part(x, o);
}

static void find_operand(Match *x, int i, const Node *n, const char *letters, bool repeats)
{
  Operand *o = &x->in[i];
  *o = (Operand){.node = n, .repeats = 1};
  memcpy(o->layout, letters, 5);
  for (int steps = 0; steps < MOST_STEPS && !o->view[0] && step_back(x, o, i == 2, repeats); steps++) continue;
  if (o->view[0] || o->node->type->ndim == 4) return;
  const Expr *view[] = {x->b, x->h, type_dim_unguarded(o->node->type->shape[1]),
                        type_dim_unguarded(o->node->type->shape[2])};
  memcpy(o->view, view, sizeof view);
}

/* Batch and heads: as a view of the scores says, else as the query's says, else every product is a batch of its own. */
static bool find_heads(Match *x)
{
  const Node *q = x->product->arg[0];
  double ignore = 1;
  for (const Node *inner; (inner = scaled_by(x->m, q, &ignore));) q = inner;
  if (!x->b && is_view(q) && q->type->ndim == 3 && q->arg[0]->type->ndim == 4) {
    const Expr *const *from = q->arg[0]->type->shape;
    if (same_dim(x->m, from[2], q->type->shape[1]) && same_dim(x->m, from[3], q->type->shape[2]))
      x->b = from[0], x->h = from[1];
  }
  if (!x->b) x->b = x->product->type->shape[0], x->h = expr_i32(x->m, 1);
  x->b = type_dim_unguarded(x->b);
  x->h = type_dim_unguarded(x->h);
  return x->h->kind == E_INT && type_dim_is_stable(x->b);
}

static bool match_operands(Match *x, const Node *v, bool value_turned)
{
  if (type_dim_unguarded(x->product->type->shape[1])->kind != E_INT) return false;
  const Node *q = x->product->arg[0];
  const Node *k = x->product->arg[1];
  const Expr *batch = x->product->type->shape[0];
  for (int i = 0; i < 2; i++)
    if (!same_dim(x->m, x->product->arg[i]->type->shape[0], batch)) return false;
  if (!same_dim(x->m, v->type->shape[0], batch)) return false;
  double scale = x->scale;
  for (int again = 0; again < 2; again++) {
    x->scale = scale;
    find_operand(x, 0, q, call_int(x->product, "transpose_a") ? "BHDS" : "BHSD", false);
    find_operand(x, 1, k, call_int(x->product, "transpose_b") ? "BHTD" : "BHDT", !again);
    find_operand(x, 2, v, value_turned ? "BHDT" : "BHTD", !again);
    if (x->in[1].repeats == x->in[2].repeats) break;
  }
  for (int i = 0; i < 3; i++)
    for (int d = 0; d < 4 && x->in[i].view[0]; d++)
      if (!type_dim_is_stable(x->in[i].view[d])) return false;
  return true;
}

/* ---- the new call --------------------------------------------------------------------------------- */

static const Node *turned(FuseAttention *f, const Node *mask)
{
  const Node *now = map_get(&f->turned, mask);
  if (now) return now;
  const OpDef *op = opdef_get(f->m->ctx, "transpose");
  void *attrs = attrs_new(f->m, op->attrs);
  int n = mask->type->ndim;
  int64_t axes[4] = {0, 1, 2, 3};
  axes[n - 1] = n - 2, axes[n - 2] = n - 1;
  attrs_set_ints(f->m, op->attrs, attrs, "axes", n, axes);
  now = node_call(f->m, op, 1, &mask, attrs, NULL);
  map_put(scratch(f->m->ctx), &f->turned, mask, (void *)(uintptr_t)now);
  return now;
}

/* The masks as one that broadcasts to (B, H, S, T), its last two dimensions exchanged where the queries differ. */
static const Node *make_mask(FuseAttention *f, GraphRewriter *rw, const Match *x, void *attrs)
{
  const Node *mask = NULL;
  for (int i = 0; i < x->nmasks; i++) {
    const Node *m = map_get(&rw->memo, x->mask[i].node);
    const Expr *const *dim = m->type->shape;
    if (x->mask[i].rank == 3 && m->type->ndim == 3 && !expr_is_int(dim[0], 1))
      m = make_reshape(f->m, m, 4, (const Expr *[]){x->b, x->h, dim[1], dim[2]});
    if (x->invert) m = make1(f->m, "logical_not", m);
    mask = mask ? make2(f->m, "add", mask, m) : m;
  }
  int n = mask->type->ndim;
  if (n < 2 || expr_is_int(mask->type->shape[n - 2], 1)) return mask;
  attrs_set_str(f->m, &Attention_attrs, attrs, "mask_layout", "BHTS");
  return turned(f, mask);
}

static const Node *make_attention(FuseAttention *f, GraphRewriter *rw, const Match *x)
{
  AttentionAttrs *a = attrs_new(f->m, &Attention_attrs);
  const Node *arg[4] = {NULL, NULL, NULL, NULL};
  int64_t first[3];
  for (int i = 0; i < 3; i++) {
    arg[i] = map_get(&rw->memo, x->in[i].node);
    if (x->in[i].view[0]) arg[i] = make_reshape(f->m, arg[i], 4, x->in[i].view);
    first[i] = x->in[i].first;
  }
  for (int i = 1; i < 3; i++) /* one tensor that holds all three is one argument */
    for (int k = 0; k < i; k++)
      if (x->in[i].view[0] && x->in[i].node == x->in[k].node && type_equal(arg[i]->type, arg[k]->type)) arg[i] = arg[k];
  attrs_set_f64(f->m, &Attention_attrs, a, "scale", x->scale);
  attrs_set_str(f->m, &Attention_attrs, a, "query_layout", x->in[0].layout);
  attrs_set_str(f->m, &Attention_attrs, a, "key_layout", x->in[1].layout);
  attrs_set_str(f->m, &Attention_attrs, a, "value_layout", x->in[2].layout);
  attrs_set_ints(f->m, &Attention_attrs, a, "first_head", 3, first);
  attrs_set_int(f->m, &Attention_attrs, a, "heads", x->h->u.i);
  if (x->in[1].repeats > 1) attrs_set_int(f->m, &Attention_attrs, a, "kv_heads", x->h->u.i / x->in[1].repeats);
  if (x->choose) attrs_set_f64(f->m, &Attention_attrs, a, "fill", x->fill);
  if (x->nmasks) arg[3] = make_mask(f, rw, x, a);
  return node_call(f->m, &op_nn_attention, x->nmasks ? 4 : 3, arg, a, NULL);
}

/* nn.batch_matmul(softmax(…), v) */
static const Node *fuse_product(FuseAttention *f, GraphRewriter *rw, const Node *old, const Node *now)
{
  Match x = {.m = f->m, .uses = &f->uses, .scale = 1};
  const Node *p = old->arg[0];
  const Node *v = old->arg[1];
  Arena *tmp = scratch(f->m->ctx);
  int uses;
  if (call_int(old, "transpose_a") || !is_tensor(old) || !is_tensor(p) || !is_tensor(v) || uses_get(&f->uses, p) != 1)
    return now;
  if (is_view(p)) {
    const Type *from = p->arg[0]->type;
    if (from->ndim != 4 || uses_get(&f->uses, p->arg[0]) != 1) return now;
    for (int i = 1; i <= 2; i++)
      if (!same_dim(f->m, p->type->shape[3 - i], from->shape[4 - i])) return now;
    x.b = type_dim_unguarded(from->shape[0]), x.h = type_dim_unguarded(from->shape[1]);
    p = p->arg[0];
  }
  const Node *scores = softmax_input(&x, tmp, p, &uses);
  if (!scores || !match_scores(&x, scores, uses, 0) || !find_heads(&x) ||
      !match_operands(&x, v, call_int(old, "transpose_b")))
    return now;
  const Node *call = make_attention(f, rw, &x);
  if (!impl_choose(&(ImplCall){f->m, scratch(f->m->ctx), pass_target_of(f->pc, f->plan, old), f->config, call}).impl)
    return now;
  for (int i = 0; i < 3; i++)
    if (!type_dim_is_stable(now->type->shape[i])) return now;
  const Node *result = make_reshape(f->m, call, 3, now->type->shape);
  return same_dims(f->m, result->type, now->type) ? result : now;
}

/* transpose(nn.attention(…)): it can be stored that way round. */
static const Node *fuse_transpose(FuseAttention *f, const Node *old, const Node *now)
{
  const Node *x = now->arg[0];
  const Node *from = old->arg[0];
  if (!is_tensor(now) || now->type->ndim != 4) return now;
  while (is_view(from) && uses_get(&f->uses, from) == 1) from = from->arg[0];
  while (is_view(x)) x = x->arg[0];
  if (!is_call(x, "nn.attention") || !is_call(from, "nn.batch_matmul") || uses_get(&f->uses, from) != 1) return now;
  if (!same_dims(f->m, x->type, now->arg[0]->type)) return now;
  AttentionAttrs *a = attrs_copy(f->m, &Attention_attrs, x->u.call.attrs);
  AttrInts axes = call_ints(now, "axes");
  char layout[5] = {0};
  for (int i = 0; i < 4; i++) {
    int64_t axis = axes.given && axes.n ? axes.v[i] : 3 - i;
    layout[i] = a->out_layout[axis < 0 ? axis + 4 : axis];
  }
  attrs_set_str(f->m, &Attention_attrs, a, "out_layout", layout);
  const Node *call = node_call(f->m, x->u.call.op, x->nargs, x->arg, a, x->name);
  return impl_choose(&(ImplCall){f->m, scratch(f->m->ctx), pass_target_of(f->pc, f->plan, old), f->config, call}).impl
             ? call
             : now;
}

static const Node *fuse_node(GraphRewriter *rw, const Node *old, const Node *now)
{
  FuseAttention *f = rw->env;
  if (!now->type) return now;
  if (is_call(old, "nn.batch_matmul") && is_call(now, "nn.batch_matmul")) return fuse_product(f, rw, old, now);
  if (is_call(old, "transpose") && is_call(now, "transpose")) return fuse_transpose(f, old, now);
  return now;
}

const Node *pass_fuse_attention(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f)) return f;
  FuseAttention fuse = {.m = m, .pc = pc, .config = &pc->impl, .uses = uses_of(scratch(m->ctx), f)};
  fuse.plan = pass_plan_targets(pc, m, scratch(m->ctx));
  return rewrite(m, f, fuse_node, &fuse);
}
