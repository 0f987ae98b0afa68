/* test_driver.h: compiling small models from Relay text and running them, for the tests of
 * this folder.  What a model should give is what the interpreter gives, or numbers given by
 * hand. */
#ifndef LATHE_TEST_DRIVER_H
#define LATHE_TEST_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "driver/driver.h"

typedef struct World {
  Ctx *ctx;
  Module *m;
  Compiled *c;
  LatheRtExecutor *x;
} World;

typedef struct Job {
  const char *text;
  CompileOptions options;
  World *w;
} Job;

static inline void job_body(Ctx *ctx, void *arg)
{
  Job *j = arg;
  op_init();
  j->w->m = module_new(ctx);
  graph_parse_module(j->w->m, j->text, "test.relay");
  j->w->c = driver_compile(ctx, j->w->m, &j->options);
  compiled_model(j->w->c);
}

/* For protect: writes the compiled model to a file. */
typedef struct Export {
  Compiled *c;
  const char *path;
} Export;
static inline void export_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Export *e = arg;
  compiled_export(e->c, e->path, WEIGHTS_BY_SIZE);
}

/* NULL, or why the text could not be compiled. */
static inline const char *try_compile(World *w, const char *text, const CompileOptions *options)
{
  *w = (World){.ctx = ctx_new()};
  Job j = {.text = text, .w = w};
  if (options) j.options = *options;
  return protect(w->ctx, job_body, &j) ? error_message(w->ctx) : NULL;
}

static inline World compile_text(const char *text)
{
  World w;
  const char *why = try_compile(&w, text, NULL);
  if (why) fail_msg("%s", why);
  LatheRtError err;
  if (lathe_rt_executor_new(compiled_model(w.c), &w.x, &err)) fail_msg("%s", err.text);
  return w;
}

static inline void close_world(World *w)
{
  lathe_rt_executor_free(w->x);
  if (w->c) compiled_release(w->c);
  if (w->m) module_release(w->m);
  ctx_free(w->ctx);
}

#define SHAPE(...) \
  (sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }
static const LatheRtDType F32 = {2, 32, 1}, I64 = {0, 64, 1}, I32 = {0, 32, 1}, BOOL = {1, 1, 1};

static inline LatheRtTensor tensor(LatheRtDType t, void *data, size_t ndim, int64_t *shape)
{
  return (LatheRtTensor){.data = data, .device = {LATHE_RT_CPU, 0}, .ndim = (int32_t)ndim, .dtype = t, .shape = shape};
}

static inline void set(LatheRtExecutor *x, int i, LatheRtTensor t)
{
  LatheRtError err;
  if (lathe_rt_set_input(x, i, &t, &err)) fail_msg("%s", err.text);
}

static inline void run(LatheRtExecutor *x)
{
  LatheRtError err;
  if (lathe_rt_run(x, &err)) fail_msg("%s", err.text);
}

static inline const LatheRtTensor *output(LatheRtExecutor *x, int i)
{
  LatheRtError err;
  const LatheRtTensor *t;
  if (lathe_rt_get_output(x, i, &t, &err)) fail_msg("%s", err.text);
  return t;
}

static inline void expect_floats(const LatheRtTensor *t, int n, const float *want, float eps)
{
  size_t bytes;
  assert_int_equal(lathe_rt_tensor_bytes(t, &bytes, NULL), 0);
  assert_int_equal(bytes, n * 4);
  const float *have = t->data;
  for (int i = 0; i < n; i++)
    if (!(have[i] - want[i] <= eps && want[i] - have[i] <= eps))
      fail_msg("element %d is %g, wants %g", i, (double)have[i], (double)want[i]);
}

/* Float tensors filled from a small generator, the same every time. */
static inline float *noise(size_t n, unsigned seed)
{
  float *f = malloc(n * sizeof *f);
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    f[i] = (float)(seed >> 8) / 8388608.0f - 1;
  }
  return f;
}

static inline LatheRtModelInfo model_info(const LatheRtModel *m)
{
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(m, &info);
  return info;
}

#endif
