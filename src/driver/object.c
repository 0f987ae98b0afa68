/* object.c: object files, as much of them as a model needs.
 *
 * Headers, sections and symbols are held as ELF 64 has them and become those of ELF 32 on their way to and from the
 * file.  An object that is written here is
 *   header | parts | addresses | symbols | names | names of sections | section headers
 * Names are changed in place: new tables of symbols and names go to the end, and the section headers are told.  What
 * the sections hold is not touched. */
#include <elf.h>
#include <errno.h>

#include "driver/object.h"

/* ---- files ------------------------------------------------------------------------------------ */

static void close_file(void *arg)
{
  ObjectFile *o = arg;
  if (o->f) fclose(o->f);
}

static _Noreturn void bad(const ObjectFile *o)
{
  raise(o->ctx, ERR_IO, NOWHERE, "'%s' cannot be read or written: %s", o->path,
        errno ? strerror(errno) : "it is too short");
}

ObjectFile *object_open(Ctx *ctx, const char *path, const char *mode)
{
  ObjectFile *o = arena_new_of(scratch(ctx), ObjectFile);
  *o = (ObjectFile){.ctx = ctx, .f = fopen(path, mode), .path = path};
  if (!o->f) bad(o);
  defer(ctx, close_file, o);
  return o;
}

void object_put(ObjectFile *o, const void *data, size_t n)
{
  errno = 0;
  if (n && fwrite(data, 1, n, o->f) != n) bad(o);
}

void object_put_zeros(ObjectFile *o, uint64_t n)
{
  static const char zeros[64];
  for (; n; n -= n < sizeof zeros ? n : sizeof zeros) object_put(o, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros);
}

void object_close(ObjectFile *o)
{
  FILE *f = o->f;
  o->f = NULL;
  errno = 0;
  if (fclose(f)) bad(o);
}

static void *get(ObjectFile *o, uint64_t at, uint64_t n)
{
  void *to = arena_alloc(scratch(o->ctx), (size_t)n + 1);
  errno = 0;
  if (fseeko(o->f, (off_t)at, SEEK_SET) || fread(to, 1, (size_t)n, o->f) != n) bad(o);
  return to;
}

static void set(ObjectFile *o, uint64_t at, const void *data, uint64_t n)
{
  errno = 0;
  if (fseeko(o->f, (off_t)at, SEEK_SET)) bad(o);
  object_put(o, data, (size_t)n);
}

/* ---- both sizes --------------------------------------------------------------------------------- */

static void *copy_of(Arena *a, const void *data, size_t n)
{
  void *p = arena_alloc(a, n + 1);
  if (n) memcpy(p, data, n);
  return p;
}

static size_t header_bytes(bool wide) { return wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr); }
static size_t section_bytes(bool wide) { return wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr); }
static size_t symbol_bytes(bool wide) { return wide ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym); }

static void *pack_header(Arena *a, bool wide, const Elf64_Ehdr *h)
{
  if (wide) return copy_of(a, h, sizeof *h);
  Elf32_Ehdr *n = arena_new_of(a, Elf32_Ehdr);
  *n = (Elf32_Ehdr){.e_type = h->e_type,
                    .e_machine = h->e_machine,
                    .e_version = h->e_version,
                    .e_shoff = (Elf32_Off)h->e_shoff,
                    .e_flags = h->e_flags,
                    .e_ehsize = h->e_ehsize,
                    .e_shentsize = h->e_shentsize,
                    .e_shnum = h->e_shnum,
                    .e_shstrndx = h->e_shstrndx};
  memcpy(n->e_ident, h->e_ident, EI_NIDENT);
  return n;
}

static Elf64_Ehdr unpack_header(const void *p, bool wide)
{
  Elf64_Ehdr h;
  Elf32_Ehdr n;
  if (wide) {
    memcpy(&h, p, sizeof h);
    return h;
  }
  memcpy(&n, p, sizeof n);
  h = (Elf64_Ehdr){.e_type = n.e_type,
                   .e_machine = n.e_machine,
                   .e_version = n.e_version,
                   .e_shoff = n.e_shoff,
                   .e_flags = n.e_flags,
                   .e_ehsize = n.e_ehsize,
                   .e_shentsize = n.e_shentsize,
                   .e_shnum = n.e_shnum,
                   .e_shstrndx = n.e_shstrndx};
  memcpy(h.e_ident, n.e_ident, EI_NIDENT);
  return h;
}

static void *pack_sections(Arena *a, bool wide, const Elf64_Shdr *s, int n)
{
  if (wide) return copy_of(a, s, (size_t)n * sizeof *s);
  Elf32_Shdr *out = arena_array(a, Elf32_Shdr, n);
  for (int i = 0; i < n; i++)
    out[i] = (Elf32_Shdr){.sh_name = s[i].sh_name,
                          .sh_type = s[i].sh_type,
                          .sh_flags = (Elf32_Word)s[i].sh_flags,
                          .sh_addr = (Elf32_Addr)s[i].sh_addr,
                          .sh_offset = (Elf32_Off)s[i].sh_offset,
                          .sh_size = (Elf32_Word)s[i].sh_size,
                          .sh_link = s[i].sh_link,
                          .sh_info = s[i].sh_info,
                          .sh_addralign = (Elf32_Word)s[i].sh_addralign,
                          .sh_entsize = (Elf32_Word)s[i].sh_entsize};
  return out;
}

static Elf64_Shdr *unpack_sections(Arena *a, bool wide, const void *p, int n)
{
  Elf64_Shdr *out = arena_array(a, Elf64_Shdr, n);
  const Elf32_Shdr *s = p;
  if (wide) memcpy(out, p, (size_t)n * sizeof *out);
  for (int i = 0; !wide && i < n; i++)
    out[i] = (Elf64_Shdr){.sh_name = s[i].sh_name,
                          .sh_type = s[i].sh_type,
                          .sh_flags = s[i].sh_flags,
                          .sh_addr = s[i].sh_addr,
                          .sh_offset = s[i].sh_offset,
                          .sh_size = s[i].sh_size,
                          .sh_link = s[i].sh_link,
                          .sh_info = s[i].sh_info,
                          .sh_addralign = s[i].sh_addralign,
                          .sh_entsize = s[i].sh_entsize};
  return out;
}

static void *pack_symbols(Arena *a, bool wide, const Elf64_Sym *s, int n)
{
  if (wide) return copy_of(a, s, (size_t)n * sizeof *s);
  Elf32_Sym *out = arena_array(a, Elf32_Sym, n);
  for (int i = 0; i < n; i++)
    out[i] = (Elf32_Sym){.st_name = s[i].st_name,
                         .st_value = (Elf32_Addr)s[i].st_value,
                         .st_size = (Elf32_Word)s[i].st_size,
                         .st_info = s[i].st_info,
                         .st_other = s[i].st_other,
                         .st_shndx = s[i].st_shndx};
  return out;
}

static Elf64_Sym *unpack_symbols(Arena *a, bool wide, const void *p, int n)
{
  Elf64_Sym *out = arena_array(a, Elf64_Sym, n);
  const Elf32_Sym *s = p;
  if (wide) memcpy(out, p, (size_t)n * sizeof *out);
  for (int i = 0; !wide && i < n; i++)
    out[i] = (Elf64_Sym){.st_name = s[i].st_name,
                         .st_value = s[i].st_value,
                         .st_size = s[i].st_size,
                         .st_info = s[i].st_info,
                         .st_other = s[i].st_other,
                         .st_shndx = s[i].st_shndx};
  return out;
}

/* ---- machines ------------------------------------------------------------------------------------- */

/* How a machine says "an address goes here": a number, and whether what is added stands in the relocation or at the
 * place itself. */
static const struct {
  unsigned machine;
  bool wide;
  unsigned type;
  bool in_place;
} machines[] = {
  {EM_X86_64, true, 1, false}, {EM_AARCH64, true, 257, false}, {EM_RISCV, true, 2, false},
  {EM_ARM, false, 2, true},    {EM_RISCV, false, 1, false},
};

static int machine_row(unsigned machine, bool wide)
{
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    if (machines[i].machine == machine && machines[i].wide == wide) return (int)i;
  return -1;
}

enum { ATTRIBUTES = 0x70000003 /* a type of section, on ARM and RISC-V */ };

/* Linkers compare what the objects say of how arguments are passed and of the machine's instructions. */
static void find_attributes(Arena *a, ObjectForm *form, const Elf64_Ehdr *h, const char *bytes, size_t n)
{
  size_t size = section_bytes(form->wide) * h->e_shnum;
  if (form->machine == EM_X86_64 || h->e_shoff > n || size > n - h->e_shoff) return;
  const Elf64_Shdr *s = unpack_sections(a, form->wide, bytes + h->e_shoff, h->e_shnum);
  for (int i = 0; i < h->e_shnum; i++) {
    if (s[i].sh_type != ATTRIBUTES || s[i].sh_offset > n || s[i].sh_size > n - s[i].sh_offset) continue;
    form->attributes = bytes + s[i].sh_offset;
    form->nattributes = s[i].sh_size;
    form->attributes_name = form->machine == EM_ARM ? ".ARM.attributes" : ".riscv.attributes";
  }
}

ObjectForm object_form(Ctx *ctx, const char *object, const char *target)
{
  size_t n;
  const char *bytes = file_read(scratch(ctx), object, &n, 0);
  bool is_elf = n >= sizeof(Elf32_Ehdr) && !memcmp(bytes, ELFMAG, SELFMAG) && bytes[EI_DATA] == ELFDATA2LSB;
  bool wide = is_elf && bytes[EI_CLASS] == ELFCLASS64 && n >= sizeof(Elf64_Ehdr);
  Elf64_Ehdr h = is_elf ? unpack_header(bytes, wide) : (Elf64_Ehdr){0};
  if (machine_row(h.e_machine, wide) < 0)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "target '%s': a model file can be made for ELF machines (x86-64, AArch64, ARM, RISC-V); others take a "
          "program ahead of time (-f c, -f o)",
          target);
  ObjectForm form = {.wide = wide, .machine = h.e_machine, .flags = h.e_flags};
  memcpy(form.ident, h.e_ident, sizeof form.ident);
  find_attributes(scratch(ctx), &form, &h, bytes, n);
  return form;
}

/* ---- writing -------------------------------------------------------------------------------------- */

static uint64_t up(uint64_t n, uint64_t align) { return (n + align - 1) / align * align; }

static Elf64_Word add_name(Text *names, const char *name)
{
  Elf64_Word at = (Elf64_Word)names->n;
  text_addn(names, name, strlen(name) + 1);
  return at;
}

/* A section being written: its header, and its bytes if they are not a part's. */
typedef struct Sections {
  Elf64_Shdr head[32];
  const void *data[32];
  Text names;
  int n;
  uint64_t at;
} Sections;

static int add_section(Sections *s, const char *name, unsigned type, uint64_t flags, const void *data, uint64_t bytes,
                       uint64_t align, uint64_t entry)
{
  s->at = up(s->at, align);
  s->head[s->n] = (Elf64_Shdr){.sh_name = add_name(&s->names, name),
                               .sh_type = type,
                               .sh_flags = flags,
                               .sh_offset = s->at,
                               .sh_size = bytes,
                               .sh_addralign = align,
                               .sh_entsize = entry};
  s->data[s->n] = data;
  s->at += bytes;
  return s->n++;
}

/* Symbols: none, a section for each part, then the names that others see. */
static void *symbols_of(Arena *a, bool wide, const ObjectData *d, Text *names)
{
  Elf64_Sym *out = arena_array(a, Elf64_Sym, 1 + d->nparts + d->nsymbols);
  for (int i = 0; i < d->nparts; i++)
    out[1 + i] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = (Elf64_Section)(1 + i)};
  for (int i = 0; i < d->nsymbols; i++) {
    int part = d->symbol[i].part;
    out[1 + d->nparts + i] = (Elf64_Sym){.st_name = add_name(names, d->symbol[i].name),
                                         .st_info = ELF64_ST_INFO(STB_GLOBAL, part < 0 ? STT_NOTYPE : STT_OBJECT),
                                         .st_shndx = (Elf64_Section)(part < 0 ? SHN_UNDEF : 1 + part),
                                         .st_value = d->symbol[i].at,
                                         .st_size = part < 0 ? 0 : d->part[part].bytes - d->symbol[i].at};
  }
  return pack_symbols(a, wide, out, 1 + d->nparts + d->nsymbols);
}

/* The relocations; where what is added stands in place, it is written there. */
static void *addresses_of(Arena *a, const ObjectForm *form, const ObjectData *d, unsigned char *last, size_t *entry)
{
  int row = machine_row(form->machine, form->wide);
  bool in_place = machines[row].in_place;
  *entry = form->wide ? sizeof(Elf64_Rela) : in_place ? sizeof(Elf32_Rel) : sizeof(Elf32_Rela);
  char *out = arena_alloc(a, *entry * (size_t)d->naddresses + 1);
  for (int i = 0; i < d->naddresses; i++) {
    const ObjectAddress *r = &d->address[i];
    unsigned symbol = (unsigned)(r->part >= 0 ? 1 + r->part : 1 + d->nparts + r->symbol);
    Elf64_Rela wide = {r->at, ELF64_R_INFO((uint64_t)symbol, machines[row].type), (int64_t)r->plus};
    Elf32_Rela narrow = {(Elf32_Addr)r->at, ELF32_R_INFO(symbol, machines[row].type), (Elf32_Sword)r->plus};
    memcpy(out + *entry * (size_t)i, form->wide ? (void *)&wide : (void *)&narrow, *entry);
    if (in_place) memcpy(last + r->at, &narrow.r_addend, sizeof narrow.r_addend);
  }
  return out;
}

void object_write(Ctx *ctx, const ObjectForm *form, const ObjectData *d, const char *path)
{
  enum { LARGE_FLAG = 0x10000000 };
  Scope scope = scope_begin(ctx);
  Arena *a = scratch(ctx);
  Text names = text_new(a);
  Sections *s = arena_new_of(a, Sections);
  s->names = text_new(a);
  s->at = header_bytes(form->wide);
  text_addn(&names, "", 1);
  add_section(s, "", SHT_NULL, 0, NULL, 0, 1, 0);
  const ObjectPart *last = &d->part[d->nparts - 1];
  unsigned char *bytes = copy_of(a, last->data, (size_t)last->bytes);
  size_t entry;
  void *addresses = addresses_of(a, form, d, bytes, &entry);
  for (int i = 0; i < d->nparts; i++) {
    const ObjectPart *p = &d->part[i];
    bool large = p->large && form->machine == EM_X86_64;
    add_section(s, large ? ".lrodata" : p->name, SHT_PROGBITS,
                SHF_ALLOC | (p->writable ? SHF_WRITE : 0) | (large ? LARGE_FLAG : 0), p == last ? bytes : p->data,
                p->bytes, p->align, 0);
  }
  bool rela = entry != sizeof(Elf32_Rel);
  int relocs = add_section(s, arena_printf(a, rela ? ".rela%s" : ".rel%s", last->name), rela ? SHT_RELA : SHT_REL,
                           SHF_INFO_LINK, addresses, entry * (size_t)d->naddresses, 8, entry);
  void *symbols = symbols_of(a, form->wide, d, &names);
  size_t one = symbol_bytes(form->wide);
  int table = add_section(s, ".symtab", SHT_SYMTAB, 0, symbols, one * (size_t)(1 + d->nparts + d->nsymbols), 8, one);
  int text = add_section(s, ".strtab", SHT_STRTAB, 0, names.s, names.n, 1, 0);
  add_section(s, ".note.GNU-stack", SHT_PROGBITS, 0, NULL, 0, 1, 0);
  if (form->attributes) add_section(s, form->attributes_name, ATTRIBUTES, 0, form->attributes, form->nattributes, 1, 0);
  int own = add_section(s, ".shstrtab", SHT_STRTAB, 0, NULL, 0, 1, 0);
  s->data[own] = s->names.s;
  s->head[own].sh_size = s->names.n;
  s->at += s->names.n;
  s->head[relocs].sh_link = (Elf64_Word)table;
  s->head[relocs].sh_info = (Elf64_Word)d->nparts; /* of the last part */
  s->head[table].sh_link = (Elf64_Word)text;
  s->head[table].sh_info = (Elf64_Word)(1 + d->nparts);
  Elf64_Ehdr h = {.e_type = ET_REL,
                  .e_machine = (Elf64_Half)form->machine,
                  .e_version = EV_CURRENT,
                  .e_shoff = up(s->at, 16),
                  .e_flags = form->flags,
                  .e_ehsize = (Elf64_Half)header_bytes(form->wide),
                  .e_shentsize = (Elf64_Half)section_bytes(form->wide),
                  .e_shnum = (Elf64_Half)s->n,
                  .e_shstrndx = (Elf64_Half)own};
  memcpy(h.e_ident, form->ident, EI_NIDENT);
  if (!form->wide && h.e_shoff > UINT32_MAX)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "'%s' would have more than 4 GB, which a 32-bit machine does not reach", path);
  ObjectFile *o = object_open(ctx, path, "wb");
  object_put(o, pack_header(a, form->wide, &h), header_bytes(form->wide));
  uint64_t at = header_bytes(form->wide);
  for (int i = 1; i < s->n; i++) {
    object_put_zeros(o, s->head[i].sh_offset - at);
    if (i <= d->nparts && d->part[i - 1].write) d->part[i - 1].write(o, d->part[i - 1].about);
    else object_put(o, s->data[i], (size_t)s->head[i].sh_size);
    at = s->head[i].sh_offset + s->head[i].sh_size;
  }
  object_put_zeros(o, h.e_shoff - at);
  object_put(o, pack_sections(a, form->wide, s->head, s->n), section_bytes(form->wide) * (size_t)s->n);
  object_close(o);
  scope_end(ctx, scope);
}

/* ---- names ------------------------------------------------------------------------------------------ */

/* All symbols get a prefix, and some keep their names beside it as weak ones; or one gets another name. */
typedef struct Renaming {
  const char *prefix, *from, *to;
  int nweak;
  const char *const *weak;
} Renaming;

static Elf64_Sym *renamed(Arena *a, const Elf64_Sym *old, int n, const char *strings, const Renaming *r, Text *names,
                          int *count)
{
  Elf64_Sym *out = arena_array(a, Elf64_Sym, n + r->nweak);
  memcpy(out, old, (size_t)n * sizeof *out);
  *count = n;
  for (int i = 0; i < n; i++) {
    const char *was = strings + old[i].st_name;
    bool defined = ELF64_ST_BIND(old[i].st_info) != STB_LOCAL && old[i].st_shndx != SHN_UNDEF;
    if (!defined || (r->from && strcmp(was, r->from))) continue;
    out[i].st_name = add_name(names, r->from ? r->to : arena_printf(a, "%s__%s", r->prefix, was));
    for (int k = 0; k < r->nweak; k++)
      if (!strcmp(was, r->weak[k])) {
        out[*count] = old[i];
        out[(*count)++].st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(old[i].st_info));
      }
  }
  return out;
}

static void rename_symbols(Ctx *ctx, const char *path, const Renaming *r)
{
  Scope scope = scope_begin(ctx);
  Arena *a = scratch(ctx);
  ObjectFile *o = object_open(ctx, path, "r+b");
  const unsigned char *ident = get(o, 0, EI_NIDENT);
  bool wide = ident[EI_CLASS] == ELFCLASS64;
  Elf64_Ehdr h = unpack_header(get(o, 0, header_bytes(wide)), wide);
  size_t sections = section_bytes(wide) * h.e_shnum;
  Elf64_Shdr *s = unpack_sections(a, wide, get(o, h.e_shoff, sections), h.e_shnum);
  Elf64_Shdr *symbols = NULL;
  for (int i = 0; i < h.e_shnum; i++)
    if (s[i].sh_type == SHT_SYMTAB) symbols = &s[i];
  if (!symbols || symbols->sh_link >= h.e_shnum) BUG(ctx, "the object '%s' has no symbols", path);
  Elf64_Shdr *strings = &s[symbols->sh_link];
  const char *text = get(o, strings->sh_offset, strings->sh_size);
  int n = (int)(symbols->sh_size / symbol_bytes(wide));
  const Elf64_Sym *old = unpack_symbols(a, wide, get(o, symbols->sh_offset, symbols->sh_size), n);
  Text names = text_new(a);
  text_addn(&names, text, (size_t)strings->sh_size);
  int count;
  const Elf64_Sym *made = renamed(a, old, n, text, r, &names, &count);
  if (fseeko(o->f, 0, SEEK_END)) bad(o);
  symbols->sh_offset = up((uint64_t)ftello(o->f), 8);
  symbols->sh_size = symbol_bytes(wide) * (uint64_t)count;
  strings->sh_offset = symbols->sh_offset + symbols->sh_size;
  strings->sh_size = names.n;
  set(o, symbols->sh_offset, pack_symbols(a, wide, made, count), symbols->sh_size);
  set(o, strings->sh_offset, names.s, names.n);
  set(o, h.e_shoff, pack_sections(a, wide, s, h.e_shnum), sections);
  object_close(o);
  scope_end(ctx, scope);
}

void object_prefix(Ctx *ctx, const char *path, const char *prefix, int nweak, const char *const *weak)
{
  rename_symbols(ctx, path, &(Renaming){.prefix = prefix, .nweak = nweak, .weak = weak});
}

void object_rename(Ctx *ctx, const char *path, const char *from, const char *to)
{
  rename_symbols(ctx, path, &(Renaming){.from = from, .to = to});
}

/* ---- archives --------------------------------------------------------------------------------------- */

static void put_member(ObjectFile *o, const char *name, uint64_t bytes)
{
  const char *head = arena_printf(scratch(o->ctx), "%-16s%-12d%-6d%-6d%-8o%-10llu`\n", name, 0, 0, 0, 0644u,
                                  (unsigned long long)bytes);
  object_put(o, head, 60);
}

static void put_number(ObjectFile *o, uint64_t n) /* the most significant byte first */
{
  const unsigned char b[4] = {n >> 24 & 255, n >> 16 & 255, n >> 8 & 255, n & 255};
  object_put(o, b, sizeof b);
}

void object_archive(Ctx *ctx, const char *object, int n, const char *const *name, const char *path)
{
  Scope scope = scope_begin(ctx);
  ObjectFile *from = object_open(ctx, object, "rb");
  ObjectFile *to = object_open(ctx, path, "wb");
  if (fseeko(from->f, 0, SEEK_END)) bad(from);
  uint64_t bytes = (uint64_t)ftello(from->f);
  rewind(from->f);
  Text names = text_new(scratch(ctx));
  for (int i = 0; i < n; i++) add_name(&names, name[i]);
  if (names.n % 2) text_addn(&names, "", 1);
  uint64_t index = 4 + 4 * (uint64_t)n + names.n;
  object_put(to, "!<arch>\n", 8);
  put_member(to, "/", index);
  put_number(to, (uint64_t)n);
  for (int i = 0; i < n; i++) put_number(to, 8 + 60 + index); /* all in the one member */
  object_put(to, names.s, names.n);
  put_member(to, "model.o/", bytes);
  char *chunk = arena_alloc(scratch(ctx), 1 << 16);
  for (size_t k; (k = fread(chunk, 1, 1 << 16, from->f)) > 0;) object_put(to, chunk, k);
  if (ferror(from->f)) bad(from);
  if (bytes % 2) object_put(to, "\n", 1);
  object_close(to);
  scope_end(ctx, scope);
}
