/* test_te.c: tensor expressions: what the evaluator says against numbers worked out
 * by hand, what te_create_prim_func makes against the evaluator, and refusals. */
#include "te/test_te.h"

static void expect_f32(const TirArg *a, int n, const float *want)
{
  for (int i = 0; i < n; i++) assert_float_equal(((const float *)a->data)[i], want[i], 1e-6);
}

static TirArg f32(World *w, int ndim, const int64_t *shape, const float *data)
{
  TirArg a = {.dtype = DT_F32, .ndim = ndim, .shape = arena_copy(scratch(w->ctx), shape, (size_t)ndim * 8)};
  size_t n = bytes_of(&a);
  a.data = data ? arena_copy(scratch(w->ctx), data, n) : arena_alloc(scratch(w->ctx), n + 4);
  return a;
}
#define DIMS(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }

/* ---- the evaluator, by hand ------------------------------------------------------------ */

CASE(evaluates_matmul)
{
  Matmul x = matmul_of(w, I(2), I(2), I(3));
  TirArg v[3] = {f32(w, DIMS(2, 3), (float[]){1, 2, 3, 4, 5, 6}), f32(w, DIMS(3, 2), (float[]){1, 0, 0, 1, 2, 2}),
                 f32(w, DIMS(2, 2), NULL)};
  te_evaluate(w->ctx, TENSORS(x.A, x.B, x.C), v);
  expect_f32(&v[2], 4, (float[]){7, 8, 16, 17});
}

CASE(evaluates_argmax)
{
  const Tensor *A = INPUT("A", I(2), I(3));
  const IterVar *i = AXIS("i", I(2));
  const IterVar *k = RAXIS("k", I(3));
  const Reducer *r = reducer_named(w->m, "argmax", DT_F32, DT_I32);
  const Expr *source[2] = {V(k), READ(A, V(i), V(k))};
  const Expr *body[2];
  const Expr *shape[1] = {I(2)};
  for (int v = 0; v < 2; v++) body[v] = expr_reduce(w->m, r, 2, source, 1, &k, expr_bool(w->m, true), NULL, v);
  const TeOp *op = te_compute(w->m, "B", NULL, 1, shape, &i, 2, body, NULL);
  assert_int_equal(op->nout, 2);
  int32_t index[2];
  TirArg v[3] = {f32(w, DIMS(2, 3), (float[]){1, 5, 3, 9, 9, 2}),
                 {.data = index, .dtype = DT_I32, .ndim = 1, .shape = (int64_t[]){2}},
                 f32(w, DIMS(2), NULL)};
  te_evaluate(w->ctx, TENSORS(A, &op->out[0], &op->out[1]), v);
  assert_int_equal(index[0], 1);
  assert_int_equal(index[1], 0);
  expect_f32(&v[2], 2, (float[]){5, 9});
  PrimFunc *f = assert_creates(w, TENSORS(A, &op->out[0], &op->out[1]), NO_SIZES);
  assert_non_null(func_find_block(f, "B"));
}

/* s[0] = X[0], s[t] = s[t-1] + X[t] */
typedef struct Cumsum {
  const Tensor *X, *state, *init, *update;
  const TeOp *scan;
  const IterVar *t, *i;
} Cumsum;

static Cumsum cumsum_of(World *w, const Expr *T, const Expr *N)
{
  Cumsum c = {.X = INPUT("X", T, N), .state = INPUT("state", T, N), .t = AXIS("t", T), .i = AXIS("i", N)};
  const IterVar *z = AXIS("z", I(1));
  const IterVar *i = AXIS("i", N);
  c.init = COMPUTE("init", AXES(z, i), READ(c.X, I(0), V(i)));
  c.update =
      COMPUTE("update", AXES(c.t, c.i), ADD(READ(c.state, SUB(V(c.t), I(1)), V(c.i)), READ(c.X, V(c.t), V(c.i))));
  c.scan = te_scan(w->m, "scan", NULL, 1, &c.init, &c.update, &c.state, 1, &c.X);
  return c;
}

CASE(evaluates_scan)
{
  Cumsum c = cumsum_of(w, I(3), I(2));
  TirArg v[2] = {f32(w, DIMS(3, 2), (float[]){1, 2, 3, 4, 5, 6}), f32(w, DIMS(3, 2), NULL)};
  te_evaluate(w->ctx, TENSORS(c.X, &c.scan->out[0]), v);
  expect_f32(&v[1], 6, (float[]){1, 2, 4, 6, 9, 12});
  PrimFunc *f = assert_creates(w, TENSORS(c.X, &c.scan->out[0]), NO_SIZES);
  assert_non_null(func_find_block(f, "scan"));
  assert_non_null(func_find_block(f, "update"));
  assert_non_null(func_find_block(f, "scan_init"));
}

CASE(scan_with_steps_between)
{
  const Tensor *X = INPUT("X", I(4), I(3));
  const Tensor *state = INPUT("state", I(4), I(3));
  const Tensor *W = INPUT("W", I(3), I(3));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *t = AXIS("t", I(4));
  const IterVar *t2 = AXIS("t", I(4));
  const IterVar *j = AXIS("j", I(3));
  const IterVar *k = RAXIS("k", I(3));
  const Tensor *init = COMPUTE("init", AXES(z, i), F(0));
  const Tensor *h = COMPUTE("h", AXES(t, j), SUM(MUL(READ(state, SUB(V(t), I(1)), V(k)), READ(W, V(k), V(j))), k));
  const IterVar *j2 = AXIS("j", I(3));
  const Tensor *update = COMPUTE("update", AXES(t2, j2), ADD(READ(h, V(t2), V(j2)), READ(X, V(t2), V(j2))));
  const TeOp *scan = te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 0, NULL);
  assert_creates(w, TENSORS(X, W, &scan->out[0]), NO_SIZES);
}

CASE(scan_with_two_states)
{
  const Tensor *X = INPUT("X", I(5), I(2));
  const Tensor *a = INPUT("a", I(5), I(2));
  const Tensor *b = INPUT("b", I(5), I(2));
  const Tensor *init[2], *update[2];
  const Tensor *state[2] = {a, b};
  for (int s = 0; s < 2; s++) {
    const IterVar *z = AXIS("z", I(1));
    const IterVar *i = AXIS("i", I(2));
    init[s] = COMPUTE(s ? "ib" : "ia", AXES(z, i), READ(X, V(z), V(i)));
  }
  const IterVar *t = AXIS("t", I(5));
  const IterVar *i = AXIS("i", I(2));
  const IterVar *t1 = AXIS("t", I(5));
  const IterVar *i1 = AXIS("i", I(2));
  update[0] = COMPUTE("ua", AXES(t, i), ADD(READ(b, SUB(V(t), I(1)), V(i)), READ(X, V(t), V(i))));
  /* reads the other state's new row */
  update[1] = COMPUTE("ub", AXES(t1, i1), SUB(READ(update[0], V(t1), V(i1)), READ(b, SUB(V(t1), I(1)), V(i1))));
  const TeOp *scan = te_scan(w->m, "scan", NULL, 2, init, update, state, 0, NULL);
  assert_creates(w, TENSORS(X, &scan->out[0], &scan->out[1]), NO_SIZES);
}

/* ---- functions against the evaluator --------------------------------------------------------- */

CASE(creates_matmul)
{
  Matmul x = matmul_of(w, I(5), I(4), I(3));
  PrimFunc *f = assert_creates(w, TENSORS(x.A, x.B, x.C), NO_SIZES);
  Block *b = func_find_block(f, "C")->u.block;
  assert_int_equal(b->niter, 3);
  assert_string_equal(b->iter[0].var->name, "v_i");
  assert_int_equal(b->iter[2].kind, ITER_REDUCE);
  assert_non_null(b->init);
  Stmt **loop;
  assert_int_equal(stmt_loops(scratch(w->ctx), func_find_block(f, "C"), &loop), 3);
  assert_string_equal(loop[0]->u.loop.var->name, "i");
  assert_string_equal(loop[2]->u.loop.var->name, "k");
}

static const Expr *guarded(World *w, const Expr *cond, const Expr *a, const Expr *b)
{
  return expr_call(w->m, a->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){cond, a, b});
}

CASE(creates_padded_conv)
{
  const Tensor *D = INPUT("D", I(2), I(5), I(5));
  const Tensor *W = INPUT("W", I(3), I(2), I(3), I(3));
  const IterVar *c = AXIS("c", I(2));
  const IterVar *h = AXIS("h", I(7));
  const IterVar *x = AXIS("x", I(7));
  const Expr *in = expr_and(w->m, expr_and(w->m, expr_binary(w->m, E_GE, V(h), I(1)), expr_lt(w->m, V(h), I(6))),
                            expr_and(w->m, expr_binary(w->m, E_GE, V(x), I(1)), expr_lt(w->m, V(x), I(6))));
  const Tensor *P = COMPUTE("P", AXES(c, h, x), guarded(w, in, READ(D, V(c), SUB(V(h), I(1)), SUB(V(x), I(1))), F(0)));
  const IterVar *o = AXIS("o", I(3));
  const IterVar *y = AXIS("y", I(5));
  const IterVar *z = AXIS("z", I(5));
  const IterVar *r[3] = {RAXIS("rc", I(2)), RAXIS("rh", I(3)), RAXIS("rw", I(3))};
  const Expr *product =
      MUL(READ(P, V(r[0]), ADD(V(y), V(r[1])), ADD(V(z), V(r[2]))), READ(W, V(o), V(r[0]), V(r[1]), V(r[2])));
  const Tensor *C = COMPUTE("conv", AXES(o, y, z), reduced(w, "sum", product, 3, r, NULL));
  assert_creates(w, TENSORS(D, W, C), NO_SIZES);
}

/* exp(A[i, j]) / sum over k of exp(A[i, k]), in one body: the sum is over rows alone. */
CASE(creates_softmax_in_one_body)
{
  const Tensor *A = INPUT("A", I(3), I(4));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *j = AXIS("j", I(4));
  const IterVar *k = RAXIS("k", I(4));
  const Expr *num = READ(A, V(i), V(j));
  const Expr *den = READ(A, V(i), V(k));
  num = expr_call(w->m, DT_NONE, IN_EXP, 1, &num);
  den = expr_call(w->m, DT_NONE, IN_EXP, 1, &den);
  const Tensor *S = COMPUTE("S", AXES(i, j), DIV(num, SUM(den, k)));
  PrimFunc *f = assert_creates(w, TENSORS(A, S), NO_SIZES);
  Block *red = func_find_block(f, "S_red")->u.block;
  assert_int_equal(red->niter, 2);
  assert_int_equal(red->writes[0].buffer->ndim, 1);
}

CASE(creates_softmax_in_stages)
{
  const Tensor *A = INPUT("A", I(3), I(4));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(4));
  const IterVar *i2 = AXIS("i", I(3));
  const IterVar *j = AXIS("j", I(4));
  const Tensor *top = COMPUTE("top", AXES(i), reduced(w, "max", READ(A, V(i), V(k)), 1, &k, NULL));
  const Expr *shifted = SUB(READ(A, V(i2), V(j)), READ(top, V(i2)));
  const Tensor *e = COMPUTE("e", AXES(i2, j), expr_call(w->m, DT_NONE, IN_EXP, 1, &shifted));
  const IterVar *i3 = AXIS("i", I(3));
  const IterVar *k3 = RAXIS("k", I(4));
  const IterVar *i4 = AXIS("i", I(3));
  const IterVar *j4 = AXIS("j", I(4));
  const Tensor *sum = COMPUTE("sum", AXES(i3), SUM(READ(e, V(i3), V(k3)), k3));
  const Tensor *S = COMPUTE("S", AXES(i4, j4), DIV(READ(e, V(i4), V(j4)), READ(sum, V(i4))));
  PrimFunc *f = assert_creates(w, TENSORS(A, S), NO_SIZES);
  assert_int_equal(f->body->u.block->nallocs, 3);
}

CASE(creates_reductions_in_expressions)
{
  const Tensor *A = INPUT("A", I(3), I(4));
  const Tensor *b = INPUT("b", I(3));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(4));
  const IterVar *l = RAXIS("l", I(4));
  /* two reductions and something beside them */
  const Expr *two = MUL(SUM(READ(A, V(i), V(k)), k), reduced(w, "max", READ(A, V(i), V(l)), 1, &l, NULL));
  const Tensor *C = COMPUTE("C", AXES(i), ADD(two, READ(b, V(i))));
  PrimFunc *f = assert_creates(w, TENSORS(A, b, C), NO_SIZES);
  assert_non_null(func_find_block(f, "C_red"));
  assert_non_null(func_find_block(f, "C_red_1"));
  /* the same reduction twice is one block */
  const Expr *once = SUM(READ(A, V(i), V(k)), k);
  const Tensor *D = COMPUTE("D", AXES(i), MUL(once, ADD(once, F(1))));
  f = assert_creates(w, TENSORS(A, D), NO_SIZES);
  assert_non_null(func_find_block(f, "D_red"));
  assert_null(func_find_block(f, "D_red_1"));
}

CASE(creates_nested_reductions)
{
  const Tensor *A = INPUT("A", I(2), I(3), I(4));
  const IterVar *i = AXIS("i", I(2));
  const IterVar *k = RAXIS("k", I(3));
  const IterVar *l = RAXIS("l", I(4));
  const Expr *inner = SUM(READ(A, V(i), V(k), V(l)), l);
  const Tensor *C = COMPUTE("C", AXES(i), reduced(w, "max", inner, 1, &k, NULL));
  PrimFunc *f = assert_creates(w, TENSORS(A, C), NO_SIZES);
  assert_int_equal(func_find_block(f, "C_red")->u.block->writes[0].buffer->ndim, 2);
  assert_int_equal(C->op->nreduce, 2);
  assert_ptr_equal(C->op->reduce_axis[0], k);
  const Tensor *D = COMPUTE("D", AXES(i), ADD(reduced(w, "max", inner, 1, &k, NULL), F(1)));
  assert_creates(w, TENSORS(A, D), NO_SIZES);
}

/* A value of a tuple reduction inside a larger expression. */
CASE(creates_argmin_in_expression)
{
  const Tensor *A = INPUT("A", I(3), I(5));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(5));
  const Reducer *r = reducer_named(w->m, "argmin", DT_F32, DT_I32);
  const Expr *source[2] = {V(k), READ(A, V(i), V(k))};
  const Expr *at = expr_reduce(w->m, r, 2, source, 1, &k, expr_bool(w->m, true), NULL, 0);
  const Tensor *C = COMPUTE("C", AXES(i), ADD(at, I(1)));
  assert_true(dtype_eq(C->buffer->dtype, DT_I32));
  assert_creates(w, TENSORS(A, C), NO_SIZES);
  const Tensor *D = COMPUTE("D", AXES(i), at); /* one of two values as the whole body */
  assert_creates(w, TENSORS(A, D), NO_SIZES);
}

CASE(creates_conditions_and_initial_values)
{
  const Tensor *A = INPUT("A", I(6));
  const Tensor *b = INPUT("b", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(5));
  /* the read leaves A unless the condition holds */
  const Expr *cond = expr_lt(w->m, ADD(V(i), V(k)), I(6));
  const Tensor *C = COMPUTE("C", AXES(i), reduced(w, "sum", READ(A, ADD(V(i), V(k))), 1, &k, cond));
  assert_creates(w, TENSORS(A, C), NO_SIZES);
  const Expr *even = expr_binary(w->m, E_EQ, expr_floormod(w->m, V(k), I(2)), I(0));
  const Tensor *D = COMPUTE("D", AXES(i), reduced(w, "max", READ(A, V(k)), 1, &k, even));
  PrimFunc *f = assert_creates(w, TENSORS(A, D), NO_SIZES);
  assert_non_null(strstr(func_print(scratch(w->ctx), f), "T.Select"));
  const Expr *source = READ(A, V(k));
  const Expr *init = READ(b, V(i));
  const Expr *sum =
      expr_reduce(w->m, reducer_named(w->m, "sum", DT_F32, DT_I32), 1, &source, 1, &k, expr_bool(w->m, true), &init, 0);
  const Tensor *E = COMPUTE("E", AXES(i), sum);
  assert_creates(w, TENSORS(A, b, E), NO_SIZES);
}

/* x * y - x - y + 2, whose identity is 2: (x - 1)(y - 1) + 1 */
CASE(creates_own_reducer)
{
  const Tensor *A = INPUT("A", I(3), I(4));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(4));
  const Var *x = var_new(w->m, "x", DT_F32, VAR_PLAIN);
  const Var *y = var_new(w->m, "y", DT_F32, VAR_PLAIN);
  const Expr *result = ADD(SUB(SUB(MUL(x->expr, y->expr), x->expr), y->expr), F(2));
  const Expr *identity = F(2);
  const Reducer *r = reducer_new(w->m, "own", 1, &x, &y, &result, &identity);
  const Expr *source = READ(A, V(i), V(k));
  const Tensor *C = COMPUTE("C", AXES(i), expr_reduce(w->m, r, 1, &source, 1, &k, expr_bool(w->m, true), NULL, 0));
  TirArg v[2] = {f32(w, DIMS(3, 4), (float[]){2, 3, 2, 5, 1, 9, 9, 9, 2, 2, 2, 2}), f32(w, DIMS(3), NULL)};
  te_evaluate(w->ctx, TENSORS(A, C), v);
  expect_f32(&v[1], 3, (float[]){9, 1, 2});
  assert_creates(w, TENSORS(A, C), NO_SIZES);
}

CASE(creates_reduce_axis_from_one)
{
  const Tensor *A = INPUT("A", I(3), I(6));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = itervar_new(w->m, var_new(w->m, "k", DT_I32, VAR_PLAIN), I(2), I(3), ITER_REDUCE, NULL);
  const Tensor *C = COMPUTE("C", AXES(i), SUM(READ(A, V(i), V(k)), k));
  TirArg v[2] = {f32(w, DIMS(3, 6), (float[]){1, 1, 2, 3, 4, 9, 0, 0, 0, 1, 0, 5, 7, 7, 1, 1, 1, 7}),
                 f32(w, DIMS(3), NULL)};
  te_evaluate(w->ctx, TENSORS(A, C), v);
  expect_f32(&v[1], 3, (float[]){9, 1, 3});
  PrimFunc *f = assert_creates(w, TENSORS(A, C), NO_SIZES);
  assert_true(expr_is_int(func_find_block(f, "C")->u.block->iter[1].min, 0));
}

CASE(creates_symbolic_sizes)
{
  const Var *n = var_new(w->m, "n", DT_I32, VAR_SIZE);
  const Var *K = var_new(w->m, "K", DT_I32, VAR_SIZE);
  Matmul x = matmul_of(w, n->expr, ADD(n->expr, I(1)), K->expr);
  const Var *vars[2] = {n, K};
  assert_creates(w, TENSORS(x.A, x.B, x.C), (Sizes){2, vars, (int64_t[]){3, 4}});
}

CASE(creates_scalar_parameters)
{
  const Tensor *A = INPUT("A", I(4));
  const Var *alpha = var_new(w->m, "alpha", DT_I32, VAR_PLAIN);
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), MUL(READ(A, V(i)), expr_cast(w->m, DT_F32, alpha->expr)));
  TeArg args[3] = {{.var = alpha}, {.tensor = A}, {.tensor = B}};
  TeArg *other;
  assert_creates(w, 3, args, (Sizes){1, &alpha, (int64_t[]){3}});
  assert_int_equal(te_default_args(scratch(w->ctx), 1, &B, &other), 3);
  assert_ptr_equal(other[0].var, alpha);
}

CASE(creates_zero_dimensions)
{
  const Tensor *A = INPUT("A", I(4));
  const Tensor *s = te_placeholder(w->m, "s", DT_F32, 0, NULL);
  const IterVar *k = RAXIS("k", I(4));
  const Expr *body = SUM(MUL(READ(A, V(k)), te_read(w->m, s, 0, NULL)), k);
  const Tensor *C = &te_compute(w->m, "C", NULL, 0, NULL, NULL, 1, &body, NULL)->out[0];
  assert_creates(w, TENSORS(A, s, C), NO_SIZES);
  const Expr *more = ADD(te_read(w->m, C, 0, NULL), F(1));
  const Tensor *D = &te_compute(w->m, "D", NULL, 0, NULL, NULL, 1, &more, NULL)->out[0];
  assert_creates(w, TENSORS(A, s, D), NO_SIZES);
}

CASE(creates_int64_loops_for_int64_shapes)
{
  const Expr *n = expr_int(w->m, DT_I64, 4);
  const Tensor *A = INPUT("A", n);
  const IterVar *i = AXIS("i", n);
  const Tensor *B = COMPUTE("B", AXES(i), ADD(READ(A, V(i)), F(1)));
  PrimFunc *f = assert_creates(w, TENSORS(A, B), NO_SIZES);
  assert_true(dtype_eq(func_find_block(f, "B")->u.block->iter[0].var->dtype, DT_I64));
}

CASE(creates_several_outputs)
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(4));
  const Expr *body[2] = {ADD(READ(A, V(i)), F(1)), SUM(READ(A, V(k)), k)};
  const Expr *shape[1] = {I(4)};
  const TeOp *op = te_compute(w->m, "two", NULL, 1, shape, &i, 2, body, NULL);
  PrimFunc *f = assert_creates(w, TENSORS(A, &op->out[0], &op->out[1]), NO_SIZES);
  assert_int_equal(func_find_block(f, "two")->u.block->nwrites, 2);
  assert_creates(w, TENSORS(A, &op->out[1]), NO_SIZES);
}

CASE(creates_intermediate_as_output)
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), ADD(READ(A, V(i)), F(1)));
  const Tensor *C = COMPUTE("C", AXES(j), MUL(READ(B, V(j)), F(2)));
  PrimFunc *f = assert_creates(w, TENSORS(A, B, C), NO_SIZES);
  assert_int_equal(f->body->u.block->nallocs, 0);
}

/* An extern that doubles its input, written for buffers of its own. */
static const TeOp *doubler(World *w, const Tensor *in, const Expr *n)
{
  const Buffer *a = buffer_new(w->m, "a", DT_F32, 1, &n, NULL, NULL, NULL, 0, 0, NULL);
  const Buffer *b = buffer_new(w->m, "b", DT_F32, 1, &n, NULL, NULL, NULL, 0, 0, NULL);
  const Var *i = var_new(w->m, "i", DT_I32, VAR_PLAIN);
  const Expr *at[1] = {i->expr};
  Stmt *store = stmt_store(w->m, b, 1, at, MUL(expr_load(w->m, a, 1, at), F(2)));
  Stmt *loop = stmt_for(w->m, i, I(0), n, FOR_SERIAL, NULL, store);
  return te_extern(w->m, "ext", NULL, 1, &in, &a, 1, &b, loop, NULL);
}

CASE(creates_extern)
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), ADD(READ(A, V(i)), F(1)));
  const TeOp *ext = doubler(w, B, I(4));
  const Tensor *C = COMPUTE("C", AXES(j), ADD(READ(&ext->out[0], V(j)), F(1)));
  assert_creates(w, TENSORS(A, C), NO_SIZES);
  const Var *n = var_new(w->m, "n", DT_I32, VAR_SIZE);
  const Tensor *S = INPUT("S", n->expr);
  const TeOp *sym = doubler(w, S, n->expr);
  assert_creates(w, TENSORS(S, &sym->out[0]), (Sizes){1, &n, (int64_t[]){5}});
}

CASE(names_tell_blocks_and_buffers)
{
  const Tensor *A = INPUT("A", I(4), I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(4));
  const IterVar *j = AXIS("j", I(4));
  const Expr *sum = SUM(READ(A, V(i), V(k)), k);
  const Tensor *B = COMPUTE("x.y", AXES(i), ADD(sum, F(1)));
  const Tensor *C = COMPUTE("x_y", AXES(j), ADD(READ(B, V(j)), F(1)));
  Map names = {0};
  TeArg args[2] = {{.tensor = A}, {.tensor = C}};
  te_create_prim_func(w->m, "main", 2, args, &names);
  assert_string_equal(map_get(&names, B->op), "x_y");
  assert_string_equal(map_get(&names, C->op), "x_y_1");
  assert_string_equal(map_get(&names, sum), "x_y_red");
  assert_string_equal(map_get(&names, A), "A");
}

CASE(replaces_reads)
{
  const Tensor *A = INPUT("A", I(4));
  const Tensor *B = INPUT("B", I(4));
  const IterVar *i = AXIS("i", I(4));
  const Tensor *C = COMPUTE("C", AXES(i), ADD(READ(A, V(i)), F(1)));
  Map map = {0};
  map_put(scratch(w->ctx), &map, A, (void *)(uintptr_t)B);
  const TeOp *op = te_replace_reads(C->op, &map);
  const Tensor **in;
  assert_ptr_not_equal(op, C->op);
  assert_ptr_equal(op->axis[0], i);
  assert_int_equal(te_inputs(scratch(w->ctx), op, &in), 1);
  assert_ptr_equal(in[0], B);
  assert_int_equal(te_inputs(scratch(w->ctx), C->op, &in), 1);
  assert_ptr_equal(in[0], A);
  Map none = {0};
  assert_ptr_equal(te_replace_reads(C->op, &none), C->op);
}

/* C[i] += a[k] * b[i, k] as an intrinsic with reset and update. */
CASE(makes_tensor_intrinsics)
{
  const Tensor *A = INPUT("a", I(4));
  const Tensor *B = INPUT("b", I(2), I(4));
  const IterVar *i = AXIS("i", I(2));
  const IterVar *k = RAXIS("k", I(4));
  const Tensor *C = COMPUTE("c", AXES(i), SUM(MUL(READ(A, V(k)), READ(B, V(i), V(k))), k));
  const Expr *sa[1] = {I(4)};
  const Expr *sb[2] = {I(2), I(4)};
  const Expr *sc[1] = {I(2)};
  const Buffer *in[2] = {buffer_new(w->m, "a", DT_F32, 1, sa, NULL, NULL, NULL, 0, 1, NULL),
                         buffer_new(w->m, "b", DT_F32, 2, sb, NULL, NULL, NULL, 0, 1, NULL)};
  const Buffer *out[1] = {buffer_new(w->m, "c", DT_F32, 1, sc, NULL, NULL, NULL, 0, 1, NULL)};
  Stmt *body = stmt_eval(w->m, I(1));
  Stmt *init = stmt_eval(w->m, I(2));
  Stmt *update = stmt_eval(w->m, I(3));
  TensorIntrin *t = te_tensor_intrin(w->m, "gemv", C->op, in, out, body, init, update);
  assert_int_equal(t->desc->nparam, 3);
  assert_int_equal(t->impl->nparam, 3);
  assert_int_equal(t->impl->body->u.block->nreads, 2);
  assert_int_equal(t->update->body->u.block->nreads, 3);
  assert_int_equal(t->init->body->u.block->nreads, 0);
  Block *reset = func_find_block((PrimFunc *)t->init_desc, "c")->u.block;
  Block *more = func_find_block((PrimFunc *)t->update_desc, "c")->u.block;
  assert_int_equal(reset->niter, 1);
  assert_null(reset->init);
  assert_int_equal(more->niter, 2);
  assert_null(more->init);
  func_check(t->desc);
  func_check(t->init_desc);
  func_check(t->update_desc);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

REFUSED(rank_mismatch, ERR_SHAPE, "'A'", "2 dimensions", "1 index")
{
  const Tensor *A = INPUT("A", I(4), I(4));
  READ(A, I(0));
}

REFUSED(float_index, ERR_TYPE, "'A'", "float32")
{
  const Tensor *A = INPUT("A", I(4));
  READ(A, F(1));
}

REFUSED(float_extent, ERR_TYPE, "'A'", "dimension 1", "float32") { INPUT("A", I(4), F(2)); }

REFUSED(negative_extent, ERR_SHAPE, "'A'", "-3") { INPUT("A", I(-3)); }

REFUSED(read_past_the_end, ERR_BOUNDS, "'B'", "'A'", "dimension 0", "[1, 4]", "extent is 4")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  COMPUTE("B", AXES(i), READ(A, ADD(V(i), I(1))));
}

REFUSED(read_before_the_start, ERR_BOUNDS, "'C'", "'B'", "[-1, 2]")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), READ(A, V(i)));
  COMPUTE("C", AXES(j), READ(B, SUB(V(j), I(1))));
}

/* The same of a placeholder could be the step of a scan; it is refused when used otherwise. */
REFUSED(read_before_the_start_outside_a_scan, ERR_BOUNDS, "'A'", "[-1, 2]")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), READ(A, SUB(V(i), I(1))));
  te_create_prim_func(w->m, "main", TENSORS(A, B), NULL);
}

REFUSED(scan_reads_too_far_back, ERR_BOUNDS, "'update'", "'state'", "[-1, 1]")
{
  const Tensor *X = INPUT("X", I(4));
  const Tensor *state = INPUT("state", I(4));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *t = AXIS("t", I(4));
  const Tensor *init = COMPUTE("init", AXES(z), READ(X, V(z)));
  const Tensor *update = COMPUTE("update", AXES(t), ADD(READ(state, SUB(V(t), I(2))), F(1)));
  te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 0, NULL);
}

REFUSED(read_past_a_symbolic_end, ERR_BOUNDS, "'A'", "dimension 0", "n")
{
  const Var *n = var_new(w->m, "n", DT_I32, VAR_SIZE);
  const Tensor *A = INPUT("A", n->expr);
  const IterVar *i = AXIS("i", n->expr);
  COMPUTE("B", AXES(i), READ(A, ADD(V(i), I(1))));
}

REFUSED(read_past_the_end_in_reduction, ERR_BOUNDS, "'A'", "dimension 1", "[0, 5]")
{
  const Tensor *A = INPUT("A", I(4), I(5));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(6));
  COMPUTE("B", AXES(i), SUM(READ(A, V(i), V(k)), k));
}

REFUSED(read_past_the_end_in_select, ERR_BOUNDS, "if_then_else")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  COMPUTE("B", AXES(i), expr_select(w->m, expr_lt(w->m, V(i), I(3)), READ(A, ADD(V(i), I(1))), F(0)));
}

CASE(guarded_reads_are_left_alone)
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(8));
  COMPUTE("B", AXES(i), guarded(w, expr_lt(w->m, V(i), I(4)), READ(A, V(i)), F(0)));
  /* not linear in the axis: the largest value need not occur */
  COMPUTE("C", AXES(i), READ(A, expr_floordiv(w->m, V(i), I(2))));
}

CASE(empty_tensor_under_an_open_axis)
{
  const Var *n = var_new(w->m, "n", DT_I32, VAR_SIZE);
  const Tensor *A = INPUT("A", I(0));
  const IterVar *i = AXIS("i", n->expr);
  COMPUTE("B", AXES(i), READ(A, V(i)));
}

REFUSED(empty_tensor_under_a_known_axis, ERR_BOUNDS, "'A'", "extent is 0")
{
  const Tensor *A = INPUT("A", I(0));
  const IterVar *i = AXIS("i", I(2));
  COMPUTE("B", AXES(i), READ(A, V(i)));
}

REFUSED(reduce_axis_outside, ERR_ARGUMENT, "'B'", "'k'", "outside a reduction")
{
  const Tensor *A = INPUT("A", I(4), I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(4));
  COMPUTE("B", AXES(i), READ(A, V(i), V(k)));
}

REFUSED(reduce_axis_beside_its_reduction, ERR_ARGUMENT, "'k'", "outside a reduction")
{
  const Tensor *A = INPUT("A", I(4), I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *k = RAXIS("k", I(4));
  COMPUTE("B", AXES(i), ADD(SUM(READ(A, V(i), V(k)), k), READ(A, V(i), V(k))));
}

REFUSED(axis_of_another_operation, ERR_ARGUMENT, "'C'", "'i'", "another operation")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const IterVar *j = AXIS("j", I(4));
  COMPUTE("B", AXES(i), READ(A, V(i)));
  COMPUTE("C", AXES(j), ADD(READ(A, V(j)), READ(A, V(i))));
}

REFUSED(unknown_tensor, ERR_ARGUMENT, "'B'", "'X'", "no tensor")
{
  const Expr *n = I(4);
  const Buffer *x = buffer_new(w->m, "X", DT_F32, 1, &n, NULL, NULL, NULL, 0, 0, NULL);
  const IterVar *i = AXIS("i", I(4));
  const Expr *at[1] = {V(i)};
  COMPUTE("B", AXES(i), expr_load(w->m, x, 1, at));
}

REFUSED(recursion, ERR_ARGUMENT, "'B'", "te.scan")
{
  const Expr *n = I(4);
  const Buffer *self = buffer_new(w->m, "B", DT_F32, 1, &n, NULL, NULL, NULL, 0, 0, NULL);
  const IterVar *i = AXIS("i", I(4));
  const Expr *at[1] = {SUB(V(i), I(1))};
  COMPUTE("B", AXES(i), ADD(expr_load(w->m, self, 1, at), F(1)));
}

REFUSED(scan_reads_its_own_row, ERR_ARGUMENT, "'scan'", "'state'", "before")
{
  const Tensor *X = INPUT("X", I(4));
  const Tensor *state = INPUT("state", I(4));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *t = AXIS("t", I(4));
  const Tensor *init = COMPUTE("init", AXES(z), READ(X, V(z)));
  const Tensor *update = COMPUTE("update", AXES(t), ADD(READ(state, V(t)), F(1)));
  te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 0, NULL);
}

REFUSED(scan_dtypes_differ, ERR_TYPE, "'scan'", "int32", "float32")
{
  const Tensor *state = INPUT("state", I(4));
  const IterVar *z = AXIS("z", I(1));
  const IterVar *t = AXIS("t", I(4));
  const Tensor *init = COMPUTE("init", AXES(z), I(0));
  const Tensor *update = COMPUTE("update", AXES(t), ADD(READ(state, SUB(V(t), I(1))), F(1)));
  te_scan(w->m, "scan", NULL, 1, &init, &update, &state, 0, NULL);
}

REFUSED(missing_placeholder, ERR_ARGUMENT, "'A'", "not among the arguments")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), READ(A, V(i)));
  te_create_prim_func(w->m, "main", TENSORS(B), NULL);
}

REFUSED(missing_scalar, ERR_ARGUMENT, "'B'", "'alpha'")
{
  const Tensor *A = INPUT("A", I(4));
  const Var *alpha = var_new(w->m, "alpha", DT_F32, VAR_PLAIN);
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), MUL(READ(A, V(i)), alpha->expr));
  te_create_prim_func(w->m, "main", TENSORS(A, B), NULL);
}

REFUSED(argument_twice, ERR_ARGUMENT, "'A'", "twice")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), READ(A, V(i)));
  te_create_prim_func(w->m, "main", TENSORS(A, A, B), NULL);
}

REFUSED(wrong_shape_given, ERR_SHAPE, "'A'", "dimension 0", "4", "5")
{
  const Tensor *A = INPUT("A", I(4));
  const IterVar *i = AXIS("i", I(4));
  const Tensor *B = COMPUTE("B", AXES(i), READ(A, V(i)));
  TirArg v[2] = {f32(w, DIMS(5), NULL), f32(w, DIMS(4), NULL)};
  te_evaluate(w->ctx, TENSORS(A, B), v);
}

/* ---- failing allocations ------------------------------------------------------------------------- */

static void everything(Ctx *ctx, void *arg)
{
  World *w = arg;
  const Tensor *A = INPUT("A", I(3), I(4));
  const Tensor *b = INPUT("b", I(3));
  const IterVar *i = AXIS("i", I(3));
  const IterVar *k = RAXIS("k", I(4));
  const Tensor *C = COMPUTE("C", AXES(i), ADD(SUM(READ(A, V(i), V(k)), k), READ(b, V(i))));
  Cumsum s = cumsum_of(w, I(3), I(2));
  TeArg args[5] = {{.tensor = A}, {.tensor = b}, {.tensor = C}, {.tensor = s.X}, {.tensor = &s.scan->out[0]}};
  te_create_prim_func(w->m, "main", 5, args, NULL);
  te_evaluate(ctx, 5, args, numbers(w, 5, args, NO_SIZES));
}

CASE(survives_failing_allocations)
{
  ErrKind kind = ERR_MEMORY;
  for (int n = 1; kind == ERR_MEMORY; n++) {
    Module *old = w->m;
    w->m = module_new(w->ctx);
    mem_fail_after(w->ctx, n);
    kind = protect(w->ctx, everything, w);
    mem_fail_after(w->ctx, 0);
    module_release(w->m);
    w->m = old;
  }
  assert_int_equal(kind, ERR_NONE);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(evaluates_matmul),
    cmocka_unit_test(evaluates_argmax),
    cmocka_unit_test(evaluates_scan),
    cmocka_unit_test(scan_with_steps_between),
    cmocka_unit_test(scan_with_two_states),
    cmocka_unit_test(creates_matmul),
    cmocka_unit_test(creates_padded_conv),
    cmocka_unit_test(creates_softmax_in_one_body),
    cmocka_unit_test(creates_softmax_in_stages),
    cmocka_unit_test(creates_reductions_in_expressions),
    cmocka_unit_test(creates_nested_reductions),
    cmocka_unit_test(creates_argmin_in_expression),
    cmocka_unit_test(creates_conditions_and_initial_values),
    cmocka_unit_test(creates_own_reducer),
    cmocka_unit_test(creates_reduce_axis_from_one),
    cmocka_unit_test(creates_symbolic_sizes),
    cmocka_unit_test(creates_scalar_parameters),
    cmocka_unit_test(creates_zero_dimensions),
    cmocka_unit_test(creates_int64_loops_for_int64_shapes),
    cmocka_unit_test(creates_several_outputs),
    cmocka_unit_test(creates_intermediate_as_output),
    cmocka_unit_test(creates_extern),
    cmocka_unit_test(names_tell_blocks_and_buffers),
    cmocka_unit_test(replaces_reads),
    cmocka_unit_test(makes_tensor_intrinsics),
    cmocka_unit_test(rank_mismatch),
    cmocka_unit_test(float_index),
    cmocka_unit_test(float_extent),
    cmocka_unit_test(negative_extent),
    cmocka_unit_test(read_past_the_end),
    cmocka_unit_test(read_before_the_start),
    cmocka_unit_test(read_before_the_start_outside_a_scan),
    cmocka_unit_test(scan_reads_too_far_back),
    cmocka_unit_test(read_past_a_symbolic_end),
    cmocka_unit_test(read_past_the_end_in_reduction),
    cmocka_unit_test(read_past_the_end_in_select),
    cmocka_unit_test(guarded_reads_are_left_alone),
    cmocka_unit_test(empty_tensor_under_an_open_axis),
    cmocka_unit_test(empty_tensor_under_a_known_axis),
    cmocka_unit_test(reduce_axis_outside),
    cmocka_unit_test(reduce_axis_beside_its_reduction),
    cmocka_unit_test(axis_of_another_operation),
    cmocka_unit_test(unknown_tensor),
    cmocka_unit_test(recursion),
    cmocka_unit_test(scan_reads_its_own_row),
    cmocka_unit_test(scan_dtypes_differ),
    cmocka_unit_test(missing_placeholder),
    cmocka_unit_test(missing_scalar),
    cmocka_unit_test(argument_twice),
    cmocka_unit_test(wrong_shape_given),
    cmocka_unit_test(survives_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
