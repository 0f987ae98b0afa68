"""Layers with parameters of their own, named after the layer.  The parameters have no declared type: type inference
finds it from the data and the attributes."""

from __future__ import annotations

from typing import Any, Callable

from .. import expr as _expr
from ..expr import call_op


def batch_norm_infer(
    data: Any, gamma: Any = None, beta: Any = None, moving_mean: Any = None, moving_var: Any = None, **kwargs: Any
) -> Any:
    """Batch normalisation as it is used: the first of the operator's results."""
    name = kwargs.pop("name")
    given = zip((gamma, beta, moving_mean, moving_var), ("gamma", "beta", "moving_mean", "moving_var"))
    operands = [_expr.var(f"{name}_{w}") if v is None else v for v, w in given]
    return _expr.TupleGetItem(call_op("nn.batch_norm", [data] + operands, **kwargs), 0)


def _with_weight(operator: str) -> Callable[..., Any]:
    def layer(data: Any, weight: Any = None, **kwargs: Any) -> Any:
        name = kwargs.pop("name", None)
        return call_op(operator, [data, _expr.var(f"{name}_weight") if weight is None else weight], **kwargs)

    layer.__name__ = layer.__qualname__ = operator.rsplit(".", 1)[-1]
    layer.__doc__ = f"{operator} with a weight of its own, name + '_weight', unless one is given."
    return layer


conv1d, conv2d, conv3d = (_with_weight(f"nn.conv{d}d") for d in (1, 2, 3))
conv2d_transpose, conv3d_transpose = (_with_weight(f"nn.conv{d}d_transpose") for d in (2, 3))


def dense_add_bias(data: Any, weight: Any = None, bias: Any = None, units: Any = None, **kwargs: Any) -> Any:
    """Matrix product with a weight, plus a bias."""
    name = kwargs.pop("name", None)
    weight = _expr.var(f"{name}_weight") if weight is None else weight
    product = call_op("nn.dense", [data, weight], units=units, **kwargs)
    return call_op("nn.bias_add", [product, _expr.var(f"{name}_bias") if bias is None else bias], axis=-1)


def conv_bias(data: Any, axis: int = 1, **kwargs: Any) -> Any:
    """Convolution, plus a bias for each channel."""
    return call_op("nn.bias_add", [conv2d(data, **kwargs), _expr.var(f"{kwargs['name']}_bias")], axis=axis)


def kernel_layout(data_layout: str, depthwise: bool = False) -> str:
    """The layout of a weight that goes with one of data: OIHW with NCHW, HWIO (or HWOI) with NHWC."""
    return "OIHW" if data_layout == "NCHW" else "HWOI" if depthwise else "HWIO"


def data_shape(batch: int, image: Any, layout: str) -> Any:
    """The shape of a batch of images that are given as (channels, height, width)."""
    c, h, w = image
    return (batch, c, h, w) if layout == "NCHW" else (batch, h, w, c)


def check_layout(network: str, layout: str) -> None:
    """Raises unless it is NCHW or NHWC."""
    if layout not in ("NCHW", "NHWC"):
        from ... import error

        raise error.UnsupportedError(
            f"relay.testing.{network}: layout '{layout}' is not there; there are NCHW and NHWC"
        )


def function(body: Any) -> Any:
    """A function of the body over its variables."""
    from ..analysis import free_vars

    return _expr.Function(free_vars(body), body)
