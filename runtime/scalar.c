/* scalar.c: sizes and scalars: small postfix programs over int64 and double.
 *
 * model_read.c has checked the stack and the kinds; that a register holds the dimension or
 * element asked for is checked here. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model.h"

static int64_t floor_div(int64_t a, int64_t b)
{
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* Both sides of a choice are evaluated, so a quotient that has no value is 0 and sums wrap;
 * a size that comes out negative is refused where it is used. */
static int64_t divide(uint8_t op, int64_t a, int64_t b)
{
  if (b == 0) return 0;
  if (b == -1) return op == XO_MOD || op == XO_FLOORMOD ? 0 : (int64_t)(0 - (uint64_t)a);
  return op == XO_DIV ? a / b : op == XO_MOD ? a % b : op == XO_FLOORDIV ? floor_div(a, b) : a - b * floor_div(a, b);
}

/* Reads an element as an integer (bool as 0 or 1). */
static bool load_int(const LatheRtTensor *t, const char *p, int64_t *out)
{
  bool is_signed = t->dtype.code == 0;
  if (t->dtype.code != 0 && t->dtype.code != 1 && t->dtype.code != 6) return false;
  switch (rt_dtype_bytes(t->dtype)) {
  case 1: *out = is_signed ? *(const int8_t *)p : *(const uint8_t *)p; return true;
  case 2: {
    uint16_t v;
    memcpy(&v, p, 2);
    *out = is_signed ? (int16_t)v : v;
    return true;
  }
  case 4: {
    uint32_t v;
    memcpy(&v, p, 4);
    *out = is_signed ? (int32_t)v : (int64_t)v;
    return true;
  }
  case 8: memcpy(out, p, 8); return true;
  }
  return false;
}

static bool load_float(const LatheRtTensor *t, const char *p, double *out)
{
  if (t->dtype.code != 2 || t->dtype.bits < 32) return false;
  if (t->dtype.bits == 64) {
    memcpy(out, p, 8);
    return true;
  }
  float f;
  memcpy(&f, p, 4);
  *out = (double)f;
  return true;
}

static LatheRtCode elsewhere(const LatheRtTensor *t, LatheRtError *err)
{
  char device[40];
  rt_device_name(t->device, device, sizeof device);
  return rt_fail(err, LATHE_RT_ARGUMENT, "the host wants to read an element of a tensor on %s", device);
}

LatheRtCode rt_tensor_int(const LatheRtTensor *t, int64_t *out, LatheRtError *err)
{
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(t, &bytes, err));
  if (t->device.type != LATHE_RT_CPU) return elsewhere(t, err);
  if (bytes != rt_dtype_bytes(t->dtype) || !load_int(t, (const char *)t->data + t->byte_offset, out))
    return rt_fail(err, LATHE_RT_ARGUMENT, "a tensor of one integer is wanted");
  return LATHE_RT_OK;
}

static LatheRtCode read_register(const ExprStep *s, const Value *reg, Scalar *out, LatheRtError *err)
{
  const Value *v = &reg[s->a];
  if (v->kind != VALUE_TENSOR)
    return rt_fail(err, LATHE_RT_ARGUMENT, "a size is read from register %d, which holds no tensor", s->a);
  const LatheRtTensor *t = &v->tensor;
  if (s->op == XO_DIM) {
    if (s->b >= t->ndim)
      return rt_fail(err, LATHE_RT_ARGUMENT, "dimension %d of a tensor of rank %d is asked for", s->b, t->ndim);
    out->i = t->shape[s->b];
    return LATHE_RT_OK;
  }
  if (t->device.type != LATHE_RT_CPU) return elsewhere(t, err);
  size_t elem = rt_dtype_bytes(t->dtype);
  size_t n = rt_value_bytes(v) / elem;
  if ((size_t)s->b >= n)
    return rt_fail(err, LATHE_RT_ARGUMENT, "element %d of a tensor of %zu elements is asked for", s->b, n);
  const char *p = (const char *)t->data + (size_t)s->b * elem;
  if (s->op == XO_ELEM ? load_int(t, p, &out->i) : load_float(t, p, &out->f)) return LATHE_RT_OK;
  char name[40];
  rt_dtype_name(t->dtype, name, sizeof name);
  return rt_fail(err, LATHE_RT_UNSUPPORTED, "a size cannot be read from a tensor of %s", name);
}

static int64_t to_int(double f)
{
  if (isnan(f)) return 0;
  if (f >= 9223372036854775808.0) return INT64_MAX;
  if (f <= -9223372036854775808.0) return INT64_MIN;
  return (int64_t)f;
}

/* a is the deepest operand. */
static void int_step(uint8_t op, Scalar *a)
{
  int64_t x = a[0].i;
  int64_t y = a[1].i;
  switch (op) {
  case XO_ADD: a->i = (int64_t)((uint64_t)x + (uint64_t)y); break;
  case XO_SUB: a->i = (int64_t)((uint64_t)x - (uint64_t)y); break;
  case XO_MUL: a->i = (int64_t)((uint64_t)x * (uint64_t)y); break;
  case XO_DIV:
  case XO_MOD:
  case XO_FLOORDIV:
  case XO_FLOORMOD: a->i = divide(op, x, y); break;
  case XO_MIN: a->i = x < y ? x : y; break;
  case XO_MAX: a->i = x > y ? x : y; break;
  case XO_ABS:
    if (x < 0) a->i = (int64_t)(0 - (uint64_t)x);
    break;
  case XO_EQ: a->i = x == y; break;
  case XO_NE: a->i = x != y; break;
  case XO_LT: a->i = x < y; break;
  case XO_LE: a->i = x <= y; break;
  case XO_AND: a->i = x && y; break;
  case XO_OR: a->i = x || y; break;
  case XO_NOT: a->i = !x; break;
  case XO_SELECT: a->i = x ? y : a[2].i; break;
  case XO_WRAP8: a->i = (int8_t)x; break;
  case XO_WRAP16: a->i = (int16_t)x; break;
  case XO_WRAP32: a->i = (int32_t)x; break;
  case XO_WRAPU8: a->i = (uint8_t)x; break;
  case XO_WRAPU16: a->i = (uint16_t)x; break;
  case XO_WRAPU32: a->i = (uint32_t)x; break;
  case XO_BITAND: a->i = x & y; break;
  case XO_BITOR: a->i = x | y; break;
  case XO_BITXOR: a->i = x ^ y; break;
  case XO_SHL: a->i = (int64_t)((uint64_t)x << (y & 63)); break;
  case XO_SHR: a->i = x >> (y & 63); break;
  case XO_TO_FLOAT: a->f = (double)x; break;
  case XO_FSELECT: a->f = x ? a[1].f : a[2].f; break;
  }
}

static void float_step(uint8_t op, Scalar *a)
{
  double x = a[0].f;
  double y = a[1].f;
  switch (op) {
  case XO_FADD: a->f = x + y; break;
  case XO_FSUB: a->f = x - y; break;
  case XO_FMUL: a->f = x * y; break;
  case XO_FDIV: a->f = x / y; break;
  case XO_FMOD: a->f = fmod(x, y); break;
  case XO_FMIN: a->f = fmin(x, y); break;
  case XO_FMAX: a->f = fmax(x, y); break;
  case XO_POW: a->f = pow(x, y); break;
  case XO_FEQ: a->i = x == y; break;
  case XO_FNE: a->i = x != y; break;
  case XO_FLT: a->i = x < y; break;
  case XO_FLE: a->i = x <= y; break;
  case XO_FLOOR: a->f = floor(x); break;
  case XO_CEIL: a->f = ceil(x); break;
  case XO_TRUNC: a->f = trunc(x); break;
  case XO_ROUND: a->f = round(x); break;
  case XO_NEARBYINT: a->f = nearbyint(x); break;
  case XO_FABS: a->f = fabs(x); break;
  case XO_SQRT: a->f = sqrt(x); break;
  case XO_EXP: a->f = exp(x); break;
  case XO_LOG: a->f = log(x); break;
  case XO_TO_INT: a->i = to_int(x); break;
  case XO_ROUND32: a->f = (double)(float)x; break;
  }
}

const ExprOpRow rt_expr_ops[XO_COUNT] = {
#define X(id, takes, gives) [id] = {takes, gives},
  MODEL_EXPR_OPS(X)
#undef X
};

LatheRtCode rt_expr_eval(const ModelExpr *e, const Value *reg, const Scalar *scalar, Scalar *out, LatheRtError *err)
{
  Scalar stack[MODEL_MAX_STACK + 2]; /* every step sees three operands, those it does not take as 0 */
  int n = 0;
  for (int32_t i = 0; i < e->n; i++) {
    const ExprStep *s = &e->step[i];
    switch (s->op) {
    case XO_INT:
    case XO_FLOAT: stack[n++] = s->value; break;
    case XO_SCALAR: stack[n++] = scalar[s->a]; break;
    case XO_DIM:
    case XO_ELEM:
    case XO_ELEM_FLOAT: RT_TRY(read_register(s, reg, &stack[n++], err)); break;
    default: {
      const char *takes = rt_expr_ops[s->op].takes;
      int k = (int)strlen(takes);
      n -= k;
      for (int j = k; j < 3; j++) stack[n + j].i = 0;
      if (takes[0] == 'F') float_step(s->op, &stack[n]);
      else int_step(s->op, &stack[n]);
      n++;
    }
    }
  }
  *out = stack[0];
  return LATHE_RT_OK;
}
