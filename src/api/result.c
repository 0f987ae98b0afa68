/* result.c: from things to LatheValues.
 *
 * In: what a body computed.  Out: handles, which belong to the call's scope until the
 * body has succeeded, and text and lists in the context's result memory. */
#include "api/api.h"

static Arena *results(Call *c)
{
  Arena **a = &c->context->results[c->context->depth - 1];
  if (!*a) *a = arena_new(c->ctx);
  return *a;
}

LatheValue api_val_none(void) { return (LatheValue){0}; }
LatheValue api_val_bool(bool b) { return (LatheValue){.tag = LATHE_BOOL, .u.i = b}; }
LatheValue api_val_int(int64_t i) { return (LatheValue){.tag = LATHE_INT, .u.i = i}; }
LatheValue api_val_float(double f) { return (LatheValue){.tag = LATHE_FLOAT, .u.f = f}; }

LatheValue api_val_bytes(Call *c, const void *s, size_t n)
{
  return (LatheValue){.tag = LATHE_STR, .u.s = arena_strndup(results(c), s, n), .n = (int64_t)n};
}

LatheValue api_val_str(Call *c, const char *s) { return s ? api_val_bytes(c, s, strlen(s)) : api_val_none(); }
LatheValue api_val_dtype(Call *c, DType t) { return api_val_str(c, dtype_name(scratch(c->ctx), t)); }

LatheValue *api_val_list(Call *c, int64_t n, LatheValue *list)
{
  LatheValue *v = c->room;
  if (n <= c->nroom) c->room += n, c->nroom -= n;
  else v = arena_array(results(c), LatheValue, n);
  *list = (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n};
  return v;
}

static void release_slot(void *arg) { api_handle_release(*(Handle **)arg); }

/* A handle of nothing yet, released with the call's scope. */
static Handle *new_handle(Call *c)
{
  Handle **slot = arena_new_of(scratch(c->ctx), Handle *);
  defer(c->ctx, release_slot, slot);
  return *slot = api_handle_new(c->context);
}

void api_reserve(Call *c, int handles, int values)
{
  c->room = arena_array(results(c), LatheValue, values + 1);
  c->nroom = values;
  c->spare = arena_array(scratch(c->ctx), Handle *, handles + 1);
  for (int i = 0; i < handles; i++) c->spare[i] = new_handle(c);
  c->nspare = handles;
}

LatheValue api_val_object(Call *c, LatheKind kind, const void *p, int detail, Module *m, Handle *owner)
{
  Handle *h = c->nspare ? c->spare[--c->nspare] : new_handle(c);
  h->kind = kind;
  h->detail = detail;
  h->p = p;
  h->m = m ? module_retain(m) : NULL;
  h->owner = api_handle_retain(owner);
  return (LatheValue){.tag = LATHE_OBJECT, .kind = kind, .u.p = h, .n = detail};
}

Handle *api_val_owner(Call *c, LatheKind kind, Module *m, LatheValue *out)
{
  *out = api_val_object(c, kind, NULL, 0, m, NULL);
  return out->u.p;
}

LatheValue api_val_var(Call *c, Module *m, const Var *v)
{
  return v ? api_val_object(c, LATHE_VAR, v, (int)v->kind, m, NULL) : api_val_none();
}

LatheValue api_val_expr(Call *c, Module *m, const Expr *e)
{
  if (!e) return api_val_none();
  return e->kind == E_VAR ? api_val_var(c, m, e->u.var) : api_val_object(c, LATHE_EXPR, e, e->kind, m, NULL);
}

LatheValue api_val_exprs(Call *c, Module *m, int n, const Expr *const *e)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_expr(c, m, e[i]);
  return list;
}

LatheValue api_val_itervar(Call *c, Module *m, const IterVar *iv)
{
  return iv ? api_val_object(c, LATHE_ITERVAR, iv, (int)iv->kind, m, NULL) : api_val_none();
}

LatheValue api_val_itervars(Call *c, Module *m, int n, const IterVar *const *iv)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_itervar(c, m, iv[i]);
  return list;
}

LatheValue api_val_buffer(Call *c, Module *m, const Buffer *b)
{
  return b ? api_val_object(c, LATHE_BUFFER, b, 0, m, NULL) : api_val_none();
}

LatheValue api_val_tensor(Call *c, const Tensor *t)
{
  return t ? api_val_object(c, LATHE_TENSOR, t, 0, t->op->m, NULL) : api_val_none();
}

LatheValue api_val_teop(Call *c, const TeOp *op)
{
  return op ? api_val_object(c, LATHE_TEOP, op, (int)op->kind, op->m, NULL) : api_val_none();
}

LatheValue api_val_stmt(Call *c, Module *m, Stmt *s)
{
  return s ? api_val_object(c, LATHE_STMT, s, (int)s->kind, m, NULL) : api_val_none();
}

LatheValue api_val_func(Call *c, PrimFunc *f)
{
  return f ? api_val_object(c, LATHE_PRIMFUNC, f, 0, f->m, NULL) : api_val_none();
}

LatheValue api_val_annots(Call *c, Module *m, const Annots *a)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, a->n, &list);
  for (int i = 0; i < a->n; i++) {
    LatheValue *pair = api_val_list(c, 2, &v[i]);
    pair[0] = api_val_str(c, a->v[i].key);
    pair[1] = api_val_expr(c, m, a->v[i].value);
  }
  return list;
}

static void release_module_slot(void *arg)
{
  if (*(Module **)arg) module_release(*(Module **)arg);
}

Module *api_new_module(Call *c)
{
  Module **slot = arena_new_of(scratch(c->ctx), Module *);
  defer(c->ctx, release_module_slot, slot);
  return *slot = module_new(c->ctx);
}
