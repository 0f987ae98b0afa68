/* kit.h: what the readers of all source formats stand on.
 *
 * A reader turns the file into its own messages; the kit turns what they say into a graph.  It
 * holds what does not depend on the format: the names that bodies see, the sizes that inputs share, constants
 * that borrow the file's bytes, the report of what is used and what is not supported, and a
 * builder of calls.  A converter is a function from one foreign node (Conversion: its inputs as
 * graph nodes) to graph nodes; reading the node's attributes is the format's own.  Converters build
 * calls by operator name; a call over small constants is computed at once, so that shape
 * arithmetic never reaches the graph.
 *
 * Messages begin with the format's name and say the operator and the node.
 *
 * Abbreviations: c the conversion of one node, im the import of one file. */
#ifndef LATHE_FRONTEND_KIT_H
#define LATHE_FRONTEND_KIT_H

#include "frontend/frontend.h"

/* Borrowed from the file. */
typedef struct Bytes {
  const char *p;
  size_t n;
} Bytes;

typedef struct Import Import;
typedef struct Conversion Conversion;

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
  bool closed;     /* sees nothing outside */
  const void *own; /* the format's */
} Frame;

/* One file on its way into a module. */
struct Import {
  const char *format;  /* "onnx" */
  const char *listing; /* the command that lists its operators, "lathe ops --onnx" */
  Module *m;
  Ctx *ctx;
  Arena *arena;            /* of the import alone */
  const char *path, *root; /* of the model; where external data may lie (NULL: nowhere) */
  Bytes file;
  const ImportOptions *opt;
  ImportReport *report; /* may be NULL */
  StrMap dims;          /* size that inputs share, by name -> const Expr * */
  StrMap dim_names;     /* names given to sizes, to keep them apart */
  StrMap mapped;        /* external files by path */
  void *own;            /* the format's */
};

/* One foreign node on its way into graph nodes. */
struct Conversion {
  Import *im;
  Module *m;
  Ctx *ctx;
  Frame *frame;
  const char *op;   /* the foreign operator */
  const char *name; /* of the node, or its first output */
  int64_t version;  /* of the operator, or of the set that it belongs to */
  int nin, nout;
  const Node **in;             /* NULL: left out */
  const Node **out;            /* more slots than nout, so fixed lists can be filled blindly */
  const char *const *out_name; /* "": nobody wants it */
  const void *foreign;         /* the node as the format's reader has it */
};

/* ---- kit_file.c: files, and constants that borrow their bytes --------------------------------- */

/* The file mapped, shared by copies of the module; or a copy of the caller's bytes, which the module keeps. */
Bytes kit_map_file(Module *, const char *format, const char *path);
Bytes kit_keep_bytes(Module *, const void *bytes, size_t n);
/* Fills the import (format, listing and own are there), calls read and ends it, also when that raises. */
void kit_import(Import *, Module *, Bytes file, const char *path, const ImportOptions *, ImportReport *,
                void (*read)(Import *));
/* Another file that a tensor's bytes lie in; only under the folder allowed. */
Bytes kit_map_beside(Import *, const char *location, const char *tensor, const char **path);
/* Rank and dimensions of a tensor, checked, into d (its dtype is there); the number of elements. */
size_t kit_const_shape(Import *, const char *tensor, int n, const int64_t *dim, ConstData *d);
/* The elements as the file has them; d borrows them where they lie well.  Those of 4 and 2 bits are packed, the first
 * in the lowest bits. */
void kit_const_raw(Import *, const char *tensor, Bytes raw, size_t count, ConstData *d);
size_t kit_packed_per_byte(DType);
size_t kit_packed_bytes(DType, size_t count);
int8_t kit_unpacked(DType, int64_t byte, size_t i); /* element i, of which this is the byte */
void kit_check_count(Import *, const char *tensor, const char *what, size_t has, size_t wants);
/* d as a node, counted among the weights. */
const Node *kit_const(Import *, const ConstData *d);

/* ---- kit_names.c: names, sizes, inputs, @main ---------------------------------------------- */

/* The node that a name stands for; NULL if there is none. */
const Node *kit_frame_get(Import *, Frame *, const char *name);
/* A value from outside as a parameter of the function whose body the frame is. */
const Node *kit_frame_capture(Import *, Frame *, const Node *outer);
void kit_frame_set(Import *, Frame *, const char *name, const Node *);
/* The same for a name that has no value yet; raises naming the second node that makes it. */
void kit_define(Import *, Frame *, const char *name, const Node *, const char *node);
/* The type as a parameter can declare it: dimensions are literals, sizes with a name, or "?". */
const Type *kit_param_type(Module *, const Type *);

/* An input as the file declares it. */
typedef struct SourceDim {
  bool known;
  int64_t value;
  const char *name; /* of a size that others share; "": it has none */
} SourceDim;
typedef struct SourceInput {
  const char *name;
  int ndim; /* -1: not known */
  const SourceDim *dim;
} SourceInput;
/* Takes the shapes that the options give, checked against the inputs.  A size bound at one is bound everywhere. */
void kit_bind_shapes(Import *, int n, const SourceInput *);
const ShapeBinding *kit_binding_of(Import *, const char *input); /* NULL: none */
/* The type of a tensor declared so; the binding may be NULL. */
const Type *kit_input_type(Import *, DType, const SourceInput *, const ShapeBinding *);
const char *kit_size_name(Import *, const char *from); /* that Relay text can carry, different for each size */

/* With keep_params: those of the names that are weights become parameters, appended to params. */
typedef Vec(const Node *) KitNodes;
void kit_keep_params(Import *, Frame *, int n, const char *const *name, KitNodes *params);
/* Sets @main and the report's outputs; the names are in the module's arena.  The last `states` of params and out are
 * kept by executors from one run to the next, zeros at first; names and report are of the other outputs.
 * quantization: NULL, or the attribute of that name (emit.c of the driver reads it). */
void kit_set_main(Import *, const KitNodes *params, int n, const Node *const *out, const char **name, int states,
                  const char *quantization);

/* ---- kit_report.c: what a file uses -------------------------------------------------------- */

typedef struct Survey {
  Import *im;
  StrMap count; /* operator -> ImportCount * */
  Vec(ImportCount *) ops;
  Vec(ImportProblem) problems;
} Survey;
/* Counts a use; the operator's name, kept. */
const char *kit_survey_use(Survey *, const char *op);
void kit_survey_problem(Survey *, const char *op, const char *node, const char *why);
/* Fills the report; raises with a list of all problems if there are any. */
void kit_survey_end(Survey *);

/* ---- kit.c: one node: begin and end, inputs, calls ------------------------------------------ */

/* Inputs are looked up in the frame; a name that stands for nothing, and "", give NULL. */
Conversion kit_begin(Import *, Frame *, const char *op, const char *name, int64_t version, int nin,
                     const char *const *in, int nout, const char *const *out, const void *foreign);
/* The outputs that are wanted are defined in the frame. */
void kit_end(Conversion *);
/* "onnx: Conv (node 'layer1/conv'): " and the message. */
_Noreturn void kit_fail(Conversion *, ErrKind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

const Node *kit_in(Conversion *, int i);                 /* raises if it is left out */
const Node *kit_opt(Conversion *, int i);                /* NULL if it is */
const Type *kit_tensor_type(Conversion *, const Node *); /* raises unless a tensor of known rank */
DType kit_dtype_of(Conversion *, const Node *);
int kit_rank_of(Conversion *, const Node *);
const Expr *kit_dim_of(Conversion *, const Node *, int axis); /* negative: from the end */
int64_t kit_static_dim(Conversion *, const Node *, int axis); /* raises when it is not a literal */
bool kit_is_static_dim(const Expr *, int64_t *);
int kit_axis_of(Conversion *, int64_t axis, int rank); /* normalised; raises outside */
/* The elements of an integer operand: literals, or stable dimensions; NULL when they are neither. */
const int64_t *kit_const_ints(Conversion *, const Node *, int *n);
const Expr *const *kit_const_dims(Conversion *, const Node *, int *n);
int64_t kit_const_int(Conversion *, const Node *, const char *what); /* one literal; raises */
bool kit_const_float(Conversion *, const Node *, double *);          /* one literal number? */

/* Calls.  spec names attributes and the kinds of the values that follow:
 *   "axis:i,shape:D"   i int, l int64_t, f double, s string, t DType,
 *   I int and const int64_t *, D int and const Expr *const *, F int and const double *,
 *   S int and const char *const *.  NULL: none. */
const Node *kit_opn(Conversion *, const char *op, int n, const Node *const *arg, const char *spec, ...);
const Node *kit_op0(Conversion *, const char *op, const char *spec, ...);
const Node *kit_op1(Conversion *, const char *op, const Node *, const char *spec, ...);
const Node *kit_op2(Conversion *, const char *op, const Node *, const Node *, const char *spec, ...);
const Node *kit_op3(Conversion *, const char *op, const Node *, const Node *, const Node *, const char *spec, ...);

/* ---- kit_axes.c: axes known only at run time ------------------------------------------------- */

/* What the operator gives over these axes. */
typedef const Node *(*AxesFn)(Conversion *, int n, const int64_t *axes, void *env);
const Node *kit_switch_axes(Conversion *, const Node *axes, int rank, AxesFn, void *env);
/* The element of values that belongs to an axis (all int64 vectors), or another vector of one element. */
const Node *kit_pick_axis(Conversion *, const Node *axes, const Node *values, int axis, int rank,
                          const Node *otherwise);
const Node *kit_unsqueeze_at(Conversion *, const Node *x, const Node *axes);
const Node *kit_squeeze_at(Conversion *, const Node *x, const Node *axes);

/* ---- kit_build.c: small expressions that many converters use -------------------------------- */

const Node *kit_scalar(Conversion *, DType, double);
const Node *kit_scalar_like(Conversion *, const Node *, double);
const Node *kit_const_i64(Conversion *, int n, const int64_t *);    /* a vector */
const Node *kit_string_const(Conversion *, const char *, size_t n); /* a scalar */
const Node *kit_cast_to(Conversion *, const Node *, DType);         /* to and from strings too */
const Node *kit_add(Conversion *, const Node *, const Node *);
const Node *kit_sub(Conversion *, const Node *, const Node *);
const Node *kit_mul(Conversion *, const Node *, const Node *);
const Node *kit_div(Conversion *, const Node *, const Node *);
const Node *kit_max2(Conversion *, const Node *, const Node *);
const Node *kit_min2(Conversion *, const Node *, const Node *);
const Node *kit_less(Conversion *, const Node *, const Node *);
const Node *kit_where(Conversion *, const Node *cond, const Node *, const Node *);
const Node *kit_exp(Conversion *, const Node *);
const Node *kit_sqrt(Conversion *, const Node *);
const Node *kit_reduce(Conversion *, const char *op, const Node *, int naxes, const int64_t *axes, bool keepdims);
const Node *kit_reduce1(Conversion *, const char *op, const Node *, int axis, bool keepdims);

const Node *kit_shape_of(Conversion *, const Node *);                      /* int64 vector */
const Node *kit_shape_part(Conversion *, const Node *x, int from, int to); /* of x's shape */
const Node *kit_concat(Conversion *, int n, const Node *const *, int axis);
const Node *kit_concat2(Conversion *, const Node *, const Node *, int axis);
const Node *kit_concat3(Conversion *, const Node *, const Node *, const Node *, int axis);
const Node *kit_reshape(Conversion *, const Node *, int n,
                        const int64_t *shape); /* 0: as the input, -1: what is left */
const Node *kit_reshape_to(Conversion *, const Node *, const Node *shape, bool allowzero);
const Node *kit_flatten_from(Conversion *, const Node *, int axis); /* rank 2 */
const Node *kit_transpose(Conversion *, const Node *, int n, const int *perm);
const Node *kit_swap_last(Conversion *, const Node *); /* the last two axes */
const Node *kit_move_axis(Conversion *, const Node *, int from, int to);
const Node *kit_unsqueeze(Conversion *, const Node *, int axis);
const Node *kit_squeeze(Conversion *, const Node *, int axis);
const Node *kit_unsqueeze_to(Conversion *, const Node *, int axis, int rank); /* a vector along one axis of a rank */
const Node *kit_slice(Conversion *, const Node *, int axis, int64_t begin, int64_t end); /* INT64_MAX: to the end */
/* int64 vectors of one element */
const Node *kit_slice_to(Conversion *, const Node *, int axis, const Node *begin, const Node *end);
const Node *kit_take(Conversion *, const Node *, const Node *indices, int axis);
const Node *kit_broadcast_to(Conversion *, const Node *, const Node *shape);
const Node *kit_full(Conversion *, const Node *value, const Node *shape, DType);
const Node *kit_pad(Conversion *, const Node *, int n, const int64_t *before, const int64_t *after, double value);
const Node *kit_arange(Conversion *, const Node *start, const Node *stop, const Node *step, DType);
const Node *kit_iota(Conversion *, const Node *count, DType);     /* count: scalar int64 */
const Node *kit_scalar_of(Conversion *, const Node *);            /* one element as rank 0 */
const Node *kit_vector_of(Conversion *, const Node *);            /* one element as rank 1 */
const Node *kit_matmul(Conversion *, const Node *, const Node *); /* numpy's rule */
/* The same, each product of matrices (rank 2) or of batches of them (rank 3, (b, n, k) by (b, k, m)) by a function. */
typedef const Node *(*KitProduct)(Conversion *, const Node *, const Node *, void *env);
const Node *kit_matmul_by(Conversion *, const Node *, const Node *, KitProduct, void *env);
const Node *kit_softmax(Conversion *, const Node *, int axis);

#endif
