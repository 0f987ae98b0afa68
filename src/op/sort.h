/* sort.h: the ordering that sort, top-k, unique and non-maximum suppression share. */
#ifndef LATHE_OP_SORT_H
#define LATHE_OP_SORT_H

#include "op/shape.h"

/* A stable merge sort of positions, as statements.  `before` decides: run with the two
 * positions in a and b, it stores 1 into flag[0] where position a must come before b. */
typedef struct Sorter {
  Module *m;
  const Expr *n;              /* how many */
  const Buffer *order;        /* int32[n]: the result */
  const Buffer *other;        /* int32[n]: the other half of each merge */
  const Buffer *left, *right; /* int32[1]: how far each run is consumed */
  const Buffer *flag;         /* int32[1] */
  const Buffer *a, *b;        /* int32[1]: the positions to compare */
} Sorter;
Sorter sorter_new(Module *, const Expr *n);
/* Fills order; leaves the buffers to sorter_alloc. */
Stmt *sorter_sort(const Sorter *, Stmt *before);
/* The body with the sorter's buffers around it. */
Stmt *sorter_alloc(const Sorter *, Stmt *body);
const Expr *sorter_a(const Sorter *);
const Expr *sorter_b(const Sorter *);
const Expr *sorter_order(const Sorter *, const Expr *i);
Stmt *sorter_answer(const Sorter *, const Expr *cond); /* flag = cond */
/* x comes before y: NaN is above every number, in either direction. */
const Expr *sorter_before(Module *, const Expr *x, const Expr *y, bool ascend);

#endif
