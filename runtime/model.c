/* model.c: models: from a file or memory, counted, and what they tell of themselves. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static void drop_parts(LatheRtModel *m)
{
  rt_model_unplace(m);
  rt_model_unprepare(m);
  for (int32_t i = 0; m->module && i < m->nmodule; i++)
    if (m->module[i]) rt_module_release(m->module[i]);
  rt_chunk_drop(&m->chunks);
}

/* The symbol of an older runtime is shorter; its modules are refused before it is looked at. */
static LatheRtCode check_table(const LatheRtModelData *data, LatheRtError *err)
{
  if (memcmp(data->magic, MODEL_MAGIC, 8) != 0)
    return rt_fail(err, LATHE_RT_ARGUMENT, "the model was not made by Lathe: its table has no mark");
  if (data->size < sizeof *data)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "the model's table has %u bytes, wants %zu; compile it again", data->size,
                   sizeof *data);
  if ((!data->program && data->program_bytes) || data->program_bytes > PTRDIFF_MAX ||
      (!data->weights && data->weights_bytes && !data->consts) || (!data->modules && data->nmodules > 1))
    return rt_broken(err, "its table has no program or no weights");
  return LATHE_RT_OK;
}

static LatheRtCode model_new(LatheRtModule *module, const LatheRtModelData *data, const LatheRtLoad *how,
                             LatheRtModel **out, LatheRtError *err)
{
  RT_TRY(check_table(data, err));
  LatheRtModel *m = calloc(1, sizeof *m);
  if (!m) return rt_no_memory(err, "model");
  atomic_store(&m->refs, 1);
  m->base = module;
  rt_module_retain(module);
  m->look_only = how && how->look_only;
  LatheRtCode code = rt_model_read(m, data, err);
  if (code == LATHE_RT_OK && m->look_only) {
    *out = m;
    return code;
  }
  if (code == LATHE_RT_OK) code = rt_model_prepare(m, how, err);
  if (code == LATHE_RT_OK) code = rt_model_place(m, err);
  if (code != LATHE_RT_OK) {
    lathe_rt_model_free(m);
    return code;
  }
  *out = m;
  return LATHE_RT_OK;
}

/* how, as this version has it; NULL: nothing is wanted. */
static LatheRtCode take_how(const LatheRtLoad *how, LatheRtLoad *own, LatheRtError *err)
{
  enum { LEAST = offsetof(LatheRtLoad, look_only) + sizeof how->look_only };
  *own = (LatheRtLoad){.size = sizeof *own};
  return how ? rt_take_struct(own, sizeof *own, how, how->size, LEAST, "LatheRtLoad", err) : LATHE_RT_OK;
}

LatheRtCode lathe_rt_model_wrap(LatheRtModule *module, const LatheRtModelData *data, const LatheRtLoad *how,
                                void (*drop)(void *), void *user, LatheRtModel **out, LatheRtError *err)
{
  if (!module || !data || !out) return rt_null(err, "model_wrap");
  *out = NULL;
  LatheRtLoad own;
  RT_TRY(take_how(how, &own, err));
  RT_TRY(model_new(module, data, &own, out, err));
  (*out)->drop = drop;
  (*out)->user = user;
  return LATHE_RT_OK;
}

static LatheRtCode model_of(LatheRtModule *module, const LatheRtLoad *how, LatheRtModel **out, LatheRtError *err)
{
  const LatheRtModelData *data = rt_module_model(module);
  if (!data) return rt_fail(err, LATHE_RT_NOT_FOUND, "the module has kernels alone, no model");
  return model_new(module, data, how, out, err);
}

LatheRtCode lathe_rt_model_of(LatheRtModule *module, LatheRtModel **out, LatheRtError *err)
{
  if (!module || !out) return rt_null(err, "model_of");
  *out = NULL;
  return model_of(module, NULL, out, err);
}

LatheRtCode lathe_rt_model_load(const char *path, LatheRtModel **out, LatheRtError *err)
{
  return lathe_rt_model_load_with(path, NULL, out, err);
}

LatheRtCode lathe_rt_model_load_with(const char *path, const LatheRtLoad *how, LatheRtModel **out, LatheRtError *err)
{
  if (!path || !out) return rt_null(err, "model_load");
  *out = NULL;
  LatheRtLoad own;
  LatheRtModule *module;
  RT_TRY(take_how(how, &own, err));
  RT_TRY(lathe_rt_module_load(path, &module, err));
  LatheRtCode code = rt_within(err, model_of(module, &own, out, err), "'%.150s': ", path);
  lathe_rt_module_free(module);
  return code;
}

LatheRtModel *lathe_rt_model_retain(LatheRtModel *m)
{
  if (m) atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
  return m;
}

void lathe_rt_model_free(LatheRtModel *m)
{
  if (!m || atomic_fetch_sub(&m->refs, 1) != 1) return;
  LatheRtModule *base = m->base;
  void (*drop)(void *) = m->drop;
  void *user = m->user;
  drop_parts(m);
  free(m);
  rt_module_release(base);
  if (drop) drop(user);
}

int32_t lathe_rt_model_entries(const LatheRtModel *m) { return m ? m->nentry : 0; }

const LatheRtEntry *lathe_rt_model_entry(const LatheRtModel *m, int32_t i)
{
  return m && i >= 0 && i < m->nentry ? &m->entry[i].about : NULL;
}

LatheRtCode lathe_rt_model_find(const LatheRtModel *m, const char *entry, int32_t *out, LatheRtError *err)
{
  if (!m || !entry || !out) return rt_null(err, "model_find");
  char names[300] = "";
  for (*out = 0; *out < m->nentry; ++*out) {
    const char *name = m->entry[*out].about.name;
    if (!strcmp(name, entry)) return LATHE_RT_OK;
    rt_add_name(names, sizeof names, name);
  }
  return rt_fail(err, LATHE_RT_NOT_FOUND, "the model has no entry '%.100s'; it has %s", entry, names);
}

int32_t lathe_rt_model_inputs(const LatheRtModel *m, const LatheRtPort **out)
{
  if (out) *out = m ? m->entry[0].about.inputs : NULL;
  return m ? m->entry[0].about.ninputs : 0;
}

int32_t lathe_rt_model_outputs(const LatheRtModel *m, const LatheRtPort **out)
{
  if (out) *out = m ? m->entry[0].about.outputs : NULL;
  return m ? m->entry[0].about.noutputs : 0;
}

void lathe_rt_model_info(const LatheRtModel *m, LatheRtModelInfo *out)
{
  const LatheRtModuleInfo *code = lathe_rt_module_info(m->base);
  const LatheRtEntry *first = &m->entry[0].about;
  LatheRtModelInfo info = {.size = out->size,
                           .num_nodes = m->nrun,
                           .target = m->target,
                           .features = code && code->features ? code->features : "",
                           .weights_bytes = m->weights_bytes,
                           .storage_bytes = first->storage_bytes,
                           .storage_bound = first->storage_bound,
                           .is_dynamic = first->is_dynamic,
                           .from_cache = m->from_cache,
                           .prepared_bytes = m->prepared_bytes,
                           .cache_note = m->cache_note,
                           .num_strings = m->nstring};
  memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
}

const char *lathe_rt_model_kernel(const LatheRtModel *m, int32_t i, const char **plan)
{
  if (i < 0 || i >= m->nkernel) return NULL;
  if (plan) *plan = m->kernel[i].plan;
  return m->kernel[i].info->name;
}

const LatheRtNode *lathe_rt_model_node(const LatheRtModel *m, int32_t i)
{
  return m && i >= 0 && i < m->nnode ? &m->node[i] : NULL;
}

/* A dimension of the call's tensors, read ones first; 0: there is none such. */
static double dimension(const ModelFactor *f, int32_t nin, const LatheRtTensor *const *in, int32_t nout,
                        const LatheRtTensor *const *out)
{
  const LatheRtTensor *t = f->tensor < nin ? in[f->tensor] : f->tensor - nin < nout ? out[f->tensor - nin] : NULL;
  return t && f->dim < t->ndim ? (double)t->shape[f->dim] : 0;
}

void lathe_rt_node_work(const LatheRtModel *m, int32_t node, int32_t nin, const LatheRtTensor *const *in, int32_t nout,
                        const LatheRtTensor *const *out, double *flops, double *flops_done)
{
  *flops = *flops_done = 0;
  if (!m || node < 0 || node >= m->nnode) return;
  *flops = m->node[node].flops;
  *flops_done = m->node[node].flops_done;
  for (int32_t i = 0; i < m->work[node].n; i++) {
    const ModelTerm *t = &m->work[node].term[i];
    double n = t->coefficient;
    for (int32_t k = 0; k < t->n; k++) {
      double d = dimension(&t->factor[k], nin, in, nout, out);
      for (int32_t p = t->factor[k].power; p > 0; p--) n *= d;
      for (int32_t p = t->factor[k].power; p < 0; p++) n = d > 0 ? n / d : 0;
    }
    *(t->kind == WORK_DONE ? flops_done : flops) += n;
  }
}
