"""Parameters as bytes, in the layout of TVM's .params files.

All little endian: magic and reserved (u64 each), names (u64 count; each u64 length and bytes), u64 count
of arrays, and for each: magic and reserved (u64 each), device (i32 type, i32 id), i32 rank, dtype (u8 code,
u8 bits, u16 lanes), the shape (i64 each), i64 bytes, the bytes."""

from __future__ import annotations

import struct
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from .. import error
from .ndarray import NDArray, _name_of, array, empty, storage

_LIST, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """The parameters as bytes, for a file or for load_param_dict."""
    out = [struct.pack("<QQQ", _LIST, 0, len(params))]
    arrays = {str(k): v if isinstance(v, NDArray) else array(v) for k, v in params.items()}
    for name in arrays:
        out += [struct.pack("<Q", len(name.encode())), name.encode()]
    out.append(struct.pack("<Q", len(arrays)))
    for name, a in arrays.items():
        if a.dtype == "string":
            raise error.UnsupportedError(
                f"parameter '{name}' holds strings, which the format of parameters does not have"
            )
        code, bits = storage(a.dtype)[1]
        data = np.ascontiguousarray(a._raw).tobytes()
        out.append(
            struct.pack(
                f"<QQiiiBBH{a.ndim}qq",
                _ARRAY,
                0,
                1,
                0,
                a.ndim,
                1 if code == 6 else code,
                1 if code == 6 else bits,
                1,
                *a.shape,
                len(data),
            )
        )
        out.append(data)
    return b"".join(out)


class _Reader:
    def __init__(self, data: Any):
        self.data, self.at = memoryview(data), 0

    def take(self, n: int) -> memoryview:
        """The next n bytes."""
        if n < 0 or n > len(self.data) - self.at:
            raise error.ParseError(
                f"the parameters end early: {n} bytes are wanted at {self.at}, there are {len(self.data)} in all"
            )
        self.at += n
        return self.data[self.at - n : self.at]

    def read(self, form: str) -> Tuple[Any, ...]:
        """Numbers by struct's letters."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))


def _read_array(r: _Reader) -> NDArray:
    magic, _, _, _, rank, code, bits, lanes = r.read("QQiiiBBH")
    if magic != _ARRAY or not 0 <= rank <= 32 or lanes != 1:
        raise error.ParseError(f"the parameters are broken at byte {r.at}: this is no array")
    shape = r.read(f"{rank}q")
    (count,) = r.read("q")
    try:
        dtype = _name_of(code, bits)
        if dtype == "string":
            raise KeyError(dtype)
    except KeyError:
        raise error.ParseError(
            f"the parameters hold an array of dtype code {code} with {bits} bits, which is not known"
        ) from None
    item = storage(dtype)[0].itemsize
    elements = 1
    for d in shape:
        elements *= d
    if min(shape, default=0) < 0 or elements * item != count:
        raise error.ParseError(f"the parameters hold an array of shape {shape} and {dtype} in {count} bytes")
    data = r.take(count)
    out = empty(shape, dtype)
    out._raw[...] = np.frombuffer(data, out._raw.dtype).reshape(shape)
    return out


def load_param_dict(param_bytes: Any) -> Dict[str, NDArray]:
    """The parameters that save_param_dict made bytes of, or that TVM did."""
    r = _Reader(param_bytes)
    magic, _, n = r.read("QQQ")
    if magic != _LIST:
        raise error.ParseError("these bytes are no parameters: they do not begin as such do")
    names = [bytes(r.take(r.read("Q")[0])).decode(errors="replace") for _ in range(min(n, len(r.data)))]
    if r.read("Q")[0] != len(names):
        raise error.ParseError("the parameters have another number of names than of arrays")
    return {name: _read_array(r) for name in names}


def save_param_dict_to_file(params: Mapping[str, Any], path: Any) -> None:
    """Writes the parameters to a file."""
    with open(path, "wb") as f:
        f.write(save_param_dict(params))


def load_param_dict_from_file(path: Any) -> Dict[str, NDArray]:
    """The parameters of a file."""
    with open(path, "rb") as f:
        return load_param_dict(f.read())
