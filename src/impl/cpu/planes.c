/* planes.c: convolutions over plain data, vectors along the columns of a plane: depthwise ones, one filter for each
 * channel, and stems, whose input channels are too few to fill blocks.
 *
 *   for n, channel, band of rows                                threads; a stem: n, band
 *     plane[y, phase, q] = the band's data and zeros around it  stays in the first-level cache; a stem: of all channels
 *     for tiles of rows, vectors of columns                     a stem: for tiles of output channels, too
 *       tile[r, x] = 0                                          registers; a stem: tile[o, r, x]
 *       for kx, ky: tile[r, x] += plane[r * stride + ky, (kx + e) % stride, x + (kx + e) / stride] * weight[ky, kx]
 *       epilogue on the tile, store
 *
 * Columns lie apart by their phase, the remainder of the column by the stride, so that neighbours in a vector are
 * neighbours in memory; the first column of the data has phase 0:
 *
 *     stride 2, one column of padding:   phase 0:  0 x0 x2 x4 …      the first window is  x[-1] x0 x1:
 *                                        phase 1:  0 x1 x3 x5 …      e is 1
 *
 * Rows and columns behind the last one are zeros too: whole tiles are computed, and only what is there is stored.
 *
 * Depthwise ones over planes of unknown extent are the same with expressions in the place of the extents.
 *
 * Nothing is brought into blocks of channels and back, which takes longer than so few products where nothing else
 * shares the blocks.  A stem's weight lies so that the output channels of a tile are neighbours (OIHW8o). */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define PLANES_PLAN(A, S)                                                                 \
  A(S, INT, outs, NULL, "output channels of a register tile; 1 where they are depthwise") \
  A(S, INT, rows, NULL, "rows of a register tile")                                        \
  A(S, INT, band, NULL, "register tiles one below another whose data is copied together")
DEFINE_PLAN(PlanesPlan, PLANES_PLAN)

enum { FEW_CHANNELS = 8, MOST_TAPS = 49 }; /* written out for all rows of a tile */
enum { OPEN_STEPS = 84 };                  /* where that is code twice or more: products of a tile */

typedef struct Planes {
  int64_t n, c, o, in[2], out[2], k[2], stride[2], before[2]; /* n 0: not known; rows, columns */
  bool stem;                                                  /* else depthwise */
  /* columns of a row in front of the data, for each phase; e above */
  int64_t shift, lead;
  int64_t outs, rows, lanes; /* of a tile: output channels, rows, columns */
  /* tiles one below another and side by side; how many of a column a band has */
  int64_t tiles, vectors, band;
  int64_t width; /* columns of a phase */
  int bytes;
  /* the copy's vectors take the zeros at a row's ends along */
  bool picked;
  bool open;     /* extents are not known: in and out are likely ones */
  double cycles; /* of a plane; a stem: of all */
} Planes;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }
/* cycles: the loop over tiles itself and the first loads */
static const double ENDS = 4;

/* Cycles of a depthwise tile: multiply-adds, or the loads of its vectors, of which rows share what they have in common,
 * or the steps of a sum one after the other, as far as the next tile is not begun beside it. */
static double depthwise_cycles(const Target *t, const Planes *p, int64_t rows)
{
  static const double WINDOW = 350; /* instructions on their way at once */
  double taps = (double)(p->k[0] * p->k[1]);
  double sums = (double)rows * taps;
  double loads = (double)(((rows - 1) * p->stride[0] + p->k[0]) * p->k[1]) + taps;
  double alone = (sums + loads) / WINDOW;
  double wait = taps * t->core.fma_latency * (alone < 1 ? alone : 1);
  double cycles = sums / cost_pipes(t);
  if (loads / cost_loads(t) > cycles) cycles = loads / cost_loads(t);
  if (wait > cycles) cycles = wait;
  return cycles + (double)rows + ENDS;
}

/* Cycles of a stem's tile: each tap loads a vector for each row and an element for each output channel.  The taps of a
 * row are written out, the others a loop. */
static double stem_cycles(const Target *t, const Planes *p, int64_t outs, int64_t rows)
{
  double sums = (double)(outs * rows);
  double loops = (double)(p->c * p->k[0]);
  double tap = sums / cost_pipes(t);
  double loads = (double)(outs + rows) / cost_loads(t);
  if (loads > tap) tap = loads;
  if (t->core.fma_latency > tap) tap = t->core.fma_latency;
  return loops * ((double)p->k[1] * tap + 1) + sums + ENDS;
}

/* Cycles of a row of one phase of the copy: vectors of data, and stores of zeros beside them.  Columns that are picked
 * are read for each phase anew. */
static double row_cycles(const Target *t, const Planes *p)
{
  static const double STORE = 0.5;
  static const double PIECES =
      22; /* where the ends of a row are told at run time: its loops; fitted on a Neoverse-N1 */
  static const double APART = 2.5; /* vectors of every second column */
  if (p->open) {
    double each = (p->stride[1] > 1 ? APART : 1 / cost_loads(t)) + STORE;
    return PIECES + each * (double)up(up(p->in[1], p->stride[1]), p->lanes);
  }
  double data = (double)up(p->in[1], p->stride[1]) + (p->picked ? (double)p->shift : 0);
  double vectors = __builtin_ceil(data / (double)p->lanes);
  return vectors * ((p->picked ? (double)p->stride[1] : 1) / cost_loads(t) + STORE) + (p->picked ? 1 : 2) * STORE;
}

/* Rows of data that so many rows read, and their bytes, of all channels of a stem. */
static int64_t rows_read(const Planes *p, int64_t rows) { return (rows - 1) * p->stride[0] + p->k[0]; }
static double copied_bytes(const Planes *p, int64_t rows)
{
  return (double)(rows_read(p, rows) * p->stride[1] * p->bytes) * (double)p->width * (double)(p->stem ? p->c : 1);
}

/* Does a tile fit the registers, and what a stem's reads half of the first-level cache?  Registers hold the sums and,
 * depthwise, one column of taps of all the rows that they read and two on their way; of a stem one tap of all rows, one
 * element and one on its way. */
static bool tile_fits(const Target *t, const Planes *p, int64_t outs, int64_t rows)
{
  if (outs * rows == 1) return true;
  if (!p->stem) return rows + rows_read(p, rows) + 2 <= t->vector_registers;
  return outs * rows + rows + 2 <= t->vector_registers &&
         (rows == 1 || 2 * copied_bytes(p, rows) <= (double)cost_l1(t));
}

/* A filter for each channel; or several taps of all channels of the data, which are few. */
static bool read_channels(int64_t groups, const Type *w, Planes *p)
{
  p->stem = groups == 1 && known_size(w, 1) == p->c;
  if (p->stem) return p->c <= FEW_CHANNELS && p->k[0] * p->k[1] > 1 && p->k[1] <= MOST_TAPS;
  return p->c >= 2 && groups == p->c && p->o == p->c && known_size(w, 1) == 1 && w->ndim == 4 &&
         p->k[0] * p->k[1] <= MOST_TAPS;
}

static bool read_sizes(const Conv2DAttrs *a, const Type *x, const Type *w, const Type *y, Planes *p)
{
  const char *out = *a->out_layout ? a->out_layout : a->data_layout;
  if (strcmp(a->data_layout, "NCHW") || !str_starts(a->kernel_layout, "OIHW") || strcmp(out, "NCHW")) return false;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim < 4 || w->ndim > 5 ||
      (w->ndim == 5 && !str_ends(a->kernel_layout, "o")) || y->ndim != 4)
    return false;
  if (x->dtype.code != DT_FLOAT || x->dtype.bits < 32 || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype))
    return false;
  *p = (Planes){.n = known_size(x, 0), .c = known_size(x, 1), .o = known_size(y, 1), .bytes = dtype_bytes(x->dtype)};
  for (int d = 0; d < 2; d++) {
    p->in[d] = likely_size(x->shape[2 + d], 2), p->out[d] = likely_size(y->shape[2 + d], 2);
    p->open |= !known_size(x, 2 + d) || !known_size(y, 2 + d);
    p->k[d] = known_size(w, 2 + d);
    p->stride[d] = impl_list_at(a->strides, d, 1), p->before[d] = impl_list_at(a->padding, d, 0);
    if (!p->in[d] || !p->out[d] || !p->k[d] || p->stride[d] < 1 || p->stride[d] > 2 || p->before[d] < 0 ||
        impl_list_at(a->dilation, d, 1) != 1)
      return false;
  }
  return p->c && read_channels(a->groups, w, p) && !(p->open && p->stem);
}

/* Lanes and zeros of a row that is a few vectors are picked out of what lies there; of a longer one, which is cut where
 * its padding begins, so few of the pieces are short that loads in a row cost less. */
static bool is_picked(const Target *t, const Planes *p)
{
  return t->codegen == CODEGEN_LLVM && !p->open && p->in[1] >= p->stride[1] &&
         p->vectors <= 8 / (p->stride[1] * p->stride[1]);
}

/* Sizes that no plan changes; false: another kind of convolution. */
static bool planes_of(const Target *t, const Conv2DAttrs *a, const Type *x, const Type *w, const Type *y, Planes *p)
{
  if (target_is_gpu(t) || !read_sizes(a, x, w, y, p)) return false;
  p->shift = up(p->before[1], p->stride[1]);
  p->lead = p->shift * p->stride[1] - p->before[1];
  p->lanes = target_lanes(t, 8 * p->bytes);
  while (!p->open && p->lanes / 2 >= p->out[1]) p->lanes /= 2;
  p->vectors = up(p->out[1], p->lanes);
  p->width = p->vectors * p->lanes + (p->k[1] - 1 + p->lead) / p->stride[1];
  p->picked = is_picked(t, p);
  return true;
}

/* Those that follow from a plan, and its cycles. */
static void by_plan(const Target *t, const PlanesPlan *plan, Planes *p)
{
  p->outs = plan->outs, p->rows = plan->rows, p->band = plan->band;
  p->tiles = up(p->out[0], p->rows);
  double tile =
      p->stem ? (double)(p->o / p->outs) * stem_cycles(t, p, p->outs, p->rows) : depthwise_cycles(t, p, p->rows);
  double copied =
      (double)(p->tiles / p->band * rows_read(p, p->band * p->rows) * p->stride[1]) * (double)(p->stem ? p->c : 1);
  p->cycles = (double)(p->vectors * p->tiles) * tile + copied * row_cycles(t, p);
}

static bool planes_of_call(const Target *t, const Node *call, Planes *p)
{
  return planes_of(t, call->u.call.attrs, call->arg[0]->type, call->arg[1]->type, call->type, p);
}

static double planes_seconds(const Target *t, const Planes *p)
{
  double planes = (double)((p->n ? p->n : 1) * (p->stem ? 1 : p->c));
  double bytes =
      (double)(p->n ? p->n : 1) * (double)(p->c * p->in[0] * p->in[1] + p->o * p->out[0] * p->out[1]) * p->bytes;
  double moved = bytes / cost_cache(t);
  static const double OVER = 1.35; /* what the loops of a plane take beside its arithmetic (Neoverse-N1) */
  double seconds = (p->stem ? 1 : OVER) * planes * p->cycles / (1e9 * t->core.ghz);
  int threads = cost_threads(t, 2 * seconds * cost_flops(t, 8 * p->bytes) / 2, bytes);
  double pieces = planes * (double)(p->tiles / p->band);
  return (seconds > moved ? seconds : moved) / threads / cost_busy(pieces, threads);
}

/* ---- plans ---------------------------------------------------------------------------------------------- */

/* Of a plane of unknown extent. */
static void add_open(PlanList *list, const Target *t, Planes *p, int64_t rows)
{
  PlanesPlan plan = {.outs = 1, .rows = rows, .band = 1}; /* no band is left over at the end */
  by_plan(t, &plan, p);
  plan_add(list, &plan, planes_seconds(t, p), 0);
}

/* One row of tiles, and as many as half of the first-level cache holds what they read of; divisors. */
static void add_bands(PlanList *list, const Target *t, Planes *p, int64_t outs, int64_t rows)
{
  PlanesPlan plan = {.outs = outs, .rows = rows, .band = 1};
  int64_t tiles = up(p->out[0], rows);
  int64_t most = 1;
  double bytes = p->stem ? (double)(p->o * p->c * p->k[0] * p->k[1] * p->bytes) : 0;
  for (int64_t b = 2; b <= tiles && 2 * copied_bytes(p, b * rows) <= (double)cost_l1(t); b++)
    if (tiles % b == 0) most = b;
  for (int i = 0; i < (most > 1 ? 2 : 1); i++) {
    plan.band = i ? most : 1;
    if (p->stem && copied_bytes(p, plan.band * rows) > (double)cost_l1(t)) continue;
    by_plan(t, &plan, p);
    plan_add(list, &plan, planes_seconds(t, p), bytes);
  }
}

void planes_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  const Type *w = call->call->arg[1]->type;
  Planes p;
  if (!planes_of_call(t, call->call, &p)) return;
  if (p.stem && w->ndim == 4 && !alter_is_constant(call->m->ctx, call->call->arg[1])) return;
  list->alters = p.stem && w->ndim == 4;
  for (int64_t outs = 1; outs <= (p.stem ? t->vector_registers : 1); outs++) {
    if (p.o % outs || (w->ndim == 5 && known_size(w, 4) != outs)) continue;
    for (int64_t rows = 1; (p.open || rows <= p.out[0]) && tile_fits(t, &p, outs, rows); rows++) {
      bool short_code = rows == 1 || rows * p.k[0] * p.k[1] <= OPEN_STEPS;
      if (p.open && short_code) add_open(list, t, &p, rows);
      if (!p.open) add_bands(list, t, &p, outs, rows);
    }
  }
}

void planes_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  Module *m = call->m;
  const Node *conv = call->call;
  const OpDef *op = conv->u.call.op;
  const char *kernel = arena_printf(m->arena, "OIHW%" PRId64 "o", ((const PlanesPlan *)plan)->outs);
  void *attrs = attrs_copy(m, op->attrs, conv->u.call.attrs);
  attrs_set_str(m, op->attrs, attrs, "kernel_layout", kernel);
  *out = (AlteredCall){.op = op, .attrs = attrs, .nargs = 2};
  out->arg[0] = conv->arg[0];
  out->arg[1] = alter_transform(m, conv->arg[1], "OIHW", kernel);
}

/* plane[n, c, y, phase, q]: whether a column of the data is there is told by q alone, but for the last where the stride
 * leaves a rest. */
static const Tensor *copy_planes(Module *m, const Planes *p, const Tensor *x, const Type *out)
{
  int64_t s = p->stride[1];
  int64_t whole = p->in[1] / s;
  int64_t rest = p->in[1] % s;
  const Expr *shape[] = {out->shape[0], expr_i32(m, p->c), expr_i32(m, rows_read(p, p->tiles * p->rows)),
                         expr_i32(m, s), expr_i32(m, p->width)};
  Stage st = nn_stage(m, 5, shape, "n c y phase q");
  const Expr *row = expr_sub(m, st.at[2], expr_i32(m, p->before[0]));
  const Expr *q = expr_sub(m, st.at[4], expr_i32(m, p->shift));
  const Expr *zero = expr_const(m, out->dtype, 0);
  const Expr *value;
  if (p->picked) {
    const Expr *last = rest ? expr_floordiv(m, expr_sub(m, expr_i32(m, p->in[1] - 1), st.at[3]), expr_i32(m, s))
                            : expr_i32(m, whole - 1);
    const Expr *near = expr_max(m, expr_min(m, q, last), expr_i32(m, 0));
    value = nn_read(
        m, x, (const Expr *[]){st.at[0], st.at[1], row, expr_add(m, expr_mul(m, near, expr_i32(m, s)), st.at[3])});
    value = expr_select(m, expr_binary(m, E_EQ, near, q), value, zero);
  } else {
    const Expr *around = zero;
    value =
        nn_read(m, x, (const Expr *[]){st.at[0], st.at[1], row, expr_add(m, expr_mul(m, q, expr_i32(m, s)), st.at[3])});
    if (rest)
      around = nn_if(m, nn_and(m, expr_binary(m, E_EQ, q, expr_i32(m, whole)), expr_lt(m, st.at[3], expr_i32(m, rest))),
                     value, zero);
    value = nn_if(m, nn_inside(m, q, expr_i32(m, whole)), value, around);
  }
  return nn_finish(&st, "planes", "injective,pad", nn_if(m, nn_inside(m, row, expr_i32(m, p->in[0])), value, zero));
}

/* The same where the extents are not known: rows in whole vectors, (n, c, y, phase, vector, lane). */
static const Tensor *copy_open(Module *m, const Planes *p, const Tensor *x, const Type *out, const Expr *rows,
                               const Expr *columns)
{
  const Expr *s = expr_i32(m, p->stride[1]);
  const Expr *lanes = expr_i32(m, p->lanes);
  const Expr *height = expr_mul(m, expr_sub(m, rows, expr_i32(m, 1)), expr_i32(m, p->stride[0]));
  const Expr *width = expr_add(m, columns, expr_i32(m, (p->k[1] - 1 + p->lead) / p->stride[1]));
  const Expr *shape[] = {out->shape[0],
                         expr_i32(m, p->c),
                         nn_simplify(m, expr_add(m, height, expr_i32(m, p->k[0]))),
                         s,
                         nn_simplify(m, nn_ceildiv(m, width, lanes)),
                         lanes};
  Stage st = nn_stage(m, 6, shape, "n c y phase vector lane");
  const Expr *row = expr_sub(m, st.at[2], expr_i32(m, p->before[0]));
  const Expr *q = expr_add(m, expr_mul(m, st.at[4], lanes), st.at[5]);
  const Expr *column = expr_add(m, expr_mul(m, expr_sub(m, q, expr_i32(m, p->shift)), s), st.at[3]);
  const Expr *const *in = x->buffer->shape;
  const Expr *value = nn_read(m, x, (const Expr *[]){st.at[0], st.at[1], row, column});
  const Expr *inside = nn_and(m, nn_inside(m, row, in[2]), nn_inside(m, column, in[3]));
  return nn_finish(&st, "planes", "injective,pad", nn_if(m, inside, value, expr_const(m, out->dtype, 0)));
}

static const Expr *rounded(Module *m, const Expr *n, int64_t by)
{
  return nn_simplify(m, expr_mul(m, nn_ceildiv(m, n, expr_i32(m, by)), expr_i32(m, by)));
}

void planes_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Planes p;
  if (!planes_of(t, c->attrs, c->arg[0], c->arg[1], c->out, &p)) BUG(m->ctx, "planes: not such a convolution");
  by_plan(t, plan, &p);
  const Expr *shape[] = {c->out->shape[0], c->out->shape[1], rounded(m, c->out->shape[2], p.rows),
                         rounded(m, c->out->shape[3], p.lanes)};
  const Tensor *data = p.open ? copy_open(m, &p, in[0], c->out, shape[2], shape[3]) : copy_planes(m, &p, in[0], c->out);
  const Expr *s = expr_i32(m, p.stride[1]);
  Stage st = nn_stage(m, 4, shape, "n o y x");
  const Expr *channel = p.stem ? nn_reduce_axis(&st, "rc", expr_i32(m, p.c)) : st.at[1];
  const Expr *ky = nn_reduce_axis(&st, "ry", expr_i32(m, p.k[0]));
  const Expr *kx = nn_reduce_axis(&st, "rx", expr_i32(m, p.k[1]));
  const Expr *tap = expr_add(m, kx, expr_i32(m, p.lead));
  const Expr *row = expr_add(m, expr_mul(m, st.at[2], expr_i32(m, p.stride[0])), ky);
  const Expr *column = expr_add(m, st.at[3], expr_floordiv(m, tap, s));
  const Expr *lanes = expr_i32(m, p.lanes);
  const Expr *phase = expr_floormod(m, tap, s);
  const Expr *of_rows[] = {st.at[0], channel, row, phase, column};
  const Expr *of_vectors[] = {
    st.at[0], channel, row, phase, expr_floordiv(m, column, lanes), expr_floormod(m, column, lanes)};
  const Expr *x = nn_read(m, data, p.open ? of_vectors : of_rows);
  const Expr *outs = expr_i32(m, p.outs);
  const Expr *of_stem[] = {expr_floordiv(m, st.at[1], outs), channel, ky, kx, expr_floormod(m, st.at[1], outs)};
  const Expr *w = nn_read(m, in[1], p.stem ? of_stem : (const Expr *[]){st.at[1], expr_i32(m, 0), ky, kx});
  const Tensor *sum = nn_sum(&st, "product", "conv_planes", expr_mul(m, x, w), c->out->dtype);
  Stage plane = nn_stage(m, 4, c->out->shape, NULL);
  *out = nn_finish(&plane, "conv_planes", "injective", nn_read(m, sum, plane.at));
}

/* A row of the copy is one vector, which the lowering cuts into those of the machine, where the padding begins too
 * unless it is picked; a long row is a loop. */
static void schedule_copy(ImplGroup *g, BlockRV copy, const Planes *p)
{
  enum { WRITTEN = 8 };
  LoopRV *loop, q;
  int n = sched_get_loops(g->s, copy, g->arena, &loop);
  q = loop[n - 1];
  if (!p->open && p->width > 2 * WRITTEN * p->lanes) generic_split_by(g, q, WRITTEN * p->lanes, &q);
  sched_vectorize(g->s, q);
  if (p->stride[1] > 1) sched_unroll(g->s, loop[n - (p->open ? 3 : 2)]);
  if (!p->open) sched_storage_align(g->s, copy, 0, 3, (int)p->lanes, 0);
}

/* The loops over n and what threads share beside it, and the product's inside a band. */
typedef struct Order {
  LoopRV n, channel, band; /* channel: of a depthwise convolution */
} Order;

static Order depthwise_order(ImplGroup *g, const Planes *p, BlockRV product)
{
  LoopRV *l, r, lane, tile;
  if (sched_get_loops(g->s, product, g->arena, &l) != 6)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of a depthwise convolution");
  LoopRV rows = generic_split_by(g, l[2], p->rows, &r);
  LoopRV band = generic_split_by(g, rows, p->band, &tile);
  LoopRV column = generic_split_by(g, l[3], p->lanes, &lane);
  int n = p->open ? 1 : 0; /* images inside, so that threads share channels, whose number is known */
  sched_reorder(g->s, 9, (const LoopRV[]){l[n], l[1 - n], band, tile, column, l[5], l[4], r, lane});
  epilogue_write_out(g, impl_attach_epilogue(g, product, column), 5, false);
  sched_unroll(g->s, l[5]), sched_unroll(g->s, l[4]), sched_unroll(g->s, r);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, product, l[5]);
  return (Order){l[0], l[1], band};
}

static Order stem_order(ImplGroup *g, const Planes *p, BlockRV product)
{
  LoopRV *l, r, lane, tile, o;
  if (sched_get_loops(g->s, product, g->arena, &l) != 7)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of a convolution");
  LoopRV rows = generic_split_by(g, l[2], p->rows, &r);
  LoopRV band = generic_split_by(g, rows, p->band, &tile);
  LoopRV column = generic_split_by(g, l[3], p->lanes, &lane);
  LoopRV outs = generic_split_by(g, l[1], p->outs, &o);
  sched_reorder(g->s, 11, (const LoopRV[]){l[0], band, tile, outs, column, l[4], l[5], l[6], o, r, lane});
  epilogue_write_out(g, impl_attach_epilogue(g, product, column), 5, true);
  sched_unroll(g->s, l[6]), sched_unroll(g->s, o), sched_unroll(g->s, r);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, product, l[4]);
  return (Order){.n = l[0], .band = band};
}

void planes_schedule(ImplGroup *g)
{
  Planes p;
  if (!planes_of_call(g->target, g->anchor, &p)) BUG(g->ctx, "planes: not such a convolution");
  by_plan(g->target, g->plan, &p);
  BlockRV copy = group_stage(g, "planes");
  generic_keep(g, copy);
  generic_inline(g);
  BlockRV product = group_sum(g);
  Order to = p.stem ? stem_order(g, &p, product) : depthwise_order(g, &p, product);
  sched_compute_at(g->s, copy, to.band, false, -1);
  double bytes = (double)((p.n ? p.n : 1) * (p.c * p.in[0] * p.in[1] + p.o * p.out[0] * p.out[1]) * p.bytes);
  double flops =
      2 * (double)((p.n ? p.n : 1) * p.o * p.out[0] * p.out[1] * p.k[0] * p.k[1]) * (double)(p.stem ? p.c : 1);
  int threads = cost_threads(g->target, flops, bytes);
  /* Bands are shared too where planes alone would leave a fifth of the threads' time unused.  Else the first and the
   * last, which have padding, are told apart from the others. */
  int64_t planes = (p.n ? p.n : 1) * p.c;
  bool few = !p.open && 4 * up(planes, threads) * threads > 5 * planes;
  LoopRV shared = p.open   ? to.channel
                  : p.stem ? sched_fuse(g->s, 2, (const LoopRV[]){to.n, to.band}, true)
                           : sched_fuse(g->s, few ? 3 : 2, (const LoopRV[]){to.n, to.channel, to.band}, true);
  if (threads > 1) sched_parallel(g->s, shared);
  schedule_copy(g, copy, &p);
  generic_rest(g);
}
