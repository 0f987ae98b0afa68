/* compiled.c: what can be had from a compiled model: something that runs, files, texts. */
#include "driver/compiled.h"

Module *compiled_module(Compiled *c) { return c->program.m; }
/* The weights stay where the graph has them. */
LatheRtModel *compiled_model(Compiled *c)
{
  for (int i = 0; i < c->nvariants; i++)
    if (c->variant[i]->program.target->is_host) return compiled_model(c->variant[i]);
  if (c->model) return c->model;
  if (c->aot)
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE,
          "a program ahead of time has no runtime: export it as C, or compile for the graph executor");
  const Program *p = &c->program;
  LatheRtModule *module = built_module(c->built[0]);
  const LatheRtModuleInfo **modules = arena_array(c->arena, const LatheRtModuleInfo *, p->nlibraries + 1);
  for (int i = 0; i < p->nlibraries; i++) modules[i] = lathe_rt_module_info(built_module(c->built[i]));
  const void **consts = arena_array(c->arena, const void *, p->constant.n + 1);
  for (int i = 0; i < p->constant.n; i++) consts[i] = p->constant.v[i].data->data;
  bool blobs = p->image.n || p->module.n > p->nlibraries; /* at their places */
  char *images = blobs ? arena_alloc(c->arena, p->weights_bytes + MODEL_ALIGN) : NULL;
  if (images) images += MODEL_ALIGN - (uintptr_t)images % MODEL_ALIGN;
  for (int i = 0; i < p->image.n; i++) memcpy(images + p->image.v[i].offset, p->image.v[i].bytes, p->image.v[i].n);
  for (int i = p->nlibraries; i < p->module.n; i++)
    if (p->module.v[i].n) memcpy(images + p->module.v[i].offset, p->module.v[i].bytes, p->module.v[i].n);
  LatheRtModelData data = {.magic = MODEL_MAGIC,
                           .size = sizeof data,
                           .nmodules = (uint32_t)p->nlibraries,
                           .program = c->bytes,
                           .program_bytes = c->nbytes,
                           .weights = images,
                           .weights_bytes = images ? p->weights_bytes : 0,
                           .consts = consts,
                           .modules = modules};
  LatheRtError err;
  LatheRtCode code = lathe_rt_model_wrap(module, &data, NULL, NULL, NULL, &c->model, &err);
  if (code == LATHE_RT_MEMORY) raise(c->ctx, ERR_MEMORY, NOWHERE, "%s", err.text);
  if (code == LATHE_RT_UNSUPPORTED || code == LATHE_RT_DEVICE || code == LATHE_RT_NOT_FOUND)
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE, "%s", err.text);
  if (code != LATHE_RT_OK) BUG(c->ctx, "the runtime refuses the program: %s", err.text);
  return c->model;
}

void compiled_export(Compiled *c, const char *path, WeightsPlace weights)
{
  Scope scope = scope_begin(c->ctx);
  if (c->aot) {
    aot_export(c->aot, path, weights);
    scope_end(c->ctx, scope);
    return;
  }
  ArtefactModel model[MAX_VARIANTS];
  for (int k = 0; k <= c->nvariants; k++) {
    Compiled *one = k ? c->variant[k - 1] : c;
    int n = one->program.nlibraries;
    Code **code = arena_array(scratch(c->ctx), Code *, n);
    for (int i = 0; i < n; i++) code[i] = built_code(one->built[i]);
    model[k] = (ArtefactModel){&one->program, code, one->bytes, one->nbytes};
  }
  compiled_export_artefact(c->nvariants + 1, model, path, weights);
  scope_end(c->ctx, scope);
}

const char *compiled_source(Compiled *c, Arena *arena, CodeFormat format)
{
  size_t n;
  if (c->aot) return compiled_aot_file(c, arena, "model", ".c", &n);
  if (c->program.nlibraries == 1) {
    const char *text = code_get(built_code(c->built[0]), format, arena, &n);
    return arena_strndup(arena, text, n);
  }
  Text all = text_new(arena); /* of the modules that have it */
  for (int i = 0; i < c->program.nlibraries; i++) {
    Code *code = built_code(c->built[i]);
    const char *text = code->backend->get(code, format, arena, &n);
    if (text) text_addn(&all, text, n);
  }
  return all.n ? text_str(&all) : code_get(built_code(c->built[0]), format, arena, &n);
}

Code *compiled_code(Compiled *c) { return c->program.nlibraries == 1 && !c->aot ? built_code(c->built[0]) : NULL; }

const char *compiled_program_text(Compiled *c, Arena *arena) { return program_print(&c->program, arena); }

const char *compiled_memory_text(Compiled *c, Arena *arena)
{
  const Program *p = &c->program;
  Text t = text_new(arena);
  text_printf(&t, "weights %.3f MB", (double)p->weights_bytes / 1e6);
  if (p->prepared_bytes) text_printf(&t, ", of which loading makes %.3f MB", (double)p->prepared_bytes / 1e6);
  for (int i = 0; i < p->entry.n; i++) {
    const ProgEntry *e = &p->entry.v[i];
    double bytes = 0;
    for (int d = 0; d < p->device.n; d++) bytes += (double)e->storage_bytes[d];
    text_add(&t, e->is_static && p->entry.n == 1 ? ", " : "; ");
    if (p->entry.n > 1) text_printf(&t, "%s: ", e->name);
    if (!e->is_static) text_add(&t, "storage is allocated while the model runs");
    else
      text_printf(&t, "storage %.3f MB (no plan needs less than %.3f MB)", bytes / 1e6, (double)e->storage_bound / 1e6);
  }
  return text_str(&t);
}

const char *compiled_time_text(Compiled *c, Arena *arena)
{
  Text t = text_new(arena);
  double sum = 0;
  for (int i = 0; i < c->nstage; i++) {
    text_printf(&t, "%-10s %8.3f s\n", c->stage[i].name, c->stage[i].seconds);
    sum += c->stage[i].seconds;
  }
  text_printf(&t, "%-10s %8.3f s\n", "all", sum);
  return text_str(&t);
}

const char *compiled_plans_text(Compiled *c) { return text_str(&c->plans); }

const char *compiled_node_plan(Compiled *c, int i)
{
  const Program *p = &c->program;
  if (i < 0 || i >= p->node.n || p->node.v[i].kernel < 0) return NULL;
  return p->kernel.v[p->node.v[i].kernel].impl.plan;
}

/* ---- programs ahead of time -------------------------------------------------------------------------- */

static Aot *need_aot(Compiled *c)
{
  if (!c->aot)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the model was compiled for the runtime, not as a program ahead of time");
  return c->aot;
}

const char *compiled_aot_report(Compiled *c, Arena *arena, AotReportForm form)
{
  return aot_report(need_aot(c), arena, form);
}

const void *compiled_aot_file(Compiled *c, Arena *arena, const char *name, const char *ending, size_t *n)
{
  AotFiles files = {0};
  aot_files(need_aot(c), arena, name, WEIGHTS_BY_SIZE, &files);
  for (int i = 0; i < files.n; i++)
    if (str_ends(files.v[i].name, ending)) {
      *n = files.v[i].n;
      return files.v[i].bytes;
    }
  return NULL;
}

void driver_check_export_aot(Ctx *ctx, const Target *t, const char *path) { aot_check_export(ctx, t, path); }
