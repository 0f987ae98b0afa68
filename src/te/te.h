/* te.h: tensor expressions: what to compute, one element at a time.
 *
 * A Tensor is an output of an operation.  Operations are immutable and form a
 * DAG; one operation may serve several schedules.  A tensor reads another by an
 * E_LOAD of its buffer, whose owner is the tensor.
 *
 * Reading a tensor outside its shape has no meaning and is refused where it can
 * be proved. */
#ifndef LATHE_TE_H
#define LATHE_TE_H

#include "tir/tir.h"

typedef struct Tensor Tensor;
typedef struct TeOp TeOp;

typedef enum { TE_PLACEHOLDER, TE_COMPUTE, TE_SCAN, TE_EXTERN } TeKind;

struct Tensor {
  const TeOp *op;
  int index;            /* which output of op */
  const Buffer *buffer; /* name, dtype, shape */
};

struct TeOp {
  TeKind kind;
  Module *m;
  const char *name, *tag;
  Annots attrs;
  int nout;
  Tensor *out;
  bool needs_scan; /* reads rows before the first of a placeholder: sound only as the step of a scan */
  /* compute: axis and reduce_axis; one body per output.  A body is an expression
   * over the axes; reductions sit at its top or anywhere inside.  scan: axis[0]
   * is the scan axis, the others are the spatial axes of each update. */
  int naxis, nreduce;
  const IterVar **axis, **reduce_axis;
  const Expr **body;
  /* scan: state placeholder i has the shape of output i; init i gives its first
   * rows, update i row t from rows before t. */
  int nstate, ninputs;
  const Tensor **init, **update, **state;
  const Tensor **inputs; /* scan: the tensors read from outside; extern: the inputs */
  /* extern */
  const Buffer **in_buffers, **out_buffers; /* what the body sees */
  Stmt *stmt;
};

/* ---- ops.c: operations -------------------------------------------------------- */

/* Each raises with the operation's name when something does not fit. */
const Tensor *te_placeholder(Module *, const char *name, DType, int ndim, const Expr *const *shape);
/* ndim axes with the domain [0, shape[i]); nbody bodies give nbody outputs. */
const TeOp *te_compute(Module *, const char *name, const char *tag, int ndim, const Expr *const *shape,
                       const IterVar *const *axis, int nbody, const Expr *const *body, const Annots *attrs);
/* axis[0] runs over the rows after the initial ones; the other axes are made anew. */
const TeOp *te_scan(Module *, const char *name, const char *tag, int n, const Tensor *const *init,
                    const Tensor *const *update, const Tensor *const *state, int ninputs, const Tensor *const *inputs);
/* The outputs have the shapes of out_buffers; body reads and writes the buffers given.  attrs may be NULL. */
const TeOp *te_extern(Module *, const char *name, const char *tag, int nin, const Tensor *const *in,
                      const Buffer *const *in_buffers, int nout, const Buffer *const *out_buffers, Stmt *body,
                      const Annots *attrs);
const Expr *te_read(Module *, const Tensor *, int n, const Expr *const *index);
/* NULL if the buffer is no tensor's */
static inline const Tensor *te_tensor_of(const Buffer *b) { return b->owner; }

/* ---- check.c: what a body may say ------------------------------------------------ */

/* Raises unless the bodies of the compute op read known tensors by their rank, use
 * its own axes (and each reduce axis inside its reduction only), and no read is
 * provably out of bounds.  first (NULL: 0) is where its first axis starts.  With
 * may_scan a read of a placeholder at the first axis less a constant passes, since
 * the placeholder may be the state of a scan; returns whether there was one. */
bool te_check_compute(const TeOp *, const Expr *first, bool may_scan);
/* Raises the error that may_scan let pass: op is no step of a scan after all. */
void te_check_outside_scan(const TeOp *);
/* Can no read below e leave its tensor while the axes run over their domains?
 * False: not known. */
bool te_reads_in_bounds(Module *, int naxis, const IterVar *const *axis, const Expr *e);
/* The reduction of a compute op whose bodies are exactly the values of one
 * reduction, in order; NULL for any other op. */
const Expr *te_plain_reduce(const TeOp *);
/* Same reducer, axes, sources, condition and initial values: values of one reduction? */
bool te_same_reduction(const Expr *, const Expr *);

/* ---- graph.c: how operations hang together ------------------------------------------ */

/* Tensors op reads, each once, in order of first use; of a scan the initial
 * values, the updates, the states' outside inputs. */
int te_inputs(Arena *, const TeOp *, const Tensor ***out);
/* All operations behind the outputs, producers first. */
int te_post_order(Arena *, int n, const Tensor *const *outputs, const TeOp ***out);
/* Operations of the scan that run at each step: those that reach its update from its
 * state, producers first. */
int te_scan_steps(Arena *, const TeOp *scan, const TeOp ***out);
/* The same operation (same axes, new outputs) reading map[t] (Tensor* -> Tensor*) for
 * each tensor t in the map; op itself when it reads none of them. */
const TeOp *te_replace_reads(const TeOp *, const Map *map);

/* ---- create.c, create_scan.c: from operations to a function -------------------------- */

/* The function that computes the outputs from the placeholders: one block per
 * tensor (two where a reduction sits inside a larger expression: the reduction
 * becomes a block "<name>_red"; one block for all outputs of a multi-output
 * compute), in a schedulable PrimFunc of module dst.  args: tensors and scalar
 * variables in the order of the parameters; a placeholder, or an output.  What is
 * an output and not listed is allocated inside.  names (may be NULL) receives the
 * block name (char *) for each TeOp (key) and for each reduction inside a larger
 * expression (key: its E_REDUCE), and the buffer name for each Tensor (key).  Its
 * memory is dst's. */
typedef struct TeArg {
  const Tensor *tensor; /* or NULL */
  const Var *var;       /* a scalar or size parameter */
  const Buffer *buffer; /* optional: decl_buffer given for the tensor (binds) */
} TeArg;
PrimFunc *te_create_prim_func(Module *dst, const char *name, int nargs, const TeArg *args, Map *names);
/* The same with loops, sizes and indices of int64, whatever the expressions have. */
PrimFunc *te_create_prim_func_wide(Module *dst, const char *name, int nargs, const TeArg *args);
/* graph.c: arguments that every caller could give: the scalars that no shape tells, the
 * placeholders in order of first use, the outputs. */
int te_default_args(Arena *, int n, const Tensor *const *outputs, TeArg **out);

/* ---- evaluate.c -------------------------------------------------------------------------- */

/* Reference evaluator: computes the outputs naively, straight from the expressions. */
void te_evaluate(Ctx *, int nargs, const TeArg *args, const TirArg *values);

/* A tensor intrinsic: the computation it stands for and what to emit for it. */
typedef struct TensorIntrin {
  const char *name;
  const PrimFunc *desc;                    /* one block over match_buffers: what is computed */
  const PrimFunc *impl;                    /* the same interface: how */
  const PrimFunc *init;                    /* te.decl_tensor_intrin with a reset, or NULL */
  const PrimFunc *update;                  /* accumulate without reset, or NULL */
  const PrimFunc *init_desc, *update_desc; /* what these two compute, where they are given */
} TensorIntrin;

/* ---- intrin.c ------------------------------------------------------------------------------ */

/* From te.decl_tensor_intrin: op is a compute over placeholders; in_buffers stand
 * for its inputs in the order of te_inputs, out_buffers for its outputs.  body is
 * the whole computation; init and update (both or neither) its two halves when
 * reduce loops stay outside.  Everything is imported into dst. */
TensorIntrin *te_tensor_intrin(Module *dst, const char *name, const TeOp *op, const Buffer *const *in_buffers,
                               const Buffer *const *out_buffers, Stmt *body, Stmt *init, Stmt *update);

#endif
