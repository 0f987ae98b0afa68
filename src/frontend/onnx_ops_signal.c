/* onnx_ops_signal.c: Fourier transforms, windows, sums of products, determinants.
 *
 * Comes in: signals whose last axis holds the real part, or real and imaginary.  Goes
 * out: signal.* calls, einsum, linalg.det. */
#include "frontend/onnx_import.h"

static const Node *dft(Conversion *c, int n, const int64_t *axes, void *env)
{
  (void)env;
  const Node *x = kit_in(c, 0);
  const Node *length = kit_opt(c, 1);
  int at = (int)axes[n - 1];
  int inverse = (int)onnx_attr_int(c, "inverse", 0);
  int onesided = (int)onnx_attr_int(c, "onesided", 0);
  if (length)
    return kit_op2(c, "signal.dft", x, kit_scalar_of(c, length), "axis:i,inverse:i,onesided:i", at, inverse, onesided);
  return kit_op1(c, "signal.dft", x, "axis:i,inverse:i,onesided:i", at, inverse, onesided);
}

static const Node *convert_dft(Conversion *c)
{
  int n = 0;
  int rank = kit_rank_of(c, kit_in(c, 0));
  const Node *in = c->version < 20 ? NULL : kit_opt(c, 2);
  const int64_t *v = in ? kit_const_ints(c, in, &n) : NULL;
  /* the last axis holds the parts of a number and is never meant */
  if (in && !v)
    return kit_switch_axes(
        c, kit_where(c, kit_less(c, in, kit_scalar_like(c, in, 0)), kit_add(c, in, kit_scalar_like(c, in, rank)), in),
        rank - 1, dft, NULL);
  int64_t axis = kit_axis_of(c, v ? v[0] : onnx_attr_int(c, "axis", c->version < 20 ? 1 : -2), rank);
  return dft(c, 1, &axis, NULL);
}

static const Node *convert_stft(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *step = kit_scalar_of(c, kit_in(c, 1));
  const Node *window = kit_opt(c, 2);
  const Node *length = kit_opt(c, 3);
  if (!window) {
    const Node *n = length ? kit_vector_of(c, kit_cast_to(c, length, DT_I64)) : kit_shape_part(c, x, 1, 2);
    window = kit_full(c, kit_scalar_like(c, x, 1), n, kit_dtype_of(c, x));
  }
  return kit_op3(c, "signal.stft", x, window, step, "onesided:i", (int)onnx_attr_int(c, "onesided", 1));
}

static const Node *convert_window(Conversion *c)
{
  const char *t = c->op;
  const char *kind = !strcmp(t, "HannWindow") ? "hann" : !strcmp(t, "HammingWindow") ? "hamming" : "blackman";
  return kit_op1(c, "signal.window", kit_scalar_of(c, kit_in(c, 0)), "kind:s,periodic:i,dtype:t", kind,
                 (int)onnx_attr_int(c, "periodic", 1), onnx_attr_dtype(c, "output_datatype", DT_F32));
}

static const Node *convert_mel(Conversion *c)
{
  const Node *arg[5];
  for (int i = 0; i < 5; i++) arg[i] = kit_scalar_of(c, kit_in(c, i));
  return kit_opn(c, "signal.mel_weight_matrix", 5, arg, "dtype:t", onnx_attr_dtype(c, "output_datatype", DT_F32));
}

static const Node *convert_einsum(Conversion *c)
{
  for (int i = 0; i < c->nin; i++) kit_in(c, i);
  const char *equation = onnx_attr_str(c, "equation", NULL);
  if (!equation) kit_fail(c, ERR_ARGUMENT, "attribute 'equation' is missing");
  return kit_opn(c, "einsum", c->nin, c->in, "equation:s", equation);
}

static const Node *convert_det(Conversion *c) { return kit_op1(c, "linalg.det", kit_in(c, 0), NULL); }

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
ONNX_TABLE(onnx_ops_signal, "", rows);
