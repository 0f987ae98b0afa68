/* fuzz_elemwise.c: random expressions of every dtype, compiled.
 *
 * One seed makes one kernel, out[i] = e(in0[i], in1[i], …), as a plain, a vectorized or a
 * parallel loop.  What the interpreter says of it must come out of both lowered
 * forms, of LLVM's code and (test_elemwise.c) of the C backend's.  The numbers hold
 * zeros of both signs, infinities, NaN, denormals and the ends of the integers.
 *
 * Results are compared exactly.  What the language leaves open is kept out of the
 * expressions: a*b + c may be rounded once or twice, so no float sum has a product
 * below it; min and max of two zeros may have either sign, so a zero is added where
 * the sign could tell; a NaN has no defined bits.  An elementary function stands at the
 * top only and is compared within MATH_ULPS. */
#include "build/test_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ELEMENTS = 37, MAX_INPUTS = 6, MAX_SCALARS = 2, MATH_ULPS = 4 };

typedef struct Gen {
  Module *m;
  uint64_t seed;
  const IterVar *axis;
  const Tensor *input[MAX_INPUTS];
  int n;
  const Var *scalar[MAX_SCALARS];
  int nscalar;
} Gen;

static uint64_t draw(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return hash_mix(*seed, 11) >> 8;
}
static int pick(Gen *g, int n) { return (int)(draw(&g->seed) % (uint64_t)n); }

/* ---- expressions --------------------------------------------------------------------------- */

static const DType floats[] = {{DT_FLOAT, 32, 1},  {DT_FLOAT, 64, 1}, {DT_FLOAT, 16, 1},   {DT_BFLOAT, 16, 1},
                               {DT_E4M3FN, 8, 1},  {DT_E5M2, 8, 1},   {DT_E4M3FNUZ, 8, 1}, {DT_E5M2FNUZ, 8, 1},
                               {DT_E8M0FNU, 8, 1}, {DT_E2M1FN, 4, 1}};
static const uint8_t widths[] = {8, 16, 32, 64, 4, 2, 5, 12, 24, 33, 48, 63};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static DType any_float(Gen *g) { return floats[pick(g, 3) ? pick(g, 2) : pick(g, COUNT(floats))]; }
static DType any_int(Gen *g)
{
  return DTYPE(pick(g, 2) ? DT_INT : DT_UINT, widths[pick(g, 3) ? pick(g, 4) : pick(g, COUNT(widths))]);
}
static DType any_number(Gen *g) { return pick(g, 2) ? any_float(g) : any_int(g); }

static const Expr *gen(Gen *g, DType t, int depth);

static const Expr *gen_load(Gen *g, DType t)
{
  int at = -1;
  for (int i = 0; i < g->n; i++)
    if (dtype_eq(g->input[i]->buffer->dtype, t) && (at < 0 || pick(g, 2))) at = i;
  if (g->n < MAX_INPUTS && (at < 0 || pick(g, 2))) {
    at = g->n++;
    g->input[at] = te_placeholder(g->m, arena_printf(g->m->arena, "in%d", at), t, 1, &g->axis->extent);
  }
  if (at >= 0) return te_read(g->m, g->input[at], 1, &g->axis->var->expr);
  return expr_cast(g->m, t, te_read(g->m, g->input[pick(g, g->n)], 1, &g->axis->var->expr));
}

/* A parameter that is no tensor.  Not of 32 or 64 bits where it is an integer: see gen_int. */
static const Expr *gen_scalar(Gen *g, DType t)
{
  if (dtype_is_int(t) && (t.bits == 32 || t.bits == 64)) return gen_load(g, t);
  for (int i = 0; i < g->nscalar; i++)
    if (dtype_eq(g->scalar[i]->dtype, t)) return var_expr(g->scalar[i]);
  if (g->nscalar == MAX_SCALARS) return gen_load(g, t);
  g->scalar[g->nscalar] = var_new(g->m, arena_printf(g->m->arena, "s%d", g->nscalar), t, VAR_PLAIN);
  return var_expr(g->scalar[g->nscalar++]);
}

static const Expr *gen_leaf(Gen *g, DType t)
{
  static const double numbers[] = {0, 1, -1, 2, 0.5, -3, 7, 100, 1e-3, 12345};
  if (pick(g, 4)) return gen_load(g, t);
  if (pick(g, 3) == 0) return gen_scalar(g, t);
  if (dtype_is_float(t)) return expr_float(g->m, t, numbers[pick(g, COUNT(numbers))]);
  return expr_int(g->m, t, (int64_t[]){0, 1, -1, 2, 3, -7, 100, dtype_imin(t), dtype_imax(t)}[pick(g, 9)]);
}

static const Expr *call1(Gen *g, DType t, Intrin f, const Expr *a) { return expr_call(g->m, t, f, 1, &a); }
static const Expr *call2(Gen *g, Intrin f, const Expr *a, const Expr *b)
{
  return expr_call(g->m, DT_NONE, f, 2, (const Expr *[]){a, b});
}

/* x, with a number in place of NaN. */
static const Expr *no_nan(Gen *g, const Expr *x)
{
  return expr_select(g->m, call1(g, DT_NONE, IN_ISNAN, x), expr_float(g->m, x->dtype, 1), x);
}

/* An operand of a sum: not a product. */
static const Expr *gen_term(Gen *g, DType t, int depth)
{
  const Expr *e = gen(g, t, depth);
  return e->kind == E_MUL ? gen_load(g, t) : e;
}

static const Expr *gen_bool(Gen *g, int depth)
{
  DType t = any_number(g);
  switch (pick(g, 6)) {
  case 0: return expr_binary(g->m, pick(g, 2) ? E_AND : E_OR, gen(g, DT_BOOL, depth - 1), gen(g, DT_BOOL, depth - 1));
  case 1: return expr_not(g->m, gen(g, DT_BOOL, depth - 1));
  case 2:
    return call1(g, DT_NONE, (Intrin[]){IN_ISNAN, IN_ISINF, IN_ISFINITE}[pick(g, 3)], gen(g, any_float(g), depth - 1));
  default: return expr_binary(g->m, (ExprKind)(E_EQ + pick(g, 6)), gen(g, t, depth - 1), gen(g, t, depth - 1));
  }
}

static const Expr *gen_choice(Gen *g, DType t, int depth)
{
  const Expr *arg[] = {gen(g, DT_BOOL, depth - 1), gen(g, t, depth - 1), gen(g, t, depth - 1)};
  return pick(g, 2) ? expr_select(g->m, arg[0], arg[1], arg[2]) : expr_call(g->m, t, IN_IF_THEN_ELSE, 3, arg);
}

static const Expr *gen_float(Gen *g, DType t, int depth)
{
  static const Intrin one[] = {IN_SQRT, IN_FLOOR, IN_CEIL, IN_TRUNC, IN_ROUND, IN_NEARBYINT, IN_ABS};
  static const DType bits[] = {{DT_INT, 32, 1}, {DT_INT, 64, 1}};
  const Expr *a = gen(g, t, depth - 1);
  switch (pick(g, 9)) {
  case 0: return expr_binary(g->m, pick(g, 2) ? E_ADD : E_SUB, gen_term(g, t, depth - 1), gen_term(g, t, depth - 1));
  case 1: return expr_mul(g->m, a, gen(g, t, depth - 1));
  case 2: return expr_binary(g->m, pick(g, 4) ? E_DIV : E_MOD, a, gen(g, t, depth - 1));
  case 3:
    return expr_add(g->m, expr_binary(g->m, pick(g, 2) ? E_MIN : E_MAX, a, gen(g, t, depth - 1)),
                    expr_float(g->m, t, 0));
  case 4: return call1(g, DT_NONE, one[pick(g, COUNT(one))], a);
  case 5: return call2(g, IN_COPYSIGN, a, no_nan(g, gen(g, t, depth - 1)));
  case 6:
    return pick(g, 2) || t.bits < 32 ? call2(g, IN_LDEXP, a, gen(g, DT_I32, 0))
                                     : call2(g, IN_NEXTAFTER, a, gen(g, t, depth - 1));
  case 7: return expr_call(g->m, DT_NONE, IN_FMA, 3, (const Expr *[]){a, gen(g, t, depth - 1), gen(g, t, depth - 1)});
  default:
    if (t.code != DT_FLOAT || t.bits == 16) return a;
    return no_nan(g, call1(g, t, IN_REINTERPRET, gen(g, bits[t.bits == 64], depth - 1)));
  }
}

/* Integers of 32 and 64 bits wrap only where memory is read; elsewhere they are indices,
 * which may not overflow.  So one operand reads. */
static const Expr *gen_int(Gen *g, DType t, int depth)
{
  static const Intrin two[] = {IN_BITAND, IN_BITOR, IN_BITXOR, IN_SHL, IN_SHR};
  static const Intrin one[] = {IN_BITNOT, IN_POPCOUNT, IN_ABS};
  const Expr *a = gen(g, t, depth - 1);
  const Expr *b = gen(g, t, depth - 1);
  if (!expr_has_kind(a, E_LOAD)) a = gen_load(g, t);
  const Expr *divisor = expr_select(g->m, expr_binary(g->m, E_EQ, b, expr_int(g->m, t, 0)), expr_int(g->m, t, 1), b);
  if (b->kind == E_INT && b->u.i != 0) divisor = b;
  switch (pick(g, 6)) {
  case 0:
  case 1: return expr_binary(g->m, (ExprKind)(E_ADD + pick(g, 3)), a, b);
  case 2: return expr_binary(g->m, (ExprKind)(E_DIV + pick(g, 4)), a, divisor);
  case 3: return expr_binary(g->m, pick(g, 2) ? E_MIN : E_MAX, a, b);
  case 4: return call2(g, two[pick(g, COUNT(two))], a, b);
  default: return call1(g, DT_NONE, one[pick(g, COUNT(one))], a);
  }
}

static const Expr *gen(Gen *g, DType t, int depth)
{
  if (depth <= 0) return gen_leaf(g, t);
  if (dtype_is_bool(t)) return gen_bool(g, depth);
  switch (pick(g, 8)) {
  case 0: return gen_leaf(g, t);
  case 1: return gen_choice(g, t, depth);
  case 2: return expr_cast(g->m, t, pick(g, 5) ? gen(g, any_number(g), depth - 1) : gen(g, DT_BOOL, depth - 1));
  default: return dtype_is_float(t) ? gen_float(g, t, depth) : gen_int(g, t, depth);
  }
}

/* An elementary function of an exact value. */
static const Expr *gen_math(Gen *g)
{
  static const Intrin one[] = {IN_EXP,  IN_EXP2,    IN_EXP10, IN_LOG,   IN_LOG2,  IN_LOG10, IN_LOG1P, IN_RSQRT,
                               IN_TANH, IN_SIGMOID, IN_ERF,   IN_SIN,   IN_COS,   IN_TAN,   IN_ASIN,  IN_ACOS,
                               IN_ATAN, IN_SINH,    IN_COSH,  IN_ASINH, IN_ACOSH, IN_ATANH};
  static const Intrin two[] = {IN_ATAN2, IN_POW, IN_HYPOT};
  DType t = any_float(g);
  const Expr *x = gen(g, t, 1);
  if (pick(g, 6)) return call1(g, DT_NONE, one[pick(g, COUNT(one))], x);
  return call2(g, two[pick(g, COUNT(two))], x, gen(g, t, 1));
}

/* ---- a kernel --------------------------------------------------------------------------------- */

typedef struct Kern {
  uint64_t seed;
  const char *name;
  Gen g;
  const Expr *e;
  double ulps; /* allowed */
  PrimFunc *f;
  const TirArg *before, *want;
} Kern;

static Value any_value(DType t, uint64_t *seed)
{
  static const double special[] = {
    0.0,  -0.0,  1,        -1,        0.5,     -0.5,         1.5,           2.5,          -2.5,      127,     128,
    -129, 255.7, 256,      65504,     65535.9, 2147483648.0, -2147483649.0, 4294967296.0, 9.3e18,    -9.4e18, 1.9e19,
    1e30, -1e30, INFINITY, -INFINITY, NAN,     1e-40,        -1e-39,        6e-8,         3.0000001, 1e300,   1e-310};
  uint64_t r = draw(seed);
  if (dtype_is_float(t)) {
    if (r % 3 == 0) return value_float(t, special[draw(seed) % (uint64_t)COUNT(special)]);
    double size = r % 3 == 1 ? 1000 : 8;
    return value_float(t, ((double)(int64_t)(draw(seed) % 2000001) - 1000000) * 1e-6 * size);
  }
  if (r % 4 == 0) return value_int(t, (int64_t[]){0, 1, -1, dtype_imin(t), dtype_imax(t), 7}[draw(seed) % 6]);
  return value_int(t, r % 4 == 1 ? (int64_t)(draw(seed) % 19) - 9 : (int64_t)(draw(seed) << 9 ^ draw(seed)));
}

/* The function of g's expression e, scheduled as its seed says. */
static PrimFunc *kern_func(Ctx *ctx, Kern *k)
{
  Module *m = k->g.m;
  Scope scope = scope_begin(ctx);
  const Tensor *out = &te_compute(m, "out", NULL, 1, &k->g.axis->extent, &k->g.axis, 1, &k->e, NULL)->out[0];
  TeArg *args;
  int n = te_default_args(m->arena, 1, &out, &args);
  Sched *s = sched_new(te_create_prim_func(m, k->name, n, args, NULL), 1);
  defer(ctx, drop_sched, s);
  LoopRV *loop, part[2];
  sched_get_loops(s, sched_get_block(s, "out"), scratch(ctx), &loop);
  int lanes = (int[]){1, 4, 8, 16, 3}[k->seed % 5];
  if (lanes > 1) {
    sched_split(s, loop[0], 2, (const Expr *[]){NULL, expr_i32(sched_module(s), lanes)}, true, part);
    sched_vectorize(s, part[1]);
  }
  if (k->seed % 7 == 0) sched_parallel(s, lanes > 1 ? part[0] : loop[0]);
  PrimFunc *f = func_import(m, sched_func(s));
  scope_end(ctx, scope);
  return f;
}

/* Numbers for f: an input's depend on its name alone, so a smaller expression sees the same. */
static const TirArg *kern_args(const Kern *k)
{
  Arena *a = k->g.m->arena;
  TirArg *arg = arena_array(a, TirArg, k->f->nparam);
  for (int i = 0; i < k->f->nparam; i++) {
    const Buffer *b = k->f->param[i].buffer;
    const char *name = b ? b->name : k->f->param[i].var->name;
    uint64_t seed = hash_bytes(name, strlen(name), k->seed);
    if (!b) {
      arg[i] = (TirArg){.dtype = k->f->param[i].var->dtype, .scalar = any_value(k->f->param[i].var->dtype, &seed)};
      continue;
    }
    int64_t *shape = arena_new_of(a, int64_t);
    *shape = ELEMENTS;
    arg[i] = (TirArg){.data = arena_alloc(a, ELEMENTS * 8), .dtype = b->dtype, .ndim = 1, .shape = shape};
    for (int e = 0; e < ELEMENTS; e++)
      value_store(any_value(b->dtype, &seed), (char *)arg[i].data + e * dtype_bytes(b->dtype));
  }
  return arg;
}

static void kern_finish(Ctx *ctx, Kern *k)
{
  k->ulps = k->e->kind == E_CALL && k->e->u.intrin <= IN_HYPOT && k->e->u.intrin != IN_SQRT && k->e->u.intrin != IN_FMOD
                ? MATH_ULPS
                : 0;
  k->f = kern_func(ctx, k);
  k->before = kern_args(k);
  k->want = run_copy(k->g.m->arena, k->f->nparam, k->before);
  func_interpret(k->f, k->f->nparam, k->want);
}

/* Lives until the scope of its making ends. */
static Kern kern_make(Ctx *ctx, uint64_t seed, const char *name)
{
  Kern k = {.seed = seed, .name = name, .g = {.m = module_new(ctx), .seed = seed}};
  Module *m = k.g.m;
  defer(ctx, drop_module, m);
  k.g.axis =
      itervar_new(m, var_new(m, "i", DT_I32, VAR_PLAIN), expr_i32(m, 0), expr_i32(m, ELEMENTS), ITER_SPATIAL, NULL);
  k.e = pick(&k.g, 5) ? gen(&k.g, any_number(&k.g), 1 + pick(&k.g, pick(&k.g, 8) ? 3 : 5)) : gen_math(&k.g);
  kern_finish(ctx, &k);
  return k;
}

static void check_function(Ctx *ctx, const Kern *k, const char *who, const PrimFunc *f)
{
  TirArg *arg = run_copy(scratch(ctx), k->f->nparam, k->before);
  func_interpret(f, k->f->nparam, arg);
  run_compare(ctx, who, k->f->nparam, k->want, arg, k->ulps);
}

static void check_interpreted(Ctx *ctx, const Kern *k)
{
  static const char *const cpus[] = {"llvm", "llvm -mcpu=generic", "llvm -mcpu=x86-64-v4", "llvm -mcpu=neoverse-v1"};
  const Target *target = target_parse(ctx, cpus[k->seed / 35 % 4]);
  check_function(ctx, k, "lowered to loops", lower_func(k->f, target, LOWER_LOOPS, NULL));
  check_function(ctx, k, "lowered to a kernel", lower_func(k->f, target, LOWER_KERNEL, NULL));
}

/* Several kernels in one build. */
static void check_built(Ctx *ctx, int n, const Kern *k, const char *target)
{
  Scope scope = scope_begin(ctx);
  PrimFunc **f = arena_array(scratch(ctx), PrimFunc *, n);
  for (int i = 0; i < n; i++) f[i] = k[i].f;
  Built *b = build_funcs(ctx, n, f, target_parse(ctx, target), NULL);
  defer(ctx, drop_built, b);
  for (int i = 0; i < n; i++) {
    TirArg *arg = run_copy(scratch(ctx), f[i]->nparam, k[i].before);
    run_built(ctx, b, f[i]->name, f[i]->nparam, arg);
    run_compare(ctx, arena_printf(scratch(ctx), "%s: %s", f[i]->name, target), f[i]->nparam, k[i].want, arg, k[i].ulps);
  }
  scope_end(ctx, scope);
}

/* ---- one kernel at a time, and shrinking it ------------------------------------------------------ */

typedef struct Job {
  uint64_t seed;
  const char *target; /* to build for; NULL: interpret alone */
  Kern k;
} Job;

static void check_job(Ctx *ctx, void *env)
{
  Job *job = env;
  check_interpreted(ctx, &job->k);
  if (job->target) check_built(ctx, 1, &job->k, job->target);
}

static void finish_and_check(Ctx *ctx, void *env)
{
  kern_finish(ctx, &((Job *)env)->k);
  check_job(ctx, env);
}

static bool fails_with(Ctx *ctx, Job *job, const Expr *e)
{
  Job trial = *job;
  trial.k.e = e;
  if (protect(ctx, finish_and_check, &trial) == ERR_NONE) return false;
  job->k = trial.k;
  return true;
}

static bool shrink_step(Ctx *ctx, Job *job)
{
  const Expr *e = job->k.e;
  if (e->kind == E_LOAD) return false;
  for (int i = 0; i < e->nargs; i++)
    if (fails_with(ctx, job, e->arg[i])) return true;
  for (int i = 0; i < e->nargs; i++) {
    const Expr *arg[8];
    const Expr *old = e->arg[i];
    if (e->nargs > COUNT(arg) || !old->nargs || old->kind == E_LOAD) continue;
    memcpy(arg, e->arg, (size_t)e->nargs * sizeof *arg);
    for (int j = 0; j < old->nargs; j++) {
      arg[i] = expr_cast(job->k.g.m, old->dtype, old->arg[j]);
      if (arg[i] != old && fails_with(ctx, job, expr_with_args(job->k.g.m, e, arg))) return true;
    }
  }
  return false;
}

static void shrink(Ctx *ctx, void *env)
{
  Job *job = env;
  while (shrink_step(ctx, job)) continue;
}

static void run_job(Ctx *ctx, void *env)
{
  Job *job = env;
  job->k = kern_make(ctx, job->seed, "main");
  ErrKind kind = protect(ctx, check_job, job);
  if (kind == ERR_NONE) return;
  fprintf(stderr, "seed %" PRIu64 ": %s: %s\n", job->seed, error_kind_name(kind), error_message(ctx));
  protect(ctx, shrink, job);
  kind = protect(ctx, check_job, job);
  fprintf(stderr, "%s%s: %s\n", func_print(scratch(ctx), job->k.f), error_kind_name(kind), error_message(ctx));
  raise(ctx, ERR_INTERNAL, NOWHERE, "kernels disagree");
}

static const char *elemwise_target(uint64_t seed)
{
  return !codegen_has_llvm() ? NULL : seed % 3 ? "llvm" : "llvm -mcpu=generic";
}

/* Runs one seed.  True if all agree; else the smallest kernel found is on stderr. */
static bool run_seed(uint64_t seed, const char *target)
{
  Ctx *ctx = ctx_new();
  if (!ctx) return true;
  Job job = {.seed = seed, .target = target};
  ErrKind kind = protect(ctx, run_job, &job);
  if (kind && kind != ERR_INTERNAL)
    fprintf(stderr, "seed %" PRIu64 ": %s: %s\n", seed, error_kind_name(kind), error_message(ctx));
  ctx_free(ctx);
  return kind == ERR_NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  uint64_t seed = hash_bytes(data, size, 5);
  if (!run_seed(seed, elemwise_target(seed))) abort();
  return 0;
}
