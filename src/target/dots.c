/* dots.c: the instructions that multiply several narrow elements and add all products to a wide sum.
 *
 * A row says what an instruction takes and gives; lowering asks for the row of the operands it has (target_dot), the
 * code generator for the name that LLVM knows it by.  Rows that work on whole blocks of sums are target_block_dot's;
 * those on tiles, and of processors for which no code is made yet, are here as facts for cost models. */
#include "target/target.h"

#include <string.h>

#define ARM(name) "llvm.aarch64.neon." name
#define X86(name) "llvm.x86." name
/* clang-format off */
/* bytes of either sign as 16 bits, the even ones and the odd ones, each two of which are multiplied and added */
#define PAIRS(name, feature, bits, llvm)                                                            \
  {name, ARCH_X86_64, feature, NULL, DOT_S8, DOT_S8, 4, 1, 1, bits, .25, llvm, false},                     \
  {name, ARCH_X86_64, feature, NULL, DOT_U8, DOT_S8, 4, 1, 1, bits, .25, llvm, false},                     \
  {name, ARCH_X86_64, feature, NULL, DOT_U8, DOT_U8, 4, 1, 1, bits, .25, llvm, false},
static const TargetDot rows[] = {
  /* name        architecture    feature          attr     a         b         group rows columns bits rate  LLVM */
  {"sdot",       ARCH_AARCH64, CPU_DOTPROD,    NULL,       DOT_S8,   DOT_S8,   4, 1, 1, 128, 1, ARM("sdot"), false},
  {"udot",       ARCH_AARCH64, CPU_DOTPROD,    NULL,       DOT_U8,   DOT_U8,   4, 1, 1, 128, 1, ARM("udot"), false},
  {"usdot",      ARCH_AARCH64, CPU_I8MM,       NULL,       DOT_U8,   DOT_S8,   4, 1, 1, 128, 1, ARM("usdot"), false},
  {"smmla",      ARCH_AARCH64, CPU_I8MM,       NULL,       DOT_S8,   DOT_S8,   8, 2, 2, 128, 1, ARM("smmla"), false},
  {"ummla",      ARCH_AARCH64, CPU_I8MM,       NULL,       DOT_U8,   DOT_U8,   8, 2, 2, 128, 1, ARM("ummla"), false},
  {"usmmla",     ARCH_AARCH64, CPU_I8MM,       NULL,       DOT_U8,   DOT_S8,   8, 2, 2, 128, 1, ARM("usmmla"), false},
  {"bfdot",      ARCH_AARCH64, CPU_BF16,       NULL,       DOT_BF16, DOT_BF16, 2, 1, 1, 128, 1, ARM("bfdot"), false},
  {"bfmmla",     ARCH_AARCH64, CPU_BF16,       NULL,       DOT_BF16, DOT_BF16, 4, 2, 2, 128, 1, ARM("bfmmla"), false},
  {"vpdpbusd", ARCH_X86_64, CPU_AVX512VNNI, NULL, DOT_U8, DOT_S8, 4, 1, 1, 512, 1, X86("avx512.vpdpbusd.%d"), false},
  {"vpdpbusd", ARCH_X86_64, CPU_AVXVNNI,    NULL, DOT_U8, DOT_S8, 4, 1, 1, 256, 1, X86("avx512.vpdpbusd.%d"), false},
  PAIRS("vpmaddwd", CPU_AVX512BW, 512, X86("avx512.pmaddw.d.512"))
  PAIRS("vpmaddwd", CPU_AVX2, 256, X86("avx2.pmadd.wd"))
  PAIRS("pmaddwd", CPU_SSE42, 128, X86("sse2.pmadd.wd"))
  {"vdpbf16ps", ARCH_X86_64, CPU_AVX512BF16, NULL, DOT_BF16, DOT_BF16, 2, 1, 1, 512, .5, X86("avx512bf16.dpbf16ps.%d"),
   false},
  {"tdpbusd", ARCH_X86_64,  CPU_NFEATURES,  "amx-int8", DOT_U8,   DOT_S8,   64, 16, 16, 0, 0.0625, NULL, false},
  {"tdpbssd", ARCH_X86_64,  CPU_NFEATURES,  "amx-int8", DOT_S8,   DOT_S8,   64, 16, 16, 0, 0.0625, NULL, false},
  {"tdpbf16ps", ARCH_X86_64,  CPU_NFEATURES,  "amx-bf16", DOT_BF16, DOT_BF16, 32, 16, 16, 0, 0.0625, NULL, false},
  {"smlad",      ARCH_ARM,     CPU_DSP,        NULL,       DOT_S8,   DOT_S8,   4, 1, 1, 32, 2, NULL, true},
  {"smlad",      ARCH_ARM,     CPU_DSP,        NULL,       DOT_U8,   DOT_S8,   4, 1, 1, 32, 2, NULL, true},
  {"smlad",      ARCH_ARM,     CPU_DSP,        NULL,       DOT_S16,  DOT_S16,  2, 1, 1, 32, 1, NULL, false},
  {"vmladava.s8",  ARCH_ARM,   CPU_MVE,        NULL,       DOT_S8,   DOT_S8,   16, 1, 1, 128, 1, NULL, true},
  {"vmladava.s16", ARCH_ARM,   CPU_MVE,        NULL,       DOT_S8,   DOT_S8,   8, 1, 1, 64, 1, NULL, true},
  {"vmladava.s32", ARCH_ARM,   CPU_MVE,        NULL,       DOT_S8,   DOT_S8,   4, 1, 1, 32, 1, NULL, true},
};
/* clang-format on */
enum { NROWS = sizeof rows / sizeof *rows };

static bool has_row(const Target *t, const TargetDot *r)
{
  bool known = t->codegen == CODEGEN_LLVM ? r->llvm != NULL : t->codegen == CODEGEN_C && r->in_c;
  return known && t->arch == r->arch && r->feature < CPU_NFEATURES && target_has(t, r->feature);
}

bool target_dot_of_pairs(const TargetDot *r) { return r->group == 4 && r->rate < 0.5 && r->rows == 1 && r->bits; }

/* Vectors of 32-bit sums that the instruction takes. */
static bool takes_lanes(const Target *t, const TargetDot *r, int lanes)
{
  if (r->rows > 1 || lanes * 32 > r->bits) return false;
  if (r->arch == ARCH_ARM) return lanes == 1;
  if (r->arch == ARCH_AARCH64) return lanes == 2 || lanes == 4;
  if (target_dot_of_pairs(r)) return lanes * 32 == r->bits;
  if (r->feature == CPU_AVXVNNI) return lanes == 4 || lanes == 8;
  return lanes == 16 || (target_has(t, CPU_AVX512VL) && (lanes == 4 || lanes == 8));
}

const TargetDot *target_dot(const Target *t, DotElement a, DotElement b, int lanes)
{
  for (int i = 0; i < NROWS; i++)
    if (rows[i].a == a && rows[i].b == b && has_row(t, &rows[i]) && takes_lanes(t, &rows[i], lanes)) return &rows[i];
  return NULL;
}

const TargetDot *target_block_dot(const Target *t, DotElement a, DotElement b)
{
  for (int i = 0; i < NROWS; i++)
    if (rows[i].a == a && rows[i].b == b && rows[i].rows == 2 && rows[i].columns == 2 && has_row(t, &rows[i]))
      return &rows[i];
  return NULL;
}

/* The whole vector is added to one sum. */
int target_dot_group(const Target *t, DotElement a, DotElement b, int64_t of)
{
  for (int i = 0; i < NROWS; i++)
    if (rows[i].a == a && rows[i].b == b && has_row(t, &rows[i]) && rows[i].feature == CPU_MVE &&
        of % rows[i].group == 0)
      return rows[i].group;
  return 0;
}

bool target_looks_up(const Target *t) { return t->codegen == CODEGEN_LLVM && t->arch == ARCH_AARCH64; }

bool target_rounds_away(const Target *t) { return t->codegen == CODEGEN_LLVM && t->arch == ARCH_AARCH64; }

bool target_rounds(const Target *t, int lanes)
{
  if (target_has_quads(t)) return lanes == QUAD;
  return t->codegen == CODEGEN_LLVM && t->arch == ARCH_AARCH64 && lanes >= 4 && lanes <= 64 && !(lanes & (lanes - 1));
}

bool target_has_quads(const Target *t)
{
  return t->codegen == CODEGEN_C && t->device.kind == DEVICE_MICRO && target_has(t, CPU_MVE);
}

bool target_dot_data(const Target *t, DotElement *out)
{
  for (int i = 0; i < NROWS; i++)
    if (rows[i].b == DOT_S8 && rows[i].group == 4 && has_row(t, &rows[i])) {
      *out = rows[i].a;
      return true;
    }
  return false;
}
