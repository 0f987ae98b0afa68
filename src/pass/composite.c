/* composite.c: what an external compiler could take: MergeComposite and AnnotateTarget.
 *
 * MergeComposite: each match of a pattern of the context's table becomes a function with the attribute Composite and
 * the pattern's name, "dnnl.conv2d_bias_relu".  Patterns come in the table's order; what one has taken is closed to the
 * next.
 *   needs   types          keeps   types          breaks  nothing
 *
 * AnnotateTarget: each call goes to the first of the compilers that takes it: an operator where the context has a row
 * that agrees, a composite function where its name begins with the compiler's.  What goes in stands in
 * annotation.compiler_begin, what comes out in annotation.compiler_end; calls that nobody takes are marked "default".
 * Tuples and their fields go where their operands are, if that is one place.
 *   needs   types          keeps   types          breaks  nothing */
#include "pass/passes.h"
#include "pass/pattern.h"
#include "pass/tools.h"

static const char *func_text(const Node *f, const char *key)
{
  const Expr *v = f->kind == N_FUNC ? annots_get(&f->u.func->attrs, key) : NULL;
  return v && v->kind == E_STR ? v->u.str : NULL;
}

/* ---- MergeComposite ------------------------------------------------------------------------- */

typedef struct Merging {
  Module *m;
  const CompositeRow *row;
  Map closed; /* nodes of composite functions */
} Merging;

static bool check_match(void *env, const Node *n, const DfMatch *match)
{
  (void)match;
  const Merging *g = env;
  if (map_has(&g->closed, n)) return false;
  return !g->row->check || g->row->check(g->row->env, g->m, n);
}

static void close_composites(Arena *arena, const Node *f, Map *closed)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  for (int i = 0; i < n; i++) {
    if (order[i] == f || !func_text(order[i], "Composite")) continue;
    const Node **inside;
    int count = graph_post_order(arena, order[i], &inside);
    for (int k = 0; k < count; k++) map_put(arena, closed, inside[k], (void *)(uintptr_t)inside[k]);
  }
}

const Node *pass_merge_composite(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f) || func_text(f, "Composite")) return f;
  for (int i = 0; i < pc->composites.n; i++) {
    Scope scope = scope_begin(m->ctx);
    Merging g = {.m = m, .row = &pc->composites.v[i]};
    close_composites(scratch(m->ctx), f, &g.closed);
    Annots attrs = {0};
    annots_set(m->arena, &attrs, "Composite", expr_str(m, g.row->name));
    f = retype(m, pass_pattern_partition(m, f, g.row->pattern, &attrs, check_match, &g));
    scope_end(m->ctx, scope);
  }
  return f;
}

/* ---- AnnotateTarget ------------------------------------------------------------------------- */

const PassOption pass_annotate_target_options[] = {
  {PO_STRS, "targets", "", "external compilers, the preferred one first"},
  {PO_BOOL, "include_non_call_ops", "True", "tuples and their fields may be part of a region too"},
};

static const char nobody[] = "default";

typedef struct Annotating {
  PassContext *pc;
  Map target; /* new node -> name of its compiler */
  int n;
  const char **compiler;
  bool tuples;
} Annotating;

static const Node *mark(Module *m, const char *op, const Node *n, const char *compiler)
{
  const OpDef *def = opdef_get(m->ctx, op);
  void *attrs = attrs_new(m, def->attrs);
  attrs_set_str(m, def->attrs, attrs, "compiler", compiler);
  return node_call(m, def, 1, &n, attrs, NULL);
}

/* The value where it leaves its region.  What reads nothing (zeros) has no region. */
static const Node *leave(GraphRewriter *rw, const Node *n)
{
  const Annotating *a = rw->env;
  const char *compiler = map_get(&a->target, n);
  return compiler && n->nargs ? mark(rw->m, REGION_END, n, compiler) : n;
}

/* An operand as a node of this compiler takes it; NULL: it is marked for another already. */
static const Node *enter(GraphRewriter *rw, const Node *arg, const char *compiler)
{
  if (arg->type && arg->type->kind == TY_FUNC) return arg;
  if (is_call(arg, REGION_BEGIN)) {
    if (strcmp(call_str(arg, "compiler"), nobody)) return arg;
    arg = arg->arg[0];
  }
  return mark(rw->m, REGION_BEGIN, is_call(arg, REGION_END) ? arg : leave(rw, arg), compiler);
}

/* Who takes the call, before its operands were marked; an annotated graph comes with marks. */
static const char *who_takes(Annotating *a, Module *m, const Node *n)
{
  const char *composite = n->kind == N_APPLY ? func_text(n->arg[0], "Composite") : NULL;
  for (int i = 0; i < a->n; i++) {
    const char *compiler = a->compiler[i];
    size_t len = strlen(compiler);
    if (composite && !strncmp(composite, compiler, len) && composite[len] == '.') return compiler;
    for (int k = 0; n->kind == N_CALL && k < a->pc->offloads.n; k++) {
      const OffloadRow *row = &a->pc->offloads.v[k];
      if (!strcmp(row->compiler, compiler) && !strcmp(row->op, n->u.call.op->name) && row->takes(row->env, m, n))
        return compiler;
    }
  }
  return nobody;
}

static bool taken_before(const Node *n)
{
  int first = n->kind == N_APPLY;
  return n->nargs > first && is_call(n->arg[first], REGION_BEGIN) &&
         strcmp(call_str(n->arg[first], "compiler"), nobody);
}

static const Node *annotate_args(GraphRewriter *rw, const Node *now, const char *compiler)
{
  Annotating *a = rw->env;
  const Node **arg = arena_array(rw->arena, const Node *, now->nargs + 1);
  int first = now->kind == N_APPLY;
  for (int i = 0; i < now->nargs; i++) arg[i] = i < first ? now->arg[i] : enter(rw, now->arg[i], compiler);
  const Node *then = node_with_args(rw->m, now, arg);
  map_put(rw->arena, &a->target, then, (void *)(uintptr_t)compiler);
  return then;
}

/* Where all operands are, if that is one place. */
static const char *common_place(const Annotating *a, const Node *now)
{
  const char *place = NULL;
  for (int i = 0; i < now->nargs; i++) {
    const Node *arg = now->arg[i];
    const char *here = map_get(&a->target, arg);
    if (is_call(arg, REGION_BEGIN) && is_call(arg->arg[0], REGION_END)) here = call_str(arg->arg[0], "compiler");
    if (!here) here = nobody;
    if (place && strcmp(place, here)) return nobody;
    place = here;
  }
  return place ? place : nobody;
}

/* The node over operands that have left their regions. */
static const Node *leave_args(GraphRewriter *rw, const Node *now, int from)
{
  const Node **arg = arena_array(rw->arena, const Node *, now->nargs + 1);
  for (int i = 0; i < now->nargs; i++) arg[i] = i < from ? now->arg[i] : leave(rw, now->arg[i]);
  return node_with_args(rw->m, now, arg);
}

static const Node *annotate(GraphRewriter *rw, const Node *old, const Node *now)
{
  Annotating *a = rw->env;
  switch (now->kind) {
  case N_CALL:
    if (is_call(now, REGION_BEGIN)) return now;
    if (is_call(now, REGION_END)) {
      const char *was = call_str(now, "compiler");
      const char *found = map_get(&a->target, now->arg[0]);
      if (!found) map_put(rw->arena, &a->target, now->arg[0], (void *)(uintptr_t)was);
      return found && strcmp(found, was) ? mark(rw->m, REGION_END, now->arg[0], found) : now;
    }
    if (now->u.call.op->flags & OPF_IMPURE) return leave_args(rw, now, 0);
    return taken_before(now) ? now : annotate_args(rw, now, who_takes(a, rw->m, old));
  case N_APPLY: return taken_before(now) ? now : annotate_args(rw, now, who_takes(a, rw->m, old));
  case N_TUPLE:
  case N_GET:
    if (!a->tuples) return leave_args(rw, now, 0);
    return taken_before(now) ? now : annotate_args(rw, now, common_place(a, now));
  case N_FUNC: return func_text(now, "Composite") ? old : leave_args(rw, now, fn_nparams(now));
  case N_LET: return leave_args(rw, now, 1);
  case N_IF:
  case N_MATCH:
  case N_CALL_TIR: return leave_args(rw, now, 0);
  case N_VAR:
  case N_CONST:
  case N_GLOBAL:
  case N_CTOR:
  case N_OP: return now;
  }
  return now;
}

const Node *pass_annotate_target(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  if (is_primitive(f)) return f;
  Arena *arena = scratch(m->ctx);
  Annotating a = {.pc = pc, .tuples = pass_option_int(env, pass_annotate_target_options, 1)};
  const char *list = pass_option(env, pass_annotate_target_options, 0);
  a.compiler = arena_array(arena, const char *, (int64_t)strlen(list) + 1);
  for (const char *p = list + strspn(list, "[], \""); *p; p += strspn(p, "[], \"")) {
    size_t len = strcspn(p, "[], \"");
    a.compiler[a.n++] = arena_strndup(arena, p, len);
    p += len;
  }
  if (!a.n) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "AnnotateTarget: give the external compilers, targets=\"dnnl\"");
  return rewrite(m, f, annotate, &a);
}
