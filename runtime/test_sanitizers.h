/* test_sanitizers.h: what the sanitizers are told by the tests of the runtime: a refused giant allocation is a result,
 * and threads after a fork are meant. */
#ifndef LATHE_RT_TEST_SANITIZERS_H
#define LATHE_RT_TEST_SANITIZERS_H

#include "lathe_rt.h"

LATHE_RT_API const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1:die_after_fork=0"; }
LATHE_RT_API const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

#endif
