/* error.c: contexts, raising and catching, deferred cleanups.
 *
 * One stack unwinds together: frames of protect(), cleanups, scratch memory.  A
 * frame remembers how tall the other two were when it was entered. */
#include "base/internal.h"

#include <stdio.h>
#include <stdlib.h>

const char *error_kind_name(ErrKind kind)
{
  static const char *const names[] = {
#define X(id, name) name,
    ERROR_KINDS(X)
#undef X
  };
  return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown error";
}

_Noreturn static void unwind(Ctx *ctx)
{
  if (!ctx->frame) {
    fprintf(stderr, "lathe: %s outside of any protected call: %s\n", error_kind_name(ctx->kind), ctx->message);
    abort();
  }
  longjmp(ctx->frame->jump, 1);
}

static void set_error(Ctx *ctx, ErrKind kind, Loc loc, const char *fmt, va_list args)
{
  char text[sizeof ctx->message]; /* arguments may point into the old message */
  vsnprintf(text, sizeof text, fmt, args);
  memcpy(ctx->message, text, sizeof text);
  ctx->kind = kind;
  ctx->line = loc.line;
  ctx->col = loc.col;
  snprintf(ctx->file, sizeof ctx->file, "%s", loc.file ? loc.file : "");
}

_Noreturn void error_raise(Ctx *ctx, ErrKind kind, Loc loc, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  set_error(ctx, kind, loc, fmt, args);
  va_end(args);
  unwind(ctx);
}

_Noreturn void error_bug(Ctx *ctx, const char *file, int line, const char *fmt, ...)
{
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  error_raise(ctx, ERR_INTERNAL, NOWHERE, "internal error: %s (%s:%d)", text, file, line);
}

_Noreturn void error_reraise(Ctx *ctx) { unwind(ctx); }

ErrKind protect(Ctx *ctx, void (*body)(Ctx *, void *), void *arg)
{
  Frame frame;
  frame.prev = ctx->frame;
  frame.scope = scope_begin(ctx);
  ctx->frame = &frame;
  if (setjmp(frame.jump) == 0) {
    body(ctx, arg);
    ctx->frame = frame.prev;
    if (!frame.prev) scope_end(ctx, frame.scope);
    return ERR_NONE;
  }
  ctx->frame = frame.prev;
  scope_end(ctx, frame.scope);
  return ctx->kind;
}

ErrKind error_kind(const Ctx *ctx) { return ctx->kind; }
const char *error_message(const Ctx *ctx) { return ctx->message; }
Loc error_loc(const Ctx *ctx) { return (Loc){ctx->file[0] ? ctx->file : NULL, ctx->line, ctx->col}; }

void error_clear(Ctx *ctx)
{
  ctx->kind = ERR_NONE;
  ctx->message[0] = ctx->file[0] = 0;
  ctx->line = ctx->col = 0;
}

Ctx *ctx_new(void)
{
  Ctx *ctx = calloc(1, sizeof *ctx);
  if (!ctx) return NULL;
  arena_init(&ctx->permanent, ctx);
  arena_init(&ctx->scratch, ctx);
  return ctx;
}

void ctx_free(Ctx *ctx)
{
  if (!ctx) return;
  scope_end(ctx, (Scope){0, NULL, 0});
  arena_drop(&ctx->scratch);
  arena_drop(&ctx->permanent);
  free(ctx->cleanup);
  free(ctx);
}

Arena *ctx_arena(Ctx *ctx) { return &ctx->permanent; }
Arena *scratch(Ctx *ctx) { return &ctx->scratch; }

uint64_t ctx_number(Ctx *ctx) { return ++ctx->number; }

void ctx_poll(Ctx *ctx)
{
  if (ctx->poll && ctx->poll(ctx->poll_arg)) raise(ctx, ERR_CALLBACK, NOWHERE, "stopped by the caller");
}

void ctx_set_poll(Ctx *ctx, int (*poll)(void *), void *arg)
{
  ctx->poll = poll;
  ctx->poll_arg = arg;
}

Scope scope_begin(Ctx *ctx)
{
  Chunk *top = ctx->scratch.top;
  return (Scope){ctx->ncleanup, top, top ? top->used : 0};
}

void scope_end(Ctx *ctx, Scope scope)
{
  while (ctx->ncleanup > scope.cleanups) {
    Cleanup c = ctx->cleanup[--ctx->ncleanup];
    c.fn(c.arg);
  }
  arena_rewind(&ctx->scratch, scope.chunk, scope.used);
}

static void grow_cleanups(Ctx *ctx)
{
  size_t cap = ctx->cleanup_cap ? ctx->cleanup_cap * 2 : 16;
  mem_count(ctx);
  Cleanup *grown = realloc(ctx->cleanup, cap * sizeof *grown);
  if (!grown) raise(ctx, ERR_MEMORY, NOWHERE, "out of memory");
  ctx->cleanup = grown;
  ctx->cleanup_cap = cap;
}

static void grow_cleanups_body(Ctx *ctx, void *arg)
{
  (void)arg;
  grow_cleanups(ctx);
}

/* The resource is already held, so a failure to note it releases it at once. */
void defer(Ctx *ctx, void (*fn)(void *), void *arg)
{
  if (ctx->ncleanup == ctx->cleanup_cap && protect(ctx, grow_cleanups_body, NULL)) {
    fn(arg);
    error_reraise(ctx);
  }
  ctx->cleanup[ctx->ncleanup++] = (Cleanup){fn, arg};
}
