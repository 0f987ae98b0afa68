/* linkable.c: models that a C program links: what .o, .a and .c need beyond kernels and weights.
 *
 * Everything such a file defines is called NAME__…, after the file's name, so that several models
 * fit into one program.  `lathe_module` and `lathe_model` stay as weak names of the two tables: a
 * shared library made from the file can be loaded like any other. */
#include <stdio.h>

#include "driver/linkable.h"
#include "driver/object.h"

const char *linkable_name(Arena *arena, const char *path)
{
  const char *base = strrchr(path, '/');
  base = base ? base + 1 : path;
  size_t n = strcspn(base, ".");
  char *name =
      arena_printf(arena, "%s%.*s", n == 0 || (base[0] >= '0' && base[0] <= '9') ? "model_" : "", (int)n, base);
  for (char *p = name; *p; p++)
    if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9'))) *p = '_';
  return name;
}

/* ---- C source ------------------------------------------------------------------------------ */

static const char *const tables[] = {"lathe_module", "lathe_model"};

void linkable_c_names(const Program *p, const char *name, FILE *out)
{
  fprintf(out, "/* Names of this model's own, for programs that link several. */\n");
  for (int i = 0; i < 2; i++) fprintf(out, "#define %s %s__%s\n", tables[i], name, tables[i]);
  for (int i = 0; i < (p->kernel.n ? p->kernel.n : 1); i++) {
    static const char *const ends[] = {"", "__call", "__shape"};
    const char *kernel = p->kernel.n ? p->kernel.v[i].name : "lathe_nothing";
    for (int k = 0; k < 3; k++) fprintf(out, "#define %s%s %s__%s%s\n", kernel, ends[k], name, kernel, ends[k]);
  }
  fputc('\n', out);
}

void linkable_c_aliases(const char *name, FILE *out)
{
  fprintf(
      out,
      "\n/* For a shared library made from this file: cc -shared -fPIC. */\n#undef lathe_module\n#undef lathe_model\n");
  for (int i = 0; i < 2; i++)
    fprintf(out, "extern LATHE_EXPORT const __typeof__(%s__%s) %s __attribute__((weak, alias(\"%s__%s\")));\n", name,
            tables[i], tables[i], name, tables[i]);
}

/* ---- objects ----------------------------------------------------------------------------------- */

void linkable_rename(Ctx *ctx, const char *object, const char *name) { object_prefix(ctx, object, name, 2, tables); }

/* Its index has the tables' names: a program asks for those, the rest comes with them. */
void linkable_archive(Ctx *ctx, const char *object, const char *path, const char *name)
{
  const char *names[2];
  for (int i = 0; i < 2; i++) names[i] = arena_printf(scratch(ctx), "%s__%s", name, tables[i]);
  object_archive(ctx, object, 2, names, path);
}

/* ---- the header ------------------------------------------------------------------------------------- */

/* Words that cannot be a parameter: of C, of C++, of the functions below. */
static const char *const taken[] = {
  "alignas", "alignof",  "and",       "asm",       "auto",     "bool",     "break",     "case",  "catch",   "char",
  "class",   "code",     "const",     "constexpr", "continue", "default",  "delete",    "do",    "double",  "else",
  "enum",    "err",      "executor",  "explicit",  "export",   "extern",   "false",     "float", "for",     "friend",
  "goto",    "if",       "inline",    "int",       "long",     "mutable",  "namespace", "new",   "not",     "operator",
  "or",      "private",  "protected", "public",    "register", "restrict", "return",    "short", "signed",  "sizeof",
  "static",  "struct",   "switch",    "template",  "this",     "throw",    "true",      "try",   "typedef", "typename",
  "union",   "unsigned", "using",     "virtual",   "void",     "volatile", "while",     "xor",
};

typedef struct Header {
  Program *p;
  const char *name;
  Arena *arena;
  Text text;
  ProgEntry shown;        /* the entry without its states … */
  const ProgEntry *entry; /* … which is being written, that of this number … */
  int index;
  const char *prefix; /* … and what its names begin with */
  StrMap used;        /* identifiers handed out */
  const char **in, **out, **size;
} Header;

const char *linkable_identifier(Arena *arena, StrMap *used, const char *name, const char *stem)
{
  char *id = arena_printf(arena, "%s%s", *name && (*name < '0' || *name > '9') ? "" : stem, name);
  for (char *c = id; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9'))) *c = '_';
  bool clash = strmap_get(used, id) != NULL;
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) clash = clash || !strcmp(id, taken[i]);
  if (clash) id = arena_printf(arena, "%s_%d", id, used->n);
  strmap_put(arena, used, id, used);
  return id;
}

static const char *identifier(Header *h, const char *name, const char *stem)
{
  return linkable_identifier(h->arena, &h->used, name, stem);
}

const char *linkable_c_type(DType t)
{
  LatheRtDType rt = code_rt_dtype(t);
  switch (rt.code * 1000 + rt.bits) {
  case 2032: return "float";
  case 2064: return "double";
  case 8: return "int8_t";
  case 16: return "int16_t";
  case 32: return "int32_t";
  case 64: return "int64_t";
  case 1032: return "uint32_t";
  case 1064: return "uint64_t";
  }
  if (rt.code == 0) return "int8_t";
  /* halves by their bits; bool, float8 and what is smaller by bytes */
  return rt.bits == 16 ? "uint16_t" : "uint8_t";
}

/* Is it an array of the caller's with so many elements?  Strings stay with the executor, which knows their texts. */
static bool all_known(const ProgPort *p)
{
  for (int d = 0; d < p->ndim; d++)
    if (p->dim[d] < 0) return false;
  return p->kind == PORT_TENSOR && !dtype_is_string(p->dtype);
}

static ProgEntry without_states(const ProgEntry *e)
{
  ProgEntry shown = *e;
  shown.input.n -= e->nstate;
  shown.output.n -= e->nstate;
  return shown;
}

static bool has_run(const ProgEntry *e)
{
  for (int i = 0; i < e->input.n; i++)
    if (e->input.v[i].kind != PORT_TENSOR) return false;
  for (int i = 0; i < e->output.n; i++)
    if (e->output.v[i].kind != PORT_TENSOR) return false;
  return true;
}

const char *driver_c_command(Arena *arena, const char *path)
{
  bool source = str_ends(path, ".c"); /* as fast as code can be, with sums and products as one operation */
  return arena_printf(arena, "cc %sprogram.c %s $(pkg-config --cflags --libs lathe_rt) -lm",
                      source ? "-O2 -fno-math-errno -ffp-contract=fast " : "", path);
}

static void describe(Header *h, const char *path)
{
  Text *t = &h->text;
  const char *base = strrchr(path, '/');
  text_printf(t, "/* %s.h: a model compiled by Lathe, to be linked into a C program:\n *\n", h->name);
  text_printf(t, " *   %s\n *\n", driver_c_command(h->arena, base ? base + 1 : path));
  for (int e = 0; e < h->p->entry.n; e++) {
    const ProgEntry shown = without_states(&h->p->entry.v[e]);
    const ProgEntry *entry = &shown;
    if (h->p->entry.n > 1) text_printf(t, " * %s:\n", entry->name);
    for (int i = 0; i < entry->input.n; i++)
      text_printf(t, " *   %-7s %-20s %s\n", "input", entry->input.v[i].name, entry->input.v[i].type);
    for (int i = 0; i < entry->output.n; i++)
      text_printf(t, " *   %-7s %-20s %s\n", "output", entry->output.v[i].name, entry->output.v[i].type);
  }
  text_printf(
      t,
      " */\n#ifndef LATHE_MODEL_%s_H\n#define LATHE_MODEL_%s_H\n\n#include <string.h>\n\n#include <lathe_rt.h>\n\n"
      "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
      h->name, h->name);
}

static void put_load(Header *h)
{
  const char *n = h->name;
  text_printf(&h->text,
              "extern const LatheRtModuleInfo %s__lathe_module;\nextern const LatheRtModelData %s__lathe_model;\n\n"
              "/* The model; lathe_rt_executor_new makes executors of it, lathe_rt_model_free gives it back. */\n"
              "static inline LatheRtCode %s_load(LatheRtModel **out, LatheRtError *err)\n{\n"
              "  LatheRtModule *module;\n"
              "  LatheRtCode code = lathe_rt_module_wrap(&%s__lathe_module, NULL, NULL, &module, err);\n"
              "  if (code != LATHE_RT_OK) return code;\n"
              "  code = lathe_rt_model_wrap(module, &%s__lathe_model, NULL, NULL, NULL, out, err);\n"
              "  lathe_rt_module_free(module);\n"
              "  return code;\n}\n",
              n, n, n, n, n);
}

static void put_counts(Header *h)
{
  for (int k = 0; k < 2; k++) {
    const ProgPort *port = k ? h->entry->output.v : h->entry->input.v;
    for (int i = 0; i < (k ? h->entry->output.n : h->entry->input.n); i++) {
      int64_t n = 1;
      if (!all_known(&port[i])) continue;
      for (int d = 0; d < port[i].ndim; d++) n *= port[i].dim[d];
      text_printf(&h->text, "#define %s_%s_elements %" PRId64 "\n", h->prefix, k ? h->out[i] : h->in[i], n);
    }
  }
}

/* The sizes that are open, then the inputs, then the outputs. */
static bool has_size(const ProgEntry *e, int size)
{
  for (int i = 0; i < e->input.n; i++)
    for (int d = 0; d < e->input.v[i].ndim; d++)
      if (e->input.v[i].dim[d] == -1 - size) return true;
  return false;
}

static void put_parameters(Header *h)
{
  const ProgEntry *p = h->entry;
  Text *t = &h->text;
  text_printf(t, "static inline LatheRtCode %s_run(LatheRtExecutor *executor", h->prefix);
  for (int i = 0; i < h->p->symbol.n; i++)
    if (has_size(p, i)) text_printf(t, ", int64_t %s", h->size[i]);
  for (int i = 0; i < p->input.n; i++) {
    for (int d = 0; d < p->input.v[i].ndim; d++)
      if (p->input.v[i].dim[d] == DIM_UNKNOWN) text_printf(t, ", int64_t %s_%d", h->in[i], d);
    text_printf(t, ", const %s *%s",
                dtype_is_string(p->input.v[i].dtype) ? "char *const" : linkable_c_type(p->input.v[i].dtype), h->in[i]);
  }
  for (int i = 0; i < p->output.n; i++)
    if (all_known(&p->output.v[i])) text_printf(t, ", %s *%s", linkable_c_type(p->output.v[i].dtype), h->out[i]);
    else text_printf(t, ", const LatheRtTensor **%s", h->out[i]);
  text_add(t, ", LatheRtError *err)\n");
}

static void put_input(Header *h, int i)
{
  const ProgPort *port = &h->entry->input.v[i];
  Text *t = &h->text;
  LatheRtDType dt = code_rt_dtype(port->dtype);
  text_printf(t, "  int64_t shape_of_%s[] = {", h->in[i]);
  for (int d = 0; d < port->ndim; d++) {
    int64_t v = port->dim[d];
    text_add(t, d ? ", " : "");
    if (v >= 0) text_printf(t, "%" PRId64, v);
    else if (v == DIM_UNKNOWN) text_printf(t, "%s_%d", h->in[i], d);
    else text_add(t, h->size[-1 - v]);
  }
  if (dtype_is_string(port->dtype)) {
    text_printf(t,
                "%s};\n  if ((code = lathe_rt_set_input_strings(executor, %d, %d, shape_of_%s, %s, NULL, err)) != "
                "LATHE_RT_OK) return code;\n",
                port->ndim ? "" : "1", i, port->ndim, h->in[i], h->in[i]);
    return;
  }
  text_printf(
      t,
      "%s};\n  LatheRtTensor tensor_of_%s = {(void *)%s, {LATHE_RT_CPU, 0}, %d, {%d, %d, %d}, shape_of_%s, NULL, 0};\n",
      port->ndim ? "" : "1", h->in[i], h->in[i], port->ndim, dt.code, dt.bits, dt.lanes, h->in[i]);
  text_printf(t,
              "  if ((code = lathe_rt_set_input_view(executor, %d, &tensor_of_%s, err)) != LATHE_RT_OK) return code;\n",
              i, h->in[i]);
}

static void put_run(Header *h)
{
  const ProgEntry *p = h->entry;
  Text *t = &h->text;
  bool copies = false;
  for (int i = 0; i < p->output.n; i++) copies = copies || all_known(&p->output.v[i]);
  if (h->p->entry.n > 1) text_printf(t, "\n/* One run of %s.  Inputs are read where they lie", p->name);
  else text_add(t, "\n/* One run.  Inputs are read where they lie");
  if (copies) text_add(t, ", outputs are written to where the pointers lead");
  text_add(t, ".  A LatheRtTensor is the\n * executor's until its next run");
  for (int i = 0; i < p->output.n; i++)
    if (dtype_is_string(p->output.v[i].dtype)) {
      text_add(t, "; lathe_rt_string_get gives the texts of its strings");
      break;
    }
  text_add(t, ". */\n");
  put_parameters(h);
  text_add(t, "{\n  LatheRtCode code;\n");
  if (copies) text_add(t, "  const LatheRtTensor *result;\n  size_t bytes;\n");
  if (h->p->entry.n > 1)
    text_printf(t, "  if ((code = lathe_rt_executor_select(executor, %d, err)) != LATHE_RT_OK) return code;\n",
                h->index);
  for (int i = 0; i < p->input.n; i++) put_input(h, i);
  text_add(t, "  if ((code = lathe_rt_run(executor, err)) != LATHE_RT_OK) return code;\n");
  for (int i = 0; i < p->output.n; i++) {
    bool known = all_known(&p->output.v[i]);
    text_printf(t, "  if ((code = lathe_rt_get_output(executor, %d, %s, err)) != LATHE_RT_OK) return code;\n", i,
                known ? "&result" : h->out[i]);
    if (known)
      text_printf(t,
                  "  if ((code = lathe_rt_tensor_bytes(result, &bytes, err)) != LATHE_RT_OK) return code;\n"
                  "  if (bytes) memcpy(%s, (const char *)result->data + result->byte_offset, bytes);\n",
                  h->out[i]);
  }
  text_add(t, "  return LATHE_RT_OK;\n}\n");
}

/* The first entry's names are the model's; those of the others have the entry's name in them. */
static void begin_entry(Header *h, int k)
{
  h->index = k;
  h->shown = without_states(&h->p->entry.v[k]);
  const ProgEntry *p = h->entry = &h->shown;
  h->used = (StrMap){0};
  char *prefix = arena_printf(h->arena, k ? "%s_%s" : "%s", h->name, p->name);
  for (char *c = prefix; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9'))) *c = '_';
  h->prefix = prefix;
  h->in = arena_array(h->arena, const char *, p->input.n + 1);
  h->out = arena_array(h->arena, const char *, p->output.n + 1);
  h->size = arena_array(h->arena, const char *, h->p->symbol.n + 1);
  for (int i = 0; i < p->input.n; i++) h->in[i] = identifier(h, p->input.v[i].name, "input_");
  for (int i = 0; i < p->output.n; i++) h->out[i] = identifier(h, p->output.v[i].name, "output_");
  for (int i = 0; i < h->p->symbol.n; i++) h->size[i] = identifier(h, h->p->symbol.v[i]->name, "size_");
}

static const char marker[] = ": a model compiled by Lathe,"; /* aot_c.c and aot_web.c write it too */

static const char *header_path(Arena *arena, const char *path)
{
  return arena_printf(arena, "%.*s.h", (int)(strrchr(path, '.') - path), path);
}

void linkable_check_own(Ctx *ctx, const char *path, const char *what)
{
  FILE *f = fopen(path, "rb");
  char start[400];
  size_t n = f ? fread(start, 1, sizeof start - 1, f) : 0;
  start[n] = 0;
  if (f) fclose(f);
  if (f && !strstr(start, marker))
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "the model's %s would take the place of '%s', which Lathe did not write; choose another name", what, path);
}

void linkable_check_header(Ctx *ctx, const char *model)
{
  linkable_check_own(ctx, header_path(scratch(ctx), model), "header");
}

void linkable_header(Program *p, const char *path)
{
  Ctx *ctx = p->ctx;
  Scope scope = scope_begin(ctx);
  Header h = {.p = p, .name = linkable_name(scratch(ctx), path), .arena = scratch(ctx), .text = text_new(scratch(ctx))};
  const char *to = header_path(scratch(ctx), path);
  linkable_check_header(ctx, path);
  describe(&h, path);
  put_load(&h);
  for (int i = 0; i < p->entry.n; i++) {
    begin_entry(&h, i);
    if (has_run(h.entry)) {
      text_add(&h.text, "\n");
      put_counts(&h);
      put_run(&h);
    } else {
      text_printf(&h.text,
                  "\n/* %s takes or gives sequences, optionals or objects: lathe_rt_set_input_items and _object,\n"
                  " * lathe_rt_get_output_items and _object. */\n",
                  p->entry.n > 1 ? h.entry->name : "It");
    }
  }
  text_add(&h.text, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
  file_write(ctx, to, h.text.s, h.text.n);
  scope_end(ctx, scope);
}
