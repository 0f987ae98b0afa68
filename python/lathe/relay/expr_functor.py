"""Walking and rewriting graphs in Python.

A visitor's method for a kind of node is visit_<kind>; each node is visited once."""

from __future__ import annotations

from typing import Any, Callable, Dict

from .._ffi import WORLD, call
from . import expr as _expr
from .expr import Call, Function, If, Let, Op, RelayExpr, Tuple, TupleGetItem


class ExprFunctor:
    """Dispatch on the kind of node, remembering what came out."""

    def __init__(self) -> None:
        self.memo_map: Dict[Any, Any] = {}

    def visit(self, expr: Any) -> Any:
        """The result for a node, computed once."""
        if isinstance(expr, Op):
            return self.visit_op(expr)
        if expr in self.memo_map:
            return self.memo_map[expr]
        result = self._dispatch(expr)(expr)
        self.memo_map[expr] = result
        return result

    def _dispatch(self, expr: RelayExpr) -> Callable[[Any], Any]:
        kinds = {
            "var": self.visit_var,
            "const": self.visit_constant,
            "call": self.visit_call,
            "apply": self.visit_call,
            "tuple": self.visit_tuple,
            "get": self.visit_tuple_getitem,
            "let": self.visit_let,
            "if": self.visit_if,
            "func": self.visit_function,
            "global": self.visit_global_var,
            "ctor": self.visit_constructor,
            "match": self.visit_match,
            "call_tir": self.visit_call_tir,
            "op": self.visit_op,
        }
        return kinds[_expr.KINDS()[expr._detail]]

    def visit_function(self, _: Any) -> Any:
        raise NotImplementedError()

    visit_let = visit_call = visit_var = visit_if = visit_tuple = visit_tuple_getitem = visit_global_var = (
        visit_function
    )
    visit_op = visit_constant = visit_constructor = visit_match = visit_call_tir = visit_function


class ExprVisitor(ExprFunctor):
    """Visits every node, parents first by default; override what you want to see."""

    def visit_tuple(self, tup: Tuple) -> None:
        for x in tup.fields:
            self.visit(x)

    def visit_call(self, call: Call) -> None:  # pylint: disable=redefined-outer-name
        self.visit(call.op)
        for a in call.args:
            self.visit(a)

    def visit_var(self, var: Any) -> None: ...

    def visit_let(self, let: Let) -> None:
        self.visit(let.var)
        self.visit(let.value)
        self.visit(let.body)

    def visit_function(self, fn: Function) -> None:
        for p in fn.params:
            self.visit(p)
        self.visit(fn.body)

    def visit_if(self, i: If) -> None:
        self.visit(i.cond)
        self.visit(i.true_branch)
        self.visit(i.false_branch)

    def visit_global_var(self, gv: Any) -> None: ...

    def visit_constructor(self, c: Any) -> None: ...

    def visit_op(self, op: Any) -> None: ...

    def visit_constant(self, const: Any) -> None: ...

    def visit_tuple_getitem(self, t: TupleGetItem) -> None:
        self.visit(t.tuple_value)

    def visit_match(self, m: Any) -> None:
        for x in call("node_args", m):
            self.visit(x)

    def visit_call_tir(self, c: Any) -> None:
        for x in call("node_args", c):
            self.visit(x)


class ExprMutator(ExprFunctor):
    """Rebuilds the graph; a node whose parts stay the same stays the same."""

    def _over(self, node: RelayExpr) -> RelayExpr:
        """The same node over its rewritten parts."""
        old = call("node_args", node)
        new = [self.visit(x) for x in old]
        if all(a.same_as(b) for a, b in zip(old, new)):
            return node
        return call("node_with_args", WORLD, node, [_expr.as_expr(x) for x in new])

    visit_function = visit_let = visit_if = visit_tuple = visit_tuple_getitem = visit_match = visit_call_tir = _over

    def visit_call(self, call: Call) -> RelayExpr:  # pylint: disable=redefined-outer-name
        return self._over(call)

    def visit_var(self, var: Any) -> RelayExpr:
        return var

    def visit_global_var(self, gv: Any) -> RelayExpr:
        return gv

    def visit_op(self, op: Any) -> Any:
        return op

    def visit_constant(self, const: Any) -> RelayExpr:
        return const

    def visit_constructor(self, con: Any) -> RelayExpr:
        return con
