/* mixed_precision.c: ToMixedPrecision: compute in float16 or bfloat16 where it is safe.
 *   needs   types
 *   keeps   the graph's shape; the types of parameters
 *   breaks  dtypes of results, unless relay.ToMixedPrecision.keep_orig_output_dtype
 *
 * Each operator says what it bears (NarrowKind, graph.h).  Always: convolutions and products; their operands are
 * cast down.  Follow: what keeps magnitudes; done in the narrow type when every float operand is narrow already or
 * a constant.  Never: what loses too much (exponentials, sums over many elements, normalisations); operands are
 * cast up.  An operator that says nothing is never narrowed; missing_op_mode says how loudly (0 refuses, 1 notes).
 *
 * ReducePrecision (fast math in float16) does the same, but for products that are no faster so. */
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_mixed_precision_options[] = {
  {PO_STR, "mixed_precision_type", "float16", "float16 or bfloat16"},
  {PO_INT, "missing_op_mode", "1",
   "an operator in no list: 0 is refused, 1 stays float32 with a note, 2 stays silently"},
};

typedef struct Mixed {
  PassContext *pc;
  Module *m;
  Arena *arena;
  DType narrow;
  int64_t missing;
  bool faster; /* products only where that is faster: reduced precision on request */
  DevicePlan *plan;
  Map now;   /* old node -> new */
  Map cast;  /* new node -> its cast to the other float type */
  Map fixed; /* old nodes made of constants alone: a bias brought into shape */
} Mixed;

static bool is_f32(const Type *ty) { return ty && ty->kind == TY_TENSOR && dtype_eq(ty->dtype, DT_F32); }

static const Node *cast_to(Mixed *x, const Node *n, DType t)
{
  const Node *have = map_get(&x->cast, n);
  if (have && dtype_eq(have->type->dtype, t)) return have;
  have = make_cast(x->m, n, t);
  map_put(x->arena, &x->cast, n, (void *)(uintptr_t)have);
  return have;
}

/* The value with its float tensors in t (narrow or float32); tuples field by field. */
static const Node *as(Mixed *x, const Node *n, const Type *was, DType t)
{
  if (was && was->kind == TY_TUPLE) {
    const Node **field = arena_array(x->arena, const Node *, was->nfield + 1);
    for (int i = 0; i < was->nfield; i++) field[i] = as(x, node_get(x->m, n, i), was->field[i], t);
    return type_equal(n->type, was) && dtype_eq(t, DT_F32) ? n : node_tuple(x->m, was->nfield, field);
  }
  return is_f32(was) ? cast_to(x, n, t) : n;
}

static bool has_narrow(const Mixed *x, const Type *ty)
{
  if (ty->kind == TY_TENSOR) return dtype_eq(ty->dtype, x->narrow);
  for (int i = 0; i < ty->nfield; i++)
    if (has_narrow(x, ty->field[i])) return true;
  return false;
}

/* Some float operand is narrow, and the others are constants or narrow too. */
static bool can_follow(const Mixed *x, const Node *old)
{
  bool any = false;
  for (int i = 0; i < old->nargs; i++) {
    const Node *now = map_get(&x->now, old->arg[i]);
    bool tuple = now->kind == N_TUPLE;
    if (map_has(&x->fixed, old->arg[i])) continue;
    for (int k = 0; k < (tuple ? now->nargs : 1); k++) {
      const Node *part = tuple ? now->arg[k] : now;
      if (has_narrow(x, part->type)) any = true;
      else if (is_f32(part->type) && part->kind != N_CONST) return false;
    }
  }
  return any;
}

/* Is the value known when compiling?  Its operands have been asked already. */
static bool is_fixed(const Mixed *x, const Node *n)
{
  if (n->kind == N_CONST) return true;
  if (n->kind != N_CALL || n->nargs == 0 || (n->u.call.op->flags & (OPF_HOST | OPF_IMPURE))) return false;
  for (int i = 0; i < n->nargs; i++)
    if (!map_has(&x->fixed, n->arg[i])) return false;
  return true;
}

static bool goes_narrow(Mixed *x, const Node *n)
{
  const OpDef *op = n->u.call.op;
  switch (op->narrow) {
  case NARROW_ALWAYS: return true;
  case NARROW_FOLLOW: return can_follow(x, n);
  case NARROW_NEVER: return false;
  case NARROW_UNKNOWN: break;
  }
  if (op->flags & (OPF_HOST | OPF_IMPURE)) return false;
  if (x->missing == 0)
    raise(x->m->ctx, ERR_UNSUPPORTED, NOWHERE,
          "ToMixedPrecision: operator '%s' is in no list; missing_op_mode=1 leaves it in float32", op->name);
  if (x->missing == 1)
    vec_push(
        x->pc->arena, &x->pc->notes,
        arena_printf(x->pc->arena, "ToMixedPrecision: operator '%s' is in no list and stays in float32", op->name));
  return false;
}

static const Node *call_in(Mixed *x, const Node *n, DType t)
{
  const Node **arg = arena_array(x->arena, const Node *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) arg[i] = as(x, map_get(&x->now, n->arg[i]), n->arg[i]->type, t);
  const void *attrs = n->u.call.attrs;
  if (dtype_eq(t, x->narrow) && call_has(n, "out_dtype") && dtype_eq(call_dtype(n, "out_dtype"), DT_F32)) {
    void *changed = call_attrs(x->m, n);
    attrs_set_dtype(x->m, n->u.call.op->attrs, changed, "out_dtype", t);
    attrs = changed;
  }
  return node_call(x->m, n->u.call.op, n->nargs, arg, attrs, n->name);
}

static const Node *convert_call(Mixed *x, const Node *n)
{
  const Node *now = call_in(x, n, goes_narrow(x, n) ? x->narrow : DT_F32);
  if (!x->faster || n->u.call.op->narrow != NARROW_ALWAYS || !is_f32(n->type) || is_f32(now->type)) return now;
  const Node *wide = call_in(x, n, DT_F32);
  return impl_prefers_half(x->m, pass_target_of(x->pc, x->plan, n), &x->pc->impl, wide, now) ? now : wide;
}

static const Node *convert_node(Mixed *x, const Node *n, const Node *root, bool keep)
{
  if (n->kind == N_CALL) return convert_call(x, n);
  const Node **arg = arena_array(x->arena, const Node *, n->nargs + 1);
  bool flows = n->kind == N_TUPLE || n->kind == N_GET || (n == root && !keep);
  for (int i = 0; i < n->nargs; i++) {
    const Node *a = map_get(&x->now, n->arg[i]);
    arg[i] = flows ? a : as(x, a, n->arg[i]->type, DT_F32);
  }
  if (n->kind == N_FUNC && n == root && !keep)
    return node_func(x->m, fn_nparams(n), arg, arg[n->nargs - 1], NULL, &n->u.func->attrs);
  return node_with_args(x->m, n, arg);
}

static const Node *convert_all(Mixed x, const Node *f, bool keep_outputs)
{
  const Node **order;
  int n = graph_post_order(x.arena, f, &order);
  for (int i = 0; i < n; i++) {
    if (is_fixed(&x, order[i])) map_put(x.arena, &x.fixed, order[i], NULL);
    map_put(x.arena, &x.now, order[i], (void *)(uintptr_t)convert_node(&x, order[i], f, keep_outputs));
  }
  return map_get(&x.now, f);
}

const Node *pass_mixed_precision_fast(PassContext *pc, Module *m, const Node *f)
{
  Mixed x = {.pc = pc, .m = m, .arena = scratch(m->ctx), .narrow = DT_F16, .missing = 2, .faster = true};
  x.plan = pass_plan_targets(pc, m, x.arena);
  return convert_all(x, f, true);
}

const Node *pass_mixed_precision(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  DType narrow;
  const char *type = pass_option(env, pass_mixed_precision_options, 0);
  if (!dtype_parse(type, &narrow) || narrow.bits != 16 || !dtype_is_float(narrow))
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "ToMixedPrecision: mixed_precision_type is float16 or bfloat16, not '%s'",
          type);
  if (is_primitive(f)) return f;
  bool keep = pass_config_int(pc, "relay.ToMixedPrecision.keep_orig_output_dtype");
  int64_t missing = pass_option_int(env, pass_mixed_precision_options, 1);
  return convert_all((Mixed){.pc = pc, .m = m, .arena = scratch(m->ctx), .narrow = narrow, .missing = missing}, f,
                     keep);
}
