/* onnx_attrs.c: attributes of an ONNX node, and the activations that attributes name.
 *
 * Comes in: the node as the file has it.  Goes out: typed values, or an error that names
 * operator and node. */
#include "frontend/onnx_import.h"

/* ---- attributes ------------------------------------------------------------------------- */

static const PAttr *find_attr(const PNode *p, const char *name)
{
  for (int i = 0; i < p->attribute.n; i++)
    if (!strcmp(p->attribute.v[i]->name, name)) return p->attribute.v[i];
  return NULL;
}

/* A reference takes the caller's attribute, then the function's default; absent both: absent. */
static const PAttr *resolve_attr(const PAttr *a, const Frame *f)
{
  while (a && *a->ref) {
    const OnnxFunctionCall *call = onnx_function_around(f);
    if (!call) return NULL;
    const char *ref = a->ref;
    a = find_attr(call->node, ref);
    for (int i = 0; !a && i < call->function->attribute_proto.n; i++)
      if (!strcmp(call->function->attribute_proto.v[i]->name, ref)) a = call->function->attribute_proto.v[i];
    f = call->frame;
  }
  return a;
}

const PAttr *onnx_attr(Conversion *c, const char *name)
{
  return resolve_attr(find_attr(onnx_node(c), name), c->frame);
}

/* Attributes carry their kind since IR version 2; before, what is present tells. */
static const PAttr *attr_of_kind(Conversion *c, const char *name, int kind, const char *text)
{
  const PAttr *a = onnx_attr(c, name);
  if (a && a->type && a->type != kind) kit_fail(c, ERR_TYPE, "attribute '%s' is not %s", name, text);
  return a;
}

int64_t onnx_attr_int(Conversion *c, const char *name, int64_t def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_INT, "an integer");
  return a ? a->i : def;
}

double onnx_attr_float(Conversion *c, const char *name, double def)
{
  const PAttr *a = onnx_attr(c, name);
  if (a && a->type == PATTR_INT) return (double)a->i;
  a = attr_of_kind(c, name, PATTR_FLOAT, "a number");
  return a ? (double)a->f : def;
}

const char *onnx_attr_str(Conversion *c, const char *name, const char *def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_STRING, "a string");
  return a ? arena_strndup(c->im->arena, a->s.p, a->s.n) : def;
}

const int64_t *onnx_attr_ints(Conversion *c, const char *name, int *n)
{
  const PAttr *a = onnx_attr(c, name);
  static const int64_t none;
  *n = 0;
  if (!a) return NULL;
  if (a->type == PATTR_INT) return *n = 1, &a->i;
  a = attr_of_kind(c, name, PATTR_INTS, "a list of integers");
  *n = a->ints.n;
  return a->ints.n ? a->ints.v : &none;
}

const float *onnx_attr_floats(Conversion *c, const char *name, int *n)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_FLOATS, "a list of numbers");
  static const float none;
  *n = a ? a->floats.n : 0;
  return !a ? NULL : a->floats.n ? a->floats.v : &none;
}

DType onnx_attr_dtype(Conversion *c, const char *name, DType def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_INT, "an integer");
  return a ? onnx_dtype(c->ctx, a->i, c->name) : def;
}

const Node *onnx_attr_strings(Conversion *c, const char *name)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_STRINGS, "a list of strings");
  if (!a) return NULL;
  uint64_t *v = arena_array(c->im->arena, uint64_t, a->strings.n + 1);
  for (int i = 0; i < a->strings.n; i++) v[i] = ctx_string(c->ctx, a->strings.v[i].p, a->strings.v[i].n);
  return node_const_copy(c->m, DT_STRING, 1, (int64_t[]){a->strings.n}, v);
}

/* ---- activations -------------------------------------------------------------------------- */

static const Node *hard_sigmoid(Conversion *c, const Node *x, double alpha, double beta)
{
  return kit_op1(c, "clip", kit_add(c, kit_mul(c, x, kit_scalar_like(c, x, alpha)), kit_scalar_like(c, x, beta)),
                 "a_min:f,a_max:f", 0.0, 1.0);
}

/* Activations that recurrent cells and fused operators name. */
const Node *onnx_activation(Conversion *c, const char *name, const Node *x, double alpha, double beta)
{
  if (!strcmp(name, "Relu")) return kit_op1(c, "nn.relu", x, NULL);
  if (!strcmp(name, "Tanh")) return kit_op1(c, "tanh", x, NULL);
  if (!strcmp(name, "Sigmoid")) return kit_op1(c, "sigmoid", x, NULL);
  if (!strcmp(name, "Affine"))
    return kit_add(c, kit_mul(c, x, kit_scalar_like(c, x, alpha)), kit_scalar_like(c, x, beta));
  if (!strcmp(name, "LeakyRelu")) return kit_op1(c, "nn.leaky_relu", x, "alpha:f", alpha);
  if (!strcmp(name, "ThresholdedRelu"))
    return kit_where(c, kit_op2(c, "greater", x, kit_scalar_like(c, x, alpha), NULL), x, kit_scalar_like(c, x, 0));
  if (!strcmp(name, "ScaledTanh"))
    return kit_mul(c, kit_op1(c, "tanh", kit_mul(c, x, kit_scalar_like(c, x, beta)), NULL),
                   kit_scalar_like(c, x, alpha));
  if (!strcmp(name, "HardSigmoid")) return hard_sigmoid(c, x, alpha, beta);
  if (!strcmp(name, "Elu"))
    return kit_where(
        c, kit_less(c, x, kit_scalar_like(c, x, 0)),
        kit_mul(c, kit_scalar_like(c, x, alpha),
                kit_sub(c, kit_exp(c, kit_min2(c, x, kit_scalar_like(c, x, 0))), kit_scalar_like(c, x, 1))),
        x);
  if (!strcmp(name, "Softsign")) return kit_div(c, x, kit_add(c, kit_scalar_like(c, x, 1), kit_op1(c, "abs", x, NULL)));
  if (!strcmp(name, "Softplus")) /* max(x, 0) + log(1 + exp(-|x|)) does not overflow */
    return kit_add(c, kit_max2(c, x, kit_scalar_like(c, x, 0)),
                   kit_op1(c, "log",
                           kit_add(c, kit_scalar_like(c, x, 1),
                                   kit_exp(c, kit_op1(c, "negative", kit_op1(c, "abs", x, NULL), NULL))),
                           NULL));
  if (!strcmp(name, "Clip")) return kit_op1(c, "clip", x, "a_min:f,a_max:f", alpha, beta);
  kit_fail(c, ERR_UNSUPPORTED, "activation '%s' is not supported", name);
}
