/* print_compact.c: statements in the short C-like form, for people to read.
 *
 *   for (i, 0, 1024) {
 *     C[i] = A[i] + 1f
 *   }
 * Print-only: names may be left out that a parser would need. */
#include "tir/tir.h"

typedef struct Compact {
  Text out;
  Arena *arena;
  Namer namer;
  Map param_names; /* pointer -> name of the parameter: a view of it goes by the same name */
  int indent;
} Compact;

static void stmt_out(Compact *p, const Stmt *s);

static void line(Compact *p) { text_indent(&p->out, p->indent); }

static void expr_out(Compact *p, const Expr *e) { expr_print(&p->out, &p->namer, PRINT_COMPACT, e); }

static const char *buffer_name(Compact *p, const Buffer *b)
{
  const char *param = map_get(&p->param_names, b->data);
  return expr_namer_name(&p->namer, b, param ? param : b->name);
}

static void index_out(Compact *p, const Buffer *b, int n, const Expr *const *index)
{
  text_printf(&p->out, "%s[", buffer_name(p, b));
  for (int i = 0; i < n; i++) {
    if (i) text_add(&p->out, ", ");
    expr_out(p, index[i]);
  }
  text_char(&p->out, ']');
}

/* " {", the statement one step further in, "}" */
static void braces_out(Compact *p, const Stmt *s, const char *end)
{
  text_add(&p->out, " {\n");
  p->indent += 2;
  stmt_out(p, s);
  p->indent -= 2;
  line(p);
  text_add(&p->out, end);
}

static void for_out(Compact *p, const Stmt *s)
{
  static const char *const kinds[] = {"for", "parallel", "vectorized", "unrolled", "bind"};
  for (int i = 0; i < s->u.loop.annots.n; i++) {
    line(p);
    text_printf(&p->out, "// %s = ", s->u.loop.annots.v[i].key);
    expr_out(p, s->u.loop.annots.v[i].value);
    text_char(&p->out, '\n');
  }
  line(p);
  text_printf(&p->out, "%s (%s, ", kinds[s->u.loop.kind],
              expr_namer_name(&p->namer, s->u.loop.var, s->u.loop.var->name));
  expr_out(p, s->u.loop.min);
  text_add(&p->out, ", ");
  expr_out(p, s->u.loop.extent);
  if (s->u.loop.kind == FOR_THREAD) text_printf(&p->out, ", %s", s->u.loop.thread_tag);
  text_char(&p->out, ')');
  braces_out(p, s->u.loop.body, "}\n");
}

static void alloc_line(Compact *p, const Buffer *b)
{
  line(p);
  text_printf(&p->out, "allocate %s[%s", buffer_name(p, b), dtype_name(p->arena, b->dtype));
  for (int i = 0; i < b->ndim; i++) {
    text_add(&p->out, " * ");
    expr_out(p, b->shape[i]);
  }
  text_printf(&p->out, "], storage_scope = %s;\n", b->scope);
}

static void region_out(Compact *p, const Region *r)
{
  text_printf(&p->out, "%s[", buffer_name(p, r->buffer));
  for (int d = 0; d < r->buffer->ndim; d++) {
    if (d) text_add(&p->out, ", ");
    expr_out(p, r->min[d]);
    if (expr_is_int(r->extent[d], 1)) continue;
    text_add(&p->out, " : +");
    expr_out(p, r->extent[d]);
  }
  text_char(&p->out, ']');
}

static void regions_out(Compact *p, const char *what, int n, const Region *v)
{
  if (!n) return;
  line(p);
  text_add(&p->out, what);
  for (int i = 0; i < n; i++) {
    text_add(&p->out, i ? ", " : " ");
    region_out(p, &v[i]);
  }
  text_char(&p->out, '\n');
}

static void block_head_out(Compact *p, const Block *b)
{
  static const char *const kinds[] = {"", "reduce ", "opaque ", "thread "};
  line(p);
  text_printf(&p->out, "block %s(", b->name);
  for (int i = 0; i < b->niter; i++) {
    text_printf(&p->out, "%s%s%s = ", i ? ", " : "", kinds[b->iter[i].kind],
                expr_namer_name(&p->namer, b->iter[i].var, b->iter[i].var->name));
    expr_out(p, b->iter[i].value);
  }
  text_add(&p->out, ") {\n");
}

static void block_body_out(Compact *p, const Block *b)
{
  for (int i = 0; i < b->nallocs; i++) alloc_line(p, b->allocs[i]);
  for (int i = 0; i < b->nmatches; i++) {
    line(p);
    text_printf(&p->out, "match %s = ", buffer_name(p, b->matches[i].buffer));
    region_out(p, &b->matches[i].source);
    text_char(&p->out, '\n');
  }
  if (b->init) {
    line(p);
    text_add(&p->out, "init");
    braces_out(p, b->init, "}\n");
  }
  stmt_out(p, b->body);
}

static void block_out(Compact *p, const Stmt *s)
{
  const Block *b = s->u.block;
  if (!s->parent && !b->niter && !b->predicate && !b->init) {
    block_body_out(p, b);
    return;
  }
  block_head_out(p, b);
  p->indent += 2;
  if (b->predicate) {
    line(p);
    text_add(&p->out, "where ");
    expr_out(p, b->predicate);
    text_char(&p->out, '\n');
  }
  regions_out(p, "reads", b->nreads, b->reads);
  regions_out(p, "writes", b->nwrites, b->writes);
  block_body_out(p, b);
  p->indent -= 2;
  line(p);
  text_add(&p->out, "}\n");
}

static void store_out(Compact *p, const Stmt *s)
{
  line(p);
  index_out(p, s->u.store.buffer, s->u.store.n, s->u.store.index);
  text_add(&p->out, " = ");
  expr_out(p, s->u.store.value);
  if (s->u.store.mask) {
    text_add(&p->out, " where ");
    expr_out(p, s->u.store.mask);
  }
  text_char(&p->out, '\n');
}

static void cond_out(Compact *p, const Stmt *s)
{
  line(p);
  text_add(&p->out, "if (");
  expr_out(p, s->u.cond.cond);
  text_char(&p->out, ')');
  braces_out(p, s->u.cond.then, s->u.cond.orelse ? "} else" : "}\n");
  if (s->u.cond.orelse) braces_out(p, s->u.cond.orelse, "}\n");
}

static void attr_out(Compact *p, const Stmt *s)
{
  line(p);
  text_add(&p->out, "// attr ");
  if (s->u.attr.node) text_printf(&p->out, "[%s] ", expr_namer_name(&p->namer, s->u.attr.node, s->u.attr.node->name));
  text_printf(&p->out, "%s = ", s->u.attr.key);
  expr_out(p, s->u.attr.value);
  text_char(&p->out, '\n');
  stmt_out(p, s->u.attr.body);
}

static void stmt_out(Compact *p, const Stmt *s)
{
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) stmt_out(p, s->u.seq.v[i]);
    break;
  case S_FOR: for_out(p, s); break;
  case S_IF: cond_out(p, s); break;
  case S_WHILE:
    line(p);
    text_add(&p->out, "while (");
    expr_out(p, s->u.loop_while.cond);
    text_char(&p->out, ')');
    braces_out(p, s->u.loop_while.body, "}\n");
    break;
  case S_LET:
    line(p);
    text_printf(&p->out, "let %s = ", expr_namer_name(&p->namer, s->u.let.var, s->u.let.var->name));
    expr_out(p, s->u.let.value);
    text_char(&p->out, '\n');
    stmt_out(p, s->u.let.body);
    break;
  case S_STORE: store_out(p, s); break;
  case S_ALLOC:
    alloc_line(p, s->u.alloc.buffer);
    stmt_out(p, s->u.alloc.body);
    break;
  case S_EVAL:
    line(p);
    expr_out(p, s->u.eval.value);
    text_char(&p->out, '\n');
    break;
  case S_ATTR: attr_out(p, s); break;
  case S_BLOCK: block_out(p, s); break;
  }
}

/* Names are given in order of use, and a buffer's pointer goes by the buffer's name. */
static void name_buffer(Compact *p, const Buffer *b)
{
  if (!map_get(&p->namer.names, b->data))
    map_put(p->arena, &p->namer.names, b->data, (void *)(uintptr_t)buffer_name(p, b));
}

static void name_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) name_buffer(env, e->u.buffer);
}

static void name_loads(void *env, Stmt *holder, const Expr *e)
{
  Compact *p = env;
  if (holder->kind == S_STORE) name_buffer(p, holder->u.store.buffer);
  expr_visit(arena_ctx(p->arena), e, name_load, p);
}

const char *stmt_print_compact(Arena *arena, const Stmt *s)
{
  Compact p = {.out = text_new(arena), .arena = arena, .namer = {.arena = arena}};
  stmt_visit_exprs((Stmt *)(uintptr_t)s, name_loads, &p);
  stmt_out(&p, s);
  return text_str(&p.out);
}

const char *func_print_compact(Arena *arena, const PrimFunc *f)
{
  Compact p = {.out = text_new(arena), .arena = arena, .namer = {.arena = arena}};
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (b) map_put(arena, &p.param_names, b->data, (void *)(uintptr_t)b->name);
    else expr_namer_name(&p.namer, f->param[i].var, f->param[i].var->name);
  }
  stmt_visit_exprs(f->body, name_loads, &p);
  stmt_out(&p, f->body);
  return text_str(&p.out);
}
