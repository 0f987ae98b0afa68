/* test_schedule.h: what the tests of the engine share: a function as text, a trace as
 * text, and the comparison of what the function computes before and after. */
#ifndef LATHE_TEST_SCHEDULE_H
#define LATHE_TEST_SCHEDULE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

#define MATMUL(M, N, K)                                                                               \
  "@T.prim_func\n"                                                                                    \
  "def main(A: T.Buffer((" #M ", " #K "), \"float32\"), B: T.Buffer((" #K ", " #N "), \"float32\"), " \
  "C: T.Buffer((" #M ", " #N "), \"float32\")):\n"                                                    \
  "    for i, j, k in T.grid(" #M ", " #N ", " #K "):\n"                                              \
  "        with T.block(\"C\"):\n"                                                                    \
  "            vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])\n"                                       \
  "            with T.init():\n"                                                                      \
  "                C[vi, vj] = T.float32(0)\n"                                                        \
  "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n"

/* B = A + 1; C = B * 2, with a window of W reads in the second. */
#define CHAIN(N)                                                                                        \
  "@T.prim_func\n"                                                                                      \
  "def main(A: T.Buffer((" #N ", " #N "), \"float32\"), C: T.Buffer((" #N ", " #N "), \"float32\")):\n" \
  "    B = T.alloc_buffer((" #N ", " #N "))\n"                                                          \
  "    for i, j in T.grid(" #N ", " #N "):\n"                                                           \
  "        with T.block(\"B\"):\n"                                                                      \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                                 \
  "            B[vi, vj] = A[vi, vj] + T.float32(1)\n"                                                  \
  "    for i, j in T.grid(" #N ", " #N "):\n"                                                           \
  "        with T.block(\"C\"):\n"                                                                      \
  "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"                                                 \
  "            C[vi, vj] = B[vi, vj] * T.float32(2)\n"

static inline void free_schedule(void *s) { sched_free(s); }
static inline void free_module(void *m) { module_release(m); }

typedef struct Run {
  const char *func, *trace;
  char *text; /* of the result; owned */
} Run;

/* Replays the trace, checks the result, compares what it computes, and replays the
 * recorded trace on a fresh copy, which must give an equal function. */
static inline void run_body(Ctx *ctx, void *env)
{
  Run *r = env;
  Scope scope = scope_begin(ctx);
  Module *m = module_new(ctx);
  defer(ctx, free_module, m);
  PrimFunc *f = func_parse(m, r->func, "case", 1, 0, NULL);
  func_check(f);
  Sched *s = sched_new(f, 1);
  defer(ctx, free_schedule, s);
  sched_replay(s, r->trace);
  func_check(sched_func(s));
  for (uint64_t seed = 1; seed < 4; seed++) random_compare(f, sched_func(s), seed);
  Sched *again = sched_new(f, 1);
  defer(ctx, free_schedule, again);
  sched_replay(again, sched_trace_text(scratch(ctx), s));
  const char *why = NULL;
  if (!func_equal(sched_func(s), sched_func(again), scratch(ctx), &why))
    BUG(ctx, "the trace replays to another function: %s", why);
  const char *text = func_print(scratch(ctx), sched_func(s));
  r->text = malloc(strlen(text) + 1);
  if (r->text) memcpy(r->text, text, strlen(text) + 1);
  scope_end(ctx, scope);
}

/* The printed result of a legal trace; the caller frees it. */
static inline char *apply(const char *func, const char *trace)
{
  Ctx *ctx = ctx_new();
  Run r = {.func = func, .trace = trace};
  ErrKind kind = protect(ctx, run_body, &r);
  if (kind) fprintf(stderr, "%s: %s\n--- trace\n%s", error_kind_name(kind), error_message(ctx), trace);
  assert_int_equal(kind, ERR_NONE);
  ctx_free(ctx);
  assert_non_null(r.text);
  if (getenv("LATHE_SHOW")) puts(r.text);
  return r.text;
}

static inline void assert_holds(const char *text, const char *part)
{
  if (!strstr(text, part)) fprintf(stderr, "'%s' is not in\n%s\n", part, text);
  assert_non_null(strstr(text, part));
}

/* Legal; the text of the result holds all of the parts. */
#define APPLIES(func, trace, ...)                                                                \
  do {                                                                                           \
    char *text_ = apply(func, trace);                                                            \
    const char *const part_[] = {__VA_ARGS__};                                                   \
    for (size_t i_ = 0; i_ < sizeof part_ / sizeof *part_; i_++) assert_holds(text_, part_[i_]); \
    free(text_);                                                                                 \
  } while (0)

typedef struct Refusal {
  const char *func, *before, *last;
  ErrKind kind;
  char message[1024];
} Refusal;

static inline void refuse_last(Ctx *ctx, void *env)
{
  (void)ctx;
  void **v = env;
  sched_replay(v[0], v[1]);
}

/* The lines before are legal; the last one is refused and changes nothing. */
static inline void refusal_body(Ctx *ctx, void *env)
{
  Refusal *r = env;
  Scope scope = scope_begin(ctx);
  Module *m = module_new(ctx);
  defer(ctx, free_module, m);
  Sched *s = sched_new(func_parse(m, r->func, "case", 1, 0, NULL), 1);
  defer(ctx, free_schedule, s);
  sched_replay(s, r->before);
  const char *before = func_print(scratch(ctx), sched_func(s));
  const char *trace = sched_trace_text(scratch(ctx), s);
  r->kind = protect(ctx, refuse_last, (void *[]){s, (void *)(uintptr_t)r->last});
  snprintf(r->message, sizeof r->message, "%s", error_message(ctx));
  if (strcmp(before, func_print(scratch(ctx), sched_func(s)))) BUG(ctx, "a refused primitive changed the function");
  if (strcmp(trace, sched_trace_text(scratch(ctx), s))) BUG(ctx, "a refused primitive changed the trace");
  scope_end(ctx, scope);
}

static inline void refuses(const char *func, const char *before, const char *last, ErrKind kind, const char *words)
{
  Ctx *ctx = ctx_new();
  Refusal r = {.func = func, .before = before, .last = last};
  ErrKind outer = protect(ctx, refusal_body, &r);
  if (outer) fprintf(stderr, "%s: %s\n", error_kind_name(outer), error_message(ctx));
  assert_int_equal(outer, ERR_NONE);
  if (r.kind != kind || !strstr(r.message, words))
    fprintf(stderr, "%s: %s: %s\n  wanted %s: %s\n", last, error_kind_name(r.kind), r.message, error_kind_name(kind),
            words);
  assert_int_equal(r.kind, kind);
  assert_non_null(strstr(r.message, words));
  ctx_free(ctx);
}

#endif
