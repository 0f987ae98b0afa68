/* parse_stmt.c: statements of TVMScript.
 *
 * A list of statements ends where its indentation does.  A binding (a let, an
 * allocation, an attribute) holds for the rest of its list, so the list goes on
 * inside of it.  Statements that describe a block (axes, reads, allocations) go
 * into the nearest enclosing BlockBuild and leave no statement behind. */
#include "tir/script.h"

static void end_line(Parser *p, const char *after)
{
  if (parse_accept(p, ";")) return;
  if (parse_peek(p)->kind == TOK_NEWLINE) {
    p->at++;
    return;
  }
  if (parse_peek(p)->kind != TOK_END && parse_peek(p)->kind != TOK_DEDENT)
    parse_error(p, parse_loc(p, parse_peek(p)), "expected the end of the line after %s, found %s", after,
                parse_token_text(p, parse_peek(p)));
}

static Stmt *placed(Stmt *s, Loc loc)
{
  s->loc = loc;
  return s;
}

static Stmt *parse_statement(Parser *p, bool *rest);

/* The rest of the list, inside of a binding just made. */
static Stmt *parse_rest(Parser *p)
{
  if (p->one_line)
    parse_error(p, parse_loc(p, parse_peek(p)), "a binding holds for the lines after it; put it on a line of its own");
  if (++p->bindings > MAX_BINDINGS)
    parse_error(p, parse_loc(p, parse_peek(p)), "more than %d bindings inside of each other", MAX_BINDINGS);
  Stmt *s = parse_statements(p);
  p->bindings--;
  return s;
}

/* Statements on the line of ':', parted by ';'. */
static Stmt *parse_one_line(Parser *p)
{
  static const char *const heads[] = {"for", "if", "with", "while"};
  Vec(Stmt *) v = {0};
  bool outer = p->one_line;
  bool rest = false;
  bool more;
  p->one_line = true;
  do {
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
      if (parse_is_word(p, heads[i]))
        parse_error(p, parse_loc(p, parse_peek(p)), "expected a new line after ':', found '%s'", heads[i]);
    Stmt *s = parse_statement(p, &rest);
    if (s) vec_push(p->arena, &v, s);
    more = p->tok[p->at - 1].kind == TOK_OP && !strcmp(p->tok[p->at - 1].s, ";") && parse_peek(p)->kind != TOK_NEWLINE;
  } while (more);
  if (p->tok[p->at - 1].kind != TOK_NEWLINE && parse_peek(p)->kind == TOK_NEWLINE) p->at++;
  p->one_line = outer;
  return stmt_seq(p->m, v.n, v.v);
}

/* body = ':' (newline indent statements dedent | statement {';' statement} newline) */
Stmt *parse_body(Parser *p)
{
  int mark = p->symbols.n;
  parse_enter(p);
  parse_expect(p, ":", "the head of the statement");
  Stmt *s;
  if (parse_peek(p)->kind == TOK_NEWLINE) {
    p->at++;
    if (parse_peek(p)->kind != TOK_INDENT)
      parse_error(p, parse_loc(p, parse_peek(p)), "expected an indented line after ':', found %s",
                  parse_token_text(p, parse_peek(p)));
    p->at++;
    s = parse_statements(p);
    if (parse_peek(p)->kind != TOK_DEDENT)
      parse_error(p, parse_loc(p, parse_peek(p)), "expected a statement, found %s", parse_token_text(p, parse_peek(p)));
    p->at++;
  } else {
    s = parse_one_line(p);
  }
  parse_leave(p);
  p->symbols.n = mark;
  return s;
}

/* ---- loops ----------------------------------------------------------------------------- */

enum { MAX_LOOPS = 64 };

typedef struct LoopHead {
  Loc loc;
  const Var *var[MAX_LOOPS];
  const Expr *min[MAX_LOOPS], *extent[MAX_LOOPS];
  const char *name[MAX_LOOPS];
  int n;
  ForKind kind;
  const char *tag;
  Annots annots;
} LoopHead;

static void loop_kind(Parser *p, const Operand *callee, ForKind *kind)
{
  static const struct {
    const char *name;
    ForKind kind;
  } kinds[] = {
    {"range", FOR_SERIAL},
    {"T.serial", FOR_SERIAL},
    {"T.grid", FOR_SERIAL},
    {"T.parallel", FOR_PARALLEL},
    {"T.vectorized", FOR_VECTORIZED},
    {"T.unroll", FOR_UNROLLED},
    {"T.thread_binding", FOR_THREAD},
  };
  const char *words[sizeof kinds / sizeof *kinds];
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    words[i] = kinds[i].name;
    if (strcmp(kinds[i].name, callee->s)) continue;
    *kind = kinds[i].kind;
    return;
  }
  const char *near = str_nearest(callee->s, words, sizeof words / sizeof *words);
  parse_error(
      p, callee->loc,
      "a loop runs over range, T.grid, T.serial, T.parallel, T.vectorized, T.unroll or T.thread_binding, not '%s'%s%s",
      callee->s, near ? "; did you mean " : "", near ? near : "");
}

/* One loop over [start, stop) or [0, stop). */
static void one_range(Parser *p, LoopHead *h, const Operand *callee, const Args *a)
{
  static const char *const kws[] = {"start", "stop", "thread", "annotations", NULL};
  parse_args_check(p, a, h->kind == FOR_THREAD ? 3 : 2, kws, callee);
  if (h->n != 1) parse_error(p, h->loc, "%d loop variables for one range; use T.grid", h->n);
  const Operand *start = parse_arg_need(p, a, 0, "start", callee);
  const Operand *stop = parse_arg_get(a, 1, "stop");
  const Operand *tag = parse_arg_get(a, 2, "thread");
  Operand zero = {.kind = OP_INT, .loc = callee->loc};
  if (stop && stop->kind == OP_STR && h->kind == FOR_THREAD && !tag) tag = stop, stop = NULL;
  if (stop && stop->kind != OP_NONE) parse_as_range(p, start, stop, &h->min[0], &h->extent[0]);
  else parse_as_range(p, &zero, start, &h->min[0], &h->extent[0]);
  if (h->kind == FOR_THREAD) {
    if (!tag) parse_error(p, callee->loc, "T.thread_binding needs thread=\"threadIdx.x\" or the like");
    h->tag = parse_as_str(p, tag, "thread");
  } else if (tag) {
    parse_error(p, tag->loc, "%s takes no thread", callee->s);
  }
  const Operand *annots = parse_arg_get(a, -1, "annotations");
  if (annots && annots->kind != OP_NONE) h->annots = parse_as_annots(p, annots);
}

static void grid_ranges(Parser *p, LoopHead *h, const Operand *callee, const Args *a)
{
  parse_args_check(p, a, MAX_LOOPS, NULL, callee);
  if (!a->pos.n && h->n == 1) h->n = 0; /* a grid of nothing: the body runs once, its name stands for nothing */
  if (h->n != a->pos.n)
    parse_error(p, h->loc, "%d loop variables for a grid of %d dimension%s", h->n, a->pos.n, a->pos.n == 1 ? "" : "s");
  for (int i = 0; i < h->n; i++) {
    const Operand *o = &a->pos.v[i];
    Operand zero = {.kind = OP_INT, .loc = callee->loc};
    if (o->kind == OP_LIST && o->n == 2) parse_as_range(p, &o->list[0], &o->list[1], &h->min[i], &h->extent[i]);
    else parse_as_range(p, &zero, o, &h->min[i], &h->extent[i]);
  }
}

/* for = 'for' name {',' name} 'in' loops body */
static Stmt *parse_for(Parser *p, Loc loc)
{
  LoopHead *h = arena_new_of(p->arena, LoopHead);
  h->loc = loc;
  bool bracket = parse_accept(p, "(");
  do {
    if (h->n && bracket && parse_is_op(p, ")")) break; /* a comma after the last one */
    if (h->n == MAX_LOOPS) parse_error(p, loc, "more than %d loops at once", MAX_LOOPS);
    h->name[h->n++] = parse_expect_name(p, "a loop variable");
  } while (parse_accept(p, ","));
  if (bracket) parse_expect(p, ")", "the loop variables");
  parse_expect(p, "in", "the loop variables");
  Operand callee = parse_path(p);
  if (callee.kind == OP_NONE) {
    if (!parse_is_word(p, "range"))
      parse_error(p, parse_loc(p, parse_peek(p)), "expected range(…) or T.grid(…) after 'in', found %s",
                  parse_token_text(p, parse_peek(p)));
    p->at++;
    callee = (Operand){.kind = OP_PATH, .loc = callee.loc, .s = "range"};
  }
  parse_expect(p, "(", callee.s);
  loop_kind(p, &callee, &h->kind);
  Args args = parse_args(p);
  if (!strcmp(callee.s, "T.grid")) grid_ranges(p, h, &callee, &args);
  else one_range(p, h, &callee, &args);
  int mark = p->symbols.n;
  for (int i = 0; i < h->n; i++) {
    if (h->min[i]->dtype.lanes != 1) parse_error(p, callee.loc, "the range of a loop cannot be a vector");
    h->var[i] = var_new(p->m, h->name[i], h->min[i]->dtype, VAR_PLAIN);
    Symbol *s = parse_define_var(p, h->var[i], loc);
    s->min = h->min[i];
    s->extent = h->extent[i];
  }
  Stmt *body = parse_body(p);
  p->symbols.n = mark;
  for (int i = h->n - 1; i >= 0; i--) {
    body = placed(stmt_for(p->m, h->var[i], h->min[i], h->extent[i], h->kind, h->tag, body), loc);
    body->u.loop.annots = h->annots;
  }
  return body;
}

/* if = 'if' expression body {'elif' expression body} ['else' body]
 * A condition that Python knows picks its branch here. */
static Stmt *parse_if(Parser *p, Loc loc)
{
  parse_enter(p);
  Operand cond = parse_operand(p);
  Stmt *then = parse_body(p);
  Stmt *orelse = NULL;
  Loc next = parse_loc(p, parse_peek(p));
  if (parse_accept(p, "elif")) orelse = parse_if(p, next);
  else if (parse_accept(p, "else")) orelse = parse_body(p);
  parse_leave(p);
  if (cond.kind == OP_BOOL) return cond.i ? then : orelse ? orelse : stmt_nop(p->m);
  return placed(stmt_if(p->m, parse_as_cond(p, &cond), then, orelse), loc);
}

/* ---- blocks ------------------------------------------------------------------------------ */

void parse_fill_block(Parser *p, BlockBuild *bb)
{
  Arena *arena = p->m->arena;
  Block *b = bb->b;
#define MOVE(field, count, vec) \
  (b->field = arena_copy(arena, (vec).v, (size_t)(vec).n * sizeof *(vec).v), b->count = (vec).n)
  MOVE(iter, niter, bb->iters);
  MOVE(allocs, nallocs, bb->allocs);
  MOVE(matches, nmatches, bb->matches);
  if (!bb->reads_given || !bb->writes_given) block_infer_access(p->m, b);
  if (bb->reads_given) MOVE(reads, nreads, bb->reads);
  if (bb->writes_given) MOVE(writes, nwrites, bb->writes);
  b->declared = (bb->reads_given || bb->writes_given) && (b->nreads || b->nwrites);
#undef MOVE
}

static const char *unique_block(Parser *p, const char *name)
{
  if (!*name) name = "block";
  const char *to = arena_strdup(p->m->arena, name);
  for (int i = 1; strmap_get(&p->block_names, to); i++) to = arena_printf(p->m->arena, "%s_%d", name, i);
  strmap_put(p->arena, &p->block_names, to, p);
  return to;
}

/* 'with' 'T.block' '(' name ')' body */
static Stmt *parse_block(Parser *p, const Operand *callee, const Args *a, Loc loc)
{
  static const char *const kws[] = {"name", "name_hint", "no_realize", NULL};
  parse_args_check(p, a, 1, kws, callee);
  const Operand *name = parse_arg_get(a, 0, "name");
  if (!name) name = parse_arg_get(a, -1, "name_hint");
  BlockBuild bb = {.b = arena_new_of(p->m->arena, Block), .depth = p->depth + 1, .bindings = p->bindings};
  BlockBuild *outer = p->block;
  bb.b->name = unique_block(p, name ? parse_as_str(p, name, "the name of a block") : "");
  p->block = &bb;
  p->saw_block = true;
  bb.b->body = parse_body(p);
  parse_fill_block(p, &bb);
  p->block = outer;
  return placed(stmt_block(p->m, bb.b), loc);
}

/* The block that a description here belongs to: it may speak of nothing that is
 * bound inside of the block's body. */
static BlockBuild *own_block(Parser *p, const Operand *callee)
{
  BlockBuild *bb = p->block;
  if (bb->root)
    parse_error(p, callee->loc, "%s stands outside of a block; it belongs inside `with T.block(…):`", callee->s);
  if (p->depth != bb->depth || p->bindings != bb->bindings)
    parse_error(p, callee->loc, "%s must stand directly in block '%s', before any let", callee->s, bb->b->name);
  return bb;
}

static IterKind axis_kind(Parser *p, const char *word, Loc loc)
{
  static const struct {
    const char *name;
    IterKind kind;
  } kinds[] = {
    {"spatial", ITER_SPATIAL}, {"S", ITER_SPATIAL}, {"reduce", ITER_REDUCE}, {"R", ITER_REDUCE},
    {"opaque", ITER_OPAQUE},   {"O", ITER_OPAQUE},  {"scan", ITER_OPAQUE},   {"thread", ITER_THREAD},
  };
  const char *words[sizeof kinds / sizeof *kinds + 1];
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!strcmp(kinds[i].name, word)) return kinds[i].kind;
    words[i] = kinds[i].name;
  }
  words[sizeof kinds / sizeof *kinds] = "remap";
  const char *near = str_nearest(word, words, sizeof words / sizeof *words);
  parse_error(p, loc, "unknown kind of axis '%s'%s%s", word, near ? "; did you mean " : "", near ? near : "");
}

static void add_axis(Parser *p, BlockBuild *bb, const char *name, IterKind kind, const Expr *min, const Expr *extent,
                     const Expr *value, Loc loc)
{
  if (value->dtype.lanes != 1 || min->dtype.lanes != 1) parse_error(p, loc, "axis '%s' cannot be a vector", name);
  for (int i = 0; i < bb->iters.n; i++)
    if (!strcmp(bb->iters.v[i].var->name, name))
      parse_error(p, loc, "block '%s' has an axis '%s' already", bb->b->name, name);
  DType t = min->kind == E_INT && extent->kind == E_INT && value->kind != E_INT ? value->dtype : extent->dtype;
  const Var *v = var_new(p->m, name, t, VAR_PLAIN);
  /* brings the bounds to one dtype */
  Stmt *fit = stmt_for(p->m, v, min, extent, FOR_SERIAL, NULL, stmt_nop(p->m));
  vec_push(p->arena, &bb->iters, (BlockIter){v, fit->u.loop.min, fit->u.loop.extent, kind, value});
  parse_define_var(p, v, loc);
}

/* axes = names '=' 'T.axis.remap' '(' kinds ',' '[' loops ']' ')' */
static void parse_remap(Parser *p, BlockBuild *bb, int n, const char *const *names, const Operand *callee,
                        const Args *a)
{
  parse_args_check(p, a, 2, NULL, callee);
  const char *kinds = parse_as_str(p, parse_arg_need(p, a, 0, "kinds", callee), "the kinds of the axes");
  const Operand *list = parse_arg_need(p, a, 1, "bindings", callee);
  int count = list->kind == OP_LIST ? list->n : 1;
  if ((int)strlen(kinds) != n || count != n)
    parse_error(p, callee->loc, "T.axis.remap: %d names, %d kinds, %d loops; their numbers must agree", n,
                (int)strlen(kinds), count);
  for (int i = 0; i < n; i++) {
    const Operand *o = list->kind == OP_LIST ? &list->list[i] : list;
    const Symbol *loop = NULL;
    for (int k = p->symbols.n - 1; k >= 0 && !loop; k--)
      if (p->symbols.v[k].min && o->kind == OP_EXPR && p->symbols.v[k].value.e == o->e) loop = &p->symbols.v[k];
    if (!loop)
      parse_error(p, o->loc,
                  "T.axis.remap takes loop variables; bind anything else with T.axis.spatial or T.axis.reduce");
    const Expr *min = loop->min;
    const Expr *extent = loop->extent;
    add_axis(p, bb, names[i], axis_kind(p, (char[]){kinds[i], 0}, callee->loc), min, extent, o->e, o->loc);
  }
}

/* axis = name '=' 'T.axis.' kind '(' domain ',' value ')' ; domain = extent | '(' begin ',' end ')' */
static void parse_axis(Parser *p, int n, const char *const *names, const Operand *callee)
{
  BlockBuild *bb = own_block(p, callee);
  parse_expect(p, "(", callee->s);
  Args a = parse_args(p);
  const char *word = callee->s + strlen("T.axis.");
  if (!strcmp(word, "remap")) {
    parse_remap(p, bb, n, names, callee, &a);
    return;
  }
  IterKind kind = axis_kind(p, word, callee->loc);
  parse_args_check(p, &a, 2, NULL, callee);
  if (n != 1) parse_error(p, callee->loc, "%s gives one axis, %d names stand before it", callee->s, n);
  const Operand *dom = parse_arg_need(p, &a, 0, "dom", callee);
  const Operand *value = parse_arg_need(p, &a, 1, "binding", callee);
  Operand zero = {.kind = OP_INT, .loc = callee->loc};
  const Expr *min, *extent;
  if (dom->kind == OP_LIST && dom->n != 2) parse_error(p, dom->loc, "a domain is an extent or (begin, end)");
  if (dom->kind == OP_LIST) parse_as_range(p, &dom->list[0], &dom->list[1], &min, &extent);
  else parse_as_range(p, &zero, dom, &min, &extent);
  add_axis(p, bb, names[0], kind, min, extent, parse_as_index(p, value), callee->loc);
}

static bool is_own_buffer(const BlockBuild *bb, const Var *data)
{
  for (int i = 0; i < bb->allocs.n; i++)
    if (bb->allocs.v[i]->data == data) return true;
  for (int i = 0; i < bb->matches.n; i++)
    if (bb->matches.v[i].buffer->data == data) return true;
  return false;
}

/* T.reads(A[0:8], B[i]) ; a list does as well */
static void parse_regions(Parser *p, const Operand *callee, const Args *a, bool writes)
{
  BlockBuild *bb = own_block(p, callee);
  parse_args_check(p, a, 1 << 20, NULL, callee);
  const Operand *v = a->pos.v;
  int n = a->pos.n;
  if (writes ? bb->writes_given : bb->reads_given)
    parse_error(p, callee->loc, "block '%s' has %s already", bb->b->name, callee->s);
  if (n == 1 && v[0].kind == OP_LIST) n = v[0].n, v = v[0].list;
  for (int i = 0; i < n; i++) {
    Region r = parse_as_region(p, &v[i]);
    if (is_own_buffer(bb, r.buffer->data))
      parse_error(p, v[i].loc, "'%s' is declared in block '%s' itself; %s names what the block sees from outside",
                  r.buffer->name, bb->b->name, callee->s);
    if (writes) vec_push(p->arena, &bb->writes, r);
    else vec_push(p->arena, &bb->reads, r);
  }
  *(writes ? &bb->writes_given : &bb->reads_given) = true;
}

/* ---- bindings ------------------------------------------------------------------------------- */

static void define_buffer(Parser *p, const char *name, const Buffer *b, Loc loc)
{
  parse_define(p, name, (Operand){.kind = OP_BUFFER, .loc = loc, .buffer = b});
}

static int symbol_of(const Parser *p, const Var *v)
{
  for (int i = 0; i < p->symbols.n; i++) {
    const Operand *o = &p->symbols.v[i].value;
    if ((o->kind == OP_EXPR && o->e == v->expr) || (o->kind == OP_BUFFER && o->buffer->data == v) ||
        (o->kind == OP_HANDLE && p->params.v[o->param].var == v))
      return i;
  }
  return -1;
}

/* What e depends on must be bound no deeper than the symbol `outer`. */
static void check_binding(Parser *p, const char *name, const Expr *e, int outer, Loc loc)
{
  const Var **vars;
  int n = e ? expr_free_vars(p->arena, e, &vars) : 0;
  for (int i = 0; i < n; i++) {
    int at = symbol_of(p, vars[i]);
    if (at > outer && p->symbols.v[at].inner)
      parse_error(p, loc, "the layout of '%s' depends on '%s', which is bound inside of the buffer's scope", name,
                  vars[i]->name);
  }
}

/* A view is declared where its memory is, an allocation where its block is. */
static void check_layout(Parser *p, const Buffer *b, int outer, Loc loc)
{
  for (int d = 0; d < b->ndim; d++) {
    check_binding(p, b->name, b->shape[d], outer, loc);
    if (b->strides) check_binding(p, b->name, b->strides[d], outer, loc);
  }
  check_binding(p, b->name, b->elem_offset, outer, loc);
}

/* T.match_buffer(handle, shape, …) for a parameter, T.match_buffer(region, shape, …) in a block */
static void bind_match(Parser *p, const char *name, const Operand *callee, const Args *a)
{
  const Operand *source = parse_arg_need(p, a, 0, "param", callee);
  Args rest = *a;
  rest.kw.n = rest.kwval.n = 0;
  rest.kw.v = NULL, rest.kwval.v = NULL, rest.kw.cap = rest.kwval.cap = 0;
  for (int i = 0; i < a->kw.n; i++) {
    vec_push(p->arena, &rest.kw, a->kw.v[i]);
    vec_push(p->arena, &rest.kwval, a->kwval.v[i]);
  }
  if (source->kind == OP_HANDLE) {
    Param *param = &p->params.v[source->param];
    if (param->buffer) parse_error(p, source->loc, "'%s' is matched to '%s' already", source->s, param->buffer->name);
    vec_push(p->arena, &rest.kw, "data");
    vec_push(p->arena, &rest.kwval, parse_expr_operand(p, param->var->expr, source->loc, 0));
    const Buffer *b = parse_buffer(p, name, &rest, 1, callee, NULL);
    param = &p->params.v[source->param];
    *param = (Param){b->data, b};
    define_buffer(p, name, b, callee->loc);
    return;
  }
  BlockBuild *bb = own_block(p, callee);
  Region r = parse_as_region(p, source);
  bool whole = a->pos.n == 1 && !parse_arg_get(a, -1, "shape"); /* as large as the region, of its dtype */
  const Buffer *b =
      whole ? buffer_new(p->m, name, r.buffer->dtype, r.buffer->ndim, r.extent, NULL, NULL, r.buffer->scope, 0, 0, NULL)
            : parse_buffer(p, name, &rest, 1, callee, NULL);
  if (b->ndim > r.buffer->ndim)
    parse_error(p, callee->loc, "'%s' has %d dimensions, its source '%s' only %d", name, b->ndim, r.buffer->name,
                r.buffer->ndim);
  vec_push(p->arena, &bb->matches, (MatchBuffer){b, r});
  define_buffer(p, name, b, callee->loc);
}

static void alloc_details(Parser *p, Stmt *s, const Args *a)
{
  static const char *const places[] = {"none", "stack", "workspace", "slice", "shared"};
  const Operand *o = parse_arg_get(a, -1, "place");
  if (o) {
    const char *word = parse_as_str(p, o, "place");
    int k = 0;
    while (k < 5 && strcmp(places[k], word)) k++;
    if (k == 5)
      parse_error(p, o->loc, "unknown place \"%s\"; none, stack, workspace, slice and shared are known", word);
    s->u.alloc.place = (Place)k;
  }
  if ((o = parse_arg_get(a, -1, "offset"))) s->u.alloc.offset = parse_as_index(p, o);
  if ((o = parse_arg_get(a, -1, "annotations")) && o->kind != OP_NONE) s->u.alloc.annots = parse_as_annots(p, o);
}

/* T.decl_buffer(shape, dtype, …) and T.allocate(shape, dtype, scope) */
static const Buffer *decl_from_args(Parser *p, const char *name, const Operand *callee, const Args *a, bool *view)
{
  Args args = *a;
  if (!strcmp(callee->s, "T.allocate")) {
    static const char *const kws[] = {"extents", "dtype", "scope", "condition", "annotations", "place", "offset", NULL};
    parse_args_check(p, a, 3, kws, callee);
    const Operand *scope = parse_arg_get(a, 2, "scope");
    args = (Args){0};
    vec_push(p->arena, &args.pos, *parse_arg_need(p, a, 0, "extents", callee));
    vec_push(p->arena, &args.pos, *parse_arg_need(p, a, 1, "dtype", callee));
    if (scope) {
      vec_push(p->arena, &args.kw, "scope");
      vec_push(p->arena, &args.kwval, *scope);
    }
  }
  return parse_buffer(p, name, &args, 0, callee, view);
}

/* What stands for the rest of the list (or below `with`): NULL if this is no binding. */
typedef enum { BIND_NONE, BIND_ALLOC, BIND_LET, BIND_ATTR, BIND_THREAD } BindKind;

static BindKind binding_of(const char *path)
{
  if (!strcmp(path, "T.decl_buffer") || !strcmp(path, "T.allocate")) return BIND_ALLOC;
  if (!strcmp(path, "T.LetStmt") || !strcmp(path, "T.let")) return BIND_LET;
  if (!strcmp(path, "T.attr")) return BIND_ATTR;
  return !strcmp(path, "T.launch_thread") ? BIND_THREAD : BIND_NONE;
}

static Stmt *bind_alloc(Parser *p, const char *name, const Operand *callee, const Args *a, Stmt *(*body)(Parser *))
{
  bool view;
  const Buffer *b = decl_from_args(p, name, callee, a, &view);
  if (view) check_layout(p, b, symbol_of(p, b->data), callee->loc);
  define_buffer(p, name, b, callee->loc);
  if (view) return body(p);
  Stmt *s = stmt_alloc(p->m, b, stmt_nop(p->m));
  alloc_details(p, s, a);
  s->u.alloc.body = body(p);
  s->u.alloc.body->parent = s;
  return s;
}

static Stmt *bind_let(Parser *p, const char *name, const Expr *value, Loc loc, Stmt *(*body)(Parser *))
{
  if (value->dtype.code == DT_VOID) parse_error(p, loc, "%s gives no value to name", expr_str_of(p->arena, value));
  const Var *v = var_new(p->m, name, value->dtype, VAR_PLAIN);
  parse_define_var(p, v, loc);
  return stmt_let(p->m, v, value, body(p));
}

/* T.attr(node, key, value) */
static Stmt *bind_attr(Parser *p, const Operand *callee, const Args *a, Stmt *(*body)(Parser *))
{
  static const char *const kws[] = {"node", "attr_key", "value", NULL};
  parse_args_check(p, a, 3, kws, callee);
  const Operand *node = parse_arg_need(p, a, 0, "node", callee);
  const char *key = parse_as_str(p, parse_arg_need(p, a, 1, "attr_key", callee), "the key of T.attr");
  const Expr *value = parse_as_value(p, parse_arg_need(p, a, 2, "value", callee));
  const Expr *on = NULL;
  if (node->kind == OP_EXPR || node->kind == OP_BUFFER || node->kind == OP_HANDLE) on = parse_as_expr(p, node);
  else if (node->kind != OP_INT && node->kind != OP_NONE && node->kind != OP_STR)
    parse_error(p, node->loc, "T.attr is set on a variable, a buffer's data, or 0");
  if (on && on->kind != E_VAR) parse_error(p, node->loc, "T.attr is set on a variable, a buffer's data, or 0");
  return stmt_attr(p->m, on ? on->u.var : NULL, key, value, body(p));
}

/* T.launch_thread(tag, extent), or T.launch_thread(tx, extent) after tx = T.env_thread(tag) */
static Stmt *bind_thread(Parser *p, const char *name, const Operand *callee, const Args *a, Stmt *(*body)(Parser *))
{
  parse_args_check(p, a, 2, NULL, callee);
  const Operand *thread = parse_arg_need(p, a, 0, "thread", callee);
  const char *tag = parse_as_str(p, thread, "the thread axis");
  const Expr *extent = parse_as_index(p, parse_arg_need(p, a, 1, "extent", callee));
  for (int i = p->symbols.n - 1; i >= 0 && thread->axis && !name; i--) /* the name that the axis was given */
    if (p->symbols.v[i].value.axis && !strcmp(p->symbols.v[i].value.s, tag)) name = p->symbols.v[i].name;
  const Var *v = var_new(p->m, name ? name : "thread", extent->dtype, VAR_PLAIN);
  if (name) parse_define_var(p, v, callee->loc);
  return stmt_for(p->m, v, expr_int(p->m, extent->dtype, 0), extent, FOR_THREAD, tag, body(p));
}

static const char *need_name(Parser *p, const char *name, const Operand *callee)
{
  if (!name) parse_error(p, callee->loc, "%s needs a name", callee->s);
  return name;
}

static Stmt *parse_binding(Parser *p, BindKind kind, const char *name, const Operand *callee, const Args *a,
                           Stmt *(*body)(Parser *))
{
  switch (kind) {
  case BIND_ALLOC: return bind_alloc(p, need_name(p, name, callee), callee, a, body);
  case BIND_LET: {
    const Expr *value = parse_as_expr(p, parse_arg_need(p, a, 0, "value", callee));
    const Operand *var = parse_arg_get(a, -1, "var"); /* declared before: `with T.LetStmt(value, var=x):` */
    if (var && (var->kind != OP_EXPR || var->e->kind != E_VAR || !dtype_eq(var->e->dtype, value->dtype)))
      parse_error(p, var->loc, "var= wants a variable of dtype %s", dtype_name(p->arena, value->dtype));
    if (var && !name) name = var->e->u.var->name;
    return bind_let(p, need_name(p, name, callee), value, callee->loc, body);
  }
  case BIND_ATTR: return bind_attr(p, callee, a, body);
  case BIND_THREAD: return bind_thread(p, name, callee, a, body);
  case BIND_NONE: break;
  }
  BUG(p->ctx, "parse_binding without a binding");
}

/* ---- with ---------------------------------------------------------------------------------------- */

/* with = 'with' path '(' arguments ')' ['as' name] body */
static Stmt *parse_with(Parser *p, Loc loc)
{
  Operand callee = parse_path(p);
  if (callee.kind == OP_NONE)
    parse_error(p, parse_loc(p, parse_peek(p)), "expected T.block(…) or the like after 'with', found %s",
                parse_token_text(p, parse_peek(p)));
  parse_expect(p, "(", callee.s);
  Args a = parse_args(p);
  const char *name = parse_accept(p, "as") ? parse_expect_name(p, "a name after 'as'") : NULL;
  if (!strcmp(callee.s, "T.block")) {
    if (name) parse_error(p, loc, "T.block gives nothing to name '%s'; its axes are T.axis.spatial and the like", name);
    return parse_block(p, &callee, &a, loc);
  }
  if (!strcmp(callee.s, "T.init")) {
    BlockBuild *bb = own_block(p, &callee);
    parse_args_check(p, &a, 0, NULL, &callee);
    if (bb->b->init) parse_error(p, callee.loc, "block '%s' has an init already", bb->b->name);
    bb->b->init = parse_body(p);
    return NULL;
  }
  BindKind kind = binding_of(callee.s);
  if (kind == BIND_NONE)
    parse_error(
        p, callee.loc,
        "'with %s' is not known; T.block, T.init, T.attr, T.LetStmt, T.decl_buffer, T.allocate and T.launch_thread are",
        callee.s);
  int mark = p->symbols.n;
  Stmt *s = parse_binding(p, kind, name, &callee, &a, parse_body);
  p->symbols.n = mark;
  return placed(s, loc);
}

/* ---- lines ------------------------------------------------------------------------------------------ */

/* Statements that only describe: true if this was one.  The arguments are read. */
static bool describe(Parser *p, const Operand *callee, const Args *a)
{
  if (!strcmp(callee->s, "T.reads")) parse_regions(p, callee, a, false);
  else if (!strcmp(callee->s, "T.writes")) parse_regions(p, callee, a, true);
  else if (!strcmp(callee->s, "T.where")) {
    BlockBuild *bb = own_block(p, callee);
    parse_args_check(p, a, 1, NULL, callee);
    if (bb->b->predicate) parse_error(p, callee->loc, "block '%s' has T.where already", bb->b->name);
    bb->b->predicate = parse_as_cond(p, parse_arg_need(p, a, 0, "predicate", callee));
  } else if (!strcmp(callee->s, "T.block_attr")) {
    BlockBuild *bb = own_block(p, callee);
    Annots more = parse_as_annots(p, parse_arg_need(p, a, 0, "attrs", callee));
    for (int i = 0; i < more.n; i++) {
      const Expr *before = annots_get(&bb->b->annots, more.v[i].key);
      if (before && before != more.v[i].value)
        parse_error(p, callee->loc, "block '%s' has another '%s' already", bb->b->name, more.v[i].key);
      annots_set(p->m->arena, &bb->b->annots, more.v[i].key, more.v[i].value);
    }
  } else if (!strcmp(callee->s, "T.func_attr")) {
    Annots more = parse_as_annots(p, parse_arg_need(p, a, 0, "attrs", callee));
    for (int i = 0; i < more.n; i++) annots_set(p->m->arena, &p->attrs, more.v[i].key, more.v[i].value);
  } else {
    return false;
  }
  return true;
}

static Stmt *store_to(Parser *p, const Operand *target, const Expr *value)
{
  int n;
  const Expr **index = parse_as_indices(p, target, &n);
  DType t = target->buffer->dtype;
  if (dtype_is_float(t) && dtype_is_int(value->dtype))
    value = expr_cast(p->m, dtype_lanes(t, value->dtype.lanes), value);
  return stmt_store(p->m, target->buffer, n, index, value);
}

/* vstore = buffer '.vstore' '(' indices ',' value [',' 'predicate' '=' mask] ')' */
static Stmt *parse_vstore(Parser *p, const Operand *callee, const Args *a)
{
  static const char *const kws[] = {"begin", "value", "predicate", NULL};
  parse_args_check(p, a, 3, kws, callee);
  const Operand *list = parse_arg_need(p, a, 0, "begin", callee);
  const Operand *mask = parse_arg_get(a, 2, "predicate");
  Operand item = {
    .kind = OP_ITEM, .loc = callee->loc, .buffer = callee->buffer, .list = (Operand *)(uintptr_t)list, .n = 1};
  if (list->kind == OP_LIST) item.list = list->list, item.n = list->n;
  Stmt *s = store_to(p, &item, parse_as_expr(p, parse_arg_need(p, a, 1, "value", callee)));
  if (!mask || mask->kind == OP_NONE) return s;
  s->u.store.mask = parse_as_cond(p, mask);
  if (s->u.store.mask->dtype.lanes != s->u.store.value->dtype.lanes)
    parse_error(p, mask->loc, "the predicate has %d lanes, the value %d", s->u.store.mask->dtype.lanes,
                s->u.store.value->dtype.lanes);
  return s;
}

/* A call that stands alone: a store with a mask, or an evaluation for its effect. */
static Stmt *parse_effect(Parser *p, Loc loc)
{
  Operand o = {.kind = OP_NONE};
  const Token *t = parse_peek(p);
  Symbol *s = t->kind == TOK_NAME ? parse_find_symbol(p, t->s) : NULL;
  bool method = s && s->value.kind == OP_BUFFER && p->tok[p->at + 1].kind == TOK_OP &&
                !strcmp(p->tok[p->at + 1].s, ".") && p->tok[p->at + 2].kind == TOK_NAME &&
                !strcmp(p->tok[p->at + 2].s, "vstore");
  if (method) {
    p->at += 3;
    parse_expect(p, "(", "vstore");
    Args a = parse_args(p);
    Operand callee = {.kind = OP_PATH, .loc = loc, .s = "vstore", .buffer = s->value.buffer};
    return parse_vstore(p, &callee, &a);
  }
  o = parse_list(p);
  static const struct {
    const char *op;
    uint8_t kind;
  } updates[] = {
    {"+=", E_ADD}, {"-=", E_SUB}, {"*=", E_MUL}, {"/=", E_DIV}, {"//=", E_FLOORDIV}, {"%=", E_FLOORMOD},
  };
  for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
    if (o.kind == OP_ITEM && parse_accept(p, updates[i].op)) {
      Operand value = parse_operand(p);
      Operand sum = parse_binary_operand(p, (ExprKind)updates[i].kind, &o, &value, loc);
      return store_to(p, &o, parse_as_expr(p, &sum));
    }
  if (parse_accept(p, "=")) {
    if (o.kind != OP_ITEM) parse_error(p, o.loc, "only names and elements of buffers can be assigned");
    return store_to(p, &o, parse_expr(p));
  }
  if (o.kind == OP_STR) return NULL; /* a docstring */
  if (o.kind != OP_EXPR || o.e->kind != E_CALL)
    parse_error(p, o.loc, "this line has no effect; T.evaluate(…) makes it a statement");
  return stmt_eval(p->m, o.e);
}

/* What `name = T.…(…)` declares; false: an ordinary value. */
static bool parse_declaration(Parser *p, const char *name, const Operand *callee)
{
  DType t;
  int at = p->at;
  if (str_starts(callee->s, "T.") && parse_dtype_word(callee->s + 2, &t)) {
    static const char *const kws[] = {"is_size_var", NULL};
    parse_expect(p, "(", callee->s);
    Args a = parse_args(p);
    parse_args_check(p, &a, 1, kws, callee);
    if (a.pos.n && !(t.code == DT_HANDLE && a.pos.v[0].kind == OP_STR)) {
      p->at = at;
      return false;
    }
    parse_define(
        p, name,
        parse_expr_operand(p, var_new(p->m, name, t, dtype_is_int(t) ? VAR_SIZE : VAR_PLAIN)->expr, callee->loc, 0));
    return true;
  }
  bool match = !strcmp(callee->s, "T.match_buffer");
  bool alloc = !strcmp(callee->s, "T.alloc_buffer");
  if (!match && !alloc && strcmp(callee->s, "T.Buffer") && strcmp(callee->s, "T.buffer_decl")) return false;
  parse_expect(p, "(", callee->s);
  Args a = parse_args(p);
  if (match) {
    bind_match(p, name, callee, &a);
    return true;
  }
  bool view;
  const Buffer *b = parse_buffer(p, name, &a, 0, callee, &view);
  if (alloc && view) parse_error(p, callee->loc, "T.alloc_buffer makes its own memory; data= has no place here");
  if (!alloc && !view)
    parse_error(p, callee->loc, "T.Buffer here needs data=; T.alloc_buffer or T.decl_buffer make memory");
  bool own = p->depth == p->block->depth && p->bindings == p->block->bindings;
  if (view) check_layout(p, b, symbol_of(p, b->data), callee->loc);
  else if (!own) check_layout(p, b, -1, callee->loc);
  for (int i = 0; alloc && i < p->block->allocs.n; i++)
    if (!strcmp(p->block->allocs.v[i]->name, name))
      parse_error(p, callee->loc, "block '%s' has a buffer '%s' already",
                  p->block->b->name ? p->block->b->name : "root", name);
  if (alloc) vec_push(p->arena, &p->block->allocs, b);
  define_buffer(p, name, b, callee->loc);
  return true;
}

/* Names that stand for what T.meta_var holds, without a binding in the program. */
static void define_meta(Parser *p, int n, const char *const *names, const Operand *value)
{
  if (n > 1 && (value->kind != OP_LIST || value->n != n))
    parse_error(p, value->loc, "%d names for %d values", n, value->kind == OP_LIST ? value->n : 1);
  for (int i = 0; i < n; i++) {
    Operand o = n > 1 ? value->list[i] : *value;
    o.meta = false;
    parse_define(p, names[i], o);
  }
}

/* `m, n = T.int32(), T.int32()`; false: something else. */
static bool parse_declarations(Parser *p, int n, const char *const *names)
{
  int at = p->at;
  DType t;
  for (int i = 0; i < n; i++) {
    Operand callee = parse_path(p);
    bool declares = callee.kind == OP_PATH && str_starts(callee.s, "T.") && parse_dtype_word(callee.s + 2, &t) &&
                    (i == 0 || parse_is_op(p, "("));
    if (!declares || !parse_declaration(p, names[i], &callee) || (i < n - 1 && !parse_accept(p, ","))) {
      p->at = at;
      return false;
    }
  }
  return true;
}

/* assignment = name {',' name} '=' … ; the names are passed over already */
static Stmt *parse_assignment(Parser *p, int n, const char *const *names, Loc loc, bool *rest)
{
  int at = p->at;
  Operand callee = parse_path(p);
  if (callee.kind == OP_PATH) {
    if (str_starts(callee.s, "T.axis.")) {
      parse_axis(p, n, names, &callee);
      end_line(p, "the axis");
      return NULL;
    }
    if (n == 1 && parse_declaration(p, names[0], &callee)) {
      end_line(p, "the declaration");
      return NULL;
    }
    BindKind kind = binding_of(callee.s);
    if (n == 1 && kind != BIND_NONE) {
      parse_expect(p, "(", callee.s);
      Args a = parse_args(p);
      end_line(p, "the binding");
      *rest = true;
      return placed(parse_binding(p, kind, names[0], &callee, &a, parse_rest), loc);
    }
    p->at = at;
    if (n > 1 && parse_declarations(p, n, names)) {
      end_line(p, "the declarations");
      return NULL;
    }
  }
  Operand value = parse_list(p);
  end_line(p, "the value");
  if (value.meta) {
    define_meta(p, n, names, &value);
    return NULL;
  }
  if (n != 1) parse_error(p, loc, "several names are assigned at once only from T.axis.remap");
  if (value.kind == OP_BUFFER || value.kind == OP_LIST || value.kind == OP_STR) {
    parse_define(p, names[0], value);
    return NULL;
  }
  *rest = true;
  return placed(bind_let(p, names[0], parse_as_expr(p, &value), loc, parse_rest), loc);
}

/* annotated = name ':' 'T.' dtype '=' expression */
static Stmt *parse_annotated(Parser *p, const char *name, Loc loc, bool *rest)
{
  DType t;
  parse_expect(p, "T", "':'");
  parse_expect(p, ".", "T");
  Loc at = parse_loc(p, parse_peek(p));
  const char *word = parse_expect_name(p, "a dtype after 'T.'");
  if (!parse_dtype_word(word, &t)) parse_error(p, at, "unknown dtype 'T.%s'", word);
  if (parse_accept(p, "(")) parse_args(p);
  parse_expect(p, "=", "the dtype");
  Operand o = parse_operand(p);
  const Expr *value = parse_as_expr(p, &o);
  if (expr_is_const(value) && o.kind != OP_EXPR) {
    Operand callee = {.kind = OP_PATH, .loc = loc, .s = arena_printf(p->arena, "T.%s", word)};
    Args a = {0};
    vec_push(p->arena, &a.pos, o);
    o = parse_call_operand(p, &callee, &a);
    value = o.e;
  }
  if (!dtype_eq(value->dtype, t))
    parse_error(p, o.loc, "'%s' is declared T.%s, its value has dtype %s", name, word,
                dtype_name(p->arena, value->dtype));
  end_line(p, "the value");
  *rest = true;
  return placed(bind_let(p, name, value, loc, parse_rest), loc);
}

static bool op_at(const Parser *p, int at, const char *op)
{
  return p->tok[at].kind == TOK_OP && !strcmp(p->tok[at].s, op);
}

/* The names before '=': their number, 0 if the line starts otherwise. */
static int assigned_names(Parser *p, const char **names, int max)
{
  int at = p->at;
  int n = 0;
  while (p->tok[at].kind == TOK_NAME && n < max) {
    names[n++] = p->tok[at].s;
    if (op_at(p, at + 1, "=")) {
      p->at = at + 2;
      return n;
    }
    if (!op_at(p, at + 1, ",")) return 0;
    at += 2;
  }
  return 0;
}

/* line = annotated | assignment | binding | description | store | call */
static Stmt *parse_line(Parser *p, Loc loc, bool *rest)
{
  const char *names[MAX_LOOPS];
  if (parse_peek(p)->kind == TOK_NAME && op_at(p, p->at + 1, ":")) {
    const char *name = parse_expect_name(p, "a name");
    p->at++;
    return parse_annotated(p, name, loc, rest);
  }
  int n = assigned_names(p, names, MAX_LOOPS);
  if (n) return parse_assignment(p, n, names, loc, rest);
  int at = p->at;
  Operand callee = parse_path(p);
  if (callee.kind == OP_PATH) {
    BindKind kind = binding_of(callee.s);
    parse_expect(p, "(", callee.s);
    Args a = parse_args(p);
    bool declared = kind == BIND_LET && parse_arg_get(&a, -1, "var"); /* T.LetStmt(value, var=x) */
    if (kind == BIND_ATTR || kind == BIND_THREAD || declared) {
      end_line(p, "the binding");
      *rest = true;
      return placed(parse_binding(p, kind, NULL, &callee, &a, parse_rest), loc);
    }
    if (describe(p, &callee, &a)) {
      end_line(p, callee.s);
      return NULL;
    }
    if (!strcmp(callee.s, "T.evaluate")) {
      parse_args_check(p, &a, 1, NULL, &callee);
      const Operand *value = parse_arg_need(p, &a, 0, "value", &callee);
      if (value->kind == OP_BUFFER)
        parse_error(p, value->loc, "T.evaluate takes an expression; '%s' is a buffer", value->buffer->name);
      Stmt *s = stmt_eval(p->m, parse_as_expr(p, value));
      end_line(p, callee.s);
      return placed(s, loc);
    }
    p->at = at;
  }
  Stmt *s = parse_effect(p, loc);
  end_line(p, "the statement");
  return s ? placed(s, loc) : NULL;
}

/* statement = for | while | if | with | 'pass' | line ; NULL where none is left behind */
static Stmt *parse_statement(Parser *p, bool *rest)
{
  static const char *const refused[] = {"return", "def",    "class",    "import", "from",  "break", "continue", "try",
                                        "raise",  "global", "nonlocal", "del",    "async", "yield", "lambda"};
  const Token *t = parse_peek(p);
  Loc loc = parse_loc(p, t);
  p->here = loc;
  if (parse_accept(p, "for")) return parse_for(p, loc);
  if (parse_accept(p, "if")) return parse_if(p, loc);
  if (parse_accept(p, "with")) return parse_with(p, loc);
  if (parse_accept(p, "while")) {
    Operand cond = parse_operand(p);
    return placed(stmt_while(p->m, parse_as_cond(p, &cond), parse_body(p)), loc);
  }
  if (parse_is_word(p, "return") && p->tok[p->at + 1].kind != TOK_NEWLINE) { /* the same as T.ret(value) */
    p->at++;
    const Expr *value = parse_expr(p);
    end_line(p, "the value");
    return placed(stmt_eval(p->m, expr_call(p->m, DT_NONE, IN_RET, 1, &value)), loc);
  }
  if (parse_accept(p, "pass")) {
    end_line(p, "'pass'");
    return placed(stmt_nop(p->m), loc);
  }
  if (parse_is_word(p, "assert"))
    parse_error(p, loc,
                "'assert' is not supported in a loop program; check before the call, or write `if …: return 1`");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (parse_is_word(p, refused[i])) parse_error(p, loc, "'%s' has no meaning in a loop program", refused[i]);
  return parse_line(p, loc, rest);
}

/* statements = {statement} */
Stmt *parse_statements(Parser *p)
{
  Vec(Stmt *) v = {0};
  bool rest = false;
  while (!rest && parse_peek(p)->kind != TOK_DEDENT && parse_peek(p)->kind != TOK_END) {
    if (parse_peek(p)->kind == TOK_INDENT)
      parse_error(p, parse_loc(p, parse_peek(p)), "this line is indented more than the one above");
    Stmt *s = parse_statement(p, &rest);
    if (s) vec_push(p->arena, &v, s);
  }
  return stmt_seq(p->m, v.n, v.v);
}
