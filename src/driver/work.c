/* work.c: operations of a kernel whose sizes are known only when it runs.
 *
 * An operator says how many operations a call of known sizes takes.  Where sizes are open that number is, for
 * nearly all, a coefficient times some of the sizes, each to a power.  Both are found by asking for small sizes:
 * all of them 1 gives the coefficient, one of them 2 its power; a last question with sizes of another kind shows
 * whether it was right.  The runtime then puts in the dimensions of the tensors that a call had. */
#include <math.h>

#include "driver/program.h"

enum { MAX_OPEN = 8 };

typedef struct Probe {
  Program *p;
  Arena *arena;
  const Node *call;
  int n; /* sizes that are open */
  const Expr *size[MAX_OPEN];
} Probe;

static bool note_sizes(Probe *q, const Type *t)
{
  for (int d = 0; t->kind == TY_TENSOR && d < t->ndim; d++) {
    int i = 0;
    while (i < q->n && q->size[i] != t->shape[d]) i++;
    if (t->shape[d]->kind == E_INT || i < q->n) continue;
    if (q->n == MAX_OPEN) return false;
    q->size[q->n++] = t->shape[d];
  }
  return true;
}

/* The type with numbers for its open sizes. */
static const Type *sized(Probe *q, const Type *t, const int64_t *value)
{
  if (t->kind != TY_TENSOR || t->ndim < 0) return t;
  Type *out = arena_copy(q->arena, t, sizeof *t);
  const Expr **shape = arena_array(q->arena, const Expr *, t->ndim + 1);
  for (int d = 0; d < t->ndim; d++) {
    shape[d] = t->shape[d];
    for (int i = 0; i < q->n; i++)
      if (q->size[i] == t->shape[d]) shape[d] = expr_i32(q->p->m, value[i]);
  }
  out->shape = shape;
  return out;
}

static double ask(Probe *q, double (*flops)(const Node *), const int64_t *value)
{
  Node *call = arena_copy(q->arena, q->call, sizeof *q->call);
  const Node **arg = arena_array(q->arena, const Node *, call->nargs + 1);
  for (int i = 0; i < call->nargs; i++) {
    Node *a = arena_copy(q->arena, call->arg[i], sizeof *a);
    a->type = sized(q, a->type, value);
    arg[i] = a;
  }
  call->arg = arg;
  call->type = sized(q, call->type, value);
  return flops(call);
}

/* Where the kernel's tensors have that size: parameters first, then results. */
static bool find_size(const Type *const *leaf, int n, const Expr *size, ProgFactor *out)
{
  for (int i = 0; i < n; i++)
    for (int d = 0; leaf[i]->kind == TY_TENSOR && d < leaf[i]->ndim; d++)
      if (leaf[i]->shape[d] == size) {
        out->tensor = i;
        out->dim = d;
        return true;
      }
  return false;
}

typedef struct Terms {
  Probe probe;
  const Type *const *leaf; /* of the kernel's tensors */
  int nleaf;
  ProgTerm term;
} Terms;

/* A size is a dimension of a tensor, or a product of such. */
static bool add_factor(Terms *t, const Expr *size, int power)
{
  ProgFactor f = {.power = power};
  if (size->kind == E_INT) {
    t->term.coefficient *= pow((double)size->u.i, power);
    return true;
  }
  if (find_size(t->leaf, t->nleaf, size, &f)) {
    vec_push(t->probe.p->arena, &t->term.factor, f);
    return true;
  }
  return size->kind == E_MUL && add_factor(t, size->arg[0], power) && add_factor(t, size->arg[1], power);
}

/* The operations of one call as a term; false: they are no such product, or of sizes that no tensor shows. */
static bool find_term(Terms *t, double (*flops)(const Node *))
{
  static const int64_t primes[MAX_OPEN] = {3, 5, 7, 11, 13, 17, 19, 23};
  Probe *q = &t->probe;
  int64_t value[MAX_OPEN] = {1, 1, 1, 1, 1, 1, 1, 1};
  double one = ask(q, flops, value);
  double expected = one;
  t->term.coefficient = one;
  for (int i = 0; i < q->n; i++) {
    value[i] = 2;
    double ratio = one > 0 ? ask(q, flops, value) / one : 0;
    value[i] = 1;
    int power = ratio > 0 ? (int)lrint(log2(ratio)) : 0;
    if (!(ratio > 0) || fabs(ratio - exp2(power)) > 1e-9) return false;
    expected *= pow((double)primes[i], power);
    if (power && !add_factor(t, q->size[i], power)) return false;
  }
  double got = ask(q, flops, primes);
  return fabs(got - expected) <= 1e-9 * expected;
}

static bool add_terms(Terms *t, double (*flops)(const Node *), bool done, ProgTerms *out)
{
  if (flops(t->probe.call) > 0) return true; /* no size that matters is open */
  t->term = (ProgTerm){.done = done};
  if (!find_term(t, flops)) return false;
  vec_push(t->probe.p->arena, out, t->term);
  return true;
}

bool program_work(Program *p, const Node *func, ProgTerms *out)
{
  Scope scope = scope_begin(p->ctx);
  Arena *arena = scratch(p->ctx);
  Vec(const Type *) leaf = {0};
  const Type **part;
  for (int i = 0; i <= fn_nparams(func); i++) {
    int n;
    part = type_leaves(arena, i < fn_nparams(func) ? func->arg[i]->type : fn_body(func)->type, &n);
    for (int k = 0; k < n; k++) vec_push(arena, &leaf, part[k]);
  }
  const Node **node;
  int n = graph_post_order(arena, func, &node);
  bool known = true;
  for (int i = 0; i < n && known; i++) {
    if (node[i]->kind != N_CALL || node[i]->type->kind != TY_TENSOR) continue;
    Terms t = {.probe = {.p = p, .arena = arena, .call = node[i]}, .leaf = leaf.v, .nleaf = leaf.n};
    known = note_sizes(&t.probe, node[i]->type);
    for (int k = 0; k < node[i]->nargs && known; k++) known = note_sizes(&t.probe, node[i]->arg[k]->type);
    if (t.probe.n && known) known = add_terms(&t, impl_flops, false, out) && add_terms(&t, impl_flops_done, true, out);
  }
  scope_end(p->ctx, scope);
  return known;
}
