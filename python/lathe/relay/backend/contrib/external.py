"""What the code generator of an external compiler gives, and how relay.build asks it.

A code generator is a function that is registered as relay.ext.NAME:

>>> @lathe.register_func("relay.ext.mine")
... def generate(func):                       # a relay.Function with Compiler="mine" and global_symbol
...     return CSource(f"int32_t {func.attrs['global_symbol']}(float *x, float *out) {{ … }}")

The compiled function is handed what `arguments` lists: the parameters, the constants and the results, tuples spread
out.  The constants are those in the function's body, in the order of their first use; where
relay.ext.NAME.constant_updater is registered, those that it gives for (func, symbol), a dictionary of names and arrays."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from .... import error
from ...._ffi import answer, callback_scope
from ....runtime.packed import get_global_func, list_global_func_names, register_func
from ...analysis import post_order_visit
from ...expr import Constant, Function, const
from ...ty import TensorType, TupleType

_PREFIX = "relay.ext."
_GenerateFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class External:
    """Code of an external function; constants: names and arrays, or None for those of the function."""

    form = ""

    def __init__(self, code: Union[str, bytes], constants: Optional[Dict[str, Any]] = None, kind: Optional[str] = None):
        self.code = code.encode() if isinstance(code, str) else bytes(code)
        self.constants, self.kind = constants, kind


class CSource(External):
    """C source with int32_t SYMBOL(pointers…), which answers 0 or a status.  It is compiled with the model, and runs
    under every executor.  Ahead of time the sources of one model meet in one file: name helpers after the symbol, or
    put them behind #ifndef."""

    form = "c"


class Object(External):
    """The same, compiled: the bytes of an object file."""

    form = "object"


class Module(External):
    """Bytes for the loader of a kind: a plugin of the runtime, or what lathe_rt_module_kind_add was given."""

    form = "module"

    def __init__(self, kind: str, code: Union[str, bytes], constants: Optional[Dict[str, Any]] = None):
        super().__init__(code, constants, kind)


def constants_of(func: Function, symbol: str) -> Dict[str, Constant]:
    """The constants of a function's body under the names that they have as arguments."""
    found: Dict[Constant, str] = {}

    def visit(e: Any) -> None:
        if isinstance(e, Constant) and e not in found:
            found[e] = f"{symbol}_const_{len(found)}"

    post_order_visit(func.body, visit)
    return {name: c for c, name in found.items()}


class Argument(NamedTuple):
    """A tensor that an external function is handed."""

    name: str
    shape: Tuple[Any, ...]
    dtype: str
    role: str  # "input", "constant" or "output"


def _leaves(name: str, t: Any) -> List[Tuple[str, TensorType]]:
    if isinstance(t, TensorType):
        return [(name, t)]
    if not isinstance(t, TupleType):
        raise error.UnsupportedError(f"an external function takes and gives tensors; '{name}' is {t}")
    flat = [leaf for f in t.fields for leaf in _leaves(name, f)]
    return [(name if len(flat) == 1 else f"{name}_{i}", leaf[1]) for i, leaf in enumerate(flat)]


def _symbol(func: Function) -> str:
    return (func.attrs or {})["global_symbol"]


def arguments(func: Function, constants: Optional[Dict[str, Any]] = None) -> List[Argument]:
    """What the function is handed, in order."""
    values = constants_of(func, _symbol(func)) if constants is None else {n: const(c) for n, c in constants.items()}
    rows = [(n, t, "input") for p in func.params for n, t in _leaves(p.name_hint, p.checked_type)]
    rows += [(n, c.checked_type, "constant") for n, c in values.items()]
    rows += [(n, t, "output") for n, t in _leaves("out", func.body.checked_type)]
    size = lambda d: getattr(d, "value", d)  # noqa: E731
    return [Argument(n, tuple(size(d) for d in t.shape), t.dtype, role) for n, t, role in rows]


def get_codegen(compiler: str) -> Optional[Callable[..., Any]]:
    """The code generator of a compiler; None: there is none."""
    return get_global_func(_PREFIX + compiler, True)


def _generate(compiler: str, func: Function, symbol: str) -> List[Any]:
    made = get_codegen(compiler)(func)  # type: ignore
    if isinstance(made, str):
        made = CSource(made)
    if not isinstance(made, External):
        raise error.TypeError(
            f"{_PREFIX}{compiler} gives a CSource, an Object or a Module of lathe.relay.backend.contrib, "
            f"not a {type(made).__name__}"
        )
    values = made.constants
    if values is None:
        update = get_global_func(f"{_PREFIX}{compiler}.constant_updater", True)
        values = update(func, symbol) if update is not None else constants_of(func, symbol)
    rows = [[name, v if isinstance(v, Constant) else const(v)] for name, v in values.items()]
    return [made.form, made.kind, made.code, rows]


def _callback(compiler: str) -> Any:
    keep: List[Any] = []

    def run(_user: Any, _n: int, args: int, out: int) -> int:
        with callback_scope(args, 2) as ((func, symbol), failed):
            try:
                answer(out, _generate(compiler, func, symbol), keep)
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _GenerateFn(run)


def code_generators() -> List[Any]:
    """Name and C function of every compiler that is registered."""
    names = [n[len(_PREFIX) :] for n in list_global_func_names() if n.startswith(_PREFIX)]
    return [[n, _callback(n)] for n in names if "." not in n]


def c_source_module(code: str, fmt: str = "c", _func_names: Any = (), _const_vars: Any = ()) -> CSource:
    """TVM's runtime.CSourceModuleCreate."""
    if fmt not in ("c", "cc"):
        raise error.UnsupportedError(f"runtime.CSourceModuleCreate: source in C, not '{fmt}'")
    return CSource(code)


register_func("runtime.CSourceModuleCreate", c_source_module, override=True)
