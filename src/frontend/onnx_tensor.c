/* onnx_tensor.c: tensors of the file as constants.
 *
 * Comes in: a TensorProto whose claims are not to be trusted.  Goes out: a constant that
 * borrows the file's bytes where they lie aligned, and holds its own where they had to
 * be unpacked.  External data is looked for only under the folder allowed. */
#include <errno.h>
#include <stdlib.h>

#include "frontend/onnx_import.h"

DType onnx_dtype(Ctx *ctx, int64_t data_type, const char *what)
{
  static const struct {
    const char *name;
    DType dtype;
  } table[] = {
    {"undefined", {DT_VOID, 0, 1}},
    {"float32", {DT_FLOAT, 32, 1}},
    {"uint8", {DT_UINT, 8, 1}},
    {"int8", {DT_INT, 8, 1}},
    {"uint16", {DT_UINT, 16, 1}},
    {"int16", {DT_INT, 16, 1}},
    {"int32", {DT_INT, 32, 1}},
    {"int64", {DT_INT, 64, 1}},
    {"string", {DT_TEXT, 64, 1}},
    {"bool", {DT_UINT, 1, 1}},
    {"float16", {DT_FLOAT, 16, 1}},
    {"float64", {DT_FLOAT, 64, 1}},
    {"uint32", {DT_UINT, 32, 1}},
    {"uint64", {DT_UINT, 64, 1}},
    {"complex64", {DT_VOID, 0, 1}},
    {"complex128", {DT_VOID, 0, 1}},
    {"bfloat16", {DT_BFLOAT, 16, 1}},
    {"float8_e4m3fn", {DT_E4M3FN, 8, 1}},
    {"float8_e4m3fnuz", {DT_E4M3FNUZ, 8, 1}},
    {"float8_e5m2", {DT_E5M2, 8, 1}},
    {"float8_e5m2fnuz", {DT_E5M2FNUZ, 8, 1}},
    {"uint4", {DT_UINT, 4, 1}},
    {"int4", {DT_INT, 4, 1}},
    {"float4_e2m1", {DT_E2M1FN, 4, 1}},
    {"float8_e8m0", {DT_E8M0FNU, 8, 1}},
    {"uint2", {DT_UINT, 2, 1}},
    {"int2", {DT_INT, 2, 1}},
  };
  if (data_type < 0 || data_type >= (int64_t)(sizeof table / sizeof *table))
    raise(ctx, ERR_TYPE, NOWHERE, "onnx: '%s' has element type %" PRId64 ", which ONNX does not define", what,
          data_type);
  if (table[data_type].dtype.code == DT_VOID)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: '%s' has elements of type %s, which is not supported", what,
          table[data_type].name);
  return table[data_type].dtype;
}

/* ---- external data --------------------------------------------------------------------- */

static int64_t parse_count(Import *im, const char *text, const char *key, const char *name)
{
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || errno || v < 0)
    raise(im->ctx, ERR_PARSE, NOWHERE, "onnx: tensor '%s' has external %s '%s'; a byte count is wanted", name, key,
          text);
  return v;
}

static Bytes external_bytes(Import *im, const PTensor *t, const char *name, size_t wants, const char **path,
                            uint64_t *offset)
{
  const char *location = "";
  int64_t from = 0;
  int64_t length = -1;
  for (int i = 0; i < t->external_data.n; i++) {
    const PEntry *e = t->external_data.v[i];
    if (!strcmp(e->key, "location")) location = e->value;
    else if (!strcmp(e->key, "offset")) from = parse_count(im, e->value, "offset", name);
    else if (!strcmp(e->key, "length")) length = parse_count(im, e->value, "length", name);
  }
  Bytes map = kit_map_beside(im, location, name, path);
  if ((uint64_t)from > map.n || (length >= 0 && (uint64_t)length > map.n - (uint64_t)from))
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: tensor '%s' takes %" PRId64 " bytes at %" PRId64 " of '%s', which has %zu",
          name, length, from, location, map.n);
  *offset = (uint64_t)from;
  /* not stated: what the shape wants */
  if (length < 0) length = (int64_t)(map.n - (size_t)from < wants ? map.n - (size_t)from : wants);
  return (Bytes){map.p + from, (size_t)length};
}

/* ---- elements ----------------------------------------------------------------------------- */

/* The fields of old files: one list per kind of number. */
static void from_lists(Import *im, const PTensor *t, const char *name, size_t count, ConstData *d)
{
  DType dt = d->dtype;
  if (dtype_eq(dt, DT_F32)) {
    kit_check_count(im, name, "floats", (size_t)t->float_data.n, count);
    d->data = arena_copy(im->m->arena, t->float_data.v, d->bytes);
  } else if (dtype_eq(dt, DT_F64)) {
    kit_check_count(im, name, "doubles", (size_t)t->double_data.n, count);
    d->data = arena_copy(im->m->arena, t->double_data.v, d->bytes);
  } else if (dtype_is_string(dt)) {
    kit_check_count(im, name, "strings", (size_t)t->string_data.n, count);
    uint64_t *v = arena_alloc(im->m->arena, d->bytes + 1);
    for (size_t i = 0; i < count; i++) v[i] = ctx_string(im->ctx, t->string_data.v[i].p, t->string_data.v[i].n);
    d->data = v;
  } else {
    const PInts *list = dtype_eq(dt, DT_I64)                  ? &t->int64_data
                        : dt.code == DT_UINT && dt.bits >= 32 ? &t->uint64_data
                                                              : &t->int32_data;
    size_t per = kit_packed_per_byte(dt);
    kit_check_count(im, name, "integers", (size_t)list->n, kit_packed_bytes(dt, count));
    char *v = arena_alloc(im->m->arena, d->bytes);
    size_t size = (size_t)dtype_bytes(dt);
    for (size_t i = 0; i < count; i++) {
      int64_t e = list->v[i / per];
      if (per > 1) v[i] = kit_unpacked(dt, e, i);
      else if (dtype_is_int(dt)) value_store(value_int(dt, dtype_is_bool(dt) ? e != 0 : e), v + i * size);
      else memcpy(v + i * size, &e, size); /* small floats come as their bits; little endian */
    }
    d->data = v;
  }
}

const Node *onnx_tensor(Import *im, const PTensor *t, const char *name)
{
  ConstData d = {.dtype = onnx_dtype(im->ctx, t->data_type, name)};
  size_t count = kit_const_shape(im, name, t->dims.n, t->dims.v, &d);
  if (dtype_is_string(d.dtype) && (t->data_location == 1 || t->has & 1u << PTENSOR_RAW))
    raise(im->ctx, ERR_PARSE, NOWHERE,
          "onnx: tensor '%s' is of strings and has them in raw or external data, where strings cannot be", name);
  if (t->data_location == 1) {
    Bytes raw =
        external_bytes(im, t, name, kit_packed_per_byte(d.dtype) > 1 ? kit_packed_bytes(d.dtype, count) : d.bytes,
                       &d.file, &d.file_offset);
    kit_const_raw(im, name, raw, count, &d);
  } else if (t->has & 1u << PTENSOR_RAW) {
    d.file = im->path;
    d.file_offset = (uint64_t)(t->raw_data.p - im->file.p);
    kit_const_raw(im, name, t->raw_data, count, &d);
  } else {
    from_lists(im, t, name, count, &d);
  }
  return kit_const(im, &d);
}

/* Coordinates in a dense tensor of zeros. */
const Node *onnx_sparse(Import *im, const PSparse *s, const char *name)
{
  if (!s->values || !s->indices)
    raise(im->ctx, ERR_PARSE, NOWHERE, "onnx: sparse tensor '%s' has no values or no indices", name);
  const Node *values = onnx_tensor(im, s->values, name);
  const Node *indices = onnx_tensor(im, s->indices, name);
  const ConstData *v = values->u.data;
  const ConstData *x = indices->u.data;
  if (v->ndim != 1 || !dtype_eq(x->dtype, DT_I64) || x->ndim < 1 || x->ndim > 2 || x->shape[0] != v->shape[0] ||
      s->dims.n > 8 || (x->ndim == 2 && x->shape[1] != s->dims.n))
    raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: the indices of sparse tensor '%s' do not fit its values and shape", name);
  size_t count = 1;
  size_t size = (size_t)dtype_bytes(v->dtype);
  for (int i = 0; i < s->dims.n; i++) {
    if (s->dims.v[i] < 0)
      raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: dimension %d of sparse tensor '%s' is %" PRId64, i, name, s->dims.v[i]);
    count = mem_size_mul(im->ctx, count, (size_t)s->dims.v[i], name);
  }
  char *data = arena_alloc(im->arena, mem_size_mul(im->ctx, count, size, name));
  for (int64_t k = 0; k < v->shape[0]; k++) {
    int64_t at = 0;
    bool inside = true;
    const char *row = (const char *)x->data + (size_t)k * 8 * (x->ndim == 2 ? (size_t)x->shape[1] : 1);
    for (int i = 0; i < (x->ndim == 2 ? s->dims.n : 1); i++) {
      int64_t j;
      memcpy(&j, row + (size_t)i * 8, 8);
      inside = inside && j >= 0 && j < (x->ndim == 2 ? s->dims.v[i] : (int64_t)count);
      at = x->ndim == 2 ? (inside ? at * s->dims.v[i] + j : 0) : j;
    }
    if (!inside)
      raise(im->ctx, ERR_BOUNDS, NOWHERE, "onnx: index %" PRId64 " of sparse tensor '%s' is outside its shape", k,
            name);
    memcpy(data + (size_t)at * size, (const char *)v->data + (size_t)k * size, size);
  }
  return node_const_copy(im->m, v->dtype, s->dims.n, s->dims.v, data);
}
