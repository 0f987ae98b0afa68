/* aot_plan.c: where everything of a program ahead of time lies.
 *
 * In: a program whose entries are static, its tensors put together into blocks (share.c).  Out: a place for each
 * register and for what each kernel needs while it runs.  An output is written straight into the caller's array,
 * with everything of its block, where the block reaches no further than the output does.  The rest shares the pools:
 *
 *   bytes ▲    ┌─ scratch ─┐
 *         │ ┌──┴───────────┴──┐
 *         │ │      %2         ├────────┐
 *         │ ├───────┐         │   %4   │
 *         │ │  %1   │         │        │
 *         └─┴───────┴─────────┴────────┴──▶ instructions */
#include "driver/aot.h"

/* ---- what cannot be ----------------------------------------------------------------------------- */

static const char *ins_reason(const ProgIns *ins)
{
  switch (ins->op) {
  case MO_JUMP:
  case MO_BRANCH: return "a branch whose condition is known at run time only";
  case MO_CALL:
  case MO_TAIL: return "a loop or a call of a function";
  case MO_HOST: return "an operator over sequences, optionals or texts, which allocates";
  case MO_CLOSURE:
  case MO_APPLY:
  case MO_APPLY_TAIL: return "functions as values";
  case MO_DATA:
  case MO_FIELD:
  case MO_MATCH:
  case MO_FAIL: return "values of data types, which are allocated";
  case MO_PACKED: return "a packed function";
  case MO_CONST:
  case MO_SCALAR:
  case MO_ALLOC:
  case MO_VIEW:
  case MO_MOVE:
  case MO_COPY:
  case MO_FREE:
  case MO_KERNEL:
  case MO_RETURN:
  case MO_CHECK:
  case MO_DONE:
  case MO_COUNT: break;
  }
  return NULL;
}

static void check_port(const Program *p, const ProgPort *port, bool input)
{
  if (port->kind != PORT_TENSOR || dtype_is_string(port->dtype))
    raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' is %s: inputs and outputs of a program ahead of time are tensors of numbers; compile for the runtime",
          port->name, port->type);
  for (int d = 0; d < port->ndim; d++)
    if (port->dim[d] < 0 && input)
      raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
            "input '%s' is %s, but a program ahead of time has all its sizes fixed; say them (--shape %s=…, or the "
            "shapes of the importer), or compile for the runtime",
            port->name, port->type, port->name);
}

static void check_entry(const Program *p, const ProgEntry *e)
{
  for (int i = 0; i < e->input.n; i++) check_port(p, &e->input.v[i], true);
  for (int i = 0; i < e->output.n; i++) check_port(p, &e->output.v[i], false);
  if (e->is_static) return;
  const ProgFunc *f = p->func.v[e->func];
  for (int i = 0; i < f->ins.n; i++) {
    const char *reason = ins_reason(&f->ins.v[i]);
    if (reason)
      raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
            "the model has %s%s%s%s, which a program ahead of time cannot serve; compile for the runtime", reason,
            f->ins.v[i].op == MO_PACKED ? " ('" : "", f->ins.v[i].op == MO_PACKED ? f->ins.v[i].text : "",
            f->ins.v[i].op == MO_PACKED ? "')" : "");
  }
  raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
        "a size in '%s' is known at run time only, and a program ahead of time allocates nothing; compile for the "
        "runtime",
        e->name);
}

void aot_check(const Program *p)
{
  if (p->device.n > 1)
    raise(p->ctx, ERR_UNSUPPORTED, NOWHERE, "a program ahead of time is for one target, not for %d", p->device.n);
  for (int i = 0; i < p->entry.n; i++) check_entry(p, &p->entry.v[i]);
}

const Target *aot_target(Ctx *ctx, const Target *t)
{
  if (!t) return target_parse(ctx, "c");
  if (!target_is_cpu(t))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "a program ahead of time is C for a CPU or a microcontroller, not for '%s'%s",
          t->text,
          strcmp(t->kind->name, "hexagon") ? ""
                                           : "; objects for Hexagon are made by 'llvm -mtriple=hexagon-unknown-elf'");
  if (t->codegen == CODEGEN_C) return t;
  return target_parse(ctx, arena_printf(scratch(ctx), "c%s", t->text + strcspn(t->text, " ")));
}

const char *aot_node_name(const Program *p, const ProgIns *ins)
{
  if (ins->node < 0) return "copy";
  const ProgNode *n = &p->node.v[ins->node];
  return n->source && *n->source ? n->source : n->name;
}

/* ---- kernels --------------------------------------------------------------------------------------- */

typedef struct StackWalk {
  int64_t most;
} StackWalk;

/* Arrays on the stack of which one may stand inside the other. */
static bool add_arrays(void *env, Stmt *s)
{
  StackWalk *w = env;
  int64_t bytes = 0;
  for (const Stmt *at = s; s->kind == S_ALLOC && at; at = at->parent)
    if (at->kind == S_ALLOC && at->u.alloc.place == PLACE_STACK && at->u.alloc.buffer->shape[0]->kind == E_INT)
      bytes += at->u.alloc.buffer->shape[0]->u.i * dtype_bytes(at->u.alloc.buffer->dtype);
  if (bytes > w->most) w->most = bytes;
  return true;
}

static void find_packed(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  if (e->kind == E_CALL && (e->u.intrin == IN_CALL_PACKED || e->u.intrin == IN_CALL_EXTERN)) *(const Expr **)env = e;
}

static void check_kernel(const Program *p, const Kernel *k)
{
  const Expr *call = NULL;
  stmt_visit_exprs(k->body, find_packed, &call);
  if (call)
    raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
          "kernel '%s' calls %s, a function of somebody else's, which a program ahead of time has not; compile for the "
          "runtime",
          k->name, call->nargs && call->arg[0]->kind == E_STR ? call->arg[0]->u.str : "a packed function");
  if ((k->workspace_bytes && k->workspace_bytes->kind != E_INT) || (k->slice_bytes && k->slice_bytes->kind != E_INT))
    BUG(p->ctx, "kernel '%s' of a static program has a workspace of open size", k->name);
}

static int64_t round_up(int64_t n, int64_t align) { return (n + align - 1) / align * align; }

/* The function of an external compiler, as a kernel without a body. */
static Kernel *external_kernel(Aot *a, const ProgExternal *e)
{
  if (e->code.form != EXTERNAL_C)
    raise(
        a->p->ctx, ERR_UNSUPPORTED, NOWHERE,
        "external function '%s' comes as %s, and a program ahead of time takes C source alone; compile for the runtime",
        e->symbol, e->code.form == EXTERNAL_OBJECT ? "an object" : "a module that the runtime loads");
  Kernel *k = arena_new_of(a->arena, Kernel);
  k->name = e->symbol;
  k->narg = e->narg;
  k->arg = arena_array(a->arena, KernelArg, e->narg + 1);
  for (int i = 0; i < e->narg; i++) {
    const CodeExternalArg *arg = &e->arg[i];
    const Expr **shape = arena_array(a->arena, const Expr *, arg->ndim + 1);
    for (int d = 0; d < arg->ndim; d++) shape[d] = expr_int(a->m, DT_I64, arg->shape[d]);
    k->arg[i] = (KernelArg){
      .name = arg->name,
      .buffer = buffer_new(a->m, arg->name, arg->dtype, arg->ndim, shape, NULL, NULL, "global", 64, 1, NULL),
      .written = arg->written};
  }
  return k;
}

static int64_t slice_of(const Kernel *k) { return k->slice_bytes ? k->slice_bytes->u.i : 0; }

int64_t aot_scratch(const Aot *a, int kernel)
{
  const Kernel *k = a->kernel[kernel];
  int align = target_align(a->p->target);
  int64_t shared = k->workspace_bytes ? k->workspace_bytes->u.i : 0;
  return slice_of(k) ? round_up(shared, align) + slice_of(k) : shared;
}

static void lower_kernels(Aot *a, const LowerConfig *config)
{
  const Program *p = a->p;
  LowerConfig alone = *config;
  alone.alone = true;
  alone.threads = p->target->arch == ARCH_WASM32 && target_has_threads(p->target);
  StackWalk walk = {0};
  a->kernel = arena_array(a->arena, Kernel *, p->kernel.n + 1);
  for (int i = 0; i < p->kernel.n; i++) {
    if (p->kernel.v[i].external) {
      a->kernel[i] = external_kernel(a, p->kernel.v[i].external);
      a->external = true;
      continue;
    }
    a->kernel[i] = build_kernel(a->m, p->kernel.v[i].impl.func, p->target, &alone);
    check_kernel(p, a->kernel[i]);
    if (slice_of(a->kernel[i]) > a->slice_bytes) a->slice_bytes = slice_of(a->kernel[i]);
    stmt_visit(a->kernel[i]->body, add_arrays, &walk);
  }
  a->stack_arrays = walk.most;
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

typedef struct AotPlanning {
  Aot *a;
  AotEntry *to;
  int64_t align;
  Vec(PlaceBlock) block; /* those of pieces have the piece's number, others count on */
  int *output_of;        /* of each block of pieces: the output that holds it; -1: none */
  int64_t *shift;        /* … and where its lowest byte lies there */
  int npiece;
} AotPlanning;

static int64_t port_bytes(Program *p, const ProgPort *port)
{
  size_t bytes = (size_t)dtype_bytes(port->dtype);
  for (int d = 0; d < port->ndim; d++) bytes = mem_size_mul(p->ctx, bytes, (size_t)port->dim[d], "a tensor");
  return (int64_t)bytes;
}

/* The instruction that gives a register its memory; -1: a parameter. */
static const ProgIns *maker(const ProgFunc *f, int reg)
{
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    bool makes =
        ins->op == MO_CONST || ins->op == MO_ALLOC || ins->op == MO_VIEW || ins->op == MO_MOVE || ins->op == MO_COPY;
    if (makes && ins->reg == reg)
      return ins->op == MO_VIEW || ins->op == MO_MOVE ? (ins->source < f->nparam ? NULL : maker(f, ins->source)) : ins;
  }
  return NULL;
}

static const Piece *piece_of(const AotEntry *to, int reg)
{
  const ProgIns *ins = maker(to->f, reg);
  for (int i = 0; ins && i < to->e->piece.n; i++)
    if (to->e->piece.v[i].reg == ins->reg) return &to->e->piece.v[i];
  return NULL;
}

static const ProgIns *return_of(const ProgFunc *f) { return &f->ins.v[f->ins.n - 1]; }

/* Blocks that an output covers from end to end go into the caller's array. */
static void give_blocks_to_outputs(AotPlanning *q)
{
  const ProgIns *ret = return_of(q->to->f);
  const Pieces *pieces = &q->to->e->piece;
  for (int i = 0; i < ret->narg && !q->a->options.io_inside; i++) {
    const Piece *out = piece_of(q->to, ret->arg[i]);
    if (!out || out->bytes == 0 || q->output_of[out->block] >= 0) continue;
    bool covers = true;
    for (int k = 0; k < pieces->n; k++) {
      const Piece *x = &pieces->v[k];
      covers = covers && (x->block != out->block ||
                          (x->offset >= out->offset && x->offset + x->bytes <= out->offset + out->bytes));
    }
    if (!covers) continue;
    q->output_of[out->block] = i;
    q->shift[out->block] = -out->offset;
  }
}

/* A block of its own, needed from one instruction to another; its number. */
static int add_block(AotPlanning *q, int64_t bytes, int begin, int end)
{
  Segment *s = arena_new_of(q->a->arena, Segment);
  *s = (Segment){begin, end, 0, round_up(bytes, q->align)};
  int number = q->npiece + q->block.n;
  vec_push(
      q->a->arena, &q->block,
      ((PlaceBlock){.number = number, .nsegment = 1, .segment = s, .begin = begin, .end = end, .bytes = s->bytes}));
  return number;
}

static const PlaceBlock *block_by_number(const AotPlanning *q, int number)
{
  for (int i = 0; i < q->block.n; i++)
    if (q->block.v[i].number == number) return &q->block.v[i];
  return NULL;
}

static void add_piece_blocks(AotPlanning *q)
{
  const Pieces *pieces = &q->to->e->piece;
  for (int b = 0; b < q->npiece; b++) {
    bool any = false;
    for (int i = 0; i < pieces->n; i++) any = any || (pieces->v[i].block == b && pieces->v[i].bytes > 0);
    if (any && q->output_of[b] < 0) vec_push(q->a->arena, &q->block, program_block(q->a->arena, pieces, b, q->align));
  }
}

static int last_read_of_input(const ProgFunc *f, int input, Arena *a)
{
  int last = 0;
  IntList reads = {0};
  bool *same = arena_array(a, bool, f->nreg + 1); /* has the input's memory */
  same[input] = true;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if ((ins->op == MO_VIEW || ins->op == MO_MOVE) && same[ins->source]) same[ins->reg] = true;
    reads.n = 0;
    program_ins_reads(a, ins, &reads);
    for (int k = 0; k < reads.n; k++)
      if (same[reads.v[k]]) last = i;
  }
  return last;
}

/* ---- places -------------------------------------------------------------------------------------------- */

static AotPlace pool_place(const PlaceBlock *b) { return (AotPlace){AT_POOL, b->pool, b->place}; }

static void set_registers(AotPlanning *q)
{
  AotEntry *to = q->to;
  const ProgFunc *f = to->f;
  for (int i = 0; i < f->nparam; i++) to->at[i] = to->input[i];
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if (ins->op == MO_CONST) to->at[ins->reg] = (AotPlace){AT_CONST, ins->index, 0};
    if (ins->op == MO_VIEW || ins->op == MO_MOVE) to->at[ins->reg] = to->at[ins->source];
    if (ins->op != MO_ALLOC && ins->op != MO_COPY) continue;
    const Piece *x = piece_of(to, ins->reg);
    if (q->output_of[x->block] >= 0) {
      to->at[ins->reg] = (AotPlace){AT_OUTPUT, q->output_of[x->block], x->offset + q->shift[x->block]};
      continue;
    }
    const PlaceBlock *b = block_by_number(q, x->block);
    to->at[ins->reg] = b ? pool_place(b) : (AotPlace){AT_POOL, 0, 0}; /* of no bytes */
    if (b) to->at[ins->reg].offset += x->offset;
  }
}

/* The kernel that writes a register, for its name; NULL: none does. */
static const char *writer_of(const Aot *a, const AotEntry *to, const Piece *x)
{
  const ProgFunc *f = to->f;
  for (int i = x->ins; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if (ins->op == MO_COPY && ins->reg == x->reg) return "copy";
    for (int k = 0; ins->op == MO_KERNEL && k < ins->narg; k++)
      if (ins->arg[k] == x->reg && a->kernel[ins->index]->arg[k].written) return aot_node_name(a->p, ins);
  }
  return NULL;
}

/* A tensor that no kernel writes is put together of others, or part of one. */
static const char *name_of(const Aot *a, const AotEntry *to, const Piece *x)
{
  const char *name = writer_of(a, to, x);
  for (int i = 0; !name && i < to->e->piece.n; i++) {
    const Piece *other = &to->e->piece.v[i];
    const char *with = other->block == x->block ? writer_of(a, to, other) : NULL;
    if (with) name = arena_printf(a->arena, "joined with %s", with);
  }
  return name ? name : "tensor";
}

static void list_tensors(AotPlanning *q, const int *scratch, const int *input)
{
  AotEntry *to = q->to;
  Arena *arena = q->a->arena;
  for (int i = 0; input && i < to->e->input.n; i++)
    vec_push(arena, &to->tensor,
             ((AotTensor){.name = to->e->input.v[i].name,
                          .place = to->input[i],
                          .bytes = port_bytes(q->a->p, &to->e->input.v[i]),
                          .end = block_by_number(q, input[i])->end}));
  for (int i = 0; i < to->e->piece.n; i++) {
    const Piece *x = &to->e->piece.v[i];
    if (x->bytes)
      vec_push(arena, &to->tensor,
               ((AotTensor){name_of(q->a, to, x), to->at[x->reg], x->bytes, x->begin, x->end, false}));
  }
  for (int i = 0; i < to->f->ins.n; i++)
    if (scratch[i] >= 0)
      vec_push(arena, &to->tensor,
               ((AotTensor){aot_node_name(q->a->p, &to->f->ins.v[i]), to->scratch[i],
                            block_by_number(q, scratch[i])->bytes, i, i, true}));
}

/* Outputs: where they are already, or in their array, or (inside) in a pool until the end. */
static void set_outputs(AotPlanning *q, const int *output)
{
  AotEntry *to = q->to;
  for (int i = 0; i < to->e->output.n; i++) {
    to->output[i] = (AotPlace){AT_OUTPUT, i, 0};
    if (!q->a->options.io_inside) continue;
    const AotPlace *at = &to->at[return_of(to->f)->arg[i]];
    to->output[i] = output[i] >= 0 ? pool_place(block_by_number(q, output[i])) : *at;
  }
}

/* ---- does it fit? ---------------------------------------------------------------------------------------- */

static void add_alive(const Aot *a, Text *t, const AotEntry *to)
{
  int at = to->plan.bound_at;
  while (at + 1 < to->f->ins.n && to->f->ins.v[at].op != MO_KERNEL) at++; /* what the memory is for */
  text_printf(t, "; alive at the peak, in '%s'", aot_node_name(a->p, &to->f->ins.v[at]));
  at = to->plan.bound_at;
  int n = 0;
  for (int i = 0; i < to->tensor.n; i++) {
    const AotTensor *x = &to->tensor.v[i];
    if (x->place.kind == AT_OUTPUT || x->begin > at || x->end < at) continue;
    text_printf(t, "%s %s%s (%" PRId64 " bytes)", n++ ? "," : ":", x->scratch ? "scratch of " : "", x->name, x->bytes);
  }
}

static void check_fit(const Aot *a, const AotEntry *to)
{
  Text t = text_new(scratch(a->p->ctx));
  if (to->plan.overflow) {
    text_printf(&t, "the tensors do not fit into the pools");
    for (int i = 0; i < a->npools; i++)
      text_printf(&t, "%s %s of %" PRId64 " bytes", i ? "," : "", a->pool[i].name, a->pool[i].size);
    text_printf(&t, ": %" PRId64 " bytes find no place, and %" PRId64 " are needed at one time", to->plan.overflow,
                to->plan.bound);
  } else {
    int64_t ram = to->plan.bytes + to->io_bytes;
    if (!a->options.ram_limit || ram <= a->options.ram_limit) return;
    text_printf(&t,
                "the program needs %" PRId64 " bytes of RAM (workspace %" PRId64 ", inputs and outputs %" PRId64
                "), %" PRId64 " more than the limit of %" PRId64,
                ram, to->plan.bytes, to->io_bytes, ram - a->options.ram_limit, a->options.ram_limit);
  }
  add_alive(a, &t, to);
  raise(a->p->ctx, ERR_UNSUPPORTED, NOWHERE, "%s", text_str(&t));
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static int *add_scratch(AotPlanning *q)
{
  const ProgFunc *f = q->to->f;
  int *number = arena_array(q->a->arena, int, f->ins.n + 1);
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    int64_t bytes = ins->op == MO_KERNEL ? aot_scratch(q->a, ins->index) : 0;
    number[i] = bytes > 0 ? add_block(q, bytes, i, i) : -1;
  }
  return number;
}

/* Inputs and outputs as blocks of the workspace; an output that is a constant, an input or another output gets bytes to
 * be copied to. */
static void add_ports(AotPlanning *q, int *input, int *output)
{
  AotEntry *to = q->to;
  const ProgIns *ret = return_of(to->f);
  int last = to->f->ins.n - 1;
  for (int i = 0; i < to->e->input.n; i++)
    input[i] =
        add_block(q, port_bytes(q->a->p, &to->e->input.v[i]), 0, last_read_of_input(to->f, i, scratch(q->a->p->ctx)));
  for (int i = 0; i < ret->narg; i++) {
    bool again = !piece_of(to, ret->arg[i]);
    for (int k = 0; k < i; k++) again = again || ret->arg[k] == ret->arg[i];
    output[i] = again ? add_block(q, port_bytes(q->a->p, &to->e->output.v[i]), last, last) : -1;
  }
}

static void add_moved(AotPlanning *q, int number, AotMoved moved)
{
  for (int i = 0; i < q->block.n; i++)
    if (q->block.v[i].number == number) {
      q->block.v[i].read += moved.read;
      q->block.v[i].written += moved.written;
    }
}

/* What the kernels read and write of each block. */
static void add_traffic(AotPlanning *q, const int *scratch_block, const int *input)
{
  AotEntry *to = q->to;
  const ProgFunc *f = to->f;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if (ins->op != MO_KERNEL) continue;
    AotMoved *moved = arena_array(q->a->arena, AotMoved, ins->narg + 1);
    aot_moved(q->a, ins->index, ins->narg, moved);
    for (int k = 0; k < ins->narg; k++) {
      const Piece *x = piece_of(to, ins->arg[k]);
      if (x) add_moved(q, x->block, moved[k]);
      else if (q->a->options.io_inside && ins->arg[k] < f->nparam) add_moved(q, input[ins->arg[k]], moved[k]);
    }
    if (scratch_block[i] >= 0) add_moved(q, scratch_block[i], moved[ins->narg]);
  }
}

static void plan_entry(Aot *a, const ProgEntry *e, AotEntry *to)
{
  Program *p = a->p;
  const ProgFunc *f = p->func.v[e->func];
  Arena *arena = a->arena;
  *to = (AotEntry){.e = e, .f = f, .plan_pools = a->npools};
  to->at = arena_array(arena, AotPlace, f->nreg + 1);
  to->scratch = arena_array(arena, AotPlace, f->ins.n + 1);
  to->input = arena_array(arena, AotPlace, e->input.n + 1);
  to->output = arena_array(arena, AotPlace, e->output.n + 1);
  AotPlanning q = {.a = a, .to = to, .align = target_align(p->target), .npiece = e->piece.n + 1};
  q.output_of = arena_array(arena, int, q.npiece + 1);
  q.shift = arena_array(arena, int64_t, q.npiece + 1);
  for (int b = 0; b <= q.npiece; b++) q.output_of[b] = -1;
  give_blocks_to_outputs(&q);
  add_piece_blocks(&q);
  int *scratch_block = add_scratch(&q);
  int *input = arena_array(arena, int, e->input.n + 1);
  int *output = arena_array(arena, int, e->output.n + 1);
  if (a->options.io_inside) add_ports(&q, input, output);
  PlacePool *pool = arena_array(arena, PlacePool, a->npools + 1);
  for (int i = 0; i < a->npools; i++) {
    const AotPool *of = &a->pool[i];
    pool[i] = (PlacePool){of->size ? of->size : INT64_MAX, of->read > 0 ? 1 / of->read : 0,
                          of->write > 0 ? 1 / of->write : 0};
  }
  add_traffic(&q, scratch_block, input);
  static const PlacePool open = {.size = INT64_MAX};
  place_blocks(p->ctx, q.block.n, q.block.v, f->ins.n + 1, 1, &open, PLACE_BY_SIZE, &to->plan);
  to->by_size = to->plan.bytes;
  place_blocks(p->ctx, q.block.n, q.block.v, f->ins.n + 1, a->npools, pool, a->options.effort, &to->plan);
  to->moved = arena_array(arena, AotMoved, a->npools + 1);
  for (int i = 0; i < q.block.n; i++) {
    const PlaceBlock *b = &q.block.v[i];
    if (b->pool < 0) continue;
    to->moved[b->pool].read += b->read;
    to->moved[b->pool].written += b->written;
  }
  to->plan.pool = arena_copy(arena, to->plan.pool, (size_t)a->npools * sizeof *to->plan.pool);
  for (int i = 0; i < f->ins.n; i++)
    if (scratch_block[i] >= 0) to->scratch[i] = pool_place(block_by_number(&q, scratch_block[i]));
  for (int i = 0; i < e->input.n; i++)
    to->input[i] = a->options.io_inside ? pool_place(block_by_number(&q, input[i])) : (AotPlace){AT_INPUT, i, 0};
  set_registers(&q);
  set_outputs(&q, output);
  list_tensors(&q, scratch_block, a->options.io_inside ? input : NULL);
  for (int i = 0; !a->options.io_inside && i < e->input.n; i++) to->io_bytes += port_bytes(p, &e->input.v[i]);
  for (int i = 0; !a->options.io_inside && i < e->output.n; i++) to->io_bytes += port_bytes(p, &e->output.v[i]);
  for (int i = 0; i < f->ins.n; i++)
    if (f->ins.v[i].op == MO_CONST) a->uses_const[f->ins.v[i].index] = true;
}

int64_t aot_ram(const Aot *a, int entry) { return a->entry[entry].plan.bytes + a->entry[entry].io_bytes; }

static void take_pools(Aot *a)
{
  const AotOptions *o = &a->options;
  a->npools = o->npools ? o->npools : 1;
  AotPool *pool = arena_array(a->arena, AotPool, a->npools);
  pool[0] = (AotPool){.name = "workspace"};
  for (int i = 0; i < o->npools; i++) {
    pool[i] = o->pools[i];
    pool[i].name = arena_strdup(a->arena, o->pools[i].name);
  }
  a->pool = a->options.pools = pool;
  for (int i = 0; i < a->npools; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(a->pool[i].name, a->pool[k].name))
        raise(a->p->ctx, ERR_ARGUMENT, NOWHERE, "two pools are called '%s'", a->pool[i].name);
  for (int i = 0; i < a->npools; i++)
    if ((a->pool[i].read > 0) != (a->pool[0].read > 0))
      raise(a->p->ctx, ERR_ARGUMENT, NOWHERE,
            "pool '%s' has a speed and pool '%s' has none; say the speeds of all pools, or of none",
            a->pool[a->pool[0].read > 0 ? 0 : i].name, a->pool[a->pool[0].read > 0 ? i : 0].name);
}

Aot *aot_plan(Program *p, const AotOptions *o, Module *m, const LowerConfig *config)
{
  Scope scope = scope_begin(p->ctx);
  Aot *a = arena_new_of(p->arena, Aot);
  *a = (Aot){.p = p, .arena = p->arena, .options = *o, .m = m};
  take_pools(a);
  lower_kernels(a, config);
  a->uses_const = arena_array(p->arena, bool, p->constant.n + 1);
  a->entry = arena_array(p->arena, AotEntry, p->entry.n + 1);
  a->pool_bytes = arena_array(p->arena, int64_t, a->npools + 1);
  for (int i = 0; i < p->entry.n; i++) {
    AotEntry *to = &a->entry[i];
    plan_entry(a, &p->entry.v[i], to);
    check_fit(a, to);
    for (int k = 0; k < a->npools; k++)
      if (to->plan.pool[k] > a->pool_bytes[k]) a->pool_bytes[k] = to->plan.pool[k];
  }
  for (int i = 0; i < p->constant.n; i++)
    if (a->uses_const[i]) a->weights_bytes += (int64_t)p->constant.v[i].data->bytes;
  a->code = codegen_c_alone(p->ctx, p->arena, p->target, p->kernel.n, a->kernel);
  scope_end(p->ctx, scope);
  return a;
}
