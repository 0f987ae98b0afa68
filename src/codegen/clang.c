/* clang.c: machines that have no C library here: clang compiles for them, with a math.h of Lathe's own.
 *
 * Where there is an operating system its library is linked there, and the header only declares it.  WebAssembly has
 * none: what the machine has as an instruction (sqrt, floor, …) is compiled to it, functions of float32 are spelled out
 * before code is made (src/lower/math.c), and functions of float64 are imported from the page's Math, as module
 * "math". */
#include "codegen/codegen.h"

/* clang-format off */
static const char math_h[] =
    "#ifndef LATHE_MATH_H\n#define LATHE_MATH_H\n"
    "#define NAN __builtin_nanf(\"\")\n#define INFINITY __builtin_inff()\n"
    "#define isnan(x) __builtin_isnan(x)\n#define isinf(x) __builtin_isinf(x)\n"
    "#define isfinite(x) __builtin_isfinite(x)\n"
    "double fabs(double), sqrt(double), floor(double), ceil(double), trunc(double), nearbyint(double);\n"
    "float fabsf(float), sqrtf(float), floorf(float), ceilf(float), truncf(float), nearbyintf(float);\n"
    "double copysign(double, double);\nfloat copysignf(float, float);\n"
    "#ifdef __wasm__\n"
    /* under other names: the compiler makes calls of its own of those that it knows */
    "#define IMPORT(name) __attribute__((import_module(\"math\"), import_name(#name)))\n"
    "#define ONE(name) IMPORT(name) double page_math_##name(double); \\\n"
    "  static inline double name(double x) { return page_math_##name(x); } \\\n"
    "  static inline float name##f(float x) { return (float)page_math_##name(x); }\n"
    "#define TWO(name) IMPORT(name) double page_math_##name(double, double); \\\n"
    "  static inline double name(double x, double y) { return page_math_##name(x, y); } \\\n"
    "  static inline float name##f(float x, float y) { return (float)page_math_##name(x, y); }\n"
    "#else\n#define ONE(name) double name(double);  float name##f(float);\n"
    "#define TWO(name) double name(double, double);  float name##f(float, float);\n#endif\n"
    "ONE(exp) ONE(exp2) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos)\n"
    "ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf)\n"
    "TWO(atan2) TWO(pow) TWO(fmod) TWO(hypot) TWO(nextafter)\n"
    "#undef ONE\n#undef TWO\n#undef IMPORT\n#ifdef __wasm__\n"
    /* halves go away from zero */
    "static inline double round(double x)\n{\n"
    "  const double t = trunc(x);\n  return fabs(x - t) >= 0.5 ? t + copysign(1.0, x) : t;\n}\n"
    "static inline float roundf(float x) { return (float)round(x); }\n"
    /* in steps of which the last alone rounds: what is denormal before it is zero behind it */
    "static inline double ldexp(double x, int n)\n{\n"
    "  for (; n > 1023; n -= 1023) x *= 0x1p1023;\n  for (; n < -1022; n += 969) x *= 0x1p-969;\n"
    "  const union { unsigned long long bits; double value; } power = {(unsigned long long)(n + 1023) << 52};\n"
    "  return x * power.value;\n}\n"
    "static inline float ldexpf(float x, int n) { return (float)ldexp(x, n); }\n"
    "#else\ndouble round(double), ldexp(double, int), fma(double, double, double);\n"
    "float roundf(float), ldexpf(float, int), fmaf(float, float, float);\n#endif\n"
    "#endif\n";
/* clang-format on */

const char *code_clang_include(Ctx *ctx, const char *source)
{
  const char *slash = strrchr(source, '/');
  const char *folder = slash ? arena_strndup(scratch(ctx), source, (size_t)(slash - source)) : ".";
  file_write(ctx, arena_printf(scratch(ctx), "%s/math.h", folder), math_h, sizeof math_h - 1);
  return folder;
}

/* The newest that Debian has, or the one that is called so. */
const char *code_clang(Arena *a) { return process_exists(a, "clang-19") ? "clang-19" : "clang"; }
const char *code_llvm_archiver(Arena *a) { return process_exists(a, "llvm-ar-19") ? "llvm-ar-19" : "llvm-ar"; }
static const char *wasm_linker(Arena *a) { return process_exists(a, "wasm-ld-19") ? "wasm-ld-19" : "wasm-ld"; }

bool code_uses_clang(const Target *t)
{
  return t->arch == ARCH_WASM32 || strstr(t->triple, "apple") || strstr(t->triple, "android") ||
         str_starts(t->triple, "hexagon");
}

void code_check_clang(Ctx *ctx, const Target *t, const char *path, bool links)
{
  Scope scope = scope_begin(ctx);
  Arena *a = scratch(ctx);
  if (!process_exists(a, code_clang(a)))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "writing '%s' needs clang, which compiles for %s (Debian: apt install clang); -f c needs none", path,
          t->arch == ARCH_WASM32 ? "WebAssembly" : t->triple);
  if (str_ends(path, ".a") && !process_exists(a, code_llvm_archiver(a)))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "writing '%s' needs the archiver llvm-ar (Debian: apt install llvm); -f c and -f o need none", path);
  if (links && !process_exists(a, wasm_linker(a)))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "writing '%s' needs the linker wasm-ld (Debian: apt install lld); -f c and -f o need none", path);
  scope_end(ctx, scope);
}

void code_assemble_wasm(Ctx *ctx, const Target *t, const char *source, const char *folder, const char *object)
{
  Arena *a = scratch(ctx);
  const char *said = "";
  Vec(const char *) args = {0};
  int nflag;
  const char *const *flag = code_feature_flags(a, t, &nflag);
  const char *const always[] = {code_clang(a), "-c", source, arena_printf(a, "-Wa,-I,%s", folder), "-o", object};
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) vec_push(a, &args, always[i]);
  for (int i = 0; i < nflag; i++) vec_push(a, &args, flag[i]);
  vec_push(a, &args, NULL);
  int status = process_run(a, args.v, &said);
  if (status) raise(ctx, ERR_IO, NOWHERE, "%s failed with status %d on the weights: %.800s", args.v[0], status, said);
}

static uint32_t leb(const unsigned char **p, const unsigned char *end)
{
  uint32_t value = 0;
  for (int shift = 0; *p < end && shift < 32; shift += 7) {
    value |= (uint32_t)(**p & 127) << shift;
    if (!(*(*p)++ & 128)) break;
  }
  return value;
}

/* Pages of the first memory that a module imports: its imports are module, name, and a function's type or a memory's
 * limits. */
static int64_t imported_pages(Ctx *ctx, const char *path)
{
  size_t size;
  const unsigned char *p = (const unsigned char *)file_read(scratch(ctx), path, &size, SIZE_MAX);
  const unsigned char *end = p + size;
  enum { IMPORTS = 2, FUNCTION = 0, MEMORY = 2 };
  for (p += 8; p < end;) {
    int section = *p++;
    uint32_t bytes = leb(&p, end);
    const unsigned char *next = bytes <= (size_t)(end - p) ? p + bytes : end;
    uint32_t count = section == IMPORTS ? leb(&p, next) : 0;
    for (uint32_t i = 0; i < count && p < next; i++) {
      for (int k = 0; k < 2; k++) {
        uint32_t name = leb(&p, next);
        p = name <= (size_t)(next - p) ? p + name : next;
      }
      int kind = p < next ? *p++ : FUNCTION;
      uint32_t value = leb(&p, next); /* a function's type, or flags before the least number of pages */
      if (kind == MEMORY) return (int64_t)leb(&p, next);
      (void)value;
    }
    p = next;
  }
  BUG(ctx, "'%s' imports no memory", path);
}

int64_t code_link_wasm(Ctx *ctx, int n, const char *const *objects, int64_t stack_bytes, bool shared, const char *path)
{
  Arena *a = scratch(ctx);
  Vec(const char *) args = {0};
  const char *stack = arena_printf(a, "stack-size=%" PRId64, (stack_bytes + 65535) / 65536 * 65536);
  const char *const always[] = {
    wasm_linker(a), "--no-entry", "--gc-sections", "--strip-all", "--stack-first", "-z", stack, "-o", path};
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) vec_push(a, &args, always[i]);
  static const char *const sharing[] = {"--shared-memory", "--import-memory", "--max-memory=4294967296",
                                        "--export=__stack_pointer"};
  for (size_t i = 0; shared && i < sizeof sharing / sizeof *sharing; i++) vec_push(a, &args, sharing[i]);
  for (int i = 0; i < n; i++) vec_push(a, &args, objects[i]);
  vec_push(a, &args, NULL);
  const char *said = "";
  int status = process_run(a, args.v, &said);
  if (status) raise(ctx, ERR_IO, NOWHERE, "%s failed with status %d: %.1200s", args.v[0], status, said);
  return shared ? imported_pages(ctx, path) : 0;
}
