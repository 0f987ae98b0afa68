/* conv_transpose.c: transposed convolutions over blocks of channels, phase by phase.
 *
 * Output u = y + before gets data[q - j] * weight[p + stride * j] with q = u / stride and p = u % stride: all outputs
 * of one phase p are a plain convolution with every stride-th tap, and no zero between the data's elements is ever
 * multiplied.  Where the stride does not divide the kernel, later phases have a tap less; the term of a tap
 * that is not there is -0, which adds nothing, and goes when the phases are written out.
 *
 *   for n, output channel block, row q                         threads
 *     for each phase of rows, x (tiles of q), each phase of columns
 *       tile[to, tx, c] = sum over input channel block, j, input channel       registers
 *       epilogue on the tile, store */
#include "impl/internal.h"
#include "op/nn_kit.h"

#define PHASES_PLAN(A, S)                                              \
  A(S, INT, data_block, NULL, "channels of a block of data; 0: plain") \
  A(S, INT, out_block, NULL, "channels of a block of the output")
DEFINE_PLAN(PhasesPlan, PHASES_PLAN)

enum { MOST_PHASES = 16 };

typedef struct Phases {
  int dims;
  int64_t groups, ig, og, cb, ob; /* cb 0: plain data */
  int64_t k[3], stride[3], before[3], taps[3];
} Phases;

static const Conv2DTransposeAttrs *attrs_of(const Node *call) { return call->u.call.attrs; }

static int64_t one_of(AttrInts list, int d, int64_t def) { return list.n == 0 ? def : list.v[list.n == 1 ? 0 : d]; }

/* Outputs between those that the same tap of neighbouring elements meets.  A single element has no neighbours: each of
 * its outputs has one tap. */
static int64_t phases_along(const Conv2DTransposeAttrs *a, const Type *x, const Type *w, int d)
{
  int64_t stride = one_of(a->strides, d, 1);
  int64_t k = w->shape[2 + d]->kind == E_INT ? w->shape[2 + d]->u.i : 1;
  return expr_is_int(x->shape[2 + d], 1) && k > stride && k <= 4 ? k : stride;
}

/* ---- plans --------------------------------------------------------------------------------------- */

/* No dilation, and so few phases of different taps that each can have its own code. */
static bool is_phased(const Node *call, const ConvShape *s)
{
  int64_t phases = 1;
  for (int d = 0; d < s->dims; d++) {
    int64_t along = phases_along(attrs_of(call), call->arg[0]->type, call->arg[1]->type, d);
    if (s->dilation[d] != 1 || !s->in[d] || !s->out[d]) return false;
    if (s->k[d] % along) phases *= along;
  }
  return phases <= MOST_PHASES;
}

static double phases_seconds(const ImplCall *call, const ConvShape *s, const PhasesPlan *p)
{
  static const double REACHED = 0.85; /* of what the tile could: each phase stores apart from the others */
  const Target *t = call->target;
  int64_t vectors = alter_block_vectors(p->out_block, target_lanes(t, s->bits));
  double steps = (double)s->ig;
  double positions = s->n ? (double)s->n : 1;
  double phases = 1;
  int64_t columns = 1;
  for (int d = 0; d < s->dims; d++) {
    int64_t along = phases_along(attrs_of(call->call), call->call->arg[0]->type, call->call->arg[1]->type, d);
    columns = (s->out[d] + along - 1) / along;
    positions *= (double)columns;
    steps *= (double)s->k[d];
    phases *= (double)along;
  }
  Tile tile = tile_for(t, s->bits, vectors, s->og / p->out_block, 1, columns);
  double share = REACHED * tile_speed(t, vectors, 1, columns, tile) * (double)p->out_block /
                 (double)(vectors * target_lanes(t, s->bits));
  double flops = 2 * positions * (double)s->o * steps;
  int threads = cost_threads(t, flops, 0);
  return conv_tile_seconds(t, s->bits, flops, steps / phases, share > 0 ? share : 0.02) / threads;
}

void transpose_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!conv_shape(call, &s) || !s.transposed || !is_phased(call->call, &s)) return;
  PhasesPlan p = {s.data_block, s.out_block};
  double bytes = (double)(s.c * s.og) * s.bits / 8;
  for (int d = 0; d < s.dims; d++) bytes *= (double)s.k[d];
  if (s.out_block) {
    bool whole = s.out_block > 1 && s.weight_block == s.out_block && s.og % s.out_block == 0;
    if (whole && (!s.data_block || s.ig % s.data_block == 0)) plan_add(list, &p, phases_seconds(call, &s, &p), bytes);
    return;
  }
  if (s.data_block || s.weight_block) return;
  int64_t data[CONV_BLOCKS], out[CONV_BLOCKS];
  int nd = conv_blocks(t, s.bits, s.ig, data);
  int no = conv_blocks(t, s.bits, s.og, out);
  list->alters = true;
  for (int o = 0; o < no; o++)
    for (int i = -1; i < nd; i++) {
      p.data_block = list->data_block = i < 0 ? 0 : data[i];
      p.out_block = list->out_block = out[o];
      plan_add(list, &p, phases_seconds(call, &s, &p), bytes);
    }
}

void transpose_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const PhasesPlan *p = plan;
  alter_to_blocks(call, p->data_block, p->out_block, out);
}

/* ---- the computation -------------------------------------------------------------------------------- */

static Phases phases_of(OpCall *c)
{
  const Conv2DTransposeAttrs *a = c->attrs;
  int dims = c->out->ndim - 3;
  int64_t after[3];
  Phases v = {
    .dims = dims, .groups = a->groups, .cb = conv_block(a->data_layout, dims), .ob = conv_block(a->out_layout, dims)};
  v.og = c->out->shape[1]->u.i * v.ob / v.groups;
  v.ig = c->arg[0]->shape[1]->u.i * (v.cb ? v.cb : 1) / v.groups;
  for (int d = 0; d < dims; d++) v.k[d] = c->arg[1]->shape[2 + d]->u.i;
  nn_padding(c, a->padding, dims, v.before, after);
  for (int d = 0; d < dims; d++) v.stride[d] = phases_along(a, c->arg[0], c->arg[1], d);
  for (int d = 0; d < dims; d++) v.taps[d] = (v.k[d] + v.stride[d] - 1) / v.stride[d];
  return v;
}

/* Zeros around the data, as far as the outputs reach; lead[d] of them in front. */
static const Tensor *pad_data(Module *m, const Phases *v, const Tensor *x, const Type *out, int64_t *lead)
{
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int d = 0; d < v->dims; d++) {
    int64_t first = v->before[d] / v->stride[d] - (v->taps[d] - 1);
    int64_t last = (out->shape[2 + d]->u.i - 1 + v->before[d]) / v->stride[d];
    int64_t size = x->buffer->shape[2 + d]->u.i;
    lead[d] = before[2 + d] = first < 0 ? -first : 0;
    after[2 + d] = last >= size ? last - size + 1 : 0;
  }
  return nn_pad_constant(m, x, before, after, expr_const(m, x->buffer->dtype, 0), "pad_temp");
}

/* Indices of the data's and the weight's channels: those of the output channel's group, in the blocks of the data. */
static void channels_at(Stage *s, const Phases *v, const Expr **x, const Expr **w)
{
  Module *m = s->m;
  const Expr *group = expr_i32(m, 0);
  const Expr *oo = s->at[1];
  int64_t own = v->og / v->ob;
  if (v->groups > 1) {
    group = expr_floordiv(m, s->at[1], expr_i32(m, own));
    oo = expr_floormod(m, s->at[1], expr_i32(m, own));
  }
  int last = v->dims + 2;
  w[0] = nn_index(s, oo);
  if (v->cb) {
    const Expr *outer = nn_reduce_axis(s, "rco", expr_i32(m, v->ig / v->cb));
    const Expr *inner = nn_reduce_axis(s, "rci", expr_i32(m, v->cb));
    x[1] = w[1] = nn_index(s, expr_add(m, expr_mul(m, group, expr_i32(m, v->ig / v->cb)), outer));
    x[last] = w[last] = inner;
    w[last + 1] = s->at[last];
  } else {
    x[1] = w[1] =
        nn_index(s, expr_add(m, expr_mul(m, group, expr_i32(m, v->ig)), nn_reduce_axis(s, "rc", expr_i32(m, v->ig))));
    w[last] = s->at[last];
  }
}

void transpose_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  Phases v = phases_of(c);
  static const char *const names[] = {"dz", "dh", "dw"};
  int64_t lead[3];
  const Tensor *data = pad_data(m, &v, in[0], c->out, lead);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *x[MAX_RANK] = {s.at[0]};
  const Expr *w[MAX_RANK];
  const Expr *there = NULL;
  channels_at(&s, &v, x, w);
  for (int d = 0; d < v.dims; d++) {
    const Expr *u = expr_add(m, s.at[2 + d], expr_i32(m, v.before[d]));
    const Expr *stride = expr_i32(m, v.stride[d]);
    const Expr *j = nn_reduce_axis(&s, names[3 - v.dims + d], expr_i32(m, v.taps[d]));
    x[2 + d] = nn_index(&s, expr_add(m, expr_sub(m, expr_floordiv(m, u, stride), j), expr_i32(m, lead[d])));
    w[2 + d] = nn_index(&s, expr_add(m, expr_floormod(m, u, stride), expr_mul(m, j, stride)));
    if (v.k[d] % v.stride[d]) there = nn_and(m, there, expr_lt(m, w[2 + d], expr_i32(m, v.k[d])));
  }
  DType sum = nn_accumulator(c->out->dtype);
  const Expr *term = expr_mul(m, expr_cast(m, sum, nn_read(m, data, x)), expr_cast(m, sum, nn_read(m, in[1], w)));
  if (there) term = nn_if(m, there, term, expr_const(m, sum, -0.0));
  *out = nn_sum(&s, "conv_transpose", "conv_transpose", term, c->out->dtype);
}

/* ---- the schedule ----------------------------------------------------------------------------------- */

/* Phases along z, y, x, and whether some of them lack a tap: those phases and taps are written out, and what is not
 * there goes. */
typedef struct PhaseLoops {
  int64_t stride[3];
  bool uneven[3];
  int64_t copies; /* of the innermost loops that are written out */
} PhaseLoops;

static PhaseLoops phase_loops(const ImplGroup *g, const Nest *n, const ConvLoops *l)
{
  const Type *x = g->anchor->arg[0]->type;
  const Type *w = g->anchor->arg[1]->type;
  PhaseLoops p = {{1, 1, 1}, {false, false, false}, 1};
  for (int d = 0; d < l->dims; d++) {
    int at = 3 - l->dims + d;
    p.stride[at] = phases_along(attrs_of(g->anchor), x, w, d);
    p.uneven[at] = w->shape[2 + d]->u.i % p.stride[at] != 0;
    if (p.uneven[at]) p.copies *= p.stride[at] * n->loop[n->n - l->dims + d].extent;
  }
  return p;
}

/* Fewer steps where there are many copies of them; but where elements come as vectors, all the steps that a vector
 * has. */
static int64_t steps_of(const Target *t, Tile tile, int64_t vectors, int64_t extent, int64_t copies)
{
  int64_t steps = tile_steps(t, tile.o * tile.x * vectors * (copies > 4 ? copies / 4 : 1), extent);
  int64_t lanes = target_lanes(t, 32);
  return t->broadcast_load || steps >= lanes || extent % lanes ? steps : lanes;
}

void transpose_schedule(ImplGroup *g)
{
  Nest *n;
  ConvLoops l;
  BlockRV conv = conv_begin(g, &n, &l);
  PhaseLoops p = phase_loops(g, n, &l);
  int64_t vectors = alter_block_vectors(n->loop[l.c].extent, target_lanes(g->target, n->bits));
  int64_t columns = (n->loop[l.x].extent + p.stride[2] - 1) / p.stride[2];
  Tile tile = tile_for(g->target, n->bits, vectors, n->loop[1].extent / attrs_of(g->anchor)->groups, 1, columns);
  LoopRV order[NEST_LOOPS + 10], oi, xq, xi;
  LoopRV phase[3] = {{-1}, {-1}, {-1}};
  LoopRV step = {-1};
  int sum[NEST_LOOPS];
  int nsum = conv_sum_order(n, &l, sum);
  int k = 0;
  int last = sum[nsum - 1];
  order[k++] = n->loop[0].rv;
  order[k++] = generic_split_by(g, n->loop[1].rv, tile.o, &oi);
  if (l.z >= 0) order[k++] = generic_split_by(g, n->loop[l.z].rv, p.stride[0], &phase[0]);
  if (l.y >= 0) order[k++] = generic_split_by(g, n->loop[l.y].rv, p.stride[1], &phase[1]);
  int shared = k;
  for (int d = 0; d < 2; d++)
    if (phase[d].id >= 0) order[k++] = phase[d];
  xq = generic_split_by(g, n->loop[l.x].rv, p.stride[2], &phase[2]);
  order[k++] = generic_split_by(g, xq, tile.x, &xi);
  order[k++] = phase[2];
  int outer = k;
  int64_t steps = last < n->n - l.dims ? steps_of(g->target, tile, vectors, n->loop[last].extent, p.copies) : 1;
  for (int i = 0; i < nsum; i++)
    order[k++] = sum[i] == last && steps > 1 ? generic_split_by(g, n->loop[last].rv, steps, &step) : n->loop[sum[i]].rv;
  if (step.id >= 0) order[k++] = step;
  order[k++] = xi, order[k++] = oi, order[k++] = n->loop[l.c].rv;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, conv, order[outer - 1]), outer, false);
  if (step.id >= 0) sched_unroll(g->s, step);
  sched_unroll(g->s, oi), sched_unroll(g->s, xi);
  for (int d = 0; d < 3; d++) {
    if (!p.uneven[d]) continue;
    sched_unroll(g->s, phase[d]);
    sched_unroll(g->s, n->loop[n->n - 3 + d].rv);
  }
  sched_vectorize(g->s, n->loop[l.c].rv);
  sched_decompose_reduction(g->s, conv, order[outer]);
  LoopRV fused = sched_fuse(g->s, shared, order, true);
  if (cost_threads(g->target, n->iterations * 2, 0) > 1) sched_parallel(g->s, fused);
  generic_rest(g);
}

/* ---- as a product whose columns are added up ------------------------------------------------------------------ */

/* Phases multiply every position by all taps, also where those lie outside of the data: on small maps that is most of
 * the work.  A product of each element by all taps (O * k, I, 1) does none for nothing; adding its columns up where
 * they lie in the output, tap by tap, is what it takes more. */
bool impl_prefers_columns(const Target *t, const Node *call)
{
  static const double REACHED = 0.8; /* of the peak, either way */
  static const double ADDED = 1.8;   /* cycles for a tap of an output, there or not (Neoverse-N1) */
  static const double WINOGRAD = 2;  /* as fast, where it serves */
  static const double CLEARLY = 0.9;
  ConvShape s;
  if (!conv_shape_of(call->u.call.op, call->u.call.attrs, call->arg[0]->type, call->arg[1]->type, call->type, &s))
    return false;
  if (target_is_gpu(t) || s.data_block || s.out_block || s.weight_block || s.bits < 32 || s.groups > 1) return false;
  double phased = (double)(s.n ? s.n : 1) * 2 * (double)(s.c * s.o);
  double product = phased;
  double added = (double)(s.n ? s.n : 1) * (double)s.o;
  double columns = added;
  bool turned = s.dims == 2; /* an ordinary convolution that Winograd serves, which takes whole tiles */
  for (int d = 0; d < s.dims; d++) {
    if (!s.in[d] || !s.out[d]) return false;
    phased *= (double)(s.k[d] * ((s.out[d] + s.stride[d] - 1) / s.stride[d]));
    product *= (double)(s.k[d] * s.in[d]);
    columns *= (double)(s.k[d] * s.in[d]);
    added *= (double)(s.k[d] * s.out[d]);
    turned &= s.stride[d] == 1 && s.k[d] == 3 && s.dilation[d] == 1 && s.out[d] >= 8;
  }
  double rate = REACHED * cost_flops(t, s.bits);
  double bytes = 2 * columns * s.bits / 8;
  double sum = ADDED * added / (1e9 * t->core.ghz) + cost_copy(t, bytes, bytes);
  return product / rate + sum < CLEARLY * phased / rate / (turned ? WINOGRAD : 1);
}
