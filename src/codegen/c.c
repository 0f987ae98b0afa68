/* c.c: the C backend.
 *
 * In: kernels.  Out: one C file that stands alone (the parts of the runtime's ABI that
 * it needs are printed into it) and compiles with gcc and clang without warnings:
 *
 *   includes, ABI, vector types, helper functions
 *   for each kernel: parallel parts, the plain function, name__call, name__shape
 *   the table lathe_module */
#include "codegen/cstyle.h"

static const Dialect c_dialect = {
  .name = "c",
  .ints = {{"int8_t", "int16_t", "int32_t", "int64_t"}, {"uint8_t", "uint16_t", "uint32_t", "uint64_t"}},
  .half = "_Float16",
  .restrict_word = "restrict",
  .helper = "static inline",
  .vectors = true,
  .parallel = true,
  .runtime = true,
  .float_special = {{"INFINITY", "-INFINITY", "NAN"}, {"(double)INFINITY", "-(double)INFINITY", "(double)NAN"}},
  .prefetch = "__builtin_prefetch",
  .unroll = "#pragma GCC unroll 64",
};

/* ---- what a file needs from lathe_rt.h ---------------------------------------------------- */

const char cs_abi_text[] = "/* The runtime's ABI, as lathe_rt.h has it. */\n"
                           "typedef union LatheRtSlot { void *p; int64_t i; double f; } LatheRtSlot;\n"
                           "typedef struct LatheRtDType { uint8_t code, bits; uint16_t lanes; } LatheRtDType;\n"
                           "typedef struct LatheRtCalls LatheRtCalls;\n"
                           "typedef int32_t (*LatheRtBody)(int64_t begin, int64_t end, int32_t slot, void *env);\n";
static const char abi_packed[] =
    "typedef struct LatheRtTensor {\n"
    "  void *data;\n"
    "  struct { int32_t type, id; } device;\n"
    "  int32_t ndim;\n"
    "  LatheRtDType dtype;\n"
    "  int64_t *shape, *strides;\n"
    "  uint64_t byte_offset;\n"
    "} LatheRtTensor;\n"
    "typedef struct LatheRtPackedArg {\n"
    "  enum { LATHE_RT_ARG_INT, LATHE_RT_ARG_FLOAT, LATHE_RT_ARG_STR, LATHE_RT_ARG_HANDLE, LATHE_RT_ARG_TENSOR } tag;\n"
    "  union { int64_t i; double f; const char *s; void *p; LatheRtTensor *t; } u;\n"
    "} LatheRtPackedArg;\n";
const char cs_abi_calls[] =
    "struct LatheRtCalls {\n"
    "  uint32_t abi;\n"
    "  int32_t num_workers;\n"
    "  int32_t (*parallel_for)(const LatheRtCalls *, int64_t n, LatheRtBody, void *env);\n"
    "  int32_t (*call_packed)(const LatheRtCalls *, const char *name, int32_t n, const struct LatheRtPackedArg *);\n"
    "  void *pool, *user;\n"
    "  int32_t (*launch)(const LatheRtCalls *, const char *name, const void *grid, int32_t n, const LatheRtSlot *);\n"
    "};\n"
    "typedef int32_t (*LatheRtKernel)(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *);\n"
    "typedef void (*LatheRtShapeFn)(const LatheRtSlot *slots, int64_t *out);\n"
    "typedef struct LatheRtArgInfo { const char *name; LatheRtDType dtype; int32_t ndim, flags; } LatheRtArgInfo;\n"
    "typedef struct LatheRtSizeInfo { const char *name; int32_t arg, dim; } LatheRtSizeInfo;\n"
    "typedef struct LatheRtFuncInfo {\n"
    "  const char *name;\n"
    "  LatheRtKernel call;\n"
    "  LatheRtShapeFn shape;\n"
    "  int32_t nargs, nsizes;\n"
    "  const LatheRtArgInfo *args;\n"
    "  const LatheRtSizeInfo *sizes;\n"
    "  int64_t workspace, slice;\n"
    "  uint32_t flags, reserved;\n"
    "} LatheRtFuncInfo;\n"
    "typedef struct LatheRtModuleInfo {\n"
    "  char magic[8];\n"
    "  uint32_t abi;\n"
    "  int32_t nfuncs;\n"
    "  const char *arch, *features;\n"
    "  const LatheRtFuncInfo *funcs;\n"
    "  uint32_t align, reserved;\n"
    "} LatheRtModuleInfo;\n"
    "#define LATHE_EXPORT __attribute__((visibility(\"default\")))\n";

/* ---- the plain function --------------------------------------------------------------------- */

static bool is_used(Cgen *g, const Var *v) { return map_get(&g->used, v) != NULL; }

static const char *scalar_param(Cgen *g, const Var *v) { return cs_type(g, v->dtype); }

/* A size comes as int64_t; a variable of another dtype is made from it. */
static const char *size_param(Cgen *g, const KernelSize *z)
{
  const char *name = cs_name(g, z->var);
  return dtype_eq(z->var->dtype, DT_I64) ? name : cs_fmt(g, "%s_size", name);
}

/* The parameters that the kernel itself has, a comma behind each. */
static void print_parameters(Cgen *g, const Kernel *k)
{
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    const char *arg = cs_name_as(g, a->var, a->name);
    if (a->buffer)
      text_printf(g->out, "%s%s *%s%s, ", a->written ? "" : "const ", cs_storage_type(g, a->buffer->dtype),
                  a->may_alias ? "" : "restrict ", arg);
    else text_printf(g->out, "%s %s, ", scalar_param(g, a->var), arg);
  }
  for (int i = 0; i < k->nsize; i++) text_printf(g->out, "int64_t %s, ", size_param(g, &k->size[i]));
}

static void print_signature(Cgen *g, const Kernel *k, const char *name)
{
  text_printf(g->out, "LATHE_EXPORT int32_t %s(", name);
  print_parameters(g, k);
  text_add(g->out, "void *workspace, const LatheRtCalls *rt)");
}

/* Silences what the body does not use; gives sizes their own dtype. */
static void print_unused(Cgen *g, const Kernel *k)
{
  for (int i = 0; i < k->narg; i++)
    if (!is_used(g, k->arg[i].var)) cs_line(g, "(void)%s;", cs_name(g, k->arg[i].var));
  for (int i = 0; i < k->nsize; i++) {
    const Var *v = k->size[i].var;
    if (!is_used(g, v)) cs_line(g, "(void)%s;", size_param(g, &k->size[i]));
    else if (!dtype_eq(v->dtype, DT_I64))
      cs_line(g, "const %s %s = (%s)%s;", cs_type(g, v->dtype), cs_name(g, v), cs_type(g, v->dtype),
              size_param(g, &k->size[i]));
  }
}

static void declare_arguments(Cgen *g, const Kernel *k)
{
  for (int i = 0; i < k->narg; i++)
    if (k->arg[i].buffer)
      cs_declare_memory(g, k->arg[i].var,
                        (Memory){cs_name(g, k->arg[i].var), k->arg[i].buffer->dtype, false, 1, !k->arg[i].written});
}

/* Bytes rounded up to the target's alignment, as text. */
static const char *rounded(Cgen *g, const Expr *bytes)
{
  if (!bytes || expr_is_int(bytes, 0)) return "0";
  int align = target_align(g->target);
  if (bytes->kind == E_INT) return cs_fmt(g, "%" PRId64, (bytes->u.i + align - 1) / align * align);
  return cs_fmt(g, "((%s + %d) & -%d)", cs_wrap(g, cs_expr(g, bytes), P_ADD), align - 1, align);
}

static void note_used(void *env, const Expr *e)
{
  Cgen *g = env;
  if (e->kind == E_VAR) map_put(g->arena, &g->used, e->u.var, g);
}

static void print_plain(Cgen *g, const Kernel *k, const char *name)
{
  Text body = text_new(g->arena);
  g->out = &body;
  bool slices = cs_uses_place(k->body, PLACE_SLICE);
  bool workspace = slices || cs_uses_place(k->body, PLACE_WORKSPACE);
  if (slices && k->workspace_bytes) expr_visit(g->ctx, k->workspace_bytes, note_used, g);
  if (slices && k->slice_bytes) expr_visit(g->ctx, k->slice_bytes, note_used, g);
  text_printf(g->out, "\n/* ---- kernel %s ---- */\n", k->name);
  print_signature(g, k, name);
  text_add(g->out, "\n{\n");
  declare_arguments(g, k);
  print_unused(g, k);
  if (!workspace) cs_line(g, "(void)workspace;");
  if (!cs_uses_runtime(g, k->body)) cs_line(g, "(void)rt;");
  if (slices) {
    cs_line(g, "char *const slices = (char *)workspace + %s;", rounded(g, k->workspace_bytes));
    cs_line(g, "const int64_t slice_bytes = %s;", rounded(g, k->slice_bytes));
    cs_line(g, "(void)slice_bytes;");
  }
  cs_stmt(g, k->body);
  cs_line(g, "return 0;");
  text_add(g->out, "}\n");
  g->out = &g->functions;
  text_add(g->out, text_str(&body));
}

/* ---- uniform entries --------------------------------------------------------------------------- */

static const char *slot_value(Cgen *g, int i, DType t)
{
  if (dtype_is_bool(t)) return cs_fmt(g, "slots[%d].i != 0", i);
  if (dtype_is_float(t)) return cs_fmt(g, "(%s)slots[%d].f", cs_type(g, t), i);
  if (t.code == DT_HANDLE) return cs_fmt(g, "slots[%d].p", i);
  return dtype_eq(t, DT_I64) ? cs_fmt(g, "slots[%d].i", i) : cs_fmt(g, "(%s)slots[%d].i", cs_type(g, t), i);
}

static void print_call(Cgen *g, const Kernel *k, const char *name)
{
  text_printf(g->out,
              "\nLATHE_EXPORT int32_t %s__call(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *rt)\n{\n",
              name);
  if (k->narg + k->nsize == 0) cs_line(g, "(void)slots;");
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    if (a->buffer) text_printf(&list, "slots[%d].p, ", i);
    else text_printf(&list, "%s, ", slot_value(g, i, a->var->dtype));
  }
  for (int i = 0; i < k->nsize; i++) text_printf(&list, "slots[%d].i, ", k->narg + i);
  cs_line(g, "return %s(%sworkspace, rt);", name, text_str(&list));
  text_add(g->out, "}\n");
}

static void print_launch(Cgen *g, const Kernel *k, const char *name)
{
  int n = k->narg + k->nsize;
  text_printf(g->out,
              "\nLATHE_EXPORT int32_t %s__call(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *rt)\n{\n",
              name);
  cs_line(g, "static const struct { int64_t grid[3], block[3], shared_bytes; } once = {{1, 1, 1}, {1, 1, 1}, 0};");
  cs_line(g, "LatheRtSlot all[%d];", n + 1);
  if (n) cs_line(g, "for (int i = 0; i < %d; i++) all[i] = slots[i];", n);
  else cs_line(g, "(void)slots;");
  cs_line(g, "all[%d].p = workspace;", n);
  cs_line(g, "return rt->launch(rt, \"%s\", &once, %d, all);", k->name, n + 1);
  text_add(g->out, "}\n");
}

static void print_shape_values(Cgen *g, const Kernel *k)
{
  int at = 0;
  for (int i = 0; i < k->narg; i++) {
    const Buffer *b = k->arg[i].buffer;
    for (int d = 0; b && d < b->ndim; d++) cs_line(g, "out[%d] = %s;", at++, cs_text(g, b->shape[d]));
  }
  cs_line(g, "out[%d] = %s;", at, rounded(g, k->workspace_bytes));
  cs_line(g, "out[%d] = %s;", at + 1, rounded(g, k->slice_bytes));
}

static void print_shape(Cgen *g, const Kernel *k, const char *name)
{
  text_printf(g->out, "\nLATHE_EXPORT void %s__shape(const LatheRtSlot *slots, int64_t *out)\n{\n", name);
  g->used = (Map){0};
  for (int i = 0; i < k->narg; i++)
    for (int d = 0; k->arg[i].buffer && d < k->arg[i].buffer->ndim; d++)
      expr_visit(g->ctx, k->arg[i].buffer->shape[d], note_used, g);
  if (k->workspace_bytes) expr_visit(g->ctx, k->workspace_bytes, note_used, g);
  if (k->slice_bytes) expr_visit(g->ctx, k->slice_bytes, note_used, g);
  bool any = false;
  for (int i = 0; i < k->narg + k->nsize; i++) {
    bool is_size = i >= k->narg;
    const Var *v = is_size ? k->size[i - k->narg].var : k->arg[i].var;
    if ((!is_size && k->arg[i].buffer) || !is_used(g, v)) continue;
    bool is_int = dtype_is_int(v->dtype) && !dtype_is_bool(v->dtype);
    cs_line(g, "const %s %s = %s;", is_int ? "int64_t" : cs_type(g, v->dtype), cs_name(g, v),
            slot_value(g, i, is_int ? DT_I64 : v->dtype));
    any = true;
  }
  if (!any) cs_line(g, "(void)slots;");
  g->wide = true;
  print_shape_values(g, k);
  g->wide = false;
  text_add(g->out, "}\n");
}

/* ---- the table ------------------------------------------------------------------------------------ */

static const char *quoted(Cgen *g, const char *s)
{
  Text t = text_new(scratch(g->ctx));
  text_quote(&t, s);
  return text_str(&t);
}

static bool reads_strides(const Kernel *k, int arg)
{
  for (int i = 0; i < k->nsize; i++)
    if (k->size[i].arg == arg && k->size[i].dim < 0) return true;
  return false;
}

static void print_infos(Cgen *g, const Kernel *k, const char *name)
{
  if (k->narg) text_printf(g->out, "\nstatic const LatheRtArgInfo %s_args[] = {\n", name);
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    LatheRtDType t = code_rt_dtype(a->buffer ? a->buffer->dtype : a->var->dtype);
    int flags = (a->written ? 1 : 0) | (reads_strides(k, i) ? 2 : 0) | (a->may_alias ? 4 : 0);
    cs_line(g, "{%s, {%d, %d, %d}, %d, %d},", quoted(g, a->name), t.code, t.bits, t.lanes,
            a->buffer ? a->buffer->ndim : -1, flags);
  }
  if (k->narg) text_add(g->out, "};\n");
  if (k->nsize) text_printf(g->out, "static const LatheRtSizeInfo %s_sizes[] = {\n", name);
  for (int i = 0; i < k->nsize; i++) {
    int dim = k->size[i].dim;
    const char *text = dim == INT32_MIN ? "INT32_MIN" : cs_fmt(g, "%d", dim);
    cs_line(g, "{%s, %d, %s},", quoted(g, k->size[i].var->name), k->size[i].arg, text);
  }
  if (k->nsize) text_add(g->out, "};\n");
}

/* How a compiler tells the source that it may use a feature. */
static const char *const feature_macro[CPU_NFEATURES] = {
  [CPU_SSE42] = "__SSE4_2__",
  [CPU_AVX] = "__AVX__",
  [CPU_AVX2] = "__AVX2__",
  [CPU_FMA] = "__FMA__",
  [CPU_F16C] = "__F16C__",
  [CPU_BMI2] = "__BMI2__",
  [CPU_POPCNT] = "__POPCNT__",
  [CPU_LZCNT] = "__LZCNT__",
  [CPU_AVX512F] = "__AVX512F__",
  [CPU_AVX512BW] = "__AVX512BW__",
  [CPU_AVX512DQ] = "__AVX512DQ__",
  [CPU_AVX512VL] = "__AVX512VL__",
  [CPU_AVX512CD] = "__AVX512CD__",
  [CPU_AVXVNNI] = "__AVXVNNI__",
  [CPU_AVX512VNNI] = "__AVX512VNNI__",
  [CPU_AVX512BF16] = "__AVX512BF16__",
  [CPU_NEON] = "__ARM_NEON",
  [CPU_FP16] = "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC",
  [CPU_DOTPROD] = "__ARM_FEATURE_DOTPROD",
  [CPU_I8MM] = "__ARM_FEATURE_MATMUL_INT8",
  [CPU_BF16] = "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",
  [CPU_LSE] = "__ARM_FEATURE_ATOMICS",
  [CPU_SVE] = "__ARM_FEATURE_SVE",
};

/* The source is plain C: what its code needs is what the compiler was allowed, whatever the target says. */
static void print_features(Text *out)
{
  text_add(out,
           "\n/* What the compiler may use, the machine must have. */\nstatic const char lathe_features[] = \"\"\n");
  for (int f = 0; f < CPU_NFEATURES; f++) {
    const char *name = cpu_feature_name((CpuFeature)f);
    if (f == CPU_DSP || f == CPU_MVE) continue; /* of microcontrollers, on which there is no runtime to ask */
    if (!feature_macro[f]) BUG(arena_ctx(out->arena), "the feature '%s' has no macro in C", name);
    text_printf(out, "#ifdef %s\n  \",%s\"\n#endif\n", feature_macro[f], name);
  }
  text_add(out, "  ;\n");
}

void cs_module_table(Text *out, const Target *target, int n)
{
  text_add(out,
           "\n#if defined(__x86_64__)\n#define LATHE_ARCH \"x86_64\"\n#elif defined(__aarch64__)\n#define LATHE_ARCH "
           "\"aarch64\"\n"
           "#elif defined(__arm__)\n#define LATHE_ARCH \"arm\"\n#elif defined(__riscv) && __riscv_xlen == 64\n#define "
           "LATHE_ARCH \"riscv64\"\n"
           "#elif defined(__wasm32__)\n#define LATHE_ARCH \"wasm32\"\n#else\n#define LATHE_ARCH \"unknown\"\n#endif\n");
  print_features(out);
  text_printf(out,
              "LATHE_EXPORT const LatheRtModuleInfo lathe_module = {\"LATHERT\", %d, %d, LATHE_ARCH, "
              "lathe_features + (sizeof lathe_features > 1), %s, %d, 0};\n",
              LATHE_RT_ABI, n, n ? "lathe_funcs" : "0", target_align(target));
}

static void print_table(Cgen *g, int n, Kernel *const *kernels, bool launch)
{
  g->indent = 1;
  for (int i = 0; i < n; i++) print_infos(g, kernels[i], cs_function_name(g, kernels[i]->name));
  if (n) text_add(g->out, "\nstatic const LatheRtFuncInfo lathe_funcs[] = {\n");
  for (int i = 0; i < n; i++) {
    const Kernel *k = kernels[i];
    const char *name = cs_function_name(g, k->name);
    KernelFacts facts = code_facts(k);
    cs_line(g, "{%s, %s__call, %s__shape, %d, %d, %s, %s, %" PRId64 ", %" PRId64 ", %u, 0},", quoted(g, k->name), name,
            name, k->narg, k->nsize, k->narg ? cs_fmt(g, "%s_args", name) : "0",
            k->nsize ? cs_fmt(g, "%s_sizes", name) : "0", facts.workspace, facts.slice, launch ? 0 : facts.flags);
  }
  if (n) text_add(g->out, "};\n");
  cs_module_table(g->out, g->target, n);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static const char *assemble(Cgen *g, int n, Kernel *const *kernels)
{
  Text file = text_new(g->arena);
  text_printf(&file, "/* Kernels");
  for (int i = 0; i < n; i++) text_printf(&file, "%s %s", i ? "," : "", kernels[i]->name);
  text_printf(&file,
              "; made by Lathe for target '%s'.\n * cc -O2 -fno-math-errno -ffp-contract=fast -shared -fPIC … -lm */\n",
              g->target->text);
  text_add(&file, "#include <stdbool.h>\n#include <stdint.h>\n");
  if (g->uses_math) text_add(&file, "#include <math.h>\n");
  if (g->types.n) text_add(&file, "#pragma GCC diagnostic ignored \"-Wpsabi\"\n");
  text_printf(&file, "\n%s%s%s", cs_abi_text, g->uses_packed ? abi_packed : "struct LatheRtPackedArg;\n", cs_abi_calls);
  if (g->types.n) text_printf(&file, "\n%s", text_str(&g->types));
  for (int i = 0; i < g->protos.n; i++)
    text_printf(&file, "%sextern %s\n", i ? "" : "\n", (const char *)g->protos.val[i]);
  if (g->helpers.n) text_printf(&file, "\n%s", text_str(&g->helpers));
  text_add(&file, text_str(&g->functions));
  return text_str(&file);
}

static void print_kernel(Cgen *g, const Kernel *k, bool launch)
{
  cs_kernel_begin(g, k);
  const char *name = cs_function_name(g, k->name);
  if (!cs_needs(g, cs_fmt(g, "function %s", name)))
    raise(g->ctx, ERR_ARGUMENT, NOWHERE, "c: two kernels would be called '%s' in C; rename one", name);
  if (launch) {
    print_launch(g, k, name);
  } else {
    print_plain(g, k, name);
    print_call(g, k, name);
  }
  print_shape(g, k, name);
}

static const void *c_get(Code *code, CodeFormat format, Arena *arena, size_t *n)
{
  (void)arena;
  if (format != CODE_C) return NULL;
  *n = strlen(code->state);
  return code->state;
}

const CodeBackend cs_backend = {.name = "c", .formats = "c", .text = CODE_C, .get = c_get};

static void drop_code(void *held)
{
  Code **code = held;
  if (*code) code_free(*code);
}

static Code *make_code(Ctx *ctx, const Target *target, int n, Kernel *const *kernels, bool launch)
{
  Scope scope = scope_begin(ctx);
  Code **held = arena_new_of(scratch(ctx), Code *);
  defer(ctx, drop_code, held);
  Code *code = *held = code_new(ctx, target, &cs_backend);
  Dialect *dialect = arena_copy(code->arena, &c_dialect, sizeof c_dialect);
  if (target->arch != ARCH_AARCH64) dialect->half = NULL; /* not every compiler has the type elsewhere */
  dialect->quads = target_has_quads(target);
  Cgen *g = cs_new(code, dialect);
  for (int i = 0; i < n; i++) {
    Scope inner = scope_begin(ctx);
    cs_refuse_imports(ctx, kernels[i]);
    print_kernel(g, kernels[i], launch);
    scope_end(ctx, inner);
  }
  print_table(g, n, kernels, launch);
  code->state = (void *)(uintptr_t)assemble(g, n, kernels);
  *held = NULL;
  scope_end(ctx, scope);
  return code;
}

Code *codegen_c(Ctx *ctx, const Target *target, int n, Kernel *const *kernels)
{
  return make_code(ctx, target, n, kernels, false);
}

Code *codegen_c_launch(Ctx *ctx, const Target *target, int n, Kernel *const *kernels)
{
  return make_code(ctx, target, n, kernels, true);
}

/* ---- without a runtime -------------------------------------------------------------------------------- */

static void print_alone(Cgen *g, const Kernel *k, const char *name)
{
  Text body = text_new(g->arena);
  g->out = &body;
  text_printf(g->out, "\nKERNEL %s(", name);
  print_parameters(g, k);
  bool slices = cs_uses_place(k->body, PLACE_SLICE);
  if (slices || cs_uses_place(k->body, PLACE_WORKSPACE)) text_add(g->out, "void *workspace");
  else if (k->narg + k->nsize) g->out->n -= 2; /* the last comma */
  else text_add(g->out, "void");
  text_add(g->out, ")\n{\n");
  declare_arguments(g, k);
  print_unused(g, k);
  if (slices) cs_line(g, "char *const slices = (char *)workspace + %s;", rounded(g, k->workspace_bytes));
  cs_stmt(g, k->body);
  text_add(g->out, "}\n");
  g->out = &g->functions;
  text_add(g->out, text_str(&body));
}

CodeAlone codegen_c_alone(Ctx *ctx, Arena *arena, const Target *target, int n, Kernel *const *kernels)
{
  Scope scope = scope_begin(ctx);
  Code **held = arena_new_of(scratch(ctx), Code *);
  defer(ctx, drop_code, held);
  Code *code = *held = code_new(ctx, target, &cs_backend);
  Dialect *dialect = arena_copy(code->arena, &c_dialect, sizeof c_dialect);
  if (target->arch != ARCH_AARCH64) dialect->half = NULL;
  dialect->runtime = false;
  dialect->prefetch = NULL; /* compilers warn of hints beyond an array that they know */
  dialect->quads = target_has_quads(target);
  if (target->vector_bits <= 32 && !dialect->quads) dialect->vectors = false; /* plain C */
  Cgen *g = cs_new(code, dialect);
  bool parts = false;
  CodeAlone out = {.name = arena_array(arena, const char *, n + 1)};
  for (int i = 0; i < n; i++) {
    out.name[i] = kernels[i]->name;
    if (!kernels[i]->body) continue;
    Scope inner = scope_begin(ctx);
    cs_kernel_begin(g, kernels[i]);
    const char *name = cs_function_name(g, kernels[i]->name);
    if (!cs_needs(g, cs_fmt(g, "function %s", name)))
      raise(ctx, ERR_ARGUMENT, NOWHERE, "c: two kernels would be called '%s' in C; rename one", name);
    out.name[i] = arena_strdup(arena, name);
    print_alone(g, kernels[i], name);
    parts = parts || g->parts > 0;
    scope_end(ctx, inner);
  }
  Text head = text_new(arena);
  text_add(&head,
           "/* Kernels stay functions of their own: they use the same memory for elements of different types. */\n"
           "#if defined(__GNUC__)\n#define KERNEL static __attribute__((noinline)) void\n#else\n"
           "#define KERNEL static void\n#endif\n\n");
  if (parts)
    text_add(&head,
             "/* A parallel loop of n iterations, and the scratch memory of the thread that has the number slot: one\n"
             " * thread does it all, unless both are defined. */\n"
             "#ifndef PARALLEL\n#define PARALLEL(n, body, env) (void)body(0, n, 0, env)\n"
             "#define SLICE(slot, first) (first)\n#endif\n\n");
  if (g->types.n) text_printf(&head, "%s\n", text_str(&g->types));
  for (int i = 0; i < g->protos.n; i++) text_printf(&head, "extern %s\n", (const char *)g->protos.val[i]);
  if (g->helpers.n) text_printf(&head, "%s", text_str(&g->helpers));
  text_add(&head, text_str(&g->functions));
  out.text = text_str(&head);
  out.uses_math = g->uses_math;
  out.parallel = parts;
  out.uses_vectors = g->types.n > 0;
  scope_end(ctx, scope);
  return out;
}
