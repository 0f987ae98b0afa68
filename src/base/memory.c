/* memory.c: the allocator, arenas, sizes and integers that do not overflow.
 *
 * An arena is a list of chunks, newest first.  Under AddressSanitizer every
 * allocation gets a chunk of its own, so that overruns are seen. */
#include "base/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CHUNK_MIN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHUNK_MIN 1
#endif
#endif
#ifndef CHUNK_MIN
#define CHUNK_MIN 32768
#endif

enum { POLL_EVERY = 4096 }; /* allocations */

void mem_count(Ctx *ctx)
{
  ctx->allocations++;
  if (ctx->fail_at && --ctx->fail_at == 0) raise(ctx, ERR_MEMORY, NOWHERE, "out of memory");
  if (ctx->allocations % POLL_EVERY == 0 && ctx->frame) ctx_poll(ctx);
}

int64_t mem_fail_after(Ctx *ctx, int64_t n)
{
  int64_t made = ctx->allocations;
  ctx->allocations = 0;
  ctx->fail_at = n;
  return made;
}

/* A system may promise more memory than there is and kill who uses it.  A size that
 * the machine never had comes from a model that lies; it is refused before. */
static bool mem_exists(size_t size)
{
  if (size < (size_t)1 << 30) return true;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages <= 0 || page <= 0 || size / (size_t)page < (size_t)pages;
}

void *mem_alloc(Ctx *ctx, size_t size)
{
  mem_count(ctx);
  void *p = mem_exists(size) ? calloc(1, size ? size : 1) : NULL;
  if (!p) raise(ctx, ERR_MEMORY, NOWHERE, "out of memory: %zu bytes were asked for", size);
  return p;
}

void mem_free(Ctx *ctx, void *p)
{
  (void)ctx;
  free(p);
}

void arena_init(Arena *arena, Ctx *ctx) { *arena = (Arena){.ctx = ctx}; }

void arena_drop(Arena *arena)
{
  while (arena->top) {
    Chunk *prev = arena->top->prev;
    free(arena->top);
    arena->top = prev;
  }
}

void arena_rewind(Arena *arena, void *chunk, size_t used)
{
  while (arena->top && arena->top != chunk) {
    Chunk *prev = arena->top->prev;
    free(arena->top);
    arena->top = prev;
  }
  if (arena->top) arena->top->used = used;
}

Arena *arena_new(Ctx *ctx)
{
  Arena *arena = mem_alloc(ctx, sizeof *arena);
  arena_init(arena, ctx);
  return arena;
}

void arena_free(Arena *arena)
{
  if (!arena) return;
  arena_drop(arena);
  free(arena);
}

Ctx *arena_ctx(const Arena *arena) { return arena->ctx; }

static Chunk *arena_chunk(Arena *arena, size_t size)
{
  size_t room = size < CHUNK_MIN ? CHUNK_MIN : size;
  Chunk *chunk = mem_exists(size) ? malloc(sizeof *chunk + room) : NULL;
  if (!chunk) raise(arena->ctx, ERR_MEMORY, NOWHERE, "out of memory: %zu bytes were asked for", size);
  *chunk = (Chunk){.prev = arena->top, .size = room};
  arena->top = chunk;
  return chunk;
}

void *arena_alloc(Arena *arena, size_t size)
{
  mem_count(arena->ctx);
  Chunk *chunk = arena->top;
  if (!chunk || chunk->size - chunk->used < size) chunk = arena_chunk(arena, size);
  void *p = chunk->data + chunk->used;
  size_t step = (size + 15) & ~(size_t)15;
  chunk->used = chunk->size - chunk->used < step ? chunk->size : chunk->used + step;
  return memset(p, 0, size);
}

void *arena_alloc_array(Arena *arena, size_t n, size_t size)
{
  return arena_alloc(arena, mem_size_mul(arena->ctx, n, size, "an array"));
}

void *arena_copy(Arena *arena, const void *p, size_t size)
{
  void *copy = arena_alloc(arena, size);
  if (size) memcpy(copy, p, size);
  return copy;
}

char *arena_strndup(Arena *arena, const char *s, size_t n)
{
  char *copy = arena_alloc(arena, n + 1);
  if (n) memcpy(copy, s, n);
  return copy;
}

char *arena_strdup(Arena *arena, const char *s) { return arena_strndup(arena, s, strlen(s)); }

char *arena_printf(Arena *arena, const char *fmt, ...)
{
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  char *s = arena_alloc(arena, (size_t)n + 1);
  vsnprintf(s, (size_t)n + 1, fmt, again);
  va_end(again);
  return s;
}

size_t mem_size_mul(Ctx *ctx, size_t a, size_t b, const char *what)
{
  size_t r;
  if (__builtin_mul_overflow(a, b, &r))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "%s is too large: %zu times %zu bytes", what, a, b);
  return r;
}

bool int_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
bool int_sub(int64_t a, int64_t b, int64_t *out) { return !__builtin_sub_overflow(a, b, out); }
bool int_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

int64_t int_floordiv(int64_t a, int64_t b)
{
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

int64_t int_floormod(int64_t a, int64_t b)
{
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t int_gcd(int64_t a, int64_t b)
{
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  uint64_t y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t t = x % y;
    x = y;
    y = t;
  }
  return (int64_t)x;
}
