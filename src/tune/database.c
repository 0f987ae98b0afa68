/* database.c: records and verdicts in an SQLite file.
 *
 * workloads: what was tuned; records: what was measured of it, a row each; networks: models measured whole.  Repeats
 * are lists of seconds as JSON has them.  An entry has a uid, by which an import knows what is there already. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tune/sqlite.h"
#include "tune/tune.h"

enum { VERSION = 2, MARK = 0x4c617468 /* "Lath" */ };

struct Db {
  Ctx *ctx;
  const SqliteApi *api;
  sqlite3 *h;
  char *path;
  uint64_t count; /* of entries that were put */
};

static const char schema[] =
    "CREATE TABLE workloads(id INTEGER PRIMARY KEY, name TEXT NOT NULL, target TEXT NOT NULL, what TEXT NOT NULL,"
    " UNIQUE(name, target));"
    "CREATE TABLE records(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, workload INTEGER NOT NULL REFERENCES"
    " workloads(id), kind TEXT NOT NULL, candidate TEXT NOT NULL, status TEXT NOT NULL, note TEXT NOT NULL, predicted"
    " REAL NOT NULL, seconds TEXT NOT NULL, spread REAL NOT NULL, base TEXT NOT NULL, base_seconds TEXT NOT NULL, ratio"
    " REAL NOT NULL, ratio_spread REAL NOT NULL, beats INTEGER NOT NULL, threads INTEGER NOT NULL, machine TEXT NOT"
    " NULL, lathe TEXT NOT NULL, made INTEGER NOT NULL, features TEXT NOT NULL DEFAULT '');"
    "CREATE INDEX records_of ON records(workload);"
    "CREATE TABLE networks(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, model TEXT NOT NULL, target TEXT NOT NULL,"
    " plans TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, ratio REAL NOT NULL, ratio_spread REAL NOT NULL,"
    " threads INTEGER NOT NULL, machine TEXT NOT NULL, lathe TEXT NOT NULL, made INTEGER NOT NULL);"
    "CREATE INDEX networks_of ON networks(model, target);";

static const char *const status_names[] = {
#define X(id, name) name,
  TUNE_STATES(X)
#undef X
};
const char *tune_status_name(TuneStatus s) { return status_names[s]; }

/* ---- errors ------------------------------------------------------------------------------------ */

_Noreturn static void fail(Db *db, int code)
{
  int number = db->api->system_errno(db->h);
  const char *why = number ? strerror(number) : db->api->errstr(code);
  switch (code & 0xff) {
  case SQLITE_NOTADB:
    raise(db->ctx, ERR_IO, NOWHERE, "'%s' is no database: name a new file, or one that 'lathe tune' made", db->path);
  case SQLITE_CORRUPT:
    raise(db->ctx, ERR_IO, NOWHERE,
          "the database '%s' is damaged: 'sqlite3 FILE .recover' saves what can be read, 'lathe db import' takes an "
          "export",
          db->path);
  case SQLITE_FULL:
  case SQLITE_IOERR:
    raise(db->ctx, ERR_IO, NOWHERE, "the database '%s' cannot be written (%s); what it held before is still there",
          db->path, why);
  case SQLITE_READONLY:
  case SQLITE_CANTOPEN:
    raise(db->ctx, ERR_IO, NOWHERE, "the database '%s' cannot be opened to write: %s", db->path, why);
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    raise(db->ctx, ERR_IO, NOWHERE, "another program has held the database '%s' for too long", db->path);
  case SQLITE_NOMEM: raise(db->ctx, ERR_MEMORY, NOWHERE, "out of memory");
  default: raise(db->ctx, ERR_IO, NOWHERE, "the database '%s': %s", db->path, db->api->errmsg(db->h));
  }
}

static void run(Db *db, const char *sql)
{
  int code = db->api->exec(db->h, sql, NULL, NULL, NULL);
  if (code != SQLITE_OK) fail(db, code);
}

/* ---- statements -------------------------------------------------------------------------------------- */

typedef struct Query {
  Db *db;
  sqlite3_stmt *s;
  int bound;
} Query;

static void end_query(void *arg)
{
  Query *q = arg;
  q->db->api->finalize(q->s);
}

/* Goes with the caller's scope. */
static Query *query(Db *db, const char *sql)
{
  Query *q = arena_new_of(scratch(db->ctx), Query);
  q->db = db;
  int code = db->api->prepare_v2(db->h, sql, -1, &q->s, NULL);
  if (code != SQLITE_OK) fail(db, code);
  defer(db->ctx, end_query, q);
  return q;
}

static void bind(Query *q, const char *text)
{
  q->bound++;
  if (text) q->db->api->bind_text(q->s, q->bound, text, -1, SQLITE_TRANSIENT);
  else q->db->api->bind_null(q->s, q->bound);
}
static void bind_int(Query *q, int64_t v) { q->db->api->bind_int64(q->s, ++q->bound, v); }
static void bind_float(Query *q, double v) { q->db->api->bind_double(q->s, ++q->bound, v); }

/* The next row; false: there is none. */
static bool step(Query *q)
{
  int code = q->db->api->step(q->s);
  if (code != SQLITE_ROW && code != SQLITE_DONE) fail(q->db, code);
  return code == SQLITE_ROW;
}

static const char *text_at(Query *q, int i)
{
  const unsigned char *s = q->db->api->column_text(q->s, i);
  return s ? (const char *)s : "";
}
static const char *copy_at(Query *q, Arena *a, int i) { return arena_strdup(a, text_at(q, i)); }
static int64_t int_at(Query *q, int i) { return q->db->api->column_int64(q->s, i); }
static double float_at(Query *q, int i) { return q->db->api->column_double(q->s, i); }
static bool null_at(Query *q, int i) { return q->db->api->column_type(q->s, i) == SQLITE_NULL; }

static int64_t one_int(Db *db, const char *sql)
{
  Scope scope = scope_begin(db->ctx);
  Query *q = query(db, sql);
  int64_t v = step(q) ? int_at(q, 0) : 0;
  scope_end(db->ctx, scope);
  return v;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

void db_close(Db *db)
{
  if (db->h) db->api->close_v2(db->h);
  mem_free(db->ctx, db->path);
  mem_free(db->ctx, db);
}

static void check_sound(Db *db)
{
  Scope scope = scope_begin(db->ctx);
  Query *q = query(db, "PRAGMA quick_check(1)");
  if (!step(q) || strcmp(text_at(q, 0), "ok")) fail(db, SQLITE_CORRUPT);
  scope_end(db->ctx, scope);
}

/* Version 1 kept nothing of what the cost model reads. */
static void add_features(Db *db)
{
  run(db, "BEGIN IMMEDIATE");
  if (one_int(db, "PRAGMA user_version") == 1)
    run(db, "ALTER TABLE records ADD COLUMN features TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 2");
  run(db, "COMMIT");
}

/* A new file gets its tables; any other has to be ours. */
static void prepare_file(Db *db)
{
  int64_t mark = one_int(db, "PRAGMA application_id");
  if (mark != MARK) {
    run(db, "BEGIN IMMEDIATE");
    mark = one_int(db, "PRAGMA application_id"); /* another tuner may have been faster */
    int64_t tables = one_int(db, "SELECT count(*) FROM sqlite_master");
    if (mark != MARK && (mark || tables)) {
      run(db, "ROLLBACK");
      raise(db->ctx, ERR_IO, NOWHERE, "'%s' is a database of another program", db->path);
    }
    if (mark != MARK) {
      run(db, schema);
      run(db, "PRAGMA application_id = 1281455208; PRAGMA user_version = 2");
    }
    run(db, "COMMIT");
  }
  if (one_int(db, "PRAGMA user_version") == 1) add_features(db);
  int64_t version = one_int(db, "PRAGMA user_version");
  if (version != VERSION)
    raise(db->ctx, ERR_IO, NOWHERE, "the database '%s' has version %" PRId64 ", this Lathe reads version %d", db->path,
          version, VERSION);
  check_sound(db);
}
_Static_assert(MARK == 1281455208, "as the statement above writes it");

typedef struct Opening {
  Db *db;
  bool create;
} Opening;

static void open_file(Ctx *ctx, void *arg)
{
  enum { PATIENCE_MS = 20000 };
  Opening *o = arg;
  Db *db = o->db;
  db->api = db_sqlite(ctx);
  if (!o->create && access(db->path, F_OK))
    raise(ctx, ERR_IO, NOWHERE, "there is no database '%s'; 'lathe tune' makes one", db->path);
  int code = db->api->open_v2(db->path, &db->h, SQLITE_OPEN_READWRITE | (o->create ? SQLITE_OPEN_CREATE : 0), NULL);
  if (code != SQLITE_OK) fail(db, code);
  db->api->busy_timeout(db->h, PATIENCE_MS);
  prepare_file(db);
  run(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
}

Db *db_open(Ctx *ctx, const char *path, bool create)
{
  Db *db = mem_alloc(ctx, sizeof *db);
  *db = (Db){.ctx = ctx};
  db->path = mem_alloc(ctx, strlen(path) + 1);
  strcpy(db->path, path);
  Opening o = {db, create};
  if (protect(ctx, open_file, &o) == ERR_NONE) return db;
  db_close(db);
  error_reraise(ctx);
}

/* ---- repeats as text ------------------------------------------------------------------------------------- */

static const char *repeats_text(Arena *arena, const Repeats *r)
{
  Text t = text_new(arena);
  text_char(&t, '[');
  for (int i = 0; i < r->n; i++) text_printf(&t, "%s%.6g", i ? ", " : "", r->seconds[i]);
  text_char(&t, ']');
  return text_str(&t);
}

static Repeats repeats_of(Arena *arena, const char *text)
{
  Vec(double) v = {0};
  while (*text) {
    char *end;
    double x = strtod(text, &end);
    if (end == text) text++;
    else {
      vec_push(arena, &v, x);
      text = end;
    }
  }
  return (Repeats){v.n, v.v};
}

static double relative_spread(Arena *a, const Repeats *r)
{
  double middle = tune_median(a, r->n, r->seconds);
  if (middle <= 0) return 0;
  return 0.5 * (tune_quartile(a, r->n, r->seconds, 0.75) - tune_quartile(a, r->n, r->seconds, 0.25)) / middle;
}

/* ---- putting --------------------------------------------------------------------------------------------- */

static const char *machine_name(Arena *arena)
{
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return arena_printf(arena, "%s, %s", host, target_host(arena_ctx(arena))->cpu);
}

static DbOrigin complete(Db *db, Arena *arena, const DbOrigin *given)
{
  DbOrigin o = *given;
  if (!o.machine) o.machine = machine_name(arena);
  if (!o.lathe) o.lathe = LATHE_VERSION;
  if (!o.made) o.made = (int64_t)time(NULL);
  if (!o.uid) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const char *seed = arena_printf(arena, "%s %lld %ld %ld %" PRIu64, o.machine, (long long)t.tv_sec, t.tv_nsec,
                                    (long)getpid(), ++db->count);
    o.uid = arena_printf(arena, "%016" PRIx64, hash_bytes(seed, strlen(seed), 7));
  }
  return o;
}

static void bind_origin(Query *q, const DbOrigin *o)
{
  bind(q, o->machine);
  bind(q, o->lathe);
  bind_int(q, o->made);
  bind(q, o->uid);
}

bool db_put(Db *db, const TuneRecord *r)
{
  Scope scope = scope_begin(db->ctx);
  Arena *a = scratch(db->ctx);
  DbOrigin origin = complete(db, a, &r->origin);
  Query *w = query(db, "INSERT OR IGNORE INTO workloads(name, target, what) VALUES (?1, ?2, ?3)");
  bind(w, r->workload);
  bind(w, r->target);
  bind(w, r->what ? r->what : "");
  step(w);
  Query *q = query(
      db, "INSERT OR IGNORE INTO records(workload, kind, candidate, status, note, predicted, seconds, spread, base,"
          " base_seconds, ratio, ratio_spread, beats, threads, machine, lathe, made, uid, features) VALUES ((SELECT id"
          " FROM workloads WHERE name = ?1 AND target = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
          " ?16, ?17, ?18, ?19, ?20)");
  bool ok = r->status == TUNE_OK;
  Comparison c = ok ? tune_compare(a, &r->base_seconds, &r->seconds) : (Comparison){0};
  bind(q, r->workload);
  bind(q, r->target);
  bind(q, r->kind);
  bind(q, r->candidate);
  bind(q, tune_status_name(r->status));
  bind(q, r->note ? r->note : "");
  bind_float(q, r->predicted);
  bind(q, repeats_text(a, &r->seconds));
  bind_float(q, relative_spread(a, &r->seconds));
  bind(q, r->base ? r->base : "");
  bind(q, repeats_text(a, &r->base_seconds));
  bind_float(q, c.ratio);
  bind_float(q, c.spread);
  bind_int(q, ok && tune_beats(a, &r->base_seconds, &r->seconds));
  bind_int(q, r->threads);
  bind_origin(q, &origin);
  bind(q, r->nfeatures ? repeats_text(a, &(Repeats){r->nfeatures, r->features}) : "");
  step(q);
  bool put = db->api->changes(db->h) > 0;
  scope_end(db->ctx, scope);
  return put;
}

bool db_put_verdict(Db *db, const TuneVerdict *v)
{
  Scope scope = scope_begin(db->ctx);
  Arena *a = scratch(db->ctx);
  DbOrigin origin = complete(db, a, &v->origin);
  Query *q =
      query(db, "INSERT OR IGNORE INTO networks(model, target, plans, before, after, ratio, ratio_spread, threads,"
                " machine, lathe, made, uid) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)");
  Comparison c = tune_compare(a, &v->before, &v->after);
  bind(q, v->model);
  bind(q, v->target);
  bind(q, v->plans);
  bind(q, repeats_text(a, &v->before));
  bind(q, repeats_text(a, &v->after));
  bind_float(q, c.ratio);
  bind_float(q, c.spread);
  bind_int(q, v->threads);
  bind_origin(q, &origin);
  step(q);
  bool put = db->api->changes(db->h) > 0;
  scope_end(db->ctx, scope);
  return put;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static TuneStatus status_of(const char *name)
{
  for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++)
    if (!strcmp(status_names[i], name)) return (TuneStatus)i;
  return TUNE_ERROR;
}

#define RECORD_FIELDS                                                                                                \
  "w.name, w.target, w.what, r.kind, r.candidate, r.status, r.note, r.predicted, r.seconds, r.base, r.base_seconds," \
  " r.ratio, r.ratio_spread, r.threads, r.uid, r.machine, r.lathe, r.made, r.features"

static TuneRecord record_at(Query *q, Arena *a)
{
  Repeats features = repeats_of(a, text_at(q, 18));
  return (TuneRecord){.workload = copy_at(q, a, 0),
                      .target = copy_at(q, a, 1),
                      .what = copy_at(q, a, 2),
                      .kind = copy_at(q, a, 3),
                      .candidate = copy_at(q, a, 4),
                      .status = status_of(text_at(q, 5)),
                      .note = copy_at(q, a, 6),
                      .predicted = float_at(q, 7),
                      .seconds = repeats_of(a, text_at(q, 8)),
                      .base = copy_at(q, a, 9),
                      .base_seconds = repeats_of(a, text_at(q, 10)),
                      .against = {float_at(q, 11), float_at(q, 12)},
                      .threads = (int)int_at(q, 13),
                      .nfeatures = features.n,
                      .features = features.seconds,
                      .origin = {copy_at(q, a, 14), copy_at(q, a, 15), copy_at(q, a, 16), int_at(q, 17)}};
}

void db_each(Db *db, const char *workload, const char *target, void (*fn)(void *, const TuneRecord *), void *env)
{
  Scope scope = scope_begin(db->ctx);
  Query *q = query(db, "SELECT " RECORD_FIELDS " FROM records r JOIN workloads w ON w.id = r.workload WHERE (?1 IS NULL"
                       " OR w.name = ?1) AND (?2 IS NULL OR w.target = ?2) ORDER BY r.id");
  bind(q, workload);
  bind(q, target);
  while (step(q)) {
    Scope inner = scope_begin(db->ctx);
    TuneRecord r = record_at(q, scratch(db->ctx));
    fn(env, &r);
    scope_end(db->ctx, inner);
  }
  scope_end(db->ctx, scope);
}

const char *db_verdict(Db *db, Arena *arena, const char *model, const char *target)
{
  Scope scope = scope_begin(db->ctx);
  Query *q =
      query(db, "SELECT plans FROM networks WHERE model = ?1 AND target = ?2 ORDER BY made DESC, id DESC LIMIT 1");
  bind(q, model);
  bind(q, target);
  const char *plans = step(q) ? copy_at(q, arena, 0) : NULL;
  scope_end(db->ctx, scope);
  return plans;
}

/* Of several measurements of one candidate the newest counts. */
const char *db_winners(Db *db, Arena *arena, const char *target)
{
  Scope scope = scope_begin(db->ctx);
  Text out = text_new(arena);
  Query *q =
      query(db, "SELECT w.name, r.base, r.candidate, r.ratio FROM records r JOIN workloads w ON w.id = r.workload WHERE"
                " w.target = ?1 AND r.kind = 'plan' AND r.id IN (SELECT max(id) FROM records GROUP BY workload, base,"
                " candidate) AND r.beats ORDER BY w.name, r.base, r.ratio");
  bind(q, target);
  const char *last = "";
  while (step(q)) {
    const char *pair = arena_printf(scratch(db->ctx), "%s %s", text_at(q, 0), text_at(q, 1));
    if (!strcmp(pair, last)) continue;
    text_printf(&out, "%s => %s\n", pair, text_at(q, 2));
    last = pair;
  }
  scope_end(db->ctx, scope);
  return text_str(&out);
}

typedef struct BestTrace {
  Arena *arena;
  const char *trace;
  double seconds;
} BestTrace;

static void compare_trace(void *env, const TuneRecord *r)
{
  BestTrace *b = env;
  bool fit = !strcmp(r->kind, "trace") && r->status == TUNE_OK && tune_beats(b->arena, &r->base_seconds, &r->seconds);
  double seconds = fit ? tune_median(b->arena, r->seconds.n, r->seconds.seconds) : 0;
  if (!fit || (b->trace && seconds >= b->seconds)) return;
  b->trace = arena_strdup(b->arena, r->candidate);
  b->seconds = seconds;
}

const char *db_best_trace(Db *db, Arena *arena, const char *workload, const char *target)
{
  BestTrace b = {.arena = arena};
  db_each(db, workload, target, compare_trace, &b);
  return b.trace;
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

static const char *rows(Query *q, Arena *arena)
{
  Text out = text_new(arena);
  while (step(q)) text_printf(&out, "%s\n", text_at(q, 0));
  return text_str(&out);
}

const char *db_list(Db *db, Arena *arena, bool json)
{
  Scope scope = scope_begin(db->ctx);
  static const char from[] = " FROM workloads w LEFT JOIN records r ON r.workload = w.id GROUP BY w.id ORDER BY w.id";
  static const char as_json[] =
      "json_object('workload', w.name, 'target', w.target, 'what', w.what, 'records', count(r.id), 'failed',"
      " sum(r.status <> 'ok'), 'best_ratio', min(CASE WHEN r.beats THEN r.ratio END))";
  static const char as_text[] =
      "printf('%s  %d records, %d failed, %s  %s', w.name, count(r.id), sum(r.status <> 'ok'), CASE WHEN max(r.beats)"
      " THEN printf('%.2f times as fast', 1 / min(CASE WHEN r.beats THEN r.ratio END)) ELSE 'none faster' END, w.what)";
  Query *q = query(db, arena_printf(scratch(db->ctx), "SELECT %s%s", json ? as_json : as_text, from));
  const char *text = rows(q, arena);
  scope_end(db->ctx, scope);
  return text;
}

const char *db_show(Db *db, Arena *arena, const char *workload, bool json)
{
  Scope scope = scope_begin(db->ctx);
  static const char from[] =
      " FROM records r JOIN workloads w ON w.id = r.workload WHERE instr(w.name, ?1) ORDER BY w.id,"
      " r.status <> 'ok', r.ratio, r.id";
  static const char as_json[] =
      "json_object('workload', w.name, 'target', w.target, 'candidate', r.candidate, 'status', r.status, 'note', "
      "r.note,"
      " 'predicted', r.predicted, 'seconds', json(r.seconds), 'spread', r.spread, 'base', r.base, 'base_seconds',"
      " json(r.base_seconds), 'ratio', r.ratio, 'ratio_spread', r.ratio_spread, 'beats', json(CASE WHEN r.beats THEN"
      " 'true' ELSE 'false' END), 'threads', r.threads, 'machine', r.machine, 'lathe', r.lathe, 'made', r.made)";
  static const char as_text[] =
      "CASE WHEN r.status = 'ok' THEN printf('%s %s  %.3f +- %.3f of the untuned time  %s%s',"
      " CASE WHEN r.beats THEN '*' ELSE ' ' END, w.name, r.ratio, r.ratio_spread, r.candidate,"
      " CASE WHEN r.candidate = r.base THEN ' (untuned)' ELSE '' END) ELSE"
      " printf('  %s  %s: %s  %s', w.name, r.status, r.note, r.candidate) END";
  Query *q = query(db, arena_printf(scratch(db->ctx), "SELECT %s%s", json ? as_json : as_text, from));
  bind(q, workload);
  const char *text = rows(q, arena);
  if (!*text)
    raise(db->ctx, ERR_ARGUMENT, NOWHERE,
          "the database '%s' has no workload with '%s' in its name; 'lathe db list' shows"
          " them",
          db->path, workload);
  scope_end(db->ctx, scope);
  return text;
}

/* ---- lines of JSON --------------------------------------------------------------------------------------- */

const char *db_export(Db *db, Arena *arena)
{
  Scope scope = scope_begin(db->ctx);
  Query *q = query(
      db,
      "SELECT json_object('lathe', 1, 'entry', 'record', 'uid', r.uid, 'workload', w.name, 'target', w.target, 'what',"
      " w.what, 'kind', r.kind, 'candidate', r.candidate, 'status', r.status, 'note', r.note, 'predicted',"
      " r.predicted, 'seconds', json(r.seconds), 'base', r.base, 'base_seconds', json(r.base_seconds), 'threads',"
      " r.threads, 'machine', r.machine, 'lathe_version', r.lathe, 'made', r.made, 'features', json(CASE r.features "
      "WHEN"
      " '' THEN '[]' ELSE r.features END)) FROM records r JOIN workloads w ON w.id = r.workload ORDER BY r.id");
  const char *records = rows(q, arena);
  q = query(db,
            "SELECT json_object('lathe', 1, 'entry', 'network', 'uid', uid, 'model', model, 'target', target, 'plans',"
            " plans, 'before', json(before), 'after', json(after), 'threads', threads, 'machine', machine,"
            " 'lathe_version', lathe, 'made', made) FROM networks ORDER BY id");
  const char *all = arena_printf(arena, "%s%s", records, rows(q, arena));
  scope_end(db->ctx, scope);
  return all;
}

/* NULL, or what is wrong with a line. */
static const char *line_fault(Db *db, const char *line)
{
  Query *q = query(
      db,
      "SELECT CASE WHEN NOT json_valid(?1) THEN 'is no JSON' WHEN json_type(?1) <> 'object' THEN 'is no object' WHEN"
      " json_extract(?1, '$.lathe') IS NOT 1 THEN 'is not of this form (field lathe: 1)' WHEN json_extract(?1,"
      " '$.entry') = 'record' THEN CASE WHEN json_type(?1, '$.workload') IS NOT 'text' OR json_type(?1, '$.target') IS"
      " NOT 'text' OR json_type(?1, '$.candidate') IS NOT 'text' OR json_type(?1, '$.status') IS NOT 'text' OR"
      " json_type(?1, '$.seconds') IS NOT 'array' OR json_type(?1, '$.uid') IS NOT 'text' THEN 'lacks a field of a"
      " record' END WHEN json_extract(?1, '$.entry') = 'network' THEN CASE WHEN json_type(?1, '$.model') IS NOT 'text'"
      " OR json_type(?1, '$.target') IS NOT 'text' OR json_type(?1, '$.plans') IS NOT 'text' OR json_type(?1,"
      " '$.uid') IS NOT 'text' THEN 'lacks a field of a network' END ELSE 'is neither a record nor a network' END");
  bind(q, line);
  step(q);
  return null_at(q, 0) ? NULL : copy_at(q, scratch(db->ctx), 0);
}

/* A sound line; false: its uid is there already. */
static bool take_line(Db *db, const char *line)
{
  Arena *a = scratch(db->ctx);
  Query *q = query(
      db,
      "SELECT json_extract(?1, '$.entry'), json_extract(?1, '$.uid'), json_extract(?1, '$.machine'), json_extract(?1,"
      " '$.lathe_version'), json_extract(?1, '$.made'), json_extract(?1, '$.target'), json_extract(?1, '$.threads'),"
      " json_extract(?1, '$.workload'), json_extract(?1, '$.what'), json_extract(?1, '$.kind'), json_extract(?1,"
      " '$.candidate'), json_extract(?1, '$.status'), json_extract(?1, '$.note'), json_extract(?1, '$.predicted'),"
      " json_extract(?1, '$.seconds'), json_extract(?1, '$.base'), json_extract(?1, '$.base_seconds'),"
      " json_extract(?1, '$.model'), json_extract(?1, '$.plans'), json_extract(?1, '$.before'), json_extract(?1,"
      " '$.after'), json_extract(?1, '$.features')");
  bind(q, line);
  step(q);
  DbOrigin origin = {copy_at(q, a, 1), copy_at(q, a, 2), copy_at(q, a, 3), int_at(q, 4)};
  if (!strcmp(text_at(q, 0), "network"))
    return db_put_verdict(db, &(TuneVerdict){.model = copy_at(q, a, 17),
                                             .target = copy_at(q, a, 5),
                                             .plans = copy_at(q, a, 18),
                                             .before = repeats_of(a, text_at(q, 19)),
                                             .after = repeats_of(a, text_at(q, 20)),
                                             .threads = (int)int_at(q, 6),
                                             .origin = origin});
  Repeats features = repeats_of(a, text_at(q, 21));
  return db_put(db, &(TuneRecord){.workload = copy_at(q, a, 7),
                                  .target = copy_at(q, a, 5),
                                  .what = copy_at(q, a, 8),
                                  .kind = null_at(q, 9) ? "plan" : copy_at(q, a, 9),
                                  .candidate = copy_at(q, a, 10),
                                  .status = status_of(text_at(q, 11)),
                                  .note = copy_at(q, a, 12),
                                  .predicted = float_at(q, 13),
                                  .seconds = repeats_of(a, text_at(q, 14)),
                                  .base = copy_at(q, a, 15),
                                  .base_seconds = repeats_of(a, text_at(q, 16)),
                                  .threads = (int)int_at(q, 6),
                                  .nfeatures = features.n,
                                  .features = features.seconds,
                                  .origin = origin});
}

static void roll_back(void *arg)
{
  Db *db = arg;
  db->api->exec(db->h, "ROLLBACK", NULL, NULL, NULL); /* nothing, where the transaction has ended */
}

DbCount db_import(Db *db, Arena *arena, const char *lines)
{
  DbCount count = {0};
  Scope all = scope_begin(db->ctx);
  run(db, "BEGIN IMMEDIATE");
  defer(db->ctx, roll_back, db);
  for (int64_t number = 1; *lines; number++) {
    Scope scope = scope_begin(db->ctx);
    size_t n = strcspn(lines, "\n");
    const char *line = arena_strndup(scratch(db->ctx), lines, n);
    lines += n + (lines[n] != 0);
    bool blank = strspn(line, " \t\r") == n;
    const char *fault = blank ? NULL : line_fault(db, line);
    if (fault && !count.bad++) count.first_bad = arena_printf(arena, "line %" PRId64 " %s", number, fault);
    if (!blank && !fault) *(take_line(db, line) ? &count.taken : &count.known) += 1;
    scope_end(db->ctx, scope);
  }
  run(db, "COMMIT");
  scope_end(db->ctx, all);
  return count;
}

static void close_other(void *arg) { db_close(arg); }

DbCount db_merge(Db *db, Arena *arena, const char *path)
{
  Scope scope = scope_begin(db->ctx);
  Db *other = db_open(db->ctx, path, false);
  defer(db->ctx, close_other, other);
  DbCount count = db_import(db, arena, db_export(other, arena));
  scope_end(db->ctx, scope);
  return count;
}

int64_t db_prune(Db *db)
{
  int64_t before = one_int(db, "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM networks)");
  run(db,
      "BEGIN IMMEDIATE;"
      "DELETE FROM records WHERE NOT beats OR id NOT IN (SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY"
      " workload, kind, base ORDER BY ratio, id DESC) AS place FROM records WHERE beats) WHERE place = 1);"
      "DELETE FROM networks WHERE id NOT IN (SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY model, target"
      " ORDER BY made DESC, id DESC) AS place FROM networks) WHERE place = 1);"
      "DELETE FROM workloads WHERE id NOT IN (SELECT workload FROM records);"
      "COMMIT; VACUUM");
  return before - one_int(db, "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM networks)");
}
