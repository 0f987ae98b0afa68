/* test_llvm_kit.h: kernels made by hand, for the tests of the LLVM backend. */
#ifndef LATHE_TEST_LLVM_KIT_H
#define LATHE_TEST_LLVM_KIT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codegen/codegen.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static Ctx *ctx;
static Module *m;

static int setup(void **state)
{
  (void)state;
  ctx = ctx_new();
  if (!ctx) return -1;
  m = module_new(ctx);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  module_release(m);
  ctx_free(ctx);
  return 0;
}

/* Runs a test body under protect() and reports what it raises. */
static void kit_run(void (*body)(Ctx *, void *))
{
  ErrKind kind = protect(ctx, body, NULL);
  if (kind) fail_msg("%s: %s", error_kind_name(kind), error_message(ctx));
}
#define TEST(name)                        \
  static void name##_body(Ctx *, void *); \
  static void name(void **state)          \
  {                                       \
    (void)state;                          \
    kit_run(name##_body);                 \
  }                                       \
  static void name##_body(Ctx *c, void *unused __attribute__((unused)))
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline const Expr *num(int64_t v) { return expr_int(m, DT_I64, v); }
static inline const Buffer *flat(const char *name, DType t, int64_t n)
{
  const Expr *shape = num(n);
  return buffer_new(m, name, t, 1, &shape, NULL, NULL, NULL, 0, 0, NULL);
}
static inline const Expr *at(const Buffer *b, const Expr *i) { return expr_load(m, b, 1, &i); }
static inline Stmt *put(const Buffer *b, const Expr *i, const Expr *v) { return stmt_store(m, b, 1, &i, v); }
static inline const Var *index_var(const char *name) { return var_new(m, name, DT_I32, VAR_PLAIN); }
static inline Stmt *loop(const Var *v, int64_t n, Stmt *body)
{
  return stmt_for(m, v, expr_int(m, v->dtype, 0), expr_int(m, v->dtype, n), FOR_SERIAL, NULL, body);
}
static inline Stmt *seq2(Stmt *a, Stmt *b) { return stmt_seq(m, 2, (Stmt *[]){a, b}); }

static inline Stmt *alloc_at(const Buffer *b, Place place, int64_t offset, Stmt *body)
{
  Stmt *s = stmt_alloc(m, b, body);
  s->u.alloc.place = place;
  s->u.alloc.offset = num(offset);
  return s;
}

/* Arguments in order; the last `outs` of them are written. */
static inline Kernel *kernel_of(const char *name, const Target *t, int n, const Buffer *const *buffer, int outs,
                                Stmt *body)
{
  Kernel *k = arena_new_of(m->arena, Kernel);
  *k = (Kernel){.m = m,
                .name = name,
                .target = t,
                .narg = n,
                .arg = arena_array(m->arena, KernelArg, n),
                .body = body,
                .workspace_bytes = num(0),
                .slice_bytes = num(0)};
  for (int i = 0; i < n; i++)
    k->arg[i] = (KernelArg){buffer[i]->name, buffer[i]->data, buffer[i], i >= n - outs, false};
  stmt_link(body, NULL);
  return k;
}

/* The runtime's side, serial: the loop is cut in two to see that pieces work. */
static int32_t serial_for(const LatheRtCalls *rt, int64_t n, LatheRtBody body, void *env)
{
  (void)rt;
  int32_t status = body(0, n / 2, 0, env);
  return status ? status : body(n / 2, n, 1, env);
}

static int32_t packed_status;
static int packed_count;
static LatheRtPackedArg packed_seen[8];
static LatheRtTensor packed_tensor;
static int64_t packed_shape[4];
static char packed_name[32];
static int32_t record_packed(const LatheRtCalls *rt, const char *name, int32_t n, const LatheRtPackedArg *arg)
{
  (void)rt;
  snprintf(packed_name, sizeof packed_name, "%s", name);
  packed_count = n;
  for (int i = 0; i < n && i < 8; i++) {
    packed_seen[i] = arg[i];
    if (arg[i].tag != LATHE_RT_ARG_TENSOR) continue;
    packed_tensor = *arg[i].u.t;
    for (int d = 0; d < packed_tensor.ndim && d < 4; d++) packed_shape[d] = packed_tensor.shape[d];
  }
  return packed_status;
}

static const LatheRtCalls fake_rt = {
  .abi = LATHE_RT_ABI, .num_workers = 2, .parallel_for = serial_for, .call_packed = record_packed};

static void free_code(void *code) { code_free(code); }

/* Compiles kernels for a target; freed with the scope. */
static inline Code *compile(const Target *t, int n, Kernel *const *k)
{
  Code *code = codegen_llvm(ctx, t, n, k);
  defer(ctx, free_code, code);
  return code;
}

static inline const LatheRtFuncInfo *find_func(const LatheRtModuleInfo *info, const char *name)
{
  for (int i = 0; i < info->nfuncs; i++)
    if (strcmp(info->funcs[i].name, name) == 0) return &info->funcs[i];
  fail_msg("no function %s", name);
  return NULL;
}

static inline int32_t call_ptrs(const LatheRtFuncInfo *f, void *workspace, int n, void *const *p)
{
  LatheRtSlot slot[16];
  for (int i = 0; i < n; i++) slot[i].p = p[i];
  return f->call(slot, workspace, &fake_rt);
}

static inline const char *assembly(Code *code) { return code_get(code, CODE_ASM, scratch(ctx), NULL); }
static inline const char *ir_text(Code *code) { return code_get(code, CODE_LL, scratch(ctx), NULL); }

static inline uint64_t next_random(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 11 ^ *seed >> 33;
}

/* One value of the dtype: often a special one. */
static inline Value random_value(DType t, uint64_t *seed)
{
  static const double special[] = {0.0,           -0.0,         1,      -1,       0.5,    -0.5, 1.5,     2.5,
                                   -2.5,          127,          128,    -129,     255.7,  256,  65535.9, 2147483648.0,
                                   -2147483649.0, 4294967296.0, 9.3e18, -9.4e18,  1.9e19, 1e30, -1e30,   INFINITY,
                                   -INFINITY,     NAN,          1e-40,  3.0000001};
  uint64_t r = next_random(seed);
  if (dtype_is_float(t)) {
    if (r % 3 == 0) return value_float(t, special[next_random(seed) % COUNT(special)]);
    return value_float(t, ((double)(int64_t)(next_random(seed) % 2000001) - 1000000) / 1000.0);
  }
  if (r % 4 == 0) return value_int(t, (int64_t[]){0, 1, -1, dtype_imin(t), dtype_imax(t), 7}[next_random(seed) % 6]);
  return value_int(t, (int64_t)(r % 4 == 1 ? next_random(seed) % 19 : next_random(seed)) - (r % 4 == 1 ? 9 : 0));
}

#endif
