"""Buffers: memory that loads and stores refer to."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from .. import error
from .._ffi import WORLD, Object, call, register_object
from .expr import BufferLoad, PrimExpr, Ramp, Var, as_tuple, convert, simplify
from .stmt import BufferStore


@register_object("buffer")
class Buffer(Object):
    """Memory with a shape and a dtype.  Made by decl_buffer."""

    READ = 1
    WRITE = 2

    def _fields(self) -> List[Any]:
        return call("buffer_fields", self)

    name = property(lambda self: self._fields()[0], doc="its name")
    dtype = property(lambda self: self._fields()[1], doc="dtype of an element")
    shape = property(lambda self: tuple(self._fields()[2]), doc="extent of each dimension")
    strides = property(lambda self: tuple(self._fields()[3]), doc="elements between neighbours; empty: compact")
    elem_offset = property(lambda self: self._fields()[4], doc="elements before the first; None: 0")
    data_alignment = property(lambda self: self._fields()[6], doc="bytes")
    offset_factor = property(lambda self: self._fields()[7], doc="elem_offset is a multiple of this")
    data = property(lambda self: self._fields()[8], doc="the pointer")

    @property
    def axis_separators(self) -> List[int]:
        """Axes at which a new dimension of memory begins, where memory has several."""
        bits = self._fields()[9]
        return [d for d in range(bits.bit_length()) if bits >> d & 1]

    def scope(self) -> str:
        """Where it lives: "global", "shared", "local", …"""
        return self._fields()[5]

    __iter__ = None  # elements are read by their indices: nothing to run through

    def __getitem__(self, indices: Any) -> PrimExpr:
        index = [_index(i) for i in as_tuple(indices)]
        if any(isinstance(i, slice) for i in index):
            raise error.UnsupportedError(
                f"buffer {self.name}: a slice with a step, or without both ends, is not an element"
            )
        return BufferLoad(self, index)

    def vload(self, begin: Any, dtype: Optional[str] = None) -> PrimExpr:
        """The vector that starts at begin; dtype says its lanes."""
        return BufferLoad(self, self._vector_index(begin, dtype))

    def vstore(self, begin: Any, value: Any) -> Any:
        """Statement that stores a vector from begin on."""
        value = convert(value)
        return BufferStore(self, value, self._vector_index(begin, value.dtype))

    def _vector_index(self, begin: Any, dtype: Optional[str]) -> List[Any]:
        index = list(as_tuple(begin))
        lanes = call("dtype_fields", dtype)[3] if dtype else 1
        mine = call("dtype_fields", self.dtype)[3]
        if lanes // mine > 1:
            index[-1] = Ramp(index[-1], 1, lanes // mine)
        return index

    def access_ptr(
        self,
        access_mask: Union[int, str],
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> PrimExpr:
        """A pointer into the buffer, for calls: access_mask is "r", "w" or "rw"."""
        if isinstance(access_mask, str):
            mask = sum({"r": Buffer.READ, "w": Buffer.WRITE}.get(ch, 0) for ch in access_mask)
            if not mask or set(access_mask) - set("rw"):
                raise error.ArgumentError(f"access_ptr: access_mask is r, w or rw, not '{access_mask}'")
            access_mask = mask
        _, dtype, shape, strides, elem_offset = self._fields()[:5]
        if elem_offset is not None:
            offset = elem_offset + offset
        if extent is None:
            extent = 1
            for n in [shape[0] * strides[0]] if strides else shape:
                extent = extent * n
        element = dtype if content_lanes == 1 else f"{dtype}x{content_lanes}"
        marker = call("call", WORLD, "type_annotation", element, [])
        return call(
            "call",
            WORLD,
            "tvm_access_ptr",
            ptr_type,
            [marker, self.data, convert(offset), convert(extent), convert(access_mask)],
        )

    def __str__(self) -> str:
        return f"{self.name}: Buffer(({', '.join(map(str, self.shape))}), {self.dtype})"

    __repr__ = __str__


def _bits(axis_separators: Sequence[Any]) -> int:
    """Axis separators as the compiler takes them."""
    axes = [int(a) for a in axis_separators]
    if axes != sorted(set(axes)) or any(a < 0 or a > 30 for a in axes):
        raise error.ArgumentError(f"axis separators are axes that grow from 0, not {axes}")
    return sum(1 << a for a in axes)


def _index(i: Any) -> Any:
    """a:a+n as a ramp; other indices as they are."""
    if not isinstance(i, slice):
        return i
    if i.start is None or i.stop is None:
        return i
    lanes = simplify(convert(i.stop) - i.start)
    if not hasattr(lanes, "value"):
        return i
    step = 1 if i.step is None else i.step
    return Ramp(i.start, step, int(lanes.value) // int(step))


def decl_buffer(
    shape: Union[Any, Sequence[Any]],
    dtype: Optional[str] = None,
    name: str = "buffer",
    data: Optional[Var] = None,
    strides: Optional[Sequence[Any]] = None,
    elem_offset: Optional[Any] = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Optional[Sequence[int]] = None,
    span: Any = None,
) -> Buffer:
    """A new buffer.

    strides and elem_offset may hold variables: they are then read off the tensor
    that is bound to the buffer.  Without strides it is compact and row major."""
    if buffer_type not in ("", "default"):
        raise error.UnsupportedError(
            f"decl_buffer: buffer_type '{buffer_type}' is not supported; broadcast in the compute instead"
        )
    if offset_factor != 0 and elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", "int32")
    shape = list(as_tuple(shape))
    strides = list(strides) if strides else None
    return call(
        "buffer", WORLD, name, "float32" if dtype is None else str(dtype), shape, strides, elem_offset, scope or None,
        None if data_alignment < 0 else data_alignment, offset_factor or None, data, _bits(axis_separators or []),
    )
