"""Calls into the compiler, and the objects they give.

One context serves the process, under a lock: ctypes lets other threads run while
a call is under way.  A Python object owns one handle.  Handles of objects that
went away are released at the next call, never in the middle of one.

Expressions and tensors live in a world, a place in the C library.  There is one
at a time: it goes when the last Python object in it is gone, and the next
expression starts another."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import threading
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

from .. import error
from . import library
from .library import BOOL, FLOAT, INT, KINDS, LIST, NONE, OBJECT, STR, Value


class _World:
    """Stands for the current world among a call's arguments."""


WORLD = _World()

KIND_NUMBER = {name: i for i, name in enumerate(KINDS)}
#: Objects that live in the world.
_IN_WORLD = frozenset(
    KIND_NUMBER[k]
    for k in (
        "expr",
        "var",
        "itervar",
        "buffer",
        "reducer",
        "tensor",
        "teop",
        "stmt",
        "teschedule",
        "testage",
        "node",
        "type",
    )
)
_classes: Dict[Tuple[int, Optional[str]], type] = {}
_detail_functions = {
    "expr": "expr_kinds",
    "teop": "teop_kinds",
    "stmt": "stmt_kinds",
    "node": "node_kinds",
    "type": "type_kinds",
}
_by_number: Dict[Tuple[int, int], type] = {}
#: Called before the first result of a kind: the package sees to it that all classes are registered.
before_objects: List[Callable[[], None]] = []
_arrays: List[Any] = [None] + [Value * n for n in range(1, 17)]


def register_object(kind: str, detail: Optional[str] = None) -> Callable[[type], type]:
    """Class decorator: results of this kind (and sub-kind) come as this class."""

    def decorate(cls: type) -> type:
        _classes[(KIND_NUMBER[kind], detail)] = cls
        return cls

    return decorate


def _class_of(kind: int, detail: int) -> type:
    """The class for results of this kind, looked up by the names of the sub-kinds."""
    for load in before_objects:
        load()
    names: List[str] = []
    if KINDS[kind] in _detail_functions:
        names = call(_detail_functions[KINDS[kind]])
    elif KINDS[kind] == "var":
        names = ["plain", "size"]
    name = names[detail] if detail < len(names) else None
    cls = _classes.get((kind, name)) or _classes[(kind, None)]
    _by_number[(kind, detail)] = cls
    return cls


class Context:
    """A LatheContext with its lock."""

    def __init__(self) -> None:
        self.lib = library.compiler()
        self.ptr = self.lib.lathe_context_new()
        if not self.ptr:
            raise error.MemoryError("there is no memory for a compiler context")
        self.lock = threading.RLock()
        self.dead: collections.deque = collections.deque()
        self.busy = False
        self.nested = 0  # calls under way around this one
        self.in_world = 0
        self.world: Optional[int] = None
        self.interrupt: Optional[BaseException] = None
        self.unknown: List[Object] = []  # results whose class is not known by number yet
        self._watch_signals()

    def _watch_signals(self) -> None:
        """Lets Ctrl-C stop long work: C asks this callback now and then."""
        poller = self._poller()
        next(poller)
        self._poll = library.PollFn(poller.send)  # kept: C holds its address
        self.lib.lathe_set_poll(self.ptr, self._poll, None)

    def _poller(self) -> Generator[int, Any, None]:
        # A generator, because Python runs signal handlers on entering a function: one
        # that is resumed inside its `try` catches what they raise.
        answer = 0
        while True:
            try:
                yield answer
                answer = 0
                ctypes.pythonapi.PyErr_CheckSignals()
            except GeneratorExit:
                return
            except BaseException as e:  # pylint: disable=broad-except
                self.interrupt = e  # raised again by call(), as itself
                answer = 1

    # ---- releasing

    def release(self, kind: int, handle: int) -> None:
        """Gives a handle back: now, or at the next call if one is under way."""
        self.dead.append((kind, handle))
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self._drain()
            finally:
                self.lock.release()

    def _drain(self) -> None:
        while self.dead:
            kind, handle = self.dead.popleft()
            self.lib.lathe_object_release(kind, handle)
            if kind in _IN_WORLD:
                self.in_world -= 1
        if self.in_world == 0 and self.world is not None and not self.nested:
            world, self.world = self.world, None
            self.lib.lathe_object_release(KIND_NUMBER["world"], world)

    # ---- calling

    def call(self, name: str, args: Tuple[Any, ...]) -> Any:
        """Calls a function of the library by name."""
        with self.lock:
            keep: List[Any] = []
            n = len(args)
            values: Any = _arrays[n]() if n else None
            for i in range(n):
                if args[i] is not WORLD:
                    self._encode(values[i], args[i], keep)
            if self.busy:
                raise error.ArgumentError(f"{name}: called from inside another call of the compiler")
            self.busy = True
            try:
                self._drain()
                if n and args[0] is WORLD:
                    self._encode_world(values[0])
                result = self._decode(self._raw_call(name.encode(), n, values))
            finally:
                self.busy = False
            while self.unknown:
                obj = self.unknown.pop()
                obj.__class__ = _class_of(obj._kind, obj._detail)
            return result

    def _raw_call(self, name: bytes, n: int, values: Any) -> Value:
        result = Value()
        code = self.lib.lathe_call(self.ptr, name, n, values, ctypes.byref(result))
        if code:
            raise self._error(code)
        return result

    def _encode_world(self, v: Value) -> None:
        if self.world is None:
            self.world = self._raw_call(b"world", 0, None).u.p
        v.tag, v.kind, v.u.p = OBJECT, KIND_NUMBER["world"], self.world

    def _encode(self, v: Value, x: Any, keep: List[Any]) -> None:
        t = type(x)
        if x is None:
            v.tag = NONE
        elif t is bool:
            v.tag, v.u.i = BOOL, x
        elif t is int:
            if not -(1 << 63) <= x < (1 << 63):
                raise error.ArgumentError(f"{x} does not fit 64 bits")
            v.tag, v.u.i = INT, x
        elif t is float:
            v.tag, v.u.f = FLOAT, x
        elif isinstance(x, Object):
            v.tag, v.kind, v.u.p, v.n = OBJECT, x._kind, x._h, x._detail
            keep.append(x)
        elif isinstance(x, (str, bytes)):
            data = x.encode() if isinstance(x, str) else x
            keep.append(data)
            v.tag, v.u.s, v.n = STR, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data)
        elif isinstance(x, (list, tuple)):
            items = (Value * len(x))()
            keep.append(items)
            for i, item in enumerate(x):
                self._encode(items[i], item, keep)
            v.tag, v.u.p, v.n = LIST, ctypes.addressof(items), len(x)
        else:
            self._encode(v, _convert(x), keep)

    def _decode(self, v: Value) -> Any:
        tag = v.tag
        if tag == OBJECT:
            return self._wrap(v)
        if tag == NONE:
            return None
        if tag == INT:
            return v.u.i
        if tag == BOOL:
            return bool(v.u.i)
        if tag == FLOAT:
            return v.u.f
        if tag == STR:
            data = ctypes.string_at(v.u.s, v.n)
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data
        items = (Value * v.n).from_address(v.u.p) if v.n else ()
        return [self._decode(item) for item in items]

    def borrow(self, address: int, n: Optional[int] = None) -> Any:
        """The value (or n values, as a list) at an address that a function of ours was called
        with: its objects belong to C, so each is retained."""
        value = (
            self._decode(Value.from_address(address))
            if n is None
            else [self._decode(v) for v in (Value * n).from_address(address)]
        )
        _retain(self.lib, value)
        while self.unknown:
            obj = self.unknown.pop()
            obj.__class__ = _class_of(obj._kind, obj._detail)
        return value

    def _wrap(self, v: Value) -> "Object":
        kind = v.kind
        cls = _by_number.get((kind, v.n))
        obj: Object = object.__new__(cls or Object)
        obj._h, obj._kind, obj._detail = v.u.p, kind, v.n
        if kind in _IN_WORLD:
            self.in_world += 1
        if cls is None:
            self.unknown.append(obj)
        return obj

    def _error(self, code: int) -> BaseException:
        interrupt, self.interrupt = self.interrupt, None
        name = self.lib.lathe_error_name(code).decode()
        if name == "CallbackError" and interrupt is not None:
            return interrupt
        file, line, col = ctypes.c_char_p(), ctypes.c_int32(), ctypes.c_int32()
        message = self.lib.lathe_error_message(self.ptr).decode(errors="replace")
        cls = error.BY_NAME.get(name, error.LatheError)
        if not self.lib.lathe_error_location(self.ptr, ctypes.byref(file), ctypes.byref(line), ctypes.byref(col)):
            return cls(message)
        return cls(message, file.value.decode(errors="replace") if file.value else None, line.value, col.value)


def _retain(lib: Any, value: Any) -> None:
    if isinstance(value, Object):
        lib.lathe_object_retain(value._kind, value._h)
    elif isinstance(value, list):
        for v in value:
            _retain(lib, v)


_context: Optional[Context] = None
_context_lock = threading.Lock()


def context() -> Context:
    """The context of this process."""
    global _context
    if _context is None:
        with _context_lock:
            if _context is None:
                _context = Context()
    return _context


def call(name: str, *args: Any) -> Any:
    """Calls a function of the compiler by name; `functions()` lists them."""
    return (_context or context()).call(name, args)


@contextlib.contextmanager
def callback_scope(
    value: Any, n: Optional[int] = None
) -> Generator[Tuple[Any, Callable[[BaseException], None]], None, None]:
    """Inside a function that the C library calls in the middle of a call: calls are
    allowed.  Gives the value (or n values) at an address, and a function that keeps an
    exception, which then comes out of the call under way as itself."""
    c = context()
    busy, c.busy = c.busy, False
    c.nested += 1

    def failed(e: BaseException) -> None:
        c.interrupt = e

    try:
        thing = None
        if value:
            thing = c.borrow(value, n)
        yield thing, failed
    finally:
        c.nested -= 1
        c.busy = busy


def answer(address: int, value: Any, keep: List[Any]) -> None:
    """Writes what a function of ours answers where C reads it; keep holds its memory."""
    keep.clear()
    context()._encode(Value.from_address(address), value, keep)


def functions() -> List[Tuple[str, str, str]]:
    """Name, signature and doc of everything the compiler can do."""
    lib = library.compiler()
    name, sig, doc = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_char_p()
    out: List[Tuple[str, str, str]] = []
    while lib.lathe_functions(len(out), ctypes.byref(name), ctypes.byref(sig), ctypes.byref(doc)):
        out.append(tuple(s.value.decode() for s in (name, sig, doc)))  # type: ignore
    return out


def _convert(x: Any) -> Any:
    """Values of other types as one that a call takes."""
    if hasattr(x, "asobject"):
        return x.asobject()
    if hasattr(x, "tolist") and getattr(x, "ndim", 0) == 0:  # numpy scalars
        return x.tolist()
    if hasattr(x, "__index__"):
        return int(x)
    if hasattr(x, "__fspath__"):
        return x.__fspath__()
    raise error.TypeError(f"a {type(x).__name__} cannot be passed to the compiler: {x!r}")


#: What to do instead of pickling, by kind.
_INSTEAD = {
    "primfunc": "; store script(), and read it again with lathe.script.from_source",
    "module": "; store astext() of graphs (relay.fromtext reads it) or script() of loop programs (lathe.script.from_source)",
    "node": "; store lathe.IRModule.from_expr(expr).astext(), and read it again with relay.fromtext",
    "schedule": "; store its trace, and apply that to a schedule of the same program",
    "built": "; store what export_library writes, and load it with lathe.runtime.load_module",
    "compiled": "; store what export_library writes, and load it with lathe.runtime.load_module",
    "target": "; store str(target)",
}


class Object:
    """Something that lives in the C library.  Two Python objects may name the same
    thing: `same_as` and hashing go by the thing."""

    _h: Optional[int] = None
    _kind: int = -1
    _detail: int = 0

    def __del__(self) -> None:
        handle = self._h
        if handle is not None and _context is not None:
            self._h = None
            _context.release(self._kind, handle)

    def _adopt(self, other: "Object") -> None:
        """Takes over the handle of a fresh result: how constructors work.  What was made may be simpler than what was
        asked
        for (a conversion to the same dtype is the value itself): the class follows it."""
        self._h, self._kind, self._detail = other._h, other._kind, other._detail
        other._h = None
        if not isinstance(self, type(other)):
            self.__class__ = type(other)

    def _id(self) -> int:
        return library.compiler().lathe_object_id(self._kind, self._h)

    def same_as(self, other: Any) -> bool:
        """Do both name the same thing?"""
        if hasattr(other, "asobject"):
            other = other.asobject()
        return self is other or (isinstance(other, Object) and self._kind == other._kind and self._id() == other._id())

    def __eq__(self, other: Any) -> bool:
        return self.same_as(other)

    def __ne__(self, other: Any) -> bool:
        return not self.__eq__(other)

    def __hash__(self) -> int:
        return hash(self._id())

    def __copy__(self) -> "Object":
        return self

    def __deepcopy__(self, _memo: Any) -> "Object":
        return self

    def __reduce__(self) -> Any:
        kind = KINDS[self._kind] if 0 <= self._kind < len(KINDS) else ""
        raise error.UnsupportedError(f"a {type(self).__name__} cannot be pickled{_INSTEAD.get(kind, '')}")


for _k in ("reducer", "stmt", "expr", "world"):
    _classes[(KIND_NUMBER[_k], None)] = Object
