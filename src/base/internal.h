/* internal.h: the inside of a context, for the files of this folder. */
#ifndef LATHE_BASE_INTERNAL_H
#define LATHE_BASE_INTERNAL_H

#include <setjmp.h>

#include "base/base.h"

typedef struct Chunk {
  struct Chunk *prev;
  size_t size, used;
  _Alignas(16) unsigned char data[];
} Chunk;

struct Arena {
  Ctx *ctx;
  Chunk *top;
};

typedef struct Frame {
  struct Frame *prev;
  Scope scope;
  jmp_buf jump;
} Frame;

typedef struct Cleanup {
  void (*fn)(void *);
  void *arg;
} Cleanup;

typedef struct Numbered {
  const char *s;
  size_t n;
  int next; /* of the same hash, 1 + number */
} Numbered;

struct Ctx {
  Arena permanent, scratch;
  Frame *frame; /* innermost protect() */
  Cleanup *cleanup;
  size_t ncleanup, cleanup_cap;
  ErrKind kind;
  char message[2048];
  char file[512];
  int line, col;
  int (*poll)(void *);
  void *poll_arg;
  int64_t allocations, fail_at;
  uint64_t number; /* the last that ctx_number gave */
  Vec(Numbered) strings;
  Map string_by_hash; /* hash | 1 -> 1 + number of the newest */
};

/* Counts an allocation and raises if it is the one to fail. */
void mem_count(Ctx *);
void arena_init(Arena *, Ctx *);
void arena_drop(Arena *); /* frees the chunks, keeps the struct usable */
void arena_rewind(Arena *, void *chunk, size_t used);

#endif
