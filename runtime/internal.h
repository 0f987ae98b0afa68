/* internal.h: what the runtime's own files share.  Nothing here is exported. */
#ifndef LATHE_RT_INTERNAL_H
#define LATHE_RT_INTERNAL_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "lathe_rt.h"

enum { RT_MAX_THREADS = 1024, RT_ALIGN = 64, RT_MOST_ALIGN = 4096 /* that anything may want */ };

#define RT_TRY(call)                        \
  do {                                      \
    LatheRtCode code_ = (call);             \
    if (code_ != LATHE_RT_OK) return code_; \
  } while (0)

/* fail.c: writes the sentence and gives the code back: return rt_fail(err, …). */
__attribute__((format(printf, 3, 4), cold)) LatheRtCode rt_fail(LatheRtError *err, LatheRtCode code, const char *fmt,
                                                                ...);

/* The sentence that err has, with words before it ("input 'x': "), where code is a failure; gives code back. */
__attribute__((format(printf, 3, 4), cold)) LatheRtCode rt_within(LatheRtError *err, LatheRtCode code, const char *fmt,
                                                                  ...);
/* "the model is broken: …" */
__attribute__((format(printf, 2, 3), cold)) LatheRtCode rt_broken(LatheRtError *err, const char *fmt, ...);
LatheRtCode rt_no_memory(LatheRtError *err, const char *who); /* "WHO: out of memory" */
LatheRtCode rt_null(LatheRtError *err, const char *who);      /* "WHO: an argument is null" */

/* One more name for a list in a sentence, "'a', 'b'"; dots where there is no room. */
void rt_add_name(char *out, size_t n, const char *name);

/* A struct that the caller filled, of `size` bytes as it says: what it does not have is zero, what we do not know is
 * left out.  Refused below `least`, what the first version had. */
LatheRtCode rt_take_struct(void *to, size_t room, const void *from, uint32_t size, size_t least, const char *who,
                           LatheRtError *);

/* What went wrong inside a running kernel.  LatheRtCalls.user points to one; the
 * first failure, on whatever thread, keeps the place. */
typedef struct CallState {
  atomic_int taken;
  LatheRtCode code;
  LatheRtError error;
  struct Heap *device; /* where launches go; NULL: nowhere */
} CallState;
/* The place for the sentence, or NULL when another failure has it. */
LatheRtError *rt_call_failed(const LatheRtCalls *calls, LatheRtCode code);

/* tensor.c */
bool rt_round_up(size_t n, size_t align, size_t *out); /* false: overflow */
size_t rt_dtype_bytes(LatheRtDType);                   /* of one element; 0: no such dtype */
void rt_dtype_name(LatheRtDType, char *out, size_t n);
LatheRtCode rt_tensor_check(const LatheRtTensor *, LatheRtError *); /* rank, dtype and shape are usable */
bool rt_tensor_compact(const LatheRtTensor *);
/* Lowest and one past the highest byte that the tensor touches. */
void rt_tensor_extent(const LatheRtTensor *, uintptr_t *begin, uintptr_t *end);

/* device.c */
void rt_device_name(LatheRtDevice, char *out, size_t n);
/* The table of a device that this process has. */
LatheRtCode rt_device_find(LatheRtDevice, const LatheRtDeviceApi **out, LatheRtError *);
/* "cuda(0) reported a failure while it WHAT: WHY"; nothing where code is none. */
LatheRtCode rt_device_failed(LatheRtDevice, LatheRtCode, const char *what, const LatheRtError *why, LatheRtError *);
/* The device's own functions, with that sentence where they fail; *out is NULL then. */
LatheRtCode rt_device_alloc(const LatheRtDeviceApi *, LatheRtDevice, size_t bytes, size_t align, void **out,
                            LatheRtError *);
LatheRtCode rt_device_copy(const LatheRtDeviceApi *, LatheRtDevice, LatheRtPlace to, LatheRtPlace from, size_t bytes,
                           void *stream, LatheRtError *);
LatheRtCode rt_device_wait(const LatheRtDeviceApi *, LatheRtDevice, void *stream, LatheRtError *);
void *rt_cpu_alloc(size_t bytes, size_t align); /* NULL: out of memory; freed with free() */
static inline bool rt_same_device(LatheRtDevice a, LatheRtDevice b) { return a.type == b.type && a.id == b.id; }

/* call.c */
bool rt_same_dtype(LatheRtDType, LatheRtDType); /* the spellings of bool are one */
void rt_shape_text(int32_t ndim, const int64_t *shape, char *out, size_t n);
double rt_now_seconds(void);
LatheRtCalls rt_calls(int32_t workers, CallState *); /* what kernels may call; no failure is noted yet */

/* pool.c */
LatheRtCode rt_pool_check(LatheRtError *); /* LATHE_NUM_THREADS makes sense */
int32_t rt_pool_workers(void);             /* slots a call started on this thread may see */
int32_t rt_pool_for(const LatheRtCalls *, int64_t n, LatheRtBody, void *env);
/* memmove, a large one on the workers; the caller's thread copies alone where none can be started. */
void rt_pool_copy(const LatheRtCalls *, void *to, const void *from, size_t bytes);

/* stream.c: LatheRtCalls.launch */
int32_t rt_launch(const LatheRtCalls *, const char *name, const LatheRtGrid *, int32_t n, const LatheRtSlot *);

/* packed.c */
int32_t rt_call_packed(const LatheRtCalls *, const char *name, int32_t n, const LatheRtPackedArg *);
/* The same with a result; the sentence says what went wrong. */
LatheRtCode rt_packed_result(const char *name, int32_t n, const LatheRtPackedArg *, LatheRtPackedArg *result,
                             LatheRtError *);

/* cpu.c */
const char *rt_cpu_arch(void);
bool rt_cpu_has(const char *name, size_t length);

/* load.c: opens path with dlopen after checking that it is a whole library of this machine. */
LatheRtCode rt_library_open(const char *path, void **handle, LatheRtError *);

#endif
