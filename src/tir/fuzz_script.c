/* fuzz_script.c: the TVMScript parser on arbitrary bytes.
 *
 * Whatever parses must print, parse back to an equal function with the same hash
 * and print the same; checking and interpreting it must end in a result or in an
 * error that is not our bug. */
#include "tir/tir.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_ELEMENTS = 4096, MAX_POLLS = 200 };

typedef struct Job {
  Module *m;
  const char *text;
  PrimFunc *f;
  TirArg *arg;
} Job;

_Noreturn static void broken(const char *what, const char *detail, const char *text)
{
  fprintf(stderr, "%s: %s\n%s\n", what, detail, text);
  abort();
}

static void parse_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *j = arg;
  j->f = func_parse(j->m, j->text, "fuzz", 1, 0, NULL);
}
static void check_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  func_check(((Job *)arg)->f);
}
static void bounds_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  func_check_bounds(((Job *)arg)->f);
}
static void interpret_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *j = arg;
  func_interpret(j->f, j->f->nparam, j->arg);
}

static void guarded(Ctx *ctx, void (*body)(Ctx *, void *), Job *j, const char *what)
{
  if (protect(ctx, body, j) == ERR_INTERNAL) broken(what, error_message(ctx), j->text);
}

static int stop(void *arg) { return ++*(int *)arg > MAX_POLLS; }

/* Arguments for the parameters: symbolic sizes are 3.  False if too large. */
static bool make_args(const PrimFunc *f, TirArg *arg)
{
  Arena *arena = f->m->arena;
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    arg[i] = (TirArg){.scalar = value_int(DT_I32, 2), .dtype = DT_U8};
    if (!b) continue;
    int64_t *shape = arena_array(arena, int64_t, b->ndim);
    int64_t n = 1;
    for (int d = 0; d < b->ndim; d++) {
      shape[d] = b->shape[d]->kind == E_INT ? b->shape[d]->u.i : 3;
      if (shape[d] < 0 || shape[d] > MAX_ELEMENTS || (n *= shape[d]) > MAX_ELEMENTS) return false;
    }
    arg[i] =
        (TirArg){.data = calloc((size_t)n * b->dtype.lanes + 1, 8), .dtype = b->dtype, .ndim = b->ndim, .shape = shape};
  }
  return true;
}

static void interpret(Ctx *ctx, Job *j)
{
  int polls = 0;
  j->arg = arena_array(j->m->arena, TirArg, j->f->nparam);
  ctx_set_poll(ctx, stop, &polls);
  if (make_args(j->f, j->arg)) guarded(ctx, interpret_job, j, "interpret");
  ctx_set_poll(ctx, NULL, NULL);
  for (int i = 0; i < j->f->nparam; i++) free(j->arg[i].data);
}

/* ---- mutations that know where words and lines end ---------------------------------- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[] = {
  "0",
  "1",
  "2",
  "-1",
  "7",
  "9223372036854775807",
  "1.5",
  "T.int64(3)",
  "T.float16(0.5)",
  "T.uint8(200)",
  "T.bool(True)",
  "T.min(",
  "T.max(",
  "T.Select(",
  "T.Cast(\"int8\", ",
  "T.Ramp(0, 1, 4)",
  "T.Broadcast(",
  "T.Let(x, where={x: ",
  "T.truncdiv(",
  "T.if_then_else(",
  "T.exp(",
  "T.likely(",
  "T.reinterpret(\"float32\", ",
  "T.vector_reduce_add(",
  "T.clz(",
  "A",
  "B",
  "i",
  "n",
  "vi",
  "A.data",
  "+",
  "-",
  "*",
  "/",
  "//",
  "%",
  "<",
  "==",
  "and",
  "or",
  "not",
  "(",
  ")",
  "[",
  "]",
  ",",
  ":",
  "=",
  ":=",
  "+=",
  "for i in range(3):\n        ",
  "while ",
  "if ",
  "else:",
  "with T.block(\"b\"):\n        ",
  "v = T.axis.reduce(4, i)\n        ",
  "with T.init():\n            ",
  "T.where(",
  "T.reads(",
  "T.writes(",
  "t = T.alloc_buffer((4,), \"int32\", scope=\"shared\")\n    ",
  "t = T.decl_buffer((2, 2))\n    ",
  "x: T.int32 = 3\n    ",
  "with T.LetStmt(",
  "T.attr(0, \"k\", 1)\n    ",
  "T.thread_binding(4, thread=\"threadIdx.x\")",
  "T.match_buffer(A[0:2], (2,))",
  "strides=[",
  "elem_offset=",
  "T.evaluate(",
  "T.ret(0)",
  "\n    ",
  "\n        ",
  "\n            ",
};

static bool is_word(uint8_t c)
{
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

/* [*at, end) becomes the word or line around a random place. */
static size_t span_at(const uint8_t *data, size_t size, size_t *at, bool line)
{
  size_t end = *at;
  if (line) {
    while (*at && data[*at - 1] != '\n') --*at;
    while (end < size && data[end] != '\n') end++;
    return end < size ? end + 1 : end;
  }
  while (*at && is_word(data[*at - 1]) && is_word(data[*at])) --*at;
  while (end < size && is_word(data[end])) end++;
  return end == *at ? end + 1 : end;
}

/* Replaces, inserts or deletes: a word by a word of the list or of the text, or a line by another. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
  uint64_t r = hash_mix(seed, 12345);
  if (size < 2 || r % 6 == 0) return LLVMFuzzerMutate(data, size, max_size);
  bool line = (r >> 8) % 4 == 0;
  size_t at = (r >> 16) % size;
  size_t from = (r >> 40) % size;
  size_t end = span_at(data, size, &at, line);
  size_t until = span_at(data, size, &from, line);
  const char *word = words[(r >> 24) % (sizeof words / sizeof *words)];
  const uint8_t *with = data + from;
  size_t n = until - from;
  if (!line && (r >> 32) % 3) with = (const uint8_t *)word, n = strlen(word);
  if ((r >> 36) % 4 == 0) n = 0;         /* delete */
  else if ((r >> 36) % 4 == 1) end = at; /* insert */
  if (end > size) end = size;
  if (size - (end - at) + n > max_size) return LLVMFuzzerMutate(data, size, max_size);
  uint8_t *copy = malloc(n + size - end + 1);
  memcpy(copy, with, n);
  memcpy(copy + n, data + end, size - end);
  memcpy(data + at, copy, n + size - end);
  free(copy);
  return at + n + size - end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  memcpy(text, data, size);
  text[size] = 0;
  Ctx *ctx = ctx_new();
  Module *m = module_new(ctx);
  Module *other = module_new(ctx);
  Job j = {m, text, NULL, NULL};
  ErrKind kind = protect(ctx, parse_job, &j);
  if (kind == ERR_INTERNAL) broken("parse", error_message(ctx), text);
  if (kind == ERR_NONE) {
    const char *printed = func_print(m->arena, j.f);
    const char *why = NULL;
    Job k = {other, printed, NULL, NULL};
    if (protect(ctx, parse_job, &k)) broken("printed text does not parse", error_message(ctx), printed);
    if (!func_equal(j.f, k.f, m->arena, &why)) broken("not equal", why, printed);
    if (func_hash(j.f) != func_hash(k.f)) broken("hashes differ", "", printed);
    if (strcmp(func_print(other->arena, k.f), printed)) broken("prints differ", func_print(other->arena, k.f), printed);
    func_print_compact(m->arena, j.f);
    guarded(ctx, check_job, &j, "check");
    guarded(ctx, bounds_job, &j, "bounds");
    interpret(ctx, &j);
  }
  module_release(m);
  module_release(other);
  ctx_free(ctx);
  free(text);
  return 0;
}
