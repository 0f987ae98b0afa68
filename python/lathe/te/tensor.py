"""Tensors and the operations that compute them."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .. import error
from .._ffi import WORLD, Object, call, register_object
from ..tir.expr import EqualOp, ExprOp, IterVar, NotEqualOp, PrimExpr, as_tuple, convert
from ..tir.function import annotation_value


class TensorSlice(ExprOp):
    """A tensor with some of its indices given; an expression once all are."""

    def __init__(self, tensor: "Tensor", indices: Tuple[Any, ...]):
        self.tensor, self.indices = tensor, indices

    __iter__ = None  # elements are read by their indices: nothing to run through

    def __getitem__(self, indices: Any) -> "TensorSlice":
        return TensorSlice(self.tensor, self.indices + as_tuple(indices))

    def asobject(self) -> PrimExpr:
        """The element."""
        return self.tensor(*self.indices)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """dtype of the element."""
        return self.tensor.dtype

    def __hash__(self) -> int:
        return hash(self.asobject())

    def __repr__(self) -> str:
        return repr(self.asobject())


#: What arithmetic on whole tensors computes, by the name of the operator: topi fills it.
whole_tensors: Dict[str, Any] = {}


def _arithmetic(name: str, turned: bool) -> Any:
    """An operator on tensors: element by element where topi is imported; one of no dimensions is its element."""
    plain = getattr(ExprOp, f"__{'r' if turned else ''}{name}__")

    def operator(self: "Tensor", other: Any) -> Any:
        shaped = self.ndim or (isinstance(other, Tensor) and other.ndim)
        if not shaped or name not in whole_tensors:
            return plain(self, other)
        return whole_tensors[name](other, self) if turned else whole_tensors[name](self, other)

    return operator


@register_object("tensor")
class Tensor(ExprOp, Object):
    """An output of an operation.  A[i, j] reads an element."""

    __add__, __radd__ = _arithmetic("add", False), _arithmetic("add", True)
    __sub__, __rsub__ = _arithmetic("sub", False), _arithmetic("sub", True)
    __mul__, __rmul__ = _arithmetic("mul", False), _arithmetic("mul", True)
    __truediv__, __rtruediv__ = _arithmetic("truediv", False), _arithmetic("truediv", True)

    def _fields(self) -> List[Any]:
        return call("tensor_fields", self)

    @property
    def op(self) -> "Operation":
        """The operation that computes it."""
        return self._fields()[0]

    @property
    def value_index(self) -> int:
        """Which output of its operation it is."""
        return self._fields()[1]

    @property
    def name(self) -> str:
        """Its name."""
        op = self.op
        return op.name if op.num_outputs == 1 else f"{op.name}.v{self.value_index}"

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """dtype of an element."""
        t = self.__dict__.get("_dtype")
        if t is None:
            t = self.__dict__["_dtype"] = self._fields()[3]
        return t

    @property
    def shape(self) -> Tuple[Any, ...]:
        """Extent of each dimension."""
        return tuple(self._fields()[4])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        n = self.__dict__.get("_ndim")
        if n is None:
            n = self.__dict__["_ndim"] = len(self._fields()[4])
        return n

    @property
    def axis(self) -> List[IterVar]:
        """The axes of its operation."""
        return self.op.axis

    def __call__(self, *indices: Any) -> PrimExpr:
        if len(indices) != self.ndim:
            raise error.ShapeError(
                f"tensor '{self.name}' has {self.ndim} dimensions, {len(indices)} indices were given"
            )
        index = []
        for i in indices:
            if isinstance(i, slice):
                raise error.TypeError(
                    f"tensor '{self.name}': an element is read by one index for each dimension, not by a slice"
                )
            if not isinstance(i, (int, ExprOp)) and not hasattr(i, "__index__"):
                raise error.TypeError(
                    f"tensor '{self.name}': an index is an integer or an expression, not a {type(i).__name__}"
                )
            index.append(i)
        return call("te_read", WORLD, self, index)

    def __getitem__(self, indices: Any) -> TensorSlice:
        return TensorSlice(self, as_tuple(indices))

    def __iter__(self) -> Any:
        raise error.TypeError(
            f"tensor '{self.name}' has no elements yet: iterate over an array, or over range(n) with tensor[i]"
        )

    def asobject(self) -> PrimExpr:
        """The element of a tensor without dimensions."""
        if self.ndim:
            raise error.TypeError(
                f"tensor '{self.name}' has {self.ndim} dimensions: an expression reads an element, {self.name}[i, …]"
            )
        return self()

    def same_as(self, other: Any) -> bool:
        """Are both the same output of the same operation?"""
        return isinstance(other, Tensor) and self._id() == other._id()

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, Tensor):
            return EqualOp(self, other) if isinstance(other, ExprOp) else False
        if self.ndim == 0 and other.ndim == 0:
            raise error.ArgumentError(
                "== on tensors without dimensions may mean two things: use equal() for the values, same_as() for the tensors"
            )
        return self.same_as(other)

    def __ne__(self, other: Any) -> Any:
        return (
            NotEqualOp(self, other)
            if isinstance(other, ExprOp) and not isinstance(other, Tensor)
            else not self == other
        )

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], op.name={self.op.name})"


@register_object("teop")
class Operation(Object):
    """What computes tensors."""

    def _fields(self) -> List[Any]:
        return call("teop_fields", self)

    name = property(lambda self: self._fields()[0], doc="its name")
    tag = property(lambda self: self._fields()[1], doc="its tag")
    attrs = property(lambda self: {k: annotation_value(v) for k, v in self._fields()[2]}, doc="its attributes")

    @property
    def num_outputs(self) -> int:
        """How many tensors it computes."""
        return len(self._fields()[3])

    def output(self, index: int) -> Tensor:
        """One of its tensors."""
        outputs = self._fields()[3]
        if not 0 <= index < len(outputs):
            raise error.ArgumentError(f"operation '{self.name}' has {len(outputs)} outputs; there is no output {index}")
        return outputs[index]

    @property
    def input_tensors(self) -> List[Tensor]:
        """What it reads, each tensor once."""
        return self._fields()[7]

    @property
    def axis(self) -> List[IterVar]:
        """Its axes, one for each dimension of the result."""
        return self._fields()[4]

    @property
    def reduce_axis(self) -> List[IterVar]:
        """The axes that it reduces over."""
        return self._fields()[5]

    @property
    def body(self) -> List[PrimExpr]:
        """The expression of each output."""
        return self._fields()[6]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


@register_object("teop", "placeholder")
class PlaceholderOp(Operation):
    """An input."""

    @property
    def shape(self) -> Tuple[Any, ...]:
        """Extent of each dimension."""
        return self.output(0).shape

    @property
    def dtype(self) -> str:
        """dtype of an element."""
        return self.output(0).dtype


@register_object("teop", "compute")
class ComputeOp(Operation):
    """Tensors given element by element."""


@register_object("teop", "scan")
class ScanOp(Operation):
    """A recurrence along the first axis."""

    def _states(self) -> List[Any]:
        return call("scan_fields", self)

    init = property(lambda self: self._states()[0], doc="first rows")
    update = property(lambda self: self._states()[1], doc="row t from the rows before")
    state_placeholder = property(lambda self: self._states()[2], doc="what the update reads")
    inputs = property(lambda self: self._states()[3], doc="what else is read")

    @property
    def scan_axis(self) -> IterVar:
        """The axis of the recurrence."""
        return self.axis[0]


@register_object("teop", "extern")
class ExternOp(Operation):
    """Tensors computed by a statement."""


def attrs_argument(attrs: Dict[str, Any]) -> List[Any]:
    """Attributes as a call takes them; None stands for the empty string."""
    return [[k, "" if v is None else _attr(k, v)] for k, v in (attrs or {}).items()]


def _attr(key: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return call("call", WORLD, "tvm_stack_make_shape", "handle", [convert(_attr(key, v)) for v in value])
    if isinstance(value, Tensor):
        raise error.UnsupportedError(f"the attribute '{key}' holds a tensor; names of tensors can be attributes")
    return value
