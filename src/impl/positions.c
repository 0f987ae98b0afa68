/* positions.c: convolutions of one tap over plain data, of one to three dimensions: the weight times a plane.
 *
 *   result[o, p] = sum over c of weight[o, c] * data[c, p]
 *
 *   for n, tiles of positions                                   threads
 *     for o (blocks of output channels)
 *       tile[o, p] = 0                                          registers
 *       for c: tile += weight[o, c] (one element, or a lane) * data[c, p] (vectors of positions)
 *       epilogue on the tile, store
 *
 * Positions lie side by side in the plain layout, so nothing is brought into blocks of channels and back.  In a network
 * blocks are made once and kept; a convolution that stands alone pays for both changes by itself, and those take as
 * long as its products where channels are few.  A tile's data stays in the first-level cache while all output channels
 * pass over it.  With strides the positions that count are picked first, and then lie side by side too. */
#include "impl/internal.h"
#include "op/nn_kit.h"

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
      int64_t elements = t->broadcast_load ? 1 : b / lanes;
      int64_t width = v * lanes;
      if (o % b || (!t->broadcast_load && b % lanes) || b * v + v + elements >= t->vector_registers) continue;
      double speed = tile_speed(t, v, 1, b, (Tile){1, 1, b}) * (double)positions /
                     (double)((positions + width - 1) / width * width);
      if (speed > best.speed) best = (Plane){b, v, speed};
    }
  return best;
}

/* Positions of a plane, all dimensions of it together. */
static int64_t positions_of(const Type *y)
{
  int64_t n = 1;
  for (int d = 2; d < y->ndim; d++) n *= known_size(y, d);
  return n;
}

/* How a convolution runs.  Few tiles: threads share the output channels too.
 * Packed: a tile's data is copied to one place before the output channels pass over it, with zeros behind the last
 * position.  Lines a plane apart are lines of as many pages and streams; the copy takes as long as the products of a
 * few channels.  A tile that is not whole is padded so where it would be computed element by element, or its end is not
 * known while threads share it. */
typedef struct Plan {
  Plane tile;
  int64_t c, o, positions, width;
  double flops;
  int threads;
  bool few, packed;
} Plan;

static Plan plan_of(const Target *t, const Type *x, const Type *y)
{
  enum { STREAMS = 32, SERVED = 64 };
  Plan p = {.c = known_size(x, 1), .o = known_size(y, 1), .positions = positions_of(y)};
  int64_t lanes = target_lanes(t, y->dtype.bits);
  p.tile = plane_tile(t, y->dtype.bits, p.o, p.positions);
  p.width = p.tile.vectors * lanes;
  p.flops = 2.0 * (double)(p.c * p.o * p.positions * (known_size(x, 0) ? known_size(x, 0) : 1));
  p.threads = cost_threads(t, p.flops, 0);
  p.few = p.width && p.positions / p.width < 2 * p.threads;
  p.packed = p.width && ((p.c > STREAMS && p.o >= SERVED) || p.positions % (p.few && p.threads > 1 ? p.width : lanes));
  return p;
}

static int64_t whole_tiles(const Plan *p) { return (p->positions + p->width - 1) / p->width; }

/* "NCHW" and "NCHW16c" both begin as "NC" in two dimensions. */
static bool layout_begins(const char *layout, const char *channels, int dims)
{
  return !strncmp(layout, channels, 2) && str_starts(layout + 2, conv_spatial(dims));
}

/* Read and written as it lies, nothing around it. */
static bool is_plain(const Conv2DAttrs *a, int dims)
{
  const char *out = a->out_layout && *a->out_layout ? a->out_layout : a->data_layout;
  for (int i = 0; i < a->padding.n; i++)
    if (a->padding.v[i] != 0) return false;
  return a->groups == 1 && layout_begins(a->data_layout, "NC", dims) && layout_begins(out, "NC", dims) &&
         layout_begins(a->kernel_layout, "OI", dims);
}

/* One tap; all sizes but the batch known. */
static bool is_one_tap(const Node *call)
{
  int dims = conv_dims(call);
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != dims + 2 || y->ndim != dims + 2 || w->ndim < dims + 2)
    return false;
  if (x->dtype.code != DT_FLOAT || x->dtype.bits < 32 || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype))
    return false;
  bool one = known_size(x, 1) && known_size(y, 1) && is_plain(call->u.call.attrs, dims);
  for (int d = 2; d < dims + 2; d++) one &= known_size(w, d) == 1 && known_size(x, d) && known_size(y, d);
  return one;
}

static bool is_strided(const Conv2DAttrs *a)
{
  bool found = false;
  for (int i = 0; i < a->strides.n; i++) found |= a->strides.v[i] != 1;
  return found;
}

/* Does a tile's data, whose lines are a plane apart unless it is copied, stay in the first-level cache? */
static bool stays_near(const Target *t, const Plan *p, int64_t bytes)
{
  int64_t way = cost_l1(t) / t->core.l1_ways;
  int64_t apart = int_gcd(way, p->positions * bytes);
  int64_t sets = way / (apart > CACHE_LINE ? apart : CACHE_LINE);
  return p->packed || 2 * p->c <= sets * t->core.l1_ways;
}

/* ---- chosen where the convolution stands alone ---------------------------------------------------- */

/* Seconds over positions, the copy of the tiles' data included: of all of them before the products, or of one after the
 * other.  A weight that the second-level cache does not hold is read again, straight ahead, for each tile. */
static double positions_seconds(const Target *t, const Plan *p, const Type *x, const Type *y)
{
  double n = known_size(x, 0) ? (double)known_size(x, 0) : 1;
  double bytes = dtype_bytes(y->dtype);
  double line = (double)p->c * bytes;
  double weight = line * (double)p->o;
  double copied = p->packed ? n * line * (double)p->positions : 0;
  double products = p->flops / (cost_flops(t, y->dtype.bits) * p->tile.speed);
  double read = 2 * weight > (double)cost_l2(t) ? n * (double)whole_tiles(p) * weight / cost_stream(t) : 0;
  return (products > read ? products : read) + cost_copy(t, copied, p->few ? copied : line * (double)p->width);
}

bool positions_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  if (!is_one_tap(call) || w->ndim != y->ndim || !alter_is_constant(m->ctx, call->arg[1])) return false;
  Plan p = plan_of(t, x, y);
  if (p.positions == 1) return false; /* lies in blocks as it is */
  if (!p.tile.channels || !stays_near(t, &p, dtype_bytes(y->dtype))) return false;
  if (positions_seconds(t, &p, x, y) >= conv_blocked_seconds(t, call, p.flops)) return false;
  const OpDef *op = call->u.call.op;
  const char *plain = arena_printf(m->arena, "OI%s", conv_spatial(conv_dims(call)));
  const char *kernel = arena_printf(m->arena, "%s%" PRId64 "o", plain, p.tile.channels);
  void *attrs = attrs_copy(m, op->attrs, call->u.call.attrs);
  attrs_set_str(m, op->attrs, attrs, "kernel_layout", kernel);
  *out = (AlteredCall){.op = op, .attrs = attrs, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], plain, kernel);
  return true;
}

/* ---- the implementation ----------------------------------------------------------------------------- */

bool positions_fits(const Target *t, const Node *call)
{
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  bool blocks = is_one_tap(call) && w->ndim == y->ndim + 1 &&
                str_ends(((const Conv2DAttrs *)call->u.call.attrs)->kernel_layout, "o");
  return blocks &&
         plane_tile(t, y->dtype.bits, known_size(y, 1), positions_of(y)).channels == known_size(w, w->ndim - 1);
}

double positions_cost(const Target *t, const Node *call)
{
  return impl_flops(call) / cost_flops(t, call->type->dtype.bits);
}

static const char PICKED[] = "picked";

/* The indices of position `at` of a plane, behind n and the channel. */
static void place_of(Module *m, const Type *y, const Expr *at, const Expr **index)
{
  for (int d = y->ndim - 1; d > 2; d--) {
    index[d] = expr_floormod(m, at, y->shape[d]);
    at = expr_floordiv(m, at, y->shape[d]);
  }
  index[2] = at;
}

/* (n, tiles, channels, positions of a tile); zeros behind the last position. */
static const Tensor *pack_tiles(OpCall *c, const Plan *p, const Tensor *data)
{
  Module *m = c->m;
  const Expr *shape[] = {c->out->shape[0], expr_i32(m, whole_tiles(p)), c->arg[0]->shape[1], expr_i32(m, p->width)};
  Stage s = nn_stage(m, 4, shape, "n tile c position");
  const Expr *at = expr_add(m, expr_mul(m, s.at[1], shape[3]), s.at[3]);
  const Expr *from[MAX_RANK] = {s.at[0], s.at[2]};
  place_of(m, c->out, at, from);
  const Expr *value = nn_read(m, data, from);
  if (p->positions % p->width)
    value = nn_if(m, expr_lt(m, at, expr_i32(m, p->positions)), value, expr_const(m, value->dtype, 0));
  return nn_finish(&s, "tile", "injective", value);
}

/* The positions that count, side by side. */
static const Tensor *pick_positions(OpCall *c, const Tensor *data)
{
  Module *m = c->m;
  int64_t stride[MAX_RANK];
  nn_ints(c, "strides", ((const Conv2DAttrs *)c->attrs)->strides, c->out->ndim - 2, 1, 1, stride);
  const Expr *shape[MAX_RANK] = {c->out->shape[0], c->arg[0]->shape[1]};
  for (int d = 2; d < c->out->ndim; d++) shape[d] = c->out->shape[d];
  Stage s = nn_stage(m, c->out->ndim, shape, NULL);
  const Expr *from[MAX_RANK] = {s.at[0], s.at[1]};
  for (int d = 2; d < c->out->ndim; d++) from[d] = expr_mul(m, s.at[d], expr_i32(m, stride[d - 2]));
  return nn_finish(&s, PICKED, "injective", nn_read(m, data, from));
}

static const Expr *read_data(OpCall *c, const Plan *p, const Tensor *data, const Stage *s, const Expr *rc)
{
  Module *m = c->m;
  const Expr *from[MAX_RANK] = {s->at[0], rc};
  const Expr *width = expr_i32(m, p->width);
  if (p->packed)
    return nn_read(
        m, pack_tiles(c, p, data),
        (const Expr *[]){s->at[0], expr_floordiv(m, s->at[2], width), rc, expr_floormod(m, s->at[2], width)});
  place_of(m, c->out, s->at[2], from);
  return nn_read(m, data, from);
}

void positions_compute(OpCall *c, const Target *t, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Type *y = c->out;
  const Type *w = c->arg[1];
  Plan p = plan_of(t, c->arg[0], y);
  const Expr *shape[] = {y->shape[0], y->shape[1], expr_i32(m, p.packed ? whole_tiles(&p) * p.width : p.positions)};
  const Expr *block = w->shape[w->ndim - 1];
  Stage s = nn_stage(m, 3, shape, "n o position");
  const Expr *rc = nn_reduce_axis(&s, "rc", w->shape[1]);
  const Expr *weight[MAX_RANK] = {expr_floordiv(m, s.at[1], block), rc};
  for (int d = 2; d < w->ndim - 1; d++) weight[d] = expr_i32(m, 0);
  weight[w->ndim - 1] = expr_floormod(m, s.at[1], block);
  const Tensor *data = is_strided(c->attrs) ? pick_positions(c, in[0]) : in[0];
  const Tensor *sum = nn_sum(&s, "product", "conv_positions",
                             expr_mul(m, read_data(c, &p, data, &s, rc), nn_read(m, in[1], weight)), y->dtype);
  Stage plane = nn_stage(m, y->ndim, y->shape, NULL);
  const Expr *at = plane.at[2];
  for (int d = 3; d < y->ndim; d++) at = expr_add(m, expr_mul(m, at, y->shape[d]), plane.at[d]);
  *out =
      nn_finish(&plane, "conv_positions", "injective", nn_read(m, sum, (const Expr *[]){plane.at[0], plane.at[1], at}));
}

void positions_schedule(ImplGroup *g)
{
  BlockRV picked;
  if (group_find_stage(g, PICKED, &picked)) generic_keep(g, picked);
  generic_inline(g);
  BlockRV product = group_sum(g);
  BlockRV copy;
  BlockRV store = group_only_reader(g, product);
  const Type *x = g->anchor->arg[0]->type;
  const Type *y = g->anchor->type;
  Plan p = plan_of(g->target, x, y);
  LoopRV *loop, *inner, oi, pi, step;
  if (sched_get_loops(g->s, store, g->arena, &loop) != y->ndim)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not those of its dimensions");
  LoopRV n = loop[0];
  LoopRV plane = y->ndim > 3 ? sched_fuse(g->s, y->ndim - 2, loop + 2, true) : loop[2];
  LoopRV tile = generic_split_by(g, plane, p.width, &pi);
  LoopRV o = generic_split_by(g, loop[1], p.tile.channels, &oi);
  sched_reorder(g->s, 5, (const LoopRV[]){n, tile, o, oi, pi});
  sched_compute_at(g->s, product, o, true, -1);
  epilogue_write_out(g, store, 3, true);
  int depth = sched_get_loops(g->s, product, g->arena, &inner);
  LoopRV sum = generic_split_by(g, inner[depth - 1], tile_steps(p.tile.channels * p.tile.vectors, p.c), &step);
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, inner[depth - 3], inner[depth - 2]});
  sched_unroll(g->s, step), sched_unroll(g->s, inner[depth - 3]);
  sched_vectorize(g->s, inner[depth - 2]);
  sched_set_scope(g->s, product, 0, "local");
  sched_decompose_reduction(g->s, product, sum);
  /* Few tiles: threads share the copy too, before the products.  Many: each copies its own. */
  LoopRV shared = sched_fuse(g->s, p.few ? 3 : 2, (const LoopRV[]){n, tile, o}, true);
  if (p.threads > 1) sched_parallel(g->s, shared);
  if (group_find_stage(g, "tile", &copy)) {
    if (!p.few) sched_compute_at(g->s, copy, shared, false, -1);
    int outer = sched_get_loops(g->s, copy, g->arena, &loop);
    sched_vectorize(g->s, loop[outer - 1]);
    if (p.few) { /* a plane's tiles in turn: the last one is cut off */
      sched_reorder(g->s, 2, (const LoopRV[]){loop[2], loop[1]});
      LoopRV planes = sched_fuse(g->s, 2, (const LoopRV[]){loop[0], loop[2]}, true);
      if (p.threads > 1) sched_parallel(g->s, planes);
    }
    panels_fetch(g, product, step, NULL);
  }
  generic_rest(g);
}
