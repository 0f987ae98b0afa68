"""Layers with parameters of their own, named after the layer."""

from __future__ import annotations

from typing import Any

from .. import expr as _expr
from ..expr import call_op
from ..op.table import wrap
from ..ty import TupleType


def batch_norm_infer(data: Any, gamma: Any = None, beta: Any = None, moving_mean: Any = None, moving_var: Any = None, **kwargs: Any) -> Any:
    """Batch normalisation as it is used: the first of the operator's results."""
    name = kwargs.pop("name")
    given = [gamma, beta, moving_mean, moving_var]
    made = [v if v is not None else _vector(f"{name}_{w}", data, kwargs.get("axis", 1)) for v, w in zip(given, ("gamma", "beta", "moving_mean", "moving_var"))]
    return wrap(call_op("nn.batch_norm", [data] + made, **kwargs))[0]


def _vector(name: str, data: Any, axis: int) -> Any:
    t = data.checked_type
    return _expr.var(name, shape=(t.shape[axis],), dtype=t.dtype)


def conv2d(data: Any, weight: Any = None, **kwargs: Any) -> Any:
    """Convolution."""
    name = kwargs.pop("name")
    if weight is None:
        t = data.checked_type
        layout = kwargs.get("data_layout", "NCHW")
        cin = t.shape[layout.index("C")]
        kh, kw = kwargs["kernel_size"]
        cin //= kwargs.get("groups", 1)
        shape = (kwargs["channels"], cin, kh, kw) if kwargs.get("kernel_layout", "OIHW") == "OIHW" else (kh, kw, cin, kwargs["channels"])
        weight = _expr.var(f"{name}_weight", shape=shape, dtype=t.dtype)
    return call_op("nn.conv2d", [data, weight], **kwargs)


def dense_add_bias(data: Any, units: int, **kwargs: Any) -> Any:
    """Matrix product with a weight, plus a bias."""
    name = kwargs.pop("name")
    t = data.checked_type
    weight = _expr.var(f"{name}_weight", shape=(units, t.shape[-1]), dtype=t.dtype)
    bias = _expr.var(f"{name}_bias", shape=(units,), dtype=t.dtype)
    return call_op("nn.bias_add", [call_op("nn.dense", [data, weight], units=units, **kwargs), bias], axis=-1)


def first(x: Any) -> Any:
    """The first result where an operator has several, else the result."""
    return wrap(x)[0] if isinstance(x.checked_type, TupleType) else x


def function(body: Any) -> Any:
    """A function of the body over its variables."""
    from ..analysis import free_vars

    return _expr.Function(free_vars(body), body)
