/* analysis.h: what the files of the analysis share; private to the expr layer.
 *
 * A Sum is the canonical linear form of an index expression:
 *     coeff[0]*atom[0] + … + base
 * with distinct atoms (anything that is not itself a sum, a constant, or a
 * product with a constant), no zero coefficient, terms in natural order.  Its
 * arithmetic is exact: an operation that leaves int64 sets `bad`, and whoever
 * built the sum gives up on it.
 *
 * Fact: `sum` (its base is 0) lies in `range` and is congruent to `mod`.  A
 * truth: `cond` is known to be `value`.
 *
 * Sums live in scratch memory: who builds one opens a scope around it. */
#ifndef LATHE_EXPR_ANALYSIS_H
#define LATHE_EXPR_ANALYSIS_H

#include "expr/expr.h"

#define NEG_INF INT64_MIN
#define POS_INF INT64_MAX
static const Interval everything = {NEG_INF, POS_INF};

typedef struct Term {
  const Expr *atom;
  int64_t coeff;
} Term;

typedef struct Sum {
  DType dtype;
  Vec(Term) term;
  int64_t base;
  int nodes; /* taken apart so far */
  bool bad;  /* a coefficient left int64 */
} Sum;

typedef struct Fact {
  Sum sum;
  uint64_t uses; /* of all its atoms (Expr.uses) */
  Interval range;
  Modular mod;
} Fact;

typedef struct Truth {
  const Expr *cond;
  bool value;
} Truth;

/* What is known of a variable; each field may be NULL. */
typedef struct VarInfo {
  const Expr *min, *last; /* min <= v <= last */
  const Expr *value;      /* v == value: put in its place */
  const Expr *let;        /* v == value: but kept, it is let-bound */
  int order;              /* later bound is larger */
} VarInfo;

/* What was found out about an expression under the present assumptions. */
typedef struct Info {
  const Expr *simple;
  Interval bounds;
  Modular mod;
  bool has_bounds, has_mod;
  bool busy; /* being simplified */
} Info;

/* What holds of an expression always. */
typedef struct Shape {
  uint32_t first_var; /* smallest id of a variable below; sizes come after all others */
  int size;           /* nodes as a tree, capped */
  bool total;         /* has a value always: no loads, calls, divisions by what may be 0 */
} Shape;

/* One level of assumptions. */
typedef struct Level {
  Map info;            /* Expr* -> Info* */
  int nfacts, ntruths; /* to go back to */
} Level;

typedef enum { RULES_SIMPLIFY, RULES_FORMS } RuleTable;
typedef struct RuleSpan {
  int16_t from, to;
} RuleSpan;

struct Analyzer {
  Module *m;
  Ctx *ctx;
  Arena *arena;
  Map vars;   /* Var* -> VarInfo* */
  Map shapes; /* Expr* -> Shape* */
  Map seen;   /* variables that some Info may depend on */
  Vec(Fact) facts;
  Vec(Truth) truths;
  Vec(Level) levels;
  RuleSpan rules[2][E_NKINDS]; /* where the rules for a kind stand, by table */
  int nbound;                  /* counts bindings, for VarInfo.order */
  int fuel;                    /* steps a proof may still take */
  int64_t terms;               /* terms that sums have looked at so far */
  int64_t terms_end;           /* … at which the proof under way gives up */
  int trials;                  /* choices whose parts are being simplified under their conditions */
  int trial_work;              /* nodes simplified since the outermost of them began */
  int cycles;                  /* times simplification met itself; the tests want 0 */
};

/* ---- analyzer.c */
Info *analyzer_info(Analyzer *, const Expr *);
const VarInfo *analyzer_var(Analyzer *, const Var *);
const Shape *analyzer_shape(Analyzer *, const Expr *);
static inline int expr_size(Analyzer *a, const Expr *e) { return analyzer_shape(a, e)->size; }
void analyzer_let(Analyzer *, const Var *, const Expr *value);
/* Puts back what was known of a variable before it was bound. */
void analyzer_restore(Analyzer *, const Var *, const VarInfo *);
/* Is it worth assuming?  Only what bounds integers helps, and assumptions nest a few deep at
 * most: under each of them everything is simplified anew. */
bool analyzer_assumption_helps(const Analyzer *, const Expr *cond);
/* Around simplifying under assumptions; the work below the outermost one is bounded.  The end pops
 * what was pushed since. */
int analyzer_trial_begin(Analyzer *);
void analyzer_trial_end(Analyzer *, int mark);
/* Is e known to be true or false by assumption? */
bool analyzer_known(Analyzer *, const Expr *cond, bool *value);

/* Signed 32 or 64 bits, any lanes, no loads, no effects: arithmetic that does not overflow. */
static inline bool expr_is_index(const Expr *e)
{
  return e->dtype.code == DT_INT && (e->dtype.bits == 32 || e->dtype.bits == 64) &&
         !(e->kinds & (1u << E_LOAD | 1u << E_REDUCE)) && e->pure;
}
static inline bool expr_is_scalar_index(const Expr *e) { return e->dtype.lanes == 1 && expr_is_index(e); }
/* A cast of index arithmetic that keeps every value. */
static inline bool expr_is_widening(const Expr *e)
{
  return e->kind == E_CAST && expr_is_index(e) && expr_is_index(e->arg[0]) && e->dtype.bits >= e->arg[0]->dtype.bits;
}
static inline bool dtype_holds(DType t, int64_t v) { return v >= dtype_imin(t) && v <= dtype_imax(t); }

/* ---- linear.c */
Sum sum_zero(DType);
void sum_add_const(Sum *, int64_t);
void sum_add_term(Analyzer *, Sum *, const Expr *atom, int64_t coeff);
void sum_add_sum(Analyzer *, Sum *, const Sum *, int64_t scale);
void sum_scale(Sum *, int64_t);
/* Adds scale*e, taking sums and constant factors apart but nothing else. */
void sum_add_expr(Analyzer *, Sum *, const Expr *e, int64_t scale);
Sum sum_of(Analyzer *, const Expr *e);
/* Adds scale*x*y of simplified x and y, constant factors in front. */
void sum_add_product(Analyzer *, Sum *, const Expr *x, const Expr *y, int64_t scale);
/* The same through casts that widen and products of sums: for proofs only. */
Sum sum_of_expanded(Analyzer *, const Expr *e);
void sum_expand(Analyzer *, Sum *);
/* Multiplies two sums out. */
Sum sum_product(Analyzer *, const Sum *, const Sum *);
void sum_sort(Analyzer *, Sum *);
int64_t sum_gcd(const Sum *);                     /* of the coefficients; 0 without terms */
uint64_t sum_uses(const Sum *);                   /* of all atoms, as Expr.uses */
int64_t sum_coeff(const Sum *, const Expr *atom); /* 0 when absent */
bool sum_fits(const Sum *);                       /* not bad, all numbers in the dtype */
int sum_size(Analyzer *, const Sum *);
const Expr *sum_build(Analyzer *, Sum *); /* sorts, then builds; the sum must fit */
/* Joins x//c and x%c, cancels products, where that makes the sum smaller. */
void sum_join(Analyzer *, Sum *);
/* Joins, then builds the canonical expression. */
const Expr *sum_finish(Analyzer *, Sum *);
/* Factors of a product, constants apart. */
int expr_factors(Analyzer *, const Expr *e, int max, const Expr **out);

/* ---- bounds.c */
Interval bounds_of(Analyzer *, const Expr *);
Interval bounds_of_sum(Analyzer *, const Sum *);
Interval interval_of_dtype(DType);
Interval interval_meet(Interval, Interval);
int64_t interval_sat_add(int64_t, int64_t);
int64_t interval_sat_mul(int64_t, int64_t);

/* ---- modular.c */
Modular modular_of(Analyzer *, const Expr *);
Modular modular_of_sum(Analyzer *, const Sum *);
Modular modular_meet(Modular, Modular);

/* ---- divmod.c: x // d and x % d of simplified operands; NULL: numbers leave the dtype */
const Expr *analyzer_simplify_divmod(Analyzer *, ExprKind, const Expr *x, const Expr *d);
/* Splits sum = step*high + low with 0 <= low < step, for some step that divides c,
 * as large as can be found; false if only step 1 does. */
bool sum_split_low(Analyzer *, const Sum *, int64_t c, Sum *high, Sum *low, int64_t *step);

/* ---- compare.c */
const Expr *analyzer_simplify_compare(Analyzer *, const Expr *);
const Expr *analyzer_simplify_logic(Analyzer *, const Expr *);

/* ---- prove.c */
bool prove_nonneg(Analyzer *, const Sum *);
/* a KIND b by bounds, and by proof when deep; both are index expressions. */
bool prove_compare(Analyzer *, ExprKind, const Expr *, const Expr *, bool deep);

/* ---- rules.c: one step by a table; NULL when no rule applies */
const Expr *rules_apply(Analyzer *, RuleTable, const Expr *);
void rules_index(Analyzer *); /* fills Analyzer.rules */

/* ---- simplify.c: f(broadcast x, broadcast y) as broadcast f(x, y), or e itself */
const Expr *expr_hoist_broadcast(Analyzer *, const Expr *e);

#endif
