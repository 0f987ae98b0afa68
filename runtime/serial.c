/* serial.c: parallel loops without threads, for systems that have none (LATHE_RT_NO_THREADS); else pool.c. */
#ifdef LATHE_RT_NO_THREADS
#include <string.h>

#include "internal.h"

LatheRtCode rt_pool_check(LatheRtError *err)
{
  (void)err;
  return LATHE_RT_OK;
}

int32_t rt_pool_workers(void) { return 1; }
int32_t lathe_rt_num_threads(void) { return 1; }

LatheRtCode lathe_rt_set_num_threads(int32_t n, LatheRtError *err)
{
  if (n < 1 || n > RT_MAX_THREADS)
    return rt_fail(err, LATHE_RT_ARGUMENT, "set_num_threads: %d threads, wants 1 to %d", n, RT_MAX_THREADS);
  if (n == 1) return LATHE_RT_OK;
  return rt_fail(err, LATHE_RT_UNSUPPORTED, "set_num_threads: this runtime was built without threads");
}

int32_t rt_pool_for(const LatheRtCalls *calls, int64_t n, LatheRtBody body, void *env)
{
  (void)calls;
  if (n <= 0) return 0;
  return body(0, n, 0, env);
}

void rt_pool_copy(const LatheRtCalls *calls, void *to, const void *from, size_t bytes)
{
  (void)calls;
  if (bytes) memmove(to, from, bytes);
}

int32_t lathe_rt_parallel_for(int64_t n, LatheRtBody body, void *env) { return rt_pool_for(NULL, n, body, env); }
#else
typedef int RtSerialIsEmpty; /* a file of C has something in it */
#endif
