/* unroll.c: unrolled loops written out.
 *
 * lower_pass_unroll_loops
 *   A loop marked unrolled with a constant extent becomes its body repeated.  Under
 *   pragma_auto_unroll_max_step = n (on a loop or as an attribute; the configuration's
 *   unroll_max where there is none) plain loops with constant extents are unrolled
 *   too while the statements they give together stay at most n.  A marked loop whose
 *   extent is not constant (the tail of a partition) runs as it is; where it depends on a
 *   marked loop around it, that one is written out first.
 *
 * needs   no blocks, no vector loops, loops from 0
 * keeps   everything else
 * breaks  afterwards no loop is FOR_UNROLLED */
#include "lower/internal.h"

enum { MAX_STATEMENTS = 16384 }; /* in one function: beyond that code is only larger */

typedef struct Unroll {
  Lower *lo;
  Arena *tmp;
  int64_t auto_max; /* 0: only what is marked */
  int64_t made;     /* statements so far */
} Unroll;

static Stmt *repeat(Unroll *u, Stmt *s, int64_t n)
{
  Module *m = u->lo->m;
  const Var *var = s->u.loop.var;
  Vec(Stmt *) out = {0};
  for (int64_t i = 0; i < n; i++) {
    Scope scope = scope_begin(u->lo->ctx);
    Map vars = {0};
    const Expr *at = expr_add(m, expr_int(m, var->dtype, i), s->u.loop.min);
    if (expr_is_int(s->u.loop.min, 0)) at = expr_int(m, var->dtype, i);
    map_put(m->arena, &vars, var, (void *)(uintptr_t)at);
    Stmt *c = stmt_clone_fresh(m, s->u.loop.body, &vars);
    scope_end(u->lo->ctx, scope);
    vec_push(m->arena, &out, c);
  }
  return stmt_seq(m, out.n, out.v);
}

/* Iterations of leaf statements below s, MAX_STATEMENTS + 1 if not known or more. */
static int64_t steps_of(Stmt *s)
{
  int64_t n = 0;
  int64_t extent;
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) n += steps_of(s->u.seq.v[i]);
    break;
  case S_FOR:
    if (!lower_const_int(s->u.loop.extent, &extent) || s->u.loop.kind == FOR_PARALLEL || s->u.loop.kind == FOR_THREAD ||
        extent > MAX_STATEMENTS)
      return MAX_STATEMENTS + 1;
    n = extent * steps_of(s->u.loop.body);
    break;
  case S_IF: n = steps_of(s->u.cond.then) + (s->u.cond.orelse ? steps_of(s->u.cond.orelse) : 0); break;
  case S_WHILE: return MAX_STATEMENTS + 1;
  case S_LET: n = steps_of(s->u.let.body); break;
  case S_ALLOC: n = steps_of(s->u.alloc.body); break;
  case S_ATTR: n = steps_of(s->u.attr.body); break;
  case S_STORE:
  case S_EVAL:
  case S_BLOCK: n = 1; break;
  }
  return n > MAX_STATEMENTS ? MAX_STATEMENTS + 1 : n;
}

static int64_t pragma_max(const Unroll *u, const Expr *value)
{
  return value && value->kind == E_INT ? value->u.i : u->auto_max;
}

typedef struct Waiting {
  const Var *var;
  bool found;
} Waiting;

static bool find_waiting(void *env, Stmt *s)
{
  Waiting *w = env;
  w->found |= s->kind == S_FOR && s->u.loop.kind == FOR_UNROLLED && expr_uses_var(s->u.loop.extent, w->var);
  return !w->found;
}

/* A marked loop with marked ones inside whose extents it decides. */
static bool decides_extents(Stmt *s)
{
  Waiting w = {.var = s->kind == S_FOR ? s->u.loop.var : NULL};
  if (s->kind == S_FOR && s->u.loop.kind == FOR_UNROLLED) stmt_visit(s->u.loop.body, find_waiting, &w);
  return w.found;
}

static Stmt *unroll_stmt(void *env, Stmt *s)
{
  Unroll *u = env;
  int64_t outer = u->auto_max;
  int64_t n;
  if (decides_extents(s) && lower_const_int(s->u.loop.extent, &n) && n > 0 &&
      u->made + n * lower_count(s->u.loop.body) <= MAX_STATEMENTS)
    return unroll_stmt(u, lower_simplify(u->lo, lower_analyzer(u->lo), repeat(u, s, n)));
  bool pragma = s->kind == S_ATTR && !strcmp(s->u.attr.key, "pragma_auto_unroll_max_step");
  if (pragma) u->auto_max = pragma_max(u, s->u.attr.value);
  if (s->kind == S_FOR) u->auto_max = pragma_max(u, annots_get(&s->u.loop.annots, "pragma_auto_unroll_max_step"));
  bool plain = s->kind == S_FOR && s->u.loop.kind == FOR_SERIAL && u->auto_max > 0 && steps_of(s) <= u->auto_max;
  lower_map_children(u->lo->m, s, unroll_stmt, u);
  u->auto_max = outer;
  if (pragma) return s->u.attr.body;
  if (s->kind != S_FOR || !(plain || s->u.loop.kind == FOR_UNROLLED)) return s;
  if (s->u.loop.kind == FOR_UNROLLED) s->u.loop.kind = FOR_SERIAL;
  if (!lower_const_int(s->u.loop.extent, &n)) return s;
  int64_t size = lower_count(s->u.loop.body);
  if (n > MAX_STATEMENTS || u->made + n * size > MAX_STATEMENTS) return s;
  u->made += n * size;
  return n > 0 ? repeat(u, s, n) : stmt_nop(u->lo->m);
}

void lower_pass_unroll_loops(Lower *lo)
{
  Unroll u = {.lo = lo, .tmp = scratch(lo->ctx), .auto_max = lo->config.unroll_max};
  lo->f->body = unroll_stmt(&u, lo->f->body);
}
