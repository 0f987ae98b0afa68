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
 * Segments of different blocks whose times overlap do not share bytes; place.c finds a place for each.
 *
 * In other programs the executor allocates, and registers are freed after their last use. */
#include <stdlib.h>

#include "driver/share.h"

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

typedef Vec(PlaceBlock) Blocks;
typedef Vec(int64_t) Cuts;

static int by_value(const void *x, const void *y)
{
  int64_t a = *(const int64_t *)x;
  int64_t b = *(const int64_t *)y;
  return a < b ? -1 : a > b;
}

/* Cuts the block where one of its pieces begins or ends; a segment is needed while some piece on it is. */
PlaceBlock program_block(Arena *a, const Pieces *pieces, int block, int64_t align)
{
  PlaceBlock m = {.number = block, .begin = INT32_MAX};
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
static void find_blocks(Program *p, Pieces *pieces, int device, Blocks *out)
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
    vec_push(scratch(p->ctx), out, program_block(scratch(p->ctx), pieces, b, align));
  }
}

/* ---- placing ------------------------------------------------------------------------------------ */

static void free_arena(void *a) { arena_free(a); }

/* Bytes on one device, and those that no placing could go below. */
static int64_t place_device(Program *p, ProgFunc *f, Pieces *pieces, int device, int64_t *bound)
{
  static const PlacePool open = {.size = INT64_MAX};
  Blocks blocks = {0};
  PlaceReport report;
  find_blocks(p, pieces, device, &blocks);
  place_blocks(p->ctx, blocks.n, blocks.v, f->ins.n + 1, 1, &open, PLACE_QUICK, &report);
  *bound = report.bound;
  int64_t *place = arena_array(scratch(p->ctx), int64_t, pieces->n + 1);
  for (int i = 0; i < blocks.n; i++) place[blocks.v[i].number] = blocks.v[i].place;
  for (int i = 0; i < pieces->n; i++)
    if (pieces->v[i].device == device)
      f->ins.v[pieces->v[i].ins].place = (uint64_t)(place[pieces->v[i].block] + pieces->v[i].offset);
  return report.bytes;
}

/* The pieces, by the instructions that are left; a time without instructions is over before the next one. */
static void keep_pieces(Program *p, ProgEntry *e, const Pieces *pieces, const bool *keep, int nins)
{
  int *now = arena_array(scratch(p->ctx), int, nins + 2); /* instructions kept before this one */
  for (int i = 0; i < nins; i++) now[i + 1] = now[i] + keep[i];
  for (int i = 0; i < pieces->n; i++) {
    Piece piece = pieces->v[i];
    piece.ins = now[piece.ins];
    piece.begin = now[piece.begin];
    piece.end = now[piece.end + 1] - 1;
    if (piece.end < piece.begin) piece.end = piece.begin;
    vec_push(p->arena, &e->piece, piece);
  }
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
  keep_pieces(p, e, &pieces, keep, f->ins.n);
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
