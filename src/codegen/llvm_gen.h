/* llvm_gen.h: inside the LLVM backend; for src/codegen/llvm*.c alone.
 *
 * A Gen is one module under construction.  While a function is built, fn is its
 * Frame; an outlined parallel body has a Frame of its own whose parent is the
 * kernel's.  A variable that only the parent knows is captured on first use: it
 * gets a place in the environment struct and a load in the body's entry block.
 *
 * Values: a scalar of dtype T is LLVM's iN / half / float / double (bool: i1;
 * handle: ptr); a vector is <lanes x that>.  In memory a bool or a narrower integer
 * fills a byte.  Index arithmetic is done on i64 (see llvm_expr.c). */
#ifndef LATHE_CODEGEN_LLVM_GEN_H
#define LATHE_CODEGEN_LLVM_GEN_H

#include "codegen/llvm_api.h"

/* What a variable stands for. */
typedef struct Bound {
  LLVMValueRef value; /* of the variable's dtype */
  LLVMValueRef wide;  /* integers: the same as i64; else NULL */
  const Expr *let;    /* what a let gave it; else NULL */
  int depth;          /* loops of the function around the place where it got its value */
} Bound;

typedef struct Capture {
  LLVMValueRef outer; /* in the parent */
  LLVMTypeRef type;
  uint64_t offset; /* in the environment */
} Capture;

/* What every function under construction can reach without a Var. */
typedef enum { AMBIENT_RT, AMBIENT_WORKSPACE, AMBIENT_SLICES, AMBIENT_SLICE_BYTES, AMBIENT_COUNT } Ambient;

typedef struct Frame {
  struct Frame *parent;
  LLVMValueRef fn;
  LLVMBasicBlockRef entry; /* allocas and captures; gets its branch to start at the end */
  LLVMBasicBlockRef start;
  LLVMValueRef env;  /* a body's environment */
  LLVMValueRef slot; /* a body's worker number */
  LLVMValueRef ambient[AMBIENT_COUNT];
  Map vars; /* Var* -> Bound* */
  Vec(Capture) captures;
  uint64_t env_bytes;
  int depth; /* loops around what is being generated */
} Frame;

/* Values of the expressions met so far in this statement; a branch has its own. */
typedef struct Memo {
  struct Memo *outer;
  Map values, wides; /* Expr* -> LLVMValueRef */
} Memo;

typedef struct Gen {
  Ctx *ctx;
  Arena *arena;
  const Target *t;
  LLVMContextRef lc;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  LLVMTypeRef i1, i8, i16, i32, i64, f16, f32, f64, ptr, none;
  const char *features; /* for the functions' attributes */
  Kernel *k;
  Frame *fn;
  Memo *memo;
  LLVMValueRef mask;   /* lanes that count, inside a vector if_then_else; else NULL */
  Map scopes;          /* Var* -> AliasScope* */
  Map numbers;         /* data Var* of allocated memory that never holds NaN */
  int nbodies;         /* parallel bodies of this kernel so far */
  bool has_free_loop;  /* one that LLVM may vectorise */
  bool has_splat_load; /* a scalar load spread over a vector */
} Gen;

/* ---- llvm_expr.c ------------------------------------------------------------------- */
LLVMTypeRef gen_type(Gen *, DType);
LLVMTypeRef gen_mem_type(Gen *, DType); /* as stored */
LLVMValueRef gen_int(Gen *, LLVMTypeRef, int64_t);
LLVMValueRef gen_splat(Gen *, LLVMValueRef, int lanes);
LLVMValueRef gen_lane(Gen *, LLVMValueRef vector, int lane);
LLVMValueRef gen_expr(Gen *, const Expr *);
/* Finds the memory that never holds NaN, for min and max. */
void gen_find_numbers(Gen *);
LLVMValueRef gen_expr_lanes(Gen *, const Expr *, int lanes); /* a scalar is splat */
LLVMValueRef gen_index(Gen *, const Expr *);                 /* a scalar integer as i64 */
/* Is it arithmetic that may be done on 64 bits?  Then no step of it overflows. */
bool gen_is_index_arithmetic(const Expr *);
LLVMValueRef gen_cast(Gen *, LLVMValueRef, DType from, DType to);
LLVMValueRef gen_compare_zero(Gen *, LLVMValueRef, DType); /* x != 0 */
void gen_memo_begin(Gen *, Memo *);
void gen_memo_end(Gen *, Memo *);

/* ---- llvm_call.c: intrinsic functions ------------------------------------------------ */
LLVMValueRef gen_call(Gen *, const Expr *);
/* An intrinsic of LLVM, overloaded on the types given. */
LLVMValueRef gen_intrinsic(Gen *, const char *name, int ntypes, LLVMTypeRef *, int n, LLVMValueRef *);
LLVMValueRef gen_call_pointer(Gen *, LLVMTypeRef fn_type, LLVMValueRef fn, int n, LLVMValueRef *);
LLVMValueRef gen_string(Gen *, const char *);
LLVMValueRef gen_dot(Gen *, const Expr *dot, LLVMValueRef sum); /* sum + bf16_dot(…) */
LLVMValueRef gen_math(Gen *, Intrin, DType, LLVMValueRef *);    /* E_MOD on floats too */

/* ---- llvm_extern.c: calls out of the kernel ------------------------------------------- */
LLVMValueRef gen_call_extern(Gen *, const Expr *);
void gen_call_packed(Gen *, const Expr *);
/* A function of the C library, without effects; all arguments and the result of one type. */
LLVMValueRef gen_libm(Gen *, const char *name, LLVMTypeRef, int n, LLVMValueRef *);
LLVMTypeRef gen_calls_type(Gen *); /* LatheRtCalls */

/* ---- llvm_memory.c: variables, loads, stores, alias information ------------------------ */
LLVMValueRef gen_pointer_as(Gen *, LLVMValueRef, LLVMTypeRef pointee); /* typed pointers of LLVM 14 */
LLVMValueRef gen_offset(Gen *, LLVMTypeRef elem, LLVMValueRef pointer, LLVMValueRef index);
LLVMValueRef gen_field(Gen *, LLVMValueRef pointer, uint64_t bytes);
LLVMValueRef gen_member(Gen *, LLVMTypeRef record, LLVMValueRef pointer, int member);
LLVMValueRef gen_load_at(Gen *, LLVMTypeRef, LLVMValueRef pointer, unsigned align);
LLVMValueRef gen_store_at(Gen *, LLVMValueRef, LLVMValueRef pointer, unsigned align);
LLVMValueRef gen_alloca(Gen *, LLVMTypeRef, uint64_t count, unsigned align); /* in the entry block */
LLVMValueRef gen_load(Gen *, const Expr *);
/* neighbours in memory, joined by shifts, read at once; NULL: something else */
LLVMValueRef gen_word(Gen *, const Expr *);
LLVMValueRef gen_address(Gen *, const Buffer *, const Expr *index);
void gen_store(Gen *, const Buffer *, const Expr *index, LLVMValueRef, LLVMValueRef mask);
void gen_bind(Gen *, const Var *, LLVMValueRef); /* integers: value or i64 */
/* As an index the variable is what the value would be in its place: 64 bits throughout. */
void gen_bind_let(Gen *, const Var *, const Expr *value);
Bound *gen_lookup(Gen *, const Var *);
LLVMValueRef gen_ambient(Gen *, Ambient);
/* Groups the kernel's memory into pieces that do not overlap. */
void gen_alias_scopes(Gen *);
LLVMValueRef gen_tag(Gen *, const Buffer *, LLVMValueRef access); /* says which of them it belongs to */
LLVMValueRef gen_load_contiguous(Gen *, const Buffer *, LLVMValueRef base, int lanes); /* as it lies in memory */
void gen_store_contiguous(Gen *, const Buffer *, LLVMValueRef base, LLVMValueRef v, int lanes);

/* ---- llvm_bytes.c: vectors of bytes -------------------------------------------------------- */
LLVMValueRef gen_part(Gen *, LLVMValueRef vector, int from, int n);  /* lanes from … from + n */
LLVMValueRef gen_join(Gen *, LLVMValueRef, LLVMValueRef, int lanes); /* of both together */
/* Bytes of a table of 256; NULL: it is no such table, or the target has no such instruction. */
LLVMValueRef gen_look_up(Gen *, const Buffer *, const Expr *index);

/* ---- llvm_turn.c ------------------------------------------------------------------------ */
/* Makes the loads of a sequence that are the columns of a square, into the memo. */
void gen_turned_loads(Gen *, Stmt *seq);
int gen_columns_together(Gen *, Stmt *seq, int from); /* stores from there on that were written as one */

/* ---- llvm_abreast.c ------------------------------------------------------------------------ */
/* Generates the stores of the sequence from here on whose values are computed side by side: how many, or 0. */
int gen_abreast(Gen *, Stmt *seq, int from);

/* ---- llvm_copy.c ------------------------------------------------------------------- */
bool gen_copied_run(Gen *, Stmt *loop); /* true: the loop was a copy, and has been generated */

/* ---- llvm_stmt.c ------------------------------------------------------------------------ */
void gen_stmt(Gen *, Stmt *);
const char *gen_cpu_name(const Target *); /* one that this LLVM knows */
LLVMBasicBlockRef gen_block(Gen *, const char *name);
/* Begins a function in a fresh frame, the builder at its start; ends it. */
void gen_function_begin(Gen *, Frame *, const char *name, LLVMTypeRef type, LLVMLinkage);
void gen_function_end(Gen *);
void gen_attribute(Gen *, LLVMValueRef fn, LLVMAttributeIndex, const char *name, uint64_t value);
void gen_return_if_failed(Gen *, LLVMValueRef status);

/* ---- llvm_entry.c: kernels, their uniform entries, the table ------------------------------- */
void gen_kernel(Gen *, Kernel *);
void gen_table(Gen *, int n, Kernel *const *);

#endif
