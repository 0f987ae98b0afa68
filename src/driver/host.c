/* host.c: operators that the executor does itself, by name: src/op/sequence.c and strings.c define
 * them, runtime/builtins.c and strings.c do them. */
#include "driver/host.h"

typedef struct HostRow {
  const char *name;
  int nargs; /* -1: any number */
  HostOp op;
  const char *attr[2]; /* names of integer attributes, in order */
} HostRow;

/* clang-format off */
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
    {"strings.concat", 2, HO_TEXT_CONCAT, {NULL}},
    {"strings.lower", 1, HO_LETTERS, {NULL}},
    {"strings.upper", 1, HO_LETTERS, {NULL}},
    {"strings.split", 1, HO_TEXT_SPLIT, {"maxsplit"}},
    {"strings.full_match", 1, HO_MATCH, {NULL}},
    {"strings.format", 1, HO_PRINT, {NULL}},
    {"strings.parse", 1, HO_PARSE, {NULL}},
};
/* clang-format on */

static int64_t int_attr(Ctx *ctx, const Node *call, const char *name)
{
  const AttrField *f = call->u.call.op->attrs ? attrs_field(call->u.call.op->attrs, name) : NULL;
  const char *at = (const char *)call->u.call.attrs;
  if (f && f->kind == AT_BOOL) return *(const bool *)(at + f->offset);
  if (f && f->kind == AT_INT) return *(const int64_t *)(at + f->offset);
  BUG(ctx, "operator '%s' has no integer attribute '%s'", call->u.call.op->name, name);
}

static const char *str_attr(const Node *call, const char *name)
{
  const char *v =
      *(const char *const *)((const char *)call->u.call.attrs + attrs_field(call->u.call.op->attrs, name)->offset);
  return v ? v : "";
}

const char *emit_packed_name(const Node *call, bool *fills)
{
  *fills = !strcmp(call->u.call.op->name, "call_dps_packed");
  return *fills || !strcmp(call->u.call.op->name, "call_packed") ? str_attr(call, "func") : NULL;
}

/* What the executor is told as a constant: a table of letters, a separator, a pattern's program. */
static const Node *told_constant(Module *m, const Node *call, HostOp op)
{
  if (op == HO_LETTERS) {
    int rows;
    const int32_t *table = strings_case_table(!strcmp(call->u.call.op->name, "strings.upper"), &rows);
    return node_const_copy(m, DT_I32, 2, (int64_t[]){rows, 4}, table);
  }
  if (op == HO_TEXT_SPLIT) {
    const char *by = str_attr(call, "delimiter");
    uint64_t number = ctx_string(m->ctx, by, strlen(by));
    return node_const_copy(m, DT_STRING, 0, NULL, &number);
  }
  if (op != HO_MATCH) return NULL;
  int n;
  const int32_t *code = strings_pattern(m->ctx, m->arena, str_attr(call, "pattern"), &n);
  return node_const_copy(m, DT_I32, 1, (int64_t[]){n}, code);
}

HostCall emit_host_call(Module *m, const Node *call)
{
  Ctx *ctx = m->ctx;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const HostRow *r = &rows[i];
    if (strcmp(r->name, call->u.call.op->name) || (r->nargs >= 0 && r->nargs != call->nargs)) continue;
    HostCall out = {.op = r->op, .nargs = call->nargs, .arg = call->arg, .more = told_constant(m, call, r->op)};
    for (int k = 0; k < 2 && r->attr[k]; k++) out.attr[out.nattr++] = int_attr(ctx, call, r->attr[k]);
    /* A tensor or a sequence is what it is: only of an optional must be asked at run time. */
    if (r->op == HO_HAS || r->op == HO_GET) out.attr[out.nattr++] = call->nargs && call->arg[0]->type->kind == TY_OPT;
    if (r->op == HO_PARSE)
      out.attr[out.nattr++] = dtype_is_int(call->type->dtype) ? 0 : call->type->dtype.bits == 64 ? 1 : 2;
    return out;
  }
  raise(ctx, ERR_UNSUPPORTED, NOWHERE,
        "operator '%s' with %d arguments cannot run in a compiled model: the executor does not know it",
        call->u.call.op->name, call->nargs);
}
