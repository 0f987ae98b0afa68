/* host.c: operators that the executor does itself, by name: src/op/sequence.c defines them,
 * runtime/builtins.c does them. */
#include "driver/host.h"

typedef struct HostRow {
  const char *name;
  int nargs;                 /* -1: any number */
  HostOp op;
  const char *attr[2];       /* names of integer attributes, in order */
} HostRow;

static const HostRow rows[] = {
    {"sequence.empty", 0, HO_LIST, {NULL}},
    {"sequence.construct", -1, HO_LIST, {NULL}},
    {"sequence.insert", 3, HO_INSERT, {NULL}},
    {"sequence.insert", 2, HO_APPEND, {NULL}},
    {"sequence.erase", 2, HO_ERASE, {NULL}},
    {"sequence.erase", 1, HO_ERASE_LAST, {NULL}},
    {"sequence.at", 2, HO_AT, {NULL}},
    {"sequence.length", 1, HO_LENGTH, {NULL}},
    {"sequence.concat", 1, HO_CONCAT, {"axis", "new_axis"}},
    {"sequence.split", -1, HO_SPLIT, {"axis", "keepdims"}},
    {"optional.make", -1, HO_LIST, {NULL}},
    {"optional.has_element", -1, HO_HAS, {NULL}},
    {"optional.get_element", 1, HO_GET, {NULL}},
};

static int64_t int_attr(Ctx *ctx, const Node *call, const char *name)
{
  const AttrField *f = call->u.call.op->attrs ? attrs_field(call->u.call.op->attrs, name) : NULL;
  const char *at = (const char *)call->u.call.attrs;
  if (f && f->kind == AT_BOOL) return *(const bool *)(at + f->offset);
  if (f && f->kind == AT_INT) return *(const int64_t *)(at + f->offset);
  BUG(ctx, "operator '%s' has no integer attribute '%s'", call->u.call.op->name, name);
}

HostCall host_call(Ctx *ctx, const Node *call)
{
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const HostRow *r = &rows[i];
    if (strcmp(r->name, call->u.call.op->name) || (r->nargs >= 0 && r->nargs != call->nargs)) continue;
    HostCall out = {.op = r->op, .nargs = call->nargs, .arg = call->arg};
    for (int k = 0; k < 2 && r->attr[k]; k++) out.attr[out.nattr++] = int_attr(ctx, call, r->attr[k]);
    /* A tensor or a sequence is what it is: only of an optional must be asked at run time. */
    if (r->op == HO_HAS || r->op == HO_GET) out.attr[out.nattr++] = call->nargs && call->arg[0]->type->kind == TY_OPT;
    return out;
  }
  raise(ctx, ERR_UNSUPPORTED, NOWHERE, "operator '%s' with %d arguments cannot run in a compiled model: the executor does not know it",
        call->u.call.op->name, call->nargs);
}
