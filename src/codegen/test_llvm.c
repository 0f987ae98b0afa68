/* test_llvm.c: statements, memory, calls and files of the LLVM backend. */
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/test_llvm_kit.h"

static const Target *host(void) { return target_parse(ctx, "llvm"); }

static const LatheRtFuncInfo *jit_one(Kernel *k)
{
  Kernel *one[] = {k};
  return find_func(codegen_llvm_jit(compile(k->target, 1, one)), k->name);
}

static const Expr *ramp_at(const Expr *base, int stride, int lanes)
{
  return expr_ramp(m, base, expr_int(m, base->dtype, stride), lanes);
}

/* ---- loops and memory ------------------------------------------------------------------------ */

TEST(test_elementwise)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 100), flat("B", DT_F32, 100), flat("C", DT_F32, 100)};
  const Var *i = index_var("i");
  Kernel *k = kernel_of("add", host(), 3, b, 1,
                        loop(i, 100, put(b[2], i->expr, expr_add(m, at(b[0], i->expr), at(b[1], i->expr)))));
  const LatheRtFuncInfo *f = jit_one(k);
  assert_int_equal(f->nargs, 3);
  assert_int_equal(f->nsizes, 0);
  assert_string_equal(f->args[2].name, "C");
  assert_int_equal(f->args[2].flags, 1);
  assert_int_equal(f->args[0].flags, 0);
  assert_int_equal(f->args[0].ndim, 1);
  assert_int_equal(f->args[0].dtype.code, 2);
  assert_int_equal(f->args[0].dtype.bits, 32);
  float x[3][101];
  for (int j = 0; j < 101; j++) x[0][j] = (float)j, x[1][j] = 0.5f, x[2][j] = -1;
  assert_int_equal(call_ptrs(f, NULL, 3, (void *[]){x[0], x[1], x[2]}), 0);
  for (int j = 0; j < 100; j++) assert_true(x[2][j] == (float)j + 0.5f);
  assert_true(x[2][100] == -1);
}

/* C[i, j] += A[i, k] * B[k, j] with vectors over j and an accumulator in memory: the
 * accumulator must end in a register, in a kernel and in an outlined body. */
static Kernel *matmul(const char *name, const Target *t, int n, int lanes, ForKind outer)
{
  const Buffer *b[] = {flat("A", DT_F32, n * n), flat("B", DT_F32, n * n), flat("C", DT_F32, n * n)};
  const Var *i = index_var("i");
  const Var *j = index_var("j");
  const Var *k = index_var("k");
  const Expr *width = expr_i32(m, n);
  const Expr *in_c =
      ramp_at(expr_add(m, expr_mul(m, i->expr, width), expr_mul(m, j->expr, expr_i32(m, lanes))), 1, lanes);
  const Expr *in_b =
      ramp_at(expr_add(m, expr_mul(m, k->expr, width), expr_mul(m, j->expr, expr_i32(m, lanes))), 1, lanes);
  const Expr *a = at(b[0], expr_add(m, expr_mul(m, i->expr, width), k->expr));
  const Expr *sum = expr_add(m, at(b[2], in_c), expr_mul(m, expr_broadcast(m, a, lanes), at(b[1], in_b)));
  Stmt *init = put(b[2], in_c, expr_broadcast(m, expr_float(m, DT_F32, 0), lanes));
  Stmt *body = loop(j, n / lanes, seq2(init, loop(k, n, put(b[2], in_c, sum))));
  Stmt *all = stmt_for(m, i, expr_i32(m, 0), width, outer, NULL, body);
  return kernel_of(name, t, 3, b, 1, all);
}

static void check_matmul(const LatheRtFuncInfo *f, int n)
{
  float *x[3];
  for (int i = 0; i < 3; i++) x[i] = arena_array(scratch(ctx), float, n *n);
  for (int i = 0; i < n * n; i++) x[0][i] = (float)(i % 7) - 3, x[1][i] = (float)(i % 5) - 2, x[2][i] = 99;
  assert_int_equal(call_ptrs(f, NULL, 3, (void *[]){x[0], x[1], x[2]}), 0);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float want = 0;
      for (int k = 0; k < n; k++) want += x[0][i * n + k] * x[1][k * n + j];
      assert_true(x[2][i * n + j] == want);
    }
}

/* Lines of the innermost loop that hold the multiply-add: those before it up to the
 * label and after it up to the jump.  NULL where there is none. */
static const char *inner_loop(const char *assembly_text, const char *has)
{
  const char *hit = strstr(assembly_text, has);
  if (!hit) return NULL;
  const char *start = hit;
  while (start > assembly_text && !(start[-1] == '\n' && start[0] == '.' && start[1] == 'L')) start--;
  const char *end = hit;
  while (*end && !(end[0] == '\n' && end[1] == '.' && end[2] == 'L')) end++;
  const char *jump = strstr(hit, "\n\tj");
  if (jump && jump < end) end = jump;
  return arena_strndup(scratch(ctx), start, (size_t)(end - start));
}

static int count_of(const char *text, const char *word)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, word)); p += strlen(word)) n++;
  return n;
}

TEST(test_matmul)
{
  (void)c;
  check_matmul(jit_one(matmul("serial", host(), 32, 16, FOR_SERIAL)), 32);
  check_matmul(jit_one(matmul("parallel", host(), 32, 8, FOR_PARALLEL)), 32);
  check_matmul(jit_one(matmul("scalars", target_parse(ctx, "llvm -mcpu=generic"), 32, 4, FOR_PARALLEL)), 32);
}

/* A kernel without parallel loops and calls says so, and runs without a runtime; bytes of its workspace are told. */
TEST(test_plain_kernels)
{
  (void)c;
  const LatheRtFuncInfo *f = jit_one(matmul("alone", host(), 4, 4, FOR_SERIAL));
  float x[3][16];
  LatheRtSlot slots[3] = {{.p = x[0]}, {.p = x[1]}, {.p = x[2]}};
  for (int i = 0; i < 16; i++) x[0][i] = (float)(i % 3), x[1][i] = (float)(i % 5), x[2][i] = -1;
  assert_int_equal(f->flags, LATHE_RT_FUNC_PLAIN);
  assert_true(f->workspace == 0 && f->slice == 0);
  assert_int_equal(f->call(slots, NULL, NULL), 0);
  assert_true(x[2][5] == x[0][4] * x[1][1] + x[0][5] * x[1][5] + x[0][6] * x[1][9] + x[0][7] * x[1][13]);
  assert_int_equal(jit_one(matmul("shared", host(), 4, 4, FOR_PARALLEL))->flags, 0);
}

TEST(test_accumulators_live_in_registers)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu");
  ForKind kinds[] = {FOR_SERIAL, FOR_PARALLEL};
  for (int i = 0; i < 2; i++) {
    Kernel *k[] = {matmul("mm", t, 64, 8, kinds[i])};
    const char *inner = inner_loop(assembly(compile(t, 1, k)), "vfmadd");
    assert_non_null(inner);
    if (count_of(inner, ", (%") || count_of(inner, "vmovups\t%")) fail_msg("the inner loop stores:\n%s", inner);
  }
}

TEST(test_neon_uses_fused_multiply_add)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mtriple=aarch64-linux-gnu");
  Kernel *k[] = {matmul("mm", t, 64, 4, FOR_SERIAL)};
  const char *text = assembly(compile(t, 1, k));
  assert_true(count_of(text, "fmla\tv") >= 1);
  assert_true(strstr(text, ".4s") != NULL);
}

TEST(test_strided_and_gathered)
{
  (void)c;
  enum { L = 8 };
  static const int strides[] = {0, 1, -1, 2, 3, -5};
  for (int s = 0; s < COUNT(strides); s++) {
    const Buffer *b[] = {flat("A", DT_I32, 128), flat("C", DT_I32, 128)};
    const Expr *from = ramp_at(num(64), strides[s], L);
    const Expr *to = ramp_at(num(40), strides[s] ? strides[s] : 1, L);
    Kernel *k = kernel_of("strided", host(), 2, b, 1, put(b[1], to, at(b[0], from)));
    int32_t x[128], y[128];
    for (int i = 0; i < 128; i++) x[i] = i * 3, y[i] = -1;
    assert_int_equal(call_ptrs(jit_one(k), NULL, 2, (void *[]){x, y}), 0);
    int step = strides[s] ? strides[s] : 1;
    int written = 0;
    for (int l = 0; l < L; l++) assert_int_equal(y[40 + l * step], x[64 + l * strides[s]]);
    for (int i = 0; i < 128; i++) written += y[i] != -1;
    assert_int_equal(written, L);
  }
}

/* Indices out of memory: C[index[i]] = A[index[i]], the last of equal ones wins. */
TEST(test_indirect)
{
  (void)c;
  enum { L = 16 };
  const Buffer *b[] = {flat("A", DT_F32, 64), flat("I", DT_I32, L), flat("C", DT_F32, 64)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, L);
  const Expr *where = at(b[1], lane);
  Kernel *k = kernel_of("indirect", host(), 3, b, 1,
                        put(b[2], where, expr_add(m, at(b[0], where), expr_cast(m, dtype_lanes(DT_F32, L), lane))));
  float x[64];
  float y[64] = {0};
  int32_t index[L];
  for (int i = 0; i < 64; i++) x[i] = (float)(i * 100);
  for (int i = 0; i < L; i++) index[i] = i == 7 ? 3 : (i * 5) % 64;
  index[15] = index[14];
  assert_int_equal(call_ptrs(jit_one(k), NULL, 3, (void *[]){x, index, y}), 0);
  for (int i = 0; i < L; i++)
    if (i != 14) assert_true(y[index[i]] == x[index[i]] + (float)i);
}

TEST(test_masked_store)
{
  (void)c;
  enum { L = 8 };
  const Buffer *b[] = {flat("A", DT_F32, L), flat("C", DT_F32, 2 * L)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, L);
  Stmt *s = put(b[1], lane, at(b[0], lane));
  Stmt *far = put(b[1], ramp_at(expr_i32(m, 8), 1, L), at(b[0], lane));
  s->u.store.mask = expr_lt(m, lane, expr_broadcast(m, expr_i32(m, 5), L));
  far->u.store.mask = expr_binary(m, E_EQ, expr_binary(m, E_MOD, lane, expr_broadcast(m, expr_i32(m, 2), L)),
                                  expr_broadcast(m, expr_i32(m, 0), L));
  float x[L], y[2 * L];
  for (int i = 0; i < L; i++) x[i] = (float)i + 1;
  for (int i = 0; i < 2 * L; i++) y[i] = -1;
  assert_int_equal(call_ptrs(jit_one(kernel_of("masked", host(), 2, b, 1, seq2(s, far))), NULL, 2, (void *[]){x, y}),
                   0);
  for (int i = 0; i < L; i++) {
    assert_true(y[i] == (i < 5 ? x[i] : -1));
    assert_true(y[L + i] == (i % 2 == 0 ? x[i] : -1));
  }
}

/* if_then_else keeps loads inside their bounds: the memory beyond is not mapped. */
TEST(test_guarded_loads)
{
  (void)c;
  if (getenv("LATHE_EMULATED")) skip(); /* qemu's masked loads touch what the mask leaves out */
  long page = sysconf(_SC_PAGESIZE);
  enum { L = 16, HAVE = 5 };
  char *p = mmap(NULL, (size_t)(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED && mprotect(p + page, (size_t)page, PROT_NONE) == 0);
  float *x = (float *)(p + page) - HAVE;
  float y[2 * L];
  for (int i = 0; i < HAVE; i++) x[i] = (float)i + 1;
  const Buffer *b[] = {flat("A", DT_F32, L), flat("C", DT_F32, 2 * L)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, L);
  const Expr *inside = expr_lt(m, lane, expr_broadcast(m, expr_i32(m, HAVE), L));
  const Expr *choice[] = {inside, at(b[0], lane), expr_broadcast(m, expr_float(m, DT_F32, -7), L)};
  const Var *i = index_var("i");
  const Expr *one[] = {expr_lt(m, i->expr, expr_i32(m, HAVE)), at(b[0], i->expr), expr_float(m, DT_F32, -7)};
  Stmt *vector = put(b[1], lane, expr_call(m, dtype_lanes(DT_F32, L), IN_IF_THEN_ELSE, 3, choice));
  Stmt *scalar =
      loop(i, L, put(b[1], expr_add(m, i->expr, expr_i32(m, L)), expr_call(m, DT_F32, IN_IF_THEN_ELSE, 3, one)));
  const LatheRtFuncInfo *f = jit_one(kernel_of("guarded", host(), 2, b, 1, seq2(vector, scalar)));
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){x, y}), 0);
  for (int k = 0; k < 2 * L; k++) assert_true(y[k] == (k % L < HAVE ? (float)(k % L) + 1 : -7));
  munmap(p, (size_t)(2 * page));
}

TEST(test_bools_and_narrow_integers_fill_bytes)
{
  (void)c;
  const DType i4 = DTYPE(DT_INT, 4);
  const Buffer *b[] = {flat("A", DT_BOOL, 8), flat("N", i4, 8), flat("B", DT_BOOL, 8), flat("M", i4, 8)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, 8);
  Stmt *flip = put(b[2], lane, expr_not(m, at(b[0], lane)));
  Stmt *add = put(b[3], lane, expr_add(m, at(b[1], lane), expr_broadcast(m, expr_int(m, i4, 1), 8)));
  uint8_t x[8] = {0, 1, 1, 0, 1, 0, 0, 1};
  uint8_t y[8];
  int8_t n[8] = {0, 1, 7, -8, -1, 3, 4, 5};
  int8_t o[8];
  assert_int_equal(
      call_ptrs(jit_one(kernel_of("bytes", host(), 4, b, 2, seq2(flip, add))), NULL, 4, (void *[]){x, n, y, o}), 0);
  for (int i = 0; i < 8; i++) assert_int_equal(y[i], !x[i]);
  assert_memory_equal(o, ((int8_t[]){1, 2, -8, -7, 0, 4, 5, 6}), 8);
}

/* ---- control --------------------------------------------------------------------------------------- */

/* while (x != 1) x = even ? x/2 : 3x+1, counted; the state is on the stack. */
TEST(test_while_let_if)
{
  (void)c;
  const Buffer *b[] = {flat("start", DT_I64, 1), flat("steps", DT_I64, 1)};
  const Buffer *x = flat("x", DT_I64, 1);
  const Expr *zero = num(0);
  const Expr *now = at(x, zero);
  const Var *v = var_new(m, "v", DT_I64, VAR_PLAIN);
  Stmt *down = put(x, zero, expr_binary(m, E_DIV, v->expr, num(2)));
  Stmt *up = put(x, zero, expr_add(m, expr_mul(m, v->expr, num(3)), num(1)));
  Stmt *step = stmt_if(m, expr_binary(m, E_EQ, expr_binary(m, E_MOD, v->expr, num(2)), zero), down, up);
  Stmt *body = seq2(stmt_let(m, v, now, step), put(b[1], zero, expr_add(m, at(b[1], zero), num(1))));
  Stmt *all = stmt_seq(m, 3,
                       (Stmt *[]){put(x, zero, at(b[0], zero)), put(b[1], zero, zero),
                                  stmt_while(m, expr_binary(m, E_NE, now, num(1)), body)});
  const LatheRtFuncInfo *f = jit_one(kernel_of("collatz", host(), 2, b, 1, alloc_at(x, PLACE_STACK, 0, all)));
  int64_t start = 27;
  int64_t steps = 0;
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){&start, &steps}), 0);
  assert_int_equal(steps, 111);
}

TEST(test_short_circuit)
{
  (void)c;
  const Buffer *b[] = {flat("n", DT_I32, 1), flat("A", DT_I32, 4), flat("C", DT_BOOL, 2)};
  const Expr *n = at(b[0], num(0));
  const Expr *first = expr_binary(m, E_EQ, at(b[1], n), expr_i32(m, 5));
  Stmt *both = put(b[2], num(0), expr_and(m, expr_lt(m, n, expr_i32(m, 4)), first));
  Stmt *either = put(b[2], num(1), expr_binary(m, E_OR, expr_binary(m, E_GE, n, expr_i32(m, 4)), first));
  const LatheRtFuncInfo *f = jit_one(kernel_of("lazy", host(), 3, b, 1, seq2(both, either)));
  int32_t index = 1 << 28;
  int32_t a[4] = {0, 5, 0, 0};
  uint8_t out[2] = {9, 9};
  assert_int_equal(call_ptrs(f, NULL, 3, (void *[]){&index, a, out}), 0);
  assert_int_equal(out[0], 0);
  assert_int_equal(out[1], 1);
  index = 1;
  assert_int_equal(call_ptrs(f, NULL, 3, (void *[]){&index, a, out}), 0);
  assert_int_equal(out[0], 1);
}

TEST(test_return_status)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_I32, 1), flat("C", DT_I32, 1)};
  const Expr *seven = expr_i32(m, 7);
  const Expr *zero = num(0);
  Stmt *leave = stmt_eval(m, expr_call(m, DT_I32, IN_RET, 1, &seven));
  Stmt *body =
      seq2(stmt_if(m, expr_lt(m, at(b[0], zero), expr_i32(m, 0)), leave, NULL), put(b[1], zero, expr_i32(m, 1)));
  const LatheRtFuncInfo *f = jit_one(kernel_of("leaves", host(), 2, b, 1, body));
  int32_t a = -1;
  int32_t out = 0;
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){&a, &out}), 7);
  assert_int_equal(out, 0);
  a = 1;
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){&a, &out}), 0);
  assert_int_equal(out, 1);
}

/* ---- parallel loops, workspace -------------------------------------------------------------------------- */

/* Each iteration fills a slice of its worker's own, then sums it; the base comes from a
 * shared piece of the workspace, a scalar is captured too. */
TEST(test_parallel_workspace)
{
  (void)c;
  const Buffer *b[] = {flat("C", DT_I32, 10)};
  const Buffer *shared = flat("S", DT_I32, 4);
  const Buffer *own = flat("T", DT_I32, 8);
  const Var *i = index_var("i");
  const Var *j = index_var("j");
  const Var *l = index_var("l");
  const Var *twice = var_new(m, "twice", DT_I32, VAR_PLAIN);
  const Expr *zero = num(0);
  Stmt *fill = loop(j, 8, put(own, j->expr, expr_add(m, expr_mul(m, i->expr, twice->expr), at(shared, zero))));
  Stmt *sum = loop(l, 8, put(b[0], i->expr, expr_add(m, at(b[0], i->expr), at(own, l->expr))));
  const Expr *slot = expr_call(m, DT_I32, IN_PARALLEL_SLOT, 0, NULL);
  Stmt *note = put(b[0], i->expr, expr_mul(m, slot, expr_i32(m, 1000)));
  Stmt *each = alloc_at(own, PLACE_SLICE, 0, stmt_seq(m, 3, (Stmt *[]){note, fill, sum}));
  Stmt *par = stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 10), FOR_PARALLEL, NULL, each);
  Stmt *all = alloc_at(
      shared, PLACE_WORKSPACE, 0,
      seq2(put(shared, zero, expr_i32(m, 5)), stmt_let(m, twice, expr_add(m, at(shared, zero), expr_i32(m, -3)), par)));
  Kernel *k = kernel_of("slices", host(), 1, b, 1, all);
  k->workspace_bytes = num(16);
  k->slice_bytes = num(40);
  const LatheRtFuncInfo *f = jit_one(k);
  int64_t shape[3];
  f->shape(NULL, shape);
  assert_int_equal(shape[0], 10);
  assert_int_equal(shape[1], 64);
  assert_int_equal(shape[2], 64);
  _Alignas(64) int32_t workspace[48];
  int32_t out[10] = {0};
  assert_int_equal(call_ptrs(f, workspace, 1, (void *[]){out}), 0);
  for (int n = 0; n < 10; n++) assert_int_equal(out[n], (n < 5 ? 0 : 1000) + 8 * (2 * n + 5));
  assert_int_equal(workspace[16], 2 * 4 + 5); /* the first worker's slice begins after the shared part */
  assert_int_equal(workspace[32], 2 * 9 + 5);
}

/* A failure in a parallel body is the kernel's status. */
TEST(test_parallel_status)
{
  (void)c;
  const Buffer *b[] = {flat("C", DT_I32, 4)};
  const Var *i = index_var("i");
  const Expr *three = expr_i32(m, 3);
  Stmt *leave = stmt_if(m, expr_binary(m, E_EQ, i->expr, expr_i32(m, 2)),
                        stmt_eval(m, expr_call(m, DT_I32, IN_RET, 1, &three)), NULL);
  Stmt *par = stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 4), FOR_PARALLEL, NULL,
                       seq2(leave, put(b[0], i->expr, expr_i32(m, 1))));
  int32_t out[4] = {0};
  assert_int_equal(call_ptrs(jit_one(kernel_of("fails", host(), 1, b, 1, par)), NULL, 1, (void *[]){out}), 3);
  assert_memory_equal(out, ((int32_t[]){1, 1, 0, 0}), sizeof out);
}

/* An address inside nested loops: what the inner one leaves alone is one pointer behind LLVM's back, also where a let
 * names a part of the sum.  A let that wraps around is still a number of its own dtype where it is no index. */
TEST(test_addresses_of_nested_loops)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_I32, 64), flat("B", DT_I32, 64)};
  const Var *i = index_var("i");
  const Var *j = index_var("j");
  const Var *k = index_var("k");
  const Var *place = index_var("place");
  const Var *wraps = index_var("wraps");
  const Expr *four = expr_i32(m, 4);
  const Expr *sum =
      expr_sub(m, expr_add(m, expr_mul(m, i->expr, expr_i32(m, 20)), expr_mul(m, k->expr, expr_i32(m, 1))),
               expr_mul(m, i->expr, four));
  const Expr *where = expr_add(m, expr_add(m, place->expr, expr_mul(m, j->expr, four)), expr_i32(m, 0));
  const Expr *factor = expr_i32(m, 1 << 20);
  Stmt *body = put(b[1], where, expr_add(m, at(b[0], where), expr_floordiv(m, wraps->expr, expr_i32(m, 1 << 16))));
  body = stmt_let(m, wraps, expr_mul(m, expr_mul(m, k->expr, factor), factor), body);
  body = stmt_let(m, place, sum, body);
  Stmt *nest = loop(i, 4, loop(j, 4, loop(k, 4, body)));
  Kernel *one[] = {kernel_of("nested", host(), 2, b, 1, nest)};
  assert_non_null(strstr(ir_text(compile(host(), 1, one)), "llvm.strip.invariant.group"));
  int32_t x[64], y[64] = {0};
  for (int n = 0; n < 64; n++) x[n] = n * n;
  assert_int_equal(call_ptrs(jit_one(one[0]), NULL, 2, (void *[]){x, y}), 0);
  for (int n = 0; n < 64; n++) assert_int_equal(y[n], x[n]); /* k * 2^40 is 0 in 32 bits */
}

/* Two pieces of workspace that share bytes at different times must not be taken for
 * separate memory: the second one's stores stay behind the first one's loads. */
TEST(test_shared_storage_is_ordered)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 16), flat("C", DT_F32, 32)};
  const Buffer *p = flat("P", DT_F32, 16);
  const Buffer *q = flat("Q", DT_F32, 16);
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, 16);
  const Expr *two = expr_broadcast(m, expr_float(m, DT_F32, 2), 16);
  Stmt *first = alloc_at(p, PLACE_WORKSPACE, 0,
                         seq2(put(p, lane, expr_mul(m, at(b[0], lane), two)), put(b[1], lane, at(p, lane))));
  Stmt *second = alloc_at(
      q, PLACE_WORKSPACE, 32,
      seq2(put(q, lane, expr_add(m, at(b[0], lane), two)), put(b[1], ramp_at(expr_i32(m, 16), 1, 16), at(q, lane))));
  Kernel *k = kernel_of("reuse", host(), 2, b, 1, seq2(first, second));
  k->workspace_bytes = num(96);
  Kernel *one[] = {k};
  const char *text = ir_text(compile(host(), 1, one));
  assert_null(strstr(text, "lathe.reuse.3")); /* A, C, and one group for P and Q */
  assert_non_null(strstr(text, "lathe.reuse.2"));
  _Alignas(64) float workspace[64], x[16], y[32];
  for (int i = 0; i < 16; i++) x[i] = (float)i;
  assert_int_equal(call_ptrs(jit_one(k), workspace, 2, (void *[]){x, y}), 0);
  for (int i = 0; i < 16; i++) assert_true(y[i] == 2 * x[i] && y[16 + i] == x[i] + 2);
}

TEST(test_arguments_that_may_alias)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 9), flat("C", DT_F32, 9)};
  const Var *i = index_var("i");
  Kernel *k = kernel_of("shift", host(), 2, b, 1,
                        loop(i, 8, put(b[1], expr_add(m, i->expr, expr_i32(m, 1)), at(b[0], i->expr))));
  k->arg[0].may_alias = k->arg[1].may_alias = true;
  const LatheRtFuncInfo *f = jit_one(k);
  assert_int_equal(f->args[1].flags, 5);
  float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){x, x}), 0);
  for (int n = 0; n < 9; n++) assert_true(x[n] == 1);
}

/* ---- scalars, sizes --------------------------------------------------------------------------------------- */

/* C[i] = A[i] * scale + (flag ? bias : 0) for i < n, n read off A's shape; the shape of C
 * is (n + 3) // 2 rows of 2, which floors. */
TEST(test_symbolic)
{
  (void)c;
  const Var *n = var_new(m, "n", DT_I64, VAR_SIZE);
  const Var *scale = var_new(m, "scale", DT_F32, VAR_PLAIN);
  const Var *flag = var_new(m, "flag", DT_BOOL, VAR_PLAIN);
  const Var *bias = var_new(m, "bias", DT_I8, VAR_PLAIN);
  const Var *i = var_new(m, "i", DT_I64, VAR_PLAIN);
  const Expr *rows = expr_floordiv(m, expr_add(m, n->expr, num(3)), num(2));
  const Buffer *a = buffer_new(m, "A", DT_F32, 1, &n->expr, NULL, NULL, NULL, 0, 0, NULL);
  const Buffer *out = buffer_new(m, "C", DT_F32, 2, (const Expr *[]){rows, num(2)}, NULL, NULL, NULL, 0, 0, NULL);
  const Buffer *flat_out =
      buffer_new(m, "C", DT_F32, 1, (const Expr *[]){expr_mul(m, rows, num(2))}, NULL, NULL, NULL, 0, 0, out->data);
  const Expr *extra = expr_select(m, flag->expr, expr_cast(m, DT_F32, bias->expr), expr_float(m, DT_F32, 0));
  Stmt *body = stmt_for(m, i, num(0), n->expr, FOR_SERIAL, NULL,
                        put(flat_out, i->expr, expr_add(m, expr_mul(m, at(a, i->expr), scale->expr), extra)));
  Kernel k = {.m = m,
              .name = "scaled",
              .target = host(),
              .narg = 5,
              .nsize = 1,
              .body = body,
              .workspace_bytes = expr_mul(m, n->expr, num(4)),
              .slice_bytes = num(0)};
  k.arg = (KernelArg[]){{"A", a->data, a, false, false},
                        {"scale", scale, NULL, false, false},
                        {"flag", flag, NULL, false, false},
                        {"bias", bias, NULL, false, false},
                        {"C", out->data, out, true, false}};
  k.size = (KernelSize[]){{n, 0, 0}};
  const LatheRtFuncInfo *f = jit_one(&k);
  assert_int_equal(f->nargs, 5);
  assert_int_equal(f->args[1].ndim, -1);
  assert_int_equal(f->args[4].ndim, 2);
  assert_string_equal(f->sizes[0].name, "n");
  assert_int_equal(f->sizes[0].arg, 0);
  assert_int_equal(f->sizes[0].dim, 0);
  float x[] = {1, 2, 3, 4, 5};
  float y[8] = {0};
  LatheRtSlot slot[] = {{.p = x}, {.f = 2.5}, {.i = 1}, {.i = -3}, {.p = y}, {.i = 5}};
  int64_t shape[5];
  f->shape(slot, shape);
  assert_memory_equal(shape, ((int64_t[]){5, 4, 2, 64, 0}), sizeof shape);
  assert_int_equal(f->call(slot, NULL, &fake_rt), 0);
  for (int j = 0; j < 5; j++) assert_true(y[j] == x[j] * 2.5f - 3);
  slot[2].i = 0;
  slot[5].i = 0; /* an empty tensor: nothing is touched */
  slot[0].p = slot[4].p = NULL;
  assert_int_equal(f->call(slot, NULL, &fake_rt), 0);
}

/* ---- calls out ---------------------------------------------------------------------------------------------- */

TEST(test_packed_call)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 12), flat("C", DT_F32, 1)};
  const Expr *shape = expr_call(m, DT_PTR, IN_MAKE_SHAPE, 2, (const Expr *[]){num(3), num(4)});
  const Expr *marker = expr_float(m, DT_F32, 0);
  const Expr *none = num(0);
  const Expr *tensor =
      expr_call(m, DT_PTR, IN_BUFFER_ARG, 6, (const Expr *[]){b[0]->data->expr, shape, none, num(2), marker, num(5)});
  const Expr *arg[] = {expr_str(m, "my.function"), tensor,          expr_i32(m, -7), expr_float(m, DT_F32, 1.5),
                       expr_str(m, "hello"),       b[0]->data->expr};
  Stmt *body =
      seq2(stmt_eval(m, expr_call(m, DT_I32, IN_CALL_PACKED, 6, arg)), put(b[1], num(0), expr_float(m, DT_F32, 1)));
  const LatheRtFuncInfo *f = jit_one(kernel_of("calls", host(), 2, b, 1, body));
  float x[12];
  float y = 0;
  packed_status = 0;
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){x, &y}), 0);
  assert_true(y == 1);
  assert_string_equal(packed_name, "my.function");
  assert_int_equal(packed_count, 5);
  assert_int_equal(packed_seen[0].tag, LATHE_RT_ARG_TENSOR);
  assert_ptr_equal(packed_tensor.data, x);
  assert_int_equal(packed_tensor.ndim, 2);
  assert_int_equal(packed_tensor.device.type, LATHE_RT_CPU);
  assert_int_equal(packed_tensor.dtype.code, 2);
  assert_int_equal(packed_tensor.dtype.bits, 32);
  assert_int_equal(packed_tensor.dtype.lanes, 1);
  assert_memory_equal(packed_shape, ((int64_t[]){3, 4}), 16);
  assert_null(packed_tensor.strides);
  assert_int_equal(packed_tensor.byte_offset, 20);
  assert_int_equal(packed_seen[1].tag, LATHE_RT_ARG_INT);
  assert_int_equal(packed_seen[1].u.i, -7);
  assert_int_equal(packed_seen[2].tag, LATHE_RT_ARG_FLOAT);
  assert_true(packed_seen[2].u.f == 1.5);
  assert_string_equal(packed_seen[3].u.s, "hello");
  assert_ptr_equal(packed_seen[4].u.p, x);
  packed_status = 9;
  y = 0;
  assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){x, &y}), 9);
  assert_true(y == 0);
}

TEST(test_extern_calls)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F64, 8), flat("text", DT_U8, 8), flat("C", DT_F64, 8), flat("D", DT_I64, 1)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, 8);
  const Expr *cube[] = {expr_str(m, "cbrt"), at(b[0], lane)};
  const Expr *first = at(b[1], expr_i32(m, 2));
  const Expr *where = expr_call(m, DT_PTR, IN_ADDRESS_OF, 1, &first);
  const Expr *length[] = {expr_str(m, "strlen"), where};
  const Expr *near[] = {where, expr_i32(m, 0), expr_i32(m, 3), expr_i32(m, 1)};
  Stmt *all[] = {stmt_eval(m, expr_call(m, DT_I32, IN_PREFETCH, 4, near)),
                 put(b[2], lane, expr_call(m, dtype_lanes(DT_F64, 8), IN_CALL_PURE_EXTERN, 2, cube)),
                 put(b[3], num(0), expr_call(m, DT_I64, IN_CALL_EXTERN, 2, length))};
  const LatheRtFuncInfo *f = jit_one(kernel_of("outside", host(), 4, b, 2, stmt_seq(m, 3, all)));
  double x[8], y[8];
  int64_t n = 0;
  char text[8] = "abcdefg";
  for (int i = 0; i < 8; i++) x[i] = i * i * i;
  assert_int_equal(call_ptrs(f, NULL, 4, (void *[]){x, text, y, &n}), 0);
  for (int i = 0; i < 8; i++) assert_true(fabs(y[i] - i) < 1e-12);
  assert_int_equal(n, 5);
}

TEST(test_vector_sum)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 8), flat("I", DT_I32, 8), flat("C", DT_F32, 1), flat("D", DT_I32, 1)};
  const Expr *lane = ramp_at(expr_i32(m, 0), 1, 8);
  const Expr *x = at(b[0], lane);
  const Expr *i = at(b[1], lane);
  Stmt *all = seq2(put(b[2], num(0), expr_call(m, DT_F32, IN_VECTOR_SUM, 1, &x)),
                   put(b[3], num(0), expr_call(m, DT_I32, IN_VECTOR_SUM, 1, &i)));
  float f[8] = {1e8f, 1, -1e8f, 1, 2, 3, 4, 5};
  float sum = 0;
  float out;
  int32_t n[8] = {1, 2, 3, 4, 5, 6, 7, -100};
  int32_t total;
  for (int k = 0; k < 8; k++) sum += f[k]; /* in order: 1e8 + 1 is 1e8 */
  assert_int_equal(call_ptrs(jit_one(kernel_of("sums", host(), 4, b, 2, all)), NULL, 4, (void *[]){f, n, &out, &total}),
                   0);
  assert_true(out == sum && sum == 15);
  assert_int_equal(total, -72);
}

/* An expression that shares subterms is a graph: as a tree this has 2^40 nodes. */
TEST(test_shared_subterms)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_I32, 1), flat("C", DT_I32, 1)};
  const Expr *e = at(b[0], num(0));
  for (int i = 0; i < 40; i++)
    e = expr_call(m, DT_NONE, IN_BITXOR, 2, (const Expr *[]){expr_add(m, e, e), expr_mul(m, e, expr_i32(m, 3))});
  int32_t x = 5;
  int32_t y = 0;
  int32_t want = 5;
  for (int i = 0; i < 40; i++) want = (int32_t)((uint32_t)want * 2 ^ (uint32_t)want * 3);
  assert_int_equal(
      call_ptrs(jit_one(kernel_of("shared", host(), 2, b, 1, put(b[1], num(0), e))), NULL, 2, (void *[]){&x, &y}), 0);
  assert_int_equal(y, want);
}

/* C[j * n + i] = A[i * 8 + j], n stores of columns: one contiguous store; of columns that read what is written, or that
 * do not follow one another, each its own. */
static void check_columns(const char *name, int n, bool reads, bool in_order)
{
  const Buffer *b[] = {flat("A", DT_I8, 32), flat("C", DT_I8, 32)};
  Stmt *store[4];
  for (int i = 0; i < n; i++) {
    int from = in_order ? i : n - 1 - i;
    const Expr *v = at(b[0], ramp_at(num(8 * from), 1, 8));
    if (reads) v = expr_add(m, v, at(b[1], ramp_at(num(0), 1, 8)));
    store[i] = put(b[1], ramp_at(num(from), n, 8), v);
  }
  int8_t x[32], y[32], want[32];
  for (int i = 0; i < 32; i++) x[i] = (int8_t)(7 * i), y[i] = want[i] = (int8_t)i;
  for (int i = 0; i < n; i++) {
    int from = in_order ? i : n - 1 - i;
    int8_t old[8];
    for (int j = 0; j < 8; j++) old[j] = reads ? want[j] : 0;
    for (int j = 0; j < 8; j++) want[j * n + from] = (int8_t)(x[8 * from + j] + old[j]);
  }
  Kernel *k = kernel_of(name, host(), 2, b, 1, stmt_seq(m, n, store));
  assert_int_equal(call_ptrs(jit_one(k), NULL, 2, (void *[]){x, y}), 0);
  assert_memory_equal(y, want, 32);
}

TEST(test_columns_together)
{
  (void)c;
  check_columns("two", 2, false, true);
  check_columns("four", 4, false, true);
  check_columns("three", 3, false, true);
  check_columns("reading", 4, true, true);
  check_columns("backwards", 4, false, false);
}

/* ---- artefacts --------------------------------------------------------------------------------------------------- */

static Kernel *negate(const char *name, const Target *t)
{
  const Buffer *b[] = {flat("A", DT_F32, 16), flat("C", DT_F32, 16)};
  const Var *i = index_var("i");
  return kernel_of(name, t, 2, b, 1,
                   loop(i, 16, put(b[1], i->expr, expr_sub(m, expr_float(m, DT_F32, 0), at(b[0], i->expr)))));
}

static void run_exported(const char *path)
{
  LatheRtModule *module = NULL;
  LatheRtFunc *f = NULL;
  LatheRtError err;
  if (lathe_rt_module_load(path, &module, &err) || lathe_rt_module_func(module, "negate", &f, &err))
    fail_msg("%s", err.text);
  float x[16], y[16];
  for (int i = 0; i < 16; i++) x[i] = (float)i, y[i] = 0;
  int64_t shape = 16;
  LatheRtTensor t[2] = {{.data = x, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = &shape}};
  t[1] = t[0];
  t[1].data = y;
  LatheRtArg arg[2] = {{.tensor = &t[0]}, {.tensor = &t[1]}};
  if (lathe_rt_func_call(f, 2, arg, &err)) fail_msg("%s", err.text);
  for (int i = 0; i < 16; i++) assert_true(y[i] == -x[i]);
  lathe_rt_module_free(module);
}

TEST(test_export)
{
  Code *code = compile(host(), 2, (Kernel *[]){negate("negate", host()), negate("other", host())});
  const char *dir = file_temp_dir(c);
  const char *so = arena_printf(scratch(c), "%s/k.so", dir);
  const char *ll = arena_printf(scratch(c), "%s/k.ll", dir);
  const char *s = arena_printf(scratch(c), "%s/k.s", dir);
  code_export(code, so);
  run_exported(so);
  code_export(code, ll);
  code_export(code, s);
  code_export(code, arena_printf(scratch(c), "%s/k.o", dir));
  assert_non_null(strstr(file_read(scratch(c), ll, NULL, 0), "define"));
  assert_non_null(strstr(file_read(scratch(c), s, NULL, 0), "negate:"));
  const LatheRtModuleInfo *info = codegen_llvm_jit(code);
  assert_string_equal(info->magic, "LATHERT");
  assert_int_equal(info->abi, LATHE_RT_ABI);
  assert_int_equal(info->nfuncs, 2);
  assert_string_equal(info->arch, target_arch_name(target_host_arch()));
  assert_string_equal(info->features, lathe_rt_cpu_features());
  assert_ptr_equal(codegen_llvm_jit(code), info);
}

typedef struct Attempt {
  void (*fn)(void);
} Attempt;
static void attempt_body(Ctx *c, void *arg)
{
  (void)c;
  ((Attempt *)arg)->fn();
}
static void refused(void (*fn)(void), ErrKind kind, const char *message)
{
  Attempt a = {fn};
  assert_int_equal(protect(ctx, attempt_body, &a), kind);
  assert_string_equal(error_message(ctx), message);
}

static void same_name(void) { compile(host(), 2, (Kernel *[]){negate("twin", host()), negate("twin", host())}); }
static void run_elsewhere(void)
{
  const Target *t =
      target_parse(ctx, target_host_arch() == ARCH_AARCH64 ? "llvm -mcpu=x86-64-v3" : "llvm -mcpu=cortex-a72");
  codegen_llvm_jit(compile(t, 1, (Kernel *[]){negate("far", t)}));
}
static void wrong_suffix(void)
{
  code_export(compile(host(), 1, (Kernel *[]){negate("k", host())}), "/tmp/kernel.exe");
}
static void wrong_format(void)
{
  code_get(compile(host(), 1, (Kernel *[]){negate("k", host())}), CODE_CUDA, scratch(ctx), NULL);
}
static void unknown_symbol(void)
{
  const Buffer *b[] = {flat("C", DT_I32, 1)};
  const Expr *name = expr_str(m, "no_such_function_anywhere");
  codegen_llvm_jit(compile(host(), 1,
                           (Kernel *[]){kernel_of("k", host(), 1, b, 1,
                                                  put(b[0], num(0), expr_call(m, DT_I32, IN_CALL_EXTERN, 1, &name)))}));
}
static void bound_loop(void)
{
  const Buffer *b[] = {flat("C", DT_I32, 4)};
  const Var *i = index_var("i");
  Stmt *s = stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 4), FOR_THREAD, "threadIdx.x", put(b[0], i->expr, i->expr));
  compile(host(), 1, (Kernel *[]){kernel_of("k", host(), 1, b, 1, s)});
}
static void library_name(void)
{
  const Buffer *b[] = {flat("A", DT_F64, 1), flat("C", DT_F64, 1)};
  const Expr *x = at(b[0], num(0));
  compile(host(), 1,
          (Kernel *[]){kernel_of("exp", host(), 2, b, 1, put(b[1], num(0), expr_call(m, DT_NONE, IN_EXP, 1, &x)))});
}

TEST(test_refusals)
{
  (void)c;
  refused(same_name, ERR_ARGUMENT, "two kernels are named 'twin'; a library needs one name each");
  refused(run_elsewhere, ERR_UNSUPPORTED,
          target_host_arch() == ARCH_AARCH64
              ? "code for target 'llvm -mcpu=x86-64-v3' does not run on this machine; export it and run it there"
              : "code for target 'llvm -mcpu=cortex-a72' does not run on this machine; export it and run it there");
  refused(wrong_suffix, ERR_ARGUMENT,
          "cannot tell from '/tmp/kernel.exe' what to write; the name ends in .so .o .s .ll .c .cu or .ptx");
  refused(wrong_format, ERR_UNSUPPORTED, "code of the llvm backend cannot be shown as 'cuda'; it has ll, asm, obj");
  refused(bound_loop, ERR_UNSUPPORTED,
          "llvm: kernel 'k' binds loop 'i' to threadIdx.x, which a CPU has not; build it for cuda");
  refused(library_name, ERR_ARGUMENT,
          "kernel 'exp' has the name of a C library function that is called here; rename it");
  Attempt a = {unknown_symbol};
  assert_int_equal(protect(ctx, attempt_body, &a), ERR_ARGUMENT);
  assert_non_null(strstr(error_message(ctx), "no_such_function_anywhere"));
}

static Kernel *fault_kernel;
static void compile_and_run(void)
{
  Scope scope = scope_begin(ctx);
  codegen_llvm_jit(compile(fault_kernel->target, 1, &fault_kernel));
  scope_end(ctx, scope);
}

TEST(test_allocation_failures)
{
  (void)c;
  fault_kernel = matmul("mm", host(), 32, 8, FOR_PARALLEL);
  for (int64_t n = 1;; n++) {
    Attempt a = {compile_and_run};
    mem_fail_after(ctx, n);
    ErrKind kind = protect(ctx, attempt_body, &a);
    mem_fail_after(ctx, 0);
    if (kind == ERR_NONE) break;
    assert_int_equal(kind, ERR_MEMORY);
    assert_true(n < 5000);
  }
}

int main(void)
{
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      ROW(test_elementwise),
      ROW(test_matmul),
      ROW(test_plain_kernels),
      ROW(test_accumulators_live_in_registers),
      ROW(test_neon_uses_fused_multiply_add),
      ROW(test_strided_and_gathered),
      ROW(test_indirect),
      ROW(test_masked_store),
      ROW(test_guarded_loads),
      ROW(test_bools_and_narrow_integers_fill_bytes),
      ROW(test_while_let_if),
      ROW(test_short_circuit),
      ROW(test_columns_together),
      ROW(test_return_status),
      ROW(test_parallel_workspace),
      ROW(test_parallel_status),
      ROW(test_addresses_of_nested_loops),
      ROW(test_shared_storage_is_ordered),
      ROW(test_arguments_that_may_alias),
      ROW(test_symbolic),
      ROW(test_packed_call),
      ROW(test_extern_calls),
      ROW(test_vector_sum),
      ROW(test_shared_subterms),
      ROW(test_export),
      ROW(test_refusals),
      ROW(test_allocation_failures),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
