/* net.h: inside quant: an ONNX model as the quantizer sees it.
 *
 * The protobuf's own messages, copied where they change, with what is worked out about them beside: the values of
 * constants, who makes and uses each tensor, the part each node plays.  A model to run is written from it (with other
 * outputs, or with quantization put in) and imported like any other file. */
#ifndef LATHE_QUANT_NET_H
#define LATHE_QUANT_NET_H

#include "frontend/onnx_import.h"
#include "quant/flow.h"

typedef struct Layer {
  int node;
  Wire *in, *out, *end; /* end: behind Relu and the like */
  const float *w, *b;   /* b NULL: none */
  QuantShape shape;     /* of w, seen from its output channels */
  int axis;             /* of the output channels in w */
  bool takes_bias;      /* the node has an input for one */
  double *shift;        /* what is added to the bias to make up for the mean error; NULL: nothing */
  double *mean;         /* of the error, by channel, when it alone is quantized */
  const char *kept;     /* why it stays in float; NULL: it does not */
  QuantError alone, inside;
  float w_least, w_most;
} Layer;

typedef struct Net {
  Ctx *ctx;
  Arena *arena;
  const char *path;
  size_t file_bytes;
  PModel model;
  PGraph graph;  /* model.graph points to it */
  StrMap values; /* name -> const ConstData *, of what is constant */
  StrMap ranks;  /* name -> rank + 1, of some tensors */
  StrMap names;  /* all that are taken */
  StrMap made;   /* prefix and suffix -> the name that was made of them */
  StrMap wires;  /* name -> Wire * */
  Flow flow;     /* a step for each node of the graph */
  Vec(Layer) layer;
  QuantRunner floats; /* the float model, with outputs for all that is looked at */
  StrMap looked_at;   /* results of layers, whether they are quantized there or behind a Relu */
  StrMap output;      /* name -> number of its output + 1 */
} Net;

/* A list of its own with the same elements. */
#define COPY_LIST(arena, list) \
  ((list).v = arena_copy(arena, (list).v, (size_t)(list).n * sizeof *(list).v), (list).cap = (list).n)

/* net.c */
/* As it is. */
Net *quant_net_read(Arena *, const char *path);
/* To be quantized: whole in itself, in the form of opset 13; raises for a model that is quantized. */
Net *quant_net_load(Arena *, const char *path);
Net *quant_net_copy(Net *);
/* An attribute; NULL: absent. */
const PAttr *quant_net_attr(const PNode *, const char *name);
int64_t quant_net_int(const PNode *, const char *name, int64_t def);
/* A name that begins like this and is not taken. */
const char *quant_net_name(Net *, const char *prefix, const char *suffix);
/* The same, and always the same for the same two parts. */
const char *quant_net_made(Net *, const char *prefix, const char *suffix);
/* A node, put behind the others. */
PNode *quant_net_push(Net *, PGraph *, const char *op, int n, const char *const *input, const char *output);
void quant_net_push_int(Net *, PNode *, const char *name, int64_t);
/* An initializer: element type as ONNX numbers them. */
enum { ONNX_F32 = 1, ONNX_I8 = 3, ONNX_I32 = 6, ONNX_I64 = 7 };
const char *quant_net_const(Net *, PGraph *, const char *name, int type, int ndim, const int64_t *shape,
                            const void *data, size_t bytes);
/* Constant floats by name; NULL: not constant, or no floats. */
const ConstData *quant_net_floats(const Net *, const char *name);
/* With copies of its lists and the nodes, to be changed. */
PGraph quant_net_graph(Net *);
/* The model with this graph. */
Bytes quant_net_bytes(Net *, const PGraph *);
/* That graph, with these outputs alone, compiled for samples of these shapes; until the scope ends. */
QuantRunner quant_net_runner(Net *, const PGraph *, int n, const char *const *output, const QuantSamples *);
/* The inputs, and the arrays cut for them. */
QuantSamples quant_net_samples(Net *, int narrays, const QuantArray *);
/* Takes nodes away that nobody uses, and initializers, with the inputs of their names. */
void quant_net_sweep(Net *, PGraph *);

/* onnx_opset.c: brings the model into the form of opset 13, which scales by channel need; raises naming the node that
 * it cannot bring there. */
enum { QUANT_OPSET = 13 };
void quant_net_raise_opset(Net *);

/* onnx_plan.c */
void quant_net_fold(Net *);     /* batch normalisations and added constants into the weights before them */
void quant_net_plan(Net *);     /* fills wires, steps, layers */
void quant_net_mark(Net *);     /* says which wires are quantized, given which layers stay in float */
bool quant_net_equalise(Net *); /* ranges of channels between layers made alike; false: there is no place for it */

/* onnx_qdq.c: the model with quantization put in; alone: every layer quantized for itself, over floats that are inputs
 * of these names, with results called alone[i] (NULL: it stays in float). */
PGraph quant_net_quantized(Net *);
PGraph quant_net_alone(Net *, const char **alone, const char **input, int *ninputs);
const char *quant_net_stored(Net *, const Wire *); /* the name of a wanted wire's value behind its integers */

#endif
