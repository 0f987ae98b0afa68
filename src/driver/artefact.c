/* artefact.c: one file that holds kernels, program and weights.
 *
 * The kernels come as object files.  Beside them another one is written (object.h), of
 *   .rodata.lathe_program   the program
 *   .rodata.lathe_weights   the constants, each at a multiple of 64 (.lrodata on x86-64 when
 *                           they are large: code need not reach them)
 *   .data.rel.ro.lathe      LatheRtModelData, exported as lathe_model
 * and all are linked.  Weights go from where the graph has them straight to the file.
 *
 * C source has the same three as arrays; large weights lie in a file beside it, which the assembler takes in. */
#include <errno.h>
#include <unistd.h>

#include "driver/linkable.h"
#include "driver/object.h"

/* Every constant at its offset; constants that share bytes are written once. */
static void put_weights(ObjectFile *o, const void *program)
{
  const Program *p = program;
  uint64_t at = 0;
  for (int i = 0; i < p->constant.n; i++) {
    const ProgConst *c = &p->constant.v[i];
    if (c->prepared || c->offset < at) continue;
    object_put_zeros(o, c->offset - at);
    object_put(o, c->data->data, c->data->bytes);
    at = c->offset + c->data->bytes;
  }
  for (int i = p->nlibraries; i < p->module.n; i++) {
    const ProgModule *m = &p->module.v[i];
    object_put_zeros(o, m->offset - at);
    object_put(o, m->bytes, m->n);
    at = m->offset + m->n;
  }
  for (int i = 0; i < p->image.n; i++) {
    const ProgImage *image = &p->image.v[i];
    object_put_zeros(o, image->offset - at);
    object_put(o, image->bytes, image->n);
    at = image->offset + image->n;
  }
  object_put_zeros(o, p->weights_bytes - at);
}

/* What the table of a module's kernels is called. */
static const char *module_table(Arena *arena, int module)
{
  return module ? arena_printf(arena, "lathe_module_%d", module) : "lathe_module";
}

/* Too much for code to reach across with 32 bits. */
static bool is_large(const Program *p) { return p->weights_bytes > (uint64_t)1 << 30; }

/* ---- the object -------------------------------------------------------------------------- */

/* Where LatheRtModelData has what, on a machine of 64 and of 32 bits: addresses are narrower there, numbers of 64 bits
 * lie at multiples of 8 on both. */
typedef struct TablePlaces {
  unsigned program, program_bytes, weights, weights_bytes, modules, size, address;
} TablePlaces;
static const TablePlaces places[] = {{16, 24, 32, 40, 52, 56, 4}, {16, 24, 32, 40, 56, 64, 8}};
_Static_assert(sizeof(void *) != 8 || (sizeof(LatheRtModelData) == 64 && offsetof(LatheRtModelData, modules) == 56 &&
                                       offsetof(LatheRtModelData, weights_bytes) == 40),
               "places are those of LatheRtModelData");

static void put_little(unsigned char *to, uint64_t n, int bytes)
{
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(n >> (8 * i));
}

/* The table is followed by the addresses of the modules' tables. */
static void write_object(Program *p, const char *kernels, const void *bytes, size_t n, const char *path)
{
  enum { PROGRAM, WEIGHTS, TABLE, PARTS };
  Arena *a = scratch(p->ctx);
  ObjectForm form = object_form(p->ctx, kernels, p->target->text);
  const TablePlaces *at = &places[form.wide];
  int modules = p->nlibraries;
  size_t table_bytes = at->size + at->address * (size_t)modules;
  unsigned char *table = arena_alloc(a, table_bytes);
  memcpy(table, MODEL_MAGIC, 8);
  put_little(table + 8, at->size, 4);
  put_little(table + 12, (uint64_t)modules, 4);
  put_little(table + at->program_bytes, n, 8);
  put_little(table + at->weights_bytes, p->weights_bytes, 8);
  ObjectSymbol *symbol = arena_array(a, ObjectSymbol, 1 + modules);
  ObjectAddress *address = arena_array(a, ObjectAddress, 3 + modules);
  symbol[0] = (ObjectSymbol){"lathe_model", TABLE};
  address[0] = (ObjectAddress){.at = at->program, .part = PROGRAM};
  address[1] = (ObjectAddress){.at = at->weights, .part = WEIGHTS};
  address[2] = (ObjectAddress){.at = at->modules, .part = TABLE, .plus = at->size};
  for (int i = 0; i < modules; i++) {
    symbol[1 + i] = (ObjectSymbol){module_table(a, i), -1};
    address[3 + i] = (ObjectAddress){.at = at->size + at->address * (uint64_t)i, .part = -1, .symbol = 1 + i};
  }
  const ObjectPart part[PARTS] = {
    [PROGRAM] = {.name = ".rodata.lathe_program", .bytes = n, .align = MODEL_ALIGN, .data = bytes},
    [WEIGHTS] = {.name = ".rodata.lathe_weights",
                 .bytes = p->weights_bytes,
                 .align = MODEL_ALIGN,
                 .write = put_weights,
                 .about = p,
                 .large = is_large(p)},
    [TABLE] = {.name = ".data.rel.ro.lathe", .bytes = table_bytes, .align = 16, .data = table, .writable = true},
  };
  object_write(p->ctx, &form,
               &(ObjectData){.nparts = PARTS,
                             .part = part,
                             .nsymbols = 1 + modules,
                             .symbol = symbol,
                             .naddresses = 3 + modules,
                             .address = address},
               path);
}

/* ---- C source ------------------------------------------------------------------------------- */

static void put_array(ObjectFile *o, const char *name, const void *data, size_t n, uint64_t *column)
{
  const unsigned char *b = data;
  if (name) fprintf(o->f, "static const unsigned char %s[] __attribute__((aligned(64))) = {\n", name);
  for (size_t i = 0; i < n; i++) fprintf(o->f, "%u,%s", b[i], ++*column % 24 ? "" : "\n");
}

static void put_weights_text(ObjectFile *o, const Program *p)
{
  static const char zeros[MODEL_ALIGN];
  uint64_t column = 0;
  uint64_t at = 0;
  fprintf(o->f, "static const unsigned char lathe_weights[] __attribute__((aligned(64))) = {\n");
  for (int i = 0; i < p->constant.n; i++) {
    const ProgConst *c = &p->constant.v[i];
    if (c->prepared || c->offset < at) continue;
    put_array(o, NULL, zeros, (size_t)(c->offset - at), &column);
    put_array(o, NULL, c->data->data, c->data->bytes, &column);
    at = c->offset + c->data->bytes;
  }
  put_array(o, NULL, zeros, (size_t)(p->weights_bytes - at), &column);
  fprintf(o->f, "0};\n");
}

/* __FILE__ is the source as the compiler was told of it, so the weights are found from any folder.  The length is
 * checked while it is assembled: clang's assembler knows lengths too late for .if, and refuses a negative .space. */
static void put_weights_beside(ObjectFile *o, const Program *p, const char *name)
{
  const char *id = arena_printf(scratch(p->ctx), "%s__lathe_weights", name);
  fprintf(o->f,
          "/* The weights lie in a file beside this one, of the same name with .weights behind it. */\n"
          "#ifndef LATHE_WEIGHTS_FILE\n#define LATHE_WEIGHTS_FILE __FILE__ \".weights\"\n#endif\n"
          "#if defined(__x86_64__) && %d\n#define LATHE_WEIGHTS_SECTION \".lrodata,\\\"al\\\"\"\n#else\n"
          "#define LATHE_WEIGHTS_SECTION \".rodata.lathe_weights,\\\"a\\\"\"\n#endif\n",
          is_large(p));
  fprintf(o->f,
          "#ifdef __clang__\n#define LATHE_WEIGHTS_CHECK \".space %s_end - %s - %" PRIu64 "\\n.space %" PRIu64
          " - (%s_end - %s)\\n\"\n#else\n"
          "#define LATHE_WEIGHTS_CHECK \".if %s_end - %s - %" PRIu64 "\\n\" \\\n  \".error \\\"\" LATHE_WEIGHTS_FILE "
          "\" is not the file of weights that was written with this source\\\"\\n.endif\\n\"\n#endif\n",
          id, id, p->weights_bytes, p->weights_bytes, id, id, id, id, p->weights_bytes);
  fprintf(o->f,
          "__asm__(\".pushsection \" LATHE_WEIGHTS_SECTION \"\\n.balign 64\\n.globl %s\\n.hidden %s\\n\"\n"
          "        \"%s:\\n.incbin \\\"\" LATHE_WEIGHTS_FILE \"\\\"\\n%s_end:\\n\" LATHE_WEIGHTS_CHECK "
          "\".popsection\\n\");\n#define lathe_weights %s\nextern const unsigned char lathe_weights[];\n",
          id, id, id, id, id);
}

static void write_weights(const Program *p, const char *path)
{
  ObjectFile *o = object_open(p->ctx, path, "wb");
  put_weights(o, p);
  object_close(o);
}

static void write_c(Program *p, Code *code, const void *bytes, size_t n, const char *name, const char *path,
                    bool beside)
{
  size_t ncode;
  const void *text = code_get(code, CODE_C, scratch(p->ctx), &ncode);
  ObjectFile *o = object_open(p->ctx, path, "wb");
  linkable_c_names(p, name, o->f);
  object_put(o, text, ncode);
  uint64_t column = 0;
  fprintf(o->f, "\n/* ---- the program and the weights ---- */\n");
  put_array(o, "lathe_program", bytes, n, &column);
  fprintf(o->f, "0};\n");
  if (beside) put_weights_beside(o, p, name);
  else put_weights_text(o, p);
  fprintf(o->f,
          "LATHE_EXPORT const struct {\n  char magic[8];\n  uint32_t size, nmodules;\n  const void *program;\n"
          "  uint64_t program_bytes;\n  const void *weights;\n  uint64_t weights_bytes;\n"
          "  const void *const *consts, *const *modules;\n} lathe_model = {\"%s\", sizeof lathe_model, 1, "
          "lathe_program, %zu, lathe_weights, %" PRIu64 ", 0, 0};\n",
          MODEL_MAGIC, n, p->weights_bytes);
  linkable_c_aliases(name, o->f);
  if (ferror(o->f)) raise(p->ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", path, strerror(errno));
  object_close(o);
}

/* ---- files ------------------------------------------------------------------------------------- */

static void remove_file(void *path) { unlink(path); }

/* Links everything for a shared library, or (path ends in .o) into one object.  The tables of all modules but the first
 * get names of their own before they meet. */
static void write_linked(Program *p, Code *const *code, const void *bytes, size_t n, const char *path)
{
  Ctx *ctx = p->ctx;
  Arena *a = scratch(ctx);
  Vec(const char *) objects = {0};
  for (int m = 0; m < p->nlibraries; m++) {
    const char *folder = file_temp_dir(ctx);
    const char **kernels;
    int count = code_write_objects(code[m], folder, &kernels);
    if (m == 0) {
      for (int i = 0; i < count; i++) vec_push(a, &objects, kernels[i]);
      continue;
    }
    const char *whole = arena_printf(a, "%s/module.o", folder);
    code_link(code[m], count, kernels, whole);
    object_rename(ctx, whole, module_table(a, 0), module_table(a, m));
    vec_push(a, &objects, whole);
  }
  const char *model = arena_printf(a, "%s/model.o", file_temp_dir(ctx));
  write_object(p, objects.v[0], bytes, n, model);
  vec_push(a, &objects, model);
  code_link(code[0], objects.n, objects.v, path);
}

static const char *const endings[] = {".so", ".o", ".a", ".c"};
typedef enum { SHARED, OBJECT, ARCHIVE, SOURCE, NONE } FileKind;

static FileKind kind_of(Ctx *ctx, const Target *t, const char *path)
{
  FileKind kind = SHARED;
  while (kind < NONE && !str_ends(path, endings[kind])) kind++;
  if (kind == NONE)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "cannot tell from '%s' what to write; the name ends in .so, .o, .a or .c", path);
  if (kind == SOURCE && t->codegen != CODEGEN_C)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "'%s' is to be C source, but the target is '%s'; compile for target 'c'", path,
          t->text);
  return kind;
}

void driver_check_export(Ctx *ctx, const Target *t, const char *path)
{
  Scope scope = scope_begin(ctx);
  const Target *target = t ? t : target_host(ctx);
  FileKind kind = kind_of(ctx, target, path);
  file_check_output(ctx, path);
  if (kind != SOURCE && target->arch == ARCH_WASM32)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' is for the runtime, which target '%s' has not; a model for it is a program ahead of time: -f web (for "
          "browsers), -f o or -f c",
          path, target->text);
  if (kind != SOURCE) code_check_tools(ctx, target, path, "C source (.c, target 'c') needs none of it");
  if (kind != SHARED) linkable_check_header(ctx, path);
  scope_end(ctx, scope);
}

/* Under another name first: a reader never sees half of it. */
void compiled_export_artefact(Program *p, Code *const *code, const void *bytes, size_t n, const char *path,
                              WeightsPlace weights)
{
  Ctx *ctx = p->ctx;
  driver_check_export(ctx, p->target, path);
  FileKind kind = kind_of(ctx, p->target, path);
  if (p->prepare >= 0 && kind != SHARED)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' has its weights ready: compile with weights 'ready'; 'trained' is for .so, which is loaded", path);
  if (kind == SOURCE && p->module.n > p->device.n)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' is to be C source, but the model has functions of external compilers; write .so, .o or .a", path);
  if (kind == SOURCE && p->module.n > 1)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' is to be C source, but the model is for %d targets; write .so, .o or .a, or compile for 'c' alone",
          path, p->module.n);
  bool beside = kind == SOURCE && p->weights_bytes &&
                (weights == WEIGHTS_BESIDE || (weights == WEIGHTS_BY_SIZE && p->weights_bytes > WEIGHTS_TEXT_LIMIT));
  Scope scope = scope_begin(ctx);
  const char *made = arena_printf(scratch(ctx), "%s.%ld%s", path, (long)getpid(), endings[kind]);
  const char *name = linkable_name(scratch(ctx), path);
  const char *object = kind == ARCHIVE ? arena_printf(scratch(ctx), "%s/model.o", file_temp_dir(ctx)) : made;
  const char *data = arena_printf(scratch(ctx), "%s.weights", made);
  const char *data_path = arena_printf(scratch(ctx), "%s.weights", path);
  defer(ctx, remove_file, (void *)(uintptr_t)made);
  if (beside) defer(ctx, remove_file, (void *)(uintptr_t)data);
  if (kind == SOURCE) write_c(p, code[0], bytes, n, name, made, beside);
  else write_linked(p, code, bytes, n, object);
  if (kind == OBJECT || kind == ARCHIVE) linkable_rename(ctx, object, name);
  if (kind == ARCHIVE) linkable_archive(ctx, object, made, name);
  if (kind != SHARED) linkable_header(p, path);
  if (beside) write_weights(p, data);
  if (beside && rename(data, data_path))
    raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", data_path, strerror(errno));
  if (rename(made, path)) raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", path, strerror(errno));
  scope_end(ctx, scope);
}
