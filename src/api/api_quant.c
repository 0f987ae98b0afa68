/* api_quant.c: post-training quantization, and quantized models compared with what they came from. */
#include "api/api.h"
#include "quant/quant.h"

static void drop_arena(void *a) { arena_free(a); }

/* For what a call gives back; models that run meanwhile keep their own things in scratch(). */
static Arena *own_arena(Ctx *ctx)
{
  Arena *a = arena_new(ctx);
  defer(ctx, drop_arena, a);
  return a;
}

/* A user's function: it is handed [stage, done, total]. */
typedef struct Listener {
  int32_t (*fn)(void *user, const LatheValue *);
} Listener;

static int tell(void *env, const char *stage, int64_t done, int64_t total)
{
  const Listener *l = env;
  const LatheValue v[] = {
    {.tag = LATHE_STR, .u.s = stage, .n = (int64_t)strlen(stage)}, api_val_int(done), api_val_int(total)};
  LatheValue all = {.tag = LATHE_LIST, .u.list = v, .n = 3};
  return l->fn(NULL, &all);
}

static int arg_arrays(Call *c, int i, Arena *a, const QuantArray **out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  QuantArray *array = arena_array(a, QuantArray, n + 1);
  for (int k = 0; k < n; k++) {
    const LatheValue *row = v[k].u.list;
    array[k].name = row[0].tag == LATHE_NONE ? NULL : api_value_text(c, &row[0]);
    array[k].tensor = (const LatheRtTensor *)(intptr_t)row[1].u.i;
  }
  *out = array;
  return n;
}

static double number(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag == LATHE_INT) return (double)v->u.i;
  if (v->tag != LATHE_FLOAT) raise(c->ctx, ERR_TYPE, NOWHERE, "option '%s' of quantization is a number", key);
  return v->u.f;
}

static int64_t count(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag != LATHE_INT || v->u.i < 0)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option '%s' of quantization is a count", key);
  return v->u.i;
}

static const char *text(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag != LATHE_STR) raise(c->ctx, ERR_TYPE, NOWHERE, "option '%s' of quantization is text", key);
  return api_value_text(c, v);
}

static void check_options(Call *c, const QuantOptions *o)
{
  if (o->percentile && !(o->percentile > 50 && o->percentile <= 100))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option 'percentile' is above 50 and at most 100, not %g", o->percentile);
}

static void read_options(Call *c, int i, QuantOptions *o)
{
  static const char *const names[] = {"calibrate", "percentile", "accuracy_drop", "samples", "skip"};
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) {
    const char *key = api_value_text(c, &v[k].u.list[0]);
    const LatheValue *to = &v[k].u.list[1];
    if (to->tag == LATHE_NONE) continue;
    if (!strcmp(key, "calibrate")) o->method = quant_method(c->ctx, text(c, key, to));
    else if (!strcmp(key, "percentile")) o->percentile = number(c, key, to);
    else if (!strcmp(key, "accuracy_drop")) o->accuracy_drop = number(c, key, to);
    else if (!strcmp(key, "samples")) o->calibration = count(c, key, to);
    else if (!strcmp(key, "skip")) o->skip = text(c, key, to);
    else
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "quantization has no option '%s'%s", key,
            str_suggest(scratch(c->ctx), key, names, sizeof names / sizeof *names));
  }
  check_options(c, o);
}

static void read_labels(Call *c, int i, Arena *a, QuantOptions *o)
{
  if (!api_arg_given(c, i)) return;
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  int64_t *label = arena_array(a, int64_t, n + 1);
  for (int k = 0; k < n; k++) label[k] = v[k].u.i;
  o->labels = label;
  o->nlabels = n;
}

static void read_progress(Call *c, int i, QuantOptions *o)
{
  if (!api_arg_given(c, i)) return;
  Listener *l = arena_new_of(scratch(c->ctx), Listener);
  l->fn = (int32_t (*)(void *, const LatheValue *))(intptr_t)api_arg_int(c, i);
  o->progress = tell;
  o->env = l;
}

static void put_texts(Call *c, const char *text, const char *json)
{
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_str(c, text);
  v[1] = api_val_str(c, json);
}

static void quantize(Call *c)
{
  Arena *a = own_arena(c->ctx);
  QuantOptions o = {.accuracy_drop = -1};
  const QuantArray *array;
  int n = arg_arrays(c, 2, a, &array);
  read_options(c, 3, &o);
  read_labels(c, 4, a, &o);
  read_progress(c, 5, &o);
  const char *output = api_arg_str(c, 1);
  file_check_output(c->ctx, output);
  QuantReport report;
  size_t size;
  const void *bytes = quant_onnx(a, api_arg_str(c, 0), n, array, &o, &report, &size);
  file_write(c->ctx, output, bytes, size);
  put_texts(c, quant_report_text(a, &report), quant_report_json(a, &report));
}

static void drop_module(void *m) { module_release(m); }

static int bits(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag != LATHE_INT || v->u.i < 2 || v->u.i > 8)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option '%s' is a number of bits from 2 to 8", key);
  return (int)v->u.i;
}

static bool truth(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag != LATHE_BOOL) raise(c->ctx, ERR_TYPE, NOWHERE, "option '%s' of quantization is true or false", key);
  return v->u.i != 0;
}

static void read_skip(Call *c, const LatheValue *v, QuantGraphOptions *g)
{
  if (v->tag != LATHE_LIST) raise(c->ctx, ERR_TYPE, NOWHERE, "option 'skip_conv_layers' is a list of numbers");
  int64_t *skip = arena_array(scratch(c->ctx), int64_t, v->n + 1);
  for (int64_t i = 0; i < v->n; i++) {
    if (v->u.list[i].tag != LATHE_INT)
      raise(c->ctx, ERR_TYPE, NOWHERE, "option 'skip_conv_layers' is a list of numbers");
    skip[i] = v->u.list[i].u.i;
  }
  g->nskip = (int)v->n;
  g->skip = skip;
}

static bool upward(Call *c, const char *rounding)
{
  bool up = !strcmp(rounding, "UPWARD");
  if (!up && strcmp(rounding, "TONEAREST") != 0)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option 'rounding' is UPWARD or TONEAREST, not '%s'", rounding);
  return up;
}

static void read_graph_option(Call *c, const char *key, const LatheValue *v, QuantGraphOptions *g, QuantOptions *o)
{
  static const char *const names[] = {"nbit_input",   "nbit_weight",      "signed",           "power2",
                                      "global_scale", "skip_conv_layers", "skip_dense_layer", "do_simulation",
                                      "rounding",     "calibrate",        "percentile",       "samples"};
  if (!strcmp(key, "nbit_input")) g->input_bits = bits(c, key, v);
  else if (!strcmp(key, "nbit_weight")) g->weight_bits = bits(c, key, v);
  else if (!strcmp(key, "signed")) g->input_signed = truth(c, key, v);
  else if (!strcmp(key, "power2")) g->power2 = truth(c, key, v);
  else if (!strcmp(key, "global_scale")) g->global_scale = number(c, key, v);
  else if (!strcmp(key, "skip_conv_layers")) read_skip(c, v, g);
  else if (!strcmp(key, "skip_dense_layer")) g->skip_dense = truth(c, key, v);
  else if (!strcmp(key, "do_simulation")) g->simulate = truth(c, key, v);
  else if (!strcmp(key, "rounding")) g->upward = upward(c, text(c, key, v));
  else if (!strcmp(key, "calibrate")) o->method = quant_method(c->ctx, text(c, key, v));
  else if (!strcmp(key, "percentile")) o->percentile = number(c, key, v);
  else if (!strcmp(key, "samples")) o->calibration = count(c, key, v);
  else
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "quantization has no option '%s'%s", key,
          str_suggest(scratch(c->ctx), key, names, sizeof names / sizeof *names));
}

static void quantize_graph(Call *c)
{
  Arena *a = own_arena(c->ctx);
  QuantOptions o = {.accuracy_drop = -1};
  QuantGraphOptions g = {.input_bits = 8, .weight_bits = 8, .input_signed = true, .upward = true};
  const QuantArray *array;
  int n = arg_arrays(c, 2, a, &array);
  const LatheValue *v;
  int count = api_arg_list(c, 3, &v);
  for (int k = 0; k < count; k++)
    if (v[k].u.list[1].tag != LATHE_NONE)
      read_graph_option(c, api_value_text(c, &v[k].u.list[0]), &v[k].u.list[1], &g, &o);
  if (g.global_scale < 0 || g.global_scale != g.global_scale)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "option 'global_scale' is above zero, not %g", g.global_scale);
  check_options(c, &o);
  read_progress(c, 4, &o);
  Module *m = graph_copy_module((Module *)api_arg_ptr(c, 0));
  defer(c->ctx, drop_module, m);
  int layers = quant_graph(a, m, (PassContext *)api_arg_ptr(c, 1), n, array, &g, &o);
  LatheValue *out = api_val_list(c, 2, c->out);
  out[0] = api_val_object(c, LATHE_MODULE, m, 0, m, NULL);
  out[1] = api_val_int(layers);
}

static void compare(Call *c)
{
  Arena *a = own_arena(c->ctx);
  QuantOptions o = {.accuracy_drop = -1};
  const QuantArray *array;
  int n = arg_arrays(c, 2, a, &array);
  read_progress(c, 3, &o);
  QuantPart *part;
  int parts = quant_onnx_compare(a, api_arg_str(c, 0), api_arg_str(c, 1), n, array, &o, &part);
  put_texts(c, quant_parts_text(a, parts, part), quant_parts_json(a, parts, part));
}

const ApiFunction api_quant_functions[] = {
  {"onnx_quantize",
   "path: str, output: str, inputs: list[[str?, address]], options: list[[str, option]], labels: list[int]?, progress: "
   "function? -> [str, str]",
   "writes the ONNX model with QuantizeLinear and DequantizeLinear, scales found on these arrays (LatheRtTensor; the "
   "first "
   "axis counts samples); options calibrate, percentile, accuracy_drop, samples, skip; the report as a table and as "
   "JSON; "
   "progress(user, [stage, done, total]) stops it with what is not 0",
   quantize},
  {"onnx_compare", "path: str, other: str, inputs: list[[str?, address]], progress: function? -> [str, str]",
   "two ONNX models of one network run on these arrays: how far the tensors that both have are apart, as a table and "
   "as "
   "JSON",
   compare},
  {"graph_quantize",
   "m: module, p: passcontext, inputs: list[[str?, address]], options: list[[str, option]], progress: function? -> "
   "[module, "
   "int]",
   "@main, whose weights are constants, in qnn operators, and how many layers are; options nbit_input, nbit_weight, "
   "signed, "
   "power2, global_scale (or calibrate, percentile, samples, on the arrays), skip_conv_layers, skip_dense_layer, "
   "do_simulation, rounding",
   quantize_graph},
  {0},
};
