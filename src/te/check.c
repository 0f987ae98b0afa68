/* check.c: what the body of a compute may say.
 *
 * Comes in: a compute operation before anyone has seen it.  A body may read
 * tensors by their rank, use the operation's own axes anywhere and a reduce axis
 * inside its own reduction, and size or scalar variables.  A read that leaves its
 * tensor for some value of the axes is refused when that can be proved: the index
 * is linear in the axes, so its smallest and largest values do occur, or all of
 * its values are outside.  Reads that run under a condition (if_then_else, the
 * right side of and/or, a reduction with where=) are left to it.
 *
 * The update of a scan reads its state at rows before the current one and is
 * written before the scan: state[t - 1] looks like a read before the start.  Such
 * reads pass at first; te_scan checks them with the rows that it runs over, and
 * whoever uses the operation elsewhere raises the error. */
#include "te/te.h"

bool te_same_reduction(const Expr *a, const Expr *b)
{
  if (a->kind != E_REDUCE || b->kind != E_REDUCE || a->nargs != b->nargs) return false;
  const Reduce *x = a->u.reduce;
  const Reduce *y = b->u.reduce;
  if (x->reducer != y->reducer || x->naxis != y->naxis || x->has_init != y->has_init) return false;
  for (int i = 0; i < x->naxis; i++)
    if (x->axis[i] != y->axis[i]) return false;
  for (int i = 0; i < a->nargs; i++)
    if (a->arg[i] != b->arg[i]) return false;
  return true;
}

const Expr *te_plain_reduce(const TeOp *op)
{
  if (op->kind != TE_COMPUTE || op->body[0]->kind != E_REDUCE) return NULL;
  const Expr *first = op->body[0];
  if (first->u.reduce->reducer->n != op->nout) return NULL;
  for (int i = 0; i < op->nout; i++)
    if (!te_same_reduction(first, op->body[i]) || op->body[i]->u.reduce->value_index != i) return NULL;
  return first;
}

/* ---- bounds -------------------------------------------------------------------------- */

typedef struct Domain {
  Module *m;
  Analyzer *an;
  Vec(const Var *) vars; /* axes in scope, bound in an */
  bool empty;            /* some axis has no iteration */
  bool open;             /* some axis has a size that is not known, perhaps none */
  const IterVar *row;    /* the first axis, when reads of rows before it may pass */
  bool passed;           /* one did */
} Domain;

static void domain_add(Domain *d, const IterVar *iv, const Expr *first)
{
  for (int i = 0; i < d->vars.n; i++)
    if (d->vars.v[i] == iv->var) return;
  analyzer_bind(d->an, iv->var, first ? first : iv->min, first ? expr_sub(d->m, iv->extent, first) : iv->extent);
  vec_push(scratch(d->m->ctx), &d->vars, iv->var);
  d->empty |= expr_is_int(iv->extent, 0);
  d->open |= iv->extent->kind != E_INT;
}

static Domain domain_new(Module *m, int n, const IterVar *const *axis, const Expr *first)
{
  Domain d = {.m = m, .an = analyzer_new(m, scratch(m->ctx))};
  for (int i = 0; i < n; i++) domain_add(&d, axis[i], i == 0 ? first : NULL);
  return d;
}

/* Smallest and largest value of an index; true when both are known to occur. */
static bool index_range(Domain *d, const Expr *index, const Expr **lo, const Expr **hi)
{
  const Expr **coeff = arena_array(scratch(d->m->ctx), const Expr *, d->vars.n + 1);
  if (!analyzer_relax(d->an, index, d->vars.n, d->vars.v, lo, hi)) return false;
  *lo = expr_simplify(d->an, *lo);
  *hi = expr_simplify(d->an, *hi);
  return expr_linear(d->an, index, d->vars.n, d->vars.v, coeff);
}

_Noreturn static void raise_bounds(const TeOp *op, const Expr *load, int dim, const char *range, bool guard)
{
  Ctx *ctx = op->m->ctx;
  const Buffer *b = load->u.buffer;
  raise(ctx, ERR_BOUNDS, NOWHERE, "compute '%s' reads %s: dimension %d of '%s' spans %s, its extent is %s%s", op->name,
        expr_str_of(scratch(ctx), load), dim, b->name, range, expr_str_of(scratch(ctx), b->shape[dim]),
        guard ? "; both sides of a select are evaluated, use if_then_else to guard the read" : "");
}

/* placeholder[t - c, …]: perhaps the state of a scan whose step this is. */
static bool may_be_state(const Domain *d, const Expr *load, int dim)
{
  const Expr *e = load->arg[0];
  if (!d->row || dim != 0 || te_tensor_of(load->u.buffer)->op->kind != TE_PLACEHOLDER) return false;
  if (e->kind == E_SUB) return e->arg[0] == d->row->var->expr && e->arg[1]->kind == E_INT && e->arg[1]->u.i > 0;
  return e->kind == E_ADD && e->arg[0] == d->row->var->expr && e->arg[1]->kind == E_INT && e->arg[1]->u.i < 0;
}

static void check_index(const TeOp *op, Domain *d, const Expr *load, int dim, bool in_select)
{
  Ctx *ctx = op->m->ctx;
  const Expr *index = load->arg[dim];
  const Expr *extent = load->u.buffer->shape[dim];
  const Expr *lo, *hi;
  const Expr *zero = expr_int(op->m, index->dtype, 0);
  if (d->empty || (d->open && expr_is_int(extent, 0))) return; /* nothing is read of an empty tensor */
  if (may_be_state(d, load, dim)) {
    d->passed = true;
    return;
  }
  if (index_range(d, index, &lo, &hi) &&
      (analyzer_prove(d->an, expr_lt(op->m, lo, zero)) || analyzer_prove(d->an, expr_binary(op->m, E_GE, hi, extent))))
    raise_bounds(op, load, dim,
                 arena_printf(scratch(ctx), "[%s, %s]", expr_str_of(scratch(ctx), lo), expr_str_of(scratch(ctx), hi)),
                 in_select);
  Interval iv = analyzer_bounds(d->an, index);
  if (iv.max < 0 || (extent->kind == E_INT && iv.min >= extent->u.i))
    raise_bounds(op, load, dim, arena_printf(scratch(ctx), "[%" PRId64 ", %" PRId64 "]", iv.min, iv.max), in_select);
}

static bool index_inside(Domain *d, const Expr *load, int dim)
{
  const Expr *index = load->arg[dim];
  const Expr *extent = load->u.buffer->shape[dim];
  return analyzer_prove(d->an, expr_binary(d->m, E_GE, index, expr_int(d->m, index->dtype, 0))) &&
         analyzer_prove(d->an, expr_lt(d->m, index, extent));
}

typedef struct Inside {
  Domain domain;
  bool all;
} Inside;

static void note_inside(void *env, const Expr *e)
{
  Inside *in = env;
  if (e->kind != E_LOAD) return;
  for (int i = 0; in->all && i < e->nargs; i++) in->all = index_inside(&in->domain, e, i);
}

bool te_reads_in_bounds(Module *m, int naxis, const IterVar *const *axis, const Expr *e)
{
  Inside in = {domain_new(m, naxis, axis, NULL), true};
  expr_visit(m->ctx, e, note_inside, &in);
  return in.all;
}

/* ---- names and ranks -------------------------------------------------------------------- */

/* Where the walk stands: inside which reductions, under a condition or not.  A new
 * one for each scope, with its own memory of what was seen. */
typedef struct Where {
  const TeOp *op;
  const struct Where *outer;
  const Expr *reduce; /* the reduction (or let) that opened the scope, or NULL */
  bool guarded, in_select;
  Domain *domain;
  Map seen;
} Where;

static bool is_own_axis(const Where *w, const Var *v)
{
  for (int i = 0; i < w->op->naxis; i++)
    if (w->op->axis[i]->var == v) return true;
  for (const Where *p = w; p; p = p->outer) {
    if (!p->reduce) continue;
    for (int i = 0; i < p->reduce->u.reduce->naxis; i++)
      if (p->reduce->u.reduce->axis[i]->var == v) return true;
  }
  return false;
}

static void check_var(const Where *w, const Var *v)
{
  Ctx *ctx = w->op->m->ctx;
  if (!v->axis || is_own_axis(w, v)) return;
  if (v->axis->kind == ITER_REDUCE)
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "compute '%s': reduce axis '%s' is used outside a reduction over it; wrap that part in te.sum(…, axis=%s) or "
          "another reducer",
          w->op->name, v->name, v->name);
  raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s': '%s' is an axis of another operation; a body uses its own axes",
        w->op->name, v->name);
}

static void check_load(const Where *w, const Expr *e)
{
  Ctx *ctx = w->op->m->ctx;
  const Buffer *b = e->u.buffer;
  if (!te_tensor_of(b) && !strcmp(b->name, w->op->name))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s' reads itself; use te.scan for a recurrence", w->op->name);
  if (!te_tensor_of(b))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s' reads buffer '%s', which is no tensor", w->op->name, b->name);
  if (e->nargs != b->ndim)
    raise(ctx, ERR_SHAPE, NOWHERE, "compute '%s': tensor '%s' has %d dimensions, read with %d indices", w->op->name,
          b->name, b->ndim, e->nargs);
  for (int i = 0; i < e->nargs && !w->guarded; i++) check_index(w->op, w->domain, e, i, w->in_select);
}

static void walk(Where *w, const Expr *e);

static void walk_guarded(Where *w, const Expr *e)
{
  Where inner = {w->op, w, NULL, true, w->in_select, w->domain, {0}};
  walk(w->guarded ? w : &inner, e);
}

static void walk_select(Where *w, const Expr *e)
{
  Where inner = {w->op, w, NULL, w->guarded, true, w->domain, {0}};
  Where *side = w->in_select ? w : &inner;
  walk(w, e->arg[0]);
  walk(side, e->arg[1]);
  walk(side, e->arg[2]);
}

/* The first axis of any operation that e uses, or NULL. */
static const Var *axis_in(Ctx *ctx, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(scratch(ctx), e, &v);
  for (int i = 0; i < n; i++)
    if (v[i]->axis) return v[i];
  return NULL;
}

/* A reducer and the range it runs over are the same for every element that is computed. */
static void check_reducer(const TeOp *op, const Reduce *r)
{
  Ctx *ctx = op->m->ctx;
  for (int i = 0; i < r->naxis; i++) {
    const Var *v = axis_in(ctx, r->axis[i]->extent);
    if (!v) v = axis_in(ctx, r->axis[i]->min);
    if (v)
      raise(ctx, ERR_ARGUMENT, NOWHERE,
            "compute '%s': the range of reduce axis '%s' depends on the axis '%s'; reduce over the largest range and "
            "leave out the rest by where=",
            op->name, r->axis[i]->var->name, v->name);
  }
  for (int i = 0; i < r->reducer->n; i++) {
    const Var *v = axis_in(ctx, r->reducer->identity[i]);
    if (!v) v = axis_in(ctx, r->reducer->result[i]);
    if (v)
      raise(ctx, ERR_ARGUMENT, NOWHERE,
            "compute '%s': reducer '%s' uses the axis '%s'; its result and identity are over its own values, and init= "
            "starts a reduction from a value of each element",
            op->name, r->reducer->name, v->name);
  }
}

static void walk_reduce(Where *w, const Expr *e)
{
  Ctx *ctx = w->op->m->ctx;
  const Reduce *r = e->u.reduce;
  int n = r->reducer->n;
  check_reducer(w->op, r);
  for (int i = 0; i < r->naxis; i++)
    if (is_own_axis(w, r->axis[i]->var))
      raise(ctx, ERR_ARGUMENT, NOWHERE, "compute '%s': axis '%s' is reduced over but in use around the reduction",
            w->op->name, r->axis[i]->var->name);
  const Expr *cond = e->arg[n];
  for (int i = 0; i < r->naxis; i++) domain_add(w->domain, r->axis[i], NULL);
  Where inner = {w->op, w, e, w->guarded || !expr_is_int(cond, 1), w->in_select, w->domain, {0}};
  Where test = {w->op, w, e, w->guarded, w->in_select, w->domain, {0}};
  for (int i = 0; i < n; i++) walk(&inner, e->arg[i]);
  walk(&test, cond);
  for (int i = n + 1; i < e->nargs; i++) walk(w, e->arg[i]); /* initial values: outside the reduction */
}

static void walk(Where *w, const Expr *e)
{
  if (map_has(&w->seen, e)) return;
  map_put(scratch(w->op->m->ctx), &w->seen, e, NULL);
  if (e->kind == E_VAR) check_var(w, e->u.var);
  if (e->kind == E_LOAD) check_load(w, e);
  if (e->kind == E_REDUCE) {
    walk_reduce(w, e);
  } else if (e->kind == E_SELECT) {
    walk_select(w, e);
  } else if (e->kind == E_AND || e->kind == E_OR) {
    walk(w, e->arg[0]);
    walk_guarded(w, e->arg[1]);
  } else if (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE) {
    walk(w, e->arg[0]);
    walk_guarded(w, e->arg[1]);
    walk_guarded(w, e->arg[2]);
  } else {
    for (int i = 0; i < e->nargs; i++) walk(w, e->arg[i]);
  }
}

bool te_check_compute(const TeOp *op, const Expr *first, bool may_scan)
{
  Scope scope = scope_begin(op->m->ctx);
  Domain d = domain_new(op->m, op->naxis, op->axis, first);
  d.row = may_scan && op->naxis ? op->axis[0] : NULL;
  for (int i = 0; i < op->nout; i++) {
    Where w = {.op = op, .domain = &d};
    walk(&w, op->body[i]);
  }
  scope_end(op->m->ctx, scope);
  return d.passed;
}

void te_check_outside_scan(const TeOp *op)
{
  if (op->kind == TE_COMPUTE && op->needs_scan) te_check_compute(op, NULL, false);
}
