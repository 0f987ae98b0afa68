/* model.h: a model as the runtime holds it, for model*.c, prepare.c, executor.c, static.c, vm.c, stream.c, value.c,
 * object.c, scalar.c, builtins.c and strings.c.  model_format.h says what the parts mean. */
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
  int32_t kind, index; /* KernelArgKind or PackedArgKind; register or scalar */
} KernelArgRef;

typedef struct Ins {
  uint8_t op;         /* ModelOp */
  LatheRtDType dtype; /* ALLOC, VIEW */
  int32_t reg;        /* result of CONST, ALLOC, VIEW, MOVE, COPY, CLOSURE, DATA, FIELD; FREE, BRANCH, MATCH;
                         closure of APPLY; the scalar of SCALAR */
  int32_t source;     /* VIEW, MOVE, COPY, FIELD */
  int32_t index;      /* const, kernel, function, HostOp, packed function, target, field */
  int32_t tag;        /* DATA, MATCH */
  int32_t node;       /* KERNEL, HOST, PACKED */
  int32_t device;     /* ALLOC, COPY */
  uint64_t place;     /* ALLOC, COPY */
  int32_t nexpr;      /* shape; 1 for SCALAR and CHECK */
  const ModelExpr *expr;
  int32_t narg, nret, nattr;
  const int32_t *arg; /* registers; then nret of results */
  const int32_t *ret;
  const KernelArgRef *karg;  /* KERNEL, PACKED: narg of them */
  const char *const *string; /* PACKED: the texts among them */
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
  int32_t device;
  uint8_t place; /* ConstPlace */
  bool placed;   /* data is memory of the device, made for it */
  uint64_t offset;
  size_t bytes;
  const void *data;   /* where kernels read it; NULL: not prepared yet */
  const void *stored; /* the bytes in the weights */
} ModelConst;

typedef struct ModelDevice {
  LatheRtDevice device;
  size_t align;
  const char *target;
  const LatheRtDeviceApi *api; /* NULL: of a model that is only looked at */
  void *image;                 /* NULL: none */
} ModelDevice;

typedef struct ModelKernel {
  LatheRtFunc *func;
  const LatheRtFuncInfo *info;
  int32_t ndims; /* of all its tensors together */
  int32_t device;
  const char *plan, *trace;
} ModelKernel;

/* What programs know of a port beyond its LatheRtPort. */
typedef struct ModelPort {
  int32_t device;
  const int64_t *dim; /* with symbols: -1 - symbol */
} ModelPort;

/* A function that callers see. */
typedef struct ModelEntry {
  LatheRtEntry about; /* first; its ports go on with those of the states */
  int32_t nstate;
  int32_t nin, nout; /* with the states */
  int32_t func;
  bool is_static;
  const ModelPort *input, *output;
  const int64_t *storage_bytes; /* on each device */
} ModelEntry;

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
  LatheRtModule *base;    /* what the model came with */
  LatheRtModule **module; /* its code */
  void (*drop)(void *);
  void *user;
  bool look_only; /* devices may be absent, constants are not where they belong */
  Chunk *chunks;
  const char *target;
  uint64_t weights_bytes, prepared_bytes;
  uint64_t digest[2];
  const void *weights;
  int32_t ndevice, nmodule, nkernel, nconst, nsymbol, nnode, nstring, npacked, nfunc, nentry;
  ModelDevice *device;
  ModelKernel *kernel;
  ModelConst *constant;
  const char **symbol;
  Text *string;
  const char **packed;
  LatheRtNode *node;
  ModelWork *work; /* of the nodes */
  ModelFunc *func;
  ModelEntry *entry;
  int32_t prepare;            /* function; -1: none */
  int32_t nrun;               /* nodes that runs see; those of `prepare` follow */
  int32_t max_args, max_dims; /* the largest kernel: slots, and dimensions of all its tensors */
  /* prepared weights */
  void *prepared;
  size_t mapped_bytes; /* they are mapped from a file; 0: memory of the process */
  bool from_cache;
  char cache_note[160];
};

/* model_read.c: fills m from the bytes; everything in it is checked.  m->base is there. */
LatheRtCode rt_model_read(LatheRtModel *m, const LatheRtModelData *, LatheRtError *);

/* model_place.c: the modules of a model, the images of its devices, and the constants where kernels read them. */
LatheRtCode rt_model_module(LatheRtModel *m, int32_t i, const char *kind, const char *name, uint32_t library,
                            const LatheRtModelData *, const void *bytes, size_t n, LatheRtError *);
LatheRtCode rt_model_place(LatheRtModel *m, LatheRtError *);
void rt_model_unplace(LatheRtModel *m);

/* prepare.c: makes the constants that the weights hold in another form. */
LatheRtCode rt_model_prepare(LatheRtModel *m, const LatheRtLoad *, LatheRtError *);
void rt_model_unprepare(LatheRtModel *m);
/* The bytes of a constant in the weights are not read any more. */
LatheRtCode rt_prepare_done(LatheRtExecutor *, int32_t constant, LatheRtError *);

/* ---- value.c: what registers hold --------------------------------------------------- */

typedef struct Heap Heap;
/* A block of elements, counted; views share it. */
typedef struct Storage {
  int32_t refs;
  int32_t size_class;
  size_t bytes;
  Heap *heap;
  void *data;
  struct Storage *next; /* while it is free */
} Storage;

typedef struct List List;
typedef struct Value {
  enum { VALUE_NONE, VALUE_TENSOR, VALUE_LIST, VALUE_DATA, VALUE_CLOSURE, VALUE_OBJECT } kind;
  bool writable;         /* memory of the executor's own: kernels may write it */
  Storage *storage;      /* NULL: borrowed (constants, views of the caller's memory) */
  List *list;            /* LIST, DATA, CLOSURE: items, fields, first arguments */
  LatheRtObject *object; /* OBJECT */
  LatheRtTensor tensor;  /* compact; shape points to dim */
  int64_t dim[LATHE_RT_MAX_RANK];
} Value;
struct List {
  int32_t refs, n;
  int32_t tag; /* DATA: its constructor; CLOSURE: its function */
  List *next;  /* while it is being freed */
  Value item[];
};
struct LatheRtObject {
  atomic_int refs;
  void *data;
  void (*drop)(void *);
  /* a model's own data */
  LatheRtExecutor *owner; /* NULL: none, or it has ended */
  Value value;
  LatheRtObject *next, *previous; /* of the owner's */
  char kind[];
};

/* A device as an executor uses it: its stream, blocks of its memory, a workspace. */
enum { SIZE_CLASSES = 4 * 64 };
struct Heap {
  const ModelDevice *device;
  void *stream;
  bool busy; /* the stream has work that nobody has waited for */
  Storage *free[SIZE_CLASSES];
  size_t in_use, peak, cached;
  void *workspace;
  size_t workspace_bytes;
};
void rt_heap_drop(Heap *);
void rt_heap_trim(Heap *); /* gives free blocks back to the device */

void rt_value_clear(Value *);
void rt_value_copy(Value *to, const Value *from); /* shares what it holds; `to` is cleared first */
/* A tensor in memory of its own, not initialised. */
LatheRtCode rt_value_tensor(Heap *, Value *to, LatheRtDType, int32_t ndim, const int64_t *shape, LatheRtError *);
/* A list of n empty values. */
LatheRtCode rt_value_list(Value *to, int32_t n, LatheRtError *);
/* Data or a closure: kind, tag, and the values of these registers; `to` may be one of them. */
LatheRtCode rt_value_cell(Value *to, int kind, int32_t tag, int32_t n, const int32_t *arg, const Value *reg,
                          LatheRtError *);
/* Item i of v's list; `to` may be v itself. */
void rt_value_item(Value *to, const Value *v, int32_t i);
/* Sets the tensor's fields; data is borrowed. */
void rt_value_set(Value *, LatheRtDevice, LatheRtDType, int32_t ndim, const int64_t *shape, void *data);
/* Its elements lie so far into the memory that it has been set to, of which there are `room` bytes. */
LatheRtCode rt_value_place(Value *, uint64_t place, uint64_t room, LatheRtError *);
size_t rt_value_bytes(const Value *);
/* Does the host read it where it is?  Lists with all their items. */
bool rt_value_on_host(const Value *);

/* object.c */
/* An object for a value of the executor's; with a reference for the caller. */
LatheRtCode rt_object_of(LatheRtExecutor *, const Value *, LatheRtObject **out, LatheRtError *);
LatheRtCode rt_object_value(LatheRtExecutor *, LatheRtObject *, Value *to, LatheRtError *);
void rt_object_disown(LatheRtObject *); /* its executor ends */

/* ---- scalar.c --------------------------------------------------------------------------- */

/* What a step takes from the stack and gives: I int, F float. */
typedef struct ExprOpRow {
  char takes[4], gives;
} ExprOpRow;
extern const ExprOpRow rt_expr_ops[XO_COUNT];
LatheRtCode rt_expr_eval(const ModelExpr *, const Value *reg, const Scalar *scalar, Scalar *out, LatheRtError *);

/* ---- executor.c, vm.c ------------------------------------------------------------------------ */

/* Bytes of the two parts of a kernel's workspace, each rounded up. */
typedef struct Workspaces {
  size_t shared, slice;
} Workspaces;

/* A step of a static program: a kernel over fixed addresses, or a copy. */
typedef struct Step {
  const ModelKernel *kernel; /* NULL: copy tensor[0] to tensor[1] */
  LatheRtSlot *slot;
  LatheRtArg *arg; /* of a function without code of its own; else NULL */
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

/* What an executor keeps of an entry. */
typedef struct EntryState {
  const ModelEntry *entry;
  Value *input; /* what the caller gave */
  Value *output;
  LatheRtObject **object; /* of outputs that have been asked for as such */
  Value *place;           /* memory of the caller's that outputs go to … */
  bool *direct;           /* … written there by the kernels, not copied after the run */
  bool made;              /* there is room for all of this */
  bool ready, inputs_changed, has_run;
  Value *kept; /* of each state: room for its next value where that lies on another's */
  /* static programs */
  void **storage; /* on each device */
  Value *reg;
  Step *step;
  int32_t *owner;               /* of each register: the one whose memory it has, see static.c */
  int32_t nstep, ready_workers; /* the workspaces are large enough for so many */
  uint32_t nrun;
} EntryState;

struct LatheRtExecutor {
  LatheRtModel *model;
  Heap *heap; /* of each device; the first is the host's */
  Strings strings;
  EntryState *entry;          /* of each entry */
  EntryState *at;             /* the one that is spoken of */
  int64_t *symbol;            /* values of the sizes that inputs share */
  int32_t *symbol_from;       /* the input each came from */
  LatheRtObject *objects;     /* data of this executor that callers hold */
  const LatheRtTensor **item; /* get_output_items */
  int32_t item_room;
  int32_t threads; /* 0: the pool's */
  LatheRtNodeFn watch;
  void *watch_user;
  LatheRtSlot *slot; /* for one call: arguments, sizes */
  LatheRtArg *arg;
  int64_t *dim;
  const LatheRtTensor **tensor; /* of one call, for the watcher */
  LatheRtCalls calls;
  CallState state;
  Chunk *chunks;
  bool no_room; /* memory was wanted for a table and could not be had */
  /* programs that are not static */
  Frame *frame;
  int32_t nframe, frame_room;
  Value *passed; /* arguments on their way */
  int32_t passed_room;
  int32_t calls_left; /* 0: any number; fuzzers end what may loop for ever */
  void *prepared;     /* while `prepare` runs: where its tensors with a place lie */
  struct Preparing *preparing;
};

/* model_read.c: memory by the piece, freed with its owner; NULL when there is none. */
void *rt_chunk_alloc(Chunk **, size_t n, size_t size);
void rt_chunk_drop(Chunk **);

/* kernel.c.  Fills slots and arg from tensors and scalars and checks them against the kernel:
 * dtypes, ranks, shapes, devices. */
LatheRtCode rt_kernel_bind(LatheRtExecutor *, const Ins *, const Value *reg, const Scalar *scalar, LatheRtSlot *slot,
                           LatheRtArg *arg, Workspaces *need, LatheRtError *);
/* The tensors of the call, read ones first. */
void rt_kernel_tensors(const ModelKernel *, const Ins *, const Value *reg, const LatheRtTensor **out, int32_t *nread,
                       int32_t *n);
/* A workspace of at least this on the kernel's device for the present number of workers. */
LatheRtCode rt_workspace(LatheRtExecutor *, const ModelKernel *, Workspaces need, LatheRtError *);
/* Runs the kernel and tells the watcher. */
LatheRtCode rt_kernel_run(LatheRtExecutor *, const ModelKernel *, int32_t node, const LatheRtSlot *, const LatheRtArg *,
                          int32_t nread, int32_t n, const LatheRtTensor *const *tensor, LatheRtError *);
LatheRtCode rt_watch(LatheRtExecutor *, int32_t node, double seconds, int32_t nread, int32_t n,
                     const LatheRtTensor *const *tensor, LatheRtError *);

/* stream.c: devices that work on their own time */
LatheRtCode rt_heaps_begin(LatheRtExecutor *, LatheRtError *); /* streams for the model's devices */
/* Copies a compact tensor to another of the same bytes.  Where the host's memory is part of it, it is done then. */
LatheRtCode rt_copy(LatheRtExecutor *, const LatheRtTensor *to, const LatheRtTensor *from, size_t bytes,
                    LatheRtError *);
LatheRtCode rt_wait(Heap *, LatheRtError *);
LatheRtCode rt_wait_all(LatheRtExecutor *, LatheRtError *);
/* The heap of a tensor's device; NULL: the model has no such device. */
Heap *rt_heap_of(LatheRtExecutor *, LatheRtDevice);

/* executor.c */
/* An executor with no entry made ready. */
LatheRtCode rt_executor_begin(LatheRtModel *, LatheRtExecutor **out, LatheRtError *);
void rt_begin_calls(LatheRtExecutor *); /* what kernels may call, from now on */
/* n items, or one more, that go with the executor, all zero; NULL, and no_room, where that cannot be. */
void *rt_executor_room(LatheRtExecutor *, int32_t n, size_t size);

/* static.c: straight-line programs over planned storage */
LatheRtCode rt_static_prepare(LatheRtExecutor *, LatheRtError *);
LatheRtCode rt_static_run(LatheRtExecutor *, LatheRtError *);
void rt_static_input(LatheRtExecutor *, int32_t i); /* the memory of input i is another now */
/* Kernels write output i to this memory (NULL: to its planned place); false: that cannot be. */
bool rt_static_output(LatheRtExecutor *, int32_t i, void *data);

/* vm.c: all others */
LatheRtCode rt_vm_run(LatheRtExecutor *, LatheRtError *);
/* Runs a function without parameters and results. */
LatheRtCode rt_vm_call(LatheRtExecutor *, int32_t func, LatheRtError *);
void rt_vm_drop(LatheRtExecutor *);
/* Constant i, where it is. */
LatheRtCode rt_value_const(LatheRtExecutor *, Value *to, int32_t i, LatheRtError *);
/* The same bytes under another shape. */
LatheRtCode rt_value_view(Value *to, const Value *from, LatheRtDType, int32_t ndim, const int64_t *shape,
                          LatheRtError *);

/* builtins.c: reg are the registers of the frame. */
LatheRtCode rt_host_call(LatheRtExecutor *, const Ins *, Value *reg, LatheRtError *);
/* builtins.c */
LatheRtCode rt_packed_ins(LatheRtExecutor *, const Ins *, Value *reg, const Scalar *scalar, LatheRtError *);
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
