/* micro_project.c: a program ahead of time, inputs and what they must give, as a project that builds by itself. */
#include <errno.h>
#include <sys/stat.h>

#include "driver/compiled.h"
#include "driver/linkable.h"
#include "driver/micro.h"

typedef struct Word {
  const char *key, *value;
} Word;

typedef struct Maker {
  Ctx *ctx;
  Arena *arena;
  Aot *a;
  const AotEntry *entry;
  const MicroBoard *board;
  MicroLayout layout;
  const char *folder, *stem, *name, *upper;
  const char *source_dir, *model_dir; /* in the folder, with a slash */
  Vec(Word) word;
} Maker;

/* ---- texts ------------------------------------------------------------------------------------------------- */

static void set(Maker *m, const char *key, const char *value) { vec_push(m->arena, &m->word, ((Word){key, value})); }

/* The text with each @key@ replaced; an @ that begins no key stays (make has such). */
static const char *fill(const Maker *m, const char *text)
{
  Text t = text_new(m->arena);
  while (*text) {
    size_t n = strcspn(text, "@");
    text_addn(&t, text, n);
    text += n;
    if (!*text) break;
    const Word *found = NULL;
    for (int i = 0; i < m->word.n && !found; i++) {
      size_t k = strlen(m->word.v[i].key);
      if (!strncmp(text + 1, m->word.v[i].key, k) && text[1 + k] == '@') found = &m->word.v[i];
    }
    text_add(&t, found ? found->value : "@");
    text += found ? strlen(found->key) + 2 : 1;
  }
  return text_str(&t);
}

static void make_folder(Ctx *ctx, const char *path)
{
  struct stat st;
  if (mkdir(path, 0777) && (stat(path, &st) || !S_ISDIR(st.st_mode)))
    raise(ctx, ERR_IO, NOWHERE, "cannot make the folder '%s': %s", path, strerror(errno));
}

static void write_file(const Maker *m, const char *path, const char *text, size_t n)
{
  file_write(m->ctx, arena_printf(m->arena, "%s/%s", m->folder, path), text, n);
}

/* ---- vectors.h and check.c -------------------------------------------------------------------------------------- */

static void put_vector(const Maker *m, Text *t, const char *kind, int i, const ProgPort *port, const MicroBytes *bytes)
{
  int64_t n = program_port_elements(port);
  if ((int64_t)bytes->n != n * dtype_bytes(port->dtype))
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "%s '%s' takes %s, %lld bytes, not %zu", kind, port->name, port->type,
          (long long)(n * dtype_bytes(port->dtype)), bytes->n);
  text_printf(t, "/* %s: %s */\nstatic const %s %s%d[] __attribute__((aligned(8))) = {\n", port->name, port->type,
              linkable_c_type(port->dtype), kind, i);
  aot_put_elements(t, port->dtype, bytes->data, n);
}

static const char *vectors_text(const Maker *m, const MicroBytes *in, const MicroBytes *out)
{
  const ProgEntry *e = m->entry->e;
  Text t = text_new(m->arena);
  text_add(
      &t, "/* vectors.h: inputs, and what the host computed from them. */\n#include <stdint.h>\n#include <math.h>\n\n");
  for (int i = 0; i < e->input.n; i++) put_vector(m, &t, "input", i, &e->input.v[i], &in[i]);
  for (int i = 0; i < e->output.n; i++) {
    put_vector(m, &t, "expected", i, &e->output.v[i], &out[i]);
    text_printf(&t, "static %s output%d[%lld] __attribute__((aligned(8)));\n", linkable_c_type(e->output.v[i].dtype), i,
                (long long)(program_port_elements(&e->output.v[i]) ? program_port_elements(&e->output.v[i]) : 1));
  }
  int layers = 0;
  Text names = text_new(m->arena);
  for (int i = 0; i < m->entry->f->ins.n; i++) {
    const ProgIns *ins = &m->entry->f->ins.v[i];
    if (ins->op != MO_KERNEL) continue;
    text_add(&names, "  ");
    text_quote(&names, aot_node_name(m->a->p, ins));
    text_add(&names, ",\n");
    layers++;
  }
  text_printf(&t, "enum { LAYERS = %d };\nstatic const char *const layer_name[] = {\n%s};\n", layers ? layers : 1,
              layers ? text_str(&names) : "  \"\",\n");
  return text_str(&t);
}

static const char *check_text(const Maker *m)
{
  const ProgEntry *e = m->entry->e;
  Text t = text_new(m->arena);
  text_add(&t, fill(m, micro_check_head));
  text_printf(&t, "  static uint64_t workspace[%s_%s_BYTES / 8 + 1];\n  %s_run(", m->upper, "WORKSPACE", m->name);
  for (int i = 0; i < e->input.n; i++) text_printf(&t, "input%d, ", i);
  for (int i = 0; i < e->output.n; i++) text_printf(&t, "output%d, ", i);
  text_add(&t, "workspace);\n  uint64_t end = count();\n"
               "  for (int i = 0; i < LAYERS; i++)\n    say(\"layer \"), say_number(counted[i]), say(\" \"), "
               "say(layer_name[i]), say(\"\\n\");\n"
               "  say(\"run \"), say_number(end - begin), say(\"\\n\");\n");
  for (int i = 0; i < e->output.n; i++) {
    bool real = e->output.v[i].dtype.code == DT_FLOAT && e->output.v[i].dtype.bits == 32;
    text_printf(&t, "  say_bytes(%d, output%d, sizeof output%d);\n", i, i, i);
    text_printf(&t, "  bad |= %s(%d, output%d, expected%d, sizeof output%d%s);\n",
                real ? "compare_nearly" : "compare_exactly", i, i, i, i, real ? " / sizeof *output0" : "");
  }
  text_add(&t, micro_check_tail);
  return text_str(&t);
}

/* ---- words of the texts ------------------------------------------------------------------------- */

static const char *readme_tail(MicroLayout layout)
{
  switch (layout) {
  case MICRO_BARE:
    return "| `board.c`, `board.ld` | start-up code and memory of the board |\n\n"
           "`make run` (or `lathe micro run` on this folder) builds it and runs it in QEMU.\n";
  case MICRO_ZEPHYR:
    return "\n`west build -b BOARD .`, then `west flash`; for QEMU, `-b mps2/an385` or `-b mps3/corstone300/an547` and "
           "`west build -t run`.  Counts are cycles of Zephyr's clock.\n";
  case MICRO_ARDUINO:
    return "\nOpen the folder in the Arduino IDE, or `arduino-cli compile --fqbn VENDOR:ARCH:BOARD .` and `arduino-cli "
           "upload`.  Counts are microseconds; the layers are counted where the sketch defines `@NAME@_LAYER`.\n";
  case MICRO_PLATFORMIO:
    return "\nSet the board in `platformio.ini`, then `pio run -t upload` and `pio device monitor`.  Counts are "
           "microseconds.\n";
  case MICRO_NLAYOUTS: break;
  }
  return "";
}

static void set_words(Maker *m, const Target *t)
{
  Arena *arena = m->arena;
  bool riscv = str_starts(t->triple, "riscv32");
  Text flags = text_new(arena);
  const char *const *cc = code_c_compiler(arena, t);
  for (int i = 1; cc[i]; i++) text_printf(&flags, "%s%s", i > 1 ? " " : "", cc[i]);
  const char *slash = strrchr(m->folder, '/');
  const char *cpu = riscv ? "riscv32" : t->cpu;
  bool small = !strcmp(cpu, "cortex-m0") || !strcmp(cpu, "cortex-m0plus") || !strcmp(cpu, "cortex-m3") || riscv;
  set(m, "stem", m->stem);
  set(m, "name", m->name);
  set(m, "NAME", m->upper);
  set(m, "folder", slash ? slash + 1 : m->folder);
  set(m, "target", t->text);
  set(m, "cpu", cpu);
  set(m, "board", m->layout == MICRO_BARE ? m->board->name : cpu);
  set(m, "cc", cc[0]);
  set(m, "flags", text_str(&flags));
  set(m, "specs", riscv ? "" : "--specs=nosys.specs");
  set(m, "qemu", m->board->qemu);
  set(m, "machine", m->board->machine);
  set(m, "vectors", arena_printf(arena, "%#x", m->board->vectors));
  uint32_t before = m->board->vectors == m->board->code ? 1024 : 0; /* the vectors come first there */
  set(m, "code", arena_printf(arena, "%#x", m->board->code + before));
  set(m, "code_bytes", arena_printf(arena, "%u", m->board->code_bytes - before));
  set(m, "data", arena_printf(arena, "%#x", m->board->data));
  set(m, "data_bytes", arena_printf(arena, "%u", m->board->data_bytes));
  set(m, "fpu", small ? "" : "CONFIG_FPU=y\n");
  set(m, "platform", riscv ? "sifive" : !strcmp(cpu, "cortex-m7") ? "teensy" : "ststm32");
  set(m, "pio_board", riscv ? "hifive1-revb" : !strcmp(cpu, "cortex-m7") ? "teensy41" : "nucleo_f446re");
  set(m, "srcdir", m->source_dir);
  set(m, "modeldir", m->model_dir);
  set(m, "readme", fill(m, readme_tail(m->layout)));
}

/* ---- the project -------------------------------------------------------------------------------- */

static MicroLayout layout_of(Ctx *ctx, const char *name)
{
  for (int i = 0; i < MICRO_NLAYOUTS; i++)
    if (!strcmp(micro_layouts[i], name)) return (MicroLayout)i;
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no layout '%s' of projects; there are bare, zephyr, arduino, platformio",
        name);
}

static void check_fits(Maker *m, const Target *t)
{
  const char *cpu = str_starts(t->triple, "riscv32") ? "riscv32" : t->cpu;
  if (t->device.kind != DEVICE_MICRO)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE,
          "projects are for microcontrollers; the model was compiled for '%s' ('cortex-m4' is such a target)", t->text);
  if (m->layout == MICRO_BARE && !micro_has_cpu(m->board, cpu))
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "%s has a %.*s; the model was compiled for '%s'", m->board->name,
          (int)strcspn(m->board->cpus, " "), m->board->cpus, t->text);
  if (m->a->options.io_inside || m->a->npools > 1 || m->a->p->entry.n > 1)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
          "a project has one entry and one pool, and inputs and outputs outside of it; compile the model without pools "
          "and without --io workspace");
  int64_t ram = aot_ram(m->a, 0);
  int64_t flash = m->a->weights_bytes;
  if (m->layout == MICRO_BARE && (ram > m->board->data_bytes || flash > m->board->code_bytes))
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
          "the model needs %lld bytes of flash for weights and %lld of RAM; %s has %lld and %lld", (long long)flash,
          (long long)ram, m->board->name, (long long)m->board->code_bytes, (long long)m->board->data_bytes);
}

void compiled_micro_project(Compiled *c, const MicroProject *p)
{
  Ctx *ctx = c->ctx;
  Scope scope = scope_begin(ctx);
  Arena *arena = scratch(ctx);
  if (!c->aot)
    raise(ctx, ERR_ARGUMENT, NOWHERE,
          "a project is made of a program ahead of time; the model was compiled for the runtime");
  Maker m = {.ctx = ctx, .arena = arena, .a = c->aot, .entry = &c->aot->entry[0], .folder = p->folder, .stem = p->name};
  m.layout = layout_of(ctx, p->layout);
  m.board = micro_find_board(ctx, p->board);
  m.name = linkable_name(arena, p->name);
  char *upper = arena_strdup(arena, m.name);
  for (char *k = upper; *k; k++)
    if (*k >= 'a' && *k <= 'z') *k = (char)(*k - 'a' + 'A');
  m.upper = upper;
  bool flat = m.layout == MICRO_ARDUINO; /* everything beside the sketch */
  m.source_dir = m.layout == MICRO_BARE || flat ? "" : "src/";
  m.model_dir = flat ? "" : "model/";
  const ProgEntry *e = m.entry->e;
  check_fits(&m, m.a->p->target);
  if (p->ninputs != e->input.n || p->noutputs != e->output.n)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "the model has %d inputs and %d outputs; vectors are given for %d and %d",
          e->input.n, e->output.n, p->ninputs, p->noutputs);
  set_words(&m, m.a->p->target);
  const char *vectors = vectors_text(&m, p->input, p->expected);
  const char *check = check_text(&m);
  make_folder(ctx, p->folder);
  if (*m.source_dir) make_folder(ctx, arena_printf(arena, "%s/src", p->folder));
  if (*m.model_dir) make_folder(ctx, arena_printf(arena, "%s/model", p->folder));
  for (const MicroFile *f = micro_files(m.layout, str_starts(m.a->p->target->triple, "riscv32")); f->path; f++) {
    const char *text = fill(&m, f->text);
    write_file(&m, fill(&m, f->path), text, strlen(text));
  }
  write_file(&m, arena_printf(arena, "%svectors.h", m.source_dir), vectors, strlen(vectors));
  write_file(&m, arena_printf(arena, "%scheck.c", m.source_dir), check, strlen(check));
  AotFiles files = {0};
  aot_files(m.a, arena, p->name, WEIGHTS_TEXT, &files);
  for (int i = 0; i < files.n; i++)
    write_file(&m, arena_printf(arena, "%s%s", m.model_dir, files.v[i].name), files.v[i].bytes, files.v[i].n);
  scope_end(ctx, scope);
}
