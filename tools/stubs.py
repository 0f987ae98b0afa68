#!/usr/bin/env python3
"""Writes the stubs (.pyi) of what the Python package makes from the compiler's tables: operators of graphs, passes,
intrinsics.  Type checkers and editors read them.

    PYTHONPATH=python python3 tools/stubs.py [--check]

--check writes nothing and fails when a stub is not what the tables say; a test runs that."""
import argparse
import inspect
import pathlib
import sys
import textwrap
import typing

from lathe import relay, tir
from lathe._ffi import call
from lathe.relay import op_rows

PACKAGE = pathlib.Path(relay.__file__).resolve().parent.parent
NOTE = '"""{}\n\nWritten by tools/stubs.py from the compiler\'s table."""\n\n'
KINDS = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "dtype": "str",
    "list[int]": "Sizes",
    "list[dim]": "Sizes",
    "list[float]": "Sequence[float]",
    "list[str]": "Sequence[str]",
}
GRAPH_HEADER = """from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

"""


INNER = {"qnn": "op"}  # families whose operators TVM keeps in a module of their own


def written(annotation):
    """An annotation as a stub has it."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def definition(name, parts, result, doc):
    """def name(parts) -> result, on several lines where it is long."""
    line = f"def {name}({', '.join(parts)}) -> {result}:"
    if len(line) > 120:
        line = f"def {name}(\n" + "".join(f"    {p},\n" for p in parts) + f") -> {result}:"
    return f'{line}\n    """{doc}"""\n'


def parameter(p, annotation):
    default = p.default
    if default is inspect.Parameter.empty:
        return f"{p.name}: {annotation}"
    if default is None and annotation != "Any" and not annotation.startswith("Optional"):
        annotation = f"Optional[{annotation}]"
    shown = repr(default) if isinstance(default, (bool, int, str, type(None), tuple, list)) else "..."
    if isinstance(default, float):
        shown = repr(default) if default - default == 0 else "..."
    return f"{p.name}: {annotation} = {shown}"


def operator(r, function):
    """The lines of one operator."""
    attrs = {a.name: a.kind for a in r.attrs}
    own = typing.cast(typing.Any, function).__dict__.get("__signature__")
    name = r.name.rpartition(".")[2]
    doc = r.doc.replace("\\", "\\\\").replace('"', "'")
    if r.most < 0 and own is None and function.__code__.co_flags & inspect.CO_VARARGS:
        return definition(
            name, ["*args: Value"] + [f"{k}: {KINDS[v]} = ..." for k, v in attrs.items()], "RelayExpr", doc
        )
    signature = own or inspect.signature(function)
    parts, star = [], False
    for p in signature.parameters.values():
        if p.kind == p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if own is None:
            annotation = written(p.annotation)
        else:
            annotation = KINDS[attrs[p.name]] if p.name in attrs and p.name not in r.args else "Value"
            if p.name in attrs and p.name in r.args:
                annotation = f"Union[Value, {KINDS[attrs[p.name]]}]"
        parts.append(parameter(p, annotation))
    result = written(signature.return_annotation) if own is None else "RelayExpr"
    return definition(name, parts, "RelayExpr" if result == "Any" else result, doc)


def operators():
    """Path -> text, one file for the operators of each family."""
    families = {}
    for name, r in op_rows.rows().items():
        if not name.startswith("annotation."):  # relay/op/annotation.py has them
            families.setdefault(name.rpartition(".")[0], []).append(r)
    inner = {f for f in families if any(g.startswith(f + ".") for g in families if f)}
    out = {}
    for family, rows in families.items():
        place = relay
        for word in family.split(".") if family else []:
            place = getattr(place, word)
        title = f"Operators relay.{family + '.' if family else ''}*."
        body = [operator(r, getattr(place, r.name.rpartition(".")[2])) for r in rows]
        names = sorted(r.name.rpartition(".")[2] for r in rows)
        below = sorted(
            {f[len(family) + 1 :].split(".")[0] for f in families if family in inner and f.startswith(family + ".")}
        )
        if not family:
            below = sorted({f.split(".")[0] for f in families if f})
        header = GRAPH_HEADER
        for b in below:
            header = header.replace("\nValue =", f"\nfrom . import {b} as {b}\nValue =", 1)
        exported = "__all__ = [" + ", ".join(f'"{n}"' for n in sorted(names + below)) + "]\n\n"
        package = family in inner or family in INNER
        ending = "/__init__.pyi" if package else ".pyi"
        path = "relay/" + ("_operators.pyi" if not family else family.replace(".", "/") + ending)
        if family in INNER:
            module = INNER[family]
            out[path] = NOTE.format(title) + f"from . import {module} as {module}\nfrom .{module} import *\n"
            path = f"relay/{family}/{INNER[family]}.pyi"
        out[path] = NOTE.format(title) + header + wrapped(exported) + "\n".join(body)
    return out


def wrapped(line):
    """__all__ over several lines."""
    inside = line.strip()[len("__all__ = [") : -1]
    return (
        "__all__ = [\n"
        + textwrap.fill(
            inside, 116, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        + ",\n]\n\n"
    )


def passes():
    kinds = {"bool": "bool", "int": "int", "float": "float", "str": "Any", "list[str]": "Any"}
    body, names = [], []
    for name, doc, _scope, _level, options in call("pass_table"):
        params = [
            f"{o[0]}: Optional[{kinds[o[1]]}] = None" if kinds[o[1]] != "Any" else f"{o[0]}: Any = None"
            for o in options
        ]
        body.append(definition(name, params, "Pass", doc))
        names.append(name)
    exported = "__all__ = [" + ", ".join(f'"{n}"' for n in names) + "]\n\n"
    header = "from typing import Any, Optional\n\nfrom lathe._ir.transform import Pass\n\n"
    return {"relay/_passes.pyi": NOTE.format("Passes over graphs.") + header + wrapped(exported) + "\n".join(body)}


def intrinsics():
    body = []
    for name in [*tir.op.generated, *tir.op.builtins]:
        _, least, most, flags, doc = tir.op.intrinsics[name]
        params = (
            [f"x{i}: Any" for i in range(least)]
            if least == most and least > 1
            else ["x: Any"] if least == most == 1 else ["*args: Any"]
        )
        if name in tir.op.builtins:
            params = [*(["dtype: str"] if flags & tir.op._TYPED else []), "*args: Any"]
        elif least == most:
            params.append("span: Any = None")
        body.append(definition(name, params, "PrimExpr", doc))
    exported = "__all__ = [" + ", ".join(f'"{n}"' for n in [*tir.op.generated, *tir.op.builtins]) + "]\n\n"
    header = "from typing import Any\n\nfrom lathe.tir.expr import PrimExpr\n\n"
    return {
        "tir/_intrinsics.pyi": NOTE.format("Intrinsic functions of expressions.")
        + header
        + wrapped(exported)
        + "\n".join(body)
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="only say which stubs differ")
    check = arguments.parse_args().check
    wanted = {**operators(), **passes(), **intrinsics()}
    have = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.pyi")}
    wrong = sorted(have - set(wanted))
    for path, text in wanted.items():
        file = PACKAGE / path
        if not file.exists() or file.read_text() != text:
            wrong.append(path)
            if not check:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
    for path in sorted(have - set(wanted)) if not check else ():
        (PACKAGE / path).unlink()
    if check and wrong:
        sys.exit(f"not up to date: {', '.join(wrong)}; run PYTHONPATH=python python3 tools/stubs.py")


if __name__ == "__main__":
    main()
