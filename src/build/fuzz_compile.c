/* fuzz_compile.c: random legal schedules of random computations, all the way down.
 *
 * One seed makes a program: a computation and a schedule of it.  What te_evaluate says
 * of the unscheduled computation must come out of
 *   - the interpreter on the scheduled function and on both lowered forms,
 *   - the code LLVM makes, on several CPU levels,
 *   - the code the C backend makes (test_compile.c: a compiler run takes too long here).
 * The numbers are small integers, so results are compared exactly. */
#include "build/test_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Program {
  uint64_t seed;
  Module *m;
  PrimFunc *plain;
  Sched *s;
  PrimFunc *f; /* the scheduled function */
  int n;
  const TirArg *before; /* the arguments as they are before a run … */
  const TirArg *want;   /* … and after */
  bool threads;         /* it is bound to thread axes */
} Program;

static bool find_thread_loop(void *env, Stmt *s)
{
  if (s->kind == S_FOR && s->u.loop.kind == FOR_THREAD) *(bool *)env = true;
  return true;
}

/* The unscheduled computation and what it gives.  Lives until the scope of its making
 * ends, as all of the program. */
static Program program_plain(Ctx *ctx, uint64_t *state, const char *name)
{
  Program p = {.seed = *state, .m = module_new(ctx)};
  defer(ctx, drop_module, p.m);
  TeArg *args;
  p.n = random_compute(p.m, state, &args);
  p.plain = te_create_prim_func(p.m, name, p.n, args, NULL);
  p.before = random_args(p.m->arena, p.plain, p.seed);
  p.want = run_copy(p.m->arena, p.n, p.before);
  te_evaluate(ctx, p.n, args, p.want);
  p.s = sched_new(p.plain, p.seed + 1);
  defer(ctx, drop_sched, p.s);
  return p;
}

static void program_finish(Program *p)
{
  p->f = sched_func(p->s);
  stmt_visit(p->f->body, find_thread_loop, &p->threads);
}

static Program program_make(Ctx *ctx, uint64_t seed, int steps, const char *name)
{
  Program p = program_plain(ctx, &seed, name);
  for (int i = 0; i < steps; i++) random_step(p.s, &seed);
  program_finish(&p);
  return p;
}

/* The same computation under the schedule that a trace tells. */
static Program program_replay(Ctx *ctx, uint64_t seed, const char *trace)
{
  Program p = program_plain(ctx, &seed, "main");
  sched_replay(p.s, trace);
  program_finish(&p);
  return p;
}

static void check_function(Ctx *ctx, const Program *p, const char *who, const PrimFunc *f)
{
  TirArg *arg = run_copy(scratch(ctx), p->n, p->before);
  func_interpret(f, p->n, arg);
  run_check_guards(ctx, who, p->n, arg);
  run_compare(ctx, who, p->n, p->want, arg, 0);
}

static void check_lowered(Ctx *ctx, void *env)
{
  static const char *const cpus[] = {"llvm", "llvm -mcpu=generic", "llvm -mcpu=x86-64-v4", "llvm -mcpu=neoverse-n1"};
  const Program *p = env;
  const Target *target = target_parse(ctx, p->threads ? "cuda -arch=sm_80" : cpus[p->seed % 4]);
  check_function(ctx, p, "lowered to loops", lower_func(p->f, target, LOWER_LOOPS, NULL));
  check_function(ctx, p, "lowered to a kernel", lower_func(p->f, target, LOWER_KERNEL, NULL));
}

/* The interpreter's half.  Programs for threads are lowered for a GPU, which may say
 * that it cannot run them: not every legal schedule is a launch. */
static void check_interpreted(Ctx *ctx, Program *p)
{
  check_function(ctx, p, "scheduled", p->f);
  ErrKind kind = protect(ctx, check_lowered, p);
  if (kind != ERR_NONE && !(p->threads && kind == ERR_UNSUPPORTED)) error_reraise(ctx);
}

/* Several programs in one build. */
static void check_built(Ctx *ctx, int n, const Program *p, const char *target)
{
  Scope scope = scope_begin(ctx);
  PrimFunc **f = arena_array(scratch(ctx), PrimFunc *, n);
  for (int i = 0; i < n; i++) f[i] = p[i].f;
  Built *b = build_funcs(ctx, n, f, target_parse(ctx, target), NULL);
  defer(ctx, drop_built, b);
  for (int i = 0; i < n; i++) {
    TirArg *arg = run_copy(scratch(ctx), p[i].n, p[i].before);
    run_built(ctx, b, p[i].f->name, p[i].n, arg);
    run_compare(ctx, arena_printf(scratch(ctx), "%s: %s", p[i].f->name, target), p[i].n, p[i].want, arg, 0);
  }
  scope_end(ctx, scope);
}

/* What of this machine a program is compiled for. */
static const char *cpu_level(Ctx *ctx, uint64_t seed)
{
  bool avx2 = target_has(target_host(ctx), CPU_AVX2) && target_has(target_host(ctx), CPU_FMA) &&
              target_has(target_host(ctx), CPU_BMI2);
  return seed % 3 == 0 ? "llvm -mcpu=generic" : seed % 3 == 1 && avx2 ? "llvm -mcpu=x86-64-v3" : "llvm";
}

/* ---- one program at a time ------------------------------------------------------------------ */

typedef struct Job {
  uint64_t seed;
  int steps;
  Program program;
  const char *trace;
} Job;

static void check_job(Ctx *ctx, void *env)
{
  Job *job = env;
  check_interpreted(ctx, &job->program);
  if (!job->program.threads && codegen_has_llvm()) check_built(ctx, 1, &job->program, cpu_level(ctx, job->seed));
}

static void make_job(Ctx *ctx, void *env)
{
  Job *job = env;
  job->program = program_make(ctx, job->seed, job->steps, "main");
  check_job(ctx, job);
}

/* ---- shrinking a failure --------------------------------------------------------------------- */

typedef struct Trial {
  uint64_t seed;
  const char *trace;
  bool replayed; /* the trace was a legal schedule */
  FILE *show;    /* where to print the program, or NULL */
} Trial;

static void try_trace(Ctx *ctx, void *env)
{
  Trial *t = env;
  Scope scope = scope_begin(ctx);
  Job job = {.seed = t->seed, .program = program_replay(ctx, t->seed, t->trace)};
  t->replayed = true;
  if (t->show)
    fprintf(t->show, "%s\n%s\n%s\n", func_print(scratch(ctx), job.program.plain), t->trace,
            func_print(scratch(ctx), job.program.f));
  check_job(ctx, &job);
  scope_end(ctx, scope);
}

static bool still_fails(Ctx *ctx, Trial *t)
{
  t->replayed = false;
  return protect(ctx, try_trace, t) != ERR_NONE && t->replayed;
}

/* Drops lines of the trace as long as the rest is a schedule that fails. */
static const char *shrink(Ctx *ctx, uint64_t seed, const char *trace)
{
  bool smaller = true;
  while (smaller) {
    smaller = false;
    for (size_t at = strlen(trace); at > 0;) {
      size_t end = at--;
      while (at > 0 && trace[at - 1] != '\n') at--;
      const char *without = arena_printf(ctx_arena(ctx), "%.*s%s", (int)at, trace, trace + end);
      if (!still_fails(ctx, &(Trial){.seed = seed, .trace = without})) continue;
      trace = without;
      smaller = true;
    }
  }
  return trace;
}

static void take_trace(Ctx *ctx, void *env)
{
  Job *job = env;
  job->trace = sched_trace_text(ctx_arena(ctx), program_make(ctx, job->seed, job->steps, "main").s);
}

/* Runs one seed.  True if all agree; else the smallest program found is on stderr. */
static bool run_seed(uint64_t seed, int steps)
{
  Ctx *ctx = ctx_new();
  if (!ctx) return true;
  Job job = {.seed = seed, .steps = steps};
  ErrKind kind = protect(ctx, make_job, &job);
  if (kind != ERR_NONE) {
    fprintf(stderr, "seed %" PRIu64 ", %d steps: %s: %s\n", seed, steps, error_kind_name(kind), error_message(ctx));
    if (protect(ctx, take_trace, &job) == ERR_NONE) {
      Trial last = {.seed = seed, .trace = shrink(ctx, seed, job.trace), .show = stderr};
      if (still_fails(ctx, &last)) fprintf(stderr, "%s: %s\n", error_kind_name(error_kind(ctx)), error_message(ctx));
    }
  }
  ctx_free(ctx);
  return kind == ERR_NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size >= 2 && !run_seed(hash_bytes(data, size, 7), data[size - 1] % 14)) abort();
  return 0;
}
