/* llvm_memory.c: variables and memory.
 *
 * Pointers are taken to be aligned to their element and no more: tensors come from
 * numpy and DLPack as they are, and an unaligned vector access costs nothing on the
 * machines that have vectors.  Stack and workspace are aligned to 64.
 *
 * Alias information.  noalias on a kernel's parameters is lost in an outlined body,
 * which finds its pointers in a struct.  So every access also names the group of
 * memory it belongs to (alias.scope) and all the groups it does not (noalias).  A
 * restrict argument is a group; the arguments that may alias are one group; pieces
 * of the workspace that share bytes, at different times, are one group; the stack is one:
 * LLVM tells its pieces apart, but where a piece has many accesses it does not look
 * through all of them for one that would let other pointers know its address. */
#include "codegen/llvm_gen.h"

/* ---- typed pointers, addresses ------------------------------------------------------------- */

LLVMValueRef gen_pointer_as(Gen *g, LLVMValueRef p, LLVMTypeRef pointee)
{
  return llvm_api.major < 15 ? LLVMBuildPointerCast(g->b, p, LLVMPointerType(pointee, 0), "") : p;
}

/* Back to the one pointer type that variables have. */
static LLVMValueRef plain_pointer(Gen *g, LLVMValueRef p)
{
  return llvm_api.major < 15 ? LLVMBuildPointerCast(g->b, p, g->ptr, "") : p;
}

LLVMValueRef gen_offset(Gen *g, LLVMTypeRef elem, LLVMValueRef pointer, LLVMValueRef index)
{
  return plain_pointer(g, LLVMBuildInBoundsGEP2(g->b, elem, gen_pointer_as(g, pointer, elem), &index, 1, ""));
}

LLVMValueRef gen_field(Gen *g, LLVMValueRef pointer, uint64_t bytes)
{
  return bytes ? gen_offset(g, g->i8, pointer, gen_int(g, g->i64, (int64_t)bytes)) : pointer;
}

LLVMValueRef gen_member(Gen *g, LLVMTypeRef record, LLVMValueRef pointer, int member)
{
  return plain_pointer(g, LLVMBuildStructGEP2(g->b, record, gen_pointer_as(g, pointer, record), (unsigned)member, ""));
}

LLVMValueRef gen_load_at(Gen *g, LLVMTypeRef type, LLVMValueRef pointer, unsigned align)
{
  LLVMValueRef v = LLVMBuildLoad2(g->b, type, gen_pointer_as(g, pointer, type), "");
  LLVMSetAlignment(v, align);
  return v;
}

LLVMValueRef gen_store_at(Gen *g, LLVMValueRef value, LLVMValueRef pointer, unsigned align)
{
  LLVMValueRef s = LLVMBuildStore(g->b, value, gen_pointer_as(g, pointer, LLVMTypeOf(value)));
  LLVMSetAlignment(s, align);
  return s;
}

LLVMValueRef gen_alloca(Gen *g, LLVMTypeRef type, uint64_t count, unsigned align)
{
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  LLVMPositionBuilderAtEnd(g->b, g->fn->entry);
  LLVMTypeRef whole = count == 1 ? type : LLVMArrayType(type, (unsigned)count);
  LLVMValueRef p = LLVMBuildAlloca(g->b, whole, "");
  LLVMSetAlignment(p, align);
  p = plain_pointer(g, p);
  LLVMPositionBuilderAtEnd(g->b, here);
  return p;
}

/* ---- variables ------------------------------------------------------------------------------- */

static Bound *bind_in(Gen *g, Frame *f, const Var *var, LLVMValueRef v)
{
  Bound *b = arena_new_of(g->arena, Bound);
  b->value = v;
  b->depth = f->depth;
  if (dtype_is_int(var->dtype) && var->dtype.lanes == 1) {
    bool is_wide = var->dtype.bits != 64 && LLVMTypeOf(v) == g->i64;
    b->wide = is_wide ? v : gen_cast(g, v, var->dtype, DT_I64);
    if (is_wide) b->value = gen_cast(g, v, DT_I64, var->dtype);
  }
  map_put(g->arena, &f->vars, var, b);
  return b;
}

void gen_bind(Gen *g, const Var *var, LLVMValueRef v) { bind_in(g, g->fn, var, v); }

void gen_bind_let(Gen *g, const Var *var, const Expr *value)
{
  Bound *b = arena_new_of(g->arena, Bound);
  b->value = gen_expr(g, value);
  b->let = value;
  b->depth = g->fn->depth;
  if (dtype_is_int(var->dtype) && var->dtype.lanes == 1) b->wide = gen_index(g, value);
  map_put(g->arena, &g->fn->vars, var, b);
}

/* A value of the parent in a body: stored in the environment by the parent once the
 * body is complete, loaded at the body's entry.  The builder is left in the entry. */
static LLVMValueRef capture(Gen *g, Frame *f, LLVMValueRef outer, uint64_t bytes)
{
  LLVMPositionBuilderAtEnd(g->b, f->entry);
  if (LLVMIsConstant(outer)) return outer;
  Capture c = {.outer = outer, .type = LLVMTypeOf(outer), .offset = f->env_bytes};
  f->env_bytes += (bytes + 7) / 8 * 8;
  vec_push(g->arena, &f->captures, c);
  return gen_load_at(g, c.type, gen_field(g, f->env, c.offset), 8);
}

Bound *gen_lookup(Gen *g, const Var *var)
{
  Frame *f = g->fn;
  Bound *b = map_get(&f->vars, var);
  if (b) return b;
  Bound *outer = f->parent ? map_get(&f->parent->vars, var) : NULL;
  if (!outer) BUG(g->ctx, "llvm: variable '%s' of kernel '%s' is used where it has no value", var->name, g->k->name);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  uint64_t bytes = outer->wide ? 8 : (uint64_t)dtype_bytes(var->dtype) * var->dtype.lanes;
  b = bind_in(g, f, var, capture(g, f, outer->wide ? outer->wide : outer->value, bytes));
  b->depth = 0;
  LLVMPositionBuilderAtEnd(g->b, here);
  return b;
}

LLVMValueRef gen_ambient(Gen *g, Ambient what)
{
  Frame *f = g->fn;
  if (f->ambient[what]) return f->ambient[what];
  if (!f->parent || !f->parent->ambient[what])
    BUG(g->ctx, "llvm: kernel '%s' reaches for what it was not given", g->k->name);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  f->ambient[what] = capture(g, f, f->parent->ambient[what], 8);
  LLVMPositionBuilderAtEnd(g->b, here);
  return f->ambient[what];
}

/* ---- alias scopes ------------------------------------------------------------------------------ */

typedef struct AliasScope {
  LLVMValueRef own, others;
} AliasScope;

/* One piece of memory; pieces of the same group may overlap. */
typedef struct Piece {
  const Var *var;
  Place place; /* PLACE_NONE: an argument */
  bool may_alias;
  int64_t begin, end; /* of the workspace; end < 0: not known, or all of the stack */
  int group;
} Piece;
typedef Vec(Piece) Pieces;
typedef struct PieceFinder {
  Gen *g;
  Pieces pieces;
} PieceFinder;

static int64_t constant_bytes(const Buffer *b)
{
  int64_t n = (int64_t)dtype_bytes(b->dtype) * b->dtype.lanes;
  for (int i = 0; i < b->ndim; i++)
    if (b->shape[i]->kind != E_INT || !int_mul(n, b->shape[i]->u.i, &n)) return -1;
  return n;
}

static bool find_piece(void *env, Stmt *s)
{
  PieceFinder *f = env;
  bool stack = s->kind == S_ALLOC && s->u.alloc.place == PLACE_STACK;
  if (s->kind != S_ALLOC || (!stack && s->u.alloc.place != PLACE_WORKSPACE && s->u.alloc.place != PLACE_SLICE))
    return true;
  Piece p = {.var = s->u.alloc.buffer->data, .place = s->u.alloc.place, .end = -1};
  int64_t bytes = constant_bytes(s->u.alloc.buffer);
  const Expr *offset = s->u.alloc.offset;
  if (!stack && bytes >= 0 && (!offset || offset->kind == E_INT)) {
    p.begin = offset ? offset->u.i : 0;
    p.end = p.begin + bytes;
  }
  vec_push(f->g->arena, &f->pieces, p);
  return true;
}

static bool may_overlap(const Piece *a, const Piece *b)
{
  if (a->place != b->place) return false;
  if (a->place == PLACE_NONE) return a->may_alias && b->may_alias;
  return a->end < 0 || b->end < 0 || (a->begin < b->end && b->begin < a->end);
}

/* Numbers the groups: overlapping pieces, directly or through others, share one. */
static int group_pieces(Pieces *p)
{
  for (int i = 0; i < p->n; i++) {
    p->v[i].group = i;
    for (int j = 0; j < i; j++) {
      int from = p->v[i].group;
      int to = p->v[j].group;
      if (from == to || !may_overlap(&p->v[i], &p->v[j])) continue;
      for (int k = 0; k <= i; k++)
        if (p->v[k].group == from) p->v[k].group = to;
    }
  }
  int n = 0;
  for (int i = 0; i < p->n; i++) {
    bool is_new = p->v[i].group == i;
    for (int k = 0; is_new && k < p->n; k++)
      if (p->v[k].group == i) p->v[k].group = -1 - n;
    n += is_new;
  }
  for (int i = 0; i < p->n; i++) p->v[i].group = -1 - p->v[i].group;
  return n;
}

static LLVMMetadataRef text_node(Gen *g, const char *text, LLVMMetadataRef second)
{
  LLVMMetadataRef item[] = {LLVMMDStringInContext2(g->lc, text, strlen(text)), second};
  return LLVMMDNodeInContext2(g->lc, item, second ? 2 : 1);
}

void gen_alias_scopes(Gen *g)
{
  PieceFinder f = {.g = g};
  for (int i = 0; i < g->k->narg; i++)
    if (g->k->arg[i].buffer)
      vec_push(g->arena, &f.pieces, (Piece){.var = g->k->arg[i].var, .may_alias = g->k->arg[i].may_alias});
  stmt_visit(g->k->body, find_piece, &f);
  int n = group_pieces(&f.pieces);
  g->scopes = (Map){0};
  if (n < 2) return;
  LLVMMetadataRef domain = text_node(g, arena_printf(g->arena, "lathe.%s", g->k->name), NULL);
  LLVMMetadataRef *scope = arena_array(g->arena, LLVMMetadataRef, n);
  LLVMMetadataRef *list = arena_array(g->arena, LLVMMetadataRef, n);
  AliasScope *made = arena_array(g->arena, AliasScope, n);
  for (int i = 0; i < n; i++) scope[i] = text_node(g, arena_printf(g->arena, "lathe.%s.%d", g->k->name, i), domain);
  for (int i = 0; i < n; i++) {
    size_t others = 0;
    for (int j = 0; j < n; j++)
      if (j != i) list[others++] = scope[j];
    made[i].own = LLVMMetadataAsValue(g->lc, LLVMMDNodeInContext2(g->lc, &scope[i], 1));
    made[i].others = LLVMMetadataAsValue(g->lc, LLVMMDNodeInContext2(g->lc, list, others));
  }
  for (int i = 0; i < f.pieces.n; i++) map_put(g->arena, &g->scopes, f.pieces.v[i].var, &made[f.pieces.v[i].group]);
}

LLVMValueRef gen_tag(Gen *g, const Buffer *buffer, LLVMValueRef access)
{
  const AliasScope *s = map_get(&g->scopes, buffer->data);
  if (!s) return access;
  LLVMSetMetadata(access, LLVMGetMDKindIDInContext(g->lc, "alias.scope", 11), s->own);
  LLVMSetMetadata(access, LLVMGetMDKindIDInContext(g->lc, "noalias", 7), s->others);
  return access;
}

/* ---- scalar indices ------------------------------------------------------------------------------ */

/* Element `at`, and some further, from a pointer on. */
typedef struct Spot {
  LLVMValueRef from, at;
  int64_t further;
} Spot;

static Spot spot_of(Gen *g, const Buffer *buffer, LLVMValueRef at)
{
  return (Spot){gen_lookup(g, buffer->data)->value, at, 0};
}

/* Of the element that lies so many behind it.  What accesses have in common is one pointer, for each of them. */
static LLVMValueRef spot_address(Gen *g, const Buffer *buffer, Spot s, int64_t behind)
{
  LLVMTypeRef elem = gen_mem_type(g, dtype_elem(buffer->dtype));
  LLVMValueRef p = gen_offset(g, elem, s.from, s.at);
  behind += s.further;
  return behind ? gen_offset(g, elem, p, gen_int(g, g->i64, behind)) : p;
}

/* An index as a sum: what stays the same in the innermost loop, what moves there, and a number. */
enum { SUM_TERMS = 16 };
typedef struct Sum {
  const Expr *term[SUM_TERMS];
  bool negative[SUM_TERMS], moves[SUM_TERMS];
  int n;
  int64_t number;
} Sum;

/* Does the innermost loop change it? */
static bool moves(Gen *g, const Expr *e)
{
  if (e->kind == E_VAR) return gen_lookup(g, e->u.var)->depth >= g->fn->depth;
  if (e->kind == E_LOAD || e->kind == E_LET || !e->pure) return true;
  for (int i = 0; i < e->nargs; i++)
    if (moves(g, e->arg[i])) return true;
  return false;
}

/* False: there are too many. */
static bool add_terms(Gen *g, const Expr *e, bool negative, Sum *s)
{
  const Expr *let = e->kind == E_VAR ? gen_lookup(g, e->u.var)->let : NULL;
  if (e->kind == E_INT) return s->number += negative ? -e->u.i : e->u.i, true;
  if (let && gen_is_index_arithmetic(let) && let->kind != E_MUL) e = let;
  if (gen_is_index_arithmetic(e) && e->kind != E_MUL)
    return add_terms(g, e->arg[0], negative, s) &&
           (e->kind == E_CAST || add_terms(g, e->arg[1], negative != (e->kind == E_SUB), s));
  if (s->n == SUM_TERMS) return false;
  s->term[s->n] = e;
  s->negative[s->n] = negative;
  s->moves[s->n++] = moves(g, e);
  return true;
}

static LLVMValueRef add_up(Gen *g, const Sum *s, bool moving)
{
  LLVMValueRef sum = NULL;
  for (int i = 0; i < s->n; i++) {
    if (s->moves[i] != moving) continue;
    LLVMValueRef v = gen_index(g, s->term[i]);
    if (s->negative[i]) sum = LLVMBuildNSWSub(g->b, sum ? sum : gen_int(g, g->i64, 0), v, "");
    else sum = sum ? LLVMBuildNSWAdd(g->b, sum, v, "") : v;
  }
  return sum ? sum : gen_int(g, g->i64, 0);
}

/* The same pointer, of which LLVM knows no more than what memory it is in. */
static LLVMValueRef unknown_pointer(Gen *g, LLVMValueRef p)
{
  LLVMTypeRef type = LLVMTypeOf(p);
  return gen_intrinsic(g, "llvm.strip.invariant.group", 1, &type, 1, &p);
}

/* The same number, of which LLVM knows nothing. */
static LLVMValueRef unknown_number(Gen *g, LLVMValueRef v)
{
  return LLVMBuildPtrToInt(g->b, unknown_pointer(g, LLVMBuildIntToPtr(g->b, v, g->ptr, "")), g->i64, "");
}

/* Where an element lies, said so that LLVM finds the loop's pointers at once: what does not change in the innermost
 * loop is one pointer of which nothing else is known.  Given the whole sum, LLVM's loop strength reduction tries each
 * way to take it apart, for every access of the loop, which takes longer than the rest of some kernels' compilation.  A
 * sum that stays whole is one step on the way back to the memory: LLVM's passes follow few steps, and take loads whose
 * ways are of unequal length for loads of different memory. */
static Spot find_spot(Gen *g, const Buffer *buffer, const Expr *index)
{
  Sum s = {0};
  int moving = 0;
  if (!add_terms(g, index, false, &s)) return spot_of(g, buffer, gen_index(g, index));
  for (int i = 0; i < s.n; i++) moving += s.moves[i];
  Spot spot = spot_of(g, buffer, add_up(g, &s, moving == s.n));
  if (moving && moving < s.n) {
    if (s.n - moving > 1) spot.at = unknown_number(g, spot.at);
    spot = (Spot){unknown_pointer(g, spot_address(g, buffer, spot, 0)), add_up(g, &s, true), 0};
  }
  return spot.further = s.number, spot;
}

/* ---- vector indices ------------------------------------------------------------------------------ */

/* base + stride * lane, with a stride known now. */
typedef struct Lanes {
  LLVMValueRef base;
  int64_t stride;
} Lanes;

static bool constant_of(const Expr *e, int64_t *out)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  if (e->kind != E_INT) return false;
  *out = e->u.i;
  return true;
}

/* Splits a vector index into a scalar base and a constant stride where it has that
 * form.  Only index arithmetic qualifies: it does not overflow. */
static bool split_lanes(Gen *g, const Expr *e, Lanes *out)
{
  int64_t c;
  Lanes a, b;
  if (e->kind == E_BROADCAST) return *out = (Lanes){gen_index(g, e->arg[0]), 0}, true;
  if (e->dtype.code != DT_INT || e->dtype.bits < 32) return false;
  if (e->kind == E_RAMP && e->arg[1]->kind == E_INT)
    return *out = (Lanes){gen_index(g, e->arg[0]), e->arg[1]->u.i}, true;
  if (e->kind == E_CAST && e->arg[0]->dtype.code == DT_INT && e->arg[0]->dtype.bits <= e->dtype.bits)
    return split_lanes(g, e->arg[0], out);
  if (e->kind == E_MUL && constant_of(e->arg[1], &c) && split_lanes(g, e->arg[0], &a))
    return *out = (Lanes){LLVMBuildNSWMul(g->b, a.base, gen_int(g, g->i64, c), ""), a.stride * c}, true;
  if ((e->kind == E_ADD || e->kind == E_SUB) && split_lanes(g, e->arg[0], &a) && split_lanes(g, e->arg[1], &b)) {
    bool add = e->kind == E_ADD;
    LLVMValueRef base = add ? LLVMBuildNSWAdd(g->b, a.base, b.base, "") : LLVMBuildNSWSub(g->b, a.base, b.base, "");
    return *out = (Lanes){base, add ? a.stride + b.stride : a.stride - b.stride}, true;
  }
  return false;
}

/* spot + stride * lane */
typedef struct Strided {
  Spot spot;
  int64_t stride;
} Strided;

static bool find_strided(Gen *g, const Buffer *buffer, const Expr *e, Strided *out)
{
  bool ramp = e->kind == E_RAMP && e->arg[1]->kind == E_INT && gen_is_index_arithmetic(e->arg[0]);
  Lanes l;
  if (ramp) return *out = (Strided){find_spot(g, buffer, e->arg[0]), e->arg[1]->u.i}, true;
  if (!split_lanes(g, e, &l)) return false;
  return *out = (Strided){spot_of(g, buffer, l.base), l.stride}, true;
}

static LLVMValueRef reversed(Gen *g, LLVMValueRef v, int lanes)
{
  LLVMValueRef *at = arena_array(g->arena, LLVMValueRef, lanes);
  for (int i = 0; i < lanes; i++) at[i] = gen_int(g, g->i32, lanes - 1 - i);
  return LLVMBuildShuffleVector(g->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(at, (unsigned)lanes), "");
}

/* base + at[lane], with every lane's distance known now: strides, and what index arithmetic on constants
 * gives (every second element, each element twice). */
enum { WINDOW_LANES = 64, WINDOW_LOADS = 4 };
typedef struct Window {
  LLVMValueRef base;
  int64_t at[WINDOW_LANES];
} Window;

/* The value of an index in one lane, where it is a constant. */
static bool constant_lane(const Expr *e, int lane, int64_t *out)
{
  int64_t a, b;
  if (e->kind == E_INT) return *out = e->u.i, true;
  if (e->kind == E_BROADCAST || e->kind == E_CAST)
    return dtype_is_int(e->arg[0]->dtype) && e->dtype.bits >= 32 && constant_lane(e->arg[0], lane, out);
  if (e->dtype.code != DT_INT || e->dtype.bits < 32 || e->nargs != 2 || !constant_lane(e->arg[0], lane, &a) ||
      !constant_lane(e->arg[1], lane, &b))
    return false;
  if (e->kind == E_RAMP) return *out = a + b * lane, true;
  if (e->kind == E_ADD) return *out = a + b, true;
  if (e->kind == E_SUB) return *out = a - b, true;
  if (e->kind == E_MUL) return *out = a * b, true;
  if (e->kind == E_MIN) return *out = a < b ? a : b, true;
  if (e->kind == E_MAX) return *out = a > b ? a : b, true;
  if (e->kind == E_DIV && b > 0 && a >= 0) return *out = a / b, true;
  if (e->kind == E_MOD && b > 0 && a >= 0) return *out = a % b, true;
  if (e->kind == E_CALL && e->u.intrin == IN_SHR && b >= 0 && b < 63) return *out = a >> b, true;
  if (e->kind == E_CALL && e->u.intrin == IN_BITAND) return *out = a & b, true;
  return false;
}

static bool split_window(Gen *g, const Expr *e, Window *out)
{
  int lanes = e->dtype.lanes;
  int known = 0;
  Lanes l;
  if (lanes > WINDOW_LANES) return false;
  while (known < lanes && constant_lane(e, known, &out->at[known])) known++;
  if (known == lanes) return out->base = gen_int(g, g->i64, 0), true;
  if (split_lanes(g, e, &l)) {
    for (int i = 0; i < lanes; i++) out->at[i] = i * l.stride;
    return out->base = l.base, true;
  }
  if ((e->kind != E_ADD && e->kind != E_SUB) || e->dtype.code != DT_INT || e->dtype.bits < 32) return false;
  Window b;
  bool add = e->kind == E_ADD;
  if (!split_window(g, e->arg[0], out) || !split_window(g, e->arg[1], &b)) return false;
  out->base = add ? LLVMBuildNSWAdd(g->b, out->base, b.base, "") : LLVMBuildNSWSub(g->b, out->base, b.base, "");
  for (int i = 0; i < lanes; i++) out->at[i] += add ? b.at[i] : -b.at[i];
  return true;
}

/* The addresses of all lanes, as a vector. */
static LLVMValueRef lane_addresses(Gen *g, const Buffer *buffer, const Expr *index, const Strided *l)
{
  LLVMTypeRef elem = gen_mem_type(g, buffer->dtype);
  int lanes = index->dtype.lanes;
  LLVMValueRef base = gen_lookup(g, buffer->data)->value;
  LLVMValueRef offsets;
  if (l) {
    LLVMValueRef *step = arena_array(g->arena, LLVMValueRef, lanes);
    for (int i = 0; i < lanes; i++) step[i] = gen_int(g, g->i64, i * l->stride);
    base = spot_address(g, buffer, l->spot, 0);
    offsets = LLVMConstVector(step, (unsigned)lanes);
  } else {
    offsets = gen_cast(g, gen_expr(g, index), index->dtype, dtype_lanes(DT_I64, lanes));
  }
  return LLVMBuildInBoundsGEP2(g->b, elem, gen_pointer_as(g, base, elem), &offsets, 1, "");
}

static LLVMValueRef lane_address(Gen *g, const Buffer *buffer, LLVMValueRef vector, const Strided *l, int lane)
{
  return l ? spot_address(g, buffer, l->spot, lane * l->stride)
           : spot_address(g, buffer, spot_of(g, buffer, gen_lane(g, vector, lane)), 0);
}

/* Gather and scatter instructions pay where they exist for the element. */
static bool has_gather(Gen *g, const Buffer *buffer, int lanes)
{
  int bytes = dtype_bytes(buffer->dtype);
  return target_has(g->t, CPU_AVX512VL) && (bytes == 4 || bytes == 8) && lanes >= 8;
}

/* ---- masked accesses ------------------------------------------------------------------------------- */

/* Calls llvm.masked.* with its alignment, which became an attribute in LLVM 22. */
static LLVMValueRef masked(Gen *g, const char *name, int ntypes, LLVMTypeRef *types, int pointer_at, unsigned align,
                           int n, LLVMValueRef *arg)
{
  if (llvm_api.major >= 22) {
    LLVMValueRef call = gen_intrinsic(g, name, ntypes, types, n, arg);
    unsigned kind = LLVMGetEnumAttributeKindForName("align", 5);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)(pointer_at + 1), LLVMCreateEnumAttribute(g->lc, kind, align));
    return call;
  }
  LLVMValueRef with[5];
  int m = 0;
  for (int i = 0; i < n; i++) {
    with[m++] = arg[i];
    if (i == pointer_at) with[m++] = gen_int(g, g->i32, align);
  }
  return gen_intrinsic(g, name, ntypes, types, m, with);
}

static LLVMValueRef all_lanes(Gen *g, LLVMValueRef mask, int lanes)
{
  return mask ? mask : gen_splat(g, gen_int(g, g->i1, 1), lanes);
}

/* ---- loads --------------------------------------------------------------------------------------------- */

/* Memory to register: bytes that hold bools and narrow integers. */
static LLVMValueRef from_memory(Gen *g, LLVMValueRef v, DType t)
{
  if (!dtype_is_int(t) || t.bits == 8 * dtype_bytes(t)) return v;
  return dtype_is_bool(t) ? gen_compare_zero(g, v, dtype_lanes(DT_U8, t.lanes))
                          : LLVMBuildTrunc(g->b, v, gen_type(g, t), "");
}

static LLVMValueRef to_memory(Gen *g, LLVMValueRef v, DType t)
{
  if (!dtype_is_int(t) || t.bits == 8 * dtype_bytes(t)) return v;
  LLVMTypeRef type = gen_mem_type(g, t);
  return t.code == DT_INT ? LLVMBuildSExt(g->b, v, type, "") : LLVMBuildZExt(g->b, v, type, "");
}

static LLVMValueRef load_contiguous(Gen *g, const Buffer *buffer, LLVMValueRef p, int lanes, LLVMValueRef mask)
{
  LLVMTypeRef type = gen_mem_type(g, dtype_lanes(buffer->dtype, lanes));
  unsigned align = (unsigned)dtype_bytes(buffer->dtype);
  if (!mask) return gen_tag(g, buffer, gen_load_at(g, type, p, align));
  p = gen_pointer_as(g, p, type);
  LLVMTypeRef types[] = {type, LLVMTypeOf(p)};
  return gen_tag(g, buffer,
                 masked(g, "llvm.masked.load", 2, types, 0, align, 3, (LLVMValueRef[]){p, mask, LLVMConstNull(type)}));
}

LLVMValueRef gen_load_contiguous(Gen *g, const Buffer *buffer, LLVMValueRef base, int lanes)
{
  return load_contiguous(g, buffer, spot_address(g, buffer, spot_of(g, buffer, base), 0), lanes, NULL);
}

static LLVMValueRef load_lanes(Gen *g, const Buffer *buffer, const Expr *index, const Strided *l)
{
  int lanes = index->dtype.lanes;
  LLVMTypeRef elem = gen_mem_type(g, buffer->dtype);
  LLVMTypeRef type = LLVMVectorType(elem, (unsigned)lanes);
  unsigned align = (unsigned)dtype_bytes(buffer->dtype);
  if (g->mask || (!l && has_gather(g, buffer, lanes))) {
    LLVMValueRef p = lane_addresses(g, buffer, index, l);
    LLVMTypeRef types[] = {type, LLVMTypeOf(p)};
    LLVMValueRef arg[] = {p, all_lanes(g, g->mask, lanes), LLVMConstNull(type)};
    return gen_tag(g, buffer, masked(g, "llvm.masked.gather", 2, types, 0, align, 3, arg));
  }
  LLVMValueRef vector = l ? NULL : gen_cast(g, gen_expr(g, index), index->dtype, dtype_lanes(DT_I64, lanes));
  LLVMValueRef v = LLVMGetPoison(type);
  for (int i = 0; i < lanes; i++) {
    LLVMValueRef one = gen_tag(g, buffer, gen_load_at(g, elem, lane_address(g, buffer, vector, l, i), align));
    v = LLVMBuildInsertElement(g->b, v, one, gen_int(g, g->i32, i), "");
  }
  return v;
}

/* Lanes that follow one another in memory, in groups of so many: half of them or a quarter; 0: in none. */
static int lanes_in_runs(const Window *w, int lanes)
{
  for (int n = lanes / 2; n >= 2 && n >= lanes / WINDOW_LOADS; n /= 2) {
    bool runs = true;
    for (int i = 0; i < lanes && runs; i++) runs = w->at[i] == w->at[i / n * n] + i % n;
    if (runs) return n;
  }
  return 0;
}

/* Lanes that lie close together: the memory from the first to the last of them in a few contiguous loads, the
 * last one ending where the last lane does, or a load for each run of lanes where those are as few; and the
 * lanes picked out of those.  NULL: they lie too far apart. */
static LLVMValueRef load_window(Gen *g, const Buffer *buffer, const Expr *index)
{
  int lanes = index->dtype.lanes;
  Window w;
  if (g->mask || lanes < 4 || !split_window(g, index, &w)) return NULL;
  Spot base = spot_of(g, buffer, w.base);
  int64_t least = w.at[0];
  int64_t most = w.at[0];
  int64_t width = lanes;
  for (int i = 1; i < lanes; i++) {
    least = w.at[i] < least ? w.at[i] : least;
    most = w.at[i] > most ? w.at[i] : most;
  }
  int64_t span = most - least + 1;
  if (span == 1) { /* one element for all lanes */
    return gen_splat(g, load_contiguous(g, buffer, spot_address(g, buffer, base, least), 1, NULL), lanes);
  }
  while (width > span) width /= 2;
  int64_t loads = (span + width - 1) / width;
  if (loads > WINDOW_LOADS || (loads > 1 && width < lanes / 2)) return NULL;
  int64_t run = lanes_in_runs(&w, lanes);
  bool runs = run && lanes / run <= loads;
  if (runs) width = run, loads = lanes / run;
  LLVMTypeRef type = LLVMVectorType(gen_mem_type(g, buffer->dtype), (unsigned)lanes);
  LLVMValueRef all = LLVMGetPoison(type);
  LLVMValueRef *from = arena_array(g->arena, LLVMValueRef, lanes);
  LLVMValueRef *keep = arena_array(g->arena, LLVMValueRef, lanes);
  for (int64_t k = 0; k < loads; k++) {
    int64_t first = runs ? w.at[k * run] - least : k * width + width > span ? span - width : k * width;
    LLVMValueRef part = load_contiguous(g, buffer, spot_address(g, buffer, base, least + first), (int)width, NULL);
    for (int i = 0; i < lanes; i++) {
      int64_t at = w.at[i] - least;
      bool here = (runs ? i : at) / width == k;
      from[i] = here ? gen_int(g, g->i32, at - first) : LLVMGetUndef(g->i32);
      keep[i] = gen_int(g, g->i32, here ? lanes + i : i);
    }
    part =
        LLVMBuildShuffleVector(g->b, part, LLVMGetPoison(LLVMTypeOf(part)), LLVMConstVector(from, (unsigned)lanes), "");
    all = k ? LLVMBuildShuffleVector(g->b, all, part, LLVMConstVector(keep, (unsigned)lanes), "") : part;
  }
  return all;
}

static LLVMValueRef load_vector(Gen *g, const Buffer *buffer, const Expr *index)
{
  int lanes = index->dtype.lanes;
  Strided l;
  bool even = find_strided(g, buffer, index, &l);
  LLVMValueRef window = even && l.stride >= -1 && l.stride <= 1 ? NULL : load_window(g, buffer, index);
  if (window) return window;
  LLVMValueRef looked_up = even ? NULL : gen_look_up(g, buffer, index);
  if (looked_up) return looked_up;
  if (!even) return load_lanes(g, buffer, index, NULL);
  LLVMValueRef p = spot_address(g, buffer, l.spot, l.stride == -1 ? 1 - lanes : 0);
  if (l.stride == 1) return load_contiguous(g, buffer, p, lanes, g->mask);
  if (l.stride == 0 && !g->mask) {
    LLVMValueRef one = gen_load_at(g, gen_mem_type(g, buffer->dtype), p, (unsigned)dtype_bytes(buffer->dtype));
    return gen_splat(g, gen_tag(g, buffer, one), lanes);
  }
  if (l.stride == -1)
    return reversed(g, load_contiguous(g, buffer, p, lanes, g->mask ? reversed(g, g->mask, lanes) : NULL), lanes);
  return load_lanes(g, buffer, index, &l);
}

LLVMValueRef gen_load(Gen *g, const Expr *e)
{
  const Buffer *buffer = e->u.buffer;
  if (e->nargs != 1) BUG(g->ctx, "llvm: a load of '%s' with %d indices", buffer->name, e->nargs);
  const Expr *index = e->arg[0];
  if (index->dtype.lanes > 1) {
    if (buffer->dtype.lanes != 1)
      raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: a vector index into '%s', whose elements are vectors",
            buffer->name);
    return from_memory(g, load_vector(g, buffer, index), e->dtype);
  }
  LLVMValueRef p = gen_address(g, buffer, index);
  LLVMValueRef v = gen_load_at(g, gen_mem_type(g, buffer->dtype), p, (unsigned)dtype_bytes(buffer->dtype));
  return from_memory(g, gen_tag(g, buffer, v), e->dtype);
}

/* An element of memory behind changes that leave its bits as they are, in the low end of a word: base + offset. */
typedef struct Joined {
  const Buffer *buffer;
  const Expr *base; /* NULL: 0 */
  int64_t offset;
  int bits; /* from there on */
} Joined;

static bool joined(const Expr *e, Joined *out)
{
  if (e->kind == E_CAST && e->dtype.code == DT_UINT && e->arg[0]->dtype.code == DT_UINT &&
      e->dtype.bits >= e->arg[0]->dtype.bits)
    return joined(e->arg[0], out);
  if (e->kind == E_CALL && e->u.intrin == IN_REINTERPRET) return joined(e->arg[0], out);
  if (e->kind == E_LOAD && e->nargs == 1 && e->u.buffer->dtype.lanes == 1 &&
      e->dtype.bits == 8 * dtype_bytes(e->dtype)) {
    const Expr *at = e->arg[0];
    bool moved = at->kind == E_ADD && at->arg[1]->kind == E_INT;
    *out = (Joined){e->u.buffer, moved ? at->arg[0] : at, moved ? at->arg[1]->u.i : 0, e->dtype.bits};
    if (at->kind == E_INT) out->base = NULL, out->offset = at->u.i;
    return true;
  }
  Joined high;
  if (e->kind != E_CALL || e->u.intrin != IN_BITOR || e->arg[1]->kind != E_CALL || e->arg[1]->u.intrin != IN_SHL)
    return false;
  const Expr *by = e->arg[1]->arg[1];
  if (!joined(e->arg[0], out) || !joined(e->arg[1]->arg[0], &high) || by->kind != E_INT || by->u.i != out->bits ||
      high.bits != out->bits)
    return false;
  if (high.buffer != out->buffer || high.base != out->base ||
      high.offset != out->offset + out->bits / (8 * dtype_bytes(out->buffer->dtype)))
    return false;
  out->bits *= 2;
  return true;
}

/* LLVM finds this too while the elements' addresses look alike; hoisted apart they no longer do. */
LLVMValueRef gen_word(Gen *g, const Expr *e)
{
  Joined w;
  if (e->dtype.lanes != 1 || e->dtype.code != DT_UINT || !joined(e, &w) || w.bits != e->dtype.bits) return NULL;
  LLVMValueRef at = gen_int(g, g->i64, w.offset);
  LLVMValueRef base = gen_lookup(g, w.buffer->data)->value;
  if (w.base) at = LLVMBuildNSWAdd(g->b, gen_index(g, w.base), at, "");
  LLVMValueRef p = gen_offset(g, gen_mem_type(g, w.buffer->dtype), base, at);
  return gen_tag(g, w.buffer, gen_load_at(g, gen_type(g, e->dtype), p, (unsigned)dtype_bytes(w.buffer->dtype)));
}

LLVMValueRef gen_address(Gen *g, const Buffer *buffer, const Expr *index)
{
  if (index->kind == E_RAMP) index = index->arg[0];
  if (buffer->dtype.lanes == 1) return spot_address(g, buffer, find_spot(g, buffer, index), 0);
  LLVMValueRef at = LLVMBuildNSWMul(g->b, gen_index(g, index), gen_int(g, g->i64, buffer->dtype.lanes), "");
  return spot_address(g, buffer, spot_of(g, buffer, at), 0);
}

/* ---- stores ---------------------------------------------------------------------------------------------- */

static void store_contiguous(Gen *g, const Buffer *buffer, LLVMValueRef p, LLVMValueRef v, LLVMValueRef mask)
{
  unsigned align = (unsigned)dtype_bytes(buffer->dtype);
  if (!mask) {
    gen_tag(g, buffer, gen_store_at(g, v, p, align));
    return;
  }
  p = gen_pointer_as(g, p, LLVMTypeOf(v));
  LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
  gen_tag(g, buffer, masked(g, "llvm.masked.store", 2, types, 1, align, 3, (LLVMValueRef[]){v, p, mask}));
}

void gen_store_contiguous(Gen *g, const Buffer *buffer, LLVMValueRef base, LLVMValueRef v, int lanes)
{
  LLVMValueRef p = spot_address(g, buffer, spot_of(g, buffer, base), 0);
  store_contiguous(g, buffer, p, to_memory(g, v, dtype_lanes(buffer->dtype, lanes)), NULL);
}

static void store_lanes(Gen *g, const Buffer *buffer, const Expr *index, const Strided *l, LLVMValueRef v,
                        LLVMValueRef mask)
{
  int lanes = index->dtype.lanes;
  unsigned align = (unsigned)dtype_bytes(buffer->dtype);
  if (mask || has_gather(g, buffer, lanes)) {
    LLVMValueRef p = lane_addresses(g, buffer, index, l);
    LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
    gen_tag(g, buffer,
            masked(g, "llvm.masked.scatter", 2, types, 1, align, 3, (LLVMValueRef[]){v, p, all_lanes(g, mask, lanes)}));
    return;
  }
  LLVMValueRef vector = l ? NULL : gen_cast(g, gen_expr(g, index), index->dtype, dtype_lanes(DT_I64, lanes));
  for (int i = 0; i < lanes; i++)
    gen_tag(g, buffer, gen_store_at(g, gen_lane(g, v, i), lane_address(g, buffer, vector, l, i), align));
}

/* A scalar store under a condition. */
static void store_guarded(Gen *g, const Buffer *buffer, LLVMValueRef v, LLVMValueRef p, LLVMValueRef cond)
{
  LLVMBasicBlockRef then = gen_block(g, "store");
  LLVMBasicBlockRef done = gen_block(g, "done");
  LLVMBuildCondBr(g->b, cond, then, done);
  LLVMPositionBuilderAtEnd(g->b, then);
  gen_tag(g, buffer, gen_store_at(g, v, p, (unsigned)dtype_bytes(buffer->dtype)));
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

void gen_store(Gen *g, const Buffer *buffer, const Expr *index, LLVMValueRef v, LLVMValueRef mask)
{
  int lanes = index->dtype.lanes;
  if (lanes == 1) {
    LLVMValueRef p = gen_address(g, buffer, index);
    v = to_memory(g, v, buffer->dtype);
    if (mask) store_guarded(g, buffer, v, p, mask);
    else gen_tag(g, buffer, gen_store_at(g, v, p, (unsigned)dtype_bytes(buffer->dtype)));
    return;
  }
  if (buffer->dtype.lanes != 1)
    raise(g->ctx, ERR_UNSUPPORTED, NOWHERE, "llvm: a vector index into '%s', whose elements are vectors", buffer->name);
  v = to_memory(g, v, dtype_lanes(buffer->dtype, lanes));
  Strided l;
  bool split = find_strided(g, buffer, index, &l);
  if (split && l.stride == 1) store_contiguous(g, buffer, spot_address(g, buffer, l.spot, 0), v, mask);
  else if (split && l.stride == -1)
    store_contiguous(g, buffer, spot_address(g, buffer, l.spot, 1 - lanes), reversed(g, v, lanes),
                     mask ? reversed(g, mask, lanes) : NULL);
  else store_lanes(g, buffer, index, split ? &l : NULL, v, mask);
}
