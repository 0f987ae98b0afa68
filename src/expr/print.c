/* print.c: expressions as text, in TVMScript's words or in the compact form.
 *
 * Operators print with the fewest brackets that keep their grouping.  An
 * expression is a DAG; where writing it as a tree would be much longer, the nodes
 * used more than once are written once, ahead of it:
 *   (shared := a*b, shared_1 := shared + shared, shared_1*shared_1)[-1]
 * which names subterms without adding a node, so the text parses back to the
 * same expression. */
#include "expr/expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TREE_LIMIT 4096 /* nodes of the tree above which sharing is written out */

typedef struct Printer {
  Text *out;
  Namer *namer;
  PrintStyle style;
  Map *shared; /* Expr* -> name, or NULL when nothing is shared */
} Printer;

const char *expr_namer_name(Namer *n, const void *thing, const char *hint)
{
  const char *name = map_get(&n->names, thing);
  if (name) return name;
  if (!hint || !*hint) hint = "v";
  char *base = arena_strdup(n->arena, hint);
  for (char *c = base; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_')) *c = '_';
  if (*base >= '0' && *base <= '9') base = arena_printf(n->arena, "v%s", base);
  name = base;
  for (int i = 1; strmap_get(&n->taken, name); i++) name = arena_printf(n->arena, "%s_%d", base, i);
  strmap_put(n->arena, &n->taken, name, base);
  map_put(n->arena, &n->names, thing, (void *)(uintptr_t)name);
  return name;
}

static const struct {
  const char *op;
  int strength;
} operators[] = {
#define X(id, name, op, prec) {op, prec},
  EXPR_KINDS(X)
#undef X
};

static void print(Printer *p, const Expr *e, int strength);

static void print_args(Printer *p, int n, const Expr *const *arg)
{
  for (int i = 0; i < n; i++) {
    if (i) text_add(p->out, ", ");
    print(p, arg[i], 0);
  }
}

static const char *prefix(Printer *p) { return p->style == PRINT_SCRIPT ? "T." : ""; }

static void print_function(Printer *p, const char *name, int n, const Expr *const *arg)
{
  text_printf(p->out, "%s%s(", prefix(p), name);
  print_args(p, n, arg);
  text_char(p->out, ')');
}

static void print_int(Printer *p, const Expr *e)
{
  if (dtype_is_bool(e->dtype)) {
    const char *word = e->u.i ? "True" : "False";
    text_printf(p->out, p->style == PRINT_SCRIPT ? "T.bool(%s)" : "%s", word);
    return;
  }
  bool plain = dtype_eq(e->dtype, DT_I32) || (p->style == PRINT_COMPACT && dtype_eq(e->dtype, DT_I64));
  const char *number = e->dtype.code == DT_UINT ? arena_printf(p->out->arena, "%" PRIu64, (uint64_t)e->u.i)
                                                : arena_printf(p->out->arena, "%" PRId64, e->u.i);
  if (plain) text_add(p->out, number);
  else text_printf(p->out, "%s%s(%s)", prefix(p), dtype_name(p->out->arena, e->dtype), number);
}

/* Fewest digits that round to the same value in its dtype. */
static const char *float_text(Arena *arena, DType t, double f)
{
  char text[40];
  if (f == trunc(f) && fabs(f) < 1e7) return text_double(arena, f);
  for (int digits = 1; digits < 17 && isfinite(f); digits++) {
    snprintf(text, sizeof text, "%.*g", digits, f);
    if (float_round(t, strtod(text, NULL)) == f) return arena_strdup(arena, text);
  }
  return text_double(arena, f);
}

static void print_float(Printer *p, const Expr *e)
{
  const char *number = float_text(p->out->arena, e->dtype, e->u.f);
  if (p->style == PRINT_COMPACT && dtype_eq(e->dtype, DT_F32) && isfinite(e->u.f)) {
    text_printf(p->out, "%sf", number);
    return;
  }
  if (p->style == PRINT_SCRIPT && !isfinite(e->u.f)) number = arena_printf(p->out->arena, "\"%s\"", number);
  else if (!strpbrk(number, ".en")) number = arena_printf(p->out->arena, "%s.0", number);
  text_printf(p->out, "%s%s(%s)", prefix(p), dtype_name(p->out->arena, e->dtype), number);
}

/* Python itself would add up `1 + 2`, so between plain numbers script text names
 * the operator. */
static const char *word_of(ExprKind kind)
{
  static const struct {
    uint8_t kind;
    const char *word;
  } words[] = {
    {E_ADD, "Add"},
    {E_SUB, "Sub"},
    {E_MUL, "Mul"},
    {E_FLOORDIV, "FloorDiv"},
    {E_FLOORMOD, "FloorMod"},
    {E_EQ, "EQ"},
    {E_NE, "NE"},
    {E_LT, "LT"},
    {E_LE, "LE"},
    {E_GT, "GT"},
    {E_GE, "GE"},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i].kind == kind) return words[i].word;
  return NULL;
}

static bool is_plain_number(const Expr *e) { return e->kind == E_INT && dtype_eq(e->dtype, DT_I32); }

static void print_binary(Printer *p, const Expr *e, int strength)
{
  if (p->style == PRINT_SCRIPT && is_plain_number(e->arg[0]) && is_plain_number(e->arg[1]) &&
      word_of((ExprKind)e->kind)) {
    print_function(p, word_of((ExprKind)e->kind), 2, e->arg);
    return;
  }
  bool truncates = e->kind == E_DIV && dtype_is_int(e->dtype);
  if (!*operators[e->kind].op || truncates) {
    const char *name = truncates ? "truncdiv" : e->kind == E_MOD ? "truncmod" : expr_kind_name((ExprKind)e->kind);
    print_function(p, name, 2, e->arg);
    return;
  }
  int own = operators[e->kind].strength;
  bool compares = e->kind >= E_EQ && e->kind <= E_GE; /* a < b < c chains in Python: bracket both sides */
  const char *op = operators[e->kind].op;
  if (p->style == PRINT_COMPACT && (e->kind == E_AND || e->kind == E_OR)) op = e->kind == E_AND ? "&&" : "||";
  bool tight = (e->kind == E_MUL || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) && dtype_is_int(e->dtype);
  if (own < strength) text_char(p->out, '(');
  print(p, e->arg[0], compares ? own + 1 : own);
  text_printf(p->out, tight ? "%s" : " %s ", op);
  print(p, e->arg[1], own + 1);
  if (own < strength) text_char(p->out, ')');
}

/* Script text names the dtype first where the function has no natural one, as
 * TVM does, and as dtype= where it is not the natural one. */
static void print_call(Printer *p, const Expr *e)
{
  Intrin in = e->u.intrin;
  const char *dtype = dtype_name(p->out->arena, e->dtype);
  bool script = p->style == PRINT_SCRIPT;
  bool first = intrin_info(in)->flags & INF_TYPED;
  text_printf(p->out, "%s%s(", prefix(p), intrin_info(in)->name);
  if (first && (script || in == IN_REINTERPRET || in == IN_TYPE_MARKER))
    text_printf(p->out, "\"%s\"%s", dtype, e->nargs ? ", " : "");
  print_args(p, e->nargs, e->arg);
  if (script && !first && (intrin_info(in)->flags & INF_ANY) && !dtype_eq(e->dtype, intrin_dtype(in, e->nargs, e->arg)))
    text_printf(p->out, "%sdtype=\"%s\"", e->nargs ? ", " : "", dtype);
  text_char(p->out, ')');
}

static void print_lanes(Printer *p, DType t)
{
  if (dtype_is_scalable(t)) text_printf(p->out, ", %svscale()*%d)", prefix(p), t.lanes & MAX_LANES);
  else text_printf(p->out, ", %d)", t.lanes);
}

static void print_let(Printer *p, const Expr *e)
{
  const char *name = expr_namer_name(p->namer, e->u.var, e->u.var->name);
  if (p->style == PRINT_SCRIPT) {
    text_add(p->out, "T.Let(");
    print(p, e->arg[1], 0);
    text_printf(p->out, ", where={%s: ", name);
    print(p, e->arg[0], 0);
    text_add(p->out, "})");
  } else {
    text_printf(p->out, "(let %s = ", name);
    print(p, e->arg[0], 0);
    text_add(p->out, " in ");
    print(p, e->arg[1], 0);
    text_char(p->out, ')');
  }
}

static void print_reduce(Printer *p, const Expr *e)
{
  const Reduce *r = e->u.reduce;
  text_printf(p->out, "%s%s(", prefix(p), r->reducer->name);
  print_args(p, r->reducer->n, e->arg);
  text_add(p->out, ", axis=[");
  for (int i = 0; i < r->naxis; i++)
    text_printf(p->out, "%s%s", i ? ", " : "", expr_namer_name(p->namer, r->axis[i]->var, r->axis[i]->var->name));
  text_char(p->out, ']');
  if (!expr_is_int(e->arg[r->reducer->n], 1)) {
    text_add(p->out, ", where=");
    print(p, e->arg[r->reducer->n], 0);
  }
  text_char(p->out, ')');
}

static void print(Printer *p, const Expr *e, int strength)
{
  const char *shared = p->shared ? map_get(p->shared, e) : NULL;
  if (shared) {
    text_add(p->out, shared);
    return;
  }
  switch ((ExprKind)e->kind) {
  case E_INT: print_int(p, e); return;
  case E_FLOAT: print_float(p, e); return;
  case E_STR: text_quote(p->out, e->u.str); return;
  case E_VAR: text_add(p->out, expr_namer_name(p->namer, e->u.var, e->u.var->name)); return;
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
  case E_OR: print_binary(p, e, strength); return;
  case E_NOT:
    if (strength > operators[E_NOT].strength) text_char(p->out, '(');
    text_add(p->out, p->style == PRINT_SCRIPT ? "not " : "!");
    print(p, e->arg[0], p->style == PRINT_SCRIPT ? operators[E_NOT].strength : 9);
    if (strength > operators[E_NOT].strength) text_char(p->out, ')');
    return;
  case E_CAST:
    if (p->style == PRINT_SCRIPT) text_printf(p->out, "T.Cast(\"%s\", ", dtype_name(p->out->arena, e->dtype));
    else text_printf(p->out, "cast(%s, ", dtype_name(p->out->arena, e->dtype));
    print(p, e->arg[0], 0);
    text_char(p->out, ')');
    return;
  case E_SELECT: print_function(p, p->style == PRINT_SCRIPT ? "Select" : "select", 3, e->arg); return;
  case E_LET: print_let(p, e); return;
  case E_LOAD:
    text_printf(p->out, "%s[", expr_namer_name(p->namer, e->u.buffer, e->u.buffer->name));
    if (e->nargs == 0) text_add(p->out, "()");
    print_args(p, e->nargs, e->arg);
    text_char(p->out, ']');
    return;
  case E_CALL: print_call(p, e); return;
  case E_RAMP:
    text_printf(p->out, "%s(", p->style == PRINT_SCRIPT ? "T.Ramp" : "ramp");
    print_args(p, 2, e->arg);
    print_lanes(p, e->dtype);
    return;
  case E_BROADCAST:
    text_printf(p->out, "%s(", p->style == PRINT_SCRIPT ? "T.Broadcast" : "broadcast");
    print(p, e->arg[0], 0);
    print_lanes(p, e->dtype);
    return;
  case E_REDUCE: print_reduce(p, e); return;
  case E_NKINDS: break;
  }
}

/* ---- sharing ------------------------------------------------------------------------ */

typedef struct Census {
  Arena *arena;
  Map size, uses;          /* nodes of the tree below; times referred to */
  Map local;               /* let variables, and nodes that use one: they stay where they are */
  Vec(const Expr *) order; /* arguments first */
} Census;

static void note_let(void *env, const Expr *e)
{
  Census *c = env;
  if (e->kind == E_LET) map_put(c->arena, &c->local, e->u.var->expr, c);
}

static void census(void *env, const Expr *e)
{
  Census *c = env;
  double size = 1;
  for (int i = 0; i < e->nargs; i++) {
    size += (double)(intptr_t)map_get(&c->size, e->arg[i]);
    map_put(c->arena, &c->uses, e->arg[i], (void *)((intptr_t)map_get(&c->uses, e->arg[i]) + 1));
    if (map_has(&c->local, e->arg[i])) map_put(c->arena, &c->local, e, c);
  }
  if (size > 1e15) size = 1e15;
  map_put(c->arena, &c->size, e, (void *)(intptr_t)size);
  vec_push(c->arena, &c->order, e);
}

static bool worth_sharing(const Census *c, const Expr *e)
{
  return e->nargs > 0 && (intptr_t)map_get(&c->uses, e) > 1 && (intptr_t)map_get(&c->size, e) > 8 &&
         !map_has(&c->local, e);
}

static void print_shared(Printer *p, Census *c, const Expr *e)
{
  Map names = {0};
  p->shared = &names;
  text_char(p->out, '(');
  for (int i = 0; i < c->order.n; i++) {
    const Expr *s = c->order.v[i];
    if (s == e || !worth_sharing(c, s)) continue;
    const char *name = expr_namer_name(p->namer, s, "shared");
    text_printf(p->out, "%s := ", name);
    print(p, s, 0);
    text_add(p->out, ", ");
    map_put(c->arena, &names, s, (void *)(uintptr_t)name);
  }
  print(p, e, 0);
  text_add(p->out, ")[-1]");
  p->shared = NULL;
}

void expr_print(Text *out, Namer *namer, PrintStyle style, const Expr *e)
{
  Printer p = {out, namer, style, NULL};
  if (e->nargs == 0) {
    print(&p, e, 0);
    return;
  }
  Ctx *ctx = arena_ctx(out->arena);
  Census c = {.arena = scratch(ctx)};
  if (e->kinds >> E_LET & 1) expr_visit(ctx, e, note_let, &c);
  expr_visit(ctx, e, census, &c);
  if ((intptr_t)map_get(&c.size, e) > TREE_LIMIT) print_shared(&p, &c, e);
  else print(&p, e, 0);
}

const char *expr_str_of(Arena *arena, const Expr *e)
{
  Text out = text_new(arena);
  Namer namer = {.arena = arena};
  expr_print(&out, &namer, PRINT_COMPACT, e);
  return text_str(&out);
}
