/* elf.c: a compiled model as a file, of any machine: read and checked, nothing of it loaded or run.
 *
 * The two tables that Lathe's files export, lathe_module and lathe_model (include/lathe_rt.h), are found by the
 * file's symbols.  A pointer in them is what a relocation says of its place, or else the number that stands there.
 * An address of a shared library is what its sections say; in an object, whose sections have no addresses yet, the
 * place in the file serves as one.  Every place and length is checked against the file before it is read; the
 * program itself is then checked by the runtime's own reader. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* A table of functions. */
typedef struct ElfCode {
  LatheRtModuleInfo info;  /* as the file has it */
  LatheRtModuleInfo shown; /* the same for any machine, with functions that do nothing */
  LatheRtFuncInfo *func;
} ElfCode;

enum { MOST_MODULES = 64 };

struct ElfModel {
  void *map;
  size_t mapped;
  const unsigned char *bytes; /* of the ELF file: all that is mapped, or a member of an archive */
  size_t n;
  Elf64_Ehdr h;
  Elf64_Shdr *section;
  const char *path;
  LatheRtError *err;
  ElfCode code[MOST_MODULES]; /* the first is lathe_module; then those that the model lists beside it */
  uint32_t ncode;
  LatheRtModule *module;
  LatheRtModel *model;
  const char *variant[MOST_MODULES]; /* features of each; the last is the one that is read */
  uint32_t nvariants;                /* 0: the file has one model */
};

__attribute__((format(printf, 2, 3))) static bool bad(ElfModel *e, const char *fmt, ...)
{
  char why[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  snprintf(e->err->text, sizeof e->err->text, "'%.150s' %s", e->path, why);
  return false;
}

/* ---- the file ------------------------------------------------------------------------------ */

static const void *bytes_at(const ElfModel *e, uint64_t at, uint64_t n)
{
  return at <= e->n && n <= e->n - at ? e->bytes + at : NULL;
}

static bool map_file(ElfModel *e)
{
  struct stat st;
  int fd = open(e->path, O_RDONLY | O_CLOEXEC);
  bool ok = fd >= 0 && !fstat(fd, &st);
  if (ok && st.st_size > 0) {
    e->mapped = (size_t)st.st_size;
    e->map = mmap(NULL, e->mapped, PROT_READ, MAP_PRIVATE, fd, 0);
    ok = e->map != MAP_FAILED;
    if (!ok) e->map = NULL;
  }
  int why = errno;
  if (fd >= 0) close(fd);
  if (!ok) return bad(e, "cannot be read: %s", strerror(why));
  e->bytes = e->map;
  e->n = e->mapped;
  return true;
}

/* An archive of Lathe's has an index and one object. */
static bool enter_archive(ElfModel *e)
{
  enum { MARK = 8, HEAD = 60 };
  if (e->n < MARK || memcmp(e->bytes, "!<arch>\n", MARK)) return true;
  for (size_t at = MARK; at + HEAD <= e->n;) {
    char size[11] = {0};
    memcpy(size, e->bytes + at + 48, 10);
    unsigned long long n = strtoull(size, NULL, 10);
    if (n > e->n - at - HEAD) break;
    if (n >= 4 && !memcmp(e->bytes + at + HEAD, ELFMAG, SELFMAG)) {
      e->bytes += at + HEAD;
      e->n = (size_t)n;
      return true;
    }
    at += HEAD + (size_t)n + n % 2;
  }
  return bad(e, "is an archive without an object of Lathe's");
}

static bool read_sections(ElfModel *e)
{
  const void *head = bytes_at(e, 0, sizeof e->h);
  if (!head || memcmp(head, ELFMAG, SELFMAG)) return bad(e, "is no compiled model: it is no ELF file");
  memcpy(&e->h, head, sizeof e->h);
  if (e->h.e_ident[EI_CLASS] != ELFCLASS64 || e->h.e_ident[EI_DATA] != ELFDATA2LSB)
    return bad(e, "is an ELF file of a machine with 32 bits or another order of bytes, which are not looked into");
  if (e->h.e_type != ET_DYN && e->h.e_type != ET_REL)
    return bad(e, "is no compiled model: it is neither a shared library nor an object");
  uint64_t bytes = (uint64_t)e->h.e_shnum * sizeof *e->section;
  const void *sections = e->h.e_shentsize == sizeof *e->section ? bytes_at(e, e->h.e_shoff, bytes) : NULL;
  if (!sections || !bytes) return bad(e, "is broken or cut short: its table of sections is not there");
  e->section = malloc(bytes);
  if (!e->section) return bad(e, "cannot be read: out of memory");
  memcpy(e->section, sections, bytes);
  return true;
}

static bool is_object(const ElfModel *e) { return e->h.e_type == ET_REL; }
static uint64_t section_address(const ElfModel *e, const Elf64_Shdr *s)
{
  return is_object(e) ? s->sh_offset : s->sh_addr;
}

/* What lies at an address; NULL: not in the file. */
static const void *memory(const ElfModel *e, uint64_t address, uint64_t n)
{
  for (int i = 0; i < e->h.e_shnum; i++) {
    const Elf64_Shdr *s = &e->section[i];
    uint64_t start = section_address(e, s);
    if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == SHT_NOBITS || address < start) continue;
    uint64_t within = address - start;
    if (within <= s->sh_size && n <= s->sh_size - within && s->sh_offset <= e->n)
      return within <= e->n - s->sh_offset ? bytes_at(e, s->sh_offset + within, n) : NULL;
  }
  return NULL;
}

static const char *text_at(const ElfModel *e, uint64_t address)
{
  const char *s = memory(e, address, 1);
  return s && memchr(s, 0, (size_t)((const char *)e->bytes + e->n - s)) ? s : NULL;
}

/* ---- symbols and relocations ---------------------------------------------------------------- */

/* Symbol i of a table: its address. */
static bool symbol_address(const ElfModel *e, const Elf64_Shdr *table, uint64_t i, uint64_t *out)
{
  Elf64_Sym y;
  const void *at = i < table->sh_size / sizeof y ? bytes_at(e, table->sh_offset + i * sizeof y, sizeof y) : NULL;
  if (!at) return false;
  memcpy(&y, at, sizeof y);
  *out = y.st_value;
  if (!is_object(e)) return y.st_shndx != SHN_UNDEF;
  if (y.st_shndx == SHN_UNDEF || y.st_shndx >= e->h.e_shnum) return false;
  *out += e->section[y.st_shndx].sh_offset;
  return true;
}

static bool find_symbol(const ElfModel *e, const char *name, uint64_t *out)
{
  for (int i = 0; i < e->h.e_shnum; i++) {
    const Elf64_Shdr *s = &e->section[i];
    if (s->sh_type != (is_object(e) ? SHT_SYMTAB : SHT_DYNSYM) || s->sh_link >= e->h.e_shnum) continue;
    const Elf64_Shdr *names = &e->section[s->sh_link];
    const char *strings = bytes_at(e, names->sh_offset, names->sh_size);
    for (uint64_t k = 0; strings && k < s->sh_size / sizeof(Elf64_Sym); k++) {
      Elf64_Sym y;
      const void *at = bytes_at(e, s->sh_offset + k * sizeof y, sizeof y);
      if (!at) return false;
      memcpy(&y, at, sizeof y);
      size_t room = y.st_name < names->sh_size ? (size_t)(names->sh_size - y.st_name) : 0;
      if (room > strlen(name) && !memcmp(strings + y.st_name, name, strlen(name) + 1))
        return symbol_address(e, s, k, out);
    }
  }
  return false;
}

/* Relocations that say "this address" and "this far from where the library lies". */
static bool is_address(const ElfModel *e, uint64_t type, bool *relative)
{
  static const struct {
    unsigned machine, absolute, relative;
  } rows[] = {{EM_X86_64, 1, 8}, {EM_AARCH64, 257, 1027}, {EM_RISCV, 2, 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].machine == e->h.e_machine) {
      *relative = type == rows[i].relative;
      return *relative || type == rows[i].absolute;
    }
  return false;
}

/* The pointer that stands at an address once the file is loaded. */
static uint64_t pointer_at(const ElfModel *e, uint64_t address)
{
  for (int i = 0; i < e->h.e_shnum; i++) {
    const Elf64_Shdr *s = &e->section[i];
    if (s->sh_type != SHT_RELA || (is_object(e) && s->sh_info >= e->h.e_shnum)) continue;
    uint64_t base = is_object(e) ? e->section[s->sh_info].sh_offset : 0;
    for (uint64_t k = 0; k < s->sh_size / sizeof(Elf64_Rela); k++) {
      Elf64_Rela r;
      const void *at = bytes_at(e, s->sh_offset + k * sizeof r, sizeof r);
      if (!at) break;
      memcpy(&r, at, sizeof r);
      bool relative;
      uint64_t to = 0;
      if (base + r.r_offset != address || !is_address(e, ELF64_R_TYPE(r.r_info), &relative)) continue;
      if (!relative &&
          (s->sh_link >= e->h.e_shnum || !symbol_address(e, &e->section[s->sh_link], ELF64_R_SYM(r.r_info), &to)))
        return 0;
      return to + (uint64_t)r.r_addend;
    }
  }
  uint64_t value = 0;
  const void *at = memory(e, address, sizeof value);
  if (at) memcpy(&value, at, sizeof value);
  return value;
}

/* ---- the tables ---------------------------------------------------------------------------------- */

static int32_t no_call(const LatheRtSlot *slots, void *workspace, const LatheRtCalls *calls)
{
  (void)slots, (void)workspace, (void)calls;
  return 1;
}
static void no_shape(const LatheRtSlot *slots, int64_t *out) { (void)slots, (void)out; }

/* n items of a table, with their names found. */
static void *read_items(const ElfModel *e, uint64_t address, int32_t n, size_t size)
{
  const void *from = n >= 0 ? memory(e, address, (uint64_t)n * size) : NULL;
  char *to = from ? malloc((size_t)n * size + 1) : NULL;
  if (!to) return NULL;
  memcpy(to, from, (size_t)n * size);
  for (int32_t i = 0; i < n; i++) { /* the first field of each is its name */
    const char *name = text_at(e, pointer_at(e, address + (uint64_t)i * size));
    if (!name) {
      free(to);
      return NULL;
    }
    memcpy(to + (size_t)i * size, &name, sizeof name);
  }
  return to;
}

#define FIELD(type, address, field) pointer_at(e, (address) + offsetof(type, field))

static bool read_function(ElfModel *e, uint64_t at, LatheRtFuncInfo *f)
{
  f->call = no_call;
  f->shape = no_shape;
  f->args = NULL;
  f->sizes = NULL;
  if (f->nargs) f->args = read_items(e, FIELD(LatheRtFuncInfo, at, args), f->nargs, sizeof *f->args);
  if (f->nsizes) f->sizes = read_items(e, FIELD(LatheRtFuncInfo, at, sizes), f->nsizes, sizeof *f->sizes);
  return (!f->nargs || f->args) && (!f->nsizes || f->sizes);
}

static bool read_code(ElfModel *e, uint64_t at)
{
  ElfCode *c = &e->code[e->ncode++];
  const void *table = memory(e, at, sizeof c->info);
  if (!table) return bad(e, "is broken: a table of functions is not there");
  memcpy(&c->info, table, sizeof c->info);
  if (!memcmp(c->info.magic, "LATHERT", 8) && c->info.abi != LATHE_RT_ABI)
    return bad(e, "has ABI %u, this program has ABI %d; compile it again", c->info.abi, LATHE_RT_ABI);
  c->info.arch = text_at(e, FIELD(LatheRtModuleInfo, at, arch));
  c->info.features = text_at(e, FIELD(LatheRtModuleInfo, at, features));
  c->shown = c->info;
  c->shown.arch = c->shown.features = NULL;
  uint64_t funcs = FIELD(LatheRtModuleInfo, at, funcs);
  if (c->info.nfuncs) c->func = read_items(e, funcs, c->info.nfuncs, sizeof *c->func);
  if (!c->info.arch || !c->info.features || (c->info.nfuncs && !c->func)) {
    c->shown.nfuncs = 0;
    return bad(e, "is broken: its table of functions cannot be read");
  }
  c->shown.funcs = c->func;
  for (c->shown.nfuncs = 0; c->shown.nfuncs < c->info.nfuncs; c->shown.nfuncs++) {
    int32_t i = c->shown.nfuncs;
    if (read_function(e, funcs + (uint64_t)i * sizeof *c->func, &c->func[i])) continue;
    c->shown.nfuncs++; /* what was read of it is freed with the others */
    return bad(e, "is broken: the entry of function '%.60s' cannot be read", c->func[i].name);
  }
  return true;
}

static bool read_module(ElfModel *e)
{
  uint64_t at;
  if (!find_symbol(e, "lathe_module", &at)) return bad(e, "was not made by Lathe: it has no symbol 'lathe_module'");
  if (!read_code(e, at)) return false;
  return lathe_rt_module_wrap(&e->code[0].shown, NULL, NULL, &e->module, e->err) == LATHE_RT_OK ||
         bad(e, "is broken: %.250s", e->err->text);
}

/* The libraries that a model lists; NULL: there is one. */
static bool read_modules(ElfModel *e, uint64_t at, LatheRtModelData *data, const LatheRtModuleInfo **list)
{
  uint64_t table = FIELD(LatheRtModelData, at, modules);
  data->modules = NULL;
  if (data->nmodules <= 1) return true;
  if (data->nmodules > MOST_MODULES || !memory(e, table, data->nmodules * sizeof(void *)))
    return bad(e, "is broken: its list of modules cannot be read");
  for (uint32_t i = 0; i < data->nmodules; i++) {
    if (i && !read_code(e, pointer_at(e, table + i * sizeof(void *)))) return false;
    list[i] = &e->code[i].shown;
  }
  data->modules = list;
  return true;
}

static bool read_model(ElfModel *e)
{
  uint64_t at;
  LatheRtModelData data;
  if (!find_symbol(e, "lathe_model", &at)) return bad(e, "has kernels alone, no model");
  const void *table = memory(e, at, sizeof data);
  if (!table) return bad(e, "is broken: its table cannot be read");
  memcpy(&data, table, sizeof data);
  data.program = memory(e, FIELD(LatheRtModelData, at, program), data.program_bytes);
  data.weights = memory(e, FIELD(LatheRtModelData, at, weights), data.weights_bytes);
  data.consts = NULL;
  const LatheRtModuleInfo *list[MOST_MODULES];
  if (!read_modules(e, at, &data, list)) return false;
  LatheRtLoad how = {LATHE_RT_INIT(how), .look_only = 1};
  if (!data.program || (data.weights_bytes && !data.weights))
    return bad(e, "is broken or cut short: its program or its weights are not there");
  return lathe_rt_model_wrap(e->module, &data, &how, NULL, NULL, &e->model, e->err) == LATHE_RT_OK ||
         bad(e, "is broken: %.250s", e->err->text);
}

/* What each variant asks of the CPU, the most demanding first. */
static bool read_variants(ElfModel *e)
{
  uint64_t at;
  if (!find_symbol(e, "lathe_variants", &at)) return true;
  for (; memory(e, at, sizeof(LatheRtVariant)); at += sizeof(LatheRtVariant)) {
    uint64_t module = FIELD(LatheRtVariant, at, module);
    if (!module) return true;
    const char *features = text_at(e, FIELD(LatheRtModuleInfo, module, features));
    if (!features || e->nvariants == MOST_MODULES) break;
    e->variant[e->nvariants++] = features;
  }
  return bad(e, "is broken: its list of variants cannot be read");
}

/* ---- the whole -------------------------------------------------------------------------------------- */

bool cli_elf_open(const char *path, ElfModel **out, LatheRtError *err)
{
  ElfModel *e = *out = calloc(1, sizeof *e);
  if (!e) {
    snprintf(err->text, sizeof err->text, "out of memory");
    return false;
  }
  e->path = path;
  e->err = err;
  if (map_file(e) && enter_archive(e) && read_sections(e) && read_module(e) && read_model(e) && read_variants(e))
    return true;
  cli_elf_close(e);
  *out = NULL;
  return false;
}

const LatheRtModel *cli_elf_model(const ElfModel *e) { return e->model; }
const char *cli_elf_arch(const ElfModel *e) { return e->code[0].info.arch; }
const char *cli_elf_features(const ElfModel *e) { return e->code[0].info.features; }
uint32_t cli_elf_variants(const ElfModel *e) { return e->nvariants; }
const char *cli_elf_variant_features(const ElfModel *e, uint32_t i) { return e->variant[i]; }

void cli_elf_close(ElfModel *e)
{
  lathe_rt_model_free(e->model);
  lathe_rt_module_free(e->module);
  for (uint32_t k = 0; k < e->ncode; k++) {
    const ElfCode *c = &e->code[k];
    for (int32_t i = 0; i < c->shown.nfuncs && c->func; i++) {
      free((void *)(uintptr_t)c->func[i].args);
      free((void *)(uintptr_t)c->func[i].sizes);
    }
    free(c->func);
  }
  free(e->section);
  if (e->map) munmap(e->map, e->mapped);
  free(e);
}
