/* api_userop.c: operators that a user adds, from C or from Python.
 *
 * In: a name, arguments, attributes, and two functions: the type rule and the compute.  Out: an
 * OpDef like any other: inferred, folded, fused and compiled.
 *
 * The functions speak LatheValues.
 *   type:    [[dtype, dims], …] of the arguments (dims: ints and expressions; one named ?
 *            is any size) and the attributes as [[name, value], …]; answers [dtype, dims] (none
 *            for a size that nothing tells), or a list of those for several outputs.
 *   compute: the same; answers [[placeholder, …], [output, …]]: te tensors, one placeholder
 *            for each argument with the shape it was told, and what is computed from them.
 * They return 0, or -1 when they failed: then the call under way fails with ERR_CALLBACK.
 * What they answer must stay valid until they are called again. */
#include "api/api.h"

typedef int32_t (*UserFn)(void *user, int32_t n, const LatheValue *args, LatheValue *answer);

typedef struct UserOp {
  OpDef def; /* first, so that an OpCall's op leads here */
  AttrsDef attrs;
  UserFn type, compute;
  void *user;
  LatheContext *context; /* which added it, and alone can use it */
  struct UserOp *next;
} UserOp;

static const UserOp *user_op(const OpCall *c) { return (const UserOp *)c->op; }

/* ---- asking the user's function ----------------------------------------------------------- */

static LatheValue val_tensor_type(Call *c, OpCall *oc, const Type *t)
{
  LatheValue row;
  LatheValue *v = api_val_list(c, 2, &row);
  if (t->kind != TY_TENSOR || t->ndim < 0)
    opdef_raise(oc, ERR_TYPE, "its arguments are tensors of known rank, not %s", type_text(scratch(c->ctx), t));
  v[0] = api_val_dtype(c, t->dtype);
  LatheValue *d = api_val_list(c, t->ndim, &v[1]);
  for (int i = 0; i < t->ndim; i++)
    d[i] = t->shape[i]->kind == E_INT ? api_val_int(t->shape[i]->u.i) : api_val_expr(c, oc->m, t->shape[i]);
  return row;
}

/* The answer of fn, whose objects live while `call`'s scope does. */
static LatheValue ask(Call *call, OpCall *oc, UserFn fn)
{
  if (oc->m->ctx != user_op(oc)->context->ctx)
    opdef_raise(oc, ERR_UNSUPPORTED, "it was added in another context, and can be used in that one alone");
  LatheValue args[2];
  LatheValue answer = {0};
  LatheValue *types = api_val_list(call, oc->nargs, &args[0]);
  for (int i = 0; i < oc->nargs; i++) types[i] = val_tensor_type(call, oc, oc->arg[i]);
  args[1] = api_val_attrs(call, oc->m, oc->op->attrs, oc->attrs);
  if (fn(user_op(oc)->user, 2, args, &answer) < 0)
    raise(oc->m->ctx, ERR_CALLBACK, NOWHERE, "operator '%s': its function failed", oc->op->name);
  return answer;
}

static Call make_call(OpCall *oc, LatheValue *out)
{
  static const ApiFunction function = {.name = "user operator"};
  return (Call){
    .context = user_op(oc)->context, .ctx = oc->m->ctx, .name = "user operator", .function = &function, .out = out};
}

/* An importer from the user's world in which sizes that came from the call's module are
 * those sizes again. */
static Importer back_importer(OpCall *oc)
{
  Importer im = {.dst = oc->m, .arena = scratch(oc->m->ctx)};
  for (const World *w = user_op(oc)->context->world; w; w = w->older)
    for (int i = 0; i < w->imports.n; i++) {
      if (w->imports.v[i].from != oc->m) continue;
      const Map *sent = &w->imports.v[i].importer->var;
      for (int k = 0; k < sent->n; k++)
        if (sent->key[k]) map_put(im.arena, &im.var, sent->val[k], (void *)(uintptr_t)sent->key[k]);
    }
  return im;
}

/* ---- type rule ---------------------------------------------------------------------------------- */

static const Type *read_type(Call *c, OpCall *oc, Importer *im, const LatheValue *v)
{
  const LatheValue *dims = &v->u.list[1];
  const Expr **shape = arena_array(oc->m->arena, const Expr *, dims->n);
  for (int64_t i = 0; i < dims->n; i++) {
    const LatheValue *d = &dims->u.list[i];
    const Handle *h = d->tag == LATHE_OBJECT ? d->u.p : NULL;
    if (d->tag == LATHE_INT && d->u.i < 0)
      opdef_raise(oc, ERR_SHAPE, "its type function gives dimension %d as %lld", (int)i, (long long)d->u.i);
    if (d->tag == LATHE_NONE) shape[i] = type_dim_any(oc->m);
    else if (!h || h->m == oc->m) shape[i] = api_value_expr(c, oc->m, d);
    else shape[i] = expr_import(im, h->kind == LATHE_VAR ? var_expr(h->p) : h->p);
  }
  return type_tensor(oc->m, api_value_dtype(c, &v->u.list[0]), (int)dims->n, shape);
}

static const Type *user_type(OpCall *oc)
{
  Ctx *ctx = oc->m->ctx;
  LatheValue none = {0};
  Call call = make_call(oc, &none);
  Scope s = scope_begin(ctx);
  LatheValue answer = ask(&call, oc, user_op(oc)->type);
  api_check_value(&call, &answer, "[str, list[int|expr?]]|list[[str, list[int|expr?]]]",
                  "the answer of an operator's type function");
  Importer im = back_importer(oc);
  const Type *t;
  if (answer.tag == LATHE_LIST && answer.n && answer.u.list[0].tag == LATHE_LIST) {
    const Type **field = arena_array(oc->m->arena, const Type *, answer.n);
    for (int64_t i = 0; i < answer.n; i++) field[i] = read_type(&call, oc, &im, &answer.u.list[i]);
    t = type_tuple(oc->m, (int)answer.n, field);
  } else {
    t = read_type(&call, oc, &im, &answer);
  }
  scope_end(ctx, s);
  return t;
}

/* ---- compute --------------------------------------------------------------------------------------- */

/* Sizes of the placeholder stand for those of the argument. */
static void bind_sizes(OpCall *oc, Importer *im, const Tensor *p, const Tensor *in, int i)
{
  if (p->buffer->ndim != in->buffer->ndim)
    opdef_raise(oc, ERR_SHAPE, "its compute gives placeholder %d %d dimensions, the argument has %d", i,
                p->buffer->ndim, in->buffer->ndim);
  for (int k = 0; k < p->buffer->ndim; k++) {
    const Expr *from = p->buffer->shape[k];
    const Expr *to = in->buffer->shape[k];
    if (from->kind == E_VAR && to->kind == E_VAR)
      map_put(im->arena, &im->var, from->u.var, (void *)(uintptr_t)to->u.var);
  }
  map_put(im->arena, &im->buffer, p->buffer, (void *)(uintptr_t)in->buffer);
}

static const TeOp *import_compute(OpCall *oc, Importer *im, const TeOp *op)
{
  if (op->kind != TE_COMPUTE)
    opdef_raise(oc, ERR_UNSUPPORTED, "its compute uses '%s', which is no te.compute over the placeholders it was told",
                op->name);
  const Expr **shape = arena_array(im->arena, const Expr *, op->naxis);
  const Expr **body = arena_array(im->arena, const Expr *, op->nout);
  const IterVar **axis = arena_array(im->arena, const IterVar *, op->naxis);
  for (int i = 0; i < op->naxis; i++) {
    const IterVar *a = op->axis[i];
    shape[i] = expr_import(im, op->out[0].buffer->shape[i]);
    axis[i] =
        itervar_new(oc->m, var_import(im, a->var), expr_import(im, a->min), expr_import(im, a->extent), a->kind, NULL);
  }
  for (int i = 0; i < op->nout; i++) body[i] = expr_import(im, op->body[i]);
  const TeOp *to = te_compute(oc->m, op->name, op->tag, op->naxis, shape, axis, op->nout, body, NULL);
  for (int i = 0; i < op->nout; i++)
    map_put(im->arena, &im->buffer, op->out[i].buffer, (void *)(uintptr_t)to->out[i].buffer);
  return to;
}

static void check_output(OpCall *oc, int i, const Tensor *t)
{
  const Type *want = oc->out->kind == TY_TUPLE ? oc->out->field[i] : oc->out;
  const Buffer *b = t->buffer;
  bool same = b->ndim == want->ndim && dtype_eq(b->dtype, want->dtype);
  for (int k = 0; same && k < b->ndim; k++)
    same = b->shape[k]->kind != E_INT || want->shape[k]->kind != E_INT || b->shape[k]->u.i == want->shape[k]->u.i;
  if (same) return;
  const Type *have = type_tensor(oc->m, b->dtype, b->ndim, b->shape);
  opdef_raise(oc, ERR_SHAPE, "its compute gives %s as output %d, its type function says %s",
              type_text(oc->m->arena, have), i, type_text(oc->m->arena, want));
}

static void user_compute(OpCall *oc, const Tensor *const *in, const Tensor **out)
{
  Ctx *ctx = oc->m->ctx;
  LatheValue none = {0};
  Call call = make_call(oc, &none);
  Scope s = scope_begin(ctx);
  LatheValue answer = ask(&call, oc, user_op(oc)->compute);
  api_check_value(&call, &answer, "[list[tensor], list[tensor]]", "the answer of an operator's compute");
  int nout = oc->out->kind == TY_TUPLE ? oc->out->nfield : 1;
  if (answer.u.list[0].n != oc->nargs || answer.u.list[1].n != nout)
    opdef_raise(oc, ERR_TYPE, "its compute answers [placeholders, outputs]: %d and %d of them", oc->nargs, nout);
  Importer im = back_importer(oc);
  const Tensor **outputs = arena_array(im.arena, const Tensor *, nout);
  for (int i = 0; i < oc->nargs; i++) bind_sizes(oc, &im, api_value_ptr(&answer.u.list[0].u.list[i]), in[i], i);
  for (int i = 0; i < nout; i++) outputs[i] = api_value_ptr(&answer.u.list[1].u.list[i]);
  const TeOp **ops;
  int n = te_post_order(im.arena, nout, outputs, &ops);
  for (int i = 0; i < n; i++)
    if (!map_has(&im.buffer, ops[i]->out[0].buffer)) import_compute(oc, &im, ops[i]);
  for (int i = 0; i < nout; i++) {
    out[i] = te_tensor_of(map_get(&im.buffer, outputs[i]->buffer));
    check_output(oc, i, out[i]);
  }
  scope_end(ctx, s);
}

/* ---- registering ------------------------------------------------------------------------------------- */

static AttrKind attr_kind(Call *c, const char *name)
{
  static const char *const names[] = {"bool",      "int",         "float",     "str",      "dtype",
                                      "list[int]", "list[float]", "list[str]", "list[dim]"};
  for (int i = 0; name && i < 9; i++)
    if (!strcmp(names[i], name)) return (AttrKind)i;
  raise(c->ctx, ERR_ARGUMENT, NOWHERE,
        "an attribute's type is bool, int, float, str, dtype, list[int], list[float], list[str] or list[dim], not '%s'",
        name ? name : "none");
}

/* Fields of 24 bytes each hold any kind. */
static void read_fields(Call *c, Arena *a, int i, UserOp *op)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  AttrField *field = arena_array(a, AttrField, n);
  for (int k = 0; k < n; k++) {
    if (v[k].n < 2) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "an attribute is a list of name, type, default and doc");
    const char *text[4] = {NULL};
    for (int64_t j = 0; j < v[k].n && j < 4; j++) text[j] = api_value_text(c, &v[k].u.list[j]);
    field[k] = (AttrField){arena_strdup(a, text[0] ? text[0] : ""), attr_kind(c, text[1]), (size_t)k * 24,
                           text[2] ? arena_strdup(a, text[2]) : NULL, arena_strdup(a, text[3] ? text[3] : "")};
  }
  op->attrs = (AttrsDef){arena_printf(a, "%s attributes", op->def.name), (size_t)n * 24 + 8, field, n};
  if (n) op->def.attrs = &op->attrs;
}

static void register_op(Call *c)
{
  op_init();
  Arena *a = ctx_arena(c->ctx); /* an operator stays for the life of the context */
  UserOp *op = arena_new_of(a, UserOp);
  op->def.name = arena_strdup(a, api_arg_str(c, 0));
  op->def.doc = arena_strdup(a, api_arg_str(c, 1));
  op->def.args = arena_strdup(a, api_arg_str(c, 2));
  op->def.min_args = api_arg_int32(c, 3, 0, 1000);
  op->def.max_args = op->def.min_args;
  int fuse = api_arg_int32(c, 4, 0, 8);
  if (fuse == 5 || fuse == 6) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a fusion kind is 0 to 4, 7 or 8, not %d", fuse);
  op->def.fuse = (FuseKind)fuse;
  read_fields(c, a, 5, op);
  op->type = (UserFn)(intptr_t)api_arg_int(c, 6);
  op->compute = (UserFn)(intptr_t)api_arg_int(c, 7);
  op->user = (void *)(intptr_t)api_arg_int(c, 8);
  op->context = c->context;
  op->def.type = user_type;
  op->def.compute = user_compute;
  opdef_register(c->ctx, &op->def);
  op->next = c->context->operators;
  c->context->operators = op;
}

void api_drop_operators(LatheContext *c)
{
  for (UserOp *op = c->operators; op; op = op->next) opdef_unregister(&op->def);
  c->operators = NULL;
}

const ApiFunction api_userop_functions[] = {
  {"op_register",
   "name: str, doc: str, args: str, nargs: int, fuse: int, attrs: list[list[str?]], type: function, compute: function, "
   "user: int? -> none",
   "adds an operator; type and compute are addresses of functions (src/api/api_userop.c says what they are given)",
   register_op},
  {0},
};
