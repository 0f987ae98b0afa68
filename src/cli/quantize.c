/* quantize.c: `lathe quantize` and `lathe compare`: models of integers from models of floats, and the two beside each
 * other.
 *
 * Data is an .npz file with an array for each input, an .npy file for the only input, or a folder of such files, taken
 * in the order of their names.  The first axis counts samples; a file of a folder may be one sample without it. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- data -------------------------------------------------------------------------------------- */

/* Arrays as the compiler takes them: rows of a name (or none) and an address. */
typedef struct Data {
  LatheValue *row, *pair;
  LatheRtTensor **tensor;
  char **name; /* NULL: for the only input */
  int n, room;
} Data;

static bool add_array(Data *d, const char *name, LatheRtTensor *t)
{
  if (d->n == d->room) {
    int room = d->room ? 2 * d->room : 16;
    LatheRtTensor **tensor = realloc(d->tensor, (size_t)room * sizeof *tensor);
    if (tensor) d->tensor = tensor;
    char **names = realloc(d->name, (size_t)room * sizeof *names);
    if (names) d->name = names;
    if (!tensor || !names) return false;
    d->room = room;
  }
  d->name[d->n] = name ? strdup(name) : NULL;
  d->tensor[d->n++] = t;
  return true;
}

static void free_data(Data *d)
{
  for (int i = 0; i < d->n; i++) {
    lathe_rt_tensor_free(d->tensor[i]);
    free(d->name[i]);
  }
  free(d->tensor);
  free(d->name);
  free(d->row);
  free(d->pair);
}

static bool add_file(Data *d, const char *path, LatheRtError *err)
{
  LatheRtTensor *t;
  if (cli_ends_with(path, ".npy")) return npy_read(path, "", &t, err) && add_array(d, NULL, t);
  char **name;
  int n = npy_names(path, &name, err);
  bool ok = n >= 0;
  for (int i = 0; i < n; i++) {
    ok = ok && npy_read(path, name[i], &t, err) && add_array(d, name[i], t);
    free(name[i]);
  }
  if (n >= 0) free(name);
  return ok;
}

static int is_data(const struct dirent *e)
{
  return e->d_name[0] != '.' && (cli_ends_with(e->d_name, ".npy") || cli_ends_with(e->d_name, ".npz"));
}

static bool add_folder(Data *d, const char *path, LatheRtError *err)
{
  struct dirent **entry;
  int n = scandir(path, &entry, is_data, alphasort);
  bool ok = n > 0;
  if (n < 0) snprintf(err->text, sizeof err->text, "'%s': %s", path, strerror(errno));
  else if (!n) snprintf(err->text, sizeof err->text, "'%s': the folder has no .npy or .npz files", path);
  for (int i = 0; i < n; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
    ok = ok && add_file(d, file, err);
    free(entry[i]);
  }
  if (n >= 0) free(entry);
  return ok;
}

static const char *const needs =
    "it needs samples of the model's input, some tens to some hundreds that are like what it will see: --data FILE.npz "
    "with an array for each input (the first axis counts samples), FILE.npy for the only input, or a folder of such "
    "files";

static bool read_data(const Options *o, const char *command, Data *d, LatheValue *out, int *status)
{
  LatheRtError err = {0};
  struct stat st;
  if (!o->data) {
    *status = cli_misuse("'lathe %s' runs the model to find the ranges of its tensors, and %s", command, needs);
    return false;
  }
  bool folder = !stat(o->data, &st) && S_ISDIR(st.st_mode);
  if (!folder && !cli_ends_with(o->data, ".npy") && !cli_ends_with(o->data, ".npz")) {
    *status = cli_refuse("'%s' is no .npz or .npy file and no folder of them: %s", o->data, needs);
    return false;
  }
  if (!(folder ? add_folder(d, o->data, &err) : add_file(d, o->data, &err))) {
    *status = err.text[0] ? cli_refuse_rt(&err) : cli_refuse("out of memory");
    return false;
  }
  d->row = calloc((size_t)d->n + 1, sizeof *d->row);
  d->pair = calloc(2 * (size_t)d->n + 1, sizeof *d->pair);
  if (!d->row || !d->pair) return *status = cli_refuse("out of memory"), false;
  for (int i = 0; i < d->n; i++) {
    d->pair[2 * i] = d->name[i] ? cli_str_value(d->name[i]) : cli_none_value();
    d->pair[2 * i + 1] = cli_int_value((int64_t)(intptr_t)d->tensor[i]);
    d->row[i] = (LatheValue){.tag = LATHE_LIST, .u.list = &d->pair[2 * i], .n = 2};
  }
  *out = (LatheValue){.tag = LATHE_LIST, .u.list = d->row, .n = d->n};
  return true;
}

/* ---- labels ------------------------------------------------------------------------------------- */

/* Whole numbers of a text, one a line, or an array of integers. */
static bool read_labels(const char *path, LatheValue *out, int *status)
{
  LatheRtError err;
  int64_t n = 0;
  LatheValue *v = NULL;
  *out = cli_none_value();
  if (!path) return true;
  if (cli_ends_with(path, ".npy")) {
    LatheRtTensor *t;
    if (!npy_read(path, "", &t, &err)) return *status = cli_refuse_rt(&err), false;
    n = t->ndim == 1 ? t->shape[0] : -1;
    bool whole = t->dtype.code <= 1 && t->dtype.bits >= 8;
    v = n >= 0 && whole ? calloc((size_t)n + 1, sizeof *v) : NULL;
    for (int64_t i = 0; v && i < n; i++) {
      int64_t label = 0;
      memcpy(&label, (const char *)t->data + i * (t->dtype.bits / 8), t->dtype.bits / 8u);
      v[i] = cli_int_value(label);
    }
    lathe_rt_tensor_free(t);
    if (!v) return *status = cli_refuse("'%s': labels are a vector of integers", path), false;
  } else {
    char *text = cli_read_file(path, status);
    if (!text) return false;
    v = calloc(strlen(text) / 2 + 2, sizeof *v);
    char *p = text;
    for (char *end; v; p = end) {
      p += strspn(p, " \t\r\n,");
      if (!*p) break;
      long long label = strtoll(p, &end, 10);
      if (end == p) {
        *status = cli_refuse("'%s': label %lld is no whole number: '%.*s'", path, (long long)n + 1,
                             (int)strcspn(p, " \t\r\n,"), p);
        free(text);
        free(v);
        return false;
      }
      v[n++] = cli_int_value(label);
    }
    free(text);
    if (!v) return *status = cli_refuse("out of memory"), false;
  }
  *out = (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n};
  return true;
}

/* "1%", "0.01" */
static bool read_share(const char *option, const char *text, LatheValue *out)
{
  char *end;
  double v = strtod(text, &end);
  bool percent = *end == '%';
  if (percent) v /= 100, end++;
  if (end != text && !*end && v >= 0 && v <= 1) {
    *out = (LatheValue){.tag = LATHE_FLOAT, .u.f = v};
    return true;
  }
  cli_misuse("%s is a share, as in 1%% or 0.01, not '%s'", option, text);
  return false;
}

/* ---- the commands --------------------------------------------------------------------------------- */

static int32_t follow(void *user, const LatheValue *v)
{
  static char last[64];
  const char *stage = v->u.list[0].u.s;
  int64_t done = v->u.list[1].u.i;
  int64_t total = v->u.list[2].u.i;
  /* seldom enough not to be felt */
  if (strcmp(stage, last) || done % (total / 50 + 1) == 0)
    cli_show_progress(user, stage, (int32_t)done, (int32_t)total);
  snprintf(last, sizeof last, "%s", stage);
  return 0;
}

static LatheValue follower(void) { return isatty(2) ? cli_int_value((int64_t)(intptr_t)follow) : cli_none_value(); }

static int show_texts(LatheContext *context, const Options *o, const char *function, int n, const LatheValue *args)
{
  LatheValue out;
  int status = 0;
  bool ok = cli_call(context, &status, function, n, args, &out);
  if (isatty(2)) fputs("\r\033[K", stderr);
  if (ok) fputs(out.u.list[o->json ? 1 : 0].u.s, stdout);
  return status;
}

static LatheValue option(const char *key, LatheValue v, LatheValue pair[2])
{
  pair[0] = cli_str_value(key);
  pair[1] = v;
  return (LatheValue){.tag = LATHE_LIST, .u.list = pair, .n = 2};
}

static LatheValue text_or_none(const char *s) { return s ? cli_str_value(s) : cli_none_value(); }

int cli_run_quantize(LatheContext *context, const Options *o)
{
  int status = 0;
  Data d = {0};
  long samples = 0;
  LatheValue inputs, labels, drop = cli_none_value(), share = cli_none_value();
  if (!o->output) return cli_misuse("where to? lathe quantize %s --data DATA -o OUTPUT.onnx", o->input);
  if (o->drop && !read_share("--accuracy-drop", o->drop, &drop)) return EXIT_USAGE;
  if (o->samples && !cli_read_number("--samples", o->samples, 1, 100000000, &samples)) return EXIT_USAGE;
  if (o->percentile) {
    char *end;
    share = (LatheValue){.tag = LATHE_FLOAT, .u.f = strtod(o->percentile, &end)};
    if (end == o->percentile || *end)
      return cli_misuse("--percentile is a number, as in 99.99, not '%s'", o->percentile);
  }
  if (!read_data(o, "quantize", &d, &inputs, &status) || !read_labels(o->labels, &labels, &status)) {
    free_data(&d);
    return status;
  }
  LatheValue pair[5][2];
  LatheValue options[] = {
    option("calibrate", text_or_none(o->calibrate), pair[0]),
    option("accuracy_drop", drop, pair[1]),
    option("samples", samples ? cli_int_value(samples) : cli_none_value(), pair[2]),
    option("skip", text_or_none(o->skip), pair[3]),
    option("percentile", share, pair[4]),
  };
  LatheValue args[] = {cli_str_value(o->input),
                       cli_str_value(o->output),
                       inputs,
                       (LatheValue){.tag = LATHE_LIST, .u.list = options, .n = 5},
                       labels,
                       follower()};
  status = show_texts(context, o, "onnx_quantize", 6, args);
  if (labels.tag == LATHE_LIST) free((void *)(uintptr_t)labels.u.list);
  free_data(&d);
  return status;
}

int cli_run_compare(LatheContext *context, const Options *o)
{
  int status = 0;
  Data d = {0};
  LatheValue inputs;
  if (o->files.n != 1) return cli_misuse("which two models? lathe compare FLOAT.onnx OTHER.onnx --data DATA");
  if (read_data(o, "compare", &d, &inputs, &status)) {
    LatheValue args[] = {cli_str_value(o->input), cli_str_value(o->files.v[0]), inputs, follower()};
    status = show_texts(context, o, "onnx_compare", 4, args);
  }
  free_data(&d);
  return status;
}
