"""Random weights, the same for the same seed."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from ... import error, nd
from ..._ir.module import IRModule
from ..expr import Function
from ..transform import InferType


class Initializer:
    """Fills an array in place, by the ending of its name: scales and variances are 1, shifts and means 0, and a
    subclass says what weights are."""

    rng: Any = np.random

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        if desc.endswith(("gamma", "var")):
            arr[...] = 1
        elif desc.endswith(("beta", "bias", "mean")):
            arr[...] = 0
        elif desc.endswith("weight"):
            self._init_weight(desc, arr)
        else:
            self._init_default(desc, arr)

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say what '{name}' is")

    def _init_default(self, name: str, arr: np.ndarray) -> None:
        self._init_weight(name, arr)


class Xavier(Initializer):
    """Weights that keep the size of activations (Glorot and Bengio, 2010): of variance magnitude / 3 divided by the
    inputs of an element, its outputs, or their mean (factor_type in, out, avg).  data_layout tells which dimensions of
    a convolution's weight are the window: the last ones with NCHW, the first with NHWC."""

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3, data_layout: str = "NCHW"
    ):
        if rnd_type not in ("uniform", "gaussian") or factor_type not in ("in", "out", "avg"):
            raise error.ArgumentError(
                f"Xavier: there are uniform and gaussian, and in, out and avg; not '{rnd_type}' and '{factor_type}'"
            )
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)
        self.data_layout = data_layout

    def _fans(self, shape: Tuple[int, ...]) -> Tuple[float, float]:
        """Outputs and inputs of an element."""
        if len(shape) < 2:
            return shape[0], shape[0]
        if len(shape) == 2 or self.data_layout == "NCHW":
            out, into, window = shape[0], shape[1], shape[2:]
        else:  # HWIO, or HWOI with one input for each group
            out, into, window = (shape[-2], 1, shape[:-2]) if shape[-1] == 1 else (shape[-1], shape[-2], shape[:-2])
        return out * float(np.prod(window)), into * float(np.prod(window))

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        fan_out, fan_in = self._fans(arr.shape)
        scale = np.sqrt(
            self.magnitude / {"in": fan_in, "out": fan_out, "avg": (fan_in + fan_out) / 2}[self.factor_type]
        )
        uniform = self.rnd_type == "uniform"
        arr[...] = (
            self.rng.uniform(-scale, scale, size=arr.shape) if uniform else self.rng.normal(0, scale, size=arr.shape)
        )


class Constant(Initializer):
    """One value for every weight."""

    def __init__(self, value: float):
        self.value = value

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        arr[...] = self.value


def deep(data_layout: str = "NCHW") -> Xavier:
    """For networks in which every layer is followed by relu, which halves the variance (He et al., 2015)."""
    return Xavier(factor_type="in", magnitude=6, data_layout=data_layout)


def create_workload(
    net: Function, initializer: Optional[Callable[[str, np.ndarray], Any]] = None, seed: int = 0
) -> Tuple[IRModule, Dict[str, Any]]:
    """A module of the network, and weights for every parameter but data: initializer(name, array) fills the array."""
    mod = InferType()(IRModule.from_expr(net))
    initializer = initializer if initializer is not None else Xavier()
    if isinstance(initializer, Initializer):
        initializer.rng = np.random.default_rng(seed)
    else:
        np.random.seed(seed)
    params = {}
    for p in mod["main"].params:
        if p.name_hint == "data":
            continue
        value = np.zeros(p.checked_type.concrete_shape, "float64")
        initializer(p.name_hint, value)
        params[p.name_hint] = nd.array(value.astype(p.checked_type.dtype))
    return mod, params
