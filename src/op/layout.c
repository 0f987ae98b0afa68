/* layout.c: layout rules of element-by-element operators.
 *
 * A layout is a string of axes: capitals are the axes of the tensor as the graph had
 * it, a number with a small letter is the inner part of a split axis ("NCHW16c": the
 * channels in blocks of 16, innermost).  `from` names every axis once. */
#include "op/op.h"

static const char no_attrs[1] = {0};

const void *layout_keep_attrs(OpCall *c) { return c->attrs ? c->attrs : no_attrs; }

const void *layout_any(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  if (c->nargs < 1 || !arg[0].to) return NULL;
  out[0] = arg[0];
  return layout_keep_attrs(c);
}

static bool is_axis(char ch) { return ch >= 'A' && ch <= 'Z'; }

/* Is the axis split in this layout? */
static bool is_split(const char *to, char axis) { return strchr(to, axis - 'A' + 'a') != NULL; }

static bool all_ones(const Type *ty)
{
  for (int d = 0; d < ty->ndim; d++)
    if (!expr_is_int(ty->shape[d], 1)) return false;
  return true;
}

/* The target without the axes that the argument lacks; false when one of those is not
 * in front, since broadcasting adds axes in front only. */
static bool drop_axes(const char *to, const char *lacks, size_t nlacks, Text *out)
{
  bool begun = false;
  for (const char *p = to; *p; p++) {
    const char *start = p;
    while (*p >= '0' && *p <= '9') p++;
    char axis = is_axis(*p) ? *p : (char)(*p - 'a' + 'A');
    if (memchr(lacks, axis, nlacks)) {
      if (begun) return false;
      continue;
    }
    begun = true;
    text_addn(out, start, (size_t)(p - start) + 1);
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
  for (int d = 0; d < ty->ndim; d++)
    if (is_split(want.to, want.from[lacks + (size_t)d]) &&
        !dim_same(c->m, ty->shape[d], whole->shape[lacks + (size_t)d]))
      return false;
  Text to = text_new(c->m->arena);
  if (!drop_axes(want.to, want.from, lacks, &to)) return false;
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
