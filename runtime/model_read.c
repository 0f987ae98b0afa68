/* model_read.c: the bytes of a model become a program.
 *
 * One pass over the bytes with a cursor that never leaves them.  The first thing that is
 * wrong ends the reading with a sentence; what was read before it is dropped with the
 * model.  After success every index, count, offset and type in the program is within
 * its bounds, so the executors check only what depends on the values of a run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { MOST_ALIGN = 4096 };

typedef struct Reader {
  LatheRtModel *m;
  const unsigned char *start, *p, *end;
  LatheRtError *err;
  LatheRtCode code; /* the first failure; sticks */
} Reader;

/* ---- memory ------------------------------------------------------------------------ */

struct Chunk {
  Chunk *next;
  size_t used, size;
  _Alignas(16) char data[];
};
enum { CHUNK_BYTES = 1 << 16 };

void *rt_chunk_alloc(Chunk **list, size_t n, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes) || !rt_round_up(bytes, 16, &bytes)) return NULL;
  if (!*list || (*list)->size - (*list)->used < bytes) {
    size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    size_t total;
    if (__builtin_add_overflow(sizeof(Chunk), room, &total)) return NULL;
    Chunk *c = calloc(1, total);
    if (!c) return NULL;
    c->size = room;
    c->next = *list;
    *list = c;
  }
  void *p = (*list)->data + (*list)->used;
  (*list)->used += bytes;
  return p;
}

void rt_chunk_drop(Chunk **list)
{
  while (*list) {
    Chunk *next = (*list)->next;
    free(*list);
    *list = next;
  }
}

/* ---- the cursor ----------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void bad(Reader *r, const char *fmt, ...)
{
  if (r->code != LATHE_RT_OK) return;
  char why[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  r->code = rt_fail(r->err, LATHE_RT_ARGUMENT, "the model is broken at byte %zu of %zu: %s", (size_t)(r->p - r->start),
                    (size_t)(r->end - r->start), why);
}

static void no_memory(Reader *r)
{
  if (r->code == LATHE_RT_OK) r->code = rt_fail(r->err, LATHE_RT_MEMORY, "model: out of memory");
}

static bool ok(const Reader *r) { return r->code == LATHE_RT_OK; }
static size_t left(const Reader *r) { return (size_t)(r->end - r->p); }

static uint64_t number(Reader *r, unsigned bytes)
{
  if (!ok(r) || left(r) < bytes) {
    bad(r, "it ends too early");
    r->p = r->end;
    return 0;
  }
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)r->p[i] << (8 * i);
  r->p += bytes;
  return v;
}
static uint8_t u8(Reader *r) { return (uint8_t)number(r, 1); }
static uint32_t u32(Reader *r) { return (uint32_t)number(r, 4); }
static uint64_t u64(Reader *r) { return number(r, 8); }
static int64_t i64(Reader *r) { return (int64_t)number(r, 8); }
static double f64(Reader *r)
{
  uint64_t bits = number(r, 8);
  double f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* A count of items that take at least `least` bytes each. */
static int32_t count(Reader *r, size_t least, const char *what)
{
  uint32_t n = u32(r);
  if (ok(r) && (n > INT32_MAX || n > left(r) / least)) bad(r, "%" PRIu32 " %s do not fit into what is left", n, what);
  return ok(r) ? (int32_t)n : 0;
}

/* A number below `limit`. */
static int32_t index_of(Reader *r, int32_t limit, const char *what)
{
  uint32_t i = u32(r);
  if (ok(r) && (limit <= 0 || i >= (uint32_t)limit)) bad(r, "%s %" PRIu32 ", there are %d", what, i, limit);
  return ok(r) ? (int32_t)i : 0;
}

static void *array(Reader *r, int32_t n, size_t size)
{
  void *p = ok(r) ? rt_chunk_alloc(&r->m->chunks, n ? (size_t)n : 1, size) : NULL;
  if (!p) no_memory(r);
  return p;
}

static const char *string(Reader *r)
{
  int32_t n = count(r, 1, "letters");
  char *s = array(r, n + 1, 1);
  if (!s || !ok(r)) return "";
  if (n && memchr(r->p, 0, (size_t)n)) bad(r, "a name with a zero in it");
  memcpy(s, r->p, (size_t)n);
  r->p += n;
  return s;
}

static LatheRtDType dtype(Reader *r)
{
  LatheRtDType t = {u8(r), u8(r), 0};
  t.lanes = (uint16_t)number(r, 2);
  /* codes of lathe_rt.h */
  bool known = (t.code <= 14 || t.code == 17 || (t.code == LATHE_RT_STRING && t.bits == 64)) && t.bits <= 64 &&
               t.bits > 0 && !(t.bits & (t.bits - 1));
  if (ok(r) && (!known || t.lanes != 1)) bad(r, "dtype (%u, %u, %u)", t.code, t.bits, t.lanes);
  return t;
}

/* Dimensions with the least value that one may have. */
static const int64_t *shape(Reader *r, int32_t *ndim)
{
  *ndim = count(r, 8, "dimensions");
  if (*ndim > LATHE_RT_MAX_RANK) bad(r, "rank %d, at most %d are known", *ndim, LATHE_RT_MAX_RANK);
  int64_t *dim = array(r, *ndim, sizeof *dim);
  for (int32_t d = 0; ok(r) && d < *ndim; d++) dim[d] = i64(r);
  return dim;
}

/* ---- tables ---------------------------------------------------------------------------- */

static void read_device(Reader *r, int32_t i)
{
  ModelDevice *d = &r->m->device[i];
  d->device.type = (int32_t)u32(r);
  d->device.id = (int32_t)u32(r);
  d->align = u32(r);
  d->target = string(r);
  if (!ok(r)) return;
  if (i == 0 && d->device.type != LATHE_RT_CPU) bad(r, "its first device is not the host's CPU");
  if (d->align < 1 || d->align > MOST_ALIGN || d->align & (d->align - 1))
    bad(r, "device %d wants an alignment of %zu bytes", i, d->align);
  for (int32_t k = 0; k < i; k++)
    if (rt_same_device(r->m->device[k].device, d->device)) bad(r, "devices %d and %d are the same", k, i);
  if (!ok(r) || r->m->look_only) return;
  LatheRtError why;
  LatheRtCode code = rt_device_find(d->device, &d->api, &why);
  if (code != LATHE_RT_OK) r->code = rt_fail(r->err, code, "the model: %.400s", why.text);
}

static const void *blob(Reader *r, const LatheRtModelData *data, size_t *n)
{
  uint64_t offset = u64(r);
  uint64_t bytes = u64(r);
  *n = (size_t)bytes;
  if (!ok(r) || !bytes) return "";
  if (!data->weights || offset > data->weights_bytes || bytes > data->weights_bytes - offset || offset % MODEL_ALIGN) {
    bad(r, "%" PRIu64 " bytes at %" PRIu64 " leave the %" PRIu64 " bytes of the file", bytes, offset,
        data->weights_bytes);
    return "";
  }
  return (const char *)data->weights + offset;
}

/* The first variant whose code runs here. */
static void read_module(Reader *r, int32_t i, const LatheRtModelData *data)
{
  const char *kind = string(r);
  const char *name = string(r);
  int32_t n = count(r, 28, "variants");
  LatheRtError why = {"it has none"};
  bool taken = false;
  for (int32_t k = 0; ok(r) && k < n; k++) {
    const char *arch = string(r);
    const char *features = string(r);
    uint32_t library = u32(r);
    size_t bytes = 0;
    const void *at = blob(r, data, &bytes);
    if (!ok(r) || taken || (!r->m->look_only && rt_module_fits(arch, features, &why) != LATHE_RT_OK)) continue;
    taken = true;
    r->code = rt_model_module(r->m, i, kind, name, library, data, at, bytes, r->err);
  }
  if (ok(r) && !taken)
    r->code = rt_fail(r->err, LATHE_RT_UNSUPPORTED, "no variant of the model's code runs here: %.400s", why.text);
}

/* An image is taken for its device if it has none yet and the architecture is its own. */
static void read_image(Reader *r, const LatheRtModelData *data)
{
  ModelDevice *d = &r->m->device[index_of(r, r->m->ndevice, "device")];
  const char *arch = string(r);
  size_t n = 0;
  const void *bytes = blob(r, data, &n);
  if (!ok(r) || r->m->look_only || d->image || (*arch && strcmp(arch, d->api->arch) != 0)) return;
  LatheRtError why = {"it runs no code"};
  LatheRtCode code = LATHE_RT_UNSUPPORTED;
  if (d->api->image_load) code = d->api->image_load(d->api->user, d->device.id, bytes, n, &d->image, &why);
  if (code == LATHE_RT_OK) return;
  d->image = NULL;
  r->code = rt_device_failed(d->device, code, "loaded an image", why.text, r->err);
}

static void read_kernel(Reader *r, int32_t i)
{
  LatheRtModel *m = r->m;
  ModelKernel *k = &m->kernel[i];
  const char *name = string(r);
  int32_t module = index_of(r, m->nmodule, "module");
  k->device = index_of(r, m->ndevice, "device");
  k->plan = string(r);
  k->trace = string(r);
  if (!ok(r)) return;
  LatheRtError why;
  LatheRtCode code = lathe_rt_module_func(m->module[module], name, &k->func, &why);
  if (code == LATHE_RT_MEMORY) no_memory(r);
  if (code != LATHE_RT_OK) {
    bad(r, "its code has no kernel '%.100s'", name);
    return;
  }
  k->info = k->func->info;
  k->ndims = k->func->ndims;
  int32_t slots = k->info->nargs + k->info->nsizes;
  if (slots > m->max_args) m->max_args = slots;
  if (k->ndims + 2 > m->max_dims) m->max_dims = k->ndims + 2;
}

static void read_const(Reader *r, int32_t i, const LatheRtModelData *data)
{
  ModelConst *c = &r->m->constant[i];
  c->dtype = dtype(r);
  c->shape = shape(r, &c->ndim);
  c->device = index_of(r, r->m->ndevice, "device");
  c->place = u8(r);
  c->offset = u64(r);
  if (ok(r) && c->place > CONST_PREPARED) bad(r, "constant %d is of kind %u", i, c->place);
  if (!ok(r)) return;
  LatheRtTensor t = {.ndim = c->ndim, .dtype = c->dtype, .shape = (int64_t *)c->shape};
  LatheRtError why;
  if (lathe_rt_tensor_bytes(&t, &c->bytes, &why) != LATHE_RT_OK) {
    bad(r, "constant %d: %.200s", i, why.text);
    return;
  }
  bool stored = c->place == CONST_STORED;
  uint64_t room = stored ? data->weights_bytes : r->m->prepared_bytes;
  bool inside = c->offset <= room && c->bytes <= room - c->offset;
  if (!(stored && data->consts) && !inside) {
    bad(r, "constant %d of %zu bytes at %" PRIu64 " leaves the %" PRIu64 " bytes of weights", i, c->bytes, c->offset,
        room);
    return;
  }
  if (c->dtype.code == LATHE_RT_STRING && (!stored || r->m->device[c->device].device.type != LATHE_RT_CPU))
    bad(r, "constant %d has strings, which are on the host and as they are", i);
  size_t elem = rt_dtype_bytes(c->dtype);
  if (!stored) {
    if (c->offset % elem) bad(r, "constant %d is not aligned", i);
    return;
  }
  c->stored = c->data = data->consts ? data->consts[i] : (const char *)data->weights + c->offset;
  if (c->bytes && (!c->data || (uintptr_t)c->data % elem)) bad(r, "constant %d is not aligned", i);
}

static void read_term(Reader *r, ModelTerm *t)
{
  t->kind = u8(r);
  if (ok(r) && t->kind > WORK_DONE) bad(r, "operations of kind %u", t->kind);
  t->coefficient = f64(r);
  t->n = count(r, 9, "dimensions");
  t->factor = array(r, t->n, sizeof *t->factor);
  for (int32_t i = 0; ok(r) && i < t->n; i++) {
    ModelFactor *f = &t->factor[i];
    f->tensor = index_of(r, INT32_MAX, "tensor");
    f->dim = index_of(r, INT32_MAX, "dimension");
    f->power = (int8_t)u8(r);
  }
}

static void read_node(Reader *r, LatheRtNode *n, ModelWork *work)
{
  n->name = string(r);
  n->source = string(r);
  n->impl = string(r);
  n->flops = f64(r);
  n->flops_done = f64(r);
  n->bytes = f64(r);
  work->n = count(r, 13, "terms");
  work->term = array(r, work->n, sizeof *work->term);
  for (int32_t i = 0; ok(r) && i < work->n; i++) read_term(r, &work->term[i]);
}

/* dims: as written, with symbols; the port shows -1 for them. */
static void read_port(Reader *r, LatheRtPort *p, uint8_t *kind, int32_t *device, const int64_t **dims)
{
  p->name = string(r);
  p->type = string(r);
  *kind = u8(r);
  *device = index_of(r, r->m->ndevice, "device");
  p->dtype = dtype(r);
  *dims = shape(r, &p->ndim);
  if (ok(r) && *kind > PORT_OBJECT) bad(r, "port '%.60s' is of kind %u", p->name, *kind);
  int64_t *shown = array(r, p->ndim, sizeof *shown);
  for (int32_t d = 0; ok(r) && d < p->ndim; d++) {
    int64_t dim = (*dims)[d];
    if (dim < 0 && dim != DIM_UNKNOWN && -1 - dim >= r->m->nsymbol) bad(r, "port '%.60s': size %" PRId64, p->name, dim);
    shown[d] = dim < 0 ? -1 : dim;
  }
  p->shape = shown;
  p->kind = *kind;
  if (*kind != PORT_TENSOR) p->ndim = -1;
  if (ok(r) && *kind != PORT_TENSOR && *device) bad(r, "port '%.60s' is no tensor and not on the host", p->name);
  if (ok(r)) p->device = r->m->device[*device].device;
}

static LatheRtPort *read_ports(Reader *r, int32_t *n, const uint8_t **kinds, const int32_t **devices,
                               const int64_t ***dims)
{
  *n = count(r, 21, "ports");
  LatheRtPort *port = array(r, *n, sizeof *port);
  uint8_t *kind = array(r, *n, 1);
  int32_t *device = array(r, *n, sizeof *device);
  const int64_t **dim = array(r, *n, sizeof *dim);
  for (int32_t i = 0; ok(r) && i < *n; i++) read_port(r, &port[i], &kind[i], &device[i], &dim[i]);
  *kinds = kind;
  *devices = device;
  *dims = dim;
  return port;
}

/* Ascending, so that equal strings have one number. */
static void read_strings(Reader *r)
{
  LatheRtModel *m = r->m;
  m->nstring = count(r, 5, "strings");
  m->string = array(r, m->nstring, sizeof *m->string);
  for (int32_t i = 0; ok(r) && i < m->nstring; i++) {
    Text *t = &m->string[i];
    t->n = (size_t)count(r, 1, "letters");
    t->s = (const char *)r->p;
    if (ok(r) && t->n >= left(r)) bad(r, "string %d has no end", i);
    if (!ok(r)) return;
    r->p += t->n;
    if (u8(r) || (i && rt_text_compare(t - 1, t->s, t->n) >= 0)) bad(r, "string %d has no end or is out of order", i);
  }
  for (int32_t i = 0; ok(r) && i < m->nconst; i++) {
    const ModelConst *c = &m->constant[i];
    for (size_t k = 0; c->data && c->dtype.code == LATHE_RT_STRING && k < c->bytes / 8; k++)
      if (((const uint64_t *)c->data)[k] >= (uint64_t)m->nstring) {
        bad(r, "constant %d speaks of string %" PRIu64 ", there are %d", i, ((const uint64_t *)c->data)[k], m->nstring);
        return;
      }
  }
}

/* ---- expressions --------------------------------------------------------------------------- */

/* What the stack holds, one letter a value. */
typedef struct Stack {
  int n;
  char kind[MODEL_MAX_STACK];
} Stack;

static void read_step(Reader *r, const ModelFunc *f, Stack *stack, ExprStep *s)
{
  s->op = u8(r);
  if (ok(r) && s->op >= XO_COUNT) bad(r, "expression step %u", s->op);
  if (!ok(r)) return;
  char gives = rt_expr_ops[s->op].gives;
  if (s->op == XO_INT) s->value.i = i64(r);
  if (s->op == XO_FLOAT) s->value.f = f64(r);
  if (s->op == XO_SCALAR) {
    s->a = index_of(r, f->nscalar, "scalar");
    gives = ok(r) && f->scalar_kind[s->a] == SCALAR_FLOAT ? 'F' : 'I';
  }
  if (s->op == XO_DIM || s->op == XO_ELEM || s->op == XO_ELEM_FLOAT) {
    s->a = index_of(r, f->nreg, "register");
    s->b = index_of(r, s->op == XO_DIM ? LATHE_RT_MAX_RANK : INT32_MAX, "element");
  }
  const char *takes = rt_expr_ops[s->op].takes;
  int n = (int)strlen(takes);
  if (stack->n < n || (n && memcmp(stack->kind + stack->n - n, takes, (size_t)n) != 0))
    bad(r, "an expression whose step %u finds the wrong values", s->op);
  if (stack->n - n + 1 > MODEL_MAX_STACK) bad(r, "an expression needs more than %d values at once", MODEL_MAX_STACK);
  if (!ok(r)) return;
  stack->n -= n;
  stack->kind[stack->n++] = gives;
}

static void read_expr(Reader *r, const ModelFunc *f, char kind, ModelExpr *e)
{
  e->n = count(r, 1, "steps");
  ExprStep *step = array(r, e->n, sizeof *step);
  e->step = step;
  Stack stack = {0};
  for (int32_t i = 0; ok(r) && i < e->n; i++) read_step(r, f, &stack, &step[i]);
  if (ok(r) && (stack.n != 1 || stack.kind[0] != kind)) bad(r, "an expression does not give one value of its kind");
}

static void read_dims(Reader *r, const ModelFunc *f, Ins *ins)
{
  ins->nexpr = count(r, 4, "dimensions");
  if (ins->nexpr > LATHE_RT_MAX_RANK) bad(r, "rank %d, at most %d are known", ins->nexpr, LATHE_RT_MAX_RANK);
  ModelExpr *e = array(r, ins->nexpr, sizeof *e);
  ins->expr = e;
  for (int32_t i = 0; ok(r) && i < ins->nexpr; i++) read_expr(r, f, 'I', &e[i]);
}

static void read_one_expr(Reader *r, const ModelFunc *f, char kind, Ins *ins)
{
  ModelExpr *e = array(r, 1, sizeof *e);
  ins->expr = e;
  ins->nexpr = 1;
  if (ok(r)) read_expr(r, f, kind, e);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static int32_t reg(Reader *r, const ModelFunc *f) { return index_of(r, f->nreg, "register"); }

static const int32_t *registers(Reader *r, const ModelFunc *f, int32_t *n)
{
  *n = count(r, 4, "registers");
  int32_t *list = array(r, *n, sizeof *list);
  for (int32_t i = 0; ok(r) && i < *n; i++) list[i] = reg(r, f);
  return list;
}

static uint64_t place(Reader *r, int32_t device)
{
  uint64_t at = u64(r);
  if (ok(r) && at != PLACE_DYNAMIC && at % r->m->device[device].align)
    bad(r, "storage at %" PRIu64 ", which is not aligned", at);
  return at;
}

static void read_kernel_call(Reader *r, const ModelFunc *f, Ins *ins)
{
  ins->index = index_of(r, r->m->nkernel, "kernel");
  ins->node = index_of(r, r->m->nnode, "node");
  ins->narg = count(r, 5, "arguments");
  KernelArgRef *arg = array(r, ins->narg, sizeof *arg);
  ins->karg = arg;
  if (!ok(r)) return;
  const LatheRtFuncInfo *info = r->m->kernel[ins->index].info;
  if (ins->narg != info->nargs) bad(r, "kernel '%s' takes %d arguments, gets %d", info->name, info->nargs, ins->narg);
  for (int32_t i = 0; ok(r) && i < ins->narg; i++) {
    const LatheRtArgInfo *want = &info->args[i];
    arg[i].kind = u8(r);
    bool is_scalar = want->ndim < 0;
    if (ok(r) && arg[i].kind != (is_scalar ? KARG_SCALAR : KARG_REGISTER))
      bad(r, "kernel '%s': argument %d is of the wrong kind", info->name, i);
    arg[i].index = is_scalar ? index_of(r, f->nscalar, "scalar") : reg(r, f);
    bool is_float = want->dtype.code == 2 || want->dtype.code == 4;
    if (ok(r) && is_scalar && (f->scalar_kind[arg[i].index] == SCALAR_FLOAT) != is_float)
      bad(r, "kernel '%s': argument %d is a scalar of the wrong kind", info->name, i);
  }
}

static void read_call(Reader *r, const ModelFunc *f, bool tail, Ins *ins)
{
  ins->index = index_of(r, r->m->nfunc, "function");
  ins->arg = registers(r, f, &ins->narg);
  if (!tail) ins->ret = registers(r, f, &ins->nret);
}

/* The closure, its arguments and, unless it takes this function's place, its one result. */
static void read_apply(Reader *r, const ModelFunc *f, Ins *ins)
{
  ins->reg = reg(r, f);
  ins->arg = registers(r, f, &ins->narg);
  if (ins->op == MO_APPLY) ins->ret = registers(r, f, &ins->nret);
  if (ok(r) && ins->op == MO_APPLY && ins->nret != 1)
    bad(r, "a call of a function value has %d results, not 1", ins->nret);
}

/* CLOSURE, DATA, FIELD, MATCH: a register, a number that says what, and what it is about. */
static void read_value(Reader *r, const ModelFunc *f, Ins *ins)
{
  ins->reg = reg(r, f);
  if (ins->op == MO_CLOSURE) ins->index = index_of(r, r->m->nfunc, "function");
  if (ins->op == MO_FIELD) ins->source = reg(r, f);
  if (ins->op == MO_DATA || ins->op == MO_MATCH) ins->tag = index_of(r, INT32_MAX, "tag");
  if (ins->op == MO_CLOSURE || ins->op == MO_DATA) ins->arg = registers(r, f, &ins->narg);
  if (ins->op == MO_FIELD) ins->index = index_of(r, INT32_MAX, "field");
  if (ins->op == MO_MATCH) ins->index = (int32_t)u32(r);
}

static void read_host(Reader *r, const ModelFunc *f, Ins *ins)
{
  static const struct {
    int attrs, args, rets;
  } ops[HO_COUNT] = {
#define X(id, attrs, args, rets) [id] = {attrs, args, rets},
    MODEL_HOST_OPS(X)
#undef X
  };
  ins->index = index_of(r, HO_COUNT, "host operation");
  ins->node = index_of(r, r->m->nnode, "node");
  ins->nattr = count(r, 8, "attributes");
  int64_t *attr = array(r, ins->nattr, sizeof *attr);
  ins->attr = attr;
  for (int32_t i = 0; ok(r) && i < ins->nattr; i++) attr[i] = i64(r);
  ins->arg = registers(r, f, &ins->narg);
  ins->ret = registers(r, f, &ins->nret);
  if (!ok(r)) return;
  int want = ops[ins->index].args;
  if (ins->nattr != ops[ins->index].attrs || (want >= 0 && ins->narg != want) || ins->nret != ops[ins->index].rets)
    bad(r, "host operation %d has the wrong operands", ins->index);
  bool split = ins->index == HO_SPLIT;
  bool has = ins->index == HO_HAS;
  if (ok(r) &&
      ((split && ins->narg != 1 && ins->narg != 2) || (has && (ins->narg > 1 || (ins->attr[0] && ins->narg == 0)))))
    bad(r, "host operation %d has the wrong operands", ins->index);
}

static void read_packed(Reader *r, const ModelFunc *f, Ins *ins)
{
  ins->index = index_of(r, r->m->npacked, "packed function");
  ins->node = index_of(r, r->m->nnode, "node");
  ins->narg = count(r, 5, "arguments");
  KernelArgRef *arg = array(r, ins->narg, sizeof *arg);
  const char **text = array(r, ins->narg, sizeof *text);
  ins->karg = arg;
  ins->string = text;
  for (int32_t i = 0; ok(r) && i < ins->narg; i++) {
    arg[i].kind = u8(r);
    if (ok(r) && arg[i].kind > PARG_TEXT) bad(r, "an argument of a packed function is of kind %d", arg[i].kind);
    if (arg[i].kind == PARG_TEXT) text[i] = string(r);
    else arg[i].index = arg[i].kind == PARG_SCALAR ? index_of(r, f->nscalar, "scalar") : reg(r, f);
  }
  ins->ret = registers(r, f, &ins->nret);
  if (ok(r) && ins->nret > 1) bad(r, "a packed function has %d results, at most 1", ins->nret);
}

static void read_operands(Reader *r, const ModelFunc *f, Ins *ins)
{
  switch ((ModelOp)ins->op) {
  case MO_CONST:
    ins->reg = reg(r, f);
    ins->index = index_of(r, r->m->nconst, "constant");
    break;
  case MO_SCALAR:
    ins->reg = index_of(r, f->nscalar, "scalar");
    if (ok(r)) read_one_expr(r, f, f->scalar_kind[ins->reg] == SCALAR_FLOAT ? 'F' : 'I', ins);
    break;
  case MO_ALLOC:
    ins->reg = reg(r, f);
    ins->device = index_of(r, r->m->ndevice, "device");
    ins->dtype = dtype(r);
    read_dims(r, f, ins);
    ins->place = place(r, ins->device);
    break;
  case MO_VIEW:
    ins->reg = reg(r, f);
    ins->source = reg(r, f);
    ins->dtype = dtype(r);
    read_dims(r, f, ins);
    break;
  case MO_MOVE:
    ins->reg = reg(r, f);
    ins->source = reg(r, f);
    break;
  case MO_COPY:
    ins->reg = reg(r, f);
    ins->source = reg(r, f);
    ins->device = index_of(r, r->m->ndevice, "device");
    ins->place = place(r, ins->device);
    break;
  case MO_FREE: ins->reg = reg(r, f); break;
  case MO_KERNEL: read_kernel_call(r, f, ins); break;
  case MO_JUMP: ins->index = (int32_t)u32(r); break;
  case MO_BRANCH:
    ins->reg = reg(r, f);
    ins->index = (int32_t)u32(r);
    break;
  case MO_CALL:
  case MO_TAIL: read_call(r, f, ins->op == MO_TAIL, ins); break;
  case MO_RETURN: ins->arg = registers(r, f, &ins->narg); break;
  case MO_HOST: read_host(r, f, ins); break;
  case MO_CHECK:
    read_one_expr(r, f, 'I', ins);
    ins->text = string(r);
    break;
  case MO_APPLY:
  case MO_APPLY_TAIL: read_apply(r, f, ins); break;
  case MO_CLOSURE:
  case MO_DATA:
  case MO_FIELD:
  case MO_MATCH: read_value(r, f, ins); break;
  case MO_FAIL: ins->text = string(r); break;
  case MO_PACKED: read_packed(r, f, ins); break;
  case MO_DONE: ins->index = index_of(r, r->m->nconst, "constant"); break;
  case MO_COUNT: break;
  }
}

/* What a static program may hold. */
static bool is_static_ins(const Ins *ins)
{
  if (ins->op == MO_KERNEL) {
    for (int32_t i = 0; i < ins->narg; i++)
      if (ins->karg[i].kind != KARG_REGISTER) return false;
    return true;
  }
  if (ins->op == MO_ALLOC || ins->op == MO_VIEW)
    for (int32_t d = 0; d < ins->nexpr; d++)
      if (ins->expr[d].n != 1 || ins->expr[d].step[0].op != XO_INT) return false;
  if (ins->op == MO_ALLOC || ins->op == MO_COPY) return ins->place != PLACE_DYNAMIC;
  return ins->op == MO_CONST || ins->op == MO_VIEW || ins->op == MO_MOVE || ins->op == MO_RETURN;
}

/* Calls fit the functions they call; what a closure is called with is known only then. */
static void check_call(Reader *r, const ModelFunc *f, const Ins *ins)
{
  const ModelFunc *to = &r->m->func[ins->index];
  if (ins->op == MO_CALL || ins->op == MO_TAIL) {
    int32_t nret = ins->op == MO_TAIL ? f->nret : ins->nret;
    if (ins->narg != to->nparam || nret != to->nret)
      bad(r, "a call of function '%.60s' has %d arguments and %d results, wants %d and %d", to->name, ins->narg, nret,
          to->nparam, to->nret);
  }
  if (ins->op == MO_CLOSURE && (ins->narg > to->nparam || to->nret != 1))
    bad(r, "function '%.60s' of %d parameters and %d results is a value with %d arguments", to->name, to->nparam,
        to->nret, ins->narg);
  if (ins->op == MO_APPLY_TAIL && f->nret != 1)
    bad(r, "function '%.60s' of %d results ends in a call of a function value", f->name, f->nret);
}

static bool leaves(uint8_t op) { return op == MO_RETURN || op == MO_TAIL || op == MO_APPLY_TAIL || op == MO_FAIL; }

/* What needs the whole function, or all of them: jumps go forward, calls fit. */
static void check_flow(Reader *r, const ModelFunc *f, bool is_static)
{
  for (int32_t i = 0; ok(r) && i < f->nins; i++) {
    const Ins *ins = &f->ins[i];
    bool jumps = ins->op == MO_JUMP || ins->op == MO_BRANCH || ins->op == MO_MATCH;
    if (jumps && (ins->index <= i || ins->index >= f->nins))
      bad(r, "function '%.60s' jumps from instruction %d to %d of %d", f->name, i, ins->index, f->nins);
    if (ins->op == MO_CALL || ins->op == MO_TAIL || ins->op == MO_CLOSURE || ins->op == MO_APPLY_TAIL)
      check_call(r, f, ins);
    if (ins->op == MO_RETURN && ins->narg != f->nret)
      bad(r, "function '%.60s' returns %d values, wants %d", f->name, ins->narg, f->nret);
    if (is_static && !is_static_ins(ins)) bad(r, "a static program has instruction %u", ins->op);
    if (is_static && ins->op == MO_RETURN && i != f->nins - 1) bad(r, "a static program returns early");
  }
  if (ok(r) && (f->nins == 0 || !leaves(f->ins[f->nins - 1].op)))
    bad(r, "function '%.60s' does not end in a return", f->name);
}

static void read_function(Reader *r, ModelFunc *f)
{
  f->name = string(r);
  /* A register takes no bytes of the file, but each is defined by an instruction or is a parameter. */
  f->nreg = (int32_t)u32(r);
  f->nparam = (int32_t)u32(r);
  f->nret = (int32_t)u32(r);
  if (ok(r) && (f->nreg < 0 || f->nparam < 0 || f->nparam > f->nreg || f->nret < 0 ||
                (size_t)f->nreg > left(r) + (size_t)f->nparam))
    bad(r, "function '%.60s' has %d registers, %d parameters, %d results", f->name, f->nreg, f->nparam, f->nret);
  f->nscalar = count(r, 1, "scalars");
  uint8_t *kind = array(r, f->nscalar, 1);
  f->scalar_kind = kind;
  for (int32_t i = 0; ok(r) && i < f->nscalar; i++) {
    kind[i] = u8(r);
    if (kind[i] > SCALAR_FLOAT) bad(r, "scalar %d is of kind %u", i, kind[i]);
  }
  f->nins = count(r, 1, "instructions");
  Ins *ins = array(r, f->nins, sizeof *ins);
  f->ins = ins;
  for (int32_t i = 0; ok(r) && i < f->nins; i++) {
    ins[i].op = u8(r);
    if (ok(r) && ins[i].op >= MO_COUNT) bad(r, "instruction %u", ins[i].op);
    if (ok(r)) read_operands(r, f, &ins[i]);
  }
}

static void read_functions(Reader *r)
{
  LatheRtModel *m = r->m;
  m->nfunc = count(r, 24, "functions");
  m->func = array(r, m->nfunc, sizeof *m->func);
  for (int32_t i = 0; ok(r) && i < m->nfunc; i++) read_function(r, &m->func[i]);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Does a function that can be reached from this one call others?  Any call of any function counts. */
static bool has_calls(const ModelFunc *f)
{
  for (int32_t i = 0; i < f->nins; i++)
    if (f->ins[i].op == MO_CALL || f->ins[i].op == MO_TAIL || f->ins[i].op == MO_APPLY || f->ins[i].op == MO_APPLY_TAIL)
      return true;
  return false;
}

static void read_entry(Reader *r, ModelEntry *e)
{
  LatheRtModel *m = r->m;
  LatheRtEntry *about = &e->about;
  const int64_t **output_dim;
  about->name = string(r);
  e->func = index_of(r, m->nfunc, "function");
  e->is_static = u32(r) & ENTRY_STATIC;
  about->inputs = read_ports(r, &about->ninputs, &e->input_kind, &e->input_device, &e->input_dim);
  about->outputs = read_ports(r, &about->noutputs, &e->output_kind, &e->output_device, &output_dim);
  int32_t n = count(r, 8, "sizes of storage");
  uint64_t *bytes = array(r, n, sizeof *bytes);
  e->storage_bytes = bytes;
  if (ok(r) && n != m->ndevice)
    bad(r, "entry '%.60s' has storage on %d devices, there are %d", about->name, n, m->ndevice);
  for (int32_t i = 0; ok(r) && i < n; i++) {
    bytes[i] = u64(r);
    if (bytes[i] > PTRDIFF_MAX) bad(r, "it wants %" PRIu64 " bytes of storage", bytes[i]);
    if (ok(r) && __builtin_add_overflow(about->storage_bytes, bytes[i], &about->storage_bytes))
      bad(r, "it wants more storage than memory can have");
  }
  about->storage_bound = u64(r);
  if (!ok(r)) return;
  const ModelFunc *f = &m->func[e->func];
  about->is_dynamic = e->is_static ? 0 : has_calls(f) ? 2 : 1;
  if (f->nparam != about->ninputs || f->nret != about->noutputs)
    bad(r, "the function of entry '%.60s' does not fit its inputs and outputs", about->name);
}

static void read_entries(Reader *r)
{
  LatheRtModel *m = r->m;
  m->nentry = count(r, 28, "entries");
  m->entry = array(r, m->nentry, sizeof *m->entry);
  bool *is_static = array(r, m->nfunc, sizeof *is_static);
  for (int32_t i = 0; ok(r) && i < m->nentry; i++) {
    ModelEntry *e = &m->entry[i];
    read_entry(r, e);
    for (int32_t k = 0; ok(r) && k < i; k++)
      if (!strcmp(m->entry[k].about.name, e->about.name)) bad(r, "two entries are called '%.60s'", e->about.name);
    for (int32_t k = 0; ok(r) && k < i; k++)
      if (m->entry[k].func == e->func && (e->is_static || m->entry[k].is_static))
        bad(r, "entries '%.60s' and '%.60s' share a static program", m->entry[k].about.name, e->about.name);
    if (ok(r)) is_static[e->func] |= e->is_static;
  }
  if (ok(r) && m->nentry == 0) bad(r, "it has no entry");
  uint32_t prepare = u32(r);
  m->prepare = prepare == PREPARE_NONE ? -1 : (int32_t)prepare;
  if (ok(r) && prepare != PREPARE_NONE &&
      (prepare >= (uint32_t)m->nfunc || m->func[prepare].nparam || m->func[prepare].nret || is_static[prepare]))
    bad(r, "its weights are prepared by function %" PRIu32, prepare);
  for (int32_t i = 0; ok(r) && i < m->nfunc; i++) check_flow(r, &m->func[i], is_static[i]);
  for (int32_t i = 0; ok(r) && m->prepare < 0 && i < m->nconst; i++)
    if (m->constant[i].place == CONST_PREPARED) bad(r, "constant %d is prepared by nobody", i);
}

/* Nodes that runs see: those of `prepare` stand behind them. */
static int32_t nodes_of_runs(const LatheRtModel *m)
{
  int32_t n = 0;
  for (int32_t i = 0; i < m->nfunc; i++)
    for (int32_t k = 0; i != m->prepare && k < m->func[i].nins; k++)
      if (m->func[i].ins[k].node >= n) n = m->func[i].ins[k].node + 1;
  return m->prepare < 0 || n > m->nnode ? m->nnode : n;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void read_head(Reader *r, const LatheRtModelData *data)
{
  LatheRtModel *m = r->m;
  if (left(r) < 16 || memcmp(r->p, MODEL_MAGIC, 8) != 0) {
    bad(r, "it has no mark");
    return;
  }
  r->p += 8;
  uint32_t version = u32(r);
  if (version != MODEL_VERSION) {
    r->code =
        rt_fail(r->err, LATHE_RT_UNSUPPORTED,
                "the model is of format %" PRIu32 ", this runtime reads %d; compile it again", version, MODEL_VERSION);
    return;
  }
  if (u32(r)) bad(r, "it has flags that mean nothing");
  m->target = string(r);
  m->weights_bytes = u64(r);
  m->prepared_bytes = u64(r);
  m->digest[0] = u64(r);
  m->digest[1] = u64(r);
  m->weights = data->weights;
  if (ok(r) && !data->consts && m->weights_bytes != data->weights_bytes)
    bad(r, "it wants %" PRIu64 " bytes of weights, the file has %" PRIu64, m->weights_bytes, data->weights_bytes);
  if (ok(r) && m->prepared_bytes > PTRDIFF_MAX) bad(r, "it prepares %" PRIu64 " bytes of weights", m->prepared_bytes);
}

static void read_code(Reader *r, const LatheRtModelData *data)
{
  LatheRtModel *m = r->m;
  int32_t n = count(r, 16, "devices");
  if (ok(r) && (n < 1 || n > MODEL_MAX_DEVICES)) bad(r, "%d devices, wants 1 to %d", n, MODEL_MAX_DEVICES);
  m->device = array(r, n, sizeof *m->device);
  for (int32_t i = 0; ok(r) && i < n; i++) {
    read_device(r, i);
    if (ok(r)) m->ndevice = i + 1;
  }
  m->nmodule = count(r, 12, "modules");
  m->module = array(r, m->nmodule, sizeof *m->module);
  for (int32_t i = 0; ok(r) && i < m->nmodule; i++) read_module(r, i, data);
  n = count(r, 24, "images");
  for (int32_t i = 0; ok(r) && i < n; i++) read_image(r, data);
  m->nkernel = count(r, 20, "kernels");
  m->kernel = array(r, m->nkernel, sizeof *m->kernel);
  for (int32_t i = 0; ok(r) && i < m->nkernel; i++) read_kernel(r, i);
}

LatheRtCode rt_model_read(LatheRtModel *m, const LatheRtModelData *data, LatheRtError *err)
{
  const unsigned char *start = data->program;
  Reader reader = {.m = m, .start = start, .p = start, .end = start + data->program_bytes, .err = err};
  Reader *r = &reader;
  m->prepare = -1;
  read_head(r, data);
  if (ok(r)) read_code(r, data);
  m->nconst = count(r, 21, "constants");
  m->constant = array(r, m->nconst, sizeof *m->constant);
  for (int32_t i = 0; ok(r) && i < m->nconst; i++) read_const(r, i, data);
  m->nsymbol = count(r, 4, "sizes");
  m->symbol = array(r, m->nsymbol, sizeof *m->symbol);
  for (int32_t i = 0; ok(r) && i < m->nsymbol; i++) m->symbol[i] = string(r);
  m->nnode = count(r, 40, "nodes");
  m->node = array(r, m->nnode, sizeof *m->node);
  m->work = array(r, m->nnode, sizeof *m->work);
  for (int32_t i = 0; ok(r) && i < m->nnode; i++) read_node(r, &m->node[i], &m->work[i]);
  read_strings(r);
  m->npacked = count(r, 4, "packed functions");
  m->packed = array(r, m->npacked, sizeof *m->packed);
  for (int32_t i = 0; ok(r) && i < m->npacked; i++) m->packed[i] = string(r);
  read_functions(r);
  if (ok(r)) read_entries(r);
  if (ok(r) && r->p != r->end) bad(r, "%zu bytes are left over", left(r));
  if (ok(r)) m->nrun = nodes_of_runs(m);
  return r->code;
}
