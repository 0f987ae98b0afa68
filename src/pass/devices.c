/* devices.c: which device each node is on.
 *
 * Nodes that must be on one device form a class (union-find over nodes; of a function its parameters, its
 * result, and every call of it).  Devices come from
 *   on_device, device_copy, and what functions say of their parameters and result
 *   the executor: conditions, sizes read from tensors, sequences and strings are on the host; so are
 *   the small integer calls that lead there
 * and then spread over the edges of the graph, in the order of the program, as long as nothing says
 * otherwise; classes that no device reached are on the fallback.  Where an edge joins two devices a
 * copy belongs (plan_devices.c).  An edge from or to a node of the host does not spread: a network stays where it is
 * although its sizes are read. */
#include "pass/devices.h"

enum { SMALL = 256 }; /* elements of a value that sizes are computed from */

/* ---- the list -------------------------------------------------------------------------------- */

const char *pass_device_text(Arena *arena, const DeviceList *l, int device)
{
  return target_device_text(arena, l->v[device].type, l->v[device].id);
}

static int host_target(int n, const Target *const *t)
{
  for (int i = 0; i < n; i++)
    if (target_is_cpu(t[i])) return i;
  return -1;
}

static int fallback_device(PassContext *pc, const DeviceList *l, int given)
{
  const char *said = strmap_get(&pc->config, "relay.fallback_device_type");
  int type = said ? (int)pass_config_int(pc, "relay.fallback_device_type") : 0;
  for (int i = 0; said && i < l->n; i++)
    if (l->v[i].type == type) return i;
  if (said)
    raise(pc->ctx, ERR_ARGUMENT, NOWHERE,
          "relay.fallback_device_type is %d, and no target is for a device of that type", type);
  return given == 1 ? l->n - 1 : 0;
}

const DeviceList *pass_devices(PassContext *pc, Arena *arena)
{
  const Target *only = pc->targets.n ? NULL : pass_target(pc);
  int n = only ? 1 : pc->targets.n;
  const Target *const *t = only ? &only : pc->targets.v;
  int host = host_target(n, t);
  DeviceList *l = arena_new_of(arena, DeviceList);
  VirtualDevice *v = arena_array(arena, VirtualDevice, n + 1);
  const Target *own = host >= 0 ? t[host] : t[0]->host ? t[0]->host : target_host(pc->ctx);
  v[l->n++] = (VirtualDevice){own, own->device.type, 0};
  for (int i = 0; i < n; i++) {
    int id = 0;
    for (int k = 0; k < i; k++) id += t[k]->device.type == t[i]->device.type;
    if (i == host) v[0].id = id;
    else v[l->n++] = (VirtualDevice){t[i], t[i]->device.type, id};
  }
  l->v = v;
  l->fallback = fallback_device(pc, l, n);
  return l;
}

int devices_find(Ctx *ctx, const DeviceList *l, const char *text, const char *what)
{
  int type, id;
  if (!target_device_parse(text, &type, &id))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "%s: '%s' is no device; a device is named as in \"cpu(0)\"", what, text);
  Text known = text_new(scratch(ctx));
  for (int i = 0; i < l->n; i++) {
    if (l->v[i].type == type && l->v[i].id == id) return i;
    text_printf(&known, "%s%s (%s)", i ? ", " : "", pass_device_text(scratch(ctx), l, i), l->v[i].target->text);
  }
  raise(ctx, ERR_ARGUMENT, NOWHERE, "%s: no target is given for %s; the targets are for %s", what,
        target_device_text(scratch(ctx), type, id), text_str(&known));
}

/* ---- classes --------------------------------------------------------------------------------- */

typedef struct Domain {
  int up, device; /* device of a root; -1: open */
} Domain;

struct DevicePlan {
  Module *m;
  Ctx *ctx;
  Arena *arena;
  const DeviceList *list;
  Map index; /* Node* -> number + 1 */
  Vec(Domain) domain;
  Map bound;              /* variable -> what its let binds it to */
  Map as_value;           /* functions that are values too: who calls them is not known */
  Map host;               /* nodes that are better on the host … */
  Vec(const Node *) must; /* … and those that have to be there */
};

static bool has_place(const Node *n)
{
  switch (n->kind) {
  case N_CONST:
  case N_GLOBAL:
  case N_CTOR:
  case N_OP: return false;
  case N_VAR:
  case N_CALL:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_MATCH:
  case N_CALL_TIR: return !n->type || n->type->kind != TY_FUNC || n->kind == N_FUNC;
  }
  return false;
}

static int root_of(DevicePlan *p, int i)
{
  while (p->domain.v[i].up != i) i = p->domain.v[i].up = p->domain.v[p->domain.v[i].up].up;
  return i;
}

static int class_of(DevicePlan *p, const Node *n)
{
  int i = (int)(intptr_t)map_get(&p->index, n) - 1;
  if (i >= 0) return root_of(p, i);
  vec_push(p->arena, &p->domain, ((Domain){p->domain.n, -1}));
  map_put(p->arena, &p->index, n, (void *)(intptr_t)p->domain.n);
  return p->domain.n - 1;
}

/* One class, unless both have a device of their own. */
static void join(DevicePlan *p, const Node *a, const Node *b)
{
  if (!has_place(a) || !has_place(b)) return;
  int x = class_of(p, a);
  int y = class_of(p, b);
  Domain *d = p->domain.v;
  if (x == y || (d[x].device >= 0 && d[y].device >= 0 && d[x].device != d[y].device)) return;
  if (d[x].device < 0) d[x].device = d[y].device;
  d[y].up = x;
}

/* The first that says a device is heard. */
static void set_device(DevicePlan *p, const Node *n, int device)
{
  if (!has_place(n)) return;
  int class = class_of(p, n);
  if (p->domain.v[class].device < 0) p->domain.v[class].device = device;
}

/* ---- calls ------------------------------------------------------------------------------------- */

const Node *devices_callee(DevicePlan *p, const Node *callee)
{
  for (const Node *b; callee->kind == N_VAR && (b = map_get(&p->bound, callee));) callee = b;
  if (callee->kind == N_GLOBAL) {
    Global *g = module_get(p->m, callee->u.global);
    return g && g->kind == GLOBAL_GRAPH ? g->func : NULL;
  }
  return callee->kind == N_FUNC ? callee : NULL;
}

static bool is_host_call(const Node *n)
{
  return n->kind == N_CALL && !is_call_of(n, "on_device,device_copy") &&
         (n->u.call.op->flags & OPF_HOST || is_call_of(n, "shape_of,ndarray_size"));
}

static bool on_host(DevicePlan *p, const Node *n) { return map_has(&p->host, n); }

/* What argument i of n wants of the device that its value is on. */
DeviceEdge devices_edge(DevicePlan *p, const Node *n, int i)
{
  DeviceEdge free = {EDGE_FREE, NULL};
  DeviceEdge same = {EDGE_SAME, n};
  DeviceEdge host = {EDGE_HOST, NULL};
  switch (n->kind) {
  case N_CALL:
    if (is_call(n, "device_copy")) return free;
    if (is_call(n, "on_device")) return call_int(n, "constrain_result") && call_int(n, "constrain_body") ? same : free;
    return same;
  case N_APPLY: {
    if (i == 0) return free;
    const Node *f = devices_callee(p, n->arg[0]);
    if (f && !is_primitive(f)) return (DeviceEdge){EDGE_SAME, f->arg[i - 1]};
    return f || n->arg[0]->kind == N_CTOR ? same : host;
  }
  case N_IF: return i == 0 ? host : same;
  case N_MATCH: return i == 0 ? free : same;
  case N_FUNC: return i == fn_nparams(n) && !is_primitive(n) ? same : free;
  case N_LET: return i == 1 ? (DeviceEdge){EDGE_SAME, n->arg[0]} : free;
  case N_TUPLE:
  case N_GET:
  case N_CALL_TIR: return same;
  case N_VAR:
  case N_CONST:
  case N_GLOBAL:
  case N_CTOR:
  case N_OP: break;
  }
  return free;
}

/* ---- what the host must have -------------------------------------------------------------------- */

static bool is_small_integer(const Node *n)
{
  return n->kind == N_CALL && is_tensor(n) && (dtype_is_int(n->type->dtype) || dtype_is_bool(n->type->dtype)) &&
         type_is_static(n->type) && type_known_elements(n->type) <= SMALL && !is_call_of(n, "on_device,device_copy");
}

/* The value is read by the executor: what it is computed from, as long as that is small, is better there too. */
static void need_on_host(DevicePlan *p, const Node *n)
{
  Vec(const Node *) stack = {0};
  vec_push(p->arena, &stack, n);
  while (stack.n) {
    const Node *at = stack.v[--stack.n];
    if (!has_place(at) || on_host(p, at)) continue;
    map_put(p->arena, &p->host, at, (void *)(uintptr_t)at);
    set_device(p, at, 0);
    if (at->kind != N_CALL || is_call_of(at, "shape_of,ndarray_size,device_copy,on_device")) continue;
    for (int i = 0; i < at->nargs; i++)
      if (is_small_integer(at->arg[i])) vec_push(p->arena, &stack, at->arg[i]);
  }
}

static void must_be_on_host(DevicePlan *p, const Node *n)
{
  need_on_host(p, n);
  vec_push(p->arena, &p->must, n);
}

static void check_host(DevicePlan *p)
{
  for (int i = 0; i < p->must.n; i++) {
    const Node *n = p->must.v[i];
    int device = pass_device_of(p, n);
    if (device > 0)
      raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
            "%s%s is on %s, but the executor reads it: sizes, sequences and strings are on the host, %s",
            n->kind == N_CALL ? n->u.call.op->name : "a value ", n->kind != N_CALL && n->name ? n->name : "",
            pass_device_text(scratch(p->ctx), p->list, device), pass_device_text(scratch(p->ctx), p->list, 0));
  }
}

/* Sizes that are elements of computed tensors. */
static void need_sizes(DevicePlan *p, const Type *ty)
{
  for (int i = 0; i < ty->nfield; i++) need_sizes(p, ty->field[i]);
  for (int d = 0; (ty->kind == TY_TENSOR || ty->kind == TY_SHAPE) && d < ty->ndim; d++) {
    const Var **vars;
    int n = ty->shape[d]->kind == E_INT ? 0 : expr_free_vars(p->arena, ty->shape[d], &vars);
    for (int k = 0; k < n; k++) {
      const Node *source;
      int element;
      if (graph_value_source(p->m, vars[k], &source, &element)) must_be_on_host(p, source);
    }
  }
}

/* ---- what nodes say ------------------------------------------------------------------------------ */

static void bind_pattern(DevicePlan *p, const Pattern *pattern, const Node *value)
{
  if (pattern->kind == PAT_VAR) join(p, pattern->var, value);
  for (int i = 0; i < pattern->n; i++) bind_pattern(p, pattern->sub[i], value);
}

/* What is one value under two names. */
static void same_value(DevicePlan *p, const Node *n)
{
  const Node *f;
  switch (n->kind) {
  case N_LET:
    join(p, n->arg[0], n->arg[1]);
    join(p, n, n->arg[2]);
    return;
  case N_MATCH:
    for (int i = 0; i < n->u.match.n; i++) bind_pattern(p, n->u.match.clause[i], n->arg[0]);
    return;
  case N_APPLY:
    f = devices_callee(p, n->arg[0]);
    if (f && !is_primitive(f)) join(p, n, f);
    return;
  case N_VAR:
  case N_CONST:
  case N_CALL:
  case N_TUPLE:
  case N_GET:
  case N_IF:
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR:
  case N_CALL_TIR:
  case N_OP: return;
  }
}

/* A function that is a value is called with values of the host, and gives one. */
static void function_says(DevicePlan *p, const Node *f)
{
  const Expr *params = annots_get(&f->u.func->attrs, "param_virtual_devices");
  const Expr *result = annots_get(&f->u.func->attrs, "result_virtual_device");
  int n = fn_nparams(f);
  if (params && params->kind == E_STR) {
    const char *text = params->u.str;
    int i = 0;
    for (; *text && i < n; i++) {
      size_t len = strcspn(text, ",");
      set_device(p, f->arg[i],
                 devices_find(p->ctx, p->list, arena_strndup(p->arena, text, len), "param_virtual_devices"));
      text += len + (text[len] == ',');
    }
    if (i != n || *text)
      raise(p->ctx, ERR_ARGUMENT, NOWHERE,
            "param_virtual_devices '%s' are not as many as the function's parameters, %d", params->u.str, n);
  }
  if (result && result->kind == E_STR)
    set_device(p, f, devices_find(p->ctx, p->list, result->u.str, "result_virtual_device"));
  if (!map_has(&p->as_value, f)) return;
  for (int i = 0; i < n; i++) set_device(p, f->arg[i], 0);
  set_device(p, f, 0);
}

static void annotated(DevicePlan *p, const Node *n, int device)
{
  const Node *body = n->arg[0];
  if (!has_place(body)) return;
  set_device(p, body, device);
  int class = class_of(p, body);
  int is = p->domain.v[class].device;
  if (is != device && body->kind == N_CALL && !is_call_of(body, "on_device,device_copy"))
    raise(p->ctx, ERR_ARGUMENT, NOWHERE, "on_device: %s%s%s is to be computed on %s, and cannot be on %s as well",
          body->u.call.op->name, body->name ? " " : "", body->name ? body->name : "",
          pass_device_text(scratch(p->ctx), p->list, is), pass_device_text(scratch(p->ctx), p->list, device));
}

static void node_says(DevicePlan *p, const Node *n)
{
  if (n->type && n->kind != N_FUNC) need_sizes(p, n->type);
  if (is_host_call(n)) must_be_on_host(p, n);
  if (n->kind == N_IF) need_on_host(p, n->arg[0]);
  if (n->kind == N_APPLY && n->arg[0]->kind != N_CTOR && !devices_callee(p, n->arg[0])) must_be_on_host(p, n);
  if (n->kind == N_FUNC && !is_primitive(n)) function_says(p, n);
  if (is_call(n, "on_device")) {
    int device = devices_find(p->ctx, p->list, call_str(n, "virtual_device"), "on_device");
    if (call_int(n, "constrain_body")) annotated(p, n, device);
    if (call_int(n, "constrain_result")) set_device(p, n, device);
  }
  if (is_call(n, "device_copy")) {
    set_device(p, n->arg[0], devices_find(p->ctx, p->list, call_str(n, "src_virtual_device"), "device_copy"));
    set_device(p, n, devices_find(p->ctx, p->list, call_str(n, "dst_virtual_device"), "device_copy"));
  }
}

static void spread(DevicePlan *p, const Node *n)
{
  for (int i = 0; i < n->nargs; i++) {
    DeviceEdge e = devices_edge(p, n, i);
    bool value = n->arg[i]->kind != N_FUNC && !on_host(p, n->arg[i]) && !on_host(p, n);
    if (e.kind == EDGE_SAME && value) join(p, n->arg[i], e.with);
  }
}

/* ---- the plan -------------------------------------------------------------------------------------- */

static void find_names(DevicePlan *p, const Node *n)
{
  if (n->kind == N_LET) map_put(p->arena, &p->bound, n->arg[0], (void *)(uintptr_t)n->arg[1]);
}

/* Functions in other places than that of the callee. */
static void find_values(DevicePlan *p, const Node *n)
{
  if (n->kind == N_FUNC && is_primitive(n)) return;
  for (int i = n->kind == N_APPLY ? 1 : 0; i < n->nargs; i++) {
    if (n->kind == N_LET && i < 2) continue;
    const Node *f = n->arg[i]->type && n->arg[i]->type->kind == TY_FUNC ? devices_callee(p, n->arg[i]) : NULL;
    if (f) map_put(p->arena, &p->as_value, f, (void *)(uintptr_t)f);
  }
}

typedef void (*Step)(DevicePlan *, const Node *);

DevicePlan *pass_device_plan(Arena *arena, Module *m, const DeviceList *list)
{
  static const Step steps[] = {find_names, find_values, same_value, node_says, spread};
  DevicePlan *p = arena_new_of(arena, DevicePlan);
  *p = (DevicePlan){.m = m, .ctx = m->ctx, .arena = arena, .list = list};
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
    for (int g = 0; g < m->globals.n; g++) {
      if (m->globals.v[g].kind != GLOBAL_GRAPH) continue;
      const Node **order;
      int n = groups_order(arena, m->globals.v[g].func, &order);
      for (int i = 0; i < n; i++) steps[s](p, order[i]);
    }
  check_host(p);
  return p;
}

int pass_device_of(DevicePlan *p, const Node *n)
{
  if (!has_place(n)) return -1;
  int i = (int)(intptr_t)map_get(&p->index, n) - 1;
  if (i < 0) return 0;
  int device = p->domain.v[root_of(p, i)].device;
  return device < 0 ? p->list->fallback : device;
}

int devices_wanted(DevicePlan *p, DeviceEdge e)
{
  switch (e.kind) {
  case EDGE_FREE: return -1;
  case EDGE_HOST: return 0;
  case EDGE_SAME: return pass_device_of(p, e.with);
  }
  return -1;
}

DevicePlan *pass_plan_targets(PassContext *pc, Module *m, Arena *arena)
{
  return pc->targets.n > 1 ? pass_device_plan(arena, m, pass_devices(pc, arena)) : NULL;
}

const Target *pass_target_of(PassContext *pc, DevicePlan *p, const Node *n)
{
  if (!p) return pass_target(pc);
  int device = pass_device_of(p, n);
  return p->list->v[device < 0 ? p->list->fallback : device].target;
}
