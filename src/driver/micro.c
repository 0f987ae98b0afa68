/* micro.c: boards that QEMU has, and projects for them: built, measured, run. */
#include "driver/micro.h"

#include <unistd.h>

#include "driver/driver.h"

/* Time goes on by 64 ns an instruction, more than a tick of SysTick; RISC-V counts instructions itself. */
#define FAST " -icount shift=6"

/* clang-format off */
const MicroBoard micro_board[] = {
  /* name       processors                         emulator               package             machine
     vectors     code        bytes     data        bytes */
  {"mps2-an385", "cortex-m3 cortex-m0 cortex-m0plus", "qemu-system-arm", "qemu-system-arm", "-M mps2-an385" FAST,
    0x00000000, 0x00000000, 4 << 20, 0x20000000, 4 << 20},
  {"mps2-an386", "cortex-m4", "qemu-system-arm", "qemu-system-arm", "-M mps2-an386" FAST,
    0x00000000, 0x00000000, 4 << 20, 0x20000000, 4 << 20},
  {"mps2-an500", "cortex-m7", "qemu-system-arm", "qemu-system-arm", "-M mps2-an500" FAST,
    0x00000000, 0x00000000, 4 << 20, 0x20000000, 4 << 20},
  {"mps2-an505", "cortex-m33", "qemu-system-arm", "qemu-system-arm", "-M mps2-an505" FAST,
    0x10000000, 0x10000000, 4 << 20, 0x38000000, 4 << 20},
  {"mps3-an547", "cortex-m55", "qemu-system-arm", "qemu-system-arm", "-M mps3-an547" FAST,
    0x00000000, 0x01000000, 2 << 20, 0x21000000, 2 << 20},
  {"riscv32-virt", "riscv32", "qemu-system-riscv32", "qemu-system-misc", "-M virt -bios none -icount shift=0",
    0x80000000, 0x80000000, 8 << 20, 0x80800000, 8 << 20},
};
/* clang-format on */
const int micro_nboards = sizeof micro_board / sizeof *micro_board;
const char *const micro_layouts[MICRO_NLAYOUTS] = {"bare", "zephyr", "arduino", "platformio"};

bool micro_has_cpu(const MicroBoard *b, const char *cpu)
{
  size_t n = strlen(cpu);
  for (const char *at = b->cpus; (at = strstr(at, cpu)); at += n)
    if ((at == b->cpus || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

const MicroBoard *micro_find_board(Ctx *ctx, const char *name)
{
  Text known = text_new(scratch(ctx));
  for (int i = 0; i < micro_nboards; i++) {
    if (!strcmp(micro_board[i].name, name)) return &micro_board[i];
    text_printf(&known, "%s%s", i ? ", " : "", micro_board[i].name);
  }
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no board '%s'; there are %s", name, text_str(&known));
}

void micro_each_board(void (*take)(void *, const char *name, const char *cpus), void *env)
{
  for (int i = 0; i < micro_nboards; i++) take(env, micro_board[i].name, micro_board[i].cpus);
}

/* ---- built projects ------------------------------------------------------------------------------------------ */

typedef struct Built {
  const MicroBoard *board;
  const char *stem;
  bool riscv;
} Built;

/* The first line of its Makefile says what a project is. */
static Built read_project(Ctx *ctx, const char *folder)
{
  Arena *arena = scratch(ctx);
  static const char head[] = "# Lathe's project ";
  static const char board[] = ": board ";
  size_t n;
  const char *text = "";
  const char *path = arena_printf(arena, "%s/Makefile", folder);
  if (access(path, R_OK) == 0) text = file_read(arena, path, &n, 1 << 20);
  const char *at = strstr(text, board);
  if (!str_starts(text, head) || !at)
    raise(
        ctx, ERR_ARGUMENT, NOWHERE,
        "'%s' is no bare-metal project; 'lathe micro new MODEL -o FOLDER' makes one (the README of another layout says "
        "how that is built)",
        folder);
  const char *name = at + strlen(board);
  Built b = {.stem = arena_strndup(arena, text + strlen(head), (size_t)(at - text) - strlen(head))};
  b.board = micro_find_board(ctx, arena_strndup(arena, name, strcspn(name, ",\n")));
  b.riscv = micro_has_cpu(b.board, "riscv32");
  return b;
}

static void need(Ctx *ctx, const char *tool, const char *package)
{
  if (!process_exists(scratch(ctx), tool))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "the project needs '%s', which is not there (Debian: apt install %s)", tool,
          package);
}

static void need_compiler(Ctx *ctx, const Built *b)
{
  need(ctx, "make", "make");
  if (b->riscv) need(ctx, "riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf");
  else need(ctx, "arm-none-eabi-gcc", "gcc-arm-none-eabi libnewlib-arm-none-eabi");
}

static void make(Ctx *ctx, const char *folder, const char *what)
{
  const char *said = "";
  int status = process_run(scratch(ctx), (const char *const[]){"make", "-s", "-C", folder, what, NULL}, &said);
  if (status) raise(ctx, ERR_IO, NOWHERE, "building '%s' failed: %.1500s", folder, said);
}

const char *micro_build(Ctx *ctx, Arena *arena, const char *folder)
{
  Scope scope = scope_begin(ctx);
  Built b = read_project(ctx, folder);
  need_compiler(ctx, &b);
  const char *program = arena_printf(scratch(ctx), "%s.elf", b.stem);
  make(ctx, folder, program);
  const char *path = arena_printf(arena, "%s/%s", folder, program);
  scope_end(ctx, scope);
  return path;
}

MicroSizes micro_size(Ctx *ctx, const char *folder)
{
  Scope scope = scope_begin(ctx);
  Arena *arena = scratch(ctx);
  Built b = read_project(ctx, folder);
  need_compiler(ctx, &b);
  make(ctx, folder, "model.o");
  size_t n;
  size_t unused;
  const char *object = file_read(arena, arena_printf(arena, "%s/model.o", folder), &n, 0);
  const char *usage = file_read(arena, arena_printf(arena, "%s/model.su", folder), &unused, 0);
  ObjectSizes s = aot_object_sizes(object, n, usage);
  MicroSizes out = {s.code, s.constants, s.written, s.stack};
  scope_end(ctx, scope);
  return out;
}

const char *micro_run(Ctx *ctx, Arena *arena, const char *folder)
{
  Scope scope = scope_begin(ctx);
  Built b = read_project(ctx, folder);
  micro_build(ctx, scratch(ctx), folder);
  need(ctx, b.board->qemu, b.board->qemu_package);
  const char *said = "";
  size_t n;
  int status = process_run(scratch(ctx), (const char *const[]){"make", "-s", "-C", folder, "run", NULL}, &said);
  const char *text = file_read(scratch(ctx), arena_printf(scratch(ctx), "%s/run.txt", folder), &n, 0);
  if (status && !strstr(text, "\ncheck "))
    raise(ctx, ERR_IO, NOWHERE, "the program did not come to its end on %s: %.800s", b.board->name, said);
  const char *out = arena_strndup(arena, text, n);
  scope_end(ctx, scope);
  return out;
}
