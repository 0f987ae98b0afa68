/* reduce_precision.c: ReducePrecision: what the config lathe.fast_math asks for, and models in bfloat16.
 *   needs   types, folded constants
 *   keeps   the types of parameters and outputs
 *   breaks  values, within what docs/performance.md states
 *
 * bf16: a product that is faster over pairs of bfloat16, or fours (impl_prefers_pairs), gets its operands rounded;
 * its result is float32, and so is all other arithmetic.  A value that such a product reads is
 * kept in bfloat16: its other readers widen it again, so that it is stored once, in half the memory.
 *
 * none: the same for products whose operands are bfloat16 anyway, because the model says so (WidenPrecision has left
 * them widened).
 *
 * fp16: ToMixedPrecision to float16, on targets that compute in it, of what is faster so. */
#include "pass/passes.h"
#include "pass/tools.h"

typedef struct Rounding {
  Module *m;
  Arena *arena;
  PassContext *pc;
  DevicePlan *plan; /* of a model for several targets */
  const ImplConfig *config;
  const Node *root;
  Map now;    /* old node -> new */
  Map stored; /* old nodes that some product reads in bfloat16 */
  Map narrow; /* new node -> rounded to bfloat16 */
} Rounding;

/* A bfloat16 that was widened. */
static bool is_widened(const Node *n)
{
  return is_call(n, "cast") && is_tensor(n->arg[0]) && dtype_eq(n->arg[0]->type->dtype, DT_BF16) &&
         dtype_eq(n->type->dtype, DT_F32);
}

/* Does rounding it to bfloat16 change nothing? */
static bool is_bfloat16(const Node *n)
{
  if (n->kind != N_CONST) return is_widened(n);
  const ConstData *d = n->u.data;
  const char *bytes = d->data;
  if (!dtype_eq(d->dtype, DT_F32)) return false;
  for (size_t i = 0; i < d->bytes; i += 4) {
    uint32_t word;
    memcpy(&word, bytes + i, 4);
    if (word & 0xffff) return false;
  }
  return true;
}

static bool takes_pairs(Rounding *r, const Node *n)
{
  if (n->kind != N_CALL || n->nargs != 2 || !n->type) return false;
  if (r->config->fast_math == FAST_NONE && !(is_widened(n->arg[0]) && is_bfloat16(n->arg[1]))) return false;
  return impl_prefers_pairs(r->m->ctx, pass_target_of(r->pc, r->plan, n), r->config, n);
}

static const Node *rounded(Rounding *r, const Node *n)
{
  if (is_widened(n)) return n->arg[0];
  const Node *have = map_get(&r->narrow, n);
  if (have) return have;
  have = make_cast(r->m, n, DT_BF16);
  map_put(r->arena, &r->narrow, n, (void *)(uintptr_t)have);
  return have;
}

static const Node *product_of_pairs(Rounding *r, const Node *n)
{
  const Node *arg[2];
  for (int i = 0; i < 2; i++) arg[i] = rounded(r, map_get(&r->now, n->arg[i]));
  void *attrs = call_attrs(r->m, n);
  attrs_set_dtype(r->m, n->u.call.op->attrs, attrs, "out_dtype", DT_F32);
  return node_call(r->m, n->u.call.op, 2, arg, attrs, n->name);
}

/* Outputs of the function are as they were computed. */
static const Node *as_read_by(Rounding *r, const Node *user, const Node *old)
{
  const Node *now = map_get(&r->now, old);
  bool output = user == r->root || (user->kind == N_TUPLE && user == r->root->arg[r->root->nargs - 1]);
  return output || !map_has(&r->stored, old) ? now : make_cast(r->m, rounded(r, now), DT_F32);
}

static const Node *convert(Rounding *r, const Node *n)
{
  if (takes_pairs(r, n)) return product_of_pairs(r, n);
  const Node **arg = arena_array(r->arena, const Node *, n->nargs + 1);
  bool same = true;
  for (int i = 0; i < n->nargs; i++) {
    arg[i] = as_read_by(r, n, n->arg[i]);
    same &= arg[i] == n->arg[i];
  }
  return same ? n : node_with_args(r->m, n, arg);
}

/* Says once that the target computes such products by converting. */
static void note_slow_target(PassContext *pc, const Target *t)
{
  static const char start[] = "no instruction for products of bfloat16";
  if (target_has_dot(t, target_lanes(t, 32))) return;
  for (int i = 0; i < pc->notes.n; i++)
    if (str_starts(pc->notes.v[i], start)) return;
  vec_push(pc->arena, &pc->notes,
           arena_printf(pc->arena,
                        "%s (avx512bf16 on x86-64, bf16 on AArch64) in target '%s': they are computed in float32, "
                        "which is not faster",
                        start, t->text));
}

/* Says how many products are left in float32 because the target's instruction for pairs is slow. */
static void note_slow_pairs(PassContext *pc, const Target *t, int pairs, int products)
{
  if (!target_has_dot(t, target_lanes(t, 32)) || !t->core.dot_bits || 2 * t->core.dot_bits > t->core.fma_bits ||
      pairs == products)
    return;
  vec_push(pc->arena, &pc->notes,
           arena_printf(pc->arena,
                        "target '%s' begins products of bfloat16 pairs half as often as multiply-adds: %d of %d "
                        "products stay float32, which is as fast",
                        t->text, products - pairs, products));
}

static const Node *to_bfloat16(PassContext *pc, Module *m, const Node *f)
{
  Rounding r = {.m = m, .arena = scratch(m->ctx), .pc = pc, .config = &pc->impl, .root = f};
  const DeviceList *devices = pass_devices(pc, r.arena);
  const Target *host = pass_target(pc);
  bool asked = pc->impl.fast_math == FAST_BF16;
  for (int i = 0; i < devices->n && asked; i++)
    if (target_is_gpu(devices->v[i].target))
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "fast math bf16 is made for CPUs; target '%s' is a GPU",
            devices->v[i].target->text);
  r.plan = pass_plan_targets(pc, m, r.arena);
  const Node **order;
  int n = graph_post_order(r.arena, f, &order);
  int pairs = 0;
  int products = 0;
  for (int i = 0; i < n; i++) {
    products += is_call_of(order[i], "nn.conv2d,nn.dense,nn.matmul");
    if (!takes_pairs(&r, order[i])) continue;
    pairs++;
    if (order[i]->arg[0]->kind == N_CALL) map_put(r.arena, &r.stored, order[i]->arg[0], NULL);
  }
  for (int i = 0; i < n; i++) map_put(r.arena, &r.now, order[i], (void *)(uintptr_t)convert(&r, order[i]));
  if (asked) note_slow_target(pc, host);
  if (asked) note_slow_pairs(pc, host, pairs, products);
  return map_get(&r.now, f);
}

static const Node *to_float16(PassContext *pc, Module *m, const Node *f)
{
  const DeviceList *devices = pass_devices(pc, scratch(m->ctx));
  for (int i = 0; i < devices->n; i++)
    if (!target_has(devices->v[i].target, CPU_FP16))
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "fast math fp16 needs float16 arithmetic, which target '%s' lacks (AArch64 has it with -mattr=+fullfp16 or "
            "-mcpu=neoverse-n1); bf16 runs there",
            devices->v[i].target->text);
  return pass_mixed_precision_fast(pc, m, f);
}

static bool has_widened(Module *m, const Node *f)
{
  const Node **order;
  int n = graph_post_order(scratch(m->ctx), f, &order);
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_CALL && is_widened(order[i])) return true;
  return false;
}

const Node *pass_reduce_precision(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f)) return f;
  switch (pc->impl.fast_math) {
  case FAST_NONE: return has_widened(m, f) ? to_bfloat16(pc, m, f) : f;
  case FAST_BF16: return to_bfloat16(pc, m, f);
  case FAST_FP16: return to_float16(pc, m, f);
  }
  return f;
}
