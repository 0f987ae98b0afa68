/* layouts.c: AlterOpLayout and ConvertLayout: the same walk with different wishes.
 *   needs   types
 *   keeps   the types of the function; inside, tensors may lie otherwise
 *   breaks  nothing; leaves layout_transforms of weights for FoldConstant
 *
 * A wish says for one call: this operator instead, with its arguments in these layouts.  Each value is kept
 * in the layout in which it was made; the layout rules of the operators carry it on, and where
 * a rule refuses the value goes back to the layout that the graph had.  A value is
 * brought to a given layout once, however many read it there. */
#include "pass/groups.h"
#include "pass/passes.h"

const PassOption pass_convert_layout_options[] = {
  {PO_STRS, "desired_layouts", "nn.conv2d=NCHW,OIHW; qnn.conv2d=NCHW,OIHW",
   "\"nn.conv2d=NHWC,default; nn.max_pool2d=NHWC\": layouts of data and weight by operator"},
};

enum { MAX_ARGS = 256 };

/* A value of the old graph in the new one. */
typedef struct Laid {
  const Node *now;    /* as it was made */
  LayoutPair *layout; /* one for each output; to NULL or equal to from: as the graph had it */
  StrMap form;        /* other layouts of it: name -> node */
} Laid;

typedef struct Walk {
  Module *m;
  Arena *arena;
  PassContext *pc;
  DevicePlan *plan; /* of a model for several targets */
  ImplConfig config;
  const char *desired; /* ConvertLayout's option; NULL: AlterOpLayout */
  Map laid;            /* old node -> Laid* */
  Map plans;           /* old node -> const Plan *; AlterOpLayout's */
} Walk;

static Laid *laid_of(const Walk *w, const Node *n) { return map_get(&w->laid, n); }
static bool is_moved(const LayoutPair *p) { return p->from && p->to && strcmp(p->from, p->to); }

/* Can a tensor of this type lie so?  Split axes must be divisible. */
static bool type_fits_layout(const Type *ty, const char *from, const char *to)
{
  Layout l;
  if (ty->kind != TY_TENSOR || ty->ndim != (int)strlen(from) || layout_parse(to, &l)) return false;
  for (int i = 0; i < l.n; i++) {
    if (!l.factor[i]) continue;
    const char *axis = strchr(from, layout_capital(l.letter[i]));
    if (!axis) return false;
    const Expr *dim = ty->shape[axis - from];
    if (dim->kind != E_INT || dim->u.i % l.factor[i]) return false;
  }
  return true;
}

/* ---- values in a wanted layout ------------------------------------------------------------ */

/* Field `k` of a value that is a tuple, or the value itself (k -1). */
static const Node *part_now(const Walk *w, const Node *old, int k)
{
  const Laid *l = laid_of(w, old);
  return k < 0 ? l->now : node_get(w->m, l->now, k);
}

static const Node *bring(Walk *w, const Node *old, const char *from, const char *to)
{
  Laid *l = laid_of(w, old);
  const char *cur = is_moved(&l->layout[0]) ? l->layout[0].to : from;
  if (!to || !cur || !strcmp(cur, to)) return l->now;
  const Node *have = strmap_get(&l->form, to);
  if (have) return have;
  have = make_layout(w->m, l->now, cur, to);
  strmap_put(w->arena, &l->form, to, (void *)(uintptr_t)have);
  return have;
}

/* As the graph had it. */
static const Node *plain(Walk *w, const Node *old)
{
  Laid *l = laid_of(w, old);
  const Type *ty = old->type;
  if (ty && ty->kind == TY_TUPLE && l->now->kind != N_TUPLE && l->layout) {
    const Node **field = arena_array(w->arena, const Node *, ty->nfield + 1);
    bool moved = false;
    for (int i = 0; i < ty->nfield; i++) {
      field[i] = part_now(w, old, i);
      if (!is_moved(&l->layout[i])) continue;
      moved = true;
      field[i] = make_layout(w->m, field[i], l->layout[i].to, l->layout[i].from);
    }
    return moved ? node_tuple(w->m, ty->nfield, field) : l->now;
  }
  return l->layout && is_moved(&l->layout[0]) ? bring(w, old, l->layout[0].from, l->layout[0].from) : l->now;
}

static const Node *rebuilt(Walk *w, const Node *n)
{
  const Node **arg = arena_array(w->arena, const Node *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) arg[i] = plain(w, n->arg[i]);
  return node_with_args(w->m, n, arg);
}

static int num_outputs(const Node *n) { return n->type && n->type->kind == TY_TUPLE ? n->type->nfield : 1; }

/* n layouts are given; outputs behind them are as they were. */
static void put(Walk *w, const Node *old, const Node *now, int n, const LayoutPair *layout)
{
  Laid *l = arena_new_of(w->arena, Laid);
  l->now = now;
  l->layout = arena_array(w->arena, LayoutPair, n > num_outputs(old) ? n : num_outputs(old) + 1);
  for (int i = 0; i < n; i++) l->layout[i] = layout[i];
  map_put(w->arena, &w->laid, old, l);
}

static void put_plain(Walk *w, const Node *old, const Node *now)
{
  Laid *l = arena_new_of(w->arena, Laid);
  l->now = now;
  l->layout = arena_array(w->arena, LayoutPair, num_outputs(old) + 1);
  map_put(w->arena, &w->laid, old, l);
}

/* ---- ConvertLayout's wishes ------------------------------------------------------------------- */

/* The layouts asked for this operator: "NHWC" and "HWIO" or "default". */
static bool desired_layout(Walk *w, const char *op, const char **data, const char **kernel)
{
  size_t len = strlen(op);
  for (const char *p = w->desired; p && *p;) {
    p += strspn(p, " ;");
    size_t n = strcspn(p, ";");
    if (!strncmp(p, op, len) && (p[len] == '=' || p[len] == ':')) {
      const char *v = p + len + 1;
      const char *end = p + n;
      v += strspn(v, " ");
      size_t first = strcspn(v, ",; ");
      *data = arena_strndup(w->m->arena, v, first);
      v += first;
      v += strspn(v, " ,");
      *kernel = v < end ? arena_strndup(w->m->arena, v, strcspn(v, "; ")) : "default";
      return true;
    }
    p += n;
  }
  return false;
}

static const char *default_kernel(const char *data)
{
  static const char *const table[][2] = {{"NCHW", "OIHW"}, {"NHWC", "HWIO"},   {"NCW", "OIW"},
                                         {"NWC", "WIO"},   {"NCDHW", "OIDHW"}, {"NDHWC", "DHWIO"}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i][0], data)) return table[i][1];
  return NULL;
}

static bool convert_conv(Walk *w, const Node *n, const char *data, const char *kernel, AlteredCall *out)
{
  Module *m = w->m;
  const AttrsDef *def = n->u.call.op->attrs;
  const char *from = call_str(n, "data_layout");
  const char *result = call_str(n, "out_layout");
  const char *weight = call_str(n, "kernel_layout");
  if (!result || !*result) result = from;
  if (!strcmp(kernel, "default")) kernel = default_kernel(data);
  if (!kernel)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE,
          "ConvertLayout: layout '%s' of %s has no default weight layout; name one after it", data, n->u.call.op->name);
  if (!strcmp(from, data) && !strcmp(weight, kernel) && !strcmp(result, data)) return false;
  void *attrs = call_attrs(m, n);
  attrs_set_str(m, def, attrs, "data_layout", data);
  attrs_set_str(m, def, attrs, "kernel_layout", kernel);
  attrs_set_str(m, def, attrs, "out_layout", "");
  *out = (AlteredCall){.op = n->u.call.op, .attrs = attrs, .nargs = n->nargs, .out = {result, data}};
  for (int i = 0; i < n->nargs; i++) out->arg[i] = n->arg[i];
  out->in[0] = (LayoutPair){from, data};
  out->arg[1] = make_layout(m, n->arg[1], weight, kernel);
  return true;
}

static bool convert_wish(Walk *w, const Node *n, AlteredCall *out)
{
  const char *data, *kernel;
  if (!desired_layout(w, n->u.call.op->name, &data, &kernel) || !strcmp(data, "default")) return false;
  if (call_has(n, "data_layout") && call_has(n, "kernel_layout")) return convert_conv(w, n, data, kernel, out);
  if (!call_has(n, "layout"))
    raise(w->m->ctx, ERR_UNSUPPORTED, NOWHERE, "ConvertLayout: %s has no layout to choose", n->u.call.op->name);
  void *attrs = call_attrs(w->m, n);
  const char *from = call_str(n, "layout");
  attrs_set_str(w->m, n->u.call.op->attrs, attrs, "layout", data);
  *out = (AlteredCall){.op = n->u.call.op, .attrs = attrs, .nargs = n->nargs, .out = {from, data}};
  for (int i = 0; i < n->nargs; i++) out->arg[i] = n->arg[i];
  out->in[0] = (LayoutPair){from, data};
  return true;
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* What a wish made of old arguments (transformed weights), over the new ones. */
static const Node *over_new(Walk *w, const Node *call, const Node *made);
static const Node *keep(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)rw, (void)old;
  return now;
}
static const Node *over_new(Walk *w, const Node *call, const Node *made)
{
  GraphRewriter rw = {.m = w->m, .fn = keep, .arena = w->arena};
  for (int i = 0; i < call->nargs; i++)
    map_put(w->arena, &rw.memo, call->arg[i], (void *)(uintptr_t)plain(w, call->arg[i]));
  return graph_rewrite(&rw, made);
}

/* What the plan that was chosen for the call makes of it. */
static bool alter_wish(Walk *w, const Node *n, AlteredCall *out)
{
  const Plan *p = map_get(&w->plans, n);
  const Target *target = pass_target_of(w->pc, w->plan, n);
  ImplCall call = {w->m, w->arena, target, &w->config, n};
  if (!p) return impl_alter_words(w->m, target, n, out);
  if (!p->alters) return false;
  impl_alter(&call, p, out);
  return true;
}

/* The plan that was chosen for a call which stays as it is; NULL: none. */
static const char *plan_of(Walk *w, const Node *n)
{
  const Plan *p = n->kind == N_CALL ? map_get(&w->plans, n) : NULL;
  /* sums in float16 are chosen when the call is lowered */
  if (!p || p->alters || !p->impl || w->config.fast_math == FAST_FP16) return NULL;
  return plan_line(&(ImplCall){w->m, w->arena, pass_target_of(w->pc, w->plan, n), &w->config, n}, p);
}

static bool by_wish(Walk *w, const Node *n)
{
  AlteredCall alt = {0};
  bool wanted = w->desired ? convert_wish(w, n, &alt) : alter_wish(w, n, &alt);
  if (!wanted) return false;
  const Node *arg[8];
  for (int i = 0; i < alt.nargs; i++) {
    int same = 0;
    while (same < n->nargs && n->arg[same] != alt.arg[i]) same++;
    if (same == n->nargs) arg[i] = over_new(w, n, alt.arg[i]);
    else arg[i] = alt.in[i].to ? bring(w, n->arg[same], alt.in[i].from, alt.in[i].to) : plain(w, n->arg[same]);
  }
  const Node *call = node_call(w->m, alt.op, alt.nargs, arg, alt.attrs, n->name);
  put(w, n, alt.plan ? node_call_planned(w->m, call, alt.plan) : call, 1, &alt.out);
  return true;
}

/* The arguments one by one, the fields of tuples spread out. */
static int spread_args(const Node *n, const Node **out)
{
  int k = 0;
  for (int i = 0; i < n->nargs; i++) {
    bool tuple = n->arg[i]->kind == N_TUPLE;
    for (int f = 0; f < (tuple ? n->arg[i]->nargs : 1); f++) {
      if (k == MAX_ARGS) return -1;
      out[k++] = tuple ? n->arg[i]->arg[f] : n->arg[i];
    }
  }
  return k;
}

static const Node *rebuilt_from(Walk *w, const Node *n, const Node *const *part, const void *attrs)
{
  const Node **arg = arena_array(w->arena, const Node *, n->nargs + 1);
  int k = 0;
  for (int i = 0; i < n->nargs; i++) {
    bool tuple = n->arg[i]->kind == N_TUPLE;
    arg[i] = tuple ? node_tuple(w->m, n->arg[i]->nargs, part + k) : part[k];
    k += tuple ? n->arg[i]->nargs : 1;
  }
  return node_call(w->m, n->u.call.op, n->nargs, arg, n->u.call.op->attrs ? attrs : NULL, n->name);
}

static bool by_rule(Walk *w, const Node *n)
{
  const Node *part[MAX_ARGS];
  LayoutPair in[MAX_ARGS];
  LayoutPair out[MAX_ARGS] = {0};
  int count = spread_args(n, part);
  int nout = num_outputs(n);
  bool any = false;
  if (count < 0 || nout > MAX_ARGS || !n->u.call.op->layout) return false;
  for (int i = 0; i < count; i++) {
    const Laid *l = laid_of(w, part[i]);
    in[i] = part[i]->type && part[i]->type->kind == TY_TENSOR ? l->layout[0] : (LayoutPair){0};
    any = any || is_moved(&in[i]);
  }
  if (!any) return false;
  const Type **types = arena_array(w->arena, const Type *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) types[i] = n->arg[i]->type;
  OpCall c = {.m = w->m,
              .op = n->u.call.op,
              .attrs = n->u.call.attrs,
              .nargs = n->nargs,
              .arg = types,
              .node = n->arg,
              .out = n->type,
              .name = n->name};
  const void *attrs = n->u.call.op->layout(&c, in, out);
  if (!attrs) return false;
  for (int i = 0; i < count; i++)
    if (in[i].from && in[i].to && is_moved(&in[i]) && !type_fits_layout(part[i]->type, in[i].from, in[i].to))
      return false;
  for (int i = 0; i < count; i++)
    part[i] = in[i].from && in[i].to ? bring(w, part[i], in[i].from, in[i].to) : plain(w, part[i]);
  put(w, n, rebuilt_from(w, n, part, attrs), nout, out);
  return true;
}

static void visit(Walk *w, const Node *n)
{
  switch (n->kind) {
  case N_CALL:
    if (n->type && (by_wish(w, n) || by_rule(w, n))) return;
    break;
  case N_GET: {
    const Laid *t = laid_of(w, n->arg[0]);
    if (t->now->kind == N_TUPLE || !n->arg[0]->type || n->arg[0]->type->kind != TY_TUPLE) break;
    put(w, n, node_get(w->m, t->now, n->u.index), 1, &t->layout[n->u.index]);
    return;
  }
  case N_VAR:
  case N_CONST:
  case N_APPLY:
  case N_TUPLE:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR:
  case N_MATCH:
  case N_CALL_TIR:
  case N_OP: break;
  }
  const Node *now = is_primitive(n) ? n : rebuilt(w, n);
  const char *plan = plan_of(w, n);
  put_plain(w, n, plan ? node_call_planned(w->m, now, plan) : now);
}

static const Node *change_layouts(PassContext *pc, Module *m, const Node *f, const char *desired)
{
  if (is_primitive(f)) return f;
  Walk w = {.m = m, .arena = scratch(m->ctx), .pc = pc, .config = pc->impl, .desired = desired};
  const Node **order;
  int n = groups_order(w.arena, f, &order);
  w.plan = pass_plan_targets(pc, m, w.arena);
  if (!desired) pass_choose_plans(pc, m, w.plan, n, order, w.arena, &w.plans);
  for (int i = 0; i < n; i++) visit(&w, order[i]);
  return laid_of(&w, f)->now;
}

const Node *pass_alter_op_layout(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  return change_layouts(pc, m, f, NULL);
}

const Node *pass_convert_layout(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  return change_layouts(pc, m, f, pass_option(env, pass_convert_layout_options, 0));
}
