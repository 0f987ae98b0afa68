/* external.c: functions that external compilers make code of (driver.h).
 *
 * In: functions with the attribute Compiler, when they are first called.  Out: kernels of the program without a loop
 * program; what C source and objects define is one library of the model, bytes of a kind are a module each. */
#include <ctype.h>

#include "driver/program.h"

static const char *func_text(const Node *f, const char *key)
{
  const Expr *v = annots_get(&f->u.func->attrs, key);
  return v && v->kind == E_STR ? v->u.str : NULL;
}

bool program_is_external(const Node *f) { return f->kind == N_FUNC && func_text(f, "Compiler"); }

static const ExternalCompiler *compiler_of(Program *p, const Node *func, const char *symbol)
{
  const char *name = func_text(func, "Compiler");
  for (int i = 0; i < p->nexternals; i++)
    if (!strcmp(p->externals[i].name, name)) return &p->externals[i];
  raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
        "function '%s' is for the external compiler '%s', which has no code generator here; register relay.ext.%s, or "
        "leave the function to Lathe",
        symbol, name, name);
}

static const char *symbol_of(Program *p, const Node *func)
{
  const char *s = func_text(func, "global_symbol");
  bool ok = s && *s && !isdigit((unsigned char)*s);
  for (const char *c = s; ok && *c; c++) ok = isalnum((unsigned char)*c) || *c == '_';
  if (!ok)
    raise(p->ctx, ERR_ARGUMENT, NOWHERE,
          "a function for the external compiler '%s' has no attribute global_symbol that is a name in C",
          func_text(func, "Compiler"));
  return arena_strdup(p->arena, s);
}

/* ---- arguments ---------------------------------------------------------------------------- */

typedef Vec(CodeExternalArg) Args;

static void add_args(Program *p, Args *args, const char *name, const Type *t, const ProgExternal *e, bool written)
{
  int n;
  const Type **leaf = type_leaves(p->arena, t, &n);
  for (int i = 0; i < n; i++) {
    if (leaf[i]->kind != TY_TENSOR || type_has_strings(leaf[i]))
      raise(p->ctx, ERR_UNSUPPORTED, NOWHERE, "external function '%s': '%s' is %s; an external function takes tensors",
            e->symbol, name, type_text(scratch(p->ctx), leaf[i]));
    CodeExternalArg a = {.name = n == 1 ? name : arena_printf(p->arena, "%s_%d", name, i),
                         .dtype = leaf[i]->dtype,
                         .ndim = leaf[i]->ndim,
                         .written = written};
    if (e->code.form != EXTERNAL_MODULE) {
      if (!type_is_static(leaf[i]))
        raise(p->ctx, ERR_UNSUPPORTED, NOWHERE,
              "external function '%s': '%s' is %s, but C source is handed pointers alone; give the sizes, or let the "
              "compiler make a module of a kind",
              e->symbol, name, type_text(scratch(p->ctx), leaf[i]));
      int64_t *shape = arena_array(p->arena, int64_t, a.ndim + 1);
      for (int d = 0; d < a.ndim; d++) shape[d] = leaf[i]->shape[d]->u.i;
      a.shape = shape;
    }
    vec_push(p->arena, args, a);
  }
}

static void find_args(Program *p, const Node *func, ProgExternal *e)
{
  Args args = {0};
  for (int i = 0; i < fn_nparams(func); i++) {
    const Node *v = func->arg[i];
    add_args(p, &args, v->name ? v->name : arena_printf(p->arena, "p%d", i), v->type, e, false);
  }
  for (int i = 0; i < e->code.nconsts; i++) {
    if (e->code.consts[i]->kind != N_CONST)
      raise(p->ctx, ERR_TYPE, NOWHERE, "external function '%s': constant '%s' is no constant", e->symbol,
            e->code.const_name[i]);
    add_args(p, &args, e->code.const_name[i], e->code.consts[i]->type, e, false);
  }
  add_args(p, &args, "out", fn_body(func)->type, e, true);
  e->narg = args.n;
  e->arg = args.v;
}

/* ---- kernels ------------------------------------------------------------------------------- */

static double flops_of(Program *p, const Node *func)
{
  const Node **node;
  double sum = 0;
  int n = graph_post_order(scratch(p->ctx), fn_body(func), &node);
  for (int i = 0; i < n; i++)
    if (node[i]->kind == N_CALL && node[i]->type && node[i]->type->kind == TY_TENSOR)
      sum += node[i]->u.call.op->flops ? node[i]->u.call.op->flops(node[i]) : type_known_elements(node[i]->type);
  return sum;
}

int program_external(Program *p, const Node *func)
{
  for (int i = 0; i < p->kernel.n; i++)
    if (p->kernel.v[i].func == func) return i;
  ProgExternal *e = arena_new_of(p->arena, ProgExternal);
  e->symbol = symbol_of(p, func);
  for (int i = 0; i < p->kernel.n; i++)
    if (!strcmp(p->kernel.v[i].name, e->symbol))
      raise(p->ctx, ERR_ARGUMENT, NOWHERE, "two functions of the model have the global_symbol '%s'", e->symbol);
  const ExternalCompiler *compiler = compiler_of(p, func, e->symbol);
  compiler->generate(compiler->env, p->m, func, e->symbol, p->arena, &e->code);
  if (e->code.form == EXTERNAL_MODULE && (!e->code.kind || !*e->code.kind || !strcmp(e->code.kind, "library")))
    raise(p->ctx, ERR_ARGUMENT, NOWHERE, "external compiler '%s': a module needs a kind, which names its loader",
          compiler->name);
  find_args(p, func, e);
  ProgKernel k = {.func = func, .name = e->symbol, .external = e, .module = -1};
  k.impl = (ImplResult){.nconsts = e->code.nconsts,
                        .consts = e->code.consts,
                        .flops = flops_of(p, func),
                        .impl = arena_strdup(p->arena, compiler->name)};
  k.impl.flops_done = k.impl.flops;
  strmap_put(p->arena, &p->kernel_names, e->symbol, arena_new_of(p->arena, int));
  vec_push(p->arena, &p->kernel, k);
  return p->kernel.n - 1;
}

/* ---- modules -------------------------------------------------------------------------------- */

void program_place_externals(Program *p)
{
  int library = -1;
  for (int i = 0; i < p->kernel.n; i++) {
    ProgKernel *k = &p->kernel.v[i];
    if (!k->external || k->external->code.form == EXTERNAL_MODULE) continue;
    if (library < 0) {
      library = p->module.n;
      vec_push(p->arena, &p->module, ((ProgModule){.target = p->target}));
    }
    k->module = library;
  }
  p->nlibraries = p->module.n;
  for (int i = 0; i < p->kernel.n; i++) {
    ProgKernel *k = &p->kernel.v[i];
    if (!k->external || k->external->code.form != EXTERNAL_MODULE) continue;
    const ExternalCode *code = &k->external->code;
    k->module = p->module.n;
    vec_push(p->arena, &p->module,
             ((ProgModule){.target = p->target,
                           .kind = code->kind,
                           .name = k->name,
                           .bytes = code->bytes,
                           .n = code->n,
                           .offset = p->weights_bytes}));
    p->weights_bytes = (p->weights_bytes + code->n + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
  }
}

int program_extern_functions(Program *p, Arena *arena, const CodeExternal **out)
{
  Vec(CodeExternal) all = {0};
  for (int i = 0; i < p->kernel.n; i++) {
    const ProgExternal *e = p->kernel.v[i].external;
    if (!e || e->code.form == EXTERNAL_MODULE) continue;
    vec_push(arena, &all,
             ((CodeExternal){.name = e->symbol,
                             .narg = e->narg,
                             .arg = e->arg,
                             .source = e->code.form == EXTERNAL_C,
                             .bytes = e->code.bytes,
                             .n = e->code.n}));
  }
  *out = all.v;
  return all.n;
}
