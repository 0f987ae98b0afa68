/* llvm_extern.c: calls out of a kernel: the C library, C functions by name, and
 * functions registered with the runtime (packed calls).
 *
 * A packed call's arguments lie on the stack as an array of LatheRtPackedArg; a
 * tensor among them is a LatheRtTensor beside its shape, on the stack too.  A
 * status other than 0 leaves the kernel with it. */
#include "codegen/llvm_gen.h"

/* ---- C functions ------------------------------------------------------------------------------ */

static LLVMValueRef declare(Gen *g, const char *name, LLVMTypeRef type, bool no_effects)
{
  LLVMValueRef fn = LLVMGetNamedFunction(g->mod, name);
  if (fn) return fn;
  fn = LLVMAddFunction(g->mod, name, type);
  gen_attribute(g, fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
  gen_attribute(g, fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "willreturn", 0);
  const char *pure = llvm_api.major >= 16 ? "memory" : "readnone";
  if (no_effects) gen_attribute(g, fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, pure, 0);
  return fn;
}

LLVMValueRef gen_call_pointer(Gen *g, LLVMTypeRef type, LLVMValueRef fn, int n, LLVMValueRef *arg)
{
  return LLVMBuildCall2(g->b, type, gen_pointer_as(g, fn, type), arg, (unsigned)n, "");
}

LLVMValueRef gen_libm(Gen *g, const char *name, LLVMTypeRef elem, int n, LLVMValueRef *arg)
{
  if (elem == g->f32) name = arena_printf(g->arena, "%sf", name);
  LLVMTypeRef params[] = {elem, elem, elem};
  LLVMTypeRef type = LLVMFunctionType(elem, params, (unsigned)n, false);
  LLVMValueRef fn = declare(g, name, type, true);
  if (LLVMCountBasicBlocks(fn))
    raise(g->ctx, ERR_ARGUMENT, NOWHERE,
          "kernel '%s' has the name of a C library function that is called here; rename it", name);
  return gen_call_pointer(g, type, fn, n, arg);
}

/* Small integers are passed extended, as C does. */
static void extend_argument(Gen *g, LLVMValueRef call, int i, DType t)
{
  if (!dtype_is_int(t) || t.bits >= 32) return;
  const char *name = t.code == DT_INT ? "signext" : "zeroext";
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)(i + 1), LLVMCreateEnumAttribute(g->lc, kind, 0));
}

/* One call; lane < 0: the arguments as they are. */
static LLVMValueRef call_once(Gen *g, const Expr *e, const char *name, LLVMValueRef *arg, int lane)
{
  int n = e->nargs - 1;
  LLVMTypeRef *params = arena_array(g->arena, LLVMTypeRef, n);
  LLVMValueRef *one = arena_array(g->arena, LLVMValueRef, n);
  bool has_pointer = false;
  for (int i = 0; i < n; i++) {
    bool take = lane >= 0 && e->arg[i + 1]->dtype.lanes > 1;
    one[i] = take ? gen_lane(g, arg[i], lane) : arg[i];
    params[i] = LLVMTypeOf(one[i]);
    has_pointer |= e->arg[i + 1]->dtype.code == DT_HANDLE;
  }
  LLVMTypeRef type =
      LLVMFunctionType(gen_type(g, lane >= 0 ? dtype_elem(e->dtype) : e->dtype), params, (unsigned)n, false);
  LLVMValueRef call =
      gen_call_pointer(g, type, declare(g, name, type, e->u.intrin == IN_CALL_PURE_EXTERN && !has_pointer), n, one);
  for (int i = 0; i < n; i++) extend_argument(g, call, i, e->arg[i + 1]->dtype);
  return call;
}

/* Vectors are taken apart, except for LLVM's own functions ("llvm.x86.…"). */
LLVMValueRef gen_call_extern(Gen *g, const Expr *e)
{
  if (e->arg[0]->kind != E_STR)
    raise(g->ctx, ERR_TYPE, NOWHERE, "call_extern: the first argument is the function's name, a string");
  const char *name = e->arg[0]->u.str;
  LLVMValueRef *arg = arena_array(g->arena, LLVMValueRef, e->nargs);
  int lanes = e->dtype.lanes;
  for (int i = 1; i < e->nargs; i++) {
    arg[i - 1] = gen_expr(g, e->arg[i]);
    if (e->arg[i]->dtype.lanes > lanes) lanes = e->arg[i]->dtype.lanes;
  }
  if (lanes == 1 || str_starts(name, "llvm.")) return call_once(g, e, name, arg, -1);
  LLVMValueRef out = e->dtype.code == DT_VOID ? NULL : LLVMGetPoison(gen_type(g, e->dtype));
  for (int i = 0; i < lanes; i++) {
    LLVMValueRef r = call_once(g, e, name, arg, i);
    if (out && e->dtype.lanes > 1) out = LLVMBuildInsertElement(g->b, out, r, gen_int(g, g->i32, i), "");
    else if (out) out = r;
  }
  return out;
}

/* ---- packed calls ------------------------------------------------------------------------------- */

/* LatheRtCalls, as far as kernels here use it: abi, num_workers, parallel_for, call_packed, pool, user. */
LLVMTypeRef gen_calls_type(Gen *g)
{
  LLVMTypeRef member[] = {g->i32, g->i32, g->ptr, g->ptr, g->ptr, g->ptr};
  return LLVMStructTypeInContext(g->lc, member, 6, false);
}

/* LatheRtTensor: data, device type and id, ndim, dtype, shape, strides, byte offset. */
static LLVMTypeRef tensor_type(Gen *g)
{
  LLVMTypeRef dtype[] = {g->i8, g->i8, g->i16};
  LLVMTypeRef member[] = {g->ptr, g->i32, g->i32, g->i32, LLVMStructTypeInContext(g->lc, dtype, 3, false),
                          g->ptr, g->ptr, g->i64};
  return LLVMStructTypeInContext(g->lc, member, 8, false);
}

/* A list of sizes on the stack; a null pointer for anything else (TVM writes 0). */
static LLVMValueRef sizes_on_stack(Gen *g, const Expr *e)
{
  if (e->kind != E_CALL || e->u.intrin != IN_MAKE_SHAPE) return LLVMConstNull(g->ptr);
  LLVMValueRef p = gen_alloca(g, g->i64, (uint64_t)(e->nargs ? e->nargs : 1), 8);
  for (int i = 0; i < e->nargs; i++) gen_store_at(g, gen_index(g, e->arg[i]), gen_field(g, p, 8 * (uint64_t)i), 8);
  return p;
}

static LLVMValueRef tensor_on_stack(Gen *g, const Expr *e)
{
  LLVMTypeRef type = tensor_type(g);
  LLVMValueRef t = gen_alloca(g, type, 1, 8);
  DType elem = e->arg[4]->dtype;
  LatheRtDType rt = code_rt_dtype(elem);
  int64_t packed = rt.code | rt.bits << 8 | (int64_t)rt.lanes << 16;
  gen_store_at(g, gen_expr(g, e->arg[0]), gen_member(g, type, t, 0), 4);
  gen_store_at(g, gen_int(g, g->i32, LATHE_RT_CPU), gen_member(g, type, t, 1), 4);
  gen_store_at(g, gen_int(g, g->i32, 0), gen_member(g, type, t, 2), 4);
  gen_store_at(g, gen_cast(g, gen_index(g, e->arg[3]), DT_I64, DT_I32), gen_member(g, type, t, 3), 4);
  gen_store_at(g, gen_int(g, g->i32, packed), gen_member(g, type, t, 4), 2); /* every target here is little endian */
  gen_store_at(g, sizes_on_stack(g, e->arg[1]), gen_member(g, type, t, 5), 4);
  gen_store_at(g, sizes_on_stack(g, e->arg[2]), gen_member(g, type, t, 6), 4);
  LLVMValueRef bytes =
      LLVMBuildMul(g->b, gen_index(g, e->arg[5]), gen_int(g, g->i64, (int64_t)dtype_bytes(elem) * elem.lanes), "");
  gen_store_at(g, bytes, gen_member(g, type, t, 7), 4);
  return t;
}

/* Tag and payload of one argument. */
static int packed_argument(Gen *g, const Expr *e, LLVMValueRef *payload)
{
  if (e->kind == E_CALL && e->u.intrin == IN_BUFFER_ARG) return *payload = tensor_on_stack(g, e), LATHE_RT_ARG_TENSOR;
  if (e->dtype.lanes != 1)
    raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: a vector as an argument of a packed call in kernel '%s'",
          g->k->name);
  if (e->kind == E_STR) return *payload = gen_string(g, e->u.str), LATHE_RT_ARG_STR;
  if (e->dtype.code == DT_HANDLE) return *payload = gen_expr(g, e), LATHE_RT_ARG_HANDLE;
  if (dtype_is_float(e->dtype)) return *payload = gen_cast(g, gen_expr(g, e), e->dtype, DT_F64), LATHE_RT_ARG_FLOAT;
  return *payload = gen_index(g, e), LATHE_RT_ARG_INT;
}

void gen_call_packed(Gen *g, const Expr *e)
{
  if (e->arg[0]->kind != E_STR)
    raise(g->ctx, ERR_TYPE, NOWHERE, "tvm_call_packed: the first argument is the function's name, a string");
  int n = e->nargs - 1;
  LLVMValueRef args = gen_alloca(g, g->i64, 2 * (uint64_t)(n ? n : 1), 16);
  for (int i = 0; i < n; i++) {
    LLVMValueRef payload;
    int tag = packed_argument(g, e->arg[i + 1], &payload);
    gen_store_at(g, gen_int(g, g->i32, tag), gen_field(g, args, 16 * (uint64_t)i), 8);
    gen_store_at(g, payload, gen_field(g, args, 16 * (uint64_t)i + 8), 8);
  }
  LLVMValueRef rt = gen_ambient(g, AMBIENT_RT);
  LLVMValueRef fn = gen_load_at(g, g->ptr, gen_member(g, gen_calls_type(g), rt, 3), 4);
  LLVMTypeRef params[] = {g->ptr, g->ptr, g->i32, g->ptr};
  LLVMValueRef arg[] = {rt, gen_string(g, e->arg[0]->u.str), gen_int(g, g->i32, n), args};
  gen_return_if_failed(g, gen_call_pointer(g, LLVMFunctionType(g->i32, params, 4, false), fn, 4, arg));
}
