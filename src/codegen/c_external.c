/* c_external.c: functions of other people's as a module.
 *
 * In: functions by name, with the C source or the objects that define them.  Out: C that calls each of them with the
 * pointers of a call, and the table lathe_module; the source is compiled, and all are linked, with it (code.c). */
#include "codegen/cstyle.h"

static void put_name(Text *t, const char *s) { text_quote(t, s); }

static void put_function(Text *t, const CodeExternal *f)
{
  text_printf(t, "\nextern int32_t %s(", f->name);
  for (int i = 0; i < f->narg; i++) text_printf(t, "%svoid *", i ? ", " : "");
  text_printf(t,
              "%s);\nstatic int32_t %s__call(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *rt)\n{\n",
              f->narg ? "" : "void", f->name);
  text_printf(t, "  (void)slots, (void)workspace, (void)rt;\n  return %s(", f->name);
  for (int i = 0; i < f->narg; i++) text_printf(t, "%sslots[%d].p", i ? ", " : "", i);
  text_printf(t, ");\n}\n\nstatic void %s__shape(const LatheRtSlot *slots, int64_t *out)\n{\n  (void)slots;\n",
              f->name);
  int at = 0;
  for (int i = 0; i < f->narg; i++)
    for (int d = 0; d < f->arg[i].ndim; d++) text_printf(t, "  out[%d] = %" PRId64 ";\n", at++, f->arg[i].shape[d]);
  text_printf(t, "  out[%d] = 0;\n  out[%d] = 0;\n}\n", at, at + 1);
  if (f->narg) text_printf(t, "\nstatic const LatheRtArgInfo %s_args[] = {\n", f->name);
  for (int i = 0; i < f->narg; i++) {
    const CodeExternalArg *a = &f->arg[i];
    LatheRtDType d = code_rt_dtype(a->dtype);
    text_add(t, "  {");
    put_name(t, a->name);
    text_printf(t, ", {%d, %d, %d}, %d, %d},\n", d.code, d.bits, d.lanes, a->ndim, a->written ? 1 : 0);
  }
  if (f->narg) text_add(t, "};\n");
}

static void drop_code(void *held)
{
  Code **code = held;
  if (*code) code_free(*code);
}

Code *codegen_c_external(Ctx *ctx, const Target *target, int n, const CodeExternal *f)
{
  Scope scope = scope_begin(ctx);
  Code **held = arena_new_of(scratch(ctx), Code *);
  defer(ctx, drop_code, held);
  Code *code = *held = code_new(ctx, target, &cs_backend);
  Text text = text_new(code->arena);
  text_printf(&text, "/* Functions of external compilers, as Lathe calls them. */\n#include <stdint.h>\n\n%s%s%s",
              cs_abi_text, "struct LatheRtPackedArg;\n", cs_abi_calls);
  for (int i = 0; i < n; i++) put_function(&text, &f[i]);
  if (n) text_add(&text, "\nstatic const LatheRtFuncInfo lathe_funcs[] = {\n");
  for (int i = 0; i < n; i++) {
    text_add(&text, "  {");
    put_name(&text, f[i].name);
    text_printf(&text, ", %s__call, %s__shape, %d, 0, ", f[i].name, f[i].name, f[i].narg);
    if (f[i].narg) text_printf(&text, "%s_args", f[i].name);
    else text_add(&text, "0");
    text_printf(&text, ", 0, 0, 0, %d, 0},\n", LATHE_RT_FUNC_PLAIN);
  }
  if (n) text_add(&text, "};\n");
  cs_module_table(&text, target, n);
  code->state = (void *)(uintptr_t)text_str(&text);
  code->nextern = n;
  code->externals = arena_copy(code->arena, f, (size_t)n * sizeof *f); /* what it points to lives as long as the code */
  *held = NULL;
  scope_end(ctx, scope);
  return code;
}
