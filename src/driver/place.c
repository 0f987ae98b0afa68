/* place.c: blocks of memory into pools.
 *
 * Blocks are placed one after the other, each where it fits among those that were placed before: what comes out
 * depends on the order alone.  Orders that do well: that of the program, from the block needed longest, from the
 * largest to the smallest, from the one that is in the way of most bytes.  From there the order is climbed: the block
 * that reaches highest is placed first, some times over; then blocks that hold up the highest one are exchanged with
 * others, and what is no worse is kept.
 *
 * Exact search.  Take the best placing there is, and place its blocks again from the lowest to the highest, each
 * at the lowest place that is free: none comes to lie higher.  So some order with the lowest free place is
 * best, and only those need be tried in which places do not descend.  That holds for blocks whose bytes
 * are all needed at the same time; others are left to the climb.
 *
 * The least counts, and is compared with the bound that no placing can go below: the most bytes that are needed at one
 * instruction.  With several pools, blocks that fit nowhere count first, then the cycles that it takes to read and
 * write the blocks where they lie, then bytes in later pools; a block goes to the fastest pool that has room. */
#include "driver/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A placing, judged: less is better, from the first to the last. */
typedef struct Score {
  int64_t overflow;
  double cycles;
  int64_t later, bytes;
} Score;

typedef struct Placing {
  Ctx *ctx;
  Arena *arena;
  int n, npools;
  const PlacePool *of;
  int *fastest; /* pools, the fastest first */
  double least; /* cycles with every block there */
  int64_t bound;
  Score best;
  int *pool;      /* of the best, by place in `block` */
  int64_t *place; /* the same */
  PlaceBlock *block;
  bool lowest; /* the lowest free place, not the tightest */
} Placing;

static bool is_less(Score a, Score b)
{
  if (a.overflow != b.overflow) return a.overflow < b.overflow;
  if (a.cycles != b.cycles) return a.cycles < b.cycles;
  if (a.later != b.later) return a.later < b.later;
  return a.bytes < b.bytes;
}

static bool is_done(const Placing *p)
{
  bool first = p->least > 0 ? p->best.cycles <= p->least : p->best.later == 0;
  return p->best.overflow == 0 && first && p->best.bytes <= p->bound;
}

/* ---- orders ---------------------------------------------------------------------------------------- */

static int by_size(const void *x, const void *y)
{
  const PlaceBlock *a = *(PlaceBlock *const *)x;
  const PlaceBlock *b = *(PlaceBlock *const *)y;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  int la = a->end - a->begin;
  int lb = b->end - b->begin;
  if (la != lb) return la < lb ? 1 : -1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static int by_time(const void *x, const void *y)
{
  const PlaceBlock *a = *(PlaceBlock *const *)x;
  const PlaceBlock *b = *(PlaceBlock *const *)y;
  double ta = (double)a->bytes * (a->end - a->begin + 1);
  double tb = (double)b->bytes * (b->end - b->begin + 1);
  return ta != tb ? (ta < tb ? 1 : -1) : by_size(x, y);
}

static int by_begin(const void *x, const void *y)
{
  const PlaceBlock *a = *(PlaceBlock *const *)x;
  const PlaceBlock *b = *(PlaceBlock *const *)y;
  return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1) : by_size(x, y);
}

/* Bytes of the blocks that are needed at the same time, with the block itself; `place` holds them while sorting. */
static int by_conflicts(const void *x, const void *y)
{
  const PlaceBlock *a = *(PlaceBlock *const *)x;
  const PlaceBlock *b = *(PlaceBlock *const *)y;
  return a->place != b->place ? (a->place < b->place ? 1 : -1) : by_size(x, y);
}

/* What is moved most for its bytes. */
static int by_heat(const void *x, const void *y)
{
  const PlaceBlock *a = *(PlaceBlock *const *)x;
  const PlaceBlock *b = *(PlaceBlock *const *)y;
  double ha = a->bytes ? (a->read + a->written) / (double)a->bytes : 0;
  double hb = b->bytes ? (b->read + b->written) / (double)b->bytes : 0;
  return ha != hb ? (ha < hb ? 1 : -1) : by_size(x, y);
}

static bool in_time(const PlaceBlock *a, const PlaceBlock *b) { return a->end >= b->begin && b->end >= a->begin; }

static void count_conflicts(Placing *p)
{
  for (int i = 0; i < p->n; i++) {
    p->block[i].place = 0;
    for (int k = 0; k < p->n; k++)
      if (in_time(&p->block[i], &p->block[k])) p->block[i].place += p->block[k].bytes;
  }
}

/* ---- placing ------------------------------------------------------------------------------------ */

/* Places that a block cannot have: those strictly between. */
typedef struct Taken {
  int64_t above, below;
} Taken;
typedef Vec(Taken) Takens;

static int by_above(const void *x, const void *y)
{
  const Taken *a = x;
  const Taken *b = y;
  return a->above < b->above ? -1 : a->above > b->above;
}

static void add_taken(Arena *a, const PlaceBlock *m, const PlaceBlock *placed, Takens *out)
{
  if (!in_time(placed, m)) return;
  for (int i = 0; i < placed->nsegment; i++)
    for (int k = 0; k < m->nsegment; k++) {
      const Segment *s = &placed->segment[i];
      const Segment *own = &m->segment[k];
      if (s->end < own->begin || own->end < s->begin) continue;
      int64_t at = placed->place + s->offset - own->offset;
      vec_push(a, out, ((Taken){at - own->bytes, at + s->bytes}));
    }
}

/* The tightest gap that is left in the pool (or the lowest), else the end. */
static int64_t find_place(Placing *p, PlaceBlock *m, int pool, PlaceBlock *const *placed, int n, Takens *taken)
{
  taken->n = 0;
  for (int i = 0; i < n; i++)
    if (placed[i]->pool == pool) add_taken(p->arena, m, placed[i], taken);
  if (taken->n) qsort(taken->v, (size_t)taken->n, sizeof *taken->v, by_above);
  int64_t at = 0;
  int64_t best = -1;
  int64_t best_gap = INT64_MAX;
  for (int i = 0; i < taken->n; i++) {
    int64_t gap = taken->v[i].above - at;
    if (gap >= 0 && gap < best_gap) {
      best_gap = p->lowest ? 0 : gap;
      best = at;
    }
    if (taken->v[i].below > at) at = taken->v[i].below;
  }
  return best < 0 ? at : best;
}

/* The first pool that has room. */
static void place_one(Placing *p, PlaceBlock *m, PlaceBlock *const *placed, int n, Takens *taken)
{
  for (int i = 0; i < p->npools; i++) {
    m->pool = p->fastest[i];
    m->place = find_place(p, m, m->pool, placed, n, taken);
    if (m->place <= p->of[m->pool].size - m->bytes) return;
  }
  m->pool = -1;
  m->place = 0;
}

static double cycles_in(const PlaceBlock *b, const PlacePool *pool)
{
  return b->read * pool->read + b->written * pool->write;
}

static Score score_of(const Placing *p, PlaceBlock *const *order, int n, int64_t *pools)
{
  Score s = {0};
  memset(pools, 0, (size_t)p->npools * sizeof *pools);
  for (int i = 0; i < n; i++) {
    const PlaceBlock *b = order[i];
    if (b->pool < 0) s.overflow += b->bytes;
    else if (b->place + b->bytes > pools[b->pool]) pools[b->pool] = b->place + b->bytes;
    if (b->pool > 0) s.later += b->bytes * b->pool;
    if (b->pool >= 0) s.cycles += cycles_in(b, &p->of[b->pool]);
  }
  for (int k = 0; k < p->npools; k++) s.bytes += pools[k];
  return s;
}

static void keep(Placing *p, Score score)
{
  p->best = score;
  for (int i = 0; i < p->n; i++) {
    p->pool[i] = p->block[i].pool;
    p->place[i] = p->block[i].place;
  }
}

static Score try_order(Placing *p, PlaceBlock **order)
{
  Takens taken = {0};
  Scope scope = scope_begin(p->ctx);
  Arena *before = p->arena;
  p->arena = scratch(p->ctx);
  for (int i = 0; i < p->n; i++) place_one(p, order[i], order, i, &taken);
  Score score = score_of(p, order, p->n, arena_array(p->arena, int64_t, p->npools + 1));
  p->arena = before;
  scope_end(p->ctx, scope);
  if (is_less(score, p->best)) keep(p, score);
  return score;
}

/* ---- climbing --------------------------------------------------------------------------------------- */

static int highest(const Placing *p, PlaceBlock *const *order)
{
  int top = 0;
  for (int i = 1; i < p->n; i++) {
    if (order[i]->pool < 0) return i;
    if (order[i]->place + order[i]->bytes > order[top]->place + order[top]->bytes) top = i;
  }
  return top;
}

/* The block that reaches highest is placed first, again and again. */
static void climb(Placing *p, PlaceBlock **order, int turns)
{
  for (int t = 0; t < turns && !is_done(p); t++) {
    int top = highest(p, order);
    PlaceBlock *first = order[top];
    memmove(order + 1, order, (size_t)top * sizeof *order);
    order[0] = first;
    try_order(p, order);
  }
}

static uint64_t next_random(uint64_t *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* The highest block, or one that it conflicts with, changes places with another of the order; what is no worse stays,
 * and now and then what is a little worse. */
static void climb_by_exchange(Placing *p, PlaceBlock **order, int turns)
{
  uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
  Score now = try_order(p, order);
  Score from = now;
  for (int t = 0; t < turns && !is_done(p); t++) {
    int a = highest(p, order);
    if (next_random(&random) % 2) {
      int start = (int)(next_random(&random) % (uint64_t)p->n);
      for (int i = 0; i < p->n; i++) {
        int k = (start + i) % p->n;
        if (k != a && in_time(order[k], order[a])) {
          a = k;
          break;
        }
      }
    }
    int b = (int)(next_random(&random) % (uint64_t)p->n);
    if (a == b) continue;
    PlaceBlock *x = order[a];
    order[a] = order[b];
    order[b] = x;
    Score score = try_order(p, order);
    bool worse = is_less(now, score);
    bool bear =
        score.overflow <= from.overflow && score.bytes - now.bytes < now.bytes / 50 && next_random(&random) % 16 == 0;
    if (!worse || bear) {
      now = score;
    } else {
      order[b] = order[a];
      order[a] = x;
    }
    if (t % 512 == 511) ctx_poll(p->ctx);
  }
}

/* ---- exact search --------------------------------------------------------------------------------- */

enum { EXACT_BLOCKS = 40, EXACT_STEPS = 200000 };

typedef struct Exact {
  Placing *p;
  PlaceBlock **order; /* the first `depth` are placed */
  int64_t steps;
  Takens taken;
} Exact;

/* Bytes that the blocks still to be placed need at least: each lies above those placed that it conflicts with,
 * from the place where the search stands. */
static bool search(Exact *x, int depth, int64_t from, int64_t bytes)
{
  Placing *p = x->p;
  if (depth == p->n) {
    keep(p, (Score){.bytes = bytes});
    return !is_done(p);
  }
  if (--x->steps < 0) return false;
  for (int i = depth; i < p->n; i++) {
    PlaceBlock *b = x->order[i];
    b->pool = 0;
    b->place = find_place(p, b, 0, x->order, depth, &x->taken);
    if (b->place < from || b->place + b->bytes >= p->best.bytes) continue;
    bool same = false; /* blocks of the same size and times need one order only */
    for (int k = depth; k < i; k++)
      same = same || (x->order[k]->bytes == b->bytes && x->order[k]->begin == b->begin && x->order[k]->end == b->end);
    if (same) continue;
    int64_t place = b->place;
    int64_t top = place + b->bytes > bytes ? place + b->bytes : bytes;
    x->order[i] = x->order[depth];
    x->order[depth] = b;
    bool go_on = search(x, depth + 1, place, top);
    x->order[depth] = x->order[i];
    x->order[i] = b;
    if (!go_on) return false;
  }
  return true;
}

/* True: all was tried, and nothing is better. */
static bool search_exactly(Placing *p, PlaceBlock **order)
{
  if (p->n > EXACT_BLOCKS || p->npools != 1 || p->of[0].size != INT64_MAX || p->least > 0) return false;
  for (int i = 0; i < p->n; i++)
    if (p->block[i].nsegment != 1) return false;
  Exact x = {.p = p, .order = order, .steps = EXACT_STEPS};
  p->lowest = true;
  qsort(order, (size_t)p->n, sizeof *order, by_size);
  bool all = search(&x, 0, 0, 0);
  p->lowest = false;
  return all || is_done(p);
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static int64_t most_needed(Arena *a, int n, const PlaceBlock *block, int ntimes, int *at)
{
  int64_t *change = arena_array(a, int64_t, ntimes + 2);
  int64_t now = 0;
  int64_t most = 0;
  *at = 0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < block[i].nsegment; k++) {
      const Segment *s = &block[i].segment[k];
      change[s->begin] += s->bytes;
      change[s->end + 1] -= s->bytes;
    }
  for (int i = 0; i <= ntimes; i++) {
    now += change[i];
    if (now > most) {
      most = now;
      *at = i;
    }
  }
  return most;
}

typedef int (*Order)(const void *, const void *);

static void try_orders(Placing *p, PlaceBlock **order, int n, const Order *orders)
{
  for (int k = 0; k < n && !is_done(p); k++) {
    if (orders[k] == by_conflicts) count_conflicts(p);
    if (p->n) qsort(order, (size_t)p->n, sizeof *order, orders[k]);
    try_order(p, order);
  }
}

/* Turns that take about so many comparisons of two blocks. */
static int turns_of(const Placing *p, int64_t work, int most)
{
  int64_t turns = p->n > 1 ? work / ((int64_t)p->n * p->n) : 0;
  return (int)(turns < most ? turns : most);
}

static bool look(Placing *p, PlaceBlock **order, PlaceEffort effort)
{
  static const Order quick[] = {by_begin, by_time, by_size};
  static const Order all[] = {by_begin, by_time, by_size, by_conflicts};
  static const Order heat[] = {by_heat};
  enum { SHORT = 4000000, LONG = 60000000 };
  if (p->least > 0) try_orders(p, order, 1, heat);
  switch (effort) {
  case PLACE_QUICK:
    try_orders(p, order, 3, quick);
    climb(p, order, turns_of(p, SHORT, 64));
    return false;
  case PLACE_BY_SIZE: try_orders(p, order, 1, all + 2); return false;
  case PLACE_BY_CONFLICTS: try_orders(p, order, 1, all + 3); return false;
  case PLACE_CLIMB:
    try_orders(p, order, 1, all + 2);
    climb_by_exchange(p, order, turns_of(p, LONG, 20000));
    return false;
  case PLACE_THOROUGH: break;
  }
  for (int lowest = 0; lowest < 2; lowest++) {
    p->lowest = lowest;
    try_orders(p, order, 4, all);
    climb(p, order, turns_of(p, SHORT, 64));
  }
  p->lowest = false;
  if (is_done(p) || search_exactly(p, order)) return true;
  qsort(order, (size_t)p->n, sizeof *order, p->least > 0 ? by_heat : by_size);
  climb_by_exchange(p, order, turns_of(p, LONG, 20000));
  return false;
}

/* Pools from the fastest to the slowest, those alike in their order. */
static void order_pools(Placing *p)
{
  p->fastest = arena_array(p->arena, int, p->npools + 1);
  for (int i = 0; i < p->npools; i++) {
    int at = i;
    double cost = p->of[i].read + p->of[i].write;
    for (; at > 0 && p->of[p->fastest[at - 1]].read + p->of[p->fastest[at - 1]].write > cost; at--)
      p->fastest[at] = p->fastest[at - 1];
    p->fastest[at] = i;
  }
  for (int i = 0; i < p->n; i++) p->least += cycles_in(&p->block[i], &p->of[p->fastest[0]]);
}

void place_blocks(Ctx *ctx, int n, PlaceBlock *block, int ntimes, int npools, const PlacePool *pool, PlaceEffort effort,
                  PlaceReport *out)
{
  Arena *a = scratch(ctx);
  Placing p = {.ctx = ctx,
               .arena = a,
               .n = n,
               .npools = npools,
               .of = pool,
               .best = {INT64_MAX, HUGE_VAL, INT64_MAX, INT64_MAX},
               .block = block,
               .pool = arena_array(a, int, n + 1),
               .place = arena_array(a, int64_t, n + 1)};
  order_pools(&p);
  *out = (PlaceReport){.pool = arena_array(a, int64_t, npools + 1)};
  out->bound = p.bound = most_needed(a, n, block, ntimes, &out->bound_at);
  PlaceBlock **order = arena_array(a, PlaceBlock *, n + 1);
  for (int i = 0; i < n; i++) order[i] = &block[i];
  bool proven = look(&p, order, effort);
  for (int i = 0; i < n; i++) {
    block[i].pool = p.pool[i];
    block[i].place = p.place[i];
    order[i] = &block[i];
  }
  Score score = score_of(&p, order, n, out->pool);
  out->bytes = score.bytes;
  out->overflow = score.overflow;
  out->cycles = score.cycles;
  out->optimal = proven || score.bytes <= out->bound;
}
