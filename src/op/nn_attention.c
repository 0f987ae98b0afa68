/* nn_attention.c: scaled dot-product attention.
 *
 *   softmax over t of (scale * sum over d of query[s, d] * key[t, d], masked), times value[t, d]
 *
 * for each batch b and head h.  Five letters name the dimensions: B batch, H head, S query, T key, D feature.  A
 * layout is an order of the letters that a tensor has, so that no head needs to be moved before it is read.
 * Query, key and value may lie in one tensor, their heads side by side (first_head); a head of key and value may serve
 * several heads of query (kv_heads).
 *
 * As in nn.softmax the largest score is taken off first, and a row whose scores are all -inf is NaN.  Exporters guard
 * against that in two ways, which guard names: a row whose scores are all -inf gives zeros (empty), or every row whose
 * shares are not numbers does, also where a score is NaN or +inf (nan).  Sums of 16-bit floats are carried in
 * float32. */
#include <math.h>

#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Attention, ATTENTION_ATTRS)

enum { QUERY, KEY, VALUE, MASK };

/* ---- layouts ----------------------------------------------------------------------------- */

static void want_layout(OpCall *c, const char *attribute, const char *layout, const char *letters)
{
  bool fits = strlen(layout) == strlen(letters);
  for (const char *p = letters; fits && *p; p++) fits = strchr(layout, *p) != NULL;
  if (!fits) opdef_raise(c, ERR_ARGUMENT, "%s '%s' is not an order of the letters %s", attribute, layout, letters);
}

const char *nn_attention_layout(const AttentionAttrs *a, int argument, int ndim)
{
  const char *const layout[] = {a->query_layout, a->key_layout, a->value_layout, a->mask_layout};
  return layout[argument] + (4 - ndim);
}

/* The dimension of `letter` in an argument. */
static const Expr *dim_named(OpCall *c, int argument, char letter)
{
  const char *layout = nn_attention_layout(c->attrs, argument, 4);
  return c->arg[argument]->shape[strchr(layout, letter) - layout];
}

static const Expr *at_letter(const AttentionAt *at, char letter)
{
  return letter == 'B' ? at->b : letter == 'H' ? at->h : letter == 'S' ? at->s : letter == 'T' ? at->t : at->d;
}

AttentionAt nn_attention_sizes(OpCall *c, const Expr **value_size)
{
  const AttentionAttrs *a = c->attrs;
  *value_size = dim_named(c, VALUE, 'D');
  return (AttentionAt){.b = dim_named(c, QUERY, 'B'),
                       .h = a->heads ? expr_i32(c->m, a->heads) : dim_named(c, QUERY, 'H'),
                       .s = dim_named(c, QUERY, 'S'),
                       .t = dim_named(c, KEY, 'T'),
                       .d = dim_named(c, QUERY, 'D')};
}

void nn_attention_place(const char *layout, const AttentionAt *at, const Expr **out)
{
  for (int i = 0; layout[i]; i++) out[i] = at_letter(at, layout[i]);
}

/* ---- types ---------------------------------------------------------------------------------- */

/* The two arguments agree in the dimension `letter`; where that is not known yet, dim is guarded by it. */
static const Expr *want_equal(OpCall *c, const Expr *dim, int a, int b, char letter)
{
  static const char *const names[] = {"query", "key", "value"};
  const Expr *x = dim_named(c, a, letter);
  const Expr *y = dim_named(c, b, letter);
  if (nn_dims_differ(c->m, x, y))
    opdef_raise(c, ERR_SHAPE, "%s %s and %s %s differ in %c: %s and %s", names[a], nn_arg_shape(c, a), names[b],
                nn_arg_shape(c, b), letter, expr_str_of(scratch(c->m->ctx), x), expr_str_of(scratch(c->m->ctx), y));
  return nn_guard_equal(c->m, dim, x, y);
}

static void want_heads(OpCall *c, int argument, const char *name, int64_t count)
{
  const AttentionAttrs *a = c->attrs;
  const Expr *have = dim_named(c, argument, 'H');
  int64_t first = a->first_head.v[argument];
  if (first < 0 || (have->kind == E_INT && first + count > have->u.i))
    opdef_raise(c, ERR_SHAPE, "%s %s has no %" PRId64 " heads from head %" PRId64 " on", name,
                nn_arg_shape(c, argument), count, first);
  if (have->kind != E_INT)
    opdef_raise(c, ERR_UNSUPPORTED, "the number of heads of %s %s must be known", name, nn_arg_shape(c, argument));
}

static const Expr *mask_guard(OpCall *c, const Expr *dim, const AttentionAt *sizes)
{
  const AttentionAttrs *a = c->attrs;
  const Type *mask = nn_tensor(c, MASK, "mask");
  if (mask->ndim > 4) opdef_raise(c, ERR_SHAPE, "mask %s has more than four dimensions", nn_arg_shape(c, MASK));
  if (!dtype_is_bool(mask->dtype) && !dtype_eq(mask->dtype, c->arg[QUERY]->dtype))
    opdef_raise(c, ERR_TYPE, "mask is %s; it must be bool or %s, as query is",
                dtype_name(scratch(c->m->ctx), mask->dtype), dtype_name(scratch(c->m->ctx), c->arg[QUERY]->dtype));
  const char *layout = nn_attention_layout(a, MASK, mask->ndim);
  for (int i = 0; i < mask->ndim; i++) {
    const Expr *want = at_letter(sizes, layout[i]);
    if (expr_is_int(mask->shape[i], 1)) continue;
    if (nn_dims_differ(c->m, mask->shape[i], want))
      opdef_raise(c, ERR_SHAPE, "mask %s is neither 1 nor %s in %c", nn_arg_shape(c, MASK),
                  expr_str_of(scratch(c->m->ctx), want), layout[i]);
    dim = nn_guard_equal(c->m, dim, mask->shape[i], want);
  }
  return dim;
}

static const Type *attention_type(OpCall *c)
{
  static const char *const names[] = {"query", "key", "value"};
  const AttentionAttrs *a = c->attrs;
  want_layout(c, "query_layout", a->query_layout, "BHSD");
  want_layout(c, "key_layout", a->key_layout, "BHTD");
  want_layout(c, "value_layout", a->value_layout, "BHTD");
  want_layout(c, "mask_layout", a->mask_layout, "BHST");
  want_layout(c, "out_layout", a->out_layout, "BHSD");
  if (strcmp(a->guard, "none") && strcmp(a->guard, "empty") && strcmp(a->guard, "nan"))
    opdef_raise(c, ERR_ARGUMENT, "guard '%s' is none of none, empty and nan", a->guard);
  if (a->first_head.n != 3)
    opdef_raise(c, ERR_ARGUMENT, "first_head has %d numbers; it takes one each for query, key and value",
                a->first_head.n);
  for (int i = 0; i < 3; i++) {
    nn_want_float(c, i, names[i]);
    nn_want_rank(c, i, names[i], 4);
    if (i) op_same_dtype(c, 0, i);
  }
  const Expr *size, *shape[4];
  AttentionAt sizes = nn_attention_sizes(c, &size);
  AttentionAt out = sizes;
  if (a->heads < 0 || sizes.h->kind != E_INT)
    opdef_raise(c, ERR_UNSUPPORTED, "the number of heads of query %s must be known", nn_arg_shape(c, QUERY));
  int64_t heads = sizes.h->u.i;
  int64_t shared = a->kv_heads ? a->kv_heads : heads;
  if (shared < 1 || heads % shared)
    opdef_raise(c, ERR_ARGUMENT, "%" PRId64 " heads cannot share kv_heads %" PRId64, heads, shared);
  want_heads(c, QUERY, "query", heads);
  want_heads(c, KEY, "key", shared);
  want_heads(c, VALUE, "value", shared);
  out.d = want_equal(c, size, QUERY, KEY, 'D');
  out.d = want_equal(c, out.d, KEY, VALUE, 'T');
  out.b = want_equal(c, want_equal(c, sizes.b, QUERY, KEY, 'B'), KEY, VALUE, 'B');
  if (c->nargs > MASK) out.d = mask_guard(c, out.d, &sizes);
  nn_attention_place(a->out_layout, &out, shape);
  return type_tensor(c->m, c->arg[QUERY]->dtype, 4, shape);
}

/* ---- the meaning -------------------------------------------------------------------------------- */

const Expr *nn_attention_read(OpCall *c, int argument, const Tensor *t, const AttentionAt *at)
{
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  const Expr *index[4], *size;
  AttentionAt here = *at;
  int64_t heads = nn_attention_sizes(c, &size).h->u.i;
  int64_t shared = a->kv_heads && argument != QUERY ? a->kv_heads : heads;
  if (shared != heads) here.h = expr_floordiv(m, here.h, expr_i32(m, heads / shared));
  if (a->first_head.v[argument]) here.h = expr_add(m, here.h, expr_i32(m, a->first_head.v[argument]));
  nn_attention_place(nn_attention_layout(a, argument, 4), &here, index);
  return expr_cast(m, nn_accumulator(c->out->dtype), nn_read(m, t, index));
}

const Expr *nn_attention_masked(OpCall *c, const Expr *score, const Tensor *mask, const AttentionAt *at)
{
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  const Expr *size, *index[4];
  const Expr *fill = op_num(m, score->dtype, a->fill);
  AttentionAt sizes = nn_attention_sizes(c, &size);
  if (mask) {
    const Buffer *b = mask->buffer;
    nn_attention_place(nn_attention_layout(a, MASK, b->ndim), at, index);
    for (int i = 0; i < b->ndim; i++)
      if (expr_is_int(b->shape[i], 1)) index[i] = expr_i32(m, 0);
    const Expr *value = nn_read(m, mask, index);
    score = dtype_is_bool(b->dtype) ? expr_select(m, value, score, fill)
                                    : expr_add(m, score, expr_cast(m, score->dtype, value));
  }
  if (a->causal) {
    const Expr *last = expr_add(m, at->s, expr_sub(m, sizes.t, sizes.s)); /* the key at the query's own place */
    score = expr_select(m, expr_binary(m, E_LE, at->t, last), score, op_num(m, score->dtype, -INFINITY));
  }
  return score;
}

const Expr *nn_attention_shift(OpCall *c, const Expr *most)
{
  const AttentionAttrs *a = c->attrs;
  if (strcmp(a->guard, "empty")) return most;
  const Expr *empty = expr_binary(c->m, E_EQ, most, op_num(c->m, most->dtype, -INFINITY));
  return expr_select(c->m, empty, op_num(c->m, most->dtype, 0), most);
}

const Expr *nn_attention_guarded(OpCall *c, const Expr *value, const Expr *total)
{
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  if (!strcmp(a->guard, "none")) return value;
  const Expr *zero = op_num(m, value->dtype, 0);
  const Expr *out = strcmp(a->guard, "nan") ? expr_binary(m, E_EQ, total, op_num(m, total->dtype, 0))
                                            : expr_call(m, DT_NONE, IN_ISNAN, 1, &total);
  return expr_select(m, out, zero, value);
}

static void attention_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  const Expr *size, *shape[4];
  AttentionAt n = nn_attention_sizes(c, &size);
  const Expr *all[] = {n.b, n.h, n.s, n.t};
  Stage s = nn_stage(m, 4, all, "b h s t");
  AttentionAt at = {s.at[0], s.at[1], s.at[2], s.at[3], nn_reduce_axis(&s, "d", n.d)};
  const Tensor *scores = nn_finish(
      &s, "scores", "batch_matmul",
      nn_reduce(&s, "sum",
                expr_mul(m, nn_attention_read(c, QUERY, in[QUERY], &at), nn_attention_read(c, KEY, in[KEY], &at))));
  s = nn_stage(m, 4, all, "b h s t");
  at = (AttentionAt){s.at[0], s.at[1], s.at[2], s.at[3], NULL};
  const Expr *score = expr_mul(m, nn_read(m, scores, s.at), op_num(m, nn_accumulator(c->out->dtype), a->scale));
  const Tensor *masked =
      nn_finish(&s, "masked", "elemwise", nn_attention_masked(c, score, c->nargs > MASK ? in[MASK] : NULL, &at));
  s = nn_stage(m, 3, all, "b h s");
  const Expr *t = nn_reduce_axis(&s, "t", n.t);
  const Tensor *most =
      nn_finish(&s, "row_max", "comm_reduce",
                nn_reduce(&s, "max", nn_read(m, masked, (const Expr *[]){s.at[0], s.at[1], s.at[2], t})));
  s = nn_stage(m, 4, all, "b h s t");
  const Expr *shift = nn_attention_shift(c, nn_read(m, most, s.at));
  const Tensor *exps =
      nn_finish(&s, "exps", "elemwise", nn_unary(m, IN_EXP, expr_sub(m, nn_read(m, masked, s.at), shift)));
  s = nn_stage(m, 3, all, "b h s");
  t = nn_reduce_axis(&s, "t", n.t);
  const Tensor *total =
      nn_finish(&s, "row_sum", "comm_reduce",
                nn_reduce(&s, "sum", nn_read(m, exps, (const Expr *[]){s.at[0], s.at[1], s.at[2], t})));
  s = nn_stage(m, 4, all, "b h s t");
  const Expr *sum = nn_read(m, total, s.at);
  const Expr *part = nn_attention_guarded(c, NN_DIV(m, nn_read(m, exps, s.at), sum), sum);
  const Tensor *share = nn_finish(&s, "shares", "elemwise", part);
  AttentionAt to = {n.b, n.h, n.s, NULL, size};
  nn_attention_place(a->out_layout, &to, shape);
  s = nn_stage(m, 4, shape, NULL);
  t = nn_reduce_axis(&s, "t", n.t);
  for (int i = 0; i < 4; i++) {
    char letter = a->out_layout[i];
    *(letter == 'B' ? &at.b : letter == 'H' ? &at.h : letter == 'S' ? &at.s : &at.d) = s.at[i];
  }
  at.t = t;
  const Expr *term = expr_mul(m, nn_read(m, share, (const Expr *[]){at.b, at.h, at.s, t}),
                              nn_attention_read(c, VALUE, in[VALUE], &at));
  *out = nn_sum(&s, "attention", "batch_matmul", term, c->out->dtype);
}

static double known_size(const Node *call, int argument, char letter)
{
  const char *layout = nn_attention_layout(call->u.call.attrs, argument, 4);
  return type_known_dim(call->arg[argument]->type, (int)(strchr(layout, letter) - layout));
}

double nn_attention_flops(const Node *call, double open)
{
  const AttentionAttrs *a = call->u.call.attrs;
  double sizes[] = {known_size(call, QUERY, 'B'), a->heads ? (double)a->heads : known_size(call, QUERY, 'H'),
                    known_size(call, QUERY, 'S'), known_size(call, KEY, 'T')};
  double n = 2 * (known_size(call, QUERY, 'D') + known_size(call, VALUE, 'D'));
  for (int i = 0; i < 4; i++) n *= sizes[i] ? sizes[i] : open;
  return n;
}

static double attention_flops(const Node *call) { return nn_attention_flops(call, 0); }

const OpDef op_nn_attention = {
  .name = "nn.attention",
  .doc = "softmax of query times key, masked, times value",
  .args = "query, key, value, mask",
  .min_args = 3,
  .max_args = 4,
  .attrs = &Attention_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = attention_type,
  .compute = attention_compute,
  .flops = attention_flops,
};
