/* rules.c: the tables of rewrite rules: matching, conditions, instances for the fuzzer.
 *
 * A rule is two patterns and perhaps a condition, all of them data (rules.def, forms.def).
 * Matching binds wildcards; commutative nodes are tried in both orders.  The
 * right side is built with the constructors, arithmetic on literals folded; a
 * fold that has no value or leaves the dtype means the rule does not apply. */
#include "expr/analysis.h"

typedef enum { P_NODE, P_CALL, P_ANY, P_COND, P_CONST, P_NUM, P_BOOL, P_NEG_ZERO, P_LAST_LANE } PatWhat;

typedef struct Pat {
  uint8_t what; /* PatWhat */
  uint8_t op;   /* P_NODE: ExprKind; P_CALL: Intrin; wildcards: slot */
  uint8_t n;
  int8_t num; /* P_NUM, P_BOOL */
  const struct Pat *arg[3];
} Pat;

typedef enum { ANY, INT, INDEX, FLOAT, BOOL } Where;

typedef struct Rule {
  Where where;
  const Pat *left, *right, *when;
  bool any; /* operands of commutative nodes in any order */
  const char *text;
} Rule;

#define NODE1(op, a) (&(const Pat){P_NODE, op, 1, 0, {a}})
#define NODE2(op, a, b) (&(const Pat){P_NODE, op, 2, 0, {a, b}})
#define NODE3(op, a, b, c) (&(const Pat){P_NODE, op, 3, 0, {a, b, c}})
#define CALL(op, n, ...) (&(const Pat){P_CALL, op, n, 0, {__VA_ARGS__}})
#define LEAF(what, slot, num) (&(const Pat){what, slot, 0, num, {0}})
#define x LEAF(P_ANY, 0, 0)
#define y LEAF(P_ANY, 1, 0)
#define z LEAF(P_ANY, 2, 0)
#define w LEAF(P_ANY, 3, 0)
#define p LEAF(P_COND, 4, 0)
#define q LEAF(P_COND, 5, 0)
#define c0 LEAF(P_CONST, 6, 0)
#define c1 LEAF(P_CONST, 7, 0)
#define c2 LEAF(P_CONST, 8, 0)
#define ZERO LEAF(P_NUM, 0, 0)
#define ONE LEAF(P_NUM, 0, 1)
#define TWO LEAF(P_NUM, 0, 2)
#define MINUS_ONE LEAF(P_NUM, 0, -1)
#define NEG_ZERO LEAF(P_NEG_ZERO, 0, 0)
#define TRUE LEAF(P_BOOL, 0, 1)
#define FALSE LEAF(P_BOOL, 0, 0)
#define LAST_LANE LEAF(P_LAST_LANE, 0, 0)
#define ADD(a, b) NODE2(E_ADD, a, b)
#define SUB(a, b) NODE2(E_SUB, a, b)
#define MUL(a, b) NODE2(E_MUL, a, b)
#define DIV(a, b) NODE2(E_DIV, a, b)
#define MOD(a, b) NODE2(E_MOD, a, b)
#define FLOORDIV(a, b) NODE2(E_FLOORDIV, a, b)
#define FLOORMOD(a, b) NODE2(E_FLOORMOD, a, b)
#define MIN(a, b) NODE2(E_MIN, a, b)
#define MAX(a, b) NODE2(E_MAX, a, b)
#define EQ(a, b) NODE2(E_EQ, a, b)
#define NE(a, b) NODE2(E_NE, a, b)
#define LT(a, b) NODE2(E_LT, a, b)
#define LE(a, b) NODE2(E_LE, a, b)
#define GT(a, b) NODE2(E_GT, a, b)
#define GE(a, b) NODE2(E_GE, a, b)
#define AND(a, b) NODE2(E_AND, a, b)
#define OR(a, b) NODE2(E_OR, a, b)
#define NOT(a) NODE1(E_NOT, a)
#define SELECT(a, b, c) NODE3(E_SELECT, a, b, c)
#define RAMP(a, b) NODE2(E_RAMP, a, b)
#define BROADCAST(a) NODE1(E_BROADCAST, a)
#define IF_THEN_ELSE(a, b, c) CALL(IN_IF_THEN_ELSE, 3, a, b, c)
#define LIKELY(a) CALL(IN_LIKELY, 1, a)
#define ABS(a) CALL(IN_ABS, 1, a)
#define BITAND(a, b) CALL(IN_BITAND, 2, a, b)
#define BITOR(a, b) CALL(IN_BITOR, 2, a, b)
#define BITXOR(a, b) CALL(IN_BITXOR, 2, a, b)
#define SHL(a, b) CALL(IN_SHL, 2, a, b)
#define SHR(a, b) CALL(IN_SHR, 2, a, b)

/* Both tables; a text that ends in "(orders)" is of a rule that need not make things smaller. */
static const Rule rules[] = {
#define ROW(where, left, right, when, any, text) {where, left, right, when, any, text},
#define RULE(where, left, right) ROW(where, left, right, NULL, true, #where ": " #left " -> " #right)
#define RULE_IF(where, left, right, when) \
  ROW(where, left, right, when, true, #where ": " #left " -> " #right " if " #when)
#define ORDER(where, left, right) ROW(where, left, right, NULL, true, #where ": " #left " -> " #right " (orders)")
#define ORDER_IF(where, left, right, when) \
  ROW(where, left, right, when, true, #where ": " #left " -> " #right " if " #when " (orders)")
#include "expr/rules.def"
#define FORM(where, left, right) ROW(where, left, right, NULL, false, #where ": " #left " => " #right " (orders)")
#define FORM_IF(where, left, right, when) \
  ROW(where, left, right, when, false, #where ": " #left " => " #right " if " #when " (orders)")
#define FORM_ANY(where, left, right) ROW(where, left, right, NULL, true, #where ": " #left " => " #right " (orders)")
#define FORM_ANY_IF(where, left, right, when) \
  ROW(where, left, right, when, true, #where ": " #left " => " #right " if " #when " (orders)")
#include "expr/forms.def"
};
enum {
#undef ROW
#define ROW(...) +1
  NSIMPLIFY = 0
#include "expr/rules.def"
};
#undef ROW
#undef RULE
#undef RULE_IF
#undef ORDER
#undef ORDER_IF
#undef FORM
#undef FORM_IF
#undef FORM_ANY
#undef FORM_ANY_IF
#undef x
#undef y
#undef z
#undef w
#undef p
#undef q
#undef c0
#undef c1
#undef c2

enum { NRULES = sizeof rules / sizeof *rules, NSLOTS = 9, FIRST_COND = 4, FIRST_CONST = 6 };

/* What the wildcards stand for. */
typedef struct Binding {
  Module *m;
  const Expr *slot[NSLOTS];
  DType dtype; /* of the numbers (scalar) */
  int lanes;   /* of the vector that is matched */
  bool exact;  /* index arithmetic: literals must not overflow */
} Binding;

/* ---- matching -------------------------------------------------------------------- */

static bool is_commutative(const Pat *pat)
{
  return pat->what == P_NODE && (pat->op == E_ADD || pat->op == E_MUL || pat->op == E_MIN || pat->op == E_MAX ||
                                 pat->op == E_EQ || pat->op == E_NE || pat->op == E_AND || pat->op == E_OR);
}

static int commutative_nodes(const Pat *pat)
{
  int n = is_commutative(pat);
  for (int i = 0; i < pat->n; i++) n += commutative_nodes(pat->arg[i]);
  return n;
}

static bool bind_slot(Binding *b, int slot, const Expr *e)
{
  if (!b->slot[slot]) b->slot[slot] = e;
  return b->slot[slot] == e;
}

static bool is_negative_zero(double f) { return f == 0 && __builtin_signbit(f); }

static const Expr *unsplat(const Expr *e) { return e->kind == E_BROADCAST ? e->arg[0] : e; }

/* The number, or a vector of it. */
static bool match_number(const Expr *e, int num)
{
  e = unsplat(e);
  if (e->kind == E_INT) return !dtype_is_bool(e->dtype) && e->u.i == value_int(e->dtype, num).i;
  return e->kind == E_FLOAT && e->u.f == num && !is_negative_zero(e->u.f);
}

/* flips: one bit for each commutative node, in the order they are met. */
static bool match(Binding *b, const Pat *pat, const Expr *e, unsigned *flips)
{
  switch ((PatWhat)pat->what) {
  case P_ANY: return bind_slot(b, pat->op, e);
  case P_COND: return dtype_is_bool(dtype_elem(e->dtype)) && bind_slot(b, pat->op, e);
  case P_CONST: return expr_is_const(e) && bind_slot(b, pat->op, e);
  case P_NUM: return match_number(e, pat->num);
  case P_BOOL: return dtype_is_bool(unsplat(e)->dtype) && expr_is_int(unsplat(e), pat->num);
  case P_NEG_ZERO: return unsplat(e)->kind == E_FLOAT && is_negative_zero(unsplat(e)->u.f);
  case P_CALL:
    if (e->kind != E_CALL || e->u.intrin != (Intrin)pat->op || e->nargs != pat->n) return false;
    break;
  case P_NODE:
    if (e->kind != pat->op) return false;
    break;
  case P_LAST_LANE: return false;
  }
  if (pat->what == P_NODE && (pat->op == E_RAMP || pat->op == E_BROADCAST)) b->lanes = e->dtype.lanes;
  unsigned flip = 0;
  if (is_commutative(pat)) {
    flip = *flips & 1;
    *flips >>= 1;
  }
  for (int i = 0; i < pat->n; i++)
    if (!match(b, pat->arg[i], e->arg[flip ? pat->n - 1 - i : i], flips)) return false;
  return true;
}

/* ---- building ------------------------------------------------------------------------ */

static const Expr *build(const Binding *b, const Pat *pat, bool fold);

static const Expr *fold_literals(const Binding *b, const Expr *e)
{
  if (e->nargs != 2 || e->kind > E_GE || !expr_is_const(e->arg[0]) || !expr_is_const(e->arg[1])) return e;
  if (b->exact && e->kind <= E_MUL && e->arg[0]->kind == E_INT) {
    int64_t i = e->arg[0]->u.i;
    int64_t j = e->arg[1]->u.i;
    int64_t r;
    bool ok = e->kind == E_ADD ? int_add(i, j, &r) : e->kind == E_SUB ? int_sub(i, j, &r) : int_mul(i, j, &r);
    if (!ok || !dtype_holds(e->dtype, r)) return NULL;
  }
  return expr_fold(b->m, e);
}

static const Expr *build_node(const Binding *b, const Pat *pat, const Expr *const *arg)
{
  if (pat->what == P_CALL) return expr_call(b->m, DT_NONE, (Intrin)pat->op, pat->n, arg);
  if (pat->op == E_NOT) return expr_not(b->m, arg[0]);
  if (pat->op == E_SELECT) return expr_select(b->m, arg[0], arg[1], arg[2]);
  if (pat->op == E_RAMP) return expr_ramp(b->m, arg[0], arg[1], b->lanes);
  if (pat->op == E_BROADCAST) return expr_broadcast(b->m, arg[0], b->lanes);
  return expr_binary(b->m, (ExprKind)pat->op, arg[0], arg[1]);
}

static const Expr *build(const Binding *b, const Pat *pat, bool fold)
{
  const Expr *arg[3];
  switch ((PatWhat)pat->what) {
  case P_ANY:
  case P_COND:
  case P_CONST: return b->slot[pat->op];
  case P_NUM:
    if (dtype_is_float(b->dtype)) return expr_float(b->m, b->dtype, pat->num);
    return expr_int(b->m, b->dtype, pat->num);
  case P_BOOL: return expr_bool(b->m, pat->num);
  case P_NEG_ZERO: return expr_float(b->m, b->dtype, -0.0);
  case P_LAST_LANE: return b->lanes & LANES_SCALABLE ? NULL : expr_int(b->m, b->dtype, b->lanes - 1);
  case P_NODE:
  case P_CALL: break;
  }
  for (int i = 0; i < pat->n; i++)
    if (!(arg[i] = build(b, pat->arg[i], fold))) return NULL;
  const Expr *e = build_node(b, pat, arg);
  return fold ? fold_literals(b, e) : e;
}

/* ---- conditions ------------------------------------------------------------------------- */

/* Conditions over literals are computed; others are proved, deeply where they
 * compare whole operands, as those of min and max do. */
static bool holds(Analyzer *a, const Binding *b, const Pat *when)
{
  if (when->op == E_AND) return holds(a, b, when->arg[0]) && holds(a, b, when->arg[1]);
  const Expr *l = build(b, when->arg[0], true);
  const Expr *r = build(b, when->arg[1], true);
  if (!l || !r) return false;
  if (expr_is_const(l) && expr_is_const(r)) {
    const Expr *e = expr_fold(b->m, expr_binary(b->m, (ExprKind)when->op, l, r));
    return e && expr_is_int(e, 1);
  }
  if (!expr_is_scalar_index(l) || !expr_is_scalar_index(r)) return false;
  return prove_compare(a, (ExprKind)when->op, l, r, true);
}

/* The number type a rule speaks of: that of the operands below truth values. */
static const Expr *subject(const Expr *e)
{
  while (e->nargs && dtype_is_bool(dtype_elem(e->dtype)) && e->kind >= E_EQ && e->kind <= E_NOT) e = e->arg[0];
  return e;
}

static bool applies_to(Where where, const Expr *e, const Expr *s)
{
  DType t = dtype_elem(s->dtype);
  switch (where) {
  case ANY: return dtype_is_int(t) || dtype_is_float(t);
  case INT: return dtype_is_int(t);
  case INDEX: return expr_is_index(s) && !(e->kinds & (1u << E_LOAD | 1u << E_REDUCE));
  case FLOAT: return dtype_is_float(t);
  case BOOL: return dtype_is_bool(dtype_elem(e->dtype));
  }
  return false;
}

/* Which operands try number k exchanges: the outermost node's come last. */
static unsigned exchanges(unsigned k, int nodes)
{
  unsigned out = 0;
  for (int i = 0; i < nodes; i++) out |= (k >> i & 1) << (nodes - 1 - i);
  return out;
}

static const Expr *apply(Analyzer *a, const Rule *rule, const Expr *e, const Expr *s)
{
  int nodes = rule->any ? commutative_nodes(rule->left) : 0;
  for (unsigned k = 0; k < 1u << nodes; k++) {
    Binding b = {.m = a->m, .dtype = dtype_elem(s->dtype), .lanes = e->dtype.lanes, .exact = expr_is_index(s)};
    unsigned flips = exchanges(k, nodes);
    if (!match(&b, rule->left, e, &flips)) continue;
    if (rule->when && !holds(a, &b, rule->when)) continue;
    const Expr *r = build(&b, rule->right, true);
    if (!r) continue;
    if (r->dtype.lanes < e->dtype.lanes) r = expr_broadcast(a->m, r, e->dtype.lanes);
    if (r != e) return r;
  }
  return NULL;
}

static bool same_root(const Pat *pat, const Expr *e)
{
  return pat->what == P_CALL ? e->kind == E_CALL && e->u.intrin == (Intrin)pat->op : e->kind == pat->op;
}

void rules_index(Analyzer *a)
{
  for (int i = 0; i < NRULES; i++) {
    int kind = rules[i].left->what == P_CALL ? E_CALL : rules[i].left->op;
    RuleSpan *span = &a->rules[i >= NSIMPLIFY][kind];
    if (!span->to) span->from = (int16_t)i;
    span->to = (int16_t)(i + 1);
  }
}

const Expr *rules_apply(Analyzer *a, RuleTable table, const Expr *e)
{
  if (!e->pure || e->nargs == 0) return NULL;
  const Expr *s = subject(e);
  RuleSpan span = a->rules[table][e->kind];
  for (int i = span.from; i < span.to; i++) {
    const Rule *rule = &rules[i];
    if (!same_root(rule->left, e) || !applies_to(rule->where, e, s)) continue;
    const Expr *r = apply(a, rule, e, s);
    if (r) return r;
  }
  return NULL;
}

/* ---- for the fuzzer ------------------------------------------------------------------------ */

int rules_count(void) { return NRULES; }
const char *rules_text(Arena *arena, int rule) { return arena_strdup(arena, rules[rule].text); }

static uint64_t draw(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

static DType draw_dtype(Where where, uint64_t *seed)
{
  static const DType narrow[] = {{DT_INT, 8, 1}, {DT_UINT, 8, 1}, {DT_INT, 16, 1}, {DT_UINT, 32, 1}};
  static const DType floats[] = {{DT_FLOAT, 32, 1}, {DT_FLOAT, 16, 1}, {DT_FLOAT, 64, 1}, {DT_BFLOAT, 16, 1}};
  if (where == INDEX) return draw(seed) % 2 ? DT_I32 : DT_I64;
  if (where == FLOAT || (where == ANY && draw(seed) % 2)) return floats[draw(seed) % 4];
  return narrow[draw(seed) % 4];
}

/* Does the condition speak of wildcards for values? */
static bool is_about_values(const Pat *pat)
{
  bool yes = pat->what == P_ANY || pat->what == P_COND;
  for (int i = 0; i < pat->n; i++) yes |= is_about_values(pat->arg[i]);
  return yes;
}

/* The condition as an expression; parts over literals alone are decided here. */
static const Expr *instance_condition(const Binding *b, const Pat *when)
{
  if (when->op == E_AND) {
    const Expr *l = instance_condition(b, when->arg[0]);
    const Expr *r = l ? instance_condition(b, when->arg[1]) : NULL;
    return r ? expr_and(b->m, l, r) : NULL;
  }
  if (is_about_values(when)) return build(b, when, false);
  const Expr *l = build(b, when->arg[0], true);
  const Expr *r = build(b, when->arg[1], true);
  const Expr *e = l && r ? expr_fold(b->m, expr_binary(b->m, (ExprKind)when->op, l, r)) : NULL;
  return e && expr_is_int(e, 1) ? e : NULL;
}

static void collect_slots(const Pat *pat, bool *used)
{
  if (pat->what == P_ANY || pat->what == P_COND || pat->what == P_CONST) used[pat->op] = true;
  for (int i = 0; i < pat->n; i++) collect_slots(pat->arg[i], used);
}

/* Mostly small and positive, so that conditions are often met. */
static const Expr *draw_literal(Module *m, DType t, uint64_t *seed)
{
  int64_t v = (int64_t)(draw(seed) % 4 ? draw(seed) % 12 : draw(seed) % 121);
  return expr_const(m, t, (double)(draw(seed) % 3 ? v : v - 60));
}

bool rules_instance(Module *m, int number, uint64_t *seed, const Expr **lhs, const Expr **rhs, int *nvars,
                    const Var ***vars)
{
  static const char *const names[NSLOTS] = {"x", "y", "z", "w", "p", "q", "c0", "c1", "c2"};
  const Rule *rule = &rules[number];
  Binding b = {.m = m, .dtype = draw_dtype(rule->where, seed), .exact = rule->where == INDEX};
  b.lanes = 2 + (int)(draw(seed) % 7);
  bool used[NSLOTS] = {0};
  collect_slots(rule->left, used);
  *vars = arena_array(m->arena, const Var *, NSLOTS);
  *nvars = 0;
  for (int i = 0; i < NSLOTS; i++) {
    if (!used[i]) continue;
    if (i >= FIRST_CONST) {
      b.slot[i] = draw_literal(m, b.dtype, seed);
      continue;
    }
    bool is_bool = i >= FIRST_COND || rule->where == BOOL;
    const Var *v = var_new(m, names[i], is_bool ? DT_BOOL : b.dtype, VAR_PLAIN);
    b.slot[i] = v->expr;
    (*vars)[(*nvars)++] = v;
  }
  *lhs = build(&b, rule->left, false);
  *rhs = build(&b, rule->right, true);
  if (!*lhs || !*rhs) return false;
  if ((*rhs)->dtype.lanes < (*lhs)->dtype.lanes) *rhs = expr_broadcast(m, *rhs, (*lhs)->dtype.lanes);
  if (!rule->when) return true;
  const Expr *cond = instance_condition(&b, rule->when);
  if (!cond) return false;
  if (expr_is_int(cond, 1)) return true;
  const Expr *none = expr_const(m, (*lhs)->dtype, 0);
  *lhs = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, *lhs, none});
  *rhs = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, *rhs, none});
  return true;
}
