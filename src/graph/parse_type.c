/* parse_type.c: types and dimensions in Relay text.
 *
 *   type := 'Tensor' '[' (shape | '*') ',' dtype ']' | dtype | '(' types ')' | 'fn' '(' types ')' '->' type
 *         | 'Sequence' '[' type ']' | 'Optional' '[' type ']' | 'Prim' '[' dtype ']' | 'Shape' shape | 'Object'
 *         | Name ('[' types ']')? | '_'
 *   dim  := '?' | an expression over integers and size names, as expressions print */
#include "graph/relay.h"

#include <errno.h>
#include <stdlib.h>

int64_t graph_parse_int(Reader *r)
{
  bool minus = graph_lex_accept(r, "-");
  if (r->tok.kind != T_INT) graph_lex_error(r, "expected an integer, found '%.60s'", r->tok.text);
  errno = 0;
  long long v = strtoll(arena_printf(r->arena, "%s%s", minus ? "-" : "", r->tok.text), NULL, 10);
  if (errno) graph_lex_error(r, "%s%.60s does not fit into 64 bits", minus ? "-" : "", r->tok.text);
  graph_lex_next(r);
  return v;
}

/* ---- dimensions --------------------------------------------------------------------------- */

static const Expr *parse_level(Reader *, int level);

static const Expr *size_named(Reader *r, const char *name)
{
  const Var *v = strmap_get(&r->sizes, name);
  if (!v) strmap_put(r->arena, &r->sizes, name, (void *)(uintptr_t)(v = var_new(r->m, name, DT_I32, VAR_SIZE)));
  return v->expr;
}

static const Expr *parse_dim_call(Reader *r, const char *name)
{
  static const struct {
    const char *name;
    ExprKind kind;
  } two[] = {{"min", E_MIN}, {"max", E_MAX}, {"truncdiv", E_DIV}, {"truncmod", E_MOD}};
  const Expr *arg[3];
  int n = 0;
  DType t;
  do {
    if (n == 3) graph_lex_error(r, "'%.60s' has too many arguments", name);
    arg[n++] = parse_level(r, 0);
  } while (graph_lex_accept(r, ","));
  graph_lex_expect(r, ")");
  for (size_t i = 0; i < sizeof two / sizeof *two; i++)
    if (n == 2 && !strcmp(name, two[i].name)) return expr_binary(r->m, two[i].kind, arg[0], arg[1]);
  if (n == 3 && (!strcmp(name, "select") || !strcmp(name, "if_then_else")))
    return expr_select(r->m, arg[0], arg[1], arg[2]);
  if (n == 1 && dtype_parse(name, &t) && dtype_is_int(t) && t.lanes == 1) return expr_cast(r->m, t, arg[0]);
  graph_lex_error(r, "'%.60s' with %d arguments is nothing a dimension is made of", name, n);
}

static const Expr *parse_dim_atom(Reader *r)
{
  if (r->tok.kind == T_INT) {
    int64_t v = graph_parse_int(r);
    return expr_int(r->m, v > INT32_MAX ? DT_I64 : DT_I32, v);
  }
  if (graph_lex_accept(r, "-")) {
    graph_lex_enter(r);
    const Expr *e = parse_dim_atom(r);
    graph_lex_leave(r);
    int64_t v = 0;
    if (e->kind != E_INT) return expr_sub(r->m, expr_i32(r->m, 0), e);
    if (!int_sub(0, e->u.i, &v)) graph_lex_error(r, "a dimension overflows");
    return expr_int(r->m, e->dtype, v);
  }
  if (graph_lex_accept(r, "not")) {
    graph_lex_enter(r);
    const Expr *e = expr_not(r->m, parse_level(r, 2));
    graph_lex_leave(r);
    return e;
  }
  if (graph_lex_accept(r, "(")) {
    const Expr *e = parse_level(r, 0);
    graph_lex_expect(r, ")");
    return e;
  }
  if (r->tok.kind != T_IDENT) graph_lex_error(r, "expected a dimension, found '%.60s'", r->tok.text);
  const char *name = r->tok.text;
  graph_lex_next(r);
  if (graph_lex_accept(r, "(")) return parse_dim_call(r, name);
  if (!strcmp(name, "True") || !strcmp(name, "False")) return expr_bool(r->m, name[0] == 'T');
  return size_named(r, name);
}

/* Operators by binding strength, weakest first; all associate to the left. */
static const struct {
  const char *text;
  int level;
  ExprKind kind;
} operators[] = {
  {"||", 0, E_OR}, {"&&", 1, E_AND},      {"==", 2, E_EQ},      {"!=", 2, E_NE}, {"<", 2, E_LT},
  {"<=", 2, E_LE}, {">", 2, E_GT},        {">=", 2, E_GE},      {"+", 3, E_ADD}, {"-", 3, E_SUB},
  {"*", 4, E_MUL}, {"//", 4, E_FLOORDIV}, {"%", 4, E_FLOORMOD},
};

static const Expr *parse_level(Reader *r, int level)
{
  if (level == 5) return parse_dim_atom(r);
  if (level == 0) graph_lex_enter(r);
  const Expr *e = parse_level(r, level + 1);
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < sizeof operators / sizeof *operators && !more; i++) {
      if (operators[i].level != level || r->tok.kind != T_PUNCT || strcmp(r->tok.text, operators[i].text)) continue;
      graph_lex_next(r);
      e = expr_binary(r->m, operators[i].kind, e, parse_level(r, level + 1));
      more = true;
    }
  }
  if (level == 0) graph_lex_leave(r);
  return e;
}

const Expr *graph_parse_dim(Reader *r)
{
  if (graph_lex_accept(r, "?")) return type_dim_any(r->m);
  Loc at = r->tok.loc;
  r->in_dim = true;
  const Expr *e = parse_level(r, 0);
  r->in_dim = false;
  if (e->kind != E_INT && e->kind != E_VAR) {
    Scope s = scope_begin(r->ctx);
    e = expr_simplify(analyzer_new(r->m, scratch(r->ctx)), e);
    scope_end(r->ctx, s);
  }
  if (dtype_is_bool(e->dtype) || !dtype_is_int(e->dtype)) raise(r->ctx, ERR_PARSE, at, "a dimension is an integer");
  return e;
}

/* ---- types --------------------------------------------------------------------------------------- */

static DType parse_dtype(Reader *r)
{
  DType t;
  if (r->tok.kind != T_IDENT || !dtype_parse(r->tok.text, &t) || t.lanes != 1 || t.code == DT_VOID ||
      t.code == DT_HANDLE)
    graph_lex_error(r, "expected a dtype, found '%.60s'", r->tok.text);
  graph_lex_next(r);
  return t;
}

typedef Vec(const Expr *) DimList;
typedef Vec(const Type *) TypeList;

static DimList parse_shape(Reader *r)
{
  DimList dims = {0};
  graph_lex_expect(r, "(");
  while (!graph_lex_is(r, ")")) {
    const Expr *e = graph_parse_dim(r);
    if (e->kind == E_INT && e->u.i < 0) graph_lex_error(r, "a dimension is not negative: %" PRId64, e->u.i);
    vec_push(r->arena, &dims, e);
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, ")");
  return dims;
}

static TypeList parse_types(Reader *r, const char *close)
{
  TypeList list = {0};
  while (!graph_lex_is(r, close)) {
    const Type *ty = graph_parse_type(r);
    if (!ty) graph_lex_error(r, "'_' stands only for the whole of a type");
    vec_push(r->arena, &list, ty);
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, close);
  return list;
}

static const Type *parse_tensor(Reader *r)
{
  graph_lex_expect(r, "[");
  DimList dims = {0};
  int ndim = -1;
  if (!graph_lex_accept(r, "*")) {
    dims = parse_shape(r);
    ndim = dims.n;
  }
  graph_lex_expect(r, ",");
  DType t = parse_dtype(r);
  graph_lex_expect(r, "]");
  return type_tensor(r->m, t, ndim, dims.v);
}

static const Type *parse_named(Reader *r)
{
  const char *name = r->tok.text;
  const Var *param = strmap_get(&r->type_params, name);
  const DataDef *data = param ? NULL : graph_data(r->m, name);
  if (!param && !data) return type_tensor(r->m, parse_dtype(r), 0, NULL);
  graph_lex_next(r);
  if (param) return type_var(r->m, param);
  TypeList args = {0};
  if (graph_lex_accept(r, "[")) args = parse_types(r, "]");
  if (args.n != data->nparam)
    graph_lex_error(r, "type %.60s has %d parameters, %d are given", name, data->nparam, args.n);
  return type_data(r->m, data, args.n, args.v);
}

static const Type *parse_element(Reader *r, TypeKind kind)
{
  graph_lex_expect(r, "[");
  TypeList one = parse_types(r, "]");
  if (one.n != 1) graph_lex_error(r, "one type is wanted here, not %d", one.n);
  return type_simple(r->m, kind, one.v[0]);
}

static const Type *parse_func_type(Reader *r)
{
  graph_lex_expect(r, "(");
  TypeList params = parse_types(r, ")");
  graph_lex_expect(r, "->");
  const Type *ret = graph_parse_type(r);
  if (!ret) graph_lex_error(r, "a function's type states its result");
  return type_func(r->m, params.n, params.v, ret);
}

const Type *graph_parse_type(Reader *r)
{
  const Type *ty = NULL;
  graph_lex_enter(r);
  if (graph_lex_accept(r, "_")) {
    ty = NULL;
  } else if (graph_lex_accept(r, "(")) {
    TypeList fields = parse_types(r, ")");
    ty = type_tuple(r->m, fields.n, fields.v);
  } else if (r->tok.kind != T_IDENT) {
    graph_lex_error(r, "expected a type, found '%.60s'", r->tok.text);
  } else if (graph_lex_accept(r, "Tensor")) {
    ty = parse_tensor(r);
  } else if (graph_lex_accept(r, "fn")) {
    ty = parse_func_type(r);
  } else if (graph_lex_accept(r, "Sequence")) {
    ty = parse_element(r, TY_SEQ);
  } else if (graph_lex_accept(r, "Optional")) {
    ty = parse_element(r, TY_OPT);
  } else if (graph_lex_accept(r, "Object")) {
    ty = type_simple(r->m, TY_OBJECT, NULL);
  } else if (graph_lex_accept(r, "Prim")) {
    graph_lex_expect(r, "[");
    ty = type_prim(r->m, parse_dtype(r));
    graph_lex_expect(r, "]");
  } else if (graph_lex_accept(r, "Shape")) {
    DimList dims = parse_shape(r);
    ty = type_shape(r->m, dims.n, dims.v);
  } else {
    ty = parse_named(r);
  }
  graph_lex_leave(r);
  return ty;
}
