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
  if (n > INT32_MAX || n > left(r) / least) bad(r, "%" PRIu32 " %s do not fit into what is left", n, what);
  return ok(r) ? (int32_t)n : 0;
}

/* One of the first `limit` kinds of something. */
static uint8_t kind(Reader *r, unsigned limit, const char *what)
{
  uint8_t k = u8(r);
  if (k >= limit) bad(r, "%s of kind %u", what, k);
  return k;
}

/* A number below `limit`. */
static int32_t index_of(Reader *r, int32_t limit, const char *what)
{
  uint32_t i = u32(r);
  if (limit <= 0 || i >= (uint32_t)limit) bad(r, "%s %" PRIu32 ", there are %d", what, i, limit);
  return ok(r) ? (int32_t)i : 0;
}

/* Room for n items, all zero; NULL where that is not to be had or the reading has ended. */
static void *array(Reader *r, int32_t n, size_t size)
{
  void *p = ok(r) ? rt_chunk_alloc(&r->m->chunks, n ? (size_t)n : 1, size) : NULL;
  if (!p) no_memory(r);
  return p;
}

/* A count of items that take at least `least` bytes each, and room for them; n is 0 where there is none. */
static void *list(Reader *r, int32_t *n, size_t least, const char *what, size_t size)
{
  *n = count(r, least, what);
  void *p = array(r, *n, size);
  if (!p) *n = 0;
  return p;
}

static const char *string(Reader *r)
{
  int32_t n = count(r, 1, "letters");
  char *s = array(r, n + 1, 1);
  if (!s || !ok(r)) return "";
  memcpy(s, r->p, (size_t)n);
  if (strlen(s) != (size_t)n) bad(r, "a name with a zero in it");
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
  if (!known || t.lanes != 1) bad(r, "dtype (%u, %u, %u)", t.code, t.bits, t.lanes);
  return t;
}

static void check_rank(Reader *r, int32_t ndim)
{
  if (ndim > LATHE_RT_MAX_RANK) bad(r, "rank %d, at most %d are known", ndim, LATHE_RT_MAX_RANK);
}

static int64_t *numbers(Reader *r, int32_t *n, const char *what)
{
  int64_t *v = list(r, n, 8, what, sizeof *v);
  for (int32_t i = 0; i < *n; i++) v[i] = i64(r);
  return v;
}

static const int64_t *shape(Reader *r, int32_t *ndim)
{
  const int64_t *dim = numbers(r, ndim, "dimensions");
  check_rank(r, *ndim);
  return dim;
}

static const char **strings(Reader *r, int32_t *n, const char *what)
{
  const char **s = list(r, n, 4, what, sizeof *s);
  for (int32_t i = 0; i < *n; i++) s[i] = string(r);
  return s;
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
  if (d->align < 1 || d->align > RT_MOST_ALIGN || d->align & (d->align - 1))
    bad(r, "device %d wants an alignment of %zu bytes", i, d->align);
  for (int32_t k = 0; k < i; k++)
    if (rt_same_device(r->m->device[k].device, d->device)) bad(r, "devices %d and %d are the same", k, i);
  if (!ok(r) || r->m->look_only) return;
  r->code = rt_within(r->err, rt_device_find(d->device, &d->api, r->err), "the model: ");
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
  LatheRtError why;
  rt_fail(&why, LATHE_RT_OK, "it has none");
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
  LatheRtError why;
  LatheRtCode code = rt_fail(&why, LATHE_RT_UNSUPPORTED, "it runs no code");
  if (d->api->image_load) code = d->api->image_load(d->api->user, d->device.id, bytes, n, &d->image, &why);
  if (code != LATHE_RT_OK) d->image = NULL;
  r->code = rt_device_failed(d->device, code, "loaded an image", &why, r->err);
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
  LatheRtCode code = lathe_rt_module_func(m->module[module], name, &k->func, NULL);
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
  c->place = kind(r, CONST_PREPARED + 1, "a constant");
  c->offset = u64(r);
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
  t->kind = kind(r, WORK_DONE + 1, "operations");
  t->coefficient = f64(r);
  t->factor = list(r, &t->n, 9, "dimensions", sizeof *t->factor);
  for (int32_t i = 0; i < t->n; i++) {
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
  work->term = list(r, &work->n, 13, "terms", sizeof *work->term);
  for (int32_t i = 0; i < work->n; i++) read_term(r, &work->term[i]);
}

/* The port shows -1 for symbols. */
static void read_port(Reader *r, LatheRtPort *p, ModelPort *as)
{
  p->name = string(r);
  p->type = string(r);
  p->kind = kind(r, PORT_OBJECT + 1, "a port");
  as->device = index_of(r, r->m->ndevice, "device");
  p->dtype = dtype(r);
  as->dim = shape(r, &p->ndim);
  int64_t *shown = array(r, p->ndim, sizeof *shown);
  if (!ok(r)) return;
  for (int32_t d = 0; d < p->ndim; d++) {
    int64_t dim = as->dim[d];
    if (dim < 0 && dim != DIM_UNKNOWN && -1 - dim >= r->m->nsymbol) bad(r, "port '%.60s': size %" PRId64, p->name, dim);
    shown[d] = dim < 0 ? -1 : dim;
  }
  p->shape = shown;
  p->device = r->m->device[as->device].device;
  if (p->kind == PORT_TENSOR) return;
  p->ndim = -1;
  if (as->device) bad(r, "port '%.60s' is no tensor and not on the host", p->name);
}

static const LatheRtPort *read_ports(Reader *r, int32_t *n, const ModelPort **as)
{
  LatheRtPort *port = list(r, n, 21, "ports", sizeof *port);
  ModelPort *more = array(r, *n, sizeof *more);
  for (int32_t i = 0; ok(r) && i < *n; i++) read_port(r, &port[i], &more[i]);
  *as = more;
  return port;
}

/* Ascending, so that equal strings have one number. */
static void read_strings(Reader *r)
{
  LatheRtModel *m = r->m;
  m->string = list(r, &m->nstring, 5, "strings", sizeof *m->string);
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
  s->op = kind(r, XO_COUNT, "an expression step");
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

/* n expressions, each of a value of this kind. */
static void read_exprs(Reader *r, const ModelFunc *f, char gives, int32_t n, Ins *ins)
{
  ModelExpr *e = array(r, n, sizeof *e);
  ins->expr = e;
  ins->nexpr = n;
  for (int32_t i = 0; ok(r) && i < n; i++) {
    Stack stack = {0};
    ExprStep *step = list(r, &e[i].n, 1, "steps", sizeof *step);
    e[i].step = step;
    for (int32_t k = 0; k < e[i].n; k++) read_step(r, f, &stack, &step[k]);
    if (stack.n != 1 || stack.kind[0] != gives) bad(r, "an expression does not give one value of its kind");
  }
}

/* ---- instructions ---------------------------------------------------------------------------- */

static int32_t reg(Reader *r, const ModelFunc *f) { return index_of(r, f->nreg, "register"); }
static int32_t scalar(Reader *r, const ModelFunc *f) { return index_of(r, f->nscalar, "scalar"); }
static char kind_of(const ModelFunc *f, int32_t scalar) { return f->scalar_kind[scalar] == SCALAR_FLOAT ? 'F' : 'I'; }

static const int32_t *registers(Reader *r, const ModelFunc *f, int32_t *n)
{
  int32_t *v = list(r, n, 4, "registers", sizeof *v);
  for (int32_t i = 0; i < *n; i++) v[i] = reg(r, f);
  return v;
}

/* Arguments of a kernel or a packed function: registers, scalars or texts. */
static void read_args(Reader *r, const ModelFunc *f, uint8_t most, Ins *ins)
{
  KernelArgRef *arg = list(r, &ins->narg, 5, "arguments", sizeof *arg);
  const char **text = array(r, ins->narg, sizeof *text);
  ins->karg = arg;
  ins->string = text;
  for (int32_t i = 0; ok(r) && i < ins->narg; i++) {
    arg[i].kind = kind(r, most + 1, "an argument");
    if (arg[i].kind == PARG_TEXT) text[i] = string(r);
    else arg[i].index = arg[i].kind == PARG_SCALAR ? scalar(r, f) : reg(r, f);
  }
}

static void check_kernel_call(Reader *r, const ModelFunc *f, const Ins *ins)
{
  const LatheRtFuncInfo *info = r->m->kernel[ins->index].info;
  if (ins->narg != info->nargs) bad(r, "kernel '%s' takes %d arguments, gets %d", info->name, info->nargs, ins->narg);
  for (int32_t i = 0; ok(r) && i < ins->narg; i++) {
    const LatheRtArgInfo *want = &info->args[i];
    bool is_scalar = want->ndim < 0;
    bool is_float = want->dtype.code == 2 || want->dtype.code == 4;
    if (ins->karg[i].kind != (is_scalar ? KARG_SCALAR : KARG_REGISTER) ||
        (is_scalar && (kind_of(f, ins->karg[i].index) == 'F') != is_float))
      bad(r, "kernel '%s': argument %d is of the wrong kind", info->name, i);
  }
}

static void check_host_call(Reader *r, const Ins *ins)
{
  static const struct {
    int8_t attrs, args, rets;
  } ops[HO_COUNT] = {
#define X(id, attrs, args, rets) [id] = {attrs, args, rets},
    MODEL_HOST_OPS(X)
#undef X
  };
  int want = ops[ins->index].args;
  bool fits =
      ins->nattr == ops[ins->index].attrs && (want < 0 || ins->narg == want) && ins->nret == ops[ins->index].rets;
  if (ins->index == HO_SPLIT) fits &= ins->narg == 1 || ins->narg == 2;
  if (ins->index == HO_HAS) fits = fits && ins->narg <= 1 && (!ins->attr[0] || ins->narg);
  if (!fits) bad(r, "host operation %d has the wrong operands", ins->index);
}

/* What an instruction holds, a letter each:
 *   r register  s source  S scalar  d device  t dtype  x shape  p place  e expr of the scalar's kind  E of an int
 *   c const  k kernel  f function  h host operation  q packed function  i field  j target  g tag  n node
 *   a registers  o registers of results  K kernel arguments  Q packed arguments  A attributes  T str */
static const char operands[MO_COUNT][6] = {
  [MO_CONST] = "rc",    [MO_SCALAR] = "Se", [MO_ALLOC] = "rdtxp",   [MO_VIEW] = "rstx",  [MO_MOVE] = "rs",
  [MO_COPY] = "rsdp",   [MO_FREE] = "r",    [MO_KERNEL] = "knK",    [MO_JUMP] = "j",     [MO_BRANCH] = "rj",
  [MO_CALL] = "fao",    [MO_TAIL] = "fa",   [MO_RETURN] = "a",      [MO_HOST] = "hnAao", [MO_CHECK] = "ET",
  [MO_CLOSURE] = "rfa", [MO_APPLY] = "rao", [MO_APPLY_TAIL] = "ra", [MO_DATA] = "rga",   [MO_FIELD] = "rsi",
  [MO_MATCH] = "rgj",   [MO_FAIL] = "T",    [MO_PACKED] = "qnQo",   [MO_DONE] = "c",
};

static void read_operand(Reader *r, const ModelFunc *f, char what, Ins *ins)
{
  const LatheRtModel *m = r->m;
  int32_t n;
  switch (what) {
  case 'r': ins->reg = reg(r, f); break;
  case 's': ins->source = reg(r, f); break;
  case 'S': ins->reg = scalar(r, f); break;
  case 'd': ins->device = index_of(r, m->ndevice, "device"); break;
  case 't': ins->dtype = dtype(r); break;
  case 'x':
    n = count(r, 4, "dimensions");
    check_rank(r, n);
    read_exprs(r, f, 'I', n, ins);
    break;
  case 'p':
    ins->place = u64(r);
    if (ok(r) && ins->place != PLACE_DYNAMIC && ins->place % m->device[ins->device].align)
      bad(r, "storage at %" PRIu64 ", which is not aligned", ins->place);
    break;
  case 'e':
    if (ok(r)) read_exprs(r, f, kind_of(f, ins->reg), 1, ins);
    break;
  case 'E': read_exprs(r, f, 'I', 1, ins); break;
  case 'c': ins->index = index_of(r, m->nconst, "constant"); break;
  case 'k': ins->index = index_of(r, m->nkernel, "kernel"); break;
  case 'f': ins->index = index_of(r, m->nfunc, "function"); break;
  case 'h': ins->index = index_of(r, HO_COUNT, "host operation"); break;
  case 'q': ins->index = index_of(r, m->npacked, "packed function"); break;
  case 'i':
  case 'j': ins->index = index_of(r, INT32_MAX, "field or target"); break;
  case 'g': ins->tag = index_of(r, INT32_MAX, "tag"); break;
  case 'n': ins->node = index_of(r, m->nnode, "node"); break;
  case 'a': ins->arg = registers(r, f, &ins->narg); break;
  case 'o': ins->ret = registers(r, f, &ins->nret); break;
  case 'K': read_args(r, f, KARG_SCALAR, ins); break;
  case 'Q': read_args(r, f, PARG_TEXT, ins); break;
  case 'A': ins->attr = numbers(r, &ins->nattr, "attributes"); break;
  case 'T': ins->text = string(r); break;
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

/* Calls fit what they call; what a closure is called with is known only then. */
static void check_call(Reader *r, const ModelFunc *f, const Ins *ins)
{
  const ModelFunc *to = &r->m->func[ins->index]; /* CALL, TAIL and CLOSURE */
  bool fits = true;
  switch (ins->op) {
  case MO_CALL: fits = ins->narg == to->nparam && ins->nret == to->nret; break;
  case MO_TAIL: fits = ins->narg == to->nparam && f->nret == to->nret; break;
  case MO_CLOSURE: fits = ins->narg <= to->nparam && to->nret == 1; break;
  case MO_APPLY: fits = ins->nret == 1; break;
  case MO_APPLY_TAIL: fits = f->nret == 1; break;
  case MO_PACKED: fits = ins->nret <= 1; break;
  case MO_KERNEL: check_kernel_call(r, f, ins); break;
  case MO_HOST: check_host_call(r, ins); break;
  }
  if (!fits) bad(r, "function '%.60s' has a call whose arguments or results do not fit", f->name);
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
  uint8_t *scalars = list(r, &f->nscalar, 1, "scalars", 1);
  f->scalar_kind = scalars;
  for (int32_t i = 0; i < f->nscalar; i++) scalars[i] = kind(r, SCALAR_FLOAT + 1, "a scalar");
  Ins *ins = list(r, &f->nins, 1, "instructions", sizeof *ins);
  f->ins = ins;
  for (int32_t i = 0; i < f->nins; i++) {
    ins[i].op = kind(r, MO_COUNT, "an instruction");
    for (int k = 0; ok(r) && k < (int)sizeof operands[0] && operands[ins[i].op][k]; k++)
      read_operand(r, f, operands[ins[i].op][k], &ins[i]);
  }
}

static void read_functions(Reader *r)
{
  LatheRtModel *m = r->m;
  m->func = list(r, &m->nfunc, 24, "functions", sizeof *m->func);
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

/* A state goes in as it comes out: a tensor of known sizes. */
static void check_state(Reader *r, const LatheRtEntry *about, int32_t i)
{
  const LatheRtPort *in = &about->inputs[about->ninputs + i];
  const LatheRtPort *out = &about->outputs[about->noutputs + i];
  bool fits = in->kind == PORT_TENSOR && out->kind == PORT_TENSOR && in->ndim == out->ndim &&
              rt_same_dtype(in->dtype, out->dtype) && rt_same_device(in->device, out->device) &&
              in->dtype.code != LATHE_RT_STRING;
  for (int32_t d = 0; fits && d < in->ndim; d++) fits = in->shape[d] >= 0 && in->shape[d] == out->shape[d];
  if (!fits) bad(r, "state '%.60s' of entry '%.60s' does not come out as it goes in", in->name, about->name);
}

static void read_entry(Reader *r, ModelEntry *e)
{
  LatheRtModel *m = r->m;
  LatheRtEntry *about = &e->about;
  about->name = string(r);
  e->func = index_of(r, m->nfunc, "function");
  uint32_t flags = u32(r);
  e->is_static = flags & ENTRY_STATIC;
  e->nstate = (int32_t)(flags >> ENTRY_STATES);
  about->inputs = read_ports(r, &e->nin, &e->input);
  about->outputs = read_ports(r, &e->nout, &e->output);
  if (ok(r) && (e->nstate > e->nin || e->nstate > e->nout))
    bad(r, "entry '%.60s' has %d states, %d inputs and %d outputs", about->name, e->nstate, e->nin, e->nout);
  if (!ok(r)) return;
  about->ninputs = e->nin - e->nstate;
  about->noutputs = e->nout - e->nstate;
  for (int32_t i = 0; i < e->nstate; i++) check_state(r, about, i);
  int32_t n;
  e->storage_bytes = numbers(r, &n, "sizes of storage");
  if (n != m->ndevice) bad(r, "entry '%.60s' has storage on %d devices, there are %d", about->name, n, m->ndevice);
  for (int32_t i = 0; ok(r) && i < n; i++)
    if (e->storage_bytes[i] < 0 ||
        __builtin_add_overflow(about->storage_bytes, (uint64_t)e->storage_bytes[i], &about->storage_bytes))
      bad(r, "it wants more storage than memory can have");
  about->storage_bound = u64(r);
  if (!ok(r)) return;
  const ModelFunc *f = &m->func[e->func];
  about->is_dynamic = e->is_static ? 0 : has_calls(f) ? 2 : 1;
  if (f->nparam != e->nin || f->nret != e->nout)
    bad(r, "the function of entry '%.60s' does not fit its inputs and outputs", about->name);
}

static void read_entries(Reader *r)
{
  LatheRtModel *m = r->m;
  m->entry = list(r, &m->nentry, 28, "entries", sizeof *m->entry);
  bool *is_static = array(r, m->nfunc, sizeof *is_static);
  for (int32_t i = 0; ok(r) && i < m->nentry; i++) {
    ModelEntry *e = &m->entry[i];
    read_entry(r, e);
    for (int32_t k = 0; ok(r) && k < i; k++) {
      const ModelEntry *other = &m->entry[k];
      if (!strcmp(other->about.name, e->about.name) || (other->func == e->func && (e->is_static || other->is_static)))
        bad(r, "entries '%.60s' and '%.60s' share a name or a static program", other->about.name, e->about.name);
    }
    if (ok(r)) is_static[e->func] |= e->is_static;
  }
  if (m->nentry == 0) bad(r, "it has no entry");
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
  if (!data->consts && m->weights_bytes != data->weights_bytes)
    bad(r, "it wants %" PRIu64 " bytes of weights, the file has %" PRIu64, m->weights_bytes, data->weights_bytes);
  if (m->prepared_bytes > PTRDIFF_MAX) bad(r, "it prepares %" PRIu64 " bytes of weights", m->prepared_bytes);
}

static void read_code(Reader *r, const LatheRtModelData *data)
{
  LatheRtModel *m = r->m;
  int32_t n = count(r, 16, "devices");
  if (n < 1 || n > MODEL_MAX_DEVICES) bad(r, "%d devices, wants 1 to %d", n, MODEL_MAX_DEVICES);
  m->device = array(r, n, sizeof *m->device);
  for (int32_t i = 0; ok(r) && i < n; i++) {
    read_device(r, i);
    if (ok(r)) m->ndevice = i + 1;
  }
  m->module = list(r, &m->nmodule, 12, "modules", sizeof *m->module);
  for (int32_t i = 0; ok(r) && i < m->nmodule; i++) read_module(r, i, data);
  n = count(r, 24, "images");
  for (int32_t i = 0; ok(r) && i < n; i++) read_image(r, data);
  m->kernel = list(r, &m->nkernel, 20, "kernels", sizeof *m->kernel);
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
  m->constant = list(r, &m->nconst, 21, "constants", sizeof *m->constant);
  for (int32_t i = 0; ok(r) && i < m->nconst; i++) read_const(r, i, data);
  m->symbol = strings(r, &m->nsymbol, "sizes");
  m->node = list(r, &m->nnode, 40, "nodes", sizeof *m->node);
  m->work = array(r, m->nnode, sizeof *m->work);
  for (int32_t i = 0; ok(r) && i < m->nnode; i++) read_node(r, &m->node[i], &m->work[i]);
  read_strings(r);
  m->packed = strings(r, &m->npacked, "packed functions");
  read_functions(r);
  if (ok(r)) read_entries(r);
  if (r->p != r->end) bad(r, "%zu bytes are left over", left(r));
  if (ok(r)) m->nrun = nodes_of_runs(m);
  return r->code;
}
