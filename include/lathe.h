/* lathe.h: the compiler, for C programs and language bindings.
 *
 * A LatheContext is used by one thread at a time; different contexts run in
 * parallel.  Every call returns LATHE_OK or an error code, with the message in
 * the context until the next call.
 *
 * Everything the compiler can do is one table of functions, called by name with
 * LatheValues; `lathe_functions` lists them with their signatures.  The Python
 * package stands on exactly this. */
#ifndef LATHE_H
#define LATHE_H

#include <stddef.h>
#include <stdint.h>

#include "lathe_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LatheContext LatheContext;

LATHE_RT_API LatheContext *lathe_context_new(void); /* NULL when memory is out */
LATHE_RT_API void lathe_context_free(LatheContext *);

typedef enum LatheTag { LATHE_NONE, LATHE_BOOL, LATHE_INT, LATHE_FLOAT, LATHE_STR, LATHE_OBJECT, LATHE_LIST } LatheTag;

/* What a LATHE_OBJECT is.  One row a kind: constant, name in signatures. */
/* clang-format off */
#define LATHE_OBJECT_KINDS(X)                                                       \
  X(LATHE_EXPR, "expr") X(LATHE_VAR, "var") X(LATHE_ITERVAR, "itervar")             \
  X(LATHE_BUFFER, "buffer") X(LATHE_REDUCER, "reducer") X(LATHE_TENSOR, "tensor")   \
  X(LATHE_TEOP, "teop") X(LATHE_STMT, "stmt") X(LATHE_PRIMFUNC, "primfunc")         \
  X(LATHE_MODULE, "module") X(LATHE_SCHEDULE, "schedule")                           \
  X(LATHE_TESCHEDULE, "teschedule") X(LATHE_TESTAGE, "testage")                     \
  X(LATHE_TENSORINTRIN, "tensorintrin") X(LATHE_TARGET, "target") X(LATHE_BUILT, "built") \
  X(LATHE_WORLD, "world") X(LATHE_BLOCK, "block") X(LATHE_LOOP, "loop") X(LATHE_INTRV, "intrv")   \
  X(LATHE_NODE, "node") X(LATHE_TYPE, "type") X(LATHE_PASSCONTEXT, "passcontext") X(LATHE_COMPILED, "compiled")
/* clang-format on */
typedef enum LatheKind {
#define X(id, name) id,
  LATHE_OBJECT_KINDS(X)
#undef X
} LatheKind;

/* Objects are counted: one that a call returned is the caller's until
 * lathe_object_release; it keeps alive whatever it lives in. */
typedef struct LatheValue {
  int32_t tag;  /* LatheTag */
  int32_t kind; /* LatheKind, for objects */
  union {
    int64_t i;
    double f;
    const char *s; /* from a call: valid until the next call on the context */
    void *p;
    const struct LatheValue *list; /* as s */
  } u;
  int64_t n; /* bytes of a string (which may hold zeros), items of a list; of an
                object its sub-kind (expressions, operations, statements: see
                the functions "expr_kinds", "teop_kinds", "stmt_kinds") */
} LatheValue;

/* Returns 0 or an error kind (1 ArgumentError, 2 TypeError, …: lathe_error_name). */
LATHE_RT_API int32_t lathe_call(LatheContext *, const char *function, int32_t n, const LatheValue *args,
                                LatheValue *result);
LATHE_RT_API void lathe_object_retain(int32_t kind, void *);
LATHE_RT_API void lathe_object_release(int32_t kind, void *);
/* Two handles of the same thing?  id is equal exactly for those. */
LATHE_RT_API int32_t lathe_object_same(const LatheValue *, const LatheValue *);
LATHE_RT_API uint64_t lathe_object_id(int32_t kind, const void *);
/* Handles of the context that are not released yet. */
LATHE_RT_API int64_t lathe_object_count(const LatheContext *);

LATHE_RT_API const char *lathe_error_name(int32_t code);
LATHE_RT_API const char *lathe_error_message(LatheContext *);
/* Source position of the error, where there is one; returns 0 if none. */
LATHE_RT_API int32_t lathe_error_location(LatheContext *, const char **file, int32_t *line, int32_t *col);

/* ---- models, in one call --------------------------------------------------------------- */

typedef struct LatheShape {
  const char *input; /* name of an input */
  int32_t ndim;
  const int64_t *dims; /* -1: stays open until run time */
} LatheShape;
typedef struct LatheCompileOptions {
  const char *target; /* NULL: this machine */
  int32_t opt_level;  /* 0 to 4 */
  int32_t nshapes;
  const LatheShape *shapes;
  const char *external_data_root; /* NULL: the model's folder */
} LatheCompileOptions;
/* Compiles an ONNX file (options NULL: opt_level 3, nothing else).  The first writes one file
 * that lathe_rt_model_load takes; the second gives a model that runs here, to be given back with
 * lathe_rt_model_free before the context goes.  Both return 0 or an error kind, as lathe_call does. */
LATHE_RT_API int32_t lathe_compile_onnx(LatheContext *, const char *path, const LatheCompileOptions *,
                                        const char *output);
LATHE_RT_API int32_t lathe_load_onnx(LatheContext *, const char *path, const LatheCompileOptions *, LatheRtModel **out);

/* ---- listings and settings ---------------------------------------------------------------- */

/* name, signature and doc of function number i; 0 when there are no more. */
LATHE_RT_API int32_t lathe_functions(int32_t i, const char **name, const char **signature, const char **doc);

/* poll is called now and then during long work; non-zero stops it. */
LATHE_RT_API void lathe_set_poll(LatheContext *, int32_t (*poll)(void *), void *user);
/* Testing: the n-th allocation from now fails. */
LATHE_RT_API int64_t lathe_fail_allocation(LatheContext *, int64_t n);
LATHE_RT_API const char *lathe_version(void);

#ifdef __cplusplus
}
#endif
#endif
