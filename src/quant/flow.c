/* flow.c: where integers go through a graph, and the ranges of what they stand for.
 *
 * Invariant: a wire is quantized when a step takes it in integers; layers also give theirs in integers. */
#include "quant/flow.h"

Wire *quant_flow_root(const Flow *p, Wire *w)
{
  while (w->maker >= 0 && p->step.v[w->maker].role == ROLE_MOVE && p->step.v[w->maker].out == w)
    w = p->step.v[w->maker].in[0];
  return w;
}

static bool takes_integers(const Step *s)
{
  for (int k = 0; k < s->n; k++)
    if (s->in[k]->is_constant || !s->in[k]->integral) return false;
  return s->n > 0;
}

static void mark_forward(Flow *p)
{
  for (int i = 0; i < p->step.n; i++) {
    Step *s = &p->step.v[i];
    s->integer = s->role == ROLE_LAYER ? !s->kept : s->role != ROLE_FLOAT && takes_integers(s);
    if (s->role == ROLE_MOVE) s->out->integral = s->integer;
    else if (s->end) s->end->integral = s->integer;
  }
}

void quant_flow_mark(Flow *p)
{
  for (int i = 0; i < p->wire.n; i++) {
    Wire *w = p->wire.v[i];
    w->integral = w->is_input;
    w->wanted = w->by_layer = false;
  }
  mark_forward(p);
  for (int i = p->step.n - 1; i >= 0; i--) {
    Step *s = &p->step.v[i];
    if (s->role == ROLE_LAYER && s->integer) s->end->wanted = s->end->by_layer = true;
    else if (s->role == ROLE_ELEMENT) s->integer &= s->end->wanted;
    else if (s->role == ROLE_MOVE) s->integer = s->out->wanted && !s->in[0]->is_constant;
    for (int k = 0; k < s->n && s->integer; k++) s->in[k]->wanted = true;
  }
}

/* ---- ranges ------------------------------------------------------------------------------------------------- */

Work quant_work(Ctx *ctx, const QuantOptions *o, QuantSamples samples)
{
  enum { CALIBRATION = 256 };
  int64_t most = o->calibration > 0 ? o->calibration : CALIBRATION;
  return (Work){.ctx = ctx, .o = o, .samples = samples, .calibration = most < samples.n ? most : samples.n};
}

void quant_tell(Work *w, const char *stage, int64_t done, int64_t total)
{
  if (w->o->progress && w->o->progress(w->o->env, stage, done, total))
    raise(w->ctx, ERR_CALLBACK, NOWHERE, "the function that follows the quantization stopped it");
}

int64_t quant_calibration_run(const Work *w, int64_t i) { return i * w->samples.n / w->calibration; }

int quant_flow_roots(Arena *a, const Flow *p, Wire ***out)
{
  int n = 0;
  *out = arena_array(a, Wire *, p->wire.n + 1);
  for (int i = 0; i < p->wire.n; i++)
    if (p->wire.v[i]->wanted && quant_flow_root(p, p->wire.v[i]) == p->wire.v[i]) (*out)[n++] = p->wire.v[i];
  return n;
}

static void see_all(Work *w, QuantRunner *floats, int n, Wire *const *wire, const int *output, bool bins)
{
  bool twice = w->o->method != QUANT_MINMAX;
  for (int64_t k = 0; k < w->calibration; k++) {
    quant_tell(w, "calibrating", bins ? w->calibration + k : k, twice ? 2 * w->calibration : w->calibration);
    quant_run(floats, &w->samples, quant_calibration_run(w, k));
    for (int i = 0; i < n; i++) {
      size_t size;
      const float *v = quant_floats(quant_output(floats, output[i]), &size);
      if (!v) raise(w->ctx, ERR_TYPE, NOWHERE, "'%s' is not float32; only such tensors are quantized", wire[i]->name);
      if (bins) quant_see_bins(&wire[i]->seen, size, v);
      else quant_see_limits(&wire[i]->seen, size, v);
    }
  }
}

void quant_calibrate(Work *w, Arena *a, QuantRunner *floats, int n, Wire *const *wire, const int *output, int levels)
{
  see_all(w, floats, n, wire, output, false);
  for (int i = 0; i < n; i++) {
    QuantSeen *s = &wire[i]->seen;
    if (s->bad)
      raise(w->ctx, ERR_ARGUMENT, NOWHERE,
            "'%s' is NaN or infinite %" PRId64 " times on this data: no scale stands for that", wire[i]->name, s->bad);
    s->bin = arena_array(a, int64_t, QUANT_BINS);
  }
  if (w->o->method != QUANT_MINMAX) see_all(w, floats, n, wire, output, true);
  for (int i = 0; i < n; i++)
    quant_choose_range(&wire[i]->seen, w->o->method, w->o->percentile > 0 ? w->o->percentile : 99.99, levels,
                       &wire[i]->lo, &wire[i]->hi);
}
