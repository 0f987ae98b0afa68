/* test_onnx.h: what the tests of the ONNX reader and importer share: a writer of
 * protobuf's wire format, models put together from nodes, runs through the interpreter. */
#ifndef LATHE_TEST_ONNX_H
#define LATHE_TEST_ONNX_H

#include "te/test_te.h"

#include "frontend/frontend.h"
#include "frontend/onnx_proto.h"

/* ---- wire format ------------------------------------------------------------------------------ */

static inline void pb_varint(Text *t, uint64_t v)
{
  for (; v > 127; v >>= 7) text_char(t, (char)(v | 128));
  text_char(t, (char)v);
}
static inline void pb_int(Text *t, int field, int64_t v)
{
  pb_varint(t, (uint64_t)field << 3);
  pb_varint(t, (uint64_t)v);
}
static inline void pb_bytes(Text *t, int field, const void *p, size_t n)
{
  pb_varint(t, (uint64_t)field << 3 | 2);
  pb_varint(t, n);
  text_addn(t, p, n);
}
static inline void pb_str(Text *t, int field, const char *s) { pb_bytes(t, field, s, strlen(s)); }
static inline void pb_float(Text *t, int field, float f)
{
  pb_varint(t, (uint64_t)field << 3 | 5);
  text_addn(t, (const char *)&f, 4);
}
static inline void pb_msg(Text *t, int field, Text *inner) { pb_bytes(t, field, text_str(inner), inner->n); }

/* ---- messages ------------------------------------------------------------------------------------ */

enum {
  ONNX_FLOAT = 1,
  ONNX_UINT8 = 2,
  ONNX_INT8 = 3,
  ONNX_INT32 = 6,
  ONNX_INT64 = 7,
  ONNX_STRING = 8,
  ONNX_BOOL = 9,
  ONNX_FLOAT16 = 10,
  ONNX_INT4 = 22
};

typedef struct Graph {
  World *w;
  Text body; /* of a GraphProto */
} Graph;

static inline Text fresh(World *w) { return text_new(w->m->arena); }
static inline Graph graph_new(World *w) { return (Graph){w, fresh(w)}; }

/* A tensor with raw data. */
static inline Text tensor_raw(World *w, const char *name, int type, int ndim, const int64_t *dim, const void *data,
                              size_t bytes)
{
  Text t = fresh(w);
  for (int i = 0; i < ndim; i++) pb_int(&t, 1, dim[i]);
  pb_int(&t, 2, type);
  pb_str(&t, 8, name);
  pb_bytes(&t, 9, data, bytes);
  return t;
}
static inline void g_init(Graph *g, Text tensor) { pb_msg(&g->body, 5, &tensor); }
static inline void g_floats(Graph *g, const char *name, int ndim, const int64_t *dim, const float *v)
{
  size_t n = 1;
  for (int i = 0; i < ndim; i++) n *= (size_t)dim[i];
  g_init(g, tensor_raw(g->w, name, ONNX_FLOAT, ndim, dim, v, n * 4));
}
static inline void g_ints(Graph *g, const char *name, int n, const int64_t *v)
{
  g_init(g, tensor_raw(g->w, name, ONNX_INT64, n < 0 ? 0 : 1, (int64_t[]){n}, v, (size_t)(n < 0 ? 1 : n) * 8));
}

/* dims: "2,n,?": literals, names, unnamed ones; NULL: no shape. */
static inline Text value_info(World *w, const char *name, int type, const char *dims)
{
  Text shape = fresh(w);
  Text tensor = fresh(w);
  Text ty = fresh(w);
  Text v = fresh(w);
  char *copy = arena_strdup(w->m->arena, dims ? dims : "");
  char *save = NULL;
  for (char *d = strtok_r(copy, ",", &save); d; d = strtok_r(NULL, ",", &save)) {
    Text dim = fresh(w);
    if (*d == '-' || (*d >= '0' && *d <= '9')) pb_int(&dim, 1, atoll(d));
    else if (*d != '?') pb_str(&dim, 2, d);
    pb_msg(&shape, 1, &dim);
  }
  pb_int(&tensor, 1, type);
  if (dims) pb_msg(&tensor, 2, &shape);
  pb_msg(&ty, 1, &tensor);
  pb_str(&v, 1, name);
  pb_msg(&v, 2, &ty);
  return v;
}
static inline void g_input(Graph *g, const char *name, int type, const char *dims)
{
  Text v = value_info(g->w, name, type, dims);
  pb_msg(&g->body, 11, &v);
}
static inline void g_output(Graph *g, const char *name)
{
  Text v = value_info(g->w, name, ONNX_FLOAT, NULL);
  pb_msg(&g->body, 12, &v);
}

/* Names by commas; an empty piece is an input left out. */
static inline void add_names(World *w, Text *node, int field, const char *names)
{
  const char *s = names;
  while (s && *s) {
    const char *end = strchr(s, ',');
    pb_str(node, field, arena_strndup(w->m->arena, s, end ? (size_t)(end - s) : strlen(s)));
    s = end ? end + 1 : NULL;
  }
}
static inline Text node_of(World *w, const char *op, const char *inputs, const char *outputs)
{
  Text n = fresh(w);
  add_names(w, &n, 1, inputs);
  add_names(w, &n, 2, outputs);
  pb_str(&n, 4, op);
  return n;
}
static inline void attr_i(World *w, Text *node, const char *name, int64_t v)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  pb_int(&a, 3, v);
  pb_int(&a, 20, PATTR_INT);
  pb_msg(node, 5, &a);
}
static inline void attr_is(World *w, Text *node, const char *name, int n, const int64_t *v)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  for (int i = 0; i < n; i++) pb_int(&a, 8, v[i]);
  pb_int(&a, 20, PATTR_INTS);
  pb_msg(node, 5, &a);
}
static inline void attr_f(World *w, Text *node, const char *name, float v)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  pb_float(&a, 2, v);
  pb_int(&a, 20, PATTR_FLOAT);
  pb_msg(node, 5, &a);
}
static inline void attr_g(World *w, Text *node, const char *name, Graph *g)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  pb_msg(&a, 6, &g->body);
  pb_int(&a, 20, PATTR_GRAPH);
  pb_msg(node, 5, &a);
}
static inline void g_add(Graph *g, Text node) { pb_msg(&g->body, 1, &node); }
static inline void g_node(Graph *g, const char *op, const char *inputs, const char *outputs)
{
  g_add(g, node_of(g->w, op, inputs, outputs));
}

static inline Text opset_of(World *w, const char *domain, int version)
{
  Text o = fresh(w);
  pb_str(&o, 1, domain);
  pb_int(&o, 2, version);
  return o;
}
static inline Text model_of(Graph *g, int opset)
{
  Text m = fresh(g->w);
  Text o = opset_of(g->w, "", opset);
  pb_int(&m, 1, 8);
  pb_msg(&m, 8, &o);
  pb_msg(&m, 7, &g->body);
  return m;
}

/* ---- running ------------------------------------------------------------------------------------------ */

static inline const Node *import_text(World *w, Text *model, const ImportOptions *opt, ImportReport *report)
{
  onnx_import(w->m, text_str(model), model->n, NULL, opt, report);
  return graph_main(w->m);
}
static inline const Node *import_graph_of(Graph *g, int opset)
{
  Text m = model_of(g, opset);
  return import_text(g->w, &m, NULL, NULL);
}

static inline const RtValue *value_tensor(World *w, DType t, int ndim, const int64_t *shape, const void *data)
{
  RtValue *v = arena_new_of(w->m->arena, RtValue);
  v->kind = RV_TENSOR;
  v->tensor = *node_const_copy(w->m, t, ndim, shape, data)->u.data;
  return v;
}
static inline const RtValue *run_main(World *w, int n, const RtValue *const *arg)
{
  return graph_eval(w->m, w->m->arena, graph_main(w->m), n, arg);
}

static inline void expect_floats(const RtValue *v, int ndim, const int64_t *shape, const float *want)
{
  assert_int_equal(v->kind, RV_TENSOR);
  assert_true(dtype_eq(v->tensor.dtype, DT_F32));
  assert_int_equal(v->tensor.ndim, ndim);
  size_t n = 1;
  for (int i = 0; i < ndim; i++) {
    assert_int_equal(v->tensor.shape[i], shape[i]);
    n *= (size_t)shape[i];
  }
  for (size_t i = 0; i < n; i++) {
    float got = ((const float *)v->tensor.data)[i];
    float off = got - want[i];
    if (off > 1e-5f || off < -1e-5f) fprintf(stderr, "element %zu is %g, wanted %g\n", i, (double)got, (double)want[i]);
    assert_true(off <= 1e-5f && off >= -1e-5f);
  }
}

#endif
