/* tflite_ops_math.c: arithmetic element by element, and along one axis. */
#include <math.h>

#include "frontend/tflite_ops.h"

/* x * 2^bits, an int32, at its limits beyond them. */
static int32_t raised(int32_t x, int bits)
{
  int64_t y = (int64_t)x * ((int64_t)1 << bits);
  return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : (int32_t)y;
}

/* ---- between real numbers and stored integers ---------------------------------------------------- */

const Node *tfl_convert_quantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  return dtype_is_float(in->dtype) ? tfl_stored(c, x, out) : tfl_restored(c, x, in, out);
}

const Node *tfl_convert_dequantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const TflTensor *in = tfl_in(c, 0);
  return dtype_is_float(in->dtype) ? kit_cast_to(c, x, DT_F32) : tfl_real(c, x, in);
}

/* ---- sums and products -------------------------------------------------------------------------------- */

static bool is_stored(const TflTensor *t) { return tfl_is_quantized(t) && t->dtype.bits <= 16; }

/* 16-bit data of scales that are powers of two: the side that counts finer is shifted down, halves away from zero. */
static bool power_sum(Conversion *c, const char *op, const Node **out)
{
  int e[3];
  const TflTensor *t[3] = {tfl_in(c, 0), tfl_in(c, 1), tfl_out(c, 0)};
  if (t[0]->dtype.bits != 16 || !flat_uint(&tfl_op(c)->options, 1, 1, 1)) return false;
  for (int i = 0; i < 3; i++)
    if (!tfl_power_of_two(tfl_scale(c, t[i]), &e[i])) return false;
  const Node *side[2];
  for (int i = 0; i < 2; i++) {
    int right = e[2] - e[i];
    if (right < 0 || right > 15)
      kit_fail(c, ERR_UNSUPPORTED, "an output scale finer than the inputs' is not supported");
    side[i] = kit_cast_to(c, kit_in(c, i), DT_I32);
    if (right)
      side[i] = kit_op3(c, "qnn.contrib_multiply_shift", side[i], kit_scalar(c, DT_I32, 1),
                        kit_scalar(c, DT_I32, right), "rounding:s", "TONEAREST");
  }
  *out = kit_op2(c, op, side[0], side[1], NULL);
  return true;
}

/* Both sides in units of twice the larger scale over 2^left, added, and brought to the output's scale. */
static const Node *quantized_sum(Conversion *c, const char *op, int64_t activation)
{
  const TflTensor *in[2] = {tfl_in(c, 0), tfl_in(c, 1)};
  const TflTensor *out = tfl_out(c, 0);
  const Node *sum;
  if (power_sum(c, op, &sum)) return tfl_store(c, sum, out, activation);
  int left = in[0]->dtype.bits == 16 ? 15 : 20;
  double scale[2] = {tfl_scale(c, in[0]), tfl_scale(c, in[1])};
  double twice = 2 * fmax(scale[0], scale[1]);
  const Node *side[2];
  for (int i = 0; i < 2; i++) {
    side[i] = tfl_centred(c, kit_in(c, i), in[i]);
    side[i] = kit_op2(c, "left_shift", side[i], kit_scalar(c, DT_I32, left), NULL);
    side[i] = tfl_rescale1(c, side[i], scale[i] / twice);
  }
  sum = kit_op2(c, op, side[0], side[1], NULL);
  return tfl_store(c, tfl_rescale1(c, sum, twice / (ldexp(1, left) * tfl_scale(c, out))), out, activation);
}

static const Node *sum_of(Conversion *c, const char *op)
{
  int64_t activation = tfl_byte(c, 0, 0);
  if (is_stored(tfl_out(c, 0))) return quantized_sum(c, op, activation);
  return tfl_activation(c, kit_op2(c, op, kit_in(c, 0), kit_in(c, 1), NULL), activation);
}

const Node *tfl_convert_add(Conversion *c) { return sum_of(c, "add"); }
const Node *tfl_convert_sub(Conversion *c) { return sum_of(c, "subtract"); }

const Node *tfl_convert_mul(Conversion *c)
{
  int64_t activation = tfl_byte(c, 0, 0);
  const TflTensor *out = tfl_out(c, 0);
  if (!is_stored(out)) return tfl_activation(c, kit_mul(c, kit_in(c, 0), kit_in(c, 1)), activation);
  const Node *product =
      kit_mul(c, tfl_centred(c, kit_in(c, 0), tfl_in(c, 0)), tfl_centred(c, kit_in(c, 1), tfl_in(c, 1)));
  float factor = (float)tfl_scale(c, tfl_in(c, 0)) * (float)tfl_scale(c, tfl_in(c, 1)) / (float)tfl_scale(c, out);
  return tfl_store(c, tfl_rescale1(c, product, (double)factor), out, activation);
}

/* 1 / x of x > 0, a multiplier of 31 bits; over: bits of x behind its top one. */
static int32_t inverse(int32_t x, int *over)
{
  int zeros = __builtin_clz((unsigned)x);
  *over = 31 - zeros;
  int32_t fraction = (int32_t)(((uint32_t)x << zeros) & INT32_MAX);
  int32_t half = (int32_t)(((int64_t)fraction + INT32_MAX + 1) / 2);
  int32_t y = 1515870810 + tfl_high_product(half, -1010580540);
  for (int i = 0; i < 3; i++) {
    int32_t rest = (1 << 29) - tfl_high_product(half, y);
    y += raised(tfl_high_product(y, rest), 2);
  }
  return raised(y, 1);
}

/* a / b in units of 2^(31 - shift) / multiplier; what is divided by zero is as far from it as can be. */
static int32_t quotient(int32_t a, int32_t b, int32_t multiplier, int shift)
{
  if (b == 0) return a < 0 ? INT32_MIN / 2 : a > 0 ? INT32_MAX / 2 : 0;
  if (b < 0) a = -a, b = -b;
  if (a == 0) return 0;
  int over;
  int32_t by = inverse(b, &over);
  int room = __builtin_clz(a > 0 ? (unsigned)a : 2 * (unsigned)-a - 1) - (a > 0);
  int32_t y = tfl_high_product((int32_t)((uint32_t)a << room), by);
  int down = over + room - shift;
  if (down > 31) return 0;
  y = tfl_high_product(y, multiplier);
  return down >= 0 ? tfl_shifted_down(y, down) : raised(y, -down);
}

/* Of 8 bits: by a table of all pairs. */
static const Node *quotient_bytes(Conversion *c, int64_t activation)
{
  const TflTensor *in[2] = {tfl_in(c, 0), tfl_in(c, 1)};
  const TflTensor *out = tfl_out(c, 0);
  if (in[0]->type != out->type || in[1]->type != out->type || out->dtype.bits != 8)
    kit_fail(c, ERR_UNSUPPORTED, "%s over %s is not supported; 8 bits, float32 and int32 are",
             tfl_type_name(in[0]->type), tfl_type_name(in[1]->type));
  float factor = (float)tfl_scale(c, in[0]) / ((float)tfl_scale(c, in[1]) * (float)tfl_scale(c, out));
  int32_t multiplier;
  int shift;
  tfl_multiplier((double)factor, &multiplier, &shift);
  double lo, hi;
  tfl_limits(c, out, activation, &lo, &hi);
  int32_t least = (int32_t)dtype_imin(out->dtype);
  int32_t *v = arena_array(c->im->arena, int32_t, 65536);
  for (int i = 0; i < 65536; i++) {
    int32_t a = i / 256 + least - (int32_t)tfl_zero(c, in[0]);
    int32_t b = i % 256 + least - (int32_t)tfl_zero(c, in[1]);
    double y = (double)quotient(a, b, multiplier, shift) + (double)tfl_zero(c, out);
    v[i] = (int32_t)fmin(fmax(y, lo), hi);
  }
  const Node *at[2];
  for (int i = 0; i < 2; i++) at[i] = kit_sub(c, kit_cast_to(c, kit_in(c, i), DT_I32), kit_scalar(c, DT_I32, least));
  const Node *place = kit_add(c, kit_mul(c, at[0], kit_scalar(c, DT_I32, 256)), at[1]);
  return tfl_look_up(c, tfl_table(c, out->dtype, 65536, v), place);
}

const Node *tfl_convert_div(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  int64_t activation = tfl_byte(c, 0, 0);
  if (is_stored(tfl_out(c, 0))) return quotient_bytes(c, activation);
  const char *op = dtype_is_float(kit_dtype_of(c, a)) ? "divide" : "trunc_divide";
  return tfl_activation(c, kit_op2(c, op, a, kit_in(c, 1), NULL), activation);
}

const Node *tfl_convert_squared_difference(Conversion *c)
{
  const TflTensor *out = tfl_out(c, 0);
  enum { LEFT = 7 };
  if (!is_stored(out)) {
    const Node *d = kit_sub(c, kit_in(c, 0), kit_in(c, 1));
    return kit_mul(c, d, d);
  }
  double scale[2] = {tfl_scale(c, tfl_in(c, 0)), tfl_scale(c, tfl_in(c, 1))};
  double twice = 2 * fmax(scale[0], scale[1]);
  const Node *side[2];
  for (int i = 0; i < 2; i++) {
    side[i] = kit_op2(c, "left_shift", tfl_centred(c, kit_in(c, i), tfl_in(c, i)), kit_scalar(c, DT_I32, LEFT), NULL);
    side[i] = tfl_rescale1(c, side[i], scale[i] / twice);
  }
  const Node *d = kit_sub(c, side[0], side[1]);
  double factor = twice * twice / ((1 << (2 * LEFT)) * tfl_scale(c, out));
  return tfl_store(c, tfl_rescale1(c, kit_mul(c, d, d), factor), out, TFL_NONE);
}

const Node *tfl_convert_add_n(Conversion *c)
{
  const Node *y = kit_in(c, 0);
  for (int i = 1; i < c->nin; i++) y = kit_add(c, y, kit_in(c, i));
  return y;
}

/* ---- other pairs ---------------------------------------------------------------------------------------- */

typedef struct Named {
  const char *tflite, *op;
} Named;

static const char *op_of(Conversion *c, const Named *list, int n)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(list[i].tflite, tfl_op(c)->op)) return list[i].op;
  BUG(c->ctx, "%s has no operator", tfl_op(c)->op);
}
#define OP_OF(c, list) op_of(c, list, (int)(sizeof list / sizeof *list))

const Node *tfl_convert_pair(Conversion *c)
{
  static const Named list[] = {
    {"MAXIMUM", "maximum"},         {"MINIMUM", "minimum"},         {"POW", "power"},
    {"FLOOR_DIV", "floor_divide"},  {"FLOOR_MOD", "floor_mod"},     {"ATAN2", "atan2"},
    {"BITWISE_XOR", "bitwise_xor"}, {"RIGHT_SHIFT", "right_shift"}, {"LOGICAL_AND", "logical_and"},
    {"LOGICAL_OR", "logical_or"},
  };
  return kit_op2(c, OP_OF(c, list), kit_in(c, 0), kit_in(c, 1), NULL);
}

/* Both sides in units of 2^-8. */
const Node *tfl_convert_compare(Conversion *c)
{
  static const Named list[] = {
    {"EQUAL", "equal"},     {"NOT_EQUAL", "not_equal"},         {"LESS", "less"},
    {"GREATER", "greater"}, {"GREATER_EQUAL", "greater_equal"}, {"LESS_EQUAL", "less_equal"},
  };
  const Node *side[2] = {kit_in(c, 0), kit_in(c, 1)};
  for (int i = 0; i < 2; i++) {
    const TflTensor *t = tfl_in(c, i);
    if (!is_stored(t)) continue;
    side[i] = kit_op2(c, "left_shift", tfl_centred(c, side[i], t), kit_scalar(c, DT_I32, 8), NULL);
    side[i] = tfl_rescale1(c, side[i], tfl_scale(c, t));
  }
  return kit_op2(c, OP_OF(c, list), side[0], side[1], NULL);
}

const Node *tfl_convert_select(Conversion *c)
{
  const Node *cond = kit_in(c, 0);
  const Node *x = kit_in(c, 1);
  int rank = kit_rank_of(c, x);
  /* SELECT's condition may be one for each row */
  if (!strcmp(tfl_op(c)->op, "SELECT") && kit_rank_of(c, cond) == 1 && rank > 1)
    cond = kit_unsqueeze_to(c, cond, 0, rank);
  return kit_where(c, cond, x, kit_in(c, 2));
}

/* ---- functions ---------------------------------------------------------------------------------------------- */

static float exp_of(float x, float env) { return (void)env, expf(x); }
static float tanh_of(float x, float env) { return (void)env, tanhf(x); }
static float logistic_of(float x, float env) { return (void)env, 1.0f / (1.0f + expf(-x)); }
static float log_of(float x, float least) { return x <= 0 ? least : logf(x); }
static float rsqrt_of(float x, float most) { return x <= 0 ? most : 1.0f / sqrtf(x); }
static float elu_of(float x, float env) { return (void)env, x < 0 ? expm1f(x) : x; }
static float gelu_of(float x, float env) { return (void)env, 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f)); }
static float gelu_near(float x, float env)
{
  return (void)env, 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
}

/* 1 / sqrt(x): a multiplier of 31 bits and a shift, by five of Newton's steps. */
static void inverse_root(int32_t x, int32_t *multiplier, int *shift)
{
  if (x <= 1) {
    *multiplier = INT32_MAX;
    *shift = 0;
    return;
  }
  int down = 11;
  while (x >= 1 << 29) x /= 4, down++;
  int top = 31 - __builtin_clz((unsigned)x); /* 2^top <= x */
  int pairs = (30 - top) / 2 - 1;
  down -= pairs;
  x <<= 2 * pairs;
  /* three bits before the point */
  int32_t half = tfl_shifted_down(x >> 1, 1);
  int32_t three_halves = (1 << 28) + (1 << 27);
  int32_t y = 1 << 28;
  for (int i = 0; i < 5; i++) {
    int32_t cube = raised(tfl_high_product(tfl_high_product(y, y), y), 6);
    y = raised(tfl_high_product(y, three_halves) - tfl_high_product(half, cube), 3);
  }
  *multiplier = tfl_high_product(y, 1518500250);
  if (down < 0) *multiplier = raised(*multiplier, -down), down = 0;
  *shift = -down;
}

static const Node *rsqrt_bytes(Conversion *c, const Node *x)
{
  const TflTensor *out = tfl_out(c, 0);
  enum { MORE = 20 };
  int32_t zero = (int32_t)tfl_zero(c, tfl_in(c, 0));
  int32_t m;
  int shift;
  int32_t v[256];
  tfl_multiplier(1.0 / (double)(sqrtf((float)tfl_scale(c, tfl_in(c, 0))) * (float)tfl_scale(c, out)), &m, &shift);
  for (int i = 0; i < 256; i++) {
    int32_t root;
    int root_shift;
    int32_t value = i - 128 - zero;
    inverse_root(value, &root, &root_shift);
    int32_t data = tfl_rescale_value(1, root, root_shift + MORE);
    int64_t y = (int64_t)tfl_rescale_value(data, m, shift - MORE) + tfl_zero(c, out);
    v[i] = value <= 0 || y > 127 ? 127 : y < -128 ? -128 : (int32_t)y;
  }
  return tfl_by_table(c, x, v, out->dtype);
}

/* The logistic function of i / 24 as a fraction of 16 bits, with half of what a straight line to the next is wrong by
 * in the middle. */
static uint32_t logistic_entry(int i)
{
  double v[3];
  for (int k = 0; k < 3; k++) v[k] = 65536 / (1 + exp(-(i + k / 2.0) / 24));
  return i >= 255 ? 65535 : (uint32_t)round(v[0] + (v[1] - (v[0] + v[2]) / 2) / 2);
}

/* 16 bits: between the 256 entries of a table of the logistic function, which has steps of 1/24; the tangent is twice
 * the logistic of twice, less one. */
static const Node *logistic_words(Conversion *c, const Node *x, bool tangent)
{
  double scale = tfl_scale(c, tfl_in(c, 0));
  int exponent;
  int left = 0;
  int64_t factor;
  uint32_t table[257];
  for (int i = 0; i < 257; i++) table[i] = logistic_entry(i);
  bool power = tfl_power_of_two(scale, &exponent);
  left = 12 + exponent;
  if (power && (left == 0 || (tangent && left == 1))) {
    factor = 3 << left;
    left = 0;
  } else {
    double f = scale * 4096 * 3;
    for (left = 0; f <= 32767.0 / 2 && left <= 30; left++) f *= 2;
    factor = (int64_t)f;
  }
  int bits = tangent ? 8 : 9;
  int32_t *v = arena_array(c->im->arena, int32_t, 65536);
  for (int i = 0; i < 65536; i++) {
    int64_t in = ((i - 32768) * factor + (left ? (int64_t)1 << (left - 1) : 0)) >> left;
    int64_t size = in < 0 ? -in : in;
    int64_t at = size >> bits;
    int64_t part = size & ((1 << bits) - 1);
    int64_t y = at < 255  ? ((int64_t)table[at] << bits) + part * ((int64_t)table[at + 1] - table[at])
                : tangent ? 0xFFFF << 8
                          : 0x7FFF << 10;
    if (tangent) y = (in >= 0 ? y - (1 << 23) + (1 << 7) : -y + (1 << 23) + (1 << 7) - 1) >> 8;
    else y = (in >= 0 ? y + (1 << 9) : (1 << 25) - y + (1 << 9) - 1) >> 10;
    v[i] = (int32_t)y;
  }
  return tfl_by_table(c, x, v, tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_function(Conversion *c)
{
  static const Named list[] = {
    {"ABS", "abs"},      {"CEIL", "ceil"},        {"COS", "cos"},
    {"EXP", "exp"},      {"FLOOR", "floor"},      {"LOG", "log"},
    {"NEG", "negative"}, {"RSQRT", "rsqrt"},      {"SIN", "sin"},
    {"SQRT", "sqrt"},    {"ROUND", "round"},      {"SIGN", "sign"},
    {"TANH", "tanh"},    {"LOGISTIC", "sigmoid"}, {"LOGICAL_NOT", "logical_not"},
  };
  const Node *x = kit_in(c, 0);
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  const char *op = tfl_op(c)->op;
  if (!is_stored(in)) return kit_op1(c, OP_OF(c, list), x, NULL);
  float so = (float)tfl_scale(c, out);
  bool bytes = in->dtype.bits == 8;
  if (!strcmp(op, "ABS")) {
    float factor = (float)tfl_scale(c, in) / so;
    x = kit_op1(c, "abs", tfl_centred(c, x, in), NULL);
    return tfl_store(c, tfl_scale(c, in) == tfl_scale(c, out) ? x : tfl_rescale1(c, x, (double)factor), out, TFL_NONE);
  }
  if (!strcmp(op, "NEG")) return tfl_store(c, kit_op1(c, "negative", tfl_centred(c, x, in), NULL), out, TFL_NONE);
  if (!strcmp(op, "EXP")) return tfl_by_function(c, x, exp_of, 0);
  if (!strcmp(op, "LOG")) return tfl_by_function(c, x, log_of, (float)(dtype_imin(out->dtype) - tfl_zero(c, out)) * so);
  if (!strcmp(op, "RSQRT")) return bytes ? rsqrt_bytes(c, x) : tfl_by_function(c, x, rsqrt_of, 32767 * so);
  if (!strcmp(op, "TANH")) return bytes ? tfl_by_function(c, x, tanh_of, 0) : logistic_words(c, x, true);
  if (!strcmp(op, "LOGISTIC")) return bytes ? tfl_by_function(c, x, logistic_of, 0) : logistic_words(c, x, false);
  kit_fail(c, ERR_UNSUPPORTED, "%s is not supported; float32 is", tfl_type_name(in->type));
}

const Node *tfl_convert_square(Conversion *c) { return kit_mul(c, kit_in(c, 0), kit_in(c, 0)); }

/* Limits of the four of its kind; what has none above is infinite. */
const Node *tfl_convert_relu(Conversion *c)
{
  const char *op = tfl_op(c)->op;
  const Node *x = kit_in(c, 0);
  double least = !strcmp(op, "RELU_N1_TO_1") ? -1 : 0;
  double most = !strcmp(op, "RELU") ? INFINITY : !strcmp(op, "RELU6") ? 6 : 1;
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  if (!is_stored(in)) return kit_op1(c, "clip", x, "a_min:f,a_max:f", least, most);
  float so = (float)tfl_scale(c, out);
  double z = (double)tfl_zero(c, out);
  double lo = fmax((double)dtype_imin(out->dtype), z + (double)roundf((float)least / so));
  double hi = fmin((double)dtype_imax(out->dtype), z + (double)roundf((float)most / so));
  x = tfl_rescale1(c, tfl_centred(c, x, in), (double)((float)tfl_scale(c, in) / so));
  x = kit_op1(c, "clip", x, "a_min:f,a_max:f", lo - z, hi - z);
  return kit_cast_to(c, z != 0 ? kit_add(c, x, kit_scalar(c, DT_I32, z)) : x, out->dtype);
}

const Node *tfl_convert_leaky_relu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double alpha = tfl_float(c, 0, 0);
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  if (!is_stored(in)) return kit_op1(c, "nn.leaky_relu", x, "alpha:f", alpha);
  float si = (float)tfl_scale(c, in);
  float so = (float)tfl_scale(c, out);
  x = tfl_centred(c, x, in);
  const Node *above = kit_op2(c, "greater_equal", x, kit_scalar(c, DT_I32, 0), NULL);
  const Node *y =
      kit_where(c, above, tfl_rescale1(c, x, (double)(si / so)), tfl_rescale1(c, x, (double)(si * (float)alpha / so)));
  return tfl_store(c, y, out, TFL_NONE);
}

const Node *tfl_convert_prelu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *alpha = kit_in(c, 1);
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  if (!is_stored(in)) {
    const Node *above = kit_op2(c, "greater_equal", x, kit_scalar_like(c, x, 0), NULL);
    return kit_where(c, above, x, kit_mul(c, x, alpha));
  }
  float si = (float)tfl_scale(c, in);
  float so = (float)tfl_scale(c, out);
  float sa = (float)tfl_scale(c, tfl_in(c, 1));
  x = tfl_centred(c, x, in);
  const Node *above = kit_op2(c, "greater_equal", x, kit_scalar(c, DT_I32, 0), NULL);
  const Node *product = kit_mul(c, x, tfl_centred(c, alpha, tfl_in(c, 1)));
  const Node *y =
      kit_where(c, above, tfl_rescale1(c, x, (double)(si / so)), tfl_rescale1(c, product, (double)(si * sa / so)));
  return tfl_store(c, y, out, TFL_NONE);
}

const Node *tfl_convert_elu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (is_stored(tfl_in(c, 0))) return tfl_by_function(c, x, elu_of, 0);
  const Node *zero = kit_scalar_like(c, x, 0);
  const Node *below = kit_sub(c, kit_exp(c, kit_min2(c, x, zero)), kit_scalar_like(c, x, 1));
  return kit_where(c, kit_less(c, x, zero), below, x);
}

const Node *tfl_convert_gelu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  bool near = tfl_bool(c, 0);
  if (is_stored(tfl_in(c, 0))) return tfl_by_function(c, x, near ? gelu_near : gelu_of, 0);
  const Node *one = kit_scalar_like(c, x, 1);
  const Node *gate;
  if (near) {
    const Node *cube = kit_mul(c, kit_mul(c, x, x), x);
    gate = kit_add(c, x, kit_mul(c, cube, kit_scalar_like(c, x, 0.044715)));
    gate = kit_op1(c, "tanh", kit_mul(c, gate, kit_scalar_like(c, x, 0.79788456080286535588)), NULL);
  } else {
    gate = kit_op1(c, "erf", kit_mul(c, x, kit_scalar_like(c, x, 0.70710678118654752440)), NULL);
  }
  return kit_mul(c, kit_mul(c, x, kit_scalar_like(c, x, 0.5)), kit_add(c, one, gate));
}

/* ---- x * relu6(x + 3) / 6 ------------------------------------------------------------------------------------- */

static int32_t word_multiplier(float factor, int *shift)
{
  int32_t m;
  tfl_multiplier((double)factor, &m, shift);
  return m >= INT32_MAX - (1 << 15) ? 32767 : (m + (1 << 15)) >> 16;
}

/* In 16 bits: the input times 128, its products with the output's scale and, saturated, with that of the gate. */
static const Node *hard_swish_bytes(Conversion *c, const Node *x)
{
  const TflTensor *out = tfl_out(c, 0);
  float fine = (1.0f / 128.0f) * (float)tfl_scale(c, tfl_in(c, 0));
  int out_shift, gate_shift;
  int32_t out_factor = word_multiplier(fine / (float)tfl_scale(c, out), &out_shift);
  int32_t gate_factor = word_multiplier(fine / (3.0f / 32768.0f), &gate_shift);
  if (out_shift > 0) kit_fail(c, ERR_UNSUPPORTED, "an output scale below 1/128 of the input's is not supported");
  int32_t zero = (int32_t)tfl_zero(c, tfl_in(c, 0));
  int32_t least = (int32_t)dtype_imin(out->dtype);
  int32_t v[256];
  for (int i = 0; i < 256; i++) {
    int32_t in = (int16_t)((i + (int32_t)dtype_imin(kit_dtype_of(c, x)) - zero) * 128);
    int32_t on_output = tfl_word_product(in, out_factor);
    int32_t gate = in;
    if (gate_shift > 0) gate = tfl_word_limited(gate * (1 << (gate_shift - 1)));
    gate = tfl_word_product(gate, gate_factor);
    if (gate_shift > 0) gate = tfl_word_limited(gate * 2);
    if (gate_shift < 0) gate = tfl_shifted_down(gate, -gate_shift);
    gate = (gate + (1 << 15)) >> 1;
    int32_t y = tfl_shifted_down(gate * on_output / (1 << 15), -out_shift) + (int32_t)tfl_zero(c, out);
    v[i] = y < least ? least : y > least + 255 ? least + 255 : y;
  }
  return tfl_by_table(c, x, v, out->dtype);
}

const Node *tfl_convert_hard_swish(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (is_stored(tfl_in(c, 0))) {
    if (tfl_in(c, 0)->dtype.bits != 8) kit_fail(c, ERR_UNSUPPORTED, "int16 is not supported; 8 bits and float32 are");
    return hard_swish_bytes(c, x);
  }
  const Node *gate = kit_op1(c, "clip", kit_add(c, x, kit_scalar_like(c, x, 3)), "a_min:f,a_max:f", 0.0, 6.0);
  return kit_div(c, kit_mul(c, x, gate), kit_scalar_like(c, x, 6));
}

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */

const Node *tfl_convert_cast(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  DType to = tfl_out(c, 0)->dtype;
  if (dtype_is_bool(to)) return kit_op2(c, "not_equal", x, kit_scalar_like(c, x, 0), NULL);
  return kit_cast_to(c, x, to);
}

const Node *tfl_convert_bitcast(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (kit_dtype_of(c, x).bits != tfl_out(c, 0)->dtype.bits)
    kit_fail(c, ERR_UNSUPPORTED, "dtypes of different widths are not supported");
  return kit_op1(c, "reinterpret", x, "dtype:t", tfl_out(c, 0)->dtype);
}

/* Real numbers to the steps of a quantized range and back. */
const Node *tfl_convert_fake_quant(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t bits = tfl_int(c, 2, 0);
  if (bits < 2 || bits > 16) kit_fail(c, ERR_ARGUMENT, "%" PRId64 " bits", bits);
  float lo = (float)tfl_float(c, 0, 0);
  float hi = (float)tfl_float(c, 1, 0);
  float qlo = tfl_bool(c, 3) ? 1 : 0;
  float qhi = (float)((1 << bits) - 1);
  if (!(lo < hi) || isinf(lo) || isinf(hi)) kit_fail(c, ERR_ARGUMENT, "a range from %g to %g", (double)lo, (double)hi);
  float scale = (hi - lo) / (qhi - qlo);
  float zero = qlo - lo / scale;
  zero = zero < qlo ? qlo : zero > qhi ? qhi : roundf(zero);
  float least = (qlo - zero) * scale;
  float most = (qhi - zero) * scale;
  const Node *y = kit_op1(c, "clip", x, "a_min:f,a_max:f", (double)least, (double)most);
  y = kit_mul(c, kit_sub(c, y, kit_scalar(c, DT_F32, (double)least)), kit_scalar(c, DT_F32, (double)(1.0f / scale)));
  y = kit_op1(c, "floor", kit_add(c, y, kit_scalar(c, DT_F32, 0.5)), NULL);
  return kit_add(c, kit_mul(c, y, kit_scalar(c, DT_F32, (double)scale)), kit_scalar(c, DT_F32, (double)least));
}

/* ---- along axes ------------------------------------------------------------------------------------------------- */

/* The sum of stored integers, in floats. */
static const Node *quantized_sum_of(Conversion *c, const Node *x, int n, const int64_t *axes, bool keep)
{
  const TflTensor *out = tfl_out(c, 0);
  float count = 1;
  for (int i = 0; i < n; i++) count *= (float)kit_static_dim(c, x, (int)axes[i]);
  float scale = (float)tfl_scale(c, tfl_in(c, 0)) / (float)tfl_scale(c, out);
  float bias = (float)-tfl_zero(c, tfl_in(c, 0)) * scale * count;
  const Node *sum = kit_cast_to(c, kit_reduce(c, "sum", kit_cast_to(c, x, DT_I32), n, axes, keep), DT_F32);
  sum = kit_add(c, kit_mul(c, sum, kit_scalar(c, DT_F32, (double)scale)), kit_scalar(c, DT_F32, (double)bias));
  double z = (double)tfl_zero(c, out);
  sum = kit_op1(c, "clip", tfl_rounded(c, sum), "a_min:f,a_max:f", (double)dtype_imin(out->dtype) - z,
                (double)dtype_imax(out->dtype) - z);
  return kit_cast_to(c, kit_add(c, kit_cast_to(c, sum, DT_I32), kit_scalar(c, DT_I32, z)), out->dtype);
}

/* The mean of stored integers: their sum less the zero points, rescaled by a multiplier that has the count in it. */
static const Node *quantized_mean(Conversion *c, const Node *x, int n, const int64_t *axes, bool keep)
{
  const TflTensor *out = tfl_out(c, 0);
  int64_t count = 1;
  for (int i = 0; i < n; i++) count *= kit_static_dim(c, x, (int)axes[i]);
  int32_t multiplier;
  int shift;
  tfl_multiplier(tfl_scale(c, tfl_in(c, 0)) / tfl_scale(c, out), &multiplier, &shift);
  int more = 63 - __builtin_clzll((unsigned long long)(count > 0 ? count : 1));
  if (more > 32) more = 32;
  if (more > 31 + shift) more = 31 + shift;
  multiplier = (int32_t)(((int64_t)multiplier << more) / (count > 0 ? count : 1));
  shift -= more;
  const Node *sum = kit_reduce(c, "sum", kit_cast_to(c, x, DT_I32), n, axes, keep);
  double zeros = (double)(tfl_zero(c, tfl_in(c, 0)) * count);
  if (zeros != 0) sum = kit_sub(c, sum, kit_scalar(c, DT_I32, zeros));
  return tfl_store(c, tfl_rescale_by(c, sum, multiplier, shift), out, TFL_NONE);
}

const Node *tfl_convert_reduce(Conversion *c)
{
  static const Named list[] = {
    {"MEAN", "mean"},      {"SUM", "sum"},        {"REDUCE_PROD", "prod"}, {"REDUCE_MAX", "max"},
    {"REDUCE_MIN", "min"}, {"REDUCE_ANY", "any"}, {"REDUCE_ALL", "all"},
  };
  const Node *x = kit_in(c, 0);
  const char *op = OP_OF(c, list);
  int64_t axes[MAX_RANK];
  int n = tfl_axes(c, 1, kit_rank_of(c, x), axes);
  bool keep = tfl_bool(c, 0);
  bool mean = !strcmp(op, "mean");
  if (is_stored(tfl_in(c, 0)) && mean) return quantized_mean(c, x, n, axes, keep);
  if (is_stored(tfl_in(c, 0)) && !strcmp(op, "sum")) return quantized_sum_of(c, x, n, axes, keep);
  if (is_stored(tfl_in(c, 0)) && !strcmp(op, "prod"))
    kit_fail(c, ERR_UNSUPPORTED, "quantized tensors are not supported; float32 and int32 are");
  if (mean && dtype_is_int(kit_dtype_of(c, x))) { /* the sum over the count, towards zero */
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= kit_static_dim(c, x, (int)axes[i]);
    const Node *sum = kit_reduce(c, "sum", kit_cast_to(c, x, DT_I64), n, axes, keep);
    sum = kit_op2(c, "trunc_divide", sum, kit_scalar(c, DT_I64, (double)count), NULL);
    return kit_cast_to(c, sum, kit_dtype_of(c, x));
  }
  return kit_reduce(c, op, x, n, axes, keep);
}

const Node *tfl_convert_arg(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t axis = kit_axis_of(c, kit_const_int(c, kit_in(c, 1), "the axis"), kit_rank_of(c, x));
  const Node *y = kit_op1(c, strcmp(tfl_op(c)->op, "ARG_MAX") ? "argmin" : "argmax", x, "axis:I", 1, &axis);
  return kit_cast_to(c, y, tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_cumsum(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int axis = kit_axis_of(c, kit_const_int(c, kit_in(c, 1), "the axis"), kit_rank_of(c, x));
  return kit_op1(c, "cumsum", x, "axis:i,exclusive:i,reverse:i", axis, (int)tfl_bool(c, 0), (int)tfl_bool(c, 1));
}

const Node *tfl_convert_log_softmax(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (is_stored(tfl_in(c, 0))) kit_fail(c, ERR_UNSUPPORTED, "quantized tensors are not supported; float32 is");
  return kit_op1(c, "nn.log_softmax", x, "axis:i", kit_rank_of(c, x) - 1);
}

/* Results count in 1/128. */
static const Node *l2_bytes(Conversion *c, const Node *x, int last)
{
  const TflTensor *out = tfl_out(c, 0);
  enum { MORE = 7 };
  if (tfl_in(c, 0)->dtype.bits != 8 || tfl_scale(c, out) != 1.0 / 128)
    kit_fail(c, ERR_UNSUPPORTED, "%s to a scale of %g is not supported; 8 bits to 1/128 are",
             tfl_type_name(tfl_in(c, 0)->type), tfl_scale(c, out));
  x = tfl_centred(c, x, tfl_in(c, 0));
  const Node *root = kit_op1(c, "qnn.contrib_rsqrt", kit_reduce1(c, "sum", kit_mul(c, x, x), last, true), NULL);
  const Node *right = node_get(c->m, root, 1);
  if (out->dtype.code == DT_UINT) x = kit_mul(c, x, kit_scalar(c, DT_I32, 1 << MORE)); /* rounded to that first */
  else right = kit_sub(c, right, kit_scalar(c, DT_I32, MORE));
  x = kit_op3(c, "qnn.contrib_multiply_shift", x, node_get(c->m, root, 0), right, "rounding:s", "DOUBLE");
  return tfl_store(c, x, out, TFL_NONE);
}

const Node *tfl_convert_l2_normalization(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int last = kit_rank_of(c, x) - 1;
  if (is_stored(tfl_in(c, 0))) return l2_bytes(c, x, last);
  const Node *norm = kit_sqrt(c, kit_reduce1(c, "sum", kit_mul(c, x, x), last, true));
  norm = kit_max2(c, norm, kit_scalar_like(c, x, 1e-6));
  return tfl_activation(c, kit_div(c, x, norm), tfl_byte(c, 0, 0));
}

/* x / (bias + alpha * sum of squares of 2 radius + 1 neighbours)^beta */
const Node *tfl_convert_lrn(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t radius = tfl_int(c, 0, 0);
  int rank = kit_rank_of(c, x);
  if (radius < 0 || radius > INT32_MAX / 4) kit_fail(c, ERR_ARGUMENT, "a radius of %" PRId64, radius);
  double size = 2 * (double)radius + 1;
  return kit_op1(c, "nn.lrn", x, "size:l,axis:i,bias:f,alpha:f,beta:f", (int64_t)size, rank - 1, tfl_float(c, 1, 0),
                 tfl_float(c, 2, 0) * size, tfl_float(c, 3, 0));
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

/* exp(x) of x in [-1/4, 0), as a fraction: a polynomial around -1/8. */
static int32_t exp_near_zero(int32_t a)
{
  int32_t x = a + (1 << 28);
  int32_t x2 = tfl_high_product(x, x);
  int32_t x3 = tfl_high_product(x2, x);
  int32_t x4 = tfl_high_product(x2, x2);
  int32_t x4_over_4 = tfl_shifted_down(x4, 2);
  int32_t rest = tfl_shifted_down(tfl_high_product(x4_over_4 + x3, 715827883) + x2, 1);
  return 1895147668 + tfl_high_product(1895147668, x + rest);
}

/* exp(x) of x <= 0 with five bits before the point, as a fraction: that of the part below 1/4, times exp of each
 * quarter's bit. */
static int32_t exp_below_zero(int32_t a)
{
  static const int32_t factor[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  int32_t quarter = 1 << 24;
  int32_t below = (a & (quarter - 1)) - quarter;
  int32_t result = exp_near_zero(raised(below, 5));
  int32_t rest = below - a;
  for (int i = 0; i < 7; i++)
    if (rest & (int32_t)((uint32_t)1 << (24 + i))) result = tfl_high_product(result, factor[i]);
  return a == 0 ? INT32_MAX : result;
}

/* exp(beta * scale * (x - largest)) of each difference comes from a table of fractions of 31 bits; their sum, with 12
 * bits before the point, is inverted in fixed point. */
static const Node *softmax_bytes(Conversion *c, const Node *x, double beta)
{
  const TflTensor *out = tfl_out(c, 0);
  enum { BITS = 5 };
  int32_t multiplier;
  int shift;
  int32_t e[256];
  int32_t term[256];
  double factor = fmin(beta * tfl_scale(c, tfl_in(c, 0)) * (1 << (31 - BITS)), 2147483647.0);
  tfl_multiplier(factor, &multiplier, &shift);
  if (shift < 0) kit_fail(c, ERR_UNSUPPORTED, "a scale of %g is too small for it", tfl_scale(c, tfl_in(c, 0)));
  /* differences whose exponential is nothing */
  double radius = floor(((1 << BITS) - 1) * ldexp(1, 31 - BITS) / ldexp(1, shift));
  for (int i = 0; i < 256; i++) {
    e[i] = i > radius ? 0 : exp_below_zero(tfl_high_product((int32_t)((uint32_t)-i << shift), multiplier));
    term[i] = tfl_shifted_down(e[i], 12);
  }
  int last = kit_rank_of(c, x) - 1;
  const Node *wide = kit_cast_to(c, x, DT_I32);
  const Node *below = kit_sub(c, kit_reduce1(c, "max", wide, last, true), wide);
  const Node *sum = kit_reduce1(c, "sum", tfl_look_up(c, tfl_table(c, DT_I32, 256, term), below), last, true);
  const Node *inverse = kit_op1(c, "qnn.contrib_reciprocal", sum, "integer_bits:i", 12);
  const Node *right = kit_add(c, node_get(c->m, inverse, 1), kit_scalar(c, DT_I32, 31 - out->dtype.bits));
  const Node *y = kit_op3(c, "qnn.contrib_multiply_shift", tfl_look_up(c, tfl_table(c, DT_I32, 256, e), below),
                          node_get(c->m, inverse, 0), right, "rounding:s", "DOUBLE");
  double lo = (double)dtype_imin(out->dtype);
  y = kit_op1(c, "clip", y, "a_min:f,a_max:f", 0.0, (double)dtype_imax(out->dtype) - lo);
  if (lo != 0) y = kit_add(c, y, kit_scalar(c, DT_I32, lo));
  return kit_cast_to(c, y, out->dtype);
}

/* 512 steps over [least, most] as fractions of 15 bits, with half of what a straight line is wrong by in the middle
 * taken off; all 65536 places between them. */
static const Node *fraction_table(Conversion *c, double least, double most, double (*f)(double))
{
  enum { STEPS = 512 };
  double step = (most - least) / STEPS;
  double per_unit = 65536 / (2.0 / 65535 * 65535);
  int32_t at[STEPS + 1];
  for (int i = 0; i <= STEPS; i++) {
    double here = round(f(least + i * step) * per_unit);
    double bias = 0;
    if (i < STEPS) {
      double line = round((f(least + (i + 1) * step) * per_unit + here) / 2);
      bias = round((line - round(f(least + i * step + step / 2) * per_unit)) / 2);
    }
    at[i] = (int32_t)fmin(fmax(here - bias, -32768), 32767);
  }
  int32_t *v = arena_array(c->im->arena, int32_t, 65536);
  for (int i = 0; i < 65536; i++) v[i] = at[i >> 7] + (((at[(i >> 7) + 1] - at[i >> 7]) * (i & 127) + 64) >> 7);
  return tfl_table(c, DT_I32, 65536, v);
}

static double over_one_plus(double x) { return 1 / (1 + x); }

/* A value of 16 bits around zero as its place in a table. */
static const Node *place_of(Conversion *c, const Node *x)
{
  x = kit_op1(c, "clip", x, "a_min:f,a_max:f", -32768.0, 32767.0);
  return kit_add(c, x, kit_scalar(c, DT_I32, 32768));
}

/* Exponentials of differences down to -10 and the inverse of their sum by tables, in fractions of 15 bits. */
static const Node *softmax_words(Conversion *c, const Node *x, double beta)
{
  int last = kit_rank_of(c, x) - 1;
  const Node *wide = kit_cast_to(c, x, DT_I32);
  const Node *below = kit_sub(c, wide, kit_reduce1(c, "max", wide, last, true));
  below = tfl_rescale1(c, below, tfl_scale(c, tfl_in(c, 0)) * beta / (10.0 / 65535.0));
  const Node *e =
      tfl_look_up(c, fraction_table(c, -10, 0, exp), place_of(c, kit_add(c, below, kit_scalar(c, DT_I32, 32767))));
  const Node *sum = kit_reduce1(c, "sum", e, last, true);
  /* bits above the sum's top one */
  const Node *shift = node_get(c->m, kit_op1(c, "qnn.contrib_reciprocal", sum, "integer_bits:i", 0), 1);
  const Node *room = kit_sub(c, kit_scalar(c, DT_I32, 30), shift); /* one less than them */
  const Node *top = kit_op2(c, "left_shift", kit_cast_to(c, sum, DT_I64), kit_cast_to(c, room, DT_I64), NULL);
  top = kit_op2(c, "right_shift", kit_add(c, top, kit_scalar(c, DT_I64, 1 << 13)), kit_scalar(c, DT_I64, 14), NULL);
  top = kit_cast_to(c, kit_sub(c, top, kit_scalar(c, DT_I64, (1 << 15) + (1 << 16))), DT_I32);
  const Node *inverse = tfl_look_up(c, fraction_table(c, 0, 1, over_one_plus), place_of(c, top));
  const Node *y = kit_op3(c, "qnn.contrib_multiply_shift", e, inverse, shift, "rounding:s", "UPWARD");
  return kit_cast_to(c, kit_op1(c, "clip", y, "a_min:f,a_max:f", 0.0, 32767.0), tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_softmax(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double beta = tfl_float(c, 0, 0);
  if (!tfl_is_quantized(tfl_in(c, 0))) {
    if (beta != 1) x = kit_mul(c, x, kit_scalar(c, DT_F32, beta));
    return kit_softmax(c, x, kit_rank_of(c, x) - 1);
  }
  if (tfl_in(c, 0)->dtype.bits == 8) return softmax_bytes(c, x, beta);
  return softmax_words(c, x, beta);
}
