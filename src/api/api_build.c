/* api_build.c: targets, lowering, compiled code.
 *
 * In: functions and the text of a target.  Out: lowered functions; compiled code
 * as text, as a file, or as a runtime module that the handle owns. */
#include "api/api.h"

/* ---- targets ----------------------------------------------------------------------- */

static void target_new(Call *c)
{
  const Target *t = api_arg_given(c, 0) ? target_parse(c->ctx, api_arg_str(c, 0)) : target_host(c->ctx);
  if (api_arg_given(c, 1)) t = target_with_host(c->ctx, t, api_arg_ptr(c, 1));
  *c->out = api_val_object(c, LATHE_TARGET, t, 0, NULL, NULL);
}

static void put(Call *c, LatheValue *row, const char *key, LatheValue value)
{
  LatheValue *pair = api_val_list(c, 2, row);
  pair[0] = api_val_str(c, key);
  pair[1] = value;
}

static void target_fields(Call *c)
{
  const Target *t = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, 23, c->out);
  put(c, &v[0], "kind", api_val_str(c, t->kind->name));
  put(c, &v[1], "text", api_val_str(c, t->text));
  put(c, &v[2], "mtriple", api_val_str(c, t->triple));
  put(c, &v[3], "mcpu", api_val_str(c, t->cpu));
  put(c, &v[4], "mattr", api_val_str(c, t->attrs));
  put(c, &v[5], "arch", api_val_str(c, t->gpu_arch));
  put(c, &v[6], "is_host", api_val_bool(t->is_host));
  put(c, &v[7], "features", api_val_str(c, target_llvm_features(scratch(c->ctx), t)));
  put(c, &v[8], "vector_width", api_val_int(t->vector_bits));
  put(c, &v[9], "vector_registers", api_val_int(t->vector_registers));
  put(c, &v[10], "l1_bytes", api_val_int(t->l1_bytes));
  put(c, &v[11], "l2_bytes", api_val_int(t->l2_bytes));
  put(c, &v[12], "l3_bytes", api_val_int(t->l3_bytes));
  put(c, &v[13], "num_cores", api_val_int(t->num_cores));
  put(c, &v[14], "max_num_threads", api_val_int(t->max_threads_per_block));
  put(c, &v[15], "max_shared_memory_per_block", api_val_int(t->shared_bytes));
  put(c, &v[16], "thread_warp_size", api_val_int(t->warp_size));
  put(c, &v[17], "broadcast_load", api_val_bool(t->broadcast_load));
  put(c, &v[18], "device", api_val_str(c, target_device_kind_name(t->device.kind)));
  put(c, &v[19], "device_type", api_val_int(t->device.type));
  put(c, &v[20], "codegen", api_val_str(c, target_codegen_name(t->codegen)));
  put(c, &v[21], "keys", api_val_str(c, t->keys));
  put(c, &v[22], "host", t->host ? api_val_str(c, t->host->text) : api_val_none());
}

static void target_options(Call *c)
{
  const Target *t = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, t->noptions, c->out);
  for (int i = 0; i < t->noptions; i++) put(c, &v[i], t->option[i].name, api_val_str(c, t->option[i].value));
}

static void device_parse(Call *c)
{
  int type, id;
  if (!target_device_parse(api_arg_str(c, 0), &type, &id))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "'%s' is no device; a device is named as in \"cpu(0)\"", api_arg_str(c, 0));
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_int(type);
  v[1] = api_val_int(id);
}

static void target_kind_list(Call *c)
{
  int n;
  const TargetKind *kinds = target_kinds(&n);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) {
    LatheValue *row = api_val_list(c, 4, &v[i]);
    row[0] = api_val_str(c, kinds[i].name);
    row[1] = api_val_str(c, target_device_kind_name(kinds[i].device.kind));
    row[2] = api_val_str(c, target_codegen_name(kinds[i].codegen));
    row[3] = api_val_str(c, kinds[i].device.name);
  }
}

/* ---- lowering and building ------------------------------------------------------------- */

static bool config_bool(Call *c, const char *key, const LatheValue *v)
{
  if (v->tag != LATHE_BOOL && v->tag != LATHE_INT) raise(c->ctx, ERR_TYPE, NOWHERE, "config key '%s' is a bool", key);
  return v->u.i != 0;
}

static LowerConfig read_config(Call *c, int i)
{
  static const char *const keys[] = {"unroll_max", "no_partition", "no_vectorize", "dump_dir"};
  LowerConfig config = {0};
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) {
    const char *key = api_value_text(c, &v[k].u.list[0]);
    const LatheValue *value = &v[k].u.list[1];
    if (!strcmp(key, "unroll_max")) {
      if (value->tag != LATHE_INT || value->u.i < 0 || value->u.i > INT32_MAX)
        raise(c->ctx, ERR_TYPE, NOWHERE, "config key 'unroll_max' is an int that is not negative");
      config.unroll_max = (int)value->u.i;
    } else if (!strcmp(key, "no_partition")) config.no_partition = config_bool(c, key, value);
    else if (!strcmp(key, "no_vectorize")) config.no_vectorize = config_bool(c, key, value);
    else if (!strcmp(key, "dump_dir")) config.dump_dir = api_value_text(c, value);
    else {
      const char *suggestion = str_suggest(scratch(c->ctx), key, keys, 4);
      raise(c->ctx, ERR_ARGUMENT, NOWHERE,
            "unknown config key '%s'%s; known are unroll_max, no_partition, no_vectorize, dump_dir", key, suggestion);
    }
  }
  return config;
}

static void lower(Call *c)
{
  const Target *t = api_arg_ptr(c, 1);
  LowerConfig config = read_config(c, 2);
  PrimFunc *f = func_import(api_new_module(c), api_arg_ptr(c, 0));
  func_check(f);
  func_check_bounds(f);
  *c->out = api_val_func(c, func_import(api_new_module(c), lower_func(f, t, LOWER_LOOPS, &config)));
}

static void build(Call *c)
{
  const void **f;
  int n = api_arg_ptrs(c, NULL, 0, &f);
  LowerConfig config = read_config(c, 2);
  Handle *h = api_val_owner(c, LATHE_BUILT, NULL, c->out);
  h->p = build_funcs(c->ctx, n, (PrimFunc *const *)f, api_arg_ptr(c, 1), &config);
}

/* ---- compiled code ------------------------------------------------------------------------ */

static Built *arg_built(Call *c) { return (Built *)api_arg_ptr(c, 0); }

CodeFormat api_code_format(Call *c, const char *name)
{
  static const struct {
    const char *name;
    CodeFormat format;
  } formats[] = {
    {"ll", CODE_LL},     {"llvm", CODE_LL}, {"asm", CODE_ASM}, {"s", CODE_ASM},      {"c", CODE_C},
    {"cuda", CODE_CUDA}, {"cu", CODE_CUDA}, {"ptx", CODE_PTX}, {"obj", CODE_OBJECT}, {"o", CODE_OBJECT},
  };
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, name)) return formats[i].format;
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no code format '%s'; known are ll, asm, c, cuda, ptx, obj", name);
}

void api_val_code(Call *c, Code *code, const char *format)
{
  size_t n = 0;
  CodeFormat wanted = *format ? api_code_format(c, format) : code->backend->text;
  const void *text = code_get(code, wanted, scratch(c->ctx), &n);
  *c->out = api_val_bytes(c, text, n);
}

static void built_source(Call *c)
{
  Built *b = arg_built(c);
  bool device = api_arg_bool(c, 2);
  Code *code = device ? built_device_code(b) : built_code(b);
  if (!code) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no device code for target %s", built_target(b)->text);
  api_val_code(c, code, api_arg_str(c, 1));
}

static void built_fields(Call *c)
{
  Built *b = arg_built(c);
  LatheValue *v = api_val_list(c, 3, c->out);
  v[0] = api_val_str(c, built_code(b)->backend->name);
  v[1] = api_val_bool(built_device_code(b) != NULL);
  v[2] = api_val_str(c, built_target(b)->text);
}

static void built_export(Call *c) { code_export(built_code(arg_built(c)), api_arg_str(c, 1)); }
static void build_check(Call *c) { code_check_export(c->ctx, api_arg_ptr(c, 0), api_arg_str(c, 1)); }
static void built_runtime(Call *c) { *c->out = api_val_int((int64_t)(intptr_t)built_module(arg_built(c))); }

static void nvrtc(Call *c)
{
  size_t n = 0;
  const void *bytes = codegen_nvrtc(scratch(c->ctx), api_arg_str(c, 0), api_arg_ptr(c, 1), api_arg_bool(c, 2), &n);
  *c->out = api_val_bytes(c, bytes, n);
}

static void build_info(Call *c)
{
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_bool(*codegen_llvm_version());
  v[1] = api_val_str(c, codegen_llvm_version());
}

static void lower_passes(Call *c)
{
  int n = lower_pass_count();
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = api_val_str(c, lower_pass_name(i));
}

static void lower_transforms(Call *c)
{
  int count = 0;
  int n = lower_pass_count();
  for (int i = 0; i < n; i++) count += lower_pass_transform(i) != NULL;
  LatheValue *v = api_val_list(c, count, c->out);
  for (int i = 0, k = 0; i < n; i++) {
    if (!lower_pass_transform(i)) continue;
    LatheValue *row = api_val_list(c, 2, &v[k++]);
    row[0] = api_val_str(c, lower_pass_transform(i));
    row[1] = api_val_str(c, lower_pass_name(i));
  }
}

static void lower_transform(Call *c)
{
  PrimFunc *f = func_import(api_new_module(c), api_arg_ptr(c, 0));
  func_check(f);
  f = lower_run_transform(f, api_arg_ptr(c, 1), api_arg_str(c, 2));
  *c->out = api_val_func(c, func_import(api_new_module(c), f));
}

const ApiFunction api_build_functions[] = {
  {"target", "text: str?, host: target? -> target",
   "the machine that a string describes; none: this one; with the host that drives it", target_new},
  {"target_fields", "t: target -> list[list[any]]", "its properties: key and value", target_fields},
  {"target_options", "t: target -> list[list[str]]", "its options as they were said: name and value", target_options},
  {"device_parse", "text: str -> list[int]", "a device by its name: type and number", device_parse},
  {"target_kinds", " -> list[list[str]]", "the kinds of targets: name, device, code generator, the device's name",
   target_kind_list},
  {"lower", "f: primfunc, target: target, config: list[[str, option]]? -> primfunc",
   "loops without blocks, as lathe.lower shows them", lower},
  {"build", "functions: list[primfunc], target: target, config: list[[str, option]]? -> built", "compiles functions",
   build},
  {"built_source", "b: built, format: str, device: bool? -> str", "the code as text or bytes", built_source},
  {"built_fields", "b: built -> list[any]", "backend, whether there is device code, target", built_fields},
  {"built_export", "b: built, path: str -> none", "writes .so, .o, .s, .ll, .c or .cu", built_export},
  {"build_check", "target: target, path: str -> none", "raises unless built_export could write such a file",
   build_check},
  {"built_runtime", "b: built -> int", "address of the LatheRtModule, which lives as long as the object",
   built_runtime},
  {"nvrtc", "source: str, target: target, cubin: bool? -> str", "CUDA source to PTX or cubin", nvrtc},
  {"build_info", " -> list[any]", "whether LLVM is there, its version", build_info},
  {"lower_transform", "f: primfunc, target: target, transform: str -> primfunc", "one pass of lowering, alone",
   lower_transform},
  {"lower_transforms", " -> list[list[str]]", "the passes that may run alone: name in tir.transform, in lowering",
   lower_transforms},
  {"lower_passes", " -> list[str]", "the passes of lowering, in order", lower_passes},
  {0},
};
