/* emit_expr.c: sizes and scalars of a program: expressions over sizes become postfix steps.
 *
 * A size is known once a tensor that has it as a dimension is there (emit_bind_dims), or
 * stands for an element of a tensor (graph_value_source).  Terms that occur more than once
 * become scalars of their own, so a DAG stays a DAG. */
#include "driver/emit.h"

typedef struct Writer {
  Emit *e;
  const char *what;
  ProgExpr out;
  int depth;
} Writer;

static void write_expr(Writer *, const Expr *);

static void step(Writer *w, ProgStep s) { vec_push(w->e->arena, &w->out, s); }

static void op(Writer *w, ExprOp o) { step(w, (ProgStep){.op = o}); }

static _Noreturn void refuse(Writer *w, const Expr *e, const char *why)
{
  raise(w->e->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: the size %s %s", w->what, expr_str_of(scratch(w->e->ctx), e), why);
}

/* ---- leaves ------------------------------------------------------------------------------ */

static int new_scalar(Emit *e, bool is_float)
{
  vec_push(e->p->arena, &e->f->scalar, is_float ? SCALAR_FLOAT : SCALAR_INT);
  return e->f->scalar.n - 1;
}

static void bind(Emit *e, const void *key, int scalar)
{
  map_put(e->arena, &e->scalar, key, (void *)(intptr_t)(scalar + 1));
  vec_push(e->arena, &e->bound, key);
}

void emit_unbind(Emit *e, int mark)
{
  while (e->bound.n > mark) map_del(&e->scalar, e->bound.v[--e->bound.n]);
}

static void set_scalar(Emit *e, int scalar, ProgExpr value)
{
  ProgIns *ins = emit_ins(e, MO_SCALAR);
  ins->reg = scalar;
  ins->nexpr = 1;
  ins->expr = arena_new_of(e->p->arena, ProgExpr);
  *ins->expr = value;
}

/* A size that is an element of a tensor: read into a scalar, once. */
static bool bind_element(Emit *e, const Var *v)
{
  const Node *node;
  int element;
  if (!graph_value_source(e->m, v, &node, &element)) return false;
  const int *regs = emit_regs_of(e, node);
  if (!regs) return false;
  bool is_float = dtype_is_float(v->dtype);
  ProgExpr value = {0};
  vec_push(e->p->arena, &value, (ProgStep){.op = is_float ? XO_ELEM_FLOAT : XO_ELEM, .a = regs[0], .b = element});
  int scalar = new_scalar(e, is_float);
  set_scalar(e, scalar, value);
  bind(e, v, scalar);
  return true;
}

void emit_bind_dim(Emit *e, const Var *size, int reg, int d)
{
  ProgExpr value = {0};
  vec_push(e->p->arena, &value, (ProgStep){.op = XO_DIM, .a = reg, .b = d});
  int scalar = new_scalar(e, false);
  set_scalar(e, scalar, value);
  bind(e, size, scalar);
}

void emit_bind_dims(Emit *e, const Type *leaf, int reg)
{
  if (leaf->kind != TY_TENSOR) return;
  for (int d = 0; d < leaf->ndim; d++) {
    const Expr *dim = leaf->shape[d];
    if (dim->kind == E_VAR && !map_has(&e->scalar, dim->u.var)) emit_bind_dim(e, dim->u.var, reg, d);
  }
}

void emit_meet_dims(Emit *e, const Type *leaf, int reg, const char *what)
{
  for (int d = 0; leaf->kind == TY_TENSOR && d < leaf->ndim; d++) {
    const Expr *dim = leaf->shape[d];
    if (dim->kind != E_VAR) continue;
    if (!map_has(&e->scalar, dim->u.var)) {
      emit_bind_dim(e, dim->u.var, reg, d);
      continue;
    }
    ProgExpr *same = arena_new_of(e->p->arena, ProgExpr);
    vec_push(e->p->arena, same, (ProgStep){.op = XO_DIM, .a = reg, .b = d});
    vec_push(e->p->arena, same, (ProgStep){.op = XO_SCALAR, .a = (int)(intptr_t)map_get(&e->scalar, dim->u.var) - 1});
    vec_push(e->p->arena, same, (ProgStep){.op = XO_EQ});
    ProgIns *ins = emit_ins(e, MO_CHECK);
    ins->nexpr = 1;
    ins->expr = same;
    ins->text = arena_printf(e->p->arena, "%s: dimension %d is not %s", what, d, dim->u.var->name);
  }
}

static void write_var(Writer *w, const Expr *e)
{
  const Var *v = e->u.var;
  if (!map_has(&w->e->scalar, v) && !bind_element(w->e, v))
    refuse(w, e, "is told by no input and by no tensor computed before");
  step(w, (ProgStep){.op = XO_SCALAR, .a = (int)(intptr_t)map_get(&w->e->scalar, v) - 1});
}

/* ---- operators ------------------------------------------------------------------------------ */

/* Float arithmetic at its own width. */
static void rounded(Writer *w, const Expr *e)
{
  if (e->dtype.code != DT_FLOAT || e->dtype.bits < 32)
    refuse(w, e, "is computed in a dtype that the executor does not have");
  if (e->dtype.bits == 32) op(w, XO_ROUND32);
}

static void binary(Writer *w, const Expr *e, ExprOp ints, ExprOp floats)
{
  write_expr(w, e->arg[0]);
  write_expr(w, e->arg[1]);
  w->depth--;
  bool is_float = dtype_is_float(e->arg[0]->dtype);
  op(w, is_float ? floats : ints);
  if (dtype_is_float(e->dtype)) rounded(w, e);
}

/* a > b is b < a. */
static void swapped(Writer *w, const Expr *e, ExprOp ints, ExprOp floats)
{
  write_expr(w, e->arg[1]);
  write_expr(w, e->arg[0]);
  w->depth--;
  op(w, dtype_is_float(e->arg[0]->dtype) ? floats : ints);
}

static void choice(Writer *w, const Expr *e)
{
  for (int i = 0; i < 3; i++) write_expr(w, e->arg[i]);
  w->depth -= 2;
  op(w, dtype_is_float(e->dtype) ? XO_FSELECT : XO_SELECT);
}

static void cast(Writer *w, const Expr *e)
{
  DType to = e->dtype;
  DType from = e->arg[0]->dtype;
  write_expr(w, e->arg[0]);
  if (dtype_is_float(to)) {
    if (!dtype_is_float(from)) op(w, XO_TO_FLOAT);
    rounded(w, e);
    return;
  }
  if (dtype_is_bool(to)) {
    if (dtype_is_float(from)) {
      step(w, (ProgStep){.op = XO_FLOAT, .f = 0});
      op(w, XO_FNE);
    } else {
      step(w, (ProgStep){.op = XO_INT, .i = 0});
      op(w, XO_NE);
    }
    return;
  }
  if (dtype_is_float(from)) op(w, XO_TO_INT);
  if (to.bits >= 32 && to.code == DT_INT) return; /* sizes do not overflow */
  if (to.bits < 8 || (to.bits == 64 && to.code == DT_UINT && dtype_is_float(from)))
    refuse(w, e, "is cast to a dtype that the executor does not have");
  static const ExprOp wraps[2][3] = {{XO_WRAP8, XO_WRAP16, XO_WRAP32}, {XO_WRAPU8, XO_WRAPU16, XO_WRAPU32}};
  if (to.bits < 64) op(w, wraps[to.code == DT_UINT][to.bits == 8 ? 0 : to.bits == 16 ? 1 : 2]);
}

static void intrinsic(Writer *w, const Expr *e)
{
  static const struct {
    Intrin intrin;
    ExprOp op;
  } table[] = {{IN_FLOOR, XO_FLOOR},
               {IN_CEIL, XO_CEIL},
               {IN_TRUNC, XO_TRUNC},
               {IN_ROUND, XO_ROUND},
               {IN_NEARBYINT, XO_NEARBYINT},
               {IN_SQRT, XO_SQRT},
               {IN_EXP, XO_EXP},
               {IN_LOG, XO_LOG},
               {IN_POW, XO_POW},
               {IN_FMOD, XO_FMOD},
               {IN_BITAND, XO_BITAND},
               {IN_BITOR, XO_BITOR},
               {IN_BITXOR, XO_BITXOR},
               {IN_SHL, XO_SHL},
               {IN_SHR, XO_SHR}};
  if (e->u.intrin == IN_IF_THEN_ELSE) {
    choice(w, e);
    return;
  }
  if (e->u.intrin == IN_LIKELY) {
    write_expr(w, e->arg[0]);
    return;
  }
  if (e->u.intrin == IN_ABS) {
    write_expr(w, e->arg[0]);
    op(w, dtype_is_float(e->dtype) ? XO_FABS : XO_ABS);
    return;
  }
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (table[i].intrin != e->u.intrin) continue;
    for (int k = 0; k < e->nargs; k++) write_expr(w, e->arg[k]);
    w->depth -= e->nargs - 1;
    op(w, table[i].op);
    if (dtype_is_float(e->dtype)) rounded(w, e);
    return;
  }
  refuse(w, e, "needs a function that the executor does not have");
}

static void write_kind(Writer *w, const Expr *e)
{
  switch ((ExprKind)e->kind) {
  case E_INT: step(w, (ProgStep){.op = XO_INT, .i = e->u.i}); return;
  case E_FLOAT: step(w, (ProgStep){.op = XO_FLOAT, .f = e->u.f}); return;
  case E_VAR: write_var(w, e); return;
  case E_ADD: binary(w, e, XO_ADD, XO_FADD); return;
  case E_SUB: binary(w, e, XO_SUB, XO_FSUB); return;
  case E_MUL: binary(w, e, XO_MUL, XO_FMUL); return;
  case E_DIV: binary(w, e, XO_DIV, XO_FDIV); return;
  case E_MOD: binary(w, e, XO_MOD, XO_FMOD); return;
  case E_FLOORDIV:
    binary(w, e, XO_FLOORDIV, XO_FDIV);
    if (dtype_is_float(e->dtype)) op(w, XO_FLOOR);
    return;
  case E_FLOORMOD:
    if (dtype_is_float(e->dtype)) refuse(w, e, "is a floored remainder of floats");
    binary(w, e, XO_FLOORMOD, XO_FMOD);
    return;
  case E_MIN: binary(w, e, XO_MIN, XO_FMIN); return;
  case E_MAX: binary(w, e, XO_MAX, XO_FMAX); return;
  case E_EQ: binary(w, e, XO_EQ, XO_FEQ); return;
  case E_NE: binary(w, e, XO_NE, XO_FNE); return;
  case E_LT: binary(w, e, XO_LT, XO_FLT); return;
  case E_LE: binary(w, e, XO_LE, XO_FLE); return;
  case E_GT: swapped(w, e, XO_LT, XO_FLT); return;
  case E_GE: swapped(w, e, XO_LE, XO_FLE); return;
  case E_AND: binary(w, e, XO_AND, XO_AND); return;
  case E_OR: binary(w, e, XO_OR, XO_OR); return;
  case E_NOT:
    write_expr(w, e->arg[0]);
    op(w, XO_NOT);
    return;
  case E_CAST: cast(w, e); return;
  case E_SELECT: choice(w, e); return;
  case E_CALL: intrinsic(w, e); return;
  case E_STR:
  case E_LET:
  case E_LOAD:
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  refuse(w, e, "is of a form that the executor does not have");
}

/* Each call leaves one more value on the stack; a term that would need too deep a stack
 * is computed first, into a scalar. */
static void write_expr(Writer *w, const Expr *e)
{
  int scalar = (int)(intptr_t)map_get(&w->e->scalar, e) - 1;
  if (scalar < 0 && w->depth > MODEL_MAX_STACK / 2 && e->nargs) scalar = emit_scalar(w->e, e, w->what);
  if (scalar >= 0) step(w, (ProgStep){.op = XO_SCALAR, .a = scalar});
  else write_kind(w, e);
  if (scalar >= 0 || e->nargs == 0) w->depth++;
}

/* ---- shared terms ------------------------------------------------------------------------------ */

typedef struct Shared {
  Arena *arena;
  Map uses; /* Expr* -> number of terms that hold it */
  Vec(const Expr *) order;
} Shared;

static void count_uses(void *env, const Expr *e)
{
  Shared *s = env;
  vec_push(s->arena, &s->order, e);
  for (int i = 0; i < e->nargs; i++)
    map_put(s->arena, &s->uses, e->arg[i], (void *)((intptr_t)map_get(&s->uses, e->arg[i]) + 1));
}

ProgExpr emit_expr(Emit *e, const Expr *value, const char *what)
{
  Shared s = {.arena = e->arena};
  if (value->nargs) expr_visit(e->ctx, value, count_uses, &s);
  for (int i = 0; i < s.order.n; i++) {
    const Expr *term = s.order.v[i];
    if (term->nargs == 0 || term == value || (intptr_t)map_get(&s.uses, term) < 2 || map_has(&e->scalar, term))
      continue;
    emit_scalar(e, term, what);
  }
  Writer w = {.e = e, .what = what};
  write_expr(&w, value);
  ProgExpr out = {0};
  for (int i = 0; i < w.out.n; i++) vec_push(e->p->arena, &out, w.out.v[i]);
  return out;
}

int emit_scalar(Emit *e, const Expr *value, const char *what)
{
  const void *key = value->kind == E_VAR ? (const void *)value->u.var : value;
  int scalar = (int)(intptr_t)map_get(&e->scalar, key) - 1;
  if (scalar >= 0) return scalar;
  if (value->kind == E_VAR && bind_element(e, value->u.var)) return (int)(intptr_t)map_get(&e->scalar, key) - 1;
  Writer w = {.e = e, .what = what};
  write_kind(&w, value);
  ProgExpr kept = {0};
  for (int i = 0; i < w.out.n; i++) vec_push(e->p->arena, &kept, w.out.v[i]);
  scalar = new_scalar(e, dtype_is_float(value->dtype));
  set_scalar(e, scalar, kept);
  bind(e, key, scalar);
  return scalar;
}

/* ---- from inside a primitive function to outside -------------------------------------------------- */

static void match_dims(Outside *o, const Type *inside, const Type *outside)
{
  if (inside->kind != outside->kind) return;
  for (int i = 0; i < inside->nfield && i < outside->nfield; i++) match_dims(o, inside->field[i], outside->field[i]);
  for (int d = 0; d < inside->ndim && d < outside->ndim; d++)
    if (inside->shape[d]->kind == E_VAR && inside->shape[d] != outside->shape[d] &&
        !map_has(&o->size, inside->shape[d]->u.var))
      map_put(o->e->arena, &o->size, inside->shape[d]->u.var,
              (void *)(uintptr_t)expr_cast(o->e->m, inside->shape[d]->dtype, outside->shape[d]));
}

Outside emit_outside_begin(Emit *e, const Node *apply)
{
  Outside o = {.e = e, .apply = apply};
  const Node *func = apply->arg[0];
  for (int i = 0; i < fn_nparams(func); i++)
    if (func->arg[i]->type->kind == TY_TENSOR || func->arg[i]->type->kind == TY_TUPLE)
      match_dims(&o, func->arg[i]->type, apply->arg[1 + i]->type);
  return o;
}

/* Elements of parameters are those of the arguments. */
static void match_elements(Outside *o, const Expr *inside)
{
  const Var **var;
  int n = expr_free_vars(o->e->arena, inside, &var);
  const Node *func = o->apply->arg[0];
  for (int i = 0; i < n; i++) {
    const Node *node;
    int element, count;
    if (map_has(&o->size, var[i]) || !graph_value_source(o->e->m, var[i], &node, &element)) continue;
    for (int k = 0; k < fn_nparams(func); k++) {
      if (func->arg[k] != node) continue;
      const Expr *const *values = graph_values(o->e->m, o->apply->arg[1 + k], &count);
      if (values && element < count)
        map_put(o->e->arena, &o->size, var[i], (void *)(uintptr_t)expr_cast(o->e->m, var[i]->dtype, values[element]));
    }
  }
}

const Expr *emit_outside_expr(Outside *o, const Expr *inside)
{
  if (inside->kind == E_INT || inside->kind == E_FLOAT) return inside;
  match_elements(o, inside);
  const Expr *now = o->size.n ? expr_substitute(o->e->m, inside, &o->size) : inside;
  return expr_simplify(analyzer_new(o->e->m, o->e->arena), now);
}
