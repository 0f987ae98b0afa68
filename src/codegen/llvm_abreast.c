/* llvm_abreast.c: stores of long values, computed side by side.
 *
 *   y[0:4] = f(x[0:4])        a0 = x[0:4]; a1 = x[4:8]; b0 = … a0 …; b1 = … a1 …; …
 *   y[4:8] = f(x[4:8])   →    y[0:4] = z0; y[4:8] = z1
 *
 * Steps of an elementary function wait for each other, and LLVM leaves code in about the order in which it comes.  Where one
 * vector's steps stand behind the other's, a processor finds the next vector only when its queues hold all that waits for
 * this one, which those of AArch64 cores do not: two vectors one after the other took 13 cycles each on a Neoverse V1,
 * six abreast 10.
 *
 * In: a sequence of stores whose values are the same steps on other lanes.  No store of the run writes what another one
 * reads. */
#include "codegen/llvm_gen.h"

typedef struct Step {
  const Expr *value;
  const Var *name;           /* a let's; else NULL */
} Step;

/* A store and the lets before it. */
typedef struct Steps {
  Vec(Step) v;               /* what it needs, each once, operands first */
  Map seen;
  const Buffer *written;
  bool plain;                /* all of it may be computed at any time */
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
  return a->kind == b->kind && a->nargs == b->nargs && dtype_eq(a->dtype, b->dtype) && (a->kind != E_CALL || a->u.intrin == b->u.intrin) &&
         (a->kind != E_LOAD || a->u.buffer == b->u.buffer);
}

static bool same_steps(const Steps *a, const Steps *b)
{
  bool same = a->v.n == b->v.n;
  for (int i = 0; i < a->v.n && same; i++) same = same_step(a->v.v[i].value, b->v.v[i].value) && !a->v.v[i].name == !b->v.v[i].name;
  return same;
}

static bool reads(const Steps *s, const Buffer *b)
{
  for (int i = 0; i < s->v.n; i++)
    if (s->v.v[i].value->kind == E_LOAD && s->v.v[i].value->u.buffer->data == b->data) return true;
  return false;
}

/* The steps of a statement that may stand in a run: a store of some length, on vectors, of other memory than it writes. */
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
  return out->plain && out->v.n >= LONG && !reads(out, out->written);
}

static void gen_steps(Gen *g, const Steps *run, int n)
{
  for (int k = 0; k < run[0].v.n; k++)
    for (int i = 0; i < n; i++) {
      const Step *step = &run[i].v.v[k];
      LLVMValueRef v = gen_expr(g, step->value);
      if (step->name) gen_bind(g, step->name, v);
    }
}

int gen_abreast(Gen *g, Stmt *seq, int from)
{
  enum { HELD = 5, MOST = 16 };                            /* registers that a vector on its way holds, constants counted in */
  Steps run[MOST];
  int most = g->t->vector_registers / HELD, n = 0;
  if (g->t->arch != ARCH_AARCH64 || most < 2) return 0;
  for (; n < MOST && from + n < seq->u.seq.n; n++)
    if (!may_run(g, seq->u.seq.v[from + n], &run[n]) || run[n].written != run[0].written || !same_steps(&run[0], &run[n])) break;
  if (n < 2) return 0;
  int parts = (n + most - 1) / most, first = (n + parts - 1) / parts;      /* as even as may be */
  Memo memo;
  memo_begin(g, &memo);
  gen_steps(g, run, first);
  for (int i = 0; i < first; i++) gen_stmt(g, seq->u.seq.v[from + i]);     /* finds all of it in the memo */
  memo_end(g, &memo);
  return first;
}
