/* nn_layout.c: layout strings, and layout_transform, which brings a tensor from one to
 * another.
 *
 * A dimension's whole coordinate is the mixed-radix number of its letters from left to
 * right: C of NCHW16c at (…, C, …, c) is C * 16 + c.  Where a block is larger than what is
 * left of the dimension, the target is padded with zeros. */
#include "op/nn_kit.h"

/* ---- the strings --------------------------------------------------------------------------- */

static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_small(char c) { return c >= 'a' && c <= 'z'; }
static char capital_of(char c) { return is_small(c) ? (char)(c - 'a' + 'A') : c; }

int layout_find(const Layout *l, char letter)
{
  for (int i = 0; i < l->n; i++)
    if (l->letter[i] == letter) return i;
  return -1;
}

bool layout_is_split(const Layout *l, char capital) { return layout_find(l, (char)(capital - 'A' + 'a')) >= 0; }

int64_t layout_block(const Layout *l, char capital)
{
  int64_t block = 1;
  for (int i = 0; i < l->n; i++)
    if (is_small(l->letter[i]) && capital_of(l->letter[i]) == capital) block *= l->factor[i];
  return block;
}

static const char *layout_scan(Layout *l, const char *text)
{
  int64_t factor = 0;
  for (const char *p = text; *p; p++) {
    if (*p >= '0' && *p <= '9') {
      factor = factor * 10 + (*p - '0');
      if (factor > 1 << 20) return "a block is larger than 2^20";
      continue;
    }
    if (l->n == LAYOUT_MAX) return "it has too many dimensions";
    if (is_capital(*p) && factor) return "a number belongs before a small letter";
    if (is_capital(*p) && layout_find(l, *p) >= 0) return "a capital occurs twice";
    if (is_small(*p) && !factor) return "a small letter needs the size of its block before it";
    if (!is_capital(*p) && !is_small(*p)) return "only letters and numbers may occur";
    l->letter[l->n] = *p;
    l->factor[l->n++] = factor;
    factor = 0;
  }
  if (factor) return "it ends in a number";
  for (int i = 0; i < l->n; i++)
    if (is_small(l->letter[i]) && layout_find(l, capital_of(l->letter[i])) < 0) return "a small letter has no capital";
  return NULL;
}

Layout nn_layout(OpCall *c, const char *attribute, const char *text)
{
  Layout l = {.text = text};
  const char *why = text && *text ? layout_scan(&l, text) : "it is empty";
  if (why) opdef_raise(c, ERR_ARGUMENT, "%s '%s' is no layout: %s", attribute, text ? text : "", why);
  return l;
}

const Expr *layout_extent(Module *m, const Layout *l, const Expr *const *shape, char capital)
{
  const Expr *extent = shape[layout_find(l, capital)];
  for (int i = 0; i < l->n; i++)
    if (is_small(l->letter[i]) && capital_of(l->letter[i]) == capital) extent = expr_mul(m, extent, shape[i]);
  return nn_simplify(m, extent);
}

void layout_shape(Module *m, const Layout *l, const char *letters, const Expr *const *extent, const Expr **shape)
{
  for (int i = 0; i < l->n; i++) {
    const Expr *whole = extent[strchr(letters, capital_of(l->letter[i])) - letters];
    int64_t block = layout_block(l, capital_of(l->letter[i]));
    if (is_small(l->letter[i])) shape[i] = expr_int(m, whole->dtype, l->factor[i]);
    else shape[i] = block == 1 ? whole : nn_simplify(m, nn_ceildiv(m, whole, expr_int(m, whole->dtype, block)));
  }
}

/* How much one step at letter i advances the whole coordinate. */
static int64_t step_of(const Layout *l, int i)
{
  int64_t step = 1;
  for (int j = 0; j < l->n; j++)
    if (is_small(l->letter[j]) && capital_of(l->letter[j]) == capital_of(l->letter[i]) &&
        (is_capital(l->letter[i]) || j > i))
      step *= l->factor[j];
  return step;
}

void layout_index(Module *m, const Layout *l, const char *letters, const Expr *const *at, const Expr **index)
{
  for (int i = 0; i < l->n; i++) {
    const Expr *whole = at[strchr(letters, capital_of(l->letter[i])) - letters];
    int64_t step = step_of(l, i);
    index[i] = step == 1 ? whole : expr_floordiv(m, whole, expr_int(m, whole->dtype, step));
    if (is_small(l->letter[i])) index[i] = expr_floormod(m, index[i], expr_int(m, whole->dtype, l->factor[i]));
  }
}

const Expr *layout_coordinate(Module *m, const Layout *l, const Expr *const *index, char capital)
{
  const Expr *whole = NULL;
  for (int i = 0; i < l->n; i++) {
    if (capital_of(l->letter[i]) != capital) continue;
    int64_t step = step_of(l, i);
    const Expr *part = step == 1 ? index[i] : expr_mul(m, index[i], expr_int(m, index[i]->dtype, step));
    whole = whole ? expr_add(m, whole, part) : part;
  }
  return whole;
}

/* ---- for layout rules ------------------------------------------------------------------------- */

static bool same_capitals(const Layout *a, const Layout *b)
{
  int na = 0;
  int nb = 0;
  for (int i = 0; i < a->n; i++)
    if (is_capital(a->letter[i])) {
      na++;
      if (layout_find(b, a->letter[i]) < 0) return false;
    }
  for (int i = 0; i < b->n; i++) nb += is_capital(b->letter[i]);
  return na == nb;
}

bool layout_keeps(OpCall *c, const char *from, const char *to, const char *letters)
{
  if (!from || !to) return false;
  Layout a = nn_layout(c, "layout", from);
  Layout b = nn_layout(c, "layout", to);
  if (!same_capitals(&a, &b)) return false;
  for (const char *p = letters; *p; p++)
    if (layout_find(&b, *p) < 0 || layout_is_split(&b, *p)) return false;
  return true;
}

int layout_axis(OpCall *c, const LayoutPair *pair, int axis)
{
  if (!pair->from || !pair->to) return -1;
  Layout a = nn_layout(c, "layout", pair->from);
  Layout b = nn_layout(c, "layout", pair->to);
  if (!same_capitals(&a, &b) || axis >= a.n || !is_capital(a.letter[axis]) || layout_is_split(&a, a.letter[axis]))
    return -1;
  return layout_is_split(&b, a.letter[axis]) ? -1 : layout_find(&b, a.letter[axis]);
}

/* ---- layout_transform ---------------------------------------------------------------------------- */

DEFINE_ATTRS_TABLE(LayoutTransform, LAYOUT_TRANSFORM_ATTRS)

typedef struct Change {
  Layout src, dst;
  char letters[LAYOUT_MAX + 1]; /* the capitals, in the source's order */
  const Expr *extent[LAYOUT_MAX];
} Change;

static Change change_of(OpCall *c, const Expr *const *shape)
{
  const LayoutTransformAttrs *a = c->attrs;
  Change ch = {.src = nn_layout(c, "src_layout", a->src_layout), .dst = nn_layout(c, "dst_layout", a->dst_layout)};
  if (!same_capitals(&ch.src, &ch.dst))
    opdef_raise(c, ERR_ARGUMENT, "there is no way from '%s' to '%s': their dimensions differ", a->src_layout,
                a->dst_layout);
  int n = 0;
  for (int i = 0; i < ch.src.n; i++)
    if (is_capital(ch.src.letter[i])) {
      ch.letters[n] = ch.src.letter[i];
      ch.extent[n] = layout_extent(c->m, &ch.src, shape, ch.letters[n]);
      n++;
    }
  return ch;
}

static const Type *layout_transform_type(OpCall *c)
{
  const LayoutTransformAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  Layout src = nn_layout(c, "src_layout", a->src_layout);
  if (src.n != data->ndim)
    opdef_raise(c, ERR_SHAPE, "data %s has %d dimensions, src_layout '%s' names %d", nn_arg_shape(c, 0), data->ndim,
                a->src_layout, src.n);
  for (int i = 0; i < src.n; i++)
    if (src.factor[i] && data->shape[i]->kind == E_INT && data->shape[i]->u.i != src.factor[i])
      opdef_raise(c, ERR_SHAPE, "dimension %d of data %s is not the block of %" PRId64 " that '%s' says", i,
                  nn_arg_shape(c, 0), src.factor[i], a->src_layout);
  Change ch = change_of(c, data->shape);
  const Expr *shape[LAYOUT_MAX];
  layout_shape(c->m, &ch.dst, ch.letters, ch.extent, shape);
  return type_tensor(c->m, data->dtype, ch.dst.n, shape);
}

static bool divides(Module *m, const Expr *extent, int64_t block)
{
  if (extent->kind == E_INT) return extent->u.i % block == 0;
  return expr_is_int(nn_simplify(m, expr_floormod(m, extent, expr_int(m, extent->dtype, block))), 0);
}

static void layout_transform_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Change ch = change_of(c, in[0]->buffer->shape);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *at[LAYOUT_MAX] = {NULL};
  const Expr *index[LAYOUT_MAX];
  const Expr *cond = NULL;
  for (int i = 0; ch.letters[i]; i++) {
    at[i] = nn_index(&s, layout_coordinate(m, &ch.dst, s.at, ch.letters[i]));
    if (!divides(m, ch.extent[i], layout_block(&ch.dst, ch.letters[i])))
      cond = nn_and(m, cond, expr_lt(m, at[i], ch.extent[i]));
  }
  layout_index(m, &ch.src, ch.letters, at, index);
  for (int i = 0; i < ch.src.n; i++) index[i] = nn_index(&s, index[i]);
  const Expr *value = nn_read(m, in[0], index);
  if (cond) value = nn_if(m, cond, value, expr_const(m, value->dtype, 0));
  *out = nn_finish(&s, "T_layout_trans", "injective,layout_transform", value);
}

const OpDef op_layout_transform = {
  .name = "layout_transform",
  .doc = "the tensor in another layout; blocks that are larger than what is left are filled with zeros",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &LayoutTransform_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .type = layout_transform_type,
  .compute = layout_transform_compute,
};
