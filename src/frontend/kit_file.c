/* kit_file.c: the file, files beside it, and constants that borrow their bytes.
 *
 * Comes in: bytes whose claims are not to be trusted.  Goes out: constants that borrow them where they lie aligned, and
 * hold their own where they had to be unpacked.  External data is looked for only under the folder
 * allowed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/kit.h"

static void close_fd(void *arg) { close((int)(intptr_t)arg); }

/* ---- the file ------------------------------------------------------------------------------ */

Bytes kit_map_file(Module *m, const char *format, const char *path)
{
  Ctx *ctx = m->ctx;
  Scope scope = scope_begin(ctx);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': %s", path, strerror(errno));
  defer(ctx, close_fd, (void *)(intptr_t)fd);
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': not a regular file", path);
  if (!st.st_size) raise(ctx, ERR_PARSE, NOWHERE, "%s: '%s' is empty", format, path);
  Bytes file = {.n = (size_t)st.st_size};
  file.p = graph_map_file(m, fd, file.n); /* copies of the module share the file */
  if (!file.p) raise(ctx, ERR_IO, NOWHERE, "cannot map '%s': %s", path, strerror(errno));
  scope_end(ctx, scope);
  return file;
}

typedef struct FileCopy {
  Ctx *ctx;
  void *data;
  size_t n;
} FileCopy;

static void drop_copy(void *arg)
{
  FileCopy *f = arg;
  mem_free(f->ctx, f->data);
  mem_free(f->ctx, f);
}

static void alloc_copy(Ctx *ctx, void *arg)
{
  FileCopy *f = arg;
  f->data = mem_alloc(ctx, f->n ? f->n : 1);
}

/* The constants outlive the caller's buffer: one copy, which they borrow. */
Bytes kit_keep_bytes(Module *m, const void *bytes, size_t n)
{
  FileCopy *copy = mem_alloc(m->ctx, sizeof *copy);
  *copy = (FileCopy){m->ctx, NULL, n};
  if (protect(m->ctx, alloc_copy, copy)) {
    mem_free(m->ctx, copy);
    error_reraise(m->ctx);
  }
  if (n) memcpy(copy->data, bytes, n);
  graph_adopt(m, copy->data, n, drop_copy, copy);
  return (Bytes){copy->data, n};
}

static void free_arena(void *arena) { arena_free(arena); }

void kit_import(Import *im, Module *m, Bytes file, const char *path, const ImportOptions *opt, ImportReport *report,
                void (*read)(Import *))
{
  static const ImportOptions plain;
  im->m = m;
  im->ctx = m->ctx;
  im->file = file;
  im->opt = opt ? opt : &plain;
  im->report = report;
  op_init();
  if (report) *report = (ImportReport){0};
  im->arena = arena_new(m->ctx);
  Scope scope = scope_begin(m->ctx);
  defer(m->ctx, free_arena, im->arena);
  im->root = im->opt->external_root;
  if (!im->root && path) {
    const char *slash = strrchr(path, '/');
    im->root = !slash ? "." : slash == path ? "/" : arena_strndup(im->arena, path, (size_t)(slash - path));
  }
  im->path = path ? arena_strdup(m->arena, path) : NULL;
  read(im);
  scope_end(m->ctx, scope);
}

/* ---- external data --------------------------------------------------------------------- */

/* No part of the location may lead out of the folder: not by its text, not by a link. */
static const char *resolve_external(Import *im, const char *location, const char *name)
{
  if (!im->root)
    raise(im->ctx, ERR_IO, NOWHERE,
          "%s: tensor '%s' lies in '%s', and a model in memory has no folder; name one for external data", im->format,
          name, location);
  if (!*location || *location == '/')
    raise(im->ctx, ERR_IO, NOWHERE,
          "%s: tensor '%s' lies in '%s'; external data must have a path inside the model's folder", im->format, name,
          location);
  for (const char *s = location; s; s = strchr(s, '/') ? strchr(s, '/') + 1 : NULL)
    if (!strncmp(s, "..", 2) && (s[2] == '/' || !s[2]))
      raise(im->ctx, ERR_IO, NOWHERE, "%s: tensor '%s' lies in '%s'; '..' is not allowed in the path of external data",
            im->format, name, location);
  char *root = arena_alloc(im->arena, PATH_MAX);
  char *path = arena_alloc(im->arena, PATH_MAX);
  if (!realpath(im->root, root))
    raise(im->ctx, ERR_IO, NOWHERE, "%s: cannot open the folder '%s' for external data: %s", im->format, im->root,
          strerror(errno));
  if (!realpath(arena_printf(im->arena, "%s/%s", root, location), path))
    raise(im->ctx, ERR_IO, NOWHERE, "%s: tensor '%s' lies in '%s/%s', which cannot be opened: %s", im->format, name,
          im->root, location, strerror(errno));
  size_t n = strlen(root);
  bool inside = !strcmp(root, "/") || (!strncmp(path, root, n) && path[n] == '/');
  if (!inside)
    raise(im->ctx, ERR_IO, NOWHERE,
          "%s: tensor '%s' lies in '%s', a link that leaves '%s'; allow its folder as external data root if you "
          "trust it",
          im->format, name, location, im->root);
  return arena_strdup(im->m->arena, path);
}

static const Bytes *map_external(Import *im, const char *path, const char *name)
{
  Bytes *map = strmap_get(&im->mapped, path);
  if (map) return map;
  map = arena_new_of(im->arena, Bytes);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    raise(im->ctx, ERR_IO, NOWHERE, "%s: cannot read '%s' for tensor '%s': %s", im->format, path, name,
          strerror(errno));
  Scope scope = scope_begin(im->ctx);
  defer(im->ctx, close_fd, (void *)(intptr_t)fd);
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode))
    raise(im->ctx, ERR_IO, NOWHERE, "%s: '%s' for tensor '%s' is not a regular file", im->format, path, name);
  map->n = (size_t)st.st_size;
  map->p = map->n ? graph_map_file(im->m, fd, map->n) : NULL;
  if (map->n && !map->p) raise(im->ctx, ERR_IO, NOWHERE, "%s: cannot map '%s': %s", im->format, path, strerror(errno));
  scope_end(im->ctx, scope);
  strmap_put(im->arena, &im->mapped, path, map);
  return map;
}

Bytes kit_map_beside(Import *im, const char *location, const char *tensor, const char **path)
{
  *path = resolve_external(im, location, tensor);
  return *map_external(im, *path, tensor);
}

/* ---- elements ----------------------------------------------------------------------------- */

/* Elements of 4 and 2 bits are packed, several in a byte. */
size_t kit_packed_per_byte(DType t) { return t.bits == 4 || t.bits == 2 ? 8 / t.bits : 1; }
size_t kit_packed_bytes(DType t, size_t count)
{
  return count / kit_packed_per_byte(t) + (count % kit_packed_per_byte(t) != 0);
}

/* Element i of those in a byte, the lowest bits first; a float by its bits. */
int8_t kit_unpacked(DType t, int64_t byte, size_t i)
{
  DType bits = DTYPE(t.code == DT_INT ? DT_INT : DT_UINT, t.bits);
  return (int8_t)value_int(bits, byte >> (i % kit_packed_per_byte(t) * t.bits)).i;
}

void kit_check_count(Import *im, const char *name, const char *what, size_t has, size_t wants)
{
  if (has != wants)
    raise(im->ctx, ERR_SHAPE, NOWHERE, "%s: tensor '%s' has %zu %s, and its shape wants %zu", im->format, name, has,
          what, wants);
}

void kit_const_raw(Import *im, const char *name, Bytes raw, size_t count, ConstData *d)
{
  size_t size = (size_t)dtype_bytes(d->dtype);
  size_t per = kit_packed_per_byte(d->dtype);
  if (per > 1) {
    kit_check_count(im, name, "bytes of data", raw.n, kit_packed_bytes(d->dtype, count));
    int8_t *v = arena_alloc(im->m->arena, count);
    for (size_t i = 0; i < count; i++) v[i] = kit_unpacked(d->dtype, (uint8_t)raw.p[i / per], i);
    d->data = v;
    d->file = NULL;
    return;
  }
  kit_check_count(im, name, "bytes of data", raw.n, d->bytes);
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

/* ---- constants ----------------------------------------------------------------------------- */

size_t kit_const_shape(Import *im, const char *tensor, int n, const int64_t *dim, ConstData *d)
{
  size_t count = 1;
  d->ndim = n;
  if (n > MAX_RANK)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: tensor '%s' has %d dimensions; there are at most %d", im->format,
          tensor, n, MAX_RANK);
  for (int i = 0; i < n; i++) {
    d->shape[i] = dim[i];
    if (dim[i] < 0)
      raise(im->ctx, ERR_SHAPE, NOWHERE, "%s: dimension %d of tensor '%s' is %" PRId64, im->format, i, tensor, dim[i]);
    count = mem_size_mul(im->ctx, count, (size_t)dim[i], tensor);
  }
  d->bytes = mem_size_mul(im->ctx, count, (size_t)dtype_bytes(d->dtype), tensor);
  return count;
}

const Node *kit_const(Import *im, const ConstData *d)
{
  if (im->report) im->report->weights_bytes += (int64_t)d->bytes;
  return node_const(im->m, d);
}
