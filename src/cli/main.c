/* main.c: the `lathe` program: the command line, what all commands share. */
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- calling the compiler --------------------------------------------------------- */

LatheValue cli_str_value(const char *s) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)}; }
LatheValue cli_none_value(void) { return (LatheValue){.tag = LATHE_NONE}; }
LatheValue cli_int_value(int64_t i) { return (LatheValue){.tag = LATHE_INT, .u.i = i}; }
LatheValue cli_bool_value(bool b) { return (LatheValue){.tag = LATHE_BOOL, .u.i = b}; }

static void print_error(const char *fmt, va_list args)
{
  fputs(isatty(2) ? "\033[1;31merror:\033[0m " : "error: ", stderr);
  vfprintf(stderr, fmt, args);
  fputc('\n', stderr);
}

int cli_refuse(const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  print_error(fmt, args);
  va_end(args);
  return EXIT_REFUSED;
}

int cli_misuse(const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  print_error(fmt, args);
  va_end(args);
  return EXIT_USAGE;
}

int cli_refuse_rt(const LatheRtError *err) { return cli_refuse("%s", err->text); }

bool cli_ends_with(const char *s, const char *end)
{
  size_t n = strlen(s);
  size_t k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

bool cli_read_number(const char *option, const char *text, long lo, long hi, long *out)
{
  char *end;
  long v = strtol(text, &end, 10);
  if (*text && !*end && v >= lo && v <= hi) {
    *out = v;
    return true;
  }
  cli_misuse("%s is a whole number from %ld to %ld, not '%s'", option, lo, hi, text);
  return false;
}

/* ---- Ctrl-C -------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;
static volatile sig_atomic_t may_leave; /* nothing is being written: the program may end where it stands */

static void leave_in(suseconds_t microseconds)
{
  struct itimerval when = {.it_value.tv_usec = microseconds};
  setitimer(ITIMER_REAL, &when, NULL);
}

static void stop(int number)
{
  (void)number;
  stopped = 1;
  if (may_leave) leave_in(50000);
}

static void leave(int number)
{
  static const char text[] = "\nerror: stopped by Ctrl-C\n";
  (void)number;
  ssize_t written = write(2, text + (may_leave == 1), sizeof text - 1 - (may_leave == 1));
  (void)written;
  _exit(EXIT_STOPPED);
}

static int32_t is_stopped(void *user)
{
  (void)user;
  return stopped;
}

static int report(LatheContext *context, int32_t code)
{
  const char *file;
  int32_t line, col;
  bool colour = isatty(2);
  fputs(colour ? "\033[1;31merror:\033[0m " : "error: ", stderr);
  if (lathe_error_location(context, &file, &line, &col)) {
    if (file) fprintf(stderr, "%s:", file);
    fprintf(stderr, "%d:%d: ", line, col);
  }
  fprintf(stderr, "%s\n", lathe_error_message(context));
  return strcmp(lathe_error_name(code), "InternalError") ? EXIT_REFUSED : EXIT_FAULT;
}

/* While the compiler works Ctrl-C sets a flag, for which it asks now and then.  LLVM cannot be asked to stop inside of
 * a kernel, which may take it half a second: where no file is being written the program does not wait for that.  A
 * second Ctrl-C ends it at once. */
bool cli_call(LatheContext *context, int *status, const char *name, int n, const LatheValue *args, LatheValue *out)
{
  struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};
  struct sigaction before;
  sigemptyset(&action.sa_mask);
  bool watched = !sigaction(SIGINT, NULL, &before) && before.sa_handler == SIG_DFL && !sigaction(SIGINT, &action, NULL);
  struct sigaction alarm = {.sa_handler = leave};
  sigemptyset(&alarm.sa_mask);
  bool writes = strstr(name, "export") || strstr(name, "tune_");
  if (watched && !writes && !sigaction(SIGALRM, &alarm, NULL)) may_leave = isatty(2) ? 2 : 1;
  lathe_set_poll(context, is_stopped, NULL);
  int32_t code = lathe_call(context, name, n, args, out);
  may_leave = 0;
  leave_in(0);
  if (watched) sigaction(SIGINT, &before, NULL);
  if (stopped) {
    cli_refuse("stopped by Ctrl-C");
    *status = EXIT_STOPPED;
    return false;
  }
  if (code) *status = report(context, code);
  return code == 0;
}

double cli_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- files -------------------------------------------------------------------------- */

/* A folder can be opened and not be read, so the reason is asked for after both. */
static void cannot_read(const char *path, int *status)
{
  *status = cli_refuse("cannot read '%s': %s", path, strerror(errno));
}

char *cli_read_file(const char *path, int *status)
{
  FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  size_t n = 0;
  size_t cap = 1 << 16;
  char *text = f ? malloc(cap) : NULL;
  while (text) {
    size_t got = fread(text + n, 1, cap - n - 1, f);
    n += got;
    if (got == 0) break;
    if (n + 1 == cap) {
      char *grown = realloc(text, cap *= 2);
      if (!grown) free(text);
      text = grown;
    }
  }
  bool bad = !f || !text || ferror(f);
  if (bad) cannot_read(path, status);
  if (f && f != stdin) fclose(f);
  if (bad) {
    free(text);
    return NULL;
  }
  text[n] = 0;
  return text;
}

/* ELF, archives and TFLite have their marks; a file of text has no control characters; the rest is ONNX's protobuf. */
static FileKind kind_of_bytes(const unsigned char *b, size_t n)
{
  if (n >= 4 && !memcmp(b, "\177ELF", 4)) return FILE_ELF;
  if (n >= 8 && !memcmp(b, "!<arch>\n", 8)) return FILE_ARCHIVE;
  if (n >= 8 && !memcmp(b + 4, "TFL3", 4)) return FILE_TFLITE;
  for (size_t i = 0; i < n; i++)
    if (b[i] < 0x20 && !memchr("\t\n\r\f\v", b[i], 5)) return FILE_ONNX;
  return FILE_TEXT;
}

bool cli_look_at_file(const char *path, FileKind *kind, int *status)
{
  *kind = FILE_TEXT;
  if (!strcmp(path, "-")) return true;
  unsigned char start[4096];
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(start, 1, sizeof start, f) : 0;
  bool bad = !f || ferror(f);
  if (bad) cannot_read(path, status);
  if (f) fclose(f);
  if (bad) return false;
  *kind = kind_of_bytes(start, n);
  if (!n || (*kind == FILE_TEXT && cli_ends_with(path, ".so"))) {
    *status = cli_refuse("'%s' is %s", path, n ? "text, not the compiled model that its name says" : "empty");
    return false;
  }
  /* the reader says what is wrong with it */
  if (*kind == FILE_TEXT && cli_ends_with(path, ".onnx")) *kind = FILE_ONNX;
  if ((*kind == FILE_TEXT || *kind == FILE_ONNX) && cli_ends_with(path, ".tflite")) *kind = FILE_TFLITE;
  return true;
}

int cli_write_text(const char *path, const char *text, int64_t n)
{
  FILE *f = path ? fopen(path, "wb") : stdout;
  bool ok = f && fwrite(text, 1, (size_t)n, f) == (size_t)n;
  if (ok && !path && n && text[n - 1] != '\n') fputc('\n', f);
  if (f && f != stdout && fclose(f)) ok = false;
  if (ok) return 0;
  return path ? cli_refuse("cannot write '%s': %s", path, strerror(errno))
              : cli_refuse("standard output cannot be written");
}

void cli_print_json_text(const char *s)
{
  putchar('"');
  for (; *s; s++) {
    if ((unsigned char)*s < 0x20) {
      printf("\\u%04x", *s);
      continue;
    }
    if (*s == '"' || *s == '\\') putchar('\\');
    putchar(*s);
  }
  putchar('"');
}

void cli_print_field(const LatheValue *v, bool json)
{
  if (v->tag == LATHE_STR && json) cli_print_json_text(v->u.s);
  else if (v->tag == LATHE_STR) fputs(v->u.s, stdout);
  else if (v->tag == LATHE_FLOAT) printf("%g", v->u.f);
  else if (v->tag == LATHE_BOOL) fputs(v->u.i ? "true" : "false", stdout);
  else if (v->tag == LATHE_INT) printf("%lld", (long long)v->u.i);
  else fputs(json ? "null" : "-", stdout);
}

/* ---- the command line ------------------------------------------------------------------- */

const char *cli_nearest(LatheContext *context, const char *word, int n, const char *const *words)
{
  LatheValue *list = calloc((size_t)n + 1, sizeof *list);
  LatheValue out = cli_none_value();
  for (int i = 0; list && i < n; i++) list[i] = cli_str_value(words[i]);
  LatheValue args[] = {cli_str_value(word), {.tag = LATHE_LIST, .u.list = list, .n = n}};
  int at = -1;
  if (list && lathe_call(context, "nearest", 2, args, &out) == 0 && out.tag == LATHE_INT) at = (int)out.u.i;
  free(list);
  return at >= 0 ? words[at] : NULL;
}

/* What somebody probably meant, for the end of a sentence that is printed at once. */
static void hint(LatheContext *context, const char *word, int n, const char *const *words, char *out, size_t size)
{
  const char *near = cli_nearest(context, word, n, words);
  snprintf(out, size, "%s%s%s", near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int unknown_command(LatheContext *context, const char *word)
{
  const char *words[64];
  char meant[64];
  for (int i = 0; i < cli_ncommands; i++) words[i] = cli_commands[i].name;
  hint(context, word, cli_ncommands, words, meant, sizeof meant);
  return cli_misuse("there is no command '%s'%s%s", word, meant, *meant ? "" : "; 'lathe --help' lists them");
}

static void unknown_option(LatheContext *context, const Command *c, const char *word)
{
  const char *words[64];
  char name[64];
  char meant[64];
  int n = 0;
  for (int i = 0; i < cli_noptions && n < 64; i++)
    if (cli_accepts(c, &cli_options[i])) words[n++] = cli_options[i].name;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  hint(context, name, n, words, meant, sizeof meant);
  cli_misuse("'lathe %s' does not know '%s'%s%s'lathe %s --help' shows its options", c->name, word, meant,
             *meant ? " " : "; ", c->name);
}

static bool store_option(const OptionRow *name, Options *o, const char *value)
{
  void *field = (char *)o + name->offset;
  if (name->kind == FLAG) *(bool *)field = true;
  else if (name->kind == ONE) *(const char **)field = value;
  else {
    Values *many = field;
    if (many->n == MAX_VALUES) {
      cli_misuse("%s is given more than %d times", name->name, MAX_VALUES);
      return false;
    }
    many->v[many->n++] = value;
  }
  return true;
}

static bool read_option(LatheContext *context, const Command *command, Options *o, int argc, char **argv, int *i)
{
  for (int k = 0; k < cli_noptions; k++) {
    const OptionRow *row = &cli_options[k];
    size_t n = strlen(row->name);
    bool joined = !strncmp(argv[*i], row->name, n) && argv[*i][n] == '=';
    if ((strcmp(argv[*i], row->name) && !joined) || !cli_accepts(command, row)) continue;
    if (row->kind == FLAG && joined) {
      cli_misuse("%s takes no value, but '%s' gives it one", row->name, argv[*i]);
      return false;
    }
    if (row->kind == FLAG) return store_option(row, o, NULL);
    if (joined) return store_option(row, o, argv[*i] + n + 1);
    if (*i + 1 < argc) return store_option(row, o, argv[++*i]);
    cli_misuse("%s wants a value: %s %s", argv[*i], argv[*i], row->value);
    return false;
  }
  unknown_option(context, command, argv[*i]);
  return false;
}

static bool read_options(LatheContext *context, const Command *command, Options *o, int argc, char **argv)
{
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) o->help = true;
    else if (argv[i][0] == '-' && argv[i][1]) {
      if (!read_option(context, command, o, argc, argv, &i)) return false;
    } else if (!o->input && command->input) {
      o->input = argv[i];
    } else if (command->files && o->files.n < MAX_VALUES) {
      o->files.v[o->files.n++] = argv[i];
    } else {
      cli_misuse("what is '%s'? try 'lathe %s --help'", argv[i], command->name);
      return false;
    }
  }
  if (command->input && !o->input && !o->help && !o->list && !o->worker) {
    cli_misuse("which %s? try 'lathe %s --help'", *command->input == '<' ? "file" : "one", command->name);
    return false;
  }
  return true;
}

/* What was printed has to arrive: a full disk is not success. */
static int finish(int status)
{
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  return status ? status : cli_refuse("standard output cannot be written");
}

static const Command *find_command(const char *name)
{
  for (int i = 0; i < cli_ncommands; i++)
    if (!strcmp(name, cli_commands[i].name)) return &cli_commands[i];
  return NULL;
}

static int run_command(LatheContext *context, int argc, char **argv)
{
  Options o = {0};
  const Command *command = find_command(argv[1]);
  if (!command) return unknown_command(context, argv[1]);
  if (!read_options(context, command, &o, argc, argv)) return EXIT_USAGE;
  if (o.help) {
    cli_print_help(command);
    return 0;
  }
  return command->run(context, &o);
}

/* `lathe help`, and `lathe help COMMAND`. */
static int run_help(LatheContext *context, int argc, char **argv)
{
  if (argc < 3) {
    cli_print_usage(stdout);
    return 0;
  }
  const Command *command = find_command(argv[2]);
  if (!command) return unknown_command(context, argv[2]);
  cli_print_help(command);
  return 0;
}

/* ---- PyTorch's files ------------------------------------------------------------------------ */

static bool is_pytorch(const char *path)
{
  return cli_ends_with(path, ".pt2") || cli_ends_with(path, ".pt") || cli_ends_with(path, ".pth");
}

/* 'lathe compile net.pt2' is the Python package's: the command line goes there as it is, and this does not return
 * unless there is no Python. */
static int compile_pytorch(int argc, char **argv)
{
  static const char program[] =
      "import sys\n"
      "try:\n"
      "    from lathe.driver.pytorch import main\n"
      "except ImportError as e:\n"
      "    sys.exit(f'error: files of PyTorch are read through the Python package, which {sys.executable} does not have"
      " ({e}); LATHE_PYTHON names another Python')\n"
      "sys.exit(main(sys.argv[1:]))\n";
  const char *python = getenv("LATHE_PYTHON") ? getenv("LATHE_PYTHON") : "python3";
  const char **args = calloc((size_t)argc + 3, sizeof *args);
  if (!args) return cli_refuse("out of memory");
  int n = 0;
  args[n++] = python;
  args[n++] = "-c";
  args[n++] = program;
  for (int i = 2; i < argc; i++) args[n++] = argv[i];
  execvp(python, (char *const *)(uintptr_t)args);
  int status = cli_refuse("files of PyTorch are read through the Python package, and '%s' cannot be started: %s;"
                          " LATHE_PYTHON names a Python that has it",
                          python, strerror(errno));
  free(args);
  return status;
}

int main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "--version")) return finish(printf("lathe %s\n", lathe_version()) < 0);
  if (argc < 2) {
    cli_print_usage(stderr);
    return EXIT_USAGE;
  }
  for (int i = 2; i < argc && !strcmp(name, "compile"); i++)
    if (is_pytorch(argv[i])) return finish(compile_pytorch(argc, argv));
  LatheContext *context = lathe_context_new();
  if (!context) {
    fprintf(stderr, "error: out of memory\n");
    return EXIT_FAULT;
  }
  bool help = !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help");
  int status = help ? run_help(context, argc, argv) : run_command(context, argc, argv);
  lathe_context_free(context);
  return finish(status);
}
