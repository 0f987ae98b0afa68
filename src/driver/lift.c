/* lift.c: calls that differ in the value of an integer alone share a kernel, which takes it as an argument.
 *
 * In: the nodes of a function that is about to be emitted.  Out: for some primitive functions, the same function
 * with its integers as parameters behind the others.
 *
 * A network that looks at its classes one by one (take(scores, 1), take(scores, 2), …) would have a kernel for
 * each of them.  Where they would be MANY, one that reads the number takes their place.  This concerns functions of a
 * single call that moves or fills elements: there a number that the compiler knows makes nothing faster. */
#include "driver/program.h"

enum { MANY = 4 };

/* Functions that are the same but for the integers in them. */
typedef struct Kin {
  const Node *lifted; /* of the first */
  Vec(uint64_t) hash; /* of each different one */
} Kin;

static bool is_integer(const Node *n)
{
  return n->kind == N_CONST && dtype_is_int(n->u.data->dtype) &&
         n->u.data->bytes == (size_t)dtype_bytes(n->u.data->dtype);
}

/* The call of a function that this is about; else NULL. */
static const Node *plain_call(const Node *func)
{
  const Node *call = func->kind == N_FUNC && annots_get(&func->u.func->attrs, "Primitive") ? fn_body(func) : NULL;
  if (!call || call->kind != N_CALL || call->u.call.op->fuse > FUSE_INJECTIVE) return NULL;
  bool some = false;
  for (int i = 0; i < call->nargs; i++) {
    if (call->arg[i]->kind != N_VAR && call->arg[i]->kind != N_CONST) return NULL;
    some |= is_integer(call->arg[i]);
  }
  return some ? call : NULL;
}

/* NULL if the result would be of another type: then the integer says a size. */
static Lifted *lift(Program *p, const Node *func, const Node *call)
{
  int nparam = fn_nparams(func);
  Lifted *l = arena_new_of(p->arena, Lifted);
  l->integer = arena_array(p->arena, const Node *, call->nargs);
  const Node **param = arena_array(p->arena, const Node *, nparam + call->nargs);
  const Node **arg = arena_array(p->arena, const Node *, call->nargs);
  for (int i = 0; i < nparam; i++) param[i] = func->arg[i];
  for (int i = 0; i < call->nargs; i++) {
    arg[i] = call->arg[i];
    if (!is_integer(arg[i])) continue;
    l->integer[l->n++] = arg[i];
    arg[i] = param[nparam] = node_var(p->m, arena_printf(p->m->arena, "p%d", nparam), arg[i]->type);
    nparam++;
  }
  const Node *body = node_call(p->m, call->u.call.op, call->nargs, arg, call->u.call.attrs, call->name);
  if (!type_equal(body->type, call->type)) return NULL;
  l->func = node_func(p->m, nparam, param, body, NULL, &func->u.func->attrs);
  return l;
}

/* Adds the function to its kin; NULL: it has the hash of others and is not the same. */
static const Kin *join_kin(Program *p, Map *by_hash, const Node *func, const Node *lifted)
{
  Scope scope = scope_begin(p->ctx);
  void *key = (void *)(uintptr_t)(graph_hash(lifted, scratch(p->ctx)) | 1);
  uint64_t hash = graph_hash(func, scratch(p->ctx));
  Kin *kin = map_get(by_hash, key);
  bool fits = !kin || graph_equal(kin->lifted, lifted, scratch(p->ctx), NULL);
  scope_end(p->ctx, scope);
  if (!fits) return NULL;
  if (!kin) {
    kin = arena_new_of(p->arena, Kin);
    kin->lifted = lifted;
    map_put(p->arena, by_hash, key, kin);
  }
  for (int i = 0; i < kin->hash.n; i++)
    if (kin->hash.v[i] == hash) return kin;
  vec_push(p->arena, &kin->hash, hash);
  return kin;
}

void program_lift_integers(Program *p, int n, const Node *const *node)
{
  typedef struct {
    const Node *func;
    Lifted *lifted;
    const Kin *kin;
  } Found;
  Vec(Found) found = {0};
  Map by_hash = {0};
  Map seen = {0};
  for (int i = 0; i < n; i++) {
    const Node *func = node[i]->kind == N_APPLY ? node[i]->arg[0] : NULL;
    const Node *call = func && !map_has(&seen, func) ? plain_call(func) : NULL;
    Lifted *l = call ? lift(p, func, call) : NULL;
    const Kin *kin = l ? join_kin(p, &by_hash, func, l->func) : NULL;
    if (call) map_put(p->arena, &seen, func, NULL);
    if (kin) vec_push(p->arena, &found, ((Found){func, l, kin}));
  }
  for (int i = 0; i < found.n; i++)
    if (found.v[i].kin->hash.n >= MANY) map_put(p->arena, &p->lifted, found.v[i].func, found.v[i].lifted);
}
