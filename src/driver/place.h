/* place.h: blocks of memory into pools; for plan.c and aot.c, private to this folder.
 *
 * A block is a row of segments, each with the instructions that need it.  Segments of different blocks
 * whose times overlap do not share bytes. */
#ifndef LATHE_DRIVER_PLACE_H
#define LATHE_DRIVER_PLACE_H

#include "driver/driver.h"

/* Bytes of a block with the instructions that need them, both ends counted. */
typedef struct Segment {
  int begin, end;
  int64_t offset, bytes;
} Segment;

typedef struct PlaceBlock {
  int number;   /* unlike all others' */
  int nsegment; /* 1: all of it is needed at the same time */
  Segment *segment;
  int begin, end;
  int64_t bytes;        /* a multiple of the alignment */
  double read, written; /* bytes, in the whole run */
  /* what place_blocks finds */
  int pool; /* -1: it fits nowhere */
  int64_t place;
} PlaceBlock;

typedef struct PlaceReport {
  int64_t bytes;    /* of all pools together */
  int64_t bound;    /* bytes that are needed at one instruction: no placing needs less */
  int bound_at;     /* that instruction, the first of them */
  int64_t overflow; /* bytes of blocks that fit nowhere */
  double cycles;    /* of moving bytes, where pools have speeds */
  bool optimal;     /* nothing smaller exists: the bound is reached, or all was tried */
  int64_t *pool;    /* bytes of each pool, in scratch memory */
} PlaceReport;

typedef struct PlacePool {
  int64_t size;       /* INT64_MAX: it is open */
  double read, write; /* cycles of a byte; 0 in all pools: they are alike */
} PlacePool;

/* Gives every block a pool and a place there.  The least cycles of moving bytes count first, then earlier pools are
 * preferred.  Instructions are 0 … ntimes - 1.  Deterministic. */
void place_blocks(Ctx *, int n, PlaceBlock *, int ntimes, int npools, const PlacePool *, PlaceEffort, PlaceReport *out);

#endif
