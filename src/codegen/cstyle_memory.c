/* cstyle_memory.c: allocations, loads, stores and addresses.
 *
 * An allocation that is always accessed whole (one scalar, or one vector) is a plain
 * variable, so that compilers keep it in a register; others are arrays on the stack,
 * in shared memory, or pieces of the workspace:
 *
 *   workspace | shared part, round64 | slice of slot 0, round64 | slice of slot 1 | … */
#include "codegen/cstyle.h"

void cs_declare_memory(Cgen *g, const Var *data, Memory mem)
{
  Memory *copy = arena_new_of(g->arena, Memory);
  *copy = mem;
  map_put(g->arena, &g->memory, data, copy);
}

Memory *cs_memory(Cgen *g, const Buffer *b)
{
  Memory *mem = map_get(&g->memory, b->data);
  if (!mem) BUG(g->ctx, "%s: buffer '%s' is used but not allocated", g->k->name, b->name);
  if (b->dtype.lanes != 1) cs_unsupported(g, "buffer '%s', whose elements are vectors", b->name);
  return mem;
}

/* ---- addresses -------------------------------------------------------------------------- */

/* The pointer as one to elements of type t. */
static Frag pointer_to(Cgen *g, const Memory *mem, DType t)
{
  DType have = cs_storage(g, mem->elem);
  DType want = cs_storage(g, t);
  if (dtype_eq(have, want)) return cs_frag(mem->name, P_POST);
  return cs_frag(cs_fmt(g, "(%s%s *)%s", mem->read_only ? "const " : "", cs_type(g, want), mem->name), P_UNARY);
}

static const char *element(Cgen *g, const Memory *mem, DType t, const char *index)
{
  return cs_fmt(g, "%s[%s]", cs_wrap(g, pointer_to(g, mem, t), P_POST), index);
}

const Expr *cs_split_index(const Expr *index, int64_t *constant)
{
  *constant = 0;
  if (index->kind == E_RAMP) index = index->arg[0];
  while ((index->kind == E_ADD || index->kind == E_SUB) && index->arg[1]->kind == E_INT) {
    *constant += index->kind == E_ADD ? index->arg[1]->u.i : -index->arg[1]->u.i;
    index = index->arg[0];
  }
  return index;
}

const Base *cs_base(Cgen *g, const Buffer *b, const Expr *rest)
{
  for (int i = g->bases.n - 1; i >= 0; i--) {
    const Base *base = &g->bases.v[i];
    if (base->data == b->data && base->rest == rest && dtype_eq(base->elem, cs_storage(g, b->dtype))) return base;
  }
  return NULL;
}

const char *cs_address(Cgen *g, const Buffer *b, const Expr *index)
{
  const Memory *mem = cs_memory(g, b);
  if (mem->is_variable) return cs_fmt(g, "&%s", mem->name);
  int64_t c;
  const Base *base = cs_base(g, b, cs_split_index(index, &c));
  if (base && c == 0) return base->name;
  if (base) return cs_fmt(g, "%s %c %" PRId64, base->name, c < 0 ? '-' : '+', c < 0 ? -c : c);
  if (index->kind == E_RAMP) index = index->arg[0];
  const char *p = cs_wrap(g, pointer_to(g, mem, b->dtype), P_ADD);
  return expr_is_int(index, 0) ? p : cs_fmt(g, "%s + %s", p, cs_wrap(g, cs_lane(g, index, 0), P_ADD));
}

/* One element, at a scalar index. */
static const char *element_at(Cgen *g, const Buffer *b, const Expr *index)
{
  int64_t c;
  const Base *base = cs_base(g, b, cs_split_index(index, &c));
  if (base) return cs_fmt(g, "%s[%" PRId64 "]", base->name, c);
  return element(g, cs_memory(g, b), b->dtype, cs_text(g, index));
}

static bool is_contiguous(const Expr *index) { return index->kind == E_RAMP && expr_is_int(index->arg[1], 1); }

/* The vector in memory as an lvalue. */
static const char *vector_at(Cgen *g, const Buffer *b, const Expr *index, const char *qualifier)
{
  DType t = dtype_lanes(cs_storage(g, b->dtype), index->dtype.lanes);
  return cs_fmt(g, "*(%s%s *)(%s)", qualifier, cs_memory_type(g, t), cs_address(g, b, index));
}

/* ---- loads ---------------------------------------------------------------------------------- */

static Frag from_storage(Cgen *g, DType t, const char *s)
{
  if (dtype_is_bool(t)) return cs_frag(cs_fmt(g, "%s != 0", s), P_EQ);
  (void)g;
  return cs_frag(s, P_POST);
}

static Frag load_variable(Cgen *g, const Expr *e, const Memory *mem, int lane)
{
  DType t = dtype_elem(e->dtype);
  if (mem->lanes == 1 || (lane < 0 && e->dtype.lanes > 1))
    return from_storage(g, e->dtype.lanes == 1 ? t : DT_U8, mem->name);
  return from_storage(g, t, cs_fmt(g, "%s[%d]", mem->name, lane));
}

/* Lane < 0: the whole value. */
Frag cs_load(Cgen *g, const Expr *e, int lane)
{
  if (e->nargs != 1) BUG(g->ctx, "%s: '%s' is read with %d indices", g->k->name, e->u.buffer->name, e->nargs);
  const Memory *mem = cs_memory(g, e->u.buffer);
  const Expr *index = e->arg[0];
  DType t = dtype_elem(e->dtype);
  if (mem->is_variable) return load_variable(g, e, mem, lane);
  if (e->dtype.lanes == 1) return from_storage(g, t, element_at(g, e->u.buffer, index));
  if (lane >= 0) return from_storage(g, t, element(g, mem, t, cs_lane(g, index, lane).s));
  if (is_contiguous(index)) return cs_frag(vector_at(g, e->u.buffer, index, "const "), P_UNARY);
  return cs_frag(cs_lanes(g, e), P_POST);
}

/* ---- stores ------------------------------------------------------------------------------------ */

static const char *to_storage(Cgen *g, DType t, Frag v) { return dtype_is_bool(t) ? cs_wrap(g, v, P_ASSIGN) : v.s; }

static void store_vector(Cgen *g, Stmt *s)
{
  const Buffer *b = s->u.store.buffer;
  const Expr *value = s->u.store.value;
  int lanes = value->dtype.lanes;
  const Memory *mem = cs_memory(g, b);
  DType t = dtype_lanes(cs_storage(g, b->dtype), lanes);
  const char *v;
  if (dtype_is_bool(b->dtype)) v = cs_fmt(g, "(%s)(%s & 1)", cs_type(g, t), cs_wrap(g, cs_mask(g, value, 8), P_EQ));
  else v = cs_text(g, value);
  cs_line(g, "%s = %s;", mem->is_variable ? mem->name : vector_at(g, b, s->u.store.index[0], ""), v);
}

typedef struct Reads {
  const Buffer *buffer;
  const Expr *index;
  bool yes;
} Reads;

static void look_for_read(void *env, const Expr *e)
{
  Reads *r = env;
  if (e->kind == E_LOAD && e->u.buffer->data == r->buffer->data && e->arg[0] != r->index) r->yes = true;
}

/* Values first, then the stores: the statement reads everything before it writes. */
static void store_lanes(Cgen *g, Stmt *s)
{
  const Buffer *b = s->u.store.buffer;
  const Expr *index = s->u.store.index[0];
  const Expr *value = s->u.store.value;
  const Expr *mask = s->u.store.mask;
  int lanes = index->dtype.lanes;
  const Memory *mem = cs_memory(g, b);
  const char **v = arena_array(scratch(g->ctx), const char *, lanes);
  Reads reads = {b, index, false};
  if (!mask) expr_visit(g->ctx, value, look_for_read, &reads); /* a masked lane is neither read nor written */
  for (int i = 0; i < lanes && reads.yes; i++) {
    v[i] = cs_fresh(g, "lane");
    cs_line(g, "const %s %s = %s;", cs_type(g, dtype_elem(value->dtype)), v[i], cs_lane(g, value, i).s);
  }
  for (int i = 0; i < lanes; i++) {
    if (mask) cs_line(g, "if (%s) {", cs_lane(g, mask, i).s);
    g->indent += mask != NULL;
    const char *text = reads.yes ? v[i] : to_storage(g, b->dtype, cs_lane(g, value, i));
    const char *to =
        mem->is_variable ? cs_fmt(g, "%s[%d]", mem->name, i) : element(g, mem, b->dtype, cs_lane(g, index, i).s);
    cs_line(g, "%s = %s;", to, text);
    g->indent -= mask != NULL;
    if (mask) cs_line(g, "}");
  }
}

void cs_store(Cgen *g, Stmt *s)
{
  const Buffer *b = s->u.store.buffer;
  if (s->u.store.n != 1) BUG(g->ctx, "%s: '%s' is written with %d indices", g->k->name, b->name, s->u.store.n);
  const Expr *index = s->u.store.index[0];
  const Expr *value = s->u.store.value;
  const Memory *mem = cs_memory(g, b);
  if (index->dtype.lanes == 1 && value->dtype.lanes == 1) {
    const char *v = to_storage(g, b->dtype, cs_expr(g, value));
    const char *to = mem->is_variable ? mem->name : element_at(g, b, index);
    if (s->u.store.mask) cs_line(g, "if (%s) %s = %s;", cs_text(g, s->u.store.mask), to, v);
    else cs_line(g, "%s = %s;", to, v);
    return;
  }
  bool whole = g->dialect->vectors && !s->u.store.mask && (mem->is_variable || is_contiguous(index));
  if (whole && cs_quad_store(g, s)) return;
  if (whole) store_vector(g, s);
  else store_lanes(g, s);
}

/* ---- allocations ----------------------------------------------------------------------------------- */

static bool covers(const Access *a, const Expr *index)
{
  if (index->dtype.lanes != a->n) return false;
  if (a->n == 1) return expr_is_int(index, 0);
  return is_contiguous(index) && expr_is_int(index->arg[0], 0);
}

/* Is there a parallel loop between the allocation and its use? */
static bool is_captured(const Access *a, const Stmt *use)
{
  for (const Stmt *s = use; s && s != a->alloc; s = s->parent)
    if (s->kind == S_FOR && s->u.loop.kind == FOR_PARALLEL && s != use) return true;
  return false;
}

void cs_note_access(Cgen *g, const Buffer *b, const Expr *index, Stmt *use, bool load, bool whole)
{
  Access *a = map_get(&g->access, b->data);
  if (!a) return;
  a->any = true;
  a->loaded |= load;
  if (!whole || !index || !covers(a, index) || !dtype_eq(b->dtype, a->alloc->u.alloc.buffer->dtype) ||
      is_captured(a, use))
    a->whole = false;
}

void cs_note_alloc(Cgen *g, Stmt *s)
{
  const Buffer *b = s->u.alloc.buffer;
  if (b->ndim != 1) BUG(g->ctx, "%s: '%s' is allocated with %d dimensions", g->k->name, b->name, b->ndim);
  Access *a = arena_new_of(g->arena, Access);
  int64_t n = b->shape[0]->kind == E_INT ? b->shape[0]->u.i : -1;
  bool power_of_two = n > 0 && n <= 64 && (n & (n - 1)) == 0;
  *a = (Access){.alloc = s, .n = n, .whole = power_of_two};
  map_put(g->arena, &g->access, b->data, a);
}

static void alloc_variable(Cgen *g, Stmt *s, const Access *a)
{
  const Buffer *b = s->u.alloc.buffer;
  const char *name = cs_name(g, b->data);
  DType t = dtype_lanes(cs_storage(g, b->dtype), (int)a->n);
  cs_declare_memory(g, b->data, (Memory){name, b->dtype, true, (int)a->n, false});
  if (g->dialect->vectors || a->n == 1) cs_line(g, "%s %s;", cs_type(g, t), name);
  else cs_line(g, "%s %s[%d];", cs_type(g, dtype_elem(t)), name, (int)a->n);
  if (!a->loaded) cs_line(g, "(void)%s;", name);
}

static void alloc_array(Cgen *g, Stmt *s, const Access *a, const char *storage)
{
  const Buffer *b = s->u.alloc.buffer;
  if (a->n < 0) cs_unsupported(g, "'%s' on the stack, whose size is not a constant", b->name);
  const char *name = cs_name(g, b->data);
  cs_declare_memory(g, b->data, (Memory){name, b->dtype, false, 1, false});
  cs_line(g, "%s%s %s[%" PRId64 "]%s;", storage, cs_storage_type(g, b->dtype), name, a->n ? a->n : 1,
          g->dialect->quads     ? " __attribute__((aligned(8)))"
          : g->dialect->vectors ? " __attribute__((aligned(64)))"
                                : "");
  if (!a->loaded) cs_line(g, "(void)%s;", name);
}

static void alloc_piece(Cgen *g, Stmt *s)
{
  const Buffer *b = s->u.alloc.buffer;
  const char *type = cs_storage_type(g, b->dtype);
  const char *name = cs_name(g, b->data);
  const char *offset = s->u.alloc.offset && !expr_is_int(s->u.alloc.offset, 0)
                           ? cs_fmt(g, " + %s", cs_wrap(g, cs_expr(g, s->u.alloc.offset), P_ADD))
                           : "";
  cs_declare_memory(g, b->data, (Memory){name, b->dtype, false, 1, false});
  if (s->u.alloc.place == PLACE_WORKSPACE)
    cs_line(g, "%s *const %s = (%s *)((char *)workspace%s);", type, name, type, offset);
  else if (g->in_part && !g->dialect->runtime)
    cs_line(g, "%s *const %s = (%s *)(SLICE(slot, slices)%s);", type, name, type, offset);
  else if (g->in_part) cs_line(g, "%s *const %s = (%s *)(slices + slot * slice_bytes%s);", type, name, type, offset);
  else cs_line(g, "%s *const %s = (%s *)(slices%s);", type, name, type, offset);
}

void cs_alloc(Cgen *g, Stmt *s)
{
  const Access *a = map_get(&g->access, s->u.alloc.buffer->data);
  Place place = s->u.alloc.place;
  const Buffer *b = s->u.alloc.buffer;
  if (a->any) {
    switch (place) {
    case PLACE_NONE:
    case PLACE_STACK:
      if (a->whole) alloc_variable(g, s, a);
      else alloc_array(g, s, a, "");
      break;
    case PLACE_SHARED:
      if (!g->dialect->shared) cs_unsupported(g, "'%s' in shared memory, which this target has not", b->name);
      alloc_array(g, s, a, g->dialect->shared);
      break;
    case PLACE_WORKSPACE:
    case PLACE_SLICE: alloc_piece(g, s); break;
    }
  }
  cs_stmt(g, s->u.alloc.body);
}
