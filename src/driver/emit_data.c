/* emit_data.c: tuples as one value, constructors, patterns.
 *
 * Inside a function a tuple lies spread out over registers.  What may be of any type (a
 * field of a constructor, a type parameter, an argument of a function value) has one
 * register; there a tuple is data with tag 0, and so are the tuples inside it:
 *   ((a, b), c)   as one value:   data 0(data 0(%a, %b), %c) */
#include "driver/emit.h"

/* ---- one value and many registers ---------------------------------------------------------- */

bool emit_same_spread(const Type *a, const Type *b)
{
  bool tuple = a->kind == TY_TUPLE;
  if (tuple != (b->kind == TY_TUPLE)) return false;
  if (!tuple) return true;
  if (a->nfield != b->nfield) return false;
  for (int i = 0; i < a->nfield; i++)
    if (!emit_same_spread(a->field[i], b->field[i])) return false;
  return true;
}

static int new_data(Emit *e, int tag, int n, const int *field)
{
  int reg = emit_reg(e, e->region);
  ProgIns *ins = emit_ins(e, MO_DATA);
  ins->reg = reg;
  ins->tag = tag;
  emit_set_args(e, ins, n, field);
  return reg;
}

static int new_field(Emit *e, int source, int index)
{
  int reg = emit_reg(e, e->region);
  ProgIns *ins = emit_ins(e, MO_FIELD);
  ins->reg = reg;
  ins->source = source;
  ins->index = index;
  return reg;
}

int emit_box(Emit *e, const int *regs, const Type *ty)
{
  if (ty->kind != TY_TUPLE) return regs[0];
  int *field = arena_array(e->arena, int, ty->nfield + 1);
  for (int i = 0; i < ty->nfield; i++) field[i] = emit_box(e, regs + type_leaf_offset(ty, i), ty->field[i]);
  return new_data(e, 0, ty->nfield, field);
}

static void unbox(Emit *e, int reg, const Type *ty, IntList *out)
{
  if (ty->kind != TY_TUPLE) vec_push(e->arena, out, reg);
  for (int i = 0; ty->kind == TY_TUPLE && i < ty->nfield; i++) unbox(e, new_field(e, reg, i), ty->field[i], out);
}

const int *emit_unbox(Emit *e, int reg, const Type *ty)
{
  IntList out = {0};
  unbox(e, reg, ty, &out);
  if (!out.n) vec_push(e->arena, &out, -1); /* an empty tuple has a list of none */
  return out.v;
}

static void convert(Emit *e, const int *regs, const Type *from, const Type *to, IntList *out)
{
  bool both = from->kind == TY_TUPLE && to->kind == TY_TUPLE && from->nfield == to->nfield;
  for (int i = 0; both && i < from->nfield; i++)
    convert(e, regs + type_leaf_offset(from, i), from->field[i], to->field[i], out);
  if (both) return;
  unbox(e, emit_box(e, regs, from), to, out);
}

const int *emit_convert(Emit *e, const int *regs, const Type *from, const Type *to)
{
  if (from == to || emit_same_spread(from, to)) return regs;
  IntList out = {0};
  convert(e, regs, from, to, &out);
  if (!out.n) vec_push(e->arena, &out, -1);
  return out.v;
}

/* ---- constructors ------------------------------------------------------------------------------ */

void emit_construct(Emit *e, const Node *apply, const Ctor *ctor)
{
  int *field = arena_array(e->arena, int, apply->nargs);
  int *reg = arena_array(e->arena, int, 1);
  for (int i = 1; i < apply->nargs; i++) field[i - 1] = emit_box(e, emit_need(e, apply->arg[i]), apply->arg[i]->type);
  *reg = new_data(e, ctor->tag, apply->nargs - 1, field);
  emit_set_regs(e, apply, reg);
}

/* ---- patterns --------------------------------------------------------------------------------------- */

/* A value that a pattern is held against: spread out as its type says, or, without a type, in
 * one register. */
typedef struct Part {
  const int *regs;
  const Type *type;
} Part;

bool emit_always_fits(const Pattern *p)
{
  if (p->kind == PAT_CTOR && p->ctor->data->nctor > 1) return false;
  for (int i = 0; i < p->n; i++)
    if (!emit_always_fits(p->sub[i])) return false;
  return true;
}

static bool has_variables(const Pattern *p)
{
  for (int i = 0; i < p->n; i++)
    if (has_variables(p->sub[i])) return true;
  return p->kind == PAT_VAR;
}

static Part part_of(Emit *e, Part whole, int i)
{
  if (whole.type && whole.type->kind == TY_TUPLE)
    return (Part){whole.regs + type_leaf_offset(whole.type, i), whole.type->field[i]};
  int *reg = arena_array(e->arena, int, 1);
  *reg = new_field(e, whole.regs[0], i);
  return (Part){reg, NULL};
}

/* All tests come before the variables, so that little is taken out in vain. */
static void test(Emit *e, const Pattern *p, Part whole, IntList *jumps)
{
  if (p->kind == PAT_CTOR && p->ctor->data->nctor > 1) {
    vec_push(e->arena, jumps, e->f->ins.n);
    ProgIns *ins = emit_ins(e, MO_MATCH);
    ins->reg = whole.regs[0];
    ins->tag = p->ctor->tag;
  }
  for (int i = 0; i < p->n; i++)
    if (!emit_always_fits(p->sub[i])) test(e, p->sub[i], part_of(e, whole, i), jumps);
}

static void bind(Emit *e, const Pattern *p, Part whole)
{
  for (int i = 0; i < p->n; i++)
    if (has_variables(p->sub[i])) bind(e, p->sub[i], part_of(e, whole, i));
  if (p->kind != PAT_VAR) return;
  const int *regs =
      whole.type ? emit_convert(e, whole.regs, whole.type, p->var->type) : emit_unbox(e, whole.regs[0], p->var->type);
  emit_set_regs(e, p->var, regs);
  int n;
  const Type **leaf = type_leaves(e->arena, p->var->type, &n);
  const char *what = arena_printf(e->arena, "pattern variable '%s'", p->var->name);
  for (int i = 0; i < n; i++) emit_meet_dims(e, leaf[i], regs[i], what);
}

void emit_pattern(Emit *e, const Pattern *p, const Node *value, IntList *jumps)
{
  Part whole = {emit_need(e, value), value->type};
  test(e, p, whole, jumps);
  bind(e, p, whole);
}
