/* plan.c: storage.
 *
 * A program without control flow whose sizes are all literals is static: every tensor is
 * given a place in one block when the model is compiled.  Tensors whose lives overlap do
 * not share bytes.  Placed from the largest to the smallest, each as low as it fits; the
 * result is compared with the bound that no plan can go below: the most bytes that are
 * alive at one instruction.
 *
 * In other programs the executor allocates, and registers are freed after their last use. */
#include <stdlib.h>

#include "driver/program.h"

typedef struct Life {
  int reg;                   /* of the ALLOC or COPY */
  int begin, end;            /* instructions, both counted */
  uint64_t bytes, place;
  ProgIns *ins;
} Life;

static uint64_t round_up(uint64_t n) { return (n + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN; }

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
  case MO_CONST: case MO_MOVE: case MO_COPY: case MO_RETURN: return true;
  case MO_ALLOC: case MO_VIEW: return literal_shape(ins);
  case MO_KERNEL:
    for (int i = 0; i < ins->narg; i++)
      if (ins->is_scalar[i]) return false;
    return true;
  case MO_SCALAR: case MO_FREE: case MO_JUMP: case MO_BRANCH: case MO_CALL: case MO_TAIL: case MO_HOST: case MO_CHECK: case MO_COUNT: break;
  }
  return false;
}

static bool is_static(const Program *p)
{
  if (p->func.n != 1) return false;
  for (int i = 0; i < p->input.n; i++) {
    if (p->input.v[i].kind != PORT_TENSOR) return false;
    for (int d = 0; d < p->input.v[i].ndim; d++)
      if (p->input.v[i].dim[d] < 0) return false;
  }
  for (int i = 0; i < p->func.v[0]->ins.n; i++)
    if (!is_static_ins(&p->func.v[0]->ins.v[i])) return false;
  return true;
}

/* ---- lives ------------------------------------------------------------------------------------ */

static uint64_t bytes_of(Program *p, DType t, int n, const ProgExpr *dim)
{
  size_t bytes = (size_t)dtype_bytes(t);
  for (int d = 0; d < n; d++) bytes = size_mul(p->ctx, bytes, (size_t)dim[d].v[0].i, "the elements of a tensor");
  return bytes;
}

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

typedef Vec(Life) Lives;

static void find_lives(Program *p, ProgFunc *f, Lives *out)
{
  Arena *a = scratch(p->ctx);
  int *root = find_roots(a, f), *life = arena_array(a, int, f->nreg + 1);
  uint64_t *bytes = arena_array(a, uint64_t, f->nreg + 1);
  IntList reads = {0};
  for (int i = 0; i < p->input.n; i++) {
    bytes[i] = (uint64_t)dtype_bytes(p->input.v[i].dtype);
    for (int d = 0; d < p->input.v[i].ndim; d++) bytes[i] = size_mul(p->ctx, bytes[i], (size_t)p->input.v[i].dim[d], "an input");
  }
  for (int i = 0; i < f->ins.n; i++) {
    ProgIns *ins = &f->ins.v[i];
    if (ins->op == MO_ALLOC || ins->op == MO_COPY) {
      bytes[ins->reg] = ins->op == MO_ALLOC ? bytes_of(p, ins->dtype, ins->nexpr, ins->expr) : bytes[root[ins->source]];
      life[ins->reg] = out->n + 1;
      vec_push(a, out, (Life){.reg = ins->reg, .begin = i, .end = i, .bytes = round_up(bytes[ins->reg]), .ins = ins});
    }
    if (ins->op == MO_CONST) bytes[ins->reg] = p->constant.v[ins->index].data->bytes;
    reads.n = 0;
    ins_reads(a, ins, &reads);
    for (int k = 0; k < reads.n; k++) {
      int at = life[root[reads.v[k]]];
      if (at) out->v[at - 1].end = i;
    }
  }
}

/* ---- placing ------------------------------------------------------------------------------------ */

static int by_size(const void *x, const void *y)
{
  const Life *a = *(Life *const *)x, *b = *(Life *const *)y;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  int la = a->end - a->begin, lb = b->end - b->begin;
  if (la != lb) return la < lb ? 1 : -1;
  return a->reg < b->reg ? -1 : a->reg > b->reg;
}

static int by_place(const void *x, const void *y)
{
  const Life *a = *(Life *const *)x, *b = *(Life *const *)y;
  return a->place < b->place ? -1 : a->place > b->place;
}

static bool overlap(const Life *a, const Life *b) { return a->begin <= b->end && b->begin <= a->end; }

/* The smallest gap among those alive at the same time that holds it, else the end. */
static void place_one(Life *l, Life *const *placed, int n, Life **near)
{
  int count = 0;
  for (int i = 0; i < n; i++)
    if (overlap(placed[i], l)) near[count++] = placed[i];
  qsort(near, (size_t)count, sizeof *near, by_place);
  uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  for (int i = 0; i < count; i++) {
    if (near[i]->place >= at + l->bytes && near[i]->place - at < best_gap) {
      best_gap = near[i]->place - at;
      best = at;
    }
    if (near[i]->place + near[i]->bytes > at) at = near[i]->place + near[i]->bytes;
  }
  l->place = best == UINT64_MAX ? at : best;
}

static uint64_t most_alive(Program *p, const Lives *lives, int nins)
{
  int64_t *change = arena_array(scratch(p->ctx), int64_t, nins + 2);
  for (int i = 0; i < lives->n; i++) {
    change[lives->v[i].begin] += (int64_t)lives->v[i].bytes;
    change[lives->v[i].end + 1] -= (int64_t)lives->v[i].bytes;
  }
  int64_t now = 0, most = 0;
  for (int i = 0; i <= nins; i++) {
    now += change[i];
    if (now > most) most = now;
  }
  return (uint64_t)most;
}

static void place_all(Program *p, ProgFunc *f)
{
  Lives lives = {0};
  find_lives(p, f, &lives);
  Life **order = arena_array(scratch(p->ctx), Life *, lives.n + 1), **near = arena_array(scratch(p->ctx), Life *, lives.n + 1);
  for (int i = 0; i < lives.n; i++) order[i] = &lives.v[i];
  qsort(order, (size_t)lives.n, sizeof *order, by_size);
  for (int i = 0; i < lives.n; i++) {
    Life *l = order[i];
    place_one(l, order, i, near);
    l->ins->place = l->place;
    if (l->place + l->bytes > p->storage_bytes) p->storage_bytes = l->place + l->bytes;
  }
  p->storage_bound = most_alive(p, &lives, f->ins.n);
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

/* An output that is an input's memory is copied: that memory is the caller's. */
static void copy_inputs_out(Program *p, ProgFunc *f)
{
  Scope scope = scope_begin(p->ctx);
  int *root = find_roots(scratch(p->ctx), f), last = f->ins.n - 1;
  ProgIns ret = f->ins.v[last];
  f->ins.n = last;
  for (int i = 0; i < ret.narg; i++) {
    if (root[ret.arg[i]] >= f->nparam) continue;
    int reg = f->nreg++;
    vec_push(p->arena, &f->home, 0);
    vec_push(p->arena, &f->ins, (ProgIns){.op = MO_COPY, .reg = reg, .source = ret.arg[i], .node = -1, .place = PLACE_DYNAMIC});
    ret.arg[i] = reg;
  }
  vec_push(p->arena, &f->ins, ret);
  scope_end(p->ctx, scope);
}

void program_plan(Program *p)
{
  program_tidy(p);
  p->is_static = is_static(p);
  Scope scope = scope_begin(p->ctx);
  if (p->is_static) {
    copy_inputs_out(p, p->func.v[0]);
    place_all(p, p->func.v[0]);
  } else {
    for (int i = 0; i < p->func.n; i++) program_free_registers(p, p->func.v[i]);
  }
  scope_end(p->ctx, scope);
}
