"""Writing a body step by step: variables bound one after the other, branches, what comes out.

>>> sb = relay.ScopeBuilder()
>>> y = sb.let("y", x + relay.const(1.0))
>>> with sb.if_scope(cond):
...     sb.ret(y)
>>> with sb.else_scope():
...     sb.ret(x)
>>> f = relay.Function([cond, x], sb.get())"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple, Union

from .. import error
from .._ffi import call
from .expr import If, Let, RelayExpr, Var, as_expr
from .ty import FuncType, IncompleteType, Type


class _Scope:
    """What was bound so far, the value at the end, and a branch that still wants its other side."""

    def __init__(self) -> None:
        self.bound: List[Tuple[Var, RelayExpr]] = []
        self.result: Optional[RelayExpr] = None
        self.branch: Optional[Tuple[RelayExpr, RelayExpr]] = None

    def close(self) -> RelayExpr:
        if self.result is None:
            raise error.ArgumentError("ScopeBuilder: a scope ends without a value; ret(value) or both branches give it")
        body = self.result
        for var, value in reversed(self.bound):
            body = Let(var, value, body)
        return body


class ScopeBuilder:
    """Makes an expression of let, if and the value at the end."""

    def __init__(self) -> None:
        self._scopes: List[_Scope] = [_Scope()]

    def let(self, var: Union[str, Var, Tuple[str, Type]], value: Any) -> Var:
        """The variable, new or as given, that stands for the value from here on."""
        if isinstance(var, (list, tuple)):
            if len(var) != 2:
                raise error.ArgumentError("ScopeBuilder.let: a variable is a name, a Var, or a name with its type")
            var = Var(*var)
        elif isinstance(var, str):
            var = Var(var, self._known_type(value))
        if self._scopes[-1].result is not None:
            raise error.ArgumentError("ScopeBuilder.let: nothing comes after ret")
        self._scopes[-1].bound.append((var, as_expr(value)))
        return var

    def ret(self, value: Any) -> None:
        """The value of the scope."""
        if self._scopes[-1].result is not None:
            raise error.ArgumentError("ScopeBuilder.ret: the scope has its value already")
        self._scopes[-1].result = as_expr(value)

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What is evaluated where the condition holds; else_scope follows."""
        self._scopes.append(_Scope())
        yield
        inner = self._scopes.pop().close()
        self._scopes[-1].branch = (as_expr(cond), inner)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is evaluated where the condition of the if_scope before does not hold."""
        branch, self._scopes[-1].branch = self._scopes[-1].branch, None
        if branch is None:
            raise error.ArgumentError("ScopeBuilder.else_scope: there is no if_scope before it")
        self._scopes.append(_Scope())
        yield
        inner = self._scopes.pop().close()
        self.ret(If(branch[0], branch[1], inner))

    def type_of(self, expr: Any) -> Any:
        """The type of an expression as far as it is known: declared, inferred, or an IncompleteType."""
        if isinstance(expr, FuncType):
            return expr
        return self._known_type(expr) or IncompleteType()

    @staticmethod
    def _known_type(expr: Any) -> Optional[Type]:
        return call("node_type", as_expr(expr))

    def get(self) -> RelayExpr:
        """The whole expression."""
        if len(self._scopes) != 1:
            raise error.ArgumentError("ScopeBuilder.get: a scope is still open")
        return self._scopes[0].close()
