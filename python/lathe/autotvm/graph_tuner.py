"""Plans of a whole network from the times of its kernels: a kernel's best plan depends on how its neighbours' data lie.

    executor = DPTuner(mod["main"], {"data": (1, 3, 224, 224)}, "kernels.log", [relay.op.get("nn.conv2d")], target)
    executor.benchmark_layout_transform(min_exec_num=2000)
    executor.run()
    executor.write_opt_sch2record_file("graph.log")
    with autotvm.apply_graph_best("graph.log"):
        lib = relay.build(mod, target=target, params=params)

The choice is the one that the passes of a compilation make (ChoosePlans), with measured seconds in the place of
predicted ones."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .. import error
from .._ffi import call
from .._ir.transform import PassContext
from ..relay import build_module
from ..target import resolve
from . import record
from .measure import MeasureErrorNo
from .space import ConfigEntity, OtherOptionEntity


def _with_weights(graph: Any, inputs: Dict[str, Any]) -> Any:
    """Parameters that are no inputs are weights: constants, whose values no choice depends on."""
    mod = build_module.as_module(graph)
    weights = {}
    for p in mod["main"].params:
        if p.name_hint not in inputs:
            t = p.type_annotation
            weights[p.name_hint] = np.zeros([int(d) for d in t.shape], t.dtype)
    return build_module.as_module(mod, weights)


class BaseGraphTuner:
    """What the two have in common, which is all."""

    def __init__(
        self,
        graph: Any,
        input_shapes: Dict[str, Any],
        records: Any,
        target_ops: Sequence[Any],
        target: Any,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: Optional[str] = None,
        log_level: Any = None,
        name: str = "graph_tuner",
    ):
        self.graph, self.target = _with_weights(graph, input_shapes), resolve(target)
        names = {getattr(op, "name", op) for op in target_ops}
        self.known = record.ApplyHistoryBest(records)
        self.known.plans = {w: t for w, t in self.known.plans.items() if w.rsplit("-", 1)[0] in names}
        if not self.known.plans:
            raise error.ArgumentError("graph_tuner: the records have no kernel of these operators that was measured")
        self.max_sch_num = max_sch_num
        self.chosen: Dict[str, str] = {}

    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        use_rpc: bool = False,
        device_key: Any = None,
        host: str = "127.0.0.1",
        port: int = 9190,
        n_parallel: int = 1,
        build_func: str = "default",
        layout_records: Any = None,
        target_host: Any = None,
        infer_layout: bool = False,
        runner: Any = None,
    ) -> None:
        """Nothing is measured: what a change of layout costs is predicted from its bytes and the target's memory."""
        if use_rpc:
            raise error.UnsupportedError("graph_tuner: nothing is measured on other machines (use_rpc=False)")

    def run(self, **_kwargs: Any) -> None:
        """Chooses."""
        lines: List[str] = []
        for workload, times in self.known.plans.items():
            best = sorted(times, key=lambda p: times[p])[: self.max_sch_num]  # pylint: disable=cell-var-from-loop
            lines += [f"{workload} {plan} {times[plan]:.6g}" for plan in best]
        with PassContext(opt_level=3, config={"lathe.tuned": "\n".join(lines) + "\n", "lathe.plans.log": True}):
            lib = build_module.build(self.graph, target=self.target)
        self.chosen = {}
        workload = ""
        for line in call("compiled_plans_text", lib._compiled).splitlines():
            if line[:1] not in ("*", " "):
                workload = line.split(" ")[0]
            elif line.startswith("* ") and workload in self.known.plans:
                self.chosen[workload] = line.split(" ", 2)[2]

    def get_optimal_records(self) -> List[Any]:
        """Workload and plan of each kernel."""
        return list(self.chosen.items())

    def write_opt_sch2record_file(self, record_file: str = "graph_opt_schedule.log") -> None:
        """Writes a line of AutoTVM for each kernel."""
        if not self.chosen:
            raise error.ArgumentError("graph_tuner: run() comes first")
        with open(record_file, "a", encoding="utf-8") as f:
            for workload, plan in self.chosen.items():
                base = self.known.base[workload]
                config = ConfigEntity(0, {"plan": OtherOptionEntity(plan), "base": OtherOptionEntity(base)})
                cost = self.known.plans[workload].get(plan, 0.0)
                row = {
                    "input": [str(self.target), workload.rsplit("-", 1)[0], [workload], {}],
                    "config": config.to_json_dict(),
                    "result": [[cost], int(MeasureErrorNo.NO_ERROR), 0.0, time.time()],
                    "version": record.VERSION,
                    "tvm_version": "lathe",
                }
                f.write(json.dumps(row) + "\n")


class DPTuner(BaseGraphTuner):
    """TVM's by dynamic programming; the choice here is the same for both."""


class PBQPTuner(BaseGraphTuner):
    """TVM's for graphs with many branches; the choice here is the same for both."""
