/* prepare.c: the function that brings weights into form when a model is loaded.
 *
 * In: a function that gives tensors.  Out: one that gives nothing: each tensor lies at its place in the block of
 * prepared weights, where its constant is; and behind the last use of a stored weight stands DONE, so that its
 * pages can go. */
#include "driver/program.h"

static ProgIns *maker_of(ProgFunc *f, int reg)
{
  for (int i = 0; i < f->ins.n; i++) {
    ProgIns *ins = &f->ins.v[i];
    bool makes =
        ins->op == MO_ALLOC || ins->op == MO_COPY || ins->op == MO_CONST || ins->op == MO_VIEW || ins->op == MO_MOVE;
    if (makes && ins->reg == reg) return ins;
  }
  return NULL;
}

void program_place_prepared(Program *p)
{
  ProgFunc *f = p->func.v[p->prepare];
  ProgIns *ret = &f->ins.v[f->ins.n - 1];
  for (int i = 0; i < ret->narg; i++) {
    ProgIns *made = maker_of(f, ret->arg[i]);
    while (made && (made->op == MO_VIEW || made->op == MO_MOVE)) made = maker_of(f, made->source);
    if (!made || made->op != MO_ALLOC) BUG(p->ctx, "result %d of '%s' is no tensor of its own", i, f->name);
    if (p->prepared[i] < 0) continue;
    ProgConst *c = &p->constant.v[p->prepared[i]];
    if (made->place == PLACE_DYNAMIC) {
      made->place = p->prepared_bytes;
      p->prepared_bytes = (p->prepared_bytes + c->data->bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
    }
    c->offset = made->place;
  }
  ret->narg = f->nret = 0;
}

/* Is the constant read elsewhere too? */
static bool is_read(const Program *p, int constant)
{
  for (int i = 0; i < p->func.n; i++)
    for (int k = 0; i != p->prepare && k < p->func.v[i]->ins.n; k++) {
      const ProgIns *ins = &p->func.v[i]->ins.v[k];
      if (ins->op == MO_CONST && ins->index == constant) return true;
    }
  return false;
}

void program_mark_done(Program *p)
{
  ProgFunc *f = p->func.v[p->prepare];
  Scope scope = scope_begin(p->ctx);
  int *constant = arena_array(scratch(p->ctx), int, f->nreg + 1);   /* 1 + what a register holds */
  int *left = arena_array(scratch(p->ctx), int, p->constant.n + 1); /* registers that hold it */
  ProgFunc out = {0};
  for (int i = 0; i < f->ins.n; i++)
    if (f->ins.v[i].op == MO_CONST) left[f->ins.v[i].index]++;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    vec_push(p->arena, &out.ins, *ins);
    if (ins->op == MO_CONST) constant[ins->reg] = ins->index + 1;
    if (ins->op != MO_FREE || !constant[ins->reg]) continue;
    int k = constant[ins->reg] - 1;
    if (--left[k] || is_read(p, k)) continue;
    vec_push(p->arena, &out.ins, ((ProgIns){.op = MO_DONE, .index = k, .node = -1, .reg = -1, .source = -1}));
  }
  f->ins.v = out.ins.v;
  f->ins.n = out.ins.n;
  f->ins.cap = out.ins.cap;
  scope_end(p->ctx, scope);
}

/* Everything that decides what the prepared block holds. */
void program_digest(Program *p)
{
  Scope scope = scope_begin(p->ctx);
  const char *text = program_print(p, scratch(p->ctx));
  for (int half = 0; half < 2; half++) {
    uint64_t h = hash_bytes(text, strlen(text), (uint64_t)half + 1);
    h = hash_bytes(p->target->text, strlen(p->target->text), h);
    for (int i = 0; i < p->constant.n; i++) {
      const ProgConst *c = &p->constant.v[i];
      h = hash_bytes(&c->offset, sizeof c->offset, h);
      if (!c->prepared && c->data->bytes) h = hash_bytes(c->data->data, c->data->bytes, h);
    }
    p->digest[half] = h;
  }
  scope_end(p->ctx, scope);
}
