/* positions.c: convolutions of one tap over plain data: the weight times a plane.
 *
 *   result[o, p] = sum over c of weight[o, c] * data[c, p]
 *
 *   for n, tiles of positions                                   threads
 *     for o (blocks of output channels)
 *       tile[o, p] = 0                                          registers
 *       for c: tile += weight[o, c] (one element, or a lane) * data[c, p] (vectors of positions)
 *       epilogue on the tile, store
 *
 * Positions lie side by side in the plain layout, so nothing is brought into blocks of channels and back.  In a network blocks are
 * made once and kept; a convolution that stands alone pays for both changes by itself, and those take as long as its products where
 * channels are few.  A tile's data stays in the first-level cache while all output channels pass over it. */
#include "impl/internal.h"
#include "op/nn_kit.h"

static int64_t known(const Type *t, int d) { return t->shape[d]->kind == E_INT && t->shape[d]->u.i > 0 ? t->shape[d]->u.i : 0; }

/* Output channels by vectors of positions, and the share of the peak that such tiles reach. */
typedef struct Plane {
  int64_t channels, vectors;
  double speed;
} Plane;

static Plane plane_tile(const Target *t, int bits, int64_t o, int64_t positions)
{
  int64_t lanes = target_lanes(t, bits);
  Plane best = {0};
  for (int64_t v = 1; v <= 4; v++)
    for (int64_t b = 2; b <= 16; b++) {
      int64_t elements = t->broadcast_load ? 1 : b / lanes, width = v * lanes;
      if (o % b || (!t->broadcast_load && b % lanes) || b * v + v + elements >= t->vector_registers) continue;
      double speed = tile_speed(t, v, 1, b, (Tile){1, 1, b}) * (double)positions / (double)((positions + width - 1) / width * width);
      if (speed > best.speed) best = (Plane){b, v, speed};
    }
  return best;
}

/* Is a tile's data copied to one place before the output channels pass over it?  Lines a plane apart are lines of as many pages and
 * streams; the copy takes as long as the products of a few channels. */
static bool is_packed(int64_t c, int64_t o)
{
  enum { STREAMS = 32, SERVED = 64 };
  return c > STREAMS && o >= SERVED;
}

static bool is_plain(const Conv2DAttrs *a)
{
  for (int i = 0; i < a->strides.n; i++)
    if (a->strides.v[i] != 1) return false;
  for (int i = 0; i < a->padding.n; i++)
    if (a->padding.v[i] != 0) return false;
  return a->groups == 1 && !strcmp(a->data_layout, "NCHW") && (!a->out_layout || !*a->out_layout || !strcmp(a->out_layout, "NCHW"));
}

/* One tap, everything read and written as it lies, all sizes but the batch known. */
static bool is_one_tap(const Node *call)
{
  const Type *x = call->arg[0]->type, *w = call->arg[1]->type, *y = call->type;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim < 4 || !is_plain(call->u.call.attrs)) return false;
  if (x->dtype.code != DT_FLOAT || x->dtype.bits < 32 || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype)) return false;
  for (int d = 1; d < 4; d++)
    if (!known(x, d) || !known(y, d)) return false;
  return known(w, 2) == 1 && known(w, 3) == 1 && known(x, 2) == known(y, 2) && known(x, 3) == known(y, 3);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Does the weight stay in the second-level cache, and a tile's data, whose lines are a plane apart unless it is copied, in the first? */
static bool stays_near(const Target *t, int64_t c, int64_t o, int64_t positions, int64_t bytes)
{
  enum { LINE = 64 };
  int64_t way = (t->l1_bytes > 0 ? t->l1_bytes : 1 << 15) / t->core.l1_ways, second = t->l2_bytes > 0 ? t->l2_bytes : 1 << 19;
  int64_t apart = common_divisor(way, positions * bytes), sets = way / (apart > LINE ? apart : LINE);
  return 2 * c * o * bytes <= second && (is_packed(c, o) || 2 * c <= sets * t->core.l1_ways);
}

/* ---- chosen where the convolution stands alone ---------------------------------------------------- */

/* Seconds over blocks of channels, with both changes of layout. */
static double blocked_seconds(const Target *t, const Node *call, double flops)
{
  const Type *x = call->arg[0]->type, *y = call->type;
  int bits = y->dtype.bits;
  int64_t block = alter_block(t, bits, known(y, 1)), lanes = target_lanes(t, bits);
  if (!block) return __builtin_inf();
  int64_t vectors = block_vectors(block, lanes), rows = known(y, 2), columns = known(y, 3);
  double share = tile_speed(t, vectors, rows, columns, tile_best(t, vectors, known(y, 1) / block, rows, columns));
  double n = known(x, 0) ? (double)known(x, 0) : 1, moved = n * (double)((known(x, 1) + known(y, 1)) * rows * columns * dtype_bytes(y->dtype));
  return flops / (cost_flops(t, bits) * share) + 2 * moved / (2 * moved <= (double)t->l2_bytes ? cost_cache(t) : cost_bandwidth(t));
}

bool positions_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *x = call->arg[0]->type, *y = call->type;
  const Conv2DAttrs *a = call->u.call.attrs;
  if (!is_one_tap(call) || strcmp(a->kernel_layout, "OIHW") || !alter_is_constant(m->ctx, call->arg[1])) return false;
  int64_t positions = known(y, 2) * known(y, 3);
  if (positions == 1) return false;                        /* lies in blocks as it is */
  Plane tile = plane_tile(t, y->dtype.bits, known(y, 1), positions);
  if (!tile.channels || !stays_near(t, known(x, 1), known(y, 1), positions, dtype_bytes(y->dtype))) return false;
  double flops = 2.0 * (double)(known(x, 1) * known(y, 1) * positions * (known(x, 0) ? known(x, 0) : 1));
  if (flops / (cost_flops(t, y->dtype.bits) * tile.speed) >= blocked_seconds(t, call, flops)) return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "o", tile.channels);
  *out = (AlteredCall){.op = call->u.call.op, .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  return true;
}

/* ---- the implementation ----------------------------------------------------------------------------- */

bool positions_fits(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  bool blocks = is_one_tap(call) && w->ndim == 5 && str_starts(a->kernel_layout, "OIHW") && str_ends(a->kernel_layout, "o") && known(w, 4);
  return blocks && plane_tile(t, call->type->dtype.bits, known(call->type, 1), known(call->type, 2) * known(call->type, 3)).channels == known(w, 4);
}

double positions_cost(const Target *t, const Node *call) { return impl_flops(call) / cost_flops(t, call->type->dtype.bits); }

/* (n, tiles, channels, positions of a tile); zeros behind the last position. */
static const Tensor *pack_tiles(OpCall *c, const Tensor *data, int64_t positions)
{
  Module *m = c->m;
  int64_t all = known(c->out, 2) * known(c->out, 3);
  const Expr *columns = c->out->shape[3], *shape[] = {c->out->shape[0], expr_i32(m, (all + positions - 1) / positions), c->arg[0]->shape[1], expr_i32(m, positions)};
  Stage s = nn_stage(m, 4, shape, "n tile c position");
  const Expr *at = expr_add(m, expr_mul(m, s.at[1], shape[3]), s.at[3]);
  const Expr *value = nn_read(m, data, (const Expr *[]){s.at[0], s.at[2], expr_floordiv(m, at, columns), expr_floormod(m, at, columns)});
  if (all % positions) value = nn_if(m, expr_lt(m, at, expr_i32(m, all)), value, expr_const(m, value->dtype, 0));
  return nn_finish(&s, "tile", "injective", value);
}

void positions_compute(OpCall *c, const Target *t, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Type *y = c->out;
  int bits = y->dtype.bits;
  int64_t width = plane_tile(t, bits, known(y, 1), known(y, 2) * known(y, 3)).vectors * target_lanes(t, bits);
  const Expr *columns = y->shape[3], *block = c->arg[1]->shape[4], *zero = expr_i32(m, 0);
  const Expr *shape[] = {y->shape[0], y->shape[1], expr_i32(m, known(y, 2) * known(y, 3))};
  Stage s = nn_stage(m, 3, shape, "n o position");
  const Expr *rc = nn_reduce_axis(&s, "rc", c->arg[1]->shape[1]);
  bool packed = is_packed(known(c->arg[0], 1), known(y, 1));
  const Expr *part = packed ? expr_i32(m, width) : columns, *first = expr_floordiv(m, s.at[2], part), *second = expr_floormod(m, s.at[2], part);
  const Expr *value = packed ? nn_read(m, pack_tiles(c, in[0], width), (const Expr *[]){s.at[0], first, rc, second})
                             : nn_read(m, in[0], (const Expr *[]){s.at[0], rc, first, second});
  const Expr *weight[] = {expr_floordiv(m, s.at[1], block), rc, zero, zero, expr_floormod(m, s.at[1], block)};
  const Tensor *sum = nn_sum(&s, "product", "conv2d_positions", expr_mul(m, value, nn_read(m, in[1], weight)), y->dtype);
  Stage plane = nn_stage(m, 4, y->shape, "n o oh ow");
  const Expr *at[] = {plane.at[0], plane.at[1], expr_add(m, expr_mul(m, plane.at[2], columns), plane.at[3])};
  *out = nn_finish(&plane, "conv2d_positions", "injective", nn_read(m, sum, at));
}

void positions_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV product = group_sum(g), *user, copy;
  if (sched_get_consumers(g->s, product, g->arena, &user) != 1) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product has several readers");
  BlockRV store = user[0];
  const Type *x = g->anchor->arg[0]->type, *y = g->anchor->type;
  int64_t all = known(y, 2) * known(y, 3), lanes = target_lanes(g->target, y->dtype.bits);
  Plane tile = plane_tile(g->target, y->dtype.bits, known(y, 1), all);
  LoopRV *loop, *inner, oi, pi, step;
  if (sched_get_loops(g->s, store, g->arena, &loop) != 4) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not those of NCHW");
  LoopRV n = loop[0], p = split_by(g, sched_fuse(g->s, 2, loop + 2, true), tile.vectors * lanes, &pi), o = split_by(g, loop[1], tile.channels, &oi);
  sched_reorder(g->s, 5, (const LoopRV[]){n, p, o, oi, pi});
  sched_compute_at(g->s, product, o, true, -1);
  epilogue_write_out(g, store, 3, true);
  int depth = sched_get_loops(g->s, product, g->arena, &inner);
  LoopRV sum = split_by(g, inner[depth - 1], tile_steps(tile.channels * tile.vectors, known(x, 1)), &step);
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, inner[depth - 3], inner[depth - 2]});
  sched_unroll(g->s, step), sched_unroll(g->s, inner[depth - 3]);
  sched_vectorize(g->s, inner[depth - 2]);
  sched_set_scope(g->s, product, 0, "local");
  sched_decompose_reduction(g->s, product, sum);
  /* Few tiles: threads share the output channels too, and the copy before that.  Many: each copies its own. */
  int threads = cost_threads(g->target, impl_flops(g->anchor), 0);
  bool few = all / (tile.vectors * lanes) < 2 * threads;
  LoopRV shared = sched_fuse(g->s, few ? 3 : 2, (const LoopRV[]){n, p, o}, true);
  if (threads > 1) sched_parallel(g->s, shared);
  if (group_find_stage(g, "tile", &copy)) {
    if (!few) sched_compute_at(g->s, copy, shared, false, -1);
    int outer = sched_get_loops(g->s, copy, g->arena, &loop);
    sched_vectorize(g->s, loop[outer - 1]);
    if (few && threads > 1) sched_parallel(g->s, sched_fuse(g->s, outer - 1, loop, true));
    panels_fetch(g, product, step, NULL);
  }
  generic_rest(g);
}
