/* test_llvm_tile.c: the register tile of a packed matrix product, written as lowering
 * writes it: one stack allocation a vector of accumulators, a loop over k, A and B packed.
 * The inner loop must be loads and multiply-adds, nothing else.  With an argument the
 * program times the tile on this machine instead. */
#include <time.h>

#include "codegen/test_llvm_kit.h"

typedef struct Tile {
  int rows, cols, lanes, depth;
} Tile;

static const Expr *vec_at(const Buffer *b, const Expr *base, int lanes)
{
  return at(b, expr_ramp(m, base, expr_i32(m, 1), lanes));
}

/* One step of k: acc[i][j] += A[k, i] * B[k, j]. */
static Stmt *tile_step(const Tile *t, const Buffer *a, const Buffer *b, const Buffer *const *acc, const Var *k)
{
  int vectors = t->cols / t->lanes;
  Stmt **s = arena_array(scratch(ctx), Stmt *, t->rows * vectors);
  for (int i = 0; i < t->rows; i++)
    for (int j = 0; j < vectors; j++) {
      const Expr *x = at(a, expr_add(m, expr_mul(m, k->expr, expr_i32(m, t->rows)), expr_i32(m, i)));
      const Expr *y =
          vec_at(b, expr_add(m, expr_mul(m, k->expr, expr_i32(m, t->cols)), expr_i32(m, j * t->lanes)), t->lanes);
      const Buffer *c = acc[i * vectors + j];
      const Expr *zero = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), t->lanes);
      s[i * vectors + j] = put(c, zero, expr_add(m, at(c, zero), expr_mul(m, expr_broadcast(m, x, t->lanes), y)));
    }
  return stmt_seq(m, t->rows * vectors, s);
}

static Kernel *tile_kernel(const Target *target, const Tile *t)
{
  const Buffer *b[] = {flat("A", DT_F32, t->rows * t->depth), flat("B", DT_F32, t->cols * t->depth),
                       flat("C", DT_F32, t->rows * t->cols)};
  int vectors = t->cols / t->lanes;
  int n = t->rows * vectors;
  const Buffer **acc = arena_array(m->arena, const Buffer *, n);
  Stmt **begin = arena_array(scratch(ctx), Stmt *, n);
  Stmt **end = arena_array(scratch(ctx), Stmt *, n);
  const Expr *zero = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), t->lanes);
  const Var *k = index_var("k");
  for (int i = 0; i < n; i++) {
    acc[i] = flat("acc", DT_F32, t->lanes);
    begin[i] = put(acc[i], zero, expr_broadcast(m, expr_float(m, DT_F32, 0), t->lanes));
    const Expr *to =
        expr_ramp(m, expr_i32(m, i / vectors * t->cols + i % vectors * t->lanes), expr_i32(m, 1), t->lanes);
    end[i] = put(b[2], to, at(acc[i], zero));
  }
  Stmt *body = stmt_seq(
      m, 3,
      (Stmt *[]){stmt_seq(m, n, begin), loop(k, t->depth, tile_step(t, b[0], b[1], acc, k)), stmt_seq(m, n, end)});
  for (int i = 0; i < n; i++) body = alloc_at(acc[i], PLACE_STACK, 0, body);
  return kernel_of("tile", target, 3, b, 1, body);
}

/* The lines from the label of the loop that holds most of `word` to its jump. */
static const char *hot_loop(const char *text, const char *word)
{
  const char *best = NULL;
  const char *label = NULL;
  size_t best_n = 0;
  size_t length = 0;
  int most = 0;
  int here = 0;
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    if (line[0] == '.' && line[1] == 'L') label = line, here = 0;
    size_t n = strcspn(line, "\n");
    const char *hit = strstr(line, word);
    here += hit && hit < line + n;
    length = label ? (size_t)(line + n - label) : 0;
    if (label && here > most) most = here, best = label;
    if (best == label && label) best_n = length;
    if (!strchr(line, '\n')) break;
    if (label && (strncmp(line, "\tj", 2) == 0 || strncmp(line, "\tb.", 3) == 0)) label = NULL;
  }
  return best ? arena_strndup(scratch(ctx), best, best_n) : "";
}

static int count_of(const char *text, const char *word)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, word)); p += strlen(word)) n++;
  return n;
}

enum { LOOP_CONTROL = 5 }; /* a count, two pointers, compare, jump */
static int instructions(const char *text) { return count_of(text, "\n\t"); }

TEST(test_avx512_tile)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu");
  const char *hot = hot_loop(assembly(compile(t, 1, (Kernel *[]){tile_kernel(t, &(Tile){14, 32, 16, 256})})), "vfmadd");
  int fma = count_of(hot, "vfmadd");
  int loads = count_of(hot, "vbroadcastss") + count_of(hot, "vmovups\t");
  if (fma != 28 || loads > 16 || instructions(hot) > fma + loads + LOOP_CONTROL || count_of(hot, "rsp") ||
      count_of(hot, "vmovaps"))
    fail_msg("%d multiply-adds, %d loads, %d instructions:\n%s", fma, loads, instructions(hot), hot);
}

TEST(test_avx2_tile)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu");
  const char *hot = hot_loop(assembly(compile(t, 1, (Kernel *[]){tile_kernel(t, &(Tile){6, 16, 8, 256})})), "vfmadd");
  int fma = count_of(hot, "vfmadd");
  int loads = count_of(hot, "vbroadcastss") + count_of(hot, "vmovups\t");
  if (fma != 12 || loads > 8 || instructions(hot) > fma + loads + LOOP_CONTROL || count_of(hot, "rsp") ||
      count_of(hot, "vmovaps"))
    fail_msg("%d multiply-adds, %d loads, %d instructions:\n%s", fma, loads, instructions(hot), hot);
}

TEST(test_neon_tile)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  const char *hot = hot_loop(assembly(compile(t, 1, (Kernel *[]){tile_kernel(t, &(Tile){8, 12, 4, 256})})), "fmla");
  int fma = count_of(hot, "fmla");
  int loads = count_of(hot, "\tld");
  if (fma != 24 || !strstr(hot, ".s[3]") || instructions(hot) > fma + loads + LOOP_CONTROL || loads > 5 ||
      count_of(hot, "[sp") || count_of(hot, "\tmov\tv"))
    fail_msg("%d multiply-adds, %d loads, %d instructions:\n%s", fma, loads, instructions(hot), hot);
}

/* max(x, -2), max(x, 0) and min(x, 6) written as selects that let NaN through: an instruction each. */
TEST(test_neon_limits)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  static const double low[] = {-2, 0};
  for (int i = 0; i < 2; i++) {
    const Buffer *b[] = {flat("A", DT_F32, 4), flat("B", DT_F32, 4)};
    const Expr *four = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), 4);
    const Expr *x = at(b[0], four);
    const Expr *lo = expr_broadcast(m, expr_float(m, DT_F32, low[i]), 4);
    const Expr *hi = expr_broadcast(m, expr_float(m, DT_F32, 6), 4);
    x = expr_select(m, expr_binary(m, E_GT, lo, x), lo, x);
    x = expr_select(m, expr_binary(m, E_LT, hi, x), hi, x);
    const char *text =
        assembly(compile(t, 1, (Kernel *[]){kernel_of(i ? "zero" : "limits", t, 2, b, 1, put(b[1], four, x))}));
    assert_int_equal(count_of(text, "\tfmin\tv"), 1);
    assert_int_equal(count_of(text, "\tfmax\tv"), 1);
    assert_int_equal(count_of(text, "\tfcm"), 0);
  }
}

/* The greater and the lesser of two, NaN where either is: an instruction each. */
TEST(test_neon_extremes)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  const Buffer *b[] = {flat("A", DT_F32, 4), flat("B", DT_F32, 4), flat("C", DT_F32, 4)};
  const Expr *four = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), 4);
  const Expr *x = at(b[0], four);
  const Expr *y = at(b[1], four);
  for (int i = 0; i < 4; i++) {
    bool greater = i % 2;
    bool turned = i / 2;
    const Expr *beyond = expr_binary(m, greater == turned ? E_LT : E_GT, turned ? y : x, turned ? x : y);
    const Expr *value = expr_select(m, expr_binary(m, E_OR, beyond, expr_binary(m, E_NE, x, x)), x, y);
    const char *text = assembly(compile(t, 1, (Kernel *[]){kernel_of("extreme", t, 3, b, 1, put(b[2], four, value))}));
    assert_int_equal(count_of(text, greater ? "\tfmax\tv" : "\tfmin\tv"), 1);
    assert_int_equal(count_of(text, "\tfcm"), 0);
  }
}

/* The constants of a function in a loop inside another, which a tile's sums share with it, are read before the loop:
 * nothing makes them in it. */
TEST(test_neon_constants)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  const Buffer *b[] = {flat("A", DT_F32, 4096), flat("B", DT_F32, 4096)};
  const Var *i = index_var("i");
  const Var *j = index_var("j");
  const Expr *from = expr_add(m, expr_mul(m, i->expr, expr_i32(m, 64)), expr_mul(m, j->expr, expr_i32(m, 4)));
  const Expr *x = vec_at(b[0], from, 4);
  const Expr *sum = expr_broadcast(m, expr_float(m, DT_F32, 0.1), 4);
  for (int k = 2; k < 8; k++)
    sum = expr_add(m, expr_mul(m, sum, x), expr_broadcast(m, expr_float(m, DT_F32, k / 10.0), 4));
  Stmt *body = loop(i, 64, loop(j, 16, put(b[1], expr_ramp(m, from, expr_i32(m, 1), 4), sum)));
  const char *text = assembly(compile(t, 1, (Kernel *[]){kernel_of("constants", t, 2, b, 1, body)}));
  const char *hot = hot_loop(text, "fmla");
  assert_int_equal(count_of(hot, "fmla"), 6);
  assert_int_equal(count_of(hot, "\tdup") + count_of(hot, "\tmovk") + count_of(hot, "\tldr\tq"), 1); /* x alone */
}

/* C[0:4] and C[second:second + 4] each the sum of what they were and a chain of roots. */
static Kernel *root_sums(const Target *t, int second)
{
  enum { ROOTS = 12 };
  const Buffer *b[] = {flat("A", DT_F32, 8), flat("C", DT_F32, 8)};
  Stmt *sum[2];
  for (int i = 0; i < 2; i++) {
    const Expr *x = vec_at(b[0], expr_i32(m, 4 * i), 4);
    const Expr *place = expr_ramp(m, expr_i32(m, i * second), expr_i32(m, 1), 4);
    for (int k = 0; k < ROOTS; k++) x = expr_call(m, DT_NONE, IN_SQRT, 1, &x);
    sum[i] = put(b[1], place, expr_add(m, at(b[1], place), x));
  }
  return kernel_of("roots", t, 2, b, 1, stmt_seq(m, 2, sum));
}

/* Sums of long values go abreast: no root stands behind the one that it waits for. */
TEST(test_neon_sums_abreast)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  const char *text = assembly(compile(t, 1, (Kernel *[]){root_sums(t, 4)}));
  int last = -1;
  int to, from;
  int n = 0;
  for (const char *p = text; (p = strstr(p, "\tfsqrt\t")); p++, n++) {
    assert_int_equal(sscanf(p, " fsqrt v%d.4s, v%d.4s", &to, &from), 2);
    assert_int_not_equal(from, last);
    last = to;
  }
  assert_int_equal(n, 24);
}

/* Sums that overlap go one after the other. */
TEST(test_sums_in_order)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm");
  for (int second = 0; second <= 4; second++) {
    float a[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[8] = {0};
    assert_int_equal(call_ptrs(find_func(codegen_llvm_jit(compile(t, 1, (Kernel *[]){root_sums(t, second)})), "roots"),
                               NULL, 2, (void *[]){a, out}),
                     0);
    for (int i = 0; i < 8; i++) assert_true(out[i] == (float)((i < 4) + (i >= second && i < second + 4)));
  }
}

/* A 2 x 2 block of sums over fours of bfloat16: two loads and one instruction a step, no word moved to another lane. */
TEST(test_neon_block)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-v1 -mtriple=aarch64-linux-gnu");
  DType words = DTYPE(DT_UINT, 64);
  const Buffer *b[] = {flat("A", words, 512), flat("B", words, 512), flat("C", DT_F32, 4)};
  const Buffer *acc = flat("acc", DT_F32, 4);
  const Var *k = index_var("k");
  const Expr *four = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), 4);
  const Expr *two = expr_int(m, four->dtype, 2);
  const Expr *from = expr_broadcast(m, expr_mul(m, k->expr, expr_i32(m, 2)), 4);
  const Expr *factor[] = {at(b[0], expr_add(m, from, expr_binary(m, E_DIV, four, two))),
                          at(b[1], expr_add(m, from, expr_binary(m, E_MOD, four, two)))};
  Stmt *step = put(acc, four, expr_add(m, at(acc, four), expr_call(m, DT_NONE, IN_BF16_DOT, 2, factor)));
  Stmt *all[] = {put(acc, four, expr_broadcast(m, expr_float(m, DT_F32, 0), 4)), loop(k, 256, step),
                 put(b[2], four, at(acc, four))};
  Kernel *kernel = kernel_of("block", t, 3, b, 1, alloc_at(acc, PLACE_STACK, 0, stmt_seq(m, 3, all)));
  const char *hot = hot_loop(assembly(compile(t, 1, &kernel)), "bfmmla");
  int dots = count_of(hot, "bfmmla");
  int loads = count_of(hot, "\tld");
  if (dots < 1 || loads > 2 * dots || instructions(hot) > dots + loads + LOOP_CONTROL || count_of(hot, "zip") ||
      count_of(hot, "\tdup"))
    fail_msg("%s", hot);
}

/* Four neighbours joined by shifts are one load; so is each run of lanes. */
TEST(test_neon_neighbours)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-v1 -mtriple=aarch64-linux-gnu");
  DType u16 = DTYPE(DT_UINT, 16);
  DType u64 = DTYPE(DT_UINT, 64);
  const Buffer *b[] = {flat("A", u16, 64), flat("B", u64, 16), flat("C", DT_F32, 64), flat("D", DT_F32, 4)};
  const Var *i = index_var("i");
  const Expr *word = NULL;
  const Expr *four = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), 4);
  const Expr *two = expr_int(m, four->dtype, 2);
  for (int p = 0; p < 2; p++) {
    const Expr *half[2];
    const Expr *first = expr_mul(m, i->expr, expr_i32(m, 4));
    for (int h = 0; h < 2; h++)
      half[h] = expr_cast(m, DTYPE(DT_UINT, 32), at(b[0], expr_add(m, first, expr_i32(m, 2 * p + h))));
    const Expr *up = expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){half[1], expr_int(m, half[1]->dtype, 16)});
    const Expr *pair = expr_cast(m, u64, expr_call(m, DT_NONE, IN_BITOR, 2, (const Expr *[]){half[0], up}));
    if (p) pair = expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){pair, expr_int(m, u64, 32)});
    word = p ? expr_call(m, DT_NONE, IN_BITOR, 2, (const Expr *[]){word, pair}) : pair;
  }
  /* 0 1 4 5 */
  const Expr *runs = expr_add(m, expr_mul(m, expr_binary(m, E_DIV, four, two), expr_int(m, four->dtype, 4)),
                              expr_binary(m, E_MOD, four, two));
  Stmt *both[] = {loop(i, 16, put(b[1], i->expr, word)), put(b[3], four, at(b[2], runs))};
  const char *text = assembly(compile(t, 1, (Kernel *[]){kernel_of("neighbours", t, 4, b, 1, stmt_seq(m, 2, both))}));
  assert_int_equal(count_of(text, "ldrh"), 0);
  assert_int_equal(count_of(text, "\torr\t"), 0);
  assert_int_equal(count_of(text, "ldur\tq"), 0); /* a window that reaches over its lanes */
}

/* B[k, i] = A[i * stride + k] in vectors: columns taken apart by their remainder. */
static Kernel *columns_kernel(const Target *t, int stride, int lanes, int vectors)
{
  const Buffer *b[] = {flat("A", DT_F32, stride * lanes * vectors), flat("B", DT_F32, stride * lanes * vectors)};
  const Var *i = index_var("i");
  const Expr *first = expr_mul(m, i->expr, expr_i32(m, lanes));
  Stmt *part[4];
  for (int k = 0; k < stride; k++) {
    const Expr *from = expr_add(m, expr_mul(m, first, expr_i32(m, stride)), expr_i32(m, k));
    const Expr *to = expr_add(m, first, expr_i32(m, k * lanes * vectors));
    part[k] =
        put(b[1], expr_ramp(m, to, expr_i32(m, 1), lanes), at(b[0], expr_ramp(m, from, expr_i32(m, stride), lanes)));
  }
  return kernel_of("columns", t, 2, b, 1, loop(i, vectors, stmt_seq(m, stride, part)));
}

TEST(test_columns_read_once)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu");
  const char *hot = hot_loop(assembly(compile(t, 1, (Kernel *[]){columns_kernel(t, 2, 16, 64)})), "vperm");
  int reads = count_of(hot, "), %zmm") + count_of(hot, "), %zmm0, %zmm") + count_of(hot, "gather");
  int picks = count_of(hot, "vperm");
  if (picks != 2 || reads != 2) fail_msg("%d reads, %d picks:\n%s", reads, picks, hot);
}

TEST(test_columns_result)
{
  (void)c;
  enum { LANES = 8, VECTORS = 5, MOST = 4 * LANES * VECTORS };
  for (int stride = 2; stride <= 4; stride++) {
    const LatheRtFuncInfo *f = find_func(
        codegen_llvm_jit(compile(target_parse(ctx, "llvm"), 1,
                                 (Kernel *[]){columns_kernel(target_parse(ctx, "llvm"), stride, LANES, VECTORS)})),
        "columns");
    float a[MOST], b[MOST];
    for (int i = 0; i < MOST; i++) a[i] = (float)i;
    assert_int_equal(call_ptrs(f, NULL, 2, (void *[]){a, b}), 0);
    for (int i = 0; i < stride * LANES * VECTORS; i++)
      assert_true(b[i % stride * LANES * VECTORS + i / stride] == a[i]);
  }
}

/* LLVM vectorises the copy, though not with scalable vectors, which its later passes cannot take. */
TEST(test_sve_beside_a_plain_loop)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-v1 -mtriple=aarch64-linux-gnu");
  const Buffer *b[] = {flat("A", DT_F32, 4096), flat("B", DT_F32, 4096)};
  const Var *i = index_var("i");
  Kernel *copy = kernel_of("copy", t, 2, b, 1, loop(i, 4096, put(b[1], i->expr, at(b[0], i->expr))));
  const char *text = assembly(compile(t, 2, (Kernel *[]){tile_kernel(t, &(Tile){8, 12, 4, 256}), copy}));
  assert_int_equal(count_of(hot_loop(text, "fmla"), "fmla"), 24);
  assert_null(strstr(text, "ld1w"));
}

/* A short sum written out, a tile for each i: its sums lie in one array, which a loop at the end takes up row by row.
 * They are put there once, though the array has more accesses than LLVM looks through, and B is fetched ahead. */
TEST(test_sums_go_to_memory_once)
{
  (void)c;
  enum { ROWS = 7, VECTORS = 3, LANES = 4, STEPS = 6, COLS = VECTORS * LANES, TILES = 4 };
  const Target *t = target_parse(ctx, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu");
  const Buffer *b[] = {flat("A", DT_F32, TILES * ROWS * STEPS), flat("B", DT_F32, STEPS * COLS),
                       flat("C", DT_F32, TILES * ROWS * COLS)};
  const Buffer *acc = flat("acc", DT_F32, ROWS * COLS);
  const Var *tile = index_var("tile");
  const Var *row = index_var("row");
  const Expr *one = expr_i32(m, 1);
  Stmt *all[(STEPS + 1) * ROWS * VECTORS + STEPS];
  int n = 0;
  for (int k = -1; k < STEPS; k++) {
    const Expr *ahead =
        expr_call(m, DT_NONE, IN_ADDRESS_OF, 1, (const Expr *[]){at(b[1], expr_i32(m, (k + 1) % STEPS * COLS))});
    const Expr *how[] = {ahead, expr_i32(m, 0), expr_i32(m, 3), one};
    if (k >= 0) all[n++] = stmt_eval(m, expr_call(m, DT_I32, IN_PREFETCH, 4, how));
    for (int i = 0; i < ROWS * VECTORS; i++) {
      const Expr *sum = expr_ramp(m, expr_i32(m, i * LANES), one, LANES);
      const Expr *first = expr_mul(m, tile->expr, expr_i32(m, ROWS * STEPS));
      const Expr *x = at(b[0], expr_add(m, first, expr_i32(m, i / VECTORS * STEPS + k)));
      const Expr *y = vec_at(b[1], expr_i32(m, k * COLS + i % VECTORS * LANES), LANES);
      all[n++] = put(acc, sum,
                     k < 0 ? expr_broadcast(m, expr_float(m, DT_F32, 0), LANES)
                           : expr_add(m, at(acc, sum), expr_mul(m, expr_broadcast(m, x, LANES), y)));
    }
  }
  const Expr *sums = vec_at(acc, expr_mul(m, row->expr, expr_i32(m, COLS)), COLS);
  const Expr *line = expr_add(m, expr_mul(m, tile->expr, expr_i32(m, ROWS)), row->expr);
  Stmt *out = put(b[2], expr_ramp(m, expr_mul(m, line, expr_i32(m, COLS)), one, COLS), expr_mul(m, sums, sums));
  Stmt *body = alloc_at(acc, PLACE_STACK, 0, seq2(stmt_seq(m, n, all), loop(row, ROWS, out)));
  body = stmt_for(m, tile, expr_i32(m, 0), expr_i32(m, TILES), FOR_PARALLEL, NULL, body);
  const char *text = assembly(compile(t, 1, (Kernel *[]){kernel_of("sums", t, 3, b, 1, body)}));
  int stored = count_of(text, "\tstr\tq") + 2 * count_of(text, "\tstp\tq");
  int sums_made = count_of(text, "fmla");
  if (sums_made != STEPS * ROWS * VECTORS || stored >= 2 * ROWS * VECTORS)
    fail_msg("%d multiply-adds, %d vectors are stored", sums_made, stored);
}

TEST(test_tile_result)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm");
  Tile tile = {6, 32, 16, 64};
  const LatheRtFuncInfo *f = find_func(codegen_llvm_jit(compile(t, 1, (Kernel *[]){tile_kernel(t, &tile)})), "tile");
  float a[6 * 64], b[32 * 64], out[6 * 32];
  for (int i = 0; i < 6 * 64; i++) a[i] = (float)(i % 11) - 5;
  for (int i = 0; i < 32 * 64; i++) b[i] = (float)(i % 13) - 6;
  assert_int_equal(call_ptrs(f, NULL, 3, (void *[]){a, b, out}), 0);
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 32; j++) {
      float want = 0;
      for (int k = 0; k < 64; k++) want += a[k * 6 + i] * b[k * 32 + j];
      assert_true(out[i * 32 + j] == want);
    }
}

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_tile(Ctx *c, void *arg)
{
  (void)c, (void)arg;
  const Target *t = target_parse(ctx, "llvm");
  Tile tile = t->vector_bits == 512   ? (Tile){14, 32, 16, 256}
              : t->vector_bits == 256 ? (Tile){6, 16, 8, 256}
                                      : (Tile){8, 12, 4, 256};
  double start = seconds();
  Kernel *k = tile_kernel(t, &tile);
  double built = seconds();
  Code *code = compile(t, 1, &k);
  double optimised = seconds();
  size_t bytes;
  code_get(code, CODE_OBJECT, scratch(ctx), &bytes);
  double emitted = seconds();
  const LatheRtFuncInfo *f = find_func(codegen_llvm_jit(code), "tile");
  double linked = seconds();
  printf("build %.2f ms, optimise %.2f ms, emit %.2f ms, link %.2f ms\n", 1e3 * (built - start),
         1e3 * (optimised - built), 1e3 * (emitted - optimised), 1e3 * (linked - emitted));
  float *x[3];
  for (int i = 0; i < 3; i++) x[i] = aligned_alloc(64, 64 * 1024), memset(x[i], 0, 64 * 1024);
  double best = 1e9;
  for (int r = 0; r < 20; r++) {
    double from = seconds();
    for (int i = 0; i < 2000; i++) call_ptrs(f, NULL, 3, (void *[]){x[0], x[1], x[2]});
    double took = (seconds() - from) / 2000;
    if (took < best) best = took;
  }
  printf("%dx%d tile, depth %d: %.1f GFLOP/s\n", tile.rows, tile.cols, tile.depth,
         2e-9 * tile.rows * tile.cols * tile.depth / best);
  for (int i = 0; i < 3; i++) free(x[i]);
}

int main(int argc, char **argv)
{
  if (argc > 1) {
    setup(NULL);
    if (protect(ctx, time_tile, argv)) printf("%s\n", error_message(ctx));
    return teardown(NULL);
  }
  const struct CMUnitTest tests[] = {ROW(test_avx512_tile),
                                     ROW(test_avx2_tile),
                                     ROW(test_neon_tile),
                                     ROW(test_neon_limits),
                                     ROW(test_neon_extremes),
                                     ROW(test_neon_constants),
                                     ROW(test_neon_sums_abreast),
                                     ROW(test_sums_in_order),
                                     ROW(test_neon_block),
                                     ROW(test_neon_neighbours),
                                     ROW(test_columns_read_once),
                                     ROW(test_columns_result),
                                     ROW(test_sve_beside_a_plain_loop),
                                     ROW(test_sums_go_to_memory_once),
                                     ROW(test_tile_result)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
