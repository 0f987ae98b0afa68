/* plugin.h: what plugins of the runtime share: the graph of a region, read from the JSON that
 * lathe.relay.backend.contrib.to_json writes, and a module around it.
 *
 * A backend is a table of four functions.  `prepare` looks at the graph once, when the model is loaded; `run` computes
 * one call.  Both answer a code and write one sentence into err, which the runtime puts the region's name before.
 * Calls come from many threads at once: each has a workspace of its own, what `prepare` made is shared. */
#ifndef LATHE_BACKENDS_PLUGIN_H
#define LATHE_BACKENDS_PLUGIN_H

#include <stdbool.h>

#include "lathe_rt.h"

/* ---- json.c: a value of JSON; lists and objects are chains of their items ------------------------- */

typedef struct Json {
  enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT } kind;
  const char *key; /* of an object's item */
  const char *text;
  double number; /* a bool is 0 or 1 */
  struct Json *first, *next;
  int count;
} Json;
/* NULL, with a sentence, for text that is none.  json_free drops all of it. */
Json *json_read(const char *text, size_t n, LatheRtError *err);
void json_free(Json *);
const Json *json_get(const Json *, const char *key); /* NULL: it has none such */
const Json *json_at(const Json *, int i);

/* ---- plugin.c: the graph of a region --------------------------------------------------------------- */

typedef struct Tensor {
  const char *name;
  LatheRtDType dtype;
  int ndim;
  int64_t shape[LATHE_RT_MAX_RANK];
  size_t bytes;
  bool constant;
  size_t offset; /* in the workspace, of what is neither argument nor constant */
  int arg;       /* argument of a call; -1: in the workspace */
} Tensor;
typedef struct Kernel {
  const char *name; /* of the composite or the operator */
  const Json *json; /* "ops", "attrs" */
  int nin, nout;
  int *in, *out; /* tensors */
  void *state;   /* the backend's */
} Kernel;
typedef struct Graph {
  const char *symbol;
  Json *json;
  int ntensor, nkernel, narg;
  Tensor *tensor;
  Kernel *kernel;
  LatheRtArgInfo *arg;
  size_t workspace; /* bytes of one call: intermediate tensors, then what the backend asked for */
  size_t own;       /* where the backend's part begins; prepare adds to workspace */
  void *state;      /* the backend's */
} Graph;
/* What a call works on: the address of each tensor, and the workspace. */
typedef struct Run {
  const Graph *graph;
  void **data;
  char *workspace;
  const LatheRtCalls *calls;
} Run;
typedef struct Backend {
  const char *kind;
  LatheRtCode (*prepare)(Graph *, LatheRtError *err);
  LatheRtCode (*run)(const Run *, LatheRtError *err);
  void (*drop)(Graph *); /* what prepare made, maybe half of it; may be NULL */
} Backend;
/* The loader: user is the Backend. */
LatheRtCode plugin_load(void *user, const char *name, const void *bytes, size_t n, LatheRtModule **out,
                        LatheRtError *err);
#define PLUGIN_TABLE(backend, name)                                                              \
  LATHE_RT_API const LatheRtPlugin lathe_plugin = {"LATHEPL", LATHE_RT_ABI, sizeof lathe_plugin, \
                                                   name,      plugin_load,  (void *)(uintptr_t)&(backend)}

/* ---- for backends ---------------------------------------------------------------------------------- */

LatheRtCode plugin_fail(LatheRtError *err, LatheRtCode, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool kernel_has(const Kernel *, const char *op);
/* An attribute of one of the operators; a list's item i; `or` where it is absent or null. */
double kernel_number(const Kernel *, const char *op, const char *attr, int i, double or);
const char *kernel_text(const Kernel *, const char *op, const char *attr, const char * or);
int64_t tensor_elements(const Tensor *);
/* What a convolution in two dimensions is made of; false where a layout or a size is none of these. */
typedef struct Conv {
  int64_t n, c, h, w, oc, oh, ow, kh, kw, groups, stride[2], pad[4] /* top, left, bottom, right */, dilation[2];
} Conv;
bool kernel_conv(const Graph *, const Kernel *, Conv *out);

#endif
