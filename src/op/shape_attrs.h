/* shape_attrs.h: attributes of the shape, index and order families that passes,
 * implementations and frontends read.  Part of op.h. */
#ifndef LATHE_OP_SHAPE_ATTRS_H
#define LATHE_OP_SHAPE_ATTRS_H

#include "graph/graph.h"

#define RESHAPE_ATTRS(A, S)                                                                      \
  A(S, DIMS, newshape, NULL,                                                                     \
    "0: as the input's, -1: what is left, -2: all that is left, -3: two in one, -4: one in two") \
  A(S, BOOL, allowzero, "False", "0 means a dimension of extent 0")
DECLARE_ATTRS(Reshape, RESHAPE_ATTRS)

#define SQUEEZE_ATTRS(A, S) A(S, INTS, axis, "None", "axes of extent 1 to drop; None: all")
DECLARE_ATTRS(Squeeze, SQUEEZE_ATTRS)

/* clang-format off */
#define EXPAND_DIMS_ATTRS(A, S)                      \
  A(S, INT, axis, NULL, "where the new axis stands") \
  A(S, INT, num_newaxis, "1", "how many")
/* clang-format on */
DECLARE_ATTRS(ExpandDims, EXPAND_DIMS_ATTRS)

#define TRANSPOSE_ATTRS(A, S) A(S, INTS, axes, "None", "input axis of each output axis; None: reversed")
DECLARE_ATTRS(Transpose, TRANSPOSE_ATTRS)

#define CONCATENATE_ATTRS(A, S) A(S, INT, axis, "0", "axis to join along")
DECLARE_ATTRS(Concatenate, CONCATENATE_ATTRS)

#define STACK_ATTRS(A, S) A(S, INT, axis, "0", "where the new axis stands")
DECLARE_ATTRS(Stack, STACK_ATTRS)

/* clang-format off */
#define SPLIT_ATTRS(A, S)                                                                    \
  A(S, INTS, indices_or_sections, NULL, "number of equal parts, or where the parts begin")   \
  A(S, INT, axis, "0", "axis to part")                                                       \
  A(S, STR, mode, "\"auto\"", "auto: one number is a count; sections, indices: always that")
/* clang-format on */
DECLARE_ATTRS(Split, SPLIT_ATTRS)

/* clang-format off */
#define STRIDED_SLICE_ATTRS(A, S)                                                \
  A(S, INTS, begin, NULL, "first index of each axis")                            \
  A(S, INTS, end, NULL, "index after the last; with slice_mode size, how many")  \
  A(S, INTS, strides, "None", "step of each axis; None: 1")                      \
  A(S, STR, slice_mode, "\"end\"", "end or size")                                \
  A(S, INTS, axes, "None", "axes meant; None: the first ones")
/* clang-format on */
DECLARE_ATTRS(StridedSlice, STRIDED_SLICE_ATTRS)

/* clang-format off */
#define TAKE_ATTRS(A, S)                                                         \
  A(S, INT, batch_dims, "0", "leading axes that data and indices share")         \
  A(S, INTS, axis, "None", "axis to take along; None: the flattened data")       \
  A(S, STR, mode, "\"clip\"", "clip, wrap or fast")
/* clang-format on */
DECLARE_ATTRS(Take, TAKE_ATTRS)

#define GATHER_ATTRS(A, S) A(S, INT, axis, "0", "axis to gather along")
DECLARE_ATTRS(Gather, GATHER_ATTRS)

#define SHAPE_OF_ATTRS(A, S) A(S, DTYPE, dtype, "\"int32\"", "of the result")
DECLARE_ATTRS(ShapeOf, SHAPE_OF_ATTRS)

#endif
