"""OpenBLAS: products and convolutions of float32, with bias and relu.  Its plugin is backends/openblas.c."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ....runtime.packed import register_func
from . import blas
from .partition import partition_for
from .register import register_pattern_table


@register_pattern_table("openblas")
def pattern_table() -> Any:
    """What OpenBLAS takes."""
    return blas.patterns("openblas", ("nn.conv2d", *blas.PRODUCTS))


def partition_for_openblas(
    mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default", **choice: Any
) -> Any:
    """The model with what OpenBLAS takes as functions of it; with a cost, with what it is faster at (partition_for)."""
    return partition_for("openblas", mod, params, mod_name, **choice)


def _generate(func: Any) -> Any:
    from ...backend.contrib import Module, to_json

    return Module("openblas", to_json(func))


register_func("relay.ext.openblas", _generate, override=True)
