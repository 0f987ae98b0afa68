/* api_node.c: looking into expressions, axes, buffers and reducers; the lists by
 * which a language binding makes its classes and functions.
 *
 * In: handles.  Out: fields, in the order each function's doc gives. */
#include "api/api.h"

static void expr_dtype(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  DType t = h->kind == LATHE_VAR       ? ((const Var *)h->p)->dtype
            : h->kind == LATHE_ITERVAR ? ((const IterVar *)h->p)->var->dtype
                                       : ((const Expr *)h->p)->dtype;
  *c->out = api_val_dtype(c, t);
}

static const Expr *expr_of(const Handle *h)
{
  return h->kind == LATHE_VAR       ? var_expr(h->p)
         : h->kind == LATHE_ITERVAR ? var_expr(((const IterVar *)h->p)->var)
                                    : h->p;
}

static void expr_text(Call *c)
{
  Namer namer = {.arena = scratch(c->ctx)};
  Text t = text_new(scratch(c->ctx));
  expr_print(&t, &namer, api_arg_bool(c, 1) ? PRINT_COMPACT : PRINT_SCRIPT, expr_of(api_arg_handle(c, 0)));
  *c->out = api_val_str(c, text_str(&t));
}

static void reduce_fields(Call *c, Module *m, const Expr *e)
{
  const Reduce *r = e->u.reduce;
  int n = r->reducer->n;
  LatheValue *v = api_val_list(c, 6, c->out);
  v[0] = api_val_object(c, LATHE_REDUCER, r->reducer, 0, m, NULL);
  v[1] = api_val_exprs(c, m, n, e->arg);
  v[2] = api_val_itervars(c, m, r->naxis, r->axis);
  v[3] = api_val_expr(c, m, e->arg[n]);
  v[4] = api_val_exprs(c, m, r->has_init ? n : 0, e->arg + n + 1);
  v[5] = api_val_int(r->value_index);
}

static void expr_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  Module *m = h->m;
  const Expr *e = expr_of(h);
  LatheValue *v;
  switch ((ExprKind)e->kind) {
  case E_INT: api_val_list(c, 1, c->out)[0] = api_val_int(e->u.i); return;
  case E_FLOAT: api_val_list(c, 1, c->out)[0] = api_val_float(e->u.f); return;
  case E_STR: api_val_list(c, 1, c->out)[0] = api_val_str(c, e->u.str); return;
  case E_VAR:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_str(c, e->u.var->name);
    v[1] = api_val_bool(e->u.var->kind == VAR_SIZE);
    return;
  case E_LET:
    v = api_val_list(c, 3, c->out);
    v[0] = api_val_var(c, m, e->u.var);
    v[1] = api_val_expr(c, m, e->arg[0]);
    v[2] = api_val_expr(c, m, e->arg[1]);
    return;
  case E_LOAD:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_buffer(c, m, e->u.buffer);
    v[1] = api_val_exprs(c, m, e->nargs, e->arg);
    return;
  case E_CALL:
    v = api_val_list(c, 2, c->out);
    v[0] = api_val_str(c, intrin_info(e->u.intrin)->name);
    v[1] = api_val_exprs(c, m, e->nargs, e->arg);
    return;
  case E_RAMP:
  case E_BROADCAST:
    v = api_val_list(c, e->nargs + 1, c->out);
    for (int i = 0; i < e->nargs; i++) v[i] = api_val_expr(c, m, e->arg[i]);
    v[e->nargs] = api_val_int(dtype_is_scalable(e->dtype) ? -(e->dtype.lanes & MAX_LANES) : e->dtype.lanes);
    return;
  case E_REDUCE: reduce_fields(c, m, e); return;
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_CAST:
  case E_SELECT: *c->out = api_val_exprs(c, m, e->nargs, e->arg); return;
  case E_NKINDS: break;
  }
  BUG(c->ctx, "expression of kind %d", e->kind);
}

static void itervar_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const IterVar *iv = h->p;
  LatheValue *v = api_val_list(c, 5, c->out);
  v[0] = api_val_var(c, h->m, iv->var);
  v[1] = api_val_expr(c, h->m, iv->min);
  v[2] = api_val_expr(c, h->m, iv->extent);
  v[3] = api_val_int(iv->kind);
  v[4] = api_val_str(c, iv->thread_tag);
}

static void buffer_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Buffer *b = h->p;
  LatheValue *v = api_val_list(c, 10, c->out);
  v[0] = api_val_str(c, b->name);
  v[1] = api_val_dtype(c, b->dtype);
  v[2] = api_val_exprs(c, h->m, b->ndim, b->shape);
  v[3] = api_val_exprs(c, h->m, b->strides ? b->ndim : 0, b->strides);
  v[4] = api_val_expr(c, h->m, b->elem_offset);
  v[5] = api_val_str(c, b->scope);
  v[6] = api_val_int(b->align);
  v[7] = api_val_int(b->offset_factor);
  v[8] = api_val_var(c, h->m, b->data);
  v[9] = api_val_int(b->separators);
}

static void reducer_fields(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Reducer *r = h->p;
  LatheValue *v = api_val_list(c, 5, c->out);
  v[0] = api_val_str(c, r->name);
  LatheValue *lhs = api_val_list(c, r->n, &v[1]);
  LatheValue *rhs = api_val_list(c, r->n, &v[2]);
  for (int i = 0; i < r->n; i++) {
    lhs[i] = api_val_var(c, h->m, r->lhs[i]);
    rhs[i] = api_val_var(c, h->m, r->rhs[i]);
  }
  v[3] = api_val_exprs(c, h->m, r->n, r->result);
  v[4] = api_val_exprs(c, h->m, r->n, r->identity);
}

static void dtype_fields(Call *c)
{
  DType t = api_arg_dtype(c, 0);
  LatheValue *v = api_val_list(c, 4, c->out);
  v[0] = api_val_str(c, dtype_name(scratch(c->ctx), t));
  v[1] = api_val_int(t.code);
  v[2] = api_val_int(t.bits);
  v[3] = api_val_int(t.lanes);
}

static void dtype_limits(Call *c)
{
  DType t = api_arg_dtype(c, 0);
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = dtype_is_float(t) ? api_val_float(dtype_min(t)) : api_val_int(dtype_imin(t));
  v[1] = dtype_is_float(t) ? api_val_float(dtype_max(t)) : api_val_int(dtype_imax(t));
}

static void expr_equal(Call *c)
{
  const char *why = NULL;
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_bool(tir_expr_equal(expr_of(api_arg_handle(c, 0)), expr_of(api_arg_handle(c, 1)), api_arg_bool(c, 2),
                                     scratch(c->ctx), &why));
  v[1] = api_val_str(c, why);
}

static void free_vars(Call *c)
{
  Handle *h = api_arg_handle(c, 0);
  const Var **vars;
  int n = expr_free_vars(scratch(c->ctx), expr_of(h), &vars);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = api_val_var(c, h->m, vars[i]);
}

/* ---- lists for bindings ------------------------------------------------------------ */

static void expr_kinds(Call *c)
{
  LatheValue *v = api_val_list(c, E_NKINDS, c->out);
  for (int k = 0; k < E_NKINDS; k++) v[k] = api_val_str(c, expr_kind_name((ExprKind)k));
}

static void intrinsics(Call *c)
{
  LatheValue *v = api_val_list(c, IN_COUNT, c->out);
  for (int k = 0; k < IN_COUNT; k++) {
    const IntrinInfo *info = intrin_info((Intrin)k);
    LatheValue *row = api_val_list(c, 5, &v[k]);
    row[0] = api_val_str(c, info->name);
    row[1] = api_val_int(info->min_args);
    row[2] = api_val_int(info->max_args);
    row[3] = api_val_int(info->flags);
    row[4] = api_val_str(c, info->doc);
  }
}

const ApiFunction api_node_functions[] = {
  {"expr_dtype", "e: expression -> str", "dtype of an expression", expr_dtype},
  {"expr_text", "e: expression, compact: bool? -> str", "text of an expression", expr_text},
  {"expr_fields", "e: expression -> list[any]", "the parts of an expression, by its kind", expr_fields},
  {"expr_equal", "a: expression, b: expression, map_free: bool? -> list[any]",
   "structural equality, and the first difference; free variables must be the same, or with map_free be renamed one to "
   "one",
   expr_equal},
  {"free_vars", "e: expression -> list[var]", "free variables in order of first use", free_vars},
  {"itervar_fields", "axis: itervar -> list[any]", "var, min, extent, kind, thread tag", itervar_fields},
  {"buffer_fields", "buffer: buffer -> list[any]",
   "name, dtype, shape, strides, elem_offset, scope, align, offset_factor, data, bits of separators", buffer_fields},
  {"reducer_fields", "reducer: reducer -> list[any]", "name, lhs, rhs, result, identity", reducer_fields},
  {"dtype_fields", "dtype: str -> list[any]", "name, code, bits, lanes", dtype_fields},
  {"dtype_limits", "dtype: str -> list[any]", "smallest and largest finite value", dtype_limits},
  {"expr_kinds", " -> list[str]", "names of the kinds of expressions, by number", expr_kinds},
  {"intrinsics", " -> list[list[any]]", "the intrinsics: name, least and most arguments, flags, doc", intrinsics},
  {0},
};
