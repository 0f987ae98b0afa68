/* attention.c: attention without its matrix of scores.
 *
 *   for batch, head, block of queries                                             threads
 *     turned[d, s]  = scale * query[s, d]
 *     scores[t, s]  = sum over d of key[t, d] (broadcast) * turned[d, s]           register tiles, masked there
 *     row_max[s], exps[t, s] = exp(scores - row_max), row_sum[s]
 *     out[s, d]     = sum over t of exps[t, s] (broadcast) * value[t, d]           register tiles
 *     out[s, d] / row_sum[s] is stored
 *
 * Queries lie in the lanes: the maximum and the sum over the keys need no exchange between lanes, and the number of
 * keys may be any, also one that is known only at run time.  Key and value are read as they lie, or are copied first
 * (`packed`): a head's rows side by side, each in whole vectors with zeros behind it, so that no tile has a rest.  What
 * a block of queries needs, (keys x queries) twice, is a thread's own and is made so small that it stays in the
 * second-level cache. */
#include "impl/internal.h"
#include "op/nn.h"

#define ATTENTION_PLAN(A, S)                                                                    \
  A(S, INT, queries, NULL, "queries of a block, in the lanes")                                  \
  A(S, INT, keys, NULL, "keys of a register tile of scores, which all queries of a block have") \
  A(S, INT, rows, NULL, "queries of a register tile of the second product")                     \
  A(S, INT, columns, NULL, "elements of a value of such a tile")                                \
  A(S, BOOL, packed, NULL, "keys and values are copied first, heads apart, rows in whole vectors")
DEFINE_PLAN(AttentionPlan, ATTENTION_PLAN)

enum { QUERY, KEY, VALUE, MASK };
enum { MANY = 1 << 20 }; /* stands for a size that is not known */

static int64_t size_of(const Node *call, int argument, char letter)
{
  const char *layout = nn_attention_layout(call->u.call.attrs, argument, 4);
  return known(call->arg[argument]->type->shape[strchr(layout, letter) - layout]);
}

/* ---- sizes of blocks --------------------------------------------------------------------------------- */

/* What the number of queries in a block depends on; sizes that are not known are 0. */
typedef struct Shape {
  int bits;
  int64_t queries, keys, size;
  int64_t depth; /* of a query and a key; size is a value's */
  bool apart;    /* a head's keys do not lie side by side */
  bool copied;   /* nor its values: they are copied for each block (copy_values) unless all are */
  double flops, exps;
} Shape;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

/* Elements of a packed key, and of a packed value: whole vectors, whole tiles. */
static int64_t packed_depth(const Target *t, const Shape *f) { return up(f->depth, target_lanes(t, f->bits)); }
static int64_t packed_size(const Shape *f, const AttentionPlan *p) { return up(f->size, p->columns); }

static Shape shape_of(const AttentionAttrs *a, const Type *const *arg)
{
  const char *s = strchr(a->query_layout, 'S');
  const char *t = strchr(a->key_layout, 'T');
  const char *d = strchr(a->value_layout, 'D');
  const char *depth = strchr(a->key_layout, 'D');
  return (Shape){.bits = arg[QUERY]->dtype.bits,
                 .queries = known(arg[QUERY]->shape[s - a->query_layout]),
                 .keys = known(arg[KEY]->shape[t - a->key_layout]),
                 .size = known(arg[VALUE]->shape[d - a->value_layout]),
                 .depth = known(arg[KEY]->shape[depth - a->key_layout]),
                 .apart = a->key_layout[2] != 'T',
                 .copied = a->value_layout[2] != 'T'};
}

/* Share of the peak of a tile of x rows by v vectors over so many rows and columns.  What is left at the end of the
 * columns is computed in parts of a vector, as many as it has halves, quarters, … */
static double sums_speed(const Target *t, int bits, int64_t rows, int64_t columns, int64_t x, int64_t v)
{
  int64_t lanes = target_lanes(t, bits);
  int64_t rest = columns % (v * lanes);
  double whole = (double)(columns / (v * lanes) * v);
  double done = whole / tile_speed(t, v, 1, rows, (Tile){1, 1, x});
  int64_t parts = rest ? alter_block_vectors(rest, lanes) : 0;
  if (rest) done += (double)parts / tile_speed(t, parts, 1, rows, (Tile){1, 1, x});
  return (double)columns / (double)lanes / done;
}

/* Where elements come in vectors, those of a tile stay in registers for several steps. */
static bool tile_fits(const Target *t, int64_t vectors, int64_t rows)
{
  int64_t sums = vectors * rows;
  if (!t->broadcast_load) return (vectors + 1) * (rows + 1) + 1 <= t->vector_registers;
  return sums <= t->vector_registers - 4 && sums + vectors + 2 <= t->vector_registers;
}

/* Seconds of copying keys and values; of those that are not, what reading them takes more: a head's rows that lie apart
 * are in more pages than a core has at hand, and values are copied for each block. */
static double fetch_seconds(const Target *t, const Shape *f, const AttentionPlan *p, double heads)
{
  static const double COPY = 1.5; /* cycles for a vector: read from the second-level cache, written */
  static const double SEEN = 0.5; /* of the way of a line, that the arithmetic does not hide */
  double lanes = target_lanes(t, f->bits);
  double rows = heads * (double)f->keys;
  double bytes = f->bits / 8.0;
  double all = rows * bytes * (double)(f->depth + f->size);
  double cycle = 1 / (1e9 * t->core.ghz);
  double vectors = rows * ((double)f->depth + (double)f->size) / lanes;
  double runs = f->apart ? rows * cost_run(t, (double)f->depth * bytes / CACHE_LINE, all) : 0;
  double values = f->copied ? rows * (double)f->size / lanes * COPY : 0;
  double blocks = (double)up(f->queries, p->queries) / (double)p->queries;
  double own = COPY * vectors + SEEN * runs;
  return (p->packed ? own : blocks * (SEEN * runs + values)) * cycle;
}

/* Every tile of the second product, with what it takes. */
static void add_sums(PlanList *list, const Target *t, const Shape *f, AttentionPlan *p, double scores, double rest)
{
  static const double EXPONENTIAL = 17; /* cycles for a vector, its maximum and its sum too (Neoverse-N1) */
  int64_t lanes = target_lanes(t, f->bits);
  int threads = cost_threads(t, f->flops, 0);
  bool known_sizes = f->keys && f->queries && f->exps > 0;
  double heads = known_sizes ? f->exps / (double)(f->keys * f->queries) : 0;
  /* what is left of a query behind its whole vectors is met one by one */
  double depth = (double)f->depth;
  double loose = (depth + (double)(f->depth % lanes)) / depth;
  for (int64_t v = 1; v <= 4; v++)
    for (int64_t x = 1; x <= p->queries; x++) {
      /* rows of a tile divide all rows, so that blocks of queries come out even */
      if (p->queries % x || !tile_fits(t, v, x)) continue;
      p->rows = x, p->columns = v * lanes;
      for (int packed = 0; packed < (known_sizes ? 2 : 1); packed++) {
        p->packed = packed;
        int64_t size = packed ? packed_size(f, p) : f->size;
        double sums = sums_speed(t, f->bits, p->queries, size, x, v) * (double)f->size / (double)size;
        double more = packed ? (double)packed_depth(t, f) / depth : loose;
        double products = f->flops / 2 / cost_flops(t, f->bits) * (more / scores + 1 / sums) * rest;
        double exps = f->exps / (double)lanes * EXPONENTIAL / (1e9 * t->core.ghz);
        double fetched = known_sizes ? fetch_seconds(t, f, p, heads) : 0;
        plan_add(list, p, (products + exps + fetched) / threads, 0);
      }
    }
}

/* Blocks of as many vectors of queries as leave their scores in the second-level cache, beside the same number of
 * exponentials, and not too many lanes idle. */
static void list_plans(const Target *t, const Shape *f, PlanList *list)
{
  /* where the number is not known: often it is one; vectors of a block */
  enum { USUAL = 16, NARROW = 4, WIDE = 8, FEW = 8, TILES = 3 };
  static const double USED = 0.6;
  int64_t lanes = target_lanes(t, f->bits);
  int64_t cache = cost_l2(t);
  int64_t k = f->keys ? f->keys : MANY;
  for (int64_t v = 1; v <= (lanes > 4 || t->vector_registers < 32 ? NARROW : WIDE); v++) {
    int64_t width = v * lanes;
    int64_t queries = f->queries ? f->queries : width;
    int64_t blocks = (queries + width - 1) / width;
    if (v > 1 && (4 * f->keys * width * (f->bits / 8) > cache || (!f->queries && width > USUAL))) break;
    if ((double)queries < USED * (double)(blocks * width)) continue;
    /* the best tile of keys and smaller ones; where their number is not known the last one tests each: it is small */
    int64_t most = tile_best(t, v, 1, 1, k).x;
    if (!f->keys && most > FEW) most = FEW;
    double idle = (double)(blocks * width) / (double)queries;
    for (int64_t keys = most; keys > 0 && keys > most - TILES; keys--) {
      AttentionPlan p = {.queries = width, .keys = keys};
      double scores = tile_speed(t, v, 1, k, (Tile){1, 1, keys});
      if (scores > 0) add_sums(list, t, f, &p, scores, idle);
    }
  }
}

void attention_plans(const ImplCall *of, PlanList *list)
{
  const Node *call = of->call;
  const AttentionAttrs *a = call->u.call.attrs;
  const Type *ty = call->type;
  const Type *arg[4];
  if (ty->dtype.code != DT_FLOAT || ty->dtype.bits < 32 || a->value_layout[3] != 'D' || a->out_layout[3] != 'D') return;
  for (int i = 0; i < call->nargs; i++) arg[i] = call->arg[i]->type;
  Shape f = shape_of(a, arg);
  f.flops = nn_attention_flops(call, 64);
  int64_t size = size_of(call, QUERY, 'D');
  if (size && f.size) f.exps = f.flops / (double)(2 * (size + f.size));
  if (f.queries != 1 && f.size > 0 && size > 0) list_plans(of->target, &f, list);
}

/* ---- the computation, queries in the lanes -------------------------------------------------------------- */

typedef struct Part {
  Module *m;
  int n;
  const Expr *shape[5], *at[5], *reduce;
  const IterVar *axis[5], *sum;
} Part;

/* names: one letter for each axis; reduce NULL: no sum. */
static Part part_of(Module *m, int n, const Expr *const *shape, const char *names, const Expr *reduce)
{
  Part p = {.m = m, .n = n};
  for (int d = 0; d < n; d++) {
    p.shape[d] = shape[d];
    p.at[d] = impl_axis(m, arena_printf(m->arena, "%c", names[d]), shape[d], ITER_SPATIAL, &p.axis[d]);
  }
  if (reduce) p.reduce = impl_axis(m, "k", reduce, ITER_REDUCE, &p.sum);
  return p;
}

static const Tensor *finish(const Part *p, const char *name, const char *reducer, const Expr *value)
{
  Module *m = p->m;
  if (reducer)
    value = expr_reduce(m, reducer_named(m, reducer, value->dtype, DT_I32), 1, &value, 1, &p->sum, expr_bool(m, true),
                        NULL, 0);
  return &te_compute(m, name, reducer ? "comm_reduce" : "injective", p->n, p->shape, p->axis, 1, &value, NULL)->out[0];
}

static const Expr *read5(Module *m, const Tensor *t, const Expr *const *at)
{
  return te_read(m, t, t->buffer->ndim, at);
}

typedef struct Rows {
  OpCall *c;
  AttentionAt n; /* sizes */
  const Expr *value_size, *width, *blocks;
  const Expr *depth;           /* of a query and a key as they are multiplied */
  const Tensor *keys, *values; /* packed; NULL: as they lie */
  bool whole;                  /* the blocks cover the queries exactly */
} Rows;

/* Zero from `size` on. */
static const Expr *filled(Module *m, const Expr *at, const Expr *size, const Expr *extent, const Expr *value)
{
  if (size == extent) return value;
  return expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                   (const Expr *[]){expr_binary(m, E_LT, at, size), value, expr_const(m, value->dtype, 0)});
}

/* (b, h, t, d), rows of so many elements. */
static const Tensor *pack_rows(const Rows *r, int argument, const Tensor *x, const Expr *size, int64_t width,
                               const char *name)
{
  Module *m = r->c->m;
  const Expr *shape[] = {r->n.b, r->n.h, r->n.t, expr_i32(m, width)};
  Part p = part_of(m, 4, shape, "bhtd", NULL);
  AttentionAt at = {.b = p.at[0], .h = p.at[1], .t = p.at[2], .d = p.at[3]};
  return finish(&p, name, NULL, filled(m, at.d, size, shape[3], nn_attention_read(r->c, argument, x, &at)));
}

/* The element of a key or value, packed or not. */
static const Expr *row_at(const Rows *r, int argument, const Tensor *packed, const Tensor *x, const AttentionAt *at)
{
  if (!packed) return nn_attention_read(r->c, argument, x, at);
  return te_read(r->c->m, packed, 4, (const Expr *[]){at->b, at->h, at->t, at->d});
}

/* The query that stands in a lane of a block; where there is none any more, the last one again. */
static const Expr *query_at(const Rows *r, const Expr *block, const Expr *lane)
{
  Module *m = r->c->m;
  const Expr *s = expr_add(m, expr_mul(m, block, r->width), lane);
  return r->whole ? s : expr_min(m, s, expr_sub(m, r->n.s, expr_i32(m, 1)));
}

static const Tensor *masked_scores(const Rows *r, const Tensor *const *in)
{
  OpCall *c = r->c;
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  const Expr *turned_shape[] = {r->n.b, r->n.h, r->blocks, r->depth, r->width};
  const Expr *shape[] = {r->n.b, r->n.h, r->blocks, r->n.t, r->width};
  Part p = part_of(m, 5, turned_shape, "bhodi", NULL);
  AttentionAt at = {.b = p.at[0], .h = p.at[1], .s = query_at(r, p.at[2], p.at[4]), .d = p.at[3]};
  const Expr *value = expr_mul(m, nn_attention_read(c, QUERY, in[QUERY], &at), expr_float(m, c->out->dtype, a->scale));
  const Tensor *turned = finish(&p, "turned", NULL, filled(m, at.d, r->n.d, r->depth, value));
  p = part_of(m, 5, shape, "bhoti", r->depth);
  at = (AttentionAt){.b = p.at[0], .h = p.at[1], .t = p.at[3], .d = p.reduce};
  value = expr_mul(m, row_at(r, KEY, r->keys, in[KEY], &at),
                   read5(m, turned, (const Expr *[]){p.at[0], p.at[1], p.at[2], p.reduce, p.at[4]}));
  const Tensor *scores = finish(&p, "scores", "sum", value);
  if (c->nargs <= MASK && !a->causal) return scores;
  p = part_of(m, 5, shape, "bhoti", NULL);
  at = (AttentionAt){.b = p.at[0], .h = p.at[1], .s = query_at(r, p.at[2], p.at[4]), .t = p.at[3]};
  return finish(&p, "masked", NULL,
                nn_attention_masked(c, read5(m, scores, p.at), c->nargs > MASK ? in[MASK] : NULL, &at));
}

/* max or sum over the keys. */
static const Tensor *over_keys(const Rows *r, const Tensor *x, const char *name, const char *reducer)
{
  const Expr *shape[] = {r->n.b, r->n.h, r->blocks, r->width};
  Part p = part_of(r->c->m, 4, shape, "bhoi", r->n.t);
  return finish(&p, name, reducer, read5(p.m, x, (const Expr *[]){p.at[0], p.at[1], p.at[2], p.reduce, p.at[3]}));
}

static void by_letter(const char *layout, const Expr *const *at, AttentionAt *out)
{
  for (int i = 0; i < 4; i++) {
    if (layout[i] == 'B') out->b = at[i];
    else if (layout[i] == 'H') out->h = at[i];
    else if (layout[i] == 'S') out->s = at[i];
    else out->d = at[i];
  }
}

void attention_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  const AttentionPlan *of = plan;
  Module *m = c->m;
  const AttentionAttrs *a = c->attrs;
  Rows r = {.c = c};
  r.n = nn_attention_sizes(c, &r.value_size);
  Shape f = shape_of(a, c->arg);
  int64_t queries = f.queries;
  int64_t width = of->queries;
  r.width = expr_i32(m, width);
  r.whole = queries && queries % width == 0;
  r.blocks = queries ? expr_i32(m, (queries + width - 1) / width)
                     : expr_floordiv(m, expr_add(m, r.n.s, expr_i32(m, width - 1)), r.width);
  r.depth = r.n.d;
  const Expr *row = r.value_size;
  if (of->packed) {
    r.depth = expr_i32(m, packed_depth(t, &f));
    row = expr_i32(m, packed_size(&f, of));
    r.keys = pack_rows(&r, KEY, in[KEY], r.n.d, packed_depth(t, &f), "keys");
    r.values = pack_rows(&r, VALUE, in[VALUE], r.value_size, packed_size(&f, of), "values");
  }
  const Tensor *scores = masked_scores(&r, in);
  const Tensor *most = over_keys(&r, scores, "row_max", "max");
  Part p = part_of(m, 5, scores->buffer->shape, "bhoti", NULL);
  const Expr *largest = read5(m, most, (const Expr *[]){p.at[0], p.at[1], p.at[2], p.at[4]});
  const Expr *less = expr_sub(m, read5(m, scores, p.at), nn_attention_shift(c, largest));
  const Tensor *exps = finish(&p, "exps", NULL, expr_call(m, DT_NONE, IN_EXP, 1, &less));
  const Tensor *total = over_keys(&r, exps, "row_sum", "sum");
  AttentionAt size = r.n;
  AttentionAt at = {0};
  const Expr *shape[4];
  size.d = row;
  size.s = expr_mul(m, r.blocks, r.width);
  if (queries) size.s = expr_i32(m, known(r.blocks) * width);
  nn_attention_place(a->out_layout, &size, shape);
  p = part_of(m, 4, shape, a->out_layout, r.n.t);
  by_letter(a->out_layout, p.at, &at);
  at.t = p.reduce;
  const Expr *block = expr_floordiv(m, at.s, r.width);
  const Expr *lane = expr_floormod(m, at.s, r.width);
  const Expr *weight = read5(m, exps, (const Expr *[]){at.b, at.h, block, p.reduce, lane});
  const Tensor *sums = finish(&p, "sums", "sum", expr_mul(m, weight, row_at(&r, VALUE, r.values, in[VALUE], &at)));
  p = part_of(m, 4, c->out->shape, a->out_layout, NULL);
  by_letter(a->out_layout, p.at, &at);
  block = expr_floordiv(m, at.s, r.width), lane = expr_floormod(m, at.s, r.width);
  const Expr *one = expr_float(m, c->out->dtype, 1);
  const Expr *sum = read5(m, total, (const Expr *[]){at.b, at.h, block, lane});
  const Expr *part = expr_mul(m, expr_binary(m, E_DIV, one, sum), read5(m, sums, p.at)); /* row_sum before sums */
  *out = finish(&p, "attention", NULL, nn_attention_guarded(c, part, sum));
}

/* ---- the schedule ----------------------------------------------------------------------------------------- */

/* A product over a block of queries. */
typedef struct Product {
  LoopRV row, column, sum;
  int64_t height, width, steps; /* of the tile; steps of the whole sum, 0: not known */
  bool along;                   /* the elements of a row that the steps meet lie side by side */
} Product;

/* column panels, row tiles, the sum, its steps written out, the tile; gives the loop that a tile is
 * complete in and the outermost loop of the sum. */
static LoopRV tile_product(ImplGroup *g, const Product *p, LoopRV *sum)
{
  int64_t vectors = alter_block_vectors(p->width, target_lanes(g->target, g->anchor->type->dtype.bits));
  int64_t lanes = target_lanes(g->target, 32);
  int64_t steps = p->steps ? tile_steps(g->target, p->height * vectors, p->steps) : 1;
  /* where elements come as vectors, all the steps that a vector has; what is left is a piece of code of its own */
  if (p->along && !g->target->broadcast_load && steps % lanes && p->steps > 4 * lanes) steps = lanes;
  LoopRV ci, ri, step;
  LoopRV co = generic_split_by(g, p->column, p->width, &ci);
  LoopRV ro = generic_split_by(g, p->row, p->height, &ri);
  LoopRV ko = generic_split_by(g, p->sum, steps, &step);
  sched_reorder(g->s, 6, (const LoopRV[]){co, ro, ko, step, ri, ci});
  sched_unroll(g->s, step);
  sched_unroll(g->s, ri);
  sched_vectorize(g->s, ci);
  *sum = ko;
  return ro;
}

/* out[s, d]: threads share the blocks of queries; what comes before is made inside, block by block. */
static LoopRV multiply_values(ImplGroup *g, LoopRV *outer)
{
  const AttentionPlan *plan = g->plan;
  const AttentionAttrs *a = g->anchor->u.call.attrs;
  BlockRV sums = group_stage(g, "sums");
  LoopRV *l, lane, sum;
  LoopRV b = {-1};
  LoopRV h = {-1};
  LoopRV s = {-1};
  int n = sched_get_loops(g->s, sums, g->arena, &l); /* as out_layout says, then the keys */
  if (n != 5) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the sums' loops are not those of attention");
  for (int i = 0; i < 3; i++) *(a->out_layout[i] == 'B' ? &b : a->out_layout[i] == 'H' ? &h : &s) = l[i];
  LoopRV block = generic_split_by(g, s, plan->queries, &lane);
  sched_reorder(g->s, 6, (const LoopRV[]){b, h, block, lane, l[3], l[4]});
  Product p = {lane, l[3], l[4], plan->rows, plan->columns, size_of(g->anchor, KEY, 'T'), false};
  LoopRV at = tile_product(g, &p, &sum);
  BlockRV store = impl_attach_epilogue(g, sums, at);
  generic_write_out(g, store, 5);
  sched_decompose_reduction(g->s, sums, sum);
  outer[0] = b, outer[1] = h, outer[2] = block;
  return block;
}

/* scores[t, s], masked while they are in registers. */
static void multiply_keys(ImplGroup *g)
{
  const AttentionPlan *plan = g->plan;
  BlockRV scores = group_stage(g, "scores");
  LoopRV *l, sum;
  int n = sched_get_loops(g->s, scores, g->arena, &l); /* b h block, b h block of one step, t s d */
  if (n != 9) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the scores' loops are not those of attention");
  int64_t depth = size_of(g->anchor, QUERY, 'D');
  if (plan->packed) depth = up(depth, target_lanes(g->target, g->anchor->type->dtype.bits));
  Product p = {l[6], l[7], l[8], plan->keys, plan->queries, depth, true};
  LoopRV at = tile_product(g, &p, &sum);
  BlockRV store = impl_attach_epilogue(g, scores, at);
  generic_write_out(g, store, 8);
  sched_decompose_reduction(g->s, scores, sum);
}

/* The head's values, copied so that they lie side by side.  Every tile of queries reads them again, and rows that lie
 * far apart, as those of interleaved heads do, meet in a few sets of the first-level cache.  {-1}: they do lie side by
 * side. */
static BlockRV copy_values(ImplGroup *g)
{
  const AttentionAttrs *a = g->anchor->u.call.attrs;
  BlockRV sums = group_stage(g, "sums");
  const Block *b = sched_block_stmt(g->s, sums)->u.block;
  int i = b->nreads - 1;
  while (i >= 0 && (b->reads[i].buffer->ndim != 4 || b->reads[i].buffer == b->writes[0].buffer)) i--;
  bool packed = ((const AttentionPlan *)g->plan)->packed;
  if (packed || a->value_layout[2] == 'T' || i < 0) return (BlockRV){-1};
  return sched_cache_read(g->s, sums, i, "global", 1, &sums);
}

/* exps[t, s]: the exponentials of some keys side by side. */
static void raise_scores(ImplGroup *g)
{
  const AttentionPlan *plan = g->plan;
  BlockRV exps = group_stage(g, "exps");
  LoopRV *l, some;
  int64_t keys = size_of(g->anchor, KEY, 'T');
  int n = sched_get_loops(g->s, exps, g->arena, &l); /* b h block, b h block of one step, t s */
  Nest *nest = arena_new_of(g->arena, Nest);
  nest_read(g, exps, nest);
  int64_t vectors = plan->queries / target_lanes(g->target, nest->bits);
  int64_t most = epilogue_abreast(g->target, nest->operations) / vectors;
  int64_t factor = 1;
  for (int64_t f = 2; f <= most; f++)
    if (keys && keys % f == 0) factor = f;
  if (2 * factor <= most && keys > 4 * most) factor = most; /* what is left is a loop of its own */
  if (n != 8 || factor == 1) {
    generic_block(g, exps, 3, false);
    return;
  }
  generic_split_by(g, l[6], factor, &some);
  sched_unroll(g->s, some);
  sched_vectorize(g->s, l[7]);
}

void attention_schedule(ImplGroup *g)
{
  static const char *const before[] = {"row_sum", "exps", "row_max", "masked", "scores", "turned"};
  enum { NBEFORE = sizeof before / sizeof *before };
  BlockRV values = copy_values(g);
  LoopRV outer[3];
  LoopRV block = multiply_values(g, outer);
  if (values.id >= 0) {
    LoopRV *l, vector;
    sched_compute_at(g->s, values, block, true, -1);
    int n = sched_get_loops(g->s, values, g->arena, &l);
    generic_split_by(g, l[n - 1], target_lanes(g->target, g->anchor->type->dtype.bits), &vector);
    sched_vectorize(g->s, vector);
  }
  BlockRV stage;
  for (int i = 0; i < NBEFORE; i++)
    if (group_find_stage(g, before[i], &stage)) sched_compute_at(g->s, stage, block, true, -1);
  multiply_keys(g);
  for (int i = 0; i < NBEFORE; i++)
    if (strcmp(before[i], "masked") && strcmp(before[i], "scores") && strcmp(before[i], "exps"))
      generic_block(g, group_stage(g, before[i]), 3, false);
  raise_scores(g);
  static const char *const packed[] = {"keys", "values"};
  for (int i = 0; i < 2; i++)
    if (group_find_stage(g, packed[i], &stage)) generic_block(g, stage, 0, true);
  LoopRV all = sched_fuse(g->s, 3, outer, true);
  if (cost_threads(g->target, nn_attention_flops(g->anchor, 64), 0) > 1) sched_parallel(g->s, all);
}
