/* micro.h: projects for microcontrollers around a program ahead of time; private to this folder.
 *
 *   Aot, board, inputs and what they must give ─micro_project.c→ a folder that builds by itself
 *   folder ─micro.c→ built, its sizes, what it says when QEMU runs it
 *
 * Files of every layout: the model, check.c (runs it on the vectors of vectors.h, compares, counts) and what says the
 * words of the check on that platform.  micro_text.c has the texts. */
#ifndef LATHE_DRIVER_MICRO_H
#define LATHE_DRIVER_MICRO_H

#include "driver/aot.h"

typedef struct MicroBoard {
  const char *name;
  const char *cpus;                /* of targets whose programs run on it; the first is its own */
  const char *qemu, *qemu_package; /* the emulator, and Debian's name of its package */
  const char *machine;             /* its words for the emulator */
  uint32_t vectors;                /* where the processor looks for them */
  uint32_t code, code_bytes, data, data_bytes;
} MicroBoard;
extern const MicroBoard micro_board[];
extern const int micro_nboards;
const MicroBoard *micro_find_board(Ctx *, const char *name); /* raises with the list */
bool micro_has_cpu(const MicroBoard *, const char *cpu);

typedef enum { MICRO_BARE, MICRO_ZEPHYR, MICRO_ARDUINO, MICRO_PLATFORMIO, MICRO_NLAYOUTS } MicroLayout;
extern const char *const micro_layouts[MICRO_NLAYOUTS];

/* A file of a project: its text has @words@, which are put in. */
typedef struct MicroFile {
  const char *path; /* in the folder, with @words@ too */
  const char *text;
} MicroFile;
/* Of a layout, a row of NULL behind the last; on a RISC-V processor or on an Arm one. */
const MicroFile *micro_files(MicroLayout, bool riscv);
extern const char micro_check_head[], micro_check_tail[]; /* of check.c, around the calls of the model */

#endif
