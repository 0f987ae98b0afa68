/* generic.c: a schedule that is right for every group and good for most.
 *
 * In: a group's blocks, each under its own loops.  Injective blocks vanish into their
 * consumers where that repeats little work.  What remains is computed row by row where the
 * blocks share their outer loops (softmax, normalisations: the intermediate results are
 * one row), otherwise one after the other.  Each block is then scheduled by how it walks
 * memory (nest.c): neighbouring loops that every access treats as one become one, the
 * contiguous loop becomes vectors, outer loops go to the threads.  A reduction whose
 * contiguous axis is summed over keeps one partial sum for each lane. */
#include "impl/internal.h"

/* ---- helpers ---------------------------------------------------------------------------- */

SchedArg generic_block_arg(BlockRV b) { return (SchedArg){.kind = SA_BLOCK, .u.i = b.id}; }

LoopRV generic_split_by(ImplGroup *g, LoopRV loop, int64_t factor, LoopRV *inner)
{
  const Expr *factors[2] = {NULL, expr_i32(sched_module(g->s), factor)};
  LoopRV out[2];
  sched_split(g->s, loop, 2, factors, true, out);
  *inner = out[1];
  return out[0];
}

void generic_write_out(ImplGroup *g, BlockRV block, int from)
{
  LoopRV *loop;
  int n = sched_get_loops(g->s, block, g->arena, &loop);
  for (int i = from; i < n - 1; i++)
    if (known(sched_loop_stmt(g->s, loop[i])->u.loop.extent)) sched_unroll(g->s, loop[i]);
  sched_vectorize(g->s, loop[n - 1]);
}

int generic_root_blocks(ImplGroup *g, BlockRV **out)
{
  BlockRV root = sched_get_block(g->s, "root");
  return sched_get_child_blocks(g->s, generic_block_arg(root), g->arena, out);
}

bool group_try(ImplGroup *g, void (*body)(Ctx *, void *), void *arg)
{
  ErrKind k = protect(g->ctx, body, arg);
  if (k != ERR_NONE && k != ERR_SCHEDULE) error_reraise(g->ctx);
  if (k != ERR_NONE) {
    g->refusal = arena_strdup(g->arena, error_message(g->ctx));
    error_clear(g->ctx);
  }
  return k == ERR_NONE;
}

typedef struct Fetch {
  ImplGroup *g;
  BlockRV block;
  int read;
  LoopRV loop;
  int64_t distance;
} Fetch;

static void fetch_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Fetch *f = arg;
  sched_prefetch(f->g->s, f->block, f->read, f->loop, f->distance);
}

void group_prefetch(ImplGroup *g, BlockRV block, int read, LoopRV loop, int64_t distance)
{
  Fetch f = {g, block, read, loop, distance};
  group_try(g, fetch_body, &f);
}

typedef struct Sharing {
  ImplGroup *g;
  LoopRV loop;
} Sharing;

static void share_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Sharing *s = arg;
  sched_parallel(s->g->s, s->loop);
}

/* To the threads, where that can be proved right; else one thread does it, and the kernel's name says why. */
static void share_loop(ImplGroup *g, LoopRV loop)
{
  Sharing s = {g, loop};
  if (!group_try(g, share_body, &s)) g->serial = g->refusal;
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
  for (int64_t d = most < n ? most : n; d > 1; d--)
    if (n % d == 0) return d;
  return 1;
}

/* Bytes that a nest reads and writes at least once, and its arithmetic. */
static void nest_work(const Nest *n, double *operations, double *bytes)
{
  *operations += n->iterations * n->operations;
  for (int a = 0; a < n->naccess; a++) {
    double elements = 1;
    for (int i = 0; i < n->n; i++)
      if (n->loop[i].stride[a] != 0) elements *= n->loop[i].extent ? (double)n->loop[i].extent : 64;
    *bytes += elements * dtype_bytes(n->access[a].buffer->dtype);
  }
}

/* ---- inlining ------------------------------------------------------------------------------ */

typedef struct InlineTry {
  ImplGroup *g;
  BlockRV block;
} InlineTry;

static void inline_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  InlineTry *t = arg;
  sched_compute_inline(t->g->s, t->block);
}

/* Elements of a block; of sizes that are not known likely ones, which go together: a pool's rows are half of its
 * data's. */
static double domain(const Block *b)
{
  double n = 1;
  for (int i = 0; i < b->niter; i++) n *= (double)likely_size(b->iter[i].extent, 2);
  return n;
}

static void count_nodes(void *env, const Expr *e)
{
  (void)e;
  ++*(int *)env;
}

static int body_size(ImplGroup *g, const Block *b)
{
  int n = 0;
  if (b->body->kind == S_STORE) expr_visit(g->ctx, b->body->u.store.value, count_nodes, &n);
  return n;
}

typedef struct Loads {
  const Buffer *buffer;
  int count;     /* of all buffers */
  bool gathered; /* `buffer` is read where another load says */
  bool apart;    /* that goes for neighbours in a vector too */
} Loads;

static void note_load(void *env, const Expr *e)
{
  Loads *l = env;
  if (e->kind != E_LOAD) return;
  l->count++;
  for (int d = 0; d < e->nargs && e->u.buffer == l->buffer; d++) {
    bool loaded = expr_has_kind(e->arg[d], E_LOAD);
    l->gathered |= loaded;
    l->apart |= loaded && d == e->nargs - 1;
  }
}

/* Numbers of positions alone, dear and wanted again and again: a table.  Several elements put together, wanted here and
 * there: each would be fetched by itself; and where neighbours in a vector are, making more than are wanted, in whole
 * vectors, takes less. */
static bool is_worth_memory(ImplGroup *g, const Block *b, const Block *user, double own, double times)
{
  const Expr *value = b->body->u.store.value;
  if (!expr_has_kind(value, E_LOAD)) return times > 4 * own && nest_expr_operations(g->ctx, value) >= 8;
  Loads inside = {.buffer = NULL};
  Loads outside = {.buffer = b->body->u.store.buffer};
  expr_visit(g->ctx, value, note_load, &inside);
  if (user->body->kind == S_STORE) expr_visit(g->ctx, user->body->u.store.value, note_load, &outside);
  double spared = outside.apart ? target_lanes(g->target, b->body->u.store.buffer->dtype.bits) / 2.0 : 1;
  return outside.gathered && inside.count > 1 && times * (spared > 1 ? spared : 1) >= own;
}

static const char KEPT[] = "lathe.kept";

void generic_keep(ImplGroup *g, BlockRV rv)
{
  sched_annotate(g->s, generic_block_arg(rv), KEPT, expr_i32(sched_module(g->s), 1));
}

static bool should_inline(ImplGroup *g, BlockRV rv)
{
  enum { MAX_NODES = 1500 };
  PrimFunc *f = sched_func(g->s);
  const Block *b = sched_block_stmt(g->s, rv)->u.block;
  if (!nest_block_is_injective(b) || nest_block_is_output(f, b) || annots_get(&b->annots, KEPT)) return false;
  BlockRV *user;
  int n = sched_get_consumers(g->s, rv, g->arena, &user);
  if (!n) return false;
  double work = nest_expr_operations(g->ctx, b->body->u.store.value);
  double own = domain(b);
  double repeated = 0;
  bool reads = expr_has_kind(b->body->u.store.value, E_LOAD);
  for (int i = 0; i < n; i++) {
    const Block *c = sched_block_stmt(g->s, user[i])->u.block;
    if (c->body->kind != S_STORE && c->body->kind != S_SEQ) return false;
    if (body_size(g, b) + body_size(g, c) > MAX_NODES) return false;
    double times = domain(c);
    if (c->init && times > 1.5 * own && reads) return false; /* a window or product reads it again and again */
    if (is_worth_memory(g, b, c, own, times)) return false;
    repeated += times;
  }
  return work < 10 || repeated < 1.5 * own || n == 1;
}

/* From the last block to the first: what several blocks read that end up in one has a single reader when it is asked
 * about. */
void generic_inline(ImplGroup *g)
{
  BlockRV *block;
  for (int i = generic_root_blocks(g, &block) - 1; i >= 0; i--)
    if (should_inline(g, block[i])) group_try(g, inline_body, &(InlineTry){g, block[i]});
}

/* ---- injective blocks ------------------------------------------------------------------------ */

/* A run of neighbouring loops that every access treats as one. */
typedef struct Run {
  int first, last;
  int64_t extent;
} Run;

static bool loops_join(const Nest *n, int outer, int inner)
{
  const NestLoop *o = &n->loop[outer];
  const NestLoop *i = &n->loop[inner];
  if (o->extent == 1 || i->extent == 1) return true;
  if (o->unbounded || i->guarded) return false;
  if (!i->extent) return inner == outer + 1 && o->joins;
  for (int a = 0; a < n->naccess; a++)
    if (o->stride[a] == STRIDE_ANY || i->stride[a] == STRIDE_ANY || o->stride[a] != i->stride[a] * i->extent)
      return false;
  return true;
}

/* Innermost loop of the run that is not a single step: its strides are the run's. */
static const NestLoop *run_loop(const Nest *n, const Run *r)
{
  for (int i = r->last; i > r->first; i--)
    if (n->loop[i].extent != 1) return &n->loop[i];
  return &n->loop[r->first];
}

static int find_runs(const Nest *n, int depth, Run *run)
{
  int nrun = 0;
  for (int i = depth; i < n->n; i++) {
    Run *r = nrun ? &run[nrun - 1] : NULL;
    const NestLoop *inner = r ? run_loop(n, r) : NULL;
    bool join = r && (r->extent == 1 || loops_join(n, (int)(inner - n->loop), i));
    if (join && r->extent != 1 && n->loop[i].extent != 1 && inner != &n->loop[i - 1])
      for (int k = (int)(inner - n->loop) + 1; k < i; k++) join &= n->loop[k].extent == 1;
    if (join) {
      r->last = i;
      r->extent = r->extent && n->loop[i].extent ? r->extent * n->loop[i].extent : 0;
    } else {
      run[nrun++] = (Run){i, i, n->loop[i].extent};
    }
  }
  return nrun;
}

static LoopRV fuse_range(ImplGroup *g, const LoopRV *loop, int n)
{
  return n == 1 ? loop[0] : sched_fuse(g->s, n, loop, true);
}

static int64_t loop_extent(ImplGroup *g, LoopRV loop) { return known(sched_loop_stmt(g->s, loop)->u.loop.extent); }

/* Loops that are counted as one: no division by an extent that is not known, so none but the first that is longer than
 * one is open.  They are the first ones; or where these may be few, an open number of images of a known few, those from
 * the next open one on. */
typedef struct Counted {
  int first, n;
} Counted;

static Counted counted_loops(ImplGroup *g, const LoopRV *loop, int n, int threads)
{
  int k = 0;
  int64_t sure = 1;
  while (k < n && loop_extent(g, loop[k]) == 1) k++;
  if (k < n) sure *= loop_extent(g, loop[k]) ? loop_extent(g, loop[k]) : 1, k++;
  for (; k < n && loop_extent(g, loop[k]); k++) sure *= loop_extent(g, loop[k]);
  if (k == n || sure >= 2 * threads) return (Counted){0, k};
  Counted c = {k, 1};
  while (c.first + c.n < n && loop_extent(g, loop[c.first + c.n])) c.n++;
  return c;
}

static LoopRV fuse_counted(ImplGroup *g, const LoopRV *loop, int n, int threads)
{
  Counted c = counted_loops(g, loop, n, threads);
  return fuse_range(g, loop + c.first, c.n);
}

/* How many parts, of `steps` equal steps for each of `times` outer ones, keep the threads busy; 0 when none does. */
static int64_t even_parts(int64_t steps, int64_t times, int threads)
{
  static const double ENOUGH = 0.7;
  int64_t best = 0;
  double top = ENOUGH;
  for (int64_t d = 1; d <= steps && d * times <= 4 * threads; d++) {
    double busy = cost_busy((double)(d * times), threads);
    if (steps % d || busy <= top) continue;
    best = d;
    top = busy;
  }
  return best;
}

/* Puts the outer loops on the threads, `chunk` steps of the inner loop each when there are too few. */
static void parallel_outer(ImplGroup *g, int n, const LoopRV *outer, const int64_t *extents, double steps, int threads,
                           LoopRV *inner, int64_t inner_extent, int64_t lanes)
{
  if (threads < 2) return;
  if (n && (steps >= 2 * threads || steps >= 8)) {
    int k = 0;
    for (double many = 1; k < n && many < 16 * threads; k++) many *= extents[k] ? (double)extents[k] : k ? 64 : 1;
    share_loop(g, fuse_counted(g, outer, k, threads));
    return;
  }
  int64_t parts = n ? even_parts(inner_extent / lanes, (int64_t)steps, threads) : threads;
  if (!parts) parts = (int64_t)(threads / steps) + 1;
  if (inner_extent < parts * lanes * 4) {
    if (n && steps > 1) share_loop(g, fuse_counted(g, outer, n, threads));
    return;
  }
  int64_t chunk = ((inner_extent + parts - 1) / parts + lanes - 1) / lanes * lanes;
  LoopRV part = generic_split_by(g, *inner, chunk, inner);
  LoopRV all[NEST_LOOPS + 1];
  for (int i = 0; i < n; i++) all[i] = outer[i];
  all[n] = part;
  share_loop(g, fuse_range(g, all, n + 1));
}

static bool is_guarded(const Nest *n, const Run *r)
{
  bool found = false;
  for (int i = r->first; i <= r->last; i++) found |= n->loop[i].guarded && n->loop[i].extent != 1;
  return found;
}

/* Guarded by bounds alone, at which the lowering cuts it? */
static bool is_cut(const Nest *n, const Run *r)
{
  for (int i = r->first; i <= r->last; i++)
    if (n->loop[i].unbounded) return false;
  return is_guarded(n, r);
}

/* A loop that the lowering cuts (at each operand of a concatenation) would be as many parallel ones, each with threads
 * to wake and to wait for: it stays inside, and the threads share the runs before it and a part of a run behind it. */
static bool parallel_around_cut(ImplGroup *g, const Nest *n, const Run *run, int nrun, LoopRV *loop, int threads,
                                int64_t width)
{
  int cut = 0;
  int behind;
  int64_t before = 1;
  for (; cut < nrun - 1 && !is_guarded(n, &run[cut]); cut++) before *= run[cut].extent ? run[cut].extent : 1;
  if (threads < 2 || cut == nrun - 1) return false;
  if (before >= 2 * threads) {
    share_loop(g, fuse_range(g, loop, cut));
    return true;
  }
  for (behind = cut + 1; behind < nrun; behind++) {
    int64_t unit = behind == nrun - 1 ? width : 1;
    if (is_guarded(n, &run[behind]) || run[behind].extent % unit) continue;
    int64_t parts = even_parts(run[behind].extent / unit, before, threads);
    if (!parts) continue;
    LoopRV order[NEST_LOOPS + 1], rest;
    for (int i = 0; i < cut; i++) order[i] = loop[i];
    order[cut] = generic_split_by(g, loop[behind], run[behind].extent / parts, &rest);
    loop[behind] = rest;
    for (int i = cut; i < nrun; i++) order[i + 1] = loop[i];
    sched_reorder(g->s, nrun + 1, order);
    share_loop(g, fuse_range(g, order, cut + 1));
    return true;
  }
  return false;
}

/* Operands side by side in one run: the loop that tells them apart is split by what all of them have whole numbers of
 * (channels, rows), and the run with it, so that each thread can copy a part of all of them.  Nothing where no part is
 * even. */
static void split_operands(ImplGroup *g, Nest *n, Run *run, int *nrun, double before, int threads, int64_t width)
{
  Run *r = &run[*nrun - 1];
  int at = -1;
  for (int i = 0; i < *nrun - 1; i++)
    if (is_guarded(n, &run[i])) return;
  for (int i = r->first; i <= r->last; i++) {
    if (!n->loop[i].guarded || n->loop[i].extent == 1) continue;
    if (at >= 0) return;
    at = i;
  }
  if (threads < 2 || before >= 8 || at < 0 || n->loop[at].unbounded || !r->extent || n->n == NEST_LOOPS) return;
  NestLoop *l = &n->loop[at];
  int64_t grain = int_gcd(l->grain, l->extent);
  int64_t piece = grain;
  for (int i = at + 1; i <= r->last; i++) piece *= n->loop[i].extent;
  if (piece % width || !even_parts(piece / width, (int64_t)before, threads)) return;
  for (int i = n->n++; i > at; i--) n->loop[i] = n->loop[i - 1];
  l[1].extent = grain;
  l[1].guarded = false;
  l->extent /= grain;
  for (int a = 0; a < n->naccess; a++)
    if (l->stride[a] != STRIDE_ANY) l->stride[a] *= grain;
  l->rv = generic_split_by(g, l->rv, grain, &l[1].rv);
  run[(*nrun)++] = (Run){at + 1, r->last + 1, piece};
  *r = (Run){r->first, at, r->extent / piece};
}

/* The run along which some read is contiguous while it is not along the last one: a transpose. */
static int transposed_run(const Nest *n, const Run *run, int nrun)
{
  const NestLoop *v = run_loop(n, &run[nrun - 1]);
  for (int a = 0; a < n->naccess; a++) {
    if (n->access[a].write || v->stride[a] == 0 || v->stride[a] == 1) continue;
    for (int k = nrun - 2; k >= 0; k--)
      if (run_loop(n, &run[k])->stride[a] == 1 && (!run[k].extent || run[k].extent >= 4)) return k;
  }
  return -1;
}

/* Squares of lanes by lanes, written out and turned in registers.  Where a vector is less than a cache line, the
 * squares of a line by a line come one after the other: each line of memory is read once, whole, however many rows the
 * cache would lose. */
static void schedule_turned(ImplGroup *g, const Run *run, LoopRV *loop, int nrun, int turned, int64_t lanes,
                            int64_t line, int threads)
{
  LoopRV ti, vi, order[NEST_LOOPS + 4];
  bool tiled = lanes < line && run[turned].extent % line == 0 && run[nrun - 1].extent % line == 0;
  int n = nrun;
  int t = turned;
  int v = nrun - 1; /* where the loops over squares stand */
  for (int i = 0; i < nrun; i++) order[i] = loop[i];
  if (tiled) {
    t = n++, v = n++;
    order[turned] = generic_split_by(g, loop[turned], line, &order[t]);
    order[nrun - 1] = generic_split_by(g, loop[nrun - 1], line, &order[v]);
  }
  order[t] = generic_split_by(g, order[t], lanes, &ti);
  order[v] = generic_split_by(g, order[v], lanes, &vi);
  order[n++] = ti, order[n++] = vi;
  sched_reorder(g->s, n, order);
  sched_unroll(g->s, ti);
  sched_vectorize(g->s, vi);
  if (threads > 1) share_loop(g, fuse_range(g, order, nrun - 1));
}

/* Bits of the widest element that moves along a loop: indices that stay do not count. */
static int moving_bits(const Nest *n, const NestLoop *l)
{
  int bits = 8;
  for (int a = 0; a < n->naccess; a++)
    if (l->stride[a] != 0 && n->access[a].buffer->dtype.bits > bits) bits = n->access[a].buffer->dtype.bits;
  return bits;
}

static void note_function(void *env, const Expr *e)
{
  *(bool *)env |= e->kind == E_CALL && e->u.intrin < IN_ABS && dtype_is_float(e->dtype);
}

/* Does the block compute an elementary function? */
static bool has_function(ImplGroup *g, const Nest *n)
{
  bool found = false;
  const Stmt *body = sched_block_stmt(g->s, n->rv)->u.block->body;
  if (body->kind == S_STORE) expr_visit(g->ctx, body->u.store.value, note_function, &found);
  return found;
}

/* Elements in one step of the contiguous loop `r`: a vector; a cache line where little is computed and a vector is
 * less, so that the loop's own instructions do not hold the memory up; several vectors of an elementary function where
 * the code generator puts them abreast (llvm_abreast.c).  Which operand of a concatenation it is does not count as
 * computed: the loop is cut there. */
static int64_t move_width(ImplGroup *g, const Nest *n, const Run *r, int bits, int64_t lanes)
{
  enum { ABREAST = 4, LITTLE = 8 };
  if (g->generic.vectors) return g->generic.vectors * lanes;
  int64_t line = CACHE_LINE / (bits / 8);
  int64_t several = ABREAST * lanes;
  int64_t extent = r->extent;
  if (g->target->arch == ARCH_AARCH64 && has_function(g, n) &&
      (!extent || extent % several == 0 || extent >= 4 * several))
    return several;
  bool moves = n->operations <= LITTLE || is_cut(n, r);
  return moves && line > lanes && (!extent || extent >= 4 * line) ? line : lanes;
}

static void schedule_injective(ImplGroup *g, Nest *n, int depth, bool parallel)
{
  Run run[NEST_LOOPS + 1];
  int nrun = find_runs(n, depth, run);
  if (!nrun) return;
  int bits = moving_bits(n, run_loop(n, &run[nrun - 1]));
  int64_t lanes = target_lanes(g->target, bits);
  double operations = 0;
  double bytes = 0;
  nest_work(n, &operations, &bytes);
  int threads = parallel ? generic_threads(g, operations, bytes) : 1;
  int turned = transposed_run(n, run, nrun);
  bool contiguous = run_loop(n, &run[nrun - 1])->stride[0] == 1;
  LoopRV loop[NEST_LOOPS + 2];
  int64_t extents[NEST_LOOPS + 1];
  double steps = 1;
  for (int i = 0; i < nrun - 1; i++) steps *= run[i].extent ? (double)run[i].extent : 64;
  int64_t width = move_width(g, n, &run[nrun - 1], bits, lanes);
  if (turned < 0) split_operands(g, n, run, &nrun, steps, threads, width);
  for (int i = 0; i < nrun; i++) {
    LoopRV part[NEST_LOOPS];
    for (int k = run[i].first; k <= run[i].last; k++) part[k - run[i].first] = n->loop[k].rv;
    loop[i] = fuse_range(g, part, run[i].last - run[i].first + 1);
    extents[i] = run[i].extent;
  }
  int64_t extent = run[nrun - 1].extent;
  if (turned >= 0 && contiguous && (!extent || extent >= lanes)) {
    schedule_turned(g, run, loop, nrun, turned, lanes, CACHE_LINE / (bits / 8), threads);
    return;
  }
  bool around = parallel_around_cut(g, n, run, nrun, loop, threads, width);
  LoopRV inner = loop[nrun - 1];
  /* A run with operands side by side in it is cut at each of them, and not where threads would begin: one thread copies
   * it. */
  bool together = steps < 8 && is_cut(n, &run[nrun - 1]);
  if (!around && !together)
    parallel_outer(g, nrun - 1, loop, extents, steps, threads, &inner, extent ? extent : 64 * lanes, width);
  if (!contiguous) return;
  if (extent && extent <= lanes) {
    if (extent > 1 && extent <= lanes) sched_vectorize(g->s, inner);
    return;
  }
  LoopRV vector;
  generic_split_by(g, inner, width, &vector);
  sched_vectorize(g->s, vector);
}

/* ---- reductions --------------------------------------------------------------------------------- */

static bool strides_fit(const Nest *n, const NestLoop *l, bool writes)
{
  for (int a = 0; a < n->naccess; a++)
    if ((writes || !n->access[a].write) && l->stride[a] != 0 && l->stride[a] != 1) return false;
  return true;
}

/* Reads a few elements apart: windows of pooling. */
static bool steps_fit(const Nest *n, const NestLoop *l)
{
  for (int a = 0; a < n->naccess; a++)
    if (l->stride[a] < 0 || l->stride[a] > 4) return false;
  return true;
}

/* The spatial loop to make vectors of, or -1: the result and everything read along it is
 * contiguous or stays. */
static int vector_loop(const Nest *n, int depth, int64_t lanes, bool strided)
{
  for (int i = n->n - 1; i >= depth; i--) {
    const NestLoop *l = &n->loop[i];
    if (l->reduce || l->extent == 1) continue;
    bool wide = !l->extent || l->extent >= (lanes < 4 ? lanes : 4);
    return l->stride[0] == 1 && wide && (strides_fit(n, l, true) || (strided && steps_fit(n, l))) ? i : -1;
  }
  return -1;
}

/* The same of several loops that become one (join_loops): the first of as many as make a vector, or -1. */
static int vector_run(const Nest *n, int64_t lanes)
{
  int last = n->n - 1;
  while (last >= 0 && (n->loop[last].reduce || n->loop[last].extent == 1)) last--;
  if (last < 0 || n->loop[last].stride[0] != 1 || !strides_fit(n, &n->loop[last], true)) return -1;
  int64_t extent = n->loop[last].extent;
  int first = last;
  while (extent && extent < lanes && first > 0 && !n->loop[first - 1].reduce && loops_join(n, first - 1, first))
    extent *= n->loop[--first].extent;
  return first < last && extent >= (lanes < 4 ? lanes : 4) ? first : -1;
}

/* The reduction loop along which everything read is contiguous or stays, or -1. */
static int summed_loop(const Nest *n, int depth, int64_t lanes)
{
  for (int i = n->n - 1; i >= depth; i--) {
    const NestLoop *l = &n->loop[i];
    if (!l->reduce || (l->extent && l->extent < 2 * lanes) || !strides_fit(n, l, false)) continue;
    for (int a = 0; a < n->naccess; a++)
      if (!n->access[a].write && l->stride[a] == 1) return i;
  }
  return -1;
}

/* A spatial loop whose steps can share the vectors that loop v reads, or -1. */
static int sharing_loop(const Nest *n, int depth, int v)
{
  for (int i = n->n - 1; i >= depth; i--) {
    const NestLoop *l = &n->loop[i];
    if (i == v || l->reduce || l->extent < 2 || largest_divisor(l->extent, 6) < 2) continue;
    for (int a = 0; a < n->naccess; a++)
      if (!n->access[a].write && n->loop[v].stride[a] == 1 && l->stride[a] == 0) return i;
  }
  return -1;
}

static int threads_for(ImplGroup *g, const Nest *n, bool parallel)
{
  double operations = 0;
  double bytes = 0;
  nest_work(n, &operations, &bytes);
  return parallel ? generic_threads(g, operations, bytes) : 1;
}

/* As many of the outer loops as give each thread some parts: what is counted as one has to be divided again for every
 * part. */
static void parallel_loops(ImplGroup *g, int n, const LoopRV *loop, int threads)
{
  enum { PARTS = 16 };
  int k = 0;
  for (int64_t many = 1; k < n && many < PARTS * threads; k++) {
    int64_t extent = loop_extent(g, loop[k]);
    many *= extent ? extent : 1;
  }
  if (n && threads > 1) share_loop(g, fuse_counted(g, loop, k, threads));
}

/* Small windows are written out. */
static void unroll_window(ImplGroup *g, const Nest *n, int depth, int64_t rows)
{
  int64_t steps = rows;
  for (int i = depth; i < n->n; i++)
    if (n->loop[i].reduce) steps = n->loop[i].extent ? steps * n->loop[i].extent : INT16_MAX;
  for (int i = depth; i < n->n && steps <= 32; i++)
    if (n->loop[i].reduce) sched_unroll(g->s, n->loop[i].rv);
}

/* Rows of a long sum, added up a few at a time: they are read straight ahead, whole, while the results stay in the
 * first-level cache.  Gives the one loop of such a sum, or -1. */
static int summed_rows(ImplGroup *g, const Nest *n, int depth, int v, bool parallel)
{
  enum { LONG = 32, VECTORS = 4 };
  int r = -1;
  int64_t wide = n->loop[v].extent;
  int64_t lanes = target_lanes(g->target, n->bits < 8 ? 8 : n->bits);
  double outer = 1;
  for (int i = depth; i < n->n; i++) {
    if (!n->loop[i].reduce) {
      if (i != v) outer *= n->loop[i].extent ? (double)n->loop[i].extent : 64;
      continue;
    }
    if (r >= 0) return -1;
    r = i;
  }
  if (!wide && outer < threads_for(g, n, parallel)) return -1; /* threads share an unknown number of columns */
  bool single = n->block->body->kind == S_STORE && n->block->init && n->naccess <= 3;
  if (r < 0 || !single || n->loop[r].guarded || n->loop[v].guarded) return -1;
  bool fits = !wide || (wide >= VECTORS * lanes && wide * n->bits / 8 <= cost_l1(g->target) / 2);
  for (int a = 1; a < n->naccess; a++) {
    bool apart = n->loop[r].stride[a] >= wide || (!wide && n->loop[r].stride[a] == STRIDE_ANY);
    bool rows = n->loop[v].stride[a] == 1 && apart;
    bool own = n->access[a].buffer == n->access[0].buffer;
    fits &= rows || own;
  }
  return fits && (!n->loop[r].extent || n->loop[r].extent >= LONG) ? r : -1;
}

static void reduce_rows(ImplGroup *g, const Nest *n, int depth, int v, int r, bool parallel)
{
  enum { ROWS = 8, VECTORS = 4 };
  int64_t rows = g->generic.rows ? g->generic.rows : ROWS;
  int64_t width =
      (g->generic.vectors ? g->generic.vectors : VECTORS) * target_lanes(g->target, n->bits < 8 ? 8 : n->bits);
  int threads = threads_for(g, n, parallel);
  double steps = 1;
  LoopRV order[NEST_LOOPS + 6];
  LoopRV columns = n->loop[v].rv;
  LoopRV some, part;
  int k = 0;
  for (int i = depth; i < n->n; i++) {
    if (n->loop[i].reduce || i == v) continue;
    order[k++] = n->loop[i].rv;
    steps *= (double)(n->loop[i].extent ? n->loop[i].extent : 64);
  }
  if (steps < threads) { /* each thread has some of the columns */
    int64_t tiles = (n->loop[v].extent + width - 1) / width;
    order[k++] = generic_split_by(g, columns, (tiles + threads - 1) / threads * width, &columns);
  }
  int nouter = k;
  order[k++] = generic_split_by(g, n->loop[r].rv, rows, &some);
  order[k++] = generic_split_by(g, columns, width, &part);
  order[k++] = some, order[k++] = part;
  sched_reorder(g->s, k, order);
  sched_unroll(g->s, some);
  sched_vectorize(g->s, part);
  sched_decompose_reduction(g->s, n->rv, order[nouter]);
  parallel_loops(g, nouter, order, threads);
}

/* Vectors along a spatial loop; a few steps of another one share what they read. */
static void reduce_spatial(ImplGroup *g, const Nest *n, int depth, int v, bool parallel)
{
  int64_t lanes = target_lanes(g->target, n->bits < 8 ? 8 : n->bits);
  int u = sharing_loop(n, depth, v);
  int64_t rows = u < 0 ? 1 : largest_divisor(n->loop[u].extent, g->generic.rows ? g->generic.rows : 6);
  int64_t wide = n->loop[v].extent;
  int64_t width = lanes;
  for (int64_t k = u < 0 ? 4 : 2; k > 1; k--) /* of an unknown extent whole lines, too: what is left is cut again */
    if (wide % (lanes * k) == 0) {
      width = lanes * k;
      break;
    }
  if (g->generic.vectors) width = lanes * g->generic.vectors;
  LoopRV order[NEST_LOOPS + 4];
  LoopRV ui = {-1};
  LoopRV vi = n->loop[v].rv;
  int k = 0;
  int nouter;
  int first = -1;
  bool whole = wide && wide <= width;
  for (int i = depth; i < n->n; i++) {
    if (n->loop[i].reduce || i == v) continue;
    order[k++] = i == u ? generic_split_by(g, n->loop[i].rv, rows, &ui) : n->loop[i].rv;
  }
  nouter = k;
  if (!whole) order[k++] = generic_split_by(g, n->loop[v].rv, width, &vi);
  for (int i = depth; i < n->n; i++)
    if (n->loop[i].reduce) {
      if (first < 0) first = k;
      order[k++] = n->loop[i].rv;
    }
  if (ui.id >= 0) order[k++] = ui;
  order[k++] = vi;
  sched_reorder(g->s, k, order);
  if (ui.id >= 0) sched_unroll(g->s, ui);
  sched_vectorize(g->s, vi);
  unroll_window(g, n, depth, rows);
  if (n->block->init && first >= 0) sched_decompose_reduction(g->s, n->rv, order[first]);
  int threads = threads_for(g, n, parallel);
  double steps = 1;
  for (int i = depth; i < n->n; i++)
    if (!n->loop[i].reduce && i != v)
      steps *= (double)(n->loop[i].extent ? n->loop[i].extent : 64) / (double)(i == u ? rows : 1);
  bool whole_tiles = wide && wide % width == 0;
  parallel_loops(g, steps < 2 * threads && !whole && (whole_tiles || !nouter) ? nouter + 1 : nouter, order, threads);
}

typedef struct Follow {
  ImplGroup *g;
  BlockRV block;
  LoopRV at;
} Follow;

static void follow_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Follow *f = arg;
  sched_reverse_compute_at(f->g->s, f->block, f->at, true, -1);
}

/* Puts a block back under the loops of the one that was split off it, where that makes whole vectors: a last one that
 * is not whole does not say what of the block can run, and it stays in loops of its own. */
static void follow_partial(ImplGroup *g, BlockRV block, BlockRV partial, int shared)
{
  if (shared < 1) return;
  LoopRV *own, *other;
  int n = sched_get_loops(g->s, block, g->arena, &own);
  sched_get_loops(g->s, partial, g->arena, &other);
  if (n < shared || sched_loop_stmt(g->s, own[shared - 1]) != sched_loop_stmt(g->s, other[shared - 1]))
    group_try(g, follow_body, &(Follow){g, block, other[shared - 1]});
}

/* So many results as there are lanes into `few`, side by side, written out. */
static void fold_lanes(ImplGroup *g, BlockRV block, int64_t few, int spatial)
{
  LoopRV *loop, inner;
  int n = sched_get_loops(g->s, block, g->arena, &loop);
  int shared = n - 1; /* all but the lanes' */
  generic_split_by(g, loop[n - 1], few, &inner);
  BlockRV part = sched_rfactor(g->s, inner, spatial);
  follow_partial(g, block, part, shared);
  n = sched_get_loops(g->s, part, g->arena, &loop);
  sched_vectorize(g->s, loop[n - 1]);
  sched_unroll(g->s, loop[n - 2]);
  sched_decompose_reduction(g->s, part, loop[n - 2]);
}

/* The lanes' loop is the innermost one; those inside of the shared ones are the tile's, which is written out. */
static void order_lanes(ImplGroup *g, BlockRV block, int shared)
{
  Nest *n = arena_new_of(g->arena, Nest);
  LoopRV order[NEST_LOOPS];
  int k = 0;
  nest_read(g, block, n);
  for (int i = shared; i < n->n; i++)
    if (!n->loop[i].reduce) order[k++] = n->loop[i].rv;
  for (int i = 0; i < k; i++) sched_unroll(g->s, order[i]);
  for (int i = shared; i < n->n; i++)
    if (n->loop[i].reduce) order[k++] = n->loop[i].rv;
  if (k > 1) sched_reorder(g->s, k, order);
}

/* The results of all lanes into one: several vectors into one, every fourth lane of that, then those four. */
static void gather_lanes(ImplGroup *g, BlockRV block, int64_t width, int64_t lanes, int spatial)
{
  enum { FEW = 4 };
  bool twice = width > 2 * FEW && width % FEW == 0;
  LoopRV *loop;
  if (width > lanes && lanes > FEW) fold_lanes(g, block, lanes, spatial);
  if (twice) fold_lanes(g, block, FEW, spatial);
  int n = sched_get_loops(g->s, block, g->arena, &loop);
  LoopRV last = loop[n - 1];
  sched_decompose_reduction(g->s, block, last);
  if (twice || width <= 2 * FEW) sched_unroll(g->s, last);
}

/* Spatial loops a few steps of which are taken together, since what is read along the sum serves all of them. */
typedef struct SumTile {
  int loop[2];
  int64_t steps[2];
} SumTile;

/* Every vector of the tile is a register, and the vectors that it reads are as many more. */
static SumTile sum_tile(ImplGroup *g, const Nest *n, int depth, int r, int64_t vectors)
{
  SumTile tile = {{-1, -1}, {1, 1}};
  int64_t room = g->target->vector_registers / 2 / vectors;
  int64_t most = g->generic.rows ? g->generic.rows : 6;
  int found = 0;
  for (int i = n->n - 1; i >= depth && found < 2; i--) {
    const NestLoop *l = &n->loop[i];
    bool shares = false;
    for (int a = 0; a < n->naccess; a++)
      shares |= !n->access[a].write && n->loop[r].stride[a] == 1 && l->stride[a] == 0;
    if (l->reduce || l->extent < 2 || !shares || room < 2) continue;
    int64_t steps = largest_divisor(l->extent, room < most ? room : most);
    if (steps < 2) continue;
    tile.loop[found] = i, tile.steps[found++] = steps;
    room /= steps;
  }
  return tile;
}

/* One partial result for each lane, put together at the end. */
static void reduce_lanes(ImplGroup *g, const Nest *n, int depth, int r, bool parallel)
{
  int64_t lanes = target_lanes(g->target, n->bits < 8 ? 8 : n->bits);
  int64_t extent = n->loop[r].extent;
  int64_t width = lanes;
  SumTile tile = sum_tile(g, n, depth, r, g->generic.vectors ? g->generic.vectors : 1);
  bool tiled = tile.loop[0] >= 0;
  for (int64_t k = 4; k > 1 && width == lanes && !tiled; k--)
    if (!extent || extent >= 4 * lanes * k) width = lanes * k;
  if (g->generic.vectors && (!extent || extent >= lanes * g->generic.vectors)) width = lanes * g->generic.vectors;
  LoopRV order[NEST_LOOPS + 4], ri;
  LoopRV step[2];
  int k = 0;
  int nouter;
  for (int i = depth; i < n->n; i++) {
    if (n->loop[i].reduce) continue;
    order[k++] = n->loop[i].rv;
    for (int u = 0; u < 2; u++)
      if (i == tile.loop[u]) order[k - 1] = generic_split_by(g, n->loop[i].rv, tile.steps[u], &step[u]);
  }
  nouter = k;
  for (int i = depth; i < n->n; i++)
    if (n->loop[i].reduce && i != r) order[k++] = n->loop[i].rv;
  order[k++] = generic_split_by(g, n->loop[r].rv, width, &ri);
  for (int u = 1; u >= 0; u--)
    if (tile.loop[u] >= 0) order[k++] = step[u];
  order[k++] = ri;
  sched_reorder(g->s, k, order);
  for (int u = 0; u < 2; u++)
    if (tile.loop[u] >= 0) sched_unroll(g->s, step[u]);
  const Block *b = n->block;
  int spatial = b->writes[0].buffer->ndim;
  BlockRV partial = sched_rfactor(g->s, ri, spatial);
  LoopRV *loop;
  int nl = sched_get_loops(g->s, partial, g->arena, &loop);
  int base = nl - k; /* loops that stood outside already */
  if (nouter) follow_partial(g, n->rv, partial, base + nouter);
  sched_vectorize(g->s, loop[nl - 1]);
  sched_decompose_reduction(g->s, partial, loop[base + nouter]);
  if (tiled && nouter) order_lanes(g, n->rv, base + nouter);
  gather_lanes(g, n->rv, width, lanes, spatial);
  parallel_loops(g, nouter, loop + base, threads_for(g, n, parallel));
}

/* One element at a time; the init before the loops of the reduction. */
static void reduce_plain(ImplGroup *g, const Nest *n, int depth, bool parallel)
{
  LoopRV order[NEST_LOOPS];
  int k = 0;
  int nouter;
  for (int i = depth; i < n->n; i++)
    if (!n->loop[i].reduce) order[k++] = n->loop[i].rv;
  nouter = k;
  for (int i = depth; i < n->n; i++)
    if (n->loop[i].reduce) order[k++] = n->loop[i].rv;
  if (k > 1) sched_reorder(g->s, k, order);
  unroll_window(g, n, depth, 1);
  if (n->block->init && k > nouter) sched_decompose_reduction(g->s, n->rv, order[nouter]);
  parallel_loops(g, nouter, order, threads_for(g, n, parallel));
}

/* Neighbouring loops of the sum, or of the results, that every access treats as one become one: whole planes are read
 * in vectors.  Not those of a sum that are to stand around vectors of results where an extent is not known: the
 * quotient by it that they would be is in the way of the other order. */
static void join_loops(ImplGroup *g, Nest *n, int depth, int64_t lanes)
{
  bool joined = false;
  bool across = vector_loop(n, depth, lanes, false) >= 0;
  for (int i = n->n - 1; i > depth; i--) {
    if (n->loop[i].reduce && !n->loop[i].extent && across) continue;
    if (n->loop[i].reduce != n->loop[i - 1].reduce || !loops_join(n, i - 1, i)) continue;
    n->loop[i - 1].rv = sched_fuse(g->s, 2, (const LoopRV[]){n->loop[i - 1].rv, n->loop[i].rv}, true);
    joined = true;
    if (n->loop[i].extent != 1) memcpy(n->loop[i - 1].stride, n->loop[i].stride, sizeof n->loop[i].stride);
    n->loop[i - 1].extent *= n->loop[i].extent;
  }
  if (joined) nest_read(g, n->rv, n);
}

static void schedule_reduction(ImplGroup *g, Nest *n, int depth, bool parallel)
{
  int64_t lanes = target_lanes(g->target, n->bits < 8 ? 8 : n->bits);
  join_loops(g, n, depth, lanes);
  bool single = n->block->body->kind == S_STORE && n->block->init;
  int v = vector_loop(n, depth, lanes, false);
  int r = single ? summed_loop(n, depth, lanes) : -1;
  if (v < 0 && r < 0) v = vector_loop(n, depth, lanes, true);
  if (g->generic.along && r >= 0) v = -1;
  int rows = v >= 0 ? summed_rows(g, n, depth, v, parallel) : -1;
  if (rows >= 0) {
    reduce_rows(g, n, depth, v, rows, parallel);
  } else if (v >= 0) {
    reduce_spatial(g, n, depth, v, parallel);
  } else if (r >= 0) {
    reduce_lanes(g, n, depth, r, parallel);
  } else {
    reduce_plain(g, n, depth, parallel);
  }
}

/* ---- one block, rows of blocks ------------------------------------------------------------------- */

static bool has_empty_loop(const Nest *n)
{
  for (int i = 0; i < n->n; i++)
    if (n->loop[i].stmt->u.loop.extent->kind == E_INT && n->loop[i].stmt->u.loop.extent->u.i <= 0) return true;
  return false;
}

typedef struct BlockTry {
  ImplGroup *g;
  BlockRV block;
  int depth;
  bool parallel;
} BlockTry;

/* A remainder of a block's own variable by a constant, of which the variable has several. */
typedef struct Remainder {
  const Block *b;
  const BlockIter *of;
  int64_t by;
} Remainder;

static void note_remainder(void *env, const Expr *e)
{
  enum { LEAST = 4 }; /* a run of neighbours worth a loop of its own */
  Remainder *r = env;
  if (r->of || e->kind != E_FLOORMOD || e->arg[1]->kind != E_INT || e->arg[1]->u.i < LEAST) return;
  for (int i = 0; i < r->b->niter; i++)
    if (e->arg[0] == var_expr(r->b->iter[i].var) && r->b->iter[i].value->kind == E_VAR) {
      r->of = &r->b->iter[i];
      r->by = e->arg[1]->u.i;
    }
}

/* What is read again and again (tile) is a loop of its own, in which neighbours are read one after the other. */
static bool split_repeated(ImplGroup *g, const Nest *n, int depth)
{
  Remainder r = {.b = n->block};
  if (n->reduction || n->n + 1 >= NEST_LOOPS) return false;
  expr_visit(g->ctx, n->block->body->u.store.value, note_remainder, &r);
  if (!r.of) return false;
  for (int i = depth; i < n->n; i++) {
    const NestLoop *l = &n->loop[i];
    LoopRV inner;
    if (r.of->value != var_expr(l->stmt->u.loop.var) || !l->extent || l->extent % r.by || l->extent == r.by) continue;
    generic_split_by(g, l->rv, r.by, &inner);
    return true;
  }
  return false;
}

static void block_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  BlockTry *t = arg;
  Nest *n = arena_new_of(t->g->arena, Nest);
  nest_read(t->g, t->block, n);
  while (n->plain && split_repeated(t->g, n, t->depth)) nest_read(t->g, t->block, n);
  if (!n->plain || n->n <= t->depth || has_empty_loop(n)) return;
  if (n->reduction) schedule_reduction(t->g, n, t->depth, t->parallel);
  else schedule_injective(t->g, n, t->depth, t->parallel);
}

void generic_block(ImplGroup *g, BlockRV block, int depth, bool parallel)
{
  group_try(g, block_body, &(BlockTry){g, block, depth, parallel});
}

/* Is dimension d of every access to the buffers in `made` the reading block's own variable d? */
typedef struct RowCheck {
  Ctx *ctx;
  const Map *made;
  const Block *b;
  int rows;
} RowCheck;

static void limit_rows(RowCheck *c, const Buffer *buffer, int n, const Expr *const *index)
{
  if (!map_has(c->made, buffer)) return;
  int same = 0;
  for (; same < n && same < c->b->niter; same++) {
    const BlockIter *it = &c->b->iter[same];
    bool only = expr_is_int(it->extent, 1) && expr_is_int(index[same], 0); /* a single row */
    if (it->kind != ITER_SPATIAL || (index[same] != var_expr(it->var) && !only)) break;
  }
  if (same < c->rows) c->rows = same;
}

static void check_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) limit_rows(env, e->u.buffer, e->nargs, e->arg);
}

static bool check_store(void *env, Stmt *s)
{
  RowCheck *c = env;
  if (s->kind == S_STORE) limit_rows(c, s->u.store.buffer, s->u.store.n, s->u.store.index);
  return true;
}

static void check_expr(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  RowCheck *c = env;
  expr_visit(c->ctx, e, check_load, c);
}

/* How many outer loops all blocks have in common, so that a row of one needs the same row of
 * those before it, and nothing else. */
static int common_rows(ImplGroup *g, Nest *const *nest, int n)
{
  Map made = {0};
  for (int i = 0; i < n; i++)
    for (int w = 0; w < nest[i]->block->nwrites; w++) map_put(g->arena, &made, nest[i]->block->writes[w].buffer, NULL);
  const Block *last = nest[n - 1]->block;
  int rows = last->niter;
  for (int i = 0; i < n; i++) {
    Block *b = nest[i]->block;
    RowCheck c = {g->ctx, &made, b, rows};
    stmt_visit(b->body, check_store, &c);
    stmt_visit_exprs(b->body, check_expr, &c);
    rows = c.rows;
    int64_t lanes = target_lanes(g->target, nest[i]->bits < 8 ? 8 : nest[i]->bits);
    int v = nest[i]->reduction ? vector_loop(nest[i], 0, lanes, true) : -1;
    int run = nest[i]->reduction && v < 0 ? vector_run(nest[i], lanes) : v;
    if (run >= 0 && run < rows) rows = run;
    for (int d = 0; d < rows; d++)
      if (d >= nest[i]->n || b->iter[d].value != var_expr(nest[i]->loop[d].stmt->u.loop.var) ||
          b->iter[d].extent != last->iter[d].extent)
        rows = d;
  }
  return rows;
}

typedef struct RowsTry {
  ImplGroup *g;
  int n, rows;
  const BlockRV *block;
  Nest *const *nest;
  int threads;
  LoopRV row, shared; /* the innermost loop of a row, and what threads share */
  int depth;          /* loops down to it */
} RowsTry;

static void rows_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  RowsTry *t = arg;
  LoopRV outer[NEST_LOOPS];
  for (int d = 0; d < t->rows; d++) outer[d] = t->nest[t->n - 1]->loop[d].rv;
  Counted c = counted_loops(t->g, outer, t->rows, t->threads);
  t->shared = t->row = fuse_range(t->g, outer + c.first, c.n);
  t->depth = 1 + t->rows - c.n;
  if (c.first + c.n < t->rows) t->row = outer[t->rows - 1];
  for (int i = t->n - 2; i >= 0; i--) sched_compute_at(t->g->s, t->block[i], t->row, false, -1);
}

/* All blocks under the loops they share; false when that is not possible or leaves threads idle. */
static bool schedule_rows(ImplGroup *g, const BlockRV *block, int n)
{
  Nest **nest = arena_array(g->arena, Nest *, n);
  double operations = 0;
  double bytes = 0;
  double steps = 1;
  for (int i = 0; i < n; i++) {
    nest[i] = arena_new_of(g->arena, Nest);
    nest_read(g, block[i], nest[i]);
    if (!nest[i]->plain || has_empty_loop(nest[i])) return false;
    if (i < n - 1 && nest_block_is_output(sched_func(g->s), nest[i]->block)) return false;
    nest_work(nest[i], &operations, &bytes);
  }
  int rows = common_rows(g, nest, n);
  if (rows == nest[n - 1]->n) rows--; /* the last loop is left for vectors */
  int threads = generic_threads(g, operations, bytes);
  for (int d = 0; d < rows; d++) steps *= nest[n - 1]->loop[d].extent ? (double)nest[n - 1]->loop[d].extent : 64;
  if (!rows || steps < 2 || (threads > 1 && steps < threads)) return false;
  RowsTry t = {g, n, rows, block, nest, threads, {-1}, {-1}, 1};
  if (!group_try(g, rows_body, &t)) return false;
  for (int i = 0; i < n; i++) generic_block(g, block[i], t.depth, false);
  if (threads > 1) share_loop(g, t.shared);
  return true;
}

/* ---- columns of blocks: reductions over another axis than the last ------------------------------------- */

/* Is the last index of every access to the buffers in `made` the reading block's own last spatial variable? */
typedef struct ColumnCheck {
  Ctx *ctx;
  const Map *made;
  const Var *column;
  bool ok;
} ColumnCheck;

static void check_column(ColumnCheck *c, const Buffer *buffer, int n, const Expr *const *index)
{
  if (!map_has(c->made, buffer)) return;
  c->ok &= n > 0 && index[n - 1] == var_expr(c->column);
  for (int d = 0; d < n - 1; d++) c->ok &= !expr_uses_var(index[d], c->column);
}

static void check_column_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) check_column(env, e->u.buffer, e->nargs, e->arg);
}

static bool check_column_store(void *env, Stmt *s)
{
  if (s->kind == S_STORE) check_column(env, s->u.store.buffer, s->u.store.n, s->u.store.index);
  return true;
}

static void check_column_expr(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  ColumnCheck *c = env;
  expr_visit(c->ctx, e, check_column_load, c);
}

/* Loop of a block's last spatial variable; -1: it is not a loop of its own. */
static int column_loop(const Nest *n)
{
  const Block *b = n->block;
  int last = b->niter - 1;
  while (last >= 0 && b->iter[last].kind != ITER_SPATIAL) last--;
  for (int i = 0; last >= 0 && i < n->n; i++)
    if (b->iter[last].value == var_expr(n->loop[i].stmt->u.loop.var)) return i;
  return -1;
}

static bool has_columns(ImplGroup *g, Nest *const *nest, int n)
{
  Map made = {0};
  int reductions = 0;
  const Nest *last = nest[n - 1];
  for (int i = 0; i < n; i++)
    for (int w = 0; w < nest[i]->block->nwrites; w++) map_put(g->arena, &made, nest[i]->block->writes[w].buffer, NULL);
  if (last->reduction || last->n < 2 || column_loop(last) != last->n - 1) return false;
  const Expr *extent = last->loop[last->n - 1].stmt->u.loop.extent;
  for (int i = 0; i < n; i++) {
    Block *b = nest[i]->block;
    int v = column_loop(nest[i]);
    if (v < 0 || nest[i]->loop[v].stmt->u.loop.extent != extent || nest[i]->loop[v].guarded) return false;
    const NestLoop *l = &nest[i]->loop[v];
    for (int a = 0; a < nest[i]->naccess; a++)
      if (l->stride[a] != 0 && l->stride[a] != 1) return false;
    ColumnCheck c = {g->ctx, &made, NULL, true};
    for (int k = 0; k < b->niter; k++)
      if (b->iter[k].value == var_expr(l->stmt->u.loop.var)) c.column = b->iter[k].var;
    stmt_visit(b->body, check_column_store, &c);
    stmt_visit_exprs(b->body, check_column_expr, &c);
    if (!c.ok) return false;
    reductions += nest[i]->reduction;
  }
  return reductions > 0 && !expr_is_int(extent, 1);
}

typedef struct ColumnsTry {
  ImplGroup *g;
  int n, rows;
  const BlockRV *block;
  const Nest *last;
  int64_t width;
  LoopRV column;
} ColumnsTry;

static void columns_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  ColumnsTry *t = arg;
  LoopRV order[NEST_LOOPS + 1], inner;
  int k = 0;
  int v = t->last->n - 1;
  for (int d = 0; d < t->rows; d++) order[k++] = t->last->loop[d].rv;
  t->column = order[k++] = generic_split_by(t->g, t->last->loop[v].rv, t->width, &inner);
  for (int d = t->rows; d < v; d++) order[k++] = t->last->loop[d].rv;
  order[k++] = inner;
  sched_reorder(t->g->s, k, order);
  for (int i = t->n - 2; i >= 0; i--) sched_compute_at(t->g->s, t->block[i], t->column, false, -1);
}

/* A block that sums nothing, over its columns at once. */
static void whole_columns(Ctx *ctx, void *arg)
{
  (void)ctx;
  BlockTry *t = arg;
  LoopRV *loop;
  int n = sched_get_loops(t->g->s, t->block, t->g->arena, &loop);
  sched_vectorize(t->g->s, loop[n - 1]);
}

/* All blocks for a few columns after the other, in vectors: what lies between them are those columns, and what one
 * column needs again and again (a quotient, a logarithm) is computed once. */
static bool schedule_columns(ImplGroup *g, const BlockRV *block, int n)
{
  enum { VECTORS = 4 };
  Nest **nest = arena_array(g->arena, Nest *, n);
  double operations = 0;
  double bytes = 0;
  for (int i = 0; i < n; i++) {
    nest[i] = arena_new_of(g->arena, Nest);
    nest_read(g, block[i], nest[i]);
    if (!nest[i]->plain || has_empty_loop(nest[i])) return false;
    if (i < n - 1 && nest_block_is_output(sched_func(g->s), nest[i]->block)) return false;
    nest_work(nest[i], &operations, &bytes);
  }
  if (!has_columns(g, nest, n)) return false;
  const Nest *last = nest[n - 1];
  int rows = common_rows(g, nest, n);
  int64_t lanes = target_lanes(g->target, last->bits < 8 ? 8 : last->bits);
  int64_t columns = last->loop[last->n - 1].extent;
  int64_t width = VECTORS * lanes;
  for (int64_t k = VECTORS; columns && k > 0 && columns % width; k--)
    if (columns % (k * lanes) == 0) width = k * lanes;
  if (columns && columns < VECTORS * lanes) width = columns;
  if (rows >= last->n - 1) return false;
  ColumnsTry t = {g, n, rows, block, last, width, {-1}};
  double steps = 1;
  for (int d = 0; d < rows; d++) steps *= last->loop[d].extent ? (double)last->loop[d].extent : 64;
  int threads = generic_threads(g, operations, bytes);
  LoopRV outer[NEST_LOOPS];
  for (int d = 0; d < rows; d++) outer[d] = last->loop[d].rv;
  if (!group_try(g, columns_body, &t)) return false;
  for (int i = 0; i < n; i++) {
    if (nest[i]->reduction) generic_block(g, block[i], rows + 1, false);
    else group_try(g, whole_columns, &(BlockTry){g, block[i], rows + 1, false});
  }
  if (threads > 1) share_loop(g, steps >= threads ? fuse_counted(g, outer, rows, threads) : t.column);
  return true;
}

/* Tables, which read nothing, each by itself; the number of the other blocks, which are moved to the front. */
static int schedule_tables(ImplGroup *g, BlockRV *block, int n)
{
  int k = 0;
  for (int i = 0; i < n; i++) {
    const Block *b = sched_block_stmt(g->s, block[i])->u.block;
    if (b->nreads || nest_block_is_output(sched_func(g->s), b)) block[k++] = block[i];
    else generic_block(g, block[i], 0, true);
  }
  return k;
}

void generic_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV *block;
  int n = generic_root_blocks(g, &block);
  n = schedule_tables(g, block, n);
  if (n > 1 && (schedule_columns(g, block, n) || schedule_rows(g, block, n))) return;
  for (int i = 0; i < n; i++) generic_block(g, block[i], 0, true);
}

/* Has some loop around the block been given a kind already? */
static bool is_scheduled(const Nest *n)
{
  for (int i = 0; i < n->n; i++)
    if (n->loop[i].stmt->u.loop.kind != FOR_SERIAL) return true;
  return false;
}

void generic_rest(ImplGroup *g)
{
  BlockRV *block;
  int n = generic_root_blocks(g, &block);
  for (int i = 0; i < n; i++) {
    Nest *nest = arena_new_of(g->arena, Nest);
    nest_read(g, block[i], nest);
    if (!is_scheduled(nest)) generic_block(g, block[i], 0, true);
  }
}
