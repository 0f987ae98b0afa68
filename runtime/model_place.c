/* model_place.c: what a model is made of, brought to where it is used: its modules, and its constants on devices. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ---- modules ----------------------------------------------------------------------- */

static LatheRtCode library(LatheRtModel *m, uint32_t i, const LatheRtModelData *data, LatheRtModule **out,
                           LatheRtError *err)
{
  uint32_t n = data->modules ? data->nmodules : 1;
  const LatheRtModuleInfo *base = lathe_rt_module_info(m->base);
  if (i >= n || (data->modules && !data->modules[i]))
    return rt_broken(err, "it speaks of library %u, there are %u", i, n);
  if (data->modules && data->modules[i] != base) return lathe_rt_module_wrap(data->modules[i], NULL, NULL, out, err);
  rt_module_retain(m->base);
  *out = m->base;
  return LATHE_RT_OK;
}

LatheRtCode rt_model_module(LatheRtModel *m, int32_t i, const char *kind, const char *name, uint32_t number,
                            const LatheRtModelData *data, const void *bytes, size_t n, LatheRtError *err)
{
  if (!strcmp(kind, "library")) return library(m, number, data, &m->module[i], err);
  return rt_module_from(kind, name, bytes, n, &m->module[i], err);
}

/* ---- constants ----------------------------------------------------------------------- */

static bool is_elsewhere(const LatheRtModel *m, const ModelConst *c)
{
  return c->bytes && m->device[c->device].device.type != LATHE_RT_CPU;
}

static LatheRtCode upload(ModelConst *c, const ModelDevice *d, LatheRtError *err)
{
  LatheRtPlace to = {.device = d->device};
  LatheRtPlace from = {.device = {LATHE_RT_CPU, 0}, .data = (void *)(uintptr_t)c->data};
  c->data = NULL;
  RT_TRY(rt_device_alloc(d->api, d->device, c->bytes, d->align, &to.data, err));
  c->data = to.data;
  return lathe_rt_device_copy(to, from, c->bytes, err);
}

/* Those that are not to be had yet have no data of their own: what is freed is what was made here. */
LatheRtCode rt_model_place(LatheRtModel *m, LatheRtError *err)
{
  for (int32_t i = 0; i < m->nconst; i++) {
    ModelConst *c = &m->constant[i];
    if (c->place == CONST_PREPARED) c->data = (const char *)m->prepared + c->offset;
    if (!is_elsewhere(m, c)) continue;
    c->placed = true;
    RT_TRY(upload(c, &m->device[c->device], err));
  }
  return LATHE_RT_OK;
}

void rt_model_unplace(LatheRtModel *m)
{
  for (int32_t i = 0; m->constant && i < m->nconst; i++) {
    const ModelConst *c = &m->constant[i];
    const ModelDevice *d = &m->device[c->device];
    if (c->placed && c->data) d->api->free(d->api->user, d->device.id, (void *)(uintptr_t)c->data);
  }
  for (int32_t i = 0; i < m->ndevice; i++) {
    const ModelDevice *d = &m->device[i];
    if (d->image) d->api->image_free(d->api->user, d->device.id, d->image);
  }
}
