/* live.c: what instructions read and write, registers freed after their last use, and
 * instructions without use dropped. */
#include "driver/program.h"

static void expr_reads(Arena *a, const ProgExpr *e, IntList *out)
{
  for (int i = 0; i < e->n; i++)
    if (e->v[i].op == XO_DIM || e->v[i].op == XO_ELEM || e->v[i].op == XO_ELEM_FLOAT) vec_push(a, out, e->v[i].a);
}

void program_ins_reads(Arena *a, const ProgIns *ins, IntList *out)
{
  for (int i = 0; i < ins->nexpr; i++) expr_reads(a, &ins->expr[i], out);
  if (ins->source >= 0) vec_push(a, out, ins->source);
  if (ins->op == MO_BRANCH || ins->op == MO_MATCH || ins->op == MO_APPLY || ins->op == MO_APPLY_TAIL)
    vec_push(a, out, ins->reg);
  for (int i = 0; i < ins->narg; i++)
    if (!ins->is_scalar || !ins->is_scalar[i]) vec_push(a, out, ins->arg[i]);
}

/* ---- dropping ------------------------------------------------------------------------ */

static bool jumps(ModelOp op) { return op == MO_JUMP || op == MO_BRANCH || op == MO_MATCH; }

/* Keeps the instructions that are marked; jumps and regions follow. */
void program_keep(Program *p, ProgFunc *f, const bool *keep)
{
  Scope scope = scope_begin(p->ctx);
  int *now = arena_array(scratch(p->ctx), int, f->ins.n + 1);
  int n = 0;
  for (int i = 0; i < f->ins.n; i++) {
    now[i] = n;
    if (keep[i]) f->ins.v[n++] = f->ins.v[i];
  }
  now[f->ins.n] = n;
  f->ins.n = n;
  for (int i = 0; i < n; i++)
    if (jumps(f->ins.v[i].op)) f->ins.v[i].index = now[f->ins.v[i].index];
  for (int r = 0; r < f->region.n; r++) f->region.v[r].end = now[f->region.v[r].end];
  scope_end(p->ctx, scope);
}

static void mark_scalars(const ProgIns *ins, bool *used)
{
  for (int i = 0; i < ins->nexpr; i++)
    for (int k = 0; k < ins->expr[i].n; k++)
      if (ins->expr[i].v[k].op == XO_SCALAR) used[ins->expr[i].v[k].a] = true;
  for (int i = 0; ins->is_scalar && i < ins->narg; i++)
    if (ins->is_scalar[i]) used[ins->arg[i]] = true;
}

/* Sizes that were bound in case someone asks; fields, closures and data that nobody reads.
 * Jumps go forward, so what is read at all is read further on. */
static void drop_unused(Program *p, ProgFunc *f)
{
  Scope scope = scope_begin(p->ctx);
  Arena *a = scratch(p->ctx);
  bool *used = arena_array(a, bool, f->scalar.n + 1);
  bool *read = arena_array(a, bool, f->nreg + 1);
  bool *keep = arena_array(a, bool, f->ins.n + 1);
  IntList reads = {0};
  for (int i = f->ins.n - 1; i >= 0; i--) {
    const ProgIns *ins = &f->ins.v[i];
    bool part = ins->op == MO_FIELD || ins->op == MO_CLOSURE || ins->op == MO_DATA;
    keep[i] = ins->op == MO_SCALAR ? used[ins->reg] : !part || read[ins->reg];
    if (!keep[i]) continue;
    mark_scalars(ins, used);
    reads.n = 0;
    program_ins_reads(a, ins, &reads);
    for (int k = 0; k < reads.n; k++) read[reads.v[k]] = true;
  }
  program_keep(p, f, keep);
  scope_end(p->ctx, scope);
}

/* ---- freeing ---------------------------------------------------------------------------- */

/* Places between instructions: 2 i is before instruction i, where jumps to it arrive, 2 i + 1
 * right after it.  A use at i in region `at` is over, for a register of region `home`, after
 * i itself or where the ifs around it end. */
static int use_end(const ProgFunc *f, int home, int at, int i)
{
  int place = 2 * i + 1;
  while (at != home) {
    place = 2 * f->region.v[at].end;
    at = f->region.v[at].parent;
  }
  return place;
}

static void find_last_uses(Program *p, const ProgFunc *f, int *last)
{
  Arena *a = scratch(p->ctx);
  IntList reads = {0};
  for (int r = 0; r < f->nreg; r++) last[r] = -1;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    reads.n = 0;
    program_ins_reads(a, ins, &reads);
    /* a result that nobody reads goes at once */
    for (int k = 0; k < ins->nret; k++) vec_push(a, &reads, ins->ret[k]);
    for (int k = 0; k < reads.n; k++) {
      int r = reads.v[k];
      int end = use_end(f, f->home.v[r], ins->region, i);
      if (end > last[r]) last[r] = end;
    }
  }
}

static bool leaves(ModelOp op)
{
  return op == MO_RETURN || op == MO_TAIL || op == MO_APPLY_TAIL || op == MO_FAIL || op == MO_JUMP;
}

typedef Vec(ProgIns) InsList;

static void add_frees(Program *p, InsList *out, const IntList *regs, int region)
{
  for (int k = 0; k < regs->n; k++)
    vec_push(p->arena, out, (ProgIns){.op = MO_FREE, .reg = regs->v[k], .source = -1, .node = -1, .region = region});
}

/* Puts a FREE after each last use.  After a return there is nothing to free; an if or a match
 * in tail position has no end, since its branches leave the function. */
void program_free_registers(Program *p, ProgFunc *f)
{
  Scope scope = scope_begin(p->ctx);
  Arena *a = scratch(p->ctx);
  int *last = arena_array(a, int, f->nreg + 1);
  int *now = arena_array(a, int, f->ins.n + 1);
  int n = f->ins.n;
  find_last_uses(p, f, last);
  IntList *at = arena_array(a, IntList, 2 * n + 2);
  for (int r = 0; r < f->nreg; r++) {
    bool after = last[r] % 2 == 1;
    if (last[r] >= 0 && last[r] < 2 * n && !(after && leaves(f->ins.v[last[r] / 2].op))) vec_push(a, &at[last[r]], r);
  }
  InsList out = {0};
  for (int i = 0; i < n; i++) {
    now[i] = out.n;
    add_frees(p, &out, &at[2 * i], f->ins.v[i].region);
    vec_push(p->arena, &out, f->ins.v[i]);
    add_frees(p, &out, &at[2 * i + 1], f->ins.v[i].region);
  }
  now[n] = out.n;
  for (int i = 0; i < out.n; i++)
    if (jumps(out.v[i].op)) out.v[i].index = now[out.v[i].index];
  for (int r = 0; r < f->region.n; r++) f->region.v[r].end = now[f->region.v[r].end];
  f->ins.v = out.v;
  f->ins.n = out.n;
  f->ins.cap = out.cap;
  scope_end(p->ctx, scope);
}

void program_tidy(Program *p)
{
  for (int i = 0; i < p->func.n; i++) drop_unused(p, p->func.v[i]);
}
