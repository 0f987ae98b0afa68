"""Tables of patterns by the name of an external compiler.

>>> @register_pattern_table("mine")
... def patterns():
...     return [("mine.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))]
>>> mod = relay.transform.MergeComposite(get_pattern_table("mine"))(mod)"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .... import error

_tables: Dict[str, Any] = {}


def register_pattern_table(compiler: str, table: Optional[Any] = None) -> Any:
    """Makes a table known: a list of (name, pattern) or (name, pattern, check), or a function that gives one.  As a
    decorator over such a function it takes the compiler's name alone."""

    def register(made: Any) -> Any:
        _tables[compiler] = made
        return made

    return register(table) if table is not None else register


def get_pattern_table(compiler: str) -> List[Any]:
    """The table of a compiler."""
    if compiler not in _tables:
        raise error.ArgumentError(
            f"there is no table of patterns for '{compiler}'; there are {', '.join(sorted(_tables)) or 'none'}"
        )
    table = _tables[compiler]
    return list(table() if callable(table) else table)


#: (operator, key) -> value, of register_op_attr.
op_attrs: Dict[Any, Any] = {}
_levels: Dict[Any, int] = {}


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Says something about an operator: with the key "target.NAME", a function that is asked whether the compiler NAME
    takes a call of it (relay.transform.AnnotateTarget).  Without a value it is a decorator.  Of two values the one of
    the higher level counts."""
    from ...op_rows import row

    row(op_name)  # raises for an operator that there is not

    def register(made: Any) -> Any:
        key = (op_name, attr_key)
        if key in op_attrs and _levels[key] > level:
            return made
        if attr_key.startswith("target.") and not callable(made):
            raise error.TypeError(f"register_op_attr: {attr_key} of {op_name} is a function that answers a bool")
        op_attrs[key], _levels[key] = made, level
        return made

    return register(value) if value is not None else register


def takers(compiler: str) -> Dict[str, Callable[[Any], bool]]:
    """Operators that have a function for the compiler, with it."""
    key = "target." + compiler
    return {op: fn for (op, attr), fn in op_attrs.items() if attr == key}
