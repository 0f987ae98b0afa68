/* widen_precision.c: WidenPrecision: models in float16 and bfloat16 take the kernels of float32.
 *   needs   types
 *   keeps   the types of parameters, outputs and casts that the model itself has
 *   breaks  nothing: values have at least the precision that the model states
 *
 * Sums of 16-bit floats are sums in float32, and no CPU has multiply-adds that begin more often for 16-bit operands
 * while adding in float32 (dot products of bfloat16 apart).  So convolutions, products and everything else that sums
 * or needs an elementary function (NARROW_ALWAYS and NARROW_NEVER, graph.h) take float32 operands, and what follows
 * them stays float32 until the graph says otherwise: the network is that of float32 with weights of 16 bits.  What only
 * moves or compares elements, and arithmetic element by element where the target has it in the dtype, stays narrow
 * while its operands are.
 *
 *   nn.relu(nn.conv2d(x, w))   ->   cast(nn.relu(nn.conv2d(cast(x, float32), cast(w, float32))), float16)
 *
 * Where the target has dot products of bfloat16, a value that such a product reads is rounded to it once, as the model
 * says; ReducePrecision lets the product read that. */
#include "pass/passes.h"
#include "pass/tools.h"

typedef struct Widening {
  PassContext *pc;
  Module *m;
  Arena *arena;
  DevicePlan *plan; /* of a model for several targets */
  const Node *root;
  Map now;         /* old node -> new */
  Map rounded;     /* old nodes that a dot product of bfloat16 may read */
  Map cast;        /* new node -> its cast to another float type */
  int products[2]; /* that were float16, bfloat16 … */
  int dots;        /* … of which so many may be dot products */
} Widening;

static bool is_narrow_dtype(DType t) { return dtype_eq(t, DT_F16) || dtype_eq(t, DT_BF16); }

static bool has_narrow(const Type *ty)
{
  if (!ty) return false;
  if (ty->kind == TY_TENSOR) return is_narrow_dtype(ty->dtype);
  if (ty->kind != TY_TUPLE) return false;
  for (int i = 0; i < ty->nfield; i++)
    if (has_narrow(ty->field[i])) return true;
  return false;
}

/* Is the value wider than the model says, or a part of it? */
static bool is_wide(const Type *now, const Type *was)
{
  if (!now || !was || now->kind != was->kind) return false;
  if (was->kind == TY_TENSOR) return is_narrow_dtype(was->dtype) && dtype_eq(now->dtype, DT_F32);
  if (was->kind != TY_TUPLE) return false;
  for (int i = 0; i < was->nfield; i++)
    if (is_wide(now->field[i], was->field[i])) return true;
  return false;
}

static const Node *cast_to(Widening *w, const Node *n, DType t)
{
  if (dtype_eq(n->type->dtype, t)) return n;
  const Node *have = map_get(&w->cast, n);
  if (have && dtype_eq(have->type->dtype, t)) return have;
  /* what a product reads turned round is still read so: other passes look for that */
  if (dtype_eq(t, DT_F32) && is_call_of(n, "transpose,reshape,squeeze,expand_dims"))
    have = node_call(w->m, n->u.call.op, 1, (const Node *[]){cast_to(w, n->arg[0], t)}, n->u.call.attrs, n->name);
  else have = make_cast(w->m, n, t);
  map_put(w->arena, &w->cast, n, (void *)(uintptr_t)have);
  return have;
}

/* The value with its 16-bit floats in float32 (wide), or in the types that the model says; tuples field by field. */
static const Node *as(Widening *w, const Node *n, const Type *was, bool wide)
{
  if (!has_narrow(was)) return n;
  if (was->kind == TY_TENSOR) return cast_to(w, n, wide ? DT_F32 : was->dtype);
  if (!wide && !is_wide(n->type, was)) return n;
  const Node **field = arena_array(w->arena, const Node *, was->nfield + 1);
  for (int i = 0; i < was->nfield; i++)
    field[i] = as(w, n->kind == N_TUPLE ? n->arg[i] : node_get(w->m, n, i), was->field[i], wide);
  return node_tuple(w->m, was->nfield, field);
}

/* Does the target add and multiply vectors of the dtype without a way through float32? */
static bool computes_in(const Target *t, const Node *n)
{
  if (!target_has(t, CPU_FP16)) return false;
  for (int i = 0; i < n->nargs; i++)
    if (has_narrow(n->arg[i]->type) && !(is_tensor(n->arg[i]) && dtype_eq(n->arg[i]->type->dtype, DT_F16)))
      return false;
  return true;
}

static bool goes_wide(Widening *w, const Node *n)
{
  const OpDef *op = n->u.call.op;
  const Target *t = pass_target_of(w->pc, w->plan, n);
  bool any = has_narrow(n->type);
  bool wide = false;
  for (int i = 0; i < n->nargs; i++) {
    const Node *now = map_get(&w->now, n->arg[i]);
    any |= has_narrow(n->arg[i]->type);
    wide |= is_wide(now->type, n->arg[i]->type);
  }
  if (!any || !n->nargs || !target_is_cpu(t) || (op->flags & (OPF_HOST | OPF_IMPURE))) return false;
  if (w->plan && is_call_of(n, "device_copy,on_device")) return false;
  switch (op->narrow) {
  case NARROW_ALWAYS:
  case NARROW_NEVER: return true;
  case NARROW_FOLLOW:
  case NARROW_UNKNOWN: break;
  }
  return wide || (op->fuse <= FUSE_BROADCAST && !computes_in(t, n));
}

/* Attributes that name the dtype of the result. */
static const void *wide_attrs(Widening *w, const Node *n)
{
  static const char *const name[] = {"out_dtype", "dtype"};
  const void *attrs = n->u.call.attrs;
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    const AttrField *f = call_has(n, name[i]) ? attrs_field(n->u.call.op->attrs, name[i]) : NULL;
    if (!f || f->kind != AT_DTYPE || !is_narrow_dtype(call_dtype(n, name[i]))) continue;
    void *changed = attrs_copy(w->m, n->u.call.op->attrs, attrs);
    attrs_set_dtype(w->m, n->u.call.op->attrs, changed, name[i], DT_F32);
    attrs = changed;
  }
  return attrs;
}

/* A product that dot products of bfloat16 may serve. */
static bool may_dot(Widening *w, const Node *n)
{
  const Target *t = n->kind == N_CALL ? pass_target_of(w->pc, w->plan, n) : NULL;
  return t && is_call_of(n, "nn.conv2d,nn.dense,nn.matmul") && target_is_cpu(t) &&
         target_has_dot(t, target_lanes(t, 32)) && is_tensor(n->arg[0]) && is_tensor(n->arg[1]) &&
         dtype_eq(n->arg[0]->type->dtype, DT_BF16) && dtype_eq(n->arg[1]->type->dtype, DT_BF16);
}

static const Node *convert_call(Widening *w, const Node *n)
{
  bool wide = goes_wide(w, n);
  if (is_call(n, "cast") && is_tensor(n) && is_tensor(n->arg[0])) {
    /* the model's own rounding stays; its widening is what was done already */
    const Node *x = map_get(&w->now, n->arg[0]);
    return is_wide(x->type, n->arg[0]->type) && !is_narrow_dtype(n->type->dtype)
               ? make_cast(w->m, x, n->type->dtype)
               : node_call(w->m, n->u.call.op, 1, (const Node *[]){as(w, x, n->arg[0]->type, false)}, n->u.call.attrs,
                           n->name);
  }
  const Node **arg = arena_array(w->arena, const Node *, n->nargs + 1);
  bool same = true;
  for (int i = 0; i < n->nargs; i++) {
    arg[i] = as(w, map_get(&w->now, n->arg[i]), n->arg[i]->type, wide);
    same &= arg[i] == n->arg[i];
  }
  if (same) return n;
  if (wide && n->u.call.op->narrow == NARROW_ALWAYS && is_tensor(n->arg[0]) &&
      is_narrow_dtype(n->arg[0]->type->dtype)) {
    w->products[dtype_eq(n->arg[0]->type->dtype, DT_BF16)]++;
    w->dots += may_dot(w, n);
  }
  return node_call(w->m, n->u.call.op, n->nargs, arg, wide ? wide_attrs(w, n) : n->u.call.attrs, n->name);
}

static const Node *convert_node(Widening *w, const Node *n)
{
  if (n->kind == N_CALL) return convert_call(w, n);
  const Node **arg = arena_array(w->arena, const Node *, n->nargs + 1);
  bool flows = n->kind == N_TUPLE || n->kind == N_GET;
  bool same = true;
  for (int i = 0; i < n->nargs; i++) {
    const Node *a = map_get(&w->now, n->arg[i]);
    arg[i] = flows ? a : as(w, a, n->arg[i]->type, false);
    same &= arg[i] == n->arg[i];
  }
  return same ? n : node_with_args(w->m, n, arg);
}

/* ---- what the user should know ----------------------------------------------------------------------------- */

static void note(Widening *w, const char *text)
{
  for (int i = 0; i < w->pc->notes.n; i++)
    if (!strcmp(w->pc->notes.v[i], text)) return;
  vec_push(w->pc->arena, &w->pc->notes, text);
}

static void note_products(Widening *w)
{
  const Target *t = pass_target(w->pc);
  Arena *arena = w->pc->arena;
  if (w->products[0] && w->pc->impl.fast_math != FAST_FP16)
    note(w,
         target_has(t, CPU_FP16)
             ? arena_printf(arena,
                            "%d products of float16 are summed in float32, at the speed of a float32 model; "
                            "--fast-math=fp16 lets sums be float16, which is faster on target '%s'",
                            w->products[0], t->text)
             : arena_printf(arena,
                            "%d products of float16 are computed at the speed of a float32 model: target '%s' has no "
                            "arithmetic of float16",
                            w->products[0], t->text));
  if (w->products[1] > w->dots)
    note(w, arena_printf(arena,
                         "%d products of bfloat16 are computed at the speed of a float32 model: target '%s' has no dot "
                         "product of bfloat16 for them",
                         w->products[1] - w->dots, t->text));
}

const Node *pass_widen_precision(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f)) return f;
  Widening w = {.pc = pc, .m = m, .arena = scratch(m->ctx), .root = f};
  const Node **order;
  int n = graph_post_order(w.arena, f, &order);
  bool any = false;
  for (int i = 0; i < n; i++) any |= has_narrow(order[i]->type);
  if (!any) return f;
  w.plan = pass_plan_targets(pc, m, w.arena);
  for (int i = 0; i < n; i++)
    if (may_dot(&w, order[i])) map_put(w.arena, &w.rounded, order[i]->arg[0], NULL);
  for (int i = 0; i < n; i++) {
    const Node *now = convert_node(&w, order[i]);
    if (map_has(&w.rounded, order[i]) && is_wide(now->type, order[i]->type))
      now = make_cast(m, make_cast(m, now, DT_BF16), DT_F32);
    map_put(w.arena, &w.now, order[i], (void *)(uintptr_t)now);
  }
  note_products(&w);
  return map_get(&w.now, f);
}
