/* onnx_import.h: what the converters of ONNX operators work with.
 *
 * A converter is a function from one ONNX node (Conversion: its inputs as graph nodes, its
 * attributes, its opset) to graph nodes; a row of a table says for which operator and
 * from which opset on it holds.  Converters build calls by operator name; a call over
 * small constants is computed at once, so that shape arithmetic never reaches the graph.
 *
 * Abbreviations: c the conversion of one node, p what the protobuf said. */
#ifndef LATHE_ONNX_IMPORT_H
#define LATHE_ONNX_IMPORT_H

#include "frontend/frontend.h"
#include "frontend/onnx_proto.h"

typedef struct Conversion Conversion;
typedef struct Import Import;

typedef struct OnnxRow {
  const char *name;
  int since;                            /* the first opset this converter holds for */
  const Node *(*convert)(Conversion *); /* gives output 0, or NULL after filling c->out */
} OnnxRow;
typedef struct OnnxTable {
  const char *domain; /* "" for ONNX's own */
  const OnnxRow *row;
  int n;
} OnnxTable;
#define ONNX_TABLE(id, domain, rows) const OnnxTable id = {domain, rows, (int)(sizeof rows / sizeof *rows)}

extern const OnnxTable onnx_ops_math, onnx_ops_reduce, onnx_ops_shape, onnx_ops_index, onnx_ops_text, onnx_ops_nn,
    onnx_ops_norm, onnx_ops_attention, onnx_ops_linear_attention, onnx_ops_recurrent, onnx_ops_quant, onnx_ops_image,
    onnx_ops_signal, onnx_ops_random, onnx_ops_loss, onnx_ops_control, onnx_ops_training, onnx_ops_ml, onnx_ml_trees,
    onnx_ops_microsoft, onnx_ops_microsoft_quant, onnx_ops_preview, onnx_ops_legacy, onnx_ops_aten;

/* Names that a body sees.  A frame with `captures` is the body of a global function:
 * what it takes from outside becomes a parameter. */
typedef struct Capture {
  const Node *outer, *var;
} Capture;
typedef struct Captures {
  Vec(Capture) list;
} Captures;
typedef struct Frame {
  struct Frame *outer;
  StrMap values; /* name -> const Node * */
  Captures *captures;
  const PFunction *function;  /* the model-local function whose body this is, or NULL … */
  const PNode *caller;        /* … the node that called it … */
  struct Frame *caller_frame; /* … and where that stands */
} Frame;

struct Import {
  Module *m;
  Ctx *ctx;
  Arena *arena;            /* of the import alone */
  const char *path, *root; /* of the model; where external data may lie (NULL: nowhere) */
  Bytes file;
  const ImportOptions *opt;
  ImportReport *report;
  const PModel *model;
  StrMap dims;      /* dim_param -> const Expr * */
  StrMap dim_names; /* names given to sizes, to keep them apart */
  StrMap mapped;    /* external files by path */
  Map bottoms;      /* states of loops that begin as empty sequences */
  int depth;        /* of functions and bodies being converted */
  int nfunctions;   /* made so far, for their names */
  int nsplits;      /* Ifs that the rest of their graph was put into */
  int nrandom;      /* random operators so far: each its own stream */
};

struct Conversion {
  Import *im;
  Module *m;
  Ctx *ctx;
  Frame *frame;
  const PNode *p;
  const char *name; /* of the node, or its first output */
  int64_t opset;
  int nin, nout;
  const Node **in;  /* NULL: left out */
  const Node **out; /* more slots than nout, so fixed lists can be filled blindly */
};

/* ---- onnx_tensor.c: tensors and their dtypes ------------------------------------------- */

/* Raises ERR_UNSUPPORTED / ERR_TYPE with a sentence for what has no dtype of ours. */
DType onnx_dtype(Ctx *, int64_t data_type, const char *what);
/* The tensor as a constant: borrows where it can, unpacks where it must. */
const Node *onnx_tensor(Import *, const PTensor *, const char *name);
const Node *onnx_sparse(Import *, const PSparse *, const char *name);

/* ---- onnx_import.c ------------------------------------------------------------------------ */

/* The node that a name stands for; NULL if there is none. */
const Node *onnx_frame_get(Import *, Frame *, const char *name);
/* A value from outside as a parameter of the function whose body the frame is. */
const Node *onnx_frame_capture(Import *, Frame *, const Node *outer);
void onnx_frame_set(Import *, Frame *, const char *name, const Node *);
/* Converts a list of nodes into the frame, so that the names of the goal are defined. */
typedef struct Goal {
  int n;
  const char *const *name;
} Goal;
void onnx_import_nodes(Import *, Frame *, int n, PNode *const *node, Goal);
/* A body: initializers, then nodes; its outputs come out in out (g->output.n of them). */
void onnx_import_body(Import *, Frame *, const PGraph *, const Node **out);
const Type *onnx_import_type(Import *, const PType *, const char *input, const ShapeBinding *);
/* onnx_ops_control.c: both branches of an If, converted; with a condition that is known the one taken, and NULL. */
const Node *onnx_if_branches(Conversion *, const Node ***yes, const Node ***no);
/* onnx_order.c: the nodes in an order in which each comes after what it takes; raises naming a cycle. */
PNode *const *onnx_order_nodes(Import *, int n, PNode *const *node);
/* onnx_import.c: what messages call a node. */
const char *onnx_node_label(const PNode *);
/* Row for an operator at an opset, or NULL. */
const OnnxRow *onnx_find(const char *domain, const char *op, int64_t opset);
int64_t onnx_import_opset(Import *, const Frame *, const char *domain);

/* ---- onnx_kit.c: attributes, inputs, calls -------------------------------------------------- */

/* "onnx: Conv (node 'layer1/conv'): " and the message. */
_Noreturn void onnx_fail(Conversion *, ErrKind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

const PAttr *onnx_attr(Conversion *, const char *name); /* NULL if absent; references resolved */
int64_t onnx_attr_int(Conversion *, const char *name, int64_t def);
double onnx_attr_float(Conversion *, const char *name, double def);
const char *onnx_attr_str(Conversion *, const char *name, const char *def);
const int64_t *onnx_attr_ints(Conversion *, const char *name, int *n); /* NULL if absent */
const float *onnx_attr_floats(Conversion *, const char *name, int *n);
DType onnx_attr_dtype(Conversion *, const char *name, DType def);
const Node *onnx_attr_strings(Conversion *, const char *name); /* a vector of strings; NULL if absent */

const Node *onnx_in(Conversion *, int i);                 /* raises if it is left out */
const Node *onnx_opt(Conversion *, int i);                /* NULL if it is */
const Type *onnx_tensor_type(Conversion *, const Node *); /* raises unless a tensor of known rank */
DType onnx_dtype_of(Conversion *, const Node *);
int onnx_rank_of(Conversion *, const Node *);
const Expr *onnx_dim_of(Conversion *, const Node *, int axis); /* negative: from the end */
int64_t onnx_static_dim(Conversion *, const Node *, int axis); /* raises when it is not a literal */
bool onnx_is_static_dim(const Expr *, int64_t *);
int onnx_axis_of(Conversion *, int64_t axis, int rank); /* normalised; raises outside */
/* The elements of an integer operand: literals, or stable dimensions; NULL when they are neither. */
const int64_t *onnx_const_ints(Conversion *, const Node *, int *n);
const Expr *const *onnx_const_dims(Conversion *, const Node *, int *n);
int64_t onnx_const_int(Conversion *, const Node *, const char *what); /* one literal; raises */
bool onnx_const_float(Conversion *, const Node *, double *);          /* one literal number? */

/* Calls.  spec names attributes and the kinds of the values that follow:
 *   "axis:i,shape:D"   i int, l int64_t, f double, s string, t DType,
 *   I int and const int64_t *, D int and const Expr *const *, F int and const double *,
 *   S int and const char *const *.  NULL: none. */
const Node *onnx_opn(Conversion *, const char *op, int n, const Node *const *arg, const char *spec, ...);
const Node *onnx_op0(Conversion *, const char *op, const char *spec, ...);
const Node *onnx_op1(Conversion *, const char *op, const Node *, const char *spec, ...);
const Node *onnx_op2(Conversion *, const char *op, const Node *, const Node *, const char *spec, ...);
const Node *onnx_op3(Conversion *, const char *op, const Node *, const Node *, const Node *, const char *spec, ...);

/* ---- onnx_axes.c: axes known only at run time ------------------------------------------------- */

/* What the operator gives over these axes. */
typedef const Node *(*AxesFn)(Conversion *, int n, const int64_t *axes, void *env);
const Node *onnx_switch_axes(Conversion *, const Node *axes, int rank, AxesFn, void *env);
/* The element of values that belongs to an axis (all int64 vectors), or another vector of one element. */
const Node *onnx_pick_axis(Conversion *, const Node *axes, const Node *values, int axis, int rank,
                           const Node *otherwise);
const Node *onnx_unsqueeze_at(Conversion *, const Node *x, const Node *axes);
const Node *onnx_squeeze_at(Conversion *, const Node *x, const Node *axes);

/* ---- onnx_build.c: small expressions that many converters use -------------------------------- */

const Node *onnx_scalar(Conversion *, DType, double);
const Node *onnx_scalar_like(Conversion *, const Node *, double);
const Node *onnx_const_i64(Conversion *, int n, const int64_t *);    /* a vector */
const Node *onnx_string_const(Conversion *, const char *, size_t n); /* a scalar */
const Node *onnx_cast_to(Conversion *, const Node *, DType);         /* to and from strings too */
const Node *onnx_add(Conversion *, const Node *, const Node *);
const Node *onnx_sub(Conversion *, const Node *, const Node *);
const Node *onnx_mul(Conversion *, const Node *, const Node *);
const Node *onnx_div(Conversion *, const Node *, const Node *);
const Node *onnx_max2(Conversion *, const Node *, const Node *);
const Node *onnx_min2(Conversion *, const Node *, const Node *);
const Node *onnx_less(Conversion *, const Node *, const Node *);
const Node *onnx_where(Conversion *, const Node *cond, const Node *, const Node *);
const Node *onnx_exp(Conversion *, const Node *);
const Node *onnx_sqrt(Conversion *, const Node *);
const Node *onnx_reduce(Conversion *, const char *op, const Node *, int naxes, const int64_t *axes, bool keepdims);
const Node *onnx_reduce1(Conversion *, const char *op, const Node *, int axis, bool keepdims);

const Node *onnx_shape_of(Conversion *, const Node *);                      /* int64 vector */
const Node *onnx_shape_part(Conversion *, const Node *x, int from, int to); /* of x's shape */
const Node *onnx_concat(Conversion *, int n, const Node *const *, int axis);
const Node *onnx_concat2(Conversion *, const Node *, const Node *, int axis);
const Node *onnx_concat3(Conversion *, const Node *, const Node *, const Node *, int axis);
const Node *onnx_reshape(Conversion *, const Node *, int n,
                         const int64_t *shape); /* 0: as the input, -1: what is left */
const Node *onnx_reshape_to(Conversion *, const Node *, const Node *shape, bool allowzero);
const Node *onnx_flatten_from(Conversion *, const Node *, int axis); /* rank 2 */
const Node *onnx_transpose(Conversion *, const Node *, int n, const int *perm);
const Node *onnx_swap_last(Conversion *, const Node *); /* the last two axes */
const Node *onnx_move_axis(Conversion *, const Node *, int from, int to);
const Node *onnx_unsqueeze(Conversion *, const Node *, int axis);
const Node *onnx_squeeze(Conversion *, const Node *, int axis);
const Node *onnx_unsqueeze_to(Conversion *, const Node *, int axis, int rank); /* a vector along one axis of a rank */
const Node *onnx_slice(Conversion *, const Node *, int axis, int64_t begin, int64_t end); /* INT64_MAX: to the end */
/* int64 vectors of one element */
const Node *onnx_slice_to(Conversion *, const Node *, int axis, const Node *begin, const Node *end);
const Node *onnx_take(Conversion *, const Node *, const Node *indices, int axis);
const Node *onnx_broadcast_to(Conversion *, const Node *, const Node *shape);
const Node *onnx_full(Conversion *, const Node *value, const Node *shape, DType);
const Node *onnx_pad(Conversion *, const Node *, int n, const int64_t *before, const int64_t *after, double value);
const Node *onnx_arange(Conversion *, const Node *start, const Node *stop, const Node *step, DType);
const Node *onnx_iota(Conversion *, const Node *count, DType);     /* count: scalar int64 */
const Node *onnx_scalar_of(Conversion *, const Node *);            /* one element as rank 0 */
const Node *onnx_vector_of(Conversion *, const Node *);            /* one element as rank 1 */
const Node *onnx_matmul(Conversion *, const Node *, const Node *); /* numpy's rule */
const Node *onnx_softmax(Conversion *, const Node *, int axis);
const Node *onnx_activation(Conversion *, const char *name, const Node *, double alpha, double beta);

#endif
