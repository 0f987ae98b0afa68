/* intrin.c: tensor intrinsics from a compute and statements.
 *
 * A description is a function over the intrinsic's buffers whose root block says what
 * it reads and writes and holds the loops and the block of the compute; an
 * implementation has the same root block around a statement.  Where the intrinsic
 * has a reset and an accumulating form, the description of the reset is the init of
 * the reduction and that of the other the reduction without its init. */
#include "te/create.h"

static void check_op(Module *dst, const char *name, const TeOp *op, Stmt *init, Stmt *update)
{
  Ctx *ctx = dst->ctx;
  if (op->kind != TE_COMPUTE)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "tensor intrinsic '%s': '%s' is not a compute", name, op->name);
  if (op->nreduce && !te_plain_reduce(op))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "tensor intrinsic '%s': the body of '%s' must be the reduction itself", name,
          op->name);
  if (!init != !update)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "tensor intrinsic '%s': reset and update come together", name);
  if (update && !op->nreduce)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "tensor intrinsic '%s': '%s' has no reduction to reset and update", name,
          op->name);
  const Tensor **in;
  int n = te_inputs(scratch(ctx), op, &in);
  for (int i = 0; i < n; i++)
    if (in[i]->op->kind != TE_PLACEHOLDER)
      raise(ctx, ERR_ARGUMENT, NOWHERE, "tensor intrinsic '%s': '%s' reads '%s', which is not a placeholder", name,
            op->name, in[i]->buffer->name);
}

/* The function of the compute over the buffers given; its root says what is touched. */
static PrimFunc *describe(Module *dst, const char *name, const TeOp *op, const Buffer *const *in_buffers,
                          const Buffer *const *out_buffers)
{
  Arena *arena = scratch(dst->ctx);
  const Tensor **in;
  int n = te_inputs(arena, op, &in);
  Vec(TeArg) args = {0};
  for (int i = 0; i < n; i++) vec_push(arena, &args, (TeArg){.tensor = in[i], .buffer = in_buffers[i]});
  for (int i = 0; i < op->nout; i++) vec_push(arena, &args, (TeArg){.tensor = &op->out[i], .buffer = out_buffers[i]});
  return te_create_prim_func(dst, name, args.n, args.v, NULL);
}

/* Fills reads and writes of the root: the inputs (and, when accumulating, the
 * outputs), the outputs. */
static void set_regions(Creator *c, Block *root, const PrimFunc *f, int nin, bool reads_inputs, bool reads_outputs)
{
  int nout = f->nparam - nin;
  root->reads = arena_array(c->m->arena, Region, f->nparam);
  root->writes = arena_array(c->m->arena, Region, nout);
  for (int i = 0; reads_outputs && i < nout; i++)
    root->reads[root->nreads++] = te_create_whole(c, f->param[nin + i].buffer);
  for (int i = 0; reads_inputs && i < nin; i++) root->reads[root->nreads++] = te_create_whole(c, f->param[i].buffer);
  for (int i = 0; i < nout; i++) root->writes[root->nwrites++] = te_create_whole(c, f->param[nin + i].buffer);
}

/* The block of the compute below the root of its description. */
static Stmt *compute_block(PrimFunc *f)
{
  Stmt *s = f->body->u.block->body;
  while (s->kind == S_FOR) s = s->u.loop.body;
  return s;
}

/* Takes the loops off a description's block that no variable of it needs any more. */
static void drop_reduce(PrimFunc *f, Stmt *block)
{
  Block *b = block->u.block;
  int n = 0;
  for (int i = 0; i < b->niter; i++) {
    if (b->iter[i].kind != ITER_REDUCE) {
      b->iter[n++] = b->iter[i];
      continue;
    }
    for (Stmt *s = block->parent; s && s->kind == S_FOR; s = s->parent)
      if (b->iter[i].value == s->u.loop.var->expr) {
        stmt_replace(f, s, s->u.loop.body);
        break;
      }
  }
  b->niter = n;
}

/* One function of the intrinsic: the loops of the compute (body NULL) or a statement. */
typedef struct Part {
  const char *suffix;
  bool reads_inputs, reads_outputs;
} Part;
static const Part WHOLE = {"", true, false}, RESET = {"_init", false, false}, UPDATE = {"_update", true, true};

typedef struct Maker {
  Creator c;
  const char *name;
  const TeOp *op;
  const Buffer *const *in, *const *out;
  int nin;
} Maker;

static const PrimFunc *make_desc(Maker *k, const Part *part)
{
  Module *dst = k->c.m;
  PrimFunc *f = describe(dst, arena_printf(dst->arena, "%s%s_desc", k->name, part->suffix), k->op, k->in, k->out);
  Stmt *block = compute_block(f);
  Block *b = block->u.block;
  if (part == &RESET) {
    b->body = b->init;
    b->init = NULL;
    drop_reduce(f, block);
    block_infer_access(dst, b);
  } else if (part == &UPDATE) {
    b->init = NULL;
    block_infer_access(dst, b);
  }
  set_regions(&k->c, f->body->u.block, f, k->nin, part->reads_inputs, part->reads_outputs);
  return f;
}

static const PrimFunc *make_impl(Maker *k, const Part *part, Stmt *body)
{
  Module *dst = k->c.m;
  TeOp as_extern = {.kind = TE_EXTERN,
                    .m = k->op->m,
                    .ninputs = k->nin,
                    .nout = k->op->nout,
                    .stmt = body,
                    .in_buffers = (const Buffer **)(uintptr_t)k->in,
                    .out_buffers = (const Buffer **)(uintptr_t)k->out};
  as_extern.name = arena_printf(scratch(dst->ctx), "%s%s_impl", k->name, part->suffix);
  PrimFunc *f = func_import(dst, te_create_extern_func(scratch(dst->ctx), &as_extern));
  f->nparam = k->nin + k->op->nout; /* the buffers alone: they tell their strides and offsets */
  Block *root = arena_new_of(dst->arena, Block);
  root->name = "root";
  root->body = f->body;
  set_regions(&k->c, root, f, k->nin, part->reads_inputs, part->reads_outputs);
  f->body = stmt_block(dst, root);
  return f;
}

TensorIntrin *te_tensor_intrin(Module *dst, const char *name, const TeOp *op, const Buffer *const *in_buffers,
                               const Buffer *const *out_buffers, Stmt *body, Stmt *init, Stmt *update)
{
  Scope scope = scope_begin(dst->ctx);
  check_op(dst, name, op, init, update);
  const Tensor **in;
  Maker k = {.c = {.ctx = dst->ctx, .m = dst}, .name = name, .op = op, .in = in_buffers, .out = out_buffers};
  k.nin = te_inputs(scratch(dst->ctx), op, &in);
  TensorIntrin *t = arena_new_of(dst->arena, TensorIntrin);
  t->name = arena_strdup(dst->arena, name);
  t->desc = make_desc(&k, &WHOLE);
  t->impl = make_impl(&k, &WHOLE, body);
  if (update) {
    t->init_desc = make_desc(&k, &RESET);
    t->init = make_impl(&k, &RESET, init);
    t->update_desc = make_desc(&k, &UPDATE);
    t->update = make_impl(&k, &UPDATE, update);
  }
  scope_end(dst->ctx, scope);
  return t;
}
