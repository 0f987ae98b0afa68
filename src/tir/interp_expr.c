/* interp_expr.c: expressions for the interpreter.
 *
 * In: expressions.  Out: nodes, one per distinct expression, whose eval function
 * gives the value of a lane as int64 (integers, bools, pointers) or double
 * (floats).  The common dtypes have functions of their own; everything else goes
 * through the value functions of expr.h, which say what it means. */
#include "tir/interp.h"

#include <math.h>

Value interp_value_of(DType t, Slot s)
{
  Value v = {.dtype = dtype_elem(t)};
  if (dtype_is_float(t)) v.f = s.f;
  else v.i = s.i;
  return v;
}

Slot interp_slot_of(Value v)
{
  Slot s;
  if (dtype_is_float(v.dtype)) s.f = v.f;
  else s.i = v.i;
  return s;
}

Slot interp_node_slot(Run *r, const Node *n, int lane)
{
  Slot s;
  if (dtype_is_float(n->expr->dtype)) s.f = node_float(r, n, lane);
  else s.i = node_int(r, n, lane);
  return s;
}

Value interp_node_value(Run *r, const Node *n, int lane)
{
  return interp_value_of(n->expr->dtype, interp_node_slot(r, n, lane));
}

/* ---- leaves ------------------------------------------------------------------------ */

static int64_t imm_i(Run *r, const Node *n, int lane)
{
  (void)r, (void)lane;
  return n->imm.i;
}
static double imm_f(Run *r, const Node *n, int lane)
{
  (void)r, (void)lane;
  return n->imm.f;
}
static int64_t var_i(Run *r, const Node *n, int lane)
{
  (void)lane;
  return r->env[n->slot].i;
}
static double var_f(Run *r, const Node *n, int lane)
{
  (void)lane;
  return r->env[n->slot].f;
}
static int64_t lanes_i(Run *r, const Node *n, int lane) { return r->env[n->slot + lane].i; }
static double lanes_f(Run *r, const Node *n, int lane) { return r->env[n->slot + lane].f; }

static int64_t no_value(Run *r, const Node *n, int lane)
{
  (void)lane;
  const Expr *e = n->expr;
  if (e->kind == E_CALL && e->nargs && e->arg[0]->kind == E_STR)
    raise(r->ctx, ERR_UNSUPPORTED, NOWHERE, "interpreter: cannot call '%s' (%s); compile the function to run it",
          e->arg[0]->u.str, intrin_info(e->u.intrin)->name);
  raise(r->ctx, ERR_UNSUPPORTED, NOWHERE, "interpreter: '%s' has no value here", expr_str_of(scratch(r->ctx), e));
}
static double no_value_f(Run *r, const Node *n, int lane) { return (double)no_value(r, n, lane); }

static int64_t unbound(Run *r, const Node *n, int lane)
{
  (void)lane;
  raise(r->ctx, ERR_TYPE, NOWHERE, "variable '%s' is used where nothing binds it", n->expr->u.var->name);
}
static double unbound_f(Run *r, const Node *n, int lane) { return (double)unbound(r, n, lane); }

/* ---- integer and float arithmetic ----------------------------------------------------- */

#define A_I node_int(r, n->a, lane)
#define B_I node_int(r, n->b, lane)
#define A_F node_float(r, n->a, lane)
#define B_F node_float(r, n->b, lane)
#define INT_OP(name, T, U, op) \
  static int64_t name(Run *r, const Node *n, int lane) { return (T)((U)A_I op(U) B_I); }
#define INT_CMP(name, op) \
  static int64_t name(Run *r, const Node *n, int lane) { return A_I op B_I; }
#define FLOAT_OP(name, T, op) \
  static double name(Run *r, const Node *n, int lane) { return (T)(A_F op B_F); }
#define FLOAT_CMP(name, op) \
  static int64_t name(Run *r, const Node *n, int lane) { return A_F op B_F; }

INT_OP(add_i32, int32_t, uint64_t, +)
INT_OP(sub_i32, int32_t, uint64_t, -)
INT_OP(mul_i32, int32_t, uint64_t, *)
INT_OP(add_i64, int64_t, uint64_t, +)
INT_OP(sub_i64, int64_t, uint64_t, -)
INT_OP(mul_i64, int64_t, uint64_t, *)
INT_CMP(eq_i, ==)
INT_CMP(ne_i, !=)
INT_CMP(lt_i, <)
INT_CMP(le_i, <=)
INT_CMP(gt_i, >)
INT_CMP(ge_i, >=)
FLOAT_OP(add_f32, float, +)
FLOAT_OP(sub_f32, float, -)
FLOAT_OP(mul_f32, float, *)
FLOAT_OP(div_f32, float, /)
FLOAT_OP(add_f64, double, +)
FLOAT_OP(sub_f64, double, -)
FLOAT_OP(mul_f64, double, *)
FLOAT_OP(div_f64, double, /)
FLOAT_CMP(eq_f, ==)
FLOAT_CMP(ne_f, !=)
FLOAT_CMP(lt_f, <)
FLOAT_CMP(le_f, <=)
FLOAT_CMP(gt_f, >)
FLOAT_CMP(ge_f, >=)

static int64_t and_i(Run *r, const Node *n, int lane) { return A_I && B_I; }
static int64_t or_i(Run *r, const Node *n, int lane) { return A_I || B_I; }
static int64_t not_i(Run *r, const Node *n, int lane) { return !A_I; }

static Value binary_value(Run *r, const Node *n, int lane)
{
  Value out;
  if (!expr_eval_binary((ExprKind)n->expr->kind, interp_node_value(r, n->a, lane), interp_node_value(r, n->b, lane),
                        &out))
    raise(r->ctx, ERR_ARGUMENT, NOWHERE, "division by zero in '%s'", expr_str_of(scratch(r->ctx), n->expr));
  return out;
}
static int64_t binary_i(Run *r, const Node *n, int lane) { return binary_value(r, n, lane).i; }
static double binary_f(Run *r, const Node *n, int lane) { return binary_value(r, n, lane).f; }

/* ---- casts, selection, vectors ------------------------------------------------------------ */

static int64_t cast_i(Run *r, const Node *n, int lane)
{
  return value_cast(interp_node_value(r, n->a, lane), dtype_elem(n->expr->dtype)).i;
}
static double cast_f(Run *r, const Node *n, int lane)
{
  return value_cast(interp_node_value(r, n->a, lane), dtype_elem(n->expr->dtype)).f;
}

static int64_t select_i(Run *r, const Node *n, int lane)
{
  bool take = A_I;
  int64_t x = node_int(r, n->b, lane);
  int64_t y = node_int(r, n->c, lane);
  return take ? x : y;
}
static double select_f(Run *r, const Node *n, int lane)
{
  bool take = A_I;
  double x = node_float(r, n->b, lane);
  double y = node_float(r, n->c, lane);
  return take ? x : y;
}
static int64_t if_i(Run *r, const Node *n, int lane) { return node_int(r, A_I ? n->b : n->c, lane); }
static double if_f(Run *r, const Node *n, int lane) { return node_float(r, A_I ? n->b : n->c, lane); }

static int64_t same_i(Run *r, const Node *n, int lane) { return A_I; }
static double same_f(Run *r, const Node *n, int lane) { return A_F; }
static int64_t splat_i(Run *r, const Node *n, int lane)
{
  (void)lane;
  return node_int(r, n->a, 0);
}
static double splat_f(Run *r, const Node *n, int lane)
{
  (void)lane;
  return node_float(r, n->a, 0);
}
static int64_t ramp_i(Run *r, const Node *n, int lane)
{
  uint64_t base = (uint64_t)node_int(r, n->a, 0);
  uint64_t stride = (uint64_t)node_int(r, n->b, 0);
  return value_int(dtype_elem(n->expr->dtype), (int64_t)(base + stride * (uint64_t)lane)).i;
}

static void bind_let(Run *r, const Node *n)
{
  for (int i = 0; i < n->a->expr->dtype.lanes; i++) r->env[n->slot + i] = interp_node_slot(r, n->a, i);
}
static int64_t let_i(Run *r, const Node *n, int lane)
{
  bind_let(r, n);
  return B_I;
}
static double let_f(Run *r, const Node *n, int lane)
{
  bind_let(r, n);
  return B_F;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static Value math_value(Run *r, const Node *n, int lane)
{
  Value arg[32], out; /* dot takes the most */
  for (int i = 0; i < n->nargs; i++) arg[i] = interp_node_value(r, n->arg[i], lane);
  intrin_eval(n->expr->u.intrin, dtype_elem(n->expr->dtype), n->nargs, arg, &out);
  return out;
}
static int64_t math_i(Run *r, const Node *n, int lane) { return math_value(r, n, lane).i; }
static double math_f(Run *r, const Node *n, int lane) { return math_value(r, n, lane).f; }

static Value sum_value(Run *r, const Node *n)
{
  Value sum = interp_node_value(r, n->a, 0);
  for (int i = 1; i < n->a->expr->dtype.lanes; i++) expr_eval_binary(E_ADD, sum, interp_node_value(r, n->a, i), &sum);
  return sum;
}
static int64_t sum_i(Run *r, const Node *n, int lane)
{
  (void)lane;
  return sum_value(r, n).i;
}
static double sum_f(Run *r, const Node *n, int lane)
{
  (void)lane;
  return sum_value(r, n).f;
}

/* The same bytes read as another dtype, also with another number of lanes. */
static Value reinterpret_value(Run *r, const Node *n, int lane)
{
  DType to = dtype_elem(n->expr->dtype);
  DType from = n->a->expr->dtype;
  int size = dtype_bytes(to);
  int step = dtype_bytes(from);
  unsigned char bytes[8] = {0};
  unsigned char source[8] = {0};
  int64_t held = -1;
  if (n->expr->dtype.lanes == 1) lane = 0;
  for (int i = 0; i < size; i++) {
    int64_t at = (int64_t)lane * size + i;
    if (at / step >= from.lanes) break;
    if (at / step != held) {
      held = at / step;
      value_store(interp_node_value(r, n->a, (int)held), source);
    }
    bytes[i] = source[at % step];
  }
  return value_load(to, bytes);
}
static int64_t reinterpret_i(Run *r, const Node *n, int lane) { return reinterpret_value(r, n, lane).i; }
static double reinterpret_f(Run *r, const Node *n, int lane) { return reinterpret_value(r, n, lane).f; }

static int64_t return_i(Run *r, const Node *n, int lane)
{
  int64_t status = dtype_is_int(n->a->expr->dtype) ? node_int(r, n->a, lane) : 0;
  if (status) raise(r->ctx, ERR_CALLBACK, NOWHERE, "the function returned status %" PRId64, status);
  r->returned = true;
  return 0;
}

static int64_t nothing_i(Run *r, const Node *n, int lane)
{
  (void)r, (void)n, (void)lane;
  return 0;
}

/* ---- loads -------------------------------------------------------------------------------------- */

_Noreturn static void out_of_bounds(Run *r, const BufNode *b, int dim, int64_t index, int64_t extent)
{
  raise(r->ctx, ERR_BOUNDS, NOWHERE, "buffer '%s': index %d is %" PRId64 ", outside of [0, %" PRId64 ")",
        b->buffer->name, dim, index, extent);
}

/* The plain case: sizes known, nothing between the elements. */
static char *fixed_address(Run *r, const BufNode *b, const Node *const *index, int lane)
{
  int64_t at = 0;
  for (int d = 0; d < b->ndim; d++) {
    int64_t i = node_int(r, index[d], lane);
    if ((uint64_t)i >= (uint64_t)b->fixed[d]) out_of_bounds(r, b, d, i, b->fixed[d]);
    at = at * b->fixed[d] + i;
  }
  const Mem *mem = r->env[b->data].mem;
  if (!mem || at * b->size < mem->lo || at * b->size > mem->hi - b->size)
    raise(r->ctx, ERR_BOUNDS, NOWHERE, "buffer '%s': element %" PRId64 " lies outside of the memory that it views",
          b->buffer->name, at);
  return mem->data + at * b->size;
}

char *interp_buffer_address(Run *r, const BufNode *b, const Node *const *index, int lane)
{
  if (b->fixed) return fixed_address(r, b, index, lane);
  int64_t at = b->offset ? node_int(r, b->offset, 0) : 0;
  int64_t row = 0;
  int64_t step, bytes;
  int wide = b->buffer->dtype.lanes;
  int whole = b->size * wide;
  bool lost = false; /* an offset that does not fit 64 bits is outside of any memory */
  for (int d = 0; d < b->ndim; d++) {
    int64_t i = node_int(r, index[d], lane / wide);
    int64_t n = node_int(r, b->shape[d], 0);
    if (i < 0 || i >= n) out_of_bounds(r, b, d, i, n);
    if (b->strides) lost |= !int_mul(i, node_int(r, b->strides[d], 0), &step) || !int_add(at, step, &at);
    else lost |= !int_mul(row, n, &row) || !int_add(row, i, &row);
  }
  const Mem *mem = r->env[b->data].mem;
  if (lost || !int_add(at, row, &at) || !int_mul(at, whole, &bytes) || !mem || bytes < mem->lo ||
      bytes > mem->hi - whole)
    raise(r->ctx, ERR_BOUNDS, NOWHERE, "buffer '%s': element %" PRId64 " lies outside of the memory that it views",
          b->buffer->name, at);
  return mem->data + bytes + (int64_t)(lane % wide) * b->size;
}

#define LOAD_INT(name, T)                                                 \
  static int64_t name(Run *r, const Node *n, int lane)                    \
  {                                                                       \
    T x;                                                                  \
    memcpy(&x, interp_buffer_address(r, n->buf, n->arg, lane), sizeof x); \
    return (int64_t)x;                                                    \
  }
#define LOAD_FLOAT(name, T)                                               \
  static double name(Run *r, const Node *n, int lane)                     \
  {                                                                       \
    T x;                                                                  \
    memcpy(&x, interp_buffer_address(r, n->buf, n->arg, lane), sizeof x); \
    return (double)x;                                                     \
  }
LOAD_INT(load_i8, int8_t)
LOAD_INT(load_u8, uint8_t)
LOAD_INT(load_i32, int32_t)
LOAD_INT(load_i64, int64_t)
LOAD_FLOAT(load_f32, float)
LOAD_FLOAT(load_f64, double)

static int64_t load_i(Run *r, const Node *n, int lane)
{
  return value_load(dtype_elem(n->expr->dtype), interp_buffer_address(r, n->buf, n->arg, lane)).i;
}
static double load_f(Run *r, const Node *n, int lane)
{
  return value_load(dtype_elem(n->expr->dtype), interp_buffer_address(r, n->buf, n->arg, lane)).f;
}

/* ---- nodes used more than once -------------------------------------------------------------------- */

static const Slot *cached_slot(Run *r, const Node *n, int lane)
{
  struct Cached *c = n->cached;
  if (n->expr->dtype.lanes == 1) lane = 0;
  if (c->stamp != r->stamp || c->lane != lane) {
    Slot s = interp_node_slot(r, n->inner, lane);
    *c = (struct Cached){r->stamp, lane, s};
  }
  return &c->value;
}
static int64_t cached_i(Run *r, const Node *n, int lane) { return cached_slot(r, n, lane)->i; }
static double cached_f(Run *r, const Node *n, int lane) { return cached_slot(r, n, lane)->f; }

/* ---- compiling -------------------------------------------------------------------------------------- */

int interp_compile_var(Compiler *c, const Var *v)
{
  intptr_t at = (intptr_t)map_get(&c->slots, v);
  if (at) return (int)at - 1;
  int slot = c->nslot;
  c->nslot += v->dtype.lanes;
  map_put(c->arena, &c->slots, v, (void *)(intptr_t)(slot + 1));
  return slot;
}

const Node *interp_compile_slot(Compiler *c, int slot)
{
  Node *n = arena_new_of(c->arena, Node);
  *n = (Node){.expr = expr_int(c->m, DT_I64, 0), .slot = slot, .eval.i = var_i};
  return n;
}

bool interp_compile_has_var(const Compiler *c, const Var *v) { return map_has(&c->slots, v); }

static const Node **compile_list(Compiler *c, int n, const Expr *const *v)
{
  const Node **out = arena_array(c->arena, const Node *, n);
  for (int i = 0; i < n; i++) out[i] = interp_compile_expr(c, v[i]);
  return out;
}

/* Constant sizes whose product is far from overflow; NULL if they are not. */
static const int64_t *fixed_shape(Compiler *c, const Buffer *b)
{
  int64_t *shape = arena_array(c->arena, int64_t, b->ndim);
  int64_t n = 64;
  if (b->strides || b->elem_offset || b->dtype.lanes != 1) return NULL;
  for (int d = 0; d < b->ndim; d++) {
    if (b->shape[d]->kind != E_INT || b->shape[d]->u.i < 0 || b->shape[d]->u.i == INT64_MAX ||
        !int_mul(n, b->shape[d]->u.i + 1, &n))
      return NULL;
    shape[d] = b->shape[d]->u.i;
  }
  return shape;
}

const BufNode *interp_compile_buffer(Compiler *c, const Buffer *b)
{
  BufNode *node = map_get(&c->buffers, b);
  if (node) return node;
  node = arena_new_of(c->arena, BufNode);
  *node =
      (BufNode){.buffer = b, .data = interp_compile_var(c, b->data), .ndim = b->ndim, .size = dtype_bytes(b->dtype)};
  node->shape = compile_list(c, b->ndim, b->shape);
  node->fixed = fixed_shape(c, b);
  if (b->strides) node->strides = compile_list(c, b->ndim, b->strides);
  if (b->elem_offset) node->offset = interp_compile_expr(c, b->elem_offset);
  map_put(c->arena, &c->buffers, b, node);
  return node;
}

typedef int64_t (*IntFn)(Run *, const Node *, int);
typedef double (*FloatFn)(Run *, const Node *, int);

static void set_fn(Node *n, IntFn i, FloatFn f)
{
  if (dtype_is_float(n->expr->dtype)) n->eval.f = f;
  else n->eval.i = i;
}

static void compile_arith(Node *n)
{
  /* clang-format off */
  static const struct { uint8_t kind; IntFn i32, i64; FloatFn f32, f64; } ops[] = {
      {E_ADD, add_i32, add_i64, add_f32, add_f64},
      {E_SUB, sub_i32, sub_i64, sub_f32, sub_f64},
      {E_MUL, mul_i32, mul_i64, mul_f32, mul_f64},
      {E_DIV, binary_i, binary_i, div_f32, div_f64},
  };
  /* clang-format on */
  DType t = n->expr->dtype;
  set_fn(n, binary_i, binary_f);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    if (ops[i].kind != n->expr->kind) continue;
    if (t.code == DT_INT && t.bits == 32) n->eval.i = ops[i].i32;
    if (t.code == DT_INT && t.bits == 64) n->eval.i = ops[i].i64;
    if (t.code == DT_FLOAT && t.bits == 32) n->eval.f = ops[i].f32;
    if (t.code == DT_FLOAT && t.bits == 64) n->eval.f = ops[i].f64;
  }
}

static void compile_compare(Node *n)
{
  static const IntFn ints[] = {eq_i, ne_i, lt_i, le_i, gt_i, ge_i};
  static const IntFn floats[] = {eq_f, ne_f, lt_f, le_f, gt_f, ge_f};
  DType t = n->a->expr->dtype;
  int op = n->expr->kind - E_EQ;
  if (dtype_is_float(t)) n->eval.i = floats[op];
  else n->eval.i = t.code == DT_UINT && t.bits == 64 ? binary_i : ints[op];
}

static void compile_load(Compiler *c, Node *n)
{
  DType t = n->expr->dtype;
  n->buf = interp_compile_buffer(c, n->expr->u.buffer);
  set_fn(n, load_i, load_f);
  if (t.code == DT_INT && t.bits == 8) n->eval.i = load_i8;
  if (t.code == DT_UINT && t.bits == 8) n->eval.i = load_u8;
  if (t.code == DT_INT && t.bits == 32) n->eval.i = load_i32;
  if (dtype_is_int(t) && t.bits == 64) n->eval.i = load_i64;
  if (t.code == DT_FLOAT && t.bits == 32) n->eval.f = load_f32;
  if (t.code == DT_FLOAT && t.bits == 64) n->eval.f = load_f64;
}

static void compile_call(Node *n)
{
  Intrin in = n->expr->u.intrin;
  if (in == IN_IF_THEN_ELSE) set_fn(n, if_i, if_f);
  else if (in == IN_LIKELY) set_fn(n, same_i, same_f);
  else if (in == IN_VECTOR_SUM) set_fn(n, sum_i, sum_f);
  else if (in == IN_REINTERPRET && n->a->expr->dtype.code != DT_HANDLE) set_fn(n, reinterpret_i, reinterpret_f);
  else if (in == IN_RET) set_fn(n, return_i, no_value_f);
  else if (in == IN_SYNC || in == IN_PREFETCH || in == IN_PARALLEL_SLOT || in == IN_ASSUME)
    set_fn(n, nothing_i, no_value_f);
  else if (intrin_is_math(in)) set_fn(n, math_i, math_f);
  else set_fn(n, no_value, no_value_f);
}

/* Pointers come from binders and pass through choices; nothing computes one. */
static bool makes_pointer(const Expr *e)
{
  bool passes = e->kind == E_VAR || e->kind == E_SELECT || e->kind == E_LET ||
                (e->kind == E_CALL && (e->u.intrin == IN_IF_THEN_ELSE || e->u.intrin == IN_LIKELY));
  return e->dtype.code == DT_HANDLE && !passes;
}

static void compile_node(Compiler *c, Node *n)
{
  const Expr *e = n->expr;
  if (makes_pointer(e)) {
    n->eval.i = no_value;
    return;
  }
  switch ((ExprKind)e->kind) {
  case E_INT: n->imm.i = e->u.i, n->eval.i = imm_i; break;
  case E_FLOAT: n->imm.f = e->u.f, n->eval.f = imm_f; break;
  case E_STR: n->eval.i = no_value; break;
  case E_VAR:
    n->slot = interp_compile_has_var(c, e->u.var) ? interp_compile_var(c, e->u.var) : -1;
    if (n->slot < 0) set_fn(n, unbound, unbound_f);
    else if (e->dtype.lanes > 1) set_fn(n, lanes_i, lanes_f);
    else set_fn(n, var_i, var_f);
    break;
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX: compile_arith(n); break;
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE: compile_compare(n); break;
  case E_AND: n->eval.i = and_i; break;
  case E_OR: n->eval.i = or_i; break;
  case E_NOT: n->eval.i = not_i; break;
  case E_CAST: set_fn(n, cast_i, cast_f); break;
  case E_SELECT: set_fn(n, select_i, select_f); break;
  case E_LET:
    n->slot = interp_compile_var(c, e->u.var);
    set_fn(n, let_i, let_f);
    break;
  case E_LOAD: compile_load(c, n); break;
  case E_CALL: compile_call(n); break;
  case E_RAMP: n->eval.i = ramp_i; break;
  case E_BROADCAST: set_fn(n, splat_i, splat_f); break;
  case E_REDUCE: set_fn(n, no_value, no_value_f); break;
  case E_NKINDS: break;
  }
}

static const Node *wrap_cached(Compiler *c, const Node *inner)
{
  Node *n = arena_new_of(c->arena, Node);
  n->expr = inner->expr;
  n->inner = inner;
  n->cached = arena_new_of(c->arena, struct Cached);
  set_fn(n, cached_i, cached_f);
  return n;
}

static bool is_cheap(const Expr *e)
{
  for (int i = 0; i < e->nargs; i++)
    if (e->arg[i]->nargs) return false;
  return true;
}

static const Node *compile_rec(Compiler *c, const Expr *e)
{
  const Node *done = map_get(&c->nodes, e);
  if (done) return done;
  if (e->kind == E_LET) interp_compile_var(c, e->u.var);
  Node *n = arena_new_of(c->arena, Node);
  n->expr = e;
  n->nargs = e->nargs;
  n->arg = arena_array(c->arena, const Node *, e->nargs);
  for (int i = 0; i < e->nargs; i++) n->arg[i] = compile_rec(c, e->arg[i]);
  n->a = e->nargs > 0 ? n->arg[0] : NULL;
  n->b = e->nargs > 1 ? n->arg[1] : NULL;
  n->c = e->nargs > 2 ? n->arg[2] : NULL;
  compile_node(c, n);
  const Node *out = n;
  if ((intptr_t)map_get(&c->uses, e) > 1 && !is_cheap(e) && !map_has(&c->local, e) && expr_is_pure(e))
    out = wrap_cached(c, n);
  map_put(c->arena, &c->nodes, e, (void *)(uintptr_t)out);
  return out;
}

/* Counts uses, and finds what hangs on a let inside the expression. */
static void count_uses(void *env, const Expr *e)
{
  Compiler *c = env;
  for (int i = 0; i < e->nargs; i++) {
    map_put(c->arena, &c->uses, e->arg[i], (void *)((intptr_t)map_get(&c->uses, e->arg[i]) + 1));
    if (map_has(&c->local, e->arg[i])) map_put(c->arena, &c->local, e, c);
  }
}

static void note_let(void *env, const Expr *e)
{
  Compiler *c = env;
  if (e->kind == E_LET) map_put(c->arena, &c->local, e->u.var->expr, c);
}

const Node *interp_compile_expr(Compiler *c, const Expr *e)
{
  /* the shape of a buffer may be compiled in the midst of an expression */
  Map nodes = c->nodes;
  Map uses = c->uses;
  Map local = c->local;
  c->nodes = c->uses = c->local = (Map){0};
  if (e->kinds >> E_LET & 1) expr_visit(c->m->ctx, e, note_let, c);
  if (e->nargs) expr_visit(c->m->ctx, e, count_uses, c);
  const Node *n = compile_rec(c, e);
  c->nodes = nodes;
  c->uses = uses;
  c->local = local;
  return n;
}
