/* expr.h: scalar (and vector) expressions: index arithmetic, shapes, kernel bodies.
 *
 * An Expr is immutable and interned in its Module: two expressions of a module
 * are equal exactly when their pointers are.  Constructors check types and
 * intern; they do not simplify (expr_simplify does).
 *
 * Meaning
 * - Index arithmetic is int32/int64 without overflow: an index that overflows is
 *   a bug in the program, and rules tagged INDEX may assume it does not happen.
 *   The dtype decides nothing here; rules ask whether the expression is marked
 *   as index arithmetic (see simplify.c), all other integers wrap in two's
 *   complement at their width, signed and unsigned alike.
 * - E_FLOORDIV and E_FLOORMOD floor: -7 // 2 is -4, -7 % 2 is 1.  E_DIV and E_MOD
 *   truncate on integers (-7 / 2 is -3, -7 mod 2 is -1); on floats E_DIV is IEEE
 *   division and E_MOD is C's fmod.  Integer division by zero and INT_MIN / -1
 *   have no value: the interpreter reports the former and wraps the latter;
 *   expr_simplify never folds them.
 * - Float arithmetic rounds to nearest, ties to even, at its own width: float16,
 *   bfloat16, the float8 kinds and float4 compute in float32 and round once per
 *   operation.  E_MIN and E_MAX on floats return the other operand when one is
 *   NaN and order -0.0 below +0.0 as IEEE minNum/maxNum may: both zeros are
 *   allowed results, also where a select takes the greater or the lesser of two
 *   operands (x < c ? c : x).  Comparisons with NaN are false, E_NE true.
 * - A backend may contract a*b + c into one fused multiply-add (one rounding
 *   instead of two); it never reassociates.  Nothing else may differ between
 *   backends, elementary functions within their stated error apart.
 * - Casts: float to int truncates toward zero and saturates at the integer's
 *   range, NaN gives 0; int to narrower int wraps; float to float rounds to
 *   nearest even and overflows to infinity (e4m3fn and the fnuz kinds, which
 *   have no infinity, overflow to NaN); anything to bool is `x != 0`.
 * - E_AND and E_OR evaluate left to right and stop early; E_SELECT evaluates both
 *   values; the intrinsic if_then_else only the one it takes.
 * - bool is DT_UINT with one bit.  An element narrower than a byte (bool, int4)
 *   is stored in a byte of its own.
 *
 * Abbreviations: m module, e expression, n count. */
#ifndef LATHE_EXPR_H
#define LATHE_EXPR_H

#include "base/base.h"

/* ---- dtype.c ------------------------------------------------------------ */

typedef enum {
  DT_INT,
  DT_UINT,
  DT_FLOAT,
  DT_BFLOAT,
  DT_E4M3FN,
  DT_E5M2,
  DT_E4M3FNUZ,
  DT_E5M2FNUZ, /* eight bits each */
  /* eight bits: 2^-127 … 2^127 and NaN, which is what is negative or larger; 0 is the lowest, halves go up */
  DT_E8M0FNU,
  DT_E2M1FN, /* four bits, finite: what is larger is 6, NaN is 0 */
  DT_HANDLE, /* a pointer */
  DT_TEXT,   /* a string; of graphs alone: kernels see its number, a uint64 */
  DT_VOID,
} DCode;

typedef struct DType {
  uint8_t code; /* DCode */
  uint8_t bits;
  uint16_t lanes; /* 1: scalar; LANES_SCALABLE | n: n times vscale(), in expressions alone: functions refuse them */
} DType;
enum { LANES_SCALABLE = 0x8000, MAX_LANES = 0x7fff };

#define DTYPE(code, bits) ((DType){code, bits, 1})
#define DT_BOOL DTYPE(DT_UINT, 1)
#define DT_I8 DTYPE(DT_INT, 8)
#define DT_I32 DTYPE(DT_INT, 32)
#define DT_I64 DTYPE(DT_INT, 64)
#define DT_U8 DTYPE(DT_UINT, 8)
#define DT_F16 DTYPE(DT_FLOAT, 16)
#define DT_F32 DTYPE(DT_FLOAT, 32)
#define DT_F64 DTYPE(DT_FLOAT, 64)
#define DT_BF16 DTYPE(DT_BFLOAT, 16)
#define DT_PTR DTYPE(DT_HANDLE, 64)
#define DT_STRING DTYPE(DT_TEXT, 64)
#define DT_NONE DTYPE(DT_VOID, 0)

static inline bool dtype_eq(DType a, DType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }
static inline DType dtype_lanes(DType t, int lanes)
{
  t.lanes = (uint16_t)lanes;
  return t;
}
static inline bool dtype_is_scalable(DType t) { return t.lanes & LANES_SCALABLE; }
static inline DType dtype_elem(DType t)
{
  t.lanes = 1;
  return t;
}
static inline bool dtype_is_int(DType t) { return t.code == DT_INT || t.code == DT_UINT; } /* bool too */
static inline bool dtype_is_float(DType t) { return t.code >= DT_FLOAT && t.code <= DT_E2M1FN; }
static inline bool dtype_is_string(DType t) { return t.code == DT_TEXT; }
static inline bool dtype_is_bool(DType t) { return t.code == DT_UINT && t.bits == 1; }
/* of one element */
static inline int dtype_bytes(DType t) { return t.bits <= 8 ? 1 : t.bits <= 16 ? 2 : t.bits <= 32 ? 4 : 8; }

/* What tensors of a graph's dtype hold inside kernels. */
static inline DType dtype_in_kernel(DType t) { return dtype_is_string(t) ? DTYPE(DT_UINT, 64) : t; }

/* "float32", "int8x16", "bool", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "int4", "handle",
 * "string", "void". */
const char *dtype_name(Arena *, DType);
bool dtype_parse(const char *, DType *);
/* Smallest and largest finite value; of integers exactly (64 bits: as int64 bits). */
double dtype_min(DType);
double dtype_max(DType);
int64_t dtype_imin(DType);
int64_t dtype_imax(DType); /* uint64: -1, the bit pattern */

/* One scalar of any dtype.  Integers live in i (uint64 as its bits), wrapped to
 * their width; floats in f, rounded to their width; handles in p. */
typedef struct Value {
  DType dtype;
  union {
    int64_t i;
    double f;
    void *p;
  };
} Value;
Value value_int(DType, int64_t);       /* wraps */
Value value_float(DType, double);      /* rounds */
Value value_cast(Value, DType);        /* as casts mean above */
Value value_load(DType, const void *); /* reads one stored element */
void value_store(Value, void *);
bool value_eq(Value, Value);       /* same bits; any NaN equals any NaN */
double float_round(DType, double); /* nearest-even rounding to a float dtype */
uint16_t float_to_half(float);
float float_from_half(uint16_t);

/* ---- module.c: the owner of expressions and functions -------------------- */

typedef struct Expr Expr;
typedef struct Var Var;
typedef struct Buffer Buffer;
typedef struct Module Module;

/* A named function of the module.  What func points to is told by kind; the
 * layer that owns the kind casts it back. */
typedef enum { GLOBAL_TIR, GLOBAL_GRAPH } GlobalKind;
typedef struct Global {
  const char *name;
  GlobalKind kind;
  void *func;
} Global;

struct Module {
  Ctx *ctx;
  Arena *arena;
  int refs;
  uint32_t next_id;   /* ids of expressions, vars and statements */
  const Expr **table; /* intern table, open addressing */
  uint32_t ntable, nused;
  StrMap strings; /* texts of E_STR, each once */
  Map reduces;    /* Expr*, the first source -> list of the Reduces over it */
  Vec(Global) globals;
  struct ModuleCleanup *cleanups; /* newest first; run when the module dies */
  struct GraphState *graph;       /* what the graph layer remembers of its nodes; NULL until it does */
  /* Of a module that users build in (NULL in others): origin -> the variable here, so that what comes
   * back from another module speaks of the variables that went there. */
  Map *origins;
};
typedef struct ModuleCleanup {
  void (*fn)(void *);
  void *arg;
  struct ModuleCleanup *next;
} ModuleCleanup;
Module *module_new(Ctx *); /* one reference, the caller's */
Module *module_retain(Module *);
void module_release(Module *);
/* fn(arg) runs when the module dies, before its memory goes; newest first. */
void module_defer(Module *, void (*fn)(void *), void *arg);
void module_set(Module *, const char *name, GlobalKind, void *func); /* adds or replaces */
Global *module_get(Module *, const char *name);                      /* NULL if absent */

/* ---- build.c: constructors ----------------------------------------------- */

/* One row a kind: constant, name, text of the operator ("" when it has none),
 * binding strength of that operator (higher binds tighter). */
#define EXPR_KINDS(X)                                                     \
  X(E_INT, "int", "", 0)     /* u.i */                                    \
  X(E_FLOAT, "float", "", 0) /* u.f */                                    \
  X(E_STR, "str", "", 0)     /* u.str */                                  \
  X(E_VAR, "var", "", 0)     /* u.var */                                  \
  X(E_ADD, "add", "+", 5)                                                 \
  X(E_SUB, "sub", "-", 5)                                                 \
  X(E_MUL, "mul", "*", 6)                                                 \
  X(E_DIV, "div", "/", 6)                                                 \
  X(E_MOD, "mod", "", 6) /* printed as truncmod(a, b) */                  \
  X(E_FLOORDIV, "floordiv", "//", 6)                                      \
  X(E_FLOORMOD, "floormod", "%", 6)                                       \
  X(E_MIN, "min", "", 0)                                                  \
  X(E_MAX, "max", "", 0)                                                  \
  X(E_EQ, "eq", "==", 4)                                                  \
  X(E_NE, "ne", "!=", 4)                                                  \
  X(E_LT, "lt", "<", 4)                                                   \
  X(E_LE, "le", "<=", 4)                                                  \
  X(E_GT, "gt", ">", 4)                                                   \
  X(E_GE, "ge", ">=", 4)                                                  \
  X(E_AND, "and", "and", 2)                                               \
  X(E_OR, "or", "or", 1)                                                  \
  X(E_NOT, "not", "not", 3)                                               \
  X(E_CAST, "cast", "", 0)           /* arg: value; dtype is the goal */  \
  X(E_SELECT, "select", "", 0)       /* arg: condition, then, else */     \
  X(E_LET, "let", "", 0)             /* u.var = arg[0] in arg[1] */       \
  X(E_LOAD, "load", "", 0)           /* u.buffer[arg…] */                 \
  X(E_CALL, "call", "", 0)           /* u.intrin(arg…) */                 \
  X(E_RAMP, "ramp", "", 0)           /* arg: base, stride; dtype.lanes */ \
  X(E_BROADCAST, "broadcast", "", 0) /* arg: value; dtype.lanes */        \
  X(E_REDUCE, "reduce", "", 0)       /* u.reduce; te only */

typedef enum {
#define X(id, name, op, prec) id,
  EXPR_KINDS(X)
#undef X
      E_NKINDS
} ExprKind;
const char *expr_kind_name(ExprKind);

/* Intrinsic functions: src/expr/intrin.def has a row for each; those of builtins.def are for text and schedules. */
typedef enum {
#define INTRIN(id, name, lo, hi, flags, doc) id,
#include "expr/intrin.def"
#undef INTRIN
  IN_COUNT
} Intrin;
typedef enum {
  INF_PURE = 1,   /* no effect: may be moved, duplicated, dropped */
  INF_FLOAT = 2,  /* arguments and result are one float dtype */
  INF_INT = 4,    /* arguments and result are one integer dtype */
  INF_BOOL = 8,   /* result is bool */
  INF_FIRST = 16, /* result has the first argument's dtype */
  INF_ANY = 32,   /* result dtype is given by the caller */
  INF_TYPED = 64, /* text names that dtype before the arguments */
} IntrinFlags;
typedef struct IntrinInfo {
  const char *name;
  int min_args, max_args; /* max -1: any number */
  int flags;
  const char *doc;
} IntrinInfo;
const IntrinInfo *intrin_info(Intrin);
bool intrin_find(const char *name, Intrin *);
/* The dtype a call of an INF_ANY intrinsic has when the caller states none. */
DType intrin_dtype(Intrin, int n, const Expr *const *arg);

typedef enum { VAR_PLAIN, VAR_SIZE /* known to be >= 0 */ } VarKind;
struct Var {
  const char *name; /* a hint; identity is the pointer */
  DType dtype;
  VarKind kind;
  uint32_t id;
  uint64_t origin;            /* a number that its copies in other modules share: the same variable there */
  const Expr *expr;           /* the E_VAR that names it */
  const struct IterVar *axis; /* the axis made of it (itervar_new), or NULL: te tells axes from sizes by it */
  int64_t likely;             /* a size: what it will be, as far as somebody has said (var_set_likely), else 0 */
};

typedef enum {
  ITER_SPATIAL, /* data parallel */
  ITER_REDUCE,  /* commutative reduction */
  ITER_OPAQUE,  /* neither: must run in order */
  ITER_THREAD,  /* te.thread_axis */
} IterKind;

/* A variable with its domain [min, min + extent). */
typedef struct IterVar {
  const Var *var;
  const Expr *min, *extent; /* a free thread axis has NULL for both */
  IterKind kind;
  const char *thread_tag; /* "threadIdx.x", "blockIdx.y", "vthread"; NULL if none */
} IterVar;

/* Memory that loads and stores refer to.  Immutable once made; identity is the
 * pointer.  A te tensor has one too: E_LOAD is the only read there is. */
struct Buffer {
  const char *name;
  DType dtype;
  int ndim;
  const Expr **shape;
  const Expr **strides;    /* NULL: compact, row major */
  const Expr *elem_offset; /* NULL: 0 */
  const char *scope;       /* "global", "shared", "local", "warp", …; "global" by default */
  int align;               /* of the data, bytes */
  int offset_factor;       /* elem_offset is a multiple of this; 0: not stated */
  uint32_t separators;     /* bit d: where memory has several dimensions, a new one begins at axis d */
  const Var *data;         /* the pointer */
  uint32_t id;
  const void *owner; /* te: the Tensor that it stands for, else NULL */
};

/* A commutative, associative reduction of n values at once:
 *   result[v](lhs…, rhs…), with identity[v]. */
typedef struct Reducer {
  const char *name; /* "sum", "argmax", or the user's */
  int n;
  const Var **lhs, **rhs;
  const Expr **result;
  const Expr **identity;
} Reducer;

typedef struct Reduce {
  const Reducer *reducer;
  const IterVar **axis;
  int naxis;
  int value_index; /* which of the n results this expression is */
  bool has_init;
  /* arg: the n sources, the condition, and, with has_init, the n initial values */
} Reduce;

/* Levels of an expression.  Walks go down by calling themselves: deeper ones would outgrow the stack of a thread. */
enum { EXPR_MAX_DEPTH = 10000 };

struct Expr {
  uint8_t kind; /* ExprKind */
  DType dtype;
  uint32_t id; /* creation order; deterministic */
  uint32_t hash;
  uint32_t kinds; /* bit k: a node of kind k is here or below */
  bool pure;      /* no effects here or below */
  uint64_t uses;  /* Bloom filter of the variables and buffers here and below */
  int depth;      /* levels here and below; leaves have 1 */
  int nargs;
  union {
    int64_t i;
    double f;
    const char *str;
    const Var *var;
    const Buffer *buffer;
    Intrin intrin;
    const Reduce *reduce;
    uint64_t bits;
  } u;
  const Expr *arg[];
};

const Var *var_new(Module *, const char *name, DType, VarKind);
const Var *
var_copy(Module *, const Var *); /* the same variable in another module; the one that is there, where origins tell it */
/* A hint by which code that serves every value is chosen; copies of the variable have it too. */
void var_set_likely(const Var *, int64_t);
static inline const Expr *var_expr(const Var *v) { return v->expr; }

/* strides/elem_offset may be NULL, scope NULL means "global", data NULL makes a
 * fresh pointer variable of the same name, align 0 means 64. */
const Buffer *buffer_new(Module *, const char *name, DType, int ndim, const Expr *const *shape,
                         const Expr *const *strides, const Expr *elem_offset, const char *scope, int align,
                         int offset_factor, const Var *data);
/* The same memory, said to have several dimensions that begin at these axes (bits).  All memory here is flat, so
 * nothing is computed otherwise. */
const Buffer *buffer_with_separators(Module *, const Buffer *, uint32_t separators);
const Buffer *buffer_with_scope(Module *, const Buffer *, const char *scope);
const IterVar *itervar_new(Module *, const Var *, const Expr *min, const Expr *extent, IterKind,
                           const char *thread_tag);

const Expr *expr_int(Module *, DType, int64_t); /* wraps; lanes > 1: a broadcast */
const Expr *expr_i32(Module *, int64_t);        /* an int32 index constant */
const Expr *expr_bool(Module *, bool);
const Expr *expr_float(Module *, DType, double); /* rounds to the dtype */
const Expr *expr_const(Module *, DType, double); /* int or float, whatever the dtype is */
const Expr *expr_value(Module *, Value);
const Expr *expr_str(Module *, const char *);
/* Any of E_ADD … E_OR.  Operands are brought to one dtype as TVM does it: an int32
 * literal takes the other side's, floats win over integers, wide over narrow,
 * signed over unsigned of equal width; float16 with bfloat16 is refused.  A scalar
 * broadcasts to a vector. */
const Expr *expr_binary(Module *, ExprKind, const Expr *a, const Expr *b);
const Expr *expr_not(Module *, const Expr *);
const Expr *expr_cast(Module *, DType, const Expr *); /* the same expression when dtypes are equal */
const Expr *expr_select(Module *, const Expr *cond, const Expr *a, const Expr *b);
const Expr *expr_let(Module *, const Var *, const Expr *value, const Expr *body);
const Expr *expr_load(Module *, const Buffer *, int n, const Expr *const *index);
/* dtype DT_NONE: by the row's flags */
const Expr *expr_call(Module *, DType, Intrin, int n, const Expr *const *arg);
const Expr *expr_ramp(Module *, const Expr *base, const Expr *stride, int lanes);
const Expr *expr_broadcast(Module *, const Expr *, int lanes);
const Expr *expr_reduce(Module *, const Reducer *, int nsource, const Expr *const *source, int naxis,
                        const IterVar *const *axis, const Expr *cond, const Expr *const *init, int value_index);
/* The same integer expression, every step in int64. */
const Expr *expr_widen(Module *, const Expr *);
/* The same node over other arguments (interned; types are checked again). */
const Expr *expr_with_args(Module *, const Expr *, const Expr *const *arg);

#define expr_add(m, a, b) expr_binary(m, E_ADD, a, b)
#define expr_sub(m, a, b) expr_binary(m, E_SUB, a, b)
#define expr_mul(m, a, b) expr_binary(m, E_MUL, a, b)
#define expr_floordiv(m, a, b) expr_binary(m, E_FLOORDIV, a, b)
#define expr_floormod(m, a, b) expr_binary(m, E_FLOORMOD, a, b)
#define expr_min(m, a, b) expr_binary(m, E_MIN, a, b)
#define expr_max(m, a, b) expr_binary(m, E_MAX, a, b)
#define expr_lt(m, a, b) expr_binary(m, E_LT, a, b)
#define expr_and(m, a, b) expr_binary(m, E_AND, a, b)

static inline bool expr_is_int(const Expr *e, int64_t v) { return e->kind == E_INT && e->u.i == v; }
static inline bool expr_is_const(const Expr *e) { return e->kind == E_INT || e->kind == E_FLOAT; }

/* The ready-made reducers, by name: sum prod min max any all; argmin argmax take
 * (index, value) pairs.  The identities of min and max are the dtype's limits
 * (infinities on floats).  NULL for an unknown name. */
const Reducer *reducer_named(Module *, const char *name, DType value, DType index);
const Reducer *reducer_new(Module *, const char *name, int n, const Var *const *lhs, const Var *const *rhs,
                           const Expr *const *result, const Expr *const *identity);

/* ---- walk.c: visiting, rewriting, copying --------------------------------- */

/* Calls fn once on each distinct node below e, arguments first. */
void expr_visit(Ctx *, const Expr *, void (*fn)(void *env, const Expr *), void *env);
/* Rebuilds e bottom up, each distinct node once: fn sees a node whose arguments
 * are rewritten already and returns its replacement (or the node itself).  A
 * Rewriter may be kept over many expressions to share its memory of results. */
typedef struct Rewriter {
  Module *m;
  const Expr *(*fn)(struct Rewriter *, const Expr *);
  void *env;
  Arena *arena; /* holds memo */
  Map memo;
} Rewriter;
const Expr *expr_rewrite(Rewriter *, const Expr *);
/* Replaces variables: map is Var* -> Expr*. */
const Expr *expr_substitute(Module *, const Expr *, const Map *map);
const Expr *expr_substitute1(Module *, const Expr *, const Var *, const Expr *value);
bool expr_uses_var(const Expr *, const Var *);
bool expr_uses_buffer(const Expr *, const Buffer *);
bool expr_has_kind(const Expr *, ExprKind);
bool expr_is_pure(const Expr *); /* no load counts as impure; only effects do */
/* Free variables in order of first use. */
int expr_free_vars(Arena *, const Expr *, const Var ***out);

/* Copies between modules.  Variables and buffers met for the first time are
 * made anew in dst and remembered. */
typedef struct Importer {
  Module *dst;
  Arena *arena;
  bool wide; /* indices of loads come out in int64 */
  Map var, buffer, expr, reducer, iter;
} Importer;
const Expr *expr_import(Importer *, const Expr *);
const Var *var_import(Importer *, const Var *);
const Buffer *buffer_import(Importer *, const Buffer *);

/* ---- print.c -------------------------------------------------------------- */

/* How names come out: a Namer gives each Var and Buffer one name, unique in its
 * text ("i", "i_1", …), the same every time. */
typedef struct Namer {
  Arena *arena;
  Map names; /* Var* or Buffer* -> char* */
  StrMap taken;
} Namer;
const char *expr_namer_name(Namer *, const void *var_or_buffer, const char *hint);

typedef enum { PRINT_SCRIPT /* TVMScript: T.max(…), T.float32(1) */, PRINT_COMPACT /* max(…), 1f */ } PrintStyle;
/* Shared subterms that would blow the text up are printed as T.Let variables
 * named shared_N; the parser puts them back in place. */
void expr_print(Text *, Namer *, PrintStyle, const Expr *);
const char *expr_str_of(Arena *, const Expr *); /* compact, for messages */

/* ---- analysis: analyzer.c, bounds.c, modular.c, linear.c, relax.c, prove.c,
 *      simplify.c with divmod.c, compare.c and rules.c, itermap.c ------------- */

/* What is known about variables.  Lives in the scratch memory of its creation
 * (or in the arena given). */
typedef struct Analyzer Analyzer;
Analyzer *analyzer_new(Module *, Arena *);
Module *analyzer_module(const Analyzer *);
/* min <= v < min + extent.  Binding a variable again replaces what was known of it. */
void analyzer_bind(Analyzer *, const Var *, const Expr *min, const Expr *extent);
void analyzer_bind_value(Analyzer *, const Var *, const Expr *value); /* v == value */
/* Assume a condition from here on, until analyzer_pop(mark). */
int analyzer_push(Analyzer *, const Expr *cond); /* returns the mark to pop to */
void analyzer_pop(Analyzer *, int mark);

/* Simplest known form; equal for every value the variables may take.  Integer
 * expressions of dtype int32/int64 that hold no loads are treated as index
 * arithmetic.  Idempotent.  The order of terms depends on the expression alone,
 * not on what this analyzer knows. */
const Expr *expr_simplify(Analyzer *, const Expr *);
/* The same, written as TVM's rewrite rules leave it: in the user's order, `x + -1`, `x <= 0`.  Raises for a division by
 * a literal zero. */
const Expr *analyzer_rewrite(Analyzer *, const Expr *);
/* True only if the condition holds for all values.  False: not known. */
bool analyzer_prove(Analyzer *, const Expr *cond);
bool analyzer_prove_equal(Analyzer *, const Expr *, const Expr *);

/* min and max a constant integer expression can take; INT64_MIN/MAX: unbounded. */
typedef struct Interval {
  int64_t min, max;
} Interval;
Interval analyzer_bounds(Analyzer *, const Expr *);
/* e is coeff * n + base for some n; coeff 0: exactly base; coeff 1: nothing known. */
typedef struct Modular {
  int64_t coeff, base;
} Modular;
Modular analyzer_modular(Analyzer *, const Expr *);
/* Symbolic bounds of e while the n variables run over their (analyzer-known)
 * ranges: expressions free of those variables.  False when not found. */
bool analyzer_relax(Analyzer *, const Expr *e, int n, const Var *const *vars, const Expr **min, const Expr **max);
/* e == sum coeff[i] * vars[i] + coeff[n], with coefficients free of the variables. */
bool expr_linear(Analyzer *, const Expr *e, int n, const Var *const *vars, const Expr **coeff);

/* Iterator maps.  Each index is a sum of pieces of the loops:
 *   index = base + sum_k  scale_k * ((source_k // lower_k) % extent_k)
 * where a source is one loop or a fusion of loops. */
typedef struct IterSplit {
  const Expr *source; /* a loop variable, or a fused sum of loops */
  const Expr *lower, *extent, *scale;
} IterSplit;
typedef struct IterSum {
  IterSplit *term;
  int n;
  const Expr *base;
} IterSum;
typedef enum { ITERMAP_INJECTIVE, ITERMAP_BIJECTIVE, ITERMAP_SURJECTIVE } IterMapCheck;
/* Are the n indices, as functions of the loops (var, min, extent each), an
 * affine map of pieces that do not overlap?  Injective: distinct iterations give
 * distinct indices.  Surjective and bijective: every index between the smallest
 * and largest occurs (bijective: exactly once).  predicate (may be NULL) limits
 * the iterations; loops are taken to run at least once.  out (n of them) and why
 * may be NULL; both live as long as the analyzer.  On refusal *why is the reason. */
bool itermap_detect(Analyzer *, int n, const Expr *const *index, int nloop, const IterVar *const *loop,
                    const Expr *predicate, IterMapCheck, IterSum *out, const char **why);
/* Solves outputs == index(loops) for the loops; out[i] is an expression over the
 * n output variables.  Needs a bijection. */
bool itermap_inverse(Analyzer *, int n, const Expr *const *index, int nloop, const IterVar *const *loop,
                     const Var *const *outputs, const Expr **out, const char **why);

/* The rule table, for its fuzzer. */
int rules_count(void);
const char *rules_text(Arena *, int rule);
/* Builds both sides of a rule over fresh variables with random constants drawn
 * from *seed; false if this rule's condition is not met by them. */
bool rules_instance(Module *, int rule, uint64_t *seed, const Expr **lhs, const Expr **rhs, int *nvars,
                    const Var ***vars);

/* ---- eval.c: what an expression means -------------------------------------- */

typedef struct EvalEnv {
  Module *m;
  Arena *arena;
  Map vars; /* Var* -> Value* */
  Value (*load)(struct EvalEnv *, const Buffer *, int n, const int64_t *index);
  Value (*call)(struct EvalEnv *, const Expr *call, int lane); /* extern and packed calls; NULL: refused */
  void *user;
} EvalEnv;
/* Value of the given lane (0 for scalars).  Raises on division by zero,
 * unbound variables, what has no value. */
Value expr_eval(EvalEnv *, const Expr *, int lane);
void expr_eval_bind(EvalEnv *, const Var *, Value);
/* eval_ops.c: the same on single values.  E_ADD … E_GE on two values of one dtype;
 * false for an integer division by zero. */
bool expr_eval_binary(ExprKind, Value a, Value b, Value *out);
/* Is the intrinsic a function of its arguments' values alone (no memory, no control)? */
bool intrin_is_math(Intrin);
void intrin_eval(Intrin, DType result, int n, const Value *arg, Value *out);
/* Folds one node whose arguments are literals; NULL when it has no value. */
const Expr *expr_fold(Module *, const Expr *);

#endif
