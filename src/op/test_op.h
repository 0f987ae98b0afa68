/* test_op.h: what the tests of elementwise, broadcasting and reducing operators share:
 * tensors of numbers, one call evaluated by its meaning, comparison, types as text. */
#ifndef LATHE_TEST_OP_H
#define LATHE_TEST_OP_H

#include "te/test_te.h"

#include "op/op.h"

#include <math.h>

/* A tensor of the test; every element as a double (integers up to 2^53). */
typedef struct Num {
  DType dtype;
  int ndim;
  int64_t shape[8];
  int64_t n;
  const double *v;
} Num;

#define DIMS(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define LIST(...) \
  (const double[]) { __VA_ARGS__ }
#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

static inline Num num(DType t, int ndim, const int64_t *shape, const double *v)
{
  Num a = {.dtype = t, .ndim = ndim, .n = 1, .v = v};
  for (int d = 0; d < ndim; d++) a.n *= a.shape[d] = shape[d];
  return a;
}
static inline Num num1(DType t, int n, const double *v) { return num(t, 1, (const int64_t[]){n}, v); }
static inline Num num0(DType t, const double *v) { return num(t, 0, NULL, v); }

static inline ConstData data_of(World *w, const Num *a)
{
  ConstData d = {.dtype = a->dtype, .ndim = a->ndim, .bytes = (size_t)a->n * (size_t)dtype_bytes(a->dtype)};
  char *bytes = arena_alloc(w->m->arena, d.bytes + 8);
  for (int k = 0; k < a->ndim; k++) d.shape[k] = a->shape[k];
  for (int64_t k = 0; k < a->n; k++)
    value_store(dtype_is_float(a->dtype) ? value_float(a->dtype, a->v[k]) : value_int(a->dtype, (int64_t)a->v[k]),
                bytes + k * dtype_bytes(a->dtype));
  d.data = bytes;
  return d;
}

static inline Num num_of(World *w, const ConstData *d)
{
  Num a = num(d->dtype, d->ndim, d->shape, NULL);
  double *v = arena_array(w->m->arena, double, a.n + 1);
  for (int64_t k = 0; k < a.n; k++) {
    Value x = value_load(d->dtype, (const char *)d->data + k * dtype_bytes(d->dtype));
    v[k] = dtype_is_float(d->dtype) ? x.f : (double)x.i;
  }
  a.v = v;
  return a;
}

/* Attributes of an operator: name, text pairs, as Relay writes them. */
#define ATTRS(op, ...) attrs_from(w, &(op), (const char *const[]){__VA_ARGS__, NULL})
static inline void *attrs_from(World *w, const OpDef *op, const char *const *pair)
{
  void *a = attrs_new(w->m, op->attrs);
  for (; *pair; pair += 2) attrs_set_text(w->m, op->attrs, a, pair[0], pair[1]);
  return a;
}

/* The call over variables of the arguments' types. */
static inline const Node *call_over(World *w, const OpDef *op, const void *attrs, int n, const Num *in)
{
  const Node *arg[8];
  for (int i = 0; i < n; i++)
    arg[i] =
        node_var(w->m, arena_printf(w->m->arena, "x%d", i), type_tensor_of(w->m, in[i].dtype, in[i].ndim, in[i].shape));
  return node_call(w->m, op, n, arg, attrs, NULL);
}

static inline void evaluate_on(World *w, const Node *call, int n, const Num *in, int nout, Num *out)
{
  ConstData data[8];
  ConstData result[4] = {{.ndim = 0}};
  for (int i = 0; i < n; i++) data[i] = data_of(w, &in[i]);
  opdef_evaluate(w->m, w->m->arena, call, n, data, result);
  for (int i = 0; i < nout; i++) out[i] = num_of(w, &result[i]);
}

static inline Num run_op(World *w, const OpDef *op, const void *attrs, int n, const Num *in)
{
  Num out;
  evaluate_on(w, call_over(w, op, attrs, n, in), n, in, 1, &out);
  return out;
}
#define RUN1(op, attrs, a) run_op(w, &(op), attrs, 1, (const Num[]){a})
#define RUN2(op, attrs, a, b) run_op(w, &(op), attrs, 2, (const Num[]){a, b})
#define RUN3(op, attrs, a, b, c) run_op(w, &(op), attrs, 3, (const Num[]){a, b, c})

/* Equal within `relative` of the wanted value; NaN only where wanted; a zero with its sign. */
static inline void expect_close(const Num *got, const char *what, int64_t n, const double *want, double relative)
{
  assert_int_equal(got->n, n);
  for (int64_t i = 0; i < n; i++) {
    double a = got->v[i];
    double b = want[i];
    bool same = isnan(b)             ? isnan(a)
                : isinf(b) || b == 0 ? a == b && signbit(a) == signbit(b)
                                     : fabs(a - b) <= relative * fabs(b);
    if (!same && b == 0 && relative > 0) same = fabs(a) <= relative;
    if (!same) fprintf(stderr, "%s: element %d is %.17g, %.17g is wanted\n", what, (int)i, a, b);
    assert_true(same);
  }
}
#define EXPECT(got, ...)                               \
  do {                                                 \
    Num got_ = got;                                    \
    const double want_[] = {__VA_ARGS__};              \
    expect_close(&got_, #got, COUNT(want_), want_, 0); \
  } while (0)

static inline void expect_shape(const Num *got, int ndim, const int64_t *shape)
{
  assert_int_equal(got->ndim, ndim);
  for (int d = 0; d < ndim; d++) assert_int_equal(got->shape[d], shape[d]);
}

/* ---- types ------------------------------------------------------------------------------------ */

static inline const Expr *size_named(World *w, const char *name) { return var_new(w->m, name, DT_I32, VAR_SIZE)->expr; }
static inline const Node *var_of(World *w, DType t, int ndim, const Expr *const *shape)
{
  return node_var(w->m, "x", type_tensor(w->m, t, ndim, shape));
}
#define VARIABLE(t, ...) var_of(w, t, SHAPE(__VA_ARGS__))
#define EXPECT_TYPE(node, text) assert_string_equal(type_text(scratch(w->ctx), (node)->type), text)

/* The body is refused with exactly this sentence. */
#define SAYS(name, error, sentence)                                       \
  static void body_##name(World *w);                                      \
  static void name(void **state)                                          \
  {                                                                       \
    (void)state;                                                          \
    char message[1024];                                                   \
    assert_int_equal(world(body_##name, message, sizeof message), error); \
    assert_string_equal(message, sentence);                               \
  }                                                                       \
  static void body_##name(World *w)

#endif
