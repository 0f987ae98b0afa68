/* npu.c: an accelerator for int8 that does not exist, simulated: what a driver and its compiler have to do.
 *
 *   memory of the host (tensors)  <-- DMA -->  three scratchpads of 64 KiB  -->  products  -->  64 tiles of int32
 *                                              INPUT, WEIGHT, OUTPUT        <--  rescale   <--
 *
 * A kernel is a stream of instructions, 32 bytes each: one byte each for the operation, a scratchpad and (two bytes) a
 * tensor of the graph, then seven int32 f[0] … f[6], in the order of bytes of the machine that everything here runs on:
 * the least first.
 *
 *   LOAD     scratchpad <- tensor: f = {first byte in the tensor, rows, columns, bytes from row to row, first byte in
 *            the scratchpad, bytes from row to row there, bytes from column to column in the tensor}
 *   FILL     scratchpad <- one value: f = {-, rows, columns, -, first byte, bytes from row to row, value}
 *   STORE    tensor <- OUTPUT: f as LOAD's, the sides exchanged, columns without gaps
 *   BIAS     each row of a tile <- 16 numbers: f = {tile, first byte in WEIGHT}
 *   PRODUCT  tile[i][j] += sum over k < 16 of input[i][k] * weight[j][k]: f = {first byte in INPUT, bytes from i to i,
 *            from k to k, first byte in WEIGHT, bytes from j to j, from k to k, tile}
 *   RESCALE  OUTPUT[i][j] <- ((tile[i][j] * multiplier[j] + half) >> shift[j]) + zero, within limits: f = {tile, first
 *            byte in WEIGHT of 16 multipliers, then 16 shifts, first byte in OUTPUT, bytes from i to i, from j to j,
 *            zero, the least value | the most << 8}
 *
 * The whole stream is checked when the model is loaded: no instruction of a model that loads reaches beyond a tensor, a
 * scratchpad or the tiles.  examples/npu/npu.py is the compiler. */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

enum { TILE = 16, PAD_BYTES = 1 << 16, TILES = 64, INSTRUCTION_BYTES = 32 };
enum { INPUT, WEIGHT, OUTPUT, PADS };
typedef enum { LOAD = 1, FILL, STORE, BIAS, PRODUCT, RESCALE } Operation;

typedef struct Instruction {
  uint8_t op, pad;
  uint16_t tensor;
  int32_t f[7];
} Instruction;
typedef struct Machine {
  int8_t pad[PADS][PAD_BYTES];
  int32_t tile[TILES][TILE][TILE];
} Machine;
typedef struct Stream {
  int n;
  Instruction instruction[];
} Stream;

/* ---- checking a stream ----------------------------------------------------------------------- */

/* Do so many rows and columns from a first byte on lie within a memory?  size: bytes of an element. */
static bool fits(int64_t first, int64_t rows, int64_t row, int64_t columns, int64_t column, int64_t size, int64_t limit)
{
  if (first < 0 || rows < 1 || rows > PAD_BYTES || columns < 1 || columns > PAD_BYTES || row < 0 || column < 0)
    return false;
  return first + (rows - 1) * row + (columns - 1) * column + size <= limit;
}

static bool aligned(int32_t at) { return at % (int32_t)sizeof(int32_t) == 0; }
static bool is_tile(int32_t t) { return t >= 0 && t < TILES; }

static bool writes_tensor(const Graph *g, const Kernel *k, int tensor)
{
  for (int i = 0; i < k->nout; i++)
    if (k->out[i] == tensor) return !g->tensor[tensor].constant;
  return false;
}

static bool touches_tensor(const Kernel *k, int tensor)
{
  for (int i = 0; i < k->nin; i++)
    if (k->in[i] == tensor) return true;
  return false;
}

static const char *what_is_wrong(const Graph *g, const Kernel *k, const Instruction *x)
{
  const int32_t *f = x->f;
  bool known = x->tensor < g->ntensor;
  int64_t bytes = known ? (int64_t)g->tensor[x->tensor].bytes : 0;
  switch ((Operation)x->op) {
  case LOAD:
    if (!known || !touches_tensor(k, x->tensor)) return "loads a tensor that its kernel does not read";
    if (!fits(f[0], f[1], f[3], f[2], f[6], 1, bytes)) return "loads from beyond a tensor";
    return x->pad < PADS && fits(f[4], f[1], f[5], f[2], 1, 1, PAD_BYTES) ? NULL : "loads beyond a scratchpad";
  case FILL: return x->pad < PADS && fits(f[4], f[1], f[5], f[2], 1, 1, PAD_BYTES) ? NULL : "fills beyond a scratchpad";
  case STORE:
    if (!known || !writes_tensor(g, k, x->tensor)) return "stores into a tensor that its kernel does not give";
    if (!fits(f[0], f[1], f[3], f[2], 1, 1, bytes)) return "stores beyond a tensor";
    return fits(f[4], f[1], f[5], f[2], 1, 1, PAD_BYTES) ? NULL : "stores from beyond a scratchpad";
  case BIAS:
    return is_tile(f[0]) && aligned(f[1]) && fits(f[1], 1, 0, TILE, 4, 4, PAD_BYTES) ? NULL
                                                                                     : "reads a bias that is not there";
  case PRODUCT:
    if (!is_tile(f[6]) || !fits(f[0], TILE, f[1], TILE, f[2], 1, PAD_BYTES)) return "multiplies beyond a scratchpad";
    return fits(f[3], TILE, f[4], TILE, f[5], 1, PAD_BYTES) ? NULL : "multiplies beyond a scratchpad";
  case RESCALE: {
    if (!is_tile(f[0]) || !aligned(f[1]) || !fits(f[1], 2, 4 * TILE, TILE, 4, 4, PAD_BYTES))
      return "reads multipliers that are not there";
    return fits(f[2], TILE, f[3], TILE, f[4], 1, PAD_BYTES) ? NULL : "writes beyond a scratchpad";
  }
  }
  return "is none of this machine";
}

/* ---- preparing -------------------------------------------------------------------------------- */

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static LatheRtCode read_stream(const Graph *g, Kernel *k, LatheRtError *err)
{
  const Json *program = json_get(k->json, "program");
  size_t n = program && program->kind == JSON_TEXT ? strlen(program->text) : 1;
  if (n % ((size_t)2 * INSTRUCTION_BYTES))
    return plugin_fail(err, LATHE_RT_ARGUMENT, "'%.60s' has no whole instructions", k->name);
  n /= (size_t)2 * INSTRUCTION_BYTES;
  Stream *s = k->state = calloc(1, sizeof *s + n * sizeof(Instruction));
  if (!s) return plugin_fail(err, LATHE_RT_MEMORY, "no memory for a kernel");
  s->n = (int)n;
  uint8_t *byte = (uint8_t *)s->instruction;
  for (size_t i = 0; i < n * INSTRUCTION_BYTES; i++) {
    int high = hex_digit(program->text[2 * i]);
    int low = hex_digit(program->text[2 * i + 1]);
    if (high < 0 || low < 0) return plugin_fail(err, LATHE_RT_ARGUMENT, "'%.60s' is no hexadecimal text", k->name);
    byte[i] = (uint8_t)(high << 4 | low);
  }
  for (int i = 0; i < s->n; i++) {
    const char *wrong = what_is_wrong(g, k, &s->instruction[i]);
    if (wrong) return plugin_fail(err, LATHE_RT_ARGUMENT, "instruction %d of '%.60s' %s", i, k->name, wrong);
  }
  return LATHE_RT_OK;
}

static LatheRtCode prepare(Graph *g, LatheRtError *err)
{
  _Static_assert(sizeof(Instruction) == INSTRUCTION_BYTES, "an instruction is 32 bytes");
  g->workspace = g->own + sizeof(Machine);
  for (int i = 0; i < g->nkernel; i++) {
    LatheRtCode code = read_stream(g, &g->kernel[i], err);
    if (code != LATHE_RT_OK) return code;
  }
  return LATHE_RT_OK;
}

static void drop(Graph *g)
{
  for (int i = 0; i < g->nkernel; i++) free(g->kernel[i].state);
}

/* ---- running ------------------------------------------------------------------------------------ */

static const int32_t *numbers(const Machine *m, int32_t at)
{
  return (const int32_t *)(const void *)&m->pad[WEIGHT][at];
}

static void load(Machine *m, const Instruction *x, const int8_t *tensor)
{
  for (int32_t r = 0; r < x->f[1]; r++)
    for (int32_t c = 0; c < x->f[2]; c++)
      m->pad[x->pad][x->f[4] + r * x->f[5] + c] = tensor[x->f[0] + (int64_t)r * x->f[3] + (int64_t)c * x->f[6]];
}

static void product(Machine *m, const int32_t *f)
{
  for (int i = 0; i < TILE; i++)
    for (int j = 0; j < TILE; j++) {
      uint32_t sum = (uint32_t)m->tile[f[6]][i][j]; /* the machine's adder wraps */
      for (int k = 0; k < TILE; k++)
        sum += (uint32_t)(m->pad[INPUT][f[0] + i * f[1] + k * f[2]] * m->pad[WEIGHT][f[3] + j * f[4] + k * f[5]]);
      m->tile[f[6]][i][j] = (int32_t)sum;
    }
}

static void rescale(Machine *m, const int32_t *f)
{
  const int32_t *multiplier = numbers(m, f[1]);
  const int32_t *shift = multiplier + TILE;
  int least = (int8_t)(f[6] & 255);
  int most = (int8_t)(f[6] >> 8 & 255);
  for (int i = 0; i < TILE; i++)
    for (int j = 0; j < TILE; j++) {
      int right = shift[j] < 0 ? 0 : shift[j] > 62 ? 62 : shift[j];
      int64_t half = right ? (int64_t)1 << (right - 1) : 0;
      int64_t v = (((int64_t)m->tile[f[0]][i][j] * multiplier[j] + half) >> right) + f[5];
      m->pad[OUTPUT][f[2] + i * f[3] + j * f[4]] = (int8_t)(v < least ? least : v > most ? most : v);
    }
}

static void step(Machine *m, const Instruction *x, const Run *r)
{
  const int32_t *f = x->f;
  switch ((Operation)x->op) {
  case LOAD: load(m, x, r->data[x->tensor]); return;
  case FILL:
    for (int32_t i = 0; i < f[1]; i++) memset(&m->pad[x->pad][f[4] + i * f[5]], f[6], (size_t)f[2]);
    return;
  case STORE:
    for (int32_t i = 0; i < f[1]; i++)
      memcpy((char *)r->data[x->tensor] + f[0] + (int64_t)i * f[3], &m->pad[OUTPUT][f[4] + i * f[5]], (size_t)f[2]);
    return;
  case BIAS:
    for (int i = 0; i < TILE; i++) memcpy(m->tile[f[0]][i], numbers(m, f[1]), sizeof m->tile[0][0]);
    return;
  case PRODUCT: product(m, f); return;
  case RESCALE: rescale(m, f); return;
  }
}

static LatheRtCode run(const Run *r, LatheRtError *err)
{
  (void)err;
  Machine *m = (Machine *)(void *)(r->workspace + r->graph->own);
  for (int i = 0; i < r->graph->nkernel; i++) {
    const Stream *s = r->graph->kernel[i].state;
    for (int k = 0; k < s->n; k++) step(m, &s->instruction[k], r);
  }
  return LATHE_RT_OK;
}

static const Backend backend = {.kind = "npu", .prepare = prepare, .run = run, .drop = drop};
PLUGIN_TABLE(backend, "npu");
