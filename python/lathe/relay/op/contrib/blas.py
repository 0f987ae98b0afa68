"""Patterns that libraries of products and convolutions share."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

from ...dataflow_pattern import DFPattern, is_op, wildcard
from ...expr import Call
from .partition import static_float

PRODUCTS = ("nn.dense", "nn.matmul", "nn.batch_matmul")
BIASES = ("add", "nn.bias_add")


def anchor_of(expr: Any, anchors: Tuple[str, ...]) -> Any:
    """The convolution or product that a match ends in; None: there is none."""
    while isinstance(expr, Call) and expr.op.name not in anchors:
        calls = [a for a in expr.args if isinstance(a, Call) and getattr(a.op, "name", "") in (*anchors, *BIASES)]
        if not calls:
            return None
        expr = calls[0]
    return expr if isinstance(expr, Call) else None


def sizes(expr: Any) -> Tuple[int, ...]:
    """The dimensions of a tensor whose sizes are known."""
    return tuple(int(d) for d in expr.checked_type.shape)


def takes_anchor(call: Any) -> bool:
    """May the convolution or product itself go to the library?"""
    if not static_float(call, *call.args) or 0 in sizes(call):
        return False
    if call.op.name == "nn.conv2d":
        a = call.attrs
        plain = a.data_layout == "NCHW" and a.kernel_layout == "OIHW" and a.out_layout in ("", "NCHW", None)
        return plain and a.get("out_dtype", "") in ("", "float32", None)
    if call.op.name == "nn.batch_matmul":
        return all(len(sizes(x)) == 3 for x in (call, *call.args))
    return len(sizes(call.args[1])) == 2 and not call.attrs.get("transpose_a", False)


def is_bias(call: Any, anchor: Any) -> bool:
    """Does the addition put one number on each channel of the anchor's result?"""
    other = [a for a in call.args if not (isinstance(a, Call) and a == anchor)]
    if len(other) != 1 or not static_float(other[0]):
        return False
    shape, out = sizes(other[0]), sizes(anchor)
    if call.op.name == "nn.bias_add":
        axis = call.attrs.axis % len(out)
    else:
        axis = 1 if anchor.op.name == "nn.conv2d" else len(out) - 1
        full = (1,) * (len(out) - len(shape)) + shape
        if any(d != (out[i] if i == axis else 1) for i, d in enumerate(full)):
            return False
    wanted = 1 if anchor.op.name == "nn.conv2d" else len(out) - 1
    return axis == wanted and out[axis] == max(shape)


def check(anchors: Tuple[str, ...]) -> Callable[[Any], bool]:
    """What a match of a table below must be."""

    def agrees(expr: Any) -> bool:
        anchor = anchor_of(expr, anchors)
        if anchor is None or not takes_anchor(anchor):
            return False
        bias = expr
        while bias != anchor and bias.op.name not in BIASES:
            bias = next(a for a in bias.args if isinstance(a, Call))
        return bias == anchor or is_bias(bias, anchor)

    return agrees


def patterns(compiler: str, anchors: Tuple[str, ...]) -> List[Any]:
    """A table: each anchor with bias and relu, with one of them, or alone; the longest first."""
    rows = []
    for name in anchors:
        anchor: DFPattern = is_op(name)(wildcard(), wildcard())
        bias = is_op("add")(anchor, wildcard()) | is_op("nn.bias_add")(anchor, wildcard())
        short = f"{compiler}.{name.split('.')[-1]}"
        ok = check((name,))
        rows += [
            (short + "_bias_relu", is_op("nn.relu")(bias), ok),
            (short + "_bias", bias, ok),
            (short + "_relu", is_op("nn.relu")(anchor), ok),
            (short, anchor, ok),
        ]
    return rows
