/* api_tir.c: statements, functions and modules of functions.
 *
 * In: statements made in a world, or text.  Out: functions, each in a module of
 * its own, which nothing changes afterwards: a handle given out stays what it was. */
#include "api/api.h"

/* ---- statements ------------------------------------------------------------------ */

static Module *stmt_module(const LatheValue *v) { return ((const Handle *)v->u.p)->m; }

/* A statement that may become part of another: one that is part already, or stands in another module, is copied. */
static Stmt *take_stmt(Call *c, Module *m, const LatheValue *v)
{
  if (v->tag == LATHE_NONE) return NULL;
  Stmt *s = (Stmt *)api_value_ptr(v);
  if (stmt_module(v) != m) return stmt_import(api_importer(c, m, stmt_module(v)), s);
  return s->parent ? stmt_clone(m, s) : s;
}

static Stmt *arg_stmt(Call *c, Module *m, int i) { return take_stmt(c, m, &c->arg[i]); }

static void make_seq(Call *c)
{
  Module *m = api_arg_world(c);
  const LatheValue *v;
  int n = api_arg_list(c, 1, &v);
  Stmt **s = arena_array(scratch(c->ctx), Stmt *, n + 1);
  for (int i = 0; i < n; i++) {
    s[i] = take_stmt(c, m, &v[i]);
    for (int k = 0; k < i; k++)
      if (s[k] == s[i]) s[i] = stmt_clone(m, s[i]);
  }
  *c->out = api_val_stmt(c, m, stmt_seq(m, n, s));
}

static const char *const for_kinds[] = {"serial", "parallel", "vectorized", "unrolled", "thread_binding"};

static ForKind for_kind(Call *c, int i)
{
  const char *s = api_arg_str(c, i);
  for (int k = 0; k <= FOR_THREAD; k++)
    if (!strcmp(s, for_kinds[k])) return (ForKind)k;
  if (!strcmp(s, "vectorize")) return FOR_VECTORIZED;
  if (!strcmp(s, "unroll")) return FOR_UNROLLED;
  raise(c->ctx, ERR_ARGUMENT, NOWHERE,
        "unknown kind of loop '%s'; known are serial, parallel, vectorize, unroll, thread_binding", s);
}

static void make_for(Call *c)
{
  Module *m = api_arg_world(c);
  ForKind kind = for_kind(c, 4);
  const Var *var = api_arg_var(c, m, 1);
  const Expr *min = api_arg_expr(c, m, 2);
  const Expr *extent = api_arg_expr(c, m, 3);
  if (expr_is_const(min)) min = expr_cast(m, var->dtype, min);
  if (expr_is_const(extent)) extent = expr_cast(m, var->dtype, extent);
  Stmt *body = arg_stmt(c, m, 6);
  Stmt *s = stmt_for(m, var, min, extent, kind, api_arg_str(c, 5), body);
  api_arg_annots(c, m, 7, &s->u.loop.annots);
  *c->out = api_val_stmt(c, m, s);
}

static void make_if(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *cond = api_arg_expr(c, m, 1);
  Stmt *then = arg_stmt(c, m, 2);
  Stmt *orelse = arg_stmt(c, m, 3);
  *c->out = api_val_stmt(c, m, stmt_if(m, cond, then, orelse));
}

static void make_while(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *cond = api_arg_expr(c, m, 1);
  *c->out = api_val_stmt(c, m, stmt_while(m, cond, arg_stmt(c, m, 2)));
}

static void make_let(Call *c)
{
  Module *m = api_arg_world(c);
  const Var *var = api_arg_var(c, m, 1);
  const Expr *value = api_arg_expr(c, m, 2);
  if (expr_is_const(value)) value = expr_cast(m, var->dtype, value);
  *c->out = api_val_stmt(c, m, stmt_let(m, var, value, arg_stmt(c, m, 3)));
}

static void make_store(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **index;
  const Buffer *b = api_value_buffer(c, m, &c->arg[1]);
  int n = api_arg_exprs(c, m, 2, &index);
  *c->out = api_val_stmt(c, m, stmt_store(m, b, n, index, api_arg_expr(c, m, 3)));
}

static void make_alloc(Call *c)
{
  Module *m = api_arg_world(c);
  const Buffer *b = api_value_buffer(c, m, &c->arg[1]);
  *c->out = api_val_stmt(c, m, stmt_alloc(m, b, arg_stmt(c, m, 2)));
}

static void make_eval(Call *c)
{
  Module *m = api_arg_world(c);
  *c->out = api_val_stmt(c, m, stmt_eval(m, api_arg_expr(c, m, 1)));
}

static void make_attr(Call *c)
{
  Module *m = api_arg_world(c);
  const Var *node = api_arg_var(c, m, 1);
  const Expr *value = api_arg_expr(c, m, 3);
  *c->out = api_val_stmt(c, m, stmt_attr(m, node, api_arg_str(c, 2), value, arg_stmt(c, m, 4)));
}

static void stmt_text(Call *c) { *c->out = api_val_str(c, stmt_print_compact(scratch(c->ctx), api_arg_ptr(c, 0))); }

static void stmt_kinds(Call *c)
{
  static const char *const names[] = {"seq", "for", "if", "while", "let", "store", "alloc", "eval", "attr", "block"};
  LatheValue *v = api_val_list(c, S_BLOCK + 1, c->out);
  for (int i = 0; i <= S_BLOCK; i++) v[i] = api_val_str(c, names[i]);
}

static LatheValue val_region(Call *c, Module *m, const Region *r)
{
  LatheValue out;
  LatheValue *v = api_val_list(c, 3, &out);
  v[0] = api_val_buffer(c, m, r->buffer);
  v[1] = api_val_exprs(c, m, r->buffer->ndim, r->min);
  v[2] = api_val_exprs(c, m, r->buffer->ndim, r->extent);
  return out;
}

/* name, [var, min, extent, kind, value]…, predicate, reads, writes, allocated, annotations, init, body,
 * [view, source]… */
static void block_fields(Call *c, Module *m, Block *b)
{
  LatheValue *v = api_val_list(c, 10, c->out);
  v[0] = api_val_str(c, b->name);
  LatheValue *iter = api_val_list(c, b->niter, &v[1]);
  for (int i = 0; i < b->niter; i++) {
    LatheValue *row = api_val_list(c, 5, &iter[i]);
    row[0] = api_val_var(c, m, b->iter[i].var);
    row[1] = api_val_expr(c, m, b->iter[i].min);
    row[2] = api_val_expr(c, m, b->iter[i].extent);
    row[3] = api_val_int(b->iter[i].kind);
    row[4] = api_val_expr(c, m, b->iter[i].value);
  }
  v[2] = api_val_expr(c, m, b->predicate);
  LatheValue *reads = api_val_list(c, b->nreads, &v[3]);
  LatheValue *writes = api_val_list(c, b->nwrites, &v[4]);
  for (int i = 0; i < b->nreads; i++) reads[i] = val_region(c, m, &b->reads[i]);
  for (int i = 0; i < b->nwrites; i++) writes[i] = val_region(c, m, &b->writes[i]);
  LatheValue *allocs = api_val_list(c, b->nallocs, &v[5]);
  for (int i = 0; i < b->nallocs; i++) allocs[i] = api_val_buffer(c, m, b->allocs[i]);
  v[6] = api_val_annots(c, m, &b->annots);
  v[7] = api_val_stmt(c, m, b->init);
  v[8] = api_val_stmt(c, m, b->body);
  LatheValue *matches = api_val_list(c, b->nmatches, &v[9]);
  for (int i = 0; i < b->nmatches; i++) {
    LatheValue *row = api_val_list(c, 2, &matches[i]);
    row[0] = api_val_buffer(c, m, b->matches[i].buffer);
    row[1] = val_region(c, m, &b->matches[i].source);
  }
}

static void stmt_fields(Call *c)
{
  Module *m = api_arg_handle(c, 0)->m;
  Stmt *s = (Stmt *)api_arg_ptr(c, 0);
  LatheValue *v;
  switch (s->kind) {
  case S_SEQ:
    v = api_val_list(c, s->u.seq.n, c->out);
    for (int i = 0; i < s->u.seq.n; i++) v[i] = api_val_stmt(c, m, s->u.seq.v[i]);
    return;
  case S_FOR:
    v = api_val_list(c, 7, c->out);
    v[0] = api_val_var(c, m, s->u.loop.var);
    v[1] = api_val_expr(c, m, s->u.loop.min);
    v[2] = api_val_expr(c, m, s->u.loop.extent);
    v[3] = api_val_str(c, for_kinds[s->u.loop.kind]);
    v[4] = api_val_str(c, s->u.loop.thread_tag);
    v[5] = api_val_annots(c, m, &s->u.loop.annots);
    v[6] = api_val_stmt(c, m, s->u.loop.body);
    return;
  case S_IF:
    v = api_val_list(c, 3, c->out);
    v[0] = api_val_expr(c, m, s->u.cond.cond);
    v[1] = api_val_stmt(c, m, s->u.cond.then);
    v[2] = api_val_stmt(c, m, s->u.cond.orelse);
    return;
  case S_WHILE:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_expr(c, m, s->u.loop_while.cond);
    v[1] = api_val_stmt(c, m, s->u.loop_while.body);
    return;
  case S_LET:
    v = api_val_list(c, 3, c->out);
    v[0] = api_val_var(c, m, s->u.let.var);
    v[1] = api_val_expr(c, m, s->u.let.value);
    v[2] = api_val_stmt(c, m, s->u.let.body);
    return;
  case S_STORE:
    v = api_val_list(c, 3, c->out);
    v[0] = api_val_buffer(c, m, s->u.store.buffer);
    v[1] = api_val_exprs(c, m, s->u.store.n, s->u.store.index);
    v[2] = api_val_expr(c, m, s->u.store.value);
    return;
  case S_ALLOC:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_buffer(c, m, s->u.alloc.buffer);
    v[1] = api_val_stmt(c, m, s->u.alloc.body);
    return;
  case S_EVAL: api_val_list(c, 1, c->out)[0] = api_val_expr(c, m, s->u.eval.value); return;
  case S_ATTR:
    v = api_val_list(c, 4, c->out);
    v[0] = api_val_var(c, m, s->u.attr.node);
    v[1] = api_val_str(c, s->u.attr.key);
    v[2] = api_val_expr(c, m, s->u.attr.value);
    v[3] = api_val_stmt(c, m, s->u.attr.body);
    return;
  case S_BLOCK: block_fields(c, m, s->u.block); return;
  }
}

/* ---- functions --------------------------------------------------------------------------- */

static void make_func(Call *c)
{
  Module *m = api_arg_world(c);
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  Param *p = arena_array(scratch(c->ctx), Param, n + 1);
  for (int i = 0; i < n; i++) {
    if (api_value_is(&v[i], LATHE_BUFFER)) p[i].buffer = api_value_buffer(c, m, &v[i]), p[i].var = p[i].buffer->data;
    else p[i].var = api_value_var(c, m, &v[i]);
  }
  PrimFunc *f = func_new(m, api_arg_str(c, 1), n, p, arg_stmt(c, m, 3));
  *c->out = api_val_func(c, func_import(api_new_module(c), f));
}

static void func_fields(Call *c)
{
  const PrimFunc *f = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, 4, c->out);
  v[0] = api_val_str(c, f->name);
  LatheValue *param = api_val_list(c, f->nparam, &v[1]);
  for (int i = 0; i < f->nparam; i++) {
    LatheValue *row = api_val_list(c, 2, &param[i]);
    row[0] = api_val_var(c, f->m, f->param[i].var);
    row[1] = api_val_buffer(c, f->m, f->param[i].buffer);
  }
  v[2] = api_val_annots(c, f->m, &f->attrs);
  v[3] = api_val_stmt(c, f->m, f->body);
}

static void func_script(Call *c) { *c->out = api_val_str(c, func_print(scratch(c->ctx), api_arg_ptr(c, 0))); }
static void func_compact(Call *c) { *c->out = api_val_str(c, func_print_compact(scratch(c->ctx), api_arg_ptr(c, 0))); }

/* The name is also the attribute global_symbol, where a function has that. */
static void rename_func(PrimFunc *f, const char *name)
{
  f->name = arena_strdup(f->m->arena, name);
  if (annots_get(&f->attrs, "global_symbol")) annots_set(f->m->arena, &f->attrs, "global_symbol", expr_str(f->m, name));
}

/* A copy under another name or with attributes set; a None value removes one. */
static void func_with(Call *c)
{
  PrimFunc *f = func_import(api_new_module(c), api_arg_ptr(c, 0));
  if (api_arg_given(c, 1)) rename_func(f, api_arg_str(c, 1));
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  for (int i = 0; i < n; i++) {
    const char *key = api_value_text(c, &v[i].u.list[0]);
    const Expr *value = api_value_expr(c, f->m, &v[i].u.list[1]);
    if (value) annots_set(f->m->arena, &f->attrs, key, value);
    else annots_remove(&f->attrs, key);
  }
  *c->out = api_val_func(c, f);
}

/* Each variable must be one that the function's parameters tell. */
static void func_bind_vars(Call *c)
{
  const PrimFunc *f = api_arg_ptr(c, 0);
  const Var **vars;
  const Expr **values;
  int n = api_arg_vars(c, f->m, 1, &vars);
  if (api_arg_exprs(c, f->m, 2, &values) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "specialize: %d variables want as many values", n);
  Map map = {0};
  for (int i = 0; i < n; i++) {
    if (!dtype_eq(values[i]->dtype, vars[i]->dtype)) values[i] = expr_cast(f->m, vars[i]->dtype, values[i]);
    map_put(scratch(c->ctx), &map, vars[i], (void *)(uintptr_t)values[i]);
  }
  *c->out = api_val_func(c, func_import(api_new_module(c), func_specialize(f, &map)));
}

static void func_is_equal(Call *c)
{
  const char *why = "";
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_bool(func_equal(api_arg_ptr(c, 0), api_arg_ptr(c, 1), scratch(c->ctx), &why));
  v[1] = api_val_str(c, why ? why : "");
}

static void func_hash_of(Call *c) { *c->out = api_val_int((int64_t)func_hash(api_arg_ptr(c, 0))); }

static void func_check_all(Call *c)
{
  func_check(api_arg_ptr(c, 0));
  func_check_bounds(api_arg_ptr(c, 0));
}

/* A tensor is [address, dtype, shape, strides or none], a scalar [value, dtype]. */
TirArg api_value_tir_arg(Call *c, const LatheValue *v)
{
  const LatheValue *f = v->u.list;
  TirArg a = {.dtype = api_value_dtype(c, &f[1])};
  if (v->n == 2) {
    a.scalar =
        value_cast(f[0].tag == LATHE_FLOAT ? value_float(DT_F64, f[0].u.f) : value_int(DT_I64, f[0].u.i), a.dtype);
    return a;
  }
  a.data = (void *)(uintptr_t)f[0].u.i;
  a.ndim = (int)f[2].n;
  int64_t *shape = arena_array(scratch(c->ctx), int64_t, a.ndim + 1);
  int64_t *strides = NULL;
  for (int i = 0; i < a.ndim; i++) shape[i] = f[2].u.list[i].u.i;
  if (f[3].tag == LATHE_LIST) {
    if (f[3].n != f[2].n)
      raise(c->ctx, ERR_SHAPE, NOWHERE, "%s: %" PRId64 " strides for %" PRId64 " dimensions", c->function->name, f[3].n,
            f[2].n);
    strides = arena_array(scratch(c->ctx), int64_t, a.ndim + 1);
    for (int i = 0; i < a.ndim; i++) strides[i] = f[3].u.list[i].u.i;
  }
  a.shape = shape;
  a.strides = strides;
  return a;
}

static void interpret(Call *c)
{
  const LatheValue *v;
  int n = api_arg_list(c, 1, &v);
  TirArg *a = arena_array(scratch(c->ctx), TirArg, n + 1);
  for (int i = 0; i < n; i++) a[i] = api_value_tir_arg(c, &v[i]);
  func_interpret(api_arg_ptr(c, 0), n, a);
}

/* ---- modules of functions ------------------------------------------------------------------- */

static Module *arg_module(Call *c, int i) { return (Module *)api_arg_ptr(c, i); }
static void make_module(Call *c)
{
  Module *m = api_new_module(c);
  *c->out = api_val_object(c, LATHE_MODULE, m, 0, m, NULL);
}

static void module_set_func(Call *c)
{
  Module *m = arg_module(c, 0);
  const char *name = api_arg_str(c, 1);
  PrimFunc *f = func_import(m, api_arg_ptr(c, 2));
  f->name = arena_strdup(m->arena, name); /* global_symbol, under which it is exported, stays */
  module_set(m, name, GLOBAL_TIR, f);
}

static void module_get_func(Call *c)
{
  Global *g = module_get(arg_module(c, 0), api_arg_str(c, 1));
  *c->out = g && g->kind == GLOBAL_TIR ? api_val_func(c, g->func) : api_val_none();
}

static void module_names(Call *c)
{
  Module *m = arg_module(c, 0);
  LatheValue *v = api_val_list(c, m->globals.n, c->out);
  for (int i = 0; i < m->globals.n; i++) v[i] = api_val_str(c, m->globals.v[i].name);
}

static void module_script(Call *c) { *c->out = api_val_str(c, tir_print_module(scratch(c->ctx), arg_module(c, 0))); }

/* ---- text ------------------------------------------------------------------------------------- */

static ScriptName script_value(Call *c, Module *m, const char *name, const LatheValue *v)
{
  ScriptName s = {.name = name};
  switch ((LatheTag)v->tag) {
  case LATHE_BOOL: s.kind = NAME_BOOL, s.u.i = v->u.i; return s;
  case LATHE_INT: s.kind = NAME_INT, s.u.i = v->u.i; return s;
  case LATHE_FLOAT: s.kind = NAME_FLOAT, s.u.f = v->u.f; return s;
  case LATHE_STR: s.kind = NAME_STR, s.u.s = api_value_text(c, v); return s;
  case LATHE_OBJECT: s.kind = NAME_EXPR, s.u.e = api_value_expr(c, m, v); return s;
  case LATHE_LIST: {
    ScriptName *item = arena_array(scratch(c->ctx), ScriptName, v->n + 1);
    for (int64_t i = 0; i < v->n; i++) item[i] = script_value(c, m, "", &v->u.list[i]);
    s.kind = NAME_LIST, s.u.list.v = item, s.u.list.n = (int)v->n;
    return s;
  }
  case LATHE_NONE: break;
  }
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "script: the name '%s' has no value that text can use", name);
}

/* [name, value] pairs; a third item "dtype" says that the str value is a dtype. */
static int script_names(Call *c, Module *m, int i, ScriptName **out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = arena_array(scratch(c->ctx), ScriptName, n + 1);
  for (int k = 0; k < n; k++) {
    const LatheValue *pair = v[k].u.list;
    (*out)[k] = script_value(c, m, api_value_text(c, &pair[0]), &pair[1]);
    if (v[k].n == 3 && (*out)[k].kind == NAME_STR) (*out)[k].kind = NAME_DTYPE;
  }
  return n;
}

static void parse_module(Call *c)
{
  Module *m = api_new_module(c);
  ScriptName *names;
  int n = script_names(c, m, 3, &names);
  const char *file = api_arg_given(c, 1) ? arena_strdup(m->arena, api_arg_str(c, 1)) : NULL;
  tir_parse_module(m, api_arg_str(c, 0), file, api_arg_int32(c, 2, 0, 1 << 30), n, names);
  *c->out = api_val_object(c, LATHE_MODULE, m, 0, m, NULL);
}

static void parse_func(Call *c)
{
  Module *m = api_new_module(c);
  ScriptName *names;
  int n = script_names(c, m, 3, &names);
  const char *file = api_arg_given(c, 1) ? arena_strdup(m->arena, api_arg_str(c, 1)) : NULL;
  *c->out = api_val_func(c, func_parse(m, api_arg_str(c, 0), file, api_arg_int32(c, 2, 0, 1 << 30), n, names));
}

const ApiFunction api_tir_functions[] = {
  {"stmt_seq", "world: world, stmts: list[stmt] -> stmt", "one after the other", make_seq},
  {"stmt_for",
   "world: world, var: var, min: expr, extent: expr, kind: str, thread_tag: str?, body: stmt, annotations: "
   "list[annotation]? -> stmt",
   "a loop", make_for},
  {"stmt_if", "world: world, cond: expr, then: stmt, orelse: stmt? -> stmt", "a branch", make_if},
  {"stmt_while", "world: world, cond: expr, body: stmt -> stmt", "a loop on a condition", make_while},
  {"stmt_let", "world: world, var: var, value: expr, body: stmt -> stmt", "var = value in body", make_let},
  {"stmt_store", "world: world, buffer: buffer, indices: list[expr], value: expr -> stmt", "buffer[indices] = value",
   make_store},
  {"stmt_alloc", "world: world, buffer: buffer, body: stmt -> stmt", "buffer exists in body", make_alloc},
  {"stmt_eval", "world: world, value: expr -> stmt", "evaluate for its effect", make_eval},
  {"stmt_attr", "world: world, node: var?, key: str, value: expr|str, body: stmt -> stmt", "an attribute of body",
   make_attr},
  {"stmt_text", "s: stmt -> str", "compact text", stmt_text},
  {"stmt_kinds", " -> list[str]", "names of the kinds of statements, by number", stmt_kinds},
  {"stmt_fields", "s: stmt -> list[any]", "the parts of a statement, by its kind", stmt_fields},
  {"primfunc", "world: world, name: str, params: list[var|buffer], body: stmt -> primfunc", "a function", make_func},
  {"primfunc_fields", "f: primfunc -> list[any]", "name, parameters (variable, buffer), attributes, body", func_fields},
  {"primfunc_script", "f: primfunc -> str", "TVMScript", func_script},
  {"primfunc_compact", "f: primfunc -> str", "compact text", func_compact},
  {"primfunc_with", "f: primfunc, name: str?, attrs: list[annotation]? -> primfunc",
   "a copy with another name or attributes", func_with},
  {"primfunc_specialize", "f: primfunc, vars: list[var], values: list[expr] -> primfunc",
   "a copy where variables of its parameters have values", func_bind_vars},
  {"primfunc_equal", "a: primfunc, b: primfunc -> list[any]", "structural equality, and the first difference",
   func_is_equal},
  {"primfunc_hash", "f: primfunc -> int", "structural hash", func_hash_of},
  {"primfunc_check", "f: primfunc -> none", "raises if it is not well formed or reads out of bounds", func_check_all},
  {"primfunc_interpret", "f: primfunc, args: list[argument] -> none", "runs it naively", interpret},
  {"module", " -> module", "an empty module", make_module},
  {"module_set", "m: module, name: str, f: primfunc -> none", "adds or replaces a function", module_set_func},
  {"module_get", "m: module, name: str -> primfunc?", "a function by name", module_get_func},
  {"module_names", "m: module -> list[str]", "names of the functions", module_names},
  {"module_script", "m: module -> str", "TVMScript", module_script},
  {"parse_module", "text: str, file: str?, line: int, names: list[[str, script]|[str, script, str]] -> module",
   "a module from TVMScript", parse_module},
  {"parse_primfunc", "text: str, file: str?, line: int, names: list[[str, script]|[str, script, str]] -> primfunc",
   "a function from TVMScript", parse_func},
  {0},
};
