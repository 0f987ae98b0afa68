/* matmul.c: matrix products: dense, matmul, batch_matmul, dense over packed weights.
 *
 *   for batch, column panels, row blocks                        threads
 *     tile[rows, columns] = 0                                   registers
 *     for k: tile += a[row, k] (broadcast) * b[k, columns]
 *     epilogue on the tile, store
 *
 * b is read along the columns: where its rows lie the other way it is packed into panels
 * (columns / NR, k, NR) first, NR the columns of a register tile, unless that was done beforehand
 * (nn.contrib_dense_pack).  A panel stays in the second-level cache while all rows pass by.
 *
 * A sum too long for that is made in rounds: `head` is the sum of all rounds but the last, in memory,
 * and the epilogue stands behind head + last. */
#include "impl/internal.h"
#include "op/nn_kit.h"

/* How the operands of a call lie. */
typedef struct Product {
  bool ta, tb;
  int64_t m, n, k; /* 0: not known */
} Product;

enum { MANY_ROWS = 1 << 20 }; /* stands for rows that are not known */

static Product product_of(const OpDef *op, const void *attrs, const Type *a, const Type *b, const Type *out)
{
  Product p = {.tb = true};
  if (op->attrs == &Matmul_attrs) {
    const MatmulAttrs *t = attrs;
    p.ta = t->transpose_a, p.tb = t->transpose_b;
  } else if (op->attrs == &BatchMatmul_attrs) {
    const BatchMatmulAttrs *t = attrs;
    p.ta = t->transpose_a, p.tb = t->transpose_b;
  }
  p.n = known(out->shape[out->ndim - 1]);
  p.m = out->ndim > 1 ? known(out->shape[out->ndim - 2]) : 1;
  p.k = known(b->shape[b->ndim - (p.tb ? 1 : 2)]);
  (void)a;
  return p;
}

bool matmul_fits(const Target *t, const Node *call)
{
  (void)t;
  const Type *a = call->arg[0]->type;
  const Type *b = call->arg[1]->type;
  const Type *out = call->type;
  bool same = dtype_eq(a->dtype, b->dtype) && dtype_eq(a->dtype, out->dtype) && out->dtype.code == DT_FLOAT &&
              out->dtype.bits >= 32;
  if (!same || out->ndim < 2) return false;
  Product p = product_of(call->u.call.op, call->u.call.attrs, a, b, out);
  /* A packed copy of b pays from a few rows on; before that b is read once, as it lies. */
  return p.n >= 4 && p.k >= 2 && (!p.tb || p.m == 0 || p.m >= 6);
}

bool matmul_pack_fits(const Target *t, const Node *call)
{
  (void)t;
  return call->type->dtype.code == DT_FLOAT && known(call->type->shape[1]) >= 4;
}

double matmul_cost(const Target *t, const Node *call)
{
  return impl_flops(call) / cost_flops(t, call->type->dtype.bits);
}

/* ---- rounds of a long sum --------------------------------------------------------------------------- */

/* Do a tile's rows, k elements apart, meet in too few sets of the first-level cache?  Rows a multiple of
 * a way's size apart all fall into one set. */
static bool rows_collide(const Target *t, int bits, int64_t tile_rows, int64_t k)
{
  int64_t ways = t->core.l1_ways;
  int64_t sets = t->l1_bytes / ways / CACHE_LINE;
  int64_t lines = k * (bits / 8) / CACHE_LINE;
  int64_t apart = 1;
  if (k * (bits / 8) % CACHE_LINE || sets < 1) return false;
  while (apart < sets && (lines * apart) % sets) apart++; /* sets that the rows reach */
  return (tile_rows + apart - 1) / apart > ways - 2;
}

/* Rounds over the sum: one, unless the rows of a and two panels of b do not fit into the second-level
 * cache together, or the rows collide in the first.  A round adds to the result in memory and reads a copy of its part
 * of a, which pays because a is then near while the panels pass by.  Rows beyond some hundred would not fit anyhow. */
static int64_t sum_rounds(const Target *t, int bits, int64_t rows, int64_t tile_rows, int64_t width, int64_t columns,
                          int64_t k, bool packed)
{
  enum { MOST_ROWS = 192, USUAL_ROWS = 128, LEAST = 256, FEW_PANELS = 4 };
  int64_t r = !rows ? USUAL_ROWS : rows < MOST_ROWS ? rows : MOST_ROWS;
  if (columns / width < FEW_PANELS || (rows && rows <= tile_rows)) return 1;
  for (int64_t n = !packed && rows_collide(t, bits, tile_rows, k) ? 2 : 1; k / n >= LEAST; n++)
    if (k % n == 0 && (r + 2 * width) * (k / n) * (bits / 8) <= t->l2_bytes * 3 / 4) return n;
  return 1;
}

/* Operands of a product of two matrices: b in panels, a as it lies or in panels of `height` rows (matmul_pack_rows). */
typedef struct Operands {
  Module *m;
  const Tensor *a, *b;
  const Expr *rows, *columns;
  int64_t height; /* 0: as it lies */
} Operands;

static const Expr *read_a(const Operands *o, const Expr *i, const Expr *k)
{
  const Expr *h = expr_i32(o->m, o->height);
  if (!o->height) return te_read(o->m, o->a, 2, (const Expr *[]){i, k});
  return te_read(o->m, o->a, 3, (const Expr *[]){expr_floordiv(o->m, i, h), k, expr_floormod(o->m, i, h)});
}

const Tensor *matmul_pack_rows(Module *m, const Tensor *a, int64_t height, int word)
{
  const Buffer *buf = a->buffer;
  int nd = buf->ndim;
  const Expr *rows = buf->shape[nd - 2];
  const Expr *h = expr_i32(m, height);
  const Expr *shape[4], *at[4], *index[3];
  const IterVar *axis[4];
  static const char *const names[] = {"b", "panel", "k", "row"};
  for (int d = 0; d < nd - 2; d++) shape[d] = buf->shape[d];
  shape[nd - 2] = expr_i32(m, (known(rows) + height - 1) / height);
  shape[nd - 1] = word > 1 ? expr_i32(m, (known(buf->shape[nd - 1]) + word - 1) / word) : buf->shape[nd - 1];
  shape[nd] = h;
  for (int d = 0; d <= nd; d++) at[d] = impl_axis(m, names[d + 3 - nd], shape[d], ITER_SPATIAL, &axis[d]);
  for (int d = 0; d < nd - 2; d++) index[d] = at[d];
  index[nd - 2] = expr_add(m, expr_mul(m, at[nd - 2], h), at[nd]);
  index[nd - 1] = at[nd - 1];
  const Expr *value, *part[4];
  if (word > 1) nn_word_row(m, word, a, nd, index, part);
  value = word > 1 ? nn_word(m, word, part) : te_read(m, a, nd, index);
  if (known(rows) % height)
    value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){expr_lt(m, index[nd - 2], rows), value, expr_const(m, value->dtype, 0)});
  return &te_compute(m, "a_pack", "injective", nd + 1, shape, axis, 1, &value, NULL)->out[0];
}

/* The sum over `steps` elements from `first` on; over so many in each of `rounds` rounds, one result for each, where
 * there are several. */
static const Tensor *sum_part(const Operands *o, const char *name, int64_t first, int64_t steps, int64_t rounds)
{
  Module *m = o->m;
  const IterVar *axis[3], *sum;
  const Expr *shape[] = {expr_i32(m, rounds), o->rows, o->columns};
  const Expr *w = o->b->buffer->shape[2];
  const Expr *at[3];
  static const char *const names[] = {"round", "i", "j"};
  for (int d = 0; d < 3; d++) at[d] = impl_axis(m, names[d], shape[d], ITER_SPATIAL, &axis[d]);
  const Expr *k = impl_axis(m, "k", expr_i32(m, steps), ITER_REDUCE, &sum);
  const Expr *from = rounds > 1 ? expr_mul(m, at[0], expr_i32(m, steps)) : expr_i32(m, first);
  k = expr_add(m, from, k);
  const Expr *b[] = {expr_floordiv(m, at[2], w), k, expr_floormod(m, at[2], w)};
  const Expr *factor[] = {read_a(o, at[1], k), te_read(m, o->b, 3, b)};
  const Expr *term = o->b->buffer->dtype.code == DT_UINT ? expr_call(m, DT_F32, IN_BF16_DOT, 2, factor)
                                                         : expr_mul(m, factor[0], factor[1]);
  const Expr *body =
      expr_reduce(m, reducer_named(m, "sum", term->dtype, DT_I32), 1, &term, 1, &sum, expr_bool(m, true), NULL, 0);
  int skip = rounds > 1 ? 0 : 1;
  return &te_compute(m, name, "matmul", 3 - skip, shape + skip, axis + skip, 1, &body, NULL)->out[0];
}

static const Tensor *sum_in_rounds(const Operands *o, int64_t k, int64_t rounds)
{
  Module *m = o->m;
  int64_t steps = k / rounds;
  const Expr *shape[] = {o->rows, o->columns};
  const IterVar *axis[2], *round;
  const Tensor *head;
  if (rounds == 2) {
    head = sum_part(o, "head", 0, steps, 1);
  } else {
    const Tensor *part = sum_part(o, "part", 0, steps, rounds - 1);
    const Expr *at[3];
    for (int d = 0; d < 2; d++) at[d + 1] = impl_axis(m, d ? "j" : "i", shape[d], ITER_SPATIAL, &axis[d]);
    at[0] = impl_axis(m, "round", expr_i32(m, rounds - 1), ITER_REDUCE, &round);
    const Expr *term = te_read(m, part, 3, at);
    const Expr *body =
        expr_reduce(m, reducer_named(m, "sum", term->dtype, DT_I32), 1, &term, 1, &round, expr_bool(m, true), NULL, 0);
    head = &te_compute(m, "head", "comm_reduce", 2, shape, axis, 1, &body, NULL)->out[0];
  }
  const Tensor *last = sum_part(o, "last", k - steps, steps, 1);
  const Expr *at[] = {impl_axis(m, "i", shape[0], ITER_SPATIAL, &axis[0]),
                      impl_axis(m, "j", shape[1], ITER_SPATIAL, &axis[1])};
  const Expr *value = expr_add(m, te_read(m, head, 2, at), te_read(m, last, 2, at));
  return &te_compute(m, "matmul", "injective", 2, shape, axis, 1, &value, NULL)->out[0];
}

/* Rounds of a product of known sizes whose panels cover the columns exactly; 1: any other. */
static int64_t product_rounds(const Target *t, int bits, int64_t rows, int64_t width, int64_t columns, int64_t k,
                              int64_t height)
{
  if (!rows || !k || !columns || columns % width) return 1;
  Tile tile = tile_best(t, alter_block_vectors(width, target_lanes(t, bits)), 1, 1, rows);
  return sum_rounds(t, bits, rows, height ? height : tile.x, width, columns, k, height > 0);
}

/* Rows of a panel of a; 0: it is read as it lies. */
static int64_t packed_height(const Target *t, int bits, int64_t rows, int64_t width, int64_t columns)
{
  int64_t lanes = target_lanes(t, bits);
  return width % lanes ? 0 : tile_packed_rows(t, bits, alter_block_vectors(width, lanes), columns / width, rows);
}

/* ---- the computation with b in panels ------------------------------------------------------------ */

/* b as (batch…, n / width, k, width), zeros behind the last column. */
static const Tensor *pack_panels(Module *m, const Tensor *b, bool turned, int64_t n, int64_t width)
{
  const Buffer *buf = b->buffer;
  int nd = buf->ndim;
  int batch = nd - 2;
  const Expr *shape[4], *at[4], *index[3];
  const Expr *w = expr_i32(m, width);
  const IterVar *axis[4];
  for (int d = 0; d < batch; d++) shape[d] = buf->shape[d];
  shape[batch] = expr_i32(m, (n + width - 1) / width);
  shape[batch + 1] = buf->shape[turned ? nd - 1 : nd - 2];
  shape[batch + 2] = w;
  static const char *const names[] = {"b", "panel", "k", "column"};
  for (int d = 0; d < nd + 1; d++) at[d] = impl_axis(m, names[d + 1 - batch], shape[d], ITER_SPATIAL, &axis[d]);
  for (int d = 0; d < batch; d++) index[d] = at[d];
  const Expr *column = expr_add(m, expr_mul(m, at[batch], w), at[batch + 2]);
  index[batch] = turned ? column : at[batch + 1];
  index[batch + 1] = turned ? at[batch + 1] : column;
  const Expr *value = te_read(m, b, nd, index);
  if (n % width)
    value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){expr_lt(m, column, expr_i32(m, n)), value, expr_const(m, buf->dtype, 0)});
  return &te_compute(m, "b_pack", "injective", nd + 1, shape, axis, 1, &value, NULL)->out[0];
}

/* A batch of products, b read as it lies; false: rows of a are not worth packing. */
static bool batch_packed(OpCall *c, const Target *t, const Product *p, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Type *ty = c->out;
  const Buffer *a = in[0]->buffer;
  const Buffer *b = in[1]->buffer;
  if (ty->ndim != 3 || a->ndim != 3 || b->ndim != 3 || p->ta || p->tb || !p->k) return false;
  int64_t height;
  if (!tile_packed_columns(t, ty->dtype.bits, p->n, p->m, &height)) return false;
  const IterVar *axis[3], *sum;
  const Expr *at[3];
  const Expr *h = expr_i32(m, height);
  const Expr *zero = expr_i32(m, 0);
  static const char *const names[] = {"b", "i", "j"};
  for (int d = 0; d < 3; d++) at[d] = impl_axis(m, names[d], ty->shape[d], ITER_SPATIAL, &axis[d]);
  const Expr *k = impl_axis(m, "k", a->shape[2], ITER_REDUCE, &sum);
  const Expr *from[] = {expr_is_int(a->shape[0], 1) ? zero : at[0], expr_floordiv(m, at[1], h), k,
                        expr_floormod(m, at[1], h)};
  const Expr *row[] = {expr_is_int(b->shape[0], 1) ? zero : at[0], k, at[2]};
  const Expr *term = expr_mul(m, te_read(m, matmul_pack_rows(m, in[0], height, 1), 4, from), te_read(m, in[1], 3, row));
  const Expr *body =
      expr_reduce(m, reducer_named(m, "sum", ty->dtype, DT_I32), 1, &term, 1, &sum, expr_bool(m, true), NULL, 0);
  *out = &te_compute(m, "matmul", "matmul", 3, ty->shape, axis, 1, &body, NULL)->out[0];
  return true;
}

void matmul_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  enum { MOST = 12 };
  Module *m = c->m;
  const Type *ty = c->out;
  Product p = product_of(c->op, c->attrs, c->arg[0], c->arg[1], ty);
  /* Rows of b are read as they lie while a few of them fit into the cache together. */
  bool panels_pay = p.tb || (p.m >= 32 && p.n * p.k * dtype_bytes(ty->dtype) > 2 * t->l1_bytes);
  if (!panels_pay && batch_packed(c, t, &p, in, out)) return;
  if (!panels_pay || ty->ndim > MOST) {
    c->op->compute(c, in, out);
    return;
  }
  int nd = ty->ndim;
  int nb = in[1]->buffer->ndim;
  int64_t rows;
  int64_t width = nd == 2 && !p.ta && p.k ? tile_packed_columns(t, ty->dtype.bits, p.n, p.m, &rows) : 0;
  if (!width) width = tile_columns(t, ty->dtype.bits, p.n);
  const Tensor *panels = pack_panels(m, in[1], p.tb, p.n, width);
  if (nd == 2 && !p.ta && p.k) {
    int64_t height = packed_height(t, ty->dtype.bits, p.m, width, p.n);
    int64_t rounds = product_rounds(t, ty->dtype.bits, p.m, width, p.n, p.k, height);
    Operands o = {m,     height ? matmul_pack_rows(m, in[0], height, 1) : in[0], panels, ty->shape[0], ty->shape[1],
                  height};
    *out = rounds > 1 ? sum_in_rounds(&o, p.k, rounds) : sum_part(&o, "matmul", 0, p.k, 1);
    return;
  }
  const IterVar *axis[MOST], *sum;
  const Expr *at[MOST], *a[MOST], *b[4];
  const Expr *w = expr_i32(m, width);
  for (int d = 0; d < nd; d++)
    at[d] = impl_axis(m, arena_printf(m->arena, "i%d", d), ty->shape[d], ITER_SPATIAL, &axis[d]);
  const Expr *k = impl_axis(m, "k", in[1]->buffer->shape[nb - (p.tb ? 1 : 2)], ITER_REDUCE, &sum);
  for (int d = 0; d < nd; d++) a[d] = expr_is_int(in[0]->buffer->shape[d], 1) && d < nd - 2 ? expr_i32(m, 0) : at[d];
  a[nd - 1] = k;
  if (p.ta) a[nd - 1] = at[nd - 2], a[nd - 2] = k;
  if (nb == 3) b[0] = expr_is_int(in[1]->buffer->shape[0], 1) ? expr_i32(m, 0) : at[0];
  b[nb - 2] = expr_floordiv(m, at[nd - 1], w);
  b[nb - 1] = k;
  b[nb] = expr_floormod(m, at[nd - 1], w);
  const Expr *term = expr_mul(m, te_read(m, in[0], nd, a), te_read(m, panels, nb + 1, b));
  const Reducer *add = reducer_named(m, "sum", ty->dtype, DT_I32);
  const Expr *body = expr_reduce(m, add, 1, &term, 1, &sum, expr_bool(m, true), NULL, 0);
  *out = &te_compute(m, "matmul", "matmul", nd, ty->shape, axis, 1, &body, NULL)->out[0];
}

/* Rows that nobody knows beforehand: whole tiles are computed, the last row again where there is none left, and only
 * what is wanted is stored. */
void matmul_pack_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  Module *m = c->m;
  const Type *ty = c->out;
  const Expr *rows = ty->shape[0];
  const Expr *columns = ty->shape[1];
  const Buffer *a = in[0]->buffer;
  const Buffer *b = in[1]->buffer;
  bool pairs = b->dtype.code == DT_UINT && b->dtype.bits == 32;
  bool blocks = b->ndim == 3 && known(b->shape[2]);
  bool plain = blocks && dtype_eq(a->dtype, ty->dtype) && dtype_eq(b->dtype, ty->dtype) && ty->dtype.bits >= 32;
  int64_t k_all = known(b->shape[1]);
  int64_t width = known(b->shape[b->ndim - 1]);
  int64_t height =
      (plain || (blocks && pairs)) && k_all ? packed_height(t, ty->dtype.bits, known(rows), width, known(columns)) : 0;
  int64_t rounds =
      plain || height ? product_rounds(t, ty->dtype.bits, known(rows), width, known(columns), k_all, height) : 1;
  if (rounds > 1 || height) {
    Operands o = {m, height ? matmul_pack_rows(m, in[0], height, pairs ? 2 : 1) : in[0], in[1], rows, columns, height};
    *out = rounds > 1 ? sum_in_rounds(&o, k_all, rounds) : sum_part(&o, "dense_pack", 0, k_all, 1);
    return;
  }
  if (known(rows) || !plain) {
    c->op->compute(c, in, out);
    return;
  }
  const Expr *w = b->shape[2];
  int64_t whole = tile_best(t, alter_block_vectors(width, target_lanes(t, ty->dtype.bits)), 1, 1, MANY_ROWS).x;
  const Expr *x = expr_i32(m, whole);
  const Expr *tiles = expr_floordiv(m, expr_add(m, rows, expr_i32(m, whole - 1)), x);
  const Expr *shape[] = {expr_mul(m, tiles, x), columns};
  const IterVar *axis[2], *copy[2], *sum;
  const Expr *i = impl_axis(m, "i", shape[0], ITER_SPATIAL, &axis[0]);
  const Expr *j = impl_axis(m, "j", columns, ITER_SPATIAL, &axis[1]);
  const Expr *k = impl_axis(m, "k", b->shape[1], ITER_REDUCE, &sum);
  const Expr *at[] = {expr_min(m, i, expr_sub(m, rows, expr_i32(m, 1))), k};
  const Expr *from[] = {expr_floordiv(m, j, w), k, expr_floormod(m, j, w)};
  const Expr *term = expr_mul(m, te_read(m, in[0], 2, at), te_read(m, in[1], 3, from));
  const Expr *body =
      expr_reduce(m, reducer_named(m, "sum", ty->dtype, DT_I32), 1, &term, 1, &sum, expr_bool(m, true), NULL, 0);
  const Tensor *all = &te_compute(m, "tiles", "matmul", 2, shape, axis, 1, &body, NULL)->out[0];
  const Expr *here[] = {impl_axis(m, "i", rows, ITER_SPATIAL, &copy[0]),
                        impl_axis(m, "j", columns, ITER_SPATIAL, &copy[1])};
  const Expr *value = te_read(m, all, 2, here);
  *out = &te_compute(m, "dense_pack", "injective", 2, ty->shape, copy, 1, &value, NULL)->out[0];
}

/* ---- the schedule ------------------------------------------------------------------------------------ */

/* The packed copy of a; NULL: it is read as it lies. */
static const Buffer *packed_rows(ImplGroup *g)
{
  BlockRV packing;
  return group_find_stage(g, "a_pack", &packing) ? sched_block_stmt(g->s, packing)->u.block->writes[0].buffer : NULL;
}

/* Columns of a panel: as the packed operand has them, else by the target. */
static int64_t panel_width(ImplGroup *g, const Nest *n, int64_t columns)
{
  for (int a = 0; a < n->naccess; a++) {
    const Buffer *b = n->access[a].buffer;
    if (!n->access[a].write && b != n->access[0].buffer && n->loop[n->n - 2].stride[a] == STRIDE_ANY)
      return known(b->shape[b->ndim - 1]);
  }
  int64_t height;
  int64_t packed =
      packed_rows(g) ? tile_packed_columns(g->target, n->bits, columns, n->loop[n->n - 3].extent, &height) : 0;
  return packed ? packed : tile_columns(g->target, n->bits, columns ? columns : 1024);
}

static void schedule_packing(ImplGroup *g)
{
  BlockRV packing;
  if (!group_find_stage(g, "a_pack", &packing)) return;
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, packing, n);
  panels_turn(g, packing);
  if (cost_threads(g->target, 0, 8.0 * n->iterations) > 1) sched_parallel(g->s, n->loop[0].rv);
}

/* Where rows are packed, both panels are fetched a little before; a batch reads b as it lies. */
static void fetch_ahead(ImplGroup *g, BlockRV product, LoopRV step)
{
  const Buffer *rows = packed_rows(g);
  if (rows && step.id >= 0) panels_fetch(g, product, step, rows->ndim > 3 ? rows : NULL);
}

/* What the loop reads of the panels so many steps later comes in from memory: the next panel, while this one is
 * multiplied. */
static void fetch_next_panel(ImplGroup *g, BlockRV product, LoopRV loop, int64_t distance)
{
  const Buffer *rows = packed_rows(g);
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  for (int i = 0; i < b->nreads; i++) {
    const Buffer *r = b->reads[i].buffer;
    if (r->ndim != 3 || r == rows || known(r->shape[0]) < 4) continue;
    group_prefetch(g, product, i, loop, distance);
    return;
  }
}

/* Which of the product's reads is that of rows which collide; -1: none. */
static int colliding_read(ImplGroup *g, BlockRV product, int bits, int64_t tile_rows)
{
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  for (int i = 0; i < b->nreads; i++) {
    const Buffer *a = b->reads[i].buffer;
    if (a->ndim == 2 && a != b->writes[0].buffer && rows_collide(g->target, bits, tile_rows, known(a->shape[1])))
      return i;
  }
  return -1;
}

/* The rows of a that the block reads inside the loop, copied so that they are an odd number of cache lines apart: lines
 * of a tile's rows then lie in different sets of the first-level cache, whatever the sum's length. */
static void copy_rows(ImplGroup *g, BlockRV product, int read, int bits, LoopRV at, bool parallel)
{
  int line = CACHE_LINE / (bits / 8);
  BlockRV copy = sched_cache_read(g->s, product, read, "global", 1, &product);
  sched_compute_at(g->s, copy, at, false, -1);
  sched_storage_align(g->s, copy, 0, 0, 2 * line, line);
  LoopRV *loop, inner;
  int n = sched_get_loops(g->s, copy, g->arena, &loop);
  generic_split_by(g, loop[n - 1], line, &inner);
  sched_vectorize(g->s, inner);
  if (parallel) sched_parallel(g->s, loop[n - 2]);
}

/* What a product is part of. */
typedef enum { WHOLE, HEAD, LAST } Share;

/* The tile goes to memory as it is. */
static BlockRV store_tile(ImplGroup *g, BlockRV product, LoopRV at)
{
  BlockRV store = sched_cache_write(g->s, product, 0, "local", 0, NULL);
  sched_reverse_compute_at(g->s, store, at, true, -1);
  return store;
}

static void write_tile(ImplGroup *g, BlockRV store, int outer)
{
  LoopRV *out;
  int n = sched_get_loops(g->s, store, g->arena, &out);
  bool open = false;
  for (int i = outer; i < n - 1; i++) open |= !known(sched_loop_stmt(g->s, out[i])->u.loop.extent);
  if (open) sched_vectorize(g->s, out[n - 1]);
  else epilogue_write_out(g, store, outer, true);
}

static Tile product_tile(ImplGroup *g, int64_t vectors, int64_t rows)
{
  const Buffer *packed = packed_rows(g);
  return packed ? (Tile){1, 1, known(packed->shape[packed->ndim - 1])} : tile_best(g->target, vectors, 1, 1, rows);
}

/* batch…, column panels, row tiles, steps of the sum, the tile; the epilogue on the tile, but for the head. */
static void schedule_product(ImplGroup *g, BlockRV product, Share share)
{
  /* bytes: what comes into the cache by itself ends with the page */
  enum { AHEAD = 4096 };
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, product, n);
  int ns = n->n - 1; /* spatial loops; the last loop is the sum's */
  if (ns < 1 || !n->plain || !n->loop[ns].reduce)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, sum");
  int64_t rows = ns > 1 ? n->loop[ns - 2].extent : 1;
  int64_t columns = n->loop[ns - 1].extent;
  int64_t width = panel_width(g, n, columns);
  int64_t lanes = target_lanes(g->target, n->bits);
  int64_t vectors = alter_block_vectors(width, lanes);
  Tile tile = product_tile(g, vectors, rows ? rows : MANY_ROWS);
  bool threads = cost_threads(g->target, 2 * n->iterations, 0) > 1;
  LoopRV order[NEST_LOOPS + 4];
  LoopRV ri = {-1};
  LoopRV ci;
  LoopRV step = {-1};
  int k = 0;
  int outer;
  for (int i = 0; i < ns - 2; i++) order[k++] = n->loop[i].rv;
  LoopRV co = generic_split_by(g, n->loop[ns - 1].rv, width, &ci);
  LoopRV ro = ns > 1 ? generic_split_by(g, n->loop[ns - 2].rv, tile.x, &ri) : co;
  /* The loop with a tail stands inside, so that the threads share whole tiles. */
  bool row_tail = !rows || rows % tile.x;
  bool column_tail = !columns || columns % width;
  bool rows_first = ns > 1 && column_tail && !row_tail;
  order[k++] = rows_first ? ro : co;
  if (ns > 1) order[k++] = rows_first ? co : ro;
  outer = k;
  int64_t steps = n->loop[ns].extent ? tile_steps(tile.x * vectors, n->loop[ns].extent) : 1;
  order[k++] = steps > 1 ? generic_split_by(g, n->loop[ns].rv, steps, &step) : n->loop[ns].rv;
  if (steps > 1) order[k++] = step;
  if (ns > 1) order[k++] = ri;
  order[k++] = ci;
  sched_reorder(g->s, k, order);
  write_tile(
      g, share == HEAD ? store_tile(g, product, order[outer - 1]) : impl_attach_epilogue(g, product, order[outer - 1]),
      outer);
  if (step.id >= 0) sched_unroll(g->s, step);
  if (ns > 1) sched_unroll(g->s, ri);
  sched_vectorize(g->s, ci);
  sched_decompose_reduction(g->s, product, order[outer]);
  int read = share == WHOLE ? -1 : colliding_read(g, product, n->bits, tile.x);
  if (read >= 0)
    copy_rows(g, product, read, n->bits, sched_add_unit_loop(g->s, (SchedArg){.kind = SA_LOOP, .u.i = order[0].id}),
              threads);
  int shared = outer;
  if (ns > 1 && (row_tail || column_tail)) shared--;
  if (shared > 1 && threads) order[0] = sched_fuse(g->s, shared, order, true);
  if (threads) sched_parallel(g->s, order[0]);
  fetch_ahead(g, product, step);
  if (ns != 2 || !rows || rows_first) return;
  if (rows > tile.x) fetch_next_panel(g, product, order[0], shared > 1 && threads ? (rows + tile.x - 1) / tile.x : 1);
  else if (g->target->broadcast_load) {
    /* the panels are read straight ahead, once; with one row NEON's cores see that themselves */
    fetch_next_panel(g, product, order[outer], AHEAD / (steps * width * n->bits / 8) + 1);
  }
}

/* rounds, column panels, row tiles: the round's part of a tile is made in registers and added to the head in memory. */
static void schedule_parts(ImplGroup *g, BlockRV head, BlockRV part)
{
  Nest *h = arena_new_of(g->arena, Nest);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, head, h);
  nest_read(g, part, n);
  if (h->n != 3 || n->n != 4 || !h->plain || !n->plain)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rounds, rows, columns, sum");
  int64_t rows = h->loop[0].extent;
  int64_t width = panel_width(g, n, h->loop[1].extent);
  int64_t vectors = alter_block_vectors(width, target_lanes(g->target, n->bits));
  Tile tile = product_tile(g, vectors, rows);
  int64_t steps = tile_steps(tile.x * vectors, n->loop[3].extent);
  bool threads = cost_threads(g->target, 2 * n->iterations, 0) > 1;
  bool tail = rows % tile.x != 0;
  LoopRV ri, ci, step;
  LoopRV round = h->loop[2].rv;
  LoopRV ro = generic_split_by(g, h->loop[0].rv, tile.x, &ri);
  LoopRV co = generic_split_by(g, h->loop[1].rv, width, &ci);
  LoopRV *loop;
  sched_reorder(g->s, 5, (const LoopRV[]){round, co, ro, ri, ci});
  sched_compute_at(g->s, part, ro, true, -1);
  sched_set_scope(g->s, part, 0, "local");
  /* round, panel, tile; the round again, rows, columns, sum */
  sched_get_loops(g->s, part, g->arena, &loop);
  LoopRV sum = generic_split_by(g, loop[6], steps, &step);
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, loop[4], loop[5]});
  sched_unroll(g->s, step);
  sched_unroll(g->s, loop[4]);
  sched_vectorize(g->s, loop[5]);
  sched_decompose_reduction(g->s, part, sum);
  sched_unroll(g->s, ri);
  sched_vectorize(g->s, ci);
  generic_block(g, sched_decompose_reduction(g->s, head, round), 0, true);
  int read = colliding_read(g, part, n->bits, tile.x);
  if (read >= 0) copy_rows(g, part, read, n->bits, round, threads);
  LoopRV shared = threads && !tail ? sched_fuse(g->s, 2, (const LoopRV[]){co, ro}, true) : co;
  if (threads) sched_parallel(g->s, shared);
  fetch_ahead(g, part, step);
  fetch_next_panel(g, part, shared, threads && !tail ? rows / tile.x : 1);
}

void matmul_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV head, part;
  bool has_head = group_find_stage(g, "head", &head);
  if (has_head && group_find_stage(g, "part", &part)) schedule_parts(g, head, part);
  else if (has_head) schedule_product(g, head, HEAD);
  schedule_product(g, group_sum(g), has_head ? LAST : WHOLE);
  schedule_packing(g);
  generic_rest(g);
}
