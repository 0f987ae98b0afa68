/* state.c: what the graph layer remembers beside a module, and its data types. */
#include "graph/state.h"

GraphState *graph_state(Module *m)
{
  if (!m->graph) m->graph = arena_new_of(m->arena, GraphState);
  return m->graph;
}

const DataDef *graph_data(Module *m, const char *name)
{
  for (int i = 0; m->graph && i < m->graph->data.n; i++)
    if (!strcmp(m->graph->data.v[i]->name, name)) return m->graph->data.v[i];
  return NULL;
}

void graph_add_data(Module *m, const DataDef *data)
{
  const DataDef *old = graph_data(m, data->name);
  if (old == data) return;
  if (old) raise(m->ctx, ERR_TYPE, NOWHERE, "there is a type '%s' already", data->name);
  vec_push(m->arena, &graph_state(m)->data, data);
}

void graph_replace_data(Module *m, const DataDef *data)
{
  GraphState *s = graph_state(m);
  for (int i = 0; i < s->data.n; i++)
    if (!strcmp(s->data.v[i]->name, data->name)) {
      s->data.v[i] = data;
      return;
    }
  vec_push(m->arena, &s->data, data);
}

int graph_data_count(Module *m) { return m->graph ? m->graph->data.n : 0; }
const DataDef *graph_data_at(Module *m, int i) { return m->graph->data.v[i]; }

const Expr *graph_simplify_dim(Module *m, const Expr *e)
{
  if (e->kind == E_INT || e->kind == E_VAR) return e;
  Map *known = &graph_state(m)->dims;
  const Expr *r = map_get(known, e);
  if (r) return r;
  Scope s = scope_begin(m->ctx);
  r = expr_simplify(analyzer_new(m, scratch(m->ctx)), e);
  scope_end(m->ctx, s);
  map_put(m->arena, known, e, (void *)(uintptr_t)r);
  map_put(m->arena, known, r, (void *)(uintptr_t)r);
  return r;
}
