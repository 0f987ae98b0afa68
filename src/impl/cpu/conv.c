/* conv.c: direct convolutions over blocks of output channels, of one, two or three dimensions.
 *
 *   for n, z, o, y (blocks)                                    threads
 *     for x (tiles)
 *       tile[to, ty, tx, c] = 0                                registers
 *       for input channel block, kz, ky, kx, input channel
 *         tile[…] += data[one element, broadcast] * weight[a vector of output channels]
 *       epilogue on the tile, store
 *
 * The tile is chosen by a model of the registers, of loads against multiply-adds, and of what
 * is wasted at the edges.  Data may be in channel blocks (NCHW16c) or plain (NCHW: stem
 * convolutions, and convolutions of graphs whose layout nobody altered); weights come in
 * vectors of output channels (OIHW16i16o, OIHW16o), packed beforehand or here.  Groups are served
 * as long as a block of output channels lies in one of them; narrower ones are depthwise.c's. */
#include "impl/internal.h"
#include "op/nn.h"

DEFINE_PLAN_TABLE(ConvPlan, CONV_PLAN)

/* ---- what fits ----------------------------------------------------------------------------- */

static bool static_dims(const Type *t, int from)
{
  if (t->kind != TY_TENSOR || t->ndim < 0) return false;
  for (int d = from; d < t->ndim; d++)
    if (t->shape[d]->kind != E_INT || t->shape[d]->u.i < 1) return false;
  return true;
}

static int64_t dim(const Type *t, int d) { return t->shape[d]->u.i; }

int conv_dims(const Node *call) { return nn_conv_dims(call->u.call.op); }

const char *conv_spatial(int dims) { return &"DHW"[3 - dims]; }

int64_t conv_block(const char *layout, int dims)
{
  Layout l;
  if (layout_parse(layout, &l) || l.n != dims + 3 || l.letter[l.n - 1] != 'c') return 0;
  bool channels = !strncmp(layout, "NC", 2) && str_starts(layout + 2, conv_spatial(dims));
  return channels ? l.factor[l.n - 1] : 0;
}

bool conv_layout_is_plain(const char *layout, const char *channels, int dims)
{
  return layout && !strncmp(layout, channels, 2) && !strcmp(layout + 2, conv_spatial(dims));
}

static int64_t out_block(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return conv_block(*a->out_layout ? a->out_layout : a->data_layout, conv_dims(call));
}

/* Known sizes, floats, output channels in blocks. */
bool conv_is_blocked(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return out_block(call) >= 2 && call->type->ndim == conv_dims(call) + 3 && static_dims(call->type, 1) &&
         static_dims(call->arg[1]->type, 0) && call->type->dtype.code == DT_FLOAT && str_ends(a->kernel_layout, "o");
}

/* Does each block of output channels belong to one group, or hold several whole ones, each of half a vector at
 * least? */
bool conv_groups_wide(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  int64_t blocks = dim(call->type, 1);
  int64_t block = out_block(call);
  int64_t own = blocks * block / a->groups;
  return a->groups == 1 || blocks % a->groups == 0 ||
         (block % own == 0 && 2 * own >= target_lanes(t, call->type->dtype.bits));
}

/* ---- plans ------------------------------------------------------------------------------------ */

/* Share of a tile's speed that is left over plain data, whose neighbours lie in a row of positions, and where they do
 * not and are loaded one by one (Neoverse-N1). */
static const double PLAIN_ROW = 0.92;
static const double PLAIN_APART = 0.75;

/* Output channels of a tile's block that are of one group. */
static int64_t own_channels(const ConvShape *s, int64_t block) { return s->og < block ? s->og : block; }

static double weight_bytes(const ConvShape *s)
{
  double bytes = (double)(s->o * s->ig) * s->bits / 8;
  for (int d = 0; d < s->dims; d++) bytes *= (double)s->k[d];
  return s->word > 1 ? bytes / 2 : bytes;
}

/* Bytes that come from behind the second-level cache: the data once and the weight once for each band, but the data
 * again for each block of channels where a band does not stay in the cache. */
static double moved_bytes(const Target *t, const ConvShape *s, const ConvPlan *p)
{
  int64_t rows = s->dims > 1 ? s->out[s->dims - 2] : 1;
  double cache = (double)cost_l2(t) / 2;
  double times = (double)s->og / (double)(own_channels(s, p->out_block) * p->o);
  double bands = (double)rows / (double)p->band;
  double data = (double)(rows * s->out[s->dims - 1] * s->ig) * s->bits / 8;
  double weight = weight_bytes(s) / (double)s->groups;
  return (double)s->groups *
         ((data / bands <= cache ? data : data * times) + (weight <= cache ? weight : weight * bands));
}

/* Seconds of reading data, of which a tile's stays in the first-level cache for the tile beside it where it is little,
 * and a band's in the second-level cache for the next blocks of channels.  In plain data every step of the sum is in
 * another plane, and in blocks of few channels all but a few are: of more than a core has at hand nobody sees coming
 * which line is next. */
static double data_seconds(const Target *t, const ConvShape *s, const ConvPlan *p)
{
  int last = s->dims - 1;
  double wide = (double)(p->data_block ? p->data_block : 1) * s->bits / 8; /* bytes of a position */
  double planes = (double)s->ig / (double)(p->data_block ? p->data_block : 1) * (s->dims > 2 ? (double)s->k[0] : 1);
  int64_t rows = s->dims > 1 ? s->out[last - 1] : 1;
  int64_t depth = s->dims > 2 ? s->out[0] : 1;
  int64_t ky = s->dims > 1 ? s->k[last - 1] : 1;
  int64_t sy = s->dims > 1 ? s->stride[last - 1] : 1;
  int64_t high = s->dims > 1 ? (p->y - 1) * sy + (ky - 1) * s->dilation[last - 1] + 1 : 1;
  double read = planes * (double)(high < p->y * ky ? high : p->y * ky); /* rows of a tile */
  double row = (double)s->in[last] * wide;
  double span = (double)((p->x - 1) * s->stride[last] + (s->k[last] - 1) * s->dilation[last] + 1) * wide;
  double whole = (span < row ? span : row) / CACHE_LINE + 1;
  double fresh = (double)(p->x * s->stride[last]) * wide / CACHE_LINE;
  double own = (double)own_channels(s, p->out_block);
  double weight = weight_bytes(s) / (double)s->o * own * (double)p->o;
  double image = (double)s->c * row / (p->data_block ? (double)p->data_block : 1);
  for (int d = 0; d < last; d++) image *= (double)s->in[d];
  /* pages that a tile reads of; a core has the places of so many at hand (Neoverse-N1) */
  enum { PAGES = 48, PAGE = 4096 };
  bool scattered = read > PAGES && image / PAGE > PAGES;
  bool stays = read * whole * CACHE_LINE + weight <= 0.75 * (double)cost_l1(t) && (p->data_block || !scattered);
  double lines = stays && fresh < whole ? fresh : whole;
  double tiles = (s->n ? (double)s->n : 1) * (double)(depth * ((rows + p->y - 1) / p->y)) *
                 (double)((s->out[last] + p->x - 1) / p->x) * (double)s->groups;
  double times = (double)s->og / (own * (double)p->o);
  double band = planes * (double)((p->band - 1) * sy + ky) * row;
  double all = (s->n ? (double)s->n : 1) * image;
  if (p->data_block && !scattered)
    return cost_reads(t, tiles * read * lines * times * CACHE_LINE / (t->vector_bits / 8.0), band) +
           cost_reads(t, all / (t->vector_bits / 8.0), all);
  double share = lines < 1 ? lines : 1; /* of the tiles that come to another line */
  double near = (double)cost_l1(t) / 2; /* nothing is fetched into the first-level cache that is there already */
  double runs = (all > near ? cost_run(t, lines, all) : 0) + (band > near ? (times - 1) * cost_run(t, lines, band) : 0);
  /* the next taps along a row read the same lines: while a few of them do others are on their way */
  double taps = s->k[last] > 2 ? (double)s->k[last] : 1;
  return tiles * read * share * runs / taps / (1e9 * t->core.ghz);
}

double conv_tile_seconds(const Target *t, int bits, double flops, double steps, double share)
{
  static const double ENDS = 4; /* a sum's beginning and end cost as much as a few of its steps */
  return flops / (cost_flops(t, bits) * share) * (steps + ENDS) / steps;
}

static double conv_seconds(const Target *t, const ConvShape *s, const ConvPlan *p)
{
  int64_t lanes = target_lanes(t, s->bits);
  int64_t own = own_channels(s, p->out_block);
  int64_t vectors = alter_block_vectors(own, lanes);
  int64_t rows = s->dims > 1 ? s->out[s->dims - 2] : 1;
  int64_t depth = s->dims > 2 ? s->out[0] : 1;
  double n = s->n ? (double)s->n : 1;
  double steps = (double)s->ig;
  double outputs = n * (double)(depth * rows * s->out[s->dims - 1]);
  double share = tile_speed(t, vectors, rows, s->out[s->dims - 1], (Tile){p->o, p->y, p->x}) * (double)own /
                 (double)(vectors * lanes);
  for (int d = 0; d < s->dims; d++) steps *= (double)s->k[d];
  if (share <= 0) share = 0.02; /* the smallest tile of a target with few registers */
  if (!p->data_block && !t->broadcast_load) share *= s->stride[s->dims - 1] == 1 ? PLAIN_ROW : PLAIN_APART;
  double flops = 2 * outputs * (double)s->o * steps;
  double products = conv_tile_seconds(t, s->bits, flops, steps, share) /
                    (s->word == 2 ? cost_words(t, s->word) : 1); /* fours are made for 2 x 2 blocks (panels.c) */
  double moved = moved_bytes(t, s, p) - (double)(rows * s->out[s->dims - 1] * s->c) * s->bits / 8;
  products += data_seconds(t, s, p);
  int threads = cost_threads(t, flops, 0);
  double parts = outputs / (double)(p->band * s->out[s->dims - 1]) * (double)s->o / (double)(own * p->o);
  bool whole = s->dims > 1 ? rows % p->y == 0 : s->out[0] % p->x == 0;
  if (parts < 4 * threads && whole) parts *= (double)p->band / (double)p->y;
  return (products + (moved > 0 ? moved : 0) / cost_stream(t)) / threads / cost_busy(parts, threads);
}

static void add_tiles(PlanList *list, const Target *t, const ConvShape *s, ConvPlan *p)
{
  enum { TILES = 6 };
  int64_t own = own_channels(s, p->out_block);
  int64_t rows = s->dims > 1 ? s->out[s->dims - 2] : 1;
  int64_t vectors = alter_block_vectors(own, target_lanes(t, s->bits));
  Tile tile[TILES];
  int n = tile_list(t, s->bits, vectors, s->og / own, rows, s->out[s->dims - 1], TILES, tile);
  for (int i = 0; i < n; i++) {
    p->o = tile[i].o, p->y = tile[i].y, p->x = tile[i].x;
    p->band = rows;
    plan_add(list, p, conv_seconds(t, s, p), weight_bytes(s));
    /* the band that moves least */
    ConvPlan least = *p;
    for (int64_t band = p->y; band < rows && rows % p->y == 0; band += p->y) {
      ConvPlan other = *p;
      other.band = band;
      if (rows % band == 0 && moved_bytes(t, s, &other) <= moved_bytes(t, s, &least)) least = other;
    }
    if (least.band != rows) plan_add(list, &least, conv_seconds(t, s, &least), weight_bytes(s));
  }
}

int conv_blocks(const Target *t, int bits, int64_t channels, int64_t *block)
{
  int64_t lanes = target_lanes(t, bits);
  int64_t usual = alter_block(t, bits, channels);
  const int64_t try[] = {usual, lanes, 2 * lanes, 4 * lanes};
  int n = 0;
  for (size_t i = 0; i < sizeof try / sizeof *try; i++) {
    bool had = try[i] < 4 || channels % try[i];
    for (int k = 0; k < n; k++) had |= block[k] == try[i];
    if (!had) block[n++] = try[i];
  }
  return n;
}

static bool sizes_known(const ConvShape *s)
{
  for (int d = 0; d < s->dims; d++)
    if (!s->out[d]) return false;
  return !s->transposed;
}

/* Does each block of output channels belong to one group, or hold several whole ones, each of half a vector at
 * least?  And each of input channels? */
static bool blocks_fit(const Target *t, const ConvShape *s, int64_t data, int64_t out)
{
  int64_t lanes = target_lanes(t, s->bits);
  bool o = s->groups == 1 || s->og % out == 0 || (out % s->og == 0 && 2 * s->og >= lanes);
  bool i = !data || s->groups == 1 || s->ig % data == 0 || data % s->ig == 0;
  return o && i;
}

void conv_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!conv_shape(call, &s) || !sizes_known(&s)) return;
  if (s.ig == 1 && s.og == 1 && s.groups > 1) return;
  ConvPlan p = {.data_block = s.data_block, .out_block = s.out_block};
  if (s.out_block) {
    if (s.out_block >= 2 && s.weight_block && blocks_fit(t, &s, 0, s.out_block)) add_tiles(list, t, &s, &p);
    return;
  }
  if (s.data_block || s.weight_block || s.word > 1) return;
  int64_t data[CONV_BLOCKS], out[CONV_BLOCKS];
  int nd = conv_blocks(t, s.bits, s.c, data);
  int no = conv_blocks(t, s.bits, s.o, out);
  int no_own = s.groups > 1 ? conv_blocks(t, s.bits, s.og, out + no) : 0;
  int nd_own = s.groups > 1 ? conv_blocks(t, s.bits, s.ig, data + nd) : 0;
  list->alters = true;
  for (int o = 0; o < no + no_own; o++)
    for (int i = -1; i < nd + nd_own; i++) {
      p.data_block = list->data_block = i < 0 ? 0 : data[i];
      p.out_block = list->out_block = out[o];
      bool again = false;
      for (int k = 0; k < o; k++) again |= out[k] == out[o];
      for (int k = 0; k < i; k++) again |= data[k] == data[i];
      if (!again && blocks_fit(t, &s, p.data_block, p.out_block)) add_tiles(list, t, &s, &p);
    }
}

void conv_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const ConvPlan *p = plan;
  alter_to_blocks(call, p->data_block, p->out_block, out);
}

/* ---- plain data and weight, packed in the call ---------------------------------------------------- */

/* Seconds of storing a tile's positions of each channel in its plane. */
static double unpack_seconds(const Target *t, const ConvShape *s, const ConvPlan *p)
{
  int last = s->dims - 1;
  double planes = (s->n ? (double)s->n : 1) * (double)s->o;
  double rows = 1;
  for (int d = 0; d < last; d++) rows *= (double)s->out[d];
  double runs = planes * rows * (double)((s->out[last] + p->x - 1) / p->x);
  double run = (double)(p->x * s->bits) / 8;
  return cost_stores(t, runs, run, planes * rows * (double)(s->out[last] * s->bits) / 8) / (1e9 * t->core.ghz);
}

/* Blocks of output channels: where they do not divide a convolution of one group, the last has zeros. */
void conv_pack_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!conv_shape(call, &s) || !sizes_known(&s) || s.data_block || s.out_block || s.weight_block || s.word > 1) return;
  if (s.og < 4) return;
  int64_t lanes = target_lanes(t, s.bits);
  int64_t reads = 1;
  double taps = 1;
  for (int d = 0; d < s.dims; d++) taps *= (double)s.k[d];
  for (int64_t block = 4; block <= 4 * lanes; block *= 2) {
    if (s.groups > 1 ? s.og % block : block > lanes || (block > 4 && block / 2 >= s.og)) continue;
    ConvShape padded = s;
    if (s.groups == 1) padded.o = padded.og = (s.o + block - 1) / block * block;
    reads = (int64_t)taps * (padded.og / block);
    for (int inner = 0; inner < 2; inner++) {
      if (inner && (s.ig % lanes || reads < 4)) continue;
      ConvPlan p = {.data_block = inner ? lanes : 0, .out_block = block};
      int before = list->v.n;
      add_tiles(list, t, &padded, &p);
      /* the weight is packed in every run, and the data where it is */
      double copied = 2 * cost_copy(t, weight_bytes(&s), weight_bytes(&s));
      double data = (double)(s.n ? s.n : 1) * (double)s.c * s.bits / 8;
      for (int d = 0; d < s.dims; d++) data *= (double)s.in[d];
      for (int i = before; i < list->v.n; i++)
        list->v.v[i].seconds +=
            copied + unpack_seconds(t, &s, list->v.v[i].fields) + (inner ? 2 * cost_copy(t, data, data) : 0);
    }
  }
}

/* ---- packing inside the kernel -------------------------------------------------------------------- */

enum { CONV_AXES = 8 };

static const Expr *below(Module *m, const Expr *at, const Expr *extent) { return expr_binary(m, E_LT, at, extent); }

static void axes_of(Module *m, int n, const Expr *const *shape, const IterVar **axis, const Expr **at)
{
  for (int d = 0; d < n; d++) {
    axis[d] = itervar_new(m, var_new(m, arena_printf(m->arena, "ax%d", d), DT_I32, VAR_PLAIN), expr_i32(m, 0), shape[d],
                          ITER_SPATIAL, NULL);
    at[d] = var_expr(axis[d]->var);
  }
}

/* weight (O, I, …) as (O / block, I / inner, …, inner, block), or without `inner` where that is 1; zeros behind
 * the last output channel. */
static const Tensor *pack_weight(Module *m, const Tensor *w, int64_t block, int64_t inner)
{
  const Buffer *b = w->buffer;
  int64_t o = b->shape[0]->u.i;
  int64_t blocks = (o + block - 1) / block;
  int n = b->ndim + (inner > 1 ? 2 : 1);
  const Expr *shape[CONV_AXES] = {expr_i32(m, blocks), expr_i32(m, b->shape[1]->u.i / inner)};
  const Expr *at[CONV_AXES], *from[CONV_AXES];
  for (int d = 2; d < b->ndim; d++) shape[d] = b->shape[d];
  if (inner > 1) shape[n - 2] = expr_i32(m, inner);
  shape[n - 1] = expr_i32(m, block);
  const IterVar *axis[CONV_AXES];
  axes_of(m, n, shape, axis, at);
  for (int d = 2; d < b->ndim; d++) from[d] = at[d];
  from[0] = expr_add(m, expr_mul(m, at[0], expr_i32(m, block)), at[n - 1]);
  from[1] = inner > 1 ? expr_add(m, expr_mul(m, at[1], expr_i32(m, inner)), at[n - 2]) : at[1];
  const Expr *value = te_read(m, w, b->ndim, from);
  if (o % block)
    value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){below(m, from[0], b->shape[0]), value, expr_const(m, b->dtype, 0)});
  return &te_compute(m, "weight_pack", "injective", n, shape, axis, 1, &value, NULL)->out[0];
}

/* data (n, C, …) as (n, C / block, …, block). */
static const Tensor *pack_data(Module *m, const Tensor *x, int64_t block)
{
  const Buffer *b = x->buffer;
  int n = b->ndim;
  const Expr *size = expr_i32(m, block);
  const Expr *shape[CONV_AXES], *at[CONV_AXES], *from[CONV_AXES];
  for (int d = 0; d < n; d++) shape[d] = d == 1 ? expr_i32(m, b->shape[1]->u.i / block) : b->shape[d];
  shape[n] = size;
  const IterVar *axis[CONV_AXES];
  axes_of(m, n + 1, shape, axis, at);
  for (int d = 0; d < n; d++) from[d] = d == 1 ? expr_add(m, expr_mul(m, at[1], size), at[n]) : at[d];
  const Expr *value = te_read(m, x, n, from);
  return &te_compute(m, "data_pack", "injective", n + 1, shape, axis, 1, &value, NULL)->out[0];
}

static const Tensor *unpack_output(Module *m, const Tensor *blocked, const Type *out, int64_t block)
{
  const IterVar *axis[CONV_AXES];
  const Expr *at[CONV_AXES], *from[CONV_AXES];
  const Expr *b = expr_i32(m, block);
  axes_of(m, out->ndim, out->shape, axis, at);
  for (int d = 0; d < out->ndim; d++) from[d] = d == 1 ? expr_floordiv(m, at[1], b) : at[d];
  from[out->ndim] = expr_floormod(m, at[1], b);
  const Expr *value = te_read(m, blocked, out->ndim + 1, from);
  return &te_compute(m, "conv_unpack", "injective", out->ndim, out->shape, axis, 1, &value, NULL)->out[0];
}

void conv_pack_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  const ConvPlan *p = plan;
  Module *m = c->m;
  Conv2DAttrs *a = attrs_copy(m, c->op->attrs, c->attrs);
  const char *spatial = conv_spatial(nn_conv_dims(c->op));
  int64_t o = dim(c->out, 1);
  int64_t block = p->out_block;
  int64_t inner = p->data_block ? p->data_block : 1;
  if (inner > 1) a->data_layout = arena_printf(m->arena, "NC%s%" PRId64 "c", spatial, inner);
  a->kernel_layout = inner > 1 ? arena_printf(m->arena, "OI%s%" PRId64 "i%" PRId64 "o", spatial, inner, block)
                               : arena_printf(m->arena, "OI%s%" PRId64 "o", spatial, block);
  a->out_layout = arena_printf(m->arena, "NC%s%" PRId64 "c", spatial, block);
  a->channels = 0;
  const Tensor *weight = pack_weight(m, in[1], block, inner);
  const Tensor *data = inner > 1 ? pack_data(m, in[0], inner) : in[0];
  const Type *types[2] = {type_tensor(m, data->buffer->dtype, data->buffer->ndim, data->buffer->shape),
                          type_tensor(m, weight->buffer->dtype, weight->buffer->ndim, weight->buffer->shape)};
  const Expr *shape[CONV_AXES];
  for (int d = 0; d < c->out->ndim; d++) shape[d] = d == 1 ? expr_i32(m, (o + block - 1) / block) : c->out->shape[d];
  shape[c->out->ndim] = expr_i32(m, block);
  OpCall blocked = {.m = m,
                    .op = c->op,
                    .attrs = a,
                    .nargs = 2,
                    .arg = types,
                    .out = type_tensor(m, c->out->dtype, c->out->ndim + 1, shape),
                    .name = c->name};
  const Tensor *result;
  c->op->compute(&blocked, (const Tensor *const[]){data, weight}, &result);
  *out = unpack_output(m, result, c->out, block);
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

static void conv_loops(ImplGroup *g, const Nest *n, ConvLoops *l)
{
  *l = (ConvLoops){.first = 0};
  while (l->first < n->n && !n->loop[l->first].reduce) l->first++;
  l->dims = l->first - 3;
  if (l->dims < 1 || l->dims > 3 || !n->plain)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the convolution's loops are not those of NCHWc");
  l->c = l->first - 1;
  l->x = l->c - 1;
  l->y = l->dims > 1 ? l->x - 1 : -1;
  l->z = l->dims > 2 ? l->y - 1 : -1;
}

/* Loops of one step come first, then those that go farther in the weight. */
static bool before(const Nest *n, int weight, int a, int b)
{
  bool single = n->loop[a].extent == 1;
  bool other = n->loop[b].extent == 1;
  return single != other ? single : n->loop[a].stride[weight] > n->loop[b].stride[weight];
}

/* Reduction loops by how far a step goes in the weight, the farthest first. */
int conv_sum_order(const Nest *n, const ConvLoops *l, int *index)
{
  enum { GROUP = 16 }; /* input channels that lie side by side for each output channel, at most */
  int weight = -1;
  int k = 0;
  for (int a = 0; a < n->naccess; a++)
    if (!n->access[a].write && n->loop[l->c].stride[a] >= 1 && n->loop[l->c].stride[a] <= GROUP) weight = a;
  for (int i = l->first; i < n->n; i++) index[k++] = i;
  for (int i = 1; i < k && weight >= 0; i++)
    for (int j = i; j > 0 && before(n, weight, index[j], index[j - 1]); j--) {
      int swap = index[j];
      index[j] = index[j - 1];
      index[j - 1] = swap;
    }
  return k;
}

BlockRV conv_begin(ImplGroup *g, Nest **n, ConvLoops *l)
{
  generic_inline(g);
  BlockRV conv = group_sum(g);
  *n = arena_new_of(g->arena, Nest);
  nest_read(g, conv, *n);
  conv_loops(g, *n, l);
  return conv;
}

/* Sums of bytes whose factor comes from a lane (NEON), fitted on a Neoverse-N1.  A row's taps are written out: loops of
 * two or three steps end too often to be foreseen.  A kernel of one tap goes from one block of channels to the next:
 * where there are more of them than the core follows by itself, the next one's data is asked for. */
static void schedule_bytes(ImplGroup *g, BlockRV conv, const Nest *n, int nsum, const int *sum)
{
  enum { TAPS = 3, FOLLOWED = 16 };
  const Type *w = g->anchor->arg[1]->type;
  if (dtype_is_float(g->anchor->type->dtype) || g->target->broadcast_load || target_lanes(g->target, 32) < 4) return;
  if (nsum > 1 && n->loop[sum[nsum - 2]].extent <= TAPS) sched_unroll(g->s, n->loop[sum[nsum - 2]].rv);
  if (known_size(w, 2) * known_size(w, 3) > 1 || known_size(w, 1) <= FOLLOWED) return;
  const Block *b = sched_block_stmt(g->s, conv)->u.block;
  for (int i = 0; i < b->nreads; i++) {
    const Buffer *r = b->reads[i].buffer;
    if (r != b->writes[0].buffer && r->ndim == 5) group_prefetch(g, conv, i, n->loop[sum[nsum - 2]].rv, 1);
  }
}

void conv_schedule(ImplGroup *g)
{
  Nest *n;
  ConvLoops l;
  BlockRV conv = conv_begin(g, &n, &l);
  /* A tile's channels are of one group and read the same data. */
  int64_t groups = ((const Conv2DAttrs *)g->anchor->u.call.attrs)->groups;
  int64_t block = n->loop[l.c].extent;
  int64_t own = n->loop[1].extent * block / groups;
  int64_t ox = n->loop[l.x].extent;
  int64_t oy = l.y < 0 ? 1 : n->loop[l.y].extent;
  bool words = target_lanes(g->target, 32) == 1 && n->bits == 32 && !dtype_is_float(g->anchor->type->dtype);
  bool quads = words && target_has_quads(g->target); /* as many sums as are computed with at a time */
  if (quads && own > QUAD) own = QUAD;
  int64_t vectors = alter_block_vectors(own < block ? own : block, target_lanes(g->target, n->bits));
  const ConvPlan *plan = g->plan;
  Tile tile = {plan->o, plan->y, plan->x};
  int64_t rows = plan->band;
  LoopRV order[NEST_LOOPS + 8], oi;
  LoopRV yi = {-1};
  LoopRV ym = {-1};
  LoopRV xi;
  LoopRV step = {-1};
  LoopRV c = n->loop[l.c].rv;
  int sum[NEST_LOOPS];
  int nsum = conv_sum_order(n, &l, sum);
  int k = 0;
  order[k++] = n->loop[0].rv;
  if (l.z >= 0) order[k++] = n->loop[l.z].rv;
  if (l.y >= 0) order[k++] = generic_split_by(g, n->loop[l.y].rv, rows, &ym);
  order[k++] = generic_split_by(g, n->loop[1].rv, tile.o, &oi);
  if (own < block) order[k++] = generic_split_by(g, c, own, &c);
  int shared = k;
  if (l.y >= 0) order[k++] = generic_split_by(g, ym, tile.y, &yi);
  order[k++] = generic_split_by(g, n->loop[l.x].rv, tile.x, &xi);
  int outer = k;
  /* As many steps written out as give some hundred multiply-adds; but neighbouring taps read the same elements, and
   * where each is a register of its own, what is kept for the next one takes it from the sums. */
  bool taps = sum[nsum - 1] >= n->n - l.dims && g->target->broadcast_load;
  int64_t steps = taps ? 1 : tile_steps_of(g->target, tile, vectors, n->loop[sum[nsum - 1]].extent);
  /* Without vectors, what is made of a channel's weight is used for all positions before the next channel's is made:
   * registers are few.  A row of taps is written out, since neighbouring positions share its data.  (Floats of one lane
   * are loaded as they are.) */
  int64_t last = n->loop[sum[nsum - 1]].extent;
  if (quads) steps = last <= 4 ? last : last % 4 == 0 ? 4 : last % 3 == 0 ? 3 : last % 2 ? 1 : 2;
  else if (words) steps = sum[nsum - 1] >= n->n - l.dims && last <= 4 ? last : last % 2 ? 1 : 2;
  for (int i = 0; i < nsum; i++) {
    if (i == nsum - 1 && steps > 1) {
      order[k++] = generic_split_by(g, n->loop[sum[i]].rv, steps, &step);
      order[k++] = step;
    } else {
      order[k++] = n->loop[sum[i]].rv;
    }
  }
  if (l.y >= 0 && !words) order[k++] = yi;
  if (words) order[k++] = oi, order[k++] = c;
  if (l.y >= 0 && words) order[k++] = yi;
  order[k++] = xi;
  if (!words) order[k++] = oi, order[k++] = c;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, conv, order[outer - 1]), outer, true);
  if (step.id >= 0) sched_unroll(g->s, step);
  schedule_bytes(g, conv, n, nsum, sum);
  if (l.y >= 0) sched_unroll(g->s, yi);
  sched_unroll(g->s, oi), sched_unroll(g->s, xi);
  if (words) sched_unroll(g->s, c);
  else sched_vectorize(g->s, c);
  sched_decompose_reduction(g->s, conv, order[outer]);
  int threads = cost_threads(g->target, n->iterations * 2, 0);
  /* Rows with a tail stay inside, so that the threads share whole tiles. */
  double batch = n->loop[0].extent ? (double)n->loop[0].extent : 1;
  double depth = l.z >= 0 ? (double)n->loop[l.z].extent : 1;
  double channels = (double)(n->loop[1].extent / tile.o) * (own < block ? (double)(block / own) : 1);
  double parts = batch * depth * ((double)oy / (double)rows) * channels;
  bool whole = l.y >= 0 ? oy % tile.y == 0 : ox % tile.x == 0;
  LoopRV fused = sched_fuse(g->s, parts < 4 * threads && whole ? shared + 1 : shared, order, true);
  if (threads > 1) sched_parallel(g->s, fused);
  generic_rest(g);
}
