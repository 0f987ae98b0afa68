/* matmul.c: matrix products: dense, matmul, batch_matmul, dense over packed weights.
 *
 *   for batch
 *     for blocks of column panels                                 threads
 *       b_pack[panel, k, column] = b                              unless b lies in panels, or is read as it lies
 *       for bands of row tiles, panels of the block, tiles of the band
 *         tile[rows, columns] = 0                                 registers
 *         for k: tile += a[row, k] (one element, or a lane) * b[k, columns]
 *         epilogue on the tile, store
 *
 * A weight that is known at compile time is packed then (nn.contrib_dense_pack), its last panel filled up with zeros:
 * whole tiles are computed and only what is there is stored.  a is read as it lies, or from a copy (tile, k, row).  A
 * panel stays in a cache while the rows of a band pass by, a band while all panels do.
 *
 * A sum may be made in rounds: `head` is the sum of all rounds but the last, in memory, and the epilogue stands behind
 * head + last. */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define MATMUL_PLAN(A, S)                                                                  \
  A(S, INT, width, NULL, "columns of a register tile, and of a panel of b")                \
  A(S, INT, rows, NULL, "rows of a register tile")                                         \
  A(S, INT, steps, NULL, "steps of the sum written out")                                   \
  A(S, BOOL, packed, NULL, "a is copied into panels of as many rows")                      \
  A(S, INT, block, NULL, "panels of b that are copied together; 0: b is read where it is") \
  A(S, INT, band, NULL, "tiles of rows that pass by one panel before the next; 0: all")    \
  A(S, INT, rounds, NULL, "parts of the sum that pass one after the other")                \
  A(S, BOOL, straight, NULL, "a few rows of b at a time from left to right, the sums waiting in memory")
DEFINE_PLAN(MatmulPlan, MATMUL_PLAN)

/* ---- a product's sizes ------------------------------------------------------------------------------ */

/* How the operands of a call lie. */
typedef struct Product {
  bool ta, tb;
  bool plain;        /* one float type throughout, at least 32 bits wide */
  int word;          /* steps of k that lie side by side in b, bfloat16, and are made together; else 1 */
  int bits;          /* of a sum */
  int bytes;         /* of a step of b */
  int nd;            /* dimensions of the result */
  int64_t batch;     /* product of all but the last two; 0: not known */
  int64_t m, n, k;   /* 0: not known */
  int64_t panel;     /* columns of the panels in which b is given; 0: it is a matrix */
  bool own_a, own_b; /* each of the batch has its own */
  bool constant;     /* b is known at compile time */
} Product;

enum { MANY = 1 << 20 }; /* stands for a number that is not known */

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

static Product product_of(const OpDef *op, const void *attrs, const Type *a, const Type *b, const Type *out)
{
  Product p = {.tb = true, .nd = out->ndim, .bits = out->dtype.bits, .word = 1, .batch = 1};
  if (p.bits < 32) p.bits = 32;
  p.bytes = dtype_bytes(b->dtype);
  if (op->attrs == &Matmul_attrs) {
    const MatmulAttrs *t = attrs;
    p.ta = t->transpose_a, p.tb = t->transpose_b;
  } else if (op->attrs == &BatchMatmul_attrs) {
    const BatchMatmulAttrs *t = attrs;
    p.ta = t->transpose_a, p.tb = t->transpose_b;
  } else if (op->attrs == &DensePack_attrs) {
    p.tb = false;
    p.panel = known(b->shape[2]);
    if (b->ndim == 4 && dtype_eq(b->dtype, DT_BF16)) p.word = (int)known(b->shape[3]);
    p.bytes *= p.word;
  }
  p.n = known(out->shape[p.nd - 1]);
  p.m = p.nd > 1 ? known(out->shape[p.nd - 2]) : 1;
  p.k = known(p.panel ? b->shape[1] : b->shape[b->ndim - (p.tb ? 1 : 2)]);
  for (int d = 0; d < p.nd - 2; d++) p.batch *= known(out->shape[d]);
  p.plain = dtype_eq(a->dtype, b->dtype) && dtype_eq(a->dtype, out->dtype) && out->dtype.code == DT_FLOAT &&
            out->dtype.bits >= 32 && p.nd >= 2;
  p.own_a = p.nd > 2 && !(p.nd == 3 && expr_is_int(a->shape[0], 1));
  p.own_b = !p.panel && b->ndim == 3 && !expr_is_int(b->shape[0], 1);
  return p;
}

static Product product_of_call(const Node *call)
{
  return product_of(call->u.call.op, call->u.call.attrs, call->arg[0]->type, call->arg[1]->type, call->type);
}

/* Has the result no element?  A size of nothing is known, but counts as one that is not. */
static bool is_empty(const Node *call)
{
  const Type *y = call->type;
  for (int d = 0; d < y->ndim; d++)
    if (expr_is_int(y->shape[d], 0)) return true;
  return false;
}

/* ---- the model ------------------------------------------------------------------------------------------ */

/* Vectors for a tile's columns: whole ones, then halves, quarters, … */
static int64_t vectors_of(const Target *t, const Product *p, int64_t width)
{
  return alter_block_vectors(width, target_lanes(t, p->bits));
}

/* Registers hold the sums, the step's vectors of b and its elements of a: one where a load spreads it, vectors of rows
 * where they are packed, else a vector of steps for each row; and one more, into which the next load goes. */
static bool tile_fits(const Target *t, const Product *p, int64_t width, int64_t rows, bool lanes_of_rows)
{
  int64_t v = vectors_of(t, p, width);
  int64_t elements = t->broadcast_load ? 1 : lanes_of_rows ? up(rows, target_lanes(t, p->bits)) : rows;
  return v * rows + v + elements < t->vector_registers;
}

/* Cycles of one step of the sum in a tile of so many rows and vectors, all it reads being near. */
static double step_cycles(const Target *t, const Product *p, const MatmulPlan *plan, int64_t vectors, int64_t rows)
{
  static const double LOOP = 1;    /* of one turn, which steps share */
  static const double WAIT = 0.06; /* what does not overlap, for each load */
  double lanes = target_lanes(t, p->bits);
  bool by_lane = plan->packed || p->ta || plan->steps % target_lanes(t, p->bits) == 0;
  double loads =
      (double)vectors + (t->broadcast_load || !by_lane ? (double)rows : __builtin_ceil((double)rows / lanes));
  double cycles = (double)(vectors * rows) / cost_pipes(t);
  double ports = (double)t->core.load_bits / t->vector_bits;
  double latency = t->core.fma_latency;
  if (loads / ports > cycles) cycles = loads / ports;
  if (latency > cycles) cycles = latency;
  return cycles + LOOP / (double)plan->steps + WAIT * loads;
}

typedef struct Sizes {
  double m, n, k, batch, bytes;
  double panels, tiles; /* tiles: whole ones and the last */
} Sizes;

/* Cycles of all tiles over one panel of so many vectors: rows left over are a smaller tile. */
static double panel_cycles(const Target *t, const Product *p, const MatmulPlan *plan, const Sizes *s, int64_t vectors)
{
  static const double ENDS = 6; /* of a tile, and for each of its vectors: zeros, the way to the store */
  static const double EACH = 1.2;
  int64_t left = p->m ? p->m % plan->rows : 0;
  double whole = p->m ? (double)(p->m / plan->rows) : s->tiles;
  double cycles =
      whole * (s->k * step_cycles(t, p, plan, vectors, plan->rows) + ENDS + EACH * (double)(vectors * plan->rows));
  if (left) cycles += s->k * step_cycles(t, p, plan, vectors, left) + ENDS + EACH * (double)(vectors * left);
  return cycles;
}

/* Cycles to copy so many elements, whose source takes so many bytes altogether and is read in runs. */
static double copy_cycles(const Target *t, double elements, double bytes, bool turned, double run, double source)
{
  static const double STRAIGHT = 1.3;
  static const double TURNED = 3; /* of a vector */
  static const double BEGUN = 40; /* of a run that nobody saw coming */
  double hz = 1e9 * t->core.ghz;
  double vectors = elements * bytes / (t->vector_bits / 8.0);
  double cycles = vectors * (turned ? TURNED : STRAIGHT);
  if (source > (double)cost_l2(t) / 2) {
    cycles += elements * bytes / cost_stream(t) * hz;
    if (!turned && run < 1024) cycles += BEGUN * elements * bytes / run;
  }
  return cycles;
}

/* Does each thread have whole products of the batch? */
static bool batch_apart(const Product *p, int threads)
{
  static const double BUSY = 0.8;
  return p->nd > 2 && (threads == 1 || !p->batch || cost_busy((double)p->batch, threads) > BUSY);
}

/* Seconds: arithmetic as fast as the register tile is; operands from the cache in which they stay; copies. */
static double matmul_seconds(const Target *t, const Product *p, const MatmulPlan *plan)
{
  static const double OPEN_ROWS = 24; /* rows that nobody knows are often few */
  static const double OPEN_COLUMNS = 128;
  static const double OPEN_STEPS = 256;
  static const double OPEN_BATCH = 16;
  /* cycles for a line of b as it lies, some distance from the last one; measured on a Neoverse-N1 */
  static const double LINE_MEMORY = 28;
  static const double LINE_L2 = 4;
  static const double SHARED = 0.4; /* of the shorter of computing and reading that does not overlap with the other */
  double hz = 1e9 * t->core.ghz;
  double words = p->word > 1 ? cost_words(t, p->word) / p->word : 1;
  Sizes s = {.m = p->m ? (double)p->m : OPEN_ROWS,
             .n = p->n ? (double)p->n : OPEN_COLUMNS,
             .k = p->k ? (double)p->k : OPEN_STEPS,
             .batch = p->batch ? (double)p->batch : OPEN_BATCH,
             .bytes = p->bytes};
  bool peeled = !p->panel && !plan->block; /* the last panel is as wide as what is left */
  int64_t whole = (int64_t)s.n / plan->width;
  int64_t left = (int64_t)s.n % plan->width;
  s.panels = (double)up((int64_t)s.n, plan->width);
  s.tiles = __builtin_ceil(s.m / (double)plan->rows);
  double sums =
      (double)(peeled ? whole : whole + (left > 0)) * panel_cycles(t, p, plan, &s, vectors_of(t, p, plan->width));
  if (peeled && left) sums += panel_cycles(t, p, plan, &s, vectors_of(t, p, left));
  sums /= words;
  /* what a tile reads: its panel of b, once for each tile; its rows of a, once for each panel */
  double l1 = (double)cost_l1(t) * 0.6;
  double l2 = (double)cost_l2(t) * 0.6;
  double k = s.k / (double)plan->rounds;
  double width = (double)plan->width;
  double panel = width * k * s.bytes;
  double strip = (double)plan->rows * k * s.bytes;
  double band = (plan->band ? (double)(plan->band * plan->rows) : s.m) * k * s.bytes;
  double bands = plan->band ? __builtin_ceil(s.tiles / (double)plan->band) : 1;
  double all_b = s.k * s.n * s.bytes;
  double all_a = s.k * s.m * s.bytes;
  double path = 0.4 * t->core.l2_path; /* bytes in a cycle from the second-level cache */
  double memory = hz / cost_stream(t); /* cycles for a byte */
  double far = 0;                      /* cycles of reading */
  bool strided = peeled && !p->panel;
  if (strided) {
    /* lines of b some distance apart, as many as there are steps */
    double apart = s.n * s.bytes;
    double lines = s.k * __builtin_ceil(width * s.bytes / CACHE_LINE +
                                        (apart == CACHE_LINE * __builtin_floor(apart / CACHE_LINE) ? 0 : 0.7));
    double from = all_b * (p->own_b ? s.batch : 1) > (double)cost_l2(t) * 0.8 ? LINE_MEMORY : all_b > l1 ? LINE_L2 : 0;
    double again = lines * CACHE_LINE > l1 ? (all_b > l2 ? LINE_MEMORY / 2 : LINE_L2) : 0;
    /* one panel has all of a row: the next one follows it; each band goes over all panels */
    double first = s.panels > 1 ? s.panels * lines * from : all_b * (from == LINE_MEMORY ? memory : 1 / path);
    far += bands * first + s.panels * lines * (s.tiles - bands) * again;
  } else {
    double again = panel + strip > l1 ? (panel > l2 ? memory : 1 / path) : 0;
    double first = all_b > l2 ? memory : 1 / path;
    far += s.panels * panel * (double)plan->rounds * (bands * first + (s.tiles - bands) * again);
  }
  {
    double again = all_a * (p->own_a ? s.batch : 1) / (double)plan->rounds <= l1 / 2 ? 0
                   : band <= l2                                                      ? 1 / path
                                                                                     : memory;
    double first = all_a > l2 ? memory : 1 / path;
    far += s.tiles * strip * (double)plan->rounds * (first + (s.panels - 1) * again);
  }
  if (plan->straight) {
    /* each vector of the result is loaded and stored once for the steps written out */
    double v = s.n * s.bytes / (t->vector_bits / 8.0);
    double loads = v * s.k * (1 + 2 * s.m / (double)plan->steps) * t->vector_bits / t->core.load_bits;
    sums = loads > v * s.k * s.m / cost_pipes(t) ? loads : v * s.k * s.m / cost_pipes(t);
    sums += s.panels * s.k / (double)plan->steps;
    far = all_b * (all_b * (p->own_b ? s.batch : 1) > l2 ? memory : 1 / path);
  }
  double lower = sums < far ? sums : far;
  double cycles = (sums < far ? far : sums) + (strided && !plan->straight ? 0.7 : SHARED) * lower;
  double copies = 0;
  if (plan->packed) copies += copy_cycles(t, s.k * s.m, s.bytes, !p->ta, 4096, all_a) * (p->own_a ? s.batch : 1);
  if (plan->block)
    copies += copy_cycles(t, s.k * s.panels * width, s.bytes, p->tb, (double)plan->block * width * s.bytes, all_b) *
              (p->own_b ? s.batch : 1);
  /* A result that no cache holds is written straight ahead where a band is one tile; else in pieces of lines. */
  double all_c = s.m * s.n * s.bytes;
  double stored = 0;
  if (all_c * s.batch > (double)cost_l2(t)) stored = all_c * memory * (plan->band == 1 || s.tiles <= 1 ? 1 : 2);
  /* rounds but the first read and write the result */
  double added = (double)(plan->rounds - 1) * s.m * s.n * s.bytes * (2 / path);
  double flops = 2 * s.m * s.n * s.k * s.batch;
  int threads = cost_threads(t, flops, 0);
  bool several = plan->block && (double)plan->block < s.panels;
  double pieces = s.batch;
  if (!batch_apart(p, threads)) pieces *= several ? __builtin_ceil(s.panels / (double)plan->block) : bands * s.panels;
  return (s.batch * (cycles + added + stored) + copies) / hz / threads / cost_busy(pieces, threads);
}

/* ---- plans ------------------------------------------------------------------------------------------------ */

/* Tiles of a band: all of them (0), as many as the second-level cache holds of a, as give every thread
 * some, or one, while all of b stays near. */
static int64_t band_of(const Target *t, const Product *p, const MatmulPlan *plan, int which)
{
  int64_t strip = plan->rows * up(p->k, plan->rounds) * p->bytes;
  int64_t tiles = up(p->m, plan->rows);
  if (which == 3) return tiles > 1 && p->k * p->n * p->bytes <= cost_l2(t) / 2 && p->n ? 1 : 0;
  int64_t bands = which == 1 ? up(tiles, cost_l2(t) / 2 / (strip ? strip : 1) + 1) : 2 * (int64_t)t->num_cores;
  if (!which || !p->m || bands < 2 || bands > tiles || (which == 2 && t->num_cores < 2)) return 0;
  return up(tiles, bands);
}

static void add_plan(PlanList *list, const Target *t, const Product *p, const MatmulPlan *plan, bool alters)
{
  int64_t columns = alters ? up(p->n, plan->width) * plan->width : p->n;
  double bytes = alters || p->constant ? (double)(columns * p->k * p->bytes) : 0;
  list->alters = alters;
  plan_add(list, plan, matmul_seconds(t, p, plan), bytes);
}

/* Elements of rows that lie apart are loaded as vectors, for all the steps written out; steps over b as it lies have a
 * place to load from each. */
static bool steps_fit(const Target *t, const Product *p, const MatmulPlan *plan)
{
  int64_t lanes = target_lanes(t, p->bits);
  if (t->broadcast_load || plan->steps <= lanes) return true;
  int64_t v = vectors_of(t, p, plan->width);
  bool held = plan->packed || p->ta || plan->rows * v + plan->rows * up(plan->steps, lanes) + v < t->vector_registers;
  return held && (p->panel || plan->block || plan->rows == 1);
}

/* All that is left open once the tile and where its operands lie are known. */
static void add_blockings(PlanList *list, const Target *t, const Product *p, MatmulPlan plan, bool alters)
{
  static const int64_t steps[] = {1, 2, 4, 8};
  int64_t sums = plan.rows * vectors_of(t, p, plan.width);
  int64_t lanes = target_lanes(t, p->bits);
  bool shares = !plan.packed && !p->ta && lanes <= 8 && (!p->k || p->k >= lanes); /* steps, a vector of elements */
  int64_t round = cost_l2(t) / 2 / (128 * p->bytes); /* of which some hundred rows stay near */
  bool may_round = p->nd == 2 && p->m && p->n && p->k && (p->panel || plan.block) && p->k >= 2 * round &&
                   (p->plain || plan.packed) && p->m > plan.rows;
  for (int r = 0; r < (may_round ? 2 : 1); r++) {
    plan.rounds = r ? up(p->k, round) : 1;
    for (int b = 0; b < 4; b++) {
      plan.band = band_of(t, p, &plan, b);
      if (b && !plan.band) continue;
      for (int i = 0; i < 4; i++) {
        plan.steps = steps[i];
        if (tile_steps_dear(t) && plan.steps != (shares ? lanes : 1)) continue;
        /* some hundred multiply-adds; fewer where the sum is shorter */
        int64_t more = i < 3 && (!p->k || steps[i + 1] <= p->k) ? steps[i + 1] : 0;
        if (!steps_fit(t, p, &plan)) continue;
        if (sums * plan.steps > 160 || (p->k && plan.steps > p->k)) continue;
        if (sums * plan.steps < 48 && more && !tile_steps_dear(t) && sums * more <= 160) continue;
        add_plan(list, t, p, &plan, alters);
      }
    }
  }
}

/* Tiles of a width, over b as it lies (block 0) or copied. */
static void add_tiles(PlanList *list, const Target *t, const Product *p, int64_t width, int64_t block, bool alters)
{
  int64_t lanes = target_lanes(t, p->bits);
  int64_t most = p->m ? p->m : 16;
  for (int64_t rows = 1; rows <= 16 && rows <= most; rows++) {
    MatmulPlan plan = {.width = width, .rows = rows, .block = block};
    if (tile_fits(t, p, width, rows, p->ta)) add_blockings(list, t, p, plan, alters);
    bool may_pack = (p->plain || p->word == 2) && p->m && p->k && p->m >= rows &&
                    (t->broadcast_load || rows % lanes == 0) && width % lanes == 0 &&
                    tile_fits(t, p, width, rows, true) && (p->nd == 2 || (p->nd == 3 && !p->panel));
    plan.packed = true;
    if (may_pack) add_blockings(list, t, p, plan, alters);
  }
}

/* Vectors of columns that a tile of few rows may have. */
static int64_t most_vectors(const Target *t, const Product *p)
{
  return p->m && p->m < 4 ? t->vector_registers / 2 / p->m : 6;
}

/* Few rows of a: b is read once, as memory gives it; as one tile of all columns does where they are few, and as need
 * not be where a cache has b. */
static void add_straight(PlanList *list, const Target *t, const Product *p)
{
  enum { MOST_ROWS = 6 };
  int64_t lanes = target_lanes(t, p->bits);
  if (!p->m || p->m > MOST_ROWS || p->tb || p->ta || !p->n || p->k < 8) return;
  if (p->n <= most_vectors(t, p) * lanes || p->k * p->n * p->bytes <= cost_l2(t) / 2) return;
  for (int64_t v = 1; v <= 2; v++)
    for (int64_t steps = 4; steps <= 8; steps *= 2) {
      MatmulPlan plan = {.width = v * lanes, .rows = p->m, .steps = steps, .rounds = 1, .straight = true};
      if (plan.width <= p->n && v * steps * p->m <= 96) add_plan(list, t, p, &plan, false);
    }
}

/* The call as it stands. */
void matmul_plans(const ImplCall *call, PlanList *list)
{
  enum { LEAST_ROWS = 6 };    /* before that a turned b is read once, as it lies, by the generic schedule */
  enum { LEAST_COLUMNS = 4 }; /* fewer are a panel that is filled up */
  const Target *t = call->target;
  Product p = product_of_call(call->call);
  p.constant = alter_is_constant(call->m->ctx, call->call->arg[1]);
  if (is_empty(call->call) || !p.plain || p.k == 1 || (p.tb && ((p.m && p.m < LEAST_ROWS) || !p.k))) return;
  if (p.n == 1 && !p.ta) return; /* rows by one vector are sums along both: the generic schedule's */
  int64_t lanes = target_lanes(t, p.bits);
  add_straight(list, t, &p);
  for (int64_t v = 1; v <= most_vectors(t, &p); v++) {
    int64_t width = v * lanes;
    if (!p.n) {
      if (p.k) add_tiles(list, t, &p, width, 1, false);
      continue;
    }
    if (width >= 2 * p.n && v > 1) continue;
    int64_t panels = up(p.n, width);
    if (!p.tb && p.n >= LEAST_COLUMNS) add_tiles(list, t, &p, width, 0, false);
    bool narrow = !p.tb && p.n < LEAST_COLUMNS && p.m != 1;
    if ((p.m && p.m < LEAST_ROWS && !narrow) || !p.k) continue;
    add_tiles(list, t, &p, width, panels, false);
    int64_t fit = cost_l2(t) / 2 / (width * p.k * p.bytes);
    fit = fit < 1 ? 1 : fit;
    if (fit < panels && (p.own_b || p.nd == 2)) add_tiles(list, t, &p, width, up(panels, up(panels, fit)), false);
  }
}

/* ---- b in panels ------------------------------------------------------------------------------------------- */

/* Over a weight in panels; or the weight is known at compile time and is brought into them. */
void matmul_packed_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  const Node *n = call->call;
  Product p = product_of_call(n);
  int64_t lanes = target_lanes(t, p.bits);
  if (is_empty(n)) return;
  if (p.panel) {
    if (n->type->dtype.code != DT_FLOAT || !p.n || p.word > 2 || (n->arg[1]->type->ndim == 4 && p.word == 1)) return;
    add_tiles(list, t, &p, p.panel, 0, false);
    return;
  }
  bool words = dtype_eq(n->arg[0]->type->dtype, DT_BF16) && dtype_eq(n->arg[1]->type->dtype, DT_BF16) &&
               dtype_eq(n->type->dtype, DT_F32);
  bool same = n->type->dtype.code == DT_FLOAT && dtype_eq(n->arg[0]->type->dtype, n->type->dtype) &&
              dtype_eq(n->arg[1]->type->dtype, n->type->dtype);
  if (p.ta || p.nd != 2 || !p.n || !p.k || (!same && !words) || !alter_is_constant(call->m->ctx, n->arg[1])) return;
  bool turned = p.tb;
  if (words && p.k % 2) return;
  Product in_panels = p;
  in_panels.tb = false;
  if (words) in_panels.word = 2, in_panels.bytes = 4, in_panels.k = p.k / 2;
  for (int64_t v = 1; v <= most_vectors(t, &p); v++) {
    int64_t width = v * lanes;
    /* One row reads the weight once, straight ahead, as it lies; but panels spare the sum over a vector's lanes where
     * loads wait for it. */
    if (p.m == 1 && turned && (t->broadcast_load || n->type->dtype.bits != 32 || v < 4)) continue;
    if ((width >= 2 * p.n && v > 1) || (!p.plain && p.n % width)) continue;
    in_panels.panel = width;
    add_tiles(list, t, &in_panels, width, 0, true);
  }
}

/* A weight (n, k), or (k, n), in panels, zeros behind the last column and the last step. */
const Node *matmul_panels(Module *m, const Node *weight, bool turned, int64_t width, int word, const char *layout)
{
  int64_t n = known(weight->type->shape[turned ? 0 : 1]);
  int64_t k = known(weight->type->shape[turned ? 1 : 0]);
  int64_t more[2];
  more[turned ? 0 : 1] = (width - n % width) % width;
  more[turned ? 1 : 0] = (word - k % word) % word;
  return alter_transform(m, alter_pad(m, weight, more), turned ? "NC" : "CN", layout);
}

void matmul_alter_to(const ImplCall *call, int64_t width, int word, AlteredCall *out)
{
  Module *m = call->m;
  const Node *n = call->call;
  Product p = product_of_call(n);
  DensePackAttrs *to = attrs_new(m, &DensePack_attrs);
  to->units = p.n;
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n", width);
  if (word > 1) {
    to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n%dc", width, word);
    to->out_dtype = DT_F32;
  }
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_dense_pack"), .attrs = to, .nargs = 2};
  out->arg[0] = n->arg[0];
  out->arg[1] = matmul_panels(m, n->arg[1], p.tb, width, word, to->weight_layout);
}

void matmul_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const MatmulPlan *p = plan;
  bool words = !dtype_eq(call->call->arg[0]->type->dtype, call->call->type->dtype);
  matmul_alter_to(call, p->width, words ? 2 : 1, out);
}

int matmul_word(Ctx *ctx, const Target *t, const Node *call)
{
  Product p = product_of_call(call);
  if (p.ta || p.nd != 2 || !p.n || !p.k || !alter_is_constant(ctx, call->arg[1])) return 0;
  for (int64_t w = 4; w <= 32; w += 4)
    if (p.n % w == 0 && tile_block_rows(t, w, p.n / w, p.m)) return 4;
  return p.k % 2 == 0 ? 2 : 0;
}

/* ---- the computation ---------------------------------------------------------------------------------------- */

typedef struct Operands {
  Module *m;
  const Product *p;
  const MatmulPlan *plan;
  const Tensor *a, *b;
  const Type *out;
  const Expr *rows, *columns; /* counted: whole tiles where rows are not known, whole panels where b lies in them */
} Operands;

/* Indices of a batch's operand: all but the last two, those of size 1 once for all. */
static void batch_index(Module *m, const Buffer *b, int nd, const Expr *const *at, const Expr **index)
{
  for (int d = 0; d < b->ndim - 2; d++) index[d] = expr_is_int(b->shape[d], 1) ? expr_i32(m, 0) : at[nd - b->ndim + d];
}

/* (batch…, tiles or panels, k, height) of the steps from `first` on; zeros behind the last row or column.  turned: the
 * operand has k in its last dimension. */
static const Tensor *pack(Module *m, const char *name, const Tensor *from, bool turned, int64_t height, int word,
                          int64_t first, const Expr *steps)
{
  const Buffer *buf = from->buffer;
  int nd = buf->ndim;
  const Expr *all = buf->shape[turned ? nd - 2 : nd - 1];
  const Expr *h = expr_i32(m, height);
  const Expr *shape[MAX_RANK + 1], *index[MAX_RANK];
  for (int d = 0; d < nd - 2; d++) shape[d] = buf->shape[d];
  shape[nd - 2] = nn_simplify(m, nn_ceildiv(m, all, h));
  shape[nd - 1] = steps;
  shape[nd] = h;
  Stage s = nn_stage(m, nd + 1, shape, NULL);
  const Expr *row = expr_add(m, expr_mul(m, s.at[nd - 2], h), s.at[nd]);
  const Expr *k = expr_add(m, s.at[nd - 1], expr_i32(m, first));
  for (int d = 0; d < nd - 2; d++) index[d] = s.at[d];
  index[nd - 2] = turned ? row : k;
  index[nd - 1] = turned ? k : row;
  const Expr *part[4];
  if (word > 1) nn_word_row(m, word, from, nd, index, part);
  const Expr *value = word > 1 ? nn_word(m, word, part) : te_read(m, from, nd, index);
  if (!known(all) || known(all) % height) value = nn_if(m, expr_lt(m, row, all), value, expr_const(m, value->dtype, 0));
  return nn_finish(&s, name, "injective", value);
}

const Tensor *matmul_pack_rows(Module *m, const Tensor *a, int64_t height, int word)
{
  int64_t k = known(a->buffer->shape[a->buffer->ndim - 1]);
  return pack(m, "a_pack", a, true, height, word, 0,
              word > 1 ? expr_i32(m, up(k, word)) : a->buffer->shape[a->buffer->ndim - 1]);
}

/* An element of a panel: row or column i, step k. */
static const Expr *read_panel(Module *m, const Tensor *panels, int nd, const Expr *const *at, const Expr *i,
                              const Expr *k, int64_t height)
{
  const Buffer *b = panels->buffer;
  const Expr *index[MAX_RANK + 1];
  const Expr *h = expr_i32(m, height);
  for (int d = 0; d < b->ndim - 3; d++)
    index[d] = expr_is_int(b->shape[d], 1) ? expr_i32(m, 0) : at[nd - b->ndim + 1 + d];
  index[b->ndim - 3] = expr_floordiv(m, i, h);
  index[b->ndim - 2] = k;
  index[b->ndim - 1] = expr_floormod(m, i, h);
  return te_read(m, panels, b->ndim, index);
}

/* Two or four steps of a row as they lie, or of a panel. */
static const Expr *read_row_word(Module *m, const Tensor *a, int word, const Expr *i, const Expr *k)
{
  const Expr *element[4];
  nn_word_row(m, word, a, 2, (const Expr *[]){i, k}, element);
  return nn_word(m, word, element);
}

static const Expr *read_panel_word(Module *m, const Tensor *panels, const Expr *j, const Expr *k, int64_t width)
{
  const Expr *w = expr_i32(m, width);
  return nn_word_at(m, panels, (const Expr *[]){expr_floordiv(m, j, w), k, expr_floormod(m, j, w)});
}

static const Expr *read_matrix(Module *m, const Tensor *x, int nd, const Expr *const *at, const Expr *row,
                               const Expr *column)
{
  const Expr *index[MAX_RANK];
  int n = x->buffer->ndim;
  batch_index(m, x->buffer, nd, at, index);
  index[n - 2] = row;
  index[n - 1] = column;
  return te_read(m, x, n, index);
}

/* The sum over `steps` elements from `first` on; over so many in each of `rounds` rounds, one result for each, where
 * there are several. */
static const Tensor *sum_part(const Operands *o, const char *name, int64_t first, const Expr *steps, int64_t rounds)
{
  Module *m = o->m;
  const Product *p = o->p;
  const MatmulPlan *plan = o->plan;
  int nd = p->nd;
  int lead = rounds > 1 ? 1 : 0;
  const Expr *shape[MAX_RANK + 1] = {expr_i32(m, rounds)};
  const Expr *all = rounds > 1 ? expr_mul(m, shape[0], steps) : steps;
  const Tensor *a = o->a;
  const Tensor *b = o->b;
  if (plan->packed) a = pack(m, arena_printf(m->arena, "%s_a", name), a, !p->ta, plan->rows, p->word, first, all);
  if (plan->block) b = pack(m, arena_printf(m->arena, "%s_b", name), b, p->tb, plan->width, 1, first, all);
  for (int d = 0; d < nd - 2; d++) shape[lead + d] = o->out->shape[d];
  shape[lead + nd - 2] = o->rows;
  shape[lead + nd - 1] = o->columns;
  Stage s = nn_stage(m, lead + nd, shape, NULL);
  const Expr *const *at = s.at + lead;
  const Expr *k = nn_reduce_axis(&s, "k", steps);
  if (lead) k = expr_add(m, expr_mul(m, s.at[0], steps), k);
  const Expr *far = expr_add(m, k, expr_i32(m, first)); /* in an operand that was not copied for this part */
  const Expr *i = at[nd - 2];
  const Expr *j = at[nd - 1];
  if (!p->m) i = expr_min(m, i, expr_sub(m, o->out->shape[nd - 2], expr_i32(m, 1)));
  const Expr *factor[2];
  factor[0] = plan->packed  ? read_panel(m, a, nd, at, i, k, plan->rows)
              : p->word > 1 ? read_row_word(m, a, p->word, i, far)
              : p->ta       ? read_matrix(m, a, nd, at, far, i)
                            : read_matrix(m, a, nd, at, i, far);
  factor[1] = plan->block   ? read_panel(m, b, nd, at, j, k, plan->width)
              : p->word > 1 ? read_panel_word(m, b, j, far, p->panel)
              : p->panel    ? read_panel(m, b, nd, at, j, far, p->panel)
              : p->tb       ? read_matrix(m, b, nd, at, j, far)
                            : read_matrix(m, b, nd, at, far, j);
  const Expr *term = p->word > 1 ? nn_word_dot(m, factor[0], factor[1]) : expr_mul(m, factor[0], factor[1]);
  return nn_finish(&s, name, "matmul", nn_reduce(&s, "sum", term));
}

static const Tensor *sum_in_rounds(const Operands *o)
{
  Module *m = o->m;
  int64_t rounds = o->plan->rounds;
  int64_t steps = up(o->p->k, rounds);
  int64_t before = (rounds - 1) * steps;
  const Expr *shape[] = {o->rows, o->columns};
  const Tensor *head;
  if (rounds == 2) {
    head = sum_part(o, "head", 0, expr_i32(m, steps), 1);
  } else {
    const Tensor *part = sum_part(o, "part", 0, expr_i32(m, steps), rounds - 1);
    Stage s = nn_stage(m, 2, shape, "i j");
    const Expr *round = nn_reduce_axis(&s, "round", expr_i32(m, rounds - 1));
    const Expr *term = te_read(m, part, 3, (const Expr *[]){round, s.at[0], s.at[1]});
    head = nn_finish(&s, "head", "comm_reduce", nn_reduce(&s, "sum", term));
  }
  const Tensor *last = sum_part(o, "last", before, expr_i32(m, o->p->k - before), 1);
  Stage s = nn_stage(m, 2, o->out->shape, "i j");
  return nn_finish(&s, "matmul", "injective", expr_add(m, te_read(m, head, 2, s.at), te_read(m, last, 2, s.at)));
}

/* Rows that nobody knows beforehand: whole tiles are computed, the last row again where there is none left, and only
 * what is wanted is stored; the same for columns of the last panel. */
void matmul_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  const MatmulPlan *way = plan;
  Module *m = c->m;
  const Type *y = c->out;
  Product p = product_of(c->op, c->attrs, c->arg[0], c->arg[1], y);
  if (!p.plain && p.word == 1) {
    c->op->compute(c, in, out);
    return;
  }
  Operands o = {m, &p, way, in[0], in[1], y, y->shape[p.nd - 2], y->shape[p.nd - 1]};
  const Expr *rows = expr_i32(m, way->rows);
  if (!p.m) o.rows = expr_mul(m, nn_ceildiv(m, o.rows, rows), rows);
  const Expr *width = expr_i32(m, way->width);
  if (p.panel || way->block) o.columns = nn_simplify(m, expr_mul(m, nn_ceildiv(m, o.columns, width), width));
  if (way->rounds > 1) {
    *out = sum_in_rounds(&o);
    return;
  }
  const Expr *k = in[1]->buffer->shape[p.panel ? 1 : in[1]->buffer->ndim - (p.tb ? 1 : 2)];
  bool whole = p.m && o.columns == y->shape[p.nd - 1];
  *out = sum_part(&o, whole ? "matmul" : "tiles", 0, k, 1);
  if (whole) return;
  Stage s = nn_stage(m, p.nd, y->shape, NULL);
  *out = nn_finish(&s, "matmul", "injective", te_read(m, *out, p.nd, s.at));
}

/* ---- the schedule ---------------------------------------------------------------------------------------------- */

/* How the loops outside of a tile go together. */
typedef struct Loops {
  const MatmulPlan *plan;
  Product p;
  int64_t panels, tiles, blocks, bands;
  int threads;
  bool each; /* a thread has whole products of the batch */
} Loops;

static Loops loops_of(ImplGroup *g, const MatmulPlan *plan)
{
  Loops l = {.plan = plan, .p = product_of_call(g->anchor)};
  l.panels = up(l.p.n, l.plan->width);
  l.tiles = l.p.m ? up(l.p.m, l.plan->rows) : 0;
  l.blocks = !l.plan->block ? 1 : l.p.n ? up(l.panels, l.plan->block) : MANY;
  l.bands = l.plan->band ? up(l.tiles, l.plan->band) : 1;
  double sizes = (double)(l.p.m ? l.p.m : 64) * (double)(l.p.n ? l.p.n : 64) * (double)(l.p.k ? l.p.k : 64);
  l.threads = cost_threads(g->target, 2 * sizes * (double)(l.p.batch ? l.p.batch : 64), 0);
  l.each = batch_apart(&l.p, l.threads);
  return l;
}

/* A copy into panels: squares that are turned round in registers, or a few lines from left to right. */
static void schedule_copy(ImplGroup *g, BlockRV copy, bool turned, bool parallel)
{
  enum { LINES = 4 };
  LoopRV *loop, line, lane;
  int n = sched_get_loops(g->s, copy, g->arena, &loop);
  int bits = sched_block_stmt(g->s, copy)->u.block->writes[0].buffer->dtype.bits;
  LoopRV shared = loop[n - 3];
  if (turned) {
    panels_turn(g, copy);
  } else {
    LoopRV lines = generic_split_by(g, loop[n - 2], LINES, &line);
    LoopRV part = generic_split_by(g, loop[n - 1], target_lanes(g->target, bits), &lane);
    sched_reorder(g->s, 5, (const LoopRV[]){lines, loop[n - 3], line, part, lane});
    sched_unroll(g->s, part), sched_unroll(g->s, line);
    sched_vectorize(g->s, lane);
    shared = lines;
  }
  if (parallel) sched_parallel(g->s, n > 3 ? loop[0] : shared);
}

/* The copies that the product reads: of a for each of the batch, of b in the loop over its blocks. */
static void place_copies(ImplGroup *g, const Loops *l, const char *name, LoopRV batch, LoopRV block)
{
  BlockRV copy;
  if (group_find_stage(g, arena_printf(g->arena, "%s_a", name), &copy)) {
    bool inside = l->each && l->p.own_a;
    if (inside) sched_compute_at(g->s, copy, batch, true, -1);
    schedule_copy(g, copy, !l->p.ta, l->threads > 1 && !inside);
  }
  if (group_find_stage(g, arena_printf(g->arena, "%s_b", name), &copy)) {
    bool several = l->blocks > 1;
    bool inside = several || (l->each && l->p.own_b);
    if (inside) sched_compute_at(g->s, copy, several ? block : batch, true, -1);
    schedule_copy(g, copy, l->p.tb, l->threads > 1 && !inside);
  }
}

/* Both panels are fetched a little before: waiting multiply-adds leave some cores little room to look ahead. */
static void fetch_ahead(ImplGroup *g, const Loops *l, BlockRV product, LoopRV step)
{
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  int last = b->writes[0].buffer->ndim;
  for (int i = 0; i < b->nreads; i++) {
    const Buffer *r = b->reads[i].buffer;
    if (r == b->writes[0].buffer) continue;
    if (r->ndim <= last - (l->p.nd > 2 && !l->p.own_b)) continue;
    if (!g->target->broadcast_load || l->plan->packed) panels_fetch(g, product, step, r);
  }
}

/* What a product is part of. */
typedef enum { WHOLE, HEAD, LAST } Share;

/* The tile goes to memory as it is. */
static BlockRV store_tile(ImplGroup *g, BlockRV product, LoopRV at)
{
  BlockRV store = sched_cache_write(g->s, product, 0, "local", 0, NULL);
  sched_reverse_compute_at(g->s, store, at, true, -1);
  return store;
}

static void write_tile(ImplGroup *g, BlockRV store, int outer)
{
  LoopRV *out;
  int n = sched_get_loops(g->s, store, g->arena, &out);
  bool open = false;
  for (int i = outer; i < n - 1; i++) open |= !known(sched_loop_stmt(g->s, out[i])->u.loop.extent);
  if (open) sched_vectorize(g->s, out[n - 1]);
  else epilogue_write_out(g, store, outer, true);
}

/* rows in tiles, tiles in bands; columns in panels, panels in blocks */
static void split_three(ImplGroup *g, LoopRV loop, int64_t outer, int64_t inner, LoopRV *out)
{
  Module *m = sched_module(g->s);
  sched_split(g->s, loop, 3, (const Expr *[]){NULL, expr_i32(m, outer), expr_i32(m, inner)}, true, out);
}

/* batch, blocks, bands, panels, tiles, steps of the sum, the tile; the epilogue on the tile, but for the head. */
static void schedule_product(ImplGroup *g, const Loops *l, BlockRV product, const char *name, Share share)
{
  const MatmulPlan *plan = l->plan;
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, product, n);
  int ns = n->n - 1; /* spatial loops; the last loop is the sum's */
  if (ns < 2 || !n->plain || !n->loop[ns].reduce)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, sum");
  LoopRV order[NEST_LOOPS + 8], row[3], column[3], step;
  int k = 0;
  LoopRV batch = n->loop[0].rv;
  if (ns > 2) {
    LoopRV all[NEST_LOOPS];
    for (int i = 0; i < ns - 2; i++) all[i] = n->loop[i].rv;
    batch = ns > 3 ? sched_fuse(g->s, ns - 2, all, true) : all[0];
    order[k++] = batch;
  }
  split_three(g, n->loop[ns - 1].rv, plan->block && l->blocks > 1 ? plan->block : l->panels, plan->width, column);
  if (l->bands > 1) {
    split_three(g, n->loop[ns - 2].rv, plan->band, plan->rows, row);
  } else {
    row[1] = generic_split_by(g, n->loop[ns - 2].rv, plan->rows, &row[2]);
  }
  int first = k;
  order[k++] = column[0];
  if (l->bands > 1) order[k++] = row[0];
  order[k++] = column[1];
  order[k++] = row[1];
  int outer = k;
  order[k++] = generic_split_by(g, n->loop[ns].rv, plan->steps, &step);
  order[k++] = step;
  order[k++] = row[2];
  order[k++] = column[2];
  sched_reorder(g->s, k, order);
  write_tile(g, share == HEAD ? store_tile(g, product, row[1]) : impl_attach_epilogue(g, product, row[1]), outer);
  sched_unroll(g->s, step);
  sched_unroll(g->s, row[2]);
  sched_vectorize(g->s, column[2]);
  sched_decompose_reduction(g->s, product, order[outer]);
  place_copies(g, l, name, batch, column[0]);
  fetch_ahead(g, l, product, step);
  if (l->threads < 2) return;
  if (l->each) {
    sched_parallel(g->s, batch);
    return;
  }
  /* pieces: whole blocks where each is copied, else panels */
  int last = l->blocks > 1 ? first + 1 : outer - 1;
  sched_parallel(g->s, last > 1 ? sched_fuse(g->s, last, order, true) : order[0]);
}

/* rounds, column panels, row tiles: the round's part of a tile is made in registers and added to the head in memory. */
static void schedule_parts(ImplGroup *g, const Loops *l, BlockRV head, BlockRV part)
{
  const MatmulPlan *plan = l->plan;
  Nest *h = arena_new_of(g->arena, Nest);
  nest_read(g, head, h);
  if (h->n != 3 || !h->plain) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rounds, rows, columns");
  LoopRV row[3], column[3], step;
  LoopRV round = h->loop[2].rv;
  LoopRV order[8];
  int k = 0;
  split_three(g, h->loop[1].rv, plan->block && l->blocks > 1 ? plan->block : l->panels, plan->width, column);
  if (l->bands > 1) split_three(g, h->loop[0].rv, plan->band, plan->rows, row);
  else row[1] = generic_split_by(g, h->loop[0].rv, plan->rows, &row[2]);
  order[k++] = round;
  order[k++] = column[0];
  if (l->bands > 1) order[k++] = row[0];
  order[k++] = column[1];
  order[k++] = row[1];
  int outer = k;
  order[k++] = row[2];
  order[k++] = column[2];
  sched_reorder(g->s, k, order);
  sched_compute_at(g->s, part, row[1], true, -1);
  sched_set_scope(g->s, part, 0, "local");
  LoopRV *loop; /* the loops outside; the round again, rows, columns, sum */
  int n = sched_get_loops(g->s, part, g->arena, &loop);
  LoopRV sum = generic_split_by(g, loop[n - 1], plan->steps, &step);
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, loop[n - 3], loop[n - 2]});
  sched_unroll(g->s, step);
  sched_unroll(g->s, loop[n - 3]);
  sched_vectorize(g->s, loop[n - 2]);
  sched_decompose_reduction(g->s, part, sum);
  sched_unroll(g->s, row[2]);
  sched_vectorize(g->s, column[2]);
  generic_block(g, sched_decompose_reduction(g->s, head, round), 0, true);
  place_copies(g, l, "part", round, column[0]);
  fetch_ahead(g, l, part, step);
  if (l->threads < 2) return;
  if (l->blocks > 1) sched_parallel(g->s, column[0]);
  else sched_parallel(g->s, sched_fuse(g->s, outer - 2, order + 1, true));
}

/* batch, shares of the columns (threads), a few steps of the sum, panels, rows: the sums are in memory. */
static void schedule_straight(ImplGroup *g, const Loops *l, BlockRV product)
{
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, product, n);
  int ns = n->n - 1;
  if (ns < 2 || !n->plain || !n->loop[ns].reduce)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, sum");
  LoopRV order[NEST_LOOPS + 4], column[3], step;
  int k = 0;
  int64_t shares = l->each ? 1 : l->threads;
  if (ns > 2) {
    for (int i = 0; i < ns - 2; i++) order[i] = n->loop[i].rv;
    order[k++] = ns > 3 ? sched_fuse(g->s, ns - 2, order, true) : n->loop[0].rv;
  }
  split_three(g, n->loop[ns - 1].rv, up(l->panels, shares), l->plan->width, column);
  LoopRV sum = generic_split_by(g, n->loop[ns].rv, l->plan->steps, &step);
  order[k++] = column[0];
  int outer = k;
  order[k++] = sum;
  order[k++] = column[1];
  order[k++] = n->loop[ns - 2].rv;
  order[k++] = step;
  order[k++] = column[2];
  sched_reorder(g->s, k, order);
  sched_unroll(g->s, n->loop[ns - 2].rv);
  sched_unroll(g->s, step);
  sched_vectorize(g->s, column[2]);
  generic_block(g, sched_decompose_reduction(g->s, product, sum), outer, false);
  if (l->threads > 1) sched_parallel(g->s, outer > 1 ? sched_fuse(g->s, outer, order, true) : order[0]);
}

static void schedule_by(ImplGroup *g, const MatmulPlan *plan)
{
  static const char *const part_of[] = {"matmul", "tiles", "part", "head", "last"};
  BlockRV copy;
  for (size_t i = 0; i < 2 * sizeof part_of / sizeof *part_of; i++)
    if (group_find_stage(g, arena_printf(g->arena, "%s_%c", part_of[i / 2], i % 2 ? 'b' : 'a'), &copy))
      generic_keep(g, copy);
  generic_inline(g);
  Loops l = loops_of(g, plan);
  BlockRV head, part;
  if (plan->straight) {
    schedule_straight(g, &l, group_sum(g));
    generic_rest(g);
    return;
  }
  bool has_head = group_find_stage(g, "head", &head);
  if (has_head && group_find_stage(g, "part", &part)) schedule_parts(g, &l, head, part);
  else if (has_head) schedule_product(g, &l, head, "head", HEAD);
  const char *name = has_head ? "last" : group_find_stage(g, "tiles", &part) ? "tiles" : "matmul";
  schedule_product(g, &l, group_sum(g), name, has_head ? LAST : WHOLE);
  generic_rest(g);
}

void matmul_schedule(ImplGroup *g) { schedule_by(g, g->plan); }

void matmul_schedule_tiles(ImplGroup *g, int64_t width, int64_t rows)
{
  schedule_by(g, &(MatmulPlan){.width = width, .rows = rows, .steps = 1, .rounds = 1});
}
