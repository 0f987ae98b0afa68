/* api.h: inside the C API.
 *
 * Comes in: a function's name and LatheValues.  Goes out: a LatheValue, or an
 * error kind with its message in the context.
 *
 * Every function is one row of a table: name, signature, doc, body.  A call checks
 * its arguments against the signature's text (value.c has the grammar), so a body reads
 * them without asking again; the signature of a row is the place to say what a body
 * relies on.  What a user's function answers in the middle of a call is checked the same
 * way (api_check_value).  A body runs inside protect() and a scope of its own.
 *
 * An object is a Handle, counted, that keeps alive the module (or the other handle) in
 * which the thing lives.  A handle made during a call belongs to the call's scope; the
 * ones that the result holds are retained when the body has succeeded.  So a failure at
 * any point leaks nothing.  Handles live in blocks that go with the context: a released one
 * waits there for its next use, so that a call can tell it from one that is alive.
 *
 * Abbreviations: c the running call, m module, i number of an argument. */
#ifndef LATHE_API_H
#define LATHE_API_H

#include "driver/driver.h"
#include "lathe.h"

typedef struct Handle Handle;
typedef struct Kept {
  struct Kept *next;
  Handle *handle;
} Kept;
struct Handle {
  int32_t kind;   /* LatheKind */
  int32_t detail; /* ExprKind, TeKind, StmtKind, … of the thing */
  int64_t refs;
  LatheContext *context;
  const void *p; /* the thing; of a random variable, its number */
  Module *m;     /* kept alive, or NULL */
  Handle *owner; /* kept alive, or NULL */
  Kept *kept;    /* of a schedule: the tensor intrinsics it uses, kept alive */
};

/* Room for handles.  Each block is twice as large as the one before it. */
typedef struct HandleBlock {
  struct HandleBlock *older;
  int64_t n; /* handles behind this header */
} HandleBlock;

/* Where te builds: a module, and what was brought into it from other modules. */
typedef struct WorldImport {
  Module *from; /* retained, so that the addresses remembered stay its own */
  Importer *importer;
  GraphImporter *graph; /* NULL until a graph function was asked for */
} WorldImport;
typedef struct World {
  struct World *older; /* of the same context */
  Module *m;
  Vec(WorldImport) imports;
} World;

enum { API_MAX_DEPTH = 16 };
struct LatheContext {
  Ctx *ctx;
  int depth;                     /* of calls under way: a user's function may call again */
  Arena *results[API_MAX_DEPTH]; /* text and lists of the last call at each depth; NULL when it made none */
  StrMap functions;              /* name -> ApiFunction */
  int64_t handles;               /* that are alive */
  HandleBlock *blocks;           /* the newest, which leads to the others */
  Handle *released;              /* the next to use again, which leads to the others by its owner */
  World *world;                  /* the newest that is alive, or NULL; it leads to the others */
  struct UserOp *operators;      /* the ones this context added, newest first */
  Kept *models;                  /* compiled models that lathe_load_onnx gave away */
  bool closed;                   /* freed by the user while handles were out */
};

typedef struct Call Call;
typedef struct ApiFunction {
  const char *name;
  const char *signature; /* "world: world, a: expr, b: expr -> expr" */
  const char *doc;
  void (*body)(Call *);
} ApiFunction;

#define API_MAX_ARGS 16
struct Call {
  LatheContext *context;
  Ctx *ctx;
  const char *name;
  const ApiFunction *function; /* of that name */
  int given;
  const LatheValue *args;
  LatheValue arg[API_MAX_ARGS]; /* missing ones are LATHE_NONE */
  LatheValue *out;
  Importer importer; /* into a module other than the world's */
  Handle **spare;    /* api_reserve: made before the work */
  int nspare;
  LatheValue *room;
  int64_t nroom;
};

/* The tables, one a file. */
extern const ApiFunction api_expr_functions[], api_node_functions[], api_tir_functions[], api_te_functions[],
    api_stage_functions[], api_schedule_functions[], api_build_functions[], api_graph_functions[],
    api_compile_functions[], api_userop_functions[], api_pattern_functions[], api_debug_functions[],
    api_data_functions[], api_arith_functions[], api_tune_functions[], api_quant_functions[], api_external_functions[],
    api_micro_functions[];

/* ---- value.c: reading arguments ------------------------------------------------ */
void api_check_args(Call *);                            /* fills arg[] */
const char *api_type_named(const char *name, size_t n); /* what a name in signatures stands for; NULL: no such name */
bool api_arg_given(Call *, int i);                      /* not LATHE_NONE */
bool api_arg_bool(Call *, int i);
int64_t api_arg_int(Call *, int i);
int api_arg_int32(Call *, int i, int64_t lo, int64_t hi); /* raises outside [lo, hi] */
double api_arg_float(Call *, int i);
const char *api_arg_str(Call *, int i); /* terminated; NULL when none */
DType api_arg_dtype(Call *, int i);
Handle *api_arg_handle(Call *, int i);
const void *api_arg_ptr(Call *, int i);                        /* NULL when none */
Module *api_arg_world(Call *);                                 /* argument 0 */
const Expr *api_arg_expr(Call *, Module *, int i);             /* NULL when none */
int api_arg_exprs(Call *, Module *, int i, const Expr ***out); /* 0 and NULL when none */
const Var *api_arg_var(Call *, Module *, int i);
int api_arg_vars(Call *, Module *, int i, const Var ***out);
int api_arg_list(Call *, int i, const LatheValue **out);
/* Pointers behind a list of objects, all of module m (m NULL: any). */
int api_arg_ptrs(Call *, Module *m, int i, const void ***out);
const IterVar *api_arg_itervar(Call *, Module *, int i);
const Node *api_arg_node(Call *, Module *, int i); /* of module m; NULL when none */
int api_arg_nodes(Call *, Module *, int i, const Node *const **out);
const Type *api_arg_type(Call *, Module *, int i);

/* [[key, value], …] into annots; a value of none is left out. */
void api_arg_annots(Call *, Module *, int i, Annots *annots);
/* Raises unless a value that a user's function answered is of a type, in the grammar of signatures. */
void api_check_value(Call *, const LatheValue *, const char *type, const char *what);
bool api_value_is(const LatheValue *, LatheKind); /* an object of that kind */

/* The same for a value that sits in a list. */
const char *api_value_text(Call *, const LatheValue *);
const Expr *api_value_expr(Call *, Module *, const LatheValue *);
const Var *api_value_var(Call *, Module *, const LatheValue *);
const Buffer *api_value_buffer(Call *, Module *, const LatheValue *);
DType api_value_dtype(Call *, const LatheValue *);
const void *api_value_ptr(const LatheValue *);
/* A literal's dtype as TVM gives it: bool, int32 (int64 if it does not fit), float32. */
DType api_literal_dtype(const LatheValue *);

/* ---- result.c ------------------------------------------------------------- */
LatheValue api_val_none(void);
LatheValue api_val_bool(bool);
LatheValue api_val_int(int64_t);
LatheValue api_val_float(double);
LatheValue api_val_str(Call *, const char *); /* NULL: none */
LatheValue api_val_bytes(Call *, const void *, size_t);
/* Raises unless each of the n elements is the number of a string; dtypes but string pass. */
void api_check_strings(Call *, DType, int64_t n, const void *data);
LatheValue *api_val_list(Call *, int64_t n, LatheValue *list); /* items to be filled in */
LatheValue api_val_object(Call *, LatheKind, const void *, int detail, Module *, Handle *owner);
/* A handle for something that is made next and that dropping must free: the caller
 * sets ->p as soon as it exists. */
Handle *api_val_owner(Call *, LatheKind, Module *, LatheValue *out);
LatheValue api_val_expr(Call *, Module *, const Expr *); /* NULL: none; a variable comes as var */
LatheValue api_val_exprs(Call *, Module *, int n, const Expr *const *);
LatheValue api_val_var(Call *, Module *, const Var *);
LatheValue api_val_itervar(Call *, Module *, const IterVar *);
LatheValue api_val_itervars(Call *, Module *, int n, const IterVar *const *);
LatheValue api_val_buffer(Call *, Module *, const Buffer *);
LatheValue api_val_dtype(Call *, DType);
LatheValue api_val_tensor(Call *, const Tensor *);
LatheValue api_val_teop(Call *, const TeOp *);
LatheValue api_val_stmt(Call *, Module *, Stmt *);
LatheValue api_val_func(Call *, PrimFunc *);
LatheValue api_val_type(Call *, Module *, const Type *);                         /* NULL: none */
LatheValue api_val_node(Call *, Module *, const Node *);                         /* NULL: none */
LatheValue api_val_attrs(Call *, Module *, const AttrsDef *, const void *attrs); /* [[name, value], …] */
LatheValue api_val_annots(Call *, Module *, const Annots *);

/* Before a body changes something that others see: makes what its result will need,
 * so that nothing can fail after the change. */
void api_reserve(Call *, int handles, int values);
Handle *api_handle_new(LatheContext *); /* of nothing yet, with one reference; raises when memory is out */
bool api_handle_alive(const LatheContext *, const void *);
Handle *api_handle_retain(Handle *);
void api_handle_release(Handle *);
/* Keeps `what` alive as long as `by`. */
void api_keep(Call *, Handle *by, Handle *what);
TirArg api_value_tir_arg(Call *, const LatheValue *);
int api_arg_te_args(Call *, Module *, int i, TeArg **out);
/* A module that goes with the call unless a handle keeps it. */
Module *api_new_module(Call *);
/* The importer into m: the world's own, which remembers, or one for this call. */
Importer *api_importer(Call *, Module *m, Module *from);
/* The world's importer of graphs from a module; argument 0 is the world. */
GraphImporter *api_graph_importer(Call *, Module *from);
GraphImporter *api_world_graphs(Ctx *, World *, Module *from); /* the same of any world */
/* A node that a user's function is asked about in the middle of a call: as the newest world has it, if there is one. */
LatheValue api_val_node_in_world(Call *, Module *from, const Node *);
CodeFormat api_code_format(Call *, const char *name);
/* The call result is the code in this format; "" is the text that its backend has. */
void api_val_code(Call *, Code *, const char *format);
/* What a database of tuning has for the model, for the config lathe.tuned. */
const char *api_tuned_plans(Ctx *, Arena *, const char *path, Module *, const Target *, PassContext *);
/* api_external.c: [[name, code generator], …]. */
int api_arg_externals(Call *, int i, const ExternalCompiler **out);
/* api_pattern.c: a pattern's rows; m NULL: it may speak of no node and type of a world.  It lives in the arena. */
struct DfPat *api_read_pattern(Call *, Module *m, Arena *, const LatheValue *rows);
void api_drop_operators(LatheContext *); /* takes the context's own operators out of the list */

#endif
