/* eval_ops.h: operators and mathematical intrinsics on single values.
 * Private to the expr layer: eval.c and the analyses stand on it. */
#ifndef LATHE_EXPR_EVAL_OPS_H
#define LATHE_EXPR_EVAL_OPS_H

#include "expr/expr.h"

/* E_ADD … E_GE on two values of one dtype.  False for an integer division by zero. */
bool eval_binary(ExprKind, Value a, Value b, Value *out);
/* Is the intrinsic a function of its arguments' values alone (no memory, no control)? */
bool intrin_is_math(Intrin);
/* Its value; the result has the given scalar dtype. */
void intrin_eval(Intrin, DType, const Value *arg, Value *out);

#endif
