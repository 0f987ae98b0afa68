/* aot_c.c: a program ahead of time as C source and header, and the files made of them.
 *
 *   NAME.h    what callers need: sizes, NAME_run
 *   NAME.c    types, helpers and kernels (codegen_c_alone), weights, NAME_run
 *
 * NAME_run takes each input, each output and each pool as a pointer and calls the kernels in order.  Kernels are
 * not inlined: two of them may use the same bytes for elements of different types, which a compiler may not see at
 * once. */
#include <errno.h>
#include <unistd.h>

#include "driver/aot.h"
#include "driver/linkable.h"

enum { AOT_TEXT_LIMIT = 4 * 1024 * 1024 }; /* bytes of weights up to which they are text */

typedef struct Writer {
  Aot *a;
  Arena *arena;
  const char *name, *stem; /* in C, and of the files */
  char *upper;
  Text t;
  bool beside; /* weights */
  /* of the entry being written */
  const AotEntry *entry;
  const char *prefix;
  const char **in, **out, **pool;
  const char **bytes; /* of each pool: it as an array of bytes */
  bool *in_used, *out_used, *pool_used;
  int layer; /* calls of kernels so far */
} Writer;

static char *upper_of(Arena *arena, const char *s)
{
  char *out = arena_strdup(arena, s);
  for (char *c = out; *c; c++)
    if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
  return out;
}

const char *aot_entry_prefix(Arena *arena, const Aot *a, const char *name, int k)
{
  StrMap used = {0};
  return k ? arena_printf(arena, "%s_%s", name, linkable_identifier(arena, &used, a->entry[k].e->name, "entry_"))
           : name;
}

static void begin_entry(Writer *w, int k)
{
  const Aot *a = w->a;
  const ProgEntry *e = a->entry[k].e;
  StrMap used = {0};
  w->entry = &a->entry[k];
  w->prefix = aot_entry_prefix(w->arena, a, w->name, k);
  w->pool = arena_array(w->arena, const char *, a->npools + 1);
  w->in = arena_array(w->arena, const char *, e->input.n + 1);
  w->out = arena_array(w->arena, const char *, e->output.n + 1);
  w->pool_used = arena_array(w->arena, bool, a->npools + 1);
  w->in_used = arena_array(w->arena, bool, e->input.n + 1);
  w->out_used = arena_array(w->arena, bool, e->output.n + 1);
  for (int i = 0; i < a->npools; i++) w->pool[i] = linkable_identifier(w->arena, &used, a->pool[i].name, "pool_");
  w->bytes = arena_array(w->arena, const char *, a->npools + 1);
  for (int i = 0; i < e->input.n; i++) w->in[i] = linkable_identifier(w->arena, &used, e->input.v[i].name, "input_");
  for (int i = 0; i < e->output.n; i++)
    w->out[i] = linkable_identifier(w->arena, &used, e->output.v[i].name, "output_");
  for (int i = 0; i < a->npools; i++)
    w->bytes[i] = linkable_identifier(w->arena, &used, arena_printf(w->arena, "in_%s", w->pool[i]), "");
}

/* The weights' names in C. */
static const char *const_name(Writer *w, int i) { return arena_printf(w->arena, "%s_w%d", w->name, i); }

/* ---- NAME_run: the signature ------------------------------------------------------------------------- */

static void put_signature(Writer *w, const char *end)
{
  const ProgEntry *e = w->entry->e;
  Text *t = &w->t;
  const char *comma = "";
  text_printf(t, "%s %s_run(", w->a->external ? "int32_t" : "void", w->prefix);
  for (int i = 0; !w->a->options.io_inside && i < e->input.n; i++, comma = ", ")
    text_printf(t, "%sconst %s *%s", comma, linkable_c_type(e->input.v[i].dtype), w->in[i]);
  for (int i = 0; !w->a->options.io_inside && i < e->output.n; i++, comma = ", ")
    text_printf(t, "%s%s *%s", comma, linkable_c_type(e->output.v[i].dtype), w->out[i]);
  for (int i = 0; i < w->a->npools; i++, comma = ", ") text_printf(t, "%svoid *%s", comma, w->pool[i]);
  text_printf(t, ")%s", end);
}

/* ---- the header ----------------------------------------------------------------------------------------- */

static const char *c_command(Writer *w)
{
  return arena_printf(w->arena, "cc -O2 -fno-math-errno -ffp-contract=fast program.c %s.c%s", w->stem,
                      w->a->code.uses_math ? " -lm" : "");
}

static void describe_port(Text *t, const char *what, const char *name, const ProgPort *port)
{
  text_printf(t, " *   %-7s %-20s %s", what, name, port->type);
  if (port->scale > 0) text_printf(t, ", stands for %.9g * (element - %" PRId64 ")", port->scale, port->zero);
  text_add(t, "\n");
}

static void describe_entry(Writer *w)
{
  const ProgEntry *e = w->entry->e;
  Text *t = &w->t;
  if (w->a->p->entry.n > 1) text_printf(t, " * %s:\n", e->name);
  for (int i = 0; i < e->input.n; i++) describe_port(t, "input", w->in[i], &e->input.v[i]);
  for (int i = 0; i < e->output.n; i++) describe_port(t, "output", w->out[i], &e->output.v[i]);
}

static void describe(Writer *w)
{
  const Aot *a = w->a;
  Text *t = &w->t;
  text_printf(t,
              "/* %s.h: a model compiled by Lathe, ahead of time for target '%s': plain C that needs no runtime.\n *\n",
              w->stem, a->p->target->text);
  text_printf(t, " *   %s\n *\n", c_command(w));
  for (int i = 0; i < a->p->entry.n; i++) {
    begin_entry(w, i);
    describe_entry(w);
  }
  text_printf(t,
              " *\n * Weights take %" PRId64
              " bytes and are const.  Nothing is allocated and nothing global is written: several\n"
              " * calls may be under way at once, each with a workspace of its own.",
              a->weights_bytes);
  text_printf(t,
              "  On the stack the arrays of a kernel\n * take up to %" PRId64
              " bytes, beside what its calls and registers take (gcc -fstack-usage tells). */\n",
              a->stack_arrays);
  text_printf(t,
              "#ifndef LATHE_MODEL_%s_H\n#define LATHE_MODEL_%s_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
              "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
              w->upper, w->upper);
}

static void put_pools(Writer *w)
{
  const Aot *a = w->a;
  for (int i = 0; i < a->npools; i++) {
    const char *pool = upper_of(w->arena, w->pool[i]);
    text_printf(&w->t,
                "/* Memory that a call works in; a multiple of 8 as its address. */\n#define %s_%s_BYTES %" PRId64 "\n",
                w->upper, pool, a->pool_bytes[i]);
  }
  text_add(&w->t, "\n");
}

static void put_entry_sizes(Writer *w)
{
  const ProgEntry *e = w->entry->e;
  const char *prefix = upper_of(w->arena, w->prefix);
  for (int k = 0; k < 2; k++) {
    const ProgPort *port = k ? e->output.v : e->input.v;
    for (int i = 0; i < (k ? e->output.n : e->input.n); i++) {
      const char *name = upper_of(w->arena, k ? w->out[i] : w->in[i]);
      const AotPlace *at = k ? &w->entry->output[i] : &w->entry->input[i];
      text_printf(&w->t, "#define %s_%s_ELEMENTS %" PRId64 "\n", prefix, name, program_port_elements(&port[i]));
      if (port[i].scale > 0)
        text_printf(&w->t, "#define %s_%s_SCALE %.9e\n#define %s_%s_ZERO_POINT (%" PRId64 ")\n", prefix, name,
                    port[i].scale, prefix, name, port[i].zero);
      if (at->kind == AT_POOL)
        text_printf(&w->t, "#define %s_%s_OFFSET %" PRId64 " /* bytes into %s: %s */\n", prefix, name, at->offset,
                    w->pool[at->index], k ? "its place after the call" : "its place before the call");
    }
  }
}

static void put_entry_prototype(Writer *w)
{
  bool inside = w->a->options.io_inside;
  const ProgEntry *e = w->entry->e;
  put_entry_sizes(w);
  if (inside)
    text_add(&w->t, "/* One run.  Inputs and outputs lie in the workspace; a run may overwrite its inputs. */\n");
  else text_add(&w->t, "/* One run.  Inputs are only read; arrays do not overlap and begin at multiples of 4. */\n");
  put_signature(w, ";\n");
  const char *prefix = upper_of(w->arena, w->prefix);
  text_printf(&w->t,
              "\n#ifdef %s_STATIC_WORKSPACE\n/* The same in memory of its own: one call at a time. */\nstatic inline "
              "%s %s_run_static(",
              prefix, w->a->external ? "int32_t" : "void", w->prefix);
  const char *comma = "";
  for (int i = 0; !inside && i < e->input.n; i++, comma = ", ")
    text_printf(&w->t, "%sconst %s *%s", comma, linkable_c_type(e->input.v[i].dtype), w->in[i]);
  for (int i = 0; !inside && i < e->output.n; i++, comma = ", ")
    text_printf(&w->t, "%s%s *%s", comma, linkable_c_type(e->output.v[i].dtype), w->out[i]);
  text_printf(&w->t, "%s)\n{\n", *comma ? "" : "void");
  for (int i = 0; i < w->a->npools; i++)
    text_printf(&w->t, "  static uint64_t memory_%s[%s_%s_BYTES / 8 + 1];\n", w->pool[i], w->upper,
                upper_of(w->arena, w->pool[i]));
  text_printf(&w->t, "  %s%s_run(", w->a->external ? "return " : "", w->prefix);
  comma = "";
  for (int i = 0; !inside && i < e->input.n; i++, comma = ", ") text_printf(&w->t, "%s%s", comma, w->in[i]);
  for (int i = 0; !inside && i < e->output.n; i++, comma = ", ") text_printf(&w->t, "%s%s", comma, w->out[i]);
  for (int i = 0; i < w->a->npools; i++, comma = ", ") text_printf(&w->t, "%smemory_%s", comma, w->pool[i]);
  text_add(&w->t, ");\n}\n#endif\n\n");
}

/* ---- TVM's interfaces -------------------------------------------------------------------------------------- */

static void put_c_structs(Writer *w)
{
  const ProgEntry *e = w->entry->e;
  Text *t = &w->t;
  bool pools = w->a->options.npools > 0;
  text_printf(t, "/* TVM's C interface. */\n#define TVMGEN_%s_WORKSPACE_SIZE %" PRId64 "\n",
              upper_of(w->arena, w->prefix), w->entry->plan.bytes);
  text_printf(t, "struct tvmgen_%s_inputs {\n", w->prefix);
  for (int i = 0; i < e->input.n; i++) text_printf(t, "  void *%s;\n", w->in[i]);
  text_printf(t, "};\nstruct tvmgen_%s_outputs {\n", w->prefix);
  for (int i = 0; i < e->output.n; i++) text_printf(t, "  void *%s;\n", w->out[i]);
  text_add(t, "};\n");
  if (pools) {
    text_printf(t, "struct tvmgen_%s_workspace_pools {\n", w->prefix);
    for (int i = 0; i < w->a->npools; i++) text_printf(t, "  void *%s;\n", w->pool[i]);
    text_add(t, "};\n");
  } else {
    text_add(t, "/* Its workspace is static: one call at a time. */\n");
  }
}

static void put_c_signature(Writer *w, const char *end)
{
  const char *p = w->prefix;
  text_printf(&w->t, "int32_t tvmgen_%s_run(struct tvmgen_%s_inputs *inputs, struct tvmgen_%s_outputs *outputs", p, p,
              p);
  if (w->a->options.npools) text_printf(&w->t, ", struct tvmgen_%s_workspace_pools *workspace_pools", p);
  text_printf(&w->t, ")%s", end);
}

static void put_static_pools(Writer *w)
{
  for (int i = 0; i < w->a->npools; i++)
    text_printf(&w->t, "  static uint64_t memory_%s[%s_%s_BYTES / 8 + 1];\n", w->pool[i], w->upper,
                upper_of(w->arena, w->pool[i]));
}

static void put_c_body(Writer *w)
{
  const ProgEntry *e = w->entry->e;
  bool pools = w->a->options.npools > 0;
  text_add(&w->t, "\n");
  put_c_signature(w, "\n{\n");
  if (!pools) put_static_pools(w);
  text_printf(&w->t, "  %s%s_run(", w->a->external ? "return " : "", w->prefix);
  for (int i = 0; i < e->input.n; i++) text_printf(&w->t, "inputs->%s, ", w->in[i]);
  for (int i = 0; i < e->output.n; i++) text_printf(&w->t, "outputs->%s, ", w->out[i]);
  for (int i = 0; i < w->a->npools; i++)
    text_printf(&w->t, "%s%s%s", i ? ", " : "", pools ? "workspace_pools->" : "memory_", w->pool[i]);
  text_printf(&w->t, ");\n%s}\n", w->a->external ? "" : "  return 0;\n");
}

static void put_packed_signature(Writer *w, const char *end)
{
  text_printf(&w->t,
              "int32_t tvmgen_%s_run(void *args, int *type_codes, int num_args, void *out_value, int *out_type_code,\n"
              "                      void *resource_handle)%s",
              w->prefix, end);
}

static void put_packed_body(Writer *w)
{
  const ProgEntry *e = w->entry->e;
  int n = e->input.n + e->output.n;
  text_add(&w->t, "\n");
  put_packed_signature(w, "\n{\n");
  text_add(&w->t, "  const union { int64_t i; double f; struct lathe_dltensor *t; } *arg = args;\n");
  put_static_pools(w);
  text_printf(&w->t,
              "  (void)type_codes, (void)out_value, (void)out_type_code, (void)resource_handle;\n"
              "  if (num_args != %d) return -1;\n  %s%s_run(",
              n, w->a->external ? "return " : "", w->prefix);
  for (int i = 0; i < n; i++) {
    bool in = i < e->input.n;
    const char *type = linkable_c_type(in ? e->input.v[i].dtype : e->output.v[i - e->input.n].dtype);
    text_printf(&w->t, "(%s%s *)(void *)((char *)arg[%d].t->data + arg[%d].t->byte_offset), ", in ? "const " : "", type,
                i, i);
  }
  for (int i = 0; i < w->a->npools; i++) text_printf(&w->t, "%smemory_%s", i ? ", " : "", w->pool[i]);
  text_printf(&w->t, ");\n%s}\n", w->a->external ? "" : "  return 0;\n");
}

static const char dltensor[] = "/* A tensor as DLPack has it. */\n"
                               "struct lathe_dltensor {\n  void *data;\n  struct { int32_t type, id; } device;\n"
                               "  int32_t ndim;\n  struct { uint8_t code, bits; uint16_t lanes; } dtype;\n"
                               "  int64_t *shape, *strides;\n  uint64_t byte_offset;\n};\n";

static void put_interface_header(Writer *w)
{
  switch (w->a->options.interface) {
  case AOT_PLAIN: return;
  case AOT_INTERFACE_C:
    put_c_structs(w);
    put_c_signature(w, ";\n\n");
    return;
  case AOT_INTERFACE_PACKED:
    text_add(&w->t,
             "/* TVM's packed interface: args are as many pointers to DLPack tensors as there are inputs and outputs,\n"
             " * in eight bytes each; the workspace is static: one call at a time.  0: done. */\n");
    put_packed_signature(w, ";\n\n");
    return;
  }
}

static const char *write_header(Writer *w)
{
  w->t = text_new(w->arena);
  describe(w);
  begin_entry(w, 0);
  put_pools(w);
  for (int i = 0; i < w->a->p->entry.n; i++) {
    begin_entry(w, i);
    put_entry_prototype(w);
    put_interface_header(w);
  }
  text_add(&w->t, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
  return text_str(&w->t);
}

/* ---- weights ------------------------------------------------------------------------------------------------- */

static void put_float(Text *t, const void *data, int64_t i, bool wide)
{
  double v = wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
  if (v != v) text_add(t, "NAN");
  else if (v - v != 0) text_add(t, v < 0 ? "-INFINITY" : "INFINITY");
  else {
    char s[40];
    int n = snprintf(s, sizeof s, wide ? "%.17g" : "%.9g", v);
    text_addn(t, s, (size_t)n);
    if (!strpbrk(s, ".e")) text_add(t, ".0");
    if (!wide) text_char(t, 'f');
  }
}

static void put_int(Text *t, const void *data, int64_t i, int bytes, bool is_unsigned)
{
  switch (bytes) {
  case 1: text_printf(t, "%d", is_unsigned ? ((const uint8_t *)data)[i] : ((const int8_t *)data)[i]); return;
  case 2: text_printf(t, "%d", is_unsigned ? ((const uint16_t *)data)[i] : ((const int16_t *)data)[i]); return;
  case 4:
    if (is_unsigned) text_printf(t, "%" PRIu32 "u", ((const uint32_t *)data)[i]);
    else if (((const int32_t *)data)[i] == INT32_MIN) text_add(t, "-2147483647 - 1");
    else text_printf(t, "%" PRId32, ((const int32_t *)data)[i]);
    return;
  }
  if (is_unsigned) text_printf(t, "%" PRIu64 "ull", ((const uint64_t *)data)[i]);
  else if (((const int64_t *)data)[i] == INT64_MIN) text_add(t, "-9223372036854775807ll - 1");
  else text_printf(t, "%" PRId64 "ll", ((const int64_t *)data)[i]);
}

static bool not_finite(const ConstData *d)
{
  bool f32 = d->dtype.code == DT_FLOAT && d->dtype.bits == 32;
  bool f64 = d->dtype.code == DT_FLOAT && d->dtype.bits == 64;
  size_t n = f32 || f64 ? d->bytes / (f64 ? 8 : 4) : 0;
  for (size_t i = 0; i < n; i++) {
    double v = f64 ? ((const double *)d->data)[i] : (double)((const float *)d->data)[i];
    if (v - v != 0) return true;
  }
  return false;
}

void aot_put_elements(Text *t, DType dtype, const void *data, int64_t n)
{
  const char *type = linkable_c_type(dtype);
  bool is_float = !strcmp(type, "float") || !strcmp(type, "double");
  int bytes = dtype_bytes(dtype);
  size_t line = t->n;
  text_add(t, " ");
  for (int64_t i = 0; i < n; i++) {
    text_char(t, ' ');
    if (is_float) put_float(t, data, i, bytes == 8);
    else put_int(t, data, i, bytes, type[0] == 'u');
    text_char(t, ',');
    if (t->n - line > 100 && i + 1 < n) {
      text_add(t, "\n ");
      line = t->n;
    }
  }
  text_add(t, n ? "\n};\n" : " 0\n};\n");
}

static void put_constant(Writer *w, int index)
{
  const ConstData *d = w->a->p->constant.v[index].data;
  Text *t = &w->t;
  const char *type = linkable_c_type(d->dtype);
  int64_t n = (int64_t)(d->bytes / (size_t)dtype_bytes(d->dtype));
  text_printf(t, "static const %s %s[%" PRId64 "]%s = { /* %s", type, const_name(w, index), n ? n : 1,
              dtype_bytes(d->dtype) < 4 ? " WORDS" : "", dtype_name(w->arena, d->dtype));
  for (int i = 0; i < d->ndim; i++) text_printf(t, "%s%" PRId64, i ? " x " : ", ", d->shape[i]);
  text_add(t, " */\n");
  aot_put_elements(t, d->dtype, d->data, n);
}

static int64_t beside_offset(const Aot *a, int index)
{
  int64_t at = 0;
  for (int i = 0; i < index; i++)
    if (a->uses_const[i])
      at += ((int64_t)a->p->constant.v[i].data->bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
  return at;
}

static void put_weights_in_asm(Writer *w)
{
  text_printf(&w->t,
              "/* The weights lie in a file beside this one, of the same name with .weights behind it. */\n"
              "#ifndef LATHE_WEIGHTS_FILE\n#define LATHE_WEIGHTS_FILE __FILE__ \".weights\"\n#endif\n"
              "__asm__(\".pushsection .rodata.%s_weights,\\\"a\\\"\\n.balign 64\\n.globl %s__weights\\n.hidden "
              "%s__weights\\n\"\n"
              "        \"%s__weights:\\n.incbin \\\"\" LATHE_WEIGHTS_FILE \"\\\"\\n.popsection\\n\");\n"
              "extern const unsigned char %s__weights[];\n",
              w->name, w->name, w->name, w->name, w->name);
}

static void put_weights_beside(Writer *w)
{
  const Aot *a = w->a;
  if (a->p->target->arch == ARCH_WASM32)
    text_printf(&w->t, "/* The weights: %s.weights.s. */\nextern const unsigned char %s__weights[];\n", w->stem,
                w->name);
  else put_weights_in_asm(w);
  for (int i = 0; i < a->p->constant.n; i++)
    if (a->uses_const[i])
      text_printf(&w->t, "#define %s ((const %s *)(const void *)(%s__weights + %" PRId64 "))\n", const_name(w, i),
                  linkable_c_type(a->p->constant.v[i].data->dtype), w->name, beside_offset(a, i));
}

static void put_weights(Writer *w)
{
  if (!w->a->weights_bytes && !w->beside) return;
  text_add(&w->t, "\n/* ---- weights ---- */\n\n");
  if (w->beside) {
    put_weights_beside(w);
    return;
  }
  text_add(&w->t,
           "/* Bytes that are read as words. */\n#if defined(__GNUC__)\n#define WORDS __attribute__((aligned(8)))\n"
           "#else\n#define WORDS\n#endif\n\n");
  for (int i = 0; i < w->a->p->constant.n; i++)
    if (w->a->uses_const[i]) put_constant(w, i);
}

/* ---- NAME_run: the body ----------------------------------------------------------------------------------------- */

static void note_use(Writer *w, const AotPlace *at)
{
  if (at->kind == AT_INPUT) w->in_used[at->index] = true;
  if (at->kind == AT_OUTPUT) w->out_used[at->index] = true;
  if (at->kind == AT_POOL) w->pool_used[at->index] = true;
}

/* The address as a pointer to elements of a C type. */
static const char *address(Writer *w, const AotPlace *at, const char *type, bool written)
{
  const char *base = "";
  const char *to = at->kind == AT_CONST || at->kind == AT_INPUT || !written ? "const " : "";
  note_use(w, at);
  switch (at->kind) {
  case AT_NOWHERE: BUG(w->a->p->ctx, "a register of a program ahead of time has no place");
  case AT_INPUT: base = w->in[at->index]; break;
  case AT_OUTPUT: base = w->out[at->index]; break;
  case AT_CONST: base = const_name(w, at->index); break;
  case AT_POOL: return arena_printf(w->arena, "(%s%s *)(%s + %" PRId64 ")", to, type, w->bytes[at->index], at->offset);
  }
  if (at->offset == 0) return arena_printf(w->arena, "(%s%s *)%s", to, type, base);
  return arena_printf(w->arena, "(%s%s *)((%schar *)%s + %" PRId64 ")", to, type, to, base, at->offset);
}

/* The same without a cast where the pointer has the type already. */
static const char *argument(Writer *w, const AotPlace *at, const char *type, bool written)
{
  const ProgEntry *e = w->entry->e;
  const char *base = NULL;
  DType have = {0};
  note_use(w, at);
  if (at->kind == AT_INPUT && !written) base = w->in[at->index], have = e->input.v[at->index].dtype;
  if (at->kind == AT_OUTPUT) base = w->out[at->index], have = e->output.v[at->index].dtype;
  if (at->kind == AT_CONST) base = const_name(w, at->index), have = w->a->p->constant.v[at->index].data->dtype;
  if (base && at->offset == 0 && !strcmp(linkable_c_type(have), type)) return base;
  return address(w, at, type, written);
}

/* What the kernel's size is for these arguments. */
static int64_t size_value(Writer *w, const Kernel *k, const KernelSize *z)
{
  const Buffer *b = k->arg[z->arg].buffer;
  int d = z->dim >= 0 ? z->dim : -1 - z->dim;
  int64_t value = 1;
  if (z->dim == INT32_MIN) return 0;
  for (int i = z->dim >= 0 ? d : d + 1; i < (z->dim >= 0 ? d + 1 : b->ndim); i++) {
    if (b->shape[i]->kind != E_INT) BUG(w->a->p->ctx, "kernel '%s' of a static program has an open size", k->name);
    value *= b->shape[i]->u.i;
  }
  return value;
}

static const char *element_type(const Buffer *b, const Target *t)
{
  if (b->dtype.code == DT_FLOAT && b->dtype.bits == 16 && t->arch == ARCH_AARCH64) return "_Float16";
  return linkable_c_type(b->dtype);
}

static void put_call(Writer *w, int i)
{
  const Aot *a = w->a;
  const ProgIns *ins = &w->entry->f->ins.v[i];
  const Kernel *k = a->kernel[ins->index];
  Text *t = &w->t;
  text_printf(t, k->body ? "  %s(" : "  status = %s(", a->code.name[ins->index]);
  const char *comma = "";
  for (int n = 0; n < ins->narg; n++, comma = ", ")
    text_printf(
        t, "%s%s", comma,
        argument(w, &w->entry->at[ins->arg[n]], element_type(k->arg[n].buffer, a->p->target), k->arg[n].written));
  for (int n = 0; n < k->nsize; n++, comma = ", ") text_printf(t, "%s%" PRId64, comma, size_value(w, k, &k->size[n]));
  const AotPlace *scratch = &w->entry->scratch[i];
  if (scratch->kind == AT_POOL) {
    note_use(w, scratch);
    text_printf(t, "%s%s + %" PRId64, comma, w->bytes[scratch->index], scratch->offset);
  }
  const char *name = aot_node_name(a->p, ins);
  text_printf(t, "); /* %.*s */\n", (int)strcspn(name, "*\n"), name);
  if (!k->body) text_add(t, "  if (status) return status;\n");
  text_printf(t, "  %s_LAYER(%d);\n", w->upper, w->layer++);
}

static bool same_place(const AotPlace *a, const AotPlace *b)
{
  return a->kind == b->kind && a->index == b->index && a->offset == b->offset;
}

static void put_copy(Writer *w, const AotPlace *to, const AotPlace *from, int64_t bytes)
{
  if (bytes && !same_place(to, from))
    text_printf(&w->t, "  copy_bytes(%s, %s, %" PRId64 ");\n", address(w, to, "unsigned char", true),
                address(w, from, "unsigned char", false), bytes);
}

static int64_t register_bytes(Writer *w, int reg)
{
  for (int i = 0; i < w->entry->e->piece.n; i++)
    if (w->entry->e->piece.v[i].reg == reg) return w->entry->e->piece.v[i].bytes;
  BUG(w->a->p->ctx, "a copy without a place");
}

static void put_calls(Writer *w)
{
  const AotEntry *to = w->entry;
  const ProgFunc *f = to->f;
  w->layer = 0;
  for (int i = 0; i < f->ins.n; i++) {
    const ProgIns *ins = &f->ins.v[i];
    if (ins->op == MO_KERNEL) put_call(w, i);
    if (ins->op == MO_COPY) put_copy(w, &to->at[ins->reg], &to->at[ins->source], register_bytes(w, ins->reg));
  }
  const ProgIns *ret = &f->ins.v[f->ins.n - 1];
  for (int i = 0; i < ret->narg; i++)
    put_copy(w, &to->output[i], &to->at[ret->arg[i]],
             program_port_elements(&to->e->output.v[i]) * dtype_bytes(to->e->output.v[i].dtype));
}

/* The calls are written first: they tell what is used. */
static void put_run(Writer *w)
{
  const AotEntry *to = w->entry;
  Text outer = w->t;
  w->t = text_new(w->arena);
  put_calls(w);
  Text calls = w->t;
  w->t = outer;
  text_add(&w->t, "\n");
  put_signature(w, "\n{\n");
  for (int i = 0; !w->a->options.io_inside && i < to->e->input.n; i++)
    if (!w->in_used[i]) text_printf(&w->t, "  (void)%s;\n", w->in[i]);
  for (int i = 0; !w->a->options.io_inside && i < to->e->output.n; i++)
    if (!w->out_used[i]) text_printf(&w->t, "  (void)%s;\n", w->out[i]);
  for (int i = 0; i < w->a->npools; i++)
    if (w->pool_used[i]) text_printf(&w->t, "  char *const %s = %s;\n", w->bytes[i], w->pool[i]);
    else text_printf(&w->t, "  (void)%s;\n", w->pool[i]);
  if (w->a->external) text_add(&w->t, "  int32_t status;\n");
  text_add(&w->t, text_str(&calls));
  text_add(&w->t, w->a->external ? "  return 0;\n}\n" : "}\n");
}

static bool copies(const Aot *a)
{
  for (int k = 0; k < a->p->entry.n; k++) {
    const AotEntry *to = &a->entry[k];
    const ProgIns *ret = &to->f->ins.v[to->f->ins.n - 1];
    for (int i = 0; i < to->f->ins.n; i++)
      if (to->f->ins.v[i].op == MO_COPY) return true;
    for (int i = 0; i < ret->narg; i++)
      if (!same_place(&to->output[i], &to->at[ret->arg[i]])) return true;
  }
  return false;
}

static const char *write_source(Writer *w)
{
  const Aot *a = w->a;
  Text *t = &w->t;
  w->t = text_new(w->arena);
  bool math = a->code.uses_math;
  for (int i = 0; i < a->p->constant.n && !w->beside; i++)
    math = math || (a->uses_const[i] && not_finite(a->p->constant.v[i].data));
  text_printf(t,
              "/* %s.c: a model compiled by Lathe, ahead of time; %s.h says how it is called. */\n#include \"%s.h\"\n\n"
              "#include <stdbool.h>\n",
              w->stem, w->stem, w->stem);
  if (math) text_add(t, "#include <math.h>\n");
  if (a->p->target->device.kind == DEVICE_MICRO)
    text_add(t, "\n/* gcc's first scheduling pass takes loads so far ahead that sums leave their registers. */\n"
                "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize(\"no-schedule-insns\")\n#endif\n");
  if (a->code.uses_vectors) text_add(t, "#pragma GCC diagnostic ignored \"-Wpsabi\"\n");
  for (int i = 0; i < a->p->kernel.n; i++) {
    const ProgExternal *e = a->p->kernel.v[i].external;
    if (!e) continue;
    text_printf(t, "\n/* ---- %s, of an external compiler ---- */\n", e->symbol);
    text_addn(t, e->code.bytes, e->code.n);
    text_add(t, "\n");
  }
  text_printf(t, "\n%s", a->code.text);
  if (copies(a))
    text_add(t, "\nKERNEL copy_bytes(unsigned char *to, const unsigned char *from, size_t n)\n{\n"
                "  for (size_t i = 0; i < n; i++) to[i] = from[i];\n}\n");
  put_weights(w);
  text_printf(
      t,
      "\n/* What is done after each layer, which has this number: nothing, unless a measurement defines it. */\n"
      "#ifndef %s_LAYER\n#define %s_LAYER(number) ((void)0)\n#endif\n",
      w->upper, w->upper);
  for (int i = 0; i < a->p->entry.n; i++) {
    begin_entry(w, i);
    put_run(w);
    if (a->options.interface == AOT_INTERFACE_C) put_c_body(w);
    if (a->options.interface == AOT_INTERFACE_PACKED) {
      if (i == 0) text_printf(t, "\n%s", dltensor);
      put_packed_body(w);
    }
  }
  return text_str(t);
}

static const char *weights_file(const Aot *a, Arena *arena, size_t *n)
{
  *n = (size_t)beside_offset(a, a->p->constant.n);
  char *bytes = arena_alloc(arena, *n + 1);
  for (int i = 0; i < a->p->constant.n; i++)
    if (a->uses_const[i])
      memcpy(bytes + beside_offset(a, i), a->p->constant.v[i].data->data, a->p->constant.v[i].data->bytes);
  return bytes;
}

/* In WebAssembly C cannot take a file in, but the assembler can. */
static const char *weights_assembly(Arena *arena, const char *stem, const char *name, size_t n)
{
  return arena_printf(
      arena,
      "  .section .rodata.%s_weights,\"\",@\n  .p2align 6\n  .hidden %s__weights\n  .globl %s__weights\n"
      "  .type %s__weights,@object\n%s__weights:\n  .incbin \"%s.c.weights\"\n  .size %s__weights, %zu\n",
      name, name, name, name, name, stem, name, n);
}

void aot_files(Aot *a, Arena *arena, const char *stem, WeightsPlace weights, AotFiles *out)
{
  const char *name = linkable_name(arena, stem);
  Writer w = {.a = a, .arena = arena, .name = name, .stem = stem, .upper = upper_of(arena, name)};
  w.beside = a->weights_bytes &&
             (weights == WEIGHTS_BESIDE || (weights == WEIGHTS_BY_SIZE && a->weights_bytes > AOT_TEXT_LIMIT));
  const char *header = write_header(&w);
  vec_push(arena, out, ((AotFile){arena_printf(arena, "%s.h", stem), header, strlen(header)}));
  const char *source = write_source(&w);
  vec_push(arena, out, ((AotFile){arena_printf(arena, "%s.c", stem), source, strlen(source)}));
  if (!w.beside) return;
  AotFile data = {.name = arena_printf(arena, "%s.c.weights", stem)};
  data.bytes = weights_file(a, arena, &data.n);
  vec_push(arena, out, data);
  if (a->p->target->arch != ARCH_WASM32) return;
  const char *assembly = weights_assembly(arena, stem, name, data.n);
  vec_push(arena, out, ((AotFile){arena_printf(arena, "%s.weights.s", stem), assembly, strlen(assembly)}));
}

/* ---- files ------------------------------------------------------------------------------------------------ */

typedef enum { AOT_SOURCE, AOT_OBJECT, AOT_ARCHIVE, AOT_TAR, AOT_WEB, AOT_NO_FILE } AotFileKind;

static AotFileKind kind_of(Ctx *ctx, const char *path)
{
  static const char *const endings[] = {".c", ".o", ".a", ".tar", ".js"};
  AotFileKind kind = AOT_SOURCE;
  while (kind < AOT_NO_FILE && !str_ends(path, endings[kind])) kind++;
  if (kind == AOT_NO_FILE)
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "cannot tell from '%s' what to write; a program ahead of time is written as .c, .o, .a, .tar (TVM's model "
          "library format) or .js (for browsers)",
          path);
  return kind;
}

void aot_check_export(Ctx *ctx, const Target *t, const char *path)
{
  Scope scope = scope_begin(ctx);
  AotFileKind kind = kind_of(ctx, path);
  const Target *target = aot_target(ctx, t);
  file_check_output(ctx, path);
  if (kind == AOT_OBJECT || kind == AOT_ARCHIVE) code_check_tools(ctx, target, path, "-f c needs none of it");
  if (kind == AOT_WEB) aot_check_web(ctx, target, path);
  else if (kind != AOT_TAR) linkable_check_header(ctx, path);
  scope_end(ctx, scope);
}

static void write_files(Ctx *ctx, const AotFiles *files, const char *folder)
{
  for (int i = 0; i < files->n; i++)
    file_write(ctx, arena_printf(scratch(ctx), "%s%s", folder, files->v[i].name), files->v[i].bytes, files->v[i].n);
}

void aot_export(Aot *a, const char *path, WeightsPlace weights)
{
  Ctx *ctx = a->p->ctx;
  Arena *arena = scratch(ctx);
  aot_check_export(ctx, a->p->target, path);
  AotFileKind kind = kind_of(ctx, path);
  const char *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  const char *stem = arena_strndup(arena, base, (size_t)(strrchr(base, '.') - base));
  if (kind == AOT_WEB) {
    aot_export_web(a, path, arena_strndup(arena, path, (size_t)(base - path)), stem);
    return;
  }
  AotFiles files = {0};
  bool one_object = code_uses_clang(a->p->target) && (kind == AOT_OBJECT || kind == AOT_ARCHIVE);
  aot_files(a, arena, stem, one_object ? WEIGHTS_TEXT : weights, &files);
  if (kind == AOT_SOURCE) {
    write_files(ctx, &files, arena_strndup(arena, path, (size_t)(base - path)));
    return;
  }
  if (kind == AOT_TAR) {
    aot_export_tar(a, path, stem, &files);
    return;
  }
  const char *build = arena_printf(arena, "%s/", file_temp_dir(ctx));
  write_files(ctx, &files, build);
  const char *source = arena_printf(arena, "%s%s.c", build, stem);
  const char *object = kind == AOT_OBJECT ? path : arena_printf(arena, "%s%s.o", build, stem);
  code_compile_c(ctx, a->p->target, source, object);
  if (kind == AOT_ARCHIVE) code_archive(ctx, a->p->target, object, path);
  file_write(ctx, arena_printf(arena, "%.*s.h", (int)(strlen(path) - 2), path), files.v[0].bytes, files.v[0].n);
}
