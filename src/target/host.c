/* host.c: the machine this process runs on.
 *
 * Features come from CPUID (x86-64, with XGETBV for what the operating system
 * saves) or the kernel's HWCAP words (AArch64), never from a model name: virtual
 * machines hide features that the model has.  The model only chooses which
 * pipeline LLVM tunes for. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "target/target.h"

#define F(x) (UINT64_C(1) << CPU_##x)
#define FEATURE(x, have) ((have) ? F(x) : 0)

#if defined(__x86_64__)
#include <cpuid.h>

Arch target_host_arch(void) { return ARCH_X86_64; }

/* Which register sets the operating system saves: XCR0. */
static uint32_t saved_registers(void)
{
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static uint64_t processor_features(void)
{
  uint32_t a, b;
  uint32_t c1 = 0;
  uint32_t d;
  uint32_t max7 = 0;
  uint32_t b7 = 0;
  uint32_t c7 = 0;
  uint32_t a71 = 0;
  uint32_t cx = 0;
  if (!__get_cpuid(1, &a, &b, &c1, &d)) return 0;
  uint32_t xcr0 = (c1 >> 27 & 1) ? saved_registers() : 0; /* bit 27: OSXSAVE */
  bool ymm = (xcr0 & 0x6) == 0x6;
  bool zmm = ymm && (xcr0 & 0xe0) == 0xe0;
  if (__get_cpuid_count(7, 0, &max7, &b7, &c7, &d) && max7 >= 1) __get_cpuid_count(7, 1, &a71, &b, &a, &d);
  __get_cpuid(0x80000001u, &a, &b, &cx, &d);
  bool avx = ymm && (c1 >> 28 & 1);
  bool avx512 = zmm && (b7 >> 16 & 1);
  return FEATURE(SSE42, c1 >> 20 & 1) | FEATURE(POPCNT, c1 >> 23 & 1) | FEATURE(AVX, avx) |
         FEATURE(FMA, avx && (c1 >> 12 & 1)) | FEATURE(F16C, avx && (c1 >> 29 & 1)) |
         FEATURE(AVX2, avx && (b7 >> 5 & 1)) | FEATURE(BMI2, b7 >> 8 & 1) | FEATURE(LZCNT, cx >> 5 & 1) |
         FEATURE(AVXVNNI, avx && (a71 >> 4 & 1)) | FEATURE(AVX512F, avx512) |
         FEATURE(AVX512DQ, avx512 && (b7 >> 17 & 1)) | FEATURE(AVX512CD, avx512 && (b7 >> 28 & 1)) |
         FEATURE(AVX512BW, avx512 && (b7 >> 30 & 1)) | FEATURE(AVX512VL, avx512 && (b7 >> 31 & 1)) |
         FEATURE(AVX512VNNI, avx512 && (c7 >> 11 & 1)) | FEATURE(AVX512BF16, avx512 && (a71 >> 5 & 1));
}

static const char *intel_name(int model, uint64_t have)
{
  switch (model) {
  case 0x55: return have & F(AVX512BF16) ? "cooperlake" : have & F(AVX512VNNI) ? "cascadelake" : "skylake-avx512";
  case 0x6a:
  case 0x6c: return "icelake-server";
  case 0x7d:
  case 0x7e: return "icelake-client";
  case 0x8c:
  case 0x8d: return "tigerlake";
  case 0xa7: return "rocketlake";
  case 0x8f: return "sapphirerapids";
  case 0xcf: return "emeraldrapids";
  case 0xad:
  case 0xae: return "graniterapids";
  case 0x97:
  case 0x9a:
  case 0xb7:
  case 0xba:
  case 0xbf: return "alderlake";
  case 0x3d:
  case 0x47:
  case 0x4f:
  case 0x56: return "broadwell";
  case 0x3c:
  case 0x3f:
  case 0x45:
  case 0x46: return "haswell";
  }
  if (have & F(AVX512BF16)) return "sapphirerapids";
  if (have & F(AVX512VNNI)) return "icelake-server";
  if (have & F(AVX512F)) return "skylake-avx512";
  if (have & F(AVX2)) return "skylake";
  return "generic";
}

static const char *amd_name(int family, int model, uint64_t have)
{
  if (family == 0x17) return model >= 0x30 ? "znver2" : "znver1";
  if (family == 0x19) return have & F(AVX512F) ? "znver4" : "znver3";
  if (family >= 0x1a) return "znver5";
  return "generic";
}

const char *host_cpu(void)
{
  uint32_t a, b, c, d, vendor;
  if (!__get_cpuid(0, &a, &vendor, &c, &d) || !__get_cpuid(1, &a, &b, &c, &d)) return "generic";
  int family = a >> 8 & 15;
  int model = a >> 4 & 15;
  if (family == 6 || family == 15) model += (int)(a >> 16 & 15) << 4;
  if (family == 15) family += a >> 20 & 255;
  if (vendor == signature_INTEL_ebx && family == 6) return intel_name(model, target_host_features());
  if (vendor == signature_AMD_ebx) return amd_name(family, model, target_host_features());
  return "generic";
}

/* Deterministic cache parameters: leaf 4 on Intel, 0x8000001d on AMD. */
static void caches_of_processor(int64_t *size)
{
  uint32_t a, b, c, d, vendor;
  if (!__get_cpuid(0, &a, &vendor, &c, &d)) return;
  uint32_t leaf = vendor == signature_AMD_ebx ? 0x8000001du : 4;
  for (uint32_t i = 0; i < 16 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++) {
    uint32_t level = a >> 5 & 7;
    int64_t bytes = (int64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((int64_t)c + 1);
    if ((a & 31) != 2 && level >= 1 && level <= 3) size[level] = bytes; /* 2: instructions only */
  }
}

#elif defined(__aarch64__)

Arch target_host_arch(void) { return ARCH_AARCH64; }

#if defined(__linux__)
#include <sys/auxv.h>

static uint64_t processor_features(void)
{
  unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
  return FEATURE(NEON, cap >> 1 & 1) | FEATURE(LSE, cap >> 8 & 1) |
         FEATURE(FP16, (cap >> 9 & 1) && (cap >> 10 & 1)) | /* scalar and vector */
         FEATURE(DOTPROD, cap >> 20 & 1) | FEATURE(SVE, cap >> 22 & 1) | FEATURE(I8MM, cap2 >> 13 & 1) |
         FEATURE(BF16, cap2 >> 14 & 1);
}
#else
static uint64_t processor_features(void) { return F(NEON); } /* part of the architecture */
#endif

/* The kernel shows MIDR_EL1: implementer in bits 24-31, part number in 4-15. */
static uint64_t processor_id(void)
{
  char text[64] = "";
  FILE *f = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "r");
  if (!f) return 0;
  if (!fgets(text, sizeof text, f)) text[0] = 0;
  fclose(f);
  return strtoull(text, NULL, 16);
}

const char *host_cpu(void)
{
  /* clang-format off */
  static const struct { int maker, part; const char *name; } models[] = {
      {0x41, 0xd03, "cortex-a53"}, {0x41, 0xd04, "cortex-a35"}, {0x41, 0xd05, "cortex-a55"},
      {0x41, 0xd07, "cortex-a57"}, {0x41, 0xd08, "cortex-a72"}, {0x41, 0xd09, "cortex-a73"},
      {0x41, 0xd0a, "cortex-a75"}, {0x41, 0xd0b, "cortex-a76"}, {0x41, 0xd0c, "neoverse-n1"},
      {0x41, 0xd0d, "cortex-a77"}, {0x41, 0xd40, "neoverse-v1"}, {0x41, 0xd41, "cortex-a78"},
      {0x41, 0xd44, "cortex-x1"}, {0x41, 0xd46, "cortex-a510"}, {0x41, 0xd47, "cortex-a710"},
      {0x41, 0xd48, "cortex-x2"}, {0x41, 0xd49, "neoverse-n2"}, {0x41, 0xd4a, "neoverse-e1"},
      {0x41, 0xd4f, "neoverse-v2"}, {0x43, 0x0af, "thunderx2t99"}, {0x46, 0x001, "a64fx"},
      {0xc0, 0xac3, "ampere1"}, {0x61, 0x022, "apple-m1"}, {0x61, 0x023, "apple-m1"},
      {0x61, 0x032, "apple-m2"}, {0x61, 0x033, "apple-m2"},
  };
  /* clang-format on */
  uint64_t id = processor_id();
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if ((int)(id >> 24 & 255) == models[i].maker && (int)(id >> 4 & 4095) == models[i].part) return models[i].name;
  return "generic";
}

static void caches_of_processor(int64_t *size) { (void)size; }

#else
#error "lathe runs on x86-64 and AArch64; other processors are targets only"
#endif

/* A feature whose prerequisites are hidden is no use: LLVM would assume those. */
uint64_t target_host_features(void)
{
  uint64_t raw = processor_features();
  uint64_t usable = 0;
  for (int f = 0; f < CPU_NFEATURES; f++)
    if (!(features_closed(raw & UINT64_C(1) << f) & ~raw)) usable |= raw & UINT64_C(1) << f;
  return usable;
}

static bool read_line(const char *path, char *out, int n)
{
  FILE *f = fopen(path, "r");
  if (!f) return false;
  bool ok = fgets(out, n, f) != NULL;
  fclose(f);
  return ok;
}

/* CPUs named in a list such as "0-3,8". */
static int listed(const char *text)
{
  int n = 0;
  for (char *end; *text >= '0' && *text <= '9'; text = *end == ',' ? end + 1 : end) {
    long first = strtol(text, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    n += (int)(last - first + 1);
  }
  return n > 0 ? n : 1;
}

/* /sys/devices/system/cpu/cpu0/cache/indexN/{level,type,size,shared_cpu_list}; size reads "32K".  Threads of a core
 * share its first two levels as a matter of course. */
static bool caches_of_kernel(int64_t *size)
{
  char path[96], level[32], type[32], text[32], sharers[256];
  bool found = false;
  for (int i = 0; i < 8; i++) {
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
    if (!read_line(path, level, sizeof level)) break;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
    if (!read_line(path, type, sizeof type) || str_starts(type, "Instruction")) continue;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    if (!read_line(path, text, sizeof text)) continue;
    char *unit;
    long long n = strtoll(text, &unit, 10);
    int at = atoi(level);
    if (at < 1 || at > 3 || n <= 0) continue;
    size[at] = n * (*unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list", i);
    if (at == 3 && read_line(path, sharers, sizeof sharers)) size[at] /= listed(sharers);
    found = true;
  }
  return found;
}

void host_caches(int64_t *l1, int64_t *l2, int64_t *l3)
{
  int64_t size[4] = {0};
  if (!caches_of_kernel(size)) caches_of_processor(size);
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  if (!size[1]) size[1] = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (!size[2]) size[2] = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (!size[3]) size[3] = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  if (size[1] > 0) *l1 = size[1];
  if (size[2] > 0) *l2 = size[2];
  if (size[3] > 0) *l3 = size[3];
}

int host_cores(void)
{
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}
