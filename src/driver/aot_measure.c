/* aot_measure.c: the bytes of code and of stack that a program ahead of time takes, as the target's C compiler tells:
 * the source is compiled, the object's sections are read, and gcc's -fstack-usage says what each function takes. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Compiles a source of ours for the target; how: by what, or why it could not be (then all sizes are -1). */
static ObjectSizes compile_source(Ctx *ctx, const Target *t, const char *source, const char *folder, const char **how)
{
  const ObjectSizes none = {-1, -1, -1, -1};
  Arena *arena = scratch(ctx);
  const char *const *cc = code_c_compiler(arena, t);
  if (!process_exists(arena, cc[0])) {
    *how = arena_printf(arena, "there is no '%s'", cc[0]);
    return none;
  }
  const char *object = arena_printf(arena, "%s/model.o", folder);
  Vec(const char *) args = {0};
  for (; *cc; cc++) vec_push(arena, &args, *cc);
  static const char *const more[] = {"-O2", "-w", "-fno-math-errno", "-ffp-contract=fast", "-fstack-usage", "-c", "-o"};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) vec_push(arena, &args, more[i]);
  vec_push(arena, &args, object);
  vec_push(arena, &args, source);
  vec_push(arena, &args, NULL);
  const char *said = "";
  if (process_run(arena, args.v, &said)) {
    *how = arena_printf(arena, "%s failed: %.200s", args.v[0], said);
    return none;
  }
  size_t n;
  size_t unused;
  const char *bytes = file_read(arena, object, &n, 0);
  const char *usage = file_read(arena, arena_printf(arena, "%s/model.su", folder), &unused, 0);
  *how = arena_printf(arena, "%s -O2", args.v[0]);
  return aot_object_sizes(bytes, n, usage);
}

static void measure(Aot *a)
{
  Ctx *ctx = a->p->ctx;
  Arena *arena = scratch(ctx);
  const char *folder = file_temp_dir(ctx);
  AotFiles files = {0};
  const char *how;
  aot_files(a, arena, "model", WEIGHTS_BY_SIZE, &files);
  for (int i = 0; i < files.n; i++)
    file_write(ctx, arena_printf(arena, "%s/%s", folder, files.v[i].name), files.v[i].bytes, files.v[i].n);
  ObjectSizes sizes = compile_source(ctx, a->p->target, arena_printf(arena, "%s/model.c", folder), folder, &how);
  int64_t flash = sizes.code + sizes.constants;
  a->code_bytes = sizes.code < 0 ? -1 : flash > a->weights_bytes ? flash - a->weights_bytes : 0;
  a->stack_bytes = sizes.stack;
  a->measured_with = arena_strdup(a->arena, how);
}

void aot_measure(Aot *a)
{
  if (a->measured_with) return;
  Scope scope = scope_begin(a->p->ctx);
  a->code_bytes = a->stack_bytes = -1;
  measure(a);
  scope_end(a->p->ctx, scope);
}

/* ---- a source that was written before -------------------------------------------------------------- */

/* The definitions of its header that say bytes: "NAME_WORKSPACE_BYTES 16000", in order. */
static void put_definitions(Text *t, const char *header, bool json, int64_t *all)
{
  for (const char *p = header; (p = strstr(p, "#define ")); p++) {
    char name[128];
    long long bytes;
    if (sscanf(p, "#define %127s %lld", name, &bytes) != 2 || !str_ends(name, "_BYTES")) continue;
    text_printf(t, json ? ", \"%s\": %lld" : "%-28s %10lld\n", name, bytes);
    *all += bytes;
  }
}

const char *driver_source_cost(Ctx *ctx, Arena *arena, const Target *target, const char *path, bool json)
{
  Arena *a = scratch(ctx);
  const Target *t = aot_target(ctx, target ? target : target_host(ctx));
  size_t n;
  const char *header_path = arena_printf(a, "%.*s.h", (int)(strlen(path) - 2), path);
  const char *source = file_read(a, path, &n, 0);
  const char *header = access(header_path, R_OK) == 0 ? file_read(a, header_path, &n, 0) : "";
  if (!strstr(source, "a model compiled by Lathe, ahead of time") ||
      !strstr(header, "a model compiled by Lathe, ahead"))
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "'%s' is no program ahead of time of Lathe's with its header beside it (lathe compile -f c)", path);
  const char *how;
  ObjectSizes sizes = compile_source(ctx, t, path, file_temp_dir(ctx), &how);
  if (sizes.code < 0) raise(ctx, ERR_UNSUPPORTED, NOWHERE, "'%s' cannot be measured for '%s': %s", path, t->text, how);
  Text out = text_new(arena);
  int64_t workspace = 0;
  if (json) {
    text_add(&out, "{\"target\": ");
    text_quote(&out, t->text);
    text_printf(&out, ", \"code_bytes\": %" PRId64 ", \"constant_bytes\": %" PRId64 ", \"stack_bytes\": %" PRId64,
                sizes.code, sizes.constants, sizes.stack);
    put_definitions(&out, header, true, &workspace);
    text_printf(&out, ", \"workspace_bytes\": %" PRId64 "}\n", workspace);
  } else {
    text_printf(&out, "target     %s\n", t->text);
    text_printf(&out, "%-28s %10" PRId64 "  (%s)\n", "flash: code", sizes.code, how);
    text_printf(&out, "%-28s %10" PRId64 "\n%-28s %10" PRId64 "  deepest call of a kernel\n",
                "flash: weights, constants", sizes.constants, "stack", sizes.stack);
    put_definitions(&out, header, false, &workspace);
  }
  return text_str(&out);
}
