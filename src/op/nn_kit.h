/* nn_kit.h: what the files of the nn family share: shapes and indices in a layout, short ways to
 * write te stages, window arithmetic.  Implementations (src/impl) that compute an operator in
 * another way write their stages with it too.
 *
 * A stage is a compute in the making: axes first, then a body over them. */
#ifndef LATHE_OP_NN_KIT_H
#define LATHE_OP_NN_KIT_H

#include "op/nn.h"

/* ---- nn_layout.c ------------------------------------------------------------------------ */

Layout nn_layout(OpCall *, const char *attribute, const char *text); /* raises naming the attribute */
/* The whole extent that `capital` has in a tensor of this shape. */
const Expr *layout_extent(Module *, const Layout *, const Expr *const *shape, char capital);
/* The shape whose whole extents are those given for each capital of `letters`. */
void layout_shape(Module *, const Layout *, const char *letters, const Expr *const *extent, const Expr **shape);
/* The index whose whole coordinates are those given. */
void layout_index(Module *, const Layout *, const char *letters, const Expr *const *at, const Expr **index);
/* The whole coordinate of `capital` at an index. */
const Expr *layout_coordinate(Module *, const Layout *, const Expr *const *index, char capital);
/* For rules: the new layout leaves the dimensions of `letters` whole and has the same capitals. */
bool layout_keeps(OpCall *, const char *from, const char *to, const char *letters);

/* ---- nn_kit.c, nn_pool.c --------------------------------------------------------------------------- */

typedef struct Stage {
  Module *m;
  int n, nred;
  const Expr *shape[MAX_RANK], *at[MAX_RANK];
  const IterVar *axis[MAX_RANK], *red[MAX_RANK];
} Stage;
/* names: one per axis, separated by spaces; NULL: ax0, ax1, … */
Stage nn_stage(Module *, int n, const Expr *const *shape, const char *names);
const Expr *nn_reduce_axis(Stage *, const char *name, const Expr *extent);
const Expr *nn_reduce(Stage *, const char *reducer, const Expr *source); /* over all its reduce axes */
const Expr *nn_reduce_where(Stage *, const char *reducer, const Expr *source, const Expr *cond);
const Tensor *nn_finish(Stage *, const char *name, const char *tag, const Expr *body);
/* Simplest form of an index, knowing the stage's axes. */
const Expr *nn_index(Stage *, const Expr *);
const Expr *nn_simplify(Module *, const Expr *);
const Expr *nn_read(Module *, const Tensor *, const Expr *const *index);
const Expr *nn_read1(Module *, const Tensor *, const Expr *index);

const Expr *nn_unary(Module *, Intrin, const Expr *);
const Expr *nn_if(Module *, const Expr *cond, const Expr *a, const Expr *b);
const Expr *nn_and(Module *, const Expr *a, const Expr *b);          /* a may be NULL */
const Expr *nn_inside(Module *, const Expr *at, const Expr *extent); /* 0 <= at < extent */
const Expr *nn_ceildiv(Module *, const Expr *, const Expr *);
#define NN_DIV(m, a, b) expr_binary(m, E_DIV, a, b)

/* The dtype to add up in: float32 for the 16-bit and 8-bit floats. */
DType nn_accumulator(DType);
/* The sum of a term over the stage's reduce axes, in the term's dtype, as the dtype out. */
const Tensor *nn_sum(Stage *, const char *name, const char *tag, const Expr *term, DType out);

/* What max takes for nothing: the least value, minus infinity where there is one (nn_pool.c). */
const Expr *nn_least_value(Module *, DType);

/* Are two dimensions known to differ?  Known to be equal? */
bool nn_dims_differ(Module *, const Expr *a, const Expr *b);
bool nn_dims_equal(Module *, const Expr *a, const Expr *b);
/* dim, or -1 at run time where a and b turn out to differ (see the head of op.h). */
const Expr *nn_guard_equal(Module *, const Expr *dim, const Expr *a, const Expr *b);
const char *nn_shape_text(Module *, int n, const Expr *const *shape); /* (64, 3, 7, 7) */
const char *nn_arg_shape(OpCall *, int i);
/* raises unless it is one of known rank */
const Type *nn_tensor(OpCall *, int i, const char *name);
void nn_want_rank(OpCall *, int i, const char *name, int ndim);
void nn_want_float(OpCall *, int i, const char *name);
int nn_axis_of(OpCall *, int64_t axis, int ndim);
/* Rules for OpDef.operand: argument i as one number for each element along the axis of data; a weight whose dimension
 * of each letter of `letters` (OI or IO, then the spatial ones) has that extent.  NULL where something is not known. */
const Type *nn_operand_along(OpCall *, int64_t axis);
const Type *nn_operand_weight(OpCall *, const Layout *, const char *letters, const Expr *first, const Expr *second,
                              AttrInts kernel_size);

/* A list attribute of n numbers: one given for all, or one each; none given: def. */
void nn_ints(OpCall *, const char *name, AttrInts, int n, int64_t def, int64_t least, int64_t *out);
/* padding of n dimensions in its three forms: one for all, one each, all befores then all afters. */
void nn_padding(OpCall *, AttrInts, int n, int64_t *before, int64_t *after);
/* Number of windows: floor((in + before + after - ((kernel - 1) * dilation + 1)) / stride) + 1. */
const Expr *nn_windows(OpCall *, const char *what, const Expr *in, int64_t kernel, int64_t stride, int64_t dilation,
                       int64_t before, int64_t after);
/* `in` with before[d] and after[d] elements of `value` around dimension d; `in` itself when there are none. */
const Tensor *nn_pad_constant(Module *, const Tensor *in, const int64_t *before, const int64_t *after,
                              const Expr *value, const char *name);
/* The same, of the shape given, none of whose dimensions is shorter than before[d] and in's. */
const Tensor *nn_pad_to(Module *, const Tensor *in, const int64_t *before, const Expr *const *shape, const Expr *value,
                        const char *name);

/* ---- nn_words.c --------------------------------------------------------------------------- */

/* The elements of word number at[nd - 1] of the last axis; zeros behind its end. */
void nn_word_row(Module *, int count, const Tensor *, int nd, const Expr *const *at, const Expr **element);
/* Two bfloat16 (or their bits) in one uint32, four in one uint64. */
const Expr *nn_word(Module *, int count, const Expr *const *element);
/* The word that the elements of a weight's last dimension make, 2 or 4 of them; `at`: those before it. */
const Expr *nn_word_at(Module *, const Tensor *weight, const Expr *const *at);
/* The sum of the products of two words' elements. */
const Expr *nn_word_dot(Module *, const Expr *a, const Expr *b);
const Tensor *nn_bits(Module *, const Tensor *); /* bfloat16 as uint16 */

/* nn_kit.c: calls of other operators, for decompositions. */
const Node *nn_call(Module *, const char *op, int n, const Node *const *arg, const void *attrs);
const Node *nn_call1(Module *, const char *op, const Node *);
const Node *nn_call2(Module *, const char *op, const Node *, const Node *);

#endif
