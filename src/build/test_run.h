/* test_run.h: running built functions, for the tests and fuzzers of this folder.
 *
 * Each run gets its own copy of the arguments.  The elements start at the least
 * alignment that a caller may give, with guard bytes on both sides, so that a
 * kernel that assumes more or writes past the end is found. */
#ifndef LATHE_TEST_RUN_H
#define LATHE_TEST_RUN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "build/build.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static inline void drop_module(void *m) { module_release(m); }
static inline void drop_sched(void *s) { sched_free(s); }
static inline void drop_built(void *b) { built_release(b); }

static inline size_t run_count(const TirArg *a)
{
  size_t n = 1;
  for (int d = 0; d < a->ndim; d++) n *= (size_t)a->shape[d];
  return n;
}

static inline size_t run_bytes(const TirArg *a) { return run_count(a) * (size_t)dtype_bytes(a->dtype); }

static inline TirArg *run_copy(Arena *arena, int n, const TirArg *from)
{
  TirArg *to = arena_copy(arena, from, (size_t)n * sizeof *from);
  for (int i = 0; i < n; i++) {
    if (!from[i].data) continue;
    size_t bytes = run_bytes(&from[i]);
    size_t start = GUARD + (size_t)dtype_bytes(from[i].dtype);
    unsigned char *memory = arena_alloc(arena, start + bytes + GUARD);
    memset(memory, GUARD_BYTE, start + bytes + GUARD);
    to[i].data = memcpy(memory + start, from[i].data, bytes);
  }
  return to;
}

static inline void run_check_guards(Ctx *ctx, const char *who, int n, const TirArg *arg)
{
  for (int i = 0; i < n; i++) {
    if (!arg[i].data) continue;
    const unsigned char *p = arg[i].data;
    const unsigned char *end = p + run_bytes(&arg[i]);
    for (int k = 1; k <= GUARD; k++)
      if (p[-k] != GUARD_BYTE || end[k - 1] != GUARD_BYTE)
        raise(ctx, ERR_INTERNAL, NOWHERE, "%s: wrote outside argument %d, %d bytes %s", who, i, k,
              p[-k] != GUARD_BYTE ? "before its start" : "after its end");
  }
}

/* DLPack's codes. */
static inline LatheRtDType run_dtype(DType t)
{
  static const uint8_t codes[] = {
    [DT_INT] = 0,       [DT_UINT] = 1,      [DT_FLOAT] = 2,   [DT_BFLOAT] = 4,   [DT_E4M3FN] = 10, [DT_E5M2] = 12,
    [DT_E4M3FNUZ] = 11, [DT_E5M2FNUZ] = 13, [DT_E2M1FN] = 17, [DT_E8M0FNU] = 14, [DT_HANDLE] = 3};
  return (LatheRtDType){codes[t.code], t.bits, t.lanes};
}

static inline void run_built(Ctx *ctx, Built *b, const char *name, int n, const TirArg *arg)
{
  LatheRtFunc *f;
  LatheRtError err;
  if (lathe_rt_module_func(built_module(b), name, &f, &err) != LATHE_RT_OK)
    raise(ctx, ERR_INTERNAL, NOWHERE, "%s", err.text);
  LatheRtArg *call = arena_array(scratch(ctx), LatheRtArg, n);
  LatheRtTensor *tensor = arena_array(scratch(ctx), LatheRtTensor, n);
  for (int i = 0; i < n; i++) {
    if (arg[i].data) {
      tensor[i] = (LatheRtTensor){.data = arg[i].data,
                                  .device = {LATHE_RT_CPU, 0},
                                  .ndim = arg[i].ndim,
                                  .dtype = run_dtype(arg[i].dtype),
                                  .shape = (int64_t *)(uintptr_t)arg[i].shape};
      call[i].tensor = &tensor[i];
    } else if (dtype_is_float(arg[i].dtype)) {
      call[i].scalar.f = arg[i].scalar.f;
    } else {
      call[i].scalar.i = arg[i].scalar.i;
    }
  }
  if (lathe_rt_func_call(f, n, call, &err) != LATHE_RT_OK)
    raise(ctx, ERR_INTERNAL, NOWHERE, "%s: %s", built_target(b)->text, err.text);
  run_check_guards(ctx, built_target(b)->text, n, arg);
}

/* Distance in units in the last place of the dtype; 0: equal or both NaN. */
static inline double run_ulps(Value a, Value b)
{
  if (value_eq(a, b) || a.f == b.f) return 0;
  if (!isfinite(a.f) || !isfinite(b.f)) return INFINITY;
  static const struct {
    DCode code;
    int bits, digits, least;
  } kinds[] = {{DT_FLOAT, 64, 53, -1074}, {DT_FLOAT, 32, 24, -149}, {DT_FLOAT, 16, 11, -24}, {DT_BFLOAT, 16, 8, -133},
               {DT_E4M3FN, 8, 4, -9},     {DT_E4M3FNUZ, 8, 4, -10}, {DT_E5M2, 8, 3, -16},    {DT_E5M2FNUZ, 8, 3, -17}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].code != a.dtype.code || kinds[i].bits != a.dtype.bits) continue;
    int exponent;
    frexp(fmax(fabs(a.f), fabs(b.f)), &exponent);
    int last = exponent - kinds[i].digits;
    return fabs(a.f - b.f) / ldexp(1, last < kinds[i].least ? kinds[i].least : last);
  }
  return INFINITY;
}

/* Raises ERR_INTERNAL naming the first element that differs by more than `ulps`.
 * Integers are compared by their stored bytes; of floats both zeros are equal. */
static inline void run_compare(Ctx *ctx, const char *who, int n, const TirArg *want, const TirArg *got, double ulps)
{
  for (int i = 0; i < n; i++) {
    if (!want[i].data) continue;
    size_t size = (size_t)dtype_bytes(want[i].dtype);
    size_t count = run_count(&want[i]);
    for (size_t e = 0; e < count; e++) {
      const char *p = (const char *)want[i].data + e * size;
      const char *q = (const char *)got[i].data + e * size;
      if (!memcmp(p, q, size)) continue;
      Value a = value_load(want[i].dtype, p);
      Value b = value_load(want[i].dtype, q);
      bool real = dtype_is_float(a.dtype);
      if (real && run_ulps(a, b) <= ulps) continue;
      if (real)
        raise(ctx, ERR_INTERNAL, NOWHERE, "%s: argument %d, element %zu is %.17g and should be %.17g", who, i, e, b.f,
              a.f);
      raise(ctx, ERR_INTERNAL, NOWHERE, "%s: argument %d, element %zu is %" PRId64 " and should be %" PRId64 "%s", who,
            i, e, b.i, a.i, a.i == b.i ? " (with other bits above its width)" : "");
    }
  }
}

#endif
