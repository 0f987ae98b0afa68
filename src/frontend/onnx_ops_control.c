/* onnx_ops_control.c: If, Loop, Scan, SequenceMap; sequences and optionals.
 *
 * Comes in: bodies that see the names around them.  Goes out: If as a conditional
 * expression; a loop as a global function that calls itself:
 *
 *   def @loop(i, limit, cond, state…, collected…, captured…) {
 *     if (i < limit and cond) { body; @loop(i + 1, limit, cond', state'…, collected' …, captured…) }
 *     else { (state…, collected…) }
 *   }
 *
 * What a body takes from outside becomes a parameter.  The types of the states are those
 * that an iteration leaves as they are: a dimension that it changes is "?".  What an
 * iteration gives is collected in a sequence and stacked at the end. */
#include "frontend/onnx_control.h"

enum { ROUNDS = 64 }; /* of widening types; each takes a dimension or a rank away */

/* ---- types of states --------------------------------------------------------------------------- */

/* An empty sequence says nothing of its items: the first insertion does. */
bool onnx_is_bottom(Conversion *c, const Node *n)
{
  return (n->kind == N_CALL && !strcmp(n->u.call.op->name, "sequence.empty")) || map_has(&onnx_of(c->im)->bottoms, n);
}

static bool same_kind(const Type *a, const Type *b)
{
  return a->kind == b->kind && (a->kind != TY_TENSOR || dtype_eq(a->dtype, b->dtype));
}

/* ---- the loop builder ------------------------------------------------------------------------------ */

typedef struct LoopParts { /* of one conversion of the body */
  Captures captures;
  const Node *i, *limit, *cond;
  const Node **state, **state_out, **scan_out;
  const Node *cond_out;
} LoopParts;

static LoopParts convert_body(Conversion *c, Loop *l, const Type *const *types, const bool *bottom)
{
  Arena *a = c->im->arena;
  LoopParts p = {.i = node_var(c->m, "i", type_tensor(c->m, DT_I64, 0, NULL))};
  if (l->limit) p.limit = node_var(c->m, "limit", type_tensor(c->m, DT_I64, 0, NULL));
  if (l->cond) p.cond = node_var(c->m, "go", type_tensor(c->m, DT_BOOL, 0, NULL));
  p.state = arena_array(a, const Node *, l->nstate + 1);
  p.state_out = arena_array(a, const Node *, l->nstate + 1);
  p.scan_out = arena_array(a, const Node *, l->nscan + 1);
  for (int k = 0; k < l->nstate; k++) {
    p.state[k] = node_var(c->m, arena_printf(a, "state%d", k), types[k]);
    if (bottom[k]) map_put(a, &onnx_of(c->im)->bottoms, p.state[k], l);
  }
  Frame *f = arena_new_of(a, Frame);
  f->outer = c->frame;
  f->captures = arena_new_of(a, Captures);
  Conversion inner = *c;
  inner.frame = f;
  if (++onnx_of(c->im)->depth > 64) kit_fail(c, ERR_UNSUPPORTED, "bodies nest deeper than 64");
  l->body(&inner, l, p.i, p.cond, p.state, &p.cond_out, p.state_out, p.scan_out);
  onnx_of(c->im)->depth--;
  p.captures = *f->captures;
  return p;
}

/* Converts the body until its states come out as they went in. */
static LoopParts settle(Conversion *c, Loop *l, const Type **types)
{
  bool *bottom = arena_array(c->im->arena, bool, l->nstate + 1);
  for (int k = 0; k < l->nstate; k++) {
    types[k] = kit_param_type(c->m, l->init[k]->type);
    bottom[k] = onnx_is_bottom(c, l->init[k]);
  }
  for (int round = 0; round < ROUNDS; round++) {
    LoopParts p = convert_body(c, l, types, bottom);
    bool same = true;
    for (int k = 0; k < l->nstate; k++) {
      if (types[k]->kind == TY_OPT && p.state_out[k]->type->kind != TY_OPT) {
        p.state_out[k] = kit_op1(c, "optional.make", p.state_out[k], NULL);
        l->unwrap[k] = true;
      }
      const Type *now = p.state_out[k]->type;
      if (!same_kind(types[k], now))
        kit_fail(c, ERR_TYPE, "state %d goes in as %s and comes out as %s", k, type_text(scratch(c->ctx), types[k]),
                 type_text(scratch(c->ctx), now));
      const Type *next =
          kit_param_type(c->m, bottom[k] && !onnx_is_bottom(c, p.state_out[k]) ? now : type_join(c->m, types[k], now));
      if (bottom[k] && onnx_is_bottom(c, p.state_out[k])) continue;
      same = same && !bottom[k] && type_equal(types[k], next);
      types[k] = next;
      bottom[k] = false;
    }
    if (same) return p;
  }
  kit_fail(c, ERR_UNSUPPORTED, "the shapes of the loop's states do not settle");
}

/* What the zero-th to the last iteration gave, one above the other; of no iteration: nothing, in the right shape. */
static const Node *stack_up(Conversion *c, const Node *seq, const Type *item, int axis, bool never_empty)
{
  int rank = item->ndim + 1;
  if (item->ndim >= 0) axis = kit_axis_of(c, axis, rank);
  const Node *all = kit_op1(c, "sequence.concat", seq, "axis:i,new_axis:i", axis, 1);
  if (never_empty || item->ndim < 0) return all;
  int64_t dims[64];
  for (int i = 0, k = 0; i < rank; i++) {
    int64_t v = 0;
    if (i != axis) kit_is_static_dim(item->shape[k++], &v);
    dims[i] = i == axis ? 0 : v;
  }
  const Node *none = kit_op1(c, "full", kit_scalar(c, item->dtype, 0), "shape:I,dtype:t", rank, dims, item->dtype);
  const Node *count = kit_op1(c, "sequence.length", seq, NULL);
  return node_if(c->m, kit_op2(c, "equal", count, kit_scalar(c, DT_I64, 0), NULL), none, all);
}

typedef Vec(const Node *) Nodes;

/* The call for the next iteration: same order as the parameters. */
static const Node *next_call(Conversion *c, const Loop *l, const LoopParts *p, const char *name, const Node *const *seq)
{
  Arena *a = c->im->arena;
  Nodes arg = {0};
  vec_push(a, &arg, kit_add(c, p->i, kit_scalar(c, DT_I64, 1)));
  if (p->limit) vec_push(a, &arg, p->limit);
  if (p->cond) vec_push(a, &arg, p->cond_out);
  for (int k = 0; k < l->nstate; k++) vec_push(a, &arg, p->state_out[k]);
  for (int k = 0; k < l->nscan; k++) vec_push(a, &arg, kit_op2(c, "sequence.insert", seq[k], p->scan_out[k], NULL));
  for (int k = 0; k < p->captures.list.n; k++) vec_push(a, &arg, p->captures.list.v[k].var);
  return node_apply(c->m, node_global(c->m, name), arg.n, arg.v);
}

static const Node *loop_condition(Conversion *c, const LoopParts *p)
{
  const Node *more = p->limit ? kit_less(c, p->i, p->limit) : NULL;
  if (!p->cond) return more;
  return more ? kit_op2(c, "logical_and", more, p->cond, NULL) : p->cond;
}

/* The function, its first call; gives (state…, sequence…). */
static const Node *make_loop(Conversion *c, const Loop *l, const LoopParts *p)
{
  Arena *a = c->im->arena;
  const char *name = arena_printf(c->m->arena, "loop_%d", onnx_of(c->im)->nfunctions++);
  Nodes param = {0};
  Nodes first = {0};
  Nodes result = {0};
  const Node **seq = arena_array(a, const Node *, l->nscan + 1);
  vec_push(a, &param, p->i);
  vec_push(a, &first, kit_scalar(c, DT_I64, 0));
  if (p->limit) vec_push(a, &param, p->limit), vec_push(a, &first, l->limit);
  if (p->cond) vec_push(a, &param, p->cond), vec_push(a, &first, l->cond);
  for (int k = 0; k < l->nstate; k++) {
    vec_push(a, &param, p->state[k]);
    vec_push(a, &first, l->init[k]);
    vec_push(a, &result, p->state[k]);
  }
  for (int k = 0; k < l->nscan; k++) {
    const Type *item = kit_param_type(c->m, p->scan_out[k]->type);
    DType dt = item->kind == TY_TENSOR ? item->dtype : DT_F32;
    seq[k] = node_var(c->m, arena_printf(a, "collected%d", k), type_simple(c->m, TY_SEQ, item));
    vec_push(a, &param, seq[k]);
    vec_push(a, &first, kit_op0(c, "sequence.empty", "dtype:t", dt));
    vec_push(a, &result, seq[k]);
  }
  for (int k = 0; k < p->captures.list.n; k++) {
    vec_push(a, &param, p->captures.list.v[k].var);
    vec_push(a, &first, p->captures.list.v[k].outer);
  }
  const Node *done = node_tuple(c->m, result.n, result.v);
  /* A size that is open in a state is another one in the result. */
  const Type **fields = arena_array(a, const Type *, result.n + 1);
  for (int k = 0; k < result.n; k++) fields[k] = kit_param_type(c->m, result.v[k]->type);
  const Type *ret = type_tuple(c->m, result.n, fields);
  /* Declared before it is defined, so that the call inside has a type. */
  const Node *declared = node_func(c->m, param.n, param.v, node_var(c->m, "result", ret), ret, NULL);
  module_set(c->m, name, GLOBAL_GRAPH, (void *)(uintptr_t)declared);
  const Node *body = node_if(c->m, loop_condition(c, p), next_call(c, l, p, name, seq), done);
  module_set(c->m, name, GLOBAL_GRAPH, (void *)(uintptr_t)node_func(c->m, param.n, param.v, body, ret, NULL));
  return node_apply(c->m, node_global(c->m, name), first.n, first.v);
}

const Node *onnx_build_loop(Conversion *c, Loop *l)
{
  const Type **types = arena_array(c->im->arena, const Type *, l->nstate + 1);
  l->unwrap = arena_array(c->im->arena, bool, l->nstate + 1);
  LoopParts p = settle(c, l, types);
  l->scan_type = arena_array(c->im->arena, const Type *, l->nscan + 1);
  for (int k = 0; k < l->nscan; k++) l->scan_type[k] = kit_param_type(c->m, p.scan_out[k]->type);
  return make_loop(c, l, &p);
}

const Node *onnx_loop_stack(Conversion *c, const Loop *l, const Node *result, int k, int axis)
{
  int n = 0;
  const int64_t *trips = l->limit && !l->cond ? kit_const_ints(c, l->limit, &n) : NULL;
  return stack_up(c, node_get(c->m, result, l->nstate + k), l->scan_type[k], axis, trips && trips[0] > 0);
}

/* ---- If ------------------------------------------------------------------------------------------------ */

static const PGraph *body_of(Conversion *c, const char *name)
{
  const PAttr *a = onnx_attr(c, name);
  if (!a || !a->g) kit_fail(c, ERR_ARGUMENT, "attribute '%s' is missing", name);
  return a->g;
}

static const Node **branch(Conversion *c, const char *name)
{
  const PGraph *g = body_of(c, name);
  if (g->output.n < c->nout) kit_fail(c, ERR_ARGUMENT, "%s has %d outputs, the node %d", name, g->output.n, c->nout);
  Frame *f = arena_new_of(c->im->arena, Frame);
  f->outer = c->frame;
  const Node **out = arena_array(c->im->arena, const Node *, g->output.n + 1);
  onnx_import_body(c->im, f, g, out);
  return out;
}

const Node *onnx_if_branches(Conversion *c, const Node ***yes, const Node ***no)
{
  const Node *cond = kit_scalar_of(c, kit_in(c, 0));
  int n = 0;
  const int64_t *known = kit_const_ints(c, cond, &n);
  *yes = *no = NULL;
  if (!known || known[0]) *yes = branch(c, "then_branch");
  if (!known || !known[0]) *no = branch(c, "else_branch");
  return cond;
}

/* ---- Loop ------------------------------------------------------------------------------------------------ */

static void loop_body(Conversion *c, Loop *l, const Node *i, const Node *cond, const Node *const *state,
                      const Node **cond_out, const Node **state_out, const Node **scan_out)
{
  const PGraph *g = l->graph;
  const Node **out = arena_array(c->im->arena, const Node *, g->output.n + 1);
  kit_frame_set(c->im, c->frame, g->input.v[0]->name, i);
  kit_frame_set(c->im, c->frame, g->input.v[1]->name, cond ? cond : node_scalar(c->m, value_int(DT_BOOL, 1)));
  for (int k = 0; k < l->nstate; k++) kit_frame_set(c->im, c->frame, g->input.v[2 + k]->name, state[k]);
  onnx_import_body(c->im, c->frame, g, out);
  *cond_out = cond ? kit_scalar_of(c, out[0]) : NULL;
  for (int k = 0; k < l->nstate; k++) state_out[k] = out[1 + k];
  for (int k = 0; k < l->nscan; k++) scan_out[k] = out[1 + l->nstate + k];
}

static const Node *convert_loop(Conversion *c)
{
  const PGraph *g = body_of(c, "body");
  Loop l = {.graph = g, .nstate = c->nin > 2 ? c->nin - 2 : 0, .body = loop_body};
  l.nscan = g->output.n - 1 - l.nstate;
  if (g->input.n != l.nstate + 2 || l.nscan < 0 || c->nout > l.nstate + l.nscan)
    kit_fail(c, ERR_ARGUMENT, "the body has %d inputs and %d outputs; with %d states and %d outputs that does not fit",
             g->input.n, g->output.n, l.nstate, c->nout);
  l.init = c->in + 2;
  for (int k = 0; k < l.nstate; k++) kit_in(c, 2 + k);
  if (kit_opt(c, 0)) l.limit = kit_cast_to(c, kit_scalar_of(c, kit_opt(c, 0)), DT_I64);
  if (kit_opt(c, 1)) l.cond = kit_scalar_of(c, kit_opt(c, 1));
  if (!l.limit && !l.cond) kit_fail(c, ERR_UNSUPPORTED, "a loop without a trip count and a condition never ends");
  const Node *r = onnx_build_loop(c, &l);
  for (int k = 0; k < l.nstate; k++) {
    c->out[k] = node_get(c->m, r, k);
    if (l.unwrap[k]) c->out[k] = kit_op1(c, "optional.get_element", c->out[k], NULL);
  }
  for (int k = 0; k < l.nscan && l.nstate + k < c->nout; k++)
    if (*c->out_name[l.nstate + k]) c->out[l.nstate + k] = onnx_loop_stack(c, &l, r, k, 0);
  return NULL;
}

/* ---- Scan -------------------------------------------------------------------------------------------------- */

typedef struct ScanEnv {
  int n;
  const Node **in;
  int *axis;
  bool *backward;
  const Node *limit;
} ScanEnv;

/* Inside the body the whole input is a captured value. */
static const Node *inside(Conversion *c, const Node *outer) { return kit_frame_capture(c->im, c->frame, outer); }

static void scan_body(Conversion *c, Loop *l, const Node *i, const Node *cond, const Node *const *state,
                      const Node **cond_out, const Node **state_out, const Node **scan_out)
{
  const PGraph *g = l->graph;
  const ScanEnv *s = l->env;
  (void)cond;
  *cond_out = NULL;
  for (int k = 0; k < l->nstate; k++) kit_frame_set(c->im, c->frame, g->input.v[k]->name, state[k]);
  for (int k = 0; k < s->n; k++) {
    const Node *at = s->backward[k] ? kit_sub(c, kit_sub(c, inside(c, s->limit), kit_scalar(c, DT_I64, 1)), i) : i;
    const Node *item = kit_op2(c, "take", inside(c, s->in[k]), at, "axis:i,mode:s", s->axis[k], "clip");
    kit_frame_set(c->im, c->frame, g->input.v[l->nstate + k]->name, item);
  }
  const Node **out = arena_array(c->im->arena, const Node *, g->output.n + 1);
  onnx_import_body(c->im, c->frame, g, out);
  for (int k = 0; k < l->nstate; k++) state_out[k] = out[k];
  for (int k = 0; k < l->nscan; k++) scan_out[k] = out[l->nstate + k];
}

static int64_t list_at(const int64_t *v, int n, int k, int64_t def) { return v && k < n ? v[k] : def; }

static const Node *scan_over(Conversion *c, const PGraph *g, int nstate, const Node **init, int nscan_in,
                             const Node **in, Loop *l)
{
  int na = 0;
  int nd = 0;
  const int64_t *axes = onnx_attr_ints(c, "scan_input_axes", &na);
  const int64_t *ways = onnx_attr_ints(c, c->version < 9 ? "directions" : "scan_input_directions", &nd);
  ScanEnv *s = arena_new_of(c->im->arena, ScanEnv);
  *s = (ScanEnv){.n = nscan_in, .in = in};
  s->axis = arena_array(c->im->arena, int, s->n + 1);
  s->backward = arena_array(c->im->arena, bool, s->n + 1);
  for (int k = 0; k < s->n; k++) {
    s->axis[k] = kit_axis_of(c, list_at(axes, na, k, 0), kit_rank_of(c, in[k]));
    s->backward[k] = list_at(ways, nd, k, 0);
  }
  s->limit = kit_scalar_of(c, kit_shape_part(c, in[0], s->axis[0], s->axis[0] + 1));
  *l = (Loop){.graph = g,
              .nstate = nstate,
              .init = init,
              .nscan = g->output.n - nstate,
              .limit = s->limit,
              .body = scan_body,
              .env = s};
  if (g->input.n != nstate + nscan_in || l->nscan < 0)
    kit_fail(c, ERR_ARGUMENT, "the body has %d inputs and %d outputs, which does not fit", g->input.n, g->output.n);
  return onnx_build_loop(c, l);
}

static const Node *scan_result(Conversion *c, const Loop *l, const Node *r, int k)
{
  int na = 0;
  int nd = 0;
  const int64_t *axes = onnx_attr_ints(c, "scan_output_axes", &na);
  const int64_t *ways = onnx_attr_ints(c, "scan_output_directions", &nd);
  int axis = (int)list_at(axes, na, k, 0);
  const Node *y = onnx_loop_stack(c, l, r, k, axis);
  return list_at(ways, nd, k, 0) ? kit_op1(c, "reverse", y, "axis:i", kit_axis_of(c, axis, kit_rank_of(c, y))) : y;
}

static const Node *convert_scan(Conversion *c)
{
  const PGraph *g = body_of(c, "body");
  int64_t nin = onnx_attr_int(c, "num_scan_inputs", 0);
  if (nin < 1 || nin > c->nin)
    kit_fail(c, ERR_ARGUMENT, "num_scan_inputs is %" PRId64 ", the node has %d inputs", nin, c->nin);
  for (int i = 0; i < c->nin; i++) kit_in(c, i);
  int nstate = c->nin - (int)nin;
  Loop l;
  const Node *r = scan_over(c, g, nstate, c->in, (int)nin, c->in + nstate, &l);
  for (int k = 0; k < nstate; k++) c->out[k] = node_get(c->m, r, k);
  for (int k = 0; k < l.nscan && nstate + k < c->nout; k++)
    if (*c->out_name[nstate + k]) c->out[nstate + k] = scan_result(c, &l, r, k);
  return NULL;
}

/* Opset 8: everything has a batch axis in front, each sample is a scan of its own. */
static const Node *convert_scan_8(Conversion *c)
{
  const PGraph *g = body_of(c, "body");
  int64_t nin = onnx_attr_int(c, "num_scan_inputs", 0);
  if (kit_opt(c, 0)) kit_fail(c, ERR_UNSUPPORTED, "sequence_lens are not supported");
  if (nin < 1 || nin >= c->nin)
    kit_fail(c, ERR_ARGUMENT, "num_scan_inputs is %" PRId64 ", the node has %d inputs", nin, c->nin);
  int nstate = c->nin - 1 - (int)nin;
  int64_t batch = kit_static_dim(c, kit_in(c, 1), 0);
  if (batch < 1 || batch > 256) kit_fail(c, ERR_UNSUPPORTED, "a batch of %" PRId64 " is not supported", batch);
  const Node **each = arena_array(c->im->arena, const Node *, (size_t)batch *(size_t)(g->output.n + 1));
  for (int64_t b = 0; b < batch; b++) {
    const Node **in = arena_array(c->im->arena, const Node *, c->nin);
    for (int i = 1; i < c->nin; i++) in[i - 1] = kit_squeeze(c, kit_slice(c, kit_in(c, i), 0, b, b + 1), 0);
    Loop l;
    const Node *r = scan_over(c, g, nstate, in, (int)nin, in + nstate, &l);
    for (int k = 0; k < g->output.n; k++)
      each[k * batch + b] =
          kit_unsqueeze(c, k < nstate ? node_get(c->m, r, k) : onnx_loop_stack(c, &l, r, k - nstate, 0), 0);
  }
  for (int k = 0; k < g->output.n && k < c->nout; k++) c->out[k] = kit_concat(c, (int)batch, each + k * batch, 0);
  return NULL;
}

/* ---- SequenceMap --------------------------------------------------------------------------------------------- */

static void map_body(Conversion *c, Loop *l, const Node *i, const Node *cond, const Node *const *state,
                     const Node **cond_out, const Node **state_out, const Node **scan_out)
{
  const PGraph *g = l->graph;
  (void)cond;
  (void)state;
  (void)state_out;
  *cond_out = NULL;
  for (int k = 0; k < g->input.n; k++) {
    const Node *x = inside(c, ((const Node **)l->env)[k]);
    kit_frame_set(c->im, c->frame, g->input.v[k]->name,
                  x->type->kind == TY_SEQ ? kit_op2(c, "sequence.at", x, i, NULL) : x);
  }
  onnx_import_body(c->im, c->frame, g, scan_out);
}

static const Node *convert_sequence_map(Conversion *c)
{
  const PGraph *g = body_of(c, "body");
  if (g->input.n != c->nin || g->output.n < c->nout)
    kit_fail(c, ERR_ARGUMENT, "the body has %d inputs and %d outputs, the node %d and %d", g->input.n, g->output.n,
             c->nin, c->nout);
  for (int i = 0; i < c->nin; i++) kit_in(c, i);
  Loop l = {.graph = g,
            .nscan = g->output.n,
            .limit = kit_op1(c, "sequence.length", kit_in(c, 0), NULL),
            .body = map_body,
            .env = c->in};
  const Node *r = onnx_build_loop(c, &l);
  for (int k = 0; k < c->nout; k++) c->out[k] = node_get(c->m, r, k);
  return NULL;
}

/* ---- sequences and optionals ------------------------------------------------------------------------------------ */

static const Node *convert_sequence_construct(Conversion *c)
{
  for (int i = 0; i < c->nin; i++) kit_in(c, i);
  return kit_opn(c, "sequence.construct", c->nin, c->in, NULL);
}

static const Node *convert_sequence_empty(Conversion *c)
{
  return kit_op0(c, "sequence.empty", "dtype:t", onnx_attr_dtype(c, "dtype", DT_F32));
}
static const Node *convert_sequence_at(Conversion *c)
{
  return kit_op2(c, "sequence.at", kit_in(c, 0), kit_in(c, 1), NULL);
}
static const Node *convert_sequence_length(Conversion *c) { return kit_op1(c, "sequence.length", kit_in(c, 0), NULL); }

/* The first item of an empty sequence tells what the items are. */
static const Node *convert_sequence_insert(Conversion *c)
{
  const Node *s = kit_in(c, 0);
  const Node *x = kit_in(c, 1);
  const Node *at = kit_opt(c, 2);
  if (onnx_is_bottom(c, s)) return kit_op1(c, "sequence.construct", x, NULL);
  return at ? kit_op3(c, "sequence.insert", s, x, at, NULL) : kit_op2(c, "sequence.insert", s, x, NULL);
}

static const Node *convert_sequence_erase(Conversion *c)
{
  const Node *s = kit_in(c, 0);
  const Node *at = kit_opt(c, 1);
  return at ? kit_op2(c, "sequence.erase", s, at, NULL) : kit_op1(c, "sequence.erase", s, NULL);
}

static const Node *convert_concat_from_sequence(Conversion *c)
{
  return kit_op1(c, "sequence.concat", kit_in(c, 0), "axis:i,new_axis:i", (int)onnx_attr_int(c, "axis", 0),
                 (int)onnx_attr_int(c, "new_axis", 0));
}

static const Node *convert_split_to_sequence(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *sizes = kit_opt(c, 1);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x));
  int keep = (int)onnx_attr_int(c, "keepdims", 1);
  return sizes ? kit_op2(c, "sequence.split", x, sizes, "axis:i,keepdims:i", axis, 1)
               : kit_op1(c, "sequence.split", x, "axis:i,keepdims:i", axis, keep);
}

static const Node *convert_optional(Conversion *c)
{
  if (kit_opt(c, 0)) return kit_op1(c, "optional.make", kit_opt(c, 0), NULL);
  const PAttr *type = onnx_attr(c, "type");
  const PType *item = type ? type->tp : NULL;
  bool sequence = item && item->sequence;
  if (sequence) item = item->sequence->elem_type;
  if (item && !item->tensor) kit_fail(c, ERR_UNSUPPORTED, "an optional may hold a tensor or a sequence of tensors");
  return kit_op0(c, "optional.make", "dtype:t,sequence:i",
                 item ? onnx_dtype(c->ctx, item->tensor->elem_type, c->name) : DT_F32, (int)sequence);
}

static const Node *convert_optional_has(Conversion *c)
{
  const Node *x = kit_opt(c, 0);
  if (!x) return node_scalar(c->m, value_int(DT_BOOL, 0));
  if (x->type->kind != TY_OPT) return node_scalar(c->m, value_int(DT_BOOL, 1));
  return kit_op1(c, "optional.has_element", x, NULL);
}

static const Node *convert_optional_get(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return x->type->kind == TY_OPT ? kit_op1(c, "optional.get_element", x, NULL) : x;
}

static const OnnxRow rows[] = {
  {"ConcatFromSequence", 11, convert_concat_from_sequence},
  {"If", 1, NULL /* onnx_import_nodes: the rest of its graph may go with it */},
  {"Loop", 1, convert_loop},
  {"Optional", 15, convert_optional},
  {"OptionalGetElement", 15, convert_optional_get},
  {"OptionalHasElement", 15, convert_optional_has},
  {"Scan", 8, convert_scan_8},
  {"Scan", 9, convert_scan},
  {"SequenceAt", 11, convert_sequence_at},
  {"SequenceConstruct", 11, convert_sequence_construct},
  {"SequenceEmpty", 11, convert_sequence_empty},
  {"SequenceErase", 11, convert_sequence_erase},
  {"SequenceInsert", 11, convert_sequence_insert},
  {"SequenceLength", 11, convert_sequence_length},
  {"SequenceMap", 17, convert_sequence_map},
  {"SplitToSequence", 11, convert_split_to_sequence},
};
ONNX_TABLE(onnx_ops_control, "", rows);
