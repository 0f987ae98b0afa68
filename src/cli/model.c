/* model.c: the commands over models: compile, inspect, opt, ops.
 *
 * In: an ONNX file, Relay text, or a compiled model.  Out: one file that runs, or a
 * description. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static LatheValue list_value(const LatheValue *v, int64_t n)
{
  return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n};
}

/* ---- options ----------------------------------------------------------------------- */

typedef struct Pairs {
  LatheValue pair[MAX_VALUES], item[MAX_VALUES][2], dims[MAX_VALUES][LATHE_RT_MAX_RANK];
  LatheValue range[MAX_VALUES][LATHE_RT_MAX_RANK][2];
  char *name[MAX_VALUES];
  int n;
} Pairs;

static void free_pairs(Pairs *p)
{
  for (int i = 0; i < p->n; i++) free(p->name[i]);
}

/* Splits "name=rest" (the last '=' for inputs whose names hold one). */
static const char *split_name(Pairs *p, const char *text)
{
  const char *eq = strrchr(text, '=');
  if (!eq) return NULL;
  p->name[p->n] = strndup(text, (size_t)(eq - text));
  return eq + 1;
}

const char *cli_read_size(const char *p, int64_t *least, int64_t *most)
{
  char *end = (char *)(uintptr_t)(p + 1);
  bool likely = *p == '~';
  *least = -1;
  *most = 0;
  if (*p == '?') return end;
  p += likely;
  *least = strtoll(p, &end, 10);
  if (end == p || *least < (likely ? 1 : -1)) return NULL;
  if (likely) *most = *least;
  if (likely || strncmp(end, "..", 2)) return end;
  p = end + 2;
  *most = strtoll(p, &end, 10);
  return end == p || *least < 1 || *most < *least ? NULL : end;
}

/* --shape input=1,3,224,224; ? or -1 keeps a size open, a range says what it is likely to be then. */
static bool read_shapes(const Options *o, Pairs *out, int *status)
{
  for (int i = 0; i < o->shapes.n; i++) {
    const char *p = split_name(out, o->shapes.v[i]);
    int n = 0;
    while (p && *p && n < LATHE_RT_MAX_RANK) {
      int64_t least, most;
      const char *end = cli_read_size(p, &least, &most);
      if (!end || (*end && *end != ',')) break;
      LatheValue *range = out->range[i][n];
      range[0] = cli_int_value(least), range[1] = cli_int_value(most);
      out->dims[i][n++] = most ? list_value(range, 2) : least < 0 ? cli_none_value() : cli_int_value(least);
      p = *end ? end + 1 : end;
    }
    if (!p || *p) {
      *status =
          cli_misuse("--shape is NAME=D,D,… with whole numbers (?, 1..8 or ~224 for a size that stays open), not '%s'",
                     o->shapes.v[i]);
      out->n += p != NULL;
      return false;
    }
    out->item[i][0] = cli_str_value(out->name[i]);
    out->item[i][1] = list_value(out->dims[i], n);
    out->pair[i] = list_value(out->item[i], 2);
    out->n++;
  }
  return true;
}

static LatheValue config_value(const char *text)
{
  char *end;
  if (!strcmp(text, "true") || !strcmp(text, "True")) return cli_bool_value(true);
  if (!strcmp(text, "false") || !strcmp(text, "False")) return cli_bool_value(false);
  long long v = strtoll(text, &end, 10);
  if (*text && !*end) return cli_int_value(v);
  double f = strtod(text, &end);
  if (*text && !*end) return (LatheValue){.tag = LATHE_FLOAT, .u.f = f};
  return cli_str_value(text);
}

static bool read_configs(const Options *o, Pairs *out, int *status)
{
  for (int i = 0; i < o->configs.n; i++) {
    const char *value = split_name(out, o->configs.v[i]);
    if (!value) {
      *status = cli_misuse("--config is KEY=VALUE, not '%s'", o->configs.v[i]);
      return false;
    }
    out->item[i][0] = cli_str_value(out->name[i]);
    out->item[i][1] = config_value(value);
    out->pair[i] = list_value(out->item[i], 2);
    out->n++;
  }
  return true;
}

/* Names given one by one or with commas between. */
static int split_names(const Values *given, char *store[MAX_VALUES], LatheValue out[MAX_VALUES])
{
  int n = 0;
  for (int i = 0; i < given->n; i++)
    for (const char *p = given->v[i]; *p && n < MAX_VALUES;) {
      size_t k = strcspn(p, ",");
      if (k) {
        store[n] = strndup(p, k);
        out[n] = cli_str_value(store[n]);
        n++;
      }
      p += k + (p[k] == ',');
    }
  return n;
}

/* An option that has a name of its own is a config key too. */
static void add_config(Pairs *configs, const char *key, LatheValue value)
{
  if (configs->n == MAX_VALUES) return;
  int i = configs->n++;
  configs->name[i] = strdup(key);
  configs->item[i][0] = cli_str_value(configs->name[i]);
  configs->item[i][1] = value;
  configs->pair[i] = list_value(configs->item[i], 2);
}

/* What the settings and the passes had to say. */
static void print_notes(LatheContext *context, int *status, LatheValue passes)
{
  LatheValue notes;
  if (!cli_call(context, status, "pass_context_notes", 1, &passes, &notes)) return;
  for (int64_t i = 0; i < notes.n; i++) fprintf(stderr, "note: %s\n", notes.u.list[i].u.s);
}

bool cli_make_context(LatheContext *context, const Options *o, int *status, LatheValue target, LatheValue *out)
{
  long level = 3;
  if (o->opt_level && !cli_read_number("--opt-level", o->opt_level, 0, 4, &level)) {
    *status = EXIT_USAGE;
    return false;
  }
  Pairs *configs = calloc(1, sizeof *configs);
  char *names[2][MAX_VALUES] = {{0}};
  LatheValue lists[2][MAX_VALUES];
  int n[2] = {split_names(&o->required, names[0], lists[0]), split_names(&o->disabled, names[1], lists[1])};
  bool ok = configs && read_configs(o, configs, status);
  if (ok && o->no_winograd) add_config(configs, "lathe.impl.no_winograd", cli_bool_value(true));
  char *plans = ok && o->plan ? cli_read_file(o->plan, status) : NULL;
  if (ok && o->plan && !plans) ok = false;
  if (plans) add_config(configs, "lathe.plans", cli_str_value(plans));
  if (ok && (o->plans || o->alternatives)) add_config(configs, "lathe.plans.log", cli_bool_value(true));
  if (ok && o->tuned) add_config(configs, "lathe.tuned.database", cli_str_value(o->tuned));
  if (ok && o->fast_math) add_config(configs, "lathe.fast_math", cli_str_value(o->fast_math));
  if (ok) {
    LatheValue args[] = {cli_int_value(level), list_value(lists[0], n[0]), list_value(lists[1], n[1]),
                         list_value(configs->pair, configs->n), target};
    ok = cli_call(context, status, "pass_context", 5, args, out);
  }
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < n[k]; i++) free(names[k][i]);
  if (configs) free_pairs(configs);
  free(configs);
  return ok;
}

/* ---- import ----------------------------------------------------------------------------- */

static bool import_text(LatheContext *context, const Options *o, int *status, LatheValue *module)
{
  char *text = cli_read_file(o->input, status);
  if (!text) return false;
  LatheValue args[] = {cli_str_value(text), cli_str_value(o->input)};
  bool ok = cli_call(context, status, "graph_parse", 2, args, module);
  free(text);
  return ok;
}

bool cli_import_model(LatheContext *context, const Options *o, int *status, LatheValue *module, LatheValue *report)
{
  FileKind kind;
  *report = cli_none_value();
  if (!cli_look_at_file(o->input, &kind, status)) return false;
  if (kind == FILE_ELF || kind == FILE_ARCHIVE) {
    *status = cli_refuse("'%s' is compiled already; this takes a model file (ONNX, TFLite) or Relay text", o->input);
    return false;
  }
  if (kind == FILE_TEXT) return import_text(context, o, status, module);
  Pairs *shapes = calloc(1, sizeof *shapes);
  bool ok = shapes && read_shapes(o, shapes, status);
  if (ok) {
    LatheValue args[] = {cli_none_value(),
                         cli_none_value(),
                         cli_str_value(o->input),
                         list_value(shapes->pair, shapes->n),
                         o->external_root ? cli_str_value(o->external_root) : cli_none_value(),
                         cli_none_value(),
                         cli_none_value()};
    bool tflite = kind == FILE_TFLITE; /* takes the first four alike */
    ok = cli_call(context, status, tflite ? "tflite_import" : "onnx_import", tflite ? 4 : 7, args, report);
    if (ok) *module = report->u.list[0];
  }
  if (shapes) free_pairs(shapes);
  free(shapes);
  return ok;
}

/* ---- compile -------------------------------------------------------------------------------- */

static double progress_start;
int32_t cli_show_progress(void *user, const char *stage, int32_t done, int32_t total)
{
  (void)user;
  int width = 24;
  if (!progress_start) progress_start = cli_now();
  double part = total > 0 ? (double)done / total : 0;
  fprintf(stderr, "\r\033[K%-22.22s [", stage);
  for (int i = 0; i < width; i++) fputc(i < (int)(width * part) ? '#' : '.', stderr);
  fprintf(stderr, "] %3d%%  %.1f s", (int)(100 * part), cli_now() - progress_start);
  fflush(stderr);
  return 0;
}

/* writes: the output is to be the compiled model, and whether it can be written is found out first. */
/* Each once: 'lathe run' may run one several times. */
static int entry_names(const Options *o, LatheValue *out)
{
  int n = 0;
  for (int i = 0; i < o->entries.n; i++) {
    bool before = false;
    for (int k = 0; k < i; k++) before = before || !strcmp(o->entries.v[k], o->entries.v[i]);
    if (!before) out[n++] = cli_str_value(o->entries.v[i]);
  }
  return n;
}

static bool is(const char *said, const char *word) { return said && !strcmp(said, word); }

/* ---- programs ahead of time ---- */

static bool is_aot(const Options *o) { return o->cost || (o->format && strcmp(o->format, "so") != 0); }

/* "64k", "2M", "1000" */
static bool read_bytes(const char *text, int64_t *out)
{
  char *end;
  double v = strtod(text, &end);
  double unit = *end == 'k' || *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : *end == 'G' ? 1024.0 * 1024 * 1024 : 1;
  if (end == text || (*end && (unit == 1 || end[1])) || !(v > 0) || v * unit > 9e15) return false;
  *out = (int64_t)(v * unit);
  return true;
}

/* Options of the compiler: the list and what it holds. */
typedef struct AotValues {
  LatheValue pool[2 * MAX_VALUES], speed[MAX_VALUES][3], name_value[3][2], pair[3];
  char names[MAX_VALUES][64];
} AotValues;

/* SIZE, SIZE:READ or SIZE:READ/WRITE, the latter two in bytes of a cycle: an int, or a list of three in `speed`. */
static bool read_pool(const char *text, LatheValue speed[3], LatheValue *out)
{
  char size[32];
  int64_t bytes;
  size_t k = strcspn(text, ":");
  if (k >= sizeof size) return false;
  memcpy(size, text, k);
  size[k] = 0;
  if (!read_bytes(size, &bytes)) return false;
  *out = cli_int_value(bytes);
  if (!text[k]) return true;
  char *end;
  double read = strtod(text + k + 1, &end);
  if (end == text + k + 1 || !(read > 0)) return false;
  double write = read;
  if (*end == '/') {
    const char *from = end + 1;
    write = strtod(from, &end);
    if (end == from || !(write > 0)) return false;
  }
  if (*end) return false;
  speed[0] = *out;
  speed[1] = (LatheValue){.tag = LATHE_FLOAT, .u.f = read};
  speed[2] = (LatheValue){.tag = LATHE_FLOAT, .u.f = write};
  *out = list_value(speed, 3);
  return true;
}

static bool read_aot_options(const Options *o, AotValues *v, LatheValue *out, int *status)
{
  int n = 0;
  int64_t bytes;
  for (int i = 0; i < o->pools.n; i++) {
    const char *said = o->pools.v[i];
    size_t k = strcspn(said, "=");
    if (k == 0 || k >= sizeof v->names[i] || !said[k] || !read_pool(said + k + 1, v->speed[i], &v->pool[2 * i + 1]))
      return *status = cli_misuse("--pool %s: a pool reads NAME=SIZE, as in sram=64k, or NAME=SIZE:SPEED, as in "
                                  "sram=64k:8, bytes of a cycle (8/4: read and written)",
                                  said),
             false;
    memcpy(v->names[i], said, k);
    v->names[i][k] = 0;
    v->pool[2 * i] = cli_str_value(v->names[i]);
  }
  if (o->pools.n) {
    v->name_value[n][0] = cli_str_value("pools");
    v->name_value[n++][1] = list_value(v->pool, 2 * o->pools.n);
  }
  if (o->ram_limit) {
    if (!read_bytes(o->ram_limit, &bytes))
      return *status = cli_misuse("--ram-limit %s: a size reads 65536, 64k or 2M", o->ram_limit), false;
    v->name_value[n][0] = cli_str_value("ram_limit");
    v->name_value[n++][1] = cli_int_value(bytes);
  }
  if (o->io) {
    v->name_value[n][0] = cli_str_value("io");
    v->name_value[n++][1] = cli_str_value(o->io);
  }
  for (int i = 0; i < n; i++) v->pair[i] = list_value(v->name_value[i], 2);
  *out = list_value(v->pair, n);
  return true;
}

static bool compile_model(LatheContext *context, const Options *o, bool writes, int *status, LatheValue *compiled)
{
  bool ahead = is_aot(o);
  bool source = !o->target && ((writes && cli_ends_with(o->output, ".c")) || ahead);
  LatheValue module, report, target, passes;
  LatheValue text = o->target              ? cli_str_value(o->target)
                    : is(o->format, "web") ? cli_str_value("wasm")
                    : source               ? cli_str_value("c")
                                           : cli_none_value();
  LatheValue checked;
  if (!cli_call(context, status, "target", 1, &text, &target)) return false;
  LatheValue check[] = {target, o->output ? cli_str_value(o->output) : cli_none_value(), cli_bool_value(ahead)};
  if (writes && !cli_call(context, status, "compile_check", 3, check, &checked)) return false;
  AotValues values;
  LatheValue aot = cli_none_value();
  if (ahead && !read_aot_options(o, &values, &aot, status)) return false;
  if (!cli_make_context(context, o, status, target, &passes)) return false;
  if (!cli_import_model(context, o, status, &module, &report)) return false;
  bool show = isatty(2);
  progress_start = cli_now();
  LatheValue names[MAX_VALUES];
  int n = entry_names(o, names);
  char *cpu_names[MAX_VALUES];
  LatheValue cpus[MAX_VALUES];
  int ncpus = split_names(&o->variants, cpu_names, cpus);
  LatheValue args[] = {
    module,
    target,
    passes,
    o->dump_dir ? cli_str_value(o->dump_dir) : cli_none_value(),
    cli_bool_value(o->time),
    show ? cli_int_value((int64_t)(intptr_t)cli_show_progress) : cli_none_value(),
    list_value(names, n),
    cli_str_value(writes && cli_ends_with(o->output, ".so") && !is(o->weights, "ready") ? "trained" : "ready"),
    aot,
    cli_none_value(),
    list_value(cpus, ncpus)};
  bool ok = cli_call(context, status, "compile", 11, args, compiled);
  for (int i = 0; i < ncpus; i++) free(cpu_names[i]);
  if (show) fputs("\r\033[K", stderr);
  if (ok) print_notes(context, status, passes);
  return ok;
}

bool cli_compile_ahead(LatheContext *context, const Options *said, int *status, LatheValue *compiled)
{
  Options o = *said;
  o.cost = true;
  return compile_model(context, &o, false, status, compiled);
}

/* Is it a library, by its header?  An object cannot be loaded. */
static bool is_library(const char *path)
{
  unsigned char h[18] = {0};
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(h, 1, sizeof h, f) : 0;
  if (f) fclose(f);
  return n == sizeof h && h[16] == 3; /* ET_DYN */
}

bool cli_open_model(LatheContext *context, const Options *o, int *status, LatheRtModel **out)
{
  LatheRtError err;
  FileKind kind;
  if (!cli_look_at_file(o->input, &kind, status)) return false;
  if (kind == FILE_ARCHIVE || (kind == FILE_ELF && !is_library(o->input))) {
    *status = cli_refuse("'%s' is to be linked into a program; what runs here is a .so or a model file", o->input);
    return false;
  }
  if (kind == FILE_ELF) {
    LatheRtLoad how = {LATHE_RT_INIT(how), .cache = o->cache};
    if (lathe_rt_model_load_with(o->input, &how, out, &err) == LATHE_RT_OK) {
      LatheRtModelInfo info = {LATHE_RT_INIT(info)};
      lathe_rt_model_info(*out, &info);
      if (*info.cache_note) fprintf(stderr, "note: --weights-cache is not used: %s\n", info.cache_note);
      return true;
    }
    *status = cli_refuse_rt(&err);
    return false;
  }
  LatheValue compiled, address;
  if (!compile_model(context, o, false, status, &compiled) ||
      !cli_call(context, status, "compiled_runtime", 1, &compiled, &address))
    return false;
  *out = lathe_rt_model_retain((LatheRtModel *)(intptr_t)address.u.i);
  return true;
}

static void print_bytes(const char *what, double bytes)
{
  const char *unit = bytes >= 1e9 ? "GB" : bytes >= 1e6 ? "MB" : "kB";
  printf("%s%.1f %s", what, bytes / (bytes >= 1e9 ? 1e9 : bytes >= 1e6 ? 1e6 : 1e3), unit);
}

/* The format and the file's ending say the same. */
static bool check_format(const Options *o, int *status)
{
  static const char *const formats[][2] = {{"so", ".so"}, {"c", ".c"},     {"o", ".o"},
                                           {"a", ".a"},   {"mlf", ".tar"}, {"web", ".js"}};
  if (!o->format && (o->pools.n || o->ram_limit || o->io))
    return *status = cli_misuse("--pool, --ram-limit and --io are for programs ahead of time (-f c, o, a, mlf or web)"),
           false;
  for (int i = 0; o->format && i < 6; i++)
    if (is(o->format, formats[i][0])) {
      if (cli_ends_with(o->output, formats[i][1])) return true;
      return *status =
                 cli_misuse("-f %s writes a file that ends in %s, not '%s'", formats[i][0], formats[i][1], o->output),
             false;
    }
  if (o->format) *status = cli_misuse("-f is so, c, o, a, mlf or web, not '%s'", o->format);
  return !o->format;
}

/* -f web: the files go into a folder, which is made, and are called model.*; or where FILE.js says. */
static bool name_web_files(Options *o, char *path, size_t n, int *status)
{
  size_t len = strlen(o->output);
  while (len > 1 && o->output[len - 1] == '/') len--;
  struct stat st;
  int used = snprintf(path, n, "%.*s", (int)len, o->output);
  if (used < 0 || (size_t)used + sizeof "/model.js" > n) return *status = cli_refuse("the path is too long"), false;
  if (stat(path, &st) ? mkdir(path, 0777) : !S_ISDIR(st.st_mode))
    return *status = cli_refuse("the folder '%s' cannot be made", path), false;
  strcat(path, "/model.js");
  o->output = path;
  return true;
}

int cli_run_compile(LatheContext *context, const Options *given)
{
  int status = 0;
  char path[4096];
  LatheValue compiled, out;
  Options copy = *given;
  const Options *o = &copy;
  if (!o->output) return cli_misuse("say where to write with -o FILE (.so, .o, .a or .c)");
  if (is(o->format, "web") && !cli_ends_with(o->output, ".js") && !name_web_files(&copy, path, sizeof path, &status))
    return status;
  if (!check_format(o, &status)) return status;
  bool of_source = is(o->weights, "text") || is(o->weights, "beside");
  bool of_library = is(o->weights, "ready") || is(o->weights, "trained");
  if (o->weights && !of_source && !of_library)
    return cli_misuse("--weights is trained or ready (.so), text or beside (.c), not '%s'", o->weights);
  if (of_source && !cli_ends_with(o->output, ".c"))
    return cli_misuse("--weights %s is for C source (-o FILE.c)", o->weights);
  if (is(o->weights, "trained") && !cli_ends_with(o->output, ".so"))
    return cli_misuse("--weights trained is for what is loaded (-o FILE.so); other files have them ready");
  if (o->variants.n && (is_aot(o) || !cli_ends_with(o->output, ".so")))
    return cli_misuse("--variants is for what is loaded (-o FILE.so); a program that is linked is for one CPU");
  double start = cli_now();
  if (!compile_model(context, o, true, &status, &compiled)) return status;
  LatheValue args[] = {compiled, cli_str_value(o->output), of_source ? cli_str_value(o->weights) : cli_none_value()};
  if (!cli_call(context, &status, "compiled_export", 3, args, &out)) return status;
  if (o->time && cli_call(context, &status, "compiled_time_text", 1, &compiled, &out)) fputs(out.u.s, stdout);
  if (isatty(1) || o->time) {
    struct stat st;
    if (!stat(o->output, &st)) {
      printf("wrote %s: ", o->output);
      print_bytes("", (double)st.st_size);
      printf(" in %.2f s\n", cli_now() - start);
    }
    LatheValue report[] = {compiled, cli_str_value("text")};
    if (is_aot(o)) {
      if (cli_call(context, &status, "compiled_aot_report", 2, report, &out)) fputs(out.u.s, stdout);
      return status;
    }
    if (cli_call(context, &status, "compiled_memory_text", 1, &compiled, &out)) puts(out.u.s);
    LatheValue path = cli_str_value(o->output);
    if (!cli_ends_with(o->output, ".so") && cli_call(context, &status, "compile_c_command", 1, &path, &out))
      printf("link it with: %s\n", out.u.s);
  }
  return status;
}

/* ---- inspect ----------------------------------------------------------------------------------- */

static void print_ports(const char *what, int32_t n, const LatheRtPort *p, bool json)
{
  if (json) printf(", \"%s\": [", what);
  else printf("%s:\n", what);
  for (int32_t i = 0; i < n; i++) {
    if (!json) {
      printf("  %-24s %s\n", p[i].name, p[i].type);
      continue;
    }
    fputs(i ? ", {\"name\": " : "{\"name\": ", stdout);
    cli_print_json_text(p[i].name);
    fputs(", \"type\": ", stdout);
    cli_print_json_text(p[i].type);
    fputs("}", stdout);
  }
  if (json) fputs("]", stdout);
}

/* How often each implementation is called; operators that it computes stand in the nodes' names. */
static void print_kernels(const LatheRtModel *model, int32_t n, bool json)
{
  if (json) fputs(", \"implementations\": {", stdout);
  else printf("kernels:   %d call%s\n", n, n == 1 ? "" : "s");
  bool first = true;
  for (int32_t i = 0; i < n; i++) {
    const char *impl = lathe_rt_model_node(model, i)->impl;
    int32_t count = 0;
    int32_t before = 0;
    for (int32_t k = 0; k < n; k++) {
      bool same = !strcmp(lathe_rt_model_node(model, k)->impl, impl);
      count += same;
      before += same && k < i;
    }
    if (before) continue;
    if (!json) {
      printf("  %5d  %s\n", count, impl);
      continue;
    }
    fputs(first ? "" : ", ", stdout);
    cli_print_json_text(impl);
    printf(": %d", count);
    first = false;
  }
  if (json) fputs("}", stdout);
}

/* Those behind the first, whose ports are the model's. */
static void print_entries(const LatheRtModel *model, bool json)
{
  int32_t n = lathe_rt_model_entries(model);
  if (json) fputs(", \"entries\": [", stdout);
  for (int32_t i = 0; i < n; i++) {
    const LatheRtEntry *e = lathe_rt_model_entry(model, i);
    if (json) {
      fputs(i ? ", {\"name\": " : "{\"name\": ", stdout);
      cli_print_json_text(e->name);
      print_ports("inputs", e->ninputs, e->inputs, true);
      print_ports("outputs", e->noutputs, e->outputs, true);
      fputs("}", stdout);
    } else if (n > 1) {
      printf("entry %s%s\n", e->name, i ? ":" : ": as above");
      if (i) print_ports("  inputs", e->ninputs, e->inputs, false);
      if (i) print_ports("  outputs", e->noutputs, e->outputs, false);
    }
  }
  if (json) fputs("]", stdout);
}

/* ---- plans ----------------------------------------------------------------------------------------- */

/* A line that --plan reads: what stands behind # is for people. */
static void print_plan(int n, const char *line, double microseconds, int count)
{
  printf("%.*s  # %.1f us predicted, %d plan%s", n, line, microseconds, count, count == 1 ? "" : "s");
}

/* Of a compiled model: what its kernels were made by. */
static int print_kernel_plans(const LatheRtModel *model)
{
  const char *plan;
  for (int32_t i = 0; lathe_rt_model_kernel(model, i, &plan); i++) {
    const char *seconds = strchr(plan, '\t');
    const char *count = seconds ? strchr(seconds + 1, '\t') : NULL;
    if (!count) continue;
    print_plan((int)(seconds - plan), plan, 1e6 * atof(seconds + 1), atoi(count + 1));
    putchar('\n');
  }
  return 0;
}

/* The log has a line for each call, "WORKLOAD NAME", and below it the plans, "* MICROSECONDS PLAN" the one taken. */
static int print_logged_plans(const Options *o, const char *log)
{
  const char *only = o->alternatives;
  bool any = false;
  while (*log) {
    const char *head = log;
    size_t n = strcspn(head, "\n");
    const char *taken = NULL;
    int count = 0;
    log += n + (head[n] != 0);
    const char *first = log;
    while (*log == ' ' || *log == '*') {
      if (*log == '*') taken = log;
      count++;
      log += strcspn(log, "\n");
      log += *log != 0;
    }
    size_t workload = strcspn(head, " \n");
    if (!only && taken) {
      int line = (int)strcspn(taken, "\n");
      const char *plan = strchr(taken + 2, ' ');
      printf("%.*s", (int)workload, head);
      print_plan((int)(taken + line - plan), plan, atof(taken + 2), count);
      printf(", %.*s\n", (int)(n - workload - (n > workload)), head + workload + (n > workload));
    }
    char *line = only ? strndup(head, n) : NULL;
    if (line && strstr(line, only)) {
      any = true;
      printf("%s\n%.*s", line, (int)(log - first), first);
      puts("The plan marked '*' was taken: with it the predicted time of the whole graph is least, changes of layout "
           "and\n"
           "the memory of weights counted; a faster one may lie apart from its neighbours' layouts.");
    }
    free(line);
  }
  if (!only || any) return 0;
  fprintf(stderr, "error: no call of the model has '%s' in its name; --plans lists them\n", only);
  return 1;
}

static int inspect_plans(LatheContext *context, const Options *o)
{
  LatheValue compiled, out;
  int status = 0;
  if (!compile_model(context, o, false, &status, &compiled)) return status;
  if (!cli_call(context, &status, "compiled_plans_text", 1, &compiled, &out)) return status;
  return print_logged_plans(o, out.u.s);
}

static double file_bytes(const char *path)
{
  struct stat st;
  return stat(path, &st) ? 0 : (double)st.st_size;
}

static int inspect_compiled(const Options *o)
{
  ElfModel *file;
  LatheRtError err;
  if (!cli_elf_open(o->input, &file, &err)) return cli_refuse_rt(&err);
  const LatheRtModel *model = cli_elf_model(file);
  if (o->alternatives) {
    cli_elf_close(file);
    return cli_misuse("--alternatives is for a model file: a compiled one holds the plans that were taken (--plans)");
  }
  if (o->plans) {
    int status = print_kernel_plans(model);
    cli_elf_close(file);
    return status;
  }
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(model, &info);
  const LatheRtPort *in, *out;
  int32_t nin = lathe_rt_model_inputs(model, &in);
  int32_t nout = lathe_rt_model_outputs(model, &out);
  if (o->json) {
    fputs("{\"target\": ", stdout);
    cli_print_json_text(info.target);
    fputs(", \"arch\": ", stdout);
    cli_print_json_text(cli_elf_arch(file));
    fputs(", \"features\": ", stdout);
    cli_print_json_text(cli_elf_features(file));
    fputs(", \"variants\": [", stdout);
    for (uint32_t i = 0; i < cli_elf_variants(file); i++) {
      fputs(i ? ", " : "", stdout);
      cli_print_json_text(cli_elf_variant_features(file, i));
    }
    fputs("]", stdout);
    printf(", \"weights_bytes\": %llu, \"prepared_bytes\": %llu, \"storage_bytes\": %llu, \"storage_bound\": %llu, "
           "\"nodes\": %d, \"dynamic\": %s",
           (unsigned long long)info.weights_bytes, (unsigned long long)info.prepared_bytes,
           (unsigned long long)info.storage_bytes, (unsigned long long)info.storage_bound, info.num_nodes,
           info.is_dynamic ? "true" : "false");
  }
  print_ports("inputs", nin, in, o->json);
  print_ports("outputs", nout, out, o->json);
  print_entries(model, o->json);
  print_kernels(model, info.num_nodes, o->json);
  if (o->json) puts("}");
  else {
    printf("target:    %s\nmachine:   %s\nfeatures:  %s\n", info.target, cli_elf_arch(file), cli_elf_features(file));
    for (uint32_t i = 0; i < cli_elf_variants(file); i++)
      printf("%s  %s%s\n", i ? "         " : "variants:", cli_elf_variant_features(file, i),
             i + 1 == cli_elf_variants(file) ? " (shown here)" : "");
    print_bytes("weights:   ", (double)info.weights_bytes);
    if (info.prepared_bytes) print_bytes(" as they were trained; loading makes of them ", (double)info.prepared_bytes);
    print_bytes("\ncode:      ", file_bytes(o->input) - (double)info.weights_bytes);
    if (info.is_dynamic)
      fputs("\nstorage:   allocated while it runs: sizes or control flow are known at run time only", stdout);
    else {
      print_bytes("\nstorage:   ", (double)info.storage_bytes);
      print_bytes(" (no plan could go below ", (double)info.storage_bound);
      fputs(")", stdout);
    }
    putchar('\n');
  }
  cli_elf_close(file);
  return 0;
}

static bool print_signature(LatheContext *context, int *status, LatheValue module, bool json)
{
  LatheValue out;
  if (!cli_call(context, status, "module_ports", 1, &module, &out)) return false;
  static const char *const what[] = {"inputs", "outputs"};
  for (int k = 0; k < 2; k++) {
    const LatheValue *list = &out.u.list[k];
    printf(json ? ", \"%s\": [" : "%s:\n", what[k]);
    for (int64_t i = 0; i < list->n; i++) {
      const LatheValue *row = list->u.list[i].u.list;
      if (!json) {
        printf("  %-24s %s\n", row[0].u.s, row[1].u.s);
        continue;
      }
      fputs(i ? ", {\"name\": " : "{\"name\": ", stdout);
      cli_print_json_text(row[0].u.s);
      fputs(", \"type\": ", stdout);
      cli_print_json_text(row[1].u.s);
      fputs("}", stdout);
    }
    if (json) fputs("]", stdout);
  }
  return true;
}

static bool is_micro(const char *target)
{
  return target &&
         (!strncmp(target, "cortex-m", 8) || !strncmp(target, "riscv32", 7) || strstr(target, "-mcpu=cortex-m"));
}

static int inspect_cost(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue compiled, out;
  if (!cli_compile_ahead(context, o, &status, &compiled)) return status;
  LatheValue svg[] = {compiled, cli_str_value("svg")};
  if (o->svg) {
    if (!cli_call(context, &status, "compiled_aot_report", 2, svg, &out)) return status;
    status = cli_write_text(o->svg, out.u.s, out.n);
    if (status) return status;
  }
  LatheValue report[] = {compiled, cli_str_value(o->json ? "json" : "text")};
  if (cli_call(context, &status, "compiled_aot_report", 2, report, &out)) fputs(out.u.s, stdout);
  return status;
}

/* A program ahead of time that was written before. */
static int inspect_source(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue text = o->target ? cli_str_value(o->target) : cli_str_value("c");
  LatheValue target, out;
  if (!cli_call(context, &status, "target", 1, &text, &target)) return status;
  LatheValue args[] = {target, cli_str_value(o->input), cli_bool_value(o->json)};
  if (cli_call(context, &status, "aot_source_cost", 3, args, &out)) fputs(out.u.s, stdout);
  return status;
}

int cli_run_inspect(LatheContext *context, const Options *o)
{
  int status = 0;
  FileKind kind;
  if (cli_ends_with(o->input, ".c")) return inspect_source(context, o);
  if (!cli_look_at_file(o->input, &kind, &status)) return status;
  if (kind == FILE_ELF || kind == FILE_ARCHIVE) return inspect_compiled(o);
  if (o->plans || o->alternatives) return inspect_plans(context, o);
  if (o->cost || is_micro(o->target) || o->svg || o->pools.n || o->ram_limit || o->io) return inspect_cost(context, o);
  LatheValue module, report;
  if (!cli_import_model(context, o, &status, &module, &report)) return status;
  bool imported = report.tag == LATHE_LIST;
  if (o->json) fputs("{\"operators\": {", stdout);
  else if (imported) puts("operators:");
  for (int64_t i = 0; imported && i < report.u.list[1].n; i++) {
    const LatheValue *row = report.u.list[1].u.list[i].u.list;
    if (!o->json) {
      printf("  %5lld  %s\n", (long long)row[1].u.i, row[0].u.s);
      continue;
    }
    fputs(i ? ", " : "", stdout);
    cli_print_json_text(row[0].u.s);
    printf(": %lld", (long long)row[1].u.i);
  }
  double weights = imported ? (double)report.u.list[3].u.i : 0;
  long long folded = imported ? (long long)report.u.list[2].u.i : 0;
  if (o->json) printf("}, \"folded\": %lld, \"weights_bytes\": %.0f", folded, weights);
  else if (imported) {
    printf("folded at import: %lld nodes\n", folded);
    print_bytes("weights: ", weights);
    putchar('\n');
  }
  if (!print_signature(context, &status, module, o->json)) return status;
  if (o->json) puts("}");
  return 0;
}

/* ---- opt, ops ------------------------------------------------------------------------------------ */

/* Rows of text fields, as a list of objects. */
static void print_rows_json(const LatheValue *table, int n, const char *const *keys)
{
  putchar('[');
  for (int64_t i = 0; i < table->n; i++) {
    fputs(i ? ",\n  {" : "\n  {", stdout);
    for (int k = 0; k < n; k++) {
      printf("%s\"%s\": ", k ? ", " : "", keys[k]);
      cli_print_field(&table->u.list[i].u.list[k], true);
    }
    putchar('}');
  }
  fputs("]", stdout);
}

static int list_passes(LatheContext *context, const Options *o)
{
  static const char *const pass_keys[] = {"name", "doc", "scope", "opt_level"};
  static const char *const config_keys[] = {"name", "type", "default", "doc"};
  int status = 0;
  LatheValue table;
  if (!cli_call(context, &status, "pass_table", 0, NULL, &table)) return status;
  fputs(o->json ? "{\"passes\": " : "passes (name, level from which the default list runs it):\n", stdout);
  if (o->json) print_rows_json(&table, 4, pass_keys);
  for (int64_t i = 0; i < table.n && !o->json; i++) {
    const LatheValue *r = table.u.list[i].u.list;
    printf("  %-34s %lld  %s\n", r[0].u.s, (long long)r[3].u.i, r[1].u.s);
  }
  if (!cli_call(context, &status, "config_table", 0, NULL, &table)) return status;
  fputs(o->json ? ", \"config\": " : "config keys (name, type, default):\n", stdout);
  if (o->json) print_rows_json(&table, 4, config_keys);
  for (int64_t i = 0; i < table.n && !o->json; i++) {
    const LatheValue *r = table.u.list[i].u.list;
    printf("  %-38s %-10s %-8s %s\n", r[0].u.s, r[1].u.s, *r[2].u.s ? r[2].u.s : "-", r[3].u.s);
  }
  if (o->json) puts("}");
  return 0;
}

int cli_run_opt(LatheContext *context, const Options *o)
{
  int status = 0;
  if (o->list) return list_passes(context, o);
  LatheValue module, report, target, passes, out;
  LatheValue text = o->target ? cli_str_value(o->target) : cli_none_value();
  if (!cli_import_model(context, o, &status, &module, &report)) return status;
  if (!cli_call(context, &status, "target", 1, &text, &target) ||
      !cli_make_context(context, o, &status, target, &passes))
    return status;
  if (o->time && !cli_call(context, &status, "pass_context_time", 1, &passes, &out)) return status;
  if (o->passes.n == 0) {
    LatheValue args[] = {module, passes};
    if (!cli_call(context, &status, "pass_pipeline", 2, args, &module)) return status;
  }
  char *names[MAX_VALUES] = {0};
  LatheValue list[MAX_VALUES];
  int n = split_names(&o->passes, names, list);
  for (int i = 0; i < n && !status; i++) {
    LatheValue args[] = {module, list[i], list_value(NULL, 0), passes};
    cli_call(context, &status, "pass_run", 4, args, &module);
  }
  for (int i = 0; i < n; i++) free(names[i]);
  if (!status) print_notes(context, &status, passes);
  LatheValue text_args[] = {module, cli_bool_value(o->output != NULL)};
  if (status || !cli_call(context, &status, "module_text", 2, text_args, &out)) return status;
  status = cli_write_text(o->output, out.u.s, out.n);
  if (o->time && !status && cli_call(context, &status, "pass_context_time_text", 1, &passes, &out))
    fputs(out.u.s, stderr);
  return status;
}

static void print_op_json(const LatheValue *r, bool first)
{
  static const char *const keys[] = {"name", "doc", "args", "min_args", "max_args", "fusion_kind", "flags"};
  fputs(first ? "\n  {" : ",\n  {", stdout);
  for (int k = 0; k < 7; k++) {
    printf("%s\"%s\": ", k ? ", " : "", keys[k]);
    cli_print_field(&r[k], true);
  }
  fputs(", \"attributes\": [", stdout);
  for (int64_t i = 0; i < r[7].n; i++) {
    static const char *const fields[] = {"name", "type", "default", "doc"};
    const LatheValue *a = r[7].u.list[i].u.list;
    fputs(i ? ", {" : "{", stdout);
    for (int k = 0; k < 4; k++) {
      printf("%s\"%s\": ", k ? ", " : "", fields[k]);
      cli_print_field(&a[k], true);
    }
    fputs("}", stdout);
  }
  fputs("]}", stdout);
}

static int print_onnx_ops(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue table;
  if (!cli_call(context, &status, "onnx_ops", 0, NULL, &table)) return status;
  if (o->json) putchar('[');
  for (int64_t i = 0; i < table.n; i++) {
    const LatheValue *row = table.u.list[i].u.list;
    if (o->json) fputs(i ? ",\n {\"name\": " : "{\"name\": ", stdout);
    if (o->json) cli_print_json_text(row[0].u.s);
    else printf("%-52s", row[0].u.s);
    fputs(o->json ? ", \"versions\": [" : " version ", stdout);
    for (int64_t k = 0; k < row[1].n; k++) printf("%s%lld", k ? ", " : "", (long long)row[1].u.list[k].u.i);
    fputs(o->json ? "]}" : "\n", stdout);
  }
  if (o->json) puts("]");
  return 0;
}

static int print_tflite_ops(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue table;
  if (!cli_call(context, &status, "tflite_ops", 0, NULL, &table)) return status;
  if (o->json) putchar('[');
  for (int64_t i = 0; i < table.n; i++) {
    const LatheValue *row = table.u.list[i].u.list;
    if (o->json) printf("%s{\"name\": \"%s\", \"version\": %lld}", i ? ",\n " : "", row[0].u.s, (long long)row[1].u.i);
    else printf("%-36s up to version %lld\n", row[0].u.s, (long long)row[1].u.i);
  }
  if (o->json) puts("]");
  return 0;
}

int cli_run_ops(LatheContext *context, const Options *o)
{
  static const char *const kinds[] = {"elementwise", "broadcast", "injective", "reduction", "fusable", "", "",
                                      "tuple",       "opaque"};
  int status = 0;
  LatheValue table;
  if (o->onnx) return print_onnx_ops(context, o);
  if (o->tflite) return print_tflite_ops(context, o);
  if (!cli_call(context, &status, "op_table", 0, NULL, &table)) return status;
  if (o->json) putchar('[');
  for (int64_t i = 0; i < table.n; i++) {
    const LatheValue *r = table.u.list[i].u.list;
    if (o->json) print_op_json(r, i == 0);
    else printf("%-34s %-12s %s\n", r[0].u.s, kinds[r[5].u.i], r[1].u.s);
  }
  if (o->json) puts("\n]");
  return 0;
}
