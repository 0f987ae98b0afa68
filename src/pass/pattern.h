/* pattern.h: patterns of dataflow: what a piece of a graph looks like.
 *
 * A pattern is a tree (or DAG) of DfPat.  Matching it against a node binds each pattern
 * to the node it stood for; a pattern that occurs twice must stand for the same node twice.
 * add and multiply also match with their arguments exchanged.
 *
 *   DfPat *x = pat_wildcard(a), *w = pat_constant(a);
 *   DfPat *conv = pat_call(a, pat_op(a, "nn.conv2d"), 2, (DfPat *[]){x, w});
 *   DfPat *relu = pat_optional(a, conv, "nn.relu");
 */
#ifndef LATHE_PASS_PATTERN_H
#define LATHE_PASS_PATTERN_H

#include "graph/graph.h"

typedef enum {
  DP_WILDCARD,
  DP_OP, /* an operator itself, for the callee of a call: name */
  DP_CONST,
  DP_VAR,   /* name, or NULL: any variable */
  DP_TUPLE, /* sub: fields; n -1: any tuple */
  DP_GET,   /* sub[0]: the tuple; index -1: any field */
  DP_CALL,  /* sub[0]: the callee; the rest arguments; n -1: any arguments */
  DP_ALT,   /* sub[0] or, if it does not match, sub[1] */
  DP_ATTR,  /* sub[0] matches, and its attribute `name` prints as `value`; TOpPattern is the fusion kind */
  DP_DTYPE,
  DP_SHAPE,
  DP_TYPE,
  DP_DOMINATOR, /* sub: parent, path, child */
  DP_IF,
  DP_LET,  /* sub: as the node's arguments */
  DP_NODE, /* exactly this node */
} DfPatKind;

typedef struct DfPat {
  DfPatKind kind;
  int n;
  struct DfPat **sub;
  const char *name, *value;
  int index;
  DType dtype;
  int ndim;
  const int64_t *shape; /* -1: any */
  const Type *type;
  const Node *node;
} DfPat;

/* ---- pattern.c ---------------------------------------------------------------------------- */

DfPat *pat_wildcard(Arena *);
DfPat *pat_op(Arena *, const char *name);
DfPat *pat_constant(Arena *);
DfPat *pat_var(Arena *, const char *name);
DfPat *pat_tuple(Arena *, int n, DfPat *const *field);
DfPat *pat_get(Arena *, DfPat *tuple, int index);
DfPat *pat_call(Arena *, DfPat *callee, int n, DfPat *const *arg);
DfPat *pat_alt(Arena *, DfPat *, DfPat *);
DfPat *pat_optional(Arena *, DfPat *, const char *op); /* op(p) or p */
DfPat *pat_attr(Arena *, DfPat *, const char *name, const char *value);
DfPat *pat_dtype(Arena *, DfPat *, DType);
DfPat *pat_shape(Arena *, DfPat *, int ndim, const int64_t *shape);
DfPat *pat_type(Arena *, DfPat *, const Type *);
/* child, behind parent through nodes that all match path; nothing of it is read elsewhere. */
DfPat *pat_dominates(Arena *, DfPat *parent, DfPat *path, DfPat *child);
DfPat *pat_if(Arena *, DfPat *cond, DfPat *then, DfPat *orelse);
DfPat *pat_let(Arena *, DfPat *var, DfPat *value, DfPat *body);
DfPat *pat_node(Arena *, const Node *);

/* A match: what each pattern stands for, and the nodes that are inside of it. */
typedef struct DfMatch {
  Arena *arena;
  Map bound;  /* DfPat* -> Node* */
  Map inside; /* Node* -> itself: matched by something other than a wildcard or variable */
} DfMatch;
/* root: the graph that n lies in, for dominators (NULL: n itself). */
bool pass_pattern_match(Arena *, const DfPat *, const Node *n, const Node *root, DfMatch *);
const Node *pass_pattern_node(const DfMatch *, const DfPat *); /* NULL if it took no part */

typedef struct DfRule {
  const DfPat *pattern;
  /* What goes in the place of node; node itself: nothing. */
  const Node *(*replace)(void *env, Module *, const Node *node, const DfMatch *);
  void *env;
  bool once; /* one round instead of as many as change something */
} DfRule;
const Node *pass_pattern_rewrite(Module *, const Node *f, int n, const DfRule *rules);
/* Each match whose inside is read only through its root becomes a function (attributes: the given ones, and
 * PartitionedFromPattern) applied to what it reads.  check (may be NULL) can refuse. */
const Node *pass_pattern_partition(Module *, const Node *f, const DfPat *, const Annots *attrs,
                                   bool (*check)(void *env, const Node *, const DfMatch *), void *env);

#endif
