/* test_kit.h: models written by hand, byte by byte, as model_format.h has them. */
#ifndef LATHE_RT_TEST_KIT_H
#define LATHE_RT_TEST_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model.h"

#if defined(__x86_64__)
#define ARCH "x86_64"
#elif defined(__aarch64__)
#define ARCH "aarch64"
#endif

/* Places that tests come back to. */
typedef enum { AT_WEIGHTS, AT_KERNELS, AT_KERNEL_NAME, AT_CONST, AT_RETURN, AT_STORAGE, AT_COUNT } Mark;
typedef struct Blob {
  size_t n;
  size_t at[AT_COUNT];
  unsigned char b[8192];
} Blob;

static inline void num(Blob *o, uint64_t v, int bytes)
{
  for (int i = 0; i < bytes; i++) o->b[o->n++] = (unsigned char)(v >> (8 * i));
}
static inline void b8(Blob *o, unsigned v) { num(o, v, 1); }
static inline void b32(Blob *o, uint32_t v) { num(o, v, 4); }
static inline void b64(Blob *o, uint64_t v) { num(o, v, 8); }
static inline void bstr(Blob *o, const char *s)
{
  b32(o, (uint32_t)strlen(s));
  memcpy(o->b + o->n, s, strlen(s));
  o->n += strlen(s);
}
static inline void bf32(Blob *o) { num(o, 2 | 32 << 8 | 1 << 16, 4); }
static inline void bexpr_int(Blob *o, int64_t v)
{
  b32(o, 1);
  b8(o, XO_INT);
  b64(o, (uint64_t)v);
}
static inline void bexpr_dim(Blob *o, uint32_t reg)
{
  b32(o, 1);
  b8(o, XO_DIM);
  b32(o, reg);
  b32(o, 0);
}
static inline void bregs(Blob *o, int n, const uint32_t *reg)
{
  b32(o, (uint32_t)n);
  for (int i = 0; i < n; i++) b32(o, reg[i]);
}
#define REGS(...) \
  (int)(sizeof((uint32_t[]){__VA_ARGS__}) / 4), (uint32_t[]) { __VA_ARGS__ }

/* ---- the tables, in their order ------------------------------------------------------------ */

static inline void bmagic(Blob *o, uint64_t weights, uint64_t prepared)
{
  memcpy(o->b, MODEL_MAGIC, 8);
  o->n = 8;
  b32(o, MODEL_VERSION);
  b32(o, 0);
  bstr(o, "llvm");
  o->at[AT_WEIGHTS] = o->n;
  b64(o, weights);
  b64(o, prepared);
  b64(o, 0x1234);
  b64(o, 0x5678);
}
static inline void bdevice(Blob *o, int type, int id)
{
  b32(o, (uint32_t)type);
  b32(o, (uint32_t)id);
  b32(o, 64);
  bstr(o, "target");
}
/* A module in one variant: library `number`, or bytes of another kind. */
static inline void bmodule(Blob *o, const char *kind, uint32_t number, uint64_t offset, uint64_t bytes)
{
  bstr(o, kind);
  bstr(o, "code");
  b32(o, 1);
  bstr(o, "");
  bstr(o, "");
  b32(o, number);
  b64(o, offset);
  b64(o, bytes);
}
static inline void bkernel(Blob *o, const char *name, uint32_t module, uint32_t device)
{
  bstr(o, name);
  b32(o, module);
  b32(o, device);
  bstr(o, "plan");
  bstr(o, "trace");
}
/* A vector of 4 floats. */
static inline void bconst(Blob *o, uint32_t device, ConstPlace place, uint64_t offset)
{
  o->at[AT_CONST] = o->n;
  bf32(o);
  b32(o, 1);
  b64(o, 4);
  b32(o, device);
  b8(o, place);
  b64(o, offset);
}
/* One size 'n', and a node with operations: 6 x[0] y[0]^2 / z[0], of which 1.5 x[0] are done. */
static inline void bnode(Blob *o)
{
  b32(o, 1);
  bstr(o, "n");
  b32(o, 1);
  bstr(o, "node");
  bstr(o, "source");
  bstr(o, "impl");
  for (int i = 0; i < 3; i++) b64(o, 0);
  b32(o, 2);
  b8(o, WORK_FORMULA);
  b64(o, 0x4018000000000000);
  b32(o, 3);
  for (uint32_t i = 0; i < 3; i++) {
    b32(o, i);
    b32(o, 0);
    b8(o, i == 0 ? 1 : i == 1 ? 2 : 255);
  }
  b8(o, WORK_DONE);
  b64(o, 0x3ff8000000000000);
  b32(o, 1);
  b32(o, 0);
  b32(o, 0);
  b8(o, 1);
}
/* One device, one library of two kernels, one constant; no strings, no packed functions. */
static inline void bhead(Blob *o)
{
  bmagic(o, 64, 0);
  b32(o, 1);
  bdevice(o, LATHE_RT_CPU, 0);
  b32(o, 1);
  bmodule(o, "library", 0, 0, 0);
  b32(o, 0); /* images */
  o->at[AT_KERNELS] = o->n;
  b32(o, 2);
  o->at[AT_KERNEL_NAME] = o->n + 4;
  bkernel(o, "add", 0, 0);
  bkernel(o, "scale", 0, 0);
  b32(o, 1);
  bconst(o, 0, CONST_STORED, 0);
  bnode(o);
  b32(o, 0);
  b32(o, 0);
}

/* ---- functions and entries --------------------------------------------------------------- */

static inline void bfunction(Blob *o, const char *name, uint32_t regs, uint32_t params, uint32_t results,
                             uint32_t instructions)
{
  bstr(o, name);
  b32(o, regs);
  b32(o, params);
  b32(o, results);
  b32(o, 0);
  b32(o, instructions);
}
static inline void bconst_ins(Blob *o, uint32_t reg, uint32_t constant)
{
  b8(o, MO_CONST);
  b32(o, reg);
  b32(o, constant);
}
/* A vector of 4 floats. */
static inline void balloc(Blob *o, uint32_t reg, uint32_t device, uint64_t place)
{
  b8(o, MO_ALLOC);
  b32(o, reg);
  b32(o, device);
  bf32(o);
  b32(o, 1);
  bexpr_int(o, 4);
  b64(o, place);
}
static inline void bcopy_ins(Blob *o, uint32_t reg, uint32_t source, uint32_t device, uint64_t place)
{
  b8(o, MO_COPY);
  b32(o, reg);
  b32(o, source);
  b32(o, device);
  b64(o, place);
}
static inline void bcall(Blob *o, uint32_t kernel, int n, const uint32_t *reg)
{
  b8(o, MO_KERNEL);
  b32(o, kernel);
  b32(o, 0);
  b32(o, (uint32_t)n);
  for (int i = 0; i < n; i++) {
    b8(o, KARG_REGISTER);
    b32(o, reg[i]);
  }
}
static inline void breturn(Blob *o, int n, const uint32_t *reg)
{
  o->at[AT_RETURN] = o->n;
  b8(o, MO_RETURN);
  bregs(o, n, reg);
}
static inline void bport_of(Blob *o, const char *name, PortKind kind, uint32_t device, int64_t dim)
{
  bstr(o, name);
  bstr(o, "Tensor");
  b8(o, kind);
  b32(o, device);
  bf32(o);
  b32(o, kind == PORT_TENSOR);
  if (kind == PORT_TENSOR) b64(o, (uint64_t)dim);
}
static inline void bport(Blob *o, const char *name, int64_t dim) { bport_of(o, name, PORT_TENSOR, 0, dim); }
static inline void bentry(Blob *o, const char *name, uint32_t func, uint32_t flags)
{
  bstr(o, name);
  b32(o, func);
  b32(o, flags);
}
/* Storage on each device; the last entry's is marked. */
static inline void bstorage(Blob *o, int devices, const uint64_t *bytes)
{
  b32(o, (uint32_t)devices);
  o->at[AT_STORAGE] = o->n;
  for (int i = 0; i < devices; i++) b64(o, bytes[i]);
  b64(o, 0);
}
/* One entry of vectors named x, z … and y. */
static inline void bmain(Blob *o, uint32_t flags, int ninputs, int64_t in, int64_t out, uint64_t storage)
{
  static const char *const names[] = {"x", "z"};
  b32(o, 1);
  bentry(o, "main", 0, flags);
  b32(o, (uint32_t)ninputs);
  for (int i = 0; i < ninputs; i++) bport(o, names[i], in);
  b32(o, 1);
  bport(o, "y", out);
  bstorage(o, 1, &storage);
  b32(o, PREPARE_NONE);
}

static inline LatheRtTensor vec(float *data, int64_t *n)
{
  return (LatheRtTensor){.data = data, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = n};
}

#endif
