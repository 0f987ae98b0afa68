"""Passes: functions from modules to modules, and the context they run in."""

from __future__ import annotations

import ctypes
import functools
import inspect
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .. import error
from .._ffi import Object, call, callback_scope, register_object
from .._ffi.core import KIND_NUMBER
from .module import IRModule, is_graph_function

__all__ = [
    "BuiltinPass",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "Sequential",
    "function_pass",
    "module_pass",
    "pass_instrument",
]


class PassInfo(NamedTuple):
    """What a pass is called, from which level it runs, what it needs."""

    opt_level: int
    name: str
    required: List[str]
    traceable: bool = False


@register_object("passcontext")
class _PassContext(Object):
    """The context in the C library."""


_current = threading.local()
_PassFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_WatchFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)


#: Databases of tuning that relay.build uses where the config names none; the last counts.
tuned_databases: List[str] = []
#: Lines for the config lathe.tuned where it has none; the last counts.
tuned_lines: List[str] = []


class PassContext:
    """Which passes run, and how.

    >>> with lathe.transform.PassContext(opt_level=3, disabled_pass=["AlterOpLayout"]):
    ...     lib = relay.build(mod, target="llvm")

    Config keys that are not known are refused; `PassContext.list_configs()` gives the known ones."""

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Optional[Sequence[str]] = None,
        disabled_pass: Optional[Sequence[str]] = None,
        instruments: Optional[Sequence[Any]] = None,
        config: Optional[Dict[str, Any]] = None,
        trace: Any = None,
        trace_stack: Any = None,
        make_traceable: Any = None,
        num_evals: int = 0,
        tuning_api_database: Any = None,
    ):
        self.opt_level = int(opt_level)
        self.required_pass, self.disabled_pass = _names("required", required_pass), _names("disabled", disabled_pass)
        self.config = dict(config or {})
        #: Passes of the user's over lowered functions, in order.
        self.lower_passes = _lower_passes(self.config.pop("tir.add_lower_pass", None))
        self.instruments = list(instruments or [])
        self._callbacks: List[Any] = []
        self._added: List[Any] = []
        self._make(None)  # the keys and names are checked here and now

    def _make(self, target: Any) -> _PassContext:
        config = dict(self.config)
        if tuned_databases:
            config.setdefault("lathe.tuned.database", tuned_databases[-1])
        if tuned_lines:
            config.setdefault("lathe.tuned", tuned_lines[-1])
        c = call(
            "pass_context",
            self.opt_level,
            self.required_pass,
            self.disabled_pass,
            [[k, v] for k, v in config.items()],
            target,
        )
        self.notes = call("pass_context_notes", c)
        return c

    def for_compiler(self, target: Any = None) -> _PassContext:
        """The context for passes that run in the C library, with the instruments attached."""
        c = self._make(target)
        for instrument in self.instruments:
            fn = _watch(instrument)
            self._callbacks.append(fn)
            call("pass_context_watch", c, type(instrument).__name__, ctypes.cast(fn, ctypes.c_void_p).value, 0)
        for added, after in self._added:
            fn = _pass_function(added, self)
            self._callbacks.append(fn)
            call(
                "pass_context_add",
                c,
                added.info.name,
                added.info.opt_level,
                after,
                ctypes.cast(fn, ctypes.c_void_p).value,
                0,
            )
        return c

    def add_pass(self, added: "Pass", after: str) -> None:
        """Puts a pass of your own into what relay.build runs, behind the first pass of that name."""
        self._added.append((added, after))
        try:
            self.for_compiler()  # the name is checked here and now
        except error.LatheError:
            self._added.pop()
            raise

    def pass_enabled(self, info: PassInfo) -> bool:
        """Would a Sequential run it here?"""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def __enter__(self) -> "PassContext":
        self._enter_instruments()
        _stack().append(self)
        for note in self.notes:
            import warnings

            warnings.warn(note, stacklevel=2)
        return self

    def __exit__(self, *_exc: Any) -> None:
        _stack().pop()
        self._exit_instruments(self.instruments)

    def _enter_instruments(self) -> None:
        """Where one of them raises, those that were entered are left, and the context has none any more."""
        entered: List[Any] = []
        try:
            for i in self.instruments:
                i.enter_pass_ctx()
                entered.append(i)
        except BaseException:
            self.instruments = []
            self._exit_instruments(entered)
            raise

    def _exit_instruments(self, instruments: Sequence[Any]) -> None:
        try:
            for i in instruments:
                i.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise

    def override_instruments(self, instruments: Optional[Sequence[Any]]) -> None:
        """Other instruments from now on."""
        self._exit_instruments(self.instruments)
        self.instruments = list(instruments or [])
        self._enter_instruments()

    @staticmethod
    def current() -> "PassContext":
        """The innermost context of a with statement, or the thread's default one."""
        stack = _stack()
        if stack:
            return stack[-1]
        if not hasattr(_current, "default"):
            _current.default = PassContext()
        return _current.default

    @staticmethod
    def list_configs() -> Dict[str, Dict[str, str]]:
        """The config keys that are known, with type, default and doc."""
        return {
            name: {"type": kind, "default": default, "doc": doc} for name, kind, default, doc in call("config_table")
        }


def _lower_passes(given: Any) -> List["Pass"]:
    """The passes of [(phase, pass), …]; phases tell the order, and all of them run on what lowering gives."""
    for row in given or []:
        if not isinstance(row, (list, tuple)) or len(row) != 2 or not isinstance(row[1], Pass):
            raise error.ArgumentError(f"tir.add_lower_pass is a list of (phase, pass), not of {row!r}")
    return [p for _, p in sorted(given or [], key=lambda row: int(row[0]))]


def _names(what: str, names: Optional[Sequence[str]]) -> List[str]:
    if names is None:
        return []
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise error.TypeError(f"{what}_pass is a list of names of passes")
    return list(names)


def _stack() -> List[PassContext]:
    if not hasattr(_current, "stack"):
        _current.stack = []
    return _current.stack


def _watch(instrument: Any) -> Any:
    """The C function that tells an instrument of a pass in the C library."""

    def run(_user: Any, when: int, name: bytes, module: Any) -> int:
        with callback_scope(module) as (mod, failed):
            try:
                info = _info_of(name.decode())
                if when == 0:
                    return int(bool(instrument.should_run(mod, info)))
                (instrument.run_before_pass if when == 1 else instrument.run_after_pass)(mod, info)
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _WatchFn(run)


def _pass_function(added: "Pass", ctx: PassContext) -> Any:
    """The C function that runs a Python pass on the module that the pipeline works on."""

    def run(_user: Any, _name: bytes, module: Any) -> int:
        with callback_scope(module) as (mod, failed):
            try:
                for var, f in added.run(mod, ctx).functions.items():
                    mod[var] = f
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _PassFn(run)


@functools.lru_cache(maxsize=None)
def _table() -> Dict[str, Any]:
    return {row[0]: row for row in call("pass_table")}


def _info_of(name: str) -> PassInfo:
    row = _table().get(name)
    return PassInfo(row[3] if row else 0, name, [])


class Pass:
    """Something that makes a module of a module: pass_(mod)."""

    info: PassInfo

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module."""
        raise NotImplementedError()

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            raise error.TypeError(
                f"{self.info.name} takes an IRModule, not a {type(mod).__name__}; lathe.IRModule.from_expr makes one of a function"
            )
        ctx = PassContext.current()
        for i in ctx.instruments:
            if not i.should_run(mod, self.info):
                return mod
        for i in ctx.instruments:
            i.run_before_pass(mod, self.info)
        out = self.run(mod, ctx)
        if not isinstance(out, IRModule):
            raise error.TypeError(f"pass {self.info.name} returned a {type(out).__name__}, not an IRModule")
        for i in ctx.instruments:
            i.run_after_pass(out, self.info)
        return out

    def __repr__(self) -> str:
        return f"<pass {self.info.name}, level {self.info.opt_level}>"


class BuiltinPass(Pass):
    """A pass of the C library, with its options."""

    def __init__(self, name: str, options: Dict[str, Any]):
        row = _table().get(name)
        if row is None:
            raise error.ArgumentError(f"there is no pass '{name}'; there are {', '.join(_table())}")
        self.info = PassInfo(row[3], name, [])
        self.options = options

    def context(self, ctx: PassContext) -> _PassContext:
        """The context that it runs in; whoever runs it has told the instruments."""
        quiet = PassContext.__new__(PassContext)
        quiet.__dict__.update(ctx.__dict__, instruments=[])
        return quiet.for_compiler(_current_target())

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        options = [[k, _option(v)] for k, v in self.options.items()]
        return call("pass_run", mod, self.info.name, options, self.context(ctx))


def _option(value: Any) -> Any:
    """An option as the C library reads it: lists with commas, {"nn.conv2d": ["NHWC", "default"]} as "nn.conv2d=NHWC,default"."""
    if isinstance(value, dict):
        return "; ".join(f"{k}={','.join([v] if isinstance(v, str) else v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(v) for v in value)
    return value


def _current_target() -> Any:
    from ..target import Target

    t = Target.current(allow_none=True)
    return t._h if t is not None else None


class Sequential(Pass):
    """Passes one after the other; each runs where the context's level and lists allow it."""

    def __init__(
        self,
        passes: Optional[Sequence[Pass]] = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Optional[Sequence[str]] = None,
        traceable: bool = False,
    ):
        self.passes = list(passes or [])
        self.info = PassInfo(opt_level, name, list(required or []))

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for p in self.passes:
            if ctx.pass_enabled(p.info):
                for name in p.info.required:
                    mod = BuiltinPass(name, {})(mod)
                mod = p(mod)
        return mod


class ModulePass(Pass):
    """A pass made of a Python function over modules."""

    def __init__(self, transform: Callable[[IRModule, PassContext], IRModule], info: PassInfo):
        self._transform, self.info = transform, info

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self._transform(call("module_copy", mod), ctx)


class FunctionPass(Pass):
    """A pass made of a Python function over the graph functions of a module."""

    def __init__(self, transform: Callable[[Any, IRModule, PassContext], Any], info: PassInfo):
        self._transform, self.info = transform, info

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        out = call("module_copy", mod)
        for var, f in mod.functions.items():
            if is_graph_function(f):
                new = self._transform(f, mod, ctx)
                if not is_graph_function(new):
                    raise error.TypeError(
                        f"pass {self.info.name} returned a {type(new).__name__} for function '{var.name_hint}', not a Function"
                    )
                out[var] = new
        return out


class PrimFuncPass(Pass):
    """A pass made of a Python function over the loop programs of a module."""

    def __init__(self, transform: Callable[[Any, IRModule, PassContext], Any], info: PassInfo):
        self._transform, self.info = transform, info

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        out = call("module_copy", mod)
        for var, f in mod.functions.items():
            if f._kind == KIND_NUMBER["primfunc"]:
                new = self._transform(f, mod, ctx)
                if not isinstance(new, type(f)):
                    raise error.TypeError(
                        f"pass {self.info.name} returned a {type(new).__name__} for function '{var.name_hint}', not a PrimFunc"
                    )
                out[var] = new
        return out


def _decorator(kind: type, method: str, what: str):

    def decorate(
        pass_func: Any = None,
        opt_level: Optional[int] = None,
        name: Optional[str] = None,
        required: Optional[Sequence[str]] = None,
        traceable: bool = False,
    ) -> Any:
        if opt_level is None:
            raise error.ArgumentError(f"{what}: opt_level must be given, the level from which the pass runs")

        def make(arg: Any) -> Any:
            info = PassInfo(int(opt_level), name or arg.__name__, list(required or []))
            if not inspect.isclass(arg):
                return kind(arg, info)

            class Made(kind):  # type: ignore
                """The user's class as a pass."""

                def __init__(self, *args: Any, **kwargs: Any):
                    self._user = arg(*args, **kwargs)
                    super().__init__(getattr(self._user, method), info)

                def __getattr__(self, key: str) -> Any:
                    return getattr(self.__dict__["_user"], key)

            Made.__name__, Made.__qualname__, Made.__doc__, Made.__module__ = (
                arg.__name__,
                arg.__qualname__,
                arg.__doc__,
                arg.__module__,
            )
            return Made

        return make(pass_func) if pass_func is not None else make

    decorate.__name__ = what
    decorate.__doc__ = f"Decorator: a function, or a class with the method {method}, as a pass."
    return decorate


module_pass = _decorator(ModulePass, "transform_module", "module_pass")
function_pass = _decorator(FunctionPass, "transform_function", "function_pass")
prim_func_pass = _decorator(PrimFuncPass, "transform_function", "prim_func_pass")


# ---- instruments


class PassInstrument:
    """Callbacks around passes; override what you need."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """May the pass run?"""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass is about to run."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass has run."""


def pass_instrument(cls: type) -> type:
    """Class decorator: any of the methods of PassInstrument make an instrument."""
    made = type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__})
    made.__module__, made.__qualname__ = cls.__module__, cls.__qualname__
    return made


class PassTimingInstrument(PassInstrument):
    """Seconds of each pass; render() gives them as text."""

    def __init__(self) -> None:
        self._open: List[Any] = []
        self._rows: List[Any] = []

    def enter_pass_ctx(self) -> None:
        self._open, self._rows = [], []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._rows.append([len(self._open), info.name, 0.0])
        self._open.append((self._rows[-1], time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        row, start = self._open.pop()
        row[2] = time.perf_counter() - start

    def render(self) -> str:
        """One line per pass, nested ones indented."""
        return "\n".join(f"{'  ' * depth}{name}: {seconds * 1e3:.3f} ms" for depth, name, seconds in self._rows)


class _Print(PassInstrument):
    def __init__(self, passes: Optional[Sequence[str]] = None):
        self._passes = None if passes is None else set(_names("printed", passes))

    def _show(self, when: str, mod: IRModule, info: PassInfo) -> None:
        if self._passes is None or info.name in self._passes:
            print(f"{when} pass {info.name}:\n{mod}")


class PrintBeforeAll(_Print):
    """Prints the module before each pass, or before those of the given names."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._show("Before", mod, info)


class PrintAfterAll(_Print):
    """Prints the module after each pass, or after those of the given names."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._show("After", mod, info)


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:  # pylint: disable=invalid-name
    """A pass that prints the module and gives it back."""

    def show(mod: IRModule, _ctx: PassContext) -> IRModule:
        print(header or "PrintIR", mod, sep="\n")
        return mod

    return ModulePass(show, PassInfo(0, "PrintIR", []))
