/* winograd_plan.c: which ways there are to compute a convolution of 3 x 3 by Winograd's algorithm, and how long each
 * takes.
 *
 * Tiles of 2, 4 or 6 outputs, where the arithmetic stays exact enough; the weight transformed at compile time
 * (`before`) or in the call; blocks of channels; bands of tiles that pass through all stages together; the register
 * tile of the product. */
#include "impl/internal.h"
#include "op/nn.h"

DEFINE_PLAN_TABLE(WinogradPlan, WINOGRAD_PLAN)

/* Largest error that a layer may add, as a share of its largest output: below what levels of optimisation may
 * differ by in a whole network. */
static const double ERROR_BOUND = 5e-5;

/* Outputs per tile, and the error with one input channel in float32; it grows with the root of their number
 * (test_impl.c holds them to it). */
enum { TILES = 3 };
static const struct {
  int tile;
  double error;
} winograd_tiles[TILES] = {{2, 2e-7}, {4, 1e-6}, {6, 2e-6}};

static bool is_exact_enough(size_t i, double channels, bool half)
{
  if (half) return winograd_tiles[i].tile <= 4; /* points and sums of its own: half.c */
  return winograd_tiles[i].error * __builtin_sqrt(channels) <= ERROR_BOUND;
}

WinogradSizes winograd_sizes(const ConvShape *s, int64_t tile, int64_t block)
{
  return (WinogradSizes){s->n, s->c, s->o, block, s->out[0], s->out[1], tile, s->groups, s->bits};
}

/* The longer of computing and of fetching what is computed with hides half of the shorter. */
static double overlapped(double a, double b) { return a > b ? a + b / 2 : b + a / 2; }

/* Seconds of so much of the product's arithmetic. */
static double product_seconds(const Target *t, const ConvShape *s, const WinogradPlan *p, double flops, double tiles)
{
  int64_t vectors = alter_block_vectors(p->out_block, target_lanes(t, s->bits));
  int64_t columns = (int64_t)tiles;
  double filled = (double)p->out_block / (double)(vectors * target_lanes(t, s->bits));
  double share = p->before ? tile_speed(t, vectors, 1, columns, (Tile){p->o, 1, p->x})
                           : tile_speed(t, vectors, 1, columns, tile_best(t, vectors, 1, 1, columns));
  return conv_tile_seconds(t, s->bits, flops, (double)s->ig, share > 0 ? share * filled : 0.02);
}

/* What it takes longer when the weight is transformed in the call: for each point of a vector of it the time of two
 * multiply-adds, and half a cycle to store it; but a weight that the products wait for is shorter then. */
static double transforming_seconds(const Target *t, const ConvShape *s, const WinogradPlan *p, double products)
{
  static const double STORED = 0.5;
  static const double SUMS = 2;
  double points = (double)((p->tile + 2) * (p->tile + 2));
  double weight = (double)(s->ig * s->o);
  double fetched = points * weight * s->bits / 8 / cost_stream(t);
  double turned =
      points * weight / (double)target_lanes(t, s->bits) * (STORED + SUMS / cost_pipes(t)) / (1e9 * t->core.ghz);
  double pieces = (double)(s->o / p->out_block);
  return (products + turned) / cost_busy(pieces, t->num_cores) - (products > fetched ? products : fetched);
}

static double winograd_seconds(const Target *t, const ConvShape *s, const WinogradPlan *p)
{
  double n = s->n ? (double)s->n : 1;
  double alpha = (double)(p->tile + 2);
  double points = alpha * alpha;
  double tiles =
      n * __builtin_ceil((double)s->out[0] / (double)p->tile) * __builtin_ceil((double)s->out[1] / (double)p->tile);
  if ((s->open || !s->n) && p->before) tiles = __builtin_ceil(tiles / (double)p->x) * (double)p->x;
  double flops = 2 * points * tiles * (double)(s->ig * s->o);
  double channels = (double)(s->c + s->o);
  double bytes = s->bits / 8.0;
  double sums = 2 * points * tiles * channels * alpha / 2;
  /* share of the peak that the transformations reach: few of their sums are multiply-adds */
  static const double TURNED = 0.5;
  /* What lies between the stages stays in the second-level cache when it is small, or when bands of tiles pass through
   * them; else it goes out and comes back.  A tile that the registers do not hold goes to the first-level cache. */
  double cache = (double)cost_l2(t);
  double weight = points * (double)(s->ig * s->o) * bytes;
  double between = points * tiles * channels * bytes;
  WinogradSizes sizes = winograd_sizes(s, p->tile, p->out_block);
  /* a band's is read again at once */
  double rate = p->band ? 2 * cost_cache(t) : 2 * between <= cache ? cost_cache(t) : cost_stream(t);
  double kept = points > t->vector_registers ? points / t->vector_registers : 1;
  double products = product_seconds(t, s, p, flops, tiles);
  double fetched = weight / cost_stream(t);
  double multiplied = winograd_fetches(t, &sizes) ? overlapped(products, fetched) : products + fetched;
  double all = multiplied + kept * sums / (TURNED * cost_flops(t, s->bits)) + 2 * between / rate;
  if (!p->before) all += transforming_seconds(t, s, p, products);
  int threads = cost_threads(t, flops, 0);
  double pieces = p->band ? n * __builtin_ceil((double)s->out[0] / (double)p->tile / (double)p->band) : threads;
  return all / threads / cost_busy(pieces, threads);
}

/* May it pay to transform the weight in the call instead?  One that the second-level cache holds once
 * transformed is too small to matter; and with AVX-512 it took 1.2 (512 channels on 7 x 7) to 2 times (256 on 14 x 14)
 * as long as tiles of 2 with the weight transformed before. */
static bool transforming_pays(const Target *t, const ConvShape *s, const WinogradPlan *p)
{
  WinogradSizes sizes = winograd_sizes(s, p->tile, p->out_block);
  return !t->broadcast_load && winograd_fetches(t, &sizes);
}

static void add_plans(PlanList *list, const Target *t, const ConvShape *s, WinogradPlan *p, int forms)
{
  enum { MOST = 4, ANY = 1 << 12 };
  Tile tile[TILE_LIST];
  int64_t vectors = alter_block_vectors(p->out_block, target_lanes(t, s->bits));
  int64_t all = (s->n ? s->n : 1) * ((s->out[0] + p->tile - 1) / p->tile) * ((s->out[1] + p->tile - 1) / p->tile);
  WinogradSizes sizes = winograd_sizes(s, p->tile, p->out_block);
  double points = (double)((p->tile + 2) * (p->tile + 2));
  double weight = (double)(s->ig * s->o) * s->bits / 8;
  if (forms & 1) {
    p->before = true;
    for (int b = 0; b < 2; b++) {
      p->band = b ? winograd_band(t, &sizes) : 0;
      if (b && (!p->band || s->open)) continue;
      int64_t together = p->band ? p->band * ((s->out[1] + p->tile - 1) / p->tile) : all;
      /* what may be does not depend on a number of tiles that is only likely */
      bool any = s->open || !s->n;
      int n =
          tile_list(t, s->bits, vectors, s->og / p->out_block, 1, any ? ANY : together, any ? TILE_LIST : MOST, tile);
      for (int i = 0; i < n; i++) {
        p->o = tile[i].o, p->x = tile[i].x;
        if (p->band && together % p->x) continue; /* the last tile's end is not known inside a band */
        plan_add(list, p, winograd_seconds(t, s, p), points * weight);
      }
    }
  }
  bool parts = s->bits == 32 && s->n && !s->open && s->ig > p->data_block;
  if ((forms & 2) && parts && (forms == 2 || transforming_pays(t, s, p))) {
    p->before = false;
    p->band = p->o = p->x = 0;
    plan_add(list, p, winograd_seconds(t, s, p), 9 * weight);
  }
}

/* 3 x 3, one step apart, over neighbours. */
static bool is_three_by_three(const ConvShape *s)
{
  bool yes = s->dims == 2 && s->word == 1 && !s->transposed;
  for (int d = 0; d < 2 && yes; d++) yes = s->k[d] == 3 && s->stride[d] == 1 && s->dilation[d] == 1;
  return yes;
}

/* The altered call: how it lies is what it says. */
static void own_plans(const ImplCall *call, PlanList *list)
{
  const WinogradAttrs *a = call->call->u.call.attrs;
  const Type *x = call->call->arg[0]->type;
  const Type *y = call->call->type;
  if (y->dtype.code != DT_FLOAT || !known_size(x, 1) || !known_size(x, 4) || !known_size(y, 1) || !known_size(y, 4))
    return;
  ConvShape s = {.dims = 2, .bits = y->dtype.bits, .word = 1, .n = known_size(y, 0), .groups = a->groups};
  s.data_block = known_size(x, 4), s.out_block = known_size(y, 4);
  s.c = known_size(x, 1) * s.data_block, s.o = known_size(y, 1) * s.out_block;
  s.ig = s.c / s.groups, s.og = s.o / s.groups;
  for (int d = 0; d < 2; d++) {
    s.out[d] = likely_size(y->shape[2 + d], 2);
    s.open |= !known_size(y, 2 + d);
  }
  if (s.open && s.bits != 32) return;
  WinogradPlan p = {.tile = a->tile_size, .data_block = s.data_block, .out_block = s.out_block};
  add_plans(list, call->target, &s, &p, a->transformed ? 1 : 2);
}

void winograd_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (call->call->u.call.op->attrs == &Winograd_attrs) {
    own_plans(call, list);
    return;
  }
  bool half = list->impl->half;
  if (call->config->no_winograd || !conv_shape(call, &s) || !is_three_by_three(&s) || s.data_block || s.out_block ||
      s.weight_block || !s.constant || (s.bits != 32 && !half))
    return;
  if (conv_shape_open(&s) && half) return;
  int64_t data[CONV_BLOCKS], out[CONV_BLOCKS];
  int nd = conv_blocks(t, s.bits, s.c, data);
  int no = conv_blocks(t, s.bits, s.o, out);
  list->alters = true;
  for (int o = 0; o < no; o++)
    for (int i = 0; i < nd; i++)
      for (size_t k = 0; k < TILES; k++) {
        if (s.og % out[o] || s.ig % data[i] || !is_exact_enough(k, (double)s.ig, half)) continue;
        WinogradPlan p = {.tile = winograd_tiles[k].tile, .data_block = data[i], .out_block = out[o]};
        list->data_block = data[i], list->out_block = out[o];
        add_plans(list, t, &s, &p, 3);
      }
}

void winograd_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const WinogradPlan *p = plan;
  Module *m = call->m;
  const Conv2DAttrs *a = call->call->u.call.attrs;
  WinogradAttrs *to = attrs_new(m, &Winograd_attrs);
  to->tile_size = p->tile;
  to->padding = a->padding;
  to->groups = a->groups;
  to->data_layout = arena_printf(m->arena, "NCHW%" PRId64 "c", p->data_block);
  to->out_layout = arena_printf(m->arena, "NCHW%" PRId64 "c", p->out_block);
  to->transformed = p->before;
  WinogradWeightAttrs *wt = attrs_new(m, &WinogradWeight_attrs);
  wt->tile_size = p->tile;
  const Node *w = call->call->arg[1];
  if (p->before) w = node_call(m, opdef_get(m->ctx, "nn.contrib_conv2d_winograd_weight_transform"), 1, &w, wt, w->name);
  const char *from = p->before ? "HWOI" : "OIHW";
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_winograd_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->call->arg[0];
  out->arg[1] = alter_transform(m, w, from, arena_printf(m->arena, "%s%" PRId64 "o", from, p->out_block));
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
}
