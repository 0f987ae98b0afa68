/* driver.c: the whole compilation, top to bottom: driver_compile. */
#include <stdlib.h>
#include <sys/stat.h>

#include "driver/compiled.h"

/* ---- life ----------------------------------------------------------------------------- */

Compiled *compiled_retain(Compiled *c)
{
  c->refs++;
  return c;
}

void compiled_release(Compiled *c)
{
  if (--c->refs) return;
  for (int i = 0; i < c->nvariants; i++) compiled_release(c->variant[i]);
  if (c->model) lathe_rt_model_free(c->model);
  for (int i = 0; c->built && i < c->program.module.n; i++)
    if (c->built[i]) built_release(c->built[i]);
  if (c->alone) module_release(c->alone);
  if (c->program.kernels) module_release(c->program.kernels);
  if (c->program.m) module_release(c->program.m);
  Ctx *ctx = c->ctx;
  if (c->arena) arena_free(c->arena);
  mem_free(ctx, c);
}

static void release_module(void *arg) { module_release(arg); }

static void release_slot(void *arg)
{
  Compiled **slot = arg;
  if (*slot) compiled_release(*slot);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The stages take their parts of one scale, so that what is told only grows.  How large a part is says roughly how
 * long it takes. */
enum { SCALE = 1000 };
typedef struct StageRow {
  const char *name;
  int end;
} StageRow;
static const StageRow stages[] = {{"copy", 10}, {"passes", 300}, {"lower", 500}, {"plan", 510}, {"code", SCALE}};
_Static_assert(sizeof stages / sizeof *stages <= MAX_STAGES, "a place for the seconds of each stage");

/* Tells that `done` of `total` steps of the stage at hand are through, in the words of `what`. */
static void tell(Compiled *c, const CompileOptions *o, const char *what, int done, int total)
{
  if (!o->progress) return;
  int begin = c->nstage > 1 ? stages[c->nstage - 2].end : 0;
  int end = c->nstage ? stages[c->nstage - 1].end : 0;
  int at = begin + (int)((int64_t)(end - begin) * done / (total > 0 ? total : 1));
  if (at > c->told) c->told = at;
  o->progress(o->progress_env, what, c->told, SCALE);
}

typedef struct Teller {
  Compiled *c;
  const CompileOptions *o;
  int at; /* passes of the default list that have begun */
} Teller;

static void tell_lowering(void *env, const char *what, int done, int total)
{
  Teller *t = env;
  tell(t->c, t->o, what, done, total);
}

static void tell_code(void *env, int done, int total) { tell_lowering(env, "code", done, total); }

/* Which pass begins; a pass may stand in the list more than once. */
static void tell_pass(void *env, Module *m, const Pass *pass)
{
  Teller *t = env;
  int n;
  const char *const *names = pass_pipeline_names(&n);
  (void)m;
  for (int i = t->at; i < n; i++)
    if (!strcmp(names[i], pass->name)) {
      t->at = i + 1;
      tell(t->c, t->o, pass->name, i, n);
      return;
    }
}

/* ---- seconds and dumps -------------------------------------------------------------------- */

/* The next stage begins. */
static void stage(Compiled *c, const CompileOptions *o)
{
  double t = clock_seconds();
  if (c->nstage) c->stage[c->nstage - 1].seconds = t - c->stage_start;
  c->stage_start = t;
  const char *name = stages[c->nstage].name;
  c->stage[c->nstage++] = (StageTime){name, 0};
  tell(c, o, name, 0, 1);
  ctx_poll(c->ctx);
}

static void end_stages(Compiled *c)
{
  if (c->nstage) c->stage[c->nstage - 1].seconds = clock_seconds() - c->stage_start;
}

void driver_dump(Compiled *c, const char *name, const char *ending, const char *text)
{
  if (!c->dump_dir) return;
  Scope scope = scope_begin(c->ctx);
  file_write(c->ctx, arena_printf(scratch(c->ctx), "%s/%02d_%s.%s", c->dump_dir, c->ndump++, name, ending), text,
             strlen(text));
  scope_end(c->ctx, scope);
}

/* Writes the module after each pass that changed it. */
static void dump_pass(void *env, Module *m, const Pass *pass)
{
  Compiled *c = env;
  Scope scope = scope_begin(c->ctx);
  const char *text = graph_print_module_with(scratch(c->ctx), m, GRAPH_TEXT_TYPES);
  uint64_t hash = hash_bytes(text, strlen(text), 1);
  if (hash != c->dumped) driver_dump(c, pass->name, "relay", text);
  c->dumped = hash;
  scope_end(c->ctx, scope);
}

static void dump_kernels(Compiled *c)
{
  for (int i = 0; c->dump_dir && i < c->program.kernel.n; i++) {
    Scope scope = scope_begin(c->ctx);
    const ProgKernel *k = &c->program.kernel.v[i];
    driver_dump(c, arena_printf(scratch(c->ctx), "kernel_%s", k->name), "relay", graph_print(scratch(c->ctx), k->func));
    if (k->external) {
      scope_end(c->ctx, scope);
      continue;
    }
    driver_dump(c, arena_printf(scratch(c->ctx), "kernel_%s", k->name), "tir",
                func_print(scratch(c->ctx), k->impl.func));
    PrimFunc *low = lower_func(k->impl.func, c->program.device.v[k->device].target, LOWER_LOOPS, &c->lower);
    driver_dump(c, arena_printf(scratch(c->ctx), "kernel_%s_lowered", k->name), "txt",
                func_print_compact(scratch(c->ctx), low));
    scope_end(c->ctx, scope);
  }
}

static void make_dump_dir(Compiled *c, const char *dir)
{
  struct stat st;
  if (!dir) return;
  if (mkdir(dir, 0777) && (stat(dir, &st) || !S_ISDIR(st.st_mode)))
    raise(c->ctx, ERR_IO, NOWHERE, "the folder '%s' cannot be made", dir);
  c->dump_dir = arena_strdup(c->arena, dir);
}

/* ---- the passes ------------------------------------------------------------------------------ */

typedef struct PassRun {
  PassContext *pc;
  PassContext *own;     /* made here */
  const Target *target; /* what pc had */
  Targets targets;
  int instruments;
  bool patched; /* the limit of RAM chose bands of rows */
} PassRun;

static void end_passes(void *arg)
{
  PassRun *r = arg;
  r->pc->target = r->target;
  r->pc->targets = r->targets;
  r->pc->instruments.n = r->instruments;
  r->pc->nentries = 0;
  r->pc->lift_weights = false;
  if (r->patched) pass_config_set(r->pc, "relay.PatchRows.patches", "0");
  if (r->own) pass_context_free(r->own);
}

/* The context, which is given back as it was when the compilation ends. */
static PassRun *begin_passes(Ctx *ctx, const CompileOptions *o)
{
  PassRun *r = arena_new_of(scratch(ctx), PassRun);
  r->pc = o->passes;
  if (!r->pc) {
    r->pc = r->own = pass_context_new(ctx);
    r->pc->opt_level = 3;
  }
  r->target = r->pc->target;
  r->targets = r->pc->targets;
  r->instruments = r->pc->instruments.n;
  defer(ctx, end_passes, r);
  return r;
}

static void run_passes(Compiled *c, const CompileOptions *o, PassRun *r, Teller *t)
{
  Scope scope = scope_begin(c->ctx);
  r->pc->nentries = o->nentries;
  r->pc->entries = o->entries;
  if (o->aot && o->aot->patches) {
    pass_config_set(r->pc, "relay.PatchRows.layers", arena_printf(c->arena, "%" PRId64, o->aot->layers));
    pass_config_set(r->pc, "relay.PatchRows.patches", arena_printf(c->arena, "%" PRId64, o->aot->patches));
    r->patched = true;
  }
  r->pc->lift_weights = o->weights == WEIGHTS_TRAINED && c->program.device.n == 1 && !o->aot;
  if (o->progress)
    vec_push(r->pc->arena, &r->pc->instruments, ((PassInstrument){.name = "progress", .env = t, .before = tell_pass}));
  if (c->dump_dir || pass_config_int(r->pc, "lathe.plans.log")) r->pc->impl.log = &c->plans;
  if (c->dump_dir)
    vec_push(r->pc->arena, &r->pc->instruments, ((PassInstrument){.name = "dump", .env = c, .after = dump_pass}));
  c->config = r->pc->impl;
  c->lower.no_vectorize = pass_config_int(r->pc, "tir.disable_vectorize") != 0;
  pass_pipeline(r->pc, c->program.m);
  scope_end(c->ctx, scope);
}

/* What the passes left behind (weights before they were folded and packed) goes with the module that
 * they worked on; the graph that is left moves into a new one. */
static void drop_leftovers(Program *p)
{
  Module *m = graph_copy_module(p->m);
  module_release(p->m);
  p->m = m;
}

/* ---- code --------------------------------------------------------------------------------------- */

/* A module without kernels still has a table of them. */
static PrimFunc *no_kernel(Module *m, int module)
{
  const char *name = module ? arena_printf(m->arena, "lathe_nothing_%d", module) : "lathe_nothing";
  return func_new(m, name, 0, NULL, stmt_nop(m));
}

/* What the device loads: the code as a shared library. */
static void add_image(Program *p, int device, Code *code)
{
  const char *path = arena_printf(scratch(p->ctx), "%s/image.so", file_temp_dir(p->ctx));
  code_export(code, path);
  ProgImage image = {.device = device, .offset = p->weights_bytes};
  image.bytes = file_read(p->arena, path, &image.n, 0);
  p->weights_bytes = (p->weights_bytes + image.n + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
  vec_push(p->arena, &p->image, image);
}

/* The kernels of each device, by the code generator of its target. */
static void generate(Compiled *c, const CompileOptions *o, Teller *t)
{
  Program *p = &c->program;
  BuildOptions options = {.config = &c->lower, .progress = o->progress ? tell_code : NULL, .env = t};
  c->built = arena_array(c->arena, Built *, p->module.n);
  const CodeExternal *external;
  int nexternal = program_extern_functions(p, c->arena, &external);
  if (nexternal) c->built[p->device.n] = build_externals(c->ctx, p->target, nexternal, external);
  for (int m = 0; m < p->device.n; m++) {
    Scope scope = scope_begin(c->ctx);
    PrimFunc **func = arena_array(scratch(c->ctx), PrimFunc *, p->kernel.n + 1);
    int n = 0;
    for (int i = 0; i < p->kernel.n; i++)
      if (p->kernel.v[i].module == m) func[n++] = p->kernel.v[i].impl.func;
    if (n == 0) func[n++] = no_kernel(p->kernels, m);
    c->built[m] = build_funcs_with(c->ctx, n, func, p->module.v[m].target, &options);
    if (built_device_code(c->built[m])) add_image(p, m, built_device_code(c->built[m]));
    scope_end(c->ctx, scope);
  }
}

static void generate_aot(Compiled *c, const CompileOptions *o)
{
  c->alone = module_new(c->ctx);
  c->aot = aot_plan(&c->program, o->aot, c->alone, &c->lower);
}

/* ---- targets and devices ------------------------------------------------------------------------ */

static void check_targets(Ctx *ctx, const DeviceList *list)
{
  const Target *host = list->v[0].target;
  for (int i = 0; i < list->n; i++) {
    const Target *t = list->v[i].target;
    if (target_is_gpu(t))
      raise(
          ctx, ERR_UNSUPPORTED, NOWHERE,
          "a model is compiled for a CPU, not for '%s': only single kernels are built for that target ('lathe build', "
          "lathe.build)",
          t->text);
    build_check_target(ctx, t);
    if (t->arch != host->arch)
      raise(ctx, ERR_UNSUPPORTED, NOWHERE,
            "targets '%s' and '%s' are for different machines (%s and %s); the CPU targets of one model are for one",
            host->text, t->text, target_arch_name(host->arch), target_arch_name(t->arch));
  }
}

/* The devices that the targets serve, each with a module for its code. */
static const DeviceList *take_targets(Program *p, const CompileOptions *o, PassContext *pc)
{
  if (o->ntargets || o->target || !pc->targets.n) {
    const Target *one = o->target ? o->target : pc->target ? pc->target : target_host(p->ctx);
    Targets targets = {0};
    if (!o->ntargets) vec_push(p->arena, &targets, one);
    for (int i = 0; i < o->ntargets; i++) vec_push(p->arena, &targets, o->targets[i]);
    pc->targets = targets;
  }
  Targets served = {0};
  for (int i = 0; i < pc->targets.n; i++) {
    const Target *t = pc->targets.v[i];
    vec_push(p->arena, &served, o->aot ? aot_target(p->ctx, t) : build_target(p->ctx, p->arena, t));
  }
  pc->targets = served;
  const DeviceList *list = pass_devices(pc, p->arena);
  check_targets(p->ctx, list);
  for (int i = 0; i < list->n; i++) {
    const VirtualDevice *v = &list->v[i];
    vec_push(p->arena, &p->device, ((ProgDevice){.device = {v->type, v->id}, .target = v->target}));
    vec_push(p->arena, &p->module, ((ProgModule){.target = v->target}));
  }
  p->target = list->v[0].target;
  pc->target = list->v[list->fallback].target;
  return list;
}

static Compiled *compile_once(Ctx *ctx, Module *m, const CompileOptions *o)
{
  Scope scope = scope_begin(ctx);
  Compiled **slot = arena_new_of(scratch(ctx), Compiled *);
  defer(ctx, release_slot, slot);
  Compiled *c = *slot = mem_alloc(ctx, sizeof *c);
  *c = (Compiled){.ctx = ctx, .refs = 1};
  Teller *t = arena_new_of(scratch(ctx), Teller);
  *t = (Teller){.c = c, .o = o};
  c->arena = arena_new(ctx);
  c->plans = text_new(c->arena);
  make_dump_dir(c, o->dump_dir);
  Program *p = &c->program;
  *p = (Program){.ctx = ctx,
                 .arena = c->arena,
                 .config = &c->config,
                 .prepare = -1,
                 .nexternals = o->nexternals,
                 .externals = o->externals};
  PassRun *run = begin_passes(ctx, o);
  const DeviceList *devices = take_targets(p, o, run->pc);
  op_init();

  stage(c, o);
  p->m = graph_copy_module(m);
  p->kernels = module_new(ctx);
  if (c->dump_dir) driver_dump(c, "import", "relay", graph_print_module_with(scratch(ctx), p->m, GRAPH_TEXT_TYPES));
  stage(c, o);
  run_passes(c, o, run, t);
  drop_leftovers(p);
  if (devices->n > 1) p->plan = pass_device_plan(p->arena, p->m, devices);
  stage(c, o);
  program_emit(p, o->nentries, o->entries, o->progress ? tell_lowering : NULL, t);
  program_place_externals(p);
  stage(c, o);
  program_plan(p);
  if (o->aot) aot_check(p);
  if (c->dump_dir) driver_dump(c, "plans", "txt", text_str(&c->plans));
  dump_kernels(c);
  if (c->dump_dir) driver_dump(c, "program", "txt", program_print(p, scratch(ctx)));
  stage(c, o);
  if (o->aot) {
    generate_aot(c, o);
  } else {
    generate(c, o, t);
    program_number_strings(p);
    if (p->prepare >= 0) program_digest(p);
    c->bytes = program_bytes(p, c->arena, &c->nbytes);
  }
  tell(c, o, "code", 1, 1);
  end_stages(c);

  compiled_retain(c);
  scope_end(ctx, scope);
  return c;
}

/* ---- a limit of RAM ------------------------------------------------------------------------------- */

static int64_t most_ram(const Compiled *c)
{
  int64_t most = 0;
  for (int i = 0; i < c->program.entry.n; i++)
    if (aot_ram(c->aot, i) > most) most = aot_ram(c->aot, i);
  return most;
}

static int by_work(const void *a, const void *b)
{
  const PatchChoice *x = a;
  const PatchChoice *y = b;
  return (x->work > y->work) - (x->work < y->work);
}

/* Ways to compute the first layers in bands that are worth a try, in this order: what fits by its tensors and computes
 * the least twice, then what needs the fewest bytes. */
static int list_patches(Ctx *ctx, Module *m, const CompileOptions *o, PatchChoice **out)
{
  enum { LISTED = 64, WORKING = 3, SMALLEST = 3 };
  PatchChoice all[LISTED];
  if (o->nentries > 1 || (o->nentries && strcmp(o->entries[0], "main") != 0)) return 0;
  Module *typed = graph_copy_module(m);
  defer(ctx, release_module, typed);
  int n = pass_patch_choices(typed, graph_infer(typed, graph_main(typed)), LISTED, all);
  int fit = 0;
  while (fit < n && all[fit].bytes <= (double)o->aot->ram_limit) fit++;
  *out = arena_array(scratch(ctx), PatchChoice, WORKING + SMALLEST);
  int listed = 0;
  for (int i = 0; i < n && i < SMALLEST; i++) (*out)[WORKING + i] = all[i];
  qsort(all, (size_t)fit, sizeof *all, by_work);
  for (; listed < fit && listed < WORKING; listed++) (*out)[listed] = all[listed];
  for (int i = 0; i < n && i < SMALLEST; i++) (*out)[listed++] = (*out)[WORKING + i];
  return listed;
}

/* The program as it is, or the first one with bands that fits; else what the smallest of them lacks is raised. */
static Compiled *compile_within(Ctx *ctx, Module *m, const CompileOptions *options)
{
  Scope scope = scope_begin(ctx);
  AotOptions aot = *options->aot;
  CompileOptions o = *options;
  o.aot = &aot;
  aot.ram_limit = 0;
  Compiled **slot = arena_new_of(scratch(ctx), Compiled *);
  defer(ctx, release_slot, slot);
  *slot = compile_once(ctx, m, &o);
  int64_t least = most_ram(*slot);
  PatchChoice best = {0};
  if (least > options->aot->ram_limit) {
    PatchChoice *choice;
    int n = list_patches(ctx, m, options, &choice);
    for (int i = 0; i < n && least > options->aot->ram_limit; i++) {
      compiled_release(*slot);
      *slot = NULL;
      aot.layers = choice[i].layers;
      aot.patches = choice[i].patches;
      *slot = compile_once(ctx, m, &o);
      if (most_ram(*slot) >= least) continue;
      least = most_ram(*slot);
      best = choice[i];
    }
  }
  if (least > options->aot->ram_limit) { /* raises, with what is alive at the peak */
    aot.ram_limit = options->aot->ram_limit;
    aot.layers = best.layers;
    aot.patches = best.patches;
    compile_once(ctx, m, &o);
    BUG(ctx, "a program that is too large was not refused");
  }
  (*slot)->aot->options.ram_limit = options->aot->ram_limit;
  compiled_retain(*slot);
  Compiled *c = *slot;
  scope_end(ctx, scope);
  return c;
}

Compiled *driver_compile(Ctx *ctx, Module *m, const CompileOptions *options)
{
  static const CompileOptions none;
  const CompileOptions *o = options ? options : &none;
  bool limited = o->aot && o->aot->ram_limit && !o->aot->patches;
  return limited ? compile_within(ctx, m, o) : compile_once(ctx, m, o);
}
