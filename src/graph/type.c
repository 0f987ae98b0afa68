/* type.c: types of values in a graph, and their dimensions. */
#include "graph/state.h"

/* (%0, %0) over and over doubles a type each time: 40 lines of text would be a type of
 * 10^12 parts. */
#define MAX_PARTS 100000

static const Type *counted(Module *m, Type *ty)
{
  int64_t parts = 1 + (ty->ret ? ty->ret->parts : 0);
  for (int i = 0; i < ty->nfield; i++) parts += ty->field[i]->parts;
  if (parts > MAX_PARTS) raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "a type has more than %d parts", MAX_PARTS);
  ty->parts = (int)parts;
  return ty;
}

static Type *new_type(Module *m, TypeKind kind)
{
  Type *ty = arena_new_of(m->arena, Type);
  ty->parts = 1;
  ty->kind = kind;
  ty->dtype = DT_NONE;
  return ty;
}

/* So many elements that their number, or that of their bytes, does not fit exist nowhere. */
static void check_elements(Module *m, DType dtype, int ndim, const Expr *const *shape)
{
  int64_t total = dtype.bits > 8 ? dtype.bits / 8 : 1;
  for (int i = 0; i < ndim; i++)
    if (shape[i]->kind == E_INT && shape[i]->u.i > 0 && !int_mul(total, shape[i]->u.i, &total))
      raise(m->ctx, ERR_SHAPE, NOWHERE,
            "the size of a tensor overflows at dimension %d, %" PRId64 ": more bytes than fit in 64 bits", i,
            shape[i]->u.i);
}

const Type *type_tensor(Module *m, DType dtype, int ndim, const Expr *const *shape)
{
  if (ndim > MAX_RANK)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "a tensor has %d dimensions; there are at most %d", ndim, MAX_RANK);
  check_elements(m, dtype, ndim, shape);
  Type *ty = new_type(m, TY_TENSOR);
  ty->dtype = dtype;
  ty->ndim = ndim;
  static const Expr *none[1]; /* of a scalar: a list without entries, not no list */
  ty->shape = ndim > 0 ? arena_copy(m->arena, shape, (size_t)ndim * sizeof *shape) : none;
  return ty;
}

const Type *type_tensor_of(Module *m, DType dtype, int ndim, const int64_t *shape)
{
  const Expr **dims = arena_array(m->arena, const Expr *, ndim);
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "dimension %d is %" PRId64 "; a dimension is not negative", i, shape[i]);
    dims[i] = expr_int(m, shape[i] > INT32_MAX ? DT_I64 : DT_I32, shape[i]);
  }
  return type_tensor(m, dtype, ndim, dims);
}

static const Type *type_of_fields(Module *m, TypeKind kind, int n, const Type *const *field, const Type *ret)
{
  Type *ty = new_type(m, kind);
  ty->nfield = n;
  ty->field = arena_copy(m->arena, field, (size_t)n * sizeof *field);
  ty->ret = ret;
  return counted(m, ty);
}

const Type *type_tuple(Module *m, int n, const Type *const *field)
{
  return type_of_fields(m, TY_TUPLE, n, field, NULL);
}
const Type *type_func(Module *m, int n, const Type *const *param, const Type *ret)
{
  return type_of_fields(m, TY_FUNC, n, param, ret);
}
const Type *type_simple(Module *m, TypeKind kind, const Type *elem)
{
  return type_of_fields(m, kind, elem != NULL, &elem, NULL);
}

const Type *type_data(Module *m, const DataDef *data, int n, const Type *const *arg)
{
  Type *ty = (Type *)(uintptr_t)type_of_fields(m, TY_DATA, n, arg, NULL);
  ty->data = data;
  return ty;
}

const Type *type_var(Module *m, const Var *var)
{
  Type *ty = new_type(m, TY_VAR);
  ty->var = var;
  return ty;
}

const Type *type_prim(Module *m, DType dtype)
{
  Type *ty = new_type(m, TY_PRIM);
  ty->dtype = dtype;
  return ty;
}

const Type *type_shape(Module *m, int ndim, const Expr *const *shape)
{
  Type *ty = new_type(m, TY_SHAPE);
  ty->ndim = ndim;
  ty->shape = arena_copy(m->arena, shape, (size_t)ndim * sizeof *shape);
  return ty;
}

const Expr *type_dim_any(Module *m) { return var_new(m, "?", DT_I32, VAR_SIZE)->expr; }
bool type_dim_is_any(const Expr *e) { return e->kind == E_VAR && !strcmp(e->u.var->name, "?"); }

const Expr *type_dim_unguarded(const Expr *e)
{
  while (e->kind == E_SELECT && expr_is_int(e->arg[2], -1)) e = e->arg[1];
  return e;
}

static bool is_guarded(const Type *ty)
{
  for (int i = 0; i < ty->ndim; i++)
    if (type_dim_unguarded(ty->shape[i]) != ty->shape[i]) return true;
  for (int i = 0; ty->kind == TY_TUPLE && i < ty->nfield; i++)
    if (is_guarded(ty->field[i])) return true;
  return false;
}

const Type *type_unguarded(Module *m, const Type *ty)
{
  if (!is_guarded(ty)) return ty;
  Type *clean = arena_copy(m->arena, ty, sizeof *ty);
  if (ty->ndim > 0) clean->shape = arena_copy(m->arena, ty->shape, (size_t)ty->ndim * sizeof *ty->shape);
  for (int i = 0; i < ty->ndim; i++) clean->shape[i] = type_dim_unguarded(ty->shape[i]);
  if (ty->nfield) clean->field = arena_copy(m->arena, ty->field, (size_t)ty->nfield * sizeof *ty->field);
  for (int i = 0; ty->kind == TY_TUPLE && i < ty->nfield; i++) clean->field[i] = type_unguarded(m, ty->field[i]);
  return clean;
}

bool type_has_strings(const Type *ty)
{
  if (ty->kind == TY_TENSOR) return dtype_is_string(ty->dtype);
  for (int i = 0; i < ty->nfield; i++)
    if (type_has_strings(ty->field[i])) return true;
  return false;
}

static const Type *numbers_for_strings(Module *m, const Type *ty)
{
  if (!type_has_strings(ty)) return ty;
  Type *now = arena_copy(m->arena, ty, sizeof *ty);
  if (ty->kind == TY_TENSOR) now->dtype = dtype_in_kernel(ty->dtype);
  if (ty->nfield) now->field = arena_copy(m->arena, ty->field, (size_t)ty->nfield * sizeof *ty->field);
  for (int i = 0; i < ty->nfield; i++) now->field[i] = numbers_for_strings(m, ty->field[i]);
  return now;
}

const Type *type_in_kernel(Module *m, const Type *ty) { return numbers_for_strings(m, type_unguarded(m, ty)); }

static bool dim_equal(const Expr *a, const Expr *b)
{
  if (a == b || (type_dim_is_any(a) && type_dim_is_any(b))) return true;
  return a->kind == E_INT && b->kind == E_INT && a->u.i == b->u.i;
}

bool type_equal(const Type *a, const Type *b)
{
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || !dtype_eq(a->dtype, b->dtype) || a->ndim != b->ndim || a->nfield != b->nfield ||
      a->data != b->data || a->var != b->var)
    return false;
  for (int i = 0; i < a->ndim; i++)
    if (!dim_equal(a->shape[i], b->shape[i])) return false;
  for (int i = 0; i < a->nfield; i++)
    if (!type_equal(a->field[i], b->field[i])) return false;
  return a->kind != TY_FUNC || type_equal(a->ret, b->ret);
}

bool type_is_static(const Type *ty)
{
  if (ty->kind == TY_TENSOR && ty->ndim < 0) return false;
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i]->kind != E_INT) return false;
  for (int i = 0; i < ty->nfield; i++)
    if (!type_is_static(ty->field[i])) return false;
  return true;
}

int64_t type_elements(Ctx *ctx, const Type *ty)
{
  int64_t n = 1;
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i]->kind != E_INT || !int_mul(n, ty->shape[i]->u.i, &n))
      raise(ctx, ERR_SHAPE, NOWHERE, "%s has no countable number of elements", type_text(scratch(ctx), ty));
  return n;
}

double type_known_dim(const Type *ty, int axis)
{
  if (ty->kind != TY_TENSOR) return 0;
  if (axis < 0) axis += ty->ndim;
  bool known = axis >= 0 && axis < ty->ndim && ty->shape[axis]->kind == E_INT;
  return known ? (double)ty->shape[axis]->u.i : 0;
}

double type_known_elements(const Type *ty)
{
  if (ty->kind != TY_TENSOR || ty->ndim < 0) return 0;
  double n = 1;
  for (int d = 0; d < ty->ndim; d++) n *= type_known_dim(ty, d);
  return n;
}

/* ---- joining, substituting ------------------------------------------------------------ */

static bool is_run_time(const Var *v) { return v->name[0] == '?'; }
static bool is_value(const Var *v) { return !strcmp(v->name, VALUE_NAME); }

/* Does e speak of such a variable?  An expression is a DAG; one whose tree is very large
 * counts as if it did. */
#define MAX_DIM_NODES 1000

static bool mentions_within(const Expr *e, bool (*wanted)(const Var *), int *budget)
{
  if (e->kind == E_INT) return false;
  if (e->kind == E_VAR) return wanted(e->u.var);
  if (--*budget < 0) return true;
  for (int i = 0; i < e->nargs; i++)
    if (mentions_within(e->arg[i], wanted, budget)) return true;
  return false;
}

static bool mentions(const Expr *e, bool (*wanted)(const Var *))
{
  int budget = MAX_DIM_NODES;
  return mentions_within(e, wanted, &budget);
}

bool type_dim_is_stable(const Expr *e) { return !mentions(e, is_run_time); }

static const Expr *join_dim(Module *m, const Expr *a, const Expr *b)
{
  return dim_equal(a, b) && (a == b || a->kind == E_INT) && !mentions(a, is_value) ? a : type_dim_any(m);
}

static const Type *join_tensor(Module *m, const Type *a, const Type *b)
{
  if (!dtype_eq(a->dtype, b->dtype)) return NULL;
  if (a->ndim != b->ndim) return type_tensor(m, a->dtype, -1, NULL);
  const Expr **dims = arena_array(m->arena, const Expr *, a->ndim > 0 ? a->ndim : 0);
  for (int i = 0; i < a->ndim; i++) dims[i] = join_dim(m, a->shape[i], b->shape[i]);
  return type_tensor(m, a->dtype, a->ndim, dims);
}

const Type *type_join(Module *m, const Type *a, const Type *b)
{
  if (a->kind == TY_VAR && b->kind != TY_VAR) return b; /* Nil() against List[int32] */
  if (b->kind == TY_VAR) return a;
  if (a->kind != b->kind || a->nfield != b->nfield || a->data != b->data) return NULL;
  if (a->kind == TY_TENSOR) return join_tensor(m, a, b);
  if (a->kind == TY_FUNC || a->kind == TY_PRIM || a->kind == TY_SHAPE) return type_equal(a, b) ? a : NULL;
  Type *ty = arena_copy(m->arena, a, sizeof *a);
  ty->field = arena_array(m->arena, const Type *, a->nfield);
  for (int i = 0; i < a->nfield; i++)
    if (!(ty->field[i] = type_join(m, a->field[i], b->field[i]))) return NULL;
  return counted(m, ty);
}

/* One way to rebuild a type: every dimension and every type parameter through a function. */
typedef struct TypeMap {
  Module *m;
  const Map *size, *param;
  bool fresh, outside, anew;
  Analyzer *simplifier;
  Map renewed; /* "?" replaced in this type -> its new one */
  Arena *arena;
} TypeMap;

static const Expr *map_dim(TypeMap *map, const Expr *e)
{
  if (e->kind == E_INT) return e;
  if (map->outside) return mentions(e, is_value) ? type_dim_any(map->m) : e;
  if (map->anew && type_dim_is_stable(e)) return e;
  const Expr *now = map->size && map->size->n ? expr_substitute(map->m, e, map->size) : e;
  if (now != e && now->kind != E_VAR && now->kind != E_INT) {
    if (!map->simplifier) map->simplifier = analyzer_new(map->m, map->arena);
    now = expr_simplify(map->simplifier, now);
  }
  if (!map->anew && (!map->fresh || now != e || !type_dim_is_any(e))) return now;
  const Expr *again = map_get(&map->renewed, e);
  if (!again) map_put(map->arena, &map->renewed, e, (void *)(again = type_dim_any(map->m)));
  return again;
}

static const Type *map_type(TypeMap *map, const Type *ty)
{
  const Type *param = ty->kind == TY_VAR && map->param ? map_get(map->param, ty->var) : NULL;
  if (param) return param;
  bool same = true;
  const Expr **dims = arena_array(map->arena, const Expr *, ty->ndim > 0 ? ty->ndim : 0);
  const Type **field = arena_array(map->arena, const Type *, ty->nfield);
  for (int i = 0; i < ty->ndim; i++) {
    dims[i] = map_dim(map, ty->shape[i]);
    same = same && dims[i] == ty->shape[i];
  }
  for (int i = 0; i < ty->nfield; i++) {
    field[i] = map_type(map, ty->field[i]);
    same = same && field[i] == ty->field[i];
  }
  const Type *ret = ty->ret ? map_type(map, ty->ret) : NULL;
  if (same && ret == ty->ret) return ty;
  Type *now = arena_copy(map->m->arena, ty, sizeof *ty);
  if (ty->ndim > 0) now->shape = arena_copy(map->m->arena, dims, (size_t)ty->ndim * sizeof *dims);
  now->field = arena_copy(map->m->arena, field, (size_t)ty->nfield * sizeof *field);
  now->ret = ret;
  return counted(map->m, now);
}

static const Type *run_map(TypeMap map, const Type *ty)
{
  Scope s = scope_begin(map.m->ctx);
  map.arena = scratch(map.m->ctx);
  const Type *now = map_type(&map, ty);
  scope_end(map.m->ctx, s);
  return now;
}

const Type *type_substitute(Module *m, const Type *ty, const Map *size, const Map *param, bool fresh)
{
  return run_map((TypeMap){.m = m, .size = size, .param = param, .fresh = fresh}, ty);
}

const Type *type_outside(Module *m, const Type *ty) { return run_map((TypeMap){.m = m, .outside = true}, ty); }
const Type *type_anew(Module *m, const Type *ty) { return run_map((TypeMap){.m = m, .anew = true}, ty); }

bool type_fits(const Type *want, const Type *given)
{
  if (want->kind == TY_VAR || given->kind == TY_VAR || want->kind == TY_OBJECT) return true;
  if (want->kind != given->kind || want->nfield != given->nfield || want->data != given->data ||
      !dtype_eq(want->dtype, given->dtype))
    return false;
  if (want->kind == TY_TENSOR && (want->ndim < 0 || given->ndim < 0)) return true;
  if (want->ndim != given->ndim) return false;
  for (int i = 0; i < want->ndim; i++)
    if (want->shape[i]->kind == E_INT && given->shape[i]->kind == E_INT && want->shape[i]->u.i != given->shape[i]->u.i)
      return false;
  for (int i = 0; i < want->nfield; i++)
    if (!type_fits(want->field[i], given->field[i])) return false;
  return want->kind != TY_FUNC || type_fits(want->ret, given->ret);
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_list(Text *out, Namer *names, const char *open, int n, const Type *const *ty, const char *close)
{
  text_add(out, open);
  for (int i = 0; i < n; i++) {
    if (i) text_add(out, ", ");
    type_print(out, names, ty[i]);
  }
  text_add(out, close);
}

static void print_shape(Text *out, Namer *names, int n, const Expr *const *shape)
{
  text_char(out, '(');
  for (int i = 0; i < n; i++) {
    if (i) text_add(out, ", ");
    if (type_dim_is_stable(shape[i])) expr_print(out, names, PRINT_COMPACT, shape[i]);
    else text_char(out, '?');
  }
  text_char(out, ')');
}

void type_print(Text *out, Namer *names, const Type *ty)
{
  if (!ty) {
    text_char(out, '_');
    return;
  }
  switch (ty->kind) {
  case TY_TENSOR:
    if (ty->ndim == 0) {
      text_add(out, dtype_name(out->arena, ty->dtype));
      return;
    }
    text_add(out, "Tensor[");
    if (ty->ndim < 0) text_add(out, "*");
    else print_shape(out, names, ty->ndim, ty->shape);
    text_printf(out, ", %s]", dtype_name(out->arena, ty->dtype));
    return;
  case TY_TUPLE: print_list(out, names, "(", ty->nfield, ty->field, ty->nfield == 1 ? ",)" : ")"); return;
  case TY_FUNC:
    print_list(out, names, "fn (", ty->nfield, ty->field, ") -> ");
    type_print(out, names, ty->ret);
    return;
  case TY_SHAPE:
    text_add(out, "Shape");
    print_shape(out, names, ty->ndim, ty->shape);
    return;
  case TY_PRIM: text_printf(out, "Prim[%s]", dtype_name(out->arena, ty->dtype)); return;
  case TY_SEQ: print_list(out, names, "Sequence[", 1, ty->field, "]"); return;
  case TY_OPT: print_list(out, names, "Optional[", 1, ty->field, "]"); return;
  case TY_DATA:
    if (ty->nfield) print_list(out, names, arena_printf(out->arena, "%s[", ty->data->name), ty->nfield, ty->field, "]");
    else text_add(out, ty->data->name);
    return;
  case TY_OBJECT: text_add(out, "Object"); return;
  case TY_VAR: text_add(out, ty->var->name); return;
  }
}

const char *type_text(Arena *arena, const Type *ty)
{
  Text out = text_new(arena);
  Namer names = {.arena = arena};
  type_print(&out, &names, ty);
  return text_str(&out);
}

/* ---- tuples spread out ----------------------------------------------------------------- */

int type_leaf_count(const Type *t)
{
  if (t->kind != TY_TUPLE) return 1;
  int n = 0;
  for (int i = 0; i < t->nfield; i++) n += type_leaf_count(t->field[i]);
  return n;
}

static int add_leaves(const Type *t, const Type **out)
{
  if (t->kind != TY_TUPLE) return *out = t, 1;
  int n = 0;
  for (int i = 0; i < t->nfield; i++) n += add_leaves(t->field[i], out + n);
  return n;
}

const Type **type_leaves(Arena *a, const Type *t, int *n)
{
  const Type **out = arena_array(a, const Type *, type_leaf_count(t) + 1);
  *n = add_leaves(t, out);
  return out;
}

int type_leaf_offset(const Type *tuple, int field)
{
  int n = 0;
  for (int i = 0; i < field; i++) n += type_leaf_count(tuple->field[i]);
  return n;
}
