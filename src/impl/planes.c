/* planes.c: depthwise convolutions over plain data, one filter for each channel: vectors along the columns of a plane.
 *
 *   for n, channel, band of rows                                threads
 *     plane[y, phase, q] = the band's data and zeros around it  stays in the first-level cache
 *     for tiles of rows, vectors of columns
 *       tile[r, x] = 0                                          registers
 *       for kx, ky: tile[r, x] += plane[r * stride + ky, (kx + e) % stride, x + (kx + e) / stride] * weight[ky, kx]
 *       epilogue on the tile, store
 *
 * Columns lie apart by their phase, the remainder of the column by the stride, so that neighbours in a vector are neighbours in
 * memory; the first column of the data has phase 0:
 *
 *     stride 2, one column of padding:   phase 0:  0 x0 x2 x4 …      the first window is  x[-1] x0 x1:
 *                                        phase 1:  0 x1 x3 x5 …      e is 1
 *
 * Rows and columns behind the last one are zeros too: whole tiles are computed, and only what is there is stored.
 *
 * Nothing is brought into blocks of channels and back, which takes longer than so few products where nothing else shares the blocks. */
#include "impl/internal.h"
#include "op/nn_kit.h"

enum { MOST_TAPS = 49 };                                   /* written out for all rows of a tile */

typedef struct Planes {
  int64_t n, c, in[2], out[2], k[2], stride[2], before[2];  /* n 0: not known; rows, columns */
  int64_t shift, lead;                                     /* columns of a row in front of the data, for each phase; e above */
  int64_t rows, lanes;                                     /* of a tile */
  int64_t tiles, vectors, band;                            /* tiles one below another and side by side; how many of a column a band has */
  int64_t width;                                           /* columns of a phase */
  int bytes;
  bool picked;                                             /* the copy's vectors take the zeros at a row's ends along */
  double cycles;                                           /* of a plane */
} Planes;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }
static int64_t in_list(AttrInts a, int i, int64_t def) { return a.n == 0 ? def : a.v[a.n == 1 ? 0 : i]; }

/* Cycles of a tile: multiply-adds, or the loads of its vectors, of which rows share what they have in common, or the steps of a sum one
 * after the other, as far as the next tile is not begun beside it. */
static double tile_cycles(const Target *t, const Planes *p, int64_t rows)
{
  static const double ENDS = 4, WINDOW = 350;              /* the loop itself and the first loads; instructions on their way at once */
  double taps = (double)(p->k[0] * p->k[1]), sums = (double)rows * taps, loads = (double)(((rows - 1) * p->stride[0] + p->k[0]) * p->k[1]) + taps;
  double alone = (sums + loads) / WINDOW, wait = taps * t->core.fma_latency * (alone < 1 ? alone : 1), cycles = sums / cost_pipes(t);
  if (loads / cost_loads(t) > cycles) cycles = loads / cost_loads(t);
  if (wait > cycles) cycles = wait;
  return cycles + (double)rows + ENDS;
}

/* Cycles of a row of one phase of the copy: vectors of data, and stores of zeros beside them.  Columns that are picked are read for each
 * phase anew. */
static double row_cycles(const Target *t, const Planes *p)
{
  static const double STORE = 0.5;
  double data = (double)up(p->in[1], p->stride[1]) + (p->picked ? (double)p->shift : 0), vectors = __builtin_ceil(data / (double)p->lanes);
  return vectors * ((p->picked ? (double)p->stride[1] : 1) / cost_loads(t) + STORE) + (p->picked ? 1 : 2) * STORE;
}

/* Registers hold the sums, one column of taps of all the rows that they read, and two on their way. */
static void choose_rows(const Target *t, Planes *p)
{
  double least = 0;
  for (int64_t rows = 1; rows <= p->out[0] && (rows == 1 || rows + (rows - 1) * p->stride[0] + p->k[0] + 2 <= t->vector_registers); rows++) {
    double cycles = (double)up(p->out[0], rows) * tile_cycles(t, p, rows);
    if (p->rows && cycles >= least) continue;
    least = cycles;
    p->rows = rows;
  }
  p->tiles = up(p->out[0], p->rows);
}

/* As many rows of tiles as half of the first-level cache holds what they read of; a divisor. */
static void choose_band(const Target *t, Planes *p)
{
  int64_t cache = (t->l1_bytes > 0 ? t->l1_bytes : 1 << 15) / 2;
  for (int64_t b = 1; b <= p->tiles; b++)
    if (p->tiles % b == 0 && (b == 1 || ((b * p->rows - 1) * p->stride[0] + p->k[0]) * p->stride[1] * p->width * p->bytes <= cache)) p->band = b;
}

static bool read_sizes(const Conv2DAttrs *a, const Type *x, const Type *w, const Type *y, Planes *p)
{
  const char *out = a->out_layout && *a->out_layout ? a->out_layout : a->data_layout;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") || strcmp(out, "NCHW")) return false;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim != 4 || y->ndim != 4) return false;
  if (x->dtype.code != DT_FLOAT || x->dtype.bits < 32 || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype)) return false;
  *p = (Planes){.n = known_size(x, 0), .c = known_size(x, 1), .bytes = dtype_bytes(x->dtype)};
  if (p->c < 2 || a->groups != p->c || known_size(w, 0) != p->c || known_size(w, 1) != 1) return false;
  for (int d = 0; d < 2; d++) {
    p->in[d] = known_size(x, 2 + d), p->out[d] = known_size(y, 2 + d), p->k[d] = known_size(w, 2 + d);
    p->stride[d] = in_list(a->strides, d, 1), p->before[d] = in_list(a->padding, d, 0);
    if (!p->in[d] || !p->out[d] || !p->k[d] || p->stride[d] < 1 || p->stride[d] > 2 || p->before[d] < 0 || in_list(a->dilation, d, 1) != 1) return false;
  }
  return p->k[0] * p->k[1] <= MOST_TAPS;
}

/* Lanes and zeros of a row that is a few vectors are picked out of what lies there; of a longer one, which is cut where its padding
 * begins, so few of the pieces are short that loads in a row cost less. */
static bool is_picked(const Target *t, const Planes *p)
{
  return t->kind == TARGET_LLVM && p->in[1] >= p->stride[1] && p->vectors <= 8 / (p->stride[1] * p->stride[1]);
}

/* False: another kind of convolution. */
static bool planes_of(const Target *t, const Conv2DAttrs *a, const Type *x, const Type *w, const Type *y, Planes *p)
{
  if (t->kind == TARGET_CUDA || !read_sizes(a, x, w, y, p)) return false;
  int bits = 8 * p->bytes;
  p->shift = up(p->before[1], p->stride[1]);
  p->lead = p->shift * p->stride[1] - p->before[1];
  p->lanes = target_lanes(t, bits);
  while (p->lanes / 2 >= p->out[1]) p->lanes /= 2;
  p->vectors = up(p->out[1], p->lanes);
  p->width = p->vectors * p->lanes + (p->k[1] - 1 + p->lead) / p->stride[1];
  p->picked = is_picked(t, p);
  choose_rows(t, p);
  choose_band(t, p);
  int64_t copied = p->tiles / p->band * ((p->band * p->rows - 1) * p->stride[0] + p->k[0]) * p->stride[1];
  p->cycles = (double)(p->tiles * p->vectors) * tile_cycles(t, p, p->rows) + (double)copied * row_cycles(t, p);
  return true;
}

static bool planes_of_call(const Target *t, const Node *call, Planes *p)
{
  return planes_of(t, call->u.call.attrs, call->arg[0]->type, call->arg[1]->type, call->type, p);
}

static double planes_seconds(const Target *t, const Planes *p) { return (double)((p->n ? p->n : 1) * p->c) * p->cycles / (1e9 * t->core.ghz); }

/* ---- chosen where the convolution stands alone ------------------------------------------------------- */

/* Seconds over blocks of channels, with both changes of layout: they read and write straight ahead, as fast as the caches hand over. */
static double blocked_seconds(const Target *t, const Planes *p)
{
  int64_t bits = 8 * p->bytes, block = alter_block(t, (int)bits, p->c), lanes = target_lanes(t, (int)bits);
  if (!block) return __builtin_inf();
  double share = (double)block / (double)(block_vectors(block, lanes) * lanes), outputs = (double)((p->n ? p->n : 1) * p->c * p->out[0] * p->out[1]);
  double moved = (double)((p->n ? p->n : 1) * p->c * (p->in[0] * p->in[1] + p->out[0] * p->out[1]) * p->bytes);
  double sums = 2 * outputs * (double)(p->k[0] * p->k[1]) / (cost_flops(t, (int)bits) * share);
  return sums + 2 * moved / cost_cache(t);
}

bool planes_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  (void)m;
  Planes p;
  if (!planes_of_call(t, call, &p) || planes_seconds(t, &p) >= blocked_seconds(t, &p)) return false;
  *out = (AlteredCall){.op = call->u.call.op, .attrs = call->u.call.attrs, .nargs = 2, .arg = {call->arg[0], call->arg[1]}};
  return true;
}

/* ---- the implementation -------------------------------------------------------------------------------- */

bool planes_fits(const Target *t, const Node *call)
{
  Planes p;
  return planes_of_call(t, call, &p);
}

double planes_cost(const Target *t, const Node *call)
{
  Planes p;
  return planes_of_call(t, call, &p) ? planes_seconds(t, &p) : 0;
}

/* plane[n, c, y, phase, q]: whether a column of the data is there is told by q alone, but for the last where the stride leaves a rest. */
static const Tensor *copy_planes(Module *m, const Planes *p, const Tensor *x, const Type *out)
{
  int64_t s = p->stride[1], whole = p->in[1] / s, rest = p->in[1] % s;
  const Expr *shape[] = {out->shape[0], out->shape[1], expr_i32(m, (p->tiles * p->rows - 1) * p->stride[0] + p->k[0]), expr_i32(m, s), expr_i32(m, p->width)};
  Stage st = nn_stage(m, 5, shape, "n c y phase q");
  const Expr *row = expr_sub(m, st.at[2], expr_i32(m, p->before[0])), *q = expr_sub(m, st.at[4], expr_i32(m, p->shift)), *zero = expr_const(m, out->dtype, 0), *value;
  if (p->picked) {
    const Expr *last = rest ? expr_floordiv(m, expr_sub(m, expr_i32(m, p->in[1] - 1), st.at[3]), expr_i32(m, s)) : expr_i32(m, whole - 1);
    const Expr *near = expr_max(m, expr_min(m, q, last), expr_i32(m, 0));
    value = nn_read(m, x, (const Expr *[]){st.at[0], st.at[1], row, expr_add(m, expr_mul(m, near, expr_i32(m, s)), st.at[3])});
    value = expr_select(m, expr_binary(m, E_EQ, near, q), value, zero);
  } else {
    const Expr *around = zero;
    value = nn_read(m, x, (const Expr *[]){st.at[0], st.at[1], row, expr_add(m, expr_mul(m, q, expr_i32(m, s)), st.at[3])});
    if (rest) around = nn_if(m, nn_and(m, expr_binary(m, E_EQ, q, expr_i32(m, whole)), expr_lt(m, st.at[3], expr_i32(m, rest))), value, zero);
    value = nn_if(m, nn_inside(m, q, expr_i32(m, whole)), value, around);
  }
  return nn_finish(&st, "planes", "injective,pad", nn_if(m, nn_inside(m, row, expr_i32(m, p->in[0])), value, zero));
}

void planes_compute(OpCall *c, const Target *t, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Planes p;
  if (!planes_of(t, c->attrs, c->arg[0], c->arg[1], c->out, &p)) BUG(m->ctx, "planes: not a depthwise convolution");
  const Tensor *data = copy_planes(m, &p, in[0], c->out);
  const Expr *shape[] = {c->out->shape[0], c->out->shape[1], expr_i32(m, p.tiles * p.rows), expr_i32(m, p.vectors * p.lanes)}, *s = expr_i32(m, p.stride[1]);
  Stage st = nn_stage(m, 4, shape, "n c y x");
  const Expr *ky = nn_reduce_axis(&st, "ry", expr_i32(m, p.k[0])), *kx = nn_reduce_axis(&st, "rx", expr_i32(m, p.k[1])), *tap = expr_add(m, kx, expr_i32(m, p.lead));
  const Expr *row = expr_add(m, expr_mul(m, st.at[2], expr_i32(m, p.stride[0])), ky), *column = expr_add(m, st.at[3], expr_floordiv(m, tap, s));
  const Expr *x = nn_read(m, data, (const Expr *[]){st.at[0], st.at[1], row, expr_floormod(m, tap, s), column});
  const Expr *w = nn_read(m, in[1], (const Expr *[]){st.at[1], expr_i32(m, 0), ky, kx});
  const Tensor *sum = nn_sum(&st, "product", "conv_planes", expr_mul(m, x, w), c->out->dtype);
  Stage plane = nn_stage(m, 4, c->out->shape, NULL);
  *out = nn_finish(&plane, "conv_planes", "injective", nn_read(m, sum, plane.at));
}

/* A row of the copy is one vector, which the lowering cuts into those of the machine, where the padding begins too unless it is
 * picked; a long row is a loop. */
static void schedule_copy(ImplGroup *g, BlockRV copy, const Planes *p)
{
  enum { WRITTEN = 8 };
  LoopRV *loop, q;
  int n = sched_get_loops(g->s, copy, g->arena, &loop);
  q = loop[n - 1];
  if (p->width > 2 * WRITTEN * p->lanes) split_by(g, q, WRITTEN * p->lanes, &q);
  sched_vectorize(g->s, q);
  if (p->stride[1] > 1) sched_unroll(g->s, loop[n - 2]);
  sched_storage_align(g->s, copy, 0, 3, (int)p->lanes, 0);
}

void planes_schedule(ImplGroup *g)
{
  Planes p;
  if (!planes_of_call(g->target, g->anchor, &p)) BUG(g->ctx, "planes: not a depthwise convolution");
  BlockRV copy = group_stage(g, "planes");
  generic_keep(g, copy);
  generic_inline(g);
  BlockRV product = group_sum(g);
  LoopRV *l, r, lane, tile;
  if (sched_get_loops(g->s, product, g->arena, &l) != 6) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of a depthwise convolution");
  LoopRV rows = split_by(g, l[2], p.rows, &r), band = split_by(g, rows, p.band, &tile), column = split_by(g, l[3], p.lanes, &lane);
  sched_reorder(g->s, 9, (const LoopRV[]){l[0], l[1], band, tile, column, l[5], l[4], r, lane});
  epilogue_write_out(g, impl_attach_epilogue(g, product, column), 5, false);
  sched_unroll(g->s, l[5]), sched_unroll(g->s, l[4]), sched_unroll(g->s, r);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, product, l[5]);
  sched_compute_at(g->s, copy, band, false, -1);
  double bytes = (double)((p.n ? p.n : 1) * p.c * (p.in[0] * p.in[1] + p.out[0] * p.out[1]) * p.bytes);
  int threads = cost_threads(g->target, impl_flops(g->anchor), bytes);
  /* Bands are shared too where planes alone would leave a fifth of the threads' time unused.  Else the first and the last, which have
   * padding, are told apart from the others. */
  int64_t planes = (p.n ? p.n : 1) * p.c;
  bool few = 4 * up(planes, threads) * threads > 5 * planes;
  LoopRV shared = sched_fuse(g->s, few ? 3 : 2, (const LoopRV[]){l[0], l[1], band}, true);
  if (threads > 1) sched_parallel(g->s, shared);
  schedule_copy(g, copy, &p);
  generic_rest(g);
}
