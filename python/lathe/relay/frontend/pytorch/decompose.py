"""Which operators PyTorch is asked to write as others.

Whatever has a row stays whole; everything else that PyTorch can write as other operators is written so:
the core ATen set, the composite operators, and the decompositions that its own compiler has."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import table

# Operators that have a row, and are better as others: (none of them loses anything).
_cached: Dict[Any, Any] = {}


def decompositions(more: Optional[Dict[str, Any]] = None) -> Dict[Any, Any]:
    """PyTorch's table of decompositions without the operators that have rows."""
    import torch
    from torch._decomp import decomposition_table

    if not _cached:
        found = dict(torch.export.default_decompositions())
        for op, how in decomposition_table.items():
            if isinstance(op, torch._ops.OpOverload):
                found.setdefault(op, how)
        _cached.update(found)
    return {op: how for op, how in _cached.items() if table.find(table.name_of(op), more) is None}
