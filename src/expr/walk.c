/* walk.c: visiting, rewriting and copying expressions, each distinct node once. */
#include "expr/expr.h"

static void visit(Arena *arena, Map *seen, const Expr *e, void (*fn)(void *, const Expr *), void *env)
{
  if (map_has(seen, e)) return;
  map_put(arena, seen, e, NULL);
  for (int i = 0; i < e->nargs; i++) visit(arena, seen, e->arg[i], fn, env);
  fn(env, e);
}

void expr_visit(Ctx *ctx, const Expr *e, void (*fn)(void *, const Expr *), void *env)
{
  if (e->nargs == 0) {
    fn(env, e);
    return;
  }
  /* fn may allocate scratch of its own and keep it, so the memory of what was
   * seen stays until the caller's scope ends. */
  Map seen = {0};
  visit(scratch(ctx), &seen, e, fn, env);
}

const Expr *expr_rewrite(Rewriter *rw, const Expr *e)
{
  const Expr *done = map_get(&rw->memo, e);
  if (done) return done;
  const Expr *r = e;
  if (e->nargs) {
    const Expr *small[8];
    const Expr **arg = e->nargs <= 8 ? small : arena_array(rw->arena, const Expr *, e->nargs);
    for (int i = 0; i < e->nargs; i++) arg[i] = expr_rewrite(rw, e->arg[i]);
    r = expr_with_args(rw->m, e, arg);
  }
  r = rw->fn(rw, r);
  map_put(rw->arena, &rw->memo, e, (void *)(uintptr_t)r);
  return r;
}

static const Expr *replace_var(Rewriter *rw, const Expr *e)
{
  if (e->kind != E_VAR) return e;
  const Expr *to = map_get(rw->env, e->u.var);
  return to ? to : e;
}

const Expr *expr_substitute(Module *m, const Expr *e, const Map *map)
{
  if (e->nargs == 0 && e->kind != E_VAR) return e;
  Scope scope = scope_begin(m->ctx);
  Rewriter rw = {.m = m, .fn = replace_var, .env = (void *)(uintptr_t)map, .arena = scratch(m->ctx)};
  const Expr *r = expr_rewrite(&rw, e);
  scope_end(m->ctx, scope);
  return r;
}

const Expr *expr_substitute1(Module *m, const Expr *e, const Var *var, const Expr *value)
{
  Scope scope = scope_begin(m->ctx);
  Map map = {0};
  map_put(scratch(m->ctx), &map, var, (void *)(uintptr_t)value);
  const Expr *r = expr_substitute(m, e, &map);
  scope_end(m->ctx, scope);
  return r;
}

/* ---- questions ---------------------------------------------------------------------- */

/* What is looked for: a variable, or a buffer that is loaded from. */
typedef struct Wanted {
  const Var *var;
  const Buffer *buffer;
  uint32_t id;
} Wanted;
enum { MOST_STEPS = 200, VAIN = 256 };

/* A node's id is above the ids of all it is made of, so nothing older than what is looked for can use it; the filter in
 * `uses` settles most of the rest.  Where it does not, an operand that is shared would be entered once for each way to
 * it: `vain` holds nodes that were searched in vain, by the low bits of their ids.  Without it the search gives up when
 * `steps` are used up. */
static bool contains(const Expr *e, const Wanted *w, int *steps, const Expr **vain)
{
  if (e->kind == E_VAR) return e->u.var == w->var;
  if (e->kind == E_LOAD && e->u.buffer == w->buffer) return true;
  if (e->id < w->id || !(e->uses >> (w->id & 63) & 1)) return false;
  if (vain && vain[e->id % VAIN] == e) return false;
  if (!vain && --*steps < 0) return false;
  for (int i = 0; i < e->nargs; i++)
    if (contains(e->arg[i], w, steps, vain)) return true;
  if (vain) vain[e->id % VAIN] = e;
  return false;
}

/* Few nodes are the rule; only where there are more is a table worth its zeros. */
static bool search(const Expr *e, const Wanted *w)
{
  int steps = MOST_STEPS;
  bool found = contains(e, w, &steps, NULL);
  if (found || steps >= 0) return found;
  const Expr *vain[VAIN] = {NULL};
  return contains(e, w, NULL, vain);
}

bool expr_uses_var(const Expr *e, const Var *var) { return search(e, &(Wanted){.var = var, .id = var->id}); }

bool expr_uses_buffer(const Expr *e, const Buffer *buffer)
{
  return search(e, &(Wanted){.buffer = buffer, .id = buffer->id});
}

bool expr_has_kind(const Expr *e, ExprKind kind) { return e->kinds >> kind & 1; }
bool expr_is_pure(const Expr *e) { return e->pure; }

typedef struct FreeVars {
  Arena *arena;
  Map bound;
  Vec(const Var *) vars;
} FreeVars;

static void note_bound(void *env, const Expr *e)
{
  FreeVars *fv = env;
  if (e->kind == E_LET) map_put(fv->arena, &fv->bound, e->u.var, NULL);
  if (e->kind == E_REDUCE)
    for (int i = 0; i < e->u.reduce->naxis; i++) map_put(fv->arena, &fv->bound, e->u.reduce->axis[i]->var, NULL);
}

static void note_var(void *env, const Expr *e)
{
  FreeVars *fv = env;
  if (e->kind == E_VAR && !map_has(&fv->bound, e->u.var)) vec_push(fv->arena, &fv->vars, e->u.var);
}

int expr_free_vars(Arena *arena, const Expr *e, const Var ***out)
{
  Ctx *ctx = arena_ctx(arena);
  FreeVars fv = {.arena = arena};
  expr_visit(ctx, e, note_bound, &fv);
  expr_visit(ctx, e, note_var, &fv);
  *out = fv.vars.v;
  return fv.vars.n;
}

/* ---- copying to another module ---------------------------------------------------------- */

const Var *var_import(Importer *imp, const Var *var)
{
  const Var *to = map_get(&imp->var, var);
  if (to) return to;
  to = var_copy(imp->dst, var);
  map_put(imp->arena, &imp->var, var, (void *)(uintptr_t)to);
  return to;
}

static const Expr **import_list(Importer *imp, int n, const Expr *const *e)
{
  const Expr **out = arena_array(imp->arena, const Expr *, n);
  for (int i = 0; i < n; i++) out[i] = expr_import(imp, e[i]);
  return out;
}

const Buffer *buffer_import(Importer *imp, const Buffer *b)
{
  const Buffer *to = map_get(&imp->buffer, b);
  if (to) return to;
  to = buffer_new(imp->dst, b->name, b->dtype, b->ndim, import_list(imp, b->ndim, b->shape),
                  b->strides ? import_list(imp, b->ndim, b->strides) : NULL,
                  b->elem_offset ? expr_import(imp, b->elem_offset) : NULL, b->scope, b->align, b->offset_factor,
                  var_import(imp, b->data));
  to = buffer_with_separators(imp->dst, to, b->separators);
  map_put(imp->arena, &imp->buffer, b, (void *)(uintptr_t)to);
  return to;
}

static const IterVar *iter_import(Importer *imp, const IterVar *iv)
{
  const IterVar *to = map_get(&imp->iter, iv);
  if (to) return to;
  to = itervar_new(imp->dst, var_import(imp, iv->var), iv->min ? expr_import(imp, iv->min) : NULL,
                   iv->extent ? expr_import(imp, iv->extent) : NULL, iv->kind, iv->thread_tag);
  map_put(imp->arena, &imp->iter, iv, (void *)(uintptr_t)to);
  return to;
}

static const Reducer *reducer_import(Importer *imp, const Reducer *r)
{
  const Reducer *to = map_get(&imp->reducer, r);
  if (to) return to;
  const Var **lhs = arena_array(imp->arena, const Var *, r->n);
  const Var **rhs = arena_array(imp->arena, const Var *, r->n);
  for (int i = 0; i < r->n; i++) {
    lhs[i] = var_import(imp, r->lhs[i]);
    rhs[i] = var_import(imp, r->rhs[i]);
  }
  to = reducer_new(imp->dst, r->name, r->n, lhs, rhs, import_list(imp, r->n, r->result),
                   import_list(imp, r->n, r->identity));
  map_put(imp->arena, &imp->reducer, r, (void *)(uintptr_t)to);
  return to;
}

static const Expr *import_load(Importer *imp, const Expr *e, const Expr *const *index)
{
  const Buffer *b = buffer_import(imp, e->u.buffer);
  if (!imp->wide) return expr_load(imp->dst, b, e->nargs, index);
  const Expr **wide = arena_array(imp->arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) wide[i] = expr_widen(imp->dst, index[i]);
  return expr_load(imp->dst, b, e->nargs, wide);
}

static const Expr *import_node(Importer *imp, const Expr *e, const Expr *const *arg)
{
  Module *m = imp->dst;
  switch ((ExprKind)e->kind) {
  case E_INT: return expr_int(m, e->dtype, e->u.i);
  case E_FLOAT: return expr_float(m, e->dtype, e->u.f);
  case E_STR: return expr_str(m, e->u.str);
  case E_VAR: return var_import(imp, e->u.var)->expr;
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR: return expr_binary(m, (ExprKind)e->kind, arg[0], arg[1]);
  case E_NOT: return expr_not(m, arg[0]);
  case E_CAST: return expr_cast(m, e->dtype, arg[0]);
  case E_SELECT: return expr_select(m, arg[0], arg[1], arg[2]);
  case E_LET: return expr_let(m, var_import(imp, e->u.var), arg[0], arg[1]);
  case E_LOAD: return import_load(imp, e, arg);
  case E_CALL: return expr_call(m, e->dtype, e->u.intrin, e->nargs, arg);
  case E_RAMP: return expr_ramp(m, arg[0], arg[1], e->dtype.lanes);
  case E_BROADCAST: return expr_broadcast(m, arg[0], e->dtype.lanes);
  case E_REDUCE: {
    const Reduce *r = e->u.reduce;
    const IterVar **axis = arena_array(imp->arena, const IterVar *, r->naxis);
    for (int i = 0; i < r->naxis; i++) axis[i] = iter_import(imp, r->axis[i]);
    int n = r->reducer->n;
    const Expr **source = arena_copy(imp->arena, arg, (size_t)n * sizeof *arg);
    for (int i = 0; i < n && imp->wide; i++) source[i] = expr_cast(m, r->reducer->lhs[i]->dtype, arg[i]);
    return expr_reduce(m, reducer_import(imp, r->reducer), n, source, r->naxis, axis, arg[n],
                       r->has_init ? arg + n + 1 : NULL, r->value_index);
  }
  case E_NKINDS: break;
  }
  BUG(m->ctx, "expr_import of kind %d", e->kind);
}

const Expr *expr_import(Importer *imp, const Expr *e)
{
  const Expr *to = map_get(&imp->expr, e);
  if (to) return to;
  const Expr **arg = arena_array(imp->arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = expr_import(imp, e->arg[i]);
  to = import_node(imp, e, arg);
  map_put(imp->arena, &imp->expr, e, (void *)(uintptr_t)to);
  return to;
}
