"""Printing scripts: in colour on a terminal, plain in a pipe."""

from __future__ import annotations

import keyword
import os
import re
import sys
from typing import Optional

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<decorator>@[\w.]+)
      | (?P<number>\b(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)\b)
      | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE,
)
_COLOURS = {"comment": "90", "string": "32", "decorator": "35", "number": "36", "keyword": "34;1", "language": "33"}


def highlight(text: str) -> str:
    """The text with ANSI colours."""

    def paint(m: "re.Match[str]") -> str:
        kind, word = m.lastgroup or "", m.group()
        if kind == "name":
            kind = "keyword" if keyword.iskeyword(word) else "language" if word in ("T", "I") else ""
        colour = _COLOURS.get(kind)
        return f"\x1b[{colour}m{word}\x1b[0m" if colour else word

    return _TOKEN.sub(paint, text)


def cprint(text: str, style: Optional[str] = None) -> None:
    """Prints; style "plain" forbids colours, "ansi" forces them."""
    wanted = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    if style in ("plain", "ansi"):
        wanted = style == "ansi"
    text = text.rstrip("\n")
    print(highlight(text) if wanted else text)
