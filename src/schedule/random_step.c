/* random_step.c: one random primitive at a time.
 *
 * The arguments are drawn so that most calls make sense (a loop of the block, a factor
 * near its extent) and some do not; the engine says which. */
#include "schedule/engine.h"

typedef struct Dice {
  Sched *s;
  uint64_t *seed;
  BlockRV block;
  Stmt *stmt; /* of the block */
  LoopRV *loop;
  int n; /* loops around the block */
} Dice;

static int64_t pick(Dice *d, int64_t lo, int64_t hi)
{
  return lo + (int64_t)(sched_rng_next(d->seed) % (uint64_t)(hi - lo + 1));
}

static bool chance(Dice *d, int percent) { return pick(d, 1, 100) <= percent; }

static Stmt *random_block(Dice *d)
{
  Stmt **block;
  int n = tree_all_blocks(scratch(d->s->ctx), d->s->f, &block);
  return n > 1 ? block[pick(d, 1, n - 1)] : NULL;
}

static BlockRV block_rv(Dice *d, Stmt *block) { return sched_get_block(d->s, BLOCK(block)->name); }

static LoopRV random_loop(Dice *d)
{
  if (!d->n) raise(d->s->ctx, ERR_SCHEDULE, NOWHERE, "no loops here");
  return d->loop[pick(d, 0, d->n - 1)];
}

/* A loop around another block, for compute_at and its like. */
static LoopRV foreign_loop(Dice *d, bool consumers)
{
  Stmt **near;
  Arena *tmp = scratch(d->s->ctx);
  int n = consumers ? facts_consumers(tmp, d->stmt, &near) : facts_producers(tmp, d->s, d->stmt, &near);
  Stmt *other = n && !chance(d, 5) ? near[pick(d, 0, n - 1)] : random_block(d);
  LoopRV *loop;
  n = sched_get_loops(d->s, block_rv(d, other), tmp, &loop);
  if (!n) raise(d->s->ctx, ERR_SCHEDULE, NOWHERE, "no loops there");
  return loop[pick(d, 0, n - 1)];
}

static void step_split(Dice *d)
{
  const Expr *factor[3] = {NULL, NULL, NULL};
  LoopRV out[3];
  int n = chance(d, 80) ? 2 : 3;
  int inferred = chance(d, 85) ? 0 : (int)pick(d, 0, n - 1);
  for (int i = 0; i < n; i++)
    if (i != inferred || chance(d, 4)) factor[i] = expr_i32(d->s->m, chance(d, 3) ? pick(d, -1, 0) : pick(d, 1, 8));
  sched_split(d->s, random_loop(d), n, factor, true, out);
}

static void step_fuse(Dice *d)
{
  int n = (int)pick(d, 1, 3);
  int at = d->n > n ? (int)pick(d, 0, d->n - n) : 0;
  if (n > d->n) n = d->n;
  if (chance(d, 5)) at = 0;
  sched_fuse(d->s, n, d->loop + at, true);
}

static void step_reorder(Dice *d)
{
  LoopRV order[16];
  int n = d->n > 16 ? 16 : d->n;
  for (int i = 0; i < n; i++) order[i] = d->loop[i];
  for (int i = n - 1; i > 0; i--) {
    int k = (int)pick(d, 0, i);
    LoopRV t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  if (n > 2 && chance(d, 60)) n = (int)pick(d, 2, n);
  sched_reorder(d->s, n, order);
}

static void step_kind(Dice *d)
{
  static const char *const tags[] = {"blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread", "threadIdx.q"};
  LoopRV loop = random_loop(d);
  switch (pick(d, 0, 4)) {
  case 0: sched_parallel(d->s, loop); break;
  case 1: sched_vectorize(d->s, loop); break;
  case 2: sched_unroll(d->s, loop); break;
  case 3: sched_bind(d->s, loop, tags[pick(d, 0, 4)]); break;
  default:
    sched_annotate(d->s, (SchedArg){.kind = SA_LOOP, .u.i = loop.id}, "pragma_note", expr_i32(d->s->m, pick(d, 0, 9)));
    break;
  }
}

static void step_compute_at(Dice *d)
{
  sched_compute_at(d->s, d->block, foreign_loop(d, true), chance(d, 30), chance(d, 80) ? -1 : -2);
}
static void step_reverse_compute_at(Dice *d)
{
  sched_reverse_compute_at(d->s, d->block, foreign_loop(d, false), chance(d, 30), chance(d, 80) ? -1 : -2);
}
static void step_inline(Dice *d) { sched_compute_inline(d->s, d->block); }
static void step_reverse_inline(Dice *d) { sched_reverse_compute_inline(d->s, d->block); }

static const char *any_scope(Dice *d)
{
  static const char *const scopes[] = {"global", "local", "shared"};
  return scopes[pick(d, 0, 2)];
}

static void step_cache_read(Dice *d) { sched_cache_read(d->s, d->block, (int)pick(d, 0, 1), any_scope(d), 0, NULL); }
static void step_cache_write(Dice *d) { sched_cache_write(d->s, d->block, 0, any_scope(d), 0, NULL); }
static void step_reindex(Dice *d) { sched_reindex(d->s, d->block, chance(d, 30), 0); }
static void step_rfactor(Dice *d) { sched_rfactor(d->s, random_loop(d), (int)pick(d, -1, 2)); }
static void step_decompose(Dice *d) { sched_decompose_reduction(d->s, d->block, random_loop(d)); }

static void step_pad_einsum(Dice *d)
{
  int64_t padding[8];
  int n = BLOCK(d->stmt)->niter;
  for (int i = 0; i < n && i < 8; i++) padding[i] = pick(d, 1, 4);
  sched_pad_einsum(d->s, d->block, n < 8 ? n : 8, padding);
}

static void step_storage(Dice *d)
{
  switch (pick(d, 0, 3)) {
  case 0: sched_storage_align(d->s, d->block, 0, (int)pick(d, -2, 1), (int)pick(d, 0, 8), 0); break;
  case 1: sched_set_scope(d->s, d->block, 0, any_scope(d)); break;
  case 2: sched_double_buffer(d->s, d->block, 0); break;
  default: sched_prefetch(d->s, d->block, 0, random_loop(d), pick(d, 1, 2)); break;
  }
}

static void step_unit_loop(Dice *d)
{
  SchedArg block = {.kind = SA_BLOCK, .u.i = d->block.id};
  if (d->n && chance(d, 50)) block = (SchedArg){.kind = SA_LOOP, .u.i = random_loop(d).id};
  sched_add_unit_loop(d->s, block);
}

static void step_blockize(Dice *d)
{
  sched_blockize(d->s, (SchedArg){.kind = SA_LOOP, .u.i = random_loop(d).id}, true);
}

/* A permutation of the indices, with one of them taken apart now and then. */
static const IndexMap *random_map(Dice *d, int n)
{
  Module *m = d->s->m;
  IndexMap *map = arena_new_of(m->arena, IndexMap);
  map->nin = n;
  map->in = arena_array(m->arena, const Var *, n);
  map->out = arena_array(m->arena, const Expr *, n + 1);
  for (int i = 0; i < n; i++) map->in[i] = var_new(m, arena_printf(m->arena, "i%d", i), DT_I32, VAR_PLAIN);
  int apart = chance(d, 60) ? (int)pick(d, 0, n - 1) : -1;
  int turn = (int)pick(d, 0, n - 1);
  const Expr *step = expr_i32(m, pick(d, 1, 5));
  const Expr *last = NULL;
  for (int i = 0; i < n; i++) {
    int k = (i + turn) % n;
    const Expr *e = var_expr(map->in[k]);
    map->out[map->nout++] = k == apart ? expr_floordiv(m, e, step) : e;
    if (k == apart) last = expr_floormod(m, e, step);
  }
  if (last) map->out[map->nout++] = last;
  return map;
}

static void step_layout(Dice *d)
{
  const Block *b = BLOCK(d->stmt);
  if (chance(d, 25)) {
    if (b->niter) sched_transform_block_layout(d->s, d->block, random_map(d, b->niter));
    return;
  }
  bool write = chance(d, 60);
  int count = write ? b->nwrites : b->nreads;
  if (!count) return;
  int index = (int)pick(d, 0, count - 1);
  const Buffer *buffer = (write ? b->writes : b->reads)[index].buffer;
  if (facts_is_param(d->s, buffer) || !buffer->ndim) return; /* would change what the caller passes */
  const Expr *pad = chance(d, 70) ? expr_const(d->s->m, buffer->dtype, 3) : NULL;
  sched_transform_layout(d->s, d->block, write, index, random_map(d, buffer->ndim), pad);
}

static void step_sample(Dice *d)
{
  if (chance(d, 50)) {
    const Expr *factor[2];
    IntRV tile[2];
    LoopRV loop = random_loop(d);
    LoopRV out[2];
    sched_sample_perfect_tile(d->s, loop, 2, pick(d, 1, 16), NULL, tile);
    for (int i = 0; i < 2; i++) factor[i] = expr_i32(d->s->m, sched_int_value(d->s, tile[i]));
    sched_split(d->s, loop, 2, factor, true, out);
    return;
  }
  sched_compute_at(d->s, d->block, sched_sample_compute_location(d->s, d->block, -3), chance(d, 50), -1);
}

static void step_partition(Dice *d)
{
  SchedArg length[] = {{.kind = SA_INT, .u.i = pick(d, 1, 4)}, {.kind = SA_NONE}};
  SchedArg args[] = {{.kind = SA_LOOP, .u.i = random_loop(d).id}, {.kind = SA_LIST, .u.list = {length, 2}}};
  sched_call(d->s, "loop_partition", 2, args);
}

static void step_merge(Dice *d)
{
  SchedArg loop[] = {{.kind = SA_LOOP, .u.i = random_loop(d).id}, {.kind = SA_LOOP, .u.i = foreign_loop(d, true).id}};
  SchedArg list = {.kind = SA_LIST, .u.list = {loop, 2}};
  sched_call(d->s, "merge", 1, &list);
}

static void step_reindex_cache(Dice *d)
{
  if (!BLOCK(d->stmt)->niter) return;
  SchedArg args[] = {{.kind = SA_BLOCK, .u.i = d->block.id},
                     {.kind = SA_INT, .u.i = 0},
                     {.kind = SA_STR, .u.s = any_scope(d)},
                     {.kind = SA_MAP, .u.p = random_map(d, BLOCK(d->stmt)->niter)}};
  sched_call(d->s, chance(d, 50) ? "reindex_cache_read" : "reindex_cache_write", 4, args);
}

static void step_separators(Dice *d)
{
  SchedArg buffer[] = {{.kind = SA_STR, .u.s = chance(d, 50) ? "read" : "write"}, {.kind = SA_INT, .u.i = 0}};
  SchedArg axis = {.kind = SA_INT, .u.i = pick(d, 0, 3)};
  SchedArg args[] = {{.kind = SA_BLOCK, .u.i = d->block.id},
                     {.kind = SA_LIST, .u.list = {buffer, 2}},
                     {.kind = SA_LIST, .u.list = {&axis, 1}}};
  sched_call(d->s, "set_axis_separator", 3, args);
}

static const struct {
  void (*step)(Dice *);
  int weight;
} steps[] = {
  {step_split, 20},        {step_fuse, 8},           {step_reorder, 14},
  {step_kind, 14},         {step_compute_at, 16},    {step_reverse_compute_at, 16},
  {step_inline, 5},        {step_reverse_inline, 5}, {step_cache_read, 8},
  {step_cache_write, 8},   {step_reindex, 4},        {step_rfactor, 6},
  {step_decompose, 10},    {step_pad_einsum, 3},     {step_storage, 5},
  {step_unit_loop, 2},     {step_blockize, 4},       {step_layout, 8},
  {step_sample, 4},        {step_partition, 3},      {step_merge, 4},
  {step_reindex_cache, 4}, {step_separators, 2},
};

static void run_step(Ctx *ctx, void *env)
{
  Dice *d = env;
  Scope scope = scope_begin(ctx);
  d->stmt = random_block(d);
  if (!d->stmt) return;
  d->block = block_rv(d, d->stmt);
  d->n = sched_get_loops(d->s, d->block, scratch(ctx), &d->loop);
  int total = 0;
  int i = 0;
  for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) total += steps[k].weight;
  for (int64_t at = pick(d, 0, total - 1); (at -= steps[i].weight) >= 0;) i++;
  steps[i].step(d);
  scope_end(ctx, scope);
}

bool random_step(Sched *s, uint64_t *seed)
{
  Dice d = {.s = s, .seed = seed};
  ErrKind kind = protect(s->ctx, run_step, &d);
  if (kind == ERR_NONE) return true;
  if (kind != ERR_SCHEDULE && kind != ERR_ARGUMENT && kind != ERR_UNSUPPORTED) error_reraise(s->ctx);
  return false;
}

/* ---- a whole trial ---------------------------------------------------------------------------- */

static void check_refused(Sched *s, const char *before)
{
  if (strcmp(before, func_print(scratch(s->ctx), s->f))) BUG(s->ctx, "a refused primitive changed the function");
}

static void free_schedule(void *s) { sched_free(s); }
static void free_module(void *m) { module_release(m); }

static void check_replay(const PrimFunc *f, Sched *s)
{
  Scope scope = scope_begin(s->ctx);
  Sched *again = sched_new(f, 1);
  defer(s->ctx, free_schedule, again);
  const char *why = NULL;
  sched_replay(again, sched_trace_text(scratch(s->ctx), s));
  if (!func_equal(s->f, again->f, scratch(s->ctx), &why)) BUG(s->ctx, "the trace replays to another function: %s", why);
  scope_end(s->ctx, scope);
}

typedef struct Check {
  const PrimFunc *plain;
  Sched *s;
  uint64_t seed;
  int orders;
} Check;

static void run_check(Ctx *ctx, void *env)
{
  (void)ctx;
  Check *c = env;
  func_check(c->s->f);
  for (int i = 0; i < c->orders; i++) random_compare(c->plain, c->s->f, c->seed + 1000u * (uint64_t)i);
}

/* A failure says with what trace it came. */
static void check_accepted(Ctx *ctx, Check *c)
{
  ErrKind kind = protect(ctx, run_check, c);
  if (kind == ERR_NONE) return;
  if (kind == ERR_MEMORY) error_reraise(ctx);
  Arena *a = scratch(ctx);
  raise(ctx, ERR_INTERNAL, NOWHERE, "%s: %s, after\n%s\non\n%s\ngives\n%s", error_kind_name(kind), error_message(ctx),
        sched_trace_text(a, c->s), func_print(a, c->plain), func_print(a, c->s->f));
}

typedef PrimFunc *MakeFunc(Module *, uint64_t *seed);

static int trial(Ctx *ctx, MakeFunc *make, uint64_t seed, int steps, int orders,
                 void (*each)(void *, const PrimFunc *, Sched *), void *env)
{
  Scope scope = scope_begin(ctx);
  Module *m = module_new(ctx);
  defer(ctx, free_module, m);
  uint64_t state = seed;
  PrimFunc *f = make(m, &state);
  func_check(f);
  Sched *s = sched_new(f, seed + 1);
  defer(ctx, free_schedule, s);
  int accepted = 0;
  for (int i = 0; i < steps; i++) {
    Scope step = scope_begin(ctx);
    const char *before = func_print(scratch(ctx), s->f);
    if (random_step(s, &state)) {
      accepted++;
      check_accepted(ctx, &(Check){f, s, seed + (uint64_t)i, orders});
    } else {
      check_refused(s, before);
    }
    scope_end(ctx, step);
  }
  check_replay(f, s);
  if (each) each(env, f, s);
  scope_end(ctx, scope);
  return accepted;
}

int random_trial(Ctx *ctx, uint64_t seed, int steps, void (*each)(void *, const PrimFunc *, Sched *), void *env)
{
  return trial(ctx, random_func, seed, steps, 1, each, env);
}

int random_loose_trial(Ctx *ctx, uint64_t seed, int steps, void (*each)(void *, const PrimFunc *, Sched *), void *env)
{
  return trial(ctx, random_loose_func, seed, steps, 3, each, env);
}
