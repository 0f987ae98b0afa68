/* interp.h: between the files of the interpreter; no other layer includes it.
 *
 * A function is compiled once into nodes that call each other through pointers;
 * variables live in numbered slots of an environment.  Threads of a GPU block run
 * in lock step: each has an environment of its own, and a statement runs on all of
 * them before the next one starts. */
#ifndef LATHE_TIR_INTERP_H
#define LATHE_TIR_INTERP_H

#include "tir/tir.h"

/* Memory that a pointer variable stands for; lo and hi are the bytes that may be
 * touched, counted from data. */
typedef struct Mem {
  char *data;
  int64_t lo, hi;
} Mem;

typedef union Slot {
  int64_t i;      /* integers, wrapped to their width */
  double f;       /* floats, rounded to theirs */
  const Mem *mem; /* pointers */
} Slot;

/* A thread loop that is running: its tag, its variable and range. */
typedef struct ThreadAxis {
  const char *tag;
  int slot;
  int64_t min, extent;
} ThreadAxis;
typedef Vec(ThreadAxis) ThreadAxes;

typedef struct Run {
  Module *m;
  Ctx *ctx;
  Slot *env; /* of the thread whose turn it is */
  int nslot;
  uint64_t stamp; /* changes with each statement and thread: ages Node.cached */
  uint32_t polls;
  bool returned;
  ThreadAxes threads; /* running, outermost first */
  uint64_t shuffle;   /* state of the generator that orders iterations; 0: they run in order */
  int lanes;          /* slot of the number that the lanes of one vector have in common; 0 there: no lane */
  int64_t vectors;    /* numbers given so far */
} Run;

typedef struct Node Node;

/* A buffer as loads and stores see it. */
typedef struct BufNode {
  const Buffer *buffer;
  int data;                      /* slot of its Mem */
  int ndim, size;                /* size: bytes of an element of one lane */
  const Node **shape, **strides; /* strides NULL: compact */
  const Node *offset;            /* NULL: 0 */
  const int64_t *fixed;          /* the shape, when it is constant and the buffer compact and of scalars; else NULL */
} BufNode;

struct Node {
  union {
    int64_t (*i)(Run *, const Node *, int lane);
    double (*f)(Run *, const Node *, int lane);
  } eval;
  const Expr *expr;
  const Node *a, *b, *c;
  Slot imm;           /* literals */
  int slot;           /* variables, lets */
  const BufNode *buf; /* loads */
  const Node **arg;   /* loads: indices; calls: arguments */
  int nargs;
  struct Cached {
    uint64_t stamp;
    int lane;
    Slot value;
  } *cached; /* nodes used more than once */
  const Node *inner;
};

/* Compiling does not fail: what has no meaning here raises when it is reached. */
typedef struct Compiler {
  Module *m;
  Arena *arena;
  Map slots;   /* Var* -> slot + 1 */
  Map nodes;   /* Expr* -> Node*, of the expression being compiled */
  Map buffers; /* Buffer* -> BufNode* */
  Map uses;    /* Expr* -> times referred to, of the expression being compiled */
  Map local;   /* Expr*: depends on a let inside an expression */
  int nslot;
} Compiler;

int interp_compile_var(Compiler *, const Var *); /* its slot, made if new */
bool interp_compile_has_var(const Compiler *, const Var *);
const Node *interp_compile_expr(Compiler *, const Expr *);
const Node *interp_compile_slot(Compiler *, int slot); /* an int64 that lives in a slot of its own */
const BufNode *interp_compile_buffer(Compiler *, const Buffer *);

static inline int64_t node_int(Run *r, const Node *n, int lane) { return n->eval.i(r, n, lane); }
static inline double node_float(Run *r, const Node *n, int lane) { return n->eval.f(r, n, lane); }
Slot interp_node_slot(Run *, const Node *, int lane);
Value interp_node_value(Run *, const Node *, int lane);
/* Address of an element, checked; index i is lane `lane` of index[i]. */
char *interp_buffer_address(Run *, const BufNode *, const Node *const *index, int lane);
Slot interp_slot_of(Value);
Value interp_value_of(DType, Slot);

#endif
