/* micro_text.c: the texts of projects for microcontrollers.  @words@ are put in by micro_project.c. */
#include "driver/micro.h"

/* ---- every layout: the check -------------------------------------------------------------------------------- */

static const char check_h[] =
    "/* check.h: the model on the vectors of this project. */\n"
    "#ifndef CHECK_H\n#define CHECK_H\n\n#include <stdint.h>\n\n"
    "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
    "/* Runs the model once and says, in lines: instructions of each layer, bytes of each output, and whether it is\n"
    " * what the host computed.  0: it is. */\n"
    "int check(void);\n\n"
    "/* What the platform gives. */\n"
    "void say(const char *text);\n"
    "uint64_t count(void); /* instructions, or ticks of what the platform counts, so far */\n\n"
    "#ifdef __cplusplus\n}\n#endif\n#endif\n";

static const char layer_h[] =
    "/* layer.h: what the model does after each layer; the compiler is told to include it. */\n"
    "void layer_done(int number);\n"
    "#define @NAME@_LAYER(number) layer_done(number)\n";

const char micro_check_head[] =
    "/* check.c: the model on the vectors of this project; check.h says more. */\n"
    "#include \"check.h\"\n\n#include \"@stem@.h\"\n#include \"vectors.h\"\n\n"
    "static uint64_t counted[LAYERS];\nstatic uint64_t since;\nstatic uint64_t own; /* count of a layer that does "
    "nothing */\n\n"
    "void layer_done(int number);\n"
    "void layer_done(int number)\n{\n  uint64_t spent = count() - since;\n"
    "  counted[number] += spent > own ? spent - own : 0;\n  since = count();\n}\n\n"
    "static void say_number(uint64_t n)\n{\n  char text[24];\n  int at = 23;\n  text[at] = 0;\n"
    "  do text[--at] = (char)('0' + n % 10);\n  while (n /= 10);\n  say(text + at);\n}\n\n"
    "static void say_bytes(int number, const void *from, unsigned long n)\n{\n"
    "  static const char digit[] = \"0123456789abcdef\";\n  const unsigned char *b = from;\n  char text[129];\n"
    "  say(\"output \");\n  say_number((uint64_t)number);\n  say(\" \");\n"
    "  for (unsigned long i = 0; i < n;) {\n    int k = 0;\n"
    "    for (; k < 128 && i < n; i++) text[k++] = digit[b[i] >> 4], text[k++] = digit[b[i] & 15];\n"
    "    text[k] = 0;\n    say(text);\n  }\n  say(\"\\n\");\n}\n\n"
    "static int say_verdict(int number, const char *how, uint64_t n, int bad)\n{\n"
    "  say(\"check \");\n  say_number((uint64_t)number);\n  say(bad ? \" differs \" : \" agrees \");\n  say(how);\n"
    "  say(\" \");\n  say_number(n);\n  say(\"\\n\");\n  return bad;\n}\n\n"
    "/* Integers are the host's bit for bit. */\n"
    "static inline int compare_exactly(int number, const void *have, const void *want, unsigned long n)\n{\n"
    "  const unsigned char *a = have;\n  const unsigned char *b = want;\n  uint64_t differ = 0;\n"
    "  for (unsigned long i = 0; i < n; i++) differ += a[i] != b[i];\n"
    "  return say_verdict(number, \"bytes\", differ, differ != 0);\n}\n\n"
    "/* Floats are within a ten-thousandth of the largest: sums are added up in another order here. */\n"
    "static inline int compare_nearly(int number, const float *have, const float *want, unsigned long n)\n{\n"
    "  float largest = 0;\n  float worst = 0;\n"
    "  for (unsigned long i = 0; i < n; i++) {\n    float size = want[i] < 0 ? -want[i] : want[i];\n"
    "    float off = have[i] < want[i] ? want[i] - have[i] : have[i] - want[i];\n"
    "    if (size > largest) largest = size;\n    if (!(off <= worst)) worst = off;\n  }\n"
    "  int bad = !(worst <= largest * 1e-4f);\n"
    "  return say_verdict(number, \"millionths\", bad && !(worst <= largest) ? 1000000 : largest > 0 ? "
    "(uint64_t)(worst / largest * 1e6f) : 0, bad);\n}\n\n"
    "int check(void)\n{\n  int bad = 0;\n  since = count();\n  layer_done(0);\n  own = counted[0];\n  counted[0] = 0;\n"
    "  uint64_t begin = count();\n  since = begin;\n";

const char micro_check_tail[] = "  return bad;\n}\n";

static const char readme[] =
    "# @stem@ on @board@\n\n"
    "Made by `lathe micro new` for target `@target@`.\n\n"
    "| file | what it is |\n|---|---|\n"
    "| `@modeldir@@stem@.c`, `.h` | the model: plain C; the header says how it is called |\n"
    "| `@srcdir@vectors.h` | golden vectors: inputs, and what the host made of them |\n"
    "| `@srcdir@check.c` | runs the model on them, compares, counts instructions of each layer |\n"
    "@readme@";

/* ---- bare metal ------------------------------------------------------------------------------------------------ */

static const char linker_script[] =
    "/* @board@: code and weights in the first memory, everything that is written in the second. */\n"
    "ENTRY(reset)\n"
    "MEMORY {\n"
    "  VECTORS (rx) : ORIGIN = @vectors@, LENGTH = 1K\n"
    "  FLASH (rx) : ORIGIN = @code@, LENGTH = @code_bytes@\n"
    "  RAM (rwx) : ORIGIN = @data@, LENGTH = @data_bytes@\n"
    "}\n"
    "SECTIONS {\n"
    "  .vectors : { KEEP(*(.vectors)) } > VECTORS\n"
    "  .text : { *(.text*) *(.rodata*) *(.srodata*) } > FLASH\n"
    "  .ARM.exidx : { *(.ARM.exidx*) } > FLASH\n"
    "  .data : { data_start = .; *(.data*) *(.sdata*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH\n"
    "  data_load = LOADADDR(.data);\n"
    "  .bss : { bss_start = .; *(.sbss*) *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; } > RAM\n"
    "  stack_top = ORIGIN(RAM) + LENGTH(RAM);\n"
    "}\n";

static const char board_arm[] =
    "/* board.c: from reset to the check; words to the debugger; a count of instructions. */\n"
    "#include \"check.h\"\n\n"
    "extern uint32_t stack_top, data_start, data_end, data_load, bss_start, bss_end;\n\n"
    "/* Asks the debugger, or QEMU, for something (Arm's semihosting). */\n"
    "static void ask(int what, const void *with)\n{\n"
    "  register int r0 __asm__(\"r0\") = what;\n  register const void *r1 __asm__(\"r1\") = with;\n"
    "  __asm__ volatile(\"bkpt 0xab\" : \"+r\"(r0) : \"r\"(r1) : \"memory\");\n}\n\n"
    "void say(const char *text) { ask(0x04, text); }\n\n"
    "static void leave(int status)\n{\n  ask(0x18, (const void *)(status ? 0x20023 : 0x20026));\n  for (;;) {}\n}\n\n"
    "/* SysTick, and its turns. */\n"
    "#define CONTROL (*(volatile uint32_t *)0xE000E010)\n#define RELOAD (*(volatile uint32_t *)0xE000E014)\n"
    "#define CURRENT (*(volatile uint32_t *)0xE000E018)\n"
    "enum { LOOP = 1 << 16 };\n"
    "static volatile uint32_t turns;\nstatic uint64_t ticks_of_loop;\n\n"
    "static void systick(void) { turns++; }\n\n"
    "/* SysTick counts down 24 bits; QEMU's clock goes on by the same time for each instruction. */\n"
    "static uint64_t ticks(void)\n{\n  uint32_t turn, left;\n  do turn = turns, left = CURRENT;\n  while (turn != "
    "turns);\n"
    "  return ((uint64_t)turn << 24) + (0xFFFFFF - left);\n}\n\n"
    "uint64_t count(void) { return ticks() * (2 * LOOP) / ticks_of_loop; }\n\n"
    "/* Two instructions, LOOP times: how many ticks an instruction takes. */\n"
    "static void start_count(void)\n{\n  RELOAD = 0xFFFFFF;\n  CURRENT = 0;\n  CONTROL = 7;\n"
    "  uint64_t before = ticks();\n  uint32_t n = LOOP;\n"
    "  __asm__ volatile(\".syntax unified\\n1: subs %0, %0, #1\\n   bne 1b\" : \"+l\"(n) : : \"cc\");\n"
    "  ticks_of_loop = ticks() - before;\n}\n\n"
    "void reset(void);\n"
    "void reset(void)\n{\n"
    "#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)\n"
    "  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */\n"
    "  __asm__ volatile(\"dsb\\n isb\");\n#endif\n"
    "  for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;\n"
    "  for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;\n"
    "  start_count();\n  leave(check());\n}\n\n"
    "static void fault(void)\n{\n  say(\"fault\\n\");\n  leave(1);\n}\n\n"
    "__attribute__((section(\".vectors\"), used)) static const void *const vectors[16] = {\n"
    "  &stack_top, (const void *)reset, (const void *)fault, (const void *)fault, (const void *)fault, (const void "
    "*)fault,\n"
    "  (const void *)fault, (const void *)fault, 0, 0, 0, 0, 0, 0, 0, (const void *)systick};\n";

static const char board_riscv[] =
    "/* board.c: from reset to the check; words to the debugger; a count of instructions. */\n"
    "#include \"check.h\"\n\n"
    "extern uint32_t bss_start, bss_end;\n\n"
    "/* Asks the debugger, or QEMU, for something (RISC-V's semihosting). */\n"
    "static void ask(int what, const void *with)\n{\n"
    "  register int a0 __asm__(\"a0\") = what;\n  register const void *a1 __asm__(\"a1\") = with;\n"
    "  __asm__ volatile(\".option push\\n .option norvc\\n .balign 16\\n slli x0, x0, 0x1f\\n ebreak\\n srai x0, x0, "
    "7\\n"
    " .option pop\"\n                   : \"+r\"(a0) : \"r\"(a1) : \"memory\");\n}\n\n"
    "void say(const char *text) { ask(0x04, text); }\n\n"
    "static void leave(int status)\n{\n  ask(0x18, (const void *)(status ? 0x20023 : 0x20026));\n  for (;;) {}\n}\n\n"
    "/* Instructions that the processor has retired. */\n"
    "uint64_t count(void)\n{\n  uint32_t high, low, again;\n"
    "  do __asm__ volatile(\".option arch, +zicsr\\n csrr %0, minstreth\\n csrr %1, minstret\\n csrr %2, minstreth\" : "
    "\"=r\"(high), \"=r\"(low), \"=r\"(again));\n"
    "  while (high != again);\n  return ((uint64_t)high << 32) + low;\n}\n\n"
    "static void fault(void)\n{\n  say(\"fault\\n\");\n  leave(1);\n}\n\n"
    "__attribute__((used)) static void begin(void)\n{\n"
    "  for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;\n"
    "  __asm__ volatile(\".option arch, +zicsr\\n csrw mtvec, %0\" : : \"r\"(fault));\n  leave(check());\n}\n\n"
    "__attribute__((naked, section(\".vectors\"), used)) void reset(void);\n"
    "void reset(void) { __asm__ volatile(\"la sp, stack_top\\n j begin\"); }\n";

static const char makefile[] =
    "# Lathe's project @stem@: board @board@, processor @cpu@\n"
    "#   make        builds @stem@.elf\n"
    "#   make run    runs it in QEMU; what it says is in run.txt\n"
    "#   make model.o    the model alone, for its sizes\n"
    "#   make EXTRA_FLAGS=-I... EXTRA_LIBS=...    with a library that parts of the model call\n"
    "CC = @cc@\n"
    "FLAGS = @flags@ -O2 -fno-math-errno -ffp-contract=fast -ffunction-sections -fdata-sections -Wall -Wextra -Imodel "
    "-I. $(EXTRA_FLAGS)\n\n"
    "@stem@.elf: check.c check.h vectors.h board.c board.ld layer.h counted.o\n"
    "\t$(CC) $(FLAGS) check.c board.c counted.o $(EXTRA_LIBS) -nostartfiles @specs@ -Wl,--gc-sections -T board.ld -lm "
    "-o $@\n\n"
    "counted.o: model/@stem@.c model/@stem@.h layer.h\n"
    "\t$(CC) $(FLAGS) -include layer.h -c model/@stem@.c -o $@\n\n"
    "model.o: model/@stem@.c model/@stem@.h\n"
    "\t$(CC) $(FLAGS) -fstack-usage -c model/@stem@.c -o $@\n\n"
    "run: @stem@.elf\n"
    "\t@ok=0; @qemu@ @machine@ -nographic -monitor none -serial null \\\n"
    "\t  -chardev file,id=said,path=run.txt -semihosting-config enable=on,target=native,chardev=said \\\n"
    "\t  -kernel @stem@.elf </dev/null || ok=1; cat run.txt; exit $$ok\n\n"
    "clean:\n\trm -f @stem@.elf counted.o model.o model.su run.txt\n\n.PHONY: run clean\n";

/* ---- platforms ---------------------------------------------------------------------------------- */

static const char zephyr_cmake[] =
    "cmake_minimum_required(VERSION 3.20)\n"
    "find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})\n"
    "project(@name@ C)\n"
    "target_sources(app PRIVATE src/main.c src/check.c model/@stem@.c)\n"
    "target_include_directories(app PRIVATE src model)\n"
    "set_source_files_properties(model/@stem@.c PROPERTIES COMPILE_OPTIONS\n"
    "  \"-O2;-fno-math-errno;-ffp-contract=fast;-include;${CMAKE_CURRENT_SOURCE_DIR}/src/layer.h\")\n";

static const char zephyr_conf[] = "# @stem@: single-precision floats in hardware where the processor has them\n"
                                  "CONFIG_MAIN_STACK_SIZE=4096\n"
                                  "CONFIG_PRINTK=y\n"
                                  "@fpu@";

static const char zephyr_main[] =
    "/* main.c: the check under Zephyr; its words go to the console, its counts are cycles. */\n"
    "#include <zephyr/kernel.h>\n#include <zephyr/sys/printk.h>\n\n#include \"check.h\"\n\n"
    "void say(const char *text) { printk(\"%s\", text); }\n"
    "uint64_t count(void) { return k_cycle_get_32(); }\n\n"
    "int main(void)\n{\n  int bad = check();\n  printk(bad ? \"the outputs differ\\n\" : \"the outputs are "
    "right\\n\");\n"
    "  return bad;\n}\n";

#define ARDUINO_BODY                                                  \
  "extern \"C\" void say(const char *text) { Serial.print(text); }\n" \
  "extern \"C\" uint64_t count(void) { return micros(); }\n\n"        \
  "void setup()\n{\n  Serial.begin(115200);\n  while (!Serial) {}\n"  \
  "  Serial.println(check() ? \"the outputs differ\" : \"the outputs are right\");\n}\n\nvoid loop() {}\n"

static const char arduino_sketch[] =
    "/* The check on an Arduino board; its words go to the serial port, its counts are microseconds. */\n"
    "#include <Arduino.h>\n\n#include \"check.h\"\n\n" ARDUINO_BODY;

static const char platformio_ini[] =
    "; @stem@: set platform and board to yours (pio boards lists them)\n"
    "[env:@cpu@]\nplatform = @platform@\nboard = @pio_board@\nframework = arduino\nmonitor_speed = 115200\n"
    "build_flags = -O2 -fno-math-errno -ffp-contract=fast -Isrc -Imodel\n"
    "build_src_filter = +<*> +<../model/>\n";

/* ---- which files a layout has ------------------------------------------------------------------- */

#define BARE(board)                                                                               \
  {"README.md", readme}, {"Makefile", makefile}, {"board.ld", linker_script}, {"board.c", board}, \
      {"check.h", check_h}, {"layer.h", layer_h},                                                 \
  {                                                                                               \
    NULL, NULL                                                                                    \
  }

const MicroFile *micro_files(MicroLayout layout, bool riscv)
{
  static const MicroFile arm[] = {BARE(board_arm)};
  static const MicroFile risc[] = {BARE(board_riscv)};
  static const MicroFile zephyr[] = {
    {"README.md", readme},
    {"CMakeLists.txt", zephyr_cmake},
    {"prj.conf", zephyr_conf},
    {"src/main.c", zephyr_main},
    {"src/check.h", check_h},
    {"src/layer.h", layer_h},
    {NULL, NULL},
  };
  static const MicroFile arduino[] = {
    {"README.md", readme}, {"@folder@.ino", arduino_sketch}, {"check.h", check_h}, {NULL, NULL}};
  static const MicroFile platformio[] = {
    {"README.md", readme},
    {"platformio.ini", platformio_ini},
    {"src/main.cpp", arduino_sketch},
    {"src/check.h", check_h},
    {NULL, NULL},
  };
  switch (layout) {
  case MICRO_BARE: return riscv ? risc : arm;
  case MICRO_ZEPHYR: return zephyr;
  case MICRO_ARDUINO: return arduino;
  case MICRO_PLATFORMIO: return platformio;
  case MICRO_NLAYOUTS: break;
  }
  return NULL;
}
