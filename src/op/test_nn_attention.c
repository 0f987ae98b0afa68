/* test_nn_attention.c: attention against plain loops in double: masks, causal rows, layouts, heads shared and
 * side by side, and what it refuses. */
#include "op/test_nn.h"

enum { B = 2, H = 2, S = 3, T = 4, D = 5, E = 2 }; /* sizes of every case; E: of value's features */

/* One row: scores[T] already masked -> out[E]. */
static void plain_row(const double *scores, const float *value, int step, float *out)
{
  double most = -INFINITY;
  double total = 0;
  double sum[E] = {0};
  for (int t = 0; t < T; t++) most = fmax(most, scores[t]);
  for (int t = 0; t < T; t++) {
    double e = exp(scores[t] - most);
    total += e;
    for (int d = 0; d < E; d++) sum[d] += e * (double)value[t * step + d];
  }
  for (int d = 0; d < E; d++) out[d] = (float)(sum[d] / total);
}

/* All of (B, H, S, ·), `group` heads of query to one of key and value; mask is called for each score. */
static void plain_attention(const Array *q, const Array *k, const Array *v, int group, double scale,
                            double (*mask)(double, int b, int h, int s, int t), float *out)
{
  for (int b = 0; b < B; b++)
    for (int h = 0; h < H; h++)
      for (int s = 0; s < S; s++) {
        double scores[T] = {0};
        const float *key = k->f + (b * (H / group) + h / group) * T * D;
        const float *value = v->f + (b * (H / group) + h / group) * T * E;
        for (int t = 0; t < T; t++) {
          for (int d = 0; d < D; d++) scores[t] += (double)q->f[((b * H + h) * S + s) * D + d] * (double)key[t * D + d];
          scores[t] = mask(scores[t] * scale, b, h, s, t);
        }
        plain_row(scores, value, E, out + ((b * H + h) * S + s) * E);
      }
}

static double no_mask(double x, int b, int h, int s, int t)
{
  (void)b, (void)h, (void)s, (void)t;
  return x;
}
static double added(double x, int b, int h, int s, int t)
{
  return x + 0.5 * b - 0.25 * t + (h == 1 && s == 2 && t == 0 ? -1e9 : 0);
}
static double chosen(double x, int b, int h, int s, int t)
{
  (void)b, (void)h;
  return (s + t) % 2 ? x : -3;
}
static double until_own(double x, int b, int h, int s, int t)
{
  (void)b, (void)h;
  return t <= s + (T - S) ? x : -INFINITY;
}

CASE(values)
{
  Array q = NUMBERS(1, B, H, S, D);
  Array k = NUMBERS(2, B, H, T, D);
  Array v = NUMBERS(3, B, H, T, E);
  Array want = ZEROS(B, H, S, E);
  plain_attention(&q, &k, &v, 1, 0.75, no_mask, want.f);
  Array y = RUN(op_nn_attention, ATTRS(op_nn_attention, "scale", "0.75"), q, k, v);
  SHAPE_IS(y, B, H, S, E);
  assert_close(&y, want.f, 1e-6f);
}

CASE(added_mask)
{
  Array q = NUMBERS(1, B, H, S, D);
  Array k = NUMBERS(2, B, H, T, D);
  Array v = NUMBERS(3, B, H, T, E);
  Array m = ZEROS(B, H, S, T);
  Array turned = ZEROS(B, H, T, S);
  Array want = ZEROS(B, H, S, E);
  for (int i = 0; i < B * H * S * T; i++) {
    int b = i / (H * S * T);
    int h = i / (S * T) % H;
    int s = i / T % S;
    int t = i % T;
    m.f[i] = turned.f[((b * H + h) * T + t) * S + s] = (float)added(0, b, h, s, t);
  }
  plain_attention(&q, &k, &v, 1, 1, added, want.f);
  Array y = RUN(op_nn_attention, NULL, q, k, v, m);
  Array z = RUN(op_nn_attention, ATTRS(op_nn_attention, "mask_layout", "\"BHTS\""), q, k, v, turned);
  assert_close(&y, want.f, 1e-6f);
  assert_close(&z, want.f, 1e-6f);
}

CASE(chosen_mask)
{
  Array q = NUMBERS(1, B, H, S, D);
  Array k = NUMBERS(2, B, H, T, D);
  Array v = NUMBERS(3, B, H, T, E);
  Array m = array_of(w, DT_BOOL, DIMS(S, T));
  Array want = ZEROS(B, H, S, E);
  for (int i = 0; i < S * T; i++) m.i[i] = (i / T + i % T) % 2;
  plain_attention(&q, &k, &v, 1, 1, chosen, want.f);
  Array y = RUN(op_nn_attention, ATTRS(op_nn_attention, "fill", "-3"), q, k, v, m);
  assert_close(&y, want.f, 1e-6f);
}

CASE(causal)
{
  Array q = NUMBERS(1, B, H, S, D);
  Array k = NUMBERS(2, B, H, T, D);
  Array v = NUMBERS(3, B, H, T, E);
  Array want = ZEROS(B, H, S, E);
  plain_attention(&q, &k, &v, 1, 2, until_own, want.f);
  Array y = RUN(op_nn_attention, ATTRS(op_nn_attention, "scale", "2", "causal", "True"), q, k, v);
  assert_close(&y, want.f, 1e-6f);
}

CASE(nothing_to_see)
{
  Array q = NUMBERS(1, 1, 1, 1, D);
  Array k = NUMBERS(2, 1, 1, T, D);
  Array v = NUMBERS(3, 1, 1, T, E);
  Array m = array_of(w, DT_BOOL, DIMS(1));
  Array y = RUN(op_nn_attention, NULL, q, k, v, m);
  assert_true(isnan(y.f[0]) && isnan(y.f[1]));
}

/* One query, keys masked by the given bias: rows that see nothing, and rows that are not numbers. */
CASE(guards)
{
  Array q = NUMBERS(1, 1, 1, 1, D);
  Array k = NUMBERS(2, 1, 1, T, D);
  Array v = NUMBERS(3, 1, 1, T, E);
  static const float bias[][T] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {0, NAN, 0, 0}, {0, -INFINITY, 0, 0}};
  for (int row = 0; row < 3; row++) {
    Array m = ZEROS(T);
    memcpy(m.f, bias[row], sizeof bias[row]);
    Array none = RUN(op_nn_attention, NULL, q, k, v, m);
    Array empty = RUN(op_nn_attention, ATTRS(op_nn_attention, "guard", "\"empty\""), q, k, v, m);
    Array nan = RUN(op_nn_attention, ATTRS(op_nn_attention, "guard", "\"nan\""), q, k, v, m);
    for (int i = 0; i < E; i++) {
      assert_int_equal(isnan(none.f[i]), row < 2);
      if (row == 0) assert_true(empty.f[i] == 0 && nan.f[i] == 0);
      if (row == 1) assert_true(isnan(empty.f[i]) && nan.f[i] == 0);
      if (row == 2) assert_true(empty.f[i] == none.f[i] && nan.f[i] == none.f[i]);
    }
  }
}

CASE(shared_heads)
{
  Array q = NUMBERS(1, B, H, S, D);
  Array k = NUMBERS(2, B, 1, T, D);
  Array v = NUMBERS(3, B, 1, T, E);
  Array want = ZEROS(B, H, S, E);
  plain_attention(&q, &k, &v, H, 1, no_mask, want.f);
  Array y = RUN(op_nn_attention, ATTRS(op_nn_attention, "kv_heads", "1"), q, k, v);
  assert_close(&y, want.f, 1e-6f);
}

/* (B, S, H, ·) and heads side by side in one tensor mean the same as (B, H, S, ·). */
CASE(layouts)
{
  Array all = NUMBERS(4, B, T, 3 * H, D);
  Array q = ZEROS(B, H, T, D);
  Array k = ZEROS(B, H, T, D);
  Array v = ZEROS(B, H, T, D);
  for (int i = 0; i < B * H * T * D; i++) {
    int b = i / (H * T * D);
    int h = i / (T * D) % H;
    int t = i / D % T;
    int d = i % D;
    const float *from = all.f + ((b * T + t) * 3 * H + h) * D + d;
    q.f[i] = from[0], k.f[i] = from[H * D], v.f[i] = from[2 * H * D];
  }
  Array want = RUN(op_nn_attention, NULL, q, k, v);
  Array y = RUN(op_nn_attention,
                ATTRS(op_nn_attention, "query_layout", "\"BSHD\"", "key_layout", "\"BTHD\"", "value_layout", "\"BTHD\"",
                      "out_layout", "\"SBHD\"", "heads", "2", "first_head", "[0, 2, 4]"),
                all, all, all);
  SHAPE_IS(y, T, B, H, D);
  for (int i = 0; i < B * H * T * D; i++) {
    int b = i / (H * T * D);
    int h = i / (T * D) % H;
    int t = i / D % T;
    int d = i % D;
    assert_float_equal(y.f[((t * B + b) * H + h) * D + d], want.f[i], 0);
  }
}

CASE(symbolic)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *past = var_new(w->m, "past", DT_I32, VAR_SIZE)->expr;
  const Type *q = type_tensor(w->m, DT_F32, 4, (const Expr *[]){I(1), I(6), n, I(64)});
  const Type *k = type_tensor(w->m, DT_F32, 4, (const Expr *[]){I(1), I(6), past, I(64)});
  assert_string_equal(TYPE_TEXT(TYPED(op_nn_attention, ATTRS(op_nn_attention, "out_layout", "\"BSHD\""), q, k, k)),
                      "Tensor[(1, n, 6, 64), float32]");
  /* nobody knows yet whether there are as many values as keys */
  const Type *y = TYPED(op_nn_attention, NULL, q, k, TENSOR(1, 6, 9, 64));
  assert_true(y->shape[3]->kind != E_INT);
}

REFUSED(wrong_layout, ERR_ARGUMENT, "nn.attention: key_layout 'BHSD' is not an order of the letters BHTD")
{
  TYPED(op_nn_attention, ATTRS(op_nn_attention, "key_layout", "\"BHSD\""), TENSOR(1, 2, 3, 4), TENSOR(1, 2, 3, 4),
        TENSOR(1, 2, 3, 4));
}
REFUSED(wrong_guard, ERR_ARGUMENT, "nn.attention: guard 'zero' is none of none, empty and nan")
{
  TYPED(op_nn_attention, ATTRS(op_nn_attention, "guard", "\"zero\""), TENSOR(1, 2, 3, 4), TENSOR(1, 2, 3, 4),
        TENSOR(1, 2, 3, 4));
}
REFUSED(wrong_features, ERR_SHAPE, "nn.attention: query (1, 2, 3, 4) and key (1, 2, 3, 5) differ in D: 4 and 5")
{
  TYPED(op_nn_attention, NULL, TENSOR(1, 2, 3, 4), TENSOR(1, 2, 3, 5), TENSOR(1, 2, 3, 4));
}
REFUSED(wrong_keys, ERR_SHAPE, "nn.attention: key (1, 2, 3, 4) and value (1, 2, 6, 4) differ in T: 3 and 6")
{
  TYPED(op_nn_attention, NULL, TENSOR(1, 2, 3, 4), TENSOR(1, 2, 3, 4), TENSOR(1, 2, 6, 4));
}
REFUSED(wrong_heads, ERR_SHAPE, "nn.attention: key (1, 1, 3, 4) has no 2 heads from head 0 on")
{
  TYPED(op_nn_attention, NULL, TENSOR(1, 2, 3, 4), TENSOR(1, 1, 3, 4), TENSOR(1, 1, 3, 4));
}
REFUSED(odd_heads, ERR_ARGUMENT, "nn.attention: 3 heads cannot share kv_heads 2")
{
  TYPED(op_nn_attention, ATTRS(op_nn_attention, "kv_heads", "2"), TENSOR(1, 3, 3, 4), TENSOR(1, 2, 3, 4),
        TENSOR(1, 2, 3, 4));
}
REFUSED(wrong_mask, ERR_SHAPE, "nn.attention: mask (5, 6) is neither 1 nor 3 in S")
{
  TYPED(op_nn_attention, NULL, TENSOR(1, 2, 3, 4), TENSOR(1, 2, 6, 4), TENSOR(1, 2, 6, 4), TENSOR(5, 6));
}
REFUSED(mask_of_integers, ERR_TYPE, "nn.attention: mask is int32; it must be bool or float32, as query is")
{
  TYPED(op_nn_attention, NULL, TENSOR(1, 2, 3, 4), TENSOR(1, 2, 6, 4), TENSOR(1, 2, 6, 4),
        type_tensor_of(w->m, DT_I32, DIMS(3, 6)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(values),         cmocka_unit_test(added_mask),     cmocka_unit_test(chosen_mask),
    cmocka_unit_test(causal),         cmocka_unit_test(nothing_to_see), cmocka_unit_test(shared_heads),
    cmocka_unit_test(layouts),        cmocka_unit_test(symbolic),       cmocka_unit_test(wrong_layout),
    cmocka_unit_test(wrong_features), cmocka_unit_test(wrong_keys),     cmocka_unit_test(wrong_heads),
    cmocka_unit_test(odd_heads),      cmocka_unit_test(wrong_mask),     cmocka_unit_test(mask_of_integers),
    cmocka_unit_test(guards),         cmocka_unit_test(wrong_guard),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
