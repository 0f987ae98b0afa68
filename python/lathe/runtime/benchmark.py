"""What a measurement gives."""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np


class BenchmarkResult:
    """Seconds per call: `results` one for each repeat, and what follows from them."""

    def __init__(self, results: Sequence[float]):
        self.results: Tuple[float, ...] = tuple(results)

    mean = property(lambda self: float(np.mean(self.results)), doc="mean of the repeats")
    median = property(lambda self: float(np.median(self.results)), doc="median of the repeats")
    min = property(lambda self: float(np.min(self.results)), doc="fastest repeat")
    max = property(lambda self: float(np.max(self.results)), doc="slowest repeat")
    std = property(lambda self: float(np.std(self.results)), doc="standard deviation")

    def __repr__(self) -> str:
        return f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, std={self.std}, results={self.results})"

    def __str__(self) -> str:
        names = ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)")
        values = (self.mean, self.median, self.max, self.min, self.std)
        head = "".join(f"{n:^14}" for n in names)
        return f"Execution time summary:\n{head}\n" + "".join(f"{v * 1e3:^14.4f}" for v in values)
