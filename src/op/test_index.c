/* test_index.c: take, gather, scatter, one_hot, argwhere, unique and the like. */
#include "op/test_shape.h"

#include <math.h>

/* ---- take, gather ------------------------------------------------------------------------- */

CASE(takes)
{
  Data d = RUN("take", ATTRS({"axis", "[1]"}), IOTA(DT_F32, 2, 3), TENSOR(DT_I64, DIMS(2), 2, 0));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 2, 0, 5, 3);
  d = RUN("take", NULL, IOTA(DT_F32, 2, 3), TENSOR(DT_I32, DIMS(2, 1), 4, 1));
  ASSERT_DATA(d, DT_F32, DIMS(2, 1), 4, 1);
  d = RUN("take", ATTRS({"axis", "[0]"}), IOTA(DT_F32, 3), SCALAR(DT_I64, 1));
  ASSERT_DATA(d, DT_F32, NODIMS, 1);
  d = RUN("take", ATTRS({"axis", "[1]"}, {"batch_dims", "1"}), IOTA(DT_F32, 2, 3),
          TENSOR(DT_I32, DIMS(2, 2), 0, 1, 2, 1));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 0, 1, 5, 4);
}

CASE(take_has_three_modes)
{
  Data x = IOTA(DT_F32, 4);
  Data at = TENSOR(DT_I64, DIMS(4), -1, -5, 4, 2);
  Data d = RUN("take", ATTRS({"axis", "[0]"}), x, at);
  ASSERT_DATA(d, DT_F32, DIMS(4), 0, 0, 3, 2);
  d = RUN("take", ATTRS({"axis", "[0]"}, {"mode", "\"wrap\""}), x, at);
  ASSERT_DATA(d, DT_F32, DIMS(4), 3, 3, 0, 2);
  d = RUN("take", ATTRS({"axis", "[0]"}, {"mode", "\"fast\""}), x, at);
  ASSERT_DATA(d, DT_F32, DIMS(4), 3, 0, 3, 2);
}
REFUSED(take_by_floats, ERR_TYPE, "take: argument 1 is Tensor[(2), float32]; it must hold integers")
{
  CALL("take", NULL, SYM(DT_F32, I(3)), SYM(DT_F32, I(2)));
}
REFUSED(take_mode, ERR_ARGUMENT, "take: mode is 'slow'; it is clip, wrap or fast")
{
  CALL("take", ATTRS({"mode", "\"slow\""}), SYM(DT_F32, I(3)), SYM(DT_I32, I(2)));
}

CASE(gathers)
{
  Data d = RUN("gather", ATTRS({"axis", "1"}), TENSOR(DT_F32, DIMS(2, 2), 1, 2, 3, 4),
               TENSOR(DT_I64, DIMS(2, 2), 0, 0, -1, 0));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 1, 1, 4, 3);
  d = RUN("gather_nd", NULL, IOTA(DT_F32, 2, 2, 2), TENSOR(DT_I64, DIMS(2, 2), 0, 1, 1, 0));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 2, 3, 4, 5);
  d = RUN("gather_nd", ATTRS({"batch_dims", "1"}), IOTA(DT_F32, 2, 2, 2), TENSOR(DT_I64, DIMS(1, 2), 1, 0));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 2, 3, 4, 5);
  Data out[1];
  run_tuple(w, "adv_index", NULL, 3,
            (Data[]){IOTA(DT_F32, 2, 3), TENSOR(DT_I64, DIMS(2, 1), 0, 1), TENSOR(DT_I64, DIMS(2), 2, 0)}, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 2, 0, 5, 3);
}
REFUSED(gather_ranks, ERR_SHAPE,
        "gather: data is Tensor[(3), float32], indices Tensor[(2, 2), int64]; both need the same rank")
{
  CALL("gather", NULL, SYM(DT_F32, I(3)), SYM(DT_I64, I(2), I(2)));
}
REFUSED(gather_nd_too_long, ERR_SHAPE,
        "gather_nd: batch_dims 0 and indices of length 2 do not fit data Tensor[(3), float32]")
{
  CALL("gather_nd", NULL, SYM(DT_F32, I(3)), SYM(DT_I64, I(2), I(2)));
}

/* ---- scatter --------------------------------------------------------------------------------- */

static void scatters(World *w, const char *reduction, int n, const double *want)
{
  Data d =
      RUN("scatter_elements", ATTRS({"axis", "1"}, {"reduction", reduction}), TENSOR(DT_F32, DIMS(1, 5), 1, 2, 3, 4, 5),
          TENSOR(DT_I64, DIMS(1, 3), 1, -4, 9), TENSOR(DT_F32, DIMS(1, 3), 1.5, 6, 7));
  assert_data(&d, DT_F32, DIMS(1, 5), n, want);
}

CASE(scatters_elements)
{
  scatters(w, "\"update\"", NUMS(1, 6, 3, 4, 5));
  scatters(w, "\"add\"", NUMS(1, 9.5, 3, 4, 5));
  scatters(w, "\"mul\"", NUMS(1, 18, 3, 4, 5));
  scatters(w, "\"min\"", NUMS(1, 1.5, 3, 4, 5));
  scatters(w, "\"max\"", NUMS(1, 6, 3, 4, 5));
  scatters(w, "\"mean\"", NUMS(1, 3.875, 3, 4, 5));
  Data d = RUN("scatter_elements", ATTRS({"axis", "0"}), TENSOR(DT_F32, DIMS(3, 2), 0, 0, 0, 0, 0, 0),
               TENSOR(DT_I64, DIMS(2, 2), 1, 0, 2, 1), TENSOR(DT_F32, DIMS(2, 2), 1, 2, 3, 4));
  ASSERT_DATA(d, DT_F32, DIMS(3, 2), 0, 2, 1, 4, 3, 0);
}

CASE(scatters_nd)
{
  Data d =
      RUN("scatter_nd", NULL, IOTA(DT_F32, 4), TENSOR(DT_I64, DIMS(1, 3), 2, 0, 7), TENSOR(DT_F32, DIMS(3), 8, 9, 5));
  ASSERT_DATA(d, DT_F32, DIMS(4), 9, 1, 8, 3);
  d = RUN("scatter_nd", ATTRS({"mode", "\"add\""}), IOTA(DT_F32, 2, 2), TENSOR(DT_I64, DIMS(1, 2), 1, 1),
          TENSOR(DT_F32, DIMS(2, 2), 1, 2, 10, 20));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 0, 1, 13, 25);
}
REFUSED(scatter_reduction, ERR_ARGUMENT,
        "scatter_elements: reduction is 'sum'; it is update, add, mul, min, max or mean")
{
  CALL("scatter_elements", ATTRS({"reduction", "\"sum\""}), SYM(DT_F32, I(3)), SYM(DT_I64, I(2)), SYM(DT_F32, I(2)));
}
REFUSED(scatter_shapes, ERR_SHAPE,
        "indices is Tensor[(2), int64], updates Tensor[(3), float32]; both need the same shape")
{
  CALL("scatter_elements", NULL, SYM(DT_F32, I(3)), SYM(DT_I64, I(2)), SYM(DT_F32, I(3)));
}
REFUSED(scatter_nd_shapes, ERR_SHAPE,
        "scatter_nd: updates is Tensor[(3, 1), float32]; with data Tensor[(4), float32] and indices Tensor[(1, 3), "
        "int64] it has 1 dimensions")
{
  CALL("scatter_nd", NULL, SYM(DT_F32, I(4)), SYM(DT_I64, I(1), I(3)), SYM(DT_F32, I(3), I(1)));
}

CASE(unpools)
{
  Data d = RUN("nn.max_unpool", ATTRS({"shape", "[1, 1, 2, 3]"}), TENSOR(DT_F32, DIMS(1, 1, 1, 2), 5, 6),
               TENSOR(DT_I64, DIMS(1, 1, 1, 2), 4, 2));
  ASSERT_DATA(d, DT_F32, DIMS(1, 1, 2, 3), 0, 0, 6, 0, 5, 0);
}

/* ---- one_hot and small ones ---------------------------------------------------------------------- */

CASE(one_hots)
{
  Data on = SCALAR(DT_F32, 5);
  Data off = SCALAR(DT_F32, 1);
  Data d = RUN("one_hot", ATTRS({"depth", "3"}), TENSOR(DT_I64, DIMS(3), 0, -1, 7), on, off);
  ASSERT_DATA(d, DT_F32, DIMS(3, 3), 5, 1, 1, 1, 1, 5, 1, 1, 1);
  d = RUN("one_hot", ATTRS({"depth", "2"}, {"axis", "0"}, {"dtype", "\"int8\""}), TENSOR(DT_I64, DIMS(3), 0, 1, 1), on,
          off);
  ASSERT_DATA(d, DT_I8, DIMS(2, 3), 5, 1, 1, 1, 5, 5);
  d = RUN("dyn.one_hot", NULL, TENSOR(DT_I64, DIMS(2), 0, 1), on, off, SCALAR(DT_I64, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 5, 1, 1, 5);
}

CASE(small_ones)
{
  Data d = RUN("sequence_mask", ATTRS({"mask_value", "-1"}), IOTA(DT_F32, 3, 2), TENSOR(DT_I32, DIMS(2), 1, 2));
  ASSERT_DATA(d, DT_F32, DIMS(3, 2), 0, 1, -1, 3, -1, -1);
  d = RUN("unravel_index", NULL, TENSOR(DT_I64, DIMS(3), 22, 41, 37), TENSOR(DT_I64, DIMS(2), 7, 6));
  ASSERT_DATA(d, DT_I64, DIMS(2, 3), 3, 6, 6, 4, 5, 1);
  d = RUN("invert_permutation", NULL, TENSOR(DT_I32, DIMS(4), 2, 0, 3, 1));
  ASSERT_DATA(d, DT_I32, DIMS(4), 1, 3, 0, 2);
  d = RUN("searchsorted", NULL, TENSOR(DT_F32, DIMS(5), 1, 2, 2, 3, 5), TENSOR(DT_F32, DIMS(3), 2, 0, 9));
  ASSERT_DATA(d, DT_I32, DIMS(3), 1, 0, 5);
  d = RUN("searchsorted", ATTRS({"right", "True"}), TENSOR(DT_F32, DIMS(5), 1, 2, 2, 3, 5),
          TENSOR(DT_F32, DIMS(3), 2, 0, 9));
  ASSERT_DATA(d, DT_I32, DIMS(3), 3, 0, 5);
}
CASE(ngrams)
{
  Data x = TENSOR(DT_I64, DIMS(2, 6), 1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8);
  ASSERT_DATA(RUN("count_ngrams", ATTRS({"skips", "5"}), x, TENSOR(DT_I64, DIMS(3, 1), 3, 8, 9)), DT_I32, DIMS(2, 3), 3,
              0, 0, 0, 2, 0);
  Data pairs = TENSOR(DT_I64, DIMS(3, 2), 3, 3, 1, 3, 8, 8);
  ASSERT_DATA(RUN("count_ngrams", NULL, x, pairs), DT_I32, DIMS(2, 3), 2, 1, 0, 0, 0, 0);
  ASSERT_DATA(RUN("count_ngrams", ATTRS({"skips", "4"}), x, pairs), DT_I32, DIMS(2, 3), 3, 6, 0, 0, 0, 1);
}
REFUSED(ngrams_of_nothing, ERR_SHAPE, "count_ngrams: grams is Tensor[(3, 0), int64]; a row of it has 1 to 32 elements")
{
  CALL("count_ngrams", NULL, SYM(DT_I64, I(2), I(6)), SYM(DT_I64, I(3), I(0)));
}
REFUSED(ngrams_skips, ERR_ARGUMENT, "count_ngrams: skips is -1; it is 0 to 65535")
{
  CALL("count_ngrams", ATTRS({"skips", "-1"}), SYM(DT_I64, I(2), I(6)), SYM(DT_I64, I(3), I(2)));
}
REFUSED(sequence_mask_axis, ERR_ARGUMENT,
        "sequence_mask: axis is 2 of Tensor[(3, 2), float32]; it is 0 or 1 of at least two")
{
  CALL("sequence_mask", ATTRS({"axis", "2"}), SYM(DT_F32, I(3), I(2)), SYM(DT_I32, I(2)));
}

/* ---- what depends on values -------------------------------------------------------------------------- */

static const RtValue *value_of(World *w, const Data *d)
{
  RtValue *v = arena_new_of(w->m->arena, RtValue);
  v->kind = RV_TENSOR;
  v->tensor = (ConstData){.dtype = d->dtype,
                          .ndim = d->ndim,
                          .bytes = (size_t)data_count(d) * (size_t)dtype_bytes(d->dtype),
                          .data = d->data};
  for (int i = 0; i < d->ndim; i++) v->tensor.shape[i] = d->shape[i];
  return v;
}

static Data data_from(const RtValue *v)
{
  Data d = {.dtype = v->tensor.dtype, .ndim = v->tensor.ndim, .data = (void *)(uintptr_t)v->tensor.data};
  for (int i = 0; i < d.ndim; i++) d.shape[i] = v->tensor.shape[i];
  return d;
}

/* Evaluates a call as a graph: decompositions and all. */
static const RtValue *evaluated(World *w, const char *op, const Attr *a, int n, const Data *in)
{
  const Node *arg[4];
  const RtValue *value[4];
  for (int i = 0; i < n; i++) {
    arg[i] = node_of(w, &in[i]);
    value[i] = value_of(w, &in[i]);
  }
  const Node *f = node_func(w->m, n, arg, call_of(w, op, a, n, arg), NULL, NULL);
  return graph_eval(w->m, w->m->arena, f, n, value);
}

CASE(finds_where)
{
  Data in = TENSOR(DT_F32, DIMS(2, 3), 0, 1, NAN, 0, 0, -2);
  Data out[2];
  run_node(w, CALL("argwhere_padded", NULL, node_of(w, &in)), &in, out);
  ASSERT_DATA(out[1], DT_I32, DIMS(1), 3);
  Data d = data_from(evaluated(w, "argwhere", NULL, 1, &in));
  ASSERT_DATA(d, DT_I32, DIMS(3, 2), 0, 1, 0, 2, 1, 2);
  assert_type(w, CALL("argwhere", NULL, node_of(w, &in)), "Tensor[(?, 2), int32]");
}

CASE(compresses)
{
  Data in[2] = {IOTA(DT_F32, 2, 3), TENSOR(DT_BOOL, DIMS(3), 1, 0, 1)};
  Data d = data_from(evaluated(w, "compress", ATTRS({"axis", "[1]"}), 2, in));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 0, 2, 3, 5);
  in[1] = TENSOR(DT_BOOL, DIMS(2), 0, 1);
  d = data_from(evaluated(w, "compress", NULL, 2, in));
  ASSERT_DATA(d, DT_F32, DIMS(1), 1);
}
REFUSED(compress_by_numbers, ERR_TYPE, "compress: condition is Tensor[(3), int32]; it is a vector of bool")
{
  CALL("compress", NULL, SYM(DT_F32, I(3)), SYM(DT_I32, I(3)));
}

CASE(finds_unique)
{
  Data in = TENSOR(DT_F32, DIMS(6), 2, 1, 1, 3, 4, 3);
  const RtValue *v = evaluated(w, "unique", ATTRS({"return_counts", "True"}), 1, &in);
  ASSERT_DATA(data_from(v->field[0]), DT_F32, DIMS(4), 1, 2, 3, 4);
  ASSERT_DATA(data_from(v->field[1]), DT_I32, DIMS(4), 1, 0, 3, 4);
  ASSERT_DATA(data_from(v->field[2]), DT_I32, DIMS(6), 1, 0, 0, 2, 3, 2);
  ASSERT_DATA(data_from(v->field[3]), DT_I32, DIMS(1), 4);
  ASSERT_DATA(data_from(v->field[4]), DT_I32, DIMS(4), 2, 1, 2, 1);
  v = evaluated(w, "unique", ATTRS({"is_sorted", "False"}, {"return_counts", "True"}), 1, &in);
  ASSERT_DATA(data_from(v->field[0]), DT_F32, DIMS(4), 2, 1, 3, 4);
  ASSERT_DATA(data_from(v->field[1]), DT_I32, DIMS(4), 0, 1, 3, 4);
  ASSERT_DATA(data_from(v->field[2]), DT_I32, DIMS(6), 0, 1, 1, 2, 3, 2);
  ASSERT_DATA(data_from(v->field[4]), DT_I32, DIMS(4), 1, 2, 2, 1);
}

CASE(finds_unique_slices)
{
  Data in = TENSOR(DT_F32, DIMS(3, 3), 1, 0, 0, 1, 0, 0, 2, 3, 4);
  const RtValue *v = evaluated(w, "unique", ATTRS({"axis", "[0]"}), 1, &in);
  ASSERT_DATA(data_from(v->field[0]), DT_F32, DIMS(2, 3), 1, 0, 0, 2, 3, 4);
  in = TENSOR(DT_F32, DIMS(2, 4), 1, 0, 1, 0, 1, 2, 1, 3);
  v = evaluated(w, "unique", ATTRS({"axis", "[1]"}), 1, &in);
  ASSERT_DATA(data_from(v->field[0]), DT_F32, DIMS(2, 3), 0, 0, 1, 2, 3, 1);
  ASSERT_DATA(data_from(v->field[2]), DT_I32, DIMS(4), 2, 0, 2, 1);
}

/* Operators that tell sizes read no element of their argument. */
CASE(evaluates_sizes)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *x = SYM(DT_F32, n, I(2));
  Data in = IOTA(DT_F32, 3, 2);
  const RtValue *value = value_of(w, &in);
  const Node *f = node_func(w->m, 1, &x, CALL("shape_of", NULL, x), NULL, NULL);
  ASSERT_DATA(data_from(graph_eval(w->m, w->m->arena, f, 1, &value)), DT_I32, DIMS(2), 3, 2);
  f = node_func(w->m, 1, &x, CALL("eye_like", NULL, x), NULL, NULL);
  ASSERT_DATA(data_from(graph_eval(w->m, w->m->arena, f, 1, &value)), DT_F32, DIMS(3, 2), 1, 0, 0, 1, 0, 0);
}

/* A shape computed on the way: the size of the result comes out of the operand's value. */
CASE(evaluates_run_time_shapes)
{
  Data in[2] = {IOTA(DT_F32, 6), TENSOR(DT_I64, DIMS(2), 3, -1)};
  ASSERT_DATA(data_from(evaluated(w, "dyn.reshape", NULL, 2, in)), DT_F32, DIMS(3, 2), 0, 1, 2, 3, 4, 5);
  Data cut[4] = {in[0], TENSOR(DT_I64, DIMS(1), -2), TENSOR(DT_I64, DIMS(1), 100), TENSOR(DT_I64, DIMS(1), 1)};
  ASSERT_DATA(data_from(evaluated(w, "dyn.strided_slice", NULL, 4, cut)), DT_F32, DIMS(2), 4, 5);
  Data top[2] = {in[0], SCALAR(DT_I64, 2)};
  ASSERT_DATA(data_from(evaluated(w, "dyn.topk", ATTRS({"ret_type", "\"values\""}), 2, top)), DT_F32, DIMS(2), 5, 4);
}

/* ---- sequences and optionals ------------------------------------------------------------------------------ */

static const RtValue *host(World *w, const char *op, const Attr *a, const Type *out, int n, const RtValue *const *in)
{
  op_init();
  OpCall c = {.m = w->m, .op = opdef_get(w->ctx, op), .attrs = attrs_of(w, op, a), .nargs = n, .out = out};
  return c.op->eval(&c, w->m->arena, in);
}
#define HOST(op, attrs, ...)                                                                    \
  host(w, op, attrs, NULL, (int)(sizeof((const RtValue *[]){__VA_ARGS__}) / sizeof(RtValue *)), \
       (const RtValue *[]){__VA_ARGS__})

CASE(sequences)
{
  Data a = TENSOR(DT_F32, DIMS(1, 2), 1, 2);
  Data b = TENSOR(DT_F32, DIMS(2, 2), 3, 4, 5, 6);
  Data last = SCALAR(DT_I64, -1);
  Data zero = SCALAR(DT_I64, 0);
  const RtValue *va = value_of(w, &a);
  const RtValue *vb = value_of(w, &b);
  const RtValue *vlast = value_of(w, &last);
  const RtValue *vzero = value_of(w, &zero);
  const RtValue *s = HOST("sequence.construct", NULL, va, vb);
  ASSERT_DATA(data_from(HOST("sequence.length", NULL, s)), DT_I64, NODIMS, 2);
  assert_ptr_equal(HOST("sequence.at", NULL, s, vlast), vb);
  assert_ptr_equal(HOST("sequence.insert", NULL, s, vb, vzero)->field[0], vb);
  assert_ptr_equal(HOST("sequence.insert", NULL, s, va)->field[2], va);
  assert_ptr_equal(HOST("sequence.erase", NULL, s, vzero)->field[0], vb);
  assert_int_equal(HOST("sequence.erase", NULL, s)->n, 1);
  ASSERT_DATA(data_from(HOST("sequence.concat", NULL, s)), DT_F32, DIMS(3, 2), 1, 2, 3, 4, 5, 6);
  const RtValue *pair = HOST("sequence.construct", NULL, va, va);
  ASSERT_DATA(data_from(HOST("sequence.concat", ATTRS({"axis", "-1"}, {"new_axis", "True"}), pair)), DT_F32,
              DIMS(1, 2, 2), 1, 1, 2, 2);
  ASSERT_DATA(data_from(HOST("sequence.concat", ATTRS({"axis", "1"}), pair)), DT_F32, DIMS(1, 4), 1, 2, 1, 2);
}

CASE(splits_to_sequences)
{
  Data x = IOTA(DT_F32, 2, 5);
  Data two = SCALAR(DT_I64, 2);
  Data sizes = TENSOR(DT_I64, DIMS(2), 1, 4);
  const RtValue *vx = value_of(w, &x);
  const RtValue *s = HOST("sequence.split", ATTRS({"axis", "1"}), vx, value_of(w, &two));
  assert_int_equal(s->n, 3);
  ASSERT_DATA(data_from(s->field[1]), DT_F32, DIMS(2, 2), 2, 3, 7, 8);
  ASSERT_DATA(data_from(s->field[2]), DT_F32, DIMS(2, 1), 4, 9);
  s = HOST("sequence.split", ATTRS({"axis", "1"}), vx, value_of(w, &sizes));
  ASSERT_DATA(data_from(s->field[0]), DT_F32, DIMS(2, 1), 0, 5);
  s = HOST("sequence.split", ATTRS({"keepdims", "False"}), vx);
  ASSERT_DATA(data_from(s->field[1]), DT_F32, DIMS(5), 5, 6, 7, 8, 9);
}

CASE(sequence_types)
{
  const Node *a = SYM(DT_F32, I(1), I(2));
  const Node *b = SYM(DT_F32, I(2), I(2));
  const Node *s = CALL("sequence.construct", NULL, a, b);
  assert_type(w, s, "Sequence[Tensor[(?, 2), float32]]");
  assert_type(w, CALL("sequence.at", NULL, s, SYM(DT_I64, I(1))), "Tensor[(?, 2), float32]");
  assert_type(w, CALL("sequence.concat", ATTRS({"axis", "0"}), s), "Tensor[(?, 2), float32]");
  assert_type(w,
              CALL("sequence.concat", ATTRS({"axis", "0"}, {"new_axis", "True"}), CALL("sequence.construct", NULL, b)),
              "Tensor[(?, 2, 2), float32]");
  assert_type(w, CALL("sequence.split", ATTRS({"keepdims", "False"}), b), "Sequence[Tensor[(2), float32]]");
  assert_type(w, CALL("optional.make", NULL, b), "Optional[Tensor[(2, 2), float32]]");
  assert_type(w, CALL("optional.get_element", NULL, CALL("optional.make", NULL, s)),
              "Sequence[Tensor[(?, 2), float32]]");
}

CASE(optionals)
{
  Data a = SCALAR(DT_F32, 3);
  const RtValue *va = value_of(w, &a);
  const RtValue *some = HOST("optional.make", NULL, va);
  const RtValue *none = host(w, "optional.make", NULL, NULL, 0, NULL);
  ASSERT_DATA(data_from(HOST("optional.has_element", NULL, some)), DT_BOOL, NODIMS, 1);
  ASSERT_DATA(data_from(HOST("optional.has_element", NULL, none)), DT_BOOL, NODIMS, 0);
  ASSERT_DATA(data_from(HOST("optional.has_element", NULL, va)), DT_BOOL, NODIMS, 1);
  assert_ptr_equal(HOST("optional.get_element", NULL, some), va);
  assert_ptr_equal(HOST("optional.get_element", NULL, va), va);
}
REFUSED(get_of_none, ERR_ARGUMENT, "optional.get_element: the optional has no value")
{
  HOST("optional.get_element", NULL, host(w, "optional.make", NULL, NULL, 0, NULL));
}
REFUSED(at_outside, ERR_BOUNDS, "sequence.at: position 2 is outside of a sequence of 1")
{
  Data two = SCALAR(DT_I64, 2);
  const RtValue *v = value_of(w, &two);
  HOST("sequence.at", NULL, HOST("sequence.construct", NULL, v), v);
}
REFUSED(mixed_sequence, ERR_TYPE,
        "sequence.construct: Tensor[(2), float32] and Tensor[(2), int64] do not go into one sequence")
{
  CALL("sequence.construct", NULL, SYM(DT_F32, I(2)), SYM(DT_I64, I(2)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(takes),
    cmocka_unit_test(take_has_three_modes),
    cmocka_unit_test(take_by_floats),
    cmocka_unit_test(take_mode),
    cmocka_unit_test(gathers),
    cmocka_unit_test(gather_ranks),
    cmocka_unit_test(gather_nd_too_long),
    cmocka_unit_test(scatters_elements),
    cmocka_unit_test(scatters_nd),
    cmocka_unit_test(scatter_reduction),
    cmocka_unit_test(scatter_shapes),
    cmocka_unit_test(scatter_nd_shapes),
    cmocka_unit_test(unpools),
    cmocka_unit_test(one_hots),
    cmocka_unit_test(small_ones),
    cmocka_unit_test(ngrams),
    cmocka_unit_test(ngrams_of_nothing),
    cmocka_unit_test(ngrams_skips),
    cmocka_unit_test(sequence_mask_axis),
    cmocka_unit_test(finds_where),
    cmocka_unit_test(compresses),
    cmocka_unit_test(compress_by_numbers),
    cmocka_unit_test(finds_unique),
    cmocka_unit_test(finds_unique_slices),
    cmocka_unit_test(evaluates_sizes),
    cmocka_unit_test(evaluates_run_time_shapes),
    cmocka_unit_test(sequences),
    cmocka_unit_test(splits_to_sequences),
    cmocka_unit_test(sequence_types),
    cmocka_unit_test(optionals),
    cmocka_unit_test(get_of_none),
    cmocka_unit_test(at_outside),
    cmocka_unit_test(mixed_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
