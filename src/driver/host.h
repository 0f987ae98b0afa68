/* host.h: operators that the executor does itself. */
#ifndef LATHE_DRIVER_HOST_H
#define LATHE_DRIVER_HOST_H

#include "driver/program.h"

typedef struct HostCall {
  HostOp op;
  int nargs;
  const Node *const *arg;
  int nattr;
  int64_t attr[2];
} HostCall;
/* Raises ERR_UNSUPPORTED for a host operator that the executor does not know. */
HostCall host_call(Ctx *, const Node *call);

#endif
