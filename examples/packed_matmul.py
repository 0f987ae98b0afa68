"""A matrix product level with the libraries, written only with schedule primitives.

C is cut into register tiles of MR rows and NR columns.  B is copied into panels, so that the
innermost loop reads it straight ahead; a panel or more of B stays in the second-level cache
while all of A passes by, and a tile of C stays in registers from the first step of the sum
to the last.  A is copied too where a multiplication takes its factor from a lane of a vector
(NEON): a panel gives it several rows in one load.  Where an element is spread over a vector
as it is loaded, its rows may lie where they are.

    for ko                          KC steps of the sum: one round, unless a panel would be too long
      copy B[ko, :] into panels of KC x NR                  (parallel)
      copy A[:, ko] into panels of KC x MR                  (parallel; NEON)
      for io, jo                    blocks of C             (parallel)
        or copy B[ko, jo] here: blocks that have all rows
        for im, jm                  register tiles
          for ki                    tile[MR, NR] += A[MR] * B[NR], unrolled and vectorized;
                                    the panels' lines some way further on are asked for
          store the tile

The sizes come from the target: its registers give MR and NR, its caches KC and the columns of a
block; the blocks are shared out evenly among the threads.
"""
from typing import Any, Sequence

from lathe import te, tir


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


UNROLL = 4              # steps of the sum written out
NEAR, FAR = (
    1280,
    4096,
)  # bytes to fetch ahead: for the second-level cache to answer; behind the page that fetches itself


class Blocking:
    """Sizes of tiles and blocks for a target and a problem."""

    def __init__(self, target: Any, M: int, N: int, K: int, threads: int = 1) -> None:
        self.K = K
        lanes = target.vector_width // 32
        # Three quarters of the registers hold the tile; the rest feeds it.  Wide tiles take
        # fewer loads a step than tall ones; one that divides the columns leaves no tail.
        # Rows that are lanes of a vector come in whole vectors.
        self.pack_a = target.vector_width == 128
        widths = (2, 3) if self.pack_a or target.vector_registers < 32 else (3, 4, 2)
        columns = next((w for w in widths if N % (w * lanes) == 0), widths[0])
        self.NR = columns * lanes
        self.MR = target.vector_registers * 3 // 4 // columns
        # MR rows of A, KC long, are no more than the first-level cache holds while panels of B
        # pass by, one of which is at home in half of the second.  Panels that are asked for ahead need
        # the second alone.
        fits = min(target.l1_bytes // (4 * self.MR), target.l2_bytes // 2 // (4 * self.NR))
        if self.pack_a:
            fits = target.l2_bytes // 4 // (4 * (self.MR + self.NR))
        rounds = ceil_div(K, fits)
        self.KC = ceil_div(ceil_div(K, rounds), UNROLL) * UNROLL
        tiles_m, tiles_n = ceil_div(M, self.MR), ceil_div(N, self.NR)
        # threads = down * across, each with about as many tiles as the others; of such ways
        # the one that reads the least: A once for each across, B once for each down; of two such the wider.
        ways = [
            (n, ceil_div(tiles_n, n) * ceil_div(tiles_m, threads // n))
            for n in range(1, threads + 1)
            if threads % n == 0
        ]
        even = min(share for _, share in ways) * 1.04
        across = min((n for n, share in ways if share <= even), key=lambda n: (M * n + N * (threads // n), -n))
        share = ceil_div(tiles_n, across)
        fit = max(1, target.l2_bytes // 2 // (4 * self.KC * self.NR))
        self.block_n = ceil_div(share, ceil_div(share, fit))
        # A few blocks a thread, none too small: a slower core leaves some to the others.
        rows = ceil_div(tiles_m, threads // across)
        blocks = 1 if threads == 1 else ceil_div(4 * threads, ceil_div(tiles_n, self.block_n) * (threads // across))
        self.block_m = max(ceil_div(rows, blocks), min(rows, 6))
        # A block that has all rows is the only one to read its part of B: that is copied just before, and lies in
        # the second-level cache (1 % slower beside a packed A).
        self.late = self.block_m >= tiles_m and not self.pack_a


def declare(M: int, N: int, K: int) -> tir.PrimFunc:
    """A (M, K) times B (K, N), as a loop program."""
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def declare_prepacked(M: int, N: int, K: int, NR: int) -> tir.PrimFunc:
    """The same with B given in panels of NR columns, (N/NR, K, NR), as weights are kept."""
    panels = ceil_div(N, NR)
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((panels, K, NR), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[j // NR, k, j % NR], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def pack_b(b: Any, NR: int) -> Any:
    """numpy: B (K, N) as panels (N/NR, K, NR), the last one filled up with zeros."""
    import numpy as np

    K, N = b.shape
    panels = ceil_div(N, NR)
    padded = np.zeros((K, panels * NR), b.dtype)
    padded[:, :N] = b
    return np.ascontiguousarray(padded.reshape(K, panels, NR).transpose(1, 0, 2))


def pack(
    sch: tir.Schedule, block: tir.BlockRV, operand: int, axis: int, tile: int, around: Sequence[tir.LoopRV]
) -> Any:
    """Copies an operand of the block into panels of `tile` along an axis, inside the last of the loops `around`:
    [panel, k, position in the panel].  Gives the copy's three loops in that order."""
    panel = sch.cache_read(block, operand, "global")
    layout = (lambda p, q: (p // tile, q, p % tile)) if axis == 0 else (lambda p, q: (q // tile, p, q % tile))
    sch.transform_layout(block, ("read", operand), layout, pad_value=0.0)
    sch.compute_at(panel, around[-1])
    loops = sch.get_loops(panel)[len(around):]
    if len(loops) == 3:                      # the tiles do not fit evenly: it runs over padded panels already
        return loops
    outer, inner = sch.split(loops[axis], [None, tile])
    sch.reorder(outer, loops[1 - axis], inner)
    return outer, loops[1 - axis], inner


def schedule(func: tir.PrimFunc, size: Blocking, prepacked: bool = False) -> tir.Schedule:
    """Applies the plan above to a function of `declare` or `declare_prepacked`."""
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, im, ii = sch.split(i, [None, size.block_m, size.MR])
    jo, jm, ji = sch.split(j, [None, size.block_n, size.NR])
    ko, ki = sch.split(k, [None, size.KC])
    sch.reorder(ko, io, jo, im, jm, ki, ii, ji)
    blocks = sch.fuse(io, jo)

    if not prepacked:
        panel, row, inner = pack(sch, block, 1, 1, size.NR, [ko, blocks] if size.late else [ko])
        some, rows = sch.split(row, [None, 8])            # a few rows of B, from left to right
        sch.reorder(some, panel, rows, inner)
        sch.vectorize(inner)
        if not size.late:
            sch.parallel(some)
    if size.pack_a:
        panel, row, inner = pack(sch, block, 0, 0, size.MR, [ko])
        row, line = sch.split(row, [None, 4])             # squares of A, turned round in registers
        inner, lane = sch.split(inner, [None, 4])
        sch.reorder(panel, row, inner, line, lane)
        sch.unroll(inner)
        sch.unroll(line)
        sch.vectorize(lane)
        sch.parallel(panel)

    one_round = size.KC >= size.K
    if one_round:                       # the tile lives in registers from the first step to the last
        tile = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(tile, jm)
        rows, columns = sch.get_loops(tile)[-2:]
        sch.unroll(rows)
        sch.vectorize(columns)
    ki, step = sch.split(ki, [None, UNROLL])
    for loop in (step, ii):
        sch.unroll(loop)
    sch.vectorize(ji)
    sch.parallel(blocks)
    sch.decompose_reduction(block, ki if one_round else ko)
    # Waiting multiplications leave a NEON core little room to look ahead by itself.
    ahead = NEAR if size.pack_a else FAR
    for operand, width in ((1, size.MR), (2, size.NR))[0 if size.pack_a else 1:]:
        sch.prefetch(block, operand, step, ceil_div(ahead, 4 * width))
    if not one_round:                   # the next tile of C
        sch.prefetch(block, 0, jm, 1)
    return sch
