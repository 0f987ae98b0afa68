/* tree.c: finding, moving and naming statements.
 *
 * Everything here keeps the parent links right and never leaves a sequence with
 * fewer than two statements. */
#include "schedule/engine.h"

/* ---- collecting --------------------------------------------------------------------- */

typedef struct Collect {
  Arena *arena;
  Stmt *top;
  Vec(Stmt *) out;
  StmtKind kind;
  bool nested; /* go on below what was found */
} Collect;

static bool collect(void *env, Stmt *s)
{
  Collect *c = env;
  if (s == c->top || s->kind != c->kind) return true;
  vec_push(c->arena, &c->out, s);
  return c->nested;
}

static int collect_below(Arena *a, Stmt *s, StmtKind kind, bool nested, Stmt ***out)
{
  Collect c = {.arena = a, .top = s, .kind = kind, .nested = nested};
  stmt_visit(s, collect, &c);
  *out = c.out.v;
  return c.out.n;
}

int tree_blocks(Arena *a, Stmt *s, Stmt ***out) { return collect_below(a, s, S_BLOCK, false, out); }

int tree_all_blocks(Arena *a, PrimFunc *f, Stmt ***out)
{
  Collect c = {.arena = a, .kind = S_BLOCK, .nested = true};
  stmt_visit(f->body, collect, &c);
  *out = c.out.v;
  return c.out.n;
}

int tree_all_loops(Arena *a, Stmt *below, Stmt ***out) { return collect_below(a, below, S_FOR, true, out); }

bool tree_under(const Stmt *s, const Stmt *ancestor)
{
  while (s && s != ancestor) s = s->parent;
  return s != NULL;
}

typedef struct Order {
  const Stmt *a, *b, *first;
} Order;

static bool find_first(void *env, Stmt *s)
{
  Order *o = env;
  if (!o->first && (s == o->a || s == o->b)) o->first = s;
  return !o->first;
}

bool tree_before(Sched *s, const Stmt *a, const Stmt *b)
{
  Order o = {a, b, NULL};
  stmt_visit(s->f->body, find_first, &o);
  return o.first == a && a != b;
}

Stmt *tree_scope(Sched *s, Stmt *block)
{
  Stmt *scope = stmt_enclosing_block(block);
  if (!scope)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s is the root of function '%s'; this works on blocks inside it",
          tree_what(s, block), s->f->name);
  return scope;
}

int tree_loops_below(Arena *a, Stmt *s, const Stmt *top, Stmt ***out)
{
  int n = 0;
  for (Stmt *p = s->parent; p && p->kind != S_BLOCK && p != top; p = p->parent) n += p->kind == S_FOR;
  *out = arena_array(a, Stmt *, n);
  int i = n;
  for (Stmt *p = s->parent; p && p->kind != S_BLOCK && p != top; p = p->parent)
    if (p->kind == S_FOR) (*out)[--i] = p;
  return n;
}

/* ---- moving ---------------------------------------------------------------------------- */

static Stmt **body_slot(Stmt *holder) { return holder->kind == S_FOR ? &holder->u.loop.body : &BLOCK(holder)->body; }

int tree_items(Arena *a, Stmt *holder, Stmt ***out)
{
  Stmt *body = *body_slot(holder);
  if (body->kind == S_SEQ) {
    *out = arena_copy(a, body->u.seq.v, sizeof(Stmt *) * (size_t)body->u.seq.n);
    return body->u.seq.n;
  }
  *out = arena_copy(a, &body, sizeof body);
  return 1;
}

void tree_insert(Sched *s, Stmt *holder, int at, Stmt *stmt)
{
  Arena *a = scratch(s->ctx);
  Stmt **items;
  int n = tree_items(a, holder, &items);
  Stmt **v = arena_array(a, Stmt *, n + 1);
  for (int i = 0; i < at; i++) v[i] = items[i];
  v[at] = stmt;
  for (int i = at; i < n; i++) v[i + 1] = items[i];
  Stmt *seq = stmt_seq(s->m, n + 1, v);
  *body_slot(holder) = seq;
  stmt_link(seq, holder);
}

void tree_replace(Sched *s, Stmt *a, Stmt *b)
{
  stmt_replace(s->f, a, b);
  stmt_link(b, b->parent);
}

void tree_insert_beside(Sched *s, Stmt *beside, bool after, Stmt *stmt)
{
  Stmt *parent = beside->parent;
  if (parent->kind == S_SEQ) {
    Vec(Stmt *) v = {0};
    for (int i = 0; i < parent->u.seq.n; i++) {
      Stmt *item = parent->u.seq.v[i];
      if (item == beside && !after) vec_push(s->m->arena, &v, stmt);
      vec_push(s->m->arena, &v, item);
      if (item == beside && after) vec_push(s->m->arena, &v, stmt);
    }
    parent->u.seq.v = v.v;
    parent->u.seq.n = v.n;
    parent->u.seq.cap = v.cap;
    stmt_link(stmt, parent);
    return;
  }
  Stmt *pair[2] = {after ? beside : stmt, after ? stmt : beside};
  Stmt *place = stmt_nop(s->m);
  stmt_replace(s->f, beside, place);
  Stmt *seq = stmt_seq(s->m, 2, pair);
  tree_replace(s, place, seq);
}

Stmt *tree_nest(Stmt *block)
{
  Stmt *s = block;
  while (s->parent && s->parent->kind == S_FOR) s = s->parent;
  return s;
}

void tree_remove(Sched *s, Stmt *block)
{
  Stmt *nest = tree_nest(block);
  Stmt *parent = nest->parent;
  if (!parent || parent->kind != S_SEQ)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s is the only one in its scope, so it cannot be taken out",
          tree_what(s, block));
  int n = 0;
  for (int i = 0; i < parent->u.seq.n; i++)
    if (parent->u.seq.v[i] != nest) parent->u.seq.v[n++] = parent->u.seq.v[i];
  parent->u.seq.n = n;
  nest->parent = NULL;
  if (n == 1) tree_replace(s, parent, parent->u.seq.v[0]);
}

void tree_check_plain(Sched *s, const char *prim, Stmt *block)
{
  for (Stmt *p = block->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind != S_FOR && p->kind != S_SEQ)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s stands under a condition or another statement that is no loop", prim,
            tree_what(s, block));
}

/* ---- names -------------------------------------------------------------------------------- */

const char *tree_block_name(Sched *s, const char *hint)
{
  const char *name = hint;
  for (int i = 1; func_find_block(s->f, name); i++) name = arena_printf(s->m->arena, "%s_%d", hint, i);
  return arena_strdup(s->m->arena, name);
}

static bool buffer_taken(Sched *s, const char *name)
{
  for (int i = 0; i < s->f->nparam; i++)
    if (s->f->param[i].buffer && !strcmp(s->f->param[i].buffer->name, name)) return true;
  Stmt **blocks;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &blocks);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < BLOCK(blocks[i])->nallocs; k++)
      if (!strcmp(BLOCK(blocks[i])->allocs[k]->name, name)) return true;
  return false;
}

const char *tree_buffer_name(Sched *s, const char *hint)
{
  const char *name = hint;
  for (int i = 1; buffer_taken(s, name); i++) name = arena_printf(s->m->arena, "%s_%d", hint, i);
  return arena_strdup(s->m->arena, name);
}

const char *tree_what(Sched *s, const Stmt *stmt)
{
  if (stmt->kind == S_FOR) return arena_printf(s->m->arena, "loop '%s'", LOOPVAR(stmt)->name);
  if (stmt->kind == S_BLOCK) return arena_printf(s->m->arena, "block '%s'", BLOCK(stmt)->name);
  return "statement";
}
