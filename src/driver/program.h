/* program.h: a model on its way from graph to bytes.  Private to this folder.
 *
 *   graph ─emit.c→ Program ─live.c, plan.c→ Program with storage ─write.c→ bytes
 *
 * A Program is what ../../runtime/model_format.h describes, with pointers for indices
 * where that is handier. */
#ifndef LATHE_DRIVER_PROGRAM_H
#define LATHE_DRIVER_PROGRAM_H

#include "../../runtime/model_format.h"
#include "driver/driver.h"

typedef struct ProgStep {
  ExprOp op;
  int a, b; /* scalar; register and dimension or element */
  int64_t i;
  double f;
} ProgStep;
typedef Vec(ProgStep) ProgExpr;

typedef struct ProgIns {
  ModelOp op;
  DType dtype; /* ALLOC, VIEW */
  int reg;     /* result; FREE, BRANCH, MATCH; closure of APPLY; scalar of SCALAR; -1: none */
  int source;  /* VIEW, MOVE, COPY, FIELD */
  int index;   /* const, kernel, function, HostOp, target, field */
  int tag;     /* DATA, MATCH */
  int node;
  int device; /* ALLOC, COPY: number of the program's device */
  uint64_t place;
  int nexpr;
  ProgExpr *expr;
  int narg, nret, nattr;
  int *arg, *ret; /* registers; of a KERNEL and a PACKED scalars where is_scalar says so */
  bool *is_scalar;
  int64_t *attr;
  const char *text;    /* CHECK, FAIL; PACKED: the function's name */
  const char **string; /* PACKED: of each argument NULL, or the text that it is */
  int region;          /* of the function, see below */
} ProgIns;

/* The branches of an if and the clauses of a match are regions inside the region that it stands in. */
typedef struct ProgRegion {
  int parent; /* -1: the function's own */
  int end;    /* its if is over before this instruction */
} ProgRegion;

typedef struct ProgFunc {
  const char *name;
  int nreg, nparam, nret;
  Vec(uint8_t) scalar; /* kinds */
  Vec(ProgIns) ins;
  Vec(ProgRegion) region;
  Vec(int) home; /* region that each register is made in */
} ProgFunc;

typedef struct ProgConst {
  const ConstData *data;
  int device;
  bool prepared;   /* made by `prepare` when the model is loaded: data has no bytes */
  uint64_t offset; /* in the weights, or in what is prepared */
} ProgConst;

/* Where memory is and kernels run; the first is the host. */
typedef struct ProgDevice {
  LatheRtDevice device;
  const Target *target;
} ProgDevice;

/* Code that one code generator made for one target: a library; or the bytes that an external compiler made, which
 * lie behind the weights.  Libraries come first. */
typedef struct ProgModule {
  const Target *target;
  const char *kind; /* NULL: a library */
  const char *name;
  const void *bytes;
  size_t n;
  uint64_t offset;
} ProgModule;

/* A function that an external compiler made. */
typedef struct ProgExternal {
  const char *symbol;
  ExternalCode code;
  int narg;
  const CodeExternalArg *arg;
} ProgExternal;

/* Code that a device loads, behind the weights. */
typedef struct ProgImage {
  int device;
  const void *bytes;
  size_t n;
  uint64_t offset;
} ProgImage;

typedef struct ProgString {
  const char *s;
  size_t n;
} ProgString;

typedef struct ProgKernel {
  const Node *func; /* the primitive function, or the call_tir */
  const char *name;
  uint64_t hash;
  int module, device; /* numbers of the program's */
  ImplResult impl;    /* func NULL: an external compiler's */
  const ProgExternal *external;
} ProgKernel;

/* Operations that depend on sizes of a run: the coefficient times dimensions of the kernel's tensors (parameters,
 * then results), each to a power. */
typedef struct ProgFactor {
  int tensor, dim, power;
} ProgFactor;
typedef struct ProgTerm {
  bool done; /* of what the algorithm does; else by the formula */
  double coefficient;
  Vec(ProgFactor) factor;
} ProgTerm;
typedef Vec(ProgTerm) ProgTerms;

typedef struct ProgNode {
  const char *name, *source;
  int kernel;       /* -1: the executor does it itself */
  const Node *func; /* what it computes, for comparing: a primitive function or a host call */
  double bytes;
} ProgNode;

typedef struct ProgPort {
  const char *name, *type;
  PortKind kind;
  int device;
  DType dtype;
  int ndim;
  int64_t *dim; /* as model_format.h has them */
  double scale; /* of a quantized one: an element stands for scale * (element - zero); 0: of any other */
  int64_t zero;
} ProgPort;
/* Of one whose sizes are known. */
static inline int64_t program_port_elements(const ProgPort *port)
{
  int64_t n = 1;
  for (int d = 0; d < port->ndim; d++) n *= port->dim[d];
  return n;
}

/* The memory that one ALLOC or COPY of a static function asks for. */
typedef struct Piece {
  int reg, ins; /* the register, and the instruction that makes it */
  int device;
  int begin, end; /* first and last instruction that needs it */
  int64_t bytes;
  int block;      /* pieces of one block keep their places relative to each other … */
  int64_t offset; /* … a multiple of the device's alignment */
} Piece;
typedef Vec(Piece) Pieces;

/* A function that callers see. */
typedef struct ProgEntry {
  const char *name;
  int func;
  bool is_static;
  Vec(ProgPort) input, output;
  int nstate;              /* so many of the last of both are states (model_format.h) */
  Pieces piece;            /* of a static one: what was placed */
  uint64_t *storage_bytes; /* planned, on each device */
  uint64_t storage_bound;
} ProgEntry;

typedef struct Program {
  Ctx *ctx;
  Arena *arena;
  Module *m; /* of the graph */
  const Target *target;
  const ImplConfig *config;
  Module *kernels;        /* of the scheduled functions */
  Vec(ProgDevice) device; /* each with the module of the same number */
  Vec(ProgModule) module;
  Vec(ProgImage) image;
  DevicePlan *plan; /* where the graph's nodes are; NULL: there is one device */
  Vec(ProgKernel) kernel;
  Vec(ProgConst) constant;
  Vec(ProgString) string;   /* of the constants, ascending */
  Vec(const char *) packed; /* functions that are called by name */
  Vec(const Var *) symbol;
  Vec(const Var *) size; /* s0, s1, …: the sizes that kernels read off their tensors (sizes.c) */
  Vec(ProgNode) node;
  Vec(ProgFunc *) func;
  Vec(ProgEntry) entry;
  int prepare;   /* function that makes the prepared constants; -1: none */
  int *prepared; /* which constant each of its results is; -1: nobody reads it */
  uint64_t weights_bytes, prepared_bytes;
  uint64_t digest[2]; /* of the weights and of what prepares them */
  StrMap kernel_names;
  Map kernel_by_hash, const_by_data;
  Map lifted; /* primitive function -> Lifted */
  int nexternals;
  const ExternalCompiler *externals;
  int nlibraries; /* of the modules */
} Program;

/* emit.c, emit_call.c, emit_data.c: the entries (none: @main) and what they call; kernels are lowered on the way. */
void program_emit(Program *, int nentries, const char *const *entries,
                  void (*progress)(void *env, const char *stage, int done, int total), void *env);

/* lift.c: a primitive function that takes integers as arguments behind its own, so that its kin share a kernel. */
typedef struct Lifted {
  const Node *func;
  int n;
  const Node **integer;
} Lifted;
void program_lift_integers(Program *, int n, const Node *const *node); /* fills `lifted` */

/* kernels.c: the kernel of a primitive function (made on first sight; equal functions share
 * one), and the node that stands for this use of it. */
int program_kernel(Program *, const Node *func, int device);
/* What the function passes for the kernel's scalars: expressions over its own sizes and values. */
const Expr **program_kernel_scalars(Program *, int kernel, const Node *func);
int program_node(Program *, const Node *func, int kernel, const char *name);
int program_const(Program *, const Node *constant, int device);
/* The device that a node is on. */
int program_device(Program *, const Node *);
/* The strings of all constants, whose elements become numbers of the program's own. */
void program_number_strings(Program *);
/* A constant that `prepare` makes. */
int program_const_prepared(Program *, const Type *);
/* Drops kernels and nodes that no instruction speaks of. */
void program_drop_unused(Program *);
/* A primitive function that only sees its first parameter under another shape. */
bool program_is_view(const Node *func);

/* external.c: the kernel of a function that an external compiler makes; then a module for each, and one for all that
 * come as C or objects. */
bool program_is_external(const Node *func);
int program_external(Program *, const Node *func);
void program_place_externals(Program *);
/* Those of the library, with the rows of their table. */
int program_extern_functions(Program *, Arena *, const CodeExternal **out);

/* work.c: the operations of a kernel that its open sizes decide; false: not known. */
bool program_work(Program *, const Node *func, ProgTerms *out);

/* sizes.c: the same function over sizes of its own; itself where that cannot be. */
const Node *program_own_sizes(Program *, const Node *func);

/* live.c: frees registers after their last use (dynamic programs). */
void program_free_registers(Program *, ProgFunc *);
void program_tidy(Program *);                               /* drops scalars and parts of values that nobody uses */
void program_keep(Program *, ProgFunc *, const bool *keep); /* drops the instructions that are not marked */
/* Registers an instruction reads (arguments and expressions), appended to out. */
typedef Vec(int) IntList;
void program_ins_reads(Arena *, const ProgIns *, IntList *out);

/* plan.c: decides which entries are static and places the tensors of those. */
void program_plan(Program *);

/* write.c: the bytes of the program; the weights, one constant at a time. */
const void *program_bytes(Program *, Arena *, size_t *n);

/* prepare.c: places what `prepare` makes, and says where weights have been read for the last time. */
void program_place_prepared(Program *);
void program_mark_done(Program *);
void program_digest(Program *);

/* print.c: the program as text, for dumps. */
const char *program_print(Program *, Arena *);

/* artefact.c: one file by its ending (.so, .o, .a, .c) that holds kernels, program and weights. */
typedef struct ArtefactModel {
  Program *program;
  Code *const *code; /* of its libraries */
  const void *bytes; /* the program, written */
  size_t n;
} ArtefactModel;
/* Several: variants of one model, whose constants lie in one space (variants.c); the first is the one that runs
 * wherever any of them does. */
enum { MAX_VARIANTS = 16 };
void compiled_export_artefact(int n, const ArtefactModel *, const char *path, WeightsPlace);

#endif
