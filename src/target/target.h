/* target.h: the machine that code is made for, as data.
 *
 * A target says two things that have nothing to do with each other: which device runs the
 * code (a CPU, a GPU of some kind, a microcontroller, an accelerator), and which code generator
 * writes it (LLVM, C, CUDA).  "Is this a GPU?" is asked of the device (target_is_gpu); "can it
 * take this instruction?" of the code generator.  A target of another device than the CPU may
 * have a host beside it, the target of the CPU that drives the device.
 *
 * A target is read from a string in TVM's form, whose first word names a row of target_kinds:
 *   llvm -mcpu=native
 *   llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod,-sve
 *   c     c -mcpu=native     cuda -arch=sm_90
 * or is the name of a microcontroller (cortex-m0plus … cortex-m85, riscv32) or wasm (WebAssembly with vectors of 128
 * bits and threads), which stands for C made for it.
 * Features of -mattr add up, and of one that is said twice the last counts: "wasm -mattr=-atomics".
 * Options may also read -keys=…, -num-cores=N, -vector-width=BITS, -device=…,
 * -libs=…, -model=… as TVM writes them.  An unknown kind, option, CPU or feature is
 * an error that names it and the nearest known one.  A kind without a code generator can be
 * described and asked; code for it is refused.
 *
 * Without -mcpu and -mtriple the code is for this machine, as with -mcpu=native;
 * -mcpu=generic asks for the architecture's baseline, and -mtriple alone does too:
 * it names another machine, of which nothing more is known. */
#ifndef LATHE_TARGET_H
#define LATHE_TARGET_H

#include "base/base.h"

typedef enum { ARCH_X86_64, ARCH_AARCH64, ARCH_ARM, ARCH_RISCV64, ARCH_WASM32, ARCH_NVPTX, ARCH_OTHER } Arch;

/* What runs the code; a bit each, so that a set of them is a mask. */
typedef enum { DEVICE_CPU = 1, DEVICE_GPU = 2, DEVICE_MICRO = 4, DEVICE_ACCELERATOR = 8 } DeviceKind;
typedef struct Device {
  DeviceKind kind;
  int type;         /* DLPack's number: 1 cpu, 2 cuda, 4 opencl, … */
  const char *name; /* of that type */
} Device;
/* What writes the code. */
typedef enum { CODEGEN_NONE, CODEGEN_LLVM, CODEGEN_C, CODEGEN_CUDA } Codegen;

/* The first word of a target. */
typedef struct TargetKind {
  const char *name;
  Codegen codegen;
  Device device;
  const char *keys; /* what schedules are looked up by, in TVM's words: "cuda,gpu" */
  /* of a GPU, unless the target says otherwise */
  int max_threads, warp_size;
  int64_t shared_bytes;
} TargetKind;

/* CPU features that schedules, code generation and the runtime's check know.
 * One row: constant, LLVM's name, architecture. */
/* clang-format off */
#define CPU_FEATURES(X)                            \
  X(CPU_SSE42, "sse4.2", ARCH_X86_64)              \
  X(CPU_AVX, "avx", ARCH_X86_64)                   \
  X(CPU_AVX2, "avx2", ARCH_X86_64)                 \
  X(CPU_FMA, "fma", ARCH_X86_64)                   \
  X(CPU_F16C, "f16c", ARCH_X86_64)                 \
  X(CPU_BMI2, "bmi2", ARCH_X86_64)                 \
  X(CPU_POPCNT, "popcnt", ARCH_X86_64)             \
  X(CPU_LZCNT, "lzcnt", ARCH_X86_64)               \
  X(CPU_AVXVNNI, "avxvnni", ARCH_X86_64)           \
  X(CPU_AVX512F, "avx512f", ARCH_X86_64)           \
  X(CPU_AVX512BW, "avx512bw", ARCH_X86_64)         \
  X(CPU_AVX512DQ, "avx512dq", ARCH_X86_64)         \
  X(CPU_AVX512VL, "avx512vl", ARCH_X86_64)         \
  X(CPU_AVX512CD, "avx512cd", ARCH_X86_64)         \
  X(CPU_AVX512VNNI, "avx512vnni", ARCH_X86_64)     \
  X(CPU_AVX512BF16, "avx512bf16", ARCH_X86_64)     \
  X(CPU_NEON, "neon", ARCH_AARCH64)                \
  X(CPU_FP16, "fullfp16", ARCH_AARCH64)            \
  X(CPU_DOTPROD, "dotprod", ARCH_AARCH64)          \
  X(CPU_I8MM, "i8mm", ARCH_AARCH64)                \
  X(CPU_BF16, "bf16", ARCH_AARCH64)                \
  X(CPU_LSE, "lse", ARCH_AARCH64)                  \
  X(CPU_SVE, "sve", ARCH_AARCH64)                  \
  X(CPU_DSP, "dsp", ARCH_ARM)                      \
  X(CPU_MVE, "mve", ARCH_ARM)
/* clang-format on */

typedef enum {
#define X(id, name, arch) id,
  CPU_FEATURES(X)
#undef X
      CPU_NFEATURES
} CpuFeature;

/* How fast a core computes and reads.  Rates are bits or bytes of one cycle, so that they hold for vectors of any
 * width; schedules ask for them through src/impl/cpu/cost.c. */
typedef struct CoreInfo {
  double ghz;      /* clock under vector load */
  int fma_bits;    /* of multiply-adds begun in a cycle: 2 pipes of 128 bits are 256 */
  int fma_latency; /* cycles */
  int load_bits;   /* read from the first-level cache in a cycle */
  int l1_ways;
  int l2_path;       /* bytes that the second-level cache can hand over in a cycle */
  double memory_gbs; /* bytes a nanosecond that one core reads straight ahead from memory */
  /* of dot products of bfloat16 pairs begun in a cycle, where the instruction is there; 0: as multiply-adds */
  int dot_bits;
  int block_bits; /* of 2 x 2 blocks of sums of fours, the same; 0: as dot products */
  int fma_chain;  /* cycles from a multiply-add to the next one that adds to its result; 0: fma_latency */
} CoreInfo;

/* An option as it was said. */
typedef struct TargetOption {
  const char *name, *value;
} TargetOption;

typedef struct Target {
  const TargetKind *kind;
  Codegen codegen;
  Device device;
  const struct Target *host; /* NULL, or the target of the CPU that drives the device */
  const char *text;          /* the string it was read from, normalised; without the host */
  const char *keys;          /* comma list: those said, the device's name, the kind's */
  int noptions;
  const TargetOption *option; /* all of them, as said */
  Arch arch;
  const char *triple;   /* LLVM's; never NULL */
  const char *cpu;      /* LLVM's CPU name used for tuning the pipeline model */
  const char *attrs;    /* -mattr features that are not in CPU_FEATURES, for LLVM alone, or "" */
  const char *gpu_arch; /* cuda: "sm_90" */
  uint64_t features;    /* bit per CpuFeature that generated code may use */
  bool is_host;         /* runs on this machine */
  bool fast_math;       /* -fast-math: 4 ulp no longer promised */
  int vector_bits;      /* widest vector worth using */
  int vector_registers;
  bool fma;
  bool broadcast_load;                  /* x86: load + splat is one memory operand;
                                           NEON: load a vector, multiply by element */
  int64_t l1_bytes, l2_bytes, l3_bytes; /* data caches of one core, of a shared one its share; l3 0 when absent */
  int num_cores;
  CoreInfo core;             /* how fast it computes and reads */
  int max_threads_per_block; /* gpu */
  int64_t shared_bytes;      /* gpu: shared memory per block */
  int warp_size;
} Target;

const Target *target_parse(Ctx *, const char *text);
/* The same target for another CPU: its name, and features that are to be there, as in "neoverse-n1+i8mm". */
const Target *target_variant(Ctx *, const Target *, const char *cpu);
const Target *target_host(Ctx *); /* "llvm -mcpu=native", or "c" without LLVM */
/* The same target driven by that host, which must be a CPU; NULL: by none that is said. */
const Target *target_with_host(Ctx *, const Target *, const Target *host);
static inline bool target_is_gpu(const Target *t) { return t->device.kind == DEVICE_GPU; }
/* A CPU or a microcontroller: code runs as plain functions.  For any other device the host launches it. */
static inline bool target_is_cpu(const Target *t) { return t->device.kind & (DEVICE_CPU | DEVICE_MICRO); }
/* A device by its name and number: "cpu", "cpu(1)", "cuda:0"; false: there is none of that name. */
bool target_device_parse(const char *text, int *type, int *id);
const char *target_device_text(Arena *, int type, int id); /* "cpu(1)" */
/* What was said for an option; NULL: nothing. */
const char *target_option(const Target *, const char *name);
/* Names of what they name, for listings and messages; of CODEGEN_NONE "none". */
const char *target_codegen_name(Codegen);
const char *target_device_kind_name(DeviceKind);
bool target_has(const Target *, CpuFeature);
int target_lanes(const Target *, int bits); /* vector_bits / bits, at least 1 */
/* May several threads share memory?  Of WebAssembly that is a feature. */
bool target_has_threads(const Target *);
int target_align(const Target *); /* bytes that tensors and workspaces are aligned to; a power of two */
/* Is there an instruction that adds the products of pairs of bfloat16 to so many float32 lanes? */
bool target_has_dot(const Target *, int lanes);
/* ---- dots.c: instructions that add several products to a sum at once ------------------------------------------- */

typedef enum { DOT_S8, DOT_U8, DOT_S16, DOT_BF16 } DotElement;
typedef struct TargetDot {
  const char *name; /* the instruction */
  Arch arch;
  CpuFeature feature; /* CPU_NFEATURES: one that is not in CPU_FEATURES: `attr` */
  const char *attr;   /* NULL, or its name in -mattr */
  DotElement a, b;    /* of the two operands; sums are int32, of bfloat16 float32 */
  int group;          /* products that are added to each sum */
  int rows, columns;  /* sums of a block, each row of a by each column of b; 1 and 1: lane by lane */
  int bits;           /* of one operand; 0: a tile register */
  double rate;        /* instructions begun for one multiply-add of a vector of floats */
  /* what LLVM calls it, with %d for the bits of a vector; NULL: no code is made for it yet */
  const char *llvm;
  bool in_c; /* the C generator has a function for it */
} TargetDot;
/* The row for these operands, lane by lane over so many sums; NULL: there is none, and it is spelt out. */
const TargetDot *target_dot(const Target *, DotElement a, DotElement b, int lanes);
/* The row that adds all products of rows of the first by columns of the second to a block of sums, 2 x 2 in the lanes
 * 00 01 10 11: AArch64's matrix instructions.  NULL: there is none. */
const TargetDot *target_block_dot(const Target *, DotElement a, DotElement b);
/* Products of so many neighbours that one instruction adds to a sum of its own, where there is one whose operands are
 * whole vectors (Helium's): the most that divide `of`.  0: none. */
int target_dot_group(const Target *, DotElement a, DotElement b, int64_t of);
/* A processor whose sums of products are scalars, while four int32 at a time are computed with (Helium)? */
enum { QUAD = 4 };
bool target_has_quads(const Target *);
/* Does it take bytes as two vectors of 16 bits each, the even ones and the odd ones? */
bool target_dot_of_pairs(const TargetDot *);
/* Of the data of a product whose weight is int8: what its fastest instruction takes.  False: it does not matter. */
bool target_dot_data(const Target *, DotElement *out);
/* Are 16 bytes looked up in a table of 256 by a few instructions? */
bool target_looks_up(const Target *);
/* Are so many int32 lanes multiplied and shifted with rounding by an instruction each? */
bool target_rounds(const Target *, int lanes);
/* Are floats rounded to the nearest integer, halves away from zero, by one instruction, scalars and vectors? */
bool target_rounds_away(const Target *);
/* One that multiplies so many float32 lanes by powers of two? */
bool target_has_scale(const Target *, int lanes);
/* Comma list with every feature of the architecture as +name or -name, the form
 * LLVM takes: nothing is left to LLVM's own guess. */
const char *target_llvm_features(Arena *, const Target *);
/* The features this machine has: CPUID / HWCAP, operating system support counted. */
uint64_t target_host_features(void);
Arch target_host_arch(void);
const TargetKind *target_kinds(int *n);   /* all rows */
const char *target_arch_name(Arch);       /* "x86_64", "aarch64", …, as the runtime says it */
const char *cpu_feature_name(CpuFeature); /* LLVM's */
/* Every feature that these need, themselves included; and these less what needs
 * the feature that goes. */
uint64_t features_closed(uint64_t);
uint64_t features_without(uint64_t, CpuFeature);

/* ---- cpus.c: processors by name --------------------------------------------- */

typedef struct CpuInfo {
  const char *name;
  Arch arch;
  uint64_t features;
  int l1_kb, l2_kb, l3_kb; /* of one core; l3 its usual share of the chip's */
  const CoreInfo *core;
} CpuInfo;
const CpuInfo *cpu_find(Arch, const char *name); /* NULL if unknown */
int cpu_names(Arch, const char **out, int max);  /* in table order */

/* ---- host.c: this machine ---------------------------------------------------- */

/* Its name among those of cpus.c; "generic" when the model is not known. */
const char *host_cpu(void);
/* Data caches of one core, of a shared one its share; a level that cannot be read stays as it was. */
void host_caches(int64_t *l1, int64_t *l2, int64_t *l3);
int host_cores(void); /* CPUs this process may run on */

#endif
