/* run.c: `lathe run`: a model on given inputs, its outputs shown or written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- inputs ---------------------------------------------------------------------------- */

/* A number in [0, 1) from a counter: the same on every machine. */
static double unit(uint64_t *state)
{
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Sum of twelve uniforms less six: near enough to a normal distribution for an input. */
static double normal(uint64_t *state)
{
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += unit(state);
  return sum;
}

static bool store(const LatheRtTensor *t, size_t i, double v)
{
  char *p = t->data;
  switch (t->dtype.code * 1000 + t->dtype.bits) {
  case 2032: ((float *)p)[i] = (float)v; return true;
  case 2064: ((double *)p)[i] = v; return true;
  case 2:
  case 4:
  case 8: ((int8_t *)p)[i] = (int8_t)v; return true;
  case 16: ((int16_t *)p)[i] = (int16_t)v; return true;
  case 32: ((int32_t *)p)[i] = (int32_t)v; return true;
  case 64: ((int64_t *)p)[i] = (int64_t)v; return true;
  case 1002:
  case 1004:
  case 1008: ((uint8_t *)p)[i] = (uint8_t)v; return true;
  case 1016: ((uint16_t *)p)[i] = (uint16_t)v; return true;
  case 1032: ((uint32_t *)p)[i] = (uint32_t)v; return true;
  case 1064: ((uint64_t *)p)[i] = (uint64_t)v; return true;
  case 1001:
  case 6001:
  case 6008: ((uint8_t *)p)[i] = v >= 0.5; return true;
  case 2016: { /* halves from a float, by rounding its bits */
    float f = (float)v;
    uint32_t b;
    memcpy(&b, &f, 4);
    uint32_t sign = b >> 16 & 0x8000;
    uint32_t exp = b >> 23 & 255;
    ((uint16_t *)p)[i] = (uint16_t)(exp < 113   ? sign
                                    : exp > 142 ? sign | 0x7bff
                                                : sign | ((exp - 112) << 10) | (b >> 13 & 1023));
    return true;
  }
  case 4016: {
    float f = (float)v;
    uint32_t b;
    memcpy(&b, &f, 4);
    ((uint16_t *)p)[i] = (uint16_t)(b >> 16);
    return true;
  }
  }
  return false;
}

/* Numbers for an input of the model; what stays open at run time must be told by --shape. */
static bool make_input(const LatheRtPort *port, const int64_t *shape, bool random, uint64_t seed, LatheRtTensor **out,
                       int *status)
{
  LatheRtError err;
  char name[24];
  if (lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, port->dtype, port->ndim, shape, out, &err) != LATHE_RT_OK) {
    *status = cli_refuse_rt(&err);
    return false;
  }
  size_t n = 1;
  for (int32_t i = 0; i < port->ndim; i++) n *= (size_t)shape[i];
  bool whole = port->dtype.code != 2 && port->dtype.code != 4;
  double lowest = port->dtype.bits == 8 && port->dtype.code == 0 ? -128 : 0;
  double values = port->dtype.bits == 8 && port->dtype.code < 2 ? 256 : 2; /* bytes are pixels, others may be indices */
  for (size_t i = 0; i < n; i++)
    if (!store(*out, i, !random ? 1 : whole ? lowest + floor(unit(&seed) * values) : normal(&seed))) {
      *status = cli_refuse("input '%s' of %s cannot be filled; give a file: --input %s=FILE.npy", port->name,
                           cli_dtype_text(port->dtype, name), port->name);
      lathe_rt_tensor_free(*out);
      return false;
    }
  return true;
}

/* The value that the last --input NAME=… gives, or NULL. */
static const char *input_option(const Options *o, const char *name)
{
  size_t n = strlen(name);
  for (int i = o->inputs.n - 1; i >= 0; i--)
    if (!strncmp(o->inputs.v[i], name, n) && o->inputs.v[i][n] == '=') return o->inputs.v[i] + n + 1;
  for (int i = o->inputs.n - 1; i >= 0; i--)
    if (!strchr(o->inputs.v[i], '=')) return o->inputs.v[i];
  return NULL;
}

/* --input pixels: a name, with nothing said of what to take. */
static bool has_values(const Values *given, int32_t n, const LatheRtPort *in, int *status)
{
  for (int i = 0; i < given->n; i++)
    for (int32_t k = 0; k < n; k++)
      if (!strcmp(given->v[i], in[k].name) && access(given->v[i], F_OK)) {
        *status = cli_misuse("--input %s does not say what to take: --input %s=FILE.npy, %s=random or %s=ones",
                             in[k].name, in[k].name, in[k].name, in[k].name);
        return false;
      }
  return true;
}

static bool is_input(const LatheRtEntry *e, const char *given)
{
  for (int32_t k = 0; k < e->ninputs; k++)
    if (!strncmp(given, e->inputs[k].name, strlen(e->inputs[k].name)) && given[strlen(e->inputs[k].name)] == '=')
      return true;
  return false;
}

/* Each NAME=… of --input and --shape is an input of one of the entries. */
static bool known_names(const Values *given, int n, const LatheRtEntry *const *entry, int *status)
{
  for (int i = 0; i < given->n; i++) {
    const char *eq = strchr(given->v[i], '=');
    bool known = !eq;
    for (int k = 0; k < n && !known; k++) known = is_input(entry[k], given->v[i]);
    if (!known) {
      *status = cli_refuse("the model has no input '%.*s'; 'lathe inspect' shows its inputs", (int)(eq - given->v[i]),
                           given->v[i]);
      return false;
    }
  }
  return true;
}

/* The shape to fill: the model's, with open sizes from --shape, of a range the least. */
static bool input_shape(const Options *o, const LatheRtPort *port, int64_t *shape, int *status)
{
  for (int32_t i = 0; i < port->ndim; i++) shape[i] = port->shape[i];
  size_t n = strlen(port->name);
  for (int k = 0; k < o->shapes.n; k++) {
    if (strncmp(o->shapes.v[k], port->name, n) || o->shapes.v[k][n] != '=') continue;
    const char *p = o->shapes.v[k] + n + 1;
    for (int32_t i = 0; i < port->ndim && *p; i++) {
      int64_t least, most;
      const char *end = cli_read_size(p, &least, &most);
      if (!end) break;
      if (least >= 0) shape[i] = least;
      p = *end ? end + 1 : end;
    }
  }
  for (int32_t i = 0; i < port->ndim; i++)
    if (shape[i] < 0) {
      *status = cli_refuse("input '%s' is %s: say its sizes with --shape %s=… or give a file", port->name, port->type,
                           port->name);
      return false;
    }
  return true;
}

/* The last object that an entry gave under this name, else of this type; NULL: none. */
static LatheRtObject *given_object(const Objects *given, const LatheRtPort *port)
{
  LatheRtObject *named = NULL;
  LatheRtObject *typed = NULL;
  for (int i = 0; i < given->n; i++) {
    if (!strcmp(given->name[i], port->name)) named = given->object[i];
    if (!strcmp(given->type[i], port->type)) typed = given->object[i];
  }
  return named ? named : typed;
}

static bool set_object(LatheRtExecutor *ex, int32_t i, const LatheRtPort *port, const Objects *given, int *status)
{
  LatheRtError err;
  LatheRtObject *o = given ? given_object(given, port) : NULL;
  if (!o) {
    *status = cli_refuse("input '%s' is an object (%s): run an entry that gives it first, --entry NAME --entry …",
                         port->name, port->type);
    return false;
  }
  if (lathe_rt_set_input_object(ex, i, o, &err) == LATHE_RT_OK) return true;
  *status = cli_refuse_rt(&err);
  return false;
}

bool cli_set_inputs(LatheRtExecutor *ex, const LatheRtEntry *entry, const Objects *given, const Options *o,
                    bool need_all, int *status)
{
  const LatheRtPort *in = entry->inputs;
  int32_t n = entry->ninputs;
  LatheRtError err;
  if (!has_values(&o->inputs, n, in, status)) return false;
  if (!given && (!known_names(&o->inputs, 1, &entry, status) || !known_names(&o->shapes, 1, &entry, status)))
    return false;
  for (int32_t i = 0; i < n; i++) {
    if (in[i].kind == LATHE_RT_PORT_OBJECT) {
      if (!set_object(ex, i, &in[i], given, status)) return false;
      continue;
    }
    const char *what = input_option(o, in[i].name);
    LatheRtTensor *t = NULL;
    int64_t shape[LATHE_RT_MAX_RANK];
    if (!what && need_all) {
      *status = cli_misuse("input '%s' is not given: --input %s=FILE.npy, or random, or ones", in[i].name, in[i].name);
      return false;
    }
    if (in[i].ndim < 0) {
      *status = cli_refuse("input '%s' is %s, which cannot be given on the command line; use Python or C", in[i].name,
                           in[i].type);
      return false;
    }
    if (!what || !strcmp(what, "random") || !strcmp(what, "ones")) {
      if (!input_shape(o, &in[i], shape, status) ||
          !make_input(&in[i], shape, !what || *what == 'r', (uint64_t)i + 1, &t, status))
        return false;
    } else if (!npy_read(what, in[i].name, &t, &err)) {
      *status = cli_refuse_rt(&err);
      return false;
    }
    LatheRtCode code = cli_texts_to_numbers(ex, &t, &err) ? lathe_rt_set_input(ex, i, t, &err) : LATHE_RT_ARGUMENT;
    lathe_rt_tensor_free(t);
    if (code != LATHE_RT_OK) {
      *status = cli_refuse_rt(&err);
      return false;
    }
  }
  return true;
}

enum { MAX_ROWS = 16 }; /* that --top shows */

/* ---- outputs ------------------------------------------------------------------------------- */

static double half_value(uint16_t bits)
{
  int exponent = bits >> 10 & 31;
  int fraction = bits & 1023;
  double v = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                            : ldexp(fraction, -24);
  return bits >> 15 ? -v : v;
}

static float brain_value(uint16_t bits)
{
  uint32_t wide = (uint32_t)bits << 16;
  float v;
  memcpy(&v, &wide, sizeof v);
  return v;
}

/* False: numbers of this dtype are not shown. */
static bool element_of(const LatheRtTensor *t, size_t i, double *out)
{
  const char *p = (const char *)t->data + t->byte_offset;
  switch (t->dtype.code * 1000 + t->dtype.bits) {
  case 2016: *out = half_value(((const uint16_t *)p)[i]); return true;
  case 2032: *out = ((const float *)p)[i]; return true;
  case 2064: *out = ((const double *)p)[i]; return true;
  case 4016: *out = brain_value(((const uint16_t *)p)[i]); return true;
  case 2:
  case 4:
  case 8: *out = ((const int8_t *)p)[i]; return true;
  case 16: *out = ((const int16_t *)p)[i]; return true;
  case 32: *out = ((const int32_t *)p)[i]; return true;
  case 64: *out = (double)((const int64_t *)p)[i]; return true;
  case 1001:
  case 1002:
  case 1004:
  case 1008:
  case 6001:
  case 6008: *out = ((const uint8_t *)p)[i]; return true;
  case 1016: *out = ((const uint16_t *)p)[i]; return true;
  case 1032: *out = ((const uint32_t *)p)[i]; return true;
  case 1064: *out = (double)((const uint64_t *)p)[i]; return true;
  }
  *out = NAN;
  return false;
}

static double element(const LatheRtTensor *t, size_t i)
{
  double v;
  element_of(t, i, &v);
  return v;
}

/* The largest of n elements from the first on, with their places. */
static void print_top(const LatheRtTensor *t, size_t start, size_t n, long top)
{
  size_t *best = calloc((size_t)top, sizeof *best);
  long have = 0;
  for (size_t i = start; best && i < start + n; i++) {
    double v = element(t, i);
    long at = have;
    while (at > 0 && !(element(t, best[at - 1]) >= v)) at--;
    if (at == top) continue;
    if (have < top) have++;
    memmove(best + at + 1, best + at, (size_t)(have - at - 1) * sizeof *best);
    best[at] = i;
  }
  for (long k = 0; best && k < have; k++) printf("  %6zu  %.6g\n", best[k] - start, element(t, best[k]));
  free(best);
}

static void print_output(const LatheRtExecutor *ex, const LatheRtPort *port, const LatheRtTensor *t, long top)
{
  char name[24];
  size_t n = 1;
  printf("%s: %s (", port->name, cli_dtype_text(t->dtype, name));
  for (int32_t i = 0; i < t->ndim; i++) {
    printf("%s%lld", i ? ", " : "", (long long)t->shape[i]);
    n *= (size_t)t->shape[i];
  }
  puts(")");
  if (t->dtype.code == LATHE_RT_STRING) {
    cli_print_texts(ex, t);
    return;
  }
  double first;
  if (n && !element_of(t, 0, &first)) {
    printf("  (numbers of dtype %s are not shown)\n", name);
    return;
  }
  if (top > 0) { /* of each row: a batch has several */
    size_t row = t->ndim > 1 ? (size_t)t->shape[t->ndim - 1] : n;
    size_t rows = row ? n / row : 0;
    for (size_t i = 0; i < rows && i < MAX_ROWS; i++) {
      if (rows > 1) printf(" row %zu\n", i);
      print_top(t, i * row, row, top);
    }
    if (rows > MAX_ROWS) printf(" … %zu more rows\n", rows - MAX_ROWS);
    return;
  }
  double lo = INFINITY;
  double hi = -INFINITY;
  double sum = 0;
  for (size_t i = 0; i < n; i++) {
    double v = element(t, i);
    lo = v < lo ? v : lo;
    hi = v > hi ? v : hi;
    sum += v;
  }
  if (n) printf("  min %.6g, max %.6g, mean %.6g\n  first:", lo, hi, sum / (double)n);
  for (size_t i = 0; i < n && i < 8; i++) printf(" %.6g", element(t, i));
  if (n) puts(n > 8 ? " …" : "");
}

static int write_outputs(const LatheRtExecutor *ex, const char *path, int32_t n, const LatheRtPort *port,
                         const LatheRtTensor *const *t)
{
  LatheRtError err;
  const char *names[MAX_VALUES];
  const LatheRtTensor *as[MAX_VALUES];
  LatheRtTensor *text[MAX_VALUES] = {0};
  bool ok = true;
  for (int32_t i = 0; ok && i < n; i++) {
    names[i] = port[i].name;
    if (t[i]->dtype.code == LATHE_RT_STRING) ok = cli_numbers_to_texts(ex, t[i], &text[i], &err);
    as[i] = text[i] ? text[i] : t[i];
  }
  if (ok)
    ok = cli_ends_with(path, ".npy") && n == 1 ? npy_write(path, as[0], &err)
                                               : npy_write_archive(path, n, names, as, &err);
  for (int32_t i = 0; i < n; i++) lathe_rt_tensor_free(text[i]);
  return ok ? 0 : cli_refuse_rt(&err);
}

static int show_outputs(LatheRtExecutor *ex, const LatheRtEntry *entry, const Options *o)
{
  const LatheRtPort *port = entry->outputs;
  const LatheRtTensor *t[MAX_VALUES];
  LatheRtError err;
  int32_t n = entry->noutputs;
  long top = 0;
  if (o->top && !cli_read_number("--top", o->top, 1, 1000, &top)) return EXIT_USAGE;
  if (o->output && !cli_ends_with(o->output, ".npz") && !(cli_ends_with(o->output, ".npy") && n == 1))
    return cli_misuse("--output is a .npz file%s, not '%s'", n == 1 ? " or a .npy file" : "", o->output);
  if (n > MAX_VALUES)
    return cli_refuse("the model has %d outputs; 'lathe run' shows %d at most; use Python or C", n, MAX_VALUES);
  for (int32_t i = 0; i < n; i++) {
    if (port[i].ndim < 0 && o->output)
      return cli_refuse("output '%s' is %s, which a numpy file cannot hold; use Python or C", port[i].name,
                        port[i].type);
    if (port[i].ndim < 0) {
      printf("%s: %s\n", port[i].name, port[i].type);
      continue;
    }
    if (lathe_rt_get_output(ex, i, &t[i], &err) != LATHE_RT_OK) return cli_refuse_rt(&err);
    if (!o->output) print_output(ex, &port[i], t[i], top);
  }
  return o->output ? write_outputs(ex, o->output, n, port, t) : 0;
}

/* The entries to run, in order. */
static bool find_entries(const LatheRtModel *model, const Options *o, int *n, const LatheRtEntry **entry,
                         int32_t *number, int *status)
{
  LatheRtError err;
  *n = o->entries.n ? o->entries.n : 1;
  number[0] = 0;
  for (int i = 0; i < *n; i++) {
    if (o->entries.n && lathe_rt_model_find(model, o->entries.v[i], &number[i], &err) != LATHE_RT_OK) {
      *status = cli_refuse_rt(&err);
      return false;
    }
    entry[i] = lathe_rt_model_entry(model, number[i]);
  }
  return known_names(&o->inputs, *n, entry, status) && known_names(&o->shapes, *n, entry, status);
}

static void keep_objects(LatheRtExecutor *ex, const LatheRtEntry *e, Objects *given)
{
  LatheRtError err;
  for (int32_t i = 0; i < e->noutputs && given->n < MAX_VALUES; i++)
    if (e->outputs[i].kind == LATHE_RT_PORT_OBJECT &&
        lathe_rt_get_output_object(ex, i, &given->object[given->n], &err) == LATHE_RT_OK) {
      lathe_rt_object_retain(given->object[given->n]);
      given->type[given->n] = e->outputs[i].type;
      given->name[given->n++] = e->outputs[i].name;
    }
}

/* One entry after the other; the last one's outputs are shown. */
static int run_entries(LatheRtExecutor *ex, const LatheRtModel *model, const Options *o)
{
  const LatheRtEntry *entry[MAX_VALUES];
  int32_t number[MAX_VALUES];
  Objects given = {.n = 0};
  LatheRtError err;
  int status = 0;
  int n = 0;
  if (!find_entries(model, o, &n, entry, number, &status)) return status;
  for (int i = 0; i < n && !status; i++) {
    if (lathe_rt_executor_select(ex, number[i], &err) != LATHE_RT_OK) status = cli_refuse_rt(&err);
    if (status || !cli_set_inputs(ex, entry[i], &given, o, true, &status)) break;
    if (lathe_rt_run(ex, &err) != LATHE_RT_OK) status = cli_refuse_rt(&err);
    else if (i == n - 1) status = show_outputs(ex, entry[i], o);
    else keep_objects(ex, entry[i], &given);
  }
  for (int i = 0; i < given.n; i++) lathe_rt_object_free(given.object[i]);
  return status;
}

int cli_run_run(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheRtModel *model;
  LatheRtExecutor *ex;
  LatheRtError err;
  if (!cli_open_model(context, o, &status, &model)) return status;
  if (lathe_rt_executor_new(model, &ex, &err) != LATHE_RT_OK) {
    lathe_rt_model_free(model);
    return cli_refuse_rt(&err);
  }
  long threads = 0;
  if (o->threads && !cli_read_number("--threads", o->threads, 1, 1024, &threads)) status = EXIT_USAGE;
  if (!status && threads && lathe_rt_executor_set_threads(ex, (int32_t)threads, &err) != LATHE_RT_OK)
    status = cli_refuse_rt(&err);
  if (!status) status = run_entries(ex, model, o);
  lathe_rt_executor_free(ex);
  lathe_rt_model_free(model);
  return status;
}
