"""Functions that compiled code calls by name."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from .. import _ffi, error
from .._ffi import library
from .._ffi.library import PACKED_FLOAT, PACKED_INT, PACKED_OBJECT, PACKED_STR, PACKED_TENSOR, DropFn, PackedFn, RtError
from .ndarray import NDArray, as_ndarray, from_address

_registered: Dict[str, Any] = {}  # name -> (function, callback that C holds)
_raised: List[Any] = []  # (thread, exception) of callbacks under way
_lock = threading.Lock()


def rt_check(code: int, err: RtError) -> None:
    """Raises for a code that is not LATHE_RT_OK."""
    if code == 0:
        return
    text = err.text.decode(errors="replace")
    kinds = {
        1: error.ArgumentError,
        2: error.NotFoundError,
        3: error.MemoryError,
        4: error.UnsupportedError,
        5: error.IOError,
        6: error.CallbackError,
        7: error.LatheError,
        8: error.LatheError,
    }
    if code == 6:
        pending = take_exception()
        if pending is not None:
            raise pending
    raise kinds.get(code, error.LatheError)(text)


def take_exception() -> Optional[BaseException]:
    """The exception that a Python function raised inside the call that just failed."""
    with _lock:
        if not _raised:
            return None
        mine = [i for i, (thread, _) in enumerate(_raised) if thread == threading.get_ident()]
        _, exc = _raised.pop(mine[-1] if mine else -1)
        if not mine:
            _raised.clear()  # workers of the same call: the first is enough
        return exc


def _argument(a: Any) -> Any:
    if a.tag == PACKED_INT:
        return a.u.i
    if a.tag == PACKED_FLOAT:
        return a.u.f
    if a.tag == PACKED_STR:
        return a.u.s.decode()
    if a.tag == PACKED_TENSOR:
        return from_address(a.u.t.contents)
    if a.tag == PACKED_OBJECT:
        key = library.runtime().lathe_rt_object_data(a.u.p, b"python")
        return _objects[key] if key else a.u.p
    return a.u.p


# Python values that programs hold, by the numbers that the runtime knows them by.
_objects: Dict[int, Any] = {}
_next_object = itertools.count(1)
_drop_object = DropFn(lambda key: _objects.pop(key, None) and None)


def _give(value: Any, result: Any) -> Any:
    """Writes a function's result for the program that called it; what is given back stays until that has been
    copied."""
    if value is None:
        return None
    if isinstance(value, (bool, int, np.integer)):
        result.tag, result.u.i = PACKED_INT, int(value)
    elif isinstance(value, (float, np.floating)):
        result.tag, result.u.f = PACKED_FLOAT, float(value)
    elif isinstance(value, (np.ndarray, NDArray)):
        array = as_ndarray(value)
        tensor = array.rt_tensor()
        result.tag, result.u.t = PACKED_TENSOR, ctypes.pointer(tensor)
        return array, tensor
    else:
        key, made, err = next(_next_object), ctypes.c_void_p(), RtError()
        _objects[key] = value
        drop = ctypes.cast(_drop_object, ctypes.c_void_p)
        try:
            rt_check(
                library.runtime().lathe_rt_object_new(b"python", key, drop, ctypes.byref(made), ctypes.byref(err)), err
            )
        except BaseException:
            del _objects[key]
            raise
        result.tag, result.u.p = PACKED_OBJECT, made.value
    return None


def register_func(func_name: Any, f: Optional[Callable[..., Any]] = None, override: bool = False) -> Any:
    """Makes a Python function known by name, for tir.call_packed and for extern.

    >>> @lathe.register_func("my.sort")
    ... def sort(a, out): ...

    Tensors arrive as NDArrays over the program's own memory.  An exception that it
    raises stops the program and comes out of the call as itself."""
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in _registered and not override:
            raise error.ArgumentError(
                f"a function '{func_name}' is registered already; pass override=True to replace it"
            )

        given: Dict[int, Any] = {}

        def run(_user: Any, n: int, args: Any, result: Any) -> int:
            try:
                value = fn(*[_argument(args[i]) for i in range(n)])
                if result:
                    given[threading.get_ident()] = _give(value, result[0])
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                with _lock:
                    _raised.append((threading.get_ident(), e))
                return 1

        callback = PackedFn(run)
        err = RtError()
        rt_check(
            library.runtime().lathe_rt_register(
                func_name.encode(), ctypes.cast(callback, ctypes.c_void_p), None, ctypes.byref(err)
            ),
            err,
        )
        _registered[func_name] = (fn, callback)
        return fn

    return register(f) if f is not None else register


def get_global_func(name: str, allow_missing: bool = False) -> Optional[Callable[..., Any]]:
    """The function registered under a name."""
    if name in _registered:
        return _registered[name][0]
    if allow_missing:
        return None
    raise error.ArgumentError(f"there is no function '{name}'; lathe.register_func registers one")


def remove_global_func(name: str) -> None:
    """Forgets a function."""
    if _registered.pop(name, None) is not None:
        err = RtError()
        rt_check(library.runtime().lathe_rt_register(name.encode(), None, None, ctypes.byref(err)), err)


def list_global_func_names() -> List[str]:
    """Names of the functions registered from Python."""
    return sorted(_registered)


# TVM's programs look for these under tvm._ffi too.
for _function in (register_func, get_global_func, remove_global_func, list_global_func_names):
    setattr(_ffi, _function.__name__, _function)
