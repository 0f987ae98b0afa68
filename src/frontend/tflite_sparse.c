/* tflite_sparse.c: sparse tensors, spread out.
 *
 * The dimensions of a sparse tensor are walked in an order of their own (traversal order), blocks last; each level is
 * dense (all indices, one after the other) or compressed: segments say which part of the list of indices belongs to
 * the position above.  A block dimension splits one of the tensor's.  The values stand in the order of the walk. */
#include "frontend/tflite_import.h"

enum { MAX_LEVELS = 2 * MAX_RANK };

typedef struct Level {
  bool compressed;
  int64_t size; /* of a dense one */
  int64_t nsegments, nindices;
  const int64_t *segment, *index;
} Level;

typedef struct Walk {
  Import *im;
  const TflTensor *t;
  int nlevels, nblocks;
  Level level[MAX_LEVELS];
  int64_t order[MAX_LEVELS], block_of[MAX_RANK], block_size[MAX_RANK];
  int64_t at[MAX_LEVELS]; /* index at each level, by the dimension that it walks */
  size_t element, nvalues, next;
  const char *values;
  char *out;
} Walk;

_Noreturn static void damaged(Walk *w, const char *what)
{
  raise(w->im->ctx, ERR_PARSE, NOWHERE, "tflite: sparse tensor '%s': %s", w->t->name, what);
}

/* A union of vectors of int32, uint16 and uint8. */
static const int64_t *numbers(Walk *w, const FlatTable *t, int slot, int64_t *n)
{
  static const int bytes[] = {0, 4, 2, 1};
  uint64_t kind = flat_uint(t, slot, 1, 0);
  if (kind < 1 || kind > 3) damaged(w, "its indices are of a kind not known");
  FlatTable box = flat_table(t, slot + 1, "the indices of a sparse tensor");
  FlatVector v = flat_vector(&box, 0, bytes[kind], "the indices of a sparse tensor");
  int64_t *out = arena_array(w->im->arena, int64_t, v.n + 1);
  for (size_t i = 0; i < v.n; i++) {
    const uint8_t *p = (const uint8_t *)v.p + i * (size_t)bytes[kind];
    out[i] = kind == 1 ? flat_i32_at(&v, i) : kind == 2 ? p[0] | p[1] << 8 : p[0];
  }
  *n = (int64_t)v.n;
  return out;
}

static void read_level(Walk *w, const FlatTable *t, Level *l)
{
  l->compressed = flat_int(t, 0, 1, 0) != 0;
  l->size = flat_int(t, 1, 4, 0);
  if (!l->compressed) {
    if (l->size < 1) damaged(w, "a dense dimension has no size");
    return;
  }
  l->segment = numbers(w, t, 2, &l->nsegments);
  l->index = numbers(w, t, 4, &l->nindices);
  /* in order, so that each index is walked once */
  for (int64_t i = 0; i < l->nsegments; i++)
    if (l->segment[i] < (i ? l->segment[i - 1] : 0) || l->segment[i] > l->nindices)
      damaged(w, "a segment leads outside the indices");
}

static void put(Walk *w)
{
  int64_t place = 0;
  for (int d = 0; d < w->t->ndim; d++) {
    int64_t i = w->at[d];
    for (int b = 0; b < w->nblocks; b++)
      if (w->block_of[b] == d) i = i * w->block_size[b] + w->at[w->t->ndim + b];
    if (i < 0 || i >= w->t->dim[d]) damaged(w, "an index is outside its shape");
    place = place * w->t->dim[d] + i;
  }
  if (w->next >= w->nvalues) damaged(w, "it has fewer values than its indices want");
  memcpy(w->out + (size_t)place * w->element, w->values + w->next++ * w->element, w->element);
}

static void walk(Walk *w, int k, int64_t above)
{
  if (k == w->nlevels) {
    put(w);
    return;
  }
  const Level *l = &w->level[k];
  int64_t begin = 0;
  int64_t end = l->size;
  if (l->compressed) {
    if (above < 0 || above + 1 >= l->nsegments) damaged(w, "it has too few segments");
    begin = l->segment[above];
    end = l->segment[above + 1];
  }
  for (int64_t i = begin; i < end; i++) {
    w->at[w->order[k]] = l->compressed ? l->index[i] : i;
    walk(w, k + 1, l->compressed ? i : above * l->size + i);
  }
}

static void read_walk(Walk *w)
{
  const FlatTable *s = &w->t->sparsity;
  FlatVector order = flat_vector(s, 0, 4, "the order of a sparse tensor");
  FlatVector blocks = flat_vector(s, 1, 4, "the blocks of a sparse tensor");
  FlatVector levels = flat_vector(s, 2, 4, "the dimensions of a sparse tensor");
  w->nlevels = (int)order.n;
  w->nblocks = (int)blocks.n;
  if (order.n > MAX_LEVELS || blocks.n > MAX_RANK || order.n != levels.n || order.n != (size_t)w->t->ndim + blocks.n)
    damaged(w, "its order, blocks and dimensions do not fit its rank");
  uint64_t seen = 0;
  for (int k = 0; k < w->nlevels; k++) {
    w->order[k] = flat_i32_at(&order, (size_t)k);
    if (w->order[k] < 0 || w->order[k] >= w->nlevels || seen >> w->order[k] & 1) damaged(w, "its order is no order");
    seen |= (uint64_t)1 << w->order[k];
    FlatTable t = flat_at(s, &levels, (size_t)k, "DimensionMetadata");
    read_level(w, &t, &w->level[k]);
    if (w->order[k] < w->t->ndim) continue;
    if (w->level[k].compressed) damaged(w, "a block dimension is compressed");
    w->block_size[w->order[k] - w->t->ndim] = w->level[k].size;
  }
  for (int b = 0; b < w->nblocks; b++) {
    w->block_of[b] = flat_i32_at(&blocks, (size_t)b);
    if (w->block_of[b] < 0 || w->block_of[b] >= w->t->ndim) damaged(w, "a block is of no dimension");
  }
}

const Node *tfl_sparse_constant(Import *im, const TflTensor *t, Bytes raw)
{
  Walk w = {.im = im, .t = t, .element = (size_t)dtype_bytes(t->dtype), .values = raw.p};
  if (dtype_is_string(t->dtype) || t->dtype.bits < 8) damaged(&w, "its elements are no whole bytes");
  read_walk(&w);
  ConstData d = {.dtype = t->dtype};
  size_t n = kit_const_shape(im, t->name, t->ndim, t->dim, &d);
  if (d.bytes > (size_t)1 << 30) damaged(&w, "spread out it has more than 2^30 bytes");
  size_t total = 1;
  for (int k = 0; k < w.nlevels; k++)
    if (!w.level[k].compressed) total = mem_size_mul(im->ctx, total, (size_t)w.level[k].size, t->name);
  if (total > n && n) damaged(&w, "its dense dimensions are larger than its shape");
  w.nvalues = raw.n / w.element;
  w.out = arena_alloc(im->m->arena, d.bytes + 1);
  if (n) walk(&w, 0, 0);
  d.data = w.out;
  return kit_const(im, &d);
}
