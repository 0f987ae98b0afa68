/* table.c: the implementations, and which one a call gets. */
#include "impl/internal.h"

static const Impl table[] = {
#define IMPL(name, op, fits, cost, compute, schedule) {name, op, fits, cost, compute, schedule, false},
#define HALF(name, op, fits, cost, compute, schedule) {name, op, fits, cost, compute, schedule, true},
#include "impl/impl.def"
#undef HALF
#undef IMPL
  {NULL, NULL, NULL, NULL, NULL, NULL, false},
};

int impl_count(void) { return (int)(sizeof table / sizeof *table) - 1; }
const Impl *impl_at(int i) { return &table[i]; }

const Impl *impl_choose(const Target *t, const ImplConfig *config, const Node *call)
{
  const Impl *best = NULL;
  double least = 0;
  for (int i = 0; i < impl_count(); i++) {
    const Impl *it = &table[i];
    if (strcmp(it->op, call->u.call.op->name) || (it->half && config->fast_math != FAST_FP16) || !it->fits(t, call))
      continue;
    double cost = it->cost(t, call);
    if (best && cost >= least) continue;
    best = it;
    least = cost;
  }
  return best;
}

/* ---- operations ------------------------------------------------------------------------------- */

double impl_flops(const Node *call)
{
  if (call->type->kind != TY_TENSOR) return 0;
  const OpDef *op = call->u.call.op;
  return op->flops ? op->flops(call) : type_known_elements(call->type);
}

double impl_flops_done(const Node *call)
{
  const OpDef *op = call->u.call.op;
  return op->flops_done ? op->flops_done(call) : impl_flops(call);
}
