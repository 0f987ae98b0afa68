/* main.c: the `lathe` program.  Everything it does goes through include/lathe.h.
 *
 * Exit status: 0 done; 1 the input was refused (the reason is on standard error);
 * 2 the command line was wrong; 3 a fault of Lathe's own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lathe.h"

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_FAULT = 3 };

/* What the command line said. */
typedef struct Options {
  const char *input, *output, *target, *form, *function, *dump_dir;
  bool json, help;
} Options;

typedef struct Command {
  const char *name, *summary, *help;
  const char *accepts;         /* letters of the options it takes */
  bool wants_input;
  int (*run)(LatheContext *, const Options *);
} Command;

/* ---- calling the compiler --------------------------------------------------------- */

static LatheValue str_value(const char *s) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)}; }
static LatheValue none_value(void) { return (LatheValue){.tag = LATHE_NONE}; }

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

/* Calls a function of the compiler; false and a report when it is refused. */
static bool call(LatheContext *context, int *status, const char *name, int n, const LatheValue *args, LatheValue *out)
{
  int32_t code = lathe_call(context, name, n, args, out);
  if (code) *status = report(context, code);
  return code == 0;
}

/* ---- files -------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
  FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  size_t n = 0, cap = 1 << 16;
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
  bool bad = !f || ferror(f);
  if (f && f != stdin) fclose(f);
  if (bad || !text) {
    free(text);
    return NULL;
  }
  text[n] = 0;
  return text;
}

static int write_text(const char *path, const char *text, int64_t n)
{
  FILE *f = path ? fopen(path, "wb") : stdout;
  bool ok = f && fwrite(text, 1, (size_t)n, f) == (size_t)n;
  if (ok && !path && n && text[n - 1] != '\n') fputc('\n', f);
  if (f && f != stdout && fclose(f)) ok = false;
  if (!ok) fprintf(stderr, "error: cannot write '%s'\n", path ? path : "standard output");
  return ok ? 0 : EXIT_REFUSED;
}

/* ---- commands -------------------------------------------------------------------------- */

#define MAX_FUNCTIONS 256

typedef struct Input {
  LatheValue module, target, functions[MAX_FUNCTIONS];
  int n;
} Input;

/* Parses the input file; keeps the functions that --function names (all without). */
static bool load(LatheContext *context, const Options *o, Input *in, int *status)
{
  char *text = read_file(o->input);
  if (!text) {
    fprintf(stderr, "error: cannot read '%s'\n", o->input);
    *status = EXIT_REFUSED;
    return false;
  }
  LatheValue line = {.tag = LATHE_INT, .u.i = 1}, names = {.tag = LATHE_LIST};
  LatheValue args[] = {str_value(text), str_value(o->input), line, names};
  bool ok = call(context, status, "parse_module", 4, args, &in->module);
  free(text);
  LatheValue target = o->target ? str_value(o->target) : none_value(), list;
  ok = ok && call(context, status, "target", 1, &target, &in->target) && call(context, status, "module_names", 1, &in->module, &list);
  if (!ok) return false;
  char *wanted[MAX_FUNCTIONS];
  int count = 0;
  for (int64_t i = 0; i < list.n && count < MAX_FUNCTIONS; i++)
    if (!o->function || !strcmp(o->function, list.u.list[i].u.s)) wanted[count++] = strdup(list.u.list[i].u.s);
  for (int i = 0; i < count; i++) {
    LatheValue get[] = {in->module, str_value(wanted[i])};
    ok = ok && call(context, status, "module_get", 2, get, &in->functions[in->n]) && ++in->n;
    free(wanted[i]);
  }
  if (ok && in->n == 0) {
    fprintf(stderr, "error: '%s' holds no function%s%s\n", o->input, o->function ? " named " : "", o->function ? o->function : "");
    *status = EXIT_REFUSED;
  }
  return ok && in->n > 0;
}

static LatheValue config_list(const Options *o, LatheValue store[3])
{
  if (!o->dump_dir) return none_value();
  store[0] = str_value("dump_dir");
  store[1] = str_value(o->dump_dir);
  store[2] = (LatheValue){.tag = LATHE_LIST, .u.list = store, .n = 2};
  return (LatheValue){.tag = LATHE_LIST, .u.list = &store[2], .n = 1};
}

static int run_lower(LatheContext *context, const Options *o)
{
  int status = 0;
  Input in = {.n = 0};
  if (!load(context, o, &in, &status)) return status;
  LatheValue store[3], config = config_list(o, store), out;
  const char *form = o->form ? o->form : "compact";
  if (strcmp(form, "compact") && strcmp(form, "script") && strcmp(form, "input")) {
    LatheValue functions = {.tag = LATHE_LIST, .u.list = in.functions, .n = in.n};
    LatheValue args[] = {functions, in.target, config};
    if (!call(context, &status, "build", 3, args, &out)) return status;
    LatheValue source[] = {out, str_value(form), none_value()};
    if (!strcmp(form, "cuda")) source[2] = (LatheValue){.tag = LATHE_BOOL, .u.i = 1};
    if (!call(context, &status, "built_source", 3, source, &out)) return status;
    return write_text(o->output, out.u.s, out.n);
  }
  for (int i = 0; i < in.n && !status; i++) {
    LatheValue f = in.functions[i], args[] = {f, in.target, config};
    if (strcmp(form, "input") && !call(context, &status, "lower", 3, args, &f)) return status;
    if (!call(context, &status, strcmp(form, "compact") ? "primfunc_script" : "primfunc_compact", 1, &f, &out)) return status;
    status = write_text(o->output, out.u.s, out.n);
  }
  return status;
}

static int run_build(LatheContext *context, const Options *o)
{
  int status = 0;
  Input in = {.n = 0};
  if (!o->output) {
    fprintf(stderr, "error: say where to write with -o FILE (.so, .o, .s, .ll, .c or .cu)\n");
    return EXIT_USAGE;
  }
  if (!load(context, o, &in, &status)) return status;
  LatheValue store[3], functions = {.tag = LATHE_LIST, .u.list = in.functions, .n = in.n};
  LatheValue args[] = {functions, in.target, config_list(o, store)}, out;
  if (!call(context, &status, "build", 3, args, &out)) return status;
  LatheValue export[] = {out, str_value(o->output)};
  if (!call(context, &status, "built_export", 2, export, &out)) return status;
  if (isatty(1)) printf("wrote %s: %d function%s\n", o->output, in.n, in.n == 1 ? "" : "s");
  return 0;
}

static void print_json_text(const char *s)
{
  putchar('"');
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') putchar('\\');
    putchar(*s);
  }
  putchar('"');
}

static void print_field(const LatheValue *v, bool json)
{
  if (v->tag == LATHE_STR && json) print_json_text(v->u.s);
  else if (v->tag == LATHE_STR) fputs(v->u.s, stdout);
  else if (v->tag == LATHE_FLOAT) printf("%g", v->u.f);
  else if (v->tag == LATHE_BOOL) fputs(v->u.i ? "true" : "false", stdout);
  else if (v->tag == LATHE_INT) printf("%lld", (long long)v->u.i);
  else fputs(json ? "null" : "-", stdout);
}

static int run_targets(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue kinds, target, fields, text = o->target ? str_value(o->target) : none_value();
  if (!call(context, &status, "target_kinds", 0, NULL, &kinds)) return status;
  if (o->json) fputs("{\"kinds\": [", stdout);
  else fputs("kinds:", stdout);
  for (int64_t i = 0; i < kinds.n; i++) {
    fputs(i && o->json ? ", " : o->json ? "" : " ", stdout);
    print_field(&kinds.u.list[i], o->json);
  }
  if (!call(context, &status, "target", 1, &text, &target) || !call(context, &status, "target_fields", 1, &target, &fields)) return status;
  fputs(o->json ? "], \"target\": {" : o->target ? "\n\nthis target:\n" : "\n\nthis machine:\n", stdout);
  for (int64_t i = 0; i < fields.n; i++) {
    const LatheValue *pair = fields.u.list[i].u.list;
    if (o->json) {
      fputs(i ? ", " : "", stdout);
      print_field(&pair[0], true);
      fputs(": ", stdout);
    } else {
      printf("  %-22s ", pair[0].u.s);
    }
    print_field(&pair[1], o->json);
    if (!o->json) putchar('\n');
  }
  if (o->json) puts("}}");
  return 0;
}

static const Command commands[] = {
    {"lower", "show a loop program at a stage of compilation",
     "usage: lathe lower FILE [--form FORM] [--target TARGET] [--function NAME] [-o FILE]\n\n"
     "Reads TVMScript (@T.prim_func functions) and prints what becomes of it.\n\n"
     "  --form FORM      compact  loops after lowering, C-like (default)\n"
     "                   script   the same as TVMScript\n"
     "                   input    what was read, as TVMScript\n"
     "                   ll asm c cuda   generated code\n"
     "  --target TARGET  as TVM writes it (default: this machine)\n"
     "  --function NAME  one function of the file (default: all)\n"
     "  --dump-dir DIR   writes the program after each pass into DIR\n"
     "  -o FILE          writes there instead of standard output\n\n"
     "examples:\n"
     "  lathe lower examples/matmul.py\n"
     "  lathe lower examples/matmul.py --form asm --target \"llvm -mcpu=native\"\n"
     "  lathe lower examples/matmul.py --form asm --target \"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1\"\n",
     "ftnod", true, run_lower},
    {"build", "compile loop programs into one file",
     "usage: lathe build FILE -o OUTPUT [--target TARGET] [--function NAME]\n\n"
     "Compiles the functions of a TVMScript file.  What is written follows from the name:\n"
     ".so (for the runtime), .o, .s, .ll, .c, .cu.\n\n"
     "  --target TARGET  as TVM writes it (default: this machine)\n"
     "  --function NAME  one function of the file (default: all)\n"
     "  --dump-dir DIR   writes the program after each pass into DIR\n\n"
     "examples:\n"
     "  lathe build examples/matmul.py -o matmul.so\n"
     "  lathe build examples/matmul.py -o matmul.c --target c\n",
     "tnod", true, run_build},
    {"targets", "list what code can be made for, and this machine's properties",
     "usage: lathe targets [--target TARGET] [--json]\n\n"
     "examples:\n"
     "  lathe targets\n"
     "  lathe targets --target \"llvm -mcpu=skylake-avx512\" --json\n",
     "tj", false, run_targets},
};
#define NCOMMANDS ((int)(sizeof commands / sizeof *commands))

static void print_usage(FILE *out)
{
  fprintf(out, "usage: lathe COMMAND …\n\nLathe %s, a machine-learning compiler.\n\n", lathe_version());
  for (int i = 0; i < NCOMMANDS; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
  fprintf(out, "\n'lathe COMMAND --help' shows the options with examples; 'lathe --version' the version.\n"
               "exit status: 0 done, 1 the input was refused, 2 wrong command line, 3 a fault of Lathe's own\n");
}

/* ---- the command line ------------------------------------------------------------------- */

typedef struct OptionName {
  const char *name;
  char letter;
  size_t offset;
  bool flag;
} OptionName;

static const OptionName option_names[] = {
    {"--form", 'f', offsetof(Options, form), false},         {"--target", 't', offsetof(Options, target), false},
    {"--function", 'n', offsetof(Options, function), false}, {"-o", 'o', offsetof(Options, output), false},
    {"--output", 'o', offsetof(Options, output), false},     {"--dump-dir", 'd', offsetof(Options, dump_dir), false},
    {"--json", 'j', offsetof(Options, json), true},
};

static bool read_option(const Command *command, Options *o, int argc, char **argv, int *i)
{
  for (size_t k = 0; k < sizeof option_names / sizeof *option_names; k++) {
    const OptionName *name = &option_names[k];
    size_t n = strlen(name->name);
    bool joined = !strncmp(argv[*i], name->name, n) && argv[*i][n] == '=';
    if ((strcmp(argv[*i], name->name) && !joined) || !strchr(command->accepts, name->letter)) continue;
    void *field = (char *)o + name->offset;
    if (name->flag) *(bool *)field = true;
    else if (joined) *(const char **)field = argv[*i] + n + 1;
    else if (*i + 1 < argc) *(const char **)field = argv[++*i];
    else {
      fprintf(stderr, "error: %s wants a value\n", argv[*i]);
      return false;
    }
    return true;
  }
  fprintf(stderr, "error: 'lathe %s' does not know '%s'; try 'lathe %s --help'\n", command->name, argv[*i], command->name);
  return false;
}

static bool read_options(const Command *command, Options *o, int argc, char **argv)
{
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) o->help = true;
    else if (argv[i][0] == '-' && argv[i][1]) {
      if (!read_option(command, o, argc, argv, &i)) return false;
    } else if (!o->input && command->wants_input) {
      o->input = argv[i];
    } else {
      fprintf(stderr, "error: what is '%s'? try 'lathe %s --help'\n", argv[i], command->name);
      return false;
    }
  }
  if (command->wants_input && !o->input && !o->help) {
    fprintf(stderr, "error: which file? try 'lathe %s --help'\n", command->name);
    return false;
  }
  return true;
}

int main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "--version")) return printf("lathe %s\n", lathe_version()) < 0;
  if (argc < 2 || !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
    print_usage(argc < 2 ? stderr : stdout);
    return argc < 2 ? EXIT_USAGE : 0;
  }
  for (int i = 0; i < NCOMMANDS; i++) {
    if (strcmp(name, commands[i].name)) continue;
    Options o = {0};
    if (!read_options(&commands[i], &o, argc, argv)) return EXIT_USAGE;
    if (o.help) return fputs(commands[i].help, stdout) < 0;
    LatheContext *context = lathe_context_new();
    if (!context) {
      fprintf(stderr, "error: out of memory\n");
      return EXIT_FAULT;
    }
    int status = commands[i].run(context, &o);
    lathe_context_free(context);
    return status;
  }
  fprintf(stderr, "error: there is no command '%s'; 'lathe --help' lists them\n", name);
  return EXIT_USAGE;
}
