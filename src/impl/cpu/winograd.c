/* winograd.c: Winograd's convolution over blocks of channels.
 *
 *   for channel block, tile:   transform the tile's data, one vector of channels at a time     threads
 *   for eps, nu:               a matrix product, tiles by output channels, in register tiles   threads
 *   for channel block, row of tiles: transform back, epilogue, store                          threads
 *
 * The transformations are written out; their matrices have become sums without zeros.  Where the
 * weight stays in the second-level cache and the transformed data would not, bands of tiles go through
 * all three stages one after the other, each thread with its own.  A weight larger than that cache comes from memory
 * in every run: the next block of it is fetched while one is multiplied.
 *
 * A weight that was not transformed before is transformed in the second stage, a block of channels by a block of output
 * channels at a time, and multiplied while it is near:
 *
 *   for block of output channels:                                                                threads
 *     for block of channels:   transform the weight;  for points, tiles: product, added to the others' */
#include "impl/internal.h"
#include "op/nn.h"

static bool is_transformed(const Node *call) { return ((const WinogradAttrs *)call->u.call.attrs)->transformed; }

/* Is the number of tiles known only at run time? */
static bool is_open(const Type *y) { return !known_size(y, 0) || !known_size(y, 2) || !known_size(y, 3); }

static WinogradSizes sizes_of(const WinogradAttrs *a, const Type *x, const Type *y)
{
  int64_t block = y->shape[4]->u.i;
  return (WinogradSizes){known_size(y, 0),
                         x->shape[1]->u.i * x->shape[4]->u.i,
                         y->shape[1]->u.i * block,
                         block,
                         likely_size(y->shape[2], 2),
                         likely_size(y->shape[3], 2),
                         a->tile_size,
                         a->groups,
                         y->dtype.bits};
}

static WinogradSizes group_sizes(const ImplGroup *g)
{
  return sizes_of(g->anchor->u.call.attrs, g->anchor->arg[0]->type, g->anchor->type);
}

/* ---- a weight that is transformed in the call ------------------------------------------------------ */

static int64_t tiles_of(const WinogradSizes *s)
{
  return s->n * ((s->y + s->tile - 1) / s->tile) * ((s->x + s->tile - 1) / s->tile);
}
static bool is_one_tile(const WinogradSizes *s, Tile k) { return tiles_of(s) <= k.x; }

/* The register tile of a block of output channels: so many tiles (x) of so many points of a row (y), which share
 * registers where tiles are few.  Each has its sums and, where a multiply-add takes one element of it, a vector of data
 * that waits for several steps. */
static Tile weight_tile(const Target *t, const WinogradSizes *s)
{
  int64_t vectors = alter_block_vectors(s->block, target_lanes(t, s->bits));
  Tile k = tile_for(t, s->bits, vectors, 1, 1, tiles_of(s));
  for (int64_t n = 2; n <= s->tile + 2; n++)
    if ((s->tile + 2) % n == 0 &&
        n * k.x * (t->broadcast_load ? vectors : vectors + 1) + vectors < t->vector_registers - 1)
      k.y = n;
  return k;
}

/* Channels whose transformed weight is multiplied before the next ones': it stays in the first-level cache, or where
 * more than one register tile reads it, near in the second. */
static int64_t near_channels(const Target *t, const WinogradSizes *s)
{
  Tile k = weight_tile(t, s);
  int64_t alpha = s->tile + 2;
  return (is_one_tile(s, k) ? t->l1_bytes / 3 : t->l2_bytes / 8) / (alpha * alpha * s->block * s->bits / 8);
}

typedef struct Parts {
  const Target *target;
  WinogradSizes sizes;
} Parts;

static const Tensor *product_in_parts(Module *m, const Tensor *product, const void *arg)
{
  const Parts *p = arg;
  const TeOp *sum = product->op;
  int64_t all = sum->reduce_axis[0]->extent->u.i;
  int64_t steps = parts_steps(sum, near_channels(p->target, &p->sizes));
  if (steps == all) steps = parts_steps(sum, all / 2 * sum->reduce_axis[1]->extent->u.i);
  return parts_total(m, sum, parts_sum(m, sum, te_plain_reduce(sum)->arg[0], steps, all / steps), all / steps, DT_F32);
}

void winograd_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  const WinogradPlan *p = plan;
  nn_winograd_blocked(c, p->before && is_open(c->out) ? p->x : 1, in, out);
  if (p->before) return;
  Parts parts = {t, sizes_of(c->attrs, c->arg[0], c->out)};
  *out = parts_replace(c->m, *out, "bgemm", product_in_parts, &parts);
}

/* Channels in vectors of the machine: the transformations keep whole tiles of them in registers. */
static LoopRV split_vectors(ImplGroup *g, LoopRV channels, LoopRV *inner)
{
  const Expr *extent = sched_loop_stmt(g->s, channels)->u.loop.extent;
  int64_t lanes = target_lanes(g->target, g->anchor->type->dtype.bits);
  int64_t n = extent->kind == E_INT ? extent->u.i : lanes;
  return generic_split_by(g, channels, n % lanes ? n : lanes, inner);
}

/* The loop over bands stands around all stages (`band` 1), or each stage has its own loops (0). */
static void transform_data(ImplGroup *g, int band)
{
  BlockRV rows = group_stage(g, "data_rows");
  BlockRV tiles = group_stage(g, "data_tiles");
  LoopRV *l, ci;
  sched_get_loops(g->s, tiles, g->arena, &l); /* eps nu co p ci, or the points inside: co eps nu p ci */
  l += band;
  int eps = is_transformed(g->anchor) ? 0 : 1;
  int block = is_transformed(g->anchor) ? 2 : 0;
  LoopRV co = split_vectors(g, l[4], &ci);
  LoopRV order[] = {l[block], l[3], co, l[eps], l[eps + 1], ci};
  sched_reorder(g->s, 6, order);
  sched_compute_at(g->s, rows, co, true, -1);
  sched_set_scope(g->s, rows, 0, "local");
  generic_write_out(g, rows, band + 3);
  generic_write_out(g, tiles, band + 3);
  LoopRV all = sched_fuse(g->s, 2, order, true);
  if (!band) sched_parallel(g->s, all);
}

bool winograd_fetches(const Target *t, const WinogradSizes *s)
{
  int64_t alpha = s->tile + 2;
  return alpha * alpha * s->c / s->groups * s->o * s->bits / 8 > cost_l2(t);
}

/* The weight of the next step of the loop over its blocks. */
static void fetch_weight(ImplGroup *g, BlockRV product, const Buffer *weight, LoopRV blocks)
{
  WinogradSizes sizes = group_sizes(g);
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  for (int i = 0; i < b->nreads && winograd_fetches(g->target, &sizes); i++) {
    if (b->reads[i].buffer != weight) continue;
    sched_prefetch(g->s, product, i, blocks, 1);
    return;
  }
}

/* What is read in vectors of output channels. */
static const Buffer *weight_of(const Nest *n, const NestLoop *channels)
{
  for (int a = 0; a < n->naccess; a++)
    if (!n->access[a].write && channels->stride[a] == 1) return n->access[a].buffer;
  return NULL;
}

static void multiply(ImplGroup *g, int band)
{
  BlockRV product = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, product, n); /* eps nu oo p oi, rco rci */
  if (n->n != band + 7) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of Winograd's");
  const NestLoop *l = n->loop + band;
  int64_t lanes = target_lanes(g->target, n->bits);
  int64_t vectors = alter_block_vectors(l[4].extent, lanes);
  const WinogradPlan *plan = g->plan;
  Tile tile = {plan->o, 1, plan->x};
  LoopRV oi, pi, step;
  LoopRV oo = generic_split_by(g, l[2].rv, tile.o, &oi);
  LoopRV po = generic_split_by(g, l[3].rv, tile.x, &pi);
  int64_t steps = tile_steps_of(g->target, tile, vectors, l[6].extent);
  LoopRV ci = generic_split_by(g, l[6].rv, steps, &step);
  const Buffer *weight = weight_of(n, &l[4]);
  /* A vector of the weight meets all positions before the next one is loaded, where those are lanes that wait in
   * registers. */
  bool held = !g->target->broadcast_load && l[4].extent % lanes == 0;
  LoopRV lane = l[4].rv;
  LoopRV part = held ? generic_split_by(g, lane, lanes, &lane) : oi;
  LoopRV order[] = {l[0].rv, l[1].rv, oo, po, l[5].rv, ci, step, held ? oi : pi, part, held ? pi : lane, lane};
  sched_reorder(g->s, held ? 11 : 10, order);
  BlockRV store = sched_cache_write(g->s, product, 0, "local", 0, NULL);
  sched_reverse_compute_at(g->s, store, po, true, -1);
  generic_write_out(g, store, band + 4);
  sched_unroll(g->s, step), sched_unroll(g->s, oi), sched_unroll(g->s, pi);
  if (held) sched_unroll(g->s, part);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, product, order[4]);
  LoopRV all = sched_fuse(g->s, 3, order, true);
  fetch_weight(g, product, weight, all);
  if (!band) sched_parallel(g->s, all);
}

/* The sums of a block of channels, in registers. */
static void multiply_part(ImplGroup *g, BlockRV part, LoopRV at, Tile tile, int64_t vectors)
{
  enum { DEPTH = 5, NU = DEPTH + 2, P, OI, RCO = DEPTH + 6, RCI };
  int64_t lanes = target_lanes(g->target, 32);
  LoopRV *l, step, lane;
  sched_compute_at(g->s, part, at, true, -1);
  sched_set_scope(g->s, part, 0, "local");
  int n = sched_get_loops(g->s, part, g->arena, &l); /* oo block eps nu p; oo eps nu p oi block, rco rci */
  if (n != RCI + 1) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of Winograd's");
  int64_t ob = sched_loop_stmt(g->s, l[OI])->u.loop.extent->u.i;
  int64_t steps = tile_steps_of(g->target, tile, vectors, sched_loop_stmt(g->s, l[RCI])->u.loop.extent->u.i);
  LoopRV ci = generic_split_by(g, l[RCI], steps, &step);
  bool held = !g->target->broadcast_load && ob % lanes == 0;
  LoopRV vector = lane = l[OI];
  if (held) vector = generic_split_by(g, vector, lanes, &lane);
  LoopRV order[] = {l[RCO], ci, l[NU], step, held ? vector : l[P], held ? l[P] : lane, lane};
  sched_reorder(g->s, held ? 7 : 6, order);
  for (int i = 2; i < (held ? 6 : 5); i++) sched_unroll(g->s, order[i]);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, part, order[0]);
}

/* All points of a channel beside each other, (oo, c, eps, nu, oi), as they are made: where each is read but once, that
 * is what counts. */
static void points_together(ImplGroup *g, BlockRV tiles)
{
  Module *m = sched_module(g->s);
  const Var **in = arena_array(m->arena, const Var *, 5);
  const Expr **out = arena_array(m->arena, const Expr *, 5);
  IndexMap *map = arena_new_of(m->arena, IndexMap);
  static const int from[] = {0, 2, 1, 3, 4};
  static const char *const names[] = {"oo", "eps", "c", "nu", "oi"};
  for (int i = 0; i < 5; i++) in[i] = var_new(m, names[i], DT_I32, VAR_PLAIN);
  for (int i = 0; i < 5; i++) out[i] = var_expr(in[from[i]]);
  *map = (IndexMap){.nin = 5, .nout = 5, .in = in, .out = out};
  sched_transform_layout(g->s, tiles, true, 0, map, NULL);
}

static void transform_weight(ImplGroup *g, LoopRV at, bool read_once)
{
  enum { AHEAD = 8 }; /* channels: some hundred cycles */
  BlockRV rows = group_stage(g, "weight_rows");
  BlockRV tiles = group_stage(g, "weight_tiles");
  LoopRV *l;
  if (read_once) points_together(g, tiles);
  sched_compute_at(g->s, tiles, at, true, -1);
  sched_get_loops(g->s, tiles, g->arena, &l); /* oo block; oo eps c nu oi */
  sched_reorder(g->s, 3, (LoopRV[]){l[4], l[2], l[3]});
  sched_compute_at(g->s, rows, l[3], true, -1);
  sched_set_scope(g->s, rows, 0, "local");
  generic_write_out(g, rows, 5);
  generic_write_out(g, tiles, 4);
  sched_prefetch(g->s, rows, 0, l[4], AHEAD);
}

static void multiply_transforming(ImplGroup *g, BlockRV part)
{
  BlockRV total = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, total, n); /* oo eps nu p oi, block */
  if (n->n != 6) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of Winograd's");
  const NestLoop *l = n->loop;
  int64_t vectors = alter_block_vectors(l[4].extent, target_lanes(g->target, 32));
  WinogradSizes sizes = group_sizes(g);
  Tile tile = weight_tile(g->target, &sizes);
  LoopRV ni, pi;
  LoopRV no = generic_split_by(g, l[2].rv, tile.y, &ni);
  LoopRV po = generic_split_by(g, l[3].rv, tile.x, &pi);
  LoopRV order[] = {l[0].rv, l[5].rv, l[1].rv, no, po, ni, pi, l[4].rv};
  sched_reorder(g->s, 8, order);
  multiply_part(g, part, po, tile, vectors);
  transform_weight(g, order[1], is_one_tile(&sizes, tile));
  sched_unroll(g->s, ni), sched_unroll(g->s, pi);
  sched_vectorize(g->s, order[7]);
  generic_block(g, sched_decompose_reduction(g->s, total, order[1]), 1, false);
  sched_parallel(g->s, order[0]);
}

/* In float16: partial sums in registers, added to totals in float32, rounded where they are stored. */
static void multiply_half(ImplGroup *g, BlockRV part, int band)
{
  BlockRV total = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, total, n); /* eps nu oo p oi, block */
  if (n->n != band + 6) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of Winograd's");
  const NestLoop *l = n->loop + band;
  int64_t vectors = alter_block_vectors(l[4].extent, target_lanes(g->target, 16));
  const WinogradPlan *plan = g->plan;
  Tile tile = {plan->o, 1, plan->x};
  LoopRV oi, pi;
  LoopRV oo = generic_split_by(g, l[2].rv, tile.o, &oi);
  LoopRV po = generic_split_by(g, l[3].rv, tile.x, &pi);
  LoopRV order[] = {l[0].rv, l[1].rv, oo, po, l[5].rv, pi, oi, l[4].rv};
  sched_reorder(g->s, 8, order);
  generic_write_out(g, impl_attach_epilogue(g, total, po), band + 4);
  half_schedule_part(g, part, order[4], band + 5, 3, (const int[]){3, 2, 4}, tile.o * tile.x * vectors);
  sched_unroll(g->s, oi), sched_unroll(g->s, pi);
  sched_vectorize(g->s, order[7]);
  sched_decompose_reduction(g->s, total, order[4]);
  LoopRV all = sched_fuse(g->s, 3, order, true);
  if (!band) sched_parallel(g->s, all);
}

/* Rows of tiles in a band, a divisor of all of which the product's register tile leaves no rest; 0: no bands. */
int64_t winograd_band(const Target *t, const WinogradSizes *s)
{
  int64_t cache = cost_l2(t);
  int64_t alpha = s->tile + 2;
  int64_t best = 0;
  int64_t size = s->bits / 8;
  int64_t weight = alpha * alpha * s->c / s->groups * s->o * size;
  int64_t vectors = alter_block_vectors(s->block, target_lanes(t, s->bits));
  int64_t rows = (s->y + s->tile - 1) / s->tile;
  int64_t across = (s->x + s->tile - 1) / s->tile;
  int64_t row = across * alpha * alpha * size * (s->c + s->o);
  if (8 * weight > 5 * cache || rows * row < cache / 2 || 2 * rows < t->num_cores) return 0;
  for (int64_t r = 1; r < rows; r++) {
    if (rows % r || 2 * r * row > cache ||
        (r * across) % tile_for(t, s->bits, vectors, s->o / s->groups / s->block, 1, r * across).x)
      continue;
    if (!best || (r * row <= cache / 4 && rows / r >= 4 * t->num_cores)) best = r;
  }
  return best;
}

static void transform_output(ImplGroup *g, BlockRV last, int64_t tile)
{
  BlockRV rows = group_stage(g, "out_rows");
  BlockRV tiles = group_stage(g, "out_tiles");
  BlockRV part;
  bool parts = parts_find(g, &part);
  LoopRV *l, hi, wi, hb;
  int n = sched_get_loops(g->s, last, g->arena, &l); /* n oo h w oi */
  if (n != 5) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "what follows the convolution is not over NCHWc");
  int64_t band = ((const WinogradPlan *)g->plan)->band;
  int64_t height = known(sched_loop_stmt(g->s, l[2])->u.loop.extent);
  LoopRV oi;
  LoopRV ov = split_vectors(g, l[4], &oi);
  LoopRV ho = generic_split_by(g, l[2], tile, &hi);
  LoopRV wo = generic_split_by(g, l[3], tile, &wi);
  LoopRV outer = ho;
  hb = (LoopRV){-1};
  if (height) outer = generic_split_by(g, ho, band ? band : (height + tile - 1) / tile, &hb);
  LoopRV order[9] = {l[0]};
  int k = 1;
  if (height) order[k++] = outer;
  order[k++] = l[1];
  order[k++] = height ? hb : ho; /* of a height that is not known, rows of tiles are counted with the others */
  order[k++] = wo, order[k++] = ov;
  int depth = band ? k - 1 : k;
  order[k++] = hi, order[k++] = wi, order[k++] = oi;
  sched_reorder(g->s, k, order);
  sched_compute_at(g->s, tiles, ov, true, -1);
  sched_compute_at(g->s, rows, ov, true, -1);
  sched_set_scope(g->s, tiles, 0, "local");
  sched_set_scope(g->s, rows, 0, "local");
  if (band) {
    BlockRV pad = group_stage(g, "data_pad");
    if (parts) sched_compute_at(g->s, group_stage(g, "bgemm_cast"), outer, true, -1);
    sched_compute_at(g->s, group_sum(g), outer, true, -1);
    if (parts) sched_compute_at(g->s, part, outer, true, -1);
    sched_compute_at(g->s, group_stage(g, "data_tiles"), outer, true, -1);
    sched_compute_at(g->s, group_stage(g, "data_rows"), outer, true, -1);
    sched_compute_at(g->s, pad, outer, true, -1);
    sched_parallel(g->s, sched_fuse(g->s, 2, order, true));
    generic_block(g, pad, 1, false);
  }
  if (!is_transformed(g->anchor)) multiply_transforming(g, part);
  else if (parts) multiply_half(g, part, band ? 1 : 0);
  else multiply(g, band ? 1 : 0);
  transform_data(g, band ? 1 : 0);
  generic_write_out(g, rows, depth);
  generic_write_out(g, tiles, depth);
  generic_write_out(g, last, depth);
  if (!band) sched_parallel(g->s, sched_fuse(g->s, height && height % tile == 0 ? 4 : 3, order, true));
}

/* The blocks behind the convolution put together into one. */
static BlockRV last_block(ImplGroup *g)
{
  BlockRV out = group_stage(g, "conv2d_winograd");
  BlockRV *user;
  for (int i = 0; i < 64; i++) {
    int n = sched_get_consumers(g->s, out, g->arena, &user);
    if (!n) return out;
    BlockRV next = user[0];
    const Block *b = sched_block_stmt(g->s, next)->u.block;
    if (n > 1 || !nest_block_is_injective(b)) return out;
    sched_compute_inline(g->s, out);
    out = next;
  }
  return out;
}

void winograd_schedule(ImplGroup *g)
{
  const WinogradAttrs *a = g->anchor->u.call.attrs;
  BlockRV last = last_block(g);
  transform_output(g, last, a->tile_size);
  generic_rest(g);
}

/* ---- the weight, at compile time ------------------------------------------------------------------- */

bool winograd_weight_fits(const Target *t, const Node *call)
{
  (void)t;
  const Type *w = call->arg[0]->type;
  return w->dtype.code == DT_FLOAT && w->dtype.bits >= 32 && w->shape[0]->kind == E_INT && w->shape[1]->kind == E_INT;
}

double winograd_weight_cost(const Target *t, const Node *call) { return impl_flops(call) / cost_bandwidth(t); }

/* (o, i, r, r) to (alpha, alpha, o, i), one dimension after the other. */
void winograd_weight_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const WinogradWeightAttrs *a = c->attrs;
  const Expr *const *w = in[0]->buffer->shape, *e[WINOGRAD_MAX], *at[4];
  WinogradMatrices q;
  nn_winograd_matrices((int)a->tile_size, (int)w[2]->u.i, c->out->dtype, false, &q);
  const IterVar *axis[4];
  const Expr *half[] = {w[0], w[1], expr_i32(m, q.alpha), w[3]};
  static const char *const names[] = {"co", "ci", "eps", "k"};
  static const char *const last[] = {"eps", "nu", "co", "ci"};
  for (int d = 0; d < 4; d++) at[d] = impl_axis(m, names[d], half[d], ITER_SPATIAL, &axis[d]);
  for (int i = 0; i < q.r; i++) e[i] = te_read(m, in[0], 4, (const Expr *[]){at[0], at[1], expr_i32(m, i), at[3]});
  const Expr *body = nn_winograd_row(m, c->out->dtype, q.g, q.alpha, q.r, at[2], e);
  const Tensor *rows = &te_compute(m, "weight_rows", "winograd_rows", 4, half, axis, 1, &body, NULL)->out[0];
  for (int d = 0; d < 4; d++) at[d] = impl_axis(m, last[d], c->out->shape[d], ITER_SPATIAL, &axis[d]);
  for (int i = 0; i < q.r; i++) e[i] = te_read(m, rows, 4, (const Expr *[]){at[2], at[3], at[0], expr_i32(m, i)});
  body = nn_winograd_row(m, c->out->dtype, q.g, q.alpha, q.r, at[1], e);
  *out = &te_compute(m, "weight_tiles", "winograd_tiles", 4, c->out->shape, axis, 1, &body, NULL)->out[0];
}

void winograd_weight_schedule(ImplGroup *g)
{
  BlockRV rows = group_stage(g, "weight_rows");
  BlockRV tiles = group_stage(g, "weight_tiles");
  LoopRV *l, vi;
  sched_get_loops(g->s, tiles, g->arena, &l); /* eps nu co ci */
  LoopRV order[] = {l[2], generic_split_by(g, l[3], target_lanes(g->target, 32), &vi), l[0], l[1], vi};
  sched_reorder(g->s, 5, order);
  sched_compute_at(g->s, rows, order[1], true, -1); /* co ci eps k: channels last */
  sched_set_scope(g->s, rows, 0, "local");
  LoopRV *r;
  int n = sched_get_loops(g->s, rows, g->arena, &r);
  if (n != 6) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the weight's loops are not those of Winograd's");
  sched_reorder(g->s, 3, (LoopRV[]){r[4], r[5], r[3]});
  sched_unroll(g->s, r[4]), sched_unroll(g->s, r[5]);
  if (sched_loop_stmt(g->s, r[3])->u.loop.extent->kind == E_INT) sched_vectorize(g->s, r[3]);
  sched_unroll(g->s, l[0]), sched_unroll(g->s, l[1]);
  sched_vectorize(g->s, vi);
  sched_parallel(g->s, order[0]);
  generic_rest(g);
}
