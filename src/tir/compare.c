/* compare.c: structural equality and hash of functions.
 *
 * Two functions are equal when one becomes the other by renaming variables and
 * buffers.  Both trees are walked together; at a binder the two variables are
 * paired, one to one, and a use must find its pair.  A variable without a binder
 * (a symbolic size) is paired where it is first met.  Annotations compare as sets.
 * A loop or an axis of one step has one value: its variable and that number are the
 * same, since primitives write either.
 *
 * The hash walks in the same order and numbers variables at their binders, so it
 * sees nothing of names either. */
#include "tir/tir.h"

#include <stdio.h>

typedef struct Compare {
  Arena *arena;
  Map forth, back; /* Var* or Buffer* of one side -> of the other */
  Map memo;        /* Expr* -> Expr* found equal */
  Map only;        /* Var* -> Expr*: the one value it has */
  const char **why;
  bool keep_free; /* a variable without a binder stands for itself alone */
} Compare;

static bool __attribute__((format(printf, 2, 3))) differ(Compare *c, const char *fmt, ...)
{
  if (!c->why || *c->why) return false;
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  *c->why = arena_strdup(c->arena, text);
  return false;
}

/* ---- pairs ----------------------------------------------------------------------- */

static void pair(Compare *c, const void *a, const void *b)
{
  if (map_has(&c->forth, a) || map_has(&c->back, b)) c->memo = (Map){0};
  map_put(c->arena, &c->forth, a, (void *)(uintptr_t)b);
  map_put(c->arena, &c->back, b, (void *)(uintptr_t)a);
}

static bool paired(Compare *c, const void *a, const void *b, bool *is_new)
{
  const void *x = map_get(&c->forth, a);
  const void *y = map_get(&c->back, b);
  *is_new = !x && !y;
  return *is_new || (x == b && y == a);
}

static bool bind_vars(Compare *c, const char *what, const Var *a, const Var *b)
{
  if (!dtype_eq(a->dtype, b->dtype))
    return differ(c, "%s '%s' is %s and %s", what, a->name, dtype_name(c->arena, a->dtype),
                  dtype_name(c->arena, b->dtype));
  pair(c, a, b);
  return true;
}

/* The one number that a loop's or an axis's variable can be; NULL: there are more. */
static const Expr *only_value(const Expr *min, const Expr *extent)
{
  return min->kind == E_INT && expr_is_int(extent, 1) ? min : NULL;
}

static void note_only(Arena *arena, Map *only, const Var *v, const Expr *min, const Expr *extent)
{
  const Expr *value = only_value(min, extent);
  if (value) map_put(arena, only, v, (void *)(uintptr_t)value);
}

/* e, or the number that it can only be. */
static const Expr *as_only(const Map *only, const Expr *e)
{
  const Expr *value = e->kind == E_VAR ? map_get(only, e->u.var) : NULL;
  return value && dtype_eq(value->dtype, e->dtype) ? value : e;
}

static bool same_var(Compare *c, const Var *a, const Var *b)
{
  bool is_new;
  if (!paired(c, a, b, &is_new)) return differ(c, "variable '%s' stands where '%s' does", a->name, b->name);
  if (is_new && c->keep_free && a->origin != b->origin)
    return differ(c, "the free variables '%s' and '%s' are not the same", a->name, b->name);
  return !is_new || bind_vars(c, "variable", a, b);
}

/* ---- expressions ------------------------------------------------------------------- */

static bool same_buffer(Compare *c, const Buffer *a, const Buffer *b);
static bool same_expr(Compare *c, const Expr *a, const Expr *b);

static bool same_exprs(Compare *c, int n, const Expr *const *a, const Expr *const *b)
{
  for (int i = 0; i < n; i++)
    if (!same_expr(c, a[i], b[i])) return false;
  return true;
}

static bool unlike(Compare *c, const Expr *a, const Expr *b)
{
  return differ(c, "'%s' and '%s'", expr_str_of(c->arena, a), expr_str_of(c->arena, b));
}

static bool same_reduce(Compare *c, const Reduce *a, const Reduce *b)
{
  if (strcmp(a->reducer->name, b->reducer->name) || a->reducer->n != b->reducer->n || a->naxis != b->naxis ||
      a->value_index != b->value_index || a->has_init != b->has_init)
    return differ(c, "reductions '%s' and '%s'", a->reducer->name, b->reducer->name);
  for (int i = 0; i < a->naxis; i++)
    if (!same_expr(c, a->axis[i]->min, b->axis[i]->min) || !same_expr(c, a->axis[i]->extent, b->axis[i]->extent) ||
        !bind_vars(c, "axis", a->axis[i]->var, b->axis[i]->var))
      return false;
  return true;
}

static bool same_node(Compare *c, const Expr *a, const Expr *b)
{
  if (a->kind != b->kind || !dtype_eq(a->dtype, b->dtype) || a->nargs != b->nargs) return unlike(c, a, b);
  switch ((ExprKind)a->kind) {
  case E_INT:
  case E_FLOAT: return a->u.bits == b->u.bits || unlike(c, a, b);
  case E_STR: return !strcmp(a->u.str, b->u.str) || unlike(c, a, b);
  case E_VAR: return same_var(c, a->u.var, b->u.var);
  case E_CALL:
    if (a->u.intrin != b->u.intrin) return unlike(c, a, b);
    break;
  case E_LET:
    return same_expr(c, a->arg[0], b->arg[0]) && bind_vars(c, "let", a->u.var, b->u.var) &&
           same_expr(c, a->arg[1], b->arg[1]);
  case E_LOAD:
    if (!same_buffer(c, a->u.buffer, b->u.buffer)) return false;
    break;
  case E_REDUCE:
    if (!same_reduce(c, a->u.reduce, b->u.reduce)) return false;
    break;
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
  case E_OR:
  case E_NOT:
  case E_CAST:
  case E_SELECT:
  case E_RAMP:
  case E_BROADCAST:
  case E_NKINDS: break;
  }
  return same_exprs(c, a->nargs, a->arg, b->arg);
}

static bool same_expr(Compare *c, const Expr *a, const Expr *b)
{
  if (!a || !b) return a == b || differ(c, "an expression is there on one side only");
  if (a->nargs && map_get(&c->memo, a) == b) return true;
  if (a->kind != b->kind) {
    a = as_only(&c->only, a);
    b = as_only(&c->only, b);
  }
  if (!same_node(c, a, b)) return false;
  if (a->nargs) map_put(c->arena, &c->memo, a, (void *)(uintptr_t)b);
  return true;
}

/* No offset is an offset of 0. */
static bool is_at_start(const Buffer *b) { return !b->elem_offset || expr_is_int(b->elem_offset, 0); }

static bool same_layout(Compare *c, const Buffer *a, const Buffer *b)
{
  if (!dtype_eq(a->dtype, b->dtype))
    return differ(c, "buffer '%s' holds %s and %s", a->name, dtype_name(c->arena, a->dtype),
                  dtype_name(c->arena, b->dtype));
  if (a->ndim != b->ndim) return differ(c, "buffer '%s' has %d and %d dimensions", a->name, a->ndim, b->ndim);
  if (strcmp(a->scope, b->scope)) return differ(c, "buffer '%s' is in scope %s and %s", a->name, a->scope, b->scope);
  bool factors = (a->offset_factor ? a->offset_factor : 1) == (b->offset_factor ? b->offset_factor : 1);
  if (a->align != b->align || !factors)
    return differ(c, "buffer '%s' has alignment %d/%d and %d/%d", a->name, a->align, a->offset_factor, b->align,
                  b->offset_factor);
  if (a->separators != b->separators) return differ(c, "buffer '%s' has other axis separators", a->name);
  if (!a->strides != !b->strides) return differ(c, "buffer '%s' has strides on one side only", a->name);
  return same_exprs(c, a->ndim, a->shape, b->shape) &&
         (!a->strides || same_exprs(c, a->ndim, a->strides, b->strides)) &&
         ((is_at_start(a) && is_at_start(b)) || same_expr(c, a->elem_offset, b->elem_offset));
}

static bool same_buffer(Compare *c, const Buffer *a, const Buffer *b)
{
  bool is_new;
  if (!paired(c, a, b, &is_new)) return differ(c, "buffer '%s' stands where '%s' does", a->name, b->name);
  if (!is_new) return true;
  if (!same_var(c, a->data, b->data) || !same_layout(c, a, b)) return false;
  pair(c, a, b);
  return true;
}

static bool bind_buffers(Compare *c, const Buffer *a, const Buffer *b)
{
  if (!bind_vars(c, "pointer", a->data, b->data) || !same_layout(c, a, b)) return false;
  pair(c, a, b);
  return true;
}

/* ---- statements ---------------------------------------------------------------------- */

static bool same_annots(Compare *c, const char *what, const Annots *a, const Annots *b)
{
  if (a->n != b->n) return differ(c, "%s: %d and %d annotations", what, a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    const Expr *other = annots_get(b, a->v[i].key);
    if (!other) return differ(c, "%s: annotation '%s' is there on one side only", what, a->v[i].key);
    if (!same_expr(c, a->v[i].value, other)) return differ(c, "%s: annotation '%s' differs", what, a->v[i].key);
  }
  return true;
}

static bool same_regions(Compare *c, const char *block, const char *what, int n, const Region *a, int m,
                         const Region *b)
{
  if (n != m) return differ(c, "block '%s': %d and %d %s", block, n, m, what);
  for (int i = 0; i < n; i++)
    if (!same_buffer(c, a[i].buffer, b[i].buffer) || !same_exprs(c, a[i].buffer->ndim, a[i].min, b[i].min) ||
        !same_exprs(c, a[i].buffer->ndim, a[i].extent, b[i].extent))
      return differ(c, "block '%s': %s differ", block, what);
  return true;
}

/* What a block reads; of a reduction without what it adds up itself, which may be said or not. */
static int foreign_reads(Arena *arena, const Block *b, const Region **out)
{
  Region *v = arena_array(arena, Region, b->nreads);
  int n = 0;
  for (int i = 0; i < b->nreads; i++) {
    bool own = false;
    for (int w = 0; w < b->nwrites; w++) own |= b->init && b->writes[w].buffer == b->reads[i].buffer;
    if (!own) v[n++] = b->reads[i];
  }
  *out = v;
  return n;
}

static bool same_reads(Compare *c, const Block *a, const Block *b)
{
  const Region *x, *y;
  int n = foreign_reads(c->arena, a, &x);
  int m = foreign_reads(c->arena, b, &y);
  return same_regions(c, a->name, "reads", n, x, m, y);
}

static bool same_stmt(Compare *c, const Stmt *a, const Stmt *b);

static bool same_iters(Compare *c, const Block *a, const Block *b)
{
  if (a->niter != b->niter) return differ(c, "block '%s': %d and %d axes", a->name, a->niter, b->niter);
  for (int i = 0; i < a->niter; i++) {
    const BlockIter *x = &a->iter[i];
    const BlockIter *y = &b->iter[i];
    if (x->kind != y->kind) return differ(c, "block '%s': axis '%s' differs in kind", a->name, x->var->name);
    if (!same_expr(c, x->min, y->min) || !same_expr(c, x->extent, y->extent) || !same_expr(c, x->value, y->value))
      return false;
  }
  for (int i = 0; i < a->niter; i++) {
    const BlockIter *x = &a->iter[i];
    const BlockIter *y = &b->iter[i];
    if (!bind_vars(c, "axis", x->var, y->var)) return false;
    note_only(c->arena, &c->only, x->var, x->min, x->extent);
    note_only(c->arena, &c->only, y->var, y->min, y->extent);
  }
  return true;
}

static bool same_block(Compare *c, const Block *a, const Block *b)
{
  if (!same_iters(c, a, b) || !same_expr(c, a->predicate, b->predicate)) return false;
  if (a->nallocs != b->nallocs) return differ(c, "block '%s': %d and %d allocations", a->name, a->nallocs, b->nallocs);
  for (int i = 0; i < a->nallocs; i++)
    if (!bind_buffers(c, a->allocs[i], b->allocs[i])) return false;
  if (a->nmatches != b->nmatches)
    return differ(c, "block '%s': %d and %d match_buffers", a->name, a->nmatches, b->nmatches);
  for (int i = 0; i < a->nmatches; i++)
    if (!same_regions(c, a->name, "sources", 1, &a->matches[i].source, 1, &b->matches[i].source) ||
        !bind_buffers(c, a->matches[i].buffer, b->matches[i].buffer))
      return false;
  if (!same_reads(c, a, b) || !same_regions(c, a->name, "writes", a->nwrites, a->writes, b->nwrites, b->writes))
    return false;
  if (!same_annots(c, a->name, &a->annots, &b->annots)) return false;
  if (!a->init != !b->init) return differ(c, "block '%s' has an init on one side only", a->name);
  return (!a->init || same_stmt(c, a->init, b->init)) && same_stmt(c, a->body, b->body);
}

static bool same_loop(Compare *c, const Stmt *a, const Stmt *b)
{
  const char *name = a->u.loop.var->name;
  if (a->u.loop.kind != b->u.loop.kind)
    return differ(c, "loops '%s' and '%s' differ in kind", name, b->u.loop.var->name);
  const char *x = a->u.loop.thread_tag;
  const char *y = b->u.loop.thread_tag;
  if (a->u.loop.kind == FOR_THREAD && strcmp(x, y)) return differ(c, "loop '%s' is bound to %s and %s", name, x, y);
  if (!same_expr(c, a->u.loop.min, b->u.loop.min) || !same_expr(c, a->u.loop.extent, b->u.loop.extent)) return false;
  if (!same_annots(c, name, &a->u.loop.annots, &b->u.loop.annots) ||
      !bind_vars(c, "loop", a->u.loop.var, b->u.loop.var))
    return false;
  note_only(c->arena, &c->only, a->u.loop.var, a->u.loop.min, a->u.loop.extent);
  note_only(c->arena, &c->only, b->u.loop.var, b->u.loop.min, b->u.loop.extent);
  return same_stmt(c, a->u.loop.body, b->u.loop.body);
}

static bool same_alloc(Compare *c, const Stmt *a, const Stmt *b)
{
  const char *name = a->u.alloc.buffer->name;
  if (a->u.alloc.place != b->u.alloc.place) return differ(c, "allocation '%s' has two places", name);
  return same_expr(c, a->u.alloc.offset, b->u.alloc.offset) &&
         same_annots(c, name, &a->u.alloc.annots, &b->u.alloc.annots) &&
         bind_buffers(c, a->u.alloc.buffer, b->u.alloc.buffer) && same_stmt(c, a->u.alloc.body, b->u.alloc.body);
}

static bool same_attr(Compare *c, const Stmt *a, const Stmt *b)
{
  if (strcmp(a->u.attr.key, b->u.attr.key) || !a->u.attr.node != !b->u.attr.node)
    return differ(c, "attributes '%s' and '%s'", a->u.attr.key, b->u.attr.key);
  return (!a->u.attr.node || same_var(c, a->u.attr.node, b->u.attr.node)) &&
         same_expr(c, a->u.attr.value, b->u.attr.value) && same_stmt(c, a->u.attr.body, b->u.attr.body);
}

static bool same_stmt(Compare *c, const Stmt *a, const Stmt *b)
{
  static const char *const kinds[] = {"sequence", "for",        "if",       "while",     "let",
                                      "store",    "allocation", "evaluate", "attribute", "block"};
  if (a->kind != b->kind) return differ(c, "a statement is %s and %s", kinds[a->kind], kinds[b->kind]);
  switch (a->kind) {
  case S_SEQ:
    if (a->u.seq.n != b->u.seq.n) return differ(c, "a sequence has %d and %d statements", a->u.seq.n, b->u.seq.n);
    for (int i = 0; i < a->u.seq.n; i++)
      if (!same_stmt(c, a->u.seq.v[i], b->u.seq.v[i])) return false;
    return true;
  case S_FOR: return same_loop(c, a, b);
  case S_IF:
    if (!a->u.cond.orelse != !b->u.cond.orelse) return differ(c, "an if has an else on one side only");
    return same_expr(c, a->u.cond.cond, b->u.cond.cond) && same_stmt(c, a->u.cond.then, b->u.cond.then) &&
           (!a->u.cond.orelse || same_stmt(c, a->u.cond.orelse, b->u.cond.orelse));
  case S_WHILE:
    return same_expr(c, a->u.loop_while.cond, b->u.loop_while.cond) &&
           same_stmt(c, a->u.loop_while.body, b->u.loop_while.body);
  case S_LET:
    return same_expr(c, a->u.let.value, b->u.let.value) && bind_vars(c, "let", a->u.let.var, b->u.let.var) &&
           same_stmt(c, a->u.let.body, b->u.let.body);
  case S_STORE:
    return same_buffer(c, a->u.store.buffer, b->u.store.buffer) &&
           same_exprs(c, a->u.store.n, a->u.store.index, b->u.store.index) &&
           same_expr(c, a->u.store.value, b->u.store.value) && same_expr(c, a->u.store.mask, b->u.store.mask);
  case S_ALLOC: return same_alloc(c, a, b);
  case S_EVAL: return same_expr(c, a->u.eval.value, b->u.eval.value);
  case S_ATTR: return same_attr(c, a, b);
  case S_BLOCK: return same_block(c, a->u.block, b->u.block);
  }
  return false;
}

bool func_equal(const PrimFunc *a, const PrimFunc *b, Arena *arena, const char **why)
{
  Compare c = {.arena = arena, .why = why};
  if (why) *why = NULL;
  if (a->nparam != b->nparam) return differ(&c, "functions of %d and %d parameters", a->nparam, b->nparam);
  for (int i = 0; i < a->nparam; i++) {
    if (!a->param[i].buffer != !b->param[i].buffer) return differ(&c, "parameter %d is a buffer on one side only", i);
    if (!bind_vars(&c, "parameter", a->param[i].var, b->param[i].var)) return false;
  }
  for (int i = 0; i < a->nparam; i++)
    if (a->param[i].buffer && !same_buffer(&c, a->param[i].buffer, b->param[i].buffer)) return false;
  return same_annots(&c, "the function", &a->attrs, &b->attrs) && same_stmt(&c, a->body, b->body);
}

/* ---- expressions alone --------------------------------------------------------------------- */

bool tir_expr_equal(const Expr *a, const Expr *b, bool map_free, Arena *arena, const char **why)
{
  Compare c = {.arena = arena, .why = why, .keep_free = !map_free};
  if (why) *why = NULL;
  return same_expr(&c, a, b);
}

/* ---- hash ---------------------------------------------------------------------------------- */

typedef struct Hash {
  Arena *arena;
  uint64_t h;
  Map number; /* Var* or Buffer* -> its number */
  Map memo;   /* Expr* -> hash */
  Map only;   /* Var* -> Expr*: the one value it has */
  uint64_t next;
} Hash;

static void mix(Hash *s, uint64_t x) { s->h = hash_mix(s->h, x); }
static void mix_str(Hash *s, const char *t) { s->h = hash_bytes(t, strlen(t), s->h); }

static void number(Hash *s, const void *thing)
{
  if (map_has(&s->number, thing)) s->memo = (Map){0};
  map_put(s->arena, &s->number, thing, (void *)(uintptr_t)++s->next);
}

static uint64_t dtype_bits(DType t) { return (uint64_t)t.code << 32 | (uint64_t)t.bits << 16 | t.lanes; }

static uint64_t number_of(Hash *s, const void *thing)
{
  if (!map_has(&s->number, thing)) number(s, thing);
  return (uint64_t)(uintptr_t)map_get(&s->number, thing);
}

static uint64_t hash_expr(Hash *s, const Expr *e);

static void mix_expr(Hash *s, const Expr *e) { mix(s, e ? hash_expr(s, e) : 0); }
static void mix_exprs(Hash *s, int n, const Expr *const *v)
{
  for (int i = 0; i < n; i++) mix_expr(s, v[i]);
}

static void mix_buffer(Hash *s, const Buffer *b)
{
  bool is_new = !map_has(&s->number, b);
  if (is_new) {
    mix(s, number_of(s, b->data));
    mix(s, dtype_bits(b->dtype));
    mix(s, (uint64_t)b->ndim);
    mix_str(s, b->scope);
    mix_exprs(s, b->ndim, b->shape);
    if (b->strides) mix_exprs(s, b->ndim, b->strides);
    if (!is_at_start(b)) mix_expr(s, b->elem_offset);
  }
  mix(s, number_of(s, b));
}

static uint64_t hash_expr(Hash *s, const Expr *e)
{
  e = as_only(&s->only, e);
  uint64_t done = (uint64_t)(uintptr_t)map_get(&s->memo, e);
  uint64_t outer = s->h;
  if (done) return done;
  s->h = hash_mix(e->kind, dtype_bits(e->dtype));
  if (e->kind == E_INT || e->kind == E_FLOAT || e->kind == E_CALL)
    mix(s, e->kind == E_CALL ? (uint64_t)e->u.intrin : e->u.bits);
  if (e->kind == E_STR) mix_str(s, e->u.str);
  if (e->kind == E_VAR) mix(s, number_of(s, e->u.var));
  if (e->kind == E_LOAD) mix_buffer(s, e->u.buffer);
  if (e->kind == E_REDUCE)
    for (int i = 0; i < e->u.reduce->naxis; i++) number(s, e->u.reduce->axis[i]->var);
  for (int i = 0; i < e->nargs; i++) {
    if (e->kind == E_LET && i == 1) number(s, e->u.var);
    mix_expr(s, e->arg[i]);
  }
  uint64_t h = s->h | 1;
  s->h = outer;
  /* each let is a binder of its own, even where the same node stands twice */
  if (!expr_has_kind(e, E_LET)) map_put(s->arena, &s->memo, e, (void *)(uintptr_t)h);
  return h;
}

/* A sum, so that order does not count; values other than literals are left out. */
static void mix_annots(Hash *s, const Annots *a)
{
  uint64_t sum = (uint64_t)a->n;
  for (int i = 0; i < a->n; i++) {
    uint64_t h = hash_bytes(a->v[i].key, strlen(a->v[i].key), 7);
    sum += expr_is_const(a->v[i].value) ? hash_mix(h, a->v[i].value->u.bits) : h;
  }
  mix(s, sum);
}

static void bind_buffer(Hash *s, const Buffer *b)
{
  number(s, b->data);
  mix_buffer(s, b);
}

static void mix_regions(Hash *s, int n, const Region *v)
{
  mix(s, (uint64_t)n);
  for (int i = 0; i < n; i++) {
    mix_buffer(s, v[i].buffer);
    mix_exprs(s, v[i].buffer->ndim, v[i].min);
    mix_exprs(s, v[i].buffer->ndim, v[i].extent);
  }
}

static void mix_stmt(Hash *s, const Stmt *t);

static void mix_block(Hash *s, const Block *b)
{
  for (int i = 0; i < b->niter; i++) {
    mix(s, (uint64_t)b->iter[i].kind);
    mix_exprs(s, 3, (const Expr *[]){b->iter[i].min, b->iter[i].extent, b->iter[i].value});
  }
  for (int i = 0; i < b->niter; i++) {
    number(s, b->iter[i].var);
    note_only(s->arena, &s->only, b->iter[i].var, b->iter[i].min, b->iter[i].extent);
  }
  mix_expr(s, b->predicate);
  for (int i = 0; i < b->nallocs; i++) bind_buffer(s, b->allocs[i]);
  for (int i = 0; i < b->nmatches; i++) {
    mix_regions(s, 1, &b->matches[i].source);
    bind_buffer(s, b->matches[i].buffer);
  }
  const Region *reads;
  int nreads = foreign_reads(s->arena, b, &reads);
  mix_regions(s, nreads, reads);
  mix_regions(s, b->nwrites, b->writes);
  mix_annots(s, &b->annots);
  if (b->init) mix_stmt(s, b->init);
  mix_stmt(s, b->body);
}

static void mix_stmt(Hash *s, const Stmt *t)
{
  mix(s, (uint64_t)t->kind + 100);
  switch (t->kind) {
  case S_SEQ:
    for (int i = 0; i < t->u.seq.n; i++) mix_stmt(s, t->u.seq.v[i]);
    break;
  case S_FOR:
    mix(s, (uint64_t)t->u.loop.kind);
    if (t->u.loop.kind == FOR_THREAD) mix_str(s, t->u.loop.thread_tag);
    mix_exprs(s, 2, (const Expr *[]){t->u.loop.min, t->u.loop.extent});
    mix_annots(s, &t->u.loop.annots);
    number(s, t->u.loop.var);
    note_only(s->arena, &s->only, t->u.loop.var, t->u.loop.min, t->u.loop.extent);
    mix_stmt(s, t->u.loop.body);
    break;
  case S_IF:
    mix_expr(s, t->u.cond.cond);
    mix_stmt(s, t->u.cond.then);
    if (t->u.cond.orelse) mix_stmt(s, t->u.cond.orelse);
    break;
  case S_WHILE:
    mix_expr(s, t->u.loop_while.cond);
    mix_stmt(s, t->u.loop_while.body);
    break;
  case S_LET:
    mix_expr(s, t->u.let.value);
    number(s, t->u.let.var);
    mix_stmt(s, t->u.let.body);
    break;
  case S_STORE:
    mix_buffer(s, t->u.store.buffer);
    mix_exprs(s, t->u.store.n, t->u.store.index);
    mix_exprs(s, 2, (const Expr *[]){t->u.store.value, t->u.store.mask});
    break;
  case S_ALLOC:
    mix_expr(s, t->u.alloc.offset);
    mix_annots(s, &t->u.alloc.annots);
    bind_buffer(s, t->u.alloc.buffer);
    mix_stmt(s, t->u.alloc.body);
    break;
  case S_EVAL: mix_expr(s, t->u.eval.value); break;
  case S_ATTR:
    mix_str(s, t->u.attr.key);
    if (t->u.attr.node) mix(s, number_of(s, t->u.attr.node));
    mix_expr(s, t->u.attr.value);
    mix_stmt(s, t->u.attr.body);
    break;
  case S_BLOCK: mix_block(s, t->u.block); break;
  }
}

uint64_t func_hash(const PrimFunc *f)
{
  Scope scope = scope_begin(f->m->ctx);
  Hash s = {.arena = scratch(f->m->ctx), .h = 1};
  for (int i = 0; i < f->nparam; i++) {
    number(&s, f->param[i].var);
    mix(&s, dtype_bits(f->param[i].var->dtype));
  }
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) mix_buffer(&s, f->param[i].buffer);
  mix_annots(&s, &f->attrs);
  mix_stmt(&s, f->body);
  uint64_t h = s.h;
  scope_end(f->m->ctx, scope);
  return h;
}
