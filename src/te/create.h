/* create.h: inside te_create_prim_func; create.c makes the blocks of computes,
 * create_scan.c those of scans and externs. */
#ifndef LATHE_TE_CREATE_H
#define LATHE_TE_CREATE_H

#include "te/te.h"

typedef struct Creator {
  Ctx *ctx;
  Module *m;              /* where the function lives */
  Importer imp;           /* from the operations' module into m */
  Map *names;             /* the caller's, or NULL */
  StrMap blocks, buffers; /* names taken */
  Vec(const Buffer *) allocs;
} Creator;

/* A name that is an identifier and not taken yet. */
const char *te_create_name(Creator *, StrMap *taken, const char *hint);
/* The buffer of a tensor in m; a new one, allocated at the root, on first sight. */
const Buffer *te_create_buffer(Creator *, const Tensor *);
/* Notes for the caller that an operation or a reduction of it became this block, or
 * a tensor this buffer. */
void te_create_note(Creator *, const void *key, const char *name);
/* The blocks of one compute, in order.  row (may be NULL) stands for its first
 * axis, which then has no loop. */
void te_create_compute(Creator *, const TeOp *, const Expr *row, Stmt ***out, int *n);
Stmt *te_create_scan(Creator *, const TeOp *);
Stmt *te_create_extern(Creator *, const TeOp *);
/* The statement of an extern as a function, in its own module: its buffers, inputs
 * first, then the variables that it uses freely. */
PrimFunc *te_create_extern_func(Arena *, const TeOp *);
/* The whole of a buffer as a region. */
Region te_create_whole(Creator *, const Buffer *);

/* One axis of a nest: its loop, its block variable. */
typedef struct Nest {
  Creator *c;
  Vec(BlockIter) iter;
  Vec(Stmt *) loop; /* outermost first, bodies unset */
  Map subst;        /* axis variable -> block variable (+ the domain's start) */
} Nest;
/* Adds an axis given by its imported variable, start and extent.  The block variable
 * runs from 0; the start is added where the axis was used. */
void te_nest_axis(Nest *, const Var *axis, const Expr *min, const Expr *extent, IterKind);
/* The loops around a block of this name, body and init. */
Stmt *te_nest_close(Nest *, const char *name, Stmt *init, Stmt *body);

#endif
