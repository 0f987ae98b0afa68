/* tflite_flat.h: flatbuffers, read where they lie.
 *
 *   file     ┌ root offset (u32) ┬ "TFL3" ┬ …
 *   table    ┌ distance back to its vtable (i32) ┬ fields …
 *   vtable   ┌ its bytes (u16) ┬ bytes of the table (u16) ┬ offset of field 0 (u16) ┬ of field 1 ┬ …   (0: left out)
 *   vector   ┌ number of elements (u32) ┬ elements …        a string is one of bytes, a list of tables one of offsets
 *
 * A field that is no number holds an offset (u32), counted from where the field stands.  Every offset and every length
 * is checked against the file before it is used; one that leads outside raises ERR_PARSE naming what was read.
 *
 * Abbreviations: t table, slot the number of a field. */
#ifndef LATHE_TFLITE_FLAT_H
#define LATHE_TFLITE_FLAT_H

#include "frontend/kit.h"

typedef struct FlatFile {
  Ctx *ctx;
  Arena *arena;
  Bytes bytes;
} FlatFile;

/* A table; with file NULL one that is not there: all its fields are left out. */
typedef struct FlatTable {
  const FlatFile *file;
  const char *what; /* for messages: "Tensor" */
  size_t at, vtable;
  size_t size, nslots; /* bytes of the table; fields of the vtable */
} FlatTable;

/* Elements of a fixed size; n 0 and p NULL: left out. */
typedef struct FlatVector {
  const char *p;
  size_t n, at;
} FlatVector;

FlatTable flat_root(const FlatFile *, const char *what);
int64_t flat_int(const FlatTable *, int slot, int bytes, int64_t def); /* signed; 1, 2, 4 or 8 bytes */
uint64_t flat_uint(const FlatTable *, int slot, int bytes, uint64_t def);
double flat_f32(const FlatTable *, int slot, double def);
FlatTable flat_table(const FlatTable *, int slot, const char *what);
FlatVector flat_vector(const FlatTable *, int slot, int element_bytes, const char *what);
const char *flat_str(const FlatTable *, int slot); /* "": left out */
/* Element i of a vector of offsets. */
FlatTable flat_at(const FlatTable *owner, const FlatVector *, size_t i, const char *what);
int32_t flat_i32_at(const FlatVector *, size_t i);
int64_t flat_i64_at(const FlatVector *, size_t i);
float flat_f32_at(const FlatVector *, size_t i);

#endif
