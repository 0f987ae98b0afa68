/* emit.h: one function of the graph on its way into instructions: emit.c, emit_expr.c. */
#ifndef LATHE_DRIVER_EMIT_H
#define LATHE_DRIVER_EMIT_H

#include "driver/program.h"

typedef Vec(const Node *) Nodes;

/* A graph function that is called: its number, and the variables of its surroundings that it
 * is handed before its own arguments. */
typedef struct Callee {
  const Node *func;
  int index;
  int ncapture;
  const Node **capture;
} Callee;

typedef Vec(Callee *) Callees;

typedef struct Emit {
  Program *p;
  Ctx *ctx;
  Arena *arena;
  Module *m;
  ProgFunc *f;
  const Node *func;
  Map *callees;              /* N_FUNC* -> Callee*, of the whole program */
  Callees *queue;            /* those still to be emitted */
  Map *let;                  /* variable -> the node it is bound to, of the whole program */
  Map regs;                  /* Node* -> int *: registers of its leaves */
  Map region_of;             /* Node* -> region + 1 */
  Map then_of;               /* N_IF* -> region of its first branch + 1; the second's is the next */
  Nodes order;               /* dependencies first */
  Nodes *in_region;          /* the same, by region */
  int region;                /* where instructions go now */
  Map scalar;                /* Var* or Expr* -> scalar + 1 */
  Vec(const void *) bound;   /* keys of scalar, in order; those of a region go with it */
} Emit;

/* ---- emit.c ---------------------------------------------------------------------------- */

ProgIns *emit_ins(Emit *, ModelOp);
int emit_reg(Emit *, int home);              /* a new register, made in this region */
const int *emit_regs_of(Emit *, const Node *);

/* ---- emit_expr.c: sizes and scalars --------------------------------------------------------- */

/* The value as postfix steps.  Sizes that are read from tensors must be bound, or stand for
 * elements of a node that has been emitted.  what names the user, for messages. */
ProgExpr emit_expr(Emit *, const Expr *, const char *what);
int emit_scalar(Emit *, const Expr *, const char *what);
/* Sizes that only this register tells (dimensions that are plain variables) become scalars. */
void emit_bind_dims(Emit *, const Type *leaf, int reg);
/* Forgets what has been bound since. */
void emit_unbind(Emit *, int mark);
/* What an expression inside a primitive function is outside of it: sizes of the parameters become
 * those of the arguments, their elements the arguments' elements. */
typedef struct Outside {
  Emit *e;
  const Node *apply;
  Map size;                  /* Var* -> Expr* */
} Outside;
Outside outside_begin(Emit *, const Node *apply);
const Expr *outside_expr(Outside *, const Expr *);

#endif
