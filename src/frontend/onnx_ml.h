/* onnx_ops_ml.h: what the converters of ai.onnx.ml share: labels, what turns scores into results, numbers that come
 * as a list or as a tensor.  For onnx_ops_ml*.c and onnx_ops_trees.c alone. */
#ifndef LATHE_ONNX_ML_H
#define LATHE_ONNX_ML_H

#include "frontend/onnx_import.h"

/* Numbers of `name` (a list) or `name`_as_tensor; NULL and 0 when neither is there. */
const double *onnx_ml_numbers(Conversion *, const char *name, int *n);
/* x as a matrix of floats: a vector is one row; integers become float32. */
const Node *onnx_ml_matrix(Conversion *, const Node *x);
/* The labels of a classifier, a vector of strings or int64; `ints` is the attribute that holds the latter. */
const Node *onnx_ml_labels(Conversion *, const char *ints, int64_t *n);
const Node *onnx_ml_pick(Conversion *, const Node *labels, const Node *index);
/* The last label where cond holds, the first where not; where there are not two, 1 and 0. */
const Node *onnx_ml_pick_two(Conversion *, const Node *labels, int64_t n, const Node *cond);
/* post_transform by name over the last axis.  Of a single column only PROBIT changes anything. */
const Node *onnx_ml_post(Conversion *, const Node *scores, const char *how);
/* (rows, 2) of two columns (rows, 1) */
const Node *onnx_ml_columns(Conversion *, const Node *a, const Node *b);
const Node *onnx_ml_constant(Conversion *, DType, int rows, int columns, const double *); /* rows 0: a vector */

#endif
