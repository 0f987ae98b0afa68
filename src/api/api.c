/* api.c: contexts, handles and the call by name.
 *
 * In: what a C program or a language binding passes to the functions of lathe.h.
 * Out: results whose objects belong to the caller.  Between calls no scratch
 * memory and no error mark is left open; the only things that live on are the
 * handles out there, what they keep alive, and the text of the last result. */
#include "api/api.h"

/* clang-format off */
static const ApiFunction *const tables[] = {
  api_expr_functions,
  api_node_functions,
  api_tir_functions,
  api_te_functions,
  api_stage_functions,
  api_schedule_functions,
  api_build_functions,
  api_graph_functions,
  api_compile_functions,
  api_userop_functions,
  api_pattern_functions,
  api_debug_functions,
  api_data_functions,
  api_arith_functions,
  api_tune_functions,
  api_quant_functions,
  api_external_functions,
  api_micro_functions,
};
/* clang-format on */
#define NTABLES ((int)(sizeof tables / sizeof *tables))

/* ---- contexts ------------------------------------------------------------------- */

static void register_functions(Ctx *ctx, void *arg)
{
  LatheContext *c = arg;
  for (int t = 0; t < NTABLES; t++)
    for (const ApiFunction *f = tables[t]; f->name; f++) strmap_put(ctx_arena(ctx), &c->functions, f->name, (void *)f);
}

static void make_context(Ctx *ctx, void *arg) { *(LatheContext **)arg = mem_alloc(ctx, sizeof(LatheContext)); }

LatheContext *lathe_context_new(void)
{
  Ctx *ctx = ctx_new();
  if (!ctx) return NULL;
  LatheContext *c = NULL;
  if (protect(ctx, make_context, &c) == ERR_NONE) {
    c->ctx = ctx;
    if (protect(ctx, register_functions, c) == ERR_NONE) return c;
    mem_free(ctx, c);
  }
  ctx_free(ctx);
  return NULL;
}

/* Of calls at this depth and deeper. */
static void drop_results(LatheContext *c, int depth)
{
  for (int i = depth; i < API_MAX_DEPTH; i++) {
    if (c->results[i]) arena_free(c->results[i]);
    c->results[i] = NULL;
  }
}

static void destroy_context(LatheContext *c)
{
  Ctx *ctx = c->ctx;
  drop_results(c, 0);
  api_drop_operators(c);
  while (c->blocks) {
    HandleBlock *b = c->blocks;
    c->blocks = b->older;
    mem_free(ctx, b);
  }
  mem_free(ctx, c);
  ctx_free(ctx);
}

void lathe_context_free(LatheContext *c)
{
  if (!c) return;
  while (c->models) {
    Kept *k = c->models;
    c->models = k->next;
    api_handle_release(k->handle);
    mem_free(c->ctx, k);
  }
  c->closed = true;
  if (c->handles == 0) destroy_context(c);
}

/* ---- handles ---------------------------------------------------------------------- */

static Handle *block_handles(const HandleBlock *b) { return (Handle *)(b + 1); }

static void add_block(LatheContext *c)
{
  int64_t n = c->blocks ? 2 * c->blocks->n : 64;
  HandleBlock *b = mem_alloc(c->ctx, sizeof *b + (size_t)n * sizeof(Handle));
  *b = (HandleBlock){c->blocks, n};
  c->blocks = b;
  for (int64_t i = n - 1; i >= 0; i--) {
    Handle *h = &block_handles(b)[i];
    h->owner = c->released;
    c->released = h;
  }
}

Handle *api_handle_new(LatheContext *c)
{
  if (!c->released) add_block(c);
  Handle *h = c->released;
  c->released = h->owner;
  *h = (Handle){.refs = 1, .context = c};
  c->handles++;
  return h;
}

static void give_back(LatheContext *c, Handle *h)
{
  *h = (Handle){.owner = c->released};
  c->released = h;
  c->handles--;
}

bool api_handle_alive(const LatheContext *c, const void *p)
{
  uintptr_t at = (uintptr_t)p;
  for (const HandleBlock *b = c->blocks; b; b = b->older) {
    uintptr_t first = (uintptr_t)block_handles(b);
    if (at < first || at >= first + (uintptr_t)b->n * sizeof(Handle)) continue;
    return (at - first) % sizeof(Handle) == 0 && ((const Handle *)p)->refs > 0;
  }
  return false;
}

Handle *api_handle_retain(Handle *h)
{
  if (h) h->refs++;
  return h;
}

static void forget_world(LatheContext *c, const World *w)
{
  for (World **p = &c->world; *p; p = &(*p)->older)
    if (*p == w) {
      *p = w->older;
      return;
    }
}

static void drop_world(World *w)
{
  for (int i = 0; i < w->imports.n; i++) module_release(w->imports.v[i].from);
}

/* What a handle owns beyond its module. */
static void drop_thing(Handle *h)
{
  switch ((LatheKind)h->kind) {
  case LATHE_SCHEDULE: sched_free((Sched *)h->p); break;
  case LATHE_TESCHEDULE: te_sched_free((TeSched *)h->p); break;
  case LATHE_BUILT: built_release((Built *)h->p); break;
  case LATHE_WORLD:
    forget_world(h->context, h->p);
    drop_world((World *)h->p);
    break;
  case LATHE_COMPILED: compiled_release((Compiled *)h->p); break;
  case LATHE_PASSCONTEXT: pass_context_free((PassContext *)h->p); break;
  case LATHE_EXPR:
  case LATHE_VAR:
  case LATHE_ITERVAR:
  case LATHE_BUFFER:
  case LATHE_REDUCER:
  case LATHE_TENSOR:
  case LATHE_TEOP:
  case LATHE_STMT:
  case LATHE_PRIMFUNC:
  case LATHE_MODULE:
  case LATHE_TESTAGE:
  case LATHE_TENSORINTRIN:
  case LATHE_TARGET:
  case LATHE_BLOCK:
  case LATHE_LOOP:
  case LATHE_INTRV:
  case LATHE_NODE:
  case LATHE_TYPE: break;
  }
}

void api_handle_release(Handle *h)
{
  while (h && h->refs > 0 && --h->refs == 0) {
    Handle *owner = h->owner;
    LatheContext *c = h->context;
    if (h->p) drop_thing(h);
    if (h->m) module_release(h->m);
    while (h->kept) {
      Kept *k = h->kept;
      h->kept = k->next;
      api_handle_release(k->handle);
      mem_free(c->ctx, k);
    }
    give_back(c, h);
    if (c->closed && c->handles == 0) destroy_context(c);
    h = owner;
  }
}

void api_keep(Call *c, Handle *by, Handle *what)
{
  for (Kept *k = by->kept; k; k = k->next)
    if (k->handle == what) return;
  Kept *k = mem_alloc(c->ctx, sizeof *k);
  *k = (Kept){by->kept, api_handle_retain(what)};
  by->kept = k;
}

void lathe_object_retain(int32_t kind, void *p)
{
  (void)kind;
  api_handle_retain(p);
}

void lathe_object_release(int32_t kind, void *p)
{
  (void)kind;
  api_handle_release(p);
}

uint64_t lathe_object_id(int32_t kind, const void *p)
{
  const Handle *h = p;
  (void)kind;
  if (!h) return 0;
  uint64_t id = (uint64_t)(uintptr_t)h->p;
  if (h->kind == LATHE_BLOCK || h->kind == LATHE_LOOP || h->kind == LATHE_INTRV)
    id = hash_mix(hash_mix((uint64_t)(uintptr_t)h->owner->p, id), (uint64_t)h->kind);
  return id;
}

int32_t lathe_object_same(const LatheValue *a, const LatheValue *b)
{
  if (a->tag != LATHE_OBJECT || b->tag != LATHE_OBJECT || !a->u.p || !b->u.p) return 0;
  const Handle *x = a->u.p;
  const Handle *y = b->u.p;
  if (x->kind != y->kind || x->p != y->p) return 0;
  return !x->owner || !y->owner || x->owner->p == y->owner->p;
}

int64_t lathe_object_count(const LatheContext *c) { return c->handles; }

/* ---- calls --------------------------------------------------------------------------- */

static void retain_objects(const LatheValue *v)
{
  if (v->tag == LATHE_OBJECT) api_handle_retain(v->u.p);
  if (v->tag == LATHE_LIST)
    for (int64_t i = 0; i < v->n; i++) retain_objects(&v->u.list[i]);
}

static const ApiFunction *find_function(Ctx *ctx, LatheContext *c, const char *name)
{
  const ApiFunction *f = strmap_get(&c->functions, name);
  if (f) return f;
  const char *near = str_nearest(name, c->functions.key, c->functions.n);
  if (near) raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no function '%s'; did you mean '%s'?", name, near);
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no function '%s'; lathe_functions lists them", name);
}

static void run_call(Ctx *ctx, void *arg)
{
  Call *call = arg;
  Scope s = scope_begin(ctx);
  if (call->context->depth > API_MAX_DEPTH)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "%s: calls inside functions that are called from calls, more than %d deep",
          call->name, API_MAX_DEPTH);
  if (!call->name) raise(ctx, ERR_ARGUMENT, NOWHERE, "a call without the name of a function");
  call->function = find_function(ctx, call->context, call->name);
  api_check_args(call);
  call->function->body(call);
  retain_objects(call->out);
  scope_end(ctx, s);
}

int32_t lathe_call(LatheContext *c, const char *function, int32_t n, const LatheValue *args, LatheValue *result)
{
  LatheValue none = {0};
  LatheValue out = {0};
  if (result) *result = none;
  if (!c) return ERR_ARGUMENT;
  drop_results(c, c->depth);
  error_clear(c->ctx);
  Call call = {.context = c, .ctx = c->ctx, .name = function, .given = n, .args = args, .out = &out};
  c->depth++;
  ErrKind kind = protect(c->ctx, run_call, &call);
  c->depth--;
  if (result) *result = kind == ERR_NONE ? out : none;
  return (int32_t)kind;
}

/* ---- errors, listings, settings ----------------------------------------------------------- */

const char *lathe_error_name(int32_t code) { return error_kind_name((ErrKind)code); }

const char *lathe_error_message(LatheContext *c) { return c ? error_message(c->ctx) : "there is no context"; }

int32_t lathe_error_location(LatheContext *c, const char **file, int32_t *line, int32_t *col)
{
  Loc loc = error_loc(c->ctx);
  if (file) *file = loc.file;
  if (line) *line = loc.line;
  if (col) *col = loc.col;
  return loc.line > 0;
}

int32_t lathe_functions(int32_t i, const char **name, const char **signature, const char **doc)
{
  for (int t = 0; t < NTABLES; t++)
    for (const ApiFunction *f = tables[t]; f->name; f++)
      if (i-- == 0) {
        *name = f->name;
        *signature = f->signature;
        *doc = f->doc;
        return 1;
      }
  return 0;
}

void lathe_set_poll(LatheContext *c, int32_t (*poll)(void *), void *user) { ctx_set_poll(c->ctx, poll, user); }

int64_t lathe_fail_allocation(LatheContext *c, int64_t n) { return mem_fail_after(c->ctx, n); }

const char *lathe_version(void) { return LATHE_VERSION; }
