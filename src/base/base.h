/* base.h: what every layer stands on; knows nothing of tensors.
 *
 * Memory has three lifetimes, each an Arena: the context's, a module's (see
 * expr.h), and scratch, which a Scope opens and closes.  Arena memory comes
 * zeroed and is never freed piece by piece.
 *
 * Errors are raised, not returned: raise() unwinds to the nearest protect(),
 * running the deferred cleanups and dropping the scratch memory made since.
 * Public functions are the boundaries; each wraps its work in protect().
 *
 * Abbreviations: Ctx context, Loc source location, Vec growable array. */
#ifndef LATHE_BASE_H
#define LATHE_BASE_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lathe_rt.h"

/* The most dimensions that a tensor has, in the compiler and at run time. */
#define MAX_RANK LATHE_RT_MAX_RANK

typedef struct Ctx Ctx;
typedef struct Arena Arena;

/* ---- error.c: contexts, errors, cleanups ------------------------------- */

/* One row a kind: the constant, the name Python and the command line show. */
/* clang-format off */
#define ERROR_KINDS(X)                                                        \
  X(ERR_NONE, "ok")                                                           \
  X(ERR_ARGUMENT, "ArgumentError")     /* a value the caller chose is wrong */ \
  X(ERR_TYPE, "TypeError")             /* dtypes or kinds do not fit */        \
  X(ERR_SHAPE, "ShapeError")           /* ranks or extents do not fit */       \
  X(ERR_BOUNDS, "BoundsError")         /* an access provably out of bounds */  \
  X(ERR_PARSE, "ParseError")           /* text that is not the language */     \
  X(ERR_SCHEDULE, "ScheduleError")     /* a primitive that is not legal here */ \
  X(ERR_UNSUPPORTED, "UnsupportedError") /* a limit of Lathe, named */         \
  X(ERR_IO, "IOError")                 /* files, libraries, child processes */ \
  X(ERR_MEMORY, "MemoryError")         /* an allocation failed */              \
  X(ERR_CALLBACK, "CallbackError")     /* a user's callback failed */          \
  X(ERR_INTERNAL, "InternalError")     /* our bug */
/* clang-format on */

typedef enum {
#define X(id, name) id,
  ERROR_KINDS(X)
#undef X
} ErrKind;

const char *error_kind_name(ErrKind);

/* Where something came from.  line 0: nowhere in particular. */
typedef struct Loc {
  const char *file;
  int line, col;
} Loc;
#define NOWHERE ((Loc){NULL, 0, 0})

/* Raises: formats the message into the context and unwinds.  Messages are
 * lower case, name the thing, give both values, and say the way out. */
#define raise(...) error_raise(__VA_ARGS__)
_Noreturn void error_raise(Ctx *, ErrKind, Loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Raises an error again after a caller of protect() has looked at it. */
_Noreturn void error_reraise(Ctx *);

/* A broken invariant of ours.  Raises ERR_INTERNAL with file and line. */
#define BUG(ctx, ...) error_bug(ctx, __FILE__, __LINE__, __VA_ARGS__)
_Noreturn void error_bug(Ctx *, const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Runs body(ctx, arg).  Returns ERR_NONE, or the kind of the error raised; the
 * message is then in error_message().  Nests.  The one setjmp of the project. */
ErrKind protect(Ctx *, void (*body)(Ctx *, void *), void *arg);

/* An error that says nothing about the work that was tried (memory, an interruption, a bug of ours):
 * who tries something else instead after protect() raises these again. */
static inline bool error_passes_on(ErrKind k) { return k == ERR_MEMORY || k == ERR_CALLBACK || k == ERR_INTERNAL; }
ErrKind error_kind(const Ctx *);
const char *error_message(const Ctx *); /* without location; "" if none */
Loc error_loc(const Ctx *);
void error_clear(Ctx *);

/* Context.  owner-thread only.  NULL when memory is out. */
Ctx *ctx_new(void);
void ctx_free(Ctx *);
Arena *ctx_arena(Ctx *); /* lives as long as the context */

uint64_t ctx_number(Ctx *); /* from 1; no two calls on a context give the same */

/* Raises ERR_CALLBACK when the poll function (Ctrl-C on the command line, Python's signal check)
 * returns non-zero.  Every few thousandth allocation asks, so that all work that allocates can be
 * stopped; work that does not calls this now and then. */
void ctx_poll(Ctx *);
void ctx_set_poll(Ctx *, int (*poll)(void *), void *arg);

/* A scope of scratch memory and deferred cleanups.
 *   Scope s = scope_begin(ctx);
 *   char *p = arena_alloc(scratch(ctx), n);
 *   FILE *f = …; defer(ctx, close_file, f);
 *   scope_end(ctx, s);          // runs cleanups newest first, drops scratch
 * A raise ends all scopes opened since the protect() it lands in. */
typedef struct Scope {
  size_t cleanups;
  void *chunk;
  size_t used;
} Scope;
Scope scope_begin(Ctx *);
void scope_end(Ctx *, Scope);
Arena *scratch(Ctx *);
void defer(Ctx *, void (*fn)(void *), void *arg);

/* ---- memory.c: allocator and arenas ------------------------------------ */

/* Plain blocks for the few things that outlive every arena.  Raise on failure. */
void *mem_alloc(Ctx *, size_t); /* zeroed */
void mem_free(Ctx *, void *);

/* Fault injection: the n-th allocation from now fails (arena or plain);
 * 0 turns it off.  Returns how many allocations were made since the last call. */
int64_t mem_fail_after(Ctx *, int64_t n);

Arena *arena_new(Ctx *);
void arena_free(Arena *);
Ctx *arena_ctx(const Arena *);
void *arena_alloc(Arena *, size_t); /* zeroed, 16-byte aligned */
void *arena_copy(Arena *, const void *, size_t);
char *arena_strdup(Arena *, const char *);
char *arena_strndup(Arena *, const char *, size_t);
char *arena_printf(Arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define arena_new_of(arena, T) ((T *)arena_alloc(arena, sizeof(T)))
#define arena_array(arena, T, n) ((T *)arena_alloc_array(arena, (size_t)(n), sizeof(T)))
void *arena_alloc_array(Arena *, size_t n, size_t size); /* checks overflow */

/* Products of sizes; raise ERR_ARGUMENT, naming what, when they overflow. */
size_t mem_size_mul(Ctx *, size_t a, size_t b, const char *what);
/* Overflow-aware int64 arithmetic: false when the result does not fit. */
bool int_add(int64_t a, int64_t b, int64_t *out);
bool int_sub(int64_t a, int64_t b, int64_t *out);
bool int_mul(int64_t a, int64_t b, int64_t *out);
/* Division and remainder that floor: -7 / 2 is -4, -7 % 2 is 1.  b != 0. */
int64_t int_floordiv(int64_t a, int64_t b);
int64_t int_floormod(int64_t a, int64_t b);
int64_t int_gcd(int64_t a, int64_t b);

/* ---- containers.c ------------------------------------------------------ */

/* Growable array in an arena:  Vec(int) v = {0};  vec_push(arena, &v, 3); */
#define Vec(T)  \
  struct {      \
    T *v;       \
    int n, cap; \
  }
#define vec_push(arena, vec, ...)                                                                                 \
  ((vec)->n == (vec)->cap ? (void)((vec)->v = vec_grow(arena, (vec)->v, &(vec)->cap, (vec)->n, sizeof *(vec)->v)) \
                          : (void)0,                                                                              \
   (vec)->v[(vec)->n] = (__VA_ARGS__), (vec)->n++)
void *vec_grow(Arena *, void *old, int *cap, int n, size_t size);

/* Hash map from pointers (or any 64-bit key but 0) to pointers.  Insertion
 * order is kept in keys[]; iterate over that, so output is deterministic. */
typedef struct Map {
  uint64_t *key; /* in insertion order; a removed key is 0 */
  void **val;
  int n, cap;     /* entries used (with removed ones), allocated */
  uint32_t *slot; /* open addressing: index + 1 into key/val */
  uint32_t nslot;
} Map;
void *map_get(const Map *, const void *key); /* NULL if absent */
bool map_has(const Map *, const void *key);
void map_put(Arena *, Map *, const void *key, void *val);
void map_del(Map *, const void *key);

/* The same with strings for keys (copied into the arena). */
typedef struct StrMap {
  const char **key;
  void **val;
  int n, cap;
  uint32_t *slot;
  uint32_t nslot;
} StrMap;
void *strmap_get(const StrMap *, const char *key);
void strmap_put(Arena *, StrMap *, const char *key, void *val);

/* Strings as numbers: equal bytes have one number as long as the context lives, from 0 in the
 * order of their first sight.  at: the bytes, with a zero behind them; NULL: no such number. */
uint64_t ctx_string(Ctx *, const char *, size_t n);
const char *ctx_string_at(Ctx *, uint64_t number, size_t *n);

uint64_t hash_bytes(const void *, size_t, uint64_t seed);
uint64_t hash_mix(uint64_t h, uint64_t x);

/* ---- text.c: building and reading text --------------------------------- */

/* A growing string in an arena; t.s is always terminated once anything was added. */
typedef struct Text {
  Arena *arena;
  char *s;
  size_t n, cap;
} Text;
Text text_new(Arena *);
void text_add(Text *, const char *);
void text_addn(Text *, const char *, size_t);
void text_char(Text *, char);
void text_printf(Text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_indent(Text *, int spaces);
const char *text_str(Text *); /* "" when empty */

/* Shortest decimal text that reads back as the same double ("inf", "nan"). */
const char *text_double(Arena *, double);
/* Quoted with escapes, as C, JSON and Python all read it. */
void text_quote(Text *, const char *);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Nearest of the words by edit distance, for "did you mean"; NULL if none is near. */
const char *str_nearest(const char *word, const char *const *words, int n);
/* The same as the end of a message: "; did you mean 'word'?", or "". */
const char *str_suggest(Arena *, const char *word, const char *const *words, int n);

/* ---- file.c: files, child processes, the clock ---------------------------- */

/* Whole files; raise ERR_IO naming the path.  limit 0: none.  The descriptor is
 * closed when the caller's scope ends. */
char *file_read(Arena *, const char *path, size_t *n, size_t limit);
void file_write(Ctx *, const char *path, const void *, size_t); /* via a temporary and rename */
/* Raises ERR_IO with the reason when no file can be written at path: for finding out before long work. */
void file_check_output(Ctx *, const char *path);
/* A new folder under TMPDIR, removed with its content when the scope ends. */
const char *file_temp_dir(Ctx *);
/* Runs argv[0] from PATH, waits, returns its exit status; what it printed comes
 * back in out (arena text, at most 64 KiB).  Raises ERR_IO if it cannot start. */
int process_run(Arena *, const char *const *argv, const char **out);
bool process_exists(Arena *, const char *name); /* a program of that name in PATH, or at that path */
double clock_seconds(void);                     /* of a clock that only goes forward */
/* Path of the directory that holds this library or program. */
const char *file_self_dir(Arena *);

#endif
