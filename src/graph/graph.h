/* graph.h: the model: a typed graph of operators, functions and control flow.
 * What an operator is stands here too (OpDef); the operators themselves are in src/op.
 *
 * One IR serves as Relay and as Relax.  A Node is an immutable expression; a graph is
 * shared by pointer (a node used twice is computed once).  Nodes live in a Module;
 * a function is a node too (N_FUNC), and the module's globals of kind GLOBAL_GRAPH
 * point to such nodes.
 *
 * Dimensions are scalar expressions (expr.h) over symbolic variables, so a shape
 * may be (n, 64) or (past + n,).  A Type is immutable; `node->type` is NULL until
 * type inference (graph_infer) has given it one.  Builders infer as they go.
 *
 * What may have an effect (random numbers, state) is let-bound, and let order is
 * kept; everything else may be moved, shared or dropped.
 *
 * Abbreviations: n node or count, ty type, f function, m module. */
#ifndef LATHE_GRAPH_H
#define LATHE_GRAPH_H

#include "te/te.h"

typedef struct Type Type;
typedef struct Node Node;
typedef struct OpDef OpDef;
typedef struct DataDef DataDef;
typedef struct RtValue RtValue;

/* ---- type.c ------------------------------------------------------------------------ */

typedef enum {
  TY_TENSOR, /* dtype, shape; ndim -1: rank not known */
  TY_TUPLE,  /* field */
  TY_FUNC,   /* field: parameters; ret */
  TY_SHAPE,  /* shape: the dimensions, as a value */
  TY_PRIM,   /* a scalar of dtype outside any tensor */
  TY_SEQ,    /* sequence of field[0] */
  TY_OPT,    /* optional field[0] */
  TY_DATA,   /* algebraic data type `data` over field */
  TY_OBJECT, /* anything the runtime holds */
  TY_VAR,    /* a type parameter: var */
} TypeKind;

struct Type {
  TypeKind kind;
  DType dtype;
  int ndim;
  const Expr **shape; /* a dimension that is known only at run time is a variable
                         named "?": each such variable is its own */
  int nfield;
  const Type **field;
  const Type *ret;
  const DataDef *data;
  const Var *var; /* TY_VAR; identity is the pointer */
  int parts;      /* types in it, written out as a tree; limited, since types are walked as trees */
};
const Type *type_tensor(Module *, DType, int ndim, const Expr *const *shape);
const Type *type_tensor_of(Module *, DType, int ndim, const int64_t *shape);
const Type *type_tuple(Module *, int n, const Type *const *);
const Type *type_func(Module *, int n, const Type *const *, const Type *ret);
const Type *type_simple(Module *, TypeKind, const Type *elem); /* seq, opt, object */
const Type *type_data(Module *, const DataDef *, int n, const Type *const *);
const Type *type_var(Module *, const Var *);
const Type *type_prim(Module *, DType);
const Type *type_shape(Module *, int ndim, const Expr *const *shape);
const Expr *type_dim_any(Module *); /* a fresh "?" */
bool type_dim_is_any(const Expr *);
/* A dimension select(cond, d, -1) is d where sizes fit and is refused at run time where they
 * do not (src/op/op.h).  What reads the tensor comes after that: it sees d. */
const Expr *type_dim_unguarded(const Expr *);
const Type *type_unguarded(Module *, const Type *);
/* The same as the kernels see it: strings are their numbers. */
const Type *type_in_kernel(Module *, const Type *);
bool type_has_strings(const Type *);
bool type_equal(const Type *, const Type *); /* dimensions: same expression, or both "?" */
/* The type of a value that is one or the other: equal dimensions stay, others become
 * "?"; dimensions over values computed inside (see values.c) too.  NULL when they do not fit. */
const Type *type_join(Module *, const Type *, const Type *);
bool type_is_static(const Type *); /* every dimension a literal */
/* Tuples spread out, in order: what remains are tensors, sequences, …  A type that is no
 * tuple is its own one leaf. */
int type_leaf_count(const Type *);
const Type **type_leaves(Arena *, const Type *, int *n);
int type_leaf_offset(const Type *tuple, int field); /* leaves before a field */
int64_t type_elements(Ctx *, const Type *);         /* of a static tensor type; checks overflow */
/* For estimates: the size of a dimension (axis < 0: from the end) and the number of elements; 0 where not known. */
double type_known_dim(const Type *, int axis);
double type_known_elements(const Type *);
const char *type_text(Arena *, const Type *); /* Tensor[(1, 64), float32] */

/* ---- node.c ------------------------------------------------------------------------- */

typedef enum {
  N_VAR,   /* a parameter or let-bound variable: u.var */
  N_CONST, /* u.data */
  N_CALL,  /* operator: u.call.op over arg with u.call.attrs */
  N_APPLY, /* arg[0] is the function, the rest its arguments */
  N_TUPLE,
  N_GET,      /* field u.index of arg[0] */
  N_LET,      /* arg: variable, value, body */
  N_IF,       /* arg: condition, then, else; only one branch is evaluated */
  N_FUNC,     /* arg: parameters (N_VAR) and, last, the body; u.func */
  N_GLOBAL,   /* a function of the module, by name: u.name */
  N_CTOR,     /* a constructor as a function: u.ctor */
  N_MATCH,    /* arg[0] is matched against u.match clauses; arg[1 + i] their bodies */
  N_CALL_TIR, /* a tir function of the module, by name, on tensors: u.tir */
  N_OP,       /* an operator as a value (callee of relay.Call): u.call.op */
} NodeKind;

typedef struct ConstData {
  DType dtype;
  int ndim;
  int64_t shape[MAX_RANK];
  size_t bytes;
  const void *data;     /* borrowed from the model file or in the module's arena; row major */
  const char *file;     /* NULL, or where the bytes lie on disk … */
  uint64_t file_offset; /* … at this offset */
} ConstData;

typedef struct FuncInfo {
  const Type *ret; /* declared, or NULL */
  Annots attrs;    /* "Primitive" = 1 on a fused group, "Compiler" = "…" */
} FuncInfo;

/* Patterns of a match: constructor with sub-patterns, variable, wildcard, tuple. */
typedef struct Pattern {
  enum { PAT_WILD, PAT_VAR, PAT_CTOR, PAT_TUPLE } kind;
  const Node *var;
  const struct Ctor *ctor;
  int n;
  const struct Pattern **sub;
} Pattern;
typedef struct Ctor {
  const char *name;
  const DataDef *data;
  int tag, n;
  const Type **field;
} Ctor;
struct DataDef {
  const char *name;
  int nparam;
  const Var **param; /* type variables, by name */
  int nctor;
  Ctor *ctor;
};

struct Node {
  NodeKind kind;
  /* creation order; arguments have smaller ids (a let's variable may be older than its value) */
  uint32_t id;
  const Type *type;
  const char *name; /* of the node in the source model, or of the variable; may be NULL */
  int nargs;
  const Node **arg;
  union {
    struct {
      const OpDef *op;
      const void *attrs;
      const char *plan; /* how it is to be computed: "conv2d.nchwc{…}" (impl.h); NULL: nobody has said */
    } call;
    const ConstData *data;
    int index;
    const FuncInfo *func;
    const char *global;
    const Ctor *ctor;
    struct {
      int n;
      const Pattern **clause;
    } match;
    struct {
      const char *name;
    } tir;
    uint64_t origin; /* N_VAR: a number that its copies share: the same variable in another module, or with its type */
  } u;
};

const Node *node_var(Module *, const char *name, const Type *);
const Node *node_var_typed(Module *, const Node *var, const Type *); /* the same variable with a type */
const Node *node_const(Module *, const ConstData *);                 /* the struct is copied, the bytes are not */
const Node *node_const_copy(Module *, DType, int ndim, const int64_t *shape, const void *data);
const Node *node_scalar(Module *, Value);
/* Checks the number of arguments and infers the type at once; raises with the operator's
 * name, the argument and both shapes.  name may be NULL. */
const Node *node_call(Module *, const OpDef *, int n, const Node *const *arg, const void *attrs, const char *name);
/* The same call with a plan, which prints and parses as one more attribute: plan="…". */
const Node *node_call_planned(Module *, const Node *call, const char *plan);
const Node *node_apply(Module *, const Node *f, int n, const Node *const *arg);
const Node *node_tuple(Module *, int n, const Node *const *);
const Node *node_get(Module *, const Node *tuple, int index);
const Node *node_let(Module *, const Node *var, const Node *value, const Node *body);
const Node *node_if(Module *, const Node *cond, const Node *then, const Node *orelse);
const Node *node_func(Module *, int n, const Node *const *param, const Node *body, const Type *ret,
                      const Annots *attrs);
const Node *node_global(Module *, const char *name);
const Node *node_ctor(Module *, const Ctor *);
const Node *node_op(Module *, const OpDef *);
const Node *node_match(Module *, const Node *value, int n, const Pattern *const *clause, const Node *const *body);
const Node *node_call_tir(Module *, const char *name, int n, const Node *const *arg, const Type *out);
const Node *node_with_args(Module *, const Node *, const Node *const *arg); /* the same over other arguments */

/* state.c: data types of the module, by name. */
const DataDef *graph_data(Module *, const char *name); /* NULL if absent */
/* Makes it known; raises if the name is taken by another.  The struct is kept; constructors point back to it. */
void graph_add_data(Module *, const DataDef *);
/* The same, in the place of another of its name: for modules that only build expressions. */
void graph_replace_data(Module *, const DataDef *);
int graph_data_count(Module *);
const DataDef *graph_data_at(Module *, int);

static inline bool node_is_op(const Node *n, const OpDef *op) { return n->kind == N_CALL && n->u.call.op == op; }
bool node_same_plan(const Node *, const Node *); /* of two calls */
static inline int fn_nparams(const Node *f) { return f->nargs - 1; }
static inline const Node *fn_body(const Node *f) { return f->arg[f->nargs - 1]; }

/* ---- attrs.c: attributes as a table of fields --------------------------------------- */

typedef enum { AT_BOOL, AT_INT, AT_F64, AT_STR, AT_DTYPE, AT_INTS, AT_F64S, AT_STRS, AT_DIMS } AttrKind;
/* Lists know whether they were given: None and [] differ. */
typedef struct {
  int n;
  const int64_t *v;
  bool given;
} AttrInts; /* AT_INTS */
typedef struct {
  int n;
  const double *v;
  bool given;
} AttrF64s; /* AT_F64S */
typedef struct {
  int n;
  const char *const *v;
  bool given;
} AttrStrs; /* AT_STRS */
typedef struct {
  int n;
  const Expr *const *v;
  bool given;
} AttrDims; /* AT_DIMS: dimensions, maybe symbolic */

typedef struct AttrField {
  const char *name;
  AttrKind kind;
  size_t offset;
  const char *def; /* default as text: "1", "[1, 1]", "\"NCHW\"", "None"; NULL: must be given */
  const char *doc;
} AttrField;
typedef struct AttrsDef {
  const char *name; /* "Conv2DAttrs" */
  size_t size;
  const AttrField *field;
  int n;
} AttrsDef;

/* An attribute list is a macro:
 *   #define CLIP_ATTRS(A, S)                    \
 *     A(S, F64, a_min, "-inf", "lower bound")   \
 *     A(S, F64, a_max, "inf", "upper bound")
 *   DEFINE_ATTRS(Clip, CLIP_ATTRS)
 * makes the struct ClipAttrs and the table Clip_attrs.  Lists that other layers read
 * stand at the end of this header as DECLARE_ATTRS, their tables in the family file. */
typedef bool AttrType_BOOL;
typedef int64_t AttrType_INT;
typedef double AttrType_F64;
typedef const char *AttrType_STR; /* of a call NULL only where the default is None */
typedef DType AttrType_DTYPE;     /* DT_NONE: none given */
typedef AttrInts AttrType_INTS;
typedef AttrF64s AttrType_F64S;
typedef AttrStrs AttrType_STRS;
typedef AttrDims AttrType_DIMS;
#define ATTR_MEMBER(S, kind, name, def, doc) AttrType_##kind name;
#define ATTR_FIELD(S, kind, name, def, doc) {#name, AT_##kind, offsetof(S, name), def, doc},
#define DECLARE_ATTRS(Name, LIST)  \
  typedef struct Name##Attrs {     \
    LIST(ATTR_MEMBER, Name##Attrs) \
  } Name##Attrs;                   \
  extern const AttrsDef Name##_attrs;
#define DEFINE_ATTRS_TABLE(Name, LIST)                                              \
  static const AttrField Name##_fields[] = {LIST(ATTR_FIELD, Name##Attrs)};         \
  const AttrsDef Name##_attrs = {#Name "Attrs", sizeof(Name##Attrs), Name##_fields, \
                                 (int)(sizeof Name##_fields / sizeof *Name##_fields)};
/* clang-format off */
#define DEFINE_ATTRS(Name, LIST)                                   \
  DECLARE_ATTRS(Name, LIST)                                        \
  DEFINE_ATTRS_TABLE(Name, LIST)
/* clang-format on */

/* Zeroed attributes with the defaults filled in. */
void *attrs_new(Module *, const AttrsDef *);
void *attrs_copy(Module *, const AttrsDef *, const void *);
/* The same (or a copy) with the default in the place of each string that is NULL; the name of one that has none and
 * must be given, or NULL. */
const void *attrs_with_strings(Module *, const AttrsDef *, const void *, const char **missing);
const AttrField *attrs_field(const AttrsDef *, const char *name);                  /* NULL if absent */
void attrs_set_int(Module *, const AttrsDef *, void *, const char *name, int64_t); /* bool too */
void attrs_set_f64(Module *, const AttrsDef *, void *, const char *name, double);
void attrs_set_str(Module *, const AttrsDef *, void *, const char *name, const char *); /* NULL: the default */
void attrs_set_dtype(Module *, const AttrsDef *, void *, const char *name, DType);
void attrs_set_ints(Module *, const AttrsDef *, void *, const char *name, int n, const int64_t *);
void attrs_set_f64s(Module *, const AttrsDef *, void *, const char *name, int n, const double *);
void attrs_set_strs(Module *, const AttrsDef *, void *, const char *name, int n, const char *const *);
void attrs_set_dims(Module *, const AttrsDef *, void *, const char *name, int n, const Expr *const *);
void attrs_set_text(Module *, const AttrsDef *, void *, const char *name, const char *text); /* parses the value */
bool attrs_equal(const AttrsDef *, const void *, const void *);
uint64_t attrs_hash(const AttrsDef *, const void *);
/* ", strides=[2, 2], groups=1" (defaults left out) */
void attrs_print(Text *, const AttrsDef *, const void *);

/* ---- registry.c: operators ------------------------------------------------------------------------ */

typedef enum {
  FUSE_ELEMWISE = 0,
  FUSE_BROADCAST = 1,
  FUSE_INJECTIVE = 2,
  FUSE_COMM_REDUCE = 3,
  FUSE_OUT_ELEMWISE = 4,
  FUSE_TUPLE = 7,
  FUSE_OPAQUE = 8,
} FuseKind;
typedef enum {
  OPF_IMPURE = 1,    /* has an effect: let-bound, never folded, shared or dropped */
  OPF_TUPLE_ARG = 2, /* its one argument is a tuple, as Relay's concatenate has it */
  OPF_HOST = 4,      /* no kernel: the executor does it itself (sequences, optionals); meaning: eval */
  OPF_VIEW = 8,      /* the output is the first argument's bytes under another shape (reshape, squeeze, …) */
  /* takes strings too: moves or compares elements without a look into them, or is made for them */
  OPF_STRING = 16,
  OPF_PLACE = 64, /* says where its argument's value is computed or wanted; the value is the same (src/op/device.c) */
  OPF_DEAR = 32,  /* many instructions an element: better stored once than computed again and again */
} OpFlags;
/* How an operator bears floats of 16 bits (src/pass/mixed_precision.c). */
typedef enum {
  NARROW_UNKNOWN, /* nobody has said: it stays in float32 */
  NARROW_ALWAYS,  /* convolutions and products: their operands are made narrow */
  NARROW_FOLLOW,  /* keeps magnitudes: narrow where its operands are */
  NARROW_NEVER,   /* loses too much: exponentials, sums over many elements, normalisations */
} NarrowKind;

/* How a tensor lies: as the graph had it, and as it comes now ("NCHW", "NCHW16c"). */
typedef struct LayoutPair {
  const char *from, *to;
} LayoutPair;

/* What a type rule or a compute sees of the call. */
typedef struct OpCall {
  Module *m; /* where results are made */
  const OpDef *op;
  const void *attrs;
  int nargs;              /* tuple arguments count as one */
  const Type *const *arg; /* types of the arguments */
  /* the arguments themselves (a shape operand may be a constant); may be NULL in an implementation's compute */
  const Node *const *node;
  const Type *out;  /* compute: the call's type */
  const char *name; /* of the node, for messages */
} OpCall;

struct OpDef {
  const char *name;       /* "nn.conv2d" */
  const char *doc;        /* one line */
  const char *args;       /* "data, weight": their names, for Python and messages */
  int min_args, max_args; /* max -1: any number */
  const AttrsDef *attrs;  /* NULL: none */
  FuseKind fuse;
  unsigned flags;
  NarrowKind narrow;
  const Type *(*type)(OpCall *);
  /* The type that argument i must have, where the others and the attributes say it (a weight, from data, channels and
   * kernel_size): for variables that are declared without one.  arg[k] is NULL where argument k has no type yet.
   * NULL: it does not follow.  No rule: it never does. */
  const Type *(*operand)(OpCall *, int i);
  /* The meaning: exactly one of these.
   * compute: in is one tensor per argument (tuple fields spread out, in order), out one per output.
   * decompose: the call in terms of other operators.
   * tir: parameters are the inputs, then the outputs.
   * eval: on values, for what has no tensors inside a kernel (OPF_HOST). */
  void (*compute)(OpCall *, const Tensor *const *in, const Tensor **out);
  const Node *(*decompose)(Module *, const Node *call);
  PrimFunc *(*tir)(OpCall *, Module *dst);
  const RtValue *(*eval)(OpCall *, Arena *, const RtValue *const *in);
  /* Layouts.  arg[i] tells how argument i comes in (from NULL: nothing known).  The
   * rule may change arg[i].to to what it wants, sets out[k] for its outputs and returns
   * the attributes to use there (attrs itself if they stay); NULL: every argument in
   * its layout `from`.  No rule: the same. */
  const void *(*layout)(OpCall *, LayoutPair *arg, LayoutPair *out);
  /* Arithmetic operations by the formula, of a call whose result is one tensor; 0 where sizes are not known.
   * NULL: one for each element of the result.  flops_done: of an algorithm that does fewer; NULL: as flops. */
  double (*flops)(const Node *call);
  double (*flops_done)(const Node *call);
};

const OpDef *opdef_find(const char *name);       /* NULL if there is none; users' operators too */
const OpDef *opdef_get(Ctx *, const char *name); /* raises with the nearest name */
/* Lists the built-in operators, once (src/op does). */
void opdef_install(const OpDef *const *list, int n);
int opdef_count(void);
const OpDef *opdef_at(int); /* in the order of ops.def, then users' */
/* Adds a user's operator for the life of the context's process.  The struct is kept. */
void opdef_register(Ctx *, const OpDef *);
/* it must not be in use; its place in the list stays, without a name */
void opdef_unregister(const OpDef *);

/* Raises ERR_TYPE / ERR_SHAPE:  "nn.conv2d (node 'layer1/conv'): " and the message. */
_Noreturn void opdef_raise(OpCall *, ErrKind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- evaluate.c: one call of an operator, by its meaning ----------------------- */

/* Runs compute (or, through them, decompositions) for a call over tensors. */
void opdef_compute(Module *, const Node *call, int n, const Tensor *const *in, const Tensor **out);
int opdef_num_outputs(const Node *call);
/* The tensors (their number is returned) of an expression of calls, tuples and small constants, whose
 * variables stand for the tensors given: every call by its meaning. */
int graph_compute(Module *, int n, const Node *const *var, const Tensor *const *in, const Node *body,
                  const Tensor ***out);
/* A constant as a tensor expression: its elements picked by position.  NULL: they are too many, or
 * strings; then it has to come from outside. */
const Tensor *graph_literal_tensor(Module *, const ConstData *);
/* Evaluates a call by its meaning on concrete values (te_evaluate or func_interpret).
 * The output's type may have been symbolic: the true shape is in out. */
void opdef_evaluate(Module *, Arena *, const Node *call, int n, const ConstData *in, ConstData *out);

/* ---- walk.c --------------------------------------------------------------------------- */

/* All nodes below (and with) n, arguments first, each once; functions inside
 * included.  The order is that of first use. */
int graph_post_order(Arena *, const Node *, const Node ***out);
/* Rewrites bottom up, each node once; fn sees a node over rewritten arguments. */
typedef struct GraphRewriter {
  Module *m;
  const Node *(*fn)(struct GraphRewriter *, const Node *old, const Node *now);
  void *env;
  Arena *arena;
  Map memo;
} GraphRewriter;
const Node *graph_rewrite(GraphRewriter *, const Node *);
int graph_free_vars(Arena *, const Node *, const Node ***out);
const Node *graph_substitute(Module *, const Node *, const Map *var_to_node);
/* import.c: the same graph in dst; variables and sizes are made anew, once per (src, dst) map. */
const Node *graph_import(Module *dst, Module *src, const Node *);
/* An importer remembers across calls, so what is asked for twice is made once.
 * Its memory is dst's.  exprs: NULL, or one that the caller keeps for dst. */
typedef struct GraphImporter GraphImporter;
GraphImporter *graph_importer_new(Module *dst, Module *src, Importer *exprs);
/* A data type takes the place of another definition of its name in dst; else that is refused. */
void graph_importer_replaces_data(GraphImporter *);
const Node *graph_import_into(GraphImporter *, const Node *);
const Type *graph_import_type(GraphImporter *, const Type *);
Module *graph_copy_module(Module *); /* one reference, the caller's; constants' bytes are shared */
const Node *graph_main(Module *);    /* walk.c: @main; raises if there is none */
/* infer.c: the type of f's result when called with arguments of these types: sizes in the
 * parameters' types are bound by the arguments'.  Raises naming the parameter. */
const Type *graph_apply_type(Module *, const Type *func, int n, const Type *const *arg);

/* ---- values.c: integers that the compiler can follow ----------------------------------------- */

enum { GRAPH_MAX_VALUES = 256 };
/* The elements of an integer or float tensor (at most so many, static shape) as expressions:
 * (integers in the form dimensions have: int32 where they fit, casts between int32 and
 * int64 left out) literals for a constant; for a call whose arguments are known this way (shape_of,
 * concatenate, take, arithmetic, …) its meaning (compute) applied to them and
 * simplified; for anything else one variable per element, always the same for the
 * same node.  So the shape of reshape(x, concatenate(shape_of(x)[0], -1)) comes
 * out as (n, 64).  NULL when the number of elements is not known. */
const Expr *const *graph_values(Module *, const Node *, int *n);
/* If v stands for an element of a computed tensor: that node and the element. */
bool graph_value_source(Module *, const Var *v, const Node **node, int *element);
/* type.c: only literals and sizes with a name of their own, which stay the same while passes
 * rewrite the graph: fit to be put into attributes. */
bool type_dim_is_stable(const Expr *);
/* state.c: simplified, knowing nothing but that sizes are not negative.  Passes infer the types of the same calls again
 * and again; each dimension is worked out once. */
const Expr *graph_simplify_dim(Module *, const Expr *);

/* ---- blob.c: bytes that outlive a module ------------------------------------------------------ */

/* Counted bytes (a mapped model file, folded constants) that constants borrow. */
typedef struct Blob Blob;
/* one reference, the caller's */
Blob *blob_new(Ctx *, const void *data, size_t n, void (*drop)(void *user), void *user);
/* a new blob that the module alone keeps */
void graph_adopt(Module *, const void *data, size_t n, void (*drop)(void *user), void *user);
/* n bytes of a file, mapped for reading, in a blob that the module alone keeps; NULL with errno: they cannot be
 * mapped. */
const void *graph_map_file(Module *, int fd, size_t n);
/* These bytes are not read again soon: if they are a mapped file's, their pages need not stay in memory. */
void graph_unneeded(Module *, const void *data, size_t n);
/* The module holds a reference until it dies; graph_import passes on those whose bytes
 * the imported constants borrow. */
void graph_keep(Module *, Blob *);
/* n zeroed bytes, 64-byte aligned, in a blob that the module keeps. */
void *blob_alloc(Module *, size_t n);
void blob_release(Blob *);

/* ---- infer.c --------------------------------------------------------------------------- */

/* Types of everything below f (functions recursively); raises ERR_TYPE / ERR_SHAPE.
 * Gives an equal graph whose nodes all have types. */
const Node *graph_infer(Module *, const Node *);

/* ---- compare.c, print.c, parse.c ---------------------------------------------------------- */

bool graph_equal(const Node *, const Node *, Arena *, const char **why); /* free variables may be renamed, one to one */
/* The same, and what of the first stands for what of the second: variables, sizes, nodes with arguments. */
bool graph_match(const Node *, const Node *, Arena *, Map *pairs);
bool graph_equal_open(const Node *, const Node *, Arena *, const char **why); /* free variables must be the same */
uint64_t graph_hash(const Node *, Arena *);                                   /* equal graphs have equal ones */
/* Relay text.  A constant that is a plain finite scalar stands where it is used; others
 * are referenced as meta[relay.Constant][i], and their values stand in a section
 * #[metadata] at the end (graph_print leaves that out).  graph_print and
 * graph_print_module tell types in comments. */
typedef enum { GRAPH_TEXT_TYPES = 1, GRAPH_TEXT_METADATA = 2 } GraphTextFlags;
const char *graph_print(Arena *, const Node *);
const char *graph_print_with(Arena *, const Node *, unsigned flags);
const char *graph_print_module(Arena *, Module *);
const char *graph_print_module_with(Arena *, Module *, unsigned flags);
void graph_parse_module(Module *, const char *text, const char *file);
const Node *graph_parse_expr(Module *, const char *text, const char *file);

/* ---- interp.c: what a graph means ----------------------------------------------------------- */

/* A value at run time. */
struct RtValue {
  enum { RV_TENSOR, RV_TUPLE, RV_CLOSURE, RV_SEQ, RV_OPT, RV_CTOR, RV_SHAPE } kind;
  ConstData tensor;
  int n;
  const RtValue **field; /* tuple, sequence, constructor's fields, optional (n 0 or 1) */
  const Node *func;      /* closure: N_FUNC, N_CTOR or N_OP */
  const Map *captures;   /* closure: variable -> RtValue* */
  const Map *sizes;      /* closure: size (Var*) -> Value* */
  const Ctor *ctor;
};
const RtValue *graph_value_tensor(Arena *, const ConstData *); /* the struct is copied, the bytes are not */
const RtValue *graph_value_fields(Arena *, int kind, int n, const RtValue *const *); /* tuple, sequence, optional */
/* Evaluates naively: every operator by its meaning.  f is a function, of which args are
 * the arguments, or any closed expression (n 0).  A function that calls itself last runs in
 * constant depth, so loops may be long; others may be 10,000 calls deep. */
const RtValue *graph_eval(Module *, Arena *, const Node *f, int n, const RtValue *const *arg);

#endif
