"""What a tuner tells after each batch: into a log, onto the screen."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Sequence, Union

from . import record
from .measure import MeasureInput, MeasureResult


def log_to_file(file_out: Union[str, "os.PathLike[str]", Any], protocol: str = "json") -> Callable[..., None]:
    """Appends each measurement to a file."""

    def callback(_tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = "".join(record.encode(i, r, protocol) + "\n" for i, r in zip(inputs, results))
        if hasattr(file_out, "write"):
            file_out.write(lines)
        else:
            with open(file_out, "a", encoding="utf-8") as f:
                f.write(lines)

    return callback


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callable[..., None]:
    """Shows the rate of the last measurement, the best, how many are through, and the seconds."""
    unit = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[si_prefix]
    state = {"now": 0.0, "best": 0.0, "n": 0, "start": time.time()}

    def callback(tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results):
            state["n"] += 1
            if res.error_no == 0:
                state["now"] = inp.task.flop / record._cost(res)
                state["best"] = max(state["best"], state["now"])
        sys.stderr.write(
            f"\r{prefix} Current/Best: {state['now'] / unit:7.2f}/{state['best'] / unit:7.2f} {si_prefix}FLOPS |"
            f" Progress: ({state['n']}/{total}) | {time.time() - state['start']:.2f} s"
        )
        if state["n"] >= total:
            sys.stderr.write(" Done.\n")
        sys.stderr.flush()

    return callback


class Monitor:
    """Keeps the rates of all measurements."""

    def __init__(self) -> None:
        self.scores: list = []
        self.timestamps: list = []

    def __call__(self, _tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results):
            self.scores.append(inp.task.flop / record._cost(res) if res.error_no == 0 else 0)
            self.timestamps.append(res.timestamp)

    def reset(self) -> None:
        """Forgets them."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> list:
        """Operations a second of each measurement; 0: it failed."""
        return list(self.scores)
