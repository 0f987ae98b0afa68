/* alter.c: which layout and algorithm a call wants.
 *
 * AlterOpLayout asks here for each call.  Convolutions over NCHW become convolutions over blocks
 * of channels; the block depends on the number of channels and the target alone, so that what
 * one convolution gives is what the next one takes.  Weights are transformed by operators in
 * the graph, which fold away when the weight is a constant. */
#include "impl/internal.h"
#include "op/nn.h"

/* Vector operations for a block of n elements: whole vectors, then halves, quarters, … */
int64_t alter_block_vectors(int64_t n, int64_t lanes)
{
  return n / lanes + __builtin_popcountll((uint64_t)(n % lanes));
}

/* Channels in a block: a divisor of n that fills vectors well, the smallest of the good ones; 0: none. */
int64_t alter_block(const Target *t, int bits, int64_t n)
{
  int64_t lanes = target_lanes(t, bits);
  int64_t best = 0;
  int64_t least = lanes < 8 ? 8 : lanes;
  double top = 0;
  if (n % least == 0) return least;
  for (int64_t d = 4; d <= 4 * lanes && d <= n; d += 4) {
    if (n % d) continue;
    double full = (double)d / (double)(alter_block_vectors(d, lanes) * lanes);
    if (full <= top * 1.05) continue;
    top = full;
    best = d;
  }
  return best;
}

static const char *blocked(Module *m, int64_t block) { return arena_printf(m->arena, "NCHW%" PRId64 "c", block); }

const Node *alter_transform(Module *m, const Node *n, const char *from, const char *to)
{
  LayoutTransformAttrs *a = attrs_new(m, &LayoutTransform_attrs);
  a->src_layout = from;
  a->dst_layout = to;
  return node_call(m, opdef_get(m->ctx, "layout_transform"), 1, &n, a, n->name);
}

static const Node *reshaped(Module *m, const Node *n, int ndim, const int64_t *shape)
{
  const Expr *dims[MAX_RANK];
  ReshapeAttrs *a = attrs_new(m, &Reshape_attrs);
  for (int d = 0; d < ndim; d++) dims[d] = expr_i32(m, shape[d]);
  attrs_set_dims(m, &Reshape_attrs, a, "newshape", ndim, dims);
  return op_call1(m, &op_reshape, n, a);
}

const Node *alter_pad_rows(Module *m, const Node *weight, int64_t groups, int64_t block)
{
  const Type *t = weight->type;
  int64_t own = known(t->shape[0]) / groups;
  int64_t more = (block - own % block) % block;
  int64_t shape[MAX_RANK] = {groups, own};
  int64_t width[2 * MAX_RANK] = {[3] = more};
  if (!more) return weight;
  for (int d = 1; d < t->ndim; d++) shape[d + 1] = known(t->shape[d]);
  const Node *zero = node_scalar(m, (Value){.dtype = t->dtype});
  PadAttrs *pad = attrs_new(m, &Pad_attrs);
  attrs_set_ints(m, &Pad_attrs, pad, "pad_width", 2 * (t->ndim + 1), width);
  const Node *arg[] = {reshaped(m, weight, t->ndim + 1, shape), zero};
  const Node *padded = node_call(m, opdef_get(m->ctx, "nn.pad"), 2, arg, pad, weight->name);
  shape[1] = groups * (own + more);
  return reshaped(m, padded, t->ndim, shape + 1);
}

/* A weight that is known at compile time, or made from such. */
bool alter_is_constant(Ctx *ctx, const Node *n)
{
  if (n->kind == N_CONST) return true;
  Scope scope = scope_begin(ctx);
  const Node **node;
  int count = graph_post_order(scratch(ctx), n, &node);
  bool constant = true;
  for (int i = 0; i < count; i++)
    constant &=
        node[i]->kind == N_CONST || node[i]->kind == N_CALL || node[i]->kind == N_TUPLE || node[i]->kind == N_GET;
  scope_end(ctx, scope);
  return constant;
}

/* A two-dimensional convolution in the common layouts, all sizes that matter known. */
static bool is_common_conv(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  const Type *x = call->arg[0]->type;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") ||
      (a->out_layout && *a->out_layout && strcmp(a->out_layout, "NCHW")))
    return false;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim != 4 || !dtype_eq(x->dtype, w->dtype))
    return false;
  for (int d = 0; d < 4; d++)
    if (!known(w->shape[d])) return false;
  return known(x->shape[1]) != 0;
}

static bool is_plain_conv(const Node *call)
{
  DType t = call->arg[0]->type->dtype;
  return is_common_conv(call) && t.code == DT_FLOAT && dtype_eq(call->type->dtype, t);
}

/* Products of bfloat16, summed in float32. */
static bool sums_words(const Node *call)
{
  return dtype_eq(call->arg[0]->type->dtype, DT_BF16) && dtype_eq(call->arg[1]->type->dtype, DT_BF16) &&
         dtype_eq(call->type->dtype, DT_F32);
}

static const Node *words_of(Module *m, const Node *weight, int axis, int word)
{
  PairsAttrs *a = attrs_new(m, &Pairs_attrs);
  a->axis = axis;
  a->count = word;
  return node_call(m, opdef_get(m->ctx, "nn.contrib_bfloat16_pairs"), 1, &weight, a, weight->name);
}

/* ---- Winograd or not ------------------------------------------------------------------------------ */

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

typedef struct Sizes {
  double n, c, o, y, x, bytes, groups; /* c: of one group */
} Sizes;

/* Arithmetic a second that a register tile reaches over y * x positions and all blocks of output channels, with sums of
 * `steps`; a sum's beginning and end (zeros, the store) cost as much as a few of its steps. */
static double tile_flops(const Target *t, const Sizes *s, double y, double x, double steps)
{
  static const double ENDS = 4;
  int bits = (int)(8 * s->bytes);
  int64_t block = alter_block(t, bits, (int64_t)s->o);
  int64_t vectors = alter_block_vectors(block, target_lanes(t, bits));
  int64_t blocks = (int64_t)(s->o / s->groups) / block;
  double share = tile_speed(t, vectors, (int64_t)y, (int64_t)x, tile_best(t, vectors, blocks, (int64_t)y, (int64_t)x));
  return cost_flops(t, bits) * share * steps / (steps + ENDS);
}

/* Seconds: arithmetic as fast as the register tile is, weights from memory, what lies between the stages from the
 * caches. */
static double direct_seconds(const Target *t, const Sizes *s)
{
  double flops = 2 * 9 * s->n * s->c * s->o * s->y * s->x;
  return flops / tile_flops(t, s, s->y, s->x, 9 * s->c) + 9 * s->c * s->o * s->bytes / cost_stream(t);
}

/* Weights of half the size. */
static double words_seconds(const Target *t, const Sizes *s, int word)
{
  double weights = 9 * s->c * s->o * s->bytes / cost_stream(t);
  return (direct_seconds(t, s) - weights) / cost_words(t, word) + weights / 2;
}

/* Do words win more than rounding the operands costs?  Arithmetic and the weights' way from memory go on at once. */
static bool words_pay(const Target *t, double flops, double weights, int word)
{
  static const double ROUNDING = 0.9;
  double sums = flops / cost_flops(t, 32);
  double reads = weights * 4 / cost_stream(t);
  double words = sums / cost_words(t, word);
  double plain = sums > reads ? sums : reads;
  double narrow = words > reads / 2 ? words : reads / 2;
  return narrow < ROUNDING * plain;
}

/* The longer of computing and of fetching what is computed with hides half of the shorter. */
static double overlapped(double a, double b) { return a > b ? a + b / 2 : b + a / 2; }

static WinogradSizes sizes_of(const Target *t, const Sizes *s, int tile)
{
  int bits = (int)(8 * s->bytes);
  return (WinogradSizes){(int64_t)s->n, (int64_t)(s->c * s->groups),
                         (int64_t)s->o, alter_block(t, bits, (int64_t)s->o),
                         (int64_t)s->y, (int64_t)s->x,
                         tile,          (int64_t)s->groups,
                         bits};
}

/* The weight transformed before. */
static double winograd_seconds(const Target *t, const Sizes *s, int tile)
{
  double alpha = tile + 2;
  double points = alpha * alpha;
  double tiles = s->n * __builtin_ceil(s->y / tile) * __builtin_ceil(s->x / tile);
  double flops = 2 * points * tiles * s->c * s->o;
  double channels = s->c * s->groups + s->o;
  double sums = 2 * points * tiles * channels * alpha / 2;
  /* share of the peak that the transformations reach: few of their sums are multiply-adds */
  static const double TURNED = 0.5;
  /* What lies between the stages stays in the second-level cache when it is small, or when bands of tiles pass through
   * them; else it goes out and comes back.  A tile that the registers do not hold goes to the first-level cache. */
  int bits = (int)(8 * s->bytes);
  double cache = (double)cost_l2(t);
  double weight = points * s->c * s->o * s->bytes;
  double between = points * tiles * channels * s->bytes;
  WinogradSizes sizes = sizes_of(t, s, tile);
  double rate = 2 * between <= cache || winograd_band(t, &sizes) ? cost_cache(t) : cost_stream(t);
  double kept = points > t->vector_registers ? points / t->vector_registers : 1;
  double products = flops / tile_flops(t, s, 1, tiles, s->c);
  double fetched = weight / cost_stream(t);
  products = winograd_fetches(t, &sizes) ? overlapped(products, fetched) : products + fetched;
  return products + kept * sums / (TURNED * cost_flops(t, bits)) + 2 * between / rate;
}

/* What it takes longer when the weight is transformed in the call: for each point of a vector of it the time of two
 * multiply-adds, and half a cycle to store it; but a weight that the products wait for is shorter then. */
static double transforming_seconds(const Target *t, const Sizes *s, int tile)
{
  static const double STORED = 0.5;
  static const double SUMS = 2;
  int bits = (int)(8 * s->bytes);
  double points = (tile + 2) * (tile + 2);
  double tiles = s->n * __builtin_ceil(s->y / tile) * __builtin_ceil(s->x / tile);
  double weight = s->c * s->o;
  double products = 2 * points * tiles * weight / tile_flops(t, s, 1, tiles, s->c);
  double fetched = points * weight * s->bytes / cost_stream(t);
  double turned =
      points * weight / (double)target_lanes(t, bits) * (STORED + SUMS / cost_pipes(t)) / (1e9 * t->core.ghz);
  double pieces = s->o / (double)sizes_of(t, s, tile).block;
  return (products + turned) / cost_busy(pieces, t->num_cores) - (products > fetched ? products : fetched);
}

/* Can the weight be transformed in the call instead, in more than one part?  One that the second-level cache holds once
 * transformed is too small to matter; and with AVX-512 it took 1.2 (512 channels on 7 x 7) to 2 times (256 on 14 x 14)
 * as long as tiles of 2 with the weight transformed before. */
static bool may_transform(const Target *t, const Sizes *s, int tile)
{
  WinogradSizes sizes = sizes_of(t, s, tile);
  return !t->broadcast_load && s->bytes == 4 && s->c > (double)alter_block(t, 32, (int64_t)(s->c * s->groups)) &&
         winograd_fetches(t, &sizes);
}

/* What a convolution of 3 x 3 is computed by. */
typedef struct Way {
  int tile;              /* outputs per tile; 0: the direct way */
  bool before;           /* the weight is transformed at compile time */
  double seconds, bytes; /* of a run; of the weight */
} Way;

/* An eighth of the weights' memory is worth a hundredth of a run's time: a price, not a measurement, set where a loaded
 * ResNet-50 has no more than other runtimes need and ResNet-18 keeps its speed (from 0.06 to 0.09 on a Neoverse V1). */
static double score(const ImplConfig *config, const Way *w)
{
  static const double MEMORY = 0.08;
  return config->seconds > 0 && config->bytes > 0 ? w->seconds / config->seconds + MEMORY * w->bytes / config->bytes
                                                  : w->seconds;
}

/* Blocks of channels that tile data and result, each group's apart; false: there are none. */
static bool whole_blocks(const Target *t, const Node *call, int64_t *cb, int64_t *ob)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  int bits = call->type->dtype.bits;
  int64_t o = known(call->arg[1]->type->shape[0]);
  int64_t c = known(call->arg[0]->type->shape[1]);
  *ob = alter_block(t, bits, o);
  *cb = alter_block(t, bits, c);
  return *ob && *cb && o / a->groups % *ob == 0 && c / a->groups % *cb == 0;
}

/* The fastest way, Winograd's where it is exact enough (the direct one may go over words of bfloat16); or the same with
 * a weight that is transformed in the call, where what that takes is worth its memory. */
static Way best_way(const Target *t, const ImplConfig *config, const Node *call, int word)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  int64_t n = known(y->shape[0]);
  Sizes s = {n ? (double)n : 1,          (double)known(w->shape[1]), (double)known(w->shape[0]),
             (double)known(y->shape[2]), (double)known(y->shape[3]), dtype_bytes(y->dtype),
             (double)a->groups};
  Way best = {0};
  int64_t cb, ob;
  if (!s.y || !s.x || !whole_blocks(t, call, &cb, &ob)) return best;
  best = (Way){0, true, word > 1 ? words_seconds(t, &s, word) : direct_seconds(t, &s), 9 * s.c * s.o * s.bytes};
  bool half = y->dtype.bits == 16 && config->fast_math == FAST_FP16;
  bool same = known(w->shape[2]) == 3 && known(w->shape[3]) == 3;
  for (int i = 0; i < a->strides.n; i++) same &= a->strides.v[i] == 1;
  for (int i = 0; i < a->dilation.n; i++) same &= a->dilation.v[i] == 1;
  if (config->no_winograd || !same || (y->dtype.bits != 32 && !half)) return best;
  for (size_t i = 0; i < TILES; i++) {
    int tile = winograd_tiles[i].tile;
    Way way = {tile, true, winograd_seconds(t, &s, tile), (tile + 2) * (tile + 2) * s.c * s.o * s.bytes};
    if (is_exact_enough(i, s.c, half) && way.seconds < best.seconds) best = way;
  }
  bool again = n && best.tile && may_transform(t, &s, best.tile);
  for (size_t i = 0; again && i < TILES; i++) {
    int tile = winograd_tiles[i].tile;
    Way way = {tile, false, winograd_seconds(t, &s, tile) + transforming_seconds(t, &s, tile), 9 * s.c * s.o * s.bytes};
    if (is_exact_enough(i, s.c, half) && score(config, &way) < score(config, &best)) best = way;
  }
  return best;
}

static void alter_to_winograd(Module *m, const Node *call, const Way *way, int64_t cb, int64_t ob, AlteredCall *out)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  WinogradAttrs *to = attrs_new(m, &Winograd_attrs);
  to->tile_size = way->tile;
  to->padding = a->padding;
  to->groups = a->groups;
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  to->transformed = way->before;
  WinogradWeightAttrs *wt = attrs_new(m, &WinogradWeight_attrs);
  wt->tile_size = way->tile;
  const Node *w = call->arg[1];
  if (way->before)
    w = node_call(m, opdef_get(m->ctx, "nn.contrib_conv2d_winograd_weight_transform"), 1, &w, wt, w->name);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_winograd_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, w, way->before ? "HWOI" : "OIHW",
                                arena_printf(m->arena, "%s%" PRId64 "o", way->before ? "HWOI" : "OIHW", ob));
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
}

/* Blocks of channels that hold whole words, and the elements of a word: four where a tile is made in blocks.  0: the
 * convolution has none. */
static int conv_word(const Target *t, const Node *call, int64_t *cb, int64_t *ob)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *y = call->type;
  int64_t o = known(call->arg[1]->type->shape[0]);
  *cb = alter_block(t, 32, known(call->arg[0]->type->shape[1]));
  *ob = alter_block(t, 32, o);
  if (a->groups != 1 || !*ob || !*cb || *cb % 2) return 0;
  /* what panels.c is chosen for */
  bool packed = known(y->shape[0]) && tile_block_rows(t, *ob, o / *ob, known(y->shape[2]) * known(y->shape[3]));
  return *cb % 4 == 0 && packed ? 4 : 2;
}

static bool alter_word_conv(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  int64_t cb, ob;
  int word = is_common_conv(call) ? conv_word(t, call, &cb, &ob) : 0;
  if (!word || !alter_is_constant(m->ctx, call->arg[1])) return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, call->u.call.attrs);
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  to->out_dtype = DT_F32;
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o", cb / word, ob);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, words_of(m, call->arg[1], 1, word), "OIHW", to->kernel_layout);
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
  return true;
}

static bool alter_conv(Module *m, const Target *t, const ImplConfig *config, const Node *call, AlteredCall *out)
{
  if (sums_words(call)) return alter_word_conv(m, t, call, out);
  if (!is_plain_conv(call)) return false;
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  int64_t o = known(w->shape[0]);
  int64_t c = known(call->arg[0]->type->shape[1]);
  int64_t cb, ob;
  bool depthwise = a->groups > 1 && a->groups == c && o == c;
  bool whole = whole_blocks(t, call, &cb, &ob);
  Way way = whole && alter_is_constant(m->ctx, call->arg[1]) ? best_way(t, config, call, 1) : (Way){0};
  if (way.tile) {
    alter_to_winograd(m, call, &way, cb, ob, out);
    return true;
  }
  if (a->groups != 1 && !depthwise) return alter_any_conv(m, t, call, out);
  if (!ob || (depthwise && !cb)) return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->data_layout = cb ? blocked(m, cb) : "NCHW";
  to->out_layout = blocked(m, ob);
  to->kernel_layout = cb && !depthwise ? arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o", cb, ob)
                                       : arena_printf(m->arena, "OIHW%" PRId64 "o", ob);
  *out = (AlteredCall){
    .op = opdef_get(m->ctx, depthwise ? "nn.contrib_depthwise_conv2d_NCHWc" : "nn.contrib_conv2d_NCHWc"),
    .attrs = to,
    .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  if (cb) out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
  return true;
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Share of the peak over rows whose number nobody knows beforehand, often few: whole tiles are computed
 * (matmul.c), half of the last one for nothing on average. */
static double open_speed(const Target *t, int64_t vectors, int64_t tile_rows)
{
  static const double ROWS = 16;
  return tile_speed(t, vectors, 1, tile_rows, (Tile){1, 1, tile_rows}) * ROWS / (ROWS + (double)(tile_rows - 1) / 2);
}

/* Columns of a panel that divide n, or 0. */
static int64_t panel_width(const Target *t, int bits, int64_t n, int64_t rows)
{
  /* sums enough for few rows */
  int64_t lanes = target_lanes(t, bits);
  int64_t best = 0;
  int64_t most = rows && rows < 4 && !t->broadcast_load ? 8 : 4;
  double top = 0;
  for (int64_t d = lanes; d <= most * lanes && d <= n; d++) {
    int64_t vectors = alter_block_vectors(d, lanes);
    if (n % d || vectors > t->vector_registers / 4) continue;
    /* part of a vector does not meet a lane */
    if (!t->broadcast_load && d % lanes && best % lanes == 0 && best) continue;
    Tile k = tile_best(t, vectors, 1, 1, rows ? rows : 1 << 20);
    int64_t packed = d % lanes ? 0 : tile_packed_rows(t, bits, vectors, n / d, rows);
    if (packed) k.x = packed;
    double speed = rows ? tile_speed(t, vectors, 1, rows, k) : open_speed(t, vectors, k.x);
    speed *= (double)d / (double)(vectors * lanes);
    if (speed <= top) continue;
    top = speed;
    best = d;
  }
  return best;
}

/* A product of a matrix with a weight known at compile time. */
typedef struct Weighted {
  bool turned; /* the weight is (n, k) */
  /* rows 0: not known; width of a panel, of one for 2 x 2 blocks over fours (0: none) */
  int64_t rows, n, k, width, blocks;
} Weighted;

static bool read_product(Ctx *ctx, const Target *t, const Node *call, Weighted *out)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  bool turned = true;
  if (call->u.call.op->attrs == &Matmul_attrs) {
    const MatmulAttrs *a = call->u.call.attrs;
    if (a->transpose_a) return false;
    turned = a->transpose_b;
  }
  if (x->kind != TY_TENSOR || x->ndim != 2 || w->ndim != 2 || !known(w->shape[0]) || !known(w->shape[1])) return false;
  *out = (Weighted){turned, known(x->shape[0]), known(w->shape[turned ? 0 : 1]), known(w->shape[turned ? 1 : 0]), 0, 0};
  out->width = panel_width(t, y->dtype.bits, out->n, out->rows);
  out->blocks = tile_block_columns(t, out->n, out->rows);
  return alter_is_constant(ctx, call->arg[1]);
}

/* Elements of a word over which a product of bfloat16 is made; 0: there is no such form of it. */
static int product_word(const Weighted *p)
{
  return p->blocks ? 4 : p->k % 2 == 0 && (p->width || p->rows == 1) ? 2 : 0;
}

static bool alter_product(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  Weighted p;
  if (!read_product(m->ctx, t, call, &p)) return false;
  int word = !sums_words(call) ? 1 : product_word(&p);
  if (word == 4) p.width = p.blocks;
  bool same = x->dtype.code == DT_FLOAT && dtype_eq(x->dtype, w->dtype) && dtype_eq(x->dtype, y->dtype);
  /* One row reads the weight once, straight ahead, as it lies; but panels spare the sum over a vector's lanes where
   * loads wait for it. */
  bool as_it_lies =
      p.rows == 1 && p.turned && (t->broadcast_load || y->dtype.bits != 32 || p.width < 4 * target_lanes(t, 32));
  if (!p.width || (!same && word < 2) || as_it_lies) return false;
  DensePackAttrs *to = attrs_new(m, &DensePack_attrs);
  to->units = p.n;
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n", p.width);
  if (word > 1) to->out_dtype = DT_F32;
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_dense_pack"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  const Node *weight = word > 1 ? words_of(m, call->arg[1], p.turned ? 1 : 0, word) : call->arg[1];
  out->arg[1] = alter_transform(m, weight, p.turned ? "NC" : "CN", to->weight_layout);
  return true;
}

/* ---- bfloat16 -------------------------------------------------------------------------------------- */

bool impl_prefers_pairs(Ctx *ctx, const Target *t, const ImplConfig *config, const Node *call)
{
  if (call->kind != N_CALL || call->type->kind != TY_TENSOR || t->kind == TARGET_CUDA) return false;
  const char *op = call->u.call.op->name;
  int64_t cb, ob;
  Weighted p;
  bool conv = !strcmp(op, "nn.conv2d");
  if ((!conv && strcmp(op, "nn.dense") && strcmp(op, "nn.matmul")) || !dtype_eq(call->type->dtype, DT_F32) ||
      !dtype_eq(call->arg[0]->type->dtype, DT_F32))
    return false;
  int word = 0;
  if (conv && is_plain_conv(call)) word = conv_word(t, call, &cb, &ob);
  if (!conv && read_product(ctx, t, call, &p)) word = product_word(&p);
  if (!word || !words_pay(t, impl_flops(call), type_known_elements(call->arg[1]->type), word)) return false;
  return !conv || (alter_is_constant(ctx, call->arg[1]) && !best_way(t, config, call, word).tile);
}

void impl_weigh(Ctx *ctx, const Target *t, ImplConfig *config, int n, const Node *const *node)
{
  static const double REACHED = 0.75; /* share of the peak, by all that is not decided here */
  ImplConfig fastest = *config;
  fastest.seconds = fastest.bytes = config->seconds = config->bytes = 0;
  for (int i = 0; i < n; i++) {
    const Node *call = node[i];
    if (call->kind == N_CONST) config->bytes += type_known_elements(call->type) * dtype_bytes(call->type->dtype);
    if (call->kind != N_CALL || !call->type || call->type->kind != TY_TENSOR) continue;
    bool conv =
        !strcmp(call->u.call.op->name, "nn.conv2d") && is_plain_conv(call) && alter_is_constant(ctx, call->arg[1]);
    Way way = conv ? best_way(t, &fastest, call, 1) : (Way){0};
    config->seconds += way.tile ? way.seconds : impl_flops(call) / (REACHED * cost_flops(t, 32));
    if (way.tile) config->bytes += way.bytes - type_known_elements(call->arg[1]->type) * dtype_bytes(call->type->dtype);
  }
}

/* The plan of least time that alters the call. */
static Plan best_altering(const ImplCall *c)
{
  PlanList list;
  Plan best = {0};
  impl_plans(c, &list);
  for (int i = 0; i < list.v.n; i++)
    if (list.v.v[i].alters && (!best.impl || list.v.v[i].seconds < best.seconds)) best = list.v.v[i];
  return best;
}

static void alter_by(const ImplCall *c, const Plan *p, AlteredCall *out)
{
  p->impl->alter(c, p->fields, out);
  out->plan = plan_text(c->m->arena, p);
}

bool impl_alter(Module *m, const Target *t, const ImplConfig *config, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || t->kind == TARGET_CUDA) return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.contrib_recurrent")) return recurrent_alter(m, t, call, out);
  if (call->type->kind != TY_TENSOR) return false;
  if (!strcmp(op, "nn.conv2d") && alter_conv(m, t, config, call, out)) return true;
  if (!strcmp(op, "nn.conv1d") || !strcmp(op, "nn.conv3d") ||
      (str_starts(op, "nn.conv") && str_ends(op, "d_transpose")))
    if (alter_any_conv(m, t, call, out)) return true;
  ImplCall c = {m, t, config, call};
  Plan p = best_altering(&c);
  if (p.impl) {
    alter_by(&c, &p, out);
    return true;
  }
  if (!strcmp(op, "nn.dense") || !strcmp(op, "nn.matmul")) return alter_product(m, t, call, out);
  return false;
}

bool impl_alter_alone(Module *m, const Target *t, const ImplConfig *config, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || t->kind == TARGET_CUDA || config->fast_math != FAST_NONE || call->type->kind != TY_TENSOR)
    return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.conv2d") && planes_alter(m, t, call, out)) return true;
  ConvShape s;
  ImplCall c = {m, t, config, call};
  Plan p = best_altering(&c);
  if (!p.impl || !conv_shape(&c, &s) || p.seconds >= conv_blocked_seconds(t, call, impl_flops(call))) return false;
  alter_by(&c, &p, out);
  return true;
}
