/* shape.h: what the shape, index and order families share beside op.h: checks, index
 * arithmetic, and loop programs written as statements.
 * For the files of src/op alone; op.h is the layer's front page. */
#ifndef LATHE_OP_SHAPE_H
#define LATHE_OP_SHAPE_H

#include "op/op.h"

/* ---- shape_help.c: dimensions ---------------------------------------------------------------- */

bool dim_differ(const Expr *, const Expr *); /* provably: two literals that differ */
bool dim_never_negative(Module *, const Expr *);
const char *op_dims_text(OpCall *, int n, const Expr *const *); /* (1, n, 64) */
const char *op_arg_text(OpCall *, int i);                       /* type of argument i, for messages */

/* Raises unless argument i is an integer tensor; gives its type. */
const Type *op_int_tensor_arg(OpCall *, int i);
/* Raises unless argument i is a tensor of this dtype's family and rank (rank -1: any). */
const Type *op_ranked_tensor_arg(OpCall *, int i, int ndim);
/* Raises unless argument i is a tuple of at least one tensor; gives its type. */
const Type *op_filled_tuple_arg(OpCall *, int i);
/* Raises when a result would have more dimensions than there are. */
void op_check_rank(OpCall *, int ndim);

/* ---- computes -------------------------------------------------------------------------------------- */

/* of a vector; of a scalar, its value */
const Expr *op_emit_read1(Module *, const Tensor *, const Expr *i);
const Expr **op_emit_copy_index(Module *, int n, const Expr *const *index);
/* index < 0 counts from the end of extent. */
const Expr *op_emit_from_end(Module *, const Expr *index, const Expr *extent);
const Expr *op_emit_clamp(Module *, const Expr *, const Expr *lo, const Expr *hi);
const Expr *op_emit_if(Module *, const Expr *cond, const Expr *a, const Expr *b); /* only the taken one is evaluated */
/* Row-major position of an index, and back. */
const Expr *op_emit_flatten(Module *, int n, const Expr *const *shape, const Expr *const *index);
void op_emit_unflatten(Module *, const Expr *flat, int n, const Expr *const *shape, const Expr **index);
/* Index of the input of a reshape, from the output's. */
const Expr *const *op_emit_reshape_index(Module *, int nin, const Expr *const *in, int nout, const Expr *const *out,
                                         const Expr *const *index);
const Tensor *op_emit_reshape(OpCall *, const char *name, const Tensor *, int nout, const Expr *const *shape);

/* ---- loop programs --------------------------------------------------------------------------------- */

/* A loop program under construction: buffers that stand for the inputs and outputs. */
typedef struct Loops {
  Module *m;
  int nin, nout;
  const Tensor *const *in;
  const Buffer **ib, **ob;
} Loops;
/* Outputs are the fields of out (or out itself). */
Loops loops_begin(OpCall *, int nin, const Tensor *const *in);
void loops_end(Loops *, const char *name, Stmt *body, const Tensor **out);
/* a vector of its own; see stmt_alloc */
const Buffer *loops_local(Module *, const char *name, DType, const Expr *extent);
const Expr *loops_get(Module *, const Buffer *, const Expr *i); /* of a vector */
Stmt *loops_set(Module *, const Buffer *, const Expr *i, const Expr *value);
const Expr *loops_load(Module *, const Buffer *, const Expr *const *index);
Stmt *loops_store(Module *, const Buffer *, const Expr *const *index, const Expr *value);
const Var *loops_var(Module *, const char *name);
/* A nest over the dimensions; skip (or -1) is left out.  index[d] is the loop's variable;
 * the caller gives index[skip].  body is put inside; the outermost loop is parallel. */
void loops_index(Module *, int n, const Expr **index);
Stmt *loops_nest(Module *, int n, const Expr *const *shape, int skip, const Expr *const *index, bool parallel,
                 Stmt *body);
#define loops_seq(m, ...) stmt_seq(m, (int)(sizeof((Stmt *[]){__VA_ARGS__}) / sizeof(Stmt *)), (Stmt *[]){__VA_ARGS__})

#endif
