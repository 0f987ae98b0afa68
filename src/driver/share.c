/* share.c: which tensors of a static program lie on each other.
 *
 * In: a function whose sizes are all literals.  Out: its pieces of memory, put together into
 * blocks.  Two pieces may share bytes when
 *   one is dead before the other is made, or
 *   the bytes that they share are the same in both: one is a part of the other, or
 *   a kernel writes the one over the other, which dies there (program_access_in_place).
 *
 * Kernels that only copy go first, from the last to the first: the operands of a concatenation
 * become parts of its result, the results of a split parts of its operand, and the kernel is
 * left out.  A longer concatenation of the same tensors comes later, so that shorter ones become its
 * beginnings.  Then kernels write over operands that die in them, from the first to the last.
 *
 *     %1 = alloc             ┐                         ┌───────── %3 ─────────┐
 *     conv(…, %1)            │                         │    %1    │    %2     │
 *     %2 = alloc             ├ one block:              └──────────┴───────────┘
 *     conv(…, %2)            │                         0          offset of %2
 *     %3 = alloc             │
 *     concatenate(%1, %2, %3)┘ has nothing left to do */
#include <stdlib.h>

#include "driver/share.h"

/* Bytes [at, at + bytes) of a piece are those of piece `from` beginning at `first`; what is no
 * piece (inputs, constants) counts from -1 down. */
typedef struct Origin {
  int64_t at, bytes;
  int from;
  int64_t first;
} Origin;
typedef Vec(Origin) Origins;

typedef struct Share {
  Program *p;
  const ProgEntry *e;
  ProgFunc *f;
  Arena *arena;
  Pieces *piece;
  int *root;        /* of each register: the one whose memory it has */
  int *of;          /* of each root: its piece, or -1 - root */
  bool *keep;       /* of each instruction */
  Origins *origin;  /* of each piece */
  CopyRuns *copies; /* of each kernel */
} Share;

/* ---- pieces ------------------------------------------------------------------------------------- */

static int64_t literal_bytes(Program *p, const ProgIns *ins)
{
  size_t bytes = (size_t)dtype_bytes(ins->dtype);
  for (int d = 0; d < ins->nexpr; d++)
    bytes = mem_size_mul(p->ctx, bytes, (size_t)ins->expr[d].v[0].i, "the elements of a tensor");
  return (int64_t)bytes;
}

static int64_t input_bytes(Program *p, const ProgPort *port)
{
  size_t bytes = (size_t)dtype_bytes(port->dtype);
  for (int d = 0; d < port->ndim; d++) bytes = mem_size_mul(p->ctx, bytes, (size_t)port->dim[d], "an input");
  return (int64_t)bytes;
}

static void add_piece(Share *s, int64_t *bytes, int i)
{
  const ProgIns *ins = &s->f->ins.v[i];
  bytes[ins->reg] = ins->op == MO_ALLOC ? literal_bytes(s->p, ins) : bytes[s->root[ins->source]];
  s->of[ins->reg] = s->piece->n;
  vec_push(s->arena, s->piece,
           ((Piece){.reg = ins->reg,
                    .device = ins->device,
                    .ins = i,
                    .begin = i,
                    .end = i,
                    .bytes = bytes[ins->reg],
                    .block = s->piece->n}));
}

static void find_pieces(Share *s)
{
  ProgFunc *f = s->f;
  int64_t *bytes = arena_array(s->arena, int64_t, f->nreg + 1);
  IntList reads = {0};
  for (int r = 0; r < f->nreg; r++) {
    s->root[r] = r;
    s->of[r] = -1 - r;
  }
  for (int i = 0; i < s->e->input.n; i++) bytes[i] = input_bytes(s->p, &s->e->input.v[i]);
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    s->keep[i] = true;
    if (ins->op == MO_VIEW || ins->op == MO_MOVE) s->root[ins->reg] = s->root[ins->source];
    if (ins->op == MO_CONST) bytes[ins->reg] = (int64_t)s->p->constant.v[ins->index].data->bytes;
    if (ins->op == MO_ALLOC || ins->op == MO_COPY) add_piece(s, bytes, i);
    reads.n = 0;
    program_ins_reads(s->arena, ins, &reads);
    for (int k = 0; k < reads.n; k++) {
      int at = s->of[s->root[reads.v[k]]];
      if (at >= 0) s->piece->v[at].end = i;
    }
  }
}

static int piece_of(const Share *s, int reg) { return s->of[s->root[reg]]; }

/* ---- where bytes come from ----------------------------------------------------------------------- */

/* Adds what bytes [first, first + bytes) of `from` are, as bytes at `at` of another piece. */
static void add_origin(Share *s, Origins *out, int64_t at, int from, int64_t first, int64_t bytes)
{
  if (from < 0) {
    vec_push(s->arena, out, ((Origin){at, bytes, from, first}));
    return;
  }
  for (int i = 0; i < s->origin[from].n; i++) {
    Origin o = s->origin[from].v[i];
    int64_t lo = o.at > first ? o.at : first;
    int64_t hi = o.at + o.bytes < first + bytes ? o.at + o.bytes : first + bytes;
    if (lo < hi) vec_push(s->arena, out, ((Origin){at + lo - first, hi - lo, o.from, o.first + lo - o.at}));
  }
}

/* Every piece is itself, but for the results of copies that are left out. */
static void find_origins(Share *s)
{
  for (int i = 0; i < s->piece->n; i++) {
    s->origin[i].n = 0;
    add_origin(s, &s->origin[i], 0, -1 - s->f->nreg - i, 0, s->piece->v[i].bytes);
  }
  for (int i = 0; i < s->f->ins.n; i++) {
    const ProgIns *ins = &s->f->ins.v[i];
    if (s->keep[i] || ins->op != MO_KERNEL) continue;
    const CopyRuns *runs = &s->copies[ins->index];
    for (int k = 0; k < runs->n; k++) s->origin[piece_of(s, ins->arg[runs->v[k].out])].n = 0;
    for (int k = 0; k < runs->n; k++) {
      const CopyRun *r = &runs->v[k];
      add_origin(s, &s->origin[piece_of(s, ins->arg[r->out])], r->to, piece_of(s, ins->arg[r->in]), r->from, r->bytes);
    }
  }
}

/* The run of origins that byte `at` lies in; NULL: none is known. */
static const Origin *origin_at(const Share *s, int piece, int64_t at)
{
  const Origins *o = &s->origin[piece];
  for (int i = 0; i < o->n; i++)
    if (o->v[i].at <= at && at < o->v[i].at + o->v[i].bytes) return &o->v[i];
  return NULL;
}

static bool same_bytes(const Share *s, int a, int64_t at_a, int b, int64_t at_b, int64_t bytes)
{
  while (bytes > 0) {
    const Origin *x = origin_at(s, a, at_a);
    const Origin *y = origin_at(s, b, at_b);
    if (!x || !y || x->from != y->from || x->first + at_a - x->at != y->first + at_b - y->at) return false;
    int64_t left_a = x->at + x->bytes - at_a;
    int64_t left_b = y->at + y->bytes - at_b;
    int64_t step = left_a < left_b ? left_a : left_b;
    at_a += step;
    at_b += step;
    bytes -= step;
  }
  return true;
}

/* ---- blocks --------------------------------------------------------------------------------------------- */

/* Do a and b, which b's block moved by `shift` would put on each other, get into each other's way? */
static bool conflict(const Share *s, int a, int b, int64_t shift)
{
  const Piece *x = &s->piece->v[a];
  const Piece *y = &s->piece->v[b];
  int64_t at = y->offset + shift;
  int64_t lo = x->offset > at ? x->offset : at;
  int64_t hi = x->offset + x->bytes < at + y->bytes ? x->offset + x->bytes : at + y->bytes;
  if (lo >= hi || x->end < y->begin || y->end < x->begin) return false;
  return !same_bytes(s, a, lo - x->offset, b, lo - at, hi - lo);
}

/* Puts byte `at_b` of b on byte `at_a` of a; in_place: the two themselves need not be looked at.
 * False: it cannot be, and nothing has changed. */
static bool put_on(Share *s, int a, int64_t at_a, int b, int64_t at_b, bool in_place)
{
  Piece *v = s->piece->v;
  int64_t shift = v[a].offset + at_a - at_b - v[b].offset;
  int from = v[b].block;
  int to = v[a].block;
  int n = s->piece->n;
  if (from == to) return shift == 0 && !in_place;
  if (v[a].device != v[b].device || shift % target_align(s->p->device.v[v[a].device].target)) return false;
  for (int i = 0; i < n; i++)
    for (int k = 0; v[i].block == to && k < n; k++)
      if (v[k].block == from && !(in_place && i == a && k == b) && conflict(s, i, k, shift)) return false;
  for (int k = 0; k < n; k++)
    if (v[k].block == from) {
      v[k].block = to;
      v[k].offset += shift;
    }
  return true;
}

/* ---- copies ------------------------------------------------------------------------------------------ */

static bool place_runs(Share *s, const ProgIns *ins)
{
  const CopyRuns *runs = &s->copies[ins->index];
  for (int k = 0; k < runs->n; k++) {
    const CopyRun *r = &runs->v[k];
    int out = piece_of(s, ins->arg[r->out]);
    int in = piece_of(s, ins->arg[r->in]);
    if (out < 0 || in < 0 || !put_on(s, out, r->to, in, r->from, false)) return false;
  }
  return true;
}

/* All of a kernel's copies or none. */
static void try_copies(Share *s, int i)
{
  const ProgIns *ins = &s->f->ins.v[i];
  if (ins->op != MO_KERNEL || !s->copies[ins->index].n) return;
  for (int k = 0; k < s->copies[ins->index].n; k++)
    if (piece_of(s, ins->arg[s->copies[ins->index].v[k].out]) < 0 ||
        piece_of(s, ins->arg[s->copies[ins->index].v[k].in]) < 0)
      return;
  Piece *before = arena_copy(s->arena, s->piece->v, (size_t)s->piece->n * sizeof *before);
  s->keep[i] = false;
  find_origins(s);
  if (place_runs(s, ins)) return;
  s->keep[i] = true;
  memcpy(s->piece->v, before, (size_t)s->piece->n * sizeof *before);
}

static void share_copies(Share *s)
{
  Program *p = s->p;
  for (int k = 0; k < p->kernel.n; k++)
    if (p->kernel.v[k].impl.func) program_access_copies(p->kernel.v[k].impl.func, s->arena, &s->copies[k]);
  for (int i = s->f->ins.n - 1; i >= 0; i--) try_copies(s, i);
  find_origins(s);
}

/* ---- in place -------------------------------------------------------------------------------------------- */

static bool only_once(const Share *s, const ProgIns *ins, int arg)
{
  for (int i = 0; i < ins->narg; i++)
    if (i != arg && piece_of(s, ins->arg[i]) == piece_of(s, ins->arg[arg])) return false;
  return true;
}

/* The parameters of a kernel that may be the same memory, as "1,3". */
static void mark_aliases(Share *s, int kernel, int in, int out)
{
  PrimFunc *f = s->p->kernel.v[kernel].impl.func;
  const Expr *before = annots_get(&f->attrs, "tir.in_place");
  bool *listed = arena_array(s->arena, bool, f->nparam + 1);
  for (const char *t = before ? before->u.str : ""; *t; t += strcspn(t, ",") + (strchr(t, ',') != NULL))
    listed[atoi(t)] = true;
  if (listed[in] && listed[out]) return;
  listed[in] = listed[out] = true;
  Text text = text_new(f->m->arena);
  for (int i = 0; i < f->nparam; i++)
    if (listed[i]) text_printf(&text, "%s%d", text.n ? "," : "", i);
  annots_set(f->m->arena, &f->attrs, "tir.in_place", expr_str(f->m, text_str(&text)));
}

static void try_in_place(Share *s, int i, int out)
{
  const ProgIns *ins = &s->f->ins.v[i];
  const Piece *v = s->piece->v;
  int o = piece_of(s, ins->arg[out]);
  if (o < 0 || v[o].begin >= i || v[o].bytes == 0) return;
  for (int in = 0; in < ins->narg; in++) {
    int a = piece_of(s, ins->arg[in]);
    if (a < 0 || a == o || v[a].end != i || v[a].begin > v[o].begin || v[a].bytes != v[o].bytes ||
        v[a].block == v[o].block || !only_once(s, ins, in))
      continue;
    if (!program_access_in_place(s->p->kernel.v[ins->index].impl.func, in, out) || !put_on(s, a, 0, o, 0, true))
      continue;
    mark_aliases(s, ins->index, in, out);
    return;
  }
}

static void share_in_place(Share *s)
{
  for (int i = 0; i < s->f->ins.n; i++) {
    const ProgIns *ins = &s->f->ins.v[i];
    if (ins->op != MO_KERNEL || !s->keep[i] || !s->p->kernel.v[ins->index].impl.func) continue;
    for (int out = 0; out < ins->narg; out++) try_in_place(s, i, out);
  }
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

void program_share_storage(Program *p, const ProgEntry *e, Arena *a, Pieces *out, bool *keep)
{
  ProgFunc *f = p->func.v[e->func];
  Share s = {.p = p, .e = e, .f = f, .arena = a, .piece = out, .keep = keep};
  s.root = arena_array(a, int, f->nreg + 1);
  s.of = arena_array(a, int, f->nreg + 1);
  s.copies = arena_array(a, CopyRuns, p->kernel.n + 1);
  find_pieces(&s);
  s.origin = arena_array(a, Origins, out->n + 1);
  share_copies(&s);
  share_in_place(&s);
}
