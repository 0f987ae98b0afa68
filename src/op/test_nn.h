/* test_nn.h: what the tests of the nn family share: arrays of numbers, one call of an
 * operator evaluated by its meaning, comparison. */
#ifndef LATHE_TEST_NN_H
#define LATHE_TEST_NN_H

#include "te/test_te.h"

#include "op/nn.h"

#include <math.h>

/* A tensor of the test: float32 unless said otherwise. */
typedef struct Array {
  DType dtype;
  int n;
  int64_t shape[8];
  float *f;   /* float32 … */
  int64_t *i; /* … or integers, kept wide */
} Array;

static inline int64_t array_size(const Array *a)
{
  int64_t n = 1;
  for (int d = 0; d < a->n; d++) n *= a->shape[d];
  return n;
}

static inline Array array_of(World *w, DType t, int n, const int64_t *shape)
{
  Array a = {.dtype = t, .n = n};
  for (int d = 0; d < n; d++) a.shape[d] = shape[d];
  a.f = arena_array(w->m->arena, float, array_size(&a) + 1);
  a.i = arena_array(w->m->arena, int64_t, array_size(&a) + 1);
  return a;
}
#define DIMS(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

/* Numbers in [-1, 1) in steps of 1/64, from the seed: sums of them are exact for a while. */
static inline Array random_array(World *w, uint32_t seed, int n, const int64_t *shape)
{
  Array a = array_of(w, DT_F32, n, shape);
  for (int64_t k = 0; k < array_size(&a); k++) {
    seed = seed * 1664525u + 1013904223u;
    a.f[k] = (float)((int)(seed >> 25) - 64) / 64.0f;
  }
  return a;
}
#define NUMBERS(seed, ...) random_array(w, seed, DIMS(__VA_ARGS__))
#define ZEROS(...) array_of(w, DT_F32, DIMS(__VA_ARGS__))

static inline Array floats(World *w, int n, const int64_t *shape, const float *v)
{
  Array a = array_of(w, DT_F32, n, shape);
  for (int64_t k = 0; k < array_size(&a); k++) a.f[k] = v[k];
  return a;
}

static inline Array integers(World *w, DType t, int n, const int64_t *shape, const int64_t *v)
{
  Array a = array_of(w, t, n, shape);
  for (int64_t k = 0; k < array_size(&a); k++) a.i[k] = v[k];
  return a;
}

static inline ConstData array_data(World *w, const Array *a)
{
  ConstData d = {.dtype = a->dtype, .ndim = a->n, .bytes = (size_t)array_size(a) * (size_t)dtype_bytes(a->dtype)};
  char *bytes = arena_alloc(w->m->arena, d.bytes + 8);
  for (int k = 0; k < a->n; k++) d.shape[k] = a->shape[k];
  for (int64_t k = 0; k < array_size(a); k++)
    value_store(dtype_is_float(a->dtype) ? value_float(a->dtype, (double)a->f[k]) : value_int(a->dtype, a->i[k]),
                bytes + k * dtype_bytes(a->dtype));
  d.data = bytes;
  return d;
}

static inline Array data_array(World *w, const ConstData *d)
{
  Array a = array_of(w, d->dtype, d->ndim, d->shape);
  for (int64_t k = 0; k < array_size(&a); k++) {
    Value v = value_load(d->dtype, (const char *)d->data + k * dtype_bytes(d->dtype));
    a.f[k] = dtype_is_float(d->dtype) ? (float)v.f : (float)v.i;
    if (!dtype_is_float(d->dtype)) a.i[k] = v.i;
  }
  return a;
}

/* Attributes of an operator: name=text pairs, as Relay writes them. */
#define ATTRS(op, ...) attrs_from(w, &(op), (const char *const[]){__VA_ARGS__, NULL})
static inline void *attrs_from(World *w, const OpDef *op, const char *const *pair)
{
  void *a = attrs_new(w->m, op->attrs);
  for (; *pair; pair += 2) attrs_set_text(w->m, op->attrs, a, pair[0], pair[1]);
  return a;
}

/* The call over variables of the arrays' types. */
static inline const Node *call_of(World *w, const OpDef *op, const void *attrs, int n, const Array *in)
{
  const Node *arg[16];
  op_init();
  for (int i = 0; i < n; i++) {
    const Type *ty = type_tensor_of(w->m, in[i].dtype, in[i].n, in[i].shape);
    arg[i] = node_var(w->m, arena_printf(w->m->arena, "x%d", i), ty);
  }
  return node_call(w->m, op, n, arg, attrs, NULL);
}

static inline void evaluate(World *w, const Node *call, int n, const Array *in, int nout, Array *out)
{
  ConstData data[16];
  ConstData result[4] = {(ConstData){.ndim = 0}};
  for (int i = 0; i < n; i++) data[i] = array_data(w, &in[i]);
  opdef_evaluate(w->m, w->m->arena, call, n, data, result);
  for (int i = 0; i < nout; i++) out[i] = data_array(w, &result[i]);
}

static inline Array run_op(World *w, const OpDef *op, const void *attrs, int n, const Array *in)
{
  Array out;
  evaluate(w, call_of(w, op, attrs, n, in), n, in, 1, &out);
  return out;
}
#define RUN(op, attrs, ...) \
  run_op(w, &(op), attrs, (int)(sizeof((const Array[]){__VA_ARGS__}) / sizeof(Array)), (const Array[]){__VA_ARGS__})

static inline void assert_shape(const Array *a, int n, const int64_t *shape)
{
  assert_int_equal(a->n, n);
  for (int d = 0; d < n; d++) assert_int_equal(a->shape[d], shape[d]);
}
#define SHAPE_IS(a, ...) assert_shape(&(a), DIMS(__VA_ARGS__))

/* The same numbers, up to rounding. */
static inline void assert_close(const Array *a, const float *want, float tolerance)
{
  for (int64_t k = 0; k < array_size(a); k++) {
    if (isnan(want[k]) && isnan(a->f[k])) continue;
    if (!(fabsf(a->f[k] - want[k]) <= tolerance * (1 + fabsf(want[k]))) && a->f[k] != want[k]) {
      fprintf(stderr, "element %d is %g, want %g\n", (int)k, (double)a->f[k], (double)want[k]);
      assert_true(false);
    }
  }
}

/* The type of the call of an operator over arguments of these types. */
static inline const Type *typed(World *w, const OpDef *op, const void *attrs, int n, const Type *const *ty)
{
  const Node *arg[16];
  op_init();
  for (int i = 0; i < n; i++) arg[i] = node_var(w->m, arena_printf(w->m->arena, "x%d", i), ty[i]);
  return node_call(w->m, op, n, arg, attrs, NULL)->type;
}
#define TENSOR(...) type_tensor_of(w->m, DT_F32, DIMS(__VA_ARGS__))
#define TYPED(op, attrs, ...)                                                                \
  typed(w, &(op), attrs, (int)(sizeof((const Type *const[]){__VA_ARGS__}) / sizeof(Type *)), \
        (const Type *const[]){__VA_ARGS__})
#define TYPE_TEXT(ty) type_text(w->m->arena, ty)

#endif
