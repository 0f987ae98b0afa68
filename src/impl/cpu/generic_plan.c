/* generic_plan.c: what the generic schedule leaves open.
 *
 * It sees loops, which a call has none of yet; so 0 in a field stands for what the loops' own rule says (generic.c),
 * and the plan of all zeros is the one taken where nobody gave or measured another. */
#include <math.h>

#include "impl/internal.h"

DEFINE_PLAN_TABLE(GenericPlan, GENERIC_PLAN)

const GenericPlan generic_plain = {0};

enum { MOST_VECTORS = 8 };

/* Bytes that a call reads and writes; sizes that are not known are likely ones. */
static double call_bytes(const Type *t)
{
  double bytes = 0;
  if (t->kind == TY_TENSOR && t->ndim >= 0) return impl_likely_elements(t) * dtype_bytes(t->dtype);
  for (int i = 0; t->kind == TY_TUPLE && i < t->nfield; i++) bytes += call_bytes(t->field[i]);
  return bytes;
}

/* Arithmetic at the peak after memory at its rate, and the loop's own instructions; 0 in vectors is taken for many. */
double generic_seconds(const ImplCall *c, const GenericPlan *p)
{
  static const double LOOP_CYCLES = 2; /* of a step's own instructions */
  const Target *t = c->target;
  const Type *out = c->call->type;
  double bytes = call_bytes(out);
  double written = bytes;
  for (int i = 0; i < c->call->nargs; i++) bytes += call_bytes(c->call->arg[i]->type);
  int bits = out->kind == TY_TENSOR && out->dtype.bits > 8 ? out->dtype.bits : 8;
  double operations = impl_flops(c->call);
  int64_t vectors = p->vectors ? p->vectors : MOST_VECTORS;
  double passed = c->call->u.call.op->fuse == FUSE_COMM_REDUCE ? bytes : written;
  double steps = passed / (bits / 8.0 * (double)(target_lanes(t, bits) * vectors));
  double seconds = operations / cost_flops(t, bits) + bytes / cost_bandwidth(t);
  int threads = p->threads ? (int)p->threads : cost_threads(t, operations, bytes);
  seconds = (seconds + steps * LOOP_CYCLES / (1e9 * t->core.ghz)) / threads;
  return isfinite(seconds) ? seconds : 0; /* of a device that has no such facts nothing is known */
}

void generic_plans(const ImplCall *c, PlanList *list)
{
  static const int64_t few[] = {0, 1, 2, 4, MOST_VECTORS};
  enum { FEW = sizeof few / sizeof *few };
  bool sums = c->call->u.call.op->fuse == FUSE_COMM_REDUCE;
  for (int v = 0; v < FEW; v++)
    for (int64_t threads = 0; threads < 2; threads++)
      for (int r = 0; r < (sums ? FEW : 1); r++)
        for (int along = 0; along < (sums ? 2 : 1); along++) {
          GenericPlan p = {few[v], threads, few[r], along};
          const void *copy = arena_copy(list->of->arena, &p, sizeof p);
          vec_push(list->of->arena, &list->v, ((Plan){.fields = copy, .seconds = generic_seconds(c, &p)}));
        }
}

int generic_threads(const ImplGroup *g, double operations, double bytes)
{
  return g->generic.threads ? (int)g->generic.threads : cost_threads(g->target, operations, bytes);
}
