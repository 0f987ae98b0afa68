/* test_choice.c: what the models of the target choose, for several targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "impl/internal.h"
#include "op/nn.h"

enum { AVX512, AVX2, ZEN4, N1, V1, A72, TARGETS };
/* clang-format off */
static const char *const texts[TARGETS] = {
    [AVX512] = "llvm -mcpu=cascadelake",
    [AVX2] = "llvm -mcpu=haswell",
    [ZEN4] = "llvm -mcpu=znver4",
    [N1] = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    [V1] = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
    [A72] = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
};
/* clang-format on */
static const Target *target[TARGETS];

static int setup(void **state)
{
  Ctx *ctx = ctx_new();
  *state = ctx;
  op_init();
  for (int i = 0; i < TARGETS; i++) target[i] = target_parse(ctx, texts[i]);
  return 0;
}

static int teardown(void **state)
{
  ctx_free(*state);
  return 0;
}

/* The peaks that are in these processors' data sheets. */
static void peaks(void **state)
{
  (void)state;
  static const double gflops[TARGETS] = {
    [AVX512] = 160, [AVX2] = 80, [ZEN4] = 102.4, [N1] = 40, [V1] = 83.2, [A72] = 14.4};
  for (int i = 0; i < TARGETS; i++) assert_float_equal(cost_flops(target[i], 32) / 1e9, gflops[i], 0.01);
  assert_float_equal(cost_pipes(target[ZEN4]), 1, 0); /* 512-bit vectors in two halves */
  assert_float_equal(cost_pipes(target[V1]), 4, 0);
}

/* Registers that a tile needs while a step is computed: the sums; the step's vectors of weights; and for the elements
 * one vector where a load spreads an element, else one for each position, which then serves as many steps as it has
 * lanes; and one more, into which the next load goes while the last one is still needed. */
static int64_t registers_needed(const Target *t, int64_t vectors, Tile k)
{
  int64_t positions = k.y * k.x;
  int64_t weights = k.o * vectors;
  return weights * positions + weights + (t->broadcast_load ? 1 : positions) + 1;
}

/* Could the tile be twice as large in some direction: are there so many blocks, rows, columns, and registers for
 * them? */
static bool can_double(const Target *t, int64_t vectors, const int64_t *size, Tile k)
{
  const Tile larger[] = {{2 * k.o, k.y, k.x}, {k.o, 2 * k.y, k.x}, {k.o, k.y, 2 * k.x}};
  for (int i = 0; i < 3; i++) {
    Tile l = larger[i];
    bool there = size[0] % l.o == 0 && l.y <= size[1] && l.x <= size[2];
    if (there && registers_needed(t, vectors, l) <= t->vector_registers) return true;
  }
  return false;
}

/* Fewer sums than multiply-adds are in flight leave pipes empty: a tile has as many, or cannot be doubled (a row of 7
 * on AVX2, where 14 sums and what feeds them are one register too many).  How many more it has than that serves to
 * read less: a step's loads take no longer than its multiply-adds where two vectors of weights share an element. */
static void tiles_fit(void **state)
{
  (void)state;
  static const int64_t sizes[][3] = {{4, 56, 56},   {8, 28, 28}, {16, 14, 14}, {32, 7, 7},
                                     {2, 112, 112}, {1, 1, 17},  {3, 13, 13},  {1, 1, 1000000}};
  for (int i = 0; i < TARGETS; i++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int64_t vectors = 1; vectors <= 2; vectors++) {
        const Target *t = target[i];
        Tile k = tile_best(t, vectors, sizes[s][0], sizes[s][1], sizes[s][2]);
        double sums = (double)(k.o * k.y * k.x * vectors);
        double elements = (double)(k.y * k.x) / (t->broadcast_load ? 1 : target_lanes(t, 32));
        assert_int_equal(sizes[s][0] % k.o, 0);
        assert_true(registers_needed(t, vectors, k) <= t->vector_registers);
        assert_true(sums >= cost_pipes(t) * t->core.fma_latency || !can_double(t, vectors, sizes[s], k));
        double loads = (elements + (double)(k.o * vectors)) * t->vector_bits / t->core.load_bits;
        if (k.o * vectors > 1) assert_true(loads <= sums / cost_pipes(t));
      }
}

/* Columns of a product's tile: whole vectors, little of n wasted, and rows for which registers are left. */
static void columns_divide(void **state)
{
  (void)state;
  static const int64_t n[] = {64, 96, 384, 768, 1000, 3072};
  for (int i = 0; i < TARGETS; i++)
    for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
      int64_t width = tile_columns(target[i], 32, n[k]);
      int64_t lanes = target_lanes(target[i], 32);
      assert_int_equal(width % lanes, 0);
      assert_true(8 * ((n[k] + width - 1) / width * width - n[k]) <= n[k]);
      Tile t = tile_best(target[i], width / lanes, 1, 1, 1 << 20);
      assert_true(registers_needed(target[i], width / lanes, t) <= target[i]->vector_registers);
    }
}

static void blocks_divide(void **state)
{
  (void)state;
  assert_int_equal(alter_block(target[AVX512], 32, 64), 16);
  assert_int_equal(alter_block(target[AVX2], 32, 64), 8);
  assert_int_equal(alter_block(target[N1], 32, 64), 8);
  assert_int_equal(alter_block(target[AVX512], 32, 24), 24); /* one and a half vectors, not half of each */
  assert_int_equal(alter_block(target[AVX512], 32, 3), 0);
  assert_int_equal(alter_block(target[AVX512], 32, 17), 0);
  for (int64_t n = 1; n < 600; n++) {
    int64_t b = alter_block(target[AVX512], 32, n);
    assert_true(b == 0 || n % b == 0);
  }
}

static void vectors_of_blocks(void **state)
{
  (void)state;
  assert_int_equal(alter_block_vectors(16, 16), 1);
  assert_int_equal(alter_block_vectors(24, 16), 2);
  assert_int_equal(alter_block_vectors(40, 16), 3);
  assert_int_equal(alter_block_vectors(7, 4), 3);
}

/* ---- Winograd or not --------------------------------------------------------------------- */

typedef struct Layer {
  const Target *target;
  int channels, size;
  double seconds, bytes; /* of the network that it stands in; 0: it stands alone */
  int tile;              /* out: outputs of a tile; 0: direct */
  bool before;           /* out: the weight is transformed at compile time */
} Layer;

static void alter_body(Ctx *ctx, void *arg)
{
  Layer *l = arg;
  Module *m = module_new(ctx);
  const char *text = arena_printf(m->arena,
                                  "fn (%%x: Tensor[(1, %d, %d, %d), float32]) { nn.conv2d(%%x, zeros(shape=[%d, %d, 3, "
                                  "3], dtype=\"float32\"), padding=[1, 1]) }",
                                  l->channels, l->size, l->size, l->channels, l->channels);
  const Node *f = graph_infer(m, graph_parse_expr(m, text, "test"));
  AlteredCall to;
  ImplConfig config = {.seconds = l->seconds, .bytes = l->bytes};
  l->tile = -1;
  if (impl_alter(m, l->target, &config, fn_body(f), &to)) {
    bool winograd = strstr(to.op->name, "winograd");
    l->tile = winograd ? (int)((const WinogradAttrs *)to.attrs)->tile_size : 0;
    l->before = winograd && ((const WinogradAttrs *)to.attrs)->transformed;
  }
  module_release(m);
}

static int winograd_tile(Ctx *ctx, int machine, int channels, int size)
{
  Layer l = {.target = target[machine], .channels = channels, .size = size, .tile = -1};
  if (protect(ctx, alter_body, &l)) print_error("%s\n", error_message(ctx));
  return l.tile;
}

/* Is the weight transformed before, in a network of so many seconds and bytes? */
static bool transformed_before(Ctx *ctx, int machine, int channels, int size, double seconds, double bytes)
{
  Layer l = {
    .target = target[machine], .channels = channels, .size = size, .seconds = seconds, .bytes = bytes, .tile = -1};
  if (protect(ctx, alter_body, &l)) print_error("%s\n", error_message(ctx));
  assert_true(l.tile > 0);
  return l.before;
}

/* The 3 x 3 layers of ResNet.  Large images with few channels have large tiles everywhere: arithmetic decides.  At 7 x
 * 7 with 512 channels the weight is 9 MB as it stands, 17 for tiles of 2 and 38 for tiles of 4: a machine with wide
 * vectors waits for the largest, one with narrow vectors has more to compute than to wait for. */
static void winograd_by_layer(void **state)
{
  for (int i = 0; i < TARGETS; i++) {
    assert_true(winograd_tile(*state, i, 64, 56) >= 4);
    assert_true(winograd_tile(*state, i, 128, 28) >= 4);
  }
  assert_int_equal(winograd_tile(*state, AVX512, 512, 7), 2);
  assert_int_equal(winograd_tile(*state, N1, 512, 7), 4);
}

/* Transforming 28 MB away takes a millisecond: little of a network that takes a tenth of a second and has 200 MB of
 * weights, much of one that takes 30 ms.  A weight that the second-level cache holds stays transformed, and so does
 * every one where a layer stands alone. */
static void transformed_by_network(void **state)
{
  assert_false(transformed_before(*state, N1, 512, 7, 0.2, 2e8));
  assert_true(transformed_before(*state, N1, 512, 7, 0.03, 2e8));
  assert_true(transformed_before(*state, N1, 512, 7, 0, 0));
  assert_true(transformed_before(*state, N1, 64, 56, 0.2, 2e8));
  assert_true(transformed_before(*state, AVX512, 512, 7, 0.2, 2e8));
}

/* ---- alone -------------------------------------------------------------------------------- */

typedef struct OneTap {
  const Target *target;
  int from, to, size;
  bool kept; /* out: the layout stays as it is */
} OneTap;

static void alone_body(Ctx *ctx, void *arg)
{
  OneTap *l = arg;
  Module *m = module_new(ctx);
  const char *text = arena_printf(
      m->arena,
      "fn (%%x: Tensor[(1, %d, %d, %d), float32]) { nn.conv2d(%%x, zeros(shape=[%d, %d, 1, 1], dtype=\"float32\")) }",
      l->from, l->size, l->size, l->to, l->from);
  AlteredCall to;
  l->kept =
      impl_alter_alone(m, l->target, &(ImplConfig){0}, fn_body(graph_infer(m, graph_parse_expr(m, text, "test"))), &to);
  module_release(m);
}

static bool stays_plain(Ctx *ctx, int machine, int from, int to, int size)
{
  OneTap l = {target[machine], from, to, size, false};
  if (protect(ctx, alone_body, &l)) print_error("%s\n", error_message(ctx));
  return l.kept;
}

/* Few channels over many positions are a change of layout and little more.  A weight of 4 MB is read once for all
 * positions in blocks and again for each tile of a plane; a single position has no layout to change. */
static void plain_where_alone(void **state)
{
  for (int i = 0; i < TARGETS; i++) {
    assert_true(stays_plain(*state, i, 16, 96, 112));
    assert_true(stays_plain(*state, i, 64, 64, 56));
    assert_false(stays_plain(*state, i, 512, 2048, 7));
    assert_false(stays_plain(*state, i, 96, 24, 1));
  }
  assert_true(stays_plain(*state, AVX512, 256, 32, 28));
  /* blocks of 40 channels leave a sixth of the lanes empty */
  assert_true(stays_plain(*state, AVX512, 512, 1000, 13));
  assert_false(stays_plain(*state, AVX512, 832, 48, 7)); /* the copy, and vectors half empty */
}

/* A convolution of square windows, padded to keep its size or half of it: depthwise, or (from) of so many input
 * channels. */
typedef struct Window {
  const Target *target;
  int channels, size, kernel, stride, from;
  bool kept;
} Window;

static void window_body(Ctx *ctx, void *arg)
{
  Window *d = arg;
  int in = d->from ? d->from : d->channels;
  Module *m = module_new(ctx);
  const char *text = arena_printf(m->arena,
                                  "fn (%%x: Tensor[(1, %d, %d, %d), float32]) { nn.conv2d(%%x, zeros(shape=[%d, %d, "
                                  "%d, %d], dtype=\"float32\"), groups=%d, "
                                  "strides=[%d, %d], padding=[%d, %d]) }",
                                  in, d->size, d->size, d->channels, d->from ? in : 1, d->kernel, d->kernel,
                                  d->from ? 1 : in, d->stride, d->stride, d->kernel / 2, d->kernel / 2);
  AlteredCall to;
  d->kept =
      impl_alter_alone(m, d->target, &(ImplConfig){0}, fn_body(graph_infer(m, graph_parse_expr(m, text, "test"))), &to);
  module_release(m);
}

static bool window_stays(Ctx *ctx, Window d)
{
  if (protect(ctx, window_body, &d)) print_error("%s\n", error_message(ctx));
  return d.kept;
}

static bool planes_stay(Ctx *ctx, int machine, int channels, int size, int kernel, int stride)
{
  return window_stays(ctx, (Window){target[machine], channels, size, kernel, stride, 0, false});
}

static bool stem_stays(Ctx *ctx, int machine, int from, int to, int size, int kernel)
{
  return window_stays(ctx, (Window){target[machine], to, size, kernel, 2, from, false});
}

/* Wide vectors make so few products quickly that two changes of layout are most of the time.  Of a tiny plane the copy
 * with its zeros is most; and narrow vectors on many pipes wait for the sums of 25 taps. */
static void planes_where_alone(void **state)
{
  static const struct {
    int channels, size, kernel, stride;
  } layer[] = {{16, 112, 3, 2}, {88, 28, 3, 1}, {576, 14, 3, 2}, {672, 14, 5, 2}, {96, 28, 5, 2}};
  for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
    assert_true(planes_stay(*state, AVX512, layer[i].channels, layer[i].size, layer[i].kernel, layer[i].stride));
  for (int i = 0; i < TARGETS; i++) {
    assert_true(planes_stay(*state, i, 144, 56, 3, 1));
    assert_false(planes_stay(*state, i, 960, 2, 3, 1));
  }
  assert_false(planes_stay(*state, V1, 672, 14, 5, 2));
}

/* Few output channels leave tiles over blocks a load for every multiply-add, and the result's change of layout is as
 * long as the products.  Data of 8 channels fills blocks; planes of 30 do not stay near. */
static void stems_where_alone(void **state)
{
  for (int i = 0; i < TARGETS; i++) {
    assert_true(stem_stays(*state, i, 3, 16, 224, 3));
    assert_false(stem_stays(*state, i, 8, 16, 224, 3));
    assert_false(stem_stays(*state, i, 30, 64, 224, 3));
  }
}

/* ---- threads and steps ----------------------------------------------------------------------- */

/* Little work stays on one thread, much goes to all; the faster a core, the more work it takes. */
static void threads_worth_waking(void **state)
{
  Target t = *target[AVX512];
  Target slow = *target[A72];
  (void)state;
  t.num_cores = slow.num_cores = 16;
  assert_int_equal(cost_threads(&t, 1e3, 1e3), 1);
  assert_int_equal(cost_threads(&t, 1e9, 0), 16);
  assert_int_equal(cost_threads(&t, 0, 1e8), 16);
  int few = cost_threads(&t, 0, 3e5);
  assert_true(few > 1 && few < 16);
  assert_int_equal(cost_threads(&t, 1e6, 0), 1);
  assert_true(cost_threads(&slow, 1e6, 0) > 8);
}

static void steps_divide(void **state)
{
  (void)state;
  assert_int_equal(tile_steps(28, 16), 4);
  assert_int_equal(tile_steps(14, 512), 8);
  assert_int_equal(tile_steps(28, 7), 1);
  assert_int_equal(tile_steps(100, 16), 1);
}

/* Vectors of elements for all steps stand beside the sums: with 8 positions of 2 vectors there is room for one of them
 * each, with 7 for two.  Where elements are broadcast from memory nothing is held. */
static void steps_fit_registers(void **state)
{
  (void)state;
  assert_int_equal(tile_steps_of(target[N1], (Tile){1, 1, 8}, 2, 8), 4);
  assert_int_equal(tile_steps_of(target[N1], (Tile){1, 1, 7}, 2, 8), 8);
  assert_int_equal(tile_steps_of(target[N1], (Tile){1, 1, 8}, 2, 6), 6);
  assert_int_equal(tile_steps_of(target[AVX512], (Tile){1, 1, 8}, 2, 8), 8);
}

/* Operations by each operator's formula: a multiplication and an addition for each tap of each output. */
static void operations_count(void **state)
{
  static const struct {
    const char *params, *call;
    double flops;
  } rows[] = {
    {"%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]", "nn.conv2d(%x, %w, padding=[1, 1])",
     2.0 * 4 * 8 * 8 * 3 * 3 * 3},
    {"%x: Tensor[(2, 6, 9), float32], %w: Tensor[(4, 3, 5), float32]", "nn.conv1d(%x, %w, groups=2)",
     2.0 * 2 * 4 * 5 * 3 * 5},
    {"%x: Tensor[(1, 2, 8, 8, 4), float32], %w: Tensor[(3, 2, 1, 1, 4, 8), float32]",
     "nn.contrib_conv2d_NCHWc(%x, %w, data_layout=\"NCHW4c\", kernel_layout=\"OIHW4i8o\", out_layout=\"NCHW8c\")",
     2.0 * 24 * 8 * 8 * 8},
    {"%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(3, 5, 2, 2), float32]", "nn.conv2d_transpose(%x, %w)",
     2.0 * 3 * 4 * 4 * 5 * 2 * 2},
    {"%x: Tensor[(5, 7), float32], %w: Tensor[(6, 7), float32]", "nn.dense(%x, %w)", 2.0 * 5 * 6 * 7},
    {"%x: Tensor[(7, 5), float32], %w: Tensor[(7, 6), float32]", "nn.matmul(%x, %w, transpose_a=True)",
     2.0 * 5 * 6 * 7},
    {"%x: Tensor[(2, 3, 4), float32], %w: Tensor[(2, 5, 4), float32]", "nn.batch_matmul(%x, %w)", 2.0 * 2 * 3 * 5 * 4},
    {"%x: Tensor[(2, 3, 4), float32]", "nn.relu(%x)", 24},
    {"%x: Tensor[(n, 7), float32], %w: Tensor[(6, 7), float32]", "nn.dense(%x, %w)", 0},
  };
  Ctx *ctx = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Module *m = module_new(ctx);
    const char *text = arena_printf(m->arena, "fn (%s) { %s }", rows[i].params, rows[i].call);
    const Node *call = fn_body(graph_infer(m, graph_parse_expr(m, text, "test")));
    assert_float_equal(impl_flops(call), rows[i].flops, 1e-6);
    assert_float_equal(impl_flops_done(call), rows[i].flops, 1e-6);
    module_release(m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(peaks),
    cmocka_unit_test(tiles_fit),
    cmocka_unit_test(columns_divide),
    cmocka_unit_test(blocks_divide),
    cmocka_unit_test(vectors_of_blocks),
    cmocka_unit_test(winograd_by_layer),
    cmocka_unit_test(transformed_by_network),
    cmocka_unit_test(plain_where_alone),
    cmocka_unit_test(planes_where_alone),
    cmocka_unit_test(stems_where_alone),
    cmocka_unit_test(threads_worth_waking),
    cmocka_unit_test(steps_divide),
    cmocka_unit_test(steps_fit_registers),
    cmocka_unit_test(operations_count),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
