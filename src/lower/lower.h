/* lower.h: from a schedulable function to a kernel.
 *
 * lower_func runs the passes of passes.c in order.  Up to LOWER_LOOPS the result
 * is what lathe.lower() shows: blocks gone, buffers compact and flat, guards moved
 * out of main bodies by splitting loops, vector loops turned to ramps, unrolled
 * loops unrolled, everything simplified.  LOWER_KERNEL goes on to what a backend
 * takes.
 *
 * Kernel form.  A backend may rely on all of this:
 * - Statements: S_SEQ, S_FOR (serial, parallel; FOR_THREAD only for GPU targets;
 *   min is 0), S_IF, S_WHILE, S_LET, S_STORE, S_ALLOC, S_EVAL, S_ATTR (to be
 *   ignored when the key is unknown).  A parallel loop is never inside another.
 * - Loads and stores have one index: a scalar, or a vector of the value's lanes.
 *   A ramp of stride 1 is a contiguous access; any other vector index is a
 *   gather or scatter.  Vector lanes are a power of two.
 * - No E_FLOORDIV/E_FLOORMOD (they became E_DIV/E_MOD, corrected where operands may
 *   be negative), no E_REDUCE, no IN_LIKELY.
 * - Arithmetic dtypes are those the target computes in: bool, int/uint 8-64, float32,
 *   float64, float16 only with CPU_FP16 (or a GPU).  Where the target converts float16
 *   (CPU_F16C, AArch64) it also appears in loads, stores and casts to and from
 *   float32.  All others appear in loads and stores only as their bits (uint8/uint16):
 *   the conversions are spelled out in integer arithmetic.  A parameter's buffer keeps
 *   its declared dtype; the buffers of the body share its pointer.
 * - Elementary functions on float32 (and vectors of it) are spelled out in
 *   arithmetic unless the target has them as instructions (sqrt, floor, ceil, trunc,
 *   nearbyint, abs, fma, copysign).  Those left (float64, rare ones) are calls of
 *   the C library, scalar; vectors of them are taken apart.
 * - Expressions can be written out as trees: larger shared terms are S_LET (E_LET
 *   inside a branch of if_then_else).
 * - An S_ALLOC whose buffer is one scalar or one vector, accessed whole at index 0, is
 *   meant to be a register.
 * - Variables are unique: no two binders bind the same Var.
 * - Kernel.args in order of the user's parameters. */
#ifndef LATHE_LOWER_H
#define LATHE_LOWER_H

#include "target/target.h"
#include "tir/tir.h"

typedef enum { LOWER_LOOPS, LOWER_KERNEL } LowerStage;

typedef struct LowerConfig {
  int unroll_max;       /* plain loops that give at most this many statements are unrolled */
  bool no_partition;    /* keep guards in the loops */
  bool no_vectorize;    /* vector loops become plain ones */
  bool alone;           /* for a program without a runtime: parallel loops become plain ones, and all but small arrays
                           lie in the workspace, not on the stack … */
  bool threads;         /* … whose parallel loops stay, for threads of its own */
  const char *dump_dir; /* NULL: none; else each pass writes NN_name.txt */
} LowerConfig;

typedef struct KernelArg {
  const char *name;
  const Var *var;       /* the pointer (buffer->data), or the scalar */
  const Buffer *buffer; /* with its shape as the user declared it; NULL for a scalar */
  bool written;
  bool may_alias; /* not restrict */
} KernelArg;

/* A size that the shapes mention and no parameter gives: read off a tensor. */
typedef struct KernelSize {
  const Var *var;
  int arg, dim; /* dim >= 0: shape[dim]; -1 - d: stride d; INT_MIN: element offset */
} KernelSize;

typedef struct Kernel {
  Module *m;
  const char *name;
  const Target *target;
  KernelArg *arg;
  int narg;
  KernelSize *size;
  int nsize;
  Stmt *body;
  const Expr *workspace_bytes; /* shared part; over sizes and scalars; int64 */
  const Expr *slice_bytes;     /* for each worker */
  const char **import_llvm;    /* texts of LLVM code that it calls: the pragma import_llvm of its loops */
  int nimport;
} Kernel;

/* In the same module as f; f is left as it was. */
PrimFunc *lower_func(const PrimFunc *f, const Target *, LowerStage, const LowerConfig *);
Kernel *lower_kernel(const PrimFunc *f, const Target *, const LowerConfig *);

/* The passes by name, in order, and one of them alone (for cases and dumps). */
int lower_pass_count(void);
const char *lower_pass_name(int);
PrimFunc *lower_run_pass(const PrimFunc *f, const Target *, const char *name);
/* The passes that users may run alone, by their names in tir.transform (NULL: none); raises where the function has not
 * the form that the pass needs. */
const char *lower_pass_transform(int);
PrimFunc *lower_run_transform(const PrimFunc *f, const Target *, const char *transform);

/* Variables and pointers used below s and bound outside it, in order of first
 * use: what an outlined parallel body must be handed. */
int lower_captures(Arena *, Stmt *s, const Var ***out);

/* math.c: elementary functions in arithmetic.  Error bounds against the exact
 * result are in docs/math.md; at most 4 ulp in float32. */
const Expr *lower_math(Module *, const Target *, const Expr *call); /* NULL: not spelled out */

#endif
