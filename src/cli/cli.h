/* cli.h: inside the `lathe` program.
 *
 * Everything goes through include/lathe.h and include/lathe_rt.h.  A command is one row of
 * a table (main.c); its options are letters of option_names.
 *
 * Exit status: 0 done; 1 the input was refused (the reason is on standard error);
 * 2 the command line was wrong; 3 a fault of Lathe's own. */
#ifndef LATHE_CLI_H
#define LATHE_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "lathe.h"

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_FAULT = 3 };

#define MAX_VALUES 64
typedef struct Values {
  const char *v[MAX_VALUES];
  int n;
} Values;

/* What the command line said. */
typedef struct Options {
  const char *input, *output, *target, *form, *function, *dump_dir;
  const char *opt_level, *threads, *warmup, *repeat, *top, *trace, *external_root, *fast_math;
  Values shapes, inputs, configs, disabled, required, passes;
  bool json, help, time, profile, no_winograd, onnx;
} Options;

typedef struct Command {
  const char *name, *summary, *help;
  const char *accepts; /* letters of the options it takes */
  bool wants_input;
  int (*run)(LatheContext *, const Options *);
} Command;

/* ---- main.c ------------------------------------------------------------------------ */
LatheValue cli_str_value(const char *);
LatheValue cli_none_value(void);
LatheValue cli_int_value(int64_t);
LatheValue cli_bool_value(bool);
/* Calls a function of the compiler; false and a report when it is refused. */
bool cli_call(LatheContext *, int *status, const char *name, int n, const LatheValue *args, LatheValue *out);
int cli_refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* prints, gives EXIT_REFUSED */
int cli_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* prints, gives EXIT_USAGE */
int cli_refuse_rt(const LatheRtError *);
char *cli_read_file(const char *path); /* malloc; NULL if it cannot be read */
int cli_write_text(const char *path, const char *text, int64_t n);
void cli_print_json_text(const char *);
void cli_print_field(const LatheValue *, bool json);
/* seconds of a clock that only goes forward */
double cli_now(void);
bool cli_ends_with(const char *s, const char *end);
/* A whole number in [lo, hi]; false and a report otherwise. */
bool cli_read_number(const char *option, const char *text, long lo, long hi, long *out);

/* ---- model.c ------------------------------------------------------------------------ */
/* Imports a model file (.onnx, or Relay text) and, with compile, compiles it. */
bool cli_import_model(LatheContext *, const Options *, int *status, LatheValue *module, LatheValue *report);
bool cli_compile_model(LatheContext *, const Options *, int *status, LatheValue *compiled);
/* A model that runs: from a .so, or compiled here from a model file. */
bool cli_open_model(LatheContext *, const Options *, int *status, LatheRtModel **out);
int cli_run_compile(LatheContext *, const Options *);
int cli_run_inspect(LatheContext *, const Options *);
int cli_run_opt(LatheContext *, const Options *);
int cli_run_ops(LatheContext *, const Options *);

/* ---- tir.c ---------------------------------------------------------------------------- */
int cli_run_lower(LatheContext *, const Options *);
int cli_run_build(LatheContext *, const Options *);
int cli_run_targets(LatheContext *, const Options *);

/* ---- run.c, bench.c ------------------------------------------------------------------------- */
int cli_run_run(LatheContext *, const Options *);
int cli_run_bench(LatheContext *, const Options *);
/* Fills the executor's inputs from --input, or with random numbers where nothing is said. */
bool cli_set_inputs(LatheRtExecutor *, const LatheRtModel *, const Options *, bool need_all, int *status);

/* ---- texts.c: strings ------------------------------------------------------------------------- */
/* A tensor of strings from a file becomes one of the executor's numbers, in its place; any other stays. */
bool cli_texts_to_numbers(LatheRtExecutor *, LatheRtTensor **, LatheRtError *err);
/* A new tensor as files have them. */
bool cli_numbers_to_texts(const LatheRtExecutor *, const LatheRtTensor *, LatheRtTensor **out, LatheRtError *err);
void cli_print_texts(const LatheRtExecutor *, const LatheRtTensor *);

/* ---- npy.c: numpy's files --------------------------------------------------------------------- */
/* A tensor from a .npy file, or from member `name` of a .npz; false with a sentence. */
bool npy_read(const char *path, const char *name, LatheRtTensor **out, LatheRtError *err);
bool npy_write(const char *path, const LatheRtTensor *, LatheRtError *err);
bool npy_write_archive(const char *path, int n, const char *const *names, const LatheRtTensor *const *,
                       LatheRtError *err);
const char *cli_dtype_text(LatheRtDType, char out[24]);

/* ---- peak.c: what the machine can do ----------------------------------------------------------- */
double peak_gflops(int threads, double seconds);
double peak_gbytes(int threads, double seconds);
double peak_gbytes_within(int threads, double seconds, size_t bytes); /* of a block that the threads share */

#endif
