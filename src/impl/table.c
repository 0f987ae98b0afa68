/* table.c: the implementations, and which one a call gets. */
#include "impl/internal.h"

static const AttrsDef no_plan = {"NoPlan", 0, NULL, 0};

static const Impl table[] = {
#define IMPL(name, op, fits, cost, compute, schedule) \
  {name, op, &no_plan, NULL, NULL, compute, schedule, fits, cost, false},
#define PLANNED(name, op, record, plans, alter, compute, schedule) \
  {name, op, &record##_table, plans, alter, compute, schedule, NULL, NULL, false},
#define HALF(name, op, record, plans, alter, compute, schedule) \
  {name, op, &record##_table, plans, alter, compute, schedule, NULL, NULL, true},
#include "impl/impl.def"
#undef HALF
#undef PLANNED
#undef IMPL
};

int impl_count(void) { return (int)(sizeof table / sizeof *table); }
const Impl *impl_at(int i) { return &table[i]; }

const Impl *impl_find(const char *name, const char *op)
{
  for (int i = 0; i < impl_count(); i++)
    if (!strcmp(table[i].name, name) && !strcmp(table[i].op, op)) return &table[i];
  return NULL;
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
