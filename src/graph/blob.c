/* blob.c: bytes that outlive a module: a mapped model file, folded constants.
 *
 * A blob is counted.  Modules keep references and give them back when they die, so a
 * constant may borrow a blob's bytes in every module that keeps the blob. */
#include <sys/mman.h>
#include <unistd.h>

#include "graph/state.h"

struct Blob {
  Ctx *ctx;
  const char *data;
  size_t n;
  int refs;
  bool mapped; /* a file's bytes, to be unmapped */
  void (*drop)(void *user);
  void *user;
};

static void alloc_blob(Ctx *ctx, void *arg) { *(Blob **)arg = mem_alloc(ctx, sizeof(Blob)); }

/* The bytes are held already, so a failure drops them at once. */
Blob *blob_new(Ctx *ctx, const void *data, size_t n, void (*drop)(void *user), void *user)
{
  Blob *b = NULL;
  if (protect(ctx, alloc_blob, &b)) {
    if (drop) drop(user);
    error_reraise(ctx);
  }
  *b = (Blob){.ctx = ctx, .data = data, .n = n, .refs = 1, .drop = drop, .user = user};
  return b;
}

static void release_kept(void *blob) { blob_release(blob); }

void graph_adopt(Module *m, const void *data, size_t n, void (*drop)(void *user), void *user)
{
  Scope s = scope_begin(m->ctx);
  Blob *b = blob_new(m->ctx, data, n, drop, user);
  defer(m->ctx, release_kept, b);
  graph_keep(m, b);
  scope_end(m->ctx, s);
}

const void *graph_map_file(Module *m, int fd, size_t n)
{
  Scope s = scope_begin(m->ctx);
  Blob *b = blob_new(m->ctx, NULL, n, NULL, NULL);
  defer(m->ctx, release_kept, b);
  void *data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data != MAP_FAILED) {
    b->data = data;
    b->mapped = true;
    graph_keep(m, b);
  }
  scope_end(m->ctx, s);
  return data == MAP_FAILED ? NULL : data;
}

void graph_unneeded(Module *m, const void *data, size_t n)
{
  const Blob *b = graph_blob_of(m, data, n);
  if (!b || !b->mapped) return;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t from = ((size_t)((const char *)data - b->data) + page - 1) / page * page;
  size_t to = ((size_t)((const char *)data - b->data) + n) / page * page;
  if (from < to) madvise((void *)(uintptr_t)(b->data + from), to - from, MADV_DONTNEED); /* advice: it may fail */
}

void *blob_alloc(Module *m, size_t n)
{
  char *block = mem_alloc(m->ctx, sizeof(Blob) + n + 63); /* one block: it goes with the blob */
  Blob *b = (Blob *)(void *)block;
  char *data = block + sizeof(Blob);
  data += (64 - (uintptr_t)data % 64) % 64;
  *b = (Blob){.ctx = m->ctx, .data = data, .n = n, .refs = 1};
  Scope s = scope_begin(m->ctx);
  defer(m->ctx, release_kept, b); /* the caller's reference; the module has its own */
  graph_keep(m, b);
  scope_end(m->ctx, s);
  return data;
}

void blob_release(Blob *b)
{
  if (!b || --b->refs > 0) return;
  if (b->drop) b->drop(b->user);
  if (b->mapped) munmap((void *)(uintptr_t)b->data, b->n);
  mem_free(b->ctx, b);
}

void graph_keep(Module *m, Blob *b)
{
  GraphState *state = graph_state(m);
  if (map_has(&state->blobs, b)) return;
  module_defer(m, release_kept, b);
  b->refs++;
  map_put(m->arena, &state->blobs, b, b);
}

Blob *graph_blob_of(Module *m, const void *data, size_t n)
{
  for (int i = 0; m->graph && i < m->graph->blobs.n; i++) {
    Blob *b = m->graph->blobs.val[i];
    const char *p = data;
    if (p >= b->data && p + n <= b->data + b->n) return b;
  }
  return NULL;
}
