/* peak.c: what this machine can do at all: float32 operations and bytes a second.
 *
 * Operations: a loop in assembly of independent fused multiply-adds on every accumulator
 * register, with loads mixed in as a matrix product has them (a loop of nothing
 * but multiply-adds runs at half rate on some cores).  Each thread is pinned; the
 * figure is the best of many short samples, added up over the threads.
 * Bytes: each thread reads its part of a block of a given size, again and again; the figure is
 * the best of many short samples, as other work on the machine comes between. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ITERATIONS 20000
#define MAX_THREADS 256

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
/* Registers start at zero: what they happen to hold may be slow (denormals). */
#define ZERO(r) "vpxor %%xmm" r ",%%xmm" r ",%%xmm" r "\n\t"
/* clang-format off */
#define ZERO_LOW                                                                             \
  ZERO("0") ZERO("1") ZERO("2") ZERO("3") ZERO("4") ZERO("5") ZERO("6") ZERO("7") ZERO("8")   \
  ZERO("9") ZERO("10") ZERO("11") ZERO("12") ZERO("13") ZERO("14") ZERO("15")
/* clang-format on */
#define COPY(r) "vmovaps %%zmm0,%%zmm" r "\n\t"
#define ZERO_HIGH \
  COPY("16") COPY("17") COPY("18") COPY("19") COPY("20") COPY("21") COPY("22") COPY("23") COPY("25") COPY("26")
#define FMA3(reg, a, b, c, x, y)                                                                    \
  "vfmadd231ps %%" reg x ",%%" reg y ",%%" reg a "\n\tvfmadd231ps %%" reg x ",%%" reg y ",%%" reg b \
  "\n\tvfmadd231ps %%" reg x ",%%" reg y ",%%" reg c "\n\t"

__attribute__((target("avx512f"))) static double flops_avx512(const float *data)
{
  int64_t n = ITERATIONS;
  __asm__ volatile(
      ZERO_LOW ZERO_HIGH
      "1:\n\t"
      "vmovups (%1),%%zmm24\n\t" FMA3("zmm", "0", "1", "2", "25", "26")
          FMA3("zmm", "3", "4", "5", "25", "26") "vmovups 64(%1),%%zmm27\n\t" FMA3("zmm", "6", "7", "8", "25", "26")
              FMA3("zmm", "9", "10", "11", "25", "26") "vmovups 128(%1),%%zmm28\n\t" FMA3("zmm", "12", "13", "14", "25",
                                                                                          "26")
                  FMA3("zmm", "15", "16", "17", "25", "26") "vmovups 192(%1),%%zmm29\n\t" FMA3(
                      "zmm", "18", "19", "20", "25", "26") FMA3("zmm", "21", "22", "23", "25", "26") "dec %0\n\tjnz 1b"
      : "+r"(n)
      : "r"(data)
      : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12",
        "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24",
        "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "memory");
  return (double)ITERATIONS * 24 * 32;
}

__attribute__((target("avx2,fma"))) static double flops_avx2(const float *data)
{
  int64_t n = ITERATIONS;
  __asm__ volatile(ZERO_LOW "1:\n\t"
                            "vmovups (%1),%%ymm12\n\t" FMA3("ymm", "0", "1", "2", "14", "15")
                                FMA3("ymm", "3", "4", "5", "14",
                                     "15") "vmovups 32(%1),%%ymm13\n\t" FMA3("ymm", "6", "7", "8", "14", "15")
                                    FMA3("ymm", "9", "10", "11", "14", "15") "dec %0\n\tjnz 1b"
                   : "+r"(n)
                   : "r"(data)
                   : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11",
                     "ymm12", "ymm13", "ymm14", "ymm15", "memory");
  return (double)ITERATIONS * 12 * 16;
}

#define XZERO(r) "pxor %%xmm" r ",%%xmm" r "\n\t"
#define SSE_ZERO XZERO("0") XZERO("1") XZERO("2") XZERO("3") XZERO("4") XZERO("5") XZERO("6") XZERO("7") XZERO("14")
static double flops_sse(const float *data)
{
  int64_t n = ITERATIONS;
  __asm__ volatile(SSE_ZERO
                   "1:\n\t"
                   "movups (%1),%%xmm12\n\t"
                   "mulps %%xmm14,%%xmm0\n\taddps %%xmm14,%%xmm1\n\tmulps %%xmm14,%%xmm2\n\taddps %%xmm14,%%xmm3\n\t"
                   "mulps %%xmm14,%%xmm4\n\taddps %%xmm14,%%xmm5\n\tmulps %%xmm14,%%xmm6\n\taddps %%xmm14,%%xmm7\n\t"
                   "dec %0\n\tjnz 1b"
                   : "+r"(n)
                   : "r"(data)
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm12", "xmm14", "memory");
  return (double)ITERATIONS * 8 * 4;
}

static double flops(const float *data)
{
  if (__builtin_cpu_supports("avx512f")) return flops_avx512(data);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return flops_avx2(data);
  return flops_sse(data);
}
#elif defined(__aarch64__)
#define FMLA4(a, b, c, d)                                                    \
  "fmla v" a ".4s, v28.4s, v29.s[0]\n\tfmla v" b ".4s, v28.4s, v29.s[1]\n\t" \
  "fmla v" c ".4s, v28.4s, v29.s[2]\n\tfmla v" d ".4s, v28.4s, v29.s[3]\n\t"

/* Registers start at zero: what they happen to hold may be slow (denormals). */
#define ZERO4(a, b, c, d) "movi v" a ".4s, #0\n\tmovi v" b ".4s, #0\n\tmovi v" c ".4s, #0\n\tmovi v" d ".4s, #0\n\t"
/* clang-format off */
#define ZERO_ALL                                                                              \
  ZERO4("0", "1", "2", "3") ZERO4("4", "5", "6", "7") ZERO4("8", "9", "10", "11") ZERO4("12", "13", "14", "15") \
  ZERO4("16", "17", "18", "19") ZERO4("20", "21", "22", "23") ZERO4("28", "29", "30", "31")
/* clang-format on */

static double flops(const float *data)
{
  int64_t n = ITERATIONS;
  __asm__ volatile(
      ZERO_ALL
      "1:\n\t"
      "ldr q30, [%1]\n\t" FMLA4("0", "1", "2", "3") "ldr q31, [%1, #16]\n\t" FMLA4(
          "4", "5", "6",
          "7") "ldr q30, [%1, #32]\n\t" FMLA4("8", "9", "10",
                                              "11") "ldr q31, [%1, #48]\n\t" FMLA4("12", "13", "14",
                                                                                   "15") "ldr q30, [%1, "
                                                                                         "#64]\n\t" FMLA4("16", "17",
                                                                                                          "18", "19")
                                                                                             FMLA4("20", "21", "22",
                                                                                                   "23") "subs "
                                                                                                         "%0, %0, "
                                                                                                         "#1\n\tb."
                                                                                                         "ne 1b"
      : "+r"(n)
      : "r"(data)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v28", "v29", "v30", "v31", "cc", "memory");
  return (double)ITERATIONS * 24 * 8;
}
#else
#error "peak.c knows x86-64 and AArch64"
#endif

typedef struct Probe {
  pthread_t thread;
  int cpu;
  size_t bytes;         /* of the block to read; 0: operations are counted */
  double seconds, rate; /* operations or bytes a second, in billions */
} Probe;

#define SLICE ((size_t)1 << 20) /* read in one sample */

/* Reads n bytes; the sum keeps the loads. */
static uint64_t read_slice(const uint64_t *p, size_t n)
{
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint64_t d = 0;
  for (size_t i = 0; i < n / sizeof *p; i += 4) a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
  return a ^ b ^ c ^ d;
}

static _Atomic uint64_t sink; /* keeps the loads; nobody reads it */
static double best_bytes(double seconds, size_t size)
{
  uint64_t *block = malloc(size);
  if (!block) return 0;
  memset(block, 1, size);
  sink = read_slice(block, size);
  size_t slice = size < SLICE ? size : SLICE;
  size_t at = 0;
  int rounds = (int)(SLICE / slice);
  double start = now();
  double best = 0;
  do {
    double t = now();
    for (int i = 0; i < rounds; i++) sink = read_slice(block + at / sizeof *block, slice);
    t = now() - t;
    if ((double)slice * rounds / t > best) best = (double)slice * rounds / t;
    at = at + 2 * slice <= size ? at + slice : 0;
  } while (now() - start < seconds);
  free(block);
  return best;
}

static double best_flops(double seconds)
{
  _Alignas(64) float data[64];
  memset(data, 0, sizeof data);
  double start = now();
  double best = 0;
  while (now() - start < seconds) {
    double t = now();
    double count = flops(data);
    t = now() - t;
    if (count / t > best) best = count / t;
  }
  return best;
}

static void *probe(void *arg)
{
  Probe *p = arg;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)p->cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  p->rate = (p->bytes ? best_bytes(p->seconds, p->bytes) : best_flops(p->seconds)) / 1e9;
  return NULL;
}

/* The rate of `threads` threads together; 0 if they could not be started. */
static double peak(int threads, double seconds, size_t bytes)
{
  static Probe probes[MAX_THREADS];
  cpu_set_t allowed;
  int started = 0;
  int cpu = -1;
  double sum = 0;
  if (threads < 1 || threads > MAX_THREADS || sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
  for (; started < threads; started++) {
    for (cpu++; cpu < CPU_SETSIZE && !CPU_ISSET((size_t)cpu, &allowed); cpu++) {
    }
    if (cpu >= CPU_SETSIZE) break;
    probes[started] = (Probe){.cpu = cpu, .seconds = seconds, .bytes = bytes};
    if (pthread_create(&probes[started].thread, NULL, probe, &probes[started])) break;
  }
  for (int i = 0; i < started; i++) {
    pthread_join(probes[i].thread, NULL);
    sum += probes[i].rate;
  }
  return started == threads ? sum : 0;
}

__attribute__((visibility("default"))) double peak_gflops(int threads, double seconds)
{
  return peak(threads, seconds, 0);
}

double peak_gbytes_within(int threads, double seconds, size_t bytes)
{
  size_t each = bytes / (size_t)(threads > 0 ? threads : 1) / 4096 * 4096;
  return peak(threads, seconds, each > 4096 ? each : 4096);
}
