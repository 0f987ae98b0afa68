"""Loop programs built by calls: the names of TVMScript as functions and with statements.

The builder that is open takes what they say; names of variables and buffers are made unique."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ... import error
from ... import tir as _tir
from ...tir.buffer import Buffer as _Buffer
from ...tir.buffer import decl_buffer as _decl_buffer
from ...tir.expr import PrimExpr, Range, Var, as_tuple, convert
from .base import Frame, IRBuilder, text

_LETTERS = "ijklmn"


def __getattr__(name: str) -> Any:
    """Functions of lathe.tir, and dtypes: T.exp, T.float32."""
    if name.rstrip("0123456789") in ("int", "uint", "float", "bfloat") or name in ("bool", "boolean", "handle"):
        dtype = "bool" if name == "boolean" else name
        return lambda value=None: Var("v", dtype) if value is None or dtype == "handle" else _tir.const(value, dtype)
    return getattr(_tir, name)


# ---- functions


def prim_func(is_private: bool = False) -> Frame:
    """A function; what it is made of stands below."""
    builder = IRBuilder.current()
    builder.private = is_private
    return Frame(None, builder, lambda b: b.finish())


def func_name(name: str) -> None:
    """The function's name."""
    IRBuilder.current().function = name


def func_attr(attrs: Dict[str, Any]) -> None:
    """Attributes of the function."""
    IRBuilder.current().line(f"T.func_attr({text(attrs)})")


def arg(name: str, obj: Any) -> Any:
    """A parameter: a buffer, or a variable of the dtype of obj."""
    builder = IRBuilder.current()
    if isinstance(obj, _Buffer):
        made: Any = builder.buffer(name, obj)
        builder.parameters.append(f"{made.name}: T.Buffer({text(list(obj.shape))}, {obj.dtype!r})")
        return made
    made = builder.variable(name, convert(obj).dtype)
    builder.parameters.append(f"{made.name}: T.{made.dtype}")
    return made


def Buffer(shape: Any, dtype: str = "float32", scope: str = "global", **_more: Any) -> _Buffer:
    """What a buffer is like; arg makes a parameter of it."""
    return _decl_buffer(as_tuple(shape), dtype, "buffer", scope=scope)


def _declared(call: str, first: List[str], shape: Any, dtype: str, scope: str, hint: str) -> _Buffer:
    builder = IRBuilder.current()
    made = builder.buffer(hint, _decl_buffer(as_tuple(shape), dtype, hint, scope=scope))
    parts = first + [text(list(made.shape)), repr(dtype)] + ([f"scope={scope!r}"] if scope != "global" else [])
    builder.line(f"{made.name} = T.{call}({', '.join(parts)})")
    return made


def match_buffer(param: Any, shape: Any, dtype: str = "float32", scope: str = "global", **_more: Any) -> _Buffer:
    """The buffer that a handle is."""
    return _declared("match_buffer", [text(param)], shape, dtype, scope, "buffer")


def alloc_buffer(shape: Any, dtype: str = "float32", scope: str = "global", **_more: Any) -> _Buffer:
    """Memory of the block."""
    return _declared("alloc_buffer", [], shape, dtype, scope, "alloc")


# ---- loops


def _loop(kind: str, start: Any, stop: Any, **options: Any) -> Frame:
    builder = IRBuilder.current()
    first, last = (0, start) if stop is None else (start, stop)
    dtypes = {convert(e).dtype for e in (first, last)}
    var = builder.variable(_LETTERS[min(builder.depth, 5)], "int64" if "int64" in dtypes else "int32")
    more = "".join(f", {k}={text(v)}" for k, v in options.items() if v is not None)
    return Frame(f"for {var.name} in T.{kind}({text(first)}, {text(last)}{more}):", var)


def serial(start: Any, stop: Any = None, *, annotations: Optional[Dict[str, Any]] = None) -> Frame:
    """A loop."""
    return _loop("serial", start, stop, annotations=annotations)


def parallel(start: Any, stop: Any = None, *, annotations: Optional[Dict[str, Any]] = None) -> Frame:
    """A loop whose iterations may run at the same time."""
    return _loop("parallel", start, stop, annotations=annotations)


def vectorized(start: Any, stop: Any = None, *, annotations: Optional[Dict[str, Any]] = None) -> Frame:
    """A loop that is one vector."""
    return _loop("vectorized", start, stop, annotations=annotations)


def unroll(start: Any, stop: Any = None, *, annotations: Optional[Dict[str, Any]] = None) -> Frame:
    """A loop that is written out."""
    return _loop("unroll", start, stop, annotations=annotations)


def thread_binding(start: Any, stop: Any = None, thread: str = "", *,
                   annotations: Optional[Dict[str, Any]] = None) -> Frame:
    """A loop over threads."""
    if isinstance(stop, str):
        stop, thread = None, stop
    return _loop("thread_binding", start, stop, thread=thread, annotations=annotations)


def grid(*extents: Any) -> Frame:
    """Loops in each other; gives their variables."""
    builder = IRBuilder.current()
    names = [builder.variable(_LETTERS[min(i, 5)], convert(e).dtype) for i, e in enumerate(extents)]
    return Frame(f"for {', '.join(v.name for v in names)} in T.grid({', '.join(text(e) for e in extents)}):", names)


# ---- blocks


def block(name: str = "", no_realize: bool = False) -> Frame:
    """A block."""
    return Frame(f"with T.block({name!r}):")


def init() -> Frame:
    """What a reduction begins with."""
    return Frame("with T.init():")


def where(predicate: Any) -> None:
    """Where the block runs."""
    IRBuilder.current().line(f"T.where({text(predicate)})")


def block_attr(attrs: Dict[str, Any]) -> None:
    """Attributes of the block."""
    IRBuilder.current().line(f"T.block_attr({text(attrs)})")


def _part(region: Any) -> str:
    buffer, ranges = region.buffer, getattr(region, "region", None)
    if ranges is None:
        return text(region)
    return f"{buffer.name}[{', '.join(f'{text(r.min)}:{text(r.min + r.extent)}' for r in ranges)}]"


def reads(*regions: Any) -> None:
    """What the block reads."""
    IRBuilder.current().line(f"T.reads({', '.join(_part(r) for r in regions)})")


def writes(*regions: Any) -> None:
    """What the block writes."""
    IRBuilder.current().line(f"T.writes({', '.join(_part(r) for r in regions)})")


class axis:  # pylint: disable=invalid-name
    """Axes of the block that is open."""

    @staticmethod
    def _new(kind: str, dom: Any, binding: Any, dtype: str) -> Var:
        builder = IRBuilder.current()
        ends = (dom.min, dom.min + dom.extent) if isinstance(dom, Range) else dom
        domain = f"({text(ends[0])}, {text(ends[1])})" if isinstance(ends, (tuple, list)) else text(ends)
        bound = convert(binding)
        var = builder.variable("v" + (bound.name if isinstance(bound, Var) else ""), bound.dtype)
        builder.line(f"{var.name} = T.axis.{kind}({domain}, {text(bound)})")
        return var

    @staticmethod
    def spatial(dom: Any, binding: Any, dtype: str = "int32") -> Var:
        """An axis whose places are independent."""
        return axis._new("spatial", dom, binding, dtype)

    @staticmethod
    def reduce(dom: Any, binding: Any, dtype: str = "int32") -> Var:
        """An axis that is reduced over."""
        return axis._new("reduce", dom, binding, dtype)

    @staticmethod
    def opaque(dom: Any, binding: Any, dtype: str = "int32") -> Var:
        """An axis whose order is kept."""
        return axis._new("opaque", dom, binding, dtype)

    @staticmethod
    def remap(kinds: str, bindings: Sequence[Any], dtype: str = "int32") -> Union[Var, List[Var]]:
        """An axis for each loop, by letters: S, R, O."""
        builder = IRBuilder.current()
        made = [builder.variable(f"v{b.name}", b.dtype) for b in bindings]
        builder.line(f"{', '.join(v.name for v in made)} = T.axis.remap({kinds!r}, {text(list(bindings))})")
        return made[0] if len(made) == 1 else made


# ---- statements


def evaluate(value: Any) -> None:
    """Evaluates an expression for its effect."""
    IRBuilder.current().line(f"T.evaluate({text(value)})")


def buffer_store(buffer: _Buffer, value: Any, indices: Sequence[Any], predicate: Any = None) -> None:
    """buffer[indices] = value."""
    if predicate is not None:
        raise error.UnsupportedError("buffer_store: a predicate is given by T.where, or by If")
    place = ", ".join(text(i) for i in as_tuple(indices)) or "()"
    IRBuilder.current().line(f"{buffer.name}[{place}] = {_value(buffer, value)}")


def _value(buffer: _Buffer, value: Any) -> str:
    e = value if isinstance(value, PrimExpr) else _tir.const(convert(value), buffer.dtype)
    return str(e)


def If(condition: Any) -> Frame:
    """A branch: with T.Then(): and with T.Else(): stand below."""
    return _Branch(condition)


class _Branch(Frame):
    def __init__(self, condition: Any) -> None:
        super().__init__(None)
        self._condition = condition

    def __enter__(self) -> Any:
        builder = IRBuilder.current()
        builder.conditions = getattr(builder, "conditions", []) + [self._condition]  # type: ignore[attr-defined]

    def __exit__(self, *_error: Any) -> None:
        IRBuilder.current().conditions.pop()  # type: ignore[attr-defined]


def Then() -> Frame:
    """What runs where the condition of the If around it holds."""
    return Frame(f"if {text(_condition())}:")


def Else() -> Frame:
    """What runs where it does not."""
    _condition()
    return Frame("else:")


def _condition() -> Any:
    conditions: List[Any] = getattr(IRBuilder.current(), "conditions", [])
    if not conditions:
        raise error.ArgumentError("T.Then and T.Else stand below `with T.If(condition):`")
    return conditions[-1]


def While(condition: Any) -> Frame:
    """A loop while the condition holds."""
    return Frame(f"while {text(condition)}:")


def Let(value: Any) -> Frame:
    """A name for a value, below."""
    e = convert(value)
    var = IRBuilder.current().variable("x", e.dtype)
    return Frame(f"with T.LetStmt({text(e)}) as {var.name}:", var)


LetStmt: Callable[[Any], Frame] = Let
