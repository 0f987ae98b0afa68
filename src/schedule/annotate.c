/* annotate.c: kinds of loops, thread axes, annotations. */
#include "schedule/engine.h"

/* The last word counts. */
static void set_kind(Stmt *loop, ForKind kind)
{
  loop->u.loop.kind = kind;
  loop->u.loop.thread_tag = NULL;
}

SchedArg prim_parallel(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  set_kind(loop, FOR_PARALLEL);
  facts_check_independent(s, "parallel", loop);
  return sched_arg_none;
}

static void check_constant(Sched *s, const char *prim, Stmt *loop)
{
  if (loop->u.loop.extent->kind != E_INT)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: the extent %s of %s is not a constant; split it by a constant and %s the inner loop", prim,
          expr_str_of(scratch(s->ctx), loop->u.loop.extent), tree_what(s, loop), prim);
}

SchedArg prim_vectorize(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  check_constant(s, "vectorize", loop);
  set_kind(loop, FOR_VECTORIZED);
  facts_check_independent(s, "vectorize", loop);
  return sched_arg_none;
}

SchedArg prim_unroll(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  check_constant(s, "unroll", loop);
  set_kind(loop, FOR_UNROLLED);
  return sched_arg_none;
}

/* ---- bind ------------------------------------------------------------------------------ */

static bool known_axis(const char *tag)
{
  static const char *const tags[] = {"blockIdx.x",  "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y",
                                     "threadIdx.z", "vthread",    "vthread.x",  "vthread.y",   "vthread.z"};
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    if (!strcmp(tag, tags[i])) return true;
  return false;
}

/* Inside a loop over the same thread axis a loop does not run again: each thread takes
 * its own step.  That serves when nothing below it is the outer loop's business, as
 * when the threads of a block fill shared memory together. */
static bool is_cooperative(Sched *s, Stmt *inner, const Stmt *outer)
{
  Stmt **block;
  int n = tree_blocks(scratch(s->ctx), inner, &block);
  for (int i = 0; i < n; i++)
    if (facts_roles(BLOCK(block[i]), LOOPVAR(outer))) return false;
  return true;
}

/* Loops of one kernel (below its outermost bound loop) that share a thread axis
 * must agree on its extent, and nest only to work together. */
static void check_kernel(Sched *s, Stmt *loop)
{
  Stmt *top = loop;
  Stmt **other;
  for (Stmt *p = loop->parent; p; p = p->parent)
    if (p->kind == S_FOR && p->u.loop.kind == FOR_THREAD) top = p;
  Vec(Stmt *) bound = {0};
  Arena *tmp = scratch(s->ctx);
  vec_push(tmp, &bound, top);
  int n = tree_all_loops(tmp, top, &other);
  for (int i = 0; i < n; i++)
    if (other[i]->u.loop.kind == FOR_THREAD) vec_push(tmp, &bound, other[i]);
  Analyzer *an = facts_analyzer(s, loop);
  for (int i = 0; i < bound.n; i++)
    for (int k = i + 1; k < bound.n; k++) {
      Stmt *x = bound.v[i];
      Stmt *y = bound.v[k];
      const char *tag = x->u.loop.thread_tag;
      if (strcmp(tag, y->u.loop.thread_tag) || str_starts(tag, "vthread")) continue;
      if (tree_under(y, x) && !is_cooperative(s, y, x))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "bind: %s is inside %s, which is bound to %s already", tree_what(s, y),
              tree_what(s, x), tag);
      if (!analyzer_prove_equal(an, x->u.loop.extent, y->u.loop.extent))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "bind: %s of extent %s and %s of extent %s are both bound to %s of one kernel", tree_what(s, x),
              expr_str_of(tmp, x->u.loop.extent), tree_what(s, y), expr_str_of(tmp, y->u.loop.extent), tag);
    }
}

SchedArg prim_bind(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  const char *tag = a[1].u.s;
  if (!known_axis(tag))
    raise(s->ctx, ERR_ARGUMENT, NOWHERE,
          "bind: '%s' is no thread axis; there are blockIdx, threadIdx and vthread, each with .x .y .z", tag);
  for (Stmt *p = loop->parent; p; p = p->parent)
    if (p->kind == S_FOR &&
        (expr_uses_var(loop->u.loop.extent, LOOPVAR(p)) || expr_uses_var(loop->u.loop.min, LOOPVAR(p))))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "bind: the bounds of %s depend on %s, so it has no one number of threads",
            tree_what(s, loop), tree_what(s, p));
  set_kind(loop, FOR_THREAD);
  loop->u.loop.thread_tag = arena_strdup(s->m->arena, tag);
  facts_check_independent(s, "bind", loop);
  check_kernel(s, loop);
  return sched_arg_none;
}

/* ---- annotations -------------------------------------------------------------------------- */

static Annots *annots_of(Stmt *x) { return x->kind == S_FOR ? &x->u.loop.annots : &BLOCK(x)->annots; }

SchedArg prim_annotate(Sched *s, SchedArg *a)
{
  Stmt *x = sched_arg_block_or_loop(s, &a[0]);
  const Expr *value = sched_arg_expr(s, &a[2], a[2].kind == SA_FLOAT ? DT_F32 : DT_I32);
  annots_set(s->m->arena, annots_of(x), arena_strdup(s->m->arena, a[1].u.s), value);
  return sched_arg_none;
}

SchedArg prim_unannotate(Sched *s, SchedArg *a)
{
  Stmt *x = sched_arg_block_or_loop(s, &a[0]);
  if (!annots_remove(annots_of(x), a[1].u.s))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "unannotate: %s has no annotation '%s'", tree_what(s, x), a[1].u.s);
  return sched_arg_none;
}

SchedArg prim_enter_postproc(Sched *s, SchedArg *a)
{
  (void)s;
  (void)a;
  return sched_arg_none;
}
