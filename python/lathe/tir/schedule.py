"""Schedules of loop programs.

The primitives come from the compiler's own table: `Schedule.split`, `fuse`, … are
made from its rows, signature and doc included."""

from __future__ import annotations

import inspect
import random
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from .. import error
from .._ffi import Object, call, register_object
from .._ir.module import IRModule
from .expr import IterVar, convert
from .function import IndexMap, PrimFunc, TensorIntrin


class _RV(Object):
    """Something that a schedule's primitives gave; stays valid while it exists."""


@register_object("block")
class BlockRV(_RV):
    """A block of a schedule."""


@register_object("loop")
class LoopRV(_RV):
    """A loop of a schedule."""


@register_object("intrv")
class ExprRV(_RV):
    """An integer that a schedule chose."""


@register_object("schedule")
class _Handle(Object):
    """The schedule in the C library."""


class Trace:
    """What was done to a schedule, in order."""

    def __init__(self, text: str):
        self.text = text

    @property
    def insts(self) -> List[str]:
        """One line of text for each step."""
        return [line for line in self.text.splitlines() if line.strip()]

    def apply_to_schedule(self, sch: "Schedule", remove_postproc: bool = False) -> None:
        """Does the same to another schedule of the same computation."""
        for name in re.findall(r'\.tensorize\([^"\n]*"([^"]+)"', self.text):
            intrin = TensorIntrin.get(name, allow_missing=True)
            if intrin is not None:
                call("schedule_add_intrin", sch._sch, intrin)
        call("schedule_replay", sch._sch, self.text)

    def show(self, style: Optional[str] = None) -> None:
        """Prints it, in colour on a terminal."""
        from ..script.highlight import cprint

        cprint(self.text, style)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class Schedule:
    """Changes how a function runs without changing what it computes.

    A primitive that would change the meaning raises ScheduleError with the reason
    and leaves everything as it was."""

    def __init__(self, mod: Union[IRModule, PrimFunc], *, seed: Optional[int] = None, debug_mask: Union[str, int] = "none",
                 error_render_level: str = "detail", enable_check: bool = True):
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise error.TypeError(f"Schedule: wants an IRModule or a PrimFunc, not a {type(mod).__name__}")
        self._mod = mod
        self._seed = random.randrange(1, 2**31) if seed is None or seed == -1 else int(seed)
        names = [v.name_hint for v in mod.get_global_vars()]
        if not names:
            raise error.ArgumentError("Schedule: the module has no function")
        self._all: Dict[str, _Handle] = {}
        self._select("main" if "main" in names else names[0])

    def _select(self, name: str) -> None:
        if name not in self._all:
            self._all[name] = call("schedule", self._mod[name], self._seed)
        self._name, self._sch = name, self._all[name]

    # ---- the whole

    def work_on(self, func_name: str) -> None:
        """The primitives that follow are about this function of the module."""
        self._select(func_name)

    @property
    def func_working_on(self) -> str:
        """Name of the function that primitives are about."""
        return self._name

    @property
    def mod(self) -> IRModule:
        """The module as it stands now."""
        out = IRModule()
        for var, f in self._mod.functions.items():
            name = var.name_hint
            out[name] = call("schedule_func", self._all[name]) if name in self._all else f
        return out

    @property
    def trace(self) -> Trace:
        """What was done so far."""
        return Trace(call("schedule_trace", self._sch))

    def show(self, style: Optional[str] = None, **_kwargs: Any) -> None:
        """Prints the module and the trace, in colour on a terminal."""
        self.mod.show(style)
        self.trace.show(style)

    def copy(self) -> "Schedule":
        """A schedule that goes its own way from here; blocks and loops of this one
        name the same ones there."""
        new = Schedule.__new__(Schedule)
        new._mod, new._seed, new._name = self._mod, self._seed, self._name
        new._all = {name: call("schedule_copy", s) for name, s in self._all.items()}
        new._sch = new._all[new._name]
        return new

    def get(self, rand_var_or_sref: Any) -> Any:
        """What a block, loop or sampled integer stands for: a tir.Block, a tir.For, an int."""
        rv = rand_var_or_sref
        if isinstance(rv, ExprRV):
            return call("schedule_int", self._sch, rv)
        if isinstance(rv, (BlockRV, LoopRV)):
            return call("schedule_get", self._sch, rv)
        return rv

    def get_block(self, name: str, func_name: Optional[str] = None) -> BlockRV:
        """The block with this name."""
        if func_name is not None and func_name != self._name:
            self._select(func_name)
        return call("schedule_call", self._sch, "get_block", [name, None])

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """split, fuse, …: the primitives."""

    def __repr__(self) -> str:
        return f"Schedule({self._name})\n{self.trace}"


# ---- the primitives


def _parse_params(text: str) -> List[Tuple[str, str, Any, bool]]:
    """name, type, default, star of each parameter in a row's text."""
    out = []
    for item in re.split(r",\s*(?![^\[]*\])", text) if text else []:
        m = re.fullmatch(r"(\*?)(\w+):\s*([^=]+?)(?:\s*=\s*(.+))?", item.strip())
        if m is None:
            raise error.InternalError(f"the signature '{text}' of a primitive does not read")
        star, name, kind, default = m.groups()
        value = inspect.Parameter.empty if default is None else _literal(default)
        out.append((name, kind, value, bool(star)))
    return out


def _literal(text: str) -> Any:
    known = {"None": None, "True": True, "False": False}
    if text in known:
        return known[text]
    try:
        return int(text)
    except ValueError:
        return text.strip("\"'")


def _argument(sch: Schedule, kind: str, value: Any) -> Any:
    """A Python argument as the primitive takes it."""
    if isinstance(value, str):
        if kind == "intrin":
            return TensorIntrin.get(value)
        if re.search(r"\bblock\b", kind) and "str" not in kind:
            return sch.get_block(value)
        return value
    if isinstance(value, IterVar):
        return value.thread_tag
    if isinstance(value, IndexMap):
        return value.as_argument()
    if isinstance(value, (list, tuple)):
        inner = kind[5:-1] if kind.startswith("list[") else kind
        return [_argument(sch, inner, v) for v in value]
    if kind.startswith("expr") and value is not None and not isinstance(value, Object):
        return value if isinstance(value, (int, float, bool)) else convert(value)
    return value


def _index_map_rank(sch: Schedule, bound: Dict[str, Any]) -> Optional[int]:
    """Number of indices that a map of this call takes, for a lambda with *args."""
    block = sch.get(_argument(sch, "block", bound["block"]))
    which = bound.get("buffer")
    if which is None:
        return len(block.iter_vars)
    regions = block.reads + block.writes
    if isinstance(which, (list, tuple)):
        return len((block.reads if which[0] == "read" else block.writes)[which[1]].region)
    name = which if isinstance(which, str) else which.name
    return next((len(r.region) for r in regions if r.buffer.name == name), None)


def _prepare(sch: Schedule, bound: Dict[str, Any]) -> None:
    """Arguments that TVM takes in more than one form."""
    if callable(bound.get("index_map")):
        takes_any = any(p.kind == p.VAR_POSITIONAL for p in inspect.signature(bound["index_map"]).parameters.values())
        bound["index_map"] = IndexMap.from_func(bound["index_map"], _index_map_rank(sch, bound) if takes_any else None)
    if hasattr(bound.get("buffer"), "scope"):
        bound["buffer"] = bound["buffer"].name


#: Parameters of TVM's methods that only have one meaning here: name -> accepted value.
_FIXED = {
    "split": {"disable_predication": False},
    "transform_layout": {"assume_injective_transform": False},
    "sample_compute_location": {},
}


def _make_method(name: str, args: str, result: str, doc: str) -> Callable[..., Any]:
    params = _parse_params(args)
    fixed = _FIXED.get(name, {})
    P = inspect.Parameter
    starred = any(star for *_, star in params)
    sig = [P("self", P.POSITIONAL_OR_KEYWORD)]
    for pname, kind, default, star in params:
        how = P.VAR_POSITIONAL if star else P.KEYWORD_ONLY if starred else P.POSITIONAL_OR_KEYWORD
        sig.append(P(pname, how, default=P.empty if star else default, annotation=kind))
    sig += [P(n, P.KEYWORD_ONLY if starred else P.POSITIONAL_OR_KEYWORD, default=v) for n, v in fixed.items()]
    signature = inspect.Signature(sig, return_annotation=result)

    def method(self: Schedule, *given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(self, *given, **named)
        except builtins_TypeError as e:
            raise error.TypeError(f"Schedule.{name}: {e}") from None
        bound.apply_defaults()
        values = dict(bound.arguments)
        for key, only in fixed.items():
            if values.pop(key) != only:
                raise error.UnsupportedError(f"Schedule.{name}: {key} can only be {only}")
        _prepare(self, values)
        out = call("schedule_call", self._sch, name, [_argument(self, kind, values[pname]) for pname, kind, _, _ in params])
        return out

    method.__name__, method.__qualname__ = name, f"Schedule.{name}"
    method.__doc__ = doc[0].upper() + doc[1:] + "."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


builtins_TypeError = TypeError  # the builtin, whatever this module's names become
primitives: List[str] = []
for _row in call("primitives"):
    primitives.append(_row[0])
    if not hasattr(Schedule, _row[0]):
        setattr(Schedule, _row[0], _make_method(*_row))
