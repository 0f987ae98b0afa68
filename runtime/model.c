/* model.c: models: from a file or memory, counted, and what they tell of themselves. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static LatheRtCode model_new(LatheRtModule *module, const LatheRtModelData *data, LatheRtModel **out, LatheRtError *err)
{
  if (memcmp(data->magic, MODEL_MAGIC, 8) != 0)
    return rt_fail(err, LATHE_RT_ARGUMENT, "the model was not made by Lathe: its table has no mark");
  if ((!data->program && data->program_bytes) || data->program_bytes > PTRDIFF_MAX ||
      (!data->weights && data->weights_bytes && !data->consts))
    return rt_fail(err, LATHE_RT_ARGUMENT, "the model is broken: its table has no program or no weights");
  LatheRtModel *m = calloc(1, sizeof *m);
  if (!m) return rt_fail(err, LATHE_RT_MEMORY, "model: out of memory");
  atomic_store(&m->refs, 1);
  m->module = module;
  LatheRtCode code = rt_model_read(m, data, err);
  if (code != LATHE_RT_OK) {
    rt_chunk_drop(&m->chunks);
    free(m);
    return code;
  }
  rt_module_retain(module);
  *out = m;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_model_wrap(LatheRtModule *module, const LatheRtModelData *data, void (*drop)(void *), void *user,
                                LatheRtModel **out, LatheRtError *err)
{
  if (!module || !data || !out)
    return rt_fail(err, LATHE_RT_ARGUMENT, "model_wrap: module, data and out must not be null");
  *out = NULL;
  RT_TRY(model_new(module, data, out, err));
  (*out)->drop = drop;
  (*out)->user = user;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_model_of(LatheRtModule *module, LatheRtModel **out, LatheRtError *err)
{
  if (!module || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "model_of: module and out must not be null");
  *out = NULL;
  const LatheRtModelData *data = rt_module_model(module);
  if (!data) return rt_fail(err, LATHE_RT_NOT_FOUND, "the module has kernels alone, no model");
  return model_new(module, data, out, err);
}

LatheRtCode lathe_rt_model_load(const char *path, LatheRtModel **out, LatheRtError *err)
{
  if (!path || !out) return rt_fail(err, LATHE_RT_ARGUMENT, "model_load: path and out must not be null");
  *out = NULL;
  LatheRtModule *module;
  RT_TRY(lathe_rt_module_load(path, &module, err));
  LatheRtError why;
  LatheRtCode code = lathe_rt_model_of(module, out, &why);
  if (code != LATHE_RT_OK) rt_fail(err, code, "'%.150s': %.330s", path, why.text);
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
  LatheRtModule *module = m->module;
  void (*drop)(void *) = m->drop;
  void *user = m->user;
  rt_chunk_drop(&m->chunks);
  free(m);
  rt_module_release(module);
  if (drop) drop(user);
}

int32_t lathe_rt_model_inputs(const LatheRtModel *m, const LatheRtPort **out)
{
  if (out) *out = m ? m->input : NULL;
  return m ? m->ninput : 0;
}

int32_t lathe_rt_model_outputs(const LatheRtModel *m, const LatheRtPort **out)
{
  if (out) *out = m ? m->output : NULL;
  return m ? m->noutput : 0;
}

LatheRtModelInfo lathe_rt_model_info(const LatheRtModel *m)
{
  const LatheRtModuleInfo *code = lathe_rt_module_info(m->module);
  return (LatheRtModelInfo){.target = m->target,
                            .features = code->features ? code->features : "",
                            .weights_bytes = m->weights_bytes,
                            .storage_bytes = m->storage_bytes,
                            .storage_bound = m->storage_bound,
                            .num_nodes = m->nnode,
                            .is_dynamic = m->is_static   ? 0
                                          : m->has_calls ? 2
                                                         : 1};
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
