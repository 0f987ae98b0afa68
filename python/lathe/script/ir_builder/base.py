"""The builder under way: lines of a script, made by calls."""

from __future__ import annotations

from typing import Any, List, Optional, Set

from ... import error
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import PrimExpr, Var, convert
from ..parser import parse_text

_open: List["IRBuilder"] = []


class IRBuilder:
    """Builds a function: ``with IRBuilder() as ib: with T.prim_func(): …``, then ``ib.get()``."""

    def __init__(self) -> None:
        self.lines: List[str] = []
        self.depth = 0
        self.taken: Set[str] = set()
        self.parameters: List[str] = []
        self.function = "main"
        self.private = False
        self.finished: Any = None

    def __enter__(self) -> "IRBuilder":
        _open.append(self)
        return self

    def __exit__(self, *_error: Any) -> None:
        _open.pop()

    @staticmethod
    def current() -> "IRBuilder":
        """The innermost builder of a with statement."""
        if not _open:
            raise error.ArgumentError("there is no IRBuilder here; open one: with IRBuilder() as ib:")
        return _open[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Is there a builder of a with statement?"""
        return bool(_open)

    def get(self) -> Any:
        """What was built."""
        if self.finished is None:
            raise error.ArgumentError("IRBuilder.get: nothing was built; with T.prim_func(): … makes a function")
        return self.finished

    # ---- lines

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.depth + text)

    def finish(self) -> None:
        """Reads the lines."""
        decorator = "@T.prim_func(private=True)" if self.private else "@T.prim_func"
        head = f"{decorator}\ndef {self.function}({', '.join(self.parameters)}):\n"
        self.finished = parse_text(head + "\n".join(self.lines) + "\n", None, 1, {})

    def unique(self, hint: str) -> str:
        """A name that is not taken yet."""
        name = hint
        for i in range(1, len(self.taken) + 2):
            if name not in self.taken:
                break
            name = f"{hint}_{i}"
        self.taken.add(name)
        return name

    def variable(self, hint: str, dtype: str) -> Var:
        """A variable of a name of its own."""
        return Var(self.unique(hint), dtype)

    def buffer(self, hint: str, like: Buffer) -> Buffer:
        """A buffer of a name of its own."""
        return decl_buffer(like.shape, like.dtype, self.unique(hint), scope=like.scope())


class Frame:
    """A with statement of the builder: a line, and what stands below it."""

    def __init__(self, line: Optional[str], value: Any = None, leave: Any = None) -> None:
        self._line, self._value, self._leave = line, value, leave

    def __enter__(self) -> Any:
        builder = IRBuilder.current()
        if self._line is not None:
            builder.line(self._line)
        builder.depth += 1
        self._start = len(builder.lines)
        return self._value

    def __exit__(self, kind: Any, *_error: Any) -> None:
        builder = IRBuilder.current()
        if len(builder.lines) == self._start:
            builder.line("pass")
        builder.depth -= 1
        if kind is None and self._leave is not None:
            self._leave(builder)


def text(value: Any) -> str:
    """A value as a script writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(text(v) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (bool, int, str)) or value is None:
        return repr(value)
    return str(convert(value)) if not isinstance(value, PrimExpr) else str(value)
