/* random.c: random computations and random schedules of them.
 *
 * One seed decides everything, so a failure is repeated by its seed alone.  The numbers
 * are small integers: every order of summation gives the same result, in floats too. */
#include "schedule/engine.h"

static int64_t pick(uint64_t *seed, int64_t lo, int64_t hi) /* both ends included */
{
  return lo + (int64_t)(sched_rng_next(seed) % (uint64_t)(hi - lo + 1));
}

static bool chance(uint64_t *seed, int percent) { return pick(seed, 1, 100) <= percent; }

/* ---- computations ---------------------------------------------------------------------------- */

typedef struct Maker {
  Module *m;
  uint64_t *seed;
  int names;
  DType dtype;
} Maker;

static const Expr *size(Maker *k, int64_t most)
{
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17};
  int64_t v;
  do v = sizes[pick(k->seed, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
  while (v > most);
  return expr_i32(k->m, v);
}

static const char *next_name(Maker *k, const char *prefix)
{
  return arena_printf(k->m->arena, "%s%d", prefix, k->names++);
}

static const Tensor *input(Maker *k, int n, const Expr *const *shape)
{
  return te_placeholder(k->m, next_name(k, "I"), k->dtype, n, shape);
}

static const IterVar *axis(Maker *k, const char *name, const Expr *extent, IterKind kind)
{
  const Var *v = var_new(k->m, name, extent->dtype, VAR_PLAIN);
  return itervar_new(k->m, v, expr_int(k->m, extent->dtype, 0), extent, kind, NULL);
}

static const Tensor *compute(Maker *k, int n, const IterVar *const *ax, const Expr *body)
{
  const Expr *shape[8];
  for (int i = 0; i < n; i++) shape[i] = ax[i]->extent;
  return &te_compute(k->m, next_name(k, "T"), NULL, n, shape, ax, 1, &body, NULL)->out[0];
}

#define AT(iv) ((iv)->var->expr)
static const Expr *read(Maker *k, const Tensor *t, const Expr *a, const Expr *b, const Expr *c)
{
  const Expr *index[] = {a, b, c};
  return te_read(k->m, t, t->buffer->ndim, index);
}

static const Expr *number(Maker *k, int64_t v) { return expr_const(k->m, k->dtype, (double)v); }

/* x changed by a constant or by a non-linear step that stays exact. */
static const Expr *shake(Maker *k, const Expr *x)
{
  switch (pick(k->seed, 0, 3)) {
  case 0: return expr_add(k->m, x, number(k, pick(k->seed, -3, 3)));
  case 1: return expr_max(k->m, x, number(k, 0));
  case 2: return expr_min(k->m, expr_sub(k->m, number(k, 1), x), number(k, 9));
  default: return expr_select(k->m, expr_lt(k->m, x, number(k, 1)), x, expr_sub(k->m, x, number(k, 2)));
  }
}

static const Expr *reduce(Maker *k, const char *name, const Expr *source, int n, const IterVar *const *ax)
{
  const Reducer *r = reducer_named(k->m, name, source->dtype, DT_I32);
  return expr_reduce(k->m, r, 1, &source, n, ax, expr_bool(k->m, true), NULL, 0);
}

/* A chain of elementwise steps, with a side branch now and then. */
static const Tensor *make_chain(Maker *k, const Tensor *t, int steps)
{
  for (int i = 0; i < steps; i++) {
    const IterVar *ax[3] = {NULL};
    int n = t->buffer->ndim;
    for (int d = 0; d < n; d++) ax[d] = axis(k, d ? d == 1 ? "j" : "l" : "i", t->buffer->shape[d], ITER_SPATIAL);
    const Expr *x = read(k, t, AT(ax[0]), n > 1 ? AT(ax[1]) : NULL, n > 2 ? AT(ax[2]) : NULL);
    if (chance(k->seed, 20)) {
      const Tensor *side = compute(k, n, ax, shake(k, x));
      const IterVar *bx[3];
      for (int d = 0; d < n; d++) bx[d] = axis(k, d ? d == 1 ? "j" : "l" : "i", t->buffer->shape[d], ITER_SPATIAL);
      const Expr *at[3] = {AT(bx[0]), n > 1 ? AT(bx[1]) : NULL, n > 2 ? AT(bx[2]) : NULL};
      x = expr_add(k->m, read(k, side, at[0], at[1], at[2]), shake(k, read(k, t, at[0], at[1], at[2])));
      t = compute(k, n, bx, x);
    } else {
      t = compute(k, n, ax, shake(k, x));
    }
  }
  return t;
}

static const Tensor *make_product(Maker *k, const Expr *M)
{
  const Expr *N = size(k, 13);
  const Expr *K = size(k, 13);
  const Tensor *a = input(k, 2, (const Expr *[]){M, K});
  const Tensor *b = input(k, 2, (const Expr *[]){K, N});
  if (chance(k->seed, 30)) a = make_chain(k, a, 1);
  const IterVar *i = axis(k, "i", M, ITER_SPATIAL);
  const IterVar *j = axis(k, "j", N, ITER_SPATIAL);
  const IterVar *r = axis(k, "k", K, ITER_REDUCE);
  const Expr *term = expr_mul(k->m, read(k, a, AT(i), AT(r), NULL), read(k, b, AT(r), AT(j), NULL));
  const Tensor *c = compute(k, 2, (const IterVar *[]){i, j}, reduce(k, "sum", term, 1, &r));
  if (!chance(k->seed, 60)) return c;
  const Tensor *bias = input(k, 1, &N);
  const IterVar *x = axis(k, "i", M, ITER_SPATIAL);
  const IterVar *y = axis(k, "j", N, ITER_SPATIAL);
  const Expr *sum = expr_add(k->m, read(k, c, AT(x), AT(y), NULL), read(k, bias, AT(y), NULL, NULL));
  return make_chain(k, compute(k, 2, (const IterVar *[]){x, y}, sum), (int)pick(k->seed, 0, 1));
}

/* Padded convolution over one channel axis: data[c, h], weight[o, c, r]. */
static const Tensor *make_convolution(Maker *k)
{
  const Expr *C = size(k, 4);
  const Expr *H = size(k, 13);
  const Expr *O = size(k, 5);
  int64_t taps = pick(k->seed, 1, 3);
  int64_t pad = taps / 2;
  const Expr *R = expr_i32(k->m, taps);
  const Expr *wide = expr_i32(k->m, H->u.i + 2 * pad);
  const Expr *out = expr_i32(k->m, H->u.i + 2 * pad - taps + 1);
  if (out->u.i < 1) return make_chain(k, input(k, 1, &H), 2);
  const Tensor *data = input(k, 2, (const Expr *[]){C, H});
  const Tensor *weight = input(k, 3, (const Expr *[]){O, C, R});
  const IterVar *c = axis(k, "c", C, ITER_SPATIAL);
  const IterVar *h = axis(k, "h", wide, ITER_SPATIAL);
  const Expr *p = expr_i32(k->m, pad);
  const Expr *end = expr_i32(k->m, pad + H->u.i);
  const Expr *inside = expr_and(k->m, expr_binary(k->m, E_GE, AT(h), p), expr_lt(k->m, AT(h), end));
  const Expr *args[] = {inside, read(k, data, AT(c), expr_sub(k->m, AT(h), p), NULL), number(k, 0)};
  const Tensor *padded = compute(k, 2, (const IterVar *[]){c, h}, expr_call(k->m, k->dtype, IN_IF_THEN_ELSE, 3, args));
  const IterVar *o = axis(k, "o", O, ITER_SPATIAL);
  const IterVar *x = axis(k, "x", out, ITER_SPATIAL);
  const IterVar *rc = axis(k, "rc", C, ITER_REDUCE);
  const IterVar *rr = axis(k, "rr", R, ITER_REDUCE);
  const Expr *term = expr_mul(k->m, read(k, padded, AT(rc), expr_add(k->m, AT(x), AT(rr)), NULL),
                              read(k, weight, AT(o), AT(rc), AT(rr)));
  const Tensor *conv = compute(k, 2, (const IterVar *[]){o, x}, reduce(k, "sum", term, 2, (const IterVar *[]){rc, rr}));
  return make_chain(k, conv, (int)pick(k->seed, 0, 1));
}

/* Rows reduced, then used again: x - max(x), summed. */
static const Tensor *make_rows(Maker *k, const Expr *M)
{
  const Expr *N = size(k, 13);
  const Tensor *a = input(k, 2, (const Expr *[]){M, N});
  if (chance(k->seed, 50)) a = make_chain(k, a, 1);
  const IterVar *i = axis(k, "i", M, ITER_SPATIAL);
  const IterVar *r = axis(k, "k", N, ITER_REDUCE);
  const Tensor *top =
      compute(k, 1, &i, reduce(k, chance(k->seed, 50) ? "max" : "min", read(k, a, AT(i), AT(r), NULL), 1, &r));
  const IterVar *x = axis(k, "i", M, ITER_SPATIAL);
  const IterVar *y = axis(k, "j", N, ITER_SPATIAL);
  const Expr *diff = expr_sub(k->m, read(k, a, AT(x), AT(y), NULL), read(k, top, AT(x), NULL, NULL));
  const Tensor *d = compute(k, 2, (const IterVar *[]){x, y}, diff);
  if (chance(k->seed, 50)) return d;
  const IterVar *z = axis(k, "i", M, ITER_SPATIAL);
  const IterVar *s = axis(k, "k", N, ITER_REDUCE);
  return compute(k, 1, &z, reduce(k, "sum", read(k, d, AT(z), AT(s), NULL), 1, &s));
}

/* B[i] = A[i] + A[i + 1]; C[i] = B[i] - B[i + 2]. */
static const Tensor *make_stencil(Maker *k)
{
  int64_t n = pick(k->seed, 4, 17);
  const Expr *N = expr_i32(k->m, n);
  const Expr *one = expr_i32(k->m, n - 1);
  const Expr *two = expr_i32(k->m, n - 3);
  const Tensor *a = input(k, 1, &N);
  const IterVar *i = axis(k, "i", one, ITER_SPATIAL);
  const IterVar *j = axis(k, "i", two, ITER_SPATIAL);
  const Expr *next = expr_add(k->m, AT(i), expr_i32(k->m, 1));
  const Expr *after = expr_add(k->m, AT(j), expr_i32(k->m, 2));
  const Tensor *b =
      compute(k, 1, &i, expr_add(k->m, read(k, a, AT(i), NULL, NULL), shake(k, read(k, a, next, NULL, NULL))));
  return compute(k, 1, &j, expr_sub(k->m, read(k, b, AT(j), NULL, NULL), read(k, b, after, NULL, NULL)));
}

/* Transposed, then flattened. */
static const Tensor *make_reshape(Maker *k)
{
  const Expr *M = size(k, 8);
  const Expr *N = size(k, 8);
  const Expr *flat = expr_i32(k->m, M->u.i * N->u.i);
  const Tensor *a = input(k, 2, (const Expr *[]){M, N});
  const IterVar *i = axis(k, "i", N, ITER_SPATIAL);
  const IterVar *j = axis(k, "j", M, ITER_SPATIAL);
  const IterVar *f = axis(k, "f", flat, ITER_SPATIAL);
  const Tensor *t = compute(k, 2, (const IterVar *[]){i, j}, shake(k, read(k, a, AT(j), AT(i), NULL)));
  const Expr *row = expr_floordiv(k->m, AT(f), M);
  const Expr *col = expr_floormod(k->m, AT(f), M);
  return make_chain(k, compute(k, 1, &f, shake(k, read(k, t, row, col, NULL))), (int)pick(k->seed, 0, 1));
}

/* float16 is exact up to 2048, which no sum here reaches. */
static DType any_dtype(uint64_t *seed)
{
  static const DType rare[] = {{DT_FLOAT, 16, 1}, {DT_FLOAT, 64, 1}, {DT_INT, 8, 1},
                               {DT_UINT, 8, 1},   {DT_INT, 16, 1},   {DT_INT, 64, 1}};
  int64_t roll = pick(seed, 1, 100);
  return roll <= 60 ? DT_F32 : roll <= 75 ? DT_I32 : rare[pick(seed, 0, (int64_t)(sizeof rare / sizeof *rare) - 1)];
}

int random_compute(Module *m, uint64_t *seed, TeArg **args)
{
  Maker k = {.m = m, .seed = seed, .dtype = any_dtype(seed)};
  const Expr *rows = chance(seed, 15) ? var_expr(var_new(m, "n", DT_I32, VAR_SIZE)) : size(&k, 17);
  const Tensor *out = NULL;
  switch (pick(seed, 0, 6)) {
  case 0: out = make_chain(&k, input(&k, 2, (const Expr *[]){rows, size(&k, 13)}), (int)pick(seed, 1, 3)); break;
  case 1:
  case 2: out = make_product(&k, rows); break;
  case 3: out = make_convolution(&k); break;
  case 4: out = make_rows(&k, rows); break;
  case 5: out = make_stencil(&k); break;
  default: out = make_reshape(&k); break;
  }
  return te_default_args(m->arena, 1, &out, args);
}

PrimFunc *random_func(Module *m, uint64_t *seed)
{
  TeArg *args;
  int n = random_compute(m, seed, &args);
  return te_create_prim_func(m, "main", n, args, NULL);
}

/* ---- numbers ----------------------------------------------------------------------------------- */

static void draw_sizes(EvalEnv *env, const PrimFunc *f, uint64_t *seed)
{
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    for (int d = 0; d < (b ? b->ndim : 1); d++) {
      const Var **v;
      int n = expr_free_vars(env->arena, b ? b->shape[d] : var_expr(f->param[i].var), &v);
      for (int k = 0; k < n; k++)
        if (!map_has(&env->vars, v[k])) expr_eval_bind(env, v[k], value_int(v[k]->dtype, pick(seed, 1, 19)));
    }
  }
}

TirArg *random_args(Arena *a, const PrimFunc *f, uint64_t seed)
{
  EvalEnv env = {.m = f->m, .arena = a};
  draw_sizes(&env, f, &seed);
  TirArg *args = arena_array(a, TirArg, f->nparam);
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    if (!b) {
      args[i] = (TirArg){.dtype = f->param[i].var->dtype, .scalar = expr_eval(&env, var_expr(f->param[i].var), 0)};
      continue;
    }
    int64_t *shape = arena_array(a, int64_t, b->ndim);
    size_t count = 1;
    for (int d = 0; d < b->ndim; d++) {
      shape[d] = expr_eval(&env, b->shape[d], 0).i;
      count = mem_size_mul(f->m->ctx, count, (size_t)shape[d], "elements");
    }
    size_t bytes = (size_t)dtype_bytes(b->dtype);
    char *data = arena_alloc_array(a, count + 1, bytes);
    for (size_t e = 0; e < count; e++) {
      int64_t v = pick(&seed, -4, 4);
      value_store(dtype_is_float(b->dtype) ? value_float(b->dtype, (double)v) : value_int(b->dtype, v),
                  data + e * bytes);
    }
    args[i] = (TirArg){.data = data, .dtype = b->dtype, .ndim = b->ndim, .shape = shape};
  }
  return args;
}

void random_compare(const PrimFunc *f, const PrimFunc *g, uint64_t seed)
{
  Ctx *ctx = f->m->ctx;
  Scope scope = scope_begin(ctx);
  TirArg *x = random_args(scratch(ctx), f, seed);
  TirArg *y = random_args(scratch(ctx), f, seed);
  func_interpret(f, f->nparam, x);
  func_interpret_shuffled(g, g->nparam, y, seed);
  for (int i = 0; i < f->nparam; i++) {
    if (!x[i].data) continue;
    size_t count = 1;
    size_t bytes = (size_t)dtype_bytes(x[i].dtype);
    for (int d = 0; d < x[i].ndim; d++) count *= (size_t)x[i].shape[d];
    for (size_t e = 0; e < count; e++) {
      Value a = value_load(x[i].dtype, (char *)x[i].data + e * bytes);
      Value b = value_load(y[i].dtype, (char *)y[i].data + e * bytes);
      if (value_eq(a, b)) continue;
      bool real = dtype_is_float(a.dtype);
      BUG(ctx, "argument %d, element %zu: %g before and %g after", i, e, real ? a.f : (double)a.i,
          real ? b.f : (double)b.i);
    }
  }
  scope_end(ctx, scope);
}
