/* llvm_copy.c: long runs of memory copied by the processor's own instruction.
 *
 *   for i < n: y[ramp(b + i*L, 1, L)] = x[ramp(c + i*L, 1, L)]   →   memcpy of n*L elements, in place: rep movsb
 *
 * A loop reads every line of y from memory before it writes it; the instruction knows that whole lines are
 * written and does not.  That pays where the lines would not be found in the second-level cache: kernels that move
 * about as much as it holds.  Every processor with AVX-512 has the fast form; others keep the loop. */
#include "codegen/llvm_gen.h"

enum { SHORTEST = 4096 }; /* bytes: what starting the instruction is worth */

/* Bytes of all tensors of the kernel whose sizes are known. */
static int64_t moved_bytes(const Kernel *k)
{
  int64_t total = 0;
  for (int i = 0; i < k->narg; i++) {
    const Buffer *b = k->arg[i].buffer;
    if (!b) continue;
    int64_t bytes = dtype_bytes(b->dtype);
    for (int d = 0; d < b->ndim; d++)
      if (b->shape[d]->kind != E_INT || __builtin_mul_overflow(bytes, b->shape[d]->u.i, &bytes)) return 0;
    if (__builtin_add_overflow(total, bytes, &total)) return 0;
  }
  return total;
}

/* A tensor of the kernel's own that shares its memory with no other. */
static bool stands_alone(const Gen *g, const Buffer *b)
{
  for (int i = 0; i < g->k->narg; i++)
    if (g->k->arg[i].var == b->data) return !g->k->arg[i].may_alias;
  return false;
}

/* The first element of a run that goes on with each step of the loop; NULL: another access.  lets: Var* -> Expr* of the
 * body. */
static const Expr *run_start(Gen *g, const Stmt *loop, const Map *lets, const Expr *index, int lanes)
{
  index = expr_substitute(g->k->m, index, lets);
  if (index->kind != E_RAMP || index->dtype.lanes != lanes || !expr_is_int(index->arg[1], 1) ||
      expr_has_kind(index, E_LOAD))
    return NULL;
  Analyzer *an = analyzer_new(g->k->m, g->arena);
  const Var *v = loop->u.loop.var;
  const Expr *coeff[2], *step;
  if (!expr_linear(an, index->arg[0], 1, &v, coeff)) return NULL;
  step = expr_simplify(an, coeff[0]);
  return expr_is_int(step, lanes) ? coeff[1] : NULL;
}

bool gen_copied_run(Gen *g, Stmt *s)
{
  const Stmt *store = s->u.loop.body;
  Map lets = {0};
  for (; store->kind == S_LET; store = store->u.let.body)
    map_put(g->arena, &lets, store->u.let.var, (void *)(uintptr_t)expr_substitute(g->k->m, store->u.let.value, &lets));
  if (g->t->arch != ARCH_X86_64 || !target_has(g->t, CPU_AVX512F) || s->u.loop.kind != FOR_SERIAL ||
      store->kind != S_STORE)
    return false;
  const Expr *load = store->u.store.value;
  const Expr *n = s->u.loop.extent;
  bool plain = load->kind == E_LOAD && load->nargs == 1 && store->u.store.n == 1 && !store->u.store.mask &&
               expr_is_int(s->u.loop.min, 0) && n->kind == E_INT;
  if (!plain) return false;
  const Buffer *to = store->u.store.buffer;
  const Buffer *from = load->u.buffer;
  int lanes = load->dtype.lanes;
  if (to->data == from->data || !dtype_eq(to->dtype, from->dtype) || to->dtype.lanes != 1 || to->dtype.bits % 8 ||
      !stands_alone(g, to) || !stands_alone(g, from))
    return false;
  int64_t bytes = n->u.i * lanes * dtype_bytes(to->dtype);
  if (bytes < SHORTEST || moved_bytes(g->k) < g->t->l2_bytes / 2) return false;
  const Expr *write = run_start(g, s, &lets, store->u.store.index[0], lanes);
  const Expr *read = run_start(g, s, &lets, load->arg[0], lanes);
  if (!write || !read) return false;
  Memo memo;
  gen_memo_begin(g, &memo);
  LLVMValueRef y = gen_pointer_as(g, gen_address(g, to, write), g->i8);
  LLVMValueRef x = gen_pointer_as(g, gen_address(g, from, read), g->i8);
  LLVMValueRef arg[] = {y, x, gen_int(g, g->i64, bytes), LLVMConstInt(g->i1, 0, false)};
  gen_intrinsic(g, "llvm.memcpy.inline", 3, (LLVMTypeRef[]){LLVMTypeOf(y), LLVMTypeOf(x), g->i64}, 4, arg);
  gen_memo_end(g, &memo);
  return true;
}
