/* onnx_axes.c: axes that are known only at run time.
 *
 * Comes in: an operand that names axes; how many it names is known, which is not.  Goes
 * out: for operators that need the axes when they are compiled, one branch per choice;
 * for those that take sizes, the sizes computed from the operand. */
#include "frontend/onnx_import.h"

enum { MAX_CHOICES = 128 };

/* The set of axes as bits: its sum of 1 << axis. */
static const Node *axes_bits(Conversion *c, const Node *axes, int rank)
{
  axes = onnx_op2(c, "floor_mod", onnx_cast_to(c, axes, DT_I64), onnx_scalar(c, DT_I64, rank), NULL);
  return onnx_reduce1(c, "sum", onnx_op2(c, "left_shift", onnx_scalar(c, DT_I64, 1), axes, NULL), 0, false);
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

const Node *onnx_switch_axes(Conversion *c, const Node *axes, int rank, AxesFn fn, void *env)
{
  axes = onnx_vector_of(c, axes);
  int n = (int)onnx_static_dim(c, axes, 0);
  int choices[MAX_CHOICES];
  int count = 0;
  if (n < 1 || n > rank || rank > 16)
    onnx_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are not supported", n, rank);
  for (int set = next_choice(0, rank, n); set > 0; set = next_choice(set, rank, n)) {
    if (count == MAX_CHOICES)
      onnx_fail(c, ERR_UNSUPPORTED, "%d axes of %d, known only at run time, are too many to choose from", n, rank);
    choices[count++] = set;
  }
  const Node *bits = axes_bits(c, axes, rank);
  const Node *r = one_choice(c, choices[count - 1], rank, fn, env);
  for (int i = count - 2; i >= 0; i--)
    r = node_if(c->m, onnx_op2(c, "equal", bits, onnx_scalar(c, DT_I64, choices[i]), NULL),
                one_choice(c, choices[i], rank, fn, env), r);
  return r;
}

/* values[k] for the k with axes[k] == axis, or what `otherwise` says. */
const Node *onnx_pick_axis(Conversion *c, const Node *axes, const Node *values, int axis, int rank,
                           const Node *otherwise)
{
  axes = onnx_op2(c, "floor_mod", onnx_cast_to(c, axes, DT_I64), onnx_scalar(c, DT_I64, rank), NULL);
  const Node *hit = onnx_op2(c, "equal", axes, onnx_scalar(c, DT_I64, axis), NULL);
  const Node *value =
      onnx_reduce1(c, "sum", onnx_where(c, hit, onnx_cast_to(c, values, DT_I64), onnx_scalar(c, DT_I64, 0)), 0, true);
  return onnx_where(c, onnx_reduce1(c, "any", hit, 0, true), value, otherwise);
}

/* 1 at the positions that axes name, 0 elsewhere: an int64 vector of `rank`. */
static const Node *marks(Conversion *c, const Node *axes, int rank)
{
  axes = onnx_op2(c, "floor_mod", onnx_cast_to(c, onnx_vector_of(c, axes), DT_I64), onnx_scalar(c, DT_I64, rank), NULL);
  const Node *hit = onnx_op2(c, "equal", onnx_unsqueeze(c, onnx_iota(c, onnx_scalar(c, DT_I64, rank), DT_I64), 1),
                             onnx_unsqueeze(c, axes, 0), NULL);
  return onnx_cast_to(c, onnx_reduce1(c, "any", hit, 1, false), DT_I64);
}

/* New axes are 1; the others take the input's extents in turn. */
const Node *onnx_unsqueeze_at(Conversion *c, const Node *x, const Node *axes)
{
  int rank = onnx_rank_of(c, x);
  int total = rank + (int)onnx_static_dim(c, onnx_vector_of(c, axes), 0);
  const Node *is_new = marks(c, axes, total);
  const Node *index = onnx_iota(c, onnx_scalar(c, DT_I64, total), DT_I64);
  /* old axes before this one */
  const Node *before = onnx_sub(c, index, onnx_op1(c, "cumsum", is_new, "axis:i,exclusive:i", 0, 1));
  const Node *one = onnx_const_i64(c, 1, (int64_t[]){1});
  const Node *old = rank ? onnx_op2(c, "take", onnx_shape_of(c, x),
                                    onnx_min2(c, before, onnx_scalar(c, DT_I64, rank - 1)), "axis:i,mode:s", 0, "clip")
                         : one;
  return onnx_reshape_to(c, x, onnx_where(c, onnx_op2(c, "greater", is_new, onnx_scalar(c, DT_I64, 0), NULL), one, old),
                         true);
}

/* The extents of the axes that stay, in order. */
const Node *onnx_squeeze_at(Conversion *c, const Node *x, const Node *axes)
{
  int rank = onnx_rank_of(c, x);
  int left = rank - (int)onnx_static_dim(c, onnx_vector_of(c, axes), 0);
  if (left < 0) onnx_fail(c, ERR_ARGUMENT, "%d axes are dropped, the input has %d", rank - left, rank);
  const Node *gone = marks(c, axes, rank);
  const Node *index = onnx_iota(c, onnx_scalar(c, DT_I64, rank), DT_I64);
  /* those that stay sort first */
  const Node *order = onnx_add(c, onnx_mul(c, gone, onnx_scalar(c, DT_I64, rank)), index);
  const Node *stay = onnx_slice(c, onnx_op1(c, "sort", order, "axis:i,is_ascend:i", 0, 1), 0, 0, left);
  return onnx_reshape_to(c, x, onnx_op2(c, "take", onnx_shape_of(c, x), stay, "axis:i,mode:s", 0, "clip"), true);
}
