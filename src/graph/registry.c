/* registry.c: the list of operators: the built-in ones, then users' own.
 *
 * The list belongs to the process, since operators are named in every context; contexts
 * run on different threads, so a slot is written before the count says it is there. */
#include "graph/graph.h"

#include <stdatomic.h>
#include <stdio.h>

static const OpDef *const *_Atomic built_in;
static atomic_int nbuilt_in;

#define MAX_USER_OPS 256
static const OpDef *_Atomic user_ops[MAX_USER_OPS];
static const OpDef taken_out = {.name = ""}; /* in the place of one that went */
static atomic_int nuser_ops;
static atomic_flag adding = ATOMIC_FLAG_INIT;

void opdef_install(const OpDef *const *list, int n)
{
  built_in = list;
  nbuilt_in = n;
}

int opdef_count(void) { return nbuilt_in + nuser_ops; }
const OpDef *opdef_at(int i) { return i < nbuilt_in ? built_in[i] : user_ops[i - nbuilt_in]; }

const OpDef *opdef_find(const char *name)
{
  for (int i = 0; i < opdef_count(); i++)
    if (!strcmp(opdef_at(i)->name, name)) return opdef_at(i);
  return NULL;
}

const OpDef *opdef_get(Ctx *ctx, const char *name)
{
  const OpDef *op = opdef_find(name);
  if (op) return op;
  const char **names = arena_array(scratch(ctx), const char *, opdef_count());
  for (int i = 0; i < opdef_count(); i++) names[i] = opdef_at(i)->name;
  const char *near = str_nearest(name, names, opdef_count());
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no operator '%s'%s%s%s; 'lathe ops' lists them", name,
        near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

void opdef_register(Ctx *ctx, const OpDef *op)
{
  if (!op->name || !op->type || (!op->compute && !op->decompose && !op->tir))
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "an operator needs a name, a type rule and a meaning (compute, decompose or tir)");
  while (atomic_flag_test_and_set(&adding)) continue;
  int slot = 0;
  while (slot < nuser_ops && user_ops[slot] != &taken_out) slot++;
  bool known = opdef_find(op->name) != NULL;
  bool full = slot == MAX_USER_OPS;
  if (!known && !full) {
    user_ops[slot] = op;
    if (slot == nuser_ops) nuser_ops++;
  }
  atomic_flag_clear(&adding);
  if (known) raise(ctx, ERR_ARGUMENT, NOWHERE, "there is an operator '%s' already", op->name);
  if (full) raise(ctx, ERR_UNSUPPORTED, NOWHERE, "at most %d operators can be added", MAX_USER_OPS);
}

void opdef_unregister(const OpDef *op)
{
  while (atomic_flag_test_and_set(&adding)) continue;
  for (int i = 0; i < nuser_ops; i++)
    if (user_ops[i] == op) user_ops[i] = &taken_out;
  atomic_flag_clear(&adding);
}

_Noreturn void opdef_raise(OpCall *c, ErrKind kind, const char *fmt, ...)
{
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (c->name && *c->name) raise(c->m->ctx, kind, NOWHERE, "%s (node '%s'): %s", c->op->name, c->name, text);
  raise(c->m->ctx, kind, NOWHERE, "%s: %s", c->op->name, text);
}
