/* compiled.c: what can be had from a compiled model: something that runs, files, texts. */
#include "driver/compiled.h"

Module *compiled_module(Compiled *c) { return c->program.m; }
/* The weights stay where the graph has them. */
LatheRtModel *compiled_model(Compiled *c)
{
  if (c->model) return c->model;
  LatheRtModule *module = built_module(c->built);
  const Program *p = &c->program;
  const void **consts = arena_array(c->arena, const void *, p->constant.n + 1);
  for (int i = 0; i < p->constant.n; i++) consts[i] = p->constant.v[i].data->data;
  LatheRtModelData data = {.magic = MODEL_MAGIC, .program = c->bytes, .program_bytes = c->nbytes, .consts = consts};
  LatheRtError err;
  LatheRtCode code = lathe_rt_model_wrap(module, &data, NULL, NULL, &c->model, &err);
  if (code == LATHE_RT_MEMORY) raise(c->ctx, ERR_MEMORY, NOWHERE, "%s", err.text);
  if (code != LATHE_RT_OK) BUG(c->ctx, "the runtime refuses the program: %s", err.text);
  return c->model;
}

void compiled_export(Compiled *c, const char *path, WeightsPlace weights)
{
  compiled_export_artefact(&c->program, built_code(c->built), c->bytes, c->nbytes, path, weights);
}

const char *compiled_source(Compiled *c, Arena *arena, CodeFormat format)
{
  size_t n;
  const char *text = code_get(built_code(c->built), format, arena, &n);
  return arena_strndup(arena, text, n);
}

const char *compiled_program_text(Compiled *c, Arena *arena) { return program_print(&c->program, arena); }

const char *compiled_memory_text(Compiled *c, Arena *arena)
{
  const Program *p = &c->program;
  if (!p->is_static)
    return arena_printf(arena, "weights %.3f MB; storage is allocated while the model runs",
                        (double)p->weights_bytes / 1e6);
  return arena_printf(arena, "weights %.3f MB, storage %.3f MB (no plan needs less than %.3f MB)",
                      (double)p->weights_bytes / 1e6, (double)p->storage_bytes / 1e6, (double)p->storage_bound / 1e6);
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
