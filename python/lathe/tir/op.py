"""Functions on expressions.

One for each intrinsic of the compiler (exp, popcount, …), made from the
compiler's own list, and the ones that are more than a call."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

from .. import error
from .._ffi import WORLD, call
from .expr import CommReducer, IterVar, PrimExpr, Var, _Const, _op_name, as_tuple, const, convert

_ANY = 32  # of IntrinFlags: the caller gives the dtype
_FLOAT = 2  # of IntrinFlags: arguments are floats, a whole number of Python is one too
intrinsics: Dict[str, List[Any]] = {row[0]: row for row in call("intrinsics")}


def _make(name: str, lo: int, hi: int, doc: str, floats: bool) -> Callable[..., PrimExpr]:
    if lo == hi == 1:

        def one(x: Any, span: Any = None) -> PrimExpr:
            return call("call", WORLD, name, None, [convert(float(x) if floats and isinstance(x, int) else x)])

        f: Callable[..., PrimExpr] = one
    elif lo == hi == 2:

        def two(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
            return call("call", WORLD, name, None, [x1, x2])

        f = two
    else:

        def many(*args: Any) -> PrimExpr:
            return call("call", WORLD, name, None, list(args))

        f = many
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc[0].upper() + doc[1:] + "."
    return f


#: Intrinsics whose dtype follows from their arguments have a function of their name.
generated: List[str] = []
for _name, _lo, _hi, _flags, _doc in intrinsics.values():
    if not _flags & _ANY:
        globals()[_name] = _make(_name, _lo, _hi, _doc, bool(_flags & _FLOAT))
        generated.append(_name)


def _keeps_integers(name: str) -> None:
    """floor and its like are the identity on integers."""
    inner = globals()[name]

    def f(x: Any, span: Any = None) -> PrimExpr:
        x = convert(x)
        return x if x.dtype.startswith(("int", "uint", "bool")) else inner(x)

    f.__name__, f.__qualname__, f.__doc__ = name, name, inner.__doc__
    globals()[name] = f


for _name in ("floor", "ceil", "trunc", "round", "nearbyint"):
    _keeps_integers(_name)


def power(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """X to the y."""
    return call("binary", WORLD, "pow", x, y)


pow = power  # pylint: disable=redefined-builtin


# ---- arithmetic


def add(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """lhs + rhs."""
    return call("binary", WORLD, "add", lhs, rhs)


def subtract(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """lhs - rhs."""
    return call("binary", WORLD, "sub", lhs, rhs)


def multiply(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """lhs * rhs."""
    return call("binary", WORLD, "mul", lhs, rhs)


def min(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:  # pylint: disable=redefined-builtin
    """The smaller of two values."""
    return call("binary", WORLD, "min", lhs, rhs)


def max(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:  # pylint: disable=redefined-builtin
    """The larger of two values."""
    return call("binary", WORLD, "max", lhs, rhs)


def div(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """a / b as C has it: truncates on integers."""
    return call("binary", WORLD, "div", a, b)


def truncdiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Quotient of integers, rounded towards zero."""
    return call("binary", WORLD, "div", a, b)


def truncmod(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Remainder of truncdiv; has the sign of a."""
    return call("binary", WORLD, "mod", a, b)


def floordiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Quotient rounded down."""
    return call("binary", WORLD, "floordiv", a, b)


def floormod(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Remainder of floordiv; has the sign of b."""
    return call("binary", WORLD, "floormod", a, b)


def ceildiv(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """Quotient rounded up."""
    return floordiv(convert(lhs) + (rhs - 1), rhs)


indexdiv, indexmod = floordiv, floormod


def shift_left(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """x << y."""
    return call("binary", WORLD, "shift_left", x, y)


def shift_right(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """x >> y, arithmetic on signed integers."""
    return call("binary", WORLD, "shift_right", x, y)


def bitwise_and(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """Bits set in both."""
    return call("binary", WORLD, "bitwise_and", x, y)


def bitwise_or(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """Bits set in either."""
    return call("binary", WORLD, "bitwise_or", x, y)


def bitwise_xor(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """Bits set in one of them."""
    return call("binary", WORLD, "bitwise_xor", x, y)


# ---- logic


def all(*args: Any, span: Any = None) -> PrimExpr:  # pylint: disable=redefined-builtin
    """True where every condition holds; stops at the first that does not."""
    if not args:
        raise error.ArgumentError("all: at least one condition is needed")
    out = convert(args[0])
    for a in args[1:]:
        out = call("binary", WORLD, "and", out, a)
    return out


def any(*args: Any, span: Any = None) -> PrimExpr:  # pylint: disable=redefined-builtin
    """True where some condition holds; stops at the first that does."""
    if not args:
        raise error.ArgumentError("any: at least one condition is needed")
    out = convert(args[0])
    for a in args[1:]:
        out = call("binary", WORLD, "or", out, a)
    return out


def if_then_else(cond: Any, t: Any, f: Any, span: Any = None) -> PrimExpr:
    """t where cond holds, else f; only the one taken is evaluated."""
    return call("call", WORLD, "if_then_else", None, [cond, t, f])


def likely(cond: Any, span: Any = None) -> PrimExpr:
    """cond, which usually holds."""
    return call("call", WORLD, "likely", None, [cond])


# ---- bits and dtypes


def clz(x: Any) -> PrimExpr:
    """Number of leading zero bits, as int32."""
    return call("call", WORLD, "clz", "int32", [x])


def reinterpret(dtype: str, value: Any, span: Any = None) -> PrimExpr:
    """The same bits as another dtype of the same width."""
    return call("call", WORLD, "reinterpret", str(dtype), [value])


def min_value(dtype: str, span: Any = None) -> PrimExpr:
    """The smallest finite value of a dtype."""
    return const(call("dtype_limits", dtype)[0], dtype)


def max_value(dtype: str, span: Any = None) -> PrimExpr:
    """The largest finite value of a dtype."""
    return const(call("dtype_limits", dtype)[1], dtype)


def infinity(dtype: str, span: Any = None) -> PrimExpr:
    """Infinity of a float dtype."""
    return const(float("inf"), dtype)


def isnullptr(x: Any, span: Any = None) -> PrimExpr:
    """Is the pointer null?"""
    return call("binary", WORLD, "eq", reinterpret("uint64", x), const(0, "uint64"))


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer of the user's own.

    fcombine(x, y) combines two values (tuples of values for a reduction of several
    at once), fidentity(dtype, …) is what changes nothing.  The result is called as
    ``reducer(expr, axis=k, where=cond, init=value)``."""

    def reducer(expr: Any, axis: Any, where: Any = None, init: Any = None, *args: Any) -> Any:
        if args:
            raise error.ArgumentError(f"{name}: a reducer takes an expression, axes, where and init")
        several = isinstance(expr, (list, tuple))
        if not several and isinstance(axis, PrimExpr):  # two values, combined at once
            return fcombine(convert(expr), axis)
        source = [convert(e) for e in as_tuple(expr)]
        dtypes = [e.dtype for e in source]
        axes = [_reduce_axis(name, a) for a in as_tuple(axis)]
        lhs = [Var(f"x{i}" if several else "x", t) for i, t in enumerate(dtypes)]
        rhs = [Var(f"y{i}" if several else "y", t) for i, t in enumerate(dtypes)]
        result = fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0])
        identity = fidentity(*dtypes)
        made = call("reducer", WORLD, getattr(fcombine, "__name__", "<lambda>") if name == "reduce" else name,
                    lhs, rhs, list(as_tuple(result)), list(as_tuple(identity)))
        return reduce_with(made, source, axes, where, init, several)

    reducer.__name__ = name
    reducer.__doc__ = f"The reducer {name}: reducer(expr, axis, where=None, init=None)."
    return reducer


def _reduce_axis(name: str, a: Any) -> IterVar:
    if not isinstance(a, IterVar):
        raise error.TypeError(f"{name}: axis wants axes made by te.reduce_axis, not a {type(a).__name__}")
    return a


def reduce_with(
    reducer: CommReducer, source: Sequence[Any], axes: Sequence[IterVar], where: Any, init: Any, several: bool
) -> Any:
    """The reduction expression, or a tuple of them for a reducer of several values."""
    inits = None if init is None else [convert(i) for i in as_tuple(init)]
    cond = None if where is None else convert(where)
    out = tuple(call("reduce", WORLD, reducer, list(source), list(axes), cond, inits, i) for i in range(len(source)))
    return out if several else out[0]


def _named(name: str, doc: str) -> Callable[..., PrimExpr]:
    def reducer(expr: Any, axis: Any, where: Any = None, init: Any = None, *args: Any) -> PrimExpr:
        source = convert(expr)
        made = call("reducer_named", WORLD, name, source.dtype, None)
        return reduce_with(made, [source], [_reduce_axis(name, a) for a in as_tuple(axis)], where, init, False)

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = doc + " of an expression over axes: (expr, axis, where=None, init=None)."
    return reducer


def _named_pair(name: str, doc: str) -> Callable[..., Any]:
    def reducer(expr: Any, axis: Any, where: Any = None, init: Any = None, *args: Any) -> Any:
        pair = as_tuple(expr)
        if len(pair) != 2:
            raise error.ArgumentError(f"{name}: reduces a pair (index, value), {len(pair)} values were given")
        source = [convert(e) for e in pair]
        made = call("reducer_named", WORLD, name, source[1].dtype, source[0].dtype)
        return reduce_with(made, source, [_reduce_axis(name, a) for a in as_tuple(axis)], where, init, True)

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = doc
    return reducer


sum = _named("sum", "Sum")  # pylint: disable=redefined-builtin
prod = _named("prod", "Product")
reduce_min = _named("min", "Smallest value")
reduce_max = _named("max", "Largest value")
reduce_any = _named("any", "Whether some value is true")
reduce_all = _named("all", "Whether every value is true")
argmin = _named_pair("argmin", "Index and value of the smallest: argmin((index, value), axis).")
argmax = _named_pair("argmax", "Index and value of the largest: argmax((index, value), axis).")


# ---- calls


def _call_args(args: Sequence[Any]) -> List[Any]:
    return [a if isinstance(a, str) else convert(a) for a in args]


def call_intrin(dtype: str, func_name: Any, *args: Any, span: Any = None) -> PrimExpr:
    """A call of an intrinsic by name ("tir.exp" or "exp")."""
    name = _op_name(func_name)
    if name not in intrinsics:
        raise error.ArgumentError(f"there is no intrinsic '{name}'")
    return call("call", WORLD, name, str(dtype), _call_args(args))


def call_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a C function that the program is linked with."""
    return call("call", WORLD, "call_extern", str(dtype), [func_name] + _call_args(args))


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """call_extern of a function without effects."""
    return call("call", WORLD, "call_pure_extern", str(dtype), [func_name] + _call_args(args))


def call_packed(*args: Any, span: Any = None) -> PrimExpr:
    """A call of a function that register_func registered: name, then arguments, of
    which a Buffer is passed as a tensor."""
    from .buffer import Buffer

    packed = [_packed_buffer(a) if isinstance(a, Buffer) else a if isinstance(a, str) else convert(a) for a in args]
    return call("call", WORLD, "tvm_call_packed", "int32", packed)


def tvm_call_packed(*args: Any, span: Any = None) -> PrimExpr:
    """The same as call_packed."""
    return call_packed(*args)


def _packed_buffer(b: Any) -> PrimExpr:
    shape = call("call", WORLD, "tvm_stack_make_shape", "handle", list(b.shape))
    strides = call("call", WORLD, "tvm_stack_make_shape", "handle", list(b.strides)) if b.strides else const(0, "int32")
    marker = const(0, b.dtype)
    offset = b.elem_offset if b.elem_offset is not None else const(0, "int32")
    return call(
        "call", WORLD, "tvm_stack_make_array", "handle", [b.data, shape, strides, const(len(b.shape)), marker, offset]
    )


def type_annotation(dtype: str) -> PrimExpr:
    """Carries a dtype in a call's arguments."""
    return call("call", WORLD, "type_annotation", str(dtype), [])


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: Any) -> PrimExpr:
    """A pointer into data."""
    return call("call", WORLD, "tvm_access_ptr", "handle", _call_args([ptype, data, offset, extent, rw_mask]))


def address_of(load: PrimExpr, span: Any = None) -> PrimExpr:
    """The address of a buffer's element."""
    return call("call", WORLD, "address_of", "handle", [load])


def tvm_storage_sync(storage_scope: str) -> PrimExpr:
    """A barrier among the threads of a block."""
    return call("call", WORLD, "tvm_storage_sync", "int32", [storage_scope])


def ret(val: Any, span: Any = None) -> PrimExpr:
    """Leaves the function with this status."""
    return call("call", WORLD, "ret", "int32", [val])


def is_const(e: Any) -> bool:
    """Is it a literal?"""
    return isinstance(e, (int, float, _Const))


# ---- what accelerators and TVM's own lowering have: kept in programs, refused where code is made

_TYPED = 64  # of IntrinFlags: the dtype comes first


def _builtin(name: str, typed: bool, doc: str) -> Callable[..., PrimExpr]:
    def of_dtype(dtype: str, *args: Any) -> PrimExpr:
        return call("call", WORLD, name, str(dtype), _call_args(args))

    def plain(*args: Any) -> PrimExpr:
        return call("call", WORLD, name, None, _call_args(args))

    f = of_dtype if typed else plain
    f.__name__, f.__qualname__, f.__doc__ = name, name, doc[0].upper() + doc[1:] + "."
    return f


#: The builtins by name.
builtins: List[str] = []
for _name, _lo, _hi, _flags, _doc in intrinsics.values():
    if _name not in globals() and _name != "dictionary":
        globals()[_name] = _builtin(_name, bool(_flags & _TYPED), _doc)
        builtins.append(_name)
