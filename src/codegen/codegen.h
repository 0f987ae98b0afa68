/* codegen.h: from kernels to code.
 *
 * Each backend takes kernels in the form lower.h describes and gives the same
 * things: for each kernel a plain C-ABI function with the kernel's name
 *   int32_t name(args…, sizes…, void *workspace, const LatheRtCalls *rt)
 * (tensor arguments are restrict pointers to the element type, const when only
 * read; scalars by value; sizes int64), the uniform entries `name__call` and
 * `name__shape`, and the table `lathe_module`, as include/lathe_rt.h has them.
 *
 * Pointers to tensors are known to be aligned to their element and no more; the
 * workspace is aligned as target_align says, stack allocations to 64 bytes.
 *
 * A parallel loop is outlined as a LatheRtBody over a struct of its captures and
 * handed to rt->parallel_for; its status is passed on. */
#ifndef LATHE_CODEGEN_H
#define LATHE_CODEGEN_H

#include "lathe_rt.h"
#include "lower/lower.h"

typedef struct Code Code;

/* Text and bytes a compiled set of kernels can be shown as. */
typedef enum { CODE_LL, CODE_ASM, CODE_C, CODE_CUDA, CODE_PTX, CODE_OBJECT } CodeFormat;

/* ---- llvm.c (absent without LLVM: then codegen_has_llvm is false) ------------ */
bool codegen_has_llvm(void);
/* libLLVM is found at run time, when code is first asked for (llvm_api.c says where).  Loads it, or raises
 * ERR_UNSUPPORTED with what to install; worth calling before long work for this target. */
void codegen_llvm_load(Ctx *, const Target *);
const char *codegen_llvm_version(void); /* of the library, which this loads; "" without */
/* The kernels' LLVM IR, optimised for the target, and their objects, kept until the Code is freed. */
Code *codegen_llvm(Ctx *, const Target *, int n, Kernel *const *);
/* The same in steps: kernels may be compiled each in a thread and context of its own.  alone: it is
 * the only one.  The Code takes the parts over (parts[i] becomes NULL). */
typedef struct CodePart CodePart;
CodePart *codegen_llvm_part(Ctx *, const Target *, Kernel *, bool alone);
void code_part_free(CodePart *);
Code *codegen_llvm_join(Ctx *, const Target *, int n, Kernel *const *, CodePart **parts);
/* Registers the code with the JIT and gives its table; stays valid while code lives. */
const LatheRtModuleInfo *codegen_llvm_jit(Code *);

/* ---- c.c, cuda.c, nvrtc.c: dialects of cstyle.c --------------------------------------------------- */
Code *codegen_c(Ctx *, const Target *, int n, Kernel *const *);
/* The host's side of kernels that another device runs: the same table, whose functions launch (one block of one thread)
 * what the device's image has under the kernel's name, with the slots and behind them the workspace. */
Code *codegen_c_launch(Ctx *, const Target *, int n, Kernel *const *);
/* Kernels that were lowered to stand alone (LowerConfig.alone), as functions of a file that needs no runtime:
 *   KERNEL NAME(args…, sizes…[, void *workspace])     a static void function; the last where the kernel has one
 * behind the types and helpers that they use; one without a body is somebody else's.  Plain C99 where the target has no
 * vectors, else with GNU vectors. */
typedef struct CodeAlone {
  const char *text;
  const char **name; /* of each kernel's function */
  bool uses_math, uses_vectors;
  bool parallel; /* has loops for several threads (LowerConfig.threads): the macros PARALLEL and SLICE */
} CodeAlone;
CodeAlone codegen_c_alone(Ctx *, Arena *, const Target *, int n, Kernel *const *);
/* Functions of other people's, from C source or objects that come with them, as a module's: the same table.  Each is
 *   int32_t NAME(arguments…)
 * over pointers to compact tensors of known shape, and answers 0 or a status. */
typedef struct CodeExternalArg {
  const char *name;
  DType dtype;
  int ndim;
  const int64_t *shape;
  bool written;
} CodeExternalArg;
typedef struct CodeExternal {
  const char *name;
  int narg;
  const CodeExternalArg *arg;
  bool source; /* bytes are C source; else an object file */
  const void *bytes;
  size_t n;
} CodeExternal;
Code *codegen_c_external(Ctx *, const Target *, int n, const CodeExternal *);
/* Host side is C that launches; device side is CUDA C.  CODE_CUDA is the latter. */
Code *codegen_cuda(Ctx *, const Target *, int n, Kernel *const *);
/* How the host starts the device kernels of codegen_cuda's functions, in order.
 * Extents and arguments as C text over the function's arguments and sizes. */
typedef struct CudaLaunch {
  const char *function, *kernel;  /* the kernel's name in the device code */
  const char *grid[3], *block[3]; /* x, y, z */
  const char **args;
  int nargs;
} CudaLaunch;
const CudaLaunch *codegen_cuda_launches(Code *, int *n);
/* CUDA source through NVRTC (loaded at run time) to PTX or cubin; raises
 * ERR_UNSUPPORTED when the library is absent, ERR_IO with its log on errors. */
const void *codegen_nvrtc(Arena *, const char *source, const Target *, bool cubin, size_t *n);

/* ---- for backends: what a Code is made of ----------------------------------------- */
typedef struct CodeObject {
  const void *bytes;
  size_t n;
} CodeObject;
typedef struct CodeBackend {
  const char *name;                                           /* "llvm", "c", "cuda" */
  const char *formats;                                        /* "ll asm obj", for messages */
  CodeFormat text;                                            /* what it is shown as when nothing else is asked for */
  const void *(*get)(Code *, CodeFormat, Arena *, size_t *n); /* NULL: not one of its formats */
  /* object files that make it up; NULL: C source does */
  int (*objects)(Code *, Arena *, CodeObject **);
  void (*free)(Code *);
} CodeBackend;
struct Code {
  Ctx *ctx;
  Arena *arena; /* dies with the code */
  const Target *target;
  const CodeBackend *backend;
  void *state;   /* the backend's own */
  void *library; /* code_load_c: what dlopen gave */
  int nextern;   /* whose source or objects are linked with it */
  const CodeExternal *externals;
};
Code *code_new(Ctx *, const Target *, const CodeBackend *);

/* What LatheRtFuncInfo says of a kernel beside its arguments. */
typedef struct KernelFacts {
  int64_t workspace, slice; /* bytes; -1: its sizes decide */
  unsigned flags;           /* LATHE_RT_FUNC_* */
} KernelFacts;
KernelFacts code_facts(const Kernel *);

/* dtype.c: a dtype as the runtime and DLPack count them. */
LatheRtDType code_rt_dtype(DType);

/* ---- code.c -------------------------------------------------------------------- */
void code_free(Code *);
/* Text (terminated) or bytes; raises ERR_UNSUPPORTED naming the formats it has. */
const void *code_get(Code *, CodeFormat, Arena *, size_t *n);
/* What gcc and clang call the target's features. */
const char *const *code_feature_flags(Arena *, const Target *, int *n);
/* Writes a shared library (path ends in .so), an object (.o), or source (.c .cu .ll .s).
 * Uses ld (or cc) for .so; cc for the C backend. */
void code_export(Code *, const char *path);
/* Raises unless code_export could write a file of that name: its folder, its ending, the tools it needs. */
void code_check_export(Ctx *, const Target *, const char *path);
/* Raises unless there is what compiles and links for the target; `without` says what needs none of it. */
void code_check_tools(Ctx *, const Target *, const char *path, const char *without);
/* Links object files for the code's target: a shared library, or (path ends in .o) one object. */
void code_link(Code *, int n, const char *const *objects, const char *path);
/* A C file through the target's compiler to an object, and an object as an archive of one. */
void code_compile_c(Ctx *, const Target *, const char *source, const char *object);
void code_archive(Ctx *, const Target *, const char *object, const char *archive);
/* The target's C compiler and what it is told of the machine, as the beginning of a command line that NULL ends. */
const char *const *code_c_compiler(Arena *, const Target *);
/* Writes the object files that make up the code into a folder; their number and paths. */
int code_write_objects(Code *, const char *folder, const char ***paths);
/* Code of the C backend, compiled with cc into a temporary library and loaded. */
const LatheRtModuleInfo *code_load_c(Code *);

/* ---- clang.c: machines that clang compiles for, without a C library here ----------------------------- */
/* WebAssembly, Apple's systems, Android, Hexagon. */
bool code_uses_clang(const Target *);
/* Raises with the package to install unless a C file can be compiled, and linked (WebAssembly). */
void code_check_clang(Ctx *, const Target *, const char *path, bool links);
const char *code_clang(Arena *);
const char *code_llvm_archiver(Arena *);
/* Writes a math.h for the source beside it; the folder. */
const char *code_clang_include(Ctx *, const char *source);
/* WebAssembly: an assembler file that takes in others of the folder. */
void code_assemble_wasm(Ctx *, const Target *, const char *source, const char *folder, const char *object);
/* Links to one module that exports what its functions say, with so large a stack.  Shared: its memory is imported, of
 * at least so many pages as this answers, and the stack pointer is exported, of which each thread sets its own. */
int64_t code_link_wasm(Ctx *, int n, const char *const *objects, int64_t stack_bytes, bool shared, const char *path);

#endif
