/* fuzz_relay.c: the Relay parser on arbitrary bytes, with type inference behind it.
 *
 * Whatever parses must print, parse back to equal functions with the same hashes, and print
 * the same.  Everything else must end in an error that is not our bug. */
#include "op/op.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_BYTES = 1 << 16 };

typedef struct Job {
  Module *m, *again;
  const char *text;
} Job;

_Noreturn static void broken(const char *what, const char *detail, const char *text)
{
  fprintf(stderr, "%s: %s\n%s\n", what, detail, text);
  abort();
}

static void parse_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *job = arg;
  graph_parse_module(job->m, job->text, "fuzz");
}

static void again_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *job = arg;
  graph_parse_module(job->again, job->text, "printed");
}

static void print_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *job = arg;
  job->text = graph_print_module(job->m->arena, job->m);
}

static void compare_modules(Ctx *ctx, Job *job)
{
  Arena *arena = job->m->arena;
  for (int i = 0; i < job->m->globals.n; i++) {
    const Global *g = &job->m->globals.v[i];
    const Global *h = module_get(job->again, g->name);
    const char *why = "";
    if (!h || h->kind != g->kind) broken("a function is lost", g->name, job->text);
    if (g->kind != GLOBAL_GRAPH) continue;
    if (!graph_equal(g->func, h->func, arena, &why)) broken("read back differently", why, job->text);
    if (graph_hash(g->func, arena) != graph_hash(h->func, arena)) broken("hash differs", g->name, job->text);
  }
  const char *printed = graph_print_module(arena, job->again);
  if (strcmp(printed, job->text)) broken("printed differently", printed, job->text);
  (void)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
  if (n > MAX_BYTES) return 0;
  op_init();
  Ctx *ctx = ctx_new();
  Job job = {
    .m = module_new(ctx), .again = module_new(ctx), .text = arena_strndup(ctx_arena(ctx), (const char *)data, n)};
  ErrKind kind = protect(ctx, parse_job, &job);
  if (kind == ERR_INTERNAL) broken("internal error", error_message(ctx), job.text);
  /* blocks nested past the limit have no text */
  if (!kind && !(kind = protect(ctx, print_job, &job))) {
    if (protect(ctx, again_job, &job)) broken("printed text is refused", error_message(ctx), job.text);
    compare_modules(ctx, &job);
  }
  if (kind == ERR_INTERNAL) broken("internal error", error_message(ctx), job.text);
  module_release(job.m);
  module_release(job.again);
  ctx_free(ctx);
  return 0;
}
