"""What is done after each batch.  One of one's own is a class with apply(…)."""

from __future__ import annotations

import os
import shutil
from typing import Any, List, Sequence

from .database import TuningRecord, Workload
from .search_strategy import text_of
from .utils import Part, absent


class MeasureCallback(Part):
    """A callback."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: Sequence[Any], builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:  # fmt: skip
        """Called after each batch."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "default") -> List["MeasureCallback"]:
        """The usual ones."""
        return [AddToDatabase(), RemoveBuildArtifact(), UpdateCostModel()]


PyMeasureCallback = MeasureCallback


class AddToDatabase(MeasureCallback):
    """Everything that was measured goes to the database, failures too."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: Sequence[Any], builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:  # fmt: skip
        if task_scheduler.database is None:
            return
        ctx = task_scheduler.tasks_[task_id].ctx
        workload = task_scheduler.database.commit_workload(ctx.mod, ctx.target)
        if not isinstance(workload, Workload):
            workload = Workload(ctx.mod, ctx.target)
        for c, r in zip(measure_candidates, runner_results):
            made = TuningRecord(
                text_of(c.sch), workload.name, r.run_secs or [], str(ctx.target), r.base_secs, r.error_msg or ""
            )
            task_scheduler.database.commit_tuning_record(made)


class RemoveBuildArtifact(MeasureCallback):
    """Files that were built go."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: Sequence[Any], builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:  # fmt: skip
        for r in builder_results:
            folder = os.path.dirname(r.artifact_path or "")
            if os.path.basename(folder).startswith("lathe-tune-"):
                shutil.rmtree(folder, ignore_errors=True)


class UpdateCostModel(MeasureCallback):
    """The cost model learns."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: Sequence[Any], builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:  # fmt: skip
        if task_scheduler.cost_model is not None:
            ctx = task_scheduler.tasks_[task_id].ctx
            task_scheduler.cost_model.update(ctx, measure_candidates, runner_results)


globals()["__getattr__"] = absent(
    "measure_callback", "AddToDatabase, RemoveBuildArtifact, UpdateCostModel and your own"
)
