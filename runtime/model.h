/* model.h: a model as the runtime holds it, for model*.c, executor.c, vm.c, value.c,
 * scalar.c, builtins.c and strings.c.  model_format.h says what the parts mean. */
#ifndef LATHE_RT_MODEL_H
#define LATHE_RT_MODEL_H

#include "call.h"
#include "model_format.h"

/* ---- the program, read and checked ------------------------------------------------ */

typedef union Scalar {
  int64_t i;
  double f;
} Scalar;

typedef struct ExprStep {
  uint8_t op;   /* ExprOp */
  int32_t a, b; /* scalar; register and dimension or element */
  Scalar value; /* literals */
} ExprStep;
typedef struct ModelExpr {
  int32_t n;
  const ExprStep *step;
} ModelExpr;

typedef struct KernelArgRef {
  int32_t kind, index; /* KernelArgKind; register or scalar */
} KernelArgRef;

typedef struct Ins {
  uint8_t op;         /* ModelOp */
  LatheRtDType dtype; /* ALLOC, VIEW */
  int32_t reg;        /* result of CONST, ALLOC, VIEW, MOVE, COPY, CLOSURE, DATA, FIELD; FREE, BRANCH, MATCH;
                         closure of APPLY; the scalar of SCALAR */
  int32_t source;     /* VIEW, MOVE, COPY, FIELD */
  int32_t index;      /* const, kernel, function, HostOp, target, field */
  int32_t tag;        /* DATA, MATCH */
  int32_t node;       /* KERNEL, HOST */
  uint64_t place;     /* ALLOC, COPY */
  int32_t nexpr;      /* shape; 1 for SCALAR and CHECK */
  const ModelExpr *expr;
  int32_t narg, nret, nattr;
  const int32_t *arg; /* registers; then nret of results */
  const int32_t *ret;
  const KernelArgRef *karg; /* KERNEL: narg of them */
  const int64_t *attr;
  const char *text; /* CHECK, FAIL */
} Ins;

typedef struct ModelFunc {
  const char *name;
  int32_t nreg, nparam, nret, nscalar;
  const uint8_t *scalar_kind;
  int32_t nins;
  const Ins *ins;
} ModelFunc;

typedef struct ModelConst {
  LatheRtDType dtype;
  int32_t ndim;
  const int64_t *shape;
  uint64_t offset;
  size_t bytes;
  const void *data;
} ModelConst;

typedef struct ModelKernel {
  LatheRtFunc *func;
  const LatheRtFuncInfo *info;
  int32_t ndims; /* of all its tensors together */
} ModelKernel;

/* A string: of the model, or of an executor. */
typedef struct Text {
  const char *s; /* a zero stands behind it; NULL: a free place */
  size_t n;
  int32_t next; /* in its chain, 1 + place; 0: the last */
  bool kept;
} Text;
typedef struct Strings {
  Text *item; /* number: the model's strings + place */
  int32_t n, room;
  int32_t *bucket; /* room of them: chains of equal hashes, 1 + place */
  int32_t free;    /* chain of free places */
  char *scratch;
  size_t scratch_bytes;
} Strings;

typedef struct Chunk Chunk; /* memory that goes with the model */

/* Operations of a node that sizes of a run decide (model_format.h). */
typedef struct ModelFactor {
  int32_t tensor, dim, power;
} ModelFactor;
typedef struct ModelTerm {
  uint8_t kind; /* WorkKind */
  double coefficient;
  int32_t n;
  ModelFactor *factor;
} ModelTerm;
typedef struct ModelWork {
  int32_t n;
  ModelTerm *term;
} ModelWork;

struct LatheRtModel {
  atomic_int refs;
  LatheRtModule *module;
  void (*drop)(void *);
  void *user;
  Chunk *chunks;
  const char *target;
  uint64_t weights_bytes, storage_bytes, storage_bound;
  bool is_static, has_calls;
  int32_t nkernel, nconst, nsymbol, nnode, ninput, noutput, nstring, nfunc;
  ModelKernel *kernel;
  ModelConst *constant;
  const char **symbol;
  Text *string;
  LatheRtNode *node;
  ModelWork *work; /* of the nodes */
  LatheRtPort *input, *output;
  const int64_t **input_dim; /* with symbols: -1 - symbol */
  const uint8_t *input_kind, *output_kind;
  ModelFunc *func;
  int32_t max_args, max_dims; /* the largest kernel: slots, and dimensions of all its tensors */
};

/* model_read.c: fills m from the bytes; everything in it is checked. */
LatheRtCode rt_model_read(LatheRtModel *m, const LatheRtModelData *, LatheRtError *);

/* ---- value.c: what registers hold --------------------------------------------------- */

/* A block of elements, counted; views share it. */
typedef struct Storage {
  _Alignas(RT_ALIGN) int32_t refs;
  int32_t size_class;
  size_t bytes;
  struct Storage *next; /* while it is free */
} Storage;              /* the elements follow */

typedef struct List List;
typedef struct Value {
  enum { VALUE_NONE, VALUE_TENSOR, VALUE_LIST, VALUE_DATA, VALUE_CLOSURE } kind;
  bool writable;        /* memory of the executor's own: kernels may write it */
  int32_t input;        /* static programs: 1 + the input whose memory this is; 0: none */
  Storage *storage;     /* NULL: borrowed (constants, views of the caller's memory) */
  List *list;           /* LIST, DATA, CLOSURE: items, fields, first arguments */
  LatheRtTensor tensor; /* compact; shape points to dim */
  int64_t dim[LATHE_RT_MAX_RANK];
} Value;
struct List {
  int32_t refs, n;
  int32_t tag; /* DATA: its constructor; CLOSURE: its function */
  List *next;  /* while it is being freed */
  Value item[];
};

enum { SIZE_CLASSES = 4 * 64 };
typedef struct Heap {
  Storage *free[SIZE_CLASSES];
  size_t in_use, peak, cached;
} Heap;
void rt_heap_drop(Heap *);

void rt_value_clear(Heap *, Value *);
void rt_value_copy(Heap *, Value *to, const Value *from); /* shares what it holds; `to` is cleared first */
/* A tensor in memory of its own, not initialised. */
LatheRtCode rt_value_tensor(Heap *, Value *to, LatheRtDType, int32_t ndim, const int64_t *shape, LatheRtError *);
/* A list of n empty values. */
LatheRtCode rt_value_list(Heap *, Value *to, int32_t n, LatheRtError *);
/* Data or a closure: kind, tag, and the values of these registers; `to` may be one of them. */
LatheRtCode rt_value_cell(Heap *, Value *to, int kind, int32_t tag, int32_t n, const int32_t *arg, const Value *reg,
                          LatheRtError *);
/* Item i of v's list; `to` may be v itself. */
void rt_value_item(Heap *, Value *to, const Value *v, int32_t i);
/* Sets the tensor's fields; data is borrowed. */
void rt_value_set(Value *, LatheRtDType, int32_t ndim, const int64_t *shape, void *data);
size_t rt_value_bytes(const Value *);

/* ---- scalar.c --------------------------------------------------------------------------- */

LatheRtCode rt_expr_eval(const ModelExpr *, const Value *reg, const Scalar *scalar, Scalar *out, LatheRtError *);

/* ---- executor.c, vm.c ------------------------------------------------------------------------ */

/* Bytes of the two parts of a kernel's workspace, each rounded up to 64. */
typedef struct Workspaces {
  size_t shared, slice;
} Workspaces;

/* A step of a static program: a kernel over fixed addresses, or a copy. */
typedef struct Step {
  const ModelKernel *kernel; /* NULL: copy tensor[0] to tensor[1] */
  LatheRtSlot *slot;
  Workspaces need;
  int32_t node, nread, ntensor;
  bool over;                    /* writes what it reads */
  int32_t workers, all;         /* for this step, of so many */
  int32_t rest, pause;          /* runs until both ways are tried again, and how many there were */
  int32_t trials;               /* timed runs so far … */
  double with_all, alone;       /* … and the quickest of either kind */
  const LatheRtTensor **tensor; /* read ones first, then written ones */
} Step;

/* A function being run. */
typedef struct Frame {
  const ModelFunc *func;
  int32_t pc;
  int32_t reg_room, scalar_room;
  Value *reg;
  Scalar *scalar;
} Frame;

struct LatheRtExecutor {
  LatheRtModel *model;
  Heap heap;
  Strings strings;
  Value *input; /* what the caller gave */
  Value *output;
  Value *place; /* memory of the caller's that outputs go to … */
  bool *direct; /* … written there by the kernels, not copied after the run */
  bool inputs_changed, has_run;
  int64_t *symbol;            /* values of the sizes that inputs share */
  int32_t *symbol_from;       /* the input each came from */
  const LatheRtTensor **item; /* get_output_items */
  int32_t item_room;
  int32_t threads; /* 0: the pool's */
  LatheRtNodeFn watch;
  void *watch_user;
  void *workspace;
  size_t workspace_bytes;
  LatheRtSlot *slot; /* for one call: arguments, sizes */
  int64_t *dim;
  const LatheRtTensor **tensor; /* of one call, for the watcher */
  LatheRtCalls calls;
  CallState state;
  /* static programs */
  void *storage;
  Value *reg;
  Step *step;
  int32_t *owner;               /* of each register: the one whose memory it has, see static.c */
  int32_t nstep, ready_workers; /* the workspace is large enough for so many */
  uint32_t nrun;
  Chunk *chunks;
  /* the others */
  Frame *frame;
  int32_t nframe, frame_room;
  Value *passed; /* arguments on their way */
  int32_t passed_room;
  int32_t calls_left; /* 0: any number; fuzzers end what may loop for ever */
};

/* model_read.c: memory by the piece, freed with its owner; NULL when there is none. */
void *rt_chunk_alloc(Chunk **, size_t n, size_t size);
void rt_chunk_drop(Chunk **);

/* kernel.c.  Fills slots from tensors and scalars and checks them against the kernel:
 * dtypes, ranks, shapes. */
LatheRtCode rt_kernel_bind(LatheRtExecutor *, const Ins *, const Value *reg, const Scalar *scalar, LatheRtSlot *slot,
                           Workspaces *need, LatheRtError *);
/* The tensors of the call, read ones first. */
void rt_kernel_tensors(const ModelKernel *, const Ins *, const Value *reg, const LatheRtTensor **out, int32_t *nread,
                       int32_t *n);
/* A workspace of at least this for the present number of workers. */
LatheRtCode rt_workspace(LatheRtExecutor *, Workspaces need, LatheRtError *);
/* Runs the kernel and tells the watcher. */
LatheRtCode rt_kernel_run(LatheRtExecutor *, const ModelKernel *, int32_t node, const LatheRtSlot *, int32_t nread,
                          int32_t n, const LatheRtTensor *const *tensor, LatheRtError *);
LatheRtCode rt_watch(LatheRtExecutor *, int32_t node, double seconds, int32_t nread, int32_t n,
                     const LatheRtTensor *const *tensor, LatheRtError *);

/* static.c: straight-line programs over planned storage */
LatheRtCode rt_static_prepare(LatheRtExecutor *, LatheRtError *);
LatheRtCode rt_static_run(LatheRtExecutor *, LatheRtError *);
void rt_static_input(LatheRtExecutor *, int32_t i); /* the memory of input i is another now */
/* Kernels write output i to this memory (NULL: to its planned place); false: that cannot be. */
bool rt_static_output(LatheRtExecutor *, int32_t i, void *data);

/* vm.c: all others */
LatheRtCode rt_vm_run(LatheRtExecutor *, LatheRtError *);
void rt_vm_drop(LatheRtExecutor *);
/* The same bytes under another shape. */
LatheRtCode rt_value_view(Heap *, Value *to, const Value *from, LatheRtDType, int32_t ndim, const int64_t *shape,
                          LatheRtError *);

/* builtins.c: reg are the registers of the frame. */
LatheRtCode rt_host_call(LatheRtExecutor *, const Ins *, Value *reg, LatheRtError *);
/* strings.c */
LatheRtCode rt_string_call(LatheRtExecutor *, const Ins *, Value *reg, LatheRtError *err);
/* every number stands for a text */
LatheRtCode rt_strings_check(const LatheRtExecutor *, const Value *, LatheRtError *);
/* drops the executor's texts, but (unless all) those that inputs hold */
void rt_strings_sweep(LatheRtExecutor *, bool all);
int rt_text_compare(const Text *, const char *s, size_t n);
/* scalar.c: the integer in a tensor of one element. */
LatheRtCode rt_tensor_int(const LatheRtTensor *, int64_t *out, LatheRtError *);

#endif
