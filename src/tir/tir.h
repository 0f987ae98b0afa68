/* tir.h: loop programs.
 *
 * A PrimFunc is a function over buffers and scalars.  It comes in two forms:
 *
 * - schedulable: the body is a tree of loops whose leaves are blocks.  The
 *   outermost statement is a block named "root" that allocates the
 *   intermediate buffers.  A block has its own iteration variables, each bound to
 *   an expression of the loops around it, says what it reads and writes, and may
 *   have an init statement that runs when all its reduction variables are at their
 *   first value.  Buffers are many-dimensional.
 * - lowered: no blocks, buffers are one-dimensional, vector loops are ramps.
 *   src/lower/lower.h says exactly what may occur.
 *
 * Statements are mutable, have parent links and an id that a clone keeps, so a
 * schedule can name them across clones.  Everything lives in the Module's arena;
 * nothing is freed piece by piece.
 *
 * Abbreviations: Stmt statement, f function, s statement, cond condition. */
#ifndef LATHE_TIR_H
#define LATHE_TIR_H

#include "expr/expr.h"

typedef struct Stmt Stmt;
typedef struct Block Block;
typedef struct PrimFunc PrimFunc;

/* key = value; the value is a literal, a string or any expression. */
typedef struct Annot {
  const char *key;
  const Expr *value;
} Annot;
typedef Vec(Annot) Annots;
const Expr *annots_get(const Annots *, const char *key); /* NULL if absent */
void annots_set(Arena *, Annots *, const char *key, const Expr *);
bool annots_remove(Annots *, const char *key);

typedef enum {
  S_SEQ, /* one after the other */
  S_FOR,
  S_IF,
  S_WHILE,
  S_LET,   /* var = value in body */
  S_STORE, /* buffer[index…] = value */
  S_ALLOC, /* buffer exists in body (lowered form; ir_builder) */
  S_EVAL,  /* evaluate for its effect */
  S_ATTR,  /* key on node = value, for body: pragmas and the like */
  S_BLOCK,
} StmtKind;

typedef enum { FOR_SERIAL, FOR_PARALLEL, FOR_VECTORIZED, FOR_UNROLLED, FOR_THREAD } ForKind;

/* Where an allocation lives; decided by lower (PLACE_NONE before). */
typedef enum {
  PLACE_NONE,
  PLACE_STACK,
  PLACE_WORKSPACE,
  PLACE_SLICE /* the worker's part of the workspace */,
  PLACE_SHARED
} Place;

struct Stmt {
  StmtKind kind;
  uint32_t id;
  Stmt *parent; /* NULL at the top of a function */
  Loc loc;
  union {
    Vec(Stmt *) seq;
    struct {
      const Var *var;
      const Expr *min, *extent;
      ForKind kind;
      const char *thread_tag; /* FOR_THREAD: "threadIdx.x", "blockIdx.x", "vthread.x", … */
      Annots annots;          /* "pragma_unroll_explicit", "software_pipeline_stage", … */
      Stmt *body;
    } loop;
    struct {
      const Expr *cond;
      Stmt *then, *orelse;
    } cond; /* orelse may be NULL */
    struct {
      const Expr *cond;
      Stmt *body;
    } loop_while;
    struct {
      const Var *var;
      const Expr *value;
      Stmt *body;
    } let;
    /* mask: vector of bool, or NULL */
    struct {
      const Buffer *buffer;
      const Expr **index;
      int n;
      const Expr *value;
      const Expr *mask;
    } store;
    /* offset: bytes, set by lower */
    struct {
      const Buffer *buffer;
      Stmt *body;
      Place place;
      const Expr *offset;
      Annots annots;
    } alloc;
    struct {
      const Expr *value;
    } eval;
    /* node: a variable, a buffer's data, or NULL */
    struct {
      const Var *node;
      const char *key;
      const Expr *value;
      Stmt *body;
    } attr;
    Block *block;
  } u;
};

/* A box of a buffer: min and extent for each dimension. */
typedef struct Region {
  const Buffer *buffer;
  const Expr **min, **extent;
} Region;

typedef struct BlockIter {
  const Var *var;
  const Expr *min, *extent; /* its domain */
  IterKind kind;
  const Expr *value; /* what it is bound to, over the loops around the block */
} BlockIter;

typedef struct MatchBuffer {
  const Buffer *buffer; /* a view … */
  Region source;        /* … of this */
} MatchBuffer;

struct Block {
  const char *name; /* unique in its function */
  BlockIter *iter;
  int niter;
  const Expr *predicate; /* NULL: always; else the block runs only where it holds */
  Region *reads, *writes;
  int nreads, nwrites;
  bool declared; /* the author wrote them, and nobody has held them against the accesses yet */
  const Buffer **allocs;
  int nallocs;
  MatchBuffer *matches;
  int nmatches;
  Annots annots;
  Stmt *init; /* NULL if none */
  Stmt *body;
};

typedef struct Param {
  const Var *var;       /* a scalar, or buffer->data */
  const Buffer *buffer; /* NULL for a scalar */
} Param;

struct PrimFunc {
  Module *m;
  const char *name;
  Param *param;
  int nparam;
  Stmt *body;
  Annots attrs; /* "global_symbol", "tir.noalias", "tir.in_place" (lower/kernel.c), … */
};

/* ---- build.c: making and changing statements.  Bounds of loops and of block
 * variables are brought to the dtype of their variable. ---------------------------- */

Stmt *stmt_seq(Module *, int n, Stmt *const *v); /* flattens nested sequences; n == 1 gives v[0] */
Stmt *stmt_for(Module *, const Var *, const Expr *min, const Expr *extent, ForKind, const char *thread_tag, Stmt *body);
Stmt *stmt_if(Module *, const Expr *cond, Stmt *then, Stmt *orelse);
Stmt *stmt_while(Module *, const Expr *cond, Stmt *body);
Stmt *stmt_let(Module *, const Var *, const Expr *value, Stmt *body);
/* Checks rank and dtype; a literal converts to the buffer's dtype, a scalar broadcasts to a vector index. */
Stmt *stmt_store(Module *, const Buffer *, int n, const Expr *const *index, const Expr *value);
Stmt *stmt_alloc(Module *, const Buffer *, Stmt *body);
Stmt *stmt_eval(Module *, const Expr *);
Stmt *stmt_attr(Module *, const Var *node, const char *key, const Expr *value, Stmt *body);
Stmt *stmt_block(Module *, Block *);
Stmt *stmt_nop(Module *); /* evaluate(0) */

/* Deep copy in the same module; keeps ids, shares expressions. */
Stmt *stmt_clone(Module *, const Stmt *);
/* Deep copy in the importer's module, with ids of its own there. */
Stmt *stmt_import(Importer *, const Stmt *);
/* Deep copy with fresh ids, fresh loop, block and let variables, fresh buffers for
 * those allocated inside, and block names that are new in the tree s stands in.
 * var_map (Var* -> Expr*, may be NULL) is applied on the way and receives the new
 * variables. */
Stmt *stmt_clone_fresh(Module *, const Stmt *, Map *var_map);
/* Puts b where a stands (in a's parent, or as the body of f when a is at the top).
 * b may hold a (a was wrapped).  A sequence put into a sequence is spliced. */
void stmt_replace(PrimFunc *, Stmt *a, Stmt *b);
/* Sets parent links below s (call after building by hand). */
void stmt_link(Stmt *s, Stmt *parent);

/* Sets each buffer parameter's var to its data. */
PrimFunc *func_new(Module *, const char *name, int nparam, const Param *, Stmt *body);
PrimFunc *func_clone(const PrimFunc *);               /* same module; ids stay */
PrimFunc *func_import(Module *dst, const PrimFunc *); /* another module; ids stay */
/* A copy in the same module where variables have values (Var* -> Expr*): sizes of its
 * buffers, or scalar parameters, which it has no more. */
PrimFunc *func_specialize(const PrimFunc *, const Map *values);

/* ---- walk.c: visiting and rewriting ------------------------------------------ */

/* Direct children, in order; returns their number, which may be above max (then
 * max of them are given).  slot[i] is where the pointer sits. */
int stmt_children(Stmt *, Stmt ***slot, int max);
/* Calls fn on s and everything below, parents first.  fn returns false to not go below. */
void stmt_visit(Stmt *, bool (*fn)(void *env, Stmt *), void *env);
/* Calls fn on every expression held directly by s and the statements below (bounds,
 * indices, values, conditions, regions, bindings; not annotations). */
void stmt_visit_exprs(Stmt *, void (*fn)(void *env, Stmt *holder, const Expr *), void *env);
/* Replaces every expression below s by rw(e); in place.  Regions and bindings too. */
void stmt_rewrite_exprs(Stmt *, const Expr *(*rw)(void *env, const Expr *), void *env);
/* Replaces free variables (Var* -> Expr*), in annotations too; buffers allocated
 * below s whose shapes mention one are made anew. */
void stmt_substitute(Module *, Stmt *, const Map *var_to_expr);
/* Replaces a buffer by another in loads, stores, regions, allocations below s, and
 * from's data pointer by to's. */
void stmt_replace_buffer(Module *, Stmt *, const Buffer *from, const Buffer *to);

const char *func_symbol(const PrimFunc *);           /* what it is exported as: global_symbol, or its name */
Stmt *func_find_block(PrimFunc *, const char *name); /* S_BLOCK, NULL if absent */
Stmt *func_find_id(PrimFunc *, uint32_t id);

/* Loops around s up to (not through) the nearest enclosing block, outermost first. */
int stmt_loops(Arena *, Stmt *, Stmt ***out);
Stmt *stmt_enclosing_block(Stmt *); /* NULL at the root */

/* ---- access.c: what a block touches ---------------------------------------- */

/* Fills reads and writes of a block from its body (init too): the smallest boxes
 * that cover the accesses, over the block's own variables. */
void block_infer_access(Module *, Block *);
/* Widens the reads and writes that the block's author wrote to hold every load and store.  What a call does with an
 * address cannot be seen: there the author is believed. */
void block_widen_access(Module *, Block *);
/* The box of `buffer` read (or written) below s while the loops strictly inside
 * s run and the ones outside are fixed.  False if nothing is touched. */
bool stmt_region(Analyzer *, Stmt *s, const Buffer *buffer, bool writes, Region *out);

/* ---- update.c: what a reduction block does to its result --------------------------- */

typedef struct BlockUpdate {
  int n;                  /* values reduced at once */
  Stmt **store;           /* the stores of the new values */
  const Reducer *reducer; /* store[i] holds result[i] over the old values (lhs) … */
  const Expr **source;    /* … and these (rhs), over the block's variables */
} BlockUpdate;
/* Fills out from the body of the block; its memory is the arena's.  NULL, or what the
 * update is that no known reducer says. */
const char *block_update(Module *, Arena *, const Block *, BlockUpdate *out);

/* ---- compare.c -------------------------------------------------------------- */

/* Equal up to names of variables and buffers.  *why (may be NULL) tells the first
 * difference.  Works across modules. */
bool func_equal(const PrimFunc *, const PrimFunc *, Arena *, const char **why);
/* Free variables must be the same (map_free: may be renamed, one to one). */
bool tir_expr_equal(const Expr *, const Expr *, bool map_free, Arena *, const char **why);
uint64_t func_hash(const PrimFunc *); /* equal functions hash alike */

/* ---- check.c, bounds.c --------------------------------------------------------- */

/* Raises ERR_TYPE naming the place when f is not well formed: a variable used
 * outside its scope or defined twice, a wrong rank or dtype, two blocks of one name,
 * a block that touches a buffer which its reads and writes do not name (where it
 * has any); block bindings stay in their domains where that can be decided. */
void func_check(const PrimFunc *);
/* bounds.c.  Raises ERR_BOUNDS if an access is provably out of bounds. */
void func_check_bounds(const PrimFunc *);
/* Raises ERR_TYPE if a block axis is provably bound outside of its domain (func_check
 * asks this too). */
void func_check_domains(const PrimFunc *);

/* ---- print.c, print_compact.c, lex.c, parse*.c ------------------------------------ */

const char *func_print(Arena *, const PrimFunc *); /* TVMScript: @T.prim_func def … */
/* The same with the first lines of these blocks and loops underlined: for messages, it does not parse. */
const char *func_print_marked(Arena *, const PrimFunc *, int n, const uint32_t *ids);
const char *func_print_compact(Arena *, const PrimFunc *); /* for (i, 0, 1024) { … } */
const char *stmt_print_compact(Arena *, const Stmt *);
/* @I.ir_module class Module: … ; all tir functions */
const char *tir_print_module(Arena *, Module *);

/* Values of free Python names in the text, from the decorator's surroundings. */
typedef struct ScriptName {
  const char *name;
  enum { NAME_INT, NAME_FLOAT, NAME_BOOL, NAME_STR, NAME_EXPR, NAME_DTYPE, NAME_LIST } kind;
  union {
    int64_t i;
    double f;
    const char *s;
    const Expr *e;
    struct {
      const struct ScriptName *v;
      int n;
    } list;
  } u;
} ScriptName;
/* Parses one function (or, tir_parse_module, a module or a list of functions).  Raises
 * ERR_PARSE with line and column; file names the source in messages and line0 is
 * the number of its first line. */
PrimFunc *func_parse(Module *, const char *text, const char *file, int line0, int nnames, const ScriptName *);
void tir_parse_module(Module *, const char *text, const char *file, int line0, int nnames, const ScriptName *);

/* ---- interp.c: what a function means ---------------------------------------------- */

typedef struct TirArg {
  void *data; /* tensors: first element; row-major unless strides */
  DType dtype;
  int ndim;
  const int64_t *shape;
  const int64_t *strides; /* elements; NULL: compact */
  Value scalar;           /* scalars: the value (data NULL) */
} TirArg;
/* Runs f naively, in either form.  Checks every access against its buffer and
 * raises ERR_BOUNDS; raises on arguments that do not fit.  Parallel and thread
 * loops run in order (thread loops in lock step between barriers). */
void func_interpret(const PrimFunc *, int n, const TirArg *arg);
/* The same for a schedulable function, with no order among iterations that run at once: those of
 * parallel loops and blockIdx come one by one as the seed shuffles them, those of vectorized loops
 * statement by statement, all reads before the writes, threads shuffled at each statement.
 * What only one such loop touches of the allocated buffers is new in each of its iterations.  A
 * function without races gives what func_interpret gives. */
void func_interpret_shuffled(const PrimFunc *, int n, const TirArg *arg, uint64_t seed);

#endif
