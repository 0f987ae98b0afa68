"""Types of graph values."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .. import error
from .._ffi import WORLD, Object, call, register_object


class Any_:  # pylint: disable=invalid-name
    """A dimension that is known only at run time: relay.Any().  One that was read from a type stands for
    that type's own size when another type is made of it."""

    def __init__(self, dim: Any = None):
        self._dim = dim

    def __repr__(self) -> str:
        return "?"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Any_)

    def __hash__(self) -> int:
        return hash("?")


class IncompleteType:
    """A type that is not known yet: relay.var("w", relay.IncompleteType()) is relay.var("w")."""

    def __init__(self, kind: Any = None):
        self.kind = kind


@register_object("type")
class Type(Object):
    """The type of a graph value."""

    def _fields(self) -> List[Any]:
        return call("type_fields", self)

    def __str__(self) -> str:
        return call("type_text", self)

    __repr__ = __str__

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Type) and call("type_equal", self, other)

    def __hash__(self) -> int:
        return hash(str(self))


def _dims(shape: Sequence[Any]) -> List[Any]:
    return [d._dim if isinstance(d, Any_) else d for d in shape]


@register_object("type", "tensor")
class TensorType(Type):
    """A tensor of a shape (sizes may be expressions or relay.Any()) and a dtype."""

    def __init__(self, shape: Optional[Sequence[Any]], dtype: str = "float32"):
        dims = None if shape is None else _dims(shape if isinstance(shape, (list, tuple)) else [shape])
        self._adopt(call("tensor_type", WORLD, dims, str(dtype)))

    @property
    def shape(self) -> Tuple[Any, ...]:
        """Its dimensions: ints, expressions, or Any."""
        dims = self._fields()[2]
        if dims is None:
            raise error.TypeError(f"{self} has no known rank")
        return tuple(_plain(d) for d in dims)

    @property
    def concrete_shape(self) -> Tuple[int, ...]:
        """The shape as ints; raises if a dimension is symbolic."""
        shape = self.shape
        if not all(isinstance(d, int) for d in shape):
            raise error.TypeError(f"{self} has dimensions that are not constant")
        return shape  # type: ignore

    @property
    def dtype(self) -> str:
        """dtype of an element."""
        return self._fields()[1]


def _plain(d: Any) -> Any:
    value = getattr(d, "value", None)
    if getattr(d, "name", None) == "?":
        return Any_(d)
    return int(value) if isinstance(value, int) else d


@register_object("type", "tuple")
class TupleType(Type):
    """A tuple of types."""

    def __init__(self, fields: Sequence[Type]):
        self._adopt(call("tuple_type", WORLD, list(fields)))

    @property
    def fields(self) -> List[Type]:
        """The types of the fields."""
        return self._fields()[3]


@register_object("type", "func")
class FuncType(Type):
    """A function from the types of its parameters to that of its result."""

    def __init__(
        self, arg_types: Sequence[Type], ret_type: Type, type_params: Any = None, type_constraints: Any = None
    ):
        if type_constraints:
            raise error.UnsupportedError("FuncType: constraints on types are not supported")
        self._adopt(call("func_type", WORLD, list(arg_types), ret_type))

    @property
    def arg_types(self) -> List[Type]:
        """Types of the parameters."""
        return self._fields()[3]

    @property
    def ret_type(self) -> Type:
        """Type of the result."""
        return self._fields()[4]


@register_object("type", "sequence")
class SequenceType(Type):
    """A sequence of elements of one type."""

    def __init__(self, element: Type):
        self._adopt(call("simple_type", WORLD, "sequence", element))

    @property
    def element(self) -> Type:
        """Type of an element."""
        return self._fields()[3][0]


@register_object("type", "optional")
class OptionalType(Type):
    """A value that may be absent."""

    def __init__(self, element: Type):
        self._adopt(call("simple_type", WORLD, "optional", element))

    @property
    def element(self) -> Type:
        """Type of the value."""
        return self._fields()[3][0]


def type_vars_in(types: Sequence[Any]) -> List[Type]:
    """Parameters that types speak of, each once."""
    found: Dict[str, Type] = {}
    todo = [t for t in reversed(types) if t is not None]
    while todo:
        t = todo.pop()
        if call("type_kinds")[t._detail] == "var":
            found.setdefault(str(t), t)
        else:
            parts = [p for field in t._fields() for p in (field if isinstance(field, list) else [field])]
            todo += [p for p in reversed(parts) if isinstance(p, Type)]
    return list(found.values())


def scalar_type(dtype: str) -> TensorType:
    """The type of a scalar."""
    return TensorType((), dtype)
