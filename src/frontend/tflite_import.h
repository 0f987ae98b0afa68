/* tflite_import.h: what the files of the TFLite importer share.
 *
 * tflite_flat.c reads flatbuffers, tflite_model.c the model's tables out of them, tflite_import.c walks the subgraphs;
 * tflite_ops_*.c have the converters, listed in one table (tflite_ops.c), over the kit (kit.h).
 *
 * A quantized tensor stands for real = scale * (stored - zero point).  What such an operator computes is what TFLite's
 * reference kernels compute, to the bit: sums in int32 (int64 of 16-bit data), rescaled by a multiplier of 31 bits and
 * a power of two (tflite_quant.c). */
#ifndef LATHE_TFLITE_IMPORT_H
#define LATHE_TFLITE_IMPORT_H

#include "frontend/tflite_flat.h"

/* ---- tflite_model.c: the model's tables ------------------------------------------------------ */

typedef struct TflQuant {
  int n; /* 0: not quantized; 1: for the whole tensor; else one for each element of the axis */
  const double *scale;
  const int64_t *zero; /* n of them */
  int axis;
} TflQuant;

typedef struct TflTensor {
  const char *name; /* as the file says; may be "" or not the only one */
  const char *key;  /* the name, or one made of it: of no other tensor of the subgraph */
  int64_t type;     /* TFLite's number */
  DType dtype;
  int ndim;
  const int64_t *dim;
  const int64_t *signature; /* -1: may be bound to another size; NULL: as dim */
  size_t buffer;
  bool variable;
  TflQuant q;
  FlatTable sparsity;
  const Node *node; /* of a constant, once it is made */
} TflTensor;

typedef struct TflOperator {
  int code;
  const char *op; /* "CONV_2D"; "CUSTOM.name" */
  int64_t version;
  int nin, nout, ninter;
  const int32_t *in, *out, *inter; /* tensors of the subgraph; -1: left out */
  int options_type;
  FlatTable options;
  Bytes custom; /* options of a custom operator */
} TflOperator;

typedef struct TflGraph {
  const char *name;
  int ntensors, nin, nout, nops;
  TflTensor *tensor;
  const int32_t *in, *out;
  const TflOperator *op;
  bool open; /* being converted: a subgraph that calls itself never ends */
} TflGraph;

typedef struct TflSignature { /* names that a caller uses for inputs and outputs of a subgraph */
  int graph;
  int nin, nout;
  const char **in_name, **out_name;
  const int32_t *in, *out;
} TflSignature;

typedef struct TflModel {
  int ngraphs, nbuffers, nsignatures;
  TflGraph *graph;
  const Bytes *buffer;
  const TflSignature *signature;
} TflModel;

TflModel *tfl_read_model(Import *);
const char *tfl_builtin_name(int code); /* NULL: not known */
const char *tfl_type_name(int64_t type);
/* The tensor's buffer as a constant; NULL when it has none. */
const Node *tfl_constant(Import *, TflTensor *);
const Node *tfl_sparse_constant(Import *, const TflTensor *, Bytes values); /* tflite_sparse.c */

/* ---- tflite_import.c: nodes ------------------------------------------------------------------------ */

/* What one run leaves to the next: a parameter of @main and the result that is its next value. */
typedef struct TflState {
  const char *name;
  const Node *in, *out;
} TflState;

/* A resource variable, whose value changes as operators assign it. */
typedef struct TflVariable {
  const char *name;
  const Node *value; /* NULL: not assigned yet */
  const Node *begin; /* what it has when a run begins; NULL: nobody has asked */
  int state;         /* 1 + its state; 0: it has none */
} TflVariable;

typedef struct TflImport {
  TflModel *model;
  int depth, nfunctions;
  Vec(TflVariable) variables;
  Vec(TflState) states;
  const Node *begun; /* has there been a run before?  NULL: nobody has asked */
} TflImport;
static inline TflImport *tfl_of(const Import *im) { return im->own; }

typedef struct TflNode {
  TflGraph *graph;
  const TflOperator *op;
} TflNode;
static inline const TflOperator *tfl_op(const Conversion *c) { return ((const TflNode *)c->foreign)->op; }

TflTensor *tfl_in(Conversion *, int i);  /* the tensor of input i; raises if it is left out */
TflTensor *tfl_opt(Conversion *, int i); /* NULL if it is */
TflTensor *tfl_out(Conversion *, int i);
TflTensor *tfl_inter(Conversion *, int i); /* of an intermediate result */
/* The variable tensor that is input i has another value from now on. */
void tfl_assign(Conversion *, int i, const Node *value);
/* A subgraph by its number, for control flow; raises when there is none or when it is being converted. */
TflGraph *tfl_subgraph(Conversion *, int64_t index, const char *what);
/* Converts a subgraph over these inputs; its outputs come out in out. */
void tfl_import_graph(Import *, TflGraph *, const Node *const *in, const Node **out);

/* A state of that type; its value when a run begins: what the last run left, in the first run `first` (NULL: zeros). */
const Node *tfl_state(Import *, const char *name, const Node *first, const Type *, int *index);

/* Options: the fields of the operator's table. */
int64_t tfl_int(Conversion *, int slot, int64_t def); /* 32 bits */
int64_t tfl_byte(Conversion *, int slot, int64_t def);
bool tfl_bool(Conversion *, int slot);
double tfl_float(Conversion *, int slot, double def);

/* ---- tflite_ops.c: the table ------------------------------------------------------------------------ */

typedef struct TflRow {
  const char *name;
  int options;    /* number of its table among TFLite's BuiltinOptions; 0: it has none */
  int version;    /* the newest that is known */
  bool quantized; /* handles quantized tensors itself; otherwise they are refused */
  const Node *(*convert)(Conversion *);
} TflRow;
const TflRow *tfl_find(const char *name);

/* ---- tflite_quant.c: TFLite's integer arithmetic ---------------------------------------------------------- */

bool tfl_is_quantized(const TflTensor *); /* integers that stand for real numbers */
/* Scale and zero point of a tensor, checked: finite, above zero, in range, as many as the axis has elements. */
const TflQuant *tfl_quant(Conversion *, const TflTensor *);
const TflQuant *tfl_quant_one(Conversion *, const TflTensor *); /* one for the whole tensor */
double tfl_scale(Conversion *, const TflTensor *);              /* of the whole tensor */
int64_t tfl_zero(Conversion *, const TflTensor *);

/* One number, or n of them along an axis of that many dimensions. */
const Node *tfl_along(Conversion *, DType, int n, const void *, int axis, int rank);
/* A real factor as multiplier * 2^(shift - 31), as TFLite rounds it. */
void tfl_multiplier(double factor, int32_t *multiplier, int *shift);
/* int32 sums times real factors, one or one for each element of the axis, rounded as TFLite does it. */
const Node *tfl_rescale(Conversion *, const Node *x, int n, const double *factor, int axis);
const Node *tfl_rescale_once(Conversion *, const Node *x, int n, const double *factor, int axis); /* halves up */
const Node *tfl_rescale_by(Conversion *, const Node *x, int32_t multiplier, int shift);
const Node *tfl_rescale1(Conversion *, const Node *x, double factor);
/* The same on numbers, for tables. */
int32_t tfl_rescale_value(int32_t x, int32_t multiplier, int shift);
int32_t tfl_high_product(int32_t a, int32_t b);     /* round(a * b / 2^31), saturated */
int32_t tfl_shifted_down(int32_t x, int exponent);  /* round(x / 2^exponent), halves away from zero */
int32_t tfl_word_product(int32_t a, int32_t b);     /* round(a * b / 2^15) of 16 bits, saturated */
int32_t tfl_word_limited(int32_t x);                /* to 16 bits */
bool tfl_power_of_two(double scale, int *exponent); /* is it one?  TFLite allows for the last bits */

/* Activations of the options: as limits of the stored integers, or over real numbers. */
enum { TFL_NONE, TFL_RELU, TFL_RELU_N1_TO_1, TFL_RELU6, TFL_TANH, TFL_SIGN_BIT };
void tfl_limits(Conversion *, const TflTensor *out, int64_t activation, double *lo, double *hi);
const Node *tfl_activation(Conversion *, const Node *, int64_t activation);
/* int32 values around zero to the stored form of an output: limited, zero point added, narrowed. */
const Node *tfl_store(Conversion *, const Node *x, const TflTensor *out, int64_t activation);
/* Stored integers as int32 with the zero point taken off; real numbers and back, as DEQUANTIZE and QUANTIZE do it. */
const Node *tfl_centred(Conversion *, const Node *x, const TflTensor *);
const Node *tfl_real(Conversion *, const Node *x, const TflTensor *);
const Node *tfl_stored(Conversion *, const Node *x, const TflTensor *out);
/* One stored form to another, as QUANTIZE of integers does it; itself where both are the same. */
const Node *tfl_restored(Conversion *, const Node *x, const TflTensor *in, const TflTensor *out);
const Node *tfl_rounded(Conversion *, const Node *); /* to integers, halves away from zero */
/* Integers as a constant; its elements at these places, which must be inside. */
const Node *tfl_table(Conversion *, DType, int n, const int32_t *);
const Node *tfl_look_up(Conversion *, const Node *table, const Node *at);
/* A function of 8 or 16 bits by a table of all results, that of the lowest value first. */
const Node *tfl_by_table(Conversion *, const Node *x, const int32_t *result, DType out);
/* The table of a real function: what QUANTIZE gives of it in float32; of 16 bits between steps. */
const Node *tfl_by_function(Conversion *, const Node *x, float (*f)(float, float), float env);

#endif
