/* list.c: the built-in operators, from ops.def. */
#include "op/op.h"

#define OP(def) extern const OpDef def;
#include "op/ops.def"
#undef OP

static const OpDef *const list[] = {
#define OP(def) &def,
#include "op/ops.def"
#undef OP
};

void op_init(void) { opdef_install(list, (int)(sizeof list / sizeof *list)); }
