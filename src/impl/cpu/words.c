/* words.c: direct convolutions of bfloat16, several products at a time.
 *
 *   out[n, o, y, x, c] = sum over i, ky, kx, q of
 *                        dot(data[n, i, y', x', 2q, 2q + 1], weight[o, i, ky, kx, q, c, 0, 1])
 *
 * Data comes in blocks of channels (NCHW8c); the weight (OIHW4i8o2i) has the input channels of a step side by side for
 * each output channel, so that a vector of it is what one instruction takes beside one word of the data.  The loops
 * are those of conv.c, a step for each word. */
#include "impl/internal.h"
#include "op/nn_kit.h"

void conv_words_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const Conv2DAttrs *a = c->attrs;
  int word = conv_word_of(a->kernel_layout, c->arg[1]);
  if (word == 1) {
    c->op->compute(c, in, out);
    return;
  }
  int64_t before[5] = {0};
  int64_t after[5] = {0};
  int64_t stride[2], dilation[2];
  nn_ints(c, "strides", a->strides, 2, 1, 1, stride);
  nn_ints(c, "dilation", a->dilation, 2, 1, 1, dilation);
  nn_padding(c, a->padding, 2, before + 2, after + 2);
  const Tensor *data = in[0];
  if (before[2] || before[3] || after[2] || after[3]) {
    data = nn_bits(m, data);
    data = nn_pad_constant(m, data, before, after, expr_const(m, data->buffer->dtype, 0), "pad_temp");
  }
  const Expr *const *w = in[1]->buffer->shape; /* o, i, ky, kx, q, c, word */
  Stage s = nn_stage(m, 5, c->out->shape, "n oc oh ow oc_block");
  const Expr *i = nn_reduce_axis(&s, "rco", w[1]);
  const Expr *q = nn_reduce_axis(&s, "rci", w[4]);
  const Expr *at[5] = {s.at[0], i};
  const Expr *tap[2];
  for (int d = 0; d < 2; d++) {
    tap[d] = nn_reduce_axis(&s, d ? "rx" : "ry", w[2 + d]);
    at[2 + d] = nn_index(&s, expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, stride[d])),
                                      expr_mul(m, tap[d], expr_i32(m, dilation[d]))));
  }
  const Expr *first = expr_mul(m, q, expr_i32(m, word));
  const Expr *element[4];
  for (int p = 0; p < word; p++) {
    at[4] = p ? expr_add(m, first, expr_i32(m, p)) : first;
    element[p] = nn_read(m, data, at);
  }
  const Expr *weight = nn_word_at(m, in[1], (const Expr *[]){s.at[1], i, tap[0], tap[1], q, s.at[4]});
  *out = nn_sum(&s, "conv2d_NCHWc_words", "conv2d_NCHWc", nn_word_dot(m, nn_word(m, word, element), weight),
                c->out->dtype);
}
