/* llvm_turn.c: squares of memory read the other way round.
 *
 *   y[…] = x[ramp(b + 0, s, L)]         row r: x[b + r*s … b + r*s + L - 1], contiguous
 *   y[…] = x[ramp(b + 1, s, L)]   →     L rows, turned in log2(L) rounds of shuffles
 *   …                                   column j is the load that begins at b + j
 *   y[…] = x[ramp(b + L - 1, s, L)]
 *
 * A transpose that a schedule has cut into squares and unrolled is a sequence of such stores.  Exactly
 * the elements that the loads name are read, so nothing is read out of bounds.  The values are put into
 * the sequence's memo, where the stores find them.
 *
 * So are columns taken apart: the loads that begin at b, b + 1, … b + s - 1 with a small stride s are
 * together one contiguous piece of memory, read once.  And columns put together: stores that follow one another
 * to b, b + 1, … b + s - 1 with a small stride s write one contiguous piece. */
#include "codegen/llvm_gen.h"

enum { NEAR = 4 }; /* lanes so close are picked out of contiguous loads (llvm_memory.c) */

/* A load of lanes some distance apart: base + offset + apart * lane. */
typedef struct Strided {
  const Expr *load, *base, *apart;
  int64_t offset;
  int64_t stride; /* the same where it is a constant; else it counts as far */
  bool done;
} Strided;

typedef struct Turn {
  Gen *g;
  bool branches; /* an element may not be read at all */
  Vec(Strided) loads;
} Turn;

static void split_base(const Expr *e, Strided *out)
{
  for (;;) {
    if (e->kind == E_CAST && dtype_is_int(e->arg[0]->dtype)) {
      e = e->arg[0];
    } else if (e->kind == E_ADD && e->arg[1]->kind == E_INT) {
      out->offset += e->arg[1]->u.i;
      e = e->arg[0];
    } else {
      break;
    }
  }
  if (e->kind == E_INT) {
    out->offset += e->u.i;
    e = NULL;
  }
  out->base = e;
}

static void note_load(void *env, const Expr *e)
{
  Turn *t = env;
  t->branches |= e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE;
  if (e->kind != E_LOAD || e->nargs != 1 || e->arg[0]->kind != E_RAMP || e->u.buffer->dtype.lanes != 1) return;
  const Expr *at = e->arg[0];
  int lanes = at->dtype.lanes;
  const Expr *apart = at->arg[1];
  bool strided = lanes >= 4 && (lanes & (lanes - 1)) == 0 && (apart->kind != E_INT || apart->u.i > 1);
  if (!strided || e->dtype.bits != 8 * dtype_bytes(e->dtype) || expr_has_kind(at, E_LOAD)) return;
  for (int i = 0; i < t->loads.n; i++)
    if (t->loads.v[i].load == e) return;
  Strided s = {.load = e, .apart = apart, .stride = apart->kind == E_INT ? apart->u.i : INT64_MAX};
  split_base(at->arg[0], &s);
  vec_push(t->g->arena, &t->loads, s);
}

/* Does a store of the sequence write where the buffer lies? */
static bool is_written(Gen *g, Stmt *seq, const Buffer *b)
{
  bool shared = false;
  for (int i = 0; i < g->k->narg; i++) shared |= g->k->arg[i].var == b->data && g->k->arg[i].may_alias;
  for (int i = 0; i < seq->u.seq.n; i++)
    if (shared || seq->u.seq.v[i]->u.store.buffer->data == b->data) return true;
  return false;
}

static LLVMValueRef pick(Gen *g, LLVMValueRef a, LLVMValueRef b, int lanes, int step, bool second)
{
  LLVMValueRef *at = arena_array(g->arena, LLVMValueRef, lanes);
  for (int j = 0; j < lanes; j++)
    at[j] = gen_int(g, g->i32, j & step ? lanes + j - (second ? 0 : step) : j + (second ? step : 0));
  return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(at, (unsigned)lanes), "");
}

/* Loads the rows of a square and turns it: column j becomes the value of load[j]. */
static void turn_square(Gen *g, Strided *const *load, int lanes)
{
  const Buffer *buffer = load[0]->load->u.buffer;
  LLVMValueRef *row = arena_array(g->arena, LLVMValueRef, lanes);
  LLVMValueRef first = gen_index(g, load[0]->load->arg[0]->arg[0]);
  LLVMValueRef apart = gen_index(g, load[0]->apart);
  for (int r = 0; r < lanes; r++) {
    LLVMValueRef from = LLVMBuildNSWMul(g->b, apart, gen_int(g, g->i64, r), "");
    row[r] = gen_load_contiguous(g, buffer, LLVMBuildNSWAdd(g->b, first, from, ""), lanes);
  }
  for (int step = 1; step < lanes; step *= 2)
    for (int r = 0; r < lanes; r++) {
      if (r & step) continue;
      LLVMValueRef a = row[r];
      LLVMValueRef b = row[r + step];
      row[r] = pick(g, a, b, lanes, step, false);
      row[r + step] = pick(g, a, b, lanes, step, true);
    }
  for (int j = 0; j < lanes; j++) {
    map_put(g->arena, &g->memo->values, load[j]->load, row[j]);
    load[j]->done = true;
  }
}

/* One load of all, whose element j * stride + k is lane j of load[k]. */
static void take_apart(Gen *g, Strided *const *load, int lanes, int stride)
{
  LLVMValueRef *at = arena_array(g->arena, LLVMValueRef, lanes);
  LLVMValueRef all =
      gen_load_contiguous(g, load[0]->load->u.buffer, gen_index(g, load[0]->load->arg[0]->arg[0]), lanes * stride);
  for (int k = 0; k < stride; k++) {
    for (int j = 0; j < lanes; j++) at[j] = gen_int(g, g->i32, j * stride + k);
    LLVMValueRef part =
        LLVMBuildShuffleVector(g->b, all, LLVMGetPoison(LLVMTypeOf(all)), LLVMConstVector(at, (unsigned)lanes), "");
    map_put(g->arena, &g->memo->values, load[k]->load, part);
    load[k]->done = true;
  }
}

/* So many loads at the next offsets, load s the first of them: a square, or all columns that lie between two of its
 * own. */
static bool find_all(Turn *t, Strided *s, int count, Strided **out)
{
  int lanes = s->load->dtype.lanes;
  for (int k = 0; k < count; k++) out[k] = NULL;
  for (int i = 0; i < t->loads.n; i++) {
    Strided *o = &t->loads.v[i];
    int64_t k = o->offset - s->offset;
    if (o->done || k < 0 || k >= count || o->load->u.buffer != s->load->u.buffer || o->base != s->base ||
        o->apart != s->apart || o->load->dtype.lanes != lanes)
      continue;
    out[k] = o;
  }
  for (int k = 0; k < count; k++)
    if (!out[k]) return false;
  return true;
}

void gen_turned_loads(Gen *g, Stmt *seq)
{
  Turn t = {.g = g};
  for (int i = 0; i < seq->u.seq.n; i++) {
    Stmt *s = seq->u.seq.v[i];
    if (s->kind != S_STORE || s->u.store.mask) return;
    if (s->u.store.value->dtype.lanes >= 4) expr_visit(g->ctx, s->u.store.value, note_load, &t);
  }
  if (t.branches || g->mask) return;
  Strided **square = arena_array(g->arena, Strided *, t.loads.n + 64);
  for (int i = 0; i < t.loads.n; i++) {
    Strided *s = &t.loads.v[i];
    int lanes = s->load->dtype.lanes;
    int count = s->stride > NEAR ? lanes : (int)s->stride;
    if (s->done || count > t.loads.n || is_written(g, seq, s->load->u.buffer) || !find_all(&t, s, count, square))
      continue;
    if (s->stride > NEAR) turn_square(g, square, lanes);
    else take_apart(g, square, lanes, count);
  }
}

/* ---- columns put together ------------------------------------------------------------------------------- */

/* A store with a small stride that begins i elements behind the first one? */
static bool is_column(Stmt *s, int i, const Strided *first, Strided *out)
{
  if (s->kind != S_STORE || s->u.store.mask || s->u.store.n != 1) return false;
  const Expr *at = s->u.store.index[0];
  const Buffer *b = s->u.store.buffer;
  if (at->kind != E_RAMP || at->arg[1]->kind != E_INT || b->dtype.lanes != 1 || b->dtype.bits % 8) return false;
  int lanes = at->dtype.lanes;
  *out = (Strided){.stride = at->arg[1]->u.i};
  if (out->stride < 2 || out->stride > NEAR || lanes < 4 || (lanes & (lanes - 1))) return false;
  split_base(at->arg[0], out);
  return !i || (out->base == first->base && out->offset == first->offset + i && out->stride == first->stride);
}

typedef struct Reads {
  const Var *data;
  bool found;
} Reads;

static void note_read(void *env, const Expr *e)
{
  Reads *r = env;
  r->found |= e->kind == E_LOAD && e->u.buffer->data == r->data;
}

/* May the value be computed from what the buffer holds? */
static bool reads(Gen *g, const Expr *e, const Buffer *b)
{
  Reads r = {.data = b->data};
  for (int i = 0; i < g->k->narg; i++) r.found |= g->k->arg[i].var == b->data && g->k->arg[i].may_alias;
  expr_visit(g->ctx, e, note_read, &r);
  return r.found;
}

/* Of two or four columns; returns how many stores they are, 0 where they are something else. */
int gen_columns_together(Gen *g, Stmt *seq, int from)
{
  Strided first, next;
  Stmt *const *v = seq->u.seq.v + from;
  if (g->mask || !is_column(v[0], 0, NULL, &first) || from + first.stride > seq->u.seq.n) return 0;
  const Expr *at = v[0]->u.store.index[0];
  const Buffer *buffer = v[0]->u.store.buffer;
  int lanes = at->dtype.lanes;
  int n = (int)first.stride;
  if (n == 3) return 0;
  for (int i = 0; i < n; i++)
    if (!is_column(v[i], i, &first, &next) || v[i]->u.store.buffer != buffer ||
        v[i]->u.store.index[0]->dtype.lanes != lanes || reads(g, v[i]->u.store.value, buffer))
      return 0;
  LLVMValueRef column[NEAR];
  LLVMValueRef *lane = arena_array(g->arena, LLVMValueRef, lanes * n);
  Memo memo;
  gen_memo_begin(g, &memo);
  for (int i = 0; i < n; i++) column[i] = gen_expr_lanes(g, v[i]->u.store.value, lanes);
  for (int count = n, have = lanes; count > 1; count /= 2, have *= 2) /* one behind the other */
    for (int i = 0; i < count / 2; i++) {
      for (int j = 0; j < 2 * have; j++) lane[j] = gen_int(g, g->i32, j);
      column[i] = LLVMBuildShuffleVector(g->b, column[2 * i], column[2 * i + 1],
                                         LLVMConstVector(lane, (unsigned)(2 * have)), "");
    }
  for (int j = 0; j < lanes; j++)
    for (int i = 0; i < n; i++) lane[j * n + i] = gen_int(g, g->i32, i * lanes + j);
  LLVMValueRef all = LLVMBuildShuffleVector(g->b, column[0], LLVMGetPoison(LLVMTypeOf(column[0])),
                                            LLVMConstVector(lane, (unsigned)(lanes * n)), "");
  gen_store_contiguous(g, buffer, gen_index(g, at->arg[0]), all, lanes * n);
  gen_memo_end(g, &memo);
  return n;
}
