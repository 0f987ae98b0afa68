/* groups.h: turning sets of calls into primitive functions.  Private to this folder. */
#ifndef LATHE_PASS_GROUPS_H
#define LATHE_PASS_GROUPS_H

#include "pass/tools.h"

/* The nodes below f that do not lie inside primitive functions, arguments first. */
int groups_order(Arena *, const Node *f, const Node ***out);
/* Can this call stand inside a primitive function?  Not what the executor does itself, and not what
 * has to be decomposed first. */
bool groups_can_hold(const Node *);
/* Must the call be expressed by other operators before it can be lowered? */
bool groups_needs_decompose(const Node *);

/* The tensors that a concatenation puts together along sizes known only at run time; 0 for any other
 * node.  A kernel takes at most GROUPS_MAX_OPEN of them: it compares with the end of each, which is a
 * sum of the sizes before it. */
enum { GROUPS_MAX_OPEN = 16 };
int groups_open_parts(const Node *);

/* Members of one group, arguments first; the last is the root, whose value is the group's. */
typedef struct Group {
  Vec(const Node *) node;
} Group;
/* f with each group replaced by the application of a primitive function.  group_of maps the roots to
 * their Group; calls that are in no group stay. */
const Node *groups_extract(Module *, const Node *f, const Map *group_of, bool link_params);

#endif
