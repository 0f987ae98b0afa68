/* tiny.c: a runtime in a few kilobytes, for models that a program links: one file, no threads, no files, no devices, no
 * libraries beyond malloc, free, memcpy, memmove and memcmp.
 *
 *   cc -Os -c -Iinclude runtime/tiny.c -o lathe_rt_tiny.o
 *   arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -Os -c -Iinclude runtime/tiny.c -o lathe_rt_tiny.o
 *
 * It serves the NAME_load and NAME_run that `lathe compile -o NAME.o` (.a, .c) writes, for models whose sizes are all
 * known, and of lathe_rt.h the functions below; a program that asks for others does not link.  A run reads the
 * program's instructions as they lie in the model (model_format.h), so that an executor needs little memory beside its
 * tensors.  The bytes of a linked model are trusted as its code is: their end is checked, their meaning is not. */
#include <stdlib.h>
#include <string.h>

#include "lathe_rt.h"
#include "model_format.h"

struct LatheRtModule {
  int refs;
  const LatheRtModuleInfo *info;
  void (*drop)(void *);
  void *user;
};

typedef struct Kernel {
  const LatheRtFuncInfo *func;
  size_t align;
} Kernel;

struct LatheRtModel {
  int refs;
  LatheRtModule *base;
  void (*drop)(void *);
  void *user;
  const unsigned char *end; /* of the program */
  const char *weights;
  const void *const *consts;
  uint32_t align; /* of storage */
  uint32_t nkernel, nconst, nfunc, nentry;
  Kernel *kernel;
  const unsigned char **constant, **func, **entry; /* where the rows begin */
};

/* What a register holds.  Dimensions stay in the program: each 8 bytes, with `gap` bytes in front. */
typedef struct Register {
  void *data;
  const unsigned char *dims;
  uint32_t ndim;
  uint32_t gap;
  LatheRtDType dtype;
} Register;

/* An entry's input or output. */
typedef struct Port {
  Register as; /* without data */
  void *own;   /* memory for a copy */
} Port;

struct LatheRtExecutor {
  LatheRtModel *model;
  uint32_t ninput, noutput, nreg;
  Port *input;
  Register *reg; /* the first are the inputs */
  LatheRtTensor *output;
  LatheRtSlot *slot;
  int64_t *shape;            /* what a kernel's shape function writes */
  const unsigned char *code; /* the first instruction */
  uint32_t nins;
  void *storage, *workspace, *block;
  char *place; /* the storage, aligned */
  char *work;
  int has_run;
};

static LatheRtCode fail(LatheRtError *err, LatheRtCode code, const char *text)
{
  if (err) memcpy(err->text, text, strlen(text) + 1);
  return code;
}

static LatheRtCode no_memory(LatheRtError *err) { return fail(err, LATHE_RT_MEMORY, "out of memory"); }

static LatheRtCode unsupported(LatheRtError *err)
{
  return fail(
      err, LATHE_RT_UNSUPPORTED,
      "the model has open sizes, control flow, states or several devices, which the tiny runtime does not serve; link "
      "runtime/lathe_rt.c, or compile it again");
}

/* ---- reading ----------------------------------------------------------------------------------------- */

typedef struct Reader {
  const unsigned char *p, *end;
  int bad; /* it ended early, or holds what is not served */
} Reader;

static const unsigned char *take(Reader *r, uint64_t n)
{
  static const unsigned char zeros[16];
  const unsigned char *at = r->p;
  if (r->bad || n > (uint64_t)(r->end - r->p)) {
    r->bad = 1;
    return zeros;
  }
  r->p += n;
  return at;
}

static uint64_t number(const unsigned char *p, int bytes)
{
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}

static uint32_t u8(Reader *r) { return *take(r, 1); }
static uint32_t u32(Reader *r) { return (uint32_t)number(take(r, 4), 4); }
static uint64_t u64(Reader *r) { return number(take(r, 8), 8); }

/* A list of items of so many bytes, and what lies behind them. */
static uint32_t skip_items(Reader *r, uint64_t size, uint64_t behind)
{
  uint32_t n = u32(r);
  take(r, n * size + behind);
  return n;
}
static void skip_strings(Reader *r, int n)
{
  while (n-- > 0) skip_items(r, 1, 0);
}

static LatheRtDType read_dtype(Reader *r)
{
  const unsigned char *p = take(r, 4);
  return (LatheRtDType){p[0], p[1], (uint16_t)(p[2] | p[3] << 8)};
}

/* dims of a constant or a port. */
static void read_dims(Reader *r, Register *reg)
{
  reg->gap = 0;
  reg->dims = r->p + 4;
  reg->ndim = skip_items(r, 8, 0);
}

/* dims of an instruction: a list of expressions, each one literal. */
static void read_shape(Reader *r, Register *reg)
{
  reg->ndim = u32(r);
  reg->gap = 5; /* u32 one step, u8 XO_INT */
  reg->dims = r->p;
  for (uint32_t d = 0; d < reg->ndim && !r->bad; d++) {
    if (u32(r) != 1 || u8(r) != XO_INT) r->bad = 1;
    u64(r);
  }
}

static int64_t dim_of(const Register *reg, uint32_t d)
{
  return (int64_t)number(reg->dims + d * (8 + reg->gap) + reg->gap, 8);
}

static size_t bytes_of(const Register *reg)
{
  size_t n = (size_t)(reg->dtype.bits * reg->dtype.lanes + 7) / 8;
  for (uint32_t d = 0; d < reg->ndim; d++) n *= (size_t)dim_of(reg, d);
  return n;
}

static Reader at(const LatheRtModel *m, const unsigned char *p) { return (Reader){p, m->end, 0}; }

/* ---- modules ------------------------------------------------------------------------------------------- */

LatheRtCode lathe_rt_module_wrap(const LatheRtModuleInfo *info, void (*drop)(void *), void *user, LatheRtModule **out,
                                 LatheRtError *err)
{
  *out = NULL;
  if (memcmp(info->magic, "LATHERT", 8) != 0 || info->abi != LATHE_RT_ABI)
    return fail(err, LATHE_RT_UNSUPPORTED, "the module is not Lathe's, or of another ABI; compile it again");
  LatheRtModule *m = malloc(sizeof *m);
  if (!m) return no_memory(err);
  *m = (LatheRtModule){1, info, drop, user};
  *out = m;
  return LATHE_RT_OK;
}

void lathe_rt_module_free(LatheRtModule *m)
{
  if (!m || --m->refs) return;
  if (m->drop) m->drop(m->user);
  free(m);
}

/* ---- models ---------------------------------------------------------------------------------------------- */

static const LatheRtModuleInfo *find_library(LatheRtModel *m, const LatheRtModelData *data, Reader *r)
{
  const unsigned char *kind = r->p + 4;
  if (skip_items(r, 1, 0) != 7 || memcmp(kind, "library", 7) != 0) r->bad = 1;
  skip_strings(r, 1);
  if (u32(r) != 1) r->bad = 1;
  skip_strings(r, 2);
  uint32_t library = u32(r);
  take(r, 16);
  if (library >= data->nmodules) r->bad = 1;
  if (r->bad) return m->base->info;
  return data->modules ? data->modules[library] : m->base->info;
}

static void find_kernel(const LatheRtModuleInfo *const *module, uint32_t nmodule, Reader *r, Kernel *k)
{
  const char *name = (const char *)r->p + 4;
  size_t n = skip_items(r, 1, 0);
  uint32_t number = u32(r);
  u32(r);
  skip_strings(r, 2);
  if (number >= nmodule) r->bad = 1;
  for (int32_t i = 0; !r->bad && i < module[number]->nfuncs; i++) {
    const LatheRtFuncInfo *f = &module[number]->funcs[i];
    if (strlen(f->name) == n && memcmp(f->name, name, n) == 0) *k = (Kernel){f, module[number]->align};
  }
  if (!k->func) r->bad = 1;
}

static void skip_node(Reader *r)
{
  skip_strings(r, 3);
  take(r, 3 * 8);
  for (uint32_t n = u32(r); n-- > 0 && !r->bad;) {
    take(r, 1 + 8);
    skip_items(r, 9, 0);
  }
}

static void skip_ins(Reader *r)
{
  Register reg;
  switch ((ModelOp)u8(r)) {
  case MO_CONST:
  case MO_MOVE: take(r, 8); return;
  case MO_ALLOC:
    take(r, 12);
    read_shape(r, &reg);
    take(r, 8);
    return;
  case MO_VIEW:
    take(r, 12);
    read_shape(r, &reg);
    return;
  case MO_COPY: take(r, 20); return;
  case MO_KERNEL:
    take(r, 8);
    skip_items(r, 5, 0);
    return;
  case MO_RETURN: skip_items(r, 4, 0); return;
  default: r->bad = 1;
  }
}

static void skip_function(Reader *r)
{
  skip_strings(r, 1);
  take(r, 12);
  if (skip_items(r, 1, 0)) r->bad = 1;
  for (uint32_t n = u32(r); n-- > 0 && !r->bad;) skip_ins(r);
}

static void read_port(Reader *r, Register *reg)
{
  skip_strings(r, 2);
  take(r, 1 + 4);
  reg->dtype = read_dtype(r);
  read_dims(r, reg);
}

static void skip_entry(Reader *r)
{
  Register reg;
  skip_strings(r, 1);
  u32(r);
  if (u32(r) != ENTRY_STATIC) r->bad = 1; /* flags: nothing open, and no states */
  for (int k = 0; k < 2; k++)
    for (uint32_t n = u32(r); n-- > 0 && !r->bad;) read_port(r, &reg);
  skip_items(r, 8, 8);
}

/* n places of a table that goes with the model; NULL where there are none or no memory for them. */
static void *table(Reader *r, uint32_t n, size_t size)
{
  void *p = n <= (uint32_t)(r->end - r->p) ? calloc(n + 1, size) : NULL;
  if (!p) r->bad = 1;
  return p;
}

static void find_rows(Reader *r, uint32_t *n, const unsigned char ***rows, void (*skip)(Reader *))
{
  *n = u32(r);
  *rows = table(r, *n, sizeof **rows);
  for (uint32_t i = 0; i < *n && !r->bad; i++) {
    (*rows)[i] = r->p;
    skip(r);
  }
}

static void skip_const(Reader *r)
{
  take(r, 4);
  skip_items(r, 8, 4 + 1 + 8);
}
static void skip_text(Reader *r) { skip_items(r, 1, 1); }
static void skip_string(Reader *r) { skip_strings(r, 1); }

static void skip_rows(Reader *r, void (*skip)(Reader *))
{
  for (uint32_t n = u32(r); n-- > 0 && !r->bad;) skip(r);
}

static void read_model(LatheRtModel *m, const LatheRtModelData *data, Reader *r)
{
  if (memcmp(take(r, 8), MODEL_MAGIC, 8) != 0 || u32(r) != MODEL_VERSION) r->bad = 1;
  u32(r);
  skip_strings(r, 1);
  take(r, 4 * 8);
  if (u32(r) != 1) r->bad = 1; /* one device, the host */
  take(r, 8);
  m->align = u32(r);
  skip_strings(r, 1);
  uint32_t nmodule = u32(r);
  const LatheRtModuleInfo **module = table(r, nmodule, sizeof *module);
  for (uint32_t i = 0; i < nmodule && !r->bad; i++) module[i] = find_library(m, data, r);
  if (u32(r)) r->bad = 1; /* images */
  m->nkernel = u32(r);
  m->kernel = table(r, m->nkernel, sizeof *m->kernel);
  for (uint32_t i = 0; i < m->nkernel && !r->bad; i++) find_kernel(module, nmodule, r, &m->kernel[i]);
  free(module);
  find_rows(r, &m->nconst, &m->constant, skip_const);
  skip_rows(r, skip_string); /* symbols */
  skip_rows(r, skip_node);
  skip_rows(r, skip_text);
  skip_rows(r, skip_string); /* packed */
  find_rows(r, &m->nfunc, &m->func, skip_function);
  find_rows(r, &m->nentry, &m->entry, skip_entry);
  if (u32(r) != PREPARE_NONE || !m->nentry) r->bad = 1;
}

LatheRtCode lathe_rt_model_wrap(LatheRtModule *module, const LatheRtModelData *data, const LatheRtLoad *how,
                                void (*drop)(void *), void *user, LatheRtModel **out, LatheRtError *err)
{
  (void)how;
  *out = NULL;
  LatheRtModel *m = calloc(1, sizeof *m);
  if (!m) return no_memory(err);
  Reader r = {data->program, (const unsigned char *)data->program + data->program_bytes, 0};
  *m = (LatheRtModel){.refs = 1, .base = module, .end = r.end, .weights = data->weights, .consts = data->consts};
  module->refs++;
  read_model(m, data, &r);
  if (r.bad) {
    lathe_rt_model_free(m);
    return unsupported(err);
  }
  m->drop = drop;
  m->user = user;
  *out = m;
  return LATHE_RT_OK;
}

LatheRtModel *lathe_rt_model_retain(LatheRtModel *m)
{
  if (m) m->refs++;
  return m;
}

void lathe_rt_model_free(LatheRtModel *m)
{
  if (!m || --m->refs) return;
  free(m->kernel);
  free(m->constant);
  free(m->func);
  free(m->entry);
  lathe_rt_module_free(m->base);
  if (m->drop) m->drop(m->user);
  free(m);
}

/* ---- executors ---------------------------------------------------------------------------------------------- */

static void *aligned(void *p, size_t align) { return (char *)p + (-(uintptr_t)p & (align - 1)); }

static size_t round_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }

/* The sizes that a kernel reads off its tensors. */
static void fill_sizes(LatheRtExecutor *x, const LatheRtFuncInfo *f, const unsigned char *args)
{
  for (int32_t i = 0; i < f->nsizes; i++) {
    const Register *reg = &x->reg[number(args + 5 * f->sizes[i].arg + 1, 4)];
    int32_t d = f->sizes[i].dim;
    int64_t v = d == INT32_MIN ? 0 : d >= 0 ? dim_of(reg, (uint32_t)d) : 1;
    for (uint32_t k = (uint32_t)-d; d < 0 && d != INT32_MIN && k < reg->ndim; k++) v *= dim_of(reg, k); /* a stride */
    x->slot[f->nargs + i].i = v;
  }
}

static int32_t run_alone(const LatheRtCalls *calls, int64_t n, LatheRtBody body, void *env)
{
  (void)calls;
  return n > 0 ? body(0, n, 0, env) : 0;
}

static int32_t no_packed(const LatheRtCalls *calls, const char *name, int32_t n, const LatheRtPackedArg *arg)
{
  (void)calls, (void)name, (void)n, (void)arg;
  return -1;
}

static int32_t count_dims(const LatheRtFuncInfo *f)
{
  int32_t n = 0;
  for (int32_t i = 0; i < f->nargs; i++) n += f->args[i].ndim > 0 ? f->args[i].ndim : 0;
  return n;
}

static size_t workspace_of(LatheRtExecutor *x, const Kernel *k)
{
  const LatheRtFuncInfo *f = k->func;
  const int64_t *told = x->shape + count_dims(f);
  if (f->workspace < 0 || f->slice < 0) f->shape(x->slot, x->shape);
  int64_t shared = f->workspace < 0 ? told[0] : f->workspace;
  int64_t slice = f->slice < 0 ? told[1] : f->slice;
  return round_up((size_t)shared, k->align) + round_up((size_t)slice, k->align);
}

/* need: the largest workspace so far, and the kernel is not run; NULL: it is. */
static int32_t kernel_ins(LatheRtExecutor *x, Reader *r, size_t *need)
{
  const Kernel *k = &x->model->kernel[u32(r)];
  u32(r); /* the node */
  const unsigned char *args = r->p + 4;
  uint32_t n = skip_items(r, 5, 0);
  for (uint32_t i = 0; i < n; i++) x->slot[i].p = x->reg[number(args + 5 * i + 1, 4)].data;
  fill_sizes(x, k->func, args);
  if (need) {
    size_t bytes = workspace_of(x, k) + k->align;
    if (bytes > *need) *need = bytes;
    return 0;
  }
  const LatheRtCalls calls = {
    .abi = LATHE_RT_ABI, .num_workers = 1, .parallel_for = run_alone, .call_packed = no_packed};
  return k->func->call(x->slot, x->workspace ? aligned(x->workspace, k->align) : NULL, &calls);
}

static void const_ins(const LatheRtModel *m, Register *reg, uint32_t index)
{
  Reader r = at(m, m->constant[index]);
  reg->dtype = read_dtype(&r);
  read_dims(&r, reg);
  take(&r, 4 + 1);
  reg->data = (void *)(uintptr_t)(m->consts ? (const char *)m->consts[index] : m->weights + u64(&r));
}

/* All instructions in their order; need: as above. */
static int32_t walk(LatheRtExecutor *x, size_t *need)
{
  int32_t status = 0;
  Reader r = at(x->model, x->code);
  for (uint32_t n = 0; n < x->nins && status == 0; n++) {
    ModelOp op = (ModelOp)u8(&r);
    Register *reg = op == MO_KERNEL || op == MO_RETURN ? NULL : &x->reg[u32(&r)];
    const Register *from;
    switch (op) {
    case MO_CONST: const_ins(x->model, reg, u32(&r)); break;
    case MO_ALLOC:
      u32(&r);
      reg->dtype = read_dtype(&r);
      read_shape(&r, reg);
      reg->data = x->place + u64(&r);
      break;
    case MO_VIEW:
      reg->data = x->reg[u32(&r)].data;
      reg->dtype = read_dtype(&r);
      read_shape(&r, reg);
      break;
    case MO_MOVE: *reg = x->reg[u32(&r)]; break;
    case MO_COPY:
      from = &x->reg[u32(&r)];
      u32(&r);
      *reg = *from;
      reg->data = x->place + u64(&r);
      if (!need) memmove(reg->data, from->data, bytes_of(from));
      break;
    case MO_KERNEL: status = kernel_ins(x, &r, need); break;
    default: /* RETURN */
      for (uint32_t i = 0, count = u32(&r); i < count; i++) x->output[i].data = x->reg[u32(&r)].data;
    }
  }
  return status;
}

/* The tables of an executor lie in one block; where it is NULL their sizes are added up. */
typedef struct Block {
  char *base;
  size_t used;
} Block;

static void *part(Block *b, size_t n, size_t size)
{
  size_t begin = b->used;
  b->used += round_up(n * size, 8);
  return b->base ? b->base + begin : NULL;
}

static void lay_out(LatheRtExecutor *x, Block *b)
{
  const LatheRtModel *m = x->model;
  size_t slots = 1;
  size_t dims = 2;
  for (uint32_t i = 0; i < m->nkernel; i++) {
    const LatheRtFuncInfo *f = m->kernel[i].func;
    size_t n = (size_t)(f->nargs + f->nsizes);
    if (n > slots) slots = n;
    if ((size_t)count_dims(f) + 2 > dims) dims = (size_t)count_dims(f) + 2;
  }
  x->input = part(b, x->ninput, sizeof *x->input);
  x->reg = part(b, x->nreg, sizeof *x->reg);
  x->output = part(b, x->noutput, sizeof *x->output);
  x->slot = part(b, slots, sizeof *x->slot);
  x->shape = part(b, dims, sizeof *x->shape);
}

/* Ports of the entry: inputs keep what they want; outputs become tensors, whose dims are counted first. */
static void read_ports(LatheRtExecutor *x, Reader *r, Block *b)
{
  Register reg;
  u32(r);
  for (uint32_t i = 0; i < x->ninput; i++) {
    read_port(r, &reg);
    if (b->base) x->input[i].as = reg;
  }
  u32(r);
  for (uint32_t i = 0; i < x->noutput; i++) {
    read_port(r, &reg);
    int64_t *dim = part(b, reg.ndim, sizeof *dim);
    if (!dim) continue;
    for (uint32_t d = 0; d < reg.ndim; d++) dim[d] = dim_of(&reg, d);
    x->output[i] =
        (LatheRtTensor){.device = {LATHE_RT_CPU, 0}, .ndim = (int32_t)reg.ndim, .dtype = reg.dtype, .shape = dim};
  }
}

static LatheRtCode make_ready(LatheRtExecutor *x, uint32_t entry, LatheRtError *err)
{
  const LatheRtModel *m = x->model;
  Reader r = at(m, m->entry[entry]);
  Register reg;
  skip_strings(&r, 1);
  Reader f = at(m, m->func[u32(&r)]);
  u32(&r);
  Reader ports = r;
  for (uint32_t n = x->ninput = u32(&r); n-- > 0;) read_port(&r, &reg);
  for (uint32_t n = x->noutput = u32(&r); n-- > 0;) read_port(&r, &reg);
  u32(&r);
  uint64_t storage = u64(&r);
  skip_strings(&f, 1);
  x->nreg = u32(&f);
  take(&f, 8);
  u32(&f); /* no scalars */
  x->nins = u32(&f);
  x->code = f.p;
  Block block = {NULL, 0};
  for (int pass = 0; pass < 2; pass++) {
    Reader again = ports;
    block.used = 0;
    lay_out(x, &block);
    read_ports(x, &again, &block);
    if (pass == 0 && !(block.base = x->block = calloc(1, block.used))) return no_memory(err);
  }
  x->storage = malloc((size_t)storage + m->align);
  if (!x->storage) return no_memory(err);
  x->place = aligned(x->storage, m->align);
  size_t need = 0;
  for (uint32_t i = 0; i < x->ninput; i++) x->reg[i] = x->input[i].as;
  walk(x, &need);
  x->workspace = need ? malloc(need) : NULL;
  return need && !x->workspace ? no_memory(err) : LATHE_RT_OK;
}

static void drop_entry(LatheRtExecutor *x)
{
  for (uint32_t i = 0; x->block && i < x->ninput; i++) free(x->input[i].own);
  free(x->block);
  free(x->storage);
  free(x->workspace);
  *x = (LatheRtExecutor){.model = x->model};
}

LatheRtCode lathe_rt_executor_new(LatheRtModel *m, LatheRtExecutor **out, LatheRtError *err)
{
  *out = NULL;
  LatheRtExecutor *x = calloc(1, sizeof *x);
  if (!x) return no_memory(err);
  x->model = lathe_rt_model_retain(m);
  LatheRtCode code = make_ready(x, 0, err);
  if (code == LATHE_RT_OK) *out = x;
  else lathe_rt_executor_free(x);
  return code;
}

/* Another entry: what was set for the one before is forgotten. */
LatheRtCode lathe_rt_executor_select(LatheRtExecutor *x, int32_t entry, LatheRtError *err)
{
  if (entry < 0 || (uint32_t)entry >= x->model->nentry) return fail(err, LATHE_RT_NOT_FOUND, "there is no such entry");
  drop_entry(x);
  LatheRtCode code = make_ready(x, (uint32_t)entry, err);
  if (code != LATHE_RT_OK) drop_entry(x);
  return code;
}

void lathe_rt_executor_free(LatheRtExecutor *x)
{
  if (!x) return;
  drop_entry(x);
  lathe_rt_model_free(x->model);
  free(x);
}

/* The input is read where it lies. */
LatheRtCode lathe_rt_set_input_view(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  if (i < 0 || (uint32_t)i >= x->ninput) return fail(err, LATHE_RT_ARGUMENT, "there is no input of that number");
  const Register *want = &x->input[i].as;
  int fits = t->ndim == (int32_t)want->ndim && !t->strides && memcmp(&t->dtype, &want->dtype, sizeof t->dtype) == 0;
  for (uint32_t d = 0; fits && d < want->ndim; d++) fits = t->shape[d] == dim_of(want, d);
  if (!fits) return fail(err, LATHE_RT_ARGUMENT, "an input has another type, rank or size than the model wants");
  x->reg[i] = *want;
  x->reg[i].data = (char *)t->data + t->byte_offset;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_set_input(LatheRtExecutor *x, int32_t i, const LatheRtTensor *t, LatheRtError *err)
{
  LatheRtCode code = lathe_rt_set_input_view(x, i, t, err);
  if (code != LATHE_RT_OK) return code;
  Port *port = &x->input[i];
  size_t bytes = bytes_of(&port->as);
  if (!port->own) port->own = malloc(bytes ? bytes : 1);
  if (!port->own) return no_memory(err);
  if (bytes) memcpy(port->own, x->reg[i].data, bytes);
  x->reg[i].data = port->own;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_run(LatheRtExecutor *x, LatheRtError *err)
{
  for (uint32_t i = 0; i < x->ninput; i++)
    if (!x->reg[i].data && bytes_of(&x->reg[i])) return fail(err, LATHE_RT_ARGUMENT, "an input has not been set");
  if (walk(x, NULL)) return fail(err, LATHE_RT_KERNEL, "a kernel stopped with a status of its own");
  x->has_run = 1;
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_get_output(LatheRtExecutor *x, int32_t i, const LatheRtTensor **out, LatheRtError *err)
{
  if (i < 0 || (uint32_t)i >= x->noutput || !x->has_run)
    return fail(err, LATHE_RT_ARGUMENT, "there is no output of that number, or the model has not run");
  *out = &x->output[i];
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_tensor_bytes(const LatheRtTensor *t, size_t *out, LatheRtError *err)
{
  (void)err;
  *out = (size_t)(t->dtype.bits * t->dtype.lanes + 7) / 8;
  for (int32_t d = 0; d < t->ndim; d++) *out *= (size_t)t->shape[d];
  return LATHE_RT_OK;
}
