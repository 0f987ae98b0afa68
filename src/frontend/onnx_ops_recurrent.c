/* onnx_ops_recurrent.c: RNN, GRU and LSTM.
 *
 * Comes in: ONNX's weights, one matrix per direction.  Goes out: nn.rnn, nn.gru, nn.lstm,
 * which run the time steps in one loop. */
#include "frontend/onnx_import.h"

typedef struct Cell {
  const char *onnx, *ours;
  int noptional;
  const char *optional[5]; /* inputs after the first three, in ONNX's order */
} Cell;

/* clang-format off */
static const Cell cells[] = {
  {"RNN", "nn.rnn", 3, {"bias", "sequence_lens", "initial_h"}},
  {"GRU", "nn.gru", 3, {"bias", "sequence_lens", "initial_h"}},
  {"LSTM", "nn.lstm", 5, {"bias", "sequence_lens", "initial_h", "initial_c", "peephole"}},
};
/* clang-format on */

static void set_floats(Conversion *c, const OpDef *op, void *attrs, const char *name)
{
  int n = 0;
  const float *v = onnx_attr_floats(c, name, &n);
  if (!v) return;
  double *d = arena_array(c->im->arena, double, n + 1);
  for (int i = 0; i < n; i++) d[i] = (double)v[i];
  attrs_set_f64s(c->m, op->attrs, attrs, name, n, d);
}

static void set_activations(Conversion *c, const OpDef *op, void *attrs)
{
  const PAttr *a = onnx_attr(c, "activations");
  if (!a) return;
  const char **names = arena_array(c->im->arena, const char *, a->strings.n + 1);
  for (int i = 0; i < a->strings.n; i++) names[i] = arena_strndup(c->im->arena, a->strings.v[i].p, a->strings.v[i].n);
  attrs_set_strs(c->m, op->attrs, attrs, "activations", a->strings.n, names);
}

static const Node *convert_recurrent(Conversion *c)
{
  const Cell *cell = cells;
  while (strcmp(cell->onnx, c->op)) cell++;
  const OpDef *op = opdef_get(c->ctx, cell->ours);
  void *attrs = attrs_new(c->m, op->attrs);
  const Node *arg[8] = {kit_in(c, 0), kit_in(c, 1), kit_in(c, 2)};
  const char *names[5];
  int n = 0;
  for (int i = 0; i < cell->noptional; i++) {
    if (!kit_opt(c, 3 + i)) continue;
    names[n] = cell->optional[i];
    arg[3 + n++] = kit_opt(c, 3 + i);
  }
  attrs_set_strs(c->m, op->attrs, attrs, "inputs", n, names);
  attrs_set_int(c->m, op->attrs, attrs, "hidden_size", onnx_attr_int(c, "hidden_size", kit_static_dim(c, arg[2], 2)));
  attrs_set_str(c->m, op->attrs, attrs, "direction", onnx_attr_str(c, "direction", "forward"));
  set_activations(c, op, attrs);
  set_floats(c, op, attrs, "activation_alpha");
  set_floats(c, op, attrs, "activation_beta");
  attrs_set_f64(c->m, op->attrs, attrs, "clip", onnx_attr_float(c, "clip", 0));
  attrs_set_int(c->m, op->attrs, attrs, "linear_before_reset", onnx_attr_int(c, "linear_before_reset", 0));
  attrs_set_int(c->m, op->attrs, attrs, "input_forget", onnx_attr_int(c, "input_forget", 0));
  attrs_set_int(c->m, op->attrs, attrs, "layout", onnx_attr_int(c, "layout", 0));
  const Node *r = node_call(c->m, op, 3 + n, arg, attrs, c->name);
  for (int i = 0; i < (cell->noptional == 5 ? 3 : 2); i++) c->out[i] = node_get(c->m, r, i);
  return NULL;
}

static const OnnxRow rows[] = {
  {"GRU", 1, convert_recurrent}, {"LSTM", 1, convert_recurrent}, {"RNN", 1, convert_recurrent}};
ONNX_TABLE(onnx_ops_recurrent, "", rows);
