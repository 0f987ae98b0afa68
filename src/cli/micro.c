/* micro.c: `lathe micro`: projects for microcontrollers. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* ---- new ---------------------------------------------------------------------------------------------- */

/* The processors of a board by name, or the board of a processor; NULL: there is none. */
static const char *look_up(const LatheValue *boards, const char *board, const char *cpu)
{
  for (int64_t i = 0; i < boards->n; i++) {
    const LatheValue *row = boards->u.list[i].u.list;
    if (board && !strcmp(row[0].u.s, board)) return row[1].u.s;
    const char *at = cpu ? strstr(row[1].u.s, cpu) : NULL;
    if (at && (at == row[1].u.s || at[-1] == ' ') && (!at[strlen(cpu)] || at[strlen(cpu)] == ' ')) return row[0].u.s;
  }
  return NULL;
}

/* Board and target follow from each other; names are kept, since a list of the compiler's lasts until the next call. */
typedef struct Names {
  char board[64], cpu[32], model[128];
} Names;

static bool choose_board(LatheContext *context, Options *o, Names *names, int *status)
{
  char *cpu = names->cpu;
  LatheValue boards;
  bool bare = !o->layout || !strcmp(o->layout, "bare");
  if (!cli_call(context, status, "micro_boards", 0, NULL, &boards)) return false;
  if (!o->board && !o->target) o->board = "mps2-an386";
  if (!o->board && o->target) {
    const char *word = strstr(o->target, "-mcpu=");
    word = word ? word + 6 : o->target;
    snprintf(cpu, sizeof names->cpu, "%.*s", (int)strcspn(word, " "), word);
    const char *found = look_up(&boards, NULL, cpu);
    if (!found && bare)
      return *status = cli_refuse("QEMU has no board with a '%s'; 'lathe micro boards' lists them ('lathe compile -f o'"
                                  " compiles for it)",
                                  o->target),
             false;
    snprintf(names->board, sizeof names->board, "%s", found ? found : "mps2-an386"); /* others name theirs elsewhere */
    o->board = names->board;
  }
  const char *cpus = look_up(&boards, o->board, NULL);
  if (!cpus) return *status = cli_misuse("there is no board '%s'; 'lathe micro boards' lists them", o->board), false;
  snprintf(cpu, sizeof names->cpu, "%.*s", (int)strcspn(cpus, " "), cpus);
  if (!o->target) o->target = cpu;
  return true;
}

/* The bytes of inputs and outputs of a run on this machine. */
typedef struct Vectors {
  LatheValue in[MAX_VALUES], out[MAX_VALUES];
  int nin, nout;
} Vectors;

static bool take_bytes(const LatheRtTensor *t, LatheValue *out, LatheRtError *err)
{
  size_t n;
  if (lathe_rt_tensor_bytes(t, &n, err) != LATHE_RT_OK) return false;
  *out = (LatheValue){.tag = LATHE_STR, .u.s = t->data, .n = (int64_t)n};
  return true;
}

static bool take_vectors(LatheRtExecutor *ex, const LatheRtEntry *e, Vectors *v, LatheRtError *err)
{
  const LatheRtTensor *t;
  for (v->nin = 0; v->nin < e->ninputs; v->nin++)
    if (lathe_rt_get_input(ex, v->nin, &t, err) != LATHE_RT_OK || !take_bytes(t, &v->in[v->nin], err)) return false;
  for (v->nout = 0; v->nout < e->noutputs; v->nout++)
    if (lathe_rt_get_output(ex, v->nout, &t, err) != LATHE_RT_OK || !take_bytes(t, &v->out[v->nout], err)) return false;
  return true;
}

/* Runs the model here; the vectors are the executor's. */
static bool run_here(LatheRtExecutor *ex, const LatheRtModel *model, const Options *o, Vectors *v, int *status)
{
  const LatheRtEntry *e = lathe_rt_model_entry(model, 0);
  LatheRtError err;
  if (!e || e->ninputs > MAX_VALUES || e->noutputs > MAX_VALUES)
    return *status = cli_refuse("a project has one entry with at most %d inputs and outputs", MAX_VALUES), false;
  if (!cli_set_inputs(ex, e, NULL, o, false, status)) return false;
  if (lathe_rt_run(ex, &err) != LATHE_RT_OK || !take_vectors(ex, e, v, &err))
    return *status = cli_refuse_rt(&err), false;
  return true;
}

static LatheValue list_of(const LatheValue *v, int n)
{
  return (LatheValue){.tag = LATHE_LIST, .u.list = (LatheValue *)v, .n = n};
}

/* The file's name without folder and ending, letters that files and make take. */
static void name_of(const char *path, char *out, size_t size)
{
  const char *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  const char *dot = strrchr(base, '.');
  snprintf(out, size, "%.*s", dot ? (int)(dot - base) : (int)strlen(base), base);
  for (char *c = out; *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", *c)) *c = '_';
}

static int new_project(LatheContext *context, const Options *said)
{
  Options host = *said;
  host.input = said->files.v[0];
  host.target = NULL;
  host.output = NULL;
  Options board = host;
  board.target = said->target;
  Names names;
  int status = 0;
  LatheRtModel *model;
  LatheRtExecutor *ex;
  LatheRtError err;
  Vectors v;
  LatheValue compiled, none;
  if (!said->output) return cli_misuse("where to? lathe micro new %s -o FOLDER", host.input);
  if (!choose_board(context, &board, &names, &status)) return status;
  if (!cli_compile_ahead(context, &board, &status, &compiled) || !cli_open_model(context, &host, &status, &model))
    return status;
  if (lathe_rt_executor_new(model, &ex, &err) != LATHE_RT_OK) {
    lathe_rt_model_free(model);
    return cli_refuse_rt(&err);
  }
  name_of(host.input, names.model, sizeof names.model);
  if (run_here(ex, model, &host, &v, &status)) {
    LatheValue args[] = {compiled,
                         cli_str_value(said->output),
                         cli_str_value(names.model),
                         cli_str_value(board.board),
                         cli_str_value(said->layout ? said->layout : "bare"),
                         list_of(v.in, v.nin),
                         list_of(v.out, v.nout)};
    if (cli_call(context, &status, "micro_project", 7, args, &none) && !said->json)
      printf("%s: %s for %s; its README.md says what is there\n", said->output, names.model, board.target);
  }
  lathe_rt_executor_free(ex);
  lathe_rt_model_free(model);
  return status;
}

/* ---- run ---------------------------------------------------------------------------------------------------- */

/* A line of what the program says: "layer COUNT NAME", "check NUMBER agrees|differs bytes|millionths N". */
static void print_layers(const char *text, bool json)
{
  double all = 0;
  bool first = true;
  for (const char *at = text; (at = strstr(at, "layer ")); at += 6) all += strtod(at + 6, NULL);
  printf(json ? "{\"layers\": [" : "%-58s %14s %6s\n", "layer", "instructions", "%");
  for (const char *at = text; !strncmp(at, "layer ", 6); at += strcspn(at, "\n") + 1) {
    char *rest;
    double n = strtod(at + 6, &rest);
    int length = (int)strcspn(++rest, "\n");
    if (json) {
      char name[512];
      snprintf(name, sizeof name, "%.*s", length, rest);
      printf("%s{\"name\": ", first ? "" : ", ");
      cli_print_json_text(name);
      printf(", \"instructions\": %.0f}", n);
    } else {
      printf("%-58.*s %14.0f %6.1f\n", length < 58 ? length : 58, rest, n, all > 0 ? 100 * n / all : 0);
    }
    first = false;
  }
  if (json) printf("], \"instructions\": %.0f, \"outputs\": [", all);
  else printf("%-58s %14.0f\n\n", "all", all);
}

static int print_run(const char *text, bool json)
{
  int status = 0;
  bool first = true;
  print_layers(text, json);
  for (const char *at = text; (at = strstr(at, "\ncheck ")); at++) {
    int number;
    char verdict[16], unit[16];
    unsigned long long n;
    if (sscanf(at + 1, "check %d %15s %15s %llu", &number, verdict, unit, &n) != 4) continue;
    bool good = !strcmp(verdict, "agrees");
    bool exact = !strcmp(unit, "bytes");
    if (!good) status = EXIT_REFUSED;
    if (json)
      printf("%s{\"agrees\": %s, \"%s\": %llu}", first ? "" : ", ", good ? "true" : "false",
             exact ? "different_bytes" : "millionths", n);
    else if (exact && good) printf("output %d is the host's, bit for bit\n", number);
    else if (exact) printf("output %d differs from the host's in %llu bytes\n", number, n);
    else
      printf("output %d %s the host's: %llu millionths of its largest value apart\n", number,
             good ? "agrees with" : "differs from", n);
    first = false;
  }
  if (json) puts("]}");
  return status;
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static int print_sizes(const LatheValue *v, bool json)
{
  static const char *const names[] = {"code", "constants", "written", "stack"};
  for (int i = 0; i < 4; i++)
    if (json) printf("%s\"%s\": %lld%s", i ? ", " : "{", names[i], (long long)v[i].u.i, i == 3 ? "}\n" : "");
    else printf("%-10s %10lld\n", names[i], (long long)v[i].u.i);
  return 0;
}

static int print_boards(LatheContext *context, bool json)
{
  int status = 0;
  LatheValue out;
  if (!cli_call(context, &status, "micro_boards", 0, NULL, &out)) return status;
  for (int64_t i = 0; i < out.n; i++) {
    const LatheValue *row = out.u.list[i].u.list;
    if (json) printf("%s{\"board\": \"%s\", \"processors\": \"%s\"}", i ? ", " : "[", row[0].u.s, row[1].u.s);
    else printf("%-14s %s\n", row[0].u.s, row[1].u.s);
  }
  if (json) puts("]");
  return 0;
}

int cli_run_micro(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue out;
  const char *action = o->input;
  if (!strcmp(action, "boards")) return print_boards(context, o->json);
  bool known = !strcmp(action, "new") || !strcmp(action, "build") || !strcmp(action, "run") || !strcmp(action, "size");
  if (!known) return cli_misuse("'lathe micro' can new, build, run, size and boards, not '%s'", action);
  if (o->files.n != 1)
    return cli_misuse("'lathe micro %s' wants one %s", action, strcmp(action, "new") ? "folder" : "model");
  if (!strcmp(action, "new")) return new_project(context, o);
  LatheValue folder = cli_str_value(o->files.v[0]);
  if (!strcmp(action, "build")) {
    if (cli_call(context, &status, "micro_build", 1, &folder, &out) && !o->json) puts(out.u.s);
    return status;
  }
  if (!strcmp(action, "run"))
    return cli_call(context, &status, "micro_run", 1, &folder, &out) ? print_run(out.u.s, o->json) : status;
  return cli_call(context, &status, "micro_size", 1, &folder, &out) ? print_sizes(out.u.list, o->json) : status;
}
