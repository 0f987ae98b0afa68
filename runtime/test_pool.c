/* test_pool.c: parallel loops: coverage, slots, statuses, nesting, several callers, resizing, fork. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "lathe_rt.h"
#include "test_sanitizers.h"

enum { N = 1000 };
typedef struct Marks {
  int hit[N];
  int slot[N];
} Marks;

static int32_t mark(int64_t begin, int64_t end, int32_t slot, void *env)
{
  Marks *m = env;
  for (int64_t i = begin; i < end; i++) {
    m->hit[i]++;
    m->slot[i] = slot;
  }
  return 0;
}

static void set_threads(int n)
{
  LatheRtError err;
  assert_int_equal(lathe_rt_set_num_threads(n, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_num_threads(), n);
}

/* Every iteration once, by a worker of the region. */
static void test_partition(void **unused)
{
  (void)unused;
  for (int threads = 1; threads <= 5; threads++) {
    set_threads(threads);
    for (int n = 0; n <= N; n = n < 8 ? n + 1 : n * 3 + 1) {
      Marks m;
      memset(&m, 0, sizeof m);
      assert_int_equal(lathe_rt_parallel_for(n, mark, &m), 0);
      for (int i = 0; i < N; i++) assert_int_equal(m.hit[i], i < n);
      for (int i = 0; i < n; i++) assert_in_range(m.slot[i], 0, threads - 1);
    }
  }
}

/* Two workers, eight pieces each: once both have begun, the second holds its first piece until
 * the first has done all that was left. */
typedef struct Uneven {
  atomic_int begun, by_first;
} Uneven;

static bool wait_for(atomic_int *count, int wanted)
{
  for (int i = 0; i < 10000 && atomic_load(count) < wanted; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return atomic_load(count) >= wanted;
}

static int32_t hold_second(int64_t begin, int64_t end, int32_t slot, void *env)
{
  Uneven *u = env;
  if (begin == 0 || slot == 1) atomic_fetch_add(&u->begun, 1);
  if (!wait_for(&u->begun, 2)) return 1;
  if (slot == 0) atomic_fetch_add(&u->by_first, (int)(end - begin));
  return slot == 1 && !wait_for(&u->by_first, 16 - (int)(end - begin)) ? 2 : 0;
}

static void test_helping(void **unused)
{
  (void)unused;
  set_threads(2);
  Uneven u = {0};
  assert_int_equal(lathe_rt_parallel_for(16, hold_second, &u), 0);
  assert_in_range(u.by_first, 12, 15);
}

static int32_t touch_huge(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)slot;
  atomic_fetch_add((_Atomic int64_t *)env, end - begin);
  return begin < 0 || end <= begin;
}

static void test_huge_range(void **unused)
{
  (void)unused;
  set_threads(3);
  _Atomic int64_t size = 0;
  assert_int_equal(lathe_rt_parallel_for(INT64_MAX, touch_huge, &size), 0);
  assert_true(size == INT64_MAX);
}

static int32_t fail_odd(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)slot;
  for (int64_t i = begin; i < end; i++) {
    atomic_fetch_add((atomic_int *)env, 1);
    if (i % 2) return 100 + (int32_t)i;
  }
  return 0;
}

static void test_status_of_first_failure(void **unused)
{
  (void)unused;
  set_threads(4);
  for (int r = 0; r < 100; r++) {
    atomic_int ran = 0;
    assert_int_equal(lathe_rt_parallel_for(4, fail_odd, &ran), 101);
    assert_int_equal(ran, 4);
    assert_int_equal(lathe_rt_parallel_for(1, fail_odd, &ran), 0);
  }
}

typedef struct Nest {
  Marks inner[4];
  atomic_int wrong_thread, wrong_slot;
} Nest;
typedef struct InnerEnv {
  Nest *nest;
  int64_t outer;
  int32_t slot;
  pthread_t thread;
} InnerEnv;

static int32_t inner_body(int64_t begin, int64_t end, int32_t slot, void *env)
{
  InnerEnv *e = env;
  if (slot != e->slot) atomic_fetch_add(&e->nest->wrong_slot, 1);
  if (!pthread_equal(pthread_self(), e->thread)) atomic_fetch_add(&e->nest->wrong_thread, 1);
  for (int64_t i = begin; i < end; i++) e->nest->inner[e->outer].hit[i]++;
  LatheRtError err;
  if (lathe_rt_set_num_threads(2, &err) != LATHE_RT_ARGUMENT) return 1;
  return strcmp(err.text, "set_num_threads: called from inside a parallel loop; call it before or after") != 0;
}

static int32_t outer_body(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)end; /* four iterations for four workers: one at a time */
  InnerEnv e = {env, begin, slot, pthread_self()};
  return lathe_rt_parallel_for(N, inner_body, &e);
}

static void test_nested_runs_alone(void **unused)
{
  (void)unused;
  set_threads(4);
  Nest *nest = calloc(1, sizeof *nest);
  assert_int_equal(lathe_rt_parallel_for(4, outer_body, nest), 0);
  assert_int_equal(nest->wrong_thread, 0);
  assert_int_equal(nest->wrong_slot, 0);
  for (int s = 0; s < 4; s++)
    for (int i = 0; i < N; i++) assert_int_equal(nest->inner[s].hit[i], 1);
  free(nest);
}

/* Many threads share the pool; each sees its own loop complete. */
static void *hammer(void *arg)
{
  intptr_t *wrong = arg;
  for (int round = 0; round < 300; round++) {
    Marks m;
    memset(&m, 0, sizeof m);
    if (lathe_rt_parallel_for(N, mark, &m) != 0) ++*wrong;
    for (int i = 0; i < N; i++) *wrong += m.hit[i] != 1;
  }
  return NULL;
}

static void test_many_callers(void **unused)
{
  (void)unused;
  set_threads(3);
  pthread_t t[6];
  intptr_t wrong[6] = {0};
  for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&t[i], NULL, hammer, &wrong[i]), 0);
  for (int r = 0; r < 10; r++) set_threads(2 + r % 3); /* resizing between regions */
  for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < 6; i++) assert_int_equal(wrong[i], 0);
}

/* Workers that went to sleep wake up. */
static void test_after_idle(void **unused)
{
  (void)unused;
  set_threads(4);
  for (int r = 0; r < 5; r++) {
    Marks m;
    memset(&m, 0, sizeof m);
    assert_int_equal(lathe_rt_parallel_for(N, mark, &m), 0);
    for (int i = 0; i < N; i++) assert_int_equal(m.hit[i], 1);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  }
}

static int32_t slow_second(int64_t begin, int64_t end, int32_t slot, void *env)
{
  Uneven *u = env;
  (void)end;
  (void)slot;
  atomic_fetch_add(&u->begun, 1);
  if (!wait_for(&u->begun, 2)) return 1;
  if (begin == 1) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  return 0;
}

/* A caller that waits long goes to sleep and is woken. */
static void test_slow_worker(void **unused)
{
  (void)unused;
  set_threads(2);
  for (int r = 0; r < 3; r++) {
    Uneven u = {0};
    assert_int_equal(lathe_rt_parallel_for(2, slow_second, &u), 0);
    assert_int_equal(u.begun, 2);
  }
}

static void test_bad_size(void **unused)
{
  (void)unused;
  LatheRtError err;
  assert_int_equal(lathe_rt_set_num_threads(0, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "set_num_threads: 0 threads, wants 1 to 1024");
  assert_int_equal(lathe_rt_set_num_threads(1025, &err), LATHE_RT_ARGUMENT);
}

/* Run in a child: exit status 0 when the loop is complete there. */
static int child_status(int (*fn)(void))
{
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(fn());
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int32_t meet(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)slot;
  atomic_int *here = env;
  atomic_fetch_add(here, (int)(end - begin));
  return !wait_for(here, 3);
}

/* Three workers, each of whom waits for the other two. */
static int loop_in_child(void)
{
  for (int r = 0; r < 20; r++) {
    atomic_int here = 0;
    if (lathe_rt_parallel_for(3, meet, &here) != 0) return 1;
  }
  return 0;
}

static void test_fork(void **unused)
{
  (void)unused;
  set_threads(3);
  Marks m;
  memset(&m, 0, sizeof m);
  assert_int_equal(lathe_rt_parallel_for(N, mark, &m), 0);
  assert_int_equal(child_status(loop_in_child), 0);
  assert_int_equal(loop_in_child(), 0); /* the parent's pool is as it was */
}

static atomic_int holding, release_it;
static int32_t hold(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)begin;
  (void)end;
  (void)slot;
  (void)env;
  atomic_fetch_add(&holding, 1);
  while (!atomic_load(&release_it)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  return 0;
}
static void *hold_pool(void *unused)
{
  (void)unused;
  return (void *)(intptr_t)lathe_rt_parallel_for(2, hold, NULL);
}

/* While another thread has the pool: this thread's loop runs alone as slot 0, and a
 * child forked now has a free pool. */
static void test_busy_pool(void **unused)
{
  (void)unused;
  set_threads(3);
  atomic_store(&holding, 0);
  atomic_store(&release_it, 0);
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, hold_pool, NULL), 0);
  while (atomic_load(&holding) < 2) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  Marks m;
  memset(&m, 0, sizeof m);
  assert_int_equal(lathe_rt_parallel_for(N, mark, &m), 0);
  for (int i = 0; i < N; i++) assert_true(m.hit[i] == 1 && m.slot[i] == 0);
  assert_int_equal(child_status(loop_in_child), 0);
  atomic_store(&release_it, 1);
  void *status;
  pthread_join(t, &status);
  assert_null(status);
}

static int32_t nothing(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)begin;
  (void)end;
  (void)slot;
  (void)env;
  return 0;
}

/* No bound is asserted: the machine may be loaded.  The number is for the reader. */
static void test_hot_latency(void **unused)
{
  (void)unused;
  set_threads(2);
  enum { ROUNDS = 2000, BATCHES = 20 };
  double best = 1e9;
  for (int b = 0; b < BATCHES; b++) {
    struct timespec a, z;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < ROUNDS; i++) assert_int_equal(lathe_rt_parallel_for(2, nothing, NULL), 0);
    clock_gettime(CLOCK_MONOTONIC, &z);
    double us = ((double)(z.tv_sec - a.tv_sec) * 1e6 + (double)(z.tv_nsec - a.tv_nsec) * 1e-3) / ROUNDS;
    if (us < best) best = us;
  }
  print_message("parallel_for of two parts, back to back: %.2f us\n", best);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_partition),         cmocka_unit_test(test_helping),
    cmocka_unit_test(test_huge_range),        cmocka_unit_test(test_status_of_first_failure),
    cmocka_unit_test(test_nested_runs_alone), cmocka_unit_test(test_many_callers),
    cmocka_unit_test(test_after_idle),        cmocka_unit_test(test_slow_worker),
    cmocka_unit_test(test_bad_size),          cmocka_unit_test(test_fork),
    cmocka_unit_test(test_busy_pool),         cmocka_unit_test(test_hot_latency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
