/* aot_cycles.c: cycles of a kernel, predicted from its loops as they are handed to the C compiler.
 *
 * An operation costs what the core's manual says, times the iterations of the loops around it.  What a compiler does is
 * allowed for: an expression that stands twice in a stretch of code, or in the code around it, is computed once; what
 * does not depend on a loop leaves it; addresses cost nothing; a product that is added is one instruction; small arrays
 * with constant indices are registers.  Caches, flash that waits and conflicts of pipelines are not in it. */
#include "driver/aot.h"

/* Cycles of one operation. */
typedef struct Timing {
  double load, store, simple, mul, wide_mul, div, branch, fp, fp_div, call;
} Timing;

/* By processor: a name, or with * what it begins with; the last row fits any.  Without a unit for floats (and without
 * one for products of 64 bits) a function of the C compiler's does it. */
static const struct {
  const char *cpu;
  Timing t;
} rows[] = {
  {"cortex-m0*", {3, 3, 1.5, 2, 25, 40, 3, 180, 400, 2500}},
  {"cortex-m3", {2, 2, 1, 1.5, 4, 6, 3, 80, 200, 1200}},
  {"cortex-m7", {0.7, 0.7, 0.6, 0.7, 1, 6, 1.5, 0.7, 14, 120}},
  {"cortex-m*", {1.5, 1.5, 1, 1, 1, 7, 3, 1, 14, 200}},
  {"*", {1.5, 1, 1, 2, 4, 20, 2, 170, 400, 2500}},
};

static const Timing *timing_of(const char *cpu)
{
  for (size_t i = 0;; i++) {
    size_t n = strcspn(rows[i].cpu, "*");
    if (rows[i].cpu[n] ? !strncmp(cpu, rows[i].cpu, n) : !strcmp(cpu, rows[i].cpu)) return &rows[i].t;
  }
}

/* A stretch of code, in the loops around it. */
typedef struct Loops {
  Map seen;       /* expressions that have been computed */
  const Var *var; /* of the loop; NULL: none */
  struct Loops *outer;
  double times; /* iterations of all of them */
} Loops;

typedef struct Counter {
  const Timing *t;
  Arena *arena;
  Map registers; /* buffers that are */
  bool quads;    /* of Helium, whose vectors take two cycles */
  double cycles;
  const Kernel *kernel;
  AotMoved *moved; /* of each argument, and of scratch memory */
} Counter;

static AotMoved *moved_of(const Counter *c, const Buffer *b)
{
  for (int i = 0; i < c->kernel->narg; i++)
    if (c->kernel->arg[i].buffer && c->kernel->arg[i].buffer->data == b->data) return &c->moved[i];
  return &c->moved[c->kernel->narg];
}

static bool is_seen(const Loops *s, const Expr *e)
{
  for (; s; s = s->outer)
    if (map_has(&s->seen, e)) return true;
  return false;
}

static bool uses_var(const Expr *e, const Var *v)
{
  if (e->kind == E_VAR) return e->u.var == v;
  for (int i = 0; i < e->nargs; i++)
    if (uses_var(e->arg[i], v)) return true;
  return false;
}

/* The outermost loops that it does not depend on are left; what was written inside may not be read before. */
static Loops *home_of(Loops *s, const Expr *e)
{
  while (s->outer && s->var && !(e->kinds & 1u << E_LOAD) && !uses_var(e, s->var)) s = s->outer;
  return s;
}

/* How often the cost of an operation is paid for all its lanes. */
static double lanes_of(const Counter *c, DType t)
{
  enum { WORD = 32, VECTOR_CYCLES = 2 };
  if (!c->quads || t.lanes == 1) return t.lanes;
  return t.bits * t.lanes <= WORD ? 1 : VECTOR_CYCLES;
}

static bool is_vector_sum(const Expr *e) { return e->kind == E_CALL && e->u.intrin == IN_VECTOR_SUM; }

static bool constant_index(int n, const Expr *const *index)
{
  for (int i = 0; i < n; i++) {
    const Expr *e = index[i]->kind == E_RAMP ? index[i]->arg[0] : index[i];
    if (e->kind != E_INT) return false;
  }
  return true;
}

static double cost_of(const Counter *c, const Expr *e)
{
  const Timing *t = c->t;
  bool real = dtype_is_float(e->dtype);
  if (e->kind >= E_EQ && e->kind <= E_NOT) return t->simple; /* comparisons */
  switch ((ExprKind)e->kind) {
  case E_LOAD: return map_has(&c->registers, e->u.buffer) && constant_index(e->nargs, e->arg) ? 0 : t->load;
  case E_ADD:
  case E_SUB: return real ? t->fp : t->simple;
  case E_MUL: return real ? t->fp : e->dtype.bits > 32 ? t->wide_mul : t->mul;
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD: return e->nargs > 1 && e->arg[1]->kind == E_INT ? 2 * t->simple : real ? t->fp_div : t->div;
  case E_MIN:
  case E_MAX:
  case E_SELECT: return real ? 2 * t->fp : (e->dtype.lanes > 1 && c->quads ? 1 : 2) * t->simple;
  case E_CAST: return real != dtype_is_float(e->arg[0]->dtype) ? t->fp : 0;
  case E_CALL:
    switch (e->u.intrin) {
    case IN_QMULSHIFT: return e->dtype.lanes > 1 && c->quads ? t->mul : t->wide_mul + 7 * t->simple;
    case IN_VECTOR_SUM: return 0; /* of products, which are added up as they are made */
    case IN_WORD_DOT: return 4 * t->mul;
    case IN_DOT: return (double)e->nargs / 2 * t->mul;
    case IN_SHL:
    case IN_SHR:
    case IN_BITAND:
    case IN_BITOR:
    case IN_BITXOR:
    case IN_BITNOT:
    case IN_CLZ:
    case IN_REINTERPRET: return t->simple;
    case IN_SHR_ROUND: return 4 * t->simple;
    case IN_IF_THEN_ELSE: return t->branch;
    case IN_FMA: return t->fp;
    case IN_SQRT: return t->fp_div;
    case IN_ABS:
    case IN_FLOOR:
    case IN_CEIL:
    case IN_TRUNC: return real ? 2 * t->fp : t->simple;
    default: return real ? t->call : t->simple;
    }
  default: return 0;
  }
}

/* address: it says where, and costs nothing. */
static void count_expr(Counter *c, Loops *s, const Expr *e, bool address)
{
  if (e->kind == E_INT || e->kind == E_FLOAT || e->kind == E_VAR || is_seen(s, e)) return;
  Loops *home = home_of(s, e);
  map_put(c->arena, &home->seen, e, c);
  bool added = false; /* a product that is added to a sum */
  for (int i = 0; i < e->nargs; i++) {
    bool product = e->kind == E_ADD && !added && e->arg[i]->kind == E_MUL && !is_seen(s, e->arg[i]);
    count_expr(c, s, e->arg[i], address || e->kind == E_LOAD);
    added = added || product;
  }
  double cost = address && e->kind != E_LOAD ? 0 : cost_of(c, e);
  bool word_sum = e->kind == E_ADD && (e->arg[0]->kind == E_CALL || e->arg[1]->kind == E_CALL) &&
                  ((e->arg[0]->kind == E_CALL && e->arg[0]->u.intrin == IN_WORD_DOT) ||
                   (e->arg[1]->kind == E_CALL && e->arg[1]->u.intrin == IN_WORD_DOT));
  word_sum |= e->kind == E_ADD && (is_vector_sum(e->arg[0]) || is_vector_sum(e->arg[1]));
  if (!added && !word_sum) c->cycles += cost * home->times * lanes_of(c, e->dtype);
  if (e->kind == E_LOAD && cost > 0)
    moved_of(c, e->u.buffer)->read += home->times * e->dtype.lanes * dtype_bytes(dtype_elem(e->dtype));
}

static double extent_of(const Expr *e)
{
  if (e->kind == E_INT) return (double)e->u.i;
  return 1; /* an edge, whose rows are few */
}

static void count_stmt(Counter *c, Loops *s, const Stmt *st)
{
  switch (st->kind) {
  case S_SEQ:
    for (int i = 0; i < st->u.seq.n; i++) count_stmt(c, s, st->u.seq.v[i]);
    return;
  case S_FOR: {
    double n = extent_of(st->u.loop.extent);
    bool flat = st->u.loop.kind == FOR_UNROLLED || st->u.loop.kind == FOR_VECTORIZED;
    Loops inner = {.outer = s, .var = st->u.loop.var, .times = s->times * n};
    count_stmt(c, &inner, st->u.loop.body);
    if (!flat) c->cycles += inner.times * (2 * c->t->simple + c->t->branch);
    return;
  }
  case S_IF: {
    Loops inner = {.outer = s, .times = s->times};
    count_expr(c, s, st->u.cond.cond, false);
    c->cycles += s->times * c->t->branch;
    count_stmt(c, &inner, st->u.cond.then);
    return;
  }
  case S_WHILE: count_stmt(c, s, st->u.loop_while.body); return;
  case S_LET:
    count_expr(c, s, st->u.let.value, false);
    count_stmt(c, s, st->u.let.body);
    return;
  case S_STORE: {
    bool kept = map_has(&c->registers, st->u.store.buffer) && constant_index(st->u.store.n, st->u.store.index);
    count_expr(c, s, st->u.store.value, false);
    if (kept) return;
    DType t = st->u.store.value->dtype;
    c->cycles += c->t->store * s->times * lanes_of(c, t);
    moved_of(c, st->u.store.buffer)->written += s->times * t.lanes * dtype_bytes(dtype_elem(t));
    return;
  }
  case S_ALLOC:
    if (st->u.alloc.place == PLACE_STACK) map_put(c->arena, &c->registers, st->u.alloc.buffer, c);
    count_stmt(c, s, st->u.alloc.body);
    return;
  case S_EVAL: count_expr(c, s, st->u.eval.value, false); return;
  case S_ATTR: count_stmt(c, s, st->u.attr.body); return;
  case S_BLOCK: return;
  }
}

static double count_kernel(const Aot *a, const Kernel *k, AotMoved *moved)
{
  Scope scope = scope_begin(a->p->ctx);
  Arena *tmp = scratch(a->p->ctx);
  Counter c = {.t = timing_of(a->p->target->cpu), .arena = tmp, .kernel = k};
  c.quads = target_has_quads(a->p->target);
  c.moved = moved ? moved : arena_array(tmp, AotMoved, k->narg + 1);
  Loops top = {.times = 1};
  count_stmt(&c, &top, k->body);
  scope_end(a->p->ctx, scope);
  return c.cycles;
}

double aot_cycles(const Aot *a, int kernel)
{
  const Kernel *k = a->kernel[kernel];
  return k->body ? count_kernel(a, k, NULL) : 0;
}

void aot_moved(const Aot *a, int kernel, int n, AotMoved *out)
{
  const Kernel *k = a->kernel[kernel];
  AotMoved *moved = arena_array(scratch(a->p->ctx), AotMoved, k->narg + 1);
  if (k->body) count_kernel(a, k, moved);
  for (int i = 0; i < k->narg && !k->body; i++) { /* an external compiler's: once */
    double bytes = dtype_bytes(k->arg[i].buffer->dtype);
    for (int d = 0; d < k->arg[i].buffer->ndim; d++) bytes *= (double)k->arg[i].buffer->shape[d]->u.i;
    moved[i] = k->arg[i].written ? (AotMoved){0, bytes} : (AotMoved){bytes, 0};
  }
  for (int i = 0; i < n && i < k->narg; i++) out[i] = moved[i];
  out[n] = moved[k->narg];
}
