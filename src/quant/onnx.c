/* onnx.c: an ONNX model quantized: ranges found, scales chosen, what it costs measured, and layers left in float where
 * it costs more than was promised.
 *
 *   1  the model as it comes is calibrated and quantized, once more with its biases corrected where layers have a mean
 *      error; the same again with equalised channels where there is a place for it and the error can be heard; the
 *      one with the least error at the outputs is kept
 *   2  float and quantized model run over all samples, beside each other
 *   3  while more answers change than may, the layers with the least signal to noise are left in float: as few as do */
#include <stdlib.h>

#include "quant/net.h"

/* ---- calibration -------------------------------------------------------------------------------------------- */

/* The float model with outputs for everything that will be looked at: it lives as long as the work. */
static void run_floats(Work *w, Net *n)
{
  Vec(const char *) name = {0};
  n->output = (StrMap){0};
  for (int i = 0; i < n->graph.output.n; i++) {
    vec_push(n->arena, &name, n->graph.output.v[i]->name);
    strmap_put(n->arena, &n->output, name.v[i], (void *)(intptr_t)name.n);
  }
  for (int i = 0; i < n->layer.n; i++)
    if (!n->layer.v[i].kept) strmap_put(n->arena, &n->looked_at, n->layer.v[i].out->name, n);
  for (int i = 0; i < n->flow.wire.n; i++) {
    const Wire *x = n->flow.wire.v[i];
    if ((!x->wanted && !strmap_get(&n->looked_at, x->name)) || strmap_get(&n->output, x->name)) continue;
    vec_push(n->arena, &name, x->name);
    strmap_put(n->arena, &n->output, x->name, (void *)(intptr_t)name.n);
  }
  quant_tell(w, "compiling the float model", 0, 1);
  n->floats = quant_net_runner(n, &n->graph, name.n, name.v, &w->samples);
}

static const LatheRtTensor *float_output(Net *n, const char *name)
{
  return quant_output(&n->floats, (int)(intptr_t)strmap_get(&n->output, name) - 1);
}

static void calibrate(Work *w, Net *n)
{
  enum { LEVELS = 256, BITS = 8 };
  Wire **wire;
  int count = quant_flow_roots(n->arena, &n->flow, &wire);
  int *output = arena_array(n->arena, int, count + 1);
  for (int i = 0; i < count; i++) output[i] = (int)(intptr_t)strmap_get(&n->output, wire[i]->name) - 1;
  quant_calibrate(w, n->arena, &n->floats, count, wire, output, LEVELS);
  for (int i = 0; i < count; i++) wire[i]->params = quant_params(wire[i]->lo, wire[i]->hi, BITS, false, false);
}

/* ---- layers alone ----------------------------------------------------------------------------------------------- */

static void add_mean(Layer *l, const Net *n, const LatheRtTensor *t, const float *want, const float *have)
{
  const PNode *p = n->graph.node.v[l->node];
  bool conv = !strcmp(p->op_type, "Conv") || !strcmp(p->op_type, "ConvTranspose");
  int64_t inner = 1;
  int64_t outer = 1;
  int at = conv ? 1 : t->ndim - 1;
  for (int i = 0; i < at; i++) outer *= t->shape[i];
  for (int i = at + 1; i < t->ndim; i++) inner *= t->shape[i];
  int64_t channels = l->shape.channels;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < inner; i++) {
        int64_t k = (o * channels + c) * inner + i;
        l->mean[c] += (double)want[k] - have[k];
      }
}

/* What the float model gave for these tensors, as the only sample of other inputs. */
static QuantSamples floats_as_samples(Net *n, int count, const char *const *name)
{
  QuantSamples s = {.ninputs = count, .n = 1, .rows = 1, .input = arena_array(n->arena, struct QuantCut, count + 1)};
  for (int i = 0; i < count; i++) {
    const LatheRtTensor *t = float_output(n, name[i]);
    s.input[i].dtype = t->dtype;
    s.input[i].ndim = t->ndim;
    memcpy(s.input[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    vec_push(n->arena, &s.input[i].run, NULL);
  }
  return s;
}

static void measure_alone(Work *w, Net *n)
{
  Scope scope = scope_begin(w->ctx);
  const char **alone = arena_array(n->arena, const char *, n->layer.n + 1);
  const char **input = arena_array(n->arena, const char *, n->layer.n + 1);
  const char **name = arena_array(n->arena, const char *, n->layer.n + 1);
  int ninputs;
  PGraph g = quant_net_alone(n, alone, input, &ninputs);
  int count = 0;
  for (int i = 0; i < n->layer.n; i++) {
    Layer *l = &n->layer.v[i];
    if (!alone[i]) continue;
    name[count++] = alone[i];
    l->alone = (QuantError){0};
    l->mean = arena_array(n->arena, double, l->shape.channels);
  }
  if (count) {
    quant_tell(w, "compiling each layer alone", 0, 1);
    QuantSamples in = floats_as_samples(n, ninputs, input);
    QuantRunner r = quant_net_runner(n, &g, count, name, &in);
    for (int64_t k = 0; k < w->calibration; k++) {
      quant_tell(w, "measuring layers alone", k, w->calibration);
      quant_run(&n->floats, &w->samples, quant_calibration_run(w, k));
      for (int i = 0; i < ninputs; i++) {
        const LatheRtTensor *t = float_output(n, input[i]);
        in.input[i].run.v[0] = (const char *)t->data + t->byte_offset;
      }
      quant_run(&r, &in, 0);
      for (int i = 0, at = 0; i < n->layer.n; i++) {
        if (!alone[i]) continue;
        size_t size;
        const LatheRtTensor *t = float_output(n, n->layer.v[i].out->name);
        const float *want = quant_floats(t, &size);
        const float *have = quant_floats(quant_output(&r, at++), &size);
        quant_add_error(&n->layer.v[i].alone, size, want, have);
        add_mean(&n->layer.v[i], n, t, want, have);
      }
    }
    for (int i = 0; i < n->layer.n; i++) {
      Layer *l = &n->layer.v[i];
      if (!alone[i]) continue;
      for (int64_t c = 0; c < l->shape.channels; c++) l->mean[c] *= (double)l->shape.channels / (double)l->alone.n;
    }
  }
  scope_end(w->ctx, scope);
}

/* ---- the whole model --------------------------------------------------------------------------------------------- */

/* What the quantized model gives beside the float one. */
typedef struct Verdict {
  QuantError first;           /* of the first output */
  double noise;               /* of all outputs, each against its signal */
  int64_t answers;            /* that were compared */
  int64_t right, float_right; /* against labels; without them right counts those that agree */
} Verdict;

static int64_t largest(const float *v, int64_t n)
{
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++)
    if (v[i] > v[best]) best = i;
  return best;
}

static void judge(Work *w, Verdict *v, int64_t run, size_t size, const float *want, const float *have)
{
  int64_t rows = size % (size_t)w->samples.rows ? 1 : w->samples.rows;
  int64_t per = (int64_t)size / rows;
  for (int64_t i = 0; i < rows && per > 1; i++) {
    int64_t a = largest(want + i * per, per);
    int64_t b = largest(have + i * per, per);
    int64_t at = run * rows + i;
    v->answers++;
    v->right += w->o->labels ? at < w->o->nlabels && b == w->o->labels[at] : a == b;
    v->float_right += w->o->labels ? at < w->o->nlabels && a == w->o->labels[at] : 1;
  }
}

/* The quantized model with outputs for its layers, compiled to run beside the float one; until the scope ends. */
typedef struct Beside {
  int outputs, n;      /* the model's own, then those of layers */
  const char **a, **b; /* what each is called in the float model, in the quantized one */
  Layer **layer;
  QuantRunner q;
} Beside;

static Beside compile_beside(Work *w, Net *n)
{
  PGraph g = quant_net_quantized(n);
  Beside s = {.outputs = n->graph.output.n,
              .a = arena_array(n->arena, const char *, n->graph.output.n + n->layer.n + 1),
              .b = arena_array(n->arena, const char *, n->graph.output.n + n->layer.n + 1),
              .layer = arena_array(n->arena, Layer *, n->layer.n + 1)};
  for (; s.n < s.outputs; s.n++) s.a[s.n] = s.b[s.n] = n->graph.output.v[s.n]->name;
  for (int i = 0; i < n->layer.n; i++) {
    Layer *l = &n->layer.v[i];
    if (!l->end->wanted) continue;
    s.layer[s.n - s.outputs] = l;
    s.a[s.n] = l->end->name;
    s.b[s.n++] = quant_net_stored(n, l->end);
  }
  quant_tell(w, "compiling the quantized model", 0, 1);
  s.q = quant_net_runner(n, &g, s.n, s.b, &w->samples);
  return s;
}

/* Over all samples, or those that scales are found with. */
static Verdict run_beside(Work *w, Net *n, Beside *s, const char *stage, bool all)
{
  Verdict v = {0};
  QuantError *error = arena_array(n->arena, QuantError, s->outputs + 1);
  for (int i = 0; i < n->layer.n; i++) n->layer.v[i].inside = (QuantError){0};
  int64_t runs = all ? w->samples.n : w->calibration;
  for (int64_t k = 0; k < runs; k++) {
    int64_t run = all ? k : quant_calibration_run(w, k);
    quant_tell(w, stage, k, runs);
    quant_run(&n->floats, &w->samples, run);
    quant_run(&s->q, &w->samples, run);
    for (int i = 0; i < s->n; i++) {
      size_t size;
      const float *want = quant_floats(float_output(n, s->a[i]), &size);
      const float *have = quant_floats(quant_output(&s->q, i), &size);
      if (!want || !have) continue;
      quant_add_error(i < s->outputs ? &error[i] : &s->layer[i - s->outputs]->inside, size, want, have);
      if (!i) judge(w, &v, run, size, want, have);
    }
  }
  v.first = error[0];
  for (int i = 0; i < s->outputs; i++)
    if (error[i].signal > 0) v.noise += error[i].noise / error[i].signal;
  return v;
}

static Verdict compare(Work *w, Net *n, const char *stage)
{
  Scope scope = scope_begin(w->ctx);
  Beside s = compile_beside(w, n);
  Verdict v = run_beside(w, n, &s, stage, true);
  scope_end(w->ctx, scope);
  return v;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static bool is_named(const char *list, const char *name)
{
  size_t n = strlen(name);
  if (!list || !n) return false;
  for (const char *p = strstr(list, name); p; p = strstr(p + 1, name))
    if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
  return false;
}

static const char *layer_name(const Net *n, const Layer *l)
{
  const PNode *p = n->graph.node.v[l->node];
  return *p->name ? p->name : l->out->name;
}

static void plan(Work *w, Net *n)
{
  quant_net_plan(n);
  for (int i = 0; i < n->layer.n; i++)
    if (is_named(w->o->skip, layer_name(n, &n->layer.v[i]))) n->layer.v[i].kept = "as was asked for";
  quant_net_mark(n);
}

static void shift_biases(Net *n, bool on)
{
  for (int i = 0; i < n->layer.n; i++) {
    Layer *l = &n->layer.v[i];
    l->shift = on && l->takes_bias && !l->kept ? l->mean : NULL;
  }
}

/* Has a layer enough of a mean error that taking it off may be worth a look? */
static bool has_mean_error(const Net *n)
{
  static const double SHARE = 0.05; /* of its noise */
  for (int i = 0; i < n->layer.n; i++) {
    const Layer *l = &n->layer.v[i];
    double energy = 0;
    if (!l->takes_bias || l->kept || !l->mean) continue;
    for (int64_t c = 0; c < l->shape.channels; c++) energy += l->mean[c] * l->mean[c];
    if (energy * (double)l->alone.n / (double)l->shape.channels > SHARE * l->alone.noise) return true;
  }
  return false;
}

/* Scales, and biases corrected where that makes the error less; the error that is left, and the model it is of. */
static double prepare(Work *w, Net *n, Beside *best, bool *corrected)
{
  plan(w, n);
  run_floats(w, n);
  calibrate(w, n);
  measure_alone(w, n);
  *best = compile_beside(w, n);
  double plain = run_beside(w, n, best, "measuring the quantized model", false).noise;
  *corrected = false;
  if (!has_mean_error(n)) return plain;
  shift_biases(n, true);
  Beside other = compile_beside(w, n);
  double shifted = run_beside(w, n, &other, "measuring corrected biases", false).noise;
  *corrected = shifted < plain;
  shift_biases(n, *corrected);
  if (*corrected) *best = other;
  return *corrected ? shifted : plain;
}

static double drop_of(const Verdict *v)
{
  return v->answers ? (double)(v->float_right - v->right) / (double)v->answers : 0;
}

/* Leaves the first `floats` of them in float. */
static void keep_floats(Net *n, int count, Layer *const *order, int floats)
{
  for (int i = 0; i < count; i++) order[i]->kept = i < floats ? "to keep the accuracy" : NULL;
  quant_net_mark(n);
}

static int by_noise(const void *a, const void *b)
{
  double x = quant_snr(&(*(Layer *const *)a)->alone);
  double y = quant_snr(&(*(Layer *const *)b)->alone);
  return x < y ? -1 : x > y ? 1 : (*(Layer *const *)a)->node - (*(Layer *const *)b)->node;
}

/* As few layers in float as keep the promise. */
static Verdict hold_promise(Work *w, Net *n)
{
  Verdict v;
  Layer **order = arena_array(n->arena, Layer *, n->layer.n + 1);
  int count = 0;
  for (int i = 0; i < n->layer.n; i++)
    if (!n->layer.v[i].kept) order[count++] = &n->layer.v[i];
  qsort(order, (size_t)count, sizeof *order, by_noise);
  int bad = 0; /* so many are too few, so many enough */
  int good = 1;
  for (;;) {
    if (good > count) good = count;
    keep_floats(n, count, order, good);
    v = compare(w, n, "measuring with layers in float");
    if (drop_of(&v) <= w->o->accuracy_drop || good == count) break;
    bad = good;
    good *= 2;
  }
  while (good - bad > 1) {
    int half = (bad + good) / 2;
    keep_floats(n, count, order, half);
    Verdict at = compare(w, n, "measuring with layers in float");
    if (drop_of(&at) <= w->o->accuracy_drop) good = half, v = at;
    else bad = half;
  }
  keep_floats(n, count, order, good);
  return v;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static void report_layers(Net *n, QuantReport *out)
{
  out->n = n->layer.n;
  out->layer = arena_array(n->arena, QuantLayer, n->layer.n + 1);
  for (int i = 0; i < n->layer.n; i++) {
    Layer *l = &n->layer.v[i];
    const Wire *root = quant_flow_root(&n->flow, l->end);
    out->quantized += !l->kept;
    out->layer[i] = (QuantLayer){.name = layer_name(n, l),
                                 .op = n->graph.node.v[l->node]->op_type,
                                 .output = l->end->name,
                                 .lo = root->lo,
                                 .hi = root->hi,
                                 .params = root->params,
                                 .w_least = l->w_least,
                                 .w_most = l->w_most,
                                 .alone = quant_snr(&l->alone),
                                 .inside = quant_snr(&l->inside),
                                 .kept = l->kept};
  }
}

const void *quant_onnx(Arena *a, const char *path, int narrays, const QuantArray *array, const QuantOptions *o,
                       QuantReport *report, size_t *bytes)
{
  Net *n = quant_net_load(a, path);
  Work w = quant_work(n->ctx, o, quant_net_samples(n, narrays, array));
  int64_t answers = w.samples.n * w.samples.rows;
  if (o->labels && o->nlabels != answers)
    raise(w.ctx, ERR_ARGUMENT, NOWHERE, "there are %" PRId64 " labels for %" PRId64 " samples", o->nlabels, answers);
  quant_net_fold(n);
  *report = (QuantReport){.samples = answers, .calibration = w.calibration * w.samples.rows, .labelled = o->labels};
  static const double FINE = 1e-3; /* 30 dB: other channels would not be heard */
  static const double WORTH = 0.8; /* a decibel: inner tensors then hold other numbers than the float model's */
  Net *even = quant_net_copy(n);
  plan(&w, even);
  if (!even->layer.n)
    raise(w.ctx, ERR_ARGUMENT, NOWHERE,
          "the model has no convolution or matrix product with constant weights: there is nothing to quantize");
  Beside best;
  double error = prepare(&w, n, &best, &report->bias_corrected);
  if (error > FINE && quant_net_equalise(even)) {
    bool corrected;
    Beside other;
    if (prepare(&w, even, &other, &corrected) < WORTH * error) {
      n = even;
      best = other;
      report->equalised = true;
      report->bias_corrected = corrected;
    }
  }
  Verdict v = run_beside(&w, n, &best, "comparing with the float model", true);
  if (o->accuracy_drop >= 0 && drop_of(&v) > o->accuracy_drop) v = hold_promise(&w, n);
  PGraph g = quant_net_quantized(n);
  Bytes b = quant_net_bytes(n, &g);
  report_layers(n, report);
  report->snr = quant_snr(&v.first);
  report->accuracy = v.answers ? (double)v.right / (double)v.answers : 0;
  report->float_accuracy = v.answers ? (double)v.float_right / (double)v.answers : 0;
  report->float_bytes = n->file_bytes;
  report->bytes = b.n;
  *bytes = b.n;
  return b.p;
}
