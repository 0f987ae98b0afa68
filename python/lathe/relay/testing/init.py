"""Random weights, the same for the same seed."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from ... import nd
from ..._ir.module import IRModule
from ..expr import Function
from ..transform import InferType


def xavier(name: str, shape: Tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights that keep the size of activations; means 0, variances and scales 1."""
    if name.endswith(("gamma", "var")):
        return np.ones(shape)
    if name.endswith(("beta", "bias", "mean")):
        return np.zeros(shape)
    fan = np.prod(shape[1:]) if len(shape) > 1 else shape[0]
    return rng.uniform(-1, 1, shape) * np.sqrt(3.0 / float(fan))


def he(name: str, shape: Tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The same for networks in which every layer is followed by relu, which halves the variance."""
    return xavier(name, shape, rng) * (np.sqrt(2.0) if len(shape) > 1 else 1.0)


def create_workload(net: Function, initializer: Optional[Callable[..., Any]] = None, seed: int = 0) -> Tuple[IRModule, Dict[str, Any]]:
    """A module of the network, and weights for every parameter but data."""
    mod = InferType()(IRModule.from_expr(net))
    rng, params = np.random.default_rng(seed), {}
    for p in mod["main"].params:
        if p.name_hint == "data":
            continue
        t = p.checked_type
        value = (initializer or xavier)(p.name_hint, t.concrete_shape, rng)
        params[p.name_hint] = nd.array(np.asarray(value).astype(t.dtype))
    return mod, params
