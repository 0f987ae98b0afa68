/* api_schedule.c: schedules of loop programs.
 *
 * In: a schedule, a primitive's name and its arguments; blocks, loops and sampled
 * integers are objects that know their schedule.  Out: what the primitive gives.
 * The function of a schedule is given out as a copy, for the schedule changes. */
#include "api/api.h"

static Sched *arg_schedule(Call *c) { return (Sched *)api_arg_ptr(c, 0); }

static bool is_known(const Sched *s, const Handle *rv) { return sched_knows(s, rv->owner->p, (int)(intptr_t)rv->p); }

/* The number of a block, loop or sampled integer, which must be one of this schedule's. */
static int rv_id(Call *c, const Handle *rv)
{
  if (!is_known(arg_schedule(c), rv))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "a block, loop or sampled integer of another schedule is none of this one's, unless it was there before this "
          "one was copied from it");
  return (int)(intptr_t)rv->p;
}

static LatheValue val_rv(Call *c, LatheKind kind, int64_t id)
{
  return api_val_object(c, kind, (const void *)(intptr_t)id, 0, NULL, api_arg_handle(c, 0));
}

static SchedArg sched_object(Call *c, Module *m, const LatheValue *v)
{
  const void *p = api_value_ptr(v);
  switch ((LatheKind)v->kind) {
  case LATHE_BLOCK: return (SchedArg){.kind = SA_BLOCK, .u.i = rv_id(c, v->u.p)};
  case LATHE_LOOP: return (SchedArg){.kind = SA_LOOP, .u.i = rv_id(c, v->u.p)};
  case LATHE_INTRV: return (SchedArg){.kind = SA_INTRV, .u.i = rv_id(c, v->u.p)};
  case LATHE_EXPR:
  case LATHE_VAR:
  case LATHE_ITERVAR: return (SchedArg){.kind = SA_EXPR, .u.e = api_value_expr(c, m, v)};
  case LATHE_PRIMFUNC: return (SchedArg){.kind = SA_FUNC, .u.p = p};
  case LATHE_TENSORINTRIN: api_keep(c, api_arg_handle(c, 0), v->u.p); return (SchedArg){.kind = SA_INTRIN, .u.p = p};
  case LATHE_NODE:
  case LATHE_TYPE:
  case LATHE_PASSCONTEXT:
  case LATHE_COMPILED:
  case LATHE_BUFFER:
  case LATHE_REDUCER:
  case LATHE_TENSOR:
  case LATHE_TEOP:
  case LATHE_STMT:
  case LATHE_MODULE:
  case LATHE_SCHEDULE:
  case LATHE_TESCHEDULE:
  case LATHE_TESTAGE:
  case LATHE_TARGET:
  case LATHE_BUILT:
  case LATHE_WORLD: break;
  }
  raise(c->ctx, ERR_TYPE, NOWHERE, "%s: an argument is an object that no primitive takes", api_arg_str(c, 1));
}

/* ["indexmap", variables, results] */
static bool is_index_map(const LatheValue *v)
{
  const LatheValue *f = v->u.list;
  return v->n == 3 && f[0].tag == LATHE_STR && f[0].n == 8 && !memcmp(f[0].u.s, "indexmap", 8) &&
         f[1].tag == LATHE_LIST && f[2].tag == LATHE_LIST;
}

static SchedArg index_map(Call *c, Module *m, const LatheValue *v)
{
  const LatheValue *in = &v->u.list[1];
  const LatheValue *out = &v->u.list[2];
  IndexMap *map = arena_new_of(m->arena, IndexMap);
  map->nin = (int)in->n;
  map->in = arena_array(m->arena, const Var *, in->n + 1);
  map->out = arena_array(m->arena, const Expr *, out->n + 1);
  for (int i = 0; i < map->nin; i++) {
    if (!api_value_is(&in->u.list[i], LATHE_VAR))
      raise(c->ctx, ERR_TYPE, NOWHERE, "%s: an index map starts from variables", api_arg_str(c, 1));
    map->in[i] = api_value_var(c, m, &in->u.list[i]);
  }
  for (int64_t i = 0; i < out->n; i++) {
    const LatheValue *e = &out->u.list[i];
    if (e->tag == LATHE_STR && !strcmp(api_value_text(c, e), "axis_separator")) {
      map->separators |= (uint32_t)1 << (map->nout & 31);
      continue;
    }
    api_check_value(c, e, "expr", "a result of an index map");
    map->out[map->nout++] = api_value_expr(c, m, e);
  }
  return (SchedArg){.kind = SA_MAP, .u.p = map};
}

static SchedArg sched_arg(Call *c, Module *m, const LatheValue *v)
{
  switch ((LatheTag)v->tag) {
  case LATHE_NONE: break;
  case LATHE_BOOL:
  case LATHE_INT: return (SchedArg){.kind = SA_INT, .u.i = v->u.i};
  case LATHE_FLOAT: return (SchedArg){.kind = SA_FLOAT, .u.f = v->u.f};
  case LATHE_STR: return (SchedArg){.kind = SA_STR, .u.s = api_value_text(c, v)};
  case LATHE_OBJECT: return sched_object(c, m, v);
  case LATHE_LIST: {
    if (is_index_map(v)) return index_map(c, m, v);
    SchedArg *item = arena_array(scratch(c->ctx), SchedArg, v->n + 1);
    for (int64_t i = 0; i < v->n; i++) item[i] = sched_arg(c, m, &v->u.list[i]);
    return (SchedArg){.kind = SA_LIST, .u.list = {item, (int)v->n}};
  }
  }
  return (SchedArg){.kind = SA_NONE};
}

static LatheValue sched_result(Call *c, Module *m, SchedArg a)
{
  LatheValue out, *v;
  switch (a.kind) {
  case SA_NONE: return api_val_none();
  case SA_INT: return api_val_int(a.u.i);
  case SA_FLOAT: return api_val_float(a.u.f);
  case SA_STR: return api_val_str(c, a.u.s);
  case SA_EXPR: return api_val_expr(c, m, a.u.e);
  case SA_BLOCK: return val_rv(c, LATHE_BLOCK, a.u.i);
  case SA_LOOP: return val_rv(c, LATHE_LOOP, a.u.i);
  case SA_INTRV: return val_rv(c, LATHE_INTRV, a.u.i);
  case SA_LIST:
    v = api_val_list(c, a.u.list.n, &out);
    for (int i = 0; i < a.u.list.n; i++) v[i] = sched_result(c, m, a.u.list.v[i]);
    return out;
  case SA_FUNC: return api_val_func(c, (PrimFunc *)a.u.p);
  case SA_MAP:
  case SA_INTRIN: break;
  }
  BUG(c->ctx, "a primitive gave a result of kind %d", (int)a.kind);
}

static void schedule_new(Call *c)
{
  Handle *h = api_val_owner(c, LATHE_SCHEDULE, NULL, c->out);
  h->p = sched_new(api_arg_ptr(c, 0), (uint64_t)api_arg_int(c, 1));
}

static void schedule_copy(Call *c)
{
  Handle *h = api_val_owner(c, LATHE_SCHEDULE, NULL, c->out);
  for (Kept *k = api_arg_handle(c, 0)->kept; k; k = k->next) api_keep(c, h, k->handle);
  h->p = sched_clone(arg_schedule(c));
}

static void schedule_add_intrin(Call *c)
{
  api_keep(c, api_arg_handle(c, 0), api_arg_handle(c, 1));
  sched_add_intrin(arg_schedule(c), api_arg_ptr(c, 1));
}

static void schedule_func(Call *c)
{
  *c->out = api_val_func(c, func_import(api_new_module(c), sched_func(arg_schedule(c))));
}

/* Most results that a primitive's row promises: what a call reserves. */
static int most_results(const char *prim)
{
  for (int i = 0; i < prim_count(); i++)
    if (!strcmp(prim_info(i)->name, prim)) return str_starts(prim_info(i)->result, "list") ? 64 : 1;
  return 0;
}

static void schedule_call(Call *c)
{
  Sched *s = arg_schedule(c);
  Module *m = sched_module(s);
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  SchedArg *arg = arena_array(scratch(c->ctx), SchedArg, n + 1);
  for (int i = 0; i < n; i++) arg[i] = sched_arg(c, m, &v[i]);
  const char *prim = api_arg_str(c, 1);
  int results = most_results(prim);
  api_reserve(c, results, results);
  SchedArg out = sched_call(s, prim, n, arg);
  *c->out = sched_result(c, sched_module(s), out);
}

static void schedule_trace(Call *c) { *c->out = api_val_str(c, sched_trace_text(scratch(c->ctx), arg_schedule(c))); }
static void schedule_replay(Call *c) { sched_replay(arg_schedule(c), api_arg_str(c, 1)); }

static void schedule_seed(Call *c) { sched_seed(arg_schedule(c), (uint64_t)api_arg_int(c, 1)); }

static void schedule_marked(Call *c)
{
  Sched *s = arg_schedule(c);
  const LatheValue *v;
  int n = api_arg_list(c, 1, &v);
  SchedArg *rv = arena_array(scratch(c->ctx), SchedArg, n + 1);
  int known = 0; /* what another schedule made is nowhere in this one's text */
  for (int i = 0; i < n; i++)
    if (is_known(s, v[i].u.p)) rv[known++] = sched_arg(c, sched_module(s), &v[i]);
  *c->out = api_val_str(c, sched_print_marked(scratch(c->ctx), s, known, rv));
}

static Stmt *arg_loop_or_block(Call *c, Sched *s)
{
  int id = rv_id(c, api_arg_handle(c, 1));
  if (api_arg_handle(c, 1)->kind == LATHE_BLOCK) return sched_block_stmt(s, (BlockRV){id});
  return sched_loop_stmt(s, (LoopRV){id});
}

static void schedule_number(Call *c) { *c->out = api_val_int(arg_loop_or_block(c, arg_schedule(c))->id); }

/* A copy of the loop or block as it stands now. */
static void schedule_get(Call *c)
{
  Sched *s = arg_schedule(c);
  Stmt *stmt = arg_loop_or_block(c, s);
  *c->out = api_val_stmt(c, sched_module(s), stmt_clone(sched_module(s), stmt));
}

static void schedule_int(Call *c)
{
  *c->out = api_val_int(sched_int_value(arg_schedule(c), (IntRV){rv_id(c, api_arg_handle(c, 1))}));
}

static void primitives(Call *c)
{
  int n = prim_count();
  LatheValue *v = api_val_list(c, n, c->out);
  for (int i = 0; i < n; i++) {
    const PrimInfo *p = prim_info(i);
    LatheValue *row = api_val_list(c, 4, &v[i]);
    row[0] = api_val_str(c, p->name);
    row[1] = api_val_str(c, p->args);
    row[2] = api_val_str(c, p->result);
    row[3] = api_val_str(c, p->doc);
  }
}

const ApiFunction api_schedule_functions[] = {
  {"schedule", "f: primfunc, seed: int -> schedule", "a schedule of a copy of f", schedule_new},
  {"schedule_copy", "s: schedule -> schedule", "the same state, trace and numbers of blocks and loops", schedule_copy},
  {"schedule_func", "s: schedule -> primfunc", "the function as it stands now", schedule_func},
  {"schedule_call", "s: schedule, primitive: str, args: list[any] -> any", "applies a primitive", schedule_call},
  {"schedule_trace", "s: schedule -> str", "what was done, as Python text", schedule_trace},
  {"schedule_replay", "s: schedule, trace: str -> none", "does it again", schedule_replay},
  {"schedule_add_intrin", "s: schedule, intrin: tensorintrin -> none", "makes an intrinsic known by name, for traces",
   schedule_add_intrin},
  {"schedule_get", "s: schedule, rv: block|loop -> stmt", "the loop or block as it stands now", schedule_get},
  {"schedule_number", "s: schedule, rv: block|loop -> int", "a number that the statement has in this schedule alone",
   schedule_number},
  {"schedule_seed", "s: schedule, seed: int -> none", "sampling goes on from this number", schedule_seed},
  {"schedule_marked", "s: schedule, rvs: list[block|loop] -> str", "the function's text with these underlined",
   schedule_marked},
  {"schedule_int", "s: schedule, rv: intrv -> int", "the value that was sampled", schedule_int},
  {"primitives", " -> list[list[str]]", "the primitives: name, arguments, result, doc", primitives},
  {0},
};
