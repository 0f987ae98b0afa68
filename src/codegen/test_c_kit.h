/* test_c_kit.h: C code in place of LLVM's, for tests that run on both backends.
 *
 * A test file defines C_COMPILER, includes this, and then the test file of the LLVM
 * backend.  Every warning of the compiler is a failure. */
#ifndef LATHE_TEST_C_KIT_H
#define LATHE_TEST_C_KIT_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codegen/codegen.h"

#ifndef C_LEVEL
#define C_LEVEL "-O2"
#endif

static const char *kit_feature_flags(Arena *arena, const Target *t)
{
  Text flags = text_new(arena);
  int n;
  const char *const *flag = code_feature_flags(arena, t, &n);
  for (int i = 0; i < n; i++) text_printf(&flags, "%s ", flag[i]);
  return text_str(&flags);
}

static void kit_close(void *library) { dlclose(library); }

/* Compiles with C_COMPILER and loads; unloaded with the scope. */
static const LatheRtModuleInfo *kit_load_c(Code *code)
{
  Ctx *ctx = code->ctx;
  size_t n;
  const char *folder = file_temp_dir(ctx);
  const char *text = code_get(code, CODE_C, scratch(ctx), &n);
  const char *said = "";
  file_write(ctx, arena_printf(scratch(ctx), "%s/k.c", folder), text, n);
  if (getenv("LATHE_KEEP_C")) file_write(ctx, getenv("LATHE_KEEP_C"), text, n);
  const char *command =
      arena_printf(scratch(ctx),
                   C_COMPILER " -std=gnu11 " C_LEVEL " -Wall -Wextra -Werror -fno-math-errno -fno-trapping-math "
                              "-ffp-contract=fast -shared -fPIC %s -o %s/k.so %s/k.c -lm",
                   kit_feature_flags(scratch(ctx), code->target), folder, folder);
  if (process_run(scratch(ctx), (const char *const[]){"sh", "-c", command, NULL}, &said) != 0)
    fail_msg("%s: %s", command, said);
  void *library = dlopen(arena_printf(scratch(ctx), "%s/k.so", folder), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  defer(ctx, kit_close, library);
  return dlsym(library, "lathe_module");
}

#define codegen_llvm codegen_c
#define codegen_llvm_jit kit_load_c

#endif
