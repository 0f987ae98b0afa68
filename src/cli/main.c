/* main.c: the `lathe` program: its commands, the command line, what all commands share. */
#include <stdarg.h>
#include <stddef.h>
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

bool cli_call(LatheContext *context, int *status, const char *name, int n, const LatheValue *args, LatheValue *out)
{
  int32_t code = lathe_call(context, name, n, args, out);
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

char *cli_read_file(const char *path)
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
  bool bad = !f || ferror(f);
  if (f && f != stdin) fclose(f);
  if (bad || !text) {
    free(text);
    return NULL;
  }
  text[n] = 0;
  return text;
}

int cli_write_text(const char *path, const char *text, int64_t n)
{
  FILE *f = path ? fopen(path, "wb") : stdout;
  bool ok = f && fwrite(text, 1, (size_t)n, f) == (size_t)n;
  if (ok && !path && n && text[n - 1] != '\n') fputc('\n', f);
  if (f && f != stdout && fclose(f)) ok = false;
  if (!ok) fprintf(stderr, "error: cannot write '%s'\n", path ? path : "standard output");
  return ok ? 0 : EXIT_REFUSED;
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
   "ftnod", true, cli_run_lower},
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
   "tnod", true, cli_run_build},
  {"compile", "compile a model into one file that runs",
   "usage: lathe compile MODEL.onnx -o MODEL.so [options]\n\n"
   "Imports the model, optimises it and writes one self-contained file: code, weights and\n"
   "everything a run needs.  Relay text (any other ending) is taken too.\n\n"
   "  -o FILE               .so for the runtime; .o, .a or .c to link into a program, with a\n"
   "                        header beside that has the typed entry\n"
   "  --target TARGET       as TVM writes it (default: this machine)\n"
   "  --opt-level N         0 to 4 (default 3)\n"
   "  --shape NAME=D,D,…    sizes of an input; ? keeps one open (repeat for more inputs)\n"
   "  --disabled-pass P,P   leaves passes out; --required-pass P,P runs them at any level\n"
   "  --config KEY=VALUE    a setting of the passes (repeat)\n"
   "  --no-winograd         no convolution through Winograd's transform\n"
   "  --fast-math=KIND      bf16: products of bfloat16 values, sums in float32;\n"
   "                        fp16: float16 arithmetic (AArch64 with fullfp16); inputs and outputs stay float32\n"
   "  --external-data-root DIR   where external weights may lie (default: the model's folder)\n"
   "  --dump-dir DIR        writes every stage as numbered text\n"
   "  --time                shows where the time went\n\n"
   "examples:\n"
   "  lathe compile resnet18.onnx -o resnet18.so --shape input=1,3,224,224\n"
   "  lathe compile bert.onnx -o bert.so --target \"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1\"\n"
   "  lathe compile net.onnx -o net.so --opt-level 2 --disabled-pass FuseOps --time\n"
   "  lathe compile net.onnx -o net.c    # C source and net.h, to link with liblathe_rt\n",
   "otOsDrcwmxdT", true, cli_run_compile},
  {"run", "run a compiled model (or compile one and run it)",
   "usage: lathe run MODEL.so|MODEL.onnx --input NAME=WHAT … [--output FILE] [--top N]\n\n"
   "  --input NAME=WHAT   a .npy file, a .npz file that has an array of that name, random, or ones;\n"
   "                      without NAME it is for every input.  Strings come from arrays of text ('<U5', '|S5')\n"
   "  --output FILE       writes the outputs: .npz, or .npy when there is one (default: shows them)\n"
   "  --top N             shows the N largest elements of each row with their places\n"
   "  --threads N         workers (default: LATHE_NUM_THREADS, or the CPUs there are)\n"
   "  --shape NAME=D,…    sizes of an input that the model leaves open\n"
   "A model file is compiled first: the options of 'lathe compile' are taken then.\n\n"
   "examples:\n"
   "  lathe run resnet18.so --input input=cat.npy --top 5\n"
   "  lathe run resnet18.so --input random --output out.npz\n",
   "oikptsODrcwmx", true, cli_run_run},
  {"bench", "measure a model, as a whole and node by node",
   "usage: lathe bench MODEL.so|MODEL.onnx [options]\n\n"
   "  --threads 1,2       one measurement each (default: all workers)\n"
   "  --warmup N          runs before measuring (default 3)\n"
   "  --repeat N          runs (default: about two seconds' worth)\n"
   "  --profile           a table of the nodes: time, share, GFLOP/s by the formula (and as done, where the\n"
   "                      algorithm does fewer), GB/s, and percent of what this machine can do\n"
   "  --trace FILE        writes one run as a Chrome trace\n"
   "  --json              for scripts\n"
   "  --input, --shape    as for 'lathe run'; inputs are random where nothing is said\n"
   "A model file is compiled first: the options of 'lathe compile' are taken then.\n\n"
   "examples:\n"
   "  lathe bench resnet18.so --threads 1,2 --profile\n"
   "  lathe bench net.onnx --shape input=1,3,224,224 --json\n",
   "ipWRPXjtsODrcwmx", true, cli_run_bench},
  {"inspect", "show what a model holds",
   "usage: lathe inspect MODEL.onnx|MODEL.so [--json]\n\n"
   "Inputs, outputs, operators, weights, before anything is compiled; every operator that is not supported,\n"
   "with its nodes.  Of a compiled model its kernels, memory and the CPU features it needs.\n\n"
   "  --shape NAME=D,D,…         sizes of an input, as for 'lathe compile'\n"
   "  --external-data-root DIR   where external weights may lie (default: the model's folder)\n"
   "  --json                     for scripts\n\n"
   "examples:\n"
   "  lathe inspect resnet18.onnx\n"
   "  lathe inspect resnet18.so --json\n",
   "jsx", true, cli_run_inspect},
  {"opt", "run passes and print the graph",
   "usage: lathe opt FILE [--pass P,P …] [--opt-level N] [-o FILE]\n\n"
   "Reads Relay text (- for standard input) or an ONNX model.  Without --pass the default passes of the\n"
   "level run.\n\n"
   "  --pass P,P            these passes, in order, and no others\n"
   "  --opt-level N         0 to 4 (default 3)\n"
   "  --disabled-pass P,P   leaves passes out; --required-pass P,P runs them at any level\n"
   "  --config KEY=VALUE    a setting of the passes (repeat)\n"
   "  --target TARGET       what layouts are chosen for (default: this machine)\n"
   "  --shape NAME=D,D,…    sizes of an input of an ONNX model\n"
   "  -o FILE               writes there, constants included, so that it can be read again\n"
   "  --time                seconds of each pass, on standard error\n\n"
   "examples:\n"
   "  lathe opt net.relay --pass SimplifyInference,FoldConstant,FuseOps\n"
   "  lathe opt resnet18.onnx --opt-level 3 --time\n",
   "aotOsDrcmxT", true, cli_run_opt},
  {"ops", "list the operators",
   "usage: lathe ops [--json] [--onnx]\n\n"
   "Every operator of the graph with its fusion kind and a line of doc; --json has arguments and attributes\n"
   "too; --onnx lists the ONNX operators that can be imported.\n\n"
   "examples:\n"
   "  lathe ops | grep nn.\n"
   "  lathe ops --json\n",
   "jN", false, cli_run_ops},
  {"targets", "list what code can be made for, and this machine's properties",
   "usage: lathe targets [--target TARGET] [--json]\n\n"
   "  --target TARGET  describes this one instead of the machine\n"
   "  --json           for scripts\n\n"
   "examples:\n"
   "  lathe targets\n"
   "  lathe targets --target \"llvm -mcpu=skylake-avx512\" --json\n",
   "tj", false, cli_run_targets},
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
  enum { FLAG, ONE, MANY } kind;
} OptionName;

#define OPTION(name, letter, field, kind) {name, letter, offsetof(Options, field), kind}
/* clang-format off */
static const OptionName option_names[] = {
    OPTION("--form", 'f', form, ONE),
    OPTION("--target", 't', target, ONE),
    OPTION("--function", 'n', function, ONE),
    OPTION("-o", 'o', output, ONE),
    OPTION("--output", 'o', output, ONE),
    OPTION("--dump-dir", 'd', dump_dir, ONE),
    OPTION("--json", 'j', json, FLAG),
    OPTION("--opt-level", 'O', opt_level, ONE),
    OPTION("--shape", 's', shapes, MANY),
    OPTION("--disabled-pass", 'D', disabled, MANY),
    OPTION("--required-pass", 'r', required, MANY),
    OPTION("--config", 'c', configs, MANY),
    OPTION("--no-winograd", 'w', no_winograd, FLAG),
    OPTION("--fast-math", 'm', fast_math, ONE),
    OPTION("--external-data-root", 'x', external_root, ONE),
    OPTION("--time", 'T', time, FLAG),
    OPTION("--input", 'i', inputs, MANY),
    OPTION("--top", 'k', top, ONE),
    OPTION("--threads", 'p', threads, ONE),
    OPTION("--warmup", 'W', warmup, ONE),
    OPTION("--repeat", 'R', repeat, ONE),
    OPTION("--profile", 'P', profile, FLAG),
    OPTION("--trace", 'X', trace, ONE),
    OPTION("--pass", 'a', passes, MANY),
    OPTION("--onnx", 'N', onnx, FLAG),
};
/* clang-format on */

static bool store_option(const OptionName *name, Options *o, const char *value)
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

static bool read_option(const Command *command, Options *o, int argc, char **argv, int *i)
{
  for (size_t k = 0; k < sizeof option_names / sizeof *option_names; k++) {
    const OptionName *name = &option_names[k];
    size_t n = strlen(name->name);
    bool joined = !strncmp(argv[*i], name->name, n) && argv[*i][n] == '=';
    if ((strcmp(argv[*i], name->name) && !joined) || !strchr(command->accepts, name->letter)) continue;
    if (name->kind == FLAG) return store_option(name, o, NULL);
    if (joined) return store_option(name, o, argv[*i] + n + 1);
    if (*i + 1 < argc) return store_option(name, o, argv[++*i]);
    cli_misuse("%s wants a value", argv[*i]);
    return false;
  }
  cli_misuse("'lathe %s' does not know '%s'; try 'lathe %s --help'", command->name, argv[*i], command->name);
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
      cli_misuse("what is '%s'? try 'lathe %s --help'", argv[i], command->name);
      return false;
    }
  }
  if (command->wants_input && !o->input && !o->help) {
    cli_misuse("which file? try 'lathe %s --help'", command->name);
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
    if (o.help) return finish(fputs(commands[i].help, stdout) < 0);
    LatheContext *context = lathe_context_new();
    if (!context) {
      fprintf(stderr, "error: out of memory\n");
      return EXIT_FAULT;
    }
    int status = commands[i].run(context, &o);
    lathe_context_free(context);
    return finish(status);
  }
  fprintf(stderr, "error: there is no command '%s'; 'lathe --help' lists them\n", name);
  return EXIT_USAGE;
}
