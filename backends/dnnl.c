/* dnnl.c: convolutions and products through oneDNN (version 2).
 *
 * Kernels: nn.conv2d in NCHW, nn.dense, nn.matmul, nn.batch_matmul, all of float32, with a bias, a sum and a relu
 * behind them as the composite's name says (python/lathe/relay/op/contrib/dnnl.py).  Layouts are oneDNN's own choice:
 * what lies between kernels of a region stays in them, constant weights are brought into them on the first call and
 * kept. */
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* Where a tensor lies while a call runs: as an argument has it, or in a layout and place of the workspace. */
typedef struct Layout {
  dnnl_memory_desc_t md;
  bool own;
  size_t offset;
} Layout;
typedef struct Work {
  dnnl_primitive_desc_t pd;
  dnnl_primitive_t primitive;
  dnnl_memory_desc_t src, weights, bias, dst, scratch;
  dnnl_memory_desc_t given; /* the weights as they come */
  bool has_bias, sum;
  size_t src_offset, weights_offset, scratch_offset; /* in the workspace, where the operand must be reordered */
  bool turn_src, turn_weights;
  void *kept; /* constant weights in the layout wanted, once made */
} Work;
typedef struct State {
  dnnl_engine_t engine;
  Layout *layout; /* of each tensor */
  pthread_mutex_t lock;
} State;

static LatheRtCode failed(LatheRtError *err, const Kernel *k, const char *what, dnnl_status_t status)
{
  LatheRtCode code = status == dnnl_out_of_memory   ? LATHE_RT_MEMORY
                     : status == dnnl_unimplemented ? LATHE_RT_UNSUPPORTED
                                                    : LATHE_RT_KERNEL;
  return plugin_fail(err, code, "oneDNN cannot %s '%.80s': status %d", what, k ? k->name : "", (int)status);
}

#define TRY(call)                                                           \
  do {                                                                      \
    dnnl_status_t status_ = (call);                                         \
    if (status_ != dnnl_success) return failed(err, k, "compute", status_); \
  } while (0)

/* ---- descriptions -------------------------------------------------------------------------- */

/* Row major; of more dimensions than oneDNN has, nothing. */
static dnnl_status_t plain(dnnl_memory_desc_t *md, int n, const int64_t *dims)
{
  dnnl_dims_t own = {0};
  dnnl_dims_t strides = {0};
  int64_t step = 1;
  if (n > DNNL_MAX_NDIMS) return dnnl_unimplemented;
  for (int d = n - 1; d >= 0; d--) {
    own[d] = dims[d];
    strides[d] = step;
    step *= dims[d] ? dims[d] : 1;
  }
  return dnnl_memory_desc_init_by_strides(md, n, own, dnnl_f32, strides);
}

static dnnl_status_t any(dnnl_memory_desc_t *md, int n, const int64_t *dims)
{
  dnnl_dims_t own = {0};
  if (n > DNNL_MAX_NDIMS) return dnnl_unimplemented;
  memcpy(own, dims, (size_t)n * sizeof *own);
  return dnnl_memory_desc_init_by_tag(md, n, own, dnnl_f32, dnnl_format_tag_any);
}

static size_t reserve(Graph *g, const dnnl_memory_desc_t *md)
{
  size_t at = (g->workspace + 63) / 64 * 64;
  g->workspace = at + dnnl_memory_desc_get_size(md);
  return at;
}

static dnnl_status_t attributes(const Kernel *k, const Work *w, dnnl_primitive_attr_t *attr)
{
  dnnl_post_ops_t ops = NULL;
  dnnl_status_t s = dnnl_primitive_attr_create(attr);
  if (s == dnnl_success) s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
  if (s == dnnl_success) s = dnnl_post_ops_create(&ops);
  if (s == dnnl_success && w->sum) s = dnnl_post_ops_append_sum(ops, 1);
  if (s == dnnl_success && kernel_has(k, "nn.relu")) s = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
  if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, ops);
  if (ops) dnnl_post_ops_destroy(ops);
  return s;
}

static dnnl_status_t describe_conv(const Graph *g, const Kernel *k, Work *w, const dnnl_memory_desc_t *dst, void *out)
{
  Conv c;
  if (!kernel_conv(g, k, &c)) return dnnl_unimplemented;
  bool grouped = c.groups > 1;
  dnnl_dims_t src = {c.n, c.c, c.h, c.w};
  dnnl_dims_t weights = {c.groups, c.oc / c.groups, c.c / c.groups, c.kh, c.kw};
  dnnl_dims_t whole = {c.oc, c.c, c.kh, c.kw};
  dnnl_dims_t channels = {c.oc};
  dnnl_dims_t stride = {c.stride[0], c.stride[1]};
  dnnl_dims_t dilation = {c.dilation[0] - 1, c.dilation[1] - 1};
  dnnl_dims_t before = {c.pad[0], c.pad[1]};
  dnnl_dims_t behind = {c.pad[2], c.pad[3]};
  dnnl_memory_desc_t s, f;
  dnnl_status_t status = any(&s, 4, src);
  if (status == dnnl_success) status = grouped ? any(&f, 5, weights) : any(&f, 4, whole);
  if (status == dnnl_success) status = grouped ? plain(&w->given, 5, weights) : plain(&w->given, 4, whole);
  if (status == dnnl_success) status = plain(&w->bias, 1, channels);
  if (status != dnnl_success) return status;
  return dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_inference, dnnl_convolution_auto, &s, &f,
                                                    w->has_bias ? &w->bias : NULL, dst, stride, dilation, before,
                                                    behind);
}

/* A matrix, or a stack of them, whose rows and columns may be exchanged. */
static dnnl_status_t matrix(dnnl_memory_desc_t *md, int n, int64_t batch, int64_t rows, int64_t columns, bool turned)
{
  dnnl_dims_t dims = {batch, rows, columns};
  dnnl_dims_t strides = {rows * columns, turned ? 1 : columns, turned ? rows : 1};
  dnnl_dims_t flat = {rows, columns};
  dnnl_dims_t steps = {strides[1], strides[2]};
  return dnnl_memory_desc_init_by_strides(md, n, n == 3 ? dims : flat, dnnl_f32, n == 3 ? strides : steps);
}

static dnnl_status_t describe_product(const Graph *g, const Kernel *k, Work *w, void *out)
{
  const Tensor *a = &g->tensor[k->in[0]];
  const Tensor *b = &g->tensor[k->in[1]];
  const Tensor *y = &g->tensor[k->out[0]];
  bool dense = kernel_has(k, "nn.dense");
  bool batched = kernel_has(k, "nn.batch_matmul");
  const char *op = dense ? "nn.dense" : batched ? "nn.batch_matmul" : "nn.matmul";
  int n = batched ? 3 : 2;
  bool ta = !dense && kernel_number(k, op, "transpose_a", 0, 0) != 0;
  bool tb = dense || kernel_number(k, op, "transpose_b", 0, batched) != 0;
  if (b->ndim != n || y->ndim < 1 || (batched && a->ndim != 3) || (ta && a->ndim != n)) return dnnl_unimplemented;
  int64_t columns = y->shape[y->ndim - 1];
  int64_t depth = b->shape[n - (tb ? 1 : 2)];
  int64_t batch = batched ? y->shape[0] : 1;
  if (columns < 1 || depth < 1 || batch < 1) return dnnl_unimplemented;
  int64_t rows = tensor_elements(y) / columns / batch;
  dnnl_dims_t bias = {1, n == 3 ? 1 : columns, n == 3 ? columns : 0};
  dnnl_status_t s = matrix(&w->src, n, batched ? a->shape[0] : 1, rows, depth, ta);
  if (s == dnnl_success) s = matrix(&w->given, n, batched ? b->shape[0] : 1, depth, columns, tb);
  if (s == dnnl_success) s = matrix(&w->dst, n, batch, rows, columns, false);
  if (s == dnnl_success) s = plain(&w->bias, n, bias);
  dnnl_memory_desc_t f = w->given;
  if (s == dnnl_success && b->constant) s = any(&f, w->given.ndims, w->given.dims);
  if (s != dnnl_success) return s;
  return dnnl_matmul_desc_init(out, &w->src, &f, w->has_bias ? &w->bias : NULL, &w->dst);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static LatheRtCode prepare_kernel(Graph *g, Kernel *k, LatheRtError *err)
{
  State *state = g->state;
  Work *w = k->state = calloc(1, sizeof *w);
  if (!w) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a kernel");
  Layout *in = &state->layout[k->in[0]];
  Layout *out = &state->layout[k->out[0]];
  bool conv = kernel_has(k, "nn.conv2d");
  int sums = strstr(k->name, "_sum") ? 1 : 0;
  w->sum = sums;
  w->has_bias = k->nin - sums > 2;
  const Tensor *y = &g->tensor[k->out[0]];
  dnnl_memory_desc_t dst = out->md;
  if (conv && y->arg < 0) TRY(any(&dst, y->ndim, y->shape));
  union {
    dnnl_convolution_desc_t conv;
    dnnl_matmul_desc_t matmul;
  } desc;
  TRY(conv ? describe_conv(g, k, w, &dst, &desc) : describe_product(g, k, w, &desc));
  if (w->has_bias && tensor_elements(&g->tensor[k->in[2]]) != w->bias.dims[w->bias.ndims - 1])
    return plugin_fail(err, LATHE_RT_ARGUMENT, "the bias of '%.80s' has another size than its channels", k->name);
  dnnl_primitive_attr_t attr = NULL;
  dnnl_status_t status = attributes(k, w, &attr);
  if (status == dnnl_success) status = dnnl_primitive_desc_create(&w->pd, &desc, attr, state->engine, NULL);
  if (attr) dnnl_primitive_attr_destroy(attr);
  TRY(status);
  TRY(dnnl_primitive_create(&w->primitive, w->pd));
  w->src = *dnnl_primitive_desc_query_md(w->pd, dnnl_query_src_md, 0);
  w->weights = *dnnl_primitive_desc_query_md(w->pd, dnnl_query_weights_md, 0);
  w->dst = *dnnl_primitive_desc_query_md(w->pd, dnnl_query_dst_md, 0);
  w->scratch = *dnnl_primitive_desc_query_md(w->pd, dnnl_query_scratchpad_md, 0);
  if (conv) {
    w->turn_src = !dnnl_memory_desc_equal(&in->md, &w->src);
    if (y->arg < 0) *out = (Layout){.md = w->dst, .own = true, .offset = reserve(g, &w->dst)};
  } else if (in->own) { /* a product reads rows: what a convolution left in its layout is brought back */
    w->turn_src = true;
    TRY(plain(&w->src, g->tensor[k->in[0]].ndim, g->tensor[k->in[0]].shape));
  }
  w->turn_weights = !dnnl_memory_desc_equal(&w->given, &w->weights);
  if (w->turn_src) w->src_offset = reserve(g, &w->src);
  if (w->turn_weights && !g->tensor[k->in[1]].constant) w->weights_offset = reserve(g, &w->weights);
  w->scratch_offset = reserve(g, &w->scratch);
  return LATHE_RT_OK;
}

static LatheRtCode prepare(Graph *g, LatheRtError *err)
{
  const Kernel *k = NULL;
  State *state = g->state = calloc(1, sizeof *state);
  if (!state) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  pthread_mutex_init(&state->lock, NULL);
  state->layout = calloc((size_t)g->ntensor + 1, sizeof *state->layout);
  if (!state->layout) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
  TRY(dnnl_engine_create(&state->engine, dnnl_cpu, 0));
  for (int i = 0; i < g->ntensor; i++) {
    const Tensor *t = &g->tensor[i];
    if (t->dtype.code != 2 || t->dtype.bits != 32)
      return plugin_fail(err, LATHE_RT_UNSUPPORTED, "tensor '%.60s' is not of float32", t->name);
    const int64_t one = 1;
    TRY(t->ndim ? plain(&state->layout[i].md, t->ndim, t->shape) : plain(&state->layout[i].md, 1, &one));
  }
  for (int i = 0; i < g->nkernel; i++) {
    LatheRtCode code = g->kernel[i].nin < 2 ? LATHE_RT_ARGUMENT : prepare_kernel(g, &g->kernel[i], err);
    if (code != LATHE_RT_OK) return code;
  }
  return LATHE_RT_OK;
}

static void drop(Graph *g)
{
  State *state = g->state;
  for (int i = 0; i < g->nkernel; i++) {
    Work *w = g->kernel[i].state;
    if (!w) continue;
    if (w->primitive) dnnl_primitive_destroy(w->primitive);
    if (w->pd) dnnl_primitive_desc_destroy(w->pd);
    free(w->kept);
    free(w);
  }
  if (!state) return;
  if (state->engine) dnnl_engine_destroy(state->engine);
  pthread_mutex_destroy(&state->lock);
  free(state->layout);
  free(state);
}

/* ---- running ----------------------------------------------------------------------------------- */

static dnnl_status_t reorder(dnnl_stream_t stream, dnnl_engine_t engine, const dnnl_memory_desc_t *from, void *source,
                             const dnnl_memory_desc_t *to, void *target)
{
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_t primitive = NULL;
  dnnl_memory_t a = NULL;
  dnnl_memory_t b = NULL;
  dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);
  if (s == dnnl_success) s = dnnl_primitive_create(&primitive, pd);
  if (s == dnnl_success) s = dnnl_memory_create(&a, from, engine, source);
  if (s == dnnl_success) s = dnnl_memory_create(&b, to, engine, target);
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, a}, {DNNL_ARG_TO, b}};
  if (s == dnnl_success) s = dnnl_primitive_execute(primitive, stream, 2, args);
  if (s == dnnl_success) s = dnnl_stream_wait(stream);
  if (a) dnnl_memory_destroy(a);
  if (b) dnnl_memory_destroy(b);
  if (primitive) dnnl_primitive_destroy(primitive);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return s;
}

/* Constant weights in the layout that the kernel wants: made once, by whoever comes first. */
static LatheRtCode keep_weights(State *state, dnnl_stream_t stream, const Kernel *k, void *given, LatheRtError *err)
{
  Work *w = k->state;
  pthread_mutex_lock(&state->lock);
  dnnl_status_t s = dnnl_success;
  if (!w->kept) {
    size_t bytes = (dnnl_memory_desc_get_size(&w->weights) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    s = memory ? reorder(stream, state->engine, &w->given, given, &w->weights, memory) : dnnl_out_of_memory;
    if (s == dnnl_success) w->kept = memory;
    else free(memory);
  }
  pthread_mutex_unlock(&state->lock);
  return s == dnnl_success ? LATHE_RT_OK : failed(err, k, "lay out the weights of", s);
}

static void *address(const Run *r, const State *state, int tensor)
{
  const Layout *l = &state->layout[tensor];
  return l->own ? r->workspace + l->offset : r->data[tensor];
}

static LatheRtCode run_kernel(const Run *r, dnnl_stream_t stream, const Kernel *k, LatheRtError *err)
{
  State *state = r->graph->state;
  Work *w = k->state;
  dnnl_engine_t engine = state->engine;
  const Layout *in = &state->layout[k->in[0]];
  void *src = address(r, state, k->in[0]);
  void *weights = address(r, state, k->in[1]);
  void *dst = address(r, state, k->out[0]);
  if (w->turn_src) TRY(reorder(stream, engine, &in->md, src, &w->src, r->workspace + w->src_offset));
  if (w->turn_src) src = r->workspace + w->src_offset;
  if (w->turn_weights && r->graph->tensor[k->in[1]].constant) {
    LatheRtCode code = keep_weights(state, stream, k, weights, err);
    if (code != LATHE_RT_OK) return code;
    weights = w->kept;
  } else if (w->turn_weights) {
    TRY(reorder(stream, engine, &w->given, weights, &w->weights, r->workspace + w->weights_offset));
    weights = r->workspace + w->weights_offset;
  }
  if (w->sum) {
    int add = k->in[k->nin - 1];
    TRY(reorder(stream, engine, &state->layout[add].md, address(r, state, add), &w->dst, dst));
  }
  const dnnl_memory_desc_t *src_md = dnnl_primitive_desc_query_md(w->pd, dnnl_query_src_md, 0);
  const struct {
    int arg;
    const dnnl_memory_desc_t *md;
    void *data;
  } rows[] = {{DNNL_ARG_SRC, src_md, src},
              {DNNL_ARG_WEIGHTS, &w->weights, weights},
              {DNNL_ARG_DST, &w->dst, dst},
              {DNNL_ARG_SCRATCHPAD, &w->scratch, r->workspace + w->scratch_offset},
              {DNNL_ARG_BIAS, &w->bias, w->has_bias ? address(r, state, k->in[2]) : NULL}};
  enum { MOST = sizeof rows / sizeof *rows };
  dnnl_exec_arg_t args[MOST];
  int n = w->has_bias ? MOST : MOST - 1;
  int made = 0;
  dnnl_status_t s = dnnl_success;
  for (; made < n && s == dnnl_success; made++) {
    args[made] = (dnnl_exec_arg_t){rows[made].arg, NULL};
    s = dnnl_memory_create(&args[made].memory, rows[made].md, engine, rows[made].data);
  }
  if (s == dnnl_success) s = dnnl_primitive_execute(w->primitive, stream, n, args);
  if (s == dnnl_success) s = dnnl_stream_wait(stream);
  for (int i = 0; i < made; i++)
    if (args[i].memory) dnnl_memory_destroy(args[i].memory);
  return s == dnnl_success ? LATHE_RT_OK : failed(err, k, "run", s);
}

static LatheRtCode run(const Run *r, LatheRtError *err)
{
  const Kernel *k = NULL;
  State *state = r->graph->state;
  dnnl_stream_t stream;
  TRY(dnnl_stream_create(&stream, state->engine, dnnl_stream_default_flags));
  LatheRtCode code = LATHE_RT_OK;
  for (int i = 0; i < r->graph->nkernel && code == LATHE_RT_OK; i++)
    code = run_kernel(r, stream, &r->graph->kernel[i], err);
  dnnl_stream_destroy(stream);
  return code;
}

static const Backend backend = {.kind = "dnnl", .prepare = prepare, .run = run, .drop = drop};
PLUGIN_TABLE(backend, "dnnl");
