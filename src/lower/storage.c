/* storage.c: where allocations live.
 *
 * lower_pass_serialize_parallel
 *   A parallel loop inside another becomes a plain one, and so does every one of a program that runs without
 *   a runtime and without threads.  Thread axes are refused on targets that have none.
 *
 * lower_pass_place_storage
 *   Small constant allocations go on the stack (single variables always, others up to
 *   16 KB in the function, none in a program without a runtime, whose stack is small and whose workspace is
 *   planned); the rest into the workspace: the shared part outside
 *   parallel loops, the worker's own slice inside one.
 *
 *     workspace   | shared part | slice of worker 0 | slice of worker 1 | …
 *
 *   Each is cut by byte offsets, multiples of 64.  Allocations that are never in use
 *   at the same time share bytes; those whose size depends on run-time sizes are
 *   stacked behind the others.  The bytes of both parts are left as the attributes
 *   "workspace_bytes" and "slice_bytes" of the function, int64 expressions of sizes.
 *
 * needs   flat buffers; statements final
 * keeps   everything else
 * breaks  nothing */
#include "lower/internal.h"

enum { STACK_LIMIT = 16384, VARIABLE_BYTES = 256, ALIGN = 64 };

/* ---- parallel loops ------------------------------------------------------------------------ */

typedef struct Serialize {
  Lower *lo;
  int depth;
} Serialize;

static Stmt *serialize_stmt(void *env, Stmt *s)
{
  Serialize *z = env;
  if (s->kind == S_FOR && s->u.loop.kind == FOR_THREAD && !lower_for_gpu(z->lo))
    raise(z->lo->ctx, ERR_UNSUPPORTED, s->loc,
          "%s: loop '%s' is bound to %s, which target '%s' does not have; build for cuda", z->lo->f->name,
          s->u.loop.var->name, s->u.loop.thread_tag, z->lo->target->text);
  bool parallel = s->kind == S_FOR && s->u.loop.kind == FOR_PARALLEL;
  bool alone = z->lo->config.alone && !z->lo->config.threads;
  if (parallel && (z->depth || lower_for_gpu(z->lo) || alone)) s->u.loop.kind = FOR_SERIAL;
  z->depth += parallel;
  lower_map_children(z->lo->m, s, serialize_stmt, z);
  z->depth -= parallel;
  return s;
}

void lower_pass_serialize_parallel(Lower *lo)
{
  Serialize z = {.lo = lo};
  lo->f->body = serialize_stmt(&z, lo->f->body);
}

/* ---- when each allocation is in use ---------------------------------------------------------- */

typedef struct Loop {
  int first, last; /* positions of its first and last statement */
  struct Loop *outer;
  int depth;
} Loop;

typedef struct Alloc {
  Stmt *s;
  Loop *around; /* innermost loop that holds the allocation */
  bool in_parallel;
  int first, last;     /* positions of use; first > last: none */
  Vec(Loop *) used_in; /* loops that a use makes it live through */
  int64_t bytes;       /* -1: not constant */
  int64_t offset;
} Alloc;

typedef struct Placing {
  Lower *lo;
  Arena *tmp;
  Vec(Alloc *) all;
  Map by_data; /* data Var* -> Alloc* */
  int pos;
  Loop *loop;
  int parallel;
  int64_t stack;
} Placing;

static int depth_of(const Loop *l) { return l ? l->depth : 0; }

static void use(Placing *p, const Var *data)
{
  Alloc *a = map_get(&p->by_data, data);
  if (!a) return;
  if (p->pos < a->first) a->first = p->pos;
  if (p->pos > a->last) a->last = p->pos;
  Loop *outermost = NULL; /* a loop below the allocation may come back to an earlier use */
  for (Loop *l = p->loop; l && depth_of(l) > depth_of(a->around); l = l->outer) outermost = l;
  if (outermost && (a->used_in.n == 0 || a->used_in.v[a->used_in.n - 1] != outermost))
    vec_push(p->tmp, &a->used_in, outermost);
}

static void use_in_expr(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) use(env, e->u.buffer->data);
  if (e->kind == E_VAR && e->dtype.code == DT_HANDLE) use(env, e->u.var);
}

static const Expr *use_held(void *env, const Expr *e)
{
  Placing *p = env;
  if (expr_has_kind(e, E_LOAD) || expr_has_kind(e, E_CALL)) expr_visit(p->lo->ctx, e, use_in_expr, p);
  return e;
}

static Stmt *scan_stmt(void *env, Stmt *s)
{
  Placing *p = env;
  p->pos++;
  if (s->kind == S_ALLOC) {
    Alloc *a = arena_new_of(p->tmp, Alloc);
    *a = (Alloc){.s = s, .around = p->loop, .in_parallel = p->parallel > 0, .first = INT32_MAX, .last = -1};
    map_put(p->tmp, &p->by_data, s->u.alloc.buffer->data, a);
    vec_push(p->tmp, &p->all, a);
  }
  lower_map_exprs(s, use_held, p);
  if (s->kind == S_STORE) use(p, s->u.store.buffer->data);
  Loop *loop = NULL;
  if (s->kind == S_FOR || s->kind == S_WHILE) {
    loop = arena_new_of(p->tmp, Loop);
    *loop = (Loop){p->pos, 0, p->loop, depth_of(p->loop) + 1};
    p->loop = loop;
  }
  bool parallel = s->kind == S_FOR && (s->u.loop.kind == FOR_PARALLEL || s->u.loop.kind == FOR_THREAD);
  p->parallel += parallel;
  lower_map_children(p->lo->m, s, scan_stmt, p);
  p->parallel -= parallel;
  if (loop) {
    loop->last = p->pos;
    p->loop = loop->outer;
  }
  return s;
}

/* ---- sizes ---------------------------------------------------------------------------------------- */

static bool is_size(const Lower *lo, const Var *v)
{
  const PrimFunc *f = lo->f;
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (!b && f->param[i].var == v) return true;
    for (int d = 0; b && d < b->ndim; d++)
      if (expr_uses_var(b->shape[d], v) || (b->strides && expr_uses_var(b->strides[d], v))) return true;
    if (b && b->elem_offset && expr_uses_var(b->elem_offset, v)) return true;
  }
  return false;
}

/* Bytes of a as int64, rounded up to the alignment. */
static const Expr *bytes_of(Placing *p, const Alloc *a)
{
  Module *m = p->lo->m;
  const Buffer *b = a->s->u.alloc.buffer;
  const Var **vars;
  int n = expr_free_vars(p->tmp, b->shape[0], &vars);
  for (int i = 0; i < n; i++)
    if (!is_size(p->lo, vars[i]))
      raise(p->lo->ctx, ERR_UNSUPPORTED, a->s->loc,
            "%s: the size of '%s' depends on '%s', which is not known before the function runs", p->lo->f->name,
            b->name, vars[i]->name);
  const Expr *bytes =
      expr_mul(m, expr_widen(m, b->shape[0]), expr_int(m, DT_I64, dtype_bytes(b->dtype) * b->dtype.lanes));
  const Expr *up = expr_add(m, bytes, expr_int(m, DT_I64, ALIGN - 1));
  return expr_call(m, DT_NONE, IN_BITAND, 2, (const Expr *[]){up, expr_int(m, DT_I64, -ALIGN)});
}

/* ---- placing ----------------------------------------------------------------------------------------- */

static bool overlap_in_time(const Alloc *a, const Alloc *b) { return a->first <= b->last && b->first <= a->last; }

/* The lowest offset where a meets none of those placed before that live with it. */
static int64_t lowest_fit(Placing *p, const Alloc *a, int before, Place place)
{
  int64_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < before; i++) {
      const Alloc *b = p->all.v[i];
      if (b->s->u.alloc.place != place || b->bytes < 0 || !overlap_in_time(a, b)) continue;
      if (at < b->offset + b->bytes && b->offset < at + a->bytes) {
        at = b->offset + b->bytes;
        moved = true;
      }
    }
  }
  return at;
}

static Place place_of(Placing *p, const Alloc *a)
{
  const char *scope = a->s->u.alloc.buffer->scope;
  if (lower_for_gpu(p->lo) && a->in_parallel) {
    if (str_starts(scope, "shared")) return PLACE_SHARED;
    if (strcmp(scope, "global")) return PLACE_STACK;
  }
  bool small = a->bytes >= 0 && a->bytes <= VARIABLE_BYTES;
  int64_t limit = p->lo->config.alone ? 0 : STACK_LIMIT;
  if (small || (a->bytes >= 0 && p->stack + a->bytes <= limit)) {
    if (!small) p->stack += a->bytes;
    return PLACE_STACK;
  }
  return a->in_parallel ? PLACE_SLICE : PLACE_WORKSPACE;
}

static void settle_alloc(Placing *p, int i, int64_t *total)
{
  Alloc *a = p->all.v[i];
  int64_t n = 0;
  int64_t elem = dtype_bytes(a->s->u.alloc.buffer->dtype) * a->s->u.alloc.buffer->dtype.lanes;
  a->bytes = -1;
  if (lower_const_int(a->s->u.alloc.buffer->shape[0], &n)) {
    if (n < 0 || !int_mul(n, elem, &a->bytes) || a->bytes > INT64_MAX - ALIGN)
      raise(p->lo->ctx, ERR_ARGUMENT, a->s->loc, "%s: buffer '%s' of %" PRId64 " elements is too large", p->lo->f->name,
            a->s->u.alloc.buffer->name, n);
    if (a->bytes > VARIABLE_BYTES) a->bytes = (a->bytes + ALIGN - 1) & -ALIGN;
  }
  for (int k = 0; k < a->used_in.n; k++) {
    if (a->used_in.v[k]->first < a->first) a->first = a->used_in.v[k]->first;
    if (a->used_in.v[k]->last > a->last) a->last = a->used_in.v[k]->last;
  }
  Place place = a->s->u.alloc.place = place_of(p, a);
  if (place == PLACE_STACK || place == PLACE_NONE || a->bytes < 0) return;
  a->bytes = (a->bytes + ALIGN - 1) & -ALIGN;
  a->offset = lowest_fit(p, a, i, place);
  a->s->u.alloc.offset = expr_int(p->lo->m, DT_I64, a->offset);
  if (a->offset + a->bytes > total[place]) total[place] = a->offset + a->bytes;
}

void lower_pass_place_storage(Lower *lo)
{
  Module *m = lo->m;
  Placing p = {.lo = lo, .tmp = scratch(lo->ctx)};
  scan_stmt(&p, lo->f->body);
  int64_t total[PLACE_SHARED + 1] = {0};
  for (int i = 0; i < p.all.n; i++) settle_alloc(&p, i, total);
  const Expr *bytes[PLACE_SHARED + 1];
  for (int k = 0; k <= PLACE_SHARED; k++) bytes[k] = expr_int(m, DT_I64, total[k]);
  for (int i = 0; i < p.all.n; i++) {
    Alloc *a = p.all.v[i];
    Place place = a->s->u.alloc.place;
    if (a->bytes >= 0) continue;
    if (place == PLACE_STACK || place == PLACE_SHARED)
      raise(lo->ctx, ERR_UNSUPPORTED, a->s->loc, "%s: '%s' in %s memory needs a constant size", lo->f->name,
            a->s->u.alloc.buffer->name, a->s->u.alloc.buffer->scope);
    a->s->u.alloc.offset = bytes[place];
    bytes[place] = expr_is_int(bytes[place], 0) ? bytes_of(&p, a) : expr_add(m, bytes[place], bytes_of(&p, a));
  }
  if (total[PLACE_SHARED] > lo->target->shared_bytes && lower_for_gpu(lo))
    raise(lo->ctx, ERR_UNSUPPORTED, NOWHERE,
          "%s: %" PRId64 " bytes of shared memory are needed, target '%s' has %" PRId64, lo->f->name,
          total[PLACE_SHARED], lo->target->text, lo->target->shared_bytes);
  annots_set(m->arena, &lo->f->attrs, "workspace_bytes", bytes[PLACE_WORKSPACE]);
  annots_set(m->arena, &lo->f->attrs, "slice_bytes", bytes[PLACE_SLICE]);
}
