/* nn_recurrent.c: nn.rnn, nn.lstm and nn.gru.
 *
 * What goes into the gates from the input does not wait for the state: it is one matrix product over
 * all steps, an nn.dense like any other.  What is left, nn.contrib_recurrent, is the loop over time:
 *
 *   gate = gates[t] + R * H
 *   rnn   H = f(gate)
 *   lstm  i, o, f, c:  C = f * C + i * g(c),  H = o * h(C)
 *   gru   z, r, h:     H = (1 - z) * g(h) + z * H
 *
 * A sample that is shorter than the longest keeps its last state and has zeros behind it; in
 * reverse it starts from its own end.  The units of the state are walked in blocks: the gates of a block are
 * summed up together and turned into its new state while they are at hand.  With attribute `block` the
 * recurrence is stored in that order, (directions, blocks, state, gates, block), so that it is read straight
 * ahead and a block is a few vectors (the last one may have fewer units, with anything behind them); with `samples` so
 * many of the batch share what is read of it.  The state is the output Y_h (and Y_c) itself; a step writes Y and takes
 * it over when all blocks are done. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Recurrent, RECURRENT_ATTRS)
DEFINE_ATTRS_TABLE(RecurrentLoop, RECURRENT_LOOP_ATTRS)

typedef enum { CELL_RNN, CELL_LSTM, CELL_GRU } Cell;
enum { IN_BIAS, IN_LENS, IN_H, IN_C, IN_PEEPHOLE, IN_RESET_BIAS, IN_OPTIONAL };
static const char *const optional_names[] = {"bias",      "sequence_lens", "initial_h",
                                             "initial_c", "peephole",      "reset_bias"};

typedef struct Activation {
  const char *name;
  double alpha, beta;
} Activation;

/* The activations there are; alpha and beta are the usual ones, NAN where there is none. */
static const struct {
  const char *name;
  bool has_alpha, has_beta;
  double alpha, beta;
} known_activations[] = {
  {"Relu", false, false, 0, 0},           {"Tanh", false, false, 0, 0},
  {"Sigmoid", false, false, 0, 0},        {"Softsign", false, false, 0, 0},
  {"Softplus", false, false, 0, 0},       {"LeakyRelu", true, false, 0.01, 0},
  {"ThresholdedRelu", true, false, 1, 0}, {"Elu", true, false, 1, 0},
  {"Affine", true, true, 1, 0},           {"ScaledTanh", true, true, 1, 1},
  {"HardSigmoid", true, true, 0.2, 0.5},
};
enum { NACTIVATIONS = (int)(sizeof known_activations / sizeof *known_activations) };

typedef struct Recurrent {
  Module *m;
  const RecurrentAttrs *a;
  Cell cell;
  int gates, ndir, nact;
  int first_optional; /* arguments before those that `inputs` names */
  bool reverse_first;
  int arg[IN_OPTIONAL]; /* number of the argument, 0 when it is not given */
  const Expr *steps, *batch, *input, *hidden;
  Activation act[2][3];
  DType t;
} Recurrent;

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
  int alphas = 0;
  int betas = 0;
  bool given = a->activations.given && a->activations.n;
  if (given && a->activations.n != q->ndir * q->nact)
    opdef_raise(c, ERR_ARGUMENT, "activations has %d names, %d are wanted", a->activations.n, q->ndir * q->nact);
  for (int d = 0; d < q->ndir; d++)
    for (int i = 0; i < q->nact; i++) {
      const char *name = given ? a->activations.v[d * q->nact + i] : usual[q->cell][i];
      int k = 0;
      while (k < NACTIVATIONS && !same_word(known_activations[k].name, name)) k++;
      if (k == NACTIVATIONS) opdef_raise(c, ERR_UNSUPPORTED, "the activation '%s' is not known", name);
      Activation *act = &q->act[d][i];
      *act = (Activation){known_activations[k].name, known_activations[k].alpha, known_activations[k].beta};
      if (known_activations[k].has_alpha && alphas < a->activation_alpha.n)
        act->alpha = a->activation_alpha.v[alphas++];
      if (known_activations[k].has_beta && betas < a->activation_beta.n) act->beta = a->activation_beta.v[betas++];
    }
}

static void read_inputs(OpCall *c, Recurrent *q)
{
  const AttrStrs *names = &q->a->inputs;
  int first = q->first_optional;
  if (c->nargs != first + names->n)
    opdef_raise(c, ERR_ARGUMENT, "inputs names %d arguments after the first %d, %d are given", names->n, first,
                c->nargs - first);
  for (int i = 0; i < names->n; i++) {
    int k = 0;
    while (k < IN_OPTIONAL && strcmp(optional_names[k], names->v[i])) k++;
    bool lstm_only = k == IN_C || k == IN_PEEPHOLE;
    bool loop_only = k == IN_RESET_BIAS;
    if (k == IN_OPTIONAL || (q->cell != CELL_LSTM && lstm_only) || (first == 3 && loop_only) ||
        (first == 2 && k == IN_BIAS))
      opdef_raise(c, ERR_ARGUMENT, "there is no input '%s'", names->v[i]);
    q->arg[k] = first + i;
  }
}

/* What attributes and arguments say. */
static Recurrent recurrent_of(OpCall *c, Cell cell, const RecurrentAttrs *a, int first_optional)
{
  Recurrent q = {.m = c->m, .a = a, .cell = cell, .ndir = 1, .t = c->arg[0]->dtype, .first_optional = first_optional};
  q.gates = q.cell == CELL_LSTM ? 4 : q.cell == CELL_GRU ? 3 : 1;
  q.nact = q.cell == CELL_LSTM ? 3 : q.cell == CELL_GRU ? 2 : 1;
  if (same_word(a->direction, "bidirectional")) q.ndir = 2;
  else if (same_word(a->direction, "reverse")) q.reverse_first = true;
  else if (!same_word(a->direction, "forward"))
    opdef_raise(c, ERR_ARGUMENT, "direction '%s' is not one of forward, reverse, bidirectional", a->direction);
  if (a->hidden_size < 1 || a->hidden_size > INT32_MAX / 8)
    opdef_raise(c, ERR_ARGUMENT, "hidden_size is %" PRId64 ", at least 1 is wanted", a->hidden_size);
  if (a->layout != 0 && a->layout != 1)
    opdef_raise(c, ERR_ARGUMENT, "layout is %" PRId64 ", 0 or 1 is wanted", a->layout);
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
    if (nn_dims_differ(c->m, c->arg[i]->shape[d], shape[d]))
      opdef_raise(c, ERR_SHAPE, "%s %s has to be %s", name, nn_arg_shape(c, i), nn_shape_text(c->m, n, shape));
}

static void state_shape(const Recurrent *q, const Expr **shape)
{
  const Expr *dir = expr_i32(q->m, q->ndir);
  shape[0] = q->a->layout ? q->batch : dir;
  shape[1] = q->a->layout ? dir : q->batch;
  shape[2] = q->hidden;
}

static Cell cell_of(const OpDef *op)
{
  return !strcmp(op->name, "nn.lstm") ? CELL_LSTM : !strcmp(op->name, "nn.gru") ? CELL_GRU : CELL_RNN;
}

static void want_optional(OpCall *c, const Recurrent *q)
{
  const Expr *dir = expr_i32(c->m, q->ndir);
  const Expr *state[3];
  state_shape(q, state);
  if (q->arg[IN_LENS]) want_shape(c, q->arg[IN_LENS], "sequence_lens", 1, &q->batch);
  if (q->arg[IN_H]) want_shape(c, q->arg[IN_H], "initial_h", 3, state);
  if (q->arg[IN_C]) want_shape(c, q->arg[IN_C], "initial_c", 3, state);
  if (q->arg[IN_PEEPHOLE])
    want_shape(c, q->arg[IN_PEEPHOLE], "peephole", 2, (const Expr *[]){dir, expr_i32(c->m, 3 * q->a->hidden_size)});
  for (int i = 0; i < c->nargs; i++)
    if (i != q->arg[IN_LENS] && !dtype_eq(c->arg[i]->dtype, q->t))
      opdef_raise(c, ERR_TYPE, "data is %s, argument %d is %s", dtype_name(scratch(c->m->ctx), q->t), i,
                  dtype_name(scratch(c->m->ctx), c->arg[i]->dtype));
  if (q->arg[IN_LENS] && !dtype_is_int(c->arg[q->arg[IN_LENS]]->dtype))
    opdef_raise(c, ERR_TYPE, "sequence_lens has to be integers");
}

static const Type *result_type(const Recurrent *q)
{
  const Expr *dir = expr_i32(q->m, q->ndir);
  const Expr *state[3];
  state_shape(q, state);
  const Expr *all[4] = {q->a->layout ? q->batch : q->steps, q->a->layout ? q->steps : dir,
                        q->a->layout ? dir : q->batch, q->hidden};
  const Type *y = type_tensor(q->m, q->t, 4, all);
  const Type *h = type_tensor(q->m, q->t, 3, state);
  return type_tuple(q->m, q->cell == CELL_LSTM ? 3 : 2, (const Type *[]){y, h, h});
}

static const Type *recurrent_type(OpCall *c)
{
  Module *m = c->m;
  nn_want_float(c, 0, "data");
  Recurrent q = recurrent_of(c, cell_of(c->op), c->attrs, 3);
  const Expr *dir = expr_i32(m, q.ndir);
  const Expr *rows = expr_i32(m, q.gates * q.a->hidden_size);
  want_shape(c, 1, "weight", 3, (const Expr *[]){dir, rows, q.input});
  want_shape(c, 2, "recurrence", 3, (const Expr *[]){dir, rows, q.hidden});
  if (q.arg[IN_BIAS])
    want_shape(c, q.arg[IN_BIAS], "bias", 2, (const Expr *[]){dir, expr_i32(m, 2 * q.gates * q.a->hidden_size)});
  want_optional(c, &q);
  return result_type(&q);
}

/* ---- the loop's attributes and type ------------------------------------------------------------------------ */

static Cell loop_cell(OpCall *c)
{
  const char *cell = ((const RecurrentLoopAttrs *)c->attrs)->cell;
  if (!strcmp(cell, "lstm")) return CELL_LSTM;
  if (!strcmp(cell, "gru")) return CELL_GRU;
  if (strcmp(cell, "rnn")) opdef_raise(c, ERR_ARGUMENT, "cell '%s' is not one of rnn, lstm, gru", cell);
  return CELL_RNN;
}

static RecurrentAttrs plain_attrs(const RecurrentLoopAttrs *a)
{
  return (RecurrentAttrs){.hidden_size = a->hidden_size,
                          .direction = a->direction,
                          .activations = a->activations,
                          .activation_alpha = a->activation_alpha,
                          .activation_beta = a->activation_beta,
                          .clip = a->clip,
                          .linear_before_reset = a->linear_before_reset,
                          .input_forget = a->input_forget,
                          .layout = a->layout,
                          .inputs = a->inputs};
}

static const Type *loop_type(OpCall *c)
{
  Module *m = c->m;
  const RecurrentLoopAttrs *la = c->attrs;
  nn_want_float(c, 0, "gates");
  RecurrentAttrs a = plain_attrs(la);
  Recurrent q = recurrent_of(c, loop_cell(c), &a, 2);
  const Expr *dir = expr_i32(m, q.ndir);
  const Expr *rows = expr_i32(m, q.gates * a.hidden_size);
  want_shape(c, 0, "gates", 3,
             (const Expr *[]){c->arg[0]->shape[0], c->arg[0]->shape[1], expr_i32(m, q.ndir * q.gates * a.hidden_size)});
  if (la->block < 0 || la->block > a.hidden_size)
    opdef_raise(c, ERR_ARGUMENT, "block is %" PRId64 ", which is not from 0 to hidden_size %" PRId64, la->block,
                a.hidden_size);
  if (la->samples < 1 || (la->samples > 1 && (q.batch->kind != E_INT || q.batch->u.i % la->samples || q.arg[IN_LENS])))
    opdef_raise(c, ERR_ARGUMENT,
                "samples is %" PRId64 ", which has to divide the batch of %s and to be 1 with sequence_lens",
                la->samples, expr_str_of(scratch(m->ctx), q.batch));
  if (la->block)
    want_shape(c, 1, "recurrence", 5,
               (const Expr *[]){dir, expr_i32(m, (a.hidden_size + la->block - 1) / la->block), q.hidden,
                                expr_i32(m, q.gates), expr_i32(m, la->block)});
  else want_shape(c, 1, "recurrence", 3, (const Expr *[]){dir, rows, q.hidden});
  if (q.arg[IN_RESET_BIAS]) want_shape(c, q.arg[IN_RESET_BIAS], "reset_bias", 2, (const Expr *[]){dir, q.hidden});
  want_optional(c, &q);
  return result_type(&q);
}

/* ---- expressions ----------------------------------------------------------------------------------------- */

static const Expr *activate(const Recurrent *q, const Activation *act, const Expr *x)
{
  Module *m = q->m;
  DType t = x->dtype;
  const Expr *zero = expr_const(m, t, 0);
  const Expr *one = expr_const(m, t, 1);
  const Expr *alpha = expr_const(m, t, act->alpha);
  const Expr *beta = expr_const(m, t, act->beta);
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
  return expr_max(m, expr_min(m, expr_add(m, expr_mul(m, alpha, x), beta), one), zero); /* HardSigmoid */
}

/* ---- the loops --------------------------------------------------------------------------------------------- */

/* Where the program stands: buffers, and the indices of the loops around. */
typedef struct Step {
  const Recurrent *q;
  Module *m;
  int64_t block, samples; /* units at a time, samples at a time */
  int64_t lanes;          /* units of the block at hand */
  bool packed;
  const Buffer *in[8], *y, *h, *c, *acc, *update, *reset; /* update, reset: gru's z, and r * H */
  /* direction, first sample of the group, sample, time in data */
  const Expr *dir, *first, *n, *at;
  const Expr *which; /* n - first */
  const Expr *unit;  /* number of the block */
  const Activation *act;
} Step;

static const Expr *load(Step *s, const Buffer *b, const Expr *i, const Expr *j, const Expr *k)
{
  const Expr *index[] = {i, j, k};
  return expr_load(s->m, b, b->ndim, index);
}

static const Expr *state_at(Step *s, const Buffer *b, const Expr *k)
{
  return s->q->a->layout ? load(s, b, s->n, s->dir, k) : load(s, b, s->dir, s->n, k);
}

static Stmt *set_state(Step *s, const Buffer *b, const Expr *k, const Expr *value)
{
  const Expr *index[] = {s->q->a->layout ? s->n : s->dir, s->q->a->layout ? s->dir : s->n, k};
  return stmt_store(s->m, b, 3, index, value);
}

static void output_index(Step *s, const Expr *at, const Expr *k, const Expr **index)
{
  bool first = s->q->a->layout;
  index[0] = first ? s->n : at, index[1] = first ? at : s->dir, index[2] = first ? s->dir : s->n, index[3] = k;
}

static Stmt *set_output(Step *s, const Expr *at, const Expr *k, const Expr *value)
{
  const Expr *index[4];
  output_index(s, at, k, index);
  return stmt_store(s->m, s->y, 4, index, value);
}

/* What the input gives to a gate of unit k. */
static const Expr *input_at(Step *s, int gate, const Expr *k)
{
  const Recurrent *q = s->q;
  Module *m = s->m;
  const Expr *row = expr_mul(m, s->dir, expr_i32(m, q->gates * q->a->hidden_size));
  row = expr_add(m, expr_add(m, row, expr_i32(m, gate * q->a->hidden_size)), k);
  return q->a->layout ? load(s, s->in[0], s->n, s->at, row) : load(s, s->in[0], s->at, s->n, row);
}

static Stmt *loop(Module *m, const Var *v, const Expr *n, Stmt *body)
{
  return stmt_for(m, v, expr_i32(m, 0), n, FOR_SERIAL, NULL, body);
}
static const Var *counter(Module *m, const char *name) { return var_new(m, name, DT_I32, VAR_PLAIN); }

static Stmt *over_lanes(Step *s, const Var *lane, Stmt *body)
{
  return stmt_for(s->m, lane, expr_i32(s->m, 0), expr_i32(s->m, s->lanes), s->lanes > 1 ? FOR_VECTORIZED : FOR_SERIAL,
                  NULL, body);
}

static const Expr *unit_at(Step *s, const Var *lane)
{
  return expr_add(s->m, expr_mul(s->m, s->unit, expr_i32(s->m, s->block)), lane->expr);
}

/* A loop over the samples of a group begins: what is built up to end_samples stands for sample s->n. */
static const Var *begin_samples(Step *s)
{
  const Var *v = s->samples > 1 ? counter(s->m, "sample") : NULL;
  s->which = v ? v->expr : expr_i32(s->m, 0);
  s->n = v ? expr_add(s->m, s->first, v->expr) : s->first;
  return v;
}

static Stmt *end_samples(Step *s, const Var *v, ForKind kind, Stmt *body)
{
  return v ? stmt_for(s->m, v, expr_i32(s->m, 0), expr_i32(s->m, s->samples), kind, NULL, body) : body;
}

/* All blocks of units, one after the other. */
static Stmt *over_units(Step *s, Stmt *(*body)(Step *))
{
  const Var *u = counter(s->m, "u");
  const Expr *before = s->unit;
  const Expr *whole = expr_i32(s->m, s->q->a->hidden_size / s->block);
  int64_t left = s->q->a->hidden_size % s->block;
  s->unit = u->expr;
  Stmt *all = loop(s->m, u, whole, body(s));
  if (left) {
    s->unit = whole;
    s->lanes = left;
    all = stmt_seq(s->m, 2, (Stmt *[]){all, body(s)});
    s->lanes = s->block;
  }
  s->unit = before;
  return all;
}

/* The same for what treats each sample by itself. */
static Stmt *over_states(Step *s, Stmt *(*body)(Step *))
{
  const Var *v = begin_samples(s);
  return end_samples(s, v, FOR_SERIAL, over_units(s, body));
}

static const Expr *sum_at(Step *s, int gate, const Expr *lane)
{
  return expr_load(s->m, s->acc, 3, (const Expr *[]){s->which, expr_i32(s->m, gate), lane});
}

static Stmt *set_sum(Step *s, int gate, const Expr *lane, const Expr *value)
{
  return stmt_store(s->m, s->acc, 3, (const Expr *[]){s->which, expr_i32(s->m, gate), lane}, value);
}

static const Expr *recurrence_at(Step *s, int gate, const Expr *k, const Var *lane)
{
  Module *m = s->m;
  if (s->packed) return expr_load(m, s->in[1], 5, (const Expr *[]){s->dir, s->unit, k, expr_i32(m, gate), lane->expr});
  return load(s, s->in[1], s->dir, expr_add(m, expr_i32(m, gate * s->q->a->hidden_size), unit_at(s, lane)), k);
}

/* The sums of gates [first, first + count) of the block: what the input gave (or `start` of the last gate, where the
 * state's part stands alone) and the products with the state, or with r * H. */
static Stmt *sum_gates(Step *s, int first, int count, bool from_reset, bool last_alone)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *k = counter(m, "k");
  const Var *sample = begin_samples(s);
  Stmt *start[4], *add[4];
  for (int g = 0; g < count; g++) {
    const Var *a = counter(m, "l");
    bool alone = last_alone && g == count - 1;
    const Expr *bias = q->arg[IN_RESET_BIAS] ? load(s, s->in[q->arg[IN_RESET_BIAS]], s->dir, unit_at(s, a), NULL)
                                             : expr_const(m, q->t, 0);
    start[g] = over_lanes(s, a, set_sum(s, first + g, a->expr, alone ? bias : input_at(s, first + g, unit_at(s, a))));
  }
  Stmt *begin = end_samples(s, sample, FOR_UNROLLED, stmt_seq(m, count, start));
  sample = begin_samples(s);
  const Expr *state =
      from_reset ? expr_load(m, s->reset, 2, (const Expr *[]){s->n, k->expr}) : state_at(s, s->h, k->expr);
  for (int g = 0; g < count; g++) {
    const Var *b = counter(m, "l");
    const Expr *term = expr_mul(m, state, recurrence_at(s, first + g, k->expr, b));
    add[g] = over_lanes(s, b, set_sum(s, first + g, b->expr, expr_add(m, sum_at(s, first + g, b->expr), term)));
  }
  Stmt *sum = loop(m, k, q->hidden, end_samples(s, sample, FOR_UNROLLED, stmt_seq(m, count, add)));
  return stmt_seq(m, 2, (Stmt *[]){begin, sum});
}

static Stmt *rnn_units(Step *s)
{
  Stmt *sums = sum_gates(s, 0, 1, false, false);
  const Var *l = counter(s->m, "l");
  const Var *sample = begin_samples(s);
  Stmt *next = set_output(s, s->at, unit_at(s, l), activate(s->q, &s->act[0], sum_at(s, 0, l->expr)));
  return stmt_seq(s->m, 2, (Stmt *[]){sums, end_samples(s, sample, FOR_SERIAL, over_lanes(s, l, next))});
}

static const Expr *peeped(Step *s, const Expr *gate, int which, const Expr *k, const Expr *cell)
{
  if (!s->q->arg[IN_PEEPHOLE]) return gate;
  const Expr *row = expr_add(s->m, expr_i32(s->m, which * s->q->a->hidden_size), k);
  return expr_add(s->m, gate, expr_mul(s->m, load(s, s->in[s->q->arg[IN_PEEPHOLE]], s->dir, row, NULL), cell));
}

static Stmt *lstm_units(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  Stmt *sums = sum_gates(s, 0, 4, false, false);
  const Var *a = counter(m, "l");
  const Var *b = counter(m, "l");
  const Var *sample = begin_samples(s);
  const Expr *k = unit_at(s, a);
  const Expr *cell = state_at(s, s->c, k);
  const Expr *i = activate(q, &s->act[0], peeped(s, sum_at(s, 0, a->expr), 0, k, cell));
  const Expr *f = q->a->input_forget ? expr_sub(m, expr_const(m, q->t, 1), i)
                                     : activate(q, &s->act[0], peeped(s, sum_at(s, 2, a->expr), 2, k, cell));
  const Expr *next = expr_add(m, expr_mul(m, f, cell), expr_mul(m, i, activate(q, &s->act[1], sum_at(s, 3, a->expr))));
  Recurrent unclipped = *q;
  RecurrentAttrs plain = *q->a;
  plain.clip = 0;
  unclipped.a = &plain;
  const Expr *j = unit_at(s, b);
  const Expr *made = state_at(s, s->c, j); /* the new cell */
  const Expr *o = activate(q, &s->act[0], peeped(s, sum_at(s, 1, b->expr), 1, j, made));
  Stmt *output = set_output(s, s->at, j, expr_mul(m, o, activate(&unclipped, &s->act[2], made)));
  Stmt *state = stmt_seq(m, 2, (Stmt *[]){over_lanes(s, a, set_state(s, s->c, k, next)), over_lanes(s, b, output)});
  return stmt_seq(m, 2, (Stmt *[]){sums, end_samples(s, sample, FOR_SERIAL, state)});
}

static const Expr *gru_next(Step *s, const Expr *z, const Expr *hidden, const Expr *k)
{
  Module *m = s->m;
  const Expr *one = expr_const(m, s->q->t, 1);
  return expr_add(m, expr_mul(m, expr_sub(m, one, z), activate(s->q, &s->act[1], hidden)),
                  expr_mul(m, z, state_at(s, s->h, k)));
}

/* With linear_before_reset all three products stand in one round. */
static Stmt *gru_linear_units(Step *s)
{
  Module *m = s->m;
  Stmt *sums = sum_gates(s, 0, 3, false, true);
  const Var *l = counter(m, "l");
  const Var *sample = begin_samples(s);
  const Expr *k = unit_at(s, l);
  const Expr *z = activate(s->q, &s->act[0], sum_at(s, 0, l->expr));
  const Expr *r = activate(s->q, &s->act[0], sum_at(s, 1, l->expr));
  const Expr *hidden = expr_add(m, input_at(s, 2, k), expr_mul(m, r, sum_at(s, 2, l->expr)));
  Stmt *next = over_lanes(s, l, set_output(s, s->at, k, gru_next(s, z, hidden, k)));
  return stmt_seq(m, 2, (Stmt *[]){sums, end_samples(s, sample, FOR_SERIAL, next)});
}

static Stmt *gru_first_units(Step *s)
{
  Module *m = s->m;
  Stmt *sums = sum_gates(s, 0, 2, false, false);
  const Var *a = counter(m, "l");
  const Var *b = counter(m, "l");
  const Var *sample = begin_samples(s);
  const Expr *at[] = {s->n, unit_at(s, a)};
  const Expr *to[] = {s->n, unit_at(s, b)};
  Stmt *z = stmt_store(m, s->update, 2, at, activate(s->q, &s->act[0], sum_at(s, 0, a->expr)));
  Stmt *r = stmt_store(m, s->reset, 2, to,
                       expr_mul(m, activate(s->q, &s->act[0], sum_at(s, 1, b->expr)), state_at(s, s->h, to[1])));
  Stmt *both = stmt_seq(m, 2, (Stmt *[]){over_lanes(s, a, z), over_lanes(s, b, r)});
  return stmt_seq(m, 2, (Stmt *[]){sums, end_samples(s, sample, FOR_SERIAL, both)});
}

static Stmt *gru_second_units(Step *s)
{
  Stmt *sums = sum_gates(s, 2, 1, true, false);
  const Var *l = counter(s->m, "l");
  const Var *sample = begin_samples(s);
  const Expr *k = unit_at(s, l);
  const Expr *z = expr_load(s->m, s->update, 2, (const Expr *[]){s->n, k});
  Stmt *next = set_output(s, s->at, k, gru_next(s, z, sum_at(s, 2, l->expr), k));
  return stmt_seq(s->m, 2, (Stmt *[]){sums, end_samples(s, sample, FOR_SERIAL, over_lanes(s, l, next))});
}

static Stmt *step_of(Step *s)
{
  switch (s->q->cell) {
  case CELL_RNN: return over_units(s, rnn_units);
  case CELL_LSTM: return over_units(s, lstm_units);
  case CELL_GRU:
    if (s->q->a->linear_before_reset) return over_units(s, gru_linear_units);
    return stmt_seq(s->m, 2, (Stmt *[]){over_units(s, gru_first_units), over_units(s, gru_second_units)});
  }
  return NULL;
}

static Stmt *first_units(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *a = counter(m, "l");
  const Var *b = counter(m, "l");
  const Expr *zero = expr_const(m, q->t, 0);
  const Expr *i = unit_at(s, a);
  const Expr *j = unit_at(s, b);
  Stmt *part[2] = {over_lanes(s, a, set_state(s, s->h, i, q->arg[IN_H] ? state_at(s, s->in[q->arg[IN_H]], i) : zero))};
  if (s->c)
    part[1] = over_lanes(s, b, set_state(s, s->c, j, q->arg[IN_C] ? state_at(s, s->in[q->arg[IN_C]], j) : zero));
  return stmt_seq(m, s->c ? 2 : 1, part);
}

/* The new state becomes the state. */
static Stmt *keep_units(Step *s)
{
  const Var *l = counter(s->m, "l");
  const Expr *k = unit_at(s, l);
  const Expr *index[4];
  output_index(s, s->at, k, index);
  return over_lanes(s, l, set_state(s, s->h, k, expr_load(s->m, s->y, 4, index)));
}

static Stmt *zero_units(Step *s)
{
  const Var *l = counter(s->m, "l");
  return over_lanes(s, l, set_output(s, s->at, unit_at(s, l), expr_const(s->m, s->q->t, 0)));
}

/* All steps of direction s->dir for a group of samples; backward: 1 where time runs backwards. */
static Stmt *all_steps(Step *s, const Expr *backward)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  const Var *t = counter(m, "t");
  const Expr *len = q->steps;
  if (q->arg[IN_LENS]) {
    const Expr *given = expr_cast(m, DT_I32, load(s, s->in[q->arg[IN_LENS]], s->first, NULL, NULL));
    len = expr_max(m, expr_min(m, given, q->steps), expr_i32(m, 0));
  }
  const Expr *back = expr_sub(m, expr_sub(m, len, expr_i32(m, 1)), t->expr);
  s->at = expr_is_int(backward, 0)   ? t->expr
          : expr_is_int(backward, 1) ? back
                                     : expr_select(m, expr_binary(m, E_EQ, backward, expr_i32(m, 1)), back, t->expr);
  Stmt *start = over_states(s, first_units);
  Stmt *body = stmt_seq(m, 2, (Stmt *[]){step_of(s), over_states(s, keep_units)});
  if (q->arg[IN_LENS]) {
    s->at = t->expr;
    body = stmt_if(m, expr_lt(m, t->expr, len), body, over_states(s, zero_units));
  }
  return stmt_seq(m, 2, (Stmt *[]){start, loop(m, t, q->steps, body)});
}

/* Both directions and all samples at once where the directions do the same, else one after the other. */
static Stmt *all_directions(Step *s)
{
  Module *m = s->m;
  const Recurrent *q = s->q;
  bool alike = q->ndir == 1;
  if (q->ndir == 2) {
    alike = true;
    for (int i = 0; i < q->nact; i++)
      alike &= !strcmp(q->act[0][i].name, q->act[1][i].name) && q->act[0][i].alpha == q->act[1][i].alpha &&
               q->act[0][i].beta == q->act[1][i].beta;
  }
  Stmt *part[2];
  int nparts = alike ? 1 : 2;
  for (int d = 0; d < nparts; d++) {
    const Var *v = counter(m, "n");
    const Expr *groups = s->samples > 1 ? expr_i32(m, q->batch->u.i / s->samples) : q->batch;
    const Expr *extent = alike ? expr_mul(m, expr_i32(m, q->ndir), groups) : groups;
    bool both = alike && q->ndir == 2;
    bool one = expr_is_int(groups, 1);
    s->dir = !both ? expr_i32(m, d) : one ? v->expr : expr_floordiv(m, v->expr, groups);
    s->first = !both ? v->expr : one ? expr_i32(m, 0) : expr_floormod(m, v->expr, groups);
    if (s->samples > 1) s->first = expr_mul(m, s->first, expr_i32(m, s->samples));
    s->act = q->act[d];
    Stmt *body = all_steps(s, both ? s->dir : expr_i32(m, d == 1 || q->reverse_first));
    if (s->reset) body = stmt_alloc(m, s->update, stmt_alloc(m, s->reset, body));
    part[d] = stmt_for(m, v, expr_i32(m, 0), extent, expr_is_int(extent, 1) ? FOR_SERIAL : FOR_PARALLEL, NULL,
                       stmt_alloc(m, s->acc, body));
  }
  return stmt_seq(m, nparts, part);
}

static void loop_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const RecurrentLoopAttrs *la = c->attrs;
  RecurrentAttrs a = plain_attrs(la);
  Recurrent q = recurrent_of(c, loop_cell(c), &a, 2);
  Step s = {.q = &q, .m = m, .block = la->block ? la->block : 1, .samples = la->samples, .packed = la->block > 0};
  s.lanes = s.block;
  int nout = c->out->nfield;
  const Buffer *results[3];
  for (int i = 0; i < c->nargs; i++)
    s.in[i] = buffer_new(m,
                         i == 0   ? "gates"
                         : i == 1 ? "r"
                                  : a.inputs.v[i - 2],
                         in[i]->buffer->dtype, in[i]->buffer->ndim, in[i]->buffer->shape, NULL, NULL, NULL, 0, 0, NULL);
  for (int i = 0; i < nout; i++)
    results[i] = buffer_new(m,
                            i == 0   ? "y"
                            : i == 1 ? "y_h"
                                     : "y_c",
                            q.t, c->out->field[i]->ndim, c->out->field[i]->shape, NULL, NULL, NULL, 0, 0, NULL);
  s.y = results[0];
  s.h = results[1];
  s.c = nout > 2 ? results[2] : NULL;
  const Expr *sums[] = {expr_i32(m, s.samples), expr_i32(m, q.gates), expr_i32(m, s.block)};
  const Expr *states[] = {q.batch, q.hidden};
  s.acc = buffer_new(m, "sums", q.t, 3, sums, NULL, NULL, "local", 0, 0, NULL);
  if (q.cell == CELL_GRU && !a.linear_before_reset) {
    s.update = buffer_new(m, "update", q.t, 2, states, NULL, NULL, NULL, 0, 0, NULL);
    s.reset = buffer_new(m, "reset", q.t, 2, states, NULL, NULL, NULL, 0, 0, NULL);
  }
  Stmt *body = all_directions(&s);
  stmt_link(body, NULL);
  const TeOp *op = te_extern(m, "recurrent", "recurrent", c->nargs, in, s.in, nout, results, body, NULL);
  for (int i = 0; i < nout; i++) out[i] = &op->out[i];
}

const OpDef op_nn_contrib_recurrent = {
  .name = "nn.contrib_recurrent",
  .doc = "the loop over time of rnn, lstm and gru, over what the input gives to the gates",
  .args = "gates, recurrence, optional1, optional2, optional3, optional4, optional5",
  .min_args = 2,
  .max_args = 7,
  .attrs = &RecurrentLoop_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = loop_type,
  .compute = loop_compute,
};

/* ---- the whole: a product over all steps, then the loop --------------------------------------------------- */

static const Node *reshaped(Module *m, const Node *x, int n, const Expr *const *shape)
{
  ReshapeAttrs *a = attrs_new(m, &Reshape_attrs);
  attrs_set_dims(m, &Reshape_attrs, a, "newshape", n, shape);
  return nn_call(m, "reshape", 1, &x, a);
}

static const Node *columns(Module *m, const Node *x, int64_t first, int64_t last)
{
  StridedSliceAttrs *a = attrs_new(m, &StridedSlice_attrs);
  attrs_set_ints(m, &StridedSlice_attrs, a, "begin", 1, &first);
  attrs_set_ints(m, &StridedSlice_attrs, a, "end", 1, &last);
  attrs_set_ints(m, &StridedSlice_attrs, a, "axes", 1, (const int64_t[]){1});
  return nn_call(m, "strided_slice", 1, &x, a);
}

/* The bias of every gate, (directions * gates * hidden); what gru adds before it resets is left out. */
static const Node *gate_bias(const Recurrent *q, const Node *bias)
{
  Module *m = q->m;
  int64_t h = q->a->hidden_size;
  int64_t rows = q->gates * h;
  int64_t both = q->cell == CELL_GRU && q->a->linear_before_reset ? 2 * h : rows;
  const Node *sum = nn_call2(m, "add", columns(m, bias, 0, both), columns(m, bias, rows, rows + both));
  if (both < rows) {
    ConcatenateAttrs *a = attrs_new(m, &Concatenate_attrs);
    a->axis = 1;
    const Node *parts = node_tuple(m, 2, (const Node *[]){sum, columns(m, bias, both, rows)});
    sum = nn_call(m, "concatenate", 1, &parts, a);
  }
  return reshaped(m, sum, 1, (const Expr *[]){expr_i32(m, q->ndir * rows)});
}

static const Node *recurrent_decompose(Module *m, const Node *call)
{
  const Type *type[8];
  for (int i = 0; i < call->nargs; i++) type[i] = type_unguarded(m, call->arg[i]->type);
  OpCall c = {.m = m,
              .op = call->u.call.op,
              .attrs = call->u.call.attrs,
              .nargs = call->nargs,
              .arg = type,
              .node = call->arg,
              .name = call->name};
  Recurrent q = recurrent_of(&c, cell_of(c.op), c.attrs, 3);
  const RecurrentAttrs *a = q.a;
  static const char *const cells[] = {"rnn", "lstm", "gru"};
  const Expr *rows = expr_i32(m, q.ndir * q.gates * a->hidden_size);
  const Node *x = reshaped(m, call->arg[0], 2, (const Expr *[]){expr_i32(m, -1), q.input});
  const Node *gates = nn_call2(m, "nn.dense", x, reshaped(m, call->arg[1], 2, (const Expr *[]){rows, q.input}));
  if (q.arg[IN_BIAS]) gates = nn_call2(m, "add", gates, gate_bias(&q, call->arg[q.arg[IN_BIAS]]));
  gates = reshaped(m, gates, 3, (const Expr *[]){type[0]->shape[0], type[0]->shape[1], rows});
  const Node *arg[8] = {gates, call->arg[2]};
  const char *name[8];
  int n = 0;
  if (q.cell == CELL_GRU && a->linear_before_reset && q.arg[IN_BIAS]) {
    arg[2 + n] = columns(m, call->arg[q.arg[IN_BIAS]], 5 * a->hidden_size, 6 * a->hidden_size);
    name[n++] = optional_names[IN_RESET_BIAS];
  }
  for (int k = IN_LENS; k <= IN_PEEPHOLE; k++)
    if (q.arg[k]) {
      arg[2 + n] = call->arg[q.arg[k]];
      name[n++] = optional_names[k];
    }
  RecurrentLoopAttrs *to = attrs_new(m, &RecurrentLoop_attrs);
  to->cell = cells[q.cell];
  to->hidden_size = a->hidden_size, to->direction = a->direction, to->clip = a->clip, to->layout = a->layout;
  to->activations = a->activations, to->activation_alpha = a->activation_alpha,
  to->activation_beta = a->activation_beta;
  to->linear_before_reset = a->linear_before_reset, to->input_forget = a->input_forget;
  attrs_set_strs(m, &RecurrentLoop_attrs, to, "inputs", n, name);
  return node_call(m, &op_nn_contrib_recurrent, 2 + n, arg, to, call->name);
}

#define RECURRENT_OP(id, text, what)                                                           \
  const OpDef id = {                                                                           \
    .name = text,                                                                              \
    .doc = what,                                                                               \
    .args = "data, weight, recurrence, optional1, optional2, optional3, optional4, optional5", \
    .min_args = 3,                                                                             \
    .max_args = 8,                                                                             \
    .attrs = &Recurrent_attrs,                                                                 \
    .fuse = FUSE_OPAQUE,                                                                       \
    .narrow = NARROW_NEVER,                                                                    \
    .type = recurrent_type,                                                                    \
    .decompose = recurrent_decompose,                                                          \
  };
RECURRENT_OP(op_nn_rnn, "nn.rnn", "simple recurrent network over (time, batch, input)")
RECURRENT_OP(op_nn_lstm, "nn.lstm", "long short-term memory over (time, batch, input)")
RECURRENT_OP(op_nn_gru, "nn.gru", "gated recurrent units over (time, batch, input)")
