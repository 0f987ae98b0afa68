/* lathe_rt.c: the runtime as one file of C, for whoever builds it without CMake:
 *
 *   cc -Os -shared -fPIC -fvisibility=hidden -Iinclude runtime/lathe_rt.c -o liblathe_rt.so -lm -ldl -lpthread
 *   cc -Os -c -Iinclude runtime/lathe_rt.c -o lathe_rt.o
 *
 * With -DLATHE_RT_NO_THREADS parallel loops run on the caller's thread, and -lpthread is not needed.  tiny.c is a
 * runtime of its own, in a few kilobytes, for linked models of known sizes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef LATHE_VERSION
#define LATHE_VERSION "unversioned"
#endif
#include "builtins.c"
#include "call.c"
#include "cpu.c"
#include "device.c"
#include "executor.c"
#include "fail.c"
#include "kernel.c"
#include "load.c"
#include "model.c"
#include "model_place.c"
#include "model_read.c"
#include "module.c"
#include "object.c"
#include "packed.c"
#include "plugin.c"
#include "pool.c"
#include "prepare.c"
#include "scalar.c"
#include "serial.c"
#include "static.c"
#include "stream.c"
#include "strings.c"
#include "tensor.c"
#include "value.c"
#include "vm.c"
