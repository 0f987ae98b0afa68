"""What a program uses of TVM that Lathe does not have, found by reading its syntax.

Names that imports bind to modules are followed through attributes (`relay.op.nn.foo`) as far as modules and classes
go; keywords of calls are held against the signature of what is called.  What hangs on values at run time cannot be
seen, nor can the words inside of TVMScript functions, which the script parser knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import types
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

ROOTS = ("tvm", "lathe")


class Missing(NamedTuple):
    """Something that is not there, and where it is used."""

    where: str
    what: str


def programs(paths: Sequence[str]) -> Iterator[str]:
    """The files given, and the Python files and notebooks below the folders given."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith((".py", ".ipynb")))


def missing_in_file(path: str) -> List[Missing]:
    """What a script or a notebook uses that is not there, in the order of its lines."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if not path.endswith(".ipynb"):
        return missing_in_text(text, path)
    scanner, cells = _Scanner(), json.loads(text)["cells"]
    sources = [(i, "".join(c["source"])) for i, c in enumerate(cells, 1) if c["cell_type"] == "code"]
    # Lines of the notebook's own, such as %matplotlib and !pip, keep their place and say nothing.
    trees = [(f"{path}:cell {i}", ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", s))) for i, s in sources]
    return scanner.scan(trees)


def missing_in_text(text: str, path: str = "<text>") -> List[Missing]:
    """What a program's text uses that is not there."""
    return _Scanner().scan([(path, ast.parse(text, path))])


def _get(owner: Any, name: str) -> Tuple[bool, Any]:
    """An attribute of a module or class, or a module inside of one."""
    try:
        return True, getattr(owner, name)
    except AttributeError:
        if not isinstance(owner, types.ModuleType):
            return False, None
    try:
        return True, importlib.import_module(f"{owner.__name__}.{name}")
    except ImportError:
        return False, None


def find(dotted: str) -> Tuple[bool, str, Any]:
    """A name below tvm: is it there, how far is it, and what is it.  Beyond modules and classes nothing is asked."""
    words = dotted.split(".")
    value: Any = importlib.import_module("lathe")
    for i, word in enumerate(words[1:], 1):
        if not isinstance(value, (types.ModuleType, type)):
            return True, ".".join(words[:i]), None
        there, value = _get(value, word)
        if not there:
            return False, ".".join(["tvm", *words[1 : i + 1]]), None
    return True, dotted, value


class _Scanner:
    """Goes through programs that share their names, such as the cells of a notebook."""

    def __init__(self) -> None:
        self.names: Dict[str, str] = {}  # a name of the program -> the module or thing of TVM that it stands for

    def scan(self, trees: Sequence[Tuple[str, ast.AST]]) -> List[Missing]:
        """What is missing in these programs."""
        out: List[Missing] = []
        for path, tree in trees:
            out += self._imports(path, tree)
        for path, tree in trees:
            out += self._uses(path, tree)
        order = {path: i for i, (path, _) in enumerate(trees)}
        unique = dict.fromkeys(out)
        return sorted(unique, key=lambda m: (order[m.where.rpartition(":")[0]], int(m.where.rpartition(":")[2])))

    def _imports(self, path: str, tree: ast.AST) -> List[Missing]:
        out = []
        for node in ast.walk(tree):
            wanted: List[str] = []
            if isinstance(node, ast.Import):
                for a in node.names:
                    if a.name.split(".")[0] in ROOTS:
                        wanted.append(a.name)
                        self.names[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in ROOTS:
                for a in node.names:
                    wanted.append(f"{node.module}.{a.name}" if a.name != "*" else str(node.module))
                    if a.name != "*":
                        self.names[a.asname or a.name] = wanted[-1]
            for name in wanted:
                there, upto, _ = find(name)
                if not there:
                    self.names = {k: v for k, v in self.names.items() if v != name}  # its uses say nothing new
                    out.append(Missing(f"{path}:{node.lineno}", upto))  # type: ignore[attr-defined]
        return out

    def _dotted(self, node: ast.AST) -> Optional[str]:
        words: List[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return ".".join([self.names[node.id], *reversed(words)])

    def _uses(self, path: str, tree: ast.AST) -> List[Missing]:
        out = []
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}  # parts of a longer name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                dotted = self._dotted(node)
                if dotted:
                    there, upto, _ = find(dotted)
                    if not there:
                        out.append(Missing(f"{path}:{node.lineno}", upto))
            elif isinstance(node, ast.Call):
                dotted = self._dotted(node.func)
                if dotted:
                    out += [
                        Missing(f"{path}:{node.lineno}", f"tvm.{dotted.partition('.')[2]}({k}=…)")
                        for k in _unknown_keywords(dotted, node)
                    ]
        return out


def _unknown_keywords(dotted: str, node: ast.Call) -> List[str]:
    there, _, value = find(dotted)
    if not there or not isinstance(value, (types.FunctionType, type)):
        return []
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    return [k.arg for k in node.keywords if k.arg and k.arg not in parameters]
