/* im2col.c: convolutions as matrix products over plain data, of one to three dimensions, any groups, any channels.
 *
 *   result[o, p] = sum over steps of weight[o, step] * panel[step, p]        a step: one tap of one input channel
 *
 *   for n, group, bands of tiles of positions                   threads, or:
 *     panel[tile, step, p] = data                               a band's panels stay in the second-level cache
 *     for o (blocks of output channels), tiles of the band      threads
 *       tile[o, p] = 0                                          registers
 *       for step: tile += weight[o, step] (one element, or a lane) * panel[step, p] (vectors of positions)
 *       epilogue on the tile, store
 *
 * Positions lie side by side in the plain layout, so vectors run along them and the number of channels may be any: the
 * last block of output channels has zeros in its weight, and only what is there is stored.  Nothing is brought into
 * blocks of channels and back.
 *
 * Positions are counted row by row.  `across`: over the ends of rows, so that every tile but the last is whole; else a
 * row takes whole tiles, its last one with some positions that nobody wants, but neighbours in a tile are neighbours in
 * memory.  Data is first copied with zeros around it where windows or the last tile of a row would reach out of it.  A
 * convolution of one tap over neighbours may read its data where it lies (`packed` false).
 *
 * Where the plane's extents are known only at run time all is the same with expressions in their places: whole tiles
 * are computed, and what is there is stored, and panels are made band by band, of as many tiles as pay for a likely
 * extent.  Where tiles go over the ends of rows nobody divides by an extent to find data: the row and the column of
 * every position are written down once, and looked up (`place`). */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define IM2COL_PLAN(A, S)                                                                       \
  A(S, INT, channels, NULL, "output channels of a register tile, and of a block of the weight") \
  A(S, INT, vectors, NULL, "vectors of positions of a register tile")                           \
  A(S, BOOL, across, NULL, "tiles go over the ends of rows")                                    \
  A(S, BOOL, packed, NULL, "data is copied into panels")                                        \
  A(S, INT, band, NULL, "tiles of positions whose panels are made together")                    \
  A(S, BOOL, together, NULL, "threads share the output channels of a band; else each has bands of its own")
DEFINE_PLAN(Im2colPlan, IM2COL_PLAN)

/* ---- sizes that follow from the call and the plan ------------------------------------------------------ */

typedef struct Columns {
  ConvShape s;
  int64_t width;  /* positions of a tile */
  int64_t row;    /* positions counted for one row of the output */
  int64_t rows;   /* rows of it, all dimensions but the last together */
  int64_t all;    /* positions counted */
  int64_t tiles;  /* of width positions */
  int64_t steps;  /* of a sum */
  int64_t blocks; /* of output channels, of one group */
} Columns;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

static Columns columns_of(const Target *t, const ConvShape *s, const Im2colPlan *p)
{
  Columns c = {.s = *s, .width = p->vectors * target_lanes(t, s->bits), .rows = 1};
  int64_t last = s->out[s->dims - 1];
  for (int d = 0; d < s->dims - 1; d++) c.rows *= s->out[d];
  c.row = p->across ? last : up(last, c.width) * c.width;
  c.all = c.rows * c.row;
  c.tiles = up(c.all, c.width);
  c.steps = s->ig;
  for (int d = 0; d < s->dims; d++) c.steps *= s->k[d];
  c.blocks = up(s->og, p->channels);
  return c;
}

/* One tap, and neighbours in the output are neighbours in the data. */
static bool is_straight(const ConvShape *s)
{
  bool straight = true;
  for (int d = 0; d < s->dims; d++) straight &= s->k[d] == 1 && s->stride[d] == 1 && !s->before[d] && !s->after[d];
  return straight;
}

/* Are rows and columns of positions looked up? */
static bool looks_up(const Columns *c, bool across)
{
  return across && c->s.open && c->s.dims > 1 && !is_straight(&c->s);
}

/* Of open extents, are groups gone through outside of bands?  Enough of them keep the threads busy, and few planes are
 * read and written at a time. */
static bool groups_first(const Target *t, const ConvShape *s)
{
  return s->open && s->groups > 1 && s->groups >= 2 * t->num_cores;
}

/* Elements with zeros around that lie behind the last one which the output wants, in each dimension. */
static void reach(const Columns *c, int64_t *after)
{
  const ConvShape *s = &c->s;
  for (int d = 0; d < s->dims; d++) {
    int64_t outputs = d == s->dims - 1 ? c->row : s->out[d];
    int64_t last = (outputs - 1) * s->stride[d] + (s->k[d] - 1) * s->dilation[d] + 1;
    int64_t more = last - s->before[d] - s->in[d];
    after[d] = more > 0 ? more : 0;
  }
}

/* Is data copied with zeros around it? */
static bool is_padded(const Columns *c, const Im2colPlan *p)
{
  int64_t after[3];
  bool any = false;
  if (!p->packed || (p->across && is_straight(&c->s))) return false;
  reach(c, after);
  for (int d = 0; d < c->s.dims; d++) any |= c->s.before[d] > 0 || after[d] > 0;
  return any;
}

/* ---- the model -------------------------------------------------------------------------------------------- */

/* Cycles to copy one vector of a panel: neighbours are loaded and stored, others are picked one by one. */
static double vector_cycles(const Target *t, const Columns *c, const Im2colPlan *p)
{
  static const double STRAIGHT = 1.2;
  static const double PICKED = 1.3; /* for each element */
  static const double APART = 3;    /* of those that lie apart in rows that end anywhere */
  static const double FOUND = 4;    /* to find the place of a position, for all taps of a channel */
  const ConvShape *s = &c->s;
  if (looks_up(c, p->across)) return target_lanes(t, s->bits) * (PICKED + FOUND * (double)s->ig / (double)c->steps);
  bool neighbours =
      s->stride[s->dims - 1] == 1 && (!p->across || is_straight(s) || s->out[s->dims - 1] % c->width == 0);
  double each = p->across && s->stride[s->dims - 1] > 1 ? APART : PICKED;
  return neighbours ? STRAIGHT : each * target_lanes(t, s->bits);
}

/* Cycles of reading what is copied: each row of a window is in another plane or row of it, a run of neighbours. */
static double run_cycles(const Target *t, const Columns *c, const Im2colPlan *p, double bytes)
{
  const ConvShape *s = &c->s;
  double row = (double)s->out[s->dims - 1];
  double width = (double)c->width < row ? (double)c->width : row;
  double runs = (double)c->tiles * (double)(c->steps / s->k[s->dims - 1]);
  if (p->across && !is_straight(s)) runs *= 1 + ((double)c->width - width) / row;
  double lines = width * (double)s->stride[s->dims - 1] * s->bits / 8 / CACHE_LINE;
  return runs * cost_run(t, lines + 1, bytes);
}

/* Cycles of storing, a band's positions of each channel one after the other where they are few. */
static double store_cycles(const Target *t, const Columns *c, const Im2colPlan *p)
{
  enum { STREAMS = 4 };
  const ConvShape *s = &c->s;
  double planes = (s->n ? (double)s->n : 1) * (double)s->o;
  double plane = (double)(c->rows * s->out[s->dims - 1]) * s->bits / 8;
  int64_t tiles = groups_first(t, s) ? c->tiles : p->channels <= STREAMS ? p->band : 1;
  double run = (double)(tiles * c->width) * s->bits / 8;
  double runs = __builtin_ceil((double)c->tiles / (double)tiles);
  return cost_stores(t, planes * runs, run < plane ? run : plane, planes * plane);
}

/* Do threads share bands beside images and groups?  A last tile that is not whole is told from the others only while
 * the loop over them stands alone. */
static bool shares_bands(const Columns *c, const Im2colPlan *p)
{
  return !p->across || c->all % c->width == 0 || c->s.open || (c->s.n == 1 && c->s.groups == 1);
}

/* Are panels made for one band after the other? */
static bool in_bands(const Columns *c, const Im2colPlan *p) { return c->s.open || p->band < c->tiles; }

static double im2col_seconds(const Target *t, const Columns *c, const Im2colPlan *p)
{
  static const double ENDS = 4;    /* a sum's beginning and end cost as much as a few of its steps */
  static const double APART = 1.2; /* cycles for a vector of data that lies a plane apart from the last one */
  static const double SEEN = 0.5;  /* of the way of a line, that the arithmetic does not hide */
  enum { PAGES = 48 };
  const ConvShape *s = &c->s;
  double n = s->n ? (double)s->n : 1;
  double bytes = s->bits / 8.0;
  double lanes = target_lanes(t, s->bits);
  double groups = (double)s->groups;
  double cycle = 1 / (1e9 * t->core.ghz);
  double share = tile_packed_speed(t, s->bits, p->channels, p->vectors);
  double flops = 2 * n * groups * (double)(c->blocks * p->channels) * (double)(c->tiles * c->width) * (double)c->steps;
  double products = flops / (cost_flops(t, s->bits) * share) * ((double)c->steps + ENDS) / (double)c->steps;
  double panel = n * groups * (double)(c->tiles * c->width) * (double)c->steps;
  double data = n * (double)s->c * bytes;
  for (int d = 0; d < s->dims; d++) data *= (double)s->in[d];
  double copied = panel / lanes * vector_cycles(t, c, p) + n * groups * run_cycles(t, c, p, data);
  copied *= p->packed ? cycle : 0;
  /* What a register tile reads, the panel and a block of the weight.  Bands of several tiles: a panel is read again
   * when the band's others have passed, the block of the weight stays.  Of one: the panel stays, the weight passes. */
  double tile = (double)c->steps * (double)c->width * bytes;
  double block = (double)c->steps * (double)p->channels * bytes;
  double weight = block * (double)c->blocks;
  double meetings = n * groups * (double)(c->blocks * c->tiles) * (double)c->steps;
  double bands = __builtin_ceil((double)c->tiles / (double)p->band);
  bool one = p->band == 1;
  double read = cost_reads(t, meetings * (double)p->vectors, one ? tile + block : tile * (double)p->band + block) +
                cost_reads(t, meetings * (double)p->channels / lanes, one ? tile + weight : tile + block);
  if (!p->packed) read += APART * meetings * (double)p->vectors * cycle;
  /* planes in more pages than a core has at hand: nobody sees coming which line is next */
  if (!p->packed && s->ig > PAGES) read += SEEN * n * groups * (double)c->blocks * run_cycles(t, c, p, data) * cycle;
  double padded = is_padded(c, p) ? 1.5 * data / cost_cache(t) : 0;
  double pieces = (s->open ? 1 : n * groups) * (p->together ? (double)c->blocks : shares_bands(c, p) ? bands : 1);
  if (groups_first(t, s) && !p->together) pieces = groups;
  int threads = cost_threads(t, flops, 0);
  double total = products + read + copied + padded + store_cycles(t, c, p) * cycle;
  return total / threads / cost_busy(pieces, threads);
}

/* ---- plans -------------------------------------------------------------------------------------------------- */

/* Do the registers hold sums, a step's vectors of positions and its elements of the weight, with one to spare? */
static bool tile_fits(const Target *t, const ConvShape *s, int64_t channels, int64_t vectors)
{
  int64_t elements = t->broadcast_load ? 1 : up(channels, target_lanes(t, s->bits));
  return channels * vectors + vectors + elements < t->vector_registers;
}

static void add_plans(PlanList *list, const Target *t, const ConvShape *s, int64_t channels, int64_t vectors,
                      bool across)
{
  Im2colPlan p = {.channels = channels, .vectors = vectors, .across = across};
  Columns c = columns_of(t, s, &p);
  double bytes = (double)(s->groups * c.blocks * channels * c.steps * s->bits) / 8;
  for (int packed = is_straight(s) && across && c.all % c.width == 0 && !s->open ? 0 : 1; packed < 2; packed++) {
    int64_t panel = c.steps * c.width * s->bits / 8;
    int64_t fit = cost_l2(t) / 2 / (panel ? panel : 1);
    int64_t previous = 0;
    p.packed = packed;
    /* one band, those that the second-level cache holds, the smallest one (for a microcontroller alone); whole rows
     * where tiles end with them */
    int64_t least = across ? 1 : s->dims > 1 ? c.row / c.width : c.tiles;
    for (int b = 0; b < (packed ? 3 : 1); b++) {
      p.band = b == 0   ? c.tiles
               : b == 1 ? (fit < least     ? least
                           : fit > c.tiles ? c.tiles
                                           : fit / least * least)
                        : least;
      if (b == 1 && p.band < c.tiles) p.band = up(up(c.tiles, up(c.tiles, p.band)), least) * least;
      if (s->open) p.band = conv_open_band(fit, b);
      if (t->device.kind == DEVICE_MICRO && !s->open && p.band > least)
        continue; /* it has no caches and little memory */
      if (p.band == previous) continue;
      previous = p.band;
      for (int together = 0; together < 2; together++) {
        p.together = together;
        plan_add(list, &p, im2col_seconds(t, &c, &p), bytes);
      }
    }
  }
}

static bool serves(const ImplCall *call, ConvShape *s)
{
  if (!conv_shape(call, s) || s->transposed || s->data_block || s->out_block || s->bits < 32 || s->word > 1)
    return false;
  conv_shape_open(s);
  return s->groups == 1 || s->ig > 1 || s->og > 1;
}

void im2col_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!serves(call, &s) || (!s.weight_block && !s.constant)) return;
  list->alters = !s.weight_block;
  for (int64_t channels = 2; channels <= 16; channels++) {
    if (s.weight_block && channels != s.weight_block) continue;
    if (!t->broadcast_load && channels % target_lanes(t, s.bits) && channels != s.og) continue;
    if (channels > 2 * s.og && channels > 4) continue;
    for (int64_t vectors = 1; vectors <= 6; vectors++) {
      if (!tile_fits(t, &s, channels, vectors)) continue;
      bool rows = s.open ? s.dims > 1 && !is_straight(&s) : s.out[s.dims - 1] % (vectors * target_lanes(t, s.bits));
      add_plans(list, t, &s, channels, vectors, true);
      if (rows) add_plans(list, t, &s, channels, vectors, false);
    }
  }
}

void im2col_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const Im2colPlan *p = plan;
  ConvShape s;
  conv_shape(call, &s);
  const OpDef *op = call->call->u.call.op;
  Module *m = call->m;
  const char *plain = arena_printf(m->arena, "OI%s", conv_spatial(s.dims));
  const char *kernel = arena_printf(m->arena, "%s%" PRId64 "o", plain, p->channels);
  void *attrs = attrs_copy(m, op->attrs, call->call->u.call.attrs);
  attrs_set_str(m, op->attrs, attrs, "kernel_layout", kernel);
  attrs_set_int(m, op->attrs, attrs, "channels", s.o);
  *out = (AlteredCall){.op = op, .attrs = attrs, .nargs = 2};
  out->arg[0] = call->call->arg[0];
  out->arg[1] = alter_transform(m, alter_pad_rows(m, call->call->arg[1], s.groups, p->channels), plain, kernel);
}

/* ---- the computation ------------------------------------------------------------------------------------------ */

/* Where positions are counted: over all of the plane, or over a row of it, whose place is `lead` indices more. */
typedef struct Extents {
  int lead;
  const Expr *out[3], *all, *tiles; /* all: positions counted; tiles of them */
  const Tensor *place[3];           /* where positions lie in the padded data along each dimension, where looked up */
} Extents;

static Extents extents_of(Module *m, const Columns *c, bool across, const Type *y)
{
  int last = c->s.dims - 1;
  Extents e = {.lead = across ? 0 : last, .all = y->shape[2 + last]};
  for (int d = 0; d <= last; d++) e.out[d] = y->shape[2 + d];
  for (int d = e.lead; d < last; d++) e.all = expr_mul(m, e.out[d], e.all);
  e.all = nn_simplify(m, e.all);
  e.tiles = nn_simplify(m, nn_ceildiv(m, e.all, expr_i32(m, c->width)));
  return e;
}

/* Rows and columns of all tiles' positions: whole rows of the output, behind its last one that one again. */
static void look_up(Module *m, const Columns *c, Extents *e)
{
  int dims = c->s.dims;
  const Expr *row = e->out[dims - 1]; /* positions below one step of the first dimension */
  for (int d = dims - 2; d > 0; d--) row = nn_simplify(m, expr_mul(m, row, e->out[d]));
  const Expr *all = expr_mul(m, e->tiles, expr_i32(m, c->width));
  all = nn_simplify(m, expr_mul(m, nn_ceildiv(m, all, row), row));
  for (int d = 0; d < dims; d++) {
    Stage s = nn_stage(m, 1, &all, NULL);
    const Expr *at = s.at[0];
    for (int k = dims - 1; k > d; k--) at = expr_floordiv(m, at, e->out[k]);
    const Expr *last = expr_sub(m, e->out[d], expr_i32(m, 1));
    at = d ? expr_floormod(m, at, e->out[d]) : expr_min(m, at, last);
    at = nn_index(&s, expr_mul(m, at, expr_i32(m, c->s.stride[d])));
    e->place[d] = nn_finish(&s, arena_printf(m->arena, "place%d", d), "injective", at);
  }
}

/* Indices in the plane of position `at` behind the lead's. */
static void place_of(Module *m, const Extents *e, int dims, const Expr *const *lead, const Expr *at, const Expr **index)
{
  for (int d = 0; d < e->lead; d++) index[d] = lead[d];
  for (int d = dims - 1; d > e->lead; d--) {
    index[d] = expr_floormod(m, at, e->out[d]);
    at = expr_floordiv(m, at, e->out[d]);
  }
  index[e->lead] = at;
}

/* Channel of the group and taps of a step. */
static void step_parts(Module *m, const Columns *c, const Expr *step, const Expr **channel, const Expr **tap)
{
  for (int d = c->s.dims - 1; d >= 0; d--) {
    const Expr *k = expr_i32(m, c->s.k[d]);
    tap[d] = expr_floormod(m, step, k);
    step = expr_floordiv(m, step, k);
  }
  *channel = step;
}

/* Of an extent that is not known a row has one tile less one position more at most; and its copy has whole vectors. */
static const Tensor *pad_open(OpCall *call, const Columns *c, int64_t lanes, const Tensor *data)
{
  Module *m = call->m;
  const ConvShape *s = &c->s;
  const Buffer *b = data->buffer;
  const Expr *shape[MAX_RANK] = {b->shape[0], b->shape[1]};
  int64_t before[MAX_RANK] = {0};
  int last = s->dims - 1;
  for (int d = 0; d <= last; d++) {
    int64_t more = s->before[d] + s->after[d] + (d == last ? (c->width - 1) * s->stride[d] : 0);
    before[2 + d] = s->before[d];
    shape[2 + d] = expr_add(m, b->shape[2 + d], expr_i32(m, more));
  }
  shape[2 + last] = expr_mul(m, nn_ceildiv(m, shape[2 + last], expr_i32(m, lanes)), expr_i32(m, lanes));
  for (int d = 0; d <= last; d++) shape[2 + d] = nn_simplify(m, shape[2 + d]);
  return nn_pad_to(m, data, before, shape, expr_const(m, b->dtype, 0), "padded");
}

/* Is data read where it lies, a panel asking at its end alone whether there is some? */
static bool reads_in_place(const Columns *c, bool across)
{
  const ConvShape *s = &c->s;
  bool one = s->open;
  for (int d = 0; d < s->dims; d++) one &= s->k[d] == 1 && !s->before[d] && !s->after[d];
  return one || (across && is_straight(s));
}

static const Tensor *pad_data(OpCall *call, const Columns *c, bool across, int64_t lanes, const Tensor *data)
{
  const ConvShape *s = &c->s;
  if (reads_in_place(c, across)) return data;
  if (s->open) return pad_open(call, c, lanes, data);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int d = 0; d < s->dims; d++) before[2 + d] = s->before[d];
  reach(c, after + 2);
  return nn_pad_constant(call->m, data, before, after, expr_const(call->m, data->buffer->dtype, 0), "padded");
}

/* What a step of the sum meets at a position. */
static const Expr *read_data(Stage *s, const Columns *c, const Extents *e, const Tensor *data, const Expr *group,
                             const Expr *const *lead, const Expr *step, const Expr *position)
{
  Module *m = s->m;
  const Expr *place[3], *tap[3], *index[MAX_RANK];
  const Expr *channel;
  bool found = e->place[0] != NULL;
  if (!found) place_of(m, e, c->s.dims, lead, position, place);
  step_parts(m, c, step, &channel, tap);
  index[0] = s->at[0];
  index[1] = nn_index(s, expr_add(m, expr_mul(m, group, expr_i32(m, c->s.ig)), channel));
  for (int d = 0; d < c->s.dims; d++) {
    const Expr *first = found ? nn_read(m, e->place[d], &position) : expr_mul(m, place[d], expr_i32(m, c->s.stride[d]));
    index[2 + d] = nn_index(s, expr_add(m, first, expr_mul(m, tap[d], expr_i32(m, c->s.dilation[d]))));
  }
  return nn_read(m, data, index);
}

/* (n, group, lead, tiles, steps, positions of a tile) */
static const Tensor *pack_panels(OpCall *call, const Columns *c, const Extents *e, bool across, const Tensor *data)
{
  Module *m = call->m;
  const Expr *shape[MAX_RANK] = {call->out->shape[0], expr_i32(m, c->s.groups)};
  int k = 2;
  for (int d = 0; d < e->lead; d++) shape[k++] = e->out[d];
  shape[k] = e->tiles, shape[k + 1] = expr_i32(m, c->steps), shape[k + 2] = expr_i32(m, c->width);
  Stage s = nn_stage(m, k + 3, shape, NULL);
  const Expr *at = expr_add(m, expr_mul(m, s.at[k], shape[k + 2]), s.at[k + 2]);
  /* behind the last position, which the last tile may reach, nobody wants anything: the last one again */
  if (across && !c->s.open && !reads_in_place(c, across) && c->all % c->width)
    at = expr_min(m, at, expr_i32(m, c->all - 1));
  const Expr *value = read_data(&s, c, e, data, s.at[1], s.at + 2, s.at[k + 1], at);
  if (!e->place[0] && reads_in_place(c, across) && (c->s.open || c->all % c->width))
    value = nn_if(m, expr_lt(m, at, e->all), value, expr_const(m, value->dtype, 0));
  return nn_finish(&s, "panel", "injective", value);
}

void im2col_compute(OpCall *call, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  const Im2colPlan *p = plan;
  Module *m = call->m;
  const Type *y = call->out;
  ConvShape shape;
  conv_shape_of(call->op, call->attrs, call->arg[0], call->arg[1], y, &shape);
  conv_shape_open(&shape);
  Columns c = columns_of(t, &shape, p);
  Extents e = extents_of(m, &c, p->across, y);
  if (looks_up(&c, p->across)) look_up(m, &c, &e);
  const Expr *width = expr_i32(m, c.width);
  const Tensor *data = p->packed ? pad_data(call, &c, p->across, target_lanes(t, shape.bits), in[0]) : in[0];
  const Tensor *panel = p->packed ? pack_panels(call, &c, &e, p->across, data) : NULL;
  const Expr *sizes[MAX_RANK] = {y->shape[0], expr_i32(m, c.s.groups), expr_i32(m, c.blocks), expr_i32(m, p->channels)};
  int last = 4 + e.lead; /* n, group, block, o, lead, position */
  for (int d = 0; d < e.lead; d++) sizes[4 + d] = e.out[d];
  sizes[last] = p->packed ? nn_simplify(m, expr_mul(m, e.tiles, width)) : e.all;
  Stage s = nn_stage(m, last + 1, sizes, NULL);
  const Expr *step = nn_reduce_axis(&s, "step", expr_i32(m, c.steps));
  const Expr *weight[MAX_RANK], *tap[3];
  const Expr *channel;
  step_parts(m, &c, step, &channel, tap);
  weight[0] = expr_add(m, expr_mul(m, s.at[1], expr_i32(m, c.blocks)), s.at[2]);
  weight[1] = nn_index(&s, channel);
  for (int d = 0; d < c.s.dims; d++) weight[2 + d] = nn_index(&s, tap[d]);
  weight[2 + c.s.dims] = s.at[3];
  const Expr *from[MAX_RANK] = {s.at[0], s.at[1]};
  for (int d = 0; d < e.lead; d++) from[2 + d] = s.at[4 + d];
  from[2 + e.lead] = expr_floordiv(m, s.at[last], width);
  from[3 + e.lead] = step;
  from[4 + e.lead] = expr_floormod(m, s.at[last], width);
  const Expr *element =
      panel ? nn_read(m, panel, from) : read_data(&s, &c, &e, data, s.at[1], s.at + 4, step, s.at[last]);
  const Tensor *sum = nn_sum(&s, "product", "conv_im2col", expr_mul(m, element, nn_read(m, in[1], weight)), y->dtype);
  Stage plane = nn_stage(m, y->ndim, y->shape, NULL);
  const Expr *own = expr_i32(m, c.s.og);
  const Expr *block = expr_i32(m, p->channels);
  const Expr *o = expr_floormod(m, plane.at[1], own);
  const Expr *at = plane.at[2 + e.lead];
  for (int d = 3 + e.lead; d < y->ndim; d++) at = expr_add(m, expr_mul(m, at, y->shape[d]), plane.at[d]);
  const Expr *place[MAX_RANK] = {plane.at[0], expr_floordiv(m, plane.at[1], own), expr_floordiv(m, o, block),
                                 expr_floormod(m, o, block)};
  for (int d = 0; d < e.lead; d++) place[4 + d] = plane.at[2 + d];
  place[last] = at;
  for (int d = 1; d <= last; d++) place[d] = nn_index(&plane, place[d]);
  *out = nn_finish(&plane, "conv_im2col", "injective", nn_read(m, sum, place));
}

/* ---- the schedule ---------------------------------------------------------------------------------------------- */

/* Rows of unknown length in whole vectors. */
static void schedule_padding(ImplGroup *g, BlockRV padded, bool parallel)
{
  LoopRV *loop, lane;
  int n = sched_get_loops(g->s, padded, g->arena, &loop);
  generic_split_by(g, loop[n - 1], target_lanes(g->target, g->anchor->type->dtype.bits), &lane);
  sched_vectorize(g->s, lane);
  LoopRV channels = sched_fuse(g->s, 2, loop, true);
  if (parallel) sched_parallel(g->s, channels);
}

/* Rows and columns of positions: a row of the output after the other, in vectors. */
static void schedule_place(ImplGroup *g, BlockRV place, int dims)
{
  LoopRV *loop, row[3], lane;
  const Type *y = g->anchor->type;
  const Expr *factors[3] = {NULL, y->shape[3], dims > 2 ? y->shape[4] : NULL};
  sched_get_loops(g->s, place, g->arena, &loop);
  sched_split(g->s, loop[0], dims, factors, true, row);
  generic_split_by(g, row[dims - 1], target_lanes(g->target, 32), &lane);
  sched_vectorize(g->s, lane);
}

/* Channel by channel, position by position: once one is found, all its taps. */
static void schedule_found(ImplGroup *g, BlockRV panel, const ConvShape *s, bool inside, bool parallel)
{
  enum { WRITTEN = 25 };
  LoopRV *loop, order[5];
  int n = sched_get_loops(g->s, panel, g->arena, &loop);
  int64_t taps = 1;
  for (int d = 0; d < s->dims; d++) taps *= s->k[d];
  order[0] = taps > 1 ? generic_split_by(g, loop[n - 2], taps, &order[2]) : loop[n - 2];
  order[1] = loop[n - 1];
  int k = taps > 1 ? 3 : 2;
  for (int64_t d = 0; d < s->dims - 1 && taps > WRITTEN; d++, k++) {
    int64_t below = taps / s->k[d];
    if (below == taps || below == 1) continue;
    order[k - 1] = generic_split_by(g, order[k - 1], below, &order[k]);
    taps = below;
  }
  sched_reorder(g->s, k, order);
  if (k > 2 && taps <= WRITTEN) sched_unroll(g->s, order[k - 1]);
  if (parallel) sched_parallel(g->s, inside ? loop[n - 3] : sched_fuse(g->s, 3, loop, true));
}

/* Channel by channel, tap by tap: vectors of neighbours. */
static void schedule_panel(ImplGroup *g, BlockRV panel, const ConvShape *s, bool inside, bool parallel)
{
  LoopRV *loop, lane, taps;
  int n = sched_get_loops(g->s, panel, g->arena, &loop);
  int64_t lanes = target_lanes(g->target, g->anchor->type->dtype.bits);
  LoopRV step = loop[n - 2];
  for (int d = 0; d < s->dims; d++) {
    int64_t below = 1;
    for (int k = d; k < s->dims; k++) below *= s->k[k];
    if (below == 1) break;
    generic_split_by(g, step, below, &taps);
    step = taps;
    if (d == s->dims - 1 && below <= 8) sched_unroll(g->s, step);
  }
  if (parallel) sched_parallel(g->s, inside ? loop[n - 3] : sched_fuse(g->s, 3, loop, true));
  LoopRV part = generic_split_by(g, loop[n - 1], lanes, &lane);
  sched_unroll(g->s, part);
  sched_vectorize(g->s, lane);
}

/* Rows in bands of so many tiles: where a row's length is not known, as many rows at run time as have them. */
static LoopRV split_rows(ImplGroup *g, const Columns *c, const Im2colPlan *p, LoopRV rows, const Expr *length,
                         LoopRV *row)
{
  int64_t known_rows = p->band / (c->row / c->width);
  if (!c->s.open || length->kind == E_INT) return generic_split_by(g, rows, known_rows > 1 ? known_rows : 1, row);
  Module *m = sched_module(g->s);
  const Expr *tiles = nn_ceildiv(m, length, expr_i32(m, c->width));
  const Expr *each = expr_max(m, expr_floordiv(m, expr_i32(m, p->band), tiles), expr_i32(m, 1));
  LoopRV out[2];
  sched_split(g->s, rows, 2, (const Expr *[]){NULL, nn_simplify(m, each)}, true, out);
  *row = out[1];
  return out[0];
}

void im2col_schedule(ImplGroup *g)
{
  const Im2colPlan *p = g->plan;
  const Node *call = g->anchor;
  BlockRV padded, panel;
  if (group_find_stage(g, "padded", &padded)) generic_keep(g, padded);
  if (group_find_stage(g, "panel", &panel)) generic_keep(g, panel);
  BlockRV place[3];
  int places = 0;
  while (places < 3 && group_find_stage(g, arena_printf(g->arena, "place%d", places), &place[places]))
    generic_keep(g, place[places++]);
  generic_inline(g);
  BlockRV product = group_sum(g);
  BlockRV store = group_only_reader(g, product);
  const Type *y = call->type;
  ImplCall of = {g->src, g->arena, g->target, g->config, call};
  ConvShape shape;
  conv_shape(&of, &shape);
  conv_shape_open(&shape);
  Columns c = columns_of(g->target, &shape, p);
  LoopRV *loop, *inner, oi, pi, ti, step;
  if (sched_get_loops(g->s, store, g->arena, &loop) != y->ndim)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not those of its dimensions");
  LoopRV n = loop[0];
  LoopRV own;
  LoopRV group = generic_split_by(g, loop[1], shape.og, &own);
  LoopRV o = generic_split_by(g, own, p->channels, &oi);
  LoopRV order[10], band, row;
  int k = 0;
  int last = y->ndim - 1;
  bool rows = !p->across && y->ndim > 3;
  if (p->across) {
    LoopRV plane = y->ndim > 3 ? sched_fuse(g->s, y->ndim - 2, loop + 2, true) : loop[2];
    band = generic_split_by(g, generic_split_by(g, plane, c.width, &pi), p->band, &ti);
  } else {
    /* the last tile of a row is a piece of code of its own, where it stores less */
    ti = generic_split_by(g, loop[last], c.width, &pi);
    if (y->ndim > 4 && !shape.open) loop[last - 1] = sched_fuse(g->s, y->ndim - 3, loop + 2, true);
    if (rows) band = split_rows(g, &c, p, loop[last - 1], y->shape[last], &row);
    else band = sched_add_unit_loop(g->s, (SchedArg){.kind = SA_LOOP, .u.i = ti.id});
  }
  /* where their number is not known, bands are not counted together with images and groups */
  if (shape.open && !p->across && y->ndim > 4) order[k++] = loop[2];
  bool inside = !shape.open || groups_first(g->target, &shape);
  if (!inside) order[k++] = band;
  order[k++] = shape.open && inside ? group : n, order[k++] = shape.open && inside ? n : group;
  if (inside) order[k++] = band;
  int head = k;
  order[k++] = o;
  if (rows) order[k++] = row;
  order[k++] = ti;
  int depth_of_tile = k;
  order[k++] = oi, order[k++] = pi;
  sched_reorder(g->s, k, order);
  sched_compute_at(g->s, product, ti, true, -1);
  epilogue_write_out(g, store, depth_of_tile, true);
  int depth = sched_get_loops(g->s, product, g->arena, &inner);
  LoopRV sum = generic_split_by(g, inner[depth - 1], tile_steps(g->target, p->channels * p->vectors, c.steps), &step);
  LoopRV channel = inner[depth - 3 - (p->across ? 0 : shape.dims - 1)]; /* o, lead, position, sum */
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, channel, inner[depth - 2]});
  sched_unroll(g->s, step), sched_unroll(g->s, channel);
  sched_vectorize(g->s, inner[depth - 2]);
  sched_set_scope(g->s, product, 0, "local");
  sched_decompose_reduction(g->s, product, sum);
  int threads = cost_threads(g->target, conv_shape_flops(&shape), 0);
  bool several = in_bands(&c, p);
  bool bands = shares_bands(&c, p);
  LoopRV outer = shape.open ? order[head - 1] : sched_fuse(g->s, bands ? 3 : 2, order, true);
  LoopRV shared = p->together ? o : shape.open ? order[0] : outer;
  bool whole = shape.groups == 1 || shape.og % p->channels == 0;
  if (p->together && !several && bands && whole) shared = sched_fuse(g->s, 2, (const LoopRV[]){outer, o}, true);
  if (!bands && !shape.open) outer = band;
  if (threads > 1) sched_parallel(g->s, shared);
  if (group_find_stage(g, "panel", &panel)) {
    if (several) sched_compute_at(g->s, panel, outer, false, -1);
    bool parallel = threads > 1 && (p->together || !several);
    if (places) schedule_found(g, panel, &shape, several, parallel);
    else schedule_panel(g, panel, &shape, several, parallel);
    panels_fetch(g, product, step, NULL);
  }
  for (int d = 0; d < places; d++) schedule_place(g, place[d], shape.dims);
  if (shape.open && group_find_stage(g, "padded", &padded)) schedule_padding(g, padded, threads > 1);
  generic_rest(g);
}
