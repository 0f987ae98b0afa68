/* get.c: finding blocks and loops. */
#include "schedule/engine.h"

static SchedArg blocks_result(Sched *s, int n, Stmt *const *v)
{
  SchedArg *out = arena_array(scratch(s->ctx), SchedArg, n);
  for (int i = 0; i < n; i++) out[i] = sched_result_block(s, v[i]);
  return sched_result_list(s, n, out);
}

SchedArg prim_get_block(Sched *s, SchedArg *a)
{
  Stmt *found = func_find_block(s->f, a[0].u.s);
  if (found) return sched_result_block(s, found);
  Text t = text_new(scratch(s->ctx));
  Stmt **block;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &block);
  for (int i = 0; i < n; i++) text_printf(&t, "%s%s", i ? ", " : "", BLOCK(block[i])->name);
  raise(s->ctx, ERR_SCHEDULE, NOWHERE, "there is no block '%s' in function '%s'; its blocks are %s", a[0].u.s,
        s->f->name, text_str(&t));
}

SchedArg prim_get_loops(Sched *s, SchedArg *a)
{
  Stmt **loop;
  int n = stmt_loops(scratch(s->ctx), sched_arg_block(s, &a[0]), &loop);
  SchedArg *out = arena_array(scratch(s->ctx), SchedArg, n);
  for (int i = 0; i < n; i++) out[i] = sched_result_loop(s, loop[i]);
  return sched_result_list(s, n, out);
}

SchedArg prim_get_child_blocks(Sched *s, SchedArg *a)
{
  Stmt **v;
  int n = tree_blocks(scratch(s->ctx), sched_arg_block_or_loop(s, &a[0]), &v);
  return blocks_result(s, n, v);
}

SchedArg prim_get_producers(Sched *s, SchedArg *a)
{
  Stmt **v;
  int n = facts_producers(scratch(s->ctx), s, sched_arg_block(s, &a[0]), &v);
  return blocks_result(s, n, v);
}

SchedArg prim_get_consumers(Sched *s, SchedArg *a)
{
  Stmt **v;
  int n = facts_consumers(scratch(s->ctx), sched_arg_block(s, &a[0]), &v);
  return blocks_result(s, n, v);
}

/* Does a block from here up to the scope, which is around it, allocate the buffer? */
static bool allocated_within(const Stmt *block, const Stmt *scope, const Buffer *buffer)
{
  for (const Stmt *p = block;; p = p->parent) {
    for (int i = 0; p->kind == S_BLOCK && i < BLOCK(p)->nallocs; i++)
      if (BLOCK(p)->allocs[i] == buffer) return true;
    if (p == scope) return false;
  }
}

SchedArg prim_get_output_blocks(Sched *s, SchedArg *a)
{
  Stmt *scope = sched_arg_block(s, &a[0]);
  Stmt **v;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &v);
  int k = 0;
  for (int i = 0; i < n; i++) {
    const Block *b = BLOCK(v[i]);
    if (v[i] == scope || !tree_under(v[i], scope)) continue;
    bool output = false;
    for (int w = 0; w < b->nwrites; w++) output |= !allocated_within(v[i], scope, b->writes[w].buffer);
    if (output) v[k++] = v[i];
  }
  return blocks_result(s, k, v);
}
