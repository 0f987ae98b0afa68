/* kit_axes.c: axes that are known only at run time.
 *
 * Comes in: an operand that names axes; how many it names is known, which is not.  Goes
 * out: for operators that need the axes when they are compiled, one branch per choice;
 * for those that take sizes, the sizes computed from the operand. */
#include "frontend/kit.h"

enum { MAX_CHOICES = 128 };

/* The set of axes as bits: its sum of 1 << axis. */
static const Node *axes_bits(Conversion *c, const Node *axes, int rank)
{
  axes = kit_op2(c, "floor_mod", kit_cast_to(c, axes, DT_I64), kit_scalar(c, DT_I64, rank), NULL);
  return kit_reduce1(c, "sum", kit_op2(c, "left_shift", kit_scalar(c, DT_I64, 1), axes, NULL), 0, false);
}

static int next_choice(int set, int rank, int n)
{
  for (set++; set < 1 << rank; set++)
    if (__builtin_popcount((unsigned)set) == n) return set;
  return -1;
}

static const Node *one_choice(Conversion *c, int set, int rank, AxesFn fn, void *env)
{
  int64_t axes[32];
  int n = 0;
  for (int i = 0; i < rank; i++)
    if (set >> i & 1) axes[n++] = i;
  return fn(c, n, axes, env);
}

const Node *kit_switch_axes(Conversion *c, const Node *axes, int rank, AxesFn fn, void *env)
{
  axes = kit_vector_of(c, axes);
  int n = (int)kit_static_dim(c, axes, 0);
  int choices[MAX_CHOICES];
  int count = 0;
  if (n < 1 || n > rank || rank > 16)
    kit_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are not supported", n, rank);
  for (int set = next_choice(0, rank, n); set > 0; set = next_choice(set, rank, n)) {
    if (count == MAX_CHOICES)
      kit_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are too many to choose from", n, rank);
    choices[count++] = set;
  }
  const Node *bits = axes_bits(c, axes, rank);
  const Node *r = one_choice(c, choices[count - 1], rank, fn, env);
  for (int i = count - 2; i >= 0; i--)
    r = node_if(c->m, kit_op2(c, "equal", bits, kit_scalar(c, DT_I64, choices[i]), NULL),
                one_choice(c, choices[i], rank, fn, env), r);
  return r;
}

/* values[k] for the k with axes[k] == axis, or what `otherwise` says. */
const Node *kit_pick_axis(Conversion *c, const Node *axes, const Node *values, int axis, int rank,
                          const Node *otherwise)
{
  axes = kit_op2(c, "floor_mod", kit_cast_to(c, axes, DT_I64), kit_scalar(c, DT_I64, rank), NULL);
  const Node *hit = kit_op2(c, "equal", axes, kit_scalar(c, DT_I64, axis), NULL);
  const Node *value =
      kit_reduce1(c, "sum", kit_where(c, hit, kit_cast_to(c, values, DT_I64), kit_scalar(c, DT_I64, 0)), 0, true);
  return kit_where(c, kit_reduce1(c, "any", hit, 0, true), value, otherwise);
}

/* 1 at the positions that axes name, 0 elsewhere: an int64 vector of `rank`. */
static const Node *marks(Conversion *c, const Node *axes, int rank)
{
  axes = kit_op2(c, "floor_mod", kit_cast_to(c, kit_vector_of(c, axes), DT_I64), kit_scalar(c, DT_I64, rank), NULL);
  const Node *hit = kit_op2(c, "equal", kit_unsqueeze(c, kit_iota(c, kit_scalar(c, DT_I64, rank), DT_I64), 1),
                            kit_unsqueeze(c, axes, 0), NULL);
  return kit_cast_to(c, kit_reduce1(c, "any", hit, 1, false), DT_I64);
}

/* New axes are 1; the others take the input's extents in turn. */
const Node *kit_unsqueeze_at(Conversion *c, const Node *x, const Node *axes)
{
  int rank = kit_rank_of(c, x);
  int total = rank + (int)kit_static_dim(c, kit_vector_of(c, axes), 0);
  const Node *is_new = marks(c, axes, total);
  const Node *index = kit_iota(c, kit_scalar(c, DT_I64, total), DT_I64);
  /* old axes before this one */
  const Node *before = kit_sub(c, index, kit_op1(c, "cumsum", is_new, "axis:i,exclusive:i", 0, 1));
  const Node *one = kit_const_i64(c, 1, (int64_t[]){1});
  const Node *old = rank ? kit_op2(c, "take", kit_shape_of(c, x), kit_min2(c, before, kit_scalar(c, DT_I64, rank - 1)),
                                   "axis:i,mode:s", 0, "clip")
                         : one;
  return kit_reshape_to(c, x, kit_where(c, kit_op2(c, "greater", is_new, kit_scalar(c, DT_I64, 0), NULL), one, old),
                        true);
}

/* The extents of the axes that stay, in order. */
const Node *kit_squeeze_at(Conversion *c, const Node *x, const Node *axes)
{
  int rank = kit_rank_of(c, x);
  int left = rank - (int)kit_static_dim(c, kit_vector_of(c, axes), 0);
  if (left < 0) kit_fail(c, ERR_ARGUMENT, "%d axes are dropped, the input has %d", rank - left, rank);
  const Node *gone = marks(c, axes, rank);
  const Node *index = kit_iota(c, kit_scalar(c, DT_I64, rank), DT_I64);
  /* those that stay sort first */
  const Node *order = kit_add(c, kit_mul(c, gone, kit_scalar(c, DT_I64, rank)), index);
  const Node *stay = kit_slice(c, kit_op1(c, "sort", order, "axis:i,is_ascend:i", 0, 1), 0, 0, left);
  return kit_reshape_to(c, x, kit_op2(c, "take", kit_shape_of(c, x), stay, "axis:i,mode:s", 0, "clip"), true);
}
