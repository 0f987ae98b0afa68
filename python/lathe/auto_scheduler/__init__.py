"""Ansor's names: tensor expressions without a template, and networks, tuned by Lathe's one engine.

    @auto_scheduler.register_workload
    def matmul(n): ...                        # gives its tensors, the output last

    task = auto_scheduler.SearchTask(func=matmul, args=(512,), target="llvm")
    keep = auto_scheduler.RecordToFile("m.json")
    task.tune(auto_scheduler.TuningOptions(num_measure_trials=64, measure_callbacks=[keep]))
    sch, args = task.apply_best("m.json")
    func = tvm.build(sch, args, "llvm")

Each schedule is built and run in a child process, and its numbers are compared with those of the program itself."""

from .compute_dag import ComputeDAG
from .measure_record import (
    MeasureInput, MeasureResult, RecordReader, dump_record_to_string, load_best_record, load_record_from_string,
    load_records, save_records,
)
from .relay_integration import ApplyHistoryBest, TaskScheduler, extract_tasks
from .search_task import (
    HardwareParams, LocalBuilder, LocalRPCMeasureContext, LocalRunner, PreloadMeasuredStates, RecordToFile, SearchTask,
    SketchPolicy, TuningOptions, XGBModel, create_task, make_workload_key, register_workload,
)

__all__ = [
    "ApplyHistoryBest", "ComputeDAG", "HardwareParams", "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner",
    "MeasureInput", "MeasureResult", "PreloadMeasuredStates", "RecordReader", "RecordToFile", "SearchTask",
    "SketchPolicy", "TaskScheduler", "TuningOptions", "XGBModel", "create_task", "dump_record_to_string",
    "extract_tasks", "load_best_record", "load_record_from_string", "load_records", "make_workload_key",
    "register_workload", "save_records",
]
