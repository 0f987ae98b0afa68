/* api_stage.c: schedules of tensor expressions.
 *
 * In: a schedule or one of its stages, axes and tensors of the same world.  Out:
 * new axes and tensors; at the end, the function that the schedule describes. */
#include "api/api.h"

static TeSched *arg_sched(Call *c) { return (TeSched *)api_arg_ptr(c, 0); }
static TeStage *arg_stage(Call *c) { return (TeStage *)api_arg_ptr(c, 0); }
static Module *arg_m(Call *c) { return api_arg_handle(c, 0)->m; }

static LatheValue val_stage(Call *c, Handle *schedule, TeStage *s)
{
  return api_val_object(c, LATHE_TESTAGE, s, 0, schedule->m, schedule);
}

static void schedule_new(Call *c)
{
  Module *m = api_arg_world(c);
  const void **ops;
  int n = api_arg_ptrs(c, m, 1, &ops);
  if (n == 0) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "create_schedule: no operation was given");
  Handle *h = api_val_owner(c, LATHE_TESCHEDULE, m, c->out);
  h->p = te_sched_new(m, n, (const TeOp *const *)ops);
}

static void schedule_stage(Call *c)
{
  *c->out = val_stage(c, api_arg_handle(c, 0), te_sched_stage(arg_sched(c), api_arg_ptr(c, 1)));
}

static void schedule_stages(Call *c)
{
  TeStage **s;
  int n = te_sched_stages(arg_sched(c), &s);
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) v[i] = val_stage(c, api_arg_handle(c, 0), s[i]);
}

static void cache_read(Call *c)
{
  const void **readers;
  int n = api_arg_ptrs(c, arg_m(c), 3, &readers);
  api_reserve(c, 1, 0);
  *c->out = api_val_tensor(
      c, te_sched_cache_read(arg_sched(c), api_arg_ptr(c, 1), api_arg_str(c, 2), n, (const TeOp *const *)readers));
}

static LatheValue new_tensors(Call *c, int n, const Tensor *const *t)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_tensor(c, t[i]);
  return list;
}

/* As many results as the operation has outputs. */
static const Tensor **room_for(Call *c, const Tensor *t)
{
  api_reserve(c, t->op->nout, t->op->nout);
  return arena_array(scratch(c->ctx), const Tensor *, t->op->nout + 1);
}

static void cache_write(Call *c)
{
  const void **t;
  int n = api_arg_ptrs(c, arg_m(c), 1, &t);
  if (n == 0) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "cache_write: no tensor was given");
  const Tensor **out = room_for(c, t[0]);
  *c->out =
      new_tensors(c, te_sched_cache_write(arg_sched(c), n, (const Tensor *const *)t, api_arg_str(c, 2), out), out);
}

static void rfactor(Call *c)
{
  const Tensor *t = api_arg_ptr(c, 1);
  const Tensor **out = room_for(c, t);
  int n = te_sched_rfactor(arg_sched(c), t, api_arg_itervar(c, arg_m(c), 2), api_arg_int32(c, 3, -64, 64), out);
  *c->out = new_tensors(c, n, out);
}

static void emit(Call *c)
{
  TeArg *args;
  LatheValue temporary;
  int n = api_arg_te_args(c, arg_m(c), 2, &args);
  Handle *h = api_val_owner(c, LATHE_SCHEDULE, NULL, &temporary);
  Sched *s = te_sched_emit(arg_sched(c), api_arg_str(c, 1), n, args);
  h->p = s;
  *c->out = api_val_func(c, func_import(api_new_module(c), sched_func(s)));
}

/* ---- stages --------------------------------------------------------------------------------- */

static void stage_op(Call *c) { *c->out = api_val_teop(c, te_stage_op(arg_stage(c))); }
static void stage_origin(Call *c) { *c->out = api_val_teop(c, te_stage_origin(arg_stage(c))); }

static void stage_leaves(Call *c)
{
  const IterVar *const *leaf;
  int n = te_stage_leaves(arg_stage(c), &leaf);
  *c->out = api_val_itervars(c, arg_m(c), n, leaf);
}

static void split(Call *c)
{
  Module *m = arg_m(c);
  const IterVar *outer, *inner;
  if (api_arg_given(c, 2) == api_arg_given(c, 3))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "split: give either factor or nparts");
  api_reserve(c, 2, 2);
  te_stage_split(arg_stage(c), api_arg_itervar(c, m, 1), api_arg_expr(c, m, 2), api_arg_expr(c, m, 3), &outer, &inner);
  LatheValue *v = api_val_list(c, 2, c->out);
  v[0] = api_val_itervar(c, m, outer);
  v[1] = api_val_itervar(c, m, inner);
}

static void fuse(Call *c)
{
  const void **axis;
  int n = api_arg_ptrs(c, arg_m(c), 1, &axis);
  api_reserve(c, 1, 0);
  *c->out = api_val_itervar(c, arg_m(c), te_stage_fuse(arg_stage(c), n, (const IterVar *const *)axis));
}

static void transform_layout(Call *c)
{
  Module *m = arg_m(c);
  const Var **in;
  const Expr **out;
  IndexMap map = {.nin = api_arg_vars(c, m, 1, &in), .nout = api_arg_exprs(c, m, 2, &out)};
  map.in = in;
  map.out = out;
  te_stage_transform_layout(arg_stage(c), &map);
  stage_leaves(c);
}

static void reorder(Call *c)
{
  const void **axis;
  int n = api_arg_ptrs(c, arg_m(c), 1, &axis);
  te_stage_reorder(arg_stage(c), n, (const IterVar *const *)axis);
}

static void vectorize(Call *c) { te_stage_mark(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), FOR_VECTORIZED); }
static void parallel(Call *c) { te_stage_mark(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), FOR_PARALLEL); }
static void unroll(Call *c) { te_stage_mark(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), FOR_UNROLLED); }

static void bind(Call *c)
{
  te_stage_bind(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), api_arg_itervar(c, arg_m(c), 2));
}

static void compute_at(Call *c)
{
  te_stage_compute_at(arg_stage(c), (TeStage *)api_arg_ptr(c, 1), api_arg_itervar(c, arg_m(c), 2));
}

static void compute_inline(Call *c) { te_stage_compute_inline(arg_stage(c)); }
static void compute_root(Call *c) { te_stage_compute_root(arg_stage(c)); }
static void set_scope(Call *c) { te_stage_set_scope(arg_stage(c), api_arg_str(c, 1)); }

static void storage_align(Call *c)
{
  te_stage_storage_align(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), api_arg_int32(c, 2, INT32_MIN, INT32_MAX),
                         api_arg_int32(c, 3, INT32_MIN, INT32_MAX));
}

static void double_buffer(Call *c) { te_stage_double_buffer(arg_stage(c)); }

static void prefetch(Call *c)
{
  te_stage_prefetch(arg_stage(c), api_arg_ptr(c, 1), api_arg_itervar(c, arg_m(c), 2), api_arg_expr(c, arg_m(c), 3));
}

static void tensorize(Call *c)
{
  api_keep(c, api_arg_handle(c, 0)->owner, api_arg_handle(c, 2));
  te_stage_tensorize(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), api_arg_ptr(c, 2));
}

static void pragma(Call *c)
{
  te_stage_pragma(arg_stage(c), api_arg_itervar(c, arg_m(c), 1), api_arg_str(c, 2), api_arg_expr(c, arg_m(c), 3));
}

static void set_store_predicate(Call *c) { te_stage_set_store_predicate(arg_stage(c), api_arg_expr(c, arg_m(c), 1)); }

const ApiFunction api_stage_functions[] = {
  {"te_schedule", "world: world, ops: list[teop] -> teschedule", "a schedule with default loops", schedule_new},
  {"te_schedule_stage", "s: teschedule, op: teop -> testage", "the stage of an operation", schedule_stage},
  {"te_schedule_stages", "s: teschedule -> list[testage]", "all stages, producers first", schedule_stages},
  {"te_schedule_cache_read", "s: teschedule, tensor: tensor, scope: str, readers: list[teop] -> tensor",
   "a copy that the readers read", cache_read},
  {"te_schedule_cache_write", "s: teschedule, tensors: list[tensor], scope: str -> list[tensor]",
   "computes into a cache, copies out at the end", cache_write},
  {"te_schedule_rfactor", "s: teschedule, tensor: tensor, axis: itervar, factor_axis: int -> list[tensor]",
   "a reduction in two steps", rfactor},
  {"te_schedule_emit", "s: teschedule, name: str, args: list[parameter] -> primfunc",
   "the function that the schedule describes", emit},
  {"stage_op", "stage: testage -> teop", "what the stage computes now", stage_op},
  {"stage_origin", "stage: testage -> teop", "what the stage was made for", stage_origin},
  {"stage_leaves", "stage: testage -> list[itervar]", "its loops, outermost first", stage_leaves},
  {"stage_split", "stage: testage, axis: itervar, factor: expr?, nparts: expr? -> list[itervar]",
   "one loop becomes two", split},
  {"stage_fuse", "stage: testage, axes: list[itervar] -> itervar", "neighbouring loops become one", fuse},
  {"stage_transform_layout", "stage: testage, indices: list[var], layout: list[expr] -> list[itervar]",
   "another layout of what it stores", transform_layout},
  {"stage_reorder", "stage: testage, axes: list[itervar] -> none", "loops in this order", reorder},
  {"stage_vectorize", "stage: testage, axis: itervar -> none", "one vector instead of a loop", vectorize},
  {"stage_parallel", "stage: testage, axis: itervar -> none", "iterations on all threads", parallel},
  {"stage_unroll", "stage: testage, axis: itervar -> none", "the body repeated", unroll},
  {"stage_bind", "stage: testage, axis: itervar, thread: itervar -> none", "a loop becomes a thread axis", bind},
  {"stage_compute_at", "stage: testage, consumer: testage, axis: itervar -> none", "computed inside a consumer's loop",
   compute_at},
  {"stage_compute_inline", "stage: testage -> none", "computed where it is read", compute_inline},
  {"stage_compute_root", "stage: testage -> none", "computed on its own", compute_root},
  {"stage_set_scope", "stage: testage, scope: str -> none", "where its result lives", set_scope},
  {"stage_storage_align", "stage: testage, axis: itervar, factor: int, offset: int -> none",
   "stride of an axis: k * factor + offset", storage_align},
  {"stage_double_buffer", "stage: testage -> none", "two buffers in turn", double_buffer},
  {"stage_prefetch", "stage: testage, tensor: tensor, axis: itervar, offset: expr -> none", "fetches ahead", prefetch},
  {"stage_tensorize", "stage: testage, axis: itervar, intrin: tensorintrin -> none",
   "a tensor intrinsic from this loop inwards", tensorize},
  {"stage_pragma", "stage: testage, axis: itervar, key: str, value: expr|str? -> none", "a hint on a loop", pragma},
  {"stage_set_store_predicate", "stage: testage, predicate: expr -> none", "stores only where it holds",
   set_store_predicate},
  {0},
};
