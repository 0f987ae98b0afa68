/* kernel.c: the last touches, and the kernel a backend takes.
 *
 * lower_pass_unique_vars
 *   Where two binders bind the same variable (copies made on the way) all but the
 *   first get new ones.
 *
 * needs   statements final
 * keeps   everything else
 * breaks  nothing
 *
 * lower_make_kernel collects the arguments in the user's order, the sizes that must
 * be read off them, and what place_storage left as attributes. */
#include "lower/internal.h"

#include <limits.h>
#include <stdlib.h>

/* ---- unique variables ---------------------------------------------------------------------- */

typedef struct Unique {
  Lower *lo;
  Arena *tmp;
  Map seen; /* Var* bound so far */
} Unique;

static const Var *bound_by(const Stmt *s)
{
  switch (s->kind) {
  case S_FOR: return s->u.loop.var;
  case S_LET: return s->u.let.var;
  case S_ALLOC: return s->u.alloc.buffer->data;
  case S_SEQ:
  case S_IF:
  case S_WHILE:
  case S_STORE:
  case S_EVAL:
  case S_ATTR:
  case S_BLOCK: break;
  }
  return NULL;
}

static Stmt *unique_stmt(void *env, Stmt *s)
{
  Unique *u = env;
  const Var *v = bound_by(s);
  if (v && map_has(&u->seen, v)) {
    s = stmt_clone_fresh(u->lo->m, s, NULL);
    v = bound_by(s);
  }
  if (v) map_put(u->tmp, &u->seen, v, NULL);
  lower_map_children(u->lo->m, s, unique_stmt, u);
  return s;
}

void lower_pass_unique_vars(Lower *lo)
{
  Unique u = {.lo = lo, .tmp = scratch(lo->ctx)};
  lo->f->body = unique_stmt(&u, lo->f->body);
}

/* ---- captures -------------------------------------------------------------------------------- */

typedef struct Captures {
  Arena *arena;
  Map bound, found;
  Vec(const Var *) out;
} Captures;

static void capture(Captures *c, const Var *v)
{
  if (map_has(&c->bound, v) || map_has(&c->found, v)) return;
  map_put(c->arena, &c->found, v, NULL);
  vec_push(c->arena, &c->out, v);
}

/* A let inside an expression binds before its body is seen: walked by hand. */
static void capture_expr(Captures *c, Map *seen, const Expr *e)
{
  if (e->kind == E_VAR) capture(c, e->u.var);
  if (e->nargs == 0 || map_has(seen, e)) return;
  map_put(c->arena, seen, e, NULL);
  if (e->kind == E_LOAD) capture(c, e->u.buffer->data);
  if (e->kind == E_LET) {
    capture_expr(c, seen, e->arg[0]);
    map_put(c->arena, &c->bound, e->u.var, NULL);
    capture_expr(c, seen, e->arg[1]);
    return;
  }
  for (int i = 0; i < e->nargs; i++) capture_expr(c, seen, e->arg[i]);
}

static const Expr *capture_held(void *env, const Expr *e)
{
  Map seen = {0};
  capture_expr(env, &seen, e);
  return e;
}

static bool capture_stmt(void *env, Stmt *s)
{
  Captures *c = env;
  if (s->kind == S_STORE) capture(c, s->u.store.buffer->data);
  lower_map_exprs(s, capture_held, c);
  const Var *v = bound_by(s);
  if (v) map_put(c->arena, &c->bound, v, NULL);
  return true;
}

int lower_captures(Arena *arena, Stmt *s, const Var ***out)
{
  Captures c = {.arena = arena};
  stmt_visit(s, capture_stmt, &c);
  *out = c.out.v;
  return c.out.n;
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

typedef struct Written {
  Lower *lo;
  Map data; /* data Var* that is stored to, or handed to a function */
} Written;

static void note_pointers(void *env, const Expr *e)
{
  Written *w = env;
  if (e->kind == E_LOAD) map_put(scratch(w->lo->ctx), &w->data, e->u.buffer->data, NULL);
  if (e->kind == E_VAR && e->dtype.code == DT_HANDLE) map_put(scratch(w->lo->ctx), &w->data, e->u.var, NULL);
}

/* Arguments of a call with effects: pointers among them may be written through. */
static void note_calls(void *env, const Expr *e)
{
  Written *w = env;
  if (e->kind != E_CALL || intrin_info(e->u.intrin)->flags & INF_PURE || e->u.intrin == IN_PREFETCH) return;
  for (int i = 0; i < e->nargs; i++) {
    const Expr *a = e->arg[i];
    bool pointer = a->dtype.code == DT_HANDLE && a->kind != E_STR;
    if (pointer) expr_visit(w->lo->ctx, a, note_pointers, w);
  }
}

static const Expr *note_held(void *env, const Expr *e)
{
  Written *w = env;
  if (!expr_is_pure(e)) expr_visit(w->lo->ctx, e, note_calls, w);
  return e;
}

static bool note_stores(void *env, Stmt *s)
{
  Written *w = env;
  if (s->kind == S_STORE) map_put(scratch(w->lo->ctx), &w->data, s->u.store.buffer->data, NULL);
  lower_map_exprs(s, note_held, w);
  return true;
}

typedef struct Sizes {
  Kernel *k;
  Map known; /* Var* given by a scalar argument or a size */
  Vec(KernelSize) v;
} Sizes;

static void add_size(Sizes *z, const Expr *e, int arg, int dim)
{
  if (!e || e->kind != E_VAR || map_has(&z->known, e->u.var)) return;
  map_put(scratch(z->k->m->ctx), &z->known, e->u.var, NULL);
  vec_push(z->k->m->arena, &z->v, (KernelSize){e->u.var, arg, dim});
}

static void check_known(Sizes *z, const KernelArg *a, const Expr *e)
{
  const Var **vars;
  int n = expr_free_vars(scratch(z->k->m->ctx), e, &vars);
  for (int i = 0; i < n; i++)
    if (!map_has(&z->known, vars[i]))
      raise(z->k->m->ctx, ERR_ARGUMENT, NOWHERE,
            "%s: the shape of '%s' mentions '%s', which no argument gives; pass it as a scalar", z->k->name, a->name,
            vars[i]->name);
}

static void find_sizes(Kernel *k)
{
  Sizes z = {.k = k};
  for (int i = 0; i < k->narg; i++)
    if (!k->arg[i].buffer) map_put(scratch(k->m->ctx), &z.known, k->arg[i].var, NULL);
  for (int i = 0; i < k->narg; i++) {
    const Buffer *b = k->arg[i].buffer;
    for (int d = 0; b && d < b->ndim; d++) add_size(&z, b->shape[d], i, d);
    for (int d = 0; b && b->strides && d < b->ndim; d++) add_size(&z, b->strides[d], i, -1 - d);
    if (b) add_size(&z, b->elem_offset, i, INT_MIN);
  }
  for (int i = 0; i < k->narg; i++) {
    const Buffer *b = k->arg[i].buffer;
    for (int d = 0; b && d < b->ndim; d++) check_known(&z, &k->arg[i], b->shape[d]);
    for (int d = 0; b && b->strides && d < b->ndim; d++) check_known(&z, &k->arg[i], b->strides[d]);
    if (b && b->elem_offset) check_known(&z, &k->arg[i], b->elem_offset);
  }
  k->size = z.v.v;
  k->nsize = z.v.n;
}

/* "tir.noalias" = 0: all parameters may overlap; "tir.in_place" = "1,3": those may. */
bool lower_may_alias(const PrimFunc *f, int param)
{
  const Expr *noalias = annots_get(&f->attrs, "tir.noalias");
  const Expr *some = annots_get(&f->attrs, "tir.in_place");
  if (noalias && expr_is_int(noalias, 0)) return true;
  const char *t = some && some->kind == E_STR ? some->u.str : "";
  for (char *end; *t; t = end + (*end == ',')) {
    long n = strtol(t, &end, 10);
    if (end == t) return false;
    if (n == param) return true;
  }
  return false;
}

/* Every variable of the body must come from somewhere. */
static void check_closed(Kernel *k)
{
  const Var **free;
  int n = lower_captures(scratch(k->m->ctx), k->body, &free);
  for (int i = 0; i < n; i++) {
    bool known = false;
    for (int a = 0; a < k->narg; a++) known |= k->arg[a].var == free[i];
    for (int s = 0; s < k->nsize; s++) known |= k->size[s].var == free[i];
    if (!known)
      raise(k->m->ctx, ERR_ARGUMENT, NOWHERE, "%s: '%s' is used but no argument gives it; list it among the arguments",
            k->name, free[i]->name);
  }
}

Kernel *lower_make_kernel(Lower *lo)
{
  Module *m = lo->m;
  const PrimFunc *f = lo->f;
  Kernel *k = arena_new_of(m->arena, Kernel);
  k->m = m;
  k->name = func_symbol(f);
  k->target = lo->target;
  k->narg = f->nparam;
  k->arg = arena_array(m->arena, KernelArg, f->nparam);
  k->body = f->body;
  Scope scope = scope_begin(lo->ctx);
  Written w = {.lo = lo};
  stmt_visit(f->body, note_stores, &w);
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    k->arg[i] =
        (KernelArg){.name = b ? b->name : f->param[i].var->name, .var = b ? b->data : f->param[i].var, .buffer = b};
    k->arg[i].written = b && map_has(&w.data, b->data);
    k->arg[i].may_alias = b && lower_may_alias(f, i);
  }
  find_sizes(k);
  check_closed(k);
  scope_end(lo->ctx, scope);
  k->workspace_bytes = annots_get(&f->attrs, "workspace_bytes");
  k->slice_bytes = annots_get(&f->attrs, "slice_bytes");
  return k;
}
