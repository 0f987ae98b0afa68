/* onnx_ops_reduce.c: reductions, positions of extremes, running sums.
 *
 * Comes in: nodes whose axes are an attribute (before opset 13 for ReduceSum, 18 for the
 * others) or an input.  Goes out: our reductions over the same axes. */
#include "frontend/onnx_import.h"

/* A reduction of x over axes; n 0: of single elements, which changes nothing but the formula's ends. */
typedef struct Reduction {
  const Node *(*run)(Conversion *, const Node *x, int n, const int64_t *axes, bool keepdims);
  const Node *x;
  bool keepdims;
} Reduction;

static const Node *over_choice(Conversion *c, int n, const int64_t *axes, void *env)
{
  const Reduction *r = env;
  return r->run(c, r->x, n, axes, r->keepdims);
}

static const Node *over_axes(Conversion *c, const Node *(*run)(Conversion *, const Node *, int, const int64_t *, bool))
{
  const Node *x = kit_in(c, 0);
  const Node *in = kit_opt(c, 1);
  int n = 0;
  int rank = kit_rank_of(c, x);
  int64_t list[MAX_RANK];
  Reduction r = {run, x, onnx_attr_int(c, "keepdims", 1)};
  bool none = in && kit_rank_of(c, in) == 1 && expr_is_int(kit_dim_of(c, in, 0), 0);
  const int64_t *v = none ? NULL : in ? kit_const_ints(c, in, &n) : onnx_attr_ints(c, "axes", &n);
  if (in && !none && !v) return kit_switch_axes(c, in, rank, over_choice, &r);
  if (n > rank) kit_fail(c, ERR_ARGUMENT, "%d axes are named, the input has %d", n, rank);
  if (!n && onnx_attr_int(c, "noop_with_empty_axes", 0)) return run(c, x, 0, list, true);
  for (int i = 0; i < (n ? n : rank); i++) list[i] = n ? kit_axis_of(c, v[i], rank) : i;
  return run(c, x, n ? n : rank, list, r.keepdims);
}

static const Node *run_simple(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  static const struct {
    const char *onnx, *ours;
  } names[] = {
    {"ReduceMax", "max"}, {"ReduceMin", "min"}, {"ReduceMean", "mean"}, {"ReduceProd", "prod"}, {"ReduceSum", "sum"}};
  const char *t = c->op;
  if (dtype_is_bool(kit_dtype_of(c, x)))
    return kit_reduce(c, !strcmp(t, "ReduceMax") ? "any" : "all", x, n, axes, keepdims);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i].onnx, t)) return kit_reduce(c, names[i].ours, x, n, axes, keepdims);
  BUG(c->ctx, "no operator for %s", t);
}

static const Node *run_sum_square(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  return kit_reduce(c, "sum", kit_mul(c, x, x), n, axes, keepdims);
}
static const Node *run_l1(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  return kit_reduce(c, "sum", kit_op1(c, "abs", x, NULL), n, axes, keepdims);
}

/* Integers have no square root of their own. */
static const Node *as_real(Conversion *c, const Node *x)
{
  return dtype_is_int(kit_dtype_of(c, x)) ? kit_cast_to(c, x, DT_F64) : x;
}

static const Node *run_l2(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  const Node *y = as_real(c, x);
  return kit_cast_to(c, kit_sqrt(c, kit_reduce(c, "sum", kit_mul(c, y, y), n, axes, keepdims)), kit_dtype_of(c, x));
}

static const Node *run_log_sum(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  return kit_cast_to(c, kit_op1(c, "log", kit_reduce(c, "sum", as_real(c, x), n, axes, keepdims), NULL),
                     kit_dtype_of(c, x));
}

/* The largest is taken out first, where it is finite, so that nothing overflows. */
static const Node *run_log_sum_exp(Conversion *c, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  if (!n) return x; /* log(exp(x)) */
  const Node *y = as_real(c, x);
  const Node *top = kit_reduce(c, "max", y, n, axes, true);
  top = kit_where(c, kit_op1(c, "isfinite", top, NULL), top, kit_scalar_like(c, y, 0));
  const Node *sum = kit_reduce(c, "sum", kit_exp(c, kit_sub(c, y, top)), n, axes, keepdims);
  const Node *shift = keepdims ? top : kit_op1(c, "squeeze", top, "axis:I", n, axes);
  return kit_cast_to(c, kit_add(c, kit_op1(c, "log", sum, NULL), shift), kit_dtype_of(c, x));
}

static const Node *convert_simple(Conversion *c) { return over_axes(c, run_simple); }
static const Node *convert_sum_square(Conversion *c) { return over_axes(c, run_sum_square); }
static const Node *convert_l1(Conversion *c) { return over_axes(c, run_l1); }
static const Node *convert_l2(Conversion *c) { return over_axes(c, run_l2); }
static const Node *convert_log_sum(Conversion *c) { return over_axes(c, run_log_sum); }
static const Node *convert_log_sum_exp(Conversion *c) { return over_axes(c, run_log_sum_exp); }

static const Node *convert_arg(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x));
  const Node *r =
      kit_op1(c, !strcmp(c->op, "ArgMax") ? "argmax" : "argmin", x, "axis:I,keepdims:i,select_last_index:i", 1, &axis,
              (int)onnx_attr_int(c, "keepdims", 1), (int)onnx_attr_int(c, "select_last_index", 0));
  return kit_cast_to(c, r, DT_I64);
}

static const Node *run_running(Conversion *c, int n, const int64_t *axes, void *env)
{
  const Node *x = env;
  int axis = (int)axes[n - 1];
  const char *op = !strcmp(c->op, "CumSum") ? "cumsum" : "cumprod";
  bool back = onnx_attr_int(c, "reverse", 0);
  if (back) x = kit_op1(c, "reverse", x, "axis:i", axis);
  x = kit_op1(c, op, x, "axis:i,exclusive:i", axis, (int)onnx_attr_int(c, "exclusive", 0));
  return back ? kit_op1(c, "reverse", x, "axis:i", axis) : x;
}

static const Node *convert_running(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *in = kit_in(c, 1);
  int n = 0;
  int rank = kit_rank_of(c, x);
  const int64_t *v = kit_const_ints(c, in, &n);
  if (!v) return kit_switch_axes(c, in, rank, run_running, (void *)(uintptr_t)x);
  int64_t axis = kit_axis_of(c, kit_const_int(c, in, "the axis"), rank);
  return run_running(c, 1, &axis, (void *)(uintptr_t)x);
}

static const OnnxRow rows[] = {
  {"ArgMax", 1, convert_arg},           {"ArgMin", 1, convert_arg},
  {"CumProd", 26, convert_running},     {"CumSum", 11, convert_running},
  {"ReduceL1", 1, convert_l1},          {"ReduceL2", 1, convert_l2},
  {"ReduceLogSum", 1, convert_log_sum}, {"ReduceLogSumExp", 1, convert_log_sum_exp},
  {"ReduceMax", 1, convert_simple},     {"ReduceMean", 1, convert_simple},
  {"ReduceMin", 1, convert_simple},     {"ReduceProd", 1, convert_simple},
  {"ReduceSum", 1, convert_simple},     {"ReduceSumSquare", 1, convert_sum_square},
};
ONNX_TABLE(onnx_ops_reduce, "", rows);
