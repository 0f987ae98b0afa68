/* nn_recurrent.c: nn.rnn, nn.lstm and nn.gru as loops over directions, samples and time.
 *
 * Each step fills `gate` with what goes into the gates (weights times input and state, biases
 * added), then brings the state, which is the output Y_h (and Y_c) itself, one step on:
 *
 *   rnn   H = f(gate)
 *   lstm  i, o, f, c:  C = f * C + i * g(c),  H = o * h(C)
 *   gru   z, r, h:     H = (1 - z) * g(h) + z * H
 *
 * A sample that is shorter than the longest keeps its last state and has zeros behind it; in
 * reverse it starts from its own end. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Recurrent, RECURRENT_ATTRS)

typedef enum { CELL_RNN, CELL_LSTM, CELL_GRU } Cell;
enum { IN_BIAS, IN_LENS, IN_H, IN_C, IN_PEEPHOLE, IN_OPTIONAL };
static const char *const optional_names[] = {"bias", "sequence_lens", "initial_h", "initial_c", "peephole"};

typedef struct Activation {
  const char *name;
  double alpha, beta;
} Activation;

/* The activations there are; alpha and beta are the usual ones, NAN where there is none. */
static const struct { const char *name; bool has_alpha, has_beta; double alpha, beta; } known_activations[] = {
  {"Relu", false, false, 0, 0}, {"Tanh", false, false, 0, 0}, {"Sigmoid", false, false, 0, 0}, {"Softsign", false, false, 0, 0},
  {"Softplus", false, false, 0, 0}, {"LeakyRelu", true, false, 0.01, 0}, {"ThresholdedRelu", true, false, 1, 0}, {"Elu", true, false, 1, 0},
  {"Affine", true, true, 1, 0}, {"ScaledTanh", true, true, 1, 1}, {"HardSigmoid", true, true, 0.2, 0.5},
};
enum { NACTIVATIONS = (int)(sizeof known_activations / sizeof *known_activations) };

typedef struct Recurrent {
  Module *m;
  const RecurrentAttrs *a;
  Cell cell;
  int gates, ndir, nact;
  bool reverse_first;
  int arg[IN_OPTIONAL];                /* number of the argument, 0 when it is not given */
  const Expr *steps, *batch, *input, *hidden;
  Activation act[2][3];
  DType t;
} Recurrent;

static Cell cell_of(const OpDef *op) { return !strcmp(op->name, "nn.lstm") ? CELL_LSTM : !strcmp(op->name, "nn.gru") ? CELL_GRU : CELL_RNN; }

static bool same_word(const char *a, const char *b)
{
  for (; *a && *b; a++, b++)
    if ((*a | 32) != (*b | 32)) return false;
  return *a == *b;
}

static void read_activations(OpCall *c, Recurrent *q)
{
  static const char *const usual[3][3] = {{"Tanh", NULL, NULL}, {"Sigmoid", "Tanh", "Tanh"}, {"Sigmoid", "Tanh", NULL}};
  const RecurrentAttrs *a = q->a;
  int alphas = 0, betas = 0;
  bool given = a->activations.given && a->activations.n;
  if (given && a->activations.n != q->ndir * q->nact)
    op_raise(c, ERR_ARGUMENT, "activations has %d names, %d are wanted", a->activations.n, q->ndir * q->nact);
  for (int d = 0; d < q->ndir; d++)
    for (int i = 0; i < q->nact; i++) {
      const char *name = given ? a->activations.v[d * q->nact + i] : usual[q->cell][i];
      int k = 0;
      while (k < NACTIVATIONS && !same_word(known_activations[k].name, name)) k++;
      if (k == NACTIVATIONS) op_raise(c, ERR_UNSUPPORTED, "the activation '%s' is not known", name);
      Activation *act = &q->act[d][i];
      *act = (Activation){known_activations[k].name, known_activations[k].alpha, known_activations[k].beta};
      if (known_activations[k].has_alpha && alphas < a->activation_alpha.n) act->alpha = a->activation_alpha.v[alphas++];
      if (known_activations[k].has_beta && betas < a->activation_beta.n) act->beta = a->activation_beta.v[betas++];
    }
}

static void read_inputs(OpCall *c, Recurrent *q)
{
  const AttrStrs *names = &q->a->inputs;
  if (c->nargs != 3 + names->n) op_raise(c, ERR_ARGUMENT, "inputs names %d arguments after the first three, %d are given", names->n, c->nargs - 3);
  for (int i = 0; i < names->n; i++) {
    int k = 0;
    while (k < IN_OPTIONAL && strcmp(optional_names[k], names->v[i])) k++;
    if (k == IN_OPTIONAL || (q->cell != CELL_LSTM && k >= IN_C)) op_raise(c, ERR_ARGUMENT, "there is no input '%s'", names->v[i]);
    q->arg[k] = 3 + i;
  }
}

static Recurrent recurrent_of(OpCall *c)
{
  const RecurrentAttrs *a = c->attrs;
  Recurrent q = {.m = c->m, .a = a, .cell = cell_of(c->op), .ndir = 1, .t = c->arg[0]->dtype};
  q.gates = q.cell == CELL_LSTM ? 4 : q.cell == CELL_GRU ? 3 : 1;
  q.nact = q.cell == CELL_LSTM ? 3 : q.cell == CELL_GRU ? 2 : 1;
  if (a->direction && same_word(a->direction, "bidirectional")) q.ndir = 2;
  else if (a->direction && same_word(a->direction, "reverse")) q.reverse_first = true;
  else if (!a->direction || !same_word(a->direction, "forward"))
    op_raise(c, ERR_ARGUMENT, "direction '%s' is not one of forward, reverse, bidirectional", a->direction ? a->direction : "");
  if (a->hidden_size < 1 || a->hidden_size > INT32_MAX / 8) op_raise(c, ERR_ARGUMENT, "hidden_size is %" PRId64 ", at least 1 is wanted", a->hidden_size);
  if (a->layout != 0 && a->layout != 1) op_raise(c, ERR_ARGUMENT, "layout is %" PRId64 ", 0 or 1 is wanted", a->layout);
  nn_want_rank(c, 0, "data", 3);
  const Expr *const *x = c->arg[0]->shape;
  q.steps = x[a->layout ? 1 : 0];
  q.batch = x[a->layout ? 0 : 1];
  q.input = x[2];
  q.hidden = expr_i32(c->m, a->hidden_size);
  read_inputs(c, &q);
  read_activations(c, &q);
  return q;
}

/* ---- the type ---------------------------------------------------------------------------------------- */

static void want_shape(OpCall *c, int i, const char *name, int n, const Expr *const *shape)
{
  nn_want_rank(c, i, name, n);
  for (int d = 0; d < n; d++)
    if (nn_dims_differ(c->m, c->arg[i]->shape[d], shape[d])) op_raise(c, ERR_SHAPE, "%s %s has to be %s", name, nn_arg_shape(c, i), nn_shape_text(c->m, n, shape));
}

static void state_shape(const Recurrent *q, const Expr **shape)
{
  const Expr *dir = expr_i32(q->m, q->ndir);
  shape[0] = q->a->layout ? q->batch : dir;
  shape[1] = q->a->layout ? dir : q->batch;
  shape[2] = q->hidden;
}

static const Type *recurrent_type(OpCall *c)
{
  Module *m = c->m;
  nn_want_float(c, 0, "data");
  Recurrent q = recurrent_of(c);
  const Expr *dir = expr_i32(m, q.ndir), *rows = expr_i32(m, q.gates * q.a->hidden_size), *state[3];
  state_shape(&q, state);
  want_shape(c, 1, "weight", 3, (const Expr *[]){dir, rows, q.input});
  want_shape(c, 2, "recurrence", 3, (const Expr *[]){dir, rows, q.hidden});
  if (q.arg[IN_BIAS]) want_shape(c, q.arg[IN_BIAS], "bias", 2, (const Expr *[]){dir, expr_i32(m, 2 * q.gates * q.a->hidden_size)});
  if (q.arg[IN_LENS]) want_shape(c, q.arg[IN_LENS], "sequence_lens", 1, &q.batch);
  if (q.arg[IN_H]) want_shape(c, q.arg[IN_H], "initial_h", 3, state);
  if (q.arg[IN_C]) want_shape(c, q.arg[IN_C], "initial_c", 3, state);
  if (q.arg[IN_PEEPHOLE]) want_shape(c, q.arg[IN_PEEPHOLE], "peephole", 2, (const Expr *[]){dir, expr_i32(m, 3 * q.a->hidden_size)});
  for (int i = 0; i < c->nargs; i++)
    if (i != q.arg[IN_LENS] && !dtype_eq(c->arg[i]->dtype, q.t))
      op_raise(c, ERR_TYPE, "data is %s, argument %d is %s", dtype_name(scratch(m->ctx), q.t), i, dtype_name(scratch(m->ctx), c->arg[i]->dtype));
  if (q.arg[IN_LENS] && !dtype_is_int(c->arg[q.arg[IN_LENS]]->dtype)) op_raise(c, ERR_TYPE, "sequence_lens has to be integers");
  const Expr *all[4] = {q.a->layout ? q.batch : q.steps, q.a->layout ? q.steps : dir, q.a->layout ? dir : q.batch, q.hidden};
  const Type *y = type_tensor(m, q.t, 4, all), *h = type_tensor(m, q.t, 3, state);
  return type_tuple(m, q.cell == CELL_LSTM ? 3 : 2, (const Type *[]){y, h, h});
}

/* ---- expressions ----------------------------------------------------------------------------------------- */

static const Expr *activate(const Recurrent *q, const Activation *act, const Expr *x)
{
  Module *m = q->m;
  DType t = x->dtype;
  const Expr *zero = expr_const(m, t, 0), *one = expr_const(m, t, 1), *alpha = expr_const(m, t, act->alpha), *beta = expr_const(m, t, act->beta);
  if (q->a->clip > 0) x = expr_max(m, expr_min(m, x, expr_const(m, t, q->a->clip)), expr_const(m, t, -q->a->clip));
  const char *name = act->name;
  if (!strcmp(name, "Tanh")) return nn_unary(m, IN_TANH, x);
  if (!strcmp(name, "Sigmoid")) return nn_unary(m, IN_SIGMOID, x);
  if (!strcmp(name, "Relu")) return expr_max(m, x, zero);
  if (!strcmp(name, "Softsign")) return NN_DIV(m, x, expr_add(m, one, nn_unary(m, IN_ABS, x)));
  if (!strcmp(name, "Softplus")) {
    const Expr *down = nn_unary(m, IN_EXP, expr_sub(m, zero, nn_unary(m, IN_ABS, x)));
    return expr_add(m, expr_max(m, x, zero), nn_unary(m, IN_LOG1P, down));
  }
  if (!strcmp(name, "LeakyRelu")) return expr_select(m, expr_lt(m, x, zero), expr_mul(m, alpha, x), x);
  if (!strcmp(name, "ThresholdedRelu")) return expr_select(m, expr_lt(m, alpha, x), x, zero);
  if (!strcmp(name, "Elu")) {
    const Expr *below = expr_mul(m, alpha, expr_sub(m, nn_unary(m, IN_EXP, expr_min(m, x, zero)), one));
    return expr_select(m, expr_lt(m, x, zero), below, x);
  }
  if (!strcmp(name, "Affine")) return expr_add(m, expr_mul(m, alpha, x), beta);
  if (!strcmp(name, "ScaledTanh")) return expr_mul(m, alpha, nn_unary(m, IN_TANH, expr_mul(m, beta, x)));
  return expr_max(m, expr_min(m, expr_add(m, expr_mul(m, alpha, x), beta), one), zero);      /* HardSigmoid */
}

/* ---- the loops --------------------------------------------------------------------------------------------- */

/* Where the program stands: buffers, and the indices of the loops around. */
typedef struct Step {
  const Recurrent *q;
  Module *m;
  const Buffer *in[8], *y, *h, *c, *gate, *reset;      /* reset: gru's r * H, or its product with R */
  const Expr *dir, *n, *at;                            /* direction, sample, time in data */
  const Activation *act;
} Step;

static const Expr *load(Step *s, const Buffer *b, const Expr *i, const Expr *j, const Expr *k)
{
  const Expr *index[] = {i, j, k};
  return expr_load(s->m, b, b->ndim, index);
}

static const Expr *data_at(Step *s, const Expr *i)
{
  return s->q->a->layout ? load(s, s->in[0], s->n, s->at, i) : load(s, s->in[0], s->at, s->n, i);
}

static const Expr *state_at(Step *s, const Buffer *b, const Expr *k) { return s->q->a->layout ? load(s, b, s->n, s->dir, k) : load(s, b, s->dir, s->n, k); }

static Stmt *set_state(Step *s, const Buffer *b, const Expr *k, const Expr *value)
{
  const Expr *index[] = {s->q->a->layout ? s->n : s->dir, s->q->a->layout ? s->dir : s->n, k};
  return stmt_store(s->m, b, 3, index, value);
}

static Stmt *set_output(Step *s, const Expr *at, const Expr *k, const Expr *value)
{
  const Expr *first[] = {at, s->dir, s->n, k}, *second[] = {s->n, at, s->dir, k};
  return stmt_store(s->m, s->y, 4, s->q->a->layout ? second : first, value);
}

static const Expr *gate_at(Step *s, int gate, const Expr *k)
{
  const Expr *row = expr_add(s->m, expr_i32(s->m, gate * s->q->a->hidden_size), k);
  return expr_load(s->m, s->gate, 2, (const Expr *[]){s->n, row});
}

static const Expr *bias_at(Step *s, const Expr *row)
{
  return s->q->arg[IN_BIAS] ? load(s, s->in[s->q->arg[IN_BIAS]], s->dir, row, NULL) : expr_const(s->m, s->q->t, 0);
}

static Stmt *loop(Module *m, const Var *v, const Expr *n, Stmt *body) { return stmt_for(m, v, expr_i32(m, 0), n, FOR_SERIAL, NULL, body); }
static const Var *counter(Module *m, const char *name) { return var_new(m, name, DT_I32, VAR_PLAIN); }

/* to[n, row] += sum over k < extent of a(k) * b(row, k); one store of the running sum each. */
static Stmt *accumulate(Step *s, const Buffer *to, const Expr *row, const Expr *extent, const Var *k, const Expr *a, const Expr *b)
{
  Module *m = s->m;
  const Expr *index[] = {s->n, row};
  return loop(m, k, extent, stmt_store(m, to, 2, index, expr_add(m, expr_load(m, to, 2, index), expr_mul(m, a, b))));
}

/* gate[row] = biases + data * weight + state * recurrence, for rows [first, first + count); the state's
 * part goes by `state` (NULL: none). */
static Stmt *fill_gates(Step *s, int first, int count, const Buffer *state_reset, bool with_state, bool with_recurrent_bias)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *g = counter(m, "g"), *i = counter(m, "i"), *k = counter(m, "k");
  const Expr *row = expr_add(m, g->expr, expr_i32(m, first * q->a->hidden_size)), *bias = bias_at(s, row);
  if (with_recurrent_bias && q->arg[IN_BIAS])
    bias = expr_add(m, bias, bias_at(s, expr_add(m, row, expr_i32(m, q->gates * q->a->hidden_size))));
  Stmt *part[3];
  int n = 0;
  part[n++] = stmt_store(m, s->gate, 2, (const Expr *[]){s->n, row}, bias);
  part[n++] = accumulate(s, s->gate, row, q->input, i, data_at(s, i->expr), load(s, s->in[1], s->dir, row, i->expr));
  const Expr *h = state_reset ? expr_load(m, state_reset, 2, (const Expr *[]){s->n, k->expr}) : state_at(s, s->h, k->expr);
  if (with_state) part[n++] = accumulate(s, s->gate, row, q->hidden, k, h, load(s, s->in[2], s->dir, row, k->expr));
  return loop(m, g, expr_i32(m, count * q->a->hidden_size), stmt_seq(m, n, part));
}

static Stmt *rnn_step(Step *s)
{
  const Var *k = counter(s->m, "k");
  Stmt *update = set_state(s, s->h, k->expr, activate(s->q, &s->act[0], gate_at(s, 0, k->expr)));
  return stmt_seq(s->m, 2, (Stmt *[]){fill_gates(s, 0, 1, NULL, true, true), loop(s->m, k, s->q->hidden, update)});
}

static const Expr *peeped(Step *s, const Expr *gate, int which, const Expr *k, const Expr *cell)
{
  if (!s->q->arg[IN_PEEPHOLE]) return gate;
  const Expr *row = expr_add(s->m, expr_i32(s->m, which * s->q->a->hidden_size), k);
  return expr_add(s->m, gate, expr_mul(s->m, load(s, s->in[s->q->arg[IN_PEEPHOLE]], s->dir, row, NULL), cell));
}

static Stmt *lstm_step(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *kv = counter(m, "k");
  const Expr *k = kv->expr, *cell = state_at(s, s->c, k);
  const Expr *i = activate(q, &s->act[0], peeped(s, gate_at(s, 0, k), 0, k, cell));
  const Expr *f = q->a->input_forget ? expr_sub(m, expr_const(m, q->t, 1), i) : activate(q, &s->act[0], peeped(s, gate_at(s, 2, k), 2, k, cell));
  const Expr *next = expr_add(m, expr_mul(m, f, cell), expr_mul(m, i, activate(q, &s->act[1], gate_at(s, 3, k))));
  Recurrent unclipped = *q;
  RecurrentAttrs plain = *q->a;
  plain.clip = 0;
  unclipped.a = &plain;
  const Expr *o = activate(q, &s->act[0], peeped(s, gate_at(s, 1, k), 1, k, cell));      /* cell is the new one by then */
  Stmt *update[] = {set_state(s, s->c, k, next), set_state(s, s->h, k, expr_mul(m, o, activate(&unclipped, &s->act[2], cell)))};
  return stmt_seq(m, 2, (Stmt *[]){fill_gates(s, 0, 4, NULL, true, true), loop(m, kv, q->hidden, stmt_seq(m, 2, update))});
}

/* reset[k] = r * H, which the product with R follows; or, with linear_before_reset, that product with its bias. */
static Stmt *gru_reset(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *kv = counter(m, "k"), *jv = counter(m, "j");
  const Expr *k = kv->expr, *at[] = {s->n, k};
  if (!q->a->linear_before_reset) {
    const Expr *r = activate(q, &s->act[0], gate_at(s, 1, k));
    return loop(m, kv, q->hidden, stmt_store(m, s->reset, 2, at, expr_mul(m, r, state_at(s, s->h, k))));
  }
  const Expr *row = expr_add(m, expr_i32(m, 2 * q->a->hidden_size), k);
  const Expr *bias = q->arg[IN_BIAS] ? bias_at(s, expr_add(m, row, expr_i32(m, 3 * q->a->hidden_size))) : expr_const(m, q->t, 0);
  Stmt *body[] = {stmt_store(m, s->reset, 2, at, bias),
                  accumulate(s, s->reset, k, q->hidden, jv, state_at(s, s->h, jv->expr), load(s, s->in[2], s->dir, row, jv->expr))};
  return loop(m, kv, q->hidden, stmt_seq(m, 2, body));
}

static Stmt *gru_step(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  bool linear = q->a->linear_before_reset;
  const Var *kv = counter(m, "k");
  const Expr *k = kv->expr, *one = expr_const(m, q->t, 1), *hidden = gate_at(s, 2, k);
  if (linear) {
    const Expr *r = activate(q, &s->act[0], gate_at(s, 1, k));
    hidden = expr_add(m, hidden, expr_mul(m, r, expr_load(m, s->reset, 2, (const Expr *[]){s->n, k})));
  }
  const Expr *z = activate(q, &s->act[0], gate_at(s, 0, k));
  const Expr *next = expr_add(m, expr_mul(m, expr_sub(m, one, z), activate(q, &s->act[1], hidden)), expr_mul(m, z, state_at(s, s->h, k)));
  Stmt *part[] = {fill_gates(s, 0, 2, NULL, true, true), gru_reset(s), fill_gates(s, 2, 1, s->reset, !linear, !linear),
                  loop(m, kv, q->hidden, set_state(s, s->h, k, next))};
  return stmt_seq(m, 4, part);
}

static Stmt *initial_state(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *k = counter(m, "k");
  const Expr *zero = expr_const(m, q->t, 0);
  Stmt *part[2] = {set_state(s, s->h, k->expr, q->arg[IN_H] ? state_at(s, s->in[q->arg[IN_H]], k->expr) : zero)};
  if (s->c) part[1] = set_state(s, s->c, k->expr, q->arg[IN_C] ? state_at(s, s->in[q->arg[IN_C]], k->expr) : zero);
  return loop(m, k, q->hidden, stmt_seq(m, s->c ? 2 : 1, part));
}

/* All steps of one direction for one sample. */
static Stmt *direction(Step *s, int d)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *t = counter(m, "t"), *k = counter(m, "k"), *z = counter(m, "k");
  bool reverse = d == 1 || q->reverse_first;
  const Expr *len = q->steps;
  if (q->arg[IN_LENS]) {
    const Expr *given = expr_cast(m, DT_I32, load(s, s->in[q->arg[IN_LENS]], s->n, NULL, NULL));
    len = expr_max(m, expr_min(m, given, q->steps), expr_i32(m, 0));
  }
  s->dir = expr_i32(m, d);
  s->act = q->act[d];
  s->at = reverse ? expr_sub(m, expr_sub(m, len, expr_i32(m, 1)), t->expr) : t->expr;
  Stmt *step = q->cell == CELL_LSTM ? lstm_step(s) : q->cell == CELL_GRU ? gru_step(s) : rnn_step(s);
  Stmt *keep = loop(m, k, q->hidden, set_output(s, s->at, k->expr, state_at(s, s->h, k->expr)));
  Stmt *body = stmt_seq(m, 2, (Stmt *[]){step, keep});
  if (q->arg[IN_LENS]) {
    Stmt *zeros = loop(m, z, q->hidden, set_output(s, t->expr, z->expr, expr_const(m, q->t, 0)));
    body = stmt_if(m, expr_lt(m, t->expr, len), body, zeros);
  }
  return stmt_seq(m, 2, (Stmt *[]){initial_state(s), loop(m, t, q->steps, body)});
}

static void recurrent_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Recurrent q = recurrent_of(c);
  Step s = {.q = &q, .m = m};
  int nout = c->out->nfield;
  const Buffer *results[3];
  for (int i = 0; i < c->nargs; i++)
    s.in[i] = buffer_new(m, i < 3 ? &"x\0w\0r"[2 * i] : q.a->inputs.v[i - 3], in[i]->buffer->dtype, in[i]->buffer->ndim, in[i]->buffer->shape, NULL,
                         NULL, NULL, 0, 0, NULL);
  for (int i = 0; i < nout; i++)
    results[i] = buffer_new(m, i == 0 ? "y" : i == 1 ? "y_h" : "y_c", q.t, c->out->field[i]->ndim, c->out->field[i]->shape, NULL, NULL, NULL, 0, 0, NULL);
  s.y = results[0];
  s.h = results[1];
  s.c = nout > 2 ? results[2] : NULL;
  const Expr *rows[] = {q.batch, expr_i32(m, q.gates * q.a->hidden_size)}, *states[] = {q.batch, q.hidden};
  s.gate = buffer_new(m, "gate", q.t, 2, rows, NULL, NULL, NULL, 0, 0, NULL);
  s.reset = q.cell == CELL_GRU ? buffer_new(m, "reset", q.t, 2, states, NULL, NULL, NULL, 0, 0, NULL) : NULL;
  const Var *n = counter(m, "n");
  s.n = n->expr;
  Stmt *part[2];
  for (int d = 0; d < q.ndir; d++) part[d] = direction(&s, d);
  ForKind kind = expr_is_int(q.batch, 1) ? FOR_SERIAL : FOR_PARALLEL;
  Stmt *body = stmt_for(m, n, expr_i32(m, 0), q.batch, kind, NULL, stmt_seq(m, q.ndir, part));
  if (s.reset) body = stmt_alloc(m, s.reset, body);
  body = stmt_alloc(m, s.gate, body);
  stmt_link(body, NULL);
  const TeOp *op = te_extern(m, c->op->name + 3, c->op->name + 3, c->nargs, in, s.in, nout, results, body);
  for (int i = 0; i < nout; i++) out[i] = &op->out[i];
}

#define RECURRENT_OP(id, text, what)                                                               \
  const OpDef id = {                                                                               \
    .name = text, .doc = what, .args = "data, weight, recurrence, optional1, optional2, optional3, optional4, optional5", \
    .min_args = 3, .max_args = 8, .attrs = &Recurrent_attrs, .fuse = FUSE_OPAQUE, .type = recurrent_type, .compute = recurrent_compute, \
  };
RECURRENT_OP(op_nn_rnn, "nn.rnn", "simple recurrent network over (time, batch, input)")
RECURRENT_OP(op_nn_lstm, "nn.lstm", "long short-term memory over (time, batch, input)")
RECURRENT_OP(op_nn_gru, "nn.gru", "gated recurrent units over (time, batch, input)")
