/* signal.c: Fourier transforms and windows: signal.dft, dft, signal.stft, stft, signal.window,
 * signal.mel_weight_matrix.
 *
 * A transform of length L is the sum itself: out[k] = sum_n in[n] * (cos, sin)(2 pi k n / L),
 * with the L cosines and sines computed once and read at (k * n) mod L.  Complex numbers
 * are pairs in the last axis, as ONNX has them. */
#include "op/shape.h"

#define PI 3.14159265358979323846

/* Sums of many turns cancel, so those of float32 are carried in float64 and rounded once. */
static DType transform_dtype(DType t) { return dtype_eq(t, DT_F32) ? DT_F64 : op_sum_dtype(t); }

/* cos (or sin) of 2 pi i / n for i in [0, n). */
static const Tensor *circle(OpCall *c, const Expr *n, DType t, bool sine)
{
  Module *m = c->m;
  OpAxes ax = op_axes(c, 1, &n);
  const Expr *turn = expr_binary(m, E_DIV, expr_cast(m, t, ax.index[0]), expr_cast(m, t, n));
  return op_emit(c, &ax, sine ? "T_sin" : "T_cos",
                 op_intrin(m, sine ? IN_SIN : IN_COS, expr_mul(m, turn, op_num(m, t, 2 * PI))));
}

/* (k * n) mod length, without overflow of 32 bits. */
static const Expr *angle(Module *m, const Expr *k, const Expr *n, const Expr *length)
{
  const Expr *p = expr_mul(m, expr_cast(m, DT_I64, k), expr_cast(m, DT_I64, n));
  return expr_cast(m, length->dtype, expr_floormod(m, p, expr_cast(m, DT_I64, length)));
}

/* ---- dft ------------------------------------------------------------------------------------------ */

/* clang-format off */
#define DFT_ATTRS(A, S)                                                                      \
  A(S, INT, axis, "-2", "axis to transform")                                                 \
  A(S, BOOL, inverse, "False", "the inverse, scaled by 1 / length")                          \
  A(S, BOOL, onesided, "False", "the first length / 2 + 1 only; of the inverse: such an input, and a real result")
/* clang-format on */
DEFINE_ATTRS(Dft, DFT_ATTRS)

typedef struct DftShape {
  int axis;
  const Expr *length; /* of the transform */
  const Expr *given;  /* input elements that count */
  bool complex, real_result;
} DftShape;

static int dft_axis(OpCall *c, int ndim)
{
  const DftAttrs *a = c->attrs;
  int axis = op_axis(c, a->axis, ndim);
  if (axis == ndim - 1)
    opdef_raise(c, ERR_ARGUMENT, "axis is %" PRId64 "; the last axis of %s holds real and imaginary part", a->axis,
                op_arg_text(c, 0));
  return axis;
}

static const Type *dft_type(OpCall *c)
{
  const DftAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  op_need_float(c, 0);
  if (in->ndim < 2 || in->shape[in->ndim - 1]->kind != E_INT || in->shape[in->ndim - 1]->u.i < 1 ||
      in->shape[in->ndim - 1]->u.i > 2)
    opdef_raise(c, ERR_SHAPE, "data is %s; its last axis is 1 (real) or 2 (complex)", op_arg_text(c, 0));
  int n;
  int axis = dft_axis(c, in->ndim);
  bool back = a->inverse && a->onesided;
  const Expr *length = back ? dim_mul(m, dim_sub(m, in->shape[axis], dim_int(m, 1)), dim_int(m, 2)) : in->shape[axis];
  if (c->nargs > 1) {
    op_int_tensor_arg(c, 1);
    const Expr *const *v = op_dims(c, 1, &n);
    if (n != 1) opdef_raise(c, ERR_SHAPE, "dft_length is %s; it is one number", op_arg_text(c, 1));
    length = v[0];
  }
  const Expr **dim = op_emit_copy_index(m, in->ndim, in->shape);
  dim[axis] = a->onesided && !a->inverse ? dim_add(m, dim_floordiv(m, length, dim_int(m, 2)), dim_int(m, 1)) : length;
  dim[in->ndim - 1] = dim_int(m, back ? 1 : 2);
  return type_tensor(m, in->dtype, in->ndim, dim);
}

/* The transform's length as the compute sees it: the output's extent, or the operand. */
static const Expr *dft_length(OpCall *c, const Tensor *const *in, int axis)
{
  const DftAttrs *a = c->attrs;
  if (!a->onesided || a->inverse) return c->out->shape[axis];
  if (c->nargs > 1) return expr_cast(c->m, DT_I32, op_emit_read1(c->m, in[1], expr_i32(c->m, 0)));
  return in[0]->buffer->shape[axis];
}

/* One part of in[n] * e^(+-i theta): real: re cos -+ im sin, imaginary: +-re sin + im cos. */
static const Expr *rotated(Module *m, const Expr *re, const Expr *im, const Expr *cosine, const Expr *sine,
                           bool inverse, bool imaginary)
{
  const Expr *s = inverse ? sine : expr_sub(m, op_num(m, sine->dtype, 0), sine);
  const Expr *first = expr_mul(m, re, imaginary ? s : cosine);
  if (!im) return first;
  return imaginary ? expr_add(m, first, expr_mul(m, im, cosine)) : expr_sub(m, first, expr_mul(m, im, s));
}

/* Elements of a half spectrum stand for their mirror image too, but for the first and, of
 * an even length, the middle one. */
static const Expr *half_weight(Module *m, const Expr *k, const Expr *length, DType t)
{
  const Expr *twice = expr_mul(m, k, expr_i32(m, 2));
  const Expr *alone =
      expr_binary(m, E_OR, expr_binary(m, E_EQ, k, expr_int(m, k->dtype, 0)), expr_binary(m, E_EQ, twice, length));
  return expr_select(m, alone, op_num(m, t, 1), op_num(m, t, 2));
}

static void dft_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const DftAttrs *a = c->attrs;
  Module *m = c->m;
  const Buffer *data = in[0]->buffer;
  int n = data->ndim;
  int axis = dft_axis(c, n);
  DType t = transform_dtype(data->dtype);
  const Expr *length = dft_length(c, in, axis);
  bool back = a->inverse && a->onesided;
  /* the table's extent is a size: the output's or the input's, where the length is an operand of a half spectrum */
  const Expr *table =
      c->nargs > 1 && a->onesided && !a->inverse ? dim_mul(m, c->out->shape[axis], dim_int(m, 2)) : length;
  OpAxes ax = op_out_axes(c, 0);
  const IterVar *k = op_reduce_axis(c, "k", data->shape[axis]);
  const Expr **at = op_emit_copy_index(m, n, ax.index);
  const Expr *where = angle(m, ax.index[axis], k->var->expr, length);
  at[axis] = k->var->expr;
  at[n - 1] = expr_i32(m, 0);
  const Expr *re = expr_cast(m, t, op_read(m, in[0], at));
  const Expr *im = NULL;
  const Expr *cosine, *sine;
  if (expr_is_int(data->shape[n - 1], 2)) {
    at[n - 1] = expr_i32(m, 1);
    im = expr_cast(m, t, op_read(m, in[0], at));
  }
  if (table == length) {
    cosine = op_emit_read1(m, circle(c, table, t, false), where);
    sine = op_emit_read1(m, circle(c, table, t, true), where);
  } else {
    const Expr *turn =
        expr_mul(m, expr_binary(m, E_DIV, expr_cast(m, t, where), expr_cast(m, t, length)), op_num(m, t, 2 * PI));
    cosine = op_intrin(m, IN_COS, turn);
    sine = op_intrin(m, IN_SIN, turn);
  }
  const Expr *real = rotated(m, re, im, cosine, sine, a->inverse, false);
  const Expr *imag = rotated(m, re, im, cosine, sine, a->inverse, true);
  const Expr *v = back ? expr_mul(m, real, half_weight(m, k->var->expr, length, t))
                       : expr_select(m, expr_binary(m, E_EQ, ax.index[n - 1], expr_i32(m, 0)), real, imag);
  const Expr *limit = back ? expr_add(m, expr_floordiv(m, length, expr_i32(m, 2)), expr_i32(m, 1)) : length;
  /* a longer input is cut, a shorter one is zero after its end */
  v = expr_select(m, expr_lt(m, k->var->expr, limit), v, op_num(m, t, 0));
  const Expr *sum = op_reduce(m, "sum", v, 1, &k);
  if (a->inverse) sum = expr_binary(m, E_DIV, sum, expr_cast(m, t, length));
  out[0] = op_emit(c, &ax, "T_dft", expr_cast(m, data->dtype, sum));
}

const OpDef op_signal_dft = {
  .name = "signal.dft",
  .doc = "discrete Fourier transform along an axis; complex numbers are pairs in the last axis",
  .args = "data, dft_length",
  .min_args = 1,
  .max_args = 2,
  .attrs = &Dft_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dft_type,
  .compute = dft_compute,
};

/* ---- stft ------------------------------------------------------------------------------------------- */

#define SIGNAL_STFT_ATTRS(A, S) A(S, BOOL, onesided, "True", "the first half of each spectrum only")
DEFINE_ATTRS(SignalStft, SIGNAL_STFT_ATTRS)

/* (batch, length, 1 or 2) -> (batch, frames, bins, 2); frames are as long as the window. */
static const Type *signal_stft_type(OpCall *c)
{
  const SignalStftAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  const Type *w = op_tensor_arg(c, 1);
  int n;
  op_need_float(c, 0);
  op_same_dtype(c, 0, 1);
  op_int_tensor_arg(c, 2);
  if (in->ndim != 3 || w->ndim != 1 || in->shape[2]->kind != E_INT || in->shape[2]->u.i < 1 || in->shape[2]->u.i > 2)
    opdef_raise(c, ERR_SHAPE, "signal is %s, window %s; they are (batch, length, 1 or 2) and a vector",
                op_arg_text(c, 0), op_arg_text(c, 1));
  const Expr *const *step = op_dims(c, 2, &n), *frame = w->shape[0];
  if (n != 1) opdef_raise(c, ERR_SHAPE, "frame_step is %s; it is one number", op_arg_text(c, 2));
  if (step[0]->kind == E_INT && step[0]->u.i < 1)
    opdef_raise(c, ERR_ARGUMENT, "frame_step is %" PRId64 "; it is at least 1", step[0]->u.i);
  const Expr *by = step[0]->kind == E_INT ? step[0] : dim_max(m, step[0], dim_int(m, 1));
  const Expr *frames = dim_add(m, dim_floordiv(m, dim_sub(m, in->shape[1], frame), by), dim_int(m, 1));
  if (frames->kind == E_INT && frames->u.i < 1)
    opdef_raise(c, ERR_SHAPE, "signal %s is shorter than the window %s", op_arg_text(c, 0), op_arg_text(c, 1));
  const Expr *dim[4] = {in->shape[0], frames,
                        a->onesided ? dim_add(m, dim_floordiv(m, frame, dim_int(m, 2)), dim_int(m, 1)) : frame,
                        dim_int(m, 2)};
  return type_tensor(m, in->dtype, 4, dim);
}

static void signal_stft_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Expr *frame = in[1]->buffer->shape[0];
  const Expr *step = expr_cast(m, DT_I32, op_emit_read1(m, in[2], expr_i32(m, 0)));
  DType t = transform_dtype(c->out->dtype);
  const Tensor *cosines = circle(c, frame, t, false);
  const Tensor *sines = circle(c, frame, t, true);
  OpAxes ax = op_out_axes(c, 0);
  const IterVar *k = op_reduce_axis(c, "k", frame);
  const Expr *at[3] = {ax.index[0], expr_add(m, expr_mul(m, ax.index[1], step), k->var->expr), expr_i32(m, 0)};
  const Expr *w = expr_cast(m, t, op_emit_read1(m, in[1], k->var->expr));
  const Expr *re = expr_mul(m, w, expr_cast(m, t, op_read(m, in[0], at)));
  const Expr *im = NULL;
  if (expr_is_int(in[0]->buffer->shape[2], 2)) {
    at[2] = expr_i32(m, 1);
    im = expr_mul(m, w, expr_cast(m, t, op_read(m, in[0], at)));
  }
  const Expr *where = angle(m, ax.index[2], k->var->expr, frame);
  const Expr *cosine = op_emit_read1(m, cosines, where);
  const Expr *sine = op_emit_read1(m, sines, where);
  const Expr *v =
      expr_select(m, expr_binary(m, E_EQ, ax.index[3], expr_i32(m, 0)), rotated(m, re, im, cosine, sine, false, false),
                  rotated(m, re, im, cosine, sine, false, true));
  out[0] = op_emit(c, &ax, "T_stft", expr_cast(m, c->out->dtype, op_reduce(m, "sum", v, 1, &k)));
}

const OpDef op_signal_stft = {
  .name = "signal.stft",
  .doc = "spectra of windows that move by frame_step: (batch, frames, bins, 2)",
  .args = "signal, window, frame_step",
  .min_args = 3,
  .max_args = 3,
  .attrs = &SignalStft_attrs,
  .fuse = FUSE_OPAQUE,
  .type = signal_stft_type,
  .compute = signal_stft_compute,
};

/* clang-format off */
#define STFT_ATTRS(A, S)                                              \
  A(S, INT, n_fft, NULL, "length of a transform")                     \
  A(S, INT, hop_length, NULL, "step of the window")                   \
  A(S, INT, win_length, NULL, "length of the window")                 \
  A(S, BOOL, normalized, "False", "divide by the root of n_fft")      \
  A(S, BOOL, onesided, "True", "the first half of each spectrum only")
/* clang-format on */
DEFINE_ATTRS(Stft, STFT_ATTRS)

/* (batch, length) -> (batch, bins, frames, 2) */
static const Type *stft_type(OpCall *c)
{
  const StftAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  const Type *w = op_tensor_arg(c, 1);
  op_need_float(c, 0);
  op_same_dtype(c, 0, 1);
  if (in->ndim != 2 || w->ndim != 1)
    opdef_raise(c, ERR_SHAPE, "data is %s, window %s; they are (batch, length) and a vector", op_arg_text(c, 0),
                op_arg_text(c, 1));
  if (a->n_fft < 1 || a->n_fft > INT32_MAX || a->hop_length > INT32_MAX || a->hop_length < 1 || a->win_length < 1 ||
      a->win_length > a->n_fft || dim_differ(w->shape[0], dim_int(m, a->win_length)))
    opdef_raise(c, ERR_ARGUMENT,
                "n_fft is %" PRId64 ", hop_length %" PRId64 ", win_length %" PRId64
                ", window %s; the window is win_length long, at most n_fft",
                a->n_fft, a->hop_length, a->win_length, op_arg_text(c, 1));
  const Expr *frames = dim_add(
      m, dim_floordiv(m, dim_sub(m, in->shape[1], dim_int(m, a->n_fft)), dim_int(m, a->hop_length)), dim_int(m, 1));
  const Expr *dim[4] = {in->shape[0], dim_int(m, a->onesided ? a->n_fft / 2 + 1 : a->n_fft), frames, dim_int(m, 2)};
  return type_tensor(m, in->dtype, 4, dim);
}

/* A short window stands in the middle of its frame. */
static void stft_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const StftAttrs *a = c->attrs;
  Module *m = c->m;
  const Expr *length = expr_i32(m, a->n_fft);
  const Expr *pad = expr_i32(m, (a->n_fft - a->win_length) / 2);
  DType t = transform_dtype(c->out->dtype);
  const Tensor *cosines = circle(c, length, t, false);
  const Tensor *sines = circle(c, length, t, true);
  OpAxes ax = op_out_axes(c, 0);
  const IterVar *k = op_reduce_axis(c, "k", expr_i32(m, a->win_length));
  const Expr *n = expr_add(m, k->var->expr, pad);
  const Expr *at[2] = {ax.index[0], expr_add(m, expr_mul(m, ax.index[2], expr_i32(m, a->hop_length)), n)};
  const Expr *re =
      expr_mul(m, expr_cast(m, t, op_emit_read1(m, in[1], k->var->expr)), expr_cast(m, t, op_read(m, in[0], at)));
  const Expr *where = angle(m, ax.index[1], n, length);
  const Expr *cosine = op_emit_read1(m, cosines, where);
  const Expr *sine = op_emit_read1(m, sines, where);
  const Expr *v =
      expr_select(m, expr_binary(m, E_EQ, ax.index[3], expr_i32(m, 0)),
                  rotated(m, re, NULL, cosine, sine, false, false), rotated(m, re, NULL, cosine, sine, false, true));
  const Expr *sum = op_reduce(m, "sum", v, 1, &k);
  if (a->normalized) sum = expr_binary(m, E_DIV, sum, op_intrin(m, IN_SQRT, op_num(m, t, (double)a->n_fft)));
  out[0] = op_emit(c, &ax, "T_stft", expr_cast(m, c->out->dtype, sum));
}

const OpDef op_stft = {
  .name = "stft",
  .doc = "short-time Fourier transform: (batch, bins, frames, 2)",
  .args = "data, window",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Stft_attrs,
  .fuse = FUSE_OPAQUE,
  .type = stft_type,
  .compute = stft_compute,
};

/* ---- windows -------------------------------------------------------------------------------------------- */

/* clang-format off */
#define WINDOW_ATTRS(A, S)                                                 \
  A(S, STR, kind, "\"hann\"", "hann, hamming or blackman")                 \
  A(S, BOOL, periodic, "True", "over size, not size - 1, steps")           \
  A(S, DTYPE, dtype, "\"float32\"", "of the result")
/* clang-format on */
DEFINE_ATTRS(Window, WINDOW_ATTRS)

/* a0 - a1 cos(x) + a2 cos(2 x) */
typedef struct WindowKind {
  const char *name;
  double a[3];
} WindowKind;
/* clang-format off */
static const WindowKind windows[] = {
  {"hann", {0.5, 0.5, 0}},
  {"hamming", {25.0 / 46, 21.0 / 46, 0}},
  {"blackman", {0.42, 0.5, 0.08}},
};
/* clang-format on */

static const WindowKind *window_kind(OpCall *c)
{
  const WindowAttrs *a = c->attrs;
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
    if (!strcmp(windows[i].name, a->kind)) return &windows[i];
  opdef_raise(c, ERR_ARGUMENT, "kind is '%s'; it is hann, hamming or blackman", a->kind);
}

static const Type *window_type(OpCall *c)
{
  const WindowAttrs *a = c->attrs;
  int n;
  window_kind(c);
  op_int_tensor_arg(c, 0);
  const Expr *const *size = op_dims(c, 0, &n);
  if (n != 1) opdef_raise(c, ERR_SHAPE, "size is %s; it is one number", op_arg_text(c, 0));
  return type_tensor(c->m, a->dtype, 1, size);
}

static void window_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  const WindowAttrs *a = c->attrs;
  const WindowKind *kind = window_kind(c);
  Module *m = c->m;
  DType t = dtype_is_float(a->dtype) ? op_sum_dtype(a->dtype) : DT_F32;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *steps = a->periodic ? ax.shape[0] : expr_max(m, expr_sub(m, ax.shape[0], expr_i32(m, 1)), expr_i32(m, 1));
  const Expr *x =
      expr_mul(m, expr_binary(m, E_DIV, expr_cast(m, t, ax.index[0]), expr_cast(m, t, steps)), op_num(m, t, 2 * PI));
  const Expr *v = expr_sub(m, op_num(m, t, kind->a[0]), expr_mul(m, op_num(m, t, kind->a[1]), op_intrin(m, IN_COS, x)));
  if (kind->a[2] != 0)
    v = expr_add(m, v, expr_mul(m, op_num(m, t, kind->a[2]), op_intrin(m, IN_COS, expr_mul(m, x, op_num(m, t, 2)))));
  out[0] = op_emit(c, &ax, "T_window", expr_cast(m, a->dtype, v));
}

const OpDef op_signal_window = {
  .name = "signal.window",
  .doc = "a window of cosines",
  .args = "size",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Window_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = window_type,
  .compute = window_compute,
};

/* ---- mel_weight_matrix ---------------------------------------------------------------------------------------- */

#define MEL_ATTRS(A, S) A(S, DTYPE, dtype, "\"float32\"", "of the result")
DEFINE_ATTRS(Mel, MEL_ATTRS)

static const Type *mel_type(OpCall *c)
{
  const MelAttrs *a = c->attrs;
  const Expr *v[2];
  for (int i = 0; i < 2; i++) {
    int n;
    op_int_tensor_arg(c, i);
    const Expr *const *one = op_dims(c, i, &n);
    if (n != 1) opdef_raise(c, ERR_SHAPE, "%s is %s; it is one number", op_arg_name(c, i), op_arg_text(c, i));
    v[i] = one[0];
  }
  for (int i = 2; i < 5; i++) op_tensor_arg(c, i);
  const Expr *dim[2] = {dim_add(c->m, dim_floordiv(c->m, v[1], dim_int(c->m, 2)), dim_int(c->m, 1)), v[0]};
  return type_tensor(c->m, a->dtype, 2, dim);
}

/* Edge i of the triangles as a bin: edges are evenly spaced on the mel scale. */
static const Expr *mel_edge(Module *m, const Expr *const *arg, const Expr *i)
{
  DType t = DT_F32;
  const Expr *mel[2];
  for (int k = 0; k < 2; k++) {
    const Expr *hz = expr_binary(m, E_DIV, expr_cast(m, t, arg[3 + k]), op_num(m, t, 700));
    mel[k] = expr_mul(m, op_num(m, t, 2595), op_intrin(m, IN_LOG10, expr_add(m, op_num(m, t, 1), hz)));
  }
  const Expr *bins = expr_add(m, expr_cast(m, t, arg[0]), op_num(m, t, 2));
  const Expr *step = expr_binary(m, E_DIV, expr_sub(m, mel[1], mel[0]), bins);
  const Expr *at = expr_add(m, expr_mul(m, expr_cast(m, t, i), step), mel[0]);
  const Expr *power = op_intrin2(m, IN_POW, op_num(m, t, 10), expr_binary(m, E_DIV, at, op_num(m, t, 2595)));
  const Expr *hz = expr_mul(m, op_num(m, t, 700), expr_sub(m, power, op_num(m, t, 1)));
  const Expr *scaled = expr_mul(m, expr_add(m, expr_cast(m, t, arg[1]), op_num(m, t, 1)), hz);
  return expr_cast(m, DT_I32, op_intrin(m, IN_FLOOR, expr_binary(m, E_DIV, scaled, expr_cast(m, t, arg[2]))));
}

static void mel_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Expr *arg[5];
  for (int i = 0; i < 5; i++) arg[i] = op_emit_read1(m, in[i], expr_i32(m, 0));
  const Expr *nedge = dim_add(m, c->out->shape[1], dim_int(m, 2));
  OpAxes ex = op_axes(c, 1, &nedge);
  const Tensor *edges = op_emit(c, &ex, "T_mel_edges", mel_edge(m, arg, ex.index[0]));
  OpAxes ax = op_out_axes(c, 0);
  DType t = DT_F32;
  const Expr *row = ax.index[0];
  const Expr *e[3];
  const Expr *zero = op_num(m, t, 0);
  const Expr *none = expr_i32(m, 0);
  for (int i = 0; i < 3; i++) e[i] = op_emit_read1(m, edges, expr_add(m, ax.index[1], expr_i32(m, i)));
  const Expr *up = expr_sub(m, e[1], e[0]);
  const Expr *down = expr_sub(m, e[2], e[1]);
  const Expr *rise =
      expr_binary(m, E_DIV, expr_cast(m, t, expr_sub(m, row, e[0])), expr_cast(m, t, expr_max(m, up, expr_i32(m, 1))));
  const Expr *fall = expr_binary(m, E_DIV, expr_cast(m, t, expr_sub(m, e[2], row)),
                                 expr_cast(m, t, expr_max(m, down, expr_i32(m, 1))));
  const Expr *rising = expr_and(m, expr_binary(m, E_GE, row, e[0]), expr_binary(m, E_LE, row, e[1]));
  const Expr *v = expr_select(m, expr_binary(m, E_EQ, up, none),
                              expr_select(m, expr_binary(m, E_EQ, row, e[1]), op_num(m, t, 1), zero),
                              expr_select(m, rising, rise, zero));
  const Expr *falling = expr_and(m, expr_binary(m, E_GT, down, none),
                                 expr_and(m, expr_binary(m, E_GE, row, e[1]), expr_lt(m, row, e[2])));
  out[0] = op_emit(c, &ax, "T_mel_weights", expr_cast(m, c->out->dtype, expr_select(m, falling, fall, v)));
}

const OpDef op_mel_weight_matrix = {
  .name = "signal.mel_weight_matrix",
  .doc = "triangles that turn a spectrum into mel bins: (dft_length / 2 + 1, num_mel_bins)",
  .args = "num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz",
  .min_args = 5,
  .max_args = 5,
  .attrs = &Mel_attrs,
  .fuse = FUSE_OPAQUE,
  .type = mel_type,
  .compute = mel_compute,
};

/* ---- dft of separate parts ------------------------------------------------------------------------------------- */

#define DFT_PARTS_ATTRS(A, S) A(S, BOOL, inverse, "False", "the inverse, scaled by 1 / length")
DEFINE_ATTRS(DftParts, DFT_PARTS_ATTRS)

static const Type *dft_parts_type(OpCall *c)
{
  const Type *re = op_tensor_arg(c, 0);
  const Type *im = op_tensor_arg(c, 1);
  op_need_float(c, 0);
  op_same_dtype(c, 0, 1);
  bool same = re->ndim == im->ndim && re->ndim > 0;
  for (int i = 0; same && i < re->ndim; i++) same = !dim_differ(re->shape[i], im->shape[i]);
  if (!same)
    opdef_raise(c, ERR_SHAPE, "re_data is %s, im_data %s; both need the same shape of at least one dimension",
                op_arg_text(c, 0), op_arg_text(c, 1));
  return type_tuple(c->m, 2, (const Type *[]){re, re});
}

static void dft_parts_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const DftPartsAttrs *a = c->attrs;
  Module *m = c->m;
  int n = in[0]->buffer->ndim;
  const Expr *length = in[0]->buffer->shape[n - 1];
  DType t = transform_dtype(in[0]->buffer->dtype);
  const Tensor *cosines = circle(c, length, t, false);
  const Tensor *sines = circle(c, length, t, true);
  for (int part = 0; part < 2; part++) {
    OpAxes ax = op_out_axes(c, part);
    const IterVar *k = op_reduce_axis(c, "k", length);
    const Expr **at = op_emit_copy_index(m, n, ax.index);
    const Expr *where = angle(m, ax.index[n - 1], k->var->expr, length);
    at[n - 1] = k->var->expr;
    const Expr *v = rotated(m, expr_cast(m, t, op_read(m, in[0], at)), expr_cast(m, t, op_read(m, in[1], at)),
                            op_emit_read1(m, cosines, where), op_emit_read1(m, sines, where), a->inverse, part == 1);
    const Expr *sum = op_reduce(m, "sum", v, 1, &k);
    if (a->inverse) sum = expr_binary(m, E_DIV, sum, expr_cast(m, t, length));
    out[part] = op_emit(c, &ax, part ? "T_dft_im" : "T_dft_re", expr_cast(m, in[0]->buffer->dtype, sum));
  }
}

const OpDef op_dft = {
  .name = "dft",
  .doc = "discrete Fourier transform along the last axis, real and imaginary part apart; gives a tuple",
  .args = "re_data, im_data",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DftParts_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dft_parts_type,
  .compute = dft_parts_compute,
};
