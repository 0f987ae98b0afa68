"""Expressions.  An operator on expressions makes a new one; `==` gives something
that is both an expression and, asked for its truth, tells whether both sides are
the same expression."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .. import error
from .._ffi import WORLD, Object, call, register_object
from .._ir.compare import structural_equal

ExprLike = Union["PrimExpr", int, float, bool]


def convert(value: Any) -> Any:
    """A Python value as an expression: int as int32 (int64 if it does not fit),
    float as float32, bool, str; lists element by element."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, IterVar):
        return value.var
    if hasattr(value, "asobject"):
        return value.asobject()
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (list, tuple)):
        return [convert(v) for v in value]
    if isinstance(value, dict):
        return dictionary(value)
    if isinstance(value, (bool, int, float)) or hasattr(value, "tolist"):
        value = value if isinstance(value, (bool, int, float)) else value.tolist()
        return call("const", WORLD, value, None)
    if isinstance(value, Object):
        return value
    raise error.TypeError(f"a {type(value).__name__} is not an expression: {value!r}")


def dictionary(value: Dict[str, Any]) -> "PrimExpr":
    """A dictionary as the value of an annotation."""
    parts: List[Any] = []
    for key, v in value.items():
        part = convert(v)
        if isinstance(part, list):
            part = call("call", WORLD, "tvm_stack_make_shape", "handle", part)
        parts += [convert(str(key)), part]
    return call("call", WORLD, "dictionary", "void", parts)


def const(value: Union[int, float, bool], dtype: Optional[str] = None) -> "PrimExpr":
    """A literal.  Without a dtype: bool, int32 (int64 if it does not fit) or float32."""
    if hasattr(value, "tolist"):
        if dtype is None:
            dtype = str(getattr(value, "dtype"))
        value = getattr(value, "tolist")()
    if isinstance(value, PrimExpr):
        return value if dtype is None else value.astype(dtype)
    if not isinstance(value, (bool, int, float)):
        raise error.TypeError(f"const: wants a number, not a {type(value).__name__}: {value!r}")
    if isinstance(value, int) and 2**63 <= value < 2**64 and str(dtype) == "uint64":
        value -= 2**64  # the same bits
    return call("const", WORLD, value, str(dtype) if dtype is not None else None)


def _is_int(e: Any) -> bool:
    if isinstance(e, ExprOp):
        return e.dtype.startswith(("int", "uint"))
    return isinstance(e, int) and not isinstance(e, bool)


def binary(op: str, a: Any, b: Any) -> Any:
    """a op b in their common dtype."""
    if not _is_operand(a) or not _is_operand(b):
        return NotImplemented
    return call("binary", WORLD, op, a, b)


def _is_operand(x: Any) -> bool:
    return isinstance(x, (ExprOp, int, float)) or (hasattr(x, "tolist") and getattr(x, "ndim", 1) == 0)


def _true_divide(a: Any, b: Any) -> Any:
    if _is_int(a) and _is_int(b):
        raise error.TypeError(
            "/ on integers may mean flooring or truncating: write a // b (tir.floordiv), tir.truncdiv(a, b), "
            "or cast one side to a float first"
        )
    return binary("div", a, b)


def _bits(name: str, logical: Optional[str]):
    def op(a: Any, b: Any) -> Any:
        if not _is_operand(a) or not _is_operand(b):
            return NotImplemented
        if logical and _is_bool(a) and _is_bool(b):
            return call("binary", WORLD, logical, a, b)
        return call("binary", WORLD, name, a, b)

    return op


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, ExprOp) and x.dtype == "bool")


_and, _or, _xor = _bits("bitwise_and", "and"), _bits("bitwise_or", "or"), _bits("bitwise_xor", None)
_shl, _shr = _bits("shift_left", None), _bits("shift_right", None)


class ExprOp:
    """The operators; also of tensors and axes, which stand for expressions."""

    __array_ufunc__ = None  # numpy leaves the operators to this class
    dtype: str

    def __add__(self, other: Any) -> "PrimExpr":
        return binary("add", self, other)

    def __radd__(self, other: Any) -> "PrimExpr":
        return binary("add", other, self)

    def __sub__(self, other: Any) -> "PrimExpr":
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> "PrimExpr":
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> "PrimExpr":
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> "PrimExpr":
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> "PrimExpr":
        return _true_divide(self, other)

    def __rtruediv__(self, other: Any) -> "PrimExpr":
        return _true_divide(other, self)

    def __floordiv__(self, other: Any) -> "PrimExpr":
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> "PrimExpr":
        return binary("floordiv", other, self)

    def __mod__(self, other: Any) -> "PrimExpr":
        return binary("floormod", self, other)

    def __rmod__(self, other: Any) -> "PrimExpr":
        return binary("floormod", other, self)

    def __pow__(self, other: Any) -> "PrimExpr":
        return binary("pow", self, other)

    def __rpow__(self, other: Any) -> "PrimExpr":
        return binary("pow", other, self)

    def __neg__(self) -> "PrimExpr":
        return binary("mul", self, const(-1, self.dtype))

    def __pos__(self) -> "PrimExpr":
        return convert(self)

    def __and__(self, other: Any) -> "PrimExpr":
        return _and(self, other)

    def __rand__(self, other: Any) -> "PrimExpr":
        return _and(other, self)

    def __or__(self, other: Any) -> "PrimExpr":
        return _or(self, other)

    def __ror__(self, other: Any) -> "PrimExpr":
        return _or(other, self)

    def __xor__(self, other: Any) -> "PrimExpr":
        return _xor(self, other)

    def __rxor__(self, other: Any) -> "PrimExpr":
        return _xor(other, self)

    def __lshift__(self, other: Any) -> "PrimExpr":
        return _shl(self, other)

    def __rlshift__(self, other: Any) -> "PrimExpr":
        return _shl(other, self)

    def __rshift__(self, other: Any) -> "PrimExpr":
        return _shr(self, other)

    def __rrshift__(self, other: Any) -> "PrimExpr":
        return _shr(other, self)

    def __invert__(self) -> "PrimExpr":
        if self.dtype == "bool":
            return call("not", WORLD, self)
        return call("call", WORLD, "bitwise_not", None, [self])

    def __lt__(self, other: Any) -> "PrimExpr":
        return binary("lt", self, other)

    def __le__(self, other: Any) -> "PrimExpr":
        return binary("le", self, other)

    def __gt__(self, other: Any) -> "PrimExpr":
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> "PrimExpr":
        return binary("ge", self, other)

    def __eq__(self, other: Any) -> Any:
        return EqualOp(self, other) if _is_operand(other) else False

    def __ne__(self, other: Any) -> Any:
        return NotEqualOp(self, other) if _is_operand(other) else True

    def __bool__(self) -> bool:
        raise error.ArgumentError(
            "an expression has no truth value while the program is being written: use tir.all and tir.any for `and` "
            "and `or`, tir.Not for `not`, tir.if_then_else or tir.Select for `if`"
        )

    def equal(self, other: Any) -> "PrimExpr":
        """The expression self == other."""
        return binary("eq", self, other)

    def astype(self, dtype: str, span: Any = None) -> "PrimExpr":
        """Converted to another dtype."""
        return call("cast", WORLD, str(dtype), self)


class _Comparison(ExprOp):
    """a == b, an expression once it is used as one."""

    _op = ""
    dtype = "bool"

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b

    def asobject(self) -> "PrimExpr":
        """The expression."""
        return call("binary", WORLD, self._op, self.a, self.b)

    def _same(self) -> bool:
        a, b = convert(self.a), convert(self.b)
        if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
            return a.value == b.value
        return a.same_as(b)

    def __repr__(self) -> str:
        return repr(self.asobject())

    def __hash__(self) -> int:
        return hash((self._op, hash(self.a), hash(self.b)))


class EqualOp(_Comparison):
    """lhs == rhs; true in Python when both are the same expression."""

    _op = "eq"

    def __bool__(self) -> bool:
        return self._same()

    __hash__ = _Comparison.__hash__


class NotEqualOp(_Comparison):
    """lhs != rhs; true in Python unless both are the same expression."""

    _op = "ne"

    def __bool__(self) -> bool:
        return not self._same()

    __hash__ = _Comparison.__hash__


@register_object("expr")
class PrimExpr(ExprOp, Object):
    """An expression.  Its class tells its kind: Add, IntImm, BufferLoad, …"""

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """dtype of the value: "int32", "float32x4", …"""
        t = self.__dict__.get("_dtype")
        if t is None:
            t = self.__dict__["_dtype"] = call("expr_dtype", self)
        return t

    def _fields(self) -> List[Any]:
        return call("expr_fields", self)

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __str__(self) -> str:
        return call("expr_text", self, False)

    __repr__ = __str__

    def script(self, **_kwargs: Any) -> str:
        """TVMScript."""
        return str(self)


class _Const(PrimExpr):
    @property
    def value(self) -> Any:
        """The literal's value."""
        v = self._fields()[0]
        return v + 2**64 if self.dtype == "uint64" and v < 0 else v

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (int, float)):
            return self.value == other
        if isinstance(other, _Const):
            return self.value == other.value
        return ExprOp.__eq__(self, other)

    def __ne__(self, other: Any) -> Any:
        eq = self.__eq__(other)
        return not eq if isinstance(eq, bool) else ExprOp.__ne__(self, other)


@register_object("expr", "int")
class IntImm(_Const):
    """An integer or bool literal."""

    def __init__(self, dtype: str, value: int, span: Any = None):
        self._adopt(const(int(value), dtype))

    def __index__(self) -> int:
        return int(self.value)


@register_object("expr", "float")
class FloatImm(_Const):
    """A float literal."""

    def __init__(self, dtype: str, value: float, span: Any = None):
        self._adopt(const(float(value), dtype))


@register_object("expr", "str")
class StringImm(PrimExpr):
    """A string, as an argument of calls and a value of annotations."""

    def __init__(self, value: str, span: Any = None):
        self._adopt(call("string", WORLD, value))

    @property
    def value(self) -> str:
        """The text."""
        return self._fields()[0]

    def __eq__(self, other: Any) -> Any:
        return self.value == (other.value if isinstance(other, StringImm) else other)

    def __ne__(self, other: Any) -> Any:
        return not self.__eq__(other)

    def __hash__(self) -> int:
        return hash(self.value)


@register_object("var")
class Var(PrimExpr):
    """A variable.  Two of the same name are different."""

    _size = False

    def __init__(self, name: str, dtype: str = "int32", span: Any = None):
        self._adopt(call("var", WORLD, name, _dtype_text(dtype), self._size))

    @property
    def name(self) -> str:
        """Its name."""
        return self._fields()[0]

    name_hint = name


@register_object("var", "size")
class SizeVar(Var):
    """A variable that is at least 0."""

    _size = True


def _dtype_text(dtype: Any) -> str:
    """dtype as text; a pointer type is a handle."""
    return "handle" if dtype is None or type(dtype).__name__ == "PointerType" else str(dtype)


class _Binary(PrimExpr):
    _op = ""

    def __init__(self, a: ExprLike, b: ExprLike, span: Any = None):
        self._adopt(call("binary", WORLD, self._op, a, b, True))

    @property
    def a(self) -> PrimExpr:
        """Left side."""
        return self._fields()[0]

    @property
    def b(self) -> PrimExpr:
        """Right side."""
        return self._fields()[1]


def _binary_class(name: str, op: str, doc: str) -> type:
    cls = type(name, (_Binary,), {"_op": op, "__doc__": doc, "__module__": __name__})
    return register_object("expr", op)(cls)


Add = _binary_class("Add", "add", "a + b")
Sub = _binary_class("Sub", "sub", "a - b")
Mul = _binary_class("Mul", "mul", "a * b")
Div = _binary_class("Div", "div", "a / b; truncates on integers")
Mod = _binary_class("Mod", "mod", "remainder of Div")
FloorDiv = _binary_class("FloorDiv", "floordiv", "a // b, floored")
FloorMod = _binary_class("FloorMod", "floormod", "a % b, of the sign of b")
Min = _binary_class("Min", "min", "the smaller one")
Max = _binary_class("Max", "max", "the larger one")
EQ = _binary_class("EQ", "eq", "a == b")
NE = _binary_class("NE", "ne", "a != b")
LT = _binary_class("LT", "lt", "a < b")
LE = _binary_class("LE", "le", "a <= b")
GT = _binary_class("GT", "gt", "a > b")
GE = _binary_class("GE", "ge", "a >= b")
And = _binary_class("And", "and", "a and b; b is evaluated only if a holds")
Or = _binary_class("Or", "or", "a or b; b is evaluated only if a does not hold")


@register_object("expr", "not")
class Not(PrimExpr):
    """Logical negation."""

    def __init__(self, a: ExprLike, span: Any = None):
        self._adopt(call("not", WORLD, a))

    @property
    def a(self) -> PrimExpr:
        """What is negated."""
        return self._fields()[0]


@register_object("expr", "cast")
class Cast(PrimExpr):
    """A value in another dtype."""

    def __init__(self, dtype: str, value: ExprLike, span: Any = None):
        self._adopt(call("cast", WORLD, str(dtype), value))

    @property
    def value(self) -> PrimExpr:
        """What is converted."""
        return self._fields()[0]


@register_object("expr", "select")
class Select(PrimExpr):
    """One of two values, both of which are evaluated."""

    def __init__(self, condition: ExprLike, true_value: ExprLike, false_value: ExprLike, span: Any = None):
        self._adopt(call("select", WORLD, condition, true_value, false_value))

    @property
    def condition(self) -> PrimExpr:
        """What decides."""
        return self._fields()[0]

    @property
    def true_value(self) -> PrimExpr:
        """The value where the condition holds."""
        return self._fields()[1]

    @property
    def false_value(self) -> PrimExpr:
        """The other value."""
        return self._fields()[2]


@register_object("expr", "let")
class Let(PrimExpr):
    """A body in which a variable has a value."""

    def __init__(self, var: Var, value: ExprLike, body: ExprLike, span: Any = None):
        self._adopt(call("let", WORLD, var, value, body))

    var = property(lambda self: self._fields()[0], doc="the variable")
    value = property(lambda self: self._fields()[1], doc="its value")
    body = property(lambda self: self._fields()[2], doc="where it holds")


@register_object("expr", "load")
class BufferLoad(PrimExpr):
    """An element of a buffer."""

    def __init__(self, buffer: Any, indices: Sequence[ExprLike], span: Any = None):
        of_tensor = isinstance(buffer, ExprOp) and callable(buffer)  # of a tensor expression
        self._adopt(buffer(*indices) if of_tensor else call("load", WORLD, buffer, list(indices)))

    @property
    def buffer(self) -> Any:
        """What is read."""
        return self._fields()[0]

    @property
    def indices(self) -> List[PrimExpr]:
        """Where."""
        return self._fields()[1]

    @property
    def producer(self) -> Any:
        """The tensor that is read, in a tensor expression."""
        return call("tensor_of", self.buffer)


ProducerLoad = BufferLoad


@register_object("expr", "call")
class Call(PrimExpr):
    """A call of an intrinsic."""

    def __init__(self, dtype: str, op: Any, args: Sequence[Any], span: Any = None):
        self._adopt(
            call("call", WORLD, _op_name(op), str(dtype), [a if isinstance(a, str) else convert(a) for a in args])
        )

    @property
    def op(self) -> "Op":
        """What is called."""
        return Op(self._fields()[0])

    @property
    def args(self) -> List[PrimExpr]:
        """The arguments."""
        return self._fields()[1]


class Op:
    """The name of an intrinsic."""

    def __init__(self, name: str):
        self.name = name if name.startswith("tir.") else "tir." + name

    @staticmethod
    def get(name: str) -> "Op":
        """The intrinsic of that name."""
        return Op(name)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Op) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Op({self.name})"


def _op_name(op: Any) -> str:
    name = op.name if isinstance(op, Op) else str(op)
    return name[4:] if name.startswith("tir.") else name


def _lanes_of(lanes: Any) -> int:
    """A number of lanes as the core takes it: negative where it is a multiple of vscale()."""
    factors = [lanes.a, lanes.b] if isinstance(lanes, Mul) else [lanes]
    counts = [f for f in factors if not (isinstance(f, Call) and f.op.name == "tir.vscale")]
    if len(counts) < len(factors) <= 2:
        return -int(counts[0]) if counts else -1
    return int(lanes)


def _lanes_as(lanes: int) -> Any:
    return lanes if lanes > 0 else call("call", WORLD, "vscale", "int32", []) * -lanes


@register_object("expr", "ramp")
class Ramp(PrimExpr):
    """base, base + stride, … as a vector."""

    def __init__(self, base: ExprLike, stride: ExprLike, lanes: Union[int, PrimExpr], span: Any = None):
        self._adopt(call("ramp", WORLD, base, stride, _lanes_of(lanes)))

    base = property(lambda self: self._fields()[0], doc="the first lane")
    stride = property(lambda self: self._fields()[1], doc="difference of neighbouring lanes")
    lanes = property(lambda self: _lanes_as(self._fields()[2]), doc="number of lanes, an expression if it has vscale()")


@register_object("expr", "broadcast")
class Broadcast(PrimExpr):
    """A vector of equal lanes."""

    def __init__(self, value: ExprLike, lanes: Union[int, PrimExpr], span: Any = None):
        self._adopt(call("broadcast", WORLD, value, _lanes_of(lanes)))

    value = property(lambda self: self._fields()[0], doc="each lane")
    lanes = property(lambda self: _lanes_as(self._fields()[1]), doc="number of lanes, an expression if it has vscale()")


@register_object("reducer")
class CommReducer(Object):
    """A commutative, associative way to combine values."""

    def __init__(
        self,
        lhs: Sequence[Var],
        rhs: Sequence[Var],
        result: Sequence[ExprLike],
        identity_element: Sequence[ExprLike],
        span: Any = None,
    ):
        self._adopt(call("reducer", WORLD, "reducer", list(lhs), list(rhs), list(result), list(identity_element)))

    def _fields(self) -> List[Any]:
        return call("reducer_fields", self)

    name = property(lambda self: self._fields()[0], doc="its name")
    lhs = property(lambda self: self._fields()[1], doc="variables for the left side")
    rhs = property(lambda self: self._fields()[2], doc="variables for the right side")
    result = property(lambda self: self._fields()[3], doc="the combination")
    identity_element = property(lambda self: self._fields()[4], doc="what changes nothing")


@register_object("expr", "reduce")
class Reduce(PrimExpr):
    """A reduction over axes; in tensor expressions only."""

    combiner = property(lambda self: self._fields()[0], doc="the reducer")
    source = property(lambda self: self._fields()[1], doc="what is reduced")
    axis = property(lambda self: self._fields()[2], doc="over which axes")
    condition = property(lambda self: self._fields()[3], doc="which elements count")
    init = property(lambda self: self._fields()[4], doc="initial values")
    value_index = property(lambda self: self._fields()[5], doc="which of several results this is")


class Range:
    """The integers from ``min`` up to, not including, ``min + extent``.

    ``Range(n)`` starts at 0; ``Range(a, b)`` ends before b."""

    def __init__(self, begin: Any, end: Optional[Any] = None):
        if end is None:
            self.min, self.extent = _bound(0, begin), _bound(begin)
        else:
            self.min, self.extent = _bound(begin, end), _bound(simplify(end - begin))

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any) -> "Range":
        """The range that starts at min_value and has extent members."""
        r = Range.__new__(Range)
        r.min, r.extent = _bound(min_value, extent), _bound(extent)
        return r

    def _structure(self) -> List[Any]:
        return [self.min, self.extent]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Range) and structural_equal(self, other)

    def __hash__(self) -> int:
        return hash((str(self.min), str(self.extent)))

    def __repr__(self) -> str:
        return f"Range({self.min}, {simplify(self.min + self.extent)})"


def simplify(e: Any) -> Any:
    """The simplest known form, when nothing is known of the variables."""
    return e if isinstance(e, int) else call("simplify", WORLD, convert(e))


def _bound(x: Any, like: Any = None) -> Any:
    e = convert(x)
    return e.astype(like.dtype) if isinstance(x, int) and hasattr(like, "dtype") else e


@register_object("itervar")
class IterVar(ExprOp, Object):
    """An axis: a variable with its domain and kind."""

    DataPar, ThreadIndex, CommReduce, Ordered, Opaque, Unrolled, Vectorized, Parallelized, Tensorized = range(9)
    _kinds = {0: "spatial", 1: "thread", 2: "reduce", 3: "opaque", 4: "opaque"}
    _types = (0, 2, 4, 1)  # by the C library's kind

    def __init__(self, dom: Any, var: Union[str, Var], iter_type: int, thread_tag: str = "", span: Any = None):
        if dom is not None and not isinstance(dom, Range):
            if not isinstance(dom, (list, tuple)) or len(dom) != 2:
                raise error.TypeError("an axis wants its domain as a Range or a pair (begin, end)")
            dom = Range(dom[0], dom[1])
        if iter_type not in self._kinds:
            raise error.ArgumentError(
                f"an axis cannot be made with iter_type {iter_type}; that is what schedules are for"
            )
        if not isinstance(var, Var):
            var = Var(str(var), "int32" if dom is None else dom.extent.dtype)
        lo, n = (None, None) if dom is None else (dom.min, dom.extent)
        self._adopt(call("itervar", WORLD, var, lo, n, self._kinds[iter_type], thread_tag or None))

    def _fields(self) -> List[Any]:
        return call("itervar_fields", self)

    @property
    def var(self) -> Var:
        """The variable that names it in expressions."""
        return self._fields()[0]

    @property
    def dom(self) -> Optional[Range]:
        """Its domain; None for a thread axis without one."""
        _, lo, n, _, _ = self._fields()
        return None if n is None else Range.from_min_extent(lo, n)

    @property
    def iter_type(self) -> int:
        """IterVar.DataPar, CommReduce, ThreadIndex, …"""
        return self._types[self._fields()[3]]

    @property
    def thread_tag(self) -> str:
        """ "threadIdx.x" and the like; "" if none."""
        return self._fields()[4] or ""

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """dtype of the variable."""
        return call("expr_dtype", self)

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __str__(self) -> str:
        dom = self.dom
        where = "" if dom is None else f", {dom}"
        return f"IterVar({self.var.name}{where}{', ' + self.thread_tag if self.thread_tag else ''})"

    __repr__ = __str__


def as_tuple(x: Any) -> Tuple[Any, ...]:
    """x as a tuple; a single value is a tuple of one."""
    return tuple(x) if isinstance(x, (list, tuple)) else (x,)
