/* api_model.c: models in one call, for C programs: import, passes and compilation through the
 * functions of the table. */
#include "api/api.h"

static LatheValue val_text(const char *s)
{
  return s ? (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)} : api_val_none();
}
static LatheValue val_list(const LatheValue *v, int64_t n)
{
  return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n};
}

/* Handles made on the way to the result. */
typedef struct Made {
  LatheContext *c;
  LatheValue v[4];
  int n;
} Made;

static int32_t make(Made *made, const char *function, int n, const LatheValue *args, LatheValue *out)
{
  int32_t code = lathe_call(made->c, function, n, args, out);
  if (code == 0 && out->tag == LATHE_OBJECT) made->v[made->n++] = *out;
  return code;
}

typedef struct Import {
  Made *made;
  const char *path;
  const LatheCompileOptions *o;
  LatheValue *module;
} Import;

static LatheValue val_shape(Arena *a, const LatheShape *s)
{
  LatheValue *dims = arena_array(a, LatheValue, s->ndim + 1);
  LatheValue *pair = arena_array(a, LatheValue, 2);
  for (int k = 0; k < s->ndim; k++) dims[k] = s->dims[k] < 0 ? api_val_none() : api_val_int(s->dims[k]);
  pair[0] = val_text(s->input);
  pair[1] = val_list(dims, s->ndim);
  return val_list(pair, 2);
}

static void import_body(Ctx *ctx, void *arg)
{
  Import *im = arg;
  Scope s = scope_begin(ctx);
  Arena *a = scratch(ctx);
  LatheValue *shapes = arena_array(a, LatheValue, im->o->nshapes + 1);
  LatheValue report;
  for (int i = 0; i < im->o->nshapes; i++) shapes[i] = val_shape(a, &im->o->shapes[i]);
  LatheValue args[] = {api_val_none(), api_val_none(), val_text(im->path), val_list(shapes, im->o->nshapes),
                       val_text(im->o->external_data_root)};
  if (lathe_call(im->made->c, "onnx_import", 5, args, &report)) error_reraise(ctx);
  im->made->v[im->made->n++] = *im->module = report.u.list[0];
  scope_end(ctx, s);
}

static int32_t import(Made *made, const char *path, const LatheCompileOptions *o, LatheValue *module)
{
  return (int32_t)protect(made->c->ctx, import_body, &(Import){made, path, o, module});
}

static int32_t compile(Made *made, const char *path, const LatheCompileOptions *options, const char *weights,
                       LatheValue *compiled)
{
  static const LatheCompileOptions usual = {.opt_level = 3};
  const LatheCompileOptions *o = options ? options : &usual;
  LatheValue module = {0};
  LatheValue target = {0};
  LatheValue passes = {0};
  LatheValue text = val_text(o->target);
  int32_t code = import(made, path, o, &module);
  if (code == 0) code = make(made, "target", 1, &text, &target);
  LatheValue context[] = {api_val_int(o->opt_level), val_list(NULL, 0), val_list(NULL, 0), val_list(NULL, 0), target};
  if (code == 0) code = make(made, "pass_context", 5, context, &passes);
  LatheValue none = {0};
  LatheValue args[] = {module, target, passes, none, none, none, val_list(NULL, 0), val_text(weights)};
  return code == 0 ? make(made, "compile", 8, args, compiled) : code;
}

static void give_back(Made *made)
{
  for (int i = 0; i < made->n; i++) lathe_object_release(made->v[i].kind, made->v[i].u.p);
}

int32_t lathe_compile_onnx(LatheContext *c, const char *path, const LatheCompileOptions *options, const char *output)
{
  Made made = {.c = c};
  LatheValue compiled, none;
  size_t n = output ? strlen(output) : 0; /* what is loaded can prepare its weights */
  bool library = n > 3 && !strcmp(output + n - 3, ".so");
  int32_t code = compile(&made, path, options, library ? "trained" : "ready", &compiled);
  LatheValue args[] = {compiled, val_text(output)};
  if (code == 0) code = lathe_call(c, "compiled_export", 2, args, &none);
  give_back(&made);
  return code;
}

/* The code and the weights of a model in memory are those of the compiled one. */
typedef struct Keep {
  LatheContext *context;
  Handle *compiled;
} Keep;

static void keep_model(Ctx *ctx, void *arg)
{
  Keep *keep = arg;
  Kept *k = mem_alloc(ctx, sizeof *k);
  *k = (Kept){keep->context->models, api_handle_retain(keep->compiled)};
  keep->context->models = k;
}

int32_t lathe_load_onnx(LatheContext *c, const char *path, const LatheCompileOptions *options, LatheRtModel **out)
{
  Made made = {.c = c};
  LatheValue compiled, address;
  int32_t code = compile(&made, path, options, "ready", &compiled);
  if (code == 0) code = lathe_call(c, "compiled_runtime", 1, &compiled, &address);
  if (code == 0) code = (int32_t)protect(c->ctx, keep_model, &(Keep){c, compiled.u.p});
  if (code == 0) *out = lathe_rt_model_retain((LatheRtModel *)(intptr_t)address.u.i);
  give_back(&made);
  return code;
}
