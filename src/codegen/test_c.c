/* test_c.c: the C backend's own matters: the text it prints, names, masks, half floats
 * as bits, refusals, running out of memory.  test_c_gcc.c and the like run the
 * kernels that all backends share. */
#define C_COMPILER "gcc"
#include "codegen/test_c_kit.h"
#include "codegen/test_llvm_kit.h"

static const Target *plain(void) { return target_parse(ctx, "c"); }

static const char *text_of(Code *code) { return code_get(code, CODE_C, scratch(ctx), NULL); }

static void expect_text(const char *text, const char *part)
{
  if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static const LatheRtFuncInfo *build(Kernel *k) { return find_func(kit_load_c(compile(plain(), 1, &k)), k->name); }

static const Expr *lanes_at(const Expr *base, int lanes) { return expr_ramp(m, base, expr_i32(m, 1), lanes); }
static const Expr *lanes_from(int64_t base, int lanes) { return lanes_at(expr_i32(m, base), lanes); }

/* ---- text ------------------------------------------------------------------------------------ */

/* A vector accumulator is a variable, arguments are restrict, const when only read. */
TEST(test_reads_well)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_F32, 64), flat("B", DT_F32, 256), flat("C", DT_F32, 4)};
  const Buffer *acc = flat("C.local", DT_F32, 4);
  const Var *k = index_var("k");
  const Expr *all = lanes_from(0, 4);
  const Expr *row = lanes_at(expr_mul(m, k->expr, expr_i32(m, 4)), 4);
  const Expr *product = expr_mul(m, expr_broadcast(m, at(b[0], k->expr), 4), at(b[1], row));
  Stmt *step = loop(k, 64, put(acc, all, expr_add(m, at(acc, all), product)));
  Stmt *body = alloc_at(acc, PLACE_STACK, 0,
                        stmt_seq(m, 3,
                                 (Stmt *[]){put(acc, all, expr_broadcast(m, expr_float(m, DT_F32, 0), 4)), step,
                                            put(b[2], all, at(acc, all))}));
  Kernel *kernel = kernel_of("row", plain(), 3, b, 1, body);
  const char *text = text_of(compile(plain(), 1, &kernel));
  expect_text(text, "/* ---- kernel row ---- */\n"
                    "LATHE_EXPORT int32_t row(const float *restrict A, const float *restrict B, float *restrict C, "
                    "void *workspace, const LatheRtCalls *rt)\n"
                    "{\n  (void)workspace;\n  (void)rt;\n  f32x4 C_local;\n  C_local = splat_f32x4(0.0f);\n"
                    "  for (int32_t k = 0; k < 64; k++) {\n"
                    "    C_local = C_local + splat_f32x4(A[k]) * *(const f32x4u *)(B + k * 4);\n"
                    "  }\n  *(f32x4u *)(C) = C_local;\n  return 0;\n}\n");
  assert_null(strstr(text, "math.h"));
  assert_null(strstr(text, "LatheRtTensor"));
  assert_string_equal(text, text_of(compile(plain(), 1, &kernel)));
  float x[64], y[256], z[4];
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  for (int i = 0; i < 256; i++) y[i] = (float)(i % 4);
  assert_int_equal(call_ptrs(build(kernel), NULL, 3, (void *[]){x, y, z}), 0);
  for (int i = 0; i < 4; i++) assert_true(z[i] == 2016.0f * (float)i);
}

/* Statements in a row: one pointer for what they read near each other; factors as lanes where the machine multiplies by
 * one, but not beside stores, which may write them. */
TEST(test_shared_places)
{
  (void)c;
  enum { ROWS = 5, STEPS = 6 };
  const Buffer *b[] = {flat("A", DT_F32, ROWS * STEPS), flat("B", DT_F32, 4 * STEPS), flat("C", DT_F32, 4 * ROWS)};
  const Buffer *acc[ROWS];
  const Var *k = index_var("k");
  const Expr *all = lanes_from(0, 4);
  const Expr *row = lanes_at(expr_mul(m, k->expr, expr_i32(m, 4)), 4);
  Stmt *zero[ROWS], *step[ROWS], *out[ROWS];
  for (int i = 0; i < ROWS; i++) {
    const Expr *index = expr_add(m, expr_mul(m, k->expr, expr_i32(m, ROWS)), expr_i32(m, i));
    acc[i] = flat(arena_printf(scratch(ctx), "sum%d", i), DT_F32, 4);
    const Expr *product = expr_mul(m, expr_broadcast(m, at(b[0], index), 4), at(b[1], row));
    zero[i] = put(acc[i], all, expr_broadcast(m, expr_float(m, DT_F32, 0), 4));
    step[i] = put(acc[i], all, expr_add(m, at(acc[i], all), product));
    out[i] = put(b[2], lanes_from(4 * i, 4), at(acc[i], all));
  }
  Stmt *body = stmt_seq(
      m, 3, (Stmt *[]){stmt_seq(m, ROWS, zero), loop(k, STEPS, stmt_seq(m, ROWS, step)), stmt_seq(m, ROWS, out)});
  for (int i = ROWS - 1; i >= 0; i--) body = alloc_at(acc[i], PLACE_STACK, 0, body);
  Kernel *kernel = kernel_of("tile", plain(), 3, b, 1, body);
  const char *arm = text_of(compile(target_parse(ctx, "c -mtriple=aarch64-linux-gnu"), 1, &kernel));
  expect_text(arm, "    const float *const A_at = A + k * 5;\n"
                   "    const f32x4 A_lanes = *(const f32x4u *)(A_at);\n"
                   "    sum0 = sum0 + splat_f32x4(A_lanes[0]) * *(const f32x4u *)(B + k * 4);\n");
  expect_text(arm, "splat_f32x4(A_at[4])");
  const char *x86 = text_of(compile(target_parse(ctx, "c -mtriple=x86_64-linux-gnu"), 1, &kernel));
  expect_text(x86, "splat_f32x4(A_at[3])");
  assert_null(strstr(x86, "_lanes"));
  float x[ROWS * STEPS], y[4 * STEPS], z[4 * ROWS];
  for (int i = 0; i < ROWS * STEPS; i++) x[i] = (float)(i * i % 17);
  for (int i = 0; i < 4 * STEPS; i++) y[i] = (float)(i % 7) - 3;
  assert_int_equal(call_ptrs(build(kernel), NULL, 3, (void *[]){x, y, z}), 0);
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < 4; j++) {
      float sum = 0;
      for (int s = 0; s < STEPS; s++) sum += x[s * ROWS + i] * y[s * 4 + j];
      assert_true(z[i * 4 + j] == sum);
    }
}

/* A store in the row may write what the next one spreads. */
TEST(test_factors_behind_stores)
{
  (void)c;
  const Buffer *b[] = {flat("C", DT_F32, 20)};
  Stmt *all[4];
  for (int i = 0; i < 4; i++) all[i] = put(b[0], lanes_from(4 * i + 1, 4), expr_broadcast(m, at(b[0], num(i)), 4));
  Kernel *kernel = kernel_of("spread", plain(), 1, b, 1, stmt_seq(m, 4, all));
  assert_null(strstr(text_of(compile(target_parse(ctx, "c -mtriple=aarch64-linux-gnu"), 1, &kernel)), "_lanes"));
  float x[20] = {5, 6, 7, 8};
  assert_int_equal(call_ptrs(build(kernel), NULL, 1, (void *[]){x}), 0);
  for (int i = 0; i < 17; i++) assert_true(x[i] == 5);
}

/* Keywords, names of the C library, of the ABI and of our own types are kept apart. */
TEST(test_names)
{
  (void)c;
  const Buffer *b[] = {flat("int", DT_F64, 8), flat("exp", DT_F64, 8), flat("f64", DT_F64, 8),
                       flat("slots", DT_F64, 8)};
  const Var *i = index_var("for");
  const Var *again = index_var("for");
  const Var *dotted = index_var("i.outer");
  const Expr *x = at(b[0], i->expr);
  Stmt *all[] = {loop(i, 8, put(b[1], i->expr, expr_call(m, DT_NONE, IN_EXP, 1, &x))),
                 loop(again, 8, put(b[2], again->expr, at(b[0], again->expr))),
                 loop(dotted, 8, put(b[3], dotted->expr, at(b[0], dotted->expr)))};
  Kernel *k = kernel_of("main", plain(), 4, b, 3, stmt_seq(m, 3, all));
  double in[8], e[8], copy[2][8];
  for (int j = 0; j < 8; j++) in[j] = j * 0.5;
  assert_int_equal(call_ptrs(build(k), NULL, 4, (void *[]){in, e, copy[0], copy[1]}), 0);
  for (int j = 0; j < 8; j++) assert_true(e[j] == exp(in[j]) && copy[0][j] == in[j] && copy[1][j] == in[j]);
}

TEST(test_literals)
{
  (void)c;
  const Buffer *b[] = {flat("F", DT_F32, 6), flat("D", DT_F64, 4), flat("I", DT_I32, 2), flat("L", DT_I64, 4),
                       flat("U", DTYPE(DT_UINT, 64), 1)};
  const double f[] = {0.1f, -0.0, INFINITY, -INFINITY, 3.4028234663852886e38, 1e-45};
  const double d[] = {0.1, -2.5e-308, NAN, 1e300};
  const int64_t i32[] = {INT32_MIN, INT32_MAX};
  const int64_t i64[] = {INT64_MIN, INT64_MAX, 4294967296, -1};
  Vec(Stmt *) s = {0};
  for (int i = 0; i < COUNT(f); i++) vec_push(scratch(ctx), &s, put(b[0], num(i), expr_float(m, DT_F32, f[i])));
  for (int i = 0; i < COUNT(d); i++) vec_push(scratch(ctx), &s, put(b[1], num(i), expr_float(m, DT_F64, d[i])));
  for (int i = 0; i < COUNT(i32); i++) vec_push(scratch(ctx), &s, put(b[2], num(i), expr_int(m, DT_I32, i32[i])));
  for (int i = 0; i < COUNT(i64); i++) vec_push(scratch(ctx), &s, put(b[3], num(i), expr_int(m, DT_I64, i64[i])));
  vec_push(scratch(ctx), &s, put(b[4], num(0), expr_int(m, DTYPE(DT_UINT, 64), -1)));
  float x[6];
  double y[4];
  int32_t p[2];
  int64_t q[4];
  uint64_t u;
  assert_int_equal(call_ptrs(build(kernel_of("literals", plain(), 5, b, 5, stmt_seq(m, s.n, s.v))), NULL, 5,
                             (void *[]){x, y, p, q, &u}),
                   0);
  for (int i = 0; i < COUNT(f); i++) assert_true(x[i] == (float)f[i] && signbit(x[i]) == signbit((float)f[i]));
  for (int i = 0; i < COUNT(d); i++) assert_true(y[i] == d[i] || (isnan(y[i]) && isnan(d[i])));
  for (int i = 0; i < COUNT(i32); i++) assert_true(p[i] == i32[i]);
  assert_memory_equal(q, i64, sizeof q);
  assert_true(u == UINT64_MAX);
}

/* ---- masks --------------------------------------------------------------------------------------- */

/* Bools in vectors: loaded, compared at several widths, combined, stored, counted. */
TEST(test_masks)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_BOOL, 8), flat("F", DT_F32, 8), flat("D", DT_F64, 8),
                       flat("B", DT_BOOL, 8), flat("N", DT_I32, 8), flat("S", DT_F64, 8)};
  const Expr *all = lanes_from(0, 8);
  const Expr *a = at(b[0], all);
  const Expr *f = at(b[1], all);
  const Expr *d = at(b[2], all);
  const Expr *zero = expr_broadcast(m, expr_float(m, DT_F32, 0), 8);
  const Expr *one = expr_broadcast(m, expr_float(m, DT_F64, 1), 8);
  const Expr *positive = expr_binary(m, E_GT, f, zero);
  const Expr *small = expr_lt(m, d, one);
  const Expr *mix = expr_binary(m, E_OR, expr_and(m, positive, small), expr_not(m, a));
  const Var *v = var_new(m, "mask", dtype_lanes(DT_BOOL, 8), VAR_PLAIN);
  Stmt *use[] = {put(b[3], all, v->expr), put(b[4], all, expr_cast(m, dtype_lanes(DT_I32, 8), v->expr)),
                 put(b[5], all, expr_select(m, v->expr, d, expr_broadcast(m, expr_float(m, DT_F64, -1), 8)))};
  Kernel *k = kernel_of("masks", plain(), 6, b, 3, stmt_let(m, v, mix, stmt_seq(m, 3, use)));
  uint8_t x[8] = {0, 1, 1, 1, 0, 1, 1, 1};
  uint8_t out[8];
  float y[8] = {1, 2, -3, 4, -5, NAN, 7, 0};
  double z[8] = {0, 0.5, 0.5, 2, 3, 0, NAN, 0};
  double s[8];
  int32_t n[8];
  assert_int_equal(call_ptrs(build(k), NULL, 6, (void *[]){x, y, z, out, n, s}), 0);
  for (int i = 0; i < 8; i++) {
    bool want = (y[i] > 0 && z[i] < 1) || !x[i];
    assert_int_equal(out[i], want);
    assert_int_equal(n[i], want);
    assert_true(want ? s[i] == z[i] || isnan(z[i]) : s[i] == -1);
  }
}

/* Bools read backwards and by an index: lane by lane, each a byte as it lies in memory. */
TEST(test_bools_lane_by_lane)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_BOOL, 8), flat("I", DT_I32, 8), flat("R", DT_BOOL, 8), flat("S", DT_I64, 8)};
  const Expr *all = lanes_from(0, 8);
  const Expr *backwards = expr_ramp(m, expr_i32(m, 7), expr_i32(m, -1), 8);
  const Expr *both = expr_and(m, at(b[0], backwards), at(b[0], at(b[1], all)));
  Stmt *body = seq2(put(b[2], all, at(b[0], backwards)), put(b[3], all, expr_cast(m, dtype_lanes(DT_I64, 8), both)));
  uint8_t a[8] = {1, 0, 0, 1, 1, 0, 1, 1};
  int32_t index[8] = {3, 3, 0, 1, 7, 7, 6, 2};
  uint8_t r[8];
  int64_t s[8];
  assert_int_equal(call_ptrs(build(kernel_of("bools", plain(), 4, b, 2, body)), NULL, 4, (void *[]){a, index, r, s}),
                   0);
  for (int i = 0; i < 8; i++) {
    assert_int_equal(r[i], a[7 - i]);
    assert_int_equal(s[i], a[7 - i] && a[index[i]]);
  }
}

/* Only the taken side of a lane is read: the table ends where the condition does. */
TEST(test_guarded_lanes_with_let)
{
  (void)c;
  const Buffer *b[] = {flat("I", DT_I32, 8), flat("T", DT_F32, 3), flat("C", DT_F32, 8)};
  const Expr *all = lanes_from(0, 8);
  const Expr *index = at(b[0], all);
  const Var *v = var_new(m, "t", dtype_lanes(DT_F32, 8), VAR_PLAIN);
  const Expr *square = expr_let(m, v, at(b[1], index), expr_mul(m, v->expr, v->expr));
  const Expr *arg[] = {expr_lt(m, index, expr_broadcast(m, expr_i32(m, 3), 8)), square,
                       expr_broadcast(m, expr_float(m, DT_F32, -1), 8)};
  Kernel *k = kernel_of("lookup", plain(), 3, b, 1,
                        put(b[2], all, expr_call(m, dtype_lanes(DT_F32, 8), IN_IF_THEN_ELSE, 3, arg)));
  int32_t i[8] = {0, 1, 2, 1 << 30, 5, 2, 0x7fffffff, 1};
  float t[3] = {2, 3, 5};
  float out[8];
  assert_int_equal(call_ptrs(build(k), NULL, 3, (void *[]){i, t, out}), 0);
  assert_memory_equal(out, ((float[]){4, 9, 25, -1, -1, 25, -1, 9}), sizeof out);
}

/* ---- half floats ----------------------------------------------------------------------------------- */

/* Every float16 to float32 and back: bits, where the language has no type for them. */
TEST(test_half_bits)
{
  (void)c;
  enum { COUNT16 = 65536 };
  const Buffer *b[] = {flat("H", DT_F16, COUNT16), flat("F", DT_F32, COUNT16), flat("G", DT_F16, COUNT16)};
  const Var *i = index_var("i");
  const Expr *at4 = lanes_at(expr_mul(m, i->expr, expr_i32(m, 4)), 4);
  const Expr *wide = expr_cast(m, dtype_lanes(DT_F32, 4), at(b[0], at4));
  Stmt *body = loop(i, COUNT16 / 4,
                    seq2(put(b[1], at4, wide), put(b[2], at4, expr_cast(m, dtype_lanes(DT_F16, 4), at(b[1], at4)))));
  static uint16_t h[COUNT16], g[COUNT16];
  static float f[COUNT16];
  for (int j = 0; j < COUNT16; j++) h[j] = (uint16_t)j;
  assert_int_equal(call_ptrs(build(kernel_of("halves", plain(), 3, b, 2, body)), NULL, 3, (void *[]){h, f, g}), 0);
  for (int j = 0; j < COUNT16; j++) {
    float want = float_from_half(h[j]);
    assert_true(isnan(want) ? isnan(f[j]) : f[j] == want && signbit(f[j]) == signbit(want));
    if (!isnan(want)) assert_int_equal(g[j], h[j]);
  }
}

TEST(test_rounding_to_half)
{
  (void)c;
  const Buffer *b[] = {flat("F", DT_F32, 4096), flat("G", DT_F16, 4096)};
  const Var *i = index_var("i");
  static float f[4096];
  static uint16_t g[4096];
  uint64_t seed = 7;
  for (int j = 0; j < 4096; j++) {
    uint32_t bits = (uint32_t)next_random(&seed);
    if (j % 2) bits = (bits & 0x80ffffffu) | (uint32_t)(0x30 + j % 24) << 24; /* around the range of float16 */
    memcpy(&f[j], &bits, sizeof bits);
  }
  Stmt *body = loop(i, 4096, put(b[1], i->expr, expr_cast(m, DT_F16, at(b[0], i->expr))));
  assert_int_equal(call_ptrs(build(kernel_of("round", plain(), 2, b, 1, body)), NULL, 2, (void *[]){f, g}), 0);
  for (int j = 0; j < 4096; j++)
    if (isnan(f[j])) assert_true(isnan(float_from_half(g[j])));
    else assert_int_equal(g[j], float_to_half(f[j]));
}

/* ---- integers wrap ------------------------------------------------------------------------------------ */

TEST(test_wrapping)
{
  (void)c;
  const Buffer *b[] = {flat("A", DT_I32, 8), flat("B", DT_I32, 8), flat("C", DT_I32, 8), flat("D", DT_I32, 8)};
  const Var *i = index_var("i");
  const Expr *x = at(b[0], i->expr);
  const Expr *y = at(b[1], i->expr);
  const Expr *all = lanes_from(0, 8);
  const Expr *vx = at(b[0], all);
  const Expr *vy = at(b[1], all);
  Stmt *scalar = loop(i, 8, put(b[2], i->expr, expr_sub(m, expr_mul(m, x, y), expr_add(m, x, expr_i32(m, 77)))));
  Stmt *vector =
      put(b[3], all, expr_sub(m, expr_mul(m, vx, vy), expr_add(m, vx, expr_broadcast(m, expr_i32(m, 77), 8))));
  int32_t p[8] = {INT32_MAX, INT32_MIN, -1, 123456789, 65536, -65537, 7, 0};
  int32_t q[8] = {2, -1, INT32_MIN, 987654321, 65536, 99999, 8, 1};
  int32_t r[8], t[8];
  assert_int_equal(
      call_ptrs(build(kernel_of("wrap", plain(), 4, b, 2, seq2(scalar, vector))), NULL, 4, (void *[]){p, q, r, t}), 0);
  for (int j = 0; j < 8; j++) {
    int32_t want = (int32_t)((uint32_t)p[j] * (uint32_t)q[j] - ((uint32_t)p[j] + 77u));
    assert_int_equal(r[j], want);
    assert_int_equal(t[j], want);
  }
}

/* ---- what is refused ------------------------------------------------------------------------------------ */

typedef struct Refused {
  int n;
  Kernel **k;
} Refused;

static void try_compile(Ctx *c, void *arg)
{
  Refused *r = arg;
  code_free(codegen_c(c, plain(), r->n, r->k));
}

static void expect_refused(int n, Kernel **k, ErrKind kind, const char *message)
{
  Refused r = {n, k};
  assert_int_equal(protect(ctx, try_compile, &r), kind);
  assert_string_equal(error_message(ctx), message);
  error_clear(ctx);
}

TEST(test_refusals)
{
  const Buffer *b[] = {flat("A", DT_F32, 8), flat("C", DT_F32, 8)};
  const Buffer *shared = flat("tile", DT_F32, 8);
  const Buffer *h[] = {flat("H", DT_F16, 8), flat("G", DT_F16, 8)};
  const Var *i = index_var("i");
  Stmt *copy = put(b[1], i->expr, at(b[0], i->expr));
  Kernel *thread =
      kernel_of("k", plain(), 2, b, 1, stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 8), FOR_THREAD, "threadIdx.x", copy));
  expect_refused(1, &thread, ERR_UNSUPPORTED, "k: the c backend does not print loop 'i' bound to threadIdx.x");
  Kernel *tile =
      kernel_of("k", plain(), 2, b, 1, alloc_at(shared, PLACE_SHARED, 0, put(shared, num(0), at(b[0], num(0)))));
  expect_refused(1, &tile, ERR_UNSUPPORTED,
                 "k: the c backend does not print 'tile' in shared memory, which this target has not");
  Kernel *same[] = {kernel_of("f.1", plain(), 2, b, 1, loop(i, 8, copy)),
                    kernel_of("f_1", plain(), 2, b, 1, loop(i, 8, copy))};
  expect_refused(2, same, ERR_ARGUMENT, "c: two kernels would be called 'f_1' in C; rename one");
  if (plain()->arch != ARCH_AARCH64) {
    const Expr *x = at(h[0], num(0));
    Kernel *half = kernel_of("k", plain(), 2, h, 1, put(h[1], num(0), expr_add(m, x, x)));
    expect_refused(1, &half, ERR_UNSUPPORTED,
                   arena_printf(scratch(c),
                                "k: the c backend does not print add on float16, which target '%s' cannot compute in",
                                plain()->text));
  }
}

/* Every allocation may fail: the error comes out, nothing is left behind. */
static void try_once(Ctx *c, void *arg) { code_free(codegen_c(c, plain(), 1, arg)); }

TEST(test_out_of_memory)
{
  const Buffer *b[] = {flat("A", DT_F32, 64), flat("C", DT_F32, 64)};
  const Var *i = index_var("i");
  const Expr *all = lanes_at(expr_mul(m, i->expr, expr_i32(m, 8)), 8);
  const Expr *x = at(b[0], all);
  Stmt *body =
      stmt_for(m, i, expr_i32(m, 0), expr_i32(m, 8), FOR_PARALLEL, NULL,
               put(b[1], all,
                   expr_max(m, expr_call(m, DT_NONE, IN_SQRT, 1, &x), expr_broadcast(m, expr_float(m, DT_F32, 0), 8))));
  Kernel *k = kernel_of("sqrt8", plain(), 2, b, 1, body);
  ErrKind kind = ERR_MEMORY;
  int failures = 0;
  for (int64_t n = 1; n < 10000 && kind != ERR_NONE; n++, failures++) {
    mem_fail_after(c, n);
    kind = protect(c, try_once, &k);
    mem_fail_after(c, 0);
    if (kind) assert_int_equal(kind, ERR_MEMORY);
    error_clear(c);
  }
  assert_int_equal(kind, ERR_NONE);
  assert_true(failures > 1);
}

int main(void)
{
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      ROW(test_reads_well),
      ROW(test_shared_places),
      ROW(test_factors_behind_stores),
      ROW(test_names),
      ROW(test_literals),
      ROW(test_masks),
      ROW(test_bools_lane_by_lane),
      ROW(test_guarded_lanes_with_let),
      ROW(test_half_bits),
      ROW(test_rounding_to_half),
      ROW(test_wrapping),
      ROW(test_refusals),
      ROW(test_out_of_memory),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
