/* linalg.c: sums of products and matrices: einsum, linalg.det, nn.nll_loss. */
#include "op/shape.h"

/* ---- einsum ------------------------------------------------------------------------------------- */

#define EINSUM_ATTRS(A, S) A(S, STR, equation, NULL, "\"ij,jk->ik\"; ... stands for axes that broadcast")
DEFINE_ATTRS(Einsum, EINSUM_ATTRS)

enum { EINSUM_LABELS = 52, EINSUM_DOTS = MAX_RANK, EINSUM_ALL = EINSUM_LABELS + EINSUM_DOTS };

/* An axis label is a letter (0..51) or an axis of the ellipsis, counted from its end
 * (EINSUM_LABELS + k), so that ellipses of different rank line up at the right. */
typedef struct Term {
  int n, label[MAX_RANK];
} Term;
typedef struct Equation {
  int nin, dots; /* dots: rank of the broadcast ellipsis */
  Term in[32], out;
  const Expr *extent[EINSUM_ALL];
} Equation;

static int letter_label(char ch)
{
  if (ch >= 'A' && ch <= 'Z') return ch - 'A';
  if (ch >= 'a' && ch <= 'z') return 26 + ch - 'a';
  return -1;
}

static void put_label(OpCall *c, Term *t, int label)
{
  if (t->n == MAX_RANK) opdef_raise(c, ERR_UNSUPPORTED, "a term of the equation has more than %d axes", MAX_RANK);
  t->label[t->n++] = label;
}

/* Reads labels up to ',' or '-' or the end; an ellipsis counts `dots` axes. */
static const char *parse_term(OpCall *c, const char *s, int dots, Term *t)
{
  bool seen = false;
  for (; *s && *s != ',' && *s != '-'; s++) {
    if (*s == ' ') continue;
    if (str_starts(s, "...")) {
      if (seen) opdef_raise(c, ERR_ARGUMENT, "a term of the equation has two ellipses");
      seen = true;
      for (int k = dots - 1; k >= 0; k--) put_label(c, t, EINSUM_LABELS + k);
      s += 2;
    } else if (letter_label(*s) >= 0) {
      put_label(c, t, letter_label(*s));
    } else {
      opdef_raise(c, ERR_ARGUMENT, "'%c' in the equation is neither a letter nor an ellipsis", *s);
    }
  }
  return s;
}

static int count_letters(const char *s, bool *dots)
{
  int n = 0;
  for (*dots = false; *s && *s != ',' && *s != '-'; s++) {
    n += letter_label(*s) >= 0;
    if (str_starts(s, "...")) *dots = true;
  }
  return n;
}

static void bind_extent(OpCall *c, Equation *q, int input, int label, const Expr *dim)
{
  const Expr **e = &q->extent[label];
  if (!*e || expr_is_int(*e, 1)) *e = dim;
  else if (expr_is_int(dim, 1)) return;
  else if (dim_differ(*e, dim))
    opdef_raise(c, ERR_SHAPE,
                "input %d has extent %" PRId64 " where another has %" PRId64 " for the same label of '%s'", input,
                dim->u.i, (*e)->u.i, ((const EinsumAttrs *)c->attrs)->equation);
  else if (!dim_same(c->m, *e, dim)) *e = op_equal_dim(c, *e, dim, "a label's extent");
}

/* Without '->': the ellipsis, then the letters that occur once, in alphabetical order. */
static void implicit_output(OpCall *c, Equation *q)
{
  int count[EINSUM_ALL] = {0};
  for (int i = 0; i < q->nin; i++)
    for (int k = 0; k < q->in[i].n; k++) count[q->in[i].label[k]]++;
  for (int k = q->dots - 1; k >= 0; k--) put_label(c, &q->out, EINSUM_LABELS + k);
  for (int k = 0; k < EINSUM_LABELS; k++)
    if (count[k] == 1) put_label(c, &q->out, k);
}

static Equation *parse_equation(OpCall *c)
{
  const char *text = ((const EinsumAttrs *)c->attrs)->equation;
  const char *s = text;
  const Type *ty = c->arg[0];
  Equation *q = arena_new_of(c->m->arena, Equation);
  if (!text) opdef_raise(c, ERR_ARGUMENT, "there is no equation");
  for (;; s++) {
    if (q->nin == ty->nfield || q->nin == 32)
      opdef_raise(c, ERR_ARGUMENT, "'%s' has more terms than the %d inputs", text, ty->nfield);
    const Type *in = ty->field[q->nin];
    bool dots;
    int letters = count_letters(s, &dots);
    int rank = in->ndim - letters;
    if (rank < 0 || (rank > 0 && !dots))
      opdef_raise(c, ERR_SHAPE, "input %d is %s, its term of '%s' names %d axes", q->nin, type_text(c->m->arena, in),
                  text, letters);
    if (rank > q->dots) q->dots = rank;
    Term *t = &q->in[q->nin];
    s = parse_term(c, s, rank, t);
    for (int k = 0; k < t->n; k++) bind_extent(c, q, q->nin, t->label[k], in->shape[k]);
    q->nin++;
    if (*s != ',') break;
  }
  if (q->nin != ty->nfield) opdef_raise(c, ERR_ARGUMENT, "'%s' has %d terms for %d inputs", text, q->nin, ty->nfield);
  if (!*s) {
    implicit_output(c, q);
    return q;
  }
  if (!str_starts(s, "->") || *parse_term(c, s + 2, q->dots, &q->out))
    opdef_raise(c, ERR_ARGUMENT, "'%s' is no equation: terms, '->', result", text);
  for (int k = 0; k < q->out.n; k++) {
    if (!q->extent[q->out.label[k]])
      opdef_raise(c, ERR_ARGUMENT, "the result of '%s' has a label that no input has", text);
    for (int i = 0; i < k; i++)
      if (q->out.label[i] == q->out.label[k])
        opdef_raise(c, ERR_ARGUMENT, "the result of '%s' has a label twice", text);
  }
  return q;
}

static const Type *einsum_type(OpCall *c)
{
  const Type *ty = op_filled_tuple_arg(c, 0);
  for (int k = 1; k < ty->nfield; k++)
    if (!dtype_eq(ty->field[k]->dtype, ty->field[0]->dtype))
      opdef_raise(c, ERR_TYPE, "input 0 is %s, input %d is %s; all must have one dtype",
                  type_text(c->m->arena, ty->field[0]), k, type_text(c->m->arena, ty->field[k]));
  Equation *q = parse_equation(c);
  const Expr *dim[MAX_RANK];
  for (int k = 0; k < q->out.n; k++) dim[k] = q->extent[q->out.label[k]];
  return type_tensor(c->m, ty->field[0]->dtype, q->out.n, dim);
}

static void einsum_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Equation *q = parse_equation(c);
  OpAxes ax = op_out_axes(c, 0);
  const Expr *index[EINSUM_ALL] = {NULL};
  const Expr *product = NULL;
  const IterVar *red[EINSUM_ALL];
  int nred = 0;
  for (int k = 0; k < q->out.n; k++) index[q->out.label[k]] = ax.index[k];
  for (int label = 0; label < EINSUM_ALL; label++)
    if (q->extent[label] && !index[label]) {
      red[nred] = op_reduce_axis(c, "k", q->extent[label]);
      index[label] = red[nred++]->var->expr;
    }
  DType acc = nred ? op_sum_dtype(c->out->dtype) : c->out->dtype;
  for (int i = 0; i < q->nin; i++) {
    const Expr *at[MAX_RANK];
    for (int k = 0; k < q->in[i].n; k++)
      at[k] = expr_is_int(in[i]->buffer->shape[k], 1) ? expr_i32(m, 0) : index[q->in[i].label[k]];
    const Expr *v = expr_cast(m, acc, op_read(m, in[i], at));
    product = product ? expr_mul(m, product, v) : v;
  }
  const Expr *body = nred ? op_reduce(m, "sum", product, nred, red) : product;
  out[0] = op_emit(c, &ax, "T_einsum", expr_cast(m, c->out->dtype, body));
}

const OpDef op_einsum = {
  .name = "einsum",
  .doc = "sum of products over the labels that the result lacks",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Einsum_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_TUPLE_ARG,
  .type = einsum_type,
  .compute = einsum_compute,
};

/* ---- linalg.det ------------------------------------------------------------------------------------ */

static const Type *det_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  op_need_float(c, 0);
  if (in->ndim < 2 || dim_differ(in->shape[in->ndim - 1], in->shape[in->ndim - 2]))
    opdef_raise(c, ERR_SHAPE, "data is %s; its last two axes are a square matrix", op_arg_text(c, 0));
  return type_tensor(c->m, in->dtype, in->ndim - 2, in->shape);
}

/* One column of Gaussian elimination with the largest element as pivot. */
static Stmt *eliminate(Module *m, const Buffer *a, const Buffer *det, const Buffer *pivot, const Expr *n,
                       const Expr *col)
{
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *row = loops_get(m, pivot, zero);
  const Var *r = loops_var(m, "r");
  const Var *j = loops_var(m, "j");
  const Var *i = loops_var(m, "i");
  const Var *k = loops_var(m, "k");
#define AT(x, y) loops_get(m, a, expr_add(m, expr_mul(m, x, n), y))
#define PUT(x, y, v) loops_set(m, a, expr_add(m, expr_mul(m, x, n), y), v)
  const Expr *below = expr_add(m, col, expr_add(m, one, r->expr));
  const Expr *larger = expr_binary(m, E_GT, op_intrin(m, IN_ABS, AT(below, col)), op_intrin(m, IN_ABS, AT(row, col)));
  const Expr *left = expr_sub(m, expr_sub(m, n, one), col);
  Stmt *search = loops_seq(
      m, loops_set(m, pivot, zero, col),
      stmt_for(m, r, zero, left, FOR_SERIAL, NULL, stmt_if(m, larger, loops_set(m, pivot, zero, below), NULL)));
  const Var *held = var_new(m, "held", a->dtype, VAR_PLAIN);
  Stmt *swap = stmt_for(m, j, zero, n, FOR_SERIAL, NULL,
                        stmt_let(m, held, AT(row, j->expr),
                                 loops_seq(m, PUT(row, j->expr, AT(col, j->expr)), PUT(col, j->expr, held->expr))));
  const Expr *d = loops_get(m, det, zero);
  Stmt *turn = stmt_if(m, expr_binary(m, E_NE, row, col),
                       loops_seq(m, swap, loops_set(m, det, zero, expr_sub(m, op_num(m, a->dtype, 0), d))), NULL);
  const Expr *low = expr_add(m, col, expr_add(m, one, i->expr));
  const Expr *right = expr_add(m, col, expr_add(m, one, k->expr));
  const Expr *factor = expr_binary(m, E_DIV, AT(low, col), AT(col, col));
  Stmt *clear = stmt_for(m, i, zero, left, FOR_SERIAL, NULL,
                         stmt_for(m, k, zero, left, FOR_SERIAL, NULL,
                                  PUT(low, right, expr_sub(m, AT(low, right), expr_mul(m, factor, AT(col, right))))));
  Stmt *reduce = stmt_if(m, expr_binary(m, E_NE, AT(col, col), op_num(m, a->dtype, 0)), clear, NULL);
  return loops_seq(m, search, turn, loops_set(m, det, zero, expr_mul(m, d, AT(col, col))), reduce);
#undef AT
#undef PUT
}

static void det_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  const Buffer *data = l.ib[0];
  int nb = data->ndim - 2;
  DType t = op_sum_dtype(data->dtype);
  const Expr *n = data->shape[nb];
  const Expr *zero = expr_i32(m, 0);
  const Expr *ix[MAX_RANK], *at[MAX_RANK];
  const Buffer *a = loops_local(m, "a", t, dim_mul(m, n, n));
  const Buffer *det = loops_local(m, "det", t, expr_i32(m, 1));
  const Buffer *pivot = loops_local(m, "pivot", DT_I32, expr_i32(m, 1));
  const Var *i = loops_var(m, "i");
  const Var *j = loops_var(m, "j");
  const Var *col = loops_var(m, "col");
  loops_index(m, nb, ix);
  memcpy(at, ix, (size_t)nb * sizeof *at);
  at[nb] = i->expr;
  at[nb + 1] = j->expr;
  Stmt *load = loops_set(m, a, expr_add(m, expr_mul(m, i->expr, n), j->expr), loops_load(m, data, at));
  load = stmt_for(m, i, zero, n, FOR_SERIAL, NULL, stmt_for(m, j, zero, n, FOR_SERIAL, NULL, load));
  Stmt *body = loops_seq(m, load, loops_set(m, det, zero, op_num(m, t, 1)),
                         stmt_for(m, col, zero, n, FOR_SERIAL, NULL, eliminate(m, a, det, pivot, n, col->expr)),
                         loops_store(m, l.ob[0], ix, loops_get(m, det, zero)));
  body = stmt_alloc(m, a, stmt_alloc(m, det, stmt_alloc(m, pivot, body)));
  loops_end(&l, "det", loops_nest(m, nb, data->shape, -1, ix, true, body), out);
}

const OpDef op_linalg_det = {
  .name = "linalg.det",
  .doc = "determinant of each square matrix; elimination with the largest pivot",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .type = det_type,
  .compute = det_compute,
};

/* ---- nn.nll_loss -------------------------------------------------------------------------------------- */

/* clang-format off */
#define NLL_LOSS_ATTRS(A, S)                                                        \
  A(S, STR, reduction, "\"mean\"", "mean (by weight), sum or none")                 \
  A(S, INT, ignore_index, "-100", "a target that counts for nothing")
/* clang-format on */
DEFINE_ATTRS(NllLoss, NLL_LOSS_ATTRS)

static const Type *nll_loss_type(OpCall *c)
{
  const NllLossAttrs *a = c->attrs;
  const Type *p = op_tensor_arg(c, 0);
  const Type *t = op_int_tensor_arg(c, 1);
  const Type *w = op_tensor_arg(c, 2);
  op_same_dtype(c, 0, 2);
  if (strcmp(a->reduction, "mean") && strcmp(a->reduction, "sum") && strcmp(a->reduction, "none"))
    opdef_raise(c, ERR_ARGUMENT, "reduction is '%s'; it is mean, sum or none", a->reduction);
  bool batch = p->ndim > 1;
  bool fits = p->ndim >= 1 && t->ndim == p->ndim - 1 && w->ndim == 1 && !dim_differ(w->shape[0], p->shape[batch]);
  for (int i = 0; fits && i < t->ndim; i++) fits = !dim_differ(t->shape[i], p->shape[i ? i + 1 : 0]);
  if (!fits)
    opdef_raise(c, ERR_SHAPE, "predictions is %s, targets %s, weights %s; they are (N, C, …), (N, …) and (C)",
                op_arg_text(c, 0), op_arg_text(c, 1), op_arg_text(c, 2));
  bool none = !strcmp(a->reduction, "none");
  return type_tensor(c->m, p->dtype, none ? t->ndim : 0, none ? t->shape : NULL);
}

/* Loss (or, weight_only, its weight) of the target at an index. */
static const Expr *nll_element(OpCall *c, const Tensor *const *in, const Expr *const *ix, bool weight_only)
{
  const NllLossAttrs *a = c->attrs;
  Module *m = c->m;
  const Buffer *p = in[0]->buffer;
  int axis = p->ndim > 1;
  const Expr *at[MAX_RANK];
  const Expr *t = op_read(m, in[1], ix);
  const Expr *extent = p->shape[axis];
  const Expr *skip = expr_binary(m, E_EQ, t, expr_int(m, t->dtype, a->ignore_index));
  const Expr *wide = t->dtype.bits < 32 ? expr_cast(m, DT_I32, t) : t;
  const Expr *safe =
      op_emit_clamp(m, wide, expr_int(m, wide->dtype, 0), expr_sub(m, extent, expr_int(m, extent->dtype, 1)));
  for (int i = 0; i < p->ndim; i++) at[i] = i < axis ? ix[i] : i == axis ? safe : ix[i - 1];
  const Expr *w = op_emit_read1(m, in[2], safe);
  const Expr *v = weight_only ? w : expr_sub(m, op_num(m, w->dtype, 0), expr_mul(m, op_read(m, in[0], at), w));
  DType acc = op_sum_dtype(w->dtype);
  return expr_select(m, skip, op_num(m, acc, 0), expr_cast(m, acc, v));
}

static const Tensor *nll_sum(OpCall *c, const Tensor *const *in, bool weight_only)
{
  const Buffer *t = in[1]->buffer;
  OpAxes ax = op_axes(c, 0, NULL);
  const IterVar *red[MAX_RANK];
  const Expr *ix[MAX_RANK];
  for (int i = 0; i < t->ndim; i++) {
    red[i] = op_reduce_axis(c, "k", t->shape[i]);
    ix[i] = red[i]->var->expr;
  }
  const Expr *v = nll_element(c, in, ix, weight_only);
  return op_emit(c, &ax, weight_only ? "T_nll_weight" : "T_nll_sum",
                 t->ndim ? op_reduce(c->m, "sum", v, t->ndim, red) : v);
}

static void nll_loss_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const NllLossAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *body;
  if (!strcmp(a->reduction, "none")) body = nll_element(c, in, ax.index, false);
  else body = te_read(m, nll_sum(c, in, false), 0, NULL);
  if (!strcmp(a->reduction, "mean")) body = expr_binary(m, E_DIV, body, te_read(m, nll_sum(c, in, true), 0, NULL));
  out[0] = op_emit(c, &ax, "T_nll_loss", expr_cast(m, c->out->dtype, body));
}

const OpDef op_nll_loss = {
  .name = "nn.nll_loss",
  .doc = "negative log likelihood of the targets, weighted by class; the mean over no targets is NaN",
  .args = "predictions, targets, weights",
  .min_args = 3,
  .max_args = 3,
  .attrs = &NllLoss_attrs,
  .fuse = FUSE_OPAQUE,
  .type = nll_loss_type,
  .compute = nll_loss_compute,
};
