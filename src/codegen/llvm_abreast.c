/* llvm_abreast.c: stores of long values, computed side by side.
 *
 *   y[0:4] = f(x[0:4])        a0 = x[0:4]; a1 = x[4:8]; b0 = … a0 …; b1 = … a1 …; …
 *   y[4:8] = f(x[4:8])   →    y[0:4] = z0; y[4:8] = z1
 *
 * Steps of an elementary function wait for each other, and LLVM leaves code in about the order in which it comes.
 * Where one vector's steps stand behind the other's, a processor finds the next vector only when its queues hold all
 * that waits for this one, which those of AArch64 cores do not: two vectors one after the other took 13 cycles each on
 * a Neoverse V1, six abreast 10.
 *
 * In: a sequence of stores whose values are the same steps on other lanes.  No store of the run writes what another one
 * reads: they read other memory alone, or each is a sum (y[0:4] = y[0:4] + f(x[0:4])) in a place of its own. */
#include "codegen/llvm_gen.h"

typedef struct Step {
  const Expr *value;
  const Var *name; /* a let's; else NULL */
} Step;

/* A store and the lets before it. */
typedef struct Steps {
  Vec(Step) v; /* what it needs, each once, operands first */
  Map seen;
  const Buffer *written;
  const Expr *place; /* of a sum: the constant ramp at which it reads what it writes; else NULL */
  bool plain;        /* all of it may be computed at any time */
} Steps;

static bool is_plain(const Expr *e)
{
  if (e->kind == E_CALL) return e->pure && e->u.intrin != IN_IF_THEN_ELSE;
  return e->kind != E_AND && e->kind != E_OR && e->kind != E_LET && e->kind != E_REDUCE;
}

static void list_steps(Gen *g, Steps *s, const Expr *e)
{
  if (e->nargs == 0 || map_get(&s->seen, e)) return;
  map_put(g->arena, &s->seen, e, (void *)(uintptr_t)e);
  s->plain &= is_plain(e);
  for (int i = 0; i < e->nargs && e->kind != E_LOAD && e->kind != E_RAMP; i++) list_steps(g, s, e->arg[i]);
  vec_push(g->arena, &s->v, ((Step){e, NULL}));
}

static bool same_step(const Expr *a, const Expr *b)
{
  return a->kind == b->kind && a->nargs == b->nargs && dtype_eq(a->dtype, b->dtype) &&
         (a->kind != E_CALL || a->u.intrin == b->u.intrin);
}

static bool loads(const Expr *e, const Buffer *b) { return e->kind == E_LOAD && e->u.buffer->data == b->data; }

static bool same_steps(const Steps *a, const Steps *b)
{
  bool same = a->v.n == b->v.n;
  for (int i = 0; i < a->v.n && same; i++) {
    const Expr *x = a->v.v[i].value;
    const Expr *y = b->v.v[i].value;
    bool sums = loads(x, a->written) && loads(y, b->written);
    same = same_step(x, y) && !a->v.v[i].name == !b->v.v[i].name &&
           (x->kind != E_LOAD || x->u.buffer == y->u.buffer || sums);
  }
  return same;
}

/* Does it read what is written, other than at its own place? */
static bool reads_elsewhere(const Steps *s)
{
  for (int i = 0; i < s->v.n; i++) {
    const Expr *e = s->v.v[i].value;
    if (loads(e, s->written) && (!s->place || e->u.buffer != s->written || e->nargs != 1 || e->arg[0] != s->place))
      return true;
  }
  return false;
}

/* A ramp over neighbours that begins at a number. */
static const Expr *constant_place(const Stmt *store)
{
  const Expr *e = store->u.store.n == 1 ? store->u.store.index[0] : NULL;
  return e && e->kind == E_RAMP && e->arg[0]->kind == E_INT && expr_is_int(e->arg[1], 1) ? e : NULL;
}

static bool are_apart(const Expr *a, const Expr *b)
{
  int64_t from = a->arg[0]->u.i;
  int64_t to = b->arg[0]->u.i;
  return from + a->dtype.lanes <= to || to + b->dtype.lanes <= from;
}

/* Does the second read nothing that the first, which is before it, writes? */
static bool is_apart(const Steps *first, const Steps *second)
{
  for (int i = 0; i < second->v.n; i++) {
    if (!loads(second->v.v[i].value, first->written)) continue;
    if (second->written != first->written || !first->place || !are_apart(first->place, second->place)) return false;
  }
  return true;
}

/* The steps of a statement that may stand in a run: a store of some length, on vectors, of other memory than it writes
 * or a sum. */
static bool may_run(Gen *g, Stmt *s, Steps *out)
{
  enum { LONG = 12 };
  *out = (Steps){.plain = true};
  for (; s->kind == S_LET; s = s->u.let.body) {
    list_steps(g, out, s->u.let.value);
    vec_push(g->arena, &out->v, ((Step){s->u.let.value, s->u.let.var}));
  }
  if (s->kind != S_STORE || s->u.store.mask || s->u.store.value->dtype.lanes == 1) return false;
  list_steps(g, out, s->u.store.value);
  out->written = s->u.store.buffer;
  out->place = constant_place(s);
  return out->plain && out->v.n >= LONG && !reads_elsewhere(out);
}

static void gen_steps(Gen *g, const Steps *run, int n)
{
  for (int k = 0; k < run[0].v.n; k++)
    for (int i = 0; i < n; i++) {
      const Step *step = &run[i].v.v[k];
      if (step->name) gen_bind_let(g, step->name, step->value);
      else gen_expr(g, step->value);
    }
}

int gen_abreast(Gen *g, Stmt *seq, int from)
{
  /* registers that a vector on its way holds, constants counted in */
  enum { HELD = 5, MOST = 16 };
  Steps run[MOST];
  int most = g->t->vector_registers / HELD;
  int n = 0;
  if (g->t->arch != ARCH_AARCH64 || most < 2) return 0;
  for (bool may = true; n < MOST && from + n < seq->u.seq.n; n++) {
    may = may_run(g, seq->u.seq.v[from + n], &run[n]) && same_steps(&run[0], &run[n]);
    for (int i = 0; i < n && may; i++) may = is_apart(&run[i], &run[n]);
    if (!may) break;
  }
  if (n < 2) return 0;
  int parts = (n + most - 1) / most;
  int first = (n + parts - 1) / parts; /* as even as may be */
  Memo memo;
  gen_memo_begin(g, &memo);
  gen_steps(g, run, first);
  for (int i = 0; i < first; i++) gen_stmt(g, seq->u.seq.v[from + i]); /* finds all of it in the memo */
  gen_memo_end(g, &memo);
  return first;
}
