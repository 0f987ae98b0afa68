"""tvmc tune: the kernels of a model, into a file of records that compile takes."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, Optional

from ... import error
from .compiler import convert_layout, target_text
from .model import TVMCModel


def tune_model(
    tvmc_model: TVMCModel,
    target: Any,
    tuning_records: Optional[str] = None,
    prior_records: Optional[str] = None,
    enable_autoscheduler: bool = False,
    rpc_key: Optional[str] = None,
    hostname: Optional[str] = None,
    port: Any = 9090,
    trials: int = 10000,
    target_host: Any = None,
    tuner: str = "xgb",
    min_repeat_ms: Optional[int] = None,
    early_stopping: Optional[int] = None,
    timeout: int = 10,
    repeat: int = 1,
    number: int = 10,
    parallel: int = 4,
    hardware_params: Any = None,
    include_simple_tasks: bool = False,
    log_estimated_latency: bool = False,
    additional_target_options: Optional[Dict[str, Dict[str, Any]]] = None,
    tasks_filter: Optional[str] = None,
    desired_layout: Any = None,
    desired_layout_ops: Any = None,
    **more: Any,
) -> str:
    """Measures other plans for the model's kernels, at most so many; the path of the records, a database of Lathe's.

    Records of an earlier run (prior_records, or what tuning_records holds) are not measured again.  How measurements
    are made is Lathe's own: tuner, repeat, number, timeout and parallel change nothing."""
    from ... import tuning
    from ...ir.transform import PassContext

    refused = {"rpc_key": rpc_key, "hostname": hostname, "tasks_filter": tasks_filter, **more}
    for name, value in refused.items():
        if value:
            raise error.UnsupportedError(f"tvmc tune: {name} is not supported; leave it out")
    path = tuning_records or os.path.join(tempfile.mkdtemp(prefix="lathe-"), "tuning_records.db")
    if prior_records and os.path.abspath(prior_records) != os.path.abspath(path):
        tuning.Database(path).merge(prior_records)
    text = target_text(target, additional_target_options)
    if not isinstance(text, str):
        raise error.UnsupportedError("tvmc tune: one target at a time")
    mod = tvmc_model.mod
    with PassContext(opt_level=3):
        if desired_layout:
            mod = convert_layout(mod, desired_layout, desired_layout_ops)
        tuning.tune(mod, text, database=path, trials=trials, resume=True, params=tvmc_model.params)
    return path
