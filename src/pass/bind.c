/* bind.c: parameters of a function replaced by constants: how weights enter a model. */
#include "pass/tools.h"

static void check_fits(Module *m, const Node *param, const Node *value)
{
  const Type *want = param->type;
  const Type *got = value->type;
  bool fits = want->kind == TY_TENSOR && got->kind == TY_TENSOR && dtype_eq(want->dtype, got->dtype) &&
              (want->ndim < 0 || want->ndim == got->ndim);
  for (int i = 0; fits && i < want->ndim; i++)
    fits = want->shape[i]->kind != E_INT || got->shape[i]->kind != E_INT || want->shape[i]->u.i == got->shape[i]->u.i;
  if (!fits)
    raise(m->ctx, ERR_TYPE, NOWHERE, "parameter '%s' is %s, the value bound to it %s", param->name,
          type_text(scratch(m->ctx), want), type_text(scratch(m->ctx), got));
}

const Node *pass_bind_params(Module *m, const Node *f, int n, const char *const *name, const Node *const *value)
{
  Arena *arena = scratch(m->ctx);
  Map vars = {0};
  for (int i = 0; i < n; i++) {
    int at = 0;
    while (at < fn_nparams(f) && strcmp(f->arg[at]->name, name[i])) at++;
    if (at == fn_nparams(f)) {
      const char **names = arena_array(arena, const char *, fn_nparams(f) + 1);
      for (int k = 0; k < fn_nparams(f); k++) names[k] = f->arg[k]->name;
      const char *suggestion = str_suggest(arena, name[i], names, fn_nparams(f));
      raise(m->ctx, ERR_ARGUMENT, NOWHERE, "the function has no parameter '%s'%s", name[i], suggestion);
    }
    if (f->arg[at]->type && value[i]->type) check_fits(m, f->arg[at], value[i]);
    map_put(arena, &vars, f->arg[at], (void *)(uintptr_t)value[i]);
  }
  const Node **rest = arena_array(arena, const Node *, fn_nparams(f) + 1);
  int left = 0;
  for (int i = 0; i < fn_nparams(f); i++)
    if (!map_has(&vars, f->arg[i])) rest[left++] = f->arg[i];
  const Node *body = graph_substitute(m, fn_body(f), &vars);
  return node_func(m, left, rest, body, f->u.func->ret, &f->u.func->attrs);
}
