/* test_c_clang.c: kernels of every form through C and clang: loops, memory, parallel
 * loops, sizes, packed and external calls.  The kernels are those of the LLVM tests. */
#define C_COMPILER "clang"
#include "codegen/test_c_kit.h"
#define main llvm_main
#include "codegen/test_llvm.c"
#undef main

int main(void)
{
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      ROW(test_elementwise),        ROW(test_matmul),          ROW(test_strided_and_gathered),
      ROW(test_indirect),           ROW(test_masked_store),    ROW(test_guarded_loads),
      ROW(test_while_let_if),       ROW(test_short_circuit),   ROW(test_return_status),
      ROW(test_parallel_workspace), ROW(test_parallel_status), ROW(test_arguments_that_may_alias),
      ROW(test_symbolic),           ROW(test_packed_call),     ROW(test_extern_calls),
      ROW(test_vector_sum),         ROW(test_shared_subterms),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
