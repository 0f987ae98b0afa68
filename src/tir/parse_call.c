/* parse_call.c: calls of TVMScript's functions in expressions.
 *
 * A callee is a path such as "T.max".  Functions that are operators or literals
 * have a row here; all others are the intrinsics of expr/intrin.def. */
#include "tir/script.h"

#include <math.h>

/* ---- arguments -------------------------------------------------------------------- */

/* arguments = [argument {',' argument} [',']] ')' ; argument = [name '='] expression */
Args parse_args(Parser *p)
{
  Args a = {0};
  while (!parse_is_op(p, ")")) {
    const Token *t = parse_peek(p);
    const Token *next = &p->tok[p->at + 1];
    if (t->kind == TOK_NAME && next->kind == TOK_OP && !strcmp(next->s, "=")) {
      p->at += 2;
      Operand o = parse_operand(p);
      vec_push(p->arena, &a.kw, t->s);
      vec_push(p->arena, &a.kwval, o);
    } else {
      if (a.kw.n) parse_error(p, parse_loc(p, t), "an argument without a name follows one with a name");
      bool star = parse_accept(p, "*");
      Operand o = parse_operand(p);
      if (star && o.kind != OP_LIST) parse_error(p, o.loc, "'*' wants a list");
      for (int i = 0; star && i < o.n; i++) vec_push(p->arena, &a.pos, o.list[i]);
      if (!star) vec_push(p->arena, &a.pos, o);
    }
    if (!parse_accept(p, ",")) break;
  }
  parse_expect(p, ")", "the arguments");
  return a;
}

const Operand *parse_arg_get(const Args *a, int i, const char *kw)
{
  if (i >= 0 && i < a->pos.n) return &a->pos.v[i];
  for (int k = 0; kw && k < a->kw.n; k++)
    if (!strcmp(a->kw.v[k], kw)) return &a->kwval.v[k];
  return NULL;
}

const Operand *parse_arg_need(Parser *p, const Args *a, int i, const char *kw, const Operand *callee)
{
  const Operand *o = parse_arg_get(a, i, kw);
  if (!o) parse_error(p, callee->loc, "%s: argument '%s' is missing", callee->s, kw);
  return o;
}

/* kws ends with NULL. */
void parse_args_check(Parser *p, const Args *a, int max, const char *const *kws, const Operand *callee)
{
  if (a->pos.n > max)
    parse_error(p, callee->loc, "%s takes at most %d argument%s, %d given", callee->s, max, max == 1 ? "" : "s",
                a->pos.n);
  for (int k = 0; k < a->kw.n; k++) {
    int n = 0;
    bool known = false;
    for (; kws && kws[n]; n++) known |= !strcmp(kws[n], a->kw.v[k]);
    if (known) continue;
    const char *near = str_nearest(a->kw.v[k], kws, n);
    if (near)
      parse_error(p, a->kwval.v[k].loc, "%s has no argument '%s'; did you mean '%s'?", callee->s, a->kw.v[k], near);
    parse_error(p, a->kwval.v[k].loc, "%s has no argument '%s'", callee->s, a->kw.v[k]);
  }
}

static int args_depth(const Args *a)
{
  int depth = 0;
  for (int i = 0; i < a->pos.n; i++)
    if (a->pos.v[i].depth > depth) depth = a->pos.v[i].depth;
  return depth + 1;
}

static void want_args(Parser *p, const Args *a, int n, const Operand *callee)
{
  parse_args_check(p, a, n, NULL, callee);
  if (a->pos.n != n)
    parse_error(p, callee->loc, "%s takes %d argument%s, %d given", callee->s, n, n == 1 ? "" : "s", a->pos.n);
}

Annots parse_as_annots(Parser *p, const Operand *dict)
{
  Annots out = {0};
  if (dict->kind != OP_DICT || (dict->n && !dict->keys))
    parse_error(p, dict->loc, "expected a dictionary such as {\"key\": 1}");
  for (int i = 0; i < dict->n; i++)
    annots_set(p->m->arena, &out, parse_as_str(p, &dict->keys[i], "a key"), parse_as_value(p, &dict->list[i]));
  return out;
}

/* ---- buffers ------------------------------------------------------------------------- */

#define WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* One size of a buffer; a string names a new variable. */
static const Expr *as_size(Parser *p, const Operand *o)
{
  if (o->kind != OP_STR) return parse_as_index(p, o);
  Symbol *s = parse_find_symbol(p, o->s);
  if (s) return parse_as_index(p, &s->value);
  if (strspn(o->s, WORD_CHARS) != strlen(o->s) || !*o->s)
    parse_error(p, o->loc, "a size is a number, an expression or the name of a variable, not \"%s\"", o->s);
  const Var *v = var_new(p->m, o->s, DT_I32, VAR_SIZE);
  parse_define(p, o->s, parse_expr_operand(p, v->expr, o->loc, 0));
  return v->expr;
}

static const Expr **as_sizes(Parser *p, const Operand *o, int *n)
{
  *n = o->kind == OP_LIST ? o->n : 1;
  const Expr **out = arena_array(p->arena, const Expr *, *n);
  for (int i = 0; i < *n; i++) out[i] = as_size(p, o->kind == OP_LIST ? &o->list[i] : o);
  return out;
}

static const Var *as_pointer(Parser *p, const Operand *o)
{
  const Expr *e = parse_as_expr(p, o);
  if (e->kind != E_VAR || e->dtype.code != DT_HANDLE) parse_error(p, o->loc, "data= wants a pointer such as A.data");
  return e->u.var;
}

/* Axes, each after the one before. */
static uint32_t as_separators(Parser *p, const Operand *o, int ndim)
{
  uint32_t out = 0;
  int64_t least = 0;
  if (o->kind == OP_NONE) return 0;
  if (o->kind != OP_LIST) parse_error(p, o->loc, "axis_separators wants a list of axes");
  for (int i = 0; i < o->n; i++) {
    int64_t at = parse_as_int(p, &o->list[i], "an axis separator");
    if (at < least || at > ndim)
      parse_error(p, o->list[i].loc, "axis separators grow from 0 to the %d dimensions of the buffer", ndim);
    out |= (uint32_t)1 << at;
    least = at + 1;
  }
  return out;
}

const Buffer *parse_buffer(Parser *p, const char *name, const Args *a, int first, const Operand *callee, bool *has_data)
{
  static const char *const kws[] = {"shape",       "dtype", "data",          "strides",     "elem_offset",
                                    "scope",       "align", "offset_factor", "buffer_type", "axis_separators",
                                    "annotations", "place", "offset",        NULL};
  parse_args_check(p, a, first + 2, kws, callee);
  int ndim;
  int nstrides = 0;
  const Expr **shape = as_sizes(p, parse_arg_need(p, a, first, "shape", callee), &ndim);
  const Expr **strides = NULL;
  const Operand *o = parse_arg_get(a, first + 1, "dtype");
  DType t = o ? parse_as_dtype(p, o) : DT_F32;
  if ((o = parse_arg_get(a, -1, "strides")) && o->kind != OP_NONE) strides = as_sizes(p, o, &nstrides);
  if (strides && nstrides != ndim && nstrides) parse_error(p, o->loc, "%d strides for %d dimensions", nstrides, ndim);
  o = parse_arg_get(a, -1, "elem_offset");
  const Expr *offset = o && o->kind != OP_NONE ? as_size(p, o) : NULL;
  o = parse_arg_get(a, -1, "scope");
  const char *scope = o ? parse_as_str(p, o, "scope") : NULL;
  o = parse_arg_get(a, -1, "align");
  int64_t align = o ? parse_as_int(p, o, "align") : 64;
  if (align < 1 || align > 1 << 20 || (align & (align - 1)))
    parse_error(p, o->loc, "align must be a power of two up to 1048576");
  o = parse_arg_get(a, -1, "offset_factor");
  int64_t factor = o ? parse_as_int(p, o, "offset_factor") : 0;
  if (factor < 0 || factor > 1 << 20) parse_error(p, o->loc, "offset_factor must lie between 0 and 1048576");
  o = parse_arg_get(a, -1, "data");
  const Var *data = o && o->kind != OP_NONE ? as_pointer(p, o) : NULL;
  if (has_data) *has_data = data != NULL;
  const Buffer *b =
      buffer_new(p->m, name, t, ndim, shape, nstrides ? strides : NULL, offset, scope, (int)align, (int)factor, data);
  o = parse_arg_get(a, -1, "axis_separators");
  return buffer_with_separators(p->m, b, o ? as_separators(p, o, ndim) : 0);
}

/* ---- literals and casts ------------------------------------------------------------------ */

static const Expr *literal(Parser *p, DType t, const Operand *o)
{
  if (o->kind == OP_STR) {
    double v = !strcmp(o->s, "inf") ? INFINITY : !strcmp(o->s, "-inf") ? -INFINITY : !strcmp(o->s, "nan") ? NAN : 0;
    if (v == 0 || !dtype_is_float(t))
      parse_error(p, o->loc, "\"%s\" is no literal of dtype %s", o->s, dtype_name(p->arena, t));
    return expr_float(p->m, t, v);
  }
  if (o->kind == OP_FLOAT && dtype_is_float(t)) return expr_float(p->m, t, o->f);
  if (o->kind == OP_BOOL && t.code != DT_HANDLE) return expr_const(p->m, t, o->i ? 1 : 0);
  if (o->kind != OP_INT || t.code == DT_HANDLE) return NULL;
  if (dtype_is_float(t)) return expr_float(p->m, t, o->negative ? -(double)o->i : (double)o->i);
  uint64_t bits = o->negative ? 0 - o->i : o->i;
  Value v = value_int(dtype_elem(t), (int64_t)bits);
  bool kept = t.code == DT_UINT ? !o->negative && (uint64_t)v.i == o->i
                                : v.i == (int64_t)bits && (v.i < 0 || bits == 0) == (o->negative || o->i == 0);
  if (!kept)
    parse_error(p, o->loc, "%s%" PRIu64 " does not fit %s", o->negative ? "-" : "", o->i, dtype_name(p->arena, t));
  return expr_int(p->m, t, v.i);
}

static const Expr *cast_to(Parser *p, DType t, const Operand *o) { return expr_cast(p->m, t, parse_as_expr(p, o)); }

/* T.float32(x) */
static Operand call_dtype(Parser *p, DType t, const Operand *callee, const Args *a)
{
  static const char *const kws[] = {"is_size_var", NULL};
  parse_args_check(p, a, 1, kws, callee);
  if (a->pos.n == 0)
    parse_error(p, callee->loc, "%s() makes a variable; write it as `name = %s()`", callee->s, callee->s);
  if (t.code == DT_VOID) parse_error(p, callee->loc, "nothing can be of dtype void");
  const Expr *e = literal(p, t, &a->pos.v[0]);
  return parse_expr_operand(p, e ? e : cast_to(p, t, &a->pos.v[0]), callee->loc, args_depth(a));
}

/* ---- functions that are nodes of their own --------------------------------------------------- */

static Operand call_binary(Parser *p, ExprKind kind, const Operand *callee, const Args *a)
{
  want_args(p, a, 2, callee);
  const Operand *x = &a->pos.v[0];
  const Operand *y = &a->pos.v[1];
  if (x->kind != OP_FLOAT && y->kind != OP_FLOAT)
    return parse_expr_operand(p, expr_binary(p->m, kind, parse_as_expr(p, x), parse_as_expr(p, y)), callee->loc,
                              args_depth(a));
  /* T.max(x, 0.0): the literal takes the other's dtype */
  Operand ex = parse_expr_operand(p, parse_as_expr(p, x), x->loc, x->depth);
  Operand ey = parse_expr_operand(p, parse_as_expr(p, y), y->loc, y->depth);
  const Operand *l = x->kind == OP_FLOAT && y->kind != OP_FLOAT ? x : &ex;
  const Operand *r = y->kind == OP_FLOAT && x->kind != OP_FLOAT ? y : &ey;
  return parse_binary_operand(p, kind, l, r, callee->loc);
}

/* T.all(a, b, c), T.any(…) */
static Operand call_fold(Parser *p, ExprKind kind, const Operand *callee, const Args *a)
{
  if (a->pos.n < 1 || a->kw.n) parse_error(p, callee->loc, "%s takes conditions", callee->s);
  Operand all = parse_expr_operand(p, parse_as_cond(p, &a->pos.v[0]), callee->loc, a->pos.v[0].depth);
  for (int i = 1; i < a->pos.n; i++) all = parse_binary_operand(p, kind, &all, &a->pos.v[i], callee->loc);
  return all;
}

static int as_lanes(Parser *p, const Operand *o)
{
  int64_t lanes = parse_as_int(p, o, "the number of lanes");
  if (lanes < 1 || lanes > MAX_LANES)
    parse_error(p, o->loc, "a vector has 1 to %d lanes, not %" PRId64, MAX_LANES, lanes);
  return (int)lanes;
}

/* T.Ramp(base, stride, lanes), T.Broadcast(value, lanes) */
static Operand call_vector(Parser *p, bool ramp, const Operand *callee, const Args *a)
{
  want_args(p, a, ramp ? 3 : 2, callee);
  const Expr *e = parse_as_expr(p, &a->pos.v[0]);
  int lanes = as_lanes(p, &a->pos.v[ramp ? 2 : 1]);
  if (ramp) e = expr_ramp(p->m, e, parse_as_expr(p, &a->pos.v[1]), lanes);
  else if (lanes > 1) e = expr_broadcast(p->m, e, lanes);
  return parse_expr_operand(p, e, callee->loc, args_depth(a));
}

static Operand call_select(Parser *p, const Operand *callee, const Args *a)
{
  want_args(p, a, 3, callee);
  const Expr *e =
      expr_select(p->m, parse_as_cond(p, &a->pos.v[0]), parse_as_expr(p, &a->pos.v[1]), parse_as_expr(p, &a->pos.v[2]));
  return parse_expr_operand(p, e, callee->loc, args_depth(a));
}

/* T.ceildiv(a, b) is (a + b - 1) // b */
static Operand call_ceildiv(Parser *p, const Operand *callee, const Args *a)
{
  want_args(p, a, 2, callee);
  const Operand *x = &a->pos.v[0];
  const Operand *y = &a->pos.v[1];
  Operand one = {.kind = OP_INT, .loc = callee->loc, .i = 1};
  Operand sum = parse_binary_operand(p, E_ADD, x, y, callee->loc);
  sum = parse_binary_operand(p, E_SUB, &sum, &one, callee->loc);
  return parse_binary_operand(p, E_FLOORDIV, &sum, y, callee->loc);
}

/* T.infinity, T.min_value, T.max_value of a dtype */
static Operand call_limit(Parser *p, const char *name, const Operand *callee, const Args *a)
{
  want_args(p, a, 1, callee);
  DType t = parse_as_dtype(p, &a->pos.v[0]);
  bool low = !strcmp(name, "min_value");
  bool inf = !strcmp(name, "infinity");
  const Expr *e;
  if (dtype_is_float(t)) e = expr_float(p->m, t, inf ? INFINITY : low ? dtype_min(t) : dtype_max(t));
  else if (inf || !dtype_is_int(t))
    parse_error(p, callee->loc, "%s has no value of dtype %s", callee->s, dtype_name(p->arena, t));
  else e = expr_int(p->m, t, low ? dtype_imin(t) : dtype_imax(t));
  return parse_expr_operand(p, e, callee->loc, 1);
}

/* The index after the bracket that closes the one before `at`. */
static int skip_argument(Parser *p, int at)
{
  int open = 0;
  for (;; at++) {
    const Token *t = &p->tok[at];
    if (t->kind == TOK_END) return at;
    if (t->kind != TOK_OP) continue;
    if (strchr("([{", t->s[0]) && !t->s[1]) open++;
    if (strchr(")]}", t->s[0]) && !t->s[1] && open-- == 0) return at;
    if (!strcmp(t->s, ",") && !open) return at;
  }
}

/* let = 'T.Let' '(' expression ',' ['where' '='] '{' name ':' expression '}' ')'
 * The value comes last and is read first: the body speaks of the name. */
Operand parse_let_call(Parser *p, const Operand *callee)
{
  parse_enter(p);
  int body_at = p->at;
  int mark = p->symbols.n;
  p->at = skip_argument(p, p->at);
  parse_expect(p, ",", "the body of T.Let");
  if (parse_accept(p, "where")) parse_expect(p, "=", "where");
  parse_expect(p, "{", "where=");
  const char *name = parse_expect_name(p, "a variable");
  parse_expect(p, ":", "the variable of T.Let");
  Operand value_operand = parse_operand(p);
  const Expr *value = parse_as_expr(p, &value_operand);
  parse_expect(p, "}", "the value of T.Let");
  parse_accept(p, ",");
  parse_expect(p, ")", "T.Let");
  int end = p->at;
  const Var *v = var_new(p->m, name, value->dtype, VAR_PLAIN);
  parse_define_var(p, v, callee->loc);
  p->at = body_at;
  Operand body = parse_operand(p);
  if (!parse_is_op(p, ","))
    parse_error(p, parse_loc(p, parse_peek(p)), "expected ',' after the body of T.Let, found %s",
                parse_token_text(p, parse_peek(p)));
  p->at = end;
  p->symbols.n = mark;
  parse_leave(p);
  int depth = 1 + (body.depth > value_operand.depth ? body.depth : value_operand.depth);
  return parse_expr_operand(p, expr_let(p->m, v, value, parse_as_expr(p, &body)), callee->loc, depth);
}

/* ---- intrinsics ---------------------------------------------------------------------------------- */

static const Expr *float_literal(Parser *p, DType t, const Operand *o)
{
  return expr_float(p->m, t, o->kind == OP_FLOAT ? o->f : o->negative ? -(double)o->i : (double)o->i);
}

static const Expr *first_element(Parser *p, const Buffer *b)
{
  const Expr **index = arena_array(p->arena, const Expr *, b->ndim);
  for (int i = 0; i < b->ndim; i++) index[i] = expr_int(p->m, b->shape[i]->dtype, 0);
  return expr_load(p->m, b, b->ndim, index);
}

static Operand call_intrin(Parser *p, Intrin in, const Operand *callee, const Args *a)
{
  static const char *const kws[] = {"dtype", NULL};
  const IntrinInfo *info = intrin_info(in);
  parse_args_check(p, a, 1 << 20, kws, callee);
  const Operand *o = parse_arg_get(a, -1, "dtype");
  DType t = o ? parse_as_dtype(p, o) : DT_NONE;
  int first = 0;
  if (info->flags & INF_TYPED && !o) {
    t = parse_as_dtype(p, parse_arg_need(p, a, 0, "dtype", callee));
    first = 1;
  }
  int n = a->pos.n - first;
  const Expr **arg = arena_array(p->arena, const Expr *, n);
  const Expr *near = NULL; /* a float beside which a literal stands */
  for (int i = 0; i < n; i++) {
    const Operand *x = &a->pos.v[first + i];
    if (x->kind == OP_FLOAT || (info->flags & INF_FLOAT && x->kind == OP_INT)) continue;
    arg[i] = in == IN_ADDRESS_OF && x->kind == OP_BUFFER ? first_element(p, x->buffer) : parse_as_expr(p, x);
    if (dtype_is_float(arg[i]->dtype)) near = arg[i];
  }
  for (int i = 0; i < n; i++)
    if (!arg[i]) arg[i] = float_literal(p, near ? dtype_elem(near->dtype) : DT_F32, &a->pos.v[first + i]);
  if (in == IN_ADDRESS_OF && n == 1 && arg[0]->kind != E_LOAD)
    parse_error(p, callee->loc, "T.address_of wants an element of a buffer");
  if (n < info->min_args || (info->max_args >= 0 && n > info->max_args))
    parse_error(p, callee->loc, "%s takes %s%d argument%s, %d given", callee->s, info->max_args < 0 ? "at least " : "",
                info->min_args, info->min_args == 1 ? "" : "s", n);
  return parse_expr_operand(p, expr_call(p->m, t, in, n, arg), callee->loc, args_depth(a));
}

/* ---- methods ---------------------------------------------------------------------------------------- */

/* A.access_ptr("r", offset=…, extent=…) */
static Operand call_access_ptr(Parser *p, const Operand *callee, const Args *a)
{
  static const char *const kws[] = {"access_mask", "ptr_type", "content_lanes", "offset", "extent", NULL};
  parse_args_check(p, a, 5, kws, callee);
  const Buffer *b = callee->buffer;
  const Operand *mask = parse_arg_need(p, a, 0, "access_mask", callee);
  const Operand *offset = parse_arg_get(a, 3, "offset");
  const Operand *extent = parse_arg_get(a, 4, "extent");
  int64_t bits = 0;
  if (mask->kind == OP_STR) bits = (strchr(mask->s, 'r') ? 1 : 0) | (strchr(mask->s, 'w') ? 2 : 0);
  else bits = parse_as_int(p, mask, "the access mask");
  if (bits < 1 || bits > 3) parse_error(p, mask->loc, "the access mask is \"r\", \"w\" or \"rw\"");
  const Expr *at = b->elem_offset ? b->elem_offset : expr_i32(p->m, 0);
  const Expr *n = expr_i32(p->m, 1);
  if (offset) at = b->elem_offset ? expr_add(p->m, at, parse_as_index(p, offset)) : parse_as_index(p, offset);
  for (int d = 0; d < b->ndim; d++) n = d ? expr_mul(p->m, n, b->shape[d]) : b->shape[0];
  if (extent) n = parse_as_index(p, extent);
  const Expr *arg[5] = {expr_call(p->m, b->dtype, IN_TYPE_MARKER, 0, NULL), b->data->expr, at, n, expr_i32(p->m, bits)};
  return parse_expr_operand(p, expr_call(p->m, DT_NONE, IN_ACCESS_PTR, 5, arg), callee->loc, args_depth(a));
}

/* A.vload([i, j]) : the indices are points or vectors */
static Operand call_vload(Parser *p, const Operand *callee, const Args *a)
{
  want_args(p, a, 1, callee);
  const Operand *list = &a->pos.v[0];
  int n = list->kind == OP_LIST ? list->n : 1;
  const Expr **index = arena_array(p->arena, const Expr *, n);
  for (int i = 0; i < n; i++) index[i] = parse_as_index(p, list->kind == OP_LIST ? &list->list[i] : list);
  return parse_expr_operand(p, expr_load(p->m, callee->buffer, n, index), callee->loc, args_depth(a));
}

static Operand call_method(Parser *p, const Operand *callee, const Args *a)
{
  if (!strcmp(callee->s, ".astype")) {
    want_args(p, a, 1, callee);
    return parse_expr_operand(p, expr_cast(p->m, parse_as_dtype(p, &a->pos.v[0]), callee->e), callee->loc,
                              callee->depth + 1);
  }
  if (!strcmp(callee->s, ".access_ptr")) return call_access_ptr(p, callee, a);
  if (!strcmp(callee->s, ".vload")) return call_vload(p, callee, a);
  if (!strcmp(callee->s, ".scope")) return (Operand){.kind = OP_STR, .loc = callee->loc, .s = callee->buffer->scope};
  parse_error(p, callee->loc, "'%s' has no value; it stands alone on its line", callee->s + 1);
}

/* ---- the table ------------------------------------------------------------------------------------------ */

/* clang-format off */
static const struct { const char *name; uint8_t kind; } binaries[] = {
    {"Add", E_ADD}, {"Sub", E_SUB}, {"Mul", E_MUL}, {"Div", E_DIV}, {"Mod", E_MOD}, {"FloorDiv", E_FLOORDIV},
    {"FloorMod", E_FLOORMOD}, {"Min", E_MIN}, {"Max", E_MAX}, {"EQ", E_EQ}, {"NE", E_NE}, {"LT", E_LT}, {"LE", E_LE},
    {"GT", E_GT}, {"GE", E_GE}, {"And", E_AND}, {"Or", E_OR}, {"min", E_MIN}, {"max", E_MAX}, {"truncdiv", E_DIV},
    {"truncmod", E_MOD}, {"floordiv", E_FLOORDIV}, {"floormod", E_FLOORMOD},
};
/* clang-format on */
static const struct {
  const char *name;
  Intrin in;
} aliases[] = {
  {"power", IN_POW},
  {"fabs", IN_ABS},
  {"call_packed", IN_CALL_PACKED},
  {"rint", IN_NEARBYINT},
};
static const char *const specials[] = {
  "Select",       "Cast",         "Ramp",           "Broadcast", "Let",      "Not",        "all",       "any",
  "ceildiv",      "infinity",     "min_value",      "max_value", "evaluate", "block",      "serial",    "parallel",
  "vectorized",   "unroll",       "thread_binding", "grid",      "reads",    "writes",     "where",     "init",
  "match_buffer", "alloc_buffer", "decl_buffer",    "allocate",  "attr",     "block_attr", "func_attr", "Buffer",
  "float32",      "int32"};

/* Names of the language that are not supported, each with the way out. */
static const struct {
  const char *name, *instead;
} absent[] = {
  {"allocate_const", "pass the constant as a parameter"},
};

_Noreturn static void unknown_function(Parser *p, const Operand *callee, const char *name)
{
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    if (!strcmp(name, absent[i].name))
      parse_error(p, callee->loc, "%s is not supported: %s", callee->s, absent[i].instead);
  enum { NB = sizeof binaries / sizeof *binaries, NS = sizeof specials / sizeof *specials };
  const char *words[NB + NS + IN_COUNT];
  int n = 0;
  for (int i = 0; i < IN_COUNT; i++) words[n++] = intrin_info((Intrin)i)->name;
  for (int i = 0; i < NB; i++) words[n++] = binaries[i].name;
  for (int i = 0; i < NS; i++) words[n++] = specials[i];
  const char *near = str_nearest(name, words, n);
  for (int i = 0; i < NS; i++)
    if (!strcmp(name, specials[i])) parse_error(p, callee->loc, "%s cannot stand inside an expression", callee->s);
  if (near) parse_error(p, callee->loc, "unknown function '%s'; did you mean 'T.%s'?", callee->s, near);
  parse_error(p, callee->loc, "unknown function '%s'", callee->s);
}

static Operand call_python(Parser *p, const Operand *callee, const Args *a)
{
  bool min = !strcmp(callee->s, "min");
  if (min || !strcmp(callee->s, "max")) {
    want_args(p, a, 2, callee);
    return parse_binary_operand(p, min ? E_MIN : E_MAX, &a->pos.v[0], &a->pos.v[1], callee->loc);
  }
  if (!strcmp(callee->s, "float") && a->pos.n == 1 && a->pos.v[0].kind == OP_STR)
    return parse_expr_operand(p, literal(p, DT_F32, &a->pos.v[0]), callee->loc, 1);
  parse_error(p, callee->loc, "%s() cannot stand here", callee->s);
}

Operand parse_call_operand(Parser *p, const Operand *callee, const Args *a)
{
  if (callee->s[0] == '.') return call_method(p, callee, a);
  if (!str_starts(callee->s, "T.")) return call_python(p, callee, a);
  const char *name = callee->s + 2;
  DType t;
  Intrin in;
  if (parse_dtype_word(name, &t)) return call_dtype(p, t, callee, a);
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
    if (!strcmp(name, binaries[i].name)) return call_binary(p, (ExprKind)binaries[i].kind, callee, a);
  if (!strcmp(name, "Select")) return call_select(p, callee, a);
  if (!strcmp(name, "Ramp") || !strcmp(name, "ramp")) return call_vector(p, true, callee, a);
  if (!strcmp(name, "Broadcast") || !strcmp(name, "broadcast")) return call_vector(p, false, callee, a);
  if (!strcmp(name, "all")) return call_fold(p, E_AND, callee, a);
  if (!strcmp(name, "any")) return call_fold(p, E_OR, callee, a);
  if (!strcmp(name, "ceildiv")) return call_ceildiv(p, callee, a);
  if (!strcmp(name, "infinity") || !strcmp(name, "min_value") || !strcmp(name, "max_value"))
    return call_limit(p, name, callee, a);
  if (!strcmp(name, "Not")) {
    want_args(p, a, 1, callee);
    return parse_expr_operand(p, expr_not(p->m, parse_as_cond(p, &a->pos.v[0])), callee->loc, args_depth(a));
  }
  if (!strcmp(name, "meta_var")) { /* parse_assignment reads the mark */
    want_args(p, a, 1, callee);
    Operand o = a->pos.v[0];
    o.meta = true;
    return o;
  }
  if (!strcmp(name, "target") || !strcmp(name, "env_thread")) { /* a target is its string, a thread axis its tag */
    want_args(p, a, 1, callee);
    return (Operand){
      .kind = OP_STR, .loc = callee->loc, .axis = name[0] == 'e', .s = parse_as_str(p, &a->pos.v[0], callee->s)};
  }
  if (!strcmp(name, "Cast") || !strcmp(name, "cast")) {
    want_args(p, a, 2, callee);
    bool first = name[0] == 'C'; /* T.Cast(dtype, value), T.cast(value, dtype) */
    return parse_expr_operand(p, cast_to(p, parse_as_dtype(p, &a->pos.v[first ? 0 : 1]), &a->pos.v[first ? 1 : 0]),
                              callee->loc, args_depth(a));
  }
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(name, aliases[i].name)) return call_intrin(p, aliases[i].in, callee, a);
  if (intrin_find(name, &in)) return call_intrin(p, in, callee, a);
  unknown_function(p, callee, name);
}
