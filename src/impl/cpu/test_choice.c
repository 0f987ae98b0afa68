/* test_choice.c: what the models of the target choose, for several targets. */
#include "impl/cpu/test_targets.h"

#include <stdio.h>
#include <stdlib.h>

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

/* ---- plans --------------------------------------------------------------------------------- */

/* A convolution over a constant weight, of which a test asks something. */
typedef struct Layer {
  const Target *target;
  int n, c, o, h, w, kernel, stride, groups;
  double price;                            /* seconds for a byte of weights */
  void (*ask)(const ImplCall *, void *to); /* … */
  void *to;
} Layer;

static void layer_body(Ctx *ctx, void *arg)
{
  const Layer *l = arg;
  Module *m = module_new(ctx);
  const char *text =
      arena_printf(m->arena,
                   "fn (%%x: Tensor[(%d, %d, %d, %d), float32]) { nn.conv2d(%%x, zeros(shape=[%d, %d, %d, %d], "
                   "dtype=\"float32\"), padding=[%d, %d], strides=[%d, %d], groups=%d) }",
                   l->n, l->c, l->h, l->w, l->o, l->c / l->groups, l->kernel, l->kernel, l->kernel / 2, l->kernel / 2,
                   l->stride, l->stride, l->groups);
  const Node *f = graph_infer(m, graph_parse_expr(m, text, "test"));
  ImplConfig config = {0};
  ImplCall call = {m, m->arena, l->target, &config, fn_body(f)};
  l->ask(&call, l->to);
  module_release(m);
}

static void ask_layer(Ctx *ctx, Layer l)
{
  if (l.n == 0) l.n = 1;
  if (l.groups == 0) l.groups = 1;
  if (l.stride == 0) l.stride = 1;
  if (protect(ctx, layer_body, &l)) fail_msg("%s", error_message(ctx));
}

/* The text of the best option, however its data and result lie. */
typedef struct Best {
  double price;
  char text[200];
} Best;

static void ask_best(const ImplCall *c, void *to)
{
  Best *b = to;
  Plan *option;
  int n = impl_options(c, b->price, &option);
  const Plan *best = &option[0];
  for (int i = 1; i < n; i++)
    if (option[i].seconds + b->price * option[i].bytes < best->seconds + b->price * best->bytes) best = &option[i];
  snprintf(b->text, sizeof b->text, "%s", plan_text(c->arena, best));
}

static int winograd_tile(Ctx *ctx, int machine, int channels, int size)
{
  Best b = {0};
  int tile = 0;
  ask_layer(ctx, (Layer){.target = target[machine],
                         .c = channels,
                         .o = channels,
                         .h = size,
                         .w = size,
                         .kernel = 3,
                         .ask = ask_best,
                         .to = &b});
  return sscanf(b.text, "conv2d.winograd{tile=%d", &tile) == 1 ? tile : 0;
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

static bool transformed_before(Ctx *ctx, int machine, int channels, int size, double price)
{
  Best b = {.price = price};
  ask_layer(ctx, (Layer){.target = target[machine],
                         .c = channels,
                         .o = channels,
                         .h = size,
                         .w = size,
                         .kernel = 3,
                         .ask = ask_best,
                         .to = &b});
  assert_non_null(strstr(b.text, "winograd"));
  return strstr(b.text, "before=True") != NULL;
}

/* Transforming 28 MB away takes a millisecond: little where a byte is worth much, too much where it is worth little.  A
 * weight that the second-level cache holds stays transformed, and so does every one where memory costs nothing. */
static void transformed_by_price(void **state)
{
  assert_false(transformed_before(*state, N1, 512, 7, 8e-11));
  assert_true(transformed_before(*state, N1, 512, 7, 1e-12));
  assert_true(transformed_before(*state, N1, 512, 7, 0));
  assert_true(transformed_before(*state, N1, 64, 56, 8e-11));
  assert_true(transformed_before(*state, AVX512, 512, 7, 1e-11));
}

static void ask_list(const ImplCall *c, void *to)
{
  PlanList list;
  impl_plans(c, &list);
  *(int *)to = list.v.n;
  StrMap seen = {0};
  for (int i = 0; i < list.v.n; i++) {
    const char *text = plan_text(c->arena, &list.v.v[i]);
    assert_true(list.v.v[i].seconds > 0 && list.v.v[i].seconds < 100);
    assert_null(strmap_get(&seen, text));
    strmap_put(c->arena, &seen, text, (void *)(uintptr_t)text);
    if (i % 16) continue;
    Plan again = plan_parse(c, text);
    assert_string_equal(plan_text(c->arena, &again), text);
  }
  Plan *option;
  int n = impl_options(c, 0, &option);
  int plain = 0;
  for (int i = 0; i < n; i++) plain += !option[i].data_block && !option[i].out_block;
  assert_int_equal(plain, 1);
}

static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Any shape has many plans, told apart by their text, which parses back; and one that leaves the layouts alone. */
static void plans_of_any_shape(void **state)
{
  enum { SHAPES = 40 };
  static const int machines[] = {N1, AVX512};
  static const int kernels[] = {1, 3, 3, 5, 7};
  unsigned seed = 7;
  for (int k = 0; k < 2; k++) {
    int count[SHAPES];
    for (int i = 0; i < SHAPES; i++) {
      int r[6];
      for (int d = 0; d < 6; d++) r[d] = (int)((seed = seed * 1103515245u + 12345u) >> 16 & 0x7fff);
      int groups = r[4] % 4 ? 1 : 2 + r[4] / 4 % 3;
      Layer l = {.target = target[machines[k]],
                 .n = 1 + r[5] % 2,
                 .c = (1 + r[0] % 90) * groups,
                 .o = (1 + r[1] % 90) * groups,
                 .h = 7 + r[2] % 40,
                 .w = 7 + r[3] % 40,
                 .kernel = kernels[r[5] % 5],
                 .stride = 1 + r[4] % 2,
                 .groups = groups,
                 .ask = ask_list};
      l.to = &count[i];
      ask_layer(*state, l);
      assert_true(count[i] > 0);
    }
    qsort(count, SHAPES, sizeof *count, by_size);
    assert_true(count[SHAPES / 2] >= 30);
  }
}

typedef struct Refusal {
  const char *text, *why;
} Refusal;

static void parse_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  void **a = arg;
  plan_parse(a[0], a[1]);
}

static void ask_refused(const ImplCall *c, void *to)
{
  const Refusal *r = to;
  void *arg[] = {(void *)(uintptr_t)c, (void *)(uintptr_t)r->text};
  assert_int_equal(protect(c->m->ctx, parse_body, arg), ERR_ARGUMENT);
  assert_non_null(strstr(error_message(c->m->ctx), r->why));
  error_clear(c->m->ctx);
}

/* A plan that nobody can serve is refused, and the sentence says what is wrong with it. */
static void illegal_plans(void **state)
{
  static const Refusal refusal[] = {
    {"conv2d.magic{a=1}", "no implementation of this operator has that name"},
    {"conv2d.winograd{tile=5, before=True, data_block=8, out_block=8, band=0, o=1, x=8}",
     "tile=5 is not possible here"},
    {"conv2d.winograd{tile=4}", "field 'before' is missing"},
    {"conv2d.winograd{speed=4}", "has no field 'speed'"},
    {"conv2d.winograd{tile=4", "'}' is missing"},
    {"conv2d.depthwise{block=8, x=4, band=4}", "does not serve this call"},
    {"conv2d.im2col{channels=8, vectors=2, across=True, packed=True, band=7777, together=False}", "band=7777"},
  };
  for (size_t i = 0; i < sizeof refusal / sizeof *refusal; i++) {
    Refusal r = refusal[i];
    ask_layer(
        *state,
        (Layer){.target = target[N1], .c = 64, .o = 64, .h = 28, .w = 28, .kernel = 3, .ask = ask_refused, .to = &r});
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
  assert_int_equal(tile_steps(target[N1], 28, 16), 4);
  assert_int_equal(tile_steps(target[N1], 14, 512), 8);
  assert_int_equal(tile_steps(target[N1], 28, 7), 1);
  assert_int_equal(tile_steps(target[N1], 100, 16), 1);
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

/* WebAssembly: a step at a time, or those that share a vector of elements. */
static void steps_of_wasm(void **state)
{
  const Target *wasm = target_parse(*state, "wasm");
  assert_false(wasm->broadcast_load);
  assert_int_equal(tile_steps(wasm, 12, 512), 1);
  assert_int_equal(tile_steps_of(wasm, (Tile){1, 1, 4}, 2, 8), 4);
  assert_int_equal(tile_steps_of(wasm, (Tile){1, 1, 4}, 2, 6), 1);
  assert_true(target_parse(*state, "wasm -mattr=-simd128")->broadcast_load);
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
    cmocka_unit_test(blocks_divide),
    cmocka_unit_test(vectors_of_blocks),
    cmocka_unit_test(winograd_by_layer),
    cmocka_unit_test(transformed_by_price),
    cmocka_unit_test(plans_of_any_shape),
    cmocka_unit_test(illegal_plans),
    cmocka_unit_test(threads_worth_waking),
    cmocka_unit_test(steps_divide),
    cmocka_unit_test(steps_fit_registers),
    cmocka_unit_test(steps_of_wasm),
    cmocka_unit_test(operations_count),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
