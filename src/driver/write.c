/* write.c: a program as bytes, as ../../runtime/model_format.h has them. */
#include "driver/program.h"

typedef struct Out {
  Text text; /* bytes, zeros included */
} Out;

static void put(Out *o, uint64_t v, int bytes)
{
  char b[8];
  for (int i = 0; i < bytes; i++) b[i] = (char)(v >> (8 * i));
  text_addn(&o->text, b, (size_t)bytes);
}
static void u8(Out *o, int v) { put(o, (uint64_t)v, 1); }
static void u32(Out *o, int v) { put(o, (uint32_t)v, 4); }
static void u64(Out *o, uint64_t v) { put(o, v, 8); }
static void f64(Out *o, double v)
{
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  put(o, bits, 8);
}
static void str(Out *o, const char *s)
{
  u32(o, (int)strlen(s));
  text_addn(&o->text, s, strlen(s));
}
static void dtype(Out *o, DType t)
{
  LatheRtDType rt = code_rt_dtype(t);
  u8(o, rt.code);
  u8(o, rt.bits);
  put(o, rt.lanes, 2);
}
static void dims(Out *o, int n, const int64_t *dim)
{
  u32(o, n);
  for (int i = 0; i < n; i++) u64(o, (uint64_t)dim[i]);
}
static void list(Out *o, int n, const int *v)
{
  u32(o, n);
  for (int i = 0; i < n; i++) u32(o, v[i]);
}

static void expr(Out *o, const ProgExpr *e)
{
  u32(o, e->n);
  for (int i = 0; i < e->n; i++) {
    const ProgStep *s = &e->v[i];
    u8(o, s->op);
    if (s->op == XO_INT) u64(o, (uint64_t)s->i);
    if (s->op == XO_FLOAT) f64(o, s->f);
    if (s->op == XO_SCALAR || s->op == XO_DIM || s->op == XO_ELEM || s->op == XO_ELEM_FLOAT) u32(o, s->a);
    if (s->op == XO_DIM || s->op == XO_ELEM || s->op == XO_ELEM_FLOAT) u32(o, s->b);
  }
}

static void shape(Out *o, const ProgIns *ins)
{
  u32(o, ins->nexpr);
  for (int d = 0; d < ins->nexpr; d++) expr(o, &ins->expr[d]);
}

static void kernel_call(Out *o, const ProgIns *ins)
{
  u32(o, ins->index);
  u32(o, ins->node);
  u32(o, ins->narg);
  for (int i = 0; i < ins->narg; i++) {
    u8(o, ins->is_scalar[i] ? KARG_SCALAR : KARG_REGISTER);
    u32(o, ins->arg[i]);
  }
}

static void host_ins(Out *o, const ProgIns *ins)
{
  u32(o, ins->index);
  u32(o, ins->node);
  dims(o, ins->nattr, ins->attr);
  list(o, ins->narg, ins->arg);
  list(o, ins->nret, ins->ret);
}

static void packed_call(Out *o, const ProgIns *ins)
{
  u32(o, ins->index);
  u32(o, ins->node);
  u32(o, ins->narg);
  for (int i = 0; i < ins->narg; i++) {
    bool is_text = ins->string && ins->string[i];
    u8(o, is_text ? PARG_TEXT : ins->is_scalar[i] ? PARG_SCALAR : PARG_REGISTER);
    if (is_text) str(o, ins->string[i]);
    else u32(o, ins->arg[i]);
  }
  list(o, ins->nret, ins->ret);
}

static void instruction(Out *o, const ProgIns *ins)
{
  u8(o, ins->op);
  switch (ins->op) {
  case MO_CONST:
    u32(o, ins->reg);
    u32(o, ins->index);
    return;
  case MO_SCALAR:
    u32(o, ins->reg);
    expr(o, ins->expr);
    return;
  case MO_ALLOC:
    u32(o, ins->reg);
    u32(o, ins->device);
    dtype(o, ins->dtype);
    shape(o, ins);
    u64(o, ins->place);
    return;
  case MO_VIEW:
    u32(o, ins->reg);
    u32(o, ins->source);
    dtype(o, ins->dtype);
    shape(o, ins);
    return;
  case MO_MOVE:
    u32(o, ins->reg);
    u32(o, ins->source);
    return;
  case MO_COPY:
    u32(o, ins->reg);
    u32(o, ins->source);
    u32(o, ins->device);
    u64(o, ins->place);
    return;
  case MO_FREE: u32(o, ins->reg); return;
  case MO_KERNEL: kernel_call(o, ins); return;
  case MO_JUMP: u32(o, ins->index); return;
  case MO_BRANCH:
    u32(o, ins->reg);
    u32(o, ins->index);
    return;
  case MO_CALL:
    u32(o, ins->index);
    list(o, ins->narg, ins->arg);
    list(o, ins->nret, ins->ret);
    return;
  case MO_TAIL:
    u32(o, ins->index);
    list(o, ins->narg, ins->arg);
    return;
  case MO_RETURN: list(o, ins->narg, ins->arg); return;
  case MO_HOST: host_ins(o, ins); return;
  case MO_CHECK:
    expr(o, ins->expr);
    str(o, ins->text);
    return;
  case MO_CLOSURE:
    u32(o, ins->reg);
    u32(o, ins->index);
    list(o, ins->narg, ins->arg);
    return;
  case MO_APPLY:
    u32(o, ins->reg);
    list(o, ins->narg, ins->arg);
    list(o, ins->nret, ins->ret);
    return;
  case MO_APPLY_TAIL:
    u32(o, ins->reg);
    list(o, ins->narg, ins->arg);
    return;
  case MO_DATA:
    u32(o, ins->reg);
    u32(o, ins->tag);
    list(o, ins->narg, ins->arg);
    return;
  case MO_FIELD:
    u32(o, ins->reg);
    u32(o, ins->source);
    u32(o, ins->index);
    return;
  case MO_MATCH:
    u32(o, ins->reg);
    u32(o, ins->tag);
    u32(o, ins->index);
    return;
  case MO_FAIL: str(o, ins->text); return;
  case MO_PACKED: packed_call(o, ins); return;
  case MO_DONE: u32(o, ins->index); return;
  case MO_COUNT: return;
  }
}

static void port(Out *o, const ProgPort *p)
{
  str(o, p->name);
  str(o, p->type);
  u8(o, p->kind);
  u32(o, p->device);
  dtype(o, p->dtype);
  dims(o, p->ndim, p->dim);
}

static void term(Out *o, const ProgTerm *t)
{
  u8(o, t->done ? WORK_DONE : WORK_FORMULA);
  f64(o, t->coefficient);
  u32(o, t->factor.n);
  for (int i = 0; i < t->factor.n; i++) {
    u32(o, t->factor.v[i].tensor);
    u32(o, t->factor.v[i].dim);
    u8(o, t->factor.v[i].power & 255);
  }
}

static void node(Out *o, Program *p, const ProgNode *n)
{
  const ImplResult none = {.impl = "host"};
  const ProgKernel *kernel = n->kernel >= 0 ? &p->kernel.v[n->kernel] : NULL;
  const ImplResult *impl = kernel ? &kernel->impl : &none;
  ProgTerms work = {0};
  bool known = !kernel || kernel->func->kind != N_FUNC || program_work(p, kernel->func, &work);
  str(o, n->name);
  str(o, n->source);
  str(o, impl->impl ? impl->impl : "");
  f64(o, known ? impl->flops : 0);
  f64(o, known ? impl->flops_done : 0);
  f64(o, n->bytes);
  u32(o, known ? work.n : 0);
  for (int i = 0; known && i < work.n; i++) term(o, &work.v[i]);
}

static void function(Out *o, const ProgFunc *f)
{
  str(o, f->name);
  u32(o, f->nreg);
  u32(o, f->nparam);
  u32(o, f->nret);
  u32(o, f->scalar.n);
  for (int i = 0; i < f->scalar.n; i++) u8(o, f->scalar.v[i]);
  u32(o, f->ins.n);
  for (int i = 0; i < f->ins.n; i++) instruction(o, &f->ins.v[i]);
}

static void device(Out *o, const ProgDevice *d)
{
  u32(o, d->device.type);
  u32(o, d->device.id);
  u32(o, target_align(d->target));
  str(o, d->target->text);
}

/* One variant each: a library, whose own table says what it needs of the CPU, or bytes for the loader of a kind. */
static void module(Out *o, int i, const ProgModule *m)
{
  str(o, m->kind ? m->kind : "library");
  str(o, m->name ? m->name : "");
  u32(o, 1);
  str(o, "");
  str(o, "");
  u32(o, m->kind ? 0 : i);
  u64(o, m->offset);
  u64(o, m->n);
}

static void kernel(Out *o, const ProgKernel *k)
{
  str(o, k->name);
  u32(o, k->module);
  u32(o, k->device);
  const ImplResult *impl = &k->impl;
  str(o, impl->plan ? arena_printf(o->text.arena, "%s\t%.6g\t%d", impl->plan, impl->seconds, impl->nplans) : "");
  str(o, "");
}

static void constant(Out *o, const ProgConst *c)
{
  dtype(o, c->data->dtype);
  dims(o, c->data->ndim, c->data->shape);
  u32(o, c->device);
  u8(o, c->prepared ? CONST_PREPARED : CONST_STORED);
  u64(o, c->offset);
}

static void entry(Out *o, const Program *p, const ProgEntry *e)
{
  str(o, e->name);
  u32(o, e->func);
  u32(o, (e->is_static ? ENTRY_STATIC : 0) | (uint32_t)e->nstate << ENTRY_STATES);
  u32(o, e->input.n);
  for (int i = 0; i < e->input.n; i++) port(o, &e->input.v[i]);
  u32(o, e->output.n);
  for (int i = 0; i < e->output.n; i++) port(o, &e->output.v[i]);
  u32(o, p->device.n);
  for (int i = 0; i < p->device.n; i++) u64(o, e->storage_bytes[i]);
  u64(o, e->storage_bound);
}

const void *program_bytes(Program *p, Arena *arena, size_t *n)
{
  Out out = {text_new(arena)};
  Out *o = &out;
  text_addn(&o->text, MODEL_MAGIC, 8);
  u32(o, MODEL_VERSION);
  u32(o, 0);
  str(o, p->target->text);
  u64(o, p->weights_bytes);
  u64(o, p->prepared_bytes);
  u64(o, p->digest[0]);
  u64(o, p->digest[1]);
  u32(o, p->device.n);
  for (int i = 0; i < p->device.n; i++) device(o, &p->device.v[i]);
  u32(o, p->module.n);
  for (int i = 0; i < p->module.n; i++) module(o, i, &p->module.v[i]);
  u32(o, p->image.n);
  for (int i = 0; i < p->image.n; i++) {
    u32(o, p->image.v[i].device);
    str(o, "");
    u64(o, p->image.v[i].offset);
    u64(o, p->image.v[i].n);
  }
  u32(o, p->kernel.n);
  for (int i = 0; i < p->kernel.n; i++) kernel(o, &p->kernel.v[i]);
  u32(o, p->constant.n);
  for (int i = 0; i < p->constant.n; i++) constant(o, &p->constant.v[i]);
  u32(o, p->symbol.n);
  for (int i = 0; i < p->symbol.n; i++) str(o, p->symbol.v[i]->name);
  u32(o, p->node.n);
  for (int i = 0; i < p->node.n; i++) node(o, p, &p->node.v[i]);
  u32(o, p->string.n);
  for (int i = 0; i < p->string.n; i++) {
    u32(o, (int)p->string.v[i].n);
    text_addn(&o->text, p->string.v[i].s, p->string.v[i].n + 1);
  }
  u32(o, p->packed.n);
  for (int i = 0; i < p->packed.n; i++) str(o, p->packed.v[i]);
  u32(o, p->func.n);
  for (int i = 0; i < p->func.n; i++) function(o, p->func.v[i]);
  u32(o, p->entry.n);
  for (int i = 0; i < p->entry.n; i++) entry(o, p, &p->entry.v[i]);
  u32(o, p->prepare);
  *n = o->text.n;
  return o->text.s;
}
