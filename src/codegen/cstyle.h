/* cstyle.h: inside the backends that print C and languages like it; for
 * src/codegen/{cstyle,c,cuda}*.c alone.
 *
 * A Cgen prints one file.  Expressions become text with a binding strength (Frag);
 * what cannot stand inside an expression (lets, named vectors) is printed as
 * statements before it, into `out`.  An operand that is only evaluated sometimes is
 * printed into a text of its own first: if that needed statements, the choice becomes
 * an if statement.
 *
 * Values: a scalar of dtype T is the dialect's type for T; bool is `bool`, a byte in
 * memory.  A vector is a GNU vector type named f32x8, i8x16, …; f32x8u is the same
 * with its element's alignment, for memory.  A vector of bool is a mask: integers of
 * some width, -1 or 0.  A dialect without vector types gets every vector lane by lane.
 *
 * Wrapping: int32 and int64 arithmetic on data (what holds a load) is done unsigned,
 * so that it wraps under every compiler; index arithmetic does not overflow. */
#ifndef LATHE_CODEGEN_CSTYLE_H
#define LATHE_CODEGEN_CSTYLE_H

#include "codegen/codegen.h"

typedef struct Cgen Cgen;

/* What the languages spell differently. */
typedef struct Dialect {
  const char *name;
  const char *ints[2][4]; /* [is unsigned][8 16 32 64 bits] */
  const char *half;       /* float16 */
  const char *restrict_word;
  const char *helper;  /* what a helper function begins with */
  const char *shared;  /* what a declaration in shared memory begins with; NULL: there is none */
  const char *barrier; /* statement; NULL: there is none */
  bool vectors;        /* GNU vector types */
  bool quads;          /* cstyle_quads.c */
  bool parallel;       /* parallel loops are functions of their own */
  bool runtime;        /* there is a runtime, for those loops and for packed calls; else PARALLEL and SLICE */
  const char *float_special[2][3]; /* [float32, float64][infinity, -infinity, nan] */
  const char *prefetch;            /* function; NULL: the hint is dropped */
  const char *unroll;              /* what stands before a loop that is to be unrolled */
} Dialect;

/* Binding strengths of C. */
enum {
  P_NONE,
  P_COMMA,
  P_ASSIGN,
  P_COND,
  P_LOR,
  P_LAND,
  P_BOR,
  P_BXOR,
  P_BAND,
  P_EQ,
  P_REL,
  P_SHIFT,
  P_ADD,
  P_MUL,
  P_UNARY,
  P_POST
};
typedef struct Frag {
  const char *s;
  int prec;
} Frag;

/* How a pointer variable is reached. */
typedef struct Memory {
  const char *name;
  DType elem;       /* as the pointer is declared */
  bool is_variable; /* an allocation kept as one scalar or vector variable */
  int lanes;        /* of that variable */
  bool read_only;
} Memory;

/* How an allocation is used in the whole kernel. */
typedef struct Access {
  Stmt *alloc;
  int64_t n; /* elements; -1: not constant */
  bool any, loaded;
  bool whole; /* always all of it at once, never from a parallel loop: a variable */
} Access;

/* A name that holds in the scope being printed: of a vector expression, or of one lane
 * of a let variable. */
typedef struct Bound {
  const void *what; /* Expr* or Var* */
  int lane;         /* -1: all of it; -2: a let variable as a whole */
  const char *name;
} Bound;

/* A pointer into memory that the statements being printed share: data + rest. */
typedef struct Base {
  const Var *data;
  DType elem; /* what it points to, as stored */
  const Expr *rest;
  const char *name;
} Base;

struct Cgen {
  Ctx *ctx;
  Arena *arena; /* the Code's */
  const Target *target;
  const Dialect *dialect;
  Text types, helpers, functions;
  StrMap made;   /* types and helpers printed so far */
  StrMap protos; /* of external functions */
  bool uses_math, uses_packed, uses_half;
  /* of the kernel being printed */
  const Kernel *k;
  Namer names;
  Map memory;    /* data Var* -> Memory* */
  Map access;    /* data Var* of allocations -> Access* */
  Map used;      /* Var* read or pointed through somewhere in the kernel */
  Map data;      /* Var* or Expr* -> (void *)1: wraps; 2: index arithmetic */
  Map terms;     /* Expr* -> Term*: how often the statement uses it */
  Map mask_bits; /* Var* of a vector of bool -> its width */
  Vec(Bound) bound;
  Vec(Base) bases;
  Text *out;
  int indent;
  int parts;    /* parallel bodies so far */
  bool in_part; /* printing one */
  bool wide;    /* printing a shape: all integers are int64_t */
};

/* ---- cstyle.c: names, types, literals, scalar expressions ------------------------- */

void cs_refuse_imports(Ctx *, const Kernel *); /* code in LLVM's language cannot be joined with C */
Cgen *cs_new(Code *, const Dialect *);
void cs_kernel_begin(Cgen *, const Kernel *);
const char *cs_name(Cgen *, const Var *);
const char *cs_name_as(Cgen *, const Var *, const char *hint);
const char *cs_fresh(Cgen *, const char *hint);
/* A function's name: the kernel's, kept away from keywords and the C library. */
const char *cs_function_name(Cgen *, const char *);
const char *cs_type(Cgen *, DType);         /* of a value, scalar or vector */
const char *cs_storage_type(Cgen *, DType); /* of an element in memory */
const char *cs_suffix(Cgen *, DType);       /* "f32", "u8x16": part of helpers' names */
DType cs_storage(Cgen *, DType);            /* the dtype whose bits stand for it */
void cs_line(Cgen *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *cs_fmt(Cgen *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Frag cs_frag(const char *, int prec);
const char *cs_wrap(Cgen *, Frag, int prec); /* in parentheses when it binds weaker */
/* Prints a helper once. */
bool cs_needs(Cgen *, const char *name); /* true: not made yet; the caller prints it */
void cs_helper(Cgen *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void cs_unsupported(Cgen *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The whole value; and lane of a vector (a scalar is itself in every lane). */
Frag cs_expr(Cgen *, const Expr *);
Frag cs_lane(Cgen *, const Expr *, int lane);
const char *cs_text(Cgen *, const Expr *); /* cs_expr, bare */
Frag cs_literal_float(Cgen *, DType, double);
Frag cs_cast(Cgen *, Frag, DType from, DType to); /* scalars */
bool cs_may_fail(Cgen *, const Expr *);           /* loads, divisions, calls: not to be evaluated early */
bool cs_wraps(Cgen *, const Expr *);
void cs_bind(Cgen *, const Var *, const Expr *value); /* const T v = value; */
bool cs_divisor_known(const Expr *);
bool cs_half_bits(Cgen *, DType);
void cs_check_half(Cgen *, const Expr *);
Frag cs_choice(Cgen *, const Expr *, int lane);               /* if_then_else */
const char *cs_one_type(Cgen *, DType, Frag value, int prec); /* for both values of ?: */

/* Counts the terms of the expressions that a statement is about to print. */
void cs_share_begin(Cgen *);
void cs_share(Cgen *, const Expr *);
bool cs_is_shared(Cgen *, const Expr *); /* printed once, under a name */

/* Statements printed aside. */
typedef struct Aside {
  Text text, *outer;
  int bound;
} Aside;
void cs_aside_begin(Cgen *, Aside *);
bool cs_aside_end(Cgen *, Aside *); /* true: something was printed */

/* ---- cstyle_memory.c: loads, stores, addresses ------------------------------------- */

Memory *cs_memory(Cgen *, const Buffer *);
Frag cs_load(Cgen *, const Expr *, int lane);
const char *cs_address(Cgen *, const Buffer *, const Expr *index);
void cs_store(Cgen *, Stmt *);
void cs_alloc(Cgen *, Stmt *);
void cs_note_alloc(Cgen *, Stmt *);
/* index NULL: through the bare pointer. */
void cs_note_access(Cgen *, const Buffer *, const Expr *index, Stmt *use, bool load, bool whole);
void cs_declare_memory(Cgen *, const Var *data, Memory);
/* An index as rest + constant; the first of a ramp's. */
const Expr *cs_split_index(const Expr *index, int64_t *constant);
const Base *cs_base(Cgen *, const Buffer *, const Expr *rest); /* NULL: there is none */

/* ---- cstyle_vector.c: whole vectors -------------------------------------------------- */

Frag cs_vector(Cgen *, const Expr *);
Frag cs_mask(Cgen *, const Expr *, int bits);
int cs_mask_width(Cgen *, const Expr *);
const char *cs_splat(Cgen *, DType, const char *scalar);
const char *cs_lanes(Cgen *, const Expr *); /* (f32x4){lane 0, lane 1, …} */
const char *cs_mask_type(Cgen *, int bits, int lanes);
const char *cs_memory_type(Cgen *, DType); /* f32x8u */

/* ---- cstyle_quads.c: Helium ------------------------------------------------------------ */

/* Is it the sum of the products of two vectors of bytes?  Then sum + it: */
bool cs_is_bytes_dot(Cgen *, const Expr *);
const char *cs_bytes_dot(Cgen *, const Expr *, const char *sum);
/* Values of four int32; NULL: e is none that these know, or the dialect has no quads. */
const char *cs_quad_widen(Cgen *, const Expr *cast);
const char *cs_quad_min_max(Cgen *, const Expr *);
const char *cs_quad_multiply(Cgen *, const Expr *);
const char *cs_quad_round_shift(Cgen *, const Expr *);
bool cs_quad_store(Cgen *, Stmt *);

/* ---- cstyle_call.c: intrinsic functions ------------------------------------------------ */

Frag cs_call(Cgen *, const Expr *, int lane);
/* sum + word_dot(…) */
const char *cs_word_dot(Cgen *, const Expr *, const char *sum, int lane);
const char *cs_helper_of(Cgen *, const char *what, DType); /* min, max, floordiv, … */
const char *cs_saturate(Cgen *, DType from, DType to);
const char *cs_half_cast(Cgen *, DType from, DType to); /* float16 kept as bits */
void cs_eval(Cgen *, const Expr *);                     /* for its effect */

/* ---- cstyle_stmt.c --------------------------------------------------------------------- */

void cs_stmt(Cgen *, Stmt *);
void cs_scan_uses(Cgen *, Stmt *);
/* Does something below s live in that place?  Does it call the runtime? */
bool cs_uses_place(Stmt *s, Place);
bool cs_uses_runtime(Cgen *, Stmt *s);

/* ---- cstyle_seq.c: statements in a row ---------------------------------------------------- */

void cs_sequence(Cgen *, Stmt *);

/* ---- cstyle_part.c: parallel loops as functions of their own ------------------------------ */

void cs_parallel(Cgen *, Stmt *);

/* ---- c.c: what c_external.c has of it ------------------------------------------------------ */

extern const char cs_abi_text[], cs_abi_calls[]; /* the runtime's ABI */
extern const CodeBackend cs_backend;
void cs_module_table(Text *, const Target *, int n); /* lathe_module, over lathe_funcs */

#endif
