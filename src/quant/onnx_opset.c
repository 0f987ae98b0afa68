/* onnx_opset.c: a model of an older opset, said in the words of opset 13.
 *
 * Between opsets 7 and 13 some operators took what was an attribute as an input, and some changed their meaning.  The
 * former are rewritten; the latter are left alone where both meanings are the same, and refused by name where not. */
#include <math.h>

#include "quant/net.h"

typedef struct Raise {
  Net *n;
  PNode *p;
} Raise;

static const char *label(const PNode *p) { return *p->name ? p->name : p->output.n ? p->output.v[0] : p->op_type; }

_Noreturn static void refuse(Raise *r, int since, const char *why)
{
  raise(
      r->n->ctx, ERR_UNSUPPORTED, NOWHERE,
      "node '%s': %s says another thing from opset %d on (%s), and quantization needs opset %d; bring the model there "
      "first, for example with onnx.version_converter",
      label(r->p), r->p->op_type, since, why, QUANT_OPSET);
}

static void drop_attr(PNode *p, const char *name)
{
  int kept = 0;
  for (int i = 0; i < p->attribute.n; i++)
    if (strcmp(p->attribute.v[i]->name, name)) p->attribute.v[kept++] = p->attribute.v[i];
  p->attribute.n = kept;
}

/* Input i of the node, which grows as far as needed. */
static void set_input(Raise *r, int i, const char *name)
{
  while (r->p->input.n <= i) vec_push(r->n->arena, &r->p->input, "");
  r->p->input.v[i] = name;
}

static void ints_to_input(Raise *r, const char *name, int i)
{
  const PAttr *a = quant_net_attr(r->p, name);
  if (!a) return;
  int64_t n = a->ints.n;
  const char *as = quant_net_name(r->n, label(r->p), "_");
  as = quant_net_name(r->n, as, name);
  quant_net_const(r->n, &r->n->graph, as, ONNX_I64, 1, &n, a->ints.v, (size_t)n * 8);
  set_input(r, i, as);
  drop_attr(r->p, name);
}

static void float_to_input(Raise *r, const char *name, int i, float def)
{
  const PAttr *a = quant_net_attr(r->p, name);
  float v = a ? a->f : def;
  if (isnan(v)) return; /* left out */
  const char *as = quant_net_name(r->n, label(r->p), "_");
  as = quant_net_name(r->n, as, name);
  quant_net_const(r->n, &r->n->graph, as, ONNX_F32, 0, NULL, &v, 4);
  set_input(r, i, as);
  drop_attr(r->p, name);
}

static void raise_clip(Raise *r, int from)
{
  if (from >= 11) return;
  float_to_input(r, "min", 1, NAN);
  float_to_input(r, "max", 2, NAN);
}

static void raise_dropout(Raise *r, int from)
{
  if (from < 12) drop_attr(r->p, "ratio"); /* of training alone */
}

static void raise_pad(Raise *r, int from)
{
  if (from >= 11) return;
  ints_to_input(r, "pads", 1);
  float_to_input(r, "value", 2, 0);
}

static void raise_slice(Raise *r, int from)
{
  if (from >= 10) return;
  ints_to_input(r, "starts", 1);
  ints_to_input(r, "ends", 2);
  ints_to_input(r, "axes", 3);
}

static void raise_axes(Raise *r, int from)
{
  if (from < 13) ints_to_input(r, "axes", 1);
}

static void raise_split(Raise *r, int from)
{
  if (from < 13) ints_to_input(r, "split", 1);
}

static void raise_topk(Raise *r, int from)
{
  const PAttr *k = quant_net_attr(r->p, "k");
  if (from >= 10 || !k) return;
  int64_t one = 1;
  const char *as = quant_net_name(r->n, label(r->p), "_k");
  set_input(r, 1, quant_net_const(r->n, &r->n->graph, as, ONNX_I64, 1, &one, &k->i, 8));
  drop_attr(r->p, "k");
}

/* Before 13 over everything from the axis on: the same where that is the last one. */
static void raise_softmax(Raise *r, int from)
{
  if (from >= 13) return;
  int64_t axis = quant_net_int(r->p, "axis", 1);
  int64_t rank = (intptr_t)strmap_get(&r->n->ranks, r->p->input.n ? r->p->input.v[0] : "") - 1;
  if (axis != -1 && axis != rank - 1) refuse(r, 13, "the sum runs over one axis");
  drop_attr(r->p, "axis");
  quant_net_push_int(r->n, r->p, "axis", -1);
}

static void raise_norm(Raise *r, int from)
{
  if (from >= 9) return;
  if (!quant_net_int(r->p, "spatial", 1)) refuse(r, 9, "statistics are by channel");
  drop_attr(r->p, "spatial");
}

static void refuse_resize(Raise *r, int from)
{
  if (from < 11) refuse(r, 11, "places of elements are counted another way");
}

static void refuse_old(Raise *r, int from)
{
  if (from < 11) refuse(r, 11, "it is gone");
}

static void refuse_scan(Raise *r, int from)
{
  if (from < 9) refuse(r, 9, "its body takes another form");
}

static const struct {
  const char *op;
  void (*change)(Raise *, int from);
} rows[] = {
  {"BatchNormalization", raise_norm},
  {"Clip", raise_clip},
  {"Dropout", raise_dropout},
  {"Hardmax", raise_softmax},
  {"LogSoftmax", raise_softmax},
  {"Pad", raise_pad},
  {"ReduceSum", raise_axes},
  {"Resize", refuse_resize},
  {"Scan", refuse_scan},
  {"Scatter", refuse_old},
  {"Slice", raise_slice},
  {"Softmax", raise_softmax},
  {"Split", raise_split},
  {"Squeeze", raise_axes},
  {"TopK", raise_topk},
  {"Unsqueeze", raise_axes},
  {"Upsample", refuse_old},
};

static void raise_graph(Net *n, PGraph *g, int from)
{
  for (int i = 0; i < g->node.n; i++) {
    Raise r = {n, g->node.v[i]};
    if (*r.p->domain && strcmp(r.p->domain, "ai.onnx")) continue;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
      if (!strcmp(rows[k].op, r.p->op_type)) rows[k].change(&r, from);
    for (int k = 0; k < r.p->attribute.n; k++)
      if (r.p->attribute.v[k]->g) raise_graph(n, r.p->attribute.v[k]->g, from);
  }
}

/* Weights that are inputs as well are defaults that a caller may change from IR version 4 on; before they were not. */
static void raise_ir(Net *n)
{
  enum { OWN_INITIALIZERS = 4, OF_OPSET = 7 };
  if (n->model.ir_version < OWN_INITIALIZERS) {
    int kept = 0;
    for (int i = 0; i < n->graph.input.n; i++)
      if (!strmap_get(&n->values, n->graph.input.v[i]->name)) n->graph.input.v[kept++] = n->graph.input.v[i];
    n->graph.input.n = kept;
  }
  if (n->model.ir_version < OF_OPSET) n->model.ir_version = OF_OPSET;
}

void quant_net_raise_opset(Net *n)
{
  enum { OLDEST = 7 };
  raise_ir(n);
  bool said = false;
  COPY_LIST(n->arena, n->model.opset_import);
  for (int i = 0; i < n->model.opset_import.n; i++) {
    POpset *o = n->model.opset_import.v[i];
    if (*o->domain && strcmp(o->domain, "ai.onnx")) continue;
    said = true;
    if (o->version >= QUANT_OPSET) continue;
    if (o->version < OLDEST)
      raise(n->ctx, ERR_UNSUPPORTED, NOWHERE,
            "the model is of opset %" PRId64
            ", and quantization begins from opset %d; bring it there first, for example"
            " with onnx.version_converter",
            o->version, OLDEST);
    raise_graph(n, &n->graph, (int)o->version);
    POpset *own = arena_copy(n->arena, o, sizeof *own);
    own->version = QUANT_OPSET;
    n->model.opset_import.v[i] = own;
  }
  if (!said) raise(n->ctx, ERR_PARSE, NOWHERE, "onnx: the model does not say its opset");
}
