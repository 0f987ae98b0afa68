/* sqlite.h: SQLite's C interface, from a library that is found at run time; for database.c. */
#ifndef LATHE_TUNE_SQLITE_H
#define LATHE_TUNE_SQLITE_H

#include "tune/sqlite3.h"

#include "base/base.h"

/* The functions that are called, without their prefix sqlite3_. */
/* clang-format off */
#define SQLITE_FUNCTIONS(X)                                                                                \
  X(open_v2) X(close_v2) X(errmsg) X(errstr) X(exec) X(prepare_v2) X(step) X(finalize) X(busy_timeout)     \
  X(bind_text) X(bind_int64) X(bind_double) X(bind_null) X(column_text) X(column_int64) X(column_double)   \
  X(column_count) X(column_name) X(column_type) X(changes) X(system_errno)
/* clang-format on */

typedef struct SqliteApi {
#define X(name) __typeof__(sqlite3_##name) *name;
  SQLITE_FUNCTIONS(X)
#undef X
} SqliteApi;

/* Found once for the process; raises ERR_UNSUPPORTED with what to install. */
const SqliteApi *db_sqlite(Ctx *);

#endif
