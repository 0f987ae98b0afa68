/* emit.h: one function of the graph on its way into instructions: emit.c, emit_call.c,
 * emit_data.c, emit_expr.c. */
#ifndef LATHE_DRIVER_EMIT_H
#define LATHE_DRIVER_EMIT_H

#include "driver/program.h"

typedef Vec(const Node *) Nodes;

/* A graph function that is called: its number, and the variables and sizes of its surroundings
 * that it is handed before its own arguments.  A size n travels as a tensor of shape (n, 0). */
typedef struct Callee {
  const Node *func;
  int index;
  bool entry; /* called from outside */
  int value;  /* the function that stands for it where it is a value (emit_call.c); -1: none yet */
  int ncapture, nsize;
  const Node **capture;
  const Var **size;
} Callee;

typedef Vec(Callee *) Callees;

typedef struct Emit {
  Program *p;
  Ctx *ctx;
  Arena *arena;
  Module *m;
  ProgFunc *f;
  const Callee *callee; /* the function */
  const Type *result;   /* what it gives */
  Map *callees;         /* N_FUNC* or Ctor* -> Callee*, of the whole program */
  Callees *queue;       /* those still to be emitted */
  Map *let;             /* variable -> the node it is bound to, of the whole program */
  Map regs;             /* Node* -> int *: registers of its leaves */
  Map region_of;        /* Node* -> region + 1 */
  /* N_IF*, N_MATCH* -> region of its first branch or clause + 1; the others' are the next */
  Map then_of;
  Nodes order;             /* dependencies first */
  Nodes *in_region;        /* the same, by region */
  int region;              /* where instructions go now */
  Map scalar;              /* Var* or Expr* -> scalar + 1 */
  Vec(const void *) bound; /* keys of scalar, in order; those of a region go with it */
} Emit;

/* ---- emit.c ---------------------------------------------------------------------------- */

ProgIns *emit_ins(Emit *, ModelOp);
int emit_reg(Emit *, int home); /* a new register, made in this region */
int emit_region_new(Emit *, int parent);
const int *emit_regs_of(Emit *, const Node *);
/* The registers of a value that has been computed, as its type spreads it out. */
const int *emit_need(Emit *, const Node *);
void emit_set_regs(Emit *, const Node *, const int *regs);
void emit_set_args(Emit *, ProgIns *, int n, const int *regs);
/* Sizes that the results tell and nothing before them did. */
void emit_bind_results(Emit *, const Node *);

/* ---- emit_call.c: what is called, and functions as values ------------------------------- */

typedef enum {
  CALLED_PRIMITIVE, /* a kernel: the call's first argument */
  CALLED_EXTERNAL,  /* a function that an external compiler makes */
  CALLED_FUNC,      /* a graph function */
  CALLED_CTOR,
  CALLED_VALUE, /* a function that is known at run time */
} CalledKind;
typedef struct Called {
  CalledKind kind;
  const Node *node;
} Called;
Called emit_called(Emit *, const Node *callee);
Callee *emit_add_callee(Program *, Map *callees, const void *key, const Node *func, const char *name);
const Callee *emit_callee(Emit *, const Node *func);
const Type *emit_result_type(const Callee *);
/* A call; in tail position it takes the function's place. */
void emit_call(Emit *, const Node *apply, bool tail);
bool emit_can_tail(Emit *, const Node *apply);
/* A function, a global or a constructor as a value. */
void emit_closure(Emit *, const Node *);

/* ---- emit_data.c: tuples as one value, constructors, patterns --------------------------------- */

/* A value of type `from` as a type `to` spreads it out: where `to` has one register (a type
 * parameter) for a tuple, the tuple becomes one value; the other way round it is taken apart. */
const int *emit_convert(Emit *, const int *regs, const Type *from, const Type *to);
bool emit_same_spread(const Type *, const Type *);
/* The value in one register, and back. */
int emit_box(Emit *, const int *regs, const Type *);
const int *emit_unbox(Emit *, int reg, const Type *);
void emit_construct(Emit *, const Node *apply, const Ctor *);
/* Instructions that jump on where the value does not fit; then the pattern's variables are bound. */
void emit_pattern(Emit *, const Pattern *, const Node *value, IntList *jumps);
bool emit_always_fits(const Pattern *);

/* ---- emit_expr.c: sizes and scalars --------------------------------------------------------- */

/* The value as postfix steps.  Sizes that are read from tensors must be bound, or stand for
 * elements of a node that has been emitted.  what names the user, for messages. */
ProgExpr emit_expr(Emit *, const Expr *, const char *what);
int emit_scalar(Emit *, const Expr *, const char *what);
/* Sizes that only this register tells (dimensions that are plain variables) become scalars. */
void emit_bind_dims(Emit *, const Type *leaf, int reg);
void emit_bind_dim(Emit *, const Var *size, int reg, int d);
/* The same for a value whose sizes its type may tell wrongly (a tensor out of a list): those
 * that are bound already are checked. */
void emit_meet_dims(Emit *, const Type *leaf, int reg, const char *what);
/* Forgets what has been bound since. */
void emit_unbind(Emit *, int mark);
/* What an expression inside a primitive function is outside of it: sizes of the parameters become
 * those of the arguments, their elements the arguments' elements. */
typedef struct Outside {
  Emit *e;
  const Node *apply;
  Map size; /* Var* -> Expr* */
} Outside;
Outside emit_outside_begin(Emit *, const Node *apply);
const Expr *emit_outside_expr(Outside *, const Expr *);

#endif
