/* call.c: from a primitive's name and arguments to its effect.
 *
 * Comes in: a row of prims.def and arguments.  The arguments are checked and brought
 * to one form by the row's own text; the primitive runs; its line goes to the trace.
 * A refusal puts back the tree that was copied before, so a call does all or
 * nothing. */
#include "schedule/engine.h"

#include <stdlib.h>

static const Prim prims[] = {
#define PRIM(name, args, result, doc) {{#name, args, result, doc}, prim_##name},
#include "schedule/prims.def"
#undef PRIM
};
enum { NPRIMS = sizeof prims / sizeof *prims };

int prim_count(void) { return NPRIMS; }
const PrimInfo *prim_info(int i) { return &prims[i].info; }

const Prim *prim_find(const char *name)
{
  for (int i = 0; i < NPRIMS; i++)
    if (!strcmp(prims[i].info.name, name)) return &prims[i];
  return NULL;
}

_Noreturn static void raise_unknown(Ctx *ctx, const char *name)
{
  const char *names[NPRIMS];
  for (int i = 0; i < NPRIMS; i++) names[i] = prims[i].info.name;
  const char *suggestion = str_suggest(scratch(ctx), name, names, NPRIMS);
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no schedule primitive '%s'%s", name, suggestion);
}

/* ---- signatures -------------------------------------------------------------------- */

static const char *trimmed(Arena *a, const char *p, const char *end)
{
  while (p < end && *p == ' ') p++;
  while (end > p && end[-1] == ' ') end--;
  return arena_strndup(a, p, (size_t)(end - p));
}

/* End of the item that starts at p: the next comma outside brackets. */
static const char *item_end(const char *p)
{
  int depth = 0;
  for (; *p && (*p != ',' || depth); p++) depth += (*p == '[') - (*p == ']');
  return p;
}

int prim_params(Arena *a, const Prim *prim, PrimParam **out)
{
  Vec(PrimParam) v = {0};
  for (const char *p = prim->info.args; *p;) {
    const char *end = item_end(p);
    const char *colon = memchr(p, ':', (size_t)(end - p));
    const char *eq = memchr(p, '=', (size_t)(end - p));
    PrimParam param = {.star = *p == '*'};
    param.name = trimmed(a, p + param.star, colon);
    param.type = trimmed(a, colon + 1, eq ? eq : end);
    param.deflt = eq ? trimmed(a, eq + 1, end) : NULL;
    vec_push(a, &v, param);
    for (p = end; *p == ',' || *p == ' '; p++) continue;
  }
  *out = v.v;
  return v.n;
}

SchedArg prim_default(const char *text)
{
  if (!strcmp(text, "None")) return sched_arg_none;
  if (!strcmp(text, "True")) return (SchedArg){.kind = SA_INT, .u.i = 1};
  if (!strcmp(text, "False")) return (SchedArg){.kind = SA_INT, .u.i = 0};
  return (SchedArg){.kind = SA_INT, .u.i = strtoll(text, NULL, 10)};
}

static const char *const kind_names[] = {
  [SA_NONE] = "None",    [SA_INT] = "an int",       [SA_FLOAT] = "a float",   [SA_STR] = "a str",
  [SA_EXPR] = "an expr", [SA_BLOCK] = "a block",    [SA_LOOP] = "a loop",     [SA_INTRV] = "a sampled int",
  [SA_LIST] = "a list",  [SA_MAP] = "an index map", [SA_FUNC] = "a function", [SA_INTRIN] = "an intrinsic",
};

static bool fit_type(Sched *s, const char *type, size_t n, SchedArg *a);

static bool fit_list(Sched *s, const char *type, size_t n, SchedArg *a)
{
  if (a->kind != SA_LIST) return false;
  SchedArg *v = arena_array(scratch(s->ctx), SchedArg, a->u.list.n);
  for (int i = 0; i < a->u.list.n; i++) {
    v[i] = a->u.list.v[i];
    if (!fit_type(s, type, n, &v[i])) return false;
  }
  a->u.list.v = v;
  return true;
}

static bool fit_buffer(const SchedArg *a)
{
  if (a->kind == SA_STR) return true;
  if (a->kind != SA_LIST || a->u.list.n != 2) return false;
  const SchedArg *v = a->u.list.v;
  return v[0].kind == SA_STR && v[1].kind == SA_INT && (!strcmp(v[0].u.s, "read") || !strcmp(v[0].u.s, "write"));
}

static bool fit_intrin(Sched *s, SchedArg *a)
{
  if (a->kind == SA_INTRIN) {
    sched_add_intrin(s, a->u.p);
    return true;
  }
  if (a->kind != SA_STR) return false;
  for (int i = 0; i < s->intrins.n; i++)
    if (!strcmp(s->intrins.v[i]->name, a->u.s)) {
      *a = (SchedArg){.kind = SA_INTRIN, .u.p = s->intrins.v[i]};
      return true;
    }
  const TensorIntrin *known = sched_dot_find(s, a->u.s);
  if (known) {
    *a = (SchedArg){.kind = SA_INTRIN, .u.p = known};
    return true;
  }
  raise(s->ctx, ERR_ARGUMENT, NOWHERE, "no tensor intrinsic is called '%s' here; add it to the schedule first", a->u.s);
}

static bool fit_expr(Sched *s, SchedArg *a)
{
  if (a->kind == SA_EXPR) a->u.e = trace_own_expr(s, a->u.e);
  return a->kind == SA_EXPR || a->kind == SA_INT || a->kind == SA_FLOAT || a->kind == SA_STR || a->kind == SA_INTRV;
}

static bool fit_float(SchedArg *a)
{
  if (a->kind == SA_INT) *a = (SchedArg){.kind = SA_FLOAT, .u.f = (double)a->u.i};
  return a->kind == SA_FLOAT;
}

static bool is_type(const char *type, size_t n, const char *name)
{
  return strlen(name) == n && !memcmp(type, name, n);
}

/* One alternative of a type; brings the argument to the form that primitives read. */
static bool fit_atom(Sched *s, const char *type, size_t n, SchedArg *a)
{
  if (n > 6 && !memcmp(type, "list[", 5)) return fit_list(s, type + 5, n - 6, a);
  if (is_type(type, n, "block")) return a->kind == SA_BLOCK;
  if (is_type(type, n, "loop")) return a->kind == SA_LOOP;
  if (is_type(type, n, "str")) return a->kind == SA_STR;
  if (is_type(type, n, "bool")) return a->kind == SA_INT && (a->u.i == 0 || a->u.i == 1);
  if (is_type(type, n, "float")) return fit_float(a);
  if (is_type(type, n, "expr")) return fit_expr(s, a);
  if (is_type(type, n, "buffer")) return fit_buffer(a);
  if (is_type(type, n, "intrin")) return fit_intrin(s, a);
  if (is_type(type, n, "indexmap")) {
    if (a->kind != SA_MAP) return false;
    a->u.p = trace_own_map(s, a->u.p);
    return true;
  }
  if (!is_type(type, n, "int")) BUG(s->ctx, "prims.def: unknown type '%.*s'", (int)n, type);
  if (a->kind == SA_EXPR && a->u.e->kind == E_INT) *a = (SchedArg){.kind = SA_INT, .u.i = a->u.e->u.i};
  return a->kind == SA_INT || a->kind == SA_INTRV;
}

static bool fit_type(Sched *s, const char *type, size_t n, SchedArg *a)
{
  if (n && type[n - 1] == '?') {
    if (a->kind == SA_NONE) return true;
    n--;
  }
  for (const char *p = type, *end = type + n; p < end;) {
    const char *q = p;
    for (int depth = 0; q < end && (*q != '|' || depth); q++) depth += (*q == '[') - (*q == ']');
    if (fit_atom(s, p, (size_t)(q - p), a)) return true;
    p = q + 1;
  }
  return false;
}

/* Arguments in full: defaults filled in, each of its parameter's type. */
static SchedArg *fit_args(Sched *s, const Prim *prim, int n, const SchedArg *given)
{
  Arena *a = scratch(s->ctx);
  PrimParam *param;
  int np = prim_params(a, prim, &param);
  if (n > np) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s takes %d arguments, got %d", prim->info.name, np, n);
  SchedArg *v = arena_array(a, SchedArg, np);
  for (int i = 0; i < np; i++) {
    v[i] = i < n ? given[i] : sched_arg_none;
    if (v[i].kind == SA_NONE && param[i].deflt) {
      v[i] = prim_default(param[i].deflt);
      continue;
    }
    bool fits = param[i].star ? fit_list(s, param[i].type, strlen(param[i].type), &v[i])
                              : fit_type(s, param[i].type, strlen(param[i].type), &v[i]);
    if (!fits)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: argument '%s' wants %s%s, got %s", prim->info.name, param[i].name,
            param[i].star ? "any number of " : "", param[i].type, kind_names[v[i].kind]);
  }
  return v;
}

/* ---- all or nothing ------------------------------------------------------------------ */

typedef struct Before {
  Stmt *body;
  Param *param;
  int nrv, ntrace, nguarded;
  uint64_t rng;
} Before;

static Before remember(Sched *s)
{
  Before b = {.nrv = s->rv.n, .ntrace = s->trace.n, .nguarded = s->guarded.n, .rng = s->rng};
  b.body = stmt_clone(s->m, s->f->body);
  b.param = arena_copy(s->m->arena, s->f->param, sizeof *s->f->param * (size_t)s->f->nparam);
  return b;
}

static void put_back(Sched *s, const Before *b)
{
  s->f->body = b->body;
  s->f->param = b->param;
  s->rv.n = b->nrv;
  s->trace.n = b->ntrace;
  s->guarded.n = b->nguarded;
  s->rng = b->rng;
}

void sched_all_or_nothing(Sched *s, void (*work)(Ctx *, void *), void *env)
{
  Before before = remember(s);
  if (protect(s->ctx, work, env)) {
    put_back(s, &before);
    error_reraise(s->ctx);
  }
}

typedef struct Call {
  Sched *s;
  const Prim *prim;
  SchedArg *args, result;
} Call;

/* Does the primitive leave blocks' instances in their order, and see through what they say themselves of loops? */
static bool bears_loose(const char *prim)
{
  static const char *const names[] = {
    "split",      "fuse",      "unroll",        "add_unit_loop",    "loop_partition",     "annotate",
    "unannotate", "set_scope", "storage_align", "transform_layout", "set_axis_separator", "enter_postproc"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], prim)) return true;
  return str_starts(prim, "get_") || str_starts(prim, "sample_");
}

static void run_call(Ctx *ctx, void *env)
{
  (void)ctx;
  Call *c = env;
  if (c->s->loose && !bears_loose(c->prim->info.name)) facts_check_isolated(c->s, c->prim->info.name);
  c->result = c->prim->fn(c->s, c->args);
  vec_push(c->s->m->arena, &c->s->trace, trace_line(c->s, c->prim, c->args, c->result));
}

static SchedArg call_prim(Sched *s, const Prim *prim, int n, const SchedArg *given)
{
  Scope scope = scope_begin(s->ctx);
  Call call = {.s = s, .prim = prim, .args = fit_args(s, prim, n, given)};
  sched_all_or_nothing(s, run_call, &call);
  scope_end(s->ctx, scope);
  return call.result;
}

SchedArg sched_call(Sched *s, const char *name, int n, const SchedArg *given)
{
  const Prim *prim = prim_find(name);
  if (!prim) raise_unknown(s->ctx, name);
  return call_prim(s, prim, n, given);
}

typedef struct Try {
  Sched *s;
  SchedArg (*work)(Sched *, SchedArg *);
  SchedArg *args;
} Try;

static void run_try(Ctx *ctx, void *env)
{
  (void)ctx;
  Try *t = env;
  t->work(t->s, t->args);
}

bool sched_try(Sched *s, SchedArg (*work)(Sched *, SchedArg *), SchedArg *args)
{
  Before before = remember(s);
  Try t = {s, work, args};
  ErrKind kind = protect(s->ctx, run_try, &t);
  put_back(s, &before);
  if (kind != ERR_NONE && kind != ERR_SCHEDULE && kind != ERR_ARGUMENT && kind != ERR_UNSUPPORTED)
    error_reraise(s->ctx);
  error_clear(s->ctx);
  return kind == ERR_NONE;
}

/* ---- the primitives as C functions ----------------------------------------------------- */

#define A_BLOCK(b) {.kind = SA_BLOCK, .u.i = (b).id}
#define A_LOOP(l) {.kind = SA_LOOP, .u.i = (l).id}
#define A_INT(v) {.kind = SA_INT, .u.i = (v)}
#define A_STR(v) {.kind = SA_STR, .u.s = (v)}
#define A_EXPR(v) {.kind = (v) ? SA_EXPR : SA_NONE, .u.e = (v)}
#define A_LIST(items, count)                    \
  {                                             \
    .kind = SA_LIST, .u.list = { items, count } \
  }
#define CALL(s, name, ...) \
  call_prim(s, prim_find(#name), sizeof((SchedArg[]){__VA_ARGS__}) / sizeof(SchedArg), (SchedArg[]){__VA_ARGS__})

static SchedArg *loop_args(Sched *s, int n, const LoopRV *loops)
{
  SchedArg *v = arena_array(s->m->arena, SchedArg, n);
  for (int i = 0; i < n; i++) v[i] = (SchedArg)A_LOOP(loops[i]);
  return v;
}

static SchedArg block_list(Sched *s, int n, const BlockRV *blocks)
{
  if (!n) return sched_arg_none;
  SchedArg *v = arena_array(s->m->arena, SchedArg, n);
  for (int i = 0; i < n; i++) v[i] = (SchedArg)A_BLOCK(blocks[i]);
  return (SchedArg)A_LIST(v, n);
}

static SchedArg int_list(Sched *s, int n, const int64_t *values)
{
  SchedArg *v = arena_array(s->m->arena, SchedArg, n);
  for (int i = 0; i < n; i++) v[i] = (SchedArg)A_INT(values[i]);
  return (SchedArg)A_LIST(v, n);
}

static SchedArg buffer_arg(Sched *s, bool write, int index)
{
  SchedArg *v = arena_array(s->m->arena, SchedArg, 2);
  v[0] = (SchedArg)A_STR(write ? "write" : "read");
  v[1] = (SchedArg)A_INT(index);
  return (SchedArg)A_LIST(v, 2);
}

static BlockRV block_of(SchedArg a) { return (BlockRV){(int)a.u.i}; }
static LoopRV loop_of(SchedArg a) { return (LoopRV){(int)a.u.i}; }

static int blocks_of(SchedArg list, Arena *a, BlockRV **out)
{
  *out = arena_array(a, BlockRV, list.u.list.n);
  for (int i = 0; i < list.u.list.n; i++) (*out)[i] = block_of(list.u.list.v[i]);
  return list.u.list.n;
}

BlockRV sched_get_block(Sched *s, const char *name) { return block_of(CALL(s, get_block, A_STR(name))); }

int sched_get_loops(Sched *s, BlockRV b, Arena *a, LoopRV **out)
{
  SchedArg list = CALL(s, get_loops, A_BLOCK(b));
  *out = arena_array(a, LoopRV, list.u.list.n);
  for (int i = 0; i < list.u.list.n; i++) (*out)[i] = loop_of(list.u.list.v[i]);
  return list.u.list.n;
}

int sched_get_child_blocks(Sched *s, SchedArg parent, Arena *a, BlockRV **out)
{
  return blocks_of(call_prim(s, prim_find("get_child_blocks"), 1, &parent), a, out);
}
int sched_get_producers(Sched *s, BlockRV b, Arena *a, BlockRV **out)
{
  return blocks_of(CALL(s, get_producers, A_BLOCK(b)), a, out);
}
int sched_get_consumers(Sched *s, BlockRV b, Arena *a, BlockRV **out)
{
  return blocks_of(CALL(s, get_consumers, A_BLOCK(b)), a, out);
}
int sched_get_output_blocks(Sched *s, BlockRV b, Arena *a, BlockRV **out)
{
  return blocks_of(CALL(s, get_output_blocks, A_BLOCK(b)), a, out);
}

void sched_split(Sched *s, LoopRV loop, int n, const Expr *const *factors, bool preserve_unit, LoopRV *out)
{
  SchedArg *v = arena_array(s->m->arena, SchedArg, n);
  for (int i = 0; i < n; i++) v[i] = (SchedArg)A_EXPR(factors[i]);
  SchedArg list = CALL(s, split, A_LOOP(loop), A_LIST(v, n), A_INT(preserve_unit));
  for (int i = 0; i < n; i++) out[i] = loop_of(list.u.list.v[i]);
}

LoopRV sched_fuse(Sched *s, int n, const LoopRV *loops, bool preserve_unit)
{
  return loop_of(CALL(s, fuse, A_LIST(loop_args(s, n, loops), n), A_INT(preserve_unit)));
}

void sched_reorder(Sched *s, int n, const LoopRV *loops) { CALL(s, reorder, A_LIST(loop_args(s, n, loops), n)); }

void sched_reorder_block_iters(Sched *s, BlockRV b, int n, const int *order)
{
  int64_t *v = arena_array(s->m->arena, int64_t, n);
  for (int i = 0; i < n; i++) v[i] = order[i];
  SchedArg list = int_list(s, n, v);
  CALL(s, reorder_block_iter_var, A_BLOCK(b), list);
}

LoopRV sched_add_unit_loop(Sched *s, SchedArg x) { return loop_of(call_prim(s, prim_find("add_unit_loop"), 1, &x)); }

void sched_parallel(Sched *s, LoopRV l) { CALL(s, parallel, A_LOOP(l)); }
void sched_vectorize(Sched *s, LoopRV l) { CALL(s, vectorize, A_LOOP(l)); }
void sched_unroll(Sched *s, LoopRV l) { CALL(s, unroll, A_LOOP(l)); }
void sched_bind(Sched *s, LoopRV l, const char *axis) { CALL(s, bind, A_LOOP(l), A_STR(axis)); }
void sched_annotate(Sched *s, SchedArg x, const char *key, const Expr *value)
{
  CALL(s, annotate, x, A_STR(key), A_EXPR(value));
}
void sched_unannotate(Sched *s, SchedArg x, const char *key) { CALL(s, unannotate, x, A_STR(key)); }

void sched_compute_at(Sched *s, BlockRV b, LoopRV l, bool preserve_unit, int index)
{
  CALL(s, compute_at, A_BLOCK(b), A_LOOP(l), A_INT(preserve_unit), A_INT(index));
}
void sched_reverse_compute_at(Sched *s, BlockRV b, LoopRV l, bool preserve_unit, int index)
{
  CALL(s, reverse_compute_at, A_BLOCK(b), A_LOOP(l), A_INT(preserve_unit), A_INT(index));
}
void sched_compute_inline(Sched *s, BlockRV b) { CALL(s, compute_inline, A_BLOCK(b)); }
void sched_reverse_compute_inline(Sched *s, BlockRV b) { CALL(s, reverse_compute_inline, A_BLOCK(b)); }

BlockRV sched_cache_read(Sched *s, BlockRV b, int index, const char *scope, int n, const BlockRV *consumers)
{
  return block_of(CALL(s, cache_read, A_BLOCK(b), A_INT(index), A_STR(scope), block_list(s, n, consumers)));
}
BlockRV sched_cache_write(Sched *s, BlockRV b, int index, const char *scope, int n, const BlockRV *consumers)
{
  return block_of(CALL(s, cache_write, A_BLOCK(b), A_INT(index), A_STR(scope), block_list(s, n, consumers)));
}
BlockRV sched_reindex(Sched *s, BlockRV b, bool write, int index)
{
  return block_of(CALL(s, reindex, A_BLOCK(b), buffer_arg(s, write, index)));
}

BlockRV sched_rfactor(Sched *s, LoopRV l, int factor_axis)
{
  return block_of(CALL(s, rfactor, A_LOOP(l), A_INT(factor_axis)));
}
BlockRV sched_decompose_reduction(Sched *s, BlockRV b, LoopRV l)
{
  return block_of(CALL(s, decompose_reduction, A_BLOCK(b), A_LOOP(l)));
}
void sched_pad_einsum(Sched *s, BlockRV b, int n, const int64_t *padding)
{
  SchedArg list = int_list(s, n, padding);
  CALL(s, pad_einsum, A_BLOCK(b), list);
}

void sched_storage_align(Sched *s, BlockRV b, int buffer_index, int axis, int factor, int offset)
{
  CALL(s, storage_align, A_BLOCK(b), A_INT(buffer_index), A_INT(axis), A_INT(factor), A_INT(offset));
}
void sched_set_scope(Sched *s, BlockRV b, int buffer_index, const char *scope)
{
  CALL(s, set_scope, A_BLOCK(b), A_INT(buffer_index), A_STR(scope));
}
void sched_double_buffer(Sched *s, BlockRV b, int buffer_index)
{
  CALL(s, double_buffer, A_BLOCK(b), A_INT(buffer_index));
}
void sched_prefetch(Sched *s, BlockRV b, int read_index, LoopRV l, int64_t distance)
{
  CALL(s, prefetch, A_BLOCK(b), A_INT(read_index), A_LOOP(l), A_INT(distance));
}

void sched_transform_layout(Sched *s, BlockRV b, bool write, int index, const IndexMap *map, const Expr *pad)
{
  CALL(s, transform_layout, A_BLOCK(b), buffer_arg(s, write, index), {.kind = SA_MAP, .u.p = map}, A_EXPR(pad));
}
void sched_transform_block_layout(Sched *s, BlockRV b, const IndexMap *map)
{
  CALL(s, transform_block_layout, A_BLOCK(b), {.kind = SA_MAP, .u.p = map});
}

BlockRV sched_blockize(Sched *s, SchedArg x, bool preserve_unit)
{
  return block_of(CALL(s, blockize, x, A_INT(preserve_unit)));
}
void sched_tensorize(Sched *s, SchedArg x, const TensorIntrin *intrin)
{
  CALL(s, tensorize, x, {.kind = SA_INTRIN, .u.p = intrin});
}

IntRV sched_sample_categorical(Sched *s, int n, const int64_t *candidates, const double *probs, int decision)
{
  SchedArg *p = arena_array(s->m->arena, SchedArg, n);
  for (int i = 0; i < n; i++) p[i] = (SchedArg){.kind = SA_FLOAT, .u.f = probs[i]};
  SchedArg choice = A_INT(decision);
  return (IntRV){
    (int)CALL(s, sample_categorical, int_list(s, n, candidates), A_LIST(p, n), decision < 0 ? sched_arg_none : choice)
        .u.i};
}

void sched_sample_perfect_tile(Sched *s, LoopRV l, int n, int64_t max_innermost, const int64_t *decision, IntRV *out)
{
  SchedArg list = CALL(s, sample_perfect_tile, A_LOOP(l), A_INT(n), A_INT(max_innermost),
                       decision ? int_list(s, n, decision) : sched_arg_none);
  for (int i = 0; i < n; i++) out[i] = (IntRV){(int)list.u.list.v[i].u.i};
}

LoopRV sched_sample_compute_location(Sched *s, BlockRV b, int decision)
{
  SchedArg choice = A_INT(decision);
  return loop_of(CALL(s, sample_compute_location, A_BLOCK(b), decision < -2 ? sched_arg_none : choice));
}
