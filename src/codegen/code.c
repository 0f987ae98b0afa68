/* code.c: what all backends share: Code objects, files made from them, and C code
 * compiled and loaded on the spot.
 *
 * Files: .ll .s .c .cu are the text as the backend gives it; .o is its object, or
 * its C source through cc; .so is linked from that with ld (2 ms) where there is
 * one and with cc (8 ms) where not. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/codegen.h"

static const struct {
  const char *suffix, *name;
  CodeFormat format;
} formats[] = {
  {".ll", "ll", CODE_LL},     {".s", "asm", CODE_ASM},   {".c", "c", CODE_C},
  {".cu", "cuda", CODE_CUDA}, {".ptx", "ptx", CODE_PTX}, {".o", "obj", CODE_OBJECT},
};

static const char *format_name(CodeFormat f)
{
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].format == f) return formats[i].name;
  return "?";
}

/* ---- life ------------------------------------------------------------------------ */

/* Frees the arena of a Code whose making was cut short. */
static void drop_arena(void *held)
{
  Arena **arena = held;
  arena_free(*arena);
}

Code *code_new(Ctx *ctx, const Target *target, const CodeBackend *backend)
{
  Scope scope = scope_begin(ctx);
  Arena **held = arena_new_of(scratch(ctx), Arena *);
  *held = arena_new(ctx);
  defer(ctx, drop_arena, held);
  Code *code = arena_new_of(*held, Code);
  *code = (Code){.ctx = ctx, .arena = *held, .target = target, .backend = backend};
  *held = NULL;
  scope_end(ctx, scope);
  return code;
}

void code_free(Code *code)
{
  if (!code) return;
  if (code->backend->free) code->backend->free(code);
  if (code->library) dlclose(code->library);
  arena_free(code->arena);
}

const void *code_get(Code *code, CodeFormat format, Arena *arena, size_t *n)
{
  size_t unused;
  const void *out = code->backend->get(code, format, arena, n ? n : &unused);
  if (!out)
    raise(code->ctx, ERR_UNSUPPORTED, NOWHERE, "code of the %s backend cannot be shown as '%s'; it has %s",
          code->backend->name, format_name(format), code->backend->formats);
  return out;
}

/* ---- compiling C ------------------------------------------------------------------ */

typedef Vec(const char *) Args;

/* Microcontrollers, by LLVM's name: with what they compute floats, and where arguments go.  gcc 12 does not know
 * cortex-m85 by name. */
/* clang-format off */
static const struct { const char *cpu, *flags[6]; } micros[] = {
    {"cortex-m0", {"-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft"}},
    {"cortex-m0plus", {"-mcpu=cortex-m0plus", "-mthumb", "-mfloat-abi=soft"}},
    {"cortex-m3", {"-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"}},
    {"cortex-m4", {"-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"}},
    {"cortex-m7", {"-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"}},
    {"cortex-m33", {"-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"}},
    {"cortex-m55", {"-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-mfpu=auto"}},
    {"cortex-m85", {"-march=armv8.1-m.main+mve.fp+fp.dp", "-mthumb", "-mfloat-abi=hard", "-mfpu=auto"}},
    {"riscv32", {"-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs"}},
};
/* clang-format on */

static const char *const *micro_flags(const Target *t)
{
  static const char *const none[] = {NULL};
  bool riscv = str_starts(t->triple, "riscv32");
  for (size_t i = 0; i < sizeof micros / sizeof *micros; i++)
    if (!strcmp(micros[i].cpu, riscv ? "riscv32" : t->cpu)) return micros[i].flags;
  return none;
}

const char *const *code_feature_flags(Arena *arena, const Target *t, int *n)
{
  Args flags = {0};
  Args *args = &flags;
  if (t->arch == ARCH_X86_64) {
    for (int f = 0; f < CPU_NFEATURES; f++)
      if (target_has(t, (CpuFeature)f))
        vec_push(arena, args, arena_printf(arena, "-m%s", cpu_feature_name((CpuFeature)f)));
    if (t->vector_bits == 512) vec_push(arena, args, "-mprefer-vector-width=512");
  }
  if (t->arch == ARCH_AARCH64) { /* SVE is left out: the vectors of the generated code have a fixed size */
    static const struct {
      CpuFeature f;
      const char *name;
    } names[] = {
      {CPU_LSE, "+lse"}, {CPU_FP16, "+fp16"}, {CPU_DOTPROD, "+dotprod"}, {CPU_I8MM, "+i8mm"}, {CPU_BF16, "+bf16"},
    };
    Text march = text_new(arena);
    text_add(&march, "-march=armv8-a");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (target_has(t, names[i].f)) text_add(&march, names[i].name);
    vec_push(arena, args, text_str(&march));
  }
  if (t->device.kind == DEVICE_MICRO)
    for (const char *const *f = micro_flags(t); *f; f++) vec_push(arena, args, *f);
  if (code_uses_clang(t)) vec_push(arena, args, arena_printf(arena, "--target=%s", t->triple));
  if (t->arch == ARCH_WASM32) { /* every engine that has vectors has the others too */
    bool threads = target_has_threads(t);
    if (t->vector_bits >= 128 || threads) vec_push(arena, args, "-mbulk-memory");
    if (t->vector_bits >= 128) vec_push(arena, args, "-mnontrapping-fptoint");
    if (threads) vec_push(arena, args, "-mmutable-globals");
    for (const char *p = t->attrs; *p;) {
      size_t len = strcspn(p, ",");
      vec_push(arena, args, arena_printf(arena, "-m%s%.*s", *p == '-' ? "no-" : "", (int)len - 1, p + 1));
      p += len + (p[len] == ',');
    }
  }
  *n = flags.n;
  return flags.v;
}

/* What the tools for microcontrollers begin with. */
static const char *micro_tools(const Target *t)
{
  return str_starts(t->triple, "riscv32") ? "riscv64-unknown-elf" : "arm-none-eabi";
}

/* What the cross tools for the target begin with: its triple where there is a compiler of that name, else as Debian
 * calls them, with the plain name of the architecture and without a vendor that says nothing. */
static const char *cross_tools(Arena *arena, const Target *t)
{
  if (t->device.kind == DEVICE_MICRO) return micro_tools(t);
  if (process_exists(arena, arena_printf(arena, "%s-gcc", t->triple))) return t->triple;
  static const char *const vendors[] = {"-unknown-", "-pc-", "-none-"};
  const char *system = strchr(t->triple, '-');
  if (!system) return t->triple;
  const char *arch =
      t->arch == ARCH_OTHER ? arena_strndup(arena, t->triple, (size_t)(system - t->triple)) : target_arch_name(t->arch);
  for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
    if (str_starts(system, vendors[i])) {
      system += strlen(vendors[i]) - 1;
      break;
    }
  return arena_printf(arena, "%s%s", arch, system);
}

/* The compiler for the target: cc here (and for the host side of a GPU's code), the
 * cross compiler by its triple elsewhere. */
static const char *c_compiler(Arena *arena, const Target *t)
{
  if (t->device.kind == DEVICE_MICRO) return arena_printf(arena, "%s-gcc", cross_tools(arena, t));
  if (code_uses_clang(t)) return code_clang(arena);
  if (t->arch == target_host_arch() || target_is_gpu(t)) return getenv("CC") && getenv("CC")[0] ? getenv("CC") : "cc";
  return arena_printf(arena, "%s-gcc", cross_tools(arena, t));
}

static void compile_c_with(Ctx *ctx, const Target *target, const char *source, int nmore, const char *const *more,
                           const char *out, bool shared)
{
  Arena *a = scratch(ctx);
  Args args = {0};
  vec_push(a, &args, c_compiler(a, target));
  static const char *const always[] = {
    "-std=gnu17",          "-O2", "-w", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-ffp-contract=fast",
    "-fno-schedule-insns", /* gcc's first scheduling pass spills accumulators; clang ignores it */
  };
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) vec_push(a, &args, always[i]);
  if (code_uses_clang(target)) {
    vec_push(a, &args, "-nostdlibinc");
    vec_push(a, &args, arena_printf(a, "-I%s", code_clang_include(ctx, source)));
  }
  if (target->arch != ARCH_WASM32 && target->device.kind != DEVICE_MICRO) vec_push(a, &args, "-fPIC");
  int nflag;
  const char *const *flag = code_feature_flags(a, target, &nflag);
  for (int i = 0; i < nflag; i++) vec_push(a, &args, flag[i]);
  vec_push(a, &args, shared ? "-shared" : "-c");
  vec_push(a, &args, "-o");
  vec_push(a, &args, out);
  vec_push(a, &args, source);
  for (int i = 0; i < nmore; i++) vec_push(a, &args, more[i]);
  if (shared) vec_push(a, &args, "-lm");
  vec_push(a, &args, NULL);
  const char *said = "";
  int status = process_run(a, args.v, &said);
  if (status != 0)
    raise(ctx, ERR_IO, NOWHERE, "%s failed with status %d on the generated C: %.1200s", args.v[0], status, said);
}

static void compile_c(Ctx *ctx, const Target *target, const char *source, const char *out, bool shared)
{
  compile_c_with(ctx, target, source, 0, NULL, out, shared);
}

/* The objects of external compilers, their C source compiled; names after `folder`. */
static const char **extern_objects(Code *code, const char *folder)
{
  Ctx *ctx = code->ctx;
  Arena *a = scratch(ctx);
  const char **path = arena_array(a, const char *, code->nextern + 1);
  for (int i = 0; i < code->nextern; i++) {
    const CodeExternal *e = &code->externals[i];
    path[i] = arena_printf(a, "%s/extern%d.o", folder, i);
    const char *written = e->source ? arena_printf(a, "%s/extern%d.c", folder, i) : path[i];
    file_write(ctx, written, e->bytes, e->n);
    if (e->source) compile_c(ctx, code->target, written, path[i], false);
  }
  return path;
}

void code_compile_c(Ctx *ctx, const Target *target, const char *source, const char *object)
{
  compile_c(ctx, target, source, object, false);
}

void code_archive(Ctx *ctx, const Target *t, const char *object, const char *archive)
{
  Arena *a = scratch(ctx);
  const char *ar = t->device.kind == DEVICE_MICRO  ? arena_printf(a, "%s-ar", micro_tools(t))
                   : code_uses_clang(t)            ? code_llvm_archiver(a)
                   : t->arch == target_host_arch() ? "ar"
                                                   : arena_printf(a, "%s-ar", cross_tools(a, t));
  const char *said = "";
  unlink(archive); /* ar would add to what is there */
  int status = process_run(a, (const char *const[]){ar, "rcsD", archive, object, NULL}, &said);
  if (status != 0) raise(ctx, ERR_IO, NOWHERE, "%s failed with status %d: %.800s", ar, status, said);
}

const char *const *code_c_compiler(Arena *arena, const Target *t)
{
  Args args = {0};
  int n;
  const char *const *flag = code_feature_flags(arena, t, &n);
  vec_push(arena, &args, c_compiler(arena, t));
  for (int i = 0; i < n; i++) vec_push(arena, &args, flag[i]);
  vec_push(arena, &args, NULL);
  return args.v;
}

static const char *write_source(Code *code)
{
  Ctx *ctx = code->ctx;
  size_t n;
  const void *text = code_get(code, CODE_C, scratch(ctx), &n);
  const char *path = arena_printf(scratch(ctx), "%s/kernels.c", file_temp_dir(ctx));
  file_write(ctx, path, text, n);
  return path;
}

const LatheRtModuleInfo *code_load_c(Code *code)
{
  Ctx *ctx = code->ctx;
  if (!code->target->is_host)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "code for target '%s' does not run on this machine; export it and run it there", code->target->text);
  if (!code->library) {
    Scope scope = scope_begin(ctx);
    const char *source = write_source(code);
    const char *library = arena_printf(scratch(ctx), "%s/kernels.so", file_temp_dir(ctx));
    compile_c_with(ctx, code->target, source, code->nextern, extern_objects(code, file_temp_dir(ctx)), library, true);
    code->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!code->library) raise(ctx, ERR_IO, NOWHERE, "the compiled C cannot be loaded: %s", dlerror());
    scope_end(ctx, scope);
  }
  const LatheRtModuleInfo *info = dlsym(code->library, "lathe_module");
  if (!info) BUG(ctx, "the compiled C has no symbol 'lathe_module'");
  return info;
}

/* ---- files ------------------------------------------------------------------------- */

/* Runs the command; false with what it said when it fails or does not exist. */
typedef struct Run {
  const char *const *argv;
  int status;
  const char *said;
} Run;
static void run_body(Ctx *ctx, void *arg)
{
  Run *run = arg;
  run->status = process_run(scratch(ctx), run->argv, &run->said);
}

static bool try_link(Ctx *ctx, const char *const *argv, const char **said)
{
  Run run = {argv, -1, ""};
  ErrKind kind = protect(ctx, run_body, &run);
  if (error_passes_on(kind)) error_reraise(ctx);
  bool started = kind == ERR_NONE;
  *said = started ? run.said : arena_strdup(scratch(ctx), error_message(ctx));
  error_clear(ctx);
  return started && run.status == 0;
}

static const char *linker(Arena *arena, const Target *t)
{
  return t->arch == target_host_arch() ? "ld" : arena_printf(arena, "%s-ld", cross_tools(arena, t));
}

/* What Debian calls the package of a tool for the target. */
static const char *package(Arena *arena, const Target *t, const char *stem)
{
  if (t->device.kind != DEVICE_MICRO && t->arch == target_host_arch()) return stem;
  const char *tools = t->arch == ARCH_X86_64 ? "x86-64-linux-gnu" : cross_tools(arena, t);
  return arena_printf(arena, "%s-%s", stem, tools);
}

void code_check_tools(Ctx *ctx, const Target *t, const char *path, const char *without)
{
  Scope scope = scope_begin(ctx);
  Arena *a = scratch(ctx);
  if (code_uses_clang(t) && t->codegen == CODEGEN_C) {
    code_check_clang(ctx, t, path, false);
    scope_end(ctx, scope);
    return;
  }
  const char *cc = c_compiler(a, t);
  const char *ld = linker(a, t);
  bool compiles = process_exists(a, cc);
  bool links = compiles || process_exists(a, ld) || (t->arch != target_host_arch() && process_exists(a, "ld.lld"));
  if (t->codegen == CODEGEN_C && !compiles)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "writing '%s' needs a C compiler, and there is no '%s' (Debian: apt install %s); %s", path, cc,
          package(a, t, "gcc"), without);
  if (!links)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "writing '%s' needs a linker, and there is neither '%s' nor '%s' (Debian: apt install %s); %s", path, ld, cc,
          package(a, t, "binutils"), without);
  scope_end(ctx, scope);
}

void code_link(Code *code, int n, const char *const *objects, const char *path)
{
  Ctx *ctx = code->ctx;
  Arena *a = scratch(ctx);
  const Target *t = code->target;
  bool here = t->arch == target_host_arch();
  bool merge = str_ends(path, ".o");
  const char *ld = linker(a, t);
  const char *cc = c_compiler(a, t);
  const char *tools[] = {ld, cc, "ld.lld"};
  const char *said[3];
  for (int k = 0; k < (here ? 2 : 3); k++) {
    Args args = {0};
    vec_push(a, &args, tools[k]);
    vec_push(a, &args, merge ? "-r" : "-shared");
    vec_push(a, &args, "-o");
    vec_push(a, &args, path);
    for (int i = 0; i < n; i++) vec_push(a, &args, objects[i]);
    if (k == 0) vec_push(a, &args, "--as-needed");
    if (k < 2 && !merge) vec_push(a, &args, "-lm");
    if (k == 1 && merge) vec_push(a, &args, "-nostdlib");
    vec_push(a, &args, NULL);
    if (try_link(ctx, args.v, &said[k])) return;
  }
  raise(ctx, ERR_IO, NOWHERE, "cannot link '%s' with %s or %s: %.800s", path, ld, cc, said[0]);
}

/* The code as an object file, at path. */
static void write_object(Code *code, const char *path)
{
  Ctx *ctx = code->ctx;
  size_t n = 0;
  const void *bytes = code->backend->get(code, CODE_OBJECT, scratch(ctx), &n);
  if (bytes) file_write(ctx, path, bytes, n);
  else compile_c(ctx, code->target, write_source(code), path, false);
}

/* ---- what the runtime is told of a kernel ---------------------------------------------------- */

static bool find_parallel(void *env, Stmt *s)
{
  if (s->kind == S_FOR && s->u.loop.kind == FOR_PARALLEL) *(bool *)env = true;
  return true;
}

static void find_packed(const Expr *e, bool *found)
{
  if (e->kind == E_CALL && e->u.intrin == IN_CALL_PACKED) *found = true;
}

static void find_packed_in(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  find_packed(e, env);
}

static int64_t known_bytes(const Expr *e) { return !e ? 0 : e->kind == E_INT ? e->u.i : -1; }

KernelFacts code_facts(const Kernel *k)
{
  bool calls = false;
  stmt_visit(k->body, find_parallel, &calls);
  stmt_visit_exprs(k->body, find_packed_in, &calls);
  return (KernelFacts){.workspace = known_bytes(k->workspace_bytes),
                       .slice = known_bytes(k->slice_bytes),
                       .flags = calls ? 0 : LATHE_RT_FUNC_PLAIN};
}

int code_write_objects(Code *code, const char *folder, const char ***paths)
{
  Ctx *ctx = code->ctx;
  Arena *a = scratch(ctx);
  CodeObject *object = NULL;
  int n = code->backend->objects ? code->backend->objects(code, a, &object) : 1;
  *paths = arena_array(a, const char *, n + code->nextern);
  for (int i = 0; i < n; i++) {
    (*paths)[i] = arena_printf(a, "%s/kernels%d.o", folder, i);
    if (object) file_write(ctx, (*paths)[i], object[i].bytes, object[i].n);
    else write_object(code, (*paths)[i]);
  }
  const char **external = extern_objects(code, folder);
  for (int i = 0; i < code->nextern; i++) (*paths)[n + i] = external[i];
  return n + code->nextern;
}

static void write_library(Code *code, const char *path)
{
  Ctx *ctx = code->ctx;
  const char *folder = file_temp_dir(ctx);
  const char *made = arena_printf(scratch(ctx), "%s/kernels.so", folder);
  if (code->backend->objects) {
    const char **objects;
    int n = code_write_objects(code, folder, &objects);
    code_link(code, n, objects, made);
  } else {
    compile_c(ctx, code->target, write_source(code), made, true);
  }
  size_t n;
  const void *bytes = file_read(scratch(ctx), made, &n, 0);
  file_write(ctx, path, bytes, n);
}

static CodeFormat format_of(Ctx *ctx, const char *path)
{
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (str_ends(path, formats[i].suffix)) return formats[i].format;
  raise(ctx, ERR_ARGUMENT, NOWHERE,
        "cannot tell from '%s' what to write; the name ends in .so .o .s .ll .c .cu or .ptx", path);
}

void code_check_export(Ctx *ctx, const Target *t, const char *path)
{
  file_check_output(ctx, path);
  bool shared = str_ends(path, ".so");
  CodeFormat format = shared ? CODE_OBJECT : format_of(ctx, path);
  bool source = t->codegen != CODEGEN_LLVM; /* C, and the host's side of CUDA */
  if (shared || (source && format == CODE_OBJECT))
    code_check_tools(ctx, t, path, source ? ".c needs none" : ".o, .s and .ll need none");
}

void code_export(Code *code, const char *path)
{
  Ctx *ctx = code->ctx;
  Scope scope = scope_begin(ctx);
  code_check_export(ctx, code->target, path);
  if (str_ends(path, ".so")) write_library(code, path);
  else if (str_ends(path, ".o")) write_object(code, path);
  else {
    size_t n;
    const void *text = code_get(code, format_of(ctx, path), scratch(ctx), &n);
    file_write(ctx, path, text, n);
  }
  scope_end(ctx, scope);
}

/* ---- a build without LLVM ------------------------------------------------------------- */

#if !defined(LATHE_HAVE_LLVM)
bool codegen_has_llvm(void) { return false; }
const char *codegen_llvm_version(void) { return ""; }

void codegen_llvm_load(Ctx *ctx, const Target *t)
{
  raise(ctx, ERR_UNSUPPORTED, NOWHERE, "target '%s': this build has no LLVM; use target 'c'", t->text);
}

Code *codegen_llvm(Ctx *ctx, const Target *t, int n, Kernel *const *kernels)
{
  (void)n, (void)kernels;
  codegen_llvm_load(ctx, t);
  return NULL;
}

CodePart *codegen_llvm_part(Ctx *ctx, const Target *t, Kernel *kernel, bool alone)
{
  (void)kernel, (void)alone;
  codegen_llvm_load(ctx, t);
  return NULL;
}

Code *codegen_llvm_join(Ctx *ctx, const Target *t, int n, Kernel *const *kernels, CodePart **parts)
{
  (void)parts;
  return codegen_llvm(ctx, t, n, kernels);
}

void code_part_free(CodePart *part) { (void)part; }

const LatheRtModuleInfo *codegen_llvm_jit(Code *code)
{
  codegen_llvm_load(code->ctx, code->target);
  return NULL;
}
#endif
