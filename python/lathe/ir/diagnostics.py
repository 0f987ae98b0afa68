"""What is wrong in a program's text, handed to a function of the user's as well as raised."""

from __future__ import annotations

import enum
from typing import Any, Callable, List, NamedTuple, Optional

from .. import error
from .._ir.diagnostics import set_listener

__all__ = ["Diagnostic", "DiagnosticContext", "DiagnosticLevel", "DiagnosticRenderer", "Span", "override_renderer"]


class DiagnosticLevel(enum.IntEnum):
    """How bad it is.  Lathe reports errors alone."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


class Span(NamedTuple):
    """A place in a text: lines and columns count from 1."""

    source_name: Optional[str]
    line: int
    column: int


class Diagnostic(NamedTuple):
    """One report: how bad, where, what."""

    level: DiagnosticLevel
    span: Span
    message: str


class DiagnosticContext:
    """What was reported together."""

    def __init__(self, diagnostics: List[Diagnostic]) -> None:
        self.diagnostics = diagnostics


class DiagnosticRenderer:
    """A function that is given reports."""

    def __init__(self, render_func: Callable[[DiagnosticContext], Any]) -> None:
        self.render = render_func


def override_renderer(render_func: Optional[Callable[[DiagnosticContext], Any]]) -> None:
    """Reports about texts go to this function too, before they are raised; None ends that."""

    def listen(e: error.LatheError) -> None:
        span = Span(e.file, e.line, e.col)
        if render_func is not None:
            render_func(DiagnosticContext([Diagnostic(DiagnosticLevel.ERROR, span, e.message)]))

    set_listener(None if render_func is None else listen)
