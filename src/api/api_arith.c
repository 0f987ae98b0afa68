/* api_arith.c: what is known about integer expressions, and what follows from it.
 *
 * Every function takes the facts after the world and its own subject: variables with their minima and extents,
 * variables with the values they equal, and conditions that hold. */
#include "api/api.h"

#define FACTS                                                                                           \
  "vars: list[var]?, mins: list[expr]?, extents: list[expr]?, equal: list[var]?, values: list[expr]?, " \
  "conditions: list[expr]?"

/* Reads the facts that begin with argument `first`. */
static Analyzer *read_facts(Call *c, Module *m, int first)
{
  const Var **vars, **equal;
  const Expr **mins, **extents, **values, **conditions;
  int n = api_arg_vars(c, m, first, &vars);
  if (api_arg_exprs(c, m, first + 1, &mins) != n || api_arg_exprs(c, m, first + 2, &extents) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: %d variables want as many minima and extents", c->function->name, n);
  int nequal = api_arg_vars(c, m, first + 3, &equal);
  if (api_arg_exprs(c, m, first + 4, &values) != nequal)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: %d variables want as many values", c->function->name, nequal);
  Analyzer *a = analyzer_new(m, scratch(c->ctx));
  for (int i = 0; i < n; i++) analyzer_bind(a, vars[i], mins[i], extents[i]);
  for (int i = 0; i < nequal; i++) analyzer_bind_value(a, equal[i], values[i]);
  int ncondition = api_arg_exprs(c, m, first + 5, &conditions);
  for (int i = 0; i < ncondition; i++) analyzer_push(a, conditions[i]);
  return a;
}

static void simplify(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  *c->out = api_val_expr(c, m, expr_simplify(read_facts(c, m, 2), e));
}

static void rewrite(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  *c->out = api_val_expr(c, m, analyzer_rewrite(read_facts(c, m, 2), e));
}

static void prove(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  *c->out = api_val_bool(analyzer_prove(read_facts(c, m, 2), e));
}

static void bounds(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  Interval r = analyzer_bounds(read_facts(c, m, 2), e);
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_int(r.min);
  v[1] = api_val_int(r.max);
}

static void modular(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  Modular r = analyzer_modular(read_facts(c, m, 2), e);
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_int(r.coeff);
  v[1] = api_val_int(r.base);
}

static void relax(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  const Var **over;
  int n = api_arg_vars(c, m, 2, &over);
  const Expr *ends[2] = {NULL, NULL};
  if (analyzer_relax(read_facts(c, m, 3), e, n, over, &ends[0], &ends[1])) *c->out = api_val_exprs(c, m, 2, ends);
  else *c->out = api_val_none();
}

static void linear(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr *e = api_arg_expr(c, m, 1);
  const Var **vars;
  int n = api_arg_vars(c, m, 2, &vars);
  const Expr **coeff = arena_array(scratch(c->ctx), const Expr *, n + 1);
  if (expr_linear(read_facts(c, m, 3), e, n, vars, coeff)) *c->out = api_val_exprs(c, m, n + 1, coeff);
  else *c->out = api_val_none();
}

/* The loops of an iterator map, from argument `first`: variables, minima, extents. */
static int read_loops(Call *c, Module *m, int first, const IterVar *const **out)
{
  const Var **vars;
  const Expr **mins, **extents;
  int n = api_arg_vars(c, m, first, &vars);
  if (api_arg_exprs(c, m, first + 1, &mins) != n || api_arg_exprs(c, m, first + 2, &extents) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: %d loops want as many minima and extents", c->function->name, n);
  const IterVar **loop = arena_array(scratch(c->ctx), const IterVar *, n + 1);
  for (int i = 0; i < n; i++) {
    IterVar *axis = arena_new_of(scratch(c->ctx), IterVar); /* of this call alone: the variable stays what it is */
    *axis = (IterVar){.var = vars[i], .min = mins[i], .extent = extents[i]};
    loop[i] = axis;
  }
  *out = loop;
  return n;
}

static void itermap(Call *c)
{
  static const IterMapCheck checks[] = {ITERMAP_BIJECTIVE, ITERMAP_SURJECTIVE, ITERMAP_INJECTIVE};
  Module *m = api_arg_world(c);
  const Expr **index;
  const IterVar *const *loop;
  int n = api_arg_exprs(c, m, 1, &index);
  int nloop = read_loops(c, m, 2, &loop);
  const Expr *predicate = api_arg_given(c, 5) ? api_arg_expr(c, m, 5) : NULL;
  IterMapCheck check = checks[api_arg_int32(c, 6, 0, 2)];
  Analyzer *a = read_facts(c, m, 7);
  IterSum *sum = arena_array(scratch(c->ctx), IterSum, n + 1);
  const char *why = NULL;
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = v[1] = api_val_none();
  if (!itermap_detect(a, n, index, nloop, loop, predicate, check, sum, &why)) {
    v[1] = api_val_str(c, why ? why : "the indices are no affine map of the loops");
    return;
  }
  LatheValue *of = api_val_list(c, n, &v[0]);
  for (int i = 0; i < n; i++) {
    LatheValue *part = api_val_list(c, 1 + sum[i].n, &of[i]);
    part[0] = api_val_expr(c, m, sum[i].base);
    for (int k = 0; k < sum[i].n; k++) {
      const IterSplit *t = &sum[i].term[k];
      part[1 + k] = api_val_exprs(c, m, 4, (const Expr *[]){t->source, t->lower, t->extent, t->scale});
    }
  }
}

static void itermap_solve(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **index;
  const IterVar *const *loop;
  const Var **outputs;
  int n = api_arg_exprs(c, m, 1, &index);
  int nloop = read_loops(c, m, 2, &loop);
  if (api_arg_vars(c, m, 5, &outputs) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: %d indices want as many outputs", c->function->name, n);
  const Expr **out = arena_array(scratch(c->ctx), const Expr *, nloop + 1);
  const char *why = NULL;
  if (!itermap_inverse(read_facts(c, m, 6), n, index, nloop, loop, outputs, out, &why))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the map cannot be inverted: %s", why ? why : "it is no bijection");
  *c->out = api_val_exprs(c, m, nloop, out);
}

const ApiFunction api_arith_functions[] = {
  {"simplify", "world: world, e: expr, " FACTS " -> expr", "the simplest known form", simplify},
  {"rewrite", "world: world, e: expr, " FACTS " -> expr", "the form that TVM's rewrite rules end in", rewrite},
  {"prove", "world: world, e: expr, " FACTS " -> bool", "does it hold for all values?", prove},
  {"bounds", "world: world, e: expr, " FACTS " -> list[int]", "smallest and largest value", bounds},
  {"modular", "world: world, e: expr, " FACTS " -> list[int]",
   "coefficient and base of which e is a multiple and a rest", modular},
  {"relax", "world: world, e: expr, over: list[var], " FACTS " -> list[expr]?",
   "smallest and largest value while the variables run over their ranges; none: not found", relax},
  {"linear", "world: world, e: expr, over: list[var], " FACTS " -> list[expr]?",
   "coefficients of the variables, then the rest; none: e is not linear in them", linear},
  {"itermap",
   "world: world, index: list[expr], loops: list[var], loop_mins: list[expr], loop_extents: list[expr], "
   "predicate: expr?, check: int, " FACTS " -> list[list|str]",
   "each index as base and pieces [source, lower, extent, scale] of the loops, or why there are none; check 0: a "
   "bijection, 1: onto, 2: one to one",
   itermap},
  {"itermap_solve",
   "world: world, index: list[expr], loops: list[var], loop_mins: list[expr], loop_extents: list[expr], "
   "outputs: list[var], " FACTS " -> list[expr]",
   "the loops as functions of what the indices give", itermap_solve},
  {0},
};
