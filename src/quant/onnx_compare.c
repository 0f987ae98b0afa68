/* onnx_compare.c: two models of one network, tensor by tensor: where a quantized one parts from the float one. */
#include "quant/net.h"

/* What a consumer sees of a tensor: behind its QuantizeLinear and DequantizeLinear, where it has them. */
static const char *seen_as(const Net *n, const char *name)
{
  const PGraph *g = &n->graph;
  const char *stored = NULL;
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    if (!p->input.n || !p->output.n) continue;
    if (!stored && !strcmp(p->op_type, "QuantizeLinear") && !strcmp(p->input.v[0], name)) stored = p->output.v[0];
    else if (stored && !strcmp(p->op_type, "DequantizeLinear") && !strcmp(p->input.v[0], stored)) return p->output.v[0];
  }
  return name;
}

static bool makes(const Net *n, const char *name)
{
  for (int i = 0; i < n->graph.node.n; i++)
    for (int k = 0; k < n->graph.node.v[i]->output.n; k++)
      if (!strcmp(n->graph.node.v[i]->output.v[k], name)) return true;
  return false;
}

static bool is_sample_input(const Net *n, const PValueInfo *v)
{
  for (int i = 0; i < n->graph.initializer.n; i++)
    if (!strcmp(n->graph.initializer.v[i]->name, v->name)) return false;
  return true;
}

static void check_inputs(Net *a, Net *b)
{
  for (int i = 0; i < b->graph.input.n; i++) {
    bool same = !is_sample_input(b, b->graph.input.v[i]);
    for (int k = 0; k < a->graph.input.n && !same; k++)
      same = !strcmp(a->graph.input.v[k]->name, b->graph.input.v[i]->name);
    if (!same)
      raise(a->ctx, ERR_ARGUMENT, NOWHERE, "'%s' has no input '%s', which '%s' has: they are not of one network",
            a->path, b->graph.input.v[i]->name, b->path);
  }
}

typedef struct Taps {
  Vec(const char *) first, second;
  Vec(QuantPart) part;
} Taps;

static void find_taps(Net *a, Net *b, Taps *t)
{
  int outputs = a->graph.output.n < b->graph.output.n ? a->graph.output.n : b->graph.output.n;
  for (int i = 0; i < a->graph.node.n; i++) {
    const PNode *p = a->graph.node.v[i];
    const char *name = p->output.n ? p->output.v[0] : "";
    bool is_output = false;
    for (int k = 0; k < outputs; k++) is_output |= !strcmp(name, a->graph.output.v[k]->name);
    if (!*name || is_output || strmap_get(&a->values, name) || !strcmp(p->op_type, "Constant") || !makes(b, name))
      continue;
    vec_push(a->arena, &t->first, name);
    vec_push(a->arena, &t->second, seen_as(b, name));
    vec_push(a->arena, &t->part, (QuantPart){.name = name, .op = p->op_type});
  }
  for (int i = 0; i < outputs; i++) {
    vec_push(a->arena, &t->first, a->graph.output.v[i]->name);
    vec_push(a->arena, &t->second, b->graph.output.v[i]->name);
    vec_push(a->arena, &t->part, (QuantPart){.name = a->graph.output.v[i]->name, .op = QUANT_OUTPUT});
  }
}

int quant_onnx_compare(Arena *arena, const char *path, const char *other, int narrays, const QuantArray *array,
                       const QuantOptions *o, QuantPart **out)
{
  Net *a = quant_net_read(arena, path);
  Net *b = quant_net_read(arena, other);
  check_inputs(a, b);
  QuantSamples s = quant_net_samples(a, narrays, array);
  QuantSamples sb = quant_net_samples(b, narrays, array);
  Taps t = {0};
  find_taps(a, b, &t);
  if (o->progress) o->progress(o->env, "compiling both models", 0, 1);
  QuantRunner ra = quant_net_runner(a, &a->graph, t.first.n, t.first.v, &s);
  QuantRunner rb = quant_net_runner(b, &b->graph, t.second.n, t.second.v, &sb);
  QuantError *e = arena_array(arena, QuantError, t.part.n + 1);
  for (int64_t k = 0; k < s.n && k < sb.n; k++) {
    if (o->progress && o->progress(o->env, "comparing", k, s.n))
      raise(a->ctx, ERR_CALLBACK, NOWHERE, "the function that follows the comparison stopped it");
    quant_run(&ra, &s, k);
    quant_run(&rb, &sb, k);
    for (int i = 0; i < t.part.n; i++) {
      size_t na, nb;
      const float *want = quant_floats(quant_output(&ra, i), &na);
      const float *have = quant_floats(quant_output(&rb, i), &nb);
      if (want && have && na == nb) quant_add_error(&e[i], na, want, have);
    }
  }
  int n = 0;
  for (int i = 0; i < t.part.n; i++) {
    if (!e[i].n) continue; /* no floats, or of other shapes */
    t.part.v[n] = t.part.v[i];
    t.part.v[n].snr = quant_snr(&e[i]);
    t.part.v[n++].most = e[i].most;
  }
  *out = t.part.v;
  return n;
}
