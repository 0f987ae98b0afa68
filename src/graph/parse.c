/* parse.c: Relay text to graphs.
 *
 *   text       := ('#[version' '=' "0.0.5" ']')? (module | lines)
 *   module     := (definition | type | tir)* metadata?
 *   definition := 'def' @name function
 *   function   := ('[' names ']')? '(' params ')' ('->' type)? block
 *   type       := 'type' Name ('[' names ']')? '{' (Ctor ('(' types ')')? ','?)* '}'
 *   tir        := 'tir' @name '=' """TVMScript""" ';'?
 *   metadata   := '#[metadata]' ('relay.Constant' '[' i ']' ':' type '=' ('[' numbers or strings ']' | base64 strings)
 *   ';')*
 *   block      := '{' lines '}'
 *   lines      := (%0 '=' expr ';' | 'let' %x (':' type)? '=' expr ';' | 'free_var' %x (':' type)? ';' | expr ';')*
 *                 expr
 *   expr       := operand (infix operand)*, as tightly as the table of infix operators says, from the left
 *   operand    := atom ('(' args ')' | '.' i)*
 *   atom       := name | number | '-' operand | 'True' | 'False' | '(' exprs ')' | 'fn' function | block
 *               | lines that begin with 'let' or 'free_var'
 *               | 'if' '(' expr ')' block 'else' block | 'match' '?'? '(' expr ')' '{' (pattern '=>' expr ','?)* '}'
 *               | 'meta' '[' 'relay.Constant' ']' '[' i ']' | 'call_tir' '(' @name ',' exprs ',' type ')'
 *
 * A line that is only an expression is the value of a variable that nothing reads: what it does comes first.  A text of
 * lines is a module whose main has the free variables as parameters.
 *
 * Builders check types as they go; what has none yet (calls of functions that come later)
 * gets it from graph_infer at the end.  A text that is refused leaves the module as it was. */
#include "graph/relay.h"

#include <errno.h>
#include <stdlib.h>

static const Node *parse_expr(Reader *);
static const Node *parse_block(Reader *);
static const Node *parse_operand(Reader *);
static const Node *parse_lines(Reader *);

typedef Vec(const Type *) TypeList;

/* ---- names ---------------------------------------------------------------------------- */

static void bind_name(Reader *r, const char *name, const Node *n)
{
  vec_push(r->arena, &r->undo, (Undo){name, strmap_get(&r->vars, name)});
  strmap_put(r->arena, &r->vars, name, (void *)(uintptr_t)n);
}

static void leave_block(Reader *r, int mark)
{
  while (r->undo.n > mark) {
    Undo u = r->undo.v[--r->undo.n];
    strmap_put(r->arena, &r->vars, u.name, u.before);
  }
}

/* %x, or %x.0.1 where there is an x but no "x.0.1". */
static const Node *parse_local(Reader *r)
{
  char *name = arena_strdup(r->arena, r->tok.text);
  const Node *n = strmap_get(&r->vars, name);
  Vec(int) fields = {0};
  while (!n) {
    char *dot = strrchr(name, '.');
    if (!dot || !dot[1] || dot[1 + strspn(dot + 1, "0123456789")] || strlen(dot) > 7)
      graph_lex_error(r, "there is no %%%.100s here", r->tok.text);
    vec_push(r->arena, &fields, atoi(dot + 1));
    *dot = 0;
    n = strmap_get(&r->vars, name);
  }
  for (int i = fields.n - 1; i >= 0; i--) n = node_get(r->m, n, fields.v[i]);
  graph_lex_next(r);
  return n;
}

/* ---- constants ----------------------------------------------------------------------------- */

static Value parse_number(Reader *r, DType want)
{
  bool minus = graph_lex_accept(r, "-");
  bool word = graph_lex_is(r, "inf") || graph_lex_is(r, "nan");
  if (r->tok.kind != T_INT && r->tok.kind != T_FLOAT && !word)
    graph_lex_error(r, "expected a number, found '%.60s'", r->tok.text);
  DType t = r->tok.dtype;
  if (word || t.code == DT_VOID) t = want.code != DT_VOID ? want : r->tok.kind == T_INT ? DT_I32 : DT_F32;
  const char *text = arena_printf(r->arena, "%s%s", minus ? "-" : "", r->tok.text);
  Value v;
  if (dtype_is_float(t)) {
    v = value_float(t, strtod(text, NULL));
  } else {
    errno = 0;
    int64_t i = t.code == DT_UINT && !minus ? (int64_t)strtoull(text, NULL, 10) : strtoll(text, NULL, 10);
    v = value_int(t, i);
    if (errno || r->tok.kind != T_INT || v.i != i)
      graph_lex_error(r, "%.60s does not fit into %s", text, dtype_name(r->arena, t));
  }
  graph_lex_next(r);
  return v;
}

static int base64_digit(char c)
{
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strings, one after the other, of base64 text. */
static Text parse_base64(Reader *r)
{
  Text bytes = text_new(r->arena);
  while (r->tok.kind == T_STR) {
    const char *s = r->tok.text;
    for (; *s; s += 4) {
      int v = 0;
      int n = 0;
      for (int i = 0; i < 4; i++) {
        int d = s[i] ? base64_digit(s[i]) : -1;
        if (d < 0 && (!s[i] || s[i] != '=' || i < 2)) graph_lex_error(r, "this is not base64 text");
        v = v * 64 + (d < 0 ? 0 : d);
        n += d >= 0;
      }
      for (int i = 0; i < n - 1; i++) text_char(&bytes, (char)(v >> (16 - 8 * i) & 255));
    }
    graph_lex_next(r);
  }
  return bytes;
}

static void add_string(Reader *r, Text *numbers, const char *s, size_t n)
{
  uint64_t number = ctx_string(r->ctx, s, n);
  text_addn(numbers, (const char *)&number, sizeof number);
}

/* The numbers of strings: a list of them, or base64 of u32 length and bytes, one after the other. */
static Text parse_strings(Reader *r)
{
  Text numbers = text_new(r->arena);
  if (graph_lex_accept(r, "[")) {
    while (r->tok.kind == T_STR) {
      add_string(r, &numbers, r->tok.text, strlen(r->tok.text));
      graph_lex_next(r);
      if (!graph_lex_accept(r, ",")) break;
    }
    graph_lex_expect(r, "]");
    return numbers;
  }
  Text bytes = parse_base64(r);
  for (size_t at = 0; at < bytes.n;) {
    uint32_t length = 0;
    if (bytes.n - at >= 4) memcpy(&length, bytes.s + at, 4);
    if (bytes.n - at < 4 || length > bytes.n - at - 4)
      graph_lex_error(r, "a constant's string has %u bytes, more than are there", length);
    add_string(r, &numbers, bytes.s + at + 4, length);
    at += 4 + (size_t)length;
  }
  return numbers;
}

static const Node *parse_constant_data(Reader *r, const Type *ty)
{
  int64_t shape[MAX_RANK];
  int64_t count = 1;
  if (ty->kind != TY_TENSOR || ty->ndim < 0 || !type_is_static(ty))
    graph_lex_error(r, "a constant has a static tensor type");
  for (int i = 0; i < ty->ndim; i++) {
    shape[i] = ty->shape[i]->u.i;
    if (!int_mul(count, shape[i], &count)) graph_lex_error(r, "a constant's size overflows");
  }
  size_t size = (size_t)dtype_bytes(ty->dtype);
  Text bytes = text_new(r->arena);
  if (dtype_is_string(ty->dtype)) {
    bytes = parse_strings(r);
  } else if (graph_lex_accept(r, "[")) {
    while (!graph_lex_is(r, "]")) {
      char element[8];
      bool truth = graph_lex_is(r, "True") || graph_lex_is(r, "False");
      if (truth) {
        value_store(value_int(ty->dtype, r->tok.text[0] == 'T'), element);
        graph_lex_next(r);
      } else {
        value_store(value_cast(parse_number(r, ty->dtype), ty->dtype), element);
      }
      text_addn(&bytes, element, size);
      if (!graph_lex_accept(r, ",")) break;
    }
    graph_lex_expect(r, "]");
  } else {
    bytes = parse_base64(r);
  }
  if (bytes.n % size || (int64_t)(bytes.n / size) != count)
    graph_lex_error(r, "a constant of %" PRId64 " elements has %zu bytes, not %" PRId64 " times %zu", count, bytes.n,
                    count, size);
  return node_const_copy(r->m, ty->dtype, ty->ndim, shape, text_str(&bytes));
}

#define METADATA "#[metadata]"

/* The section at the end, read before the rest.  Gives where the rest ends. */
static const char *parse_metadata(Reader *r, const char *text)
{
  const char *end = text + strlen(text);
  const char *at = text;
  int line = 1;
  for (;; at++) {
    at = strstr(at, METADATA);
    if (!at) return end;
    if (at == text || at[-1] == '\n') break;
  }
  for (const char *c = text; c < at; c++) line += *c == '\n';
  graph_lex_start(r, at + strlen(METADATA), end, line);
  while (r->tok.kind != T_END) {
    graph_lex_expect(r, "relay.Constant");
    graph_lex_expect(r, "[");
    int64_t index = graph_parse_int(r);
    if (index != r->constants.n)
      graph_lex_error(r, "constant %" PRId64 " comes where %d should", index, r->constants.n);
    graph_lex_expect(r, "]");
    graph_lex_expect(r, ":");
    const Type *ty = graph_parse_type(r);
    if (!ty) graph_lex_error(r, "a constant has a type");
    graph_lex_expect(r, "=");
    vec_push(r->arena, &r->constants, parse_constant_data(r, ty));
    graph_lex_expect(r, ";");
  }
  return at;
}

/* meta[relay.Constant][i] */
static const Node *parse_meta(Reader *r)
{
  graph_lex_expect(r, "[");
  graph_lex_expect(r, "relay.Constant");
  graph_lex_expect(r, "]");
  graph_lex_expect(r, "[");
  int64_t i = graph_parse_int(r);
  if (i < 0 || i >= r->constants.n)
    graph_lex_error(r, "there is no constant %" PRId64 " in the metadata, which holds %d", i, r->constants.n);
  graph_lex_expect(r, "]");
  return r->constants.v[i];
}

/* ---- calls ---------------------------------------------------------------------------------------- */

static const char *parse_string(Reader *r)
{
  if (r->tok.kind != T_STR) graph_lex_error(r, "expected a string, found '%.60s'", r->tok.text);
  const char *s = r->tok.text;
  graph_lex_next(r);
  return s;
}

static int64_t parse_int_or_bool(Reader *r)
{
  if (graph_lex_accept(r, "True")) return 1;
  if (graph_lex_accept(r, "False")) return 0;
  return graph_parse_int(r);
}

static void parse_list_attr(Reader *r, const AttrsDef *def, void *attrs, const AttrField *f)
{
  Vec(int64_t) ints = {0};
  Vec(double) numbers = {0};
  Vec(const char *) strings = {0};
  Vec(const Expr *) dims = {0};
  const char *close = graph_lex_is(r, "(") ? ")" : "]";
  if (f->kind == AT_INTS && !graph_lex_is(r, "(") && !graph_lex_is(r, "[")) { /* axis=1 */
    attrs_set_int(r->m, def, attrs, f->name, parse_int_or_bool(r));
    return;
  }
  if (!graph_lex_accept(r, "(")) graph_lex_expect(r, "[");
  while (!graph_lex_is(r, close)) {
    if (f->kind == AT_INTS) vec_push(r->arena, &ints, parse_int_or_bool(r));
    else if (f->kind == AT_F64S) vec_push(r->arena, &numbers, parse_number(r, DT_F64).f);
    else if (f->kind == AT_STRS) vec_push(r->arena, &strings, parse_string(r));
    else vec_push(r->arena, &dims, graph_parse_dim(r));
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, close);
  if (f->kind == AT_INTS) attrs_set_ints(r->m, def, attrs, f->name, ints.n, ints.v);
  else if (f->kind == AT_F64S) attrs_set_f64s(r->m, def, attrs, f->name, numbers.n, numbers.v);
  else if (f->kind == AT_STRS) attrs_set_strs(r->m, def, attrs, f->name, strings.n, strings.v);
  else attrs_set_dims(r->m, def, attrs, f->name, dims.n, dims.v);
}

static void parse_attr(Reader *r, const OpDef *op, void *attrs, const char *name)
{
  const AttrField *f = attrs_field(op->attrs, name);
  if (!f) graph_lex_error(r, "%s has no attribute '%.60s'", op->name, name);
  if (graph_lex_accept(r, "None")) {
    attrs_set_text(r->m, op->attrs, attrs, name, "None");
    return;
  }
  switch (f->kind) {
  case AT_BOOL:
  case AT_INT: attrs_set_int(r->m, op->attrs, attrs, name, parse_int_or_bool(r)); return;
  case AT_F64: attrs_set_f64(r->m, op->attrs, attrs, name, parse_number(r, DT_F64).f); return;
  case AT_STR:
  case AT_DTYPE: attrs_set_str(r->m, op->attrs, attrs, name, parse_string(r)); return;
  case AT_INTS:
  case AT_F64S:
  case AT_STRS:
  case AT_DIMS: parse_list_attr(r, op->attrs, attrs, f); return;
  }
}

/* Is the token to come the name of an attribute: ident '='? */
static bool at_attribute(const Reader *r)
{
  if (r->tok.kind != T_IDENT) return false;
  const char *p = r->p;
  while (*p == ' ') p++;
  return *p == '=' && p[1] != '=' && p[1] != '>';
}

static const Node *parse_op_call(Reader *r, const OpDef *op, Loc at)
{
  NodeList args = {0};
  void *attrs = attrs_new(r->m, op->attrs);
  bool given[64] = {false};
  const char *plan = NULL;
  while (!graph_lex_is(r, ")")) {
    if (at_attribute(r)) {
      const char *name = r->tok.text;
      graph_lex_next(r);
      graph_lex_expect(r, "=");
      if (!strcmp(name, "plan")) plan = parse_string(r);
      else parse_attr(r, op, attrs, name);
      for (int i = 0; op->attrs && i < op->attrs->n && i < 64; i++)
        given[i] = given[i] || !strcmp(op->attrs->field[i].name, name);
    } else {
      vec_push(r->arena, &args, parse_expr(r));
    }
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, ")");
  for (int i = 0; op->attrs && i < op->attrs->n && i < 64; i++)
    if (!op->attrs->field[i].def && !given[i])
      graph_lex_error(r, "%s wants attribute '%s'", op->name, op->attrs->field[i].name);
  r->building = at;
  const Node *call = node_call(r->m, op, args.n, args.v, attrs, NULL);
  r->building = NOWHERE;
  return plan ? node_call_planned(r->m, call, plan) : call;
}

static const Node *parse_call_tir(Reader *r)
{
  NodeList args = {0};
  graph_lex_expect(r, "(");
  if (r->tok.kind != T_GLOBAL) graph_lex_error(r, "call_tir calls a function of the module, @name");
  const char *name = r->tok.text;
  graph_lex_next(r);
  graph_lex_expect(r, ",");
  graph_lex_expect(r, "(");
  while (!graph_lex_is(r, ")")) {
    vec_push(r->arena, &args, parse_expr(r));
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, ")");
  graph_lex_expect(r, ",");
  const Type *ty = graph_parse_type(r);
  if (!ty) graph_lex_error(r, "call_tir states the type of its result");
  graph_lex_expect(r, ")");
  return node_call_tir(r->m, name, args.n, args.v, ty);
}

/* ---- functions, branches, clauses ---------------------------------------------------------------------- */

static const Expr *parse_annotation(Reader *r)
{
  if (r->tok.kind == T_STR) return expr_str(r->m, parse_string(r));
  if (graph_lex_accept(r, "True")) return expr_bool(r->m, true);
  if (graph_lex_accept(r, "False")) return expr_bool(r->m, false);
  Value v = parse_number(r, DT_NONE);
  return expr_value(r->m, v);
}

/* ('[' names ']')?: type parameters, known to the end of the function. */
static void parse_type_params(Reader *r)
{
  if (!graph_lex_accept(r, "[")) return;
  while (!graph_lex_is(r, "]")) {
    if (r->tok.kind != T_IDENT) graph_lex_error(r, "expected the name of a type parameter, found '%.60s'", r->tok.text);
    strmap_put(r->arena, &r->type_params, r->tok.text,
               (void *)(uintptr_t)var_new(r->m, r->tok.text, DT_PTR, VAR_PLAIN));
    graph_lex_next(r);
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, "]");
}

static const Node *parse_function(Reader *r)
{
  NodeList params = {0};
  Annots attrs = {0};
  int mark = r->undo.n;
  parse_type_params(r);
  graph_lex_expect(r, "(");
  while (!graph_lex_is(r, ")")) {
    if (r->tok.kind == T_LOCAL) {
      const char *name = r->tok.text;
      graph_lex_next(r);
      const Type *ty = graph_lex_accept(r, ":") ? graph_parse_type(r) : NULL;
      vec_push(r->arena, &params, node_var(r->m, name, ty));
    } else if (at_attribute(r)) {
      const char *key = r->tok.text;
      graph_lex_next(r);
      graph_lex_expect(r, "=");
      annots_set(r->arena, &attrs, key, parse_annotation(r));
    } else {
      graph_lex_error(r, "expected a parameter, found '%.60s'", r->tok.text);
    }
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, ")");
  const Type *ret = graph_lex_accept(r, "->") ? graph_parse_type(r) : NULL;
  for (int i = 0; i < params.n; i++) bind_name(r, params.v[i]->name, params.v[i]);
  const Node *body = parse_block(r);
  leave_block(r, mark);
  return node_func(r->m, params.n, params.v, body, ret, &attrs);
}

static const Node *parse_if(Reader *r)
{
  graph_lex_expect(r, "(");
  const Node *cond = parse_expr(r);
  graph_lex_expect(r, ")");
  const Node *then = parse_block(r);
  graph_lex_expect(r, "else");
  const Node *orelse = parse_block(r);
  return node_if(r->m, cond, then, orelse);
}

static const Pattern *parse_pattern(Reader *r)
{
  Pattern *p = arena_new_of(r->m->arena, Pattern);
  graph_lex_enter(r);
  if (r->tok.kind == T_LOCAL) {
    p->kind = PAT_VAR;
    const char *name = r->tok.text;
    graph_lex_next(r);
    p->var = node_var(r->m, name, graph_lex_accept(r, ":") ? graph_parse_type(r) : NULL);
    bind_name(r, name, p->var);
  } else if (graph_lex_accept(r, "_")) {
    p->kind = PAT_WILD;
  } else {
    p->kind = PAT_TUPLE;
    if (r->tok.kind == T_IDENT) {
      p->kind = PAT_CTOR;
      p->ctor = strmap_get(&r->ctors, r->tok.text);
      if (!p->ctor) graph_lex_error(r, "there is no constructor '%.60s'", r->tok.text);
      graph_lex_next(r);
    }
    Vec(const Pattern *) sub = {0};
    if (p->kind == PAT_TUPLE || graph_lex_is(r, "(")) {
      graph_lex_expect(r, "(");
      while (!graph_lex_is(r, ")")) {
        vec_push(r->m->arena, &sub, parse_pattern(r));
        if (!graph_lex_accept(r, ",")) break;
      }
      graph_lex_expect(r, ")");
    }
    p->n = sub.n;
    p->sub = sub.v;
  }
  graph_lex_leave(r);
  return p;
}

static const Node *parse_match(Reader *r)
{
  Vec(const Pattern *) clauses = {0};
  NodeList bodies = {0};
  graph_lex_accept(r, "?");
  graph_lex_expect(r, "(");
  const Node *value = parse_expr(r);
  graph_lex_expect(r, ")");
  graph_lex_expect(r, "{");
  while (!graph_lex_is(r, "}")) {
    int mark = r->undo.n;
    vec_push(r->arena, &clauses, parse_pattern(r));
    graph_lex_expect(r, "=>");
    vec_push(r->arena, &bodies, parse_expr(r));
    leave_block(r, mark);
    if (!graph_lex_accept(r, ",")) break;
  }
  graph_lex_expect(r, "}");
  return node_match(r->m, value, clauses.n, clauses.v, bodies.v);
}

/* ---- expressions ---------------------------------------------------------------------------------------- */

static const Node *parse_word(Reader *r)
{
  if (graph_lex_accept(r, "fn")) return parse_function(r);
  if (graph_lex_accept(r, "if")) return parse_if(r);
  if (graph_lex_accept(r, "match")) return parse_match(r);
  if (graph_lex_accept(r, "meta")) return parse_meta(r);
  if (graph_lex_accept(r, "call_tir")) return parse_call_tir(r);
  if (graph_lex_is(r, "let") || graph_lex_is(r, "free_var")) return parse_lines(r);
  if (graph_lex_is(r, "True") || graph_lex_is(r, "False")) {
    bool truth = r->tok.text[0] == 'T';
    graph_lex_next(r);
    return node_scalar(r->m, value_int(DT_BOOL, truth));
  }
  const Ctor *ctor = strmap_get(&r->ctors, r->tok.text);
  if (ctor) {
    graph_lex_next(r);
    return node_ctor(r->m, ctor);
  }
  Token name = r->tok;
  const OpDef *op = opdef_find(name.text);
  /* raises, naming the nearest */
  if (!op) opdef_get(r->ctx, arena_strndup(r->arena, name.text, strnlen(name.text, 100)));
  graph_lex_next(r);
  if (!graph_lex_accept(r, "(")) return node_op(r->m, op);
  return parse_op_call(r, op, name.loc);
}

/* '(' ')' is the empty tuple, '(' e ',' ')' one of one field, '(' e ')' just e. */
static const Node *parse_parens(Reader *r)
{
  NodeList fields = {0};
  bool comma = false;
  graph_lex_expect(r, "(");
  while (!graph_lex_is(r, ")")) {
    vec_push(r->arena, &fields, parse_expr(r));
    if (!graph_lex_accept(r, ",")) break;
    comma = true;
  }
  graph_lex_expect(r, ")");
  return fields.n == 1 && !comma ? fields.v[0] : node_tuple(r->m, fields.n, fields.v);
}

/* -1 is a number, anything else behind the sign an operand of negative. */
static const Node *parse_minus(Reader *r)
{
  const char *p = r->p;
  while (*p == ' ') p++;
  bool number = (*p >= '0' && *p <= '9') || !strncmp(p, "inf", 3) || !strncmp(p, "nan", 3);
  if (number) return node_scalar(r->m, parse_number(r, DT_NONE));
  graph_lex_expect(r, "-");
  const Node *of = parse_operand(r);
  return node_call(r->m, opdef_get(r->ctx, "negative"), 1, &of, NULL, NULL);
}

static const Node *parse_atom(Reader *r)
{
  switch (r->tok.kind) {
  case T_LOCAL: return parse_local(r);
  case T_TEMP: {
    const char *name = arena_printf(r->arena, "%%%s", r->tok.text);
    const Node *n = strmap_get(&r->vars, name);
    if (!n) graph_lex_error(r, "there is no %.100s here", name);
    graph_lex_next(r);
    return n;
  }
  case T_GLOBAL: {
    const Node *n = node_global(r->m, r->tok.text);
    graph_lex_next(r);
    return n;
  }
  case T_INT:
  case T_FLOAT: return node_scalar(r->m, parse_number(r, DT_NONE));
  case T_IDENT: return parse_word(r);
  case T_PUNCT:
    if (graph_lex_is(r, "(")) return parse_parens(r);
    if (graph_lex_is(r, "{")) return parse_block(r);
    if (graph_lex_is(r, "-")) return parse_minus(r);
    break;
  case T_STR:
  case T_END: break;
  }
  graph_lex_error(r, "expected an expression, found '%.60s'", r->tok.text);
}

static const Node *parse_operand(Reader *r)
{
  graph_lex_enter(r);
  Loc at = r->tok.loc;
  const Node *n = parse_atom(r);
  for (;;) {
    if (graph_lex_is(r, ".")) {
      n = node_get(r->m, n, graph_lex_index(r));
    } else if (graph_lex_accept(r, "(")) {
      NodeList args = {0};
      while (!graph_lex_is(r, ")")) {
        vec_push(r->arena, &args, parse_expr(r));
        if (!graph_lex_accept(r, ",")) break;
      }
      graph_lex_expect(r, ")");
      r->building = at;
      n = node_apply(r->m, n, args.n, args.v);
      r->building = NOWHERE;
    } else {
      break;
    }
  }
  graph_lex_leave(r);
  return n;
}

typedef struct Infix {
  const char *sign, *op;
  int binds; /* how tightly */
} Infix;
/* clang-format off */
static const Infix infix[] = {
  {"*",  "multiply",      3},
  {"/",  "divide",        3},
  {"+",  "add",           2},
  {"-",  "subtract",      2},
  {"<",  "less",          1},
  {">",  "greater",       1},
  {"<=", "less_equal",    1},
  {">=", "greater_equal", 1},
  {"==", "equal",         0},
  {"!=", "not_equal",     0},
};
/* clang-format on */

static const Infix *next_infix(const Reader *r)
{
  for (size_t i = 0; r->tok.kind == T_PUNCT && i < sizeof infix / sizeof *infix; i++)
    if (!strcmp(r->tok.text, infix[i].sign)) return &infix[i];
  return NULL;
}

/* Operands joined by operators that bind at least so tightly. */
static const Node *parse_infix(Reader *r, int binds)
{
  const Node *n = parse_operand(r);
  for (const Infix *x = next_infix(r); x && x->binds >= binds; x = next_infix(r)) {
    Loc at = r->tok.loc;
    graph_lex_next(r);
    const Node *side[2] = {n, parse_infix(r, x->binds + 1)};
    r->building = at;
    n = node_call(r->m, opdef_get(r->ctx, x->op), 2, side, NULL, NULL);
    r->building = NOWHERE;
  }
  return n;
}

static const Node *parse_expr(Reader *r) { return parse_infix(r, 0); }

/* A let's variable is known in its own value only where it is declared: as a function. */
static const Node *parse_let(Reader *r, const Node **value)
{
  if (r->tok.kind != T_LOCAL) graph_lex_error(r, "let binds a variable, not '%.60s'", r->tok.text);
  const char *name = r->tok.text;
  graph_lex_next(r);
  const Type *ty = graph_lex_accept(r, ":") ? graph_parse_type(r) : NULL;
  bool recursive = ty && ty->kind == TY_FUNC;
  const Node *var = recursive ? node_var(r->m, name, ty) : NULL;
  if (var) bind_name(r, name, var);
  graph_lex_expect(r, "=");
  *value = parse_expr(r);
  graph_lex_expect(r, ";");
  if (!var) {
    var = node_var(r->m, name, ty ? ty : (*value)->type);
    bind_name(r, name, var);
  }
  graph_bind_let(r->m, var, *value);
  return var;
}

static void parse_free_var(Reader *r)
{
  if (r->tok.kind != T_LOCAL) graph_lex_error(r, "free_var names a variable, not '%.60s'", r->tok.text);
  const char *name = r->tok.text;
  graph_lex_next(r);
  bind_name(r, name, node_var(r->m, name, graph_lex_accept(r, ":") ? graph_parse_type(r) : NULL));
  graph_lex_expect(r, ";");
}

/* Lines up to the block's value; the lets wrap it, last first. */
static const Node *parse_lines(Reader *r)
{
  NodeList vars = {0};
  NodeList values = {0};
  int mark = r->undo.n;
  const Node *result = NULL;
  while (!result) {
    if (graph_lex_accept(r, "let")) {
      const Node *value;
      const Node *var = parse_let(r, &value);
      vec_push(r->arena, &vars, var);
      vec_push(r->arena, &values, value);
      continue;
    }
    if (graph_lex_accept(r, "free_var")) {
      parse_free_var(r);
      continue;
    }
    const char *p = r->p;
    while (*p == ' ') p++;
    bool defines = (r->tok.kind == T_TEMP || r->tok.kind == T_LOCAL) && *p == '=' && p[1] != '=' && p[1] != '>';
    if (!defines) {
      const Node *value = parse_expr(r);
      if (!graph_lex_accept(r, ";")) {
        result = value;
        break;
      }
      vec_push(r->arena, &vars, node_var(r->m, "_", value->type));
      vec_push(r->arena, &values, value);
      continue;
    }
    const char *name = r->tok.kind == T_TEMP ? arena_printf(r->arena, "%%%s", r->tok.text) : r->tok.text;
    graph_lex_next(r);
    graph_lex_expect(r, "=");
    const Node *n = parse_expr(r);
    graph_lex_expect(r, ";");
    bind_name(r, name, n);
  }
  for (int i = vars.n - 1; i >= 0; i--) result = node_let(r->m, vars.v[i], values.v[i], result);
  leave_block(r, mark);
  return result;
}

static const Node *parse_block(Reader *r)
{
  graph_lex_enter(r);
  graph_lex_expect(r, "{");
  const Node *n = parse_lines(r);
  graph_lex_expect(r, "}");
  graph_lex_leave(r);
  return n;
}

/* ---- modules ------------------------------------------------------------------------------------------------ */

static const char *parse_global_name(Reader *r)
{
  if (r->tok.kind != T_GLOBAL) graph_lex_error(r, "expected @name, found '%.60s'", r->tok.text);
  const char *name = r->tok.text;
  graph_lex_next(r);
  return name;
}

typedef Vec(Ctor) CtorList;

static void parse_one_ctor(Reader *r, DataDef *data, CtorList *list)
{
  TypeList fields = {0};
  if (r->tok.kind != T_IDENT || strmap_get(&r->ctors, r->tok.text) || opdef_find(r->tok.text))
    graph_lex_error(r, "expected a new constructor's name, found '%.60s'", r->tok.text);
  const char *name = arena_strdup(r->m->arena, r->tok.text);
  /* taken; the constructor itself comes when all are known */
  strmap_put(r->arena, &r->ctors, name, data);
  graph_lex_next(r);
  if (graph_lex_accept(r, "(")) {
    while (!graph_lex_is(r, ")")) {
      const Type *ty = graph_parse_type(r);
      if (!ty) graph_lex_error(r, "a field of a constructor has a type");
      vec_push(r->m->arena, &fields, ty);
      if (!graph_lex_accept(r, ",")) break;
    }
    graph_lex_expect(r, ")");
  }
  vec_push(r->m->arena, list, (Ctor){name, data, list->n, fields.n, fields.v});
}

/* is_extern: nobody here knows what is inside; values come from packed functions. */
static void parse_data(Reader *r, bool is_extern)
{
  DataDef *data = arena_new_of(r->m->arena, DataDef);
  CtorList ctors = {0};
  r->type_params = (StrMap){0};
  if (r->tok.kind != T_IDENT) graph_lex_error(r, "expected a type's name, found '%.60s'", r->tok.text);
  data->name = arena_strdup(r->m->arena, r->tok.text);
  DType t;
  if (graph_data(r->m, data->name) || dtype_parse(data->name, &t))
    graph_lex_error(r, "there is a type '%.60s' already", data->name);
  graph_lex_next(r);
  parse_type_params(r);
  data->nparam = r->type_params.n;
  data->param = arena_array(r->m->arena, const Var *, data->nparam);
  for (int i = 0; i < data->nparam; i++) data->param[i] = r->type_params.val[i];
  graph_add_data(r->m, data);
  if (is_extern) {
    graph_lex_accept(r, ";");
    return;
  }
  graph_lex_expect(r, "{");
  while (!graph_lex_is(r, "}")) {
    parse_one_ctor(r, data, &ctors);
    graph_lex_accept(r, ",");
  }
  graph_lex_expect(r, "}");
  data->nctor = ctors.n;
  data->ctor = ctors.v;
  for (int i = 0; i < ctors.n; i++) strmap_put(r->arena, &r->ctors, ctors.v[i].name, &ctors.v[i]);
}

static void parse_tir(Reader *r)
{
  const char *name = parse_global_name(r);
  graph_lex_expect(r, "=");
  int line = r->tok.loc.line;
  const char *text = parse_string(r);
  graph_lex_accept(r, ";");
  module_set(r->m, name, GLOBAL_TIR, func_parse(r->m, text, r->file, line, 0, NULL));
}

static void known_ctors(Reader *r)
{
  for (int i = 0; i < graph_data_count(r->m); i++) {
    const DataDef *data = graph_data_at(r->m, i);
    for (int k = 0; k < data->nctor; k++) strmap_put(r->arena, &r->ctors, data->ctor[k].name, &data->ctor[k]);
  }
}

static void parse_definitions(Reader *r)
{
  StrMap fresh = {0};
  while (r->tok.kind != T_END) {
    r->vars = r->sizes = r->type_params = (StrMap){0};
    r->undo.n = 0;
    if (graph_lex_accept(r, "type")) {
      parse_data(r, false);
    } else if (graph_lex_accept(r, "extern")) {
      graph_lex_expect(r, "type");
      parse_data(r, true);
    } else if (graph_lex_accept(r, "tir")) {
      parse_tir(r);
    } else {
      graph_lex_expect(r, "def");
      const char *name = parse_global_name(r);
      if (strmap_get(&fresh, name)) graph_lex_error(r, "@%.100s is defined twice", name);
      strmap_put(r->arena, &fresh, name, r);
      module_set(r->m, name, GLOBAL_GRAPH, (void *)(uintptr_t)parse_function(r));
    }
  }
  for (int i = 0; i < r->m->globals.n; i++) {
    const Global g = r->m->globals.v[i];
    if (g.kind == GLOBAL_GRAPH && strmap_get(&fresh, g.name))
      module_set(r->m, g.name, GLOBAL_GRAPH, (void *)(uintptr_t)graph_infer(r->m, g.func));
  }
}

/* #[version = "0.0.5"]: what kind of text this is.  Gives where the rest begins. */
static const char *parse_version(Reader *r, const char *text, const char *end)
{
  static const char *const head[] = {"[", "version", "="};
  const char *p = text;
  while (p < end && strchr(" \t\r\n", *p)) p++;
  if (p >= end || *p != '#') return text;
  graph_lex_start(r, p + 1, end, 1);
  for (size_t i = 0; i < sizeof head / sizeof *head; i++) graph_lex_expect(r, head[i]);
  const char *version = parse_string(r);
  if (strcmp(version, "0.0.5")) graph_lex_error(r, "this is text of version \"%.40s\"; 0.0.5 is read", version);
  if (!graph_lex_is(r, "]")) graph_lex_error(r, "expected ']', found '%.60s'", r->tok.text);
  return r->p;
}

/* Lines are main, a function of what is free in them (or the function that they are). */
static void parse_main(Reader *r)
{
  const Node *body = parse_lines(r);
  if (r->tok.kind != T_END) graph_lex_error(r, "'%.60s' is left over", r->tok.text);
  if (body->kind != N_FUNC) {
    const Node **vars;
    int n = graph_free_vars(r->arena, body, &vars);
    body = node_func(r->m, n, vars, body, NULL, NULL);
  }
  module_set(r->m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)graph_infer(r->m, body));
}

/* An expression gets its types at once, unless it speaks of variables whose types are still to be found. */
static const Node *infer_if_known(Reader *r, const Node *n)
{
  const Node **vars;
  int count = graph_free_vars(r->arena, n, &vars);
  for (int i = 0; i < count; i++)
    if (!vars[i]->type) return n;
  return graph_infer(r->m, n);
}

/* ---- entry ---------------------------------------------------------------------------------------------------- */

typedef struct ParseJob {
  Module *m;
  const char *text, *file;
  bool expr;
  const Node *out;
  Reader r;
} ParseJob;

static void run_parse(Ctx *ctx, void *arg)
{
  ParseJob *job = arg;
  Scope s = scope_begin(ctx);
  Reader *r = &job->r;
  *r = (Reader){.m = job->m, .ctx = ctx, .arena = scratch(ctx), .file = job->file};
  known_ctors(r);
  const char *end = parse_metadata(r, job->text);
  const char *begin = parse_version(r, job->text, end);
  int line = 1;
  for (const char *c = job->text; c < begin; c++) line += *c == '\n';
  graph_lex_start(r, begin, end, line);
  if (job->expr) {
    job->out = parse_lines(r);
    if (r->tok.kind != T_END) graph_lex_error(r, "'%.60s' is left over", r->tok.text);
    job->out = infer_if_known(r, job->out);
  } else if (r->tok.kind != T_END && !graph_lex_is(r, "def") && !graph_lex_is(r, "type") &&
             !graph_lex_is(r, "extern") && !graph_lex_is(r, "tir")) {
    parse_main(r);
  } else {
    parse_definitions(r);
  }
  scope_end(ctx, s);
}

/* Errors of builders get the place that the reader had come to; what the text has
 * defined so far goes. */
static void parse_protected(ParseJob *job)
{
  Module *m = job->m;
  Global *old = arena_copy(m->arena, m->globals.v, (size_t)m->globals.n * sizeof *m->globals.v);
  int nold = m->globals.n;
  int ndata = graph_data_count(m);
  ErrKind kind = protect(m->ctx, run_parse, job);
  if (!kind) return;
  m->globals.n = nold;
  if (nold) memcpy(m->globals.v, old, (size_t)nold * sizeof *old);
  if (m->graph) m->graph->data.n = ndata;
  Loc at = job->r.building.line ? job->r.building : job->r.tok.loc;
  if (error_loc(m->ctx).line || error_passes_on(kind) || !at.line) error_reraise(m->ctx);
  const char *text = arena_strdup(m->arena, error_message(m->ctx));
  raise(m->ctx, kind, at, "%s", text);
}

void graph_parse_module(Module *m, const char *text, const char *file)
{
  ParseJob job = {.m = m, .text = text, .file = file};
  parse_protected(&job);
}

const Node *graph_parse_expr(Module *m, const char *text, const char *file)
{
  ParseJob job = {.m = m, .text = text, .file = file, .expr = true};
  parse_protected(&job);
  return job.out;
}
