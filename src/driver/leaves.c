/* leaves.c: tuples are spread out wherever a program is concerned: a value of tuple type
 * is as many registers as its type has leaves (tensors, sequences, optionals). */
#include "driver/program.h"

int leaf_count(const Type *t)
{
  if (t->kind != TY_TUPLE) return 1;
  int n = 0;
  for (int i = 0; i < t->nfield; i++) n += leaf_count(t->field[i]);
  return n;
}

static int add_leaves(const Type *t, const Type **out)
{
  if (t->kind != TY_TUPLE) return *out = t, 1;
  int n = 0;
  for (int i = 0; i < t->nfield; i++) n += add_leaves(t->field[i], out + n);
  return n;
}

const Type **leaf_types(Arena *a, const Type *t, int *n)
{
  const Type **out = arena_array(a, const Type *, leaf_count(t) + 1);
  *n = add_leaves(t, out);
  return out;
}

int leaf_offset(const Type *tuple, int field)
{
  int n = 0;
  for (int i = 0; i < field; i++) n += leaf_count(tuple->field[i]);
  return n;
}

LatheRtDType driver_rt_dtype(DType t)
{
  static const uint8_t codes[] = {[DT_INT] = 0,      [DT_UINT] = 1,  [DT_FLOAT] = 2,      [DT_BFLOAT] = 4,
                                  [DT_E4M3FN] = 10,  [DT_E5M2] = 12, [DT_E4M3FNUZ] = 11, [DT_E5M2FNUZ] = 13,
                                  [DT_HANDLE] = 3, [DT_VOID] = 3};
  return (LatheRtDType){codes[t.code], t.bits, t.lanes};
}
