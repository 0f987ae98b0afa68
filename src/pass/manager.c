/* manager.c: the list of passes, and running them.
 *
 * A pass run by itself always runs; inside a sequential the context decides: disabled
 * passes do not, required ones do, the others by their level.  A function pass makes
 * all its new functions before the first replaces an old one, so that an error leaves the
 * module as it was.  In a debug build the result of each pass is checked: every node has
 * a type, and the text reads back as the same graph. */
#include "pass/tools.h"
#include "pass/passes.h"

static const PassOption no_options[1];

static const Pass passes[] = {
#define FUNCTION_PASS(fn, id, level, opts, text) \
  {.name = id,                                   \
   .doc = text,                                  \
   .scope = PASS_FUNCTION,                       \
   .opt_level = level,                           \
   .function = fn,                               \
   .options = opts,                              \
   .noptions = opts##_count},
#define MODULE_PASS(fn, id, level, opts, text) \
  {.name = id,                                 \
   .doc = text,                                \
   .scope = PASS_MODULE,                       \
   .opt_level = level,                         \
   .module = fn,                               \
   .options = opts,                            \
   .noptions = opts##_count},
#include "pass/passes.def"
#undef FUNCTION_PASS
#undef MODULE_PASS
};
enum { NPASSES = sizeof passes / sizeof *passes, MAX_USER_PASSES = 256 };

int pass_count(void) { return NPASSES; }
const Pass *pass_at(int i) { return i >= 0 && i < NPASSES ? &passes[i] : NULL; }

const Pass *pass_find(const char *name)
{
  for (int i = 0; i < NPASSES; i++)
    if (!strcmp(passes[i].name, name)) return &passes[i];
  return NULL;
}

static _Noreturn void no_such_pass(Ctx *ctx, const char *name)
{
  const char *names[NPASSES];
  for (int i = 0; i < NPASSES; i++) names[i] = passes[i].name;
  const char *near = str_nearest(name, names, NPASSES);
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no pass '%s'%s%s%s'lathe opt --list' shows all", name,
        near ? "; did you mean '" : "; ", near ? near : "", near ? "'? " : "");
}

const Pass *pass_get(Ctx *ctx, const char *name)
{
  const Pass *p = pass_find(name);
  if (!p) no_such_pass(ctx, name);
  return p;
}

/* ---- users' passes, by name ------------------------------------------------------------ */

static char user_pass[MAX_USER_PASSES][64];
static int nuser_pass;

static bool is_user_pass(const char *name)
{
  for (int i = 0; i < nuser_pass; i++)
    if (!strcmp(user_pass[i], name)) return true;
  return false;
}

void pass_declare(Ctx *ctx, const char *name)
{
  if (pass_find(name) || is_user_pass(name)) return;
  if (strlen(name) >= sizeof user_pass[0])
    raise(ctx, ERR_ARGUMENT, NOWHERE, "the name of a pass has at most %zu letters: '%s'", sizeof user_pass[0] - 1,
          name);
  if (nuser_pass == MAX_USER_PASSES)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "at most %d passes can be declared", MAX_USER_PASSES);
  strcpy(user_pass[nuser_pass++], name);
}

static void check_name(PassContext *pc, const char *name)
{
  if (!pass_find(name) && !is_user_pass(name)) no_such_pass(pc->ctx, name);
}

void pass_disable(PassContext *pc, const char *name)
{
  check_name(pc, name);
  vec_push(pc->arena, &pc->disabled, arena_strdup(pc->arena, name));
}

void pass_require(PassContext *pc, const char *name)
{
  check_name(pc, name);
  vec_push(pc->arena, &pc->required, arena_strdup(pc->arena, name));
}

bool pass_enabled(const PassContext *pc, const Pass *p)
{
  for (int i = 0; i < pc->disabled.n; i++)
    if (!strcmp(pc->disabled.v[i], p->name)) return false;
  for (int i = 0; i < pc->required.n; i++)
    if (!strcmp(pc->required.v[i], p->name)) return true;
  return pc->opt_level >= p->opt_level;
}

/* ---- making passes ------------------------------------------------------------------------- */

const Pass *pass_make(Arena *arena, Ctx *ctx, const char *name, int n, const char *const (*options)[2])
{
  const Pass *base = pass_get(ctx, name);
  if (!n) return base;
  const char **value = arena_array(arena, const char *, base->noptions + 1);
  const char **known = arena_array(arena, const char *, base->noptions + 1);
  for (int i = 0; i < base->noptions; i++) {
    value[i] = base->options[i].def;
    known[i] = base->options[i].name;
  }
  for (int k = 0; k < n; k++) {
    int at = 0;
    while (at < base->noptions && strcmp(known[at], options[k][0])) at++;
    if (at == base->noptions) {
      const char *suggestion = str_suggest(scratch(ctx), options[k][0], known, base->noptions);
      raise(ctx, ERR_ARGUMENT, NOWHERE, "%s has no option '%s'%s", name, options[k][0], suggestion);
    }
    pass_option_check(ctx, name, &base->options[at], options[k][1]);
    value[at] = arena_strdup(arena, options[k][1]);
  }
  Pass *p = arena_copy(arena, base, sizeof *base);
  p->env = value;
  return p;
}

const Pass *pass_sequential(Arena *arena, const char *name, int opt_level, int n, const Pass *const *list)
{
  Pass *p = arena_new_of(arena, Pass);
  p->name = name ? arena_strdup(arena, name) : "sequential";
  p->doc = "passes in order";
  p->scope = PASS_SEQUENTIAL;
  p->opt_level = opt_level;
  p->npasses = n;
  p->passes = arena_copy(arena, list, (size_t)n * sizeof *list);
  return p;
}

/* ---- checks after a pass --------------------------------------------------------------------- */

#ifndef NDEBUG
enum { CHECKED_NODES = 400, CHECKED_BYTES = 1 << 14 };

/* Text of large constants takes longer than the pass. */
static bool small_enough(Arena *arena, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  size_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_CONST) bytes += order[i]->u.data->bytes;
  return n <= CHECKED_NODES && bytes <= CHECKED_BYTES;
}

static void check_module(const Pass *p, Module *m)
{
  Scope scope = scope_begin(m->ctx);
  Arena *tmp = scratch(m->ctx);
  bool small = true;
  for (int i = 0; i < m->globals.n; i++)
    if (m->globals.v[i].kind == GLOBAL_GRAPH) small = small && small_enough(tmp, m->globals.v[i].func);
  if (small) {
    Module *again = module_new(m->ctx);
    defer(m->ctx, (void (*)(void *))module_release, again);
    graph_parse_module(again, graph_print_module(tmp, m), p->name);
    for (int i = 0; i < m->globals.n; i++) {
      const Global *g = &m->globals.v[i];
      const char *why = "";
      if (g->kind != GLOBAL_GRAPH) continue;
      const Global *h = module_get(again, g->name);
      if (!h || !graph_equal(g->func, h->func, tmp, &why))
        BUG(m->ctx, "after %s the text of @%s reads back differently: %s\n%s", p->name, g->name, h ? why : "it is gone",
            graph_print(tmp, g->func));
    }
  }
  scope_end(m->ctx, scope);
}
#else
static void check_module(const Pass *p, Module *m) { (void)p, (void)m; }
#endif

/* ---- running ----------------------------------------------------------------------------------- */

static void run_function_pass(PassContext *pc, const Pass *p, Module *m)
{
  int n = m->globals.n;
  const Node **result = arena_array(scratch(m->ctx), const Node *, n + 1);
  for (int i = 0; i < n; i++) {
    const Global *g = &m->globals.v[i];
    if (g->kind != GLOBAL_GRAPH || (is_external(g->func) && p->function != pass_infer_type)) continue;
    ctx_poll(m->ctx);
    result[i] = retype(m, p->function(pc, m, g->func, g->name, p->env));
    if (result[i]->kind != N_FUNC)
      raise(m->ctx, ERR_TYPE, NOWHERE, "pass %s gave something that is no function for @%s", p->name, g->name);
  }
  for (int i = 0; i < n; i++)
    if (result[i]) m->globals.v[i].func = (void *)(uintptr_t)result[i];
}

static void run_sequential(PassContext *pc, const Pass *p, Module *m)
{
  for (int i = 0; i < p->npasses; i++) {
    const Pass *q = p->passes[i];
    if (!pass_enabled(pc, q)) continue;
    for (int k = 0; k < q->nrequired; k++) pass_run(pc, pass_get(pc->ctx, q->required[k]), m);
    pass_run(pc, q, m);
  }
}

void pass_run(PassContext *pc, const Pass *p, Module *m)
{
  for (int i = 0; i < pc->instruments.n; i++) {
    const PassInstrument *in = &pc->instruments.v[i];
    if (in->should_run && !in->should_run(in->env, m, p)) return;
  }
  for (int i = 0; i < pc->instruments.n; i++)
    if (pc->instruments.v[i].before) pc->instruments.v[i].before(pc->instruments.v[i].env, m, p);
  Scope scope = scope_begin(m->ctx);
  switch (p->scope) {
  case PASS_MODULE: p->module(pc, m, p->env); break;
  case PASS_FUNCTION: run_function_pass(pc, p, m); break;
  case PASS_SEQUENTIAL: run_sequential(pc, p, m); break;
  }
  scope_end(m->ctx, scope);
  if (p->scope != PASS_SEQUENTIAL) check_module(p, m);
  for (int i = pc->instruments.n - 1; i >= 0; i--)
    if (pc->instruments.v[i].after) pc->instruments.v[i].after(pc->instruments.v[i].env, m, p);
}
