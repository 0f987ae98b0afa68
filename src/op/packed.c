/* packed.c: functions that a program finds by name when it runs (lathe_rt_register, lathe.register_func).
 *
 *   call_dps_packed(x0, x1, …; func, shape, dtype)
 *       a tensor that the function fills: it is handed the arguments and then the tensor ("destination passing").  The
 *       same arguments give the same result, so calls may be shared and dropped
 *   call_packed(x0, x1, …; func, type)
 *       an object that the function makes: a value of a data type without constructors, `extern type T`.  It may have
 * an
 *       effect: bound by a let it is neither shared nor dropped
 *
 * Arguments are tensors and objects.  Only a compiled model has a registry to ask: the interpreter refuses them. */
#include "op/shape.h"

/* clang-format off */
#define CALL_DPS_PACKED_ATTRS(A, S)                                                               \
  A(S, STR, func, NULL, "what the function is registered as")                                     \
  A(S, DIMS, shape, NULL, "of the tensor that it fills")                                          \
  A(S, DTYPE, dtype, "\"float32\"", "of the tensor that it fills")
#define CALL_PACKED_ATTRS(A, S)                                                                   \
  A(S, STR, func, NULL, "what the function is registered as")                                     \
  A(S, STR, type, NULL, "the data type of the object that it gives")
/* clang-format on */
DEFINE_ATTRS(CallDpsPacked, CALL_DPS_PACKED_ATTRS)
DEFINE_ATTRS(CallPacked, CALL_PACKED_ATTRS)

static void check_call(OpCall *c, const char *name)
{
  if (!name || !*name) opdef_raise(c, ERR_ARGUMENT, "func is not given: what the function is registered as");
  for (int i = 0; i < c->nargs; i++)
    if (c->arg[i]->kind != TY_TENSOR && c->arg[i]->kind != TY_DATA)
      opdef_raise(c, ERR_TYPE, "argument %d is %s; tensors and objects can be handed over", i, op_arg_text(c, i));
}

static const Type *call_dps_packed_type(OpCall *c)
{
  const CallDpsPackedAttrs *a = c->attrs;
  check_call(c, a->func);
  for (int i = 0; i < a->shape.n; i++)
    if (a->shape.v[i]->kind == E_INT && a->shape.v[i]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "dimension %d is %" PRId64 "; a dimension is not negative", i, a->shape.v[i]->u.i);
  return type_tensor(c->m, a->dtype, a->shape.n, a->shape.v);
}

static const Type *call_packed_type(OpCall *c)
{
  const CallPackedAttrs *a = c->attrs;
  check_call(c, a->func);
  const DataDef *data = a->type ? graph_data(c->m, a->type) : NULL;
  if (!data) opdef_raise(c, ERR_TYPE, "there is no data type '%s'; 'extern type' declares one", a->type);
  if (data->nctor || data->nparam)
    opdef_raise(c, ERR_TYPE, "'%s' has constructors or parameters; 'extern type' declares the type of objects",
                data->name);
  return type_data(c->m, data, 0, NULL);
}

static const RtValue *no_eval(OpCall *c, Arena *arena, const RtValue *const *in)
{
  (void)arena, (void)in;
  opdef_raise(c, ERR_UNSUPPORTED, "the interpreter has no packed functions; compile the model");
}

const OpDef op_call_dps_packed = {
  .name = "call_dps_packed",
  .doc = "a tensor that a function, which the running program finds by its name, fills from the arguments",
  .args = "args",
  .min_args = 0,
  .max_args = -1,
  .attrs = &CallDpsPacked_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .narrow = NARROW_NEVER,
  .type = call_dps_packed_type,
  .eval = no_eval,
};

const OpDef op_call_packed = {
  .name = "call_packed",
  .doc = "an object that a function, which the running program finds by its name, makes of the arguments",
  .args = "args",
  .min_args = 0,
  .max_args = -1,
  .attrs = &CallPacked_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING | OPF_IMPURE,
  .narrow = NARROW_NEVER,
  .type = call_packed_type,
  .eval = no_eval,
};
