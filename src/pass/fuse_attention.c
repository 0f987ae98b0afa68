/* fuse_attention.c: FuseAttention: softmax(query key^T scale + mask) value becomes nn.attention.
 *   needs   types, folded constants
 *   keeps   types; results up to rounding
 *   breaks  nothing; leaves a transposed mask for FoldConstant and FuseOps
 *
 *   %s = nn.batch_matmul(%q, %k)                     views between three and four dimensions anywhere
 *   %t = where(%m, %s * 0.125 + %bias, -1e9)         each of the three may be absent, the scale may be on %q or %k
 *   %p = nn.softmax(%t)                              or written out: exp, max, sum, divide
 *   %g = where(isnan(%p), 0, %p)                     a guard against rows that see nothing, or none
 *   nn.batch_matmul(%g, %v)
 *
 * Nothing between the products may be read elsewhere.  The forms, each with its case in cases/fuse_attention*.txt (as
 * whole ONNX layers in tests/python/test_attention_forms.py):
 *
 *   (none)        heads brought together and taken apart by transposes, which become layouts; query, key and value
 *                 as slices of one tensor, as a joint projection leaves them, which are read there
 *   _joint        the same taken apart as torch's multi-head attention does, the length before the batch
 *   _where        a mask of bool that chooses, scales on both operands, a softmax written out, no heads
 *   _masks        two masks, a bias for each head, repeated heads; a mask that varies with the queries is turned once,
 *                 so that the queries lie side by side
 *   _shared_heads heads repeated by a broadcast; a key turned while batch and heads are one dimension
 *   _causal       a constant mask that hides what is behind each query's own place, or nothing
 *   _guard_nan    torch's guard, _guard_empty that of ONNX's own operator.  A guarded row is zero even if a value is
 *                 infinite, where zero times it would be NaN
 *   _kept, _other_guards    what stays as it is
 *
 * What no implementation of nn.attention fits stays too, and so does attention of a number of queries known only at run
 * time: mostly that is one, and a block of one query does more than the products alone. */
#include <math.h>
#include <stdio.h>

#include "op/nn.h"
#include "pass/passes.h"
#include "pass/pattern.h"
#include "pass/tools.h"

enum { MOST_MASKS = 4, MOST_STEPS = 16, MOST_LETTERS = 8 };

/* query, key or value as the operator will read it. */
typedef struct Operand {
  const Node *node;          /* of the old graph */
  char layout[MOST_LETTERS]; /* while it is looked for also with N, batch and heads together */
  const Expr *view[4];       /* to be reshaped to this first; view[0] NULL: as it is */
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
  bool causal;
  bool scaled, choose, invert; /* choose: a mask of bool; invert: it says what is left out */
  const char *guard;           /* as nn.attention has it */
  const Node *guarded;         /* the mask whose rows it looks at; NULL: the shares themselves */
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
  Map kinds;  /* mask of the old graph that is added -> MaskKind: layers share it */
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

/* The shares behind a guard against rows that see nothing; the shares themselves where there is none:
 *   where(isnan(%p), 0, %p)                                    guard nan
 *   where(equal(max(%mask, axis=-1), -inf), 0, %p)             guard empty, when %mask is what is added to the scores
 *   where(False, 0, %p)                                        none: of a constant mask that leaves no row empty */
static const Node *match_guard(Match *x, const Node *n)
{
  x->guard = "none";
  if (!is_call(n, "where") || !const_all(n->arg[1], 0) || !is_tensor(n->arg[2]) || !is_tensor(n) ||
      !same_dims(x->m, n->type, n->arg[2]->type))
    return n;
  const Node *c = n->arg[0];
  const Node *p = n->arg[2];
  if (is_call(c, "isnan") && c->arg[0] == p && uses_get(x->uses, c) == 1 && uses_get(x->uses, p) == 2) {
    x->guard = "nan";
    return p;
  }
  if (uses_get(x->uses, p) != 1) return n;
  if (const_all(c, 0)) return p;
  if (!is_call(c, "equal")) return n;
  for (int i = 0; i < 2; i++) {
    const Node *max = c->arg[i];
    if (!is_call(max, "max") || !const_all(c->arg[1 - i], -INFINITY) || !along_last(max, "axis")) continue;
    x->guard = "empty";
    x->guarded = max->arg[0];
    return p;
  }
  return n;
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

/* A part of a larger tensor's last axis: the tensor (perhaps with that axis in two: count, width / count), where the
 * part begins, how long it is and how wide the axis is. */
typedef struct Part {
  const Node *all;
  int64_t begin, length, width;
} Part;

/* take(transpose(%x, axes=[2, 0, 1, 3]), 1): the axis before the last is brought to the front and one of it is taken,
 * as torch takes the joint projection of its multi-head attention apart.  Axes of size 1 may stand anywhere. */
static bool taken_part(const Node *n, Part *p)
{
  if (!is_call(n, "take") || n->arg[1]->kind != N_CONST || const_count(n->arg[1]->u.data) != 1) return false;
  AttrInts axis = call_ints(n, "axis");
  const Node *turned = n->arg[0];
  if (!axis.given || axis.n != 1 || axis.v[0] != 0) return false;
  while (is_view(turned)) turned = turned->arg[0]; /* of units alone: the order of the others is compared below */
  if (!is_call(turned, "transpose") || !is_tensor(turned) || !is_tensor(turned->arg[0])) return false;
  const Node *x = turned->arg[0];
  AttrInts order = call_ints(turned, "axes");
  int rank = x->type->ndim;
  int64_t seen = -1;
  int64_t count = dim_of(n->arg[0], 0);
  int64_t at = (int64_t)number_at(n->arg[1]->u.data, 0);
  if (rank < 3 || !order.given || order.n != rank || order.v[0] != rank - 2 || count < 1 || at < 0 || at >= count ||
      dim_of(x, rank - 2) != count || dim_of(x, rank - 1) < 1)
    return false;
  for (int i = 1; i < rank; i++) { /* the others in their order */
    if (dim_of(x, (int)order.v[i]) == 1) continue;
    if (order.v[i] < seen) return false;
    seen = order.v[i];
  }
  *p = (Part){x, at * dim_of(x, rank - 1), dim_of(x, rank - 1), count * dim_of(x, rank - 1)};
  return true;
}

static bool part_of(const Node *n, Part *p)
{
  int last = n->type->ndim - 1;
  int64_t begin = 0;
  if (n->kind == N_GET && is_call(n->arg[0], "split") && is_tensor(n->arg[0]->arg[0])) {
    const Node *split = n->arg[0];
    int64_t axis = call_int(split, "axis");
    if (axis != -1 && axis != last) return false;
    for (int i = 0; i < n->u.index; i++) {
      const Expr *d = split->type->field[i]->shape[last];
      if (d->kind != E_INT) return false;
      begin += d->u.i;
    }
    *p = (Part){split->arg[0], begin, dim_of(n, last), dim_of(split->arg[0], last)};
    return true;
  }
  if (!is_call(n, "strided_slice") || n->nargs != 1 || !is_tensor(n->arg[0])) return taken_part(n, p);
  AttrInts axes = call_ints(n, "axes");
  AttrInts from = call_ints(n, "begin");
  AttrInts step = call_ints(n, "strides");
  if (axes.n != 1 || (axes.v[0] != -1 && axes.v[0] != last) || from.n != 1 || from.v[0] < 0 ||
      (step.given && step.n && step.v[0] != 1))
    return false;
  *p = (Part){n->arg[0], from.v[0], dim_of(n, last), dim_of(n->arg[0], last)};
  return true;
}

/* What a layout becomes where `letters`, side by side in it, are written as `as`; false: they are not. */
static bool respell(const char *layout, const char *letters, const char *as, char *out)
{
  const char *at = strstr(layout, letters);
  if (!at) return false;
  snprintf(out, MOST_LETTERS, "%.*s%s%s", (int)(at - layout), layout, as, at + strlen(letters));
  return true;
}

/* Does the tensor have that many dimensions, the batch and heads as they are to be, and the rest as `like` has them? */
static bool has_dims(const Match *x, const Operand *o, const Type *t, const char *layout, const Type *like)
{
  bool fits = t->ndim == (int)strlen(layout);
  for (int i = 0; i < t->ndim && fits; i++) {
    char letter = layout[i];
    const char *there = strchr(o->layout, letter);
    if (letter == 'B') fits = same_dim(x->m, t->shape[i], x->b);
    else if (letter == 'H') fits = expr_is_int(type_dim_unguarded(t->shape[i]), x->h->u.i / o->repeats);
    else if (letter != 'N') fits = there && same_dim(x->m, t->shape[i], like->shape[there - o->layout]);
  }
  return fits;
}

/* The operand in four dimensions: its layout with B and H apart, and their sizes. */
static void four_dims(const Match *x, const Operand *o, char *layout, const Expr **dims)
{
  if (!respell(o->layout, "N", "BH", layout)) strcpy(layout, o->layout);
  for (int d = 0; d < 4; d++) {
    const char *there = strchr(o->layout, layout[d]);
    dims[d] = there              ? type_dim_unguarded(o->node->type->shape[there - o->layout])
              : layout[d] == 'B' ? x->b
                                 : expr_i32(x->m, x->h->u.i / o->repeats);
  }
}

/* Heads that are a part of a tensor's last axis: (..., all heads * size) -> (B, S, heads, size), or another order of B
 * and S. */
static bool take_part(const Match *x, Operand *o)
{
  const Node *slice = o->node->nargs ? o->node->arg[0] : NULL;
  char layout[MOST_LETTERS];
  const Expr *view[4];
  Part part;
  if (!is_view(o->node)) return false;
  four_dims(x, o, layout, view);
  if (strcmp(layout + 2, "HD") || view[2]->kind != E_INT || view[3]->kind != E_INT || !slice->type->ndim) return false;
  int64_t heads = view[2]->u.i;
  int64_t size = view[3]->u.i;
  if (!part_of(slice, &part) || heads < 1 || size < 1 || part.length != heads * size) return false;
  if (part.width < 1 || part.width % size || part.begin % size || !type_dim_is_stable(view[0]) ||
      !type_dim_is_stable(view[1]))
    return false;
  view[2] = expr_i32(x->m, part.width / size);
  o->node = part.all;
  o->first = part.begin / size;
  strcpy(o->layout, layout);
  memcpy(o->view, view, sizeof view);
  return true;
}

/* Batch and heads, split or joined by a view. */
static bool step_view(const Match *x, Operand *o)
{
  const Node *from = o->node->arg[0];
  char layout[MOST_LETTERS];
  if (!respell(o->layout, "N", "BH", layout) && !respell(o->layout, "BH", "N", layout)) return false;
  if (!has_dims(x, o, from->type, layout, o->node->type)) return false;
  strcpy(o->layout, layout);
  o->node = from;
  return true;
}

/* reshape(broadcast_to(expand_dims(%k, axis=2), (B, H, repeats, T, D))): each head several times. */
static bool step_broadcast(const Match *x, Operand *o)
{
  const Node *wide = o->node->arg[0];
  char layout[MOST_LETTERS];
  if (!is_call(wide, "broadcast_to") || !is_tensor(wide->arg[0]) || o->repeats != 1) return false;
  if (!respell(o->layout, "N", "BHR", layout) && !respell(o->layout, "H", "HR", layout)) return false;
  const Type *to = wide->type;
  const Node *narrow = wide->arg[0];
  int r = (int)(strchr(layout, 'R') - layout);
  if (to->ndim != 5 || narrow->type->ndim != 5 || dim_of(wide, r) < 1 || x->h->u.i % dim_of(wide, r)) return false;
  Operand inner = {.node = o->node, .repeats = dim_of(wide, r)};
  const Expr *view[4];
  for (int i = 0, k = 0; i < 5; i++) {
    const Expr *d = narrow->type->shape[i];
    if (i == r ? !expr_is_int(d, 1) : !same_dim(x->m, d, to->shape[i])) return false;
    if (i != r) view[k++] = type_dim_unguarded(d);
  }
  snprintf(inner.layout, sizeof inner.layout, "%.*s%s", r, layout, layout + r + 1);
  const Type *four = type_tensor(x->m, to->dtype, 4, view);
  Operand outer = *o;
  outer.repeats = inner.repeats;
  if (!has_dims(x, &outer, four, inner.layout, o->node->type)) return false;
  *o = inner;
  o->node = narrow;
  if (is_view(narrow) && type_equal(narrow->arg[0]->type, four)) o->node = narrow->arg[0];
  else memcpy(o->view, view, sizeof view);
  return true;
}

/* One step closer to where the operand comes from. */
static bool step_back(Match *x, Operand *o, bool is_value, bool repeats)
{
  const Node *n = o->node;
  int rank = (int)strlen(o->layout);
  if (!is_tensor(n)) return false;
  const Node *plain = is_value ? NULL : scaled_by(x->m, n, &x->scale);
  if (plain) {
    o->node = plain;
    return true;
  }
  if (is_call(n, "transpose")) {
    char layout[MOST_LETTERS];
    permute(n, o->layout, layout);
    if (is_value && layout[rank - 1] != 'D') return false;
    strcpy(o->layout, layout);
    o->node = n->arg[0];
    return true;
  }
  if (rank == 4 && repeats && is_call(n, "repeat") && o->repeats == 1 && call_int(n, "axis") >= 0 &&
      o->layout[call_int(n, "axis")] == 'H') {
    o->repeats = call_int(n, "repeats");
    o->node = n->arg[0];
    return true;
  }
  if (is_view(n) && ((repeats && step_broadcast(x, o)) || step_view(x, o))) return true;
  return take_part(x, o);
}

/* letters: of n's three dimensions, N for batch and heads together. */
static void find_operand(Match *x, int i, const Node *n, const char *letters, bool repeats)
{
  Operand *o = &x->in[i];
  *o = (Operand){.node = n, .repeats = 1};
  strcpy(o->layout, letters);
  for (int steps = 0; steps < MOST_STEPS && !o->view[0] && step_back(x, o, i == 2, repeats); steps++) continue;
  if (o->view[0] || strlen(o->layout) == 4) return;
  char layout[MOST_LETTERS];
  const Expr *view[4];
  four_dims(x, o, layout, view);
  strcpy(o->layout, layout);
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
    find_operand(x, 0, q, call_int(x->product, "transpose_a") ? "NDS" : "NSD", false);
    find_operand(x, 1, k, call_int(x->product, "transpose_b") ? "NTD" : "NDT", !again);
    find_operand(x, 2, v, value_turned ? "NDT" : "NTD", !again);
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

/* What a constant mask says. */
typedef enum { MASK_ANY = 1, MASK_NONE, MASK_CAUSAL } MaskKind;

/* Does place i of the mask leave the score as it is, or take the key out altogether?  A number so low takes out: the
 * largest score is far above it. */
static bool sees(const Match *x, const ConstData *d, int64_t i)
{
  return x->choose ? (number_at(d, i) != 0) != x->invert : number_at(d, i) == 0;
}
static bool hides(const Match *x, const ConstData *d, int64_t i)
{
  static const double OUT = -1e30;
  return x->choose ? !sees(x, d, i) && x->fill <= OUT : number_at(d, i) <= OUT;
}

static MaskKind kind_of(const Match *x, const Node *mask)
{
  if (mask->kind != N_CONST) return MASK_ANY;
  const ConstData *d = mask->u.data;
  int rank = mask->type->ndim;
  int64_t n = const_count(d);
  int64_t queries = rank > 1 ? dim_of(mask, rank - 2) : 1;
  int64_t keys = rank ? dim_of(mask, rank - 1) : 1;
  bool none = true;
  bool causal = keys >= queries && queries > 1 &&
                expr_is_int(type_dim_unguarded(x->product->type->shape[1]), queries) &&
                expr_is_int(type_dim_unguarded(x->product->type->shape[2]), keys);
  for (int64_t i = 0; i < n && (none || causal); i++) {
    none = none && sees(x, d, i);
    int64_t last = i / keys % queries + (keys - queries); /* the key at the query's own place */
    causal = causal && (i % keys <= last ? sees(x, d, i) : hides(x, d, i));
  }
  return none ? MASK_NONE : causal ? MASK_CAUSAL : MASK_ANY;
}

/* A constant mask that takes nothing out, or what comes behind the query's own place, need not be read. */
static void drop_mask(FuseAttention *f, Match *x)
{
  if (x->nmasks != 1) return;
  const Node *mask = x->mask[0].node;
  uintptr_t kind = x->choose ? 0 : (uintptr_t)map_get(&f->kinds, mask);
  if (!kind) kind = (uintptr_t)kind_of(x, mask);
  if (!x->choose) map_put(scratch(f->m->ctx), &f->kinds, mask, (void *)kind);
  if (kind == MASK_ANY) return;
  x->nmasks = 0;
  x->causal = kind == MASK_CAUSAL;
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
  if (x->causal) attrs_set_int(f->m, &Attention_attrs, a, "causal", true);
  if (x->choose && x->nmasks) attrs_set_f64(f->m, &Attention_attrs, a, "fill", x->fill);
  attrs_set_str(f->m, &Attention_attrs, a, "guard", x->guard);
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
  const Node *scores = softmax_input(&x, tmp, match_guard(&x, p), &uses);
  if (!scores || !match_scores(&x, scores, uses, 0) || !find_heads(&x) ||
      (x.guarded && (x.choose || x.nmasks != 1 || x.mask[0].node != x.guarded)) ||
      !match_operands(&x, v, call_int(old, "transpose_b")))
    return now;
  drop_mask(f, &x);
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
