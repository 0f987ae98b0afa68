/* cases.c: runs the text cases that stand beside the layers.
 *
 *   cases [--update] FOLDER…      every .txt file in a folder "cases" below FOLDER
 *
 * A case is one file:
 *   # what it shows
 *   RUN  verb arguments
 *   TRACE                         (verb schedule) one primitive a line
 *   IN
 *   TVMScript text, or Relay text
 *   OUT                           the expected text, or
 *   ERROR                         Kind: message (line, column)
 *
 * Verbs: script (parse and print), check, schedule, lower loops|kernel [target],
 * pass NAME [target], code c|cuda [target], kernel c [target] (the C code without the
 * parts that every file has: the runtime's ABI, entry points and tables).  On Relay text: relay (parse and
 * print), pass NAME, NAME(option=value) ~tolerance on target.  What changes a function is also
 * interpreted before and after on the same numbers; the results must agree.
 * --update rewrites OUT and ERROR with what comes now; review the diff. */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pass/test_graphs.h"

typedef struct Case {
  const char *path;
  char *text;
  const char *run, *trace, *in, *want;
  const char *head; /* everything before OUT or ERROR, for rewriting */
  bool wants_error;
  const char *got; /* what came */
} Case;

#define MAX_ARGS 16
#define SYMBOLIC_SIZE 7
#define DEFAULT_TARGET "c -mcpu=x86-64-v2" /* the same text on every machine */

/* ---- reading a case --------------------------------------------------------------- */

static char *section(char *text, const char *name)
{
  size_t n = strlen(name);
  for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (!strncmp(line, name, n) && (line[n] == '\n' || line[n] == 0)) return line;
  return NULL;
}

static void parse_case(Ctx *ctx, Arena *arena, Case *c)
{
  char *out = section(c->text, "OUT");
  char *error = section(c->text, "ERROR");
  char *in = section(c->text, "IN");
  char *trace = section(c->text, "TRACE");
  char *run = strstr(c->text, "RUN ");
  if (!run || !in || (!out && !error)) raise(ctx, ERR_PARSE, NOWHERE, "a case needs RUN, IN and OUT or ERROR");
  c->wants_error = !out;
  char *last = out ? out : error;
  c->head = arena_strndup(arena, c->text, (size_t)(last - c->text));
  c->want = strchr(last, '\n') ? strchr(last, '\n') + 1 : "";
  c->in = arena_strndup(arena, in + 3, (size_t)(last - in - 3));
  c->trace = trace ? arena_strndup(arena, trace + 6, (size_t)(in - trace - 6)) : "";
  run += 4 + strspn(run + 4, " ");
  c->run = arena_strndup(arena, run, strcspn(run, "\n"));
}

/* ---- running functions on the same numbers -------------------------------------------- */

typedef struct Data {
  TirArg arg[MAX_ARGS];
  int64_t shape[MAX_ARGS][8];
  size_t bytes[MAX_ARGS];
  int n;
} Data;

static int64_t dim_value(Module *m, const Expr *e)
{
  EvalEnv env = {.m = m, .arena = scratch(m->ctx)};
  const Var **vars;
  int n = expr_free_vars(scratch(m->ctx), e, &vars);
  for (int i = 0; i < n; i++) expr_eval_bind(&env, vars[i], value_int(vars[i]->dtype, SYMBOLIC_SIZE));
  return expr_eval(&env, e, 0).i;
}

static Value number(DType t, uint64_t i)
{
  int64_t v = (int64_t)((i * 2654435761u >> 7) % 9) - (t.code == DT_UINT ? 0 : 4);
  return dtype_is_float(t) ? value_float(t, (double)v / 2) : value_int(t, v);
}

static void fill(const PrimFunc *f, Data *d)
{
  Ctx *ctx = f->m->ctx;
  if (f->nparam > MAX_ARGS) raise(ctx, ERR_ARGUMENT, NOWHERE, "a case has at most %d parameters", MAX_ARGS);
  d->n = f->nparam;
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    TirArg *a = &d->arg[i];
    *a = (TirArg){.dtype = b ? b->dtype : f->param[i].var->dtype};
    if (!b) {
      a->scalar = dtype_is_float(a->dtype) ? value_float(a->dtype, 1.5) : value_int(a->dtype, SYMBOLIC_SIZE);
      continue;
    }
    a->ndim = b->ndim;
    a->shape = d->shape[i];
    size_t count = 1;
    for (int k = 0; k < b->ndim; k++) count *= (size_t)(d->shape[i][k] = dim_value(f->m, b->shape[k]));
    d->bytes[i] = count * (size_t)dtype_bytes(b->dtype);
    a->data = arena_alloc(scratch(ctx), d->bytes[i] + 1);
    for (size_t k = 0; k < count; k++)
      value_store(number(b->dtype, k + (size_t)i * 1000), (char *)a->data + k * (size_t)dtype_bytes(b->dtype));
  }
}

static void compare(Ctx *ctx, const PrimFunc *before, const Data *a, const Data *b)
{
  for (int i = 0; i < a->n; i++) {
    size_t size = (size_t)dtype_bytes(a->arg[i].dtype);
    for (size_t at = 0; at < a->bytes[i]; at += size) {
      Value x = value_load(a->arg[i].dtype, (char *)a->arg[i].data + at);
      Value y = value_load(a->arg[i].dtype, (char *)b->arg[i].data + at);
      bool near = dtype_is_float(x.dtype) && fabs(x.f - y.f) <= 1e-5 * (1 + fabs(x.f));
      if (!value_eq(x, y) && !near)
        raise(ctx, ERR_INTERNAL, NOWHERE, "the meaning changed: element %zu of '%s' was %g and is %g", at / size,
              before->param[i].buffer->name, dtype_is_float(x.dtype) ? x.f : (double)x.i,
              dtype_is_float(y.dtype) ? y.f : (double)y.i);
    }
  }
}

/* Parameters may have become flat: the same bytes with one dimension. */
static void reshape(const PrimFunc *f, Data *d)
{
  for (int i = 0; i < f->nparam; i++)
    if (f->param[i].buffer && f->param[i].buffer->ndim == 1 && d->arg[i].ndim != 1) {
      d->shape[i][0] = (int64_t)(d->bytes[i] / (size_t)dtype_bytes(d->arg[i].dtype));
      d->arg[i].ndim = 1;
    }
}

static void check_meaning(const PrimFunc *before, const PrimFunc *after)
{
  Ctx *ctx = before->m->ctx;
  Data a = {0};
  Data b = {0};
  fill(before, &a);
  fill(before, &b);
  func_interpret(before, a.n, a.arg);
  reshape(after, &b);
  func_interpret(after, b.n, b.arg);
  compare(ctx, before, &a, &b);
}

/* ---- verbs -------------------------------------------------------------------------------- */

typedef struct Job {
  Case *c;
  Arena *arena;
} Job;

static void drop_module(void *m) { module_release(m); }
static void drop_sched(void *s) { sched_free(s); }
static void drop_code(void *c) { code_free(c); }

static const char *run_script(Arena *arena, Module *m, PrimFunc *f)
{
  const char *text = func_print(arena, f);
  const char *why = "";
  if (!func_equal(f, func_parse(m, text, "printed", 1, 0, NULL), arena, &why))
    raise(m->ctx, ERR_INTERNAL, NOWHERE, "printed text reads back differently: %s", why);
  return text;
}

static const char *run_schedule(Arena *arena, Module *m, PrimFunc *f, const char *trace)
{
  Sched *s = sched_new(f, 42);
  defer(m->ctx, drop_sched, s);
  sched_replay(s, trace);
  func_check(sched_func(s));
  check_meaning(f, sched_func(s));
  return run_script(arena, sched_module(s), sched_func(s));
}

static const char *run_lower(Arena *arena, PrimFunc *f, const char *stage, const Target *target)
{
  bool kernel = !strcmp(stage, "kernel");
  PrimFunc *low = lower_func(f, target, kernel ? LOWER_KERNEL : LOWER_LOOPS, NULL);
  check_meaning(f, low);
  return func_print_compact(arena, low);
}

static const char *run_code(Ctx *ctx, Arena *arena, PrimFunc *f, const char *format, const Target *target)
{
  bool cuda = !strcmp(format, "cuda");
  Kernel *k = lower_kernel(f, target, NULL);
  Code *code = cuda ? codegen_cuda(ctx, target, 1, &k) : codegen_c(ctx, target, 1, &k);
  defer(ctx, drop_code, code);
  return code_get(code, cuda ? CODE_CUDA : CODE_C, arena, NULL);
}

/* What stands between the prelude and the entry point. */
static const char *cut_kernel(Ctx *ctx, Arena *arena, const char *name, const char *text)
{
  const char *begin = strstr(text, "#define LATHE_EXPORT");
  const char *end = strstr(text, arena_printf(arena, "LATHE_EXPORT int32_t %s__call(", name));
  begin = begin ? strchr(begin, '\n') : NULL;
  if (!begin || !end) raise(ctx, ERR_INTERNAL, NOWHERE, "the C code of %s has no prelude or no entry point", name);
  while (*begin == '\n') begin++;
  return arena_strndup(arena, begin, (size_t)(end - begin));
}

/* ---- graphs: RUN  pass NAME, NAME(option=value) and RUN  relay on Relay text -------------------- */

static bool is_relay(const char *text) { return strstr(text, "def @") != NULL; }

static const char *run_relay(Ctx *ctx, Arena *arena, const Case *c)
{
  Module *m = module_new(ctx);
  defer(ctx, drop_module, m);
  op_init();
  graph_parse_module(m, c->in, "case");
  if (str_starts(c->run, "pass")) {
    const Node *before = graph_main(m);
    PassContext *pc = pass_context_new(ctx);
    defer(ctx, (void (*)(void *))pass_context_free, pc);
    pc->opt_level = 3;
    /* the same choices on every machine */
    const char *target = strstr(c->run, " on ");
    size_t n = strcspn(target ? target : c->run, "\n");
    pc->target = target_parse(ctx, target ? arena_strndup(arena, target + 4, n - 4)
                                          : "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=4");
    const char *passes = arena_strndup(arena, c->run + 4, target ? (size_t)(target - c->run) - 4 : n - 4);
    double tolerance = test_run_passes(pc, m, passes);
    test_same_meaning(m, c->run, before, graph_main(m), tolerance);
  } else if (!str_starts(c->run, "relay")) {
    raise(ctx, ERR_PARSE, NOWHERE, "'%s' is nothing that can be done with Relay text; pass and relay are", c->run);
  }
  return graph_print_module(arena, m);
}

static void run_case(Ctx *ctx, void *arg)
{
  Job *job = arg;
  Case *c = job->c;
  parse_case(ctx, job->arena, c);
  if (is_relay(c->in)) {
    c->got = run_relay(ctx, job->arena, c);
    return;
  }
  char verb[32] = "";
  char word[32] = "";
  char target_text[128] = DEFAULT_TARGET;
  sscanf(c->run, "%31s %31s %127[^\n]", verb, word, target_text);
  Module *m = module_new(ctx);
  defer(ctx, drop_module, m);
  PrimFunc *f = func_parse(m, c->in, "case", 1, 0, NULL);
  const Target *target = target_parse(ctx, target_text);
  if (!strcmp(verb, "script")) {
    c->got = run_script(job->arena, m, f);
  } else if (!strcmp(verb, "check")) {
    func_check(f);
    func_check_bounds(f);
    c->got = "ok";
  } else if (!strcmp(verb, "schedule")) {
    c->got = run_schedule(job->arena, m, f, c->trace);
  } else if (!strcmp(verb, "lower")) {
    c->got = run_lower(job->arena, f, word, target);
  } else if (!strcmp(verb, "pass")) {
    PrimFunc *after = lower_run_pass(f, target, word);
    check_meaning(f, after);
    c->got = func_print_compact(job->arena, after);
  } else if (!strcmp(verb, "code")) {
    c->got = run_code(ctx, job->arena, f, word, target);
  } else if (!strcmp(verb, "kernel")) {
    c->got = cut_kernel(ctx, job->arena, f->name, run_code(ctx, job->arena, f, word, target));
  } else {
    raise(ctx, ERR_PARSE, NOWHERE, "unknown verb '%s'", verb);
  }
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
  size_t n = strlen(a);
  size_t m = strlen(b);
  while (n && a[n - 1] == '\n') n--;
  while (m && b[m - 1] == '\n') m--;
  return n == m && !memcmp(a, b, n);
}

static bool one_case(Arena *arena, const char *path, bool update)
{
  Ctx *ctx = arena_ctx(arena);
  Case c = {.path = path, .text = file_read(arena, path, NULL, 1 << 20)};
  Job job = {&c, arena};
  ErrKind kind = protect(ctx, run_case, &job);
  bool errors = kind != ERR_NONE;
  Loc at = error_loc(ctx);
  bool located = at.line && !str_starts(error_message(ctx), "trace, line");
  if (errors && located)
    c.got =
        arena_printf(arena, "%s: %s (line %d, column %d)", error_kind_name(kind), error_message(ctx), at.line, at.col);
  else if (errors) c.got = arena_printf(arena, "%s: %s", error_kind_name(kind), error_message(ctx));
  if (c.want && errors == c.wants_error && same_text(c.got, c.want)) return true;
  if (update && c.head && kind != ERR_INTERNAL) {
    size_t n = strlen(c.got);
    const char *text = arena_printf(arena, "%s%s\n%s%s", c.head, errors ? "ERROR" : "OUT", c.got,
                                    n && c.got[n - 1] == '\n' ? "" : "\n");
    file_write(ctx, path, text, strlen(text));
    printf("updated %s\n", path);
    return true;
  }
  printf("FAILED %s\n--- wanted\n%s\n--- got\n%s\n", path, c.want ? c.want : "(no case)", c.got);
  return false;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void walk(Arena *arena, const char *folder, bool update, int *passed, int *failed)
{
  struct dirent **list;
  int n = scandir(folder, &list, NULL, by_name);
  for (int i = 0; i < n; i++) {
    const char *name = list[i]->d_name;
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    struct stat st;
    if (name[0] != '.' && !stat(path, &st)) {
      if (S_ISDIR(st.st_mode)) walk(arena, path, update, passed, failed);
      else if (str_ends(folder, "/cases") && str_ends(name, ".txt"))
        ++*(one_case(arena, path, update) ? passed : failed);
    }
    free(list[i]);
  }
  if (n >= 0) free(list);
}

typedef struct Run {
  int argc;
  char **argv;
  int passed, failed;
} Run;

static void run_all(Ctx *ctx, void *arg)
{
  Run *run = arg;
  bool update = run->argc > 1 && !strcmp(run->argv[1], "--update");
  for (int i = 1 + update; i < run->argc; i++) walk(ctx_arena(ctx), run->argv[i], update, &run->passed, &run->failed);
}

int main(int argc, char **argv)
{
  Ctx *ctx = ctx_new();
  Run run = {argc, argv, 0, 0};
  if (!ctx || protect(ctx, run_all, &run)) {
    fprintf(stderr, "cases: %s\n", ctx ? error_message(ctx) : "out of memory");
    return 2;
  }
  printf("%d passed, %d failed\n", run.passed, run.failed);
  ctx_free(ctx);
  return run.failed != 0;
}
