/* llvm_stmt.c: statements to basic blocks.
 *
 * Loops come out as `if (0 < n) do … while (++i < n)`, without the test when n is a
 * positive literal: that is the form in which loop-invariant code motion may move
 * stores, so accumulators in memory end in registers.  The counter is i64.
 *
 * A parallel loop becomes an internal function (begin, end, slot, environment) that
 * is handed to rt->parallel_for.  Stack allocations are made in the entry block,
 * where SROA promotes them. */
#include "codegen/llvm_gen.h"

enum { ALLOC_ALIGN = 64 };

/* ---- functions and blocks ------------------------------------------------------------------------ */

LLVMBasicBlockRef gen_block(Gen *g, const char *name) { return LLVMAppendBasicBlockInContext(g->lc, g->fn->fn, name); }

void gen_attribute(Gen *g, LLVMValueRef fn, LLVMAttributeIndex at, const char *name, uint64_t value)
{
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  if (kind) LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(g->lc, kind, value));
}

static void text_attribute(Gen *g, LLVMValueRef fn, const char *name, const char *value)
{
  LLVMAttributeRef a = LLVMCreateStringAttribute(g->lc, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

const char *gen_cpu_name(const Target *t)
{
  static const struct {
    const char *name;
    int since;
    const char *before;
    /* clang-format off */
  } young[] = {
      {"znver5", 19, "znver4"},
      {"znver4", 16, "znver3"},
      {"emeraldrapids", 17, "sapphirerapids"},
      {"graniterapids", 16, "sapphirerapids"},
      {"neoverse-v2", 16, "neoverse-v1"},
      {"apple-m3", 18, "apple-m2"},
      {"apple-m2", 16, "apple-m1"},
      {"cortex-m85", 15, "cortex-m55"},
      {"sifive-x280", 16, "sifive-u74"},
  };
  /* clang-format on */
  const char *name = t->cpu;
  for (size_t i = 0; i < sizeof young / sizeof *young; i++)
    if (strcmp(name, young[i].name) == 0 && llvm_api.major < young[i].since) name = young[i].before;
  return name;
}

/* Features are spelled out, so the CPU's name only chooses the pipeline model; where
 * LLVM has no tune-cpu (ARM, WebAssembly) the target machine has the name itself. */
static void machine_attributes(Gen *g, LLVMValueRef fn)
{
  text_attribute(g, fn, "target-features", g->features);
  if (g->t->arch == ARCH_X86_64 || g->t->arch == ARCH_AARCH64) {
    if (strcmp(g->t->cpu, "generic") != 0) text_attribute(g, fn, "tune-cpu", gen_cpu_name(g->t));
    text_attribute(g, fn, "prefer-vector-width", arena_printf(g->arena, "%d", g->t->vector_bits));
  }
  text_attribute(g, fn, "no-trapping-math", "true");
  gen_attribute(g, fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
}

void gen_function_begin(Gen *g, Frame *f, const char *name, LLVMTypeRef type, LLVMLinkage linkage)
{
  if (LLVMGetNamedFunction(g->mod, name))
    raise(g->ctx, ERR_ARGUMENT, NOWHERE,
          "kernel '%s': the name is taken by another kernel or a C function that one calls; rename it", name);
  *f = (Frame){.parent = g->fn, .fn = LLVMAddFunction(g->mod, name, type)};
  LLVMSetLinkage(f->fn, linkage);
  machine_attributes(g, f->fn);
  g->fn = f;
  f->entry = gen_block(g, "entry");
  f->start = gen_block(g, "start");
  LLVMPositionBuilderAtEnd(g->b, f->start);
}

void gen_function_end(Gen *g)
{
  LLVMPositionBuilderAtEnd(g->b, g->fn->entry);
  LLVMBuildBr(g->b, g->fn->start);
  g->fn = g->fn->parent;
}

void gen_return_if_failed(Gen *g, LLVMValueRef status)
{
  LLVMBasicBlockRef failed = gen_block(g, "failed");
  LLVMBasicBlockRef on = gen_block(g, "on");
  LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, status, gen_int(g, g->i32, 0), ""), failed, on);
  LLVMPositionBuilderAtEnd(g->b, failed);
  LLVMBuildRet(g->b, status);
  LLVMPositionBuilderAtEnd(g->b, on);
}

/* ---- loops --------------------------------------------------------------------------------------- */

static void note_vector(void *env, Stmt *holder, const Expr *e)
{
  bool *plain = env;
  if (e->dtype.lanes > 1 || (e->kinds >> E_RAMP & 1) || (e->kinds >> E_BROADCAST & 1)) *plain = false;
  if (holder->kind == S_FOR || !e->pure) *plain = false;
}

/* An innermost loop that nobody scheduled: LLVM may vectorise it. */
static bool is_free_loop(Stmt *s)
{
  bool plain = s->u.loop.annots.n == 0 && s->u.loop.kind == FOR_SERIAL;
  if (plain) stmt_visit_exprs(s->u.loop.body, note_vector, &plain);
  return plain;
}

/* Gives the loop of this branch the properties: !{itself, property, …} */
static void tag_loop(Gen *g, LLVMValueRef branch, LLVMMetadataRef a, LLVMMetadataRef b)
{
  LLVMMetadataRef self = LLVMTemporaryMDNode(g->lc, NULL, 0);
  LLVMMetadataRef item[] = {self, a, b};
  LLVMMetadataRef id = LLVMMDNodeInContext2(g->lc, item, b ? 3 : 2);
  LLVMMetadataReplaceAllUsesWith(self, id);
  LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(g->lc, "llvm.loop", 9), LLVMMetadataAsValue(g->lc, id));
}

/* !{"name", i1 false} */
static LLVMMetadataRef loop_refuses(Gen *g, const char *name)
{
  LLVMMetadataRef pair[] = {LLVMMDStringInContext2(g->lc, name, strlen(name)),
                            LLVMValueAsMetadata(gen_int(g, g->i1, 0))};
  return LLVMMDNodeInContext2(g->lc, pair, 2);
}

/* A loop stays as it was scheduled. */
static void keep_loop(Gen *g, LLVMValueRef branch)
{
  LLVMMetadataRef unroll = LLVMMDStringInContext2(g->lc, "llvm.loop.unroll.disable", 24);
  tag_loop(g, branch, LLVMMDNodeInContext2(g->lc, &unroll, 1), loop_refuses(g, "llvm.loop.vectorize.enable"));
}

/* LLVM may vectorise, but with vectors of a fixed size (SVE has others): all code here is
 * made for the target's vector_bits, and load-store-vectorizer ends the process on them. */
static void free_loop(Gen *g, LLVMValueRef branch)
{
  g->has_free_loop = true;
  tag_loop(g, branch, loop_refuses(g, "llvm.loop.vectorize.scalable.enable"), NULL);
}

/* ---- constants of an inner loop ----------------------------------------------------------------------
 *
 * AArch64 makes a vector of a constant in two or three instructions, and LLVM moves them out of all loops or, where
 * registers are scarce in another one, out of none.  So an elementary function in a loop inside others would make its
 * dozen constants anew for each vector.  Here they are read before the loop; that the reads are volatile keeps them
 * there. */

enum { MAX_CONSTANTS = 32 }; /* what a few values on their way leave of 32 registers */

typedef struct Constants {
  Gen *g;
  const Expr *v[MAX_CONSTANTS];
  bool whole[MAX_CONSTANTS]; /* used otherwise than as a factor of a multiply-add */
  int n;
  bool inner; /* no loop in it */
} Constants;

static int constant_index(Constants *c, const Expr *e)
{
  const Expr *one = e->kind == E_BROADCAST ? e->arg[0] : e;
  bool vector = e->dtype.lanes * e->dtype.bits == c->g->t->vector_bits;
  if (!vector || one->kind != E_FLOAT || one->u.f == 0) return -1;
  for (int i = 0; i < c->n; i++)
    if (c->v[i] == e) return i;
  if (c->n == MAX_CONSTANTS) return -1;
  c->v[c->n] = e;
  return c->n++;
}

static void note_constant(void *env, const Expr *e)
{
  Constants *c = env;
  bool fma = e->kind == E_CALL && e->u.intrin == IN_FMA && e->dtype.bits == 32;
  for (int i = 0; i < e->nargs; i++) {
    int k = constant_index(c, e->arg[i]);
    if (k >= 0) c->whole[k] |= !fma || i == 2;
  }
}

static void note_constants(void *env, Stmt *holder, const Expr *e)
{
  Constants *c = env;
  if (holder->kind == S_FOR || holder->kind == S_WHILE) c->inner = false;
  expr_visit(c->g->ctx, e, note_constant, c);
}

/* A vector of constants that stays where it is read. */
static LLVMValueRef read_constant(Gen *g, LLVMValueRef v)
{
  LLVMTypeRef type = LLVMTypeOf(v);
  LLVMValueRef global = LLVMAddGlobal(g->mod, type, "constant");
  LLVMSetInitializer(global, v);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetAlignment(global, (unsigned)g->t->vector_bits / 8);
  LLVMValueRef read = gen_load_at(g, type, global, (unsigned)g->t->vector_bits / 8);
  LLVMSetVolatile(read, true);
  return read;
}

/* Factors of multiply-adds, four to a register: the instruction takes an element of it. */
static void preload_factors(Gen *g, Constants *c)
{
  enum { LANES = 4 };
  for (int i = 0; i < c->n;) {
    const Expr *factor[LANES];
    LLVMValueRef lane[LANES];
    int n = 0;
    for (; i < c->n && n < LANES; i++)
      if (!c->whole[i]) factor[n++] = c->v[i];
    for (int k = 0; k < LANES; k++) {
      const Expr *e = factor[k < n ? k : 0];
      if (n) lane[k] = gen_expr(g, e->kind == E_BROADCAST ? e->arg[0] : e);
    }
    LLVMValueRef all = n ? read_constant(g, LLVMConstVector(lane, LANES)) : NULL;
    for (int k = 0; k < n; k++) {
      LLVMValueRef at[LANES];
      for (int l = 0; l < LANES; l++) at[l] = gen_int(g, g->i32, k);
      LLVMValueRef splat =
          LLVMBuildShuffleVector(g->b, all, LLVMGetPoison(LLVMTypeOf(all)), LLVMConstVector(at, LANES), "");
      map_put(g->arena, &g->memo->values, factor[k], splat);
    }
  }
}

/* Puts the loop's constants into the memo, where they are many. */
static void preload_constants(Gen *g, Stmt *body)
{
  enum { MANY = 5 };
  Constants c = {.g = g, .inner = true};
  if (g->t->arch != ARCH_AARCH64) return;
  stmt_visit_exprs(body, note_constants, &c);
  if (!c.inner || c.n < MANY) return;
  for (int i = 0; i < c.n; i++)
    if (c.whole[i]) map_put(g->arena, &g->memo->values, c.v[i], read_constant(g, gen_expr(g, c.v[i])));
  preload_factors(g, &c);
}

/* for (i = begin; i < end; i++) body; some: it is known that begin < end. */
static void loop_over(Gen *g, Stmt *s, LLVMValueRef begin, LLVMValueRef end, bool some)
{
  const Var *var = s->u.loop.var;
  Memo memo;
  gen_memo_begin(g, &memo);
  preload_constants(g, s->u.loop.body);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = gen_block(g, var->name);
  LLVMBasicBlockRef done = gen_block(g, "done");
  if (some) LLVMBuildBr(g->b, body);
  else LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, begin, end, ""), body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  LLVMValueRef i = LLVMBuildPhi(g->b, g->i64, var->name);
  g->fn->depth++;
  gen_bind(g, var, i);
  gen_stmt(g, s->u.loop.body);
  g->fn->depth--;
  gen_memo_end(g, &memo);
  LLVMValueRef next = LLVMBuildNSWAdd(g->b, i, gen_int(g, g->i64, 1), "");
  LLVMValueRef back = LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, next, end, ""), body, done);
  LLVMAddIncoming(i, (LLVMValueRef[]){begin, next}, (LLVMBasicBlockRef[]){before, LLVMGetInsertBlock(g->b)}, 2);
  if (is_free_loop(s)) free_loop(g, back);
  else keep_loop(g, back);
  LLVMPositionBuilderAtEnd(g->b, done);
}

/* The body as a function of its own, and its environment filled in here. */
static void parallel_loop(Gen *g, Stmt *s, LLVMValueRef n)
{
  if (g->fn->parent) BUG(g->ctx, "llvm: a parallel loop inside another in kernel '%s'", g->k->name);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  LLVMTypeRef params[] = {g->i64, g->i64, g->i32, g->ptr};
  Frame body;
  gen_function_begin(g, &body, arena_printf(g->arena, "%s__body%d", g->k->name, g->nbodies++),
                     LLVMFunctionType(g->i32, params, 4, false), LLVMInternalLinkage);
  body.slot = LLVMGetParam(body.fn, 2);
  body.env = LLVMGetParam(body.fn, 3);
  gen_attribute(g, body.fn, 4, "noalias", 0);
  gen_attribute(g, body.fn, 4, "readonly", 0);
  loop_over(g, s, LLVMGetParam(body.fn, 0), LLVMGetParam(body.fn, 1), false);
  LLVMBuildRet(g->b, gen_int(g, g->i32, 0));
  gen_function_end(g);
  LLVMPositionBuilderAtEnd(g->b, here);

  LLVMValueRef env = gen_alloca(g, g->i8, body.env_bytes ? body.env_bytes : 1, 16);
  for (int i = 0; i < body.captures.n; i++)
    gen_store_at(g, body.captures.v[i].outer, gen_field(g, env, body.captures.v[i].offset), 8);
  LLVMValueRef rt = gen_ambient(g, AMBIENT_RT);
  LLVMValueRef fn = gen_load_at(g, g->ptr, gen_member(g, gen_calls_type(g), rt, 2), 4);
  LLVMTypeRef types[] = {g->ptr, g->i64, g->ptr, g->ptr};
  LLVMValueRef arg[] = {rt, n, LLVMConstPointerCast(body.fn, g->ptr), env};
  gen_return_if_failed(g, gen_call_pointer(g, LLVMFunctionType(g->i32, types, 4, false), fn, 4, arg));
}

static void gen_for(Gen *g, Stmt *s)
{
  Memo memo;
  gen_memo_begin(g, &memo);
  LLVMValueRef min = gen_index(g, s->u.loop.min);
  LLVMValueRef extent = gen_index(g, s->u.loop.extent);
  gen_memo_end(g, &memo);
  bool from_zero = expr_is_int(s->u.loop.min, 0);
  switch (s->u.loop.kind) {
  case FOR_SERIAL: {
    bool some = s->u.loop.extent->kind == E_INT && s->u.loop.extent->u.i > 0;
    loop_over(g, s, min, from_zero ? extent : LLVMBuildNSWAdd(g->b, min, extent, ""), some);
    return;
  }
  case FOR_PARALLEL:
    if (!from_zero) BUG(g->ctx, "llvm: a parallel loop that does not start at 0 in kernel '%s'", g->k->name);
    parallel_loop(g, s, extent);
    return;
  case FOR_THREAD:
    raise(g->ctx, ERR_UNSUPPORTED, s->loc,
          "llvm: kernel '%s' binds loop '%s' to %s, which a CPU has not; build it for cuda", g->k->name,
          s->u.loop.var->name, s->u.loop.thread_tag ? s->u.loop.thread_tag : "a thread axis");
  case FOR_VECTORIZED:
  case FOR_UNROLLED: break;
  }
  BUG(g->ctx, "llvm: loop '%s' of kernel '%s' is still marked %s", s->u.loop.var->name, g->k->name,
      s->u.loop.kind == FOR_VECTORIZED ? "vectorized" : "unrolled");
}

static void gen_while(Gen *g, Stmt *s)
{
  LLVMBasicBlockRef test = gen_block(g, "while");
  LLVMBasicBlockRef body = gen_block(g, "body");
  LLVMBasicBlockRef done = gen_block(g, "done");
  LLVMBuildBr(g->b, test);
  LLVMPositionBuilderAtEnd(g->b, test);
  Memo memo;
  gen_memo_begin(g, &memo);
  LLVMBuildCondBr(g->b, gen_expr(g, s->u.loop_while.cond), body, done);
  gen_memo_end(g, &memo);
  LLVMPositionBuilderAtEnd(g->b, body);
  gen_stmt(g, s->u.loop_while.body);
  keep_loop(g, LLVMBuildBr(g->b, test));
  LLVMPositionBuilderAtEnd(g->b, done);
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static void gen_if(Gen *g, Stmt *s)
{
  LLVMBasicBlockRef then = gen_block(g, "then");
  LLVMBasicBlockRef orelse = s->u.cond.orelse ? gen_block(g, "else") : NULL;
  LLVMBasicBlockRef done = gen_block(g, "done");
  Memo memo;
  gen_memo_begin(g, &memo);
  LLVMBuildCondBr(g->b, gen_expr(g, s->u.cond.cond), then, orelse ? orelse : done);
  gen_memo_end(g, &memo);
  LLVMPositionBuilderAtEnd(g->b, then);
  gen_stmt(g, s->u.cond.then);
  LLVMBuildBr(g->b, done);
  if (orelse) {
    LLVMPositionBuilderAtEnd(g->b, orelse);
    gen_stmt(g, s->u.cond.orelse);
    LLVMBuildBr(g->b, done);
  }
  LLVMPositionBuilderAtEnd(g->b, done);
}

static LLVMValueRef alloc_stack(Gen *g, const Buffer *b)
{
  int64_t n = b->dtype.lanes;
  for (int i = 0; i < b->ndim; i++)
    if (b->shape[i]->kind != E_INT || !int_mul(n, b->shape[i]->u.i, &n))
      BUG(g->ctx, "llvm: '%s' of kernel '%s' is on the stack but its size is not a literal", b->name, g->k->name);
  return gen_alloca(g, gen_mem_type(g, dtype_elem(b->dtype)), n > 0 ? (uint64_t)n : 1, ALLOC_ALIGN);
}

/* The worker's slice starts at slices + slot * slice_bytes. */
static LLVMValueRef slice_base(Gen *g)
{
  LLVMValueRef base = gen_ambient(g, AMBIENT_SLICES);
  if (!g->fn->slot) return base;
  LLVMValueRef slot = LLVMBuildSExt(g->b, g->fn->slot, g->i64, "");
  return gen_offset(g, g->i8, base, LLVMBuildNSWMul(g->b, slot, gen_ambient(g, AMBIENT_SLICE_BYTES), ""));
}

static void gen_alloc(Gen *g, Stmt *s)
{
  const Buffer *b = s->u.alloc.buffer;
  LLVMValueRef p = NULL;
  switch (s->u.alloc.place) {
  case PLACE_STACK: p = alloc_stack(g, b); break;
  case PLACE_WORKSPACE: p = gen_ambient(g, AMBIENT_WORKSPACE); break;
  case PLACE_SLICE: p = slice_base(g); break;
  case PLACE_NONE: BUG(g->ctx, "llvm: '%s' of kernel '%s' was given no place", b->name, g->k->name);
  case PLACE_SHARED:
    raise(g->ctx, ERR_UNSUPPORTED, s->loc, "llvm: '%s' of kernel '%s' is in shared memory, which a CPU has not",
          b->name, g->k->name);
  }
  if (s->u.alloc.offset && s->u.alloc.place != PLACE_STACK) {
    Memo memo;
    gen_memo_begin(g, &memo);
    p = gen_offset(g, g->i8, p, gen_index(g, s->u.alloc.offset));
    gen_memo_end(g, &memo);
  }
  gen_bind(g, b->data, p);
  gen_stmt(g, s->u.alloc.body);
}

static void gen_store_stmt(Gen *g, Stmt *s)
{
  if (s->u.store.n != 1) BUG(g->ctx, "llvm: a store to '%s' with %d indices", s->u.store.buffer->name, s->u.store.n);
  Memo memo;
  gen_memo_begin(g, &memo);
  const Expr *index = s->u.store.index[0];
  const Expr *mask = s->u.store.mask;
  LLVMValueRef v =
      gen_expr_lanes(g, s->u.store.value, index->dtype.lanes > 1 ? index->dtype.lanes : s->u.store.buffer->dtype.lanes);
  LLVMValueRef m = mask ? gen_expr_lanes(g, mask, index->dtype.lanes) : NULL;
  gen_store(g, s->u.store.buffer, index, v, m);
  gen_memo_end(g, &memo);
}

void gen_stmt(Gen *g, Stmt *s)
{
  Memo memo;
  switch (s->kind) {
  case S_SEQ:
    gen_memo_begin(g, &memo);
    gen_turned_loads(g, s);
    for (int i = 0, n; i < s->u.seq.n; i += n ? n : 1)
      if ((n = gen_abreast(g, s, i)) == 0 && (n = gen_columns_together(g, s, i)) == 0) gen_stmt(g, s->u.seq.v[i]);
    gen_memo_end(g, &memo);
    return;
  case S_FOR:
    if (!gen_copied_run(g, s)) gen_for(g, s);
    return;
  case S_IF: gen_if(g, s); return;
  case S_WHILE: gen_while(g, s); return;
  case S_LET:
    gen_memo_begin(g, &memo);
    gen_bind_let(g, s->u.let.var, s->u.let.value);
    gen_memo_end(g, &memo);
    gen_stmt(g, s->u.let.body);
    return;
  case S_STORE: gen_store_stmt(g, s); return;
  case S_ALLOC: gen_alloc(g, s); return;
  case S_EVAL:
    if (expr_is_const(s->u.eval.value)) return;
    gen_memo_begin(g, &memo);
    if (s->u.eval.value->kind == E_CALL && s->u.eval.value->u.intrin == IN_CALL_PACKED)
      gen_call_packed(g, s->u.eval.value);
    else gen_expr(g, s->u.eval.value);
    gen_memo_end(g, &memo);
    return;
  case S_ATTR: gen_stmt(g, s->u.attr.body); return;
  case S_BLOCK: break;
  }
  BUG(g->ctx, "llvm: a block statement in kernel '%s'", g->k->name);
}
