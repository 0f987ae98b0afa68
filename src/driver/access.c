/* access.c: what a kernel does with its tensors, element by element.
 *
 * In: the scheduled function of a kernel.  Out: answers for share.c, each a proof from the
 * function's own accesses:
 *   is it nothing but copies of whole rows of its inputs?     (concatenate, split, slices)
 *   may an output be written over an input?                   (element-wise groups, residual additions)
 *
 * The second needs more than "element i of the output depends on element i of the input":
 * the schedule must not read an element again after it has stored it.  So there is one block
 * that stores the output, at its own variables, nothing else touches either tensor, the
 * block reads the input at the same variables, and its variables are an injective map of the
 * loops: no element is computed twice. */
#include "driver/share.h"

static const Buffer *param_buffer(const PrimFunc *f, int i) { return i < f->nparam ? f->param[i].buffer : NULL; }

static bool is_literal(const Buffer *b)
{
  for (int d = 0; d < b->ndim; d++)
    if (b->shape[d]->kind != E_INT) return false;
  return !b->strides && (!b->elem_offset || expr_is_int(b->elem_offset, 0));
}

static bool same_elements(const Buffer *a, const Buffer *b)
{
  if (!is_literal(a) || !is_literal(b) || a->ndim != b->ndim || !dtype_eq(a->dtype, b->dtype)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d]->u.i != b->shape[d]->u.i) return false;
  return true;
}

/* ---- the block that stores an output ----------------------------------------------------------- */

typedef struct Finder {
  const Buffer *in, *out; /* in may be NULL */
  Stmt *block, *store;    /* the block that stores out, and the store */
  int nstores;
  bool bad; /* something that is not understood */
} Finder;

static bool find_store(void *env, Stmt *s)
{
  Finder *f = env;
  if (s->kind == S_BLOCK && s->u.block->nmatches) f->bad = true;
  if (s->kind != S_STORE) return true;
  if (f->in && s->u.store.buffer->data == f->in->data) f->bad = true;
  if (s->u.store.buffer->data != f->out->data) return true;
  f->nstores++;
  f->store = s;
  f->block = s->parent;
  return true;
}

/* Is the block's body one store of the whole output at the block's own variables, in order?  Those of
 * extent 1 may be left out. */
static bool stores_itself(const Finder *f)
{
  if (f->bad || f->nstores != 1 || !f->block || f->block->kind != S_BLOCK) return false;
  const Block *b = f->block->u.block;
  const Stmt *s = f->store;
  if (b->body != s || b->init || s->u.store.mask || s->u.store.n != f->out->ndim || s->u.store.buffer != f->out)
    return false;
  int at = 0;
  for (int d = 0; d < s->u.store.n; d++) {
    const Expr *index = s->u.store.index[d];
    if (expr_is_int(index, 0) && expr_is_int(f->out->shape[d], 1)) continue;
    while (at < b->niter && index != var_expr(b->iter[at].var) && expr_is_int(b->iter[at].extent, 1)) at++;
    if (at == b->niter || index != var_expr(b->iter[at].var)) return false;
    const BlockIter *v = &b->iter[at++];
    if (v->kind != ITER_SPATIAL || !expr_is_int(v->min, 0) || !expr_is_int(v->extent, f->out->shape[d]->u.i))
      return false;
  }
  while (at < b->niter && expr_is_int(b->iter[at].extent, 1)) at++;
  return at == b->niter;
}

static Finder find_block(const PrimFunc *f, const Buffer *in, const Buffer *out)
{
  Finder found = {.in = in, .out = out};
  stmt_visit(f->body, find_store, &found);
  return found;
}

/* ---- in place -------------------------------------------------------------------------------------- */

typedef struct LoadCheck {
  const Finder *f;
  Ctx *ctx;
  Stmt *holder;
  bool same;
} LoadCheck;

static void check_load(void *env, const Expr *e)
{
  LoadCheck *c = env;
  if (e->kind != E_LOAD || (e->u.buffer->data != c->f->in->data && e->u.buffer->data != c->f->out->data)) return;
  const Stmt *s = c->f->store;
  bool same = e->u.buffer == c->f->in && c->holder == s && e->nargs == s->u.store.n;
  for (int d = 0; same && d < e->nargs; d++) /* there is one index into a dimension of size 1, however it is written */
    same = e->arg[d] == s->u.store.index[d] || expr_is_int(c->f->out->shape[d], 1);
  c->same &= same;
}

static void check_loads(void *env, Stmt *holder, const Expr *e)
{
  LoadCheck *c = env;
  c->holder = holder;
  expr_visit(c->ctx, e, check_load, c);
}

/* Do the loops around the block give each of its instances once? */
static bool runs_once(const PrimFunc *f, Stmt *block)
{
  enum { MOST = 32 };
  Module *m = f->m;
  Arena *a = scratch(m->ctx);
  const Block *b = block->u.block;
  const IterVar *loop[MOST];
  int n = 0;
  for (Stmt *s = block->parent; s; s = s->parent) {
    if (s->kind == S_SEQ || (s->kind == S_BLOCK && !s->parent)) continue;
    if (s->kind != S_FOR || s->u.loop.kind == FOR_THREAD || n == MOST) return false;
    IterVar *iv = arena_new_of(a, IterVar);
    *iv = (IterVar){.var = s->u.loop.var, .min = s->u.loop.min, .extent = s->u.loop.extent, .kind = ITER_SPATIAL};
    loop[n++] = iv;
  }
  Analyzer *an = analyzer_new(m, a);
  for (int i = n - 1; i >= 0; i--) analyzer_bind(an, loop[i]->var, loop[i]->min, loop[i]->extent);
  if (n == 0) return b->niter == 0;
  const Expr **value = arena_array(a, const Expr *, b->niter + 1);
  for (int i = 0; i < b->niter; i++) value[i] = b->iter[i].value;
  const char *why;
  if (itermap_detect(an, b->niter, value, n, loop, NULL, ITERMAP_INJECTIVE, NULL, &why)) return true;
  return b->predicate && itermap_detect(an, b->niter, value, n, loop, b->predicate, ITERMAP_INJECTIVE, NULL, &why);
}

bool program_access_in_place(const PrimFunc *f, int in, int out)
{
  const Buffer *a = param_buffer(f, in);
  const Buffer *o = param_buffer(f, out);
  if (!a || !o || a == o || !same_elements(a, o)) return false;
  Finder found = find_block(f, a, o);
  if (!stores_itself(&found)) return false;
  Scope scope = scope_begin(f->m->ctx);
  LoadCheck loads = {.f = &found, .ctx = f->m->ctx, .same = true};
  stmt_visit_exprs(f->body, check_loads, &loads);
  bool yes = loads.same && runs_once(f, found.block);
  scope_end(f->m->ctx, scope);
  return yes;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

typedef struct CopyFinder {
  const PrimFunc *f;
  Arena *arena;
  Analyzer *an;
  const Expr *const *at; /* the block's variable of each dimension, or 0 */
  const Buffer *out;
  int axis, number; /* the outermost axis of more than one element, and the parameter */
  CopyRuns *runs;
} CopyFinder;

static int param_number(const PrimFunc *f, const Buffer *b)
{
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer == b) return i;
  return -1;
}

/* Bytes from one element to the next along the axis. */
static int64_t step_bytes(const Buffer *b, int axis)
{
  int64_t n = dtype_bytes(b->dtype);
  for (int d = axis + 1; d < b->ndim; d++) n *= b->shape[d]->u.i;
  return n;
}

/* Rows [lo, hi) of the output are rows [lo + shift, hi + shift) of an input, in one piece: before the
 * axis the output has dimensions of 1 and the input is read at fixed places, behind it both have
 * the same dimensions and are read at the same variables. */
static bool add_load(CopyFinder *c, const Expr *e, int64_t lo, int64_t hi)
{
  int in = e->kind == E_LOAD ? param_number(c->f, e->u.buffer) : -1;
  if (in < 0) return false;
  const Buffer *b = e->u.buffer;
  const Buffer *o = c->out;
  if (b == o || !is_literal(b) || b->ndim != o->ndim || !dtype_eq(b->dtype, o->dtype)) return false;
  int64_t from = 0;
  for (int d = 0; d < b->ndim; d++) {
    int64_t extent = b->shape[d]->u.i;
    int64_t length = d == c->axis ? hi - lo : 1;
    if (d > c->axis && (extent != o->shape[d]->u.i || e->arg[d] != c->at[d])) return false;
    if (d > c->axis) continue;
    Interval shift = analyzer_bounds(
        c->an, expr_simplify(c->an, expr_sub(c->f->m, e->arg[d], expr_cast(c->f->m, e->arg[d]->dtype, c->at[d]))));
    int64_t first = shift.min + (d == c->axis ? lo : 0);
    if (shift.min != shift.max || first < 0 || first + length > extent) return false;
    from += first * step_bytes(b, d);
  }
  int64_t row = step_bytes(o, c->axis);
  vec_push(c->arena, c->runs,
           ((CopyRun){.out = c->number, .in = in, .to = lo * row, .from = from, .bytes = (hi - lo) * row}));
  return true;
}

/* variable < constant, of the axis. */
static bool splits_axis(const CopyFinder *c, const Expr *cond, int64_t *at)
{
  while (cond->kind == E_CALL && cond->u.intrin == IN_LIKELY) cond = cond->arg[0];
  if (cond->kind != E_LT || cond->arg[1]->kind != E_INT || cond->arg[0]->kind != E_VAR) return false;
  *at = cond->arg[1]->u.i;
  return cond->arg[0] == c->at[c->axis];
}

/* Choices nest to the right, one for each input of a concatenation: no recursion over them. */
static bool add_value(CopyFinder *c, const Expr *e)
{
  int64_t lo = 0;
  int64_t hi = c->out->shape[c->axis]->u.i;
  int64_t at;
  while ((e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE) || e->kind == E_SELECT) {
    if (!splits_axis(c, e->arg[0], &at)) return false;
    int64_t end = at < hi ? at : hi;
    if (end > lo) {
      if (!add_load(c, e->arg[1], lo, end)) return false;
      lo = end;
    }
    e = e->arg[2];
  }
  return lo >= hi || add_load(c, e, lo, hi);
}

static bool copies_into(const PrimFunc *f, Arena *arena, int out, CopyRuns *runs)
{
  const Buffer *o = param_buffer(f, out);
  if (!o || !is_literal(o)) return false;
  Finder found = find_block(f, NULL, o);
  if (found.nstores == 0) return true; /* an input */
  if (!stores_itself(&found) || o->ndim == 0) return false;
  CopyFinder c = {.f = f,
                  .arena = arena,
                  .an = analyzer_new(f->m, scratch(f->m->ctx)),
                  .at = found.store->u.store.index,
                  .out = o,
                  .number = out,
                  .runs = runs};
  const Block *b = found.block->u.block;
  for (int i = 0; i < b->niter; i++) analyzer_bind(c.an, b->iter[i].var, b->iter[i].min, b->iter[i].extent);
  while (c.axis < o->ndim - 1 && expr_is_int(o->shape[c.axis], 1)) c.axis++;
  return add_value(&c, found.store->u.store.value);
}

bool program_access_copies(const PrimFunc *f, Arena *arena, CopyRuns *runs)
{
  Scope scope = scope_begin(f->m->ctx);
  bool yes = true;
  for (int i = 0; yes && i < f->nparam; i++) yes = copies_into(f, arena, i, runs);
  scope_end(f->m->ctx, scope);
  if (!yes) runs->n = 0;
  return yes && runs->n > 0;
}
