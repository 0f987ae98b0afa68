"""A program of Paddle's operators becomes expressions of relay: each operator's row gets the values of its operands.

A value is an array (what is known now), an expression, a list of such, or None."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from .... import error
from ..rows import Table, named
from .program import Op, Region

#: A row gives the output; a tuple where there are several, and a list for an output that is a list of tensors.
_TABLE = Table()
ROWS, FOLDED, row = _TABLE.rows, _TABLE.folded, _TABLE.row
Values = Dict[Any, Any]


def absent(ops: List[Op]) -> Dict[str, int]:
    """Operators without a row, and how often each occurs."""
    found: Dict[str, int] = {}
    for op in ops:
        if op.name != "yield" and _row_name(op.name) not in ROWS:
            found[op.name] = found.get(op.name, 0) + 1
        for region in op.regions:
            for name, count in absent(region.ops).items():
                found[name] = found.get(name, 0) + count
    return found


def _row_name(name: str) -> str:
    """An operator that changes its operand ("relu_") has the row of the one that does not."""
    return name[:-1] if name.endswith("_") and name not in ROWS else name


def operand(values: Values, key: Any) -> Any:
    """The value that a key stands for."""
    if key is None or isinstance(key, np.ndarray):
        return key
    if isinstance(key, list):
        return [operand(values, k) for k in key]
    if key not in values:
        raise error.ArgumentError(f"from_paddle: value '{key}' is read before it is written")
    return values[key]


def _all_arrays(args: List[Any]) -> bool:
    return all(_all_arrays(a) if isinstance(a, list) else a is None or isinstance(a, np.ndarray) for a in args)


def _convert(op: Op, args: List[Any], values: Values) -> Any:
    name = _row_name(op.name)
    fold = FOLDED.get(name)
    with named(f"from_paddle: {op.name}", f"from_paddle: an operator has not what a {op.name} needs"):
        if op.regions:
            return ROWS[name](op, values, *args)
        if fold is not None and args and _all_arrays(args):
            made = fold(op, *args)
            return made if isinstance(made, (list, tuple)) else np.asarray(made)
        return ROWS[name](op, *args)


def run(ops: List[Op], values: Values) -> List[Any]:
    """Adds what the operators write to the values; gives what "yield" reads."""
    for op in ops:
        args = [operand(values, k) for k in op.inputs]
        if op.name == "yield":
            return args
        made = _convert(op, args, values)
        for key, value in zip(op.outputs, made if isinstance(made, tuple) else (made,)):
            if isinstance(key, list):
                values.update(zip(key, value))
            else:
                values[key] = value
    return []


def body(region: Region, values: Values, args: List[Any]) -> List[Any]:
    """What a region gives; it sees the values around it."""
    inner = dict(values)
    inner.update(zip(region.args, args))
    return run(region.ops, inner)


__all__ = ["FOLDED", "ROWS", "Values", "absent", "body", "operand", "row", "run"]
