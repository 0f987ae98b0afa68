"""Graph expressions.

An expression is immutable; two Python objects may name the same node (`same_as`,
hashing and `==` on nodes go by the node, except that arithmetic and comparison operators build
new expressions: x + y, x < y)."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import numpy as np

from .. import error
from .._ffi import WORLD, Object, call, register_object
from .._ir.module import GlobalVar as _GlobalVar
from .._ir.module import IRModule
from .._ir.transform import BuiltinPass
from ..runtime.ndarray import NDArray, array, as_strings, empty, storage
from .op_rows import row
from .ty import IncompleteType, TensorType, TupleType, Type, type_vars_in


class Op:
    """An operator, by name."""

    _made: Dict[str, "Op"] = {}

    def __init__(self, name: str):
        self.name = name

    @staticmethod
    def get(op_name: str) -> "Op":
        """The operator of that name; raises if there is none."""
        if op_name not in Op._made:
            row(op_name)
            Op._made[op_name] = Op(op_name)
        return Op._made[op_name]

    def get_attr(self, attr_name: str) -> Any:
        """TOpPattern (the fusion kind), and what lathe.ir.register_op_attr said; None for what is not known."""
        from .op.contrib.register import op_attrs

        return row(self.name).fuse if attr_name == "TOpPattern" else op_attrs.get((self.name, attr_name))

    @property
    def num_inputs(self) -> int:
        """Number of arguments; -1 if it varies."""
        r = row(self.name)
        return r.least if r.least == r.most else -1

    def __call__(self, *args: Any, **attrs: Any) -> "Call":
        return Call(self, [as_expr(a) for a in args], attrs)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Op) and other.name == self.name

    def same_as(self, other: Any) -> bool:
        """The same operator?"""
        return self == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __str__(self) -> str:
        return self.name


@register_object("node")
class RelayExpr(Object):
    """A node of a graph."""

    @property
    def checked_type(self) -> Type:
        """Its type; raises if it was not inferred (relay.transform.InferType)."""
        t = call("node_type", self)
        if t is None:
            raise error.TypeError("the type of this expression is not known yet: run relay.transform.InferType first")
        return t

    _checked_type_ = property(lambda self: call("node_type", self), doc="its type, or None")

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """Relay text."""
        return call("node_text", self)

    def __str__(self) -> str:
        return self.astext()

    __repr__ = __str__

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __eq__(self, other: Any) -> bool:
        return self.same_as(other)

    # ---- operators

    def astype(self, dtype: str) -> "RelayExpr":
        """Cast."""
        return call_op("cast", [self], dtype=str(dtype))

    def __neg__(self) -> "RelayExpr":
        return call_op("negative", [self])

    def __add__(self, other: Any) -> "RelayExpr":
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> "RelayExpr":
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> "RelayExpr":
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> "RelayExpr":
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> "RelayExpr":
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> "RelayExpr":
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> "RelayExpr":
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> "RelayExpr":
        return _binary("divide", other, self)

    def __lt__(self, other: Any) -> "RelayExpr":
        return _binary("less", self, other)

    def __le__(self, other: Any) -> "RelayExpr":
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> "RelayExpr":
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> "RelayExpr":
        return _binary("greater_equal", self, other)

    def __call__(self, *args: Any) -> "Call":
        return Call(self, [as_expr(a) for a in args])

    def __getitem__(self, index: int) -> "RelayExpr":
        if not isinstance(index, int):
            raise error.TypeError(
                "an expression is indexed by the number of a tuple's field; use relay.strided_slice or relay.take for parts of a tensor"
            )
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator["RelayExpr"]:
        t = call("node_type", self)
        if not isinstance(t, TupleType):
            raise error.TypeError(
                "an expression can be taken apart when it is known to be a tuple (run relay.transform.InferType first)"
            )
        return (self[i] for i in range(len(t.fields)))


Expr = RelayExpr
ExprWithOp = RelayExpr


def _binary(name: str, a: Any, b: Any) -> RelayExpr:
    return call_op(name, [_like(a, b), _like(b, a)])


def _like(x: Any, other: Any) -> RelayExpr:
    """x as an expression; a Python number takes the dtype of the other side."""
    if isinstance(x, (int, float)) and isinstance(other, RelayExpr):
        t = call("node_type", other)
        if isinstance(t, TensorType):
            return const(x, t.dtype)
    return as_expr(x)


def as_expr(x: Any) -> RelayExpr:
    """x as an expression: numbers and arrays become constants, lists tuples."""
    if isinstance(x, RelayExpr):
        return x
    if isinstance(x, TupleWrapper):
        return x.astuple()
    if isinstance(x, _GlobalVar):
        return call("node_global", WORLD, x.name_hint)
    if isinstance(x, (list, tuple)):
        return Tuple([as_expr(i) for i in x])
    if isinstance(x, (bool, int, float, np.ndarray, np.generic, NDArray)):
        return const(x)
    raise error.TypeError(f"a {type(x).__name__} is not a graph expression: {x!r}")


def call_op(name: str, args: Sequence[RelayExpr], **attrs: Any) -> RelayExpr:
    """A call of the operator of that name."""
    return call("node_call", WORLD, name, list(args), [[k, _attr(v)] for k, v in attrs.items()])


def _attr(v: Any) -> Any:
    if isinstance(v, (list, tuple)):
        return [_attr(i) for i in v]
    if isinstance(v, np.dtype) or (isinstance(v, type) and issubclass(v, np.generic)):
        return str(np.dtype(v).name)
    if isinstance(v, np.generic):
        return v.item()
    return v


@register_object("node", "var")
class Var(RelayExpr):
    """A parameter or a variable bound by let."""

    def __init__(self, name_hint: str, type_annotation: Optional[Type] = None):
        declared = None if isinstance(type_annotation, IncompleteType) else type_annotation
        self._adopt(call("node_var", WORLD, name_hint, declared))

    @property
    def name_hint(self) -> str:
        """Its name."""
        return call("node_fields", self)[0]

    vid = property(lambda self: self)

    @property
    def type_annotation(self) -> Optional[Type]:
        """The type it was declared with, or None."""
        return call("node_type", self)


@register_object("node", "const")
class Constant(RelayExpr):
    """A constant tensor."""

    def __init__(self, data: NDArray):
        self._adopt(const(data))

    @property
    def data(self) -> NDArray:
        """Its value."""
        address, size, dtype, shape = call("node_fields", self)
        return copy_memory(address, size, dtype, shape)


def string_numbers(texts: np.ndarray) -> np.ndarray:
    """The numbers that the compiler knows strings by."""
    data = [t.encode("utf-8", "surrogateescape") for t in as_strings(texts).reshape(-1).tolist()]
    return np.array(call("string_numbers", data), np.uint64).reshape(texts.shape)


def string_texts(numbers: np.ndarray) -> np.ndarray:
    """The strings of these numbers."""
    texts = np.empty(numbers.size, object)
    for i, t in enumerate(call("string_texts", numbers.reshape(-1).tolist())):
        texts[i] = t if isinstance(t, str) else t.decode("utf-8", "surrogateescape")
    return texts.reshape(numbers.shape)


def copy_memory(address: int, size: int, dtype: str, shape: Sequence[int]) -> NDArray:
    """An array with a copy of the bytes at an address."""
    if dtype == "string":
        return NDArray(
            string_texts(np.frombuffer(ctypes.string_at(address, size), np.uint64).reshape(tuple(shape))), dtype
        )
    base, _ = storage(dtype)
    raw = np.frombuffer(ctypes.string_at(address, size), dtype=base) if size else np.zeros(0, base)
    out = empty(tuple(shape), dtype)
    np.asarray(out._raw)[...] = raw.reshape(tuple(shape))
    return out


@register_object("node", "call")
@register_object("node", "apply")
class Call(RelayExpr):
    """A call of an operator or of a function."""

    def __init__(self, op: Any, args: Sequence[Any], attrs: Any = None, type_args: Any = None, span: Any = None):
        args = [as_expr(a) for a in args]
        if isinstance(op, str):
            op = Op.get(op)
        if isinstance(op, Op):
            items = dict(attrs or {})
            made = call("node_call", WORLD, op.name, args, [[k, _attr(v)] for k, v in items.items()])
        else:
            made = call("node_apply", WORLD, as_expr(op), args)
        self._adopt(made)
        self.__class__ = type(made)

    def _is_op(self) -> bool:
        return KINDS()[self._detail] == "call"

    @property
    def op(self) -> Any:
        """The operator (lathe.ir.Op) or the function that is called."""
        f = call("node_fields", self)
        return Op.get(f[0]) if self._is_op() else f[0]

    @property
    def args(self) -> List[RelayExpr]:
        """The arguments."""
        f = call("node_fields", self)
        return f[1] if self._is_op() else f[1:]

    @property
    def attrs(self) -> Optional["Attrs"]:
        """The attributes, as fields and by key; None for a call of a function."""
        return Attrs(call("node_fields", self)[2]) if self._is_op() else None

    @property
    def span(self) -> Optional[str]:
        """Name of the node in the source model."""
        return call("node_fields", self)[3] if self._is_op() else None


_kinds: List[str] = []


def KINDS() -> List[str]:  # pylint: disable=invalid-name
    """Names of the kinds of nodes."""
    if not _kinds:
        _kinds.extend(call("node_kinds"))
    return _kinds


class Attrs(dict):
    """Attributes: attrs.strides, attrs["strides"]."""

    def __init__(self, pairs: Sequence[Sequence[Any]] = ()):
        super().__init__({k: [getattr(i, "value", i) for i in v] if isinstance(v, list) else v for k, v in pairs})

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no attribute '{name}'; there are {', '.join(self) or 'none'}")

    def get_int_tuple(self, name: str) -> Any:
        """A list of integers as a tuple."""
        return tuple(self[name])

    def get_str(self, name: str) -> str:
        """A string."""
        return self[name]


@register_object("node", "tuple")
class Tuple(RelayExpr):
    """A tuple of expressions."""

    def __init__(self, fields: Sequence[Any], span: Any = None):
        self._adopt(call("node_tuple", WORLD, [as_expr(f) for f in fields]))

    @property
    def fields(self) -> List[RelayExpr]:
        """Its fields."""
        return call("node_fields", self)

    def __getitem__(self, index: int) -> RelayExpr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


@register_object("node", "get")
class TupleGetItem(RelayExpr):
    """A field of a tuple."""

    def __init__(self, tuple_value: Any, index: int, span: Any = None):
        made = call("node_get", WORLD, as_expr(tuple_value), index)
        self._adopt(made)
        self.__class__ = type(made)

    @property
    def tuple_value(self) -> RelayExpr:
        """The tuple."""
        return call("node_fields", self)[0]

    @property
    def index(self) -> int:
        """Which field."""
        return call("node_fields", self)[1]


@register_object("node", "let")
class Let(RelayExpr):
    """let variable = value; body."""

    def __init__(self, variable: Var, value: Any, body: Any, span: Any = None):
        self._adopt(call("node_let", WORLD, variable, as_expr(value), as_expr(body)))

    var = property(lambda self: call("node_fields", self)[0], doc="the variable")
    value = property(lambda self: call("node_fields", self)[1], doc="what it stands for")
    body = property(lambda self: call("node_fields", self)[2], doc="where it is known")


@register_object("node", "if")
class If(RelayExpr):
    """One of two branches; only that one is evaluated."""

    def __init__(self, cond: Any, true_branch: Any, false_branch: Any, span: Any = None):
        self._adopt(call("node_if", WORLD, as_expr(cond), as_expr(true_branch), as_expr(false_branch)))

    cond = property(lambda self: call("node_fields", self)[0], doc="the condition")
    true_branch = property(lambda self: call("node_fields", self)[1], doc="evaluated where it holds")
    false_branch = property(lambda self: call("node_fields", self)[2], doc="evaluated where it does not")


@register_object("node", "func")
class Function(RelayExpr):
    """Parameters and a body."""

    def __init__(
        self,
        params: Sequence[Var],
        body: Any,
        ret_type: Optional[Type] = None,
        type_params: Any = None,
        attrs: Any = None,
        span: Any = None,
    ):
        # type_params: parameters of a type are those that the types of the parameters speak of
        self._adopt(
            call(
                "node_func",
                WORLD,
                list(params),
                as_expr(body),
                ret_type,
                [[k, v] for k, v in dict(attrs or {}).items()],
            )
        )

    @property
    def params(self) -> List[Var]:
        """The parameters."""
        return call("node_fields", self)[0]

    @property
    def body(self) -> RelayExpr:
        """The body."""
        return call("node_fields", self)[1]

    @property
    def type_params(self) -> List[Type]:
        """Parameters of types: those that the types of the parameters and of the result speak of."""
        return type_vars_in([p.type_annotation for p in self.params] + [call("node_fields", self)[2]])

    @property
    def ret_type(self) -> Optional[Type]:
        """Type of the result: declared, or else as inferred; None if neither."""
        declared = call("node_fields", self)[2]
        inferred = call("node_type", self)
        return declared or (inferred.ret_type if inferred is not None else None)

    @property
    def attrs(self) -> Optional[Attrs]:
        """Attributes such as Primitive; None if there are none."""
        pairs = call("node_fields", self)[3]
        return Attrs([(k, getattr(v, "value", v)) for k, v in pairs]) if pairs else None

    def with_attr(self, attr_key: Any, attr_value: Any = None) -> "Function":
        """The same with one more attribute (or a dictionary of them)."""
        new = dict(self.attrs or {})
        new.update(attr_key if isinstance(attr_key, dict) else {attr_key: attr_value})
        return Function(self.params, self.body, call("node_fields", self)[2], None, new)

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)


@register_object("node", "global")
class GlobalVar(_GlobalVar, RelayExpr):
    """A function of the module, by name."""

    def __init__(self, name_hint: str):  # pylint: disable=super-init-not-called
        self._adopt(call("node_global", WORLD, name_hint))

    @property
    def name_hint(self) -> str:  # type: ignore
        """The function's name."""
        return call("node_fields", self)[0]

    def __eq__(self, other: Any) -> bool:
        return _GlobalVar.__eq__(self, other)

    def __hash__(self) -> int:
        return _GlobalVar.__hash__(self)

    __str__ = RelayExpr.__str__
    __repr__ = RelayExpr.__str__


@register_object("node", "op")
class OpExpr(RelayExpr):
    """An operator as a value."""

    name = property(lambda self: call("node_fields", self)[0], doc="the operator's name")


@register_object("node", "call_tir")
class CallTIR(RelayExpr):
    """A call of a tir function of the module."""

    name_hint = property(lambda self: call("node_fields", self)[0], doc="name of the function")
    args = property(lambda self: call("node_fields", self)[1], doc="the tensors it is given")


class TupleWrapper:
    """An expression whose value is a tuple of known size: it can be unpacked and indexed."""

    def __init__(self, tuple_value: RelayExpr, size: int):
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> RelayExpr:
        """The expression itself."""
        return self.tuple_value

    def asobject(self) -> RelayExpr:
        """The expression itself."""
        return self.tuple_value

    def astext(self) -> str:
        """Relay text."""
        return self.tuple_value.astext()

    def __getitem__(self, index: int) -> RelayExpr:
        if not -self.size <= index < self.size:
            raise IndexError(f"a tuple of {self.size} fields has no field {index}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[RelayExpr]:
        return (self[i] for i in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value!r}, {self.size})"


def var(
    name_hint: str,
    type_annotation: Optional[Type] = None,
    shape: Optional[Sequence[Any]] = None,
    dtype: str = "float32",
    span: Any = None,
) -> Var:
    """A variable with a type, or with a shape and a dtype."""
    if type_annotation is not None and shape is not None:
        raise error.ArgumentError("var: give a type or a shape, not both")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    return Var(name_hint, type_annotation)


def const(value: Any, dtype: Optional[str] = None, span: Any = None) -> Constant:
    """A constant.  Without a dtype Python floats are float32 and ints int32, as in TVM; arrays keep theirs."""
    if isinstance(value, Constant):
        return value
    if isinstance(value, NDArray) and dtype is None:
        a = value
    else:
        raw = np.asarray(value)
        if dtype is None and not isinstance(value, (np.ndarray, np.generic, NDArray)):
            dtype = {"float64": "float32", "int64": "int32"}.get(raw.dtype.name)
        if dtype in ("bfloat16",) or (dtype or "").startswith("float8"):
            one = call_op("cast", [const(raw.astype("float32"))], dtype=dtype)
            return fold_expr(one)
        a = array(raw if dtype in (None, "string") else raw.astype(dtype))
    if a.dtype == "string":
        numbers = string_numbers(np.asarray(a))
        return call("node_const", WORLD, numbers.ctypes.data if a.size else None, "string", list(a.shape))
    return call("node_const", WORLD, a.data_address if a.size else None, a.dtype, list(a.shape))


def bind(expr: RelayExpr, binds: Dict[Var, Any]) -> RelayExpr:
    """The expression with variables replaced."""
    return call("node_bind", WORLD, expr, list(binds), [as_expr(v) for v in binds.values()])


def _with_fields(cls: type, fields: Sequence[str], keywords: Sequence[str]) -> Any:
    """CLSWithFields(x, field=…): x with some of its fields replaced; the same x where none is."""

    def with_fields(expr: Any, *given: Any, **named: Any) -> Any:
        if not isinstance(expr, cls):
            raise error.TypeError(f"{cls.__name__}WithFields wants a {cls.__name__}, not a {type(expr).__name__}")
        values = {k: v for k, v in zip(keywords, given) if v is not None}
        values.update({k: v for k, v in named.items() if v is not None})
        unknown = [k for k in values if k not in keywords and k not in ("span", "virtual_device_")]
        if unknown:
            raise error.ArgumentError(f"{cls.__name__}WithFields: there is no field '{unknown[0]}'")
        new = [values[k] for k in keywords if k in values]
        if not new:
            return expr
        return cls(*[values.get(k, getattr(expr, f)) for f, k in zip(fields, keywords)])

    with_fields.__name__ = with_fields.__qualname__ = f"{cls.__name__}WithFields"
    with_fields.__doc__ = f"The {cls.__name__} with other fields: {', '.join(keywords)}."
    return with_fields


CallWithFields = _with_fields(Call, ("op", "args", "attrs"), ("opt_op", "opt_args", "opt_attrs"))
ConstantWithFields = _with_fields(Constant, ("data",), ("opt_data",))
FunctionWithFields = _with_fields(
    Function, ("params", "body", "ret_type", "type_params", "attrs"),
    ("opt_params", "opt_body", "opt_ret_type", "opt_ty_params", "opt_attrs"),
)
IfWithFields = _with_fields(
    If, ("cond", "true_branch", "false_branch"), ("opt_cond", "opt_true_branch", "opt_false_branch")
)
LetWithFields = _with_fields(Let, ("var", "value", "body"), ("opt_var", "opt_value", "opt_body"))
TupleGetItemWithFields = _with_fields(TupleGetItem, ("tuple_value", "index"), ("opt_tuple_value", "opt_index"))
TupleWithFields = _with_fields(Tuple, ("fields",), ("opt_fields",))


def VarWithFields(var: Any, opt_vid: Any = None, opt_type_annotation: Any = None, **_span: Any) -> Any:  # noqa: N802
    """The Var with other fields; a vid is a variable or its name."""
    if opt_vid is None and opt_type_annotation is None:
        return var
    name = var.name_hint if opt_vid is None else getattr(opt_vid, "name_hint", opt_vid)
    return Var(name, var.type_annotation if opt_type_annotation is None else opt_type_annotation)



ExprLike = Union[RelayExpr, int, float, np.ndarray, NDArray]


def fold_expr(expr: Any) -> Any:
    """The value of a closed expression, as a constant."""
    mod = IRModule.from_expr(Function([], expr))
    return BuiltinPass("FoldConstant", {})(mod)["main"].body
