/* onnx_import.h: what the converters of ONNX operators work with.
 *
 * A converter is a function from one ONNX node (Conv: its inputs as graph nodes, its
 * attributes, its opset) to graph nodes; a row of a table says for which operator and
 * from which opset on it holds.  Converters build calls by operator name; a call over
 * small constants is computed at once, so that shape arithmetic never reaches the graph.
 *
 * Abbreviations: c the conversion of one node, p what the protobuf said. */
#ifndef LATHE_ONNX_IMPORT_H
#define LATHE_ONNX_IMPORT_H

#include "frontend/frontend.h"
#include "frontend/onnx_proto.h"

typedef struct Conv Conv;
typedef struct Import Import;

typedef struct OnnxRow {
  const char *name;
  int since;                      /* the first opset this converter holds for */
  const Node *(*convert)(Conv *); /* gives output 0, or NULL after filling c->out */
} OnnxRow;
typedef struct OnnxTable {
  const char *domain; /* "" for ONNX's own */
  const OnnxRow *row;
  int n;
} OnnxTable;
#define ONNX_TABLE(id, domain, rows) const OnnxTable id = {domain, rows, (int)(sizeof rows / sizeof *rows)}

extern const OnnxTable onnx_math, onnx_reduce, onnx_shape, onnx_index, onnx_text, onnx_nn, onnx_norm, onnx_attention,
    onnx_linear_attention, onnx_recurrent, onnx_quant, onnx_image, onnx_signal, onnx_random, onnx_loss, onnx_control,
    onnx_training, onnx_ml, onnx_microsoft, onnx_microsoft_quant, onnx_preview, onnx_legacy, onnx_aten;

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

struct Conv {
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
const Node *frame_get(Import *, Frame *, const char *name);
/* A value from outside as a parameter of the function whose body the frame is. */
const Node *frame_capture(Import *, Frame *, const Node *outer);
void frame_set(Import *, Frame *, const char *name, const Node *);
/* Converts a list of nodes into the frame, so that the names of the goal are defined. */
typedef struct Goal {
  int n;
  const char *const *name;
} Goal;
void import_nodes(Import *, Frame *, int n, PNode *const *node, Goal);
/* A body: initializers, then nodes; its outputs come out in out (g->output.n of them). */
void import_body(Import *, Frame *, const PGraph *, const Node **out);
const Type *import_type(Import *, const PType *, const char *input, const ShapeBinding *);
/* onnx_ops_control.c: both branches of an If, converted; with a condition that is known the one taken, and NULL. */
const Node *if_branches(Conv *, const Node ***yes, const Node ***no);
/* onnx_order.c: the nodes in an order in which each comes after what it takes; raises naming a cycle. */
PNode *const *order_nodes(Import *, int n, PNode *const *node);
const char *node_label(const PNode *);
/* Row for an operator at an opset, or NULL. */
const OnnxRow *onnx_find(const char *domain, const char *op, int64_t opset);
int64_t import_opset(Import *, const Frame *, const char *domain);

/* ---- onnx_kit.c: attributes, inputs, calls -------------------------------------------------- */

/* "onnx: Conv (node 'layer1/conv'): " and the message. */
_Noreturn void conv_fail(Conv *, ErrKind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

const PAttr *conv_attr(Conv *, const char *name); /* NULL if absent; references resolved */
int64_t attr_int(Conv *, const char *name, int64_t def);
double attr_float(Conv *, const char *name, double def);
const char *attr_str(Conv *, const char *name, const char *def);
const int64_t *attr_ints(Conv *, const char *name, int *n); /* NULL if absent */
const float *attr_floats(Conv *, const char *name, int *n);
DType attr_dtype(Conv *, const char *name, DType def);
const Node *attr_strings(Conv *, const char *name); /* a vector of strings; NULL if absent */

const Node *conv_in(Conv *, int i);            /* raises if it is left out */
const Node *conv_opt(Conv *, int i);           /* NULL if it is */
const Type *tensor_type(Conv *, const Node *); /* raises unless a tensor of known rank */
DType dtype_of(Conv *, const Node *);
int rank_of(Conv *, const Node *);
const Expr *dim_of(Conv *, const Node *, int axis); /* negative: from the end */
int64_t static_dim(Conv *, const Node *, int axis); /* raises when it is not a literal */
bool is_static_dim(const Expr *, int64_t *);
int axis_of(Conv *, int64_t axis, int rank); /* normalised; raises outside */
/* The elements of an integer operand: literals, or stable dimensions; NULL when they are neither. */
const int64_t *const_ints(Conv *, const Node *, int *n);
const Expr *const *const_dims(Conv *, const Node *, int *n);
int64_t const_int(Conv *, const Node *, const char *what); /* one literal; raises */
bool const_float(Conv *, const Node *, double *);          /* one literal number? */

/* Calls.  spec names attributes and the kinds of the values that follow:
 *   "axis:i,shape:D"   i int, l int64_t, f double, s string, t DType,
 *   I int and const int64_t *, D int and const Expr *const *, F int and const double *,
 *   S int and const char *const *.  NULL: none. */
const Node *opn(Conv *, const char *op, int n, const Node *const *arg, const char *spec, ...);
const Node *op0(Conv *, const char *op, const char *spec, ...);
const Node *op1(Conv *, const char *op, const Node *, const char *spec, ...);
const Node *op2(Conv *, const char *op, const Node *, const Node *, const char *spec, ...);
const Node *op3(Conv *, const char *op, const Node *, const Node *, const Node *, const char *spec, ...);

/* ---- onnx_axes.c: axes known only at run time ------------------------------------------------- */

/* What the operator gives over these axes. */
typedef const Node *(*AxesFn)(Conv *, int n, const int64_t *axes, void *env);
const Node *switch_axes(Conv *, const Node *axes, int rank, AxesFn, void *env);
/* The element of values that belongs to an axis (all int64 vectors), or another vector of one element. */
const Node *pick_axis(Conv *, const Node *axes, const Node *values, int axis, int rank, const Node *otherwise);
const Node *unsqueeze_at(Conv *, const Node *x, const Node *axes);
const Node *squeeze_at(Conv *, const Node *x, const Node *axes);

/* ---- onnx_build.c: small expressions that many converters use -------------------------------- */

const Node *scalar(Conv *, DType, double);
const Node *scalar_like(Conv *, const Node *, double);
const Node *const_i64(Conv *, int n, const int64_t *);    /* a vector */
const Node *string_const(Conv *, const char *, size_t n); /* a scalar */
const Node *cast_to(Conv *, const Node *, DType);         /* to and from strings too */
const Node *add(Conv *, const Node *, const Node *);
const Node *sub(Conv *, const Node *, const Node *);
const Node *mul(Conv *, const Node *, const Node *);
const Node *div_(Conv *, const Node *, const Node *);
const Node *max2(Conv *, const Node *, const Node *);
const Node *min2(Conv *, const Node *, const Node *);
const Node *less(Conv *, const Node *, const Node *);
const Node *where(Conv *, const Node *cond, const Node *, const Node *);
const Node *exp_(Conv *, const Node *);
const Node *sqrt_(Conv *, const Node *);
const Node *reduce(Conv *, const char *op, const Node *, int naxes, const int64_t *axes, bool keepdims);
const Node *reduce1(Conv *, const char *op, const Node *, int axis, bool keepdims);

const Node *shape_of(Conv *, const Node *);                      /* int64 vector */
const Node *shape_part(Conv *, const Node *x, int from, int to); /* of x's shape */
const Node *concat(Conv *, int n, const Node *const *, int axis);
const Node *concat2(Conv *, const Node *, const Node *, int axis);
const Node *concat3(Conv *, const Node *, const Node *, const Node *, int axis);
const Node *reshape(Conv *, const Node *, int n, const int64_t *shape); /* 0: as the input, -1: what is left */
const Node *reshape_to(Conv *, const Node *, const Node *shape, bool allowzero);
const Node *flatten_from(Conv *, const Node *, int axis); /* rank 2 */
const Node *transpose(Conv *, const Node *, int n, const int *perm);
const Node *swap_last(Conv *, const Node *); /* the last two axes */
const Node *move_axis(Conv *, const Node *, int from, int to);
const Node *unsqueeze(Conv *, const Node *, int axis);
const Node *squeeze(Conv *, const Node *, int axis);
const Node *unsqueeze_to(Conv *, const Node *, int axis, int rank);            /* a vector along one axis of a rank */
const Node *slice(Conv *, const Node *, int axis, int64_t begin, int64_t end); /* INT64_MAX: to the end */
/* int64 vectors of one element */
const Node *slice_to(Conv *, const Node *, int axis, const Node *begin, const Node *end);
const Node *take(Conv *, const Node *, const Node *indices, int axis);
const Node *broadcast_to(Conv *, const Node *, const Node *shape);
const Node *full(Conv *, const Node *value, const Node *shape, DType);
const Node *pad(Conv *, const Node *, int n, const int64_t *before, const int64_t *after, double value);
const Node *arange(Conv *, const Node *start, const Node *stop, const Node *step, DType);
const Node *iota(Conv *, const Node *count, DType);     /* count: scalar int64 */
const Node *scalar_of(Conv *, const Node *);            /* one element as rank 0 */
const Node *vector_of(Conv *, const Node *);            /* one element as rank 1 */
const Node *matmul(Conv *, const Node *, const Node *); /* numpy's rule */
const Node *softmax(Conv *, const Node *, int axis);
const Node *activation(Conv *, const char *name, const Node *, double alpha, double beta);

#endif
