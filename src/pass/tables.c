/* tables.c: ByTable: what is computed from one tensor of bytes, element by element and by constants that are the same
 * for all elements, and becomes bytes again, is looked up in a table of its 256 results.
 *   needs   types, folded constants
 *   keeps   types
 *   breaks  nothing; FoldConstant computes the tables
 *
 *   source    the bytes; a node's source is that of its arguments, where all have the same one, or itself where it is
 *             bytes and has no other
 *   weight    operations between source and node, elementary functions and quotients counting for several
 *
 * A table pays from some weight on: little where the target looks up 16 bytes in a few instructions, more where each
 * element is a load. */
#include "op/qnn.h"
#include "pass/passes.h"
#include "pass/tools.h"

enum { WEIGHT_LOOKUP = 5, WEIGHT_LOADS = 16, WEIGHT_FUNCTION = 12, WEIGHT_QUOTIENT = 4 };

typedef struct Origin {
  const Node *source;
  double weight;
} Origin;

typedef struct Tables {
  Module *m;
  Arena *arena;
  Map origin; /* node -> Origin, of nodes that have a source */
  double pays;
} Tables;

static bool is_bytes(const Node *n)
{
  return is_tensor(n) && dtype_is_int(n->type->dtype) && n->type->dtype.bits == 8 && n->type->ndim > 0;
}

static bool is_scalar(const Node *n) { return n->kind == N_CONST && n->type->ndim <= 1 && const_count(n->u.data) == 1; }

static bool same_shape(const Type *a, const Type *b)
{
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

/* Does every element of the result depend on the same element of the argument alone, wherever it lies? */
static bool is_elementwise(const Node *n)
{
  const OpDef *op = n->kind == N_CALL ? n->u.call.op : NULL;
  return op && op->compute && op->fuse <= FUSE_BROADCAST && !(op->flags & (OPF_IMPURE | OPF_HOST | OPF_PLACE)) &&
         is_tensor(n) && n->nargs <= 4 && !call_has(n, "axis") && !call_has(n, "shape") && !call_has(n, "newshape");
}

static double weight_of(const Node *n)
{
  if (is_call_of(n, "divide,sqrt,rsqrt,floor_divide,trunc_divide")) return WEIGHT_QUOTIENT;
  if (n->u.call.op->flags & OPF_DEAR) return WEIGHT_FUNCTION;
  return is_call(n, "cast") ? 0.5 : 1;
}

/* The source of a call, and its weight; NULL: it has none. */
static const Node *source_of(Tables *t, const Node *n, double *weight)
{
  if (!is_elementwise(n)) return NULL;
  const Node *source = NULL;
  *weight = weight_of(n);
  for (int i = 0; i < n->nargs; i++) {
    const Node *a = n->arg[i];
    const Origin *o = map_get(&t->origin, a);
    bool table = i == 1 && is_call(n, "qnn.contrib_lookup");
    if (is_scalar(a) || table) continue;
    if (!o || (source && source != o->source) || !same_shape(a->type, n->type)) return NULL;
    source = o->source;
    *weight += o->weight;
  }
  return source;
}

static void put_origin(Tables *t, const Node *n, const Node *source, double weight)
{
  Origin *o = arena_new_of(t->arena, Origin);
  *o = (Origin){source, weight};
  map_put(t->arena, &t->origin, n, o);
}

/* The node over another source. */
static const Node *over(Tables *t, Map *made, const Node *n, const Node *source, const Node *other)
{
  if (n == source) return other;
  const Origin *o = map_get(&t->origin, n);
  if (!o || o->source != source) return n;
  const Node *y = map_get(made, n);
  if (y) return y;
  const Node *arg[4];
  for (int i = 0; i < n->nargs; i++) arg[i] = over(t, made, n->arg[i], source, other);
  y = node_call(t->m, n->u.call.op, n->nargs, arg, n->u.call.attrs, NULL);
  map_put(t->arena, made, n, (void *)(uintptr_t)y);
  return y;
}

static const Node *look_up(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  Tables *t = rw->env;
  if (!now->type || now->type->kind != TY_TENSOR) return now;
  double weight = 0;
  const Node *source = source_of(t, now, &weight);
  if (!source) {
    if (is_bytes(now) && now->kind != N_CONST) put_origin(t, now, now, 0);
    return now;
  }
  put_origin(t, now, source, weight);
  if (!is_bytes(now) || weight < t->pays || is_call(now, "qnn.contrib_lookup")) return now;
  Map made = {0};
  const Node *table = over(t, &made, now, source, qnn_every_byte(t->m, source->type->dtype));
  if (table->type->ndim != 1) return now;
  const Node *y = qnn_lookup(t->m, source, table);
  put_origin(t, y, source, 1);
  return y;
}

const Node *pass_by_table(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  const Target *target = pass_target(pc);
  if (is_primitive(f) || !target_is_cpu(target)) return f;
  Tables t = {.m = m, .arena = scratch(pc->ctx)};
  t.pays = target_looks_up(target) ? WEIGHT_LOOKUP : WEIGHT_LOADS;
  return rewrite(m, f, look_up, &t);
}
