/* fuzz_import.h: the body of a libFuzzer target for a reader of models: the reader, the importer and type inference
 * behind it.  Whatever the bytes are, the import ends with a model or a clean error; an internal error counts as a
 * crash.  Include it once, behind #define FUZZ_IMPORT with the function that imports. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/frontend.h"

typedef struct Input {
  Module *m;
  const uint8_t *data;
  size_t n;
} Input;

static void import_bytes(Ctx *ctx, void *arg)
{
  (void)ctx;
  Input *in = arg;
  ImportReport report;
  FUZZ_IMPORT(in->m, in->data, in->n, NULL, NULL, &report);
  graph_infer(in->m, graph_main(in->m));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
  Ctx *ctx = ctx_new();
  if (!ctx) return 0;
  Input in = {module_new(ctx), data, n};
  if (protect(ctx, import_bytes, &in) == ERR_INTERNAL) {
    fprintf(stderr, "%s\n", error_message(ctx));
    abort();
  }
  module_release(in.m);
  ctx_free(ctx);
  return 0;
}
