"""TVMScript from Python source: the text goes to the compiler's own parser, with
the values of the Python names that it mentions."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

import numpy as np

from .. import error
from .._ffi import call
from .._ir import diagnostics
from .._ir.module import IRModule
from ..tir.expr import IterVar, PrimExpr
from ..tir.function import PrimFunc
from .inline import LANGUAGE, Inliner
from .macro import Expander, Macro


def from_source(
    program: Union[str, Callable[..., Any], type], extra_vars: Optional[Dict[str, Any]] = None, **_kwargs: Any
) -> Union[PrimFunc, IRModule]:
    """A function or a module from its text, or from a Python function or class."""
    if isinstance(program, str):
        return parse_text(textwrap.dedent(program), None, 1, extra_vars or {})
    text, file, line, indent = _source_of(program)
    return _parse_source(program, text, file, line, indent, dict(extra_vars or {}))


parse = from_source


def parse_text(text: str, file: Optional[str], line: int, values: Dict[str, Any]) -> Union[PrimFunc, IRModule]:
    """Parses text whose first line has the given number in the file."""
    names = [row for row in (_name_row(k, v) for k, v in values.items()) if row is not None]
    is_module = (
        re.search(r"^\s*class\s", text, re.MULTILINE)
        or len(re.findall(r"^(?:async\s+)?def\s", text, re.MULTILINE)) != 1
    )
    try:
        return call("parse_module" if is_module else "parse_primfunc", text, file, line, names)
    except error.DiagnosticError as e:
        diagnostics.report(e)
        raise


def _name_row(name: str, value: Any) -> Optional[List[Any]]:
    """[name, value] of a Python value that text can use; None for others."""
    usable = _usable(value)
    if usable is None:
        return None
    if isinstance(value, np.dtype) or isinstance(value, type):
        return [name, usable, "dtype"]
    return [name, usable]


def _usable(v: Any) -> Any:
    if isinstance(v, (bool, int, float, str, PrimExpr)):
        return v
    if isinstance(v, IterVar):
        return v.var
    if isinstance(v, (list, tuple)):
        items = [_usable(x) for x in v]
        return None if any(x is None for x in items) else items
    if isinstance(v, np.generic):
        return v.tolist()
    if isinstance(v, np.dtype) or (isinstance(v, type) and issubclass(v, np.generic)):
        return np.dtype(v).name
    return None


# ---- decorators


def _source_of(obj: Any) -> Tuple[str, str, int, int]:
    """Text without its indentation, file, number of the first line, indentation."""
    try:
        lines, line = inspect.getsourcelines(obj)
        file = inspect.getsourcefile(obj) or "<script>"
    except (OSError, TypeError) as e:
        raise error.ArgumentError(
            f"the source of '{getattr(obj, '__name__', obj)}' cannot be read ({e}); put it in a file, or pass the text to lathe.script.from_source"
        ) from None
    raw = "".join(lines)
    text = textwrap.dedent(raw)
    indent = len(raw) - len(raw.lstrip(" \t"))
    return text, file, line or 1, indent


def _free_names(text: str) -> Set[str]:
    """Names that the text reads and nowhere binds."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()  # the compiler's parser says what is wrong
    read: Set[str] = set()
    bound: Set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return read - bound


def _evaluate_closed(text: str, values: Dict[str, Any]) -> str:
    """Parts such as `cfg.tile`, `sizes["n"]` or `half(16)` that speak of Python's names alone are evaluated: a name of
    their value stands in the text instead.  Lines stay what they are."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    places: List[Tuple[int, int, int, str]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)) and node.lineno == node.end_lineno:
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            if names and names <= set(values) and not names & set(LANGUAGE):
                value = eval(
                    compile(ast.Expression(node), "<script>", "eval"), dict(values)
                )  # pylint: disable=eval-used
                if _usable(value) is not None:
                    new = f"_python_{len(places)}"
                    values[new] = value
                    places.append((node.lineno, node.col_offset, node.end_col_offset or 0, new))
                    return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    for line, start, end, new in sorted(places, reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:start] + new.encode() + row[end:]
    return b"".join(lines).decode()


def _inline_calls(text: str, values: Dict[str, Any]) -> Optional[str]:
    """The text with calls of Python's functions on the script's values written out; None if there are none."""
    if not any(callable(v) or isinstance(v, (list, tuple)) for v in values.values()):
        return None
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    before = ast.dump(tree)
    tree = Inliner(values).visit(tree)
    return None if ast.dump(tree) == before else ast.unparse(ast.fix_missing_locations(tree))


def _parse_source(
    obj: Any, text: str, file: str, line: int, indent: int, values: Dict[str, Any], frame: Any = None
) -> Any:
    scopes: List[Dict[str, Any]] = [values]
    for f in [obj] + ([v for v in vars(obj).values() if inspect.isfunction(v)] if isinstance(obj, type) else []):
        if inspect.isfunction(f):
            cells = zip(f.__code__.co_freevars, f.__closure__ or ())
            scopes += [{n: c.cell_contents for n, c in cells if _has_value(c)}, f.__globals__]
    while frame is not None:
        scopes.append(frame.f_locals)
        scopes.append(frame.f_globals)
        frame = frame.f_back if frame.f_code.co_name != "<module>" else None
    captured = dict(values)
    scopes.append({f.__name__: f for f in (abs, len, list, sorted, sum, tuple)})
    for name in sorted(_free_names(text)):
        for scope in scopes:
            if name in scope:
                captured.setdefault(name, scope[name])
                break
    if any(isinstance(v, Macro) for v in captured.values()):
        tree = ast.parse(text)
        text = ast.unparse(ast.fix_missing_locations(Expander(tree, captured).visit(tree)))
        file, line = f"{file}, its macros written out", 1
    text = _evaluate_closed(text, captured)
    inlined = _inline_calls(text, captured)
    if inlined is not None:
        text, file, line = inlined, f"{file}, its calls of Python written out", 1
    try:
        return parse_text(text, file, line, captured)
    except error.LatheError as e:
        if e.line and e.col:
            e.col += indent
        raise


def _has_value(cell: Any) -> bool:
    try:
        cell.cell_contents  # pylint: disable=pointless-statement
        return True
    except ValueError:
        return False


def _in_class_body(frame: Any) -> bool:
    return "__module__" in frame.f_locals and "__qualname__" in frame.f_locals


def prim_func(func: Optional[Callable[..., Any]] = None, private: bool = False, check_well_formed: bool = True) -> Any:
    """Decorator: the function's source is TVMScript; what it gives is a PrimFunc.

    Inside a class decorated with `I.ir_module` it leaves the function for the
    module's parser."""

    def decorate(f: Callable[..., Any], frame: Any) -> Any:
        if not inspect.isfunction(f):
            raise error.TypeError(f"prim_func: wants a function, not a {type(f).__name__}")
        if _in_class_body(frame):
            return f
        out = _parse_source(f, *_source_of(f), {}, frame)
        return out.without_attr("global_symbol") if private else out

    if func is not None:
        return decorate(func, sys._getframe(1))
    return lambda f: decorate(f, sys._getframe(1))


def ir_module(mod: Optional[type] = None, check_well_formed: bool = True) -> Any:
    """Decorator: the class's source is TVMScript; what it gives is an IRModule."""

    def decorate(cls: type, frame: Any) -> IRModule:
        if not isinstance(cls, type):
            raise error.TypeError(f"ir_module: wants a class, not a {type(cls).__name__}")
        out = _parse_source(cls, *_source_of(cls), {}, frame)
        out.__name__ = cls.__name__
        return out

    if mod is not None:
        return decorate(mod, sys._getframe(1))
    return lambda cls: decorate(cls, sys._getframe(1))


def macro(*args: Any, hygienic: bool = True) -> Any:
    """Decorator: the function's body is TVMScript that a call inside of a script stands for.  `@macro`, or with
    hygienic by its place or its name."""
    func = args[0] if args and not isinstance(args[0], bool) else None
    if len(args) > 1:
        raise error.TypeError("macro: takes hygienic alone")
    if args and func is None:
        hygienic = args[0]

    def decorate(f: Callable[..., Any], frame: Any) -> Macro:
        if not inspect.isfunction(f):
            raise error.TypeError(f"macro: wants a function, not a {type(f).__name__}")
        names = {**f.__globals__, **frame.f_locals}
        names.update({n: c.cell_contents for n, c in zip(f.__code__.co_freevars, f.__closure__ or ()) if _has_value(c)})
        return Macro(f, hygienic, names)

    if func is not None:
        return decorate(func, sys._getframe(1))
    return lambda f: decorate(f, sys._getframe(1))
