"""Post-training quantization of ONNX files: what `lathe quantize` and `lathe compare` do.

Of modules: relay.quantize."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._ffi.core import call, callback_scope
from .runtime.ndarray import NDArray, as_ndarray

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[str, int, int], Any]

_ProgressFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def listener(progress: Optional[Progress]) -> Any:
    """A C function that hands stage, done and total on."""

    def run(_user: Any, value: Any) -> int:
        with callback_scope(value) as (said, failed):
            try:
                return int(bool(progress(*said)))  # type: ignore[misc]
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return None if progress is None else _ProgressFn(run)


def address(fn: Any) -> Optional[int]:
    """Of a C function; None for none."""
    return None if fn is None else ctypes.cast(fn, ctypes.c_void_p).value


def arrays(data: Any) -> Tuple[List[NDArray], List[Any]]:
    """Arrays by input name, or one array for the only input, as the compiler takes them; the former must outlive the
    call."""
    named = list(data.items()) if isinstance(data, Mapping) else [(None, data)]
    kept = [as_ndarray(v) for _, v in named]
    return kept, [[name, ctypes.addressof(a.rt_tensor())] for (name, _), a in zip(named, kept)]


@dataclasses.dataclass(frozen=True)
class Report:
    """What quantization did: str() is the table that the command prints, the fields those of its --json."""

    text: str
    layers: List[Dict[str, Any]]
    quantized: int
    samples: int
    calibration_samples: int
    labelled: bool
    equalised: bool
    bias_corrected: bool
    snr: float
    float_accuracy: float
    accuracy: float
    float_bytes: int
    bytes: int

    def __str__(self) -> str:
        return self.text


def quantize_onnx(
    model: Path,
    data: Union[Any, Mapping[str, Any]],
    output: Path,
    *,
    labels: Optional[Sequence[int]] = None,
    calibrate: str = "percentile",
    percentile: Optional[float] = None,
    accuracy_drop: Optional[float] = None,
    samples: Optional[int] = None,
    skip: Sequence[str] = (),
    progress: Optional[Progress] = None,
) -> Report:
    """Writes the ONNX model with QuantizeLinear and DequantizeLinear around its layers.

    data: arrays by input name, or one for the only input; the first axis counts samples.  labels: the right class of
    each.  calibrate: "percentile", "kl" or "minmax".  accuracy_drop: the share of samples (0.01) that may get a wrong
    answer for a right one; layers stay in float until it holds.  samples: how many of them scales are found with.
    skip: names of nodes that stay in float.  progress(stage, done, total) stops it by a true answer."""
    kept, given = arrays(data)
    options: List[Any] = [["calibrate", calibrate], ["percentile", percentile], ["accuracy_drop", accuracy_drop]]
    options += [["samples", samples], ["skip", ",".join(skip) or None]]
    right = None if labels is None else [int(v) for v in labels]
    fn = listener(progress)
    text, rows = call(
        "onnx_quantize", os.fspath(model), os.fspath(output), given, options, right, address(fn)
    )
    del kept
    return Report(text, **json.loads(rows))


def compare_onnx(
    model: Path, other: Path, data: Union[Any, Mapping[str, Any]], *, progress: Optional[Progress] = None
) -> List[Dict[str, Any]]:
    """Runs two ONNX models of one network on the data: name, op, snr (dB) and max_difference of each tensor that both
    have."""
    kept, given = arrays(data)
    fn = listener(progress)
    rows: List[Dict[str, Any]] = json.loads(
        call("onnx_compare", os.fspath(model), os.fspath(other), given, address(fn))[1]
    )
    del kept
    return rows
