"""oneDNN: convolutions and products of float32 with bias, a sum and relu.  Its plugin is backends/dnnl.c."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ....runtime.packed import register_func
from ...dataflow_pattern import is_op, wildcard
from ...expr import Call
from . import blas
from .partition import partition_for, static_float
from .register import register_pattern_table


def _sum_agrees(expr: Any) -> bool:
    """relu(conv + bias + x): x is as large as the result, and comes from elsewhere."""
    total = expr.args[0] if expr.op.name == "nn.relu" else expr
    sides = [a for a in total.args if isinstance(a, Call) and getattr(a.op, "name", "") in ("add", "nn.bias_add")]
    for side in sides:
        other = total.args[1] if side == total.args[0] else total.args[0]
        same = static_float(other) and blas.sizes(other) == blas.sizes(total)
        if same and other != side and blas.check(("nn.conv2d",))(side):
            return True
    return False


@register_pattern_table("dnnl")
def pattern_table() -> Any:
    """What oneDNN takes."""
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    bias = is_op("add")(conv, wildcard()) | is_op("nn.bias_add")(conv, wildcard())
    total = is_op("add")(bias, wildcard())
    rows = [
        ("dnnl.conv2d_bias_sum_relu", is_op("nn.relu")(total), _sum_agrees),
        ("dnnl.conv2d_bias_sum", total, _sum_agrees),
    ]
    return rows + blas.patterns("dnnl", ("nn.conv2d", *blas.PRODUCTS))


def partition_for_dnnl(
    mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default", **choice: Any
) -> Any:
    """The model with what oneDNN takes as functions of it; with a cost, with what it is faster at (partition_for)."""
    return partition_for("dnnl", mod, params, mod_name, **choice)


def _generate(func: Any) -> Any:
    from ...backend.contrib import Module, to_json

    return Module("dnnl", to_json(func))


register_func("relay.ext.dnnl", _generate, override=True)
