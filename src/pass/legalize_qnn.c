/* legalize_qnn.c: LegalizeQnn: quantized tensors take the sign that the target's dot products want, and channels come
 * in whole words.
 *   needs   types
 *   keeps   types of parameters and results
 *   breaks  nothing
 *
 * Instructions that multiply bytes take signed data (AArch64) or unsigned data (x86) beside a signed weight.  uint8
 * with zero point z and int8 with zero point z - 128 are the same numbers, so a tensor of the wrong sign is made with
 * the other: by the operator that makes it, where that is one of qnn, or whatever moves elements behind such a one;
 * else by flipping the top bit of each element.
 *
 * A convolution over a number of input channels that four does not divide (a network's first) gets zeros as further
 * channels, or zero points where the weight has one: a word of four is what an instruction takes. */
#include "op/qnn.h"
#include "pass/passes.h"
#include "pass/tools.h"

enum { WORD = 4 }; /* bytes that are multiplied at once */

typedef struct Turn {
  Module *m;
  Arena *arena;
  Map twin; /* node -> the same with the other sign */
  DType want;
} Turn;

#define PRODUCTS "qnn.conv2d,qnn.dense,qnn.batch_matmul"
#define SUMS "qnn.add,qnn.subtract,qnn.mul"
/* what makes a tensor whose zero point is the last argument, from one of its first dtype */
#define UNARY                                                                                              \
  "qnn.avg_pool2d,qnn.sigmoid,qnn.tanh,qnn.exp,qnn.sqrt,qnn.rsqrt,qnn.erf,qnn.abs,qnn.log,qnn.leaky_relu," \
  "qnn.hardswish,qnn.softmax"
#define MOVES                                                                                                  \
  "reshape,dyn.reshape,squeeze,expand_dims,nn.batch_flatten,strided_slice,nn.max_pool2d,nn.global_max_pool2d," \
  "nn.depth_to_space,nn.space_to_depth,transpose,copy,repeat,tile"

static bool is_wrong(const Turn *t, const Node *n)
{
  DType d = n->type->kind == TY_TENSOR ? n->type->dtype : DT_NONE;
  return dtype_is_int(d) && d.bits == 8 && d.code != t->want.code;
}

/* A zero point of the other sign. */
static const Node *moved_zero(Turn *t, const Node *zero)
{
  return qnn_arith(t->m, t->want.code == DT_INT ? "subtract" : "add", zero, op_number(t->m, DT_I32, 128));
}

static const Node *flipped(Turn *t, const Node *n)
{
  Module *m = t->m;
  DType from = n->type->dtype;
  const Node *top = node_scalar(m, value_int(from, from.code == DT_INT ? -128 : 128));
  const OpDef *op = opdef_get(m->ctx, "reinterpret");
  void *a = attrs_new(m, op->attrs);
  attrs_set_dtype(m, op->attrs, a, "dtype", t->want);
  return op_call1(m, op, make2(m, "bitwise_xor", n, top), a);
}

static const Node *twin_of(Turn *t, const Node *n);

/* The call with some arguments in other form, and another out_dtype where it has one. */
static const Node *call_with(Turn *t, const Node *n, const Node *const *arg)
{
  void *a = n->u.call.op->attrs ? call_attrs(t->m, n) : NULL;
  if (a && call_has(n, "out_dtype") && is_call_of(n, "qnn.quantize,qnn.requantize"))
    attrs_set_dtype(t->m, n->u.call.op->attrs, a, "out_dtype", t->want);
  return node_call(t->m, n->u.call.op, n->nargs, arg, a, n->name);
}

static const Node *make_twin(Turn *t, const Node *n)
{
  if (n->kind != N_CALL) return flipped(t, n);
  const Node *arg[8];
  if (n->nargs > 8) return flipped(t, n);
  for (int i = 0; i < n->nargs; i++) arg[i] = n->arg[i];
  int last = n->nargs - 1;
  if (is_call_of(n, "qnn.quantize,qnn.requantize")) {
    arg[last] = moved_zero(t, arg[last]);
    return call_with(t, n, arg);
  }
  if (is_call_of(n, UNARY)) {
    arg[0] = twin_of(t, arg[0]);
    arg[2] = moved_zero(t, arg[2]);
    arg[last] = moved_zero(t, arg[last]);
    return call_with(t, n, arg);
  }
  if (is_call_of(n, SUMS)) {
    for (int i = 0; i < 2; i++) arg[i] = twin_of(t, arg[i]);
    for (int i = 3; i < 8; i += 2) arg[i] = moved_zero(t, arg[i]);
    return call_with(t, n, arg);
  }
  if (is_call_of(n, MOVES)) {
    arg[0] = twin_of(t, arg[0]);
    return call_with(t, n, arg);
  }
  return flipped(t, n);
}

static const Node *twin_of(Turn *t, const Node *n)
{
  if (!is_wrong(t, n)) return n;
  const Node *y = map_get(&t->twin, n);
  if (!y) {
    y = make_twin(t, n);
    map_put(t->arena, &t->twin, n, (void *)(uintptr_t)y);
  }
  return y;
}

/* Zeros behind the last element of an axis. */
static const Node *padded(Turn *t, const Node *x, int axis, int64_t more, const Node *value)
{
  Module *m = t->m;
  int64_t width[2 * MAX_RANK] = {0};
  width[2 * axis + 1] = more;
  PadAttrs *a = attrs_new(m, &Pad_attrs);
  attrs_set_ints(m, &Pad_attrs, a, "pad_width", 2 * x->type->ndim, width);
  return make_call(m, "nn.pad", 2, (const Node *[]){x, qnn_cast(m, value, x->type->dtype)}, a);
}

static void whole_words(Turn *t, const Node *n, const Node **arg)
{
  /* a weight with a zero point: products of nothing are those of both zero points */
  bool centred = qnn_all(arg[3], 0);
  if (!is_call(n, "qnn.conv2d") || call_int(n, "groups") != 1 || (!centred && arg[3]->type->ndim)) return;
  int c = letter_at(call_str(n, "data_layout"), 'C');
  int i = letter_at(call_str(n, "kernel_layout"), 'I');
  int64_t channels = dim_of(arg[0], c);
  if (channels < 1 || channels % WORD == 0) return;
  int64_t more = WORD - channels % WORD;
  const Node *zero = op_number(t->m, DT_I32, 0);
  arg[0] = padded(t, arg[0], c, more, centred ? zero : qnn_along(t->m, arg[2], 0, 1));
  arg[1] = padded(t, arg[1], i, more, centred ? zero : qnn_along(t->m, arg[3], 0, 1));
}

static const Node *turn(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  Turn *t = rw->env;
  if (now->kind != N_CALL || !now->type) return now;
  const Node *arg[8];
  if (now->nargs > 8) return now;
  for (int i = 0; i < now->nargs; i++) arg[i] = now->arg[i];
  if (is_call_of(now, PRODUCTS)) {
    if (is_wrong(t, arg[0])) {
      arg[0] = twin_of(t, arg[0]);
      arg[2] = moved_zero(t, arg[2]);
    }
    whole_words(t, now, arg);
    return node_call(t->m, now->u.call.op, now->nargs, arg, now->u.call.attrs, now->name);
  }
  /* others read what is there anyway */
  if (is_call(now, "qnn.dequantize") && map_get(&t->twin, arg[0])) {
    arg[0] = twin_of(t, arg[0]);
    arg[2] = moved_zero(t, arg[2]);
    return node_call(t->m, now->u.call.op, now->nargs, arg, now->u.call.attrs, now->name);
  }
  return now;
}

const Node *pass_legalize_qnn(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  DotElement data;
  if (is_primitive(f) || !target_dot_data(pass_target(pc), &data)) return f;
  Turn t = {.m = m, .arena = scratch(pc->ctx), .want = data == DOT_S8 ? DT_I8 : DT_U8};
  return rewrite(m, f, turn, &t);
}
