"""The operator table, and the Python functions made from it.

A function takes the operator's arguments, then its attributes, by position or by name.
Numbers and arrays among the arguments become constants, lists tuples.  Where
an attribute such as a new shape is given as an expression, the operator's dyn. form
is called."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Sequence

from ... import error
from ..._ffi import call
from .. import expr as _expr
from ..op_rows import TUPLE_ARG, OpAttr, OpRow, rows
from ..ty import TupleType


def default_value(a: OpAttr) -> Any:
    """The default as a Python value."""
    text = a.default
    if text is None:
        return inspect.Parameter.empty
    if a.kind == "float":
        return float(text)
    if a.kind in ("str", "dtype"):
        return None if text == "None" else text.strip("\"'")
    try:
        return eval(text, {"__builtins__": {}}, {"True": True, "False": False, "None": None})  # pylint: disable=eval-used
    except (SyntaxError, NameError):
        return text


def make_call(r: OpRow, args: Sequence[Any], attrs: Dict[str, Any]) -> Any:
    """A call of the operator; a result that is a tuple comes as a TupleWrapper."""
    if r.flags & TUPLE_ARG and len(args) == 1 and not isinstance(args[0], _expr.RelayExpr):
        args = [_expr.as_expr(list(args[0]) if not isinstance(args[0], _expr.TupleWrapper) else args[0])]
    typed = next((a for a in args if isinstance(a, _expr.RelayExpr)), None)
    nodes = [_expr._like(a, typed) for a in args]
    attrs = {k: v for k, v in attrs.items() if v is not None}
    if any(isinstance(v, _expr.RelayExpr) for v in attrs.values()):
        return _dynamic(r, nodes, attrs)
    integers = {a.name for a in r.attrs if a.kind == "list[int]"}
    attrs = {k: _flat(v) if k in integers and isinstance(v, (list, tuple)) else v for k, v in attrs.items()}
    return wrap(_expr.call_op(r.name, nodes, **attrs))


def _flat(value: Any) -> List[Any]:
    """Pairs such as ((1, 1), (2, 2)) one behind the other."""
    return [x for v in value for x in (_flat(v) if isinstance(v, (list, tuple)) else [v])]


def wrap(node: Any) -> Any:
    """A tuple of known size can be unpacked."""
    t = call("node_type", node)
    return _expr.TupleWrapper(node, len(t.fields)) if isinstance(t, TupleType) else node


def _dynamic(r: OpRow, nodes: List[Any], attrs: Dict[str, Any]) -> Any:
    dyn = rows().get("dyn." + r.name)
    if dyn is None:
        raise error.UnsupportedError(f"{r.name}: {', '.join(k for k, v in attrs.items() if isinstance(v, _expr.RelayExpr))} must be constant")
    for name in dyn.args[len(nodes) :]:
        if attrs.get(name) is None:
            break
        value = attrs.pop(name)
        nodes.append(value if isinstance(value, _expr.RelayExpr) else _expr.const(value, "int64"))
    known = {a.name for a in dyn.attrs}
    return wrap(_expr.call_op(dyn.name, nodes, **{k: v for k, v in attrs.items() if k in known}))


def make_function(r: OpRow) -> Callable[..., Any]:
    """The Python function for an operator."""
    P = inspect.Parameter
    params: List[P] = []
    variadic = r.most < 0
    for i, name in enumerate(r.args):
        params.append(P(name, P.POSITIONAL_OR_KEYWORD, default=P.empty if i < r.least else None))
    optional = any(p.default is None for p in params)
    for a in r.attrs:
        if a.name in r.args:  # one parameter: an expression is the argument, anything else the attribute
            continue
        d = default_value(a)
        params.append(P(a.name, P.POSITIONAL_OR_KEYWORD if not (d is P.empty and optional) else P.KEYWORD_ONLY, default=d))
    params.sort(key=lambda p: (p.kind, p.default is not P.empty if p.kind == P.POSITIONAL_OR_KEYWORD else False))
    signature = inspect.Signature(params)
    given = {a.name for a in r.attrs}

    def function(*args: Any, **kwargs: Any) -> Any:
        if variadic:
            return make_call(r, args, kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise error.TypeError(f"{r.name}: {e}; it takes {signature}") from None
        values = bound.arguments
        both = {n for n in r.args if n in given and not isinstance(values.get(n), (_expr.RelayExpr, type(None)))}
        nodes = [values[n] for n in r.args if values.get(n) is not None and n not in both]
        return make_call(r, nodes, {k: v for k, v in values.items() if k in both or (k in given and k not in r.args)})

    function.__name__ = r.name.rsplit(".", 1)[-1]
    function.__qualname__ = function.__name__
    if not variadic:
        function.__signature__ = signature  # type: ignore
    lines = [r.doc, ""] + [f"{a.name}: {a.kind}. {a.doc}" for a in r.attrs]
    function.__doc__ = "\n".join(lines).strip()
    return function


def install(package: types.ModuleType, overrides: Dict[str, Callable[..., Any]], only: Optional[str] = None) -> None:
    """Puts a function for every operator (or for one) into the package: relay.nn.conv2d for nn.conv2d."""
    for name, r in rows().items():
        if only is not None and name != only:
            continue
        *path, last = name.split(".")
        place = package
        for word in path:
            full = f"{place.__name__}.{word}"
            if full not in sys.modules:
                sys.modules[full] = types.ModuleType(full, f"Operators of the family {word}.")
            if not hasattr(place, word):
                setattr(place, word, sys.modules[full])
            place = sys.modules[full]
        function = overrides.get(name) or make_function(r)
        function.__module__ = place.__name__
        setattr(place, last, function)
    for name, function in overrides.items():
        *path, last = name.split(".")
        place = package
        for word in path:
            place = getattr(place, word)
        setattr(place, last, function)
