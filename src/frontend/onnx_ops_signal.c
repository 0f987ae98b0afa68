/* onnx_ops_signal.c: Fourier transforms, windows, sums of products, determinants.
 *
 * Comes in: signals whose last axis holds the real part, or real and imaginary.  Goes
 * out: signal.* calls, einsum, linalg.det. */
#include "frontend/onnx_import.h"

static const Node *dft(Conv *c, int n, const int64_t *axes, void *env)
{
  (void)env;
  const Node *x = conv_in(c, 0);
  const Node *length = conv_opt(c, 1);
  int at = (int)axes[n - 1];
  int inverse = (int)attr_int(c, "inverse", 0);
  int onesided = (int)attr_int(c, "onesided", 0);
  if (length)
    return op2(c, "signal.dft", x, scalar_of(c, length), "axis:i,inverse:i,onesided:i", at, inverse, onesided);
  return op1(c, "signal.dft", x, "axis:i,inverse:i,onesided:i", at, inverse, onesided);
}

static const Node *convert_dft(Conv *c)
{
  int n = 0;
  int rank = rank_of(c, conv_in(c, 0));
  const Node *in = c->opset < 20 ? NULL : conv_opt(c, 2);
  const int64_t *v = in ? const_ints(c, in, &n) : NULL;
  /* the last axis holds the parts of a number and is never meant */
  if (in && !v)
    return switch_axes(c, where(c, less(c, in, scalar_like(c, in, 0)), add(c, in, scalar_like(c, in, rank)), in),
                       rank - 1, dft, NULL);
  int64_t axis = axis_of(c, v ? v[0] : attr_int(c, "axis", c->opset < 20 ? 1 : -2), rank);
  return dft(c, 1, &axis, NULL);
}

static const Node *convert_stft(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *step = scalar_of(c, conv_in(c, 1));
  const Node *window = conv_opt(c, 2);
  const Node *length = conv_opt(c, 3);
  if (!window) {
    const Node *n = length ? vector_of(c, cast_to(c, length, DT_I64)) : shape_part(c, x, 1, 2);
    window = full(c, scalar_like(c, x, 1), n, dtype_of(c, x));
  }
  return op3(c, "signal.stft", x, window, step, "onesided:i", (int)attr_int(c, "onesided", 1));
}

static const Node *convert_window(Conv *c)
{
  const char *t = c->p->op_type;
  const char *kind = !strcmp(t, "HannWindow") ? "hann" : !strcmp(t, "HammingWindow") ? "hamming" : "blackman";
  return op1(c, "signal.window", scalar_of(c, conv_in(c, 0)), "kind:s,periodic:i,dtype:t", kind,
             (int)attr_int(c, "periodic", 1), attr_dtype(c, "output_datatype", DT_F32));
}

static const Node *convert_mel(Conv *c)
{
  const Node *arg[5];
  for (int i = 0; i < 5; i++) arg[i] = scalar_of(c, conv_in(c, i));
  return opn(c, "signal.mel_weight_matrix", 5, arg, "dtype:t", attr_dtype(c, "output_datatype", DT_F32));
}

static const Node *convert_einsum(Conv *c)
{
  for (int i = 0; i < c->nin; i++) conv_in(c, i);
  const char *equation = attr_str(c, "equation", NULL);
  if (!equation) conv_fail(c, ERR_ARGUMENT, "attribute 'equation' is missing");
  return opn(c, "einsum", c->nin, c->in, "equation:s", equation);
}

static const Node *convert_det(Conv *c) { return op1(c, "linalg.det", conv_in(c, 0), NULL); }

static const OnnxRow rows[] = {
  {"BlackmanWindow", 17, convert_window},
  {"DFT", 17, convert_dft},
  {"Det", 11, convert_det},
  {"Einsum", 12, convert_einsum},
  {"HammingWindow", 17, convert_window},
  {"HannWindow", 17, convert_window},
  {"MelWeightMatrix", 17, convert_mel},
  {"STFT", 17, convert_stft},
};
ONNX_TABLE(onnx_signal, "", rows);
