/* dynamic_to_static.c: DynamicToStatic: operands that say sizes or positions and are known
 * become attributes: dyn.reshape(x, [2, n]) -> reshape(x, newshape=[2, n]).
 *   needs   types
 *   keeps   types
 *   breaks  nothing
 *
 * Known means: the elements are literals, or (where the output's shape is what the operand says) sizes
 * with a name of their own. */
#include "pass/passes.h"
#include "pass/tools.h"

/* One row: operator, its static form, and up to three operands with the attribute each becomes.  An
 * attribute "=" is the output's shape. */
typedef struct Form {
  const char *dynamic, *fixed;
  struct {
    int operand;
    const char *attr;
    bool shape;
  } part[3];
} Form;

/* clang-format off */
static const Form forms[] = {
    {"dyn.reshape", "reshape", {{1, "newshape", true}}},
    {"dyn.squeeze", "reshape", {{1, "newshape", true}}},
    {"dyn.expand_dims", "reshape", {{1, "newshape", true}}},
    {"dyn.broadcast_to", "broadcast_to", {{1, "shape", true}}},
    {"dyn.zeros", "zeros", {{0, "shape", true}}},
    {"dyn.ones", "ones", {{0, "shape", true}}},
    {"dyn.full", "full", {{1, "shape", true}}},
    {"dyn.tile", "tile", {{1, "reps", false}}},
    {"dyn.one_hot", "one_hot", {{3, "depth", false}}},
    {"dyn.nn.pad", "nn.pad", {{1, "pad_width", false}}},
    {"dyn.strided_slice", "strided_slice", {{1, "begin", false}, {2, "end", false}, {3, "strides", false}}},
    {"dyn.topk", "topk", {{1, "k", false}}},
    {"dyn.image.resize1d", "image.resize1d", {{1, "size", false}}},
    {"dyn.image.resize2d", "image.resize2d", {{1, "size", false}}},
    {"dyn.image.resize3d", "image.resize3d", {{1, "size", false}}},
};
/* clang-format on */
enum { NFORMS = sizeof forms / sizeof *forms };

static const Form *form_of(const Node *n)
{
  for (int i = 0; n->kind == N_CALL && i < NFORMS; i++)
    if (is_call(n, forms[i].dynamic)) return &forms[i];
  return NULL;
}

/* Fields of the same name and kind. */
static void copy_common(const AttrsDef *to, void *dst, const AttrsDef *from, const void *src)
{
  for (int i = 0; from && to && i < from->n; i++) {
    const AttrField *f = &from->field[i];
    const AttrField *t = attrs_field(to, f->name);
    static const size_t sizes[] = {
      [AT_BOOL] = sizeof(bool),     [AT_INT] = sizeof(int64_t),   [AT_F64] = sizeof(double),
      [AT_STR] = sizeof(char *),    [AT_DTYPE] = sizeof(DType),   [AT_INTS] = sizeof(AttrInts),
      [AT_F64S] = sizeof(AttrF64s), [AT_STRS] = sizeof(AttrStrs), [AT_DIMS] = sizeof(AttrDims)};
    if (t && t->kind == f->kind) memcpy((char *)dst + t->offset, (const char *)src + f->offset, sizes[f->kind]);
  }
}

static bool stable(const Type *ty)
{
  if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0) return false;
  for (int i = 0; i < ty->ndim; i++)
    if (!type_dim_is_stable(ty->shape[i]) || expr_is_int(ty->shape[i], 0)) return false;
  return true;
}

static bool literals(Module *m, const Node *n, int *count, int64_t **out)
{
  const Expr *const *v = dtype_is_int(n->type->dtype) ? graph_values(m, n, count) : NULL;
  if (!v) return false;
  *out = arena_array(scratch(m->ctx), int64_t, *count + 1);
  for (int i = 0; i < *count; i++) {
    if (v[i]->kind != E_INT) return false;
    (*out)[i] = v[i]->u.i;
  }
  return true;
}

/* False: the operand is not known, or the attribute cannot hold it. */
static bool set_part(Module *m, const Node *n, const AttrsDef *def, void *attrs, int operand, const char *name,
                     bool shape)
{
  const AttrField *f = attrs_field(def, name);
  int count;
  int64_t *v;
  if (!f || operand >= n->nargs) return f != NULL && operand > 1; /* an optional operand that was left out */
  if (shape) {
    if (!stable(n->type)) return false;
    attrs_set_dims(m, def, attrs, name, n->type->ndim, n->type->shape);
    return true;
  }
  if (!literals(m, n->arg[operand], &count, &v)) return false;
  if (f->kind == AT_INTS) attrs_set_ints(m, def, attrs, name, count, v);
  else if (f->kind == AT_INT && count == 1) attrs_set_int(m, def, attrs, name, v[0]);
  else return false;
  return true;
}

static const Node *make_static(GraphRewriter *rw, const Node *old, const Node *now)
{
  const Form *form = form_of(now);
  (void)old;
  if (!form || !now->type) return now;
  const OpDef *op = opdef_find(form->fixed);
  if (!op || !op->attrs) return now;
  Module *m = rw->m;
  void *attrs = attrs_new(m, op->attrs);
  copy_common(op->attrs, attrs, now->u.call.op->attrs, now->u.call.attrs);
  bool gone[8] = {0};
  for (int i = 0; i < 3 && form->part[i].attr; i++) {
    if (!set_part(m, now, op->attrs, attrs, form->part[i].operand, form->part[i].attr, form->part[i].shape)) return now;
    gone[form->part[i].operand] = true;
  }
  const Node *arg[8];
  int n = 0;
  for (int i = 0; i < now->nargs && i < 8; i++)
    if (!gone[i]) arg[n++] = now->arg[i];
  if (attrs_field(op->attrs, "dtype") && now->type->kind == TY_TENSOR)
    attrs_set_dtype(m, op->attrs, attrs, "dtype", now->type->dtype);
  return node_call(m, op, n, arg, attrs, now->name);
}

const Node *pass_dynamic_to_static(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, make_static, NULL);
}
