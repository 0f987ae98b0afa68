/* passes.c: the ordered list of passes and the functions that run it.
 *
 * Read the table from top to bottom: that is how a schedulable function becomes a
 * kernel.  Each pass says in the head of its file what it needs, keeps and
 * breaks.  The rows up to the first LOWER_KERNEL are what lathe.lower() shows.
 *
 * A row with a name of its own is a pass that users may run alone (tir.transform): what it
 * needs of the function is then checked first. */
#include "lower/internal.h"

/* what a pass needs of a function */
enum { NO_INIT = 1, NO_ALLOCS = 2, NO_BLOCKS = 4, FLAT = 8, FROM_ZERO = 16, NO_VECTORS = 32 };

typedef struct Pass {
  const char *name;
  LowerStage stage;
  void (*run)(Lower *);
  const char *transform; /* its name in tir.transform, NULL: none */
  int needs;
} Pass;

/* clang-format off */
static const Pass passes[] = {
    /* blocks and many-dimensional buffers */
    {"thread_reductions", LOWER_LOOPS, lower_pass_thread_reductions, NULL, 0},
    {"decompose_init", LOWER_LOOPS, lower_pass_decompose_init, "LowerInitBlock", 0},
    {"plan_allocs", LOWER_LOOPS, lower_pass_plan_allocs, "PlanAndUpdateBufferAllocationLocation", 0},
    {"compact_buffers", LOWER_LOOPS, lower_pass_compact_buffers, "CompactBufferAllocation", NO_ALLOCS},
    {"convert_blocks", LOWER_LOOPS, lower_pass_convert_blocks, "LowerOpaqueBlock", NO_INIT | NO_ALLOCS},
    {"unify_threads", LOWER_LOOPS, lower_pass_unify_threads, NULL, 0},
    {"join_words", LOWER_LOOPS, lower_pass_join_words, NULL, 0},
    /* plain loops over flat memory */
    {"flatten_buffers", LOWER_LOOPS, lower_pass_flatten_buffers, "FlattenBuffer", NO_BLOCKS},
    {"simplify_flat", LOWER_LOOPS, lower_pass_simplify, "Simplify", NO_BLOCKS},
    {"double_buffer", LOWER_LOOPS, lower_pass_double_buffer, "InjectDoubleBuffer", NO_BLOCKS | FLAT | FROM_ZERO},
    {"overlap_tails", LOWER_LOOPS, lower_pass_overlap_tails, NULL, 0},
    {"partition_loops", LOWER_LOOPS, lower_pass_partition_loops, "LoopPartition", NO_BLOCKS | FROM_ZERO},
    {"vectorize_loops", LOWER_LOOPS, lower_pass_vectorize_loops, "VectorizeLoop", NO_BLOCKS | FLAT | FROM_ZERO},
    {"unroll_loops", LOWER_LOOPS, lower_pass_unroll_loops, "UnrollLoop", NO_BLOCKS | NO_VECTORS | FROM_ZERO},
    {"simplify_loops", LOWER_LOOPS, lower_pass_simplify, "RemoveNoOp", NO_BLOCKS},
    /* what a backend takes */
    {"resolve_pointers", LOWER_KERNEL, lower_pass_resolve_pointers, NULL, 0},
    {"serialize_parallel", LOWER_KERNEL, lower_pass_serialize_parallel, NULL, 0},
    {"sync_storage", LOWER_KERNEL, lower_pass_sync_storage, NULL, 0},
    {"legalize_dtypes", LOWER_KERNEL, lower_pass_legalize_dtypes, NULL, 0},
    {"chain_stores", LOWER_KERNEL, lower_pass_chain_stores, NULL, 0},
    {"split_vectors", LOWER_KERNEL, lower_pass_split_vectors, NULL, 0},
    {"scalar_replace", LOWER_KERNEL, lower_pass_scalar_replace, NULL, 0},
    {"promote_accumulators", LOWER_KERNEL, lower_pass_promote_accumulators, NULL, 0},
    {"expand_math", LOWER_KERNEL, lower_pass_expand_math, NULL, 0},
    {"take_vectors_apart", LOWER_KERNEL, lower_pass_take_vectors_apart, NULL, 0},
    {"index_types", LOWER_KERNEL, lower_pass_index_types, NULL, 0},
    {"legalize_division", LOWER_KERNEL, lower_pass_legalize_division, NULL, 0},
    {"hoist_sizes", LOWER_KERNEL, lower_pass_hoist_sizes, NULL, 0},
    {"share_terms", LOWER_KERNEL, lower_pass_share_terms, NULL, 0},
    {"place_storage", LOWER_KERNEL, lower_pass_place_storage, NULL, 0},
    {"unique_vars", LOWER_KERNEL, lower_pass_unique_vars, NULL, 0},
};
/* clang-format on */
enum { NPASSES = sizeof passes / sizeof *passes };

int lower_pass_count(void) { return NPASSES; }
const char *lower_pass_transform(int i) { return i >= 0 && i < NPASSES ? passes[i].transform : NULL; }
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

typedef struct Imports {
  Arena *arena;
  Vec(const char *) text;
} Imports;

static bool note_import(void *env, Stmt *s)
{
  Imports *im = env;
  const Expr *text = s->kind == S_FOR ? annots_get(&s->u.loop.annots, "pragma_import_llvm") : NULL;
  if (s->kind == S_ATTR && !strcmp(s->u.attr.key, "pragma_import_llvm")) text = s->u.attr.value;
  if (text && text->kind == E_STR) vec_push(im->arena, &im->text, text->u.str);
  return true;
}

Kernel *lower_kernel(const PrimFunc *f, const Target *target, const LowerConfig *config)
{
  Lower lo = begin(f, target, config);
  Imports im = {.arena = f->m->arena};
  stmt_visit(lo.f->body, note_import, &im); /* before passes take the loops apart */
  run_stages(&lo, LOWER_KERNEL);
  Kernel *k = lower_make_kernel(&lo);
  k->import_llvm = im.text.v;
  k->nimport = im.text.n;
  return k;
}

/* What a function is found to have that a pass may not bear: bits of the needs. */
typedef struct Form {
  Ctx *ctx;
  int has;
} Form;

static void note_flat(Form *form, const Buffer *b)
{
  if (b->ndim != 1) form->has |= FLAT;
}

static void note_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) note_flat(env, e->u.buffer);
}

static void note_loads(void *env, Stmt *holder, const Expr *e)
{
  Form *form = env;
  (void)holder;
  expr_visit(form->ctx, e, note_load, form);
}

static bool note_form(void *env, Stmt *s)
{
  Form *form = env;
  if (s->kind == S_BLOCK) {
    form->has |= NO_BLOCKS | (s->u.block->init ? NO_INIT : 0) | (s->u.block->nallocs ? NO_ALLOCS : 0);
  } else if (s->kind == S_FOR) {
    if (!expr_is_int(s->u.loop.min, 0)) form->has |= FROM_ZERO;
    if (s->u.loop.kind == FOR_VECTORIZED) form->has |= NO_VECTORS;
  } else if (s->kind == S_STORE) {
    note_flat(form, s->u.store.buffer);
  } else if (s->kind == S_ALLOC) {
    note_flat(form, s->u.alloc.buffer);
  }
  return true;
}

/* Raises unless the function has the form that the pass needs. */
static void check_form(const PrimFunc *f, const Pass *pass)
{
  static const struct {
    int need;
    const char *what;
  } needs[] = {
    {NO_INIT, "blocks without an init (LowerInitBlock sets it apart)"},
    {NO_ALLOCS, "allocations as statements (PlanAndUpdateBufferAllocationLocation makes them)"},
    {NO_BLOCKS, "a function without blocks (lathe.lower, or LowerOpaqueBlock, lowers them)"},
    {FLAT, "buffers of one dimension (FlattenBuffer makes them)"},
    {FROM_ZERO, "loops that start at 0 (Simplify moves them)"},
    {NO_VECTORS, "a function without vector loops (VectorizeLoop writes them as vectors)"},
  };
  Form form = {.ctx = f->m->ctx};
  stmt_visit(f->body, note_form, &form);
  stmt_visit_exprs(f->body, note_loads, &form);
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (pass->needs & form.has & needs[i].need)
      raise(f->m->ctx, ERR_ARGUMENT, NOWHERE, "%s needs %s; function '%s' is not so", pass->transform, needs[i].what,
            f->name);
}

PrimFunc *lower_run_transform(const PrimFunc *f, const Target *target, const char *transform)
{
  for (int i = 0; i < NPASSES; i++) {
    if (!passes[i].transform || strcmp(passes[i].transform, transform)) continue;
    check_form(f, &passes[i]);
    Lower lo = begin(f, target, NULL);
    run_pass(&lo, &passes[i]);
    return lo.f;
  }
  raise(f->m->ctx, ERR_ARGUMENT, NOWHERE, "there is no transformation '%s' of loop programs", transform);
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
