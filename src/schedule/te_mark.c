/* te_mark.c: the te face: what axes and stages are marked with, and where a stage is
 * computed.  te_stage.c has the axes themselves. */
#include "schedule/te_face.h"

static void need_stage(const TeStage *st, const char *call)
{
  if (st->op->kind == TE_PLACEHOLDER)
    te_refuse(st->s, "%s: '%s' is a placeholder; nothing computes it", call, st->op->name);
}

/* ---- kinds of loops ------------------------------------------------------------------- */

typedef struct MarkCall {
  TeStage *st;
  AxisMark mark;
} MarkCall;

static void apply_mark(void *env)
{
  MarkCall *c = env;
  TeStage *st = c->st;
  Vec(AxisMark) out = {0};
  for (int i = 0; i < st->marks.n; i++)
    if (st->marks.v[i].axis != c->mark.axis) vec_push(st->s->arena, &out, st->marks.v[i]);
  vec_push(st->s->arena, &out, c->mark);
  st->marks.v = out.v;
  st->marks.n = out.n;
  st->marks.cap = out.cap;
}

void te_stage_mark(TeStage *st, const IterVar *axis, ForKind kind)
{
  static const char *const calls[] = {[FOR_SERIAL] = "serial",
                                      [FOR_PARALLEL] = "parallel",
                                      [FOR_VECTORIZED] = "vectorize",
                                      [FOR_UNROLLED] = "unroll",
                                      [FOR_THREAD] = "bind"};
  const char *call = calls[kind];
  te_stage_need_leaf(st, call, axis);
  if (axis->kind == ITER_REDUCE && (kind == FOR_VECTORIZED || kind == FOR_PARALLEL))
    te_refuse(
        st->s,
        "%s: axis '%s' of stage '%s' is a reduction; its steps depend on each other (rfactor makes part of it spatial)",
        call, axis->var->name, st->op->name);
  const AxisMark *old = te_stage_mark_of(st, axis);
  if (old && old->kind == FOR_THREAD)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' is bound to %s already", call, axis->var->name, st->op->name,
              old->thread);
  MarkCall c = {st, {axis, kind, NULL, NULL}};
  te_stage_change(st->s, apply_mark, &c, true);
}

void te_stage_bind(TeStage *st, const IterVar *axis, const IterVar *thread)
{
  te_stage_need_leaf(st, "bind", axis);
  const char *name = axis->var->name;
  if (thread->kind != ITER_THREAD || !thread->thread_tag)
    te_refuse(st->s, "bind: axis '%s' of stage '%s': '%s' is not a thread axis; make one with te.thread_axis", name,
              st->op->name, thread->var->name);
  const AxisMark *old = te_stage_mark_of(st, axis);
  if (old && old->kind == FOR_THREAD)
    te_refuse(st->s, "bind: axis '%s' of stage '%s' is bound to %s already", name, st->op->name, old->thread);
  bool virtual = str_starts(thread->thread_tag, "vthread");
  for (int i = 0; i < st->marks.n && !virtual; i++)
    if (st->marks.v[i].kind == FOR_THREAD && !strcmp(st->marks.v[i].thread, thread->thread_tag))
      te_refuse(st->s, "bind: %s is bound to axis '%s' of stage '%s' already", thread->thread_tag,
                st->marks.v[i].axis->var->name, st->op->name);
  if (thread->extent && thread->extent->kind == E_INT && axis->extent->kind == E_INT &&
      thread->extent->u.i != axis->extent->u.i && st->attach != ATTACH_AT)
    te_refuse(st->s, "bind: axis '%s' of stage '%s' has extent %" PRId64 ", the thread axis %s %" PRId64, name,
              st->op->name, axis->extent->u.i, thread->thread_tag, thread->extent->u.i);
  MarkCall c = {st, {axis, FOR_THREAD, thread->thread_tag, thread->var}};
  te_stage_change(st->s, apply_mark, &c, true);
}

/* ---- attaching ---------------------------------------------------------------------------- */

typedef struct AttachCall {
  TeStage *st;
  AttachKind kind;
  TeStage *at;
  const IterVar *axis;
} AttachCall;

static void apply_attach(void *env)
{
  AttachCall *c = env;
  c->st->attach = c->kind;
  c->st->at = c->at;
  c->st->at_axis = c->axis;
}

void te_stage_compute_at(TeStage *st, TeStage *consumer, const IterVar *axis)
{
  need_stage(st, "compute_at");
  if (st->s != consumer->s) te_refuse(st->s, "compute_at: stage '%s' belongs to another schedule", consumer->op->name);
  if (st == consumer) te_refuse(st->s, "compute_at: stage '%s' cannot be computed at itself", st->op->name);
  if (st->output)
    te_refuse(st->s, "compute_at: stage '%s' is an output; only what it reads can be attached", st->op->name);
  if (st->op->kind != TE_COMPUTE)
    raise(st->s->ctx, ERR_UNSUPPORTED, NOWHERE,
          "compute_at: stage '%s' is not a compute; only computes can be attached", st->op->name);
  te_stage_need_leaf(consumer, "compute_at", axis);
  AttachCall c = {st, ATTACH_AT, consumer, axis};
  te_stage_change(st->s, apply_attach, &c, true);
}

void te_stage_compute_inline(TeStage *st)
{
  need_stage(st, "compute_inline");
  if (st->output) te_refuse(st->s, "compute_inline: stage '%s' is an output and must be stored", st->op->name);
  if (st->op->kind != TE_COMPUTE) te_refuse(st->s, "compute_inline: stage '%s' is not a compute", st->op->name);
  if (st->op->nreduce)
    te_refuse(st->s, "compute_inline: stage '%s' is a reduction; only element-wise stages can be inlined",
              st->op->name);
  AttachCall c = {st, ATTACH_INLINE, NULL, NULL};
  te_stage_change(st->s, apply_attach, &c, true);
}

void te_stage_compute_root(TeStage *st)
{
  need_stage(st, "compute_root");
  AttachCall c = {st, ATTACH_ROOT, NULL, NULL};
  te_stage_change(st->s, apply_attach, &c, true);
}

/* ---- storage --------------------------------------------------------------------------------- */

typedef struct ScopeCall {
  TeStage *st;
  const char *scope;
} ScopeCall;

static void apply_scope(void *env)
{
  ScopeCall *c = env;
  c->st->scope = arena_strdup(c->st->s->arena, c->scope);
}

void te_stage_set_scope(TeStage *st, const char *scope)
{
  need_stage(st, "set_scope");
  ScopeCall c = {st, scope};
  te_stage_change(st->s, apply_scope, &c, true);
}

typedef struct AlignCall {
  TeStage *st;
  Alignment a;
} AlignCall;

static void apply_align(void *env)
{
  AlignCall *c = env;
  vec_push(c->st->s->arena, &c->st->alignments, c->a);
}

void te_stage_storage_align(TeStage *st, const IterVar *axis, int factor, int offset)
{
  need_stage(st, "storage_align");
  int dim = -1;
  for (int i = 0; i < st->op->naxis; i++)
    if (st->op->axis[i] == axis) dim = i;
  if (dim < 0)
    te_refuse(st->s, "storage_align: '%s' is not one of the axes of '%s' (op.axis)", axis->var->name, st->op->name);
  if (factor <= 0)
    te_refuse(st->s, "storage_align of '%s': the factor is %d; it must be at least 1", st->op->name, factor);
  AlignCall c = {st, {dim, factor, offset}};
  te_stage_change(st->s, apply_align, &c, true);
}

static void apply_double_buffer(void *env) { ((TeStage *)env)->double_buffered = true; }

void te_stage_double_buffer(TeStage *st)
{
  need_stage(st, "double_buffer");
  te_stage_change(st->s, apply_double_buffer, st, true);
}

/* ---- hints and intrinsics ------------------------------------------------------------------------ */

typedef struct PrefetchCall {
  TeStage *st;
  AxisPrefetch p;
} PrefetchCall;

static void apply_prefetch(void *env)
{
  PrefetchCall *c = env;
  vec_push(c->st->s->arena, &c->st->prefetches, c->p);
}

void te_stage_prefetch(TeStage *st, const Tensor *tensor, const IterVar *axis, const Expr *offset)
{
  te_stage_need_leaf(st, "prefetch", axis);
  if (offset->kind != E_INT)
    raise(st->s->ctx, ERR_UNSUPPORTED, NOWHERE, "prefetch in stage '%s': the offset %s is not a constant", st->op->name,
          expr_str_of(scratch(st->s->ctx), offset));
  PrefetchCall c = {st, {axis, tensor, offset->u.i}};
  te_stage_change(st->s, apply_prefetch, &c, true);
}

typedef struct TensorizeCall {
  TeStage *st;
  const IterVar *axis;
  const TensorIntrin *intrin;
} TensorizeCall;

static void apply_tensorize(void *env)
{
  TensorizeCall *c = env;
  c->st->tensorize_axis = c->axis;
  c->st->intrin = c->intrin;
}

void te_stage_tensorize(TeStage *st, const IterVar *axis, const TensorIntrin *intrin)
{
  te_stage_need_leaf(st, "tensorize", axis);
  if (st->op->nreduce && !te_plain_reduce(st->op))
    raise(st->s->ctx, ERR_UNSUPPORTED, NOWHERE,
          "tensorize: the reduction of stage '%s' sits inside a larger expression; compute it as a tensor of its own",
          st->op->name);
  TensorizeCall c = {st, axis, intrin};
  te_stage_change(st->s, apply_tensorize, &c, true);
}

typedef struct PragmaCall {
  TeStage *st;
  AxisPragma p;
} PragmaCall;

static void apply_pragma(void *env)
{
  PragmaCall *c = env;
  Arena *arena = c->st->s->arena;
  c->p.key = arena_strdup(arena, c->p.key);
  vec_push(arena, &c->st->pragmas, c->p);
}

void te_stage_pragma(TeStage *st, const IterVar *axis, const char *key, const Expr *value)
{
  te_stage_need_leaf(st, "pragma", axis);
  PragmaCall c = {st, {axis, key, value}};
  te_stage_change(st->s, apply_pragma, &c, false);
}

/* Is e `v == 0` for the thread v that a reduction of the stage is bound to, or several
 * of these? */
static bool asks_first_thread(const TeStage *st, const Expr *e)
{
  if (e->kind == E_AND) return asks_first_thread(st, e->arg[0]) && asks_first_thread(st, e->arg[1]);
  if (e->kind != E_EQ) return false;
  const Expr *v = expr_is_int(e->arg[1], 0) ? e->arg[0] : e->arg[1];
  const Expr *zero = v == e->arg[0] ? e->arg[1] : e->arg[0];
  if (!expr_is_int(zero, 0) || v->kind != E_VAR) return false;
  for (int i = 0; i < st->marks.n; i++)
    if (st->marks.v[i].axis->kind == ITER_REDUCE && st->marks.v[i].thread_var == v->u.var) return true;
  return false;
}

/* What a reduction over threads asks for happens by itself: its result is stored once,
 * by the first thread. */
void te_stage_set_store_predicate(TeStage *st, const Expr *predicate)
{
  if (asks_first_thread(st, predicate)) return;
  raise(st->s->ctx, ERR_UNSUPPORTED, NOWHERE,
        "set_store_predicate of stage '%s' (%s): a stage stores each element once; only `thread == 0` for a thread "
        "that its reduction is bound to is taken, "
        "which holds by itself",
        st->op->name, expr_str_of(scratch(st->s->ctx), predicate));
}
