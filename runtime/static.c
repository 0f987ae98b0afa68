/* static.c: programs without control flow whose sizes are all known.
 *
 * Preparing walks the program once: every register gets its address (in the planned
 * storage, in the weights, or in an input's memory) and every kernel call its slots and
 * its checks.  A run is then one loop over the calls.  When the memory of an input
 * changes, the slots that point to it are written anew.
 *
 * The compiler places tensors on each other where the one is part of the other or is written over it;
 * a kernel that writes what it also reads must say that it may (LatheRtArgInfo.flags). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static LatheRtCode in_storage(LatheRtExecutor *x, Value *v, const Ins *ins, LatheRtDType dtype, int32_t ndim,
                              const int64_t *shape, LatheRtError *err)
{
  rt_value_clear(v);
  rt_value_set(v, x->model->device[ins->device].device, dtype, ndim, shape, x->at->storage[ins->device]);
  return rt_value_place(v, ins->place, (uint64_t)x->at->entry->storage_bytes[ins->device], err);
}

static void dims_of(const Ins *ins, int64_t *dim)
{
  for (int32_t d = 0; d < ins->nexpr; d++) dim[d] = ins->expr[d].step[0].value.i;
}

static bool share_memory(const Value *a, const Value *b)
{
  uintptr_t p = (uintptr_t)a->tensor.data;
  uintptr_t q = (uintptr_t)b->tensor.data;
  return a->writable && b->writable && rt_same_device(a->tensor.device, b->tensor.device) &&
         p < q + rt_value_bytes(b) && q < p + rt_value_bytes(a);
}

/* A tensor that is written lies on no other, but for those that may be overwritten from their
 * first element on. */
static LatheRtCode check_written(const LatheRtExecutor *x, const LatheRtFuncInfo *f, const Ins *ins, bool *over,
                                 LatheRtError *err)
{
  for (int32_t i = 0; i < f->nargs; i++)
    for (int32_t j = 0; f->args[i].flags & ARG_WRITTEN && j < f->nargs; j++) {
      const Value *a = &x->at->reg[ins->karg[i].index];
      const Value *b = &x->at->reg[ins->karg[j].index];
      if (i == j || !share_memory(a, b)) continue;
      if (!(f->args[i].flags & f->args[j].flags & ARG_ALIAS) || f->args[j].flags & ARG_WRITTEN ||
          a->tensor.data != b->tensor.data)
        return rt_broken(err, "%s writes argument %d '%s' over argument %d '%s'", f->name, i, f->args[i].name, j,
                         f->args[j].name);
      *over = true;
    }
  return LATHE_RT_OK;
}

/* Slots, and the tensors that the watcher is shown. */
static LatheRtCode add_kernel(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  const ModelKernel *k = &x->model->kernel[ins->index];
  Step *s = &x->at->step[x->at->nstep++];
  int32_t slots = k->info->nargs + k->info->nsizes;
  s->kernel = k;
  s->node = ins->node;
  s->slot = rt_executor_room(x, slots, sizeof *s->slot);
  s->tensor = rt_executor_room(x, slots, sizeof *s->tensor);
  if (!k->info->call) s->arg = rt_executor_room(x, slots, sizeof *s->arg);
  if (x->no_room) return rt_no_memory(err, "executor");
  RT_TRY(rt_kernel_bind(x, ins, x->at->reg, NULL, s->slot, s->arg ? s->arg : x->arg, &s->need, err));
  RT_TRY(check_written(x, k->info, ins, &s->over, err));
  rt_kernel_tensors(k, ins, x->at->reg, s->tensor, &s->nread, &s->ntensor);
  return LATHE_RT_OK;
}

static LatheRtCode add_copy(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  Value *to = &x->at->reg[ins->reg];
  Value *from = &x->at->reg[ins->source];
  Step *s = &x->at->step[x->at->nstep++];
  s->tensor = rt_executor_room(x, 2, sizeof *s->tensor);
  if (x->no_room) return rt_no_memory(err, "executor");
  s->tensor[0] = &from->tensor;
  s->tensor[1] = &to->tensor;
  return in_storage(x, to, ins, from->tensor.dtype, from->tensor.ndim, from->dim, err);
}

static LatheRtCode prepare_ins(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  Value *reg = x->at->reg;
  int64_t dim[LATHE_RT_MAX_RANK];
  switch ((ModelOp)ins->op) {
  case MO_CONST: return rt_value_const(x, &reg[ins->reg], ins->index, err);
  case MO_ALLOC: dims_of(ins, dim); return in_storage(x, &reg[ins->reg], ins, ins->dtype, ins->nexpr, dim, err);
  case MO_VIEW:
    dims_of(ins, dim);
    return rt_value_view(&reg[ins->reg], &reg[ins->source], ins->dtype, ins->nexpr, dim, err);
  case MO_MOVE: rt_value_copy(&reg[ins->reg], &reg[ins->source]); return LATHE_RT_OK;
  case MO_COPY:
    if (reg[ins->source].kind != VALUE_TENSOR || ins->reg == ins->source)
      return rt_broken(err, "it copies a register without a tensor");
    return add_copy(x, ins, err);
  case MO_KERNEL: return add_kernel(x, ins, err);
  case MO_RETURN:
    for (int32_t i = 0; i < ins->narg; i++) {
      if (reg[ins->arg[i]].kind != VALUE_TENSOR) return rt_broken(err, "output %d has no tensor", i);
      rt_value_copy(&x->at->output[i], &reg[ins->arg[i]]);
    }
    return LATHE_RT_OK;
  case MO_SCALAR:
  case MO_FREE:
  case MO_JUMP:
  case MO_BRANCH:
  case MO_CALL:
  case MO_TAIL:
  case MO_HOST:
  case MO_CHECK:
  case MO_CLOSURE:
  case MO_APPLY:
  case MO_APPLY_TAIL:
  case MO_DATA:
  case MO_FIELD:
  case MO_MATCH:
  case MO_FAIL:
  case MO_PACKED:
  case MO_DONE:
  case MO_COUNT: break;
  }
  return rt_broken(err, "a static program has instruction %u", ins->op);
}

static LatheRtCode check_inputs_static(const ModelEntry *e, LatheRtError *err)
{
  for (int32_t i = 0; i < e->nin; i++) {
    bool fits = e->about.inputs[i].kind == PORT_TENSOR;
    for (int32_t d = 0; fits && d < e->about.inputs[i].ndim; d++) fits = e->about.inputs[i].shape[d] >= 0;
    if (!fits) return rt_broken(err, "a static program has an input without a shape");
  }
  return LATHE_RT_OK;
}

/* Each register is set once in a program that the compiler wrote; one that sets a register
 * twice would show the watcher and inputs stale tensors. */
static LatheRtCode check_single(const ModelFunc *f, bool *set, LatheRtError *err)
{
  for (int32_t i = 0; i < f->nparam; i++) set[i] = true;
  for (int32_t i = 0; i < f->nins; i++) {
    const Ins *ins = &f->ins[i];
    if (ins->op == MO_KERNEL || ins->op == MO_RETURN) continue;
    if (set[ins->reg]) return rt_broken(err, "register %d of a static program is set twice", ins->reg);
    set[ins->reg] = true;
  }
  return LATHE_RT_OK;
}

/* Whose memory each register has: an input's, an ALLOC's or COPY's register, or -1 (a constant). */
static void find_owners(const ModelFunc *f, int32_t *owner)
{
  for (int32_t r = 0; r < f->nreg; r++) owner[r] = r < f->nparam ? r : -1;
  for (int32_t n = 0; n < f->nins; n++) {
    const Ins *ins = &f->ins[n];
    if (ins->op == MO_ALLOC || ins->op == MO_COPY) owner[ins->reg] = ins->reg;
    if (ins->op == MO_VIEW || ins->op == MO_MOVE) owner[ins->reg] = owner[ins->source];
  }
}

static LatheRtCode make_storage(LatheRtExecutor *x, LatheRtError *err)
{
  for (int32_t d = 0; d < x->model->ndevice; d++) {
    const ModelDevice *device = &x->model->device[d];
    RT_TRY(rt_device_alloc(device->api, device->device, (size_t)x->at->entry->storage_bytes[d], device->align,
                           &x->at->storage[d], err));
  }
  return LATHE_RT_OK;
}

LatheRtCode rt_static_prepare(LatheRtExecutor *x, LatheRtError *err)
{
  EntryState *at = x->at;
  const ModelEntry *e = at->entry;
  const ModelFunc *f = &x->model->func[e->func];
  RT_TRY(check_inputs_static(e, err));
  x->no_room = false;
  bool *set = rt_executor_room(x, f->nreg, sizeof *set);
  at->reg = rt_executor_room(x, f->nreg, sizeof *at->reg);
  at->step = rt_executor_room(x, f->nins, sizeof *at->step);
  at->owner = rt_executor_room(x, f->nreg, sizeof *at->owner);
  at->nstep = 0;
  if (x->no_room) return rt_no_memory(err, "executor");
  RT_TRY(check_single(f, set, err));
  RT_TRY(make_storage(x, err));
  for (int32_t i = 0; i < e->nin; i++) {
    const LatheRtPort *port = &e->about.inputs[i];
    rt_value_set(&at->reg[i], port->device, port->dtype, port->ndim, port->shape, NULL);
    RT_TRY(rt_tensor_check(&at->reg[i].tensor, err));
  }
  for (int32_t i = 0; i < f->nins; i++) RT_TRY(prepare_ins(x, &f->ins[i], err));
  find_owners(f, at->owner);
  return LATHE_RT_OK;
}

/* Everything that has the memory of register `owner` has this memory now. */
static void move_memory(LatheRtExecutor *x, int32_t owner, void *data)
{
  const EntryState *e = x->at;
  const ModelFunc *f = &x->model->func[e->entry->func];
  int32_t step = 0;
  for (int32_t r = 0; r < f->nreg; r++)
    if (e->owner[r] == owner) e->reg[r].tensor.data = data;
  for (int32_t n = 0; n < f->nins; n++) {
    const Ins *ins = &f->ins[n];
    for (int32_t a = 0; ins->op == MO_KERNEL && a < ins->narg; a++)
      if (e->owner[ins->karg[a].index] == owner) e->step[step].slot[a].p = data;
    if (ins->op == MO_KERNEL || ins->op == MO_COPY) step++;
    for (int32_t o = 0; ins->op == MO_RETURN && o < ins->narg; o++)
      if (e->owner[ins->arg[o]] == owner) e->output[o].tensor.data = data;
  }
}

void rt_static_input(LatheRtExecutor *x, int32_t i) { move_memory(x, i, x->at->input[i].tensor.data); }

/* Is register r another's memory that lies, in the plan, on the owner's? */
static bool lies_on(const LatheRtExecutor *x, int32_t r, int32_t owner, const Ins *made, uint64_t end)
{
  const EntryState *e = x->at;
  const char *storage = e->storage[made->device];
  const char *at = e->reg[r].tensor.data;
  uint64_t begin = made->place;
  if (e->owner[r] < 0 || e->owner[r] == owner || at < storage ||
      at >= storage + e->entry->storage_bytes[made->device] ||
      !rt_same_device(e->reg[r].tensor.device, x->model->device[made->device].device))
    return false;
  uint64_t from = (uint64_t)(at - storage);
  return from < end && begin < from + rt_value_bytes(&e->reg[r]);
}

/* One step writes all of it, and no later one reads its planned place under another name: only then
 * can the memory move alone. */
static bool can_move(const LatheRtExecutor *x, int32_t owner, const Ins *made)
{
  const EntryState *e = x->at;
  const ModelFunc *f = &x->model->func[e->entry->func];
  uint64_t end = made->place + rt_value_bytes(&e->reg[owner]);
  int32_t writers = made->op == MO_COPY;
  for (const Ins *ins = made + 1; ins < f->ins + f->nins; ins++) {
    bool after = writers > 0;
    if (ins->op == MO_COPY && after && lies_on(x, ins->source, owner, made, end)) return false;
    for (int32_t a = 0; ins->op == MO_KERNEL && a < ins->narg; a++) {
      int32_t r = ins->karg[a].index;
      if (e->owner[r] == owner && x->model->kernel[ins->index].info->args[a].flags & ARG_WRITTEN) writers++;
      if (after && lies_on(x, r, owner, made, end)) return false;
    }
    for (int32_t a = 0; ins->op == MO_RETURN && a < ins->narg; a++)
      if (lies_on(x, ins->arg[a], owner, made, end)) return false;
  }
  return writers == 1;
}

bool rt_static_output(LatheRtExecutor *x, int32_t i, void *data)
{
  const EntryState *e = x->at;
  const ModelFunc *f = &x->model->func[e->entry->func];
  const Ins *ret = &f->ins[f->nins - 1];
  const Ins *made = f->ins;
  int32_t owner = e->owner[ret->arg[i]];
  if (owner < f->nparam) return false; /* an input's or a constant */
  for (int32_t o = 0; o < ret->narg; o++)
    if (o != i && e->owner[ret->arg[o]] == owner) return false;
  while (!((made->op == MO_ALLOC || made->op == MO_COPY) && made->reg == owner)) made++;
  if (data && !can_move(x, owner, made)) return false;
  move_memory(x, owner, data ? data : (char *)e->storage[made->device] + made->place);
  return true;
}

/* Does a tensor that the step writes lie where the i-th one, which it reads, does? */
static bool overwritten(const Step *s, int32_t i)
{
  size_t mine, theirs;
  uintptr_t at = (uintptr_t)s->tensor[i]->data;
  if (lathe_rt_tensor_bytes(s->tensor[i], &mine, NULL) != LATHE_RT_OK) return false;
  for (int32_t j = s->nread; j < s->ntensor; j++) {
    uintptr_t other = (uintptr_t)s->tensor[j]->data;
    if (lathe_rt_tensor_bytes(s->tensor[j], &theirs, NULL) == LATHE_RT_OK && at < other + theirs && other < at + mine)
      return true;
  }
  return false;
}

/* Runs a kernel that overwrites what it reads; the watcher is shown copies of that. */
static LatheRtCode run_watched(LatheRtExecutor *x, const Step *s, LatheRtError *err)
{
  static const LatheRtDevice host = {LATHE_RT_CPU, 0};
  LatheRtTensor **copy = calloc((size_t)s->ntensor, 2 * sizeof *copy);
  if (!copy) return rt_no_memory(err, "executor");
  const LatheRtTensor **shown = (const LatheRtTensor **)(copy + s->ntensor);
  LatheRtCode code = LATHE_RT_OK;
  for (int32_t i = 0; code == LATHE_RT_OK && i < s->ntensor; i++) {
    const LatheRtTensor *t = shown[i] = s->tensor[i];
    size_t bytes;
    if (i >= s->nread || !overwritten(s, i)) continue;
    code = lathe_rt_tensor_new(host, t->dtype, t->ndim, t->shape, &copy[i], err);
    if (code == LATHE_RT_OK) code = lathe_rt_tensor_bytes(t, &bytes, err);
    if (code == LATHE_RT_OK) code = rt_copy(x, copy[i], t, bytes, err);
    shown[i] = copy[i];
  }
  if (code == LATHE_RT_OK)
    code = rt_kernel_run(x, s->kernel, s->node, s->slot, s->arg, s->nread, s->ntensor, shown, err);
  for (int32_t i = 0; i < s->ntensor; i++) lathe_rt_tensor_free(copy[i]);
  free(copy);
  return code;
}

/* ---- how many workers ----------------------------------------------------------------------- */

/* A kernel that is over in a moment may be quicker on the caller's thread alone than handed out.
 * Its first runs have all workers; if the quickest is short, it runs alone twice, and the quicker way
 * stays: for FIRST_REST runs at first, when it is tried again (the workers may have been asleep, or
 * another program in the way), then for twice as many each time.  Of APART neighbours one at a time is
 * alone: what it reads lies in the caches of all workers, as it will when they have the others.
 * Results do not depend on it. */
enum { WITH_ALL = 3, ALONE = 2, TRIALS = WITH_ALL + ALONE, APART = 4, FIRST_REST = 32, LONGEST_REST = 4096 };
static const double SHORT_SECONDS = 50e-6, QUICKER = 0.9;

static void begin_trials(Step *s, int32_t all)
{
  s->workers = all;
  s->trials = 0;
  s->with_all = s->alone = HUGE_VAL;
}

static void count_trial(Step *s, int32_t all, double took)
{
  double *least = s->trials < WITH_ALL ? &s->with_all : &s->alone;
  if (took < *least) *least = took;
  if (++s->trials == WITH_ALL && s->with_all >= SHORT_SECONDS) {
    s->trials = TRIALS;
  } else if (s->trials == TRIALS) {
    s->workers = s->alone < QUICKER * s->with_all ? 1 : all;
    s->rest = s->pause = s->pause < LONGEST_REST ? 2 * s->pause : s->pause;
  }
}

static LatheRtCode run_step(LatheRtExecutor *x, Step *s, int32_t all, LatheRtError *err)
{
  if (s->all != all) {
    s->all = all;
    s->rest = 0;
    s->pause = FIRST_REST / 2;
    begin_trials(s, all);
  } else if (s->rest && !--s->rest) {
    begin_trials(s, all);
  }
  bool alone = s->trials >= WITH_ALL && s->trials < TRIALS && (x->at->nrun + (uint32_t)(s - x->at->step)) % APART == 0;
  bool trial = all > 1 && !x->watch && (alone || s->trials < WITH_ALL);
  double start = trial ? rt_now_seconds() : 0;
  x->calls.num_workers = trial && alone ? 1 : s->workers;
  LatheRtCode code = s->over && x->watch
                         ? run_watched(x, s, err)
                         : rt_kernel_run(x, s->kernel, s->node, s->slot, s->arg, s->nread, s->ntensor, s->tensor, err);
  x->calls.num_workers = all;
  if (trial) count_trial(s, all, rt_now_seconds() - start);
  return code;
}

LatheRtCode rt_static_run(LatheRtExecutor *x, LatheRtError *err)
{
  if (x->at->ready_workers < x->calls.num_workers) {
    for (int32_t i = 0; i < x->at->nstep; i++)
      if (x->at->step[i].kernel) RT_TRY(rt_workspace(x, x->at->step[i].kernel, x->at->step[i].need, err));
    x->at->ready_workers = x->calls.num_workers;
  }
  int32_t all = x->calls.num_workers;
  x->at->nrun++;
  for (int32_t i = 0; i < x->at->nstep; i++) {
    Step *s = &x->at->step[i];
    if (s->kernel) RT_TRY(run_step(x, s, all, err));
    else {
      size_t bytes = 0;
      RT_TRY(lathe_rt_tensor_bytes(s->tensor[0], &bytes, err));
      RT_TRY(rt_copy(x, s->tensor[1], s->tensor[0], bytes, err));
    }
  }
  return LATHE_RT_OK;
}
