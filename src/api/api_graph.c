/* api_graph.c: types, nodes and modules of graphs; the table of operators.
 *
 * In: handles of one world.  Out: nodes and types of it.  Everything a user holds of a
 * graph lives in the world: a function that is asked of a module is brought into the
 * world, and remembered, so that asking twice gives the same nodes. */
#include "api/api.h"

LatheValue api_val_type(Call *c, Module *m, const Type *t)
{
  return t ? api_val_object(c, LATHE_TYPE, t, (int)t->kind, m, NULL) : api_val_none();
}

LatheValue api_val_node(Call *c, Module *m, const Node *n)
{
  return n ? api_val_object(c, LATHE_NODE, n, (int)n->kind, m, NULL) : api_val_none();
}

LatheValue api_val_node_in_world(Call *c, Module *from, const Node *n)
{
  World *w = c->context->world;
  if (!w) return api_val_node(c, from, n);
  return api_val_node(c, w->m, graph_import_into(api_world_graphs(c->ctx, w, from), n));
}

static LatheValue val_nodes(Call *c, Module *m, int n, const Node *const *node)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_node(c, m, node[i]);
  return list;
}

static LatheValue val_types(Call *c, Module *m, int n, const Type *const *type)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_type(c, m, type[i]);
  return list;
}

int api_arg_nodes(Call *c, Module *m, int i, const Node *const **out)
{
  const void **p;
  int n = api_arg_ptrs(c, m, i, &p);
  *out = (const Node *const *)p;
  return n;
}

const Node *api_arg_node(Call *c, Module *m, int i)
{
  Handle *h = api_arg_handle(c, i);
  if (h && h->m != m) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: a node of another world", c->function->name);
  return h ? h->p : NULL;
}

const Type *api_arg_type(Call *c, Module *m, int i)
{
  Handle *h = api_arg_handle(c, i);
  if (h && h->m != m) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: a type of another world", c->function->name);
  return h ? h->p : NULL;
}

/* ---- types ---------------------------------------------------------------------- */

static const char *const type_kind_names[] = {"tensor",   "tuple",    "func", "shape",  "prim",
                                              "sequence", "optional", "data", "object", "var"};

static int read_dims(Call *c, Module *m, const LatheValue *list, const Expr ***out)
{
  int n = (int)list->n;
  const Expr **dims = arena_array(scratch(c->ctx), const Expr *, n);
  for (int i = 0; i < n; i++) {
    const LatheValue *v = &list->u.list[i];
    if (v->tag == LATHE_INT && v->u.i < 0)
      raise(c->ctx, ERR_SHAPE, NOWHERE, "dimension %d is %" PRId64 "; a dimension is not negative", i, v->u.i);
    dims[i] = v->tag == LATHE_NONE ? type_dim_any(m) : api_value_expr(c, m, v);
  }
  *out = dims;
  return n;
}

static void new_tensor_type(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **dims = NULL;
  int n = api_arg_given(c, 1) ? read_dims(c, m, &c->arg[1], &dims) : -1;
  *c->out = api_val_type(c, m, type_tensor(m, api_arg_dtype(c, 2), n, dims));
}

static void new_tuple_type(Call *c)
{
  Module *m = api_arg_world(c);
  const void **field;
  int n = api_arg_ptrs(c, m, 1, &field);
  *c->out = api_val_type(c, m, type_tuple(m, n, (const Type *const *)field));
}

static void new_func_type(Call *c)
{
  Module *m = api_arg_world(c);
  const void **param;
  int n = api_arg_ptrs(c, m, 1, &param);
  *c->out = api_val_type(c, m, type_func(m, n, (const Type *const *)param, api_arg_type(c, m, 2)));
}

static void new_simple_type(Call *c)
{
  Module *m = api_arg_world(c);
  const char *kind = api_arg_str(c, 1);
  TypeKind k = !strcmp(kind, "sequence") ? TY_SEQ : !strcmp(kind, "optional") ? TY_OPT : TY_OBJECT;
  *c->out = api_val_type(c, m, type_simple(m, k, api_arg_type(c, m, 2)));
}

static void type_parts(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Type *t = h->p;
  LatheValue *v = api_val_list(c, 5, c->out);
  v[0] = api_val_str(c, type_kind_names[t->kind]);
  v[1] = t->kind == TY_TENSOR || t->kind == TY_PRIM ? api_val_dtype(c, t->dtype) : api_val_none();
  v[2] = api_val_none();
  if ((t->kind == TY_TENSOR || t->kind == TY_SHAPE) && t->ndim >= 0) {
    LatheValue *d = api_val_list(c, t->ndim, &v[2]);
    for (int i = 0; i < t->ndim; i++) d[i] = api_val_expr(c, h->m, t->shape[i]);
  }
  v[3] = val_types(c, h->m, t->nfield, t->field);
  v[4] = api_val_type(c, h->m, t->ret);
}

static void type_to_text(Call *c) { *c->out = api_val_str(c, type_text(scratch(c->ctx), api_arg_ptr(c, 0))); }
static void types_equal(Call *c) { *c->out = api_val_bool(type_equal(api_arg_ptr(c, 0), api_arg_ptr(c, 1))); }

static void type_kinds(Call *c)
{
  int n = (int)(sizeof type_kind_names / sizeof *type_kind_names);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = api_val_str(c, type_kind_names[i]);
}

/* ---- attributes -------------------------------------------------------------------- */

static LatheValue val_attr(Call *c, Module *m, const AttrField *f, const void *attrs)
{
  const void *p = (const char *)attrs + f->offset;
  LatheValue list, *v;
  switch (f->kind) {
  case AT_BOOL: return api_val_bool(*(const bool *)p);
  case AT_INT: return api_val_int(*(const int64_t *)p);
  case AT_F64: return api_val_float(*(const double *)p);
  case AT_STR: return api_val_str(c, *(const char *const *)p);
  case AT_DTYPE: return dtype_eq(*(const DType *)p, DT_NONE) ? api_val_str(c, "") : api_val_dtype(c, *(const DType *)p);
  case AT_INTS: {
    const AttrInts *a = p;
    if (!a->given) return api_val_none();
    v = api_val_list(c, a->n, &list);
    for (int i = 0; i < a->n; i++) v[i] = api_val_int(a->v[i]);
    return list;
  }
  case AT_F64S: {
    const AttrF64s *a = p;
    if (!a->given) return api_val_none();
    v = api_val_list(c, a->n, &list);
    for (int i = 0; i < a->n; i++) v[i] = api_val_float(a->v[i]);
    return list;
  }
  case AT_STRS: {
    const AttrStrs *a = p;
    if (!a->given) return api_val_none();
    v = api_val_list(c, a->n, &list);
    for (int i = 0; i < a->n; i++) v[i] = api_val_str(c, a->v[i]);
    return list;
  }
  case AT_DIMS: {
    const AttrDims *a = p;
    return a->given ? api_val_exprs(c, m, a->n, a->v) : api_val_none();
  }
  }
  BUG(c->ctx, "attribute of kind %d", f->kind);
}

LatheValue api_val_attrs(Call *c, Module *m, const AttrsDef *def, const void *attrs)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, def ? def->n : 0, &list);
  for (int i = 0; def && i < def->n; i++) {
    LatheValue *pair = api_val_list(c, 2, &v[i]);
    pair[0] = api_val_str(c, def->field[i].name);
    pair[1] = val_attr(c, m, &def->field[i], attrs);
  }
  return list;
}

static bool list_has_tag(const LatheValue *list, LatheTag tag)
{
  for (int64_t i = 0; i < list->n; i++)
    if (list->u.list[i].tag == (int32_t)tag) return true;
  return false;
}

static void set_list(Call *c, Module *m, const AttrsDef *def, void *attrs, const char *name, const LatheValue *list)
{
  int n = (int)list->n;
  Arena *a = scratch(c->ctx);
  const AttrField *f = attrs_field(def, name);
  if (f && f->kind == AT_DIMS) {
    const Expr **dims = arena_array(a, const Expr *, n);
    for (int i = 0; i < n; i++) dims[i] = api_value_expr(c, m, &list->u.list[i]);
    attrs_set_dims(m, def, attrs, name, n, dims);
  } else if (list_has_tag(list, LATHE_STR)) {
    const char **s = arena_array(a, const char *, n);
    for (int i = 0; i < n; i++) {
      if (list->u.list[i].tag != LATHE_STR)
        raise(c->ctx, ERR_TYPE, NOWHERE, "attribute '%s' is a list of strings, and element %d is none", name, i);
      s[i] = api_value_text(c, &list->u.list[i]);
    }
    attrs_set_strs(m, def, attrs, name, n, s);
  } else if (list_has_tag(list, LATHE_FLOAT) || (f && f->kind == AT_F64S)) {
    double *d = arena_array(a, double, n);
    for (int i = 0; i < n; i++) {
      const LatheValue *x = &list->u.list[i];
      if (x->tag == LATHE_OBJECT || x->tag == LATHE_STR)
        raise(c->ctx, ERR_TYPE, NOWHERE, "attribute '%s' is a list of numbers, and element %d is none", name, i);
      d[i] = x->tag == LATHE_FLOAT ? x->u.f : (double)x->u.i;
    }
    attrs_set_f64s(m, def, attrs, name, n, d);
  } else {
    int64_t *d = arena_array(a, int64_t, n);
    for (int i = 0; i < n; i++) {
      const Expr *e = list->u.list[i].tag == LATHE_OBJECT ? api_value_expr(c, m, &list->u.list[i]) : NULL;
      if (e && e->kind != E_INT) raise(c->ctx, ERR_TYPE, NOWHERE, "attribute '%s' is a list of integers", name);
      d[i] = e ? e->u.i : list->u.list[i].u.i;
    }
    attrs_set_ints(m, def, attrs, name, n, d);
  }
}

static void *read_attrs(Call *c, Module *m, const OpDef *op, int i)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  void *attrs = op->attrs ? attrs_new(m, op->attrs) : NULL;
  for (int k = 0; k < n; k++) {
    const char *name = api_value_text(c, &v[k].u.list[0]);
    const LatheValue *x = &v[k].u.list[1];
    const AttrField *f = attrs_field(op->attrs, name);
    if (!f) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s has no attribute '%s'", op->name, name);
    switch ((LatheTag)x->tag) {
    case LATHE_NONE: attrs_set_text(m, op->attrs, attrs, name, "None"); break;
    case LATHE_BOOL:
    case LATHE_INT: attrs_set_int(m, op->attrs, attrs, name, x->u.i); break;
    case LATHE_FLOAT: attrs_set_f64(m, op->attrs, attrs, name, x->u.f); break;
    case LATHE_STR: attrs_set_str(m, op->attrs, attrs, name, api_value_text(c, x)); break;
    case LATHE_LIST: set_list(c, m, op->attrs, attrs, name, x); break;
    case LATHE_OBJECT: attrs_set_dims(m, op->attrs, attrs, name, 1, (const Expr *[]){api_value_expr(c, m, x)}); break;
    }
  }
  return attrs;
}

/* ---- operators ------------------------------------------------------------------------ */

static const char *const attr_kind_names[] = {"bool",      "int",         "float",     "str",      "dtype",
                                              "list[int]", "list[float]", "list[str]", "list[dim]"};

static void op_row(Call *c, const OpDef *op, LatheValue *row)
{
  LatheValue *v = api_val_list(c, 8, row);
  v[0] = api_val_str(c, op->name);
  v[1] = api_val_str(c, op->doc);
  v[2] = api_val_str(c, op->args);
  v[3] = api_val_int(op->min_args);
  v[4] = api_val_int(op->max_args);
  v[5] = api_val_int(op->fuse);
  v[6] = api_val_int(op->flags);
  LatheValue *a = api_val_list(c, op->attrs ? op->attrs->n : 0, &v[7]);
  for (int i = 0; op->attrs && i < op->attrs->n; i++) {
    const AttrField *f = &op->attrs->field[i];
    LatheValue *r = api_val_list(c, 4, &a[i]);
    r[0] = api_val_str(c, f->name);
    r[1] = api_val_str(c, attr_kind_names[f->kind]);
    r[2] = api_val_str(c, f->def);
    r[3] = api_val_str(c, f->doc);
  }
}

static void op_table(Call *c)
{
  op_init();
  int n = 0;
  int count = opdef_count();
  const OpDef **op = arena_array(scratch(c->ctx), const OpDef *, count + 1);
  for (int i = 0; i < count; i++)
    if (*opdef_at(i)->name) op[n++] = opdef_at(i);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) op_row(c, op[i], &v[i]);
}

/* ---- nodes ---------------------------------------------------------------------------- */

static const char *const node_kind_names[] = {"var", "const", "call",   "apply", "tuple", "get",      "let",
                                              "if",  "func",  "global", "ctor",  "match", "call_tir", "op"};

static void node_kinds(Call *c)
{
  int n = (int)(sizeof node_kind_names / sizeof *node_kind_names);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = api_val_str(c, node_kind_names[i]);
}

static void new_var(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_var(m, api_arg_str(c, 1), api_arg_type(c, m, 2)));
}

void api_check_strings(Call *c, DType t, int64_t n, const void *data)
{
  size_t bytes;
  for (int64_t i = 0; dtype_is_string(t) && i < n; i++) {
    uint64_t number;
    memcpy(&number, (const char *)data + 8 * i, 8);
    if (!ctx_string_at(c->ctx, number, &bytes))
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "no string has the number %" PRIu64 "; string_numbers gives them", number);
  }
}

static void string_numbers(Call *c)
{
  const LatheValue *text;
  int n = api_arg_list(c, 0, &text);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = api_val_int((int64_t)ctx_string(c->ctx, text[i].u.s, (size_t)text[i].n));
}

static void string_texts(Call *c)
{
  const LatheValue *number;
  int n = api_arg_list(c, 0, &number);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) {
    size_t bytes;
    api_check_strings(c, DT_STRING, 1, &number[i].u.i);
    const char *s = ctx_string_at(c->ctx, (uint64_t)number[i].u.i, &bytes);
    v[i] = api_val_bytes(c, s, bytes);
  }
}

static void new_const(Call *c)
{
  Module *m = api_arg_world(c);
  const LatheValue *dim;
  int n = api_arg_list(c, 3, &dim);
  int64_t *shape = arena_array(scratch(c->ctx), int64_t, n);
  for (int i = 0; i < n; i++) shape[i] = dim[i].u.i;
  int64_t count = 1;
  for (int i = 0; i < n; i++)
    if (shape[i] < 0 || !int_mul(count, shape[i], &count))
      raise(c->ctx, ERR_SHAPE, NOWHERE, "a constant's dimension %d is %" PRId64, i, shape[i]);
  if (count && !api_arg_given(c, 1))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a constant of %" PRId64 " elements without their address", count);
  api_check_strings(c, api_arg_dtype(c, 2), count, (const void *)(intptr_t)api_arg_int(c, 1));
  *c->out =
      api_val_node(c, m, node_const_copy(m, api_arg_dtype(c, 2), n, shape, (const void *)(intptr_t)api_arg_int(c, 1)));
}

static void new_call(Call *c)
{
  op_init();
  Module *m = api_arg_world(c);
  const OpDef *op = opdef_get(c->ctx, api_arg_str(c, 1));
  const Node *const *arg;
  int n = api_arg_nodes(c, m, 2, &arg);
  void *attrs = read_attrs(c, m, op, 3);
  *c->out = api_val_node(c, m, node_call(m, op, n, arg, attrs, api_arg_str(c, 4)));
}

/* The world keeps what is read: the tensors given outlive the call with their operations. */
static void node_compute(Call *c)
{
  op_init();
  Module *m = api_arg_world(c);
  const Node *const *var;
  const void **in;
  const Tensor **out;
  int n = api_arg_nodes(c, m, 1, &var);
  if (api_arg_ptrs(c, m, 2, &in) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "node_compute: wants one tensor for each of the %d variables", n);
  const Tensor **kept = arena_copy(m->arena, in, (size_t)n * sizeof *in);
  int nout = graph_compute(m, n, var, kept, api_arg_node(c, m, 3), &out);
  LatheValue *v = api_val_list(c, nout, c->out);
  for (int i = 0; i < nout; i++) v[i] = api_val_tensor(c, out[i]);
}

static void new_apply(Call *c)
{
  Module *m = api_arg_world(c);
  const Node *const *arg;
  int n = api_arg_nodes(c, m, 2, &arg);
  *c->out = api_val_node(c, m, node_apply(m, api_arg_node(c, m, 1), n, arg));
}

static void new_tuple(Call *c)
{
  Module *m = api_arg_world(c);
  const Node *const *arg;
  int n = api_arg_nodes(c, m, 1, &arg);
  *c->out = api_val_node(c, m, node_tuple(m, n, arg));
}

static void new_get(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_get(m, api_arg_node(c, m, 1), api_arg_int32(c, 2, 0, INT32_MAX)));
}

static void new_let(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_let(m, api_arg_node(c, m, 1), api_arg_node(c, m, 2), api_arg_node(c, m, 3)));
}

static void new_if(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_if(m, api_arg_node(c, m, 1), api_arg_node(c, m, 2), api_arg_node(c, m, 3)));
}

static void new_func(Call *c)
{
  Module *m = api_arg_world(c);
  const Node *const *param;
  int n = api_arg_nodes(c, m, 1, &param);
  for (int i = 0; i < n; i++)
    if (param[i]->kind != N_VAR) raise(c->ctx, ERR_TYPE, NOWHERE, "parameter %d of a function is not a variable", i);
  Annots attrs = {0};
  api_arg_annots(c, m, 4, &attrs);
  *c->out = api_val_node(c, m, node_func(m, n, param, api_arg_node(c, m, 2), api_arg_type(c, m, 3), &attrs));
}

static void new_global(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, node_global(m, api_arg_str(c, 1)));
}

/* The fields by kind, in the order the doc of "node_fields" gives. */
static void node_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node *n = h->p;
  LatheValue *v;
  switch (n->kind) {
  case N_VAR:
    v = api_val_list(c, 1, c->out);
    v[0] = api_val_str(c, n->name);
    return;
  case N_CONST:
    v = api_val_list(c, 4, c->out);
    v[0] = api_val_int((int64_t)(intptr_t)n->u.data->data);
    v[1] = api_val_int((int64_t)n->u.data->bytes);
    v[2] = api_val_dtype(c, n->u.data->dtype);
    LatheValue *d = api_val_list(c, n->u.data->ndim, &v[3]);
    for (int i = 0; i < n->u.data->ndim; i++) d[i] = api_val_int(n->u.data->shape[i]);
    return;
  case N_CALL:
    v = api_val_list(c, 4, c->out);
    v[0] = api_val_str(c, n->u.call.op->name);
    v[1] = val_nodes(c, h->m, n->nargs, n->arg);
    v[2] = api_val_attrs(c, h->m, n->u.call.op->attrs, n->u.call.attrs);
    v[3] = api_val_str(c, n->name);
    return;
  case N_APPLY:
  case N_TUPLE:
  case N_LET:
  case N_IF: *c->out = val_nodes(c, h->m, n->nargs, n->arg); return;
  case N_GET:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_node(c, h->m, n->arg[0]);
    v[1] = api_val_int(n->u.index);
    return;
  case N_FUNC:
    v = api_val_list(c, 4, c->out);
    v[0] = val_nodes(c, h->m, fn_nparams(n), n->arg);
    v[1] = api_val_node(c, h->m, fn_body(n));
    v[2] = api_val_type(c, h->m, n->u.func->ret);
    v[3] = api_val_annots(c, h->m, &n->u.func->attrs);
    return;
  case N_GLOBAL:
    v = api_val_list(c, 1, c->out);
    v[0] = api_val_str(c, n->u.global);
    return;
  case N_CTOR:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_str(c, n->u.ctor->name);
    v[1] = api_val_str(c, n->u.ctor->data->name);
    return;
  case N_MATCH: *c->out = val_nodes(c, h->m, n->nargs, n->arg); return;
  case N_CALL_TIR:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_str(c, n->u.tir.name);
    v[1] = val_nodes(c, h->m, n->nargs, n->arg);
    return;
  case N_OP:
    v = api_val_list(c, 1, c->out);
    v[0] = api_val_str(c, n->u.call.op->name);
    return;
  }
  BUG(c->ctx, "node of kind %d", n->kind);
}

static void node_with(Call *c)
{
  Module *m = api_arg_world(c);
  const Node *n = api_arg_node(c, m, 1);
  const Node *const *arg;
  int given = api_arg_nodes(c, m, 2, &arg);
  if (given != n->nargs) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a node over %d nodes is given %d", n->nargs, given);
  *c->out = api_val_node(c, m, node_with_args(m, n, arg));
}

static void node_args(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node *n = h->p;
  *c->out = val_nodes(c, h->m, n->nargs, n->arg);
}

static void node_type(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  *c->out = api_val_type(c, h->m, ((const Node *)h->p)->type);
}

static void node_text(Call *c) { *c->out = api_val_str(c, graph_print(scratch(c->ctx), api_arg_ptr(c, 0))); }

static void node_equal(Call *c)
{
  const char *why = NULL;
  LatheValue *v = api_val_list(c, 2, c->out);
  bool (*equal)(const Node *, const Node *, Arena *, const char **) =
      api_arg_bool(c, 2) ? graph_equal : graph_equal_open;
  v[0] = api_val_bool(equal(api_arg_ptr(c, 0), api_arg_ptr(c, 1), scratch(c->ctx), &why));
  v[1] = api_val_str(c, why);
}

static void node_hash(Call *c) { *c->out = api_val_int((int64_t)graph_hash(api_arg_ptr(c, 0), scratch(c->ctx))); }

static void node_infer(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_node(c, m, graph_infer(m, api_arg_node(c, m, 1)));
}

static void node_parse(Call *c)
{
  op_init();
  Module *m = api_arg_world(c);
  *c->out =
      api_val_node(c, m, graph_parse_expr(m, api_arg_str(c, 1), api_arg_given(c, 2) ? api_arg_str(c, 2) : "<text>"));
}

static void node_free_vars(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node **v;
  int n = graph_free_vars(scratch(c->ctx), h->p, &v);
  *c->out = val_nodes(c, h->m, n, v);
}

static void node_post_order(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Node **v;
  int n = graph_post_order(scratch(c->ctx), h->p, &v);
  *c->out = val_nodes(c, h->m, n, v);
}

static void node_bind(Call *c)
{
  Module *m = api_arg_world(c);
  const Node *const *var, *const *value;
  int n = api_arg_nodes(c, m, 2, &var);
  if (api_arg_nodes(c, m, 3, &value) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "bind: as many values as variables are wanted");
  Map map = {0};
  for (int i = 0; i < n; i++) map_put(scratch(c->ctx), &map, var[i], (void *)value[i]);
  *c->out = api_val_node(c, m, graph_substitute(m, api_arg_node(c, m, 1), &map));
}

const ApiFunction api_graph_functions[] = {
  {"type_kinds", " -> list[str]", "names of the kinds of types", type_kinds},
  {"tensor_type", "world: world, shape: list[expr?]?, dtype: str -> type",
   "none among the dimensions: any size; no shape: any rank", new_tensor_type},
  {"tuple_type", "world: world, fields: list[type] -> type", "the type of a tuple", new_tuple_type},
  {"func_type", "world: world, params: list[type], ret: type -> type", "the type of a function", new_func_type},
  {"simple_type", "world: world, kind: str, element: type? -> type", "sequence, optional or object", new_simple_type},
  {"type_fields", "t: type -> list[any]",
   "kind, dtype, shape (none: any rank; a size named ? is any size), fields, result", type_parts},
  {"type_text", "t: type -> str", "as Relay writes it", type_to_text},
  {"type_equal", "a: type, b: type -> bool", "the same type?", types_equal},
  {"op_table", " -> list[list[any]]",
   "operators: name, doc, arguments, least and most of them, fusion kind, flags, attributes", op_table},
  {"node_kinds", " -> list[str]", "names of the kinds of nodes", node_kinds},
  {"node_var", "world: world, name: str, type: type? -> node", "a variable", new_var},
  {"node_const", "world: world, address: address?, dtype: str, shape: list[int] -> node",
   "a constant; the bytes are copied", new_const},
  {"string_numbers", "texts: list[str] -> list[int]", "the numbers that constants of strings have for elements",
   string_numbers},
  {"string_texts", "numbers: list[int] -> list[str]", "the strings of these numbers", string_texts},
  {"node_call", "world: world, op: str, args: list[node], attrs: list[[str, setting]]?, name: str? -> node",
   "a call of an operator", new_call},
  {"node_compute", "world: world, vars: list[node], tensors: list[tensor], body: node -> list[tensor]",
   "the tensors that an expression over variables computes of tensors that stand for them", node_compute},
  {"node_apply", "world: world, f: node, args: list[node] -> node", "a call of a function", new_apply},
  {"node_tuple", "world: world, fields: list[node] -> node", "a tuple", new_tuple},
  {"node_get", "world: world, tuple: node, index: int -> node", "a field of a tuple", new_get},
  {"node_let", "world: world, var: node, value: node, body: node -> node", "let", new_let},
  {"node_if", "world: world, cond: node, then: node, orelse: node -> node", "if", new_if},
  {"node_func", "world: world, params: list[node], body: node, ret: type?, attrs: list[annotation]? -> node",
   "a function", new_func},
  {"node_global", "world: world, name: str -> node", "a function of the module, by name", new_global},
  {"node_fields", "n: node -> list[any]",
   "var: name; const: address, bytes, dtype, shape; call: operator, arguments, attributes, name; get: tuple, index; "
   "func: parameters, body, "
   "type of the result, attributes; global: name; others: their nodes",
   node_fields},
  {"node_args", "n: node -> list[node]", "the nodes it stands on", node_args},
  {"node_with_args", "world: world, n: node, args: list[node] -> node", "the same over other nodes", node_with},
  {"node_type", "n: node -> type?", "its type, if it was inferred", node_type},
  {"node_text", "n: node -> str", "Relay text", node_text},
  {"node_equal", "a: node, b: node, map_free: bool? -> list[any]",
   "the same up to names? and the first difference; free variables must be the same, or with map_free be renamed one "
   "to one",
   node_equal},
  {"node_hash", "n: node -> int", "equal for equal graphs", node_hash},
  {"node_parse", "world: world, text: str, file: str? -> node", "reads an expression of Relay text", node_parse},
  {"node_infer", "world: world, n: node -> node", "with types everywhere", node_infer},
  {"node_free_vars", "n: node -> list[node]", "variables not bound inside, in order of first use", node_free_vars},
  {"node_post_order", "n: node -> list[node]", "all nodes below, arguments first, each once", node_post_order},
  {"node_bind", "world: world, n: node, vars: list[node], values: list[node] -> node", "variables replaced", node_bind},
  {0},
};
