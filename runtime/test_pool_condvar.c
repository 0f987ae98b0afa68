/* test_pool_condvar.c: the pool's tests on its portable form, without futex. */
#define LATHE_RT_NO_FUTEX 1
#include "pool.c"
#include "fail.c"
#include "test_pool.c"
