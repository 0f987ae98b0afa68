/* interp.c: what a function means: arguments, statements, threads.
 *
 * In: a function in either form and its arguments.  The function is compiled to
 * nodes (interp_expr.c), the arguments are checked against the parameters, sizes
 * are read off them, and the statements run one after the other.
 *
 * A statement runs on a group of environments at once.  Outside of thread loops
 * the group has one member; a loop over threadIdx or vthread makes it larger, and
 * each statement below runs on all members before the next one starts.  A loop
 * over a thread axis that is already running does not run again: its variable is
 * the thread's own number. */
#include "tir/interp.h"

enum { MAX_THREADS = 65536 };
static const int64_t MAX_ALLOC = (int64_t)1 << 31;

typedef struct SNode SNode;

typedef struct IterNode {
  int slot;
  bool reduce;
  const Node *min, *extent, *value;
} IterNode;

typedef struct MatchNode {
  const BufNode *view, *source;
  const Node **min, **extent;
  int hidden; /* first of the slots for offset and strides */
  bool *bind_shape, *bind_stride;
  const Node **stride; /* declared strides, to be checked; NULL if none */
  int offset_slot;     /* of a declared elem_offset variable; -1 if none */
} MatchNode;

struct SNode {
  const Stmt *stmt;
  SNode **child;
  int nchild;
  const Node *min, *extent; /* loops */
  const Node *value, *mask; /* condition, let, store, evaluate */
  const Node **index;
  const BufNode *buf; /* store */
  int slot;           /* loop and let variables; of a block, where bindings are gathered */
  const BufNode **alloc;
  int nalloc;
  IterNode *iter;
  int niter;
  MatchNode *match;
  int nmatch;
  SNode *init, *body; /* body: loops, lets, allocations, blocks; then */
  int *own;           /* loops: slots of the buffers that are new in each iteration */
  int nown;
};

typedef struct Group {
  Slot **env;
  int n;
} Group;

/* ---- compiling statements -------------------------------------------------------- */

static SNode *compile_stmt(Compiler *c, const Stmt *s);

static void declare_buffer(Compiler *c, SNode *n, const Buffer *b)
{
  interp_compile_var(c, b->data);
  n->alloc[n->nalloc++] = interp_compile_buffer(c, b);
}

static const Node **compile_all(Compiler *c, int n, const Expr *const *v)
{
  const Node **out = arena_array(c->arena, const Node *, n);
  for (int i = 0; i < n; i++) out[i] = interp_compile_expr(c, v[i]);
  return out;
}

/* A variable that only this view mentions so far is bound by it. */
static bool binds(Compiler *c, const Expr *e)
{
  if (e->kind != E_VAR || interp_compile_has_var(c, e->u.var)) return false;
  interp_compile_var(c, e->u.var);
  return true;
}

/* A view is read as source[min + index]: its strides and offset are its own slots. */
static void compile_match(Compiler *c, MatchNode *n, const MatchBuffer *mb)
{
  const Buffer *b = mb->buffer;
  int source_dims = mb->source.buffer->ndim;
  if (b->ndim > source_dims)
    raise(c->m->ctx, ERR_SHAPE, NOWHERE, "match_buffer '%s' has %d dimensions, its source '%s' only %d", b->name,
          b->ndim, mb->source.buffer->name, source_dims);
  n->source = interp_compile_buffer(c, mb->source.buffer);
  n->min = compile_all(c, source_dims, mb->source.min);
  n->extent = compile_all(c, source_dims, mb->source.extent);
  n->bind_shape = arena_array(c->arena, bool, b->ndim);
  n->bind_stride = arena_array(c->arena, bool, b->ndim);
  for (int d = 0; d < b->ndim; d++) {
    n->bind_shape[d] = binds(c, b->shape[d]);
    if (b->strides) n->bind_stride[d] = binds(c, b->strides[d]);
  }
  n->offset_slot = b->elem_offset && binds(c, b->elem_offset) ? interp_compile_var(c, b->elem_offset->u.var) : -1;
  if (b->strides) n->stride = compile_all(c, b->ndim, b->strides);
  n->hidden = c->nslot;
  c->nslot += 1 + b->ndim;
  BufNode *view = arena_new_of(c->arena, BufNode);
  *view =
      (BufNode){.buffer = b, .data = interp_compile_var(c, b->data), .ndim = b->ndim, .size = dtype_bytes(b->dtype)};
  view->shape = compile_all(c, b->ndim, b->shape);
  view->strides = arena_array(c->arena, const Node *, b->ndim);
  for (int d = 0; d < b->ndim; d++) view->strides[d] = interp_compile_slot(c, n->hidden + 1 + d);
  view->offset = interp_compile_slot(c, n->hidden);
  n->view = view;
  map_put(c->arena, &c->buffers, b, view);
}

static void compile_block(Compiler *c, SNode *n, const Block *b)
{
  n->niter = b->niter;
  n->iter = arena_array(c->arena, IterNode, b->niter);
  for (int i = 0; i < b->niter; i++) {
    n->iter[i].min = interp_compile_expr(c, b->iter[i].min);
    n->iter[i].extent = interp_compile_expr(c, b->iter[i].extent);
    n->iter[i].value = interp_compile_expr(c, b->iter[i].value);
    n->iter[i].reduce = b->iter[i].kind == ITER_REDUCE;
  }
  for (int i = 0; i < b->niter; i++) n->iter[i].slot = interp_compile_var(c, b->iter[i].var);
  n->slot = c->nslot;
  c->nslot += b->niter;
  if (b->predicate) n->value = interp_compile_expr(c, b->predicate);
  n->alloc = arena_array(c->arena, const BufNode *, b->nallocs);
  for (int i = 0; i < b->nallocs; i++) declare_buffer(c, n, b->allocs[i]);
  n->nmatch = b->nmatches;
  n->match = arena_array(c->arena, MatchNode, b->nmatches);
  for (int i = 0; i < b->nmatches; i++) compile_match(c, &n->match[i], &b->matches[i]);
  if (b->init) n->init = compile_stmt(c, b->init);
  n->body = compile_stmt(c, b->body);
}

static void compile_store(Compiler *c, SNode *n, const Stmt *s)
{
  n->buf = interp_compile_buffer(c, s->u.store.buffer);
  n->index = compile_all(c, s->u.store.n, s->u.store.index);
  n->value = interp_compile_expr(c, s->u.store.value);
  if (s->u.store.mask) n->mask = interp_compile_expr(c, s->u.store.mask);
}

static SNode *compile_stmt(Compiler *c, const Stmt *s)
{
  SNode *n = arena_new_of(c->arena, SNode);
  n->stmt = s;
  switch (s->kind) {
  case S_SEQ:
    n->nchild = s->u.seq.n;
    n->child = arena_array(c->arena, SNode *, n->nchild);
    for (int i = 0; i < n->nchild; i++) n->child[i] = compile_stmt(c, s->u.seq.v[i]);
    break;
  case S_FOR:
    n->min = interp_compile_expr(c, s->u.loop.min);
    n->extent = interp_compile_expr(c, s->u.loop.extent);
    n->slot = interp_compile_var(c, s->u.loop.var);
    n->body = compile_stmt(c, s->u.loop.body);
    break;
  case S_IF:
    n->value = interp_compile_expr(c, s->u.cond.cond);
    n->body = compile_stmt(c, s->u.cond.then);
    if (s->u.cond.orelse) n->init = compile_stmt(c, s->u.cond.orelse);
    break;
  case S_WHILE:
    n->value = interp_compile_expr(c, s->u.loop_while.cond);
    n->body = compile_stmt(c, s->u.loop_while.body);
    break;
  case S_LET:
    n->value = interp_compile_expr(c, s->u.let.value);
    n->slot = interp_compile_var(c, s->u.let.var);
    n->body = compile_stmt(c, s->u.let.body);
    break;
  case S_STORE: compile_store(c, n, s); break;
  case S_ALLOC:
    n->alloc = arena_array(c->arena, const BufNode *, 1);
    declare_buffer(c, n, s->u.alloc.buffer);
    n->body = compile_stmt(c, s->u.alloc.body);
    break;
  case S_EVAL: n->value = interp_compile_expr(c, s->u.eval.value); break;
  case S_ATTR: n->body = compile_stmt(c, s->u.attr.body); break;
  case S_BLOCK: compile_block(c, n, s->u.block); break;
  }
  return n;
}

/* ---- what is new in each iteration ------------------------------------------------------ */

typedef struct Accesses {
  Arena *arena;
  Ctx *ctx;
  Map count; /* data Var* -> number of accesses */
} Accesses;

static void count_access(Accesses *v, const Var *data)
{
  map_put(v->arena, &v->count, data, (void *)((intptr_t)map_get(&v->count, data) + 1));
}

static void count_node(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) count_access(env, e->u.buffer->data);
  if (e->kind == E_VAR && e->dtype.code == DT_HANDLE) count_access(env, e->u.var);
}

static void count_expr(void *env, Stmt *holder, const Expr *e)
{
  Accesses *v = env;
  if (holder->kind != S_BLOCK) expr_visit(v->ctx, e, count_node, v);
}

static bool count_stmt(void *env, Stmt *s)
{
  Accesses *v = env;
  if (s->kind == S_STORE) count_access(v, s->u.store.buffer->data);
  if (s->kind == S_BLOCK && s->u.block->predicate) expr_visit(v->ctx, s->u.block->predicate, count_node, v);
  for (int i = 0; s->kind == S_BLOCK && i < s->u.block->niter; i++)
    expr_visit(v->ctx, s->u.block->iter[i].value, count_node, v);
  for (int i = 0; s->kind == S_BLOCK && i < s->u.block->nmatches; i++)
    count_access(v, s->u.block->matches[i].source.buffer->data);
  return true;
}

static void count_below(Accesses *v, const Stmt *s)
{
  stmt_visit_exprs((Stmt *)(uintptr_t)s, count_expr, v);
  stmt_visit((Stmt *)(uintptr_t)s, count_stmt, v);
}

/* Buffers of the blocks around the loop that are touched under it alone. */
static void find_own(Compiler *c, const PrimFunc *f, SNode *n)
{
  Accesses all = {.arena = c->arena, .ctx = c->m->ctx};
  Accesses here = all;
  count_below(&all, f->body);
  count_below(&here, n->stmt);
  n->own = arena_array(c->arena, int, here.count.n);
  for (const Stmt *p = n->stmt->parent; p; p = p->parent)
    for (int i = 0; p->kind == S_BLOCK && i < p->u.block->nallocs; i++) {
      const Var *data = p->u.block->allocs[i]->data;
      void *times = map_get(&here.count, data);
      if (times && times == map_get(&all.count, data)) n->own[n->nown++] = interp_compile_var(c, data);
    }
}

static bool runs_at_once(const Stmt *s)
{
  return s->kind == S_FOR && (s->u.loop.kind == FOR_PARALLEL || s->u.loop.kind == FOR_VECTORIZED);
}

static void find_all_own(Compiler *c, const PrimFunc *f, SNode *n)
{
  if (runs_at_once(n->stmt)) find_own(c, f, n);
  for (int i = 0; i < n->nchild; i++) find_all_own(c, f, n->child[i]);
  if (n->init) find_all_own(c, f, n->init);
  if (n->body) find_all_own(c, f, n->body);
}

/* ---- running --------------------------------------------------------------------------- */

static void exec(Run *r, const SNode *n, Group g);

static void turn(Run *r, Slot *env)
{
  r->env = env;
  r->stamp++;
}

static void poll(Run *r)
{
  if ((++r->polls & 255) == 0) ctx_poll(r->ctx);
}

/* A group of the members for which keep[] says so. */
static Group subgroup(Run *r, Group g, const bool *keep)
{
  Group out = {arena_array(scratch(r->ctx), Slot *, g.n), 0};
  for (int i = 0; i < g.n; i++)
    if (keep[i]) out.env[out.n++] = g.env[i];
  return out;
}

static void exec_store(Run *r, const SNode *n, Slot *env)
{
  turn(r, env);
  DType t = n->value->expr->dtype;
  if (t.lanes == 1) {
    Slot v = interp_node_slot(r, n->value, 0);
    if (n->mask && !node_int(r, n->mask, 0)) return;
    char *to = interp_buffer_address(r, n->buf, n->index, 0);
    if (t.code == DT_FLOAT && t.bits == 32) memcpy(to, &(float){(float)v.f}, sizeof(float));
    else value_store(interp_value_of(t, v), to);
    return;
  }
  Scope scope = scope_begin(r->ctx);
  Value *v = arena_array(scratch(r->ctx), Value, t.lanes);
  for (int i = 0; i < t.lanes; i++)
    if (!n->mask || node_int(r, n->mask, i)) v[i] = interp_node_value(r, n->value, i);
  for (int i = 0; i < t.lanes; i++)
    if (!n->mask || node_int(r, n->mask, i)) value_store(v[i], interp_buffer_address(r, n->buf, n->index, i));
  scope_end(r->ctx, scope);
}

/* ---- without order ---- */

static uint64_t draw(Run *r)
{
  r->shuffle ^= r->shuffle << 13;
  r->shuffle ^= r->shuffle >> 7;
  r->shuffle ^= r->shuffle << 17;
  return r->shuffle;
}

static bool is_ordered(const Run *r, const Stmt *loop)
{
  return !r->shuffle || loop->u.loop.kind == FOR_SERIAL || loop->u.loop.kind == FOR_UNROLLED;
}

/* The numbers below n in some order; NULL: as they are. */
static int64_t *shuffled(Run *r, const Stmt *loop, int64_t n)
{
  if (is_ordered(r, loop) || n > MAX_THREADS || n < 1) return NULL;
  int64_t *order = arena_array(scratch(r->ctx), int64_t, n);
  for (int64_t i = 0; i < n; i++) {
    int64_t k = (int64_t)(draw(r) % (uint64_t)(i + 1));
    order[i] = order[k];
    order[k] = i;
  }
  return order;
}

/* Other memory of the same size for the loop's own buffers. */
static void renew_own(Run *r, const SNode *n, Slot *env)
{
  for (int i = 0; i < n->nown; i++) {
    const Mem *old = env[n->own[i]].mem;
    Mem *mem = arena_new_of(scratch(r->ctx), Mem);
    *mem = (Mem){arena_alloc(scratch(r->ctx), (size_t)old->hi + 1), 0, old->hi};
    memset(mem->data, 0xff, (size_t)old->hi);
    env[n->own[i]].mem = mem;
  }
}

/* The lanes of each member's vector, which go on as members of their own. */
static void exec_vector(Run *r, const SNode *n, Group g)
{
  Scope scope = scope_begin(r->ctx);
  Vec(Slot *) lanes = {0};
  for (int i = 0; i < g.n; i++) {
    turn(r, g.env[i]);
    int64_t min = node_int(r, n->min, 0);
    int64_t extent = node_int(r, n->extent, 0);
    int64_t *order = shuffled(r, n->stmt, extent);
    if (lanes.n + extent > MAX_THREADS)
      raise(r->ctx, ERR_UNSUPPORTED, NOWHERE, "interpreter: loop '%s' makes vectors of more than %d lanes",
            n->stmt->u.loop.var->name, MAX_THREADS);
    int64_t vector = g.env[i][r->lanes].i ? g.env[i][r->lanes].i : ++r->vectors;
    for (int64_t k = 0; k < extent; k++) {
      Slot *env = arena_copy(scratch(r->ctx), g.env[i], (size_t)r->nslot * sizeof *env);
      env[n->slot].i = min + (order ? order[k] : k);
      env[r->lanes].i = vector;
      renew_own(r, n, env);
      vec_push(scratch(r->ctx), &lanes, env);
    }
  }
  if (lanes.n) exec(r, n->body, (Group){lanes.v, lanes.n});
  scope_end(r->ctx, scope);
}

/* The lanes of a vector read before any of them writes. */
static void exec_store_lanes(Run *r, const SNode *n, Group g)
{
  Scope scope = scope_begin(r->ctx);
  DType t = n->value->expr->dtype;
  char **to = arena_array(scratch(r->ctx), char *, g.n);
  Slot *v = arena_array(scratch(r->ctx), Slot, g.n);
  for (int i = 0; i < g.n; i++) {
    turn(r, g.env[i]);
    if (n->mask && !node_int(r, n->mask, 0)) continue;
    v[i] = interp_node_slot(r, n->value, 0);
    to[i] = interp_buffer_address(r, n->buf, n->index, 0);
  }
  for (int i = 0; i < g.n; i++)
    if (to[i]) value_store(interp_value_of(t, v[i]), to[i]);
  scope_end(r->ctx, scope);
}

/* Members as threads: in any order, the lanes of a vector together. */
static void exec_store_shuffled(Run *r, const SNode *n, Group g)
{
  Scope scope = scope_begin(r->ctx);
  int *first = arena_array(scratch(r->ctx), int, g.n + 1); /* of each run of lanes */
  int nrun = 0;
  for (int i = 0; i < g.n; i++) {
    int64_t vector = g.env[i][r->lanes].i;
    if (!i || !vector || vector != g.env[i - 1][r->lanes].i) first[nrun++] = i;
  }
  first[nrun] = g.n;
  int *order = arena_array(scratch(r->ctx), int, nrun);
  for (int i = 0; i < nrun; i++) {
    int k = (int)(draw(r) % (uint64_t)(i + 1));
    order[i] = order[k];
    order[k] = i;
  }
  for (int i = 0; i < nrun; i++) {
    int at = first[order[i]];
    int count = first[order[i] + 1] - at;
    if (g.env[at][r->lanes].i && n->value->expr->dtype.lanes == 1) exec_store_lanes(r, n, (Group){g.env + at, count});
    else
      for (int k = 0; k < count; k++) exec_store(r, n, g.env[at + k]);
  }
  scope_end(r->ctx, scope);
}

static void exec_for_alone(Run *r, const SNode *n, Group g)
{
  Slot *env = g.env[0];
  turn(r, env);
  int64_t min = node_int(r, n->min, 0);
  int64_t extent = node_int(r, n->extent, 0);
  for (int64_t k = 0; k < extent && !r->returned; k++) {
    poll(r);
    env[n->slot].i = (int64_t)((uint64_t)min + (uint64_t)k);
    exec(r, n->body, g);
  }
}

/* One loop in lock step: members whose range is over sit out. */
static void exec_for(Run *r, const SNode *n, Group g)
{
  if (g.n == 1 && is_ordered(r, n->stmt)) {
    exec_for_alone(r, n, g);
    return;
  }
  Scope scope = scope_begin(r->ctx);
  int64_t *min = arena_array(scratch(r->ctx), int64_t, g.n);
  int64_t *extent = arena_array(scratch(r->ctx), int64_t, g.n);
  int64_t most = 0;
  bool same = true;
  for (int i = 0; i < g.n; i++) {
    turn(r, g.env[i]);
    min[i] = node_int(r, n->min, 0);
    extent[i] = node_int(r, n->extent, 0);
    if (extent[i] > most) most = extent[i];
    same &= extent[i] == extent[0];
  }
  int64_t *order = shuffled(r, n->stmt, most);
  Slot *kept = order ? arena_array(scratch(r->ctx), Slot, (int64_t)g.n * n->nown) : NULL;
  for (int i = 0; order && i < g.n * n->nown; i++) kept[i] = g.env[i / n->nown][n->own[i % n->nown]];
  for (int64_t at = 0; at < most && !r->returned; at++) {
    int64_t k = order ? order[at] : at;
    poll(r);
    for (int i = 0; i < g.n; i++) g.env[i][n->slot].i = (int64_t)((uint64_t)min[i] + (uint64_t)k);
    for (int i = 0; i < g.n && order; i++) renew_own(r, n, g.env[i]);
    if (same) {
      exec(r, n->body, g);
      continue;
    }
    Scope step = scope_begin(r->ctx);
    bool *keep = arena_array(scratch(r->ctx), bool, g.n);
    for (int i = 0; i < g.n; i++) keep[i] = k < extent[i];
    exec(r, n->body, subgroup(r, g, keep));
    scope_end(r->ctx, step);
  }
  for (int i = 0; order && i < g.n * n->nown; i++) g.env[i / n->nown][n->own[i % n->nown]] = kept[i];
  scope_end(r->ctx, scope);
}

/* The thread axis is running already: each member takes its own number. */
static void exec_same_thread(Run *r, const SNode *n, Group g, const ThreadAxis *axis)
{
  bool *keep = arena_array(scratch(r->ctx), bool, g.n);
  for (int i = 0; i < g.n; i++) {
    turn(r, g.env[i]);
    int64_t min = node_int(r, n->min, 0);
    int64_t k = g.env[i][axis->slot].i - axis->min;
    keep[i] = k < node_int(r, n->extent, 0);
    g.env[i][n->slot].i = min + k;
  }
  Group sub = subgroup(r, g, keep);
  if (sub.n) exec(r, n->body, sub);
}

static void exec_new_threads(Run *r, const SNode *n, Group g, int64_t min, int64_t extent)
{
  if (extent > MAX_THREADS || extent * g.n > MAX_THREADS)
    raise(r->ctx, ERR_UNSUPPORTED, NOWHERE,
          "interpreter: loop '%s' makes %" PRId64 " threads of a block; %d are the limit", n->stmt->u.loop.var->name,
          extent * g.n, MAX_THREADS);
  Group wide = {arena_array(scratch(r->ctx), Slot *, (int64_t)g.n * extent), 0};
  for (int i = 0; i < g.n; i++)
    for (int64_t k = 0; k < extent; k++) {
      Slot *env = arena_copy(scratch(r->ctx), g.env[i], (size_t)r->nslot * sizeof *env);
      env[n->slot].i = min + k;
      env[r->lanes].i = 0; /* threads of a lane go their own ways */
      wide.env[wide.n++] = env;
    }
  vec_push(scratch(r->ctx), &r->threads, (ThreadAxis){n->stmt->u.loop.thread_tag, n->slot, min, extent});
  if (wide.n) exec(r, n->body, wide);
  r->threads.n--;
}

static void exec_thread(Run *r, const SNode *n, Group g)
{
  const char *tag = n->stmt->u.loop.thread_tag;
  if (!str_starts(tag, "threadIdx") && !str_starts(tag, "vthread")) {
    exec_for(r, n, g);
    return;
  }
  Scope scope = scope_begin(r->ctx);
  ThreadAxes threads = r->threads;
  turn(r, g.env[0]);
  int64_t min = node_int(r, n->min, 0);
  int64_t extent = node_int(r, n->extent, 0);
  for (int i = 1; i < g.n; i++) {
    turn(r, g.env[i]);
    if (node_int(r, n->min, 0) != min || node_int(r, n->extent, 0) != extent)
      raise(r->ctx, ERR_UNSUPPORTED, NOWHERE, "interpreter: loop '%s' over %s has another range in each thread",
            n->stmt->u.loop.var->name, tag);
  }
  const ThreadAxis *axis = NULL; /* each loop over virtual threads makes its own */
  for (int i = 0; i < r->threads.n && !str_starts(tag, "vthread"); i++)
    if (!strcmp(r->threads.v[i].tag, tag)) axis = &r->threads.v[i];
  if (axis && extent <= axis->extent) exec_same_thread(r, n, g, axis);
  else exec_new_threads(r, n, g, min, extent < 0 ? 0 : extent);
  r->threads = threads;
  scope_end(r->ctx, scope);
}

static bool *conditions(Run *r, const Node *cond, Group g, int *held)
{
  bool *keep = arena_array(scratch(r->ctx), bool, g.n);
  *held = 0;
  for (int i = 0; i < g.n; i++) {
    turn(r, g.env[i]);
    keep[i] = node_int(r, cond, 0) != 0;
    *held += keep[i];
  }
  return keep;
}

static void exec_if(Run *r, const SNode *n, Group g)
{
  if (g.n == 1) {
    turn(r, g.env[0]);
    const SNode *taken = node_int(r, n->value, 0) ? n->body : n->init;
    if (taken) exec(r, taken, g);
    return;
  }
  Scope scope = scope_begin(r->ctx);
  int held;
  bool *keep = conditions(r, n->value, g, &held);
  if (held) exec(r, n->body, subgroup(r, g, keep));
  for (int i = 0; i < g.n; i++) keep[i] = !keep[i];
  if (n->init && held < g.n) exec(r, n->init, subgroup(r, g, keep));
  scope_end(r->ctx, scope);
}

static void exec_while(Run *r, const SNode *n, Group g)
{
  for (bool more = true; more && !r->returned;) {
    Scope scope = scope_begin(r->ctx);
    int held;
    poll(r);
    bool *keep = conditions(r, n->value, g, &held);
    more = held > 0;
    if (more) exec(r, n->body, subgroup(r, g, keep));
    scope_end(r->ctx, scope);
  }
}

/* Elements from the first to the last one of a buffer; false when beyond counting. */
static bool count_elements(Run *r, const BufNode *b, int64_t *out)
{
  int64_t dense = 1;
  int64_t last = 0;
  int64_t step;
  bool fits = true;
  for (int d = 0; d < b->ndim; d++) {
    int64_t n = node_int(r, b->shape[d], 0);
    if (n < 0) raise(r->ctx, ERR_SHAPE, NOWHERE, "buffer '%s': dimension %d is %" PRId64, b->buffer->name, d, n);
    fits &= int_mul(dense, n, &dense);
    if (b->strides) fits &= int_mul(n - 1, node_int(r, b->strides[d], 0), &step) && int_add(last, step, &last);
  }
  *out = b->strides && dense ? last + 1 : dense;
  return fits;
}

/* Fresh memory, filled so that reading what was never written shows. */
static const Mem *new_memory(Run *r, const BufNode *b)
{
  int64_t bytes;
  if (!count_elements(r, b, &bytes) || !int_mul(bytes, (int64_t)b->size * b->buffer->dtype.lanes, &bytes) ||
      bytes < 0 || bytes >= MAX_ALLOC)
    raise(r->ctx, ERR_MEMORY, NOWHERE, "interpreter: buffer '%s' is too large (2 GiB are the limit)", b->buffer->name);
  Mem *mem = arena_new_of(scratch(r->ctx), Mem);
  *mem = (Mem){arena_alloc(scratch(r->ctx), (size_t)bytes + 1), 0, bytes};
  memset(mem->data, 0xff, (size_t)bytes);
  return mem;
}

static void exec_allocs(Run *r, const SNode *n, Group g)
{
  for (int a = 0; a < n->nalloc; a++) {
    const BufNode *b = n->alloc[a];
    const Mem *mem = NULL;
    bool common = str_starts(b->buffer->scope, "shared") || str_starts(b->buffer->scope, "warp");
    for (int i = 0; i < g.n; i++) {
      turn(r, g.env[i]);
      bool own = !common || g.env[i][r->lanes].i; /* a lane has its own, also of what threads share */
      if (!mem || own) mem = new_memory(r, b);
      g.env[i][b->data].mem = mem;
    }
  }
}

/* ---- blocks ----------------------------------------------------------------------------------- */

static int64_t wrapping(int64_t acc, int64_t a, int64_t b)
{
  return (int64_t)((uint64_t)acc + (uint64_t)a * (uint64_t)b);
}

static void bind_match(Run *r, const MatchNode *n, Slot *env)
{
  turn(r, env);
  const BufNode *src = n->source;
  const BufNode *view = n->view;
  int skip = src->ndim - view->ndim;
  int64_t offset = src->offset ? node_int(r, src->offset, 0) : 0;
  int64_t stride = 1;
  env[view->data] = env[src->data];
  for (int d = src->ndim - 1; d >= 0; d--) {
    if (src->strides) stride = node_int(r, src->strides[d], 0);
    int64_t extent = node_int(r, n->extent[d], 0);
    int64_t wide = node_int(r, src->shape[d], 0);
    offset = wrapping(offset, node_int(r, n->min[d], 0), stride);
    if (d >= skip) {
      int v = d - skip;
      const Buffer *b = view->buffer;
      env[n->hidden + 1 + v].i = stride;
      if (n->bind_shape[v]) env[view->shape[v]->slot].i = extent;
      else if (node_int(r, view->shape[v], 0) != extent)
        raise(r->ctx, ERR_SHAPE, NOWHERE,
              "match_buffer '%s': dimension %d is %" PRId64 ", the region of '%s' has %" PRId64, b->name, v,
              node_int(r, view->shape[v], 0), src->buffer->name, extent);
      if (n->bind_stride[v]) env[n->stride[v]->slot].i = stride;
      else if (n->stride && node_int(r, n->stride[v], 0) != stride && extent > 1)
        raise(r->ctx, ERR_SHAPE, NOWHERE, "match_buffer '%s': stride %d is %" PRId64 ", that of '%s' is %" PRId64,
              b->name, v, node_int(r, n->stride[v], 0), src->buffer->name, stride);
    }
    if (!src->strides) stride = wrapping(0, stride, wide);
  }
  env[n->hidden].i = offset;
  if (n->offset_slot >= 0) env[n->offset_slot].i = offset;
}

/* Binds the block's variables for one member; false where the predicate does not hold. */
static bool bind_iters(Run *r, const SNode *n, Slot *env)
{
  turn(r, env);
  for (int i = 0; i < n->niter; i++) env[n->slot + i].i = node_int(r, n->iter[i].value, 0);
  for (int i = 0; i < n->niter; i++) env[n->iter[i].slot] = env[n->slot + i];
  r->stamp++;
  if (n->value && !node_int(r, n->value, 0)) return false;
  for (int i = 0; i < n->niter; i++) {
    int64_t min = node_int(r, n->iter[i].min, 0);
    int64_t extent = node_int(r, n->iter[i].extent, 0);
    int64_t value = env[n->slot + i].i;
    if (value < min || (uint64_t)value - (uint64_t)min >= (uint64_t)(extent < 0 ? 0 : extent))
      raise(r->ctx, ERR_BOUNDS, NOWHERE,
            "block '%s': '%s' is %" PRId64 ", outside of its domain of %" PRId64 " from %" PRId64,
            n->stmt->u.block->name, n->stmt->u.block->iter[i].var->name, value, extent, min);
  }
  return true;
}

static bool at_first(Run *r, const SNode *n, Slot *env)
{
  turn(r, env);
  for (int i = 0; i < n->niter; i++)
    if (n->iter[i].reduce && env[n->iter[i].slot].i != node_int(r, n->iter[i].min, 0)) return false;
  return true;
}

static void exec_block_alone(Run *r, const SNode *n, Group g)
{
  if (!bind_iters(r, n, g.env[0])) return;
  Scope scope = scope_begin(r->ctx);
  exec_allocs(r, n, g);
  for (int k = 0; k < n->nmatch; k++) bind_match(r, &n->match[k], g.env[0]);
  if (n->init && at_first(r, n, g.env[0])) exec(r, n->init, g);
  exec(r, n->body, g);
  scope_end(r->ctx, scope);
}

static void exec_block(Run *r, const SNode *n, Group g)
{
  if (g.n == 1) {
    exec_block_alone(r, n, g);
    return;
  }
  Scope scope = scope_begin(r->ctx);
  bool *keep = arena_array(scratch(r->ctx), bool, g.n);
  for (int i = 0; i < g.n; i++) keep[i] = bind_iters(r, n, g.env[i]);
  g = subgroup(r, g, keep);
  if (g.n) {
    exec_allocs(r, n, g);
    for (int k = 0; k < n->nmatch; k++)
      for (int i = 0; i < g.n; i++) bind_match(r, &n->match[k], g.env[i]);
    if (n->init) {
      for (int i = 0; i < g.n; i++) keep[i] = at_first(r, n, g.env[i]);
      Group first = subgroup(r, g, keep);
      if (first.n) exec(r, n->init, first);
    }
    exec(r, n->body, g);
  }
  scope_end(r->ctx, scope);
}

static void exec(Run *r, const SNode *n, Group g)
{
  if (r->returned) return;
  switch (n->stmt->kind) {
  case S_SEQ:
    for (int i = 0; i < n->nchild; i++) exec(r, n->child[i], g);
    break;
  case S_FOR:
    if (n->stmt->u.loop.kind == FOR_THREAD) exec_thread(r, n, g);
    else if (n->stmt->u.loop.kind == FOR_VECTORIZED && r->shuffle) exec_vector(r, n, g);
    else exec_for(r, n, g);
    break;
  case S_IF: exec_if(r, n, g); break;
  case S_WHILE: exec_while(r, n, g); break;
  case S_LET:
    for (int i = 0; i < g.n; i++) {
      turn(r, g.env[i]);
      for (int k = 0; k < n->stmt->u.let.var->dtype.lanes; k++)
        g.env[i][n->slot + k] = interp_node_slot(r, n->value, k);
    }
    exec(r, n->body, g);
    break;
  case S_STORE:
    if (r->shuffle && g.n > 1) exec_store_shuffled(r, n, g);
    else
      for (int i = 0; i < g.n; i++) exec_store(r, n, g.env[i]);
    break;
  case S_ALLOC: {
    Scope scope = scope_begin(r->ctx);
    exec_allocs(r, n, g);
    exec(r, n->body, g);
    scope_end(r->ctx, scope);
    break;
  }
  case S_EVAL:
    for (int i = 0; i < g.n && !r->returned; i++) {
      turn(r, g.env[i]);
      for (int k = 0; k < n->value->expr->dtype.lanes; k++) interp_node_slot(r, n->value, k);
    }
    break;
  case S_ATTR: exec(r, n->body, g); break;
  case S_BLOCK: exec_block(r, n, g); break;
  }
}

/* ---- arguments ------------------------------------------------------------------------------------ */

static int64_t arg_stride(const TirArg *a, int dim)
{
  if (a->strides) return a->strides[dim];
  int64_t stride = 1;
  for (int d = dim + 1; d < a->ndim; d++) stride = wrapping(0, stride, a->shape[d]);
  return stride;
}

/* The bytes that a tensor's elements cover. */
static const Mem *arg_memory(Ctx *ctx, const TirArg *a)
{
  Mem *mem = arena_new_of(scratch(ctx), Mem);
  int64_t lo = 0;
  int64_t hi = 1;
  int64_t size = (int64_t)dtype_bytes(a->dtype) * a->dtype.lanes;
  for (int d = 0; d < a->ndim; d++) {
    int64_t span = wrapping(0, a->shape[d] - 1, arg_stride(a, d));
    if (a->shape[d] <= 0) hi = lo = 0, d = a->ndim;
    else if (span < 0) lo += span;
    else hi += span;
  }
  *mem = (Mem){a->data, lo * size, hi * size};
  return mem;
}

static void bind_scalar(Run *r, Compiler *c, const Var *v, const TirArg *a)
{
  Value given = a->scalar;
  if (v->dtype.code == DT_HANDLE) {
    r->env[interp_compile_var(c, v)].mem = arg_memory(r->ctx, a);
    return;
  }
  if (a->ndim || a->data)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "argument '%s' is a %s scalar, a tensor was given", v->name,
          dtype_name(scratch(r->ctx), v->dtype));
  bool fits =
      dtype_is_float(v->dtype) ? dtype_is_float(given.dtype) || dtype_is_int(given.dtype) : dtype_is_int(given.dtype);
  if (!fits)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "argument '%s' is a %s scalar, %s was given", v->name,
          dtype_name(scratch(r->ctx), v->dtype), dtype_name(scratch(r->ctx), given.dtype));
  r->env[interp_compile_var(c, v)] = interp_slot_of(value_cast(given, v->dtype));
}

static void check_tensor(Run *r, const Buffer *b, const TirArg *a)
{
  if (!dtype_eq(a->dtype, b->dtype) && !(dtype_is_bool(a->dtype) && dtype_is_bool(b->dtype)))
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "argument '%s' has dtype %s, %s was given", b->name,
          dtype_name(scratch(r->ctx), b->dtype), dtype_name(scratch(r->ctx), a->dtype));
  if (a->ndim != b->ndim)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "argument '%s' has %d dimension%s, a tensor with %d was given", b->name,
          b->ndim, b->ndim == 1 ? "" : "s", a->ndim);
}

/* Sizes that stand alone as a dimension or a stride are read off the tensor. */
static void bind_sizes(Run *r, Compiler *c, const Buffer *b, const TirArg *a)
{
  for (int d = 0; d < b->ndim; d++) {
    if (binds(c, b->shape[d])) r->env[interp_compile_var(c, b->shape[d]->u.var)].i = a->shape[d];
    if (b->strides && binds(c, b->strides[d])) r->env[interp_compile_var(c, b->strides[d]->u.var)].i = arg_stride(a, d);
  }
  if (b->elem_offset && binds(c, b->elem_offset)) r->env[interp_compile_var(c, b->elem_offset->u.var)].i = 0;
}

static void check_sizes(Run *r, Compiler *c, const Buffer *b, const TirArg *a)
{
  int64_t compact = 1;
  for (int d = b->ndim - 1; d >= 0; d--) {
    int64_t want = node_int(r, interp_compile_expr(c, b->shape[d]), 0);
    if (want != a->shape[d])
      raise(r->ctx, ERR_ARGUMENT, NOWHERE,
            "argument '%s': dimension %d is %s = %" PRId64 ", a tensor with %" PRId64 " was given", b->name, d,
            expr_str_of(scratch(r->ctx), b->shape[d]), want, a->shape[d]);
    int64_t stride = b->strides ? node_int(r, interp_compile_expr(c, b->strides[d]), 0) : compact;
    int64_t given = arg_stride(a, d);
    if (stride != given && a->shape[d] > 1)
      raise(r->ctx, ERR_ARGUMENT, NOWHERE,
            "argument '%s': dimension %d has stride %" PRId64 ", a tensor with %" PRId64 " was given; copy it first",
            b->name, d, stride, given);
    compact = wrapping(0, compact, want);
  }
  if (b->elem_offset && node_int(r, interp_compile_expr(c, b->elem_offset), 0) != 0)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "argument '%s': its element offset is not 0", b->name);
}

typedef struct Bound {
  Run *r;
  Compiler *c;
  const PrimFunc *f;
  const TirArg *arg;
} Bound;

static void bind_args(Bound *in)
{
  const PrimFunc *f = in->f;
  for (int i = 0; i < f->nparam; i++) interp_compile_var(in->c, f->param[i].var);
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) check_tensor(in->r, f->param[i].buffer, &in->arg[i]);
    else bind_scalar(in->r, in->c, f->param[i].var, &in->arg[i]);
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) {
      bind_sizes(in->r, in->c, f->param[i].buffer, &in->arg[i]);
      in->r->env[interp_compile_var(in->c, f->param[i].var)].mem = arg_memory(in->r->ctx, &in->arg[i]);
    }
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) check_sizes(in->r, in->c, f->param[i].buffer, &in->arg[i]);
}

/* Slots that the parameters need at most. */
static int param_slots(const PrimFunc *f)
{
  int n = 0;
  for (int i = 0; i < f->nparam; i++) {
    n += f->param[i].var->dtype.lanes;
    if (f->param[i].buffer) n += 2 * f->param[i].buffer->ndim + 2;
  }
  return n;
}

static void interpret(const PrimFunc *f, int n, const TirArg *arg, uint64_t shuffle)
{
  Ctx *ctx = f->m->ctx;
  if (n != f->nparam)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "function '%s' takes %d argument%s, %d given", f->name, f->nparam,
          f->nparam == 1 ? "" : "s", n);
  Scope scope = scope_begin(ctx);
  Compiler c = {.m = f->m, .arena = scratch(ctx)};
  Slot *first = arena_array(scratch(ctx), Slot, param_slots(f));
  Run r = {.m = f->m, .ctx = ctx, .env = first, .stamp = 1, .shuffle = shuffle};
  Bound in = {&r, &c, f, arg};
  bind_args(&in);
  int nparam = c.nslot;
  SNode *body = compile_stmt(&c, f->body);
  if (shuffle) find_all_own(&c, f, body);
  r.lanes = c.nslot++;
  r.nslot = c.nslot;
  Slot *env = arena_array(scratch(ctx), Slot, c.nslot);
  memcpy(env, first, (size_t)nparam * sizeof *env);
  exec(&r, body, (Group){&env, 1});
  scope_end(ctx, scope);
}

void func_interpret(const PrimFunc *f, int n, const TirArg *arg) { interpret(f, n, arg, 0); }

void func_interpret_shuffled(const PrimFunc *f, int n, const TirArg *arg, uint64_t seed)
{
  interpret(f, n, arg, seed ? seed : 0x9e3779b97f4a7c15u);
}
