/* random_graph.h: small random models from the operator table, for test_random_graphs.c.
 *
 * A pool of values starts with a few inputs, some with a size that only the run tells;
 * each step picks an operator and values from the pool.  What the operator's type rule
 * refuses is tried again otherwise, so the rules themselves say what is legal.
 *
 * A value is exact when it comes from inputs by operators that only move, compare or
 * select: an operator whose result jumps (rounding, comparing, sorting) takes exact values
 * alone, since others may differ in their last bits. */
#ifndef LATHE_RANDOM_GRAPH_H
#define LATHE_RANDOM_GRAPH_H

#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

enum { MAX_POOL = 96, MAX_ELEMENTS = 4096 };

typedef struct Rand {
  uint64_t state;
} Rand;
static inline uint32_t rand_next(Rand *r)
{
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = r->state ^ r->state >> 29;
  return (uint32_t)(x >> 16);
}
static inline int rand_below(Rand *r, int n) { return (int)(rand_next(r) % (uint32_t)n); }
static inline bool rand_chance(Rand *r, int percent) { return rand_below(r, 100) < percent; }

typedef struct Pool {
  Rand r;
  Module *m;
  const Expr *n; /* the open size */
  int count, ninput;
  const Node *node[MAX_POOL];
  bool exact[MAX_POOL];
  const Node *input[8];
  int kind;      /* of the step being tried */
  bool is_exact; /* what the step makes of exact values */
  const Node *made;
} Pool;

/* ---- picking ---------------------------------------------------------------------------- */

#define PICK(p, list) (list)[rand_below(&(p)->r, (int)(sizeof(list) / sizeof *(list)))]

static inline bool is_tensor(const Node *n, int code, int bits, int ndim)
{
  const Type *t = n->type;
  return t->kind == TY_TENSOR && t->dtype.code == code && t->dtype.bits == bits && (ndim < 0 || t->ndim == ndim);
}

_Noreturn static inline void give_up(Pool *p) { raise(p->m->ctx, ERR_ARGUMENT, NOWHERE, "nothing fits"); }

/* A value of the pool; newer ones more often.  ndim -1: any.  exact: exact ones alone. */
static inline const Node *pick(Pool *p, int code, int bits, int ndim, bool exact)
{
  for (int t = 0; t < 24; t++) {
    int i = rand_chance(&p->r, 50) ? p->count - 1 - rand_below(&p->r, p->count < 4 ? p->count : 4)
                                   : rand_below(&p->r, p->count);
    if (!is_tensor(p->node[i], code, bits, ndim) || (exact && !p->exact[i])) continue;
    p->is_exact = p->is_exact && p->exact[i];
    return p->node[i];
  }
  give_up(p);
}
static inline const Node *pick_float(Pool *p, int ndim) { return pick(p, DT_FLOAT, 32, ndim, false); }
static inline const Node *pick_exact(Pool *p, int ndim) { return pick(p, DT_FLOAT, 32, ndim, true); }
static inline const Node *pick_int(Pool *p, int ndim) { return pick(p, DT_INT, 32, ndim, true); }

static inline int64_t static_extent(Pool *p, const Node *n, int axis)
{
  const Expr *e = n->type->shape[axis];
  if (e->kind != E_INT) give_up(p);
  return e->u.i;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Attributes: pairs of name and text, NULL at the end. */
static inline const void *with_attrs(Pool *p, const OpDef *op, const char *const *text)
{
  void *a = op->attrs ? attrs_new(p->m, op->attrs) : NULL;
  for (; text && *text; text += 2) attrs_set_text(p->m, op->attrs, a, text[0], text[1]);
  return a;
}
#define ATTRS(...) \
  (const char *const[]) { __VA_ARGS__, NULL }
static inline const Node *call(Pool *p, const char *name, int n, const Node *const *arg, const char *const *attrs)
{
  const OpDef *op = opdef_get(p->m->ctx, name);
  return node_call(p->m, op, n, arg, with_attrs(p, op, attrs), NULL);
}
static inline const Node *call1(Pool *p, const char *name, const Node *a, const char *const *attrs)
{
  return call(p, name, 1, (const Node *[]){a}, attrs);
}
static inline const Node *call2(Pool *p, const char *name, const Node *a, const Node *b, const char *const *attrs)
{
  return call(p, name, 2, (const Node *[]){a, b}, attrs);
}
static inline const char *num_text(Pool *p, int64_t v) { return arena_printf(p->m->arena, "%" PRId64, v); }
static inline const char *pair_text(Pool *p, int64_t a, int64_t b)
{
  return arena_printf(p->m->arena, "[%" PRId64 ", %" PRId64 "]", a, b);
}

/* A constant of floats in [lo, hi). */
static inline const Node *floats(Pool *p, int ndim, const int64_t *shape, double lo, double hi)
{
  size_t n = 1;
  for (int i = 0; i < ndim; i++) n *= (size_t)shape[i];
  if (n > 4 * MAX_ELEMENTS) give_up(p);
  float *v = arena_alloc(p->m->arena, n * sizeof *v + 1);
  for (size_t i = 0; i < n; i++) v[i] = (float)(lo + (hi - lo) * rand_below(&p->r, 1000) / 1000);
  return node_const_copy(p->m, DT_F32, ndim, shape, v);
}
static inline const Node *ints(Pool *p, DType t, int n, int lo, int hi)
{
  char *v = arena_alloc(p->m->arena, (size_t)n * 8 + 1);
  for (int i = 0; i < n; i++) value_store(value_int(t, lo + rand_below(&p->r, hi - lo)), v + i * dtype_bytes(t));
  return node_const_copy(p->m, t, 1, (int64_t[]){n}, v);
}

/* Something that broadcasts against a: of the pool, a scalar, a vector over its last or channel axis. */
static inline const Node *partner(Pool *p, const Node *a)
{
  int ndim = a->type->ndim;
  int way = rand_below(&p->r, 5);
  if (way == 0 || !ndim) return floats(p, 0, NULL, -1, 1);
  if (way == 1) return floats(p, 1, (int64_t[]){static_extent(p, a, ndim - 1)}, -1, 1);
  if (way == 2 && ndim >= 3) {
    int64_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    shape[1] = static_extent(p, a, 1);
    return floats(p, ndim, shape, -1, 1);
  }
  return pick_float(p, -1);
}

/* ---- steps: each gives a new value or raises ------------------------------------------------------ */

static inline const Node *step_smooth(Pool *p)
{
  static const char *const names[] = {"tanh", "sigmoid", "erf", "sin", "cos", "atan"};
  const Node *x = pick_float(p, -1);
  p->is_exact = false;
  if (rand_chance(&p->r, 20)) return call1(p, "sqrt", call1(p, "abs", x, NULL), NULL);
  if (rand_chance(&p->r, 20)) return call1(p, "exp", call1(p, "clip", x, ATTRS("a_min", "-4.0", "a_max", "3.0")), NULL);
  if (rand_chance(&p->r, 20))
    return call1(p, "log", call2(p, "add", call1(p, "abs", x, NULL), op_number(p->m, DT_F32, 0.5), NULL), NULL);
  return call1(p, PICK(p, names), x, NULL);
}
static inline const Node *step_exact(Pool *p)
{
  static const char *const names[] = {"negative", "abs", "nn.relu", "copy"};
  const Node *x = pick_float(p, -1);
  if (rand_chance(&p->r, 20)) return call1(p, "clip", x, ATTRS("a_min", "-0.5", "a_max", "0.75"));
  if (rand_chance(&p->r, 20)) return call1(p, "nn.leaky_relu", x, ATTRS("alpha", "0.25"));
  return call1(p, PICK(p, names), x, NULL);
}
static inline const Node *step_jump(Pool *p)
{
  static const char *const names[] = {"floor", "ceil", "round", "trunc", "sign"};
  return call1(p, PICK(p, names), pick_exact(p, -1), NULL);
}
static inline const Node *step_arithmetic(Pool *p)
{
  static const char *const names[] = {"add", "subtract", "multiply", "add", "multiply"};
  const Node *a = pick_float(p, -1);
  const Node *b = partner(p, a);
  p->is_exact = false;
  if (rand_chance(&p->r, 15))
    return call2(p, "divide", a, call2(p, "add", call1(p, "abs", b, NULL), op_number(p->m, DT_F32, 0.5), NULL), NULL);
  return rand_chance(&p->r, 50) ? call2(p, PICK(p, names), a, b, NULL) : call2(p, PICK(p, names), b, a, NULL);
}
static inline const Node *step_extreme(Pool *p)
{
  const Node *a = pick_float(p, -1);
  return call2(p, rand_chance(&p->r, 50) ? "maximum" : "minimum", a, partner(p, a), NULL);
}
static inline const Node *step_compare(Pool *p)
{
  static const char *const names[] = {"less", "greater_equal", "equal", "not_equal"};
  return call2(p, PICK(p, names), pick_exact(p, -1), pick_exact(p, -1), NULL);
}
static inline const Node *step_where(Pool *p)
{
  const Node *c = pick(p, DT_UINT, 1, -1, true);
  const Node *a = pick_float(p, -1);
  const Node *b = partner(p, a);
  return call(p, "where", 3, (const Node *[]){c, a, b}, NULL);
}
static inline const Node *step_cast(Pool *p)
{
  static const char *const to[] = {"int32", "int64", "bool", "float16", "float64", "uint8"};
  const char *dtype = PICK(p, to);
  if (rand_chance(&p->r, 50)) return call1(p, "cast", pick_int(p, -1), ATTRS("dtype", "float32"));
  return call1(p, "cast", pick_exact(p, -1), ATTRS("dtype", dtype));
}
/* It stays float16, so that it is compared as one. */
static inline const Node *step_half(Pool *p)
{
  const Node *x = call1(p, "cast", pick_float(p, -1), ATTRS("dtype", "float16"));
  p->is_exact = false;
  return call2(p, "multiply", x, x, NULL);
}
static inline const Node *step_int(Pool *p)
{
  static const char *const names[] = {"add",         "subtract",   "multiply",    "floor_divide",
                                      "floor_mod",   "maximum",    "minimum",     "bitwise_and",
                                      "bitwise_xor", "left_shift", "right_shift", "trunc_mod"};
  return call2(p, PICK(p, names), pick_int(p, -1), pick_int(p, -1), NULL);
}
static inline const Node *step_reduce(Pool *p)
{
  static const char *const names[] = {"sum", "mean", "max", "min", "variance", "prod", "logsumexp"};
  const char *name = PICK(p, names);
  const Node *x = pick_float(p, -1);
  p->is_exact = p->is_exact && (!strcmp(name, "max") || !strcmp(name, "min"));
  int axis = rand_below(&p->r, x->type->ndim + 1);
  const char *axes = axis == x->type->ndim ? "None"
                     : rand_chance(&p->r, 30)
                         ? pair_text(p, axis, 0)
                         : arena_printf(p->m->arena, "[%d]", axis - (rand_chance(&p->r, 50) ? x->type->ndim : 0));
  return call1(p, name, x,
               ATTRS("axis", axes, "keepdims", rand_chance(&p->r, 50) ? "True" : "False", "exclude",
                     rand_chance(&p->r, 10) ? "True" : "False"));
}
static inline const Node *step_arg_reduce(Pool *p)
{
  const Node *x = pick_exact(p, -1);
  return call1(p, rand_chance(&p->r, 50) ? "argmax" : "argmin", x,
               ATTRS("axis", arena_printf(p->m->arena, "[%d]", rand_below(&p->r, x->type->ndim + 1)), "keepdims",
                     rand_chance(&p->r, 50) ? "True" : "False"));
}
static inline const Node *step_softmax(Pool *p)
{
  p->is_exact = false;
  return call1(p, rand_chance(&p->r, 70) ? "nn.softmax" : "nn.log_softmax", pick_float(p, -1),
               ATTRS("axis", num_text(p, rand_below(&p->r, 5) - 2)));
}

static inline const Node *step_conv2d(Pool *p)
{
  const Node *x = pick_float(p, 4);
  int64_t c = static_extent(p, x, 1);
  int64_t groups = rand_chance(&p->r, 30) ? c : rand_chance(&p->r, 20) && c % 2 == 0 ? 2 : 1;
  static const int64_t multiples[] = {1, 2, 3};
  static const int64_t kernels[] = {1, 3, 3, 5, 2};
  static const int64_t channels[] = {1, 4, 8, 16, 7};
  int64_t out = groups > 1 ? groups * PICK(p, multiples) : PICK(p, channels);
  int64_t kh = PICK(p, kernels);
  int64_t kw = rand_chance(&p->r, 80) ? kh : PICK(p, kernels);
  const Node *w = floats(p, 4, (int64_t[]){out, c / groups, kh, kw}, -0.5, 0.5);
  p->is_exact = false;
  int64_t pad = rand_below(&p->r, 3);
  const char *padding = rand_chance(&p->r, 80)
                            ? pair_text(p, pad, pad)
                            : arena_printf(p->m->arena, "[%d, %d, %d, %d]", rand_below(&p->r, 3), rand_below(&p->r, 3),
                                           rand_below(&p->r, 3), rand_below(&p->r, 3));
  return call2(p, "nn.conv2d", x, w,
               ATTRS("kernel_size", pair_text(p, kh, kw), "channels", num_text(p, out), "groups", num_text(p, groups),
                     "padding", padding, "strides", pair_text(p, 1 + rand_below(&p->r, 2), 1 + rand_below(&p->r, 2)),
                     "dilation", rand_chance(&p->r, 85) ? "[1, 1]" : "[2, 2]"));
}
static inline const Node *step_conv_transpose(Pool *p)
{
  const Node *x = pick_float(p, 4);
  int64_t c = static_extent(p, x, 1);
  int64_t out = 1 + rand_below(&p->r, 4);
  int64_t k = 1 + rand_below(&p->r, 3);
  int64_t s = 1 + rand_below(&p->r, 2);
  p->is_exact = false;
  return call2(p, "nn.conv2d_transpose", x, floats(p, 4, (int64_t[]){c, out, k, k}, -0.5, 0.5),
               ATTRS("kernel_size", pair_text(p, k, k), "channels", num_text(p, out), "strides", pair_text(p, s, s),
                     "padding", rand_chance(&p->r, 50) ? "[0, 0]" : "[1, 1]"));
}
static inline const Node *step_conv1d(Pool *p)
{
  const Node *x = pick_float(p, 3);
  int64_t c = static_extent(p, x, 1);
  int64_t out = 1 + rand_below(&p->r, 8);
  p->is_exact = false;
  return call2(p, "nn.conv1d", x, floats(p, 3, (int64_t[]){out, c, 3}, -0.5, 0.5),
               ATTRS("kernel_size", "[3]", "channels", num_text(p, out), "padding", "[1]", "strides",
                     rand_chance(&p->r, 50) ? "[1]" : "[2]"));
}
static inline const Node *step_dense(Pool *p)
{
  const Node *x = pick_float(p, 2);
  static const int64_t units[] = {1, 3, 8, 16, 33};
  int64_t u = PICK(p, units);
  int64_t k = static_extent(p, x, 1);
  p->is_exact = false;
  if (rand_chance(&p->r, 40)) return call2(p, "nn.matmul", x, floats(p, 2, (int64_t[]){k, u}, -0.5, 0.5), NULL);
  return call2(p, "nn.dense", x, floats(p, 2, (int64_t[]){u, k}, -0.5, 0.5), ATTRS("units", num_text(p, u)));
}
static inline const Node *step_batch_matmul(Pool *p)
{
  const Node *a = pick_float(p, 3);
  const Node *b = pick_float(p, 3);
  p->is_exact = false;
  return call2(p, "nn.batch_matmul", a, b,
               ATTRS("transpose_a", rand_chance(&p->r, 30) ? "True" : "False", "transpose_b",
                     rand_chance(&p->r, 60) ? "True" : "False"));
}
static inline const Node *step_pool(Pool *p)
{
  const Node *x = pick_float(p, 4);
  bool max = rand_chance(&p->r, 50);
  p->is_exact = p->is_exact && max;
  if (rand_chance(&p->r, 15)) return call1(p, max ? "nn.global_max_pool2d" : "nn.global_avg_pool2d", x, NULL);
  if (rand_chance(&p->r, 15))
    return call1(p, max ? "nn.adaptive_max_pool2d" : "nn.adaptive_avg_pool2d", x, ATTRS("output_size", "[2, 3]"));
  int64_t k = 1 + rand_below(&p->r, 3);
  int64_t s = 1 + rand_below(&p->r, 2);
  int64_t pad = k > 1 ? rand_below(&p->r, 2) : 0;
  const char *ceil_mode = rand_chance(&p->r, 30) ? "True" : "False";
  if (max)
    return call1(p, "nn.max_pool2d", x,
                 ATTRS("pool_size", pair_text(p, k, k), "strides", pair_text(p, s, s), "padding",
                       pair_text(p, pad, pad), "ceil_mode", ceil_mode));
  return call1(p, "nn.avg_pool2d", x,
               ATTRS("pool_size", pair_text(p, k, k), "strides", pair_text(p, s, s), "padding", pair_text(p, pad, pad),
                     "ceil_mode", ceil_mode, "count_include_pad", rand_chance(&p->r, 50) ? "True" : "False"));
}
static inline const Node *step_norm(Pool *p)
{
  const Node *x = pick_float(p, -1);
  p->is_exact = false;
  if (x->type->ndim < 2) give_up(p);
  int way = rand_below(&p->r, 3);
  int axis = way == 1 ? x->type->ndim - 1 : 1;
  int64_t c[] = {static_extent(p, x, axis)};
  const Node *arg[] = {x, floats(p, 1, c, 0.5, 1.5), floats(p, 1, c, -1, 1), floats(p, 1, c, -0.5, 0.5),
                       floats(p, 1, c, 0.5, 2)};
  if (way == 0) return node_get(p->m, call(p, "nn.batch_norm", 5, arg, ATTRS("epsilon", "0.01")), 0);
  if (way == 1) return call(p, "nn.layer_norm", 3, arg, ATTRS("epsilon", "0.01"));
  return call(p, "nn.instance_norm", 3, arg, ATTRS("epsilon", "0.01"));
}
static inline const Node *step_bias(Pool *p)
{
  const Node *x = pick_float(p, -1);
  if (x->type->ndim < 2) give_up(p);
  p->is_exact = false;
  return call2(p, "nn.bias_add", x, floats(p, 1, (int64_t[]){static_extent(p, x, 1)}, -1, 1), NULL);
}
static inline const Node *step_prelu(Pool *p)
{
  const Node *x = pick_float(p, -1);
  if (x->type->ndim < 2) give_up(p);
  p->is_exact = false;
  return call2(p, "nn.prelu", x, floats(p, 1, (int64_t[]){static_extent(p, x, 1)}, 0, 0.5), NULL);
}

static inline const Node *step_reshape(Pool *p)
{
  const Node *x = rand_chance(&p->r, 80) ? pick_float(p, -1) : pick_int(p, -1);
  static const char *const shapes[] = {"[-1]",    "[0, -1]",       "[-1, 2]",    "[1, -1]",      "[2, 2, -1]",
                                       "[-1, 4]", "[1, 4, -1, 2]", "[0, 0, -1]", "[1, 2, -1, 4]"};
  if (rand_chance(&p->r, 15)) return call1(p, "nn.batch_flatten", x, NULL);
  if (rand_chance(&p->r, 15))
    return call1(p, "squeeze", x,
                 ATTRS("axis", arena_printf(p->m->arena, "[%d]", rand_below(&p->r, x->type->ndim + 1))));
  if (rand_chance(&p->r, 25))
    return call1(p, "expand_dims", x,
                 ATTRS("axis", num_text(p, rand_below(&p->r, x->type->ndim + 1)), "num_newaxis",
                       num_text(p, 1 + rand_below(&p->r, 2))));
  return call1(p, "reshape", x, ATTRS("newshape", PICK(p, shapes)));
}
static inline const Node *step_transpose(Pool *p)
{
  const Node *x = pick_float(p, -1);
  int n = x->type->ndim;
  int axis[8] = {0};
  if (n < 2) give_up(p);
  Text t = text_new(p->m->arena);
  for (int i = 0; i < n; i++) axis[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int k = rand_below(&p->r, i + 1);
    int v = axis[i];
    axis[i] = axis[k], axis[k] = v;
  }
  for (int i = 0; i < n; i++) text_printf(&t, "%s%d", i ? ", " : "[", axis[i]);
  text_add(&t, "]");
  return call1(p, "transpose", x, ATTRS("axes", text_str(&t)));
}
static inline const Node *step_join(Pool *p)
{
  const Node *part[3] = {pick_float(p, -1), pick_float(p, -1), pick_float(p, -1)};
  if (rand_chance(&p->r, 50)) part[1] = part[0];
  int n = 1 + rand_below(&p->r, 3);
  return call1(p, rand_chance(&p->r, 75) ? "concatenate" : "stack", node_tuple(p->m, n, part),
               ATTRS("axis", num_text(p, rand_below(&p->r, 3))));
}
static inline const Node *step_split(Pool *p)
{
  const Node *t = call1(p, "split", pick_float(p, -1),
                        ATTRS("indices_or_sections", rand_chance(&p->r, 50) ? "[2]" : "[1, 3]", "axis",
                              num_text(p, rand_below(&p->r, 3))));
  return node_get(p->m, t, rand_below(&p->r, t->type->nfield));
}
static inline const Node *step_slice(Pool *p)
{
  const Node *x = pick_float(p, -1);
  int64_t a = rand_below(&p->r, 3);
  static const char *const strides[] = {"[1]", "[2]", "[1]", "[-1]"};
  const char *s = PICK(p, strides);
  bool back = s[1] == '-';
  return call1(p, "strided_slice", x,
               ATTRS("begin", arena_printf(p->m->arena, "[%" PRId64 "]", back ? 6 - a : a), "end",
                     back                     ? "[0]"
                     : rand_chance(&p->r, 50) ? "[5]"
                                              : "[-1]",
                     "strides", s, "axes", arena_printf(p->m->arena, "[%d]", rand_below(&p->r, 4))));
}
static inline const Node *step_spread(Pool *p)
{
  const Node *x = pick_float(p, -1);
  int way = rand_below(&p->r, 4);
  if (way == 0) return call1(p, "tile", x, ATTRS("reps", "[2, 1]"));
  if (way == 1) return call1(p, "repeat", x, ATTRS("repeats", "2", "axis", num_text(p, rand_below(&p->r, 3))));
  if (way == 2) return call1(p, "reverse", x, ATTRS("axis", num_text(p, rand_below(&p->r, 3))));
  static const char *const modes[] = {"constant", "edge", "reflect"};
  Text t = text_new(p->m->arena);
  for (int i = 0; i < 2 * x->type->ndim; i++) text_printf(&t, "%s%d", i ? ", " : "[", rand_below(&p->r, 3) / 2);
  text_add(&t, x->type->ndim ? "]" : "[]");
  return call1(p, "nn.pad", x, ATTRS("pad_width", text_str(&t), "pad_mode", PICK(p, modes)));
}
static inline const Node *step_take(Pool *p)
{
  const Node *x = pick_float(p, -1);
  const char *axis = num_text(p, rand_below(&p->r, 3));
  const char *mode = rand_chance(&p->r, 40) ? "clip" : rand_chance(&p->r, 50) ? "wrap" : "fast";
  const Node *i =
      rand_chance(&p->r, 50) ? pick_int(p, -1) : ints(p, rand_chance(&p->r, 50) ? DT_I64 : DT_I32, 3, -2, 4);
  return call2(p, "take", x, i, ATTRS("axis", arena_printf(p->m->arena, "[%s]", axis), "mode", mode));
}
static inline const Node *step_one_hot(Pool *p)
{
  const Node *arg[] = {pick_int(p, -1), op_number(p->m, DT_F32, 1), op_number(p->m, DT_F32, -0.5)};
  return call(p, "one_hot", 3, arg, ATTRS("depth", "4", "axis", "-1", "dtype", "float32"));
}
static inline const Node *step_sort(Pool *p)
{
  const Node *x = pick_exact(p, -1);
  const char *axis = num_text(p, rand_below(&p->r, 3) - 1);
  const char *up = rand_chance(&p->r, 50) ? "True" : "False";
  int way = rand_below(&p->r, 4);
  if (way == 0) return call1(p, "sort", x, ATTRS("axis", axis, "is_ascend", up));
  if (way == 1) return call1(p, "argsort", x, ATTRS("axis", axis, "is_ascend", up, "dtype", "int32"));
  if (way == 2)
    return node_get(
        p->m,
        call1(p, "topk", x, ATTRS("k", "2", "axis", axis, "ret_type", "\"both\"", "is_ascend", up, "dtype", "int32")),
        rand_below(&p->r, 2));
  p->is_exact = false;
  return call1(p, "cumsum", x, ATTRS("axis", axis));
}
static inline const Node *step_resize(Pool *p)
{
  const Node *x = pick_float(p, 4);
  p->is_exact = false;
  if (rand_chance(&p->r, 40))
    return call1(p, "nn.upsampling", x, ATTRS("scale_h", "2", "scale_w", "2", "method", "\"nearest_neighbor\""));
  return call1(p, "image.resize2d", x,
               ATTRS("size", "[5, 7]", "method", rand_chance(&p->r, 50) ? "\"linear\"" : "\"nearest_neighbor\""));
}
static inline const Node *step_blocks(Pool *p)
{
  return call1(p, rand_chance(&p->r, 50) ? "nn.depth_to_space" : "nn.space_to_depth", pick_float(p, 4),
               ATTRS("block_size", "2"));
}
static inline const Node *step_matrix(Pool *p)
{
  return call2(p, "trilu", pick_float(p, -1), node_scalar(p->m, value_int(DT_I64, rand_below(&p->r, 3) - 1)), NULL);
}

/* ---- sizes that only the run tells ---- */

static inline const Node *step_shape(Pool *p)
{
  const Node *x = pick_float(p, -1);
  const Node *y = pick_float(p, -1);
  int way = rand_below(&p->r, 4);
  if (way == 0) return call2(p, "dyn.reshape", x, call1(p, "shape_of", y, NULL), NULL);
  if (way == 1) return call2(p, "reshape_like", x, y, NULL);
  if (way == 2) return call2(p, "broadcast_to_like", x, y, NULL);
  return call2(p, "dyn.broadcast_to", x, call1(p, "shape_of", y, NULL), NULL);
}
static inline const Node *step_counted(Pool *p)
{
  const Node *x = pick_exact(p, -1);
  if (rand_chance(&p->r, 50))
    return call1(p, "argwhere", call2(p, "greater", x, op_number(p->m, DT_F32, 0), NULL), NULL);
  if (x->type->ndim != 1) x = call1(p, "reshape", x, ATTRS("newshape", "[-1]"));
  return call2(p, "compress", x, call2(p, "greater", x, op_number(p->m, DT_F32, 0), NULL), ATTRS("axis", "0"));
}

/* ---- control ---- */

static inline const Node *step_if(Pool *p)
{
  const Node *a = pick_float(p, -1);
  const Node *b = pick_float(p, -1);
  if (!type_equal(a->type, b->type)) give_up(p);
  return node_if(p->m, p->input[0], call1(p, "nn.relu", a, NULL),
                 rand_chance(&p->r, 50) ? b : call1(p, "negative", b, NULL));
}
static inline const Node *step_function(Pool *p)
{
  const Node *x = pick_float(p, -1);
  /* a function takes sizes from its parameters, so each must stand alone */
  for (int i = 0; i < x->type->ndim; i++)
    if (x->type->shape[i]->kind != E_INT && x->type->shape[i] != p->n) give_up(p);
  const Node *v = node_var(p->m, "v", x->type);
  const Node *body = call2(p, "multiply", call1(p, "tanh", v, NULL), v, NULL);
  p->is_exact = false;
  return node_apply(p->m, node_func(p->m, 1, &v, body, NULL, NULL), 1, &x);
}
static inline const Node *step_let(Pool *p)
{
  const Node *x = call1(p, "abs", pick_float(p, -1), NULL);
  const Node *v = node_var(p->m, "l", x->type);
  p->is_exact = false;
  return node_let(p->m, v, x, call2(p, "add", v, call1(p, "sigmoid", v, NULL), NULL));
}

typedef const Node *(*Step)(Pool *);
static const struct {
  Step fn;
  int weight;
} steps[] = {
  {step_smooth, 8},  {step_exact, 8},      {step_jump, 2},         {step_arithmetic, 14}, {step_extreme, 4},
  {step_compare, 3}, {step_where, 4},      {step_cast, 4},         {step_half, 1},        {step_int, 4},
  {step_reduce, 8},  {step_arg_reduce, 2}, {step_softmax, 3},      {step_conv2d, 10},     {step_conv_transpose, 2},
  {step_conv1d, 2},  {step_dense, 5},      {step_batch_matmul, 4}, {step_pool, 5},        {step_norm, 4},
  {step_bias, 3},    {step_prelu, 1},      {step_reshape, 6},      {step_transpose, 5},   {step_join, 5},
  {step_split, 3},   {step_slice, 4},      {step_spread, 4},       {step_take, 3},        {step_one_hot, 1},
  {step_sort, 2},    {step_resize, 2},     {step_blocks, 1},       {step_matrix, 1},      {step_shape, 3},
  {step_counted, 1}, {step_if, 2},         {step_function, 2},     {step_let, 2},
};

/* ---- a model -------------------------------------------------------------------------------------- */

static inline const Node *add_input(Pool *p, DType t, int ndim, const int64_t *shape)
{
  const Expr *dim[8];
  for (int i = 0; i < ndim; i++) dim[i] = shape[i] < 0 ? p->n : expr_i32(p->m, shape[i]);
  const Node *v = node_var(p->m, arena_printf(p->m->arena, "in%d", p->ninput), type_tensor(p->m, t, ndim, dim));
  p->input[p->ninput++] = v;
  if (ndim) {
    p->node[p->count] = v;
    p->exact[p->count++] = true;
  }
  return v;
}

/* How large it would be with the open size at 4; dimensions of run-time tensors count 8. */
static inline bool small_enough(Pool *p, const Type *t)
{
  if (t->kind != TY_TENSOR || t->ndim < 0 || t->ndim > 6) return false;
  int64_t total = 1;
  for (int i = 0; i < t->ndim; i++) {
    int64_t d = 8;
    int64_t v;
    const Expr *e = t->shape[i]; /* under a guard: sizes that do not fit make it -1 */
    if (e->kind == E_INT) d = e->u.i;
    else {
      e = dim_simplify(p->m, expr_substitute1(p->m, e, p->n->u.var, expr_i32(p->m, 4)));
      if (dim_literal(e, &v)) d = v;
    }
    if (d < 1 || !int_mul(total, d, &total) || total > MAX_ELEMENTS) return false;
  }
  return true;
}

static inline void step_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Pool *p = arg;
  p->is_exact = true;
  p->made = steps[p->kind].fn(p);
  if (!small_enough(p, p->made->type)) give_up(p);
}

/* One more value in the pool; raises what is our own fault. */
static inline void add_step(Pool *p)
{
  int total = 0;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) total += steps[i].weight;
  for (int t = 0; t < 40; t++) {
    int at = rand_below(&p->r, total);
    for (p->kind = 0; at >= steps[p->kind].weight; p->kind++) at -= steps[p->kind].weight;
    ErrKind k = protect(p->m->ctx, step_body, p);
    if (k == ERR_INTERNAL || k == ERR_MEMORY) error_reraise(p->m->ctx);
    if (k) continue;
    p->node[p->count] = p->made;
    p->exact[p->count++] = p->is_exact;
    return;
  }
}

/* The last value, and values that nothing has used so far; now and then one that is used too. */
static inline int choose_outputs(Pool *p, const Node **out)
{
  int n = 0;
  out[n++] = p->node[p->count - 1];
  for (int i = p->count - 2; i >= p->ninput && n < 5; i--) {
    const Node **below;
    Scope scope = scope_begin(p->m->ctx);
    int count = graph_post_order(scratch(p->m->ctx), node_tuple(p->m, n, out), &below);
    bool used = false;
    for (int k = 0; k < count; k++) used = used || below[k] == p->node[i];
    scope_end(p->m->ctx, scope);
    if (rand_chance(&p->r, used ? 5 : 70)) out[n++] = p->node[i];
  }
  if (rand_chance(&p->r, 10)) out[n++] = p->node[rand_below(&p->r, p->ninput - 1)];
  return n;
}

/* @main of the pool's module: nsteps operators over inputs; several outputs. */
static inline void random_graph(Pool *p, int nsteps, bool symbolic)
{
  Module *m = p->m;
  p->n = var_new(m, "n", DT_I32, VAR_SIZE)->expr;
  int64_t open = symbolic ? -1 : 2;
  int64_t channels = rand_chance(&p->r, 50) ? 4 : rand_chance(&p->r, 50) ? 16 : 3;
  int64_t side = 4 + rand_below(&p->r, 5);
  add_input(p, DT_BOOL, 0, NULL);
  add_input(p, DT_F32, 4,
            (int64_t[]){rand_chance(&p->r, 50) ? open : 1, channels, side, rand_chance(&p->r, 70) ? side : side + 2});
  add_input(p, DT_F32, 2, (int64_t[]){open, rand_chance(&p->r, 50) ? 8 : 5});
  if (rand_chance(&p->r, 50)) add_input(p, DT_F32, 3, (int64_t[]){open, 4, 6});
  if (rand_chance(&p->r, 50)) add_input(p, DT_I32, 1 + rand_below(&p->r, 2), (int64_t[]){open, 4});
  while (p->count < nsteps) {
    int before = p->count;
    add_step(p);
    if (p->count == before) break;
  }
  const Node *out[6];
  int n = choose_outputs(p, out);
  const Node *body = n == 1 && rand_chance(&p->r, 80) ? out[0] : node_tuple(m, n, out);
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)node_func(m, p->ninput, p->input, body, NULL, NULL));
}

#endif
