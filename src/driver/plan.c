/* plan.c: storage.
 *
 * A program without control flow whose sizes are all literals is static: every tensor is
 * given a place in one block of memory when the model is compiled.  share.c says which tensors lie
 * on each other and so form a block; a block is a row of segments, each with the time that
 * it is needed:
 *
 *      bytes ▲        ┌──── %2 ─────┐
 *            │ ┌──────┴──┐          │   a concatenation of %1 and %2: the part of %1 is needed
 *            │ │   %1    │    %3    │   earlier than that of %2, both as long as the whole
 *            └─┴─────────┴──────────┴──▶ instructions
 *
 * Segments of different blocks whose times overlap do not share bytes.  Blocks are placed in the order of
 * the program, from the one needed longest, and from the largest to the smallest, each where it fits
 * most tightly; then the highest one is moved to the front of the order, some times over.  The least
 * counts, and is compared with the bound that no placing of these blocks can go below: the most bytes
 * that are needed at one instruction.
 *
 * In other programs the executor allocates, and registers are freed after their last use. */
#include <stdlib.h>

#include "driver/share.h"

/* Bytes of a block with the instructions that need them, both ends counted. */
typedef struct Segment {
  int begin, end;
  int64_t offset, bytes;
} Segment;

typedef struct Memory {
  int number; /* of the block */
  int nsegment;
  Segment *segment;
  int begin, end;
  int64_t bytes, place;
} Memory;

static int64_t round_up(int64_t n, int64_t align) { return (n + align - 1) / align * align; }

/* ---- is it static? ---------------------------------------------------------------------- */

static bool literal_shape(const ProgIns *ins)
{
  for (int d = 0; d < ins->nexpr; d++)
    if (ins->expr[d].n != 1 || ins->expr[d].v[0].op != XO_INT) return false;
  return true;
}

static bool is_static_ins(const ProgIns *ins)
{
  switch (ins->op) {
  case MO_CONST:
  case MO_MOVE:
  case MO_COPY:
  case MO_RETURN: return true;
  case MO_ALLOC:
  case MO_VIEW: return literal_shape(ins);
  case MO_KERNEL:
    for (int i = 0; i < ins->narg; i++)
      if (ins->is_scalar[i]) return false;
    return true;
  case MO_SCALAR:
  case MO_FREE:
  case MO_JUMP:
  case MO_BRANCH:
  case MO_CALL:
  case MO_TAIL:
  case MO_HOST:
  case MO_CHECK: break;
  case MO_CLOSURE:
  case MO_APPLY:
  case MO_APPLY_TAIL:
  case MO_DATA:
  case MO_FIELD:
  case MO_MATCH:
  case MO_FAIL:
  case MO_PACKED:
  case MO_DONE:
  case MO_COUNT: break;
  }
  return false;
}

static bool is_called(const Program *p, int func)
{
  for (int i = 0; i < p->func.n; i++)
    for (int k = 0; k < p->func.v[i]->ins.n; k++) {
      const ProgIns *ins = &p->func.v[i]->ins.v[k];
      if ((ins->op == MO_CALL || ins->op == MO_TAIL || ins->op == MO_CLOSURE) && ins->index == func) return true;
    }
  return false;
}

static bool is_static(const Program *p, const ProgEntry *e)
{
  const ProgFunc *f = p->func.v[e->func];
  for (int i = 0; i < e->input.n; i++) {
    if (e->input.v[i].kind != PORT_TENSOR) return false;
    for (int d = 0; d < e->input.v[i].ndim; d++)
      if (e->input.v[i].dim[d] < 0) return false;
  }
  for (int i = 0; i < f->ins.n; i++)
    if (!is_static_ins(&f->ins.v[i])) return false;
  return !is_called(p, e->func);
}

/* ---- segments ---------------------------------------------------------------------------------- */

typedef Vec(Memory) Memories;
typedef Vec(int64_t) Cuts;

static int by_value(const void *x, const void *y)
{
  int64_t a = *(const int64_t *)x;
  int64_t b = *(const int64_t *)y;
  return a < b ? -1 : a > b;
}

/* Cuts the block where one of its pieces begins or ends; a segment is needed while some piece on it is. */
static Memory block_memory(Arena *a, const Pieces *pieces, int block, int64_t align)
{
  Memory m = {.number = block, .begin = INT32_MAX};
  Cuts cuts = {0};
  for (int i = 0; i < pieces->n; i++) {
    const Piece *p = &pieces->v[i];
    if (p->block != block) continue;
    vec_push(a, &cuts, p->offset);
    vec_push(a, &cuts, p->offset + round_up(p->bytes, align));
    if (p->begin < m.begin) m.begin = p->begin;
    if (p->end > m.end) m.end = p->end;
  }
  qsort(cuts.v, (size_t)cuts.n, sizeof *cuts.v, by_value);
  m.bytes = cuts.v[cuts.n - 1] - cuts.v[0];
  m.segment = arena_array(a, Segment, cuts.n);
  for (int k = 0; k + 1 < cuts.n; k++) {
    Segment s = {.begin = INT32_MAX, .offset = cuts.v[k] - cuts.v[0], .bytes = cuts.v[k + 1] - cuts.v[k]};
    for (int i = 0; s.bytes && i < pieces->n; i++) {
      const Piece *p = &pieces->v[i];
      if (p->block != block || p->offset >= cuts.v[k + 1] || p->offset + p->bytes <= cuts.v[k]) continue;
      if (p->begin < s.begin) s.begin = p->begin;
      if (p->end > s.end) s.end = p->end;
    }
    if (s.begin <= s.end) m.segment[m.nsegment++] = s;
  }
  return m;
}

/* The blocks on a device.  Offsets of a block count from its lowest piece. */
static void find_memories(Program *p, Pieces *pieces, int device, Memories *out)
{
  int64_t align = target_align(p->device.v[device].target);
  for (int b = 0; b < pieces->n; b++) {
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < pieces->n; i++)
      if (pieces->v[i].block == b && pieces->v[i].device == device && pieces->v[i].offset < lowest)
        lowest = pieces->v[i].offset;
    if (lowest == INT64_MAX) continue;
    for (int i = 0; i < pieces->n; i++)
      if (pieces->v[i].block == b) pieces->v[i].offset -= lowest;
    vec_push(scratch(p->ctx), out, block_memory(scratch(p->ctx), pieces, b, align));
  }
}

/* ---- placing ------------------------------------------------------------------------------------ */

static int by_size(const void *x, const void *y)
{
  const Memory *a = *(Memory *const *)x;
  const Memory *b = *(Memory *const *)y;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  int la = a->end - a->begin;
  int lb = b->end - b->begin;
  if (la != lb) return la < lb ? 1 : -1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static int by_time(const void *x, const void *y)
{
  const Memory *a = *(Memory *const *)x;
  const Memory *b = *(Memory *const *)y;
  double ta = (double)a->bytes * (a->end - a->begin + 1);
  double tb = (double)b->bytes * (b->end - b->begin + 1);
  return ta != tb ? (ta < tb ? 1 : -1) : by_size(x, y);
}

static int by_begin(const void *x, const void *y)
{
  const Memory *a = *(Memory *const *)x;
  const Memory *b = *(Memory *const *)y;
  return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1) : by_size(x, y);
}

/* Places that a block cannot have: those strictly between. */
typedef struct Taken {
  int64_t above, below;
} Taken;
typedef Vec(Taken) Takens;

static int by_above(const void *x, const void *y)
{
  const Taken *a = x;
  const Taken *b = y;
  return a->above < b->above ? -1 : a->above > b->above;
}

static void add_taken(Arena *a, const Memory *m, const Memory *placed, Takens *out)
{
  if (placed->end < m->begin || m->end < placed->begin) return;
  for (int i = 0; i < placed->nsegment; i++)
    for (int k = 0; k < m->nsegment; k++) {
      const Segment *s = &placed->segment[i];
      const Segment *own = &m->segment[k];
      if (s->end < own->begin || own->end < s->begin) continue;
      int64_t at = placed->place + s->offset - own->offset;
      vec_push(a, out, ((Taken){at - own->bytes, at + s->bytes}));
    }
}

/* The tightest gap that is left, else the end. */
static void place_one(Arena *a, Memory *m, Memory *const *placed, int n, Takens *taken)
{
  taken->n = 0;
  for (int i = 0; i < n; i++) add_taken(a, m, placed[i], taken);
  if (taken->n) qsort(taken->v, (size_t)taken->n, sizeof *taken->v, by_above);
  int64_t at = 0;
  int64_t best = -1;
  int64_t best_gap = INT64_MAX;
  for (int i = 0; i < taken->n; i++) {
    int64_t gap = taken->v[i].above - at;
    if (gap >= 0 && gap < best_gap) {
      best_gap = gap;
      best = at;
    }
    if (taken->v[i].below > at) at = taken->v[i].below;
  }
  m->place = best < 0 ? at : best;
}

static int64_t place_all(Program *p, Memory **order, int n)
{
  int64_t bytes = 0;
  Takens taken = {0};
  for (int i = 0; i < n; i++) {
    place_one(scratch(p->ctx), order[i], order, i, &taken);
    if (order[i]->place + order[i]->bytes > bytes) bytes = order[i]->place + order[i]->bytes;
  }
  return bytes;
}

static int64_t most_needed(Program *p, const Memories *memories, int nins)
{
  int64_t *change = arena_array(scratch(p->ctx), int64_t, nins + 2);
  int64_t now = 0;
  int64_t most = 0;
  for (int i = 0; i < memories->n; i++)
    for (int k = 0; k < memories->v[i].nsegment; k++) {
      const Segment *s = &memories->v[i].segment[k];
      change[s->begin] += s->bytes;
      change[s->end + 1] -= s->bytes;
    }
  for (int i = 0; i <= nins; i++) {
    now += change[i];
    if (now > most) most = now;
  }
  return most;
}

static void free_arena(void *a) { arena_free(a); }

/* The best placing so far: the bytes, and the place of each block by its number. */
typedef struct Placing {
  int64_t bytes, *place;
} Placing;

static void try_order(Program *p, Memory **order, int n, Placing *best)
{
  int64_t bytes = place_all(p, order, n);
  if (bytes >= best->bytes) return;
  best->bytes = bytes;
  for (int i = 0; i < n; i++) best->place[order[i]->number] = order[i]->place;
}

/* The block that reaches highest is placed first, again and again; not for so long that it would be felt. */
static void climb(Program *p, Memory **order, int n, int64_t bound, Placing *best)
{
  enum { TURNS = 64, WORK = 4000000 };
  int turns = n > 1 ? (int)(WORK / ((int64_t)n * n)) : 0;
  for (int t = 0; t < turns && t < TURNS && best->bytes > bound; t++) {
    int top = 0;
    for (int i = 1; i < n; i++)
      if (order[i]->place + order[i]->bytes > order[top]->place + order[top]->bytes) top = i;
    Memory *highest = order[top];
    memmove(order + 1, order, (size_t)top * sizeof *order);
    order[0] = highest;
    try_order(p, order, n, best);
  }
}

/* Bytes on one device, and those that no placing could go below. */
static int64_t place_device(Program *p, ProgFunc *f, Pieces *pieces, int device, int64_t *bound)
{
  static int (*const orders[])(const void *, const void *) = {by_begin, by_time, by_size};
  Arena *a = scratch(p->ctx);
  Memories memories = {0};
  find_memories(p, pieces, device, &memories);
  *bound = most_needed(p, &memories, f->ins.n);
  Memory **order = arena_array(a, Memory *, memories.n + 1);
  Placing best = {.bytes = INT64_MAX, .place = arena_array(a, int64_t, pieces->n + 1)};
  for (int i = 0; i < memories.n; i++) order[i] = &memories.v[i];
  for (size_t k = 0; k < sizeof orders / sizeof *orders && best.bytes > *bound; k++) {
    if (memories.n) qsort(order, (size_t)memories.n, sizeof *order, orders[k]);
    try_order(p, order, memories.n, &best);
  }
  climb(p, order, memories.n, *bound, &best);
  for (int i = 0; i < pieces->n; i++)
    if (pieces->v[i].device == device)
      f->ins.v[pieces->v[i].ins].place = (uint64_t)(best.place[pieces->v[i].block] + pieces->v[i].offset);
  return best.bytes;
}

/* Instructions, kernels and nodes that sharing has left nothing to do are dropped. */
static void place_tensors(Program *p, ProgEntry *e)
{
  ProgFunc *f = p->func.v[e->func];
  Arena *a = arena_new(p->ctx);
  defer(p->ctx, free_arena, a);
  Pieces pieces = {0};
  bool *keep = arena_array(a, bool, f->ins.n + 1);
  program_share_storage(p, e, a, &pieces, keep);
  for (int d = 0; d < p->device.n; d++) {
    int64_t bound;
    e->storage_bytes[d] = (uint64_t)place_device(p, f, &pieces, d, &bound);
    e->storage_bound += (uint64_t)bound;
  }
  program_keep(p, f, keep);
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

/* Which registers share the memory of another: views and moves, to their roots. */
static int *find_roots(Arena *a, const ProgFunc *f)
{
  int *root = arena_array(a, int, f->nreg + 1);
  for (int r = 0; r < f->nreg; r++) root[r] = r;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if (ins->op == MO_VIEW || ins->op == MO_MOVE) root[ins->reg] = root[ins->source];
  }
  return root;
}

/* An output that is an input's memory is copied: that memory is the caller's. */
static void copy_inputs_out(Program *p, const ProgEntry *e)
{
  ProgFunc *f = p->func.v[e->func];
  Scope scope = scope_begin(p->ctx);
  int *root = find_roots(scratch(p->ctx), f);
  int last = f->ins.n - 1;
  ProgIns ret = f->ins.v[last];
  f->ins.n = last;
  for (int i = 0; i < ret.narg; i++) {
    if (root[ret.arg[i]] >= f->nparam) continue;
    int reg = f->nreg++;
    vec_push(p->arena, &f->home, 0);
    vec_push(p->arena, &f->ins,
             (ProgIns){.op = MO_COPY,
                       .reg = reg,
                       .source = ret.arg[i],
                       .device = e->output.v[i].device,
                       .node = -1,
                       .place = PLACE_DYNAMIC});
    ret.arg[i] = reg;
  }
  vec_push(p->arena, &f->ins, ret);
  scope_end(p->ctx, scope);
}

void program_plan(Program *p)
{
  Scope scope = scope_begin(p->ctx);
  bool *planned = arena_array(scratch(p->ctx), bool, p->func.n + 1);
  program_tidy(p);
  for (int i = 0; i < p->entry.n; i++) {
    ProgEntry *e = &p->entry.v[i];
    e->storage_bytes = arena_array(p->arena, uint64_t, p->device.n + 1);
    e->is_static = is_static(p, e);
    if (!e->is_static) continue;
    planned[e->func] = true;
    copy_inputs_out(p, e);
    place_tensors(p, e);
  }
  for (int i = 0; i < p->func.n; i++)
    if (!planned[i]) program_free_registers(p, p->func.v[i]);
  if (p->prepare >= 0) program_mark_done(p);
  program_drop_unused(p);
  scope_end(p->ctx, scope);
}
