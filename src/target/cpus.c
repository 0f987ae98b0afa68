/* cpus.c: processors by name, with the features and caches that code for them may
 * count on.  The names are LLVM's.  A row says what every part sold under the name
 * has; what this machine really offers is host.c's business. */
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

static const CpuInfo cpus[] = {
    {"generic", ARCH_X86_64, 0, 32, 256, 2048},
    {"x86-64", ARCH_X86_64, 0, 32, 256, 2048},
    {"x86-64-v2", ARCH_X86_64, X86_V2, 32, 256, 2048},
    {"x86-64-v3", ARCH_X86_64, X86_V3, 32, 256, 2048},
    {"x86-64-v4", ARCH_X86_64, X86_V4, 32, 1024, 1408},
    {"nehalem", ARCH_X86_64, X86_V2, 32, 256, 2048},
    {"westmere", ARCH_X86_64, X86_V2, 32, 256, 2048},
    {"silvermont", ARCH_X86_64, X86_V2, 24, 512, 0},
    {"goldmont", ARCH_X86_64, X86_V2, 24, 512, 0},
    {"sandybridge", ARCH_X86_64, X86_AVX, 32, 256, 2048},
    {"ivybridge", ARCH_X86_64, X86_IVB, 32, 256, 2048},
    {"haswell", ARCH_X86_64, X86_V3, 32, 256, 2048},
    {"core-avx2", ARCH_X86_64, X86_V3, 32, 256, 2048},
    {"broadwell", ARCH_X86_64, X86_V3, 32, 256, 2048},
    {"skylake", ARCH_X86_64, X86_V3, 32, 256, 2048},
    {"alderlake", ARCH_X86_64, X86_V3, 48, 1280, 3072},
    {"skylake-avx512", ARCH_X86_64, X86_V4, 32, 1024, 1408},
    {"skx", ARCH_X86_64, X86_V4, 32, 1024, 1408},
    {"cascadelake", ARCH_X86_64, X86_VNNI, 32, 1024, 1408},
    {"cooperlake", ARCH_X86_64, X86_BF16, 32, 1024, 1408},
    {"icelake-client", ARCH_X86_64, X86_VNNI, 48, 512, 2048},
    {"icelake-server", ARCH_X86_64, X86_VNNI, 48, 1280, 1536},
    {"tigerlake", ARCH_X86_64, X86_VNNI, 48, 1280, 3072},
    {"rocketlake", ARCH_X86_64, X86_VNNI, 48, 512, 2048},
    {"sapphirerapids", ARCH_X86_64, X86_BF16, 48, 2048, 1920},
    {"emeraldrapids", ARCH_X86_64, X86_BF16, 48, 2048, 5120},
    {"graniterapids", ARCH_X86_64, X86_BF16, 48, 2048, 3840},
    {"znver1", ARCH_X86_64, X86_V3, 32, 512, 2048},
    {"znver2", ARCH_X86_64, X86_V3, 32, 512, 4096},
    {"znver3", ARCH_X86_64, X86_V3, 32, 512, 4096},
    {"znver4", ARCH_X86_64, X86_BF16, 32, 1024, 4096},
    {"znver5", ARCH_X86_64, X86_BF16, 48, 1024, 4096},

    {"generic", ARCH_AARCH64, F(NEON), 32, 512, 0},
    {"cortex-a35", ARCH_AARCH64, F(NEON), 32, 256, 0},
    {"cortex-a53", ARCH_AARCH64, F(NEON), 32, 256, 0},
    {"cortex-a57", ARCH_AARCH64, F(NEON), 32, 512, 0},
    {"cortex-a72", ARCH_AARCH64, F(NEON), 32, 512, 0},
    {"cortex-a73", ARCH_AARCH64, F(NEON), 32, 512, 0},
    {"cortex-a55", ARCH_AARCH64, ARM_82, 32, 128, 1024},
    {"cortex-a75", ARCH_AARCH64, ARM_82, 64, 256, 1024},
    {"cortex-a76", ARCH_AARCH64, ARM_82, 64, 256, 1024},
    {"cortex-a77", ARCH_AARCH64, ARM_82, 64, 256, 1024},
    {"cortex-a78", ARCH_AARCH64, ARM_82, 64, 512, 1024},
    {"cortex-x1", ARCH_AARCH64, ARM_82, 64, 1024, 2048},
    {"cortex-a510", ARCH_AARCH64, ARM_SVE, 32, 256, 1024},
    {"cortex-a710", ARCH_AARCH64, ARM_SVE, 64, 512, 1024},
    {"cortex-x2", ARCH_AARCH64, ARM_SVE, 64, 1024, 2048},
    {"neoverse-e1", ARCH_AARCH64, ARM_82, 32, 256, 1024},
    {"neoverse-n1", ARCH_AARCH64, ARM_82, 64, 1024, 1024},
    {"neoverse-n2", ARCH_AARCH64, ARM_SVE, 64, 1024, 1024},
    {"neoverse-v1", ARCH_AARCH64, ARM_SVE, 64, 1024, 1024},
    {"neoverse-v2", ARCH_AARCH64, ARM_SVE, 64, 2048, 1024},
    {"thunderx2t99", ARCH_AARCH64, F(NEON) | F(LSE), 32, 256, 1024},
    {"a64fx", ARCH_AARCH64, F(NEON) | F(LSE) | F(FP16) | F(SVE), 64, 1024, 0},
    {"ampere1", ARCH_AARCH64, ARM_86, 64, 2048, 512},
    {"apple-m1", ARCH_AARCH64, ARM_82, 128, 3072, 0},
    {"apple-m2", ARCH_AARCH64, ARM_86, 128, 4096, 0},
    {"apple-m3", ARCH_AARCH64, ARM_86, 128, 4096, 0},

    {"generic", ARCH_ARM, 0, 16, 0, 0},
    {"cortex-m0", ARCH_ARM, 0, 0, 0, 0},
    {"cortex-m0plus", ARCH_ARM, 0, 0, 0, 0},
    {"cortex-m3", ARCH_ARM, 0, 0, 0, 0},
    {"cortex-m4", ARCH_ARM, 0, 0, 0, 0},
    {"cortex-m7", ARCH_ARM, 0, 16, 0, 0},
    {"cortex-m33", ARCH_ARM, 0, 0, 0, 0},
    {"cortex-m55", ARCH_ARM, 0, 16, 0, 0},
    {"cortex-m85", ARCH_ARM, 0, 32, 0, 0},
    {"arm1176jzf-s", ARCH_ARM, 0, 16, 128, 0},
    {"cortex-a7", ARCH_ARM, 0, 32, 512, 0},
    {"cortex-a8", ARCH_ARM, 0, 32, 256, 0},
    {"cortex-a9", ARCH_ARM, 0, 32, 512, 0},
    {"cortex-a15", ARCH_ARM, 0, 32, 1024, 0},
    {"cortex-a53", ARCH_ARM, 0, 32, 256, 0},
    {"cortex-a72", ARCH_ARM, 0, 32, 512, 0},

    {"generic", ARCH_RISCV64, 0, 32, 512, 0},
    {"generic-rv64", ARCH_RISCV64, 0, 32, 512, 0},
    {"rocket-rv64", ARCH_RISCV64, 0, 16, 0, 0},
    {"sifive-u54", ARCH_RISCV64, 0, 32, 1024, 0},
    {"sifive-u74", ARCH_RISCV64, 0, 32, 1024, 0},
    {"sifive-x280", ARCH_RISCV64, 0, 32, 512, 2048},

    {"generic", ARCH_WASM32, 0, 32, 256, 0},
    {"mvp", ARCH_WASM32, 0, 32, 256, 0},
    {"bleeding-edge", ARCH_WASM32, 0, 32, 256, 0},

    {"generic", ARCH_OTHER, 0, 32, 256, 0},
};

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
