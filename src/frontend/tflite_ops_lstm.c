/* tflite_ops_lstm.c: LSTM cells, one step or a sequence.
 *
 *   i, f, o = sigmoid(norm(W x + R h + P c) + b)     o: P c of the new cell
 *   g       = tanh(norm(W x + R h) + b)
 *   c       = clip(f c + i g)                        without an input gate i is 1 - f
 *   h       = clip(V (o tanh(c)) + b)                without a projection h is o tanh(c)
 *
 * The products with x of all steps are made at once, those with h step by step, each over all gates.
 *
 * Integers: data and h have 8 bits, the cell 16, its scale a power of two.  Sums are brought to 16 bits with 12 behind
 * the point, or to the scale of the intermediate results where they are normalised; sigmoid and tanh are tables of
 * what TFLite's fixed-point functions give.  Floats of the plain kind are nn.lstm. */
#include <math.h>

#include "frontend/tflite_ops.h"

enum { INPUT, FORGET, UPDATE, OUTPUT, GATES };
/* places of the operands; weights, biases and norms in the order of the gates */
enum { AT_W = 1, AT_R = 5, AT_P = 9, AT_B = 12, AT_V = 16, AT_V_BIAS = 17, AT_H = 18, AT_C = 19, AT_NORM = 20 };
enum { STEPS = 1024 }; /* at most */

typedef struct Lstm {
  int n, gate[GATES];     /* those that are there */
  int64_t units, results; /* of the cell, of h */
  int64_t activation;
  double cell_clip, out_clip;
  bool integers, normalised, peephole;
  /* made once for all steps */
  const Node *recurrent; /* weights of all gates */
  int cell_exponent;     /* integers: the cell counts in 2^this */
  const Node *logistic, *tangent, *cell_tangent;
} Lstm;

/* ---- fixed point of 16 bits ------------------------------------------------------------------------- */

static int32_t narrow(int32_t x) { return (int16_t)(uint16_t)(uint32_t)x; }
static int32_t constant(int32_t of_31_bits) { return tfl_shifted_down(of_31_bits, 16); }
static int32_t up(int32_t x, int bits) { return tfl_word_limited(x * (1 << bits)); }

/* exp(x) of x <= 0 with so many bits before the point, as a fraction. */
static int32_t word_exp(int32_t a, int bits)
{
  static const int32_t factor[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  int fraction = 15 - bits;
  int32_t quarter = 1 << (fraction - 2);
  int32_t below = (a & (quarter - 1)) - quarter;
  int32_t x = up(below, bits) + (1 << 12); /* around -1/8 */
  int32_t x2 = tfl_word_product(x, x);
  int32_t x3 = tfl_word_product(x2, x);
  int32_t x4 = tfl_word_product(x2, x2);
  int32_t most = tfl_word_product(tfl_shifted_down(x4, 2) + x3, constant(715827883)) + x2;
  int32_t at = constant(1895147668);
  int32_t y = tfl_word_limited(at + tfl_word_product(at, x + tfl_shifted_down(most, 1)));
  int32_t rest = narrow(below - a);
  for (int e = -2; e < 5 && e < bits; e++)
    if (rest & (1 << (fraction + e))) y = tfl_word_product(y, constant(factor[e + 2]));
  if (bits > 5 && a < -(1 << (20 - bits))) y = 0;
  return a == 0 ? 32767 : y;
}

/* 1 / (1 + x) over 2 of a fraction, with two bits before the point. */
static int32_t word_inverse(int32_t x)
{
  int32_t half = (x + 32767 + 1) / 2;
  int32_t y = narrow(constant(1515870810) + tfl_word_product(half, constant(-1010580540)));
  for (int i = 0; i < 3; i++) {
    int32_t rest = narrow((1 << 13) - tfl_word_product(half, y));
    y = narrow(y + up(tfl_word_product(y, rest), 2));
  }
  return y;
}

static int32_t word_logistic(int32_t a, int bits)
{
  int32_t size = narrow(a > 0 ? -a : a);
  int32_t y = up(word_inverse(word_exp(size, bits)), 1);
  return a == 0 ? 1 << 14 : a > 0 ? y : 32767 - y;
}

static int32_t word_tanh(int32_t a, int bits)
{
  int32_t size = narrow(a > 0 ? -a : a);
  int32_t y = up(narrow(word_inverse(word_exp(size, bits + 1)) - (1 << 13)), 2);
  return a == 0 ? 0 : a < 0 ? -y : y;
}

/* A function of 16 bits with so many before the point, as a table. */
static const Node *word_table(Conversion *c, int32_t (*f)(int32_t, int), int bits)
{
  int32_t *v = arena_array(c->im->arena, int32_t, 65536);
  for (int i = 0; i < 65536; i++) v[i] = f(i - 32768, bits);
  return tfl_table(c, DTYPE(DT_INT, 16), 65536, v);
}

static const Node *by_words(Conversion *c, const Node *x, const Node *table)
{
  return kit_cast_to(c, tfl_look_up(c, table, kit_add(c, x, kit_scalar(c, DT_I32, 32768))), DT_I32);
}

static const Node *limited(Conversion *c, const Node *x, double lo, double hi)
{
  return kit_op1(c, "clip", x, "a_min:f,a_max:f", lo, hi);
}
static const Node *word(Conversion *c, const Node *x) { return limited(c, x, -32768, 32767); }

/* round(a * b / 2^right), halves away from zero */
static const Node *scaled_product(Conversion *c, const Node *a, const Node *b, int right)
{
  return kit_op3(c, "qnn.contrib_multiply_shift", kit_mul(c, a, b), kit_scalar(c, DT_I32, 1),
                 kit_scalar(c, DT_I32, right), "rounding:s", "TONEAREST");
}

/* ---- operands --------------------------------------------------------------------------------------------- */

/* Real where data is. */
static const Node *operand(Conversion *c, const Lstm *l, int at)
{
  const Node *x = kit_in(c, at);
  return !l->integers && tfl_is_quantized(tfl_in(c, at)) ? tfl_real(c, x, tfl_in(c, at)) : x;
}

/* Those of the gates that are there, one below the other. */
static const Node *of_gates(Conversion *c, const Lstm *l, int first)
{
  const Node *part[GATES];
  for (int i = 0; i < l->n; i++) part[i] = operand(c, l, first + l->gate[i]);
  return kit_concat(c, l->n, part, 0);
}

static float scale_of(Conversion *c, const TflTensor *t) { return (float)tfl_scale(c, t); }

/* The scale of a gate's sums: 12 bits behind the point, or that of the intermediate result. */
static float gate_scale(Conversion *c, const Lstm *l, int gate)
{
  return l->normalised ? scale_of(c, tfl_inter(c, gate)) : 1.0f / 4096;
}

/* Factors of the products of a tensor of that scale with the gates' weights. */
static const Node *rescaled_gates(Conversion *c, const Lstm *l, const Node *sums, int first, float scale)
{
  double *f = arena_array(c->im->arena, double, l->n * l->units);
  for (int i = 0; i < l->n; i++) {
    float one = scale_of(c, tfl_in(c, first + l->gate[i])) * scale / gate_scale(c, l, l->gate[i]);
    for (int64_t k = 0; k < l->units; k++) f[i * l->units + k] = (double)one;
  }
  return tfl_rescale(c, sums, (int)(l->n * l->units), f, 1);
}

/* x W^T; integers: of x less its zero point. */
static const Node *product(Conversion *c, const Lstm *l, const Node *x, int64_t zero, const Node *w)
{
  if (!l->integers) return kit_op2(c, "nn.dense", x, w, NULL);
  const Node *one = kit_scalar(c, DT_F32, 1);
  const Node *arg[] = {x, w, kit_scalar(c, DT_I32, (double)zero), kit_scalar(c, DT_I32, 0), one, one};
  return kit_opn(c, "qnn.dense", 6, arg, "units:l", kit_static_dim(c, w, 0));
}

/* ---- one step ------------------------------------------------------------------------------------------------- */

/* Integers: mean and deviation in units of 2^-10. */
static const Node *normal_words(Conversion *c, const Lstm *l, int gate, const Node *x)
{
  const TflTensor *norm = tfl_in(c, AT_NORM + gate);
  double n = (double)l->units;
  const Node *wide = kit_cast_to(c, x, DT_I64);
  const Node *sum = kit_mul(c, kit_reduce1(c, "sum", wide, 1, true), kit_scalar(c, DT_I64, 1024));
  const Node *mean = kit_op2(c, "trunc_divide", sum, kit_scalar(c, DT_I64, n), NULL);
  const Node *squares = kit_reduce1(c, "sum", kit_mul(c, wide, wide), 1, true);
  squares = kit_mul(c, squares, kit_scalar(c, DT_I64, floor(1048576 / n)));
  const Node *variance =
      kit_op2(c, "trunc_divide", kit_sub(c, squares, kit_mul(c, mean, mean)), kit_scalar(c, DT_I64, 1048576), NULL);
  variance = kit_cast_to(c, variance, DT_I32);
  const Node *guard = kit_scalar(c, DT_I32, fmax(1, trunc((double)(10000 * scale_of(c, norm)))));
  variance = kit_where(c, kit_less(c, variance, kit_scalar(c, DT_I32, 1)), guard, variance);
  const Node *root = kit_op1(c, "qnn.contrib_rsqrt", variance, NULL);
  const Node *y = kit_sub(c, kit_mul(c, x, kit_scalar(c, DT_I32, 1024)), kit_cast_to(c, mean, DT_I32));
  y = kit_op3(c, "qnn.contrib_multiply_shift", y, node_get(c->m, root, 0), node_get(c->m, root, 1), "rounding:s",
              "DOUBLE");
  y = kit_mul(c, y, kit_cast_to(c, kit_in(c, AT_NORM + gate), DT_I32));
  y = kit_add(c, y, kit_in(c, AT_B + gate));
  const Node *above = kit_op2(c, "greater", y, kit_scalar(c, DT_I32, 0), NULL);
  const Node *half = kit_scalar(c, DT_I32, 512);
  y = kit_op2(c, "trunc_divide", kit_where(c, above, kit_add(c, y, half), kit_sub(c, y, half)),
              kit_scalar(c, DT_I32, 1024), NULL);
  int32_t multiplier;
  int shift;
  tfl_multiplier(tfl_scale(c, norm), &multiplier, &shift);
  return word(c, tfl_rescale_by(c, y, multiplier, shift + 12));
}

static const Node *normal_floats(Conversion *c, const Lstm *l, int gate, const Node *x)
{
  const Node *mean = kit_reduce1(c, "mean", x, 1, true);
  const Node *d = kit_sub(c, x, mean);
  const Node *variance = kit_reduce1(c, "mean", kit_mul(c, d, d), 1, true);
  d = kit_div(c, d, kit_sqrt(c, kit_add(c, variance, kit_scalar(c, DT_F32, 1e-8))));
  return kit_add(c, kit_mul(c, d, operand(c, l, AT_NORM + gate)), operand(c, l, AT_B + gate));
}

/* Weights of the cell.  TFLite's integer kernel takes its rows for as long as the results': the elements of all rows,
 * one after the other, meet the first weights again and again, and the last ones none. */
static const Node *peephole_words(Conversion *c, const Lstm *l, int at, int64_t batch)
{
  const Node *p = kit_cast_to(c, kit_in(c, at), DT_I32);
  if (l->results == l->units) return p;
  int64_t none = batch * (l->units - l->results);
  if (none < 0) kit_fail(c, ERR_UNSUPPORTED, "more results than units beside weights of the cell are not supported");
  p = kit_op1(c, "tile", kit_slice(c, p, 0, 0, l->results), "reps:I", 1, &batch);
  p = kit_pad(c, p, 1, (int64_t[]){0}, &none, 0);
  return kit_reshape(c, p, 2, (int64_t[]){batch, l->units});
}

/* What stands between a gate's sums and its value. */
static const Node *gate_value(Conversion *c, const Lstm *l, int i, const Node *sums, const Node *cell)
{
  int gate = l->gate[i];
  const Node *x = kit_slice(c, sums, 1, i * l->units, (i + 1) * l->units);
  if (l->peephole && gate != UPDATE) {
    int at = AT_P + (gate == OUTPUT ? 2 : gate);
    if (l->integers) {
      float f =
          (float)(ldexp(1, l->cell_exponent) * (double)scale_of(c, tfl_in(c, at)) / (double)gate_scale(c, l, gate));
      const Node *p = peephole_words(c, l, at, kit_static_dim(c, cell, 0));
      x = word(c, kit_add(c, x, tfl_rescale1(c, kit_mul(c, p, cell), (double)f)));
    } else {
      x = kit_add(c, x, kit_mul(c, operand(c, l, at), cell));
    }
  }
  if (l->normalised) x = l->integers ? normal_words(c, l, gate, x) : normal_floats(c, l, gate, x);
  if (l->integers) return by_words(c, x, gate == UPDATE ? l->tangent : l->logistic);
  return gate == UPDATE ? tfl_activation(c, x, l->activation) : kit_op1(c, "sigmoid", x, NULL);
}

static const Node *next_cell(Conversion *c, const Lstm *l, const Node *const *value, const Node *cell)
{
  const Node *one = kit_scalar(c, l->integers ? DT_I32 : DT_F32, l->integers ? 32767 : 1);
  const Node *in = value[INPUT] ? value[INPUT] : kit_sub(c, one, value[FORGET]);
  double clip = l->cell_clip;
  if (l->integers) {
    clip = trunc(fmin(clip / ldexp(1, l->cell_exponent), 32767));
    const Node *kept = scaled_product(c, value[FORGET], cell, 15);
    cell = word(c, kit_add(c, kept, scaled_product(c, in, value[UPDATE], 30 + l->cell_exponent)));
  } else {
    cell = kit_add(c, kit_mul(c, value[FORGET], cell), kit_mul(c, in, value[UPDATE]));
  }
  return clip > 0 ? limited(c, cell, -clip, clip) : cell;
}

static const Node *projected(Conversion *c, const Lstm *l, const Node *hidden, int64_t zero)
{
  double clip = l->out_clip;
  if (l->integers) clip = trunc(fmin(clip / tfl_scale(c, tfl_in(c, AT_H)), 127));
  if (kit_opt(c, AT_V)) {
    hidden = product(c, l, hidden, zero, operand(c, l, AT_V));
    if (kit_opt(c, AT_V_BIAS)) hidden = kit_add(c, hidden, operand(c, l, AT_V_BIAS));
    if (l->integers) {
      float f = scale_of(c, tfl_in(c, AT_V)) * scale_of(c, tfl_inter(c, 4)) / scale_of(c, tfl_in(c, AT_H));
      hidden = tfl_store(c, tfl_rescale1(c, hidden, (double)f), tfl_in(c, AT_H), TFL_NONE);
    }
    if (clip > 0) hidden = limited(c, hidden, -clip, clip);
  }
  return hidden;
}

static const Node *next_result(Conversion *c, const Lstm *l, const Node *gate, const Node *cell)
{
  if (!l->integers) return projected(c, l, kit_mul(c, gate, tfl_activation(c, cell, l->activation)), 0);
  const TflTensor *hidden = tfl_inter(c, 4);
  float f = (float)(ldexp(1, -15) / (double)scale_of(c, hidden) * ldexp(1, -15));
  const Node *y = kit_mul(c, gate, by_words(c, cell, l->cell_tangent));
  y = tfl_rescale1(c, y, (double)f);
  return projected(c, l, tfl_store(c, y, hidden, TFL_NONE), tfl_zero(c, hidden));
}

/* part: the products with x of this step.  Cells of integers go as int32. */
static void step(Conversion *c, const Lstm *l, const Node *part, const Node **h, const Node **cell)
{
  int64_t zero = l->integers ? tfl_zero(c, tfl_in(c, AT_H)) : 0;
  const Node *sums = product(c, l, *h, zero, l->recurrent);
  if (l->integers) sums = word(c, kit_add(c, rescaled_gates(c, l, sums, AT_R, scale_of(c, tfl_in(c, AT_H))), part));
  else sums = kit_add(c, sums, part);
  const Node *value[GATES] = {NULL};
  for (int i = 0; i + 1 < l->n; i++) value[l->gate[i]] = gate_value(c, l, i, sums, *cell);
  *cell = next_cell(c, l, value, *cell);
  *h = next_result(c, l, gate_value(c, l, l->n - 1, sums, *cell), *cell);
}

/* ---- sequences --------------------------------------------------------------------------------------------- */

static Lstm read_lstm(Conversion *c)
{
  Lstm l = {.activation = tfl_byte(c, 0, 0), .cell_clip = tfl_float(c, 1, 0), .out_clip = tfl_float(c, 2, 0)};
  l.integers = !dtype_is_float(kit_dtype_of(c, kit_in(c, 0)));
  for (int g = kit_opt(c, AT_W) ? INPUT : FORGET; g < GATES; g++) l.gate[l.n++] = g;
  l.units = kit_static_dim(c, kit_in(c, AT_W + OUTPUT), 0);
  l.results = kit_static_dim(c, kit_in(c, AT_R + OUTPUT), 1);
  l.normalised = kit_opt(c, AT_NORM + FORGET) != NULL;
  l.peephole = kit_opt(c, AT_P + 2) != NULL;
  if (l.units < 1 || l.units > 1 << 20) kit_fail(c, ERR_ARGUMENT, "%" PRId64 " units", l.units);
  if (!l.integers) return l;
  if (!dtype_eq(kit_dtype_of(c, kit_in(c, 0)), DT_I8) || !dtype_eq(kit_dtype_of(c, kit_in(c, AT_C)), DTYPE(DT_INT, 16)))
    kit_fail(c, ERR_UNSUPPORTED, "data of %s with cells of %s are not supported; int8 with int16 and float32 are",
             tfl_type_name(tfl_in(c, 0)->type), tfl_type_name(tfl_in(c, AT_C)->type));
  if (!tfl_power_of_two(tfl_scale(c, tfl_in(c, AT_C)), &l.cell_exponent) || l.cell_exponent > -9 ||
      l.cell_exponent < -15)
    kit_fail(c, ERR_UNSUPPORTED, "a cell's scale of %g is not supported; 2^-15 to 2^-9 are",
             tfl_scale(c, tfl_in(c, AT_C)));
  l.logistic = word_table(c, word_logistic, 3);
  l.tangent = word_table(c, word_tanh, 3);
  l.cell_tangent = word_table(c, word_tanh, 15 + l.cell_exponent);
  return l;
}

/* nn.lstm: gates in the order input, output, forget, cell. */
static const Node *plain_floats(Conversion *c, const Lstm *l, const Node *x, const char *f)
{
  static const int order[] = {INPUT, OUTPUT, FORGET, UPDATE};
  static const int first[] = {AT_W, AT_R, AT_B};
  const Node *arg[7] = {x};
  for (int k = 0; k < 3; k++) {
    const Node *part[GATES + 1];
    for (int i = 0; i < GATES; i++) part[i] = operand(c, l, first[k] + order[i]);
    int64_t n = GATES * l->units; /* it has a bias for either product */
    if (k == 2) part[GATES] = kit_full(c, kit_scalar(c, DT_F32, 0), kit_const_i64(c, 1, &n), DT_F32);
    arg[1 + k] = kit_unsqueeze(c, kit_concat(c, k == 2 ? GATES + 1 : GATES, part, 0), 0);
  }
  arg[4] = kit_unsqueeze(c, kit_in(c, AT_H), 0);
  arg[5] = kit_unsqueeze(c, kit_in(c, AT_C), 0);
  if (l->peephole) { /* input, output, forget */
    const Node *part[] = {operand(c, l, AT_P), operand(c, l, AT_P + 2), operand(c, l, AT_P + 1)};
    arg[6] = kit_unsqueeze(c, kit_concat(c, 3, part, 0), 0);
  }
  const char *inputs[] = {"bias", "initial_h", "initial_c", "peephole"};
  const char *functions[] = {"Sigmoid", f, f};
  int n = l->peephole ? 4 : 3;
  const Node *r =
      kit_opn(c, "nn.lstm", 3 + n, arg, "hidden_size:l,inputs:S,activations:S", l->units, n, inputs, 3, functions);
  tfl_assign(c, AT_H, kit_squeeze(c, node_get(c->m, r, 1), 0));
  tfl_assign(c, AT_C, kit_squeeze(c, node_get(c->m, r, 2), 0));
  return kit_squeeze(c, node_get(c->m, r, 0), 1);
}

/* x (time, batch, …) */
static const Node *over_time(Conversion *c, Lstm *l, const Node *x)
{
  const char *f = l->activation == TFL_TANH ? "Tanh" : l->activation == TFL_RELU ? "Relu" : NULL;
  if (!l->integers && f && l->n == GATES && !kit_opt(c, AT_V) && !l->normalised && l->cell_clip <= 0)
    return plain_floats(c, l, x, f);
  int64_t steps = kit_static_dim(c, x, 0);
  int64_t batch = kit_static_dim(c, x, 1);
  if (steps < 1 || steps > STEPS)
    kit_fail(c, ERR_UNSUPPORTED, "%" PRId64 " steps are not supported; 1 to %d are", steps, STEPS);
  x = kit_reshape(c, x, 2, (int64_t[]){steps * batch, kit_static_dim(c, x, 2)});
  const Node *parts = product(c, l, x, l->integers ? tfl_zero(c, tfl_in(c, 0)) : 0, of_gates(c, l, AT_W));
  if (!l->normalised) parts = kit_add(c, parts, of_gates(c, l, AT_B));
  if (l->integers) parts = word(c, rescaled_gates(c, l, parts, AT_W, scale_of(c, tfl_in(c, 0))));
  l->recurrent = of_gates(c, l, AT_R);
  const Node *h = kit_in(c, AT_H);
  const Node *cell = l->integers ? kit_cast_to(c, kit_in(c, AT_C), DT_I32) : kit_in(c, AT_C);
  const Node **out = arena_array(c->im->arena, const Node *, steps);
  for (int64_t t = 0; t < steps; t++) {
    step(c, l, kit_slice(c, parts, 0, t * batch, (t + 1) * batch), &h, &cell);
    out[t] = kit_unsqueeze(c, h, 0);
  }
  tfl_assign(c, AT_H, h);
  tfl_assign(c, AT_C, kit_cast_to(c, cell, kit_dtype_of(c, kit_in(c, AT_C))));
  return steps == 1 ? out[0] : kit_concat(c, (int)steps, out, 0);
}

const Node *tfl_convert_sequence_lstm(Conversion *c)
{
  Lstm l = read_lstm(c);
  bool time_major = tfl_bool(c, 3);
  const Node *x = kit_in(c, 0);
  int swap[] = {1, 0, 2};
  const Node *y = over_time(c, &l, time_major ? x : kit_transpose(c, x, 3, swap));
  return time_major ? y : kit_transpose(c, y, 3, swap);
}

/* One step; the result is the last of the outputs that a file may name. */
const Node *tfl_convert_lstm(Conversion *c)
{
  if (tfl_byte(c, 3, 0))
    kit_fail(c, ERR_UNSUPPORTED, "the basic cell, whose weights are one matrix, is not supported; the full one is");
  Lstm l = read_lstm(c);
  const Node *y = over_time(c, &l, kit_unsqueeze(c, kit_in(c, 0), 0));
  return kit_squeeze(c, y, 0);
}
