/* te_emit.c: from the te face's description to primitives.
 *
 * Comes in: the description, and the unscheduled function of its operations.  Goes
 * out: a schedule.  Inlining first; then, consumers before producers, each stage is
 * attached, its axes are split, fused and ordered, and threads are bound (what is in
 * shared memory is attached for all threads of a block); then other marks; at last
 * the init of each reduction moves in front of its outermost reduce loop (never an `if k ==
 * 0` inside), where it gets copies of the spatial loops with their marks.
 *
 * A stage attached to a loop has new loops over the region needed there, one for
 * each axis; its own splits apply to those.  Stages are attached in any order, and a
 * stage may get its place after what it reads: in a trial a stage waits at the root
 * while something that reads it may be such a stage.
 *
 * A stage whose body holds reductions inside a larger expression has several blocks:
 * its main block, which computes the elements (or is itself a reduction around
 * others), and one for each reduction inside.  The rule:
 * - the main block has the loops of its own axes, in the order of the leaves;
 * - a reduction inside is computed under the loops that it can share: the leading
 *   leaves that come only from axes which it depends on, up to the first leaf that
 *   is vectorized or that it does not depend on.  So by default `te.sum(…) + b[i]`
 *   sums inside the loop over i, and a softmax's sum is not repeated for a column;
 * - below them it has loops of its own: the rest of its axes, split as the stage's
 *   are, and its reduce axes, in the order of the leaves;
 * - what a leaf is marked with holds for the loops of all blocks that have it. */
#include "schedule/te_face.h"

typedef struct OwnLoop {
  const IterVar *axis; /* NULL: a loop of one step that the shared loops used up */
  LoopRV loop;
  bool reduce; /* of this block */
} OwnLoop;

typedef struct EmitBlock {
  TeStage *stage;
  BlockRV block;
  const char *name;
  const Expr *reduce; /* what it reduces, NULL for an element-wise block */
  bool main;
  Vec(OwnLoop) shared; /* outer loops that belong to the block it was computed at */
  Vec(OwnLoop) own;    /* in nesting order */
} EmitBlock;

typedef struct Emit {
  TeSched *s;
  Ctx *ctx;
  Sched *sch;
  Arena *arena;
  const Map *names;
  bool trial;
  Vec(EmitBlock *) blocks;
  Map waiting; /* TeStage* that a trial left at the root */
} Emit;

/* ---- the loops of one block ------------------------------------------------------------- */

typedef enum { LEAVES_FREE, LEAVES_SHARED, LEAVES_MIXED } LeafState;

static bool is_shared(const EmitBlock *b, const IterVar *leaf)
{
  for (int i = 0; i < b->shared.n; i++)
    if (b->shared.v[i].axis == leaf) return true;
  return false;
}

/* Are the leaves of an axis among the shared loops: none, all, or some of them? */
static LeafState leaf_state(Emit *e, const EmitBlock *b, const IterVar *axis)
{
  AxisList leaves = {0};
  te_stage_leaves_of(e->arena, b->stage, axis, &leaves);
  int shared = 0;
  for (int i = 0; i < leaves.n; i++) shared += is_shared(b, leaves.v[i]);
  return shared == 0 ? LEAVES_FREE : shared == leaves.n ? LEAVES_SHARED : LEAVES_MIXED;
}

static int find_own(const EmitBlock *b, const IterVar *axis)
{
  for (int i = 0; i < b->own.n; i++)
    if (b->own.v[i].axis == axis) return i;
  return -1;
}

static void insert_own(Emit *e, EmitBlock *b, int at, OwnLoop loop)
{
  vec_push(e->arena, &b->own, loop);
  for (int i = b->own.n - 1; i > at; i--) b->own.v[i] = b->own.v[i - 1];
  b->own.v[at] = loop;
}

/* Of a loop that is shorter than its axis, because the stage is attached: no part is longer than what is left. */
static const Expr *at_most(Emit *e, LoopRV loop, const Relation *r, const Expr *part)
{
  const Expr *left = sched_loop_stmt(e->sch, loop)->u.loop.extent;
  const Expr *whole = r->parent->extent;
  bool numbers = part && part->kind == E_INT && left->kind == E_INT && whole->kind == E_INT;
  return numbers && left->u.i < whole->u.i && part->u.i > left->u.i ? left : part;
}

static void split_own(Emit *e, EmitBlock *b, int at, const Relation *r, const Expr *outer, const Expr *inner)
{
  LoopRV part[2];
  outer = at_most(e, b->own.v[at].loop, r, outer);
  inner = at_most(e, b->own.v[at].loop, r, inner);
  sched_split(e->sch, b->own.v[at].loop, 2, (const Expr *[]){outer, inner}, true, part);
  b->own.v[at] = (OwnLoop){r->outer, part[0], b->own.v[at].reduce};
  insert_own(e, b, at + 1, (OwnLoop){r->inner, part[1], b->own.v[at].reduce});
}

/* A split whose outer part is shared in part or in whole is left with the rest. */
static void replay_split(Emit *e, EmitBlock *b, const Relation *r)
{
  int at = find_own(b, r->parent);
  if (at < 0) return;
  LeafState outer = leaf_state(e, b, r->outer);
  LeafState inner = leaf_state(e, b, r->inner);
  if (outer == LEAVES_FREE && inner == LEAVES_FREE) split_own(e, b, at, r, r->nparts, r->factor);
  else if (outer == LEAVES_SHARED) b->own.v[at].axis = r->inner;
  else if (inner == LEAVES_FREE) split_own(e, b, at, r, NULL, r->inner->extent);
}

static void reorder_own(Emit *e, EmitBlock *b, const OwnLoop *order)
{
  bool same = true;
  LoopRV *loop = arena_array(e->arena, LoopRV, b->own.n);
  for (int i = 0; i < b->own.n; i++) {
    loop[i] = order[i].loop;
    same &= order[i].loop.id == b->own.v[i].loop.id;
  }
  if (!same) sched_reorder(e->sch, b->own.n, loop);
  for (int i = 0; i < b->own.n; i++) b->own.v[i] = order[i];
}

static void replay_fuse(Emit *e, EmitBlock *b, const Relation *r)
{
  for (int i = 0; i < r->npart; i++)
    if (find_own(b, r->part[i]) < 0 || leaf_state(e, b, r->part[i]) != LEAVES_FREE) return;
  /* The parts next to each other, where the first one stands. */
  OwnLoop *order = arena_array(e->arena, OwnLoop, b->own.n);
  LoopRV *part = arena_array(e->arena, LoopRV, r->npart);
  int n = 0;
  int first = find_own(b, r->part[0]);
  for (int i = 0; i < b->own.n; i++) {
    bool is_part = false;
    for (int k = 0; k < r->npart; k++) is_part |= b->own.v[i].axis == r->part[k];
    if (i == first)
      for (int k = 0; k < r->npart; k++) order[n++] = b->own.v[find_own(b, r->part[k])];
    else if (!is_part) order[n++] = b->own.v[i];
  }
  reorder_own(e, b, order);
  first = find_own(b, r->part[0]);
  for (int k = 0; k < r->npart; k++) part[k] = b->own.v[first + k].loop;
  b->own.v[first] = (OwnLoop){r->fused, sched_fuse(e->sch, r->npart, part, true), b->own.v[first].reduce};
  for (int i = first + 1; i + r->npart - 1 < b->own.n; i++) b->own.v[i] = b->own.v[i + r->npart - 1];
  b->own.n -= r->npart - 1;
}

/* Where an own loop stands in the order of the leaves. */
static int leaf_rank(Emit *e, const EmitBlock *b, const IterVar *axis)
{
  if (!axis) return -1;
  AxisList leaves = {0};
  te_stage_leaves_of(e->arena, b->stage, axis, &leaves);
  for (int i = 0; i < b->stage->leaves.n; i++)
    for (int k = 0; k < leaves.n; k++)
      if (leaves.v[k] == b->stage->leaves.v[i] && !is_shared(b, leaves.v[k])) return i;
  return -1;
}

static void replay_relations(Emit *e, EmitBlock *b)
{
  const TeStage *st = b->stage;
  for (int i = 0; i < b->own.n; i++)
    if (leaf_state(e, b, b->own.v[i].axis) == LEAVES_SHARED) b->own.v[i].axis = NULL;
  for (int i = 0; i < st->relations.n; i++)
    if (st->relations.v[i].fuse) replay_fuse(e, b, &st->relations.v[i]);
    else replay_split(e, b, &st->relations.v[i]);
  OwnLoop *order = arena_copy(e->arena, b->own.v, (size_t)b->own.n * sizeof *order);
  for (int i = 1; i < b->own.n; i++)
    for (int k = i; k > 0 && leaf_rank(e, b, order[k - 1].axis) > leaf_rank(e, b, order[k].axis); k--) {
      OwnLoop t = order[k];
      order[k] = order[k - 1];
      order[k - 1] = t;
    }
  reorder_own(e, b, order);
}

/* ---- blocks of a stage ---------------------------------------------------------------------- */

static const char *block_name(Emit *e, const void *key) { return map_get(e->names, key); }

static EmitBlock *add_block(Emit *e, TeStage *st, const char *name, const Expr *reduce, bool main)
{
  EmitBlock *b = arena_new_of(e->arena, EmitBlock);
  *b = (EmitBlock){.stage = st, .block = sched_get_block(e->sch, name), .name = name, .reduce = reduce, .main = main};
  vec_push(e->arena, &e->blocks, b);
  return b;
}

/* The innermost loops around the block, one for each axis given. */
static void take_loops(Emit *e, EmitBlock *b, int n, const IterVar *const *axis)
{
  LoopRV *loop;
  int nloop = sched_get_loops(e->sch, b->block, e->arena, &loop);
  if (nloop < n) BUG(e->ctx, "block '%s' has %d loops for %d axes", b->name, nloop, n);
  for (int i = 0; i < n; i++) {
    bool reduce = false;
    for (int k = 0; b->reduce && k < b->reduce->u.reduce->naxis; k++) reduce |= b->reduce->u.reduce->axis[k] == axis[i];
    vec_push(e->arena, &b->own, (OwnLoop){axis[i], loop[nloop - n + i], reduce});
  }
}

/* The loop of a leaf around a block, its own or shared; false if it has none. */
static bool loop_of(const EmitBlock *b, const IterVar *leaf, LoopRV *out)
{
  for (int i = 0; i < b->shared.n + b->own.n; i++) {
    const OwnLoop *l = i < b->shared.n ? &b->shared.v[i] : &b->own.v[i - b->shared.n];
    if (l->axis != leaf) continue;
    *out = l->loop;
    return true;
  }
  return false;
}

static bool is_under(const Stmt *s, const Stmt *loop)
{
  for (; s; s = s->parent)
    if (s == loop) return true;
  return false;
}

static const TeStage *stage_of(Emit *e, const char *block)
{
  for (int i = 0; i < e->blocks.n; i++)
    if (!strcmp(e->blocks.v[i]->name, block)) return e->blocks.v[i]->stage;
  return NULL;
}

/* Does the stage `at` read what the stage computes, directly or not? */
static bool feeds(Emit *e, const TeStage *st, const TeStage *at)
{
  const TeOp **op;
  int n = te_post_order(e->arena, 1, (const Tensor *[]){&at->op->out[0]}, &op);
  for (int i = 0; i < n; i++)
    if (op[i] == st->op) return true;
  return false;
}

/* May the block still get its place at a loop of `at`?  Stages are attached in any
 * order, so one at the root that `at` reads may be. */
static bool is_waiting(Emit *e, const char *block, const TeStage *at)
{
  const TeStage *st = stage_of(e, block);
  if (!e->trial || !st || st == at) return false;
  return (st->attach == ATTACH_ROOT || map_has(&e->waiting, st)) && (st->cache || (!st->output && feeds(e, st, at)));
}

_Noreturn static void refuse_attach(Emit *e, const TeStage *st, const char *outside, bool found)
{
  const char *at = st->at->op->name;
  const char *axis = st->at_axis->var->name;
  const char *name = st->op->name;
  if (outside)
    raise(e->ctx, ERR_SCHEDULE, NOWHERE, "compute_at: axis '%s' of stage '%s' does not enclose '%s', which reads '%s'",
          axis, at, outside, name);
  if (st->at->attach == ATTACH_INLINE)
    raise(e->ctx, ERR_SCHEDULE, NOWHERE, "compute_at: stage '%s' is attached to '%s', which is inlined", name, at);
  raise(e->ctx, ERR_SCHEDULE, NOWHERE, "compute_at: stage '%s' %s '%s', so it cannot be computed at axis '%s' of it",
        at, found ? "does not read" : "does not come after", name, axis);
}

/* The loop of the consumer stage's axis that encloses everything that reads block;
 * false when the stage has to wait. */
static bool attach_loop(Emit *e, const TeStage *st, BlockRV block, LoopRV *out)
{
  BlockRV *reader;
  int n = sched_get_consumers(e->sch, block, e->arena, &reader);
  const char *outside = NULL;
  bool found = false;
  bool wait = false;
  for (int i = 0; i < e->blocks.n; i++) {
    if (e->blocks.v[i]->stage != st->at || !loop_of(e->blocks.v[i], st->at_axis, out)) continue;
    found = true;
    bool all = n > 0;
    for (int k = 0; k < n; k++) {
      const Stmt *r = sched_block_stmt(e->sch, reader[k]);
      if (is_under(r, sched_loop_stmt(e->sch, *out))) continue;
      all = false;
      if (is_waiting(e, r->u.block->name, st->at)) wait = true;
      else outside = r->u.block->name;
    }
    if (all) return true;
  }
  if (wait && !outside) return false;
  refuse_attach(e, st, outside, found);
}

/* Computes the block where its stage is attached. */
static void attach(Emit *e, const TeStage *st, BlockRV asked, BlockRV moved)
{
  LoopRV loop;
  if (attach_loop(e, st, asked, &loop)) sched_compute_at(e->sch, moved, loop, true, -1);
  else map_put(e->arena, &e->waiting, st, e);
}

/* ---- reductions inside larger expressions ------------------------------------------------------ */

typedef struct Inner {
  Emit *e;
  Vec(const Expr *) reduce;
  Vec(const char *) name;
} Inner;

static void note_inner(void *env, const Expr *x)
{
  Inner *in = env;
  const char *name = x->kind == E_REDUCE ? block_name(in->e, x) : NULL;
  if (!name) return;
  for (int i = 0; i < in->name.n; i++)
    if (!strcmp(in->name.v[i], name)) return;
  vec_push(in->e->arena, &in->reduce, x);
  vec_push(in->e->arena, &in->name, name);
}

/* Axes of the operation that a reduction inside depends on, in their order. */
static int outer_axes(Emit *e, const TeStage *st, const Expr *reduce, AxisList *out)
{
  const IterVar **root;
  int n = te_stage_roots(st, &root);
  for (int i = 0; i < n; i++) {
    const Var **v;
    int nv = expr_free_vars(e->arena, reduce, &v);
    for (int k = 0; k < nv; k++)
      if (v[k] == root[i]->var) vec_push(e->arena, out, root[i]);
  }
  return out->n;
}

static bool holds_axis(const AxisList *list, const IterVar *axis)
{
  for (int i = 0; i < list->n; i++)
    if (list->v[i] == axis) return true;
  return false;
}

/* Does the leaf come from axes of the list alone? */
static bool leaf_from(Emit *e, const TeStage *st, const IterVar *leaf, const AxisList *list)
{
  const IterVar **root;
  int n = te_stage_roots(st, &root);
  for (int i = 0; i < n; i++) {
    AxisList leaves = {0};
    te_stage_leaves_of(e->arena, st, root[i], &leaves);
    if (holds_axis(&leaves, leaf) && !holds_axis(list, root[i])) return false;
  }
  return true;
}

/* The block of the stage that reads this one: the main block if it does. */
static const EmitBlock *reader_of(Emit *e, const EmitBlock *b, const EmitBlock *main)
{
  BlockRV *reader;
  int n = sched_get_consumers(e->sch, b->block, e->arena, &reader);
  const EmitBlock *found = NULL;
  for (int k = 0; k < n; k++) {
    const char *name = sched_block_stmt(e->sch, reader[k])->u.block->name;
    for (int i = 0; i < e->blocks.n; i++)
      if (e->blocks.v[i]->stage == b->stage && !strcmp(e->blocks.v[i]->name, name) && found != main)
        found = e->blocks.v[i];
  }
  return found ? found : main;
}

static void bind_threads(Emit *e, const EmitBlock *b)
{
  for (int i = 0; i < b->own.n; i++) {
    const AxisMark *mark = b->own.v[i].axis ? te_stage_mark_of(b->stage, b->own.v[i].axis) : NULL;
    if (mark && mark->kind == FOR_THREAD) sched_bind(e->sch, b->own.v[i].loop, mark->thread);
  }
}

static void emit_inner(Emit *e, const EmitBlock *main, const Expr *reduce, const char *name)
{
  TeStage *st = main->stage;
  EmitBlock *b = add_block(e, st, name, reduce, false);
  const EmitBlock *reader = reader_of(e, b, main);
  AxisList axes = {0};
  outer_axes(e, st, reduce, &axes);
  for (int i = 0; i < st->leaves.n; i++) {
    const IterVar *leaf = st->leaves.v[i];
    const AxisMark *mark = te_stage_mark_of(st, leaf);
    LoopRV loop;
    if ((mark && mark->kind == FOR_VECTORIZED) || !leaf_from(e, st, leaf, &axes) || !loop_of(reader, leaf, &loop))
      break;
    vec_push(e->arena, &b->shared, (OwnLoop){leaf, loop, false});
  }
  if (b->shared.n) sched_compute_at(e->sch, b->block, b->shared.v[b->shared.n - 1].loop, true, -1);
  else if (st->attach == ATTACH_AT && !map_has(&e->waiting, st)) attach(e, st, main->block, b->block);
  for (int i = 0; i < reduce->u.reduce->naxis; i++) vec_push(e->arena, &axes, reduce->u.reduce->axis[i]);
  take_loops(e, b, axes.n, axes.v);
  replay_relations(e, b);
  bind_threads(e, b);
}

static void emit_stage(Emit *e, TeStage *st)
{
  const char *name = block_name(e, st->op);
  if (!name || st->op->kind != TE_COMPUTE || st->attach == ATTACH_INLINE) return;
  const Expr *plain = te_plain_reduce(st->op);
  EmitBlock *b = add_block(e, st, name, plain, true);
  for (int i = 0; st->scope && strcmp(st->scope, "global") && i < st->op->nout; i++)
    sched_set_scope(e->sch, b->block, i, st->scope);
  if (st->attach == ATTACH_AT) attach(e, st, b->block, b->block);
  AxisList axes = {0};
  for (int i = st->step ? 1 : 0; i < st->op->naxis; i++) vec_push(e->arena, &axes, st->op->axis[i]);
  for (int i = 0; plain && i < plain->u.reduce->naxis; i++) vec_push(e->arena, &axes, plain->u.reduce->axis[i]);
  take_loops(e, b, axes.n, axes.v);
  replay_relations(e, b);
  bind_threads(e, b);
  Inner in = {.e = e};
  for (int i = 0; i < st->op->nout; i++) expr_visit(e->ctx, st->op->body[i], note_inner, &in);
  for (int i = in.reduce.n - 1; i >= 0; i--) emit_inner(e, b, in.reduce.v[i], in.name.v[i]);
}

/* ---- marks ------------------------------------------------------------------------------------------ */

static SchedArg loop_arg(LoopRV l) { return (SchedArg){.kind = SA_LOOP, .u.i = l.id}; }

static void emit_mark(Emit *e, const AxisMark *mark, LoopRV loop)
{
  switch (mark->kind) {
  case FOR_SERIAL:
  case FOR_THREAD: break; /* threads were bound before */
  case FOR_PARALLEL: sched_parallel(e->sch, loop); break;
  case FOR_VECTORIZED: sched_vectorize(e->sch, loop); break;
  case FOR_UNROLLED: sched_unroll(e->sch, loop); break;
  }
}

static void emit_pragma(Emit *e, const AxisPragma *p, LoopRV loop)
{
  const char *key = str_starts(p->key, "pragma_") ? p->key : arena_printf(e->arena, "pragma_%s", p->key);
  sched_annotate(e->sch, loop_arg(loop), key, p->value ? p->value : expr_i32(sched_module(e->sch), 1));
}

/* The number of the tensor among what the block reads; -1 if it does not. */
static int read_index(Emit *e, const EmitBlock *b, const Tensor *t)
{
  const char *name = map_get(e->names, te_stage_current(e->s, t));
  const Block *block = sched_block_stmt(e->sch, b->block)->u.block;
  for (int i = 0; name && i < block->nreads; i++)
    if (!strcmp(block->reads[i].buffer->name, name)) return i;
  return -1;
}

static void emit_prefetches(Emit *e, const TeStage *st)
{
  for (int k = 0; k < st->prefetches.n; k++) {
    const AxisPrefetch *p = &st->prefetches.v[k];
    bool done = false;
    for (int i = 0; i < e->blocks.n; i++) {
      LoopRV loop;
      if (e->blocks.v[i]->stage != st || !loop_of(e->blocks.v[i], p->axis, &loop)) continue;
      int index = read_index(e, e->blocks.v[i], p->tensor);
      if (index < 0) continue;
      sched_prefetch(e->sch, e->blocks.v[i]->block, index, loop, p->distance);
      done = true;
    }
    if (!done)
      raise(e->ctx, ERR_SCHEDULE, NOWHERE, "prefetch: stage '%s' does not read '%s' inside axis '%s'", st->op->name,
            p->tensor->buffer->name, p->axis->var->name);
  }
}

static void emit_marks(Emit *e, const EmitBlock *b)
{
  const TeStage *st = b->stage;
  for (int i = 0; i < b->own.n; i++) {
    const OwnLoop *l = &b->own.v[i];
    if (!l->axis) continue;
    for (int k = 0; k < st->pragmas.n; k++)
      if (st->pragmas.v[k].axis == l->axis) emit_pragma(e, &st->pragmas.v[k], l->loop);
    const AxisMark *mark = te_stage_mark_of(st, l->axis);
    if (mark) emit_mark(e, mark, l->loop);
  }
}

static void emit_storage(Emit *e, const EmitBlock *b)
{
  const TeStage *st = b->stage;
  for (int i = 0; i < st->op->nout; i++) {
    for (int k = 0; k < st->alignments.n; k++) {
      const Alignment *a = &st->alignments.v[k];
      sched_storage_align(e->sch, b->block, i, a->dim, a->factor, a->offset);
    }
    if (st->double_buffered) sched_double_buffer(e->sch, b->block, i);
  }
}

/* Loops get the names of their axes.  Names mean nothing to the engine. */
static void name_loops(Emit *e, const EmitBlock *b)
{
  Module *m = sched_module(e->sch);
  for (int i = 0; i < b->own.n; i++) {
    Stmt *loop = sched_loop_stmt(e->sch, b->own.v[i].loop);
    const Var *old = loop->u.loop.var;
    if (!b->own.v[i].axis || !strcmp(old->name, b->own.v[i].axis->var->name)) continue;
    const Var *v = var_new(m, b->own.v[i].axis->var->name, old->dtype, old->kind);
    Map map = {0};
    map_put(e->arena, &map, old, (void *)(uintptr_t)v->expr);
    loop->u.loop.var = v;
    stmt_substitute(m, loop->u.loop.body, &map);
  }
}

/* ---- init and tensorize --------------------------------------------------------------------------------- */

static const TensorIntrin *part_of(Emit *e, const TensorIntrin *t, const char *suffix, const PrimFunc *desc,
                                   const PrimFunc *impl)
{
  Arena *arena = sched_module(e->sch)->arena;
  TensorIntrin *part = arena_new_of(arena, TensorIntrin);
  *part = (TensorIntrin){.name = arena_printf(arena, "%s%s", t->name, suffix), .desc = desc, .impl = impl};
  return part;
}

/* How many loops the init of the block copies from its own loops, from number `at`
 * on: the spatial ones that its variables use. */
static int copied_loops(Emit *e, const EmitBlock *b, int at)
{
  const Block *block = sched_block_stmt(e->sch, b->block)->u.block;
  int n = 0;
  for (int i = at; i < b->own.n; i++) {
    bool used = false;
    for (int k = 0; k < block->niter; k++)
      used |= expr_uses_var(block->iter[k].value, sched_loop_stmt(e->sch, b->own.v[i].loop)->u.loop.var);
    n += used && !b->own.v[i].reduce;
  }
  return n;
}

/* The reset of a tensorized reduction: the innermost loops of init, `inside` of them. */
static void tensorize_init(Emit *e, const EmitBlock *b, int inside, BlockRV init)
{
  const TensorIntrin *t = b->stage->intrin;
  LoopRV *loop;
  int n = sched_get_loops(e->sch, init, e->arena, &loop);
  SchedArg where = inside ? loop_arg(loop[n - inside]) : (SchedArg){.kind = SA_BLOCK, .u.i = init.id};
  sched_tensorize(e->sch, where, part_of(e, t, "_init", t->init_desc, t->init));
}

static int first_reduce(const EmitBlock *b)
{
  for (int i = 0; i < b->own.n; i++)
    if (b->own.v[i].reduce) return i;
  return -1;
}

static void emit_tensorized(Emit *e, const EmitBlock *b)
{
  const TeStage *st = b->stage;
  const TensorIntrin *t = st->intrin;
  int at = find_own(b, st->tensorize_axis);
  int reduce = first_reduce(b);
  if (at < 0) BUG(e->ctx, "tensorized axis '%s' has no loop", st->tensorize_axis->var->name);
  if (reduce < 0 || reduce >= at) {
    sched_tensorize(e->sch, loop_arg(b->own.v[at].loop), t);
    return;
  }
  if (!t->update)
    raise(e->ctx, ERR_SCHEDULE, NOWHERE,
          "tensorize: reduce axis '%s' of stage '%s' stands outside of axis '%s', but intrinsic '%s' has no reset and "
          "update",
          b->own.v[reduce].axis->var->name, st->op->name, st->tensorize_axis->var->name, t->name);
  int inside = copied_loops(e, b, at);
  BlockRV init = sched_decompose_reduction(e->sch, b->block, b->own.v[reduce].loop);
  sched_tensorize(e->sch, loop_arg(b->own.v[at].loop), part_of(e, t, "_update", t->update_desc, t->update));
  tensorize_init(e, b, inside, init);
}

/* Then lower makes the partial results, and the init with them. */
static bool reduces_over_threads(const EmitBlock *b)
{
  for (int i = 0; i < b->own.n; i++) {
    const AxisMark *mark = b->own.v[i].reduce && b->own.v[i].axis ? te_stage_mark_of(b->stage, b->own.v[i].axis) : NULL;
    if (mark && mark->kind == FOR_THREAD) return true;
  }
  return false;
}

static void emit_init(Emit *e, const EmitBlock *b)
{
  if (b->main && b->stage->intrin) {
    emit_tensorized(e, b);
    return;
  }
  int at = first_reduce(b);
  if (at >= 0 && !reduces_over_threads(b)) sched_decompose_reduction(e->sch, b->block, b->own.v[at].loop);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static void emit_all(Ctx *ctx, void *arg)
{
  (void)ctx;
  Emit *e = arg;
  TeSched *s = e->s;
  for (int i = 0; i < s->stages.n; i++) {
    const char *name = block_name(e, s->stages.v[i]->op);
    if (name && s->stages.v[i]->attach == ATTACH_INLINE) sched_compute_inline(e->sch, sched_get_block(e->sch, name));
  }
  for (int i = s->stages.n - 1; i >= 0; i--) emit_stage(e, s->stages.v[i]);
  for (int i = 0; i < e->blocks.n; i++)
    if (e->blocks.v[i]->main) emit_storage(e, e->blocks.v[i]);
  for (int i = s->stages.n - 1; i >= 0; i--) emit_prefetches(e, s->stages.v[i]);
  for (int i = 0; i < e->blocks.n; i++) name_loops(e, e->blocks.v[i]);
  for (int i = 0; i < e->blocks.n; i++) emit_marks(e, e->blocks.v[i]);
  for (int i = 0; i < e->blocks.n; i++) emit_init(e, e->blocks.v[i]);
}

Sched *te_sched_emit_trace(TeSched *s, const PrimFunc *f, const Map *names, bool trial)
{
  Scope scope = scope_begin(s->ctx);
  Emit e = {.s = s, .ctx = s->ctx, .sch = sched_new(f, 0), .arena = scratch(s->ctx), .names = names, .trial = trial};
  if (protect(s->ctx, emit_all, &e)) {
    sched_free(e.sch);
    error_reraise(s->ctx);
  }
  scope_end(s->ctx, scope);
  return e.sch;
}
