/* nn_winograd_blocked.c: Winograd's convolution over blocks of channels.
 *
 *   data    (n, C/c, h, w, c)                    NCHW16c
 *   weight  (alpha, alpha, O/o, C/groups, o)     transformed before, vectors of output channels
 *      or   (O/o, C/groups, 3, 3, o)             OIHW16o, transformed in every call: a quarter of the memory or less
 *   result  (n, O/o, h', w', o)
 *
 * Both transformations go along one dimension at a time.  An element is a sum over a row of a
 * constant matrix, without its zeros: which row is chosen by the index, which a schedule
 * writes out.  Points come in pairs x and -x, so two rows of b differ in the signs of every other column, and two
 * columns of a in the signs of every other row: half of each pair's work is the same, and written so that it is found
 * to be.  Stages: data_pad, data_rows, data_tiles, (weight_rows, weight_tiles,) bgemm, out_rows, out_tiles,
 * conv2d_winograd.
 *
 * What lies between the stages has its points outermost where the weight has: a point's product comes after the
 * other's.  Where the weight is transformed in the call, a block of it at a time, all points of a block of channels lie
 * together. */
#include "op/nn_kit.h"

#include <math.h>

typedef struct Blocked {
  WinogradMatrices q;
  int64_t before[2], after[2], cb, ob, groups;
  const Expr *part, *own; /* blocks of a group: of data, of the result */
  bool transformed;       /* the weight, before the call */
  /* places of the points and of the block of channels in what lies between the stages */
  int eps, nu, block;
  const Expr *n, *co, *oo, *in[2], *out[2], *tiles[2];
  const Expr *p, *rounded; /* tiles of all images; those that there are products of */
  DType dtype;
} Blocked;

static int64_t block_of(OpCall *c, const char *attribute, const char *text)
{
  Layout l = nn_layout(c, attribute, text);
  if (l.n != 5 || strcmp((char[]){l.letter[0], l.letter[1], l.letter[2], l.letter[3], l.letter[4], 0}, "NCHWc"))
    opdef_raise(c, ERR_ARGUMENT, "%s '%s' is not of the form NCHW16c", attribute, text);
  return l.factor[4];
}

/* Each group has blocks of its own. */
static void blocked_groups(OpCall *c, int64_t groups, Blocked *v)
{
  if (groups < 1) opdef_raise(c, ERR_ARGUMENT, "groups is %" PRId64 ", it must be positive", groups);
  if (groups > 1 && (v->co->kind != E_INT || v->oo->kind != E_INT || v->co->u.i % groups || v->oo->u.i % groups))
    opdef_raise(c, ERR_UNSUPPORTED,
                "data %s and weight %s do not have whole blocks of channels for each of %" PRId64 " groups",
                nn_arg_shape(c, 0), nn_arg_shape(c, 1), groups);
  v->groups = groups;
  v->part = groups > 1 ? expr_int(c->m, v->co->dtype, v->co->u.i / groups) : v->co;
  v->own = groups > 1 ? expr_int(c->m, v->oo->dtype, v->oo->u.i / groups) : v->oo;
}

static Blocked blocked_of(OpCall *c)
{
  const WinogradAttrs *a = c->attrs;
  nn_want_rank(c, 0, "data", 5);
  nn_want_rank(c, 1, "weight", 5);
  const Type *x = c->arg[0];
  const Type *k = c->arg[1];
  Blocked v = {.n = x->shape[0],
               .co = x->shape[1],
               .oo = k->shape[a->transformed ? 2 : 0],
               .transformed = a->transformed,
               .eps = a->transformed ? 0 : 1,
               .nu = a->transformed ? 1 : 2,
               .block = a->transformed ? 2 : 0,
               .in = {x->shape[2], x->shape[3]},
               .dtype = x->dtype};
  v.cb = block_of(c, "data_layout", a->data_layout);
  v.ob = block_of(c, "out_layout", *a->out_layout ? a->out_layout : a->data_layout);
  int64_t r[2];
  nn_ints(c, "kernel_size", a->kernel_size, 2, 3, 1, r);
  if (r[0] != r[1]) opdef_raise(c, ERR_UNSUPPORTED, "kernel_size (%" PRId64 ", %" PRId64 ") is not square", r[0], r[1]);
  blocked_groups(c, a->groups, &v);
  if (!nn_winograd_matrices((int)a->tile_size, (int)r[0], v.dtype, !v.transformed, &v.q))
    opdef_raise(c, ERR_UNSUPPORTED, "tile_size %" PRId64 " is not supported", a->tile_size);
  nn_padding(c, a->padding, 2, v.before, v.after);
  const Expr *channels = nn_simplify(c->m, expr_mul(c->m, v.part, expr_i32(c->m, v.cb)));
  const Expr *points = expr_i32(c->m, v.transformed ? v.q.alpha : v.q.r);
  int first = v.transformed ? 0 : 2; /* of the two dimensions of points or taps */
  if (nn_dims_differ(c->m, channels, k->shape[v.transformed ? 3 : 1]) ||
      nn_dims_differ(c->m, k->shape[first], points) || nn_dims_differ(c->m, k->shape[first + 1], points) ||
      nn_dims_differ(c->m, k->shape[4], expr_i32(c->m, v.ob)))
    opdef_raise(c, ERR_SHAPE, "weight %s does not fit data %s with tiles of %" PRId64, nn_arg_shape(c, 1),
                nn_arg_shape(c, 0), a->tile_size);
  static const char *const names[] = {"height", "width"};
  for (int d = 0; d < 2; d++) {
    v.out[d] = nn_windows(c, names[d], v.in[d], r[d], 1, 1, v.before[d], v.after[d]);
    v.tiles[d] = nn_simplify(c->m, nn_ceildiv(c->m, v.out[d], expr_i32(c->m, v.q.tile)));
  }
  v.p = v.rounded = nn_simplify(c->m, expr_mul(c->m, v.n, expr_mul(c->m, v.tiles[0], v.tiles[1])));
  return v;
}

static const Type *blocked_type(OpCall *c)
{
  Blocked v = blocked_of(c);
  return type_tensor(c->m, v.dtype, 5, (const Expr *[]){v.n, v.oo, v.out[0], v.out[1], expr_i32(c->m, v.ob)});
}

/* ---- rows of the matrices ----------------------------------------------------------------------------- */

typedef struct Term {
  double f;
  const Expr *e;
} Term;

static int term_rank(double f) { return f == 1 ? 0 : f > 0 ? 1 : 2; }

/* A term without a factor comes first: the others are multiply-adds to it. */
static const Expr *sum_terms(Module *m, DType t, int n, const Term *term)
{
  int first = 0;
  for (int i = 1; i < n; i++)
    if (term_rank(term[i].f) < term_rank(term[first].f)) first = i;
  if (n == 0) return expr_const(m, t, 0);
  const Expr *sum = term[first].f == 1 ? term[first].e : expr_mul(m, term[first].e, expr_const(m, t, term[first].f));
  for (int i = 0; i < n; i++) {
    if (i == first) continue;
    double f = term[i].f < 0 ? -term[i].f : term[i].f;
    const Expr *e = f == 1 ? term[i].e : expr_mul(m, term[i].e, expr_const(m, t, f));
    sum = term[i].f < 0 ? expr_sub(m, sum, e) : expr_add(m, sum, e);
  }
  return sum;
}

/* A column that differs from column j by signs alone, in some rows by both; -1: none. */
static int paired_column(double (*v)[WINOGRAD_MAX], int rows, int n, int j)
{
  for (int p = 0; p < n; p++) {
    int same = 0;
    int opposite = 0;
    int apart = p == j;
    for (int r = 0; r < rows; r++) {
      same += v[r][p] == v[r][j] && v[r][j] != 0;
      opposite += v[r][p] == -v[r][j] && v[r][j] != 0;
      apart += v[r][p] != v[r][j] && v[r][p] != -v[r][j];
    }
    if (!apart && same && opposite) return p;
  }
  return -1;
}

/* Is there a row that differs from this one in the signs of the odd columns, or of the even ones? */
static bool has_paired_row(double (*v)[WINOGRAD_MAX], int rows, int n, int row)
{
  for (int r = 0; r < rows; r++) {
    bool even = r != row;
    bool odd = r != row;
    for (int j = 0; j < n; j++) {
      even &= v[r][j] == (j % 2 ? v[row][j] : -v[row][j]);
      odd &= v[r][j] == (j % 2 ? -v[row][j] : v[row][j]);
    }
    if (even || odd) return true;
  }
  return false;
}

/* The part of a row over its even or odd columns, as a factor and a sum that the paired row has too. */
static bool half_row(Module *m, DType t, const double *row, int n, int parity, const Expr *const *e, Term *out)
{
  Term term[WINOGRAD_MAX];
  int k = 0;
  double f = 0;
  for (int j = parity; j < n; j += 2)
    if (row[j] != 0) {
      term[k++] = (Term){row[j], e[j]};
      if (f == 0 || fabs(row[j]) <= fabs(f)) f = row[j];
    }
  for (int i = 0; i < k; i++) term[i].f /= f;
  if (k) *out = (Term){f, sum_terms(m, t, k, term)};
  return k > 0;
}

/* Row `row` of a matrix times the elements e[0 … n): zeros left out, ones not multiplied, sums that two rows have in
 * common written the same way in both. */
static const Expr *row_sum(Module *m, DType t, double (*v)[WINOGRAD_MAX], int rows, int n, int row,
                           const Expr *const *e)
{
  Term term[WINOGRAD_MAX];
  int k = 0;
  if (has_paired_row(v, rows, n, row)) {
    for (int parity = 0; parity < 2; parity++) k += half_row(m, t, v[row], n, parity, e, &term[k]);
    return sum_terms(m, t, k, term);
  }
  for (int j = 0; j < n; j++) {
    int p = paired_column(v, rows, n, j);
    if (v[row][j] == 0 || (p >= 0 && p < j)) continue;
    const Expr *both = p < 0 ? e[j] : v[row][p] == v[row][j] ? expr_add(m, e[j], e[p]) : expr_sub(m, e[j], e[p]);
    term[k++] = (Term){v[row][j], both};
  }
  return sum_terms(m, t, k, term);
}

const Expr *nn_winograd_row(Module *m, DType t, double (*v)[WINOGRAD_MAX], int rows, int n, const Expr *at,
                            const Expr *const *e)
{
  const Expr *value = row_sum(m, t, v, rows, n, rows - 1, e);
  for (int i = rows - 2; i >= 0; i--)
    value = expr_select(m, expr_binary(m, E_EQ, at, expr_i32(m, i)), row_sum(m, t, v, rows, n, i, e), value);
  return value;
}

/* ---- the stages --------------------------------------------------------------------------------------- */

/* The indices of what lies between the stages, in the order in which it lies. */
static void place(const Blocked *v, const Expr *eps, const Expr *nu, const Expr *block, const Expr *p, const Expr *lane,
                  const Expr **at)
{
  at[v->eps] = eps, at[v->nu] = nu, at[v->block] = block, at[3] = p, at[4] = lane;
}

static Stage between(Module *m, const Blocked *v, const Expr *blocks, int64_t lanes, const char *names)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *shape[5];
  place(v, alpha, alpha, blocks, v->rounded, expr_i32(m, lanes), shape);
  return nn_stage(m, 5, shape, names);
}

static const Tensor *pad_tiles(Module *m, Blocked *v, const Tensor *x)
{
  const Expr *shape[5] = {v->n, v->co, NULL, NULL, expr_i32(m, v->cb)};
  const Expr *index[5];
  const Expr *cond = NULL;
  for (int d = 0; d < 2; d++)
    shape[2 + d] =
        nn_simplify(m, expr_add(m, expr_mul(m, v->tiles[d], expr_i32(m, v->q.tile)), expr_i32(m, v->q.r - 1)));
  Stage s = nn_stage(m, 5, shape, NULL);
  for (int d = 0; d < 5; d++) index[d] = s.at[d];
  for (int d = 0; d < 2; d++) {
    index[2 + d] = expr_sub(m, s.at[2 + d], expr_i32(m, v->before[d]));
    cond = nn_and(m, cond, nn_inside(m, index[2 + d], v->in[d]));
  }
  return nn_finish(&s, "data_pad", "injective,pad", nn_if(m, cond, nn_read(m, x, index), expr_const(m, v->dtype, 0)));
}

static const Tensor *transform_data(Module *m, Blocked *v, const Tensor *pad)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *tile = expr_i32(m, v->q.tile);
  const Expr *cb = expr_i32(m, v->cb);
  const Expr *e[WINOGRAD_MAX] = {0};
  Stage s = nn_stage(m, 5, (const Expr *[]){v->co, v->rounded, alpha, alpha, cb}, "co p eps j ci");
  const Expr *p = s.at[1];
  if (v->rounded != v->p) p = expr_min(m, p, expr_sub(m, v->p, expr_i32(m, 1)));
  const Expr *w = expr_floormod(m, p, v->tiles[1]);
  const Expr *h = expr_floordiv(m, p, v->tiles[1]);
  const Expr *n = expr_floordiv(m, h, v->tiles[0]);
  h = expr_floormod(m, h, v->tiles[0]);
  for (int i = 0; i < v->q.alpha; i++)
    e[i] = nn_read(m, pad,
                   (const Expr *[]){nn_index(&s, n), s.at[0],
                                    nn_index(&s, expr_add(m, expr_mul(m, h, tile), expr_i32(m, i))),
                                    nn_index(&s, expr_add(m, expr_mul(m, w, tile), s.at[3])), s.at[4]});
  const Tensor *rows = nn_finish(&s, "data_rows", "winograd_rows",
                                 nn_winograd_row(m, v->dtype, v->q.b, v->q.alpha, v->q.alpha, s.at[2], e));
  Stage t = between(m, v, v->co, v->cb, v->transformed ? "eps nu co p ci" : "co eps nu p ci");
  for (int i = 0; i < v->q.alpha; i++)
    e[i] = nn_read(m, rows, (const Expr *[]){t.at[v->block], t.at[3], t.at[v->eps], expr_i32(m, i), t.at[4]});
  return nn_finish(&t, "data_tiles", "winograd_tiles",
                   nn_winograd_row(m, v->dtype, v->q.b, v->q.alpha, v->q.alpha, t.at[v->nu], e));
}

/* (oo, eps, c, nu, oi) */
static const Tensor *transform_weight(Module *m, Blocked *v, const Tensor *w)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *channels = w->buffer->shape[1];
  const Expr *ob = expr_i32(m, v->ob);
  const Expr *e[WINOGRAD_MAX] = {0};
  Stage s = nn_stage(m, 5, (const Expr *[]){v->oo, channels, alpha, expr_i32(m, v->q.r), ob}, "oo c eps k oi");
  for (int i = 0; i < v->q.r; i++)
    e[i] = nn_read(m, w, (const Expr *[]){s.at[0], s.at[1], expr_i32(m, i), s.at[3], s.at[4]});
  const Tensor *rows = nn_finish(&s, "weight_rows", "winograd_rows",
                                 nn_winograd_row(m, v->dtype, v->q.g, v->q.alpha, v->q.r, s.at[2], e));
  Stage t = nn_stage(m, 5, (const Expr *[]){v->oo, alpha, channels, alpha, ob}, "oo eps c nu oi");
  for (int i = 0; i < v->q.r; i++)
    e[i] = nn_read(m, rows, (const Expr *[]){t.at[0], t.at[2], t.at[1], expr_i32(m, i), t.at[4]});
  return nn_finish(&t, "weight_tiles", "winograd_tiles",
                   nn_winograd_row(m, v->dtype, v->q.g, v->q.alpha, v->q.r, t.at[3], e));
}

static const Tensor *multiply_tiles(Module *m, Blocked *v, const Tensor *u, const Tensor *x)
{
  const Expr *cb = expr_i32(m, v->cb);
  const Expr *at[5];
  Stage s = between(m, v, v->oo, v->ob, v->transformed ? "eps nu oo p oi" : "oo eps nu p oi");
  const Expr *eps = s.at[v->eps];
  const Expr *nu = s.at[v->nu];
  const Expr *oo = s.at[v->block];
  const Expr *co = nn_reduce_axis(&s, "rco", v->part);
  const Expr *ci = nn_reduce_axis(&s, "rci", cb);
  const Expr *channel = expr_add(m, expr_mul(m, co, cb), ci);
  const Expr *w = v->transformed ? nn_read(m, u, (const Expr *[]){eps, nu, oo, channel, s.at[4]})
                                 : nn_read(m, u, (const Expr *[]){oo, eps, channel, nu, s.at[4]});
  if (v->groups > 1) co = nn_index(&s, expr_add(m, expr_mul(m, expr_floordiv(m, oo, v->own), v->part), co));
  place(v, eps, nu, co, s.at[3], ci, at);
  DType t = nn_accumulator(v->dtype);
  return nn_sum(&s, "bgemm", "winograd_bgemm", expr_mul(m, expr_cast(m, t, nn_read(m, x, at)), expr_cast(m, t, w)),
                v->dtype);
}

static const Tensor *transform_output(Module *m, Blocked *v, const Tensor *product)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *tile = expr_i32(m, v->q.tile);
  const Expr *ob = expr_i32(m, v->ob);
  const Expr *e[WINOGRAD_MAX] = {0};
  Stage s = nn_stage(m, 5, (const Expr *[]){v->oo, v->p, tile, alpha, ob}, "oo p vh nu oi");
  for (int i = 0; i < v->q.alpha; i++) {
    const Expr *at[5];
    place(v, expr_i32(m, i), s.at[3], s.at[0], s.at[1], s.at[4], at);
    e[i] = nn_read(m, product, at);
  }
  const Tensor *rows = nn_finish(&s, "out_rows", "winograd_rows",
                                 nn_winograd_row(m, v->dtype, v->q.a, v->q.tile, v->q.alpha, s.at[2], e));
  Stage t = nn_stage(m, 5, (const Expr *[]){v->oo, v->p, tile, tile, ob}, "oo p vh vw oi");
  for (int i = 0; i < v->q.alpha; i++)
    e[i] = nn_read(m, rows, (const Expr *[]){t.at[0], t.at[1], t.at[2], expr_i32(m, i), t.at[4]});
  return nn_finish(&t, "out_tiles", "winograd_tiles",
                   nn_winograd_row(m, v->dtype, v->q.a, v->q.tile, v->q.alpha, t.at[3], e));
}

void nn_winograd_blocked(OpCall *c, int64_t multiple, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Blocked v = blocked_of(c);
  const Expr *by = expr_i32(m, multiple);
  if (multiple > 1) v.rounded = nn_simplify(m, expr_mul(m, nn_ceildiv(m, v.p, by), by));
  const Tensor *x = transform_data(m, &v, pad_tiles(m, &v, in[0]));
  const Tensor *y =
      transform_output(m, &v, multiply_tiles(m, &v, v.transformed ? in[1] : transform_weight(m, &v, in[1]), x));
  const Expr *tile = expr_i32(m, v.q.tile);
  Stage s = nn_stage(m, 5, c->out->shape, "n oo h w oi");
  const Expr *row = expr_add(m, expr_mul(m, s.at[0], v.tiles[0]), expr_floordiv(m, s.at[2], tile));
  const Expr *p = expr_add(m, expr_mul(m, row, v.tiles[1]), expr_floordiv(m, s.at[3], tile));
  const Expr *at[] = {s.at[1], nn_index(&s, p), expr_floormod(m, s.at[2], tile), expr_floormod(m, s.at[3], tile),
                      s.at[4]};
  *out = nn_finish(&s, "conv2d_winograd", "conv2d_NCHWc_winograd", nn_read(m, y, at));
}

static void blocked_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  nn_winograd_blocked(c, 1, in, out);
}

/* As of the convolution of 3 x 3 taps that it stands for. */
static double blocked_flops(const Node *call)
{
  const WinogradAttrs *a = call->u.call.attrs;
  return 2 * type_known_elements(call->type) * type_known_dim(call->arg[1]->type, a->transformed ? 3 : 1) * 9;
}

/* A product for each point of each tile. */
static double blocked_flops_done(const Node *call)
{
  const WinogradAttrs *a = call->u.call.attrs;
  double tiles = type_known_dim(call->type, 0) * ceil(type_known_dim(call->type, 2) / (double)a->tile_size) *
                 ceil(type_known_dim(call->type, 3) / (double)a->tile_size);
  double per_tap = (double)((a->tile_size + 2) * (a->tile_size + 2)) / 9;
  double points = a->transformed ? 1 : per_tap; /* of an element of the weight */
  return 2 * type_known_elements(call->arg[1]->type) * points * tiles;
}

const OpDef op_nn_contrib_conv2d_winograd_nchwc = {
  .name = "nn.contrib_conv2d_winograd_NCHWc",
  .doc = "convolution over blocks of channels by Winograd's algorithm, the weight transformed before or as it is",
  .args = "data, weight",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Winograd_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = blocked_type,
  .compute = blocked_compute,
  .flops = blocked_flops,
  .flops_done = blocked_flops_done,
};
