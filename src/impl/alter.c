/* alter.c: which layout and algorithm a call wants.
 *
 * AlterOpLayout asks here for each call.  Convolutions over NCHW become convolutions over blocks
 * of channels; the block depends on the number of channels and the target alone, so that what
 * one convolution gives is what the next one takes.  Weights are transformed by operators in
 * the graph, which fold away when the weight is a constant. */
#include "impl/internal.h"
#include "op/nn.h"

static int64_t known(const Expr *e) { return e->kind == E_INT ? e->u.i : 0; }

/* Vector operations for a block of n elements: whole vectors, then halves, quarters, … */
int64_t block_vectors(int64_t n, int64_t lanes) { return n / lanes + __builtin_popcountll((uint64_t)(n % lanes)); }

/* Channels in a block: a divisor of n that fills vectors well, the smallest of the good ones; 0: none. */
int64_t alter_block(const Target *t, int bits, int64_t n)
{
  int64_t lanes = target_lanes(t, bits), best = 0, least = lanes < 8 ? 8 : lanes;
  double top = 0;
  if (n % least == 0) return least;
  for (int64_t d = 4; d <= 4 * lanes && d <= n; d += 4) {
    if (n % d) continue;
    double full = (double)d / (double)(block_vectors(d, lanes) * lanes);
    if (full <= top * 1.05) continue;
    top = full;
    best = d;
  }
  return best;
}

static const char *blocked(Module *m, int64_t block) { return arena_printf(m->arena, "NCHW%" PRId64 "c", block); }

static const Node *transform(Module *m, const Node *n, const char *from, const char *to)
{
  LayoutTransformAttrs *a = attrs_new(m, &LayoutTransform_attrs);
  a->src_layout = from;
  a->dst_layout = to;
  return node_call(m, op_get(m->ctx, "layout_transform"), 1, &n, a, n->name);
}

/* A weight that is known at compile time, or made from such. */
bool alter_is_constant(Ctx *ctx, const Node *n)
{
  if (n->kind == N_CONST) return true;
  Scope scope = scope_begin(ctx);
  const Node **node;
  int count = graph_post_order(scratch(ctx), n, &node);
  bool constant = true;
  for (int i = 0; i < count; i++) constant &= node[i]->kind == N_CONST || node[i]->kind == N_CALL || node[i]->kind == N_TUPLE || node[i]->kind == N_GET;
  scope_end(ctx, scope);
  return constant;
}

static bool is_plain_conv(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type, *x = call->arg[0]->type;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") || (a->out_layout && *a->out_layout && strcmp(a->out_layout, "NCHW"))) return false;
  if (x->kind != TY_TENSOR || w->kind != TY_TENSOR || x->ndim != 4 || w->ndim != 4 || !dtype_eq(x->dtype, w->dtype)) return false;
  for (int d = 0; d < 4; d++)
    if (!known(w->shape[d])) return false;
  return known(x->shape[1]) && x->dtype.code == DT_FLOAT && dtype_eq(call->type->dtype, x->dtype);
}

/* ---- Winograd or not ------------------------------------------------------------------------------ */

/* Largest relative error that a layer may add: well below what levels of optimisation may differ
 * by in a whole network. */
static const double ERROR_BOUND = 3e-5;

/* Outputs per tile and the error seen with sums over hundreds of channels (test_impl.c holds them
 * to it). */
static const struct { int tile; double error; } winograd_tiles[] = {{2, 5e-6}, {4, 2e-5}, {6, 2e-4}};

typedef struct Sizes {
  double n, c, o, y, x, bytes;
} Sizes;

/* Seconds: arithmetic near the peak, weights from memory, what lies between the stages from the
 * caches. */
static double direct_seconds(const Target *t, const Sizes *s)
{
  double flops = 2 * 9 * s->n * s->c * s->o * s->y * s->x;
  return flops / (0.92 * cost_flops(t, (int)(8 * s->bytes))) + 9 * s->c * s->o * s->bytes / cost_stream(t);
}

static double winograd_seconds(const Target *t, const Sizes *s, int tile)
{
  double alpha = tile + 2, points = alpha * alpha;
  double tiles = s->n * __builtin_ceil(s->y / tile) * __builtin_ceil(s->x / tile);
  double flops = 2 * points * tiles * s->c * s->o, sums = 2 * points * tiles * (s->c + s->o) * alpha / 2;
  double peak = cost_flops(t, (int)(8 * s->bytes));
  return flops / (0.8 * peak) + sums / (0.5 * peak) + 2 * points * tiles * (s->c + s->o) * s->bytes / cost_cache(t) +
         points * s->c * s->o * s->bytes / cost_stream(t);
}

/* Outputs per tile, or 0 when the direct way is faster or Winograd's is not exact enough. */
static int winograd_tile(const Target *t, const ImplConfig *config, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type, *y = call->type;
  if (config->no_winograd || a->groups != 1 || known(w->shape[2]) != 3 || known(w->shape[3]) != 3 || y->dtype.bits != 32) return 0;
  for (int i = 0; i < a->strides.n; i++)
    if (a->strides.v[i] != 1) return 0;
  for (int i = 0; i < a->dilation.n; i++)
    if (a->dilation.v[i] != 1) return 0;
  int64_t n = known(y->shape[0]);
  Sizes s = {n ? (double)n : 1, (double)known(w->shape[1]), (double)known(w->shape[0]), (double)known(y->shape[2]), (double)known(y->shape[3]), 4};
  if (!s.y || !s.x) return 0;
  double least = direct_seconds(t, &s);
  int best = 0;
  for (size_t i = 0; i < sizeof winograd_tiles / sizeof *winograd_tiles; i++) {
    double seconds = winograd_seconds(t, &s, winograd_tiles[i].tile);
    if (winograd_tiles[i].error > ERROR_BOUND || seconds >= least) continue;
    least = seconds;
    best = winograd_tiles[i].tile;
  }
  return best;
}

static void alter_to_winograd(Module *m, const Node *call, int tile, int64_t cb, int64_t ob, AlteredCall *out)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  WinogradAttrs *to = attrs_new(m, &Winograd_attrs);
  to->tile_size = tile;
  to->padding = a->padding;
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  WinogradWeightAttrs *wt = attrs_new(m, &WinogradWeight_attrs);
  wt->tile_size = tile;
  const Node *w = node_call(m, op_get(m->ctx, "nn.contrib_conv2d_winograd_weight_transform"), 1, &call->arg[1], wt, call->arg[1]->name);
  *out = (AlteredCall){.op = op_get(m->ctx, "nn.contrib_conv2d_winograd_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = transform(m, w, "HWOI", arena_printf(m->arena, "HWOI%" PRId64 "o", ob));
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
}

static bool alter_conv(Module *m, const Target *t, const ImplConfig *config, const Node *call, AlteredCall *out)
{
  if (!is_plain_conv(call)) return false;
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  int bits = call->type->dtype.bits;
  int64_t o = known(w->shape[0]), c = known(call->arg[0]->type->shape[1]);
  bool depthwise = a->groups > 1 && a->groups == c && o == c;
  if (a->groups != 1 && !depthwise) return false;
  int64_t ob = alter_block(t, bits, o), cb = alter_block(t, bits, c);
  if (!ob || (depthwise && !cb)) return false;
  int tile = cb && alter_is_constant(m->ctx, call->arg[1]) ? winograd_tile(t, config, call) : 0;
  if (tile) {
    alter_to_winograd(m, call, tile, cb, ob, out);
    return true;
  }
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->data_layout = cb ? blocked(m, cb) : "NCHW";
  to->out_layout = blocked(m, ob);
  to->kernel_layout = cb && !depthwise ? arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o", cb, ob) : arena_printf(m->arena, "OIHW%" PRId64 "o", ob);
  *out = (AlteredCall){.op = op_get(m->ctx, depthwise ? "nn.contrib_depthwise_conv2d_NCHWc" : "nn.contrib_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = transform(m, call->arg[1], "OIHW", to->kernel_layout);
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
  int64_t lanes = target_lanes(t, bits), best = 0;
  double top = 0;
  for (int64_t d = lanes; d <= 4 * lanes && d <= n; d++) {
    int64_t vectors = block_vectors(d, lanes);
    if (n % d || vectors > t->vector_registers / 4) continue;
    Tile k = tile_best(t, vectors, 1, 1, rows ? rows : 1 << 20);
    double speed = rows ? tile_speed(t, vectors, 1, rows, k) : open_speed(t, vectors, k.x);
    speed *= (double)d / (double)(vectors * lanes);
    if (speed <= top) continue;
    top = speed;
    best = d;
  }
  return best;
}

static bool alter_product(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *x = call->arg[0]->type, *w = call->arg[1]->type, *y = call->type;
  bool turned = true;
  if (call->u.call.op->attrs == &Matmul_attrs) {
    const MatmulAttrs *a = call->u.call.attrs;
    if (a->transpose_a) return false;
    turned = a->transpose_b;
  }
  if (x->kind != TY_TENSOR || x->ndim != 2 || w->ndim != 2 || !known(w->shape[0]) || !known(w->shape[1])) return false;
  if (x->dtype.code != DT_FLOAT || !dtype_eq(x->dtype, w->dtype) || !dtype_eq(x->dtype, y->dtype)) return false;
  int64_t n = known(w->shape[turned ? 0 : 1]), width = panel_width(t, y->dtype.bits, n, known(x->shape[0]));
  if (!width || !alter_is_constant(m->ctx, call->arg[1])) return false;
  /* One row reads the weight once, straight ahead, as it lies. */
  if (known(x->shape[0]) == 1 && turned) return false;
  DensePackAttrs *to = attrs_new(m, &DensePack_attrs);
  to->units = n;
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n", width);
  *out = (AlteredCall){.op = op_get(m->ctx, "nn.contrib_dense_pack"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = transform(m, call->arg[1], turned ? "NC" : "CN", to->weight_layout);
  return true;
}

bool impl_alter(Module *m, const Target *t, const ImplConfig *config, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || t->kind == TARGET_CUDA) return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.contrib_recurrent")) return recurrent_alter(m, t, call, out);
  if (call->type->kind != TY_TENSOR) return false;
  if (!strcmp(op, "nn.conv2d")) return alter_conv(m, t, config, call, out);
  if (!strcmp(op, "nn.dense") || !strcmp(op, "nn.matmul")) return alter_product(m, t, call, out);
  return false;
}
