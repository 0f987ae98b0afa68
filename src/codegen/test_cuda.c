/* test_cuda.c: device code for hand-made kernels: its text, its launches, its
 * refusals, and that NVRTC takes it where NVRTC is installed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#define codegen_llvm codegen_cuda
#include "codegen/test_llvm_kit.h"

static const Target *gpu(void) { return target_parse(ctx, "cuda -arch=sm_80"); }

static Stmt *bind(const Var *v, const Expr *extent, const char *tag, Stmt *body)
{
  return stmt_for(m, v, expr_int(m, v->dtype, 0), extent, FOR_THREAD, tag, body);
}
static Stmt *bind_n(const Var *v, int64_t n, const char *tag, Stmt *body)
{
  return bind(v, expr_int(m, v->dtype, n), tag, body);
}

static const char *source(Code *code) { return code_get(code, CODE_CUDA, scratch(ctx), NULL); }

static void expect_text(const char *text, const char *part)
{
  if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static bool have_nvrtc(void)
{
  void *library = dlopen("libnvrtc.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library) dlclose(library);
  return library != NULL;
}

/* PTX that has these entries; nothing without NVRTC. */
static void expect_compiles(Code *code)
{
  if (!have_nvrtc()) return;
  int n;
  const CudaLaunch *l = codegen_cuda_launches(code, &n);
  const char *ptx = code_get(code, CODE_PTX, scratch(ctx), NULL);
  for (int i = 0; i < n; i++) expect_text(ptx, arena_printf(scratch(ctx), ".entry %s(", l[i].kernel));
}

/* C[i] = A[i] + alpha for i < n, 256 threads a block. */
TEST(test_elementwise)
{
  (void)c;
  const Var *n = var_new(m, "n", DT_I32, VAR_SIZE);
  const Var *alpha = var_new(m, "alpha", DT_F32, VAR_PLAIN);
  const Expr *shape[] = {n->expr};
  const Buffer *a = buffer_new(m, "A", DT_F32, 1, shape, NULL, NULL, NULL, 0, 0, NULL);
  const Buffer *b = buffer_new(m, "C", DT_F32, 1, shape, NULL, NULL, NULL, 0, 0, NULL);
  const Var *bx = index_var("block");
  const Var *tx = index_var("thread.x");
  const Expr *i = expr_add(m, expr_mul(m, bx->expr, expr_i32(m, 256)), tx->expr);
  Stmt *store = stmt_if(m, expr_lt(m, i, n->expr), put(b, i, expr_add(m, at(a, i), alpha->expr)), NULL);
  const Expr *blocks = expr_binary(m, E_DIV, expr_add(m, n->expr, expr_i32(m, 255)), expr_i32(m, 256));
  Kernel *k = kernel_of("add", gpu(), 2, (const Buffer *[]){a, b}, 1,
                        bind(bx, blocks, "blockIdx.x", bind_n(tx, 256, "threadIdx.x", store)));
  KernelArg arg[] = {k->arg[0], {"alpha", alpha, NULL, false, false}, k->arg[1]};
  KernelSize size[] = {{n, 0, 0}};
  k->arg = arg;
  k->narg = 3;
  k->size = size;
  k->nsize = 1;
  Code *code = compile(gpu(), 1, &k);
  const char *text = source(code);
  expect_text(text, "extern \"C\" __global__ void __launch_bounds__(256) add_kernel0(const float *__restrict__ A, "
                    "float alpha, float *__restrict__ C, int n)");
  expect_text(text, "  const int thread_x = (int)threadIdx.x;\n");
  expect_text(
      text,
      "  if (block * 256 + thread_x < n) {\n    C[block * 256 + thread_x] = A[block * 256 + thread_x] + alpha;\n  }\n");
  expect_text(text, " *   grid  ((n + 255) / 256, 1, 1)\n *   block (256, 1, 1)\n *   with  (A, alpha, C, n) */");
  int count;
  const CudaLaunch *l = codegen_cuda_launches(code, &count);
  assert_int_equal(count, 1);
  assert_string_equal(l->function, "add");
  assert_string_equal(l->grid[0], "(n + 255) / 256");
  assert_string_equal(l->block[0], "256");
  assert_int_equal(l->nargs, 4);
  assert_string_equal(l->args[3], "n");
  expect_compiles(code);
}

/* A tile through shared memory, a barrier, an accumulator in a register, virtual threads, vectors. */
TEST(test_shared_memory)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 1024), flat("C", DT_F32, 1024)};
  const Buffer *tile = flat("A.shared", DT_F32, 64);
  const Buffer *acc = flat("acc", DT_F32, 1);
  const Var *bx = index_var("bx");
  const Var *tx = index_var("tx");
  const Var *vx = index_var("vx");
  const Var *k = index_var("k");
  const Expr *sync = expr_str(m, "shared");
  const Expr *zero = expr_i32(m, 0);
  const Expr *wide = expr_ramp(m, expr_mul(m, tx->expr, expr_i32(m, 4)), expr_i32(m, 1), 4);
  const Expr *from = expr_ramp(
      m, expr_add(m, expr_mul(m, bx->expr, expr_i32(m, 64)), expr_mul(m, tx->expr, expr_i32(m, 4))), expr_i32(m, 1), 4);
  Stmt *fill = put(tile, wide, at(b[0], from));
  Stmt *barrier = stmt_eval(m, expr_call(m, DT_I32, IN_SYNC, 1, &sync));
  Stmt *sum = loop(k, 64, put(acc, zero, expr_add(m, at(acc, zero), at(tile, k->expr))));
  const Expr *where = expr_add(
      m, expr_add(m, expr_mul(m, bx->expr, expr_i32(m, 64)), expr_mul(m, vx->expr, expr_i32(m, 16))), tx->expr);
  Stmt *out = bind_n(vx, 4, "vthread.x", put(b[1], where, at(acc, zero)));
  Stmt *work =
      alloc_at(acc, PLACE_STACK, 0, stmt_seq(m, 3, (Stmt *[]){put(acc, zero, expr_float(m, DT_F32, 0)), sum, out}));
  Stmt *body = alloc_at(tile, PLACE_SHARED, 0, stmt_seq(m, 3, (Stmt *[]){fill, barrier, work}));
  Kernel *kernel = kernel_of("tile", gpu(), 2, b, 1, bind_n(bx, 16, "blockIdx.x", bind_n(tx, 16, "threadIdx.x", body)));
  Code *code = compile(gpu(), 1, &kernel);
  const char *text = source(code);
  expect_text(text, "  __shared__ float A_shared[64];\n");
  expect_text(text, "  A_shared[tx * 4 + 3] = A[bx * 64 + tx * 4 + 3];\n  __syncthreads();\n");
  expect_text(text, "  float acc;\n  acc = 0.0f;\n");
  expect_text(text, "  #pragma unroll\n  for (int vx = 0; vx < 4; vx++) {\n");
  expect_compiles(code);
}

/* Two launches with a workspace between them; the value of a let is handed over. */
TEST(test_two_launches)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_I32, 128), flat("C", DT_I32, 128)};
  const Buffer *mid = flat("mid", DT_I32, 128);
  const Var *x = index_var("x");
  const Var *y = index_var("y");
  const Var *twice = index_var("twice");
  Stmt *first = bind_n(x, 128, "threadIdx.x", put(mid, x->expr, expr_add(m, at(b[0], x->expr), twice->expr)));
  Stmt *second = bind_n(y, 128, "threadIdx.x", put(b[1], y->expr, at(mid, expr_sub(m, expr_i32(m, 127), y->expr))));
  Stmt *body = alloc_at(mid, PLACE_WORKSPACE, 0, stmt_let(m, twice, expr_i32(m, 2), seq2(first, second)));
  Kernel *k = kernel_of("main", gpu(), 2, b, 1, body);
  Code *code = compile(gpu(), 1, &k);
  int n;
  const CudaLaunch *l = codegen_cuda_launches(code, &n);
  assert_int_equal(n, 2);
  assert_string_equal(l[0].kernel, "kernel_main_kernel0");
  assert_string_equal(l[0].args[0], "A");
  assert_string_equal(l[0].args[1], "mid");
  assert_string_equal(l[0].args[2], "twice");
  assert_string_equal(l[1].kernel, "kernel_main_kernel1");
  expect_text(source(code), "mid[x] = (int)((unsigned int)A[x] + (unsigned int)twice);");
  expect_compiles(code);
}

/* One store for each operator, cast and function: NVRTC takes them all. */
typedef struct Stores {
  Vec(Stmt *) v;
  Vec(const Buffer *) buffers;
} Stores;

static const Buffer *new_buffer(Stores *s, DType t)
{
  const Buffer *b = flat(arena_printf(m->arena, "b%d", s->buffers.n), t, 32);
  vec_push(m->arena, &s->buffers, b);
  return b;
}

static void add_store(Stores *s, const Expr *i, const Expr *value)
{
  vec_push(m->arena, &s->v, put(new_buffer(s, dtype_elem(value->dtype)), i, value));
}

TEST(test_every_operator)
{
  (void)c;
  static const DType types[] = {{DT_INT, 8, 1},    {DT_UINT, 8, 1},   {DT_INT, 16, 1},
                                {DT_INT, 32, 1},   {DT_UINT, 32, 1},  {DT_INT, 64, 1},
                                {DT_FLOAT, 16, 1}, {DT_FLOAT, 32, 1}, {DT_FLOAT, 64, 1}};
  Stores s = {0};
  const Var *i = index_var("i");
  for (int d = 0; d < COUNT(types); d++) {
    const Expr *x = at(new_buffer(&s, types[d]), i->expr);
    const Expr *y = at(new_buffer(&s, types[d]), i->expr);
    const Expr *arg[] = {x, y, y};
    for (ExprKind k = E_ADD; k <= E_GE; k++)
      if (!(dtype_is_float(types[d]) && (k == E_FLOORDIV || k == E_FLOORMOD)) && !(types[d].bits == 16 && k == E_MOD))
        add_store(&s, i->expr, expr_binary(m, k, x, y));
    for (int to = 0; to < COUNT(types); to++)
      if (to != d) add_store(&s, i->expr, expr_cast(m, types[to], x));
    for (Intrin f = IN_EXP; f <= IN_SHR; f++) {
      int flags = intrin_info(f)->flags;
      bool fits = dtype_is_float(types[d]) ? !(flags & INF_INT) : !(flags & INF_FLOAT);
      if (fits && f != IN_LDEXP) add_store(&s, i->expr, expr_call(m, DT_NONE, f, intrin_info(f)->min_args, arg));
    }
  }
  const Expr *f = at(new_buffer(&s, DT_F32), i->expr);
  const Expr *bits = expr_call(m, DT_I32, IN_REINTERPRET, 1, &f);
  add_store(&s, i->expr, bits);
  add_store(&s, i->expr, expr_call(m, DT_I32, IN_CLZ, 1, &bits));
  add_store(&s, i->expr, expr_call(m, DT_NONE, IN_POPCOUNT, 1, &bits));
  add_store(&s, i->expr, expr_float(m, DT_F32, INFINITY));
  add_store(&s, i->expr, expr_float(m, DT_F64, NAN));
  Kernel *k = kernel_of("everything", gpu(), s.buffers.n, s.buffers.v, s.buffers.n,
                        bind_n(i, 32, "threadIdx.x", stmt_seq(m, s.v.n, s.v.v)));
  expect_compiles(compile(gpu(), 1, &k));
}

/* ---- refusals ------------------------------------------------------------------------------ */

typedef struct Refused {
  Kernel *k;
} Refused;

static void try_compile(Ctx *c, void *arg)
{
  Refused *r = arg;
  code_free(codegen_cuda(c, gpu(), 1, &r->k));
}

static void expect_refused(Kernel *k, const char *message)
{
  Refused r = {k};
  assert_int_equal(protect(ctx, try_compile, &r), ERR_UNSUPPORTED);
  if (!strstr(error_message(ctx), message)) fail_msg("said '%s', not '%s'", error_message(ctx), message);
  error_clear(ctx);
}

TEST(test_refusals)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 4096), flat("C", DT_F32, 4096)};
  const Var *i = index_var("i");
  const Var *j = index_var("j");
  const Var *k = index_var("k");
  Stmt *copy = put(b[1], i->expr, at(b[0], i->expr));
  expect_refused(kernel_of("host", gpu(), 2, b, 1, loop(i, 16, copy)),
                 "host: loop 'i' stands outside the loops bound to blockIdx and threadIdx; bind a loop around it");
  expect_refused(kernel_of("wide", gpu(), 2, b, 1, bind_n(i, 4096, "threadIdx.x", copy)),
                 "wide: a block of 4096 threads, target 'cuda -arch=sm_80'");
  Stmt *two = seq2(bind_n(j, 8, "threadIdx.x", put(b[1], j->expr, at(b[0], j->expr))),
                   bind_n(k, 16, "threadIdx.x", put(b[1], k->expr, at(b[0], k->expr))));
  expect_refused(kernel_of("twice", gpu(), 2, b, 1, bind_n(i, 16, "blockIdx.x", two)),
                 "two loops bound to threadIdx.x with different extents");
  const Expr *name = expr_str(m, "f");
  Stmt *packed = stmt_eval(m, expr_call(m, DT_I32, IN_CALL_PACKED, 1, &name));
  expect_refused(kernel_of("packed", gpu(), 2, b, 1, bind_n(i, 16, "threadIdx.x", packed)),
                 "the cuda backend does not print a packed call");
  expect_refused(kernel_of("odd", gpu(), 2, b, 1, bind_n(i, 16, "threadIdx.w", copy)),
                 "loop 'i' bound to 'threadIdx.w'");
}

static void compile_text(Ctx *c, void *text)
{
  size_t n;
  codegen_nvrtc(scratch(c), text, gpu(), false, &n);
}

TEST(test_nvrtc)
{
  if (!have_nvrtc()) return;
  size_t n;
  const unsigned char *cubin =
      codegen_nvrtc(scratch(c), "extern \"C\" __global__ void f(float *x) { x[0] = 1; }", gpu(), true, &n);
  assert_true(n > 100 && !memcmp(cubin, "\177ELF", 4));
  assert_int_equal(protect(ctx, compile_text, (void *)(uintptr_t)"this is not CUDA"), ERR_IO);
  expect_text(error_message(ctx), "NVRTC refused the CUDA source for sm_80");
  expect_text(error_message(ctx), "lathe.cu(1): error");
  error_clear(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {ROW(test_elementwise),    ROW(test_shared_memory), ROW(test_two_launches),
                                     ROW(test_every_operator), ROW(test_refusals),      ROW(test_nvrtc)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
