/* sketch.c: schedules for loop programs that no plan covers, by rules with sampled decisions.
 *
 * In: a function as its tensor expressions make it, every block under loops of its own.  Out: the trace of a schedule.
 *   blocks that only move or map elements    are put into their consumers
 *   sums of products of bytes                by the dot products of the target (dots.c)
 *   sums over many elements, few results     the sum in parts (rfactor), lanes of a vector
 *   other reductions                         either sums that stay in registers: one loop, the last as a rule, as
 *                                              vectors, one other and some steps of the sum written out; what the
 *                                              vectors would read with strides is first copied so that they read it
 *                                              in a row;
 *                                              or tiles in four levels over space and two over the sum:
 *                                              S S R S R S, the outermost on threads, the innermost as vectors,
 *                                              partial results in a tile of their own or with the block that follows
 *   what is left                             rows on threads, vectors within
 * Which form a schedule has is drawn first; the sizes are decisions in the trace, and tune_mutate changes one of those.
 * A rule that a primitive refuses is left out. */
#include <stdlib.h>

#include "tune/sketch.h"

enum { LEVELS = 4, SUMS = 2 };

uint64_t tune_draw(uint64_t *seed)
{
  uint64_t z = *seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* ---- steps that may be refused ------------------------------------------------------------------------- */

static void transpose(Step *t);
static void make_words(Step *t);
static void put_last(Step *t);

static void do_step(Ctx *ctx, void *arg)
{
  Step *t = arg;
  Sched *s = t->k->s;
  (void)ctx;
  switch (t->what) {
  case INLINE: sched_compute_inline(s, t->block); break;
  case FUSED_UNDER: sched_reverse_compute_at(s, t->block, t->loop, true, -1); break;
  case VECTORS: sched_vectorize(s, t->loop); break;
  case THREADS: sched_parallel(s, t->loop); break;
  case PARTS: t->made = sched_rfactor(s, t->loop, t->axis); break;
  case INIT: t->made = sched_decompose_reduction(s, t->block, t->loop); break;
  case WRITTEN_OUT: sched_unroll(s, t->loop); break;
  case LOCAL: sched_set_scope(s, t->block, 0, "local"); break;
  case TRANSPOSE: transpose(t); break;
  case WORDS: make_words(t); break;
  case LANES_LAST: put_last(t); break;
  case PADDED: sched_pad_einsum(s, t->block, sched_block_stmt(s, t->block)->u.block->niter, t->padded); break;
  case TENSORIZED: {
    SchedArg args[] = {{.kind = SA_LOOP, .u.i = t->loop.id}, {.kind = SA_STR, .u.s = t->intrin}};
    sched_call(s, "tensorize", 2, args);
    break;
  }
  }
}

bool tune_attempt(Step *t)
{
  ErrKind kind = protect(t->k->ctx, do_step, t);
  if (error_passes_on(kind)) error_reraise(t->k->ctx);
  return kind == ERR_NONE;
}

/* ---- what there is --------------------------------------------------------------------------------------- */

typedef Vec(BlockFacts) BlockList;

typedef struct Listing {
  Sketch *k;
  BlockList list;
} Listing;

static bool is_parameter(const PrimFunc *f, const Buffer *b)
{
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer == b) return true;
  return false;
}

static bool note_block(void *env, Stmt *s)
{
  Listing *l = env;
  if (s->kind != S_BLOCK) return true;
  const Block *b = s->u.block;
  if (!stmt_enclosing_block(s)) return true;
  BlockFacts f = {.name = b->name, .results = 1, .steps = 1, .plain = true};
  Stmt **loop;
  int n = stmt_loops(scratch(l->k->ctx), s, &loop);
  f.plain = n == b->niter && b->nwrites == 1 && n <= MAX_LOOPS;
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    double extent = it->extent->kind == E_INT ? (double)it->extent->u.i : 0;
    f.space += it->kind == ITER_SPATIAL;
    f.sums += it->kind == ITER_REDUCE;
    f.steps *= extent;
    if (it->kind == ITER_SPATIAL) f.results *= extent;
    f.plain = f.plain && extent > 0 && it->value->kind == E_VAR && it->value->u.var == loop[i]->u.loop.var &&
              loop[i]->u.loop.kind == FOR_SERIAL;
  }
  f.plain = f.plain && f.space + f.sums == b->niter;
  f.writes = b->nwrites ? b->writes[0].buffer : NULL;
  f.output = f.writes && is_parameter(sched_func(l->k->s), f.writes);
  vec_push(l->k->arena, &l->list, f);
  return false;
}

static BlockList blocks_of(Sketch *k)
{
  Listing l = {.k = k};
  stmt_visit(sched_func(k->s)->body, note_block, &l);
  return l.list;
}

static bool inline_one(Sketch *k, const char *name)
{
  Step t = {.k = k, .what = INLINE, .block = sched_get_block(k->s, name)};
  return tune_attempt(&t);
}

static void inline_all(Sketch *k)
{
  BlockList all = blocks_of(k);
  for (int i = 0; i < all.n; i++)
    if (!all.v[i].output && !all.v[i].sums) inline_one(k, all.v[i].name);
}

/* ---- marks ----------------------------------------------------------------------------------------------- */

int64_t tune_loop_extent(Sketch *k, LoopRV loop)
{
  const Expr *e = sched_loop_stmt(k->s, loop)->u.loop.extent;
  return e->kind == E_INT ? e->u.i : 0;
}

/* The last of a loop's steps that divide it, where all together would be too many lanes. */
static LoopRV narrow(Sketch *k, LoopRV loop)
{
  enum { MOST = 16 }; /* vectors */
  int64_t lanes = target_lanes(k->target, 32);
  int64_t extent = tune_loop_extent(k, loop);
  if (extent <= MOST * lanes) return loop;
  int64_t width = 4 * lanes;
  while (width > 1 && extent % width) width /= 2;
  LoopRV part[2];
  SchedArg factors[] = {{.kind = SA_NONE}, {.kind = SA_INT, .u.i = width}};
  SchedArg args[] = {{.kind = SA_LOOP, .u.i = loop.id}, {.kind = SA_LIST, .u.list = {factors, 2}}};
  SchedArg made = sched_call(k->s, "split", 2, args);
  for (int i = 0; i < 2; i++) part[i].id = (int)made.u.list.v[i].u.i;
  return part[1];
}

void tune_vectorize(Sketch *k, LoopRV loop)
{
  Step t = {.k = k, .what = VECTORS, .loop = narrow(k, loop)};
  tune_attempt(&t);
}

static void vectorize_last(Sketch *k, BlockRV block)
{
  LoopRV *loop;
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  if (n) tune_vectorize(k, loop[n - 1]);
}

IntRV tune_sample(Sketch *k, int n, const int64_t *values, int decided)
{
  double probs[MAX_CHOICES];
  for (int i = 0; i < n; i++) probs[i] = 1.0 / n;
  return sched_sample_categorical(k->s, n, values, probs, decided);
}

static IntRV sample(Sketch *k, int n, const int64_t *values) { return tune_sample(k, n, values, -1); }

static void unroll_some(Sketch *k, LoopRV loop)
{
  static const int64_t steps[] = {0, 8, 16, 64};
  IntRV v = sample(k, 4, steps);
  SchedArg args[] = {{.kind = SA_LOOP, .u.i = loop.id},
                     {.kind = SA_STR, .u.s = "pragma_auto_unroll_max_step"},
                     {.kind = SA_INTRV, .u.i = v.id}};
  sched_call(k->s, "annotate", 3, args);
}

static LoopRV fuse(Sketch *k, int n, const LoopRV *loop) { return n == 1 ? loop[0] : sched_fuse(k->s, n, loop, true); }

/* ---- a map over elements --------------------------------------------------------------------------------- */

void tune_split_by(Sketch *k, LoopRV loop, IntRV inner, LoopRV out[2])
{
  SchedArg factors[] = {{.kind = SA_NONE}, {.kind = SA_INTRV, .u.i = inner.id}};
  SchedArg args[] = {{.kind = SA_LOOP, .u.i = loop.id}, {.kind = SA_LIST, .u.list = {factors, 2}}};
  SchedArg made = sched_call(k->s, "split", 2, args);
  for (int i = 0; i < 2; i++) out[i].id = (int)made.u.list.v[i].u.i;
}

static void map_rule(Sketch *k, const BlockFacts *f)
{
  int64_t lanes = target_lanes(k->target, 32);
  const int64_t widths[] = {lanes, 2 * lanes, 4 * lanes, 16 * lanes};
  LoopRV *loop;
  LoopRV part[2];
  BlockRV block = sched_get_block(k->s, f->name);
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  if (n == 0) return;
  bool rows = n > 1 && tune_draw(&k->seed) & 1; /* rows on threads, each in vectors; or all elements as one row */
  LoopRV outer = rows ? fuse(k, n - 1, loop) : fuse(k, n, loop);
  tune_split_by(k, rows ? loop[n - 1] : outer, sample(k, 4, widths), part);
  Step t = {.k = k, .what = THREADS, .loop = rows ? outer : part[0]};
  tune_attempt(&t);
  tune_vectorize(k, part[1]);
  if (rows) unroll_some(k, outer);
}

/* ---- a sum with few results ------------------------------------------------------------------------------ */

static void parts_rule(Sketch *k, const BlockFacts *f)
{
  int64_t lanes = target_lanes(k->target, 32);
  const int64_t widths[] = {lanes, 2 * lanes, 4 * lanes, 8 * lanes};
  LoopRV *loop;
  LoopRV part[2];
  BlockRV block = sched_get_block(k->s, f->name);
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  LoopRV sum = fuse(k, n - f->space, loop + f->space);
  tune_split_by(k, sum, sample(k, 4, widths), part);
  Step t = {.k = k, .what = PARTS, .loop = part[1], .axis = f->space};
  if (!tune_attempt(&t)) return;
  n = sched_get_loops(k->s, t.made, k->arena, &loop); /* results, sum, lanes in some order: lanes innermost */
  if (n >= 2) {
    Step first = {.k = k, .what = INIT, .block = t.made, .loop = loop[f->space]};
    if (f->space) { /* the parts of a result stay in registers until they are added */
      Step under = {.k = k, .what = FUSED_UNDER, .loop = loop[f->space - 1], .block = sched_get_block(k->s, f->name)};
      Step local = {.k = k, .what = LOCAL, .block = t.made};
      if (tune_attempt(&under)) tune_attempt(&local);
      Step threads = {.k = k, .what = THREADS, .loop = loop[0]};
      tune_attempt(&threads);
    }
    if (tune_attempt(&first)) vectorize_last(k, first.made);
    vectorize_last(k, t.made);
    unroll_some(k, loop[n - 2]);
  }
}

/* ---- tiles ----------------------------------------------------------------------------------------------- */

static void tile_loop(Sketch *k, LoopRV loop, int n, LoopRV *out)
{
  enum { INNERMOST = 64 };
  IntRV tile[LEVELS];
  SchedArg factors[LEVELS];
  sched_sample_perfect_tile(k->s, loop, n, INNERMOST, NULL, tile);
  for (int i = 0; i < n; i++) factors[i] = (SchedArg){.kind = SA_INTRV, .u.i = tile[i].id};
  SchedArg args[] = {{.kind = SA_LOOP, .u.i = loop.id}, {.kind = SA_LIST, .u.list = {factors, n}}};
  SchedArg made = sched_call(k->s, "split", 2, args);
  for (int i = 0; i < n; i++) out[i].id = (int)made.u.list.v[i].u.i;
}

const char *tune_follower(Sketch *k, BlockRV block, bool alike)
{
  BlockRV *consumer;
  if (sched_get_consumers(k->s, block, k->arena, &consumer) != 1) return NULL;
  const Block *b = sched_block_stmt(k->s, consumer[0])->u.block;
  if (alike && b->niter != sched_block_stmt(k->s, block)->u.block->writes[0].buffer->ndim) return NULL;
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL) return NULL;
  return b->name;
}

/* S S R S R S: the loops of a level together, in the order of the block's iterations. */
static void order_tiles(Sketch *k, int space, int sums, LoopRV (*at)[LEVELS], LoopRV (*sum)[SUMS])
{
  LoopRV all[MAX_LOOPS * LEVELS];
  int n = 0;
  for (int level = 0; level < LEVELS; level++) {
    for (int i = 0; i < space; i++) all[n++] = at[i][level];
    for (int i = 0; i < sums && level > 0 && level < LEVELS - 1; i++) all[n++] = sum[i][level - 1];
  }
  sched_reorder(k->s, n, all);
}

/* A result goes through a tile of its own, or through what follows it; false: neither can be. */
static bool close_tile(Sketch *k, BlockRV block, LoopRV under, bool own)
{
  const char *next = tune_follower(k, block, false);
  Step t = {.k = k, .what = FUSED_UNDER, .loop = under};
  if (next) t.block = sched_get_block(k->s, next);
  else if (own) t.block = sched_cache_write(k->s, block, 0, "global", 0, NULL);
  else return false;
  if (!tune_attempt(&t)) return false;
  vectorize_last(k, t.block);
  return true;
}

static void tile_rule(Sketch *k, const BlockFacts *f)
{
  LoopRV at[MAX_LOOPS][LEVELS];
  LoopRV sum[MAX_LOOPS][SUMS];
  LoopRV outer[2 * MAX_LOOPS];
  LoopRV *loop;
  uint64_t form = tune_draw(&k->seed);
  BlockRV block = sched_get_block(k->s, f->name);
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  IterKind kind[MAX_LOOPS];
  for (int i = 0; i < n; i++) kind[i] = b->iter[i].kind;
  int space = 0;
  int sums = 0;
  for (int i = 0; i < n; i++) {
    if (kind[i] == ITER_REDUCE) tile_loop(k, loop[i], SUMS, sum[sums++]);
    else tile_loop(k, loop[i], LEVELS, at[space++]);
  }
  order_tiles(k, space, sums, at, sum);
  bool closed = close_tile(k, block, at[space - 1][1], form & 1);
  int nouter = 0;
  for (int level = 0; level < (form & 2 && !closed ? 2 : 1); level++)
    for (int i = 0; i < space; i++) outer[nouter++] = at[i][level];
  LoopRV threads = fuse(k, nouter, outer);
  Step t = {.k = k, .what = THREADS, .loop = threads};
  tune_attempt(&t);
  Step first = {.k = k, .what = INIT, .block = block, .loop = sum[0][0]};
  if (tune_attempt(&first)) vectorize_last(k, first.made);
  tune_vectorize(k, at[space - 1][LEVELS - 1]);
  unroll_some(k, threads);
}

/* ---- sums in registers ----------------------------------------------------------------------------------- */

/* Axes of a buffer in another order: `to[d]` is the place of axis d.  An axis that is in words stands there as their
 * number, and its place in a word comes last of all. */
static void reorder_axes(Step *t, BlockRV block, const Buffer *b, const int *to, int word)
{
  enum { WORD = 4 };
  Sched *s = t->k->s;
  Module *m = sched_module(s);
  int n = b->ndim;
  IndexMap *map = arena_new_of(m->arena, IndexMap);
  const Var **in = arena_array(m->arena, const Var *, n);
  const Expr **out = arena_array(m->arena, const Expr *, n + 1);
  for (int d = 0; d < n; d++) {
    in[d] = var_new(m, arena_printf(m->arena, "i%d", d), b->shape[d]->dtype, VAR_PLAIN);
    const Expr *size = expr_int(m, b->shape[d]->dtype, WORD);
    out[to[d]] = d == word ? expr_floordiv(m, var_expr(in[d]), size) : var_expr(in[d]);
    if (d == word) out[n] = expr_floormod(m, var_expr(in[d]), size);
  }
  *map = (IndexMap){.nin = n, .nout = word < 0 ? n : n + 1, .in = in, .out = out};
  sched_transform_layout(s, block, true, 0, map, NULL);
}

/* Places of axes with some of them last, in this order. */
static void places(int n, int nlast, const int *last, int *to)
{
  int at = 0;
  for (int d = 0; d < n; d++) {
    to[d] = -1;
    for (int i = 0; i < nlast; i++)
      if (last[i] == d) to[d] = n - nlast + i;
    if (to[d] < 0) to[d] = at++;
  }
}

/* A copy of what the block reads, with one axis last. */
static void transpose(Step *t)
{
  int to[MAX_RANK];
  const Buffer *b = sched_block_stmt(t->k->s, t->block)->u.block->reads[t->read].buffer;
  places(b->ndim, 1, &t->axis, to);
  t->made = sched_cache_read(t->k->s, t->block, t->read, "global", 1, &t->block);
  reorder_axes(t, t->made, b, to, -1);
}

/* The same with words of another axis behind it: …, word / 4, axis, word % 4. */
static void make_words(Step *t)
{
  int to[MAX_RANK];
  const Buffer *b = sched_block_stmt(t->k->s, t->block)->u.block->reads[t->read].buffer;
  places(b->ndim, 2, (int[]){t->word, t->axis}, to);
  t->made = sched_cache_read(t->k->s, t->block, t->read, "global", 1, &t->block);
  reorder_axes(t, t->made, b, to, t->word);
}

/* What the block writes along one of its iterations comes last. */
static void put_last(Step *t)
{
  int to[MAX_RANK];
  const Block *b = sched_block_stmt(t->k->s, t->block)->u.block;
  const Stmt *store = b->body;
  int axis = store->u.store.n - 1;
  while (axis > 0 && store->u.store.index[axis] != var_expr(b->iter[t->axis].var)) axis--;
  if (axis == store->u.store.n - 1) return;
  places(store->u.store.n, 1, &axis, to);
  reorder_axes(t, t->block, store->u.store.buffer, to, -1);
}

typedef struct Strided {
  const Buffer *buffer;
  const Var *var;
  int axis; /* of which the variable alone is the index; -1: none, -2: it is somewhere else, too */
} Strided;

static void look_for(void *env, const Expr *e)
{
  Strided *x = env;
  if (e->kind != E_LOAD || e->u.buffer != x->buffer) return;
  for (int d = 0; d < e->nargs; d++) {
    bool alone = e->arg[d]->kind == E_VAR && e->arg[d]->u.var == x->var;
    if (alone && d < e->nargs - 1 && (x->axis == -1 || x->axis == d)) x->axis = d;
    else if (expr_uses_var(e->arg[d], x->var)) x->axis = -2;
  }
}

typedef struct Lanes {
  const Var *var;
  bool fit;
} Lanes;

static void look_at_lanes(void *env, const Expr *e)
{
  Lanes *x = env;
  int uses = 0;
  if (e->kind != E_LOAD) return;
  for (int d = 0; d < e->nargs; d++) {
    bool used = expr_uses_var(e->arg[d], x->var);
    uses += used;
    x->fit = x->fit && (!used || e->arg[d]->kind == E_VAR);
  }
  x->fit = x->fit && uses <= 1;
}

/* Along this variable every operand is one value for all lanes, or can lie in a row. */
static bool may_be_lanes(Sketch *k, const Block *b, const Var *v)
{
  Lanes x = {v, true};
  if (b->body->kind != S_STORE) return false;
  expr_visit(k->ctx, b->body->u.store.value, look_at_lanes, &x);
  return x.fit;
}

/* The spatial iteration that vectors go along: the last, or, oftener where vectors do not fill that one, another that
 * vectors may go along. */
static int draw_lanes(Sketch *k, const Block *b, int64_t lanes)
{
  int other[MAX_LOOPS];
  int n = 0;
  int last = 0;
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind == ITER_SPATIAL) last = i;
  for (int i = 0; i < last; i++)
    if (b->iter[i].kind == ITER_SPATIAL && b->iter[i].extent->u.i >= lanes && may_be_lanes(k, b, b->iter[i].var))
      other[n++] = i;
  bool filled = b->iter[last].extent->u.i % lanes == 0 && may_be_lanes(k, b, b->iter[last].var);
  uint64_t any = tune_draw(&k->seed);
  if (n == 0 || any % 4 < (filled ? 3 : 1)) return last;
  return other[any / 4 % (uint64_t)n];
}

/* What vectors along an iteration would read with strides is copied, so that they read it in a row. */
static void line_up_reads(Sketch *k, BlockRV block, const Var *vector)
{
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  if (b->body->kind != S_STORE) return;
  for (int i = 0; i < b->nreads; i++) {
    Strided x = {b->reads[i].buffer, vector, -1};
    expr_visit(k->ctx, b->body->u.store.value, look_for, &x);
    if (x.axis < 0 || b->reads[i].buffer == b->writes[0].buffer) continue;
    Step t = {.k = k, .what = TRANSPOSE, .block = block, .read = i, .axis = x.axis};
    if (!tune_attempt(&t)) continue;
    LoopRV *loop;
    int n = sched_get_loops(k->s, t.made, k->arena, &loop);
    Step threads = {.k = k, .what = THREADS, .loop = loop[0]};
    if (n) tune_attempt(&threads);
    b = sched_block_stmt(k->s, block)->u.block;
  }
}

/* Loops of a block from this one on: the last as vectors, the others written out where they are few steps. */
static void write_out(Sketch *k, BlockRV block, int from)
{
  enum { MOST = 16 };
  LoopRV *loop;
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  int64_t steps = 1;
  for (int i = n - 2; i >= from; i--) {
    Step t = {.k = k, .what = WRITTEN_OUT, .loop = loop[i]};
    steps *= tune_loop_extent(k, loop[i]);
    if (steps <= MOST) tune_attempt(&t);
  }
  if (n > from) tune_vectorize(k, loop[n - 1]);
}

/* How wide the vectors are and how many rows of them there are: as the registers hold, most of them used. */
typedef struct RegisterTile {
  int wide, high; /* places in the lists */
} RegisterTile;
enum { VECTORS_WIDE = 4, WIDTHS = VECTORS_WIDE + 1, ROWS_HIGH = 12, HEIGHTS = MAX_CHOICES };

static int64_t widest_part(int64_t extent, int64_t most)
{
  int64_t part = most;
  while (extent % part) part--;
  return part;
}

/* One to four vectors and one to twelve rows; the last of each list divides what there is, so that no tile is cut. */
static void list_tiles(int64_t columns, int64_t rows, int64_t lanes, int64_t width[WIDTHS], int64_t height[HEIGHTS])
{
  static const int64_t usual[HEIGHTS - 1] = {1, 2, 3, 4, 5, 6, 8, ROWS_HIGH};
  for (int i = 0; i < VECTORS_WIDE; i++) width[i] = (i + 1) * lanes;
  width[VECTORS_WIDE] = widest_part(columns, VECTORS_WIDE * lanes);
  memcpy(height, usual, sizeof usual);
  height[HEIGHTS - 1] = widest_part(rows, ROWS_HIGH);
}

static RegisterTile draw_tile(Sketch *k, int64_t columns, int64_t rows, int64_t lanes, const int64_t width[WIDTHS],
                              const int64_t height[HEIGHTS])
{
  RegisterTile fit[WIDTHS * HEIGHTS];
  int n = 0;
  int64_t room = k->target->vector_registers - 4;
  for (int w = 0; w < WIDTHS; w++)
    for (int h = 0; h < HEIGHTS; h++) {
      int64_t vectors = (width[w] + lanes - 1) / lanes;
      int64_t sums = vectors * height[h];
      bool sensible = (w == 0 || (width[w] <= columns && width[w] >= lanes)) && height[h] <= rows;
      bool full = 3 * sums >= room || 2 * height[h] > rows || (vectors + 1) * lanes > columns;
      if (sensible && sums <= room && (full || n == 0)) fit[n++] = (RegisterTile){w, h};
    }
  return fit[n ? tune_draw(&k->seed) % (uint64_t)n : 0];
}

int tune_steps_of(int64_t extent, int64_t *out)
{
  int n = 0;
  for (int64_t d = 1; d <= 16 && n < MAX_CHOICES; d++)
    if (extent % d == 0) out[n++] = d;
  return n;
}

void tune_close_registers(Sketch *k, BlockRV block, int nouter, const LoopRV *outer, LoopRV sum)
{
  const char *next = tune_follower(k, block, true);
  Step under = {.k = k, .what = FUSED_UNDER, .loop = outer[nouter - 1]};
  under.block = next ? sched_get_block(k->s, next) : sched_cache_write(k->s, block, 0, "local", 0, NULL);
  bool closed = tune_attempt(&under);
  Step local = {.k = k, .what = LOCAL, .block = block};
  if (closed && next) tune_attempt(&local);
  if (closed) write_out(k, under.block, nouter);
  Step first = {.k = k, .what = INIT, .block = block, .loop = sum};
  if (tune_attempt(&first)) write_out(k, first.made, nouter);
}

void tune_share_outer(Sketch *k, int n, const LoopRV *loop)
{
  Step threads = {.k = k, .what = THREADS, .loop = fuse(k, n, loop)};
  tune_attempt(&threads);
}

/* Sums go through a tile of their own, or into what follows; then the marks. */
static void finish_registers(Sketch *k, BlockRV block, int nouter, const LoopRV *outer, LoopRV sum, int ninner,
                             const LoopRV *inner, int vector)
{
  tune_close_registers(k, block, nouter, outer, sum);
  Step last = {.k = k, .what = LANES_LAST, .block = block, .axis = vector};
  tune_attempt(&last);
  for (int i = 0; i < ninner - 1; i++) {
    Step t = {.k = k, .what = WRITTEN_OUT, .loop = inner[i]};
    tune_attempt(&t);
  }
  tune_vectorize(k, inner[ninner - 1]);
  tune_share_outer(k, nouter, outer);
}

static void register_rule(Sketch *k, const BlockFacts *f)
{
  LoopRV space[MAX_LOOPS], sum[MAX_LOOPS + 1], all[2 * MAX_LOOPS + 4], row[2], column[2], *loop;
  BlockRV block = sched_get_block(k->s, f->name);
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  int64_t lanes = target_lanes(k->target, f->writes->dtype.bits);
  int vector = draw_lanes(k, b, lanes);
  int wide = 0; /* its place among the spatial ones */
  int nspace = 0;
  int nsum = 0;
  uint64_t form = tune_draw(&k->seed);
  IterKind kind[MAX_LOOPS];
  for (int i = 0; i < b->niter; i++) {
    kind[i] = b->iter[i].kind;
    wide += i < vector && kind[i] == ITER_SPATIAL;
  }
  if (form % 4 || wide < f->space - 1) line_up_reads(k, block, b->iter[vector].var);
  int n = sched_get_loops(k->s, block, k->arena, &loop);
  for (int i = 0; i < n; i++) *(kind[i] == ITER_REDUCE ? &sum[nsum++] : &space[nspace++]) = loop[i];
  int high = wide == nspace - 1 ? nspace - 2 : nspace - 1; /* the loop whose steps are rows of the tile … */
  if (nspace > 2 && (form >> 8) % 3 == 0) {                /* … another one now and then */
    high = (int)((form >> 16) % (uint64_t)(nspace - 1));
    high += high >= wide;
  }
  int64_t widths[WIDTHS];
  int64_t heights[HEIGHTS];
  int64_t columns = tune_loop_extent(k, space[wide]);
  int64_t rows = high >= 0 ? tune_loop_extent(k, space[high]) : 1;
  list_tiles(columns, rows, lanes, widths, heights);
  RegisterTile tile = draw_tile(k, columns, rows, lanes, widths, heights);
  tune_split_by(k, space[wide], tune_sample(k, WIDTHS, widths, tile.wide), column);
  if (high >= 0) tune_split_by(k, space[high], tune_sample(k, HEIGHTS, heights, tile.high), row);
  int nouter = 0;
  if (form >> 4 & 1) all[nouter++] = column[0]; /* columns outermost: what they read of one operand stays near */
  for (int i = 0; i < nspace; i++)
    if (i != wide) all[nouter++] = i == high ? row[0] : space[i];
  if (!(form >> 4 & 1)) all[nouter++] = column[0];
  int64_t steps[MAX_CHOICES];
  LoopRV part[2];
  tune_split_by(k, sum[nsum - 1], sample(k, tune_steps_of(tune_loop_extent(k, sum[nsum - 1]), steps), steps), part);
  sum[nsum - 1] = part[0];
  n = nouter;
  for (int i = 0; i < nsum; i++) all[n++] = sum[i];
  all[n++] = part[1];
  if (high >= 0) all[n++] = row[1];
  all[n++] = column[1];
  sched_reorder(k->s, n, all);
  int ninner = high >= 0 ? 3 : 2;
  finish_registers(k, block, nouter, all, sum[0], ninner, all + n - ninner, vector);
}

/* ---- a whole function ------------------------------------------------------------------------------------ */

static bool is_there(Sketch *k, const char *name)
{
  Stmt *s = func_find_block(sched_func(k->s), name);
  return s && stmt_enclosing_block(s);
}

const BlockFacts *tune_facts_of(Sketch *k, const char *name)
{
  BlockList now = blocks_of(k);
  for (int i = 0; i < now.n; i++)
    if (!strcmp(now.v[i].name, name) && now.v[i].plain) return arena_copy(k->arena, &now.v[i], sizeof now.v[i]);
  return NULL;
}

/* Few results of long sums. */
static bool is_long_sum(const BlockFacts *f)
{
  enum { FEW = 64, MANY = 256 };
  return f->sums && f->results < FEW && f->steps / f->results >= MANY;
}

/* Sums long enough for vectors along them, whatever the number of results. */
static bool may_come_in_parts(Sketch *k, const BlockFacts *f)
{
  return f->sums && f->steps / f->results >= 8 * target_lanes(k->target, 32);
}

static void sketch_body(Sketch *k)
{
  inline_all(k);
  BlockList all = blocks_of(k);
  for (int pass = 0; pass < 2; pass++) /* reductions first: what follows may come under their tiles */
    for (int i = 0; i < all.n; i++) {
      const BlockFacts *f = is_there(k, all.v[i].name) ? tune_facts_of(k, all.v[i].name) : NULL;
      if (!f || (f->sums == 0) == (pass == 0)) continue;
      if (!f->sums) map_rule(k, f);
      else if (tune_has_dots(k, f) && tune_draw(&k->seed) % 8) tune_dots(k, f);
      else if (is_long_sum(f) || (may_come_in_parts(k, f) && tune_draw(&k->seed) % 3 == 0)) parts_rule(k, f);
      else if (f->space && tune_draw(&k->seed) % 4) register_rule(k, f);
      else if (f->space) tile_rule(k, f);
    }
}

bool tune_rule(Arena *arena, Sched *s, const Target *target, TuneRule rule, const char *block, uint64_t seed)
{
  Sketch k = {.ctx = sched_module(s)->ctx, .arena = arena, .s = s, .target = target, .seed = seed};
  const BlockFacts *f = is_there(&k, block) ? tune_facts_of(&k, block) : NULL;
  if (!f) return false;
  switch (rule) {
  case RULE_INLINE: return !f->output && !f->sums && inline_one(&k, block);
  case RULE_PARTS:
    if (!is_long_sum(f) && !may_come_in_parts(&k, f)) return false;
    parts_rule(&k, f);
    return true;
  case RULE_TILE:
    if (!f->sums || !f->space) return false;
    tile_rule(&k, f);
    return true;
  case RULE_REGISTERS:
    if (!f->sums || !f->space) return false;
    register_rule(&k, f);
    return true;
  case RULE_DOTS:
    if (!tune_has_dots(&k, f)) return false;
    tune_dots(&k, f);
    return true;
  case RULE_MAP:
    if (f->sums) return false;
    map_rule(&k, f);
    return true;
  }
  return false;
}

static void free_sched(void *s) { sched_free(s); }

Sched *tune_sketch(Arena *arena, const PrimFunc *f, const Target *target, uint64_t seed)
{
  Sketch k = {.ctx = f->m->ctx, .arena = arena, .target = target, .seed = seed};
  k.s = sched_new(f, tune_draw(&k.seed));
  defer(k.ctx, free_sched, k.s);
  sketch_body(&k);
  return k.s;
}

/* ---- decisions ------------------------------------------------------------------------------------------- */

/* The next line with a decision: where that begins and ends. */
static const char *next_decision(const char *p, size_t *n, bool *tile)
{
  static const char mark[] = "decision=";
  const char *at = strstr(p, mark);
  if (!at) return NULL;
  at += sizeof mark - 1;
  *tile = *at == '[';
  *n = *tile ? strcspn(at, "]") + 1 : strspn(at, "-0123456789");
  return at;
}

static int least_factor(int64_t v)
{
  for (int p = 2; (int64_t)p * p <= v && p < 1000; p++)
    if (v % p == 0) return p;
  return v < 1 << 30 ? (int)v : 1;
}

/* A prime factor goes from one tile to another. */
static void mutate_tile(Text *out, const char *text, uint64_t *seed)
{
  int64_t tile[LEVELS];
  int n = 0;
  const char *p = text + 1;
  while (n < LEVELS && *p != ']') {
    char *end;
    tile[n++] = strtoll(p, &end, 10);
    p = end + strspn(end, ", ");
  }
  for (int tries = 0; tries < 16 && n > 1; tries++) {
    int from = (int)(tune_draw(seed) % (uint64_t)n);
    int to = (int)(tune_draw(seed) % (uint64_t)n);
    int factor = tile[from] > 1 ? least_factor(tile[from]) : 1;
    if (from == to || factor == 1) continue;
    tile[from] /= factor;
    tile[to] *= factor;
    break;
  }
  text_char(out, '[');
  for (int i = 0; i < n; i++) text_printf(out, "%s%" PRId64, i ? ", " : "", tile[i]);
  text_char(out, ']');
}

/* Where the line of a place in the trace begins. */
static const char *line_start(const char *trace, const char *at)
{
  while (at > trace && at[-1] != '\n') at--;
  return at;
}

/* Is the decision one of this primitive's?  NULL: of any. */
static bool decides(const char *trace, const char *at, const char *primitive)
{
  const char *call = strstr(line_start(trace, at), "sch.");
  size_t n = primitive ? strlen(primitive) : 0;
  return !primitive || (call && !strncmp(call + 4, primitive, n) && call[4 + n] == '(');
}

/* Another value: of a list of candidates a place in it, of a place in the loops -2 (its root) to 7. */
static int64_t other_choice(const char *trace, const char *at, uint64_t *seed)
{
  enum { INLINED = -2, LOOPS = 10 };
  const char *list = strchr(line_start(trace, at), '[');
  if (!list || list > at) return INLINED + (int64_t)(tune_draw(seed) % LOOPS);
  uint64_t n = 1;
  for (const char *p = list; *p && *p != ']'; p++) n += *p == ',';
  return (int64_t)(tune_draw(seed) % n);
}

const char *tune_mutate(Arena *arena, const char *trace, const char *primitive, uint64_t *seed)
{
  Text out = text_new(arena);
  size_t n;
  bool tile;
  int count = 0;
  for (const char *p = trace; (p = next_decision(p, &n, &tile)); p += n) count += decides(trace, p, primitive);
  if (!count) return trace;
  int which = (int)(tune_draw(seed) % (uint64_t)count);
  const char *at = next_decision(trace, &n, &tile);
  while (!decides(trace, at, primitive) || which-- > 0) at = next_decision(at + n, &n, &tile);
  text_addn(&out, trace, (size_t)(at - trace));
  if (tile) mutate_tile(&out, at, seed);
  else text_printf(&out, "%" PRId64, other_choice(trace, at, seed));
  text_add(&out, at + n);
  return text_str(&out);
}

/* "form{d0=…}": the calls without their decisions by a hash, and every decided number by its place. */
const char *tune_decisions(Arena *arena, const char *trace)
{
  Text out = text_new(arena);
  Text fields = text_new(arena);
  uint64_t form = 1;
  size_t n;
  bool tile;
  int number = 0;
  const char *from = trace;
  for (const char *p = trace; (p = next_decision(p, &n, &tile)); from = p += n) {
    form = hash_bytes(from, (size_t)(p - from), form);
    const char *q = p + tile;
    while (q < p + n && (*q == '-' || (*q >= '0' && *q <= '9'))) {
      char *end;
      text_printf(&fields, "%sd%d=%lld", fields.n ? ", " : "", number++, strtoll(q, &end, 10));
      q = end + strspn(end, ", ");
    }
  }
  form = hash_bytes(from, strlen(from), form);
  text_printf(&out, "form%016" PRIx64 "{%s}", form, text_str(&fields));
  return text_str(&out);
}
