/* device.c: where values are.
 *
 *   on_device(x; virtual_device, constrain_result, constrain_body)
 *       x itself.  With constrain_body x is computed on that device, with constrain_result its value is
 *       wanted there; what the two leave open is found by PlanDevices (src/pass/plan_devices.c), which takes these
 *       calls away
 *   device_copy(x; src_virtual_device, dst_virtual_device)
 *       the same elements in memory of the second device
 *
 * A device is named "cpu(0)", "cuda(1)": the targets of a model are numbered in their order, each kind
 * of device from 0. */
#include "op/op.h"
#include "target/target.h"

/* clang-format off */
#define ON_DEVICE_ATTRS(A, S)                                                                     \
  A(S, STR, virtual_device, NULL, "the device, \"cpu(0)\"")                                       \
  A(S, BOOL, constrain_result, "False", "the value is wanted there")                              \
  A(S, BOOL, constrain_body, "True", "it is computed there")
#define DEVICE_COPY_ATTRS(A, S)                                                                   \
  A(S, STR, src_virtual_device, NULL, "where the value is")                                       \
  A(S, STR, dst_virtual_device, NULL, "where it is wanted")
/* clang-format on */
DEFINE_ATTRS(OnDevice, ON_DEVICE_ATTRS)
DEFINE_ATTRS(DeviceCopy, DEVICE_COPY_ATTRS)

static void check_name(OpCall *c, const char *text)
{
  int type, id;
  if (!target_device_parse(text, &type, &id))
    opdef_raise(c, ERR_ARGUMENT, "'%s' is no device; a device is named as in \"cpu(0)\"", text);
}

static const Type *on_device_type(OpCall *c)
{
  const OnDeviceAttrs *a = c->attrs;
  check_name(c, a->virtual_device);
  return c->arg[0];
}

static const Type *device_copy_type(OpCall *c)
{
  const DeviceCopyAttrs *a = c->attrs;
  check_name(c, a->src_virtual_device);
  check_name(c, a->dst_virtual_device);
  return c->arg[0];
}

static const RtValue *same_value(OpCall *c, Arena *arena, const RtValue *const *in)
{
  (void)c, (void)arena;
  return in[0];
}

const OpDef op_on_device = {
  .name = "on_device",
  .doc = "a value that is computed, or wanted, on a device",
  .args = "body",
  .min_args = 1,
  .max_args = 1,
  .attrs = &OnDevice_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING | OPF_PLACE,
  .narrow = NARROW_FOLLOW,
  .type = on_device_type,
  .eval = same_value,
};

const OpDef op_device_copy = {
  .name = "device_copy",
  .doc = "the same elements in memory of another device",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &DeviceCopy_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING | OPF_PLACE,
  .narrow = NARROW_FOLLOW,
  .type = device_copy_type,
  .eval = same_value,
};
