/* test_graph.h: what the tests of the graph layer share: a world with a module, a few
 * small operators, and parsing in one word. */
#ifndef LATHE_TEST_GRAPH_H
#define LATHE_TEST_GRAPH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/state.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct World {
  Ctx *ctx;
  Module *m;
  void (*body)(struct World *);
} World;

/* ---- operators: add, multiply, less (one shape, or a scalar second), negative, shape_of,
 *      concatenate (1-D, tuple), take (one element), reshape (shape as operand), sum, scale ---- */

static const Type *same_type(OpCall *c)
{
  const Type *a = c->arg[0];
  const Type *b = c->nargs > 1 ? c->arg[1] : NULL;
  if (b && b->ndim && !type_equal(a, b))
    opdef_raise(c, ERR_SHAPE, "lhs is %s, rhs is %s", type_text(scratch(c->m->ctx), a),
                type_text(scratch(c->m->ctx), b));
  return a;
}

static const Type *less_type(OpCall *c)
{
  const Type *a = same_type(c);
  return type_tensor(c->m, DT_BOOL, a->ndim, (const Expr *const *)a->shape);
}

typedef const Expr *(*Element)(OpCall *, const Tensor *const *in, const Expr *const *index);

static void compute_by(OpCall *c, const Tensor *const *in, const Tensor **out, Element fn)
{
  Module *m = c->m;
  int n = c->out->ndim;
  const IterVar *axis[8];
  const Expr *index[8];
  for (int i = 0; i < n; i++) {
    axis[i] = itervar_new(m, var_new(m, "i", DT_I32, VAR_PLAIN), expr_i32(m, 0), c->out->shape[i], ITER_SPATIAL, NULL);
    index[i] = axis[i]->var->expr;
  }
  const Expr *body = fn(c, in, index);
  out[0] = &te_compute(m, "t", NULL, n, (const Expr *const *)c->out->shape, axis, 1, &body, NULL)->out[0];
}

#define BINARY(name, kind)                                                                        \
  static const Expr *name##_element(OpCall *c, const Tensor *const *in, const Expr *const *index) \
  {                                                                                               \
    return expr_binary(c->m, kind, te_read(c->m, in[0], c->arg[0]->ndim, index),                  \
                       te_read(c->m, in[1], c->arg[1]->ndim, index));                             \
  }                                                                                               \
  static void name##_compute(OpCall *c, const Tensor *const *in, const Tensor **out)              \
  {                                                                                               \
    compute_by(c, in, out, name##_element);                                                       \
  }
BINARY(add, E_ADD)
BINARY(multiply, E_MUL)
BINARY(less, E_LT)

static const Expr *negative_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  return expr_sub(c->m, expr_const(c->m, c->out->dtype, 0), te_read(c->m, in[0], c->arg[0]->ndim, index));
}
static void negative_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, negative_element);
}

static const Type *shape_of_type(OpCall *c) { return type_tensor_of(c->m, DT_I64, 1, (int64_t[]){c->arg[0]->ndim}); }
static const Expr *shape_of_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  (void)in;
  const Expr *e = expr_int(c->m, DT_I64, 0);
  for (int i = c->arg[0]->ndim - 1; i >= 0; i--)
    e = expr_select(c->m, expr_binary(c->m, E_EQ, index[0], expr_i32(c->m, i)),
                    expr_cast(c->m, DT_I64, c->arg[0]->shape[i]), e);
  return e;
}
static void shape_of_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, shape_of_element);
}

static const Type *concatenate_type(OpCall *c)
{
  int64_t n = 0;
  for (int i = 0; i < c->arg[0]->nfield; i++) n += c->arg[0]->field[i]->shape[0]->u.i;
  return type_tensor_of(c->m, c->arg[0]->field[0]->dtype, 1, &n);
}
static const Expr *concatenate_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  const Expr *e = NULL;
  int64_t at = c->out->shape[0]->u.i;
  for (int i = c->arg[0]->nfield - 1; i >= 0; i--) {
    at -= c->arg[0]->field[i]->shape[0]->u.i;
    const Expr *k = expr_sub(c->m, index[0], expr_i32(c->m, at));
    const Expr *read = te_read(c->m, in[i], 1, &k);
    e = e ? expr_call(c->m, read->dtype, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){expr_lt(c->m, index[0], expr_i32(c->m, at + c->arg[0]->field[i]->shape[0]->u.i)),
                                       read, e})
          : read;
  }
  return e;
}
static void concatenate_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, concatenate_element);
}

#define TAKE_ATTRS(A, S) A(S, INT, index, "0", "which element")
DEFINE_ATTRS(TestTake, TAKE_ATTRS)
static const Type *take_type(OpCall *c) { return type_tensor_of(c->m, c->arg[0]->dtype, 1, (int64_t[]){1}); }
static const Expr *take_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  (void)index;
  const Expr *at = expr_i32(c->m, ((const TestTakeAttrs *)c->attrs)->index);
  return te_read(c->m, in[0], 1, &at);
}
static void take_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, take_element);
}

static const Type *reshape_type(OpCall *c)
{
  int n;
  const Expr *const *dims = graph_values(c->m, c->node[1], &n);
  if (!dims) opdef_raise(c, ERR_SHAPE, "the number of dimensions is not known");
  return type_tensor(c->m, c->arg[0]->dtype, n, dims);
}
static const Expr *reshape_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  const Expr *flat = expr_i32(c->m, 0);
  const Expr *at[8];
  for (int i = 0; i < c->out->ndim; i++) flat = expr_add(c->m, expr_mul(c->m, flat, c->out->shape[i]), index[i]);
  for (int i = c->arg[0]->ndim - 1; i >= 0; i--) {
    at[i] = i ? expr_floormod(c->m, flat, c->arg[0]->shape[i]) : flat;
    flat = expr_floordiv(c->m, flat, c->arg[0]->shape[i]);
  }
  return te_read(c->m, in[0], c->arg[0]->ndim, at);
}
static void reshape_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, reshape_element);
}

static const Type *sum_type(OpCall *c) { return type_tensor(c->m, c->arg[0]->dtype, 0, NULL); }
static const Expr *sum_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  (void)index;
  const IterVar *k = itervar_new(c->m, var_new(c->m, "k", DT_I32, VAR_PLAIN), expr_i32(c->m, 0), c->arg[0]->shape[0],
                                 ITER_REDUCE, NULL);
  const Expr *at = k->var->expr;
  const Expr *source = te_read(c->m, in[0], 1, &at);
  return expr_reduce(c->m, reducer_named(c->m, "sum", c->out->dtype, DT_I32), 1, &source, 1, &k, expr_bool(c->m, true),
                     NULL, 0);
}
static void sum_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { compute_by(c, in, out, sum_element); }

/* clang-format off */
#define SCALE_ATTRS(A, S)                               \
  A(S, F64, factor, "1e-5", "what to multiply by")      \
  A(S, STR, layout, "\"NCHW\"", "a word")               \
  A(S, INTS, pads, "[0, 0]", "a list")                  \
  A(S, DTYPE, out_dtype, "None", "a dtype")             \
  A(S, DIMS, dims, "None", "dimensions")                \
  A(S, BOOL, exact, "True", "a bool")                   \
  A(S, STRS, words, "[]", "strings")                    \
  A(S, F64S, numbers, "None", "numbers")
/* clang-format on */
DEFINE_ATTRS(TestScale, SCALE_ATTRS)
static const Expr *scale_element(OpCall *c, const Tensor *const *in, const Expr *const *index)
{
  return expr_mul(c->m, te_read(c->m, in[0], c->arg[0]->ndim, index),
                  expr_const(c->m, c->out->dtype, ((const TestScaleAttrs *)c->attrs)->factor));
}
static void scale_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  compute_by(c, in, out, scale_element);
}

static const OpDef op_add = {
  .name = "add", .args = "lhs, rhs", .min_args = 2, .max_args = 2, .type = same_type, .compute = add_compute};
static const OpDef op_multiply = {
  .name = "multiply", .args = "lhs, rhs", .min_args = 2, .max_args = 2, .type = same_type, .compute = multiply_compute};
static const OpDef op_less = {
  .name = "less", .args = "lhs, rhs", .min_args = 2, .max_args = 2, .type = less_type, .compute = less_compute};
static const OpDef op_negative = {
  .name = "negative", .args = "data", .min_args = 1, .max_args = 1, .type = same_type, .compute = negative_compute};
static const OpDef op_shape_of = {
  .name = "shape_of", .args = "data", .min_args = 1, .max_args = 1, .type = shape_of_type, .compute = shape_of_compute};
static const OpDef op_concatenate = {.name = "concatenate",
                                     .args = "data",
                                     .min_args = 1,
                                     .max_args = 1,
                                     .flags = OPF_TUPLE_ARG,
                                     .type = concatenate_type,
                                     .compute = concatenate_compute};
static const OpDef op_take = {.name = "nn.take",
                              .args = "data",
                              .min_args = 1,
                              .max_args = 1,
                              .attrs = &TestTake_attrs,
                              .type = take_type,
                              .compute = take_compute};
static const OpDef op_reshape = {.name = "reshape",
                                 .args = "data, newshape",
                                 .min_args = 2,
                                 .max_args = 2,
                                 .type = reshape_type,
                                 .compute = reshape_compute};
static const OpDef op_sum = {
  .name = "sum", .args = "data", .min_args = 1, .max_args = 1, .type = sum_type, .compute = sum_compute};
static const OpDef op_scale = {.name = "scale",
                               .args = "data",
                               .min_args = 1,
                               .max_args = 1,
                               .attrs = &TestScale_attrs,
                               .type = same_type,
                               .compute = scale_compute};
static const OpDef *const test_ops[] = {&op_add,         &op_multiply, &op_less,    &op_negative, &op_shape_of,
                                        &op_concatenate, &op_take,     &op_reshape, &op_sum,      &op_scale};

/* ---- running a test ---------------------------------------------------------------------------- */

static void world_run(Ctx *ctx, void *arg)
{
  (void)ctx;
  World *w = arg;
  w->m = module_new(w->ctx);
  w->body(w);
}

static inline void world(void (*body)(World *))
{
  World w = {.ctx = ctx_new(), .body = body};
  opdef_install(test_ops, (int)(sizeof test_ops / sizeof *test_ops));
  ErrKind kind = protect(w.ctx, world_run, &w);
  char message[512];
  snprintf(message, sizeof message, "%s", error_message(w.ctx));
  int line = error_loc(w.ctx).line;
  if (w.m) module_release(w.m);
  ctx_free(w.ctx);
  if (kind) fail_msg("%s: %s (line %d)", error_kind_name(kind), message, line);
}

#define CASE(name)                   \
  static void name##_body(World *w); \
  static void name(void **state)     \
  {                                  \
    (void)state;                     \
    world(name##_body);              \
  }                                  \
  static void name##_body(World *w)

/* The function @main of a text. */
static inline const Node *parse_main(World *w, const char *text)
{
  graph_parse_module(w->m, text, "test");
  return graph_main(w->m);
}

typedef struct TextJob {
  Module *m;
  const char *text;
} TextJob;
static inline void parse_job(Ctx *ctx, void *arg)
{
  (void)ctx;
  TextJob *job = arg;
  graph_parse_module(job->m, job->text, "test");
}

/* Parsing must fail with a message that holds `want`. */
static inline void refused(World *w, const char *text, ErrKind kind, const char *want)
{
  TextJob job = {w->m, text};
  int globals = w->m->globals.n;
  ErrKind got = protect(w->ctx, parse_job, &job);
  if (got != kind || !strstr(error_message(w->ctx), want))
    fail_msg("%s\n  wanted %s: …%s…\n  got %s: %s", text, error_kind_name(kind), want, error_kind_name(got),
             error_message(w->ctx));
  assert_int_equal(w->m->globals.n, globals);
  error_clear(w->ctx);
}

static inline const RtValue *f32_value(World *w, int n, const float *v)
{
  ConstData d = {.dtype = DT_F32, .ndim = n >= 0, .shape = {n}, .bytes = (size_t)(n < 0 ? 1 : n) * 4};
  d.data = arena_copy(w->m->arena, v, d.bytes);
  return graph_value_tensor(w->m->arena, &d);
}

static inline int64_t int_result(const RtValue *v)
{
  assert_int_equal(v->kind, RV_TENSOR);
  return value_load(v->tensor.dtype, v->tensor.data).i;
}

#endif
