/* kit_names.c: names and what they stand for: values that bodies see, sizes that inputs share, and @main over the
 * model's inputs. */
#include <ctype.h>

#include "frontend/kit.h"

#include <math.h>

/* ---- values ---------------------------------------------------------------------------------- */

/* Integers that the compiler knows, as a constant; NULL if it does not. */
static const Node *known_value(Import *im, const Node *n)
{
  int count = 0;
  if (!n->type || n->type->kind != TY_TENSOR || n->type->ndim < 0 || n->type->ndim > 1 || !dtype_is_int(n->type->dtype))
    return NULL;
  const Expr *const *e = graph_values(im->m, n, &count);
  size_t size = (size_t)dtype_bytes(n->type->dtype);
  char *data = arena_alloc(im->arena, (size_t)count * size + 1);
  for (int i = 0; e && i < count; i++) {
    if (e[i]->kind != E_INT) return NULL;
    value_store(value_int(n->type->dtype, e[i]->u.i), data + (size_t)i * size);
  }
  return e ? node_const_copy(im->m, n->type->dtype, n->type->ndim, (int64_t[]){count}, data) : NULL;
}

/* Dimensions that a parameter's type can say: literals and sizes with a name. */
const Type *kit_param_type(Module *m, const Type *ty)
{
  if (ty->kind == TY_SEQ || ty->kind == TY_OPT) return type_simple(m, ty->kind, kit_param_type(m, ty->field[0]));
  if (ty->kind != TY_TENSOR || ty->ndim < 1) return ty;
  const Expr **dims = arena_array(m->arena, const Expr *, ty->ndim);
  for (int i = 0; i < ty->ndim; i++) {
    const Expr *e = ty->shape[i];
    bool keep = e->kind == E_INT || (e->kind == E_VAR && type_dim_is_stable(e));
    dims[i] = keep ? e : type_dim_any(m);
  }
  return type_tensor(m, ty->dtype, ty->ndim, dims);
}

const Node *kit_frame_capture(Import *im, Frame *f, const Node *outer)
{
  if (outer->kind == N_CONST) return outer;
  for (int i = 0; i < f->captures->list.n; i++)
    if (f->captures->list.v[i].outer == outer) return f->captures->list.v[i].var;
  const Node *known = known_value(im, outer);
  if (known) return known;
  const Node *var = node_var(im->m, outer->name && outer->kind == N_VAR ? outer->name : "captured",
                             kit_param_type(im->m, outer->type));
  vec_push(im->arena, &f->captures->list, (Capture){outer, var});
  return var;
}

const Node *kit_frame_get(Import *im, Frame *f, const char *name)
{
  if (!f) return NULL;
  const Node *n = strmap_get(&f->values, name);
  if (n || f->closed) return n;
  n = kit_frame_get(im, f->outer, name);
  return n && f->captures ? kit_frame_capture(im, f, n) : n;
}

void kit_frame_set(Import *im, Frame *f, const char *name, const Node *n)
{
  strmap_put(im->arena, &f->values, name, (void *)(uintptr_t)n);
}

void kit_define(Import *im, Frame *f, const char *name, const Node *n, const char *node)
{
  if (strmap_get(&f->values, name))
    raise(im->ctx, ERR_ARGUMENT, NOWHERE, "%s: '%s' is defined twice, again by node '%s'", im->format, name, node);
  kit_frame_set(im, f, name, n);
}

/* ---- sizes -------------------------------------------------------------------------------------- */

const char *kit_size_name(Import *im, const char *from)
{
  char *s = arena_strdup(im->arena, *from ? from : "d");
  for (char *p = s; *p; p++)
    if (!isalnum((unsigned char)*p)) *p = '_';
  if (!isalpha((unsigned char)*s) && *s != '_') s = arena_printf(im->arena, "d%s", s);
  const char *name = s;
  for (int i = 1; strmap_get(&im->dim_names, name); i++) name = arena_printf(im->arena, "%s_%d", s, i);
  strmap_put(im->arena, &im->dim_names, name, s);
  return name;
}

static const Expr *literal_dim(Import *im, int64_t v, const char *input, int axis)
{
  if (v < 0)
    raise(im->ctx, ERR_SHAPE, NOWHERE, "%s: dimension %d of input '%s' is %" PRId64 "; a dimension is not negative",
          im->format, axis, input, v);
  return expr_int(im->m, v > INT32_MAX ? DT_I64 : DT_I32, v);
}

static const Expr *declared_dim(Import *im, const SourceDim *d, const char *input, int axis)
{
  if (d->known) return literal_dim(im, d->value, input, axis);
  if (!*d->name)
    return var_new(im->m, kit_size_name(im, arena_printf(im->arena, "%s_%d", input, axis)), DT_I32, VAR_SIZE)->expr;
  const Expr *e = strmap_get(&im->dims, d->name);
  if (!e) {
    e = var_new(im->m, kit_size_name(im, d->name), DT_I32, VAR_SIZE)->expr;
    strmap_put(im->arena, &im->dims, d->name, (void *)(uintptr_t)e);
  }
  return e;
}

/* Tells a symbolic size what it is likely to be; one that is known must lie in the range. */
static void hint_dim(Import *im, const Expr *dim, SizeRange r, const char *input, int axis)
{
  if (!r.most) return;
  if (dim->kind == E_INT && (dim->u.i < r.least || dim->u.i > r.most))
    raise(im->ctx, ERR_ARGUMENT, NOWHERE,
          "%s: dimension %d of input '%s' is %" PRId64 ", which is not in the range %" PRId64 "..%" PRId64, im->format,
          axis, input, dim->u.i, r.least, r.most);
  if (dim->kind == E_VAR) var_set_likely(dim->u.var, (int64_t)(sqrt((double)r.least * (double)r.most) + 0.5));
}

const Type *kit_input_type(Import *im, DType dt, const SourceInput *in, const ShapeBinding *b)
{
  int n = in->ndim >= 0 ? in->ndim : b ? b->ndim : -1;
  const Expr **dims = arena_array(im->arena, const Expr *, n > 0 ? n : 1);
  int64_t total = 1;
  for (int i = 0; i < n; i++) {
    if (b && b->dim[i] >= 0) dims[i] = literal_dim(im, b->dim[i], in->name, i);
    else dims[i] = declared_dim(im, in->ndim >= 0 ? &in->dim[i] : &(SourceDim){.name = ""}, in->name, i);
    if (b && b->range) hint_dim(im, dims[i], b->range[i], in->name, i);
    if (dims[i]->kind == E_INT && dims[i]->u.i && !int_mul(total, dims[i]->u.i, &total))
      raise(im->ctx, ERR_SHAPE, NOWHERE, "%s: the shape of input '%s' has more elements than fit in 64 bits",
            im->format, in->name);
  }
  return type_tensor(im->m, dt, n, dims);
}

/* ---- shape bindings ---------------------------------------------------------------------------- */

static void bind_dims(Import *im, const SourceInput *in, const ShapeBinding *b)
{
  if (in->ndim != b->ndim)
    raise(im->ctx, ERR_ARGUMENT, NOWHERE, "%s: input '%s' has %d dimension%s, the shape given has %d", im->format,
          b->input, in->ndim, in->ndim == 1 ? "" : "s", b->ndim);
  for (int i = 0; i < b->ndim; i++) {
    const SourceDim *d = &in->dim[i];
    if (b->dim[i] < 0) continue;
    if (d->known && d->value != b->dim[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE,
            "%s: dimension %d of input '%s' is %" PRId64 " in the model and cannot be bound to %" PRId64, im->format, i,
            b->input, d->value, b->dim[i]);
    if (!*d->name) continue;
    const Expr *known = strmap_get(&im->dims, d->name);
    const Expr *e = literal_dim(im, b->dim[i], b->input, i);
    if (known && known != e)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "%s: '%s' is bound to %" PRId64 " and, at input '%s', to %" PRId64,
            im->format, d->name, known->u.i, b->input, b->dim[i]);
    strmap_put(im->arena, &im->dims, d->name, (void *)(uintptr_t)e);
  }
}

static const SourceInput *find_input(Import *im, int n, const SourceInput *in, const char *name)
{
  const char **names = arena_array(im->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    names[i] = in[i].name;
    if (!strcmp(names[i], name)) return &in[i];
  }
  raise(im->ctx, ERR_ARGUMENT, NOWHERE, "%s: a shape is given for '%s', which is no input of the model%s", im->format,
        name, str_suggest(im->arena, name, names, n));
}

void kit_bind_shapes(Import *im, int n, const SourceInput *in)
{
  for (int i = 0; i < im->opt->nshapes; i++) {
    const ShapeBinding *b = &im->opt->shape[i];
    const SourceInput *input = find_input(im, n, in, b->input);
    for (int k = 0; k < b->ndim; k++)
      if (b->dim[k] < -1)
        raise(im->ctx, ERR_ARGUMENT, NOWHERE,
              "%s: the shape given for '%s' has %" PRId64 "; -1 leaves a dimension open", im->format, b->input,
              b->dim[k]);
    for (int k = 0; b->range && k < b->ndim; k++)
      if (b->range[k].most && (b->range[k].least < 1 || b->range[k].most < b->range[k].least))
        raise(im->ctx, ERR_ARGUMENT, NOWHERE,
              "%s: the shape given for '%s' has the range %" PRId64 "..%" PRId64
              "; a range goes from one size, 1 or more, to another that is not less",
              im->format, b->input, b->range[k].least, b->range[k].most);
    if (input->ndim >= 0) bind_dims(im, input, b);
  }
}

const ShapeBinding *kit_binding_of(Import *im, const char *input)
{
  for (int i = 0; i < im->opt->nshapes; i++)
    if (!strcmp(im->opt->shape[i].input, input)) return &im->opt->shape[i];
  return NULL;
}

/* ---- weights as parameters, @main --------------------------------------------------------------- */

/* What has a shape and holds real numbers.  Axes, shapes and scalars stay constants, since
 * converters read them. */
static bool is_weight(const Node *n) { return n->u.data->ndim > 0 && dtype_is_float(n->u.data->dtype); }

void kit_keep_params(Import *im, Frame *f, int n, const char *const *name, KitNodes *params)
{
  ImportReport *r = im->report;
  if (r) {
    r->param_name = arena_array(im->m->arena, const char *, n + 1);
    r->param = arena_array(im->m->arena, const Node *, n + 1);
  }
  for (int i = 0; i < n; i++) {
    const Node *value = strmap_get(&f->values, name[i]);
    if (!is_weight(value)) continue;
    const Node *var = node_var(im->m, name[i], value->type);
    kit_frame_set(im, f, name[i], var);
    vec_push(im->arena, params, var);
    if (!r) continue;
    r->param_name[r->nparams] = var->name;
    r->param[r->nparams++] = value;
  }
}

void kit_set_main(Import *im, const KitNodes *params, int n, const Node *const *out, const char **name, int states,
                  const char *quantization)
{
  if (im->report) {
    im->report->noutputs = n - states;
    im->report->output_name = name;
  }
  const Node *body = n == 1 ? out[0] : node_tuple(im->m, n, out);
  Annots attrs = {0};
  Text list = text_new(im->arena);
  for (int i = 0; i < n; i++) text_printf(&list, "%s%s", i ? "\n" : "", name[i]);
  annots_set(im->m->arena, &attrs, "output_names", expr_str(im->m, text_str(&list)));
  if (states) annots_set(im->m->arena, &attrs, "states", expr_i32(im->m, states));
  if (quantization && *quantization) annots_set(im->m->arena, &attrs, "quantization", expr_str(im->m, quantization));
  module_set(im->m, "main", GLOBAL_GRAPH,
             (void *)(uintptr_t)node_func(im->m, params->n, params->v, body, body->type, &attrs));
}
