"""Calls of Python's functions inside of a script: the function is called once with variables in place of the script's
values, and what it gives stands there instead."""

from __future__ import annotations

import ast
import copy
import re
from typing import Any, Callable, Dict, List, Optional

from .._ffi import Object
from ..tir.expr import PrimExpr, Var, convert
from .macro import Macro

#: Names that the compiler's parser reads itself.
LANGUAGE = ("T", "I", "tir")
_SCALAR = re.compile(r"bool|u?int\d+|b?float\d+")


class Inliner(ast.NodeTransformer):
    """Writes such calls out.  values are the Python values of names."""

    def __init__(self, values: Dict[str, Any]):
        self.values, self.count = values, 0
        self.dtypes: Dict[str, str] = {}  # of scalar parameters

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # pylint: disable=invalid-name
        """Notes the parameters that are annotated as `i: T.int64`."""
        for arg in node.args.args:
            kind = arg.annotation
            if isinstance(kind, ast.Attribute) and isinstance(kind.value, ast.Name) and kind.value.id == "T":
                if _SCALAR.fullmatch(kind.attr):
                    self.dtypes[arg.arg] = kind.attr
        return self.generic_visit(node)

    def _spread(self, parts: List[ast.expr]) -> List[ast.expr]:
        """`*dims` of a sequence of Python's, its elements one by one."""
        out: List[ast.expr] = []
        for part in parts:
            name = part.value if isinstance(part, ast.Starred) else None
            value = self.values.get(name.id) if isinstance(name, ast.Name) else None
            items = [_as_syntax(v) for v in value] if isinstance(value, (list, tuple)) else [None]
            out += [part] if None in items else [i for i in items if i is not None]
        return out

    def visit_List(self, node: ast.List) -> ast.AST:  # pylint: disable=invalid-name
        """A list with starred parts."""
        node.elts = self._spread(node.elts)
        return self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:  # pylint: disable=invalid-name
        """A tuple with starred parts."""
        node.elts = self._spread(node.elts)
        return self.generic_visit(node)

    def _callee(self, node: ast.expr) -> Optional[Callable[..., Any]]:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        kinds = (ast.Name, ast.Attribute, ast.Call)
        if not isinstance(node, kinds) or not names <= set(self.values) or names & set(LANGUAGE):
            return None
        try:
            f = eval(compile(ast.Expression(node), "<script>", "eval"), dict(self.values))  # pylint: disable=eval-used
        except AttributeError:
            return None
        usable = callable(f) and not isinstance(f, (type, Macro, Object))
        return f if usable else None

    def visit_Call(self, node: ast.Call) -> ast.AST:  # pylint: disable=invalid-name
        node.args = self._spread(node.args)
        self.generic_visit(node)
        f = self._callee(node.func)
        open_args = [a for a in node.args if not isinstance(a, ast.Constant)]
        named = {k.arg: k.value.value for k in node.keywords if k.arg is not None and isinstance(k.value, ast.Constant)}
        if f is None or len(named) < len(node.keywords) or not open_args:
            return node
        if any(isinstance(a, ast.Starred) for a in node.args):
            return node
        by: Dict[str, ast.expr] = {}
        args: List[Any] = []
        for a in node.args:
            if isinstance(a, ast.Constant):
                args.append(a.value)
                continue
            if isinstance(a, ast.Name) and a.id in self.values:
                args.append(self.values[a.id])
                continue
            self.count += 1
            name = f"_argument_{self.count}"
            by[name] = a
            args.append(Var(name, self.dtypes.get(a.id, "int32") if isinstance(a, ast.Name) else "int32"))
        try:
            new = _as_syntax(f(*args, **named))
        except Exception:  # the parser says what it does not know  # pylint: disable=broad-except
            return node
        return node if new is None else ast.copy_location(_Put(by).visit(new), node)


class _Put(ast.NodeTransformer):
    def __init__(self, by: Dict[str, ast.expr]):
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:  # pylint: disable=invalid-name
        return copy.deepcopy(self.by[node.id]) if node.id in self.by else node


def _as_syntax(value: Any) -> Optional[ast.expr]:
    """The text of a value, taken apart; None if it has none."""
    if isinstance(value, (list, tuple)):
        parts = [_as_syntax(v) for v in value]
        return None if any(p is None for p in parts) else ast.List(parts, ast.Load())  # type: ignore[arg-type]
    if hasattr(value, "asobject"):
        value = value.asobject()
    if isinstance(value, (bool, int, float)):
        return ast.Constant(value)
    if not isinstance(value, PrimExpr):
        return None
    return ast.parse(str(convert(value)), mode="eval").body
