/* cpu.c: what this machine's processor can do, asked of the processor and the
 * operating system, never of a model name: a machine may hide what its model has.
 * Names are LLVM's, those of src/target/target.h. */
#include <string.h>

#include "internal.h"
#include "lock.h"

static struct {
  RtOnce once;
  char list[512]; /* "sse4.2,avx,…" */
} cpu = {.once = RT_ONCE_INIT};

static void add(const char *name, bool have)
{
  if (!have) return;
  size_t used = strlen(cpu.list);
  snprintf(cpu.list + used, sizeof cpu.list - used, "%s%s", used ? "," : "", name);
}

#if defined(__x86_64__)
#include <cpuid.h>

/* Which register sets the operating system saves: XCR0. */
static uint32_t saved_state(void)
{
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static void detect(void)
{
  uint32_t a, b;
  uint32_t c = 0;
  uint32_t d;
  uint32_t b7 = 0;
  uint32_t c7 = 0;
  uint32_t a71 = 0;
  uint32_t cx = 0;
  uint32_t unused;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  bool saves = c >> 27 & 1; /* OSXSAVE */
  uint32_t xcr0 = saves ? saved_state() : 0;
  bool ymm = (xcr0 & 0x6) == 0x6;
  bool zmm = ymm && (xcr0 & 0xe0) == 0xe0;
  uint32_t leaves = 0;
  if (__get_cpuid_count(7, 0, &leaves, &b7, &c7, &d) && leaves >= 1)
    __get_cpuid_count(7, 1, &a71, &unused, &unused, &unused);
  __get_cpuid(0x80000001u, &a, &b, &cx, &d);
  bool avx = ymm && (c >> 28 & 1);
  bool avx512 = zmm && (b7 >> 16 & 1);
  add("sse4.2", c >> 20 & 1);
  add("avx", avx);
  add("avx2", avx && (b7 >> 5 & 1));
  add("fma", avx && (c >> 12 & 1));
  add("f16c", avx && (c >> 29 & 1));
  add("bmi2", b7 >> 8 & 1);
  add("popcnt", c >> 23 & 1);
  add("lzcnt", cx >> 5 & 1);
  add("avxvnni", avx && (a71 >> 4 & 1));
  add("avx512f", avx512);
  add("avx512bw", avx512 && (b7 >> 30 & 1));
  add("avx512dq", avx512 && (b7 >> 17 & 1));
  add("avx512vl", avx512 && (b7 >> 31 & 1));
  add("avx512cd", avx512 && (b7 >> 28 & 1));
  add("avx512vnni", avx512 && (c7 >> 11 & 1));
  add("avx512bf16", avx512 && (a71 >> 5 & 1));
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static void detect(void)
{
  unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
  add("neon", cap >> 1 & 1);
  add("fullfp16", (cap >> 9 & 1) && (cap >> 10 & 1)); /* scalar and vector */
  add("dotprod", cap >> 20 & 1);
  add("i8mm", cap2 >> 13 & 1);
  add("bf16", cap2 >> 14 & 1);
  add("lse", cap >> 8 & 1);
  add("sve", cap >> 22 & 1);
}

#elif defined(__arm__) && defined(__linux__)
#include <sys/auxv.h>

static void detect(void)
{
  unsigned long cap = getauxval(AT_HWCAP);
  add("neon", cap >> 12 & 1);
  add("vfp2", cap >> 6 & 1);
  add("vfp3", cap >> 13 & 1);
  add("vfp4", cap >> 16 & 1);
  add("d32", cap >> 19 & 1);
}

#elif defined(__riscv) && defined(__linux__)
#include <sys/auxv.h>

/* A bit for each extension of one letter. */
static void detect(void)
{
  unsigned long cap = getauxval(AT_HWCAP);
  for (char name[2] = "a"; name[0] <= 'z'; name[0]++) add(name, cap >> (name[0] - 'a') & 1);
}

#else
static void detect(void)
{
  bool neon = false;
#if defined(__aarch64__) || defined(__ARM_NEON)
  neon = true; /* part of the architecture, or what this was compiled for */
#endif
  add("neon", neon);
}
#endif

const char *lathe_rt_cpu_features(void)
{
  rt_once(&cpu.once, detect);
  return cpu.list;
}

bool rt_cpu_has(const char *name, size_t length)
{
  for (const char *p = lathe_rt_cpu_features(); *p;) {
    size_t n = strcspn(p, ",");
    if (n == length && memcmp(p, name, n) == 0) return true;
    p += n + (p[n] == ',');
  }
  return false;
}

const char *rt_cpu_arch(void)
{
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#elif defined(__arm__)
  return "arm";
#elif defined(__riscv) && __riscv_xlen == 64
  return "riscv64";
#elif defined(__wasm32__)
  return "wasm32";
#else
  return "unknown";
#endif
}
