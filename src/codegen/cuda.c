/* cuda.c: device code as CUDA C.
 *
 * In: kernels whose work stands in loops bound to thread axes.  Out: one CUDA source
 * with an extern "C" __global__ function for each outermost nest of thread loops, and
 * for each a CudaLaunch that says how the host starts it.  Between the nests a
 * function may only allocate workspace and name values; work outside thread loops
 * is refused.
 *
 * A thread loop is its index; vectors go lane by lane; PLACE_SHARED is __shared__. */
#include "codegen/cstyle.h"

static const Dialect cuda_dialect = {
  .name = "cuda",
  .ints = {{"signed char", "short", "int", "long long"},
           {"unsigned char", "unsigned short", "unsigned int", "unsigned long long"}},
  .half = "half",
  .restrict_word = "__restrict__",
  .helper = "static __device__ __forceinline__",
  .shared = "__shared__ ",
  .barrier = "__syncthreads();",
  .unroll = "#pragma unroll",
  .float_special = {{"__int_as_float(0x7f800000)", "-__int_as_float(0x7f800000)", "__int_as_float(0x7fffffff)"},
                    {"__longlong_as_double(0x7ff0000000000000ll)", "-__longlong_as_double(0x7ff0000000000000ll)",
                     "__longlong_as_double(0x7fffffffffffffffll)"}},
};

typedef struct CudaState {
  const char *source;
  Vec(CudaLaunch) launches;
} CudaState;

typedef struct Cuda {
  Cgen *g;
  CudaState *state;
  int first; /* launches of earlier functions */
} Cuda;

/* ---- the shape of a launch --------------------------------------------------------------- */

static const char *const axes[6] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                    "threadIdx.x", "threadIdx.y", "threadIdx.z"};

typedef struct Extents {
  Cgen *g;
  const Expr *of[6];
} Extents;

static bool find_extents(void *env, Stmt *s)
{
  Extents *x = env;
  if (s->kind != S_FOR || s->u.loop.kind != FOR_THREAD || str_starts(s->u.loop.thread_tag, "vthread")) return true;
  int axis = 0;
  while (axis < 6 && strcmp(axes[axis], s->u.loop.thread_tag)) axis++;
  if (axis == 6) cs_unsupported(x->g, "loop '%s' bound to '%s'", s->u.loop.var->name, s->u.loop.thread_tag);
  if (x->of[axis] && x->of[axis] != s->u.loop.extent)
    cs_unsupported(x->g, "two loops bound to %s with different extents in one launch", axes[axis]);
  x->of[axis] = s->u.loop.extent;
  return true;
}

/* Threads of a block, or 0 when that is only known at run time; refuses too many. */
static int64_t threads_per_block(Cgen *g, const Extents *x)
{
  int64_t n = 1;
  for (int i = 3; i < 6; i++) {
    if (!x->of[i]) continue;
    if (x->of[i]->kind != E_INT) return 0;
    n *= x->of[i]->u.i;
    if (n > 1 << 20) break;
  }
  int limit = g->target->max_threads_per_block;
  if (limit && n > limit)
    raise(g->ctx, ERR_UNSUPPORTED, NOWHERE,
          "%s: a block of %" PRId64 " threads, target '%s' has at most %d; split the loops bound to threadIdx",
          g->k->name, n, g->target->text, limit);
  return n;
}

/* ---- one launch ------------------------------------------------------------------------------ */

static const KernelArg *find_arg(const Kernel *k, const Var *v)
{
  for (int i = 0; i < k->narg; i++)
    if (k->arg[i].var == v) return &k->arg[i];
  return NULL;
}

static void print_parameters(Cgen *g, int n, const Var *const *vars)
{
  for (int i = 0; i < n; i++) {
    const Memory *mem = map_get(&g->memory, vars[i]);
    text_add(g->out, i ? ", " : "");
    if (!mem) {
      text_printf(g->out, "%s %s", cs_type(g, vars[i]->dtype), cs_name(g, vars[i]));
      continue;
    }
    const KernelArg *arg = find_arg(g->k, vars[i]);
    text_printf(g->out, "%s%s *%s%s", mem->read_only ? "const " : "", cs_storage_type(g, mem->elem),
                arg && !arg->may_alias ? "__restrict__ " : "", mem->name);
  }
}

static void record_launch(Cuda *c, const Extents *x, const char *name, int n, const Var *const *vars)
{
  Cgen *g = c->g;
  CudaLaunch l = {.function = arena_strdup(g->arena, g->k->name), .kernel = arena_strdup(g->arena, name), .nargs = n};
  for (int i = 0; i < 6; i++) {
    const char *extent = x->of[i] ? arena_strdup(g->arena, cs_text(g, x->of[i])) : "1";
    if (i < 3) l.grid[i] = extent;
    else l.block[i - 3] = extent;
  }
  l.args = arena_array(g->arena, const char *, n);
  for (int i = 0; i < n; i++) l.args[i] = arena_strdup(g->arena, cs_name(g, vars[i]));
  vec_push(g->arena, &c->state->launches, l);
  text_printf(g->out, "\n/* %s, launch %d\n *   grid  (%s, %s, %s)\n *   block (%s, %s, %s)\n *   with  (", g->k->name,
              c->state->launches.n - 1 - c->first, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2]);
  for (int i = 0; i < n; i++) text_printf(g->out, "%s%s", i ? ", " : "", l.args[i]);
  text_add(g->out, ") */\n");
}

/* What the threads use, the function's arguments and sizes first; extents of the
 * launch are the host's business. */
static int find_parameters(Cgen *g, Stmt *s, const Var ***out)
{
  Arena *tmp = scratch(g->ctx);
  Vec(const Var *) axis = {0}, params = {0};
  while ((s->kind == S_FOR && s->u.loop.kind == FOR_THREAD) || s->kind == S_ATTR) {
    if (s->kind == S_FOR) vec_push(tmp, &axis, s->u.loop.var);
    s = s->kind == S_FOR ? s->u.loop.body : s->u.attr.body;
  }
  const Var **vars;
  int n = lower_captures(tmp, s, &vars);
  Map used = {0};
  for (int i = 0; i < n; i++) map_put(tmp, &used, vars[i], g);
  for (int i = 0; i < axis.n; i++) map_del(&used, axis.v[i]);
  const Kernel *k = g->k;
  for (int i = 0; i < k->narg + k->nsize; i++) {
    const Var *v = i < k->narg ? k->arg[i].var : k->size[i - k->narg].var;
    if (!map_get(&used, v)) continue;
    vec_push(tmp, &params, v);
    map_del(&used, v);
  }
  for (int i = 0; i < n; i++)
    if (map_get(&used, vars[i])) vec_push(tmp, &params, vars[i]);
  *out = params.v;
  return params.n;
}

static void print_launch(Cuda *c, Stmt *s)
{
  Cgen *g = c->g;
  Extents x = {.g = g};
  stmt_visit(s, find_extents, &x);
  const Var **vars;
  int n = find_parameters(g, s, &vars);
  const char *name = cs_fmt(g, "%s_kernel%d", cs_function_name(g, g->k->name), c->state->launches.n - c->first);
  record_launch(c, &x, name, n, vars);
  int64_t threads = threads_per_block(g, &x);
  text_add(g->out, "extern \"C\" __global__ void ");
  if (threads) text_printf(g->out, "__launch_bounds__(%" PRId64 ") ", threads);
  text_printf(g->out, "%s(", name);
  print_parameters(g, n, vars);
  text_add(g->out, ")\n{\n");
  cs_stmt(g, s);
  text_add(g->out, "}\n");
}

/* ---- the host's part of a function ------------------------------------------------------------- */

static bool has_threads(void *env, Stmt *s)
{
  if (s->kind == S_FOR && s->u.loop.kind == FOR_THREAD) *(bool *)env = true;
  return !*(bool *)env;
}

static void host_stmt(Cuda *c, Stmt *s);

static void host_alloc(Cuda *c, Stmt *s)
{
  const Buffer *b = s->u.alloc.buffer;
  if (s->u.alloc.place != PLACE_WORKSPACE)
    BUG(c->g->ctx, "%s: '%s' stands outside thread loops and not in the workspace", c->g->k->name, b->name);
  cs_declare_memory(c->g, b->data, (Memory){cs_name(c->g, b->data), b->dtype, false, 1, false});
  host_stmt(c, s->u.alloc.body);
}

static void host_stmt(Cuda *c, Stmt *s)
{
  bool threads = false;
  stmt_visit(s, has_threads, &threads);
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) host_stmt(c, s->u.seq.v[i]);
    return;
  case S_ATTR: host_stmt(c, s->u.attr.body); return;
  case S_ALLOC: host_alloc(c, s); return;
  case S_LET:
    if (!threads) break;
    host_stmt(c, s->u.let.body); /* a value handed to the kernels */
    return;
  case S_FOR:
    if (s->u.loop.kind != FOR_THREAD || str_starts(s->u.loop.thread_tag, "vthread")) break;
    print_launch(c, s);
    return;
  case S_EVAL:
    if (s->u.eval.value->kind != E_CALL) return;
    break;
  case S_IF:
  case S_WHILE:
  case S_STORE:
  case S_BLOCK: break;
  }
  const char *what = s->kind == S_FOR ? s->u.loop.var->name : s->kind == S_STORE ? s->u.store.buffer->name : "";
  raise(c->g->ctx, ERR_UNSUPPORTED, s->loc,
        "%s: %s '%s' stands outside the loops bound to blockIdx and threadIdx; bind a loop around it", c->g->k->name,
        s->kind == S_FOR     ? "loop"
        : s->kind == S_STORE ? "the store to"
                             : "a statement",
        what);
}

static void print_function(Cuda *c, const Kernel *k)
{
  Cgen *g = c->g;
  cs_kernel_begin(g, k);
  c->first = c->state->launches.n;
  for (int i = 0; i < k->narg; i++) {
    const KernelArg *a = &k->arg[i];
    const char *name = cs_name_as(g, a->var, a->name);
    if (a->buffer) cs_declare_memory(g, a->var, (Memory){name, a->buffer->dtype, false, 1, !a->written});
  }
  for (int i = 0; i < k->nsize; i++) cs_name(g, k->size[i].var);
  host_stmt(c, k->body);
}

/* ---- the backend ---------------------------------------------------------------------------------- */

static const void *cuda_get(Code *code, CodeFormat format, Arena *arena, size_t *n)
{
  CudaState *state = code->state;
  if (format == CODE_PTX) return codegen_nvrtc(arena, state->source, code->target, false, n);
  if (format != CODE_CUDA) return NULL;
  *n = strlen(state->source);
  return state->source;
}

static const CodeBackend cuda_backend = {.name = "cuda", .formats = "cuda ptx", .text = CODE_CUDA, .get = cuda_get};

const CudaLaunch *codegen_cuda_launches(Code *code, int *n)
{
  if (code->backend != &cuda_backend)
    raise(code->ctx, ERR_ARGUMENT, NOWHERE, "code of the %s backend has no launches", code->backend->name);
  CudaState *state = code->state;
  *n = state->launches.n;
  return state->launches.v;
}

static void drop_code(void *held)
{
  Code **code = held;
  if (*code) code_free(*code);
}

Code *codegen_cuda(Ctx *ctx, const Target *target, int n, Kernel *const *kernels)
{
  Scope scope = scope_begin(ctx);
  Code **held = arena_new_of(scratch(ctx), Code *);
  defer(ctx, drop_code, held);
  Code *code = *held = code_new(ctx, target, &cuda_backend);
  CudaState *state = code->state = arena_new_of(code->arena, CudaState);
  Cuda c = {.g = cs_new(code, &cuda_dialect), .state = state};
  for (int i = 0; i < n; i++) {
    Scope inner = scope_begin(ctx);
    cs_refuse_imports(ctx, kernels[i]);
    print_function(&c, kernels[i]);
    scope_end(ctx, inner);
  }
  Text file = text_new(code->arena);
  text_printf(&file, "/* Device code, made by Lathe for target '%s'. */\n", target->text);
  if (c.g->uses_half) text_add(&file, "#include <cuda_fp16.h>\n");
  if (c.g->helpers.n) text_printf(&file, "\n%s", text_str(&c.g->helpers));
  text_add(&file, text_str(&c.g->functions));
  state->source = text_str(&file);
  *held = NULL;
  scope_end(ctx, scope);
  return code;
}
