/* op.h: every operator, each defined once.
 *
 * A family file defines its operators as OpDef structs (graph.h); ops.def lists them
 * all.  An operator's meaning is exactly one of
 *   compute    tensor expressions (te.h): most operators
 *   decompose  other operators (nn.batch_norm, nn.layer_norm, …)
 *   tir        a loop program, for what has no closed expression (sort, cumulative
 *              sums, recurrent cells)
 *   eval       on values, for sequences and optionals, which the executor handles itself
 *
 * Sizes known only at run time.  A shape operand is read with op_dims: the output's
 * dimensions are expressions over its elements, and the executor evaluates them when
 * the operand has been computed.  An operator whose output size depends on values
 * (nonzero, unique, non_max_suppression) decomposes into a padded kernel that also
 * gives the count, and a slice by that count.
 *
 * A size that does not fit.  Where sizes meet that cannot be compared before the program
 * runs (n against m in a broadcast), the output's dimension is an expression that is
 * negative when they do not fit; whoever evaluates it refuses a negative size, so no
 * kernel ever runs over tensors it was not made for.
 *
 * Random numbers are a function of (seed, index of the element): pure, reproducible.
 *
 * Policies, where a source format is silent (an operator's doc names any other):
 *   NaN        goes through: maximum, minimum, max, min, clip, relu and sign of NaN are
 *              NaN; argmax and argmin take the first NaN for the extreme; comparisons
 *              with NaN are false, not_equal true
 *   infinities as IEEE arithmetic has them
 *   zeros      maximum, minimum and their reductions may give either zero of -0.0 and
 *              +0.0; sign of both is +0.0; everything else keeps the sign as IEEE does
 *   integers   wrap; a division or remainder by zero is 0; a shift by the width or
 *              more, or by a negative count, shifts everything out
 *   casts      as expr.h: float to integer truncates and saturates, NaN gives 0
 *   sums       of float16, bfloat16 and float8 are carried in float32, rounded once */
#ifndef LATHE_OP_H
#define LATHE_OP_H

#include "graph/graph.h"
#include "op/shape_attrs.h"

/* list.c: makes the built-in operators known to the graph layer.  Call it as often as
 * you like. */
void op_init(void);
#define OP(def) extern const OpDef def;
#include "op/ops.def"
#undef OP

/* ---- dims.c: dimensions ------------------------------------------------------------------ */

const Expr *dim_int(Module *, int64_t);
const Expr *dim_simplify(Module *, const Expr *);
/* An integer value (an element of a shape operand, often int64) as a dimension: int32
 * arithmetic, simplified. */
const Expr *dim_of_value(Module *, const Expr *);
const Expr *dim_add(Module *, const Expr *, const Expr *); /* all simplified */
const Expr *dim_sub(Module *, const Expr *, const Expr *);
const Expr *dim_mul(Module *, const Expr *, const Expr *);
const Expr *dim_floordiv(Module *, const Expr *, const Expr *);
const Expr *dim_ceildiv(Module *, const Expr *, const Expr *);
const Expr *dim_mod(Module *, const Expr *, const Expr *);
const Expr *dim_min(Module *, const Expr *, const Expr *);
const Expr *dim_max(Module *, const Expr *, const Expr *);
const Expr *dim_product(Module *, int n, const Expr *const *);
static inline bool dim_literal(const Expr *e, int64_t *out) { return e->kind == E_INT ? *out = e->u.i, true : false; }
bool dim_same(Module *, const Expr *, const Expr *); /* equal for all sizes */
/* dim where the condition holds, -1 where not. */
const Expr *dim_guard(Module *, const Expr *cond, const Expr *dim);
/* a where a == b, -1 where not (see the head of this file); a itself when they are the
 * same.  Two literals that differ: NULL. */
const Expr *dim_require_equal(Module *, const Expr *a, const Expr *b);

/* ---- rules.c: checks and type rules that many operators share ------------------------------- */

const char *op_arg_name(OpCall *, int i);                   /* "data": its name in the operator's args */
const Type *op_tensor_arg(OpCall *, int i);                 /* raises unless argument i is a tensor of known rank */
const Type *op_ranked_arg(OpCall *, int i, int lo, int hi); /* and unless lo <= ndim <= hi */
/* Raises unless argument i is a tuple of tensors; their number. */
int op_tuple_arg(OpCall *, int i);
void op_same_dtype(OpCall *, int i, int k); /* raises naming both arguments and dtypes */
void op_need_float(OpCall *, int i);        /* raises unless the dtype is a float (… an integer, … bool) */
void op_need_int(OpCall *, int i);
void op_need_bool(OpCall *, int i);
int op_axis(OpCall *, int64_t axis, int ndim); /* negative from the end; raises outside */
/* The axes of a list, normalised, in ascending order; raises on one that is named twice. */
int op_axes_sorted(OpCall *, AttrInts axes, int ndim, int *out);
/* The dimension that both must be; raises on literals that differ, naming `what`. */
const Expr *op_equal_dim(OpCall *, const Expr *a, const Expr *b, const char *what);
/* numpy broadcast of two dimensions.  Equal ones stay, a literal 1 gives the other;
 * literals that differ raise, naming both shapes; otherwise an expression: the one that
 * is not 1, or -1 when the run-time sizes do not fit. */
const Expr *op_broadcast_dim(OpCall *, const Expr *a, const Expr *b);
/* numpy broadcast of two shapes into out (8 at most); the rank. */
int op_broadcast_shape(OpCall *, int na, const Expr *const *a, int nb, const Expr *const *b, const Expr **out);
const Type *op_type_same(OpCall *);       /* as the first argument */
const Type *op_type_same_float(OpCall *); /* and it must be a float */
const Type *op_type_same_bool(OpCall *);  /* its shape, of bool */
const Type *op_type_broadcast(OpCall *);  /* numpy's rule over all arguments; dtypes must agree */
const Type *op_type_compare(OpCall *);    /* the same, giving bool */
/* The elements of argument i as expressions (graph_values); raises when their number is
 * not known, since then the output's rank is not. */
const Expr *const *op_values(OpCall *, int i, int *n);
/* The same as dimensions: dim_of_value of each. */
const Expr *const *op_dims(OpCall *, int i, int *n);
/* The same when all are integer literals; false if they are not. */
bool op_const_ints(OpCall *, int i, int *n, const int64_t **out);

/* ---- strings.c, pattern.c: what operators on strings hand to the executor ------------------------ */

/* Rows (first, last, step, distance), as letters.def has them. */
const int32_t *strings_case_table(bool upper, int *rows);
/* The string in lower or upper case; numbers of ctx_string. */
uint64_t strings_in_case(Ctx *, uint64_t number, bool upper);
/* The program of a regular expression; raises ERR_ARGUMENT with what is wrong. */
const int32_t *strings_pattern(Ctx *, Arena *, const char *text, int *n);
/* The letter at s and how many bytes it has; -1 of one byte where none begins. */
size_t strings_utf8_decode(const char *s, size_t n, int32_t *out);

/* ---- te_kit.c: writing computes shortly -------------------------------------------------------- */

/* The axes of an output and their variables as expressions. */
typedef struct OpAxes {
  int ndim;
  const Expr *const *shape;
  const IterVar *iter[MAX_RANK];
  const Expr *index[MAX_RANK];
} OpAxes;
OpAxes op_axes(OpCall *, int ndim, const Expr *const *shape);
/* over the shape of an output of the call's type */
OpAxes op_out_axes(OpCall *, int output);
const Type *op_out_type(OpCall *, int output); /* of a tuple, its field */
/* One tensor of one body over the axes; name NULL: the operator's. */
const Tensor *op_emit(OpCall *, const OpAxes *, const char *name, const Expr *body);
const IterVar *op_reduce_axis(OpCall *, const char *name, const Expr *extent);
/* sum prod min max any all over the axes; min and max let NaN through. */
const Reducer *op_reducer(Module *, const char *name, DType);
const Expr *op_reduce(Module *, const char *reducer, const Expr *source, int n, const IterVar *const *axis);
const Expr *op_read(Module *, const Tensor *, const Expr *const *index); /* as many as its rank */
/* Reads an input of lower rank or extent 1 that broadcasts to the output index. */
const Expr *op_broadcast_read(Module *, const Tensor *, int ndim, const Expr *const *index);

/* expressions over values, with the policies of the head of this file */
const Expr *op_num(Module *, DType, double); /* a literal of any dtype */
/* float16 and narrower compute as expr.h says */
const Expr *op_intrin(Module *, Intrin, const Expr *);
const Expr *op_intrin2(Module *, Intrin, const Expr *, const Expr *);
const Expr *op_maximum_value(Module *, const Expr *, const Expr *);
const Expr *op_minimum_value(Module *, const Expr *, const Expr *);
const Expr *op_relu_value(Module *, const Expr *);
const Expr *op_clip_value(Module *, const Expr *, double lo, double hi); /* an infinite bound: none */
/* E_DIV E_MOD E_FLOORDIV E_FLOORMOD, 0 by zero */
const Expr *op_int_divide(Module *, ExprKind, const Expr *, const Expr *);
DType op_sum_dtype(DType); /* float32 for narrower floats */

/* nodes, for decompositions; attrs NULL: the defaults */
const Node *op_call1(Module *, const OpDef *, const Node *, const void *attrs);
const Node *op_call2(Module *, const OpDef *, const Node *, const Node *, const void *attrs);
const Node *op_call3(Module *, const OpDef *, const Node *, const Node *, const Node *, const void *attrs);
const Node *op_number(Module *, DType, double); /* a scalar constant */

/* ---- layout.c: layout strings, layout rules ------------------------------------------------------ */

/* A layout's letters: a capital is a whole dimension, a small letter after a number is a block of that many of it:
 * NCHW16c has C in blocks of 16. */
enum { LAYOUT_MAX = 12 };
typedef struct Layout {
  const char *text;
  int n;
  char letter[LAYOUT_MAX];
  int64_t factor[LAYOUT_MAX]; /* of a small letter; 0 for a capital */
} Layout;
const char *layout_parse(const char *text, Layout *out); /* NULL, or why the text is no layout */
int layout_find(const Layout *, char letter);            /* -1 if absent */
bool layout_is_split(const Layout *, char capital);
int64_t layout_block(const Layout *, char capital); /* product of its small letters' factors */
bool layout_is_plain(const char *text);             /* of whole dimensions alone */
bool layout_same_capitals(const Layout *, const Layout *);
bool layout_is_capital(char);
bool layout_is_small(char);
char layout_capital(char letter); /* of a small letter, its dimension */
/* For rules of operators with one axis: where its dimension went, or -1 when it is not there, or split;
 * layout_outer_axis: of one that is split, where its blocks are counted. */
int layout_axis(const LayoutPair *, int axis);
int layout_outer_axis(const LayoutPair *, int axis);

/* What a rule returns when the attributes stay (an operator may have none). */
const void *layout_keep_attrs(OpCall *);
const void *layout_any(OpCall *, LayoutPair *arg, LayoutPair *out); /* element by element: as it comes */
/* Same-shaped or broadcasting arguments: the first changed layout is taken for all;
 * per-channel arguments are laid out to match. */
const void *layout_broadcast(OpCall *, LayoutPair *arg, LayoutPair *out);

/* ---- attributes that passes, implementations and frontends read ------------------------------ */

#define CAST_ATTRS(A, S) A(S, DTYPE, dtype, NULL, "the dtype to convert to")
DECLARE_ATTRS(Cast, CAST_ATTRS)
/* clang-format off */
#define CLIP_ATTRS(A, S)                    \
  A(S, F64, a_min, "-inf", "lower bound")   \
  A(S, F64, a_max, "inf", "upper bound")
/* clang-format on */
DECLARE_ATTRS(Clip, CLIP_ATTRS)
#define LEAKY_RELU_ATTRS(A, S) A(S, F64, alpha, "0.01", "slope of the negative part")
DECLARE_ATTRS(LeakyRelu, LEAKY_RELU_ATTRS)
/* clang-format off */
#define REDUCE_ATTRS(A, S)                                                    \
  A(S, INTS, axis, "None", "axes to reduce; None or []: all of them")         \
  A(S, BOOL, keepdims, "False", "keep reduced axes with extent 1")            \
  A(S, BOOL, exclude, "False", "reduce the axes that are not listed")
/* clang-format on */
DECLARE_ATTRS(Reduce, REDUCE_ATTRS)
/* clang-format off */
#define ARG_REDUCE_ATTRS(A, S)                                                \
  A(S, INTS, axis, "None", "axes to reduce; None or []: all of them")         \
  A(S, BOOL, keepdims, "False", "keep reduced axes with extent 1")            \
  A(S, BOOL, exclude, "False", "reduce the axes that are not listed")         \
  A(S, BOOL, select_last_index, "False", "among equal extremes the last, not the first")
/* clang-format on */
DECLARE_ATTRS(ArgReduce, ARG_REDUCE_ATTRS)
/* clang-format off */
#define VARIANCE_ATTRS(A, S)                                                  \
  A(S, INTS, axis, "None", "axes to reduce; None or []: all of them")         \
  A(S, BOOL, keepdims, "False", "keep reduced axes with extent 1")            \
  A(S, BOOL, exclude, "False", "reduce the axes that are not listed")         \
  A(S, BOOL, unbiased, "False", "divide by one less than the number of elements")
/* clang-format on */
DECLARE_ATTRS(Variance, VARIANCE_ATTRS)
/* clang-format off */
#define INIT_ATTRS(A, S)                            \
  A(S, DIMS, shape, NULL, "shape of the result")    \
  A(S, DTYPE, dtype, "None", "dtype of the result; None: float32, or that of the value")
/* clang-format on */
DECLARE_ATTRS(Init, INIT_ATTRS)
#define SHAPE_ATTRS(A, S) A(S, DIMS, shape, NULL, "the shape of the result")
DECLARE_ATTRS(Shape, SHAPE_ATTRS)
#define ARANGE_ATTRS(A, S) A(S, DTYPE, dtype, "None", "dtype of the result; None: that of the arguments")
DECLARE_ATTRS(Arange, ARANGE_ATTRS)

#endif
