/* tir.c: the commands over loop programs: lower, build, targets.
 *
 * In: a file of TVMScript.  Out: its text at a stage, or compiled code. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define MAX_FUNCTIONS 256

typedef struct Input {
  LatheValue module, target, functions[MAX_FUNCTIONS];
  int n;
} Input;

/* Parses the input file; keeps the functions that --function names (all without).  writes_code: what is written
 * follows from the output's name, which is checked before anything else. */
static bool load(LatheContext *context, const Options *o, bool writes_code, Input *in, int *status)
{
  LatheValue target = o->target ? cli_str_value(o->target) : cli_none_value();
  LatheValue out;
  if (!cli_call(context, status, "target", 1, &target, &in->target)) return false;
  LatheValue check[] = {in->target, o->output ? cli_str_value(o->output) : cli_none_value()};
  if (writes_code && !cli_call(context, status, "build_check", 2, check, &out)) return false;
  char *text = cli_read_file(o->input, status);
  if (!text) return false;
  LatheValue line = {.tag = LATHE_INT, .u.i = 1};
  LatheValue names = {.tag = LATHE_LIST};
  LatheValue args[] = {cli_str_value(text), cli_str_value(o->input), line, names};
  bool ok = cli_call(context, status, "parse_module", 4, args, &in->module);
  free(text);
  LatheValue list;
  ok = ok && cli_call(context, status, "module_names", 1, &in->module, &list);
  if (!ok) return false;
  char *wanted[MAX_FUNCTIONS];
  int count = 0;
  for (int64_t i = 0; i < list.n && count < MAX_FUNCTIONS; i++)
    if (!o->function || !strcmp(o->function, list.u.list[i].u.s)) wanted[count++] = strdup(list.u.list[i].u.s);
  for (int i = 0; i < count; i++) {
    LatheValue get[] = {in->module, cli_str_value(wanted[i])};
    ok = ok && cli_call(context, status, "module_get", 2, get, &in->functions[in->n]) && ++in->n;
    free(wanted[i]);
  }
  if (ok && in->n == 0) {
    *status = cli_refuse("'%s' holds no function%s%s", o->input, o->function ? " named " : "",
                         o->function ? o->function : "");
  }
  return ok && in->n > 0;
}

static LatheValue config_list(const Options *o, LatheValue store[3])
{
  if (!o->dump_dir) return cli_none_value();
  store[0] = cli_str_value("dump_dir");
  store[1] = cli_str_value(o->dump_dir);
  store[2] = (LatheValue){.tag = LATHE_LIST, .u.list = store, .n = 2};
  return (LatheValue){.tag = LATHE_LIST, .u.list = &store[2], .n = 1};
}

int cli_run_lower(LatheContext *context, const Options *o)
{
  int status = 0;
  Input in = {.n = 0};
  if (!load(context, o, false, &in, &status)) return status;
  LatheValue store[3];
  LatheValue config = config_list(o, store);
  LatheValue out;
  const char *form = o->form ? o->form : "compact";
  if (strcmp(form, "compact") && strcmp(form, "script") && strcmp(form, "input")) {
    LatheValue functions = {.tag = LATHE_LIST, .u.list = in.functions, .n = in.n};
    LatheValue args[] = {functions, in.target, config};
    if (!cli_call(context, &status, "build", 3, args, &out)) return status;
    LatheValue source[] = {out, cli_str_value(form), cli_none_value()};
    if (!strcmp(form, "cuda")) source[2] = (LatheValue){.tag = LATHE_BOOL, .u.i = 1};
    if (!cli_call(context, &status, "built_source", 3, source, &out)) return status;
    return cli_write_text(o->output, out.u.s, out.n);
  }
  for (int i = 0; i < in.n && !status; i++) {
    LatheValue f = in.functions[i];
    LatheValue args[] = {f, in.target, config};
    if (strcmp(form, "input") && !cli_call(context, &status, "lower", 3, args, &f)) return status;
    if (!cli_call(context, &status, strcmp(form, "compact") ? "primfunc_script" : "primfunc_compact", 1, &f, &out))
      return status;
    status = cli_write_text(o->output, out.u.s, out.n);
  }
  return status;
}

/* ---- tuning ------------------------------------------------------------------------------------ */

/* Functions for which the database has a faster schedule are replaced by what it makes of them. */
static bool take_tuned(LatheContext *context, const Options *o, Input *in, int *status)
{
  for (int i = 0; o->tuned && i < in->n; i++) {
    LatheValue trace, schedule, none;
    LatheValue args[] = {cli_str_value(o->tuned), in->functions[i], in->target};
    if (!cli_call(context, status, "tuned_trace", 3, args, &trace)) return false;
    if (trace.tag != LATHE_STR) continue;
    char *text = strdup(trace.u.s);
    LatheValue make[] = {in->functions[i], cli_int_value(1)};
    bool ok = text && cli_call(context, status, "schedule", 2, make, &schedule);
    LatheValue replay[] = {schedule, cli_str_value(text ? text : "")};
    ok = ok && cli_call(context, status, "schedule_replay", 2, replay, &none) &&
         cli_call(context, status, "schedule_func", 1, &schedule, &in->functions[i]);
    free(text);
    if (!ok) return false;
  }
  return true;
}

/* Each function gets its part of the time and of the trials. */
int cli_tune_programs(LatheContext *context, const Options *o, const TuneLimits *limits)
{
  int status = 0;
  Input in = {.n = 0};
  if (!load(context, o, false, &in, &status)) return status;
  if (!cli_find_target(context, o, limits->threads, &status, &in.target)) return status;
  LatheValue worker[MAX_VALUES];
  for (int i = 0; i < o->workers.n; i++) worker[i] = cli_str_value(o->workers.v[i]);
  for (int i = 0; i < in.n; i++) {
    LatheValue out, fields;
    if (!cli_call(context, &status, "primfunc_fields", 1, &in.functions[i], &fields)) return status;
    char *name = strdup(fields.u.list[0].u.s);
    LatheValue args[] = {in.functions[i],
                         in.target,
                         cli_str_value(limits->db),
                         (LatheValue){.tag = LATHE_FLOAT, .u.f = limits->seconds / in.n},
                         cli_int_value(limits->trials ? (limits->trials + in.n - 1) / in.n : 0),
                         cli_bool_value(o->resume),
                         cli_int_value(1),
                         cli_none_value(),
                         (LatheValue){.tag = LATHE_LIST, .u.list = worker, .n = o->workers.n}};
    bool ok = name && cli_call(context, &status, "tune_program", 9, args, &out);
    if (ok) {
      const LatheValue *r = out.u.list;
      double before = r[1].u.f;
      double after = r[2].u.f;
      if (o->json) {
        fputs("{\"function\": ", stdout);
        cli_print_json_text(name);
        printf(", \"before\": %.9g, \"after\": %.9g, \"trials\": %lld, \"failed\": %lld}\n", before, after,
               (long long)r[3].u.i, (long long)r[4].u.i);
      } else if (before > 0)
        printf("%s: %.1f -> %.1f us, %.2f times as fast, %lld measured (%lld failed): build with --tuned %s\n", name,
               1e6 * before, 1e6 * after, after > 0 ? before / after : 1, (long long)r[3].u.i, (long long)r[4].u.i,
               limits->db);
      else
        printf("%s: %.1f us with the best so far, %lld measured (%lld failed): build with --tuned %s\n", name,
               1e6 * after, (long long)r[3].u.i, (long long)r[4].u.i, limits->db);
    }
    free(name);
    if (!ok) return status;
  }
  return 0;
}

int cli_run_build(LatheContext *context, const Options *o)
{
  int status = 0;
  Input in = {.n = 0};
  if (!o->output) return cli_misuse("say where to write with -o FILE (.so, .o, .s, .ll, .c or .cu)");
  if (!load(context, o, true, &in, &status) || !take_tuned(context, o, &in, &status)) return status;
  LatheValue store[3];
  LatheValue functions = {.tag = LATHE_LIST, .u.list = in.functions, .n = in.n};
  LatheValue args[] = {functions, in.target, config_list(o, store)};
  LatheValue out;
  if (!cli_call(context, &status, "build", 3, args, &out)) return status;
  LatheValue export[] = {out, cli_str_value(o->output)};
  if (!cli_call(context, &status, "built_export", 2, export, &out)) return status;
  if (isatty(1)) printf("wrote %s: %d function%s\n", o->output, in.n, in.n == 1 ? "" : "s");
  return 0;
}

/* What a target may begin with: the device that runs the code, and what writes it. */
static void print_kinds(const LatheValue *kinds, bool json)
{
  static const char *const column[] = {"kind", "device", "codegen"};
  if (json) fputs("{\"kinds\": [", stdout);
  else printf("%-10s %-16s %s\n", column[0], column[1], "code generator");
  for (int64_t i = 0; i < kinds->n; i++) {
    const LatheValue *row = kinds->u.list[i].u.list;
    if (!json) {
      printf("%-10s %-16s %s\n", row[0].u.s, row[1].u.s, row[2].u.s);
      continue;
    }
    for (int k = 0; k < 3; k++) {
      printf("%s\"%s\": ", k ? ", " : i ? ", {" : "{", column[k]);
      cli_print_field(&row[k], true);
    }
    putchar('}');
  }
}

int cli_run_targets(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue kinds, target, fields;
  LatheValue text = o->target ? cli_str_value(o->target) : cli_none_value();
  if (!cli_call(context, &status, "target_kinds", 0, NULL, &kinds)) return status;
  print_kinds(&kinds, o->json);
  if (!cli_call(context, &status, "target", 1, &text, &target) ||
      !cli_call(context, &status, "target_fields", 1, &target, &fields))
    return status;
  fputs(o->json ? "], \"target\": {" : o->target ? "\nthis target:\n" : "\nthis machine:\n", stdout);
  for (int64_t i = 0; i < fields.n; i++) {
    const LatheValue *pair = fields.u.list[i].u.list;
    if (o->json) {
      fputs(i ? ", " : "", stdout);
      cli_print_field(&pair[0], true);
      fputs(": ", stdout);
    } else {
      printf("  %-22s ", pair[0].u.s);
    }
    cli_print_field(&pair[1], o->json);
    if (!o->json) putchar('\n');
  }
  if (o->json) puts("}}");
  return 0;
}
