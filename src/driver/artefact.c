/* artefact.c: one file that holds kernels, program and weights.
 *
 * The kernels come as object files.  Beside them another one is written here, an ELF object
 * of
 *   .rodata.lathe_program   the program
 *   .rodata.lathe_weights   the constants, each at a multiple of 64 (.lrodata on x86-64 when
 *                           they are large: code need not reach them)
 *   .data.rel.ro.lathe      LatheRtModelData, exported as lathe_model
 * and all are linked.  Weights go from where the graph has them straight to the file.
 *
 * C source has the same three as arrays; large weights lie in a file beside it, which the assembler takes in. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "driver/linkable.h"

typedef struct File {
  Ctx *ctx;
  FILE *f;
  const char *path;
} File;

static void close_file(void *arg)
{
  File *o = arg;
  if (o->f) fclose(o->f);
}

static File *open_file(Ctx *ctx, const char *path)
{
  File *o = arena_new_of(scratch(ctx), File);
  *o = (File){.ctx = ctx, .path = path};
  o->f = fopen(path, "wb");
  if (!o->f) raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", path, strerror(errno));
  defer(ctx, close_file, o);
  return o;
}

static void put(File *o, const void *data, size_t n)
{
  if (n && fwrite(data, 1, n, o->f) != n)
    raise(o->ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", o->path, strerror(errno));
}

static void put_zeros(File *o, uint64_t n)
{
  static const char zeros[64];
  for (; n; n -= n < sizeof zeros ? n : sizeof zeros) put(o, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros);
}

static void finish(File *o)
{
  int failed = fclose(o->f);
  o->f = NULL;
  if (failed) raise(o->ctx, ERR_IO, NOWHERE, "'%s' cannot be written: %s", o->path, strerror(errno));
}

/* Every constant at its offset; constants that share bytes are written once. */
static void put_weights(File *o, const Program *p)
{
  uint64_t at = 0;
  for (int i = 0; i < p->constant.n; i++) {
    const ProgConst *c = &p->constant.v[i];
    if (c->prepared || c->offset < at) continue;
    put_zeros(o, c->offset - at);
    put(o, c->data->data, c->data->bytes);
    at = c->offset + c->data->bytes;
  }
  for (int i = 0; i < p->image.n; i++) {
    const ProgImage *image = &p->image.v[i];
    put_zeros(o, image->offset - at);
    put(o, image->bytes, image->n);
    at = image->offset + image->n;
  }
  put_zeros(o, p->weights_bytes - at);
}

/* What the table of a module's kernels is called. */
static const char *module_table(Arena *arena, int module)
{
  return module ? arena_printf(arena, "lathe_module_%d", module) : "lathe_module";
}

/* ---- the object -------------------------------------------------------------------------- */

enum { S_NONE, S_PROGRAM, S_WEIGHTS, S_TABLE, S_RELOCS, S_SYMBOLS, S_NAMES, S_SECTIONS, S_STACK, S_COUNT };
/* Symbols: three sections, the model, then the table of each module's kernels. */
enum { Y_NONE, Y_PROGRAM, Y_WEIGHTS, Y_TABLE, Y_MODEL, Y_MODULES };
static const char section_names[] = "\0.rodata.lathe_program\0.rodata.lathe_weights\0.lrodata\0.data.rel.ro.lathe\0"
                                    ".rela.data.rel.ro.lathe\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";

static Elf64_Word section_name(const char *name)
{
  for (size_t i = 1; i < sizeof section_names; i += strlen(section_names + i) + 1)
    if (!strcmp(section_names + i, name)) return (Elf64_Word)i;
  return 0;
}

static uint64_t up(uint64_t n, uint64_t align) { return (n + align - 1) / align * align; }

/* How this machine says "a 64-bit address"; 0: not known. */
static unsigned address_reloc(unsigned machine)
{
  switch (machine) {
  case EM_X86_64: return 1;
  case EM_AARCH64: return 257;
  case EM_RISCV: return 2;
  }
  return 0;
}

static Elf64_Shdr section(const char *name, unsigned type, unsigned flags, uint64_t at, uint64_t size, uint64_t align)
{
  return (Elf64_Shdr){.sh_name = section_name(name),
                      .sh_type = type,
                      .sh_flags = flags,
                      .sh_offset = at,
                      .sh_size = size,
                      .sh_addralign = align};
}

/* Too much for code to reach across with 32 bits. */
static bool is_large(const Program *p) { return p->weights_bytes > (uint64_t)1 << 30; }

/* The table is followed by the addresses of the modules' tables. */
static void lay_out(const Program *p, size_t nprogram, size_t nnames, unsigned machine, Elf64_Shdr *s)
{
  uint64_t modules = (uint64_t)p->module.n;
  uint64_t table = sizeof(LatheRtModelData) + 8 * modules;
  bool large = is_large(p) && machine == EM_X86_64;
  enum { LARGE_FLAG = 0x10000000 };
  uint64_t at = 64;
  s[S_PROGRAM] = section(".rodata.lathe_program", SHT_PROGBITS, SHF_ALLOC, at, nprogram, MODEL_ALIGN);
  at = up(at + nprogram, MODEL_ALIGN);
  s[S_WEIGHTS] = section(large ? ".lrodata" : ".rodata.lathe_weights", SHT_PROGBITS,
                         SHF_ALLOC | (large ? LARGE_FLAG : 0), at, p->weights_bytes, MODEL_ALIGN);
  at = up(at + p->weights_bytes, 16);
  s[S_TABLE] = section(".data.rel.ro.lathe", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, at, table, 16);
  at = up(at + table, 16);
  s[S_RELOCS] = section(".rela.data.rel.ro.lathe", SHT_RELA, SHF_INFO_LINK, at, (3 + modules) * sizeof(Elf64_Rela), 8);
  s[S_RELOCS].sh_link = S_SYMBOLS;
  s[S_RELOCS].sh_info = S_TABLE;
  s[S_RELOCS].sh_entsize = sizeof(Elf64_Rela);
  at += s[S_RELOCS].sh_size;
  s[S_SYMBOLS] = section(".symtab", SHT_SYMTAB, 0, at, (Y_MODULES + modules) * sizeof(Elf64_Sym), 8);
  s[S_SYMBOLS].sh_link = S_NAMES;
  s[S_SYMBOLS].sh_info = Y_MODEL;
  s[S_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
  at += s[S_SYMBOLS].sh_size;
  s[S_NAMES] = section(".strtab", SHT_STRTAB, 0, at, nnames, 1);
  at += nnames;
  s[S_SECTIONS] = section(".shstrtab", SHT_STRTAB, 0, at, sizeof section_names, 1);
  at += sizeof section_names;
  s[S_STACK] = section(".note.GNU-stack", SHT_PROGBITS, 0, at, 0, 1);
}

/* machine and flags are taken from the kernels' object, so that the two can be linked. */
static Elf64_Ehdr read_header(Ctx *ctx, const Target *t, const char *object)
{
  size_t n;
  Elf64_Ehdr h;
  const char *bytes = file_read(scratch(ctx), object, &n, 0);
  bool fits = n >= sizeof h;
  if (fits) memcpy(&h, bytes, sizeof h);
  if (!fits || memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_ident[EI_DATA] != ELFDATA2LSB || !address_reloc(h.e_machine))
    raise(
        ctx, ERR_UNSUPPORTED, NOWHERE,
        "target '%s': a model file can be made for 64-bit ELF machines (x86-64, AArch64, RISC-V); write .c for others",
        t->text);
  return h;
}

static Elf64_Rela reloc_to(uint64_t at, unsigned symbol, unsigned type, uint64_t offset)
{
  return (Elf64_Rela){at, ELF64_R_INFO((uint64_t)symbol, type), (int64_t)offset};
}

static void write_object(Program *p, const char *kernels, const void *bytes, size_t n, const char *path)
{
  Elf64_Ehdr from = read_header(p->ctx, p->target, kernels);
  Elf64_Ehdr h = {0};
  Elf64_Shdr s[S_COUNT] = {0};
  Arena *a = scratch(p->ctx);
  int modules = p->module.n;
  unsigned type = address_reloc(from.e_machine);
  LatheRtModelData *table = arena_alloc(a, sizeof *table + 8 * (size_t)modules);
  *table = (LatheRtModelData){.magic = MODEL_MAGIC,
                              .size = sizeof *table,
                              .nmodules = (uint32_t)modules,
                              .program_bytes = n,
                              .weights_bytes = p->weights_bytes};
  Elf64_Rela *reloc = arena_array(a, Elf64_Rela, 3 + modules);
  Elf64_Sym *symbol = arena_array(a, Elf64_Sym, Y_MODULES + modules);
  Text names = text_new(a);
  text_addn(&names, "", 1);
  reloc[0] = reloc_to(offsetof(LatheRtModelData, program), Y_PROGRAM, type, 0);
  reloc[1] = reloc_to(offsetof(LatheRtModelData, weights), Y_WEIGHTS, type, 0);
  reloc[2] = reloc_to(offsetof(LatheRtModelData, modules), Y_TABLE, type, sizeof *table);
  static const int sections[] = {[Y_PROGRAM] = S_PROGRAM, [Y_WEIGHTS] = S_WEIGHTS, [Y_TABLE] = S_TABLE};
  for (int i = Y_PROGRAM; i <= Y_TABLE; i++)
    symbol[i] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = (Elf64_Section)sections[i]};
  symbol[Y_MODEL] = (Elf64_Sym){.st_name = (Elf64_Word)names.n,
                                .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                                .st_shndx = S_TABLE,
                                .st_size = sizeof *table};
  text_addn(&names, "lathe_model", sizeof "lathe_model");
  for (int i = 0; i < modules; i++) {
    const char *name = module_table(a, i);
    symbol[Y_MODULES + i] = (Elf64_Sym){.st_name = (Elf64_Word)names.n, .st_info = ELF64_ST_INFO(STB_GLOBAL, 0)};
    text_addn(&names, name, strlen(name) + 1);
    reloc[3 + i] = reloc_to(sizeof *table + 8 * (uint64_t)i, (unsigned)(Y_MODULES + i), type, 0);
  }
  lay_out(p, n, names.n, from.e_machine, s);
  memcpy(h.e_ident, from.e_ident, EI_NIDENT);
  h.e_type = ET_REL;
  h.e_machine = from.e_machine;
  h.e_flags = from.e_flags;
  h.e_version = EV_CURRENT;
  h.e_ehsize = sizeof h;
  h.e_shentsize = sizeof *s;
  h.e_shnum = S_COUNT;
  h.e_shstrndx = S_SECTIONS;
  h.e_shoff = up(s[S_STACK].sh_offset, 16);
  const void *content[S_COUNT] = {[S_PROGRAM] = bytes,  [S_TABLE] = table,   [S_RELOCS] = reloc,
                                  [S_SYMBOLS] = symbol, [S_NAMES] = names.s, [S_SECTIONS] = section_names};
  File *o = open_file(p->ctx, path);
  put(o, &h, sizeof h);
  uint64_t at = sizeof h;
  for (int i = 1; i < S_COUNT; i++) {
    put_zeros(o, s[i].sh_offset - at);
    if (i == S_WEIGHTS) put_weights(o, p);
    else put(o, content[i], (size_t)s[i].sh_size);
    at = s[i].sh_offset + s[i].sh_size;
  }
  put_zeros(o, h.e_shoff - at);
  put(o, s, sizeof s);
  finish(o);
}

/* ---- C source ------------------------------------------------------------------------------- */

static void put_array(File *o, const char *name, const void *data, size_t n, uint64_t *column)
{
  const unsigned char *b = data;
  if (name) fprintf(o->f, "static const unsigned char %s[] __attribute__((aligned(64))) = {\n", name);
  for (size_t i = 0; i < n; i++) fprintf(o->f, "%u,%s", b[i], ++*column % 24 ? "" : "\n");
}

static void put_weights_text(File *o, const Program *p)
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
static void put_weights_beside(File *o, const Program *p, const char *name)
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
  File *o = open_file(p->ctx, path);
  put_weights(o, p);
  finish(o);
}

static void write_c(Program *p, Code *code, const void *bytes, size_t n, const char *name, const char *path,
                    bool beside)
{
  size_t ncode;
  const void *text = code_get(code, CODE_C, scratch(p->ctx), &ncode);
  File *o = open_file(p->ctx, path);
  linkable_c_names(p, name, o->f);
  put(o, text, ncode);
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
  finish(o);
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
  for (int m = 0; m < p->module.n; m++) {
    const char *folder = file_temp_dir(ctx);
    const char **kernels;
    int count = code_write_objects(code[m], folder, &kernels);
    if (m == 0) {
      for (int i = 0; i < count; i++) vec_push(a, &objects, kernels[i]);
      continue;
    }
    const char *whole = arena_printf(a, "%s/module.o", folder);
    code_link(code[m], count, kernels, whole);
    linkable_rename_one(ctx, whole, module_table(a, 0), module_table(a, m));
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
