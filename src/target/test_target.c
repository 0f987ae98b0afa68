/* test_target.c: target strings, feature sets, and what this machine says of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "target/target.h"

static Ctx *ctx;

static int setup(void **state)
{
  (void)state;
  ctx = ctx_new();
  return ctx ? 0 : -1;
}

static int teardown(void **state)
{
  (void)state;
  ctx_free(ctx);
  return 0;
}

typedef struct Parse {
  const char *text;
  const Target *out;
} Parse;
static void parse_body(Ctx *c, void *arg)
{
  Parse *p = arg;
  p->out = target_parse(c, p->text);
}

static const Target *parse(const char *text)
{
  Parse p = {text, NULL};
  if (protect(ctx, parse_body, &p)) fail_msg("%s: %s", text, error_message(ctx));
  return p.out;
}

static void refused(const char *text, const char *expected)
{
  Parse p = {text, NULL};
  assert_int_equal(protect(ctx, parse_body, &p), ERR_ARGUMENT);
  assert_string_equal(error_message(ctx), expected);
}

static void test_cross_avx512(void **state)
{
  (void)state;
  const Target *t = parse("llvm   -mcpu=skylake-avx512 -mtriple x86_64-linux-gnu  -num_cores=16");
  assert_string_equal(t->text, "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu -num-cores=16");
  assert_string_equal(t->kind->name, "llvm");
  assert_int_equal(t->codegen, CODEGEN_LLVM);
  assert_true(target_is_cpu(t) && !target_is_gpu(t));
  assert_int_equal(t->arch, ARCH_X86_64);
  assert_int_equal(t->vector_bits, 512);
  assert_int_equal(t->vector_registers, 32);
  assert_int_equal(target_lanes(t, 32), 16);
  assert_int_equal(target_lanes(t, 1024), 1);
  assert_int_equal(t->num_cores, 16);
  assert_int_equal(t->l2_bytes, 1 << 20);
  assert_true(t->fma && t->broadcast_load);
  assert_true(target_has(t, CPU_AVX512VL));
  assert_false(target_has(t, CPU_AVX512VNNI));
  assert_string_equal(target_llvm_features(ctx_arena(ctx), t),
                      "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi2,+popcnt,+lzcnt,-avxvnni,+avx512f,+avx512bw,+avx512dq,"
                      "+avx512vl,+avx512cd,-avx512vnni,-avx512bf16");
}

static void test_levels(void **state)
{
  (void)state;
  /* clang-format off */
  static const struct { const char *text; int bits, registers; bool fma; } rows[] = {
      {"llvm -mcpu=x86-64", 128, 16, false},
      {"llvm -mcpu=x86-64-v2", 128, 16, false},
      {"llvm -mcpu=x86-64-v3", 256, 16, true},
      {"llvm -mcpu=x86-64-v4", 512, 32, true},
      {"llvm -mcpu=znver3", 256, 16, true},
      {"c -mcpu=neoverse-n1", 128, 32, true},
      {"llvm -mtriple=aarch64-linux-gnu", 128, 32, true},
      {"llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", 128, 16, false},
      {"llvm -mtriple=wasm32-unknown-unknown", 32, 16, false},
      {"wasm", 128, 16, false},
      {"wasm -mattr=-simd128", 32, 16, false},
      {"c -mcpu=cortex-m4", 32, 16, false},
      {"llvm -mtriple=armv7-linux-gnueabihf -mattr=+neon,+vfp4", 128, 16, true},
      {"llvm -mtriple=riscv64-linux-gnu", 64, 32, true},
      {"llvm -mcpu=x86-64-v4 -vector-width=256", 256, 32, true},
  };
  /* clang-format on */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const Target *t = parse(rows[i].text);
    assert_int_equal(t->vector_bits, rows[i].bits);
    assert_int_equal(t->vector_registers, rows[i].registers);
    assert_int_equal(t->fma, rows[i].fma);
    assert_non_null(t->triple);
    assert_non_null(t->cpu);
  }
}

static void test_cpu_names_its_architecture(void **state)
{
  (void)state;
  const Target *t = parse("llvm -mcpu=cortex-a76");
  assert_int_equal(t->arch, ARCH_AARCH64);
  assert_string_equal(t->triple, "aarch64-unknown-linux-gnu");
  assert_false(t->broadcast_load);
  assert_int_equal(parse("llvm -mcpu=x86-64-v3")->arch, ARCH_X86_64);
  assert_string_equal(parse("c -mcpu=cortex-m7")->triple, "thumb-none-eabi");
  assert_string_equal(parse(" wasm ")->text, "c -mtriple=wasm32-unknown-unknown -mattr=+simd128,+atomics");
  assert_string_equal(parse("wasm -mattr=-atomics,+relaxed-simd")->attrs, "+simd128,-atomics,+relaxed-simd");
  assert_string_equal(parse("wasm -mattr=-simd128 -mattr=+simd128")->attrs, "+atomics,+simd128");
  assert_string_equal(parse("llvm -mtriple=riscv64-linux-gnu -mattr=+v,-c")->attrs, "+m,+a,+f,+d,+v,-c");
  assert_int_equal(parse("wasm")->num_cores, 4);
  assert_int_equal(parse("wasm -mattr=-atomics")->num_cores, 1);
  assert_false(target_has_threads(parse("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128")));
}

static void test_features_follow_each_other(void **state)
{
  (void)state;
  const Target *t = parse("llvm -mcpu=x86-64 -mattr=+avx512f");
  assert_true(target_has(t, CPU_AVX2) && target_has(t, CPU_FMA) && target_has(t, CPU_SSE42));
  t = parse("llvm -mcpu=sapphirerapids -mattr=-avx2");
  assert_false(target_has(t, CPU_AVX512F) || target_has(t, CPU_AVX512BF16) || target_has(t, CPU_AVX2));
  assert_true(target_has(t, CPU_AVX) && target_has(t, CPU_FMA));
  t = parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=-sve,+crc");
  assert_false(target_has(t, CPU_SVE));
  assert_string_equal(target_llvm_features(ctx_arena(ctx), t), "+neon,+fullfp16,+dotprod,+i8mm,+bf16,+lse,-sve,+crc");
  for (int f = 0; f < CPU_NFEATURES; f++) {
    uint64_t all = features_closed(UINT64_C(1) << f);
    assert_int_equal(features_closed(all), all);
    assert_false(features_without(all, (CpuFeature)f) >> f & 1);
  }
}

/* Which instruction adds products of these operands to so many sums; "" for none. */
static const char *dot_name(const Target *t, DotElement a, DotElement b, int lanes)
{
  const TargetDot *row = target_dot(t, a, b, lanes);
  return row ? row->name : "";
}

/* Which one adds to 2 x 2 sums at once. */
static const char *block_name(const Target *t, DotElement a, DotElement b)
{
  const TargetDot *row = target_block_dot(t, a, b);
  return row ? row->name : "";
}

static void test_dots(void **state)
{
  (void)state;
  DotElement data;
  const Target *t = parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1");
  assert_string_equal(dot_name(t, DOT_S8, DOT_S8, 4), "sdot");
  assert_string_equal(dot_name(t, DOT_U8, DOT_U8, 2), "udot");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 4), "");
  assert_string_equal(dot_name(t, DOT_S8, DOT_S8, 8), "");
  assert_true(target_dot_data(t, &data) && data == DOT_S8);
  assert_string_equal(block_name(t, DOT_S8, DOT_S8), "");
  t = parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 4), "usdot");
  assert_string_equal(block_name(t, DOT_S8, DOT_S8), "smmla");
  assert_string_equal(block_name(t, DOT_U8, DOT_U8), "ummla");
  assert_string_equal(block_name(t, DOT_U8, DOT_S8), "usmmla");
  assert_string_equal(block_name(t, DOT_S8, DOT_U8), "");
  assert_string_equal(block_name(t, DOT_BF16, DOT_BF16), "bfmmla");
  t = parse("c -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1");
  assert_string_equal(block_name(t, DOT_S8, DOT_S8), "");
  t = parse("llvm -mcpu=sapphirerapids");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 16), "vpdpbusd");
  assert_string_equal(dot_name(t, DOT_BF16, DOT_BF16, 16), "vdpbf16ps");
  assert_string_equal(dot_name(t, DOT_S8, DOT_S8, 16), "vpmaddwd");
  assert_true(target_dot_data(t, &data) && data == DOT_U8);
  t = parse("llvm -mcpu=alderlake");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 8), "vpdpbusd");
  assert_string_equal(dot_name(t, DOT_S8, DOT_S8, 8), "vpmaddwd");
  t = parse("llvm -mcpu=x86-64-v3");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 8), "vpmaddwd");
  assert_string_equal(dot_name(t, DOT_U8, DOT_S8, 4), "pmaddwd");
  assert_true(target_dot_data(t, &data) && data == DOT_S8);
  const Target *helium = parse("cortex-m55");
  assert_true(target_has_quads(helium) && target_rounds(helium, QUAD) && !target_rounds(helium, 1));
  assert_int_equal(target_dot_group(helium, DOT_S8, DOT_S8, 48), 16);
  assert_int_equal(target_dot_group(helium, DOT_S8, DOT_S8, 24), 8);
  assert_int_equal(target_dot_group(helium, DOT_S8, DOT_S8, 12), 4);
  assert_int_equal(target_dot_group(helium, DOT_S8, DOT_S8, 9), 0);
  assert_int_equal(target_dot_group(helium, DOT_U8, DOT_S8, 16), 0);
  assert_false(target_has_quads(parse("cortex-m55 -mattr=-mve")) || target_has_quads(parse("cortex-m4")));
  assert_false(target_dot_data(parse("c"), &data));
}

static void test_host(void **state)
{
  (void)state;
  const Target *t = parse("llvm");
  const Target *native = parse("llvm -mcpu=native");
  assert_true(t->is_host && native->is_host);
  assert_int_equal(t->features, target_host_features());
  assert_int_equal(t->features, native->features);
  assert_int_equal(t->arch, target_host_arch());
  assert_int_equal(features_closed(t->features), t->features);
  assert_true(t->l1_bytes >= 8 * 1024 && t->l1_bytes <= 1024 * 1024);
  assert_true(t->l2_bytes >= t->l1_bytes);
  assert_true(t->num_cores >= 1 && t->num_cores <= sysconf(_SC_NPROCESSORS_CONF));
  assert_string_equal(t->cpu, host_cpu());
  assert_int_equal(parse("llvm -mcpu=generic")->features,
                   target_host_arch() == ARCH_AARCH64 ? UINT64_C(1) << CPU_NEON : 0);
  assert_false(parse("llvm -mtriple=wasm32-unknown-unknown")->is_host);
}

/* The kernel reads the same words; its names for them are in /proc/cpuinfo. */
static void test_host_agrees_with_the_kernel(void **state)
{
  (void)state;
  /* clang-format off */
  static const struct { CpuFeature f; const char *word; } words[] = {
      {CPU_SSE42, " sse4_2 "}, {CPU_AVX, " avx "}, {CPU_AVX2, " avx2 "}, {CPU_FMA, " fma "}, {CPU_F16C, " f16c "},
      {CPU_BMI2, " bmi2 "}, {CPU_POPCNT, " popcnt "}, {CPU_LZCNT, " abm "}, {CPU_AVX512F, " avx512f "},
      {CPU_AVXVNNI, " avx_vnni "}, {CPU_AVX512BW, " avx512bw "}, {CPU_AVX512VNNI, " avx512_vnni "},
      {CPU_AVX512BF16, " avx512_bf16 "},
      {CPU_NEON, " asimd "}, {CPU_FP16, " asimdhp "}, {CPU_DOTPROD, " asimddp "}, {CPU_I8MM, " i8mm "},
      {CPU_BF16, " bf16 "}, {CPU_LSE, " atomics "}, {CPU_SVE, " sve "},
  };
  /* clang-format on */
  static char text[1 << 16];
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (!f) skip();
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  for (size_t i = 0; i < n; i++)
    if (text[i] == '\n' || text[i] == '\t') text[i] = ' ';
  const char *list = target_host_arch() == ARCH_AARCH64 ? " Features " : " flags ";
  if (!strstr(text, list)) skip(); /* under an emulator: the file speaks of another machine */
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    assert_int_equal(target_host_features() >> words[i].f & 1, strstr(text, words[i].word) != NULL);
}

static void test_cuda(void **state)
{
  (void)state;
  const Target *t = parse("cuda -arch=sm_90 -max_threads_per_block=512 -keys=cuda,gpu");
  assert_int_equal(t->codegen, CODEGEN_CUDA);
  assert_true(target_is_gpu(t) && !target_is_cpu(t));
  assert_int_equal(t->device.type, 2);
  assert_string_equal(t->device.name, "cuda");
  assert_string_equal(t->keys, "cuda,gpu");
  assert_string_equal(t->gpu_arch, "sm_90");
  assert_int_equal(t->max_threads_per_block, 512);
  assert_int_equal(t->warp_size, 32);
  assert_int_equal(t->shared_bytes, 49152);
  assert_string_equal(parse("cuda")->gpu_arch, "sm_75");
  assert_string_equal(parse("cuda -arch=sm_90a")->gpu_arch, "sm_90a");
}

/* The device is one thing, what writes the code another. */
static void test_devices(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    DeviceKind kind;
    int type;
    Codegen codegen;
    const char *keys;
  } rows[] = {
    {"llvm", DEVICE_CPU, 1, CODEGEN_LLVM, "cpu"},
    {"c", DEVICE_CPU, 1, CODEGEN_C, "cpu"},
    {"c -mcpu=cortex-m7", DEVICE_MICRO, 1, CODEGEN_C, "arm_cpu,cpu"},
    {"llvm -mtriple=aarch64-linux-gnu", DEVICE_CPU, 1, CODEGEN_LLVM, "arm_cpu,cpu"},
    {"llvm -mtriple=x86_64-linux-gnu -keys=fast,cpu", DEVICE_CPU, 1, CODEGEN_LLVM, "fast,cpu"},
    {"cuda", DEVICE_GPU, 2, CODEGEN_CUDA, "cuda,gpu"},
    {"opencl -device=mali", DEVICE_GPU, 4, CODEGEN_NONE, "mali,opencl,gpu"},
    {"rocm -mcpu=gfx900", DEVICE_GPU, 10, CODEGEN_NONE, "rocm,gpu"},
    {"ext_dev", DEVICE_ACCELERATOR, 12, CODEGEN_C, "ext_dev"},
    {"hexagon", DEVICE_ACCELERATOR, 16, CODEGEN_NONE, "hexagon,cpu"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const Target *t = parse(rows[i].text);
    assert_int_equal(t->device.kind, rows[i].kind);
    assert_int_equal(t->device.type, rows[i].type);
    assert_int_equal(t->codegen, rows[i].codegen);
    assert_string_equal(t->keys, rows[i].keys);
    assert_int_equal(target_is_gpu(t), rows[i].kind == DEVICE_GPU);
  }
  assert_string_equal(target_option(parse("opencl -device=mali -model=g72"), "device"), "mali");
  assert_null(target_option(parse("opencl"), "device"));
  assert_int_equal(parse("rocm")->warp_size, 64);
}

typedef struct Pair {
  const Target *target, *host, *out;
} Pair;
static void host_body(Ctx *c, void *arg)
{
  Pair *p = arg;
  p->out = target_with_host(c, p->target, p->host);
}

static void test_host_beside(void **state)
{
  (void)state;
  const Target *gpu = parse("cuda");
  Pair p = {gpu, parse("llvm -mcpu=native"), NULL};
  assert_int_equal(protect(ctx, host_body, &p), ERR_NONE);
  assert_string_equal(p.out->host->text, "llvm -mcpu=native");
  assert_string_equal(p.out->text, "cuda");
  assert_null(gpu->host);
  p.host = gpu;
  assert_int_equal(protect(ctx, host_body, &p), ERR_ARGUMENT);
  assert_string_equal(error_message(ctx),
                      "target 'cuda': its host 'cuda' is not a CPU; a host is a target such as llvm or c");
}

static void test_fast_math(void **state)
{
  (void)state;
  assert_true(parse("llvm -fast-math")->fast_math);
  assert_true(parse("llvm --fast-math=1")->fast_math);
  assert_false(parse("llvm -fast-math=0")->fast_math);
  assert_false(parse("llvm")->fast_math);
}

static void test_refusals(void **state)
{
  (void)state;
  refused("", "the target is empty; try \"llvm\"");
  refused("lvm", "target 'lvm': unknown kind 'lvm'; did you mean 'llvm'?");
  refused("quantum", "target 'quantum': unknown kind 'quantum'; known are llvm, c, cuda, opencl, vulkan, metal, rocm, "
                     "webgpu, hexagon, ext_dev");
  refused("llvm -mcp=native", "target 'llvm -mcp=native': unknown option '-mcp'; did you mean 'mcpu'?");
  refused("llvm -mcpu", "target 'llvm -mcpu': option '-mcpu' needs a value, as in -mcpu=…");
  refused("llvm fast", "target 'llvm fast': 'fast' is not an option; options read -name=value");
  refused("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx521",
          "target 'llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx521': unknown CPU 'skylake-avx521' for x86_64; did "
          "you mean "
          "'skylake-avx512'?");
  refused("cortex-m9", "target 'c -mcpu=cortex-m9': unknown CPU 'cortex-m9' for arm; did you mean 'cortex-m0'?");
  refused("llvm -mcpu=x86-64 -mattr=+avx51f",
          "target 'llvm -mcpu=x86-64 -mattr=+avx51f': unknown feature 'avx51f' for x86_64; did you mean 'avx512f'?");
  refused("llvm -mcpu=x86-64 -mattr=avx2",
          "target 'llvm -mcpu=x86-64 -mattr=avx2': feature 'avx2' in -mattr needs a + or - in front");
  refused("llvm -mtriple=aarch65-linux",
          "target 'llvm -mtriple=aarch65-linux': unknown architecture 'aarch65' in -mtriple; did you mean 'aarch64'?");
  refused("llvm -num-cores=0", "target 'llvm -num-cores=0': -num-cores=0 is not a number from 1 to 65536");
  refused("llvm -vector-width=96", "target 'llvm -vector-width=96': -vector-width=96 is not a power of two");
  refused("llvm -arch=sm_90", "target 'llvm -arch=sm_90': -arch is for cuda; llvm takes -mcpu");
  refused("cuda -arch=90", "target 'cuda -arch=90': -arch=90 is not a GPU architecture such as sm_90");
  refused("cuda -mcpu=native", "target 'cuda -mcpu=native': -mcpu is for CPU targets; cuda takes -arch=sm_NN");
  refused("llvm -fast-math=maybe", "target 'llvm -fast-math=maybe': -fast-math=maybe is neither 0 nor 1");
}

static void test_variants(void **state)
{
  (void)state;
  const Target *base = target_parse(ctx, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+crc -num-cores=2");
  const Target *t = target_variant(ctx, base, "generic+dotprod+i8mm");
  assert_string_equal(t->text, "llvm -mtriple=aarch64-linux-gnu -num-cores=2 -mcpu=generic -mattr=+crc,+dotprod,+i8mm");
  assert_true(target_has(t, CPU_I8MM) && !target_has(t, CPU_LSE));
  assert_string_equal(t->attrs, "+crc");
  assert_int_equal(t->num_cores, 2);
  t = target_variant(ctx, target_parse(ctx, "c"), "x86-64-v3");
  assert_int_equal(t->arch, ARCH_X86_64);
  assert_int_equal(t->codegen, CODEGEN_C);
}

static void test_allocation_failures(void **state)
{
  (void)state;
  for (int64_t n = 1;; n++) {
    mem_fail_after(ctx, n);
    Parse p = {"llvm -mcpu=x86-64 -mattr=+avx2,+bmi", NULL};
    ErrKind kind = protect(ctx, parse_body, &p);
    mem_fail_after(ctx, 0);
    if (kind == ERR_NONE) break;
    assert_int_equal(kind, ERR_MEMORY);
    assert_true(n < 1000);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_cross_avx512, setup, teardown),
    cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
    cmocka_unit_test_setup_teardown(test_cpu_names_its_architecture, setup, teardown),
    cmocka_unit_test_setup_teardown(test_features_follow_each_other, setup, teardown),
    cmocka_unit_test_setup_teardown(test_dots, setup, teardown),
    cmocka_unit_test_setup_teardown(test_host, setup, teardown),
    cmocka_unit_test_setup_teardown(test_host_agrees_with_the_kernel, setup, teardown),
    cmocka_unit_test_setup_teardown(test_cuda, setup, teardown),
    cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
    cmocka_unit_test_setup_teardown(test_host_beside, setup, teardown),
    cmocka_unit_test_setup_teardown(test_fast_math, setup, teardown),
    cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    cmocka_unit_test_setup_teardown(test_variants, setup, teardown),
    cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
