/* features.c: what a cost model reads of a loop program: a row of numbers for each store.
 *
 * In: a scheduled function with its blocks.  Around a store stand loops and the blocks whose iterations are bound to
 * them; so each index has the set of loops that it changes with.  From those sets come how often the store runs, how
 * many elements the innermost k loops touch, and how the innermost loop walks through each buffer.  All but flags are
 * logarithms: two programs that differ by a factor differ by a constant. */
#include <math.h>

#include "tune/tune.h"

enum { MAX_AROUND = 64, DEPTHS = 5 };

/* clang-format off */
enum {
  F_RUNS, F_FLOPS, F_INTS, F_DIVS, F_CALLS, F_CHOICES,          /* how often, and operations in all */
  F_PARALLEL, F_VECTOR, F_UNROLLED, F_INNERMOST, F_LOOPS,       /* loops by what they are marked */
  F_REDUCES, F_INIT, F_PREDICATE,                               /* flags */
  F_STILL, F_ALONG, F_ACROSS,                                   /* accesses the innermost loop leaves, walks, skips */
  F_WRITTEN, F_READ,                                            /* bytes of the buffers in all */
  F_TOUCHED,                                                    /* bytes that inner 1, 2, 4, 6 and all loops touch */
  F_END = F_TOUCHED + DEPTHS
};
/* clang-format on */
_Static_assert((int)F_END == (int)TUNE_FEATURES, "as tune.h says");

static const int depth_of[DEPTHS] = {1, 2, 4, 6, MAX_AROUND};

typedef uint64_t LoopSet; /* bit i: the loop that is i-th from the store */

typedef struct Around {
  Ctx *ctx;
  Arena *arena;
  Stmt *loop[MAX_AROUND]; /* innermost first */
  int n;
  Map sets; /* Var -> its set plus one bit, so that none is NULL */
  LoopSet found;
  double *row;
} Around;

static const LoopSet SEEN = (LoopSet)1 << 63;

static void add_var(void *env, const Expr *e)
{
  Around *a = env;
  if (e->kind != E_VAR) return;
  a->found |= (LoopSet)(uintptr_t)map_get(&a->sets, e->u.var) & ~SEEN;
}

static LoopSet set_of(Around *a, const Expr *e)
{
  a->found = 0;
  expr_visit(a->ctx, e, add_var, a);
  return a->found;
}

static void know(Around *a, const Var *v, LoopSet set)
{
  map_put(a->arena, &a->sets, v, (void *)(uintptr_t)(set | SEEN));
}

static double extent(const Stmt *loop)
{
  const Expr *e = loop->u.loop.extent;
  return e->kind == E_INT ? (double)e->u.i : 1;
}

/* Steps of the innermost `depth` loops that are in the set. */
static double steps(const Around *a, LoopSet set, int depth)
{
  double n = 1;
  for (int i = 0; i < a->n && i < depth; i++)
    if (set >> i & 1) n *= extent(a->loop[i]);
  return n;
}

static double buffer_elements(const Buffer *b)
{
  double n = 1;
  for (int d = 0; d < b->ndim; d++) n *= b->shape[d]->kind == E_INT ? (double)b->shape[d]->u.i : 1;
  return n;
}

static void add_access(Around *a, const Buffer *b, int n, const Expr *const *index, bool write)
{
  LoopSet all = 0;
  LoopSet last = 0;
  for (int i = 0; i < n; i++) all |= last = set_of(a, index[i]);
  a->row[!(all & 1) ? F_STILL : last & 1 ? F_ALONG : F_ACROSS] += 1;
  double bytes = dtype_bytes(b->dtype);
  double whole = buffer_elements(b);
  a->row[write ? F_WRITTEN : F_READ] += whole * bytes;
  for (int k = 0; k < DEPTHS; k++) a->row[F_TOUCHED + k] += fmin(steps(a, all, depth_of[k]), whole) * bytes;
}

static void count_node(void *env, const Expr *e)
{
  Around *a = env;
  bool is_float = dtype_is_float(e->dtype);
  switch (e->kind) {
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_MIN:
  case E_MAX: a->row[is_float ? F_FLOPS : F_INTS] += 1; break;
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD: a->row[F_DIVS] += 1; break;
  case E_CALL: a->row[F_CALLS] += 1; break;
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_SELECT: a->row[F_CHOICES] += 1; break;
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_VAR:
  case E_CAST:
  case E_LET:
  case E_LOAD:
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: break;
  }
}

static void count_load(void *env, const Expr *e)
{
  Around *a = env;
  if (e->kind == E_LOAD) add_access(a, e->u.buffer, e->nargs, e->arg, false);
}

static bool is_below(const Stmt *s, const Stmt *top)
{
  while (s && s != top) s = s->parent;
  return s != NULL;
}

/* Loops from the store outwards, then what blocks bind to them, from the outermost block inwards. */
static void look_around(Around *a, Stmt *store, LoopSet *runs)
{
  Stmt *block[MAX_AROUND];
  int nblock = 0;
  for (Stmt *s = store->parent; s; s = s->parent) {
    if (s->kind == S_FOR && a->n < MAX_AROUND - 1) a->loop[a->n++] = s;
    if (s->kind == S_BLOCK && nblock < MAX_AROUND) block[nblock++] = s;
  }
  for (int i = 0; i < a->n; i++) know(a, a->loop[i]->u.loop.var, (LoopSet)1 << i);
  *runs = ~(LoopSet)0;
  while (nblock-- > 0) {
    const Block *b = block[nblock]->u.block;
    bool first = b->init && is_below(store, b->init); /* it runs where the sum begins */
    LoopSet sums = 0;
    for (int i = 0; i < b->niter; i++) {
      LoopSet set = set_of(a, b->iter[i].value);
      know(a, b->iter[i].var, set);
      if (b->iter[i].kind == ITER_REDUCE) sums |= set;
    }
    if (sums) a->row[F_REDUCES] = 1;
    if (first) *runs &= ~sums, a->row[F_INIT] = 1;
    if (b->predicate) a->row[F_PREDICATE] = 1;
  }
}

static void describe_loops(Around *a)
{
  static const int place[] = {[FOR_PARALLEL] = F_PARALLEL, [FOR_VECTORIZED] = F_VECTOR, [FOR_UNROLLED] = F_UNROLLED};
  a->row[F_PARALLEL] = a->row[F_VECTOR] = a->row[F_UNROLLED] = 1;
  for (int i = 0; i < a->n; i++) {
    ForKind kind = a->loop[i]->u.loop.kind;
    if (kind != FOR_SERIAL && kind != FOR_THREAD) a->row[place[kind]] *= extent(a->loop[i]);
    const Expr *most = annots_get(&a->loop[i]->u.loop.annots, "pragma_auto_unroll_max_step");
    if (most && most->kind == E_INT && most->u.i > 0) a->row[F_UNROLLED] *= (double)most->u.i;
  }
  a->row[F_INNERMOST] = a->n ? extent(a->loop[0]) : 1;
  a->row[F_LOOPS] = a->n;
}

typedef struct Listing {
  Ctx *ctx;
  Arena *arena;
  FeatureRows *rows;
} Listing;

static bool note_store(void *env, Stmt *s)
{
  Listing *l = env;
  if (s->kind != S_STORE) return true;
  double *row = arena_array(l->arena, double, TUNE_FEATURES);
  Around *a = arena_new_of(l->arena, Around);
  *a = (Around){.ctx = l->ctx, .arena = l->arena, .row = row};
  LoopSet runs;
  look_around(a, s, &runs);
  describe_loops(a);
  expr_visit(l->ctx, s->u.store.value, count_node, a);
  row[F_RUNS] = steps(a, runs, MAX_AROUND);
  for (int i = F_FLOPS; i <= F_CHOICES; i++) row[i] *= row[F_RUNS];
  add_access(a, s->u.store.buffer, s->u.store.n, s->u.store.index, true);
  expr_visit(l->ctx, s->u.store.value, count_load, a);
  for (int i = 0; i < TUNE_FEATURES; i++)
    if (i < F_REDUCES || i > F_PREDICATE) row[i] = log2(1 + row[i]);
  vec_push(l->arena, l->rows, row);
  return true;
}

FeatureRows tune_features(Arena *arena, const PrimFunc *f)
{
  FeatureRows rows = {0};
  Listing l = {f->m->ctx, arena, &rows};
  stmt_visit(f->body, note_store, &l);
  return rows;
}

double *tune_program_features(Arena *arena, const PrimFunc *f)
{
  double *sum = arena_array(arena, double, TUNE_FEATURES);
  Scope scope = scope_begin(f->m->ctx);
  FeatureRows rows = tune_features(scratch(f->m->ctx), f);
  for (int i = 0; i < rows.n; i++)
    for (int k = 0; k < TUNE_FEATURES; k++) sum[k] += rows.v[i][k];
  scope_end(f->m->ctx, scope);
  return sum;
}
