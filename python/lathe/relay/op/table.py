"""The operator table, and the Python functions made from it.

A function takes the operator's arguments, then its attributes, by position or by name.
Numbers and arrays among the arguments become constants, lists tuples.  Where
an attribute such as a new shape is given as an expression, the operator's dyn. form
is called."""

from __future__ import annotations

import inspect
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

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
        return eval(
            text, {"__builtins__": {}}, {"True": True, "False": False, "None": None}
        )  # pylint: disable=eval-used
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
    return wrap(_expr.call_op(r.name, nodes, **attrs), _RESULTS.get(r.name))


# operators whose result is a tuple of so many fields, known without the types of their arguments
_RESULTS = {"nn.batch_norm": 3, "nn.dropout": 2}


def _flat(value: Any) -> List[Any]:
    """Pairs such as ((1, 1), (2, 2)) one behind the other."""
    return [x for v in value for x in (_flat(v) if isinstance(v, (list, tuple)) else [v])]


def wrap(node: Any, fields: Optional[int] = None) -> Any:
    """A tuple of known size can be unpacked; fields: of a tuple whose type is not known yet."""
    t = call("node_type", node)
    if t is None and fields is not None:
        return _expr.TupleWrapper(node, fields)
    return _expr.TupleWrapper(node, len(t.fields)) if isinstance(t, TupleType) else node


def _dynamic(r: OpRow, nodes: List[Any], attrs: Dict[str, Any]) -> Any:
    dyn = rows().get("dyn." + r.name)
    if dyn is None:
        raise error.UnsupportedError(
            f"{r.name}: {', '.join(k for k, v in attrs.items() if isinstance(v, _expr.RelayExpr))} must be constant"
        )
    for name in dyn.args[len(nodes) :]:
        if attrs.get(name) is None:
            break
        value = attrs.pop(name)
        nodes.append(value if isinstance(value, _expr.RelayExpr) else _expr.const(value, "int64"))
    known = {a.name for a in dyn.attrs}
    return wrap(_expr.call_op(dyn.name, nodes, **{k: v for k, v in attrs.items() if k in known}))


# operands that TVM does not have; they stand behind everything that it has
_BEHIND = {"nn.deformable_conv2d": ("mask",), "image.affine_grid": ("size",)}


def make_function(r: OpRow) -> Callable[..., Any]:
    """The Python function for an operator."""
    P = inspect.Parameter
    params: List[P] = []
    variadic = r.most < 0
    for i, name in enumerate(r.args):
        params.append(P(name, P.POSITIONAL_OR_KEYWORD, default=P.empty if i < r.least else None))
    extra = [p for p in params if p.name in _BEHIND.get(r.name, ())]
    params = [p for p in params if p not in extra]
    optional = any(p.default is None for p in params)
    for a in r.attrs:
        if a.name in r.args:  # one parameter: an expression is the argument, anything else the attribute
            continue
        d = default_value(a)
        params.append(
            P(a.name, P.POSITIONAL_OR_KEYWORD if not (d is P.empty and optional) else P.KEYWORD_ONLY, default=d)
        )
    params.sort(key=lambda p: (p.kind, p.default is not P.empty if p.kind == P.POSITIONAL_OR_KEYWORD else False))
    at = next((i for i, p in enumerate(params) if p.kind == P.KEYWORD_ONLY), len(params))
    params[at:at] = extra
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


def _module(name: str, doc: str) -> types.ModuleType:
    """A module that has no file; with a spec, so that `import` finds it under TVM's name too."""
    made = types.ModuleType(name, doc)
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    return made


def _put(package: types.ModuleType, name: str, function: Callable[..., Any]) -> None:
    """package.nn.conv2d = function, for nn.conv2d; families that are not there are made."""
    *path, last = name.split(".")
    place = package
    for word in path:
        full = f"{place.__name__}.{word}"
        if full not in sys.modules:
            family = _module(full, f"Operators of the family {word}.")
            family.__getattr__ = _absent(full)  # type: ignore
            sys.modules[full] = family
        if word not in vars(place):
            setattr(place, word, sys.modules[full])
        place = sys.modules[full]
    function.__module__ = place.__name__
    setattr(place, last, function)


def _absent(module: str) -> Callable[[str], Any]:
    """What a module says to a name that it does not have."""
    where = module.split(".", 1)[1]

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import difflib

        near = difflib.get_close_matches(name, vars(sys.modules[module]), 1)
        hint = f" (the nearest name is '{near[0]}')" if near else ""
        raise AttributeError(f"{where} has no '{name}'{hint}; docs/tvm.md lists what is absent, and the way around")

    return refuse


def install(package: types.ModuleType, overrides: Dict[str, Callable[..., Any]], only: Optional[str] = None) -> None:
    """Puts a function for every operator (or for one) into the package: relay.nn.conv2d for nn.conv2d, and the same
    into relay.op."""
    for name, r in rows().items():
        if only is None or name == only:
            _put(package, name, overrides.get(name) or make_function(r))
    for name, function in overrides.items():
        _put(package, name, function)
    for name, operator in ALIASES.items():
        if only is None:
            *path, last = operator.split(".")
            place = package
            for word in path:
                place = getattr(place, word)
            setattr(place, name.rsplit(".", 1)[-1], getattr(place, last))
    _mirror(package, sys.modules[package.__name__ + ".op"], {n.split(".")[0] for n in list(rows()) + list(overrides)})


# TVM's functions whose name is not the operator's
ALIASES = {
    "reverse_reshape": "contrib_reverse_reshape",
    "nn.contrib_conv2d_nchwc": "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_nchwc": "nn.contrib_depthwise_conv2d_NCHWc",
}

# TVM's files of operators without a family, and of families; each holds the family's functions
_FILES = {
    "": ("tensor", "transform", "reduce", "algorithm"),
    "nn": ("nn",),
    "image": ("image",),
    "vision": ("nms", "multibox", "rcnn", "yolo"),
    "qnn": ("op", "qnn"),
}


def _mirror(package: types.ModuleType, op: types.ModuleType, words: Set[str]) -> None:
    """relay.op.X for every relay.X that is an operator or a family of them, and the files TVM keeps them in."""
    flat = sys.modules.setdefault(
        op.__name__ + ".tensor", _module(op.__name__ + ".tensor", "Operators without a family.")
    )
    flat.__getattr__ = _absent(flat.__name__)  # type: ignore
    for word in words | {n for n in ALIASES if "." not in n}:
        value = getattr(package, word)
        setattr(op, word, value)
        if not isinstance(value, types.ModuleType):
            setattr(flat, word, value)
            continue
        sys.modules[f"{op.__name__}.{word}"] = value
        for file in _FILES.get(word, ()):
            sys.modules[f"{op.__name__}.{word}.{file}"] = sys.modules[f"{package.__name__}.{word}.{file}"] = value
            if file not in vars(value):
                setattr(value, file, value)
    for file in _FILES[""]:
        setattr(op, file, flat)
        sys.modules[f"{op.__name__}.{file}"] = flat
