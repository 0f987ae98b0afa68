/* llvm_bytes.c: vectors of bytes.
 *
 * A table of 256 bytes is four times what AArch64's tbl takes: tbx, with the index less the entries before its part,
 * leaves what was found where the index lies beyond it. */
#include "codegen/llvm_gen.h"

LLVMValueRef gen_part(Gen *g, LLVMValueRef v, int from, int n)
{
  LLVMValueRef at[64];
  for (int i = 0; i < n; i++) at[i] = gen_int(g, g->i32, from + i);
  return LLVMBuildShuffleVector(g->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(at, (unsigned)n), "");
}

LLVMValueRef gen_join(Gen *g, LLVMValueRef a, LLVMValueRef b, int lanes)
{
  LLVMValueRef at[64];
  for (int i = 0; i < lanes; i++) at[i] = gen_int(g, g->i32, i);
  return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(at, (unsigned)lanes), "");
}

enum { ENTRIES = 256, VECTOR = 16, PART = 64 };

static LLVMValueRef find(Gen *g, const LLVMValueRef *table, LLVMValueRef at, int lanes)
{
  if (lanes > VECTOR)
    return gen_join(g, find(g, table, gen_part(g, at, 0, lanes / 2), lanes / 2),
                    find(g, table, gen_part(g, at, lanes / 2, lanes / 2), lanes / 2), lanes);
  if (lanes < VECTOR) at = gen_join(g, at, LLVMConstNull(LLVMTypeOf(at)), VECTOR);
  LLVMTypeRef type = LLVMVectorType(g->i8, VECTOR);
  LLVMValueRef found = NULL;
  for (int k = 0; k < ENTRIES / PART; k++) {
    LLVMValueRef less = LLVMBuildSub(g->b, at, gen_splat(g, gen_int(g, g->i8, k * PART), VECTOR), "");
    const LLVMValueRef *t = table + PART / VECTOR * k;
    LLVMValueRef arg[] = {found, t[0], t[1], t[2], t[3], less};
    found = k ? gen_intrinsic(g, "llvm.aarch64.neon.tbx4", 1, &type, 6, arg)
              : gen_intrinsic(g, "llvm.aarch64.neon.tbl4", 1, &type, 5, arg + 1);
  }
  return lanes < VECTOR ? gen_part(g, found, 0, lanes) : found;
}

LLVMValueRef gen_look_up(Gen *g, const Buffer *buffer, const Expr *index)
{
  int lanes = index->dtype.lanes;
  bool power = !(lanes & (lanes - 1)) && lanes >= 8 && lanes <= 64;
  if (g->mask || !target_looks_up(g->t) || !power || buffer->dtype.bits != 8 || buffer->ndim != 1 ||
      !expr_is_int(buffer->shape[0], ENTRIES))
    return NULL;
  LLVMValueRef part[ENTRIES / VECTOR];
  for (int i = 0; i < ENTRIES / VECTOR; i++)
    part[i] = gen_load_contiguous(g, buffer, gen_int(g, g->i64, i * VECTOR), VECTOR);
  return find(g, part, gen_cast(g, gen_expr(g, index), index->dtype, dtype_lanes(DT_U8, lanes)), lanes);
}
