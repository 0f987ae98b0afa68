/* aot_measure.c: the bytes of code and of stack that a program ahead of time takes, as the target's C compiler tells:
 * the source is compiled, the object's sections are read, and gcc's -fstack-usage says what each function takes. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/aot.h"

/* 32- and 64-bit objects, little endian. */
static bool sections_of(const unsigned char *b, size_t n, ObjectSizes *out)
{
  bool wide = n > 64 && b[EI_CLASS] == ELFCLASS64;
  if (n < 64 || memcmp(b, ELFMAG, SELFMAG) || b[EI_DATA] != ELFDATA2LSB) return false;
  Elf64_Ehdr h64;
  Elf32_Ehdr h32;
  memcpy(&h64, b, sizeof h64);
  memcpy(&h32, b, sizeof h32);
  uint64_t at = wide ? h64.e_shoff : h32.e_shoff;
  int count = wide ? h64.e_shnum : h32.e_shnum;
  size_t each = wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
  if (at > n || (size_t)count > (n - at) / each) return false;
  for (int i = 0; i < count; i++) {
    Elf64_Shdr s64;
    Elf32_Shdr s32;
    if (wide) memcpy(&s64, b + at + (size_t)i * each, sizeof s64);
    else memcpy(&s32, b + at + (size_t)i * each, sizeof s32);
    uint64_t flags = wide ? s64.sh_flags : s32.sh_flags;
    uint32_t type = wide ? s64.sh_type : s32.sh_type;
    uint64_t size = wide ? s64.sh_size : s32.sh_size;
    if (!(flags & SHF_ALLOC) || (type != SHT_PROGBITS && type != SHT_NOBITS)) continue;
    int64_t *kind = flags & SHF_WRITE ? &out->written : flags & SHF_EXECINSTR ? &out->code : &out->constants;
    *kind += (int64_t)size;
  }
  return true;
}

/* FILE:LINE:COLUMN:FUNCTION <tab> BYTES <tab> KIND: that of NAME_run and the most of all others, which it calls. */
static int64_t stack_in_usage(const char *text)
{
  int64_t run = 0;
  int64_t most = 0;
  for (const char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    const char *tab = memchr(line, '\t', n);
    if (tab) {
      int64_t bytes = strtoll(tab + 1, NULL, 10);
      bool is_run = tab - line > 4 && !memcmp(tab - 4, "_run", 4);
      if (is_run && bytes > run) run = bytes;
      if (!is_run && bytes > most) most = bytes;
    }
    line += n + (line[n] == '\n');
  }
  return run + most;
}

ObjectSizes aot_object_sizes(const void *object, size_t n, const char *usage)
{
  ObjectSizes out = {.stack = stack_in_usage(usage)};
  return sections_of(object, n, &out) ? out : (ObjectSizes){-1, -1, -1, -1};
}

static void measure(Aot *a)
{
  Ctx *ctx = a->p->ctx;
  Arena *arena = scratch(ctx);
  const char *const *cc = code_c_compiler(arena, a->p->target);
  if (!process_exists(arena, cc[0])) {
    a->measured_with = arena_printf(a->arena, "there is no '%s'", cc[0]);
    return;
  }
  const char *folder = file_temp_dir(ctx);
  AotFiles files = {0};
  aot_files(a, arena, "model", WEIGHTS_BY_SIZE, &files);
  for (int i = 0; i < files.n; i++)
    file_write(ctx, arena_printf(arena, "%s/%s", folder, files.v[i].name), files.v[i].bytes, files.v[i].n);
  const char *object = arena_printf(arena, "%s/model.o", folder);
  Vec(const char *) args = {0};
  for (; *cc; cc++) vec_push(arena, &args, *cc);
  static const char *const more[] = {"-O2", "-w", "-fno-math-errno", "-ffp-contract=fast", "-fstack-usage", "-c", "-o"};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) vec_push(arena, &args, more[i]);
  vec_push(arena, &args, object);
  vec_push(arena, &args, arena_printf(arena, "%s/model.c", folder));
  vec_push(arena, &args, NULL);
  const char *said = "";
  if (process_run(arena, args.v, &said)) {
    a->measured_with = arena_printf(a->arena, "%s failed: %.200s", args.v[0], said);
    return;
  }
  size_t n;
  size_t unused;
  const char *bytes = file_read(arena, object, &n, 0);
  const char *usage = file_read(arena, arena_printf(arena, "%s/model.su", folder), &unused, 0);
  ObjectSizes sizes = aot_object_sizes(bytes, n, usage);
  int64_t flash = sizes.code + sizes.constants;
  a->code_bytes = flash < 0 ? -1 : flash > a->weights_bytes ? flash - a->weights_bytes : 0;
  a->stack_bytes = sizes.stack;
  a->measured_with = arena_printf(a->arena, "%s -O2", args.v[0]);
}

void aot_measure(Aot *a)
{
  if (a->measured_with) return;
  Scope scope = scope_begin(a->p->ctx);
  a->code_bytes = a->stack_bytes = -1;
  measure(a);
  scope_end(a->p->ctx, scope);
}
