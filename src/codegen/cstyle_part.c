/* cstyle_part.c: a parallel loop becomes three things before its kernel:
 *
 *   struct name_env0      what the loop's body needs from outside
 *   name_part0            the body for [begin, end), a plain function whose pointers
 *                         are restrict again
 *   name_task0            takes the struct apart; what rt->parallel_for calls
 *
 * In a program without a runtime the call is PARALLEL(n, task, env), and a thread finds its memory by
 * SLICE(slot, slices): macros, which have one thread do it all unless the program's own threads define them. */
#include "codegen/cstyle.h"

typedef struct Field {
  const char *type, *name; /* in the struct */
  const char *param;       /* its type as a parameter */
  const char *value;       /* what the kernel puts there */
} Field;
typedef Vec(Field) Fields;

static const KernelArg *find_arg(const Kernel *k, const Var *v)
{
  for (int i = 0; i < k->narg; i++)
    if (k->arg[i].var == v) return &k->arg[i];
  return NULL;
}

static void add_capture(Cgen *g, Fields *out, const Var *v)
{
  Arena *tmp = scratch(g->ctx);
  const Memory *mem = map_get(&g->memory, v);
  if (mem) {
    if (mem->is_variable) BUG(g->ctx, "variable '%s' is used from a parallel loop", mem->name);
    const KernelArg *arg = find_arg(g->k, v);
    const char *type = cs_fmt(g, "%s%s *", mem->read_only ? "const " : "", cs_storage_type(g, mem->elem));
    const char *param = arg && !arg->may_alias ? cs_fmt(g, "%s%s ", type, g->dialect->restrict_word) : type;
    vec_push(tmp, out, (Field){type, mem->name, param, mem->name});
    return;
  }
  const char *name = cs_name(g, v);
  const char *type;
  if (v->dtype.lanes > 1 && dtype_is_bool(dtype_elem(v->dtype)))
    type = cs_mask_type(g, cs_mask_width(g, v->expr), v->dtype.lanes);
  else type = cs_type(g, v->dtype);
  type = cs_fmt(g, "%s%s", type, str_ends(type, "*") ? "" : " ");
  vec_push(tmp, out, (Field){type, name, cs_fmt(g, "const %s", type), name});
}

static void find_fields(Cgen *g, Stmt *s, Fields *out)
{
  Arena *tmp = scratch(g->ctx);
  const Var **vars;
  int n = lower_captures(tmp, s->u.loop.body, &vars);
  for (int i = 0; i < n; i++)
    if (vars[i] != s->u.loop.var) add_capture(g, out, vars[i]);
  if (cs_uses_place(s->u.loop.body, PLACE_WORKSPACE))
    vec_push(tmp, out, (Field){"void *", "workspace", "void *", "workspace"});
  if (cs_uses_place(s->u.loop.body, PLACE_SLICE)) {
    vec_push(tmp, out, (Field){"char *", "slices", "char *", "slices"});
    if (g->dialect->runtime) vec_push(tmp, out, (Field){"int64_t ", "slice_bytes", "const int64_t ", "slice_bytes"});
  }
  if (cs_uses_runtime(g, s->u.loop.body))
    vec_push(tmp, out, (Field){"const LatheRtCalls *", "rt", "const LatheRtCalls *", "rt"});
}

static void print_part(Cgen *g, Stmt *s, const char *base, const Fields *f)
{
  const Var *v = s->u.loop.var;
  const char *name = cs_name(g, v);
  const char *type = cs_type(g, v->dtype);
  text_printf(g->out,
              "\n/* Iterations [begin, end) of the parallel loop over %s. */\nstatic __attribute__((noinline)) int32_t "
              "%s_part%d(",
              name, base, g->parts);
  for (int i = 0; i < f->n; i++) text_printf(g->out, "%s%s, ", f->v[i].param, f->v[i].name);
  text_add(g->out, "int64_t begin, int64_t end, int32_t slot)\n{\n");
  cs_line(g, "(void)slot;");
  if (dtype_eq(v->dtype, DT_I64)) cs_line(g, "for (%s %s = begin; %s < end; %s++) {", type, name, name, name);
  else cs_line(g, "for (%s %s = (%s)begin; %s < (%s)end; %s++) {", type, name, type, name, type, name);
  g->indent++;
  cs_stmt(g, s->u.loop.body);
  g->indent--;
  cs_line(g, "}");
  cs_line(g, "return 0;");
  text_add(g->out, "}\n");
}

static void print_task(Cgen *g, const char *base, const Fields *f)
{
  text_printf(g->out, "\nstatic int32_t %s_task%d(int64_t begin, int64_t end, int32_t slot, void *env)\n{\n", base,
              g->parts);
  if (f->n) cs_line(g, "const struct %s_env%d *e = env;", base, g->parts);
  else cs_line(g, "(void)env;");
  Text args = text_new(scratch(g->ctx));
  for (int i = 0; i < f->n; i++) text_printf(&args, "e->%s, ", f->v[i].name);
  cs_line(g, "return %s_part%d(%sbegin, end, slot);", base, g->parts, text_str(&args));
  text_add(g->out, "}\n");
}

/* The functions go before the kernel; the call stands where the loop stood. */
static void print_functions(Cgen *g, Stmt *s, const char *base, const Fields *f)
{
  Text text = text_new(g->arena);
  Text *outer = g->out;
  int indent = g->indent;
  g->out = &text;
  g->indent = 1;
  g->in_part = true;
  if (f->n) {
    text_printf(g->out, "\nstruct %s_env%d {\n", base, g->parts);
    for (int i = 0; i < f->n; i++) cs_line(g, "%s%s;", f->v[i].type, f->v[i].name);
    text_add(g->out, "};\n");
  }
  print_part(g, s, base, f);
  print_task(g, base, f);
  g->in_part = false;
  g->indent = indent;
  g->out = outer;
  text_add(&g->functions, text_str(&text));
}

void cs_parallel(Cgen *g, Stmt *s)
{
  if (!expr_is_int(s->u.loop.min, 0)) BUG(g->ctx, "kernel form has loops from 0 alone ('%s')", s->u.loop.var->name);
  const char *base = cs_function_name(g, g->k->name);
  const char *extent = cs_text(g, s->u.loop.extent);
  Fields f = {0};
  find_fields(g, s, &f);
  print_functions(g, s, base, &f);
  const char *env = cs_fresh(g, "task_env");
  const char *status = cs_fresh(g, "status");
  if (f.n) {
    Text values = text_new(scratch(g->ctx));
    for (int i = 0; i < f.n; i++) text_printf(&values, "%s%s", i ? ", " : "", f.v[i].value);
    cs_line(g, "struct %s_env%d %s = {%s};", base, g->parts, env, text_str(&values));
  }
  int part = g->parts++;
  if (!g->dialect->runtime) {
    cs_line(g, "PARALLEL(%s, %s_task%d, %s%s);", extent, base, part, f.n ? "&" : "", f.n ? env : "0");
    return;
  }
  cs_line(g, "const int32_t %s = rt->parallel_for(rt, %s, %s_task%d, %s%s);", status, extent, base, part,
          f.n ? "&" : "", f.n ? env : "0");
  cs_line(g, "if (%s != 0) return %s;", status, status);
}
