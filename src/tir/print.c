/* print.c: functions as TVMScript.
 *
 * In: a function or a module.  Out: text that func_parse reads back to an equal
 * one.  Statements whose scope is the rest of a sequence (let, attr, allocation)
 * print without indentation when nothing follows them, as `with` otherwise.
 *
 * What has no binder in the tree is declared at the top: symbolic sizes as
 * `n = T.int32()`, views of a buffer's memory as `A_1 = T.Buffer(…, data=A.data)`
 * (inside, right after the allocation whose memory they view). */
#include "tir/tir.h"

typedef struct Script {
  Text out;
  Arena *arena;
  Module *m;
  Namer namer;
  int indent;
  Map bound;                 /* Var*: has a binder */
  Map declared;              /* Buffer*: has a declaration */
  Map seen;                  /* Var* or Buffer* met in a use */
  Vec(const Var *) free;     /* variables without a binder */
  Vec(const Buffer *) views; /* buffers without a declaration */
  int nmark;                 /* statements whose first line is underlined, by id */
  const uint32_t *mark;
} Script;

static const char *const reserved[] = {
  "T",       "I",     "tir",   "range",  "False",    "None",   "True",  "and",  "as",     "assert",
  "async",   "await", "break", "class",  "continue", "def",    "del",   "elif", "else",   "except",
  "finally", "for",   "from",  "global", "if",       "import", "in",    "is",   "lambda", "nonlocal",
  "not",     "or",    "pass",  "raise",  "return",   "try",    "while", "with", "yield",  "Module",
};

/* ---- what is bound, what is free ------------------------------------------------ */

static void bind_buffer(Script *p, const Buffer *b)
{
  map_put(p->arena, &p->declared, b, p);
  map_put(p->arena, &p->bound, b->data, p);
}

static bool collect_binders(void *env, Stmt *s)
{
  Script *p = env;
  if (s->kind == S_FOR) map_put(p->arena, &p->bound, s->u.loop.var, p);
  if (s->kind == S_LET) map_put(p->arena, &p->bound, s->u.let.var, p);
  if (s->kind == S_ALLOC) bind_buffer(p, s->u.alloc.buffer);
  if (s->kind == S_BLOCK) {
    const Block *b = s->u.block;
    for (int i = 0; i < b->niter; i++) map_put(p->arena, &p->bound, b->iter[i].var, p);
    for (int i = 0; i < b->nallocs; i++) bind_buffer(p, b->allocs[i]);
    for (int i = 0; i < b->nmatches; i++) bind_buffer(p, b->matches[i].buffer);
  }
  return true;
}

static void note_lets(void *env, const Expr *e)
{
  Script *p = env;
  if (e->kind == E_LET) map_put(p->arena, &p->bound, e->u.var, p);
}

static void collect_lets(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  Script *p = env;
  if (e->kinds >> E_LET & 1) expr_visit(p->m->ctx, e, note_lets, p);
}

static void use_expr(Script *p, const Expr *e);

static void use_var(Script *p, const Var *v)
{
  if (map_has(&p->seen, v)) return;
  map_put(p->arena, &p->seen, v, p);
  if (!map_has(&p->bound, v)) vec_push(p->arena, &p->free, v);
}

static void use_buffer(Script *p, const Buffer *b)
{
  if (map_has(&p->seen, b)) return;
  map_put(p->arena, &p->seen, b, p);
  for (int i = 0; i < b->ndim; i++) {
    use_expr(p, b->shape[i]);
    if (b->strides) use_expr(p, b->strides[i]);
  }
  if (b->elem_offset) use_expr(p, b->elem_offset);
  use_var(p, b->data);
  if (!map_has(&p->declared, b)) vec_push(p->arena, &p->views, b);
}

static void use_node(void *env, const Expr *e)
{
  Script *p = env;
  if (e->kind == E_VAR) use_var(p, e->u.var);
  if (e->kind == E_LOAD) use_buffer(p, e->u.buffer);
}

static void use_expr(Script *p, const Expr *e) { expr_visit(p->m->ctx, e, use_node, p); }

static void collect_uses(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  use_expr(env, e);
}

static void use_annots(Script *p, const Annots *a)
{
  for (int i = 0; i < a->n; i++) use_expr(p, a->v[i].value);
}

static bool collect_other_uses(void *env, Stmt *s)
{
  Script *p = env;
  if (s->kind == S_STORE) use_buffer(p, s->u.store.buffer);
  if (s->kind == S_FOR) use_annots(p, &s->u.loop.annots);
  if (s->kind == S_ATTR && s->u.attr.node) use_var(p, s->u.attr.node);
  if (s->kind == S_ALLOC) {
    use_buffer(p, s->u.alloc.buffer);
    use_annots(p, &s->u.alloc.annots);
  }
  if (s->kind != S_BLOCK) return true;
  const Block *b = s->u.block;
  for (int i = 0; i < b->nallocs; i++) use_buffer(p, b->allocs[i]);
  for (int i = 0; i < b->nreads; i++) use_buffer(p, b->reads[i].buffer);
  for (int i = 0; i < b->nwrites; i++) use_buffer(p, b->writes[i].buffer);
  for (int i = 0; i < b->nmatches; i++) {
    use_buffer(p, b->matches[i].source.buffer);
    use_buffer(p, b->matches[i].buffer);
  }
  use_annots(p, &b->annots);
  return true;
}

static void collect_names(Script *p, const PrimFunc *f)
{
  for (int i = 0; i < f->nparam; i++) {
    map_put(p->arena, &p->bound, f->param[i].var, p);
    if (f->param[i].buffer) bind_buffer(p, f->param[i].buffer);
  }
  stmt_visit(f->body, collect_binders, p);
  stmt_visit_exprs(f->body, collect_lets, p);
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer) use_buffer(p, f->param[i].buffer);
  stmt_visit_exprs(f->body, collect_uses, p);
  stmt_visit(f->body, collect_other_uses, p);
  use_annots(p, &f->attrs);
}

/* ---- pieces ------------------------------------------------------------------------ */

static void line(Script *p) { text_indent(&p->out, p->indent); }

static const char *var_name(Script *p, const Var *v) { return expr_namer_name(&p->namer, v, v->name); }

/* The name of a buffer at its declaration; its pointer is then NAME.data. */
static const char *declare(Script *p, const Buffer *b)
{
  const char *name = expr_namer_name(&p->namer, b, b->name);
  if (!map_get(&p->namer.names, b->data))
    map_put(p->arena, &p->namer.names, b->data, arena_printf(p->arena, "%s.data", name));
  return name;
}

static void expr_out(Script *p, const Expr *e) { expr_print(&p->out, &p->namer, PRINT_SCRIPT, e); }

static void list_out(Script *p, int n, const Expr *const *v)
{
  for (int i = 0; i < n; i++) {
    if (i) text_add(&p->out, ", ");
    expr_out(p, v[i]);
  }
}

static void tuple_out(Script *p, int n, const Expr *const *v)
{
  text_char(&p->out, '(');
  list_out(p, n, v);
  text_add(&p->out, n == 1 ? ",)" : ")");
}

static void value_out(Script *p, const Expr *e)
{
  bool dict = e->kind == E_CALL && e->u.intrin == IN_DICT;
  if (!dict && (e->kind != E_CALL || e->u.intrin != IN_MAKE_SHAPE)) {
    expr_out(p, e);
    return;
  }
  text_char(&p->out, dict ? '{' : '[');
  for (int i = 0; i < e->nargs; i++) {
    if (i) text_add(&p->out, dict && i % 2 ? ": " : ", ");
    value_out(p, e->arg[i]);
  }
  text_char(&p->out, dict ? '}' : ']');
}

static void dict_out(Script *p, const Annots *a, const char *skip)
{
  text_char(&p->out, '{');
  bool first = true;
  for (int i = 0; i < a->n; i++) {
    if (skip && !strcmp(a->v[i].key, skip)) continue;
    if (!first) text_add(&p->out, ", ");
    first = false;
    text_quote(&p->out, a->v[i].key);
    text_add(&p->out, ": ");
    value_out(p, a->v[i].value);
  }
  text_char(&p->out, '}');
}

/* min + extent, added up when both are literals; of an extent `stop - min` the stop.
 * The parser's parse_as_range takes each of these apart again. */
static const Expr *stop_of(Script *p, const Expr *min, const Expr *extent)
{
  int64_t sum;
  if (extent->kind == E_SUB && extent->arg[1] == min && !expr_is_int(min, 0)) {
    const Expr *stop = extent->arg[0];
    bool misread = (stop->kind == E_ADD && stop->arg[0] == min) || (stop->kind == E_INT && min->kind == E_INT);
    if (!misread) return stop;
  }
  if (min->kind == E_INT && extent->kind == E_INT && int_add(min->u.i, extent->u.i, &sum)) {
    const Expr *e = expr_int(p->m, min->dtype, sum);
    if (e->u.i == sum) return e;
  }
  return expr_is_int(min, 0) ? extent : expr_add(p->m, min, extent);
}

static void region_out(Script *p, const Region *r)
{
  text_printf(&p->out, "%s[", expr_namer_name(&p->namer, r->buffer, r->buffer->name));
  if (r->buffer->ndim == 0) text_add(&p->out, "()");
  for (int d = 0; d < r->buffer->ndim; d++) {
    if (d) text_add(&p->out, ", ");
    expr_out(p, r->min[d]);
    if (expr_is_int(r->extent[d], 1)) continue;
    text_char(&p->out, ':');
    expr_out(p, stop_of(p, r->min[d], r->extent[d]));
  }
  text_char(&p->out, ']');
}

static void regions_out(Script *p, const char *what, int n, const Region *v)
{
  line(p);
  text_printf(&p->out, "T.%s(", what);
  for (int i = 0; i < n; i++) {
    if (i) text_add(&p->out, ", ");
    region_out(p, &v[i]);
  }
  text_add(&p->out, ")\n");
}

/* (128, 128), "float32", data=…, strides=[…], … */
static void buffer_out(Script *p, const Buffer *b, bool always_dtype, bool view)
{
  tuple_out(p, b->ndim, b->shape);
  if (always_dtype || !dtype_eq(b->dtype, DT_F32)) text_printf(&p->out, ", \"%s\"", dtype_name(p->arena, b->dtype));
  if (view) text_printf(&p->out, ", data=%s", var_name(p, b->data));
  if (b->strides) {
    text_add(&p->out, ", strides=[");
    list_out(p, b->ndim, b->strides);
    text_char(&p->out, ']');
  }
  if (b->elem_offset) {
    text_add(&p->out, ", elem_offset=");
    expr_out(p, b->elem_offset);
  }
  if (strcmp(b->scope, "global")) {
    text_add(&p->out, ", scope=");
    text_quote(&p->out, b->scope);
  }
  if (b->align != 64) text_printf(&p->out, ", align=%d", b->align);
  if (b->offset_factor) text_printf(&p->out, ", offset_factor=%d", b->offset_factor);
  if (!b->separators) return;
  const char *before = ", axis_separators=[";
  for (int d = 0; d <= b->ndim; d++)
    if (b->separators >> d & 1) {
      text_printf(&p->out, "%s%d", before, d);
      before = ", ";
    }
  text_char(&p->out, ']');
}

/* Views of the memory behind data, declared where the pointer appears. */
static void views_out(Script *p, const Var *data)
{
  for (int i = 0; i < p->views.n; i++) {
    const Buffer *b = p->views.v[i];
    if (!b || b->data != data) continue;
    p->views.v[i] = NULL;
    line(p);
    text_printf(&p->out, "%s = T.Buffer(", declare(p, b));
    buffer_out(p, b, false, true);
    text_add(&p->out, ")\n");
  }
}

/* ---- statements ------------------------------------------------------------------------ */

static void stmt_out(Script *p, const Stmt *s, bool last);

static void body_out(Script *p, const Stmt *s)
{
  p->indent += 4;
  stmt_out(p, s, true);
  p->indent -= 4;
}

static bool uses_any(const Expr *e, int n, const Stmt *const *loops)
{
  for (int i = 0; i < n; i++)
    if (expr_uses_var(e, loops[i]->u.loop.var)) return true;
  return false;
}

enum { MAX_GRID = 16 };

static bool is_marked(const Script *p, const Stmt *s)
{
  for (int i = 0; i < p->nmark; i++)
    if (p->mark[i] == s->id) return true;
  return false;
}

/* Underlines the line that was just written, which started at from, if s is marked. */
static void mark_out(Script *p, const Stmt *s, size_t from)
{
  if (!is_marked(p, s)) return;
  size_t width = p->out.n - from - 1 - (size_t)p->indent;
  line(p);
  for (size_t i = 0; i < width; i++) text_char(&p->out, '^');
  text_char(&p->out, '\n');
}

/* Loops that one T.grid can stand for; a marked loop has a line of its own. */
static int grid_of(const Script *p, const Stmt *s, const Stmt **loops)
{
  int n = 0;
  while (n < MAX_GRID && !is_marked(p, s) && s->kind == S_FOR && s->u.loop.kind == FOR_SERIAL &&
         expr_is_int(s->u.loop.min, 0) && !s->u.loop.annots.n && !uses_any(s->u.loop.extent, n, loops)) {
    loops[n++] = s;
    s = s->u.loop.body;
  }
  return n;
}

static void grid_out(Script *p, int n, const Stmt *const *loops)
{
  line(p);
  text_add(&p->out, "for ");
  for (int i = 0; i < n; i++) text_printf(&p->out, "%s%s", i ? ", " : "", var_name(p, loops[i]->u.loop.var));
  text_add(&p->out, " in T.grid(");
  for (int i = 0; i < n; i++) {
    if (i) text_add(&p->out, ", ");
    expr_out(p, loops[i]->u.loop.extent);
  }
  text_add(&p->out, "):\n");
  body_out(p, loops[n - 1]->u.loop.body);
}

static void for_out(Script *p, const Stmt *s)
{
  static const char *const kinds[] = {"T.serial", "T.parallel", "T.vectorized", "T.unroll", "T.thread_binding"};
  const Stmt *loops[MAX_GRID];
  int n = grid_of(p, s, loops);
  if (n > 1) {
    grid_out(p, n, loops);
    return;
  }
  const Annots *a = &s->u.loop.annots;
  size_t from = p->out.n;
  line(p);
  text_printf(&p->out, "for %s in %s(", var_name(p, s->u.loop.var),
              s->u.loop.kind == FOR_SERIAL && !a->n ? "range" : kinds[s->u.loop.kind]);
  if (!expr_is_int(s->u.loop.min, 0)) {
    expr_out(p, s->u.loop.min);
    text_add(&p->out, ", ");
  }
  expr_out(p, stop_of(p, s->u.loop.min, s->u.loop.extent));
  if (s->u.loop.kind == FOR_THREAD) {
    text_add(&p->out, ", thread=");
    text_quote(&p->out, s->u.loop.thread_tag);
  }
  if (a->n) {
    text_add(&p->out, ", annotations=");
    dict_out(p, a, NULL);
  }
  text_add(&p->out, "):\n");
  mark_out(p, s, from);
  body_out(p, s->u.loop.body);
}

/* The loop around the block that it runs over unchanged, or NULL. */
static const Stmt *remapped_loop(const Stmt *block, const BlockIter *it)
{
  if (it->value->kind != E_VAR || it->kind == ITER_THREAD) return NULL;
  for (const Stmt *s = block->parent; s && s->kind != S_BLOCK; s = s->parent)
    if (s->kind == S_FOR && s->u.loop.var == it->value->u.var)
      return s->u.loop.min == it->min && s->u.loop.extent == it->extent ? s : NULL;
  return NULL;
}

static void remap_out(Script *p, int n, const BlockIter *it)
{
  line(p);
  for (int i = 0; i < n; i++) text_printf(&p->out, "%s%s", i ? ", " : "", var_name(p, it[i].var));
  text_add(&p->out, " = T.axis.remap(\"");
  for (int i = 0; i < n; i++) text_char(&p->out, "SRO"[it[i].kind]);
  text_add(&p->out, "\", [");
  for (int i = 0; i < n; i++) {
    if (i) text_add(&p->out, ", ");
    expr_out(p, it[i].value);
  }
  text_add(&p->out, "])\n");
}

static void axis_out(Script *p, const BlockIter *it)
{
  static const char *const kinds[] = {"spatial", "reduce", "opaque", "thread"};
  line(p);
  text_printf(&p->out, "%s = T.axis.%s(", var_name(p, it->var), kinds[it->kind]);
  if (expr_is_int(it->min, 0)) expr_out(p, it->extent);
  else tuple_out(p, 2, (const Expr *[]){it->min, stop_of(p, it->min, it->extent)});
  text_add(&p->out, ", ");
  expr_out(p, it->value);
  text_add(&p->out, ")\n");
}

static void axes_out(Script *p, const Stmt *s)
{
  const Block *b = s->u.block;
  for (int i = 0; i < b->niter;) {
    int n = 0;
    while (i + n < b->niter && remapped_loop(s, &b->iter[i + n])) n++;
    if (n > 1) {
      remap_out(p, n, &b->iter[i]);
      i += n;
    } else {
      axis_out(p, &b->iter[i++]);
    }
  }
}

static void declarations_out(Script *p, const Block *b)
{
  for (int i = 0; i < b->nallocs; i++) {
    line(p);
    text_printf(&p->out, "%s = T.alloc_buffer(", declare(p, b->allocs[i]));
    buffer_out(p, b->allocs[i], false, false);
    text_add(&p->out, ")\n");
    views_out(p, b->allocs[i]->data);
  }
  for (int i = 0; i < b->nmatches; i++) {
    line(p);
    text_printf(&p->out, "%s = T.match_buffer(", declare(p, b->matches[i].buffer));
    region_out(p, &b->matches[i].source);
    text_add(&p->out, ", ");
    buffer_out(p, b->matches[i].buffer, false, false);
    text_add(&p->out, ")\n");
    views_out(p, b->matches[i].buffer->data);
  }
}

static void block_out(Script *p, const Stmt *s)
{
  const Block *b = s->u.block;
  size_t from = p->out.n;
  line(p);
  text_add(&p->out, "with T.block(");
  text_quote(&p->out, b->name);
  text_add(&p->out, "):\n");
  mark_out(p, s, from);
  p->indent += 4;
  axes_out(p, s);
  if (b->predicate) {
    line(p);
    text_add(&p->out, "T.where(");
    expr_out(p, b->predicate);
    text_add(&p->out, ")\n");
  }
  regions_out(p, "reads", b->nreads, b->reads);
  regions_out(p, "writes", b->nwrites, b->writes);
  if (b->annots.n) {
    line(p);
    text_add(&p->out, "T.block_attr(");
    dict_out(p, &b->annots, NULL);
    text_add(&p->out, ")\n");
  }
  declarations_out(p, b);
  if (b->init) {
    line(p);
    text_add(&p->out, "with T.init():\n");
    body_out(p, b->init);
  }
  stmt_out(p, b->body, true);
  p->indent -= 4;
}

static void store_out(Script *p, const Stmt *s)
{
  const char *name = expr_namer_name(&p->namer, s->u.store.buffer, s->u.store.buffer->name);
  line(p);
  if (s->u.store.mask) {
    text_printf(&p->out, "%s.vstore([", name);
    list_out(p, s->u.store.n, s->u.store.index);
    text_add(&p->out, "], ");
    expr_out(p, s->u.store.value);
    text_add(&p->out, ", predicate=");
    expr_out(p, s->u.store.mask);
    text_add(&p->out, ")\n");
    return;
  }
  text_printf(&p->out, "%s[", name);
  if (s->u.store.n == 0) text_add(&p->out, "()");
  list_out(p, s->u.store.n, s->u.store.index);
  text_add(&p->out, "] = ");
  expr_out(p, s->u.store.value);
  text_char(&p->out, '\n');
}

static void let_out(Script *p, const Stmt *s, bool last)
{
  const Var *v = s->u.let.var;
  const char *dtype = dtype_name(p->arena, v->dtype);
  line(p);
  if (last) {
    const char *name = var_name(p, v);
    text_printf(&p->out, "%s: T.%s = ", name, dtype);
    expr_out(p, s->u.let.value);
    text_char(&p->out, '\n');
    views_out(p, v);
    stmt_out(p, s->u.let.body, true);
    return;
  }
  text_add(&p->out, "with T.LetStmt(");
  expr_out(p, s->u.let.value);
  text_printf(&p->out, ") as %s:\n", var_name(p, v));
  p->indent += 4;
  views_out(p, v);
  stmt_out(p, s->u.let.body, true);
  p->indent -= 4;
}

static void alloc_out(Script *p, const Stmt *s, bool last)
{
  static const char *const places[] = {"none", "stack", "workspace", "slice", "shared"};
  const Buffer *b = s->u.alloc.buffer;
  const char *name = declare(p, b);
  line(p);
  text_printf(&p->out, last ? "%s = T.decl_buffer(" : "with T.decl_buffer(", name);
  buffer_out(p, b, false, false);
  if (s->u.alloc.place != PLACE_NONE) text_printf(&p->out, ", place=\"%s\"", places[s->u.alloc.place]);
  if (s->u.alloc.offset) {
    text_add(&p->out, ", offset=");
    expr_out(p, s->u.alloc.offset);
  }
  if (s->u.alloc.annots.n) {
    text_add(&p->out, ", annotations=");
    dict_out(p, &s->u.alloc.annots, NULL);
  }
  if (last) text_add(&p->out, ")\n");
  else text_printf(&p->out, ") as %s:\n", name);
  p->indent += last ? 0 : 4;
  views_out(p, b->data);
  stmt_out(p, s->u.alloc.body, true);
  p->indent -= last ? 0 : 4;
}

static void attr_out(Script *p, const Stmt *s, bool last)
{
  line(p);
  text_add(&p->out, last ? "T.attr(" : "with T.attr(");
  text_add(&p->out, s->u.attr.node ? var_name(p, s->u.attr.node) : "0");
  text_add(&p->out, ", ");
  text_quote(&p->out, s->u.attr.key);
  text_add(&p->out, ", ");
  value_out(p, s->u.attr.value);
  text_add(&p->out, last ? ")\n" : "):\n");
  p->indent += last ? 0 : 4;
  stmt_out(p, s->u.attr.body, true);
  p->indent -= last ? 0 : 4;
}

static void cond_out(Script *p, const Stmt *s)
{
  line(p);
  text_add(&p->out, "if ");
  expr_out(p, s->u.cond.cond);
  text_add(&p->out, ":\n");
  body_out(p, s->u.cond.then);
  if (!s->u.cond.orelse) return;
  line(p);
  text_add(&p->out, "else:\n");
  body_out(p, s->u.cond.orelse);
}

static void stmt_out(Script *p, const Stmt *s, bool last)
{
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) stmt_out(p, s->u.seq.v[i], last && i == s->u.seq.n - 1);
    break;
  case S_FOR: for_out(p, s); break;
  case S_IF: cond_out(p, s); break;
  case S_WHILE:
    line(p);
    text_add(&p->out, "while ");
    expr_out(p, s->u.loop_while.cond);
    text_add(&p->out, ":\n");
    body_out(p, s->u.loop_while.body);
    break;
  case S_LET: let_out(p, s, last); break;
  case S_STORE: store_out(p, s); break;
  case S_ALLOC: alloc_out(p, s, last); break;
  case S_EVAL: {
    bool call = s->u.eval.value->kind == E_CALL;
    line(p);
    text_add(&p->out, call ? "" : "T.evaluate(");
    expr_out(p, s->u.eval.value);
    text_add(&p->out, call ? "\n" : ")\n");
    break;
  }
  case S_ATTR: attr_out(p, s, last); break;
  case S_BLOCK: block_out(p, s); break;
  }
}

/* ---- functions ---------------------------------------------------------------------------- */

static bool holds_vars(const Buffer *b)
{
  for (int i = 0; i < b->ndim; i++)
    if ((b->shape[i]->kinds | (b->strides ? b->strides[i]->kinds : 0)) >> E_VAR & 1) return true;
  return b->elem_offset && (b->elem_offset->kinds >> E_VAR & 1);
}

static void params_out(Script *p, const PrimFunc *f)
{
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (i) text_add(&p->out, ", ");
    if (!b) {
      const Var *v = f->param[i].var;
      text_printf(&p->out, "%s: T.%s", var_name(p, v), dtype_name(p->arena, v->dtype));
    } else if (holds_vars(b)) {
      text_printf(&p->out, "%s: T.handle",
                  expr_namer_name(&p->namer, &f->param[i], arena_printf(p->arena, "var_%s", b->name)));
    } else {
      text_printf(&p->out, "%s: T.Buffer(", declare(p, b));
      buffer_out(p, b, true, false);
      text_char(&p->out, ')');
    }
  }
}

/* Sizes, matched parameters and views of their memory. */
static void prelude_out(Script *p, const PrimFunc *f)
{
  for (int i = 0; i < p->free.n; i++) {
    const Var *v = p->free.v[i];
    line(p);
    text_printf(&p->out, "%s = T.%s()\n", var_name(p, v), dtype_name(p->arena, v->dtype));
    views_out(p, v);
  }
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (b && holds_vars(b)) {
      line(p);
      text_printf(&p->out, "%s = T.match_buffer(%s, ", declare(p, b), expr_namer_name(&p->namer, &f->param[i], ""));
      buffer_out(p, b, false, false);
      text_add(&p->out, ")\n");
    }
  }
  for (int i = 0; i < f->nparam; i++) views_out(p, f->param[i].var);
}

/* A root block that the parser puts back by itself. */
static bool implicit_root(const Stmt *s)
{
  if (s->kind != S_BLOCK) return false;
  const Block *b = s->u.block;
  if (strcmp(b->name, "root") || b->niter || b->predicate || b->nreads || b->nwrites || b->nmatches || b->annots.n ||
      b->init)
    return false;
  Stmt *body = b->body;
  return b->nallocs || body->kind != S_BLOCK || strcmp(body->u.block->name, "root");
}

static bool find_block(void *env, Stmt *s)
{
  bool *found = env;
  if (s->kind == S_BLOCK) *found = true;
  return !*found;
}

static bool has_block(Stmt *s)
{
  bool found = false;
  stmt_visit(s, find_block, &found);
  return found;
}

static const char *sanitized(Script *p, const char *name)
{
  Namer plain = {.arena = p->arena};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) strmap_put(p->arena, &plain.taken, reserved[i], p);
  return expr_namer_name(&plain, name, name);
}

static void func_out(Script *p, const PrimFunc *f, const char *called)
{
  const char *name = sanitized(p, called);
  const Expr *symbol = annots_get(&f->attrs, "global_symbol");
  bool usual = symbol && symbol->kind == E_STR && !strcmp(symbol->u.str, name);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) strmap_put(p->arena, &p->namer.taken, reserved[i], p);
  collect_names(p, f);
  line(p);
  text_add(&p->out, symbol ? "@T.prim_func\n" : "@T.prim_func(private=True)\n");
  line(p);
  text_printf(&p->out, "def %s(", name);
  params_out(p, f);
  text_add(&p->out, "):\n");
  p->indent += 4;
  bool sized = false; /* attributes that speak of sizes come after those */
  for (int i = 0; i < f->attrs.n; i++) sized |= expr_has_kind(f->attrs.v[i].value, E_VAR);
  if (sized) prelude_out(p, f);
  if (f->attrs.n > (usual ? 1 : 0)) {
    line(p);
    text_add(&p->out, "T.func_attr(");
    dict_out(p, &f->attrs, usual ? "global_symbol" : NULL);
    text_add(&p->out, ")\n");
  }
  if (!sized) prelude_out(p, f);
  if (implicit_root(f->body) && (f->body->u.block->nallocs || has_block(f->body->u.block->body))) {
    line(p);
    size_t from = p->out.n - (size_t)p->indent;
    text_add(&p->out, "# with T.block(\"root\"):\n");
    mark_out(p, f->body, from);
    declarations_out(p, f->body->u.block);
    stmt_out(p, f->body->u.block->body, true);
  } else {
    stmt_out(p, f->body, true);
  }
  p->indent -= 4;
}

const char *func_print(Arena *arena, const PrimFunc *f)
{
  Script p = {.out = text_new(arena), .arena = arena, .m = f->m, .namer = {.arena = arena}};
  func_out(&p, f, f->name);
  return text_str(&p.out);
}

const char *func_print_marked(Arena *arena, const PrimFunc *f, int n, const uint32_t *ids)
{
  Script p = {.out = text_new(arena), .arena = arena, .m = f->m, .namer = {.arena = arena}, .nmark = n, .mark = ids};
  func_out(&p, f, f->name);
  return text_str(&p.out);
}

const char *tir_print_module(Arena *arena, Module *m)
{
  Text out = text_new(arena);
  text_add(&out, "@I.ir_module\nclass Module:\n");
  bool any = false;
  for (int i = 0; i < m->globals.n; i++) {
    if (m->globals.v[i].kind != GLOBAL_TIR) continue;
    Script p = {.out = out, .arena = arena, .m = m, .namer = {.arena = arena}, .indent = 4};
    if (any) text_char(&p.out, '\n');
    func_out(&p, m->globals.v[i].func, m->globals.v[i].name);
    out = p.out;
    any = true;
  }
  if (!any) text_add(&out, "    pass\n");
  return text_str(&out);
}
