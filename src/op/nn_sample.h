/* nn_sample.h: reading between the elements of a tensor, shared by grid_sample,
 * deformable_conv2d and roi_align. */
#ifndef LATHE_OP_NN_SAMPLE_H
#define LATHE_OP_NN_SAMPLE_H

#include "op/nn_kit.h"

/* Reads the element at the given spatial positions (int32, maybe outside). */
typedef const Expr *SampleRead(void *env, const Expr *const *at);

/* The sum over the 2^n neighbours of a point (float coordinates) of weight * read. */
const Expr *sample_linear(Module *, int n, const Expr *const *point, SampleRead *, void *env);
/* The same over 4^n neighbours with the cubic of coefficient a. */
const Expr *sample_cubic(Module *, int n, const Expr *const *point, double a, SampleRead *, void *env);
#endif
