/* parse_expr.c: expressions of TVMScript.
 *
 * Numbers that Python would compute by itself (2 * 64, a captured M // 4) are
 * computed here too; anything that holds an expression is built and not folded,
 * so what was printed comes back as it was. */
#include "tir/script.h"

#include <math.h>

__extension__ typedef __int128 Wide; /* holds every sum and product of Python numbers that we let pass */

/* ---- making operands ------------------------------------------------------------ */

Operand parse_expr_operand(Parser *p, const Expr *e, Loc loc, int depth)
{
  if (depth > MAX_DEPTH) parse_error(p, loc, "the expression is nested too deep (more than %d levels)", MAX_DEPTH);
  return (Operand){.kind = OP_EXPR, .loc = loc, .e = e, .depth = depth};
}

static Operand int_operand(Loc loc, Wide v)
{
  return (Operand){.kind = OP_INT, .loc = loc, .i = (uint64_t)(v < 0 ? -v : v), .negative = v < 0};
}

static bool is_number(const Operand *o) { return o->kind == OP_INT || o->kind == OP_FLOAT || o->kind == OP_BOOL; }

static Wide whole(const Operand *o)
{
  if (o->kind == OP_BOOL) return o->i != 0;
  return o->negative ? -(Wide)o->i : (Wide)o->i;
}

static double real(const Operand *o) { return o->kind == OP_FLOAT ? o->f : (double)whole(o); }

static const char *kind_text(const Operand *o)
{
  switch (o->kind) {
  case OP_NONE: return "None";
  case OP_INT: return "a number";
  case OP_FLOAT: return "a float";
  case OP_BOOL: return "a bool";
  case OP_STR: return "a string";
  case OP_EXPR: return "an expression";
  case OP_BUFFER: return "a buffer";
  case OP_ITEM: return "an element of a buffer";
  case OP_LIST: return "a list";
  case OP_DICT: return "a dictionary";
  case OP_PATH: return "a function";
  case OP_HANDLE: return "a handle";
  }
  return "something else";
}

/* ---- using operands ---------------------------------------------------------------- */

/* The indices of buffer[…] as a load or store takes them: slices become ramps. */
const Expr **parse_as_indices(Parser *p, const Operand *item, int *n)
{
  *n = item->n;
  const Expr **out = arena_array(p->arena, const Expr *, item->n);
  for (int i = 0; i < item->n; i++) {
    const Operand *slice = &item->list[i];
    if (slice->kind != OP_DICT) {
      out[i] = parse_as_index(p, slice);
      continue;
    }
    const Expr *min, *extent;
    if (slice->list[0].kind == OP_NONE || slice->list[1].kind == OP_NONE)
      parse_error(p, slice->loc, "a slice that is read or written needs both ends");
    parse_as_range(p, &slice->list[0], &slice->list[1], &min, &extent);
    int64_t step = slice->list[2].kind == OP_NONE ? 1 : parse_as_int(p, &slice->list[2], "the step of a slice");
    if (extent->kind != E_INT || step < 1)
      parse_error(p, slice->loc, "a slice that is read or written needs a constant length and a positive step");
    int64_t lanes = int_floordiv(extent->u.i + step - 1, step);
    if (lanes < 1 || lanes > MAX_LANES)
      parse_error(p, slice->loc, "a slice of %" PRId64 " elements is no vector", lanes);
    out[i] = lanes == 1 ? min : expr_ramp(p->m, min, expr_int(p->m, min->dtype, step), (int)lanes);
  }
  return out;
}

const Expr *parse_as_expr(Parser *p, const Operand *o)
{
  switch (o->kind) {
  case OP_INT: {
    Wide v = whole(o);
    if (v >= INT32_MIN && v <= INT32_MAX) return expr_i32(p->m, (int64_t)v);
    if (v >= INT64_MIN && v <= INT64_MAX) return expr_int(p->m, DT_I64, (int64_t)v);
    parse_error(p, o->loc, "the number does not fit int64; write T.uint64(…)");
  }
  case OP_FLOAT: return expr_float(p->m, DT_F32, o->f);
  case OP_BOOL: return expr_bool(p->m, o->i);
  case OP_STR: return expr_str(p->m, o->s);
  case OP_EXPR: return o->e;
  case OP_BUFFER: return o->buffer->data->expr;
  case OP_ITEM: {
    int n;
    const Expr **index = parse_as_indices(p, o, &n);
    return expr_load(p->m, o->buffer, n, index);
  }
  case OP_HANDLE: return p->params.v[o->param].var->expr;
  case OP_PATH: parse_error(p, o->loc, "'%s' is a function; call it", o->s);
  case OP_NONE:
  case OP_LIST:
  case OP_DICT: break;
  }
  parse_error(p, o->loc, "expected an expression, found %s", kind_text(o));
}

const Expr *parse_as_index(Parser *p, const Operand *o)
{
  const Expr *e = parse_as_expr(p, o);
  if (!dtype_is_int(e->dtype))
    parse_error(p, o->loc, "expected an integer, found an expression of dtype %s", dtype_name(p->arena, e->dtype));
  return e;
}

const Expr *parse_as_cond(Parser *p, const Operand *o)
{
  const Expr *e = parse_as_expr(p, o);
  if (!dtype_is_bool(dtype_elem(e->dtype)))
    parse_error(p, o->loc, "expected a condition, found an expression of dtype %s", dtype_name(p->arena, e->dtype));
  return e;
}

const Expr *parse_as_value(Parser *p, const Operand *o)
{
  bool dict = o->kind == OP_DICT && (o->keys || !o->n);
  if (o->kind != OP_LIST && !dict) return parse_as_expr(p, o);
  int each = dict ? 2 : 1;
  const Expr **arg = arena_array(p->arena, const Expr *, each * o->n);
  for (int i = 0; i < o->n; i++) {
    if (dict) arg[2 * i] = expr_str(p->m, parse_as_str(p, &o->keys[i], "a key"));
    arg[each * i + each - 1] = parse_as_value(p, &o->list[i]);
  }
  return expr_call(p->m, DT_NONE, dict ? IN_DICT : IN_MAKE_SHAPE, each * o->n, arg);
}

const char *parse_as_str(Parser *p, const Operand *o, const char *what)
{
  if (o->kind == OP_STR) return o->s;
  if (o->kind == OP_EXPR && o->e->kind == E_STR) return o->e->u.str;
  parse_error(p, o->loc, "%s must be a string, not %s", what, kind_text(o));
}

int64_t parse_as_int(Parser *p, const Operand *o, const char *what)
{
  if (o->kind == OP_EXPR && o->e->kind == E_INT) return o->e->u.i;
  if (o->kind != OP_INT || whole(o) < INT64_MIN || whole(o) > INT64_MAX)
    parse_error(p, o->loc, "%s must be a whole number, not %s", what, kind_text(o));
  return (int64_t)whole(o);
}

DType parse_as_dtype(Parser *p, const Operand *o)
{
  DType t;
  if (o->kind == OP_PATH && str_starts(o->s, "T.") && parse_dtype_word(o->s + 2, &t)) return t;
  const char *name = parse_as_str(p, o, "a dtype");
  if (!*name) return DT_NONE; /* of a call that gives nothing */
  if (!dtype_parse(name, &t))
    parse_error(p, o->loc, "unknown dtype \"%s\"; \"float32\", \"int8x16\" and \"bool\" are some", name);
  return t;
}

static void whole_range(const Buffer *b, Module *m, int d, const Expr **min, const Expr **extent)
{
  *min = expr_int(m, b->shape[d]->dtype, 0);
  *extent = b->shape[d];
}

Region parse_as_region(Parser *p, const Operand *o)
{
  if (o->kind != OP_BUFFER && o->kind != OP_ITEM)
    parse_error(p, o->loc, "expected a buffer or a region such as A[0:8], found %s", kind_text(o));
  const Buffer *b = o->buffer;
  Region r = {b, arena_array(p->m->arena, const Expr *, b->ndim), arena_array(p->m->arena, const Expr *, b->ndim)};
  if (o->kind == OP_ITEM && o->n != b->ndim)
    parse_error(p, o->loc, "'%s' has %d dimension%s, %d given", b->name, b->ndim, b->ndim == 1 ? "" : "s", o->n);
  for (int d = 0; d < b->ndim; d++) {
    const Operand *i = o->kind == OP_ITEM ? &o->list[d] : NULL;
    if (!i || (i->kind == OP_DICT && i->list[0].kind == OP_NONE && i->list[1].kind == OP_NONE)) {
      whole_range(b, p->m, d, &r.min[d], &r.extent[d]);
    } else if (i->kind == OP_DICT) {
      if (i->list[2].kind != OP_NONE) parse_error(p, i->loc, "a region has no step");
      Operand begin = {.kind = OP_INT, .loc = i->loc};
      Operand end = parse_expr_operand(p, b->shape[d], i->loc, 1);
      parse_as_range(p, i->list[0].kind == OP_NONE ? &begin : &i->list[0],
                     i->list[1].kind == OP_NONE ? &end : &i->list[1], &r.min[d], &r.extent[d]);
    } else {
      r.min[d] = parse_as_index(p, i);
      r.extent[d] = expr_int(p->m, dtype_elem(r.min[d]->dtype), 1);
    }
  }
  return r;
}

void parse_as_range(Parser *p, const Operand *start, const Operand *stop, const Expr **min, const Expr **extent)
{
  const Expr *a = parse_as_index(p, start);
  const Expr *b = parse_as_index(p, stop);
  if (!dtype_eq(a->dtype, b->dtype)) {
    if (a->dtype.lanes != 1 || b->dtype.lanes != 1) parse_error(p, start->loc, "a range has scalar ends");
    if (b->kind == E_INT && start->kind != OP_INT) b = expr_int(p->m, a->dtype, b->u.i);
    else if (a->kind == E_INT) a = expr_int(p->m, b->dtype, a->u.i);
    else a = expr_cast(p->m, DT_I64, a), b = expr_cast(p->m, DT_I64, b);
  }
  *min = a;
  if (expr_is_int(a, 0)) *extent = b;
  else if (b->kind == E_INT && a->kind == E_INT)
    *extent = expr_int(p->m, a->dtype, (int64_t)((uint64_t)b->u.i - (uint64_t)a->u.i));
  else if (b->kind == E_ADD && b->arg[0] == a) *extent = b->arg[1];
  else *extent = expr_binary(p->m, E_SUB, b, a);
}

/* ---- operators ------------------------------------------------------------------------- */

/* What Python computes by itself. */
static Operand fold_numbers(Parser *p, ExprKind kind, const Operand *a, const Operand *b, Loc loc)
{
  bool ints = a->kind != OP_FLOAT && b->kind != OP_FLOAT;
  double x = real(a);
  double y = real(b);
  double f = 0;
  Wide i = 0;
  Wide u = whole(a);
  Wide v = whole(b);
  bool wide = false;
  if (kind >= E_EQ && kind <= E_GE) {
    bool less = ints ? u < v : x < y;
    bool equal = ints ? u == v : x == y;
    bool r = kind == E_EQ   ? equal
             : kind == E_NE ? !equal
             : kind == E_LT ? less
             : kind == E_LE ? less || equal
             : kind == E_GT ? (ints ? u > v : x > y)
                            : (ints ? u >= v : x >= y);
    return (Operand){.kind = OP_BOOL, .loc = loc, .i = r};
  }
  if ((kind == E_DIV || kind == E_FLOORDIV || kind == E_FLOORMOD) && y == 0) parse_error(p, loc, "division by zero");
  Wide q = v ? u / v : 0;
  Wide rem = v ? u - q * v : 0;
  if (rem && (rem < 0) != (v < 0)) q--, rem += v;
  switch (kind) {
  case E_ADD: i = u + v, f = x + y; break;
  case E_SUB: i = u - v, f = x - y; break;
  case E_MUL: wide = __builtin_mul_overflow(u, v, &i), f = x * y; break;
  case E_DIV: ints = false, f = x / y; break;
  case E_FLOORDIV: i = q, f = floor(x / y); break;
  case E_FLOORMOD: i = rem, f = x - floor(x / y) * y; break;
  case E_MIN: i = u < v ? u : v, f = x < y ? x : y; break;
  case E_MAX: i = u > v ? u : v, f = x > y ? x : y; break;
  default: BUG(p->ctx, "fold_numbers of %s", expr_kind_name(kind));
  }
  if (!ints) return (Operand){.kind = OP_FLOAT, .loc = loc, .f = f};
  if (wide || i > UINT64_MAX || i < -(Wide)UINT64_MAX) parse_error(p, loc, "the number does not fit 64 bits");
  return int_operand(loc, i);
}

/* A float literal takes the dtype of the float beside it. */
static const Expr *beside(Parser *p, const Operand *o, const Operand *other)
{
  if (o->kind == OP_FLOAT && other && (other->kind == OP_EXPR || other->kind == OP_ITEM)) {
    const Expr *e = parse_as_expr(p, other);
    if (dtype_is_float(e->dtype)) return expr_float(p->m, dtype_elem(e->dtype), o->f);
  }
  return parse_as_expr(p, o);
}

Operand parse_binary_operand(Parser *p, ExprKind kind, const Operand *a, const Operand *b, Loc loc)
{
  if (is_number(a) && is_number(b) && kind != E_AND && kind != E_OR) return fold_numbers(p, kind, a, b, loc);
  const Expr *x = beside(p, a, b);
  const Expr *y = beside(p, b, a);
  if (kind == E_DIV && dtype_is_int(x->dtype) && dtype_is_int(y->dtype))
    parse_error(p, loc, "'/' of integers is ambiguous; write '//' or T.truncdiv");
  return parse_expr_operand(p, expr_binary(p->m, kind, x, y), loc, 1 + (a->depth > b->depth ? a->depth : b->depth));
}

static Operand call2(Parser *p, Intrin in, const Operand *a, const Operand *b, Loc loc)
{
  const Expr *arg[2] = {beside(p, a, b), b ? beside(p, b, a) : NULL};
  int depth = 1 + (b && b->depth > a->depth ? b->depth : a->depth);
  return parse_expr_operand(p, expr_call(p->m, DT_NONE, in, b ? 2 : 1, arg), loc, depth);
}

static Operand bit_operand(Parser *p, Intrin in, const Operand *a, const Operand *b, Loc loc)
{
  if (a->kind != OP_INT || b->kind != OP_INT) return call2(p, in, a, b, loc);
  Wide u = whole(a);
  Wide v = whole(b);
  if ((in == IN_SHL || in == IN_SHR) && (v < 0 || v > 62)) parse_error(p, loc, "shift by an unreasonable number");
  Wide r = in == IN_BITAND   ? (u & v)
           : in == IN_BITOR  ? (u | v)
           : in == IN_BITXOR ? (u ^ v)
           : in == IN_SHL    ? u * ((Wide)1 << v)
                             : u >> v;
  if (r > UINT64_MAX || r < -(Wide)UINT64_MAX) parse_error(p, loc, "the number does not fit 64 bits");
  return int_operand(loc, r);
}

/* ---- atoms ---------------------------------------------------------------------------------- */

static Operand from_name(Parser *p, const ScriptName *n, Loc loc)
{
  switch (n->kind) {
  case NAME_INT: return int_operand(loc, n->u.i);
  case NAME_FLOAT: return (Operand){.kind = OP_FLOAT, .loc = loc, .f = n->u.f};
  case NAME_BOOL: return (Operand){.kind = OP_BOOL, .loc = loc, .i = n->u.i != 0};
  case NAME_STR:
  case NAME_DTYPE: return (Operand){.kind = OP_STR, .loc = loc, .s = n->u.s};
  case NAME_EXPR: return parse_expr_operand(p, n->u.e, loc, 0);
  case NAME_LIST: {
    Operand o = {.kind = OP_LIST, .loc = loc, .n = n->u.list.n, .list = arena_array(p->arena, Operand, n->u.list.n)};
    for (int i = 0; i < o.n; i++) o.list[i] = from_name(p, &n->u.list.v[i], loc);
    return o;
  }
  }
  return (Operand){.kind = OP_NONE, .loc = loc};
}

_Noreturn static void unknown_name(Parser *p, const char *name, Loc loc)
{
  const char **words = arena_array(p->arena, const char *, p->symbols.n + p->nnames);
  int n = 0;
  for (int i = 0; i < p->symbols.n; i++) words[n++] = p->symbols.v[i].name;
  for (int i = 0; i < p->nnames; i++) words[n++] = p->names[i].name;
  const char *near = name[1] ? str_nearest(name, words, n) : NULL; /* any letter is near to any other */
  if (near) parse_error(p, loc, "unknown name '%s'; did you mean '%s'?", name, near);
  parse_error(p, loc, "unknown name '%s'", name);
}

static Operand resolve_name(Parser *p, const char *name, Loc loc)
{
  Symbol *s = parse_find_symbol(p, name);
  if (s) {
    Operand o = s->value;
    o.loc = loc;
    return o;
  }
  if (!strcmp(name, "True") || !strcmp(name, "False"))
    return (Operand){.kind = OP_BOOL, .loc = loc, .i = name[0] == 'T'};
  if (!strcmp(name, "None")) return (Operand){.kind = OP_NONE, .loc = loc};
  if (!strcmp(name, "T") || !strcmp(name, "I") || !strcmp(name, "tir"))
    return (Operand){.kind = OP_PATH, .loc = loc, .s = name[0] == 'I' ? "I" : "T"};
  for (int i = 0; i < p->nnames; i++)
    if (!strcmp(p->names[i].name, name)) return from_name(p, &p->names[i], loc);
  if (!strcmp(name, "range") || !strcmp(name, "min") || !strcmp(name, "max") || !strcmp(name, "float") ||
      !strcmp(name, "int"))
    return (Operand){.kind = OP_PATH, .loc = loc, .s = name};
  unknown_name(p, name, loc);
}

/* item = name ':=' expression | expression */
static Operand parse_item(Parser *p)
{
  if (parse_peek(p)->kind == TOK_NAME && p->tok[p->at + 1].kind == TOK_OP && !strcmp(p->tok[p->at + 1].s, ":=")) {
    const char *name = parse_expect_name(p, "a name");
    p->at++;
    Operand o = parse_operand(p);
    parse_define(p, name, o);
    return o;
  }
  return parse_operand(p);
}

/* list = '[' [item {',' item} [',']] ']' ; tuple likewise in '(' ')' */
static Operand parse_bracketed(Parser *p, const char *close, Loc loc)
{
  Operands v = {0};
  bool comma = false;
  int depth = 0;
  while (!parse_is_op(p, close)) {
    Operand o = parse_item(p);
    if (o.depth > depth) depth = o.depth;
    vec_push(p->arena, &v, o);
    if (!parse_accept(p, ",")) break;
    comma = true;
  }
  parse_expect(p, close, "a list");
  if (close[0] == ')' && v.n == 1 && !comma) return v.v[0];
  return (Operand){.kind = OP_LIST, .loc = loc, .list = v.v, .n = v.n, .depth = depth};
}

/* dict = '{' [expression ':' expression {',' …}] '}' */
static Operand parse_dict(Parser *p, Loc loc)
{
  Operands keys = {0};
  Operands values = {0};
  while (!parse_is_op(p, "}")) {
    Operand key = parse_operand(p);
    parse_expect(p, ":", "the key of a dictionary");
    Operand value = parse_operand(p);
    vec_push(p->arena, &keys, key);
    vec_push(p->arena, &values, value);
    if (!parse_accept(p, ",")) break;
  }
  parse_expect(p, "}", "a dictionary");
  return (Operand){.kind = OP_DICT, .loc = loc, .keys = keys.v, .list = values.v, .n = keys.n};
}

/* atom = name | number | string | list | tuple | dict */
static Operand parse_atom(Parser *p)
{
  const Token *t = parse_peek(p);
  Loc loc = parse_loc(p, t);
  switch (t->kind) {
  case TOK_INT: p->at++; return (Operand){.kind = OP_INT, .loc = loc, .i = t->i};
  case TOK_FLOAT: p->at++; return (Operand){.kind = OP_FLOAT, .loc = loc, .f = t->f};
  case TOK_STR: {
    Text s = text_new(p->arena);
    for (; parse_peek(p)->kind == TOK_STR; p->at++) text_add(&s, parse_peek(p)->s);
    return (Operand){.kind = OP_STR, .loc = loc, .s = text_str(&s)};
  }
  case TOK_NAME:
    if (!strcmp(t->s, "lambda")) parse_error(p, loc, "lambda is not supported in a function body");
    p->at++;
    return resolve_name(p, t->s, loc);
  case TOK_OP:
    if (parse_accept(p, "(")) return parse_bracketed(p, ")", loc);
    if (parse_accept(p, "[")) return parse_bracketed(p, "]", loc);
    if (parse_accept(p, "{")) return parse_dict(p, loc);
    break;
  case TOK_NEWLINE:
  case TOK_INDENT:
  case TOK_DEDENT:
  case TOK_END: break;
  }
  parse_error(p, loc, "expected an expression, found %s", parse_token_text(p, t));
}

/* ---- what follows an atom --------------------------------------------------------------------- */

static bool at_slice_end(Parser *p) { return parse_is_op(p, ":") || parse_is_op(p, ",") || parse_is_op(p, "]"); }

/* index = expression | [expression] ':' [expression] [':' [expression]]
 * A slice is an OP_DICT whose list is start, stop, step. */
static Operand parse_index(Parser *p)
{
  Loc loc = parse_loc(p, parse_peek(p));
  Operand part[3] = {{.kind = OP_NONE}, {.kind = OP_NONE}, {.kind = OP_NONE}};
  if (!at_slice_end(p)) part[0] = parse_operand(p);
  if (!parse_is_op(p, ":")) return part[0];
  for (int i = 1; i < 3 && parse_accept(p, ":"); i++)
    if (!at_slice_end(p)) part[i] = parse_operand(p);
  Operand o = {.kind = OP_DICT, .loc = loc, .n = 3, .list = arena_copy(p->arena, part, sizeof part)};
  for (int i = 0; i < 3; i++)
    if (part[i].depth > o.depth) o.depth = part[i].depth;
  return o;
}

static Operand element_of(Parser *p, const Operand *list, const Operand *index)
{
  int64_t i = parse_as_int(p, index, "an index of a list");
  if (i < 0) i += list->n;
  if (i < 0 || i >= list->n)
    parse_error(p, index->loc, "the list has %d elements, number %" PRId64 " was asked for", list->n, i);
  Operand o = list->list[i];
  o.loc = index->loc;
  return o;
}

/* subscript = '[' index {',' index} ']' */
static Operand parse_subscript(Parser *p, const Operand *base)
{
  Operands v = {0};
  int depth = base->depth;
  /* A[()] */
  if (parse_is_op(p, "(") && p->tok[p->at + 1].kind == TOK_OP && !strcmp(p->tok[p->at + 1].s, ")")) p->at += 2;
  else
    while (!parse_is_op(p, "]")) {
      bool star = parse_accept(p, "*");
      Operand o = parse_index(p);
      if (o.depth > depth) depth = o.depth;
      if (star && o.kind != OP_LIST) parse_error(p, o.loc, "'*' wants a list");
      for (int i = 0; star && i < o.n; i++) vec_push(p->arena, &v, o.list[i]);
      if (!star) vec_push(p->arena, &v, o);
      if (!parse_accept(p, ",")) break;
    }
  parse_expect(p, "]", "an index");
  if (v.n == 1 && v.v[0].kind == OP_LIST && base->kind == OP_BUFFER) /* A[(i, j)] */
    v.n = v.v[0].n, v.v = v.v[0].list;
  if (base->kind == OP_LIST && v.n == 1) return element_of(p, base, &v.v[0]);
  if (base->kind != OP_BUFFER) parse_error(p, base->loc, "%s cannot be indexed", kind_text(base));
  if (v.n != base->buffer->ndim)
    parse_error(p, base->loc, "'%s' has %d dimension%s, %d %s given", base->buffer->name, base->buffer->ndim,
                base->buffer->ndim == 1 ? "" : "s", v.n, v.n == 1 ? "index is" : "indices are");
  return (Operand){
    .kind = OP_ITEM, .loc = base->loc, .buffer = base->buffer, .list = v.v, .n = v.n, .depth = depth + 1};
}

static Operand list_of(Parser *p, int n, const Expr *const *v, Loc loc)
{
  Operand o = {.kind = OP_LIST, .loc = loc, .n = n, .list = arena_array(p->arena, Operand, n)};
  for (int i = 0; i < n; i++) o.list[i] = parse_expr_operand(p, v[i], loc, 0);
  return o;
}

static Operand buffer_attribute(Parser *p, const Operand *base, const char *name, Loc loc)
{
  const Buffer *b = base->buffer;
  if (!strcmp(name, "data")) return parse_expr_operand(p, b->data->expr, loc, 0);
  if (!strcmp(name, "dtype")) return (Operand){.kind = OP_STR, .loc = loc, .s = dtype_name(p->arena, b->dtype)};
  if (!strcmp(name, "shape")) return list_of(p, b->ndim, b->shape, loc);
  if (!strcmp(name, "strides")) return list_of(p, b->strides ? b->ndim : 0, b->strides, loc);
  if (!strcmp(name, "elem_offset"))
    return parse_expr_operand(p, b->elem_offset ? b->elem_offset : expr_i32(p->m, 0), loc, 0);
  static const char *const methods[] = {"vload", "vstore", "access_ptr", "scope"};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (!strcmp(name, methods[i]))
      return (Operand){
        .kind = OP_PATH, .loc = loc, .s = arena_printf(p->arena, ".%s", name), .buffer = b, .depth = base->depth};
  parse_error(p, loc, "a buffer has no attribute '%s'; data, shape, strides, elem_offset, dtype are there", name);
}

static Operand attribute_of(Parser *p, const Operand *base, const char *name, Loc loc)
{
  if (base->kind == OP_PATH) {
    Operand o = *base;
    o.s = arena_printf(p->arena, "%s.%s", base->s, name);
    return o;
  }
  if (base->kind == OP_BUFFER) return buffer_attribute(p, base, name, loc);
  if (base->kind == OP_EXPR || base->kind == OP_ITEM) {
    const Expr *e = parse_as_expr(p, base);
    if (!strcmp(name, "dtype")) return (Operand){.kind = OP_STR, .loc = loc, .s = dtype_name(p->arena, e->dtype)};
    if (!strcmp(name, "astype"))
      return (Operand){.kind = OP_PATH, .loc = loc, .s = ".astype", .e = e, .depth = base->depth};
  }
  parse_error(p, loc, "%s has no attribute '%s'", kind_text(base), name);
}

/* primary = atom {'.' name | '(' arguments ')' | '[' indices ']'} */
static Operand parse_primary(Parser *p)
{
  Operand o = parse_atom(p);
  for (;;) {
    Loc loc = parse_loc(p, parse_peek(p));
    if (parse_accept(p, ".")) {
      const char *name = parse_expect_name(p, "an attribute after '.'");
      o = attribute_of(p, &o, name, loc);
    } else if (parse_is_op(p, "(")) {
      if (o.kind != OP_PATH) parse_error(p, loc, "%s cannot be called", kind_text(&o));
      p->at++;
      if (!strcmp(o.s, "T.Let")) o = parse_let_call(p, &o);
      else {
        Args args = parse_args(p);
        o = parse_call_operand(p, &o, &args);
      }
    } else if (parse_accept(p, "[")) {
      o = parse_subscript(p, &o);
    } else {
      return o;
    }
  }
}

/* ---- precedence, lowest last --------------------------------------------------------------------- */

static Operand parse_unary(Parser *p);

/* power = primary ['**' unary] */
static Operand parse_power(Parser *p)
{
  Operand a = parse_primary(p);
  Loc loc = parse_loc(p, parse_peek(p));
  if (!parse_accept(p, "**")) return a;
  Operand b = parse_unary(p);
  if (!is_number(&a) || !is_number(&b)) return call2(p, IN_POW, &a, &b, loc);
  double f = pow(real(&a), real(&b));
  if (a.kind == OP_FLOAT || b.kind == OP_FLOAT || whole(&b) < 0) return (Operand){.kind = OP_FLOAT, .loc = loc, .f = f};
  if (fabs(f) >= 0x1p62) parse_error(p, loc, "the number does not fit 64 bits");
  Operand r = int_operand(loc, 1);
  for (Wide i = 0; i < whole(&b) && fabs(f) > 1; i++) r = fold_numbers(p, E_MUL, &r, &a, loc);
  if (fabs(f) <= 1) r = int_operand(loc, (Wide)f);
  return r;
}

/* unary = ('-' | '+' | '~') unary | power */
static Operand parse_unary(Parser *p)
{
  Loc loc = parse_loc(p, parse_peek(p));
  bool minus = parse_is_op(p, "-");
  bool invert = parse_is_op(p, "~");
  if (!minus && !invert && !parse_is_op(p, "+")) return parse_power(p);
  parse_enter(p);
  p->at++;
  Operand a = parse_unary(p);
  parse_leave(p);
  a.loc = loc;
  if (invert) return a.kind == OP_INT ? int_operand(loc, -whole(&a) - 1) : call2(p, IN_BITNOT, &a, NULL, loc);
  if (!minus) return a;
  if (a.kind == OP_FLOAT) return (Operand){.kind = OP_FLOAT, .loc = loc, .f = -a.f};
  if (is_number(&a)) return int_operand(loc, -whole(&a));
  Operand one = {.kind = OP_INT, .loc = loc, .i = 1, .negative = true};
  return parse_binary_operand(p, E_MUL, &a, &one, loc);
}

/* term = unary {('*' | '/' | '//' | '%') unary} */
static Operand parse_term(Parser *p)
{
  Operand a = parse_unary(p);
  for (;;) {
    Loc loc = parse_loc(p, parse_peek(p));
    ExprKind kind = parse_is_op(p, "*")    ? E_MUL
                    : parse_is_op(p, "/")  ? E_DIV
                    : parse_is_op(p, "//") ? E_FLOORDIV
                    : parse_is_op(p, "%")  ? E_FLOORMOD
                                           : E_NKINDS;
    if (kind == E_NKINDS) return a;
    p->at++;
    Operand b = parse_unary(p);
    a = parse_binary_operand(p, kind, &a, &b, loc);
  }
}

/* sum = term {('+' | '-') term} */
static Operand parse_sum(Parser *p)
{
  Operand a = parse_term(p);
  for (;;) {
    Loc loc = parse_loc(p, parse_peek(p));
    ExprKind kind = parse_is_op(p, "+") ? E_ADD : parse_is_op(p, "-") ? E_SUB : E_NKINDS;
    if (kind == E_NKINDS) return a;
    p->at++;
    Operand b = parse_term(p);
    a = parse_binary_operand(p, kind, &a, &b, loc);
  }
}

/* shift = sum {('<<' | '>>') sum} ; and = shift {'&' shift} ; xor = and {'^' and} ; or = xor {'|' xor} */
static Operand parse_bits(Parser *p, int level)
{
  static const struct {
    const char *op;
    Intrin in;
    int level;
  } ops[] = {
    {"<<", IN_SHL, 3}, {">>", IN_SHR, 3}, {"&", IN_BITAND, 2}, {"^", IN_BITXOR, 1}, {"|", IN_BITOR, 0},
  };
  Operand a = level == 3 ? parse_sum(p) : parse_bits(p, level + 1);
  for (;;) {
    Loc loc = parse_loc(p, parse_peek(p));
    size_t k = 0;
    while (k < sizeof ops / sizeof *ops && !(ops[k].level == level && parse_is_op(p, ops[k].op))) k++;
    if (k == sizeof ops / sizeof *ops) return a;
    p->at++;
    Operand b = level == 3 ? parse_sum(p) : parse_bits(p, level + 1);
    a = bit_operand(p, ops[k].in, &a, &b, loc);
  }
}

/* comparison = bits {('==' | '!=' | '<' | '<=' | '>' | '>=') bits}, chained as in Python */
static Operand parse_comparison(Parser *p)
{
  static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
  Operand a = parse_bits(p, 0);
  Operand all = {0};
  for (bool first = true;; first = false) {
    Loc loc = parse_loc(p, parse_peek(p));
    int k = 0;
    while (k < 6 && !parse_is_op(p, ops[k])) k++;
    if (k == 6) return first ? a : all;
    p->at++;
    Operand b = parse_bits(p, 0);
    Operand one = parse_binary_operand(p, (ExprKind)(E_EQ + k), &a, &b, loc);
    all = first ? one : parse_binary_operand(p, E_AND, &all, &one, loc);
    a = b;
  }
}

/* not = 'not' not | comparison */
static Operand parse_not(Parser *p)
{
  Loc loc = parse_loc(p, parse_peek(p));
  if (!parse_accept(p, "not")) return parse_comparison(p);
  parse_enter(p);
  Operand a = parse_not(p);
  parse_leave(p);
  if (a.kind == OP_BOOL) return (Operand){.kind = OP_BOOL, .loc = loc, .i = !a.i};
  return parse_expr_operand(p, expr_not(p->m, parse_as_cond(p, &a)), loc, a.depth + 1);
}

/* and = not {'and' not} ; or = and {'or' and} */
static Operand parse_logic(Parser *p, ExprKind kind)
{
  Operand a = kind == E_OR ? parse_logic(p, E_AND) : parse_not(p);
  for (;;) {
    Loc loc = parse_loc(p, parse_peek(p));
    if (!parse_accept(p, kind == E_OR ? "or" : "and")) return a;
    Operand b = kind == E_OR ? parse_logic(p, E_AND) : parse_not(p);
    if (a.kind == OP_BOOL && b.kind == OP_BOOL)
      a = (Operand){.kind = OP_BOOL, .loc = loc, .i = kind == E_OR ? a.i | b.i : a.i & b.i};
    else a = parse_binary_operand(p, kind, &a, &b, loc);
  }
}

/* expression = or ['if' or 'else' expression] */
Operand parse_operand(Parser *p)
{
  parse_enter(p);
  p->here = parse_loc(p, parse_peek(p));
  Operand a = parse_logic(p, E_OR);
  Loc loc = parse_loc(p, parse_peek(p));
  if (parse_accept(p, "if")) {
    Operand cond = parse_logic(p, E_OR);
    parse_expect(p, "else", "the condition of a conditional expression");
    Operand b = parse_operand(p);
    if (cond.kind == OP_BOOL) a = cond.i ? a : b;
    else {
      const Expr *arg[3] = {parse_as_cond(p, &cond), beside(p, &a, &b), beside(p, &b, &a)};
      int depth = a.depth > b.depth ? a.depth : b.depth;
      a = parse_expr_operand(p, expr_call(p->m, DT_NONE, IN_IF_THEN_ELSE, 3, arg), loc,
                             1 + (cond.depth > depth ? cond.depth : depth));
    }
  }
  parse_leave(p);
  return a;
}

/* operands = expression {',' expression} [','] */
Operand parse_list(Parser *p)
{
  Operand first = parse_operand(p);
  if (!parse_is_op(p, ",")) return first;
  Operands v = {0};
  vec_push(p->arena, &v, first);
  while (parse_accept(p, ",")) {
    if (parse_peek(p)->kind == TOK_NEWLINE || parse_is_op(p, "=")) break;
    Operand o = parse_operand(p);
    vec_push(p->arena, &v, o);
  }
  return (Operand){.kind = OP_LIST, .loc = first.loc, .list = v.v, .n = v.n};
}

const Expr *parse_expr(Parser *p)
{
  Operand o = parse_operand(p);
  return parse_as_expr(p, &o);
}
