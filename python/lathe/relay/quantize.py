"""Post-training quantization of modules: quantize(mod, params, dataset) under a qconfig, with TVM's names.

What comes out is in qnn operators, with integers between them, and is built like any other module.  Of ONNX files:
lathe.quantize and `lathe quantize`."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from .. import error
from .._ffi.core import call
from .._ir.module import IRModule
from .._ir.transform import PassContext
from ..quantize import address, arrays, listener, Progress
from .build_module import as_module

_MODES = {"global_scale": None, "kl_divergence": "kl", "percentile": "percentile", "minmax": "minmax"}
_TVM_PERCENTILE = 99.999
_local = threading.local()


@dataclasses.dataclass
class QConfig:
    """How to quantize: a context for quantize().

    Activations have nbit_input bits in dtype_input (int8 or uint8), weights nbit_weight bits in int8, a scale for each
    output channel.  calibrate_mode: "global_scale" (every activation reaches global_scale), "kl_divergence",
    "percentile" or "minmax", which look at the dataset.  weight_scale: "max" or "power2".  skip_conv_layers:
    convolutions that stay in float, counted from 0; skip_dense_layer: so do matrix products.  do_simulation: floats
    that behave as the integers would.  rounding: of requantize."""

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Optional[List[int]] = dataclasses.field(default_factory=lambda: [0])
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Optional[List[str]] = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def __post_init__(self) -> None:
        """Refuses what no quantization could do, and says what has no effect here."""
        _one_of("calibrate_mode", self.calibrate_mode, tuple(_MODES))
        _one_of("weight_scale", self.weight_scale, ("max", "power2"))
        _one_of("rounding", self.rounding, ("UPWARD", "TONEAREST"))
        _one_of("dtype_input", self.dtype_input, ("int8", "uint8"))
        _one_of("dtype_weight", self.dtype_weight, ("int8",))
        _one_of("partition_conversions", self.partition_conversions, ("disabled", "enabled", "fully_integral"))
        for name, least in (("nbit_input", 2), ("nbit_weight", 2)):
            if not least <= getattr(self, name) <= 8:
                raise error.ArgumentError(f"{name} is a number of bits from 2 to 8, not {getattr(self, name)}")
        if not self.global_scale > 0:
            raise error.ArgumentError(f"global_scale is above zero, not {self.global_scale}")
        if self.partition_conversions != "disabled":
            raise error.UnsupportedError(
                f"partition_conversions={self.partition_conversions!r}: the module is not cut into functions; its "
                "qnn.quantize and qnn.dequantize stand where integers begin and end"
            )
        for name in _WHY:
            if getattr(self, name) != _DEFAULTS.get(name, getattr(self, name)):
                warnings.warn(f"qconfig: {name}={getattr(self, name)!r} changes nothing: {_WHY[name]}", stacklevel=3)

    def __enter__(self) -> "QConfig":
        _stack().append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _stack().pop()


_DEFAULTS: Dict[str, Any] = {f.name: f.default for f in dataclasses.fields(QConfig)}
_WHY = {
    "nbit_activation": "sums of products are int32",
    "dtype_activation": "sums of products are int32",
    "round_for_shift": "rescaling rounds as `rounding` says",
    "debug_enabled_ops": "what has an integer form gets it",
    "calibrate_chunk_by": "no more than the values of one run are in memory",
}


def _one_of(name: str, value: str, words: Tuple[str, ...]) -> None:
    if value not in words:
        raise error.ArgumentError(f"{name} is {', '.join(words[:-1])} or {words[-1]}, not {value!r}"
                                  if len(words) > 1 else f"{name} is {words[0]}, not {value!r}")  # fmt: skip


def _stack() -> List[QConfig]:
    if not hasattr(_local, "stack"):
        _local.stack = [QConfig()]
    stack: List[QConfig] = _local.stack
    return stack


def current_qconfig() -> QConfig:
    """The innermost one."""
    return _stack()[-1]


def qconfig(**kwargs: Any) -> QConfig:
    """A configuration for quantize(), as a context:  with qconfig(calibrate_mode="percentile"): …"""
    known = [f.name for f in dataclasses.fields(QConfig)]
    for name in kwargs:
        if name not in known:
            near = call("nearest", name, known)
            hint = f"; did you mean {known[near]!r}?" if near is not None else ""
            raise error.ArgumentError(f"qconfig has no {name!r}{hint}")
    return QConfig(**kwargs)


def _data(dataset: Optional[Iterable[Mapping[str, Any]]]) -> Tuple[List[Any], List[Any]]:
    kept: List[Any] = []
    given: List[Any] = []
    for batch in dataset or ():
        if not isinstance(batch, Mapping):
            raise error.TypeError("a dataset is a list of dictionaries: an array for each input's name")
        arrays_of, rows = arrays(batch)
        kept += arrays_of
        given += rows
    return kept, given


def quantize(
    mod: Any,
    params: Optional[Mapping[str, Any]] = None,
    dataset: Optional[Iterable[Mapping[str, Any]]] = None,
    *,
    progress: Optional[Progress] = None,
) -> IRModule:
    """The module in integers, as current_qconfig() says.

    dataset: dictionaries of arrays by input name; modes other than global_scale find their scales on it."""
    cfg = current_qconfig()
    mode = _MODES[cfg.calibrate_mode]
    kept, given = _data(dataset)
    if mode is not None and not given:
        raise error.ArgumentError(
            f"calibrate_mode={cfg.calibrate_mode!r} looks at data: quantize(mod, params, dataset) with a list of "
            "dictionaries, an array for each input's name"
        )
    options: List[Any] = [
        ["nbit_input", cfg.nbit_input],
        ["nbit_weight", cfg.nbit_weight],
        ["signed", cfg.dtype_input == "int8"],
        ["power2", cfg.weight_scale == "power2"],
        ["global_scale", float(cfg.global_scale) if mode is None else None],
        ["calibrate", mode],
        ["percentile", _TVM_PERCENTILE if mode == "percentile" else None],
        ["samples", max(len(given), 1)],
        ["skip_conv_layers", list(cfg.skip_conv_layers or [])],
        ["skip_dense_layer", bool(cfg.skip_dense_layer)],
        ["do_simulation", bool(cfg.do_simulation)],
        ["rounding", cfg.rounding],
    ]
    fn = listener(progress)
    made, layers = call(
        "graph_quantize",
        as_module(mod, dict(params or {})),
        PassContext.current().for_compiler(),
        given,
        options,
        address(fn),
    )
    del kept
    if not layers:
        warnings.warn(
            "quantize: no layer became integers: there is none with constant weights, or skip_conv_layers and "
            "skip_dense_layer leave them all out",
            stacklevel=2,
        )
    out: IRModule = made
    return out


__all__ = ["QConfig", "current_qconfig", "qconfig", "quantize"]
