"""Macros of TVMScript: a call of one stands for its body, with the arguments in place of the parameters."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from typing import Any, Callable, Dict, List, Optional, Set

from .. import error


class Macro:
    """A body of statements with parameters.  hygienic: names that are no parameters mean what they mean where the
    macro is defined; else what they mean where it is used."""

    def __init__(self, func: Callable[..., Any], hygienic: bool, names: Dict[str, Any]):
        self.__name__, self.hygienic, self.names = func.__name__, hygienic, names
        self.signature = inspect.signature(func)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
        except (OSError, SyntaxError) as e:
            raise error.ArgumentError(f"the source of macro '{func.__name__}' cannot be read: {e}") from None
        self.body: List[ast.stmt] = tree.body[0].body  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise error.TypeError(f"macro '{self.__name__}' stands for statements: it is used inside of a script only")

    def __repr__(self) -> str:
        return f"T.macro({self.__name__})"


def read_names(node: Any) -> Set[str]:
    """Names that occur in some part of a program."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _bound_names(body: List[ast.stmt]) -> Set[str]:
    return {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


class _Replace(ast.NodeTransformer):
    def __init__(self, by: Dict[str, ast.expr]):
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:  # pylint: disable=invalid-name
        new = self.by.get(node.id)
        if new is None:
            return node
        if isinstance(node.ctx, ast.Store) and not isinstance(new, ast.Name):
            raise error.ArgumentError(
                f"a macro assigns to its parameter '{node.id}', which is no name where the macro is used"
            )
        new = copy.deepcopy(new)
        if isinstance(new, ast.Name):
            new.ctx = node.ctx
        return new


class Expander(ast.NodeTransformer):
    """Writes macros out.  values are the Python values of names; those that bodies bring along are added."""

    _DEPTH = 32

    def __init__(self, tree: ast.AST, values: Dict[str, Any]):
        self.values, self.taken, self.depth, self.count = values, read_names(tree), 0, 0

    def visit_Expr(self, node: ast.Expr) -> Any:  # pylint: disable=invalid-name
        call = node.value
        macro: Optional[Any] = None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            macro = self.values.get(call.func.id)
        if not isinstance(macro, Macro) or not isinstance(call, ast.Call):
            return node
        if self.depth == self._DEPTH:
            raise error.ArgumentError(f"macro '{macro.__name__}' is used within itself, without an end")
        try:
            bound = macro.signature.bind(*call.args, **{k.arg: k.value for k in call.keywords if k.arg})
        except TypeError as e:
            raise error.ArgumentError(f"macro '{macro.__name__}': {e}") from None
        bound.apply_defaults()
        by = {k: v if isinstance(v, ast.expr) else self._value(k, v) for k, v in bound.arguments.items()}
        own = _bound_names(macro.body) - set(by)
        for name in sorted(own & self.taken):
            by[name] = self._fresh(name)
        self.taken |= own
        for name in sorted(
            set().union(*(read_names(s) for s in macro.body)) - own - set(by) & set(macro.names) - {"T", "I", "tir"}
        ):
            if name not in by and name in macro.names and (macro.hygienic or name not in self.taken | set(self.values)):
                by[name] = self._value(name, macro.names[name])
        body = [_Replace(by).visit(copy.deepcopy(s)) for s in macro.body]
        self.depth += 1
        out = [self.visit(s) for s in body]
        self.depth -= 1
        return [s for part in out for s in (part if isinstance(part, list) else [part])]

    def _fresh(self, name: str) -> ast.Name:
        while True:
            self.count += 1
            new = f"{name}_{self.count}"
            if new not in self.taken and new not in self.values:
                self.taken.add(new)
                return ast.Name(new, ast.Load())

    def _value(self, name: str, value: Any) -> ast.Name:
        new = self._fresh(name)
        self.values[new.id] = value
        return new
