"""Schedules of loop programs.

The primitives come from the compiler's own table: `Schedule.split`, `fuse`, … are
made from its rows, signature and doc included."""

from __future__ import annotations

import inspect
import random
import re
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type, Union

from ... import error
from ..._ffi import Object, call, register_object
from ..._ir.module import IRModule
from ..expr import IterVar, convert
from ..function import IndexMap, PrimFunc, TensorIntrin
from .state import ScheduleState, StmtSRef
from .trace import FIXED, ROWS, BlockRV, ExprRV, Instruction, InstructionKind, LoopRV, Param, Reader, Trace, flatten

__all__ = ["ABSENT", "Schedule", "ScheduleError", "primitives"]


@register_object("schedule")
class _Handle(Object):
    """The schedule in the C library."""


class ScheduleError(error.ScheduleError):
    """A primitive that was refused; everything is as it was before.

    primitive is its name, reason why, mod the module, and render() the module's text in which the blocks and loops that
    the primitive was called with are underlined.  What a primitive refuses for another reason (an argument out of
    range, a limit) is also the exception of that reason."""

    primitive: str = ""
    reason: str = ""
    mod: Optional[IRModule] = None
    _marked: str = ""

    def render(self) -> str:
        """The function's text with the blocks and loops concerned underlined."""
        return self._marked


_REFUSALS: Dict[type, Type[ScheduleError]] = {}


def _refusal(kind: type) -> Type[ScheduleError]:
    """The ScheduleError that is an error of this kind too."""
    if kind not in _REFUSALS:
        same = issubclass(ScheduleError, kind)
        _REFUSALS[kind] = (
            ScheduleError if same else type("ScheduleError", (ScheduleError, kind), {"__module__": __name__})
        )
    return _REFUSALS[kind]


#: Errors that say nothing about the program.
_NO_REFUSAL = (error.InternalError, error.MemoryError, error.CallbackError, error.IOError)
_RENDER_LEVELS = ("detail", "fast", "none")


class Schedule:
    """Changes how a function runs without changing what it computes.

    A primitive that would change the meaning raises ScheduleError with the reason
    and leaves everything as it was.  error_render_level: "fast" gives the reason, "detail" also the program with what
    is concerned underlined, "none" the primitive's name only.  The checks that debug_mask asks for always run."""

    def __init__(
        self,
        mod: Union[IRModule, PrimFunc],
        *,
        seed: Optional[int] = None,
        debug_mask: Union[str, int] = "none",
        error_render_level: str = "fast",
        enable_check: bool = True,
    ):
        if error_render_level not in _RENDER_LEVELS:
            raise error.ArgumentError(
                f"Schedule: error_render_level is one of {', '.join(_RENDER_LEVELS)}, not {error_render_level!r}"
            )
        if not enable_check:
            warnings.warn(
                "Schedule: enable_check=False is ignored; what a primitive changes is always checked", stacklevel=2
            )
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise error.TypeError(f"Schedule: wants an IRModule or a PrimFunc, not a {type(mod).__name__}")
        self._mod = mod
        self._render = error_render_level
        self._rand = random.Random()
        self.seed(-1 if seed is None else int(seed))
        names = [v.name_hint for v in mod.get_global_vars()]
        if not names:
            raise error.ArgumentError("Schedule: the module has no function")
        self._all: Dict[str, _Handle] = {}
        self._given: Dict[int, Tuple[Any, Any]] = {}  # by number: what names it, the statement
        self._removed: Dict[int, Any] = {}  # what remove_rv took out, kept so that nothing else gets its id
        self._readers: Dict[str, Reader] = {}
        self._select("main" if "main" in names else names[0])

    def _select(self, name: str) -> None:
        if name not in self._all:
            self._all[name] = call("schedule", self._mod[name], self._seed)
            self._readers[name] = Reader(name)
        self._name, self._sch = name, self._all[name]
        self._given.clear()

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
        """What was done so far to the function that primitives are about."""
        return self._readers[self._name].trace(call("schedule_trace", self._sch))

    def _replay(self, text: str) -> None:
        self._given.clear()
        call("schedule_replay", self._sch, text)
        self.trace  # pylint: disable=pointless-statement  # the lines that came are read

    def show(self, style: Optional[str] = None, **_kwargs: Any) -> None:
        """Prints the module and the trace, in colour on a terminal."""
        self.mod.show(style)
        self.trace.show(style)

    def copy(self) -> "Schedule":
        """A schedule that goes its own way from here; blocks and loops of this one
        name the same ones there."""
        new = Schedule.__new__(Schedule)
        new._mod, new._seed, new._name, new._render = self._mod, self._seed, self._name, self._render
        new._rand = random.Random(self._rand.randrange(1, 2**31))
        new._given = {}
        new._removed = dict(self._removed)
        new._all = {name: call("schedule_copy", s) for name, s in self._all.items()}
        new._readers = {name: r.copy(call("schedule_trace", self._all[name])) for name, r in self._readers.items()}
        new._sch = new._all[new._name]
        return new

    def seed(self, seed: int) -> None:
        """Sampling goes on from this number; -1 draws one."""
        self._seed = random.randrange(1, 2**31) if seed == -1 else int(seed)
        if self._seed < 0:
            raise error.ArgumentError(f"Schedule.seed: wants a number from 0, or -1 to draw one, not {seed}")
        self._rand.seed(self._seed)
        for handle in getattr(self, "_all", {}).values():
            call("schedule_seed", handle, self._seed)

    def fork_seed(self) -> int:
        """A seed for another schedule, following from this one's."""
        return self._rand.randrange(1, 2**31)

    def get(self, rand_var_or_sref: Any) -> Any:
        """What a block, loop or sampled integer stands for: a tir.Block, a tir.For, an int."""
        rv = rand_var_or_sref
        if isinstance(rv, ExprRV):
            return call("schedule_int", self._sch, rv)
        if isinstance(rv, StmtSRef):
            return rv.stmt
        if not isinstance(rv, (BlockRV, LoopRV)):
            return rv
        number = call("schedule_number", self._sch, rv)
        if rv._id() in self._removed:
            raise error.BoundsError("Schedule.get: remove_rv has taken this out of the schedule")
        if number not in self._given:  # one statement is one object until a primitive changes something
            self._given[number] = (rv, call("schedule_get", self._sch, rv))
        return self._given[number][1]

    @property
    def state(self) -> ScheduleState:
        """The module and the references to its statements."""
        return ScheduleState(self)

    def get_block(self, name: str, func_name: Optional[str] = None) -> BlockRV:
        """The block with this name."""
        if func_name is not None and func_name != self._name:
            self._select(func_name)
        return self._apply("get_block", [name, None])

    def get_sref(self, rand_var_or_stmt: Any) -> StmtSRef:
        """The reference to a block or a loop."""
        rv = rand_var_or_stmt
        return StmtSRef(self, rv) if isinstance(rv, (BlockRV, LoopRV)) else self.state.get_sref(rv)

    def remove_rv(self, rand_var: Any) -> None:
        """The schedule knows this block, loop or number no more."""
        self._removed[rand_var._id()] = rand_var

    def can_decompose_padding(self, block: Union[BlockRV, str], loop: LoopRV) -> bool:
        """Whether decompose_padding would not be refused."""
        try:
            self.copy().decompose_padding(block, loop)
        except ScheduleError:
            return False
        return True

    def _apply(self, primitive: str, args: List[Any]) -> Any:
        """Calls a primitive; a refusal becomes a ScheduleError."""
        try:
            out = call("schedule_call", self._sch, primitive, args)
        except error.LatheError as e:
            if isinstance(e, _NO_REFUSAL):
                raise
            raise self._refused(primitive, args, e) from None
        self._readers[self._name].given.append(flatten(out))
        if not InstructionKind.of(primitive).is_pure:
            self._given.clear()
        return out

    def _refused(self, primitive: str, args: List[Any], e: error.LatheError) -> ScheduleError:
        marked = call(
            "schedule_marked", self._sch, [rv for a in args for rv in flatten(a) if isinstance(rv, (BlockRV, LoopRV))]
        )
        reason = e.message
        message = f"ScheduleError: in primitive '{primitive}' (not rendered)" if self._render == "none" else reason
        if self._render == "detail":
            message = f"ScheduleError: an error occurred in the schedule primitive '{primitive}'.\nThe program:\n{marked}Reason: {reason}"
        out = _refusal(type(e))(message, e.file, e.line, e.col)
        out.primitive, out.reason, out.mod, out._marked = primitive, reason, self.mod, marked
        return out

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """split, fuse, …: the primitives."""

    def __repr__(self) -> str:
        return f"Schedule({self._name})\n{self.trace}"


# ---- the primitives


def _argument(sch: Schedule, kind: str, value: Any) -> Any:
    """A Python argument as the primitive takes it."""
    if isinstance(value, str):
        if kind == "intrin":
            return value if re.fullmatch(r"dot_\d+x4_u?int8_u?int8", value) else TensorIntrin.get(value)
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
        rank = _index_map_rank(sch, bound) if takes_any else None
        bound["index_map"], _ = IndexMap.from_func_with_separators(bound["index_map"], rank)
    if hasattr(bound.get("buffer"), "scope"):
        bound["buffer"] = bound["buffer"].name


def _make_method(name: str, params: List[Param], result: str, doc: str) -> Callable[..., Any]:
    fixed = FIXED.get(name, {})
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
        return self._apply(name, [_argument(self, kind, values[pname]) for pname, kind, _, _ in params])

    method.__name__, method.__qualname__ = name, f"Schedule.{name}"
    method.__doc__ = doc[0].upper() + doc[1:] + "."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


builtins_TypeError = TypeError  # the builtin, whatever this module's names become
primitives: List[str] = []
for _row in ROWS:
    primitives.append(_row[0])
    if not hasattr(Schedule, _row[0]):
        setattr(Schedule, _row[0], _make_method(*_row))


#: Primitives of TVM that are not here, each with the way around it.
ABSENT = {
    "annotate_buffer_access": "regions of blocks always follow from their accesses",
    "cache_index": "compute the index into a buffer of its own in the function, and schedule the block that does it",
    "read_at": "cache_read followed by compute_at does the same",
    "rolling_buffer": "compute_at keeps a tile of what its consumer needs",
    "unsafe_hide_buffer_access": "regions of blocks always follow from their accesses",
    "write_at": "cache_write followed by reverse_compute_at does the same",
}


def _absent(name: str, instead: str) -> Callable[..., Any]:
    def method(self: Schedule, *_given: Any, **_named: Any) -> Any:
        raise _refusal(error.UnsupportedError)(f"Schedule.{name} is not supported: {instead}")

    method.__name__, method.__qualname__ = name, f"Schedule.{name}"
    method.__doc__ = f"Not supported: {instead}."
    return method


for _name, _instead in ABSENT.items():
    setattr(Schedule, _name, _absent(_name, _instead))
