/* host.h: operators that the executor does itself. */
#ifndef LATHE_DRIVER_HOST_H
#define LATHE_DRIVER_HOST_H

#include "driver/program.h"

typedef struct HostCall {
  HostOp op;
  int nargs;
  const Node *const *arg;
  const Node *more; /* NULL, or a constant that comes after the arguments */
  int nattr;
  int64_t attr[2];
} HostCall;
/* The name of the function that a call of a packed one asks for; NULL: it is no such call.  fills: it is handed the
 * result to fill. */
const char *emit_packed_name(const Node *call, bool *fills);
/* Raises ERR_UNSUPPORTED for a host operator that the executor does not know. */
HostCall emit_host_call(Module *, const Node *call);

#endif
