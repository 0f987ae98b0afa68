/* dtype.c: dtypes as the runtime sees them. */
#include "codegen/codegen.h"

LatheRtDType code_rt_dtype(DType t)
{
  static const uint8_t codes[] = {
    [DT_INT] = 0,      [DT_UINT] = 1,    [DT_FLOAT] = 2,     [DT_BFLOAT] = 4,
    [DT_E4M3FN] = 10,  [DT_E5M2] = 12,   [DT_E4M3FNUZ] = 11, [DT_E5M2FNUZ] = 13,
    [DT_E8M0FNU] = 14, [DT_E2M1FN] = 17, [DT_HANDLE] = 3,    [DT_TEXT] = LATHE_RT_STRING,
    [DT_VOID] = 3,
  };
  return (LatheRtDType){codes[t.code], t.bits, t.lanes};
}
