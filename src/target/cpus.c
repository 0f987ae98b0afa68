/* cpus.c: processors by name, with the features and caches that code for them may
 * count on, and how fast their cores are.  The names are LLVM's.  A row says what every
 * part sold under the name has; what this machine really offers is host.c's business.
 *
 * Where the cores' figures come from: pipes, latencies and loads are those of the makers' optimisation guides and
 * of LLVM's pipeline models (a latency is that of the whole instruction; the accumulator's shorter way, where an Arm
 * core has one, is the chain); clocks
 * are what a server's or board's core keeps up under vector load, memory what one core alone reads while
 * others are idle.  Clock and memory differ from board to board: they decide between close calls only. */
#include "target/target.h"

#define F(x) (UINT64_C(1) << CPU_##x)
#define X86_V2 (F(SSE42) | F(POPCNT))
#define X86_AVX (X86_V2 | F(AVX))
#define X86_IVB (X86_AVX | F(F16C))
#define X86_V3 (X86_IVB | F(AVX2) | F(FMA) | F(BMI2) | F(LZCNT))
#define X86_V4 (X86_V3 | F(AVX512F) | F(AVX512BW) | F(AVX512DQ) | F(AVX512VL) | F(AVX512CD))
#define X86_VNNI (X86_V4 | F(AVX512VNNI))
#define X86_BF16 (X86_VNNI | F(AVX512BF16))
#define ARM_82 (F(NEON) | F(LSE) | F(FP16) | F(DOTPROD))
#define ARM_86 (ARM_82 | F(I8MM) | F(BF16))
#define ARM_SVE (ARM_86 | F(SVE))

/* ghz, fma_bits, fma_latency, load_bits, l1_ways, l2_path, memory_gbs; CORE_DOT: dot_bits and block_bits before
 * them, CORE_CHAIN: fma_chain */
#define CORE_ALL(name, dot, block, chain, ...) static const CoreInfo core_##name = {__VA_ARGS__, dot, block, chain}
#define CORE_DOT(name, dot, block, ...) CORE_ALL(name, dot, block, 0, __VA_ARGS__)
#define CORE_CHAIN(name, chain, ...) CORE_ALL(name, 0, 0, chain, __VA_ARGS__)
#define CORE(name, ...) CORE_ALL(name, 0, 0, 0, __VA_ARGS__)
CORE(x86, 2.5, 256, 5, 256, 8, 32, 8);
CORE(atom, 2.0, 128, 5, 128, 6, 16, 5);
CORE(nehalem, 2.6, 128, 5, 128, 8, 32, 8);
CORE(sandybridge, 2.6, 256, 5, 256, 8, 32, 10);
CORE(haswell, 2.5, 512, 5, 512, 8, 64, 12);
CORE(skylake, 3.0, 512, 4, 512, 8, 64, 14);
CORE(skylake_server, 2.5, 1024, 4, 1024, 8, 64, 12);
CORE(icelake_client, 2.8, 512, 4, 1024, 12, 64, 14);
CORE(icelake_server, 2.6, 1024, 4, 1024, 12, 64, 12);
CORE_DOT(sapphirerapids, 512, 0, 2.6, 1024, 4, 1024, 12, 64, 12);
CORE(alderlake, 3.5, 512, 4, 768, 12, 64, 20);
CORE(zen1, 2.8, 256, 5, 256, 8, 32, 14);
CORE(zen2, 2.8, 512, 5, 512, 8, 32, 16);
CORE(zen3, 3.0, 512, 4, 512, 8, 32, 18);
CORE(zen4, 3.2, 512, 4, 512, 8, 32, 20);
CORE(zen5, 3.4, 1024, 4, 1024, 12, 64, 24);
CORE(arm64, 2.0, 256, 4, 256, 4, 32, 8);
CORE(a53, 1.4, 128, 8, 64, 4, 16, 2);
CORE(a55, 1.8, 128, 4, 64, 4, 16, 4);
CORE_CHAIN(a57, 5, 1.8, 128, 10, 128, 2, 16, 4);
CORE_CHAIN(a72, 3, 1.8, 128, 7, 128, 2, 16, 4);
CORE(a75, 2.4, 128, 6, 128, 16, 32, 8);
CORE_CHAIN(a76, 2, 2.4, 256, 4, 256, 4, 32, 10);
CORE(a510, 1.8, 128, 4, 256, 4, 16, 5);
CORE_CHAIN(a710, 2, 2.6, 256, 4, 384, 4, 32, 12);
CORE_CHAIN(x1, 2, 2.8, 512, 4, 384, 4, 32, 14);
CORE_CHAIN(n1, 2, 2.5, 256, 4, 256, 4, 32, 16);
CORE_CHAIN(n2, 2, 2.8, 256, 4, 384, 4, 32, 18);
CORE_CHAIN(v1, 2, 2.6, 512, 4, 384, 4, 64, 20);
CORE_CHAIN(v2, 2, 2.8, 512, 4, 384, 4, 64, 24);
CORE(thunderx2, 2.2, 256, 6, 256, 8, 32, 12);
CORE(a64fx, 2.0, 256, 9, 256, 4, 64, 20);
CORE_DOT(ampere1, 0, 128, 3.0, 256, 5, 256, 4, 32, 14);
CORE(apple, 3.2, 512, 4, 384, 8, 64, 40);
CORE(small, 0.4, 32, 4, 32, 4, 8, 0.5);
CORE(arm32, 1.2, 64, 8, 64, 4, 8, 2);
CORE(riscv, 1.4, 64, 7, 64, 4, 16, 2);
CORE(wasm, 2.5, 128, 5, 128, 8, 32, 8);
CORE(other, 2.0, 128, 5, 128, 8, 16, 6);

/* clang-format off */
static const CpuInfo cpus[] = {
    {"generic", ARCH_X86_64, 0, 32, 256, 2048, &core_x86},
    {"x86-64", ARCH_X86_64, 0, 32, 256, 2048, &core_x86},
    {"x86-64-v2", ARCH_X86_64, X86_V2, 32, 256, 2048, &core_x86},
    {"x86-64-v3", ARCH_X86_64, X86_V3, 32, 256, 2048, &core_haswell},
    {"x86-64-v4", ARCH_X86_64, X86_V4, 32, 1024, 1408, &core_skylake_server},
    {"nehalem", ARCH_X86_64, X86_V2, 32, 256, 2048, &core_nehalem},
    {"westmere", ARCH_X86_64, X86_V2, 32, 256, 2048, &core_nehalem},
    {"silvermont", ARCH_X86_64, X86_V2, 24, 512, 0, &core_atom},
    {"goldmont", ARCH_X86_64, X86_V2, 24, 512, 0, &core_atom},
    {"sandybridge", ARCH_X86_64, X86_AVX, 32, 256, 2048, &core_sandybridge},
    {"ivybridge", ARCH_X86_64, X86_IVB, 32, 256, 2048, &core_sandybridge},
    {"haswell", ARCH_X86_64, X86_V3, 32, 256, 2048, &core_haswell},
    {"core-avx2", ARCH_X86_64, X86_V3, 32, 256, 2048, &core_haswell},
    {"broadwell", ARCH_X86_64, X86_V3, 32, 256, 2048, &core_haswell},
    {"skylake", ARCH_X86_64, X86_V3, 32, 256, 2048, &core_skylake},
    {"alderlake", ARCH_X86_64, X86_V3 | F(AVXVNNI), 48, 1280, 3072, &core_alderlake},
    {"skylake-avx512", ARCH_X86_64, X86_V4, 32, 1024, 1408, &core_skylake_server},
    {"skx", ARCH_X86_64, X86_V4, 32, 1024, 1408, &core_skylake_server},
    {"cascadelake", ARCH_X86_64, X86_VNNI, 32, 1024, 1408, &core_skylake_server},
    {"cooperlake", ARCH_X86_64, X86_BF16, 32, 1024, 1408, &core_skylake_server},
    {"icelake-client", ARCH_X86_64, X86_VNNI, 48, 512, 2048, &core_icelake_client},
    {"icelake-server", ARCH_X86_64, X86_VNNI, 48, 1280, 1536, &core_icelake_server},
    {"tigerlake", ARCH_X86_64, X86_VNNI, 48, 1280, 3072, &core_icelake_client},
    {"rocketlake", ARCH_X86_64, X86_VNNI, 48, 512, 2048, &core_icelake_client},
    {"sapphirerapids", ARCH_X86_64, X86_BF16, 48, 2048, 1920, &core_sapphirerapids},
    {"emeraldrapids", ARCH_X86_64, X86_BF16, 48, 2048, 5120, &core_sapphirerapids},
    {"graniterapids", ARCH_X86_64, X86_BF16, 48, 2048, 3840, &core_sapphirerapids},
    {"znver1", ARCH_X86_64, X86_V3, 32, 512, 2048, &core_zen1},
    {"znver2", ARCH_X86_64, X86_V3, 32, 512, 4096, &core_zen2},
    {"znver3", ARCH_X86_64, X86_V3, 32, 512, 4096, &core_zen3},
    {"znver4", ARCH_X86_64, X86_BF16, 32, 1024, 4096, &core_zen4},
    {"znver5", ARCH_X86_64, X86_BF16, 48, 1024, 4096, &core_zen5},

    {"generic", ARCH_AARCH64, F(NEON), 32, 512, 0, &core_arm64},
    {"cortex-a35", ARCH_AARCH64, F(NEON), 32, 256, 0, &core_a53},
    {"cortex-a53", ARCH_AARCH64, F(NEON), 32, 256, 0, &core_a53},
    {"cortex-a57", ARCH_AARCH64, F(NEON), 32, 512, 0, &core_a57},
    {"cortex-a72", ARCH_AARCH64, F(NEON), 32, 512, 0, &core_a72},
    {"cortex-a73", ARCH_AARCH64, F(NEON), 32, 512, 0, &core_a72},
    {"cortex-a55", ARCH_AARCH64, ARM_82, 32, 128, 1024, &core_a55},
    {"cortex-a75", ARCH_AARCH64, ARM_82, 64, 256, 1024, &core_a75},
    {"cortex-a76", ARCH_AARCH64, ARM_82, 64, 256, 1024, &core_a76},
    {"cortex-a77", ARCH_AARCH64, ARM_82, 64, 256, 1024, &core_a76},
    {"cortex-a78", ARCH_AARCH64, ARM_82, 64, 512, 1024, &core_a76},
    {"cortex-x1", ARCH_AARCH64, ARM_82, 64, 1024, 2048, &core_x1},
    {"cortex-a510", ARCH_AARCH64, ARM_SVE, 32, 256, 1024, &core_a510},
    {"cortex-a710", ARCH_AARCH64, ARM_SVE, 64, 512, 1024, &core_a710},
    {"cortex-x2", ARCH_AARCH64, ARM_SVE, 64, 1024, 2048, &core_x1},
    {"neoverse-e1", ARCH_AARCH64, ARM_82, 32, 256, 1024, &core_a55},
    {"neoverse-n1", ARCH_AARCH64, ARM_82, 64, 1024, 1024, &core_n1},
    {"neoverse-n2", ARCH_AARCH64, ARM_SVE, 64, 1024, 1024, &core_n2},
    {"neoverse-v1", ARCH_AARCH64, ARM_SVE, 64, 1024, 1024, &core_v1},
    {"neoverse-v2", ARCH_AARCH64, ARM_SVE, 64, 2048, 1024, &core_v2},
    {"thunderx2t99", ARCH_AARCH64, F(NEON) | F(LSE), 32, 256, 1024, &core_thunderx2},
    {"a64fx", ARCH_AARCH64, F(NEON) | F(LSE) | F(FP16) | F(SVE), 64, 1024, 0, &core_a64fx},
    {"ampere1", ARCH_AARCH64, ARM_86, 64, 2048, 512, &core_ampere1},
    {"apple-m1", ARCH_AARCH64, ARM_82, 128, 3072, 0, &core_apple},
    {"apple-m2", ARCH_AARCH64, ARM_86, 128, 4096, 0, &core_apple},
    {"apple-m3", ARCH_AARCH64, ARM_86, 128, 4096, 0, &core_apple},

    {"generic", ARCH_ARM, 0, 16, 0, 0, &core_arm32},
    {"cortex-m0", ARCH_ARM, 0, 0, 0, 0, &core_small},
    {"cortex-m0plus", ARCH_ARM, 0, 0, 0, 0, &core_small},
    {"cortex-m3", ARCH_ARM, 0, 0, 0, 0, &core_small},
    {"cortex-m4", ARCH_ARM, F(DSP), 0, 0, 0, &core_small},
    {"cortex-m7", ARCH_ARM, F(DSP), 16, 0, 0, &core_small},
    {"cortex-m33", ARCH_ARM, F(DSP), 0, 0, 0, &core_small},
    {"cortex-m55", ARCH_ARM, F(DSP) | F(MVE), 16, 0, 0, &core_small},
    {"cortex-m85", ARCH_ARM, F(DSP) | F(MVE), 32, 0, 0, &core_small},
    {"arm1176jzf-s", ARCH_ARM, 0, 16, 128, 0, &core_arm32},
    {"cortex-a7", ARCH_ARM, 0, 32, 512, 0, &core_arm32},
    {"cortex-a8", ARCH_ARM, 0, 32, 256, 0, &core_arm32},
    {"cortex-a9", ARCH_ARM, 0, 32, 512, 0, &core_arm32},
    {"cortex-a15", ARCH_ARM, 0, 32, 1024, 0, &core_arm32},
    {"cortex-a53", ARCH_ARM, 0, 32, 256, 0, &core_arm32},
    {"cortex-a72", ARCH_ARM, 0, 32, 512, 0, &core_arm32},

    {"generic", ARCH_RISCV64, 0, 32, 512, 0, &core_riscv},
    {"generic-rv64", ARCH_RISCV64, 0, 32, 512, 0, &core_riscv},
    {"rocket-rv64", ARCH_RISCV64, 0, 16, 0, 0, &core_riscv},
    {"sifive-u54", ARCH_RISCV64, 0, 32, 1024, 0, &core_riscv},
    {"sifive-u74", ARCH_RISCV64, 0, 32, 1024, 0, &core_riscv},
    {"sifive-x280", ARCH_RISCV64, 0, 32, 512, 2048, &core_riscv},

    {"generic", ARCH_WASM32, 0, 32, 256, 0, &core_wasm},
    {"mvp", ARCH_WASM32, 0, 32, 256, 0, &core_wasm},
    {"bleeding-edge", ARCH_WASM32, 0, 32, 256, 0, &core_wasm},

    {"generic", ARCH_OTHER, 0, 32, 256, 0, &core_other},
};
/* clang-format on */

const CpuInfo *cpu_find(Arch arch, const char *name)
{
  for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
    if (cpus[i].arch == arch && strcmp(cpus[i].name, name) == 0) return &cpus[i];
  return NULL;
}

int cpu_names(Arch arch, const char **out, int max)
{
  int n = 0;
  for (size_t i = 0; i < sizeof cpus / sizeof *cpus && n < max; i++)
    if (cpus[i].arch == arch) out[n++] = cpus[i].name;
  return n;
}
