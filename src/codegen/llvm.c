/* llvm.c: kernels to LLVM IR, machine code, and the JIT.
 *
 * Every kernel is a module of its own in a context of its own, so that kernels can be
 * compiled side by side and come out the same whoever compiles them; the table is a
 * module too (a single kernel has it in its own).  A module is verified, optimised by a
 * short list of passes, and kept as a CodePart: its bitcode, from which text and
 * assembly are made on demand, and its object file.  The JIT links the object files, so
 * what runs here is byte for byte what is exported.
 *
 * Every LLVM thing is stored in a Work or a State the moment it exists, and freed with
 * it, also when an error cuts the work short.  LLVM never sees a longjmp: its
 * diagnostics are stored by the handler and raised after the call returns. */
#include <stdio.h>

#include "codegen/llvm_gen.h"

/* A module under construction. */
typedef struct Work {
  LLVMContextRef lc;
  LLVMModuleRef mod;
  LLVMBuilderRef builder;
  LLVMTargetMachineRef machine;
  char trouble[1024]; /* LLVM's first error, "" if none */
} Work;

struct CodePart {
  LLVMMemoryBufferRef bitcode, object;
};

typedef struct State {
  CodePart **part;
  int npart;
  LLVMMemoryBufferRef object; /* all parts in one; NULL until asked for */
  LLVMOrcLLJITRef jit;
  const LatheRtModuleInfo *info;
  char trouble[1024];
} State;

/* ---- life ----------------------------------------------------------------------------------- */

void code_part_free(CodePart *part)
{
  if (!part) return;
  if (part->bitcode) LLVMDisposeMemoryBuffer(part->bitcode);
  if (part->object) LLVMDisposeMemoryBuffer(part->object);
  mem_free(NULL, part);
}

static void state_free(Code *code)
{
  State *st = code->state;
  if (!st) return;
  if (st->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(st->jit));
  if (st->object) LLVMDisposeMemoryBuffer(st->object);
  for (int i = 0; i < st->npart; i++) code_part_free(st->part[i]);
  code->state = NULL;
}

static void work_free(void *arg)
{
  Work *w = arg;
  if (w->builder) LLVMDisposeBuilder(w->builder);
  if (w->mod) LLVMDisposeModule(w->mod);
  if (w->machine) LLVMDisposeTargetMachine(w->machine);
  if (w->lc) LLVMContextDispose(w->lc);
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
  Work *w = arg;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || w->trouble[0]) return;
  char *text = LLVMGetDiagInfoDescription(info);
  snprintf(w->trouble, sizeof w->trouble, "%s", text);
  LLVMDisposeMessage(text);
}

/* Raises what LLVM said, if anything. */
static void check_trouble(Ctx *ctx, const Work *w, const char *doing)
{
  if (!w->trouble[0]) return;
  raise(ctx, ERR_INTERNAL, NOWHERE, "internal error: llvm, %s: %s", doing, w->trouble);
}

static void check_error(Ctx *ctx, LLVMErrorRef error, const char *doing)
{
  if (!error) return;
  char *text = LLVMGetErrorMessage(error);
  char copy[1024];
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

/* The CPU's baseline where features are spelled out; else its name. */
static const char *machine_cpu(const Target *t)
{
  if (t->arch == ARCH_X86_64) return "x86-64";
  if (t->arch == ARCH_AARCH64) return "generic";
  if (t->arch == ARCH_RISCV64 && strcmp(t->cpu, "generic") == 0) return "generic-rv64";
  return gen_cpu_name(t);
}

/* The target's features, and that vectors of single elements are better loaded one by one: on processors that keep a
 * gather from leaking, it costs several times the loads it stands for. */
static const char *machine_features(Arena *arena, const Target *t)
{
  const char *own = target_llvm_features(arena, t);
  if (t->arch != ARCH_X86_64 || llvm_api.major < 18) return own;
  return arena_printf(arena, "%s%s+prefer-no-gather", own, *own ? "," : "");
}

/* "arm-linux-gnueabihf" in full, "arm-unknown-linux-gnueabihf": LLVM takes the short one for another system. */
static const char *full_triple(Arena *arena, const Target *t)
{
  char triple[256]; /* longer than any that LLVM knows */
  char *made = LLVMNormalizeTargetTriple(t->triple);
  snprintf(triple, sizeof triple, "%s", made);
  LLVMDisposeMessage(made);
  return arena_strdup(arena, triple);
}

static void make_machine(Ctx *ctx, Work *w, const Target *t, const char *features)
{
  llvm_init_target(t->arch);
  LLVMTargetRef target;
  char *why = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &target, &why)) raise_message(ctx, ERR_UNSUPPORTED, t->triple, why);
  bool is_wasm = t->arch == ARCH_WASM32;
  w->machine =
      LLVMCreateTargetMachine(target, full_triple(scratch(ctx), t), machine_cpu(t), features, LLVMCodeGenLevelDefault,
                              is_wasm ? LLVMRelocDefault : LLVMRelocPIC, LLVMCodeModelDefault);
  if (!w->machine)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: no machine for triple '%s', cpu '%s'", t->triple, t->cpu);
}

/* ---- optimisation ------------------------------------------------------------------------------ */

/* Lowering has done the large steps already; these clean up what it and llvm_*.c
 * leave.  Loops that nobody scheduled get LLVM's vectoriser.  On AArch64 a vector
 * multiplies by an element of another, so scalars that are splat and lie side by side
 * in memory are loaded as one vector.
 * Since LLVM 18 a plain `instcombine` in a pass list ends the process when one round
 * leaves something to do: a check for LLVM's own tests. */
static const char *pass_list(const Gen *g)
{
  const char *combine = llvm_api.major >= 18 ? "instcombine<no-verify-fixpoint>" : "instcombine";
  const char *vectorize = "";
  if (g->has_free_loop)
    vectorize =
        arena_printf(g->arena, ",simplifycfg,loop(indvars),loop-vectorize,%s,loop-mssa(licm),early-cse", combine);
  bool by_element = g->has_splat_load && g->t->arch == ARCH_AARCH64;
  return arena_printf(g->arena, "function(sroa,early-cse<memssa>,%s,loop-mssa(licm),gvn,dse%s%s,%s,simplifycfg)",
                      combine, vectorize, by_element ? ",load-store-vectorizer" : "", combine);
}

static void dispose_options(void *options) { LLVMDisposePassBuilderOptions(options); }

static void optimise(Ctx *ctx, Work *w, const Gen *g)
{
  char *why = NULL;
  if (LLVMVerifyModule(w->mod, LLVMReturnStatusAction, &why))
    raise_message(ctx, ERR_INTERNAL, "internal error: the module is not well formed", why);
  LLVMDisposeMessage(why);
  Scope scope = scope_begin(ctx);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  defer(ctx, dispose_options, options);
  check_error(ctx, LLVMRunPasses(w->mod, pass_list(g), w->machine, options), "optimising");
  scope_end(ctx, scope);
  check_trouble(ctx, w, "optimising");
}

/* ---- building ------------------------------------------------------------------------------------ */

static void module_flags(Gen *g)
{
  if (g->t->arch != ARCH_RISCV64 || !strstr(g->t->attrs, "+d")) return;
  LLVMAddModuleFlag(g->mod, LLVMModuleFlagBehaviorError, "target-abi", 10, LLVMMDStringInContext2(g->lc, "lp64d", 5));
}

static void gen_init(Gen *g, Ctx *ctx, Work *w, const Target *t, const char *features)
{
  LLVMContextRef lc = w->lc;
  *g = (Gen){.ctx = ctx, .arena = scratch(ctx), .t = t, .lc = lc, .mod = w->mod, .b = w->builder, .features = features};
  g->i1 = LLVMInt1TypeInContext(lc);
  g->i8 = LLVMInt8TypeInContext(lc);
  g->i16 = LLVMInt16TypeInContext(lc);
  g->i32 = LLVMInt32TypeInContext(lc);
  g->i64 = LLVMInt64TypeInContext(lc);
  g->f16 = LLVMHalfTypeInContext(lc);
  g->f32 = LLVMFloatTypeInContext(lc);
  g->f64 = LLVMDoubleTypeInContext(lc);
  g->none = LLVMVoidTypeInContext(lc);
  g->ptr = llvm_api.plain_pointer ? llvm_api.plain_pointer(lc, 0) : LLVMPointerType(g->i8, 0);
}

static void make_module(Ctx *ctx, Work *w, const Target *t, const char *features)
{
  w->lc = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(w->lc, note_trouble, w);
  make_machine(ctx, w, t, features);
  w->mod = LLVMModuleCreateWithNameInContext("lathe", w->lc);
  w->builder = LLVMCreateBuilderInContext(w->lc);
  LLVMSetTarget(w->mod, full_triple(scratch(ctx), t));
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(w->machine);
  LLVMSetModuleDataLayout(w->mod, layout);
  LLVMDisposeTargetData(layout);
}

/* LLVM code that a kernel brings along, joined with its module.  What several of them define is there once. */
static void link_import(Ctx *ctx, Work *w, const char *text)
{
  LLVMMemoryBufferRef source = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "import_llvm");
  LLVMModuleRef import = NULL;
  char *why = NULL;
  if (LLVMParseIRInContext(w->lc, source, &import, &why))
    raise_message(ctx, ERR_ARGUMENT, "import_llvm is no LLVM code", why);
  for (LLVMValueRef f = LLVMGetFirstFunction(import); f; f = LLVMGetNextFunction(f))
    if (!LLVMIsDeclaration(f)) LLVMSetLinkage(f, LLVMLinkOnceODRLinkage);
  bool failed = LLVMLinkModules2(w->mod, import);
  check_trouble(ctx, w, "import_llvm");
  if (failed) raise(ctx, ERR_ARGUMENT, NOWHERE, "import_llvm: the code cannot be joined with the kernel's");
}

/* The module of these kernels, with a table of ntable kernels. */
static CodePart *make_part(Ctx *ctx, const Target *t, int n, Kernel *const *kernels, int ntable, Kernel *const *table)
{
  Scope scope = scope_begin(ctx);
  Work *w = arena_new_of(scratch(ctx), Work);
  defer(ctx, work_free, w);
  const char *features = machine_features(scratch(ctx), t);
  make_module(ctx, w, t, features);
  Gen g;
  gen_init(&g, ctx, w, t, features);
  module_flags(&g);
  for (int i = 0; i < n; i++) gen_kernel(&g, kernels[i]);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < kernels[i]->nimport; k++) link_import(ctx, w, kernels[i]->import_llvm[k]);
  if (ntable) gen_table(&g, ntable, table);
  optimise(ctx, w, &g);
  ctx_poll(ctx);
  CodePart *part = mem_alloc(ctx, sizeof *part);
  char *why = NULL;
  part->bitcode = LLVMWriteBitcodeToMemoryBuffer(w->mod);
  bool failed = LLVMTargetMachineEmitToMemoryBuffer(w->machine, w->mod, LLVMObjectFile, &why, &part->object);
  if (failed || w->trouble[0]) {
    code_part_free(part);
    if (failed) raise_message(ctx, ERR_INTERNAL, "internal error: generating code", why);
    check_trouble(ctx, w, "generating code");
  }
  scope_end(ctx, scope);
  return part;
}

/* Every way in comes through here. */
static void begin(Ctx *ctx, const Target *t, int n, Kernel *const *kernels)
{
  codegen_llvm_load(ctx, t);
  if (target_is_gpu(t)) raise(ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: target '%s' is not a CPU", t->text);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (strcmp(kernels[i]->name, kernels[j]->name) == 0)
        raise(ctx, ERR_ARGUMENT, NOWHERE, "two kernels are named '%s'; a library needs one name each",
              kernels[i]->name);
}

static const CodeBackend llvm_backend;

CodePart *codegen_llvm_part(Ctx *ctx, const Target *t, Kernel *kernel, bool alone)
{
  begin(ctx, t, 1, &kernel);
  return make_part(ctx, t, 1, &kernel, alone, &kernel);
}

Code *codegen_llvm_join(Ctx *ctx, const Target *t, int n, Kernel *const *kernels, CodePart **parts)
{
  begin(ctx, t, n, kernels);
  Scope scope = scope_begin(ctx);
  Unfinished *u = arena_new_of(scratch(ctx), Unfinished);
  defer(ctx, drop_unfinished, u);
  Code *code = u->code = code_new(ctx, t, &llvm_backend);
  State *st = code->state = arena_new_of(code->arena, State);
  st->part = arena_array(code->arena, CodePart *, n + 1);
  for (; st->npart < n; st->npart++) {
    st->part[st->npart] = parts[st->npart];
    parts[st->npart] = NULL;
  }
  if (n != 1) {
    CodePart *table = make_part(ctx, t, 0, NULL, n, kernels);
    st->part[st->npart++] = table;
  }
  u->code = NULL;
  scope_end(ctx, scope);
  return code;
}

typedef struct Parts {
  CodePart **part;
  int n;
} Parts;
static void drop_parts(void *arg)
{
  Parts *p = arg;
  for (int i = 0; i < p->n; i++) code_part_free(p->part[i]);
}

Code *codegen_llvm(Ctx *ctx, const Target *t, int n, Kernel *const *kernels)
{
  begin(ctx, t, n, kernels);
  Scope scope = scope_begin(ctx);
  Parts *p = arena_new_of(scratch(ctx), Parts);
  *p = (Parts){arena_array(scratch(ctx), CodePart *, n + 1), n};
  defer(ctx, drop_parts, p);
  for (int i = 0; i < n; i++) p->part[i] = codegen_llvm_part(ctx, t, kernels[i], n == 1);
  Code *code = codegen_llvm_join(ctx, t, n, kernels, p->part);
  scope_end(ctx, scope);
  return code;
}

/* ---- what it can be shown as ------------------------------------------------------------------------ */

static void dispose_buffer(void *buffer) { LLVMDisposeMemoryBuffer(buffer); }
static void dispose_text(void *text) { LLVMDisposeMessage(text); }

/* All parts in one module; it ends with the caller's scope. */
static Work *merged(Code *code)
{
  Ctx *ctx = code->ctx;
  State *st = code->state;
  Work *w = arena_new_of(scratch(ctx), Work);
  defer(ctx, work_free, w);
  w->lc = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(w->lc, note_trouble, w);
  make_machine(ctx, w, code->target, machine_features(scratch(ctx), code->target));
  for (int i = 0; i < st->npart; i++) {
    LLVMModuleRef part = NULL;
    bool failed = LLVMParseBitcodeInContext2(w->lc, st->part[i]->bitcode, &part);
    if (!failed && w->mod) failed = LLVMLinkModules2(w->mod, part);
    else if (!failed) w->mod = part;
    check_trouble(ctx, w, "joining modules");
    if (failed) raise(ctx, ERR_INTERNAL, NOWHERE, "internal error: llvm: the modules cannot be joined");
  }
  LLVMSetModuleIdentifier(w->mod, "lathe", 5);
  return w;
}

/* Machine code or assembly of all parts; the caller owns the buffer. */
static LLVMMemoryBufferRef emit(Code *code, LLVMCodeGenFileType kind)
{
  Scope scope = scope_begin(code->ctx);
  Work *w = merged(code);
  LLVMMemoryBufferRef out = NULL;
  char *why = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(w->machine, w->mod, kind, &why, &out))
    raise_message(code->ctx, ERR_INTERNAL, "internal error: generating code", why);
  if (w->trouble[0]) LLVMDisposeMemoryBuffer(out);
  check_trouble(code->ctx, w, "generating code");
  scope_end(code->ctx, scope);
  return out;
}

static LLVMMemoryBufferRef object_of(Code *code)
{
  State *st = code->state;
  if (st->npart == 1) return st->part[0]->object;
  if (!st->object) st->object = emit(code, LLVMObjectFile);
  return st->object;
}

static int llvm_objects(Code *code, Arena *arena, CodeObject **out)
{
  State *st = code->state;
  *out = arena_array(arena, CodeObject, st->npart);
  for (int i = 0; i < st->npart; i++)
    (*out)[i] = (CodeObject){LLVMGetBufferStart(st->part[i]->object), LLVMGetBufferSize(st->part[i]->object)};
  return st->npart;
}

static const void *buffer_copy(Arena *arena, LLVMMemoryBufferRef buffer, size_t *n)
{
  *n = LLVMGetBufferSize(buffer);
  return arena_strndup(arena, LLVMGetBufferStart(buffer), *n);
}

static const void *llvm_get(Code *code, CodeFormat format, Arena *arena, size_t *n)
{
  const void *out = NULL;
  Scope scope = scope_begin(code->ctx);
  switch (format) {
  case CODE_LL: {
    char *text = LLVMPrintModuleToString(merged(code)->mod);
    defer(code->ctx, dispose_text, text);
    out = arena_strdup(arena, text);
    *n = strlen(out);
    break;
  }
  case CODE_ASM: {
    LLVMMemoryBufferRef text = emit(code, LLVMAssemblyFile);
    defer(code->ctx, dispose_buffer, text);
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
  case CODE_PTX: break;
  }
  if (arena != scratch(code->ctx)) scope_end(code->ctx, scope); /* else the answer would go with it */
  return out;
}

static const CodeBackend llvm_backend = {.name = "llvm",
                                         .formats = "ll, asm, obj",
                                         .text = CODE_LL,
                                         .get = llvm_get,
                                         .objects = llvm_objects,
                                         .free = state_free};

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

static void start_jit(Code *code)
{
  Ctx *ctx = code->ctx;
  State *st = code->state;
  check_error(ctx, LLVMOrcCreateLLJIT(&st->jit, NULL), "starting the JIT");
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(st->jit), note_jit_error, st);
  link_process(ctx, st);
  for (int i = 0; i < st->npart; i++) {
    LLVMMemoryBufferRef object = st->part[i]->object;
    LLVMMemoryBufferRef copy =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(LLVMGetBufferStart(object), LLVMGetBufferSize(object), "lathe");
    check_error(ctx, LLVMOrcLLJITAddObjectFile(st->jit, LLVMOrcLLJITGetMainJITDylib(st->jit), copy),
                "adding code to the JIT");
  }
}

const LatheRtModuleInfo *codegen_llvm_jit(Code *code)
{
  State *st = code->state;
  if (!code->target->is_host)
    raise(code->ctx, ERR_UNSUPPORTED, NOWHERE,
          "code for target '%s' does not run on this machine; export it and run it there", code->target->text);
  if (st->info) return st->info;
  if (!st->jit) start_jit(code);
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(st->jit, &address, "lathe_module");
  if (error) {
    note_jit_error(st, error);
    raise(code->ctx, ERR_ARGUMENT, NOWHERE, "the compiled code cannot be linked into this process: %s", st->trouble);
  }
  st->info = (const LatheRtModuleInfo *)(uintptr_t)address;
  return st->info;
}
