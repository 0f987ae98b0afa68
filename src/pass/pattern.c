/* pattern.c: matching, rewriting and partitioning by dataflow patterns.
 *
 * Matching goes down pattern and graph together and takes back what it bound when an
 * alternative fails.  Its depth is that of the pattern, which a person wrote; graphs are
 * walked with explicit stacks. */
#include "pass/pattern.h"
#include "pass/tools.h"

enum { MAX_DEPTH = 500, MAX_ROUNDS = 100 };

/* ---- making patterns --------------------------------------------------------------------- */

static DfPat *new_pat(Arena *a, DfPatKind kind, int n, DfPat *const *sub)
{
  DfPat *p = arena_new_of(a, DfPat);
  p->kind = kind;
  p->n = n;
  if (n > 0) p->sub = arena_copy(a, sub, (size_t)n * sizeof *sub);
  return p;
}

DfPat *pat_wildcard(Arena *a) { return new_pat(a, DP_WILDCARD, 0, NULL); }
DfPat *pat_constant(Arena *a) { return new_pat(a, DP_CONST, 0, NULL); }
DfPat *pat_tuple(Arena *a, int n, DfPat *const *field) { return new_pat(a, DP_TUPLE, n, field); }
DfPat *pat_alt(Arena *a, DfPat *x, DfPat *y) { return new_pat(a, DP_ALT, 2, (DfPat *[]){x, y}); }
DfPat *pat_dominates(Arena *a, DfPat *parent, DfPat *path, DfPat *child)
{
  return new_pat(a, DP_DOMINATOR, 3, (DfPat *[]){parent, path, child});
}
DfPat *pat_if(Arena *a, DfPat *cond, DfPat *then, DfPat *orelse)
{
  return new_pat(a, DP_IF, 3, (DfPat *[]){cond, then, orelse});
}
DfPat *pat_let(Arena *a, DfPat *var, DfPat *value, DfPat *body)
{
  return new_pat(a, DP_LET, 3, (DfPat *[]){var, value, body});
}

static DfPat *named(Arena *a, DfPatKind kind, const char *name)
{
  DfPat *p = new_pat(a, kind, 0, NULL);
  p->name = name ? arena_strdup(a, name) : NULL;
  return p;
}
DfPat *pat_op(Arena *a, const char *name) { return named(a, DP_OP, name); }
DfPat *pat_var(Arena *a, const char *name) { return named(a, DP_VAR, name); }

DfPat *pat_get(Arena *a, DfPat *tuple, int index)
{
  DfPat *p = new_pat(a, DP_GET, 1, &tuple);
  p->index = index;
  return p;
}

DfPat *pat_call(Arena *a, DfPat *callee, int n, DfPat *const *arg)
{
  DfPat *p = arena_new_of(a, DfPat);
  p->kind = DP_CALL;
  p->n = n < 0 ? 1 : n + 1;
  p->index = n < 0 ? -1 : 0; /* -1: any arguments */
  p->sub = arena_array(a, DfPat *, p->n);
  p->sub[0] = callee;
  for (int i = 0; i < n; i++) p->sub[1 + i] = arg[i];
  return p;
}

DfPat *pat_optional(Arena *a, DfPat *p, const char *op) { return pat_alt(a, pat_call(a, pat_op(a, op), 1, &p), p); }

DfPat *pat_attr(Arena *a, DfPat *sub, const char *name, const char *value)
{
  DfPat *p = new_pat(a, DP_ATTR, 1, &sub);
  p->name = arena_strdup(a, name);
  p->value = arena_strdup(a, value);
  return p;
}

DfPat *pat_dtype(Arena *a, DfPat *sub, DType dtype)
{
  DfPat *p = new_pat(a, DP_DTYPE, 1, &sub);
  p->dtype = dtype;
  return p;
}

DfPat *pat_shape(Arena *a, DfPat *sub, int ndim, const int64_t *shape)
{
  DfPat *p = new_pat(a, DP_SHAPE, 1, &sub);
  p->ndim = ndim;
  p->shape = arena_copy(a, shape, (size_t)ndim * sizeof *shape);
  return p;
}

DfPat *pat_type(Arena *a, DfPat *sub, const Type *type)
{
  DfPat *p = new_pat(a, DP_TYPE, 1, &sub);
  p->type = type;
  return p;
}

DfPat *pat_node(Arena *a, const Node *node)
{
  DfPat *p = new_pat(a, DP_NODE, 0, NULL);
  p->node = node;
  return p;
}

/* ---- matching ------------------------------------------------------------------------------- */

typedef struct Matcher {
  DfMatch *out;
  const Node *root;
  Map users; /* node -> list of users; made when a dominator asks */
  bool have_users;
  int depth;
  Vec(const DfPat *) trail; /* bound, in order */
  Vec(const Node *) inside;
} Matcher;
typedef Vec(const Node *) NodeList;

static bool match(Matcher *, const DfPat *, const Node *);

static void undo(Matcher *x, int trail, int inside)
{
  while (x->trail.n > trail) map_del(&x->out->bound, x->trail.v[--x->trail.n]);
  while (x->inside.n > inside) map_del(&x->out->inside, x->inside.v[--x->inside.n]);
}

static bool match_all(Matcher *x, int n, DfPat *const *sub, const Node *const *arg)
{
  for (int i = 0; i < n; i++)
    if (!match(x, sub[i], arg[i])) return false;
  return true;
}

static bool match_callee(Matcher *x, const DfPat *p, const Node *n)
{
  if (n->kind == N_APPLY) return match(x, p, n->arg[0]);
  if (n->kind != N_CALL) return false;
  if (p->kind == DP_OP) return !strcmp(p->name, n->u.call.op->name);
  if (p->kind == DP_ALT) return match_callee(x, p->sub[0], n) || match_callee(x, p->sub[1], n);
  return p->kind == DP_WILDCARD;
}

static bool match_call(Matcher *x, const DfPat *p, const Node *n)
{
  if (!match_callee(x, p->sub[0], n)) return false;
  int skip = n->kind == N_APPLY;
  int count = n->nargs - skip;
  if (p->index == -1) return true;
  if (p->n - 1 != count) return false;
  int trail = x->trail.n;
  int inside = x->inside.n;
  if (match_all(x, count, p->sub + 1, n->arg + skip)) return true;
  undo(x, trail, inside);
  if (count != 2 || !is_call_of(n, "add,multiply")) return false;
  return match_all(x, 2, p->sub + 1, (const Node *[]){n->arg[1], n->arg[0]});
}

/* The attribute as text: "2", "[1, 1]", "NCHW". */
static const char *attr_text(Arena *arena, const Node *n, const char *name)
{
  if (n->kind == N_FUNC) {
    const Expr *v = annots_get(&n->u.func->attrs, name);
    return !v ? NULL : v->kind == E_STR ? v->u.str : expr_str_of(arena, v);
  }
  if (n->kind != N_CALL) return NULL;
  const OpDef *op = n->u.call.op;
  if (!strcmp(name, "TOpPattern")) return arena_printf(arena, "%d", op->fuse);
  const AttrField *f = op->attrs ? attrs_field(op->attrs, name) : NULL;
  if (!f) return NULL;
  const void *at = (const char *)n->u.call.attrs + f->offset;
  Text out = text_new(arena);
  switch (f->kind) {
  case AT_BOOL: return *(const bool *)at ? "True" : "False";
  case AT_INT: return arena_printf(arena, "%" PRId64, *(const int64_t *)at);
  case AT_F64: return text_double(arena, *(const double *)at);
  case AT_STR: return *(const char *const *)at ? *(const char *const *)at : "None";
  case AT_DTYPE: return dtype_name(arena, *(const DType *)at);
  case AT_INTS: {
    const AttrInts *v = at;
    for (int i = 0; i < v->n; i++) text_printf(&out, "%s%" PRId64, i ? ", " : "[", v->v[i]);
    return v->given ? arena_printf(arena, "%s%s]", text_str(&out), v->n ? "" : "[") : "None";
  }
  case AT_F64S: {
    const AttrF64s *v = at;
    for (int i = 0; i < v->n; i++) text_printf(&out, "%s%s", i ? ", " : "[", text_double(arena, v->v[i]));
    return v->given ? arena_printf(arena, "%s%s]", text_str(&out), v->n ? "" : "[") : "None";
  }
  case AT_STRS: {
    const AttrStrs *v = at;
    for (int i = 0; i < v->n; i++) text_printf(&out, "%s\"%s\"", i ? ", " : "[", v->v[i]);
    return v->given ? arena_printf(arena, "%s%s]", text_str(&out), v->n ? "" : "[") : "None";
  }
  case AT_DIMS: {
    const AttrDims *v = at;
    for (int i = 0; i < v->n; i++) text_printf(&out, "%s%s", i ? ", " : "[", expr_str_of(arena, v->v[i]));
    return v->given ? arena_printf(arena, "%s%s]", text_str(&out), v->n ? "" : "[") : "None";
  }
  }
  return NULL;
}

static bool shape_fits(const DfPat *p, const Type *ty)
{
  if (!ty || ty->kind != TY_TENSOR || ty->ndim != p->ndim) return false;
  for (int i = 0; i < p->ndim; i++)
    if (p->shape[i] >= 0 && !expr_is_int(ty->shape[i], p->shape[i])) return false;
  return true;
}

/* ---- dominators --------------------------------------------------------------------------------- */

static void find_users(Matcher *x)
{
  const Node **order;
  int n = graph_post_order(x->out->arena, x->root, &order);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < order[i]->nargs; k++) {
      NodeList *list = map_get(&x->users, order[i]->arg[k]);
      if (!list) map_put(x->out->arena, &x->users, order[i]->arg[k], list = arena_new_of(x->out->arena, NodeList));
      vec_push(x->out->arena, list, order[i]);
    }
  x->have_users = true;
}

/* Everything that reads the nodes of `set` is in the set or is the child. */
static bool closed_under_users(Matcher *x, const NodeList *set, const Node *child)
{
  Map in = {0};
  map_put(x->out->arena, &in, child, (void *)(uintptr_t)child);
  for (int i = 0; i < set->n; i++) map_put(x->out->arena, &in, set->v[i], (void *)(uintptr_t)child);
  for (int i = 0; i < set->n; i++) {
    const NodeList *users = map_get(&x->users, set->v[i]);
    for (int k = 0; users && k < users->n; k++)
      if (!map_has(&in, users->v[k])) return false;
  }
  return true;
}

/* Upwards from the child: every argument is the parent, matches path, or reaches neither. */
static bool match_dominator(Matcher *x, const DfPat *p, const Node *n)
{
  Arena *arena = x->out->arena;
  if (!match(x, p->sub[2], n)) return false;
  if (!x->have_users) find_users(x);
  const Node *parent = NULL;
  NodeList stack = {0};
  NodeList set = {0};
  Map seen = {0};
  vec_push(arena, &stack, n);
  while (stack.n) {
    const Node *at = stack.v[--stack.n];
    for (int i = 0; i < at->nargs; i++) {
      const Node *a = at->arg[i];
      if (map_has(&seen, a) || a->kind == N_OP || a->kind == N_GLOBAL) continue;
      map_put(arena, &seen, a, (void *)(uintptr_t)a);
      int trail = x->trail.n;
      int inside = x->inside.n;
      if (!parent && match(x, p->sub[0], a)) {
        parent = a;
        vec_push(arena, &set, a);
        continue;
      }
      undo(x, trail, inside);
      bool on_path = match(x, p->sub[1], a);
      undo(x, trail, inside); /* path stands for many nodes: it is not bound */
      if (!on_path || a->kind == N_CONST || a->kind == N_VAR) continue;
      vec_push(arena, &set, a);
      vec_push(arena, &stack, a);
      map_put(arena, &x->out->inside, a, (void *)(uintptr_t)a);
      vec_push(arena, &x->inside, a);
    }
  }
  return parent && closed_under_users(x, &set, n);
}

/* ---- one node ---------------------------------------------------------------------------------------- */

static bool match_kind(Matcher *x, const DfPat *p, const Node *n)
{
  switch (p->kind) {
  case DP_WILDCARD: return true;
  case DP_OP: return n->kind == N_OP && !strcmp(n->u.call.op->name, p->name);
  case DP_CONST: return n->kind == N_CONST;
  case DP_VAR: return n->kind == N_VAR && (!p->name || !strcmp(p->name, n->name));
  case DP_TUPLE: return n->kind == N_TUPLE && (p->n < 0 || (p->n == n->nargs && match_all(x, p->n, p->sub, n->arg)));
  case DP_GET: return n->kind == N_GET && (p->index < 0 || p->index == n->u.index) && match(x, p->sub[0], n->arg[0]);
  case DP_CALL: return match_call(x, p, n);
  case DP_ALT: return match(x, p->sub[0], n) || match(x, p->sub[1], n);
  case DP_ATTR: {
    const char *text = attr_text(x->out->arena, n, p->name);
    return text && !strcmp(text, p->value) && match(x, p->sub[0], n);
  }
  case DP_DTYPE:
    return n->type && n->type->kind == TY_TENSOR && dtype_eq(n->type->dtype, p->dtype) && match(x, p->sub[0], n);
  case DP_SHAPE: return shape_fits(p, n->type) && match(x, p->sub[0], n);
  case DP_TYPE: return n->type && type_equal(n->type, p->type) && match(x, p->sub[0], n);
  case DP_DOMINATOR: return match_dominator(x, p, n);
  case DP_IF: return n->kind == N_IF && match_all(x, 3, p->sub, n->arg);
  case DP_LET: return n->kind == N_LET && match_all(x, 3, p->sub, n->arg);
  case DP_NODE: return p->node == n;
  }
  return false;
}

static bool match(Matcher *x, const DfPat *p, const Node *n)
{
  const Node *before = map_get(&x->out->bound, p);
  if (before) return before == n;
  if (++x->depth > MAX_DEPTH)
    raise(arena_ctx(x->out->arena), ERR_UNSUPPORTED, NOWHERE, "a pattern is more than %d deep", MAX_DEPTH);
  int trail = x->trail.n;
  int inside = x->inside.n;
  bool ok = match_kind(x, p, n);
  x->depth--;
  if (!ok) {
    undo(x, trail, inside);
    return false;
  }
  Arena *arena = x->out->arena;
  map_put(arena, &x->out->bound, p, (void *)(uintptr_t)n);
  vec_push(arena, &x->trail, p);
  bool structural = p->kind == DP_CALL || p->kind == DP_TUPLE || p->kind == DP_GET || p->kind == DP_CONST ||
                    p->kind == DP_IF || p->kind == DP_LET;
  if (structural && !map_has(&x->out->inside, n)) {
    map_put(arena, &x->out->inside, n, (void *)(uintptr_t)n);
    vec_push(arena, &x->inside, n);
  }
  return true;
}

bool pass_pattern_match(Arena *arena, const DfPat *p, const Node *n, const Node *root, DfMatch *out)
{
  *out = (DfMatch){.arena = arena};
  Matcher x = {.out = out, .root = root ? root : n};
  return match(&x, p, n);
}

const Node *pass_pattern_node(const DfMatch *m, const DfPat *p) { return map_get(&m->bound, p); }

/* ---- rewriting ------------------------------------------------------------------------------------------ */

typedef struct Replace {
  int n;
  const DfRule *rules;
  const Node *root;
  bool changed, again;
} Replace;

static bool has_dominator(const DfPat *p)
{
  for (int i = 0; i < p->n; i++)
    if (has_dominator(p->sub[i])) return true;
  return p->kind == DP_DOMINATOR;
}

static const Node *replace(GraphRewriter *rw, const Node *old, const Node *now)
{
  Replace *r = rw->env;
  if (now->kind == N_FUNC || now->kind == N_VAR) return now;
  for (int i = 0; i < r->n; i++) {
    DfMatch match;
    /* dominators ask who reads what, which only the graph before this round can tell */
    bool whole = has_dominator(r->rules[i].pattern);
    if (whole && old != now) {
      r->again = true;
      continue;
    }
    if (!pass_pattern_match(rw->arena, r->rules[i].pattern, now, whole ? r->root : NULL, &match)) continue;
    const Node *then = r->rules[i].replace(r->rules[i].env, rw->m, now, &match);
    if (then == now) continue;
    r->changed = true;
    r->again = r->again || !r->rules[i].once;
    return then;
  }
  return now;
}

const Node *pass_pattern_rewrite(Module *m, const Node *f, int n, const DfRule *rules)
{
  for (int round = 0; round < MAX_ROUNDS; round++) {
    Scope scope = scope_begin(m->ctx);
    Replace r = {n, rules, f, false, false};
    const Node *now = rewrite(m, f, replace, &r);
    scope_end(m->ctx, scope);
    if (!r.changed) return f;
    f = retype(m, now);
    if (!r.again) return f;
  }
  raise(m->ctx, ERR_ARGUMENT, NOWHERE,
        "a pattern's replacement matches again after %d rounds; mark the rule to run once", MAX_ROUNDS);
}

/* ---- partitioning ------------------------------------------------------------------------------------------ */

typedef struct Part {
  DfMatch match;
  const Node *root;
} Part;
typedef struct Partition {
  Map part; /* root -> Part* */
  const Annots *attrs;
} Partition;

/* Nothing inside but the root is read from outside. */
static bool is_private(const Map *users, const Part *p)
{
  for (int i = 0; i < p->match.inside.n; i++) {
    const Node *n = p->match.inside.val[i];
    if (!p->match.inside.key[i] || n == p->root || n->kind == N_CONST) continue;
    const NodeList *list = map_get(users, n);
    for (int k = 0; list && k < list->n; k++)
      if (!map_has(&p->match.inside, list->v[k])) return false;
  }
  return true;
}

static const Node *make_part(GraphRewriter *rw, const Part *p, const Annots *attrs)
{
  Module *m = rw->m;
  Arena *arena = rw->arena;
  const Node **order;
  Map inner = {0};
  NodeList param = {0};
  NodeList arg = {0};
  Text name = text_new(arena);
  int n = graph_post_order(arena, p->root, &order);
  const Node *body = NULL;
  for (int i = 0; i < n; i++) {
    const Node *old = order[i];
    if (!map_has(&p->match.inside, old)) continue;
    if (old->kind == N_CALL) text_printf(&name, "%s_", old->u.call.op->name);
    const Node **now = arena_array(arena, const Node *, old->nargs + 1);
    for (int k = 0; k < old->nargs; k++) {
      now[k] = map_get(&inner, old->arg[k]);
      if (now[k]) continue;
      const Node *outside = map_get(&rw->memo, old->arg[k]);
      now[k] = node_var(m, arena_printf(arena, "p%d", param.n), outside->type);
      vec_push(arena, &param, now[k]);
      vec_push(arena, &arg, outside);
      map_put(arena, &inner, old->arg[k], (void *)(uintptr_t)now[k]);
    }
    body = node_with_args(m, old, now);
    map_put(arena, &inner, old, (void *)(uintptr_t)body);
  }
  Annots all = {0};
  for (int i = 0; attrs && i < attrs->n; i++) annots_set(m->arena, &all, attrs->v[i].key, attrs->v[i].value);
  annots_set(m->arena, &all, "PartitionedFromPattern", expr_str(m, text_str(&name)));
  return node_apply(m, node_func(m, param.n, param.v, body, NULL, &all), arg.n, arg.v);
}

static const Node *put_parts(GraphRewriter *rw, const Node *old, const Node *now)
{
  Partition *pt = rw->env;
  const Part *p = map_get(&pt->part, old);
  return p ? make_part(rw, p, pt->attrs) : now;
}

const Node *pass_pattern_partition(Module *m, const Node *f, const DfPat *pattern, const Annots *attrs,
                                   bool (*check)(void *env, const Node *, const DfMatch *), void *env)
{
  Scope scope = scope_begin(m->ctx);
  Arena *arena = scratch(m->ctx);
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  Map users = {0};
  Map taken = {0};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < order[i]->nargs; k++) {
      NodeList *list = map_get(&users, order[i]->arg[k]);
      if (!list) map_put(arena, &users, order[i]->arg[k], list = arena_new_of(arena, NodeList));
      vec_push(arena, list, order[i]);
    }
  Partition pt = {.attrs = attrs};
  for (int i = n - 1; i >= 0; i--) { /* from the outputs: the largest match of a chain comes first */
    Part *p = arena_new_of(arena, Part);
    p->root = order[i];
    if (order[i]->kind == N_FUNC || order[i]->kind == N_VAR || map_has(&taken, order[i])) continue;
    if (!pass_pattern_match(arena, pattern, order[i], f, &p->match) || !is_private(&users, p)) continue;
    bool overlap = false;
    for (int k = 0; k < p->match.inside.n; k++)
      overlap = overlap || (p->match.inside.key[k] && map_has(&taken, p->match.inside.val[k]));
    if (overlap || (check && !check(env, order[i], &p->match))) continue;
    for (int k = 0; k < p->match.inside.n; k++) {
      const Node *in = p->match.inside.val[k];
      if (p->match.inside.key[k] && in->kind != N_CONST) map_put(arena, &taken, in, p);
    }
    map_put(arena, &pt.part, order[i], p);
  }
  const Node *now = rewrite(m, f, put_parts, &pt);
  scope_end(m->ctx, scope);
  return now;
}
