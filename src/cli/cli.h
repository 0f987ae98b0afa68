/* cli.h: inside the `lathe` program.
 *
 * Everything goes through include/lathe.h and include/lathe_rt.h.  A command is one row of
 * a table (commands.c), and so is an option; help, completions and the man page come from them.
 *
 * Exit status: 0 done; 1 the input was refused (the reason is on standard error);
 * 2 the command line was wrong; 3 a fault of Lathe's own; 130 stopped by Ctrl-C. */
#ifndef LATHE_CLI_H
#define LATHE_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lathe.h"

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_FAULT = 3, EXIT_STOPPED = 130 };

#define MAX_VALUES 64
typedef struct Values {
  const char *v[MAX_VALUES];
  int n;
} Values;

/* What the command line said. */
typedef struct Options {
  const char *input, *output, *target, *form, *function, *dump_dir, *weights, *cache;
  const char *opt_level, *threads, *warmup, *repeat, *top, *trace, *external_root, *fast_math, *plan, *alternatives;
  const char *format, *ram_limit, *io, *svg, *board, *layout;
  const char *tuned, *db, *limit, *trials;
  const char *data, *labels, *calibrate, *drop, *samples, *skip, *percentile;
  Values files; /* behind the first argument */
  Values shapes, pools, variants, inputs, entries, configs, disabled, required, passes, workers;
  bool json, help, time, profile, no_winograd, onnx, tflite, list, plans, cost, resume, worker;
} Options;

/* ---- commands.c: the tables ----------------------------------------------------------- */
/* What may stand there, for completion: one of these, or the words themselves; NULL: nothing is known. */
#define TAKES_FILE "<file>"
#define TAKES_DIR "<folder>"
#define TAKES_PASS "<pass>"
#define TAKES_CONFIG "<config>"

typedef struct OptionRow {
  char letter; /* commands name it by this; an option that says another thing elsewhere has another row */
  const char *name;
  const char *value; /* what --help calls it; NULL: a flag */
  size_t offset;     /* in Options */
  enum { FLAG, ONE, MANY } kind;
  const char *takes;
  const char *doc;
} OptionRow;

typedef struct Command {
  const char *name, *summary;
  const char *usage;   /* behind its name */
  const char *about;   /* a paragraph */
  const char *accepts; /* letters of the options it takes, in the order of --help */
  const char *also;    /* letters of options of 'compile', for a model file; or NULL */
  const char *examples;
  const char *input; /* what its one argument may be, as OptionRow.takes; NULL: it has none */
  int (*run)(LatheContext *, const Options *);
  bool files; /* files may stand behind that argument */
} Command;

typedef struct Fact {
  const char *name, *doc;
} Fact;

extern const OptionRow cli_options[];
extern const int cli_noptions;
extern const Command cli_commands[];
extern const int cli_ncommands;
extern const Fact cli_exit_states[], cli_environment[]; /* a row of NULL ends them */

/* ---- pages.c: what is made from the tables ----------------------------------------------- */
bool cli_accepts(const Command *, const OptionRow *);
void cli_print_usage(FILE *);
void cli_print_help(const Command *);
int cli_run_completion(LatheContext *, const Options *);
int cli_run_man(LatheContext *, const Options *);

/* ---- main.c ------------------------------------------------------------------------ */
LatheValue cli_str_value(const char *);
LatheValue cli_none_value(void);
LatheValue cli_int_value(int64_t);
/* A size of --shape: 224; ? (least -1); 1..8; ~224, a range of one.  most 0: not a range.  Gives what stands behind it;
 * NULL: it is none. */
const char *cli_read_size(const char *, int64_t *least, int64_t *most);
LatheValue cli_bool_value(bool);
/* Calls a function of the compiler; false and a report when it is refused. */
bool cli_call(LatheContext *, int *status, const char *name, int n, const LatheValue *args, LatheValue *out);
int cli_refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* prints, gives EXIT_REFUSED */
int cli_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* prints, gives EXIT_USAGE */
int cli_refuse_rt(const LatheRtError *);
/* The text of a file, to be freed; NULL and a report if it cannot be read. */
char *cli_read_file(const char *path, int *status);
/* What a file holds, by its first bytes. */
typedef enum { FILE_ELF, FILE_ARCHIVE, FILE_ONNX, FILE_TFLITE, FILE_TEXT } FileKind;
bool cli_look_at_file(const char *path, FileKind *, int *status);
/* The nearest of the words, or NULL. */
const char *cli_nearest(LatheContext *, const char *word, int n, const char *const *words);
int cli_write_text(const char *path, const char *text, int64_t n);
void cli_print_json_text(const char *);
void cli_print_field(const LatheValue *, bool json);
/* seconds of a clock that only goes forward */
double cli_now(void);
bool cli_ends_with(const char *s, const char *end);
/* A whole number in [lo, hi]; false and a report otherwise. */
bool cli_read_number(const char *option, const char *text, long lo, long hi, long *out);

/* ---- model.c ------------------------------------------------------------------------ */
/* Imports a model file (ONNX or Relay text, by what it holds). */
bool cli_import_model(LatheContext *, const Options *, int *status, LatheValue *module, LatheValue *report);
/* A model that runs: from a .so, or compiled here from a model file. */
bool cli_open_model(LatheContext *, const Options *, int *status, LatheRtModel **out);
/* The model as a program ahead of time, nothing written. */
bool cli_compile_ahead(LatheContext *, const Options *, int *status, LatheValue *compiled);
int cli_run_compile(LatheContext *, const Options *);
int cli_run_inspect(LatheContext *, const Options *);
int cli_run_opt(LatheContext *, const Options *);
int cli_run_ops(LatheContext *, const Options *);

/* What --opt-level, --config and the like say. */
bool cli_make_context(LatheContext *, const Options *, int *status, LatheValue target, LatheValue *out);

/* One line on a terminal, rewritten as the work goes on. */
int32_t cli_show_progress(void *user, const char *stage, int32_t done, int32_t total);

/* ---- elf.c: compiled models as files ------------------------------------------------------- */
/* A model for looking at, of any machine: its file is read and checked, nothing of it is loaded.  It cannot run. */
typedef struct ElfModel ElfModel;
bool cli_elf_open(const char *path, ElfModel **, LatheRtError *);
const LatheRtModel *cli_elf_model(const ElfModel *);
const char *cli_elf_arch(const ElfModel *);
const char *cli_elf_features(const ElfModel *);
/* What the code for each CPU needs, the most demanding first; 0: the file has code for one. */
uint32_t cli_elf_variants(const ElfModel *);
const char *cli_elf_variant_features(const ElfModel *, uint32_t i);
void cli_elf_close(ElfModel *);

/* ---- tune.c --------------------------------------------------------------------------- */
int cli_run_tune(LatheContext *, const Options *);
int cli_run_db(LatheContext *, const Options *);
/* How long, for how many threads, and where to. */
typedef struct TuneLimits {
  double seconds; /* 0: no limit, as trials */
  long trials, threads;
  const char *db;
} TuneLimits;
/* The target of --target (default: this machine) with so many cores; 0: as it is. */
bool cli_find_target(LatheContext *, const Options *, long threads, int *status, LatheValue *out);

/* ---- quantize.c ----------------------------------------------------------------------- */
int cli_run_quantize(LatheContext *, const Options *);
int cli_run_compare(LatheContext *, const Options *);

/* ---- tir.c ---------------------------------------------------------------------------- */
int cli_run_lower(LatheContext *, const Options *);
int cli_run_build(LatheContext *, const Options *);
int cli_tune_programs(LatheContext *, const Options *, const TuneLimits *);
int cli_run_targets(LatheContext *, const Options *);

/* ---- run.c, bench.c ------------------------------------------------------------------------- */
int cli_run_run(LatheContext *, const Options *);
int cli_run_bench(LatheContext *, const Options *);
/* Fills the executor's inputs from --input, or with random numbers where nothing is said. */
/* Objects that entries gave, by the names and types of their outputs. */
typedef struct Objects {
  const char *name[MAX_VALUES], *type[MAX_VALUES];
  LatheRtObject *object[MAX_VALUES];
  int n;
} Objects;
/* Of the entry that the executor has been told of; given may be NULL. */
bool cli_set_inputs(LatheRtExecutor *, const LatheRtEntry *, const Objects *given, const Options *, bool need_all,
                    int *status);

/* ---- texts.c: strings ------------------------------------------------------------------------- */
/* A tensor of strings from a file becomes one of the executor's numbers, in its place; any other stays. */
bool cli_texts_to_numbers(LatheRtExecutor *, LatheRtTensor **, LatheRtError *err);
/* A new tensor as files have them. */
bool cli_numbers_to_texts(const LatheRtExecutor *, const LatheRtTensor *, LatheRtTensor **out, LatheRtError *err);
void cli_print_texts(const LatheRtExecutor *, const LatheRtTensor *);

/* ---- npy.c: numpy's files --------------------------------------------------------------------- */
/* A tensor from a .npy file, or from member `name` of a .npz; false with a sentence. */
bool npy_read(const char *path, const char *name, LatheRtTensor **out, LatheRtError *err);
/* The names of an .npz file's arrays, each and the list to be freed; -1 with a sentence. */
int npy_names(const char *path, char ***out, LatheRtError *err);
bool npy_write(const char *path, const LatheRtTensor *, LatheRtError *err);
bool npy_write_archive(const char *path, int n, const char *const *names, const LatheRtTensor *const *,
                       LatheRtError *err);
const char *cli_dtype_text(LatheRtDType, char out[24]);

/* ---- micro.c: projects for microcontrollers ---------------------------------------------------- */
int cli_run_micro(LatheContext *, const Options *);

/* ---- peak.c: what the machine can do ----------------------------------------------------------- */
double peak_gflops(int threads, double seconds);
double peak_gbytes_within(int threads, double seconds, size_t bytes); /* of a block that the threads share */

#endif
