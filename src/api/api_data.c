/* api_data.c: data types, constructors and match.
 *
 * A data type is handled by its header: a type object without arguments.  It exists before
 * its constructors do, since their fields may be of the type itself.
 * A pattern is a list: ["_"], ["var", node], ["tuple", patterns], ["ctor", header, number, patterns]. */
#include "api/api.h"

/* ---- types -------------------------------------------------------------------------------- */

static void new_type_var(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_type(c, m, type_var(m, var_new(m, api_arg_str(c, 1), DT_PTR, VAR_PLAIN)));
}

static void new_data(Call *c)
{
  Module *m = api_arg_world(c);
  DataDef *data = arena_new_of(m->arena, DataDef);
  data->name = arena_strdup(m->arena, api_arg_str(c, 1));
  *c->out = api_val_type(c, m, type_data(m, data, 0, NULL));
}

static DataDef *arg_data(Call *c, Module *m, int i)
{
  const Type *t = api_arg_type(c, m, i);
  if (t->kind != TY_DATA) raise(c->ctx, ERR_TYPE, NOWHERE, "%s is no data type", type_text(scratch(c->ctx), t));
  return (DataDef *)(uintptr_t)t->data;
}

static const Type *value_type(Call *c, Module *m, const LatheValue *v)
{
  const Handle *h = v->tag == LATHE_OBJECT ? v->u.p : NULL;
  if (!h || h->kind != LATHE_TYPE || h->m != m)
    raise(c->ctx, ERR_TYPE, NOWHERE, "%s: a type is wanted here", c->function->name);
  return h->p;
}

static void define_ctor(Call *c, Module *m, DataDef *data, int tag, const LatheValue *v)
{
  const char *name = api_value_text(c, &v->u.list[0]);
  const LatheValue *list = &v->u.list[1];
  const Type **field = arena_array(m->arena, const Type *, list->n + 1);
  for (int64_t i = 0; i < list->n; i++) field[i] = value_type(c, m, &list->u.list[i]);
  data->ctor[tag] = (Ctor){arena_strdup(m->arena, name), data, tag, (int)list->n, field};
}

static void define_data(Call *c)
{
  Module *m = api_arg_world(c);
  DataDef *data = arg_data(c, m, 1);
  const void **param;
  const LatheValue *ctor;
  int nparam = api_arg_ptrs(c, m, 2, &param);
  int nctor = api_arg_list(c, 3, &ctor);
  if (data->ctor) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "type '%s' has its constructors already", data->name);
  if (!nctor) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "type '%s' has no constructor", data->name);
  DataDef now = {.name = data->name, .nparam = nparam, .nctor = nctor};
  now.param = arena_array(m->arena, const Var *, nparam + 1);
  for (int i = 0; i < nparam; i++) {
    const Type *t = param[i];
    if (t->kind != TY_VAR)
      raise(c->ctx, ERR_TYPE, NOWHERE, "parameter %d of type '%s' is %s, not a type variable", i, data->name,
            type_text(scratch(c->ctx), t));
    now.param[i] = t->var;
  }
  now.ctor = arena_array(m->arena, Ctor, nctor + 1);
  for (int i = 0; i < nctor; i++) define_ctor(c, m, &now, i, &ctor[i]);
  for (int i = 0; i < nctor; i++) now.ctor[i].data = data;
  graph_replace_data(m, data);
  *data = now;
}

static void call_data(Call *c)
{
  Module *m = api_arg_world(c);
  const DataDef *data = arg_data(c, m, 1);
  const void **arg;
  int n = api_arg_ptrs(c, m, 2, &arg);
  if (data->ctor && n != data->nparam)
    raise(c->ctx, ERR_TYPE, NOWHERE, "type %s has %d parameters, %d are given", data->name, data->nparam, n);
  *c->out = api_val_type(c, m, type_data(m, data, n, (const Type *const *)arg));
}

static void data_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const DataDef *data = arg_data(c, h->m, 0);
  LatheValue *v = api_val_list(c, 3, c->out);
  v[0] = api_val_str(c, data->name);
  LatheValue *param = api_val_list(c, data->nparam, &v[1]);
  for (int i = 0; i < data->nparam; i++) param[i] = api_val_type(c, h->m, type_var(h->m, data->param[i]));
  LatheValue *ctor = api_val_list(c, data->nctor, &v[2]);
  for (int i = 0; i < data->nctor; i++) {
    LatheValue *row = api_val_list(c, 2, &ctor[i]);
    row[0] = api_val_str(c, data->ctor[i].name);
    LatheValue *field = api_val_list(c, data->ctor[i].n, &row[1]);
    for (int k = 0; k < data->ctor[i].n; k++) field[k] = api_val_type(c, h->m, data->ctor[i].field[k]);
  }
}

/* ---- types of a module -------------------------------------------------------------------------- */

static void module_data(Call *c)
{
  Module *world = api_arg_world(c);
  Module *m = (Module *)api_arg_ptr(c, 1);
  int n = graph_data_count(m);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) {
    const Type *header = type_data(m, graph_data_at(m, i), 0, NULL);
    v[i] = api_val_type(c, world, graph_import_type(api_graph_importer(c, m), header));
  }
}

static void module_add_data(Call *c)
{
  Module *m = (Module *)api_arg_ptr(c, 0);
  Handle *h = api_arg_handle(c, 1);
  const DataDef *data = arg_data(c, h->m, 1);
  if (!data->ctor) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "type '%s' has no constructors yet", data->name);
  graph_import_type(graph_importer_new(m, h->m, NULL), h->p);
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

static const Ctor *find_ctor(Call *c, const DataDef *data, int64_t i)
{
  if (!data->ctor)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "type '%s' has no constructors yet; relay.TypeData gives it some", data->name);
  if (i < 0 || i >= data->nctor)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "type '%s' has %d constructors, there is no constructor %" PRId64, data->name,
          data->nctor, i);
  return &data->ctor[i];
}

static void new_ctor(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_ctor(m, find_ctor(c, arg_data(c, m, 1), api_arg_int(c, 2))));
}

static void ctor_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node *n = h->p;
  if (n->kind != N_CTOR) raise(c->ctx, ERR_TYPE, NOWHERE, "the expression is no constructor");
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_type(c, h->m, type_data(h->m, n->u.ctor->data, 0, NULL));
  v[1] = api_val_int(n->u.ctor->tag);
}

static const Pattern *read_pattern(Call *c, Module *m, const LatheValue *v, int depth);

static void read_patterns(Call *c, Module *m, const LatheValue *list, int depth, Pattern *p)
{
  if (list->tag != LATHE_LIST) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the fields of a pattern are a list");
  p->n = (int)list->n;
  p->sub = arena_array(m->arena, const Pattern *, list->n + 1);
  for (int i = 0; i < p->n; i++) p->sub[i] = read_pattern(c, m, &list->u.list[i], depth + 1);
}

static const Pattern *read_pattern(Call *c, Module *m, const LatheValue *v, int depth)
{
  enum { DEEPEST = 200 };
  const char *kind = v->tag == LATHE_LIST && v->n >= 1 ? api_value_text(c, &v->u.list[0]) : NULL;
  const LatheValue *arg = kind ? v->u.list + 1 : NULL;
  Pattern *p = arena_new_of(m->arena, Pattern);
  if (depth > DEEPEST) raise(c->ctx, ERR_UNSUPPORTED, NOWHERE, "patterns are nested more than %d deep", DEEPEST);
  if (kind && !strcmp(kind, "_") && v->n == 1) {
    p->kind = PAT_WILD;
  } else if (kind && !strcmp(kind, "var") && v->n == 2 && arg[0].tag == LATHE_OBJECT) {
    const Handle *h = arg[0].u.p;
    if (h->kind != LATHE_NODE || h->m != m || ((const Node *)h->p)->kind != N_VAR)
      raise(c->ctx, ERR_TYPE, NOWHERE, "a pattern binds a variable");
    p->kind = PAT_VAR;
    p->var = h->p;
  } else if (kind && !strcmp(kind, "tuple") && v->n == 2) {
    p->kind = PAT_TUPLE;
    read_patterns(c, m, &arg[0], depth, p);
  } else if (kind && !strcmp(kind, "ctor") && v->n == 4) {
    const Type *header = value_type(c, m, &arg[0]);
    if (header->kind != TY_DATA)
      raise(c->ctx, ERR_TYPE, NOWHERE, "%s is no data type", type_text(scratch(c->ctx), header));
    p->kind = PAT_CTOR;
    p->ctor = find_ctor(c, header->data, arg[1].u.i);
    read_patterns(c, m, &arg[2], depth, p);
  } else {
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "a pattern is [\"_\"], [\"var\", node], [\"tuple\", patterns] or [\"ctor\", header, number, patterns]");
  }
  return p;
}

static void new_match(Call *c)
{
  Module *m = api_arg_world(c);
  const LatheValue *v;
  const Node *const *body;
  int n = api_arg_list(c, 2, &v);
  if (api_arg_nodes(c, m, 3, &body) != n) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a match has a body for each pattern");
  const Pattern **clause = arena_array(scratch(c->ctx), const Pattern *, n + 1);
  for (int i = 0; i < n; i++) clause[i] = read_pattern(c, m, &v[i], 0);
  *c->out = api_val_node(c, m, node_match(m, api_arg_node(c, m, 1), n, clause, body));
}

static LatheValue val_pattern(Call *c, Module *m, const Pattern *p)
{
  static const char *const kinds[] = {[PAT_WILD] = "_", [PAT_VAR] = "var", [PAT_CTOR] = "ctor", [PAT_TUPLE] = "tuple"};
  static const int64_t sizes[] = {[PAT_WILD] = 1, [PAT_VAR] = 2, [PAT_CTOR] = 4, [PAT_TUPLE] = 2};
  LatheValue out;
  LatheValue *v = api_val_list(c, sizes[p->kind], &out);
  v[0] = api_val_str(c, kinds[p->kind]);
  if (p->kind == PAT_VAR) v[1] = api_val_node(c, m, p->var);
  if (p->kind == PAT_CTOR) {
    v[1] = api_val_type(c, m, type_data(m, p->ctor->data, 0, NULL));
    v[2] = api_val_int(p->ctor->tag);
  }
  if (p->kind != PAT_CTOR && p->kind != PAT_TUPLE) return out;
  LatheValue *sub = api_val_list(c, p->n, &v[sizes[p->kind] - 1]);
  for (int i = 0; i < p->n; i++) sub[i] = val_pattern(c, m, p->sub[i]);
  return out;
}

static void match_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node *n = h->p;
  if (n->kind != N_MATCH) raise(c->ctx, ERR_TYPE, NOWHERE, "the expression is no match");
  LatheValue *v = api_val_list(c, n->u.match.n, c->out);
  for (int i = 0; i < n->u.match.n; i++) {
    LatheValue *row = api_val_list(c, 2, &v[i]);
    row[0] = val_pattern(c, h->m, n->u.match.clause[i]);
    row[1] = api_val_node(c, h->m, n->arg[1 + i]);
  }
}

const ApiFunction api_data_functions[] = {
  {"type_var", "world: world, name: str -> type", "a type parameter", new_type_var},
  {"data_type", "world: world, name: str -> type", "the header of a data type; data_define gives it constructors",
   new_data},
  {"data_define", "world: world, header: type, params: list[type], ctors: list[[str, list[type]]] -> none",
   "parameters (type variables) and constructors [name, types of the fields], once", define_data},
  {"data_call", "world: world, header: type, args: list[type] -> type", "the data type over these types", call_data},
  {"data_fields", "header: type -> list[any]", "name, parameters, constructors [name, types of the fields]",
   data_fields},
  {"module_data", "world: world, m: module -> list[type]", "headers of the data types of a module", module_data},
  {"module_add_data", "m: module, header: type -> none", "makes a data type known in a module", module_add_data},
  {"node_ctor", "world: world, header: type, index: int -> node", "a constructor as a function", new_ctor},
  {"ctor_fields", "n: node -> list[any]", "of a constructor: header of its type, its number there", ctor_fields},
  {"node_match", "world: world, value: node, patterns: list[pattern], bodies: list[node] -> node",
   "a match; patterns are [\"_\"], [\"var\", node], [\"tuple\", patterns], [\"ctor\", header, number, patterns]",
   new_match},
  {"match_fields", "n: node -> list[list[any]]", "clauses of a match: [pattern, body]", match_fields},
  {0},
};
