/* kernels.c: the kernels, constants and nodes that a program refers to.
 *
 * Primitive functions that are equal share a kernel: layers of the same shape are compiled
 * once, and each call hands over the scalars of its own function.  Each use is a node of its own, for profiles.
 * Constants that share their bytes share them in the weights too. */
#include <stdlib.h>

#include "driver/program.h"

/* ---- names -------------------------------------------------------------------------- */

/* "fused_nn_conv2d_add_nn_relu", unique among the kernels. */
static const char *kernel_name(Program *p, const Node *func)
{
  enum { LONGEST = 100 };
  Scope scope = scope_begin(p->ctx);
  Text text = text_new(scratch(p->ctx));
  const Node **node;
  int n = graph_post_order(scratch(p->ctx), fn_body(func), &node);
  int calls = 0;
  for (int i = 0; i < n; i++) {
    const char *name = node[i]->kind == N_CALL       ? node[i]->u.call.op->name
                       : node[i]->kind == N_CALL_TIR ? node[i]->u.tir.name
                                                     : NULL;
    if (!name || text.n + strlen(name) > LONGEST) continue;
    text_printf(&text, "_%s", name);
    calls++;
  }
  char *name = arena_printf(p->arena, "%s%s", calls > 1 ? "fused" : "lathe", text.n ? text_str(&text) : "_copy");
  for (char *c = name; *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c)) *c = '_';
  int *used = strmap_get(&p->kernel_names, name);
  if (!used) strmap_put(p->arena, &p->kernel_names, name, used = arena_new_of(p->arena, int));
  const char *out = *used ? arena_printf(p->arena, "%s_%d", name, *used) : name;
  ++*used;
  scope_end(p->ctx, scope);
  return out;
}

/* Names of the source model's nodes, comma list. */
static const char *source_names(Program *p, const Node *body)
{
  enum { LONGEST = 400 };
  Scope scope = scope_begin(p->ctx);
  Text text = text_new(p->arena);
  const Node **node;
  int n = graph_post_order(scratch(p->ctx), body, &node);
  const char *last = "";
  for (int i = 0; i < n; i++) {
    const char *name = node[i]->kind == N_CALL ? node[i]->name : NULL;
    if (!name || !*name || !strcmp(name, last) || text.n + strlen(name) > LONGEST) continue;
    text_printf(&text, "%s%s", text.n ? "," : "", name);
    last = name;
  }
  scope_end(p->ctx, scope);
  return text_str(&text);
}

/* ---- kernels ---------------------------------------------------------------------------- */

static bool types_are_stable(const Type *ty)
{
  for (int d = 0; d < ty->ndim; d++)
    if (!type_dim_is_stable(ty->shape[d])) return false;
  for (int i = 0; i < ty->nfield; i++)
    if (!types_are_stable(ty->field[i])) return false;
  return true;
}

/* What stands in the place of a scalar of the kernel's function: a size, or the value that a node in that place
 * computes.  NULL: it cannot be told. */
static const Expr *counterpart(Program *p, const Map *pairs, const Var *v)
{
  const Node *node;
  int element, count;
  if (!graph_value_source(p->m, v, &node, &element)) {
    const Var *other = map_get(pairs, v);
    return other ? var_expr(other) : NULL;
  }
  const Node *other = map_get(pairs, node);
  const Expr *const *value = other ? graph_values(p->m, other, &count) : NULL;
  return value && element < count ? value[element] : NULL;
}

/* May the function run as the kernel, and if so, what are the scalars that it is handed? */
static bool serves(Program *p, const ProgKernel *k, const Node *func, const Expr **scalar)
{
  Map pairs;
  Arena *tmp = scratch(p->ctx);
  if (!graph_match(k->func, func, tmp, &pairs)) return false;
  for (int i = 0; k->impl.nscalars && i < fn_nparams(func); i++)
    if (!types_are_stable(k->func->arg[i]->type) || !types_are_stable(func->arg[i]->type)) return false;
  for (int i = 0; i < k->impl.nscalars; i++)
    if (!(scalar[i] = counterpart(p, &pairs, k->impl.scalars[i]))) return false;
  return true;
}

const Expr **program_kernel_scalars(Program *p, int kernel, const Node *func)
{
  const ProgKernel *k = &p->kernel.v[kernel];
  const Expr **scalar = arena_array(p->arena, const Expr *, k->impl.nscalars + 1);
  Scope scope = scope_begin(p->ctx);
  if (k->func == func)
    for (int i = 0; i < k->impl.nscalars; i++) scalar[i] = var_expr(k->impl.scalars[i]);
  else if (!serves(p, k, func, scalar)) BUG(p->ctx, "kernel '%s' does not serve its caller", k->name);
  scope_end(p->ctx, scope);
  return scalar;
}

static int find_kernel(Program *p, const Node *func, int device, uint64_t hash)
{
  for (int i = (int)(intptr_t)map_get(&p->kernel_by_hash, (void *)(uintptr_t)(hash | 1)) - 1; i >= 0 && i < p->kernel.n;
       i++) {
    const ProgKernel *k = &p->kernel.v[i];
    if (k->device != device) continue;
    if (k->func == func) return i;
    if (k->hash != hash) continue;
    Scope scope = scope_begin(p->ctx);
    bool same = serves(p, k, func, arena_array(scratch(p->ctx), const Expr *, k->impl.nscalars + 1));
    scope_end(p->ctx, scope);
    if (same) return i;
  }
  return -1;
}

int program_device(Program *p, const Node *n)
{
  int device = p->plan ? pass_device_of(p->plan, n) : 0;
  return device < 0 ? 0 : device;
}

int program_kernel(Program *p, const Node *func, int device)
{
  Scope scope = scope_begin(p->ctx);
  uint64_t hash = graph_hash(func, scratch(p->ctx));
  scope_end(p->ctx, scope);
  int found = find_kernel(p, func, device, hash);
  if (found >= 0) return found;
  ProgKernel k = {.func = func, .hash = hash, .name = kernel_name(p, func), .module = device, .device = device};
  impl_lower(p->kernels, p->m, func, k.name, p->device.v[device].target, p->config, &k.impl);
  ctx_poll(p->ctx);
  if (!map_has(&p->kernel_by_hash, (void *)(uintptr_t)(hash | 1)))
    map_put(p->arena, &p->kernel_by_hash, (void *)(uintptr_t)(hash | 1), (void *)(intptr_t)(p->kernel.n + 1));
  vec_push(p->arena, &p->kernel, k);
  return p->kernel.n - 1;
}

static double type_bytes(const Type *t)
{
  if (t->kind == TY_TUPLE) {
    double sum = 0;
    for (int i = 0; i < t->nfield; i++) sum += type_bytes(t->field[i]);
    return sum;
  }
  if (t->kind != TY_TENSOR || !type_is_static(t)) return 0;
  double n = dtype_bytes(t->dtype);
  for (int d = 0; d < t->ndim; d++) n *= (double)t->shape[d]->u.i;
  return n;
}

int program_node(Program *p, const Node *func, int kernel, const char *name)
{
  ProgNode n = {.kernel = kernel, .func = func, .name = name};
  if (func->kind == N_FUNC) {
    n.source = source_names(p, fn_body(func));
    n.bytes = type_bytes(fn_body(func)->type);
    for (int i = 0; i < fn_nparams(func); i++) n.bytes += type_bytes(func->arg[i]->type);
  } else {
    n.source = func->name ? func->name : "";
  }
  if (kernel >= 0) n.name = p->kernel.v[kernel].name;
  vec_push(p->arena, &p->node, n);
  return p->node.n - 1;
}

/* Numbers the marked ones from 0; how many they are. */
static int renumber(int n, int *number)
{
  int count = 0;
  for (int i = 0; i < n; i++) number[i] = number[i] ? count++ : -1;
  return count;
}

void program_drop_unused(Program *p)
{
  Scope scope = scope_begin(p->ctx);
  int *kernel = arena_array(scratch(p->ctx), int, p->kernel.n + 1);
  int *node = arena_array(scratch(p->ctx), int, p->node.n + 1);
  for (int i = 0; i < p->func.n; i++)
    for (int k = 0; k < p->func.v[i]->ins.n; k++) {
      const ProgIns *ins = &p->func.v[i]->ins.v[k];
      if (ins->op == MO_KERNEL) kernel[ins->index] = 1;
      if (ins->node >= 0) node[ins->node] = 1;
    }
  int nkernel = renumber(p->kernel.n, kernel);
  int nnode = renumber(p->node.n, node);
  for (int i = 0; i < p->func.n; i++)
    for (int k = 0; k < p->func.v[i]->ins.n; k++) {
      ProgIns *ins = &p->func.v[i]->ins.v[k];
      if (ins->op == MO_KERNEL) ins->index = kernel[ins->index];
      if (ins->node >= 0) ins->node = node[ins->node];
    }
  for (int i = 0; i < p->kernel.n; i++)
    if (kernel[i] >= 0) p->kernel.v[kernel[i]] = p->kernel.v[i];
  for (int i = 0; i < p->node.n; i++) {
    if (node[i] < 0) continue;
    ProgNode n = p->node.v[i];
    if (n.kernel >= 0) n.kernel = kernel[n.kernel];
    p->node.v[node[i]] = n;
  }
  p->kernel.n = nkernel;
  p->node.n = nnode;
  scope_end(p->ctx, scope);
}

bool program_is_view(const Node *func)
{
  const Node *n = fn_body(func);
  bool some = false;
  while (n->kind == N_CALL && n->u.call.op->flags & OPF_VIEW && n->type->kind == TY_TENSOR &&
         dtype_eq(n->type->dtype, n->arg[0]->type->dtype)) {
    n = n->arg[0];
    some = true;
  }
  return some && n->kind == N_VAR && n == func->arg[0];
}

/* ---- constants ------------------------------------------------------------------------------ */

int program_const(Program *p, const Node *constant, int device)
{
  const ConstData *d = constant->u.data;
  int before = (int)(intptr_t)map_get(&p->const_by_data, d->bytes ? d->data : constant) - 1;
  for (int i = before; i >= 0 && i < p->constant.n; i++) {
    const ConstData *o = p->constant.v[i].data;
    if (p->constant.v[i].device == device && o->data == d->data && o->bytes == d->bytes &&
        dtype_eq(o->dtype, d->dtype) && o->ndim == d->ndim &&
        !memcmp(o->shape, d->shape, (size_t)d->ndim * sizeof *d->shape))
      return i;
  }
  ProgConst c = {.data = d, .device = device, .offset = p->weights_bytes};
  if (before >= 0 && p->constant.v[before].data->bytes == d->bytes) c.offset = p->constant.v[before].offset;
  else p->weights_bytes = (p->weights_bytes + d->bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
  if (before < 0)
    map_put(p->arena, &p->const_by_data, d->bytes ? d->data : constant, (void *)(intptr_t)(p->constant.n + 1));
  vec_push(p->arena, &p->constant, c);
  return p->constant.n - 1;
}

int program_const_prepared(Program *p, const Type *t)
{
  ConstData *d = arena_new_of(p->arena, ConstData);
  *d = (ConstData){.dtype = t->dtype, .ndim = t->ndim, .bytes = (size_t)dtype_bytes(t->dtype)};
  for (int i = 0; i < t->ndim; i++) {
    d->shape[i] = t->shape[i]->u.i;
    d->bytes = mem_size_mul(p->ctx, d->bytes, (size_t)d->shape[i], "a constant");
  }
  vec_push(p->arena, &p->constant, ((ProgConst){.data = d, .prepared = true}));
  return p->constant.n - 1;
}

/* ---- strings -------------------------------------------------------------------------------- */

static int string_order(const void *a, const void *b)
{
  const ProgString *x = a;
  const ProgString *y = b;
  int d = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
  return d ? d : (x->n > y->n) - (x->n < y->n);
}

void program_number_strings(Program *p)
{
  Map number = {0}; /* 1 + the context's number -> 1 + the program's */
  for (int i = 0; i < p->constant.n; i++) {
    const ConstData *d = p->constant.v[i].data;
    for (size_t k = 0; dtype_is_string(d->dtype) && k < d->bytes / 8; k++) {
      uint64_t old = ((const uint64_t *)d->data)[k];
      if (map_has(&number, (void *)(uintptr_t)(old + 1))) continue;
      ProgString s = {0};
      if (!(s.s = ctx_string_at(p->ctx, old, &s.n)) || s.n > INT32_MAX)
        BUG(p->ctx, "a constant speaks of string %" PRIu64, old);
      map_put(p->arena, &number, (void *)(uintptr_t)(old + 1), NULL);
      vec_push(p->arena, &p->string, s);
    }
  }
  if (!p->string.n) return;
  qsort(p->string.v, (size_t)p->string.n, sizeof *p->string.v, string_order);
  for (int i = 0; i < p->string.n; i++)
    map_put(p->arena, &number, (void *)(uintptr_t)(ctx_string(p->ctx, p->string.v[i].s, p->string.v[i].n) + 1),
            (void *)(intptr_t)(i + 1));
  for (int i = 0; i < p->constant.n; i++) {
    if (!dtype_is_string(p->constant.v[i].data->dtype)) continue;
    ConstData *d = arena_copy(p->arena, p->constant.v[i].data, sizeof *d);
    uint64_t *v = arena_copy(p->arena, d->data, d->bytes);
    for (size_t k = 0; k < d->bytes / 8; k++)
      v[k] = (uint64_t)(intptr_t)map_get(&number, (void *)(uintptr_t)(v[k] + 1)) - 1;
    d->data = v;
    d->file = NULL;
    p->constant.v[i].data = d;
  }
}
