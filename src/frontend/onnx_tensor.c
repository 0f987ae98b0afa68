/* onnx_tensor.c: tensors of the file as constants.
 *
 * Comes in: a TensorProto whose claims are not to be trusted.  Goes out: a constant that
 * borrows the file's bytes where they lie aligned, and holds its own where they had to
 * be unpacked.  External data is looked for only under the folder allowed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

typedef struct Mapped {
  const void *data;
  size_t n;
} Mapped;

static void close_fd(void *arg) { close((int)(intptr_t)arg); }

/* No part of the location may lead out of the folder: not by its text, not by a link. */
static const char *resolve_external(Import *im, const char *location, const char *name)
{
  if (!im->root)
    raise(im->ctx, ERR_IO, NOWHERE,
          "onnx: tensor '%s' lies in '%s', and a model in memory has no folder; name one for external data", name,
          location);
  if (!*location || *location == '/')
    raise(im->ctx, ERR_IO, NOWHERE,
          "onnx: tensor '%s' lies in '%s'; external data must have a path inside the model's folder", name, location);
  for (const char *s = location; s; s = strchr(s, '/') ? strchr(s, '/') + 1 : NULL)
    if (!strncmp(s, "..", 2) && (s[2] == '/' || !s[2]))
      raise(im->ctx, ERR_IO, NOWHERE,
            "onnx: tensor '%s' lies in '%s'; '..' is not allowed in the path of external data", name, location);
  char *root = arena_alloc(im->arena, PATH_MAX);
  char *path = arena_alloc(im->arena, PATH_MAX);
  if (!realpath(im->root, root))
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: cannot open the folder '%s' for external data: %s", im->root,
          strerror(errno));
  if (!realpath(arena_printf(im->arena, "%s/%s", root, location), path))
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: tensor '%s' lies in '%s/%s', which cannot be opened: %s", name, im->root,
          location, strerror(errno));
  size_t n = strlen(root);
  bool inside = !strcmp(root, "/") || (!strncmp(path, root, n) && path[n] == '/');
  if (!inside)
    raise(im->ctx, ERR_IO, NOWHERE,
          "onnx: tensor '%s' lies in '%s', a link that leaves '%s'; allow its folder as external data root if you "
          "trust it",
          name, location, im->root);
  return arena_strdup(im->m->arena, path);
}

static const Mapped *map_external(Import *im, const char *path, const char *name)
{
  Mapped *map = strmap_get(&im->mapped, path);
  if (map) return map;
  map = arena_new_of(im->arena, Mapped);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: cannot read '%s' for tensor '%s': %s", path, name, strerror(errno));
  Scope scope = scope_begin(im->ctx);
  defer(im->ctx, close_fd, (void *)(intptr_t)fd);
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode))
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: '%s' for tensor '%s' is not a regular file", path, name);
  map->n = (size_t)st.st_size;
  map->data = map->n ? graph_map_file(im->m, fd, map->n) : NULL;
  if (map->n && !map->data) raise(im->ctx, ERR_IO, NOWHERE, "onnx: cannot map '%s': %s", path, strerror(errno));
  scope_end(im->ctx, scope);
  strmap_put(im->arena, &im->mapped, path, map);
  return map;
}

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
  *path = resolve_external(im, location, name);
  const Mapped *map = map_external(im, *path, name);
  if ((uint64_t)from > map->n || (length >= 0 && (uint64_t)length > map->n - (uint64_t)from))
    raise(im->ctx, ERR_IO, NOWHERE, "onnx: tensor '%s' takes %" PRId64 " bytes at %" PRId64 " of '%s', which has %zu",
          name, length, from, location, map->n);
  *offset = (uint64_t)from;
  /* not stated: what the shape wants */
  if (length < 0) length = (int64_t)(map->n - (size_t)from < wants ? map->n - (size_t)from : wants);
  return (Bytes){(const char *)map->data + from, (size_t)length};
}

/* ---- elements ----------------------------------------------------------------------------- */

/* Elements of 4 and 2 bits are packed, several in a byte. */
static size_t packed_per_byte(DType t) { return t.bits == 4 || t.bits == 2 ? 8 / t.bits : 1; }
static size_t packed_bytes(DType t, size_t count)
{
  return count / packed_per_byte(t) + (count % packed_per_byte(t) != 0);
}

/* Element i of those in a byte, the lowest bits first; a float by its bits. */
static int8_t unpacked(DType t, int64_t byte, size_t i)
{
  DType bits = DTYPE(t.code == DT_INT ? DT_INT : DT_UINT, t.bits);
  return (int8_t)value_int(bits, byte >> (i % packed_per_byte(t) * t.bits)).i;
}

static void check_count(Import *im, const char *name, const char *what, size_t has, size_t wants)
{
  if (has != wants)
    raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: tensor '%s' has %zu %s, and its shape wants %zu", name, has, what, wants);
}

static void from_raw(Import *im, const char *name, Bytes raw, size_t count, ConstData *d)
{
  size_t size = (size_t)dtype_bytes(d->dtype);
  size_t per = packed_per_byte(d->dtype);
  if (per > 1) {
    check_count(im, name, "bytes of data", raw.n, packed_bytes(d->dtype, count));
    int8_t *v = arena_alloc(im->m->arena, count);
    for (size_t i = 0; i < count; i++) v[i] = unpacked(d->dtype, (uint8_t)raw.p[i / per], i);
    d->data = v;
    d->file = NULL;
    return;
  }
  check_count(im, name, "bytes of data", raw.n, d->bytes);
  bool clean = true; /* a bool is 0 or 1, whatever the file says */
  for (size_t i = 0; dtype_is_bool(d->dtype) && i < count && clean; i++) clean = (uint8_t)raw.p[i] < 2;
  if (clean && (uintptr_t)raw.p % size == 0) {
    d->data = raw.p;
    return;
  }
  char *copy = memcpy(blob_alloc(im->m, raw.n + 1), raw.p, raw.n); /* a blob: copies of the module share it */
  graph_unneeded(im->m, raw.p, raw.n);
  for (size_t i = 0; !clean && i < count; i++) copy[i] = copy[i] != 0;
  d->data = copy;
  d->file = NULL;
}

/* The fields of old files: one list per kind of number. */
static void from_lists(Import *im, const PTensor *t, const char *name, size_t count, ConstData *d)
{
  DType dt = d->dtype;
  if (dtype_eq(dt, DT_F32)) {
    check_count(im, name, "floats", (size_t)t->float_data.n, count);
    d->data = arena_copy(im->m->arena, t->float_data.v, d->bytes);
  } else if (dtype_eq(dt, DT_F64)) {
    check_count(im, name, "doubles", (size_t)t->double_data.n, count);
    d->data = arena_copy(im->m->arena, t->double_data.v, d->bytes);
  } else if (dtype_is_string(dt)) {
    check_count(im, name, "strings", (size_t)t->string_data.n, count);
    uint64_t *v = arena_alloc(im->m->arena, d->bytes + 1);
    for (size_t i = 0; i < count; i++) v[i] = ctx_string(im->ctx, t->string_data.v[i].p, t->string_data.v[i].n);
    d->data = v;
  } else {
    const PInts *list = dtype_eq(dt, DT_I64)                  ? &t->int64_data
                        : dt.code == DT_UINT && dt.bits >= 32 ? &t->uint64_data
                                                              : &t->int32_data;
    size_t per = packed_per_byte(dt);
    check_count(im, name, "integers", (size_t)list->n, packed_bytes(dt, count));
    char *v = arena_alloc(im->m->arena, d->bytes);
    size_t size = (size_t)dtype_bytes(dt);
    for (size_t i = 0; i < count; i++) {
      int64_t e = list->v[i / per];
      if (per > 1) v[i] = unpacked(dt, e, i);
      else if (dtype_is_int(dt)) value_store(value_int(dt, dtype_is_bool(dt) ? e != 0 : e), v + i * size);
      else memcpy(v + i * size, &e, size); /* small floats come as their bits; little endian */
    }
    d->data = v;
  }
}

const Node *onnx_tensor(Import *im, const PTensor *t, const char *name)
{
  ConstData d = {.dtype = onnx_dtype(im->ctx, t->data_type, name), .ndim = t->dims.n};
  if (d.ndim > MAX_RANK)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: tensor '%s' has %d dimensions; there are at most %d", name, d.ndim,
          MAX_RANK);
  size_t count = 1;
  for (int i = 0; i < d.ndim; i++) {
    d.shape[i] = t->dims.v[i];
    if (d.shape[i] < 0)
      raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: dimension %d of tensor '%s' is %" PRId64, i, name, d.shape[i]);
    count = mem_size_mul(im->ctx, count, (size_t)d.shape[i], name);
  }
  d.bytes = mem_size_mul(im->ctx, count, (size_t)dtype_bytes(d.dtype), name);
  if (dtype_is_string(d.dtype) && (t->data_location == 1 || t->has & 1u << PTENSOR_RAW))
    raise(im->ctx, ERR_PARSE, NOWHERE,
          "onnx: tensor '%s' is of strings and has them in raw or external data, where strings cannot be", name);
  if (t->data_location == 1) {
    Bytes raw = external_bytes(im, t, name, packed_per_byte(d.dtype) > 1 ? packed_bytes(d.dtype, count) : d.bytes,
                               &d.file, &d.file_offset);
    from_raw(im, name, raw, count, &d);
  } else if (t->has & 1u << PTENSOR_RAW) {
    d.file = im->path;
    d.file_offset = (uint64_t)(t->raw_data.p - im->file.p);
    from_raw(im, name, t->raw_data, count, &d);
  } else {
    from_lists(im, t, name, count, &d);
  }
  if (im->report) im->report->weights_bytes += (int64_t)d.bytes;
  return node_const(im->m, &d);
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
