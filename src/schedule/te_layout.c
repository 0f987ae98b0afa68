/* te_layout.c: the te face: another layout of what a stage stores, as a rewrite of the dataflow.
 *
 *   transform_layout   t[i, j] → readers      t'[map(i, j)] → t_view[i, j] = t'[map(i, j)] → readers
 *
 * t' is computed over the axes of the new layout; the view is inlined, so a reader's index goes through the map.
 * A placeholder becomes one of the new shape.  What a caller passes for t has the new shape then. */
#include "schedule/te_face.h"

typedef struct Relayout {
  TeStage *st;
  const IndexMap *map;
  Analyzer *an;
  const Var **at;     /* variables of the new axes */
  const Expr **shape; /* of the new layout */
  const Expr **back;  /* the old indices by the new ones */
} Relayout;

static const Expr *like(Module *m, const Expr *e, int64_t v) { return expr_int(m, e->dtype, v); }

/* The new shape, and the map the other way round. */
static void solve(Relayout *r)
{
  TeSched *s = r->st->s;
  Module *m = s->m;
  Arena *arena = scratch(s->ctx);
  const IndexMap *map = r->map;
  const Buffer *b = r->st->op->out[0].buffer;
  const char *name = r->st->op->name;
  if (map->nin != b->ndim)
    te_refuse(s, "transform_layout: the map takes %d indices, '%s' has %d", map->nin, name, b->ndim);
  r->an = analyzer_new(m, arena);
  const IterVar **loop = arena_array(arena, const IterVar *, map->nin);
  for (int i = 0; i < map->nin; i++) {
    const Expr *extent = expr_cast(m, map->in[i]->dtype, b->shape[i]);
    loop[i] = itervar_new(m, map->in[i], like(m, extent, 0), extent, ITER_SPATIAL, NULL);
    analyzer_bind(r->an, map->in[i], like(m, extent, 0), extent);
  }
  r->at = arena_array(arena, const Var *, map->nout);
  r->shape = arena_array(arena, const Expr *, map->nout);
  r->back = arena_array(arena, const Expr *, map->nin);
  for (int k = 0; k < map->nout; k++) {
    const Expr *lo, *hi;
    if (!analyzer_relax(r->an, map->out[k], map->nin, map->in, &lo, &hi) ||
        !analyzer_prove_equal(r->an, lo, like(m, lo, 0)))
      te_refuse(s, "transform_layout: index %d of the new layout of '%s', %s, is not known to start at 0", k, name,
                expr_str_of(arena, map->out[k]));
    r->shape[k] = expr_simplify(r->an, expr_add(m, hi, like(m, hi, 1)));
    r->at[k] = var_new(m, arena_printf(arena, "axis%d", k), r->shape[k]->dtype, VAR_PLAIN);
  }
  const char *why = NULL;
  if (!itermap_inverse(r->an, map->nout, map->out, map->nin, loop, r->at, r->back, &why))
    te_refuse(s, "transform_layout: the map does not give each index of '%s' a place of its own%s%s", name,
              why ? ": " : "", why ? why : "");
}

/* The operation over the new layout. */
static const TeOp *moved_op(Relayout *r)
{
  const TeOp *op = r->st->op;
  Module *m = r->st->s->m;
  Arena *arena = scratch(r->st->s->ctx);
  int n = r->map->nout;
  if (op->kind == TE_PLACEHOLDER) return te_placeholder(m, op->name, op->out[0].buffer->dtype, n, r->shape)->op;
  const IterVar **axis = arena_array(arena, const IterVar *, n);
  for (int k = 0; k < n; k++)
    axis[k] = itervar_new(m, r->at[k], like(m, r->shape[k], 0), r->shape[k], ITER_SPATIAL, NULL);
  Map subst = {0};
  for (int i = 0; i < op->naxis; i++) map_put(arena, &subst, op->axis[i]->var, (void *)(uintptr_t)r->back[i]);
  const Expr *body = expr_substitute(m, op->body[0], &subst);
  return te_compute(m, op->name, op->tag, n, r->shape, axis, 1, &body, &op->attrs);
}

/* The old tensor, read out of the new one. */
static const TeOp *view_op(Relayout *r, const TeOp *old, const TeOp *moved)
{
  Module *m = r->st->s->m;
  Arena *arena = scratch(r->st->s->ctx);
  const Buffer *b = old->out[0].buffer;
  const IterVar **axis = arena_array(arena, const IterVar *, b->ndim);
  const Expr **index = arena_array(arena, const Expr *, r->map->nout);
  Map subst = {0};
  for (int d = 0; d < b->ndim; d++) {
    const Var *v = var_new(m, arena_printf(arena, "ax%d", d), r->map->in[d]->dtype, VAR_PLAIN);
    axis[d] = itervar_new(m, v, like(m, v->expr, 0), expr_cast(m, v->dtype, b->shape[d]), ITER_SPATIAL, NULL);
    map_put(arena, &subst, r->map->in[d], (void *)(uintptr_t)v->expr);
  }
  for (int k = 0; k < r->map->nout; k++) index[k] = expr_substitute(m, r->map->out[k], &subst);
  const Expr *body = te_read(m, &moved->out[0], r->map->nout, index);
  return te_compute(m, arena_printf(arena, "%s_view", old->name), NULL, b->ndim, b->shape, axis, 1, &body, NULL);
}

static TeStage *first_reader(TeSched *s, const Tensor *t)
{
  for (int i = 0; i < s->stages.n; i++) {
    const Tensor **in;
    int n = te_inputs(scratch(s->ctx), s->stages.v[i]->op, &in);
    for (int k = 0; k < n; k++)
      if (in[k] == t) return s->stages.v[i];
  }
  return NULL;
}

static void apply_layout(void *env)
{
  Relayout *r = env;
  TeStage *st = r->st;
  TeSched *s = st->s;
  const TeOp *old = st->op;
  const TeOp *moved = moved_op(r);
  TeStage *reader = first_reader(s, &old->out[0]);
  te_stage_set_op(st, moved);
  te_stage_reset_leaves(st);
  s->base = NULL;
  if (!reader) return;
  TeStage *view = te_stage_new(s, view_op(r, old, moved));
  te_stage_reset_leaves(view);
  view->attach = ATTACH_INLINE;
  st->view = view;
  Map map = {0};
  map_put(scratch(s->ctx), &map, &old->out[0], &view->op->out[0]);
  te_sched_hand_on(s, &map, st);
  te_sched_insert(s, reader, view);
}

static void need_plain(const TeStage *st)
{
  TeSched *s = st->s;
  const char *name = st->op->name;
  if (st->op->kind != TE_PLACEHOLDER && st->op->kind != TE_COMPUTE)
    te_refuse(s, "transform_layout: '%s' is neither a placeholder nor a compute", name);
  if (st->op->nout != 1) te_refuse(s, "transform_layout: '%s' has %d outputs, one is wanted", name, st->op->nout);
  if (st->step || st->op->needs_scan) te_refuse(s, "transform_layout: '%s' is a part of a scan", name);
  if (st->attach == ATTACH_INLINE) te_refuse(s, "transform_layout: stage '%s' is inlined, so it is not stored", name);
  if (st->relations.n || st->marks.n || st->pragmas.n || st->prefetches.n || st->alignments.n || st->intrin)
    te_refuse(s, "transform_layout: the loops of stage '%s' are scheduled already; transform its layout first", name);
  for (int i = 0; i < s->stages.n; i++) {
    const TeStage *p = s->stages.v[i];
    if (p->attach == ATTACH_AT && p->at == st)
      te_refuse(s, "transform_layout: '%s' is attached to stage '%s'; transform the layout first", p->op->name, name);
    for (int k = 0; p->op->kind == TE_SCAN && k < p->op->nstate; k++)
      if (p->op->state[k]->op == st->op) te_refuse(s, "transform_layout: '%s' is the state of a scan", name);
  }
}

void te_stage_transform_layout(TeStage *st, const IndexMap *map)
{
  Scope scope = scope_begin(st->s->ctx);
  need_plain(st);
  Relayout r = {.st = st, .map = map};
  solve(&r);
  te_stage_change(st->s, apply_layout, &r, true);
  scope_end(st->s->ctx, scope);
}
