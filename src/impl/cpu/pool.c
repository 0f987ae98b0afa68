/* pool.c: pooling over windows.
 *
 * Channels side by side in memory (NCHW16c, NHWC):
 *   for n, channel block, band of rows                         threads
 *     for y, x (tiles)
 *       tile[x, c] = best or sum of data[y * s + ky, x * s + kx, c]      registers
 *       epilogue on the tile, store
 *
 * The data is read where it lies: no padded copy is made.  A window that hangs over the edge takes what is there, by a
 * condition on its taps; the lowering cuts the loops over rows and columns where these conditions begin to hold, so
 * that the inside of a map has none, and taps are written out, so that at the edges most are decided when compiling.
 *
 * Small maps of single channels (NCHW), windows one step apart:
 *   for n, c (bunches)                                         threads
 *     flat[c, q]: the maps with their padding, rows one behind the other
 *     wide[c, p] = best of flat[c, p + ky * row + kx]          whole vectors, over the ends of rows
 *     out[c, y, x] = wide[c, y * row + x]
 *
 * A row alone would not fill a vector.  A bunch is so large that what is written has left the store buffer when the
 * next stage reads it at another place.
 *
 * Other maps of single channels: the best of each column of a window first, in whole vectors of neighbours; then of the
 * columns, which are read some steps apart: one such read for each column instead of one for each tap. */
#include "impl/internal.h"
#include "op/nn_kit.h"

enum { POOL_TAPS = 49 }; /* written out at most */

static const Pool2DAttrs *attrs_of(const Node *call) { return call->u.call.attrs; }

static bool is_known(const Type *t, int d) { return t->shape[d]->kind == E_INT && t->shape[d]->u.i > 0; }

#define POOL_PLAN(A, S)                                    \
  A(S, INT, channels, NULL, "channels of a register tile") \
  A(S, INT, x, NULL, "columns of a register tile")         \
  A(S, INT, band, NULL, "rows of output that one thread computes together")
DEFINE_PLAN(PoolPlan, POOL_PLAN)

double pool_cost(const Target *t, const Node *call)
{
  double bytes = dtype_bytes(call->type->dtype);
  for (int d = 1; d < call->type->ndim; d++) bytes *= (double)call->type->shape[d]->u.i;
  return bytes / cost_bandwidth(t);
}

/* A pool over channels that lie side by side, as its plans see it. */
typedef struct PoolShape {
  int64_t taps, outer, rows, columns, channels; /* outer: images and blocks of channels; rows 1: there are none */
  int64_t window, apart;                        /* along a row */
  int bits;
} PoolShape;

/* Everything but the batch is known, and the last dimension is one of channels. */
static bool pool_shape(const Node *call, PoolShape *out)
{
  const Pool2DAttrs *a = attrs_of(call);
  const Type *data = call->arg[0]->type;
  size_t n = strlen(a->layout);
  Layout layout;
  if (data->ndim < 3 || a->layout[0] != 'N' || (a->layout[n - 1] != 'c' && a->layout[n - 1] != 'C')) return false;
  if (layout_parse(a->layout, &layout) || layout.n != data->ndim || layout_find(&layout, 'W') < 0) return false;
  for (int d = 1; d < data->ndim; d++)
    if (!is_known(data, d) || !is_known(call->type, d)) return false;
  int dims = call->u.call.op->attrs == &Pool1D_attrs ? 1 : call->u.call.op->attrs == &Pool3D_attrs ? 3 : 2;
  int y = layout_find(&layout, 'H');
  int x = layout_find(&layout, 'W');
  *out = (PoolShape){.taps = 1, .outer = 1, .rows = 1, .bits = data->dtype.bits};
  for (int i = 0; i < dims; i++) out->taps *= impl_list_at(a->pool_size, i, 1);
  for (int d = 0; d < layout.n - 1; d++)
    if (d != y && d != x && is_known(call->type, d)) out->outer *= call->type->shape[d]->u.i;
  if (y >= 0) out->rows = call->type->shape[y]->u.i;
  out->columns = call->type->shape[x]->u.i;
  out->channels = call->type->shape[layout.n - 1]->u.i;
  out->window = impl_list_at(a->pool_size, dims - 1, 1), out->apart = impl_list_at(a->strides, dims - 1, 1);
  return out->taps <= POOL_TAPS && out->channels >= 4;
}

static int pool_threads(const Target *t, const PoolShape *s)
{
  double elements = (double)(s->outer * s->rows * s->columns * s->channels);
  return cost_threads(t, elements * (double)s->taps, 2 * elements * s->bits / 8);
}

/* Tiles: what they compare or add, what they read (columns that windows have in common once), or the chain of one sum,
 * whichever takes longest; then the memory. */
static double pool_seconds(const Target *t, const PoolShape *s, const PoolPlan *p)
{
  static const double TILE_CYCLES = 6; /* of a tile's own instructions; fitted on a Neoverse-N1 */
  int64_t lanes = target_lanes(t, s->bits);
  double vectors = __builtin_ceil((double)p->channels / (double)lanes);
  double sums = vectors * (double)p->x;
  double taps = (double)s->taps;
  double read = (double)((p->x - 1) * s->apart + s->window);
  if (read > (double)(p->x * s->window)) read = (double)(p->x * s->window);
  double cycles = taps * sums / cost_pipes(t);
  double loads = taps / (double)s->window * read * vectors / cost_loads(t);
  double chain = taps * t->core.fma_latency / 2;
  if (loads > cycles) cycles = loads;
  if (chain > cycles) cycles = chain;
  double tiles = __builtin_ceil((double)s->columns / (double)p->x) *
                 __builtin_ceil((double)s->channels / (double)p->channels) * (double)(s->outer * s->rows);
  int threads = pool_threads(t, s);
  double pieces = (double)s->outer * __builtin_ceil((double)s->rows / (double)p->band);
  double bytes = (double)(s->outer * s->rows * s->columns * s->channels) * s->bits / 8;
  double seconds = tiles * (cycles + TILE_CYCLES) / (1e9 * t->core.ghz) + bytes / cost_bandwidth(t);
  return seconds / (threads * cost_busy(pieces, threads));
}

/* Bands of two rows at least, so that the first and the last of a map can be told from the others outside the loop over
 * columns. */
static void add_bands(const ImplCall *c, PlanList *list, const PoolShape *s, int64_t channels, int64_t x)
{
  for (int64_t bands = 1; bands == 1 || s->rows >= 2 * bands; bands *= 2) {
    PoolPlan p = {channels, x, (s->rows + bands - 1) / bands};
    plan_add(list, &p, pool_seconds(c->target, s, &p), 0);
  }
}

void pool_plans(const ImplCall *c, PlanList *list)
{
  enum { STEPS = 96, VECTORS = 4 }; /* vectors that a tile reads, written out; those of a position */
  PoolShape s;
  if (!pool_shape(c->call, &s)) return;
  int64_t lanes = target_lanes(c->target, s.bits);
  for (int64_t v = 1; v <= VECTORS; v++) {
    int64_t channels = v * lanes < s.channels ? v * lanes : s.channels;
    if (v > 1 && (v - 1) * lanes >= s.channels) break;
    if (v > 1 && s.channels % channels) continue;
    int64_t vectors = alter_block_vectors(channels, lanes);
    int64_t most = c->target->vector_registers / 2 / vectors;
    if (most * s.taps * vectors > STEPS) most = STEPS / (s.taps * vectors);
    if (most > s.columns) most = s.columns;
    for (int64_t x = 1; x <= most || x == 1; x++)
      if (s.columns % x == 0 || x == most) add_bands(c, list, &s, channels, x);
  }
}

/* Loops of the nest by number, from the layout: the last two of H and W; the last one of all is the vectors'. */
typedef struct PoolLoops {
  int y, x, c, first; /* y -1: there is none; first of the window */
} PoolLoops;

static PoolLoops pool_loops(ImplGroup *g, const Nest *n)
{
  Layout layout;
  bool read = !layout_parse(attrs_of(g->anchor)->layout, &layout);
  PoolLoops l = {.y = layout_find(&layout, 'H'), .x = layout_find(&layout, 'W'), .c = layout.n - 1, .first = layout.n};
  bool ok = read && n->plain && l.x >= 0 && n->n > l.first && l.first == g->anchor->type->ndim;
  for (int i = 0; i < n->n; i++) ok &= n->loop[i].reduce == (i >= l.first);
  if (!ok)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s: the loops are not those of layout %s", g->anchor->u.call.op->name,
          layout.text);
  return l;
}

/* Puts the padding into the window's taps. */
static void inline_padding(ImplGroup *g, BlockRV pool)
{
  BlockRV *from;
  int n = sched_get_producers(g->s, pool, g->arena, &from);
  for (int i = 0; i < n; i++)
    if (str_starts(sched_block_stmt(g->s, from[i])->u.block->name, "pad_temp")) sched_compute_inline(g->s, from[i]);
}

void pool_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV pool = group_sum(g);
  inline_padding(g, pool);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, pool, n);
  PoolLoops l = pool_loops(g, n);
  const PoolPlan *p = g->plan;
  PoolShape shape;
  if (!pool_shape(g->anchor, &shape))
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s: its sizes are not known", g->anchor->u.call.op->name);
  int threads = pool_threads(g->target, &shape);
  LoopRV order[NEST_LOOPS + 4];
  LoopRV yi = {-1};
  LoopRV xi;
  LoopRV ci = n->loop[l.c].rv;
  int k = 0;
  for (int i = 0; i < l.c; i++)
    if (i != l.y && i != l.x) order[k++] = n->loop[i].rv;
  if (l.y >= 0) {
    yi = n->loop[l.y].rv;
    if (p->band < shape.rows) order[k++] = generic_split_by(g, yi, p->band, &yi);
  }
  int shared = k;
  if (yi.id >= 0) order[k++] = yi;
  order[k++] = generic_split_by(g, n->loop[l.x].rv, p->x, &xi);
  if (p->channels < shape.channels) order[k++] = generic_split_by(g, ci, p->channels, &ci);
  int inside = k;
  for (int i = l.first; i < n->n; i++) order[k++] = n->loop[i].rv;
  order[k++] = xi, order[k++] = ci;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, pool, order[inside - 1]), inside, false);
  for (int i = l.first; i < n->n; i++) sched_unroll(g->s, n->loop[i].rv);
  sched_unroll(g->s, xi);
  sched_vectorize(g->s, ci);
  sched_decompose_reduction(g->s, pool, order[inside]);
  LoopRV bands = sched_fuse(g->s, shared, order, true);
  if (threads > 1) sched_parallel(g->s, bands);
  generic_rest(g);
}

/* ---- small maps --------------------------------------------------------------------------------- */

typedef struct Map2D {
  /* row of the padded map; elements of both stages */
  int64_t h, w, oy, ox, k[2], dilation[2], before[2], row, wide, flat;
} Map2D;

static Map2D map_of(const Pool2DAttrs *a, const Type *x, const Type *out)
{
  Map2D m = {.h = x->shape[2]->u.i, .w = x->shape[3]->u.i, .oy = out->shape[2]->u.i, .ox = out->shape[3]->u.i};
  for (int d = 0; d < 2; d++) {
    m.k[d] = impl_list_at(a->pool_size, d, 1);
    m.dilation[d] = impl_list_at(a->dilation, d, 1);
    m.before[d] = impl_list_at(a->padding, d, 0);
  }
  m.row = m.ox + (m.k[1] - 1) * m.dilation[1];
  m.wide = (m.oy - 1) * m.row + m.ox;
  m.flat = (m.oy + (m.k[0] - 1) * m.dilation[0]) * m.row;
  return m;
}

/* Whole vectors over the ends of rows against those that each row needs, its last one over the one before. */
bool pool_map_fits(const Target *t, const Node *call)
{
  const Pool2DAttrs *a = attrs_of(call);
  const Type *x = call->arg[0]->type;
  if (strcmp(a->layout, "NCHW") || x->ndim != 4 || impl_list_at(a->strides, 0, 1) != 1 ||
      impl_list_at(a->strides, 1, 1) != 1)
    return false;
  for (int d = 1; d < 4; d++)
    if (!is_known(x, d) || !is_known(call->type, d)) return false;
  Map2D m = map_of(a, x, call->type);
  double lanes = target_lanes(t, x->dtype.bits);
  double taps = (double)(m.k[0] * m.k[1]);
  double pieces = m.ox < lanes ? 2 : __builtin_ceil((double)m.ox / lanes);
  return m.ox > 1 && taps <= POOL_TAPS &&
         (double)m.oy * taps * pieces > (double)m.wide / lanes * (taps + 1) + (double)m.oy * pieces;
}

void pool_map_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  Map2D p = map_of(c->attrs, c->arg[0], c->out);
  const Expr *n = c->out->shape[0];
  const Expr *channels = c->out->shape[1];
  const Expr *row = expr_i32(m, p.row);
  const Expr *cond = NULL;
  Stage f = nn_stage(m, 3, (const Expr *[]){n, channels, expr_i32(m, p.flat)}, NULL);
  const Expr *from[4] = {f.at[0], f.at[1], expr_floordiv(m, f.at[2], row), expr_floormod(m, f.at[2], row)};
  for (int d = 0; d < 2; d++) {
    from[2 + d] = expr_sub(m, from[2 + d], expr_i32(m, p.before[d]));
    cond = nn_and(m, cond, nn_inside(m, from[2 + d], in[0]->buffer->shape[2 + d]));
  }
  const Expr *value = nn_read(m, in[0], from);
  const Tensor *flat =
      nn_finish(&f, "pool_flat", "injective,pad", nn_if(m, cond, value, nn_least_value(m, value->dtype)));
  Stage w = nn_stage(m, 3, (const Expr *[]){n, channels, expr_i32(m, p.wide)}, NULL);
  const Expr *ky = nn_reduce_axis(&w, "rv0", expr_i32(m, p.k[0]));
  const Expr *kx = nn_reduce_axis(&w, "rv1", expr_i32(m, p.k[1]));
  const Expr *tap =
      expr_add(m, expr_mul(m, ky, expr_i32(m, p.dilation[0] * p.row)), expr_mul(m, kx, expr_i32(m, p.dilation[1])));
  const Tensor *wide =
      nn_finish(&w, "pool_wide", "pool_max",
                nn_reduce(&w, "max", nn_read(m, flat, (const Expr *[]){w.at[0], w.at[1], expr_add(m, w.at[2], tap)})));
  Stage o = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *at[] = {o.at[0], o.at[1], expr_add(m, expr_mul(m, o.at[2], row), o.at[3])};
  *out = nn_finish(&o, "pool_max", "injective", nn_read(m, wide, at));
}

/* Channels of a bunch: both stages in a quarter of the first-level cache; a divisor, several bunches for each
 * thread. */
static int64_t bunch(const Target *t, const Map2D *m, int64_t channels, int bits, int threads)
{
  int64_t cache = cost_l1(t) / 4;
  int64_t best = 1;
  for (int64_t b = 2; b <= channels; b++)
    if (channels % b == 0 && b * (m->flat + m->wide) * bits / 8 <= cache &&
        (threads < 2 || channels / b >= 4 * threads))
      best = b;
  return best;
}

void pool_map_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV wide = group_sum(g);
  BlockRV *user, *from;
  Map2D m = map_of(attrs_of(g->anchor), g->anchor->arg[0]->type, g->anchor->type);
  if (sched_get_consumers(g->s, wide, g->arena, &user) != 1 || sched_get_producers(g->s, wide, g->arena, &from) != 1)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s: the stages are not those of a small map", g->anchor->u.call.op->name);
  BlockRV out = user[0];
  BlockRV flat = from[0];
  LoopRV *l, inner, ci;
  int n = sched_get_loops(g->s, out, g->arena, &l);
  int bits = g->anchor->type->dtype.bits;
  if (n != 4)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s: the result has %d loops, 4 are wanted", g->anchor->u.call.op->name, n);
  int64_t channels = g->anchor->type->shape[1]->u.i;
  int64_t lanes = target_lanes(g->target, bits);
  double maps =
      (double)channels * (g->anchor->type->shape[0]->kind == E_INT ? (double)g->anchor->type->shape[0]->u.i : 1);
  int threads = cost_threads(g->target, maps * (double)(m.wide * m.k[0] * m.k[1]),
                             maps * (double)(m.h * m.w + m.oy * m.ox) * bits / 8);
  LoopRV co = generic_split_by(g, l[1], bunch(g->target, &m, channels, bits, threads), &ci);
  LoopRV x = l[3];
  LoopRV bunches = sched_fuse(g->s, 2, (const LoopRV[]){l[0], co}, true);
  sched_compute_at(g->s, wide, bunches, false, -1);
  sched_compute_at(g->s, flat, bunches, false, -1);
  if (threads > 1) sched_parallel(g->s, bunches);
  if (m.ox <= lanes) sched_vectorize(g->s, x);
  else generic_split_by(g, x, lanes, &inner), sched_vectorize(g->s, inner);
  n = sched_get_loops(g->s, flat, g->arena, &l);
  generic_split_by(g, l[n - 1], m.row, &inner);
  sched_vectorize(g->s, inner);
  n = sched_get_loops(g->s, wide, g->arena, &l);
  LoopRV outer = generic_split_by(g, l[n - 3], lanes, &inner);
  sched_reorder(g->s, 4, (const LoopRV[]){outer, l[n - 2], l[n - 1], inner});
  sched_vectorize(g->s, inner);
  sched_unroll(g->s, l[n - 2]);
  sched_unroll(g->s, l[n - 1]);
  sched_decompose_reduction(g->s, wide, l[n - 2]);
}

/* ---- columns, then rows ----------------------------------------------------------------------------- */

/* A map whose extents are known only at run time has no other implementation: windows one step apart go by columns
 * too. */
bool pool_columns_fits(const Target *t, const Node *call)
{
  const Pool2DAttrs *a = attrs_of(call);
  const Type *x = call->arg[0]->type;
  if (strcmp(a->layout, "NCHW") || x->ndim != 4 || !is_known(x, 1) || pool_map_fits(t, call)) return false;
  bool open = false;
  for (int d = 2; d < 4; d++) open |= !is_known(x, d) || !is_known(call->type, d);
  int64_t apart = impl_list_at(a->strides, 1, 1);
  bool shared = impl_list_at(a->pool_size, 1, 1) > apart; /* neighbours have columns in common */
  if (!shared || apart > 4 || impl_list_at(a->pool_size, 0, 1) == 1) return false;
  return open || (apart > 1 && call->type->shape[3]->u.i >= target_lanes(t, x->dtype.bits));
}

void pool_columns_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const Pool2DAttrs *a = c->attrs;
  int64_t before[MAX_RANK] = {0};
  int64_t stride[2], dilation[2], k[2];
  const Expr *shape[4] = {c->arg[0]->shape[0], c->arg[0]->shape[1]};
  for (int d = 0; d < 2; d++) {
    k[d] = impl_list_at(a->pool_size, d, 1), stride[d] = impl_list_at(a->strides, d, 1),
    dilation[d] = impl_list_at(a->dilation, d, 1);
    before[2 + d] = impl_list_at(a->padding, d, 0);
    /* as far as windows reach */
    const Expr *last = expr_mul(m, expr_sub(m, c->out->shape[2 + d], expr_i32(m, 1)), expr_i32(m, stride[d]));
    last = expr_add(m, last, expr_i32(m, (k[d] - 1) * dilation[d] + 1));
    shape[2 + d] = nn_simplify(m, expr_max(m, last, expr_add(m, c->arg[0]->shape[2 + d], expr_i32(m, before[2 + d]))));
  }
  bool same = shape[2] == c->arg[0]->shape[2] && shape[3] == c->arg[0]->shape[3];
  const Tensor *data = in[0];
  if (!same) data = nn_pad_to(m, in[0], before, shape, nn_least_value(m, in[0]->buffer->dtype), "pad_temp");
  Stage s = nn_stage(
      m, 4, (const Expr *[]){c->out->shape[0], c->out->shape[1], c->out->shape[2], data->buffer->shape[3]}, NULL);
  const Expr *ky = nn_reduce_axis(&s, "rv0", expr_i32(m, k[0]));
  const Expr *y = expr_add(m, expr_mul(m, s.at[2], expr_i32(m, stride[0])), expr_mul(m, ky, expr_i32(m, dilation[0])));
  const Tensor *columns =
      nn_finish(&s, "pool_columns", "pool_max",
                nn_reduce(&s, "max", nn_read(m, data, (const Expr *[]){s.at[0], s.at[1], y, s.at[3]})));
  Stage o = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *kx = nn_reduce_axis(&o, "rv1", expr_i32(m, k[1]));
  const Expr *x = expr_add(m, expr_mul(m, o.at[3], expr_i32(m, stride[1])), expr_mul(m, kx, expr_i32(m, dilation[1])));
  *out = nn_finish(&o, "pool_max", "pool_max",
                   nn_reduce(&o, "max", nn_read(m, columns, (const Expr *[]){o.at[0], o.at[1], o.at[2], x})));
}
