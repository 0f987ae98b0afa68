/* llvm.c: kernels to LLVM IR, machine code, and the JIT.
 *
 * One LLVM context and module per Code.  The module is verified, optimised by a short
 * list of passes, and kept: text comes from it as it is, assembly and objects from
 * clones, because code generation changes a module.  The JIT links the object file, so
 * what runs here is byte for byte what is exported.
 *
 * Every LLVM thing is stored in the State the moment it exists; the State is freed
 * with the Code, also when an error cuts the work short.  LLVM never sees a longjmp:
 * its diagnostics are stored by the handler and raised after the call returns. */
#include <pthread.h>
#include <stdio.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "codegen/llvm_gen.h"

typedef struct State {
  LLVMContextRef lc;
  LLVMModuleRef mod;
  LLVMBuilderRef builder;
  LLVMTargetMachineRef machine;
  LLVMMemoryBufferRef object;
  LLVMOrcLLJITRef jit;
  const LatheRtModuleInfo *info;
  char trouble[1024]; /* LLVM's first error, "" if none */
} State;

bool codegen_has_llvm(void) { return true; }
const char *codegen_llvm_version(void) { return LLVM_VERSION_STRING; }

/* ---- life ----------------------------------------------------------------------------------- */

static void state_free(Code *code)
{
  State *st = code->state;
  if (!st) return;
  if (st->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(st->jit));
  if (st->object) LLVMDisposeMemoryBuffer(st->object);
  if (st->builder) LLVMDisposeBuilder(st->builder);
  if (st->mod) LLVMDisposeModule(st->mod);
  if (st->machine) LLVMDisposeTargetMachine(st->machine);
  if (st->lc) LLVMContextDispose(st->lc);
  code->state = NULL;
}

/* A Code under construction; freed by the scope unless it is finished first. */
typedef struct Unfinished {
  Code *code;
} Unfinished;
static void drop_unfinished(void *arg)
{
  Unfinished *u = arg;
  code_free(u->code);
}

static void note_trouble(LLVMDiagnosticInfoRef info, void *arg)
{
  State *st = arg;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || st->trouble[0]) return;
  char *text = LLVMGetDiagInfoDescription(info);
  snprintf(st->trouble, sizeof st->trouble, "%s", text);
  LLVMDisposeMessage(text);
}

/* Raises what LLVM said, if anything. */
static void check_trouble(Ctx *ctx, State *st, const char *doing)
{
  if (!st->trouble[0]) return;
  raise(ctx, ERR_INTERNAL, NOWHERE, "internal error: llvm, %s: %s", doing, st->trouble);
}

static void check_error(Ctx *ctx, LLVMErrorRef error, const char *doing)
{
  if (!error) return;
  char *text = LLVMGetErrorMessage(error), copy[1024];
  snprintf(copy, sizeof copy, "%s", text);
  LLVMDisposeErrorMessage(text);
  raise(ctx, ERR_INTERNAL, NOWHERE, "internal error: llvm, %s: %s", doing, copy);
}

/* Takes a message that LLVM allocated and raises with a copy of it. */
_Noreturn static void raise_message(Ctx *ctx, ErrKind kind, const char *doing, char *text)
{
  char copy[1024];
  snprintf(copy, sizeof copy, "%s", text ? text : "no reason given");
  LLVMDisposeMessage(text);
  raise(ctx, kind, NOWHERE, "llvm, %s: %s", doing, copy);
}

/* ---- the target machine ---------------------------------------------------------------------- */

static void init_native(void)
{
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
}

static void init_all(void)
{
  LLVMInitializeAllTargetInfos();
  LLVMInitializeAllTargets();
  LLVMInitializeAllTargetMCs();
  LLVMInitializeAllAsmPrinters();
}

/* The CPU's baseline where features are spelled out; else its name. */
static const char *machine_cpu(const Target *t)
{
  if (t->arch == ARCH_X86_64) return "x86-64";
  if (t->arch == ARCH_AARCH64) return "generic";
  if (t->arch == ARCH_RISCV64 && strcmp(t->cpu, "generic") == 0) return "generic-rv64";
  return gen_cpu_name(t);
}

static void make_machine(Ctx *ctx, State *st, const Target *t, const char *features)
{
  static pthread_once_t native_once = PTHREAD_ONCE_INIT, all_once = PTHREAD_ONCE_INIT;
  pthread_once(&native_once, init_native);
  if (t->arch != target_host_arch()) pthread_once(&all_once, init_all);
  LLVMTargetRef target;
  char *why = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &target, &why)) raise_message(ctx, ERR_UNSUPPORTED, t->triple, why);
  bool is_wasm = t->arch == ARCH_WASM32;
  st->machine = LLVMCreateTargetMachine(target, t->triple, machine_cpu(t), features, LLVMCodeGenLevelDefault,
                                        is_wasm ? LLVMRelocDefault : LLVMRelocPIC, LLVMCodeModelDefault);
  if (!st->machine)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: no machine for triple '%s', cpu '%s'", t->triple, t->cpu);
}

/* ---- optimisation ------------------------------------------------------------------------------ */

/* Since LLVM 18 a plain `instcombine` in a pass list ends the process when one round
 * leaves something to do: a check for LLVM's own tests. */
#if LLVM_VERSION_MAJOR >= 18
#define INSTCOMBINE "instcombine<no-verify-fixpoint>"
#else
#define INSTCOMBINE "instcombine"
#endif

/* Lowering has done the large steps already; these clean up what it and llvm_*.c
 * leave.  Loops that nobody scheduled get LLVM's vectoriser.  On AArch64 a vector
 * multiplies by an element of another, so scalars that are splat and lie side by side
 * in memory are loaded as one vector. */
static const char *pass_list(const Gen *g)
{
  bool by_element = g->has_splat_load && g->t->arch == ARCH_AARCH64;
  const char *vectorize = ",simplifycfg,loop(indvars),loop-vectorize," INSTCOMBINE ",loop-mssa(licm),early-cse";
  return arena_printf(g->arena,
                      "function(sroa,early-cse," INSTCOMBINE ",loop-mssa(licm),gvn%s%s," INSTCOMBINE ",simplifycfg)",
                      g->has_free_loop ? vectorize : "", by_element ? ",load-store-vectorizer" : "");
}

static void dispose_options(void *options) { LLVMDisposePassBuilderOptions(options); }

static void optimise(Ctx *ctx, State *st, const Gen *g)
{
  char *why = NULL;
  if (LLVMVerifyModule(st->mod, LLVMReturnStatusAction, &why))
    raise_message(ctx, ERR_INTERNAL, "internal error: the module is not well formed", why);
  LLVMDisposeMessage(why);
  Scope scope = scope_begin(ctx);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  defer(ctx, dispose_options, options);
  check_error(ctx, LLVMRunPasses(st->mod, pass_list(g), st->machine, options), "optimising");
  scope_end(ctx, scope);
  check_trouble(ctx, st, "optimising");
}

/* ---- building ------------------------------------------------------------------------------------ */

static void module_flags(Gen *g)
{
  if (g->t->arch != ARCH_RISCV64 || !strstr(g->t->attrs, "+d")) return;
  LLVMAddModuleFlag(g->mod, LLVMModuleFlagBehaviorError, "target-abi", 10, LLVMMDStringInContext2(g->lc, "lp64d", 5));
}

static void gen_init(Gen *g, Ctx *ctx, State *st, const Target *t, const char *features)
{
  LLVMContextRef lc = st->lc;
  *g = (Gen){
      .ctx = ctx, .arena = scratch(ctx), .t = t, .lc = lc, .mod = st->mod, .b = st->builder, .features = features};
  g->i1 = LLVMInt1TypeInContext(lc);
  g->i8 = LLVMInt8TypeInContext(lc);
  g->i16 = LLVMInt16TypeInContext(lc);
  g->i32 = LLVMInt32TypeInContext(lc);
  g->i64 = LLVMInt64TypeInContext(lc);
  g->f16 = LLVMHalfTypeInContext(lc);
  g->f32 = LLVMFloatTypeInContext(lc);
  g->f64 = LLVMDoubleTypeInContext(lc);
  g->none = LLVMVoidTypeInContext(lc);
#if LLVM_VERSION_MAJOR < 15
  g->ptr = LLVMPointerType(g->i8, 0);
#else
  g->ptr = LLVMPointerTypeInContext(lc, 0);
#endif
}

static void make_module(Ctx *ctx, State *st, const Target *t)
{
  const char *features = target_llvm_features(scratch(ctx), t);
  st->lc = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(st->lc, note_trouble, st);
  make_machine(ctx, st, t, features);
  st->mod = LLVMModuleCreateWithNameInContext("lathe", st->lc);
  st->builder = LLVMCreateBuilderInContext(st->lc);
  LLVMSetTarget(st->mod, t->triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(st->machine);
  LLVMSetModuleDataLayout(st->mod, layout);
  LLVMDisposeTargetData(layout);
}

static void check_kernels(Ctx *ctx, const Target *t, int n, Kernel *const *kernels)
{
  if (t->kind == TARGET_CUDA) raise(ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: target '%s' is not a CPU", t->text);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (strcmp(kernels[i]->name, kernels[j]->name) == 0)
        raise(ctx, ERR_ARGUMENT, NOWHERE, "two kernels are named '%s'; a library needs one name each",
              kernels[i]->name);
}

static const CodeBackend llvm_backend;

Code *codegen_llvm(Ctx *ctx, const Target *t, int n, Kernel *const *kernels)
{
  check_kernels(ctx, t, n, kernels);
  Scope scope = scope_begin(ctx);
  Unfinished *u = arena_new_of(scratch(ctx), Unfinished);
  defer(ctx, drop_unfinished, u);
  Code *code = u->code = code_new(ctx, t, &llvm_backend);
  State *st = code->state = arena_new_of(code->arena, State);
  make_module(ctx, st, t);
  Gen g;
  gen_init(&g, ctx, st, t, target_llvm_features(scratch(ctx), t));
  module_flags(&g);
  for (int i = 0; i < n; i++) gen_kernel(&g, kernels[i]);
  gen_table(&g, n, kernels);
  optimise(ctx, st, &g);
  ctx_poll(ctx);
  u->code = NULL;
  scope_end(ctx, scope);
  return code;
}

/* ---- what it can be shown as ------------------------------------------------------------------------ */

static void dispose_module(void *mod) { LLVMDisposeModule(mod); }
static void dispose_buffer(void *buffer) { LLVMDisposeMemoryBuffer(buffer); }
static void dispose_text(void *text) { LLVMDisposeMessage(text); }

/* Machine code or assembly of a clone of the module; the caller owns the buffer. */
static LLVMMemoryBufferRef emit(Code *code, LLVMCodeGenFileType kind)
{
  State *st = code->state;
  Scope scope = scope_begin(code->ctx);
  LLVMModuleRef clone = LLVMCloneModule(st->mod);
  defer(code->ctx, dispose_module, clone);
  LLVMMemoryBufferRef out = NULL;
  char *why = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(st->machine, clone, kind, &why, &out))
    raise_message(code->ctx, ERR_INTERNAL, "internal error: generating code", why);
  scope_end(code->ctx, scope);
  return out;
}

static LLVMMemoryBufferRef object_of(Code *code)
{
  State *st = code->state;
  if (!st->object) st->object = emit(code, LLVMObjectFile);
  check_trouble(code->ctx, st, "generating code");
  return st->object;
}

static const void *buffer_copy(Arena *arena, LLVMMemoryBufferRef buffer, size_t *n)
{
  *n = LLVMGetBufferSize(buffer);
  return arena_strndup(arena, LLVMGetBufferStart(buffer), *n);
}

static const void *llvm_get(Code *code, CodeFormat format, Arena *arena, size_t *n)
{
  State *st = code->state;
  const void *out = NULL;
  Scope scope = scope_begin(code->ctx);
  switch (format) {
  case CODE_LL: {
    char *text = LLVMPrintModuleToString(st->mod);
    defer(code->ctx, dispose_text, text);
    out = arena_strdup(arena, text);
    *n = strlen(out);
    break;
  }
  case CODE_ASM: {
    LLVMMemoryBufferRef text = emit(code, LLVMAssemblyFile);
    defer(code->ctx, dispose_buffer, text);
    check_trouble(code->ctx, st, "generating assembly");
    out = buffer_copy(arena, text, n);
    break;
  }
  case CODE_OBJECT: {
    LLVMMemoryBufferRef bytes = object_of(code);
    *n = LLVMGetBufferSize(bytes);
    out = arena_copy(arena, LLVMGetBufferStart(bytes), *n);
    break;
  }
  case CODE_C:
  case CODE_CUDA:
  case CODE_PTX:
    break;
  }
  if (arena != scratch(code->ctx)) scope_end(code->ctx, scope); /* else the answer would go with it */
  return out;
}

static const CodeBackend llvm_backend = {
    .name = "llvm", .formats = "ll, asm, obj", .get = llvm_get, .free = state_free};

/* ---- the JIT --------------------------------------------------------------------------------------------- */

/* The JIT reports what is missing here and only then fails the lookup. */
static void note_jit_error(void *arg, LLVMErrorRef error)
{
  State *st = arg;
  char *text = LLVMGetErrorMessage(error);
  if (!st->trouble[0]) snprintf(st->trouble, sizeof st->trouble, "%s", text);
  LLVMDisposeErrorMessage(text);
}

/* Symbols the object does not define (the C library, call_extern) come from this process. */
static void link_process(Ctx *ctx, State *st)
{
  LLVMOrcDefinitionGeneratorRef process;
  check_error(
      ctx,
      LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&process, LLVMOrcLLJITGetGlobalPrefix(st->jit), NULL, NULL),
      "starting the JIT");
  LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(st->jit), process);
}

static void start_jit(Code *code, LLVMMemoryBufferRef object)
{
  Ctx *ctx = code->ctx;
  State *st = code->state;
  check_error(ctx, LLVMOrcCreateLLJIT(&st->jit, NULL), "starting the JIT");
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(st->jit), note_jit_error, st);
  link_process(ctx, st);
  LLVMMemoryBufferRef copy =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(LLVMGetBufferStart(object), LLVMGetBufferSize(object), "lathe");
  check_error(ctx, LLVMOrcLLJITAddObjectFile(st->jit, LLVMOrcLLJITGetMainJITDylib(st->jit), copy),
              "adding code to the JIT");
}

const LatheRtModuleInfo *codegen_llvm_jit(Code *code)
{
  State *st = code->state;
  if (!code->target->is_host)
    raise(code->ctx, ERR_UNSUPPORTED, NOWHERE,
          "code for target '%s' does not run on this machine; export it and run it there", code->target->text);
  if (st->info) return st->info;
  if (!st->jit) start_jit(code, object_of(code));
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(st->jit, &address, "lathe_module");
  if (error) {
    note_jit_error(st, error);
    raise(code->ctx, ERR_ARGUMENT, NOWHERE, "the compiled code cannot be linked into this process: %s", st->trouble);
  }
  st->info = (const LatheRtModuleInfo *)(uintptr_t)address;
  return st->info;
}
