/* module.c: the owner of expressions and functions, counted by reference. */
#include "expr/expr.h"

static void make_arena(Ctx *ctx, void *arg) { ((Module *)arg)->arena = arena_new(ctx); }

Module *module_new(Ctx *ctx)
{
  Module *m = mem_alloc(ctx, sizeof *m);
  *m = (Module){.ctx = ctx, .refs = 1, .next_id = 1};
  if (protect(ctx, make_arena, m)) {
    mem_free(ctx, m);
    error_reraise(ctx);
  }
  return m;
}

Module *module_retain(Module *m)
{
  m->refs++;
  return m;
}

void module_release(Module *m)
{
  if (!m || --m->refs > 0) return;
  for (ModuleCleanup *c = m->cleanups; c; c = c->next) c->fn(c->arg);
  arena_free(m->arena);
  mem_free(m->ctx, m);
}

void module_defer(Module *m, void (*fn)(void *), void *arg)
{
  ModuleCleanup *c = arena_new_of(m->arena, ModuleCleanup);
  *c = (ModuleCleanup){fn, arg, m->cleanups};
  m->cleanups = c;
}

Global *module_get(Module *m, const char *name)
{
  for (int i = 0; i < m->globals.n; i++)
    if (!strcmp(m->globals.v[i].name, name)) return &m->globals.v[i];
  return NULL;
}

void module_set(Module *m, const char *name, GlobalKind kind, void *func)
{
  Global *old = module_get(m, name);
  if (old) {
    old->kind = kind;
    old->func = func;
    return;
  }
  vec_push(m->arena, &m->globals, (Global){arena_strdup(m->arena, name), kind, func});
}
