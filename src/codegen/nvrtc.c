/* nvrtc.c: CUDA source to PTX or cubin through NVRTC, loaded at run time.
 *
 * The library is looked for by its usual names.  Its own folder tells where the CUDA
 * headers are, for sources that include one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/codegen.h"

typedef void *Program;
typedef struct Nvrtc {
  Ctx *ctx;
  void *library;
  Program program;
  int (*create)(Program *, const char *source, const char *name, int nheaders, const char *const *headers,
                const char *const *names);
  int (*compile)(Program, int n, const char *const *options);
  int (*destroy)(Program *);
  int (*log_size)(Program, size_t *);
  int (*log)(Program, char *);
  int (*ptx_size)(Program, size_t *);
  int (*ptx)(Program, char *);
  int (*cubin_size)(Program, size_t *);
  int (*cubin)(Program, char *);
  const char *(*error)(int);
} Nvrtc;

static void drop(void *arg)
{
  Nvrtc *n = arg;
  if (n->program) n->destroy(&n->program);
  if (n->library) dlclose(n->library);
}

static void *symbol(Nvrtc *n, const char *name)
{
  void *p = dlsym(n->library, name);
  if (!p) raise(n->ctx, ERR_UNSUPPORTED, NOWHERE, "this NVRTC library has no '%s'; install CUDA 11.2 or newer", name);
  return p;
}

static void open_library(Nvrtc *n)
{
  static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                      "/usr/local/cuda/lib64/libnvrtc.so"};
  for (size_t i = 0; i < sizeof names / sizeof *names && !n->library; i++)
    n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it keeps memory of its own */
  if (!n->library)
    raise(n->ctx, ERR_UNSUPPORTED, NOWHERE,
          "NVRTC was not found (libnvrtc.so); install the CUDA toolkit, or take the CUDA source");
  *(void **)&n->create = symbol(n, "nvrtcCreateProgram");
  *(void **)&n->compile = symbol(n, "nvrtcCompileProgram");
  *(void **)&n->destroy = symbol(n, "nvrtcDestroyProgram");
  *(void **)&n->log_size = symbol(n, "nvrtcGetProgramLogSize");
  *(void **)&n->log = symbol(n, "nvrtcGetProgramLog");
  *(void **)&n->ptx_size = symbol(n, "nvrtcGetPTXSize");
  *(void **)&n->ptx = symbol(n, "nvrtcGetPTX");
  *(void **)&n->cubin_size = symbol(n, "nvrtcGetCUBINSize");
  *(void **)&n->cubin = symbol(n, "nvrtcGetCUBIN");
  *(void **)&n->error = symbol(n, "nvrtcGetErrorString");
}

/* The folder of the CUDA headers, or NULL. */
static const char *include_folder(Nvrtc *n)
{
  const char *tries[4] = {NULL};
  int count = 0;
  Dl_info info;
  Arena *tmp = scratch(n->ctx);
  const char *home = getenv("CUDA_HOME");
  if (home && *home) tries[count++] = arena_printf(tmp, "%s/include", home);
  if (dladdr(*(void **)&n->create, &info) && info.dli_fname) {
    char *real = realpath(info.dli_fname, NULL);
    if (real) {
      char *slash = strrchr(real, '/');
      if (slash) tries[count++] = arena_printf(tmp, "%.*s/../include", (int)(slash - real), real);
      if (slash) tries[count++] = arena_printf(tmp, "%.*s/../../../include", (int)(slash - real), real);
      free(real);
    }
  }
  tries[count++] = "/usr/local/cuda/include";
  for (int i = 0; i < count; i++)
    if (access(arena_printf(tmp, "%s/cuda_fp16.h", tries[i]), R_OK) == 0) return tries[i];
  return NULL;
}

static void compile(Nvrtc *n, const char *source, const Target *target, bool cubin)
{
  Arena *tmp = scratch(n->ctx);
  const char *arch = target->gpu_arch && *target->gpu_arch ? target->gpu_arch : "sm_70";
  if (!str_starts(arch, "sm_"))
    raise(n->ctx, ERR_ARGUMENT, NOWHERE, "target '%s': -arch is '%s', wants sm_NN", target->text, arch);
  const char *folder = strstr(source, "#include") ? include_folder(n) : NULL;
  const char *option[4];
  int count = 0;
  option[count++] = arena_printf(tmp, "--gpu-architecture=%s%s", cubin ? "sm_" : "compute_", arch + 3);
  option[count++] = "--std=c++14";
  if (folder) option[count++] = arena_printf(tmp, "--include-path=%s", folder);
  int status = n->create(&n->program, source, "lathe.cu", 0, NULL, NULL);
  if (status) raise(n->ctx, ERR_IO, NOWHERE, "NVRTC: %s", n->error(status));
  status = n->compile(n->program, count, option);
  if (status == 0) return;
  size_t size = 0;
  char *log = NULL;
  if (n->log_size(n->program, &size) == 0 && size > 0) {
    log = arena_alloc(tmp, size + 1);
    n->log(n->program, log);
  }
  raise(n->ctx, ERR_IO, NOWHERE, "NVRTC refused the CUDA source for %s (%s): %.1500s", arch, n->error(status),
        log ? log : "");
}

/* The library stays open until the caller's scope ends. */
const void *codegen_nvrtc(Arena *arena, const char *source, const Target *target, bool cubin, size_t *size)
{
  Ctx *ctx = arena_ctx(arena);
  Nvrtc *n = arena_new_of(scratch(ctx), Nvrtc);
  n->ctx = ctx;
  defer(ctx, drop, n);
  open_library(n);
  compile(n, source, target, cubin);
  size_t bytes = 0;
  int status = cubin ? n->cubin_size(n->program, &bytes) : n->ptx_size(n->program, &bytes);
  if (status == 0 && bytes == 0) raise(ctx, ERR_IO, NOWHERE, "NVRTC gave no code for '%s'", target->gpu_arch);
  char *out = arena_alloc(arena, bytes + 1);
  if (status == 0) status = cubin ? n->cubin(n->program, out) : n->ptx(n->program, out);
  if (status) raise(ctx, ERR_IO, NOWHERE, "NVRTC: %s", n->error(status));
  *size = cubin ? bytes : strlen(out); /* PTX counts its terminating zero */
  return out;
}
