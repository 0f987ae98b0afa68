/* lock.h: locks and once-only steps, for a runtime with threads and for one without (LATHE_RT_NO_THREADS), where
 * there is nobody to wait for. */
#ifndef LATHE_RT_LOCK_H
#define LATHE_RT_LOCK_H

#ifndef LATHE_RT_NO_THREADS
#include <pthread.h>

typedef pthread_mutex_t RtLock;
#define RT_LOCK_INIT PTHREAD_MUTEX_INITIALIZER
static inline void rt_lock_init(RtLock *l) { pthread_mutex_init(l, NULL); }
static inline void rt_lock_drop(RtLock *l) { pthread_mutex_destroy(l); }
static inline void rt_lock(RtLock *l) { pthread_mutex_lock(l); }
static inline void rt_unlock(RtLock *l) { pthread_mutex_unlock(l); }

typedef pthread_once_t RtOnce;
#define RT_ONCE_INIT PTHREAD_ONCE_INIT
static inline void rt_once(RtOnce *once, void (*step)(void)) { pthread_once(once, step); }
static inline void rt_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
  pthread_atfork(before, parent, child);
}

#else
typedef struct RtLock {
  char none;
} RtLock;
#define RT_LOCK_INIT {0}
static inline void rt_lock_init(RtLock *l) { (void)l; }
static inline void rt_lock_drop(RtLock *l) { (void)l; }
static inline void rt_lock(RtLock *l) { (void)l; }
static inline void rt_unlock(RtLock *l) { (void)l; }

typedef int RtOnce;
#define RT_ONCE_INIT 0
static inline void rt_once(RtOnce *once, void (*step)(void))
{
  if (!*once) step();
  *once = 1;
}
static inline void rt_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
  (void)before, (void)parent, (void)child;
}
#endif

#endif
