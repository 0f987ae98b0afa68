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

/* Zeros up to this place, then the bytes. */
static void put_at(ObjectFile *o, uint64_t *at, uint64_t place, const void *bytes, uint64_t n)
{
  object_put_zeros(o, place - *at);
  object_put(o, bytes, (size_t)n);
  *at = place + n;
}

/* Every constant at its offset; constants that share bytes are written once. */
static void put_constants(ObjectFile *o, const Program *p, uint64_t *at)
{
  for (int i = 0; i < p->constant.n; i++) {
    const ProgConst *c = &p->constant.v[i];
    if (!c->prepared && c->offset >= *at) put_at(o, at, c->offset, c->data->data, c->data->bytes);
  }
  for (int i = p->nlibraries; i < p->module.n; i++)
    put_at(o, at, p->module.v[i].offset, p->module.v[i].bytes, p->module.v[i].n);
  for (int i = 0; i < p->image.n; i++) put_at(o, at, p->image.v[i].offset, p->image.v[i].bytes, p->image.v[i].n);
}

typedef struct Models {
  int n;
  const ArtefactModel *v;
} Models;

static void put_weights(ObjectFile *o, const void *about)
{
  const Models *models = about;
  uint64_t at = 0;
  for (int i = 0; i < models->n; i++) put_constants(o, models->v[i].program, &at);
  object_put_zeros(o, models->v[0].program->weights_bytes - at);
}

/* What the table of a module's kernels is called, of the first model and of its variants. */
static const char *module_table(Arena *arena, int model, int module)
{
  const char *prefix = model ? arena_printf(arena, "v%d__", model) : "";
  return module ? arena_printf(arena, "%slathe_module_%d", prefix, module)
                : arena_printf(arena, "%slathe_module", prefix);
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

/* The last part of the object: for each model its table, followed by the addresses of its modules' tables; then the
 * list of variants. */
typedef struct Tables {
  Arena *arena;
  const TablePlaces *at;
  unsigned char *bytes;
  uint64_t n;
  Vec(ObjectSymbol) symbol;
  Vec(ObjectAddress) address;
} Tables;

static void add_address(Tables *t, uint64_t at, int part, uint64_t plus)
{
  vec_push(t->arena, &t->address, ((ObjectAddress){.at = at, .part = part, .plus = plus}));
}

/* The address of what is called so elsewhere. */
static void add_outside(Tables *t, uint64_t at, const char *name)
{
  vec_push(t->arena, &t->address, ((ObjectAddress){.at = at, .part = -1, .symbol = t->symbol.n}));
  vec_push(t->arena, &t->symbol, ((ObjectSymbol){.name = name, .part = -1}));
}

static uint64_t table_bytes(const Tables *t, const ArtefactModel *m)
{
  return (t->at->size + t->at->address * (uint64_t)m->program->nlibraries + 7) / 8 * 8;
}

static void add_table(Tables *t, int k, const ArtefactModel *m, int weights, int tables)
{
  const TablePlaces *at = t->at;
  const Program *p = m->program;
  unsigned char *table = t->bytes + t->n;
  memcpy(table, MODEL_MAGIC, 8);
  put_little(table + 8, at->size, 4);
  put_little(table + 12, (uint64_t)p->nlibraries, 4);
  put_little(table + at->program_bytes, m->n, 8);
  put_little(table + at->weights_bytes, p->weights_bytes, 8);
  add_address(t, t->n + at->program, k, 0);
  add_address(t, t->n + at->weights, weights, 0);
  add_address(t, t->n + at->modules, tables, t->n + at->size);
  for (int i = 0; i < p->nlibraries; i++)
    add_outside(t, t->n + at->size + at->address * (uint64_t)i, module_table(t->arena, k, i));
  t->n += table_bytes(t, m);
}

/* LatheRtVariant: the first model comes last, and zeros behind it. */
static void add_variants(Tables *t, const Models *models, int tables)
{
  vec_push(t->arena, &t->symbol, ((ObjectSymbol){.name = "lathe_variants", .part = tables, .at = t->n}));
  for (int i = 1; i <= models->n; i++) {
    int k = i % models->n;
    uint64_t table = 0;
    for (int before = 0; before < k; before++) table += table_bytes(t, &models->v[before]);
    add_outside(t, t->n, module_table(t->arena, k, 0));
    add_address(t, t->n + t->at->address, tables, table);
    t->n += 2 * t->at->address;
  }
  t->n += 2 * t->at->address;
}

static void write_object(const Models *models, const char *kernels, const char *path)
{
  Program *p = models->v[0].program;
  int n = models->n;
  int weights = n;
  int tables = n + 1;
  Arena *a = scratch(p->ctx);
  ObjectForm form = object_form(p->ctx, kernels, p->target->text);
  Tables t = {.arena = a, .at = &places[form.wide]};
  uint64_t most = 2 * t.at->address * (uint64_t)(n + 1);
  for (int k = 0; k < n; k++) most += table_bytes(&t, &models->v[k]);
  t.bytes = arena_alloc(a, (size_t)most);
  vec_push(a, &t.symbol, ((ObjectSymbol){.name = "lathe_model", .part = tables}));
  for (int k = 0; k < n; k++) add_table(&t, k, &models->v[k], weights, tables);
  if (n > 1) add_variants(&t, models, tables);
  ObjectPart *part = arena_array(a, ObjectPart, n + 2);
  for (int k = 0; k < n; k++)
    part[k] = (ObjectPart){
      .name = ".rodata.lathe_program", .bytes = models->v[k].n, .align = MODEL_ALIGN, .data = models->v[k].bytes};
  part[weights] = (ObjectPart){.name = ".rodata.lathe_weights",
                               .bytes = p->weights_bytes,
                               .align = MODEL_ALIGN,
                               .write = put_weights,
                               .about = models,
                               .large = is_large(p)};
  part[tables] =
      (ObjectPart){.name = ".data.rel.ro.lathe", .bytes = t.n, .align = 16, .data = t.bytes, .writable = true};
  object_write(p->ctx, &form,
               &(ObjectData){.nparts = n + 2,
                             .part = part,
                             .nsymbols = t.symbol.n,
                             .symbol = t.symbol.v,
                             .naddresses = t.address.n,
                             .address = t.address.v},
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

static void write_weights(const Models *models, const char *path)
{
  ObjectFile *o = object_open(models->v[0].program->ctx, path, "wb");
  put_weights(o, models);
  object_close(o);
}

static void write_c(const ArtefactModel *m, const char *name, const char *path, bool beside)
{
  Program *p = m->program;
  size_t ncode;
  const void *text = code_get(m->code[0], CODE_C, scratch(p->ctx), &ncode);
  ObjectFile *o = object_open(p->ctx, path, "wb");
  linkable_c_names(p, name, o->f);
  object_put(o, text, ncode);
  uint64_t column = 0;
  fprintf(o->f, "\n/* ---- the program and the weights ---- */\n");
  put_array(o, "lathe_program", m->bytes, m->n, &column);
  fprintf(o->f, "0};\n");
  if (beside) put_weights_beside(o, p, name);
  else put_weights_text(o, p);
  fprintf(o->f,
          "LATHE_EXPORT const struct {\n  char magic[8];\n  uint32_t size, nmodules;\n  const void *program;\n"
          "  uint64_t program_bytes;\n  const void *weights;\n  uint64_t weights_bytes;\n"
          "  const void *const *consts, *const *modules;\n} lathe_model = {\"%s\", sizeof lathe_model, 1, "
          "lathe_program, %zu, lathe_weights, %" PRIu64 ", 0, 0};\n",
          MODEL_MAGIC, m->n, p->weights_bytes);
  linkable_c_aliases(name, o->f);
  if (ferror(o->f)) raise(p->ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", path, strerror(errno));
  object_close(o);
}

/* ---- files ------------------------------------------------------------------------------------- */

static void remove_file(void *path) { unlink(path); }

/* The objects of a model's libraries.  The tables of all but the first library get names of their own before they meet,
 * and so does everything in a variant. */
typedef Vec(const char *) Objects;
static void add_objects(const Models *models, int k, Objects *out)
{
  const ArtefactModel *model = &models->v[k];
  Ctx *ctx = model->program->ctx;
  Arena *a = scratch(ctx);
  for (int m = 0; m < model->program->nlibraries; m++) {
    const char *folder = file_temp_dir(ctx);
    const char **kernels;
    int count = code_write_objects(model->code[m], folder, &kernels);
    if (k == 0 && m == 0) {
      for (int i = 0; i < count; i++) vec_push(a, out, kernels[i]);
      continue;
    }
    const char *whole = arena_printf(a, "%s/module.o", folder);
    code_link(model->code[m], count, kernels, whole);
    if (m) object_rename(ctx, whole, module_table(a, 0, 0), module_table(a, 0, m));
    if (k) object_prefix(ctx, whole, arena_printf(a, "v%d", k), 0, NULL);
    vec_push(a, out, whole);
  }
}

/* Links everything for a shared library, or (path ends in .o) into one object. */
static void write_linked(const Models *models, const char *path)
{
  Ctx *ctx = models->v[0].program->ctx;
  Arena *a = scratch(ctx);
  Objects objects = {0};
  for (int k = 0; k < models->n; k++) add_objects(models, k, &objects);
  const char *model = arena_printf(a, "%s/model.o", file_temp_dir(ctx));
  write_object(models, objects.v[0], model);
  vec_push(a, &objects, model);
  code_link(models->v[0].code[0], objects.n, objects.v, path);
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
  if (kind == SHARED && target->device.kind == DEVICE_MICRO)
    raise(
        ctx, ERR_UNSUPPORTED, NOWHERE,
        "'%s' is a shared library, which nothing on target '%s' would load; a model for a microcontroller is a program "
        "ahead of time: -f c, -f a, -f o or -f mlf (from Python, relay.build with Executor(\"aot\"))",
        path, target->text);
  if (kind != SOURCE) code_check_tools(ctx, target, path, "C source (.c, target 'c') needs none of it");
  if (kind != SHARED) linkable_check_header(ctx, path);
  scope_end(ctx, scope);
}

static void check_contents(const Program *p, int nmodels, FileKind kind, const char *path)
{
  Ctx *ctx = p->ctx;
  if (nmodels > 1 && kind != SHARED)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "'%s' is to be linked, but variants are chosen when a file is loaded; write .so, or compile for one CPU",
          path);
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
}

/* Under another name first: a reader never sees half of it. */
void compiled_export_artefact(int nmodels, const ArtefactModel *model, const char *path, WeightsPlace weights)
{
  Program *p = model[0].program;
  Ctx *ctx = p->ctx;
  const Models models = {nmodels, model};
  driver_check_export(ctx, p->target, path);
  FileKind kind = kind_of(ctx, p->target, path);
  check_contents(p, nmodels, kind, path);
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
  if (kind == SOURCE) write_c(model, name, made, beside);
  else write_linked(&models, object);
  if (kind == OBJECT || kind == ARCHIVE) linkable_rename(ctx, object, name);
  if (kind == ARCHIVE) linkable_archive(ctx, object, made, name);
  if (kind != SHARED) linkable_header(p, path);
  if (beside) write_weights(&models, data);
  if (beside && rename(data, data_path))
    raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", data_path, strerror(errno));
  if (rename(made, path)) raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", path, strerror(errno));
  scope_end(ctx, scope);
}
