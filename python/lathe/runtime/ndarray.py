"""Arrays.

An NDArray is 64-byte aligned memory with a numpy array over it.  `array` copies,
as TVM's does, and `.numpy()` gives a copy; `numpy.asarray(x)`, DLPack and numpy
arrays handed straight to a function share memory."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from .. import error
from .._ffi.library import MAX_RANK, RtDevice, RtDType, RtTensor
from . import dlpack
from .device import Device, check_usable, cpu

#: dtypes that numpy lacks: name -> (dtype that stores an element, DLPack code, bits)
_OTHER = {
    "bfloat16": ("uint16", 4, 16),
    "float8_e4m3fn": ("uint8", 10, 8),
    "float8_e4m3fnuz": ("uint8", 11, 8),
    "float8_e5m2": ("uint8", 12, 8),
    "float8_e5m2fnuz": ("uint8", 13, 8),
    "float8_e8m0fnu": ("uint8", 14, 8),
    "float4_e2m1fn": ("uint8", 17, 4),
    "int4": ("int8", 0, 4),
    "uint4": ("uint8", 1, 4),
    "int2": ("int8", 0, 2),
    "uint2": ("uint8", 1, 2),
}
#: dtypes whose elements lie in memory as numpy has them.
NUMPY_NAMES = frozenset(
    ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
)
#: strings: an array of str objects here, numbers of an executor's (LATHE_RT_STRING) in the runtime
STRING = (128, 64)
#: integers narrower than a byte, which numpy's extension stores otherwise
NARROW = ("int2", "uint2", "int4", "uint4")
#: dtypes that numpy lacks, whose elements lie in memory as everybody has them
SHARED = frozenset(name for name, (_, _, bits) in _OTHER.items() if bits >= 8)
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


#: Older numpys call every array from DLPack read-only; then the flag tells nothing.
_FLAGS_TELL = bool(np.from_dlpack(np.zeros(1)).flags.writeable)


@functools.lru_cache(maxsize=None)
def storage(dtype: str) -> Tuple[np.dtype, Tuple[int, int]]:
    """numpy dtype that holds an element, and (DLPack code, bits)."""
    if dtype in _OTHER:
        name, code, bits = _OTHER[dtype]
        return np.dtype(name), (code, bits)
    if dtype == "string":
        return np.dtype(object), STRING
    try:
        t = np.dtype(dtype)
    except TypeError:
        raise error.TypeError(f"an array cannot have dtype '{dtype}'") from None
    if t.kind not in _CODES:
        raise error.TypeError(f"an array cannot have dtype '{dtype}'")
    return t, (_CODES[t.kind], t.itemsize * 8)


@functools.lru_cache(maxsize=None)
def _name_of(code: int, bits: int) -> str:
    if (code, bits) in ((6, 8), (1, 1), (6, 1)):
        return "bool"
    if (code, bits) == STRING:
        return "string"
    for name, (_, c, b) in _OTHER.items():
        if (c, b) == (code, bits):
            return name
    return {0: "int", 1: "uint", 2: "float"}[code] + str(bits)


def _numpy_view(raw: np.ndarray, dtype: str) -> np.ndarray:
    """The same memory under its own dtype, where numpy knows it through ml_dtypes."""
    if dtype not in _OTHER:
        return raw
    try:
        import ml_dtypes  # pylint: disable=import-outside-toplevel

        return raw.view(getattr(ml_dtypes, dtype))
    except (ImportError, AttributeError):
        return raw


def aligned(shape: Tuple[int, ...], t: np.dtype, make: Any = np.zeros) -> np.ndarray:
    """A new array that begins at a multiple of 64 bytes."""
    if t == object:
        return np.full(shape, "", object)
    n = math.prod(shape) * t.itemsize
    memory = make(n + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return np.ndarray(shape, t, memory, start)


def tensor_of(raw: np.ndarray, dtype: str) -> RtTensor:
    """A LatheRtTensor over a numpy array, which must outlive it."""
    code, bits = storage(dtype)[1]
    if dtype == "string":
        raise error.UnsupportedError(
            "strings have no memory that compiled code could read; they go in and out through an executor"
        )
    n = raw.ndim
    shape = (ctypes.c_int64 * max(n, 1))(*raw.shape)
    strides = None
    if not raw.flags.c_contiguous:
        item = raw.itemsize
        if any(s % item for s in raw.strides):
            raise error.ArgumentError(
                "an array whose strides are not multiples of its element cannot be passed; copy it first"
            )
        strides = (ctypes.c_int64 * max(n, 1))(*[s // item for s in raw.strides])
    t = RtTensor(raw.ctypes.data, RtDevice(1, 0), n, RtDType(code, bits, 1), shape, strides, 0)
    t.keep = (raw, shape, strides)
    return t


class NDArray:
    """An array on a device."""

    def __init__(self, raw: np.ndarray, dtype: str, keep: Any = None):
        if raw.ndim > MAX_RANK:
            raise error.UnsupportedError(f"an array has {raw.ndim} dimensions; there are at most {MAX_RANK}")
        self._raw, self._dtype, self._keep = raw, dtype, keep
        self._tensor: Optional[RtTensor] = None

    # ---- what it is

    @property
    def shape(self) -> Tuple[int, ...]:
        """Extent of each dimension."""
        return tuple(self._raw.shape)

    @property
    def dtype(self) -> str:
        """dtype of an element."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._raw.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._raw.size

    @property
    def device(self) -> Device:
        """Where it lives."""
        return cpu(0)

    ctx = device

    @property
    def data_address(self) -> int:
        """Address of the first element."""
        return self._raw.ctypes.data

    @property
    def writeable(self) -> bool:
        """May it be written?"""
        return bool(self._raw.flags.writeable) or (self._keep is not None and not _FLAGS_TELL)

    def element_strides(self) -> Optional[List[int]]:
        """Elements between neighbours; None if compact."""
        return None if self._raw.flags.c_contiguous else [s // self._raw.itemsize for s in self._raw.strides]

    def rt_tensor(self) -> RtTensor:
        """As the runtime takes it."""
        if self._tensor is None:
            self._tensor = tensor_of(self._raw, self._dtype)
        return self._tensor

    # ---- in and out

    def numpy(self) -> np.ndarray:
        """A copy as a numpy array.  numpy.asarray(x) shares the memory instead."""
        return _numpy_view(self._raw, self._dtype).copy()

    asnumpy = numpy

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        a = _numpy_view(self._raw, self._dtype)
        if dtype is not None and a.dtype != dtype:
            return a.astype(dtype)
        return a.copy() if copy else a

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Shares the memory.  numpy before 2.1 takes what came by DLPack for read-only and would not
        hand it on; then whoever it came from does."""
        if self._dtype in _OTHER:
            return self._other_capsule(**kwargs)
        borrowed = not self._raw.flags.writeable and hasattr(self._keep, "__dlpack__")
        return (self._keep if borrowed else self._raw).__dlpack__(**kwargs)

    def _other_capsule(self, copy: Optional[bool] = None, **_kwargs: Any) -> Any:
        """Of a dtype that numpy lacks."""
        if self._dtype not in SHARED:
            raise error.UnsupportedError(
                f"{self._dtype} is stored one element a byte, which DLPack has no name for; .numpy() gives a copy"
            )
        raw = self._raw.copy() if copy else self._raw
        return dlpack.retyped(raw.__dlpack__(), *storage(self._dtype)[1])

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the memory."""
        return self.__dlpack__()

    def copyfrom(self, source_array: Any) -> "NDArray":
        """Copies the elements of another array of the same shape into this one."""
        src = source_array._raw if isinstance(source_array, NDArray) else np.asarray(source_array)
        if tuple(src.shape) != self.shape:
            raise error.ShapeError(
                f"copyfrom: an array of shape {tuple(src.shape)} does not fit one of shape {self.shape}"
            )
        if self._dtype in _OTHER and not isinstance(source_array, NDArray) and src.dtype.name == self._dtype:
            src = _stored(src)
        self._raw[...] = src
        return self

    def copyto(self, target: Union["NDArray", Device], mem_scope: Any = None) -> "NDArray":
        """Copies into another array, or into a new one on a device."""
        if isinstance(target, Device):
            check_usable(target, "copyto")
            target = empty(self.shape, self._dtype)
        return target.copyfrom(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis and not (isinstance(key, slice) and key == slice(None)):
            raise error.ArgumentError("an NDArray is written as a whole, x[:] = value; use numpy.asarray(x) for parts")
        if isinstance(value, NDArray):
            value.copyto(self)
        else:
            self._raw[...] = value

    def __len__(self) -> int:
        return len(self._raw)

    def item(self) -> Any:
        """The only element."""
        return _numpy_view(self._raw, self._dtype).item()

    def __repr__(self) -> str:
        return f"<lathe.nd.NDArray shape={self.shape}, dtype={self.dtype}, {self.device}>\n{_numpy_view(self._raw, self._dtype)!r}"

    __str__ = __repr__


def empty(
    shape: Union[int, Sequence[int]], dtype: str = "float32", device: Device = Device(1, 0), mem_scope: Any = None
) -> NDArray:
    """A new array; its elements are 0."""
    check_usable(device, "empty")
    dims = tuple(int(n) for n in (shape if isinstance(shape, (list, tuple)) else (shape,)))
    if any(n < 0 for n in dims):
        raise error.ShapeError(f"empty: the shape {dims} has a negative dimension")
    name = str(np.dtype(dtype).name) if not isinstance(dtype, str) else dtype
    return NDArray(aligned(dims, storage(name)[0]), name)


def array(arr: Any, device: Device = Device(1, 0), mem_scope: Any = None) -> NDArray:
    """A new array with a copy of the elements."""
    check_usable(device, "array")
    src = _raw_of(arr)
    out = empty(src[0].shape, src[1])
    out._raw[...] = src[0]
    return out


def _stored(a: np.ndarray) -> np.ndarray:
    """The elements of an array of ml_dtypes as we store them: narrow integers with their sign."""
    store = storage(a.dtype.name)[0]
    return a.astype(store) if a.dtype.name in NARROW else a.view(store)


def native(a: np.ndarray) -> np.ndarray:
    """The same, or a copy of numbers that lie in another machine's order of bytes."""
    return a if a.dtype.isnative or a.dtype.kind in "OSUT" else a.astype(a.dtype.newbyteorder("="))


def _raw_of(arr: Any) -> Tuple[np.ndarray, str]:
    if isinstance(arr, NDArray):
        return arr._raw, arr._dtype
    a = native(np.asarray(arr))
    name = a.dtype.name
    if a.dtype.kind in "OSUT":
        return as_strings(a), "string"
    if name in _OTHER:
        return _stored(a), name
    return a, str(storage(name) and name)


def as_strings(a: np.ndarray) -> np.ndarray:
    """An array of str objects: bytes are taken for UTF-8; what is neither text nor bytes is refused."""
    out = np.empty(a.shape, object)
    for i, v in enumerate(a.reshape(-1).tolist()):
        if not isinstance(v, (str, bytes)):
            raise error.TypeError(f"element {i} of an array of strings is a {type(v).__name__}")
        out.reshape(-1)[i] = v if isinstance(v, str) else v.decode("utf-8", "surrogateescape")
    return out


def as_ndarray(x: Any) -> NDArray:
    """An array over the memory of x: NDArray, numpy array, or anything with DLPack."""
    if isinstance(x, NDArray):
        return x
    if isinstance(x, np.ndarray):
        if native(x) is not x:
            raise error.TypeError(
                f"an array of {x.dtype.name} in another machine's order of bytes cannot be used as it lies; lathe.nd.array(x) copies it"
            )
        return NDArray(*_raw_of(x))
    if hasattr(x, "__dlpack__"):
        return from_dlpack(x)
    raise error.TypeError(
        f"a {type(x).__name__} is not an array: wants an NDArray, a numpy array, or an object with __dlpack__"
    )


numpyasarray = as_ndarray


class _Capsule:
    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **_kwargs: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)


def _from_other(source: Any) -> Optional[NDArray]:
    """The same for a dtype that numpy lacks; None where that is not what is in the way."""
    try:
        capsule = source.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
    if not dlpack.is_capsule(capsule):
        return None
    code, bits, lanes = dlpack.peek(capsule)
    if lanes != 1 or not any(_OTHER[name][1:] == (code, bits) for name in SHARED):
        return None
    tensor, owner = dlpack.take(capsule)
    made = from_address(tensor)
    made._keep = owner
    return made


def from_dlpack(dltensor: Any) -> NDArray:
    """An array over memory that another library owns; no copy."""
    if hasattr(dltensor, "__dlpack_device__"):
        dev = dltensor.__dlpack_device__()
        if int(dev[0]) != 1:
            raise error.UnsupportedError(
                f"from_dlpack: the tensor is on device type {int(dev[0])}; there is memory on cpu(0) only"
            )
    if not hasattr(dltensor, "__dlpack__"):
        dltensor = _Capsule(dltensor)
    try:
        raw = np.from_dlpack(dltensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        other = _from_other(dltensor)
        if other is None:
            raise error.ArgumentError(f"from_dlpack: {e}") from None
        return other
    name = str(raw.dtype.name)
    storage(name)
    return NDArray(raw, name, dltensor)


def _stored_name(t: RtTensor) -> str:
    """Its dtype; strings are numbers here, whose texts only their executor knows."""
    name = _name_of(t.dtype.code, t.dtype.bits)
    return "uint64" if name == "string" else name


def copy_of(t: RtTensor) -> NDArray:
    """A copy of a tensor of the runtime's."""
    if t.strides:
        return array(from_address(t))
    name = _stored_name(t)
    raw = aligned(tuple(t.shape[: t.ndim]), storage(name)[0], np.empty)
    ctypes.memmove(raw.__array_interface__["data"][0], t.data + t.byte_offset, raw.nbytes)
    return NDArray(raw, name)


def from_address(t: RtTensor) -> NDArray:
    """An array over a tensor that compiled code passes to a function."""
    name = _stored_name(t)
    base, _ = storage(name)
    shape = [t.shape[i] for i in range(t.ndim)]
    item = base.itemsize
    if t.strides:
        strides = [t.strides[i] * item for i in range(t.ndim)]
        n = (sum((d - 1) * s for d, s in zip(shape, strides)) + item) if all(shape) else 0
    else:
        strides, n = None, math.prod(shape) * item
    memory: Any = (ctypes.c_uint8 * n).from_address(t.data + t.byte_offset) if n else bytearray()
    raw = np.ndarray(shape, base, buffer=memory, strides=strides)
    return NDArray(raw, name)
