"""AutoTVM's names: schedules that users write with knobs, and tuners that find good settings.

    @autotvm.template("matmul")
    def matmul(n): ...                  # asks autotvm.get_config() for what it leaves open

    task = autotvm.task.create("matmul", args=(512,), target="llvm")
    tuner = autotvm.tuner.XGBTuner(task)
    tuner.tune(64, autotvm.measure_option("local", "local"), callbacks=[autotvm.callback.log_to_file("m.log")])
    with autotvm.apply_history_best("m.log"), tvm.target.Target("llvm"):
        s, args = matmul(512)

Each configuration is built and run in a child process, and its numbers are compared with those of plain loops."""

from . import callback, graph_tuner, measure, record, space, task, tuner
from .measure import (
    LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, RPCRunner, create_measure_batch,
    measure_option,
)
from .record import ApplyGraphBest, ApplyHistoryBest, apply_graph_best, apply_history_best
from .space import (
    AnnotateEntity, ConfigEntity, ConfigSpace, FallbackConfigEntity, InstantiationError, OtherOptionEntity,
    ReorderEntity, SplitEntity,
)
from .task import ApplyConfig, DispatchContext, FallbackContext, Task, get_config, template
from .tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner

__all__ = [
    "AnnotateEntity", "ApplyConfig", "ApplyGraphBest", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext",
    "FallbackConfigEntity", "FallbackContext", "GATuner", "GridSearchTuner", "InstantiationError", "LocalBuilder",
    "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult", "OtherOptionEntity", "RPCRunner", "RandomTuner",
    "ReorderEntity", "SplitEntity", "Task", "Tuner", "XGBTuner", "apply_graph_best", "apply_history_best", "callback",
    "create_measure_batch", "get_config", "graph_tuner", "measure", "measure_option", "record", "space", "task",
    "template", "tuner",
]
