/* openblas.c: products and convolutions through OpenBLAS.
 *
 * Kernels: nn.dense, nn.matmul and nn.batch_matmul of float32, nn.conv2d of float32 in NCHW (as products over patches),
 * each with a bias and a relu behind it where the composite has them.  python/lathe/relay/op/contrib/openblas.py says
 * what comes here. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

typedef struct Work {
  bool conv, relu;
  int bias;    /* operand; -1: none */
  Conv shape;  /* of a convolution */
  bool direct; /* its patches are the input as it lies */
  int64_t batch, m, n, k;
  bool ta, tb;
  int64_t step_a, step_b; /* elements from one matrix of a batch to the next */
} Work;

static bool is_float(const Tensor *t) { return t->dtype.code == 2 && t->dtype.bits == 32; }

static bool prepare_conv(Graph *g, Kernel *k, Work *w)
{
  if (!kernel_conv(g, k, &w->shape)) return false;
  const Conv *c = &w->shape;
  w->conv = true;
  w->direct = c->kh == 1 && c->kw == 1 && c->stride[0] == 1 && c->stride[1] == 1 && !c->pad[0] && !c->pad[1] &&
              !c->pad[2] && !c->pad[3];
  size_t patches = (size_t)(c->c / c->groups * c->kh * c->kw * c->oh * c->ow) * sizeof(float);
  if (!w->direct && g->own + patches > g->workspace) g->workspace = g->own + patches;
  return true;
}

static bool prepare_product(const Graph *g, const Kernel *k, Work *w)
{
  const Tensor *a = &g->tensor[k->in[0]];
  const Tensor *b = &g->tensor[k->in[1]];
  const Tensor *y = &g->tensor[k->out[0]];
  const char *op = kernel_has(k, "nn.dense")    ? "nn.dense"
                   : kernel_has(k, "nn.matmul") ? "nn.matmul"
                                                : "nn.batch_matmul";
  bool dense = !strcmp(op, "nn.dense");
  bool batched = !strcmp(op, "nn.batch_matmul");
  if (!kernel_has(k, op) || a->ndim < 2 || b->ndim < 2 || (batched && (a->ndim != 3 || b->ndim != 3 || y->ndim != 3)))
    return false;
  w->ta = !dense && kernel_number(k, op, "transpose_a", 0, 0) != 0;
  w->tb = dense || kernel_number(k, op, "transpose_b", 0, batched) != 0;
  w->n = b->shape[b->ndim - (w->tb ? 2 : 1)];
  w->k = b->shape[b->ndim - (w->tb ? 1 : 2)];
  w->batch = batched ? y->shape[0] : 1;
  if (w->n < 1 || w->k < 1 || w->batch < 1) return false;
  w->m = tensor_elements(y) / w->n / w->batch;
  int64_t matrix_a = w->m * w->k;
  int64_t matrix_b = w->n * w->k;
  w->step_a = batched && a->shape[0] > 1 ? matrix_a : 0;
  w->step_b = batched && b->shape[0] > 1 ? matrix_b : 0;
  return tensor_elements(a) == matrix_a * (w->step_a ? w->batch : 1) &&
         tensor_elements(b) == matrix_b * (w->step_b ? w->batch : 1);
}

static LatheRtCode prepare(Graph *g, LatheRtError *err)
{
  for (int i = 0; i < g->nkernel; i++) {
    Kernel *k = &g->kernel[i];
    Work *w = k->state = calloc(1, sizeof *w);
    if (!w) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a kernel");
    bool ok = k->nin >= 2 && is_float(&g->tensor[k->out[0]]);
    for (int n = 0; n < k->nin; n++) ok = ok && is_float(&g->tensor[k->in[n]]);
    ok = ok && (kernel_has(k, "nn.conv2d") ? prepare_conv(g, k, w) : prepare_product(g, k, w));
    w->relu = kernel_has(k, "nn.relu");
    w->bias = k->nin > 2 ? 2 : -1;
    int64_t channels = w->conv ? w->shape.oc : w->n;
    if (w->bias >= 0) ok = ok && tensor_elements(&g->tensor[k->in[2]]) == channels;
    if (!ok)
      return plugin_fail(err, LATHE_RT_UNSUPPORTED, "OpenBLAS does not compute '%.80s' of these shapes", k->name);
  }
  return LATHE_RT_OK;
}

static void drop(Graph *g)
{
  for (int i = 0; i < g->nkernel; i++) free(g->kernel[i].state);
}

/* Rows (channel, ky, kx), columns the places of the output; what lies outside is 0. */
static void patches(const Conv *c, const float *x, float *to)
{
  for (int64_t ch = 0; ch < c->c / c->groups; ch++)
    for (int64_t ky = 0; ky < c->kh; ky++)
      for (int64_t kx = 0; kx < c->kw; kx++)
        for (int64_t oy = 0; oy < c->oh; oy++) {
          int64_t y = oy * c->stride[0] + ky * c->dilation[0] - c->pad[0];
          const float *row = x + (ch * c->h + y) * c->w;
          for (int64_t ox = 0; ox < c->ow; ox++) {
            int64_t at = ox * c->stride[1] + kx * c->dilation[1] - c->pad[1];
            *to++ = y >= 0 && y < c->h && at >= 0 && at < c->w ? row[at] : 0;
          }
        }
}

static void run_conv(const Run *r, const Kernel *k, const Work *w)
{
  const Conv *c = &w->shape;
  const float *x = r->data[k->in[0]];
  const float *weight = r->data[k->in[1]];
  float *y = r->data[k->out[0]];
  int64_t ic = c->c / c->groups;
  int64_t oc = c->oc / c->groups;
  int64_t depth = ic * c->kh * c->kw;
  int64_t plane = c->oh * c->ow;
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t g = 0; g < c->groups; g++) {
      const float *in = x + (n * c->c + g * ic) * c->h * c->w;
      if (!w->direct) patches(c, in, (float *)(void *)(r->workspace + r->graph->own));
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)oc, (int)plane, (int)depth, 1,
                  weight + g * oc * depth, (int)depth,
                  w->direct ? in : (const float *)(const void *)(r->workspace + r->graph->own), (int)plane, 0,
                  y + (n * c->oc + g * oc) * plane, (int)plane);
    }
}

static void run_product(const Run *r, const Kernel *k, const Work *w)
{
  for (int64_t i = 0; i < w->batch; i++)
    cblas_sgemm(CblasRowMajor, w->ta ? CblasTrans : CblasNoTrans, w->tb ? CblasTrans : CblasNoTrans, (int)w->m,
                (int)w->n, (int)w->k, 1, (const float *)r->data[k->in[0]] + i * w->step_a, (int)(w->ta ? w->m : w->k),
                (const float *)r->data[k->in[1]] + i * w->step_b, (int)(w->tb ? w->k : w->n), 0,
                (float *)r->data[k->out[0]] + i * w->m * w->n, (int)w->n);
}

/* The bias of each channel, then the relu: NaN stays. */
static void finish(const Run *r, const Kernel *k, const Work *w)
{
  float *y = r->data[k->out[0]];
  const float *bias = w->bias >= 0 ? r->data[k->in[w->bias]] : NULL;
  int64_t inner = w->conv ? w->shape.oh * w->shape.ow : 1;
  int64_t channels = w->conv ? w->shape.oc : w->n;
  int64_t outer = tensor_elements(&r->graph->tensor[k->out[0]]) / (inner * channels);
  if (!bias && !w->relu) return;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < inner; i++, y++) {
        float v = *y + (bias ? bias[c] : 0);
        *y = w->relu && v < 0 ? 0 : v;
      }
}

static LatheRtCode run(const Run *r, LatheRtError *err)
{
  (void)err;
  for (int i = 0; i < r->graph->nkernel; i++) {
    const Kernel *k = &r->graph->kernel[i];
    const Work *w = k->state;
    if (w->conv) run_conv(r, k, w);
    else run_product(r, k, w);
    finish(r, k, w);
  }
  return LATHE_RT_OK;
}

static const Backend backend = {.kind = "openblas", .prepare = prepare, .run = run, .drop = drop};
PLUGIN_TABLE(backend, "openblas");
