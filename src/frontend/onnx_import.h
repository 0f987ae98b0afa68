/* onnx_import.h: what the converters of ONNX operators have beside kit.h.
 *
 * A row of a table says for which operator a converter is, and from which opset on it holds
 * (Conversion.version is the opset).
 *
 * Abbreviations: c the conversion of one node, p what the protobuf said. */
#ifndef LATHE_ONNX_IMPORT_H
#define LATHE_ONNX_IMPORT_H

#include "frontend/kit.h"
#include "frontend/onnx_proto.h"

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

/* ONNX's own part of an import. */
typedef struct OnnxImport {
  const PModel *model;
  Map bottoms;    /* states of loops that begin as empty sequences */
  Map blocked;    /* weights made floats by scales for blocks of their rows -> OnnxBlocked */
  int depth;      /* of functions and bodies being converted */
  int nfunctions; /* made so far, for their names */
  int nsplits;    /* Ifs that the rest of their graph was put into */
  int nrandom;    /* random operators so far: each its own stream */
} OnnxImport;
static inline OnnxImport *onnx_of(const Import *im) { return im->own; }
static inline const PNode *onnx_node(const Conversion *c) { return c->foreign; }

/* Of a frame that is the body of a model-local function: the function, the node that called it, and where that
 * stands. */
typedef struct OnnxFunctionCall {
  const PFunction *function;
  const PNode *node;
  Frame *frame;
} OnnxFunctionCall;
/* The innermost one around a frame; NULL: none. */
const OnnxFunctionCall *onnx_function_around(const Frame *);

/* ---- onnx_tensor.c: tensors and their dtypes ------------------------------------------- */

/* Raises ERR_UNSUPPORTED / ERR_TYPE with a sentence for what has no dtype of ours. */
DType onnx_dtype(Ctx *, int64_t data_type, const char *what);
/* The tensor as a constant: borrows where it can, unpacks where it must. */
const Node *onnx_tensor(Import *, const PTensor *, const char *name);
const Node *onnx_sparse(Import *, const PSparse *, const char *name);

/* ---- onnx_import.c ------------------------------------------------------------------------ */

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

/* ---- onnx_attrs.c: attributes -------------------------------------------------------------- */

const PAttr *onnx_attr(Conversion *, const char *name); /* NULL if absent; references resolved */
int64_t onnx_attr_int(Conversion *, const char *name, int64_t def);
double onnx_attr_float(Conversion *, const char *name, double def);
const char *onnx_attr_str(Conversion *, const char *name, const char *def);
const int64_t *onnx_attr_ints(Conversion *, const char *name, int *n); /* NULL if absent */
const float *onnx_attr_floats(Conversion *, const char *name, int *n);
DType onnx_attr_dtype(Conversion *, const char *name, DType def);
const Node *onnx_attr_strings(Conversion *, const char *name); /* a vector of strings; NULL if absent */
const Node *onnx_quantized_projection(Conversion *);           /* onnx_ops_quant.c: of QAttention */
/* a times b where b is a constant that DequantizeLinear gave by blocks of its rows: the weight stays as it is stored;
 * NULL: it is no such. */
const Node *onnx_blocked_product(Conversion *, const Node *a, const Node *b);
/* x in floats, by the scale and the zero point at these inputs. */
const Node *onnx_dequantized(Conversion *, const Node *x, int scale, int zero);
/* An activation by ONNX's name, as recurrent cells and fused operators say it. */
const Node *onnx_activation(Conversion *, const char *name, const Node *, double alpha, double beta);

#endif
