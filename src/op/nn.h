/* nn.h: attributes of the neural operators, which passes, implementations and frontends
 * read.  Names, order and defaults are TVM's relay.op; what is added stands at the end of
 * a list.
 *
 * channels = 0 and units = 0 mean: as the weight says. */
#ifndef LATHE_OP_NN_H
#define LATHE_OP_NN_H

#include "op/op.h"

/* ---- nn_layout.c -------------------------------------------------------------------------- */

/* clang-format off */
#define LAYOUT_TRANSFORM_ATTRS(A, S)                           \
  A(S, STR, src_layout, NULL, "layout of data: NCHW, NCHW16c") \
  A(S, STR, dst_layout, NULL, "layout of the result")
/* clang-format on */
DECLARE_ATTRS(LayoutTransform, LAYOUT_TRANSFORM_ATTRS)

/* ---- nn_conv.c: nn.conv1d, nn.conv2d, nn.conv3d, nn.contrib_conv2d_NCHWc, … ------------------ */

/* clang-format off */
#define CONV_ATTRS(A, S, one, zero, data, kernel)                                             \
  A(S, INTS, strides, one, "step of the window")                                              \
  A(S, INTS, padding, zero, "zeros around data: one for all, one each, befores then afters")  \
  A(S, INTS, dilation, one, "distance of a kernel's elements")                                \
  A(S, INT, groups, "1", "channels in this many independent parts")                           \
  A(S, INT, channels, "0", "of the output; 0: as weight says")                                \
  A(S, INTS, kernel_size, "None", "spatial extents of weight")                                \
  A(S, STR, data_layout, data, "layout of data")                                              \
  A(S, STR, kernel_layout, kernel, "layout of weight")                                        \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: data_layout")                   \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: data's")
/* clang-format on */
#define CONV1D_ATTRS(A, S) CONV_ATTRS(A, S, "[1]", "[0]", "\"NCW\"", "\"OIW\"")
#define CONV2D_ATTRS(A, S) CONV_ATTRS(A, S, "[1, 1]", "[0, 0]", "\"NCHW\"", "\"OIHW\"")
#define CONV3D_ATTRS(A, S) CONV_ATTRS(A, S, "[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"OIDHW\"")
DECLARE_ATTRS(Conv1D, CONV1D_ATTRS)
DECLARE_ATTRS(Conv2D, CONV2D_ATTRS) /* of the NCHWc forms and deformable_conv2d too */
DECLARE_ATTRS(Conv3D, CONV3D_ATTRS)

/* Spatial dimensions of a convolution or a transposed one: 1, 2 or 3. */
int nn_conv_dims(const OpDef *);

/* ---- nn_conv_transpose.c: weight is (in, out / groups, spatial…) ------------------------------ */

/* clang-format off */
#define CONV_TRANSPOSE_ATTRS(A, S, one, zero, data, kernel)                                   \
  A(S, INTS, strides, one, "step of the window over the output")                              \
  A(S, INTS, padding, zero, "taken off the output: one for all, one each, befores then afters") \
  A(S, INTS, dilation, one, "distance of a kernel's elements")                                \
  A(S, INT, channels, "0", "of the output; 0: as weight says")                                \
  A(S, INTS, kernel_size, "None", "spatial extents of weight")                                \
  A(S, INT, groups, "1", "channels in this many independent parts")                           \
  A(S, STR, data_layout, data, "layout of data")                                              \
  A(S, STR, kernel_layout, kernel, "layout of weight; O is the channels of one group")        \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: data_layout")                   \
  A(S, INTS, output_padding, zero, "more elements at the end of the output")                  \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: data's")
/* clang-format on */
#define CONV1D_TRANSPOSE_ATTRS(A, S) CONV_TRANSPOSE_ATTRS(A, S, "[1]", "[0]", "\"NCW\"", "\"IOW\"")
#define CONV2D_TRANSPOSE_ATTRS(A, S) CONV_TRANSPOSE_ATTRS(A, S, "[1, 1]", "[0, 0]", "\"NCHW\"", "\"IOHW\"")
#define CONV3D_TRANSPOSE_ATTRS(A, S) CONV_TRANSPOSE_ATTRS(A, S, "[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"IODHW\"")
DECLARE_ATTRS(Conv1DTranspose, CONV1D_TRANSPOSE_ATTRS)
DECLARE_ATTRS(Conv2DTranspose, CONV2D_TRANSPOSE_ATTRS)
DECLARE_ATTRS(Conv3DTranspose, CONV3D_TRANSPOSE_ATTRS)

/* ---- nn_winograd.c, nn_winograd_blocked.c ------------------------------------------------------------------------ */

#define WINOGRAD_WEIGHT_ATTRS(A, S) A(S, INT, tile_size, NULL, "outputs per tile and dimension: 2, 4 or 6")
DECLARE_ATTRS(WinogradWeight, WINOGRAD_WEIGHT_ATTRS)
#define WINOGRAD_ATTRS(A, S)                                                                     \
  A(S, INT, tile_size, NULL, "outputs per tile and dimension: 2, 4 or 6")                        \
  A(S, INTS, strides, "[1, 1]", "must be 1")                                                     \
  A(S, INTS, padding, "[0, 0]", "zeros around data: one for all, one each, befores then afters") \
  A(S, INTS, dilation, "[1, 1]", "must be 1")                                                    \
  A(S, INT, groups, "1", "of channels, in whole blocks; over NCHW it must be 1")                 \
  A(S, INT, channels, "0", "of the output; 0: as weight says")                                   \
  A(S, INTS, kernel_size, "[3, 3]", "of the weight before its transformation")                   \
  A(S, STR, data_layout, "\"NCHW\"", "must be NCHW")                                             \
  A(S, STR, kernel_layout, "\"OIHW\"", "of the weight before its transformation")                \
  A(S, STR, out_layout, "\"\"", "must be empty or NCHW")                                         \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: data's")                         \
  A(S, BOOL, transformed, "True",                                                                \
    "False: the weight is as OIHW16o says, and transformed in every call; over NCHW it must be True")
DECLARE_ATTRS(Winograd, WINOGRAD_ATTRS)
/* The matrices of F(tile x tile, r x r): a is tile x alpha (the inverse), g alpha x r, b alpha x alpha, alpha =
 * tile + r - 1; out = a [ (g w g') * (b x b') ] a'. */
enum { WINOGRAD_MAX = 12 };
typedef struct WinogradMatrices {
  int tile, r, alpha;
  double a[WINOGRAD_MAX][WINOGRAD_MAX], g[WINOGRAD_MAX][WINOGRAD_MAX], b[WINOGRAD_MAX][WINOGRAD_MAX];
} WinogradMatrices;
/* Of data of a dtype.  bare: g has few factors that are not 1, those of b are fractions: a weight is transformed in
 * every call.  False: no such tile. */
bool nn_winograd_matrices(int tile, int r, DType, bool bare, WinogradMatrices *);
/* The row of v (rows x n) that `at` names times the elements e: a sum without zeros, which row it
 * is decided by selects that vanish when `at` is written out. */
/* The meaning of the blocked one, products of tiles made for a multiple of so many: behind the last tile it stands
 * there again. */
void nn_winograd_blocked(OpCall *, int64_t multiple, const Tensor *const *in, const Tensor **out);
const Expr *nn_winograd_row(Module *, DType, double (*v)[WINOGRAD_MAX], int rows, int n, const Expr *at,
                            const Expr *const *e);

/* ---- nn_sample.c: nn.deformable_conv2d ------------------------------------------------------------------------- */

/* clang-format off */
#define DEFORMABLE_CONV2D_ATTRS(A, S)                                                         \
  A(S, INTS, strides, "[1, 1]", "step of the window")                                         \
  A(S, INTS, padding, "[0, 0]", "zeros around data: one for all, one each, befores then afters") \
  A(S, INTS, dilation, "[1, 1]", "distance of a kernel's elements")                           \
  A(S, INT, deformable_groups, "1", "channels that share their offsets come in this many parts") \
  A(S, INT, groups, "1", "channels in this many independent parts")                           \
  A(S, INT, channels, "0", "of the output; 0: as weight says")                                \
  A(S, INTS, kernel_size, "None", "spatial extents of weight")                                \
  A(S, STR, data_layout, "\"NCHW\"", "must be NCHW")                                          \
  A(S, STR, kernel_layout, "\"OIHW\"", "must be OIHW")                                        \
  A(S, STR, out_layout, "\"\"", "must be empty or NCHW")                                      \
  A(S, DTYPE, out_dtype, "None", "must be data's")
/* clang-format on */
DECLARE_ATTRS(DeformableConv2D, DEFORMABLE_CONV2D_ATTRS)

/* ---- nn_dense.c --------------------------------------------------------------------------- */

/* clang-format off */
#define DENSE_ATTRS(A, S)                                       \
  A(S, INT, units, "0", "rows of weight; 0: as weight says")    \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: data's")
/* clang-format on */
DECLARE_ATTRS(Dense, DENSE_ATTRS)
/* clang-format off */
#define DENSE_PACK_ATTRS(A, S)                                  \
  A(S, STR, weight_layout, "\"NC\"", "NC8n: weight is (units/8, in, 8)") \
  A(S, INT, units, "0", "output features; 0: as weight says")   \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: data's")
/* clang-format on */
DECLARE_ATTRS(DensePack, DENSE_PACK_ATTRS)
/* clang-format off */
#define DENSE_NBITS_ATTRS(A, S)                                 \
  A(S, INT, bits, "4", "of an element of weight: 4 or 8")       \
  A(S, INT, block_size, NULL, "elements of a row that share a scale") \
  A(S, INT, units, "0", "output features; 0: as weight says")   \
  A(S, STR, weight_layout, "\"NC\"",                            \
    "NC16n: weight, scale and zero have blocks of 16 rows; NC16n4c: of weight in words of four bytes of a row") \
  A(S, INT, data_bits, "32", "8: data may be rounded to as many, with a scale for each block of a row")
/* clang-format on */
DECLARE_ATTRS(DenseNbits, DENSE_NBITS_ATTRS) /* nn_nbits.c */
/* Element k of a row, uint8, out of the byte that has it. */
const Expr *nn_nbits_value(Module *, const DenseNbitsAttrs *, const Expr *byte, const Expr *k);
/* clang-format off */
#define MATMUL_ATTRS(A, S)                                      \
  A(S, INT, units, "0", "columns of the result; 0: as tensor_b says") \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: tensor_a's") \
  A(S, BOOL, transpose_a, "False", "is tensor_a (k, n)?")       \
  A(S, BOOL, transpose_b, "False", "is tensor_b (m, k)?")
/* clang-format on */
DECLARE_ATTRS(Matmul, MATMUL_ATTRS)
/* clang-format off */
#define BATCH_MATMUL_ATTRS(A, S)                                \
  A(S, DTYPE, out_dtype, "None", "to multiply and add in; none: tensor_a's") \
  A(S, BOOL, transpose_a, "False", "is tensor_a (b, k, n)?")    \
  A(S, BOOL, transpose_b, "True", "is tensor_b (b, m, k)?")
/* clang-format on */
DECLARE_ATTRS(BatchMatmul, BATCH_MATMUL_ATTRS)
#define BIAS_ADD_ATTRS(A, S) A(S, INT, axis, "1", "dimension of data that bias runs along")
DECLARE_ATTRS(BiasAdd, BIAS_ADD_ATTRS)

/* ---- nn_attention.c ------------------------------------------------------------------------- */

/* clang-format off */
#define ATTENTION_ATTRS(A, S)                                                                        \
  A(S, F64, scale, "1", "the scores are multiplied by it")                                           \
  A(S, BOOL, causal, "False", "a query sees no key behind its own place, both counted from the end") \
  A(S, F64, fill, "-inf", "the score where a mask of bool is false")                                 \
  A(S, STR, guard, "\"none\"", "rows that give zeros: none; empty: all scores -inf; nan: any is NaN too") \
  A(S, STR, query_layout, "\"BHSD\"", "order of query's dimensions: batch, head, query, feature")    \
  A(S, STR, key_layout, "\"BHTD\"", "of key's: batch, head, key, feature")                           \
  A(S, STR, value_layout, "\"BHTD\"", "of value's: batch, head, key, feature")                       \
  A(S, STR, mask_layout, "\"BHST\"", "of mask's; one of fewer dimensions has the last ones")         \
  A(S, STR, out_layout, "\"BHSD\"", "of the result's: batch, head, query, feature")                  \
  A(S, INT, heads, "0", "heads of query to take; 0: all it has")                                     \
  A(S, INT, kv_heads, "0", "heads of key and value, each for heads / kv_heads of query; 0: as many") \
  A(S, INTS, first_head, "[0, 0, 0]", "of query, key and value: the head to begin with")
/* clang-format on */
DECLARE_ATTRS(Attention, ATTENTION_ATTRS)
/* A place, or the sizes, by the letters B H S T D. */
typedef struct AttentionAt {
  const Expr *b, *h, *s, *t, *d;
} AttentionAt;
/* The sizes of a call, D as query has it; value's own separately. */
AttentionAt nn_attention_sizes(OpCall *, const Expr **value_size);
/* The letters of an argument (0 query, 1 key, 2 value, 3 mask) of that many dimensions. */
const char *nn_attention_layout(const AttentionAttrs *, int argument, int ndim);
/* One expression for each letter of a layout. */
void nn_attention_place(const char *layout, const AttentionAt *, const Expr **out);
/* An element of query, key or value, in the dtype to add up in. */
const Expr *nn_attention_read(OpCall *, int argument, const Tensor *, const AttentionAt *);
/* A scaled score with its mask (may be NULL) put on. */
const Expr *nn_attention_masked(OpCall *, const Expr *score, const Tensor *mask, const AttentionAt *);
/* What is taken off a row's scores, given the largest of them. */
const Expr *nn_attention_shift(OpCall *, const Expr *most);
/* value where the row counts, 0 where the guard takes it out; total: the sum of the row's exponentials. */
const Expr *nn_attention_guarded(OpCall *, const Expr *value, const Expr *total);
/* Operations of both products where a size that is not known counts as `open`. */
double nn_attention_flops(const Node *call, double open);

/* ---- nn_softmax.c, nn_norm.c ----------------------------------------------------------------- */

#define SOFTMAX_ATTRS(A, S) A(S, INT, axis, "-1", "the axis to sum along")
DECLARE_ATTRS(Softmax, SOFTMAX_ATTRS)
/* clang-format off */
#define BATCH_NORM_ATTRS(A, S)                                        \
  A(S, INT, axis, "1", "dimension of the channels")                   \
  A(S, F64, epsilon, "1e-05", "added to the variance")                \
  A(S, BOOL, center, "True", "add beta")                              \
  A(S, BOOL, scale, "True", "multiply by gamma")
/* clang-format on */
DECLARE_ATTRS(BatchNorm, BATCH_NORM_ATTRS)
/* clang-format off */
#define INSTANCE_NORM_ATTRS(A, S)                                     \
  A(S, INT, axis, "1", "dimension of the channels")                   \
  A(S, F64, epsilon, "1e-05", "added to the variance")                \
  A(S, BOOL, center, "True", "add beta")                              \
  A(S, BOOL, scale, "True", "multiply by gamma")
/* clang-format on */
DECLARE_ATTRS(InstanceNorm, INSTANCE_NORM_ATTRS)
/* clang-format off */
#define LAYER_NORM_ATTRS(A, S)                                        \
  A(S, INT, axis, "-1", "the axis to normalize along")                \
  A(S, F64, epsilon, "1e-05", "added to the variance")                \
  A(S, BOOL, center, "True", "add beta")                              \
  A(S, BOOL, scale, "True", "multiply by gamma")
/* clang-format on */
DECLARE_ATTRS(LayerNorm, LAYER_NORM_ATTRS)
/* clang-format off */
#define GROUP_NORM_ATTRS(A, S)                                        \
  A(S, INT, num_groups, "0", "groups that the channels are divided into") \
  A(S, INT, axis, "1", "dimension of the channels")                   \
  A(S, F64, epsilon, "1e-05", "added to the variance")                \
  A(S, BOOL, center, "True", "add beta")                              \
  A(S, BOOL, scale, "True", "multiply by gamma")
/* clang-format on */
DECLARE_ATTRS(GroupNorm, GROUP_NORM_ATTRS)
/* clang-format off */
#define L2_NORMALIZE_ATTRS(A, S)                                      \
  A(S, F64, eps, NULL, "least value of the sum of squares")           \
  A(S, INTS, axis, "None", "axes to sum along; None: the second")
/* clang-format on */
DECLARE_ATTRS(L2Normalize, L2_NORMALIZE_ATTRS)
/* clang-format off */
#define LRN_ATTRS(A, S)                                               \
  A(S, INT, size, "5", "neighbours along the axis")                   \
  A(S, INT, axis, "1", "dimension of the channels")                   \
  A(S, F64, bias, "2", "added to the sum")                            \
  A(S, F64, alpha, "1e-05", "times the sum of squares")               \
  A(S, F64, beta, "0.75", "exponent")
/* clang-format on */
DECLARE_ATTRS(Lrn, LRN_ATTRS)
#define PRELU_ATTRS(A, S) A(S, INT, axis, "1", "dimension that alpha runs along")
DECLARE_ATTRS(Prelu, PRELU_ATTRS)
#define DROPOUT_ATTRS(A, S) A(S, F64, rate, "0.5", "share of elements dropped in training")
DECLARE_ATTRS(Dropout, DROPOUT_ATTRS)

/* ---- nn_pad.c ------------------------------------------------------------------------------- */

/* pad_width is a flat list: before and after of dimension 0, of dimension 1, … */
/* clang-format off */
#define PAD_ATTRS(A, S)                                               \
  A(S, INTS, pad_width, NULL, "before and after for each dimension in turn") \
  A(S, STR, pad_mode, "\"constant\"", "constant, edge, reflect, symmetric or wrap")
/* clang-format on */
DECLARE_ATTRS(Pad, PAD_ATTRS)
#define DYN_PAD_ATTRS(A, S) A(S, STR, pad_mode, "\"constant\"", "constant, edge, reflect, symmetric or wrap")
DECLARE_ATTRS(DynPad, DYN_PAD_ATTRS)
/* clang-format off */
#define MIRROR_PAD_ATTRS(A, S)                                        \
  A(S, INTS, pad_width, NULL, "before and after for each dimension in turn") \
  A(S, STR, mode, "\"SYMMETRIC\"", "SYMMETRIC or REFLECT")
/* clang-format on */
DECLARE_ATTRS(MirrorPad, MIRROR_PAD_ATTRS)

/* ---- nn_pool.c --------------------------------------------------------------------------------- */

/* clang-format off */
#define POOL_ATTRS(A, S, one, zero, l)                                \
  A(S, INTS, pool_size, one, "extents of the window")                 \
  A(S, INTS, strides, one, "step of the window")                      \
  A(S, INTS, dilation, one, "distance of a window's elements")        \
  A(S, INTS, padding, zero, "around data: one for all, one each, befores then afters") \
  A(S, STR, layout, l, "layout of data")                              \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: layout") \
  A(S, BOOL, ceil_mode, "False", "a last window may hang over the end") \
  A(S, BOOL, count_include_pad, "False", "avg_pool: padding counts as elements")
/* clang-format on */
#define POOL1D_ATTRS(A, S) POOL_ATTRS(A, S, "[1]", "[0]", "\"NCW\"")
#define POOL2D_ATTRS(A, S) POOL_ATTRS(A, S, "[1, 1]", "[0, 0]", "\"NCHW\"")
#define POOL3D_ATTRS(A, S) POOL_ATTRS(A, S, "[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"")
DECLARE_ATTRS(Pool1D, POOL1D_ATTRS)
DECLARE_ATTRS(Pool2D, POOL2D_ATTRS)
DECLARE_ATTRS(Pool3D, POOL3D_ATTRS)
/* nn.max_pool_with_argmax: any number of spatial dimensions, data (n, c, spatial…). */
/* clang-format off */
#define POOL_ARGMAX_ATTRS(A, S)                                       \
  A(S, INTS, pool_size, NULL, "extents of the window")                \
  A(S, INTS, strides, "[1]", "step of the window")                    \
  A(S, INTS, dilation, "[1]", "distance of a window's elements")      \
  A(S, INTS, padding, "[0]", "around data: one for all, one each, befores then afters") \
  A(S, BOOL, ceil_mode, "False", "a last window may hang over the end") \
  A(S, INT, storage_order, "0", "indices count row major (0) or column major (1) over the spatial dimensions")
/* clang-format on */
DECLARE_ATTRS(PoolArgmax, POOL_ARGMAX_ATTRS)
/* clang-format off */
#define GLOBAL_POOL_ATTRS(A, S)                                       \
  A(S, STR, layout, "\"NCHW\"", "layout of data")                     \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: layout")
/* clang-format on */
DECLARE_ATTRS(GlobalPool2D, GLOBAL_POOL_ATTRS)
/* clang-format off */
#define ADAPTIVE_POOL_ATTRS(A, S, l)                                  \
  A(S, INTS, output_size, "None", "spatial extents of the output; None: as data") \
  A(S, STR, layout, l, "layout of data")                              \
  A(S, STR, out_layout, "\"\"", "layout of the output; empty: layout")
/* clang-format on */
#define ADAPTIVE_POOL1D_ATTRS(A, S) ADAPTIVE_POOL_ATTRS(A, S, "\"NCW\"")
#define ADAPTIVE_POOL2D_ATTRS(A, S) ADAPTIVE_POOL_ATTRS(A, S, "\"NCHW\"")
#define ADAPTIVE_POOL3D_ATTRS(A, S) ADAPTIVE_POOL_ATTRS(A, S, "\"NCDHW\"")
DECLARE_ATTRS(AdaptivePool1D, ADAPTIVE_POOL1D_ATTRS)
DECLARE_ATTRS(AdaptivePool2D, ADAPTIVE_POOL2D_ATTRS)
DECLARE_ATTRS(AdaptivePool3D, ADAPTIVE_POOL3D_ATTRS)

/* ---- nn_misc.c ---------------------------------------------------------------------------------- */

/* clang-format off */
#define SUB_PIXEL_ATTRS(A, S)                                                                 \
  A(S, INT, block_size, NULL, "extent of a block")                                            \
  A(S, STR, layout, "\"NCHW\"", "NCHW or NHWC")                                               \
  A(S, STR, mode, "\"DCR\"", "depth_to_space: DCR (block before channel) or CRD")
/* clang-format on */
DECLARE_ATTRS(SubPixel, SUB_PIXEL_ATTRS)
/* clang-format off */
#define IM2COL_ATTRS(A, S)                                                                    \
  A(S, INTS, kernel_size, NULL, "extents of the window")                                      \
  A(S, INTS, strides, "[1]", "step of the window")                                            \
  A(S, INTS, padding, "[0]", "zeros around: one for all, one each, befores then afters")      \
  A(S, INTS, dilation, "[1]", "distance of a window's elements")
/* clang-format on */
DECLARE_ATTRS(Im2Col, IM2COL_ATTRS)
/* clang-format off */
#define COL2IM_ATTRS(A, S)                                                                    \
  A(S, DIMS, image_size, "None", "spatial extents of the image; None: the second argument's elements") \
  A(S, INTS, kernel_size, "None", "extents of the window; None: the third argument's elements") \
  A(S, INTS, strides, "[1]", "step of the window")                                            \
  A(S, INTS, padding, "[0]", "zeros around: one for all, one each, befores then afters")      \
  A(S, INTS, dilation, "[1]", "distance of a window's elements")
/* clang-format on */
DECLARE_ATTRS(Col2Im, COL2IM_ATTRS)

/* ---- nn_resize.c --------------------------------------------------------------------------------- */

#define RESIZE_COMMON(A, S)                                                                                 \
  A(S, STR, method, "\"linear\"", "nearest_neighbor, linear or cubic")                                      \
  A(S, STR, coordinate_transformation_mode, "\"half_pixel\"",                                               \
    "half_pixel, align_corners, asymmetric, pytorch_half_pixel, tf_half_pixel_for_nn, tf_crop_and_resize, " \
    "half_pixel_symmetric")                                                                                 \
  A(S, STR, rounding_method, "\"\"",                                                                        \
    "nearest_neighbor: round, floor, ceil, round_prefer_floor, round_prefer_ceil; "                         \
    "empty: round with align_corners, else floor")                                                          \
  A(S, F64, cubic_alpha, "-0.5", "coefficient of the cubic")                                                \
  A(S, INT, cubic_exclude, "0", "1: what lies outside has no weight")                                       \
  A(S, F64, extrapolation_value, "0", "tf_crop_and_resize: outside of data")                                \
  A(S, DTYPE, out_dtype, "None", "of the result; none: data's")
/* clang-format off */
#define RESIZE_ATTRS(A, S, l)                                                                 \
  A(S, DIMS, size, NULL, "spatial extents of the output")                                     \
  A(S, F64S, roi, "[]", "tf_crop_and_resize: starts, then ends, of the spatial dimensions")   \
  A(S, STR, layout, l, "layout of data")                                                      \
  RESIZE_COMMON(A, S)
/* clang-format on */
#define RESIZE1D_ATTRS(A, S) RESIZE_ATTRS(A, S, "\"NCW\"")
#define RESIZE2D_ATTRS(A, S) RESIZE_ATTRS(A, S, "\"NCHW\"")
#define RESIZE3D_ATTRS(A, S) RESIZE_ATTRS(A, S, "\"NCDHW\"")
DECLARE_ATTRS(Resize1D, RESIZE1D_ATTRS)
DECLARE_ATTRS(Resize2D, RESIZE2D_ATTRS)
DECLARE_ATTRS(Resize3D, RESIZE3D_ATTRS)
/* image.resize(data, sizes, scales, roi): any axes of any rank.  What is known when the graph is
 * built stands in the attributes; what is computed comes as arguments named, in their
 * order, by `inputs`: "sizes" (int64), "scales" (float32), "roi" (float; starts, then ends).  One of sizes
 * and scales is wanted. */
/* clang-format off */
#define RESIZE_ND_ATTRS(A, S)                                                                 \
  A(S, INTS, axes, "None", "axes that change; None: all")                                     \
  A(S, DIMS, sizes, "None", "their extents in the output")                                    \
  A(S, F64S, scales, "None", "their factors; without sizes the extents are floor(factor * extent)") \
  A(S, F64S, roi, "None", "tf_crop_and_resize: starts, then ends")                            \
  A(S, STRS, inputs, "None", "names of the arguments after data: sizes, scales, roi")         \
  A(S, BOOL, antialias, "False", "widen the kernel when the output is smaller")               \
  A(S, STR, keep_aspect_ratio_policy, "\"stretch\"", "with sizes: stretch, not_larger or not_smaller") \
  RESIZE_COMMON(A, S)
/* clang-format on */
DECLARE_ATTRS(Resize, RESIZE_ND_ATTRS)
/* clang-format off */
#define UPSAMPLING_ATTRS(A, S)                                                                \
  A(S, F64, scale_h, "1", "factor of the height")                                             \
  A(S, F64, scale_w, "1", "factor of the width")                                              \
  A(S, STR, layout, "\"NCHW\"", "layout of data")                                             \
  A(S, STR, method, "\"nearest_neighbor\"", "nearest_neighbor, bilinear or bicubic")          \
  A(S, BOOL, align_corners, "False", "corners of data and output are the same points")
/* clang-format on */
DECLARE_ATTRS(Upsampling, UPSAMPLING_ATTRS)

/* ---- nn_sample.c --------------------------------------------------------------------------------------- */

/* clang-format off */
#define GRID_SAMPLE_ATTRS(A, S)                                                               \
  A(S, STR, method, "\"bilinear\"", "nearest, bilinear or bicubic")                           \
  A(S, STR, layout, "\"NCHW\"", "NCHW or NCDHW")                                              \
  A(S, STR, padding_mode, "\"zeros\"", "zeros, border or reflection")                         \
  A(S, BOOL, align_corners, "True", "-1 and 1 are the centres of the corner elements, not their outer borders") \
  A(S, BOOL, grid_last, "False", "grid is (n, spatial…, coordinates), as ONNX has it, not (n, coordinates, spatial…)") \
  A(S, BOOL, round_first, "False", "nearest: rounded before it is brought inside, as ONNX has it, not after")
/* clang-format on */
DECLARE_ATTRS(GridSample, GRID_SAMPLE_ATTRS)
#define AFFINE_GRID_ATTRS(A, S)                                                                    \
  A(S, DIMS, target_shape, "None", "spatial extents of the grid; None: as the argument size says") \
  A(S, BOOL, align_corners, "True", "as grid_sample's")                                            \
  A(S, BOOL, grid_last, "False", "the coordinates are the last dimension, as ONNX has it")
DECLARE_ATTRS(AffineGrid, AFFINE_GRID_ATTRS)
/* clang-format off */
#define ROI_ALIGN_ATTRS(A, S)                                                                 \
  A(S, INTS, pooled_size, NULL, "height and width of the output")                             \
  A(S, F64, spatial_scale, NULL, "of the boxes' coordinates")                                 \
  A(S, INT, sample_ratio, "-1", "points per bin and dimension; not positive: as many as elements") \
  A(S, STR, layout, "\"NCHW\"", "must be NCHW")                                               \
  A(S, STR, mode, "\"avg\"", "avg or max of the points; max_weighted: the largest weighted element, as ONNX has it") \
  A(S, BOOL, half_pixel, "False", "boxes are shifted by half an element and may be empty")
/* clang-format on */
DECLARE_ATTRS(RoiAlign, ROI_ALIGN_ATTRS)
/* clang-format off */
#define ROI_POOL_ATTRS(A, S)                                                                  \
  A(S, INTS, pooled_size, NULL, "height and width of the output")                             \
  A(S, F64, spatial_scale, NULL, "of the boxes' coordinates")                                 \
  A(S, STR, layout, "\"NCHW\"", "must be NCHW")
/* clang-format on */
DECLARE_ATTRS(RoiPool, ROI_POOL_ATTRS)

/* ---- nn_recurrent.c ---------------------------------------------------------------------------------------- */

/* nn.rnn, nn.lstm, nn.gru: ONNX's RNN, LSTM, GRU.  Arguments: data, weight, recurrence, then those that `inputs`
 * names, in their order: "bias", "sequence_lens", "initial_h", "initial_c", "peephole".  A tuple comes out: every
 * state (Y), the last one (Y_h), and of lstm the last cell (Y_c). */
/* clang-format off */
#define RECURRENT_ATTRS(A, S)                                                                 \
  A(S, INT, hidden_size, NULL, "elements of the state")                                       \
  A(S, STR, direction, "\"forward\"", "forward, reverse or bidirectional")                    \
  A(S, STRS, activations, "None", "names for each direction; None: the usual ones")           \
  A(S, F64S, activation_alpha, "None", "taken in order by the activations that have one; None: the usual ones") \
  A(S, F64S, activation_beta, "None", "the same for beta")                                    \
  A(S, F64, clip, "0", "limit of what goes into an activation; 0: none")                      \
  A(S, BOOL, linear_before_reset, "False", "gru: reset after the product with the state")     \
  A(S, BOOL, input_forget, "False", "lstm: forget gate is one less input gate")               \
  A(S, INT, layout, "0", "0: time first; 1: batch first")                                     \
  A(S, STRS, inputs, "[]", "names of the arguments after the first three")
/* clang-format on */
DECLARE_ATTRS(Recurrent, RECURRENT_ATTRS)

/* nn.contrib_recurrent: the loop over time.  Arguments: gates (time, batch, directions * gates * hidden; batch first
 * with layout 1), what the input and the biases give; recurrence; then those that `inputs` names: "reset_bias" (gru
 * with linear_before_reset), "sequence_lens", "initial_h", "initial_c", "peephole". */
#define RECURRENT_LOOP_ATTRS(A, S)                                                                                 \
  A(S, STR, cell, NULL, "rnn, lstm or gru")                                                                        \
  RECURRENT_ATTRS(A, S)                                                                                            \
  A(S, INT, block, "0",                                                                                            \
    "units of a block: recurrence is (directions, blocks, hidden, gates, block); 0: (directions, gates * hidden, " \
    "hidden)")                                                                                                     \
  A(S, INT, samples, "1", "samples of the batch whose sums are made together; divides it; 1 with sequence_lens")
DECLARE_ATTRS(RecurrentLoop, RECURRENT_LOOP_ATTRS)

#endif
