/* devices.h: what devices.c tells the pass that inserts the copies.  Private to this folder. */
#ifndef LATHE_PASS_DEVICES_H
#define LATHE_PASS_DEVICES_H

#include "pass/groups.h"

/* Where the value of an argument must be: anywhere, on the host, where another node is.  Along the last kind devices
 * spread, unless one of the two is there for the executor to read. */
typedef struct DeviceEdge {
  enum { EDGE_FREE, EDGE_HOST, EDGE_SAME } kind;
  const Node *with;
} DeviceEdge;
DeviceEdge devices_edge(DevicePlan *, const Node *user, int argument);
int devices_wanted(DevicePlan *, DeviceEdge); /* -1: anywhere */
/* The function that is called, by name or through lets; NULL: known at run time, or a constructor. */
const Node *devices_callee(DevicePlan *, const Node *callee);
/* The number of the device that the text names; raises naming those there are. */
int devices_find(Ctx *, const DeviceList *, const char *text, const char *what);

#endif
