/* api_compile.c: modules of graphs, passes, import, compilation.
 *
 * In: modules, pass contexts, model files.  Out: new modules (a pass never changes
 * the one it is given), compiled models.
 *
 * A function of a user's own that is called in the middle (an instrument, progress)
 * comes as the address of a C function; when it returns non-zero the call under way
 * fails with ERR_CALLBACK, and whoever gave the function knows why. */
#include "api/api.h"

static Module *arg_module(Call *c, int i) { return (Module *)api_arg_ptr(c, i); }

static LatheValue val_module(Call *c, Module *m) { return api_val_object(c, LATHE_MODULE, m, 0, m, NULL); }

static void drop_module(void *m) { module_release(m); }

/* A copy that goes with the call unless a handle keeps it. */
static Module *copy_module(Call *c, Module *m)
{
  Module *copy = graph_copy_module(m);
  defer(c->ctx, drop_module, copy);
  return copy;
}

/* ---- functions of a module ------------------------------------------------------------- */

static void module_set_graph(Call *c)
{
  Module *m = arg_module(c, 0);
  Handle *h = api_arg_handle(c, 2);
  const Node *f = h->p;
  if (f->kind != N_FUNC)
    raise(c->ctx, ERR_TYPE, NOWHERE, "function '%s' of a module is not a function", api_arg_str(c, 1));
  module_set(m, api_arg_str(c, 1), GLOBAL_GRAPH, (void *)graph_import(m, h->m, f));
}

static void module_get_graph(Call *c)
{
  Module *world = api_arg_world(c);
  Module *m = arg_module(c, 1);
  Global *g = module_get(m, api_arg_str(c, 2));
  if (!g || g->kind != GLOBAL_GRAPH) return;
  *c->out = api_val_node(c, world, graph_import_into(api_graph_importer(c, m), g->func));
}

static void module_has_graph(Call *c)
{
  Module *m = arg_module(c, 0);
  bool has = graph_data_count(m) > 0;
  for (int i = 0; i < m->globals.n; i++) has |= m->globals.v[i].kind == GLOBAL_GRAPH;
  *c->out = api_val_bool(has);
}

static void module_text(Call *c)
{
  unsigned flags = GRAPH_TEXT_TYPES | (api_arg_bool(c, 1) ? GRAPH_TEXT_METADATA : 0);
  *c->out = api_val_str(c, graph_print_module_with(scratch(c->ctx), arg_module(c, 0), flags));
}

static void graph_parse(Call *c)
{
  op_init();
  Module *m = api_arg_given(c, 2) ? copy_module(c, arg_module(c, 2)) : api_new_module(c);
  graph_parse_module(m, api_arg_str(c, 0), api_arg_given(c, 1) ? api_arg_str(c, 1) : "<text>");
  *c->out = val_module(c, m);
}

/* Names and types of what main takes and gives. */
static void module_ports(Call *c)
{
  const Node *f = graph_main(arg_module(c, 0));
  Arena *a = scratch(c->ctx);
  LatheValue *v = api_val_list(c, 2, c->out);
  const Expr *states = annots_get(&f->u.func->attrs, "states"); /* callers do not see them */
  int hidden = states && states->kind == E_INT && states->u.i > 0 ? (int)states->u.i : 0;
  int nin = fn_nparams(f) > hidden ? fn_nparams(f) - hidden : 0;
  LatheValue *in = api_val_list(c, nin, &v[0]);
  for (int i = 0; i < nin; i++) {
    LatheValue *row = api_val_list(c, 2, &in[i]);
    row[0] = api_val_str(c, f->arg[i]->name);
    row[1] = api_val_str(c, type_text(a, f->arg[i]->type));
  }
  const Type *t = fn_body(f)->type;
  bool tuple = t && t->kind == TY_TUPLE;
  const Expr *names = annots_get(&f->u.func->attrs, "output_names");
  const char *name = names && names->kind == E_STR ? names->u.str : "";
  int n = tuple ? t->nfield > hidden ? t->nfield - hidden : 0 : 1;
  LatheValue *out = api_val_list(c, n, &v[1]);
  for (int i = 0; i < n; i++) {
    LatheValue *row = api_val_list(c, 2, &out[i]);
    size_t k = strcspn(name, "\n");
    row[0] = k ? api_val_bytes(c, name, k) : api_val_str(c, arena_printf(a, "output_%d", i));
    row[1] = api_val_str(c, type_text(a, tuple ? t->field[i] : t));
    name += k + (name[k] == '\n');
  }
}

static void module_copy(Call *c) { *c->out = val_module(c, copy_module(c, arg_module(c, 0))); }

/* ---- pass contexts ------------------------------------------------------------------------ */

static void each_text(Call *c, int i, PassContext *pc, void (*fn)(PassContext *, const char *))
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) fn(pc, api_value_text(c, &v[k]));
}

static const char *value_text(Call *c, const LatheValue *v)
{
  Arena *a = scratch(c->ctx);
  switch ((LatheTag)v->tag) {
  case LATHE_BOOL: return v->u.i ? "True" : "False";
  case LATHE_INT: return arena_printf(a, "%" PRId64, v->u.i);
  case LATHE_FLOAT: return text_double(a, v->u.f);
  case LATHE_STR: return api_value_text(c, v);
  case LATHE_NONE: return "None";
  case LATHE_LIST: {
    Text t = text_new(a);
    text_char(&t, '[');
    for (int64_t i = 0; i < v->n; i++) text_printf(&t, "%s%s", i ? ", " : "", value_text(c, &v->u.list[i]));
    text_char(&t, ']');
    return text_str(&t);
  }
  case LATHE_OBJECT: break;
  }
  raise(c->ctx, ERR_TYPE, NOWHERE, "%s: an option is a bool, a number, text or a list of those", c->function->name);
}

/* One target or a list of them; none: 0.  They live as long as the context. */
static int arg_targets(Call *c, int i, const Target *const **out)
{
  const LatheValue *v = &c->arg[i];
  int n = v->tag == LATHE_NONE ? 0 : v->tag == LATHE_LIST ? (int)v->n : 1;
  if (v->tag == LATHE_LIST) v = v->u.list;
  const Target **target = arena_array(scratch(c->ctx), const Target *, n + 1);
  for (int k = 0; k < n; k++) target[k] = api_value_ptr(&v[k]);
  *out = target;
  return n;
}

static void new_context(Call *c)
{
  Handle *h = api_val_owner(c, LATHE_PASSCONTEXT, NULL, c->out);
  PassContext *pc = pass_context_new(c->ctx);
  h->p = pc;
  pc->opt_level = api_arg_int32(c, 0, 0, 4);
  each_text(c, 1, pc, pass_require);
  each_text(c, 2, pc, pass_disable);
  const LatheValue *v;
  int n = api_arg_list(c, 3, &v);
  for (int i = 0; i < n; i++) {
    pass_config_set(pc, api_value_text(c, &v[i].u.list[0]), value_text(c, &v[i].u.list[1]));
  }
  const Target *const *target;
  n = arg_targets(c, 4, &target);
  for (int i = 0; i < n; i++) vec_push(pc->arena, &pc->targets, target[i]);
  if (n) pc->target = target[0];
}

/* An instrument: 0 may it run, 1 before, 2 after; for 0 the answer is 1 (yes), 0 (no) or -1 (failed),
 * for the others 0 or -1. */
typedef int32_t (*WatchFn)(void *user, int32_t when, const char *pass, const LatheValue *module);
typedef struct Watch {
  WatchFn fn;
  void *user;
  LatheContext *context;
} Watch;

typedef struct Asked {
  Watch *watch;
  Module *m;
  const Pass *pass;
  int32_t when, answer;
} Asked;

static void ask(Ctx *ctx, void *arg)
{
  Asked *a = arg;
  LatheValue out = {0};
  Call call = {.context = a->watch->context, .ctx = ctx, .name = "instrument", .out = &out};
  Scope s = scope_begin(ctx);
  out = val_module(&call, copy_module(&call, a->m));
  a->answer = a->watch->fn(a->watch->user, a->when, a->pass->name, &out);
  scope_end(ctx, s);
}

static bool watch(Watch *w, Module *m, const Pass *p, int32_t when)
{
  Asked a = {w, m, p, when, 0};
  ask(m->ctx, &a);
  if (a.answer < 0) raise(m->ctx, ERR_CALLBACK, NOWHERE, "an instrument failed at pass %s", p->name);
  return a.answer != 0;
}

static bool watch_should(void *env, Module *m, const Pass *p) { return watch(env, m, p, 0); }
static void watch_before(void *env, Module *m, const Pass *p) { watch(env, m, p, 1); }
static void watch_after(void *env, Module *m, const Pass *p) { watch(env, m, p, 2); }

static void context_watch(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 0);
  Watch *w = arena_new_of(pc->arena, Watch);
  *w = (Watch){(WatchFn)(intptr_t)api_arg_int(c, 2), (void *)(intptr_t)api_arg_int(c, 3), c->context};
  PassInstrument in = {arena_strdup(pc->arena, api_arg_str(c, 1)), w, watch_should, watch_before, watch_after};
  vec_push(pc->arena, &pc->instruments, in);
}

/* A pass of the user's own: fn changes the module (module_set_graph) and answers 0, or -1 when it failed. */
typedef int32_t (*PassFn)(void *user, const char *pass, const LatheValue *module);
typedef struct UserPass {
  Pass pass;
  PassFn fn;
  void *user;
  LatheContext *context;
} UserPass;

static void run_user_pass(PassContext *pc, Module *m, void *env)
{
  UserPass *u = env;
  LatheValue out = {0};
  Call call = {.context = u->context, .ctx = pc->ctx, .name = "pass", .out = &out};
  Scope s = scope_begin(pc->ctx);
  out = val_module(&call, m);
  int32_t answer = u->fn(u->user, u->pass.name, &out);
  scope_end(pc->ctx, s);
  if (answer < 0) raise(pc->ctx, ERR_CALLBACK, NOWHERE, "pass %s failed", u->pass.name);
}

static void context_add(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 0);
  UserPass *u = arena_new_of(pc->arena, UserPass);
  *u = (UserPass){
    .fn = (PassFn)(intptr_t)api_arg_int(c, 4), .user = (void *)(intptr_t)api_arg_int(c, 5), .context = c->context};
  u->pass = (Pass){.name = arena_strdup(pc->arena, api_arg_str(c, 1)),
                   .doc = "a pass of the user's own",
                   .scope = PASS_MODULE,
                   .opt_level = api_arg_int32(c, 2, 0, 4),
                   .module = run_user_pass,
                   .env = u};
  pass_add(pc, &u->pass, api_arg_str(c, 3));
}

static void context_notes(Call *c)
{
  const PassContext *pc = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, pc->notes.n, c->out);
  for (int i = 0; i < pc->notes.n; i++) v[i] = api_val_str(c, pc->notes.v[i]);
}

static void context_time(Call *c) { pass_time((PassContext *)api_arg_ptr(c, 0)); }
static void context_time_text(Call *c)
{
  *c->out = api_val_str(c, pass_time_text((PassContext *)api_arg_ptr(c, 0), scratch(c->ctx)));
}

/* ---- passes --------------------------------------------------------------------------------- */

static LatheValue val_options(Call *c, int n, const PassOption *o)
{
  static const char *const kinds[] = {"bool", "int", "float", "str", "list[str]"};
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) {
    LatheValue *r = api_val_list(c, 4, &v[i]);
    r[0] = api_val_str(c, o[i].name);
    r[1] = api_val_str(c, kinds[o[i].kind]);
    r[2] = api_val_str(c, o[i].def);
    r[3] = api_val_str(c, o[i].doc);
  }
  return list;
}

static void pass_table(Call *c)
{
  static const char *const scopes[] = {"module", "function", "sequential"};
  LatheValue *v = api_val_list(c, pass_count(), c->out);
  for (int i = 0; i < pass_count(); i++) {
    const Pass *p = pass_at(i);
    LatheValue *r = api_val_list(c, 5, &v[i]);
    r[0] = api_val_str(c, p->name);
    r[1] = api_val_str(c, p->doc);
    r[2] = api_val_str(c, scopes[p->scope]);
    r[3] = api_val_int(p->opt_level);
    r[4] = val_options(c, p->noptions, p->options);
  }
}

static void config_table(Call *c)
{
  LatheValue *v = api_val_list(c, pass_config_count(), c->out);
  for (int i = 0; i < pass_config_count(); i++) {
    LatheValue one = val_options(c, 1, pass_config_at(i));
    v[i] = one.u.list[0];
  }
}

static PassContext *arg_context(Call *c, int i) { return (PassContext *)api_arg_ptr(c, i); }

static void run_pass(Call *c)
{
  op_init();
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  const char *(*options)[2] = arena_alloc_array(scratch(c->ctx), (size_t)n + 1, sizeof *options);
  for (int i = 0; i < n; i++) {
    options[i][0] = api_value_text(c, &v[i].u.list[0]);
    options[i][1] = value_text(c, &v[i].u.list[1]);
  }
  const Pass *p = pass_make(scratch(c->ctx), c->ctx, api_arg_str(c, 1), n, (const char *const(*)[2])options);
  Module *m = copy_module(c, arg_module(c, 0));
  pass_run(arg_context(c, 3), p, m);
  *c->out = val_module(c, m);
}

static void run_pipeline(Call *c)
{
  op_init();
  Module *m = copy_module(c, arg_module(c, 0));
  pass_pipeline(arg_context(c, 1), m);
  *c->out = val_module(c, m);
}

/* ---- import ------------------------------------------------------------------------------------ */

static void read_shapes(Call *c, int i, ImportOptions *o)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  ShapeBinding *shape = arena_array(scratch(c->ctx), ShapeBinding, n);
  for (int k = 0; k < n; k++) {
    const LatheValue *dims = &v[k].u.list[1];
    int64_t *dim = arena_array(scratch(c->ctx), int64_t, dims->n);
    SizeRange *range = arena_array(scratch(c->ctx), SizeRange, dims->n);
    for (int64_t j = 0; j < dims->n; j++) {
      const LatheValue *d = &dims->u.list[j];
      dim[j] = d->tag == LATHE_INT ? d->u.i : -1;
      range[j] = (SizeRange){0};
      if (d->tag == LATHE_LIST) range[j] = (SizeRange){d->u.list[0].u.i, d->u.list[1].u.i};
      /* a range that ends with 0 is refused by what reads it, as others that are none */
      if (d->tag == LATHE_LIST && !range[j].most) range[j].most = -1;
    }
    shape[k] = (ShapeBinding){api_value_text(c, &v[k].u.list[0]), (int)dims->n, dim, range};
  }
  o->nshapes = n;
  o->shape = shape;
}

static void put_report(Call *c, Module *m, const ImportReport *r)
{
  LatheValue *v = api_val_list(c, 5, c->out);
  v[0] = val_module(c, m);
  LatheValue *ops = api_val_list(c, r->nops, &v[1]);
  for (int i = 0; i < r->nops; i++) {
    LatheValue *row = api_val_list(c, 2, &ops[i]);
    row[0] = api_val_str(c, r->ops[i].op);
    row[1] = api_val_int(r->ops[i].n);
  }
  v[2] = api_val_int(r->nfolded);
  v[3] = api_val_int(r->weights_bytes);
  LatheValue *params = api_val_list(c, r->nparams, &v[4]);
  for (int i = 0; i < r->nparams; i++) {
    const ConstData *d = r->param[i]->u.data;
    LatheValue *row = api_val_list(c, 5, &params[i]);
    row[0] = api_val_str(c, r->param_name[i]);
    row[1] = api_val_int((int64_t)(intptr_t)d->data);
    row[2] = api_val_int((int64_t)d->bytes);
    row[3] = api_val_dtype(c, d->dtype);
    LatheValue *dims = api_val_list(c, d->ndim, &row[4]);
    for (int k = 0; k < d->ndim; k++) dims[k] = api_val_int(d->shape[k]);
  }
}

/* The bytes of a model at an address (arguments 0 and 1), or its path (2). */
static size_t model_bytes(Call *c, const char *function, const void **bytes, const char **path)
{
  *path = api_arg_str(c, 2);
  *bytes = api_arg_given(c, 0) ? (const void *)(intptr_t)api_arg_int(c, 0) : NULL;
  if (api_arg_int(c, 1) < 0) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a model of %" PRId64 " bytes", api_arg_int(c, 1));
  if (!api_arg_given(c, 0) && !*path)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: give the bytes of a model or a path", function);
  return (size_t)api_arg_int(c, 1);
}

static void import_onnx(Call *c)
{
  op_init();
  ImportOptions o = {.external_root = api_arg_str(c, 4), .opset = api_arg_int(c, 5), .keep_params = api_arg_bool(c, 6)};
  read_shapes(c, 3, &o);
  Module *m = api_new_module(c);
  ImportReport r = {0};
  const void *bytes;
  const char *path;
  size_t n = model_bytes(c, "onnx_import", &bytes, &path);
  if (bytes) onnx_import(m, bytes, n, path, &o, &r);
  else onnx_import_file(m, path, &o, &r);
  put_report(c, m, &r);
}

static void import_tflite(Call *c)
{
  op_init();
  ImportOptions o = {.keep_params = api_arg_bool(c, 4)};
  read_shapes(c, 3, &o);
  Module *m = api_new_module(c);
  ImportReport r = {0};
  const void *bytes;
  const char *path;
  size_t n = model_bytes(c, "tflite_import", &bytes, &path);
  if (bytes) tflite_import(m, bytes, n, path, &o, &r);
  else tflite_import_file(m, path, &o, &r);
  put_report(c, m, &r);
}

static void tflite_ops(Call *c)
{
  int n = tflite_op_count();
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) {
    LatheValue *row = api_val_list(c, 2, &v[i]);
    row[0] = api_val_str(c, tflite_op_name(i));
    row[1] = api_val_int(tflite_op_version(i));
  }
}

/* Rows of one operator, which stand together, one for each version that means another thing. */
static bool same_op(int i, int k)
{
  return i >= 0 && k >= 0 && !strcmp(onnx_op_name(i), onnx_op_name(k)) && !strcmp(onnx_op_domain(i), onnx_op_domain(k));
}

static void onnx_ops(Call *c)
{
  int n = onnx_op_count();
  int count = 0;
  for (int i = 0; i < n; i++) count += !same_op(i, i - 1);
  LatheValue *v = api_val_list(c, count, c->out);
  for (int i = 0, k = 0; i < n; k++) {
    int end = i + 1;
    const char *domain = onnx_op_domain(i);
    while (end < n && same_op(end, i)) end++;
    LatheValue *row = api_val_list(c, 2, &v[k]);
    row[0] = api_val_str(c, arena_printf(scratch(c->ctx), "%s%s%s", domain, *domain ? "." : "", onnx_op_name(i)));
    LatheValue *versions = api_val_list(c, end - i, &row[1]);
    for (int at = i; i < end; i++) versions[i - at] = api_val_int(onnx_op_since(i));
  }
}

static void nearest(Call *c)
{
  const LatheValue *v;
  int n = api_arg_list(c, 1, &v);
  const char **words = arena_array(scratch(c->ctx), const char *, n + 1);
  for (int i = 0; i < n; i++) words[i] = api_value_text(c, &v[i]);
  const char *near = str_nearest(api_arg_str(c, 0), words, n);
  *c->out = api_val_none();
  for (int i = 0; near && i < n; i++)
    if (words[i] == near) *c->out = api_val_int(i);
}

/* ---- compilation ---------------------------------------------------------------------------------- */

typedef struct Progress {
  int32_t (*fn)(void *user, const char *stage, int32_t done, int32_t total);
  void *user;
  Ctx *ctx;
} Progress;

static void progress(void *env, const char *stage, int done, int total)
{
  Progress *p = env;
  if (p->fn(p->user, stage, done, total)) raise(p->ctx, ERR_CALLBACK, NOWHERE, "compilation was stopped");
}

typedef struct Tuned {
  PassContext *pc;
  const char *before;
} Tuned;

static void end_tuned(void *arg)
{
  Tuned *t = arg;
  t->pc->impl.tuned = t->before;
}

/* What the database has that the config names holds for this compilation. */
static void take_tuned(Call *c, PassContext *pc, Module *m, const Target *target)
{
  const char *path = pc ? pass_config_str(pc, "lathe.tuned.database") : "";
  if (!*path) return;
  Tuned *t = arena_new_of(scratch(c->ctx), Tuned);
  *t = (Tuned){pc, pc->impl.tuned};
  defer(c->ctx, end_tuned, t);
  if (!target) target = pc->target ? pc->target : target_host(c->ctx);
  pc->impl.tuned = api_tuned_plans(c->ctx, pc->arena, path, m, target, pc);
}

/* ---- programs ahead of time: options by name ---- */

static int64_t aot_int(Call *c, const char *name, const LatheValue *v)
{
  if (v->tag != LATHE_INT || v->u.i < 0)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option '%s' of a program ahead of time is a number of bytes", name);
  return v->u.i;
}

static int aot_word(Call *c, const char *name, const LatheValue *v, const char *const *words, int n)
{
  const char *said = v->tag == LATHE_STR ? api_value_text(c, v) : "";
  for (int i = 0; i < n; i++)
    if (!strcmp(words[i], said)) return i;
  Text known = text_new(scratch(c->ctx));
  for (int i = 0; i < n; i++) text_printf(&known, "%s%s", i ? ", " : "", words[i]);
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option '%s' of a program ahead of time is one of %s, not '%s'", name,
        text_str(&known), said);
}

/* [name, size, name, size, …]; a size may be [size, bytes read in a cycle, bytes written in a cycle] */
static void read_pools(Call *c, const LatheValue *v, AotOptions *o)
{
  if (v->tag != LATHE_LIST || v->n % 2) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "pools are names, a size behind each");
  AotPool *pool = arena_array(scratch(c->ctx), AotPool, (int)v->n + 1);
  o->pools = pool;
  for (int64_t i = 0; i < v->n; i += 2) {
    const LatheValue *row = &v->u.list[i];
    if (row[0].tag != LATHE_STR) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the name of a pool is text");
    AotPool *p = &pool[o->npools++];
    bool speeds = row[1].tag == LATHE_LIST && row[1].n == 3;
    p->name = api_value_text(c, &row[0]);
    p->size = aot_int(c, "pools", speeds ? &row[1].u.list[0] : &row[1]);
    for (int k = 1; speeds && k < 3; k++) {
      const LatheValue *said = &row[1].u.list[k];
      double speed = said->tag == LATHE_FLOAT ? said->u.f : said->tag == LATHE_INT ? (double)said->u.i : 0;
      if (!(speed > 0 && speed < 1e9))
        raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the speed of pool '%s' is a number of bytes in a cycle, more than none",
              p->name);
      *(k == 1 ? &p->read : &p->write) = speed;
    }
  }
}

static const AotOptions *read_aot(Call *c, int i)
{
  static const char *const names[] = {"pools", "ram_limit", "io", "interface", "algorithm"};
  static const char *const io[] = {"caller", "workspace"};
  static const char *const interfaces[] = {"plain", "c", "packed"};
  static const char *const algorithms[] = {"quick", "best", "greedy_by_size", "greedy_by_conflicts", "hill_climb"};
  if (!api_arg_given(c, i)) return NULL;
  AotOptions *o = arena_new_of(scratch(c->ctx), AotOptions);
  o->effort = PLACE_THOROUGH;
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) {
    LatheValue name = v[k].u.list[0];
    const LatheValue *value = &v[k].u.list[1];
    switch (aot_word(c, "name", &name, names, 5)) {
    case 0: read_pools(c, value, o); break;
    case 1: o->ram_limit = aot_int(c, "ram_limit", value); break;
    case 2: o->io_inside = aot_word(c, "io", value, io, 2) == 1; break;
    case 3: o->interface = (AotInterface)aot_word(c, "interface", value, interfaces, 3); break;
    case 4: o->effort = (PlaceEffort)aot_word(c, "algorithm", value, algorithms, 5); break;
    }
  }
  return o;
}

static void compile(Call *c)
{
  op_init();
  Progress *p = arena_new_of(scratch(c->ctx), Progress);
  *p = (Progress){(int32_t (*)(void *, const char *, int32_t, int32_t))(intptr_t)api_arg_int(c, 5), NULL, c->ctx};
  const LatheValue *names;
  int n = api_arg_list(c, 6, &names);
  const char **entries = arena_array(scratch(c->ctx), const char *, n + 1);
  for (int i = 0; i < n; i++) entries[i] = api_value_text(c, &names[i]);
  const char *weights = api_arg_str(c, 7);
  if (weights && strcmp(weights, "ready") && strcmp(weights, "trained"))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a model holds its weights 'ready' or as they were 'trained', not '%s'",
          weights);
  const Target *const *target;
  int ntargets = arg_targets(c, 1, &target);
  const ExternalCompiler *externals = NULL;
  CompileOptions o = {.ntargets = ntargets,
                      .targets = target,
                      .nentries = n,
                      .entries = entries,
                      .weights = weights && !strcmp(weights, "trained") ? WEIGHTS_TRAINED : WEIGHTS_READY,
                      .aot = read_aot(c, 8),
                      .nexternals = api_arg_externals(c, 9, &externals),
                      .passes = arg_context(c, 2),
                      .dump_dir = api_arg_str(c, 3),
                      .progress = p->fn ? progress : NULL,
                      .progress_env = p};
  o.externals = externals;
  take_tuned(c, o.passes, arg_module(c, 0), ntargets ? target[0] : NULL);
  Handle *h = api_val_owner(c, LATHE_COMPILED, NULL, c->out);
  const LatheValue *cpus;
  int nvariants = api_arg_list(c, 10, &cpus);
  const char **variants = arena_array(scratch(c->ctx), const char *, nvariants + 1);
  for (int i = 0; i < nvariants; i++) variants[i] = api_value_text(c, &cpus[i]);
  h->p = nvariants ? driver_compile_variants(c->ctx, arg_module(c, 0), &o, nvariants, variants)
                   : driver_compile(c->ctx, arg_module(c, 0), &o);
}

static Compiled *arg_compiled(Call *c) { return (Compiled *)api_arg_ptr(c, 0); }
static void export_compiled(Call *c)
{
  static const char *const places[] = {"by size", "text", "beside"};
  const char *said = api_arg_str(c, 2);
  int place = said ? 0 : WEIGHTS_BY_SIZE;
  while (said && place < 3 && strcmp(places[place], said)) place++;
  if (place == 3)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "weights are 'by size', 'text' or 'beside' (the C source), not '%s'", said);
  compiled_export(arg_compiled(c), api_arg_str(c, 1), (WeightsPlace)place);
}
static void check_export(Call *c)
{
  if (api_arg_bool(c, 2)) driver_check_export_aot(c->ctx, api_arg_ptr(c, 0), api_arg_str(c, 1));
  else driver_check_export(c->ctx, api_arg_ptr(c, 0), api_arg_str(c, 1));
}

static void aot_report_text(Call *c)
{
  static const char *const forms[] = {"text", "json", "svg"};
  int form = 0;
  while (form < 3 && strcmp(forms[form], api_arg_str(c, 1))) form++;
  if (form == 3) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a report is text, json or svg, not '%s'", api_arg_str(c, 1));
  *c->out = api_val_str(c, compiled_aot_report(arg_compiled(c), scratch(c->ctx), (AotReportForm)form));
}

static void source_cost(Call *c)
{
  *c->out = api_val_str(
      c, driver_source_cost(c->ctx, scratch(c->ctx), api_arg_ptr(c, 0), api_arg_str(c, 1), api_arg_bool(c, 2)));
}

static void aot_file(Call *c)
{
  size_t n;
  const void *bytes = compiled_aot_file(arg_compiled(c), scratch(c->ctx), api_arg_str(c, 1), api_arg_str(c, 2), &n);
  *c->out = bytes ? api_val_bytes(c, bytes, n) : api_val_none();
}
static void c_command(Call *c) { *c->out = api_val_str(c, driver_c_command(scratch(c->ctx), api_arg_str(c, 0))); }
static void compiled_runtime(Call *c) { *c->out = api_val_int((int64_t)(intptr_t)compiled_model(arg_compiled(c))); }
static void compiled_graph(Call *c) { *c->out = val_module(c, copy_module(c, compiled_module(arg_compiled(c)))); }
static void memory_text(Call *c) { *c->out = api_val_str(c, compiled_memory_text(arg_compiled(c), scratch(c->ctx))); }
static void plans_text(Call *c) { *c->out = api_val_str(c, compiled_plans_text(arg_compiled(c))); }
static void time_text(Call *c) { *c->out = api_val_str(c, compiled_time_text(arg_compiled(c), scratch(c->ctx))); }

static void source_text(Call *c)
{
  Compiled *compiled = arg_compiled(c);
  const char *format = api_arg_str(c, 1);
  Code *code = compiled_code(compiled);
  if (code) api_val_code(c, code, format);
  else
    *c->out = api_val_str(c, compiled_source(compiled, scratch(c->ctx), *format ? api_code_format(c, format) : CODE_C));
}

const ApiFunction api_compile_functions[] = {
  {"module_set_graph", "m: module, name: str, f: node -> none", "adds or replaces a graph function", module_set_graph},
  {"module_get_graph", "world: world, m: module, name: str -> node?", "a graph function by name", module_get_graph},
  {"module_has_graph", "m: module -> bool", "is there a graph function or a data type in it?", module_has_graph},
  {"module_text", "m: module, constants: bool? -> str",
   "Relay text; with the values of large constants it can be parsed again", module_text},
  {"module_ports", "m: module -> list[any]", "inputs and outputs of main: name and type", module_ports},
  {"module_copy", "m: module -> module", "the same functions; constants share their bytes", module_copy},
  {"graph_parse", "text: str, file: str?, known: module? -> module", "reads Relay text, beside what is known",
   graph_parse},
  {"pass_context",
   "opt_level: int, required: list[str], disabled: list[str], config: list[[str, option]], "
   "target: target|list[target]? -> "
   "passcontext",
   "which passes run, and how", new_context},
  {"pass_context_watch", "p: passcontext, name: str, fn: function, user: int -> none",
   "calls fn(user, when, pass, module) around each pass; when: 0 may it run, 1 before, 2 after", context_watch},
  {"pass_context_add", "p: passcontext, name: str, opt_level: int, after: str, fn: function, user: int? -> none",
   "puts a pass of your own behind one of the pipeline's: fn(user, pass, module) changes the module", context_add},
  {"pass_context_notes", "p: passcontext -> list[str]", "sentences for the user", context_notes},
  {"pass_context_time", "p: passcontext -> none", "measures the passes from now on", context_time},
  {"pass_context_time_text", "p: passcontext -> str", "seconds of each pass", context_time_text},
  {"pass_table", " -> list[list[any]]", "passes: name, doc, scope, level, options", pass_table},
  {"config_table", " -> list[list[any]]", "config keys: name, type, default, doc", config_table},
  {"pass_run", "m: module, name: str, options: list[[str, option]], p: passcontext -> module", "one pass", run_pass},
  {"pass_pipeline", "m: module, p: passcontext -> module", "the default passes of the level", run_pipeline},
  {"onnx_import",
   "address: address?, bytes: int?, path: str?, shapes: list[[str, list[size]]], external_root: str?, opset: int?, "
   "keep_params: "
   "bool? -> list[any]",
   "module, operators used, nodes folded, bytes of weights, parameters (name, address, bytes, dtype, shape)",
   import_onnx},
  {"tflite_import",
   "address: address?, bytes: int?, path: str?, shapes: list[[str, list[size]]], keep_params: bool? -> list[any]",
   "the same of a TFLite model", import_tflite},
  {"tflite_ops", " -> list[list[any]]", "TFLite's builtin operators that can be imported: name, newest version known",
   tflite_ops},
  {"onnx_ops", " -> list[list[any]]", "ONNX operators that can be imported: name, versions known", onnx_ops},
  {"nearest", "word: str, words: list[str] -> int?", "place of the word that was probably meant", nearest},
  {"compile",
   "m: module, target: target|list[target]?, p: passcontext?, dump_dir: str?, time: bool?, progress: function?, "
   "entries: list[str]?, weights: str?, aot: list[[str, option]]?, externals: list[[str, function]]?, "
   "variants: list[str]? -> compiled",
   "compiles the entries (default: @main) and what they call; weights: 'ready' for the kernels (default), or as "
   "they were 'trained'; aot: as a program ahead of time, with options pools, ram_limit, io, interface, algorithm; "
   "externals: code generators by name, for functions with the attribute Compiler; variants: CPUs "
   "of the target, each with code of its own in one file",
   compile},
  {"compiled_export", "c: compiled, path: str, weights: str? -> none",
   "writes .so, .o, .a or .c; weights of C source: 'text', 'beside' or 'by size'", export_compiled},
  {"compile_check", "target: target?, path: str, aot: bool? -> none",
   "raises unless compiled_export could write such a file", check_export},
  {"compiled_aot_report", "c: compiled, form: str -> str", "what a program ahead of time costs: text, json or svg",
   aot_report_text},
  {"aot_source_cost", "target: target?, path: str, json: bool? -> str",
   "bytes of flash, stack and workspace of a program ahead of time, from its .c and .h", source_cost},
  {"compiled_aot_file", "c: compiled, name: str, ending: str -> str?",
   "a file of a program ahead of time, by its ending: .c, .h, .c.weights", aot_file},
  {"compile_c_command", "path: str -> str", "how a model as C source is compiled and linked", c_command},
  {"compiled_runtime", "c: compiled -> int", "address of the LatheRtModel, which lives as long as the object",
   compiled_runtime},
  {"compiled_graph", "c: compiled -> module", "the graph after the passes", compiled_graph},
  {"compiled_source", "c: compiled, format: str -> str", "the kernels as text or bytes", source_text},
  {"compiled_memory_text", "c: compiled -> str", "planned storage against the lower bound", memory_text},
  {"compiled_plans_text", "c: compiled -> str", "what was chosen from what, with config lathe.plans.log", plans_text},
  {"compiled_time_text", "c: compiled -> str", "where compilation went", time_text},
  {0},
};
