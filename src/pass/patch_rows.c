/* patch_rows.c: PatchRows: the first layers of a network are computed a band of rows at a time, so that what lies
 * between them is never whole.
 *
 *   x ─ conv ─ pool ─ y        x[0:9]  ─ conv ─ pool ─ y[0:4] ─┐
 *                         →    x[7:16] ─ conv ─ pool ─ y[4:8] ─┴ concatenate ─ y
 *
 * Rows that two bands need are computed twice; every element is computed as before.  A band keeps the padding at the
 * edges of the data that it reaches, and has none elsewhere.
 *   needs   types
 *   keeps   types, values to the bit
 *   breaks  nothing */
#include "op/nn.h"
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_patch_rows_options[] = {
  {PO_INT, "layers", "0", "convolutions and pools from the input on; 0: as relay.PatchRows.layers says"},
  {PO_INT, "patches", "0", "bands of rows; 0: as relay.PatchRows.patches says"},
};

/* How a node's rows come from its operand's: row r from r * stride - top on, extent rows of them. */
typedef struct Window {
  bool there; /* it has one: else row for row */
  int64_t stride, extent, top, bottom;
} Window;

typedef struct Chain {
  Vec(const Node *) node; /* an input of the function, or its reshape, then calls, each of the one before */
  Vec(Window) window;
  int axis; /* of the rows */
} Chain;

/* ---- what can be cut ------------------------------------------------------------------------------ */

static int64_t listed(AttrInts list, int d, int64_t none) { return list.n ? list.v[list.n == 1 ? 0 : d] : none; }

static const char *layout_of(const Node *n) { return call_str(n, call_has(n, "layout") ? "layout" : "data_layout"); }

/* Four paddings, as a convolution or a pool of two dimensions has them: top, left, bottom, right. */
static void paddings(const Node *n, int64_t out[4])
{
  AttrInts p = call_ints(n, "padding");
  for (int i = 0; i < 4; i++) out[i] = p.n == 4 ? p.v[i] : listed(p, i % 2, 0);
}

/* A convolution or a pool over known rows, of one picture; *axis: -1 at the first. */
static bool take_window(const Node *n, int *axis, Window *out)
{
  bool conv = is_call_of(n, "nn.conv2d,qnn.conv2d");
  if (!conv && !is_call_of(n, "nn.max_pool2d,nn.avg_pool2d")) return false;
  int h = letter_at(layout_of(n), 'H');
  const char *to = call_has(n, "out_layout") ? call_str(n, "out_layout") : NULL;
  if (h < 0 || (*axis >= 0 && h != *axis) || (to && *to && strcmp(to, layout_of(n)))) return false;
  if (!conv && call_int(n, "ceil_mode")) return false;
  int k = conv ? letter_at(call_str(n, "kernel_layout"), 'H') : -1;
  int64_t size = conv ? dim_of(n->arg[1], k) : listed(call_ints(n, "pool_size"), 0, 1);
  int64_t pad[4];
  paddings(n, pad);
  *out = (Window){.there = true, .stride = listed(call_ints(n, "strides"), 0, 1), .top = pad[0], .bottom = pad[2]};
  out->extent = (size - 1) * listed(call_ints(n, "dilation"), 0, 1) + 1;
  *axis = h;
  return size > 0 && out->stride > 0;
}

/* Is the operand the same in every row of a result of that rank? */
static bool is_for_rows(const Node *n, const Node *a, int axis)
{
  if (a->kind != N_CONST || !is_tensor(a)) return false;
  if (is_call_of(n, "nn.bias_add,qnn.requantize,qnn.quantize,qnn.dequantize")) return true; /* along the channels */
  int d = axis - (n->type->ndim - a->type->ndim);
  return d < 0 || dim_of(a, d) == 1;
}

/* A function of each element alone, and of constants. */
static bool is_elementwise(const Node *n, const Node *x, int axis)
{
  static const char binary[] = "add,subtract,multiply,maximum,minimum,nn.bias_add,qnn.requantize,qnn.quantize,"
                               "qnn.dequantize,qnn.contrib_multiply_shift";
  if (n->kind != N_CALL || n->type->ndim != x->type->ndim || dim_of(n, axis) != dim_of(x, axis)) return false;
  if (n->nargs == 1) return n->u.call.op->fuse == FUSE_ELEMWISE;
  if (!is_call_of(n, binary)) return false;
  for (int i = 0; i < n->nargs; i++)
    if (n->arg[i] != x && !is_for_rows(n, n->arg[i], axis)) return false;
  return true;
}

static const Node *only_user(const Uses *u, const Node *x)
{
  const Node *user = NULL;
  int n = 0;
  for (int i = 0; i < u->n; i++)
    for (int k = 0; k < u->order[i]->nargs; k++) {
      bool parameter = u->order[i]->kind == N_FUNC && k < fn_nparams(u->order[i]);
      if (u->order[i]->arg[k] != x || parameter) continue;
      user = u->order[i];
      n++;
    }
  return n == 1 && user->kind == N_CALL ? user : NULL;
}

/* The axis of the rows: that of the first window behind x. */
static int axis_behind(const Uses *u, const Node *x)
{
  int axis = -1;
  Window w;
  for (const Node *n = only_user(u, x); n && axis < 0; n = only_user(u, n))
    if (!take_window(n, &axis, &w) && n->nargs != 1 && n->arg[0]->kind == N_CONST) break;
  return axis;
}

static Chain chain_from(Module *m, const Uses *u, const Node *input)
{
  Chain c = {.axis = axis_behind(u, input)};
  Arena *a = scratch(m->ctx);
  if (c.axis < 0 || !is_tensor(input) || dim_of(input, 0) != 1 || dim_of(input, c.axis) < 2) return c;
  vec_push(a, &c.node, input);
  vec_push(a, &c.window, (Window){0});
  for (const Node *x = input, *n; (n = only_user(u, x)); x = n) {
    Window w = {0};
    bool window = is_tensor(n) && n->arg[0] == x && dim_of(n, c.axis) > 0 && take_window(n, &c.axis, &w);
    if (!window && (!is_tensor(n) || !is_elementwise(n, x, c.axis))) break;
    vec_push(a, &c.node, n);
    vec_push(a, &c.window, w);
  }
  return c;
}

/* The longest from an input of rank 4, or from one that is reshaped to rank 4, which costs nothing. */
static Chain find_chain(Module *m, const Node *f)
{
  Uses u = uses_of(scratch(m->ctx), f);
  Chain best = {.axis = -1};
  for (int i = 0; i < fn_nparams(f); i++) {
    const Node *input = f->arg[i];
    const Node *user = only_user(&u, input);
    if (user && is_call_of(user, "reshape")) input = user;
    if (!is_tensor(input) || input->type->ndim != 4) continue;
    Chain c = chain_from(m, &u, input);
    if (c.node.n > best.node.n) best = c;
  }
  return best;
}

/* ---- the bands -------------------------------------------------------------------------------------- */

typedef struct Rows {
  int64_t begin, end;
  int64_t above, below; /* rows of padding that the window still has */
} Rows;

/* What each node of the chain up to `last` gives so that the last gives [begin, end). */
static Rows *rows_needed(Arena *a, const Chain *c, int last, int64_t begin, int64_t end)
{
  Rows *r = arena_array(a, Rows, last + 1);
  r[last] = (Rows){begin, end, 0, 0};
  for (int i = last; i > 0; i--) {
    const Window *w = &c->window.v[i];
    int64_t from = w->there ? r[i].begin * w->stride - w->top : r[i].begin;
    int64_t to = w->there ? (r[i].end - 1) * w->stride - w->top + w->extent : r[i].end;
    int64_t rows = dim_of(c->node.v[i - 1], c->axis);
    r[i].above = from < 0 ? -from : 0;
    r[i].below = to > rows ? to - rows : 0;
    r[i - 1] = (Rows){from < 0 ? 0 : from, to > rows ? rows : to, 0, 0};
  }
  return r;
}

static const Node *slice_rows(Module *m, const Node *x, int axis, const Rows *r)
{
  if (r->begin == 0 && r->end == dim_of(x, axis)) return x;
  const OpDef *op = opdef_get(m->ctx, "strided_slice");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_ints(m, op->attrs, attrs, "begin", 1, &r->begin);
  attrs_set_ints(m, op->attrs, attrs, "end", 1, &r->end);
  attrs_set_ints(m, op->attrs, attrs, "axes", 1, (int64_t[]){axis});
  return node_call(m, op, 1, &x, attrs, NULL);
}

static const Node *make_band(Module *m, const Chain *c, int last, const Rows *r, const Node *input)
{
  const Node *x = slice_rows(m, input, c->axis, &r[0]);
  for (int i = 1; i <= last; i++) {
    const Node *n = c->node.v[i];
    const Node **arg = arena_array(scratch(m->ctx), const Node *, n->nargs);
    void *attrs = n->u.call.op->attrs ? call_attrs(m, n) : NULL;
    for (int k = 0; k < n->nargs; k++) arg[k] = n->arg[k] == c->node.v[i - 1] ? x : n->arg[k];
    if (c->window.v[i].there) {
      int64_t pad[4];
      paddings(n, pad);
      pad[0] = r[i].above;
      pad[2] = r[i].below;
      attrs_set_ints(m, n->u.call.op->attrs, attrs, "padding", 4, pad);
    }
    x = node_call(m, n->u.call.op, n->nargs, arg, attrs, n->name);
  }
  return x;
}

static const Node *make_bands(Module *m, const Chain *c, int last, int64_t patches)
{
  Arena *a = scratch(m->ctx);
  int64_t rows = dim_of(c->node.v[last], c->axis);
  int64_t each = (rows + patches - 1) / patches;
  Vec(const Node *) band = {0};
  for (int64_t at = 0; at < rows; at += each) {
    const Rows *r = rows_needed(a, c, last, at, at + each < rows ? at + each : rows);
    vec_push(a, &band, make_band(m, c, last, r, c->node.v[0]));
  }
  const OpDef *op = opdef_get(m->ctx, "concatenate");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_int(m, op->attrs, attrs, "axis", c->axis);
  const Node *all = node_tuple(m, band.n, band.v);
  return node_call(m, op, 1, &all, attrs, NULL);
}

/* The place in the chain behind so many windows and what follows them row for row; 0: there are not so many. */
static int end_of_layers(const Chain *c, int64_t layers)
{
  int end = 0;
  for (int i = 1; i < c->node.n; i++) {
    if (c->window.v[i].there && layers-- == 0) break;
    end = i;
  }
  return layers > 0 ? 0 : end;
}

typedef struct Cut {
  const Node *last, *bands;
} Cut;

static const Node *put_bands(GraphRewriter *rw, const Node *old, const Node *now)
{
  const Cut *cut = rw->env;
  return old == cut->last ? cut->bands : now;
}

const Node *pass_patch_rows(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  int64_t layers = pass_option_int(env, pass_patch_rows_options, 0);
  int64_t patches = pass_option_int(env, pass_patch_rows_options, 1);
  if (!layers) layers = pass_config_int(pc, "relay.PatchRows.layers");
  if (!patches) patches = pass_config_int(pc, "relay.PatchRows.patches");
  if (patches < 2 || is_primitive(f) || is_external(f)) return f;
  Chain c = find_chain(m, f);
  int last = end_of_layers(&c, layers);
  if (!last || dim_of(c.node.v[last], c.axis) < patches) return f;
  Cut cut = {c.node.v[last], make_bands(m, &c, last, patches)};
  return retype(m, rewrite(m, f, put_bands, &cut));
}

/* ---- which bands would do ------------------------------------------------------------------------------ */

static double bytes_of(const Node *n, int axis, int64_t rows)
{
  double bytes = dtype_bytes(n->type->dtype);
  for (int d = 0; d < n->type->ndim; d++) bytes *= (double)(d == axis ? rows : dim_of(n, d));
  return bytes;
}

/* Bytes at the worst moment of the first layers in bands, as far as the tensors between the layers tell: the input, and
 * either a band's two tensors beside the bands before it, or all bands and what they are joined to.  Values between a
 * window and the next are counted as what the last of them is. */
static double bytes_in_bands(Arena *a, const Chain *c, int last, int64_t patches, double *rows_again)
{
  int64_t rows = dim_of(c->node.v[last], c->axis);
  int64_t each = (rows + patches - 1) / patches;
  double whole = bytes_of(c->node.v[last], c->axis, rows);
  double worst = 0;
  *rows_again = 0;
  for (int64_t at = 0; at < rows; at += each) {
    const Rows *r = rows_needed(a, c, last, at, at + each < rows ? at + each : rows);
    double before = bytes_of(c->node.v[0], c->axis, r[0].end - r[0].begin);
    for (int i = 1; i <= last; i++) {
      if (i < last && !c->window.v[i + 1].there) continue;
      double now = bytes_of(c->node.v[i], c->axis, r[i].end - r[i].begin);
      if (before + now > worst) worst = before + now;
      *rows_again += now;
      before = now;
    }
  }
  if (2 * whole > worst + whole) worst = whole;
  return bytes_of(c->node.v[0], c->axis, dim_of(c->node.v[0], c->axis)) + whole + worst;
}

int pass_patch_choices(Module *m, const Node *f, int most, PatchChoice *out)
{
  enum { MOST_PATCHES = 16 };
  Arena *a = scratch(m->ctx);
  Chain c = find_chain(m, f);
  int n = 0;
  for (int64_t layers = 1; end_of_layers(&c, layers); layers++) {
    int last = end_of_layers(&c, layers);
    for (int64_t patches = 2; patches <= MOST_PATCHES && patches <= dim_of(c.node.v[last], c.axis); patches *= 2) {
      PatchChoice p = {.layers = layers, .patches = patches};
      p.bytes = bytes_in_bands(a, &c, last, patches, &p.work);
      int at = n < most ? n++ : most;
      while (at > 0 && p.bytes < out[at - 1].bytes) {
        if (at < most) out[at] = out[at - 1];
        at--;
      }
      if (at < most) out[at] = p;
    }
  }
  return n;
}
