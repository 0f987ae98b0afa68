/* share.h: tensors that lie on each other: access.c, share.c, for plan.c. */
#ifndef LATHE_DRIVER_SHARE_H
#define LATHE_DRIVER_SHARE_H

#include "driver/place.h"
#include "driver/program.h"

/* ---- access.c ---------------------------------------------------------------------------- */

/* Bytes [to, to + bytes) of parameter `out` are bytes [from, from + bytes) of parameter `in`. */
typedef struct CopyRun {
  int out, in;
  int64_t to, from, bytes;
} CopyRun;
typedef Vec(CopyRun) CopyRuns;
/* Does the function do nothing but copy, and what? */
bool program_access_copies(const PrimFunc *, Arena *, CopyRuns *);
/* May parameter `out` be the same memory as parameter `in`? */
bool program_access_in_place(const PrimFunc *, int in, int out);

/* ---- share.c --------------------------------------------------------------------------------- */

/* The pieces of a static function, and which of them share memory.  keep[i] is false for
 * instructions that have nothing left to do.  The arena is not scratch memory. */
void program_share_storage(Program *, const ProgEntry *, Arena *, Pieces *out, bool *keep);

/* ---- plan.c ---------------------------------------------------------------------------------- */

/* The pieces of a block as segments; offsets count from its lowest piece. */
PlaceBlock program_block(Arena *, const Pieces *, int block, int64_t align);

#endif
