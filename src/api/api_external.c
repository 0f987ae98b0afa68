/* api_external.c: external compilers: what they take, and the code that they make.
 *
 * In: patterns and predicates for MergeComposite and AnnotateTarget, code generators for functions with the attribute
 * Compiler.  Functions of a user's own are called in the middle of a pass or a compilation:
 *   predicate:       (node) answers a bool: may the call, or the match that ends in it, go to the compiler?
 *   code generator:  (function, symbol) answers [form, kind, bytes, constants], see generate below
 * They return 0, or -1 when they failed: then the call under way fails with ERR_CALLBACK.  What they answer stays valid
 * until they are called again. */
#include "api/api.h"

typedef int32_t (*UserFn)(void *user, int32_t n, const LatheValue *args, LatheValue *answer);
typedef struct User {
  UserFn fn;
  void *user;
  LatheContext *context;
} User;

static User *new_user(Call *c, Arena *a, int fn, int user)
{
  User *u = arena_new_of(a, User);
  *u = (User){(UserFn)(intptr_t)api_arg_int(c, fn), (void *)(intptr_t)api_arg_int(c, user), c->context};
  return u;
}

static Call make_call(const User *u, Ctx *ctx, LatheValue *out)
{
  static const ApiFunction function = {.name = "external compiler"};
  return (Call){.context = u->context, .ctx = ctx, .name = "external compiler", .function = &function, .out = out};
}

/* ---- what they take ------------------------------------------------------------------------- */

static bool ask(void *env, Module *m, const Node *n)
{
  const User *u = env;
  LatheValue answer = {0};
  LatheValue none = {0};
  Call call = make_call(u, m->ctx, &none);
  Scope s = scope_begin(m->ctx);
  LatheValue arg = api_val_node_in_world(&call, m, n);
  if (u->fn(u->user, 1, &arg, &answer) < 0)
    raise(m->ctx, ERR_CALLBACK, NOWHERE, "the predicate of an external compiler failed");
  api_check_value(&call, &answer, "bool", "what the predicate of an external compiler answers");
  scope_end(m->ctx, s);
  return answer.u.i != 0;
}

static void add_composite(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 0);
  CompositeRow row = {.name = arena_strdup(pc->arena, api_arg_str(c, 1)),
                      .pattern = api_read_pattern(c, NULL, pc->arena, &c->arg[2])};
  if (api_arg_given(c, 3)) {
    row.env = new_user(c, pc->arena, 3, 4);
    row.check = ask;
  }
  vec_push(pc->arena, &pc->composites, row);
}

static void add_offload(Call *c)
{
  op_init();
  PassContext *pc = (PassContext *)api_arg_ptr(c, 0);
  opdef_get(c->ctx, api_arg_str(c, 2));
  OffloadRow row = {.compiler = arena_strdup(pc->arena, api_arg_str(c, 1)),
                    .op = arena_strdup(pc->arena, api_arg_str(c, 2)),
                    .takes = ask,
                    .env = new_user(c, pc->arena, 3, 4)};
  vec_push(pc->arena, &pc->offloads, row);
}

/* ---- the code that they make ------------------------------------------------------------------ */

static const char *code_text(Call *c, Arena *a, const LatheValue *v) { return arena_strdup(a, api_value_text(c, v)); }

/* [form, kind, bytes, [[name, constant], …]]: form "c" or "object", or "module", which alone has a kind. */
static void generate(void *env, Module *m, const Node *func, const char *symbol, Arena *a, ExternalCode *out)
{
  static const char *const forms[] = {"c", "object", "module"};
  const User *u = env;
  LatheValue answer = {0};
  LatheValue none = {0};
  Call call = make_call(u, m->ctx, &none);
  Scope s = scope_begin(m->ctx);
  LatheValue arg[2] = {api_val_node_in_world(&call, m, func), api_val_str(&call, symbol)};
  if (u->fn(u->user, 2, arg, &answer) < 0)
    raise(m->ctx, ERR_CALLBACK, NOWHERE, "the code generator of an external compiler failed for '%s'", symbol);
  api_check_value(&call, &answer, "[str, str?, str, list[[str, node]]]", "what a code generator answers");
  const LatheValue *v = answer.u.list;
  int form = 0;
  while (form < 3 && strcmp(forms[form], api_value_text(&call, &v[0]))) form++;
  if (form == 3)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "a code generator makes 'c', 'object' or 'module' of '%s', not '%s'", symbol,
          api_value_text(&call, &v[0]));
  out->form = (ExternalForm)form;
  out->kind = v[1].tag == LATHE_STR ? code_text(&call, a, &v[1]) : NULL;
  out->n = (size_t)v[2].n;
  out->bytes = out->n ? arena_copy(a, v[2].u.s, out->n) : "";
  out->nconsts = (int)v[3].n;
  out->consts = arena_array(a, const Node *, out->nconsts + 1);
  out->const_name = arena_array(a, const char *, out->nconsts + 1);
  for (int i = 0; i < out->nconsts; i++) {
    const LatheValue *row = v[3].u.list[i].u.list;
    const Handle *h = row[1].u.p;
    out->const_name[i] = code_text(&call, a, &row[0]);
    out->consts[i] = graph_import(m, h->m, h->p);
  }
  scope_end(m->ctx, s);
}

int api_arg_externals(Call *c, int i, const ExternalCompiler **out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  ExternalCompiler *list = arena_array(scratch(c->ctx), ExternalCompiler, n + 1);
  for (int k = 0; k < n; k++) {
    User *u = arena_new_of(scratch(c->ctx), User);
    *u = (User){.fn = (UserFn)(intptr_t)v[k].u.list[1].u.i, .context = c->context};
    list[k] = (ExternalCompiler){api_value_text(c, &v[k].u.list[0]), generate, u};
  }
  *out = list;
  return n;
}

const ApiFunction api_external_functions[] = {
  {"pass_context_composite", "p: passcontext, name: str, pattern: list[row], check: function?, user: int? -> none",
   "one more pattern of MergeComposite; check is asked about each match", add_composite},
  {"pass_context_offload", "p: passcontext, compiler: str, op: str, takes: function, user: int? -> none",
   "AnnotateTarget gives calls of the operator to the compiler where takes agrees", add_offload},
  {0},
};
