"""Tensors computed by a Python function that is read as loops: ``@te.hybrid.script``.

Called with tensors, the function's source becomes loops; called with arrays, it runs as Python."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import textwrap
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .. import error, tir
from ..tir import ir_builder
from ..tir.buffer import Buffer, decl_buffer
from ..tir.expr import ExprOp, IntImm, PrimExpr, convert
from ..tir.stmt import BufferStore
from .operation import extern, thread_axis
from .tensor import Tensor

__all__ = ["script"]

_LOOPS = {"range": "serial", "serial": "serial", "parallel": "parallel", "vectorize": "vectorized",
          "unroll": "unrolled"}
_FUNCTIONS = ("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "log", "popcount", "power",
              "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "likely", "max", "min")
_DTYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
           "uint64")
_BINARY: Dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Eq: lambda a, b: convert(a).equal(b) if isinstance(a, ExprOp) or isinstance(b, ExprOp) else a == b,
    ast.NotEq: lambda a, b: tir.NE(a, b) if isinstance(a, ExprOp) or isinstance(b, ExprOp) else a != b,
}


def _number(x: Any) -> Any:
    return int(x) if isinstance(x, IntImm) else x


class _Reader:
    """Reads the statements of a function, with the values that its names have."""

    def __init__(self, name: str, names: Dict[str, Any]) -> None:
        self.name, self.names = name, names
        self.builder = ir_builder.create()
        self.outputs: List[Buffer] = []
        self.scalars: Dict[str, Buffer] = {}
        self.returned: Optional[List[Any]] = None

    def refuse(self, node: ast.AST, what: str) -> Any:
        raise error.UnsupportedError(f"hybrid script '{self.name}', line {getattr(node, 'lineno', 0)}: {what}")

    # ---- statements

    def block(self, body: List[ast.stmt]) -> None:
        """Statements in a scope of their own: names of it are gone behind it."""
        names, scalars = dict(self.names), dict(self.scalars)
        for s in body:
            self.statement(s)
        self.names, self.scalars = names, scalars

    def statement(self, s: ast.stmt) -> None:
        if self.returned is not None:
            self.refuse(s, "nothing can stand behind return")
        if isinstance(s, ast.For):
            self.loop(s)
        elif isinstance(s, ast.If):
            self.branch(s)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self.assign(s.targets[0], self.value(s.value))
        elif isinstance(s, ast.AugAssign):
            read = ast.copy_location(ast.BinOp(_as_read(s.target), s.op, s.value), s)
            self.assign(s.target, self.value(read))
        elif isinstance(s, ast.Return):
            found = self.value(s.value) if s.value is not None else ()
            self.returned = list(found) if isinstance(found, tuple) else [found]
        elif not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) and not isinstance(s, ast.Pass):
            self.refuse(s, f"'{type(s).__name__.lower()}' is not read; loops, if, assignments and return are")

    def loop(self, s: ast.For) -> None:
        call = s.iter
        kind = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if not isinstance(s.target, ast.Name) or not isinstance(call, ast.Call) or s.orelse:
            self.refuse(s, "a loop is `for i in range(n)`, or parallel, vectorize, unroll, const_range, bind")
            return
        args = [self.value(a) for a in call.args]
        if kind == "const_range":
            for i in range(*(int(a) for a in args)):
                self.names[s.target.id] = i
                self.block(s.body)
            return
        if kind == "bind":
            with self.builder.new_scope():
                axis = thread_axis(args[0])
                self.builder.scope_attr(axis, "thread_extent", args[1])
                self.names[s.target.id] = axis.var
                self.block(s.body)
            return
        if kind not in _LOOPS or not 1 <= len(args) <= 2:
            self.refuse(s, f"'{kind}' makes no loop; range, parallel, vectorize, unroll, const_range and bind do")
        begin, end = (0, args[0]) if len(args) == 1 else args
        with self.builder.for_range(begin, end, name=s.target.id, kind=_LOOPS[kind]) as i:
            outer = self.names.get(s.target.id)
            self.names[s.target.id] = i
            self.block(s.body)
            self.names[s.target.id] = outer

    def branch(self, s: ast.If) -> None:
        cond = _number(self.value(s.test))
        if isinstance(cond, (bool, int)):
            self.block(s.body if cond else s.orelse)
            return
        with self.builder.if_scope(cond):
            self.block(s.body)
        if s.orelse:
            with self.builder.else_scope():
                self.block(s.orelse)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            buffer, index = self.element(target)
            self.store(buffer, index, value)
        elif not isinstance(target, ast.Name):
            self.refuse(target, "only names and elements of tensors are assigned")
        elif isinstance(value, Buffer):
            self.names[target.id] = value
        else:
            scalar = self.scalars.get(target.id)
            if scalar is None:
                e = convert(value)
                scalar = self.builder.allocate(e.dtype, (1,), name=target.id, scope="local").buffer
                self.scalars[target.id] = scalar
            self.store(scalar, [0], value)

    def store(self, buffer: Buffer, index: List[Any], value: Any) -> None:
        e = convert(value)
        self.builder.emit(BufferStore(buffer, e if e.dtype == buffer.dtype else e.astype(buffer.dtype), index))

    # ---- values

    def element(self, s: ast.Subscript) -> Tuple[Any, List[Any]]:
        index = self.value(s.slice)
        return self.value(s.value), list(index) if isinstance(index, tuple) else [index]

    def value(self, e: ast.expr) -> Any:
        if isinstance(e, ast.Constant):
            return e.value
        if isinstance(e, ast.Tuple):
            return tuple(self.value(x) for x in e.elts)
        if isinstance(e, ast.Name):
            return self.named(e)
        if isinstance(e, ast.Attribute):
            found = getattr(self.value(e.value), e.attr)
            return tuple(_number(n) for n in found) if e.attr == "shape" else found
        if isinstance(e, ast.Subscript):
            of, index = self.element(e)
            return tir.BufferLoad(of, index) if isinstance(of, Buffer) else of[index[0]]
        if isinstance(e, ast.BinOp) and type(e.op) in _BINARY:
            return _BINARY[type(e.op)](self.value(e.left), self.value(e.right))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.Not)):
            x = self.value(e.operand)
            return -x if isinstance(e.op, ast.USub) else tir.Not(x) if isinstance(x, ExprOp) else not x
        if isinstance(e, ast.Compare):
            sides = [self.value(x) for x in [e.left, *e.comparators]]
            return _joined([_BINARY[type(op)](a, b) for op, a, b in zip(e.ops, sides, sides[1:])], tir.all, all)
        if isinstance(e, ast.BoolOp):
            both = isinstance(e.op, ast.And)
            return _joined([self.value(x) for x in e.values], tir.all if both else tir.any, all if both else any)
        if isinstance(e, ast.IfExp):
            return tir.if_then_else(self.value(e.test), self.value(e.body), self.value(e.orelse))
        if isinstance(e, ast.Call):
            return self.call(e)
        return self.refuse(e, f"'{ast.unparse(e)}' is not read")

    def named(self, e: ast.Name) -> Any:
        if e.id in self.scalars:
            return tir.BufferLoad(self.scalars[e.id], [0])
        if self.names.get(e.id) is None:
            self.refuse(e, f"'{e.id}' is not known here")
        return self.names[e.id]

    def call(self, e: ast.Call) -> Any:
        name = e.func.id if isinstance(e.func, ast.Name) else ""
        args = [self.value(a) for a in e.args]
        if name in ("output_tensor", "allocate"):
            shape = list(args[0]) if isinstance(args[0], tuple) else [args[0]]
            dtype = args[1] if len(args) > 1 else "float32"
            if name == "allocate":
                scope = args[2] if len(args) > 2 else ""
                return self.builder.allocate(dtype, shape, name="scratch", scope=scope).buffer
            self.outputs.append(decl_buffer(shape, dtype, f"{self.name}_{len(self.outputs)}"))
            return self.outputs[-1]
        if name == "len":
            return _number(args[0].shape[0]) if isinstance(args[0], Buffer) else len(args[0])
        if name in _DTYPES:
            return convert(args[0]).astype(name)
        if name == "ceil_div":
            return (args[0] + args[1] - 1) // args[1]
        if name in _FUNCTIONS:
            return getattr(tir, name)(*args)
        return self.refuse(e, f"the function '{ast.unparse(e.func)}' is not known")


def _as_read(target: ast.expr) -> ast.expr:
    read = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(read, target)


def _joined(parts: List[Any], together: Callable[..., Any], plain: Callable[[Any], bool]) -> Any:
    return together(*(convert(p) for p in parts)) if any(isinstance(p, ExprOp) for p in parts) else plain(parts)


# ---- as Python


def _run(func: Callable[..., Any], args: Tuple[Any, ...]) -> Any:
    """The function on arrays, with what scripts have besides Python's own names."""
    names = {**func.__globals__, **{n: range for n in (*_LOOPS, "const_range")}, "range": range,
             "bind": lambda _tag, n: range(n), "ceil_div": lambda a, b: -(-a // b), "likely": lambda x: x,
             "allocate": lambda shape, dtype="float32", _scope="": np.zeros(shape, dtype),
             "output_tensor": lambda shape, dtype="float32": np.zeros(shape, dtype),
             "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
             "popcount": lambda x: bin(x).count("1"), "power": np.power, "erf": np.vectorize(math.erf)}
    for name in _FUNCTIONS:
        if name not in names and hasattr(np, name) and name not in ("max", "min", "round", "abs"):
            names[name] = getattr(np, name)
    names.update({d: np.dtype(d).type for d in _DTYPES})
    return types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)(*args)


def _loops(func: Callable[..., Any], args: Tuple[Any, ...]) -> Any:
    definition = ast.parse(textwrap.dedent(inspect.getsource(func))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    parameters = [p.arg for p in definition.args.args]
    if len(parameters) != len(args):
        raise error.ArgumentError(
            f"hybrid script '{func.__name__}' takes {len(parameters)} arguments, {len(args)} given"
        )
    names = {**func.__globals__, **inspect.getclosurevars(func).nonlocals}
    tensors = [a for a in args if isinstance(a, Tensor)]
    buffers = [decl_buffer(t.shape, t.dtype, t.op.name) for t in tensors]
    given = iter(buffers)
    names.update({p: next(given) if isinstance(a, Tensor) else a for p, a in zip(parameters, args)})
    reader = _Reader(func.__name__, names)
    for s in definition.body:
        reader.statement(s)
    outputs = reader.returned or []
    if not outputs or any(not any(o is known for known in reader.outputs) for o in outputs):
        raise error.ArgumentError(f"hybrid script '{func.__name__}' returns tensors that output_tensor made")
    body = reader.builder.get()
    return extern(None, tensors, lambda _ins, _outs: body, name=func.__name__, in_buffers=buffers, out_buffers=outputs)


def script(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a function of tensors whose body is loops; of arrays, what it is in Python."""

    @functools.wraps(func)
    def hybrid(*args: Any) -> Any:
        on_tensors = any(isinstance(a, (Tensor, PrimExpr)) for a in args)
        return _loops(func, args) if on_tensors else _run(func, args)

    return hybrid
