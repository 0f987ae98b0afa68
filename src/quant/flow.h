/* flow.h: inside quant: which values of a graph become integers, whatever the graph is written in.
 *
 * A graph is a list of steps, each after what it takes, that hand values on over wires.  onnx_plan.c makes one of an
 * ONNX file's nodes, graph.c of a module's calls. */
#ifndef LATHE_QUANT_FLOW_H
#define LATHE_QUANT_FLOW_H

#include "quant/quant.h"

/* The part of a step. */
typedef enum {
  ROLE_FLOAT,   /* computed in float */
  ROLE_LAYER,   /* a product with constant weights */
  ROLE_ELEMENT, /* has an integer form, with scales of its own before and behind: sums, pools, functions */
  ROLE_MOVE,    /* takes elements to other places: the scale behind it is the one before it */
} Role;

typedef struct Wire {
  const char *name;  /* for messages */
  const void *thing; /* whose value it is, where that is not said by the name */
  int maker;         /* number of its step; -1: an input or a constant */
  int uses;          /* by steps, by bodies inside of them and as an output */
  int user;          /* number of one step that takes it; -1: none */
  bool is_output, is_input, is_constant;
  bool integral; /* could be in integers: what it comes from is */
  bool wanted;   /* is quantized here */
  bool by_layer; /* the result of a layer in integers: its floats are not to be had */
  QuantSeen seen;
  double lo, hi; /* the range that is stood for */
  QuantParams params;
} Wire;

typedef struct Step {
  Role role;
  bool kept; /* of ROLE_LAYER: stays in float */
  int n;
  Wire **in;    /* of ROLE_LAYER the data alone, of ROLE_MOVE what is moved alone */
  Wire *out;    /* NULL: none that counts */
  Wire *end;    /* of ROLE_LAYER and ROLE_ELEMENT: the result behind Relu and the like */
  bool integer; /* is computed in integers, as marked */
} Step;

typedef struct Flow {
  Vec(Wire *) wire;
  Vec(Step) step;
} Flow;

/* flow.c: marks the wires that are quantized and the steps in integers, given which layers are kept in float. */
void quant_flow_mark(Flow *);
Wire *quant_flow_root(const Flow *, Wire *); /* before the steps that only move elements */

/* What the work of one model has at hand. */
typedef struct Work {
  Ctx *ctx;
  const QuantOptions *o;
  QuantSamples samples;
  int64_t calibration; /* runs that scales are found with */
} Work;
Work quant_work(Ctx *, const QuantOptions *, QuantSamples);
void quant_tell(Work *, const char *stage, int64_t done, int64_t total);
/* Run i of the ones that are calibrated with: spread evenly over all. */
int64_t quant_calibration_run(const Work *, int64_t i);
/* The wires whose range is to be found: quantized, and no copies of another.  Their number. */
int quant_flow_roots(Arena *, const Flow *, Wire ***out);
/* Their ranges: wire i is output[i] of the float model. */
void quant_calibrate(Work *, Arena *, QuantRunner *floats, int n, Wire *const *wire, const int *output, int levels);

#endif
