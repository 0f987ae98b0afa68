/* tile.c: register tiles: how large, how fast, how many steps of the sum are written out.
 *
 * A tile holds o blocks of `vectors` vectors for each of y * x positions: o * y * x * vectors sums in
 * registers.  One step of the sum loads y * x elements, broadcast, and o * vectors vectors. */
#include "impl/internal.h"

/* Where a multiply-add takes one element of a vector, as many steps as a vector has elements share a load. */
static double elements_loaded(const Target *t, Tile k)
{
  return (double)(k.y * k.x) / (t->broadcast_load ? 1 : target_lanes(t, 32));
}

/* Cycles of one step of the sum.  A sum's next step waits for the multiply-add before it; the step's vectors come from
 * the second-level cache. */
static double step_cycles(const Target *t, int64_t vectors, Tile k)
{
  /* the loop itself; what does not overlap, for each vector */
  static const double LOOP = 1;
  static const double WAIT = 0.3;
  double sums = (double)(k.o * k.y * k.x * vectors);
  double weights = (double)(k.o * vectors);
  double loads = elements_loaded(t, k) + weights;
  double cycles = sums / cost_pipes(t);
  double latency = t->core.fma_latency + 0.5;
  if (loads / cost_loads(t) > cycles) cycles = loads / cost_loads(t);
  if (latency > cycles) cycles = latency;
  if (cost_far(t) * weights > cycles) cycles = cost_far(t) * weights;
  return cycles + LOOP + WAIT * weights;
}

/* Share of the peak that a tile reaches over oy * ox positions, the smaller tiles at the edges
 * included.  Registers hold the sums, the step's vectors, the element on its way. */
double tile_speed(const Target *t, int64_t vectors, int64_t oy, int64_t ox, Tile k)
{
  int64_t sums = k.o * k.y * k.x * vectors;
  if (sums > t->vector_registers - 4 || sums + k.o * vectors + 2 > t->vector_registers) return 0;
  int64_t ny = oy / k.y;
  int64_t nx = ox / k.x;
  int64_t ry = oy % k.y;
  int64_t rx = ox % k.x;
  double cycles = (double)(ny * nx) * step_cycles(t, vectors, k);
  if (rx) cycles += (double)ny * step_cycles(t, vectors, (Tile){k.o, k.y, rx});
  if (ry) cycles += (double)nx * step_cycles(t, vectors, (Tile){k.o, ry, k.x});
  if (rx && ry) cycles += step_cycles(t, vectors, (Tile){k.o, ry, rx});
  return (double)(k.o * oy * ox * vectors) / cost_pipes(t) / cycles * (rx ? 0.97 : 1) * (ry ? 0.97 : 1);
}

/* Multiply-adds, or the loads, or a sum that waits for its last step; and what the loads take beside that.  Fitted on a
 * Neoverse-N1. */
double tile_packed_speed(const Target *t, int bits, int64_t elements, int64_t vectors)
{
  static const double STEP = 0.1;
  static const double LOAD = 0.1; /* cycles that do not overlap */
  double sums = (double)(elements * vectors) / cost_pipes(t);
  double loads = (double)vectors + (double)elements / (t->broadcast_load ? 1 : target_lanes(t, bits));
  double cycles = sums;
  if (cost_chain(t) > cycles) cycles = cost_chain(t);
  if (loads / cost_loads(t) > cycles) cycles = loads / cost_loads(t);
  return sums / (cycles + STEP + LOAD * loads);
}

int tile_list(const Target *t, int bits, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox, int most, Tile *out)
{
  Target fewer = *t;
  double speeds[TILE_LIST];
  int n = 0;
  /* An element of float16 to multiply by comes from the lower half of the registers: fewer of them serve. */
  if (bits == 16 && !t->broadcast_load) fewer.vector_registers -= 4;
  for (int64_t o = 1; o <= 4 && o <= blocks; o++)
    for (int64_t y = 1; y <= 4 && y <= oy; y++)
      for (int64_t x = 1; x <= ox && x <= fewer.vector_registers; x++) {
        if (blocks % o || (oy % y && x != ox)) continue; /* tails on one side only */
        /* Vectors of elements stay in registers for several steps. */
        if (!t->broadcast_load && (o * vectors + 1) * (y * x + 1) + 1 > fewer.vector_registers && o * y * x > 1)
          continue;
        double speed = tile_speed(&fewer, vectors, oy, ox, (Tile){o, y, x});
        if (speed <= 0 && o * y * x > 1) continue;
        int at = n < most ? n++ : most;
        while (at > 0 && speed > speeds[at - 1]) {
          if (at < most) speeds[at] = speeds[at - 1], out[at] = out[at - 1];
          at--;
        }
        if (at < most) speeds[at] = speed, out[at] = (Tile){o, y, x};
      }
  return n;
}

Tile tile_best(const Target *t, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox)
{
  Tile best = {1, 1, 1};
  double top = 0;
  for (int64_t o = 1; o <= 4 && o <= blocks; o++)
    for (int64_t y = 1; y <= 4 && y <= oy; y++)
      for (int64_t x = 1; x <= ox && x <= t->vector_registers; x++) {
        if (blocks % o || (oy % y && x != ox)) continue; /* tails on one side only */
        /* Vectors of elements stay in registers for several steps. */
        if (!t->broadcast_load && (o * vectors + 1) * (y * x + 1) + 1 > t->vector_registers) continue;
        double speed = tile_speed(t, vectors, oy, ox, (Tile){o, y, x});
        if (speed <= top) continue;
        top = speed;
        best = (Tile){o, y, x};
      }
  return best;
}

/* An element of float16 to multiply by comes from the lower half of the registers: fewer of them serve. */
Tile tile_for(const Target *t, int bits, int64_t vectors, int64_t blocks, int64_t oy, int64_t ox)
{
  Target fewer = *t;
  if (bits == 16 && !t->broadcast_load) fewer.vector_registers -= 4;
  return tile_best(&fewer, vectors, blocks, oy, ox);
}

/* As many steps as give some hundred multiply-adds. */
int64_t tile_steps(const Target *t, int64_t sums, int64_t extent)
{
  int64_t most = sums > 64 || tile_steps_dear(t) ? 1 : 128 / sums;
  for (int64_t f = most < extent ? most : extent; f > 1; f--)
    if (extent % f == 0) return f;
  return 1;
}

/* The same for a tile.  Elements that are loaded as vectors are loaded for all the steps written out: where registers
 * do not hold them beside the sums, one vector for each position must do. */
int64_t tile_steps_of(const Target *t, Tile k, int64_t vectors, int64_t extent)
{
  int64_t positions = k.y * k.x;
  int64_t sums = k.o * positions * vectors;
  int64_t steps = tile_steps(t, sums, extent);
  int64_t lanes = target_lanes(t, 32);
  if (tile_steps_dear(t) && !t->broadcast_load) return extent % lanes ? 1 : lanes;
  bool held =
      t->broadcast_load || sums + positions * ((steps + lanes - 1) / lanes) + k.o * vectors < t->vector_registers;
  return held || steps <= lanes || extent % lanes ? steps : lanes;
}

/* Multiply-adds in the time of one, for a tile of h x w sums in 2 x 2 blocks; 0: registers do not hold it.  A step
 * loads a vector for two rows or two columns. */
static double block_speed(const Target *t, int64_t h, int64_t w, int64_t rows)
{
  static const double WAIT = 0.3; /* cycles of a vector on its way that do not overlap */
  int64_t sums = h * w / 4;
  int64_t least = h < w ? h / 2 : w / 2;
  if (sums + least + 2 > t->vector_registers) return 0;
  double cycles = (double)sums / cost_pipes(t);
  double latency = t->core.fma_latency + 0.5;
  double used = (double)rows / (double)((rows + h - 1) / h * h);
  return used * (double)sums / ((cycles > latency ? cycles : latency) + WAIT * (double)(h + w) / 2);
}

bool tile_blocks_pay(const Target *t)
{
  return target_block_dot(t, DOT_BF16, DOT_BF16) && target_lanes(t, 32) == 4 && cost_words(t, 4) > cost_words(t, 2);
}

int64_t tile_block_rows(const Target *t, int64_t width, int64_t panels, int64_t rows)
{
  /* columns that share a copy; two rows wait for their weights as pairs do */
  enum { SERVED = 64, LEAST = 3 };
  int64_t best = 0;
  double top = 0;
  if (!tile_blocks_pay(t) || width % 4 || panels * width < SERVED || rows < LEAST) return 0;
  for (int64_t h = 2; h <= rows + 1; h += 2) {
    double speed = block_speed(t, h, width, rows);
    if (speed <= top) continue;
    top = speed;
    best = h;
  }
  return best;
}
