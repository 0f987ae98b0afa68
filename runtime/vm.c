/* vm.c: programs with control flow, or with sizes known only while they run.
 *
 * A stack of frames, one for each function that has been called and has not returned.
 * A tail call takes its caller's frame, so a loop written as recursion runs in constant
 * space.  Frames are kept between calls and runs. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { MAX_DEPTH = 100000 };

LatheRtCode rt_value_view(Value *to, const Value *from, LatheRtDType dtype, int32_t ndim, const int64_t *shape,
                          LatheRtError *err)
{
  if (from->kind != VALUE_TENSOR) return rt_fail(err, LATHE_RT_ARGUMENT, "a reshape of something that is no tensor");
  int64_t dim[LATHE_RT_MAX_RANK];
  if (ndim) memcpy(dim, shape, (size_t)ndim * sizeof *dim);
  LatheRtTensor t = {.ndim = ndim, .dtype = dtype, .shape = dim};
  size_t bytes;
  size_t have = rt_value_bytes(from);
  RT_TRY(lathe_rt_tensor_bytes(&t, &bytes, err));
  if (bytes != have || rt_dtype_bytes(dtype) != rt_dtype_bytes(from->tensor.dtype)) {
    char a[110], b[110];
    rt_shape_text(from->tensor.ndim, from->dim, a, sizeof a);
    rt_shape_text(ndim, dim, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "a tensor of shape %s cannot be seen as %s: their sizes differ", a, b);
  }
  rt_value_copy(to, from);
  to->tensor.dtype = dtype;
  to->tensor.ndim = ndim;
  memcpy(to->dim, dim, (size_t)ndim * sizeof *dim);
  return LATHE_RT_OK;
}

/* ---- frames ------------------------------------------------------------------------- */

static void frame_clear(Frame *f)
{
  for (int32_t i = 0; f->func && i < f->func->nreg; i++) rt_value_clear(&f->reg[i]);
  f->func = NULL;
}

/* Makes room for a function; its registers are empty, its scalars 0.  The frame is clear. */
static LatheRtCode frame_begin(Frame *f, const ModelFunc *func, LatheRtError *err)
{
  if (func->nreg > f->reg_room) {
    free(f->reg);
    f->reg_room = 0;
    f->reg = calloc((size_t)func->nreg, sizeof *f->reg);
    if (!f->reg) return rt_no_memory(err, "executor");
    f->reg_room = func->nreg;
  }
  if (func->nscalar > f->scalar_room) {
    free(f->scalar);
    f->scalar_room = 0;
    f->scalar = calloc((size_t)func->nscalar, sizeof *f->scalar);
    if (!f->scalar) return rt_no_memory(err, "executor");
    f->scalar_room = func->nscalar;
  }
  if (func->nscalar) memset(f->scalar, 0, (size_t)func->nscalar * sizeof *f->scalar);
  f->func = func;
  f->pc = 0;
  return LATHE_RT_OK;
}

static LatheRtCode push_frame(LatheRtExecutor *x, const ModelFunc *func, LatheRtError *err)
{
  if (x->nframe == MAX_DEPTH)
    return rt_fail(err, LATHE_RT_KERNEL, "function '%.100s': more than %d calls inside each other", func->name,
                   MAX_DEPTH);
  if (x->nframe == x->frame_room) {
    int32_t room = x->frame_room ? 2 * x->frame_room : 8;
    Frame *more = realloc(x->frame, (size_t)room * sizeof *more);
    if (!more) return rt_no_memory(err, "executor");
    memset(more + x->frame_room, 0, (size_t)(room - x->frame_room) * sizeof *more);
    x->frame = more;
    x->frame_room = room;
  }
  RT_TRY(frame_begin(&x->frame[x->nframe], func, err));
  x->nframe++;
  return LATHE_RT_OK;
}

void rt_vm_drop(LatheRtExecutor *x)
{
  for (int32_t i = 0; i < x->frame_room; i++) {
    frame_clear(&x->frame[i]);
    free(x->frame[i].reg);
    free(x->frame[i].scalar);
  }
  free(x->frame);
  x->frame = NULL;
  x->nframe = x->frame_room = 0;
  for (int32_t i = 0; i < x->passed_room; i++) rt_value_clear(&x->passed[i]);
  free(x->passed);
  x->passed = NULL;
  x->passed_room = 0;
}

/* ---- instructions ---------------------------------------------------------------------- */

static LatheRtCode shape_of(const Frame *f, const Ins *ins, int64_t *dim, LatheRtError *err)
{
  for (int32_t d = 0; d < ins->nexpr; d++) {
    Scalar s;
    RT_TRY(rt_expr_eval(&ins->expr[d], f->reg, f->scalar, &s, err));
    if (s.i < 0)
      return rt_fail(err, LATHE_RT_ARGUMENT,
                     "the sizes of this run do not fit: dimension %d of a tensor comes out as %lld", d, (long long)s.i);
    dim[d] = s.i;
  }
  return LATHE_RT_OK;
}

static LatheRtCode run_kernel(LatheRtExecutor *x, Frame *f, const Ins *ins, LatheRtError *err)
{
  const ModelKernel *k = &x->model->kernel[ins->index];
  Workspaces need;
  LatheRtCode code = rt_kernel_bind(x, ins, f->reg, f->scalar, x->slot, x->arg, &need, err);
  if (code == LATHE_RT_OK) code = rt_workspace(x, k, need, err);
  if (code != LATHE_RT_OK) return rt_within(err, code, "node '%.100s': ", x->model->node[ins->node].name);
  int32_t nread = 0;
  int32_t n = 0;
  if (x->watch) rt_kernel_tensors(k, ins, f->reg, x->tensor, &nread, &n);
  return rt_kernel_run(x, k, ins->node, x->slot, x->arg, nread, n, x->tensor, err);
}

/* HOST and PACKED. */
static LatheRtCode run_host(LatheRtExecutor *x, Frame *f, const Ins *ins, LatheRtError *err)
{
  double start = x->watch ? rt_now_seconds() : 0;
  LatheRtCode code =
      ins->op == MO_HOST ? rt_host_call(x, ins, f->reg, err) : rt_packed_ins(x, ins, f->reg, f->scalar, err);
  if (code != LATHE_RT_OK) return rt_within(err, code, "node '%.100s': ", x->model->node[ins->node].name);
  if (!x->watch) return LATHE_RT_OK;
  return rt_watch(x, ins->node, rt_now_seconds() - start, 0, 0, x->tensor, err);
}

static LatheRtCode copy_value(LatheRtExecutor *x, Heap *h, Value *to, const Value *from, LatheRtError *err)
{
  if (from->kind != VALUE_TENSOR) {
    rt_value_copy(to, from);
    return LATHE_RT_OK;
  }
  Value made = {0};
  RT_TRY(rt_value_tensor(h, &made, from->tensor.dtype, from->tensor.ndim, from->dim, err));
  LatheRtCode code = rt_copy(x, &made.tensor, &from->tensor, rt_value_bytes(from), err);
  if (code == LATHE_RT_OK) rt_value_copy(to, &made);
  rt_value_clear(&made);
  return code;
}

/* A tensor in the block that `prepare` fills, which is the host's. */
static LatheRtCode in_prepared(LatheRtExecutor *x, Value *to, const Ins *ins, const int64_t *dim, LatheRtError *err)
{
  rt_value_clear(to);
  rt_value_set(to, x->model->device[0].device, ins->dtype, ins->nexpr, dim, x->prepared);
  return rt_value_place(to, ins->place, ins->device ? 0 : x->model->prepared_bytes, err);
}

static LatheRtCode alloc_tensor(LatheRtExecutor *x, Frame *f, const Ins *ins, LatheRtError *err)
{
  int64_t dim[LATHE_RT_MAX_RANK];
  RT_TRY(shape_of(f, ins, dim, err));
  if (x->prepared && ins->place != PLACE_DYNAMIC) return in_prepared(x, &f->reg[ins->reg], ins, dim, err);
  return rt_value_tensor(&x->heap[ins->device], &f->reg[ins->reg], ins->dtype, ins->nexpr, dim, err);
}

LatheRtCode rt_value_const(LatheRtExecutor *x, Value *to, int32_t i, LatheRtError *err)
{
  const ModelConst *c = &x->model->constant[i];
  if (c->bytes && !c->data) return rt_broken(err, "constant %d is used before it is prepared", i);
  rt_value_clear(to);
  /* while weights are prepared they are on the host, whatever device they are for */
  LatheRtDevice device = x->model->device[x->prepared ? 0 : c->device].device;
  rt_value_set(to, device, c->dtype, c->ndim, c->shape, (void *)(uintptr_t)c->data);
  return LATHE_RT_OK;
}

/* The function that a CALL, TAIL or APPLY calls, its arguments on their way: those that a
 * closure holds come first. */
static LatheRtCode pass_arguments(LatheRtExecutor *x, const Frame *f, const Ins *ins, const ModelFunc **func,
                                  LatheRtError *err)
{
  const List *held = NULL;
  *func = &x->model->func[ins->index];
  if (x->calls_left && --x->calls_left == 0) return rt_fail(err, LATHE_RT_KERNEL, "more calls than are allowed");
  if (ins->op == MO_APPLY || ins->op == MO_APPLY_TAIL) {
    if (f->reg[ins->reg].kind != VALUE_CLOSURE) return rt_fail(err, LATHE_RT_ARGUMENT, "what is called is no function");
    held = f->reg[ins->reg].list;
    *func = &x->model->func[held->tag];
  }
  int32_t nheld = held ? held->n : 0;
  if (ins->narg != (*func)->nparam - nheld)
    return rt_fail(err, LATHE_RT_ARGUMENT, "function '%.100s' takes %d arguments, gets %d", (*func)->name,
                   (*func)->nparam - nheld, ins->narg);
  if ((*func)->nparam > x->passed_room) {
    Value *more = calloc((size_t)(*func)->nparam, sizeof *more); /* what was passed before has been taken */
    if (!more) return rt_no_memory(err, "executor");
    free(x->passed);
    x->passed = more;
    x->passed_room = (*func)->nparam;
  }
  for (int32_t i = 0; i < nheld; i++) rt_value_copy(&x->passed[i], &held->item[i]);
  for (int32_t i = 0; i < ins->narg; i++) rt_value_copy(&x->passed[nheld + i], &f->reg[ins->arg[i]]);
  return LATHE_RT_OK;
}

static void take_passed(LatheRtExecutor *x, Frame *f, int32_t n)
{
  for (int32_t i = 0; i < n; i++) {
    rt_value_copy(&f->reg[i], &x->passed[i]);
    rt_value_clear(&x->passed[i]);
  }
}

static LatheRtCode call_function(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  const ModelFunc *func;
  RT_TRY(pass_arguments(x, &x->frame[x->nframe - 1], ins, &func, err));
  RT_TRY(push_frame(x, func, err));
  take_passed(x, &x->frame[x->nframe - 1], func->nparam);
  return LATHE_RT_OK;
}

static LatheRtCode tail_call(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  Frame *f = &x->frame[x->nframe - 1];
  const ModelFunc *func;
  RT_TRY(pass_arguments(x, f, ins, &func, err));
  frame_clear(f);
  RT_TRY(frame_begin(f, func, err));
  take_passed(x, f, func->nparam);
  return LATHE_RT_OK;
}

/* An output must not be the caller's own memory. */
static bool is_borrowed_input(const LatheRtExecutor *x, const Value *v)
{
  for (int32_t i = 0; v->kind == VALUE_TENSOR && !v->storage && i < x->at->entry->nin; i++)
    if (x->at->input[i].kind == VALUE_TENSOR && x->at->input[i].tensor.data == v->tensor.data) return true;
  return false;
}

static LatheRtCode check_output(const LatheRtExecutor *x, int32_t i, const Value *v, LatheRtError *err)
{
  const ModelEntry *e = x->at->entry;
  if (e->about.outputs[i].kind == PORT_OBJECT)
    return v->kind != VALUE_NONE ? LATHE_RT_OK : rt_broken(err, "output %d has no value", i);
  if (v->kind != VALUE_TENSOR && v->kind != VALUE_LIST)
    return rt_broken(err, "output %d is no tensor and no sequence", i);
  if (v->kind == VALUE_TENSOR && !rt_same_device(v->tensor.device, e->about.outputs[i].device))
    return rt_broken(err, "output %d is not on its device", i);
  return LATHE_RT_OK;
}

/* The caller's instruction before its pc is the CALL or APPLY that waits for this. */
static LatheRtCode return_values(LatheRtExecutor *x, const Ins *ins, LatheRtError *err)
{
  Frame *f = &x->frame[x->nframe - 1];
  if (x->nframe == 1) {
    for (int32_t i = 0; i < ins->narg; i++) {
      const Value *v = &f->reg[ins->arg[i]];
      RT_TRY(check_output(x, i, v, err));
      if (is_borrowed_input(x, v)) RT_TRY(copy_value(x, rt_heap_of(x, v->tensor.device), &x->at->output[i], v, err));
      else rt_value_copy(&x->at->output[i], v);
    }
  } else {
    Frame *to = f - 1;
    const Ins *from = &to->func->ins[to->pc - 1];
    for (int32_t i = 0; i < ins->narg; i++) rt_value_copy(&to->reg[from->ret[i]], &f->reg[ins->arg[i]]);
  }
  frame_clear(f);
  x->nframe--;
  return LATHE_RT_OK;
}

static LatheRtCode take_field(Frame *f, const Ins *ins, LatheRtError *err)
{
  const Value *v = &f->reg[ins->source];
  if (v->kind != VALUE_DATA || ins->index >= v->list->n) return rt_broken(err, "a value has no field %d", ins->index);
  rt_value_item(&f->reg[ins->reg], v, ins->index);
  return LATHE_RT_OK;
}

static LatheRtCode match_tag(Frame *f, const Ins *ins, LatheRtError *err)
{
  const Value *v = &f->reg[ins->reg];
  if (v->kind != VALUE_DATA) return rt_broken(err, "a value without a constructor is matched");
  if (v->list->tag != ins->tag) f->pc = ins->index;
  return LATHE_RT_OK;
}

static LatheRtCode run_ins(LatheRtExecutor *x, Frame *f, const Ins *ins, LatheRtError *err)
{
  int64_t dim[LATHE_RT_MAX_RANK], truth;
  Scalar s;
  switch ((ModelOp)ins->op) {
  case MO_CONST: return rt_value_const(x, &f->reg[ins->reg], ins->index, err);
  case MO_SCALAR: return rt_expr_eval(&ins->expr[0], f->reg, f->scalar, &f->scalar[ins->reg], err);
  case MO_ALLOC: return alloc_tensor(x, f, ins, err);
  case MO_VIEW:
    RT_TRY(shape_of(f, ins, dim, err));
    return rt_value_view(&f->reg[ins->reg], &f->reg[ins->source], ins->dtype, ins->nexpr, dim, err);
  case MO_MOVE: rt_value_copy(&f->reg[ins->reg], &f->reg[ins->source]); return LATHE_RT_OK;
  case MO_COPY: return copy_value(x, &x->heap[ins->device], &f->reg[ins->reg], &f->reg[ins->source], err);
  case MO_FREE: rt_value_clear(&f->reg[ins->reg]); return LATHE_RT_OK;
  case MO_KERNEL: return run_kernel(x, f, ins, err);
  case MO_JUMP: f->pc = ins->index; return LATHE_RT_OK;
  case MO_BRANCH:
    if (f->reg[ins->reg].kind != VALUE_TENSOR) return rt_fail(err, LATHE_RT_ARGUMENT, "a condition has no tensor");
    RT_TRY(rt_tensor_int(&f->reg[ins->reg].tensor, &truth, err));
    if (!truth) f->pc = ins->index;
    return LATHE_RT_OK;
  case MO_CALL:
  case MO_APPLY: return call_function(x, ins, err);
  case MO_TAIL:
  case MO_APPLY_TAIL: return tail_call(x, ins, err);
  case MO_RETURN: return return_values(x, ins, err);
  case MO_HOST:
  case MO_PACKED: return run_host(x, f, ins, err);
  case MO_DONE: return rt_prepare_done(x, ins->index, err);
  case MO_CHECK:
    RT_TRY(rt_expr_eval(&ins->expr[0], f->reg, f->scalar, &s, err));
    return s.i ? LATHE_RT_OK : rt_fail(err, LATHE_RT_ARGUMENT, "%.500s", ins->text);
  case MO_CLOSURE: return rt_value_cell(&f->reg[ins->reg], VALUE_CLOSURE, ins->index, ins->narg, ins->arg, f->reg, err);
  case MO_DATA: return rt_value_cell(&f->reg[ins->reg], VALUE_DATA, ins->tag, ins->narg, ins->arg, f->reg, err);
  case MO_FIELD: return take_field(f, ins, err);
  case MO_MATCH: return match_tag(f, ins, err);
  case MO_FAIL: return rt_fail(err, LATHE_RT_ARGUMENT, "%.500s", ins->text);
  case MO_COUNT: break;
  }
  return rt_broken(err, "instruction %u", ins->op);
}

static LatheRtCode run_frames(LatheRtExecutor *x, LatheRtCode code, LatheRtError *err)
{
  while (code == LATHE_RT_OK && x->nframe) {
    Frame *f = &x->frame[x->nframe - 1];
    const Ins *ins = &f->func->ins[f->pc++];
    code = run_ins(x, f, ins, err);
  }
  while (x->nframe) frame_clear(&x->frame[--x->nframe]);
  for (int32_t i = 0; i < x->passed_room; i++) rt_value_clear(&x->passed[i]);
  return code;
}

LatheRtCode rt_vm_run(LatheRtExecutor *x, LatheRtError *err)
{
  LatheRtCode code = push_frame(x, &x->model->func[x->at->entry->func], err);
  for (int32_t i = 0; code == LATHE_RT_OK && i < x->at->entry->nin; i++)
    rt_value_copy(&x->frame[0].reg[i], &x->at->input[i]);
  return run_frames(x, code, err);
}

LatheRtCode rt_vm_call(LatheRtExecutor *x, int32_t func, LatheRtError *err)
{
  return run_frames(x, push_frame(x, &x->model->func[func], err), err);
}
