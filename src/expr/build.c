/* build.c: constructors of expressions.
 *
 * Each checks its arguments' types, brings binary operands to one dtype, and
 * interns the node: asking twice for the same node gives the same pointer. */
#include "expr/expr.h"

#include <math.h>

const char *expr_kind_name(ExprKind kind)
{
  static const char *const names[] = {
#define X(id, name, op, prec) name,
    EXPR_KINDS(X)
#undef X
  };
  return names[kind];
}

static const IntrinInfo intrins[] = {
#define INTRIN(id, name, lo, hi, flags, doc) {name, lo, hi, flags, doc},
#include "expr/intrin.def"
#undef INTRIN
};
const IntrinInfo *intrin_info(Intrin in) { return &intrins[in]; }

bool intrin_find(const char *name, Intrin *out)
{
  for (int i = 0; i < IN_COUNT; i++)
    if (!strcmp(intrins[i].name, name)) return *out = (Intrin)i, true;
  return false;
}

/* ---- interning ----------------------------------------------------------------- */

static bool same_node(const Expr *e, ExprKind kind, DType t, uint64_t bits, int n, const Expr *const *arg)
{
  if (e->kind != kind || !dtype_eq(e->dtype, t) || e->nargs != n) return false;
  if (e->u.bits != bits) return false;
  for (int i = 0; i < n; i++)
    if (e->arg[i] != arg[i]) return false;
  return true;
}

static void grow_table(Module *m)
{
  uint32_t n = m->ntable ? m->ntable * 2 : 256;
  const Expr **table = arena_array(m->arena, const Expr *, n);
  for (uint32_t i = 0; i < m->ntable; i++) {
    if (!m->table[i]) continue;
    uint32_t at = m->table[i]->hash & (n - 1);
    while (table[at]) at = (at + 1) & (n - 1);
    table[at] = m->table[i];
  }
  m->table = table;
  m->ntable = n;
}

/* Sets the arguments and what can be told from them without walking again. */
static void summarize(Expr *e, int n, const Expr *const *arg)
{
  e->kinds = 1u << e->kind;
  e->depth = 1;
  e->pure = e->kind != E_CALL || intrins[e->u.intrin].flags & INF_PURE;
  if (e->kind == E_VAR) e->uses = 1ull << (e->u.var->id & 63);
  if (e->kind == E_LOAD) e->uses = 1ull << (e->u.buffer->id & 63);
  for (int i = 0; i < n; i++) {
    e->arg[i] = arg[i];
    e->kinds |= arg[i]->kinds;
    e->pure &= arg[i]->pure;
    e->uses |= arg[i]->uses;
    if (arg[i]->depth >= e->depth) e->depth = arg[i]->depth + 1;
  }
}

static const Expr *intern(Module *m, ExprKind kind, DType t, uint64_t bits, int n, const Expr *const *arg)
{
  uint64_t h = hash_mix((uint64_t)kind << 32 | (uint64_t)t.code << 24 | (uint64_t)t.bits << 16 | t.lanes, (uint64_t)n);
  h = hash_mix(h, bits);
  for (int i = 0; i < n; i++) {
    h = hash_mix(h, arg[i]->id);
    if (arg[i]->depth >= EXPR_MAX_DEPTH)
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "an expression of more than %d levels; add or multiply long lists in pairs, or give parts of it names "
            "(te.compute, T.let)",
            EXPR_MAX_DEPTH);
  }
  if (m->nused * 2 >= m->ntable) grow_table(m);
  uint32_t at = (uint32_t)h & (m->ntable - 1);
  for (; m->table[at]; at = (at + 1) & (m->ntable - 1))
    if (m->table[at]->hash == (uint32_t)h && same_node(m->table[at], kind, t, bits, n, arg)) return m->table[at];
  Expr *e = arena_alloc(m->arena, sizeof *e + (size_t)n * sizeof *arg);
  e->kind = (uint8_t)kind;
  e->dtype = t;
  e->hash = (uint32_t)h;
  e->nargs = n;
  e->u.bits = bits;
  summarize(e, n, arg);
  e->id = m->next_id++;
  m->table[at] = e;
  m->nused++;
  return e;
}

static uint64_t ptr_bits(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ---- leaves ---------------------------------------------------------------------- */

const Var *var_new(Module *m, const char *name, DType t, VarKind kind)
{
  if (dtype_is_string(t)) raise(m->ctx, ERR_TYPE, NOWHERE, "variable '%s': expressions do not hold strings", name);
  Var *v = arena_new_of(m->arena, Var);
  *v = (Var){arena_strdup(m->arena, name), t, kind, m->next_id++, ctx_number(m->ctx), NULL, NULL, 0};
  v->expr = intern(m, E_VAR, t, ptr_bits(v), 0, NULL);
  if (m->origins) map_put(m->arena, m->origins, (const void *)(uintptr_t)v->origin, v);
  return v;
}

const Var *var_copy(Module *m, const Var *old)
{
  const Var *known = m->origins ? map_get(m->origins, (const void *)(uintptr_t)old->origin) : NULL;
  if (known) return known;
  Var *v = (Var *)(uintptr_t)var_new(m, old->name, old->dtype, old->kind);
  v->origin = old->origin;
  v->likely = old->likely;
  if (m->origins) map_put(m->arena, m->origins, (const void *)(uintptr_t)v->origin, v);
  return v;
}

void var_set_likely(const Var *v, int64_t value) { ((Var *)(uintptr_t)v)->likely = value; }

const Buffer *buffer_new(Module *m, const char *name, DType t, int ndim, const Expr *const *shape,
                         const Expr *const *strides, const Expr *elem_offset, const char *scope, int align,
                         int offset_factor, const Var *data)
{
  if (dtype_is_string(t)) raise(m->ctx, ERR_TYPE, NOWHERE, "buffer '%s': loop programs do not hold strings", name);
  if (t.code == DT_VOID) raise(m->ctx, ERR_TYPE, NOWHERE, "buffer '%s': its elements need a dtype, void is none", name);
  if (ndim > MAX_RANK)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "buffer '%s' has %d dimensions; there are at most %d", name, ndim,
          MAX_RANK);
  Buffer *b = arena_new_of(m->arena, Buffer);
  b->name = arena_strdup(m->arena, name);
  b->dtype = t;
  b->ndim = ndim;
  b->shape = arena_copy(m->arena, shape, (size_t)ndim * sizeof *shape);
  if (strides) b->strides = arena_copy(m->arena, strides, (size_t)ndim * sizeof *strides);
  for (int i = 0; i < ndim; i++)
    if (!dtype_is_int(shape[i]->dtype) || shape[i]->dtype.lanes != 1)
      raise(m->ctx, ERR_TYPE, NOWHERE, "buffer '%s': dimension %d is %s, not an integer", name, i,
            dtype_name(scratch(m->ctx), shape[i]->dtype));
  b->elem_offset = elem_offset;
  b->scope = scope && *scope ? arena_strdup(m->arena, scope) : "global";
  b->align = align ? align : 64;
  b->offset_factor = offset_factor;
  b->data = data ? data : var_new(m, name, DT_PTR, VAR_PLAIN);
  b->id = m->next_id++;
  return b;
}

const Buffer *buffer_with_scope(Module *m, const Buffer *b, const char *scope)
{
  const Buffer *to = buffer_new(m, b->name, b->dtype, b->ndim, b->shape, b->strides, b->elem_offset, scope, b->align,
                                b->offset_factor, NULL);
  return buffer_with_separators(m, to, b->separators);
}

const Buffer *buffer_with_separators(Module *m, const Buffer *b, uint32_t separators)
{
  if (separators == b->separators) return b;
  Buffer *to = arena_new_of(m->arena, Buffer);
  *to = *b;
  to->separators = separators;
  to->id = m->next_id++;
  return to;
}

const IterVar *itervar_new(Module *m, const Var *var, const Expr *min, const Expr *extent, IterKind kind,
                           const char *thread_tag)
{
  IterVar *iv = arena_new_of(m->arena, IterVar);
  *iv = (IterVar){var, min, extent, kind, thread_tag && *thread_tag ? arena_strdup(m->arena, thread_tag) : NULL};
  ((Var *)(uintptr_t)var)->axis = iv; /* not part of the variable's value: variables stay equal to themselves */
  return iv;
}

static const Expr *splat(Module *m, const Expr *scalar, int lanes)
{
  return lanes == 1 ? scalar : expr_broadcast(m, scalar, lanes);
}

const Expr *expr_int(Module *m, DType t, int64_t i)
{
  DType elem = dtype_elem(t);
  if (!dtype_is_int(t))
    raise(m->ctx, ERR_TYPE, NOWHERE, "an integer literal cannot be %s", dtype_name(scratch(m->ctx), t));
  return splat(m, intern(m, E_INT, elem, (uint64_t)value_int(elem, i).i, 0, NULL), t.lanes);
}

const Expr *expr_i32(Module *m, int64_t i) { return expr_int(m, DT_I32, i); }
const Expr *expr_bool(Module *m, bool b) { return expr_int(m, DT_BOOL, b); }

const Expr *expr_float(Module *m, DType t, double f)
{
  if (!dtype_is_float(t))
    raise(m->ctx, ERR_TYPE, NOWHERE, "a float literal cannot be %s", dtype_name(scratch(m->ctx), t));
  double r = float_round(t, f);
  if (isnan(r)) r = (double)NAN;
  uint64_t bits;
  memcpy(&bits, &r, 8);
  return splat(m, intern(m, E_FLOAT, dtype_elem(t), bits, 0, NULL), t.lanes);
}

const Expr *expr_const(Module *m, DType t, double f)
{
  return dtype_is_float(t) ? expr_float(m, t, f) : expr_int(m, t, value_cast(value_float(DT_F64, f), dtype_elem(t)).i);
}

const Expr *expr_value(Module *m, Value v)
{
  return dtype_is_float(v.dtype) ? expr_float(m, v.dtype, v.f) : expr_int(m, v.dtype, v.i);
}

const Expr *expr_str(Module *m, const char *s)
{
  char *text = strmap_get(&m->strings, s);
  if (!text) {
    text = arena_strdup(m->arena, s);
    strmap_put(m->arena, &m->strings, s, text);
  }
  return intern(m, E_STR, DT_PTR, ptr_bits(text), 0, NULL);
}

/* ---- bringing operands to one dtype -------------------------------------------------- */

static const Expr *convert(Module *m, const Expr *e, DType elem)
{
  DType t = dtype_lanes(elem, e->dtype.lanes);
  if (dtype_eq(e->dtype, t)) return e;
  if (e->kind == E_INT) return dtype_is_float(elem) ? expr_float(m, elem, (double)e->u.i) : expr_int(m, elem, e->u.i);
  if (e->kind == E_FLOAT && dtype_is_float(elem)) return expr_float(m, elem, e->u.f);
  return expr_cast(m, t, e);
}

/* Floats win over integers, wide over narrow, signed over unsigned of equal width;
 * an int32 literal takes the other side's dtype. */
static bool common_dtype(const Expr *a, const Expr *b, DType *out)
{
  DType x = dtype_elem(a->dtype);
  DType y = dtype_elem(b->dtype);
  if (dtype_eq(x, y)) return *out = x, true;
  if (x.code == DT_HANDLE || y.code == DT_HANDLE || x.code == DT_VOID || y.code == DT_VOID) return false;
  if (a->kind == E_INT && dtype_eq(x, DT_I32) && !dtype_is_bool(y)) return *out = y, true;
  if (b->kind == E_INT && dtype_eq(y, DT_I32) && !dtype_is_bool(x)) return *out = x, true;
  bool fx = dtype_is_float(x);
  bool fy = dtype_is_float(y);
  if (fx != fy) return *out = fx ? x : y, true;
  if (fx && x.bits == y.bits) return false; /* float16 and bfloat16: neither holds the other */
  if (x.bits != y.bits) {
    *out = x.bits > y.bits ? x : y;
    if (!fx && x.code != y.code && !dtype_is_bool(x) && !dtype_is_bool(y)) out->code = DT_INT;
    return true;
  }
  *out = DTYPE(DT_INT, x.bits);
  return true;
}

static void match_types(Module *m, const char *what, const Expr **a, const Expr **b)
{
  DType t;
  if (!common_dtype(*a, *b, &t))
    raise(m->ctx, ERR_TYPE, NOWHERE, "%s: %s and %s have no common dtype; cast one of them", what,
          dtype_name(scratch(m->ctx), (*a)->dtype), dtype_name(scratch(m->ctx), (*b)->dtype));
  *a = convert(m, *a, t);
  *b = convert(m, *b, t);
  int la = (*a)->dtype.lanes;
  int lb = (*b)->dtype.lanes;
  if (la == lb) return;
  if (la == 1) *a = expr_broadcast(m, *a, lb);
  else if (lb == 1) *b = expr_broadcast(m, *b, la);
  else raise(m->ctx, ERR_TYPE, NOWHERE, "%s: vectors of %d and %d lanes", what, la, lb);
}

static void want_bool(Module *m, const char *what, const Expr *e)
{
  if (!dtype_is_bool(dtype_elem(e->dtype)))
    raise(m->ctx, ERR_TYPE, NOWHERE, "%s wants a condition, got %s", what, dtype_name(scratch(m->ctx), e->dtype));
}

const Expr *expr_binary(Module *m, ExprKind kind, const Expr *a, const Expr *b)
{
  const char *name = expr_kind_name(kind);
  if (kind < E_ADD || kind > E_OR) BUG(m->ctx, "expr_binary of kind %s", name);
  if (kind == E_AND || kind == E_OR) {
    want_bool(m, name, a);
    want_bool(m, name, b);
  }
  match_types(m, name, &a, &b);
  DType t = a->dtype;
  if (kind >= E_EQ) t = dtype_lanes(DT_BOOL, t.lanes);
  else if (t.code == DT_HANDLE || t.code == DT_VOID)
    raise(m->ctx, ERR_TYPE, NOWHERE, "%s of pointers has no meaning", name);
  if ((kind == E_FLOORDIV || kind == E_FLOORMOD) && dtype_is_float(t)) {
    if (kind == E_FLOORMOD) return expr_sub(m, a, expr_mul(m, expr_binary(m, E_FLOORDIV, a, b), b));
    return expr_call(m, DT_NONE, IN_FLOOR, 1, (const Expr *[]){expr_binary(m, E_DIV, a, b)});
  }
  return intern(m, kind, t, 0, 2, (const Expr *[]){a, b});
}

const Expr *expr_not(Module *m, const Expr *e)
{
  want_bool(m, "not", e);
  return intern(m, E_NOT, e->dtype, 0, 1, &e);
}

const Expr *expr_cast(Module *m, DType t, const Expr *e)
{
  if (t.lanes == 1 && e->dtype.lanes != 1) t.lanes = e->dtype.lanes;
  if (dtype_eq(t, e->dtype)) return e;
  if (e->dtype.lanes == 1 && t.lanes != 1) return expr_broadcast(m, expr_cast(m, dtype_elem(t), e), t.lanes);
  if (t.lanes != e->dtype.lanes || t.code == DT_VOID || e->dtype.code == DT_VOID)
    raise(m->ctx, ERR_TYPE, NOWHERE, "cannot cast %s to %s", dtype_name(scratch(m->ctx), e->dtype),
          dtype_name(scratch(m->ctx), t));
  return intern(m, E_CAST, t, 0, 1, &e);
}

const Expr *expr_select(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  want_bool(m, "select", cond);
  match_types(m, "select", &a, &b);
  if (cond->dtype.lanes != a->dtype.lanes) {
    int lanes = cond->dtype.lanes > a->dtype.lanes ? cond->dtype.lanes : a->dtype.lanes;
    if (cond->dtype.lanes == 1) cond = expr_broadcast(m, cond, lanes);
    else if (a->dtype.lanes == 1) a = expr_broadcast(m, a, lanes), b = expr_broadcast(m, b, lanes);
    else
      raise(m->ctx, ERR_TYPE, NOWHERE, "select: condition of %d lanes, values of %d", cond->dtype.lanes,
            a->dtype.lanes);
  }
  return intern(m, E_SELECT, a->dtype, 0, 3, (const Expr *[]){cond, a, b});
}

const Expr *expr_let(Module *m, const Var *var, const Expr *value, const Expr *body)
{
  if (!dtype_eq(var->dtype, value->dtype))
    raise(m->ctx, ERR_TYPE, NOWHERE, "let '%s' is %s, its value %s", var->name, dtype_name(scratch(m->ctx), var->dtype),
          dtype_name(scratch(m->ctx), value->dtype));
  if (value->dtype.code == DT_VOID)
    raise(m->ctx, ERR_TYPE, NOWHERE, "let '%s': %s gives no value to name", var->name,
          expr_str_of(scratch(m->ctx), value));
  return intern(m, E_LET, body->dtype, ptr_bits(var), 2, (const Expr *[]){value, body});
}

const Expr *expr_load(Module *m, const Buffer *buffer, int n, const Expr *const *index)
{
  if (n != buffer->ndim)
    raise(m->ctx, ERR_SHAPE, NOWHERE, "'%s' has %d dimension%s, %d %s given", buffer->name, buffer->ndim,
          buffer->ndim == 1 ? "" : "s", n, n == 1 ? "index was" : "indices were");
  int lanes = 1;
  for (int i = 0; i < n; i++) {
    if (!dtype_is_int(index[i]->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "'%s': index %d is %s, not an integer", buffer->name, i,
            dtype_name(scratch(m->ctx), index[i]->dtype));
    if (index[i]->dtype.lanes > lanes) lanes = index[i]->dtype.lanes;
  }
  return intern(m, E_LOAD, dtype_lanes(buffer->dtype, buffer->dtype.lanes * lanes), ptr_bits(buffer), n, index);
}

/* ---- intrinsics -------------------------------------------------------------------------- */

static void check_numbers(Module *m, const IntrinInfo *info, int n, const Expr **arg)
{
  bool want_float = info->flags & INF_FLOAT;
  for (int i = 0; i < n; i++)
    if (want_float ? !dtype_is_float(arg[i]->dtype) : !dtype_is_int(arg[i]->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "%s wants %s, argument %d is %s", info->name,
            want_float ? "a float" : "an integer", i + 1, dtype_name(scratch(m->ctx), arg[i]->dtype));
  for (int i = 1; i < n; i++) {
    match_types(m, info->name, &arg[0], &arg[i]);
    if (i > 1) match_types(m, info->name, &arg[1], &arg[i]);
  }
}

static int most_lanes(int n, const Expr *const *arg)
{
  int lanes = 1;
  for (int i = 0; i < n; i++)
    if (arg[i]->dtype.lanes > lanes) lanes = arg[i]->dtype.lanes;
  return lanes;
}

DType intrin_dtype(Intrin in, int n, const Expr *const *arg)
{
  if (in == IN_CLZ) return dtype_lanes(DT_I32, arg[0]->dtype.lanes);
  if (in == IN_BF16_DOT) return dtype_lanes(DT_F32, most_lanes(n, arg));
  if (in == IN_DOT) return dtype_lanes(dtype_is_float(arg[0]->dtype) ? DT_F32 : DT_I32, most_lanes(n, arg));
  if (in == IN_WORD_DOT) return dtype_lanes(DT_I32, most_lanes(n, arg));
  if (in == IN_VECTOR_SUM) return dtype_elem(arg[0]->dtype);
  if (in == IN_PARALLEL_SLOT || in == IN_CALL_PACKED || in == IN_VSCALE || in == IN_UNDEF) return DT_I32;
  if (in == IN_ASSUME) return DT_BOOL;
  if (in == IN_ADDRESS_OF || in == IN_ACCESS_PTR || in == IN_BUFFER_ARG || in == IN_MAKE_SHAPE || in == IN_DICT)
    return DT_PTR;
  if (in == IN_IF_THEN_ELSE && n == 3) return arg[1]->dtype;
  bool builtin = in >= IN_FILL_FRAGMENT && !(intrin_info(in)->flags & INF_TYPED);
  return builtin ? DT_PTR : DT_NONE;
}

/* Both sides of a dot: one dtype each, of at most 16 bits, as many as make a word, or two or four of bytes; all of the
 * most lanes. */
static void check_dot(Module *m, int n, const Expr **arg)
{
  int lanes = most_lanes(n, arg);
  for (int i = 0; i < n; i++) {
    DType t = dtype_elem(arg[i]->dtype);
    bool count = t.bits == 8 ? n == 8 || n == 16 || n == 32 : t.bits == 16 && n == 4;
    bool fits =
        t.bits == arg[0]->dtype.bits && count && dtype_eq(t, dtype_elem(arg[i < n / 2 ? 0 : n / 2]->dtype)) &&
        (dtype_is_int(t) ? dtype_is_int(arg[0]->dtype) : t.code == DT_BFLOAT && arg[0]->dtype.code == DT_BFLOAT);
    if (!fits)
      raise(
          m->ctx, ERR_TYPE, NOWHERE,
          "dot wants four, eight or sixteen bytes or two elements of 16 bits on each side, integers or bfloat16; of %d "
          "arguments, argument %d is %s",
          n, i + 1, dtype_name(scratch(m->ctx), arg[i]->dtype));
    if (arg[i]->dtype.lanes < lanes) arg[i] = expr_broadcast(m, arg[i], lanes);
  }
}

static DType call_dtype(Module *m, DType given, Intrin in, int n, const Expr **arg)
{
  const IntrinInfo *info = &intrins[in];
  if (in == IN_IF_THEN_ELSE) {
    want_bool(m, info->name, arg[0]);
    match_types(m, info->name, &arg[1], &arg[2]);
    return arg[1]->dtype;
  }
  if (info->flags & (INF_FLOAT | INF_INT)) {
    check_numbers(m, info, n, arg);
    return arg[0]->dtype;
  }
  if (info->flags & INF_BOOL) return dtype_lanes(DT_BOOL, arg[0]->dtype.lanes);
  if (info->flags & INF_FIRST) {
    if (arg[0]->dtype.lanes < most_lanes(n, arg)) arg[0] = expr_broadcast(m, arg[0], most_lanes(n, arg));
    return arg[0]->dtype;
  }
  if (in == IN_BF16_DOT)
    for (int i = 0; i < n; i++) {
      DType word = dtype_elem(arg[i]->dtype);
      if (word.code != DT_UINT || (word.bits != 32 && word.bits != 64) || word.bits != arg[0]->dtype.bits)
        raise(m->ctx, ERR_TYPE, NOWHERE,
              "bf16_dot wants pairs as uint32 or fours as uint64 on both sides, argument %d is %s", i + 1,
              dtype_name(scratch(m->ctx), arg[i]->dtype));
      if (arg[i]->dtype.lanes < most_lanes(n, arg)) arg[i] = expr_broadcast(m, arg[i], most_lanes(n, arg));
    }
  if (in == IN_DOT) check_dot(m, n, arg);
  if (in == IN_WORD_DOT)
    for (int i = 0; i < 2; i++)
      if (arg[i]->dtype.lanes < most_lanes(2, arg)) arg[i] = expr_broadcast(m, arg[i], most_lanes(2, arg));
  bool inferred = in == IN_CLZ || in == IN_BF16_DOT || in == IN_DOT || in == IN_WORD_DOT;
  return given.code == DT_VOID || inferred ? intrin_dtype(in, n, arg) : given;
}

const Expr *expr_call(Module *m, DType t, Intrin in, int n, const Expr *const *arg)
{
  const IntrinInfo *info = &intrins[in];
  if (n < info->min_args || (info->max_args >= 0 && n > info->max_args))
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "%s takes %d argument%s, %d given", info->name, info->min_args,
          info->min_args == 1 ? "" : "s", n);
  const Expr *small[8];
  const Expr **args = n <= 8 ? small : arena_array(m->arena, const Expr *, n);
  for (int i = 0; i < n; i++) args[i] = arg[i];
  t = call_dtype(m, t, in, n, args);
  if (in == IN_REINTERPRET && t.bits * t.lanes != args[0]->dtype.bits * args[0]->dtype.lanes)
    raise(m->ctx, ERR_TYPE, NOWHERE, "reinterpret: %s and %s differ in width",
          dtype_name(scratch(m->ctx), args[0]->dtype), dtype_name(scratch(m->ctx), t));
  return intern(m, E_CALL, t, in, n, args);
}

/* ---- vectors and reductions ----------------------------------------------------------------- */

const Expr *expr_ramp(Module *m, const Expr *base, const Expr *stride, int lanes)
{
  if (lanes < 2 || lanes > UINT16_MAX || !(lanes & MAX_LANES))
    raise(m->ctx, ERR_TYPE, NOWHERE, "a ramp has 2 to %d lanes, not %d", MAX_LANES, lanes);
  match_types(m, "ramp", &base, &stride);
  if (!dtype_is_int(base->dtype) || base->dtype.lanes != 1)
    raise(m->ctx, ERR_TYPE, NOWHERE, "a ramp starts at an integer, not %s", dtype_name(scratch(m->ctx), base->dtype));
  return intern(m, E_RAMP, dtype_lanes(base->dtype, lanes), 0, 2, (const Expr *[]){base, stride});
}

const Expr *expr_broadcast(Module *m, const Expr *e, int lanes)
{
  if (lanes < 2 || lanes > UINT16_MAX || !(lanes & MAX_LANES) || e->dtype.lanes != 1)
    raise(m->ctx, ERR_TYPE, NOWHERE, "cannot broadcast %s to %d lanes", dtype_name(scratch(m->ctx), e->dtype), lanes);
  return intern(m, E_BROADCAST, dtype_lanes(e->dtype, lanes), 0, 1, &e);
}

static const Reduce *same_reduce(Module *m, const Expr *probe_first, const Reduce *r);

const Expr *expr_reduce(Module *m, const Reducer *reducer, int nsource, const Expr *const *source, int naxis,
                        const IterVar *const *axis, const Expr *cond, const Expr *const *init, int value_index)
{
  if (nsource != reducer->n)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "reducer '%s' takes %d value%s, %d given", reducer->name, reducer->n,
          reducer->n == 1 ? "" : "s", nsource);
  if (value_index < 0 || value_index >= reducer->n)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "reducer '%s' has no value %d", reducer->name, value_index);
  want_bool(m, "the condition of a reduction", cond);
  for (int i = 0; i < nsource; i++)
    if (!dtype_eq(source[i]->dtype, reducer->lhs[i]->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "reducer '%s' works on %s, value %d is %s", reducer->name,
            dtype_name(scratch(m->ctx), reducer->lhs[i]->dtype), i, dtype_name(scratch(m->ctx), source[i]->dtype));
  Reduce *r = arena_new_of(m->arena, Reduce);
  *r = (Reduce){reducer, arena_copy(m->arena, axis, (size_t)naxis * sizeof *axis), naxis, value_index, init != NULL};
  int n = nsource + 1 + (init ? nsource : 0);
  const Expr **arg = arena_array(m->arena, const Expr *, n);
  for (int i = 0; i < nsource; i++) arg[i] = source[i];
  arg[nsource] = cond;
  for (int i = 0; init && i < nsource; i++) arg[nsource + 1 + i] = init[i];
  return intern(m, E_REDUCE, reducer->result[value_index]->dtype, ptr_bits(same_reduce(m, source[0], r)), n, arg);
}

static bool equal_reduce(const Reduce *a, const Reduce *b)
{
  return a->reducer == b->reducer && a->naxis == b->naxis && a->value_index == b->value_index &&
         a->has_init == b->has_init && !memcmp(a->axis, b->axis, (size_t)a->naxis * sizeof *a->axis);
}

typedef struct ReduceList {
  const Reduce *reduce;
  struct ReduceList *next;
} ReduceList;

/* An equal Reduce over the same first source, if the module has one: the payload is compared by pointer. */
static const Reduce *same_reduce(Module *m, const Expr *first, const Reduce *r)
{
  ReduceList *list = map_get(&m->reduces, first);
  for (const ReduceList *l = list; l; l = l->next)
    if (equal_reduce(l->reduce, r)) return l->reduce;
  ReduceList *added = arena_new_of(m->arena, ReduceList);
  *added = (ReduceList){r, list};
  map_put(m->arena, &m->reduces, first, added);
  return r;
}

const Reducer *reducer_new(Module *m, const char *name, int n, const Var *const *lhs, const Var *const *rhs,
                           const Expr *const *result, const Expr *const *identity)
{
  for (int i = 0; i < n; i++)
    if (!dtype_eq(result[i]->dtype, lhs[i]->dtype) || !dtype_eq(identity[i]->dtype, lhs[i]->dtype))
      raise(m->ctx, ERR_TYPE, NOWHERE, "reducer '%s': value %d is %s, its result %s, its identity %s", name, i,
            dtype_name(scratch(m->ctx), lhs[i]->dtype), dtype_name(scratch(m->ctx), result[i]->dtype),
            dtype_name(scratch(m->ctx), identity[i]->dtype));
  Reducer *r = arena_new_of(m->arena, Reducer);
  size_t bytes = (size_t)n * sizeof(void *);
  *r = (Reducer){arena_strdup(m->arena, name),        n,
                 arena_copy(m->arena, lhs, bytes),    arena_copy(m->arena, rhs, bytes),
                 arena_copy(m->arena, result, bytes), arena_copy(m->arena, identity, bytes)};
  return r;
}

static const Expr *limit(Module *m, DType t, bool low)
{
  if (dtype_is_float(t)) {
    double inf = float_round(t, INFINITY);
    double v = isinf(inf) ? inf : dtype_max(t);
    return expr_float(m, t, low ? -v : v);
  }
  return expr_int(m, t, low ? dtype_imin(t) : dtype_imax(t));
}

/* Of equal values the one with the smaller index wins, in whatever order the
 * pairs meet; the identity has the largest index, so that any pair beats it. */
static const Reducer *arg_reducer(Module *m, const char *name, DType value, DType index, bool want_max)
{
  const Var *l[2] = {var_new(m, "lhs_i", index, VAR_PLAIN), var_new(m, "lhs_v", value, VAR_PLAIN)};
  const Var *r[2] = {var_new(m, "rhs_i", index, VAR_PLAIN), var_new(m, "rhs_v", value, VAR_PLAIN)};
  const Expr *better = expr_binary(m, want_max ? E_GT : E_LT, l[1]->expr, r[1]->expr);
  const Expr *tie = expr_and(m, expr_binary(m, E_EQ, l[1]->expr, r[1]->expr), expr_lt(m, l[0]->expr, r[0]->expr));
  const Expr *left = expr_binary(m, E_OR, better, tie);
  const Expr *result[2] = {expr_select(m, left, l[0]->expr, r[0]->expr), expr_select(m, left, l[1]->expr, r[1]->expr)};
  const Expr *identity[2] = {expr_int(m, index, dtype_imax(index)), limit(m, value, want_max)};
  return reducer_new(m, name, 2, l, r, result, identity);
}

const Reducer *reducer_named(Module *m, const char *name, DType value, DType index)
{
  static const struct {
    const char *name;
    ExprKind kind;
  } simple[] = {
    {"sum", E_ADD}, {"prod", E_MUL}, {"min", E_MIN}, {"max", E_MAX}, {"any", E_OR}, {"all", E_AND},
  };
  if (!strcmp(name, "argmin")) return arg_reducer(m, name, value, index, false);
  if (!strcmp(name, "argmax")) return arg_reducer(m, name, value, index, true);
  for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
    if (strcmp(name, simple[i].name)) continue;
    ExprKind kind = simple[i].kind;
    const Var *l = var_new(m, "x", value, VAR_PLAIN);
    const Var *r = var_new(m, "y", value, VAR_PLAIN);
    const Expr *result = expr_binary(m, kind, l->expr, r->expr);
    const Expr *identity = kind == E_MIN || kind == E_MAX
                               ? limit(m, value, kind == E_MAX)
                               : expr_const(m, value, kind == E_MUL || kind == E_AND ? 1 : 0);
    return reducer_new(m, name, 1, &l, &r, &result, &identity);
  }
  return NULL;
}

const Expr *expr_with_args(Module *m, const Expr *e, const Expr *const *arg)
{
  bool same = true;
  for (int i = 0; i < e->nargs && same; i++) same = arg[i] == e->arg[i];
  if (same) return e;
  switch ((ExprKind)e->kind) {
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_VAR: return e;
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR: return expr_binary(m, (ExprKind)e->kind, arg[0], arg[1]);
  case E_NOT: return expr_not(m, arg[0]);
  case E_CAST: return expr_cast(m, dtype_lanes(e->dtype, arg[0]->dtype.lanes), arg[0]);
  case E_SELECT: return expr_select(m, arg[0], arg[1], arg[2]);
  case E_LET: return expr_let(m, e->u.var, arg[0], arg[1]);
  case E_LOAD: return expr_load(m, e->u.buffer, e->nargs, arg);
  case E_CALL: {
    DType t = e->dtype;
    bool follows = e->u.intrin == IN_REINTERPRET && arg[0]->dtype.bits == e->arg[0]->dtype.bits;
    if (follows) t = dtype_lanes(t, arg[0]->dtype.lanes);
    return expr_call(m, t, e->u.intrin, e->nargs, arg);
  }
  case E_RAMP: return expr_ramp(m, arg[0], arg[1], e->dtype.lanes);
  case E_BROADCAST: return expr_broadcast(m, arg[0], e->dtype.lanes);
  case E_REDUCE: {
    int n = e->u.reduce->reducer->n;
    return expr_reduce(m, e->u.reduce->reducer, n, arg, e->u.reduce->naxis, e->u.reduce->axis, arg[n],
                       e->u.reduce->has_init ? arg + n + 1 : NULL, e->u.reduce->value_index);
  }
  case E_NKINDS: break;
  }
  BUG(m->ctx, "expr_with_args of kind %d", e->kind);
}

const Expr *expr_widen(Module *m, const Expr *e)
{
  DType t = dtype_lanes(DT_I64, e->dtype.lanes);
  if (e->dtype.code != DT_INT || e->dtype.bits == 64) return e->dtype.bits == 64 ? e : expr_cast(m, t, e);
  switch ((ExprKind)e->kind) {
  case E_INT: return expr_int(m, DT_I64, e->u.i);
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX: return expr_binary(m, (ExprKind)e->kind, expr_widen(m, e->arg[0]), expr_widen(m, e->arg[1]));
  case E_RAMP: return expr_ramp(m, expr_widen(m, e->arg[0]), expr_widen(m, e->arg[1]), e->dtype.lanes);
  case E_BROADCAST: return expr_broadcast(m, expr_widen(m, e->arg[0]), e->dtype.lanes);
  case E_FLOAT:
  case E_STR:
  case E_VAR:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_CAST:
  case E_SELECT:
  case E_LET:
  case E_LOAD:
  case E_CALL:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  return expr_cast(m, t, e);
}
