/* cstyle_quads.c: Arm's Helium in C: products of whole vectors of bytes, and four int32 at a time.
 *
 * A processor with Helium adds up the products of two vectors in a register of its own, so sums are scalars; what is
 * made of them afterwards is computed four at a time, in GNU vectors (i32x4).  Bytes become int32 as they are read and
 * bytes again as they are written.  Each helper has two bodies, one over <arm_mve.h> and one of plain C with the same
 * result: the source serves processors without Helium too. */
#include "codegen/cstyle.h"

#define HELIUM "#if defined(__ARM_FEATURE_MVE)\n"

static void need_header(Cgen *g)
{
  if (cs_needs(g, "arm_mve.h")) text_add(&g->helpers, HELIUM "#include <arm_mve.h>\n#endif\n");
}

/* TYPE NAME(PARAMETERS) with one body for Helium and one for every processor. */
static void two_bodies(Cgen *g, const char *head, const char *helium, const char *plain)
{
  need_header(g);
  text_printf(&g->helpers, "%s %s\n{\n" HELIUM "  %s\n#else\n  %s\n#endif\n}\n", g->dialect->helper, head, helium,
              plain);
}

static bool is_quad(DType t) { return t.code == DT_INT && t.bits == 32 && t.lanes == QUAD; }

static const char *quad(Cgen *g) { return cs_type(g, dtype_lanes(DT_I32, QUAD)); }

/* "u8": part of the intrinsics' names is the size of an element in memory, b or h, and the sign. */
static char size_letter(DType t) { return t.bits == 8 ? 'b' : 'h'; }
static char sign_letter(DType t) { return t.code == DT_UINT ? 'u' : 's'; }

/* ---- products of whole vectors ------------------------------------------------------------------ */

/* cast(bytes of memory): the load; NULL: it is something else. */
static const Expr *widened(const Expr *e)
{
  bool loads = e->kind == E_CAST && e->arg[0]->kind == E_LOAD;
  return loads && dtype_is_int(e->arg[0]->dtype) && e->arg[0]->dtype.bits <= 16 && e->arg[0]->nargs == 1 &&
                 e->arg[0]->arg[0]->kind == E_RAMP && expr_is_int(e->arg[0]->arg[0]->arg[1], 1)
             ? e->arg[0]
             : NULL;
}

bool cs_is_bytes_dot(Cgen *g, const Expr *e)
{
  if (!g->dialect->quads || e->kind != E_CALL || e->u.intrin != IN_VECTOR_SUM || e->arg[0]->kind != E_MUL) return false;
  for (int i = 0; i < 2; i++) {
    const Expr *side = widened(e->arg[0]->arg[i]);
    if (!side || !dtype_eq(dtype_elem(side->dtype), DT_I8)) return false;
  }
  return dtype_eq(e->dtype, DT_I32);
}

const char *cs_bytes_dot(Cgen *g, const Expr *e, const char *sum)
{
  int lanes = e->arg[0]->dtype.lanes;
  const char *name = cs_fmt(g, "dot%d_s8", lanes);
  if (cs_needs(g, name)) {
    int bits = 128 / lanes;
    two_bodies(g, cs_fmt(g, "int32_t %s(int32_t sum, const int8_t *a, const int8_t *b)", name),
               cs_fmt(g, "return vmladavaq_s%d(sum, vldrbq_s%d(a), vldrbq_s%d(b));", bits, bits, bits),
               cs_fmt(g,
                      "for (int i = 0; i < %d; i++) sum = (int32_t)((uint32_t)sum + (uint32_t)(a[i] * b[i]));\n"
                      "  return sum;",
                      lanes));
  }
  const char *at[2];
  for (int i = 0; i < 2; i++) {
    const Expr *load = widened(e->arg[0]->arg[i]);
    at[i] = cs_address(g, load->u.buffer, load->arg[0]);
  }
  return cs_fmt(g, "%s(%s, %s, %s)", name, sum, at[0], at[1]);
}

/* ---- four int32 --------------------------------------------------------------------------------------- */

/* What a quad is when its elements have been narrow integers in between. */
static const char *narrowed(Cgen *g, const Expr *e)
{
  DType t = dtype_elem(e->dtype);
  const char *x = cs_wrap(g, cs_expr(g, e->arg[0]), P_UNARY);
  int above = 32 - t.bits;
  const char *U = cs_type(g, dtype_lanes(DTYPE(DT_UINT, 32), QUAD));
  if (t.code == DT_UINT) return cs_fmt(g, "(%s & %d)", x, (1 << t.bits) - 1);
  return cs_fmt(g, "((%s)((%s)%s << %d) >> %d)", quad(g), U, x, above, above);
}

/* Of neighbours in memory, or of what was a quad before; NULL: e is no such cast. */
const char *cs_quad_widen(Cgen *g, const Expr *e)
{
  if (!g->dialect->quads || !is_quad(e->dtype)) return NULL;
  const Expr *from = e->arg[0];
  if (from->kind == E_CAST && is_quad(from->arg[0]->dtype)) return narrowed(g, from);
  const Expr *load = widened(e);
  if (!load || cs_memory(g, load->u.buffer)->is_variable) return NULL;
  DType t = dtype_elem(load->dtype);
  const char *name = cs_fmt(g, "widen_%s", cs_suffix(g, t));
  if (cs_needs(g, name))
    two_bodies(g, cs_fmt(g, "%s %s(const %s *a)", quad(g), name, cs_type(g, t)),
               cs_fmt(g, "return (%s)vldr%cq_%c32(a);", quad(g), size_letter(t), sign_letter(t)),
               cs_fmt(g, "return (%s){a[0], a[1], a[2], a[3]};", quad(g)));
  return cs_fmt(g, "%s(%s)", name, cs_address(g, load->u.buffer, load->arg[0]));
}

/* Of four int32 to narrower neighbours; false: the statement is another one. */
bool cs_quad_store(Cgen *g, Stmt *s)
{
  const Expr *value = s->u.store.value;
  DType t = dtype_elem(value->dtype);
  bool narrow = value->kind == E_CAST && is_quad(value->arg[0]->dtype) && dtype_is_int(t) && t.bits <= 16;
  if (!g->dialect->quads || !narrow || s->u.store.mask || cs_memory(g, s->u.store.buffer)->is_variable) return false;
  const char *name = cs_fmt(g, "narrow_%s", cs_suffix(g, t));
  const char *type = cs_type(g, t);
  if (cs_needs(g, name))
    two_bodies(
        g, cs_fmt(g, "void %s(%s *to, %s a)", name, type, quad(g)),
        cs_fmt(g, "vstr%cq_%c32(to, (%sint32x4_t)a);", size_letter(t), sign_letter(t), t.code == DT_UINT ? "u" : ""),
        cs_fmt(g, "for (int i = 0; i < 4; i++) to[i] = (%s)a[i];", type));
  cs_line(g, "%s(%s, %s);", name, cs_address(g, s->u.store.buffer, s->u.store.index[0]), cs_text(g, value->arg[0]));
  return true;
}

static const char *quad_text(Cgen *g, const Expr *e)
{
  return e->dtype.lanes == QUAD ? cs_text(g, e) : cs_splat(g, dtype_lanes(DT_I32, QUAD), cs_text(g, e));
}

/* A function of two quads by its Helium instruction, or lane by lane. */
static const char *pair_function(Cgen *g, const char *name, const char *helium, const char *lane)
{
  if (!cs_needs(g, name)) return name;
  const char *T = quad(g);
  Text list = text_new(scratch(g->ctx));
  for (int i = 0; i < QUAD; i++) {
    text_add(&list, i ? ", " : "");
    text_printf(&list, lane, i, i);
  }
  two_bodies(g, cs_fmt(g, "%s %s(%s a, %s b)", T, name, T, T), helium,
             cs_fmt(g, "return (%s){%s};", T, text_str(&list)));
  return name;
}

const char *cs_quad_min_max(Cgen *g, const Expr *e)
{
  if (!g->dialect->quads || !is_quad(e->dtype)) return NULL;
  const char *which = e->kind == E_MIN ? "min" : "max";
  const char *one = cs_helper_of(g, which, DT_I32);
  const char *name = pair_function(g, cs_fmt(g, "%s_quad", which),
                                   cs_fmt(g, "return (%s)v%sq_s32((int32x4_t)a, (int32x4_t)b);", quad(g), which),
                                   cs_fmt(g, "%s(a[%%d], b[%%d])", one));
  return cs_fmt(g, "%s(%s, %s)", name, quad_text(g, e->arg[0]), quad_text(g, e->arg[1]));
}

/* round(x * y * 2^-31), halves up. */
const char *cs_quad_multiply(Cgen *g, const Expr *e)
{
  if (!g->dialect->quads || !is_quad(e->dtype)) return NULL;
  const char *one = cs_helper_of(g, "multiply_shift", DT_I32);
  const char *name =
      pair_function(g, "multiply_quad", cs_fmt(g, "return (%s)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b);", quad(g)),
                    cs_fmt(g, "%s(a[%%d], b[%%d], 31, 0)", one));
  return cs_fmt(g, "%s(%s, %s)", name, quad_text(g, e->arg[0]), quad_text(g, e->arg[1]));
}

/* a * 2^-b, halves away from zero: Helium's shift has halves up, so what is below zero is one less first. */
const char *cs_quad_round_shift(Cgen *g, const Expr *e)
{
  if (!g->dialect->quads || !is_quad(e->dtype)) return NULL;
  const char *one = "round_shift_i32";
  if (cs_needs(g, one))
    cs_helper(g,
              "int32_t %s(int32_t x, int32_t n)\n{\n  const int32_t mask = (int32_t)((1u << (n & 31)) - 1u);\n"
              "  return (x >> (n & 31)) + ((x & mask) > (mask >> 1) + (x < 0));\n}",
              one);
  const char *name = pair_function(
      g, "round_shift_quad",
      "const int32x4_t left = vnegq_s32(vandq_s32((int32x4_t)b, vdupq_n_s32(31)));\n"
      "  const int32x4_t less = vqaddq_s32((int32x4_t)a, vshrq_n_s32(vandq_s32((int32x4_t)a, left), 31));\n"
      "  return (i32x4)vrshlq_s32(less, left);",
      cs_fmt(g, "%s(a[%%d], b[%%d])", one));
  return cs_fmt(g, "%s(%s, %s)", name, quad_text(g, e->arg[0]), quad_text(g, e->arg[1]));
}
