/* cstyle_seq.c: statements in a row, and what they read from places near each other.
 *
 *   y[i * 96 + k * 8]     = …        float *const y_at = y + (i * 96 + k * 8);
 *   y[i * 96 + k * 8 + 4] = …   →    y_at[0] = …
 *                                    y_at[4] = …
 *
 * An index that is an int cannot move into an address where it might wrap, so compilers would add every one of them;
 * constants behind a pointer cost nothing.
 *
 * Machines that multiply by one lane of a vector (Arm's), and WebAssembly, which checks the bounds of each load, read
 * the factors of a run of sums as vectors:
 *
 *   s0 = s0 + v * splat(x[0])        const f32x4 x_lanes = *(f32x4 *)x;
 *   s1 = s1 + v * splat(x[1])   →    s0 = s0 + v * splat(x_lanes[0])
 *   …                                …
 *
 * In: stores and evaluations.  What is hoisted before them has no effect and cannot fail. */
#include "codegen/cstyle.h"

enum { OPEN_VECTORS = 4 }; /* of lanes at a time: the sums want the registers */

/* An access of memory by one of the statements. */
typedef struct Touch {
  const Buffer *buffer;
  const Expr *rest;
  int64_t at;
} Touch;

/* A scalar in memory that is spread over a vector. */
typedef struct Factor {
  const Expr *load;
  Touch touch;
  int first, last; /* statements that use it */
  bool taken;
} Factor;

typedef struct Run {
  Cgen *g;
  Vec(Touch) touches;
  Vec(Factor) factors;
  bool stores; /* to memory, which may be what a factor is read from */
  int now;
} Run;

static void find_unsafe(void *env, const Expr *e)
{
  if (e->kind == E_LOAD || e->kind == E_CALL || e->kind == E_LET) *(bool *)env = true;
}

/* Index arithmetic alone, which may be done before the statement. */
static bool is_plain(Cgen *g, const Expr *rest)
{
  bool unsafe = rest->kind == E_INT || rest->kind == E_VAR || rest->dtype.lanes != 1 || cs_may_fail(g, rest);
  if (!unsafe) expr_visit(g->ctx, rest, find_unsafe, &unsafe);
  return !unsafe;
}

static void note_touch(Run *run, const Buffer *b, const Expr *index)
{
  const Memory *mem = cs_memory(run->g, b);
  bool beside = index->kind == E_RAMP && expr_is_int(index->arg[1], 1); /* lanes that lie apart are read one by one */
  if (mem->is_variable || (!beside && index->dtype.lanes != 1)) return;
  Touch t = {.buffer = b};
  t.rest = cs_split_index(index, &t.at);
  vec_push(scratch(run->g->ctx), &run->touches, t);
}

static void note_factor(Run *run, const Expr *load)
{
  if (cs_memory(run->g, load->u.buffer)->is_variable || !dtype_eq(load->dtype, DT_F32)) return;
  for (int i = 0; i < run->factors.n; i++)
    if (run->factors.v[i].load == load) {
      run->factors.v[i].last = run->now;
      return;
    }
  Factor f = {.load = load, .touch = {.buffer = load->u.buffer}, .first = run->now, .last = run->now};
  f.touch.rest = cs_split_index(load->arg[0], &f.touch.at);
  vec_push(scratch(run->g->ctx), &run->factors, f);
}

static void note_expr(void *env, const Expr *e)
{
  Run *run = env;
  if (e->kind == E_LOAD && e->nargs == 1) note_touch(run, e->u.buffer, e->arg[0]);
  if (e->kind == E_BROADCAST && e->arg[0]->kind == E_LOAD) note_factor(run, e->arg[0]);
}

static void note_stmt(Run *run, const Stmt *s)
{
  Cgen *g = run->g;
  if (s->kind == S_EVAL) {
    expr_visit(g->ctx, s->u.eval.value, note_expr, run);
    return;
  }
  run->stores |= !cs_memory(g, s->u.store.buffer)->is_variable;
  if (s->u.store.n == 1) note_touch(run, s->u.store.buffer, s->u.store.index[0]);
  expr_visit(g->ctx, s->u.store.value, note_expr, run);
  if (s->u.store.mask) expr_visit(g->ctx, s->u.store.mask, note_expr, run);
}

static void print_bases(Run *run)
{
  Cgen *g = run->g;
  for (int i = 0; i < run->touches.n; i++) {
    const Touch *t = &run->touches.v[i];
    DType elem = cs_storage(g, t->buffer->dtype);
    if (cs_base(g, t->buffer, t->rest) || !is_plain(g, t->rest)) continue;
    bool again = false;
    for (int k = i + 1; k < run->touches.n && !again; k++) {
      const Touch *u = &run->touches.v[k];
      again = u->rest == t->rest && u->at != t->at && u->buffer->data == t->buffer->data &&
              dtype_eq(cs_storage(g, u->buffer->dtype), elem);
    }
    if (!again) continue;
    const Memory *mem = cs_memory(g, t->buffer);
    const char *type = cs_fmt(g, "%s%s *", mem->read_only ? "const " : "", cs_type(g, elem));
    const char *from = dtype_eq(cs_storage(g, mem->elem), elem) ? mem->name : cs_fmt(g, "(%s)%s", type, mem->name);
    const char *name = cs_fresh(g, cs_fmt(g, "%s_at", mem->name));
    cs_line(g, "%sconst %s = %s + %s;", type, name, from, cs_wrap(g, cs_expr(g, t->rest), P_ADD));
    vec_push(g->arena, &g->bases, ((Base){t->buffer->data, elem, t->rest, name}));
  }
}

/* ---- factors as lanes -------------------------------------------------------------------------- */

static Factor *find_factor(Run *run, const Factor *like, int64_t at)
{
  for (int i = 0; i < run->factors.n; i++) {
    Factor *f = &run->factors.v[i];
    if (!f->taken && f->touch.at == at && f->touch.rest == like->touch.rest && f->touch.buffer == like->touch.buffer)
      return f;
  }
  return NULL;
}

/* Before the statement that needs the first of them. */
static void print_vector(Run *run, Factor *const *lane, int lanes)
{
  Cgen *g = run->g;
  DType t = dtype_lanes(lane[0]->load->dtype, lanes);
  const char *name = cs_fresh(g, cs_fmt(g, "%s_lanes", cs_memory(g, lane[0]->touch.buffer)->name));
  cs_line(g, "const %s %s = *(const %s *)(%s);", cs_type(g, t), name, cs_memory_type(g, t),
          cs_address(g, lane[0]->touch.buffer, lane[0]->load->arg[0]));
  for (int i = 0; i < lanes; i++)
    vec_push(g->arena, &g->bound, ((Bound){lane[i]->load, -1, arena_printf(g->arena, "%s[%d]", name, i)}));
}

/* open[i]: the last statement that uses vector i. */
static void start_vectors(Run *run, int open[OPEN_VECTORS])
{
  enum { LANES = 4 };
  for (int i = 0; i < run->factors.n; i++) {
    Factor *f = &run->factors.v[i];
    if (f->first != run->now || f->taken) continue;
    Factor *lane[LANES] = {f};
    int n = 1;
    int last = f->last;
    while (n < LANES && (lane[n] = find_factor(run, f, f->touch.at + n)) != NULL) {
      if (lane[n]->last > last) last = lane[n]->last;
      n++;
    }
    int place = 0;
    while (place < OPEN_VECTORS && open[place] >= run->now) place++;
    if (n < LANES || place == OPEN_VECTORS) continue;
    for (int k = 0; k < LANES; k++) lane[k]->taken = true;
    open[place] = last;
    print_vector(run, lane, LANES);
  }
}

/* ---- the sequence -------------------------------------------------------------------------------- */

static bool is_leaf(const Stmt *s) { return s->kind == S_STORE || s->kind == S_EVAL; }

/* RISC-V multiplies vectors by scalars. */
static bool multiplies_by_lane(const Target *t) { return !t->broadcast_load && t->arch != ARCH_RISCV64; }

static void print_run(Cgen *g, Stmt **v, int n)
{
  Scope scope = scope_begin(g->ctx);
  Run run = {.g = g};
  int bases = g->bases.n;
  int bound = g->bound.n;
  int open[OPEN_VECTORS] = {-1, -1, -1, -1};
  for (run.now = 0; run.now < n; run.now++) note_stmt(&run, v[run.now]);
  print_bases(&run);
  for (run.now = 0; run.now < n; run.now++) {
    if (multiplies_by_lane(g->target) && !run.stores) start_vectors(&run, open);
    cs_stmt(g, v[run.now]);
  }
  g->bases.n = bases;
  g->bound.n = bound;
  scope_end(g->ctx, scope);
}

void cs_sequence(Cgen *g, Stmt *s)
{
  for (int i = 0; i < s->u.seq.n;) {
    int n = 0;
    while (g->dialect->vectors && i + n < s->u.seq.n && is_leaf(s->u.seq.v[i + n])) n++;
    if (n > 1) print_run(g, s->u.seq.v + i, n);
    else cs_stmt(g, s->u.seq.v[i]), n = 1;
    i += n;
  }
}
