/* print.c: a program as text, for dumps and tests: one instruction a line. */
#include "driver/program.h"

static void print_expr(Text *t, const ProgExpr *e)
{
  static const char *const names[XO_COUNT] = {
#define X(id, takes, gives) [id] = #id,
    MODEL_EXPR_OPS(X)
#undef X
  };
  for (int i = 0; i < e->n; i++) {
    const ProgStep *s = &e->v[i];
    if (i) text_char(t, ' ');
    if (s->op == XO_INT) text_printf(t, "%" PRId64, s->i);
    else if (s->op == XO_FLOAT) text_add(t, text_double(t->arena, s->f));
    else if (s->op == XO_SCALAR) text_printf(t, "s%d", s->a);
    else if (s->op == XO_DIM) text_printf(t, "dim(%%%d, %d)", s->a, s->b);
    else if (s->op == XO_ELEM || s->op == XO_ELEM_FLOAT) text_printf(t, "%%%d[%d]", s->a, s->b);
    else text_add(t, names[s->op] + 3);
  }
}

static void print_shape(Text *t, const ProgIns *ins)
{
  text_add(t, "(");
  for (int d = 0; d < ins->nexpr; d++) {
    if (d) text_add(t, ", ");
    print_expr(t, &ins->expr[d]);
  }
  text_printf(t, ") %s", dtype_name(t->arena, ins->dtype));
}

static void print_regs(Text *t, int n, const int *reg, const bool *is_scalar)
{
  for (int i = 0; i < n; i++) text_printf(t, "%s%s%d", i ? ", " : "", is_scalar && is_scalar[i] ? "s" : "%", reg[i]);
}

static void print_device(Text *t, const Program *p, int device)
{
  const LatheRtDevice *d = &p->device.v[device].device;
  if (p->device.n > 1) text_printf(t, " on %s", target_device_text(t->arena, d->type, d->id));
}

static void print_place(Text *t, const Program *p, const ProgIns *ins)
{
  print_device(t, p, ins->device);
  if (ins->place != PLACE_DYNAMIC) text_printf(t, " at %" PRIu64, ins->place);
}

static void print_list(Text *t, const ProgIns *ins)
{
  text_add(t, "(");
  print_regs(t, ins->narg, ins->arg, ins->is_scalar);
  text_add(t, ")");
}

static void print_ins(Text *t, const Program *p, const ProgIns *ins)
{
  static const char *const hosts[HO_COUNT] = {
#define X(id, attrs, args, rets) [id] = #id,
    MODEL_HOST_OPS(X)
#undef X
  };
  switch (ins->op) {
  case MO_CONST: text_printf(t, "%%%d = const %d", ins->reg, ins->index); return;
  case MO_SCALAR:
    text_printf(t, "s%d = ", ins->reg);
    print_expr(t, ins->expr);
    return;
  case MO_ALLOC:
    text_printf(t, "%%%d = alloc ", ins->reg);
    print_shape(t, ins);
    print_place(t, p, ins);
    return;
  case MO_VIEW:
    text_printf(t, "%%%d = view %%%d ", ins->reg, ins->source);
    print_shape(t, ins);
    return;
  case MO_MOVE: text_printf(t, "%%%d = %%%d", ins->reg, ins->source); return;
  case MO_COPY:
    text_printf(t, "%%%d = copy %%%d", ins->reg, ins->source);
    print_place(t, p, ins);
    return;
  case MO_FREE: text_printf(t, "free %%%d", ins->reg); return;
  case MO_KERNEL:
    text_add(t, p->kernel.v[ins->index].name);
    print_list(t, ins);
    print_device(t, p, p->kernel.v[ins->index].device);
    return;
  case MO_JUMP: text_printf(t, "jump %d", ins->index); return;
  case MO_BRANCH: text_printf(t, "unless %%%d jump %d", ins->reg, ins->index); return;
  case MO_CALL:
  case MO_TAIL:
  case MO_HOST:
    print_regs(t, ins->nret, ins->ret, NULL);
    text_printf(t, "%s%s%s", ins->nret ? " = " : "", ins->op == MO_TAIL ? "tail " : "",
                ins->op == MO_HOST ? hosts[ins->index] + 3 : p->func.v[ins->index]->name);
    print_list(t, ins);
    return;
  case MO_RETURN:
    text_add(t, "return ");
    print_regs(t, ins->narg, ins->arg, NULL);
    return;
  case MO_CHECK:
    text_add(t, "check ");
    print_expr(t, ins->expr);
    return;
  case MO_CLOSURE:
  case MO_DATA:
    if (ins->op == MO_CLOSURE) text_printf(t, "%%%d = closure %s", ins->reg, p->func.v[ins->index]->name);
    else text_printf(t, "%%%d = data %d", ins->reg, ins->tag);
    print_list(t, ins);
    return;
  case MO_APPLY:
  case MO_APPLY_TAIL:
    print_regs(t, ins->nret, ins->ret, NULL);
    text_printf(t, "%s%%%d", ins->op == MO_APPLY ? " = apply " : "tail apply ", ins->reg);
    print_list(t, ins);
    return;
  case MO_FIELD: text_printf(t, "%%%d = %%%d.%d", ins->reg, ins->source, ins->index); return;
  case MO_MATCH: text_printf(t, "unless %%%d is data %d jump %d", ins->reg, ins->tag, ins->index); return;
  case MO_FAIL: text_printf(t, "fail '%s'", ins->text); return;
  case MO_PACKED:
    print_regs(t, ins->nret, ins->ret, NULL);
    text_printf(t, "%spacked %s", ins->nret ? " = " : "", p->packed.v[ins->index]);
    print_list(t, ins);
    return;
  case MO_DONE: text_printf(t, "done #%d", ins->index); return;
  case MO_COUNT: return;
  }
}

const char *program_print(Program *p, Arena *arena)
{
  Text t = text_new(arena);
  for (int i = 0; i < p->func.n; i++) {
    const ProgFunc *f = p->func.v[i];
    text_printf(&t, "%s: %d parameters, %d results\n", f->name, f->nparam, f->nret);
    for (int k = 0; k < f->ins.n; k++) {
      text_printf(&t, "%5d  ", k);
      print_ins(&t, p, &f->ins.v[k]);
      text_char(&t, '\n');
    }
  }
  return text_str(&t);
}
