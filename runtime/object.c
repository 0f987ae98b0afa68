/* object.c: values that programs hand on and do not look into. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static const char model_kind[] = "model";

LatheRtCode lathe_rt_object_new(const char *kind, void *data, void (*drop)(void *), LatheRtObject **out,
                                LatheRtError *err)
{
  if (!kind || !*kind || !out) return rt_null(err, "object_new");
  *out = NULL;
  if (!strcmp(kind, model_kind))
    return rt_fail(err, LATHE_RT_ARGUMENT, "object_new: the kind '%s' is that of models' own data", kind);
  size_t n = strlen(kind) + 1;
  LatheRtObject *o = calloc(1, sizeof *o + n);
  if (!o) return rt_no_memory(err, "object_new");
  atomic_store(&o->refs, 1);
  o->data = data;
  o->drop = drop;
  memcpy(o->kind, kind, n);
  *out = o;
  return LATHE_RT_OK;
}

LatheRtObject *lathe_rt_object_retain(LatheRtObject *o)
{
  if (o) atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
  return o;
}

void lathe_rt_object_free(LatheRtObject *o)
{
  if (!o || atomic_fetch_sub(&o->refs, 1) != 1) return;
  if (o->drop) o->drop(o->data);
  rt_object_disown(o);
  free(o);
}

void *lathe_rt_object_data(const LatheRtObject *o, const char *kind)
{
  return o && kind && !strcmp(o->kind, kind) ? o->data : NULL;
}

const char *lathe_rt_object_kind(const LatheRtObject *o) { return o ? o->kind : ""; }

/* ---- a model's own data ----------------------------------------------------------- */

LatheRtCode rt_object_of(LatheRtExecutor *x, const Value *v, LatheRtObject **out, LatheRtError *err)
{
  if (v->kind == VALUE_OBJECT) {
    *out = lathe_rt_object_retain(v->object);
    return LATHE_RT_OK;
  }
  LatheRtObject *o = calloc(1, sizeof *o + sizeof model_kind);
  if (!o) return rt_no_memory(err, "an object");
  atomic_store(&o->refs, 1);
  memcpy(o->kind, model_kind, sizeof model_kind);
  rt_value_copy(&o->value, v);
  o->owner = x;
  o->next = x->objects;
  if (o->next) o->next->previous = o;
  x->objects = o;
  *out = o;
  return LATHE_RT_OK;
}

void rt_object_disown(LatheRtObject *o)
{
  if (!o->owner) return;
  rt_value_clear(&o->value);
  if (o->previous) o->previous->next = o->next;
  else o->owner->objects = o->next;
  if (o->next) o->next->previous = o->previous;
  o->owner = NULL;
  o->next = o->previous = NULL;
}

LatheRtCode rt_object_value(LatheRtExecutor *x, LatheRtObject *o, Value *to, LatheRtError *err)
{
  if (strcmp(o->kind, model_kind) == 0) {
    if (o->owner != x)
      return rt_fail(err, LATHE_RT_ARGUMENT,
                     "the object is data of %s; only the executor that made it can take it back",
                     o->owner ? "another executor" : "an executor that has ended");
    rt_value_copy(to, &o->value);
    return LATHE_RT_OK;
  }
  lathe_rt_object_retain(o);
  rt_value_clear(to);
  to->kind = VALUE_OBJECT;
  to->object = o;
  return LATHE_RT_OK;
}
