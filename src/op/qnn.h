/* qnn.h: attributes of the quantized operators, which passes and frontends read, and the kit their files share.
 *
 * A quantized tensor stands for real numbers: real = scale * (stored - zero point).  Scales are float32, zero points
 * int32, both a scalar (or a vector of one) for the whole tensor or a vector along one axis.  Each operator is defined
 * by others (decompose) in integer arithmetic: products of the stored integers summed in int32, what the zero points
 * add put beside them, and one rescaling at the end.  Where a number of the rescaling is known only at run time, the
 * rescaling is done in float32.
 *
 *   requantize, int64    round(x * m * 2^-s), m of 31 bits, from the quotient of the scales
 *   requantize, float32  round(float(x) * quotient)
 *   rounding             UPWARD: halves up; TONEAREST: halves away from zero, in floats to the even one
 *
 * The order of arguments, names and defaults are TVM's relay.qnn.op. */
#ifndef LATHE_OP_QNN_H
#define LATHE_OP_QNN_H

#include "op/nn.h"

/* clang-format off */
#define QNN_QUANTIZE_ATTRS(A, S)                                                              \
  A(S, INT, axis, "-1", "axis that scales and zero points run along")                         \
  A(S, DTYPE, out_dtype, "\"int8\"", "of the result")
#define QNN_DEQUANTIZE_ATTRS(A, S)                                                            \
  A(S, INT, axis, "-1", "axis that scales and zero points run along")                         \
  A(S, DTYPE, out_dtype, "\"float32\"", "of the result")
#define QNN_SIMULATED_QUANTIZE_ATTRS(A, S)                                                    \
  A(S, INT, axis, "-1", "axis that scales and zero points run along")                         \
  A(S, STR, out_dtype, "\"int8\"", "whose range limits the result, or disable: data as it is")
#define QNN_SIMULATED_DEQUANTIZE_ATTRS(A, S)                                                  \
  A(S, INT, axis, "-1", "axis that scales and zero points run along")                         \
  A(S, STR, in_dtype, "\"int8\"", "that the data stands for, or disable: data as it is")
#define QNN_REQUANTIZE_ATTRS(A, S)                                                            \
  A(S, INT, axis, "-1", "axis that the input's scales and zero points run along")             \
  A(S, STR, rounding, "\"None\"", "UPWARD or TONEAREST; None: UPWARD")                        \
  A(S, STR, compute_dtype, "\"None\"",                                                        \
    "int64, float32 or float64; None: int64, or float32 where a scale is not constant")       \
  A(S, DTYPE, out_dtype, "\"int8\"", "of the result")
#define QNN_CONV2D_ATTRS(A, S)                                                                \
  A(S, INTS, kernel_size, "None", "spatial extents of kernel")                                \
  A(S, INT, channels, "0", "of the output; 0: as kernel says")                                \
  A(S, INTS, strides, "[1, 1]", "step of the window")                                         \
  A(S, INTS, padding, "[0, 0]", "input zero points around data: one for all, one each, befores then afters") \
  A(S, INTS, dilation, "[1, 1]", "distance of a kernel's elements")                           \
  A(S, INT, groups, "1", "channels in this many independent parts")                           \
  A(S, STR, data_layout, "\"NCHW\"", "layout of data")                                        \
  A(S, STR, kernel_layout, "\"OIHW\"", "layout of kernel")                                    \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: data_layout")                   \
  A(S, DTYPE, out_dtype, "\"int32\"", "to add up in")
#define QNN_CONV2D_TRANSPOSE_ATTRS(A, S)                                                      \
  A(S, INTS, strides, "[1, 1]", "step of the window over the output")                         \
  A(S, INTS, padding, "[0, 0]", "taken off the output: one for all, one each, befores then afters") \
  A(S, INTS, dilation, "[1, 1]", "distance of a kernel's elements")                           \
  A(S, INT, channels, "0", "of the output; 0: as weight says")                                \
  A(S, INTS, kernel_size, "None", "spatial extents of weight")                                \
  A(S, INT, groups, "1", "channels in this many independent parts")                           \
  A(S, STR, data_layout, "\"NCHW\"", "layout of data")                                        \
  A(S, STR, kernel_layout, "\"IOHW\"", "layout of weight; O is the channels of one group")    \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: data_layout")                   \
  A(S, INTS, output_padding, "[0, 0]", "more elements at the end of the output")              \
  A(S, DTYPE, out_dtype, "\"int32\"", "to add up in")
#define QNN_DENSE_ATTRS(A, S)                                                                 \
  A(S, INT, units, "0", "rows of weight; 0: as weight says")                                  \
  A(S, DTYPE, out_dtype, "\"int32\"", "to add up in")
#define QNN_DENSE_PACK_ATTRS(A, S)                                                            \
  A(S, STR, kernel_layout, "\"NC\"", "NC8n: weight is (units/8, in, 8)")                      \
  A(S, INT, units, "0", "output features; 0: as weight says")                                 \
  A(S, DTYPE, out_dtype, "\"int32\"", "to add up in")
#define QNN_BATCH_MATMUL_ATTRS(A, S) A(S, DTYPE, out_dtype, "\"int32\"", "to add up in")
#define QNN_BINARY_ATTRS(A, S)                                                                \
  A(S, INT, lhs_axis, "-1", "axis that the scales of lhs run along")                          \
  A(S, INT, rhs_axis, "-1", "axis that the scales of rhs run along")
#define QNN_CONCATENATE_ATTRS(A, S) A(S, INT, axis, "0", "axis to join along")
#define QNN_AVG_POOL2D_ATTRS(A, S)                                                            \
  A(S, INTS, pool_size, "[1, 1]", "extents of the window")                                    \
  A(S, INTS, strides, "[1, 1]", "step of the window")                                         \
  A(S, INTS, padding, "[0, 0]", "around data: one for all, one each, befores then afters")    \
  A(S, INTS, dilation, "[1, 1]", "distance of a window's elements")                           \
  A(S, BOOL, ceil_mode, "False", "a last window may hang over the end")                       \
  A(S, BOOL, count_include_pad, "True", "padding counts as elements, which are zero points")  \
  A(S, STR, layout, "\"NHWC\"", "layout of data")                                             \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: layout")
#define QNN_LEAKY_RELU_ATTRS(A, S) A(S, F64, alpha, NULL, "slope of the negative part")
#define QNN_SOFTMAX_ATTRS(A, S) A(S, INT, axis, "-1", "the axis to sum along")
/* clang-format on */
DECLARE_ATTRS(QnnQuantize, QNN_QUANTIZE_ATTRS)
DECLARE_ATTRS(QnnDequantize, QNN_DEQUANTIZE_ATTRS)
DECLARE_ATTRS(QnnSimulatedQuantize, QNN_SIMULATED_QUANTIZE_ATTRS)
DECLARE_ATTRS(QnnSimulatedDequantize, QNN_SIMULATED_DEQUANTIZE_ATTRS)
DECLARE_ATTRS(QnnRequantize, QNN_REQUANTIZE_ATTRS)
DECLARE_ATTRS(QnnConv2D, QNN_CONV2D_ATTRS)
DECLARE_ATTRS(QnnConv2DTranspose, QNN_CONV2D_TRANSPOSE_ATTRS)
DECLARE_ATTRS(QnnDense, QNN_DENSE_ATTRS)
DECLARE_ATTRS(QnnDensePack, QNN_DENSE_PACK_ATTRS)
DECLARE_ATTRS(QnnBatchMatmul, QNN_BATCH_MATMUL_ATTRS)
DECLARE_ATTRS(QnnBinary, QNN_BINARY_ATTRS)
DECLARE_ATTRS(QnnConcatenate, QNN_CONCATENATE_ATTRS)
DECLARE_ATTRS(QnnAvgPool2D, QNN_AVG_POOL2D_ATTRS)
DECLARE_ATTRS(QnnLeakyRelu, QNN_LEAKY_RELU_ATTRS)
DECLARE_ATTRS(QnnSoftmax, QNN_SOFTMAX_ATTRS)

/* ---- qnn_kit.c: checks ------------------------------------------------------------------------ */

/* Raises unless argument i is a scalar or a vector along the axis of a tensor (axis -1 and whole: a scalar only);
 * a constant scale must be finite and above zero. */
void qnn_want_scale(OpCall *, int i, const Type *along, int axis);
/* The same for a zero point; a constant one must lie in the range of the dtype it is a zero point of. */
void qnn_want_zero(OpCall *, int i, const Type *along, int axis, DType);
/* Scale and zero point at arguments i and i + 1, of a whole tensor of a dtype. */
void qnn_want_params(OpCall *, int i, DType);
void qnn_want_integer(OpCall *, int i);                        /* int8, uint8, int16, int32 */
DType qnn_want_stored(OpCall *, const char *attribute, DType); /* a dtype to quantize to: the same */

/* ---- qnn_kit.c: nodes ------------------------------------------------------------------------- */

const Node *qnn_cast(Module *, const Node *, DType); /* itself when it has that dtype */
const Node *qnn_clip(Module *, const Node *, double lo, double hi);
const Node *qnn_sum(Module *, const Node *, int n, const int64_t *axes, bool keepdims);
/* add, subtract, multiply, divide; of constants of one size (or a scalar) at once; zero and one vanish. */
const Node *qnn_arith(Module *, const char *op, const Node *, const Node *);
/* A scalar as it is, a vector so that it broadcasts along an axis of so many dimensions. */
const Node *qnn_along(Module *, const Node *, int axis, int ndim);
/* Of nn.conv2d over the stored integers. */
const Conv2DAttrs *qnn_conv_attrs(Module *, const QnnConv2DAttrs *);
bool qnn_all(const Node *, double value);                           /* a constant whose elements all are the value? */
bool qnn_number(const Node *, double *out);                         /* a constant of one element? */
bool qnn_same(const Node *, const Node *);                          /* the same node, or constants of equal elements? */
int64_t qnn_count(const Node *);                                    /* elements of a constant */
double qnn_at(const Node *, int64_t i);                             /* of a constant; one element serves all */
const Node *qnn_vector(Module *, DType, int64_t n, const double *); /* n 1: a scalar */
/* How a product is rescaled: scale of the input over scale of the output. */
const Node *qnn_ratio(Module *, const Node *input, const Node *output);
const Node *qnn_requantize(Module *, const Node *, const Node *si, const Node *zi, const Node *so, const Node *zo,
                           int axis, DType out);
const Node *qnn_quantize(Module *, const Node *, const Node *scale, const Node *zero, int axis, DType out);
const Node *qnn_dequantize(Module *, const Node *, const Node *scale, const Node *zero, int axis);
/* Integers in int32, with their zero point taken off. */
const Node *qnn_centred(Module *, const Node *, const Node *zero, int axis);
/* int32 values around zero to the stored form: limited, zero point added, narrowed. */
const Node *qnn_store(Module *, const Node *, const Node *zero, DType out);

/* ---- qnn_planes.c ------------------------------------------------------------------------------- */

/* A convolution over one or three dimensions (nn.conv1d, nn.conv3d and their attributes) as one over two: the sums, and
 * in *flat what they are moved from (n, channels, h, w), element by element.  Arguments are those of qnn.conv2d.  NULL:
 * layouts are not plain ones (NCDHW), or sizes that it must know are not known. */
const Node *qnn_conv_planes(Module *, const OpDef *conv, const Conv2DAttrs *, const Node *const *arg,
                            const Node **flat);

/* ---- qnn_table.c --------------------------------------------------------------------------------- */

const Node *qnn_every_byte(Module *, DType); /* the 256 values of a dtype, the least first */
/* table[data - least value], by qnn.contrib_lookup */
const Node *qnn_lookup(Module *, const Node *data, const Node *table);

#endif
