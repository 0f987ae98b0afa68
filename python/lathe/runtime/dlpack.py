"""DLPack for the dtypes that numpy lacks: bfloat16 and the floats of 8 bits.

A capsule named "dltensor" holds the address of a DLManagedTensor: a tensor, a word of its owner's, and the function
that gives it back.  Whoever takes it renames the capsule and calls that function when it is done."""

from __future__ import annotations

import ctypes
from typing import Any, Tuple

from .._ffi.library import RtDType, RtTensor

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", RtTensor), ("owner", ctypes.c_void_p), ("deleter", _Deleter)]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)

_FRESH, _USED = b"dltensor", b"used_dltensor"


class Owner:
    """Keeps memory that came by DLPack until nothing uses it."""

    def __init__(self, managed: Any):
        self._managed = managed

    def __del__(self) -> None:
        managed = self._managed
        if managed.deleter:
            managed.deleter(ctypes.addressof(managed))


def is_capsule(x: Any) -> bool:
    """Is it a capsule that nobody has taken yet?"""
    return bool(_is_valid(x, _FRESH))


def peek(capsule: Any) -> Tuple[int, int, int]:
    """Code, bits and lanes of the elements of a capsule."""
    t = ManagedTensor.from_address(_pointer(capsule, _FRESH)).tensor.dtype
    return t.code, t.bits, t.lanes


def take(capsule: Any) -> Tuple[RtTensor, Owner]:
    """The tensor of a capsule, and what keeps its memory."""
    managed = ManagedTensor.from_address(_pointer(capsule, _FRESH))
    _rename(capsule, _USED)
    return managed.tensor, Owner(managed)


def retyped(capsule: Any, code: int, bits: int) -> Any:
    """The capsule of an array of numpy's, which stores elements of another dtype of the same size."""
    ManagedTensor.from_address(_pointer(capsule, _FRESH)).tensor.dtype = RtDType(code, bits, 1)
    return capsule
