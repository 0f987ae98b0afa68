/* frontend.h: from model files to the graph.
 *
 * A reader turns foreign bytes into a description that points into them (nothing is
 * copied, every length is checked against the file); a table of rows turns foreign
 * operators into calls of ours.  The result is @main in a module, with the weights as
 * constants that borrow the file's bytes. */
#ifndef LATHE_FRONTEND_H
#define LATHE_FRONTEND_H

#include "op/op.h"

/* What a size that stays symbolic is likely to be: code is chosen for the (geometric) middle and serves every size. */
typedef struct SizeRange {
  int64_t least, most; /* most 0: nobody has said */
} SizeRange;

typedef struct ShapeBinding {
  const char *input;
  int ndim;
  const int64_t *dim;     /* -1: stays symbolic */
  const SizeRange *range; /* as many; NULL: nobody has said anything */
} ShapeBinding;

typedef struct ImportOptions {
  int nshapes;
  const ShapeBinding *shape;
  const char *external_root; /* folder that external data may lie in; NULL: the model's own */
  int64_t opset;             /* 0: as the model says */
  bool keep_params;          /* weights become parameters of @main (freeze_params=False) */
} ImportOptions;

/* What an import found, before anything is compiled. */
typedef struct ImportCount {
  const char *op;
  int n;
} ImportCount;
typedef struct ImportProblem {
  const char *op, *node, *why;
} ImportProblem;
typedef struct ImportReport {
  int nops;
  ImportCount *ops; /* foreign operators used, most used first */
  int nfolded;      /* nodes that the import computed away */
  int nproblems;
  ImportProblem *problems; /* everything unsupported, all at once */
  int64_t weights_bytes;
  int nparams; /* with keep_params: names and values of the weights */
  const char **param_name;
  const Node **param;
  int noutputs; /* names of the model's outputs, in order; inputs are the parameters' names */
  const char **output_name;
} ImportReport;

/* onnx_*.c.  Fills report (in the arena of the module) even when it raises because of
 * unsupported operators: the message lists them all.  path may be NULL for a model in
 * memory; external data then needs external_root. */
void onnx_import(Module *, const void *bytes, size_t n, const char *path, const ImportOptions *, ImportReport *report);
void onnx_import_file(Module *, const char *path, const ImportOptions *, ImportReport *report);
/* Foreign operators that have a row, with the versions known: for `lathe ops --onnx`. */
int onnx_op_count(void);
const char *onnx_op_name(int);
const char *onnx_op_domain(int); /* "" for ONNX's own */
int onnx_op_since(int);          /* the first opset that the row holds for */

/* tflite_*.c: the same of TFLite's flatbuffers. */
void tflite_import(Module *, const void *bytes, size_t n, const char *path, const ImportOptions *,
                   ImportReport *report);
void tflite_import_file(Module *, const char *path, const ImportOptions *, ImportReport *report);
/* Builtin operators that have a row, with the newest version known: for `lathe ops --tflite`. */
int tflite_op_count(void);
const char *tflite_op_name(int);
int tflite_op_version(int);

#endif
