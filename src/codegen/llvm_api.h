/* llvm_api.h: LLVM's C interface, found at run time; for src/codegen/llvm*.c alone.
 *
 * No library of Lathe's is linked with libLLVM.  The first compilation opens it and looks
 * up the functions of llvm_api.def, and from then on LLVMBuildAdd(…) in these files means
 * llvm_api.BuildAdd(…): llvm_names.h, which the build makes from llvm_api.def, has one such
 * name a row.  A function without a row does not link.
 *
 * One Lathe serves every LLVM from 14 to 22, whichever headers it was built with, so what
 * differs between them is asked at run time: llvm_api.major. */
#ifndef LATHE_CODEGEN_LLVM_API_H
#define LATHE_CODEGEN_LLVM_API_H

#include <llvm-c/Analysis.h>
#include <llvm-c/BitReader.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Orc.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "codegen/codegen.h"

#define LLVM_OLDEST 14
#define LLVM_NEWEST 22

typedef struct LlvmApi {
  int major;
  char version[32]; /* "19.1.7"; the major number alone where LLVM does not tell (before 16) */
#define LLVM_FUNCTION(name) __typeof__(LLVM##name) *name;
#include "codegen/llvm_api.def"
#undef LLVM_FUNCTION
  LLVMTypeRef (*plain_pointer)(LLVMContextRef, unsigned space); /* LLVMPointerTypeInContext; NULL before 15 */
} LlvmApi;

/* Filled by codegen_llvm_load. */
extern LlvmApi llvm_api;

/* Makes the machines of this architecture known to LLVM. */
void llvm_init_target(Arch);

#include "codegen/llvm_names.h"

#endif
