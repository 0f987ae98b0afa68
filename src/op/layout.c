/* layout.c: layout strings, and the layout rules of element-by-element operators.
 *
 * A layout is a string of axes: capitals are the axes of the tensor as the graph had
 * it, a number with a small letter is the inner part of a split axis ("NCHW16c": the
 * channels in blocks of 16, innermost).  `from` names every axis once. */
#include "op/op.h"

/* ---- the strings --------------------------------------------------------------------------- */

bool layout_is_capital(char c) { return c >= 'A' && c <= 'Z'; }
bool layout_is_small(char c) { return c >= 'a' && c <= 'z'; }
char layout_capital(char c) { return layout_is_small(c) ? (char)(c - 'a' + 'A') : c; }

int layout_find(const Layout *l, char letter)
{
  for (int i = 0; i < l->n; i++)
    if (l->letter[i] == letter) return i;
  return -1;
}

bool layout_is_plain(const char *text)
{
  Layout l;
  if (layout_parse(text, &l)) return false;
  for (int i = 0; i < l.n; i++)
    if (l.factor[i]) return false;
  return true;
}

bool layout_is_split(const Layout *l, char capital) { return layout_find(l, (char)(capital - 'A' + 'a')) >= 0; }

int64_t layout_block(const Layout *l, char capital)
{
  int64_t block = 1;
  for (int i = 0; i < l->n; i++)
    if (layout_is_small(l->letter[i]) && layout_capital(l->letter[i]) == capital) block *= l->factor[i];
  return block;
}

const char *layout_parse(const char *text, Layout *l)
{
  *l = (Layout){.text = text};
  if (!text || !*text) return "it is empty";
  int64_t factor = 0;
  for (const char *p = text; *p; p++) {
    if (*p >= '0' && *p <= '9') {
      factor = factor * 10 + (*p - '0');
      if (factor > 1 << 20) return "a block is larger than 2^20";
      continue;
    }
    if (l->n == LAYOUT_MAX) return "it has too many dimensions";
    if (layout_is_capital(*p) && factor) return "a number belongs before a small letter";
    if (layout_is_capital(*p) && layout_find(l, *p) >= 0) return "a capital occurs twice";
    if (layout_is_small(*p) && !factor) return "a small letter needs the size of its block before it";
    if (!layout_is_capital(*p) && !layout_is_small(*p)) return "only letters and numbers may occur";
    l->letter[l->n] = *p;
    l->factor[l->n++] = factor;
    factor = 0;
  }
  if (factor) return "it ends in a number";
  for (int i = 0; i < l->n; i++)
    if (layout_is_small(l->letter[i]) && layout_find(l, layout_capital(l->letter[i])) < 0)
      return "a small letter has no capital";
  return NULL;
}

bool layout_same_capitals(const Layout *a, const Layout *b)
{
  int na = 0;
  int nb = 0;
  for (int i = 0; i < a->n; i++)
    if (layout_is_capital(a->letter[i])) {
      na++;
      if (layout_find(b, a->letter[i]) < 0) return false;
    }
  for (int i = 0; i < b->n; i++) nb += layout_is_capital(b->letter[i]);
  return na == nb;
}

/* Where a dimension that `from` has whole stands in `to`; -1: nowhere. */
static int place_of(const LayoutPair *pair, int axis, Layout *to)
{
  Layout from;
  if (layout_parse(pair->from, &from) || layout_parse(pair->to, to) || axis < 0 || axis >= from.n) return -1;
  char letter = from.letter[axis];
  bool whole = layout_is_capital(letter) && !layout_is_split(&from, letter);
  return whole && layout_same_capitals(&from, to) ? layout_find(to, letter) : -1;
}

int layout_outer_axis(const LayoutPair *pair, int axis)
{
  Layout to;
  return layout_is_plain(pair->from) ? place_of(pair, axis, &to) : -1;
}

int layout_axis(const LayoutPair *pair, int axis)
{
  Layout to;
  int at = place_of(pair, axis, &to);
  return at >= 0 && !layout_is_split(&to, to.letter[at]) ? at : -1;
}

/* ---- rules ------------------------------------------------------------------------------------ */

static const char no_attrs[1] = {0};

const void *layout_keep_attrs(OpCall *c) { return c->attrs ? c->attrs : no_attrs; }

const void *layout_any(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  if (c->nargs < 1 || !arg[0].to) return NULL;
  out[0] = arg[0];
  return layout_keep_attrs(c);
}

static bool all_ones(const Type *ty)
{
  for (int d = 0; d < ty->ndim; d++)
    if (!expr_is_int(ty->shape[d], 1)) return false;
  return true;
}

/* The target without the axes that the argument lacks; false when one of those is not
 * in front, since broadcasting adds axes in front only.  A split axis of extent 1 comes in blocks of 1. */
static bool drop_axes(const Layout *to, const char *lacks, size_t nlacks, const char *ones, Text *out)
{
  bool begun = false;
  for (int i = 0; i < to->n; i++) {
    if (memchr(lacks, layout_capital(to->letter[i]), nlacks)) {
      if (begun) return false;
      continue;
    }
    begun = true;
    bool one = strchr(ones, layout_capital(to->letter[i])) != NULL;
    if (to->factor[i]) text_printf(out, "%" PRId64, one ? 1 : to->factor[i]);
    text_char(out, to->letter[i]);
  }
  return true;
}

/* How argument i must lie when the output lies as `want`; false: it cannot. */
static bool match_argument(OpCall *c, int i, int lead, LayoutPair want, LayoutPair *arg)
{
  const Type *ty = c->arg[i];
  const Type *whole = c->arg[lead];
  size_t rank = strlen(want.from);
  size_t lacks = rank - (size_t)ty->ndim;
  if (all_ones(ty)) {
    arg->to = arg->from;
    return true;
  }
  if ((size_t)ty->ndim > rank) return false;
  if (lacks == 0 && arg->from && strcmp(arg->from, want.from)) return false;
  Layout goal;
  if (layout_parse(want.to, &goal)) return false;
  char ones[LAYOUT_MAX + 1] = {0};
  int nones = 0;
  for (int d = 0; d < ty->ndim; d++) {
    char letter = want.from[lacks + (size_t)d];
    if (!layout_is_split(&goal, letter) || dim_same(c->m, ty->shape[d], whole->shape[lacks + (size_t)d])) continue;
    if (!expr_is_int(ty->shape[d], 1)) return false;
    ones[nones++] = letter;
  }
  Text to = text_new(c->m->arena);
  if (!drop_axes(&goal, want.from, lacks, ones, &to)) return false;
  arg->from = arena_strdup(c->m->arena, want.from + lacks);
  arg->to = text_str(&to);
  return true;
}

const void *layout_broadcast(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  int lead = -1;
  for (int i = 0; i < c->nargs; i++) {
    if (c->arg[i]->kind != TY_TENSOR) return NULL;
    if (lead < 0 && arg[i].from && arg[i].to && strcmp(arg[i].from, arg[i].to) &&
        (int)strlen(arg[i].from) == c->arg[i]->ndim)
      lead = i;
  }
  if (lead < 0) return NULL;
  for (int i = 0; i < c->nargs; i++)
    if (c->arg[i]->ndim > c->arg[lead]->ndim) return NULL;
  LayoutPair want = arg[lead];
  for (int i = 0; i < c->nargs; i++)
    if (i != lead && !match_argument(c, i, lead, want, &arg[i])) return NULL;
  out[0] = want;
  return layout_keep_attrs(c);
}
