/* facts.c: what is known about blocks, and which changes they allow.
 *
 * A scope is a block; its children are the nearest blocks below it.  Children depend
 * on each other through the buffers in their reads and writes. */
#include "schedule/engine.h"

/* ---- variables ------------------------------------------------------------------------ */

static void bind_iters(Analyzer *an, const Block *b)
{
  for (int i = 0; i < b->niter; i++) analyzer_bind(an, b->iter[i].var, b->iter[i].min, b->iter[i].extent);
}

static void bind_own(Analyzer *an, Stmt *s)
{
  if (s->kind == S_FOR) analyzer_bind(an, LOOPVAR(s), s->u.loop.min, s->u.loop.extent);
  if (s->kind == S_BLOCK) bind_iters(an, BLOCK(s));
}

static void bind_path(Analyzer *an, Stmt *s)
{
  if (!s) return;
  bind_path(an, s->parent);
  bind_own(an, s);
}

Analyzer *facts_analyzer(Sched *s, Stmt *at)
{
  Analyzer *an = analyzer_new(s->m, scratch(s->ctx));
  bind_path(an, at);
  return an;
}

static bool bind_visited(void *env, Stmt *s)
{
  bind_own(env, s);
  return true;
}

/* Like bind_own, but a variable that has one value only keeps its name. */
static bool bind_named(void *env, Stmt *s)
{
  Block *b = s->kind == S_BLOCK ? BLOCK(s) : NULL;
  if (s->kind == S_FOR && !expr_is_int(s->u.loop.extent, 1)) bind_own(env, s);
  for (int i = 0; b && i < b->niter; i++)
    if (!expr_is_int(b->iter[i].extent, 1)) analyzer_bind(env, b->iter[i].var, b->iter[i].min, b->iter[i].extent);
  return true;
}

Analyzer *facts_analyzer_named(Sched *s, Stmt *stmt)
{
  Analyzer *an = analyzer_new(s->m, scratch(s->ctx));
  for (Stmt *up = stmt->parent; up; up = up->parent) bind_named(an, up);
  stmt_visit(stmt, bind_named, an);
  return an;
}

void facts_bind_below(Analyzer *an, Stmt *s) { stmt_visit(s, bind_visited, an); }

const Expr *facts_simplify(Sched *s, Stmt *at, const Expr *e) { return expr_simplify(facts_analyzer(s, at), e); }

/* ---- simplifying ------------------------------------------------------------------------- */

const Expr *sched_const_like(Sched *s, const Expr *like, int64_t v) { return expr_int(s->m, like->dtype, v); }

const Expr *sched_both(Sched *s, const Expr *a, const Expr *b)
{
  if (!a || !b) return a ? a : b;
  return expr_and(s->m, a, b);
}

static void add_conjuncts(Arena *a, const Expr *e, int *n, int *cap, const Expr ***v)
{
  if (e->kind == E_AND) {
    add_conjuncts(a, e->arg[0], n, cap, v);
    add_conjuncts(a, e->arg[1], n, cap, v);
    return;
  }
  if (*n == *cap) *v = vec_grow(a, *v, cap, *n, sizeof **v);
  (*v)[(*n)++] = e;
}

int sched_conjuncts(Arena *a, const Expr *e, const Expr ***out)
{
  int n = 0;
  int cap = 0;
  *out = NULL;
  if (e) add_conjuncts(a, e, &n, &cap, out);
  return n;
}

const Expr *sched_ceil_div(Sched *s, const Expr *a, const Expr *b)
{
  const Expr *top = expr_sub(s->m, expr_add(s->m, a, b), sched_const_like(s, a, 1));
  return expr_floordiv(s->m, top, b);
}

const Expr *sched_iter_end(Sched *s, const Expr *min, const Expr *extent)
{
  return expr_sub(s->m, expr_add(s->m, min, extent), sched_const_like(s, min, 1));
}

/* Without the parts that always hold. */
static const Expr *simplify_predicate(Sched *s, Analyzer *an, const Expr *e)
{
  const Expr **part;
  const Expr *out = NULL;
  int n = sched_conjuncts(scratch(s->ctx), e, &part);
  for (int i = 0; i < n; i++) {
    const Expr *p = expr_simplify(an, part[i]);
    bool repeated = false;
    for (int k = 0; k < i; k++) repeated |= part[k] == p;
    part[i] = p;
    if (!repeated && !expr_is_int(p, 1) && !analyzer_prove(an, p)) out = sched_both(s, out, p);
  }
  return out;
}

typedef struct Simplify {
  Sched *s;
  Analyzer *an;
} Simplify;

static bool simplify_stmt(void *env, Stmt *stmt)
{
  Simplify *v = env;
  if (stmt->kind == S_FOR) {
    stmt->u.loop.min = expr_simplify(v->an, stmt->u.loop.min);
    stmt->u.loop.extent = expr_simplify(v->an, stmt->u.loop.extent);
  }
  if (stmt->kind == S_BLOCK) {
    Block *b = BLOCK(stmt);
    for (int i = 0; i < b->niter; i++) b->iter[i].value = expr_simplify(v->an, b->iter[i].value);
    if (b->predicate) b->predicate = simplify_predicate(v->s, v->an, b->predicate);
  }
  bind_own(v->an, stmt);
  return true;
}

void facts_simplify_below(Sched *s, Stmt *stmt)
{
  Simplify v = {s, facts_analyzer(s, stmt->parent)};
  stmt_visit(stmt, simplify_stmt, &v);
}

/* ---- what a block touches ------------------------------------------------------------------ */

int facts_roles(const Block *b, const Var *v)
{
  int roles = 0;
  for (int i = 0; i < b->niter; i++)
    if (expr_uses_var(b->iter[i].value, v)) roles |= 1 << b->iter[i].kind;
  return roles;
}

bool facts_reads(const Block *b, const Buffer *buffer)
{
  for (int i = 0; i < b->nreads; i++)
    if (b->reads[i].buffer == buffer) return true;
  return false;
}

bool facts_writes(const Block *b, const Buffer *buffer)
{
  for (int i = 0; i < b->nwrites; i++)
    if (b->writes[i].buffer == buffer) return true;
  return false;
}

typedef struct Loads {
  const Buffer *buffer;
  bool found;
} Loads;

static void note_load(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  Loads *l = env;
  l->found |= expr_uses_buffer(e, l->buffer);
}

bool facts_loads(Stmt *below, const Buffer *buffer)
{
  Loads l = {buffer, false};
  stmt_visit_exprs(below, note_load, &l);
  return l.found;
}

bool facts_guarded(const Sched *s, const Stmt *block)
{
  for (int i = 0; i < s->guarded.n; i++)
    if (s->guarded.v[i] == block->id) return true;
  return false;
}

bool facts_is_param(const Sched *s, const Buffer *buffer)
{
  for (int i = 0; i < s->f->nparam; i++)
    if (s->f->param[i].buffer == buffer) return true;
  return false;
}

static int scope_blocks(Arena *a, Stmt *scope, const Buffer *buffer, bool write, Stmt ***out)
{
  Stmt **child;
  int n = tree_blocks(a, scope, &child);
  int k = 0;
  *out = arena_array(a, Stmt *, n);
  for (int i = 0; i < n; i++)
    if (write ? facts_writes(BLOCK(child[i]), buffer) : facts_reads(BLOCK(child[i]), buffer)) (*out)[k++] = child[i];
  return k;
}

int facts_writers(Arena *a, Stmt *scope, const Buffer *b, Stmt ***out) { return scope_blocks(a, scope, b, true, out); }
int facts_readers(Arena *a, Stmt *scope, const Buffer *b, Stmt ***out) { return scope_blocks(a, scope, b, false, out); }

int facts_consumers(Arena *a, Stmt *block, Stmt ***out)
{
  Stmt **child;
  Stmt *scope = stmt_enclosing_block(block);
  int n = scope ? tree_blocks(a, scope, &child) : 0;
  int k = 0;
  const Block *b = BLOCK(block);
  *out = arena_array(a, Stmt *, n);
  for (int i = 0; i < n; i++) {
    bool linked = false;
    for (int r = 0; r < b->nwrites; r++) linked |= facts_reads(BLOCK(child[i]), b->writes[r].buffer);
    if (linked && child[i] != block) (*out)[k++] = child[i];
  }
  return k;
}

/* Only a writer that comes later is looked at closely: it may be about other elements,
 * as a scan that reads one row and writes the next. */
bool facts_touches(Sched *s, Stmt *writer, Stmt *reader)
{
  const Block *w = BLOCK(writer);
  const Block *r = BLOCK(reader);
  bool before = tree_before(s, writer, reader);
  Analyzer *an = NULL;
  for (int i = 0; i < w->nwrites; i++)
    for (int k = 0; k < r->nreads; k++) {
      if (w->writes[i].buffer != r->reads[k].buffer) continue;
      if (before) return true;
      if (!an) {
        an = facts_analyzer(s, tree_scope(s, reader));
        facts_bind_below(an, tree_scope(s, reader));
      }
      Box out = region_under(s, an, &w->writes[i], writer, NULL);
      Box in = region_under(s, an, &r->reads[k], reader, NULL);
      if (!region_apart(s, an, &out, &in)) return true;
    }
  return false;
}

int facts_producers(Arena *a, Sched *s, Stmt *block, Stmt ***out)
{
  Stmt **child;
  Stmt *scope = stmt_enclosing_block(block);
  int n = scope ? tree_blocks(a, scope, &child) : 0;
  int k = 0;
  *out = arena_array(a, Stmt *, n);
  for (int i = 0; i < n; i++)
    if (child[i] != block && facts_touches(s, child[i], block)) (*out)[k++] = child[i];
  return k;
}

/* ---- kinds of blocks -------------------------------------------------------------------------- */

static const char *not_only_writer(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  if (!b->nwrites) return "it writes nothing";
  for (int i = 0; i < b->nwrites; i++) {
    Stmt **writer;
    int n = facts_writers(scratch(s->ctx), tree_scope(s, block), b->writes[i].buffer, &writer);
    for (int k = 0; k < n; k++)
      if (writer[k] != block)
        return arena_printf(s->m->arena, "%s writes buffer '%s' too", tree_what(s, writer[k]),
                            b->writes[i].buffer->name);
  }
  return NULL;
}

static const char *wrong_iter(Sched *s, const Block *b, int allowed)
{
  static const char *const kinds[] = {"spatial", "reduction", "opaque", "thread"};
  for (int i = 0; i < b->niter; i++)
    if (!(allowed & 1 << b->iter[i].kind))
      return arena_printf(s->m->arena, "its variable '%s' is %s", b->iter[i].var->name, kinds[b->iter[i].kind]);
  return NULL;
}

const char *facts_not_complete(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  const char *why = wrong_iter(s, b, 1 << ITER_SPATIAL);
  if (why) return why;
  if (b->init) return "it is a reduction";
  for (int i = 0; i < b->nwrites; i++)
    if (facts_reads(b, b->writes[i].buffer))
      return arena_printf(s->m->arena, "it reads buffer '%s', which it writes", b->writes[i].buffer->name);
  why = not_only_writer(s, block);
  return why ? why : facts_false_kinds(s, block);
}

const char *facts_not_reduction(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  const char *why = wrong_iter(s, b, 1 << ITER_SPATIAL | 1 << ITER_REDUCE);
  if (why) return why;
  if (!b->init) return "it is no reduction with an init";
  for (int i = 0; i < b->niter; i++)
    for (int w = 0; b->iter[i].kind == ITER_REDUCE && w < b->nwrites; w++)
      for (int d = 0; d < b->writes[w].buffer->ndim; d++)
        if (expr_uses_var(b->writes[w].min[d], b->iter[i].var))
          return arena_printf(s->m->arena, "its reduction variable '%s' is in an index that it writes",
                              b->iter[i].var->name);
  why = not_only_writer(s, block);
  if (!why) why = facts_false_kinds(s, block);
  return why ? why : facts_not_commutative(s, block);
}

void facts_check_whole_scope(Sched *s, const char *prim, Stmt *block)
{
  Stmt *scope = tree_scope(s, block);
  if (BLOCK(scope)->niter)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: %s is inside %s, which runs only a part of its domain at a time; do this before blockize", prim,
          tree_what(s, block), tree_what(s, scope));
}

void facts_check_movable(Sched *s, const char *prim, Stmt *block)
{
  tree_check_plain(s, prim, block);
  tree_scope(s, block);
  if (facts_guarded(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s came with a predicate of its own, which says where it runs", prim,
          tree_what(s, block));
  const char *complete = facts_not_complete(s, block);
  const char *reduction = complete ? facts_not_reduction(s, block) : NULL;
  if (!complete || !reduction) return;
  bool reduces = BLOCK(block)->init != NULL;
  for (int i = 0; i < BLOCK(block)->niter; i++) reduces |= BLOCK(block)->iter[i].kind == ITER_REDUCE;
  raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is neither a complete block nor a whole reduction: %s", prim,
        tree_what(s, block), reduces ? reduction : complete);
}

/* Allocated by the scope, or further out but touched in the scope alone. */
static bool is_inside(Sched *s, Stmt *scope, const Buffer *buffer)
{
  Stmt *owner = sched_func_alloc_block(s, buffer);
  Stmt **all;
  if (!owner || owner == scope) return owner != NULL;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &all);
  for (int i = 0; i < n; i++) {
    bool touches_it = facts_reads(BLOCK(all[i]), buffer) || facts_writes(BLOCK(all[i]), buffer);
    if (touches_it && !tree_under(all[i], scope) && !tree_under(scope, all[i])) return false;
  }
  return true;
}

void facts_check_not_output(Sched *s, const char *prim, Stmt *block)
{
  const Block *b = BLOCK(block);
  for (int i = 0; i < b->nwrites; i++) {
    if (!is_inside(s, tree_scope(s, block), b->writes[i].buffer))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: %s is an output block: it writes buffer '%s', an output of its scope, so it must stay", prim,
            tree_what(s, block), b->writes[i].buffer->name);
  }
}

void facts_check_inputs_final(Sched *s, const char *prim, Stmt *block)
{
  Stmt **writer;
  int n = facts_producers(scratch(s->ctx), s, block, &writer);
  for (int k = 0; k < n; k++) {
    bool later = !tree_before(s, writer[k], block);
    for (Stmt *p = block->parent; p && p->kind != S_BLOCK && !later; p = p->parent)
      later = p->kind == S_FOR && tree_under(writer[k], p) && facts_unfinished(s, writer[k], p);
    if (later)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s reads what %s still writes later", prim, tree_what(s, block),
            tree_what(s, writer[k]));
  }
}

static void refresh_inside(Sched *s, Stmt *block)
{
  Stmt **inner;
  int n = tree_blocks(scratch(s->ctx), block, &inner);
  for (int i = 0; i < n; i++) refresh_inside(s, inner[i]);
  block_infer_access(s->m, BLOCK(block));
}

void facts_refresh(Sched *s, Stmt *block)
{
  refresh_inside(s, block);
  for (Stmt *p = stmt_enclosing_block(block); p; p = stmt_enclosing_block(p))
    if (BLOCK(p)->nreads + BLOCK(p)->nwrites > 0) block_infer_access(s->m, BLOCK(p));
}
