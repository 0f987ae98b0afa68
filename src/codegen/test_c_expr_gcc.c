/* test_c_expr_gcc.c: every operator, cast and intrinsic through C and gcc. */
#define C_COMPILER "gcc"
#define C_LEVEL "-O1"
#include "codegen/test_c_kit.h"
#define main llvm_main
#include "codegen/test_llvm_expr.c"
#undef main

int main(void)
{
  const struct CMUnitTest tests[] = {
    ROW(test_binary), ROW(test_min_max_with_literals), ROW(test_casts), ROW(test_half_conversions),
    ROW(test_logic),  ROW(test_float_functions),       ROW(test_bits),  ROW(test_fixed_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
