/* sched.c: schedules: their function, their random variables, their clones.
 *
 * A random variable holds the id of a statement, not its address: ids survive the
 * copies made by clones and by putting a refused primitive back. */
#include "schedule/engine.h"

/* Does the condition say no more than that a binding is inside of its domain? */
static bool keeps_domain(const Block *b, const Expr *cond)
{
  for (int i = 0; i < b->niter; i++)
    if (cond->kind == E_LT && cond->arg[0] == b->iter[i].value && cond->arg[1] == b->iter[i].extent &&
        expr_is_int(b->iter[i].min, 0))
      return true;
  return expr_is_int(cond, 1);
}

static bool note_guarded(void *env, Stmt *s)
{
  Sched *sch = env;
  const Expr **part;
  bool guarded = false;
  if (s->kind != S_BLOCK) return true;
  int n = sched_conjuncts(scratch(sch->ctx), BLOCK(s)->predicate, &part);
  for (int i = 0; i < n; i++) guarded |= !keeps_domain(BLOCK(s), part[i]);
  if (guarded) vec_push(sch->m->arena, &sch->guarded, s->id);
  return true;
}

/* Primitives build on what a block says it reads and writes; an inner block's is part of an outer one's. */
static void hold_regions(Sched *s, Stmt *block)
{
  Stmt **inner;
  int n = tree_blocks(scratch(s->ctx), block, &inner);
  for (int i = 0; i < n; i++) hold_regions(s, inner[i]);
  if (BLOCK(block)->declared) block_widen_access(s->m, BLOCK(block));
}

/* While the indices are as they were written; later ones are harder to see through. */
static bool prove_kinds(void *env, Stmt *s)
{
  Sched *sch = env;
  if (s->kind != S_BLOCK || !s->parent) return true;
  sch->loose |= facts_used_loop(sch, s) != NULL;
  facts_false_kinds(sch, s);
  return true;
}

static void release_module(void *m) { module_release(m); }

/* A schedule around an imported copy of f; nothing is left behind if that fails. */
static Sched *sched_around(const PrimFunc *f)
{
  Ctx *ctx = f->m->ctx;
  Scope scope = scope_begin(ctx);
  Module *m = module_new(ctx);
  defer(ctx, release_module, m);
  Sched *s = arena_new_of(m->arena, Sched);
  s->ctx = ctx;
  s->m = m;
  s->number = ctx_number(ctx);
  s->f = func_import(m, f);
  module_retain(m);
  scope_end(ctx, scope);
  return s;
}

static void free_schedule(void *s) { sched_free(s); }

static void check_schedulable(const PrimFunc *f)
{
  if (f->body->kind != S_BLOCK)
    raise(f->m->ctx, ERR_SCHEDULE, NOWHERE,
          "function '%s' has no blocks, so it cannot be scheduled: its body must be a block named 'root'", f->name);
}

void sched_seed(Sched *s, uint64_t seed) { s->rng = seed ? seed : 0x243f6a8885a308d3u; }

Sched *sched_new(const PrimFunc *f, uint64_t seed)
{
  check_schedulable(f);
  Ctx *ctx = f->m->ctx;
  Scope scope = scope_begin(ctx);
  Sched *s = sched_around(f);
  defer(ctx, free_schedule, s);
  sched_seed(s, seed);
  hold_regions(s, s->f->body);
  stmt_visit(s->f->body, note_guarded, s);
  stmt_visit(s->f->body, prove_kinds, s);
  module_retain(s->m);
  scope_end(ctx, scope);
  return s;
}

Sched *sched_clone(const Sched *from)
{
  Ctx *ctx = from->ctx;
  Scope scope = scope_begin(ctx);
  Sched *s = sched_around(from->f);
  defer(ctx, free_schedule, s);
  Arena *a = s->m->arena;
  s->rng = from->rng;
  s->loose = from->loose;
  for (int i = 0; i < from->rv.n; i++) vec_push(a, &s->rv, from->rv.v[i]);
  for (int i = 0; i < from->trace.n; i++) vec_push(a, &s->trace, arena_strdup(a, from->trace.v[i]));
  for (int i = 0; i < from->intrins.n; i++) vec_push(a, &s->intrins, from->intrins.v[i]);
  for (int i = 0; i < from->guarded.n; i++) vec_push(a, &s->guarded, from->guarded.v[i]);
  for (int i = 0; i < from->proven.n; i++) vec_push(a, &s->proven, from->proven.v[i]);
  for (int i = 0; i < from->origins.n; i++) vec_push(a, &s->origins, from->origins.v[i]);
  vec_push(a, &s->origins, ((Origin){from->number, from->rv.n}));
  module_retain(s->m);
  scope_end(ctx, scope);
  return s;
}

bool sched_knows(const Sched *s, const Sched *of, int rv)
{
  if (of->number == s->number) return true;
  for (int i = 0; i < s->origins.n; i++)
    if (s->origins.v[i].number == of->number) return rv < s->origins.v[i].n;
  return false;
}

void sched_free(Sched *s)
{
  if (s) module_release(s->m);
}

PrimFunc *sched_func(Sched *s) { return s->f; }
Module *sched_module(Sched *s) { return s->m; }

static const Buffer *root_alloc(const Block *root, const char *name)
{
  for (int i = 0; i < root->nallocs; i++)
    if (!strcmp(root->allocs[i]->name, name)) return root->allocs[i];
  return NULL;
}

void sched_expose(Sched *s, const char *name, int at)
{
  Scope scope = scope_begin(s->ctx);
  PrimFunc *f = s->f;
  const Buffer *b = root_alloc(BLOCK(f->body), name);
  if (!b || strcmp(b->scope, "global"))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "buffer '%s' lives in scope %s, so it cannot be an argument of '%s'", name,
          b ? b->scope : "of another block", f->name);
  sched_func_drop_alloc(s, b);
  Param *param = arena_array(s->m->arena, Param, f->nparam + 1);
  for (int i = 0; i <= f->nparam; i++) param[i] = i == at ? (Param){b->data, b} : f->param[i < at ? i : i - 1];
  f->param = param;
  f->nparam++;
  Stmt **block;
  int n = tree_all_blocks(scratch(s->ctx), f, &block);
  for (int i = 0; i < n; i++)
    if (facts_writes(BLOCK(block[i]), b) && block[i] != f->body) facts_check_above(s, "compute_at", block[i]);
  scope_end(s->ctx, scope);
}

void sched_add_intrin(Sched *s, const TensorIntrin *intrin)
{
  for (int i = 0; i < s->intrins.n; i++)
    if (!strcmp(s->intrins.v[i]->name, intrin->name)) {
      s->intrins.v[i] = intrin;
      return;
    }
  vec_push(s->m->arena, &s->intrins, intrin);
}

/* ---- random variables ------------------------------------------------------------ */

static const char *rv_names[] = {[RV_BLOCK] = "block", [RV_LOOP] = "loop", [RV_INT] = "integer"};

static const Rv *rv_get(Sched *s, int64_t id, RvKind kind)
{
  if (id < 0 || id >= s->rv.n)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "there is no random variable %" PRId64 " in this schedule, which has %d", id,
          s->rv.n);
  const Rv *rv = &s->rv.v[id];
  if (rv->kind != kind)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "random variable %" PRId64 " is a %s where a %s is wanted", id,
          rv_names[rv->kind], rv_names[kind]);
  return rv;
}

static Stmt *rv_stmt(Sched *s, int64_t id, RvKind kind)
{
  const Rv *rv = rv_get(s, id, kind);
  if (rv->mark)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "random variable l%" PRId64 " stands for '%s', not for a loop; only compute_at takes it", id,
          rv->mark == MARK_ROOT ? "at the root" : "inline");
  Stmt *found = func_find_id(s->f, rv->stmt);
  if (!found)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "the %s of random variable %c%" PRId64 " is gone: a later primitive replaced it; get it again from its block",
          rv_names[kind], kind == RV_LOOP ? 'l' : 'b', id);
  return found;
}

const char *sched_print_marked(Arena *a, Sched *s, int n, const SchedArg *rv)
{
  uint32_t *id = arena_array(a, uint32_t, n);
  int count = 0;
  for (int i = 0; i < n; i++)
    if (rv[i].u.i >= 0 && rv[i].u.i < s->rv.n) id[count++] = s->rv.v[rv[i].u.i].stmt;
  return func_print_marked(a, s->f, count, id);
}

Stmt *sched_block_stmt(Sched *s, BlockRV b) { return rv_stmt(s, b.id, RV_BLOCK); }
Stmt *sched_loop_stmt(Sched *s, LoopRV l) { return rv_stmt(s, l.id, RV_LOOP); }
int64_t sched_int_value(Sched *s, IntRV v) { return rv_get(s, v.id, RV_INT)->value; }

Stmt *sched_arg_block(Sched *s, const SchedArg *a) { return rv_stmt(s, a->u.i, RV_BLOCK); }
Stmt *sched_arg_loop(Sched *s, const SchedArg *a) { return rv_stmt(s, a->u.i, RV_LOOP); }

Stmt *sched_arg_block_or_loop(Sched *s, const SchedArg *a)
{
  return a->kind == SA_BLOCK ? sched_arg_block(s, a) : sched_arg_loop(s, a);
}

LoopMark sched_arg_mark(Sched *s, const SchedArg *a) { return rv_get(s, a->u.i, RV_LOOP)->mark; }

int64_t sched_arg_int(Sched *s, const SchedArg *a)
{
  return a->kind == SA_INTRV ? rv_get(s, a->u.i, RV_INT)->value : a->u.i;
}

const Expr *sched_arg_expr(Sched *s, const SchedArg *a, DType dtype)
{
  switch (a->kind) {
  case SA_INT: return expr_const(s->m, dtype, (double)a->u.i);
  case SA_INTRV: return expr_const(s->m, dtype, (double)sched_arg_int(s, a));
  case SA_FLOAT: return expr_float(s->m, dtype_is_float(dtype) ? dtype : DT_F32, a->u.f);
  case SA_STR: return expr_str(s->m, a->u.s);
  case SA_EXPR: return a->u.e;
  case SA_LIST: {
    const Expr **v = arena_array(scratch(s->ctx), const Expr *, a->u.list.n);
    for (int i = 0; i < a->u.list.n; i++) v[i] = sched_arg_expr(s, &a->u.list.v[i], dtype);
    return expr_call(s->m, DT_PTR, IN_MAKE_SHAPE, a->u.list.n, v);
  }
  case SA_NONE:
  case SA_BLOCK:
  case SA_LOOP:
  case SA_MAP:
  case SA_FUNC:
  case SA_INTRIN: break;
  }
  BUG(s->ctx, "argument of kind %d is no expression", a->kind);
}

static SchedArg result_rv(Sched *s, Rv rv, int kind)
{
  vec_push(s->m->arena, &s->rv, rv);
  return (SchedArg){.kind = kind, .u.i = s->rv.n - 1};
}

SchedArg sched_result_block(Sched *s, Stmt *b) { return result_rv(s, (Rv){RV_BLOCK, b->id, MARK_NONE, 0}, SA_BLOCK); }
SchedArg sched_result_loop(Sched *s, Stmt *l) { return result_rv(s, (Rv){RV_LOOP, l->id, MARK_NONE, 0}, SA_LOOP); }
SchedArg sched_result_mark(Sched *s, LoopMark mark) { return result_rv(s, (Rv){RV_LOOP, 0, mark, 0}, SA_LOOP); }
SchedArg sched_result_int(Sched *s, int64_t v) { return result_rv(s, (Rv){RV_INT, 0, MARK_NONE, v}, SA_INTRV); }

SchedArg sched_result_list(Sched *s, int n, const SchedArg *v)
{
  SchedArg out = {.kind = SA_LIST};
  out.u.list.v = n ? arena_copy(s->m->arena, v, sizeof *v * (size_t)n) : NULL;
  out.u.list.n = n;
  return out;
}
