/* api.h: inside the C API.
 *
 * Comes in: a function's name and LatheValues.  Goes out: a LatheValue, or an
 * error kind with its message in the context.
 *
 * Every function is one row of a table: name, signature, doc, body.  A call checks
 * its arguments against the signature's text, so a body reads them without asking
 * again.  A body runs inside protect() and a scope of its own.
 *
 * An object is a Handle on the heap, counted, that keeps alive the module (or the
 * other handle) in which the thing lives.  A handle made during a call belongs to
 * the call's scope; the ones that the result holds are retained when the body has
 * succeeded.  So a failure at any point leaks nothing.
 *
 * Abbreviations: c the running call, m module, i number of an argument. */
#ifndef LATHE_API_H
#define LATHE_API_H

#include "driver/driver.h"
#include "lathe.h"

typedef struct Handle {
  int32_t kind;              /* LatheKind */
  int32_t detail;            /* ExprKind, TeKind, StmtKind, … of the thing */
  int64_t refs;
  LatheContext *context;
  const void *p;             /* the thing; of a random variable, its number */
  Module *m;                 /* kept alive, or NULL */
  struct Handle *owner;      /* kept alive, or NULL */
} Handle;

/* Where te builds: a module, and what was brought into it from other modules. */
typedef struct WorldImport {
  Module *from;              /* retained, so that the addresses remembered stay its own */
  Importer *importer;
} WorldImport;
typedef struct World {
  Module *m;
  Vec(WorldImport) imports;
} World;

struct LatheContext {
  Ctx *ctx;
  Arena *results;            /* text and lists of the last call; NULL when it made none */
  StrMap functions;          /* name -> ApiFunction */
  int64_t handles;
  bool closed;               /* freed by the user while handles were out */
};

typedef struct Call Call;
typedef struct ApiFunction {
  const char *name;
  const char *signature;     /* "world: world, a: expr, b: expr -> expr" */
  const char *doc;
  void (*body)(Call *);
} ApiFunction;

#define API_MAX_ARGS 16
struct Call {
  LatheContext *context;
  Ctx *ctx;
  const char *name;
  const ApiFunction *function;    /* of that name */
  int given;
  const LatheValue *args;
  LatheValue arg[API_MAX_ARGS];   /* missing ones are LATHE_NONE */
  LatheValue *out;
  Importer importer;              /* into a module other than the world's */
};

/* The tables, one a file. */
extern const ApiFunction api_expr_functions[], api_node_functions[], api_tir_functions[], api_te_functions[],
    api_stage_functions[], api_schedule_functions[], api_build_functions[];

/* ---- value.c: reading arguments ------------------------------------------------ */
void api_check_args(Call *);                                   /* fills arg[] */
bool arg_given(Call *, int i);                                 /* not LATHE_NONE */
bool arg_bool(Call *, int i);
int64_t arg_int(Call *, int i);
int arg_int32(Call *, int i, int64_t lo, int64_t hi);          /* raises outside [lo, hi] */
double arg_float(Call *, int i);
const char *arg_str(Call *, int i);                            /* terminated; NULL when none */
DType arg_dtype(Call *, int i);
Handle *arg_handle(Call *, int i);
const void *arg_ptr(Call *, int i);                            /* NULL when none */
Module *arg_world(Call *);                                     /* argument 0 */
const Expr *arg_expr(Call *, Module *, int i);                 /* NULL when none */
int arg_exprs(Call *, Module *, int i, const Expr ***out);     /* 0 and NULL when none */
const Var *arg_var(Call *, Module *, int i);
int arg_vars(Call *, Module *, int i, const Var ***out);
int arg_list(Call *, int i, const LatheValue **out);
/* Pointers behind a list of objects, all of module m (m NULL: any). */
int arg_ptrs(Call *, Module *m, int i, const void ***out);
const IterVar *arg_itervar(Call *, Module *, int i);

/* The same for a value that sits in a list. */
const char *value_text(Call *, const LatheValue *);
const Expr *value_expr(Call *, Module *, const LatheValue *);
const Var *value_var(Call *, Module *, const LatheValue *);
const Buffer *value_buffer(Call *, Module *, const LatheValue *);
DType value_dtype(Call *, const LatheValue *);
const void *value_ptr(const LatheValue *);
/* A literal's dtype as TVM gives it: bool, int32 (int64 if it does not fit), float32. */
DType literal_dtype(const LatheValue *);

/* ---- value.c: results ------------------------------------------------------------- */
LatheValue val_none(void);
LatheValue val_bool(bool);
LatheValue val_int(int64_t);
LatheValue val_float(double);
LatheValue val_str(Call *, const char *);                      /* NULL: none */
LatheValue val_bytes(Call *, const void *, size_t);
LatheValue *val_list(Call *, int64_t n, LatheValue *list);     /* items to be filled in */
LatheValue val_object(Call *, LatheKind, const void *, int detail, Module *, Handle *owner);
LatheValue val_expr(Call *, Module *, const Expr *);           /* NULL: none; a variable comes as var */
LatheValue val_exprs(Call *, Module *, int n, const Expr *const *);
LatheValue val_var(Call *, Module *, const Var *);
LatheValue val_itervar(Call *, Module *, const IterVar *);
LatheValue val_itervars(Call *, Module *, int n, const IterVar *const *);
LatheValue val_buffer(Call *, Module *, const Buffer *);
LatheValue val_dtype(Call *, DType);
LatheValue val_tensor(Call *, const Tensor *);
LatheValue val_teop(Call *, const TeOp *);
LatheValue val_stmt(Call *, Module *, Stmt *);
LatheValue val_func(Call *, PrimFunc *);
LatheValue val_annots(Call *, Module *, const Annots *);

Handle *handle_retain(Handle *);
void handle_release(Handle *);
/* A module that goes with the call unless a handle keeps it. */
Module *call_module(Call *);
/* The importer into m: the world's own, which remembers, or one for this call. */
Importer *call_importer(Call *, Module *m, Module *from);

#endif
