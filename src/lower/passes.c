/* passes.c: the ordered list of passes and the functions that run it.
 *
 * Read the table from top to bottom: that is how a schedulable function becomes a
 * kernel.  Each pass says in the head of its file what it needs, keeps and
 * breaks.  The rows up to the first LOWER_KERNEL are what lathe.lower() shows. */
#include "lower/internal.h"

typedef struct Pass {
  const char *name;
  LowerStage stage;
  void (*run)(Lower *);
} Pass;

/* clang-format off */
static const Pass passes[] = {
    /* blocks and many-dimensional buffers */
    {"thread_reductions", LOWER_LOOPS, lower_pass_thread_reductions},
    {"decompose_init", LOWER_LOOPS, lower_pass_decompose_init},
    {"plan_allocs", LOWER_LOOPS, lower_pass_plan_allocs},
    {"compact_buffers", LOWER_LOOPS, lower_pass_compact_buffers},
    {"convert_blocks", LOWER_LOOPS, lower_pass_convert_blocks},
    {"unify_threads", LOWER_LOOPS, lower_pass_unify_threads},
    /* plain loops over flat memory */
    {"flatten_buffers", LOWER_LOOPS, lower_pass_flatten_buffers},
    {"simplify_flat", LOWER_LOOPS, lower_pass_simplify},
    {"double_buffer", LOWER_LOOPS, lower_pass_double_buffer},
    {"partition_loops", LOWER_LOOPS, lower_pass_partition_loops},
    {"vectorize_loops", LOWER_LOOPS, lower_pass_vectorize_loops},
    {"unroll_loops", LOWER_LOOPS, lower_pass_unroll_loops},
    {"simplify_loops", LOWER_LOOPS, lower_pass_simplify},
    /* what a backend takes */
    {"resolve_pointers", LOWER_KERNEL, lower_pass_resolve_pointers},
    {"serialize_parallel", LOWER_KERNEL, lower_pass_serialize_parallel},
    {"sync_storage", LOWER_KERNEL, lower_pass_sync_storage},
    {"legalize_dtypes", LOWER_KERNEL, lower_pass_legalize_dtypes},
    {"chain_stores", LOWER_KERNEL, lower_pass_chain_stores},
    {"split_vectors", LOWER_KERNEL, lower_pass_split_vectors},
    {"scalar_replace", LOWER_KERNEL, lower_pass_scalar_replace},
    {"promote_accumulators", LOWER_KERNEL, lower_pass_promote_accumulators},
    {"expand_math", LOWER_KERNEL, lower_pass_expand_math},
    {"take_vectors_apart", LOWER_KERNEL, lower_pass_take_vectors_apart},
    {"index_types", LOWER_KERNEL, lower_pass_index_types},
    {"legalize_division", LOWER_KERNEL, lower_pass_legalize_division},
    {"share_terms", LOWER_KERNEL, lower_pass_share_terms},
    {"place_storage", LOWER_KERNEL, lower_pass_place_storage},
    {"unique_vars", LOWER_KERNEL, lower_pass_unique_vars},
};
/* clang-format on */
enum { NPASSES = sizeof passes / sizeof *passes };

int lower_pass_count(void) { return NPASSES; }
const char *lower_pass_name(int i) { return i >= 0 && i < NPASSES ? passes[i].name : NULL; }

static void run_pass(Lower *lo, const Pass *p)
{
  Scope scope = scope_begin(lo->ctx);
  ctx_poll(lo->ctx);
  p->run(lo);
  stmt_link(lo->f->body, NULL);
  if (lo->config.dump_dir) {
    Arena *tmp = scratch(lo->ctx);
    const char *path =
        arena_printf(tmp, "%s/%02d_%s_%s.txt", lo->config.dump_dir, (int)(p - passes), lo->f->name, p->name);
    const char *text = func_print(tmp, lo->f);
    file_write(lo->ctx, path, text, strlen(text));
  }
  scope_end(lo->ctx, scope);
}

static Lower begin(const PrimFunc *f, const Target *target, const LowerConfig *config)
{
  Lower lo = {.m = f->m, .ctx = f->m->ctx, .f = func_clone(f), .target = target};
  if (config) lo.config = *config;
  stmt_link(lo.f->body, NULL);
  return lo;
}

static void run_stages(Lower *lo, LowerStage last)
{
  for (int i = 0; i < NPASSES; i++)
    if (passes[i].stage <= last) run_pass(lo, &passes[i]);
}

PrimFunc *lower_func(const PrimFunc *f, const Target *target, LowerStage stage, const LowerConfig *config)
{
  Lower lo = begin(f, target, config);
  run_stages(&lo, stage);
  return lo.f;
}

Kernel *lower_kernel(const PrimFunc *f, const Target *target, const LowerConfig *config)
{
  Lower lo = begin(f, target, config);
  run_stages(&lo, LOWER_KERNEL);
  return lower_make_kernel(&lo);
}

PrimFunc *lower_run_pass(const PrimFunc *f, const Target *target, const char *name)
{
  const char *names[NPASSES];
  for (int i = 0; i < NPASSES; i++) {
    names[i] = passes[i].name;
    if (strcmp(passes[i].name, name)) continue;
    Lower lo = begin(f, target, NULL);
    run_pass(&lo, &passes[i]);
    return lo.f;
  }
  const char *suggestion = str_suggest(scratch(f->m->ctx), name, names, NPASSES);
  raise(f->m->ctx, ERR_ARGUMENT, NOWHERE, "lower: there is no pass '%s'%s", name, suggestion);
}
