/* target.c: reads target strings.
 *
 * In: "kind -option=value …".  Out: a finished Target in the context's memory, in
 * which features are closed (a feature's prerequisites are set too) and everything
 * a schedule asks for has a value.  Nothing is taken from LLVM: the feature list
 * handed to it names every feature we know, with + or -. */
#include <stdlib.h>

#include "target/target.h"

#define F(x) (UINT64_C(1) << CPU_##x)
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- features ---------------------------------------------------------------- */

static const struct {
  const char *name;
  Arch arch;
} features[CPU_NFEATURES] = {
#define X(id, name, arch) [id] = {name, arch},
  CPU_FEATURES(X)
#undef X
};

static uint64_t feature_needs(CpuFeature f)
{
  switch (f) {
  case CPU_AVX: return F(SSE42);
  case CPU_AVX2:
  case CPU_FMA:
  case CPU_F16C: return F(AVX);
  case CPU_AVXVNNI: return F(AVX2);
  case CPU_AVX512F: return F(AVX2) | F(FMA) | F(F16C);
  case CPU_AVX512BW:
  case CPU_AVX512DQ:
  case CPU_AVX512VL:
  case CPU_AVX512CD:
  case CPU_AVX512VNNI: return F(AVX512F);
  case CPU_AVX512BF16: return F(AVX512BW);
  case CPU_FP16:
  case CPU_DOTPROD:
  case CPU_I8MM:
  case CPU_BF16: return F(NEON);
  case CPU_SVE: return F(FP16);
  case CPU_MVE: return F(DSP);
  case CPU_SSE42:
  case CPU_BMI2:
  case CPU_POPCNT:
  case CPU_LZCNT:
  case CPU_NEON:
  case CPU_LSE:
  case CPU_DSP:
  case CPU_NFEATURES: return 0;
  }
  return 0;
}

const char *cpu_feature_name(CpuFeature f) { return features[f].name; }

uint64_t features_closed(uint64_t set)
{
  for (uint64_t before = 0; before != set;) {
    before = set;
    for (int f = 0; f < CPU_NFEATURES; f++)
      if (set >> f & 1) set |= feature_needs((CpuFeature)f);
  }
  return set;
}

uint64_t features_without(uint64_t set, CpuFeature gone)
{
  uint64_t kept = 0;
  for (int f = 0; f < CPU_NFEATURES; f++)
    if ((set >> f & 1) && !(features_closed(UINT64_C(1) << f) >> gone & 1)) kept |= UINT64_C(1) << f;
  return kept;
}

/* Features that LLVM knows and Lathe only passes on. */
/* clang-format off */
static const struct { Arch arch; const char *name; } passed_on[] = {
    {ARCH_X86_64, "sse3"}, {ARCH_X86_64, "ssse3"}, {ARCH_X86_64, "sse4.1"}, {ARCH_X86_64, "bmi"},
    {ARCH_X86_64, "adx"}, {ARCH_X86_64, "aes"}, {ARCH_X86_64, "pclmul"}, {ARCH_X86_64, "sha"},
    {ARCH_X86_64, "movbe"}, {ARCH_X86_64, "cx16"}, {ARCH_X86_64, "gfni"}, {ARCH_X86_64, "vaes"},
    {ARCH_X86_64, "avx512ifma"}, {ARCH_X86_64, "avx512vbmi"}, {ARCH_X86_64, "avx512vbmi2"},
    {ARCH_X86_64, "avx512bitalg"}, {ARCH_X86_64, "avx512vpopcntdq"}, {ARCH_X86_64, "avx512fp16"},
    {ARCH_X86_64, "avxvnni"}, {ARCH_X86_64, "amx-tile"}, {ARCH_X86_64, "amx-int8"}, {ARCH_X86_64, "amx-bf16"},
    {ARCH_X86_64, "prefer-256-bit"},
    {ARCH_AARCH64, "fp-armv8"}, {ARCH_AARCH64, "crc"}, {ARCH_AARCH64, "crypto"}, {ARCH_AARCH64, "aes"},
    {ARCH_AARCH64, "sha2"}, {ARCH_AARCH64, "rdm"}, {ARCH_AARCH64, "rcpc"}, {ARCH_AARCH64, "fp16fml"},
    {ARCH_AARCH64, "sve2"}, {ARCH_AARCH64, "sme"}, {ARCH_AARCH64, "v8.1a"}, {ARCH_AARCH64, "v8.2a"},
    {ARCH_AARCH64, "v8.3a"}, {ARCH_AARCH64, "v8.4a"}, {ARCH_AARCH64, "v8.5a"}, {ARCH_AARCH64, "v8.6a"},
    {ARCH_AARCH64, "v9a"}, {ARCH_AARCH64, "reserve-x18"}, {ARCH_AARCH64, "strict-align"},
    {ARCH_ARM, "neon"}, {ARCH_ARM, "vfp2"}, {ARCH_ARM, "vfp3"}, {ARCH_ARM, "vfp4"}, {ARCH_ARM, "fp-armv8"},
    {ARCH_ARM, "d32"}, {ARCH_ARM, "dsp"}, {ARCH_ARM, "thumb-mode"}, {ARCH_ARM, "thumb2"}, {ARCH_ARM, "v7"},
    {ARCH_ARM, "mve.fp"}, {ARCH_ARM, "dotprod"}, {ARCH_ARM, "fullfp16"},
    {ARCH_ARM, "soft-float"}, {ARCH_ARM, "strict-align"},
    {ARCH_RISCV64, "m"}, {ARCH_RISCV64, "a"}, {ARCH_RISCV64, "f"}, {ARCH_RISCV64, "d"}, {ARCH_RISCV64, "c"},
    {ARCH_RISCV64, "v"}, {ARCH_RISCV64, "zba"}, {ARCH_RISCV64, "zbb"}, {ARCH_RISCV64, "zbs"},
    {ARCH_RISCV64, "zfh"}, {ARCH_RISCV64, "zvfh"}, {ARCH_RISCV64, "relax"},
    {ARCH_WASM32, "simd128"}, {ARCH_WASM32, "relaxed-simd"}, {ARCH_WASM32, "bulk-memory"},
    {ARCH_WASM32, "sign-ext"}, {ARCH_WASM32, "nontrapping-fptoint"}, {ARCH_WASM32, "atomics"},
    {ARCH_WASM32, "multivalue"}, {ARCH_WASM32, "mutable-globals"}, {ARCH_WASM32, "reference-types"},
    {ARCH_WASM32, "tail-call"},
};
/* clang-format on */

bool target_has(const Target *t, CpuFeature f) { return t->features >> f & 1; }

/* A line of the cache, and the widest vector there is; 16 where memory is small. */
int target_align(const Target *t)
{
  return t->arch == ARCH_ARM || t->arch == ARCH_WASM32 || t->device.kind == DEVICE_MICRO ? 16 : 64;
}

int target_lanes(const Target *t, int bits)
{
  int lanes = bits > 0 ? t->vector_bits / bits : 1;
  return lanes > 1 ? lanes : 1;
}

/* Vectors of 32 bits that AVX-512's instructions take. */
static bool is_evex(const Target *t, int lanes)
{
  return t->arch == ARCH_X86_64 && target_has(t, CPU_AVX512F) &&
         (lanes == 16 || (target_has(t, CPU_AVX512VL) && (lanes == 4 || lanes == 8)));
}

bool target_has_dot(const Target *t, int lanes)
{
  if (t->arch == ARCH_AARCH64) return target_has(t, CPU_BF16) && (lanes == 2 || lanes == 4);
  return is_evex(t, lanes) && target_has(t, CPU_AVX512BF16);
}

bool target_has_scale(const Target *t, int lanes) { return is_evex(t, lanes); }

const char *target_llvm_features(Arena *arena, const Target *t)
{
  Text out = text_new(arena);
  for (int f = 0; f < CPU_NFEATURES; f++)
    if (features[f].arch == t->arch)
      text_printf(&out, "%s%c%s", out.n ? "," : "", target_has(t, (CpuFeature)f) ? '+' : '-', features[f].name);
  if (t->attrs[0]) text_printf(&out, "%s%s", out.n ? "," : "", t->attrs);
  return text_str(&out);
}

/* ---- names -------------------------------------------------------------------- */

/* Constants of a GPU are those that TVM assumes where nothing is said. */
/* clang-format off */
static const TargetKind kinds[] = {
    {"llvm", CODEGEN_LLVM, {DEVICE_CPU, 1, "cpu"}, "cpu", 0, 0, 0},
    {"c", CODEGEN_C, {DEVICE_CPU, 1, "cpu"}, "cpu", 0, 0, 0},
    {"cuda", CODEGEN_CUDA, {DEVICE_GPU, 2, "cuda"}, "cuda,gpu", 1024, 32, 48 * 1024},
    {"opencl", CODEGEN_NONE, {DEVICE_GPU, 4, "opencl"}, "opencl,gpu", 256, 1, 16 * 1024},
    {"vulkan", CODEGEN_NONE, {DEVICE_GPU, 7, "vulkan"}, "vulkan,gpu", 256, 1, 16 * 1024},
    {"metal", CODEGEN_NONE, {DEVICE_GPU, 8, "metal"}, "metal,gpu", 256, 16, 32 * 1024},
    {"rocm", CODEGEN_NONE, {DEVICE_GPU, 10, "rocm"}, "rocm,gpu", 256, 64, 64 * 1024},
    {"webgpu", CODEGEN_NONE, {DEVICE_GPU, 15, "webgpu"}, "webgpu,gpu", 256, 1, 16 * 1024},
    {"hexagon", CODEGEN_NONE, {DEVICE_ACCELERATOR, 16, "hexagon"}, "hexagon,cpu", 0, 0, 0},
    /* a device that the program itself brings; its code is a shared library of this CPU's instructions */
    {"ext_dev", CODEGEN_C, {DEVICE_ACCELERATOR, 12, "ext_dev"}, "ext_dev", 0, 0, 0},
};
/* clang-format on */

const TargetKind *target_kinds(int *n)
{
  *n = COUNT(kinds);
  return kinds;
}

const char *target_codegen_name(Codegen g)
{
  switch (g) {
  case CODEGEN_NONE: return "none";
  case CODEGEN_LLVM: return "llvm";
  case CODEGEN_C: return "c";
  case CODEGEN_CUDA: return "cuda";
  }
  return "none";
}

const char *target_device_kind_name(DeviceKind k)
{
  switch (k) {
  case DEVICE_CPU: return "cpu";
  case DEVICE_GPU: return "gpu";
  case DEVICE_MICRO: return "microcontroller";
  case DEVICE_ACCELERATOR: return "accelerator";
  }
  return "";
}

/* First component of a triple -> architecture. */
/* clang-format off */
static const struct { const char *name; Arch arch; } arch_words[] = {
    {"x86_64", ARCH_X86_64}, {"amd64", ARCH_X86_64}, {"aarch64", ARCH_AARCH64}, {"arm64", ARCH_AARCH64},
    {"arm", ARCH_ARM}, {"armv6", ARCH_ARM}, {"armv7", ARCH_ARM}, {"armv7a", ARCH_ARM}, {"armv7l", ARCH_ARM},
    {"armv8", ARCH_ARM}, {"armv8l", ARCH_ARM}, {"thumb", ARCH_ARM}, {"thumbv6m", ARCH_ARM}, {"thumbv7m", ARCH_ARM},
    {"thumbv7em", ARCH_ARM}, {"thumbv8m.base", ARCH_ARM}, {"thumbv8m.main", ARCH_ARM},
    {"thumbv8.1m.main", ARCH_ARM}, {"riscv64", ARCH_RISCV64}, {"wasm32", ARCH_WASM32}, {"nvptx64", ARCH_NVPTX},
    {"i386", ARCH_OTHER}, {"i686", ARCH_OTHER}, {"riscv32", ARCH_OTHER}, {"wasm64", ARCH_OTHER},
    {"hexagon", ARCH_OTHER}, {"powerpc64le", ARCH_OTHER}, {"s390x", ARCH_OTHER}, {"loongarch64", ARCH_OTHER},
    {"mips", ARCH_OTHER}, {"mipsel", ARCH_OTHER},
};
/* clang-format on */

const char *target_arch_name(Arch arch)
{
  switch (arch) {
  case ARCH_X86_64: return "x86_64";
  case ARCH_AARCH64: return "aarch64";
  case ARCH_ARM: return "arm";
  case ARCH_RISCV64: return "riscv64";
  case ARCH_WASM32: return "wasm32";
  case ARCH_NVPTX: return "nvptx64";
  case ARCH_OTHER: return "other";
  }
  return "other";
}

static const char *default_triple(Arch arch, const char *cpu)
{
  switch (arch) {
  case ARCH_X86_64: return "x86_64-unknown-linux-gnu";
  case ARCH_AARCH64: return "aarch64-unknown-linux-gnu";
  case ARCH_ARM: return str_starts(cpu, "cortex-m") ? "thumb-none-eabi" : "armv7-unknown-linux-gnueabihf";
  case ARCH_RISCV64: return "riscv64-unknown-linux-gnu";
  case ARCH_WASM32: return "wasm32-unknown-unknown";
  case ARCH_NVPTX: return "nvptx64-nvidia-cuda";
  case ARCH_OTHER: break;
  }
  return "unknown";
}

/* "; did you mean 'x'?", or "; known are a, b, c" when nothing is near. */
static const char *hint(Arena *arena, const char *word, const char *const *known, int n)
{
  const char *near = str_nearest(word, known, n);
  if (near) return arena_printf(arena, "; did you mean '%s'?", near);
  Text t = text_new(arena);
  text_add(&t, "; known are ");
  for (int i = 0; i < n; i++) text_printf(&t, "%s%s", i ? ", " : "", known[i]);
  return text_str(&t);
}

/* ---- options -------------------------------------------------------------------- */

typedef enum {
  OPT_MCPU,
  OPT_MTRIPLE,
  OPT_MATTR,
  OPT_ARCH,
  OPT_FAST_MATH,
  OPT_NUM_CORES,
  OPT_VECTOR_WIDTH,
  OPT_MAX_THREADS,
  OPT_SHARED,
  OPT_WARP,
  OPT_NOTE,
} OptKind;
/* clang-format off */
static const struct { const char *name; OptKind kind; } options[] = {
    {"mcpu", OPT_MCPU}, {"mtriple", OPT_MTRIPLE}, {"target", OPT_MTRIPLE}, {"mattr", OPT_MATTR}, {"arch", OPT_ARCH},
    {"fast-math", OPT_FAST_MATH}, {"num-cores", OPT_NUM_CORES}, {"vector-width", OPT_VECTOR_WIDTH},
    {"max-num-threads", OPT_MAX_THREADS}, {"max-threads-per-block", OPT_MAX_THREADS},
    {"max-shared-memory-per-block", OPT_SHARED}, {"thread-warp-size", OPT_WARP},
    /* said by TVM's users; no code depends on them */
    {"keys", OPT_NOTE}, {"device", OPT_NOTE}, {"libs", OPT_NOTE}, {"model", OPT_NOTE}, {"tag", OPT_NOTE},
    {"march", OPT_NOTE}, {"max-block-size-x", OPT_NOTE}, {"max-block-size-y", OPT_NOTE},
    {"max-block-size-z", OPT_NOTE}, {"registers-per-block", OPT_NOTE}, {"max-function-args", OPT_NOTE},
    {"texture-spatial-limit", OPT_NOTE}, {"l2-cache-size-bytes", OPT_NOTE},
};
/* clang-format on */

typedef struct Reader {
  Ctx *ctx;
  const char *whole; /* the text, for messages */
  Target *t;
  const char *cpu, *triple, *attrs;
  int num_cores, vector_bits;
  Vec(TargetOption) said;
} Reader;

static int read_number(Reader *r, const char *name, const char *value, int least, int most)
{
  char *end;
  long v = strtol(value, &end, 10);
  if (*end || end == value || v < least || v > most)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -%s=%s is not a number from %d to %d", r->whole, name, value,
          least, most);
  return (int)v;
}

static bool read_flag(Reader *r, const char *name, const char *value)
{
  static const char *const yes[] = {"", "1", "true", "True"};
  static const char *const no[] = {"0", "false", "False"};
  for (int i = 0; i < COUNT(yes); i++)
    if (strcmp(value, yes[i]) == 0) return true;
  for (int i = 0; i < COUNT(no); i++)
    if (strcmp(value, no[i]) == 0) return false;
  raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -%s=%s is neither 0 nor 1", r->whole, name, value);
}

static const char *read_gpu_arch(Reader *r, const char *value)
{
  const char *digits = value + 3;
  size_t n = strspn(digits, "0123456789");
  if (!str_starts(value, "sm_") || n < 2 || n > 3 ||
      (digits[n] && strcmp(digits + n, "a") != 0 && strcmp(digits + n, "f") != 0))
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -arch=%s is not a GPU architecture such as sm_90", r->whole,
          value);
  return value;
}

static void read_option(Reader *r, const char *name, const char *value)
{
  int at = -1;
  const char *known[COUNT(options)];
  for (int i = 0; i < COUNT(options); i++) {
    known[i] = options[i].name;
    if (strcmp(name, options[i].name) == 0) at = i;
  }
  if (at < 0)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': unknown option '-%s'%s", r->whole, name,
          hint(scratch(r->ctx), name, known, COUNT(options)));
  if (!value[0] && options[at].kind != OPT_FAST_MATH && options[at].kind != OPT_NOTE)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': option '-%s' needs a value, as in -%s=…", r->whole, name, name);
  bool cuda = r->t->codegen == CODEGEN_CUDA;
  switch (options[at].kind) {
  case OPT_MCPU: r->cpu = value; break;
  case OPT_MTRIPLE: r->triple = value; break;
  case OPT_MATTR: r->attrs = r->attrs ? arena_printf(ctx_arena(r->ctx), "%s,%s", r->attrs, value) : value; break;
  case OPT_ARCH:
    if (!cuda)
      raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -arch is for cuda; %s takes -mcpu", r->whole,
            r->t->kind->name);
    r->t->gpu_arch = read_gpu_arch(r, value);
    break;
  case OPT_FAST_MATH: r->t->fast_math = read_flag(r, name, value); break;
  case OPT_NUM_CORES: r->num_cores = read_number(r, name, value, 1, 65536); break;
  case OPT_VECTOR_WIDTH:
    r->vector_bits = read_number(r, name, value, 32, 2048);
    if (r->vector_bits & (r->vector_bits - 1))
      raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -%s=%s is not a power of two", r->whole, name, value);
    break;
  case OPT_MAX_THREADS: r->t->max_threads_per_block = read_number(r, name, value, 1, 1 << 20); break;
  case OPT_SHARED: r->t->shared_bytes = read_number(r, name, value, 0, 1 << 30); break;
  case OPT_WARP: r->t->warp_size = read_number(r, name, value, 1, 1024); break;
  case OPT_NOTE: break;
  }
  if (cuda && (r->cpu || r->triple || r->attrs))
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -%s is for CPU targets; cuda takes -arch=sm_NN", r->whole, name);
}

static const TargetKind *read_kind(Ctx *ctx, const char *whole, const char *word)
{
  const char *known[COUNT(kinds)];
  for (int k = 0; k < COUNT(kinds); k++) {
    known[k] = kinds[k].name;
    if (strcmp(word, known[k]) == 0) return &kinds[k];
  }
  raise(ctx, ERR_ARGUMENT, NOWHERE, "target '%s': unknown kind '%s'%s", whole, word,
        hint(scratch(ctx), word, known, COUNT(known)));
}

static const char *next_word(Arena *arena, const char **p)
{
  *p += strspn(*p, " \t\n");
  const char *start = *p;
  bool quoted = false;
  for (; **p && (quoted || !strchr(" \t\n", **p)); (*p)++)
    if (**p == '"') quoted = !quoted;
  Text t = text_new(arena);
  for (const char *c = start; c < *p; c++)
    if (*c != '"') text_char(&t, *c);
  return *p == start ? NULL : text_str(&t);
}

/* -name=value, -name value, -name; underscores in names read as dashes. */
static void read_words(Reader *r, Text *normal)
{
  Arena *keep = ctx_arena(r->ctx);
  const char *p = r->whole;
  next_word(keep, &p);
  for (const char *word; (word = next_word(keep, &p));) {
    if (word[0] != '-' || !word[1])
      raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': '%s' is not an option; options read -name=value", r->whole,
            word);
    word += word[1] == '-' ? 2 : 1;
    size_t n = strcspn(word, "=");
    char *name = arena_strndup(keep, word, n);
    for (char *c = name; *c; c++)
      if (*c == '_') *c = '-';
    const char *value = word[n] ? word + n + 1 : "";
    if (!word[n]) {
      const char *ahead = p;
      const char *next = next_word(keep, &ahead);
      if (next && next[0] != '-') value = next, p = ahead;
    }
    read_option(r, name, value);
    vec_push(keep, &r->said, ((TargetOption){name, value}));
    text_printf(normal, value[0] ? " -%s=%s" : " -%s", name, value);
  }
}

/* ---- from options to a finished target --------------------------------------------- */

static Arch arch_of_triple(Reader *r)
{
  const char *known[COUNT(arch_words)];
  const char *first = arena_strndup(scratch(r->ctx), r->triple, strcspn(r->triple, "-"));
  for (int i = 0; i < COUNT(arch_words); i++) {
    known[i] = arch_words[i].name;
    if (strcmp(first, known[i]) == 0) return arch_words[i].arch;
  }
  raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': unknown architecture '%s' in -mtriple%s", r->whole, first,
        hint(scratch(r->ctx), first, known, COUNT(arch_words)));
}

static const CpuInfo *find_cpu(Reader *r, Arch arch)
{
  const CpuInfo *cpu = cpu_find(arch, r->cpu);
  if (cpu) return cpu;
  const char *known[256];
  int n = cpu_names(arch, known, COUNT(known));
  raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': unknown CPU '%s' for %s%s", r->whole, r->cpu,
        target_arch_name(arch), hint(scratch(r->ctx), r->cpu, known, n));
}

/* The architecture comes from the triple, else from the CPU's name, else is ours. */
static void choose_machine(Reader *r)
{
  Target *t = r->t;
  Arch host = target_host_arch();
  bool native = r->cpu ? strcmp(r->cpu, "native") == 0 : !r->triple;
  t->arch = r->triple ? arch_of_triple(r) : host;
  if (native && t->arch != host)
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -mcpu=native is this machine's %s, but the triple says %s",
          r->whole, target_arch_name(host), target_arch_name(t->arch));
  const CpuInfo *cpu = NULL;
  if (native) {
    r->cpu = host_cpu();
    t->features = target_host_features();
    cpu = find_cpu(r, host);
  } else {
    if (!r->cpu) r->cpu = "generic";
    for (Arch a = ARCH_X86_64; !r->triple && a <= ARCH_OTHER && !cpu_find(t->arch, r->cpu); a++)
      if (cpu_find(a, r->cpu)) t->arch = a;
    /* none of them: one that is called so would be a microcontroller */
    if (!r->triple && !cpu_find(t->arch, r->cpu) && str_starts(r->cpu, "cortex-m")) t->arch = ARCH_ARM;
    cpu = find_cpu(r, t->arch);
    t->features = features_closed(cpu->features);
  }
  t->cpu = cpu->name;
  t->l1_bytes = (int64_t)cpu->l1_kb * 1024;
  t->l2_bytes = (int64_t)cpu->l2_kb * 1024;
  t->l3_bytes = (int64_t)cpu->l3_kb * 1024;
  t->core = *cpu->core;
  if (native) host_caches(&t->l1_bytes, &t->l2_bytes, &t->l3_bytes);
  t->num_cores = native ? host_cores() : t->arch == ARCH_ARM ? 1 : 4;
  t->triple = r->triple ? r->triple : default_triple(t->arch, t->cpu);
}

static void apply_feature(Reader *r, char sign, const char *name, Text *rest)
{
  Target *t = r->t;
  const char *known[CPU_NFEATURES + COUNT(passed_on)];
  int n = 0;
  for (int f = 0; f < CPU_NFEATURES; f++) {
    if (features[f].arch != t->arch) continue;
    known[n++] = features[f].name;
    if (strcmp(name, features[f].name) != 0) continue;
    if (sign == '+') t->features = features_closed(t->features | UINT64_C(1) << f);
    else t->features = features_without(t->features, (CpuFeature)f);
    return;
  }
  for (int i = 0; i < COUNT(passed_on); i++) {
    if (passed_on[i].arch != t->arch) continue;
    known[n++] = passed_on[i].name;
    if (strcmp(name, passed_on[i].name) != 0) continue;
    text_printf(rest, "%s%c%s", rest->n ? "," : "", sign, name);
    return;
  }
  if (t->arch == ARCH_OTHER) { /* nothing is known of it: LLVM judges */
    text_printf(rest, "%s%c%s", rest->n ? "," : "", sign, name);
    return;
  }
  raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': unknown feature '%s' for %s%s", r->whole, name,
        target_arch_name(t->arch), hint(scratch(r->ctx), name, known, n));
}

/* Is the feature in the list, whatever its sign? */
static bool names_feature(const char *list, const char *feature)
{
  size_t n = strlen(feature);
  for (const char *p = list; (p = strstr(p, feature)); p += n)
    if (p > list && (p[-1] == '+' || p[-1] == '-') && (p[n] == ',' || !p[n])) return true;
  return false;
}

/* Of a feature that is said several times the last counts.  Linux on RISC-V has some whatever is said. */
static void apply_features(Reader *r)
{
  Text rest = text_new(ctx_arena(r->ctx));
  const char *attrs = r->attrs;
  if (r->t->arch == ARCH_RISCV64 && strstr(r->t->triple, "linux"))
    attrs = arena_printf(scratch(r->ctx), "+m,+a,+f,+d,+c%s%s", attrs ? "," : "", attrs ? attrs : "");
  for (const char *p = attrs ? attrs : ""; *p;) {
    size_t n = strcspn(p, ",");
    const char *word = arena_strndup(scratch(r->ctx), p, n);
    if (n < 2 || (word[0] != '+' && word[0] != '-'))
      raise(r->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': feature '%s' in -mattr needs a + or - in front", r->whole,
            word);
    p += n + (p[n] == ',');
    if (!names_feature(p, word + 1)) apply_feature(r, word[0], word + 1, &rest);
  }
  r->t->attrs = text_str(&rest);
}

static bool attrs_have(const Target *t, const char *feature)
{
  size_t n = strlen(feature);
  for (const char *p = t->attrs; (p = strstr(p, feature)); p += n)
    if ((p == t->attrs || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
  return false;
}

bool target_has_threads(const Target *t) { return t->arch != ARCH_WASM32 || attrs_have(t, "+atomics"); }

static bool arm_has_neon(const Target *t)
{
  return !attrs_have(t, "-neon") && (attrs_have(t, "+neon") || str_starts(t->cpu, "cortex-a"));
}

static void choose_vectors(Target *t)
{
  const uint64_t wide = F(AVX512F) | F(AVX512BW) | F(AVX512DQ) | F(AVX512VL);
  t->vector_bits = 32;
  t->vector_registers = 16;
  switch (t->arch) {
  case ARCH_X86_64:
    t->vector_bits = (t->features & wide) == wide ? 512 : target_has(t, CPU_AVX2) ? 256 : 128;
    t->vector_registers = t->vector_bits == 512 ? 32 : 16;
    t->fma = target_has(t, CPU_FMA);
    t->broadcast_load = true;
    break;
  case ARCH_AARCH64:
    t->vector_bits = target_has(t, CPU_NEON) ? 128 : 64;
    t->vector_registers = 32;
    t->fma = true;
    break;
  case ARCH_ARM:
    if (arm_has_neon(t)) t->vector_bits = 128;
    t->fma = attrs_have(t, "+vfp4") || (arm_has_neon(t) && strcmp(t->cpu, "cortex-a8") != 0 &&
                                        strcmp(t->cpu, "cortex-a9") != 0 && strcmp(t->cpu, "generic") != 0);
    break;
  case ARCH_RISCV64:
    t->vector_bits = attrs_have(t, "+v") || strcmp(t->cpu, "sifive-x280") == 0 ? 128 : 64;
    t->vector_registers = 32;
    t->fma = attrs_have(t, "+f") || attrs_have(t, "+d") || str_starts(t->cpu, "sifive");
    break;
  case ARCH_WASM32:
    if (attrs_have(t, "+simd128") || strcmp(t->cpu, "bleeding-edge") == 0) t->vector_bits = 128;
    t->broadcast_load = t->vector_bits == 32; /* a check of bounds at each load: one for four elements */
    break;
  case ARCH_NVPTX:
    t->vector_bits = 128;
    t->vector_registers = 255;
    t->fma = true;
    break;
  case ARCH_OTHER: t->broadcast_load = true; break;
  }
}

/* A device whose code is not made of a CPU's instructions; no schedule for a GPU asks how fast a core is. */
static void finish_device(Reader *r)
{
  Target *t = r->t;
  bool cuda = t->codegen == CODEGEN_CUDA;
  t->arch = cuda ? ARCH_NVPTX : ARCH_OTHER;
  t->triple = r->triple ? r->triple : default_triple(t->arch, "");
  if (cuda && !t->gpu_arch) t->gpu_arch = "sm_75";
  t->cpu = cuda ? t->gpu_arch : r->cpu ? r->cpu : "generic";
  t->attrs = r->attrs ? r->attrs : "";
  t->num_cores = 1;
  t->l1_bytes = 128 * 1024;
  t->l2_bytes = 4 * 1024 * 1024;
  t->core = *cpu_find(ARCH_OTHER, "generic")->core;
  choose_vectors(t);
}

static void finish_cpu(Reader *r)
{
  Target *t = r->t;
  choose_machine(r);
  apply_features(r);
  choose_vectors(t);
  if (t->arch == ARCH_WASM32 && !target_has_threads(t)) t->num_cores = 1;
  t->is_host = t->arch == target_host_arch() && !(t->features & ~target_host_features()) && !strchr(t->attrs, '+') &&
               (!r->triple || strstr(r->triple, "linux"));
  bool arm = t->arch == ARCH_ARM && (str_starts(t->cpu, "cortex-m") || str_starts(t->triple, "thumb"));
  if (target_is_cpu(t) && (arm || str_starts(t->triple, "riscv32"))) {
    t->device.kind = DEVICE_MICRO;
    t->num_cores = 1;
  }
}

/* ---- devices by name -------------------------------------------------------------------- */

/* Other names of a kind's device. */
static const struct {
  const char *name, *device;
} device_names[] = {{"gpu", "cuda"}, {"llvm", "cpu"}, {"c", "cpu"}, {"cl", "opencl"}, {"mtl", "metal"}};

bool target_device_parse(const char *text, int *type, int *id)
{
  size_t n = strcspn(text, "(:");
  const char *rest = text + n;
  char name[32];
  if (n == 0 || n >= sizeof name) return false;
  memcpy(name, text, n);
  name[n] = 0;
  for (int i = 0; i < COUNT(device_names); i++)
    if (!strcmp(name, device_names[i].name)) strcpy(name, device_names[i].device);
  *id = 0;
  if (*rest) {
    char *end;
    long number = strtol(rest + 1, &end, 10);
    if (end == rest + 1 || strcmp(end, *rest == '(' ? ")" : "") || number < 0 || number > 65535) return false;
    *id = (int)number;
  }
  for (int i = 0; i < COUNT(kinds); i++)
    if (!strcmp(name, kinds[i].device.name)) return *type = kinds[i].device.type, true;
  return false;
}

const char *target_device_text(Arena *arena, int type, int id)
{
  for (int i = 0; i < COUNT(kinds); i++)
    if (kinds[i].device.type == type) return arena_printf(arena, "%s(%d)", kinds[i].device.name, id);
  return arena_printf(arena, "device_%d(%d)", type, id);
}

/* ---- keys and options ------------------------------------------------------------------ */

const char *target_option(const Target *t, const char *name)
{
  for (int i = t->noptions - 1; i >= 0; i--)
    if (!strcmp(t->option[i].name, name)) return t->option[i].value;
  return NULL;
}

static bool has_word(const Text *list, const char *word, size_t n)
{
  for (size_t at = 0; at < list->n;) {
    size_t end = at;
    while (end < list->n && list->s[end] != ',') end++;
    if (end - at == n && !memcmp(list->s + at, word, n)) return true;
    at = end + 1;
  }
  return false;
}

/* Adds the words of a comma list that are not there yet. */
static void add_words(Text *list, const char *words)
{
  for (const char *p = words ? words : ""; *p;) {
    size_t n = strcspn(p, ",");
    if (n && !has_word(list, p, n)) {
      if (list->n) text_char(list, ',');
      text_addn(list, p, n);
    }
    p += n + (p[n] == ',');
  }
}

/* Those said, the device's name, then the kind's; a named ARM processor is found under arm_cpu too. */
static void choose_keys(Reader *r)
{
  Target *t = r->t;
  Text keys = text_new(ctx_arena(r->ctx));
  add_words(&keys, target_option(t, "keys"));
  add_words(&keys, target_option(t, "device"));
  const char *cpu = target_option(t, "mcpu");
  bool named = target_option(t, "mtriple") || (cpu && strcmp(cpu, "native") != 0);
  if (target_is_cpu(t) && (t->arch == ARCH_AARCH64 || t->arch == ARCH_ARM) && named && !keys.n)
    add_words(&keys, "arm_cpu");
  add_words(&keys, t->kind->keys);
  t->keys = text_str(&keys);
}

/* The name of a microcontroller, or of WebAssembly, stands for C that is made for it. */
static const char *spell_out(Arena *arena, const char *text)
{
  text += strspn(text, " \t\n");
  size_t n = strcspn(text, " \t\n");
  if (str_starts(text, "cortex-m")) return arena_printf(arena, "c -mcpu=%s", text);
  if (n == 7 && str_starts(text, "riscv32")) return arena_printf(arena, "c -mtriple=riscv32-unknown-elf%s", text + n);
  if (n == 4 && str_starts(text, "wasm"))
    return arena_printf(arena, "c -mtriple=wasm32-unknown-unknown -mattr=+simd128,+atomics%s", text + n);
  return arena_strdup(arena, text);
}

const Target *target_parse(Ctx *ctx, const char *text)
{
  Scope scope = scope_begin(ctx);
  Arena *keep = ctx_arena(ctx);
  Target *t = arena_new_of(keep, Target);
  Reader r = {.ctx = ctx, .whole = spell_out(keep, text), .t = t};
  const char *p = r.whole;
  const char *kind = next_word(keep, &p);
  if (!kind) raise(ctx, ERR_ARGUMENT, NOWHERE, "the target is empty; try \"llvm\"");
  t->kind = read_kind(ctx, r.whole, kind);
  t->codegen = t->kind->codegen;
  t->device = t->kind->device;
  t->max_threads_per_block = t->kind->max_threads;
  t->shared_bytes = t->kind->shared_bytes;
  t->warp_size = t->kind->warp_size;
  Text normal = text_new(keep);
  text_add(&normal, kind);
  read_words(&r, &normal);
  t->text = text_str(&normal);
  t->noptions = r.said.n;
  t->option = r.said.v;
  if (t->codegen == CODEGEN_LLVM || t->codegen == CODEGEN_C) finish_cpu(&r);
  else finish_device(&r);
  choose_keys(&r);
  if (r.num_cores) t->num_cores = r.num_cores;
  if (r.vector_bits) t->vector_bits = r.vector_bits;
  scope_end(ctx, scope);
  return t;
}

const Target *target_variant(Ctx *ctx, const Target *t, const char *cpu)
{
  if (t->codegen != CODEGEN_LLVM && t->codegen != CODEGEN_C)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "target '%s' has no variants by CPU '%s'", t->text, cpu);
  size_t n = strcspn(cpu, "+");
  Text text = text_new(scratch(ctx));
  Text attrs = text_new(scratch(ctx));
  text_add(&text, t->kind->name);
  for (int i = 0; i < t->noptions; i++) {
    const TargetOption *o = &t->option[i];
    if (!strcmp(o->name, "mattr")) text_printf(&attrs, "%s%s", attrs.n ? "," : "", o->value);
    else if (strcmp(o->name, "mcpu") != 0) text_printf(&text, o->value[0] ? " -%s=%s" : " -%s", o->name, o->value);
  }
  text_printf(&text, " -mcpu=%.*s", (int)n, cpu);
  for (const char *p = cpu + n; *p; p += n) {
    n = 1 + strcspn(p + 1, "+");
    text_printf(&attrs, "%s%.*s", attrs.n ? "," : "", (int)n, p);
  }
  if (attrs.n) text_printf(&text, " -mattr=%s", text_str(&attrs));
  return target_parse(ctx, text_str(&text));
}

const Target *target_with_host(Ctx *ctx, const Target *t, const Target *host)
{
  if (host && !target_is_cpu(host))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "target '%s': its host '%s' is not a CPU; a host is a target such as llvm or c",
          t->text, host->text);
  Target *copy = arena_copy(ctx_arena(ctx), t, sizeof *t);
  copy->host = host;
  return copy;
}

const Target *target_host(Ctx *ctx)
{
#if defined(LATHE_HAVE_LLVM)
  return target_parse(ctx, "llvm -mcpu=native");
#else
  return target_parse(ctx, "c -mcpu=native");
#endif
}
