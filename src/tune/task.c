/* task.c: what there is to tune in a network.
 *
 * The network is compiled untuned: its log names every workload that had a choice, with all plans; its nodes tell which
 * plan each kernel has.  Then the same passes run without the one that changes layouts, so that every call stands
 * there as the choice saw it, fused to what will be fused to it: such a function, alone, is the task's module.  Calls
 * that come to be by a change of layouts (those of bytes) are looked for behind that pass, too. */
#include <stdlib.h>

#include "tune/tune.h"

/* ---- the log -------------------------------------------------------------------------------------- */

static void read_candidates(Arena *arena, const char *log, TuneTask *t)
{
  Vec(TuneCandidate) v = {0};
  while (*log == ' ' || *log == '*') {
    size_t n = strcspn(log, "\n");
    const char *plan = memchr(log + 2, ' ', n - 2);
    double us = strtod(log + 2, NULL);
    if (plan) {
      const char *text = arena_strndup(arena, plan + 1, n - (size_t)(plan + 1 - log));
      vec_push(arena, &v, ((TuneCandidate){text, 1e-6 * us}));
    }
    log += n + (log[n] != 0);
  }
  t->n = v.n;
  t->candidate = v.v;
}

static const char *skip_candidates(const char *log)
{
  while (*log == ' ' || *log == '*') {
    log += strcspn(log, "\n");
    log += *log != 0;
  }
  return log;
}

/* Workloads with more than one plan. */
static void read_log(Arena *arena, const char *log, StrMap *out)
{
  while (*log) {
    size_t n = strcspn(log, " \n");
    const char *workload = arena_strndup(arena, log, n);
    log += strcspn(log, "\n");
    log += *log != 0;
    TuneTask *t = arena_new_of(arena, TuneTask);
    t->workload = workload;
    if (!strmap_get(out, workload)) {
      read_candidates(arena, log, t);
      if (t->n > 1) strmap_put(arena, out, workload, t);
    }
    log = skip_candidates(log);
  }
}

/* Which plan the kernels have, and how many there are. */
static void read_nodes(Arena *arena, Compiled *c, const StrMap *tasks)
{
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(compiled_model(c), &info);
  for (int i = 0; i < info.num_nodes; i++) {
    const char *line = compiled_node_plan(c, i);
    const char *space = line ? strchr(line, ' ') : NULL;
    if (!space) continue;
    TuneTask *t = strmap_get(tasks, arena_strndup(arena, line, (size_t)(space - line)));
    if (!t) continue;
    t->calls++;
    if (!t->base) t->base = arena_strdup(arena, space + 1);
  }
}

/* ---- the modules ------------------------------------------------------------------------------------ */

typedef struct Extract {
  Ctx *ctx;
  Arena *arena;
  Module *m;
  const Target *target;
  const StrMap *tasks;
} Extract;

static void release_module(void *m) { module_release(m); }

static const char *call_text(Arena *arena, const Node *call)
{
  Text t = text_new(arena);
  text_add(&t, call->u.call.op->name);
  for (int i = 0; i < call->nargs && i < 3; i++) {
    const Type *ty = call->arg[i]->type;
    if (!ty || ty->kind != TY_TENSOR) continue;
    text_add(&t, " (");
    for (int d = 0; d < ty->ndim; d++) text_printf(&t, "%s%.0f", d ? ", " : "", type_known_dim(ty, d));
    text_printf(&t, ")%s", ty->ndim == 1 ? "" : "");
  }
  if (call->type && call->type->kind == TY_TENSOR)
    text_printf(&t, " %s%d", dtype_is_float(call->type->dtype) ? "float" : "int", call->type->dtype.bits);
  return text_str(&t);
}

/* The task of a call in the body, if it is one that is wanted still. */
static TuneTask *task_of(Extract *x, const Node *body, const Node **call)
{
  const Node **node;
  int n = graph_post_order(x->arena, body, &node);
  for (int i = 0; i < n; i++) {
    if (node[i]->kind != N_CALL || !node[i]->type) continue;
    TuneTask *t = strmap_get(x->tasks, plan_workload(x->ctx, x->arena, x->target, node[i]));
    *call = node[i];
    if (t && t->base && !t->module) return t;
  }
  return NULL;
}

static bool takes(const Node *call, const Node *value)
{
  for (int i = 0; i < call->nargs; i++)
    if (call->arg[i] == value) return true;
  return false;
}

/* The function of an application with its constants in place, but for those that this call takes (NULL: none). */
static const Node *with_constants(Extract *x, const Node *apply, const Node *call)
{
  const Node *f = apply->arg[0];
  Map known = {0};
  Vec(const Node *) param = {0};
  for (int i = 0; i < fn_nparams(f); i++) {
    const Node *arg = apply->arg[i + 1];
    if (arg->kind == N_CONST && !(call && takes(call, f->arg[i])))
      map_put(x->arena, &known, f->arg[i], (void *)(uintptr_t)arg);
    else vec_push(x->arena, &param, f->arg[i]);
  }
  return node_func(x->m, param.n, param.v, graph_substitute(x->m, fn_body(f), &known), NULL, NULL);
}

/* An application of a primitive function: constants go with it, the rest are the task's inputs.  What is chosen when it
 * is lowered sees constants as parameters: there they are inputs, too. */
static void extract(Extract *x, const Node *apply)
{
  const Node *f = apply->arg[0];
  for (int i = 0; i < fn_nparams(f); i++)
    if (!f->arg[i]->type || f->arg[i]->type->kind != TY_TENSOR || !type_is_static(f->arg[i]->type)) return;
  const Node *call;
  const Node *alone = with_constants(x, apply, NULL);
  TuneTask *t = task_of(x, fn_body(alone), &call);
  if (!t) {
    t = task_of(x, fn_body(f), &call);
    if (t) alone = with_constants(x, apply, call);
  }
  if (!t || !fn_nparams(alone)) return;
  t->what = call_text(x->arena, call);
  t->flops = impl_flops(call);
  t->module = module_new(x->ctx);
  defer(x->ctx, release_module, t->module);
  module_set(t->module, "main", GLOBAL_GRAPH, (void *)(uintptr_t)graph_import(t->module, x->m, alone));
}

static void extract_all(Extract *x)
{
  for (int g = 0; g < x->m->globals.n; g++) {
    if (x->m->globals.v[g].kind != GLOBAL_GRAPH) continue;
    const Node **node;
    int n = graph_post_order(x->arena, x->m->globals.v[g].func, &node);
    for (int i = 0; i < n; i++)
      if (node[i]->kind == N_APPLY && node[i]->arg[0]->kind == N_FUNC &&
          annots_get(&node[i]->arg[0]->u.func->attrs, "Primitive"))
        extract(x, node[i]);
  }
}

/* The passes, with or without the one that changes layouts; the context is as before then. */
typedef struct Restore {
  PassContext *pc;
  const Target *target;
  Targets targets;
  int disabled;
  ImplConfig impl;
} Restore;

static void restore(void *arg)
{
  Restore *r = arg;
  r->pc->target = r->target;
  r->pc->targets = r->targets;
  r->pc->disabled.n = r->disabled;
  r->pc->impl = r->impl;
}

static void run_passes(Ctx *ctx, Module *m, const Target *target, PassContext *pc, bool layouts)
{
  Scope scope = scope_begin(ctx);
  Restore *r = arena_new_of(scratch(ctx), Restore);
  *r = (Restore){pc, pc->target, pc->targets, pc->disabled.n, pc->impl};
  defer(ctx, restore, r);
  if (!layouts) pass_disable(pc, "AlterOpLayout");
  pc->impl.log = NULL;
  pc->impl.tuned = NULL;
  pc->target = target;
  Targets one = {0};
  vec_push(scratch(ctx), &one, target);
  pc->targets = one;
  pass_pipeline(pc, m);
  scope_end(ctx, scope);
}

/* ---- all of it ------------------------------------------------------------------------------------------ */

static void release_compiled(void *c) { compiled_release(c); }

/* Has every workload of the network a module? */
static bool all_found(const StrMap *tasks)
{
  for (int i = 0; i < tasks->n; i++) {
    const TuneTask *t = tasks->val[i];
    if (t->base && !t->module) return false;
  }
  return true;
}

TuneTasks *tune_tasks(Ctx *ctx, Arena *arena, Module *m, const Target *target, PassContext *pc)
{
  op_init();
  TuneTasks *all = arena_new_of(arena, TuneTasks);
  *all = (TuneTasks){.model = m, .target = target, .passes = pc};
  pass_config_set(pc, "lathe.plans.log", "true");
  pc->impl.tuned = NULL;
  all->untuned = driver_compile(ctx, m, &(CompileOptions){.target = target, .passes = pc});
  defer(ctx, release_compiled, all->untuned);
  StrMap tasks = {0};
  read_log(arena, compiled_plans_text(all->untuned), &tasks);
  read_nodes(arena, all->untuned, &tasks);
  for (int layouts = 0; layouts < 2 && !all_found(&tasks); layouts++) {
    Module *copy = graph_copy_module(m);
    defer(ctx, release_module, copy);
    run_passes(ctx, copy, target, pc, layouts);
    extract_all(&(Extract){ctx, arena, copy, target, &tasks});
  }
  Vec(TuneTask *) v = {0};
  for (int i = 0; i < tasks.n; i++) {
    TuneTask *t = tasks.val[i];
    if (t->base && t->module && t->n > 1) vec_push(arena, &v, t);
    else if (t->base && !t->module) all->skipped++;
  }
  all->n = v.n;
  all->task = v.v;
  return all;
}

const char *tune_model_name(Arena *arena, Module *m, PassContext *pc)
{
  uint64_t h = hash_mix(graph_hash(graph_main(m), arena), (uint64_t)pc->opt_level);
  h = hash_mix(h, (uint64_t)pc->impl.fast_math * 2 + pc->impl.no_winograd);
  for (int i = 0; i < pc->disabled.n; i++) h = hash_bytes(pc->disabled.v[i], strlen(pc->disabled.v[i]), h);
  for (int i = 0; i < pc->required.n; i++) h = hash_bytes(pc->required.v[i], strlen(pc->required.v[i]), h);
  return arena_printf(arena, "model-%016" PRIx64, h);
}
