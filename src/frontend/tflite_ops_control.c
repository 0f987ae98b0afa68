/* tflite_ops_control.c: IF, WHILE, CALL_ONCE and resource variables.
 *
 * Bodies are subgraphs that see their own tensors alone.  IF is a conditional expression; WHILE a global function that
 * calls itself:
 *
 *   def @while(state…) { if (cond(state…)) { @while(body(state…)…) } else { (state…) } }
 *
 * A variable has a value that operators replace as they are converted; bodies that may assign one take all of them in
 * and give them out.  Its value at the end of a run is a state: the next run begins with it, the first one with what
 * CALL_ONCE's subgraph assigns, or zeros.  One that nothing but CALL_ONCE assigns is what that assigns. */
#include "frontend/tflite_ops.h"

enum { ROUNDS = 64 }; /* of widening types */

/* ---- variables ----------------------------------------------------------------------------------------- */

static int variable_of(Conversion *c, const Node *handle)
{
  int n = 0;
  const int64_t *v = kit_const_ints(c, handle, &n);
  int count = tfl_of(c->im)->variables.n;
  if (!v || n != 1 || v[0] < 0 || v[0] >= count)
    kit_fail(c, ERR_UNSUPPORTED, "which variable is meant must be known when the model is compiled");
  return (int)v[0];
}

/* Does this operator of the subgraph give the tensor, as the handle of a variable? */
static const char *handle_name(const TflGraph *g, int32_t tensor)
{
  for (int i = 0; i < g->nops; i++)
    if (!strcmp(g->op[i].op, "VAR_HANDLE") && g->op[i].nout && g->op[i].out[0] == tensor)
      return flat_str(&g->op[i].options, 1);
  return NULL;
}

static bool runs_once(const TflModel *m, int graph)
{
  for (int k = 0; k < m->ngraphs; k++)
    for (int i = 0; i < m->graph[k].nops; i++) {
      const TflOperator *op = &m->graph[k].op[i];
      if (!strcmp(op->op, "CALL_ONCE") && flat_int(&op->options, 0, 4, 0) == graph) return true;
    }
  return false;
}

/* May anything but CALL_ONCE assign the variable?  A handle that comes from outside may be of any. */
static bool changes(const TflModel *m, const char *name)
{
  for (int k = 0; k < m->ngraphs; k++) {
    const TflGraph *g = &m->graph[k];
    for (int i = 0; !runs_once(m, k) && i < g->nops; i++) {
      if (strcmp(g->op[i].op, "ASSIGN_VARIABLE") != 0 || !g->op[i].nin) continue;
      const char *handle = handle_name(g, g->op[i].in[0]);
      if (!handle || !strcmp(handle, name)) return true;
    }
  }
  return false;
}

/* The variable when a run begins, first with this value. */
static const Node *begin_variable(Conversion *c, TflVariable *v, const Node *first, bool zeros)
{
  int at;
  if (!changes(tfl_of(c->im)->model, v->name)) return v->begin = first;
  const Type *t = kit_tensor_type(c, first);
  int64_t size;
  for (int d = 0; d < t->ndim; d++)
    if (!kit_is_static_dim(t->shape[d], &size))
      kit_fail(c, ERR_UNSUPPORTED, "the variable '%s' is %s; its sizes must be known", v->name,
               type_text(scratch(c->ctx), t));
  v->begin = tfl_state(c->im, v->name, zeros ? NULL : first, t, &at);
  v->state = 1 + at;
  return v->begin;
}

/* The number of the variable, by its name. */
const Node *tfl_convert_var_handle(Conversion *c)
{
  TflImport *own = tfl_of(c->im);
  const char *name = flat_str(&tfl_op(c)->options, 1);
  int at = 0;
  while (at < own->variables.n && strcmp(own->variables.v[at].name, name)) at++;
  if (at == own->variables.n) vec_push(c->im->arena, &own->variables, ((TflVariable){.name = name}));
  return kit_scalar(c, DT_I32, at);
}

const Node *tfl_convert_read_variable(Conversion *c)
{
  TflVariable *v = &tfl_of(c->im)->variables.v[variable_of(c, kit_in(c, 0))];
  if (v->value) return v->value;
  if (v->begin) return v->value = v->begin;
  const TflTensor *t = tfl_out(c, 0);
  for (int i = 0; i < t->ndim; i++)
    if (t->dim[i] < 0) kit_fail(c, ERR_UNSUPPORTED, "the variable '%s' is read before it has a value", v->name);
  double zero = tfl_is_quantized(t) ? (double)tfl_zero(c, t) : 0;
  const Node *first = kit_full(c, kit_scalar(c, t->dtype, zero), kit_const_i64(c, t->ndim, t->dim), t->dtype);
  return v->value = begin_variable(c, v, first, zero == 0);
}

const Node *tfl_convert_assign_variable(Conversion *c)
{
  const Node *value = kit_in(c, 1);
  tfl_of(c->im)->variables.v[variable_of(c, kit_in(c, 0))].value = value;
  return NULL;
}

static const Node **values_now(Conversion *c, int n)
{
  const Node **v = arena_array(c->im->arena, const Node *, n + 1);
  for (int i = 0; i < n; i++) {
    const TflVariable *one = &tfl_of(c->im)->variables.v[i];
    v[i] = one->value ? one->value : one->begin;
  }
  return v;
}

static void set_values(Conversion *c, int n, const Node *const *v)
{
  for (int i = 0; i < n; i++) tfl_of(c->im)->variables.v[i].value = v[i];
}

const Node *tfl_convert_call_once(Conversion *c)
{
  TflGraph *g = tfl_subgraph(c, tfl_int(c, 0, 0), "the initialisation");
  if (g->nin || g->nout)
    kit_fail(c, ERR_ARGUMENT, "subgraph '%s' has %d inputs and %d outputs; none are wanted", g->name, g->nin, g->nout);
  TflImport *own = tfl_of(c->im);
  int before = own->variables.n;
  const Node **was = values_now(c, before);
  tfl_import_graph(c->im, g, NULL, NULL);
  for (int i = 0; i < own->variables.n; i++) {
    TflVariable *v = &own->variables.v[i];
    if (!v->value || (i < before && v->value == was[i])) continue;
    if (v->state) kit_fail(c, ERR_UNSUPPORTED, "the variable '%s' is used before it gets its first value", v->name);
    v->value = begin_variable(c, v, v->value, false);
  }
  return NULL;
}

/* ---- bodies ----------------------------------------------------------------------------------------------- */

static void check_ports(Conversion *c, const TflGraph *g, const char *what, int nin, int nout)
{
  if (g->nin != nin || g->nout != nout)
    kit_fail(c, ERR_ARGUMENT, "%s '%s' has %d inputs and %d outputs; %d and %d are wanted", what, g->name, g->nin,
             g->nout, nin, nout);
}

/* Resources go in and out as what they are: the number of a variable. */
static bool is_resource(const TflGraph *g, int input) { return g->tensor[g->in[input]].type == 13; }

/* ---- IF ------------------------------------------------------------------------------------------------------ */

typedef struct Branch {
  const Node **out, **value; /* outputs; what the variables are afterwards */
} Branch;

static Branch convert_branch(Conversion *c, TflGraph *g, int nvars, const Node *const *before)
{
  Branch b = {.out = arena_array(c->im->arena, const Node *, g->nout + 1)};
  set_values(c, nvars, before);
  for (int i = 1; i < c->nin; i++) kit_in(c, i);
  tfl_import_graph(c->im, g, c->in + 1, b.out);
  b.value = values_now(c, tfl_of(c->im)->variables.n);
  return b;
}

const Node *tfl_convert_if(Conversion *c)
{
  const Node *cond = kit_scalar_of(c, kit_in(c, 0));
  TflGraph *yes = tfl_subgraph(c, tfl_int(c, 0, 0), "the branch taken");
  TflGraph *no = tfl_subgraph(c, tfl_int(c, 1, 0), "the other branch");
  check_ports(c, yes, "the branch taken", c->nin - 1, c->nout);
  check_ports(c, no, "the other branch", c->nin - 1, c->nout);
  int before = tfl_of(c->im)->variables.n;
  const Node **was = values_now(c, before);
  Branch a = convert_branch(c, yes, before, was);
  Branch b = convert_branch(c, no, before, was);
  int n = c->nout;
  const Node **both[2] = {arena_array(c->im->arena, const Node *, n + before + 1),
                          arena_array(c->im->arena, const Node *, n + before + 1)};
  int *variable = arena_array(c->im->arena, int, before + 1);
  for (int i = 0; i < n; i++) both[0][i] = a.out[i], both[1][i] = b.out[i];
  for (int i = 0; i < before; i++) {
    if (a.value[i] == b.value[i]) continue;
    if (!a.value[i] || !b.value[i]) kit_fail(c, ERR_UNSUPPORTED, "a variable gets its first value in one branch alone");
    variable[n - c->nout] = i;
    both[0][n] = a.value[i];
    both[1][n++] = b.value[i];
  }
  if (!n) return NULL;
  const Node *r = node_if(c->m, cond, node_tuple(c->m, n, both[0]), node_tuple(c->m, n, both[1]));
  for (int i = 0; i < c->nout; i++) c->out[i] = node_get(c->m, r, i);
  for (int i = c->nout; i < n; i++) tfl_of(c->im)->variables.v[variable[i - c->nout]].value = node_get(c->m, r, i);
  return NULL;
}

/* ---- WHILE ----------------------------------------------------------------------------------------------------- */

typedef struct Loop {
  TflGraph *cond, *body;
  int n; /* states: inputs that are no resources, then the variables */
  int nvars;
  int *input; /* of the first of them, which */
  const Node **init;
} Loop;

/* One evaluation of a subgraph over the states; gives its outputs in out. */
static void over_states(Conversion *c, const Loop *l, TflGraph *g, const Node *const *state, const Node **out)
{
  const Node **in = arena_array(c->im->arena, const Node *, c->nin + 1);
  for (int i = 0; i < c->nin; i++) in[i] = c->in[i];
  for (int i = 0; i < l->n - l->nvars; i++) in[l->input[i]] = state[i];
  set_values(c, l->nvars, state + l->n - l->nvars);
  tfl_import_graph(c->im, g, in, out);
  if (tfl_of(c->im)->variables.n != l->nvars)
    kit_fail(c, ERR_UNSUPPORTED, "a variable that is first named inside a loop is not supported");
}

typedef struct Turn {
  const Node **state, **next;
  const Node *go;
} Turn;

static Turn convert_turn(Conversion *c, const Loop *l, const Type *const *types)
{
  Turn t = {.state = arena_array(c->im->arena, const Node *, l->n + 1),
            .next = arena_array(c->im->arena, const Node *, l->n + 1)};
  for (int i = 0; i < l->n; i++) t.state[i] = node_var(c->m, arena_printf(c->im->arena, "state%d", i), types[i]);
  const Node *go[1];
  const Node **out = arena_array(c->im->arena, const Node *, c->nin + 1);
  over_states(c, l, l->cond, t.state, go);
  t.go = kit_scalar_of(c, go[0]);
  over_states(c, l, l->body, t.state, out);
  for (int i = 0; i < l->n - l->nvars; i++) t.next[i] = out[l->input[i]];
  const Node **v = values_now(c, l->nvars);
  for (int i = 0; i < l->nvars; i++) t.next[l->n - l->nvars + i] = v[i];
  return t;
}

/* Converts the body until its states come out with the types with which they went in. */
static Turn settle(Conversion *c, const Loop *l, const Type **types)
{
  for (int i = 0; i < l->n; i++) types[i] = kit_param_type(c->m, l->init[i]->type);
  for (int round = 0; round < ROUNDS; round++) {
    Turn t = convert_turn(c, l, types);
    bool same = true;
    for (int i = 0; i < l->n; i++) {
      const Type *next = type_join(c->m, types[i], t.next[i]->type);
      if (!next)
        kit_fail(c, ERR_TYPE, "state %d goes in as %s and comes out as %s", i, type_text(scratch(c->ctx), types[i]),
                 type_text(scratch(c->ctx), t.next[i]->type));
      next = kit_param_type(c->m, next);
      same = same && type_equal(types[i], next);
      types[i] = next;
    }
    if (same) return t;
  }
  kit_fail(c, ERR_UNSUPPORTED, "the shapes of the loop's states do not settle");
}

static Loop read_loop(Conversion *c)
{
  Loop l = {.cond = tfl_subgraph(c, tfl_int(c, 0, 0), "the condition"),
            .body = tfl_subgraph(c, tfl_int(c, 1, 0), "the body"),
            .nvars = tfl_of(c->im)->variables.n};
  check_ports(c, l.cond, "the condition", c->nin, 1);
  check_ports(c, l.body, "the body", c->nin, c->nin);
  if (c->nout > c->nin) kit_fail(c, ERR_ARGUMENT, "%d outputs of %d states", c->nout, c->nin);
  l.input = arena_array(c->im->arena, int, c->nin + 1);
  l.init = arena_array(c->im->arena, const Node *, c->nin + l.nvars + 1);
  for (int i = 0; i < c->nin; i++) {
    kit_in(c, i);
    if (is_resource(l.body, i)) continue;
    l.input[l.n] = i;
    l.init[l.n++] = c->in[i];
  }
  const Node **v = values_now(c, l.nvars);
  for (int i = 0; i < l.nvars; i++) {
    if (!v[i])
      kit_fail(c, ERR_UNSUPPORTED, "the variable '%s' has no value before the loop",
               tfl_of(c->im)->variables.v[i].name);
    l.init[l.n++] = v[i];
  }
  return l;
}

const Node *tfl_convert_while(Conversion *c)
{
  Loop l = read_loop(c);
  const Type **types = arena_array(c->im->arena, const Type *, l.n + 1);
  Turn t = settle(c, &l, types);
  const char *name = arena_printf(c->m->arena, "while_%d", tfl_of(c->im)->nfunctions++);
  const Type *ret = type_tuple(c->m, l.n, types);
  /* declared before it is defined, so that the call inside has a type */
  const Node *declared = node_func(c->m, l.n, t.state, node_var(c->m, "result", ret), ret, NULL);
  module_set(c->m, name, GLOBAL_GRAPH, (void *)(uintptr_t)declared);
  const Node *again = node_apply(c->m, node_global(c->m, name), l.n, t.next);
  const Node *body = node_if(c->m, t.go, again, node_tuple(c->m, l.n, t.state));
  module_set(c->m, name, GLOBAL_GRAPH, (void *)(uintptr_t)node_func(c->m, l.n, t.state, body, ret, NULL));
  const Node *r = node_apply(c->m, node_global(c->m, name), l.n, l.init);
  for (int i = 0; i < c->nout; i++) c->out[i] = c->in[i]; /* of resources */
  for (int i = 0; i < l.n - l.nvars; i++)
    if (l.input[i] < c->nout) c->out[l.input[i]] = node_get(c->m, r, i);
  for (int i = 0; i < l.nvars; i++) tfl_of(c->im)->variables.v[i].value = node_get(c->m, r, l.n - l.nvars + i);
  return NULL;
}
