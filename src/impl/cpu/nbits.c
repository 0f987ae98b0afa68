/* nbits.c: products of floats with weights of 4 or 8 bits, which are taken apart where they are multiplied.
 *
 * The weight comes in blocks of rows (NC16n): a vector of bytes has the same step of k of all rows of a block.
 *
 *   few rows of data: as much as memory gives              many rows: the weight is made floats once
 *
 *   for blocks of the weight's rows        threads         for blocks of the weight's rows          threads
 *     for tiles of data's rows                               panel[k, row] = (value - zero) * scale   level 2 cache
 *       for blocks of k that share a scale                   for tiles of data's rows
 *         part = sum of data * value       registers           sum of data * panel                  registers
 *         sum += (part - zero * sum of data) * scale
 *
 * Where data may be rounded, the parts are sums of bytes, four products at a time: the weight comes in words
 * (NC16n4c), and data is first made bytes, a scale for each block of a row, those beside the lower halves of a word
 * before those beside its upper halves. */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define NBITS_PLAN(A, S)                                                                  \
  A(S, INT, width, NULL, "rows of the weight in a block")                                 \
  A(S, INT, rows, NULL, "rows of data in a register tile")                                \
  A(S, BOOL, panel, NULL, "a block of the weight becomes floats before it is multiplied") \
  A(S, BOOL, dots, NULL, "data becomes bytes, and parts are sums of bytes")
DEFINE_PLAN(NbitsPlan, NBITS_PLAN)

static const DenseNbitsAttrs *attrs_of(const Node *call) { return call->u.call.attrs; }

enum { WORD = 4 };

/* Does an instruction multiply bytes of data, signed, by those of the weight? */
static bool has_dots(const Target *t, const DenseNbitsAttrs *a)
{
  int lanes = target_lanes(t, 32);
  return a->data_bits == 8 && a->block_size * a->bits % (8 * WORD) == 0 &&
         (target_dot(t, DOT_S8, DOT_S8, lanes) || target_dot(t, DOT_U8, DOT_S8, lanes));
}

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* ---- plans ---------------------------------------------------------------------------------------------- */

/* Cycles of a block that shares a scale by a tile of rows, in integers: halves told apart and dots, then floats. */
static double dots_cycles(const Target *t, const DenseNbitsAttrs *a, int64_t vectors, int64_t rows)
{
  double words = (double)(a->block_size * a->bits / 8 / WORD);
  double step = (double)vectors * (a->bits == 4 ? 2 + 2 * (double)rows : 1 + (double)rows);
  return (words * step + 4 * (double)(vectors * rows)) / cost_pipes(t);
}

/* Cycles of a step of k of a block by a tile of rows: taking the values apart, and multiply-adds. */
static double step_cycles(const Target *t, const DenseNbitsAttrs *a, int64_t vectors, int64_t rows)
{
  double apart = (double)vectors * (a->bits == 4 ? 2.75 : 2.5); /* widened twice, made floats; halves told apart */
  double cycles = (apart + (double)(vectors * rows)) / cost_pipes(t);
  return cycles > t->core.fma_latency ? cycles : t->core.fma_latency;
}

static double seconds_of(const Target *t, const Node *call, const NbitsPlan *p)
{
  const DenseNbitsAttrs *a = attrs_of(call);
  const Type *x = call->arg[0]->type;
  double rows = impl_likely_elements(x) / (double)known_size(x, x->ndim - 1);
  double k = (double)known_size(x, x->ndim - 1);
  int64_t vectors = alter_block_vectors(p->width, target_lanes(t, 32));
  double blocks = __builtin_ceil((double)known_size(call->type, call->type->ndim - 1) / (double)p->width);
  double tiles = __builtin_ceil(rows / (double)p->rows);
  double sums = (double)vectors * (double)p->rows / cost_pipes(t);
  if (sums < t->core.fma_latency) sums = t->core.fma_latency;
  double cycles = p->panel ? k * step_cycles(t, a, vectors, 1) + tiles * k * (sums + 0.3 * (double)vectors)
                           : tiles * k * step_cycles(t, a, vectors, p->rows);
  if (p->dots) cycles = tiles * __builtin_ceil(k / (double)a->block_size) * dots_cycles(t, a, vectors, p->rows);
  double read = blocks * (double)p->width * k * (double)a->bits / 8 / cost_stream(t);
  double busy = blocks * cycles / (1e9 * t->core.ghz);
  int threads = cost_threads(t, 2 * rows * k * blocks * (double)p->width, 0);
  return (read > busy ? read : busy) / threads / cost_busy(blocks, threads);
}

/* Of a weight in blocks of rows, or one that is known at compile time, which is brought into them. */
void nbits_plans(const ImplCall *call, PlanList *list)
{
  const Node *n = call->call;
  const Target *t = call->target;
  const Type *x = n->arg[0]->type;
  const Type *w = n->arg[1]->type;
  int64_t lanes = target_lanes(t, 32);
  bool given = w->ndim > 2;
  if (x->ndim != 2 || lanes < 2 || !known_size(w, 0) || !known_size(w, 1)) return;
  for (int i = 1; i < 4; i++)
    if (!given && !alter_is_constant(call->m->ctx, n->arg[i])) return;
  NbitsPlan p = {.width = given ? known_size(w, 2) : 4 * lanes};
  list->alters = !given;
  int64_t vectors = alter_block_vectors(p.width, lanes);
  int64_t most = (t->vector_registers - 4) / vectors - 1;
  p.dots = given ? w->ndim == 4 : has_dots(t, attrs_of(n));
  for (p.rows = 1; p.dots && p.rows <= (t->vector_registers - 6) / (2 * vectors); p.rows++)
    if (p.rows <= known_size(x, 0) || !known_size(x, 0))
      plan_add(list, &p, seconds_of(t, n, &p), (double)(known_size(w, 0) * known_size(w, 1)));
  if (p.dots) return;
  for (int panel = 0; panel < 2; panel++) {
    p.panel = panel;
    for (p.rows = 1; p.rows <= (panel ? most : most / 2 + 1) && (p.rows <= known_size(x, 0) || !known_size(x, 0));
         p.rows++)
      plan_add(list, &p, seconds_of(t, n, &p), (double)(known_size(w, 0) * known_size(w, 1)));
  }
}

/* Rows of an operand in blocks, zeros behind the last. */
static const Node *in_blocks(Module *m, const Node *n, int64_t width, bool words)
{
  if (!n->type->ndim) return n;
  int64_t rows = known_size(n->type, 0);
  int64_t more[MAX_RANK] = {up(rows, width) * width - rows};
  return alter_transform(m, alter_pad(m, n, more), "NC",
                         arena_printf(m->arena, "NC%" PRId64 "n%s", width, words ? "4c" : ""));
}

void nbits_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  Module *m = call->m;
  const Node *n = call->call;
  const NbitsPlan *p = plan;
  int64_t width = p->width;
  DenseNbitsAttrs *to = attrs_copy(m, &DenseNbits_attrs, attrs_of(n));
  to->units = known_size(n->arg[1]->type, 0);
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n%s", width, p->dots ? "4c" : "");
  *out = (AlteredCall){.op = n->u.call.op, .attrs = to, .nargs = 4};
  out->arg[0] = n->arg[0];
  for (int i = 1; i < 4; i++) out->arg[i] = in_blocks(m, n->arg[i], width, p->dots && i == 1);
}

/* ---- computation ------------------------------------------------------------------------------------------ */

typedef struct Operands {
  Module *m;
  const DenseNbitsAttrs *a;
  const Tensor *const *in; /* data (rows, k), weight (n / w, bytes, w), scale and zero (n / w, blocks, w) */
  int64_t width, k;
} Operands;

/* Float32; zero behind the last element of a row. */
static const Expr *data_at(const Operands *o, const Expr *row, const Expr *k)
{
  Module *m = o->m;
  const Expr *x = expr_cast(m, DT_F32, nn_read(m, o->in[0], (const Expr *[]){row, k}));
  return o->k % o->a->block_size ? nn_if(m, expr_lt(m, k, expr_i32(m, o->k)), x, expr_const(m, DT_F32, 0)) : x;
}

static const Expr *number_at(const Operands *o, int i, const Expr *block, const Expr *group, const Expr *row)
{
  const Tensor *t = o->in[i];
  const Expr *v = t->buffer->ndim ? nn_read(o->m, t, (const Expr *[]){block, group, row}) : te_read(o->m, t, 0, NULL);
  return expr_cast(o->m, DT_F32, v);
}

/* Element number `part` of byte `byte`, float32. */
static const Expr *value_at(const Operands *o, const Expr *block, const Expr *byte, const Expr *part, const Expr *row)
{
  return expr_cast(o->m, DT_F32,
                   nn_nbits_value(o->m, o->a, nn_read(o->m, o->in[1], (const Expr *[]){block, byte, row}), part));
}

/* The sums of a row's blocks of k, which a zero point meets. */
static const Tensor *sums_of_data(const Operands *o, const Expr *rows)
{
  Module *m = o->m;
  const Expr *shape[] = {rows, o->in[2]->buffer->shape[1]};
  const Expr *size = expr_i32(m, o->a->block_size);
  Stage s = nn_stage(m, 2, shape, "i group");
  const Expr *k = nn_reduce_axis(&s, "k", size);
  return nn_sum(&s, "data_sum", "dense_nbits", data_at(o, s.at[0], expr_add(m, expr_mul(m, s.at[1], size), k)), DT_F32);
}

static const Tensor *few_rows(const Operands *o, const Type *y, const Expr *columns)
{
  Module *m = o->m;
  int64_t per = 8 / o->a->bits;
  int64_t bytes = o->a->block_size / per;
  const Expr *w = expr_i32(m, o->width);
  const Expr *shape[] = {y->shape[0], o->in[2]->buffer->shape[0], o->in[2]->buffer->shape[1], w};
  Stage s = nn_stage(m, 4, shape, "i block group row");
  const Expr *byte = nn_reduce_axis(&s, "byte", expr_i32(m, bytes));
  const Expr *half = nn_reduce_axis(&s, "half", expr_i32(m, per));
  const Expr *at = expr_add(m, expr_mul(m, s.at[2], expr_i32(m, bytes)), byte);
  const Expr *x = data_at(o, s.at[0], expr_add(m, expr_mul(m, at, expr_i32(m, per)), half));
  const Tensor *part =
      nn_sum(&s, "part", "dense_nbits", expr_mul(m, x, value_at(o, s.at[1], at, half, s.at[3])), DT_F32);
  const Tensor *sums = sums_of_data(o, y->shape[0]);
  const Expr *whole[] = {y->shape[0], columns};
  Stage all = nn_stage(m, 2, whole, "i j");
  const Expr *group = nn_reduce_axis(&all, "group", shape[2]);
  const Expr *block = expr_floordiv(m, all.at[1], w);
  const Expr *row = expr_floormod(m, all.at[1], w);
  const Expr *less =
      expr_mul(m, number_at(o, 3, block, group, row), nn_read(m, sums, (const Expr *[]){all.at[0], group}));
  const Expr *term = expr_sub(m, nn_read(m, part, (const Expr *[]){all.at[0], block, group, row}), less);
  return nn_sum(&all, "product", "dense_nbits", expr_mul(m, term, number_at(o, 2, block, group, row)), DT_F32);
}

/* ---- in integers */

/* Largest size of an element of each block of a row. */
static const Tensor *most_of_data(const Operands *o, const Expr *rows)
{
  Module *m = o->m;
  const Expr *shape[] = {rows, o->in[2]->buffer->shape[1]};
  const Expr *size = expr_i32(m, o->a->block_size);
  Stage s = nn_stage(m, 2, shape, "i group");
  const Expr *k = nn_reduce_axis(&s, "k", size);
  const Expr *x = data_at(o, s.at[0], expr_add(m, expr_mul(m, s.at[1], size), k));
  return nn_finish(&s, "data_most", "dense_nbits", nn_reduce(&s, "max", nn_unary(m, IN_ABS, x)));
}

/* Data in bytes: (rows, groups, words of the weight, parts of a byte, bytes of a word), in the order in which a word's
 * lower and upper halves stand. */
static const Tensor *bytes_of_data(const Operands *o, const Expr *rows, const Tensor *most)
{
  Module *m = o->m;
  int64_t per = 8 / o->a->bits;
  const Expr *word = expr_i32(m, WORD * per);
  const Expr *shape[] = {rows, o->in[2]->buffer->shape[1], expr_i32(m, o->a->block_size / per / WORD), expr_i32(m, per),
                         expr_i32(m, WORD)};
  Stage s = nn_stage(m, 5, shape, "i group word half byte");
  const Expr *k = expr_add(m, expr_mul(m, s.at[4], shape[3]), s.at[3]);
  k = expr_add(m, expr_mul(m, s.at[2], word), k);
  k = expr_add(m, expr_mul(m, s.at[1], expr_i32(m, o->a->block_size)), k);
  const Expr *largest = nn_read(m, most, (const Expr *[]){s.at[0], s.at[1]});
  const Expr *zero = expr_const(m, DT_F32, 0);
  const Expr *by = expr_select(m, expr_lt(m, zero, largest), NN_DIV(m, expr_const(m, DT_F32, 127), largest), zero);
  const Expr *x = nn_unary(m, IN_NEARBYINT, expr_mul(m, data_at(o, s.at[0], k), by));
  return nn_finish(&s, "data_bytes", "injective", expr_cast(m, DT_I8, expr_cast(m, DT_I32, x)));
}

static const Tensor *sums_of_bytes(const Operands *o, const Expr *rows, const Tensor *bytes)
{
  Module *m = o->m;
  const Expr *const *from = bytes->buffer->shape;
  Stage s = nn_stage(m, 2, (const Expr *[]){rows, from[1]}, "i group");
  const Expr *at[5] = {s.at[0], s.at[1]};
  static const char *const axis[] = {"word", "half", "byte"};
  for (int d = 0; d < 3; d++) at[2 + d] = nn_reduce_axis(&s, axis[d], from[2 + d]);
  return nn_sum(&s, "data_sum", "dense_nbits", expr_cast(m, DT_I32, nn_read(m, bytes, at)), DT_I32);
}

/* Element `half` of byte c of a word of the weight, as an instruction takes it; *less: what was taken off it. */
static const Expr *byte_at(const Operands *o, bool sign, const Expr *const *at, const Expr *half, double *less)
{
  Module *m = o->m;
  const Expr *byte = nn_nbits_value(m, o->a, nn_read(m, o->in[1], at), half);
  *less = sign && o->a->bits == 8 ? 128 : 0;
  if (*less != 0) byte = expr_call(m, DT_NONE, IN_BITXOR, 2, (const Expr *[]){byte, expr_const(m, DT_U8, 128)});
  return sign ? expr_call(m, DT_I8, IN_REINTERPRET, 1, &byte) : byte;
}

static const Tensor *rows_by_dots(const Operands *o, const Target *t, const Type *y, const Expr *columns)
{
  Module *m = o->m;
  bool sign = !target_dot(t, DOT_U8, DOT_S8, target_lanes(t, 32));
  const Tensor *most = most_of_data(o, y->shape[0]);
  const Tensor *bytes = bytes_of_data(o, y->shape[0], most);
  const Tensor *sums = sums_of_bytes(o, y->shape[0], bytes);
  const Expr *w = expr_i32(m, o->width);
  const Expr *shape[] = {y->shape[0], o->in[2]->buffer->shape[0], o->in[2]->buffer->shape[1], w};
  Stage s = nn_stage(m, 4, shape, "i block group row");
  const Expr *words = bytes->buffer->shape[2];
  const Expr *word = nn_reduce_axis(&s, "word", words);
  const Expr *half = nn_reduce_axis(&s, "half", bytes->buffer->shape[3]);
  const Expr *part[2 * WORD];
  const Expr *from = expr_add(m, expr_mul(m, s.at[2], words), word);
  double less = 0;
  for (int c = 0; c < WORD; c++) {
    const Expr *place = expr_i32(m, c);
    part[c] = nn_read(m, bytes, (const Expr *[]){s.at[0], s.at[2], word, half, place});
    part[WORD + c] = byte_at(o, sign, (const Expr *[]){s.at[1], from, s.at[3], place}, half, &less);
  }
  const Tensor *parts = nn_sum(&s, "part", "dense_nbits", expr_call(m, DT_NONE, IN_DOT, 2 * WORD, part), DT_I32);
  const Expr *whole[] = {y->shape[0], columns};
  Stage all = nn_stage(m, 2, whole, "i j");
  const Expr *group = nn_reduce_axis(&all, "group", shape[2]);
  const Expr *block = expr_floordiv(m, all.at[1], w);
  const Expr *row = expr_floormod(m, all.at[1], w);
  const Expr *own[] = {all.at[0], group};
  const Expr *zero = expr_sub(m, number_at(o, 3, block, group, row), expr_const(m, DT_F32, less));
  const Expr *term = expr_cast(m, DT_F32, nn_read(m, parts, (const Expr *[]){all.at[0], block, group, row}));
  term = expr_sub(m, term, expr_mul(m, zero, expr_cast(m, DT_F32, nn_read(m, sums, own))));
  term = expr_mul(m, term, expr_mul(m, nn_read(m, most, own), expr_const(m, DT_F32, 1.0 / 127)));
  return nn_sum(&all, "product", "dense_nbits", expr_mul(m, term, number_at(o, 2, block, group, row)), DT_F32);
}

static const Tensor *many_rows(const Operands *o, const Type *y, const Expr *columns)
{
  Module *m = o->m;
  int64_t per = 8 / o->a->bits;
  const Expr *w = expr_i32(m, o->width);
  const Expr *shape[] = {o->in[1]->buffer->shape[0], o->in[1]->buffer->shape[1], expr_i32(m, per), w};
  Stage s = nn_stage(m, 4, shape, "block byte half row");
  const Expr *group = expr_floordiv(m, s.at[1], expr_i32(m, o->a->block_size / per));
  const Expr *value = value_at(o, s.at[0], s.at[1], s.at[2], s.at[3]);
  value = expr_sub(m, value, number_at(o, 3, s.at[0], group, s.at[3]));
  const Tensor *panel =
      nn_finish(&s, "panel", "injective", expr_mul(m, value, number_at(o, 2, s.at[0], group, s.at[3])));
  const Expr *whole[] = {y->shape[0], columns};
  Stage all = nn_stage(m, 2, whole, "i j");
  const Expr *byte = nn_reduce_axis(&all, "byte", shape[1]);
  const Expr *half = nn_reduce_axis(&all, "half", shape[2]);
  const Expr *x = data_at(o, all.at[0], expr_add(m, expr_mul(m, byte, expr_i32(m, per)), half));
  const Expr *at[] = {expr_floordiv(m, all.at[1], w), byte, half, expr_floormod(m, all.at[1], w)};
  return nn_sum(&all, "product", "dense_nbits", expr_mul(m, x, nn_read(m, panel, at)), DT_F32);
}

void nbits_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const NbitsPlan *p = plan;
  Operands o = {m, c->attrs, in, p->width, known(in[0]->buffer->shape[1])};
  const Expr *columns = nn_simplify(m, expr_mul(m, in[1]->buffer->shape[0], expr_i32(m, p->width)));
  const Tensor *sums = p->dots    ? rows_by_dots(&o, t, c->out, columns)
                       : p->panel ? many_rows(&o, c->out, columns)
                                  : few_rows(&o, c->out, columns);
  if (known(c->out->shape[1]) == known(columns) && dtype_eq(c->out->dtype, DT_F32)) {
    *out = sums;
    return;
  }
  Stage all = nn_stage(m, 2, c->out->shape, "i j");
  *out = nn_finish(&all, "columns", "injective", expr_cast(m, c->out->dtype, nn_read(m, sums, all.at)));
}

/* ---- the schedule -------------------------------------------------------------------------------------------- */

/* The loops of a sum inside of a tile: steps, then rows and a block's columns, in registers. */
static void write_tile(ImplGroup *g, BlockRV sum, int nsteps, const LoopRV *steps, LoopRV rows, LoopRV columns)
{
  LoopRV order[8];
  int k = 0;
  for (int i = 0; i < nsteps; i++) order[k++] = steps[i];
  order[k++] = rows;
  order[k++] = columns;
  sched_reorder(g->s, k, order);
  sched_unroll(g->s, rows);
  sched_vectorize(g->s, columns);
  sched_decompose_reduction(g->s, sum, steps[0]);
}

void nbits_schedule(ImplGroup *g)
{
  const NbitsPlan *p = g->plan;
  BlockRV made, sums;
  if (p->panel && group_find_stage(g, "panel", &made)) generic_keep(g, made);
  if (p->dots && group_find_stage(g, "data_bytes", &made)) generic_keep(g, made);
  generic_inline(g);
  BlockRV product = group_stage(g, "product");
  LoopRV *loop, ri, ci, bi;
  sched_get_loops(g->s, product, g->arena, &loop); /* i, j, then the sum's */
  int64_t threads = cost_threads(g->target, impl_flops(g->anchor), 0);
  LoopRV co = generic_split_by(g, loop[1], p->width, &ci);
  LoopRV ro = generic_split_by(g, loop[0], p->rows, &ri);
  LoopRV sum = loop[2];
  sched_reorder(g->s, 5, (const LoopRV[]){co, ro, sum, ri, ci});
  epilogue_write_out(g, impl_attach_epilogue(g, product, ro), 2, true);
  if (p->panel) {
    LoopRV half = loop[3];
    LoopRV *own;
    LoopRV bo = generic_split_by(g, sum, 2, &bi);
    sched_unroll(g->s, bi), sched_unroll(g->s, half);
    write_tile(g, product, 3, (const LoopRV[]){bo, bi, half}, ri, ci);
    sched_compute_at(g->s, made, co, false, -1);
    int n = sched_get_loops(g->s, made, g->arena, &own);
    sched_unroll(g->s, own[n - 2]);
    sched_vectorize(g->s, own[n - 1]);
  } else {
    BlockRV part = group_stage(g, "part");
    LoopRV *own;
    sched_unroll(g->s, ri);
    sched_vectorize(g->s, ci);
    sched_compute_at(g->s, part, sum, true, -1);
    sched_decompose_reduction(g->s, product, sum);
    int n = sched_get_loops(g->s, part, g->arena, &own); /* …, rows, (block, group), columns, byte, half */
    LoopRV byte = own[n - 2];                            /* or word */
    LoopRV half = own[n - 1];
    LoopRV bo = generic_split_by(g, byte, 2, &bi);
    sched_unroll(g->s, bi), sched_unroll(g->s, half);
    write_tile(g, part, 3, (const LoopRV[]){bo, bi, half}, own[3], own[n - 3]);
    sched_set_scope(g->s, part, 0, "local");
    if (group_find_stage(g, "data_sum", &sums)) generic_block(g, sums, 0, false);
    if (group_find_stage(g, "data_most", &sums)) generic_block(g, sums, 0, false);
    if (p->dots) generic_block(g, made, 0, false);
  }
  if (threads > 1) sched_parallel(g->s, co);
  generic_rest(g);
}
