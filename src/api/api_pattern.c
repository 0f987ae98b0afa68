/* api_pattern.c: dataflow patterns.
 *
 * In: a pattern as a list of rows [kind, parts, what], where parts are numbers of rows before
 * it, and the last row is the whole.  Out: matches as [[row, node], …], new graphs.
 *
 *   kind        parts               what
 *   wildcard                                     call        callee, arguments   true: any arguments
 *   op                              name         alt         two
 *   const                                        attr        one                 [name, value as text]
 *   var                             name?        dtype       one                 dtype
 *   tuple       fields              true: any    shape       one                 sizes (none: any)
 *   get         tuple               index (-1)   type        one                 type
 *   dominator   parent, path, child              node                            node
 *   if          condition, branches              let         variable, value, body
 *
 * A user's functions answer 0, or -1 when they failed: then the call under way fails with
 * ERR_CALLBACK. */
#include "api/api.h"
#include "pass/pattern.h"

typedef int32_t (*AskFn)(void *user, int32_t n, const LatheValue *args, LatheValue *answer);

typedef struct Rows {
  int n;
  DfPat **pat;
} Rows;

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct Row {
  Call *c;
  Module *m;
  Arena *a;
  int n;
  DfPat **sub;
  const LatheValue *what;
} Row;

static bool any(const Row *r) { return r->what->tag == LATHE_BOOL && r->what->u.i; }
static const char *text(const Row *r) { return r->what->tag == LATHE_STR ? api_value_text(r->c, r->what) : NULL; }

static const char *need_text(const Row *r, const LatheValue *v)
{
  if (v->tag != LATHE_STR) raise(r->c->ctx, ERR_TYPE, NOWHERE, "a pattern's name is text");
  return api_value_text(r->c, v);
}

static const void *need_object(const Row *r, LatheKind kind)
{
  const Handle *h = r->what->tag == LATHE_OBJECT ? r->what->u.p : NULL;
  if (!r->m)
    raise(r->c->ctx, ERR_UNSUPPORTED, NOWHERE,
          "a pattern of a table names no node and no type of one program; has_dtype and has_shape say what it is of");
  if (!h || h->kind != (int32_t)kind || h->m != r->m)
    raise(r->c->ctx, ERR_TYPE, NOWHERE, "a pattern's node or type is one of this world");
  return h->p;
}

static DfPat *make_wildcard(const Row *r) { return pat_wildcard(r->a); }
static DfPat *make_op(const Row *r) { return opdef_get(r->c->ctx, need_text(r, r->what)), pat_op(r->a, text(r)); }
static DfPat *make_const(const Row *r) { return pat_constant(r->a); }
static DfPat *make_var(const Row *r) { return pat_var(r->a, text(r)); }
static DfPat *make_tuple(const Row *r) { return pat_tuple(r->a, any(r) ? -1 : r->n, r->sub); }
static DfPat *make_get(const Row *r)
{
  return pat_get(r->a, r->sub[0], r->what->tag == LATHE_INT ? (int)r->what->u.i : -1);
}
static DfPat *make_call(const Row *r) { return pat_call(r->a, r->sub[0], any(r) ? -1 : r->n - 1, r->sub + 1); }
static DfPat *make_alt(const Row *r) { return pat_alt(r->a, r->sub[0], r->sub[1]); }
static DfPat *make_dtype(const Row *r) { return pat_dtype(r->a, r->sub[0], api_value_dtype(r->c, r->what)); }
static DfPat *make_type(const Row *r) { return pat_type(r->a, r->sub[0], need_object(r, LATHE_TYPE)); }
static DfPat *make_dominator(const Row *r) { return pat_dominates(r->a, r->sub[0], r->sub[1], r->sub[2]); }
static DfPat *make_if(const Row *r) { return pat_if(r->a, r->sub[0], r->sub[1], r->sub[2]); }
static DfPat *make_let(const Row *r) { return pat_let(r->a, r->sub[0], r->sub[1], r->sub[2]); }
static DfPat *make_node(const Row *r) { return pat_node(r->a, need_object(r, LATHE_NODE)); }

static DfPat *make_attr(const Row *r)
{
  if (r->what->tag != LATHE_LIST || r->what->n != 2)
    raise(r->c->ctx, ERR_TYPE, NOWHERE, "a pattern's attribute is a list of name and value");
  return pat_attr(r->a, r->sub[0], need_text(r, &r->what->u.list[0]), need_text(r, &r->what->u.list[1]));
}

static DfPat *make_shape(const Row *r)
{
  if (r->what->tag != LATHE_LIST) raise(r->c->ctx, ERR_TYPE, NOWHERE, "a pattern's shape is a list of sizes");
  int64_t *dims = arena_array(r->a, int64_t, r->what->n + 1);
  for (int64_t i = 0; i < r->what->n; i++) dims[i] = r->what->u.list[i].tag == LATHE_INT ? r->what->u.list[i].u.i : -1;
  return pat_shape(r->a, r->sub[0], (int)r->what->n, dims);
}

static const struct {
  const char *name;
  int least; /* parts */
  DfPat *(*make)(const Row *);
} kinds[] = {
  {"wildcard", 0, make_wildcard},   {"op", 0, make_op},       {"const", 0, make_const}, {"var", 0, make_var},
  {"tuple", 0, make_tuple},         {"get", 1, make_get},     {"call", 1, make_call},   {"alt", 2, make_alt},
  {"attr", 1, make_attr},           {"dtype", 1, make_dtype}, {"shape", 1, make_shape}, {"type", 1, make_type},
  {"dominator", 3, make_dominator}, {"if", 3, make_if},       {"let", 3, make_let},     {"node", 0, make_node},
};

static DfPat *read_row(Call *c, Module *m, Arena *arena, const Rows *before, const LatheValue *v)
{
  const char *kind = api_value_text(c, &v->u.list[0]);
  const LatheValue *parts = &v->u.list[1];
  Row r = {c, m, arena, (int)parts->n, arena_array(arena, DfPat *, parts->n + 1), &v->u.list[2]};
  for (int i = 0; i < r.n; i++) {
    int64_t k = parts->u.list[i].tag == LATHE_INT ? parts->u.list[i].u.i : -1;
    if (k < 0 || k >= before->n)
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "part %d of row %d of a pattern is a row before it", i, before->n);
    r.sub[i] = before->pat[k];
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, kind)) continue;
    if (r.n < kinds[i].least)
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a pattern of kind %s has %d parts, not %d", kind, kinds[i].least, r.n);
    return kinds[i].make(&r);
  }
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no kind of pattern '%s'", kind);
}

static Rows read_rows_into(Call *c, Module *m, Arena *arena, const LatheValue *list)
{
  op_init();
  Rows rows = {0, arena_array(scratch(c->ctx), DfPat *, list->n + 1)};
  if (list->n == 0) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a pattern is a list of rows");
  for (int64_t i = 0; i < list->n; i++) {
    rows.pat[i] = read_row(c, m, arena, &rows, &list->u.list[i]);
    rows.n++;
  }
  return rows;
}

static Rows read_rows(Call *c, Module *m, const LatheValue *list)
{
  return read_rows_into(c, m, scratch(c->ctx), list);
}

DfPat *api_read_pattern(Call *c, Module *m, Arena *arena, const LatheValue *list)
{
  Rows rows = read_rows_into(c, m, arena, list);
  return rows.pat[rows.n - 1];
}

/* ---- matching -------------------------------------------------------------------------------- */

static LatheValue val_match(Call *c, Module *m, const Rows *rows, const DfMatch *match)
{
  int n = 0;
  for (int i = 0; i < rows->n; i++) n += pass_pattern_node(match, rows->pat[i]) != NULL;
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < rows->n; i++) {
    const Node *node = pass_pattern_node(match, rows->pat[i]);
    if (!node) continue;
    LatheValue *pair = api_val_list(c, 2, v++);
    pair[0] = api_val_int(i);
    pair[1] = api_val_node(c, m, node);
  }
  return list;
}

static void match_node(Call *c)
{
  Module *m = api_arg_world(c);
  Rows rows = read_rows(c, m, &c->arg[1]);
  DfMatch match;
  if (pass_pattern_match(scratch(c->ctx), rows.pat[rows.n - 1], api_arg_node(c, m, 2), NULL, &match))
    *c->out = val_match(c, m, &rows, &match);
}

/* ---- asking the user's function ------------------------------------------------------------------ */

typedef struct Ask {
  Call *c;
  AskFn fn;
  Rows rows;
} Ask;

/* The answer to (node, match); objects live while the scope of the caller does. */
static LatheValue ask(Ask *a, Module *m, const Node *n, const DfMatch *match)
{
  LatheValue args[2];
  LatheValue answer = {0};
  args[0] = api_val_node(a->c, m, n);
  args[1] = val_match(a->c, m, &a->rows, match);
  if (a->fn(NULL, 2, args, &answer) < 0) raise(m->ctx, ERR_CALLBACK, NOWHERE, "a pattern's function failed");
  return answer;
}

static const Node *replace(void *env, Module *m, const Node *n, const DfMatch *match)
{
  Ask *a = env;
  Scope s = scope_begin(m->ctx);
  LatheValue answer = ask(a, m, n, match);
  api_check_value(a->c, &answer, "node", "what a pattern's function gives to put in the place of the match");
  const Handle *h = answer.u.p;
  if (h->m != m) raise(m->ctx, ERR_TYPE, NOWHERE, "a pattern's function gives a node of another world");
  const Node *now = h->p;
  scope_end(m->ctx, s);
  return now;
}

static void rewrite_node(Call *c)
{
  Module *m = api_arg_world(c);
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  DfRule *rules = arena_array(scratch(c->ctx), DfRule, n + 1);
  for (int i = 0; i < n; i++) {
    const LatheValue *r = v[i].u.list;
    Ask *a = arena_new_of(scratch(c->ctx), Ask);
    *a = (Ask){c, (AskFn)(intptr_t)r[1].u.i, read_rows(c, m, &r[0])};
    rules[i] = (DfRule){a->rows.pat[a->rows.n - 1], replace, a, r[2].u.i != 0};
  }
  *c->out = api_val_node(c, m, pass_pattern_rewrite(m, api_arg_node(c, m, 1), n, rules));
}

static bool check(void *env, const Node *n, const DfMatch *match)
{
  Ask *a = env;
  Module *m = api_arg_world(a->c);
  Scope s = scope_begin(m->ctx);
  LatheValue answer = ask(a, m, n, match);
  api_check_value(a->c, &answer, "bool", "what a pattern's check answers");
  scope_end(m->ctx, s);
  return answer.u.i != 0;
}

static void partition_node(Call *c)
{
  Module *m = api_arg_world(c);
  Ask a = {c, (AskFn)(intptr_t)api_arg_int(c, 4), read_rows(c, m, &c->arg[2])};
  Annots attrs = {0};
  api_arg_annots(c, m, 3, &attrs);
  *c->out = api_val_node(
      c, m,
      pass_pattern_partition(m, api_arg_node(c, m, 1), a.rows.pat[a.rows.n - 1], &attrs, a.fn ? check : NULL, &a));
}

const ApiFunction api_pattern_functions[] = {
  {"pattern_match", "world: world, pattern: list[row], n: node -> list[list[any]]?",
   "[[row, node], …] if the node matches; src/api/api_pattern.c says what the rows of a pattern are", match_node},
  {"pattern_rewrite", "world: world, n: node, rules: list[[list[row], function, bool]] -> node",
   "rules are [pattern, address of a function, once]; the function is given the node and the match and answers the "
   "node to put there",
   rewrite_node},
  {"pattern_partition", "world: world, n: node, pattern: list[row], attrs: list[annotation], check: function? -> node",
   "each match becomes a function of its own, if check (the address of a function that answers a bool) agrees",
   partition_node},
  {0},
};
