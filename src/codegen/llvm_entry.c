/* llvm_entry.c: what a module exports for its kernels:
 *
 *   i32 name(args…, sizes…, workspace, rt)      the plain function
 *   i32 name__call(slots, workspace, rt)        takes the slots apart and calls it
 *   void name__shape(slots, out)                shapes, then workspace and slice bytes
 *   lathe_module                                the table of all of them
 *
 * include/lathe_rt.h has the layouts.  Workspace and slice sizes are rounded up to
 * the target's alignment, the same here and in the kernel. */
#include "codegen/llvm_gen.h"

/* ---- the kernel ------------------------------------------------------------------------------------- */

/* Type of an argument in the plain function: a bool is a byte, as in C. */
static LLVMTypeRef arg_type(Gen *g, const KernelArg *a) { return a->buffer ? g->ptr : gen_mem_type(g, a->var->dtype); }

static LLVMTypeRef kernel_type(Gen *g, const Kernel *k)
{
  int n = k->narg + k->nsize + 2;
  LLVMTypeRef *params = arena_array(g->arena, LLVMTypeRef, n);
  for (int i = 0; i < k->narg; i++) params[i] = arg_type(g, &k->arg[i]);
  for (int i = 0; i < k->nsize; i++) params[k->narg + i] = g->i64;
  params[n - 2] = params[n - 1] = g->ptr;
  return LLVMFunctionType(g->i32, params, (unsigned)n, false);
}

static void bind_scalar(Gen *g, const Var *var, LLVMValueRef v)
{
  DType t = var->dtype;
  if (dtype_is_bool(t)) v = gen_compare_zero(g, v, DT_U8);
  else if (dtype_is_int(t) && t.bits < 8) v = LLVMBuildTrunc(g->b, v, gen_type(g, t), "");
  gen_bind(g, var, v);
}

static LLVMValueRef bytes_of(Gen *g, const Expr *e)
{
  if (!e || expr_is_int(e, 0)) return gen_int(g, g->i64, 0);
  int align = target_align(g->t);
  LLVMValueRef n = LLVMBuildAdd(g->b, gen_index(g, e), gen_int(g, g->i64, align - 1), "");
  return LLVMBuildAnd(g->b, n, gen_int(g, g->i64, -align), "");
}

static void bind_parameters(Gen *g, Frame *f, const Kernel *k)
{
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    LLVMValueRef p = LLVMGetParam(f->fn, (unsigned)i);
    LLVMSetValueName2(p, a->name, strlen(a->name));
    if (a->buffer) {
      gen_bind(g, a->var, p);
      if (!a->may_alias) gen_attribute(g, f->fn, (LLVMAttributeIndex)(i + 1), "noalias", 0);
      if (!a->written) gen_attribute(g, f->fn, (LLVMAttributeIndex)(i + 1), "readonly", 0);
    } else {
      bind_scalar(g, a->var, p);
    }
  }
  for (int i = 0; i < k->nsize; i++) gen_bind(g, k->size[i].var, LLVMGetParam(f->fn, (unsigned)(k->narg + i)));
  LLVMValueRef workspace = LLVMGetParam(f->fn, (unsigned)(k->narg + k->nsize));
  f->ambient[AMBIENT_WORKSPACE] = workspace;
  f->ambient[AMBIENT_RT] = LLVMGetParam(f->fn, (unsigned)(k->narg + k->nsize + 1));
  Memo memo;
  gen_memo_begin(g, &memo);
  f->ambient[AMBIENT_SLICES] = gen_offset(g, g->i8, workspace, bytes_of(g, k->workspace_bytes));
  f->ambient[AMBIENT_SLICE_BYTES] = bytes_of(g, k->slice_bytes);
  gen_memo_end(g, &memo);
}

static void gen_plain(Gen *g, Kernel *k)
{
  Frame f;
  gen_alias_scopes(g);
  gen_find_numbers(g);
  gen_function_begin(g, &f, k->name, kernel_type(g, k), LLVMExternalLinkage);
  bind_parameters(g, &f, k);
  gen_stmt(g, k->body);
  LLVMBuildRet(g->b, gen_int(g, g->i32, 0));
  gen_function_end(g);
}

/* ---- uniform entries ----------------------------------------------------------------------------------- */

/* A scalar out of its slot, as the plain function takes it. */
static LLVMValueRef slot_value(Gen *g, LLVMValueRef slots, int i, LLVMTypeRef type)
{
  LLVMValueRef p = gen_field(g, slots, 8 * (uint64_t)i);
  LLVMTypeKind kind = LLVMGetTypeKind(type);
  if (kind == LLVMPointerTypeKind) return gen_load_at(g, g->ptr, p, 8);
  if (kind == LLVMIntegerTypeKind) {
    LLVMValueRef v = gen_load_at(g, g->i64, p, 8);
    return type == g->i64 ? v : LLVMBuildTrunc(g->b, v, type, "");
  }
  LLVMValueRef v = gen_load_at(g, g->f64, p, 8);
  if (type == g->f16)
    v = LLVMBuildFPTrunc(g->b, v, g->f32, ""); /* in two steps no library is called; the value is exact */
  return type == g->f64 ? v : LLVMBuildFPTrunc(g->b, v, type, "");
}

static void gen_entry(Gen *g, Kernel *k)
{
  int n = k->narg + k->nsize + 2;
  LLVMTypeRef params[] = {g->ptr, g->ptr, g->ptr};
  LLVMTypeRef type = kernel_type(g, k);
  LLVMValueRef target = LLVMGetNamedFunction(g->mod, k->name);
  LLVMValueRef *arg = arena_array(g->arena, LLVMValueRef, n);
  Frame f;
  gen_function_begin(g, &f, arena_printf(g->arena, "%s__call", k->name), LLVMFunctionType(g->i32, params, 3, false),
                     LLVMExternalLinkage);
  LLVMValueRef slots = LLVMGetParam(f.fn, 0);
  for (int i = 0; i < k->narg; i++) arg[i] = slot_value(g, slots, i, arg_type(g, &k->arg[i]));
  for (int i = 0; i < k->nsize; i++) arg[k->narg + i] = slot_value(g, slots, k->narg + i, g->i64);
  arg[n - 2] = LLVMGetParam(f.fn, 1);
  arg[n - 1] = LLVMGetParam(f.fn, 2);
  LLVMBuildRet(g->b, gen_call_pointer(g, type, target, n, arg));
  gen_function_end(g);
}

static void gen_shape(Gen *g, Kernel *k)
{
  LLVMTypeRef params[] = {g->ptr, g->ptr};
  Frame f;
  gen_function_begin(g, &f, arena_printf(g->arena, "%s__shape", k->name), LLVMFunctionType(g->none, params, 2, false),
                     LLVMExternalLinkage);
  LLVMValueRef slots = LLVMGetParam(f.fn, 0);
  LLVMValueRef out = LLVMGetParam(f.fn, 1);
  for (int i = 0; i < k->narg; i++)
    if (!k->arg[i].buffer) bind_scalar(g, k->arg[i].var, slot_value(g, slots, i, arg_type(g, &k->arg[i])));
  for (int i = 0; i < k->nsize; i++) gen_bind(g, k->size[i].var, slot_value(g, slots, k->narg + i, g->i64));
  Memo memo;
  gen_memo_begin(g, &memo);
  uint64_t at = 0;
  for (int i = 0; i < k->narg; i++)
    for (int d = 0; k->arg[i].buffer && d < k->arg[i].buffer->ndim; d++, at += 8)
      gen_store_at(g, gen_index(g, k->arg[i].buffer->shape[d]), gen_field(g, out, at), 8);
  gen_store_at(g, bytes_of(g, k->workspace_bytes), gen_field(g, out, at), 8);
  gen_store_at(g, bytes_of(g, k->slice_bytes), gen_field(g, out, at + 8), 8);
  gen_memo_end(g, &memo);
  LLVMBuildRetVoid(g->b);
  gen_function_end(g);
}

void gen_kernel(Gen *g, Kernel *k)
{
  g->k = k;
  g->nbodies = 0;
  gen_plain(g, k);
  gen_entry(g, k);
  gen_shape(g, k);
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static LLVMValueRef constant_array(Gen *g, LLVMTypeRef elem, LLVMValueRef *item, int n, const char *name)
{
  if (n == 0) return LLVMConstNull(g->ptr);
  LLVMValueRef global = LLVMAddGlobal(g->mod, LLVMArrayType(elem, (unsigned)n), name);
  LLVMSetInitializer(global, LLVMConstArray(elem, item, (unsigned)n));
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  return LLVMConstPointerCast(global, g->ptr);
}

static LLVMValueRef record(Gen *g, int n, LLVMValueRef *member)
{
  return LLVMConstStructInContext(g->lc, member, (unsigned)n, false);
}

static LLVMValueRef dtype_record(Gen *g, DType t)
{
  LatheRtDType rt = code_rt_dtype(t);
  return record(g, 3,
                (LLVMValueRef[]){gen_int(g, g->i8, rt.code), gen_int(g, g->i8, rt.bits), gen_int(g, g->i16, rt.lanes)});
}

static bool reads_strides(const Kernel *k, int arg)
{
  for (int i = 0; i < k->nsize; i++)
    if (k->size[i].arg == arg && k->size[i].dim < 0) return true;
  return false;
}

/* LatheRtArgInfo: name, dtype, ndim, flags. */
static LLVMValueRef args_table(Gen *g, const Kernel *k)
{
  LLVMValueRef *row = arena_array(g->arena, LLVMValueRef, k->narg);
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    int flags = (a->written ? 1 : 0) | (reads_strides(k, i) ? 2 : 0) | (a->may_alias ? 4 : 0);
    row[i] =
        record(g, 4,
               (LLVMValueRef[]){gen_string(g, a->name), dtype_record(g, a->buffer ? a->buffer->dtype : a->var->dtype),
                                gen_int(g, g->i32, a->buffer ? a->buffer->ndim : -1), gen_int(g, g->i32, flags)});
  }
  return constant_array(g, k->narg ? LLVMTypeOf(row[0]) : g->i8, row, k->narg, "args");
}

/* LatheRtSizeInfo: name, arg, dim. */
static LLVMValueRef sizes_table(Gen *g, const Kernel *k)
{
  LLVMValueRef *row = arena_array(g->arena, LLVMValueRef, k->nsize);
  for (int i = 0; i < k->nsize; i++)
    row[i] = record(g, 3,
                    (LLVMValueRef[]){gen_string(g, k->size[i].var->name), gen_int(g, g->i32, k->size[i].arg),
                                     gen_int(g, g->i32, k->size[i].dim)});
  return constant_array(g, k->nsize ? LLVMTypeOf(row[0]) : g->i8, row, k->nsize, "sizes");
}

/* Of a function here, or in another module of the same code. */
static LLVMValueRef function_address(Gen *g, const char *kernel, const char *suffix)
{
  const char *name = arena_printf(g->arena, "%s%s", kernel, suffix);
  LLVMValueRef f = LLVMGetNamedFunction(g->mod, name);
  if (!f) f = LLVMAddFunction(g->mod, name, LLVMFunctionType(g->none, NULL, 0, false));
  return LLVMConstPointerCast(f, g->ptr);
}

/* What the loader must find on its machine: ours, and those asked for by name. */
static const char *needed_features(Gen *g)
{
  Text out = text_new(g->arena);
  for (int f = 0; f < CPU_NFEATURES; f++)
    if (target_has(g->t, (CpuFeature)f)) text_printf(&out, "%s%s", out.n ? "," : "", cpu_feature_name((CpuFeature)f));
  for (const char *p = g->t->attrs; *p;) {
    size_t n = strcspn(p, ",");
    if (*p == '+') text_printf(&out, "%s%.*s", out.n ? "," : "", (int)n - 1, p + 1);
    p += n + (p[n] == ',');
  }
  return text_str(&out);
}

void gen_table(Gen *g, int n, Kernel *const *kernels)
{
  LLVMValueRef *row = arena_array(g->arena, LLVMValueRef, n);
  LLVMValueRef mark[8];
  for (int i = 0; i < n; i++) {
    const Kernel *k = kernels[i];
    KernelFacts facts = code_facts(k);
    row[i] = record(g, 11,
                    (LLVMValueRef[]){gen_string(g, k->name), function_address(g, k->name, "__call"),
                                     function_address(g, k->name, "__shape"), gen_int(g, g->i32, k->narg),
                                     gen_int(g, g->i32, k->nsize), args_table(g, k), sizes_table(g, k),
                                     gen_int(g, g->i64, facts.workspace), gen_int(g, g->i64, facts.slice),
                                     gen_int(g, g->i32, facts.flags), gen_int(g, g->i32, 0)});
  }
  for (int i = 0; i < 8; i++) mark[i] = gen_int(g, g->i8, "LATHERT"[i]);
  LLVMValueRef funcs = constant_array(g, n ? LLVMTypeOf(row[0]) : g->i8, row, n, "funcs");
  LLVMValueRef table =
      record(g, 8,
             (LLVMValueRef[]){LLVMConstArray(g->i8, mark, 8), gen_int(g, g->i32, LATHE_RT_ABI), gen_int(g, g->i32, n),
                              gen_string(g, target_arch_name(g->t->arch)), gen_string(g, needed_features(g)), funcs,
                              gen_int(g, g->i32, target_align(g->t)), gen_int(g, g->i32, 0)});
  LLVMValueRef global = LLVMAddGlobal(g->mod, LLVMTypeOf(table), "lathe_module");
  LLVMSetInitializer(global, table);
  LLVMSetGlobalConstant(global, true);
}
