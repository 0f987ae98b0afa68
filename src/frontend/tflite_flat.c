/* tflite_flat.c: flatbuffers, read where they lie.
 *
 * Comes in: bytes from anywhere, not to be trusted.  Goes out: tables, vectors and numbers.  Invariant: a FlatTable and
 * a FlatVector lie inside the file; what is read through them is checked against their own extent. */
#include "frontend/tflite_flat.h"

static uint64_t load(const FlatFile *f, size_t at, int bytes)
{
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)(uint8_t)f->bytes.p[at + (size_t)i] << (8 * i);
  return v;
}

_Noreturn static void outside(const FlatFile *f, const char *what)
{
  raise(f->ctx, ERR_PARSE, NOWHERE, "tflite: the file is damaged: %s leads outside its %zu bytes", what, f->bytes.n);
}

static void want(const FlatFile *f, size_t at, size_t bytes, const char *what)
{
  if (at > f->bytes.n || bytes > f->bytes.n - at) outside(f, what);
}

static FlatTable table_at(const FlatFile *f, size_t at, const char *what)
{
  want(f, at, 4, what);
  int64_t back = (int32_t)load(f, at, 4);
  int64_t vtable = (int64_t)at - back;
  if (vtable < 0) outside(f, what);
  want(f, (size_t)vtable, 4, what);
  FlatTable t = {.file = f, .what = what, .at = at, .vtable = (size_t)vtable};
  size_t bytes = (size_t)load(f, t.vtable, 2);
  t.size = (size_t)load(f, t.vtable + 2, 2);
  if (bytes < 4 || bytes % 2 || t.size < 4)
    raise(f->ctx, ERR_PARSE, NOWHERE, "tflite: the file is damaged: the vtable of %s says %zu and %zu bytes", what,
          bytes, t.size);
  want(f, t.vtable, bytes, what);
  want(f, at, t.size, what);
  t.nslots = bytes / 2 - 2;
  return t;
}

FlatTable flat_root(const FlatFile *f, const char *what)
{
  want(f, 0, 8, what);
  return table_at(f, (size_t)load(f, 0, 4), what);
}

/* Where a field of so many bytes stands; 0: left out. */
static size_t field(const FlatTable *t, int slot, size_t bytes)
{
  if (!t->file || (size_t)slot >= t->nslots) return 0;
  size_t at = (size_t)load(t->file, t->vtable + 4 + 2 * (size_t)slot, 2);
  if (!at) return 0;
  if (at < 4 || at + bytes > t->size)
    raise(t->file->ctx, ERR_PARSE, NOWHERE, "tflite: the file is damaged: field %d of %s leads outside the table", slot,
          t->what);
  return t->at + at;
}

uint64_t flat_uint(const FlatTable *t, int slot, int bytes, uint64_t def)
{
  size_t at = field(t, slot, (size_t)bytes);
  return at ? load(t->file, at, bytes) : def;
}

int64_t flat_int(const FlatTable *t, int slot, int bytes, int64_t def)
{
  size_t at = field(t, slot, (size_t)bytes);
  if (!at) return def;
  return value_int(DTYPE(DT_INT, 8 * bytes), (int64_t)load(t->file, at, bytes)).i;
}

double flat_f32(const FlatTable *t, int slot, double def)
{
  size_t at = field(t, slot, 4);
  uint32_t bits = at ? (uint32_t)load(t->file, at, 4) : 0;
  float v;
  memcpy(&v, &bits, sizeof v);
  return at ? (double)v : def;
}

/* What the offset that stands there points at; 0: left out. */
static size_t target(const FlatTable *t, int slot)
{
  size_t at = field(t, slot, 4);
  if (!at) return 0;
  size_t to = at + (size_t)load(t->file, at, 4);
  if (to == at) outside(t->file, t->what);
  return to;
}

FlatTable flat_table(const FlatTable *t, int slot, const char *what)
{
  size_t at = target(t, slot);
  return at ? table_at(t->file, at, what) : (FlatTable){.what = what};
}

FlatVector flat_vector(const FlatTable *t, int slot, int element_bytes, const char *what)
{
  size_t at = target(t, slot);
  if (!at) return (FlatVector){0};
  want(t->file, at, 4, what);
  size_t n = (size_t)load(t->file, at, 4);
  want(t->file, at + 4, n * (size_t)element_bytes, what); /* n has 32 bits: no overflow */
  return (FlatVector){t->file->bytes.p + at + 4, n, at + 4};
}

const char *flat_str(const FlatTable *t, int slot)
{
  FlatVector v = flat_vector(t, slot, 1, t->what);
  return v.p ? arena_strndup(t->file->arena, v.p, v.n) : "";
}

FlatTable flat_at(const FlatTable *owner, const FlatVector *v, size_t i, const char *what)
{
  size_t at = v->at + 4 * i;
  return table_at(owner->file, at + (size_t)load(owner->file, at, 4), what);
}

int32_t flat_i32_at(const FlatVector *v, size_t i)
{
  FlatFile f = {.bytes = {v->p, 4 * v->n}};
  return (int32_t)load(&f, 4 * i, 4);
}

int64_t flat_i64_at(const FlatVector *v, size_t i)
{
  FlatFile f = {.bytes = {v->p, 8 * v->n}};
  return (int64_t)load(&f, 8 * i, 8);
}

float flat_f32_at(const FlatVector *v, size_t i)
{
  int32_t bits = flat_i32_at(v, i);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
