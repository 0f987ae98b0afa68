/* compiler.c: where the part of a model begins and ends that an external compiler takes.
 *
 *   annotation.compiler_begin(x; compiler)   x, on its way into a region of that compiler
 *   annotation.compiler_end(x; compiler)     x, which the region gives
 *
 * Both are x itself.  AnnotateTarget puts them in, MergeCompilerRegions takes those between regions of one compiler
 * away, PartitionGraph makes functions of the regions (src/pass/regions.c); what is left over Legalize drops. */
#include "op/op.h"

/* clang-format off */
#define COMPILER_ATTRS(A, S)                                                                      \
  A(S, STR, compiler, NULL, "its name; \"default\" is Lathe itself")
/* clang-format on */
DEFINE_ATTRS(Compiler, COMPILER_ATTRS)

static const Type *compiler_type(OpCall *c) { return c->arg[0]; }

static const RtValue *same_value(OpCall *c, Arena *arena, const RtValue *const *in)
{
  (void)c, (void)arena;
  return in[0];
}

const OpDef op_compiler_begin = {
  .name = "annotation.compiler_begin",
  .doc = "a value on its way into a region of an external compiler",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Compiler_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .narrow = NARROW_FOLLOW,
  .type = compiler_type,
  .eval = same_value,
};

const OpDef op_compiler_end = {
  .name = "annotation.compiler_end",
  .doc = "a value that a region of an external compiler gives",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Compiler_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_HOST | OPF_STRING,
  .narrow = NARROW_FOLLOW,
  .type = compiler_type,
  .eval = same_value,
};
