/* fuzz_simplify.c: libFuzzer target for the analyses; test_fuzz.c runs it on seeds.
 *
 * The input decides what is built; the evaluator judges:
 *   both sides of each rule have the same value, the right one never fails alone
 *   a random expression and its simplified form have the same value; simplifying
 *     again (with a fresh analyzer) changes nothing and never meets itself
 *   bounds, residues, symbolic bounds, linear forms and proofs hold at every point
 *   verdicts on iterator maps agree with plain enumeration, inverses invert
 * fuzz_once returns NULL, or what went wrong. */
#include "expr/analysis.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Fuzz {
  const uint8_t *data;
  size_t n;
  uint64_t seed;
  Ctx *ctx;
  Module *m;
  Analyzer *a;
  EvalEnv env;
  char message[2000];
  /* variables of random expressions */
  const Var *var[6];
  int64_t lo[6], hi[6]; /* constant ranges; var[4] runs below var[5], a size */
  DType dtype;
  long accepted, true_maps; /* how strong the map detection is */
} Fuzz;

static uint64_t draw(Fuzz *f)
{
  uint64_t byte = f->n ? f->n--, *f->data++ : 0;
  f->seed = (f->seed ^ byte) * 6364136223846793005u + 1442695040888963407u;
  return f->seed >> 33;
}
static int pick(Fuzz *f, int n) { return (int)(draw(f) % (uint64_t)n); }
static int64_t between(Fuzz *f, int64_t lo, int64_t hi) { return lo + (int64_t)(draw(f) % (uint64_t)(hi - lo + 1)); }

static const char *show(Fuzz *f, const Expr *e) { return expr_str_of(scratch(f->ctx), e); }

/* ---- evaluation that may fail ---------------------------------------------------------- */

typedef struct Try {
  Fuzz *f;
  const Expr *e;
  int lane;
  Value out;
} Try;

static void try_body(Ctx *ctx, void *arg)
{
  Try *t = arg;
  (void)ctx;
  t->out = expr_eval(&t->f->env, t->e, t->lane);
}

static bool evaluate(Fuzz *f, const Expr *e, int lane, Value *out)
{
  Try t = {.f = f, .e = e, .lane = lane};
  if (protect(f->ctx, try_body, &t)) return error_clear(f->ctx), false;
  *out = t.out;
  return true;
}

/* Equal, with min and max free to pick either zero. */
static bool agree(const Expr *e, Value x, Value y)
{
  if (value_eq(x, y)) return true;
  return dtype_is_float(x.dtype) && x.f == 0 && y.f == 0 && e->kinds & (1u << E_MIN | 1u << E_MAX);
}

static bool same_value(Fuzz *f, const Expr *before, const Expr *after, const char *what)
{
  if (!dtype_eq(before->dtype, after->dtype)) {
    snprintf(f->message, sizeof f->message, "%s: %s => %s changes the dtype", what, show(f, before), show(f, after));
    return false;
  }
  for (int lane = 0; lane < before->dtype.lanes; lane++) {
    Value x, y;
    if (!evaluate(f, before, lane, &x)) continue;
    bool ok = evaluate(f, after, lane, &y);
    if (ok && agree(before, x, y)) continue;
    snprintf(f->message, sizeof f->message, "%s: %s => %s, lane %d: %lld (%g) became %lld (%g)%s", what,
             show(f, before), show(f, after), lane, (long long)x.i, x.f, ok ? (long long)y.i : 0, ok ? y.f : 0,
             ok ? "" : " and failed");
    return false;
  }
  return true;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static Value random_value(Fuzz *f, DType t)
{
  static const double special[] = {0.0, -0.0, 1, -1, 0.5, 2, 1e30, -3.75, 65504, 1e-8};
  if (dtype_is_float(t)) {
    int k = pick(f, 14);
    return value_float(t, k < 10    ? special[k]
                          : k == 10 ? __builtin_inf()
                          : k == 11 ? -__builtin_inf()
                          : k == 12 ? __builtin_nan("")
                                    : (double)pick(f, 100) / 7);
  }
  bool index = t.code == DT_INT && t.bits >= 32;
  if (index) return value_int(t, pick(f, 3) ? between(f, -12, 12) : between(f, -300, 300));
  return value_int(t, pick(f, 2) ? between(f, -4, 4) : (int64_t)(draw(f) << 31 ^ draw(f)));
}

static bool fuzz_rule(Fuzz *f, int rule)
{
  const Expr *l, *r;
  const Var **vars;
  int n;
  if (!rules_instance(f->m, rule, &f->seed, &l, &r, &n, &vars)) return true;
  for (int point = 0; point < 12; point++) {
    for (int i = 0; i < n; i++) expr_eval_bind(&f->env, vars[i], random_value(f, vars[i]->dtype));
    if (!same_value(f, l, r, rules_text(scratch(f->ctx), rule))) return false;
  }
  bool orders = str_ends(rules_text(scratch(f->ctx), rule), "(orders)");
  if (!orders && expr_size(f->a, r) >= expr_size(f->a, l)) {
    snprintf(f->message, sizeof f->message, "%s: does not make %s smaller: %s", rules_text(scratch(f->ctx), rule),
             show(f, l), show(f, r));
    return false;
  }
  return true;
}

/* ---- random expressions ------------------------------------------------------------------------ */

static const Expr *random_bool(Fuzz *, int depth);

static const Expr *constant(Fuzz *f, int64_t v) { return expr_int(f->m, f->dtype, v); }

static int64_t divisor(Fuzz *f)
{
  static const int64_t often[] = {2, 3, 4, 5, 8, 12, 16, 32, 7, 1};
  return often[pick(f, 10)];
}

static const Expr *random_index(Fuzz *f, int depth)
{
  Module *m = f->m;
  if (depth == 0 || pick(f, 8) == 0) return pick(f, 4) ? f->var[pick(f, 6)]->expr : constant(f, between(f, -9, 33));
  const Expr *x = random_index(f, depth - 1);
  switch (pick(f, 15)) {
  case 0:
  case 1:
  case 2: return expr_add(m, x, random_index(f, depth - 1));
  case 3: return expr_sub(m, x, random_index(f, depth - 1));
  case 4:
  case 5: return expr_mul(m, x, constant(f, divisor(f)));
  case 6: return f->dtype.bits == 64 ? expr_mul(m, x, f->var[pick(f, 6)]->expr) : expr_mul(m, x, constant(f, -1));
  case 7:
  case 8: return expr_floordiv(m, x, constant(f, pick(f, 8) ? divisor(f) : -divisor(f)));
  case 9:
  case 10: return expr_floormod(m, x, constant(f, pick(f, 8) ? divisor(f) : -divisor(f)));
  case 11: return expr_binary(m, pick(f, 2) ? E_MIN : E_MAX, x, random_index(f, depth - 1));
  case 12: return expr_binary(m, pick(f, 2) ? E_DIV : E_MOD, x, constant(f, divisor(f)));
  case 13: return expr_binary(m, pick(f, 2) ? E_FLOORDIV : E_FLOORMOD, x, f->var[5]->expr);
  default: return expr_select(m, random_bool(f, depth - 1), x, random_index(f, depth - 1));
  }
}

static const Expr *random_bool(Fuzz *f, int depth)
{
  Module *m = f->m;
  int k = pick(f, 10);
  if (depth > 1 && k == 0) return expr_not(m, random_bool(f, depth - 1));
  if (depth > 1 && k <= 2)
    return expr_binary(m, k == 1 ? E_AND : E_OR, random_bool(f, depth - 1), random_bool(f, depth - 1));
  if (k == 3)
    return expr_binary(m, E_EQ, expr_floormod(m, random_index(f, depth), constant(f, divisor(f))),
                       constant(f, pick(f, 2)));
  ExprKind kind = (ExprKind)(E_EQ + pick(f, 6));
  return expr_binary(m, kind, random_index(f, depth),
                     pick(f, 2) ? constant(f, between(f, -4, 40)) : random_index(f, depth));
}

static void new_variables(Fuzz *f)
{
  static const char *const names[] = {"i", "j", "k", "u", "v", "n"};
  f->dtype = pick(f, 2) ? DT_I32 : DT_I64;
  for (int i = 0; i < 6; i++) {
    f->var[i] = var_new(f->m, names[i], f->dtype, i == 5 ? VAR_SIZE : VAR_PLAIN);
    f->lo[i] = i == 5 || pick(f, 3) ? 0 : between(f, -6, 6);
    f->hi[i] = i == 5 ? 20 : f->lo[i] + between(f, 1, 6) * (pick(f, 2) ? 1 : 8) - 1;
  }
}

static Analyzer *new_analyzer(Fuzz *f)
{
  Analyzer *a = analyzer_new(f->m, NULL);
  for (int i = 0; i < 4; i++)
    if (i < 3 || f->hi[3] % 2) analyzer_bind(a, f->var[i], constant(f, f->lo[i]), constant(f, f->hi[i] - f->lo[i] + 1));
  analyzer_bind(a, f->var[4], constant(f, 0), f->var[5]->expr);
  return a;
}

/* A point of the domain; false when there is none for this size. */
static bool random_point(Fuzz *f)
{
  int64_t size = between(f, 0, f->hi[5]);
  for (int i = 0; i < 4; i++) expr_eval_bind(&f->env, f->var[i], value_int(f->dtype, between(f, f->lo[i], f->hi[i])));
  if (size == 0) return false;
  expr_eval_bind(&f->env, f->var[4], value_int(f->dtype, between(f, 0, size - 1)));
  expr_eval_bind(&f->env, f->var[5], value_int(f->dtype, size));
  return true;
}

static bool complain(Fuzz *f, const char *what, const Expr *e, const Expr *s, const Expr *cond)
{
  snprintf(f->message, sizeof f->message, "%s: %s => %s%s%s", what, show(f, e), show(f, s), cond ? " under " : "",
           cond ? show(f, cond) : "");
  return false;
}

/* What the analyses claim of e holds at the present point. */
static bool check_point(Fuzz *f, const Expr *e, const Expr *s, const Expr *cond)
{
  Value x, at;
  if (cond && (!evaluate(f, cond, 0, &x) || !x.i)) return true;
  if (!same_value(f, e, s, cond ? show(f, cond) : "simplify")) return false;
  if (!evaluate(f, e, 0, &x)) return true;
  Interval b = analyzer_bounds(f->a, e);
  Interval raw = bounds_of(f->a, e);
  if (x.i < b.min || x.i > b.max || x.i < raw.min || x.i > raw.max) return complain(f, "bounds", e, s, cond);
  Modular m = analyzer_modular(f->a, e);
  if (m.coeff == 0 ? x.i != m.base : int_floormod(x.i - m.base, m.coeff)) return complain(f, "modular", e, s, cond);
  if (dtype_is_bool(e->dtype)) return true;
  const Expr *min, *max, *coeff[3];
  const Var *some[2] = {f->var[0], f->var[4]};
  if (analyzer_relax(f->a, e, 2, some, &min, &max)) {
    if (evaluate(f, min, 0, &at) && at.i > x.i) return complain(f, "relax min", e, min, cond);
    if (evaluate(f, max, 0, &at) && at.i < x.i) return complain(f, "relax max", e, max, cond);
  }
  if (expr_linear(f->a, e, 2, some, coeff)) {
    const Expr *sum = expr_add(f->m, expr_mul(f->m, coeff[0], some[0]->expr), expr_mul(f->m, coeff[1], some[1]->expr));
    if (!same_value(f, e, expr_add(f->m, sum, coeff[2]), "linear")) return false;
  }
  return true;
}

static bool fuzz_expression(Fuzz *f)
{
  new_variables(f);
  f->a = new_analyzer(f);
  const Expr *cond = pick(f, 2) ? random_bool(f, 2) : NULL;
  const Expr *e = pick(f, 2) ? random_index(f, 2 + pick(f, 3)) : random_bool(f, 2 + pick(f, 2));
  if (cond) analyzer_push(f->a, cond);
  const Expr *s = expr_simplify(f->a, e);
  for (int i = 0; i < 24; i++)
    if (random_point(f) && !check_point(f, e, s, cond)) return false;
  const Expr *form = analyzer_rewrite(f->a, e);
  for (int i = 0; i < 8; i++)
    if (random_point(f) && !check_point(f, e, form, cond)) return false;
  Analyzer *again = new_analyzer(f);
  if (cond) analyzer_push(again, cond);
  const Expr *twice = expr_simplify(again, s);
  if (twice != s) {
    snprintf(f->message, sizeof f->message, "not idempotent: %s => %s => %s under %s", show(f, e), show(f, s),
             show(f, twice), cond ? show(f, cond) : "nothing");
    return false;
  }
  if (f->a->cycles || again->cycles) return complain(f, "simplification met itself", e, s, cond);
  return true;
}

/* ---- other dtypes ----------------------------------------------------------------------------------- */

static const Expr *random_number(Fuzz *f, DType t, const Var **vars, int depth)
{
  Module *m = f->m;
  if (depth == 0 || pick(f, 6) == 0) {
    if (pick(f, 3)) return vars[pick(f, 3)]->expr;
    static const double some[] = {0, 1, 2, -1, 3, 100, 0.5};
    double v = some[pick(f, 7)];
    return pick(f, 9) || !dtype_is_float(t) ? expr_const(m, t, v) : expr_float(m, t, -0.0);
  }
  const Expr *x = random_number(f, t, vars, depth - 1);
  const Expr *y = random_number(f, t, vars, depth - 1);
  static const ExprKind compares[] = {E_LT, E_LE, E_EQ, E_NE, E_GT, E_GE};
  static const ExprKind operators[] = {E_ADD, E_SUB, E_MUL, E_DIV, E_MOD, E_MIN, E_MAX, E_ADD, E_SUB};
  int k = pick(f, 12);
  if (k == 9)
    return expr_select(m, expr_binary(m, compares[pick(f, 6)], x, y), y, random_number(f, t, vars, depth - 1));
  if (k == 10) return expr_cast(m, t, expr_cast(m, pick(f, 2) ? DT_F64 : DT_I64, x));
  if (k == 11 && dtype_is_int(t)) return expr_binary(m, pick(f, 2) ? E_FLOORDIV : E_FLOORMOD, x, y);
  return expr_binary(m, operators[k % 9], x, y);
}

static bool fuzz_numbers(Fuzz *f)
{
  static const DType kinds[] = {{DT_INT, 8, 1},    {DT_UINT, 8, 1},  {DT_FLOAT, 32, 1},
                                {DT_FLOAT, 16, 1}, {DT_UINT, 64, 1}, {DT_INT, 4, 1}};
  static const char *const names[] = {"a", "b", "c"};
  DType t = kinds[pick(f, 6)];
  const Var *vars[3];
  for (int i = 0; i < 3; i++) vars[i] = var_new(f->m, names[i], t, VAR_PLAIN);
  const Expr *e = random_number(f, t, vars, 1 + pick(f, 3));
  if (pick(f, 4) == 0)
    e = expr_not(f->m, expr_binary(f->m, (ExprKind)(E_EQ + pick(f, 6)), e, random_number(f, t, vars, 1)));
  const Expr *s = expr_simplify(f->a, e);
  for (int point = 0; point < 16; point++) {
    for (int i = 0; i < 3; i++) expr_eval_bind(&f->env, vars[i], random_value(f, t));
    if (!same_value(f, e, s, "numbers")) return false;
    Value x;
    Interval b = bounds_of(f->a, e);
    if (dtype_is_int(e->dtype) && t.bits < 64 && evaluate(f, e, 0, &x) && (x.i < b.min || x.i > b.max))
      return complain(f, "bounds of numbers", e, s, NULL);
  }
  if (expr_simplify(analyzer_new(f->m, NULL), s) != s) return complain(f, "numbers not idempotent", e, s, NULL);
  return true;
}

/* ---- vectors -------------------------------------------------------------------------------------------- */

static const Expr *random_vector(Fuzz *f, int lanes, int depth)
{
  Module *m = f->m;
  if (depth == 0)
    return pick(f, 2) ? expr_ramp(m, random_index(f, 1), pick(f, 4) ? constant(f, pick(f, 5)) : f->var[0]->expr, lanes)
                      : expr_broadcast(m, pick(f, 2) ? constant(f, 1 + pick(f, 16)) : random_index(f, 1), lanes);
  static const ExprKind kinds[] = {E_ADD, E_SUB, E_MUL, E_FLOORDIV, E_FLOORMOD, E_MIN, E_MAX};
  ExprKind kind = kinds[pick(f, 7)];
  bool positive = kind == E_FLOORDIV || kind == E_FLOORMOD;
  const Expr *y =
      positive || kind == E_MUL ? expr_broadcast(m, constant(f, divisor(f)), lanes) : random_vector(f, lanes, 0);
  return expr_binary(m, kind, random_vector(f, lanes, depth - 1), y);
}

static bool fuzz_vector(Fuzz *f)
{
  new_variables(f);
  f->a = new_analyzer(f);
  int lanes = 2 << pick(f, 3);
  const Expr *e = random_vector(f, lanes, 1 + pick(f, 3));
  if (pick(f, 3) == 0) e = expr_binary(f->m, (ExprKind)(E_EQ + pick(f, 6)), e, random_vector(f, lanes, 1));
  const Expr *s = expr_simplify(f->a, e);
  for (int i = 0; i < 8; i++)
    if (random_point(f) && !same_value(f, e, s, "vector")) return false;
  const Expr *twice = expr_simplify(new_analyzer(f), s);
  return twice == s || complain(f, "vector not idempotent", s, twice, NULL);
}

/* ---- iterator maps ---------------------------------------------------------------------------------------- */

enum { MAX_LOOPS = 4, MAX_POINTS = 4096 };

typedef struct Maps {
  const IterVar *loop[MAX_LOOPS];
  int64_t extent[MAX_LOOPS];
  int nloop, nindex;
  const Expr *index[3], *predicate;
} Maps;

/* Something that splits and fusions make, or nearly so. */
static const Expr *random_counter(Fuzz *f, const Maps *p)
{
  Module *m = f->m;
  const Expr *e = NULL;
  int64_t scale = 1;
  int first = pick(f, p->nloop);
  int n = 1 + pick(f, p->nloop);
  for (int i = 0; i < n; i++) {
    int at = (first + p->nloop - i % p->nloop) % p->nloop;
    const Expr *x = expr_mul(m, p->loop[at]->var->expr, constant(f, scale));
    e = e ? expr_add(m, x, e) : x;
    scale *= p->extent[at] + (pick(f, 6) ? 0 : pick(f, 2) ? 1 : -1);
    if (scale < 1) scale = 1;
  }
  return e;
}

static const Expr *random_map(Fuzz *f, const Maps *p)
{
  Module *m = f->m;
  const Expr *e = random_counter(f, p);
  for (int n = pick(f, 3); n > 0; n--) {
    const Expr *c = constant(f, 1 + pick(f, 6));
    int k = pick(f, 7);
    if (k <= 1) e = expr_floordiv(m, e, c);
    else if (k <= 3) e = expr_floormod(m, e, c);
    else if (k == 4) e = expr_add(m, expr_mul(m, e, c), random_counter(f, p));
    else if (k == 5) e = expr_add(m, e, c);
    else e = expr_sub(m, c, e);
  }
  return e;
}

/* Splits one counter into digits: what schedules do most. */
static void split_maps(Fuzz *f, Maps *p)
{
  const Expr *e = random_counter(f, p);
  int64_t c = 1 + pick(f, 6);
  int64_t b = 1 + pick(f, 4);
  p->nindex = 2 + pick(f, 2);
  p->index[0] = expr_floordiv(f->m, e, constant(f, p->nindex == 3 ? c * b : c));
  p->index[1] = expr_floormod(f->m, e, constant(f, c));
  if (p->nindex == 3) p->index[2] = expr_floormod(f->m, expr_floordiv(f->m, e, constant(f, c)), constant(f, b));
}

static void random_maps(Fuzz *f, Maps *p)
{
  static const char *const names[] = {"a", "b", "c", "d"};
  *p = (Maps){.nloop = 1 + pick(f, 3)};
  f->dtype = DT_I32;
  for (int i = 0; i < p->nloop; i++) {
    p->extent[i] = 1 + pick(f, 6);
    const Var *v = var_new(f->m, names[i], DT_I32, VAR_PLAIN);
    p->loop[i] = itervar_new(f->m, v, constant(f, pick(f, 4) ? 0 : pick(f, 7) - 3), constant(f, p->extent[i]),
                             ITER_SPATIAL, NULL);
  }
  p->nindex = 1 + pick(f, 3);
  if (pick(f, 3) == 0) split_maps(f, p);
  else
    for (int i = 0; i < p->nindex; i++)
      p->index[i] = pick(f, 3) ? random_map(f, p) : p->loop[pick(f, p->nloop)]->var->expr;
  if (pick(f, 3) == 0) p->predicate = expr_lt(f->m, random_counter(f, p), constant(f, 1 + pick(f, 30)));
  if (pick(f, 9) == 0) p->predicate = expr_binary(f->m, E_GE, random_counter(f, p), constant(f, pick(f, 10)));
}

typedef struct Truths {
  bool injective, box; /* distinct results; every point of the bounding box occurs */
  int points;
} Truths;

static int64_t tuple_at(Fuzz *f, const Maps *p, int64_t point, int64_t *tuple)
{
  for (int i = 0; i < p->nloop; i++) {
    expr_eval_bind(&f->env, p->loop[i]->var, value_int(DT_I32, p->loop[i]->min->u.i + point % p->extent[i]));
    point /= p->extent[i];
  }
  Value v;
  if (p->predicate && (!evaluate(f, p->predicate, 0, &v) || !v.i)) return 0;
  for (int i = 0; i < p->nindex; i++) {
    if (!evaluate(f, p->index[i], 0, &v)) return 0;
    tuple[i] = v.i;
  }
  return 1;
}

static int compare_tuples(const void *x, const void *y) { return memcmp(x, y, 3 * sizeof(int64_t)); }

static Truths enumerate(Fuzz *f, const Maps *p)
{
  int64_t total = 1;
  int64_t box = 1;
  int64_t lo[3] = {0};
  int64_t hi[3] = {0};
  for (int i = 0; i < p->nloop; i++) total *= p->extent[i];
  int64_t(*all)[3] = arena_alloc(scratch(f->ctx), (size_t)total * sizeof *all);
  int n = 0;
  int distinct = 0;
  for (int64_t i = 0; i < total; i++) {
    if (!tuple_at(f, p, i, all[n])) continue;
    for (int j = 0; j < p->nindex; j++) {
      if (n == 0 || all[n][j] < lo[j]) lo[j] = all[n][j];
      if (n == 0 || all[n][j] > hi[j]) hi[j] = all[n][j];
    }
    n++;
  }
  qsort(all, (size_t)n, sizeof *all, compare_tuples);
  for (int i = 0; i < n; i++) distinct += i == 0 || compare_tuples(all[i], all[i - 1]) != 0;
  for (int j = 0; j < p->nindex; j++) box *= hi[j] - lo[j] + 1;
  return (Truths){distinct == n, n == 0 || distinct == box, n};
}

static bool complain_map(Fuzz *f, const Maps *p, const char *what)
{
  int at = snprintf(f->message, sizeof f->message, "%s:", what);
  for (int i = 0; i < p->nloop; i++)
    at += snprintf(f->message + at, sizeof f->message - (size_t)at, " %s in [%lld, +%lld)", p->loop[i]->var->name,
                   (long long)p->loop[i]->min->u.i, (long long)p->extent[i]);
  for (int i = 0; i < p->nindex; i++)
    at += snprintf(f->message + at, sizeof f->message - (size_t)at, "; %s", show(f, p->index[i]));
  if (p->predicate) snprintf(f->message + at, sizeof f->message - (size_t)at, " where %s", show(f, p->predicate));
  return false;
}

/* The sums that come out are the indices that went in. */
static bool check_sums(Fuzz *f, const Maps *p, const IterSum *sum)
{
  Module *m = f->m;
  for (int i = 0; i < p->nindex; i++) {
    const Expr *e = sum[i].base;
    for (int j = 0; j < sum[i].n; j++) {
      const IterSplit *t = &sum[i].term[j];
      const Expr *digit = expr_floormod(m, expr_floordiv(m, t->source, t->lower), t->extent);
      e = expr_add(m, e, expr_mul(m, t->scale, digit));
    }
    for (int64_t point = 0; point < 24; point++) {
      int64_t tuple[3];
      if (tuple_at(f, p, (int64_t)draw(f), tuple) &&
          !same_value(f, p->index[i], expr_cast(m, p->index[i]->dtype, e), "iterator sum"))
        return false;
    }
  }
  return true;
}

static bool check_inverse(Fuzz *f, const Maps *p, bool bijective)
{
  static const char *const names[] = {"x", "y", "z"};
  const Var *outputs[3];
  const Expr *inverse[MAX_LOOPS];
  const char *why;
  for (int i = 0; i < p->nindex; i++) outputs[i] = var_new(f->m, names[i], DT_I32, VAR_PLAIN);
  if (!itermap_inverse(f->a, p->nindex, p->index, p->nloop, p->loop, outputs, inverse, &why)) return true;
  if (!bijective) return complain_map(f, p, "inverse of what is no bijection");
  for (int point = 0; point < 24; point++) {
    int64_t tuple[3];
    if (!tuple_at(f, p, (int64_t)draw(f), tuple)) continue;
    for (int i = 0; i < p->nindex; i++) expr_eval_bind(&f->env, outputs[i], value_int(DT_I32, tuple[i]));
    for (int i = 0; i < p->nloop; i++)
      if (!same_value(f, p->loop[i]->var->expr, inverse[i], "inverse")) return false;
  }
  return true;
}

static bool fuzz_maps(Fuzz *f)
{
  Maps p;
  IterSum sum[3];
  const char *why = NULL;
  random_maps(f, &p);
  Truths t = enumerate(f, &p);
  bool truth[] = {
    [ITERMAP_INJECTIVE] = t.injective, [ITERMAP_BIJECTIVE] = t.injective && t.box, [ITERMAP_SURJECTIVE] = t.box};
  static const char *const names[] = {"injective", "bijective", "surjective"};
  for (int check = 0; check < 3; check++) {
    bool yes = itermap_detect(f->a, p.nindex, p.index, p.nloop, p.loop, p.predicate, (IterMapCheck)check, sum, &why);
    f->accepted += yes && t.points > 0;
    f->true_maps += truth[check];
    if (yes && !truth[check] && t.points) return complain_map(f, &p, names[check]);
    if (yes && !check_sums(f, &p, sum)) return false;
    if (!yes && !why) return complain_map(f, &p, "refused without a reason");
  }
  if (p.predicate) return true;
  return check_inverse(f, &p, truth[ITERMAP_BIJECTIVE]);
}

/* ---- one input --------------------------------------------------------------------------------------------- */

static void fuzz_body(Ctx *ctx, void *arg)
{
  Fuzz *f = arg;
  (void)ctx;
  f->a = analyzer_new(f->m, NULL);
  switch (pick(f, 8)) {
  case 0:
  case 1: fuzz_rule(f, pick(f, rules_count())); break;
  case 2:
  case 3:
  case 4: fuzz_expression(f); break;
  case 5: fuzz_numbers(f); break;
  case 6: fuzz_vector(f); break;
  case 7: fuzz_maps(f); break;
  }
}

static char fuzz_failure[2100];
static long fuzz_accepted, fuzz_true_maps;

static const char *fuzz_once(const uint8_t *data, size_t n, uint64_t seed)
{
  Fuzz f = {.data = data, .n = n, .seed = seed};
  f.ctx = ctx_new();
  f.m = module_new(f.ctx);
  f.env = (EvalEnv){.m = f.m, .arena = f.m->arena};
  if (protect(f.ctx, fuzz_body, &f) && !f.message[0])
    snprintf(f.message, sizeof f.message, "raised: %s", error_message(f.ctx));
  snprintf(fuzz_failure, sizeof fuzz_failure, "seed %llu: %s", (unsigned long long)seed, f.message);
  fuzz_accepted += f.accepted;
  fuzz_true_maps += f.true_maps;
  module_release(f.m);
  ctx_free(f.ctx);
  return f.message[0] ? fuzz_failure : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
  const char *wrong = fuzz_once(data, n, 1);
  if (wrong) {
    fprintf(stderr, "%s\n", wrong);
    abort();
  }
  return 0;
}
