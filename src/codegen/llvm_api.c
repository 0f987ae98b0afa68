/* llvm_api.c: finding libLLVM, and what it offers.
 *
 * Where it is looked for, first found first taken:
 *   1. $LATHE_LLVM_LIBRARY, the file itself; when it is set, nowhere else;
 *   2. by its names, version by version (19, then newer ones upwards, then older ones
 *      downwards), where the dynamic linker looks (a Lathe that was built here also looks
 *      where llvm-config had it), then in /usr/lib/llvm-N/lib and /usr/lib64/llvmN/lib64. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "codegen/llvm_api.h"

#define LLVM_PREFERRED 19 /* the version that is tested most */

LlvmApi llvm_api;

static void *library; /* never closed: it keeps memory of its own */

/* ---- finding it ---------------------------------------------------------------------- */

/* LLVM of this version, or NULL.  RTLD_LOCAL: another LLVM in the process keeps its names. */
static void *open_version(int major)
{
  static const char *const folders[] = {"", "/usr/lib/llvm-%d/lib/", "/usr/lib64/llvm%d/lib64/"};
  static const char *const names[] = {"libLLVM.so.%d.1", "libLLVM-%d.so.1", "libLLVM-%d.so"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
      char folder[48];
      char name[32];
      char path[80];
      snprintf(folder, sizeof folder, folders[i], major);
      snprintf(name, sizeof name, names[k], major);
      snprintf(path, sizeof path, "%s%s", folder, name);
      void *found = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
      if (found) return found;
    }
  return NULL;
}

static void *open_any(void)
{
  void *found = NULL;
  for (int v = LLVM_PREFERRED; v <= LLVM_NEWEST && !found; v++) found = open_version(v);
  for (int v = LLVM_PREFERRED - 1; v >= LLVM_OLDEST && !found; v--) found = open_version(v);
  return found;
}

/* ---- what it offers ------------------------------------------------------------------- */

/* Versions before 16 do not tell which they are: 15 brought the pointer type without a
 * pointee, 14 a way to hang metadata on an instruction. */
static void find_version(void *lib, LlvmApi *api)
{
  unsigned v[3] = {0};
  void (*get)(unsigned *, unsigned *, unsigned *);
  *(void **)&get = dlsym(lib, "LLVMGetVersion");
  *(void **)&api->plain_pointer = dlsym(lib, "LLVMPointerTypeInContext");
  if (get) {
    get(&v[0], &v[1], &v[2]);
    api->major = (int)v[0];
    snprintf(api->version, sizeof api->version, "%u.%u.%u", v[0], v[1], v[2]);
    return;
  }
  api->major = api->plain_pointer ? 15 : dlsym(lib, "LLVMAddMetadataToInst") ? 14 : 0;
  snprintf(api->version, sizeof api->version, "%d", api->major);
}

/* NULL, or the name of a function that is not there. */
static const char *find_functions(void *lib, LlvmApi *api)
{
#define LLVM_FUNCTION(name)                        \
  *(void **)&api->name = dlsym(lib, "LLVM" #name); \
  if (!api->name) return "LLVM" #name;
#include "codegen/llvm_api.def"
#undef LLVM_FUNCTION
  return NULL;
}

/* Opens a library and checks that it can serve; "" or why it cannot. */
static void open_library(char *why, size_t n)
{
  const char *given = getenv("LATHE_LLVM_LIBRARY");
  if (given && !*given) given = NULL;
  void *lib = given ? dlopen(given, RTLD_LAZY | RTLD_LOCAL) : open_any();
  if (!lib && given) snprintf(why, n, "LATHE_LLVM_LIBRARY does not load: %s", dlerror());
  else if (!lib) snprintf(why, n, "no libLLVM of version %d to %d was found", LLVM_OLDEST, LLVM_NEWEST);
  if (!lib) return;
  LlvmApi api = {0};
  find_version(lib, &api);
  const char *missing = find_functions(lib, &api);
  const char *name = given ? given : "the libLLVM that was found";
  if (api.major < LLVM_OLDEST || api.major > LLVM_NEWEST)
    snprintf(why, n, "%s is not LLVM of version %d to %d", name, LLVM_OLDEST, LLVM_NEWEST);
  else if (missing) snprintf(why, n, "%s has no %s", name, missing);
  if (*why) {
    dlclose(lib);
    return;
  }
  llvm_api = api;
  library = lib;
}

/* True once there is a library; else why says what is wrong, and the next call tries again. */
static bool load(char *why, size_t n)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  *why = 0;
  pthread_mutex_lock(&lock);
  if (!library) open_library(why, n);
  bool loaded = library;
  pthread_mutex_unlock(&lock);
  return loaded;
}

bool codegen_has_llvm(void) { return true; }

const char *codegen_llvm_version(void)
{
  char why[1024];
  return load(why, sizeof why) ? llvm_api.version : "";
}

void codegen_llvm_load(Ctx *ctx, const Target *t)
{
  char why[1024];
  if (load(why, sizeof why)) return;
  raise(ctx, ERR_UNSUPPORTED, NOWHERE,
        "target '%s' needs LLVM, and %s; install it (Debian, Ubuntu: libllvm%d; Fedora: llvm-libs), set "
        "LATHE_LLVM_LIBRARY to the file, or use target 'c', which needs a C compiler instead",
        t->text, why, LLVM_PREFERRED);
}

/* ---- its targets ------------------------------------------------------------------------ */

/* What LLVM calls them.  A library need not have been built with all; ARCH_OTHER is any of them. */
static const struct {
  Arch arch;
  const char *name;
  /* clang-format off */
} targets[] = {
    {ARCH_X86_64, "X86"}, {ARCH_AARCH64, "AArch64"}, {ARCH_ARM, "ARM"}, {ARCH_RISCV64, "RISCV"},
    {ARCH_WASM32, "WebAssembly"}, {ARCH_NVPTX, "NVPTX"},
    {ARCH_OTHER, "AMDGPU"}, {ARCH_OTHER, "AVR"}, {ARCH_OTHER, "BPF"}, {ARCH_OTHER, "Hexagon"},
    {ARCH_OTHER, "Lanai"}, {ARCH_OTHER, "LoongArch"}, {ARCH_OTHER, "Mips"}, {ARCH_OTHER, "MSP430"},
    {ARCH_OTHER, "PowerPC"}, {ARCH_OTHER, "Sparc"}, {ARCH_OTHER, "SystemZ"}, {ARCH_OTHER, "VE"},
    {ARCH_OTHER, "XCore"},
};
/* clang-format on */

static void init_part(const char *target, const char *part)
{
  char name[64];
  void (*init)(void);
  snprintf(name, sizeof name, "LLVMInitialize%s%s", target, part);
  *(void **)&init = dlsym(library, name);
  if (init) init();
}

void llvm_init_target(Arch arch)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool done[ARCH_OTHER + 1];
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < sizeof targets / sizeof *targets && !done[arch]; i++) {
    if (targets[i].arch != arch && arch != ARCH_OTHER) continue;
    init_part(targets[i].name, "TargetInfo");
    init_part(targets[i].name, "Target");
    init_part(targets[i].name, "TargetMC");
    init_part(targets[i].name, "AsmPrinter");
  }
  done[arch] = true;
  pthread_mutex_unlock(&lock);
}
