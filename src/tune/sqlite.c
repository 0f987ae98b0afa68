/* sqlite.c: finding libsqlite3: $LATHE_SQLITE_LIBRARY, the file itself, or by its name where the dynamic linker
 * looks. */
#include "tune/sqlite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static SqliteApi api;
static const char *missing;
static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
  const char *given = getenv("LATHE_SQLITE_LIBRARY");
  void *lib = dlopen(given && *given ? given : "libsqlite3.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (!lib) return;
  found = true;
#define X(name)                                       \
  *(void **)&api.name = dlsym(lib, "sqlite3_" #name); \
  if (!api.name && !missing) missing = "sqlite3_" #name;
  SQLITE_FUNCTIONS(X)
#undef X
}

const SqliteApi *db_sqlite(Ctx *ctx)
{
  pthread_once(&once, find);
  if (!found)
    raise(
        ctx, ERR_UNSUPPORTED, NOWHERE,
        "tuning keeps its results with SQLite, and libsqlite3.so.0 was not found: install it (Debian: libsqlite3-0) or "
        "name the file in LATHE_SQLITE_LIBRARY");
  if (missing) raise(ctx, ERR_UNSUPPORTED, NOWHERE, "the libsqlite3 that was found has no %s: it is too old", missing);
  return &api;
}
