/* state.h: what the graph layer remembers beside a module; inside the layer only. */
#ifndef LATHE_GRAPH_STATE_H
#define LATHE_GRAPH_STATE_H

#include "graph/graph.h"

typedef struct GraphState {
  Map values;                /* Node* -> NodeValues* (values.c) */
  Map sources;               /* Var* -> ValueSource* (values.c) */
  Map bound;                 /* let variable -> the node it stands for (values.c) */
  Map blobs;                 /* Blob* kept -> itself (blob.c) */
  Map dims;                  /* dimension -> the same simplified (state.c) */
  Vec(const DataDef *) data; /* data types, in order of definition (state.c) */
} GraphState;
GraphState *graph_state(Module *);

/* blob.c: the blob of m that holds these bytes, or NULL. */
Blob *graph_blob_of(Module *m, const void *data, size_t n);

/* values.c: the variable of a let stands for this node: its values are the node's. */
void graph_bind_let(Module *, const Node *var, const Node *value);
/* Every variable named with a leading "?" is known at run time only; those that
 * stand for elements of tensors are named VALUE_NAME. */
#define VALUE_NAME "?v"

/* type.c: a type with variables replaced: sizes (Var* -> Expr*) and type parameters
 * (Var* -> Type*).  fresh: a "?" that is not replaced becomes a new one. */
const Type *type_substitute(Module *, const Type *, const Map *size, const Map *param, bool fresh);
/* The type as seen from outside of a function: dimensions over values computed inside
 * become "?". */
const Type *type_outside(Module *, const Type *);
/* The type of one value among several of this type (an item of a list): each dimension that
 * is known at run time only is its own. */
const Type *type_anew(Module *, const Type *);
/* May a value of this type stand where `want` is declared?  "?", unknown ranks and
 * sizes that cannot be told apart pass. */
bool type_fits(const Type *want, const Type *given);

/* attrs.c: the attributes in another module. */
void *attrs_import(Importer *, const AttrsDef *, const void *);

/* attrs_print with dimensions under the names that the rest of the text uses. */
void attrs_print_named(Text *, Namer *, const AttrsDef *, const void *);

/* type.c: type_text, the same way. */
void type_print(Text *, Namer *, const Type *);

/* node.c: the same node made anew, over these arguments (types are inferred again). */
const Node *node_rebuild(Module *, const Node *, const Node *const *arg);
const Node *node_match_with(Module *, const Node *match, const Node *const *arg, const Pattern *const *clause);

/* infer.c: the type of f (an N_FUNC whose body has a type) called with these arguments:
 * sizes that are elements of its parameters are those of the arguments. */
const Type *graph_apply_func(Module *, const Node *f, int n, const Node *const *arg);

/* walk.c: the pattern with its variables replaced (Node* -> Node*); itself if none is. */
const Pattern *graph_pattern_replace(Module *, const Pattern *, const Map *vars);
/* Variables of a pattern, in order, appended to out. */
typedef Vec(const Node *) NodeList;
void graph_pattern_vars(Arena *, const Pattern *, NodeList *out);

/* Text: what names after % and @ are made of; joints stand only before a letter.  Other
 * names are quoted. */
static inline bool name_letter(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
static inline bool name_joint(char c) { return c == '.' || c == '/' || c == '-' || c == '$'; }

/* Nesting of types, patterns, expressions in text and of global functions in inference. */
#define MAX_NESTING 200

#endif
