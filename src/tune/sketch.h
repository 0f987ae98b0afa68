/* sketch.h: what the rules of sketches share.  sketch.c has the steps and most of the rules, dots.c the one for
 * products of bytes. */
#ifndef LATHE_TUNE_SKETCH_H
#define LATHE_TUNE_SKETCH_H

#include "tune/tune.h"

enum { MAX_LOOPS = 16, MAX_CHOICES = 9 };

typedef struct Sketch {
  Ctx *ctx;
  Arena *arena;
  Sched *s;
  const Target *target;
  uint64_t seed;
} Sketch;

typedef struct BlockFacts {
  const char *name;
  int space, sums; /* iterations of each kind */
  double results, steps;
  bool output, plain; /* it writes a parameter; its loops are its iterations, one each, unmarked */
  const Buffer *writes;
} BlockFacts;

/* A step that may be refused, and is left out then. */
typedef struct Step {
  Sketch *k;
  enum {
    INLINE,
    FUSED_UNDER,
    VECTORS,
    THREADS,
    PARTS,
    INIT,
    WRITTEN_OUT,
    LOCAL,
    TRANSPOSE,
    WORDS,
    LANES_LAST,
    PADDED,
    TENSORIZED
  } what;
  BlockRV block;
  LoopRV loop;
  BlockRV made;
  int read;              /* TRANSPOSE, WORDS: the buffer that is copied, with … */
  int axis;              /* … this axis last; PARTS: where the axis of the parts is put */
  int word;              /* WORDS: the axis whose elements, four by four, come behind that one */
  const int64_t *padded; /* PADDED: what each iteration is brought to a multiple of */
  const char *intrin;    /* TENSORIZED: with this */
} Step;
bool tune_attempt(Step *);

/* The block's loops are as the expressions made them; NULL: they are not. */
const BlockFacts *tune_facts_of(Sketch *, const char *name);
int64_t tune_loop_extent(Sketch *, LoopRV);
void tune_split_by(Sketch *, LoopRV, IntRV inner, LoopRV out[2]);
/* decided: the place in the list; -1: any. */
IntRV tune_sample(Sketch *, int n, const int64_t *values, int decided);
/* The block that reads what this one writes, if it is the only one and a map; alike: over as many axes. */
const char *tune_follower(Sketch *, BlockRV, bool alike);
/* Divisors of an extent that may be written out. */
int tune_steps_of(int64_t extent, int64_t *out);
void tune_vectorize(Sketch *, LoopRV);
/* Sums go through a tile of their own under the outer loops, or into what follows; their start stands before the loop
 * `sum`.  The block that closes the tile. */
void tune_close_registers(Sketch *, BlockRV, int nouter, const LoopRV *outer, LoopRV sum);
/* The outer loops as one, on the threads. */
void tune_share_outer(Sketch *, int n, const LoopRV *);

/* dots.c: is the block a sum of products of bytes that the target has an instruction for?  Then it is scheduled so. */
bool tune_has_dots(Sketch *, const BlockFacts *);
void tune_dots(Sketch *, const BlockFacts *);

#endif
