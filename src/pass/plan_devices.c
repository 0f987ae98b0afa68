/* plan_devices.c: PlanDevices: every node gets a device, and values that are wanted on another one are copied.
 *   needs   types
 *   keeps   types, names
 *   breaks  on_device: afterwards there is device_copy alone, and functions say where their parameters and
 *           result are (param_virtual_devices, result_virtual_device)
 *
 *   subtract(on_device(add(a, b), "cpu(1)"), c)    with cpu(0) as the fallback becomes
 *   subtract(device_copy(add(a, b), "cpu(1)", "cpu(0)"), c)
 *
 * Running it again on its own result changes nothing; after other passes it puts back what they left
 * out (a computation over constants that two devices share is made once and copied). */
#include "pass/devices.h"

#include "pass/passes.h"

const PassOption pass_plan_devices_options[] = {
  {PO_STR, "targets", "", "targets as texts with ';' between them; none: the context's"},
};

typedef struct Copies {
  PassContext *pc;
  DevicePlan *plan;
  const DeviceList *list;
  Map made; /* node -> its copies, by device */
} Copies;

static const Node *copied(Copies *c, GraphRewriter *rw, const Node *x, int from, int to)
{
  const Node **made = map_get(&c->made, x);
  if (!made) map_put(rw->arena, &c->made, x, made = arena_array(rw->arena, const Node *, c->list->n));
  if (made[to]) return made[to];
  const OpDef *op = opdef_get(rw->m->ctx, "device_copy");
  void *attrs = attrs_new(rw->m, op->attrs);
  attrs_set_str(rw->m, op->attrs, attrs, "src_virtual_device", pass_device_text(rw->arena, c->list, from));
  attrs_set_str(rw->m, op->attrs, attrs, "dst_virtual_device", pass_device_text(rw->arena, c->list, to));
  return made[to] = node_call(rw->m, op, 1, &x, attrs, NULL);
}

/* Kernels have constants on their own device; anything else finds them on the host. */
static bool is_kernel(const Node *n)
{
  if (n->kind == N_CALL) return !(n->u.call.op->flags & OPF_HOST);
  return n->kind == N_CALL_TIR || (n->kind == N_APPLY && is_primitive(n->arg[0]));
}

/* The value of `old`, which is `now`, where the user wants it. */
static const Node *moved(Copies *c, GraphRewriter *rw, const Node *user, const Node *old, const Node *now, int to)
{
  int from = now->kind != N_CONST ? pass_device_of(c->plan, old) : is_kernel(user) ? -1 : 0;
  if (to < 0 || from < 0 || from == to || now->kind == N_FUNC) return now;
  return copied(c, rw, now, from, to);
}

/* Functions say where their parameters and their result are, so that it stays so. */
static const Node *told(Copies *c, GraphRewriter *rw, const Node *old, const Node *now)
{
  if (c->list->n == 1 || is_primitive(now)) return now;
  Annots attrs = {0};
  const Annots *before = &now->u.func->attrs;
  for (int i = 0; i < before->n; i++) annots_set(rw->m->arena, &attrs, before->v[i].key, before->v[i].value);
  Text params = text_new(rw->arena);
  for (int i = 0; i < fn_nparams(old); i++) {
    int device = pass_device_of(c->plan, old->arg[i]);
    text_printf(&params, "%s%s", i ? "," : "", pass_device_text(rw->arena, c->list, device < 0 ? 0 : device));
  }
  annots_set(rw->m->arena, &attrs, "param_virtual_devices", expr_str(rw->m, text_str(&params)));
  annots_set(rw->m->arena, &attrs, "result_virtual_device",
             expr_str(rw->m, pass_device_text(rw->arena, c->list, pass_device_of(c->plan, old))));
  return node_func(rw->m, fn_nparams(now), now->arg, fn_body(now), now->u.func->ret, &attrs);
}

static const Node *place(GraphRewriter *rw, const Node *old, const Node *now)
{
  Copies *c = rw->env;
  if (is_call_of(old, "on_device,device_copy"))
    return now->arg[0]->kind == N_CONST /* whoever wants it elsewhere copies it */
               ? now->arg[0]
               : moved(c, rw, old, old->arg[0], now->arg[0], pass_device_of(c->plan, old));
  const Node **arg = arena_array(rw->arena, const Node *, old->nargs + 1);
  bool same = true;
  for (int i = 0; i < old->nargs; i++) {
    arg[i] = moved(c, rw, old, old->arg[i], now->arg[i], devices_wanted(c->plan, devices_edge(c->plan, old, i)));
    same &= arg[i] == now->arg[i];
  }
  const Node *made = same ? now : node_with_args(rw->m, now, arg);
  return made->kind == N_FUNC ? told(c, rw, old, made) : made;
}

/* Is there anything to do?  With one device only annotations want to be read. */
static bool speaks_of_devices(Arena *arena, Module *m)
{
  for (int g = 0; g < m->globals.n; g++) {
    if (m->globals.v[g].kind != GLOBAL_GRAPH) continue;
    const Node **order;
    int n = groups_order(arena, m->globals.v[g].func, &order);
    for (int i = 0; i < n; i++)
      if (is_call_of(order[i], "on_device,device_copy")) return true;
  }
  return false;
}

static const DeviceList *devices_said(PassContext *pc, const char *texts)
{
  PassContext own = *pc;
  own.targets.n = own.targets.cap = 0;
  own.targets.v = NULL;
  while (*texts) {
    size_t n = strcspn(texts, ";");
    vec_push(scratch(pc->ctx), &own.targets, target_parse(pc->ctx, arena_strndup(scratch(pc->ctx), texts, n)));
    texts += n + (texts[n] == ';');
  }
  return pass_devices(&own, scratch(pc->ctx));
}

void pass_plan_devices(PassContext *pc, Module *m, void *env)
{
  Arena *arena = scratch(m->ctx);
  const char *texts = pass_option(env, pass_plan_devices_options, 0);
  const DeviceList *list = *texts ? devices_said(pc, texts) : pass_devices(pc, arena);
  if (list->n == 1 && !speaks_of_devices(arena, m)) return;
  Copies c = {.pc = pc, .plan = pass_device_plan(arena, m, list), .list = list};
  Vec(const Node *) out = {0};
  for (int g = 0; g < m->globals.n; g++) {
    const Global *global = &m->globals.v[g];
    vec_push(arena, &out, global->kind == GLOBAL_GRAPH ? retype(m, rewrite(m, global->func, place, &c)) : NULL);
  }
  for (int g = 0; g < m->globals.n; g++)
    if (out.v[g]) m->globals.v[g].func = (void *)(uintptr_t)out.v[g];
}
