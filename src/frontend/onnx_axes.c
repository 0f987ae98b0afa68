/* onnx_axes.c: axes that are known only at run time.
 *
 * Comes in: an operand that names axes; how many it names is known, which is not.  Goes
 * out: for operators that need the axes when they are compiled, one branch per choice;
 * for those that take sizes, the sizes computed from the operand. */
#include "frontend/onnx_import.h"

enum { MAX_CHOICES = 128 };

/* The set of axes as bits: its sum of 1 << axis. */
static const Node *axes_bits(Conv *c, const Node *axes, int rank)
{
  axes = op2(c, "floor_mod", cast_to(c, axes, DT_I64), scalar(c, DT_I64, rank), NULL);
  return reduce1(c, "sum", op2(c, "left_shift", scalar(c, DT_I64, 1), axes, NULL), 0, false);
}

static int next_choice(int set, int rank, int n)
{
  for (set++; set < 1 << rank; set++)
    if (__builtin_popcount((unsigned)set) == n) return set;
  return -1;
}

static const Node *one_choice(Conv *c, int set, int rank, AxesFn fn, void *env)
{
  int64_t axes[32];
  int n = 0;
  for (int i = 0; i < rank; i++)
    if (set >> i & 1) axes[n++] = i;
  return fn(c, n, axes, env);
}

const Node *switch_axes(Conv *c, const Node *axes, int rank, AxesFn fn, void *env)
{
  axes = vector_of(c, axes);
  int n = (int)static_dim(c, axes, 0);
  int choices[MAX_CHOICES];
  int count = 0;
  if (n < 1 || n > rank || rank > 16)
    conv_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are not supported", n, rank);
  for (int set = next_choice(0, rank, n); set > 0; set = next_choice(set, rank, n)) {
    if (count == MAX_CHOICES)
      conv_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are too many to choose from", n, rank);
    choices[count++] = set;
  }
  const Node *bits = axes_bits(c, axes, rank);
  const Node *r = one_choice(c, choices[count - 1], rank, fn, env);
  for (int i = count - 2; i >= 0; i--)
    r = node_if(c->m, op2(c, "equal", bits, scalar(c, DT_I64, choices[i]), NULL),
                one_choice(c, choices[i], rank, fn, env), r);
  return r;
}

/* values[k] for the k with axes[k] == axis, or what `otherwise` says. */
const Node *pick_axis(Conv *c, const Node *axes, const Node *values, int axis, int rank, const Node *otherwise)
{
  axes = op2(c, "floor_mod", cast_to(c, axes, DT_I64), scalar(c, DT_I64, rank), NULL);
  const Node *hit = op2(c, "equal", axes, scalar(c, DT_I64, axis), NULL);
  const Node *value = reduce1(c, "sum", where(c, hit, cast_to(c, values, DT_I64), scalar(c, DT_I64, 0)), 0, true);
  return where(c, reduce1(c, "any", hit, 0, true), value, otherwise);
}

/* 1 at the positions that axes name, 0 elsewhere: an int64 vector of `rank`. */
static const Node *marks(Conv *c, const Node *axes, int rank)
{
  axes = op2(c, "floor_mod", cast_to(c, vector_of(c, axes), DT_I64), scalar(c, DT_I64, rank), NULL);
  const Node *hit =
      op2(c, "equal", unsqueeze(c, iota(c, scalar(c, DT_I64, rank), DT_I64), 1), unsqueeze(c, axes, 0), NULL);
  return cast_to(c, reduce1(c, "any", hit, 1, false), DT_I64);
}

/* New axes are 1; the others take the input's extents in turn. */
const Node *unsqueeze_at(Conv *c, const Node *x, const Node *axes)
{
  int rank = rank_of(c, x);
  int total = rank + (int)static_dim(c, vector_of(c, axes), 0);
  const Node *is_new = marks(c, axes, total);
  const Node *index = iota(c, scalar(c, DT_I64, total), DT_I64);
  /* old axes before this one */
  const Node *before = sub(c, index, op1(c, "cumsum", is_new, "axis:i,exclusive:i", 0, 1));
  const Node *one = const_i64(c, 1, (int64_t[]){1});
  const Node *old =
      rank ? op2(c, "take", shape_of(c, x), min2(c, before, scalar(c, DT_I64, rank - 1)), "axis:i,mode:s", 0, "clip")
           : one;
  return reshape_to(c, x, where(c, op2(c, "greater", is_new, scalar(c, DT_I64, 0), NULL), one, old), true);
}

/* The extents of the axes that stay, in order. */
const Node *squeeze_at(Conv *c, const Node *x, const Node *axes)
{
  int rank = rank_of(c, x);
  int left = rank - (int)static_dim(c, vector_of(c, axes), 0);
  if (left < 0) conv_fail(c, ERR_ARGUMENT, "%d axes are dropped, the input has %d", rank - left, rank);
  const Node *gone = marks(c, axes, rank);
  const Node *index = iota(c, scalar(c, DT_I64, rank), DT_I64);
  /* those that stay sort first */
  const Node *order = add(c, mul(c, gone, scalar(c, DT_I64, rank)), index);
  const Node *stay = slice(c, op1(c, "sort", order, "axis:i,is_ascend:i", 0, 1), 0, 0, left);
  return reshape_to(c, x, op2(c, "take", shape_of(c, x), stay, "axis:i,mode:s", 0, "clip"), true);
}
