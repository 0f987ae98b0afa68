/* cstyle_vector.c: whole vectors as GNU vector expressions, and masks.
 *
 * A vector of bool has no type of its own: it is a vector of signed integers, -1 where
 * true, of the width that whoever asks for it needs.  A comparison has its operands'
 * width; __builtin_convertvector changes it. */
#include "codegen/cstyle.h"

const char *cs_mask_type(Cgen *g, int bits, int lanes)
{
  return cs_type(g, dtype_lanes(DTYPE(DT_INT, (uint8_t)bits), lanes));
}

static DType mask_dtype(int bits, int lanes) { return dtype_lanes(DTYPE(DT_INT, (uint8_t)bits), lanes); }

const char *cs_splat(Cgen *g, DType t, const char *scalar)
{
  const char *name = cs_fmt(g, "splat_%s", cs_suffix(g, t));
  const char *type = cs_type(g, t);
  if (cs_needs(g, name)) {
    Text list = text_new(scratch(g->ctx));
    for (int i = 0; i < t.lanes; i++) text_add(&list, i ? ", x" : "x");
    cs_helper(g, "%s %s(%s x) { return (%s){%s}; }", type, name, cs_type(g, dtype_elem(t)), type, text_str(&list));
  }
  return cs_fmt(g, "%s(%s)", name, scalar);
}

/* Gives a vector a name, so that its lanes can be read one by one. */
static void name_vector(Cgen *g, const Expr *e)
{
  bool plain =
      e->dtype.lanes == 1 || e->kind == E_VAR || e->kind == E_RAMP || e->kind == E_BROADCAST || e->kind == E_LOAD;
  if (plain || dtype_is_bool(dtype_elem(e->dtype)) || cs_may_fail(g, e)) return;
  const char *value = cs_text(g, e);
  const char *name = cs_fresh(g, "vec");
  cs_line(g, "const %s %s = %s;", cs_type(g, e->dtype), name, value);
  vec_push(g->arena, &g->bound, (Bound){e, -1, name});
}

/* Lane by lane; bools come out as they lie in memory, a byte each. */
const char *cs_lanes(Cgen *g, const Expr *e)
{
  DType t = e->dtype;
  if (dtype_is_bool(dtype_elem(t))) t = dtype_lanes(cs_storage(g, dtype_elem(t)), t.lanes);
  bool choice = e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE;
  for (int i = 0; i < e->nargs && !choice; i++) name_vector(g, e->arg[i]);
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < t.lanes; i++) text_printf(&list, "%s%s", i ? ", " : "", cs_lane(g, e, i).s);
  return cs_fmt(g, "(%s){%s}", cs_type(g, t), text_str(&list));
}

/* ---- masks --------------------------------------------------------------------------------- */

static int elem_bits(Cgen *g, DType t) { return cs_storage(g, dtype_elem(t)).bits; }

int cs_mask_width(Cgen *g, const Expr *e)
{
  switch ((ExprKind)e->kind) {
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
    return dtype_is_bool(dtype_elem(e->arg[0]->dtype)) ? cs_mask_width(g, e->arg[0]) : elem_bits(g, e->arg[0]->dtype);
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_SELECT: return cs_mask_width(g, e->arg[0]);
  case E_LET: return cs_mask_width(g, e->arg[1]);
  case E_CAST: return elem_bits(g, e->arg[0]->dtype);
  case E_CALL: return e->u.intrin == IN_IF_THEN_ELSE ? cs_mask_width(g, e->arg[1]) : elem_bits(g, e->arg[0]->dtype);
  case E_VAR: {
    uintptr_t bits = (uintptr_t)map_get(&g->mask_bits, e->u.var);
    return bits ? (int)bits : 32;
  }
  case E_LOAD: return 8;
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_RAMP:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  return 32;
}

/* A mask of width `have` as one of width `want`. */
static Frag resize(Cgen *g, Frag f, int lanes, int have, int want)
{
  if (have == want) return f;
  return cs_frag(cs_fmt(g, "__builtin_convertvector(%s, %s)", f.s, cs_mask_type(g, want, lanes)), P_POST);
}

static Frag compare_mask(Cgen *g, const Expr *e, int bits)
{
  static const char *const ops[E_NKINDS] = {
    [E_EQ] = "==", [E_NE] = "!=", [E_LT] = "<", [E_LE] = "<=", [E_GT] = ">", [E_GE] = ">="};
  int lanes = e->dtype.lanes;
  int width = cs_mask_width(g, e);
  const char *type = cs_mask_type(g, width, lanes);
  if (dtype_is_bool(dtype_elem(e->arg[0]->dtype))) {
    if (e->kind != E_EQ && e->kind != E_NE) cs_unsupported(g, "an order of vectors of bool");
    const char *a = cs_wrap(g, cs_mask(g, e->arg[0], width), P_UNARY);
    const char *b = cs_wrap(g, cs_mask(g, e->arg[1], width), P_UNARY);
    return resize(g, cs_frag(cs_fmt(g, e->kind == E_NE ? "(%s ^ %s)" : "~(%s ^ %s)", a, b), P_UNARY), lanes, width,
                  bits);
  }
  const char *a = cs_wrap(g, cs_expr(g, e->arg[0]), P_SHIFT);
  const char *b = cs_wrap(g, cs_expr(g, e->arg[1]), P_SHIFT);
  return resize(g, cs_frag(cs_fmt(g, "(%s)(%s %s %s)", type, a, ops[e->kind], b), P_UNARY), lanes, width, bits);
}

static Frag call_mask(Cgen *g, const Expr *e, int bits)
{
  int lanes = e->dtype.lanes;
  int width = cs_mask_width(g, e);
  const Expr *x = e->arg[0];
  if (e->u.intrin == IN_ISNAN || e->u.intrin == IN_ISINF || e->u.intrin == IN_ISFINITE) {
    DType t = x->dtype;
    if (!dtype_is_float(t))
      return cs_frag(cs_splat(g, mask_dtype(bits, lanes), e->u.intrin == IN_ISFINITE ? "-1" : "0"), P_POST);
    const char *name = cs_helper_of(g,
                                    e->u.intrin == IN_ISNAN   ? "isnan"
                                    : e->u.intrin == IN_ISINF ? "isinf"
                                                              : "isfinite",
                                    t);
    return resize(g, cs_frag(cs_fmt(g, "%s(%s)", name, cs_text(g, x)), P_POST), lanes, width, bits);
  }
  if (e->u.intrin == IN_LIKELY) return cs_mask(g, x, bits);
  if (e->u.intrin != IN_IF_THEN_ELSE) cs_unsupported(g, "%s giving a vector of bool", intrin_info(e->u.intrin)->name);
  Text list = text_new(scratch(g->ctx)); /* each lane evaluates one side only */
  for (int i = 0; i < lanes; i++) text_printf(&list, "%s-(%s)", i ? ", " : "", cs_lane(g, e, i).s);
  return cs_frag(cs_fmt(g, "(%s){%s}", cs_mask_type(g, bits, lanes), text_str(&list)), P_POST);
}

Frag cs_mask(Cgen *g, const Expr *e, int bits)
{
  int lanes = e->dtype.lanes;
  DType t = mask_dtype(bits, lanes);
  switch ((ExprKind)e->kind) {
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE: return compare_mask(g, e, bits);
  case E_AND:
  case E_OR: {
    const char *a = cs_wrap(g, cs_mask(g, e->arg[0], bits), P_UNARY);
    const char *b = cs_wrap(g, cs_mask(g, e->arg[1], bits), P_UNARY);
    return cs_frag(cs_fmt(g, "(%s %s %s)", a, e->kind == E_AND ? "&" : "|", b), P_POST);
  }
  case E_NOT: return cs_frag(cs_fmt(g, "~%s", cs_wrap(g, cs_mask(g, e->arg[0], bits), P_UNARY)), P_UNARY);
  case E_SELECT: {
    const char *name = cs_helper_of(g, "select", t);
    return cs_frag(cs_fmt(g, "%s(%s, %s, %s)", name, cs_mask(g, e->arg[0], bits).s, cs_mask(g, e->arg[1], bits).s,
                          cs_mask(g, e->arg[2], bits).s),
                   P_POST);
  }
  case E_CAST: {
    DType from = e->arg[0]->dtype;
    if (dtype_is_bool(dtype_elem(from))) return cs_mask(g, e->arg[0], bits);
    int width = elem_bits(g, from);
    const char *x = cs_wrap(g, cs_expr(g, e->arg[0]), P_SHIFT);
    return resize(g, cs_frag(cs_fmt(g, "(%s)(%s != 0)", cs_mask_type(g, width, lanes), x), P_UNARY), lanes, width,
                  bits);
  }
  case E_BROADCAST: {
    Frag c = cs_lane(g, e->arg[0], 0);
    if (e->arg[0]->kind == E_INT) return cs_frag(cs_splat(g, t, e->arg[0]->u.i ? "-1" : "0"), P_POST);
    return cs_frag(cs_splat(g, t, cs_fmt(g, "%s ? -1 : 0", cs_wrap(g, c, P_LOR))), P_POST);
  }
  case E_LOAD: {
    Frag f = cs_load(g, e, -1);
    return resize(g, cs_frag(cs_fmt(g, "(%s)(%s != 0)", cs_mask_type(g, 8, lanes), cs_wrap(g, f, P_SHIFT)), P_UNARY),
                  lanes, 8, bits);
  }
  case E_VAR: return resize(g, cs_frag(cs_name(g, e->u.var), P_POST), lanes, cs_mask_width(g, e), bits);
  case E_LET: {
    cs_bind(g, e->u.var, e->arg[0]);
    return cs_mask(g, e->arg[1], bits);
  }
  case E_CALL: return call_mask(g, e, bits);
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_RAMP:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  cs_unsupported(g, "%s on vectors of bool", expr_kind_name((ExprKind)e->kind));
}

/* ---- values ------------------------------------------------------------------------------------ */

static bool is_ring(const Expr *e) { return e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL; }

/* Wrapping arithmetic below one cast: signed vectors may not overflow in C. */
static const char *unsigned_operand(Cgen *g, const Expr *e, int prec, bool top)
{
  DType t = e->dtype;
  if (!is_ring(e) || (!top && cs_is_shared(g, e))) {
    DType u = dtype_lanes(DTYPE(DT_UINT, t.bits), t.lanes);
    const char *type = cs_type(g, u);
    if (e->kind == E_BROADCAST && e->arg[0]->kind == E_INT && e->arg[0]->u.i >= 0)
      return cs_splat(g, u, cs_fmt(g, "%" PRId64, e->arg[0]->u.i));
    return cs_fmt(g, "(%s)%s", type, cs_wrap(g, cs_expr(g, e), P_UNARY));
  }
  int own = e->kind == E_MUL ? P_MUL : P_ADD;
  const char *op = e->kind == E_ADD ? "+" : e->kind == E_SUB ? "-" : "*";
  const char *s = cs_fmt(g, "%s %s %s", unsigned_operand(g, e->arg[0], own, false), op,
                         unsigned_operand(g, e->arg[1], own + 1, false));
  return cs_wrap(g, cs_frag(s, own), prec);
}

/* a * b + c by one instruction, where the target has it for such vectors; false: not so. */
static bool relaxed_madd(Cgen *g, const Expr *e, Frag *out)
{
  if (e->kind != E_ADD || !dtype_eq(e->dtype, dtype_lanes(DT_F32, 4))) return false;
  if (g->target->arch != ARCH_WASM32 || !strstr(g->target->attrs, "+relaxed-simd")) return false;
  int product = e->arg[1]->kind == E_MUL && !cs_is_shared(g, e->arg[1]) ? 1 : 0;
  const Expr *mul = e->arg[product];
  if (mul->kind != E_MUL || cs_is_shared(g, mul)) return false;
  const char *a = cs_text(g, mul->arg[0]);
  const char *b = cs_text(g, mul->arg[1]);
  const char *c = cs_text(g, e->arg[1 - product]);
  *out = cs_frag(cs_fmt(g, "__builtin_wasm_relaxed_madd_f32x4(%s, %s, %s)", a, b, c), P_POST);
  return true;
}

static Frag binary(Cgen *g, const Expr *e)
{
  DType t = e->dtype;
  Frag fused;
  if (relaxed_madd(g, e, &fused)) return fused;
  const char *op = e->kind == E_ADD   ? "+"
                   : e->kind == E_SUB ? "-"
                   : e->kind == E_MUL ? "*"
                   : e->kind == E_DIV ? "/"
                                      : "%";
  int prec = e->kind == E_ADD || e->kind == E_SUB ? P_ADD : P_MUL;
  if (is_ring(e) && t.code == DT_INT && cs_wraps(g, e))
    return cs_frag(cs_fmt(g, "(%s)(%s)", cs_type(g, t), unsigned_operand(g, e, P_NONE, true)), P_UNARY);
  if (e->kind == E_MOD && dtype_is_float(t)) return cs_frag(cs_lanes(g, e), P_POST);
  if (!is_ring(e) && dtype_is_int(t) && !cs_divisor_known(e->arg[1])) return cs_frag(cs_lanes(g, e), P_POST);
  Frag a = cs_expr(g, e->arg[0]);
  Frag b = cs_expr(g, e->arg[1]);
  return cs_frag(cs_fmt(g, "%s %s %s", cs_wrap(g, a, prec), op, cs_wrap(g, b, prec + 1)), prec);
}

static Frag cast_vector(Cgen *g, const Expr *e)
{
  DType to = e->dtype;
  DType from = e->arg[0]->dtype;
  const char *quad = cs_quad_widen(g, e);
  if (quad) return cs_frag(quad, P_POST);
  const char *type = cs_type(g, to);
  if (dtype_is_bool(dtype_elem(from))) {
    const char *m = cs_wrap(g, cs_mask(g, e->arg[0], to.bits), P_UNARY);
    if (dtype_is_float(to)) return cs_frag(cs_fmt(g, "__builtin_convertvector(-%s, %s)", m, type), P_POST);
    return cs_frag(cs_fmt(g, "(%s)-%s", type, m), P_UNARY);
  }
  Frag x = cs_expr(g, e->arg[0]);
  if (cs_half_bits(g, from) || cs_half_bits(g, to))
    return cs_frag(cs_fmt(g, "%s(%s)", cs_half_cast(g, from, to), x.s), P_POST);
  if (dtype_is_float(from) && dtype_is_int(to))
    return cs_frag(cs_fmt(g, "%s(%s)", cs_saturate(g, from, to), x.s), P_POST);
  if (dtype_is_int(from) && dtype_is_int(to) && from.bits == to.bits)
    return cs_frag(cs_fmt(g, "(%s)%s", type, cs_wrap(g, x, P_UNARY)), P_UNARY);
  return cs_frag(cs_fmt(g, "__builtin_convertvector(%s, %s)", x.s, type), P_POST);
}

static Frag ramp(Cgen *g, const Expr *e)
{
  DType t = e->dtype;
  const char *name = cs_fmt(g, "ramp_%s", cs_suffix(g, t));
  const char *type = cs_type(g, t);
  const char *elem = cs_type(g, dtype_elem(t));
  if (cs_needs(g, name)) {
    Text list = text_new(scratch(g->ctx));
    for (int i = 0; i < t.lanes; i++) text_printf(&list, "%s(%s)(x + %d * step)", i ? ", " : "", elem, i);
    text_printf(&g->helpers, "%s %s %s(%s x, %s step)\n{\n  return (%s){%s};\n}\n", g->dialect->helper, type, name,
                elem, elem, type, text_str(&list));
  }
  return cs_frag(cs_fmt(g, "%s(%s, %s)", name, cs_lane(g, e->arg[0], 0).s, cs_lane(g, e->arg[1], 0).s), P_POST);
}

static Frag select_vector(Cgen *g, const Expr *e)
{
  DType t = e->dtype;
  if (e->arg[0]->dtype.lanes == 1)
    return cs_frag(cs_fmt(g, "%s ? %s : %s", cs_wrap(g, cs_expr(g, e->arg[0]), P_LOR),
                          cs_one_type(g, t, cs_expr(g, e->arg[1]), P_COND + 1),
                          cs_one_type(g, t, cs_expr(g, e->arg[2]), P_COND)),
                   P_COND);
  const char *name = cs_helper_of(g, "select", t);
  const char *m = cs_mask(g, e->arg[0], elem_bits(g, t)).s;
  return cs_frag(cs_fmt(g, "%s(%s, %s, %s)", name, m, cs_text(g, e->arg[1]), cs_text(g, e->arg[2])), P_POST);
}

Frag cs_vector(Cgen *g, const Expr *e)
{
  DType t = e->dtype;
  if (!g->dialect->vectors)
    BUG(g->ctx, "a whole vector in a dialect without vectors: %s", expr_str_of(scratch(g->ctx), e));
  if (dtype_is_bool(dtype_elem(t))) BUG(g->ctx, "a vector of bool as a value: %s", expr_str_of(scratch(g->ctx), e));
  cs_check_half(g, e);
  switch ((ExprKind)e->kind) {
  case E_VAR: return cs_frag(cs_name(g, e->u.var), P_POST);
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD: return binary(g, e);
  case E_MIN:
  case E_MAX: {
    const char *quad = cs_quad_min_max(g, e);
    if (quad) return cs_frag(quad, P_POST);
    const char *name = cs_helper_of(g, e->kind == E_MIN ? "min" : "max", t);
    return cs_frag(cs_fmt(g, "%s(%s, %s)", name, cs_text(g, e->arg[0]), cs_text(g, e->arg[1])), P_POST);
  }
  case E_CAST: return cast_vector(g, e);
  case E_SELECT: return select_vector(g, e);
  case E_LOAD: return cs_load(g, e, -1);
  case E_CALL: return cs_call(g, e, -1);
  case E_RAMP: return ramp(g, e);
  case E_BROADCAST: return cs_frag(cs_splat(g, t, cs_lane(g, e->arg[0], 0).s), P_POST);
  case E_FLOORDIV:
  case E_FLOORMOD: return cs_frag(cs_lanes(g, e), P_POST);
  case E_LET: return cs_expr(g, e);
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  BUG(g->ctx, "kernel form has no vector %s", expr_kind_name((ExprKind)e->kind));
}
