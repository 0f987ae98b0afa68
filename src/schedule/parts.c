/* parts.c: small pieces that several primitives build with. */
#include "schedule/engine.h"

static const Region *pick_region(Sched *s, const char *prim, Stmt *block, const SchedArg *index, int n, const Region *v,
                                 const char *verb)
{
  if (index->kind == SA_STR) {
    for (int i = 0; i < n; i++)
      if (!strcmp(v[i].buffer->name, index->u.s)) return &v[i];
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: %s does not %s a buffer '%s'", prim, tree_what(s, block), verb,
          index->u.s);
  }
  int64_t i = sched_arg_int(s, index);
  if (i < 0 || i >= n)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: buffer number %" PRId64 " is not among the %d that %s %ss", prim, i, n,
          tree_what(s, block), verb);
  return &v[i];
}

const Region *sched_read_region(Sched *s, const char *prim, Stmt *block, const SchedArg *index)
{
  return pick_region(s, prim, block, index, BLOCK(block)->nreads, BLOCK(block)->reads, "read");
}

const Region *sched_write_region(Sched *s, const char *prim, Stmt *block, const SchedArg *index)
{
  return pick_region(s, prim, block, index, BLOCK(block)->nwrites, BLOCK(block)->writes, "write");
}

/* ("read", 0), ("write", 1), or the name of a buffer that the block touches. */
const Region *sched_buffer_region(Sched *s, const char *prim, Stmt *block, const SchedArg *a, bool *write)
{
  if (a->kind == SA_LIST) {
    *write = !strcmp(a->u.list.v[0].u.s, "write");
    return *write ? sched_write_region(s, prim, block, &a->u.list.v[1])
                  : sched_read_region(s, prim, block, &a->u.list.v[1]);
  }
  for (int i = 0; i < BLOCK(block)->nwrites; i++)
    if (!strcmp(BLOCK(block)->writes[i].buffer->name, a->u.s)) {
      *write = true;
      return &BLOCK(block)->writes[i];
    }
  *write = false;
  return sched_read_region(s, prim, block, a);
}

void sched_block_add_alloc(Sched *s, Stmt *block, const Buffer *buffer)
{
  Block *b = BLOCK(block);
  const Buffer **v = arena_array(s->m->arena, const Buffer *, b->nallocs + 1);
  for (int i = 0; i < b->nallocs; i++) v[i] = b->allocs[i];
  v[b->nallocs++] = buffer;
  b->allocs = v;
}

Stmt *sched_func_alloc_block(Sched *s, const Buffer *buffer)
{
  Stmt **block;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &block);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < BLOCK(block[i])->nallocs; k++)
      if (BLOCK(block[i])->allocs[k] == buffer) return block[i];
  return NULL;
}

void sched_func_drop_alloc(Sched *s, const Buffer *buffer)
{
  Stmt *owner = sched_func_alloc_block(s, buffer);
  if (!owner) return;
  Block *b = BLOCK(owner);
  const Buffer **v = arena_array(s->m->arena, const Buffer *, b->nallocs);
  int n = 0;
  for (int i = 0; i < b->nallocs; i++)
    if (b->allocs[i] != buffer) v[n++] = b->allocs[i];
  b->allocs = v;
  b->nallocs = n;
}

Stmt *sched_plain_block(Sched *s, const char *name, int n, const Var *const *vars, const Expr *const *extent,
                        Stmt *body)
{
  Block *b = arena_new_of(s->m->arena, Block);
  b->name = tree_block_name(s, name);
  b->niter = n;
  b->iter = arena_array(s->m->arena, BlockIter, n);
  for (int i = 0; i < n; i++) {
    const Expr *zero = expr_int(s->m, vars[i]->dtype, 0);
    b->iter[i] = (BlockIter){vars[i], zero, expr_cast(s->m, vars[i]->dtype, extent[i]), ITER_SPATIAL, zero};
  }
  b->body = body;
  Stmt *block = stmt_block(s->m, b);
  block_infer_access(s->m, b);
  return block;
}

Stmt *sched_plain_nest(Sched *s, Stmt *block)
{
  Block *b = BLOCK(block);
  Stmt *nest = block;
  for (int i = b->niter - 1; i >= 0; i--) {
    BlockIter *it = &b->iter[i];
    const Var *var = var_new(s->m, arena_printf(s->m->arena, "ax%d", i), it->var->dtype, VAR_PLAIN);
    it->value = expr_is_int(it->min, 0) ? var_expr(var) : expr_add(s->m, it->min, var_expr(var));
    nest = stmt_for(s->m, var, sched_const_like(s, it->min, 0), it->extent, FOR_SERIAL, NULL, nest);
  }
  return nest;
}

const IterVar *const *sched_iters_as_loops(Sched *s, const Block *b)
{
  Arena *tmp = scratch(s->ctx);
  const IterVar **loops = arena_array(tmp, const IterVar *, b->niter);
  for (int i = 0; i < b->niter; i++) {
    IterVar *iv = arena_new_of(tmp, IterVar);
    *iv = (IterVar){.var = b->iter[i].var, .min = b->iter[i].min, .extent = b->iter[i].extent, .kind = ITER_SPATIAL};
    loops[i] = iv;
  }
  return loops;
}
