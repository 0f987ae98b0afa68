/* test_object.c: objects of 64 and 32 bits, read back field by field.  That linkers and machines take them is what
 * tests/python/test_linking.py shows. */
#include <elf.h>
#include <unistd.h>

#include "driver/object.h"
#include "driver/test_driver.h"

typedef struct Made {
  char path[64], like[64];
  unsigned machine;
  bool wide;
  const char *target;
} Made;

static const unsigned char table[24] = {1, 2, 3, 4};
static void put_five(ObjectFile *o, const void *about) { object_put(o, about, 5); }

/* A header is all that a form is read from. */
static void write_like(const Made *m)
{
  unsigned char h[64] = {0x7f, 'E', 'L', 'F', m->wide ? ELFCLASS64 : ELFCLASS32, ELFDATA2LSB, 1};
  h[18] = (unsigned char)(m->machine & 255);
  h[19] = (unsigned char)(m->machine >> 8);
  h[m->wide ? 48 : 36] = 0x42; /* flags */
  FILE *f = fopen(m->like, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(h, 1, sizeof h, f), sizeof h);
  fclose(f);
}

static void write_body(Ctx *ctx, void *arg)
{
  const Made *m = arg;
  ObjectForm form = object_form(ctx, m->like, "some target");
  const ObjectPart part[] = {
    {.name = ".rodata.five", .bytes = 5, .align = 64, .write = put_five, .about = "fives"},
    {.name = ".data.table", .bytes = sizeof table, .align = 16, .data = table, .writable = true},
  };
  const ObjectSymbol symbol[] = {{.name = "here", .part = 1}, {.name = "elsewhere", .part = -1}};
  const ObjectAddress address[] = {{.at = 8, .part = 0, .plus = 3}, {.at = 16, .part = -1, .symbol = 1}};
  object_write(ctx, &form, &(ObjectData){2, 2, 2, part, symbol, address}, m->path);
  object_prefix(ctx, m->path, "my", 1, (const char *const[]){"here"});
  object_rename(ctx, m->path, "my__here", "yours");
}

/* Little-endian fields of the file: those of the two classes are at other places, and as wide as `word` says. */
static unsigned char bytes[4096];
static uint64_t field(uint64_t at, int n)
{
  uint64_t v = 0;
  for (int i = 0; i < n; i++) v |= (uint64_t)bytes[at + (uint64_t)i] << (8 * i);
  return v;
}

typedef struct Section {
  uint64_t type, offset, size, link, info;
  const char *name;
} Section;

static Section section_at(bool wide, uint64_t i)
{
  int word = wide ? 8 : 4;
  uint64_t heads = field(wide ? 40 : 32, word);
  uint64_t one = wide ? 64 : 40;
  uint64_t names = heads + one * field(wide ? 62 : 50, 2);
  uint64_t at = heads + one * i;
  uint64_t text = field(names + (wide ? 24 : 16), word);
  return (Section){.type = field(at + 4, 4),
                   .offset = field(at + (wide ? 24 : 16), word),
                   .size = field(at + (wide ? 32 : 20), word),
                   .link = field(at + (wide ? 40 : 24), 4),
                   .info = field(at + (wide ? 44 : 28), 4),
                   .name = (const char *)bytes + text + field(at, 4)};
}

static void check_relocations(const Made *m, Section s)
{
  bool in_place = m->machine == EM_ARM;
  uint64_t one = m->wide ? 24 : in_place ? 8 : 12;
  static const uint64_t place[] = {8, 16}, symbol[] = {1, 4}, plus[] = {3, 0};
  assert_int_equal(s.type, in_place ? SHT_REL : SHT_RELA);
  assert_int_equal(s.info, 2);
  assert_int_equal(s.size, 2 * one);
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t at = s.offset + one * i;
    uint64_t info = field(at + (m->wide ? 8 : 4), m->wide ? 8 : 4);
    assert_int_equal(field(at, m->wide ? 8 : 4), place[i]);
    assert_int_equal(m->wide ? info >> 32 : info >> 8, symbol[i]);
    uint64_t added = in_place ? field(section_at(m->wide, 2).offset + place[i], 4) : field(at + (m->wide ? 16 : 8), 4);
    assert_int_equal(added, plus[i]);
  }
}

/* Names of the symbols that are not local, in order: what is defined has the section that it is in. */
static void check_symbols(const Made *m, Section s)
{
  static const struct {
    const char *name;
    unsigned bind, section;
  } want[] = {{"yours", STB_GLOBAL, 2}, {"elsewhere", STB_GLOBAL, 0}, {"here", STB_WEAK, 2}};
  uint64_t one = m->wide ? 24 : 16;
  Section names = section_at(m->wide, s.link);
  assert_int_equal(s.size, one * 6);
  assert_int_equal(s.info, 3);
  for (uint64_t i = 0; i < 3; i++) {
    uint64_t at = s.offset + one * (3 + i);
    assert_string_equal((const char *)bytes + names.offset + field(at, 4), want[i].name);
    assert_int_equal(bytes[at + (m->wide ? 4 : 12)] >> 4, want[i].bind);
    assert_int_equal(field(at + (m->wide ? 6 : 14), 2), want[i].section);
  }
}

static void check(Made *m)
{
  Ctx *ctx = ctx_new();
  snprintf(m->path, sizeof m->path, "/tmp/lathe_object_%ld.o", (long)getpid());
  snprintf(m->like, sizeof m->like, "/tmp/lathe_object_%ld.like", (long)getpid());
  write_like(m);
  if (protect(ctx, write_body, m)) fail_msg("%s", error_message(ctx));
  FILE *f = fopen(m->path, "rb");
  assert_non_null(f);
  assert_true(fread(bytes, 1, sizeof bytes, f) < sizeof bytes);
  fclose(f);
  assert_int_equal(field(16, 2), ET_REL);
  assert_int_equal(field(18, 2), m->machine);
  assert_int_equal(field(m->wide ? 48 : 36, 4), 0x42);
  Section five = section_at(m->wide, 1);
  Section data = section_at(m->wide, 2);
  assert_string_equal(five.name, ".rodata.five");
  assert_memory_equal(bytes + five.offset, "fives", 5);
  assert_int_equal(five.offset % 64, 0);
  assert_string_equal(data.name, ".data.table");
  assert_memory_equal(bytes + data.offset, table, 8);
  check_relocations(m, section_at(m->wide, 3));
  check_symbols(m, section_at(m->wide, 4));
  unlink(m->path);
  unlink(m->like);
  ctx_free(ctx);
}

static void test_machines(void **state)
{
  (void)state;
  check(&(Made){.machine = EM_X86_64, .wide = true});
  check(&(Made){.machine = EM_AARCH64, .wide = true});
  check(&(Made){.machine = EM_RISCV, .wide = true});
  check(&(Made){.machine = EM_RISCV, .wide = false});
  check(&(Made){.machine = EM_ARM, .wide = false});
}

static void test_other_machine(void **state)
{
  (void)state;
  Made m = {.path = "/tmp/lathe_object_none.o", .machine = EM_68K};
  Ctx *ctx = ctx_new();
  snprintf(m.like, sizeof m.like, "/tmp/lathe_object_%ld.like", (long)getpid());
  write_like(&m);
  assert_true(protect(ctx, write_body, &m));
  assert_string_equal(error_message(ctx), "target 'some target': a model file can be made for ELF machines (x86-64, "
                                          "AArch64, ARM, RISC-V); others take a program ahead of time (-f c, -f o)");
  unlink(m.like);
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_machines), cmocka_unit_test(test_other_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
