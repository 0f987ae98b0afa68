/* dots.c: sums of products of bytes, by the dot products of the target.
 *
 *   C[…, j] += int32(A[…, k]) * int32(B[…, j, …, k, …])      j: any axis of the results that one operand has alone,
 *                                                            k: any axis of the sum
 * becomes
 *   Bw[…, k / 4, j, k % 4] = B[…]                            the words of a vector's lanes side by side
 *   for tiles of rows and columns                            threads
 *     for other sums, k / 4 (steps written out)
 *       for rows, vectors of columns (written out)
 *         tile[row, j] += dot(a word of A, a vector of words of Bw)
 * A is copied where its words do not lie in a row; sizes that vectors and words do not divide are padded where the
 * indices are the iterations themselves. */
#include "tune/sketch.h"

enum { WORD = 4 };

typedef struct DotForm {
  int lane, word;                          /* iterations of the block */
  const Buffer *data, *weight;             /* weight: the one with the lanes */
  int data_word, weight_word, weight_lane; /* their axes */
} DotForm;

/* The axis of which the variable alone is the index; -1: it is nowhere, -2: it is elsewhere, too. */
static int axis_of(const Expr *load, const Var *v)
{
  int found = -1;
  for (int d = 0; d < load->nargs; d++) {
    if (!expr_uses_var(load->arg[d], v)) continue;
    bool alone = load->arg[d]->kind == E_VAR && found == -1;
    found = alone ? d : -2;
  }
  return found;
}

static bool is_widened_byte(const Expr *e)
{
  if (e->kind != E_CAST || !dtype_eq(e->dtype, DT_I32) || e->arg[0]->kind != E_LOAD) return false;
  DType t = e->arg[0]->dtype;
  return t.bits == 8 && (t.code == DT_INT || t.code == DT_UINT);
}

/* The two loads of own + int32(a) * int32(b). */
static bool read_product(const Block *b, const Expr *load[2])
{
  if (!b->init || b->body->kind != S_STORE) return false;
  const Stmt *s = b->body;
  const Expr *value = s->u.store.value;
  if (value->kind != E_ADD) return false;
  for (int own = 0; own < 2; own++) {
    const Expr *o = value->arg[own];
    const Expr *p = value->arg[1 - own];
    if (o->kind != E_LOAD || o->u.buffer != s->u.store.buffer || p->kind != E_MUL) continue;
    if (!is_widened_byte(p->arg[0]) || !is_widened_byte(p->arg[1])) continue;
    for (int i = 0; i < 2; i++) load[i] = p->arg[i]->arg[0];
    return load[0]->u.buffer != load[1]->u.buffer;
  }
  return false;
}

static int64_t extent_of(const Block *b, int iter) { return b->iter[iter].extent->u.i; }

/* The axis of the sum that both operands have alone: one that words divide, in a row in the data, before others. */
static bool choose_word(const Block *b, const Expr *data, const Expr *weight, DotForm *f)
{
  int best = -1;
  for (int i = 0; i < b->niter; i++) {
    const Var *v = b->iter[i].var;
    int d = axis_of(data, v);
    int w = axis_of(weight, v);
    if (b->iter[i].kind != ITER_REDUCE || d < 0 || w < 0 || extent_of(b, i) < WORD) continue;
    int score = 2 * (extent_of(b, i) % WORD == 0) + (d == data->nargs - 1);
    if (score <= best) continue;
    best = score;
    f->word = i, f->data_word = d, f->weight_word = w;
  }
  return best >= 0;
}

/* The forms that a block has, by the axis of the lanes; last: the one whose results are stored in a row, or -1. */
static int find_forms(Sketch *k, const Block *b, DotForm *fit, int *last)
{
  const Expr *load[2];
  int n = 0;
  *last = -1;
  if (!target_dot(k->target, DOT_S8, DOT_S8, target_lanes(k->target, 32)) || !read_product(b, load)) return 0;
  for (int i = 0; i < b->niter; i++)
    for (int w = 0; w < 2; w++) {
      const Var *v = b->iter[i].var;
      DotForm f = {.lane = i, .weight = load[w]->u.buffer, .data = load[1 - w]->u.buffer};
      f.weight_lane = axis_of(load[w], v);
      if (b->iter[i].kind != ITER_SPATIAL || f.weight_lane < 0 || axis_of(load[1 - w], v) != -1) continue;
      if (!choose_word(b, load[1 - w], load[w], &f)) continue;
      if (b->body->u.store.index[b->body->u.store.n - 1] == var_expr(v)) *last = n;
      fit[n++] = f;
    }
  return n;
}

bool tune_has_dots(Sketch *k, const BlockFacts *f)
{
  DotForm fit[2 * MAX_LOOPS];
  int last;
  const Block *b = func_find_block(sched_func(k->s), f->name)->u.block;
  return f->space && f->sums && find_forms(k, b, fit, &last) > 0;
}

/* True: the block is whole vectors and words now. */
static bool pad(Sketch *k, const BlockFacts *f, DotForm *form)
{
  BlockRV block = sched_get_block(k->s, f->name);
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  int64_t lanes = target_lanes(k->target, 32);
  if (extent_of(b, form->lane) % lanes == 0 && extent_of(b, form->word) % WORD == 0) return true;
  int64_t to[MAX_LOOPS];
  for (int i = 0; i < b->niter; i++) to[i] = i == form->lane ? lanes : i == form->word ? WORD : 1;
  Step padded = {.k = k, .what = PADDED, .block = block, .padded = to};
  if (!tune_attempt(&padded)) return false;
  const char *copy = tune_follower(k, block, true); /* of the results without what was added */
  Step gone = {.k = k, .what = INLINE};
  if (copy) gone.block = sched_get_block(k->s, copy);
  if (copy) tune_attempt(&gone); /* unless it is what the program gives */
  const Expr *load[2];
  b = sched_block_stmt(k->s, block)->u.block;
  if (!read_product(b, load)) return false;
  int w = axis_of(load[0], b->iter[form->lane].var) >= 0 ? 0 : 1;
  form->weight = load[w]->u.buffer;
  form->data = load[1 - w]->u.buffer;
  return true;
}

static int read_index(const Block *b, const Buffer *of)
{
  for (int i = 0; i < b->nreads; i++)
    if (b->reads[i].buffer == of) return i;
  return -1;
}

/* What is made only to be copied goes into the copy, which then moves whole words where it can. */
static void finish_copy(Sketch *k, BlockRV copy, bool words)
{
  BlockRV *from;
  LoopRV *loop;
  int n = sched_get_producers(k->s, copy, k->arena, &from);
  for (int i = 0; i < n; i++) {
    Step t = {.k = k, .what = INLINE, .block = from[i]};
    tune_attempt(&t);
  }
  n = sched_get_loops(k->s, copy, k->arena, &loop);
  if (words && tune_loop_extent(k, loop[n - 1]) % WORD == 0) {
    static const int64_t word[] = {WORD};
    LoopRV part[2];
    tune_split_by(k, loop[n - 1], tune_sample(k, 1, word, 0), part);
    tune_vectorize(k, part[1]);
  }
  Step threads = {.k = k, .what = THREADS, .loop = loop[0]};
  if (n > 1) tune_attempt(&threads);
}

/* Both operands as the instruction takes them; false: one cannot be. */
static bool line_up(Sketch *k, BlockRV block, const DotForm *f)
{
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  Step weight = {.k = k, .what = WORDS, .block = block, .axis = f->weight_lane, .word = f->weight_word};
  weight.read = read_index(b, f->weight);
  if (weight.read < 0 || !tune_attempt(&weight)) return false;
  finish_copy(k, weight.made, f->weight_word == f->weight->ndim - 1);
  const Expr *inner = f->data->shape[f->data->ndim - 1];
  if (f->data_word == f->data->ndim - 1) return inner->kind == E_INT && inner->u.i % WORD == 0;
  b = sched_block_stmt(k->s, block)->u.block;
  Step data = {.k = k, .what = TRANSPOSE, .block = block, .axis = f->data_word};
  data.read = read_index(b, f->data);
  if (data.read < 0 || !tune_attempt(&data)) return false;
  finish_copy(k, data.made, false);
  return true;
}

/* Numbers of rows, or of vectors, of a tile: divisors of what there is. */
static IntRV draw_divisor(Sketch *k, int64_t extent, int64_t most)
{
  int64_t fit[MAX_CHOICES];
  int n = tune_steps_of(extent, fit);
  while (n > 1 && fit[n - 1] > most) n--;
  return tune_sample(k, n, fit, (int)(tune_draw(&k->seed) % (uint64_t)n));
}

static void tile_and_tensorize(Sketch *k, BlockRV block, const DotForm *f, const char *intrin)
{
  enum { ROWS = 8, VECTORS_WIDE = 4 };
  const int64_t lanes[] = {target_lanes(k->target, 32)};
  const int64_t words[] = {WORD};
  const Block *b = sched_block_stmt(k->s, block)->u.block;
  IterKind kind[MAX_LOOPS];
  LoopRV *loop, all[2 * MAX_LOOPS + 8], lane[2], column[2], row[2], word[2], step[2];
  int n = b->niter;
  int high = -1; /* the loop whose steps are rows of the tile: the last other one that is more than one */
  for (int i = 0; i < n; i++) {
    kind[i] = b->iter[i].kind;
    if (kind[i] == ITER_SPATIAL && i != f->lane && extent_of(b, i) > 1) high = i;
  }
  sched_get_loops(k->s, block, k->arena, &loop);
  tune_split_by(k, loop[f->lane], tune_sample(k, 1, lanes, 0), lane);
  tune_split_by(k, lane[0], draw_divisor(k, tune_loop_extent(k, lane[0]), VECTORS_WIDE), column);
  tune_split_by(k, loop[f->word], tune_sample(k, 1, words, 0), word);
  tune_split_by(k, word[0], draw_divisor(k, tune_loop_extent(k, word[0]), ROWS), step);
  if (high >= 0) tune_split_by(k, loop[high], draw_divisor(k, tune_loop_extent(k, loop[high]), ROWS), row);
  int outer = 0;
  for (int i = 0; i < n; i++)
    if (kind[i] == ITER_SPATIAL) all[outer++] = i == f->lane ? column[0] : i == high ? row[0] : loop[i];
  int m = outer;
  for (int i = 0; i < n; i++)
    if (kind[i] == ITER_REDUCE && i != f->word) all[m++] = loop[i];
  all[m++] = step[0], all[m++] = step[1];
  if (high >= 0) all[m++] = row[1];
  all[m++] = column[1], all[m++] = lane[1], all[m++] = word[1];
  sched_reorder(k->s, m, all);
  tune_close_registers(k, block, outer, all, all[outer]);
  Step last = {.k = k, .what = LANES_LAST, .block = block, .axis = f->lane};
  tune_attempt(&last);
  Step t = {.k = k, .what = TENSORIZED, .loop = lane[1], .intrin = intrin};
  tune_attempt(&t);
  LoopRV written[] = {step[1], column[1], row[1]};
  for (int i = 0; i < (high >= 0 ? 3 : 2); i++) {
    Step w = {.k = k, .what = WRITTEN_OUT, .loop = written[i]};
    tune_attempt(&w);
  }
  tune_share_outer(k, outer, all);
}

void tune_dots(Sketch *k, const BlockFacts *f)
{
  DotForm fit[2 * MAX_LOOPS];
  int last;
  BlockRV block = sched_get_block(k->s, f->name);
  int n = find_forms(k, sched_block_stmt(k->s, block)->u.block, fit, &last);
  uint64_t any = tune_draw(&k->seed); /* results in a row, others now and then */
  DotForm *form = &fit[last >= 0 && any % 4 ? last : (int)(any / 4 % (uint64_t)n)];
  const char *intrin = sched_dot_name(k->arena, target_lanes(k->target, 32), form->data->dtype, form->weight->dtype);
  if (pad(k, f, form) && line_up(k, block, form)) tile_and_tensorize(k, block, form, intrin);
}
