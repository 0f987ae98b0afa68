/* nn_layout.c: shapes and indices in a layout (layout.c has the strings), and layout_transform, which brings a
 * tensor from one layout to another.
 *
 * A dimension's whole coordinate is the mixed-radix number of its letters from left to
 * right: C of NCHW16c at (…, C, …, c) is C * 16 + c.  Where a block is larger than what is
 * left of the dimension, the target is padded with zeros. */
#include "op/nn_kit.h"

/* ---- the strings --------------------------------------------------------------------------- */

Layout nn_layout(OpCall *c, const char *attribute, const char *text)
{
  Layout l;
  const char *why = layout_parse(text, &l);
  if (why) opdef_raise(c, ERR_ARGUMENT, "%s '%s' is no layout: %s", attribute, text, why);
  return l;
}

const Expr *layout_extent(Module *m, const Layout *l, const Expr *const *shape, char capital)
{
  const Expr *extent = shape[layout_find(l, capital)];
  for (int i = 0; i < l->n; i++)
    if (layout_is_small(l->letter[i]) && layout_capital(l->letter[i]) == capital)
      extent = expr_mul(m, extent, shape[i]);
  return nn_simplify(m, extent);
}

void layout_shape(Module *m, const Layout *l, const char *letters, const Expr *const *extent, const Expr **shape)
{
  for (int i = 0; i < l->n; i++) {
    const Expr *whole = extent[strchr(letters, layout_capital(l->letter[i])) - letters];
    int64_t block = layout_block(l, layout_capital(l->letter[i]));
    if (layout_is_small(l->letter[i])) shape[i] = expr_int(m, whole->dtype, l->factor[i]);
    else shape[i] = block == 1 ? whole : nn_simplify(m, nn_ceildiv(m, whole, expr_int(m, whole->dtype, block)));
  }
}

/* How much one step at letter i advances the whole coordinate. */
static int64_t step_of(const Layout *l, int i)
{
  int64_t step = 1;
  for (int j = 0; j < l->n; j++)
    if (layout_is_small(l->letter[j]) && layout_capital(l->letter[j]) == layout_capital(l->letter[i]) &&
        (layout_is_capital(l->letter[i]) || j > i))
      step *= l->factor[j];
  return step;
}

void layout_index(Module *m, const Layout *l, const char *letters, const Expr *const *at, const Expr **index)
{
  for (int i = 0; i < l->n; i++) {
    const Expr *whole = at[strchr(letters, layout_capital(l->letter[i])) - letters];
    int64_t step = step_of(l, i);
    index[i] = step == 1 ? whole : expr_floordiv(m, whole, expr_int(m, whole->dtype, step));
    if (layout_is_small(l->letter[i])) index[i] = expr_floormod(m, index[i], expr_int(m, whole->dtype, l->factor[i]));
  }
}

const Expr *layout_coordinate(Module *m, const Layout *l, const Expr *const *index, char capital)
{
  const Expr *whole = NULL;
  for (int i = 0; i < l->n; i++) {
    if (layout_capital(l->letter[i]) != capital) continue;
    int64_t step = step_of(l, i);
    const Expr *part = step == 1 ? index[i] : expr_mul(m, index[i], expr_int(m, index[i]->dtype, step));
    whole = whole ? expr_add(m, whole, part) : part;
  }
  return whole;
}

/* ---- for layout rules ------------------------------------------------------------------------- */

bool layout_keeps(OpCall *c, const char *from, const char *to, const char *letters)
{
  if (!from || !to) return false;
  Layout a = nn_layout(c, "layout", from);
  Layout b = nn_layout(c, "layout", to);
  if (!layout_same_capitals(&a, &b)) return false;
  for (const char *p = letters; *p; p++)
    if (layout_find(&b, *p) < 0 || layout_is_split(&b, *p)) return false;
  return true;
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
  if (!layout_same_capitals(&ch.src, &ch.dst))
    opdef_raise(c, ERR_ARGUMENT, "there is no way from '%s' to '%s': their dimensions differ", a->src_layout,
                a->dst_layout);
  int n = 0;
  for (int i = 0; i < ch.src.n; i++)
    if (layout_is_capital(ch.src.letter[i])) {
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
