/* xgboost.c: libxgboost's C interface, found at run time: $LATHE_XGBOOST_LIBRARY, the file itself, or by its name where
 * the dynamic linker looks (Debian: libxgboost0; a wheel of xgboost carries it in xgboost/lib). */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "tune/tune.h"

typedef void *Handle;
/* clang-format off */
#define FUNCTIONS(X)                                                                                                  \
  X(XGDMatrixCreateFromMat, int, (const float *, uint64_t, uint64_t, float, Handle *))                                \
  X(XGDMatrixSetFloatInfo, int, (Handle, const char *, const float *, uint64_t))                                      \
  X(XGDMatrixFree, int, (Handle))                                                                                     \
  X(XGBoosterCreate, int, (const Handle *, uint64_t, Handle *))                                                       \
  X(XGBoosterFree, int, (Handle))                                                                                     \
  X(XGBoosterSetParam, int, (Handle, const char *, const char *))                                                     \
  X(XGBoosterUpdateOneIter, int, (Handle, int, Handle))                                                               \
  X(XGBoosterPredict, int, (Handle, Handle, int, unsigned, int, uint64_t *, const float **))
/* clang-format on */

static struct {
#define X(name, result, args) result(*name) args;
  FUNCTIONS(X)
#undef X
} api;
static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
  const char *given = getenv("LATHE_XGBOOST_LIBRARY");
  void *lib = dlopen(given && *given ? given : "libxgboost.so", RTLD_LAZY | RTLD_LOCAL);
  if (!lib && !(given && *given)) lib = dlopen("libxgboost.so.0", RTLD_LAZY | RTLD_LOCAL);
  found = lib != NULL;
#define X(name, result, args)                       \
  if (lib) *(void **)&api.name = dlsym(lib, #name); \
  found = found && api.name;
  FUNCTIONS(X)
#undef X
}

static Handle matrix(Arena *arena, int width, int n, const double *rows)
{
  size_t count = (size_t)width * (size_t)n;
  float *data = arena_array(arena, float, count + 1);
  Handle h = NULL;
  for (size_t i = 0; i < count; i++) data[i] = (float)rows[i];
  if (api.XGDMatrixCreateFromMat(data, (uint64_t)n, (uint64_t)width, NAN, &h)) return NULL;
  return h;
}

/* One thread: others are measuring; one seed: the same records give the same thoughts. */
static bool train(Handle booster, Handle data)
{
  enum { ROUNDS = 60 };
  static const char *const params[][2] = {
    {"verbosity", "0"}, {"nthread", "1"},          {"seed", "1"},   {"max_depth", "5"},
    {"eta", "0.15"},    {"min_child_weight", "1"}, {"lambda", "1"}, {"objective", "reg:squarederror"}};
  for (size_t i = 0; i < sizeof params / sizeof *params; i++)
    if (api.XGBoosterSetParam(booster, params[i][0], params[i][1])) return false;
  for (int i = 0; i < ROUNDS; i++)
    if (api.XGBoosterUpdateOneIter(booster, i, data)) return false;
  return true;
}

bool tune_xgboost(Arena *arena, int width, int n, const double *rows, const double *y, int m, const double *others,
                  double *out)
{
  pthread_once(&once, find);
  if (!found) return false;
  float *label = arena_array(arena, float, n + 1);
  for (int i = 0; i < n; i++) label[i] = (float)y[i];
  Handle data = matrix(arena, width, n, rows);
  Handle asked = matrix(arena, width, m, others);
  Handle booster = NULL;
  const float *said = NULL;
  uint64_t count = 0;
  bool ok = data && asked && !api.XGDMatrixSetFloatInfo(data, "label", label, (uint64_t)n) &&
            !api.XGBoosterCreate(&data, 1, &booster) && train(booster, data) &&
            !api.XGBoosterPredict(booster, asked, 0, 0, 0, &count, &said) && count == (uint64_t)m;
  for (int i = 0; ok && i < m; i++) out[i] = said[i];
  if (booster) api.XGBoosterFree(booster);
  if (asked) api.XGDMatrixFree(asked);
  if (data) api.XGDMatrixFree(data);
  return ok;
}
