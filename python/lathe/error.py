"""Exceptions.  Each derives from LatheError and from the builtin it is a case of,
so ``except ValueError`` and ``except lathe.LatheError`` both catch a wrong argument."""

from __future__ import annotations

import builtins
from typing import Dict, Optional, Type


class LatheError(RuntimeError):
    """An error that Lathe reported.

    ``message`` is its text; ``file``, ``line`` and ``col`` say where in the user's
    source, as far as that is known (``line`` is 0 when it is not)."""

    def __init__(self, message: str = "", file: Optional[str] = None, line: int = 0, col: int = 0):
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.col = col

    def __str__(self) -> str:
        if not self.line:
            return self.message
        place = f"{self.file or '<text>'}:{self.line}" + (f":{self.col}" if self.col else "")
        return f"{place}: {self.message}"

    def __reduce__(self):
        return (type(self), (self.message, self.file, self.line, self.col))


class ArgumentError(LatheError, ValueError):
    """A value that the caller chose is wrong."""


class DiagnosticError(LatheError):
    """Something in the user's program is wrong: its types, its shapes, its text."""


class TypeError(DiagnosticError, builtins.TypeError):  # noqa: A001 (the kind's name)
    """Dtypes or kinds of values do not fit."""


class ShapeError(DiagnosticError, ValueError):
    """Ranks or extents do not fit."""


class BoundsError(LatheError, IndexError):
    """An access that is provably out of bounds."""


class ParseError(DiagnosticError, SyntaxError):
    """Text that is not the language; has line and column."""

    def __init__(self, message: str = "", file: Optional[str] = None, line: int = 0, col: int = 0):
        SyntaxError.__init__(self, message)
        LatheError.__init__(self, message, file, line, col)
        self.msg, self.filename, self.lineno, self.offset = message, file, line or None, col or None

    def __str__(self) -> str:
        return LatheError.__str__(self)


class ScheduleError(LatheError, ValueError):
    """A schedule primitive that is not legal here."""


class UnsupportedError(LatheError, NotImplementedError):
    """A limit of Lathe, named."""


class IOError(LatheError, OSError):  # noqa: A001
    """Files, libraries, child processes."""

    def __str__(self) -> str:
        return LatheError.__str__(self)


class MemoryError(LatheError, builtins.MemoryError):  # noqa: A001
    """An allocation failed."""


class CallbackError(LatheError):
    """A function of the user's, called from inside, failed."""


class NotFoundError(LatheError, LookupError):
    """No such function, symbol or file."""


class InternalError(LatheError):
    """A defect of Lathe itself."""


#: The names that the C library gives its kinds of errors.
BY_NAME: Dict[str, Type[LatheError]] = {
    "ArgumentError": ArgumentError,
    "TypeError": TypeError,
    "ShapeError": ShapeError,
    "BoundsError": BoundsError,
    "ParseError": ParseError,
    "ScheduleError": ScheduleError,
    "UnsupportedError": UnsupportedError,
    "IOError": IOError,
    "MemoryError": MemoryError,
    "CallbackError": CallbackError,
    "InternalError": InternalError,
}

TVMError = LatheError

# TVM's names for what goes wrong with operators; each is the kind of error that Lathe reports then.
OpError = LatheError
OpNotImplemented = UnsupportedError
OpAttributeUnImplemented = UnsupportedError
OpAttributeInvalid = ArgumentError
OpAttributeRequired = ArgumentError
