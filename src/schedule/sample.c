/* sample.c: choices by chance, kept with the trace.
 *
 * The generator is our own, so a seed gives the same choices everywhere.  The choice
 * made becomes the call's decision argument: a replay repeats it. */
#include "schedule/engine.h"

/* splitmix64 */
uint64_t sched_rng_next(uint64_t *state)
{
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static double rng_unit(uint64_t *state) { return (double)(sched_rng_next(state) >> 11) * 0x1p-53; }

SchedArg prim_sample_categorical(Sched *s, SchedArg *a)
{
  int n = a[0].u.list.n;
  if (!n || a[1].u.list.n != n)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_categorical: %d candidates have %d probabilities", n, a[1].u.list.n);
  double sum = 0;
  double at = 0;
  for (int i = 0; i < n; i++) {
    double p = a[1].u.list.v[i].u.f;
    if (!(p >= 0))
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_categorical: probability %d is %g; it cannot be negative", i, p);
    sum += p;
  }
  if (!(sum > 0)) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_categorical: all probabilities are 0");
  int64_t choice = n - 1;
  if (a[2].kind != SA_NONE) {
    choice = sched_arg_int(s, &a[2]);
    if (choice < 0 || choice >= n)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_categorical: decision %" PRId64 " is not one of the %d candidates",
            choice, n);
  } else {
    double draw = rng_unit(&s->rng) * sum;
    for (int i = 0; i < n; i++) {
      at += a[1].u.list.v[i].u.f;
      if (draw < at) {
        choice = i;
        break;
      }
    }
  }
  a[2] = (SchedArg){.kind = SA_INT, .u.i = choice};
  return sched_result_int(s, sched_arg_int(s, &a[0].u.list.v[choice]));
}

/* A random divisor of v that is at most limit. */
static int64_t draw_divisor(Sched *s, int64_t v, int64_t limit)
{
  Vec(int64_t) small = {0};
  for (int64_t d = 1; d * d <= v; d++) {
    if (v % d) continue;
    if (d <= limit) vec_push(scratch(s->ctx), &small, d);
    if (d * d != v && v / d <= limit) vec_push(scratch(s->ctx), &small, v / d);
  }
  return small.v[sched_rng_next(&s->rng) % (uint64_t)small.n];
}

/* Tiles of another extent: from the innermost outwards the largest divisor that is not larger; the outermost has the
 * rest. */
static void fit_tiles(int n, SchedArg *tile, int64_t rest)
{
  for (int i = n - 1; i > 0; i--) {
    int64_t most = tile[i].u.i < rest ? tile[i].u.i : rest;
    while (most > 1 && rest % most) most--;
    tile[i].u.i = most > 1 ? most : 1;
    rest /= tile[i].u.i;
  }
  tile[0].u.i = rest;
}

SchedArg prim_sample_perfect_tile(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  const Expr *extent = loop->u.loop.extent;
  int64_t n = sched_arg_int(s, &a[1]);
  int64_t limit = sched_arg_int(s, &a[2]);
  if (n < 1 || n > 64)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_perfect_tile: %" PRId64 " is no number of tiles; 1 to 64 are", n);
  if (limit < 1)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_perfect_tile: max_innermost_factor %" PRId64 " is not positive",
          limit);
  if (extent->kind != E_INT)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "sample_perfect_tile: the extent %s of %s is not a constant; split it by constants instead",
          expr_str_of(scratch(s->ctx), extent), tree_what(s, loop));
  SchedArg *tile = arena_array(s->m->arena, SchedArg, n);
  SchedArg *out = arena_array(scratch(s->ctx), SchedArg, n);
  int64_t product = 1;
  int64_t rest = extent->u.i;
  if (a[3].kind == SA_LIST) {
    if (a[3].u.list.n != n)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_perfect_tile: the decision has %d factors, %" PRId64 " are wanted",
            a[3].u.list.n, n);
    for (int i = 0; i < n; i++) {
      tile[i] = (SchedArg){.kind = SA_INT, .u.i = sched_arg_int(s, &a[3].u.list.v[i])};
      if (tile[i].u.i < 1 || !int_mul(product, tile[i].u.i, &product))
        raise(s->ctx, ERR_ARGUMENT, NOWHERE, "sample_perfect_tile: factor %" PRId64 " is no tile of %s", tile[i].u.i,
              tree_what(s, loop));
    }
    if (product != rest && s->fits) fit_tiles((int)n, tile, rest);
    else if (product != rest)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE,
            "sample_perfect_tile: the decision's product %" PRId64 " is not the extent %" PRId64 " of %s", product,
            rest, tree_what(s, loop));
  } else {
    for (int64_t i = n - 1; i > 0; i--) {
      tile[i] = (SchedArg){.kind = SA_INT, .u.i = rest > 0 ? draw_divisor(s, rest, i == n - 1 ? limit : rest) : 1};
      rest /= tile[i].u.i;
    }
    tile[0] = (SchedArg){.kind = SA_INT, .u.i = rest};
  }
  for (int i = 0; i < n; i++) out[i] = sched_result_int(s, tile[i].u.i);
  a[3] = (SchedArg){.kind = SA_LIST, .u.list = {tile, (int)n}};
  return sched_result_list(s, (int)n, out);
}

/* ---- compute location ------------------------------------------------------------------------ */

static SchedArg try_inline(Sched *s, SchedArg *a)
{
  sched_inline_block(s, sched_arg_block(s, a));
  return sched_arg_none;
}

static SchedArg try_compute_at(Sched *s, SchedArg *a)
{
  sched_compute_at_loop(s, sched_arg_block(s, &a[0]), func_find_id(s->f, (uint32_t)a[1].u.i), true, -1);
  return sched_arg_none;
}

/* Loops around all consumers where compute_at is legal: ids, outermost first. */
static int candidate_loops(Sched *s, SchedArg *block, uint32_t **out)
{
  Vec(uint32_t) ids = {0}, legal = {0};
  Arena *tmp = scratch(s->ctx);
  Stmt **consumer, **loop;
  int n = facts_consumers(tmp, sched_arg_block(s, block), &consumer);
  if (n) {
    int nl = stmt_loops(tmp, consumer[0], &loop);
    for (int i = 0; i < nl; i++) vec_push(tmp, &ids, loop[i]->id);
  }
  for (int i = 0; i < ids.n; i++) {
    SchedArg args[2] = {*block, {.kind = SA_INT, .u.i = ids.v[i]}};
    if (sched_try(s, try_compute_at, args)) vec_push(s->m->arena, &legal, ids.v[i]);
  }
  *out = legal.v;
  return legal.n;
}

/* The decision: -2 inline, -1 at the root, else the number of the legal loop. */
SchedArg prim_sample_compute_location(Sched *s, SchedArg *a)
{
  uint32_t *loop;
  int n = candidate_loops(s, &a[0], &loop);
  bool can_inline = sched_try(s, try_inline, &a[0]);
  int64_t choice;
  if (a[1].kind != SA_NONE) {
    choice = sched_arg_int(s, &a[1]);
    if (choice < -2 || choice >= n || (choice == -2 && !can_inline))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "sample_compute_location: decision %" PRId64
            " is not possible: %s has %d loops to compute at and %s be inlined",
            choice, tree_what(s, sched_arg_block(s, &a[0])), n, can_inline ? "can" : "cannot");
  } else {
    int options = n + 1 + can_inline;
    choice = (int64_t)(sched_rng_next(&s->rng) % (uint64_t)options) - 1;
    if (choice == n) choice = -2;
  }
  a[1] = (SchedArg){.kind = SA_INT, .u.i = choice};
  if (choice < 0) return sched_result_mark(s, choice == -1 ? MARK_ROOT : MARK_INLINE);
  return sched_result_loop(s, func_find_id(s->f, loop[choice]));
}
