/* onnx_control.h: loops, for converters that need one (onnx_ops_control.c). */
#ifndef LATHE_ONNX_CONTROL_H
#define LATHE_ONNX_CONTROL_H

#include "frontend/onnx_import.h"

typedef struct Loop Loop;
struct Loop {
  const PGraph *graph; /* the body, where ONNX gives one */
  int nstate, nscan;
  const Node **init;        /* nstate first values */
  const Node *limit, *cond; /* number of trips (int64 scalar), go on? (bool scalar); NULL: none */
  /* One iteration, in c->frame; cond is NULL when the loop has none. */
  void (*body)(Conversion *c, Loop *, const Node *i, const Node *cond, const Node *const *state, const Node **cond_out,
               const Node **state_out, const Node **scan_out);
  void *env;
  /* after onnx_build_loop: of each state, does it go in as an optional and come out as its value? */
  bool *unwrap;
  const Type **scan_type; /* after onnx_build_loop: of what one iteration gives */
};
/* Gives (state…, sequence of what the iterations gave…). */
const Node *onnx_build_loop(Conversion *, Loop *);
/* What iterations gave for scan output k, stacked along a new axis. */
const Node *onnx_loop_stack(Conversion *, const Loop *, const Node *result, int k, int axis);
/* A sequence that has no items yet, and whose type says nothing of them. */
bool onnx_is_bottom(Conversion *, const Node *);

#endif
