/* flat.c: convolutions, transposed ones too, over plain data, of one to three dimensions, any channels and strides.
 *
 * Position q of each dimension of a transposed convolution stands for the outputs stride * q + p, one of each phase p.
 * Those of one phase are an ordinary convolution of stride 1 whose taps are every stride-th of the kernel's:
 *
 *   out[stride * q + p] = sum over taps k with (p + before - k * dilation) % stride == 0 of
 *                         data[q + (p + before - k * dilation) / stride] * weight[k]
 *
 * Of an ordinary one, the other way round, a position is one output, and the data is taken apart into planes of every
 * stride-th row and column:
 *
 *   out[q] = sum over taps k of weight[k] * data[q + (k * dilation - before) / stride]
 *            in the data's plane (k * dilation - before) % stride
 *
 * All phases and taps read the same planes, some elements on.  The data is copied once with zeros around it, and
 * positions are counted along its rows as they then lie, over their ends: what a tap meets at neighbouring positions
 * are neighbours in memory, every tile is whole, and nothing is packed.  The few positions at the ends of rows that no
 * output has are computed for nothing.
 *
 *   padded = data
 *   for n, group, block of output channels, band of rows of positions       threads
 *     for each phase, tile of positions
 *       tile[o, position] = sum over input channels, taps                   registers
 *       sums[phase, o, position] = tile                                     stay in a cache
 *     out = sums of each phase, epilogue on them                            where stride apart
 *
 * Where the plane's extents are known only at run time all is the same with expressions in their places: positions over
 * the ends of rows make a tile whole whatever a row's length, and a band has as many rows as bring so many positions.
 *
 * Where the stride does not divide the kernel some phases have a tap less.  The term of a tap that is not there is -0,
 * which adds nothing, and goes when the phases are written out; where they are too many for that the weight gets zeros
 * (`even`). */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define FLAT_PLAN(A, S)                                                                                    \
  A(S, INT, channels, NULL, "output channels of a register tile, and of a block of the weight")            \
  A(S, INT, vectors, NULL, "vectors of positions of a register tile")                                      \
  A(S, BOOL, even, NULL, "phases have as many taps each, by zeros in the weight where they must")          \
  A(S, INT, band, NULL, "rows of positions whose sums wait together; of open rows: positions, 0: one row") \
  A(S, BOOL, outer, NULL, "bands are gone through outside of the blocks of output channels")               \
  A(S, BOOL, tiles, NULL, "tiles are gone through outside of the phases, which then read their data again")
DEFINE_PLAN(FlatPlan, FLAT_PLAN)

enum { MOST_PHASES = 16, MOST_CHANNELS = 16 };

/* The strides of an ordinary convolution are those of its data, which is split; its outputs have one phase. */
static void split_data(ConvShape *s)
{
  conv_shape_open(s);
  for (int d = 0; d < s->dims; d++) {
    s->split[d] = s->transposed ? 1 : s->stride[d];
    if (!s->transposed) s->stride[d] = 1;
  }
}

/* ---- sizes that follow from the call and the plan ------------------------------------------------------ */

typedef struct Positions {
  ConvShape s;
  int64_t width;        /* positions of a tile */
  int64_t q[3];         /* positions along each dimension */
  int64_t lead[3];      /* zeros in front of the data */
  int64_t most[3];      /* elements behind its own that a position reads */
  int64_t gap[3];       /* zeros between two rows at least: in front of one, behind the one before */
  int64_t pitch[3];     /* extents of the data with its zeros */
  int64_t apart[3];     /* taps of a phase are so far from each other … */
  int64_t taps[3];      /* … and at most so many */
  int64_t inverse[3];   /* of the dilation: (p + before) * inverse % apart is the first of them */
  int64_t common[3];    /* divisor of stride and dilation: only every common-th phase has taps */
  int64_t phases;       /* all dimensions' together */
  int64_t planes;       /* that data is taken apart into */
  int64_t row;          /* elements of padded data in one step of the first dimension */
  int64_t band;         /* rows of positions of a band */
  int64_t bands, tiles; /* tiles of a band */
  int64_t blocks;       /* of output channels, of one group */
  bool uneven;          /* phases differ in their taps */
} Positions;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Number x with a * x % m == 1 % m. */
static int64_t inverse_of(int64_t a, int64_t m)
{
  int64_t x = 0;
  while (a * x % m != 1 % m) x++;
  return x;
}

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/* How far from its own element a position reads along dimension d, at least and at most. */
static void reach(const ConvShape *s, int d, int64_t *least, int64_t *most)
{
  bool any = false;
  *least = *most = 0;
  for (int64_t k = 0; k < s->k[d] && !s->transposed; k++) {
    int64_t off = floor_div(k * s->dilation[d] - s->before[d], s->split[d]);
    *least = !k || off < *least ? off : *least;
    *most = !k || off > *most ? off : *most;
  }
  if (!s->transposed) return;
  for (int64_t p = 0; p < s->stride[d]; p++)
    for (int64_t k = 0; k < s->k[d]; k++) {
      int64_t at = p + s->before[d] - k * s->dilation[d];
      int64_t off = floor_div(at, s->stride[d]);
      if (off * s->stride[d] != at) continue;
      *least = !any || off < *least ? off : *least;
      *most = !any || off > *most ? off : *most;
      any = true;
    }
}

/* Rows of a band of so many positions, all bands alike; 0 positions: one row. */
static int64_t open_band(int64_t rows, int64_t positions, int64_t row)
{
  int64_t most = positions / row > 1 ? positions / row : 1;
  return positions ? up(rows, up(rows, most)) : 1;
}

static Positions positions_of(const Target *t, const ConvShape *s, const FlatPlan *p)
{
  Positions v = {
    .s = *s, .width = p->vectors * target_lanes(t, s->bits), .phases = 1, .planes = 1, .row = 1, .band = p->band};
  int64_t need = 1;    /* positions from a band's first to its last */
  int64_t far = 0;     /* elements from a position to the last one that it reads */
  int64_t shifted = 0; /* zeros in front of a row end one more row before it: rows of open length begin evenly */
  for (int d = s->dims - 1; d >= 0; d--) {
    int64_t least;
    reach(s, d, &least, &v.most[d]);
    v.common[d] = gcd(s->stride[d], s->dilation[d]);
    v.apart[d] = s->stride[d] / v.common[d];
    v.inverse[d] = inverse_of(s->dilation[d] / v.common[d] % v.apart[d], v.apart[d]);
    v.taps[d] = up(s->k[d], v.apart[d]);
    v.uneven |= s->k[d] % v.apart[d] || v.common[d] > 1;
    v.phases *= s->stride[d];
    v.q[d] = up(s->out[d], s->stride[d]);
    v.gap[d] = (least < 0 ? -least : 0) + shifted;
    shifted = s->open && d && d == s->dims - 1 && least < 0;
    v.lead[d] = shifted ? 0 : v.gap[d];
    int64_t end = v.q[d] + v.most[d];
    int64_t in = up(s->in[d], s->split[d]);
    v.pitch[d] = end > in + v.gap[d] ? end : in + v.gap[d];
    v.planes *= s->split[d];
    if (!d && s->open && s->dims > 1) v.band = open_band(v.q[0], p->band, v.row);
    need += ((d ? v.q[d] : v.band) - 1) * v.row;
    far += (v.lead[d] + v.most[d]) * v.row;
    if (d) v.row *= v.pitch[d];
  }
  v.bands = up(v.q[0], v.band);
  v.tiles = up(need, v.width);
  int64_t last = (v.bands - 1) * v.band * v.row + v.tiles * v.width - 1 + far;
  if (last / v.row + 1 > v.pitch[0]) v.pitch[0] = last / v.row + 1;
  v.blocks = up(s->og, p->channels);
  return v;
}

/* Taps behind which there are as many in each phase. */
static int64_t even_taps(const ConvShape *s, int d)
{
  int64_t apart = s->stride[d] / gcd(s->stride[d], s->dilation[d]);
  return up(s->k[d], apart) * apart;
}

static bool can_be_even(const ConvShape *s)
{
  for (int d = 0; d < s->dims; d++)
    if (gcd(s->stride[d], s->dilation[d]) > 1) return false;
  return true;
}

static bool is_even(const ConvShape *s)
{
  bool even = can_be_even(s);
  for (int d = 0; d < s->dims; d++) even &= even_taps(s, d) == s->k[d];
  return even;
}

/* The same with zeros behind its taps, which the output does not grow by. */
static ConvShape evened(const ConvShape *s)
{
  ConvShape e = *s;
  for (int d = 0; d < s->dims; d++) e.k[d] = even_taps(s, d);
  return e;
}

/* ---- the model -------------------------------------------------------------------------------------------- */

/* Terms of a sum, of all phases together: what is not there is left out where phases are written out. */
static double terms_of(const Positions *v)
{
  double terms = (double)v->s.ig;
  for (int d = 0; d < v->s.dims; d++) terms *= (double)v->s.k[d];
  return terms;
}

/* Cycles of reading what one tile meets, a piece of every row under the taps of every channel: of pieces in more pages
 * than a core has at hand nobody sees coming which line is next. */
static double piece_cycles(const Target *t, const Positions *v, double bytes)
{
  enum { PAGES = 48 };
  static const double SEEN = 0.5; /* of the way of a line, that the arithmetic does not hide */
  const ConvShape *s = &v->s;
  int last = s->dims - 1;
  double rows = (double)(s->ig * (s->split[last] < s->k[last] ? s->split[last] : s->k[last]));
  for (int d = 0; d < last; d++) rows *= (double)s->k[d];
  if (rows <= PAGES || 2 * bytes <= (double)cost_l1(t)) return 0;
  return SEEN * rows * cost_run(t, (double)v->width * s->bits / 8 / CACHE_LINE, bytes);
}

/* Are all taps of a step written out? */
static bool taps_written(const Positions *v, const FlatPlan *p)
{
  int64_t taps = 1;
  for (int d = 0; d < v->s.dims; d++) taps *= v->taps[d];
  return v->uneven || taps * p->channels * p->vectors <= 256;
}

static double flat_seconds(const Target *t, const Positions *v, const FlatPlan *p)
{
  static const double ENDS = 4;      /* a sum's beginning and end cost as much as a few of its steps */
  static const double LOOPED = 1.25; /* times as long as a tap takes in a loop (7 x 7 of stride 2, Neoverse-N1) */
  static const double SPREAD = 1;    /* cycles of an element that is stored away from its neighbours */
  static const double PICKED = 1.3;  /* of one that is read so */
  /* times as long as a copy takes that nothing else goes on beside, through the second-level cache and behind it:
   * 57 x 54 x 54 to 34 channels, 3 x 3, stride 3, on a Neoverse-N1 */
  static const double WAITING = 2;
  static const double NEAR = 1.5;
  static const double FAR = 3;
  const ConvShape *s = &v->s;
  double n = s->n ? (double)s->n : 1;
  double bytes = s->bits / 8.0;
  double lanes = target_lanes(t, s->bits);
  double cycle = 1 / (1e9 * t->core.ghz);
  double phases = (double)v->phases;
  double terms = terms_of(v);
  double pieces = n * (double)s->groups * (double)v->blocks * (double)v->bands;
  double sums = pieces * (double)v->tiles * (double)(v->width * p->channels); /* of each phase */
  double share = tile_speed(t, p->vectors, 1, p->channels, (Tile){1, 1, p->channels});
  double products = 2 * sums * (terms + ENDS * phases) / (cost_flops(t, s->bits) * share);
  if (!taps_written(v, p)) products *= LOOPED;
  /* A step's vectors come from the first-level cache where it holds what is gone over again: a phase's weight for each
   * tile, or a tile's data for each phase. */
  double tile = (double)s->ig * bytes * ((double)(v->width + 16) * (double)v->taps[s->dims - 1]);
  double block = terms * (double)p->channels * bytes;
  double steps = sums / (double)(v->width * p->channels) * terms;
  double near = (double)cost_l1(t) / 2;
  double held = (double)cost_l2(t) / 2;
  double datas = steps * (double)p->vectors;
  double weights = steps * (double)p->channels / lanes;
  double read = (p->tiles ? tile > near : true) ? datas : datas / phases;
  read += (p->tiles ? block : block / phases) + (p->tiles ? 0 : tile) > near ? weights : 0;
  double far = read * cost_far(t) * cycle;
  if (far > products) products = far;
  /* What the second-level cache does not hold: the weight for each band, which goes straight ahead; the data for each
   * block of channels, a piece of every plane after the other, for which the core waits. */
  double weight = (double)(s->groups * v->blocks) * block;
  double data = n * (double)(s->c * v->planes) * bytes * (double)v->row * (double)v->pitch[0];
  double whole = data / n / (double)s->groups;
  bool again = (p->outer ? whole / (double)v->bands : whole) > held;
  double fetched = p->outer && weight / (double)s->groups > held ? n * (double)v->bands * weight / cost_stream(t) : 0;
  double pieces_read = again ? data * (double)v->blocks * (p->tiles ? 1 : phases) : whole > held ? data : 0;
  fetched += WAITING * pieces_read / cost_stream(t);
  /* the sums go to a cache and come back */
  double between = (double)(p->channels * v->tiles * v->width) * phases * bytes;
  double kept = sums * phases;
  double copied = 2 * kept / lanes * cycle;
  if (between > (double)cost_l1(t) / 2) copied = NEAR * 2 * kept * bytes / cost_cache(t);
  if (between > held) copied = FAR * 2 * kept * bytes / cost_bandwidth(t);
  double outputs = n * (double)s->o;
  for (int d = 0; d < s->dims; d++) outputs *= (double)s->out[d];
  double stored = outputs * (s->stride[s->dims - 1] > 1 ? SPREAD : 1.5 / lanes) * cycle;
  double written = outputs * bytes > held ? outputs * bytes / cost_bandwidth(t) : 0;
  if (written > stored) stored = written;
  bool copies = false;
  for (int d = 0; d < s->dims; d++) copies |= v->pitch[d] != s->in[d];
  double padded = copies ? 1.5 * data / (data > held ? cost_bandwidth(t) : cost_cache(t)) : 0;
  if (s->split[s->dims - 1] > 1) padded += PICKED * data / bytes * cycle;
  double packed = s->constant || s->weight_block ? 0 : 4 * weight / cost_cache(t);
  fetched += s->transposed ? 0 : pieces * (double)v->tiles * piece_cycles(t, v, data) * cycle;
  int threads = cost_threads(t, 2 * sums * terms, 0);
  return (products + fetched + copied + stored + padded + packed) / threads / cost_busy(pieces, threads);
}

/* ---- plans -------------------------------------------------------------------------------------------------- */

/* Do the registers hold sums, a step's vectors of positions and its elements of the weight, with one to spare? */
static bool tile_fits(const Target *t, const ConvShape *s, int64_t channels, int64_t vectors)
{
  int64_t elements = t->broadcast_load ? 1 : up(channels, target_lanes(t, s->bits));
  return channels * vectors + vectors + elements < t->vector_registers;
}

/* In which order bands, blocks, tiles and phases are gone through. */
static void add_orders(PlanList *list, const Target *t, const Positions *v, FlatPlan p, double weight)
{
  for (int order = 0; order < 4; order++) {
    p.outer = order & 1;
    p.tiles = order & 2;
    bool one_band = v->bands == 1 && !v->s.open;
    if ((p.outer && (one_band || v->blocks == 1)) || (p.tiles && v->phases == 1)) continue;
    plan_add(list, &p, flat_seconds(t, v, &p), weight);
  }
}

/* Positions of a band of open rows: what leaves the sums in the second-level cache, in the first, one row; of a signal,
 * which has one, a tile. */
static void add_open_bands(PlanList *list, const Target *t, const ConvShape *s, FlatPlan p, double weight)
{
  int64_t width = p.vectors * target_lanes(t, s->bits);
  int64_t bytes = p.channels * s->bits / 8;
  for (int d = 0; d < s->dims; d++) bytes *= s->stride[d];
  const int64_t most[] = {cost_l2(t) / 4 / bytes, cost_l1(t) / 2 / bytes, s->dims > 1 ? 0 : width};
  for (int i = 0; i < 3; i++) {
    int64_t tiles = most[i] / width > 1 ? most[i] / width : 1;
    int64_t band = most[i] ? tiles * width : 0;
    if (i && band == p.band) continue;
    p.band = band;
    Positions v = positions_of(t, s, &p);
    add_orders(list, t, &v, p, weight);
  }
}

/* Bands: all rows, as many as leave the sums in the second-level cache, in the first, one row. */
static void add_bands(PlanList *list, const Target *t, const ConvShape *s, FlatPlan p)
{
  p.band = up(s->out[0], s->stride[0]);
  Positions v = positions_of(t, s, &p);
  int64_t bytes = p.channels * v.row * v.phases * s->bits / 8;
  double weight = (double)(s->groups * v.blocks * p.channels * s->bits) / 8 * terms_of(&v);
  if (s->open) {
    add_open_bands(list, t, s, p, weight);
    return;
  }
  const int64_t most[] = {v.q[0], cost_l2(t) / 4 / bytes, cost_l1(t) / 2 / bytes, 1};
  int64_t previous = 0;
  for (int i = 0; i < 4; i++) {
    int64_t band = most[i] < 1 ? 1 : most[i] > v.q[0] ? v.q[0] : most[i];
    if (s->dims == 1 && band < v.q[0]) band = up(band, v.width) * v.width;
    if (s->dims == 1 && i == 3) continue;
    p.band = up(v.q[0], up(v.q[0], band));
    if (p.band == previous) continue;
    previous = p.band;
    Positions of = positions_of(t, s, &p);
    add_orders(list, t, &of, p, weight);
  }
}

static bool serves(const ImplCall *call, ConvShape *s)
{
  if (!conv_shape(call, s) || s->data_block || s->out_block || s->bits < 32 || s->word > 1) return false;
  split_data(s);
  if (s->transposed) return true;
  /* of known extents: where one tile holds all output channels */
  bool few = s->og <= MOST_CHANNELS && (s->groups == 1 || s->ig > 1 || s->og > 1);
  return (s->open || few) && (s->constant || s->weight_block);
}

void conv_flat_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!serves(call, &s)) return;
  list->alters = !s.weight_block;
  int64_t phases = 1;
  for (int d = 0; d < s.dims; d++) phases *= s.stride[d];
  for (int64_t channels = 1; channels <= MOST_CHANNELS; channels++) {
    if (s.weight_block && channels != s.weight_block) continue;
    if (!t->broadcast_load && channels % target_lanes(t, s.bits) && channels != s.og) continue;
    if (channels > 2 * s.og && channels > 4) continue;
    if (!s.open && !s.transposed && channels < s.og) continue;
    for (int64_t vectors = 1; vectors <= 6; vectors++) {
      if (!tile_fits(t, &s, channels, vectors)) continue;
      for (int even = 0; even < 2; even++) {
        if (even ? !can_be_even(&s) || (s.weight_block && !is_even(&s)) : is_even(&s) || phases > MOST_PHASES) continue;
        ConvShape of = even ? evened(&s) : s;
        add_bands(list, t, &of, (FlatPlan){.channels = channels, .vectors = vectors, .even = even});
      }
    }
  }
}

/* The weight of an ordinary convolution, the last block of each group filled up. */
static const Node *alter_ordinary(const ImplCall *call, const ConvShape *s, const FlatPlan *p, const char *kernel)
{
  const Node *w = alter_pad_rows(call->m, call->call->arg[1], s->groups, p->channels);
  return alter_transform(call->m, w, arena_printf(call->m->arena, "OI%s", conv_spatial(s->dims)), kernel);
}

void conv_flat_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const FlatPlan *p = plan;
  ConvShape s;
  conv_shape(call, &s);
  ConvShape to = p->even ? evened(&s) : s;
  const OpDef *op = call->call->u.call.op;
  Module *m = call->m;
  const char *spatial = conv_spatial(s.dims);
  const char *kernel =
      arena_printf(m->arena, s.transposed ? "O%sI%" PRId64 "o" : "OI%s%" PRId64 "o", spatial, p->channels);
  void *attrs = attrs_copy(m, op->attrs, call->call->u.call.attrs);
  attrs_set_str(m, op->attrs, attrs, "kernel_layout", kernel);
  attrs_set_int(m, op->attrs, attrs, "channels", s.o);
  *out = (AlteredCall){.op = op, .attrs = attrs, .nargs = 2};
  out->arg[0] = call->call->arg[0];
  if (!s.transposed) {
    out->arg[1] = alter_ordinary(call, &s, p, kernel);
    return;
  }
  int64_t padding[6], size[3];
  int64_t more[5] = {0, up(s.og, p->channels) * p->channels - s.og};
  for (int d = 0; d < s.dims; d++) {
    more[2 + d] = to.k[d] - s.k[d];
    size[d] = to.k[d];
    padding[d] = s.before[d];
    padding[s.dims + d] = s.after[d] + more[2 + d] * s.dilation[d];
  }
  attrs_set_ints(m, op->attrs, attrs, "padding", 2 * s.dims, padding);
  attrs_set_ints(m, op->attrs, attrs, "kernel_size", s.dims, size);
  out->arg[1] =
      alter_transform(m, alter_pad(m, call->call->arg[1], more), arena_printf(m->arena, "IO%s", spatial), kernel);
}

/* ---- the computation ------------------------------------------------------------------------------------------ */

/* Phase along dimension d of phase number `phase` of all. */
static const Expr *phase_along(Module *m, const Positions *v, int d, const Expr *phase)
{
  for (int i = v->s.dims - 1; i > d; i--) phase = expr_floordiv(m, phase, expr_i32(m, v->s.stride[i]));
  return d ? expr_floormod(m, phase, expr_i32(m, v->s.stride[d])) : phase;
}

/* Tap number j of a phase along dimension d, how far from its position it reads, in which of the planes along d that
 * data is taken apart into, and, where it may not be there, whether it is. */
static const Expr *tap_of(Module *m, const Positions *v, int d, const Expr *phase, const Expr *j, const Expr **off,
                          const Expr **plane, const Expr **there)
{
  const ConvShape *s = &v->s;
  *plane = expr_i32(m, 0);
  if (!s->transposed) {
    const Expr *from = expr_sub(m, expr_mul(m, j, expr_i32(m, s->dilation[d])), expr_i32(m, s->before[d]));
    *off = expr_floordiv(m, from, expr_i32(m, s->split[d]));
    *plane = expr_floormod(m, from, expr_i32(m, s->split[d]));
    return j;
  }
  const Expr *at = expr_add(m, phase, expr_i32(m, s->before[d]));
  const Expr *common = expr_i32(m, v->common[d]);
  const Expr *first =
      expr_floormod(m, expr_mul(m, expr_floordiv(m, at, common), expr_i32(m, v->inverse[d])), expr_i32(m, v->apart[d]));
  const Expr *tap = expr_add(m, first, expr_mul(m, j, expr_i32(m, v->apart[d])));
  *off = expr_sub(
      m, expr_floordiv(m, expr_sub(m, at, expr_mul(m, first, expr_i32(m, s->dilation[d]))), expr_i32(m, s->stride[d])),
      expr_mul(m, j, expr_i32(m, s->dilation[d] / v->common[d])));
  if (v->common[d] > 1) *there = nn_and(m, *there, expr_binary(m, E_EQ, expr_floormod(m, at, common), expr_i32(m, 0)));
  if (s->k[d] % v->apart[d]) *there = nn_and(m, *there, expr_lt(m, tap, expr_i32(m, s->k[d])));
  return tap;
}

/* The sizes of Positions as the computation has them: numbers, or expressions of what is known only at run time. */
typedef struct Extents {
  const Expr *pitch[3], *row, *band, *bands, *tiles;
} Extents;

static Extents extents_of(Module *m, const Positions *v, const FlatPlan *p, const Type *x, const Type *y)
{
  const ConvShape *s = &v->s;
  Extents e = {.row = expr_i32(m, v->row)};
  for (int d = 0; d < s->dims; d++) e.pitch[d] = expr_i32(m, v->pitch[d]);
  e.band = expr_i32(m, v->band), e.bands = expr_i32(m, v->bands), e.tiles = expr_i32(m, v->tiles);
  if (!s->open) return e;
  const Expr *one = expr_i32(m, 1);
  const Expr *width = expr_i32(m, v->width);
  const Expr *need = one;
  const Expr *last = width; /* behind the positions of all bands, what the last one reads */
  const Expr *q = NULL;
  e.row = one;
  for (int d = s->dims - 1; d >= 0; d--) {
    q = nn_simplify(m, nn_ceildiv(m, y->shape[2 + d], expr_i32(m, s->stride[d])));
    const Expr *rows = d || s->dims > 1 ? q : expr_min(m, q, expr_i32(m, p->band));
    if (!d) {
      const Expr *most = expr_max(m, expr_floordiv(m, expr_i32(m, p->band), e.row), one);
      if (s->dims > 1) rows = p->band ? nn_simplify(m, nn_ceildiv(m, q, nn_ceildiv(m, q, most))) : one;
      e.band = s->dims > 1 ? rows : expr_i32(m, p->band);
      e.bands = nn_simplify(m, nn_ceildiv(m, q, e.band));
    }
    need = expr_add(m, need, expr_mul(m, expr_sub(m, rows, one), e.row));
    if (d) last = expr_add(m, last, expr_mul(m, expr_i32(m, v->lead[d] + v->most[d]), e.row));
    const Expr *end = expr_add(m, q, expr_i32(m, v->most[d]));
    const Expr *in = nn_ceildiv(m, x->shape[2 + d], expr_i32(m, s->split[d]));
    e.pitch[d] = nn_simplify(m, expr_max(m, end, expr_add(m, in, expr_i32(m, v->gap[d]))));
    if (d) e.row = nn_simplify(m, expr_mul(m, e.row, e.pitch[d]));
  }
  e.tiles = nn_simplify(m, nn_ceildiv(m, nn_simplify(m, need), width));
  if (s->dims == 1 && p->band == v->width) e.tiles = one;
  const Expr *rows = expr_add(m, expr_mul(m, e.bands, e.band), expr_i32(m, v->lead[0] + v->most[0]));
  e.pitch[0] = nn_simplify(m, expr_add(m, rows, nn_ceildiv(m, last, e.row)));
  return e;
}

/* Do rows lie in the copy as they lie in the data? */
static bool rows_are_straight(const Positions *v, const Extents *e, const Expr *const *shape)
{
  bool straight = !v->lead[0] && v->planes == 1;
  for (int d = 1; d < v->s.dims; d++) straight &= !v->lead[d] && e->pitch[d] == shape[2 + d];
  return straight;
}

/* Is a plane of the copy one dimension?  Of open extents, so that nobody has to divide by one to read it, and where the
 * data is taken apart. */
static bool is_flat(const Positions *v) { return v->s.open || v->planes > 1; }

/* Data with zeros around it: n, channel, plane that it is taken apart into, element. */
static const Tensor *pad_flat(OpCall *call, const Positions *v, const Extents *e, const Tensor *data)
{
  Module *m = call->m;
  const Buffer *b = data->buffer;
  const Expr *elements = nn_simplify(m, expr_mul(m, e->pitch[0], e->row));
  Stage s = nn_stage(m, 4, (const Expr *[]){b->shape[0], b->shape[1], expr_i32(m, v->planes), elements}, NULL);
  const Expr *from[MAX_RANK] = {s.at[0], s.at[1]};
  const Expr *inside = NULL;
  const Expr *plane = s.at[2];
  const Expr *at = s.at[3];
  const Expr *all = expr_i32(m, 1);
  bool straight = rows_are_straight(v, e, b->shape);
  for (int d = v->s.dims - 1; d >= 0; d--) {
    const Expr *split = expr_i32(m, v->s.split[d]);
    const Expr *index = d ? expr_floormod(m, at, e->pitch[d]) : at;
    const Expr *own = v->lead[d] ? expr_sub(m, index, expr_i32(m, v->lead[d])) : index;
    if (v->s.split[d] > 1) own = expr_add(m, expr_mul(m, own, split), expr_floormod(m, plane, split));
    from[2 + d] = nn_index(&s, own);
    if (!straight && v->lead[d]) inside = nn_and(m, inside, expr_binary(m, E_GE, index, expr_i32(m, v->lead[d])));
    if (!straight) inside = nn_and(m, inside, expr_lt(m, from[2 + d], b->shape[2 + d]));
    at = expr_floordiv(m, at, e->pitch[d]);
    plane = expr_floordiv(m, plane, split);
    all = expr_mul(m, all, b->shape[2 + d]);
  }
  if (straight) inside = expr_lt(m, s.at[3], nn_simplify(m, all));
  return nn_finish(&s, "padded", "injective,pad", nn_if(m, inside, nn_read(m, data, from), expr_const(m, b->dtype, 0)));
}

static const Tensor *pad_data(OpCall *call, const Positions *v, const Tensor *data)
{
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int d = 0; d < v->s.dims; d++) {
    before[2 + d] = v->lead[d];
    after[2 + d] = v->pitch[d] - v->lead[d] - v->s.in[d];
  }
  return nn_pad_constant(call->m, data, before, after, expr_const(call->m, data->buffer->dtype, 0), "padded");
}

/* (n, group, block, band, phase, o, tile, position of a tile) */
static const Tensor *make_sums(OpCall *call, const Positions *v, const Extents *e, const FlatPlan *p,
                               const Tensor *data, const Tensor *weight)
{
  Module *m = call->m;
  const ConvShape *c = &v->s;
  static const char *const names[] = {"rz", "ry", "rx"};
  const Expr *sizes[] = {call->out->shape[0],
                         expr_i32(m, c->groups),
                         expr_i32(m, v->blocks),
                         e->bands,
                         expr_i32(m, v->phases),
                         expr_i32(m, p->channels),
                         e->tiles,
                         expr_i32(m, v->width)};
  Stage s = nn_stage(m, 8, sizes, "n g block band phase o tile position");
  const Expr *rc = nn_reduce_axis(&s, "rc", expr_i32(m, c->ig));
  const Expr *channel = expr_add(m, expr_mul(m, s.at[1], expr_i32(m, c->ig)), rc);
  const Expr *there = NULL;
  const Expr *plane = expr_i32(m, 0);
  const Expr *x[MAX_RANK] = {s.at[0], channel};
  const Expr *w[MAX_RANK], *tap[3];
  const Expr *flat = expr_add(m, expr_mul(m, s.at[6], sizes[7]), s.at[7]);
  flat = expr_add(m, flat, expr_mul(m, s.at[3], expr_mul(m, e->band, e->row)));
  for (int d = 0; d < c->dims; d++) {
    const Expr *off, *along;
    const Expr *j = nn_reduce_axis(&s, names[3 - c->dims + d], expr_i32(m, v->taps[d]));
    tap[d] = nn_index(&s, tap_of(m, v, d, phase_along(m, v, d, s.at[4]), j, &off, &along, &there));
    plane = expr_add(m, expr_mul(m, plane, expr_i32(m, c->split[d])), along);
    const Expr *step = expr_i32(m, 1);
    for (int k = d + 1; k < c->dims; k++) step = expr_mul(m, step, e->pitch[k]);
    flat = expr_add(m, flat, expr_mul(m, expr_add(m, off, expr_i32(m, v->lead[d])), step));
  }
  int first = c->transposed ? 1 : 2; /* of the weight's taps */
  w[0] = c->transposed ? s.at[2] : expr_add(m, expr_mul(m, s.at[1], expr_i32(m, v->blocks)), s.at[2]);
  w[c->transposed ? 1 + c->dims : 1] = c->transposed ? channel : rc;
  for (int d = 0; d < c->dims; d++) w[first + d] = tap[d];
  w[2 + c->dims] = s.at[5];
  x[2] = nn_index(&s, plane), x[3] = nn_index(&s, flat);
  for (int d = c->dims - 1; d >= 0 && !is_flat(v); d--) {
    x[2 + d] = nn_index(&s, d ? expr_floormod(m, flat, e->pitch[d]) : flat);
    flat = expr_floordiv(m, flat, e->pitch[d]);
  }
  DType sum = nn_accumulator(call->out->dtype);
  const Expr *term = expr_mul(m, nn_read(m, data, x), nn_read(m, weight, w));
  if (there) term = nn_if(m, there, term, expr_const(m, sum, -0.0));
  return nn_sum(&s, "sums", "conv_transpose", term, call->out->dtype);
}

void conv_flat_compute(OpCall *call, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  const FlatPlan *p = plan;
  Module *m = call->m;
  const Type *y = call->out;
  ConvShape shape;
  conv_shape_of(call->op, call->attrs, call->arg[0], call->arg[1], y, &shape);
  split_data(&shape);
  Positions v = positions_of(t, &shape, p);
  Extents e = extents_of(m, &v, p, call->arg[0], y);
  const Tensor *data = is_flat(&v) ? pad_flat(call, &v, &e, in[0]) : pad_data(call, &v, in[0]);
  const Tensor *sums = make_sums(call, &v, &e, p, data, in[1]);
  Stage s = nn_stage(m, y->ndim, y->shape, NULL);
  const Expr *own = expr_i32(m, shape.og);
  const Expr *block = expr_i32(m, p->channels);
  const Expr *width = expr_i32(m, v.width);
  const Expr *o = expr_floormod(m, s.at[1], own);
  const Expr *phase = NULL;
  const Expr *at = NULL;
  const Expr *first = NULL;
  for (int d = 0; d < shape.dims; d++) {
    const Expr *stride = expr_i32(m, shape.stride[d]);
    const Expr *q = expr_floordiv(m, s.at[2 + d], stride);
    const Expr *part = expr_floormod(m, s.at[2 + d], stride);
    if (!d) first = q;
    phase = d ? expr_add(m, expr_mul(m, phase, stride), part) : part;
    at = d ? expr_add(m, expr_mul(m, at, e.pitch[d]), q) : expr_floormod(m, q, e.band);
  }
  const Expr *from[] = {
    s.at[0], expr_floordiv(m, s.at[1], own), expr_floordiv(m, o, block),  expr_floordiv(m, first, e.band),
    phase,   expr_floormod(m, o, block),     expr_floordiv(m, at, width), expr_floormod(m, at, width)};
  for (int d = 1; d < 8; d++) from[d] = nn_index(&s, from[d]);
  *out = nn_finish(&s, "conv_transpose", "injective", nn_read(m, sums, from));
}

/* ---- the schedule ---------------------------------------------------------------------------------------------- */

/* The sums' loops below `at`: phases and tiles, the sum, the tile in registers. */
static void schedule_sums(ImplGroup *g, BlockRV sums, LoopRV at, const Positions *v, const FlatPlan *p)
{
  LoopRV *loop, step;
  sched_compute_at(g->s, sums, at, true, -1);
  int n = sched_get_loops(g->s, sums, g->arena, &loop);
  int dims = v->s.dims;
  int first = n - 1 - dims; /* the sum over channels, then taps */
  int64_t taps = 1;
  for (int d = 0; d < dims; d++) taps *= v->taps[d];
  LoopRV phase = loop[first - 4];
  LoopRV o = loop[first - 3];
  LoopRV tile = loop[first - 2];
  LoopRV lane = loop[first - 1];
  bool written = taps_written(v, p);
  int64_t steps = written ? tile_steps(g->target, p->channels * p->vectors * taps, v->s.ig) : 1;
  LoopRV sum = generic_split_by(g, loop[first], steps, &step);
  LoopRV order[12];
  int k = 0;
  order[k++] = p->tiles ? tile : phase, order[k++] = p->tiles ? phase : tile;
  order[k++] = sum, order[k++] = step;
  for (int d = 0; d < dims; d++) order[k++] = loop[first + 1 + d];
  order[k++] = o, order[k++] = lane;
  sched_reorder(g->s, k, order);
  BlockRV store = sched_cache_write(g->s, sums, 0, "local", 0, NULL);
  sched_reverse_compute_at(g->s, store, order[1], true, -1);
  epilogue_write_out(g, store, first - 2, false);
  if (v->uneven && v->phases > 1) sched_unroll(g->s, phase);
  sched_unroll(g->s, step), sched_unroll(g->s, o);
  for (int d = 0; d < dims && written; d++) sched_unroll(g->s, loop[first + 1 + d]);
  sched_vectorize(g->s, lane);
  sched_decompose_reduction(g->s, sums, sum);
}

/* Rows in vectors. */
static void schedule_padding(ImplGroup *g, BlockRV padded, const Positions *v, const Extents *e, bool parallel)
{
  LoopRV *loop, row[4], lane;
  sched_get_loops(g->s, padded, g->arena, &loop);
  int dims = v->s.dims;
  const Expr *factors[3] = {NULL, e->pitch[1], e->pitch[2]};
  const Type *x = g->anchor->arg[0]->type;
  LoopRV last = loop[3];
  if (dims > 1 && !rows_are_straight(v, e, x->shape))
    sched_split(g->s, last, dims, factors, true, row), last = row[dims - 1];
  generic_split_by(g, last, target_lanes(g->target, g->anchor->type->dtype.bits), &lane);
  sched_vectorize(g->s, lane);
  LoopRV planes = sched_fuse(g->s, 3, loop, true);
  if (parallel) sched_parallel(g->s, planes);
}

void conv_flat_schedule(ImplGroup *g)
{
  const FlatPlan *p = g->plan;
  const Node *call = g->anchor;
  BlockRV padded;
  if (group_find_stage(g, "padded", &padded)) generic_keep(g, padded);
  generic_inline(g);
  BlockRV sums = group_sum(g);
  BlockRV store = group_only_reader(g, sums);
  ImplCall of = {g->src, g->arena, g->target, g->config, call};
  ConvShape s;
  conv_shape(&of, &s);
  split_data(&s);
  Positions v = positions_of(g->target, &s, p);
  Extents e = extents_of(sched_module(g->s), &v, p, call->arg[0]->type, call->type);
  LoopRV *loop, own, oi, q[3], phase[3], banded[2], lane;
  if (sched_get_loops(g->s, store, g->arena, &loop) != s.dims + 2)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not those of its dimensions");
  LoopRV group = generic_split_by(g, loop[1], s.og, &own);
  LoopRV block = generic_split_by(g, own, p->channels, &oi);
  for (int d = 0; d < s.dims; d++) q[d] = generic_split_by(g, loop[2 + d], s.stride[d], &phase[d]);
  sched_split(g->s, q[0], 2, (const Expr *[]){NULL, e.band}, true, banded);
  LoopRV band = banded[0];
  q[0] = banded[1];
  int last = s.dims - 1;
  LoopRV part = generic_split_by(g, q[last], target_lanes(g->target, s.bits), &lane);
  LoopRV order[16];
  int k = 0;
  order[k++] = loop[0], order[k++] = group;
  order[k++] = p->outer ? band : block, order[k++] = p->outer ? block : band;
  order[k++] = oi;
  for (int d = 0; d < last; d++) order[k++] = q[d], order[k++] = phase[d];
  order[k++] = part, order[k++] = phase[last], order[k++] = lane;
  sched_reorder(g->s, k, order);
  sched_unroll(g->s, phase[last]);
  sched_vectorize(g->s, lane);
  /* bands whose number is not known are not counted together with the others */
  int counted = !s.open ? 4 : p->outer ? 2 : 3;
  LoopRV outer = sched_fuse(g->s, counted, order, true);
  schedule_sums(g, sums, counted == 4 ? outer : order[3], &v, p);
  bool rows = s.open && p->outer && s.n * s.groups == 1;
  bool parallel = cost_threads(g->target, conv_shape_flops(&s), 0) > 1;
  if (parallel) sched_parallel(g->s, rows ? band : outer);
  if (is_flat(&v)) schedule_padding(g, group_stage(g, "padded"), &v, &e, parallel);
  generic_rest(g);
}
