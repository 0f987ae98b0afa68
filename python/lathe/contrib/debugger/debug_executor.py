"""The debug executor: time and result of every kernel, and where a result goes wrong.

>>> m = debug_executor.create(lib.get_graph_json(), lib, lathe.cpu(0), dump_root="dump")
>>> m.run(input=x)                    # prints a line for each kernel; tensors go to the folder
>>> agree, sentence = m.compare()     # each kernel against the reference interpreter"""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from ... import error
from ..._ffi import call
from ...runtime.model import Node, _Compiled
from ...runtime.ndarray import NDArray, array
from .. import graph_executor


class Row(NamedTuple):
    """One kernel call of a run: its node, seconds, shapes of what it gave."""

    index: int
    node: Node
    seconds: float
    shapes: List[Tuple[int, ...]]


class Report:
    """The kernel calls of a run, in order."""

    def __init__(self, rows: List[Row]):
        self.calls = rows

    @property
    def seconds(self) -> float:
        """Of all kernels together."""
        return sum(r.seconds for r in self.calls)

    def table(self, sort: bool = True, aggregate: bool = False, col_sums: bool = True) -> str:
        """A line for each kernel: microseconds, share, shapes, implementation, operators it computes."""
        rows, total = list(self.calls), self.seconds or 1.0
        if aggregate:
            by_name: Dict[str, Row] = {}
            for r in rows:
                old = by_name.get(r.node.name)
                by_name[r.node.name] = r if old is None else old._replace(seconds=old.seconds + r.seconds)
            rows = list(by_name.values())
        if sort:
            rows.sort(key=lambda r: -r.seconds)
        lines = [f"{'node':<40} {'us':>10} {'share':>7}  {'shape':<22} {'implementation':<20} operators"]
        for r in rows:
            shape = " ".join("x".join(map(str, s)) or "scalar" for s in r.shapes)
            lines.append(
                f"{r.node.name[:40]:<40} {r.seconds * 1e6:>10.1f} {r.seconds / total:>7.1%}  {shape[:22]:<22} {r.node.impl[:20]:<20} {r.node.source}"
            )
        if col_sums:
            lines.append(f"{'all':<40} {self.seconds * 1e6:>10.1f} {1:>7.1%}")
        return "\n".join(lines)

    __str__ = table


class GraphModuleDebug(graph_executor.GraphModule):
    """A graph executor that keeps what every kernel gave, and how long it took."""

    def __init__(self, module: Any, device: Any = None, graph_json_str: Any = None, dump_root: Optional[str] = None):
        super().__init__(module)
        self._nodes = self._executor._model.nodes()
        self._dump_root = pathlib.Path(dump_root) if dump_root is not None else None
        self._outputs: List[Tuple[int, List[NDArray]]] = []
        self.report = Report([])

    def run(self, quiet: bool = False, **input_dict: Any) -> None:  # type: ignore
        """Runs with every kernel watched, prints the table, writes the tensors to dump_root."""
        if input_dict:
            self.set_input(**input_dict)
        self._watch(keep=True)
        if self._dump_root is not None:
            self._dump()
        if not quiet:
            print(self.report)

    def _watch(self, keep: bool) -> None:
        rows: List[Row] = []
        outputs: List[Tuple[int, List[NDArray]]] = []

        def note(node: int, seconds: float, _inputs: Any, outs: List[NDArray]) -> None:
            rows.append(Row(node, self._nodes[node], seconds, [tuple(o.shape) for o in outs]))
            if keep:
                outputs.append((node, [array(o) for o in outs]))

        self._executor.watch(note)
        try:
            self._executor.run()
        finally:
            self._executor.watch(None)
        self.report = Report(rows)
        if keep:
            self._outputs = outputs

    def _dump(self) -> None:
        assert self._dump_root is not None
        os.makedirs(self._dump_root, exist_ok=True)
        for k, (node, outs) in enumerate(self._outputs):
            name = re.sub(r"[^\w.-]", "_", self._nodes[node].name)
            for i, a in enumerate(outs):
                np.save(
                    self._dump_root / f"{k:04d}_{name}__{i}.npy",
                    np.asarray(a.numpy(), dtype=None if a.dtype != "bfloat16" else "float32"),
                )
        (self._dump_root / "nodes.txt").write_text(self.report.table(sort=False) + "\n")

    def profile(self, collectors: Any = None, **input_dict: Any) -> Report:
        """Runs and gives the table, without keeping tensors."""
        if collectors:
            raise error.UnsupportedError("profile: there are no other collectors than time")
        if input_dict:
            self.set_input(**input_dict)
        self._executor.run()
        self._watch(keep=False)
        return self.report

    def run_individual(self, number: int = 1, repeat: int = 1, min_repeat_ms: int = 0, **_more: Any) -> List[float]:
        """Seconds of each kernel call, the mean of number * repeat runs."""
        runs = []
        for _ in range(max(1, number * repeat)):
            self._watch(keep=False)
            runs.append([r.seconds for r in self.report.calls])
        return [sum(column) / len(runs) for column in zip(*runs)]

    def debug_get_output(self, node: Union[int, str], out: Any = None) -> Any:
        """What a kernel gave in the last run, by its name or its place in the order."""
        found = [outs for i, outs in self._outputs if node in (i, self._nodes[i].name)]
        if not found:
            names = ", ".join(self._nodes[i].name for i, _ in self._outputs) or "none: call run() first"
            raise error.NotFoundError(f"there is no node '{node}' in the last run; there are {names}")
        a = found[0][0]
        return out.copyfrom(a) if out is not None else a

    get_node_output = debug_get_output

    def compare(self, rtol: float = 1e-4, atol: float = 1e-5, **input_dict: Any) -> Tuple[bool, str]:
        """Runs on the inputs that were set and compares each kernel with the reference interpreter:
        do all agree, and a sentence that names the first one that differs."""
        if input_dict:
            self.set_input(**input_dict)
        compiled = self._executor._model._keep
        if not isinstance(compiled, _Compiled):
            raise error.UnsupportedError(
                "compare: a model that was loaded from a file has no graph; compare the one it was exported from"
            )
        arrays = [self._executor.get_input(i) for i in range(len(self._executor.inputs))]
        agree, sentence = call(
            "compiled_compare", compiled, [ctypes.addressof(a.rt_tensor()) for a in arrays], float(rtol), float(atol)
        )
        return agree, sentence


def create(graph_json_str: Any, libmod: Any, device: Any = None, dump_root: Optional[str] = None) -> GraphModuleDebug:
    """A debug executor of a compiled library; the graph is part of it."""
    return GraphModuleDebug(
        libmod["default"](*([device] if device is not None else [])), device, graph_json_str, dump_root
    )
