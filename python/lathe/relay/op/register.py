"""Operators of a user's own.

>>> @relay.op.register("my.scale", args="data", attrs={"factor": 2.0}, fuse=relay.op.ELEMWISE)
... class Scale:
...     def type(data, attrs):            # a TensorType for each argument
...         return data
...     def compute(data, attrs):         # a te tensor for each argument
...         return te.compute(data.shape, lambda *i: data(*i) * attrs.factor)
>>> relay.my.scale(x, factor=3.0)"""

from __future__ import annotations

import ctypes
import inspect
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

from ... import error
from ..._ffi import answer, call, callback_scope
from ..expr import Attrs
from ..ty import TensorType, _dims
from .. import op_rows
from . import table

ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8

_UserFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_kept: List[Any] = []  # functions that C holds, for the life of the process
_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


def _kind(value: Any) -> str:
    if type(value) in _KINDS:
        return _KINDS[type(value)]
    if isinstance(value, (list, tuple)):
        kinds = {type(v) for v in value}
        return "list[str]" if kinds == {str} else "list[float]" if float in kinds else "list[int]"
    raise error.TypeError(f"an attribute's default is a bool, a number, text or a list of those, not {value!r}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _callback(fn: Callable[[List[Any], Attrs], Any]) -> Any:
    keep: List[Any] = []

    def run(_user: Any, _n: int, args: int, out: int) -> int:
        with callback_scope(args, 2) as ((types, attrs), failed):
            try:
                answer(out, fn(types, Attrs(attrs)), keep)
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _UserFn(run)


def _as_type(row: Any) -> TensorType:
    return TensorType(row[1], row[0])


def _as_row(t: Any) -> Any:
    if not isinstance(t, TensorType):
        raise error.TypeError(f"the type rule of an operator gives a TensorType (or a list of them), not {t!r}")
    return [t.dtype, _dims(t.shape)]


def register(
    name: str, args: str, attrs: Optional[Dict[str, Any]] = None, fuse: int = OPAQUE, doc: str = ""
) -> Callable[[Any], Any]:
    """Class decorator: adds an operator whose type rule is `type` and whose meaning is `compute`."""
    names = [a.strip() for a in args.split(",") if a.strip()]

    def decorate(cls: Any) -> Any:
        rule, compute = inspect.getattr_static(cls, "type", None), inspect.getattr_static(cls, "compute", None)
        rule, compute = getattr(rule, "__func__", rule), getattr(compute, "__func__", compute)
        if not callable(rule) or not callable(compute):
            raise error.ArgumentError(f"operator '{name}' needs two functions, type and compute")

        def on_type(types: Sequence[Any], values: Attrs) -> Any:
            result = rule(*[_as_type(t) for t in types], values)
            return [_as_row(t) for t in result] if isinstance(result, (list, tuple)) else _as_row(result)

        def on_compute(types: Sequence[Any], values: Attrs) -> Any:
            from ... import te

            ins = [te.placeholder(t[1], t[0], n) for t, n in zip(types, names)]
            outs = compute(*ins, values)
            return [ins, list(outs) if isinstance(outs, (list, tuple)) else [outs]]

        rows = [[k, _kind(v), _text(v), ""] for k, v in (attrs or {}).items()]
        pair = (_callback(on_type), _callback(on_compute))
        _kept.append(pair)
        addresses = [ctypes.cast(p, ctypes.c_void_p).value for p in pair]
        text = doc or (cls.__doc__ or name).strip().splitlines()[0]
        call("op_register", name, text, args, len(names), fuse, rows, *addresses, 0)
        op_rows.forget()
        table.install(sys.modules["lathe.relay"], {}, only=name)
        return cls

    return decorate
