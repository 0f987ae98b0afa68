/* build.c: functions lowered, compiled and made loadable.
 *
 * In: functions, schedulable or lowered, and a target.  Out: a Built: the code of
 * all of them, which turns into something that runs on the first demand.
 *
 *   function ─lower_kernel→ kernel ─codegen→ Code ─jit or cc→ LatheRtModule
 *
 * With LLVM the first two steps are done for several functions at a time (workers.c). */
#include "build/build.h"
#include "build/workers.h"

struct Built {
  Ctx *ctx;
  int refs;
  Module *m; /* the kernels live here as long as their code */
  const Target *target;
  Code *code;
  Code *device;          /* what the device runs, where that is no CPU and not written as CUDA; else NULL */
  LatheRtModule *module; /* NULL until asked for */
};

Built *built_retain(Built *b)
{
  b->refs++;
  return b;
}

void built_release(Built *b)
{
  if (--b->refs) return;
  if (b->module) lathe_rt_module_free(b->module);
  if (b->code) code_free(b->code);
  if (b->device) code_free(b->device);
  if (b->m) module_release(b->m);
  mem_free(b->ctx, b);
}

static void release_slot(void *arg)
{
  Built **slot = arg;
  if (*slot) built_release(*slot);
}

static void check_names(Ctx *ctx, int n, PrimFunc *const *f)
{
  if (n == 0) raise(ctx, ERR_ARGUMENT, NOWHERE, "build: there is no function to build");
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(f[i]->name, f[k]->name))
        raise(ctx, ERR_ARGUMENT, NOWHERE, "build: two functions are named '%s'; rename one of them", f[i]->name);
}

const Target *build_target(Ctx *ctx, Arena *arena, const Target *t)
{
  if (t->codegen != CODEGEN_LLVM || codegen_has_llvm()) return t;
  if (!t->is_host)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "target %s: this Lathe was built without LLVM, which code for another machine needs", t->text);
  Target *served = arena_copy(arena, t, sizeof *t);
  served->codegen = CODEGEN_C;
  return served;
}

static Code *generate(Ctx *ctx, const Target *t, int n, Kernel *const *kernel)
{
  switch (t->codegen) {
  case CODEGEN_LLVM: break; /* build_side_by_side does that */
  case CODEGEN_C: return codegen_c(ctx, t, n, kernel);
  case CODEGEN_CUDA: return codegen_cuda(ctx, t, n, kernel);
  case CODEGEN_NONE: break; /* build_check_target has refused it */
  }
  BUG(ctx, "target '%s' has no code generator", t->text);
}

Kernel *build_kernel(Module *m, const PrimFunc *f, const Target *t, const LowerConfig *config)
{
  PrimFunc *g = func_import(m, f);
  func_check(g);
  func_check_bounds(g);
  Kernel *k = lower_kernel(g, t, config);
  ctx_poll(m->ctx);
  return k;
}

static Code *build_in_order(Built *b, int n, PrimFunc *const *f, const BuildOptions *o)
{
  const Target *t = build_target(b->ctx, b->m->arena, b->target);
  Kernel **kernel = arena_array(scratch(b->ctx), Kernel *, n);
  for (int i = 0; i < n; i++) {
    kernel[i] = build_kernel(b->m, f[i], t, o->config);
    if (o->progress) o->progress(o->env, i + 1, n);
  }
  if (t->device.kind == DEVICE_ACCELERATOR) {
    b->device = generate(b->ctx, t, n, kernel);
    return codegen_c_launch(b->ctx, t, n, kernel);
  }
  return generate(b->ctx, t, n, kernel);
}

void build_check_target(Ctx *ctx, const Target *t)
{
  if (t->codegen == CODEGEN_NONE)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "target '%s': there is no code generator for %s; 'lathe targets' lists the kinds that have one", t->text,
          t->kind->name);
  if (t->codegen == CODEGEN_LLVM && codegen_has_llvm()) codegen_llvm_load(ctx, t);
}

Built *build_funcs_with(Ctx *ctx, int n, PrimFunc *const *f, const Target *t, const BuildOptions *o)
{
  check_names(ctx, n, f);
  build_check_target(ctx, t);
  Scope s = scope_begin(ctx);
  Built **slot = arena_new_of(scratch(ctx), Built *);
  defer(ctx, release_slot, slot);
  Built *b = *slot = mem_alloc(ctx, sizeof *b);
  *b = (Built){.ctx = ctx, .refs = 1, .target = t};
  b->m = module_new(ctx);
  bool by_llvm = t->codegen == CODEGEN_LLVM && codegen_has_llvm();
  b->code = by_llvm ? build_side_by_side(b->m, n, f, t, o) : build_in_order(b, n, f, o);
  built_retain(b);
  scope_end(ctx, s);
  return b;
}

Built *build_funcs(Ctx *ctx, int n, PrimFunc *const *f, const Target *t, const LowerConfig *config)
{
  return build_funcs_with(ctx, n, f, t, &(BuildOptions){.config = config});
}

Built *build_externals(Ctx *ctx, const Target *t, int n, const CodeExternal *f)
{
  Scope s = scope_begin(ctx);
  Built **slot = arena_new_of(scratch(ctx), Built *);
  defer(ctx, release_slot, slot);
  Built *b = *slot = mem_alloc(ctx, sizeof *b);
  *b = (Built){.ctx = ctx, .refs = 1, .target = t};
  b->code = codegen_c_external(ctx, t, n, f);
  built_retain(b);
  scope_end(ctx, s);
  return b;
}

Code *built_code(Built *b) { return b->code; }
Code *built_device_code(Built *b) { return target_is_gpu(b->target) ? b->code : b->device; }
const Target *built_target(Built *b) { return b->target; }

LatheRtModule *built_module(Built *b)
{
  if (b->module) return b->module;
  if (target_is_gpu(b->target))
    raise(b->ctx, ERR_UNSUPPORTED, NOWHERE,
          "code for target %s cannot run yet: there is no CUDA runtime; its source can be had with get_source",
          b->target->text);
  if (!b->target->is_host)
    raise(b->ctx, ERR_UNSUPPORTED, NOWHERE,
          "code for target %s does not run on this machine; write it to a file with export_library", b->target->text);
  const LatheRtModuleInfo *info =
      strcmp(b->code->backend->name, "llvm") ? code_load_c(b->code) : codegen_llvm_jit(b->code);
  LatheRtError err;
  LatheRtCode code = lathe_rt_module_wrap(info, NULL, NULL, &b->module, &err);
  if (code == LATHE_RT_MEMORY) raise(b->ctx, ERR_MEMORY, NOWHERE, "%s", err.text);
  if (code != LATHE_RT_OK) raise(b->ctx, ERR_UNSUPPORTED, NOWHERE, "%s", err.text);
  return b->module;
}
