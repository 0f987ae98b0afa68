/* compare.c: are two graphs the same program?  And a hash that equal ones share.
 *
 * Variables, sizes and type parameters match by position, not by name: the first time two
 * meet they are paired, and from then on each stands for the other.  Free variables can be
 * held to be the same instead.  What is shared on one
 * side must be shared on the other (pairs of nodes compared once stay paired).  Names of nodes,
 * declared result types and where constants lie do not count.  The graphs may be of
 * different modules. */
#include "graph/state.h"

typedef struct Compare {
  Arena *arena;
  Map left, right; /* Node* -> Node*, Var* -> Var*, both ways */
  Map free;        /* variables that stand for themselves alone */
  const char *why;
} Compare;

static bool differ(Compare *c, const char *why)
{
  if (!c->why) c->why = why;
  return false;
}

/* Pairs a and b; false if one of them is paired with another already. */
static bool pair(Compare *c, const void *a, const void *b)
{
  const void *x = map_get(&c->left, a);
  const void *y = map_get(&c->right, b);
  if (x || y) return x == b && y == a;
  map_put(c->arena, &c->left, a, (void *)(uintptr_t)b);
  map_put(c->arena, &c->right, b, (void *)(uintptr_t)a);
  return true;
}

/* ---- dimensions and types --------------------------------------------------------------- */

static bool dim_same(Compare *c, const Expr *a, const Expr *b, int depth)
{
  bool x = type_dim_is_stable(a);
  bool y = type_dim_is_stable(b);
  if (!depth && (!x || !y)) return x == y; /* known at run time only, both or neither */
  if (a->kind != b->kind || a->nargs != b->nargs || depth > MAX_NESTING) return false;
  if (a->kind == E_VAR) return pair(c, a->u.var, b->u.var);
  if (a->kind == E_INT) return a->u.i == b->u.i;
  if (a->kind == E_FLOAT) return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
  if (a->kind == E_CALL && a->u.intrin != b->u.intrin) return false;
  if (map_get(&c->left, a) == b) return true; /* shared parts are compared once */
  for (int i = 0; i < a->nargs; i++)
    if (!dim_same(c, a->arg[i], b->arg[i], depth + 1)) return false;
  map_put(c->arena, &c->left, a, (void *)(uintptr_t)b);
  return true;
}

static bool type_same(Compare *c, const Type *a, const Type *b)
{
  if (!a || !b) return a == b;
  if (a->kind != b->kind || !dtype_eq(a->dtype, b->dtype) || a->ndim != b->ndim || a->nfield != b->nfield) return false;
  if (a->data && strcmp(a->data->name, b->data->name)) return false;
  if (a->kind == TY_VAR) return pair(c, a->var, b->var);
  for (int i = 0; i < a->ndim; i++)
    if (!dim_same(c, a->shape[i], b->shape[i], 0)) return false;
  for (int i = 0; i < a->nfield; i++)
    if (!type_same(c, a->field[i], b->field[i])) return false;
  return a->kind != TY_FUNC || type_same(c, a->ret, b->ret);
}

/* ---- what a node holds -------------------------------------------------------------------- */

static bool const_same(const ConstData *a, const ConstData *b)
{
  if (!dtype_eq(a->dtype, b->dtype) || a->ndim != b->ndim || a->bytes != b->bytes) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i]) return false;
  return !a->bytes || a->data == b->data || !memcmp(a->data, b->data, a->bytes);
}

/* Dimensions among attributes may be of different modules; the rest compares as it is. */
static bool attrs_same(Compare *c, const AttrsDef *def, const void *a, const void *b)
{
  if (!def) return true;
  char *x = arena_copy(c->arena, a, def->size);
  char *y = arena_copy(c->arena, b, def->size);
  for (int i = 0; i < def->n; i++) {
    if (def->field[i].kind != AT_DIMS) continue;
    AttrDims *p = (AttrDims *)(void *)(x + def->field[i].offset);
    AttrDims *q = (AttrDims *)(void *)(y + def->field[i].offset);
    if (p->n != q->n || p->given != q->given) return false;
    for (int k = 0; k < p->n; k++)
      if (!dim_same(c, p->v[k], q->v[k], 1)) return false;
    *p = *q = (AttrDims){0};
  }
  return attrs_equal(def, x, y);
}

static bool annots_same(Compare *c, const Annots *a, const Annots *b)
{
  if (a->n != b->n) return false;
  for (int i = 0; i < a->n; i++) {
    const Expr *x = a->v[i].value;
    const Expr *y = annots_get(b, a->v[i].key);
    if (!y || x->kind != y->kind) return false;
    if (x->kind == E_STR ? strcmp(x->u.str, y->u.str) != 0 : !dim_same(c, x, y, 1)) return false;
  }
  return true;
}

static bool pattern_same(Compare *c, const Pattern *a, const Pattern *b)
{
  if (a->kind != b->kind || a->n != b->n) return false;
  if (a->kind == PAT_VAR && !pair(c, a->var, b->var)) return false;
  if (a->kind == PAT_CTOR && (strcmp(a->ctor->name, b->ctor->name) || strcmp(a->ctor->data->name, b->ctor->data->name)))
    return false;
  for (int i = 0; i < a->n; i++)
    if (!pattern_same(c, a->sub[i], b->sub[i])) return false;
  return true;
}

static const char *describe(Compare *c, const Node *n)
{
  static const char *const kinds[] = {"variable",    "constant", "call of",     "application", "tuple",
                                      "projection",  "let",      "if",          "function",    "function of the module",
                                      "constructor", "match",    "call_tir of", "operator"};
  switch (n->kind) {
  case N_CALL:
  case N_OP: return arena_printf(c->arena, "%s %s", kinds[n->kind], n->u.call.op->name);
  case N_VAR: return arena_printf(c->arena, "variable %%%s", n->name ? n->name : "_");
  case N_GLOBAL: return arena_printf(c->arena, "@%s", n->u.global);
  case N_CONST:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_CTOR:
  case N_MATCH:
  case N_CALL_TIR: return kinds[n->kind];
  }
  return "?";
}

static bool payload_same(Compare *c, const Node *a, const Node *b)
{
  switch (a->kind) {
  case N_VAR:
    if ((map_has(&c->free, a) || map_has(&c->free, b)) && a->u.origin != b->u.origin)
      return differ(c, arena_printf(c->arena, "the free variables %%%s and %%%s are not the same", a->name, b->name));
    if (type_same(c, a->type, b->type)) return true;
    return differ(c, arena_printf(c->arena, "%s is %s, the other %s", describe(c, a), type_text(c->arena, a->type),
                                  type_text(c->arena, b->type)));
  case N_CONST: return const_same(a->u.data, b->u.data) || differ(c, "constants differ");
  case N_CALL:
    if (a->u.call.op != b->u.call.op)
      return differ(c, arena_printf(c->arena, "%s against %s", a->u.call.op->name, b->u.call.op->name));
    if (!node_same_plan(a, b)) return differ(c, arena_printf(c->arena, "plans of %s differ", a->u.call.op->name));
    return attrs_same(c, a->u.call.op->attrs, a->u.call.attrs, b->u.call.attrs) ||
           differ(c, arena_printf(c->arena, "attributes of %s differ", a->u.call.op->name));
  case N_OP: return a->u.call.op == b->u.call.op || differ(c, "operators differ");
  case N_GET: return a->u.index == b->u.index || differ(c, "projections differ");
  case N_FUNC:
    return annots_same(c, &a->u.func->attrs, &b->u.func->attrs) || differ(c, "attributes of functions differ");
  case N_GLOBAL:
    return !strcmp(a->u.global, b->u.global) ||
           differ(c, arena_printf(c->arena, "@%s against @%s", a->u.global, b->u.global));
  case N_CTOR:
    return (!strcmp(a->u.ctor->name, b->u.ctor->name) && !strcmp(a->u.ctor->data->name, b->u.ctor->data->name)) ||
           differ(c, "constructors differ");
  case N_MATCH:
    for (int i = 0; i < a->u.match.n; i++)
      if (!pattern_same(c, a->u.match.clause[i], b->u.match.clause[i])) return differ(c, "patterns differ");
    return true;
  case N_CALL_TIR:
    return (!strcmp(a->u.tir.name, b->u.tir.name) && type_same(c, a->type, b->type)) ||
           differ(c, "calls of loop programs differ");
  case N_APPLY:
  case N_TUPLE:
  case N_LET:
  case N_IF: return true;
  }
  return false;
}

/* ---- the walk ------------------------------------------------------------------------------- */

static bool compare(Compare *c, const Node *a, const Node *b, const char **why)
{
  typedef struct {
    const Node *a, *b;
    int next;
  } Frame;
  Arena *arena = c->arena;
  Vec(Frame) stack = {0};
  bool same = true;
  vec_push(arena, &stack, (Frame){a, b, -1});
  while (stack.n && same) {
    Frame *top = &stack.v[stack.n - 1];
    if (top->next < 0) {
      if (map_has(&c->left, top->a) || map_has(&c->right, top->b)) {
        same =
            pair(c, top->a, top->b) || differ(c, arena_printf(arena, "%s is shared differently", describe(c, top->a)));
        stack.n--;
        continue;
      }
      if (top->a->kind != top->b->kind || top->a->nargs != top->b->nargs)
        same = differ(c, arena_printf(arena, "%s against %s", describe(c, top->a), describe(c, top->b)));
      else same = payload_same(c, top->a, top->b);
      /* atoms may be duplicated on one side: only variables have an identity */
      if (same && (top->a->kind == N_VAR || top->a->nargs)) same = pair(c, top->a, top->b);
      top->next = 0;
    } else if (top->next == top->a->nargs) {
      stack.n--;
    } else {
      const Node *x = top->a->arg[top->next];
      const Node *y = top->b->arg[top->next];
      top->next++;
      vec_push(arena, &stack, (Frame){x, y, -1});
    }
  }
  if (why) *why = same ? NULL : c->why ? c->why : "the graphs differ";
  return same;
}

bool graph_equal(const Node *a, const Node *b, Arena *arena, const char **why)
{
  Compare c = {.arena = arena};
  return compare(&c, a, b, why);
}

bool graph_match(const Node *a, const Node *b, Arena *arena, Map *pairs)
{
  Compare c = {.arena = arena};
  if (!compare(&c, a, b, NULL)) return false;
  *pairs = c.left;
  return true;
}

static void keep_free(Compare *c, const Node *n)
{
  const Node **v;
  int count = graph_free_vars(c->arena, n, &v);
  for (int i = 0; i < count; i++) map_put(c->arena, &c->free, v[i], (void *)(uintptr_t)v[i]);
}

bool graph_equal_open(const Node *a, const Node *b, Arena *arena, const char **why)
{
  Compare c = {.arena = arena};
  keep_free(&c, a);
  keep_free(&c, b);
  return compare(&c, a, b, why);
}

/* ---- hash -------------------------------------------------------------------------------------- */

static uint64_t hash_str(uint64_t h, const char *s) { return hash_bytes(s, strlen(s), h); }

static uint64_t type_hash(uint64_t h, const Type *ty)
{
  if (!ty) return hash_mix(h, 3);
  h = hash_mix(h, (uint64_t)ty->kind * 65536 + ty->dtype.code * 256u + ty->dtype.bits);
  h = hash_mix(h, (uint64_t)(int64_t)ty->ndim);
  for (int i = 0; i < ty->ndim; i++)
    h = hash_mix(h, ty->shape[i]->kind == E_INT ? (uint64_t)ty->shape[i]->u.i : UINT64_MAX);
  for (int i = 0; i < ty->nfield; i++) h = type_hash(h, ty->field[i]);
  return h;
}

static uint64_t payload_hash(uint64_t h, const Node *n)
{
  switch (n->kind) {
  case N_VAR: return type_hash(h, n->type);
  case N_CONST:
    h = hash_mix(h, n->u.data->dtype.code * 256u + n->u.data->dtype.bits);
    for (int i = 0; i < n->u.data->ndim; i++) h = hash_mix(h, (uint64_t)n->u.data->shape[i]);
    return hash_bytes(n->u.data->data, n->u.data->bytes, h);
  case N_CALL: return hash_mix(hash_str(h, n->u.call.op->name), attrs_hash(n->u.call.op->attrs, n->u.call.attrs));
  case N_OP: return hash_str(h, n->u.call.op->name);
  case N_GET: return hash_mix(h, (uint64_t)n->u.index);
  case N_FUNC: return hash_mix(h, (uint64_t)n->u.func->attrs.n);
  case N_GLOBAL: return hash_str(h, n->u.global);
  case N_CTOR: return hash_str(h, n->u.ctor->name);
  case N_MATCH: return hash_mix(h, (uint64_t)n->u.match.n);
  case N_CALL_TIR: return hash_str(h, n->u.tir.name);
  case N_APPLY:
  case N_TUPLE:
  case N_LET:
  case N_IF: return h;
  }
  return h;
}

/* Variables hash by the order in which the walk meets them. */
uint64_t graph_hash(const Node *root, Arena *arena)
{
  const Node **order;
  int n = graph_post_order(arena, root, &order);
  uint64_t *hash = arena_array(arena, uint64_t, n);
  Map index = {0};
  uint64_t vars = 0;
  for (int i = 0; i < n; i++) {
    uint64_t h = payload_hash(hash_mix(11, order[i]->kind), order[i]);
    if (order[i]->kind == N_VAR) h = hash_mix(h, ++vars);
    for (int k = 0; k < order[i]->nargs; k++) h = hash_mix(h, hash[(intptr_t)map_get(&index, order[i]->arg[k]) - 1]);
    hash[i] = h;
    map_put(arena, &index, order[i], (void *)(intptr_t)(i + 1));
  }
  return hash[n - 1];
}
